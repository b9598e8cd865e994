"""Starts of fits: fast functions and noise, through every approximation."""

import numpy as np
import pytest
import trimesh

import rfgp
from rfgp import kernels as k

APPROXIMATIONS = [
    rfgp.Exact(),
    rfgp.RandomFeatures(128),
    rfgp.InducingPoints(60),
    rfgp.InducingPoints(20, residual=rfgp.Vecchia(10)),
    rfgp.Vecchia(10),
    rfgp.SparsePrecision(),
]


def fitted(approximation, X, y):
    gp = rfgp.GP(k.Matern(nu=2.5), approximation=approximation, seed=0)
    return gp.fit(X, y)


@pytest.mark.parametrize("approximation", APPROXIMATIONS, ids=repr)
def test_a_fast_function_is_found(approximation):
    """Nine periods. The usual start, one standard deviation of the column, explains nothing."""
    x = np.linspace(0, 1, 300)[:, None]
    f = np.sin(18 * np.pi * x[:, 0])
    y = f + 0.1 * np.random.default_rng(0).standard_normal(300)
    gp = fitted(approximation, x[::2], y[::2])
    assert np.mean((gp.predict(x[1::2]).mean - f[1::2]) ** 2) < 0.02 * f.var()


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("approximation", APPROXIMATIONS[:-1], ids=repr)
def test_noise_is_not_explained_by_short_lengthscales(approximation):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((150, 2)), rng.standard_normal(150)
    gp = fitted(approximation, X, y)
    assert gp.hyperparameters.noise > 0.5 * y.var()


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(64)], ids=repr)
def test_terms_on_the_same_columns_start_at_different_scales(approximation):
    X = np.random.default_rng(0).standard_normal((40, 2))
    kernel = k.RBF(name="smooth") + k.Matern(name="rough") + k.RBF(0, name="one")
    values = rfgp.GP(kernel, approximation=approximation, seed=0).condition(X, X[:, 0]).hyperparameters
    smooth, rough = (values[f"{name}.lengthscale"] for name in ("smooth", "rough"))
    np.testing.assert_allclose(rough.detach(), smooth.detach() / 2)
    ratio = values["rough.outputscale"] / values["smooth.outputscale"]
    assert ratio.item() == pytest.approx(0.25)
    assert values["one.outputscale"].item() == pytest.approx(values["smooth.outputscale"].item())


@pytest.mark.slow
def test_long_field_is_found_beside_another_term():
    ball, rng = trimesh.creation.icosphere(2), np.random.default_rng(0)
    t, order = rng.uniform(1, 5, len(ball.vertices)), rng.permutation(len(ball.vertices))
    X = {**dict(zip("xyz", ball.vertices.T, strict=True)), "t": t}
    y = ball.vertices[:, 2] + 2 * t + 0.05 * rng.standard_normal(len(t))
    train, test = order[:80], order[80:]
    rows = [{name: values[part] for name, values in X.items()} for part in (train, test)]
    gp = rfgp.GP(k.Mesh(ball) + k.Linear("t"), seed=0).fit(rows[0], y[train])
    assert rfgp.metrics.rmse(y[test], gp.predict(rows[1])) < 0.1


def series(seed=0):
    """Return times (150,) and a wave (150,) of period 2 pi with noise."""
    x = np.linspace(0, 20, 150)
    return x, np.sin(x) + 0.3 * np.random.default_rng(seed).standard_normal(150)


@pytest.mark.parametrize("start", [3.2, 4.0, 10.0])
@pytest.mark.parametrize("trend", [False, True])
def test_learned_periods_are_found_within_their_bounds(start, trend):
    """A search found only a period near its start, in silence."""
    x, y = series()
    season = k.Periodic("x", start, learn_period=True, name="season")
    kernel = season + k.RBF("x") if trend else season
    gp = rfgp.GP(kernel, seed=0).fit({"x": x}, y + 0.1 * x * trend)
    assert gp.hyperparameters["season.period"].item() == pytest.approx(2 * np.pi, abs=0.1)
    assert np.std(gp.predict({"x": x}).mean - np.sin(x) - 0.1 * x * trend) < 0.15


@pytest.mark.parametrize("start", [3.0, 1.0])
def test_learned_periods_outside_their_bounds_warn(start):
    x, y = series()
    with pytest.warns(rfgp.RfgpWarning, match="period"):
        rfgp.GP(k.Periodic("x", start, learn_period=True), seed=0).fit({"x": x}, y)
