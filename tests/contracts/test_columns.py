"""Columns of every type in every container are read alike, or refused with their row and a remedy."""

import datetime
import itertools
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphs
import rfgp
from rfgp import kernels as k
from tests.support.refusals import refused

DAY, NOON = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12)
DAYS = 19782.5
"""The days from 1970 to noon."""
LINE = graphs.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])


class Read(k.Kernel):
    """A kernel whose matrix has the numbers that a kernel of numbers is given, in its rows."""

    def covariance(self, a, b, values):
        return b[:, 0].expand(len(a), len(b))


class Codes(k.Group):
    """The same for a kernel of levels."""

    covariance = Read.covariance


class Places(k.Nodes):
    """The same for a kernel of nodes."""

    covariance = Read.covariance


def places(key):
    return Places(LINE, column=key)


def read(kernel, train, new=None):
    """Return the numbers (n,) of a column of new rows, or of the training rows, by what the training rows define."""
    return kernel.matrix(train, train if new is None else new)[0]


def single(column, kernel=Read, new=None):
    """Return the numbers of one column without a table."""
    return read(kernel("c"), {"c": column}, None if new is None else {"c": new}).tolist()


def structured(columns):
    arrays = {key: np.asarray(column) for key, column in columns.items()}
    table = np.empty(len(next(iter(arrays.values()))), [(key, column.dtype) for key, column in arrays.items()])
    for key, column in arrays.items():
        table[key] = column
    return table


def in_chunks(columns):
    whole = pa.table(columns)
    return pa.concat_tables([whole.slice(0, 1), whole.slice(1)])


CONTAINERS = {
    "lists": dict,
    "arrays": lambda columns: {key: np.asarray(column) for key, column in columns.items()},
    "arrays of objects": lambda columns: {key: np.fromiter(column, dtype=object) for key, column in columns.items()},
    "structured array": structured,
    "tensors": lambda columns: {key: torch.as_tensor(column) for key, column in columns.items()},
    "pandas": pd.DataFrame,
    "pandas of objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "pandas with NA": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas with Arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "Arrow": pa.table,
    "Arrow in chunks": in_chunks,
}
COLUMNS = {
    "numbers": (Read, [0.5, 1.5, 2.5, 1.5], [0.5, 1.5, 2.5, 1.5]),
    "integers": (Read, [30, 7, 30, 12], [30, 7, 30, 12]),
    "booleans": (Read, [True, False, True, True], [1, 0, 1, 1]),
    "integers as levels": (Codes, [30, 7, 30, 12], [2, 0, 2, 1]),
    "booleans as levels": (Codes, [True, False, True, True], [1, 0, 1, 1]),
    "text": (Codes, ["south", "north", "east", "north"], [2, 1, 0, 1]),
    "nodes": (places, ["d", "b", "a", "b"], [3, 1, 0, 1]),
    "dates": (Read, [DAY + datetime.timedelta(day) for day in (0, 1, 366, -59)], [0, 1, 366, -59]),
    "times": (Read, [NOON + datetime.timedelta(hours=hours) for hours in (0, 6, -18, 24)], [0, 0.25, -0.75, 1]),
    "durations": (Read, [datetime.timedelta(hours=hours) for hours in (36, 0, -6, 24)], [1.5, 0, -0.25, 1]),
}
"""A kernel of one column, cells, and what it is given."""
CAN_BE_MISSING = ("numbers", "integers", "text", "dates", "times", "durations")
CASES = [
    (container, name)
    for container, name in itertools.product(CONTAINERS, COLUMNS)
    if container != "tensors" or name in ("numbers", "integers", "booleans")
]


@pytest.mark.parametrize(("container", "name"), CASES)
def test_containers_are_read_alike(container, name):
    kernel, cells, expected = COLUMNS[name]
    make, key = CONTAINERS[container], "c"
    other = [1.0, 2.0, 3.0, 4.0]
    table, plain = make({"other": other, key: cells}), {key: cells, "more": other}
    assert read(kernel(key), table).tolist() == pytest.approx(expected, abs=1e-9)
    assert read(kernel(key), plain, table).tolist() == pytest.approx(expected, abs=1e-9)
    assert read(kernel(key), table, plain).tolist() == pytest.approx(expected, abs=1e-9)
    if name in CAN_BE_MISSING and container not in ("tensors", "arrays", "structured array"):
        gap = make({"other": other, key: [*cells[:2], None, cells[3]]})
        assert "'c'" in refused(lambda: read(kernel(key), gap), rfgp.DataError, "1 missing value, the first in row 2")


CELLS = {
    "dates and times": (Read, [NOON, DAY], [DAYS, DAYS - 0.5]),
    **{unit: (Read, np.array([NOON], f"M8[{unit}]"), [DAYS]) for unit in ("h", "m", "s", "ms", "us", "ns", "3h")},
    "days": (Read, np.array([NOON], "M8[D]"), [DAYS - 0.5]),
    "months": (Read, np.array(["2024-02"], "M8[M]"), [DAYS - 28.5]),
    "before 1970": (Read, np.array(["1969-12-31T06:00"], "M8[s]"), [-0.75]),
    "year 1": (Read, [datetime.date(1, 1, 1)], [-719162]),
    "booleans and numbers": (Read, [True, 2], [1, 2]),
    "backwards": (Read, np.array([1.0, 2.0])[::-1], [2, 1]),
    "decimals": (Read, [Decimal("1.25"), 2], [1.25, 2]),
    "floats as levels": (Codes, [3.0, 1.0, 3.0], [1, 0, 1]),
    "ordered": (Codes, pd.Categorical(["low", "high", "low"], ["low", "mid", "high"]), [0, 1, 0]),
    "order of polars": (Codes, pl.Series(["low", "high"], dtype=pl.Enum(["low", "mid", "high"])), [0, 1]),
    "repeated words": (
        Codes,
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(["a", "b", "a"])),
        [0, 1, 0, 0],
    ),
    "ISO dates as text": (
        Read,
        ["2024-01-02", "2024-01-01T06:00 ", "2024-01-01 00:00:30"],
        [0.0, -0.75, -1 + 30 / 86400],
    ),
    "text in chunks": (Codes, pd.concat([pd.Series(["b", "a"]), pd.Series(["b"])]), [1, 0, 1]),
    "labels of nodes": (places, pd.Series(["d", "a"], dtype="category"), [3, 0]),
}


@pytest.mark.parametrize(("kernel", "column", "expected"), CELLS.values(), ids=CELLS)
def test_cells_of_other_types_are_read(kernel, column, expected):
    """Dates count from the first training row, so those of 1970 make them absolute."""
    first = np.array(["1970-01-01"], "M8[D]") if np.abs(expected[0]) > 1000 or expected == [-0.75] else column
    assert single(first, kernel, column) == pytest.approx(expected, abs=1e-9)


def test_new_levels_are_numbered_by_appearance():
    rng = np.random.default_rng(0)
    train, new = rng.integers(0, 30, 200), rng.integers(0, 60, 300)
    levels = sorted({*train.tolist()})
    levels += [level for level in dict.fromkeys(new.tolist()) if level not in levels]
    for column in (new, new.astype(object), new.astype(float), pd.Categorical(new)):
        assert single(train, Codes, column) == [levels.index(level) for level in new]
    texts = [*map(str, new)]
    assert single(["7", "31"], Codes, pd.Categorical(texts)) == single(["7", "31"], Codes, texts)


HOURS = pd.date_range("2024-03-30", periods=72, freq="h", tz="Europe/Berlin")
"""Hours around the change of clocks in spring, when an hour of the clock is skipped."""
AWARE = {
    "pandas": HOURS.to_series(),
    "an index": HOURS,
    "Timestamps": list(HOURS),
    "datetimes": [time.to_pydatetime() for time in HOURS],
    "polars": pl.Series(HOURS.tz_convert("UTC").tz_localize(None))
    .dt.replace_time_zone("UTC")
    .dt.convert_time_zone("Europe/Berlin"),
    "Arrow": pa.array(HOURS),
    "pandas with Arrow": pd.Series(pa.array(HOURS), dtype=pd.ArrowDtype(pa.timestamp("us", "Europe/Berlin"))),
    "categories": HOURS.to_series().astype("category"),
    "offsets": [time.to_pydatetime().astimezone(datetime.timezone(time.utcoffset())) for time in HOURS],
    "texts": [time.isoformat(sep=" ") for time in HOURS],
}


@pytest.mark.parametrize("name", AWARE)
def test_zones_are_read_on_the_local_clock(name):
    clock = HOURS.tz_localize(None)
    expected = pytest.approx(((clock - clock[0]) / pd.Timedelta(days=1)).tolist(), abs=1e-9)
    assert single(AWARE[name]) == expected
    assert single(HOURS, new=AWARE[name]) == expected
    if name not in ("offsets", "texts"):
        assert single(AWARE[name], new=HOURS.tz_convert("Asia/Tokyo")) == expected


@pytest.mark.parametrize(("unit", "step"), [("s", 1), ("us", 20), ("ns", 100), ("ps", 1)])
def test_fast_ticks_are_exact(unit, step):
    start = np.datetime64("1970-01-05T23:59:59.999999" if unit == "ps" else "2024-05-01T23:59:59.999999")
    times = start.astype(f"M8[{unit}]") + step * np.arange(-40, 40).astype(f"m8[{unit}]")
    per_day = 86_400 * 1000 ** ["s", "ms", "us", "ns", "ps"].index(unit)
    found, nanoseconds = single(times), times.astype("M8[ns]")
    np.testing.assert_allclose(np.diff(found) * per_day / step, 1, rtol=1e-12)
    if unit != "ps":
        np.testing.assert_allclose(single(times, new=nanoseconds), found, rtol=0, atol=1e-15)


@pytest.mark.parametrize("first", [2**60, -(2**60), 2**63 + 5, 2**53 + 1])
def test_large_integers_keep_their_differences(first):
    numbers = [first + i for i in range(5)]
    for column in (numbers, np.array(numbers), *([torch.tensor(numbers)] if abs(first) < 2**63 else [])):
        assert single(column) == [0, 1, 2, 3, 4]
        assert single(column, new=[first + 2**20]) == [2**20]
    assert single(numbers, new=[float(first)]) == [int(float(first)) - first]


ARRAYS = {
    "numpy": np.arange(6.0).reshape(3, 2),
    "torch": torch.arange(6.0).reshape(3, 2).double(),
    "rows": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]],
    "tuples": [(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)],
    "list of arrays": list(np.arange(6.0).reshape(3, 2)),
    "matrix": np.arange(6.0).reshape(3, 2).view(np.matrix),
    "frame": pd.DataFrame(np.arange(6.0).reshape(3, 2)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_columns_of_arrays_are_numbered(name):
    assert read(Read(1), ARRAYS[name]).tolist() == [1, 3, 5]
    for key in ("t", 2, -1):
        with pytest.raises(rfgp.RfgpError, match="column"):
            read(Read(key), ARRAYS[name])
    assert read(Codes(0), [["a", 1.5], ["b", 2]]).tolist() == [0, 1]  # each column keeps its type


def test_a_sequence_of_labels_is_one_column():
    for labels in (["b", "a"], np.array(["b", "a"]), pd.Series(["b", "a"]), pd.Index(["b", "a"])):
        assert [read(kernel, labels).tolist() for kernel in (places("node"), Codes(0))] == [[1, 0], [1, 0]]
    grid = graphs.Graph.from_grid((3, 3))
    for labels in ([(0, 1), (2, 2)], {"node": [(0, 1), (2, 2)]}, pd.DataFrame({"node": [(0, 1), (2, 2)]})):
        assert read(Places(grid, column="node"), labels).tolist() == [1, 8]


def test_tensors_keep_their_gradient():
    t = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(read(Read("t"), {"t": t, "store": ["a", "b"]}).square().sum(), t)
    assert gradient.tolist() == [1, 3]
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(read(Read(2), x).sum(), x)
    assert gradient.tolist() == [[0, 0, 1]] * 4


CELL = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.dates(), st.datetimes(),
    st.timedeltas(), st.complex_numbers(), st.binary(max_size=3), st.tuples(st.integers()), st.decimals(),
    st.fractions(),
)  # fmt: skip
KINDS = (st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.dates())


@pytest.mark.slow
@given(st.one_of(st.lists(CELL, max_size=5), *(st.lists(kind, max_size=5) for kind in KINDS)), st.booleans())
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_any_list_is_read_or_refused(column, is_level):
    try:
        found = single(column, Codes if is_level else Read)
    except rfgp.DataError:
        return
    if is_level:
        levels = sorted({*column})
        assert found == [levels.index(cell) for cell in column]
    elif all(isinstance(cell, int | float) for cell in column):
        first = column[0] if max(map(abs, column)) > 2**53 and all(type(cell) is int for cell in column) else 0
        assert found == [float(cell - first) for cell in column]


# --- models -------------------------------------------------------------------------------------------

N = 40
DATES = pd.date_range("2024-01-01", periods=N, name="date")
Y = np.sin(np.arange(N) / 5)
SERIES = pd.DataFrame({"y": Y, "z": -Y}, index=DATES)


def model(kernel, **options):
    return rfgp.GP(kernel, approximation=rfgp.Exact(), seed=0, **options)


def conditioned(kernel, X, y):
    return model(kernel).condition(X, y)


BY_DATE = conditioned(k.RBF("date"), {"date": DATES}, Y).predict({"date": DATES}).mean


def test_predictions_return_to_the_container_and_dtype():
    X, single = np.arange(8.0).reshape(4, 2), np.arange(4, dtype=np.float32)
    cases = [
        (X.astype(np.float32), np.ndarray, np.float32),
        (torch.tensor(X).float(), torch.Tensor, torch.float32),
        (X.astype(int), np.ndarray, np.float64),
        (pd.DataFrame({"a": single, "b": X[:, 1]}), np.ndarray, np.float64),
        ({"a": torch.tensor(single)}, torch.Tensor, torch.float32),
    ]
    for given_rows, container, dtype in cases:
        mean = conditioned(k.RBF(), given_rows, [0, 1, 3, 2]).predict(given_rows).mean
        assert (type(mean), mean.dtype) == (container, dtype)
    mixed = {"a": torch.tensor(single), "s": [*"abab"]}
    gp = conditioned(k.RBF("a") + k.Group("s"), mixed, torch.arange(4.0).double())
    assert gp.predict(mixed).mean.dtype == torch.float64


def test_a_model_keeps_no_array_of_the_user():
    for X in (np.arange(6.0)[:, None], torch.arange(6.0)[:, None].double()):
        gp, other = (conditioned(k.RBF(), X, np.arange(6.0) ** 2) for _ in range(2))
        expected = other.predict([[2.5]]).mean
        X[:] = 7
        assert gp.predict([[2.5]]).mean == pytest.approx(expected)


@pytest.mark.parametrize("container", ["structured array", "pandas", "polars", "Arrow"])
def test_targets_are_columns_by_name(container):
    table = CONTAINERS[container]({"a": np.arange(float(N)), "u": Y, "v": -2 * Y})
    plain = {"a": np.arange(float(N))}
    for target, y in (("u", Y), (["u", "v"], np.c_[Y, -2 * Y])):
        mean = conditioned(k.RBF("a"), table, target).predict(table).mean
        np.testing.assert_allclose(mean, conditioned(k.RBF("a"), plain, y).predict(plain).mean)
    found, expected = (conditioned(kernel, table, "u").predict(table).mean for kernel in (k.RBF(), k.RBF(("a", "v"))))
    np.testing.assert_allclose(found, expected)


def test_integer_names_are_targets():
    frame = pd.DataFrame({0: Y, 2: np.arange(float(N))})
    mean = conditioned(k.RBF(2), frame, 0).predict(frame).mean
    np.testing.assert_allclose(mean, conditioned(k.RBF("a"), {"a": frame[2]}, Y).predict({"a": frame[2]}).mean)


INDICES = {
    "by name": (SERIES[["y"]], "date"),
    "without a name": (SERIES[["y"]].rename_axis(index=None), "index"),
    "of two levels": (SERIES[["y"]].set_index(np.arange(N) % 2, append=True), "date"),
}


@pytest.mark.parametrize(("frame", "name"), INDICES.values(), ids=INDICES)
def test_terms_read_an_index_by_name(frame, name):
    gp = conditioned(k.RBF(name), frame, "y")
    for new in (frame, frame[[]]):
        np.testing.assert_allclose(gp.predict(new).mean, BY_DATE, atol=1e-8)
    refused(lambda: conditioned(k.RBF("day"), SERIES, "y"), rfgp.DataError, "index")
    found, wanted = (conditioned(kernel, SERIES, "y").predict(SERIES).mean for kernel in (k.RBF(), k.RBF("z")))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dates", [DATES, DATES.to_series(), DATES.to_numpy(), DATES.tz_localize("Europe/Berlin")])
def test_dates_are_inputs_of_one_column(dates):
    np.testing.assert_allclose(conditioned(k.RBF(), dates, Y).predict(dates).mean, BY_DATE, atol=1e-8)


def test_models_of_all_kinds_of_columns_are_updated_and_saved(tmp_path):
    """A loaded model reads levels, nodes and other time zones as the model did."""
    kernel = k.RBF("t") + k.Group("s") + k.Group("on") + k.Nodes(LINE, column="n")
    table = pd.DataFrame({"t": HOURS[:N], "s": [*"bca"] * 13 + ["a"], "on": np.arange(N) % 3 == 0, "n": [*"abcd"] * 10})
    table["y"] = Y
    gp = conditioned(kernel, table[:30], "y").update(table[30:], "y")
    gp.save(tmp_path / "m.safetensors", data=True)
    tokyo = table.assign(t=table.t.dt.tz_convert("Asia/Tokyo"), s=table.s.astype("category"))[[*table][::-1]]
    naive, expected = table.assign(t=table.t.dt.tz_localize(None)), gp.predict(table).mean
    for one in (gp, rfgp.load(tmp_path / "m.safetensors")):
        for new in (table, tokyo, pl.DataFrame(table)):
            np.testing.assert_allclose(one.predict(new).mean, expected, rtol=1e-9, atol=1e-9)
        for call in (one.predict, lambda X, one=one: one.update(X, "y")):
            refused(lambda call=call: call(naive), rfgp.DataError, "time zone")


# --- refusals -----------------------------------------------------------------------------------------


class Odd:
    """An object that cannot be compared, hashed or shown."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("broken on purpose")

    def __repr__(self):
        raise RuntimeError("broken on purpose")


NAT = np.array(["2024-01-01", "NaT"], "M8[s]")
PROBLEMS = {
    "missing": (Read, [1.0, None, float("nan")], "2 missing values, the first in row 1"),
    "NaT": (Read, NAT, "1 missing value, the first in row 1"),
    "masked": (Read, np.ma.array([1.0, 2.0], mask=[False, True]), "1 missing value, the first in row 1"),
    "and text": (Read, [None, "x"], "text ('x' in row 1"),
    "text": (Read, ["u", "v"], "text ('u' in row 0, 2 such cells)"),
    "some text": (Read, ["1", "high", "2"], "to_numeric"),
    "no dates as text": (Read, ["2024-01-01", "2024-13-02T03:00"], "to_datetime"),
    "dates among numbers": (Read, [1.5, DAY], "dates"),
    "complex": (Read, np.array([1j]), "complex"),
    "infinite": (Read, [1.0, np.inf, -np.inf], "2 values that are not finite, the first (inf) in row 1"),
    "huge": (Read, [1, 10**400], "not finite"),
    "objects": (Read, [Odd()], "Odd"),
    "arrays": (Read, [np.zeros(2), np.zeros(2)], "ndarray"),
    "months": (Read, np.array([1], "m8[M]"), "months"),
    "signaling": (Read, [Decimal("sNaN")], "cannot be read"),
    "objects as levels": (Codes, [Odd(), Odd()], "Odd"),
    "fractions as levels": (Codes, [1.0, 1.5], "1.5 in row 1"),
    "text and integers": (Codes, ["x", 7, 8], "text ('x' in row 0) and integers (7 in row 1)"),
    "booleans and integers": (Codes, [True, 1], "booleans"),
    "unknown nodes": (places, ["a", "z", "y", "z"], "'z', 'y'"),
    "lists as nodes": (places, [["a"], ["z"]], "2 nodes"),
    "objects as nodes": (places, [Odd()], "1 node"),
    "zones": (Read, [HOURS[0], HOURS.tz_convert("Asia/Tokyo")[0]], "several time zones"),
    "some zones": (Read, [HOURS[0], NOON], "with and without a time zone"),
}


@pytest.mark.parametrize(("kernel", "column", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_cells_that_cannot_be_read_are_named(kernel, column, words):
    message = refused(lambda: single(column, kernel), rfgp.DataError, words)
    assert "'c'" in message
    assert len(message) < 400


CHANGED = {
    "text": (Read, [1.0], ["x"], "text"),
    "dates": (Read, [1.0], [DAY], "dates"),
    "numbers": (Read, [DAY], [1.0], "numbers"),
    "integers": (Codes, ["x"], [1], "integers"),
    "node": (places, ["a"], ["z"], "1 node"),
    "no zone": (Read, HOURS, HOURS.tz_localize(None), "must have a time zone"),
    "a zone": (Read, HOURS.tz_localize(None), HOURS, "must have no time zone"),
    "offsets": (Read, AWARE["offsets"], HOURS.tz_convert("UTC"), "UTC offsets"),
}


@pytest.mark.parametrize(("kernel", "train", "new", "words"), CHANGED.values(), ids=CHANGED)
def test_new_cells_of_another_type_are_named(kernel, train, new, words):
    refused(lambda: single(train, kernel, new), rfgp.DataError, words)


def test_all_problems_of_a_table_come_at_once():
    columns = {"a": Y, "text": ["x", "y", None, "x"] * 10, "gap": [None, *range(N - 1)], "odd": [{}] * N}
    columns |= {f"t{number}": ["x"] * N for number in range(30)}
    refused(lambda: conditioned(k.RBF(), pd.DataFrame(columns), Y), rfgp.DataError, "type dict")
    message = refused(lambda: conditioned(k.RBF(tuple(columns)), columns, Y), rfgp.DataError, "'text' holds text")
    for words in ("10 missing values, the first in row 2", "'gap' has 1 missing", "type dict"):
        assert words in message
    assert "'a'" not in message
    assert len(message) < 2000


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame])
def test_texts_with_a_gap_are_no_indicators(make):
    table = make({"a": Y.tolist(), "s": ["x", None, *"xy" * 19]})
    refused(lambda: conditioned(k.RBF(), table, Y), rfgp.DataError, "'s' has 1 missing cell")


class Raising:
    """An object that fails in every way in which a caller's own class can."""

    error = RuntimeError

    def __array__(self, *args, **options):
        raise self.error("broken on purpose")

    def __len__(self):
        return 2

    def __repr__(self):
        raise RuntimeError("broken on purpose")


class Lazy:
    columns = ("a", "b")

    def collect(self):
        raise AssertionError


TABLES = {
    "nothing": (None, "None"),
    "text": ("abc", "'abc'"),
    "a set": ({1, 2}, "dataframe"),
    "three axes": (np.zeros((2, 2, 2)), "reshape"),
    "three axes of lists": ([[[1.0]]], "d >= 1"),
    "no columns": (np.zeros((3, 0)), "(3, 0)"),
    "no rows": (np.zeros((0, 3)), "without rows"),
    "ragged rows": ([[1, 2], [1]], "1 to 2 values"),
    "an empty dict": ({}, "without columns"),
    "a ragged dict": ({"a": [1, 2], "b": [1]}, "'a' has 2 rows and 'b' has 1"),
    "a dict of matrices": ({"a": np.zeros((2, 1))}, "reshape"),
    "a tuple as a key": ({("a", "b"): [1]}, "names or integers"),
    "a boolean as a key": ({True: [1]}, "names or integers"),
    "a sparse tensor": (torch.zeros(2, 2).to_sparse(), "to_dense"),
    "a tensor without values": (torch.zeros(2, 2, device="meta"), "meta"),
    "a sparse array": (sp.csr_array(np.eye(4)), "toarray"),
    "a series of numbers": (pd.Series(Y), "to_frame"),
    "a lazy frame": (Lazy(), "collect"),
    "a raising array": (Raising(), "broken on purpose"),
    "a raising column": ({"a": Raising()}, "broken on purpose"),
}


@pytest.mark.parametrize(("X", "words"), TABLES.values(), ids=TABLES)
def test_objects_that_are_no_table_are_refused(X, words):
    refused(lambda: conditioned(k.RBF(), X, Y), rfgp.DataError, words)


def test_a_grid_of_xarray_is_a_table_of_cells_and_comes_back():
    xr = pytest.importorskip("xarray")
    height = np.add.outer(np.sin(np.arange(5.0)), np.cos(np.arange(4.0)))
    height[1, 2] = height[3, 0] = np.nan
    grid = xr.Dataset({"h": (("y", "x"), height), "s": ("x", list("abab"))}, {"y": np.arange(5.0), "x": np.arange(4.0)})
    y, x = (np.repeat(np.arange(5.0), 4), np.tile(np.arange(4.0), 5))
    frame = pd.DataFrame({"y": y, "x": x, "s": list("abab") * 5, "h": height.reshape(-1)})
    kernel, start = k.RBF(("x", "y"), lengthscale=1.0) + k.Group("s"), {"noise": 0.1}
    seen, weight = frame["h"].notna(), np.arange(1.0, 21.0)
    tabular, gp = (rfgp.GP(kernel, start=start, seed=0) for _ in range(2))
    tabular.condition(frame[seen].reset_index(drop=True), "h", sample_weight=weight[seen])
    gp.condition(grid, "h", sample_weight=weight)
    assert gp.num_observations == tabular.num_observations == 18
    expected, found = tabular.predict(frame), gp.predict(grid.drop_vars("h"))
    for p, q in (
        (found, expected),
        (found.observed(), expected.observed()),
        (found.terms["group(s)"], expected.terms["group(s)"]),
    ):
        shown = p.to_xarray().transpose("y", "x")
        assert shown.coords.equals(grid.coords)
        np.testing.assert_allclose(shown["mean"], q.mean.reshape(5, 4), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(shown["std"], q.std.reshape(5, 4), rtol=1e-10)
    cell = gp.predict(grid.isel(x=1, y=2)).to_xarray()
    assert float(cell["mean"]) == pytest.approx(expected.mean[9])
    alone = rfgp.GP(k.RBF(("x", "y")), start=start, seed=0).condition(grid["h"], "h")
    assert alone.num_observations == 18
    turned, same = alone.predict(grid["h"].T).to_xarray()["mean"], alone.predict(frame[["x", "y"]]).mean
    assert turned.dims == ("x", "y")
    np.testing.assert_allclose(turned, same.reshape(5, 4).T, rtol=1e-10)
    refused(lambda: gp.condition(grid, "depth"), rfgp.DataError, "no column 'depth'")
    refused(lambda: gp.condition(grid, None), rfgp.DataError, "y must have targets")
    refused(lambda: gp.predict(frame).to_xarray(), rfgp.InvalidArgumentError, "xarray")
    refused(lambda: found.linear(np.ones(20)).to_xarray(), rfgp.InvalidArgumentError, "xarray")


def test_several_targets_of_a_grid_are_outputs():
    xr = pytest.importorskip("xarray")
    grid = xr.Dataset({name: ("t", values) for name, values in (("a", [1.0, np.nan, 2.0]), ("b", [0.0, np.nan, 1.0]))})
    gp = rfgp.GP(k.RBF("t", lengthscale=1.0), start={"noise": 0.1}, seed=0).condition(grid, ["a", "b"])
    assert gp.predict(grid).to_xarray()["std"].dims == ("t", "output")
    np.testing.assert_array_equal(gp.predict(grid).to_xarray()["mean"], gp.predict({"t": [0, 1, 2]}).mean)


def test_memory_errors_stay_memory_errors():
    class Large(Raising):
        error = MemoryError

    refused(lambda: k.RBF().matrix(Large()), MemoryError, "broken")


def test_columns_on_several_devices_are_refused():
    class Elsewhere(torch.Tensor):
        device = torch.device("cuda")

    table = {"a": torch.zeros(2), "b": torch.zeros(2).as_subclass(Elsewhere)}
    refused(lambda: k.RBF().matrix(table), rfgp.DataError, "cpu, cuda")


@pytest.mark.parametrize("container", [np.array, torch.tensor])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_of_a_matrix_are_finite_and_keep_their_columns(container, value):
    X = np.array([[0.0, 3.0], [1.0, 5.0], [2.0, 4.0]])
    gp = rfgp.GP(k.Linear(1, variance=1.0, origin=0.0), start={"noise": 1.0, "mean": 0.0}, standardize=False)
    gp.condition(container(X), container(np.arange(1.0, 4.0)))
    assert float(gp.predict(container(np.array([[9.0, 1.0]]))).mean[0]) == pytest.approx(X[:, 1] @ [1, 2, 3] / (1 + 50))
    X[1, 1] = value
    word = "missing" if np.isnan(value) else "not finite"
    refused(lambda: gp.condition(container(X), container(np.arange(1.0, 4.0))), rfgp.DataError, word)
    refused(lambda: gp.predict(container(X)), rfgp.DataError, word)
