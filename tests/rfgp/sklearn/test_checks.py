"""scikit-learn's own checks of each estimator of tables."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPClassifier, GPCountRegressor, GPRegressor, GraphGPRegressor, RandomFeatures

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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # labels of nodes are no arrays of numbers
@pytest.mark.parametrize(
    "estimator",
    [RandomFeatures(), GraphGPRegressor()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_defaults_pass_all_checks(estimator):
    check_estimator(estimator)
