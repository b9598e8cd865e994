"""Cells that are not numbers: missing ones of any spelling, and all the others at once."""

import re

import numpy as np
import pandas as pd
import pytest

import rfgp

Y = np.sin(np.arange(30.0))


def frame(**columns):
    """Return a frame of 30 rows with a column of numbers and others."""
    return pd.DataFrame({"a": np.cos(np.arange(30.0)), **columns})


def refusal(X, y=Y):
    """Return the message about data that cannot be used."""
    with pytest.raises(rfgp.DataError) as found:
        rfgp.ExactGP().condition(X, y)
    return str(found.value)


MISSING = {"pandas.NA": pd.NA, "NaT": pd.NaT, "None": None, "nan": np.nan}


@pytest.mark.parametrize("mark", MISSING.values(), ids=MISSING)
def test_marks_of_missing_cells_are_missing_values(mark):
    cells = pd.Series([1.5, mark, *range(28)], dtype=object)
    assert "1 value that is not finite, the first (nan) in row 1, column 1 ('b')" in refusal(frame(b=cells))
    assert "1 value that is not finite, the first (nan) in row 1" in refusal(frame(), cells)


@pytest.mark.parametrize("kind", ["Float64", "Int64", "boolean"])
def test_nullable_columns_have_missing_values(kind):
    column = pd.Series([1, pd.NA, *([0, 1] * 14)], dtype=kind)
    assert "not finite, the first (nan) in row 1, column 1 ('b')" in refusal(frame(b=column))


def test_all_columns_and_kinds_are_told_at_once():
    text, dates = ["x", "y", None] * 10, pd.date_range("2020-01-01", periods=30)
    gaps = pd.Series([*range(29), pd.NA], dtype=object)
    message = refusal(frame(text=text, dates=dates, gaps=gaps, odd=[{}] * 30))
    for words in (
        "'text' holds text ('x' in row 0, 20 such cells)",
        "'text' has 10 missing values, the first in row 2",
        "'dates' holds dates (2020-01-01 00:00:00 in row 0, 30 such cells)",
        "'gaps' has 1 missing value, the first in row 29",
        "'odd' holds values of type dict",
    ):
        assert words in message
    assert 'read_table(table, target, categories="one-hot", dates="days", missing="drop")' in message
    assert "'a'" not in message


def test_the_faults_of_wide_frames_are_cut():
    message = refusal(frame(**{f"t{number}": "x" for number in range(500)}))
    assert "and 492 more columns" in message
    assert len(message) < 1000


def test_gaps_in_several_columns_are_told_at_once():
    X = frame(b=1.0, c=2.0)
    X.loc[3, "a"] = X.loc[[4, 7], "c"] = np.nan
    assert "They lie in the columns 'a' (1), 'c' (2)." in refusal(X)


def test_times_in_arrays_are_named():
    times = np.array(["2020-01-01", "2021-01-01"] * 15, dtype="datetime64[D]")
    assert re.search("y must hold numbers, but it holds dates .2020-01-01 in row 0", refusal(frame(), times))
