"""Factors, grams, distances and gradients in closed form against autograd and dense algebra."""

import functools

import pytest
import torch
from refusals import refused

import rfgp
from rfgp import grams, linalg, spectra
from rfgp.spectra.spectrum import self_distance

F64 = torch.float64
ISOTROPIC = [spectra.Gaussian(), *map(spectra.Matern, (0.3, 0.5, 1.5, 2.5, 4.2)), spectra.RationalQuadratic(0.4)]


def normal(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_jitter_only_after_a_failure_and_reported():
    singular = torch.ones(4, 4, dtype=F64)
    with pytest.warns(rfgp.JitterWarning, match="singular"):
        factor = linalg.cholesky(singular, "The matrix")
    torch.testing.assert_close(factor @ factor.T, singular, rtol=0, atol=1e-8)
    linalg.cholesky(torch.eye(3), "The matrix")  # a warning would be an error here
    for hopeless in (-torch.eye(3), torch.full((2, 2), float("nan"))):
        call = functools.partial(linalg.cholesky, hopeless, "The matrix")
        refused(call, rfgp.NotPositiveDefiniteError, "The matrix is not positive definite")


def test_any_strides_have_the_bytes_of_their_values():
    for tensor in (torch.zeros(3, 0).mT, torch.ones(()).expand(3, 4), torch.arange(6.0).reshape(2, 3).mT):
        assert bytes(linalg.in_bytes(tensor)) == tensor.numpy().tobytes()
        assert linalg.packed(tensor).stride() == torch.empty(tensor.shape).stride()


@pytest.mark.parametrize("ard", [True, False])
@pytest.mark.parametrize("spectrum", ISOTROPIC, ids=repr)
def test_kernel_of_scaled_points_and_its_gradient(spectrum, ard):
    x, pull = normal(9, 3), normal(9, 9, seed=4)
    x[4], x = x[2], 5 + x  # coincident points, far from the origin
    lengthscale = (torch.tensor([0.7, 2.0, 30.0]) if ard else torch.tensor(1.3)).double().requires_grad_()
    variance = torch.tensor(2.5, dtype=F64, requires_grad=True)
    kernel = variance * spectrum.kernel_between(x / lengthscale, x / lengthscale)
    expected = torch.autograd.grad((pull * kernel).sum(), (lengthscale, variance))
    found = grams.scaled_gram(spectrum, x, lengthscale, variance)
    torch.testing.assert_close(found.detach(), kernel.detach(), rtol=0, atol=1e-14)
    for pulled in (pull, pull.mT.contiguous().mT):  # gradients come in rows, and in columns
        slopes = torch.autograd.grad(found, (lengthscale, variance), pulled, retain_graph=True)
        torch.testing.assert_close(slopes, expected, rtol=1e-9, atol=1e-11)
    fixed = grams.scaled_gram(spectrum, x, lengthscale.detach(), variance)
    torch.testing.assert_close(torch.autograd.grad(fixed, variance, pull), expected[1:], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", ["near pairs", "far", "very far"])
def test_gradient_is_right_near_and_far(case):
    """Of pairs near each other, where the slope is infinite, and with a distant row, which has no effect."""
    x, lengthscale, spectrum = normal(12, 2, seed=5), torch.ones(2, dtype=F64, requires_grad=True), spectra.Matern(0.5)
    pull = torch.ones(12, 12, dtype=F64)
    if case == "near pairs":
        x[6:] = x[:6] + torch.logspace(-13, -3, 6, dtype=F64)[:, None]
        pull[range(6), range(6, 12)] = 1e8
    expected = spectrum.kernel_between(x / lengthscale, x / lengthscale)
    rows = x if case == "near pairs" else torch.cat([x, torch.full((1, 2), {"far": 1e10}.get(case, 1e200), dtype=F64)])
    found = grams.scaled_gram(spectrum, rows, lengthscale, torch.tensor(1.0).double())[:12, :12]
    slopes = [torch.autograd.grad((pull * gram).sum(), lengthscale)[0] for gram in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-7, atol=0)


def test_distances_by_a_product_match_differences():
    z = 100 + normal(40, 20, seed=7)
    z[20:] = z[:20] + torch.logspace(-9, 0, 20, dtype=F64)[:, None]
    z[39] = z[38]
    torch.testing.assert_close(self_distance(z), (z[:, None] - z).square().sum(2).sqrt(), rtol=1e-9, atol=0)


def test_grams_of_features_and_their_sum_match_autograd():
    design, pull = normal(6, 4), normal(6, 6, seed=4)
    pull, scale = pull + pull.mT, torch.linspace(0.5, 2, 4, dtype=F64).requires_grad_()
    variance, phi = torch.tensor(1.7, dtype=F64, requires_grad=True), (2 * design).requires_grad_()
    features = design * scale
    covariance = variance * features @ features.mT + phi @ phi.mT
    expected = torch.autograd.grad((pull * covariance).sum(), (scale, variance, phi))
    found = grams.Gram.total([grams.Gram.of_design(design, scale, variance), grams.Gram.of_features(phi)])
    torch.testing.assert_close(found.covariance, covariance.detach())
    torch.testing.assert_close(tuple(found.pull_back(pull)), expected)
