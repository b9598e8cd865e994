"""Integrals over boxes: against closed forms of the exact process, and against Simpson's rule over predictions."""

import numpy as np
import pytest
import torch
from planting import planted
from scipy.integrate import simpson
from scipy.special import erf

import rfgp
from rfgp import kernels as k
from rfgp.inference import integrals


def series():
    """Return 100 rows in [0, 6], with the ends, and their targets."""
    rng = np.random.default_rng(0)
    t = np.concatenate([[0.0, 6.0], rng.uniform(0, 6, 98)])
    return t[:, None], 3 + np.sin(t) + 0.1 * rng.normal(size=100)


T, Y = series()
LOW, HIGH = np.array([[0.5], [0.5], [2.0]]), np.array([[2.5], [0.5], [5.9]])
START = {"mean": 2.9, "noise": 0.01}
SMOOTH = 1.5 * k.RBF(0, lengthscale=0.9)


def single(a, b, z, length):
    """Return the integrals (m, n) over [a, b], (m,), of the Gaussian kernel with points z (n,)."""
    upper, lower = (erf((end[:, None] - z) / (np.sqrt(2) * length)) for end in (b, a))
    return length * np.sqrt(np.pi / 2) * (upper - lower)


def double(a, b, length):
    """Return the double integrals (m, m) of the Gaussian kernel over pairs of intervals [a, b], (m,)."""

    def twice(u):
        return length**2 * (
            np.sqrt(np.pi / 2) * u / length * erf(u / (np.sqrt(2) * length)) + np.exp(-((u / length) ** 2) / 2)
        )

    return twice(b[:, None] - a) + twice(a[:, None] - b) - twice(a[:, None] - a) - twice(b[:, None] - b)


def closed_form(X, y, low, high, lengths, variance=1.5, mean=2.9, noise=0.01):
    """Return means (m,) and covariance (m, m) of the integrals of the exact process with a Gaussian kernel."""
    K, inner, cross = 1.0, 1.0, 1.0
    for column, length in enumerate(lengths):
        x, a, b = X[:, column], low[:, column], high[:, column]
        K = K * np.exp(-((x[:, None] - x) ** 2) / (2 * length**2))
        cross, inner = cross * single(a, b, x, length), inner * double(a, b, length)
    K, cross = variance * K + noise * np.eye(len(X)), variance * cross
    means = mean * np.prod(high - low, axis=1) + cross @ np.linalg.solve(K, y - mean)
    return means, variance * inner - cross @ np.linalg.solve(K, cross.T)


def check_closed_form(approximation, d=1, wide=False):
    """Compare with the closed form, in one column or two. One box is empty."""
    rng = np.random.default_rng(1)
    X, y, low, high = T, Y, LOW, HIGH
    if wide:
        X = np.linspace(0, 300, 900)[:, None]
        y, low, high = 3 + np.sin(X[:, 0] / 3), np.array([[10.0]]), np.array([[290.0]])
    if d == 2:
        X = np.vstack([[[0, 0], [6, 30]], rng.uniform(0, (6, 30), (150, 2))])
        y, low, high = 3 + np.sin(X[:, 0]) * np.cos(X[:, 1] / 8), np.array([[1, 2], [3, 0]]), np.array([[2, 9], [3, 9]])
    lengths = (0.9, 7.0)[:d]
    kernel = 1.5 * k.RBF(tuple(range(d)), lengthscale=lengths)
    gp = rfgp.GP(kernel, approximation=approximation, start=START, seed=0).condition(X, y)
    found = gp.integrate(low, high, columns=tuple(range(d)))
    means, covariance = closed_form(X, y, low, high, lengths)
    np.testing.assert_allclose(found.mean, means, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.std, np.sqrt(np.diag(covariance).clip(0)), atol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, atol=2e-6)


TIGHT = rfgp.EquispacedFourier(tolerance=1e-9)


@pytest.mark.parametrize("approximation", [rfgp.Exact(), TIGHT], ids=["exact", "lattice"])
@pytest.mark.parametrize("case", [{}, {"d": 2}, {"wide": True}], ids=["line", "plane", "300 lengthscales"])
def test_integrals_match_closed_form(approximation, case):
    check_closed_form(approximation, **case)


@pytest.mark.parametrize(("right", "wrong"), [
    ("self.unit * sides", "sides"),
    ("low + fractions.to(corners) * (high - low)", "low + fractions.to(corners) ** 1.01 * (high - low)"),
    ("self.matrix(corners), shift)", "self.matrix(corners), 0 * shift)"),
])  # fmt: skip
def test_planted_errors_in_quadrature_are_seen(right, wrong):
    with planted(integrals, right, wrong), pytest.raises(AssertionError):
        check_closed_form(rfgp.Exact())


# --- any model ---------------------------------------------------------------------------------------


def simpson_weights(count):
    return np.array([simpson(row, x=np.linspace(0, 1, count)) for row in np.eye(count)])


MODELS = {
    "random features": lambda: rfgp.GP(SMOOTH, approximation=rfgp.RandomFeatures(64), start=START, seed=0),
    "few rows for features": lambda: rfgp.GP(SMOOTH, approximation=rfgp.RandomFeatures(300), start=START, seed=0),
    "sor": lambda: rfgp.GP(SMOOTH, approximation=rfgp.InducingPoints(20, method="sor"), start=START, seed=0),
    "vfe": lambda: rfgp.GP(SMOOTH, approximation=rfgp.InducingPoints(9, method="vfe"), start=START, seed=0),
    "neighbors": lambda: rfgp.GP(k.Matern(0, nu=1.5, lengthscale=2.0), approximation=rfgp.Vecchia(10), seed=0),
    "chain": lambda: rfgp.GP(k.Matern(0, nu=1.5, lengthscale=2.0), approximation=rfgp.SparsePrecision(), seed=0),
    "lattice": lambda: rfgp.GP(SMOOTH, approximation=TIGHT, start=START, seed=0),
    "season": lambda: rfgp.GP(SMOOTH + k.Periodic(0, 1.5) + k.Polynomial(0), approximation=TIGHT, seed=0),
    "average": lambda: rfgp.GP(seed=0),
    "counts": lambda: rfgp.GP(SMOOTH, likelihood="poisson", seed=0),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ends", [(0.5, 3.5), (4.0, 7.5)], ids=["inside", "across the edge"])
def test_integrals_are_those_of_predictions(name, ends):
    """Neighbors give each point its own variance, and correlations that depend on the other points."""
    gp = MODELS[name]()
    y = np.round(Y) if name == "counts" else Y
    gp = gp.fit(T, y) if name == "average" else gp.condition(T, y)
    if name == "neighbors":
        ends = (0.5, 3.5)
    found = gp.integrate([[ends[0]]], [[ends[1]]])
    points = np.linspace(*ends, 401)[:, None]
    expected = gp.predict(points).linear(simpson_weights(401) * (ends[1] - ends[0]))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=2e-6)
    np.testing.assert_allclose(found.std, expected.std, rtol=0.01 if name == "neighbors" else 1e-4)
    np.testing.assert_allclose(found.quantile(0.9), expected.quantile(0.9), rtol=1e-4)


MISSING = {
    "lattice": rfgp.EquispacedFourier(tolerance=1e-2),
    "weights": rfgp.InducingPoints(9, method="fitc"),
    "bordered": {"rbf(0)": rfgp.InducingPoints(9, method="fitc"), "matern(0)": rfgp.SparsePrecision()},
}


@pytest.mark.parametrize("name", MISSING)
def test_residual_variance_of_features_averages_out(name):
    check_missing(name)


def check_missing(name):
    """The variance of the mean of N points is v + c / N, so that 2 v_2N - v_N is v."""
    kernel = SMOOTH + k.Matern(0, nu=1.5, lengthscale=2.0) if name == "bordered" else SMOOTH
    gp = rfgp.GP(kernel, approximation=MISSING[name], start={"noise": 0.3}, seed=0).condition(T, Y)
    found = gp.integrate([[1.0]], [[5.0]])
    few, many = (
        gp.predict((1 + 4 * (np.arange(n) + 0.5) / n)[:, None]).linear(np.full(n, 4 / n)).variance for n in (400, 800)
    )
    assert few - many > 1e-6 * many
    np.testing.assert_allclose(found.variance, 2 * many - few, rtol=1e-4)
    np.testing.assert_allclose(found.covariance[0], found.variance)


def test_planted_variance_of_nodes_is_seen():
    with planted(integrals, "(weights.square() * total)", "(0 * total)"), pytest.raises(AssertionError):
        check_missing("bordered")


# --- terms, columns, outputs -------------------------------------------------------------------------


def two_columns():
    rng = np.random.default_rng(2)
    table = {"t": rng.uniform(0, 6, 200), "u": rng.uniform(0, 1, 200), "g": rng.choice(list("ab"), 200)}
    y = np.sin(table["t"]) + table["u"] + (table["g"] == "a") + 0.1 * rng.normal(size=200)
    kernel = k.RBF("t", lengthscale=1.0, name="f") + k.Linear("u") + k.Group("g", name="g")
    return rfgp.GP(kernel, start={"noise": 0.01}, seed=0).condition(table, y)


def test_terms_of_integrals_add_up():
    gp = two_columns()
    low, high = ({"t": [a, a], "u": [0.2, 0.4], "g": ["a", "new"]} for a in (1.0, 4.0))
    found = gp.integrate(low, high)
    mean = 3.0 * float(gp.hyperparameters.mean)
    np.testing.assert_allclose(sum(found.terms[name].mean for name in found.terms) + mean, found.mean)
    parts = found.cross_covariance("f", list(found.terms)), found.without("f").covariance
    np.testing.assert_allclose(
        parts[0] + parts[0].T - found.terms["f"].covariance + parts[1], found.covariance, atol=1e-9
    )
    alone = found.terms["g"]
    at_point = gp.predict(low).terms["g"]  # the effect is the same along the interval
    np.testing.assert_allclose(alone.mean, 3 * at_point.mean, atol=1e-9)
    np.testing.assert_allclose(alone.covariance, 9 * at_point.covariance, atol=1e-9)
    np.testing.assert_allclose(found.centered().mean, found.mean - found.mean.mean())
    draws = found.sample(4000, seed=0)
    np.testing.assert_allclose(np.cov(draws.T), found.covariance, rtol=0.2, atol=0.05)


def test_columns_are_those_that_differ_or_are_given():
    gp = two_columns()
    low, high = {"t": [1.0], "u": [0.2], "g": ["a"]}, {"t": [4.0], "u": [0.2], "g": ["a"]}
    np.testing.assert_allclose(gp.integrate(low, high, columns="t").mean, gp.integrate(low, high).mean)
    np.testing.assert_allclose(gp.integrate(low, high, columns=("t", "u")).mean, 0.0)
    with pytest.raises(rfgp.InvalidArgumentError, match="columns="):
        gp.integrate(low, low)
    np.testing.assert_allclose(gp.integrate(low, low, columns="t").std, 0.0)


def test_several_outputs_and_tensors():
    both = np.column_stack([Y, 2 * Y])
    gp = rfgp.GP(SMOOTH, start={"noise": 0.01}, seed=0).condition(T, both)
    found = gp.integrate(LOW, HIGH)
    assert found.mean.shape == found.std.shape == (3, 2)
    np.testing.assert_allclose(found.mean[:, 1], 2 * found.mean[:, 0], rtol=1e-6)
    end = torch.tensor([[2.5]], dtype=torch.float64, requires_grad=True)
    one = rfgp.GP(SMOOTH, start=START, seed=0).condition(T, Y)
    value = one.integrate(torch.tensor([[0.5]], dtype=torch.float64), end).mean
    value.sum().backward()
    np.testing.assert_allclose(end.grad, one.predict([[2.5]]).mean[:, None], rtol=1e-6)


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high", "columns", "match"), [
    ({"t": [2.0]}, {"t": [1.0]}, None, "low must be"),
    ({"t": [np.nan]}, {"t": [1.0]}, None, "'t'"),
    ({"t": [0.0]}, {"t": [np.inf]}, None, "'t'"),
    ({"t": [0.0, 1.0]}, {"t": [1.0, 2.0, 3.0]}, None, "one shape"),
    ({"t": [0.0]}, {"t": [1.0]}, "z", "column"),
    ({"t": [0.0]}, {"t": [1.0]}, "g", "column"),
    ({"t": [0.0]}, {"t": [1.0]}, "u", "agree"),
    ({"t": [0.0], "g": ["b"]}, {"t": [1.0], "g": ["a"]}, None, "agree"),
    ({"t": [0.0]}, {"t": [1e5]}, None, "lengthscales"),
])  # fmt: skip
def test_wrong_boxes_raise(low, high, columns, match):
    gp = two_columns()
    fill = [{"u": np.zeros(len(one["t"])), "g": ["a"] * len(one["t"]), **one} for one in (low, high)]
    with pytest.raises((rfgp.InvalidArgumentError, rfgp.DataError), match=match):
        gp.integrate(*fill, columns=columns)


def test_observations_and_too_many_nodes_raise():
    gp = rfgp.GP(SMOOTH, start=START, seed=0).condition(T, Y)
    with pytest.raises(rfgp.InvalidArgumentError, match="observations"):
        gp.integrate(LOW, HIGH).observed()
    many = gp.integrate(np.zeros((2000, 1)), np.ones((2000, 1)))
    assert many.std.shape == (2000,)
    with pytest.raises(rfgp.InvalidArgumentError, match="nodes"):
        assert many.covariance is None
