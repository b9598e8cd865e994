"""Cells of arrays and dataframes that are not numbers. Missing ones become NaN, others raise errors."""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rfgp.counts import counted
from rfgp.number_texts import example_of, numbers_remedy

_MAX_COLUMNS = 8
"""The maximum number of columns in a message."""
_OPTIONS = {"text": 'categories="one-hot"', "dates": 'dates="days"', "missing values": 'missing="drop"'}
"""The option of `rfgp.tables.read_table` that encodes cells of each kind."""


class Problem(NamedTuple):
    """Cells of one kind in one column.

    Attributes:
        column: The column's name or index. None if there is only one.
        kind: "text", "dates", "missing values", or the name of another type.
        row: The first row with such a cell.
        cell: The cell as text for messages.
        number: The number of such cells.
    """

    column: str | int | None
    kind: str
    row: int
    cell: str
    number: int

    def __str__(self) -> str:
        where = "it" if self.column is None else f"column {self.column!r}"
        if self.kind == "missing values":
            return f"{where} has {counted(self.number, 'missing value')}, the first in row {self.row}"
        return f"{where} holds {self.kind} ({self.cell} in row {self.row}, {counted(self.number, 'such cell')})"


def with_nan(
    cells: NDArray[Any],  # (...), objects
) -> NDArray[Any]:
    """Return objects with NaN instead of pandas.NA and NaT, which have no float value.

    Args:
        cells: Objects (...).
    """
    pandas = sys.modules.get("pandas")  # imported already if a cell is one of its missing values
    if pandas is None:
        return cells
    is_missing = pandas.isna(cells)
    return np.where(is_missing, np.nan, cells) if is_missing.any() else cells


def problems_of(
    values: Any,  # (n,) or (n, d)
    names: tuple[str, ...] | None,
) -> list[Problem]:
    """Return the problems of a matrix or column that is not numeric.

    Args:
        values: A column (n,) or matrix (n, d).
        names: The names of the columns. If None, their indices.
    """
    try:
        cells = with_nan(np.asarray(values, dtype=object))
    except (TypeError, ValueError):
        return []
    if cells.ndim == 1:
        return _of_column(cells, None)
    if cells.ndim != 2:
        return []
    labels: Sequence[str | int] = range(cells.shape[1]) if names is None else names
    return [problem for index, label in enumerate(labels) for problem in _of_column(cells[:, index], label)]


def listed(problems: list[Problem]) -> str:
    """Return the problems of at most eight columns as text.

    Args:
        problems: The problems, one for each column and kind.
    """
    columns = list(dict.fromkeys(problem.column for problem in problems))
    words = [str(problem) for problem in problems if problem.column in columns[:_MAX_COLUMNS]]
    rest = len(columns) - _MAX_COLUMNS
    return "; ".join([*words, f"and {counted(rest, 'more column')}"] if rest > 0 else words)


def remedy(problems: list[Problem], is_frame: bool) -> str:
    """Return a sentence with a remedy for problems.

    Args:
        problems: The problems.
        is_frame: Whether the cells are from a dataframe.
    """
    texts = (
        ("y" if problem.column is None else problem.column, [problem.cell.strip("'")])
        for problem in problems
        if problem.kind == "text"
    )
    numbers = [(column, example) for column, text in texts if (example := example_of(text)) is not None]
    if numbers:
        return numbers_remedy(*numbers[0])
    if is_frame:
        options = [option for kind, option in _OPTIONS.items() if any(problem.kind == kind for problem in problems)]
        call = ", ".join(["table", "target", *options])
        return f"Encode them as numbers with rfgp.tables.read_table({call}), for a dataframe with the target."
    return (
        "Encode text and dates as numbers, for example with rfgp.tables.read_table. rfgp.sklearn.GPClassifier takes "
        "classes as text."
    )


def _of_column(cells: NDArray[Any], label: str | int | None) -> list[Problem]:
    try:
        is_missing, kinds = np.isnan(cells.astype(np.float64)), {}
    except (TypeError, ValueError):
        is_missing, kinds = np.zeros(len(cells), dtype=bool), dict[str, list[int]]()
        for row, cell in enumerate(cells):
            kind = _kind(cell)
            if kind == "missing values":
                is_missing[row] = True
            elif kind is not None:
                kinds.setdefault(kind, []).append(row)
    problems = [Problem(label, kind, rows[0], _shown(cells[rows[0]]), len(rows)) for kind, rows in kinds.items()]
    if is_missing.any():
        problems.append(Problem(label, "missing values", int(is_missing.argmax()), "", int(is_missing.sum())))
    return problems


def _kind(cell: Any) -> str | None:
    """Return the kind of a cell, or None for a number."""
    if hasattr(cell, "isoformat") or isinstance(cell, np.datetime64):
        return "dates"
    try:
        return "missing values" if np.isnan(float(cell)) else None
    except (TypeError, ValueError):
        if cell is None:
            return "missing values"
        return "text" if isinstance(cell, str | bytes) else f"values of type {type(cell).__name__}"


def _shown(cell: Any) -> str:
    word = str(cell) if hasattr(cell, "isoformat") else repr(cell)
    return " ".join(word.split())[:40]
