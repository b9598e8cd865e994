"""Noise-free targets: the smallest noise of each approximation, and exact models that interpolate."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import qmc

import rfgp
from rfgp import kernels as k


def branin(u):
    a, b = 15 * u[:, 0] - 5, 15 * u[:, 1]
    hill = b - 5.1 * a**2 / (4 * np.pi**2) + 5 * a / np.pi - 6
    return hill**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


def points(n, seed=0):
    return qmc.Sobol(2, seed=seed).random(2 ** int(np.ceil(np.log2(n))))[:n]


NEW = np.random.default_rng(0).uniform(size=(500, 2))


@pytest.mark.parametrize(
    ("kernel", "approximation", "dtype", "least"),
    [
        (k.RBF(), rfgp.Exact(), None, 1e-10),
        (k.RBF(), "auto", None, 1e-10),
        (k.RBF(), rfgp.Exact(), torch.float32, 1e-6),
        (k.RBF(), rfgp.Vecchia(5), None, 1e-10),
        (k.RBF(), rfgp.Vecchia(5, condition_on="latent"), None, 1e-8),
        (k.RBF(), rfgp.InducingPoints(8, residual=rfgp.Vecchia(5)), None, 1e-10),
        (k.RBF(), rfgp.InducingPoints(8), None, 1e-10),
        (k.RBF(), rfgp.InducingPoints(8, method="vfe"), None, 1e-6),
        (k.RBF(), rfgp.RandomFeatures(8), None, 1e-10),
        (k.RBF(), rfgp.RandomFeatures(8, learn_frequencies=True), None, 1e-6),
        (k.Linear(0, name="a") + k.RBF(name="b"), {"a": rfgp.Exact(), "b": rfgp.Vecchia(5)}, None, 1e-10),
        (k.RBF(name="a") + k.RBF(name="b"), {"a": rfgp.RandomFeatures(4), "b": rfgp.Vecchia(5)}, None, 1e-10),
    ],
)
def test_least_noise_is_that_of_the_approximation(kernel, approximation, dtype, least):
    X, y = points(32), branin(points(32))
    gp = rfgp.GP(kernel, approximation=approximation, dtype=dtype, seed=0).condition(X, y)
    low, high = gp.hyperparameters.values.space.quantities["noise"].bounds
    assert float(low) == pytest.approx(least, rel=1e-5)
    assert float(high) == pytest.approx(100, rel=1e-5)


@pytest.mark.parametrize("kernel", [k.RBF(), k.RationalQuadratic(), k.Linear() + k.RBF()], ids=repr)
def test_exact_models_interpolate_simulators(kernel):
    X = points(40)
    y, truth = branin(X), branin(NEW)
    with warnings.catch_warnings():
        warnings.simplefilter("error", rfgp.errors.JitterWarning)
        gp = rfgp.GP(kernel, approximation=rfgp.Exact(), seed=0).fit(X, y)
    error = gp.predict(NEW).mean - truth
    assert np.sqrt(np.mean(error**2)) < 1.2e-3 * truth.std()
    assert np.abs(gp.predict(X).mean - y).max() < 1e-4 * y.std()
    assert gp.predict(NEW).std.mean() < 2e-3 * truth.std()


def test_interpolation_scales_with_the_target():
    X = points(40)
    y = branin(X)
    one, binary, decimal = (rfgp.ExactGP().fit(X, scale * y).predict(NEW) for scale in (1.0, 2.0**20, 1e6))
    np.testing.assert_array_equal(binary.mean / 2**20, one.mean)
    np.testing.assert_allclose(decimal.mean / 1e6, one.mean, atol=1e-4 * y.std())


def test_report_states_the_rounding_error():
    X = points(100)
    assert "for rounding" in rfgp.ExactGP().fit(X, branin(X)).fit_report.message
    noisy = branin(X) + np.random.default_rng(0).normal(size=100)
    assert "for rounding" not in rfgp.ExactGP().fit(X, noisy).fit_report.message


def test_likelihood_of_a_repeated_row_without_noise():
    """Two equal rows and one far away have the eigenvalues 2 s + r, r and s + r, with r = 3 eps s."""
    s, eps = 3.0, np.finfo(float).eps
    start = {"rbf.outputscale": s, "rbf.lengthscale": 1.0, "noise": 1e-40, "mean": 0.0}
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), standardize=False, start=start)
    gp = gp.condition(np.array([[1.0], [1.0], [1e3]]), np.array([2.0, 2.0, 0.0]))
    r = 3 * eps * s
    expected = -0.5 * (8 / (2 * s) + np.log(2 * s) + np.log(r) + np.log(s) + 3 * np.log(2 * np.pi))
    assert float(gp.log_marginal_likelihood().detach()) == pytest.approx(expected, rel=0.01)
