"""Models whose kernel is selected, on tables with text, categories, booleans and dates."""

import copy

import numpy as np
import pandas as pd
import pytest

import rfgp
from rfgp import columns
from rfgp import kernels as k

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
NOISE = 0.05
EFFECTS = {"north": 0.0, "south": 1.0, "west": -0.8}


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.uniform(-1, 1, n),
            "store": rng.choice(list(EFFECTS), n),
            "size": pd.Categorical(rng.choice(["s", "l"], n), categories=["s", "l"], ordered=True),
            "open": rng.uniform(size=n) < 0.5,
            "day": pd.date_range("2026-01-01", periods=n),
        }
    )
    effect = frame["store"].map(EFFECTS) + 0.5 * (frame["size"] == "l") + 0.3 * frame["open"]
    frame["units"] = np.sin(2 * frame["x"]) + effect + NOISE * rng.standard_normal(n)
    return frame


@pytest.fixture(scope="module")
def fitted():
    return rfgp.GP(seed=0).fit(table(), "units")


def test_text_categories_and_truth_values_are_inputs(fitted):
    new = table(100, seed=1)
    error = np.sqrt(np.mean((fitted.predict(new).mean - new["units"]) ** 2))
    assert error < 3 * NOISE
    assert [column.key for column in fitted.spec.schema.columns] == [
        *("x", "store=north", "store=south", "store=west", "size=s", "size=l", "open", "day")
    ]


def test_columns_go_by_name_in_dicts_and_other_orders(fitted):
    new = table(5, seed=2)
    expected = fitted.predict(new).mean
    np.testing.assert_array_equal(fitted.predict(new[new.columns[::-1]]).mean, expected)
    np.testing.assert_allclose(fitted.predict(dict(new.items())).mean, expected, rtol=1e-12)


def test_selection_equals_that_of_indicator_columns(fitted):
    coded = table()
    for name in EFFECTS:
        coded[f"store={name}"] = (coded["store"] == name).astype(float)
    for name in ("s", "l"):
        coded[f"size={name}"] = (coded["size"] == name).astype(float)
    coded["open"] = coded["open"].astype(float)
    keys = [column.key for column in fitted.spec.schema.columns]
    twin = rfgp.GP(seed=0).fit(coded[keys], coded["units"])
    assert twin.selection.parts == pytest.approx(fitted.selection.parts)
    np.testing.assert_allclose(twin.log_marginal_likelihood().item(), fitted.log_marginal_likelihood().item())


@pytest.mark.filterwarnings("ignore::rfgp.NewLevelWarning")
def test_new_levels_are_none_of_the_known_ones(fitted):
    new = table(3, seed=3)
    new["store"] = "east"
    zeros = columns.indicators.with_indicators(columns.Table.of(new), fitted.spec.options.indicators)
    assert not any(np.any(zeros.columns[f"store={name}"]) for name in EFFECTS)
    assert np.all(fitted.predict(new).std > fitted.predict(table(3, seed=3)).std)


def test_saved_models_read_the_same_columns(fitted, tmp_path):
    file = tmp_path / "model.safetensors"
    fitted.save(file, data=True)
    new = table(5, seed=4)
    loaded = rfgp.load(file)
    np.testing.assert_array_equal(loaded.predict(new).mean, fitted.predict(new).mean)
    more = loaded.update(new.drop(columns="units"), new["units"])
    assert more.num_observations == 155


@pytest.mark.parametrize("kind", ["parquet", "csv", "batches"])
def test_sources_read_levels_as_a_dataframe_does(kind, tmp_path):
    """The levels of a source are known after a pass over all of its rows: "west" comes in the last ones only."""
    frame = table(400)
    frame = frame[["x", "store", *(["open"] if kind != "csv" else []), "units"]]
    frame = frame.iloc[np.argsort(frame["store"] == "west", kind="stable")]
    if kind == "parquet":
        frame.to_parquet(tmp_path / "rows", row_group_size=50, index=False)
        source = rfgp.tables.Parquet(tmp_path / "rows", target="units")
    elif kind == "csv":
        frame.to_csv(tmp_path / "rows.csv", index=False)
        source = rfgp.tables.CSV(tmp_path / "rows.csv", target="units")
    else:
        source = rfgp.tables.Batches([frame[:100], frame[100:300], frame[300:]], target="units")
    gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(16), start={"lengthscale": 1.0}, seed=0)
    other = copy.deepcopy(gp).condition(frame, "units")
    gp.condition(source)
    assert dict(gp.spec.options.indicators) == dict(other.spec.options.indicators)
    new = table(5, seed=4)
    np.testing.assert_allclose(gp.predict(new).mean, other.predict(new).mean, rtol=1e-8)


def small(kernel=None):
    return rfgp.GP(kernel or k.RBF(), approximation=rfgp.RandomFeatures(8), start={"lengthscale": 1.0}, seed=0)


def test_truth_values_of_sources_are_levels_and_numbers():
    frame = table(60)[["x", "open", "units"]]
    kernel = k.RBF() + k.Group("open")
    gp = rfgp.GP(kernel, approximation={"rbf": rfgp.RandomFeatures(8)}, start={"lengthscale": 1.0}, seed=0)
    other = copy.deepcopy(gp).condition(frame, "units")
    gp.condition(rfgp.tables.Batches([frame[:20], frame[20:]], target="units"))
    np.testing.assert_allclose(gp.predict(frame[:5]).mean, other.predict(frame[:5]).mean, rtol=1e-8)


LATER = {
    "truth values, then text": ([True, False], ["a", "b"], "one type in all blocks"),
    "text, then truth values": (["a", "b"], [True, False], "one type in all blocks"),
    "text, then numbers": (["a", "b"], [1.5, 2.5], "must hold text or truth values in all blocks"),
    "text, then dates": (["a", "b"], list(pd.to_datetime(["2020-01-01", "2020-01-02"])), "in all blocks"),
    "text, then lists": (["a", "b"], [[1], [2]], "in all blocks"),
    "text, then gaps": (["a", "b"], [None, None], "2 missing cells"),
    "integers, then text": (pd.Categorical([1, 2]), ["a", "b"], "got integers and text"),
}


@pytest.mark.parametrize("name", LATER)
def test_other_types_in_later_blocks_of_a_source_are_named(name):
    first, second, message = LATER[name]
    blocks = [pd.DataFrame({"x": [0.0, 1.0], "b": values, "y": [1.0, 2.0]}) for values in (first, second)]
    with pytest.raises(rfgp.DataError, match=message):
        small().condition(rfgp.tables.Batches(blocks, target="y"))


def test_too_many_levels_of_a_source_are_named(monkeypatch):
    monkeypatch.setattr(columns.indicators, "MAX_COUNTED_LEVELS", 9)
    frame = pd.DataFrame({"x": np.arange(40.0), "b": [f"s{i // 2}" for i in range(40)], "y": np.arange(40.0)})
    with pytest.raises(rfgp.DataError, match="more than 9 levels, like an identifier"):
        small().condition(rfgp.tables.Batches([frame[:20], frame[20:]], target="y"))


def test_categories_that_are_numbers_are_read_as_numbers():
    frame = pd.DataFrame({"b": pd.Categorical([1.2, 1.7] * 20), "y": np.arange(40.0)})
    gp, other = small().condition(frame, "y"), small().condition(frame.astype({"b": float}), "y")
    np.testing.assert_array_equal(gp.predict(frame[:2]).mean, other.predict(frame[:2]).mean)


def test_text_for_a_column_of_truth_values_is_refused():
    gp = small().condition(table(40)[["x", "open", "units"]], "units")
    with pytest.raises(rfgp.DataError, match="'open' must hold truth values, got text"):
        gp.predict(pd.DataFrame({"x": [0.0], "open": ["a"]}))


def test_indicators_with_the_same_name_are_refused():
    frame = pd.DataFrame({"a": ["b=c", "z"] * 10, "a=b": ["c", "d"] * 10, "y": np.arange(20.0)})
    with pytest.raises(rfgp.DataError, match="Rename it"):
        small().condition(frame, "y")


def with_missing(frame):
    return frame.assign(store=frame["store"].where(frame["store"] != "west"))


def with_many(frame):
    return frame.assign(store=[f"s{i}" for i in range(len(frame))])


def with_clash(frame):
    return frame.assign(**{"store=north": 1.0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_missing, "missing cell"),
        (with_many, "like an identifier. Drop it"),
        (lambda frame: frame.assign(day=frame["day"].astype(str)), "dates as text, such as '2026-01-01"),
        (with_clash, "Rename it"),
    ],
)
def test_bad_columns_are_named(change, message):
    with pytest.raises(rfgp.DataError, match=message):
        rfgp.GP(seed=0).fit(change(table()), "units")


def with_stores(n, num_levels, seed):
    """Return rows whose stores have effects of deviation 1, and the noiseless function."""
    rng, effects = np.random.default_rng(seed), np.random.default_rng(7).normal(size=num_levels)
    x, store = rng.uniform(-2, 2, n), rng.integers(0, num_levels, n)
    f = np.sin(2 * x) + effects[store]
    frame = pd.DataFrame({"x": x, "store": [f"s{i}" for i in store], "y": f + 0.1 * rng.normal(size=n)})
    return frame, f


@pytest.mark.parametrize(
    ("n", "num_levels", "approximation"),
    [
        (300, 60, "auto"),
        pytest.param(700, 70, "auto", marks=pytest.mark.slow),
        (300, 60, rfgp.Exact()),
        (300, 60, rfgp.RandomFeatures(32)),
    ],
    ids=["exact", "equispaced", "given-exact", "given-frequencies"],
)
def test_columns_of_many_levels_are_effects_in_all_candidates(n, num_levels, approximation, limits):
    limits(few_rows=500)
    rows, f = with_stores(n, num_levels, seed=0)
    gp = rfgp.GP(approximation=approximation, seed=0, time_limit=60).fit(rows, "y")
    new, f = with_stores(500, num_levels, seed=1)
    found = gp.predict(new.drop(columns="y"))
    assert np.sqrt(np.mean((found.mean - f) ** 2)) < 0.1
    assert np.mean(np.abs(found.mean - f) < 2 * found.std) > 0.9
    assert all("Group" in trial.name for trial in gp.selection.trials)
    assert gp.predict(pd.DataFrame({"x": [0.0], "store": ["elsewhere"]})).std[0] > 0.7


def test_given_kernels_name_columns_of_many_levels():
    with pytest.raises(rfgp.DataError, match=r"50 levels to be read as indicators, got 58. Add k.Group\('store'\)"):
        rfgp.GP(k.RBF(), seed=0).fit(with_stores(300, 60, seed=0)[0], "y")


def test_faults_of_all_columns_come_together():
    bad = with_many(table()).assign(day=lambda frame: frame["day"].astype(str))
    bad.loc[3, "x"] = np.nan
    with pytest.raises(
        rfgp.DataError, match=r"(?s)'store' has 150 different texts.*'day' holds dates.*'x' has 1 missing value"
    ):
        rfgp.GP(seed=0).fit(bad, "units")


def test_predictions_name_missing_columns_and_cells(fitted):
    new = table(4, seed=5)
    with pytest.raises(rfgp.DataError, match="store"):
        fitted.predict(new.drop(columns="store"))
    with pytest.raises(rfgp.DataError, match="missing cell"):
        fitted.predict(new.assign(store=None))


def test_kernels_without_columns_read_levels_as_selections_do():
    rows = table()[["x", "store", "open", "units"]]
    whole = rfgp.GP(k.RBF(), seed=0).condition(rows, "units")
    assert [column.key for column in whole.spec.schema.columns] == [
        *("x", "store=north", "store=south", "store=west", "open")
    ]
    gp = rfgp.GP(k.RBF() + k.Group("store"), seed=0).condition(rows, "units")
    assert gp.kernel.terms()[0].factors[0].columns == ("x", "open")
    assert gp.predict(rows[:2].assign(store="east")).terms["group(store)"].std.min() > 0


def test_numbers_are_read_as_the_texts_of_levels():
    rows = table()[["x", "units"]].assign(zip=["1", "2", "3"] * 50)
    gp = rfgp.GP(k.RBF(), seed=0).condition(rows, "units")
    expected = gp.predict(rows).mean
    np.testing.assert_array_equal(gp.predict(rows.assign(zip=rows["zip"].astype(int))).mean, expected)


def test_missing_cells_have_a_level_if_the_training_data_do():
    rows = table()[["x", "store", "units"]]
    gp = rfgp.GP(k.RBF(), seed=0).condition(rows.assign(store=rows["store"].replace("west", "(missing)")), "units")
    new = rows[:5].assign(store=None)
    np.testing.assert_array_equal(gp.predict(new).mean, gp.predict(new.assign(store="(missing)")).mean)
