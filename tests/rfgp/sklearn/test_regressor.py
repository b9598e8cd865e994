"""The regressor on arrays of numbers."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import distributions

import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPRegressor


def drawn():
    """60 rows of three columns with their targets, and 7 new rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(60), rng.uniform(-1, 1, size=(7, 3))


X, Y, NEW = drawn()
PAIR = np.stack([Y, 100 + 5 * X[:, 2] - Y], axis=1)
MODEL = {"kernel": k.RBF(), "approximation": rfgp.RandomFeatures(16)}


def small(**options):
    return GPRegressor(**{**MODEL, "random_state": 0, **options})


# --- the estimator adds nothing to the model -------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize(
    ("options", "fit"),
    [
        ({}, {}),
        ({"kernel": k.Matern(nu=2.5, ard=False), "approximation": "auto"}, {}),
        ({"approximation": rfgp.RandomFeatures(16, learn_frequencies=True)}, {"max_iterations": 20}),
        ({"standardize": False, "mean": "zero", "start": {"noise": 0.04}}, {"fixed": ("noise",)}),
        ({"priors": {"noise": distributions.LogNormal(-4.0, 1.0)}}, {}),
        ({"kernel": "auto", "approximation": "auto"}, {"max_iterations": 5}),
        ({"kernel": "auto", "approximation": rfgp.RandomFeatures(8)}, {"max_iterations": 5}),
    ],
)
@pytest.mark.parametrize("y", [Y, PAIR], ids=["one", "two"])
def test_predictions_equal_those_of_the_model(options, fit, y):
    names = {"max_iterations": "max_iter", "fixed": "fixed"}
    estimator = small(**options, **{names[name]: value for name, value in fit.items()}).fit(X, y)
    gp = rfgp.GP(**{**MODEL, **options}, seed=0).fit(X, y, **fit)
    found, p = estimator.predict(NEW, return_std=True), gp.predict(NEW)
    np.testing.assert_array_equal(found[0], p.mean)
    np.testing.assert_array_equal(found[1], p.std)
    np.testing.assert_array_equal(estimator.predict(NEW, return_cov=True)[1], p.covariance)
    np.testing.assert_array_equal(estimator.predict(NEW), p.mean)
    assert estimator.log_marginal_likelihood_value_ == gp.fit_report.log_marginal_likelihood
    assert estimator.n_iter_ == gp.fit_report.iterations > 0
    draws = estimator.sample_y(NEW, 5, random_state=3)
    np.testing.assert_array_equal(draws, np.moveaxis(p.sample(5, seed=3), 0, -1))
    assert draws.shape == (7, *y.shape[1:], 5)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_selection_is_that_of_the_model():
    estimator = GPRegressor(random_state=3, max_iter=6).fit(X, Y)
    gp = rfgp.GP(seed=3).fit(X, Y, max_iterations=6)
    assert [trial.scores for trial in estimator.selection_.trials] == [trial.scores for trial in gp.selection.trials]
    assert small(max_iter=3).fit(X, Y).selection_ is None


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("likelihood", ["student-t", "heteroscedastic", "gamma"])
def test_predictions_are_means_of_observations(likelihood):
    y = np.exp(Y) if likelihood == "gamma" else Y
    estimator = small(likelihood=likelihood, max_iter=10).fit(X, y)
    mean, std = estimator.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, estimator.gp_.predict(NEW).observed().mean, rtol=1e-6)
    draws = estimator.sample_y(NEW, 4000)
    assert (np.abs(draws.mean(1) - mean) < 6 * std / np.sqrt(4000)).all()
    variances = np.diag(estimator.predict(NEW, return_cov=True)[1])
    np.testing.assert_allclose(variances, std**2, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("y", [Y, np.insert(PAIR, 1, -2.0, axis=1)], ids=["one", "a constant one"])
def test_terms_add_up_to_the_prediction(y):
    kernel = k.RBF(0, name="curve") + k.Linear((1, 2), name="line")
    estimator = small(kernel=kernel, approximation="auto", max_iter=20).fit(X, y)
    terms = estimator.terms(NEW)
    assert list(terms) == ["curve", "line"]
    rest = estimator.predict(NEW) - terms["curve"][0] - terms["line"][0]
    np.testing.assert_allclose(rest, np.broadcast_to(rest[0], rest.shape), atol=1e-9)
    assert all(mean.shape == std.shape == rest.shape for mean, std in terms.values())


def test_warnings_name_the_arguments_of_the_estimator():
    estimator = small(start={"noise": 0.04}, fixed=("noise",), max_iter=2)
    with pytest.warns(rfgp.ConvergenceWarning, match="Raise max_iter if they"):
        estimator.fit(X, Y)
    assert estimator.gp_.hyperparameters.noise.item() == pytest.approx(0.04)


# --- types and shapes --------------------------------------------------------------------------------------


def test_single_precision_is_kept_if_nothing_is_lost():
    narrow = small().fit(X.astype(np.float32), Y.astype(np.float32))
    assert narrow.predict(NEW.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(narrow.predict(NEW.astype(np.float32)), small().fit(X, Y).predict(NEW), atol=0.02)
    for y in (Y, np.arange(60)):
        mixed, wide = small().fit(X.astype(np.float32), y), small().fit(X.astype(np.float32).astype(np.float64), y)
        np.testing.assert_array_equal(mixed.predict(NEW), wide.predict(NEW))
        assert mixed.predict(NEW).dtype == np.float64


def test_a_column_of_targets_is_a_vector():
    column, vector = small().fit(X, Y[:, None]), small().fit(X, Y)
    np.testing.assert_array_equal(column.predict(NEW), vector.predict(NEW))
    assert column.sample_y(NEW).shape == (7, 1)


# --- few rows, and constant targets ------------------------------------------------------------------------


def test_a_constant_target_is_predicted():
    estimator = small()
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"The target is constant \(5\)"):
        estimator.fit(X, np.full(60, 5.0))
    mean, std = estimator.predict(NEW, return_std=True)
    np.testing.assert_array_equal(mean, np.full(7, 5.0))
    np.testing.assert_array_equal(std, np.zeros(7))
    np.testing.assert_array_equal(estimator.predict(NEW, return_cov=True)[1], np.zeros((7, 7)))
    np.testing.assert_array_equal(estimator.sample_y(NEW, 2), np.full((7, 2), 5.0))
    assert estimator.gp_ is estimator.selection_ is None
    assert estimator.terms(NEW) == {}
    assert np.isnan(estimator.log_marginal_likelihood_value_)


def test_a_constant_output_leaves_the_others_alone():
    y = np.insert(PAIR, 1, -2.0, axis=1)
    estimator, others = small(), small().fit(X, PAIR)
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"Outputs 1 of y are constant \(-2\)"):
        estimator.fit(X, y)
    answers = [
        [one.predict(NEW), one.predict(NEW, True)[1], one.predict(NEW, False, True)[1], one.sample_y(NEW, 4)]
        for one in (estimator, others)
    ]
    for axis, constant, found, expected in zip((1, 1, 2, 1), (-2, 0, 0, -2), *answers, strict=True):
        np.testing.assert_array_equal(np.delete(found, 1, axis), expected)
        assert (found.take(1, axis) == constant).all()


def test_constant_columns_and_two_rows_are_fitted():
    wide = np.insert(X, 1, 7.0, axis=1)
    mean, std = small().fit(wide, Y).predict(wide, return_std=True)
    assert np.sqrt(np.mean((mean - Y) ** 2)) < 0.2
    assert (std > 0).all()
    with pytest.warns(rfgp.OverfittingWarning, match="2 observations cannot determine 6 hyperparameters"):
        two = small().fit(X[:2], Y[:2])
    assert np.isfinite(two.predict(NEW, return_std=True)).all()


# --- seeds --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_seeds():
    def seed(state):
        return small(random_state=state, max_iter=0).fit(X, Y).gp_.seed

    assert [seed(state) for state in (7, 7, 8)] == [7, 7, 8]
    state = np.random.RandomState(3)
    first, second = seed(state), seed(state)
    assert first != second
    assert seed(np.random.RandomState(3)) == first
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert seed(None) != seed(None)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


# --- bad inputs ------------------------------------------------------------------------------------------------


def spoiled(value):
    out = X.copy()
    out[4, 1] = value
    return out


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (spoiled(np.nan), Y, "Input X contains NaN"),
        (spoiled(np.inf), Y, "Input X contains infinity"),
        (X, spoiled(np.nan)[:, 1], "Input y contains NaN"),
        ([*X.astype(str).tolist(), ["red"] * 3], [*Y, 0.0], "could not convert string to float"),
        (X, np.full(60, "red"), "y must be numeric, got <U3. Encode text"),
        (X + 1j, Y, "Complex data not supported"),
        (sp.csr_array(X), Y, "[Ss]parse.*dense data is required"),
        (X[0], Y[:3], "Expected 2D array, got 1D array"),
        (X, Y[:-1], "inconsistent numbers of samples"),
        (X, None, "requires y to be passed, but the target y is None"),
        (X[:1], Y[:1], "1 sample.*minimum of 2 is required"),
        (X[:0], Y[:0], "0 sample"),
        (X[:, :0], Y, r"0 feature\(s\)"),
    ],
)
def test_bad_data_are_named(x, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small().fit(x, y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(3), r"one value for each of the 60 rows, got shape \(3,\)"),
        (-np.ones(60), "must be finite and not negative, but is -1 in row 0"),
        (np.full(60, np.nan), "but is nan in row 0"),
        (np.eye(60)[0], "At least two weights of sample_weight must be positive"),
        (["a"] * 60, "sample_weight is not an array of numbers"),
    ],
)
def test_bad_weights_are_named(weight, message):
    with pytest.raises(rfgp.DataError, match=message):
        small().fit(X, Y, sample_weight=weight)
    ones, none = (small(max_iter=40).fit(X, Y, weight).predict(NEW) for weight in (1.0, None))
    np.testing.assert_array_equal(ones, none)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "rbf"}, "kernel must be"),
        ({"kernel": k.RBF("a")}, "'a'"),
        ({"approximation": "exact"}, "approximation"),
        ({"approximation": {"smooth": rfgp.Exact()}}, "smooth"),
        ({"likelihood": "cauchy"}, "likelihood"),
        ({"likelihood": "categorical"}, "GPClassifier"),
        ({"inference": "laplace"}, "inference"),
        ({"random_state": -1}, "random_state must be an integer from 0"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be an integer from 0"),
        ({"fixed": ("nois",)}, "nois"),
        ({"start": {"nois": 1.0}}, "nois"),
        ({"max_iter": -1}, "max_iter must be a non-negative integer, got -1"),
        ({"kernel": "auto", "approximation": "auto", "time_limit": "now"}, "time_limit"),
        ({"memory": "little"}, "memory"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises((rfgp.InvalidArgumentError, rfgp.DataError), match=message):
        small(**options).fit(X, Y)


def test_bad_calls_are_named():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        small().predict(NEW)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        small().terms(NEW)
    estimator = small().fit(X, Y)
    with pytest.raises(rfgp.InvalidArgumentError, match="not for both"):
        estimator.predict(NEW, return_std=True, return_cov=True)
    with pytest.raises(rfgp.InvalidArgumentError, match="n_samples must be a positive integer, got 0"):
        estimator.sample_y(NEW, 0)
    with pytest.raises(ValueError, match="X has 2 features, but GPRegressor is expecting 3"):
        estimator.predict(NEW[:, :2])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        estimator.predict(spoiled(np.nan))


# --- among scikit-learn's tools ---------------------------------------------------------------------------------


def test_pickles_and_clones():
    estimator = small(approximation=rfgp.RandomFeatures(16, coupling="orthogonal")).fit(X, PAIR)
    other = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(estimator.predict(NEW, return_std=True), other.predict(NEW, return_std=True))
    fresh = clone(estimator)
    assert not hasattr(fresh, "gp_")
    assert repr(fresh.get_params()) == repr(estimator.get_params())
    np.testing.assert_array_equal(fresh.fit(X, PAIR).predict(NEW), estimator.predict(NEW))


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_in_a_pipeline_and_a_grid_search():
    pipeline = make_pipeline(StandardScaler(), small())
    np.testing.assert_allclose(pipeline.fit(X, Y).predict(NEW), small().fit(X, Y).predict(NEW), rtol=1e-3)
    grid = {"kernel": [k.Linear(2), k.Matern(nu=1.5)], "approximation": ["auto", rfgp.InducingPoints(20)]}
    search = GridSearchCV(small(max_iter=20), grid, cv=3, error_score="raise")
    search.fit(X, Y)
    assert repr(search.best_params_["kernel"]) == "Matern()"
    assert search.best_score_ > 0.8


# --- dataframes of numbers --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("kernel", ["auto", k.RBF()], ids=["auto", "given"])
def test_names_of_columns_are_kept_and_compared(kernel):
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    options = {"kernel": kernel, "max_iter": 20}
    estimator = small(**options).fit(table, pd.Series(Y))
    assert list(estimator.feature_names_in_) == ["a", "b", "c"]
    assert estimator.n_features_in_ == 3
    np.testing.assert_allclose(estimator.predict(table), small(**options).fit(X, Y).predict(X), rtol=1e-9)
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(table[["b", "a", "c"]])
