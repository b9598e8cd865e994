"""What the cells of good files become."""

import dataclasses
import datetime as dt
import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rfgp.errors import DataError
from rfgp.tables import Schema, Table, read_csv, read_inputs, read_parquet, read_table

DATA = Path(os.environ.get("RFGP_DATA_DIR", Path(__file__).parents[4] / "shared" / "data"))


def write(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_headers_targets_and_separators(tmp_path):
    table = read_csv(write(tmp_path, "a,b,price\n1,2,3\n4,5,6\n"))
    assert (table.columns, table.target) == (("a", "b"), "price")
    np.testing.assert_array_equal(table.X, [[1, 2], [4, 5]])
    np.testing.assert_array_equal(table.y, [3, 6])
    assert read_csv(tmp_path / "t.csv", "a").columns == ("b", "price")
    assert read_csv(tmp_path / "t.csv", "1").target == "b"
    assert read_csv(tmp_path / "t.csv", "-3").target == "a"
    for text in ("1;2;3\n4;5;6\n", "1\t2\t3\n4\t5\t6\n", " 1  2 3\n4 5   6\n", "1, 2, 3\n4, 5, 6\n"):
        plain = read_csv(write(tmp_path, text, "plain.txt"))
        assert plain.columns == ("0", "1")
        np.testing.assert_array_equal(plain.X, [[1, 2], [4, 5]])


def test_byte_order_marks_quotes_and_line_ends(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"size, cm",price\r\n1,2\r\n3,4\r\n')
    table = read_csv(path, "price")
    assert table.columns == ("size, cm",)
    np.testing.assert_array_equal(table.X[:, 0], [1, 3])
    path.write_bytes(b"\xef\xbb\xbf1,2\n3,4\n")
    assert read_csv(path).columns == ("0",)


NUMBERS = st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=NUMBERS, mark=st.sampled_from([",", ";", "\t", " ", "   ", ", "]), header=st.booleans(), packed=st.booleans()
)
def test_written_numbers_come_back(tmp_path, rows, mark, header, packed):
    lines = [mark.join(map(repr, row)) for row in rows]
    text = "\n".join([mark.join(("first", "second", "third"))] * header + lines).encode()
    path = write(tmp_path, gzip.compress(text) if packed else text, "t.csv.gz" if packed else "t.csv")
    table = read_table(path)
    np.testing.assert_array_equal(np.column_stack([table.X, table.y]), np.array(rows))
    assert table.columns == (("first", "second") if header else ("0", "1"))
    assert (table.schema.header, table.classes) == (header, None)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=NUMBERS, mark=st.sampled_from([";", "\t", " "]))
def test_decimal_commas_come_back(tmp_path, rows, mark):
    text = "\n".join(mark.join(repr(x).replace(".", ",") for x in row) for row in rows)
    table = read_table(write(tmp_path, text), decimal=",")
    np.testing.assert_array_equal(np.column_stack([table.X, table.y]), np.array(rows))


def mixed_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.standard_normal(40), "count": rng.integers(-(10**12), 10**12, 40)})
    frame["color"] = np.array(["red", "sea green", "blue, light"])[np.arange(40) % 3]
    frame["on"] = rng.random(40) < 0.5
    frame["day"] = pd.date_range("1931-02-03", periods=40, freq="37D")
    frame["at"] = pd.date_range(
        "2024-02-28T23:59:58.123456", periods=40, freq=pd.Timedelta(seconds=7777), tz="Europe/Berlin"
    )
    frame["y"] = np.where(frame["x"] > 0, "yes", "no")
    return frame


@pytest.mark.parametrize("missing", ["drop", "mean"])
def test_csv_and_parquet_give_the_same_table(tmp_path, missing):
    frame = mixed_frame()
    frame.loc[[3, 7], "x"] = np.nan
    frame.loc[[5], "color"] = None
    frame.loc[[6], "day"] = pd.NaT
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    frame.astype({"color": "category"}).to_parquet(tmp_path / "c.pq", index=False)
    options = {"categories": "one-hot", "dates": "days", "missing": missing}
    text = read_table(tmp_path / "t.csv", **options)
    for name in ("t.parquet", "c.pq"):
        table = read_table(tmp_path / name, **options)
        np.testing.assert_array_equal(table.X, text.X)
        np.testing.assert_array_equal(table.y, text.y)
        np.testing.assert_array_equal(table.rows, text.rows)
        rules = [dataclasses.replace(rule, zone="") for rule in (*table.schema.inputs, *text.schema.inputs)]
        assert rules[: len(rules) // 2] == rules[len(rules) // 2 :]
    assert text.columns[2:5] == ("color=blue, light", "color=red", "color=sea green")
    assert len(text.X) == (36 if missing == "drop" else 40)
    slow = [(stamp.tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta(days=1) for stamp in frame["at"]]
    np.testing.assert_allclose(text.X[:, -1], np.array(slow)[text.rows], rtol=0, atol=1e-10)


def test_parquet_types(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    table = read_parquet(tmp_path / "t.parquet", dates="days")
    expected = [[1, 2.0**63, 0.5, 1.25, 1, 1, 0, 5, 1], [2, 1, 1, -3.5, 0, -1, -0.5, 7, 2]]
    np.testing.assert_array_equal(table.X, expected)
    read = read_parquet(tmp_path / "t.parquet", "small", drop=("y", 1), dates="drop")
    assert read.columns == ("half", "money", "on", "code", "long")
    assert read.schema.dropped == ("large", "day", "ms", "y")


def test_dates(tmp_path):
    spelled = [
        ("1970-01-02", 1.0),
        ("1969-12-31T12:00", -0.5),
        ("1970-01-01 06:00:00", 0.25),
        ("0001-01-01", -719162.0),
        ("2024-02-29", 19782.0),
    ]
    text = "t,b\n" + "".join(f"{spelling},1\n" for spelling, _ in spelled)
    table = read_table(write(tmp_path, text), dates="days")
    np.testing.assert_array_equal(table.X[:, 0], [days for _, days in spelled])
    assert table.schema.inputs[0].role == "date"
    with pytest.raises(DataError, match="with and without"):
        read_table(write(tmp_path, text + "1970-01-01T06:00:00Z,1\n"), dates="days")
    text = "t,b\n1970-01-01T06:00:00Z,1\n1970-01-01 06:00:00 +06:00,2\n1970-01-01T06:00:00.5-0600,3\n"
    table = read_table(write(tmp_path, text), dates="days")
    np.testing.assert_array_equal(table.X[:, 0], [0.25, 0.25, 0.25 + 0.5 / 86400])
    assert table.schema.inputs[0].zone == "+00:00 +06:00 -06:00"
    table = read_table(write(tmp_path, "2024-01-01,1,5\n2024-01-02,2,6\n"), dates="drop")
    assert (table.columns, table.schema.header) == (("1",), False)
    table = read_table(write(tmp_path, "a,t\n1,1970-01-03\n"), dates="days")
    np.testing.assert_array_equal(table.y, [2])


def test_truth_and_targets_with_classes(tmp_path):
    text = "on,off,kind\nTrue,true,b\nFalse,FALSE,a\nTrue,,b\nFalse,TRUE,c\nTrue,true,c\n"
    table = read_csv(write(tmp_path, text), missing="drop")
    np.testing.assert_array_equal(table.X, [[1, 1], [0, 0], [0, 1], [1, 1]])
    assert table.classes == table.schema.classes == ("a", "b", "c")
    np.testing.assert_array_equal(table.y, [1, 0, 2, 2])
    np.testing.assert_array_equal(table.rows, [0, 1, 3, 4])


def test_categories(tmp_path):
    path = write(tmp_path, "color,size,y\nred,1,1\nblue,2,2\nred,3,3\n,4,4\n")
    table = read_table(path, categories="one-hot", missing="mean")
    assert table.columns == ("color=blue", "color=red", "size")
    np.testing.assert_allclose(table.X, [[0, 1, 1], [1, 0, 2], [0, 1, 3], [1 / 3, 2 / 3, 4]])
    assert table.schema.imputed_means == (pytest.approx(1 / 3), pytest.approx(2 / 3), 2.5)
    table = read_table(path, categories="one-hot", missing="drop", drop="size")
    np.testing.assert_array_equal(table.X, [[0, 1], [1, 0], [0, 1]])
    table = read_table(path, categories="drop")
    assert (table.columns, table.schema.dropped, len(table.y)) == (("size",), ("color",), 4)
    rows = "red,1\nblue,2\nred,3\ngreen,\n"
    table = read_table(write(tmp_path, "c,y\n" + rows), categories="one-hot", missing="drop")
    assert table.columns == ("c=blue", "c=red")


def test_a_mixed_column_is_a_category_only_when_named(tmp_path):
    text = "doors,grade,y\n" + "2,01,7\n3,1,8\n4,1,9\n5more,01,7\n" * 2
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=r"'doors' holds text .* name the column in as_categories"):
        read_table(path, categories="one-hot")
    table = read_table(path, as_categories=("doors", 1, "y"))
    assert table.columns == ("doors=2", "doors=3", "doors=4", "doors=5more", "grade=01", "grade=1")
    assert table.classes == ("7", "8", "9")
    np.testing.assert_array_equal(table.y[:4], [0, 1, 2, 0])
    np.testing.assert_array_equal(read_inputs(path, table.schema).X, table.X)


@pytest.mark.parametrize(
    ("decimal", "mark"), [(".", ","), (".", "'"), (".", "_"), (".", " "), (".", "\u202f"), (",", "."), (",", " ")]
)
def test_thousands_come_back(tmp_path, decimal, mark):
    numbers = [1200.0, 950.0, -1234567.5, 0.125, 12.0, 3e3]
    cells = [f"{number:,.10g}".translate({ord(","): mark, ord("."): decimal}) for number in numbers]
    text = "a;b\n" + "".join(f"{cell};{place}\n" for place, cell in enumerate(cells))
    table = read_table(write(tmp_path, text), decimal=decimal, thousands=mark)
    np.testing.assert_array_equal(table.X[:, 0], numbers)
    schema = Schema.from_dict(table.schema.to_dict())
    assert schema.thousands == mark
    np.testing.assert_array_equal(read_inputs(write(tmp_path, text), schema).X, table.X)
    bare = read_table(write(tmp_path, text.split("\n", 1)[1]), decimal=decimal, thousands=mark)
    np.testing.assert_array_equal(bare.X, table.X)  # the first line is no header


def test_a_schema_of_before_has_no_separator_of_thousands(tmp_path):
    content = read_table(write(tmp_path, "a;b\n1;2\n3;4\n")).schema.to_dict()
    assert "thousands" not in content
    assert Schema.from_dict(content).thousands is None


def test_spellings(tmp_path):
    table = read_table(write(tmp_path, "a;b\n1,5;2,25\n -3,5 ;+4\n"), decimal=",")
    np.testing.assert_array_equal(table.X[:, 0], [1.5, -3.5])
    np.testing.assert_array_equal(table.y, [2.25, 4])
    table = read_table(write(tmp_path, '"1,5","2"\n"2,5","3"\n'), decimal=",")
    np.testing.assert_array_equal(table.X[:, 0], [1.5, 2.5])
    table = read_table(
        write(tmp_path, "% note\n a , b \n%\n1,2\n ? ,3\n   \n4,5\n\n"),
        comment="%",
        missing_marks=["?"],
        missing="drop",
    )
    assert (table.columns, table.target) == (("a",), "b")
    np.testing.assert_array_equal(table.X[:, 0], [1, 4])
    np.testing.assert_array_equal(table.rows, [0, 2])
    table = read_table(write(tmp_path, "größe,b\n1,2\n".encode("latin-1")), encoding="latin-1")
    assert table.columns == ("größe",)
    table = read_table(write(tmp_path, "größe,b\n1,2\n".encode("utf-16")), encoding="utf-16")
    assert table.columns == ("größe",)
    table = read_table(write(tmp_path, 'c "d" e\n"x y" 1  2\nz 3 4\n"x y" 5 6 \n'), "e", categories="one-hot")
    assert table.columns == ("c=x y", "c=z", "d")
    table = read_table(write(tmp_path, '"a\nb", "c, d",y\n1,2,3\n'))
    assert table.columns == ("a\nb", "c, d")
    table = read_table(write(tmp_path, b"a,b\r1,2\r3,4"))
    np.testing.assert_array_equal(table.y, [2, 4])
    np.testing.assert_array_equal(read_table(write(tmp_path, ",x,y\n0,5,6\n1,7,8\n"), drop=0).X, [[5], [7]])
    assert read_table(write(tmp_path, "1,,3\n4,5,6\n"), missing="drop").schema.header is False


def test_a_late_text_cell_in_a_column_of_numbers_is_found(tmp_path):
    text = "a,b\n" + "1,2\n" * 500 + "True,2\n"
    with pytest.raises(ValueError, match=r"'a' holds text \('True' in row 500, 1 such cell\) among 500 numbers"):
        read_table(write(tmp_path, text))
    table = read_table(write(tmp_path, "a,b\n" + "1,2\n" * 500 + " NA ,2\n"), missing="drop")
    assert len(table.y) == 500


def test_names_targets_and_drops(tmp_path):
    path = write(tmp_path, "1,2,3,4\n5,6,7,8\n")
    table = read_table(path, "b", names=["a", "b", "c", "d"], drop=("a",))
    assert (table.columns, table.target, table.schema.header) == (("c", "d"), "b", False)
    assert read_table(path, -2).target == "2"
    assert read_table(path, drop=-1).target == "2"
    assert read_table(path, 0, drop=("1", 2)).columns == ("3",)
    assert read_table(write(tmp_path, "a,a,b\n1,2,3\n"), drop=1).columns == ("a",)


def test_a_table_of_arrays_has_a_schema():
    table = Table(np.zeros((3, 2)), np.zeros(3), ("a", "b"), "y")
    assert (table.schema.columns, table.schema.target, table.schema.width) == (("a", "b"), "y", 3)
    np.testing.assert_array_equal(table.rows, [0, 1, 2])


REAL = {
    "classification/abalone.data": (4177, 10, None, {"categories": "one-hot", "names": [*"abcdefgh", "rings"]}),
    "classification/banknote.txt": (1372, 4, None, {}),
    "classification/car.data": (
        1728,
        21,
        4,
        {"categories": "one-hot", "as_categories": ("c", "d"), "names": list("abcdefy")},
    ),
    "classification/chess.data": (28056, 23, 18, {"categories": "one-hot", "names": list("abcdefy")}),
    "classification/cmc.data": (1473, 9, None, {}),
    "classification/nursery.data": (
        12960,
        27,
        5,
        {"categories": "one-hot", "as_categories": "d", "names": list("abcdefghy")},
    ),
    "classification/wifi.txt": (2000, 7, None, {}),
    "classification/yeast.data": (1484, 8, 10, {"drop": 0, "names": list("abcdefghiy")}),
    "uci/power-plant.txt": (9568, 4, None, {}),
}


@pytest.mark.parametrize("name", REAL)
def test_public_tables(name):
    if not (DATA / name).is_file():
        pytest.skip(f"{name} is not there; name its folder in RFGP_DATA_DIR")
    n, d, classes, options = REAL[name]
    table = read_table(DATA / name, **options)
    assert len(table.y) == n
    assert d is None or table.X.shape[1] == d
    assert (None if table.classes is None else len(table.classes)) == classes
    assert np.isfinite(table.X).all()
