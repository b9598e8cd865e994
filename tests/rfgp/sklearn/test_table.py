"""scikit-learn's own checks, and the regressor on tables."""

import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from torch import distributions

import rfgp
from rfgp.sklearn import RandomFeatureGPRegressor, RandomFeatures


def drawn():
    """60 rows of three columns with their targets, and 7 new rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(60), rng.uniform(-1, 1, size=(7, 3))


X, Y, NEW = drawn()
PAIR = np.stack([Y, 100 + 5 * X[:, 2] - Y], axis=1)
LEGACY = "on_fail" not in inspect.signature(check_estimator).parameters


def small(**options):
    return RandomFeatureGPRegressor(**{"n_frequencies": 16, "random_state": 0, **options})


def check_twin(estimator, gp):
    """Both say the same, to the last bit."""
    p = gp.predict(NEW)
    found, deviation = estimator.predict(NEW, return_std=True)
    np.testing.assert_array_equal(found, p.mean)
    np.testing.assert_array_equal(deviation, np.sqrt(p.variance))
    np.testing.assert_array_equal(estimator.predict(NEW, return_cov=True)[1], p.covariance)
    np.testing.assert_array_equal(estimator.predict(NEW), p.mean)
    assert estimator.log_marginal_likelihood_value_ == gp.fit_report.log_marginal_likelihood


# --- scikit-learn's checks -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")  # some of their data are noise, or few
@parametrize_with_checks(
    [
        RandomFeatureGPRegressor(n_frequencies=16, max_iter=5),
        RandomFeatures(n_frequencies=8),
        RandomFeatures(n_frequencies=8, features="laplace", lengthscale="scale"),
    ]
)
def test_each_check_of_scikit_learn(estimator, check):
    check(estimator)


def troubles(estimator):
    """Return the checks that failed, or were skipped for another reason than an absent library; and how many passed."""
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
@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("estimator", [RandomFeatureGPRegressor(max_iter=5), RandomFeatures()])
def test_no_check_of_the_defaults_fails_or_is_skipped(estimator):
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


# --- the adapter adds nothing ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rfgp.OverfittingWarning", "ignore::rfgp.ConvergenceWarning")  # where learned
@pytest.mark.parametrize(
    ("options", "fit"),
    [
        ({}, {}),
        ({"coupling": "orthogonal", "spectrum": rfgp.spectra.Matern(2.5), "ard": False}, {}),
        ({"features": "laplace", "lengthscale": 2.0}, {}),
        ({"frequencies": "learned"}, {"max_iterations": 20}),
        ({"standardize": False, "outputscale": 2.0, "noise": 0.04}, {"fixed": ("noise",)}),
        ({"priors": {"noise": distributions.LogNormal(-4.0, 1.0)}}, {}),
    ],
)
@pytest.mark.parametrize("y", [Y, PAIR], ids=["one", "two"])
def test_it_equals_the_process_of_the_same_seed(options, fit, y):
    names = {"max_iterations": "max_iter", "fixed": "fixed"}
    estimator = small(**options, **{names[name]: value for name, value in fit.items()})
    theirs = {"features": "kind", "frequencies": "learn_frequencies"}
    named = {theirs.get(name, name): value == "learned" or value for name, value in options.items()}
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0, **named)
    check_twin(estimator.fit(X, y), gp.fit(X, y, **fit))
    assert isinstance(estimator.gp_, rfgp.SparseSpectrumGP)
    assert estimator.predict(NEW).shape == (7, *y.shape[1:])
    assert estimator.n_iter_ == gp.fit_report.iterations > 0


def test_the_deviation_is_that_of_the_latent_function():
    estimator = small().fit(X, Y)
    observed = estimator.gp_.predict(NEW).observed().variance
    noise = estimator.gp_.hyperparameters.noise.item()
    np.testing.assert_allclose(estimator.predict(NEW, return_std=True)[1] ** 2 + noise, observed, rtol=1e-10)
    assert noise > 1e-3


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("y", [Y, PAIR], ids=["one", "two"])
def test_weights_are_those_of_the_process_and_rows_of_weight_zero_are_gone(y):
    weight = np.random.default_rng(1).integers(0, 3, 60)
    rows, kept = np.repeat(np.arange(60), weight), weight > 0
    estimator = small(max_iter=5).fit(X, y, sample_weight=list(weight))
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0)
    gp.fit(X[kept], y[kept], sample_weight=weight[kept], max_iterations=5)
    np.testing.assert_allclose(estimator.gp_.predict(NEW).mean, gp.predict(NEW).mean, rtol=1e-9)
    repeated = small(max_iter=5).fit(X[rows], y[rows])
    np.testing.assert_allclose(estimator.gp_.predict(NEW).mean, repeated.predict(NEW), rtol=1e-7)
    score = repeated.score(X[rows], y[rows])
    assert estimator.score(X, y, sample_weight=weight) == pytest.approx(score, rel=1e-7)
    ones, none = (small(max_iter=2).fit(X, y, weight).predict(NEW) for weight in (1.0, None))
    np.testing.assert_allclose(ones, none, rtol=1e-10)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(3), r"one value for each of the 60 rows, got shape \(3,\)"),
        (-np.ones(60), "must be finite and not negative, but is -1 in row 0"),
        (np.full(60, np.nan), "but is nan in row 0"),
        (np.eye(60)[0], "At least two observations need a positive sample_weight"),
        (["a"] * 60, "sample_weight is not an array of numbers"),
    ],
)
def test_bad_weights_are_named(weight, message):
    with pytest.raises(rfgp.DataError, match=message):
        small().fit(X, Y, sample_weight=weight)


def test_options_reach_the_process():
    estimator = small(noise=0.04, fixed=("noise",), max_iter=2)
    with pytest.warns(rfgp.ConvergenceWarning, match="Raise max_iter if they"):
        estimator.fit(X, Y)
    assert estimator.gp_.hyperparameters.noise.item() == pytest.approx(0.04)


@pytest.mark.filterwarnings("ignore::rfgp.OverfittingWarning")
def test_warnings_of_the_process_go_through():
    """And call options as the estimator does; afterwards they are the model's again."""
    rough, options = np.sin(40 * X[:, 0]), {"lengthscale": 0.05, "noise": 1e-4}
    fixed = ("noise", "lengthscale")
    with pytest.warns(rfgp.VarianceStarvationWarning, match="Raise n_frequencies, or"):
        small(n_frequencies=2, fixed=fixed, **options).fit(X, rough)
    with pytest.warns(rfgp.VarianceStarvationWarning, match="Raise num_frequencies, or"):
        rfgp.SparseSpectrumGP(num_frequencies=2, seed=0, **options).fit(X, rough, fixed=fixed)


# --- types and shapes --------------------------------------------------------------------------------------


def test_single_precision_is_kept_only_where_nothing_is_lost():
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
    assert column.sample_y(NEW, 3).shape == (7, 3)


@pytest.mark.parametrize("y", [Y, PAIR], ids=["one", "two"])
def test_samples_are_functions_of_the_process(y):
    estimator = small().fit(X, y)
    found = estimator.sample_y(NEW, 5, random_state=3)
    assert found.shape == (7, *y.shape[1:], 5)
    np.testing.assert_array_equal(found, np.moveaxis(estimator.gp_.sample_functions(5, seed=3)(NEW), 0, -1))
    np.testing.assert_array_equal(estimator.sample_y(NEW), estimator.sample_y(NEW, 1, random_state=0))
    np.testing.assert_allclose(estimator.sample_y(NEW[:2], 5, random_state=3), found[:2], rtol=1e-9)


def test_names_of_columns_are_kept_and_compared():
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    estimator = small().fit(table, pd.Series(Y))
    assert list(estimator.feature_names_in_) == ["a", "b", "c"]
    assert estimator.n_features_in_ == 3
    np.testing.assert_array_equal(estimator.predict(table), small().fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(table[["b", "a", "c"]])


# --- few rows, and nothing to learn -------------------------------------------------------------------------


def test_a_constant_target_is_predicted_and_said_so():
    estimator = small()
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"The target is constant \(5\)"):
        estimator.fit(X, np.full(60, 5.0))
    mean, std = estimator.predict(NEW, return_std=True)
    np.testing.assert_array_equal(mean, np.full(7, 5.0))
    np.testing.assert_array_equal(std, np.zeros(7))
    np.testing.assert_array_equal(estimator.predict(NEW, return_cov=True)[1], np.zeros((7, 7)))
    np.testing.assert_array_equal(estimator.sample_y(NEW, 2), np.full((7, 2), 5.0))
    assert estimator.gp_ is None
    assert np.isnan(estimator.log_marginal_likelihood_value_)
    assert estimator.score(X, np.full(60, 5.0)) == 1.0


def test_a_constant_output_leaves_the_others_alone():
    y = np.insert(PAIR, 1, -2.0, axis=1)
    estimator = small()
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"Outputs 1 of y are constant \(-2\)"):
        estimator.fit(X, y)
    others = small().fit(X, PAIR)
    mean, covariance = estimator.predict(NEW, return_cov=True)
    std = estimator.predict(NEW, return_std=True)[1]
    np.testing.assert_array_equal(mean[:, [0, 2]], others.predict(NEW))
    np.testing.assert_array_equal(std[:, [0, 2]], others.predict(NEW, return_std=True)[1])
    np.testing.assert_array_equal(covariance[:, :, [0, 2]], others.predict(NEW, return_cov=True)[1])
    np.testing.assert_array_equal(estimator.sample_y(NEW, 4)[:, [0, 2]], others.sample_y(NEW, 4))
    np.testing.assert_array_equal(mean[:, 1], np.full(7, -2.0))
    assert not std[:, 1].any()
    assert not covariance[:, :, 1].any()
    assert (estimator.sample_y(NEW, 4)[:, 1] == -2).all()


def test_a_constant_column_and_two_rows_are_no_obstacle():
    wide = np.insert(X, 1, 7.0, axis=1)
    mean, std = small().fit(wide, Y).predict(wide, return_std=True)
    assert np.sqrt(np.mean((mean - Y) ** 2)) < 0.2
    assert (std > 0).all()
    with pytest.warns(rfgp.OverfittingWarning, match="2 observations cannot determine 6 hyperparameters"):
        two = small().fit(X[:2], Y[:2])
    assert np.isfinite(two.predict(NEW, return_std=True)).all()


# --- seeds --------------------------------------------------------------------------------------------------


def test_seeds():
    first, again, other = (small(random_state=s).fit(X, Y).gp_.seed for s in (7, 7, 8))
    assert (first, again, other) == (7, 7, 8)
    state = np.random.RandomState(3)
    drawn = [small(random_state=state).fit(X, Y).gp_.seed for _ in range(2)]
    assert drawn[0] != drawn[1]
    assert small(random_state=np.random.RandomState(3)).fit(X, Y).gp_.seed == drawn[0]


def test_no_seed_leaves_the_global_state_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    seeds = {small(random_state=None).fit(X, Y).gp_.seed for _ in range(2)}
    assert len(seeds) == 2
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
        (X, np.full(60, "red"), "y holds <U3 values; encode text"),
        (X + 1j, Y, "Complex data not supported"),
        (X[0], Y[:3], "Expected 2D array, got 1D array"),
        (X, Y[:-1], "inconsistent numbers of samples"),
        (X, None, "requires y to be passed, but the target y is None"),
        (X[:1], Y[:1], "1 sample.*minimum of 2 is required"),
        (X[:0], Y[:0], "0 sample"),
        (X[:, :0], Y, r"0 feature\(s\)"),
    ],
)
def test_bad_data_are_named(x, y, message):
    with pytest.raises(ValueError, match=message):
        small().fit(x, y)


@pytest.mark.parametrize("format_", ["csr_matrix", "csr_array"])
def test_sparse_matrices_are_refused(format_):
    with pytest.raises(TypeError, match=r"[Ss]parse.*dense data is required"):
        small().fit(getattr(sp, format_)(X), Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coupling": "sorf"}, "There is no coupling 'sorf'; known are energy"),
        ({"n_frequencies": 0}, "n_frequencies must be a positive integer, got 0"),
        ({"n_frequencies": 2.5}, "n_frequencies must be a positive integer, got 2.5"),
        ({"spectrum": "green"}, "no spectrum 'green'"),
        ({"features": "sine"}, "must be one of fourier, laplace, got 'sine'"),
        ({"frequencies": "free"}, 'frequencies must be "fixed" or "learned"'),
        ({"random_state": -1}, "random_state must be an integer from 0"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be an integer from 0"),
        ({"fixed": ("nois",)}, "nois"),
        ({"max_iter": -1}, "max_iter must be an integer that is not negative, got -1"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        small(**options).fit(X, Y)


def test_bad_calls_are_named():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        small().predict(NEW)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        small().sample_y(NEW)
    estimator = small().fit(X, Y)
    with pytest.raises(rfgp.InvalidArgumentError, match="not for both"):
        estimator.predict(NEW, return_std=True, return_cov=True)
    with pytest.raises(rfgp.InvalidArgumentError, match="n_samples must be a positive integer, got 0"):
        estimator.sample_y(NEW, 0)
    with pytest.raises(ValueError, match="X has 2 features, but RandomFeatureGPRegressor is expecting 3"):
        estimator.predict(NEW[:, :2])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        estimator.predict(spoiled(np.nan))


# --- among scikit-learn's tools ---------------------------------------------------------------------------------


def test_pickles_and_clones():
    estimator = small(coupling=rfgp.couplings.Energy(weighted=True)).fit(X, PAIR)
    other = pickle.loads(pickle.dumps(estimator))
    for one, two in zip(estimator.predict(NEW, return_std=True), other.predict(NEW, return_std=True), strict=True):
        np.testing.assert_array_equal(one, two)
    fresh = clone(estimator)
    assert not hasattr(fresh, "gp_")
    assert repr(fresh.get_params()) == repr(estimator.get_params())
    np.testing.assert_array_equal(fresh.fit(X, PAIR).predict(NEW), estimator.predict(NEW))


def test_in_a_pipeline_and_a_grid_search():
    pipeline = make_pipeline(StandardScaler(), small())
    np.testing.assert_allclose(pipeline.fit(X, Y).predict(NEW), small().fit(X, Y).predict(NEW), rtol=1e-3)
    grid = {"n_frequencies": [1, 16], "coupling": ["orthogonal", rfgp.couplings.IID()]}
    search = GridSearchCV(small(), grid, cv=3)
    with pytest.warns(rfgp.VarianceStarvationWarning):  # one frequency
        search.fit(X, Y)
    assert search.best_params_["n_frequencies"] == 16
    assert search.best_score_ > 0.9
    mean, std = search.best_estimator_.predict(NEW, return_std=True)
    assert mean.shape == std.shape == (7,)


@pytest.mark.slow  # the workers import torch
def test_workers_give_the_same_scores():
    one, two = (cross_val_score(small(), X, Y, cv=2, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-6)
    assert one.min() > 0.8


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_a_local_process_is_that_of_the_model():
    model = small(local="matern32", n_neighbors=5, max_iter=2).fit(X, Y)
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0, local="matern32", num_neighbors=5)
    check_twin(model, gp.fit(X, Y, max_iterations=2))
    assert model.sample_y(NEW, 3, random_state=0).shape == (7, 3)
