"""Schemas as JSON, and damaged ones."""

import json

import numpy as np
import pytest

import graphs
from rfgp import DataError, InvalidArgumentError
from rfgp.columns import ColumnKind, ColumnRequest, Schema, Table

NUMBER, _, LEVEL, NODE = ColumnKind


def fitted():
    graph = graphs.Graph.from_edges([("a", "b")])
    dates = np.array(["2024-01-01", "2024-01-02"], "M8[D]")
    table = Table.of(
        {
            "t": [1.0, 2.0],
            "day": dates,
            "s": ["x", "\ud800"],
            "b": [True, False],
            "i": [7, 10**30],
            "node": ["a", "b"],
        }
    )
    wanted = [ColumnRequest(key, NUMBER, f"rbf({key})") for key in ("t", "day")]
    wanted += [ColumnRequest(key, LEVEL, f"group({key})") for key in "sbi"]
    return Schema.fit([*wanted, ColumnRequest("node", NODE, "nodes", graph)], table), graph, table


def test_a_schema_comes_back_from_json():
    schema, graph, table = fitted()
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())), [graph])
    assert again == schema
    assert again.read(table).equal(schema.read(table))
    assert [type(level) for column in again.columns for level in column.levels] == [str, str, bool, bool, int, int]


def test_integer_keys_come_back():
    schema = Schema.fit([ColumnRequest(1, NUMBER, "rbf")], Table.of(np.zeros((2, 2))))
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


@pytest.mark.parametrize("count", [0, 2])
def test_each_column_of_nodes_needs_its_graph(count):
    schema, graph, _ = fitted()
    with pytest.raises(InvalidArgumentError, match=f"nodes must be 1 graph, got {count}"):
        Schema.from_dict(schema.to_dict(), [graph] * count)
    with pytest.raises(InvalidArgumentError, match="nodes must be a graph"):
        Schema.from_dict(schema.to_dict(), [["a", "b"]])


def entry(**changes):
    return {"key": "t", "kind": "number", "terms": [], "is_date": False, "levels": []} | changes


def level(levels):
    return entry(kind="level", levels=levels)


DAMAGED = {
    "nothing": None,
    "a list": [],
    "no version": {"columns": []},
    "another version": {"version": 2, "columns": []},
    "a boolean version": {"version": True, "columns": []},
    "another field": {"version": 1, "columns": [], "code": "import os"},
    "a field that is no text": {"version": 1, "columns": [], 3: 4},
    "no list of columns": {"version": 1, "columns": "t"},
    "a column that is no dict": {"version": 1, "columns": ["t"]},
    "a column without a key": {"version": 1, "columns": [{"kind": "number"}]},
}
COLUMNS = {
    "a list as the key": entry(key=["t"]),
    "a boolean key": entry(key=True),
    "a negative key": entry(key=-1),
    "an unknown kind": entry(kind="numbers"),
    "a kind that is no text": entry(kind=["number"]),
    "terms that are no list": entry(terms="rbf"),
    "terms that are no texts": entry(terms=[1]),
    "a date that is no boolean": entry(is_date=1),
    "a date of levels": level(["a"]) | {"is_date": True},
    "levels of a number": entry(levels=["a"]),
    "no levels": level([]),
    "levels that are no list": level("ab"),
    "fractions": level([1.5]),
    "lists as levels": level([["a"]]),
    "several types": level(["a", 1]),
    "booleans and integers": level([True, 0]),
    "one level twice": level(["a", "a"]),
    "null": level([None]),
}
DAMAGED |= {name: {"version": 1, "columns": [column]} for name, column in COLUMNS.items()}
DAMAGED |= {"one column twice": {"version": 1, "columns": [entry(), entry()]}}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_schemas_are_refused(content):
    with pytest.raises(DataError, match="schema of columns must be valid"):
        Schema.from_dict(content)
