"""Features of inducing points against dense algebra, and the choice of the points."""

import numpy as np
import pytest
import torch
from refusals import refused

import rfgp
from rfgp import kernels as k
from rfgp import spectra
from rfgp.features import Nystrom, inducing

F64 = torch.float64
SPECTRA = [spectra.Gaussian(), spectra.Matern(1.5), spectra.ProductCauchy()]


def rows(n=60, d=3, seed=0):
    return torch.randn(n, d, dtype=F64, generator=torch.Generator().manual_seed(seed))


def clustered(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    centers = 4 * rng.standard_normal((10, 3))
    return torch.from_numpy(centers[rng.integers(10, size=n)] + 0.2 * rng.standard_normal((n, 3)))


def generator(seed=0):
    return np.random.default_rng(seed)


def twin(x, z, spectrum, jitter):
    K, C = spectrum.kernel_between(x, z).numpy(), spectrum.kernel_between(z, z).numpy()
    return K @ np.linalg.solve(C + jitter * np.eye(len(z)), K.T)


@pytest.mark.parametrize("spectrum", SPECTRA, ids=repr)
def test_they_estimate_the_kernel_and_leave_a_covariance(spectrum):
    x, z = rows(), rows(12, seed=1)
    x = torch.cat([x, z, x[:3]])
    phi = Nystrom(z, spectrum)(x)
    assert phi.shape == (75, 12)
    estimate = (phi @ phi.mT).numpy()
    np.testing.assert_allclose(estimate, twin(x, z, spectrum, 1e-8), atol=1e-9)
    left = spectrum.kernel_between(x, x).numpy() - estimate
    assert np.linalg.eigvalsh(left)[0] > -1e-9
    assert np.abs(left[60:72]).max() < 1e-6  # the points themselves


def test_rows_that_repeat_each_other_and_far_ones_are_safe():
    z = torch.cat([rows(5), rows(5)])
    x = torch.cat([rows(8, seed=2), 1e6 * rows(2, seed=3)])
    phi = Nystrom(z, SPECTRA[0])(x)
    np.testing.assert_allclose(phi @ phi.mT, twin(x, z[:5], SPECTRA[0], 0.5e-8), atol=1e-8)
    assert not phi[8:].any()
    refused(lambda: Nystrom(z[:0], SPECTRA[0]), rfgp.InvalidArgumentError, "M > 0, got (0, 3)")


def test_float32_has_a_larger_jitter():
    """It takes more from the diagonal, and rounding of the kernel reaches the features at most 1 / sqrt(j) times."""
    x, z, spectrum = rows(200), rows(40, seed=1), SPECTRA[0]
    phi = Nystrom(z, spectrum)(x.float())
    assert phi.dtype == torch.float32
    jitter = 1e-5
    exact = twin(x, z, spectrum, jitter)
    assert np.abs((phi @ phi.mT).double().numpy() - exact).max() < 4 * 6e-8 * np.sqrt(40 / jitter)
    assert phi.double().square().sum(1).max() < 1 + 1e-5


def test_close_points_lose_no_digits_of_float32_rows():
    """The kernel of the points is nearly singular, and divides rounding errors of 6e-8 by the root of the jitter."""
    x = torch.linspace(0, 1, 33)[:, None]  # exact in float32
    start = {"lengthscale": 1.0, "outputscale": 1.0}
    gp = rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(20, method="sor"), start=start, standardize=False, seed=0)
    gp.condition(x, x[:, 0])
    found = gp.prior_covariance(x)
    np.testing.assert_allclose(found, np.exp(-((x - x.T).double().numpy() ** 2) / 2), atol=2e-6)


@pytest.mark.parametrize("choose", ["k-means", "pivots"])
def test_points_that_know_the_rows_are_better_than_random_ones(choose):
    x, kernel = clustered() / 2, SPECTRA[0].kernel_between
    chosen = {
        "k-means": lambda seed: inducing.by_k_means(x, 12, generator(seed)),
        "pivots": lambda seed: inducing.by_pivots(x, 12, kernel, generator(seed)),
        "random": lambda seed: x[torch.from_numpy(generator(seed).permutation(2000)[:12])],
    }

    def missed(kind):
        return [float((1 - Nystrom(chosen[kind](s), SPECTRA[0])(x).square().sum(1)).mean()) for s in range(4)]

    found = chosen[choose](0)
    assert found.shape == (12, 3)
    assert torch.equal(found, chosen[choose](0))
    assert max(missed(choose)) < min(missed("random"))


@pytest.mark.slow
def test_pivots_are_drawn_by_residual_variance():
    """Rows that repeat each other count as many; the second of a pair is never drawn."""
    x = torch.tensor([[0.0], [0.0], [9.0]], dtype=F64)
    drawn = [inducing.by_pivots(x, 3, SPECTRA[0].kernel_between, generator(seed))[:, 0].tolist() for seed in range(600)]
    assert abs(np.mean([points[0] == 9 for points in drawn]) - 1 / 3) < 6 * np.sqrt(2 / 9 / 600)
    assert all(sorted(points) == [0.0, 9.0] for points in drawn)


def test_where_no_variance_is_left_the_rest_is_drawn_anyway():
    """At shorter lengthscales, which a search may come to, it is wanted."""
    x = torch.linspace(0, 1, 400, dtype=F64)[:, None]
    found = inducing.by_pivots(x, 50, SPECTRA[0].kernel_between, generator())
    assert len(found.unique(dim=0)) == 50
    assert found.max() - found.min() > 0.9
    with np.errstate(invalid="raise", divide="raise"):
        assert len(inducing.by_k_means(1e-200 * x, 50, generator())) >= 1


def test_k_means_are_means_of_the_rows_nearest_to_them():
    x = clustered(400)
    found = inducing.by_k_means(x, 10, generator())
    near = torch.cdist(x, found).argmin(1)
    torch.testing.assert_close(found, torch.stack([x[near == i].mean(0) for i in range(10)]))


def test_distinct_rows_are_all_there_are():
    x = rows(5).repeat(4, 1)
    assert len(inducing.by_k_means(x, 9, generator())) == 5
    assert len(inducing.by_pivots(x, 9, SPECTRA[1].kernel_between, generator())) == 5
    assert len(inducing.by_k_means(torch.zeros(7, 2, dtype=F64), 3, generator())) == 1
