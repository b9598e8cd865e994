"""The model as a user meets it: data in, predictions out, terms, hyperparameters, files and refusals."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from refusals import refused

import rfgp
from rfgp import kernels as k
from rfgp import plotting

pytestmark = pytest.mark.filterwarnings(
    "ignore::rfgp.VarianceStarvationWarning", "ignore::rfgp.PoorFeaturesWarning", "ignore::rfgp.ConvergenceWarning"
)


def table(count, seed):
    rng = np.random.default_rng(seed)
    return {
        "t": rng.uniform(0, 10, count),
        "p": rng.normal(3, 2, count),
        "q": rng.uniform(-1, 1, count),
        "store": rng.choice(["a", "b", "c"], count),
    }


ROWS, NEW = table(60, 1), table(9, 2)
Y = 5 + np.sin(ROWS["t"]) + 0.5 * (ROWS["store"] == "a") + 0.3 * ROWS["p"] + 0.2 * ROWS["q"] * np.cos(7 * ROWS["t"])
TREND = k.RBF("t", name="trend", lengthscale=1.7)
SPACE = k.Matern(("p", "q"), nu=2.5, lengthscale=(2.0, 0.6), name="space")
STORE = k.Group("store", name="store")
SLOPE = k.Linear(("p", "q"), origin=(3.0, 0.0), name="slope")
SUM = TREND + SPACE + STORE + SLOPE
START = {
    "trend.outputscale": 0.4,
    "space.outputscale": 0.7,
    "store.outputscale": 1.0,
    "slope.variance": [0.1, 0.4],
    "mean": 4.5,
    "noise": 0.07,
}


def model(kernel=SUM, approximation="auto", **options):
    """Return a model at given hyperparameters."""
    names = ("mean", "noise", *(f"{term.name}." for term in kernel.terms()))
    start = {path: value for path, value in START.items() if path.startswith(names)}
    return rfgp.GP(kernel, approximation=approximation, seed=0, **{"start": start, **options})


def given(*arguments, **options):
    return model(*arguments, **options).condition(ROWS, Y)


# --- the first steps -------------------------------------------------------------------------------

FOURIER, NEAR = rfgp.EquispacedFourier(), rfgp.Vecchia(8)
LINE, WEEK, SIDE = k.RBF("t", name="trend"), k.Periodic("t", period=7, name="week"), k.RBF("a", name="side")
CHAIN = k.Matern("t", nu=1.5, name="trend")
CASES = {
    "auto": ("auto", "auto"),
    "exact": (LINE + WEEK, rfgp.Exact()),
    "random features": (LINE + WEEK, rfgp.RandomFeatures(32)),
    "lattice with a season": (LINE + WEEK, FOURIER),
    "lattice with levels": (LINE + k.Group("g"), FOURIER),
    "lattice with a slope": (LINE + k.Linear("a"), {"trend": FOURIER}),
    "two lattices": (LINE + SIDE, FOURIER),
    "lattice with neighbors": (LINE + SIDE, {"trend": FOURIER, "side": NEAR}),
    "lattice with inducing points": (LINE + SIDE, {"trend": FOURIER, "side": rfgp.InducingPoints(15)}),
    "lattice with a chain": (LINE + k.Matern("a", nu=1.5, name="side"), {"trend": FOURIER}),
    "inducing points": (LINE * WEEK, rfgp.InducingPoints(30)),
    "neighbors": (k.Matern("t", nu=1.5) * WEEK, NEAR),
    "chain": (CHAIN, rfgp.SparsePrecision()),
    "chain with levels": (CHAIN + k.Group("g"), {"trend": rfgp.SparsePrecision()}),
}
TAILED = ("exact", "lattice with a season", "inducing points", "neighbors", "chain with levels")
SLOW = (*(c for c in CASES if c.startswith("lattice with")), "auto", "two lattices")
INSIDE, BEYOND = np.linspace(1, 29, 70), np.linspace(31, 60, 70)  # more than `FEW_POINTS` of a lattice
PLACES = {"one": [40.0], "inside": INSIDE, "beyond": BEYOND, "both": [*INSIDE, *BEYOND], "one beyond": [*INSIDE, 40.0]}


def points(t):
    return {"t": np.asarray(t, dtype=float), "a": np.full(len(t), 0.1), "g": np.full(len(t), "x")}


def series(count=100):
    rng = np.random.default_rng(0)
    X = {"t": np.sort(rng.uniform(0, 30, count)), "a": rng.normal(size=count), "g": rng.choice(["x", "y"], count)}
    return X, np.sin(X["t"]) + 0.3 * X["a"] + 0.1 * rng.normal(size=count)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] * (c in SLOW)) for c in CASES])
def test_a_model_is_fitted_predicts_plots_and_is_saved(case, tmp_path):
    kernel, approximation = CASES[case]
    X, y = series()
    gp = rfgp.GP(kernel, approximation=approximation, seed=0).fit(X, y, max_iterations=8)
    prediction = gp.predict(X)
    low, high = prediction.observed().interval(0.95)
    assert np.mean((low <= y) & (y <= high)) > 0.85
    assert (prediction.observed().std > prediction.std).all()
    far = gp.predict(points([1e5]))
    assert np.isfinite(far.mean).all()
    assert far.std[0] >= 0.9 * np.median(prediction.std)
    assert prediction.sample(3, seed=0).shape == (3, 100)
    axes = plotting.plot_prediction_band(X["t"], prediction, data=(X["t"], y))
    plotting.save(axes.figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    gp.save(tmp_path / "model.safetensors", data=True)
    loaded = rfgp.load(tmp_path / "model.safetensors")
    assert repr(loaded) == repr(gp)
    assert_allclose(loaded.predict(points(BEYOND)).mean, gp.predict(points(BEYOND)).mean, rtol=1e-12)
    assert list(gp.terms) == list(loaded.terms)


@pytest.mark.parametrize(
    ("case", "likelihood"),
    [pytest.param(c, "gaussian", marks=[pytest.mark.slow] * (c in SLOW)) for c in list(CASES)[1:]]
    + [pytest.param(c, "student-t", marks=pytest.mark.slow) for c in TAILED],
)
def test_predictions_do_not_depend_on_other_points(case, likelihood):
    """For a forecast beyond the rows too, alone or beside points within them."""
    kernel, approximation = CASES[case]
    gp = rfgp.GP(kernel, likelihood, approximation=approximation, seed=0).condition(*series())
    for t in PLACES.values():
        found, some = gp.predict(points(t)), slice(None, None, max(1, len(t) // 2))
        alone = [gp.predict(points([each])) for each in np.asarray(t)[some]]
        for name in ("mean", "std"):
            expected = [getattr(prediction, name)[0] for prediction in alone]
            assert_allclose(getattr(found, name)[some], expected, atol=1e-6)
        assert np.isfinite(found.observed().interval(0.95)).all()


def test_forecasts_return_to_the_trend_and_season():
    t, rng = np.arange(200.0), np.random.default_rng(1)
    y = np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=200)
    gp = rfgp.GP(k.RBF("t") + k.Periodic("t", period=7), seed=0).fit({"t": t}, y)
    later = 200 + np.arange(100.0)
    forecast = gp.predict({"t": later})
    assert np.abs(forecast.mean - np.sin(2 * np.pi * later / 7)).max() < 0.25
    assert (forecast.std < 0.3).all()


# --- terms -----------------------------------------------------------------------------------------


NEW_LEVELS = {
    "store": (TREND + STORE, 1e-9),
    "own": (TREND + (STORE * k.RBF("t", lengthscale=1.0)).named("own"), 0.5),
    "category": (SPACE + k.Categorical("store", correlation=0.3, name="category"), 0.6),
}


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(16)], ids=repr)
@pytest.mark.parametrize("name", NEW_LEVELS)
def test_new_levels_have_their_prior_and_share_it(name, approximation):
    kernel, error = NEW_LEVELS[name]
    start = {f"{name}.outputscale": 1.3, "noise": 0.07}
    gp = rfgp.GP(kernel, approximation={} if name == "own" else "auto", start=start, seed=0).condition(ROWS, Y)
    gp = gp.with_approximation(approximation) if name == "own" else gp
    new = {key: np.repeat(NEW[key][:1], 4) for key in NEW} | {"store": np.array(["x", "x", "y", "a"])}
    covariance = gp.predict(new).terms[name].covariance
    assert covariance[0, 1] == pytest.approx(covariance[0, 0])
    assert covariance[0, 0] == pytest.approx(1.3, rel=error)
    if name == "category":
        assert covariance[0, 2] < covariance[0, 0] - 0.6 * 1.3
    else:
        assert_allclose(covariance[0, 2:], 0, atol=1e-10)


@pytest.mark.filterwarnings("ignore::rfgp.NewLevelWarning")
@pytest.mark.parametrize("step", ["condition", "update"])
def test_rows_with_new_levels_are_learned_from(step):
    new = {**NEW, "store": np.array(["z"] * 5 + ["a"] * 4)}
    more, y = {key: np.concatenate([ROWS[key], new[key]]) for key in ROWS}, np.concatenate([Y, np.full(9, 12.0)])
    expected = model().condition(more, y).predict(new)
    gp = given(standardize=False)
    assert len(gp.predict(NEW).mean) == 9
    found = (gp.condition(more, y) if step == "condition" else gp.update(new, y[60:])).predict(new)
    assert_allclose(found.mean, expected.mean, rtol=1e-8)
    assert_allclose(found.std, expected.std, rtol=1e-8)


def test_new_levels_of_a_term_with_a_value_for_each_need_a_fit():
    kernel = (k.Coregionalization("store", rank=2) * TREND).named("both")
    gp = rfgp.GP(kernel, seed=0).fit(ROWS, Y, max_iterations=3)
    assert gp.hyperparameters.loadings.shape == (3, 2)
    before = gp.predict(NEW).mean
    refused(lambda: gp.update({**NEW, "store": ["z"] * 9}, Y[:9]), rfgp.InvalidArgumentError, "Fit again")
    np.testing.assert_array_equal(gp.predict(NEW).mean, before)


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(256), rfgp.Vecchia(30)], ids=repr)
def test_degrees_of_freedom_are_those_of_the_present_rows(approximation):
    rng = np.random.default_rng(0)
    first, later = np.sort(rng.uniform(0, 2, 80)), np.sort(rng.uniform(5, 25, 80))
    gp = rfgp.GP(k.RBF(0, lengthscale=1.0), approximation=approximation, start={"noise": 0.1}, seed=0)
    gp.condition(first[:, None], np.sin(first)).condition(later[:, None], np.sin(later))
    variance, noise = (getattr(gp.hyperparameters, name).item() for name in ("outputscale", "noise"))
    K = variance * np.exp(-((later[:, None] - later) ** 2) / 2)
    expected = np.trace(np.linalg.solve(K + noise * np.eye(80), K))
    assert gp.terms["rbf(0)"].degrees_of_freedom == pytest.approx(expected, rel=0.02)


def test_shares_of_terms_and_costs_of_features():
    gp = given(TREND + SPACE, rfgp.RandomFeatures(16))
    terms = gp.predict(ROWS).terms
    whole = np.var(sum(np.asarray(terms[name].mean) for name in gp.terms))
    for name, report in gp.terms.items():
        assert report.share == pytest.approx(np.var(terms[name].mean) / whole, rel=1e-6)
        assert report.cost.num_features == 32
        assert "32 " in report.cost.note
        assert report.approximation == rfgp.RandomFeatures(16)


@pytest.mark.slow
def test_a_budget_of_features_is_divided_by_degrees_of_freedom():
    rng = np.random.default_rng(3)
    rows = {"a": rng.uniform(0, 1, 400), "b": rng.uniform(0, 1, 400)}
    y = np.sin(40 * rows["a"]) + 0.5 * rows["b"] + 0.05 * rng.normal(size=400)
    kernel = k.RBF("a", name="rough") + k.RBF("b", name="smooth")
    gp = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(), budget=200, seed=0).fit(rows, y)
    counts = [gp.terms[name].approximation.num_frequencies for name in ("rough", "smooth")]
    ratio = gp.terms["rough"].degrees_of_freedom / gp.terms["smooth"].degrees_of_freedom
    assert sum(counts) == pytest.approx(100, abs=2)
    assert ratio > 3
    assert counts[0] / counts[1] == pytest.approx(ratio, rel=0.35)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (k.Periodic("t", 12.0, name="season"), "longer than the data"),
        (k.RBF("t") + k.Group("id", name="own"), "has one row"),
    ],
)
def test_terms_that_the_data_do_not_determine_are_warned_of(kernel, words):
    X = {"t": np.linspace(0, 5, 40), "id": [f"row {i}" for i in range(40)]}
    with pytest.warns(rfgp.TermWarning, match=words):
        rfgp.GP(kernel, seed=0).condition(X, np.sin(X["t"]))


# --- tables ----------------------------------------------------------------------------------------


def test_kernels_without_columns_read_all_but_the_target():
    frame = pd.DataFrame({name: ROWS[name] for name in ("t", "p", "store")}).assign(units=Y)
    gp = rfgp.GP(k.RBF(), seed=0).condition(frame.drop(columns="store"), "units")
    assert gp.kernel.terms()[0].factors[0].columns == ("t", "p")
    assert gp.hyperparameters.lengthscale.shape == (2,)
    coded = rfgp.GP(k.RBF(), seed=0).condition(frame, "units")
    assert coded.hyperparameters.lengthscale.shape == (5,)  # an indicator for each store
    beside = rfgp.GP(k.RBF() + k.Group("store"), seed=0).condition(frame, "units")
    assert beside.kernel.terms()[0].factors[0].columns == ("t", "p")


def test_levels_of_blocks_are_read_as_those_of_a_dataframe():
    """The levels are known after a pass over all rows: "c" comes in the last ones only."""
    frame = pd.DataFrame(ROWS).assign(open=ROWS["q"] > 0, units=Y)
    frame = frame.iloc[np.argsort(frame["store"] == "c", kind="stable")]
    make = lambda: rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(16), start={"lengthscale": 1.0}, seed=0)  # noqa: E731
    expected = make().condition(frame, "units").predict(frame).mean
    blocks = rfgp.tables.Batches([frame[:20], frame[20:45], frame[45:]], target="units")
    assert_allclose(make().condition(blocks).predict(frame).mean, expected, rtol=1e-8)
    for changed in (np.arange(15.0), pd.date_range("2020-01-01", periods=15), [None] * 15):
        other = rfgp.tables.Batches([frame[:45], frame[45:].assign(store=changed)], target="units")
        refused(lambda other=other: make().condition(other), rfgp.DataError, "store")


# --- hyperparameters -------------------------------------------------------------------------------


def test_hyperparameters_are_read_and_set_in_the_units_of_the_user():
    gp = given(TREND + SPACE)
    h = gp.hyperparameters
    assert h["trend.lengthscale"].item() == pytest.approx(1.7)
    assert_allclose(h["space.lengthscale"].detach(), (2.0, 0.6))
    assert h.standardized("noise").item() == pytest.approx(0.07 / Y.var(ddof=1))
    assert h.standardized("trend.lengthscale").item() == pytest.approx(1.7 / ROWS["t"].std(ddof=1))
    assert h.standardized("mean").item() == pytest.approx((4.5 - Y.mean()) / Y.std(ddof=1))
    assert list(h) == list(h.names)
    assert "noise" in h
    assert {"noise", "raw", "set"} <= set(dir(h))
    assert "lengthscale" not in dir(h)  # two terms have one
    h["trend.lengthscale"] = 0.5
    h.noise = 0.2
    h.set(mean=4.0)
    assert "noise=0.2" in repr(h)
    values = {"trend.outputscale": 0.4, "space.outputscale": 0.7, "trend.lengthscale": 0.5, "noise": 0.2, "mean": 4.0}
    expected = given(TREND + SPACE, start=values)
    assert_allclose(gp.predict(NEW).mean, expected.predict(NEW).mean, rtol=1e-10)
    h.noise.backward()
    assert h.raw["noise"].grad.item() == pytest.approx(0.2)  # d noise / d log noise


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"noise": -1.0}, "noise must be positive"),
        ({"noise": 3.0, "mean": np.nan}, "mean must be"),
        ({"noise": 3.0, "trend.lengthscale": 0.0}, "positive"),
        ({"space.lengthscale": [1.0, 2.0, 3.0]}, "shape () or (2,)"),
        ({"noise": "much"}, "number"),
        ({"lengthscale": 1.0}, "lengthscale"),
        ({"nu": 1.0}, "nu"),
    ],
)
def test_a_refused_value_changes_nothing(values, word):
    gp = given(TREND + SPACE)
    refused(lambda: gp.hyperparameters.set(**values), rfgp.InvalidArgumentError, word)
    assert gp.hyperparameters.noise.item() == pytest.approx(0.07)


@pytest.mark.parametrize("ard", [True, False])
def test_a_shared_lengthscale_round_trips_through_those_of_columns(ard):
    gp = rfgp.GP(k.RBF(("t", "p"), ard=ard), seed=0).condition(ROWS, Y)
    found = gp.hyperparameters.lengthscale.detach()
    gp.hyperparameters.set(lengthscale=2 * found)
    assert_allclose(gp.hyperparameters.lengthscale.detach(), 2 * found)
    if not ard:
        assert_allclose(found[1] / found[0], ROWS["p"].std() / ROWS["t"].std())
        wrong = lambda: gp.hyperparameters.set(lengthscale=[1.0, 1.0])  # noqa: E731
        refused(wrong, rfgp.InvalidArgumentError, "all columns")


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(64)], ids=repr)
def test_terms_on_the_same_columns_start_at_different_scales(approximation):
    X = np.random.default_rng(0).standard_normal((40, 2))
    kernel = k.RBF(name="smooth") + k.Matern(name="rough") + k.RBF(0, name="one")
    values = rfgp.GP(kernel, approximation=approximation, seed=0).condition(X, X[:, 0]).hyperparameters
    assert_allclose(values["rough.lengthscale"].detach(), values["smooth.lengthscale"].detach() / 2)
    assert (values["rough.outputscale"] / values["smooth.outputscale"]).item() == pytest.approx(0.25)
    assert values["one.outputscale"].item() == pytest.approx(values["smooth.outputscale"].item())


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("kernel", [k.RBF(), pytest.param("auto", marks=pytest.mark.slow)], ids=["given", "auto"])
def test_a_zero_mean_is_not_learned(kernel):
    X = np.linspace(0, 1, 30)[:, None]
    gp = rfgp.GP(kernel, "poisson", mean="zero", seed=0).fit(X, np.round(8 + 3 * np.sin(9 * X[:, 0])))
    assert gp.hyperparameters.mean.item() == pytest.approx(0, abs=1e-12)


def test_second_derivatives_are_refused():
    gp = given(TREND)
    parameters = list(gp.hyperparameters.parameters())
    slope, *_ = torch.autograd.grad(gp.log_marginal_likelihood(), parameters, create_graph=True)
    refused(lambda: torch.autograd.grad(slope.sum(), parameters), rfgp.NotDifferentiableError, "once")


# --- other approximations, copies and states -------------------------------------------------------


def test_a_fit_keeps_exchanged_approximations():
    X = np.linspace(0, 1, 30)[:, None]
    gp = rfgp.GP(k.RBF(name="f"), approximation=rfgp.RandomFeatures(8), seed=0).fit(X, np.sin(9 * X[:, 0]))
    assert gp.exact().fit(X, np.sin(9 * X[:, 0])).terms["f"].approximation == rfgp.Exact()
    assert gp.fit(X, np.sin(9 * X[:, 0])).terms["f"].approximation == rfgp.RandomFeatures(8)


STATES = {
    "exact": lambda: rfgp.GP(k.RBF(), approximation=rfgp.Exact()),
    "features": lambda: rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(8), seed=0),
    "more features than rows": lambda: rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(64), seed=0),
}


@pytest.mark.parametrize("name", STATES)
def test_copies_are_whole_and_apart(name):
    X = ROWS["t"][:, None]
    gp = STATES[name]().condition(X, Y)
    gp.log_marginal_likelihood().backward()
    prediction = gp.predict(X)
    others = [copy.copy(gp), copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))]
    for other in others:
        np.testing.assert_array_equal(other.predict(X).mean, prediction.mean)
    gp.hyperparameters.raw["noise"].data.add_(2.0)  # in place
    assert np.abs(gp.predict(X).mean - prediction.mean).max() > 1e-3
    for other in others[1:]:
        np.testing.assert_array_equal(other.predict(X).mean, prediction.mean)
        other.condition(X[:5], Y[:5])
    assert gp.num_observations == len(Y)


def test_reprs_say_what_a_model_is():
    gp = rfgp.GP(TREND + STORE, "poisson", rfgp.RandomFeatures(8), mean="zero", seed=3, memory="1GB", budget=40)
    for part in ("GP(kernel=", "likelihood=Poisson()", "mean='zero'", "seed=3", "budget=40", "not fitted"):
        assert part in repr(gp)
    assert repr(rfgp.GP(seed=0)) == "GP(seed=0, not fitted)"
    assert repr(given(TREND)).startswith("GP(60 observations, Hyperparameters(trend.lengthscale=[1.7]")


# --- refusals --------------------------------------------------------------------------------------

INVALID, DATA = rfgp.InvalidArgumentError, rfgp.DataError
PREDICTED = TREND + STORE


def far(distance):
    rows = np.column_stack([ROWS["t"], ROWS["p"]])
    gp = rfgp.GP(k.Periodic(0, period=2.0) + k.RBF(1), approximation=rfgp.Exact(), seed=0).condition(rows, Y)
    return gp.predict(np.array([rows[0], [distance, 1.0]]))


def fit(kernel=TREND, y=Y, fixed=(), **options):
    return rfgp.GP(kernel, seed=0, **options).fit(ROWS, y, fixed=fixed)


MANY = {"x": np.arange(120.0), "s": [f"s{i // 2}" for i in range(120)]}
UNIFORM, EIGHT, MANY_FEATURES = (
    torch.distributions.Uniform(50.0, 60.0),
    rfgp.RandomFeatures(8),
    rfgp.RandomFeatures(10**8),
)
REFUSALS = [
    (lambda: rfgp.GP("rbf"), INVALID, "kernel must be a kernel"),
    (lambda: rfgp.GP(TREND, approximation="nystrom"), INVALID, "approximation must be"),
    (lambda: rfgp.GP(TREND, approximation={"trend": "exact"}), INVALID, "approximation of 'trend'"),
    (lambda: rfgp.GP(TREND, mean="linear"), INVALID, "mean must be one of"),
    (lambda: rfgp.GP(TREND, start=[1.0]), INVALID, "start must be a dict"),
    (lambda: rfgp.GP(TREND, budget=0), INVALID, "budget"),
    (lambda: rfgp.GP(TREND, memory=-1), INVALID, "memory must be"),
    (lambda: rfgp.GP(k.RBF()).fit(MANY, np.arange(120.0)), DATA, "60. Add k.Group"),
    (lambda: fit(start={"nu": 1.0}), INVALID, "nu"),
    (lambda: fit(start={"lengthscale": -1.0}), INVALID, "positive"),
    (lambda: fit(y=np.stack([Y, Y], 1), start={"noise": [1.0] * 3}), INVALID, "noise must"),
    (lambda: fit(priors={"nu": None}), INVALID, "nu"),
    (lambda: fit(priors={"noise": UNIFORM}), INVALID, "prior"),
    (lambda: fit(fixed=("nu",)), INVALID, "hyperparameter"),
    (lambda: model(TREND).fit(ROWS, Y, max_iterations=-1), INVALID, "max_iterations"),
    (lambda: fit(2.0 * SLOPE), INVALID, "no output scale"),
    (lambda: fit(approximation={"season": rfgp.Exact()}), INVALID, "no term 'season'"),
    (lambda: fit(SLOPE, approximation=EIGHT), INVALID, "finitely many"),
    (lambda: fit(approximation=rfgp.Exact(), memory=1e4), INVALID, "'trend' takes"),
    (lambda: fit(approximation=MANY_FEATURES), INVALID, "GiB"),
    (lambda: rfgp.GP(k.RBF()).fit(np.empty((0, 2)), []), DATA, "at least"),
    (lambda: given(PREDICTED).predict({"t": [1.0]}), DATA, "store"),
    (lambda: given(PREDICTED).predict({"t": [np.nan], "store": ["a"]}), DATA, "'t'"),
    (lambda: given(TREND).predict(NEW, derivative="u"), INVALID, "column"),
    (lambda: given(TREND).predict(NEW, derivative="t").observed(), INVALID, "observations"),
    (lambda: fit(k.Matern("t", nu=0.5)).predict(NEW, derivative="t"), INVALID, "derivative"),
    (lambda: given(TREND, NEAR).predict(NEW, derivative="t"), INVALID, "features"),
    (lambda: far(1e200), DATA, "row 1. Check its unit"),
]


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize(("call", "error", "word"), REFUSALS)
def test_what_cannot_be_is_refused(call, error, word):
    refused(call, error, word)


# --- worked examples -------------------------------------------------------------------------------
