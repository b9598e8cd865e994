"""scikit-learn's own checks of each estimator of tables."""

import inspect

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPClassifier, GPCountRegressor, GPRegressor, RandomFeatures

LEGACY = "on_fail" not in inspect.signature(check_estimator).parameters
FEW = {"kernel": k.RBF(), "approximation": rfgp.RandomFeatures(8), "max_iter": 3}

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")  # some of their data are noise, or few


class RoundedCounts(GPCountRegressor):
    """A regressor whose targets are rounded, because those of scikit-learn's checks are positive, but not counts."""

    def fit(self, X, y, sample_weight=None):
        is_float = np.asarray(y).dtype.kind == "f"
        return super().fit(X, np.asarray(y).round() if is_float else y, sample_weight)


@parametrize_with_checks(
    [
        GPRegressor(**FEW),
        GPClassifier(**FEW, inference="laplace"),
        RoundedCounts(**FEW),
        RandomFeatures(n_frequencies=8),
        RandomFeatures(n_frequencies=8, features="laplace", lengthscale="scale"),
    ]
)
def test_each_check_of_scikit_learn(estimator, check):
    check(estimator)


def troubles(estimator):
    """Return the checks that failed, or were skipped though their library is there, and the number that passed."""
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    absent = ("SCIPY_ARRAY_API", "polars", "array_api")
    bad = [
        (r["check_name"], r["status"], str(r["exception"])[:200])
        for r in results
        if r["status"] != "passed"
        and not (r["status"] == "skipped" and any(name in str(r["exception"]) for name in absent))
    ]
    return bad, sum(r["status"] == "passed" for r in results)


@pytest.mark.slow
@pytest.mark.skipif(LEGACY, reason="check_estimator has no summary before scikit-learn 1.6")
@pytest.mark.parametrize(
    "estimator",
    [GPRegressor(max_iter=3), RandomFeatures()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_defaults_pass_all_checks(estimator):
    bad, passed = troubles(estimator)
    assert bad == []
    assert passed >= 40


class Careless(RandomFeatures):
    """A transformer that writes a public attribute when it is fitted."""

    def fit(self, X, y=None):
        self.draw = super().fit(X).feature_map_
        return self


@pytest.mark.skipif(LEGACY, reason="check_estimator has no summary before scikit-learn 1.6")
def test_planted_a_careless_transformer_is_found():
    bad, _ = troubles(Careless(n_frequencies=8))
    assert "check_dont_overwrite_parameters" in [name for name, _, _ in bad]
