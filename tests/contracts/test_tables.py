"""Tables of files and dataframes: what their cells become, how new files are read, and text that is numbers."""

import copy
import dataclasses
import datetime as dt
import gzip
import json
import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPClassifier, GPRegressor
from rfgp.tables import (
    CSV,
    Batches,
    ColumnRule,
    Parquet,
    Schema,
    Table,
    read_inputs,
    read_numbers,
    read_parquet,
    read_table,
)
from tests.support.refusals import refused

NAN = np.nan


def write(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read_back(path, table):
    """Return the inputs of a file by the schema of a table, after a way through JSON."""
    schema = Schema.from_dict(json.loads(json.dumps(table.schema.to_dict())))
    assert schema == table.schema
    return read_inputs(path, schema)


AB, PLAIN = ("a", "b"), [[1, 2], [4, 5]]
DATES = "t,b\n1970-01-02,1\n1969-12-31T12:00,1\n1970-01-01 06:00:00,1\n0001-01-01,1\n2024-02-29,1\n"
ZONES = "t,b\n1970-01-01T06:00:00Z,1\n1970-01-01 06:00:00 +06:00,2\n1970-01-01T06:00:00.5-0600,3\n"
COLORS = "color,size,y\nred,1,1\nblue,2,2\nred,3,3\n,4,4\n"
MIXED = "doors,grade,y\n2,01,7\n3more,1,8\n2,01,7\n3more,1,9\n"
WORDS = 'c "d" e\n"x y" 1  2\nz 3 4\n"x y" 5 6 \n'
ONE_HOT, DAYS = {"categories": "one-hot"}, {"dates": "days"}


def case(name, text, columns, X, y, **options):
    """Return the text of a file, options of its reader, and what is read."""
    return pytest.param(text, options, columns, X, y, id=name)


FILES = [
    case("header", "a,b,y\n1,2,3\n4,5,6\n", AB, PLAIN, [3, 6]),
    case("target", "a,b,y\n1,2,3\n4,5,6\n", ("b", "y"), [[2, 3], [5, 6]], [1, 4], target="a"),
    case("blanks", " 1  2 3\n4 5   6\n", ("0", "1"), PLAIN, [3, 6]),
    case("commas and blanks", "1, 2, 3\n4, 5, 6\n", ("0", "1"), PLAIN, [3, 6]),
    case("names", "1,2,3\n4,5,6\n", AB, PLAIN, [3, 6], target="y", names=["a", "b", "y"]),
    case("dropped", "1,2,3,9\n4,5,6,9\n", ("0", "1"), PLAIN, [3, 6], target=2, drop=(-1,)),
    case("byte order mark", b'\xef\xbb\xbf"size, cm",y\r\n1,2\r\n3,4\r\n', ("size, cm",), [[1], [3]], [2, 4]),
    case("carriage returns", b"a,b\r1,2\r3,4", ("a",), [[1], [3]], [2, 4]),
    case("blank lines", 'a,b\r\n1,2\r\n   \r\n"3",4\r\n', ("a",), [[1], [3]], [2, 4]),
    case("lines in quotes", '"a\nb", "c, d",y\n1,2,3\n4,5,6\n', ("a\nb", "c, d"), PLAIN, [3, 6]),
    case("decimal comma", "a;b\n1,5;2,25\n -3,5 ;+4\n", ("a",), [[1.5], [-3.5]], [2.25, 4], decimal=","),
    case("quoted numbers", '"1,5","2"\n"2,5","3"\n', ("0",), [[1.5], [2.5]], [2, 3], decimal=","),
    case("comments", "% note\n a , b \n%\n1,2\n ? ,3\n   \n4,5\n\n", ("a",), [[1], [4]], [2, 5], comment="%",
         missing_marks=["?"], missing="drop"),
    case("latin-1", "größe,b\n1,2\n3,4\n".encode("latin-1"), ("größe",), [[1], [3]], [2, 4], encoding="latin-1"),
    case("utf-16", "größe,b\n1,2\n3,4\n".encode("utf-16"), ("größe",), [[1], [3]], [2, 4], encoding="utf-16"),
    case("words", WORDS, ("c=x y", "c=z", "d"), [[1, 0, 1], [0, 1, 3], [1, 0, 5]], [2, 4, 6], categories="one-hot"),
    case("late gap", "a,b\n" + "1,2\n" * 300 + " NA ,2\n", ("a",), [[1]] * 300, [2] * 300, missing="drop"),
    case("dates", DATES, ("t",), [[1], [-0.5], [0.25], [-719162], [19782]], [1] * 5, dates="days"),
    case("zones", ZONES, ("t",), [[0.25], [0.25], [0.25 + 0.5 / 86400]], [1, 2, 3], dates="days"),
    case("dropped dates", "2024-01-01,1,5\n2024-01-02,2,6\n", ("1",), [[1], [2]], [5, 6], dates="drop"),
    case("date as target", "a,t\n1,1970-01-03\n2,1970-01-02\n", ("a",), [[1], [2]], [2, 1], dates="days"),
    case("whole dates", "day,y\n19580329,1\n19580330,2\n", ("day",), [[19580329], [19580330]], [1, 2], dates="days"),
    case("classes", "a,kind\n1,b\n2,a\n3,b\n4,c\n", ("a",), [[1], [2], [3], [4]], [1, 0, 1, 2]),
    case("categories", COLORS, ("color=blue", "color=red", "size"),
         [[0, 1, 1], [1, 0, 2], [0, 1, 3], [1 / 3, 2 / 3, 4]], [1, 2, 3, 4], categories="one-hot", missing="mean"),
    case("named categories", MIXED, ("doors=2", "doors=3more", "grade=01", "grade=1"),
         [[1, 0, 1, 0], [0, 1, 0, 1]] * 2, [0, 1, 0, 2], as_categories=("doors", 1, "y")),
    case("levels", "s,y\nn,1\ns,2\nn,3\n", ("s",), [[0], [1], [0]], [1, 2, 3], categories="levels"),
    case("number levels", "a,y\n7,1\n3,2\n7,3\n", ("a",), [[1], [0], [1]], [1, 2, 3], levels=("a",),
         as_categories="a"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "columns", "X", "y"), FILES)
def test_files_become_matrices(tmp_path, text, options, columns, X, y):
    path = write(tmp_path, text)
    packed = write(tmp_path, gzip.compress(path.read_bytes()), "t.csv.gz")
    table = read_table(path, **options)
    assert table.columns == columns
    np.testing.assert_allclose(table.X, X, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(table.y, y)
    np.testing.assert_array_equal(read_table(packed, **options).X, table.X)
    np.testing.assert_array_equal(read_back(path, table).X, table.X)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1),
    mark=st.sampled_from([",", ";", "\t", "   "]),
    header=st.booleans(),
    decimal=st.sampled_from([".", ","]),
)
def test_written_numbers_come_back(tmp_path, rows, mark, header, decimal):
    mark = ";" if decimal == mark else mark
    lines = [mark.join(repr(x).replace(".", decimal) for x in row) for row in rows]
    path = write(tmp_path, "\n".join([mark.join(("first", "second", "third"))] * header + lines))
    table = read_table(path, decimal=decimal)
    np.testing.assert_array_equal(np.column_stack([table.X, table.y]), np.array(rows))
    assert (table.columns, table.schema.header) == (("first", "second") if header else ("0", "1"), header)


@pytest.mark.parametrize(("decimal", "mark"), [(".", ","), (".", "'"), (".", "_"), (".", " "), (",", "."), (",", " ")])
def test_thousands_come_back(tmp_path, decimal, mark):
    numbers, options = [1200.0, 950.0, -1234567.5, 0.125, 12.0, 3e3], {"decimal": decimal, "thousands": mark}
    cells = [f"{number:,.10g}".translate({ord(","): mark, ord("."): decimal}) for number in numbers]
    path = write(tmp_path, "a;b\n" + "".join(f"{cell};{place}\n" for place, cell in enumerate(cells)))
    (chunk,) = CSV(path, "b", **options).chunks()
    for X in (read_table(path, **options).X, chunk.X):
        np.testing.assert_array_equal(X[:, 0], numbers)


def mixed():
    """Return columns of all kinds that a table may hold, with gaps, and classes."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.standard_normal(40), "count": rng.integers(-(10**12), 10**12, 40)})
    frame["color"] = np.array(["red", "sea green", "blue, light"])[np.arange(40) % 3]
    frame["on"], frame["day"] = rng.random(40) < 0.5, pd.date_range("1931-02-03", periods=40, freq="37D")
    step, start = pd.Timedelta(seconds=7777), "2024-02-28T23:59:58.123456"
    frame["at"] = pd.date_range(start, periods=40, freq=step, tz="Europe/Berlin")
    frame["y"] = np.where(frame["x"] > 0, "yes", "no")
    frame.loc[[3, 7], "x"], frame.loc[[5], "color"], frame.loc[[6], "day"] = np.nan, None, pd.NaT
    return frame


@pytest.mark.parametrize("missing", ["drop", "mean"])
def test_files_and_dataframes_are_read_alike(tmp_path, missing):
    frame, options = mixed(), ONE_HOT | DAYS | {"missing": missing}
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    frame.astype({"color": "category"}).to_parquet(tmp_path / "c.pq", index=False)
    text = read_table(tmp_path / "t.csv", **options)
    others = (tmp_path / "t.parquet", tmp_path / "c.pq", frame, pa.Table.from_pandas(frame, preserve_index=False))
    for given_table in others:
        table = read_table(given_table, **options)
        for name in ("X", "y", "rows"):
            np.testing.assert_array_equal(getattr(table, name), getattr(text, name))
        one, other = ([dataclasses.replace(rule, zone="") for rule in each.schema.inputs] for each in (table, text))
        assert one == other
        np.testing.assert_array_equal(read_inputs(given_table, table.schema).X, table.X)
    assert text.columns[2:5] == ("color=blue, light", "color=red", "color=sea green")
    assert (len(text.X), text.classes) == (36 if missing == "drop" else 40, ("no", "yes"))
    clock = [(stamp.tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta(days=1) for stamp in frame["at"]]
    np.testing.assert_allclose(text.X[:, -1], np.array(clock)[text.rows], rtol=0, atol=1e-10)


def test_types_of_parquet(tmp_path):
    columns = {
        "large": pa.array([2**63, 1], pa.uint64()),
        "half": pa.array(np.array([0.5, 1], np.float16)),
        "money": pa.array(["1.25", "-3.50"]).cast(pa.decimal128(10, 2)),
        "on": [True, False],
        "day": [dt.date(1970, 1, 2), dt.date(1969, 12, 31)],
        "code": pa.array([5, 7]).dictionary_encode(),
        "long": pa.array(["1", "2"], pa.large_string()),
        "y": [1.0, 2.0],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", dates="days")
    np.testing.assert_array_equal(table.X, [[2.0**63, 0.5, 1.25, 1, 1, 5, 1], [1, 1, -3.5, 0, -1, 7, 2]])
    read = read_parquet(tmp_path / "t.parquet", "half", drop=("y", 0), dates="drop")
    assert (read.columns, read.schema.dropped) == (("money", "on", "code", "long"), ("large", "day", "y"))


OBJECTS = {
    "dates": ([dt.date(1970, 1, 2), pd.NaT, dt.date(1970, 1, 3), None], DAYS, [1, 2]),
    "texts and numbers": (["a", 1, None, "a"], {"as_categories": "b"}, [[0, 1], [1, 0], [0, 1]]),
}


@pytest.mark.parametrize(("cells", "options", "X"), OBJECTS.values(), ids=OBJECTS)
def test_objects_are_read_by_their_type(cells, options, X):
    table = pd.DataFrame({"b": pd.Series(cells * 2, dtype=object), "y": np.arange(8.0)})
    found = read_table(table, missing="drop", **options).X
    np.testing.assert_array_equal(found, np.reshape(X * 2, (len(found), -1)))


def test_frames_have_texts_and_dates(tmp_path):
    path = write(tmp_path, "s,day,y\nn,0001-01-01,1\ns,9999-12-31,2\n,2026-01-03,3\nn,,4\n")
    table = read_table(path, categories="levels", dates="days", missing="mean")
    frame = table.frame()
    assert frame.s.tolist() == ["n", "s", "(missing)", "n"]
    assert np.asarray(frame.day).astype("M8[D]").tolist()[:2] == [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    assert table.X[3, 1] == pytest.approx(table.X[:3, 1].mean())
    new = write(tmp_path, "s,day,who\nw,,a\n,2026-01-02,\nn,2026-01-03,c\n", "n.csv")
    inputs = read_inputs(new, table.schema, ("who", "s"))
    assert (inputs.frame().s.tolist(), inputs.X[0, 1]) == (["w", "(missing)", "n"], table.X[3, 1])
    assert inputs.passthrough == {"who": ("a", "", "c"), "s": ("w", "", "n")}
    dropped = read_inputs(new, table.schema.with_missing("drop"), ("who",))
    assert (dropped.rows.tolist(), dropped.passthrough, dropped.num_rows) == ([2], {"who": ("c",)}, 3)


def test_a_table_of_arrays_has_a_schema():
    table = Table(np.zeros((3, 2)), np.zeros(3), ("a", "b"), "y")
    assert table.schema == Schema.of_numbers(("a", "b"), "y")
    assert (table.schema.columns, table.schema.target, table.rows.tolist()) == (("a", "b"), "y", [0, 1, 2])
    assert ColumnRule("c", 0, "category", ("a", "b")).encoded == ("c=a", "c=b")


# --- new files ----------------------------------------------------------------------------------------

TRAIN = "a,color,when,y\n1,red,2024-01-01,b\n2,blue,2024-01-02,a\n3,red,2024-01-03,b\n,blue,2024-01-04,a\n"


def fitted(folder, missing="mean"):
    return read_table(write(folder, TRAIN, "fit.csv"), **ONE_HOT, **DAYS, missing=missing)


NEW = {
    "other order": ("mean", "more,when,color,a\nx,2024-01-02,blue,5\ny,1970-01-01,,\n",
                    [[5, 1, 0, 19724], [2, 0.5, 0.5, 0]], None, [0, 1]),
    "targets": ("mean", "y,when,color,a\nb,2024-01-02,red,5\na,2024-01-02,red,5\n",
                [[5, 0, 1, 19724]] * 2, [1, 0], [0, 1]),
    "some targets": ("mean", "y,when,color,a\nb,2024-01-02,red,5\n,2024-01-02,red,5\n", [[5, 0, 1, 19724]] * 2, None,
                     [0, 1]),
    "gaps": ("drop", "a,color,when,y\n,red,2024-01-01,\n2,blue,2024-01-01,a\n3,,2024-01-01,b\n4,red,2024-01-01,b\n",
             [[2, 1, 0, 19723], [4, 0, 1, 19723]], [0, 1], [1, 3]),
}  # fmt: skip


@pytest.mark.parametrize(("missing", "text", "X", "y", "rows"), NEW.values(), ids=NEW)
def test_new_files_are_read_by_name(tmp_path, missing, text, X, y, rows):
    new = read_inputs(write(tmp_path, text), fitted(tmp_path, missing).schema)
    np.testing.assert_allclose(new.X, X)
    assert new.y is None if y is None else new.y.tolist() == y
    assert new.rows.tolist() == rows


def test_new_files_without_a_header_are_read_by_position(tmp_path):
    schema = read_table(write(tmp_path, "1,10,2\n3,30,4\n"), target=1).schema
    new = read_inputs(write(tmp_path, "5;6;7\n8;9;10\n"), schema)
    assert (new.X.tolist(), new.y.tolist()) == ([[5, 7], [8, 10]], [6, 9])
    assert read_inputs(write(tmp_path, "5,7\n8,10\n"), schema).X.tolist() == [[5, 7], [8, 10]]


def test_new_levels_are_warned_of(tmp_path):
    schema = read_table(write(tmp_path, "grade,y\n" + "01,1\nx,2\ny,3\n" * 4), **ONE_HOT).schema
    with pytest.warns(rfgp.NewLevelWarning, match="'grade' has 1 level"):
        new = read_inputs(write(tmp_path, "grade\n1\n01\n"), schema)
    np.testing.assert_array_equal(new.X, [[0, 0, 0], [1, 0, 0]])


CHANGES = [
    (("version",), 2), (("version",), True), (("extra",), 1), (("inputs",), None), (("inputs",), []),
    (("inputs", 0, "name"), 5), (("inputs", 0, "name"), "color"), (("inputs", 0, "position"), 1),
    (("inputs", 0, "position"), 99), (("inputs", 0, "role"), "code"), (("inputs", 0, "levels"), ["x"]),
    (("inputs", 1, "levels"), []), (("inputs", 1, "levels"), ["b", "a"]), (("output", "role"), "level"),
    (("width",), 3), (("header",), 1), (("dropped",), "a"), (("missing",), "median"), (("imputed_means",), [1.0]),
    (("imputed_means",), [NAN] * 4), (("imputed_means",), [10**400] * 4), (("decimal",), ";"), (("encoding",), "zip"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_damaged_schemas_are_refused(tmp_path, path, value):
    content = copy.deepcopy(fitted(tmp_path).schema.to_dict())
    place = content
    for key in path[:-1]:
        place = place[key]
    assert path[-1] in place or path[-1] == "extra"
    place[path[-1]] = value
    for wrong in (content, [content], {1: 2}):
        refused(lambda wrong=wrong: Schema.from_dict(wrong), rfgp.DataError, "not a schema")


# --- time zones ---------------------------------------------------------------------------------------

HOURS = pd.date_range("2024-03-20", periods=480, freq="h", tz="Europe/Berlin")
TIMES = pd.DataFrame({"t": HOURS, "y": np.sin(2 * np.pi * HOURS.hour / 24)})


def test_files_keep_the_kind_of_clock(tmp_path):
    """Days of files are on the local clock; a new file has its zone, or is converted, or is refused."""
    tokyo = TIMES.assign(t=HOURS.tz_convert("Asia/Tokyo"))
    for name, frame in (("t", TIMES), ("naive", TIMES.assign(t=HOURS.tz_localize(None))), ("tokyo", tokyo)):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
    text, binary = (read_table(tmp_path / name, "y", dates="days") for name in ("t.csv", "t.parquet"))
    clock = (HOURS.tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta(days=1)
    for table in (text, binary, read_inputs(tmp_path / "tokyo.csv", binary.schema), read_inputs(tokyo, binary.schema)):
        np.testing.assert_allclose(table.X[:, 0], clock, rtol=0, atol=1e-9)
    for schema, name in ((text.schema, "naive.csv"), (binary.schema, "naive.parquet"), (text.schema, "tokyo.csv")):
        with pytest.raises(rfgp.DataError, match=r"zone|UTC offsets"):
            read_inputs(tmp_path / name, schema)
    model = lambda: rfgp.GP(k.Periodic("t", 1.0), approximation=rfgp.RandomFeatures(16), seed=0)  # noqa: E731
    refused(lambda: model().condition(CSV(tmp_path / "t.csv", "y")), rfgp.DataError, "one offset")
    for rows, new in (((Parquet(tmp_path / "t.parquet", "y"),), tokyo), ((text.frame(), TIMES.y), text.frame())):
        assert np.abs(model().condition(*rows).predict(new).mean - TIMES.y).max() < 0.05


def test_fast_ticks_of_files_are_exact(tmp_path):
    """Neighboring rows are one lengthscale of 100 ns apart."""
    start, step = pd.Timestamp("2024-05-01T23:59:59.99999"), pd.Timedelta("100ns").as_unit("ns")
    frame = pd.DataFrame({"t": (start + np.arange(80) * step).astype("M8[ns]"), "y": np.sin(np.arange(80.0))})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    gp = rfgp.GP(k.RBF("t", lengthscale=step / pd.Timedelta(days=1)), approximation=rfgp.Exact(), seed=0)
    expected = gp.condition(frame, "y").predict(frame).mean
    for path, source in ((tmp_path / "t.csv", CSV), (tmp_path / "t.parquet", Parquet)):
        for new in (read_table(path, "y", dates="days").frame(), source(path)):
            np.testing.assert_allclose(gp.predict(new).mean, expected, atol=1e-6)


# --- an index, identifiers and numbers as text --------------------------------------------------------

N = 60


def plain():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.standard_normal(N), "b": rng.standard_normal(N), "y": rng.standard_normal(N)})


INDEXES = {
    "pandas": (lambda path: plain().to_csv(path), ("a", "b"), "left out", "Unnamed: 0"),
    "gaps": (lambda path: plain()[::2].to_csv(path), ("Unnamed: 0", "a", "b"), "is an input", "Unnamed: 0"),
    "Parquet": (
        lambda path: plain().sample(frac=1, random_state=0).to_parquet(path),
        ("a", "b", "__index_level_0__"),
        "is an input",
        "__index_level_0__",
    ),
}


@pytest.mark.parametrize(("write_to", "columns", "words", "name"), INDEXES.values(), ids=INDEXES)
def test_an_index_in_a_file_is_warned_of(tmp_path, write_to, columns, words, name):
    path = tmp_path / ("t.parquet" if "__" in name else "t.csv")
    write_to(path)
    with pytest.warns(rfgp.IndexColumnWarning, match=words) as found:
        table = read_table(path)
    assert [entry.filename for entry in found] == [__file__]
    assert (table.columns, table.target) == (columns, "y")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(path, "y", drop=name).columns == ("a", "b")
        assert read_table(path, name).target == name
        np.testing.assert_array_equal(read_inputs(path, table.schema).X, table.X)
        if words == "left out":
            np.testing.assert_array_equal(read_inputs(plain()[7:20], table.schema).X, plain()[["a", "b"]][7:20])


INDEXED = {
    "CSV": ("Unnamed: 0", lambda table, path: (table.to_csv(path, index=False), CSV(path, "y"))[1:]),
    "Parquet": ("", lambda table, path: (table.to_parquet(path, index=False), Parquet(path, "y"))[1:]),
    "blocks": ("Unnamed: 0.1", lambda table, path: (Batches([table[:40], table[40:]], "y"),)),
    "frame": ("__index_level_0__", lambda table, path: (table, "y")),
}


@pytest.mark.parametrize("name", ["y", "noise", "sample_weight"])
def test_row_labels_in_another_order_are_refused(name):
    X = pd.DataFrame({"a": np.arange(6.0)}, index=[3, 5, 4, 0, 1, 2])
    gp, given = rfgp.GP(k.RBF(), seed=0), {"y": pd.Series(np.arange(1.0, 7.0), X.index)}
    refused(lambda: gp.condition(X, **given | {name: given["y"].sort_index()}), rfgp.DataError, "loc")
    known = gp.condition(X, **given).predict(X).mean
    if name == "y":
        compare = partial(rfgp.compare.compare_models, {"a": gp, "b": gp}, X)
        refused(lambda: compare(given["y"].sort_index()), rfgp.DataError, "loc")
    for y in (given["y"].to_numpy(), given["y"].sort_index().loc[X.index], given["y"].set_axis([*"abcdef"])):
        np.testing.assert_array_equal(gp.condition(X, y).predict(X).mean, known)


@pytest.mark.parametrize(("name", "make"), INDEXED.values(), ids=INDEXED)
@pytest.mark.parametrize(("step", "words"), [(1, "left out"), (3, "is an input")])
def test_models_leave_an_index_out(tmp_path, name, make, step, words):
    table = plain()
    table.insert(0, name, step * np.arange(N))
    gp, expected = (rfgp.SparseSpectrumGP(num_frequencies=4, seed=0) for _ in range(2))
    with pytest.warns(rfgp.IndexColumnWarning, match=words):
        gp.condition(*make(table, tmp_path / "t"))
    used = table[["a", "b"] if step == 1 else [name, "a", "b"]].to_numpy()
    expected.condition(used, table["y"])
    np.testing.assert_allclose(gp.predict(table[7:9]).mean, expected.predict(used[7:9]).mean)


EXAMPLE = "1.234,50 EUR"


def prices():
    """Return prices (240,), and a table of them as text."""
    rng = np.random.default_rng(0)
    numbers = np.round(rng.uniform(1, 9000, 240), 2)
    numbers[1] = numbers[0]  # no identifier: a text occurs twice
    texts = [f"{price:,.2f} EUR".translate(str.maketrans(",.", ".,")) for price in numbers]
    return numbers, pd.DataFrame({"a": rng.normal(size=240), "price": texts, "y": np.log(numbers)})


PRICES, FRAME = prices()
TEXTS = FRAME.price.tolist()


def auto():
    return rfgp.GP(seed=0)


READERS = {
    "pandas": lambda folder: auto().fit(FRAME, "y"),
    "lists": lambda folder: auto().fit({"price": TEXTS}, FRAME.y),
    "objects": lambda folder: auto().fit(FRAME[["a", "price"]].to_numpy(), FRAME.y),
    "targets": lambda folder: auto().fit(FRAME[["a"]], np.array(TEXTS)),
    "the column": lambda folder: rfgp.GP(k.RBF("price"), seed=0).fit(FRAME, "y"),
    "batches": lambda folder: auto().fit(Batches([FRAME[:100], FRAME[100:]], "y")),
    "CSV": lambda folder: auto().fit(CSV(folder / "t.csv", "y")),
    "Parquet": lambda folder: auto().fit(Parquet(folder / "t.parquet", "y")),
    "levels": lambda folder: read_table(folder / "t.csv", categories="levels"),
    "one-hot": lambda folder: read_table(FRAME, "y", categories="one-hot"),
    "a target of a file": lambda folder: read_table(FRAME, "price"),
    "scikit-learn": lambda folder: GPRegressor().fit(FRAME[["a", "price"]], FRAME.y),
    "classes": lambda folder: GPClassifier().fit(FRAME[["a"]], FRAME.price),
}


@pytest.mark.parametrize("reader", READERS)
def test_numbers_as_text_are_refused_by_every_reader(tmp_path, reader):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    FRAME.to_parquet(tmp_path / "t.parquet")
    refused(lambda: READERS[reader](tmp_path), rfgp.DataError, "numbers")


FORMATS = [
    (["1.234,50 EUR", "7,00 EUR", None], EXAMPLE, [1234.5, 7, NAN]),
    (["12 %", "12.5 %", "-3\u00a0%"], "12 %", [12, 12.5, -3]),
    (["$3.50", "-$1,200", "$-.5"], "$1,234.50", [3.5, -1200, -0.5]),
    (["1\u202f234,5 \u20ac", "3 \u20ac"], "1\u202f234,50 \u20ac", [1234.5, 3]),
    (["Fr. 1'200.50"], "Fr. 1'234.50", [1200.5]),
    (["12 kg", "1e3 kg"], "3.5 kg", [12, 1000]),
]


@pytest.mark.parametrize(("texts", "example", "numbers"), FORMATS)
def test_numbers_are_read_by_an_example(texts, example, numbers):
    for column in (texts, np.array(texts, dtype=object), pd.Series(texts), pl.Series(texts), pa.array(texts)):
        np.testing.assert_array_equal(read_numbers(column, example), numbers)


def test_sources_read_numbers_by_an_example(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    FRAME.to_parquet(tmp_path / "t.parquet")
    for path, source in ((tmp_path / "t.csv", CSV), (tmp_path / "t.parquet", Parquet)):
        numbers = {"price": EXAMPLE}
        (inputs,), (targets,) = (
            source(path, "y", numbers=numbers).tables(),
            source(path, "price", numbers=numbers).chunks(),
        )
        table = read_table(path, "y", numbers=numbers)
        for found in (inputs.X["price"], targets.y, table.X[:, 1], read_back(path, table).X[:, 1]):
            np.testing.assert_array_equal(found, PRICES)


LATER = [("1.5", "x"), ("x", "1.5"), ("True", "2"), ("7", "1.5"), ("01", "x"), ("2024-02-29", "2024-02-30")]


@pytest.mark.parametrize(("first", "later"), LATER)
def test_first_cells_decide_the_type_of_a_column(tmp_path, limits, first, later):
    """A later block of another type is text, as is a block with a date that does not exist."""
    limits(chunk_bytes=2**11)
    path = write(tmp_path, "a,y\n" + f"{first},1\n" * 1000 + f"{later},2\n" * 1000)
    *_, last = CSV(path, "y").tables()
    expected = 1.5 if (first, later) == ("7", "1.5") else later
    assert np.asarray(last.X["a"])[-1] == expected


@pytest.mark.parametrize("cell", [" ", " NA ", "nan"])
def test_blank_cells_of_blocks_are_missing(tmp_path, cell):
    path = write(tmp_path, f"a,b,y\n1,u,1\n2,u,2\n3,{cell},3\n")
    assert read_table(path, categories="levels", missing="drop").rows.tolist() == [0, 1]
    refused(lambda: rfgp.GP(k.Group("b")).condition(CSV(path, "y")), rfgp.DataError, "in row 2")


def test_a_column_of_dates_with_another_text_is_not_left_out():
    days = [f"2024-01-{day:02}" for day in range(1, 31)]
    frame = pd.DataFrame({"day": [*days[:17], "unknown", *days[18:]], "y": np.arange(30.0)})
    for options in ({}, {"categories": "levels"}):
        refused(lambda options=options: read_table(frame, "y", **options), rfgp.DataError, "Dates must be ISO")


def test_hexadecimal_texts_are_no_numbers(tmp_path):
    path = write(tmp_path, "a,y\n0x1f,1\n0x20,2\n0x1f,3\n")
    assert read_table(path, categories="levels").frame()["a"].tolist() == ["0x1f", "0x20", "0x1f"]


def test_truth_values_are_targets_of_text(tmp_path):
    path = write(tmp_path, "a,y\n1,true\n2,false\n3,true\n")
    with pytest.warns(rfgp.BooleanTargetWarning, match="'y' holds booleans") as caught:
        (chunk,) = CSV(path, "y").chunks()
    assert [entry.filename for entry in caught] == [__file__]
    np.testing.assert_array_equal(chunk.y, [1, 0, 1])


def test_identifiers_are_refused_unless_they_are_named(tmp_path):
    names = [f"n{i // 2}" if i < 40 else f"n{i}" for i in range(240)]
    frame = FRAME[["a", "y"]].assign(name=names)
    refused(lambda: auto().fit(frame, "y"), rfgp.DataError, "Drop it")
    refused(lambda: read_table(frame, "y", categories="levels"), rfgp.DataError, "drop=")
    declared = read_table(frame, "y", categories="levels", as_categories="name").frame()
    assert declared.name.dtype == "category"
    unique = write(tmp_path, "name,a,y\nx,1,1\ny,2,2\n,3,3\n")
    with pytest.warns(rfgp.IdentifierWarning, match="'name' is left out") as caught:
        table = read_table(unique, categories="levels")
    assert (table.columns, [entry.filename for entry in caught]) == (("a",), [__file__])
