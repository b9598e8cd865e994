"""Tables of files and dataframes: what their cells become, how new files are read, and text that is numbers."""

import copy
import dataclasses
import datetime as dt
import decimal
import gzip
import json
import warnings

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
MIXED = "doors,grade,y\n" + "2,01,7\n3,1,8\n4,1,9\n5more,01,7\n" * 2
WORDS = 'c "d" e\n"x y" 1  2\nz 3 4\n"x y" 5 6 \n'
ONE_HOT, DAYS = {"categories": "one-hot"}, {"dates": "days"}
FILES = {
    "header": ("a,b,y\n1,2,3\n4,5,6\n", {}, AB, PLAIN, [3, 6]),
    "target": ("a,b,y\n1,2,3\n4,5,6\n", {"target": "a"}, ("b", "y"), [[2, 3], [5, 6]], [1, 4]),
    "place": ("a,b,y\n1,2,3\n4,5,6\n", {"target": "-3"}, ("b", "y"), [[2, 3], [5, 6]], [1, 4]),
    "semicolons": ("1;2;3\n4;5;6\n", {}, ("0", "1"), PLAIN, [3, 6]),
    "tabs": ("1\t2\t3\n4\t5\t6\n", {}, ("0", "1"), PLAIN, [3, 6]),
    "blanks": (" 1  2 3\n4 5   6\n", {}, ("0", "1"), PLAIN, [3, 6]),
    "commas and blanks": ("1, 2, 3\n4, 5, 6\n", {}, ("0", "1"), PLAIN, [3, 6]),
    "names": ("1,2,3\n4,5,6\n", {"target": "y", "names": ["a", "b", "y"]}, AB, PLAIN, [3, 6]),
    "dropped": ("1,2,3,9\n4,5,6,9\n", {"target": 2, "drop": (-1,)}, ("0", "1"), PLAIN, [3, 6]),
    "byte order mark": (b'\xef\xbb\xbf"size, cm",y\r\n1,2\r\n3,4\r\n', {}, ("size, cm",), [[1], [3]], [2, 4]),
    "mark without header": (b"\xef\xbb\xbf1,2\n3,4\n", {}, ("0",), [[1], [3]], [2, 4]),
    "carriage returns": (b"a,b\r1,2\r3,4", {}, ("a",), [[1], [3]], [2, 4]),
    "blank lines": ('a,b\r\n1,2\r\n   \r\n"3",4\r\n', {}, ("a",), [[1], [3]], [2, 4]),
    "lines in quotes": ('"a\nb", "c, d",y\n1,2,3\n4,5,6\n', {}, ("a\nb", "c, d"), PLAIN, [3, 6]),
    "decimal comma": ("a;b\n1,5;2,25\n -3,5 ;+4\n", {"decimal": ","}, ("a",), [[1.5], [-3.5]], [2.25, 4]),
    "quoted numbers": ('"1,5","2"\n"2,5","3"\n', {"decimal": ","}, ("0",), [[1.5], [2.5]], [2, 3]),
    "thousands": ("a;b\n1.234.567,5;2\n-0,25;1.000\n", {"decimal": ",", "thousands": "."}, ("a",),
                  [[1234567.5], [-0.25]], [2, 1000]),
    "narrow spaces": ("1\u202f200.5;2\n3;1\u202f000\n", {"thousands": "\u202f"}, ("0",), [[1200.5], [3]], [2, 1000]),
    "comments": ("% note\n a , b \n%\n1,2\n ? ,3\n   \n4,5\n\n",
                 {"comment": "%", "missing_marks": ["?"], "missing": "drop"}, ("a",), [[1], [4]], [2, 5]),
    "latin-1": ("größe,b\n1,2\n3,4\n".encode("latin-1"), {"encoding": "latin-1"}, ("größe",), [[1], [3]], [2, 4]),
    "utf-16": ("größe,b\n1,2\n3,4\n".encode("utf-16"), {"encoding": "utf-16"}, ("größe",), [[1], [3]], [2, 4]),
    "words": (WORDS, ONE_HOT, ("c=x y", "c=z", "d"), [[1, 0, 1], [0, 1, 3], [1, 0, 5]], [2, 4, 6]),
    "late gap": ("a,b\n" + "1,2\n" * 300 + " NA ,2\n", {"missing": "drop"}, ("a",), [[1]] * 300, [2] * 300),
    "dates": (DATES, DAYS, ("t",), [[1], [-0.5], [0.25], [-719162], [19782]], [1] * 5),
    "zones": (ZONES, DAYS, ("t",), [[0.25], [0.25], [0.25 + 0.5 / 86400]], [1, 2, 3]),
    "dropped dates": ("2024-01-01,1,5\n2024-01-02,2,6\n", {"dates": "drop"}, ("1",), [[1], [2]], [5, 6]),
    "date as target": ("a,t\n1,1970-01-03\n2,1970-01-02\n", DAYS, ("a",), [[1], [2]], [2, 1]),
    "whole dates": ("day,y\n19580329,1\n19580330,2\n", DAYS, ("day",), [[19580329], [19580330]], [1, 2]),
    "truth": ("on,off,y\nTrue,true,1\nFalse,FALSE,2\nTrue,,3\n", {"missing": "drop"}, ("on", "off"),
              [[1, 1], [0, 0]], [1, 2]),
    "classes": ("a,kind\n1,b\n2,a\n3,b\n4,c\n", {}, ("a",), [[1], [2], [3], [4]], [1, 0, 1, 2]),
    "categories": (COLORS, ONE_HOT | {"missing": "mean"}, ("color=blue", "color=red", "size"),
                   [[0, 1, 1], [1, 0, 2], [0, 1, 3], [1 / 3, 2 / 3, 4]], [1, 2, 3, 4]),
    "rows without gaps": (COLORS, ONE_HOT | {"missing": "drop", "drop": "size"}, ("color=blue", "color=red"),
                          [[0, 1], [1, 0], [0, 1]], [1, 2, 3]),
    "dropped text": (COLORS, {"categories": "drop"}, ("size",), [[1], [2], [3], [4]], [1, 2, 3, 4]),
    "named categories": (MIXED, {"as_categories": ("doors", 1, "y")},
                         ("doors=2", "doors=3", "doors=4", "doors=5more", "grade=01", "grade=1"),
                         [[1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 1], [0, 0, 0, 1, 1, 0]] * 2,
                         [0, 1, 2, 0] * 2),
    "levels": ("s,y\nn,1\ns,2\nn,3\n", {"categories": "levels"}, ("s",), [[0], [1], [0]], [1, 2, 3]),
    "number levels": ("a,y\n7,1\n3,2\n7,3\n", {"levels": ("a",), "as_categories": "a"}, ("a",), [[1], [0], [1]],
                      [1, 2, 3]),
    "columns": (COLORS, {"columns": ("size",)}, ("size",), [[1], [2], [3], [4]], [1, 2, 3, 4]),
    "an example": ("p;y\n1.234,50 EUR;1\n7,00 EUR;2\n", {"numbers": {"p": "1.234,50 EUR"}}, ("p",), [[1234.5], [7]],
                   [1, 2]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "options", "columns", "X", "y"), FILES.values(), ids=FILES)
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
    numbers = [1200.0, 950.0, -1234567.5, 0.125, 12.0, 3e3]
    cells = [f"{number:,.10g}".translate({ord(","): mark, ord("."): decimal}) for number in numbers]
    path = write(tmp_path, "a;b\n" + "".join(f"{cell};{place}\n" for place, cell in enumerate(cells)))
    options = {"decimal": decimal, "thousands": mark}
    np.testing.assert_array_equal(read_table(path, **options).X[:, 0], numbers)
    (chunk,) = CSV(path, "b", **options).chunks()
    np.testing.assert_array_equal(np.asarray(chunk.X)[:, 0], numbers)


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
        "small": pa.array([1, 2], pa.int8()),
        "large": pa.array([2**63, 1], pa.uint64()),
        "half": pa.array(np.array([0.5, 1], np.float16)),
        "money": pa.array(["1.25", "-3.50"]).cast(pa.decimal128(10, 2)),
        "on": [True, False],
        "day": [dt.date(1970, 1, 2), dt.date(1969, 12, 31)],
        "ms": pa.array([0, -43_200_000], pa.timestamp("ms")),
        "code": pa.array([5, 7]).dictionary_encode(),
        "long": pa.array(["1", "2"], pa.large_string()),
        "y": [1.0, 2.0],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", dates="days")
    np.testing.assert_array_equal(table.X, [[1, 2.0**63, 0.5, 1.25, 1, 1, 0, 5, 1], [2, 1, 1, -3.5, 0, -1, -0.5, 7, 2]])
    read = read_parquet(tmp_path / "t.parquet", "small", drop=("y", 1), dates="drop")
    assert (read.columns, read.schema.dropped) == (("half", "money", "on", "code", "long"), ("large", "day", "ms", "y"))


OBJECTS = {
    "decimals": ([decimal.Decimal("1.5"), None, 2, 3], {}, [1.5, 2, 3]),
    "dates": ([dt.date(1970, 1, 2), pd.NaT, dt.date(1970, 1, 3), None], DAYS, [1, 2]),
    "NA": ([1.0, pd.NA, 2.0, 3.0], {}, [1, 2, 3]),
    "texts and numbers": (["a", 1, None, "a"], {"as_categories": "b"}, [[0, 1], [1, 0], [0, 1]]),
}


@pytest.mark.parametrize(("cells", "options", "X"), OBJECTS.values(), ids=OBJECTS)
def test_objects_are_read_by_their_type(cells, options, X):
    table = pd.DataFrame({"b": pd.Series(cells * 2, dtype=object), "y": np.arange(8.0)})
    found = read_table(table, missing="drop", **options).X
    np.testing.assert_array_equal(found, np.reshape(X * 2, (len(found), -1)))


def test_frames_have_texts_and_dates(tmp_path):
    path = write(tmp_path, "s,zip,day,y\nn,1,2026-01-01,1\ns,2,2026-01-02T12:00,2\n,1,2026-01-03,3\nn,2,,4\n")
    table = read_table(path, categories="levels", dates="days", missing="mean", as_categories="zip")
    frame, mean = table.frame(), np.mean([20454, 20455.5, 20456])
    assert [frame.s.tolist(), frame.zip.tolist()] == [["n", "s", "(missing)", "n"], ["1", "2", "1", "2"]]
    assert frame.day.astype("M8[s]").tolist()[1:2] == [pd.Timestamp("2026-01-02T12:00")]
    assert (frame.day[3] - pd.Timestamp(0)) / pd.Timedelta(days=1) == pytest.approx(mean)
    new = write(tmp_path, "s,zip,day,who\nw,3,,a\n,1,2026-01-02,\nn,2,2026-01-03,c\n", "n.csv")
    inputs = read_inputs(new, table.schema, ("who", "s"))
    assert (inputs.frame().s.tolist(), inputs.X[0, 2]) == (["w", "(missing)", "n"], pytest.approx(mean))
    assert inputs.passthrough == {"who": ("a", "", "c"), "s": ("w", "", "n")}
    dropped = read_inputs(new, table.schema.with_missing("drop"), ("who",))
    assert (dropped.rows.tolist(), dropped.passthrough, dropped.num_rows) == ([2], {"who": ("c",)}, 3)
    far = write(tmp_path, "day,y\n0001-01-01,1\n9999-12-31,2\n")
    days = read_table(far, dates="days").frame().day
    assert np.asarray(days).astype("M8[D]").tolist() == [dt.date(1, 1, 1), dt.date(9999, 12, 31)]


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
    (("inputs",), [{}]), (("inputs", 0, "name"), 5), (("inputs", 0, "name"), "color"), (("inputs", 0, "position"), 1),
    (("inputs", 0, "position"), 99), (("inputs", 0, "role"), "code"), (("inputs", 0, "levels"), ["x"]),
    (("inputs", 1, "levels"), []), (("inputs", 1, "levels"), ["b", "a"]), (("inputs", 1, "levels"), ["a", 1]),
    (("output",), {}), (("output", "role"), "level"), (("width",), 3), (("header",), 1), (("dropped",), "a"),
    (("missing",), "median"), (("fills",), [1.0]), (("fills",), [NAN] * 4), (("fills",), [10**400] * 4),
    (("decimal",), ";"), (("thousands",), "."), (("comment",), ""), (("missing_marks",), [None]),
    (("encoding",), "zip"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_damaged_schemas_are_refused(tmp_path, path, value):
    content = copy.deepcopy(fitted(tmp_path).schema.to_dict())
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    for wrong in (content, [content], {1: 2}):
        with pytest.raises(rfgp.DataError, match="not a schema"):
            Schema.from_dict(wrong)


# --- time zones ---------------------------------------------------------------------------------------

HOURS = pd.date_range("2024-03-20", periods=480, freq="h", tz="Europe/Berlin")
TIMES = pd.DataFrame({"t": HOURS, "y": np.sin(2 * np.pi * HOURS.hour / 24)})


def test_files_keep_the_kind_of_clock(tmp_path):
    """Days of files are on the local clock; a new file has its zone, or is converted, or is refused."""
    for name, frame in (("t", TIMES), ("naive", TIMES.assign(t=HOURS.tz_localize(None)))):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
    tokyo = TIMES.assign(t=HOURS.tz_convert("Asia/Tokyo"))
    tokyo.to_csv(tmp_path / "tokyo.csv", index=False)
    text, binary = (read_table(tmp_path / name, "y", dates="days") for name in ("t.csv", "t.parquet"))
    clock = (HOURS.tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta(days=1)
    for table in (text, binary, read_inputs(tmp_path / "tokyo.csv", binary.schema), read_inputs(tokyo, binary.schema)):
        np.testing.assert_allclose(table.X[:, 0], clock, rtol=0, atol=1e-9)
    for schema, name in ((text.schema, "naive.csv"), (binary.schema, "naive.parquet"), (text.schema, "tokyo.csv")):
        with pytest.raises(rfgp.DataError, match=r"zone|UTC offsets"):
            read_inputs(tmp_path / name, schema)
    with pytest.raises(rfgp.DataError, match="one offset"):
        rfgp.GP(k.RBF("t"), seed=0).condition(CSV(tmp_path / "t.csv", "y"))
    for rows, new in (((Parquet(tmp_path / "t.parquet", "y"),), tokyo), ((text.frame(), TIMES.y), text.frame())):
        gp = rfgp.GP(k.Periodic("t", 1.0), approximation=rfgp.RandomFeatures(16), seed=0).condition(*rows)
        assert np.abs(gp.predict(new).mean - TIMES.y).max() < 0.05


@pytest.mark.parametrize("step", ["1s", "100ns"])
def test_fast_ticks_of_files_are_exact(tmp_path, step):
    y, start = np.sin(np.arange(80) / 5), pd.Timestamp("2024-05-01T23:59:59.99999")
    frame = pd.DataFrame({"t": (start + np.arange(80) * pd.Timedelta(step).as_unit("ns")).astype("M8[ns]"), "y": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    kernel = k.RBF("t", lengthscale=5 * pd.Timedelta(step) / pd.Timedelta(days=1))
    gp = rfgp.GP(kernel, approximation=rfgp.Exact(), start={"noise": 1e-4}, seed=0).condition(frame, "y")
    expected = gp.predict(frame).mean
    assert np.abs(expected - y).max() < 0.01
    for path, source in ((tmp_path / "t.csv", CSV), (tmp_path / "t.parquet", Parquet)):
        np.testing.assert_allclose(gp.predict(read_table(path, "y", dates="days").frame()).mean, expected, atol=1e-6)
        np.testing.assert_allclose(gp.predict(source(path)).mean, expected, atol=1e-6)


# --- an index, identifiers and numbers as text --------------------------------------------------------

N = 60


def plain():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.standard_normal(N), "b": rng.standard_normal(N), "y": rng.standard_normal(N)})


INDEXES = {
    "pandas": (lambda path: plain().to_csv(path), ("a", "b"), "left out", "Unnamed: 0"),
    "R": (lambda path: plain().set_index(np.arange(1, N + 1)).to_csv(path), ("a", "b"), "left out", "Unnamed: 0"),
    "gaps": (lambda path: plain()[::2].to_csv(path), ("Unnamed: 0", "a", "b"), "is an input", "Unnamed: 0"),
    "Parquet": (
        lambda path: pq.write_table(pa.table({**plain().to_dict("list"), "__index_level_0__": range(N)}), path),
        ("a", "b"),
        "left out",
        "__index_level_0__",
    ),
    "order": (
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


SOURCES = {
    "CSV": lambda table, path: (table.to_csv(path, index=False), CSV(path, "y"))[1],
    "Parquet": lambda table, path: (table.to_parquet(path, index=False), Parquet(path, "y"))[1],
    "blocks": lambda table, path: Batches([table[:40], table[40:]], "y"),
    "frame": lambda table, path: table,
}


NAMES = ["Unnamed: 0", "", "Unnamed: 0.1", "__index_level_0__"]


@pytest.mark.parametrize(("make", "name"), [*zip(SOURCES, NAMES, strict=True)])
@pytest.mark.parametrize(("step", "words"), [(1, "left out"), (3, "is an input")])
def test_models_leave_an_index_out(tmp_path, make, name, step, words):
    table = plain()
    table.insert(0, name, step * np.arange(N))

    def conditioned():
        source = SOURCES[make](table, tmp_path / "t")
        return rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).condition(source, *["y"] * (make == "frame"))

    with pytest.warns(rfgp.IndexColumnWarning, match=words):
        gp = conditioned()
    used = table[["a", "b"] if step == 1 else [name, "a", "b"]]
    expected = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).condition(used.to_numpy(), table["y"])
    np.testing.assert_allclose(gp.predict(table[7:9]).mean, expected.predict(used.to_numpy()[7:9]).mean)


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
    "polars": lambda folder: auto().fit(pl.DataFrame(FRAME), "y"),
    "Arrow": lambda folder: auto().fit(pa.Table.from_pandas(FRAME), "y"),
    "lists": lambda folder: auto().fit({"price": TEXTS}, FRAME.y),
    "strings": lambda folder: auto().fit({"price": np.array(TEXTS)}, FRAME.y),
    "objects": lambda folder: auto().fit(FRAME[["a", "price"]].to_numpy(), FRAME.y),
    "targets": lambda folder: auto().fit(FRAME[["a"]], np.array(TEXTS)),
    "all columns": lambda folder: rfgp.GP(k.RBF(), seed=0).fit(FRAME, "y"),
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
    with pytest.raises(rfgp.DataError, match="numbers"):
        READERS[reader](tmp_path)


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
        (chunk,) = source(path, "y", numbers={"price": EXAMPLE}).tables()
        np.testing.assert_array_equal(chunk.X["price"], PRICES)
        (chunk,) = source(path, "price", numbers={"price": EXAMPLE}).chunks()
        np.testing.assert_array_equal(chunk.y, PRICES)
        table = read_table(path, "y", numbers={"price": EXAMPLE})
        np.testing.assert_array_equal(read_back(path, table).X[:, 1], PRICES)


def test_identifiers_are_refused_unless_they_are_named(tmp_path):
    names = [f"n{i // 2}" if i < 40 else f"n{i}" for i in range(240)]
    frame = FRAME[["a", "y"]].assign(name=names)
    with pytest.raises(rfgp.DataError, match="Drop it"):
        auto().fit(frame, "y")
    with pytest.raises(rfgp.DataError, match="drop="):
        read_table(frame, "y", categories="levels")
    declared = read_table(frame, "y", categories="levels", as_categories="name").frame()
    assert declared.name.dtype == "category"
    unique = write(tmp_path, "name,a,y\nx,1,1\ny,2,2\n,3,3\n")
    with pytest.warns(rfgp.IdentifierWarning, match="'name' is left out") as caught:
        table = read_table(unique, categories="levels")
    assert (table.columns, [entry.filename for entry in caught]) == (("a",), [__file__])
