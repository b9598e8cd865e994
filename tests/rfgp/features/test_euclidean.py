import numpy as np
import pytest
import torch
from checks import assert_mean, fails

import rfgp
from rfgp import couplings, features, random, spectra

X = torch.tensor([[0.1, -0.2, 0.3], [0.4, 0.0, -0.1], [-0.3, 0.2, 0.1]], dtype=torch.float64)  # |x + z| <= 1


def estimates(make, count=1000, m=5, name="orthogonal"):
    generator = random.generator(3)
    maps = (make(couplings.by_name(name).sample(m, 3, generator=generator)) for _ in range(count))
    return torch.stack([phi(X) @ phi(X).T for phi in maps]).numpy()


def check_unbiased(samples):
    away = ~np.eye(3, dtype=bool)
    exact = spectra.Gaussian().kernel_between(X, X).numpy()
    assert_mean(samples[:, away], exact[away])


@pytest.mark.parametrize(
    ("kind", "name"), [("fourier", "iid"), ("fourier", "simplex"), ("laplace", "pairwise"), ("laplace", "sobol")]
)
@pytest.mark.slow
def test_estimates_are_unbiased_off_the_diagonal(kind, name):
    check_unbiased(estimates(features.by_name(kind), name=name))


class TestPlantedErrors:
    def test_laplace_features_with_half_the_norm(self):
        class Planted(features.Laplace):
            def forward(self, x):
                return super().forward(x) * (0.5 * (x**2).sum(-1, keepdim=True)).exp()

        assert fails(check_unbiased, estimates(Planted))

    def test_fourier_features_of_a_wrong_scale(self):
        class Planted(features.Fourier):
            def forward(self, x):
                return super().forward(1.1 * x)

        assert fails(check_unbiased, estimates(Planted))


def test_layout_and_weights():
    matrix = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
    x = torch.tensor([[0.3, 0.7]], dtype=torch.float64)
    phi = features.Fourier(couplings.Frequencies(matrix, torch.tensor([0.5, 1.5], dtype=torch.float64)))
    a, b = (x @ matrix.T)[0]
    expected = torch.stack([0.5 * a.cos(), 0.75**0.5 * b.cos(), 0.5 * a.sin(), 0.75**0.5 * b.sin()])
    torch.testing.assert_close(phi(x)[0], expected)
    assert phi.num_features == 4
    laplace = features.Laplace(matrix)
    torch.testing.assert_close(laplace(x)[0], torch.stack([a, b]).sub(0.58).exp() / 2**0.5)
    assert laplace.num_features == 2


@pytest.mark.parametrize("kind", features.names())
def test_batches_dtypes_and_gradients(kind):
    phi = features.by_name(kind)(couplings.IID().sample(4, 3, generator=random.generator(0)))
    x = torch.randn(2, 5, 3, generator=random.generator(1), dtype=torch.float64) / 3
    assert phi(x).shape == (2, 5, phi.num_features)
    torch.testing.assert_close(phi(x)[1], phi(x[1]))
    torch.testing.assert_close(phi(x.float()), phi(x).float(), rtol=1e-5, atol=1e-6)
    assert torch.autograd.gradcheck(phi, (x[0].requires_grad_(),))
    assert phi(x[:, :0]).shape == (2, 0, phi.num_features)
    assert not list(phi.parameters())


def test_unknown_features():
    with pytest.raises(rfgp.InvalidArgumentError, match="features must be one of"):
        features.by_name("cosine")
