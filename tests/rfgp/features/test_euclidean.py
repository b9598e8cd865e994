import numpy as np
import pytest
import torch
from checks import assert_mean
from scipy import stats

import rfgp
from rfgp import couplings, features

X = torch.tensor([[0.1, -0.2, 0.3], [0.4, 0.0, -0.1], [-0.3, 0.2, 0.1]], dtype=torch.float64)  # |x + z| <= 1


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
    phi = features.by_name(kind)(couplings.IID().sample(4, 3, seed=0))
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 5, 3))) / 3
    assert phi(x).shape == (2, 5, phi.num_features)
    torch.testing.assert_close(phi(x)[1], phi(x[1]))
    torch.testing.assert_close(phi(x.float()), phi(x).float(), rtol=1e-5, atol=1e-6)
    assert torch.autograd.gradcheck(phi, (x[0].requires_grad_(),))
    assert phi(x[:, :0]).shape == (2, 0, phi.num_features)
    assert not list(phi.parameters())


def test_unknown_features():
    with pytest.raises(rfgp.InvalidArgumentError, match="features must be one of"):
        features.by_name("cosine")


def test_gradients_reach_frequencies_and_weights():
    omega = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 3))).requires_grad_()
    weights = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m, w: features.Fourier(couplings.Frequencies(m, w))(X), (omega, weights))


@pytest.mark.slow
def test_random_phases_are_uniform_and_unbiased():
    """One cosine with a phase for each frequency, unbiased also on the diagonal."""
    generator, samples = torch.Generator().manual_seed(1), []
    for _ in range(1000):
        omega = couplings.Pairwise().sample(3, 3, generator=generator)
        phi = features.RandomPhase(omega, generator=generator)
        samples.append(phi(X) @ phi(X).T)
    torch.testing.assert_close(phi(X), (X @ omega.dense().T + phi.phases).cos() * (2 / 3) ** 0.5)
    assert phi.num_features == 3
    assert phi(X.float()).dtype == torch.float32
    assert_mean(torch.stack(samples).numpy(), (-0.5 * torch.cdist(X, X) ** 2).exp().numpy())
    many = features.RandomPhase(torch.zeros(1000, 2), generator=generator).phases.numpy()
    assert stats.kstest(many / (2 * np.pi), "uniform").pvalue > 1e-9
