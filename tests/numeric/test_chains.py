"""A Matern process of one column as a Markov process against dense algebra: ties, gaps of all sizes, noise of rows."""

import math

import numpy as np
import pytest
import torch
from dense import DenseGP
from numpy.testing import assert_allclose

import rfgp
from rfgp import kernels as k

LENGTHSCALE = 0.7
KINDS = ("apart", "ties", "tiny gaps", "huge gaps", "noise of rows", "little noise")


def kernel(order, a, b):
    r = math.sqrt(2 * order - 1) * np.abs(a[:, None] - b) / LENGTHSCALE
    return np.exp(-r) * {1: 1, 2: 1 + r, 3: 1 + r + r**2 / 3}[order]


def rows(kind, n=120):
    """Return values in random order, targets, and the known noise of rows or None."""
    rng = np.random.default_rng(3)
    times = rng.uniform(0, 12, n)
    if kind == "ties":
        times = times.round(1)
    if kind == "tiny gaps":
        times[1::2] = times[::2] + 1e-9
    if kind == "huge gaps":
        times[n // 3 :] += 1e6
        times[n // 2 :] *= 1e3
    noise = 10.0 ** rng.uniform(-6, 1, n) if kind == "noise of rows" else None
    return times, np.sin(2 * times) + 0.3 * rng.standard_normal(n), noise


def model(order, noise, times, y, fixed=None):
    start = {"noise": noise, "mean": 0.2, "outputscale": 0.8, "lengthscale": LENGTHSCALE}
    gp = rfgp.GP(k.Matern(0, nu=order - 0.5), approximation=rfgp.SparsePrecision(), start=start, standardize=False)
    return gp.condition(times[:, None], y, noise=fixed)


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_chains_match_dense_algebra(order, kind):
    times, y, fixed = rows(kind)
    near = np.r_[times[:3], times[-2:]]
    new = np.r_[near, near + 1e-3, near[0] - 1, times.max() + 0.5, times.max() + 50, near[0]]
    noise, both = 1e-6 if kind == "little noise" else 0.1, np.r_[times, new]
    gp = model(order, noise, times, y, fixed)
    variance = noise + (np.zeros(len(y)) if fixed is None else fixed)
    expected = DenseGP({"f": 0.8 * kernel(order, both, both)}, y, variance, 0.2)
    digits = 1e-6 if kind in ("tiny gaps", "little noise", "huge gaps") else 1e-8  # the errors of dense solves
    found, left = gp.predict(new[:, None]), gp.leave_one_out()
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood(), rel=digits)
    assert_allclose(found.mean, expected.mean_at(), atol=digits)
    assert_allclose(found.variance, np.diag(expected.covariance()), atol=digits)
    assert_allclose(found.covariance, expected.covariance(), atol=digits)
    assert_allclose(left.mean, expected.leave_one_out()[0], atol=100 * digits)
    assert_allclose(left.variance, expected.leave_one_out()[1], rtol=100 * digits)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("given", ["plain", "noise", "weights"])
def test_score_and_information_match_dense_algebra(order, given):
    """The information of a fit is an average over targets. That of columns of a root of C is the Fisher information."""
    rng, n = np.random.default_rng(1), 30
    times = rng.uniform(0, 6, n)
    fixed = rng.uniform(0.01, 0.5, n) if given == "noise" else np.zeros(n)
    weight = rng.integers(1, 4, n).astype(float) if given == "weights" else np.ones(n)
    start = {"noise": 0.3, "mean": 0.0, "outputscale": 0.8, "lengthscale": LENGTHSCALE}

    def matrix(lengthscale, variance, noise):
        r = math.sqrt(2 * order - 1) * np.abs(times[:, None] - times) / lengthscale
        polynomial = {1: 1, 2: 1 + r, 3: 1 + r + r**2 / 3}[order]
        return variance * np.exp(-r) * polynomial + np.diag((noise + fixed) / weight)

    numbers = np.array([LENGTHSCALE, 0.8, 0.3])
    root = math.sqrt(n) * np.linalg.cholesky(matrix(*numbers))
    gp = rfgp.GP(k.Matern(0, nu=order - 0.5), approximation=rfgp.SparsePrecision(), start=start, standardize=False)
    known = {"noise": {"noise": fixed}, "weights": {"sample_weight": weight}}.get(given, {})
    gp.condition(times[:, None], root, **known)
    state = gp.state.replace(hyperparameters=gp.hyperparameters.values)
    solver = state.infer(state.rows)
    changes = [(matrix(*(numbers * np.exp(s))) - matrix(*(numbers * np.exp(-s)))) / 2e-5 for s in 1e-5 * np.eye(3)]
    solves = [np.linalg.solve(matrix(*numbers), change) for change in changes]
    expected = np.array([[0.5 * np.trace(one @ other) for other in solves] for one in solves])
    expected[2, 2] += 0.5 * ((weight - 1) * (0.3 / (0.3 + fixed)) ** 2).sum()
    assert_allclose(solver.information[:3, :3] / n, expected, atol=1e-6 * np.abs(expected).max())
    total = np.linalg.inv(matrix(*numbers)).sum()
    assert_allclose(solver.information[3:, 3:], total * np.eye(n), atol=1e-8 * total)
    parameters, values = list(gp.hyperparameters.parameters()), (solver.score(), solver.log_marginal_likelihood())
    slopes = (torch.autograd.grad(value, parameters, retain_graph=True) for value in values)
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)
