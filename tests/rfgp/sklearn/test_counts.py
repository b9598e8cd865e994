import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

import rfgp
from rfgp import kernels as k
from rfgp import likelihoods
from rfgp.sklearn import GPCountRegressor

OPTIONS = {"kernel": k.RBF(), "approximation": rfgp.RandomFeatures(32), "random_state": 0}
FEW = {**OPTIONS, "approximation": rfgp.RandomFeatures(4)}


def drawn(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2))
    rates = np.exp(1 + np.sin(4 * X[:, 0]) + X[:, 1])
    return X, rates, rng


def test_it_equals_the_model_and_beats_a_linear_model():
    X, rates, rng = drawn(600)
    y = rng.poisson(rates)
    found = GPCountRegressor(**OPTIONS).fit(X[:300], y[:300])
    twin = rfgp.GP(k.RBF(), "negative-binomial", rfgp.RandomFeatures(32), seed=0).fit(X[:300], y[:300])
    np.testing.assert_array_equal(found.predict(X[300:]), twin.predict(X[300:]).observed().mean)
    assert found.log_marginal_likelihood_value_ == twin.fit_report.log_marginal_likelihood
    assert found.n_iter_ == twin.fit_report.iterations
    line = PoissonRegressor(alpha=0).fit(X[:300], y[:300])
    own, theirs = found.score(X[300:], y[300:]), line.score(X[300:], y[300:])
    assert theirs + 0.1 < own < 1
    assert np.abs(np.log(found.predict(X[300:]) / rates[300:])).mean() < 0.15


def test_means_are_proportional_to_exposure():
    X, rates, rng = drawn()
    exposure = rng.choice([0.2, 1.0, 5.0], len(X))
    y = rng.poisson(rates * exposure)
    found = GPCountRegressor(**OPTIONS, likelihood="poisson").fit(X, y, exposure=exposure)
    assert np.abs(np.log(found.predict(X) / rates)).mean() < 0.15
    np.testing.assert_allclose(found.predict(X, exposure), found.predict(X) * exposure)
    assert found.score(X, y, exposure=exposure) > found.score(X, y, exposure=1.0) + 0.3
    with pytest.raises(rfgp.InvalidArgumentError, match="exposure"):
        found.score(X, y)
    with pytest.warns(rfgp.OverdispersionWarning):
        without = GPCountRegressor(**OPTIONS, likelihood="poisson").fit(X, y)
    assert np.abs(np.log(without.predict(X) / rates)).mean() > 0.3


@pytest.mark.filterwarnings("ignore::rfgp.OverdispersionWarning")  # hyperparameters are fixed
def test_rows_of_weight_zero_lose_their_exposures():
    X, rates, rng = drawn()
    y, exposure, weight = rng.poisson(rates), rng.uniform(0.5, 2, len(X)), rng.integers(0, 2, len(X))
    options = {**OPTIONS, "likelihood": likelihoods.Poisson(), "fixed": ("lengthscale", "outputscale")}
    some = GPCountRegressor(**options).fit(X, y, sample_weight=weight, exposure=exposure)
    kept = weight > 0
    few = GPCountRegressor(**options).fit(X[kept], y[kept], exposure=exposure[kept])
    np.testing.assert_allclose(some.predict(X), few.predict(X), rtol=0.01)
    with pytest.raises(rfgp.DataError, match="exposure must be one number or 300"):
        GPCountRegressor(**options).fit(X, y, sample_weight=weight, exposure=exposure[kept])


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_selection_is_that_of_the_model():
    X, rates, rng = drawn(60)
    y, exposure = rng.poisson(rates), rng.uniform(0.5, 2, 60)
    found = GPCountRegressor(random_state=0, max_iter=3).fit(X, y, exposure=exposure)
    gp = rfgp.GP(likelihood="negative-binomial", seed=0).fit(X, y.astype(float), exposure=exposure, max_iterations=3)
    np.testing.assert_array_equal(found.predict(X), gp.predict(X).observed().mean)
    assert found.selection_.reason == gp.selection.reason


@pytest.mark.parametrize(
    ("options", "y", "error", "match"),
    [
        ({"likelihood": "gamma"}, [0, 1, 2], rfgp.InvalidArgumentError, "likelihood must be of counts, got Gamma"),
        ({"likelihood": "poison"}, [0, 1, 2], rfgp.InvalidArgumentError, "poison"),
        ({}, [0, -1, 2], ValueError, "counts 0, 1, 2"),
        ({}, [0, 0.5, 2], ValueError, "counts 0, 1, 2"),
        ({}, [[0, 1], [1, 2], [2, 0]], ValueError, "1d"),
        ({"kernel": "rbf"}, [0, 1, 2], rfgp.InvalidArgumentError, "kernel must be"),
    ],
)
def test_bad_options_and_targets_are_named(options, y, error, match):
    with pytest.raises(error, match=match):
        GPCountRegressor(**{**FEW, **options}).fit([[0.0], [1.0], [2.0]], y)


@pytest.mark.parametrize("exposure", [[1.0, 2.0], [1.0, 0.0, 1.0], "all"])
def test_bad_exposures_are_named(exposure):
    with pytest.raises(ValueError, match="exposure"):
        GPCountRegressor(**FEW).fit([[0.0], [1.0], [2.0]], [0, 1, 2], exposure=exposure)
