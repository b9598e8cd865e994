import numpy as np
import pytest
import torch
from checks import assert_mean
from refusals import refused
from scipy import stats

import rfgp
from benchmarks.papers.article import RandomPhase
from rfgp import couplings, features

X = torch.tensor([[0.1, -0.2, 0.3], [0.4, 0.0, -0.1], [-0.3, 0.2, 0.1]], dtype=torch.float64)  # |x + z| <= 1


def test_layout_and_weights():
    omega = torch.from_numpy(np.random.default_rng(0).standard_normal((4, 3)))
    weights = torch.tensor([0.5, 1.5, 1.0, 0.8], dtype=torch.float64)
    angles, scale = X @ omega.T, (weights / 4).sqrt()
    drawn = couplings.Frequencies(omega, weights)
    fourier, laplace = features.Fourier(drawn), features.Laplace(drawn)
    torch.testing.assert_close(fourier(X), torch.cat([scale * angles.cos(), scale * angles.sin()], 1))
    torch.testing.assert_close(laplace(X), scale * (angles - X.square().sum(1, keepdim=True)).exp())
    assert (fourier.num_features, laplace.num_features) == (8, 4)


@pytest.mark.parametrize("kind", features.names())
def test_batches_dtypes_and_gradients(kind):
    def call(x, omega, weights):
        return features.by_name(kind)(couplings.Frequencies(omega, weights))(x)

    rng = np.random.default_rng(1)
    x, omega, weights = (torch.from_numpy(rng.uniform(0.1, 1, shape)) for shape in ((2, 5, 3), (4, 3), 4))
    phi = call(x, omega, weights)
    torch.testing.assert_close(phi[1], call(x[1], omega, weights))
    torch.testing.assert_close(call(x.float(), omega, weights), phi.float(), rtol=1e-5, atol=1e-6)
    assert call(x[:, :0], omega, weights).shape == (2, 0, phi.shape[-1])
    assert torch.autograd.gradcheck(call, [v.requires_grad_() for v in (x[0], omega, weights)])
    refused(lambda: features.by_name("cosine"), rfgp.InvalidArgumentError, "features must be one of")


@pytest.mark.slow
def test_random_phases_are_uniform_and_unbiased():
    """One cosine with a phase for each frequency, unbiased also on the diagonal."""
    seeded = torch.Generator().manual_seed(1)
    draws = (couplings.Pairwise().sample(3, 3, generator=seeded) for _ in range(1000))
    drawn = [RandomPhase(draw, generator=seeded) for draw in draws]
    kernels, phi = torch.stack([phi(X) @ phi(X).T for phi in drawn]), drawn[0]
    assert_mean(kernels.numpy(), (-0.5 * torch.cdist(X, X) ** 2).exp().numpy())
    torch.testing.assert_close(phi(X), (X @ phi.frequencies.dense().T + phi.phases).cos() * (2 / 3) ** 0.5)
    phases = torch.cat([phi.phases for phi in drawn]).numpy()
    assert stats.kstest(phases / (2 * np.pi), "uniform").pvalue > 1e-9
