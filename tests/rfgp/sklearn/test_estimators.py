"""The estimators of tables equal the models that they adapt, and agree with other packages."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import xlogy
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
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
    targets = {
        "one": y,
        "two": np.stack([y, 100 + 5 * X[:, 2] - y], axis=1),
        "positive": np.exp(y),
        "2 classes": np.array(["first", "second"])[chosen % 2],
        "3 classes": np.array(["first", "second", "third"])[chosen],
        "counts": rng.poisson(np.exp(1 + mean)),
    }
    return X, targets, rng.uniform(-1, 1, size=(7, 3))


X, TARGETS, NEW = drawn()
Y = TARGETS["one"]
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
]
SLOW_CASES = [
    (GPClassifier, "2 classes", {"likelihood": rfgp.likelihoods.Bernoulli(link="probit")}, {"max_iterations": 9}),
    (GPClassifier, "3 classes", {"inference": "laplace"}, {"max_iterations": 5}),
    (GPRegressor, "two", {"approximation": rfgp.RandomFeatures(16, learn_frequencies=True)}, {"max_iterations": 20}),
    (GPRegressor, "one", AUTO, {"max_iterations": 5}),
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
    y, given = TARGETS[kind], dict(fit)
    adapted = {"max_iterations": "max_iter", "fixed": "fixed"}
    of_estimator = {adapted[name]: given[name] for name in adapted if name in given}
    of_fit = {"exposure": given["exposure"]} if "exposure" in given else {}
    estimator = small(make, **options, **of_estimator).fit(X, y, **of_fit)
    usual = {"likelihood": USUAL[kind]} if kind in USUAL else {}
    numbers = np.unique(y, return_inverse=True)[1] if "classes" in kind else y
    gp = rfgp.GP(**{**MODEL, **usual, **options}, seed=0).fit(X, numbers.astype(float), **given)
    p = gp.predict(NEW)
    if make is GPRegressor:
        np.testing.assert_array_equal(estimator.predict(NEW), p.mean)
        np.testing.assert_array_equal(estimator.predict(NEW, return_std=True)[1], p.std)
        np.testing.assert_array_equal(estimator.predict(NEW, return_cov=True)[1], p.covariance)
        draws = estimator.sample_y(NEW, 5, random_state=3)
        np.testing.assert_array_equal(draws, np.moveaxis(p.sample(5, seed=3), 0, -1))
    elif make is GPClassifier:
        shares, mean = estimator.predict_proba(NEW), p.observed().mean
        np.testing.assert_array_equal(shares[:, 1] if kind == "2 classes" else shares, mean)
        np.testing.assert_allclose(shares.sum(1), 1)
        assert (estimator.predict(NEW) == estimator.classes_[shares.argmax(1)]).all()
        assert list(estimator.classes_) == sorted(set(y))
    else:
        np.testing.assert_array_equal(estimator.predict(NEW), p.observed().mean)
    assert estimator.log_marginal_likelihood_value_ == gp.fit_report.log_marginal_likelihood
    assert estimator.n_iter_ == gp.fit_report.iterations > 0
    assert (estimator.selection_ is None) == (gp.selection is None) == (options.get("kernel") != "auto")
    if gp.selection is not None:
        found = [[(trial.name, trial.scores) for trial in each.trials] for each in (estimator.selection_, gp.selection)]
        assert repr(found[0]) == repr(found[1])


@pytest.mark.parametrize("likelihood", ["gamma", "student-t", pytest.param("heteroscedastic", marks=pytest.mark.slow)])
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
    rest = estimator.predict(NEW) - terms["curve"][0] - terms["line"][0]
    np.testing.assert_allclose(rest, np.broadcast_to(rest[0], rest.shape), atol=1e-9)
    assert all(mean.shape == std.shape == rest.shape for mean, std in terms.values())
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
    narrow = small(max_iter=5).fit(X.astype(np.float32), Y.astype(np.float32)).predict(NEW.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, small(max_iter=5).fit(X, Y).predict(NEW), atol=0.02)
    wide = small(max_iter=5).fit(X, Y.astype(np.float32)).predict(NEW)
    assert wide.dtype == np.float64
    for y in (Y, np.arange(60)):
        mixed = small(max_iter=5).fit(X.astype(np.float32), y).predict(NEW)
        wide = small(max_iter=5).fit(X.astype(np.float32).astype(np.float64), y).predict(NEW)
        np.testing.assert_array_equal(mixed, wide)
        assert mixed.dtype == np.float64


def test_a_constant_target_is_predicted():
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"constant \(5\)"):
        estimator = small().fit(X, np.full(60, 5.0))
    mean, std = estimator.predict(NEW, return_std=True)
    np.testing.assert_array_equal(mean, np.full(7, 5.0))
    np.testing.assert_array_equal(std, np.zeros(7))
    np.testing.assert_array_equal(estimator.predict(NEW, return_cov=True)[1], np.zeros((7, 7)))
    np.testing.assert_array_equal(estimator.sample_y(NEW, 2), np.full((7, 2), 5.0))
    assert estimator.gp_ is estimator.selection_ is None
    assert estimator.terms(NEW) == {}
    assert np.isnan(estimator.log_marginal_likelihood_value_)


def test_a_constant_output_leaves_the_others_alone():
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"Outputs 1 of y are constant \(-2\)"):
        estimator = small(max_iter=5).fit(X, np.insert(TARGETS["two"], 1, -2.0, axis=1))
    others = small(max_iter=5).fit(X, TARGETS["two"])
    answers = [
        [one.predict(NEW), one.predict(NEW, True)[1], one.predict(NEW, False, True)[1], one.sample_y(NEW, 4)]
        for one in (estimator, others)
    ]
    for axis, constant, found, expected in zip((1, 1, 2, 1), (-2, 0, 0, -2), *answers, strict=True):
        np.testing.assert_array_equal(np.delete(found, 1, axis), expected)
        assert (found.take(1, axis) == constant).all()


def test_two_rows_and_a_constant_column_are_fitted():
    with pytest.warns(rfgp.OverfittingWarning, match="2 observations"):
        two = small().fit(np.insert(X[:2], 1, 7.0, axis=1), Y[:2])
    assert np.isfinite(two.predict(np.insert(NEW, 1, 7.0, axis=1), return_std=True)).all()


# --- other packages ----------------------------------------------------------------------------------------------


def test_two_classes_are_near_scikit_learns():
    """Laplace's approximation by another package: the same kernel and hyperparameters, a logit, exactly."""
    own = GPClassifier(k.RBF(ard=False), rfgp.Exact(), mean="zero", standardize=False, inference="laplace")
    gp = own.fit(X, TARGETS["2 classes"]).gp_
    kernel = ConstantKernel(gp.hyperparameters.outputscale.item()) * RBF(gp.hyperparameters.lengthscale[0].item())
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(X, TARGETS["2 classes"])
    np.testing.assert_allclose(gp.predict(NEW).observed().mean, theirs.predict_proba(NEW)[:, 1], atol=2e-3)
    assert float(gp.log_marginal_likelihood()) == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-4)


def test_counts_are_predicted_better_than_by_a_linear_model():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(300, 2))
    y = rng.poisson(np.exp(1 + np.sin(4 * x[:, 0]) + x[:, 1]))
    estimator = small(GPCountRegressor, likelihood="poisson").fit(x[:150], y[:150])
    own, new = estimator.score(x[150:], y[150:]), y[150:]
    deviances = [(xlogy(new, new / mean) - new + mean).sum() for mean in (estimator.predict(x[150:]), new.mean())]
    assert own == pytest.approx(1 - deviances[0] / deviances[1])
    assert PoissonRegressor(alpha=0).fit(x[:150], y[:150]).score(x[150:], y[150:]) + 0.1 < own < 1


def test_mean_counts_are_proportional_to_exposure():
    rng = np.random.default_rng(1)
    x, exposure = rng.uniform(-1, 1, size=(200, 2)), rng.choice([0.2, 1.0, 5.0], 200)
    rates = np.exp(1 + np.sin(4 * x[:, 0]) + x[:, 1])
    y = rng.poisson(rates * exposure)
    found = small(GPCountRegressor, likelihood="poisson").fit(x, y, exposure=exposure)
    assert np.abs(np.log(found.predict(x) / rates)).mean() < 0.2
    np.testing.assert_allclose(found.predict(x, exposure), found.predict(x) * exposure)
    assert found.score(x, y, exposure=exposure) > found.score(x, y, exposure=1.0) + 0.3
    with pytest.raises(rfgp.InvalidArgumentError, match="exposure"):
        found.score(x, y)


# --- weights -----------------------------------------------------------------------------------------------------

FEW = {"approximation": rfgp.RandomFeatures(8), "max_iter": 3}
WEIGHTED = {
    "few": (GPRegressor, FEW),
    "counts": (GPCountRegressor, FEW),
    "laplace": (GPClassifier, {**FEW, "inference": "laplace"}),
}
SLOW_WEIGHTED = {
    "local": (
        GPRegressor,
        {"kernel": k.RBF() + k.Matern(), "approximation": {"matern": rfgp.Vecchia(5)}, "max_iter": 3},
    ),
    "classes": (GPClassifier, FEW),
    "selected": (GPRegressor, {**AUTO, "max_iter": 3}),
}


@pytest.mark.parametrize(
    ("make", "options"),
    [*WEIGHTED.values(), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_WEIGHTED.values())],
    ids=[*WEIGHTED, *SLOW_WEIGHTED],
)
def test_weights_are_repetitions_to_the_last_bit(make, options):
    """On any processor, whatever the order of its sums, as a check of scikit-learn wants it."""
    rng = np.random.default_rng(0)
    x, y, weight, order = rng.random((15, 30)), rng.integers(0, 3, 15), rng.integers(0, 5, 15), rng.permutation(15)
    written = small(make, **options).fit(x.repeat(weight, 0), y.repeat(weight))
    weighted = small(make, **options).fit(x[order], y[order], sample_weight=weight[order])
    np.testing.assert_array_equal(*(getattr(each, "predict_proba", each.predict)(x) for each in (written, weighted)))
    assert written.gp_.num_observations == np.count_nonzero(weight)


def test_rows_of_other_exposures_are_not_merged():
    x, y = np.tile(X[:15], (3, 1)), np.tile(TARGETS["counts"][:15], 3)
    exposure = np.repeat([1.0, 2.0, 1.0], 15)
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
    model = GPRegressor(KERNEL, random_state=0, max_iter=5).fit(FRAME, SALES)
    gp = rfgp.GP(KERNEL, seed=0).fit(FRAME, SALES, max_iterations=5)
    np.testing.assert_array_equal(model.predict(FRAME), gp.predict(FRAME).mean)
    assert list(model.feature_names_in_) == list(FRAME)
    assert list(model.terms(FRAME)) == ["rbf(t)", "group(store)", "group(open)", "group(kind)", "linear(day)"]


def test_weights_repeat_rows_of_frames():
    weight = np.random.default_rng(1).integers(0, 3, 60)
    model = GPRegressor(KERNEL, random_state=0, max_iter=2)
    written = model.fit(FRAME.loc[FRAME.index.repeat(weight)], SALES.repeat(weight)).predict(FRAME)
    # dates count from the first row, which differs if its weight is zero, and sums are rounded differently
    np.testing.assert_allclose(model.fit(FRAME, SALES, weight).predict(FRAME), written, rtol=1e-12)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries(library):
    module = pytest.importorskip(library)
    columns = {name: FRAME[name].to_numpy() for name in ("t", "open")} | {"store": FRAME.store.to_list()}
    frame = module.DataFrame(columns) if library == "polars" else module.table(columns)
    model, weight = GPRegressor(k.RBF("t") + k.Group("store"), random_state=0, max_iter=5), np.arange(60) % 3
    expected = model.fit(FRAME[["t", "open", "store"]], SALES, weight).predict(FRAME[["t", "open", "store"]])
    np.testing.assert_allclose(model.fit(frame, SALES.to_numpy(), weight).predict(frame), expected, rtol=1e-9)


@pytest.mark.parametrize("output", ["pandas", "default"])
def test_columns_of_a_transformer(output):
    columns = make_column_transformer(
        (OrdinalEncoder(), ["store"]), (StandardScaler(), ["t"]), verbose_feature_names_out=False
    ).set_output(transform=output)
    kernel = k.RBF("t") + k.Group("store") if output == "pandas" else k.RBF(1) + k.Group(0)
    model = make_pipeline(columns, GPRegressor(kernel, random_state=0)).fit(FRAME, SALES)
    assert model.score(FRAME, SALES) > 0.6


@pytest.mark.parametrize(
    ("kernel", "weighted"),
    [(k.RBF(), False), (k.RBF(), True), pytest.param("auto", False, marks=pytest.mark.slow)],
)
def test_an_index_of_pandas_is_left_out(kernel, weighted):
    frame = pd.DataFrame({"Unnamed: 0": np.arange(30.0), "a": X[:30, 0]})
    weight = np.arange(30) % 3 + 1.0 if weighted else None
    model = GPRegressor(kernel, random_state=0, max_iter=3)
    with pytest.warns(rfgp.IndexColumnWarning, match="left out"):
        found = model.fit(frame, np.sin(frame.a), weight).predict(frame)
    expected = model.fit(frame[["a"]], np.sin(frame.a), weight).predict(frame[["a"]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    model.set_params(kernel=k.RBF("Unnamed: 0")).fit(frame, np.sin(frame.a), weight)
    assert model.gp_.kernel.terms()[0].factors[0].columns == ("Unnamed: 0",)


# --- refusals ----------------------------------------------------------------------------------------------------


def with_cell(value):
    out = X.copy()
    out[4, 1] = value
    return out


BAD_FITS = [
    # data that scikit-learn's own checks do not try
    (small(), X.astype(str), np.full(60, "red"), {}, ValueError, "numeric"),
    (small(), X, Y, {"sample_weight": np.ones(3)}, rfgp.DataError, "sample_weight"),
    (small(), X, Y, {"sample_weight": -np.ones(60)}, rfgp.DataError, "negative"),
    (small(), X, Y, {"sample_weight": np.eye(60)[0]}, rfgp.DataError, "two weights"),
    (small(), X, Y, {"sample_weight": ["a"] * 60}, rfgp.DataError, "numbers"),
    (small(GPClassifier), X, np.arange(60) > 30, {"sample_weight": np.arange(60) > 30}, ValueError, "only one"),
    (small(GPCountRegressor), X, -TARGETS["counts"], {}, ValueError, "counts"),
    (small(GPCountRegressor), X, TARGETS["counts"] + 0.5, {}, ValueError, "counts"),
    (small(GPCountRegressor), X, np.ones((60, 2)), {}, ValueError, "1d"),
    *(
        (small(GPCountRegressor), X, TARGETS["counts"], {"exposure": bad}, ValueError, "exposure")
        for bad in ([1.0, 2.0], np.zeros(60), "all")
    ),
    # options
    (small(kernel="rbf"), X, Y, {}, rfgp.InvalidArgumentError, "kernel"),
    (small(kernel=k.RBF("a")), X, Y, {}, rfgp.RfgpError, "'a'"),
    (small(approximation={"smooth": rfgp.Exact()}), X, Y, {}, rfgp.InvalidArgumentError, "smooth"),
    (small(likelihood="categorical"), X, Y, {}, rfgp.InvalidArgumentError, "GPClassifier"),
    (small(inference="laplace"), X, Y, {}, rfgp.InvalidArgumentError, "inference"),
    (small(random_state=-1), X, Y, {}, rfgp.InvalidArgumentError, "random_state"),
    (small(random_state=np.random.default_rng(0)), X, Y, {}, rfgp.InvalidArgumentError, "random_state"),
    (small(fixed=("nois",)), X, Y, {}, rfgp.InvalidArgumentError, "nois"),
    (small(max_iter=-1), X, Y, {}, rfgp.InvalidArgumentError, "max_iter"),
    (small(**AUTO, time_limit="now"), X, Y, {}, rfgp.InvalidArgumentError, "time_limit"),
    (small(memory="little"), X, Y, {}, rfgp.InvalidArgumentError, "memory"),
    (small(GPClassifier, likelihood="poisson"), X, Y > 0, {}, rfgp.InvalidArgumentError, "2 classes"),
    (small(GPClassifier, likelihood="bernoulli"), X, TARGETS["3 classes"], {}, rfgp.InvalidArgumentError, "3 classes"),
    (small(GPCountRegressor, likelihood="gamma"), X, TARGETS["counts"], {}, rfgp.InvalidArgumentError, "counts"),
    # columns of frames
    (GPRegressor(KERNEL), FRAME.assign(t=[np.inf, *FRAME.t[1:]]), SALES, {}, rfgp.DataError, "not finite"),
    (GPRegressor(KERNEL), FRAME.assign(store=[None, *FRAME.store[1:]]), SALES, {}, rfgp.DataError, "missing"),
    (GPRegressor(KERNEL), FRAME.assign(t=FRAME.store), SALES, {}, rfgp.DataError, "text"),
    (GPRegressor(KERNEL), FRAME.drop(columns="t"), SALES, {}, rfgp.DataError, "no column 't'"),
    (GPRegressor(KERNEL), FRAME, SALES[:-1], {}, ValueError, "inconsistent"),
    (GPRegressor(KERNEL), FRAME[:1], SALES[:1], {}, ValueError, "two rows"),
]


@pytest.mark.parametrize(("estimator", "x", "y", "given", "error", "word"), BAD_FITS)
def test_bad_fits_are_named(estimator, x, y, given, error, word):
    with pytest.raises(error, match=word):
        estimator.fit(x, y, **given)


BAD_CALLS = [
    (lambda fitted: small().terms(NEW), NotFittedError, "not fitted"),
    (lambda fitted: fitted.predict(NEW, return_std=True, return_cov=True), rfgp.InvalidArgumentError, "both"),
    (lambda fitted: fitted.sample_y(NEW, 0), rfgp.InvalidArgumentError, "n_samples"),
    (lambda fitted: fitted.predict(with_cell(np.nan)), ValueError, "NaN"),
    (lambda fitted: fitted.predict(sp.csr_array(X)), TypeError, "[Ss]parse"),
    (lambda fitted: fitted.set_params(kernel__lengthscale=1.0), rfgp.InvalidArgumentError, "kernel__lengthscale"),
]


@pytest.mark.parametrize(("call", "error", "word"), BAD_CALLS)
def test_bad_calls_are_named(call, error, word):
    with pytest.raises(error, match=word):
        call(small(max_iter=0).fit(X, Y))


def test_other_columns_than_those_of_the_fit_are_refused():
    model = GPRegressor(KERNEL, max_iter=0, random_state=0).fit(FRAME, SALES)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(FRAME.drop(columns="t"))
    with pytest.raises(ValueError, match="could not convert"):
        model.predict(FRAME.to_numpy())
