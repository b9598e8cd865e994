"""Dataframes are read as files are."""

import datetime
import decimal
import doctest

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rfgp
from rfgp.tables import read_inputs, read_table, reading


def frame(n=12):
    """Return columns of all kinds that a table may hold, and a target."""
    return pd.DataFrame(
        {
            "size": np.arange(n) / 7,
            "color": ["red", "blue"] * (n // 2),
            "when": pd.date_range("1958-03-29", periods=n),
            "count": pd.array([1, pd.NA, *range(n - 2)], dtype="Int64"),
            "is_new": [True, False] * (n // 2),
            "y": np.sin(np.arange(n)),
        }
    )


OPTIONS = {"categories": "one-hot", "dates": "days", "missing": "drop"}
WAYS = {"pandas": lambda t: t, "arrow": lambda t: pa.Table.from_pandas(t, preserve_index=False)}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_frame_is_read_as_its_parquet_file(way, tmp_path):
    frame().to_parquet(tmp_path / "t.parquet")
    expected = read_table(tmp_path / "t.parquet", "y", **OPTIONS)
    found = read_table(way(frame()), "y", **OPTIONS)
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    assert (found.schema, found.rows.tolist()) == (expected.schema, expected.rows.tolist())
    new = read_inputs(way(frame()[3:8].drop(columns="y")), found.schema)
    np.testing.assert_array_equal(new.X, expected.X[2:7])


def test_the_remedy_of_missing_cells_works():
    with pytest.raises(rfgp.DataError, match="Leave such rows out"):
        rfgp.GP().fit(frame().drop(columns="y"), frame()["y"])
    table = read_table(frame(), "y", categories="one-hot", dates="days", missing="drop")
    assert rfgp.ExactGP().condition(table.X, table.y).predict(table.X).mean.shape == (11,)


OBJECTS = {
    "mixed": (["a", 1, None, "a"], ("b=1", "b=a")),
    "decimals": ([decimal.Decimal("1.5"), None, 2, 3], ("b",)),
    "dates": ([datetime.date(2020, 1, 1), pd.NaT, datetime.date(2020, 1, 2), None], ("b",)),
    "pandas.NA": ([1.0, pd.NA, 2.0, 3.0], ("b",)),
}


@pytest.mark.parametrize(("cells", "columns"), OBJECTS.values(), ids=OBJECTS)
def test_objects_are_read_by_their_type(cells, columns):
    table = pd.DataFrame({"b": pd.Series(cells * 2, dtype=object), "y": np.arange(8.0)})
    assert read_table(table, as_categories="b" if len(columns) > 1 else (), **OPTIONS).columns == columns


def test_integers_that_look_like_dates_are_numbers(tmp_path):
    days = [19580329, 19580330, 19580331, 19600101]
    table = pd.DataFrame({"day": days, "y": [1.0, 2.0, 3.0, 5.0]})
    table.to_csv(tmp_path / "t.csv", index=False)
    for given in (table, tmp_path / "t.csv"):
        for dates in ("error", "days"):
            assert read_table(given, dates=dates).X[:, 0].tolist() == days
    gap = table.assign(day=pd.array([*days[:3], pd.NA], dtype="Int64"))
    for call in (lambda: read_table(gap), lambda: rfgp.ExactGP().condition(gap[["day"]], gap["y"])):
        with pytest.raises(rfgp.DataError) as found:
            call()
        assert "date" not in str(found.value)


def test_all_faults_of_a_table_are_named_at_once(tmp_path):
    table = frame().assign(size=lambda t: t["size"].where(t.index != 4), name=[f"n{i}" for i in range(12)])
    table.loc[[2, 3], "color"] = None
    table = table[["size", "color", "when", "name", "y"]]
    table.to_csv(tmp_path / "t.csv", index=False)
    for given in (table, tmp_path / "t.csv"):
        with pytest.raises(rfgp.DataError) as found:
            read_table(given)
        lines = str(found.value).splitlines()
        for line, words in zip(
            lines,
            [
                ("'size' has 1 missing", "row 4", 'missing="drop"'),
                ("'color' holds text ('red' in row 0, 10 such cells)", 'categories="one-hot"'),
                ("'color' has 2 missing", "row 2"),
                ("'when' holds dates", 'dates="days"'),
                ("'name' holds text ('n0' in row 0, 12 such cells)", "identifier", "drop='name'"),
            ],
            strict=True,
        ):
            assert all(word in line for word in words), line
        assert read_table(given, drop="name", **OPTIONS).X.shape == (9, 4)


def test_faults_of_wide_tables_are_counted_by_kind(tmp_path):
    columns = {f"t{i}": ["x", "x", "y"] for i in range(30)} | {f"g{i}": [1, None, 2] for i in range(20)}
    with pytest.raises(rfgp.DataError, match="And 42 more columns: 22 with text, 20 with missing cells") as found:
        read_table(pd.DataFrame({**columns, "y": [1.0, 2.0, 3.0]}))
    assert len(str(found.value).splitlines()) == 9


@pytest.mark.parametrize("given", [np.zeros((3, 2)), [[1, 2]], None, 7])
def test_error_names_objects_that_are_no_table(given):
    with pytest.raises(rfgp.InvalidArgumentError, match="path of a file"):
        read_table(given)


def test_faults_of_frames_name_rows_without_a_header():
    with pytest.raises(rfgp.DataError, match=r"^The dataframe: column 'a' has .* in row 1 .*Rows count from 0\.$"):
        read_table(pd.DataFrame({"a": [1.0, np.nan], "y": [1.0, 2.0]}))


def test_the_example_of_read_table_runs():
    found = doctest.testmod(reading)
    assert (found.failed, found.attempted > 0) == (0, True)
