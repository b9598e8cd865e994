"""Schemas as JSON, and new files read by them."""

import copy
import json

import numpy as np
import pytest

import rfgp
from rfgp.tables import ColumnRule, Schema, read_inputs, read_table

TEXT = "a,color,when,y\n1,red,2024-01-01,b\n2,blue,2024-01-02,a\n3,red,2024-01-03,b\n,blue,2024-01-04,a\n"


def write(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def fitted(tmp_path, missing="mean"):
    return read_table(write(tmp_path, TEXT, "fit.csv"), categories="one-hot", dates="days", missing=missing)


def test_json_round_trip(tmp_path):
    for missing in ("mean", "drop"):
        schema = fitted(tmp_path, missing).schema
        assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert schema.columns == ("a", "color=blue", "color=red", "when")
    assert (schema.target, schema.classes) == ("y", ("a", "b"))
    schema = Schema.of_numbers(("a", "b"), "y")
    assert Schema.from_dict(schema.to_dict()) == schema


CHANGES = [
    (("version",), 2),
    (("version",), True),
    (("extra",), 1),
    (("inputs",), None),
    (("inputs",), []),
    (("inputs",), [1]),
    (("inputs",), [{}]),
    (("inputs", 0), {"name": "a"}),
    (("inputs", 0, "name"), 5),
    (("inputs", 0, "name"), "color"),
    (("inputs", 0, "position"), 1),
    (("inputs", 0, "position"), -1),
    (("inputs", 0, "position"), True),
    (("inputs", 0, "position"), 99),
    (("inputs", 0, "role"), "code"),
    (("inputs", 0, "levels"), ["x"]),
    (("inputs", 1, "levels"), []),
    (("inputs", 1, "levels"), ["b", "a"]),
    (("inputs", 1, "levels"), ["a", "a"]),
    (("inputs", 1, "levels"), ["a", 1]),
    (("inputs", 1, "levels"), "ab"),
    (("output",), []),
    (("output",), {}),
    (("width",), 3),
    (("width",), 4.0),
    (("header",), 1),
    (("dropped",), "a"),
    (("missing",), "median"),
    (("missing",), "error"),
    (("fills",), [1.0]),
    (("fills",), [float("nan")] * 4),
    (("fills",), [10**400] * 4),
    (("fills",), ["1"] * 4),
    (("fills",), [True] * 4),
    (("decimal",), ";"),
    (("thousands",), "."),
    (("thousands",), 3),
    (("comment",), ""),
    (("comment",), 3),
    (("missing_marks",), [None]),
    (("encoding",), "os;system"),
    (("encoding",), "zip"),
]


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_bad_schemas_are_refused(tmp_path, path, value):
    content = copy.deepcopy(fitted(tmp_path).schema.to_dict())
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(rfgp.DataError, match=r"This is not a schema that can be used: .*\.$"):
        Schema.from_dict(content)


@pytest.mark.parametrize("content", [None, [], 5, "x", {}, {"version": 1}, {1: 2}])
def test_things_that_are_no_schema(content):
    with pytest.raises(rfgp.DataError, match="not a schema"):
        Schema.from_dict(content)


def test_inputs_are_found_by_name(tmp_path):
    table = fitted(tmp_path)
    again = read_inputs(tmp_path / "fit.csv", table.schema)
    np.testing.assert_array_equal(again.X, table.X)
    np.testing.assert_array_equal(again.y, table.y)
    path = write(tmp_path, "more,when,color,a\nx,2024-01-02,blue,5\ny,1970-01-01,,\n")
    new = read_inputs(path, table.schema)
    np.testing.assert_allclose(new.X, [[5, 1, 0, 19724], [2, 0.5, 0.5, 0]])
    assert (new.y, new.num_rows) == (None, 2)
    np.testing.assert_array_equal(new.rows, [0, 1])
    new = read_inputs(write(tmp_path, "y,when,color,a\nb,2024-01-02,red,5\n,2024-01-02,red,5\n"), table.schema)
    assert new.y is None


def test_rows_with_gaps_are_left_out(tmp_path):
    schema = fitted(tmp_path, "drop").schema
    path = write(
        tmp_path, "a,color,when,y\n,red,2024-01-01,\n2,blue,2024-01-01,a\n3,,2024-01-01,b\n4,red,2024-01-01,b\n"
    )
    new = read_inputs(path, schema)
    np.testing.assert_array_equal(new.X, [[2, 1, 0, 19723], [4, 0, 1, 19723]])
    np.testing.assert_array_equal(new.rows, [1, 3])
    np.testing.assert_array_equal(new.y, [0, 1])
    assert new.num_rows == 4
    with pytest.raises(rfgp.DataError, match="at least one row must have all values"):
        read_inputs(write(tmp_path, "a,color,when\n,red,2024-01-01\n"), schema)


def test_inputs_are_found_by_position(tmp_path):
    schema = read_table(write(tmp_path, "1,10,2\n3,30,4\n"), target=1).schema
    new = read_inputs(write(tmp_path, "5;6;7\n8;9;10\n"), schema)
    np.testing.assert_array_equal(new.X, [[5, 7], [8, 10]])
    np.testing.assert_array_equal(new.y, [6, 9])
    new = read_inputs(write(tmp_path, "5,7\n8,10\n"), schema)
    np.testing.assert_array_equal(new.X, [[5, 7], [8, 10]])
    assert new.y is None
    single = read_table(write(tmp_path, "x,y\n1,2\n3,4\n")).schema
    np.testing.assert_array_equal(read_inputs(write(tmp_path, "x\n5\n6\n"), single).X, [[5], [6]])


def test_number_like_levels_keep_their_spelling(tmp_path):
    text = "grade,y\n" + "01,1\nx,2\ny,3\n" * 4
    schema = read_table(write(tmp_path, text), categories="one-hot").schema
    new = read_inputs(write(tmp_path, "grade\n01\n01\n"), schema)
    np.testing.assert_array_equal(new.X, [[1, 0, 0]] * 2)
    with pytest.warns(rfgp.NewLevelWarning, match="'grade' has 1 level without training rows: 1"):
        new = read_inputs(write(tmp_path, "grade\n1\n01\n"), schema)
    np.testing.assert_array_equal(new.X, [[0, 0, 0], [1, 0, 0]])


def test_other_classes_of_a_target_are_refused(tmp_path):
    schema = read_table(write(tmp_path, "a,y\n1,u\n2,v\n3,u\n"), "y").schema
    with pytest.raises(rfgp.DataError, match=r"holds 'w' in row 0 \(1 such cell\); the model knows 2 levels: u, v"):
        read_inputs(write(tmp_path, "a,y\n1,w\n2,v\n"), schema)


def test_parquet_inputs(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = fitted(tmp_path).schema
    pq.write_table(
        pa.table(
            {"color": ["red", None], "a": pa.array([1, 2]), "when": pa.array([0, 1], pa.date32()), "z": [[1], [2]]}
        ),
        tmp_path / "new.parquet",
    )
    new = read_inputs(tmp_path / "new.parquet", schema)
    np.testing.assert_array_equal(new.X, [[1, 0, 1, 0], [2, 0.5, 0.5, 1]])


def test_rules_name_their_columns():
    assert ColumnRule("c", 0, "category", ("a", "b")).encoded == ("c=a", "c=b")
    assert ColumnRule("c", 0).encoded == ("c",)
