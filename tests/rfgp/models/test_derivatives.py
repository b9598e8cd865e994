"""Distributions of derivatives, against dense algebra of the kernel and its derivatives."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k

LENGTHSCALE, NOISE = 1.2, 0.0025


def dense(x, y, z):
    """Return the mean (n,) and the covariance (n, n) of the slope under a Gaussian kernel of variance 1."""

    def kernel(a, b):
        return np.exp(-0.5 * (a[:, None] - b) ** 2 / LENGTHSCALE**2)

    matrix = kernel(x, x) + NOISE * np.eye(len(x))
    slope = -(z[:, None] - x) / LENGTHSCALE**2 * kernel(z, x)
    square = (z[:, None] - z) ** 2 / LENGTHSCALE**2
    prior = (1 - square) / LENGTHSCALE**2 * kernel(z, z)
    return slope @ np.linalg.solve(matrix, y), prior - slope @ np.linalg.solve(matrix, slope.T)


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.EquispacedFourier(tolerance=1e-6)])
def test_slopes_match_dense_algebra_anywhere(approximation):
    """A lattice is exact among the rows, and within 5 % of the standard deviation of the process beyond them."""
    rng = np.random.default_rng(0)
    x, z = np.sort(rng.uniform(-3, 3, 20)), np.linspace(-6, 6, 51)
    y = np.sin(x) + 0.05 * rng.normal(size=20)
    options = {"mean": "zero", "standardize": False, "start": {"outputscale": 1.0, "noise": NOISE}, "seed": 0}
    gp = rfgp.GP(k.RBF("x", lengthscale=LENGTHSCALE), approximation=approximation, **options).condition({"x": x}, y)
    found, (mean, covariance) = gp.predict({"x": z}, derivative="x"), dense(x, y, z)
    among = np.abs(z) <= 2.5
    digits = np.where(among, 1e-5, 0.05) if isinstance(approximation, rfgp.EquispacedFourier) else np.full(len(z), 1e-8)
    assert (np.abs(found.mean - mean) <= digits).all()
    assert (np.abs(found.variance - np.diag(covariance)) <= digits).all()
    assert (np.abs(found.covariance - covariance) <= np.maximum(digits, digits[:, None])).all()


KERNELS = {
    "a sum": k.Matern("t", nu=2.5, name="a") + k.Linear("u"),
    "rational quadratic": k.RationalQuadratic("t", name="a") + k.RBF("u"),
    "season": k.Periodic("t", period=5, name="a") + k.RBF("u"),
    "product": (k.Linear("t") * k.RBF("u")).named("a") + k.Constant(),
    "levels": (k.Group("g") * k.RBF("t")).named("a") + k.RBF("t"),
    "matern of any order": k.Matern("t", nu=1.8, name="a") + k.Linear("u"),
}


@pytest.mark.parametrize("case", KERNELS)
def test_exact_slopes_match_differences_of_the_joint_posterior(case):
    rng = np.random.default_rng(1)
    X = {"t": rng.uniform(-3, 3, 50), "u": rng.uniform(-2, 2, 50), "g": rng.choice(["x", "y"], 50)}
    gp = rfgp.GP(KERNELS[case], approximation=rfgp.Exact(), start={"noise": 0.01}, seed=0)
    gp.condition(X, np.sin(X["t"]) + 0.3 * X["u"] + 0.05 * rng.normal(size=50))
    t, step = np.array([-6.0, -1.0, 0.3, 3.3]), 1e-3
    new = {"t": t, "u": np.array([0.1, 0.5, -0.3, 2.5]), "g": np.array(["x", "y", "x", "x"])}
    both = {name: np.concatenate([column, column]) for name, column in new.items()}
    both["t"] = np.concatenate([t + step, t - step])
    weights = np.hstack([np.eye(4), -np.eye(4)]) / (2 * step)
    for of in (lambda p: p, lambda p: p.terms["a"]):
        found, expected = of(gp.predict(new, derivative="t")), of(gp.predict(both)).linear(weights)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-4)
        np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-3 * expected.variance.max())


def test_slopes_of_rough_paths_are_refused():
    x = np.linspace(0, 1, 20)
    for nu in (0.5, 0.8, 1.0):
        gp = rfgp.GP(k.Matern("x", nu=nu), approximation=rfgp.Exact(), seed=0).condition({"x": x}, np.sin(6 * x))
        with pytest.raises(rfgp.InvalidArgumentError, match="smooth"):
            gp.predict({"x": x}, derivative="x")
