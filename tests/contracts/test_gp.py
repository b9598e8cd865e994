"""The model as a user meets it: data in, predictions out, terms, hyperparameters, files and refusals."""

import copy
import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
import trimesh

import graphs
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


def reference():
    """Return means and covariances of the terms at new points, and the prior ones at rows, by numpy alone."""
    both = {key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}
    gap = lambda key, scale: (both[key][:, None] - both[key]) / scale  # noqa: E731
    r = np.sqrt(5) * np.hypot(gap("p", 2.0), gap("q", 0.6))
    centered = np.stack([both["p"] - 3.0, both["q"]], 1)
    prior = {
        "trend": 0.4 * np.exp(-0.5 * gap("t", 1.7) ** 2),
        "space": 0.7 * (1 + r + r**2 / 3) * np.exp(-r),
        "store": 1.0 * (both["store"][:, None] == both["store"]),
        "slope": centered @ np.diag([0.1, 0.4]) @ centered.T,
    }
    total = sum(K[:60, :60] for K in prior.values()) + 0.07 * np.eye(60)
    return prior, total


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
    np.testing.assert_allclose(loaded.predict(points(BEYOND)).mean, gp.predict(points(BEYOND)).mean, rtol=1e-12)
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
            np.testing.assert_allclose(getattr(found, name)[some], expected, atol=1e-6)
        assert np.isfinite(found.observed().interval(0.95)).all()


@pytest.mark.parametrize("count", [200, pytest.param(3000, marks=pytest.mark.slow)])
def test_forecasts_return_to_the_trend_and_season(count):
    t, rng = np.arange(float(count)), np.random.default_rng(1)
    y = np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=count)
    gp = rfgp.GP(k.RBF("t") + k.Periodic("t", period=7), seed=0).fit({"t": t}, y)
    later = count + np.arange(100.0)
    forecast = gp.predict({"t": later})
    assert np.abs(forecast.mean - np.sin(2 * np.pi * later / 7)).max() < 0.25
    assert (forecast.std < 0.3).all()


# --- terms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [True, False])
def test_model_and_its_terms_agree_with_dense_algebra(standardize):
    gp, (prior, total) = given(standardize=standardize), reference()
    residual, inverse = Y - 4.5, np.linalg.inv(total)
    likelihood = -0.5 * (residual @ inverse @ residual + np.linalg.slogdet(total)[1] + 60 * np.log(2 * np.pi))
    assert gp.log_marginal_likelihood().item() == pytest.approx(likelihood, rel=1e-9)
    prediction, mean, covariance = gp.predict(NEW), 4.5, 0.0
    assert list(prediction.terms) == list(gp.terms) == list(prior)
    for a, b in itertools.product(prior, prior):
        cross = (a == b) * prior[a][60:, 60:] - prior[a][60:, :60] @ inverse @ prior[b][:60, 60:]
        np.testing.assert_allclose(prediction.cross_covariance(a, b), cross, atol=1e-8)
        covariance = covariance + cross
    for name, K in prior.items():
        term, expected = prediction.terms[name], K[60:, :60] @ inverse @ residual
        np.testing.assert_allclose(term.mean, expected, atol=1e-8)
        np.testing.assert_allclose(term.variance, np.diag(term.covariance), rtol=1e-8)
        freedom = np.trace(inverse @ K[:60, :60])
        assert gp.terms[name].degrees_of_freedom == pytest.approx(freedom, rel=1e-6)
        mean = mean + expected
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(prediction.covariance, covariance, atol=1e-8)
    np.testing.assert_allclose(gp.prior_covariance(NEW), sum(prior.values())[60:, 60:], atol=1e-9)
    without = prediction.without("store")
    np.testing.assert_allclose(4.5 + without.mean + prediction.terms["store"].mean, prediction.mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.of("trend", "space").centered().mean.mean(), 0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(16)], ids=repr)
@pytest.mark.parametrize("name", ["store", "own", "category"])
def test_new_levels_have_their_prior_and_share_it(name, approximation):
    kernel = {
        "store": TREND + STORE,
        "own": TREND + (STORE * k.RBF("t", lengthscale=1.0)).named("own"),
        "category": SPACE + k.Categorical("store", correlation=0.3, name="category"),
    }[name]
    start = {f"{name}.outputscale": 1.3, "noise": 0.07}
    gp = rfgp.GP(kernel, approximation={} if name == "own" else "auto", start=start, seed=0).condition(ROWS, Y)
    gp = gp.with_approximation(approximation) if name == "own" else gp
    new = {key: np.repeat(NEW[key][:1], 4) for key in NEW} | {"store": np.array(["x", "x", "y", "a"])}
    term = gp.predict(new).terms[name]
    covariance = term.covariance
    assert covariance[0, 1] == pytest.approx(covariance[0, 0])
    assert covariance[0, 0] == pytest.approx(1.3, rel={"store": 1e-9, "own": 0.5, "category": 0.6}[name])
    if name == "category":
        assert covariance[0, 2] < covariance[0, 0] - 0.6 * 1.3
    else:
        np.testing.assert_allclose(covariance[0, 2:], 0, atol=1e-10)
    draws = term.sample(500, seed=0)
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::rfgp.NewLevelWarning")
@pytest.mark.parametrize("step", ["condition", "update"])
@pytest.mark.parametrize("predicts_before", [True, False])
def test_rows_with_new_levels_are_learned_from(step, predicts_before):
    new = {**NEW, "store": np.array(["z"] * 5 + ["a"] * 4)}
    more, y = {key: np.concatenate([ROWS[key], new[key]]) for key in ROWS}, np.concatenate([Y, np.full(9, 12.0)])
    expected = model().condition(more, y).predict(new)
    gp = given(standardize=False)
    if predicts_before:
        assert len(gp.predict(NEW).mean) == 9
    found = (gp.condition(more, y) if step == "condition" else gp.update(new, y[60:])).predict(new)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-8)
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-8)
    assert gp.num_observations == 69


def test_new_levels_of_a_term_with_a_value_for_each_need_a_fit():
    kernel = (k.Coregionalization("store", rank=2) * TREND).named("both")
    gp = rfgp.GP(kernel, seed=0).fit(ROWS, Y, max_iterations=3)
    assert gp.hyperparameters.loadings.shape == (3, 2)
    before = gp.predict(NEW).mean
    with pytest.raises(rfgp.InvalidArgumentError, match=r"loadings.*new ones.*Fit again"):
        gp.update({**NEW, "store": ["z"] * 9}, Y[:9])
    np.testing.assert_array_equal(gp.predict(NEW).mean, before)


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(256), rfgp.Vecchia(30)], ids=repr)
@pytest.mark.parametrize("count", [80, pytest.param(600, marks=pytest.mark.slow)])
def test_degrees_of_freedom_are_those_of_the_present_rows(approximation, count):
    rng = np.random.default_rng(0)
    first, later = np.sort(rng.uniform(0, 2, count)), np.sort(rng.uniform(5, 25, count))
    gp = rfgp.GP(k.RBF(0, lengthscale=1.0), approximation=approximation, start={"noise": 0.1}, seed=0)
    gp.condition(first[:, None], np.sin(first)).condition(later[:, None], np.sin(later))
    variance, noise = (getattr(gp.hyperparameters, name).item() for name in ("outputscale", "noise"))
    K = variance * np.exp(-((later[:, None] - later) ** 2) / 2)
    expected = np.trace(np.linalg.solve(K + noise * np.eye(count), K))
    assert gp.terms["rbf(0)"].degrees_of_freedom == pytest.approx(expected, rel=0.02 if count == 80 else 0.1)


def test_shares_of_terms_and_costs_of_features():
    gp = given(TREND + SPACE, rfgp.RandomFeatures(16))
    terms = gp.predict(ROWS).terms
    variances = {name: terms[name].mean.var() for name in gp.terms}
    for name, report in gp.terms.items():
        assert report.share == pytest.approx(variances[name] / sum(variances.values()), rel=1e-6)
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
    own = {"smooth": rfgp.RandomFeatures(7), "rough": rfgp.RandomFeatures(9)}
    kept = rfgp.GP(kernel, approximation=own, budget=200, seed=0).condition(rows, y)
    assert kept.terms["smooth"].approximation == rfgp.RandomFeatures(7)


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


def test_containers_give_the_same_model():
    expected = given().predict(NEW)
    frame = pd.DataFrame(ROWS).assign(store=lambda f: f.store.astype("category"))
    reordered = frame[[*reversed(frame.columns)]].assign(other=0.0)
    found = [
        model().condition(frame, Y).predict(pd.DataFrame(NEW)),
        model().condition(reordered, pd.Series(Y)).predict(NEW),
        model().condition(frame.assign(units=Y), "units").predict({key: list(NEW[key]) for key in NEW}),
    ]
    for one in found:
        np.testing.assert_allclose(one.mean, expected.mean, rtol=1e-12)
        np.testing.assert_allclose(one.std, expected.std, rtol=1e-10)


def test_arrays_are_read_by_number_and_tensors_give_tensors():
    rows, new = (np.column_stack([source["t"], source["p"]]) for source in (ROWS, NEW))
    named = rfgp.GP(k.RBF("t") + k.Linear("p"), seed=0).condition({"t": rows[:, 0], "p": rows[:, 1]}, Y)
    gp = rfgp.GP(k.RBF(0) + k.Linear(1), seed=0).condition(rows, Y)
    expected = named.predict({"t": new[:, 0], "p": new[:, 1]}).mean
    np.testing.assert_allclose(gp.predict(new).mean, expected, rtol=1e-12)
    tensor = gp.predict(torch.tensor(new)).mean
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_allclose(tensor, expected, rtol=1e-12)


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
    blocks = rfgp.tables.Batches([frame[:20], frame[20:45], frame[45:]], target="units")
    found, expected = make().condition(blocks).predict(frame), make().condition(frame, "units").predict(frame)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-8)
    for changed in (np.arange(15.0), pd.date_range("2020-01-01", periods=15), [None] * 15):
        later = frame[45:].assign(store=changed)
        with pytest.raises(rfgp.DataError, match="store"):
            make().condition(rfgp.tables.Batches([frame[:45], later], target="units"))


def test_predictions_are_differentiable_in_numbers():
    gp = given(TREND + SPACE)
    x = {name: torch.tensor(NEW[name]).requires_grad_() for name in ("t", "p", "q")}
    gp.predict(x).mean.sum().backward()
    shifted = [gp.predict({**NEW, "t": NEW["t"] + step}).mean for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(x["t"].grad, (shifted[0] - shifted[1]) / 2e-6, rtol=1e-5, atol=1e-7)
    slope = gp.predict(NEW, derivative="t")
    np.testing.assert_allclose(slope.mean, x["t"].grad, rtol=1e-6)


def test_several_outputs_share_the_kernel():
    kernel = TREND + STORE + k.Linear(("p", "q"), name="slope")
    gp = rfgp.GP(kernel, seed=0).fit(ROWS, np.column_stack([Y, 3 * (Y - 5)]), max_iterations=5)
    prediction = gp.predict(NEW)
    assert prediction.mean.shape == prediction.terms["store"].mean.shape == (9, 2)
    assert prediction.cross_covariance("trend", "store").shape == (9, 9, 2)
    slope = prediction.terms["slope"].mean
    np.testing.assert_allclose(slope[:, 1], 3 * slope[:, 0], rtol=1e-6)
    rest = prediction.mean - sum(term.mean for term in prediction.terms.values())
    np.testing.assert_allclose(rest, np.broadcast_to(rest[:1], (9, 2)))


# --- hyperparameters -------------------------------------------------------------------------------


def test_hyperparameters_are_read_and_set_in_the_units_of_the_user():
    gp = given(TREND + SPACE)
    h = gp.hyperparameters
    assert h["trend.lengthscale"].item() == pytest.approx(1.7)
    np.testing.assert_allclose(h["space.lengthscale"].detach(), (2.0, 0.6))
    assert h.noise.item() == pytest.approx(0.07)
    assert h.standardized("noise").item() == pytest.approx(0.07 / Y.var(ddof=1))
    assert h.standardized("trend.lengthscale").item() == pytest.approx(1.7 / ROWS["t"].std(ddof=1))
    assert h.standardized("mean").item() == pytest.approx((4.5 - Y.mean()) / Y.std(ddof=1))
    assert list(h) == list(h.names)
    assert "noise" in h
    assert {"noise", "raw", "set"} <= set(dir(h))
    assert "lengthscale" not in dir(h)  # two terms have one
    before = gp.predict(NEW).mean
    h["trend.lengthscale"] = 0.5
    h.noise = 0.2
    h.set(mean=4.0)
    assert "noise=0.2" in repr(h)
    assert not np.allclose(gp.predict(NEW).mean, before)
    start = {**START, "trend.lengthscale": 0.5, "noise": 0.2, "mean": 4.0}
    start = {path: value for path, value in start.items() if not path.startswith(("store", "slope"))}
    expected = given(TREND + SPACE, start=start)
    np.testing.assert_allclose(gp.predict(NEW).mean, expected.predict(NEW).mean, rtol=1e-10)
    h.noise.backward()
    assert h.raw["noise"].grad.item() == pytest.approx(0.2)  # d noise / d log noise


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"noise": -1.0}, "noise must be positive"),
        ({"noise": np.inf}, "noise must be positive"),
        ({"noise": 3.0, "mean": np.nan}, "mean must be"),
        ({"noise": 3.0, "trend.lengthscale": 0.0}, "positive"),
        ({"space.lengthscale": [1.0, 2.0, 3.0]}, r"shape \(\) or \(2,\)"),
        ({"noise": "much"}, "number"),
        ({"lengthscale": 1.0}, "lengthscale"),
        ({"nu": 1.0}, "nu"),
    ],
)
def test_a_refused_value_changes_nothing(values, words):
    gp = given(TREND + SPACE)
    with pytest.raises(rfgp.InvalidArgumentError, match=words):
        gp.hyperparameters.set(**values)
    assert gp.hyperparameters.noise.item() == pytest.approx(0.07)


@pytest.mark.parametrize(("ard", "shape"), [(True, (2,)), (False, (2,))])
def test_a_shared_lengthscale_round_trips_through_those_of_columns(ard, shape):
    gp = rfgp.GP(k.RBF(("t", "p"), ard=ard), seed=0).condition(ROWS, Y)
    found = gp.hyperparameters.lengthscale
    assert found.shape == shape
    gp.hyperparameters.set(lengthscale=2 * found)
    np.testing.assert_allclose(gp.hyperparameters.lengthscale.detach(), 2 * found.detach())
    if not ard:
        np.testing.assert_allclose(found.detach(), found[0].item() / ROWS["t"].std() * np.array(
            [ROWS["t"].std(), ROWS["p"].std()]))  # fmt: skip
        with pytest.raises(rfgp.InvalidArgumentError, match="all columns"):
            gp.hyperparameters.set(lengthscale=[1.0, 1.0])


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(64)], ids=repr)
def test_terms_on_the_same_columns_start_at_different_scales(approximation):
    X = np.random.default_rng(0).standard_normal((40, 2))
    kernel = k.RBF(name="smooth") + k.Matern(name="rough") + k.RBF(0, name="one")
    values = rfgp.GP(kernel, approximation=approximation, seed=0).condition(X, X[:, 0]).hyperparameters
    np.testing.assert_allclose(values["rough.lengthscale"].detach(), values["smooth.lengthscale"].detach() / 2)
    assert (values["rough.outputscale"] / values["smooth.outputscale"]).item() == pytest.approx(0.25)
    assert values["one.outputscale"].item() == pytest.approx(values["smooth.outputscale"].item())


def test_fixed_names_and_patterns_keep_their_starts():
    gp = model(TREND + SPACE).fit(ROWS, Y, fixed=("*.lengthscale", "noise"))
    assert gp.hyperparameters["trend.lengthscale"].item() == pytest.approx(1.7)
    np.testing.assert_allclose(gp.hyperparameters["space.lengthscale"].detach(), (2.0, 0.6))
    assert gp.hyperparameters.noise.item() == pytest.approx(0.07)
    assert gp.hyperparameters["trend.outputscale"].item() != pytest.approx(0.4, rel=1e-3)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("kernel", [k.RBF(), pytest.param("auto", marks=pytest.mark.slow)], ids=["given", "auto"])
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_a_zero_mean_is_not_learned(kernel, likelihood):
    X = np.linspace(0, 1, 30)[:, None]
    gp = rfgp.GP(kernel, likelihood, mean="zero", seed=0).fit(X, np.round(8 + 3 * np.sin(9 * X[:, 0])))
    assert gp.hyperparameters.mean.item() == pytest.approx(0, abs=1e-12)


def test_the_kernel_of_a_model_is_resolved_on_its_data():
    gp = given()
    names = [term.name for term in gp.kernel.terms()]
    assert names == ["trend", "space", "store", "slope"]
    assert gp.kernel.terms()[0].factors[0].lengthscale == pytest.approx((1.7,))
    again = rfgp.GP(gp.kernel, start=START, seed=0).condition(ROWS, Y)
    assert again.log_marginal_likelihood().item() == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-10)


# --- other approximations, copies and states -------------------------------------------------------


def test_approximations_are_exchanged_on_the_same_data():
    exact = given(approximation=rfgp.Exact())
    near, rough = (exact.with_approximation({"space": rfgp.RandomFeatures(m)}) for m in (512, 8))
    assert near.terms["space"].approximation == rfgp.RandomFeatures(512)
    assert near.terms["trend"].approximation == rfgp.Exact()
    np.testing.assert_allclose(near.predict(NEW).mean, exact.predict(NEW).mean, atol=0.05)
    np.testing.assert_array_equal(near.exact().predict(NEW).mean, exact.predict(NEW).mean)
    for part in (lambda gp: gp.predict(NEW), lambda gp: gp.predict(NEW).terms["space"].observed()):
        far, close = (rfgp.metrics.kl_divergence(part(exact), part(other)) for other in (rough, near))
        assert 0 < close < 0.3 * far


def test_a_fit_keeps_exchanged_approximations():
    X = np.linspace(0, 1, 30)[:, None]
    gp = rfgp.GP(k.RBF(name="f"), approximation=rfgp.RandomFeatures(8), seed=0).fit(X, np.sin(9 * X[:, 0]))
    assert gp.exact().fit(X, np.sin(9 * X[:, 0])).terms["f"].approximation == rfgp.Exact()
    assert gp.fit(X, np.sin(9 * X[:, 0])).terms["f"].approximation == rfgp.RandomFeatures(8)


STATES = {
    "exact": (lambda: rfgp.GP(k.RBF(), approximation=rfgp.Exact()), (ROWS["t"][:, None], Y)),
    "features": (lambda: rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(8), seed=0), (ROWS["t"][:, None], Y)),
    "more features than rows": (
        lambda: rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(64), seed=0),
        (ROWS["t"][:, None], Y),
    ),
    "nodes": (
        lambda: rfgp.GraphGP(graphs.Graph.from_grid((6, 6)), features="walks", num_walkers=8, seed=0),
        (np.arange(0, 36, 2), np.sin(np.arange(0, 36, 2) / 5)),
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_copies_are_whole_and_apart(name):
    make, (X, y) = STATES[name]
    gp = make().condition(X, y)
    gp.log_marginal_likelihood().backward()
    prediction = gp.predict(X)
    others = [copy.copy(gp), copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))]
    for other in others:
        np.testing.assert_array_equal(other.predict(X).mean, prediction.mean)
    again = pickle.loads(pickle.dumps(prediction))
    np.testing.assert_array_equal(again.std, prediction.std)
    gp.hyperparameters.raw["noise"].data.add_(2.0)  # in place
    assert np.abs(gp.predict(X).mean - prediction.mean).max() > 1e-3
    for other in others[1:]:
        np.testing.assert_array_equal(other.predict(X).mean, prediction.mean)
        other.condition(X[:5], y[:5])
    assert gp.num_observations == len(y)


def test_model_without_rows_predicts_and_names_what_it_lacks(tmp_path):
    make, (X, y) = STATES["features"]
    make().condition(X, y).save(tmp_path / "model", data=False)
    gp = rfgp.load(tmp_path / "model")
    assert np.isfinite(gp.predict(X).mean).all()
    for ask in (gp.log_marginal_likelihood, gp.leave_one_out, gp.exact):
        with pytest.raises(rfgp.NotFittedError, match="without data"):
            ask()
    np.testing.assert_allclose(gp.condition(X, y).predict(X).mean, make().condition(X, y).predict(X).mean)
    with pytest.warns(rfgp.DataSavedWarning):
        STATES["exact"][0]().condition(X, y).save(tmp_path / "exact")


def test_reprs_say_what_a_model_is():
    gp = rfgp.GP(TREND + STORE, "poisson", rfgp.RandomFeatures(8), mean="zero", seed=3, memory="1GB", budget=40)
    text = repr(gp)
    assert text.startswith("GP(kernel=")
    for part in ("likelihood=Poisson()", "mean='zero'", "seed=3", "budget=40", "not fitted"):
        assert part in text
    assert repr(rfgp.GP(seed=0)) == "GP(seed=0, not fitted)"
    fitted = given(TREND)
    assert repr(fitted).startswith("GP(60 observations, Hyperparameters(trend.lengthscale=[1.7]")
    with pytest.raises(rfgp.NotFittedError):
        rfgp.GP(seed=0).predict([[0.0]])


# --- refusals --------------------------------------------------------------------------------------

INVALID, DATA = rfgp.InvalidArgumentError, rfgp.DataError
PREDICTED = TREND + STORE


def far(approximation, dtype, distance):
    rows = np.column_stack([ROWS["t"], ROWS["p"]]).astype(dtype)
    gp = rfgp.GP(k.Periodic(0, period=2.0) + k.RBF(1), approximation=approximation, seed=0)
    gp.condition(rows, Y.astype(dtype))
    new = rows[:3].copy()
    new[1, 0] = 1e4
    assert np.isfinite(gp.predict(new).mean).all()
    new[1, 0] = distance
    return gp.predict(new)


def fit(kernel=TREND, y=Y, fixed=(), **options):
    return rfgp.GP(kernel, seed=0, **options).fit(ROWS, y, fixed=fixed)


MANY = {"x": np.arange(120.0), "s": [f"s{i // 2}" for i in range(120)]}
UNIFORM, EIGHT, MANY_FEATURES = (
    torch.distributions.Uniform(50.0, 60.0),
    rfgp.RandomFeatures(8),
    rfgp.RandomFeatures(10**8),
)
REFUSALS = {
    "a kernel's name": (lambda: rfgp.GP("rbf"), INVALID, "kernel must be a kernel"),
    "a likelihood": (lambda: rfgp.GP(TREND, "cauchy"), INVALID, "cauchy"),
    "an approximation": (lambda: rfgp.GP(TREND, approximation="nystrom"), INVALID, "approximation must be"),
    "one of a dict": (lambda: rfgp.GP(TREND, approximation={"trend": "exact"}), INVALID, "approximation of 'trend'"),
    "a mean": (lambda: rfgp.GP(TREND, mean="linear"), INVALID, "mean must be one of"),
    "a start": (lambda: rfgp.GP(TREND, start=[1.0]), INVALID, "start must be a dict"),
    "inference": (lambda: rfgp.GP(TREND, inference="laplace"), INVALID, "laplace"),
    "a budget": (lambda: rfgp.GP(TREND, budget=0), INVALID, "budget"),
    "memory": (lambda: rfgp.GP(TREND, memory=-1), INVALID, "memory must be"),
    "learned laplace": (lambda: rfgp.RandomFeatures(kind="laplace", learn_frequencies=True), INVALID, "learn_freq"),
    "a column": (lambda: fit(k.RBF("x")), DATA, "no column 'x'"),
    "text as numbers": (lambda: fit(k.RBF("store")), DATA, "'store'"),
    "numbers as levels": (lambda: fit(k.Group("p")), DATA, "'p'"),
    "many levels": (lambda: rfgp.GP(k.RBF()).fit(MANY, np.arange(120.0)), DATA, "60. Add k.Group"),
    "an unknown start": (lambda: fit(start={"nu": 1.0}), INVALID, "nu"),
    "an ambiguous start": (lambda: fit(TREND + SPACE, start={"lengthscale": 1.0}), INVALID, "lengthscale"),
    "a negative start": (lambda: fit(start={"lengthscale": -1.0}), INVALID, "positive"),
    "a start of outputs": (lambda: fit(y=np.stack([Y, Y], 1), start={"noise": [1.0] * 3}), INVALID, "noise must"),
    "an unknown prior": (lambda: fit(priors={"nu": None}), INVALID, "nu"),
    "a prior without density": (lambda: fit(priors={"noise": UNIFORM}), INVALID, "prior"),
    "an unknown fixed name": (lambda: fit(fixed=("nu",)), INVALID, "hyperparameter"),
    "negative iterations": (lambda: model(TREND).fit(ROWS, Y, max_iterations=-1), INVALID, "max_iterations"),
    "a scale of a line": (lambda: fit(2.0 * SLOPE), INVALID, "no output scale"),
    "an unknown term": (lambda: fit(approximation={"season": rfgp.Exact()}), INVALID, "no term 'season'"),
    "features of a line": (lambda: fit(SLOPE, approximation=EIGHT), INVALID, "finitely many"),
    "features of levels": (lambda: given(PREDICTED).with_approximation({"store": EIGHT}), INVALID, "finitely many"),
    "another term": (lambda: given(PREDICTED).with_approximation({"spacy": EIGHT}), INVALID, "no term 'spacy'"),
    "little memory": (lambda: fit(approximation=rfgp.Exact(), memory=1e4), INVALID, "'trend' takes"),
    "no memory": (lambda: fit(approximation=MANY_FEATURES), INVALID, "GiB"),
    "fewer targets": (lambda: fit(y=Y[:50]), DATA, "50"),
    "no rows": (lambda: rfgp.GP(k.RBF()).fit(np.empty((0, 2)), []), DATA, "at least"),
    "a missing target": (lambda: fit(y=np.where(np.arange(60) == 3, np.nan, Y)), DATA, "3"),
    "a missing column": (lambda: given(PREDICTED).predict({"t": [1.0]}), DATA, "store"),
    "a missing number": (lambda: given(PREDICTED).predict({"t": [np.nan], "store": ["a"]}), DATA, "'t'"),
    "no points": (lambda: given(TREND).predict({"t": []}), DATA, "at least one"),
    "another term's name": (lambda: given(PREDICTED).predict(NEW).of("trendy"), INVALID, "trend"),
    "no term's name": (lambda: given(PREDICTED).predict(NEW).of(), INVALID, ""),
    "a column of derivatives": (lambda: given(TREND).predict(NEW, derivative="u"), INVALID, "column"),
    "observed derivatives": (lambda: given(TREND).predict(NEW, derivative="t").observed(), INVALID, "observations"),
    "a rough derivative": (lambda: fit(k.Matern("t", nu=0.5)).predict(NEW, derivative="t"), INVALID, "derivative"),
    "derivatives of neighbors": (lambda: given(TREND, NEAR).predict(NEW, derivative="t"), INVALID, "features"),
    "rows far away": (lambda: far(rfgp.Exact(), np.float64, 1e200), DATA, r"row 1\. Check its unit"),
    "features far away": (lambda: far(rfgp.RandomFeatures(6), np.float32, 1e30), DATA, r"row 1\. Check its unit"),
    "neighbors far away": (lambda: far(NEAR, np.float64, 1e200), DATA, r"row 1\. Check its unit"),
}


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_is_refused(name):
    call, error, words = REFUSALS[name]
    with pytest.raises(error, match=words):
        call()


def test_a_refused_fit_leaves_a_model_unchanged():
    gp = rfgp.GP(k.RBF("x"), seed=0)
    with pytest.raises(DATA):
        gp.fit(ROWS, Y)
    assert "not fitted" in repr(gp)
    fitted = given(TREND)
    before = fitted.predict(NEW).mean
    for call in (fitted.fit, fitted.condition, fitted.update):
        with pytest.raises(DATA):
            call({"t": [np.nan, 1.0]}, [0.0, 1.0])
    np.testing.assert_array_equal(fitted.predict(NEW).mean, before)


# --- worked examples -------------------------------------------------------------------------------

BALL = trimesh.creation.icosphere(2)
ROADS = graphs.RoadNetwork.from_lines(
    [[(0, 0), (1, 0), (2, 0)], [(1, 1), (1, 0), (1, -1)], [(2, 0), (3, 0), (3, 1), (2, 0)]], metric="euclidean"
)


def sales(rng, n):
    X = {"t": rng.uniform(0, 4, n), "store": rng.choice(list("abcd"), n), "price": rng.uniform(1, 3, n)}
    effects = {"a": 1.0, "b": -0.5, "c": 0.2, "d": -0.7}
    parts = {
        "trend": 0.8 * X["t"] - 0.1 * X["t"] ** 2,
        "season": 0.7 * np.sin(2 * np.pi * X["t"]),
        "group(store)": np.vectorize(effects.get)(X["store"]),
        "matern(price)": np.cos(2 * X["price"]),
    }
    season = k.Periodic("t", period=1.0, name="season")
    return X, parts, k.RBF("t", name="trend") + season + k.Group("store") + k.Matern("price", nu=2.5)


def space(rng, n):
    X = {"lon": rng.uniform(0, 1, n), "lat": rng.uniform(0, 1, n)}
    X |= {"elevation": rng.normal(size=n), "age": rng.uniform(-1, 1, n)}
    parts = {
        "space": np.sin(4 * X["lon"]) * np.cos(3 * X["lat"]),
        ("linear(elevation, age)", "varying"): (0.5 + np.sin(2 * np.pi * X["lat"])) * X["elevation"] - 0.8 * X["age"],
    }
    varying = (k.Linear("elevation") * k.RBF(("lon", "lat"))).named("varying")
    return X, parts, k.Matern(("lon", "lat"), name="space") + k.Linear(("elevation", "age")) + varying


def roads(rng, n):
    X = {"road": rng.integers(0, 3, n), "fraction": rng.uniform(0, 1, n)}
    X |= {"hour": rng.uniform(0, 24, n), "sensor": rng.choice(list("abcdef"), n)}
    effects = dict(zip("abcdef", rng.normal(size=6), strict=True))
    parts = {
        "roads": np.sin(2 * X["fraction"] + X["road"]),
        "periodic(hour)": np.cos(2 * np.pi * X["hour"] / 24),
        "group(sensor)": np.vectorize(effects.get)(X["sensor"]),
    }
    return X, parts, k.Roads(ROADS) + k.Periodic("hour", period=24) + k.Group("sensor")


def surface(rng, n):
    places = BALL.vertices[rng.integers(0, len(BALL.vertices), n)]
    X = dict(zip("xyz", places.T, strict=True)) | {"pressure": rng.normal(size=n)}
    parts = {"mesh": np.sin(3 * X["x"]) + X["z"], "linear(pressure)": 0.6 * X["pressure"]}
    return X, parts, k.Mesh(BALL) + k.Linear("pressure")


def local(rng, n):
    X = {"u": rng.uniform(0, 1, n), "v": rng.uniform(0, 1, n)}
    parts = {"smooth": np.sin(3 * X["u"]) + X["v"], "local": 0.3 * np.sin(40 * X["u"]) * np.sin(30 * X["v"])}
    return X, parts, k.RBF(name="smooth") + k.Matern(nu=1.5, name="local")


EXAMPLES = {
    "sales": (sales, "auto"),
    "space": (space, "auto"),
    "roads": (roads, "auto"),
    "surface": (surface, "auto"),
    "local": (local, {"smooth": rfgp.RandomFeatures(32), "local": rfgp.Vecchia(30, condition_on="responses")}),
}


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "sales")) for name in EXAMPLES]
)
def test_terms_of_worked_examples_are_found(name):
    make, approximation = EXAMPLES[name]
    rng, count = np.random.default_rng(8), 250 if name == "sales" else 500
    X, parts, kernel = make(rng, count)
    y = 3 + sum(parts.values()) + 0.1 * rng.normal(size=count)
    gp = rfgp.GP(kernel, approximation=approximation, seed=0).fit(pd.DataFrame(X).assign(units=y), "units")
    prediction = gp.predict(X)
    assert np.std(prediction.mean - y) < 0.15
    assert gp.fit_report.converged
    for term, truth in parts.items():
        names = [term] if isinstance(term, str) else term  # a coefficient that varies has a constant of its own
        found = prediction.of(*names).centered()
        error = found.mean - (truth - truth.mean())
        assert np.std(error) < (0.6 if term == "local" else 0.3) * np.std(truth), term
        assert name != "sales" or np.abs(error / found.std).max() < 6, term  # strongly dependent values
    known = prediction.of(*prediction.terms)
    np.testing.assert_allclose(known.mean + gp.hyperparameters.mean.item(), prediction.mean, atol=1e-8)


def test_likelihood_with_terms_of_three_kinds():
    rng = np.random.default_rng(3)
    X = {"a": rng.uniform(0, 6, 300), "b": rng.normal(size=300), "site": rng.choice(list("pqr"), 300)}
    f = 2 * np.sin(X["a"]) + X["b"] + (X["site"] == "p")
    y = rng.uniform(size=300) < 1 / (1 + np.exp(-f))
    gp = rfgp.GP(k.RBF("a") + k.Linear("b") + k.Group("site"), likelihood="bernoulli", seed=0).fit(X, y)
    assert np.corrcoef(gp.predict(X).mean, f)[0, 1] > 0.93
    assert np.corrcoef(gp.predict(X).terms["linear(b)"].mean, X["b"])[0, 1] > 0.99
