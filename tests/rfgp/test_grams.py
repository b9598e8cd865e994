"""The kernel of points with themselves and its gradient, against autograd."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp import spectra
from rfgp.distances import self_distance
from rfgp.grams import Gram, scaled_gram

ISOTROPIC = [spectra.Gaussian(), *map(spectra.Matern, (0.3, 0.5, 1.5, 2.5, 4.2)), spectra.RationalQuadratic(0.4)]


@pytest.mark.parametrize("ard", [True, False])
@pytest.mark.parametrize("spectrum", ISOTROPIC, ids=repr)
def test_the_kernel_of_scaled_points_and_its_gradient(spectrum, ard):
    generator = rfgp.random.generator(3)
    x, pull = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((9, 3), (9, 9)))
    x[4], x = x[2], 5 + x  # coincident points, far from the origin
    lengthscale = (torch.tensor([0.7, 2.0, 30.0]) if ard else torch.tensor(1.3)).double().requires_grad_()
    variance = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    scaled = (lengthscale, variance)

    z = x / lengthscale
    kernel = variance * spectrum.kernel_between(z, z)
    theirs = torch.autograd.grad((pull * kernel).sum(), scaled)
    for pulled in (pull, pull.mT.contiguous().mT):  # gradients come in rows, and in columns
        ours = scaled_gram(spectrum, x, *scaled)
        torch.testing.assert_close(ours.detach(), kernel.detach(), rtol=0, atol=1e-14)
        gradients = torch.autograd.grad(ours, scaled, pulled)
        torch.testing.assert_close(gradients, theirs, rtol=1e-9, atol=1e-11)
    fixed = scaled_gram(spectrum, x, lengthscale.detach(), variance)
    torch.testing.assert_close(fixed.detach(), kernel.detach(), rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.autograd.grad(fixed, variance, pull), theirs[1:], rtol=1e-9, atol=1e-11)


def test_rows_equal_up_to_rounding_have_a_right_gradient():
    """Of Matern kernels with nu at most 1 the slope at 0 is infinite, and the closed form would cancel."""
    b = np.linspace(0, 5.9, 60)
    x = np.column_stack([np.r_[0, np.cumsum(np.full(59, 0.1)), b], np.r_[np.sin(7 * b), np.sin(7 * b)]])
    for nu in (0.3, 0.5, 1.0, 1.5):
        found = []
        for rows in (x, np.round(x, 9)):
            lengthscale = torch.ones(2, dtype=torch.float64, requires_grad=True)
            kernel = scaled_gram(spectra.Matern(nu), torch.from_numpy(rows), lengthscale, torch.tensor(1.0).double())
            pull = torch.linspace(-1, 1, kernel.numel(), dtype=torch.float64).sin().reshape(kernel.shape)
            found.append(torch.autograd.grad((pull * kernel).sum(), lengthscale)[0])
        torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_pairs_near_each_other_where_the_slope_is_infinite(size, monkeypatch):
    """Summed by themselves, whatever their distances from the others; a product of matrices alone would cancel."""
    generator = rfgp.random.generator(5)
    x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    x[6:] = x[:6] + torch.logspace(-13, -3, 6, dtype=torch.float64)[:, None]
    x *= size
    pull = torch.zeros(12, 12, dtype=torch.float64)
    pull[range(6), range(6, 12)] = 1e8
    lengthscale = torch.ones(2, dtype=torch.float64, requires_grad=True)

    def gradient(gram):
        return torch.autograd.grad((pull * gram).sum(), lengthscale)[0]

    def ours():
        return gradient(scaled_gram(spectra.Matern(0.5), x, lengthscale, torch.tensor(1.0).double()))

    z = x / lengthscale
    theirs = gradient(spectra.Matern(0.5).kernel_between(z, z))
    torch.testing.assert_close(ours(), theirs, rtol=1e-7, atol=0)
    monkeypatch.setattr("rfgp.grams.MIN_DISTANCE", 0.0)
    assert not torch.allclose(ours(), theirs, rtol=1e-6)


@pytest.mark.parametrize("far", [1e10, 1e16, 1e200])
@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_gradient_is_right_with_a_distant_row(nu, far):
    x = torch.randn(20, 2, generator=rfgp.random.generator(5), dtype=torch.float64)
    x[7] = far
    lengthscale = torch.ones(2, dtype=torch.float64, requires_grad=True)
    near = [i for i in range(20) if i != 7]
    expected, found = (
        torch.autograd.grad(
            scaled_gram(spectra.Matern(nu), rows, lengthscale, torch.tensor(1.0).double()).sum(), scale
        )[0]
        for rows, scale in ((x[near], lengthscale), (x, lengthscale))
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


def near_points():
    """40 points in 20 dimensions, far from the origin, pairs of which are near each other or coincide."""
    z = torch.randn(40, 20, generator=rfgp.random.generator(7), dtype=torch.float64)
    z[20:] = z[:20] + torch.logspace(-9, 0, 20, dtype=torch.float64)[:, None]
    z[39] = z[38]
    return 100 + z


def test_distances_by_a_product_match_differences(monkeypatch):
    z = near_points()
    expected = (z[:, None, :] - z).square().sum(2).sqrt()
    torch.testing.assert_close(self_distance(z), expected, rtol=1e-9, atol=0)
    single = z.float()
    torch.testing.assert_close(self_distance(single), (single[:, None] - single).square().sum(2).sqrt())
    monkeypatch.setattr("rfgp.distances.NEAR", 0.0)
    assert not torch.allclose(self_distance(z), expected, rtol=1e-9, atol=0)


def test_grams_of_features_and_their_sum_match_autograd():
    generator = rfgp.random.generator(9)
    design, pull = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((6, 4), (6, 6)))
    pull = pull + pull.mT
    scale = torch.linspace(0.5, 2, 4, dtype=torch.float64).requires_grad_()
    variance = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    phi = (2 * design).requires_grad_()
    features = design * scale
    covariance = variance * features @ features.mT + phi @ phi.mT
    expected = torch.autograd.grad((pull * covariance).sum(), (scale, variance, phi))
    found = Gram.total([Gram.of_design(design, scale, variance), Gram.of_features(phi)])
    torch.testing.assert_close(found.covariance, covariance.detach())
    torch.testing.assert_close(tuple(found.pull_back(pull)), expected)


def test_a_covariance_changed_in_place_is_refused():
    x = torch.randn(5, 2, generator=rfgp.random.generator(5), dtype=torch.float64)
    lengthscale = torch.ones(2, dtype=torch.float64, requires_grad=True)
    kernel = scaled_gram(spectra.Gaussian(), x, lengthscale, torch.tensor(1.0).double())
    with torch.no_grad():
        kernel.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kernel.sum().backward()
