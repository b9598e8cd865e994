"""The regressor that chooses: scikit-learn's own checks, and that it adds nothing to the process."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import rfgp
from rfgp.sklearn import TableGPRegressor


def drawn():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(50, 2))
    return X, np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(50)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@parametrize_with_checks([TableGPRegressor(max_iter=5)])
def test_each_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_it_is_the_process():
    X, y = drawn()
    estimator = TableGPRegressor(random_state=3, max_iter=6).fit(X, y)
    gp = rfgp.TableGP(seed=3).fit(X, y, max_iterations=6)
    assert estimator.selection_ == gp.selection
    np.testing.assert_array_equal(estimator.predict(X), gp.predict(X).mean)
    named = clone(estimator).set_params(features="exact", local=None, spectrum="matern32").fit(X, y)
    assert named.selection_ is None
    assert named.gp_.options.spectrum == rfgp.spectra.Matern(1.5)


def test_bad_options_are_named():
    X, y = drawn()
    for options, message in (({"n_frequencies": 0}, "n_frequencies"), ({"budget": "now"}, "budget")):
        with pytest.raises(rfgp.InvalidArgumentError, match=message):
            TableGPRegressor(**options).fit(X, y)
