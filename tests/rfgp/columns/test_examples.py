"""The examples of the room run, it is light, and any list is read or refused by name."""

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rfgp.columns
from rfgp import DataError
from rfgp.columns import ColumnKind, ColumnRequest, Schema, Table

MODULES = [f"rfgp.columns.{module.name}" for module in pkgutil.iter_modules(rfgp.columns.__path__)]


@pytest.mark.parametrize("name", [*MODULES, "rfgp.messages"])
def test_the_examples_run(name):
    found = doctest.testmod(importlib.import_module(name))
    assert (found.failed, found.attempted > 0) == (0, True)


def test_the_room_loads_nothing_heavy():
    heavy = ("pandas", "pyarrow", "polars", "graphs", "sklearn", "numba")
    code = (
        "import sys; from rfgp.columns import *; from rfgp.columns import ColumnKind, ColumnRequest, Schema, Table; "
        "t = Table.of({'a': ['x', 'y'], 'b': [1.0, 2.0]}); "
        "requests = [ColumnRequest('a', ColumnKind.LEVEL, 'g'), ColumnRequest('b', ColumnKind.NUMBER, 'r')]; "
        "Schema.fit(requests, t).read(t); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(said) == []


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.complex_numbers(),
    st.binary(max_size=3),
    st.tuples(st.integers()),
    st.decimals(),
    st.fractions(),
)
COLUMNS = st.one_of(
    st.lists(CELLS, max_size=5),
    *(
        st.lists(kind, max_size=5)
        for kind in (st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.dates())
    ),
)


@given(COLUMNS, st.sampled_from([ColumnKind.NUMBER, ColumnKind.COORDINATE, ColumnKind.LEVEL]))
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_any_list_is_read_or_refused_by_name(column, kind):
    """A named error, or a matrix that is what a loop over the cells finds."""
    try:
        table = Table.of({"a": column})
        schema = Schema.fit([ColumnRequest("a", kind, "term")], table)
    except DataError:
        return
    found = schema.read(table)[:, 0].tolist()
    if kind is ColumnKind.LEVEL:
        assert [
            type(cell)(schema.columns[0].levels[int(code)]) for cell, code in zip(column, found, strict=True)
        ] == column
    elif all(isinstance(cell, int | float) for cell in column):
        assert found == list(map(float, column))
