"""The estimators of tables equal the models that they adapt, and agree with other packages."""

import warnings

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score
from torch import distributions

import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPClassifier, GPCountRegressor, GPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")  # searches are short


def drawn():
    """Return 60 rows of three columns with targets of each kind, and 7 new rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 3))
    mean = np.sin(3 * X[:, 0]) + X[:, 1]
    y = mean + 0.1 * rng.standard_normal(60)
    chosen = (4 * np.stack([mean, -mean, X[:, 2]], 1) + rng.gumbel(size=(60, 3))).argmax(1)
    names = np.array(["first", "second", "third"])
    targets = {
        "one": y,
        "two": np.stack([y, 100 + 5 * X[:, 2] - y], axis=1),
        "positive": np.exp(y),
        "2 classes": names[chosen % 2],
        "3 classes": names[chosen],
        "3 numbers": np.digitize(y, [-0.5, 0.5]),
        "counts": rng.poisson(np.exp(1 + mean)),
    }
    return X, targets, rng.uniform(-1, 1, size=(7, 3))


X, TARGETS, NEW = drawn()
Y, COUNTS = TARGETS["one"], TARGETS["counts"]
MODEL = {"kernel": k.RBF(), "approximation": rfgp.RandomFeatures(16)}
USUAL = {"2 classes": "bernoulli", "3 classes": "categorical", "counts": "negative-binomial"}
"""The likelihoods of the estimators of classes and counts."""


def small(make=GPRegressor, **options):
    return make(**{**MODEL, "random_state": 0, **options})


# --- an estimator adds nothing to its model ----------------------------------------------------------------------

AUTO = {"kernel": "auto", "approximation": "auto"}
CASES = [
    (GPRegressor, "two", {"kernel": k.Matern(nu=2.5, ard=False), "approximation": "auto"}, {}),
    (GPRegressor, "one", {"standardize": False, "mean": "zero", "start": {"noise": 0.04}}, {"fixed": ("noise",)}),
    (GPRegressor, "two", {"priors": {"noise": distributions.LogNormal(-4.0, 1.0)}}, {}),
    (GPRegressor, "one", {"likelihood": "student-t"}, {"max_iterations": 5}),
    (GPClassifier, "2 classes", {"inference": "variational"}, {"max_iterations": 5}),
    (GPCountRegressor, "counts", {}, {"max_iterations": 9}),
    (GPCountRegressor, "counts", {"likelihood": "poisson"}, {"exposure": np.linspace(0.5, 2, 60)}),
    (GPCountRegressor, "counts", {"likelihood": "binomial"}, {"trials": np.arange(60) % 3 + 50, "max_iterations": 5}),
    (GPRegressor, "one", {"likelihood": "tobit"}, {"censored": np.arange(60) % 3 - 1, "max_iterations": 5}),
    (GPClassifier, "3 numbers", {"likelihood": "ordinal"}, {"max_iterations": 5}),
]
SLOW_CASES = [
    (GPClassifier, "3 classes", {"inference": "laplace"}, {"max_iterations": 5}),
    (GPRegressor, "two", {"kernel": "auto", "approximation": rfgp.RandomFeatures(8)}, {"max_iterations": 5}),
    (GPClassifier, "2 classes", AUTO, {"max_iterations": 2}),
    (GPClassifier, "3 classes", AUTO, {"max_iterations": 2}),
    (GPCountRegressor, "counts", AUTO, {"max_iterations": 3}),
]


@pytest.mark.parametrize(
    ("make", "kind", "options", "fit"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_CASES)],
)
def test_estimators_equal_the_model_of_the_same_seed(make, kind, options, fit):
    y, words = TARGETS[kind], {"max_iterations": "max_iter", "fixed": "fixed"}
    of_estimator = {words[name]: value for name, value in fit.items() if name in words}
    of_fit = {name: value for name, value in fit.items() if name not in words}
    estimator = small(make, **options, **of_estimator).fit(X, y, **of_fit)
    usual = {"likelihood": USUAL[kind]} if kind in USUAL else {}
    numbers = np.unique(y, return_inverse=True)[1] if make is GPClassifier else y
    gp = rfgp.GP(**{**MODEL, **usual, **options}, seed=0).fit(X, numbers.astype(float), **fit)
    p = gp.predict(NEW)
    if make is GPRegressor:
        draws = np.moveaxis(p.sample(5, seed=3), 0, -1)
        found = [
            *estimator.predict(NEW, return_std=True),
            estimator.predict(NEW, return_cov=True)[1],
            estimator.sample_y(NEW, 5, random_state=3),
        ]
        for one, expected in zip(found, (p.mean, p.std, p.covariance, draws), strict=True):
            np.testing.assert_array_equal(one, expected)
    elif make is GPClassifier:
        shares, mean = estimator.predict_proba(NEW), p.observed().mean
        np.testing.assert_array_equal(shares[:, 1] if kind == "2 classes" else shares, mean)
        assert (estimator.predict(NEW) == estimator.classes_[shares.argmax(1)]).all()
        assert list(estimator.classes_) == sorted(set(y))
    else:
        np.testing.assert_array_equal(estimator.predict(NEW), p.observed().mean)
    assert estimator.log_marginal_likelihood_value_ == gp.fit_report.log_marginal_likelihood
    assert estimator.n_iter_ == gp.fit_report.iterations > 0
    assert (estimator.selection_ is None) == (gp.selection is None) == (options.get("kernel") != "auto")
    if gp.selection is not None:
        ours, theirs = ([(t.name, t.scores) for t in each.trials] for each in (estimator.selection_, gp.selection))
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize(
    "likelihood", ["gamma", "weibull", "lognormal", pytest.param("heteroscedastic", marks=pytest.mark.slow)]
)
def test_predictions_are_means_of_observations(likelihood):
    estimator = small(likelihood=likelihood, max_iter=5).fit(X, TARGETS["positive"])
    mean, std = estimator.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, estimator.gp_.predict(NEW).observed().mean, rtol=1e-6)
    draws = estimator.sample_y(NEW, 4000)
    assert (np.abs(draws.mean(1) - mean) < 6 * std / np.sqrt(4000)).all()
    np.testing.assert_allclose(np.diag(estimator.predict(NEW, return_cov=True)[1]), std**2, rtol=1e-6)


@pytest.mark.parametrize("y", [Y, np.insert(TARGETS["two"], 1, -2.0, axis=1)], ids=["one", "a constant one"])
def test_terms_add_up_to_the_prediction(y):
    kernel = k.RBF(0, name="curve") + k.Linear((1, 2), name="line")
    estimator = small(kernel=kernel, approximation="auto", max_iter=5).fit(X, y)
    terms = estimator.terms(NEW)
    assert list(terms) == ["curve", "line"]
    rest = estimator.predict(NEW) - sum(mean for mean, _ in terms.values())
    np.testing.assert_allclose(np.ptp(rest, axis=0), 0, atol=1e-9)
    assert all(std.shape == rest.shape for _, std in terms.values())
    if y.ndim == 1:
        np.testing.assert_array_equal(terms["line"][1], estimator.gp_.predict(NEW).terms["line"].std)


def test_warnings_name_the_arguments_of_the_estimator():
    with pytest.warns(rfgp.ConvergenceWarning, match="max_iter"):
        small(max_iter=2).fit(X, Y)


def test_a_random_state_draws_a_seed_for_each_fit():
    def seed(state):
        return small(random_state=state, max_iter=0).fit(X, Y).gp_.seed

    state = np.random.RandomState(3)
    first, second = seed(state), seed(state)
    assert first != second
    assert seed(np.random.RandomState(3)) == first
    assert seed(None) != seed(None)


# --- types, constant targets and few rows ------------------------------------------------------------------------


def test_single_precision_is_kept_if_nothing_is_lost():
    def predict(x, y, new=NEW):
        return small(max_iter=5).fit(x, y).predict(new)

    short, wide = X.astype(np.float32), predict(X, Y)
    narrow = predict(short, Y.astype(np.float32), NEW.astype(np.float32))
    np.testing.assert_allclose(narrow, wide, atol=0.02)
    for y in (Y, np.arange(60)):
        mixed = predict(short, y)
        np.testing.assert_array_equal(mixed, predict(short.astype(np.float64), y))
    found = narrow.dtype, mixed.dtype, predict(X, Y.astype(np.float32)).dtype
    assert found == (np.float32, np.float64, np.float64)


def test_a_constant_target_is_predicted():
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"constant \(5\)"):
        estimator = small().fit(X, np.full(60, 5.0))
    mean, std = estimator.predict(NEW, return_std=True)
    covariance, draws = estimator.predict(NEW, return_cov=True)[1], estimator.sample_y(NEW, 2)
    for found, expected, shape in ((mean, 5, 7), (std, 0, 7), (covariance, 0, (7, 7)), (draws, 5, (7, 2))):
        np.testing.assert_array_equal(found, np.full(shape, expected))
    assert estimator.gp_ is estimator.selection_ is None
    assert estimator.terms(NEW) == {}
    assert np.isnan(estimator.log_marginal_likelihood_value_)


def test_a_constant_output_leaves_the_others_alone():
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"Outputs 1 of y are constant \(-2\)"):
        estimator = small(max_iter=5).fit(X, np.insert(TARGETS["two"], 1, -2.0, axis=1))
    others = small(max_iter=5).fit(X, TARGETS["two"])
    calls = [
        (lambda one: one.predict(NEW), 1, -2),
        (lambda one: one.predict(NEW, return_std=True)[1], 1, 0),
        (lambda one: one.predict(NEW, return_cov=True)[1], 2, 0),
        (lambda one: one.sample_y(NEW, 4), 1, -2),
    ]
    for call, axis, constant in calls:
        np.testing.assert_array_equal(call(estimator), np.insert(call(others), 1, constant, axis=axis))


def test_two_rows_and_a_constant_column_are_fitted():
    with pytest.warns(rfgp.OverfittingWarning, match="2 observations"):
        two = small().fit(np.insert(X[:2], 1, 7.0, axis=1), Y[:2])
    assert np.isfinite(two.predict(np.insert(NEW, 1, 7.0, axis=1), return_std=True)).all()


# --- counts ----------------------------------------------------------------------------------------------


def test_mean_counts_are_proportional_to_exposure():
    rng = np.random.default_rng(1)
    x, exposure = rng.uniform(-1, 1, size=(200, 2)), rng.choice([0.2, 1.0, 5.0], 200)
    rates = np.exp(1 + np.sin(4 * x[:, 0]) + x[:, 1])
    y = rng.poisson(rates * exposure)
    found = small(GPCountRegressor, likelihood="poisson").fit(x, y, exposure=exposure)
    mean = found.predict(x, exposure)
    assert np.abs(np.log(mean / rates / exposure)).mean() < 0.2
    np.testing.assert_allclose(found.predict(x) * exposure, mean)
    assert found.score(x, y, exposure=exposure) > found.score(x, y, exposure=1.0) + 0.3
    refused(lambda: found.score(x, y), rfgp.InvalidArgumentError, "exposure")


def test_counts_are_scored_by_the_explained_deviance():
    estimator = small(GPCountRegressor, likelihood="poisson").fit(X, COUNTS)
    expected = d2_tweedie_score(COUNTS, estimator.predict(X), power=1)
    assert estimator.score(X, COUNTS) == pytest.approx(expected)
    linear = PoissonRegressor(alpha=0).fit(X, COUNTS)
    assert linear.score(X, COUNTS) < expected < 1


# --- weights -----------------------------------------------------------------------------------------------------

FEW = {"approximation": rfgp.RandomFeatures(8), "max_iter": 3}


def test_rows_of_other_exposures_are_not_merged():
    x, y, exposure = np.tile(X[:15], (3, 1)), np.tile(COUNTS[:15], 3), np.repeat([1.0, 2.0, 1.0], 15)
    found = small(GPCountRegressor, **FEW).fit(x, y, exposure=exposure)
    assert found.gp_.num_observations == 30
    weighted = small(GPCountRegressor, **FEW).fit(x[:30], y[:30], np.repeat([2, 1], 15), exposure[:30])
    np.testing.assert_array_equal(found.predict(NEW), weighted.predict(NEW))


# --- dataframes --------------------------------------------------------------------------------------------------

KERNEL = k.RBF("t") + k.Group("store") + k.Group("open") + k.Group("kind") + k.Linear("day")


def frame_of(n=60):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "t": np.linspace(0, 10, n),
            "store": rng.choice(["north", "south", "east"], n),
            "day": pd.date_range("2024-01-01", periods=n),
            "open": rng.random(n) > 0.5,
            "kind": pd.Categorical(rng.choice(["a", "b"], n)),
        }
    )
    return frame, np.sin(frame.t) + (frame.store == "north") + frame.open + 0.1 * rng.standard_normal(n)


FRAME, SALES = frame_of()


def test_columns_of_all_kinds_reach_the_model():
    weight = np.arange(60) % 2 + 1.0
    model = GPRegressor(KERNEL, random_state=0, max_iter=5).fit(FRAME, SALES, weight)
    gp = rfgp.GP(KERNEL, seed=0).fit(FRAME, SALES, sample_weight=weight, max_iterations=5)
    np.testing.assert_allclose(model.predict(FRAME), gp.predict(FRAME).mean, rtol=1e-9)
    assert list(model.feature_names_in_) == list(FRAME)
    assert list(model.terms(FRAME)) == ["rbf(t)", "group(store)", "group(open)", "group(kind)", "linear(day)"]


def test_an_index_of_pandas_is_left_out():
    frame = pd.DataFrame({"Unnamed: 0": np.arange(30.0), "a": X[:30, 0]})
    model, given = GPRegressor(k.RBF(), random_state=0, max_iter=3), (np.sin(frame.a), np.arange(30) % 3 + 1.0)
    with pytest.warns(rfgp.IndexColumnWarning, match="left out"):
        found = model.fit(frame, *given).predict(frame)
    np.testing.assert_allclose(found, model.fit(frame[["a"]], *given).predict(frame[["a"]]), rtol=1e-6)


@pytest.mark.parametrize("kernel", ["auto", k.Linear()], ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_an_unnamed_column_is_warned_of_once(kernel, step):
    frame = pd.DataFrame({"Unnamed: 0": step * np.arange(30), "a": X[:30, 0]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GPRegressor(kernel, random_state=0, max_iter=2).fit(frame, np.sin(frame.a))
    found = [entry for entry in caught if issubclass(entry.category, rfgp.IndexColumnWarning)]
    assert [entry.filename for entry in found] == [__file__]


# --- refusals ----------------------------------------------------------------------------------------------------


INVALID, DATA = rfgp.InvalidArgumentError, rfgp.DataError
COUNTED = {"y": COUNTS}
BAD_OPTIONS = {"kernel": "rbf", "inference": "laplace", "random_state": -1, "max_iter": -1, "memory": "little"}
BAD_FITS = [
    # data that scikit-learn's own checks do not try
    (small(), {"y": np.full(60, "red")}, DATA, "numeric"),
    (small(), {"sample_weight": np.eye(60)[0]}, DATA, "two weights"),
    (small(), {"sample_weight": ["a"] * 60}, DATA, "numbers"),
    (small(), {"sample_weight": [[1.0], [1.0, 2.0]] + 58 * [1.0]}, DATA, "sample_weight"),
    (small(GPClassifier), {"y": Y > 0, "sample_weight": Y > 0}, DATA, "only one"),
    (small(GPCountRegressor), {"y": COUNTS + 0.5}, DATA, "counts"),
    (small(GPCountRegressor), {"y": np.ones((60, 2))}, ValueError, "1d"),
    (small(GPCountRegressor), {**COUNTED, "exposure": [1.0, 2.0]}, DATA, "exposure"),
    # options
    *((small(**{name: value}), {}, INVALID, name) for name, value in BAD_OPTIONS.items()),
    (small(likelihood="categorical"), {}, INVALID, "GPClassifier"),
    (small(**AUTO, time_limit="now"), {}, INVALID, "time_limit"),
    (small(GPClassifier, likelihood="bernoulli"), {"y": TARGETS["3 classes"]}, INVALID, "3 classes"),
    (small(GPCountRegressor, likelihood="gamma"), COUNTED, INVALID, "counts"),
    (small(GPCountRegressor, likelihood="binomial"), COUNTED, INVALID, "trials"),
    (small(likelihood="tobit"), {"censored": [1, 2]}, DATA, "censored"),
    (small(), {"censored": np.zeros(60)}, INVALID, "tobit"),
    (small(GPClassifier, likelihood="ordinal"), {"y": TARGETS["3 classes"]}, INVALID, "numbers"),
    # columns of frames
    (GPRegressor(KERNEL), {"X": FRAME.assign(t=FRAME.store), "y": SALES}, DATA, "text"),
]


@pytest.mark.parametrize(("estimator", "given", "error", "word"), BAD_FITS)
def test_bad_fits_are_named(estimator, given, error, word):
    refused(lambda: estimator.fit(**{"X": X, "y": Y, **given}), error, word)


BAD_CALLS = [
    (lambda fitted: small().terms(NEW), NotFittedError, "not fitted"),
    (lambda fitted: fitted.predict(NEW, return_std=True, return_cov=True), INVALID, "both"),
    (lambda fitted: fitted.sample_y(NEW, 0), INVALID, "n_samples"),
    (lambda fitted: fitted.set_params(kernel__lengthscale=1.0), INVALID, "kernel__lengthscale"),
]


@pytest.mark.parametrize(("call", "error", "word"), BAD_CALLS)
def test_bad_calls_are_named(call, error, word):
    fitted = small(max_iter=0).fit(X, Y)
    refused(lambda: call(fitted), error, word)
