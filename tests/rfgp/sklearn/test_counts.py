import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import rfgp
from rfgp import likelihoods
from rfgp.sklearn import RandomFeatureGPCountRegressor

OPTIONS = {"n_frequencies": 32, "random_state": 0}


def drawn(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2))
    rates = np.exp(1 + np.sin(4 * X[:, 0]) + X[:, 1])
    return X, rates, rng


class Rounded(RandomFeatureGPCountRegressor):
    """The targets of scikit-learn's checks are positive, but no counts."""

    def fit(self, X, y, sample_weight=None):
        is_float = np.asarray(y).dtype.kind == "f"
        return super().fit(X, np.asarray(y).round() if is_float else y, sample_weight)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")  # some of their data are noise, or few
@parametrize_with_checks([Rounded(n_frequencies=8, max_iter=3, random_state=0)])
def test_each_check_of_scikit_learn(estimator, check):
    check(estimator)


def test_it_is_the_process_and_beats_a_line():
    X, rates, rng = drawn(600)
    y = rng.poisson(rates)
    found = RandomFeatureGPCountRegressor(**OPTIONS).fit(X[:300], y[:300])
    twin = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0, likelihood="negative-binomial").fit(X[:300], y[:300])
    np.testing.assert_array_equal(found.predict(X[300:]), twin.predict(X[300:]).observed().mean)
    assert found.log_marginal_likelihood_value_ == twin.fit_report.log_marginal_likelihood
    assert found.n_iter_ == twin.fit_report.iterations
    line = PoissonRegressor(alpha=0).fit(X[:300], y[:300])
    own, theirs = found.score(X[300:], y[300:]), line.score(X[300:], y[300:])
    assert theirs + 0.1 < own < 1
    assert np.abs(np.log(found.predict(X[300:]) / rates[300:])).mean() < 0.15


def test_exposure_is_what_means_are_in_proportion_to():
    X, rates, rng = drawn()
    exposure = rng.choice([0.2, 1.0, 5.0], len(X))
    y = rng.poisson(rates * exposure)
    found = RandomFeatureGPCountRegressor(**OPTIONS, likelihood="poisson").fit(X, y, exposure=exposure)
    assert np.abs(np.log(found.predict(X) / rates)).mean() < 0.15
    np.testing.assert_allclose(found.predict(X, exposure), found.predict(X) * exposure)
    assert found.score(X, y, exposure=exposure) > found.score(X, y) + 0.3
    without = RandomFeatureGPCountRegressor(**OPTIONS, likelihood="poisson").fit(X, y)
    assert np.abs(np.log(without.predict(X) / rates)).mean() > 0.3


def test_rows_of_weight_zero_are_left_out_with_their_exposures():
    X, rates, rng = drawn()
    y, exposure, weight = rng.poisson(rates), rng.uniform(0.5, 2, len(X)), rng.integers(0, 2, len(X))
    options = {**OPTIONS, "likelihood": likelihoods.Poisson(), "fixed": ("lengthscale", "outputscale")}
    some = RandomFeatureGPCountRegressor(**options).fit(X, y, sample_weight=weight, exposure=exposure)
    kept = weight > 0
    few = RandomFeatureGPCountRegressor(**options).fit(X[kept], y[kept], exposure=exposure[kept])
    np.testing.assert_allclose(some.predict(X), few.predict(X), rtol=0.01)
    with pytest.raises(rfgp.DataError, match="exposure must be one number or 300"):
        RandomFeatureGPCountRegressor(**options).fit(X, y, sample_weight=weight, exposure=exposure[kept])


def test_it_works_in_cross_validation():
    X, rates, rng = drawn(200)
    scores = cross_val_score(
        RandomFeatureGPCountRegressor(n_frequencies=16, random_state=0), X, rng.poisson(rates), cv=3
    )
    assert scores.min() > 0.3


@pytest.mark.parametrize(
    ("options", "y", "error", "match"),
    [
        ({"likelihood": "gamma"}, [0, 1, 2], rfgp.InvalidArgumentError, "likelihood must be of counts, got 'gamma'"),
        ({"likelihood": "poison"}, [0, 1, 2], rfgp.InvalidArgumentError, "poison"),
        ({}, [0, -1, 2], ValueError, "counts 0, 1, 2"),
        ({}, [0, 0.5, 2], ValueError, "counts 0, 1, 2"),
        ({}, [[0, 1], [1, 2], [2, 0]], ValueError, "1d"),
        ({"n_frequencies": 0}, [0, 1, 2], rfgp.InvalidArgumentError, "n_frequencies"),
    ],
)
def test_what_cannot_be_used_is_named(options, y, error, match):
    with pytest.raises(error, match=match):
        RandomFeatureGPCountRegressor(**{"n_frequencies": 4, **options}).fit([[0.0], [1.0], [2.0]], y)


@pytest.mark.parametrize("exposure", [[1.0, 2.0], [1.0, 0.0, 1.0], "all"])
def test_exposures_that_cannot_be_used_are_named(exposure):
    with pytest.raises(ValueError, match="exposure"):
        RandomFeatureGPCountRegressor(n_frequencies=4).fit([[0.0], [1.0], [2.0]], [0, 1, 2], exposure=exposure)
