"""A Matern process of one column as a Markov process against dense algebra: ties, gaps of all sizes, noise of rows."""

import math

import numpy as np
import pytest
import torch
from dense import DenseGP
from numpy.testing import assert_allclose
from scipy import special

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


def level(a, b):
    first, last = np.minimum.outer(a, b) + 9, np.maximum.outer(a, b) + 9
    return 0.02 * (first**2 * last / 2 - first**3 / 6)


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "huge gaps"])
def test_sums_of_chains_match_dense_algebra(kind):
    """A slope that wanders, a wave whose shape changes, and weights. Steps of one length share their matrices."""
    times, y, fixed = rows(kind)
    times = np.sort(times) if kind == "apart" else times
    times[:40] = np.arange(40) / 7 if kind == "apart" else times[:40]
    new, noise = np.r_[times[:3], times[0] - 1, 13.0, 14.0, 14.0], 1e-6 if kind == "little noise" else 0.1
    both, slope = np.r_[times, new], np.r_[np.cos(5 * times), np.cos(5 * new)]
    wave = (k.Harmonics("t", 2.0, num_harmonics=1, lengthscale=1.0) * k.Matern("t", lengthscale=LENGTHSCALE)).named("w")
    sum_of = k.IntegratedWiener("t", origin=-9.0, variance=0.02, name="s") + wave + k.Linear("x", origin=0.0, name="l")
    start = {"noise": noise, "mean": 0.2, "w.outputscale": 0.8, "l.variance": 0.5}
    used = {"s": rfgp.SparsePrecision(), "w": rfgp.SparsePrecision(), "l": rfgp.Exact()}
    gp = rfgp.GP(sum_of, approximation=used, start=start, standardize=False)
    gp.condition({"t": times, "x": slope[: len(times)]}, y, noise=fixed)
    shares = special.ive(0, 1.0), 2 * special.ive(1, 1.0)
    waves = shares[0] + shares[1] * np.cos(np.pi * np.subtract.outer(both, both))
    parts = {"s": level(both, both), "w": 0.8 * waves * kernel(2, both, both), "l": 0.5 * np.outer(slope, slope)}
    expected = DenseGP(parts, y, noise + (np.zeros(len(y)) if fixed is None else fixed), 0.2)
    found, digits = gp.predict({"t": new, "x": slope[len(times) :]}), 1e-6 if kind == "little noise" else 1e-8
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood(), rel=digits)
    assert_allclose(found.mean, expected.mean_at(), atol=digits)
    assert_allclose(found.covariance, expected.covariance(), atol=digits)
    assert_allclose(gp.leave_one_out().mean, expected.leave_one_out()[0], atol=100 * digits)


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")
def test_short_steps_beside_a_long_gap_keep_their_lengths():
    """Steps differ by less than the rounding error of the largest time, and are not on a grid."""
    rng = np.random.default_rng(2)
    times = np.r_[np.cumsum(rng.uniform(0, 2e-9, 200)), 1e5 + np.arange(5)]
    y = np.sin(times / 2e-8) + 0.1 * rng.standard_normal(205)
    kernel_sum = k.Matern(0, nu=1.5, lengthscale=2e-8, name="m") + k.Wiener(0, variance=1e-9, name="w")
    start = {"m.outputscale": 1.0, "noise": 0.01, "mean": 0.0}
    gp = rfgp.GP(kernel_sum, approximation=rfgp.SparsePrecision(), start=start, standardize=False)
    gp.condition(times[:, None], y)
    both = np.r_[times, times[:1]]
    parts = {"m": kernel(2, both * (LENGTHSCALE / 2e-8), both * (LENGTHSCALE / 2e-8))}
    parts["w"] = 1e-9 * (np.minimum.outer(both, both) - times[0])
    expected = DenseGP(parts, y, np.full(205, 0.01), 0.0)
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood(), rel=1e-8)


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
