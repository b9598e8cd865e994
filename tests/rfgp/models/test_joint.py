"""Joint predictions of many points: draws by weights, and covariances that do not fit into memory."""

import numpy as np
import pytest

import graphs
import rfgp
from rfgp import kernels as k
from tests.support.checks import assert_mean

COUNT, POINTS = 1000, 6
ROUGH = rfgp.EquispacedFourier(max_features=9)  # the modes miss a part of the variance


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    return {"t": rng.uniform(-1, 1, n), "u": rng.uniform(-1, 1, n), "g": np.resize(["a", "b", "c"], n)}


def points():
    """Return points within and outside the range of the rows, two of them at new levels."""
    return {"t": np.linspace(-1.5, 1.2, POINTS), "u": np.linspace(1, -0.5, POINTS), "g": np.array([*"abcdda"])}


def model(kernel, approximation, num_rows=40, likelihood="gaussian", **options):
    X = table(num_rows)
    y = np.sin(3 * X["t"]) + 0.3 * np.cos(4 * X["u"])
    y = y if likelihood == "gaussian" else np.digitize(y, [-0.3, 0.3])
    given = {"approximation": approximation, "seed": 0, "likelihood": likelihood, **options}
    return rfgp.GP(kernel, **given).condition(X, y)


T, U = k.RBF("t", lengthscale=0.5, name="t"), k.Matern("u", nu=1.5, lengthscale=0.7, name="u")
MODELS = {
    "random": lambda: model(T + U, rfgp.RandomFeatures(8)),
    "more features than rows": lambda: model(T + U, rfgp.RandomFeatures(24)),
    "sor": lambda: model(T, rfgp.InducingPoints(6, method="sor")),
    "fitc": lambda: model(T + U, rfgp.InducingPoints(6, method="fitc")),
    "equispaced": lambda: model(T, rfgp.EquispacedFourier()),
    "missing modes": lambda: model(T + U, ROUGH),
    "new levels": lambda: model(T + k.Group("g", name="g"), {"t": ROUGH}),
    "levels of random": lambda: model(T * k.Group("g"), rfgp.RandomFeatures(8)),
}


def repeated(values, times):
    return {name: np.tile(column, times) for name, column in values.items()}


def check_draws(prediction, many, mean, covariance):
    """Check draws at many points, the first of which have the given moments."""
    drawn = np.asarray(many.sample(COUNT, seed=1))[:, : len(mean)] - mean
    assert_mean(drawn, 0.0)
    assert_mean(drawn[:, :, None] * drawn[:, None], covariance)


@pytest.mark.parametrize("name", MODELS)
def test_draws_by_weights_have_the_joint_distribution(name):
    gp, Z = MODELS[name](), points()
    few, many = gp.predict(Z), gp.predict(repeated(Z, COUNT // POINTS + 1))
    check_draws(few, many, few.mean, few.covariance)
    if "t" in few.terms:
        few, many = few.terms["t"], many.terms["t"]
        check_draws(few, many, few.mean, few.covariance)


def test_draws_of_derivatives_have_the_joint_distribution():
    gp = model(T, ROUGH)
    Z = {"t": np.linspace(-0.9, 0.9, POINTS)}
    few, many = (gp.predict(x, derivative="t") for x in (Z, repeated(Z, COUNT // POINTS + 1)))
    check_draws(few, many, few.mean, few.covariance)


def test_draws_of_classes_have_the_joint_distribution():
    gp, Z = model(T, rfgp.RandomFeatures(4), likelihood="categorical", inference="laplace"), points()
    few, many = gp.predict(Z), gp.predict(repeated(Z, COUNT // POINTS + 1))
    drawn = np.asarray(many.sample(COUNT, seed=1))[:, :POINTS] - few.mean
    products = drawn[:, :, None] * drawn[:, None]
    assert_mean(products, few.covariance)


def test_draws_of_functionals_are_functionals_of_draws():
    gp, Z = MODELS["new levels"](), repeated(points(), 20)
    p, weights = gp.predict(Z), np.random.default_rng(0).normal(size=(2, POINTS * 20))
    drawn = p.linear(weights).sample(3, seed=4)
    np.testing.assert_allclose(drawn, p.sample(3, seed=4) @ weights.T, rtol=1e-9, atol=1e-9)


JOINT = {
    "covariance": lambda gp, Z: gp.predict(Z).covariance,
    "draws": lambda gp, Z: gp.predict(Z).sample(1, seed=0),
    "draws of observations": lambda gp, Z: gp.predict(Z).observed().sample(1, seed=0),
    "log-normal": lambda gp, Z: gp.predict(Z).exp().covariance,
    "functionals": lambda gp, Z: gp.predict(Z).linear(np.ones(len(Z["t"]))).std,
    "centered": lambda gp, Z: gp.predict(Z).centered().std,
    "term": lambda gp, Z: gp.predict(Z).terms["t"].covariance,
    "cross-covariance": lambda gp, Z: gp.predict(Z).cross_covariance("t", "u"),
    "prior": lambda gp, Z: gp.prior_covariance(Z),
    "matrix": lambda gp, Z: T.matrix(Z),
    "divergence": lambda gp, Z: rfgp.metrics.kl_divergence(gp.predict(Z), gp.predict(Z)),
}


@pytest.mark.parametrize("name", JOINT)
def test_large_joint_predictions_name_their_size(name):
    Z = table(200_000)  # a matrix takes 320 GB
    with pytest.raises(graphs.MemoryBudgetError, match="MiB"):
        JOINT[name](model(T + U, rfgp.Exact()), Z)


def test_draws_by_weights_fit_where_covariances_do_not():
    gp, Z = model(T, rfgp.RandomFeatures(8), memory=1e7), table(3000)
    assert gp.predict(Z).sample(2, seed=0).shape == (2, 3000)
    with pytest.raises(graphs.MemoryBudgetError, match="memory allows"):
        _ = gp.predict(Z).covariance
