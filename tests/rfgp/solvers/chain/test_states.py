"""A Matern process as a Markov process, against dense algebra: ties, gaps of all sizes, and noise of rows."""

import inspect
import math
import types

import numpy as np
import pytest
from checks import fails

from rfgp.solvers import chain
from rfgp.solvers.chain import loops, score_loops
from rfgp.solvers.chain.states import ChainStates, model_of

LENGTHSCALE = 0.7
ORDERS = (1, 2, 3)
KINDS = ("apart", "ties", "tiny gaps", "huge gaps", "noise of rows", "little noise", "one row")
DIGITS = 1e-9


def kernel(order, a, b, lengthscale=LENGTHSCALE):
    r = math.sqrt(2 * order - 1) * np.abs(a[:, None] - b) / lengthscale
    return np.exp(-r) * {1: 1, 2: 1 + r, 3: 1 + r + r**2 / 3}[order]


def rows(kind, n):
    """Return ascending values, targets and noise of rows."""
    rng = np.random.default_rng(3)
    times = rng.uniform(0, 12, 1 if kind == "one row" else n)
    if kind == "ties":
        times = times.round(1)
    if kind == "tiny gaps":
        times[1::2] = times[::2] + 1e-9
    if kind == "huge gaps":
        times[n // 3 :] += 1e6
        times[n // 2 :] *= 1e3
    noise = np.array([1e-6 if kind == "little noise" else 0.1])
    if kind == "noise of rows":
        noise = 10.0 ** rng.uniform(-6, 1, n)
    times = np.sort(times)
    return times, np.sin(2 * times) + 0.3 * rng.standard_normal(len(times)), noise


def points(times):
    """Return ascending points: before, between and after rows, on rows, and twice the same."""
    near = np.concatenate([times[:3], times[-2:]])
    return np.sort(np.concatenate([near, near + 1e-3, [near[0] - 1, near[-1] + 0.5, near[-1] + 50], near[:1]]))


class Dense:
    """The same process by dense matrices."""

    def __init__(self, order, times, targets, noise, lengthscale=LENGTHSCALE):
        self.order, self.times, self.lengthscale, self.noise = (
            order,
            times,
            lengthscale,
            np.broadcast_to(noise, times.shape),
        )
        self.matrix = self.between(times, times) + np.diag(self.noise)
        self.inverse, self.targets = np.linalg.inv(self.matrix), targets

    def between(self, a, b):
        return kernel(self.order, a, b, self.lengthscale)

    @property
    def value(self):
        """The log density without constants."""
        return -0.5 * (np.linalg.slogdet(self.matrix)[1] + self.targets @ self.coefficients)

    @property
    def coefficients(self):
        return np.linalg.solve(self.matrix, self.targets)

    def change(self):
        """Return the derivative of the matrix in log kappa."""
        r = math.sqrt(2 * self.order - 1) * np.abs(self.times[:, None] - self.times) / self.lengthscale
        return -r * np.exp(-r) * {1: 1, 2: r, 3: r * (1 + r) / 3}[self.order]

    def moments(self, at):
        cross = self.between(at, self.times)
        covariance = self.between(at, at) - cross @ np.linalg.solve(self.matrix, cross.T)
        return cross @ self.coefficients, covariance


def same(found, expected, digits=DIGITS):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= digits * max(1.0, np.abs(expected).max())


def given(order, kind, n):
    numbers = rows(kind, n)
    return ChainStates(order, LENGTHSCALE, *numbers), Dense(order, *numbers)


def check_density(order, kind, n=300):
    found, dense = given(order, kind, n)
    same(-0.5 * (found.log_determinant + found.squares), dense.value)


def check_rows(order, kind, n=300):
    found, dense = given(order, kind, n)
    digits = max(DIGITS, np.finfo(float).eps * np.linalg.cond(dense.matrix))  # the errors of dense solves
    same(found.smoothed.coefficients, dense.coefficients, digits)
    same(found.smoothed.precisions, dense.inverse.diagonal(), digits)


def check_slope(order, kind, n=300):
    found, dense = given(order, kind, n)
    change, coefficients = dense.change(), dense.coefficients
    slope = 0.5 * (coefficients @ change @ coefficients - np.trace(np.linalg.solve(dense.matrix, change)))
    same(found.smoothed.slope, slope)


def check_points(order, kind, n=300):
    (found, dense), at = given(order, kind, n), points(rows(kind, n)[0])
    states, (mean, covariance) = found.states_at(at), dense.moments(at)
    same(states.mean, mean)
    same(states.variance, covariance.diagonal())
    same(found.covariance(at), covariance)


def check_scores(order, kind, n=40):
    """The information summed over draws y with the mean C of y y^T is the Fisher information."""
    times, targets, noise = rows(kind, n)
    share = np.linspace(0.2, 1, len(times))
    shares, dense = np.stack([share, np.ones(len(times))]), Dense(order, times, targets, noise)
    found = ChainStates(order, LENGTHSCALE, times, targets, noise).scores(shares)
    changes = [dense.change(), np.diag(dense.noise * share), np.diag(dense.noise)]
    solved = [np.linalg.solve(dense.matrix, change) for change in changes]
    a, ones = dense.coefficients, np.ones(len(times))
    slopes = [0.5 * (a @ change @ a - np.trace(one)) for change, one in zip(changes, solved, strict=True)]
    same((0.5 * found.in_scales[1:] - found.in_means[:-1]), slopes)
    same(-found.in_means[-1], ones @ a)
    same([found.log_determinant, found.squares], [np.linalg.slogdet(dense.matrix)[1], targets @ a])
    root = math.sqrt(len(times)) * np.linalg.cholesky(dense.matrix)
    draws = [ChainStates(order, LENGTHSCALE, times, y, noise).scores(shares) for y in root.T]
    information = np.mean([0.5 * one.of_scales[1:, 1:] + one.of_means[:-1, :-1] for one in draws], axis=0)
    same(information, [[0.5 * np.trace(one @ other) for other in solved] for one in solved])
    same(found.of_means[-1, -1], ones @ dense.inverse @ ones)
    assert found.of_scales[0, 0] == len(times)
    same(found.of_scales[0, 1:], [np.trace(one) for one in solved])


CHECKS = [check_density, check_rows, check_slope, check_points, check_scores]


@pytest.mark.thinned(5, slow=4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("check", CHECKS)
def test_states_match_dense_algebra(check, order, kind):
    check(order, kind)


@pytest.mark.parametrize("order", ORDERS)
def test_short_steps_have_no_cancellation(order):
    """R of a step is the integral of q g g^T, here by quadrature in the units of its entries."""
    unit, tables = model_of(order)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    for x in (1e-12, 1e-6, 1e-3, 0.1, 1.0, 1.49, 1.51, 4.0):
        work, numbers = np.zeros((4, order, order)), np.full(2 * order, np.nan)
        loops.step_to(x, unit, tables, work, numbers)
        s = x * (nodes + 1) / 2
        gain = np.exp(-s) * {1: [s**0], 2: [s, 1 - s], 3: [s**2 / 2, s - s**2 / 2, 1 - 2 * s + s**2 / 2]}[order]
        found = x / 2 * tables[-1, 0, 0] * np.einsum("in,jn,n->ij", gain, gain, weights)
        scale = np.sqrt(np.outer(found.diagonal(), found.diagonal()))
        assert (np.abs(work[1] - found) / scale).max() < 1e-13


def test_long_chains_match_distant_parts():
    """Distant parts of rows are independent, over many blocks of the loops."""
    times, targets, noise = rows("apart", 300)
    whole = np.concatenate([times + 1e5 * part for part in range(9)])
    found = ChainStates(2, LENGTHSCALE, whole, np.tile(targets, 9), noise)
    one = ChainStates(2, LENGTHSCALE, times, targets, noise)
    same(found.squares, 9 * one.squares)
    same(found.log_determinant, 9 * one.log_determinant)
    same(found.smoothed.slope, 9 * one.smoothed.slope)
    same(found.smoothed.coefficients, np.tile(one.smoothed.coefficients, 9))
    same(found.states_at(times[5:8] + 1e5 * 7 + 0.01).mean, one.states_at(times[5:8] + 0.01).mean, 1e-8)


PLANTED = [
    (loops, check_density, "squares + v * (v / s)", "squares + v * v"),
    (loops, check_density, "covariance[j, i] = total + work[1, i, j]", "covariance[j, i] = total"),
    (loops, check_density, "numbers[m - 1] * (t / m)", "numbers[m - 1] * t"),
    (loops, check_rows, "coefficient -= gain * r[i]", "coefficient -= 0.9 * gain * r[i]"),
    (loops, check_rows, "precision += gain * along_gain", "precision -= gain * along_gain"),
    (loops, check_rows, "corner += along_rest", "corner -= along_rest"),
    (loops, check_slope, "change + 0.5 * pair", "change + pair"),
    (loops, check_slope, "pair = r[i] * r[j] - curvature[i, j]", "pair = r[i] * r[j]"),
    (loops, check_points, "kappa * (times[after] - points[p])", "kappa * (times[after] - times[row])"),
    (loops, check_points, "total[0, j] *= row_noise / s", "total[0, j] *= 1"),
    (score_loops, check_scores, "moving[q, i] += v *", "moving[q, i] -= v *"),
    (score_loops, check_scores, "(corner + change)\n", "corner\n"),
    (score_loops, check_scores, "in_means[q] += b[q] * z", "in_means[q] += b[q] * v"),
]


def plain(module, right, wrong):
    """Return the modules of the loops without compilation, with a text in one of them replaced."""
    found = {}
    for name, one in (("loops", loops), ("score_loops", score_loops)):
        source = inspect.getsource(one).replace('jit(error_model="numpy")', "lambda function: function")
        source = source.replace("from rfgp.solvers.chain.loops import advance, condition_on_row, loop\n", "")
        found[name] = types.ModuleType(name)
        vars(found[name]).update(vars(found.get("loops", types)))
        exec(source.replace(right, wrong) if one is module else source, vars(found[name]))
    return found


@pytest.mark.parametrize(("module", "check", "right", "wrong"), PLANTED)
def test_planted_errors_are_found(monkeypatch, module, check, right, wrong):
    assert inspect.getsource(module).count(right) == 1
    for text, is_wrong in ((right, False), (wrong, True)):
        for name, one in plain(module, right, text).items():
            monkeypatch.setattr(chain, name, one)
        assert fails(check, 2, "noise of rows", 30) == is_wrong
