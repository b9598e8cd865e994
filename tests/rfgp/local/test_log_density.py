"""The log density in one pass, against the dense normal distribution."""

import numpy as np
import pytest
import torch
from local_rows import parameters, rows, slopes_agree
from torch.distributions import MultivariateNormal

from rfgp import local
from rfgp.local import kinds, loops

F64 = torch.float64
EACH = torch.tensor([1.0, -0.5], dtype=F64)


def arguments(shared=False):
    """Return rows (n, d) and parameters with gradients: lengthscale, variance, noise (n,) and targets (n, 2)."""
    x, noise = rows()
    targets = torch.randn(len(x), 2, dtype=F64, generator=torch.Generator().manual_seed(1))
    return x, [*parameters(shared=shared), noise.requires_grad_(), targets.requires_grad_()]


def dense(x, lengthscale, variance, noise, targets, name, given=0):
    """Return the log density of targets (n, 2), minus that of the first ones."""
    cov = variance * kinds.spectrum_of(name).kernel_between(x / lengthscale, x / lengthscale) + noise.diag()

    def density(n):
        normal = MultivariateNormal(torch.zeros(n, dtype=F64), cov[:n, :n])
        return (EACH * normal.log_prob(targets[:n].mT)).sum()

    return density(len(x)) - density(given) if given else density(len(x))


def agree(found, expected, theta):
    is_close = torch.allclose(found, expected, rtol=1e-11)
    return is_close and slopes_agree(found, expected, theta, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("name", local.KINDS)
def test_all_predecessors_give_the_exact_density(name, size):
    x, theta = arguments(shared=name == "matern52")
    pattern = local.block_predecessors(x.numpy(), 1000, size)
    # an order of blocks is one of the rows too, so that all predecessors make it exact
    found = local.log_prob(x, *theta, EACH, local.KINDS[name], pattern)
    assert agree(found, dense(x, *theta, name), theta)


def test_density_of_some_rows_is_conditional():
    x, theta = arguments()
    pattern = local.block_predecessors(x.numpy(), 1000, 1).take(np.arange(25, 40))[0]
    found = local.log_prob(x, *theta, EACH, 1, pattern)
    assert agree(found, dense(x, *theta, "matern32", given=25), theta)


@pytest.mark.parametrize("size", [1, 8])
def test_density_matches_the_inverse_factor(size):
    x, theta = arguments()
    pattern = local.block_predecessors(x.numpy(), 6, size)
    entries = local.inverse_factor(x, *theta[:3], 1, pattern)
    white = local.whitened(entries, theta[3], pattern)
    diagonal = entries[torch.from_numpy(pattern.indptr[1:] - 1)]
    expected = EACH @ (diagonal.log().sum() - 0.5 * (white.square() + np.log(2 * np.pi)).sum(0))
    assert agree(local.log_prob(x, *theta, EACH, 1, pattern), expected, theta)


def test_copies_without_noise_have_finite_gradients():
    x, theta = arguments()
    x[20:30] = x[:10]
    theta[2] = torch.full((40,), 1e-14, dtype=F64, requires_grad=True)
    pattern = local.block_predecessors(x.numpy(), 10, 8)
    found = local.log_prob(x, *theta, EACH, 1, pattern)
    assert all(bool(slope.isfinite().all()) for slope in torch.autograd.grad(found, theta))


def test_threads_do_not_change_the_density(monkeypatch):
    x, theta = arguments()
    pattern = local.block_predecessors(x.numpy(), 12, 4)
    alone = local.log_prob(x, *theta, EACH, 1, pattern)
    monkeypatch.setattr("rfgp.local.factor.IN_THREADS", 1)
    monkeypatch.setattr("rfgp.local.factor.num_threads", lambda: 3)
    assert agree(local.log_prob(x, *theta, EACH, 1, pattern), alone, theta)


@pytest.mark.parametrize("fault", ["noise", "each", "kernel", "targets", "lengths"])
def test_planted_errors_in_the_pass_are_seen(fault, monkeypatch):
    x, theta = arguments()
    pattern = local.block_predecessors(x.numpy(), 1000, 4)
    right = loops.density_rows

    def wrong(*given):
        given = list(given)
        if fault == "noise":
            given[5] = given[5] * 1.001
        if fault == "each":
            given[10] = np.abs(given[10])
        if fault == "kernel":
            given[2] = 2
        found = right(*given)
        if fault in ("targets", "lengths"):
            given[{"targets": -1, "lengths": -3}[fault]][3 if fault == "targets" else 0] *= 1.001
        return found

    expected = dense(x, *theta, "matern32")
    assert agree(local.log_prob(x, *theta, EACH, 1, pattern), expected, theta)
    monkeypatch.setattr(loops, "density_rows", wrong)
    assert not agree(local.log_prob(x, *theta, EACH, 1, pattern), expected, theta)
