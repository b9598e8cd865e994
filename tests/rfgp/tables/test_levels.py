"""Columns that a kernel names: levels as texts, dates as days, and nothing else of the file."""

import numpy as np
import pytest

import rfgp
from rfgp.columns.days import to_days
from rfgp.tables import Schema, read_inputs, read_table
from rfgp.tables.table import times_of


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "t.csv").write_text(
        "id,store,day,size,note,units\n"
        "A1,north,2026-01-01,1.5,x,1\n"
        "A2,south,2026-01-02,,y,2\n"
        "A3,north,2026-01-03,2.5,z,\n"
        "A4,east,2026-01-04,3.5,z,4\n"
    )
    return tmp_path / "t.csv"


WANTED = {"columns": ("size", "day", "store"), "levels": ("store",), "dates": "days", "missing": "mean"}


def test_named_columns_alone_are_read(shop):
    table = read_table(shop, "units", **WANTED)
    assert table.columns == ("store", "day", "size")
    assert table.schema.inputs[0].role == "level"
    assert table.schema.inputs[0].levels == ("east", "north", "south")
    assert table.rows.tolist() == [0, 1, 3]  # a row without a target is left out
    np.testing.assert_array_equal(table.X, [[1, 20454, 1.5], [2, 20455, 2.5], [0, 20457, 3.5]])
    assert table.frame().store.tolist() == ["north", "south", "east"]
    assert table.num_rows == 4


def test_a_schema_of_levels_is_read_back_and_reads_new_levels(shop, tmp_path):
    schema = read_table(shop, "units", **WANTED).schema
    assert Schema.from_dict(schema.to_dict()) == schema
    (tmp_path / "n.csv").write_text(
        "size,store,day,who\n1,west,2026-01-01,a\n,north,2026-01-02,\n2,west,2026-01-03,c\n"
    )
    inputs = read_inputs(tmp_path / "n.csv", schema, ("who", "store"))
    assert inputs.frame().store.tolist() == ["west", "north", "west"]
    assert inputs.rules[0].levels == ("east", "north", "south", "west")
    assert inputs.frame()["size"].tolist() == [1, 2.5, 2]
    assert inputs.passthrough == {"who": ("a", "", "c"), "store": ("west", "north", "west")}
    with pytest.raises(rfgp.InvalidArgumentError, match="no column 'whom'"):
        read_inputs(tmp_path / "n.csv", schema, ("whom",))
    dropped = read_inputs(tmp_path / "n.csv", schema.with_missing("drop"), ("who",))
    assert (dropped.rows.tolist(), dropped.passthrough) == ([0, 2], {"who": ("a", "c")})


def test_numbers_as_levels_stay_numbers_unless_forced(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,3\n2,2,4\n")
    assert read_table(tmp_path / "t.csv", levels=("a",)).frame().a.tolist() == [1.0, 2.0]
    assert read_table(tmp_path / "t.csv", levels=("a",), as_categories=("a",)).frame().a.tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ("a", "y")}, "'y' must not be an input, since it is the target"),
        ({"columns": ("a",), "drop": ("a",)}, "among the columns to drop"),
        ({"columns": ("z",)}, "no column 'z'"),
        ({"levels": ("z",)}, "no column 'z'"),
    ],
)
def test_wrong_columns_are_named(options, words, tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,3\n2,2,4\n")
    with pytest.raises(rfgp.InvalidArgumentError, match=words):
        read_table(tmp_path / "t.csv", "y", **options)


def test_a_target_is_no_level(shop):
    content = read_table(shop, "units", **WANTED).schema.to_dict()
    content["output"] |= {"role": "level", "levels": ["a"]}
    with pytest.raises(rfgp.DataError, match="role 'level'"):
        Schema.from_dict(content)


def test_texts_and_dates_are_columns_of_the_frame(tmp_path):
    (tmp_path / "t.csv").write_text(
        "store,zip,day,y\nn,1,2026-01-01,1\ns,2,2026-01-02T12:00,2\n,1,2026-01-03,3\nn,2,,4\n"
    )
    table = read_table(tmp_path / "t.csv", categories="levels", dates="days", missing="mean", as_categories="zip")
    frame = table.frame()
    assert frame.store.tolist() == ["n", "s", "(missing)", "n"]
    assert frame.zip.tolist() == ["1", "2", "1", "2"]
    assert frame.day.dtype.kind == "M"
    assert str(frame.day[1]) == "2026-01-02 12:00:00"
    assert frame.day.astype("int64").tolist()[3] == round(frame.day[:3].astype("int64").mean())
    (tmp_path / "n.csv").write_text("store,zip,day\n,3,\n")
    inputs = read_inputs(tmp_path / "n.csv", table.schema)
    assert inputs.frame().store.tolist() == ["(missing)"]
    assert inputs.X[:, 2].tolist() == pytest.approx([table.X[:, 2].mean()])


def test_dates_far_off_are_times():
    days = np.array([-3e9, 0.5, 3e9])
    assert times_of(days).dtype == "datetime64[s]"
    np.testing.assert_array_equal(to_days(times_of(days)), days)


def test_texts_of_an_identifier_are_left_out(tmp_path):
    (tmp_path / "t.csv").write_text("name,a,y\nx,1,1\ny,2,2\n,3,3\n")
    with pytest.warns(rfgp.IdentifierWarning, match="'name' is left out: each of its 2 texts is different") as caught:
        table = read_table(tmp_path / "t.csv", categories="levels")
    assert [entry.filename for entry in caught] == [__file__]
    assert (table.columns, table.schema.dropped) == (("a",), ("name",))
    (tmp_path / "t.csv").write_text("sold,a,y\n01/02/2026,1,1\n02/02/2026,2,2\n03/02/2026,3,3\n")
    with pytest.raises(rfgp.DataError, match="Dates must be ISO"):
        read_table(tmp_path / "t.csv", categories="levels")
