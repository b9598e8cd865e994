"""Targets without variation: a posterior at given hyperparameters, and what a fit makes of them."""

import numpy as np
import pytest

import graphs
import rfgp
from rfgp import kernels as k

X, ZEROS = np.linspace(0, 1, 30)[:, None], np.zeros(30)
GIVEN = {"outputscale": 1.0, "noise": 0.01, "mean": 0.0}
COUNTS = [
    ("poisson", ZEROS),
    ("negative-binomial", ZEROS),
    ("poisson", ZEROS + 3),
    ("bernoulli", ZEROS + 1),
    ("categorical", ZEROS),
]


def deviations(X):
    """Return the exact posterior standard deviations (n,) at the rows, at the given hyperparameters."""
    K = np.exp(-0.5 * (X - X.T) ** 2 / 0.04)
    return np.sqrt(np.diag(K - K @ np.linalg.solve(K + 0.01 * np.eye(len(X)), K)))


@pytest.mark.parametrize("standardize", [True, False])
def test_condition_on_a_constant_has_the_exact_posterior(standardize):
    gp = rfgp.GP(k.RBF(lengthscale=0.2), start=GIVEN, standardize=standardize, seed=0).condition(X, ZEROS)
    p = gp.predict(X)
    np.testing.assert_allclose(p.mean, 0, atol=1e-12)
    np.testing.assert_allclose(p.std, deviations(X), rtol=1e-6)
    gp.update([[0.5]], [1.0])
    assert gp.predict([[0.5]]).mean[0] > 0.01


def test_condition_on_constant_blocks_and_outputs():
    source = rfgp.tables.Batches([(X[:20], ZEROS[:20]), (X[20:], ZEROS[20:])])
    gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(16), start=GIVEN, seed=0).condition(source)
    np.testing.assert_allclose(gp.predict(X).mean, 0, atol=1e-12)
    start = {"outputscale": 1.0, "noise": 0.01}
    both = rfgp.GP(k.RBF(), start=start, seed=0).condition(X, np.column_stack([ZEROS + 5, np.sin(6 * X[:, 0])]))
    np.testing.assert_allclose(both.predict(X).mean[:, 0], 5)
    assert np.abs(both.predict(X).mean[:, 1] - np.sin(6 * X[:, 0])).max() < 0.3


def test_condition_warns_of_a_scale_that_is_not_known():
    with pytest.warns(rfgp.ConstantTargetWarning, match="scale"):
        rfgp.GP(k.RBF(), seed=0).condition(X, ZEROS)


@pytest.mark.parametrize(("likelihood", "y"), COUNTS)
@pytest.mark.parametrize("kernel", [k.RBF(), "auto"], ids=["rbf", "auto"])
def test_constant_counts_and_labels_have_a_posterior(likelihood, y, kernel):
    expected = rfgp.GP(k.RBF(), likelihood, seed=0).condition(X, y).predict(X).observed()
    with pytest.warns(rfgp.ConstantTargetWarning, match="start"):
        gp = rfgp.GP(kernel, likelihood, seed=0).fit(X, y)
    mean = gp.predict(X).observed().mean
    np.testing.assert_allclose(mean, expected.mean)
    typical = mean[:, 0] if likelihood == "categorical" else mean
    assert np.abs(typical - (1 if likelihood == "categorical" else y[0])).max() < 0.1


def test_zero_counts_on_a_graph_have_a_posterior():
    graph = graphs.Graph.from_edges([(i, i + 1) for i in range(39)])
    with pytest.warns(rfgp.ConstantTargetWarning):
        gp = rfgp.GraphGP(graph, likelihood="poisson").fit(range(30), ZEROS)
    assert (gp.predict(range(40)).observed().mean < 0.1).all()


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t", "heteroscedastic", "gamma"])
def test_a_fit_of_a_constant_names_condition(likelihood):
    with pytest.raises(rfgp.DataError, match="condition"):
        rfgp.GP(k.RBF(), likelihood, seed=0).fit(X, ZEROS + 1)


def test_equal_counts_over_different_exposures_are_fitted():
    exposure = 1 + 20 * X[:, 0]
    gp = rfgp.GP(k.RBF(), "poisson", seed=0).fit(X, ZEROS + 3, exposure=exposure)
    p = gp.predict(X[[0, -1]]).observed()
    assert p.mean[0] > 3 * p.mean[1]
    with pytest.warns(rfgp.ConstantTargetWarning):
        rfgp.GP(k.RBF(), "poisson", seed=0).fit(X, ZEROS, exposure=exposure)
