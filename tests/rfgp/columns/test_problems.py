"""Columns that cannot be read: every problem, named by column, row and term, all at once."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from frames import CONTAINERS

import graphs
from rfgp import DataError
from rfgp.columns import ColumnKind, ColumnRequest, Schema, Table

NUMBER, COORDINATE, LEVEL, NODE = ColumnKind
DAY = datetime.date(2024, 2, 1)


def schema_of(column, kind, nodes=None):
    return Schema.fit([ColumnRequest("a", kind, "rbf(a)", nodes)], Table.of({"a": column}))


class Odd:
    """An object without a repr, that no comparison leads anywhere."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("broken on purpose")

    def __ne__(self, other):
        raise RuntimeError("broken on purpose")

    def __repr__(self):
        raise RuntimeError("broken on purpose")


PROBLEMS = {
    "missing": (
        [1.0, None, float("nan")],
        NUMBER,
        r"'a' has 2 missing values, the first in row 1; rbf\(a\) .*fill them",
    ),
    "missing time": (np.array(["2024-01-01", "NaT"], "M8[s]"), NUMBER, "1 missing value, the first in row 1"),
    "missing time of pandas": ([pd.Timestamp(DAY), pd.NaT], NUMBER, "1 missing value, the first in row 1"),
    "pandas.NA": ([pd.NA, "x"], LEVEL, "1 missing value, the first in row 0"),
    "missing category": (pd.Categorical(["x", None]), LEVEL, "1 missing value, the first in row 1"),
    "missing decimal": ([Decimal("NaN"), 1], NUMBER, "1 missing value"),
    "masked": (np.ma.array([1.0, 2.0], mask=[False, True]), NUMBER, "1 missing value, the first in row 1"),
    "all missing": ([None, None], LEVEL, "2 missing values"),
    "missing in a tensor": (torch.tensor([0.0, torch.nan]), COORDINATE, "1 missing value, the first in row 1"),
    "text": (["u", "v"], NUMBER, r"holds text \('u' in row 0, 2 such cells\); rbf\(a\) reads numbers or dates.*Group"),
    "some text": (["1", "high", "2"], NUMBER, r"holds text \('high' in row 1, 1 such cell\).*to_numeric"),
    "numbers as text": (
        ["1", "2.5e3"],
        NUMBER,
        r"holds text \('1' in row 0, 2 such cells\).*Convert it with pandas.to_num",
    ),
    "dates as text": (["2024-01-01", "2024-01-02T03:00"], NUMBER, "Convert it with pandas.to_datetime"),
    "text among numbers": ([1.5, "x"], NUMBER, r"holds text \('x' in row 1, 1 such cell\)"),
    "dates among numbers": ([1.5, DAY], NUMBER, r"holds dates \(2024-02-01 in row 1"),
    "complex": (np.array([1j]), NUMBER, "holds complex numbers .*real and imaginary"),
    "complex objects": ([1j, 2j], NUMBER, "holds complex numbers"),
    "infinite": ([1.0, np.inf, -np.inf], NUMBER, r"2 values that are not finite, the first \(inf\) in row 1; rbf\(a\)"),
    "infinite tensor": (
        torch.tensor([1.0, -torch.inf]),
        NUMBER,
        r"1 value that is not finite, the first \(-inf\) in row 1",
    ),
    "too large": ([1, 10**400], NUMBER, r"1 value that is not finite, the first \(inf\) in row 1"),
    "too large a fraction": ([1.5, 10**400], NUMBER, "1 value that is not finite"),
    "bytes": ([b"x"], NUMBER, "values of type bytes"),
    "bytes as levels": (np.array([b"x"]), LEVEL, r"values of type bytes \(b'x' in row 0"),
    "objects": ([Odd()], NUMBER, "holds values of type Odd"),
    "objects as levels": ([Odd(), Odd()], LEVEL, "holds values of type Odd .*2 such cells"),
    "arrays in cells": ([np.zeros(2), np.zeros(2)], NUMBER, "values of type ndarray"),
    "fractions as levels": (
        [1.0, 1.5],
        LEVEL,
        r"holds numbers \(1.5 in row 1, 1 such cell\).*text, integers.*Round it",
    ),
    "fractions in a tensor": (torch.tensor([1.0, 1.5]), LEVEL, "1.5 in row 1.*Round it"),
    "infinite levels": ([1.0, np.inf], LEVEL, "inf in row 1"),
    "dates as levels": ([DAY], LEVEL, r"holds dates \(2024-02-01 in row 0, 1 such cell\).*Make it text"),
    "durations as levels": ([datetime.timedelta(1)], LEVEL, "holds durations"),
    "text and integers": (
        ["x", 7, 8],
        LEVEL,
        r"holds text \('x' in row 0\) and integers \(7 in row 1\).*Make all of it text",
    ),
    "booleans and integers": ([True, 1], LEVEL, r"booleans \(True in row 0\) and integers \(1 in row 1\)"),
    "two zones": ([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)], NUMBER, "zone"),
    "months": (np.array([1], "m8[M]"), NUMBER, r"'a', which rbf\(a\) reads, holds durations in months"),
    "a signaling decimal": ([Decimal("sNaN")], NUMBER, r"'a', which rbf\(a\) reads, cannot be read"),
}


@pytest.mark.parametrize(("column", "kind", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_faults_are_named(column, kind, words):
    with pytest.raises(DataError, match=words) as found:
        schema_of(column, kind)
    assert len(str(found.value)) < 400


def test_a_missing_cell_hides_no_other_fault():
    with pytest.raises(DataError, match=r"1 missing value, the first in row 0[\s\S]*text \('x' in row 1"):
        schema_of([None, "x"], NUMBER)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_all_columns_are_named_at_once(container):
    columns = {"t": [1.0, None, 3.0], "price": ["1", "high", "3"], "size": [1.5, 2.0, 3.0], "store": ["a", "b", "a"]}
    wanted = [("t", NUMBER), ("pric", NUMBER), ("price", NUMBER), ("size", LEVEL), ("store", LEVEL)]
    with pytest.raises(DataError) as found:
        Schema.fit(
            [ColumnRequest(key, kind, f"term {i}") for i, (key, kind) in enumerate(wanted)],
            Table.of(container(columns)),
        )
    lines = str(found.value).splitlines()
    words = [
        "'t' has 1 missing value, the first in row 1; term 0",
        "'pric', which term 1 reads",
        "'high' in row 1",
        "Round",
    ]
    assert all(word in line for word, line in zip(words, lines, strict=True))
    assert "Did you mean 'price'?" in lines[1]
    assert lines[-1].endswith("Rows count from 0.")


def test_wide_tables_are_not_listed_whole():
    columns = {f"c{i}": ["x"] for i in range(20)}
    with pytest.raises(DataError, match="There are 12 more such problems") as found:
        Schema.fit([ColumnRequest(key, NUMBER, "rbf") for key in columns], Table.of(columns))
    assert len(str(found.value).splitlines()) == 9


AGREEMENT = {
    "a date for a number": ([1.0], NUMBER, [DAY], r"must hold numbers, got dates; rbf\(a\)"),
    "a number for a date": ([DAY], NUMBER, [1.0], r"must hold dates, got numbers; rbf\(a\)"),
    "a duration for a date": ([DAY], COORDINATE, [datetime.timedelta(1)], "must hold dates, got numbers"),
    "an integer for text": (["x"], LEVEL, [1], "must hold text, got integers"),
    "text for an integer": ([1], LEVEL, ["x"], "must hold integers, got text"),
    "an integer for a boolean": ([True], LEVEL, [1], "must hold booleans, got integers"),
    "a missing cell": ([1.0], NUMBER, [None], "1 missing value"),
    "text for a number": ([1.0], NUMBER, ["x"], "holds text"),
}


@pytest.mark.parametrize(("column", "kind", "new", "words"), AGREEMENT.values(), ids=AGREEMENT)
def test_new_data_have_the_type_of_the_training_data(column, kind, new, words):
    schema = schema_of(column, kind)
    with pytest.raises(DataError, match=words):
        schema.read(Table.of({"a": new}))


def test_durations_and_numbers_are_both_numbers():
    schema = schema_of([datetime.timedelta(hours=36)], NUMBER)
    assert schema.read(Table.of({"a": [2.5]})).tolist() == [[2.5]]


@pytest.mark.parametrize(
    "given", [np.zeros(3), torch.zeros(3), [1, 2, 3], pd.Series([1.0]), np.zeros(3, "m8[D]"), [DAY]]
)
def test_a_sequence_of_numbers_is_no_matrix(given):
    for kind in (NUMBER, LEVEL):
        with pytest.raises(DataError, match=r"must have shape \(n, d\).*reshape\(-1, 1\)"):
            Schema.fit([ColumnRequest(0, kind, "rbf")], Table.of(given))


def test_a_sequence_of_texts_may_be_levels():
    table = Table.of(["x", "y"])
    assert Schema.fit([ColumnRequest(0, LEVEL, "group")], table).read(table).tolist() == [[0.0], [1.0]]


LINE = [("a", "b"), ("b", "c")]
NODES = {
    "unknown": (["a", "z", "y", "z"], r"'a', which rbf\(a\) reads, names 2 nodes .* 'z', 'y'\..*such as 'a'"),
    "one unknown": (["q"], r"names 1 node that the graph does not have: 'q'"),
    "many": ([f"n{i}" for i in range(20)], r"names 20 nodes .*'n7', \.\.\."),
    "numbers": (
        [1.5, 2.0],
        r"holds numbers \(1.5 in row 0, 2 such cells\); rbf\(a\) reads labels of nodes.*to integers",
    ),
    "booleans": ([True], "holds booleans"),
    "dates": ([DAY], "holds dates"),
    "missing": (["a", None], "1 missing value"),
    "lists": ([["a"], ["z"]], "names 2 nodes"),
    "objects": ([Odd()], "names 1 node"),
    "mixed": (["a", 7], "names 1 node that the graph does not have: 7"),
}


@pytest.mark.parametrize(("column", "words"), NODES.values(), ids=NODES)
def test_unknown_nodes_are_named(column, words):
    with pytest.raises(DataError, match=words):
        schema_of(column, NODE, graphs.Graph.from_edges(LINE))


def test_unknown_nodes_of_new_data_are_named():
    schema = schema_of(["a"], NODE, graphs.Graph.from_edges(LINE))
    with pytest.raises(DataError, match="names 1 node"):
        schema.read(Table.of({"a": ["a", "d"]}))


def test_numbers_outside_are_no_nodes():
    with pytest.raises(DataError, match="names 2 nodes that the graph does not have: 9, -1"):
        schema_of([9, 0, -1], NODE, graphs.Graph.from_edges([(0, 1), (1, 2)]))


def test_a_graph_that_refuses_for_another_reason_is_quoted():
    class Closed:
        def index(self, labels):
            if len(labels) > 1:
                raise ValueError("one at a time")
            return np.zeros(1, dtype=np.int64)

    with pytest.raises(DataError, match=r"must hold labels of nodes. one at a time\."):
        schema_of(["a", "b"], NODE, Closed())
