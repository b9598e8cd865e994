"""Cells that are not numbers: missing ones of any spelling, and all the others at once."""

import re

import numpy as np
import pandas as pd
import pytest

import rfgp
from rfgp import kernels as k

Y = np.sin(np.arange(30.0))


def frame(**columns):
    """Return a frame of 30 rows with a column of numbers and others."""
    return pd.DataFrame({"a": np.cos(np.arange(30.0)), **columns})


def refusal(X, y=Y, kernel=None):
    """Return the message about data that cannot be used by a kernel, of all columns if it is not given."""
    with pytest.raises(rfgp.DataError) as found:
        rfgp.GP(kernel or k.RBF(), approximation=rfgp.Exact()).condition(X, y)
    return str(found.value)


MISSING = {"pandas.NA": pd.NA, "NaT": pd.NaT, "None": None, "nan": np.nan}


@pytest.mark.parametrize("mark", MISSING.values(), ids=MISSING)
def test_marks_of_missing_cells_are_missing_values(mark):
    cells = pd.Series([1.5, mark, *range(28)], dtype=object)
    assert "Column 'b' has 1 missing value, the first in row 1" in refusal(frame(b=cells))
    assert "1 value that is not finite, the first (nan) in row 1" in refusal(frame(), cells)


@pytest.mark.parametrize(("kind", "words"), [
    ("Float64", "missing value, the first in row 1"),
    ("Int64", "missing value, the first in row 1"),
    ("boolean", "missing cell"),
])  # fmt: skip
def test_nullable_columns_have_missing_values(kind, words):
    column = pd.Series([1, pd.NA, *([0, 1] * 14)], dtype=kind)
    assert f"Column 'b' has 1 {words}" in refusal(frame(b=column))


def test_all_columns_with_faults_are_named_at_once():
    text, gaps = ["x", "y", None] * 10, pd.Series([*range(29), pd.NA], dtype=object)
    message = refusal(frame(text=text, gaps=gaps, odd=[{}] * 30), kernel=k.RBF(("a", "text", "gaps", "odd")))
    for words in (
        "'text' holds text ('x' in row 0, 20 such cells)",
        "'text' has 10 missing values, the first in row 2",
        "'gaps' has 1 missing value, the first in row 29",
        "'odd' holds values of type dict",
        "rfgp.tables.read_table",
    ):
        assert words in message
    assert "'a'" not in message


def test_the_faults_of_wide_frames_are_cut():
    names = [f"t{number}" for number in range(500)]
    message = refusal(frame(**dict.fromkeys(names, "x")), kernel=k.RBF(("a", *names)))
    assert "There are 492 more such problems" in message
    assert len(message) < 2000


def test_times_in_arrays_are_named():
    times = np.array(["2020-01-01", "2021-01-01"] * 15, dtype="datetime64[D]")
    assert re.search("y must hold numbers, but it holds dates .2020-01-01 in row 0", refusal(frame(), times))
