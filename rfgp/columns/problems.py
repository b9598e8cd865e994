"""Problems of columns: sentences about cells that a kernel cannot read, each with a remedy."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.cells import REAL, Cells, CellType, as_float, as_numpy, cell_type_of
from rfgp.columns.kinds import ColumnKind
from rfgp.columns.requests import ColumnSchema, Key, Level
from rfgp.errors import DataError
from rfgp.messages import not_finite, short_repr
from rfgp.number_texts import NumberFormat, example_of, numbers_remedy
from rfgp.rows.sources import Problem

S = TypeVar("S")
T = TypeVar("T")

_DATE = re.compile(r"\s*\d{4}-(?:0?[1-9]|1[0-2])-(?:0?[1-9]|[12]\d|3[01])(?:[T ].*)?\s*")
"""Matches an ISO 8601 date, with or without a time."""
_MAX_PROBLEMS = 8
"""The maximum number of columns whose problems one message lists."""


def cell_errors(column: ColumnSchema, cells: Cells) -> list[str]:
    """Return the errors of cells (n,) of a column that cannot be read as its kind.

    Args:
        column: The schema of the column.
        cells: The cells of the column.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.problems import cell_errors
        >>> cell_errors(ColumnSchema("t", ColumnKind.NUMBER, ("rbf(t)",)), of_objects([1.0, None]))
        ["Column 't' has 1 missing value, the first in row 1; rbf(t) reads it. Leave such rows out, or fill them."]
    """
    problems = [_missing_values(column, cells)] if cells.missing.any() else []
    if cells.missing.all():
        return problems
    cells = cells.expanded()
    return problems + _BY_KIND[column.kind](column, cells)


def type_errors(column: ColumnSchema, cells: Cells) -> list[str]:
    """Return the errors of cells (n,) whose type differs from that in training.

    Args:
        column: The schema of the column.
        cells: The cells of the column.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.problems import type_errors
        >>> len(type_errors(ColumnSchema("t", ColumnKind.NUMBER, is_date=True), of_objects([1.0])))
        1
    """
    if column.kind is ColumnKind.NODE:
        return []
    cell_type, known = cells.cell_type, CellType.DATE if column.is_date else CellType.NUMBER
    if column.kind is ColumnKind.LEVEL:
        known = cell_type_of(type(column.levels[0])) or CellType.OBJECT
        cell_type = CellType.INTEGER if cell_type is CellType.NUMBER else cell_type
    elif cell_type is not CellType.DATE:
        cell_type = CellType.NUMBER
    if cell_type is known:
        return _zone_errors(column, cells) if column.is_date else []
    remedy = f"Convert it to {known}, as in the training data."
    return [f"{_title(column)} must hold {known}, got {cell_type}; {column.readers} reads it. {remedy}"]


def _zone_errors(column: ColumnSchema, cells: Cells) -> list[str]:
    """Return the error of dates that lack the time zone of the training data, or have one that these lack."""
    if bool(column.zone) == bool(cells.zone):
        return []
    expected = f"a time zone, as the training data ({column.zone})" if column.zone else "no time zone"
    got = f"dates in {cells.zone}" if cells.zone else "dates without one"
    name = column.zone if column.zone and column.zone[0] not in "+-" else "Europe/Berlin"
    remedy = f"Use tz_localize('{name}') of pandas."
    if not column.zone:
        remedy = (
            "Convert to the clock of the training dates first: tz_convert('Europe/Berlin'), or whichever zone that is, "
            "then tz_localize(None) of pandas."
        )
    return [f"{_title(column)} must have {expected}, got {got}; {column.readers} reads it. {remedy}"]


def collect_errors(step: Callable[[S], T], columns: Iterable[S]) -> tuple[list[T], list[str]]:
    """Return the results of a step for columns, and the messages of columns for which it failed.

    Args:
        step: A function of a column, which may raise a `DataError`.
        columns: The columns.

    Examples:
        >>> from rfgp.columns.problems import collect_errors
        >>> collect_errors(str.upper, ["a", "b"])
        (['A', 'B'], [])
    """
    results, problems = [], []
    for column in columns:
        try:
            results.append(step(column))
        except DataError as error:
            problems.append(str(error))
    return results, problems


def _count(rest: list[str]) -> str:
    return f"There are {len(rest)} more such problems."


def join_errors(problems: list[str], count: Callable[[list[str]], str] = _count, origin: str = "") -> str:
    """Return one message about the problems of at most eight columns.

    Args:
        problems: Sentences. Equal ones are merged.
        count: A function from the problems of further columns to a sentence about their number.
        origin: Text after "Rows count from 0", such as ", after the header".

    Examples:
        >>> from rfgp.columns.problems import join_errors
        >>> join_errors(["Column 't' has 1 missing value, the first in row 3. Fill it."])
        "Column 't' has 1 missing value, the first in row 3. Fill it. Rows count from 0."
    """
    lines = list(dict.fromkeys(problems))
    if len(lines) > _MAX_PROBLEMS:
        lines = [*lines[:_MAX_PROBLEMS], count(lines[_MAX_PROBLEMS:])]
    names_row = any(re.search(r"\brow \d", line) for line in lines)
    return "\n".join(lines) + f" Rows count from 0{origin}." * names_row


def is_date(text: str) -> bool:
    """Return whether a text is an ISO date, with or without a time.

    Args:
        text: The text.

    Examples:
        >>> from rfgp.columns.problems import is_date
        >>> is_date("2026-01-31 12:00"), is_date("31 January")
        (True, False)
    """
    return _DATE.fullmatch(text) is not None


def numbers_as_text(key: Key, levels: Sequence[Level], example: str) -> str:
    """Return the end of a sentence about a column of numbers as text, with a remedy.

    Args:
        key: The key of the column.
        levels: The different cells.
        example: An example of the numbers.

    Examples:
        >>> from rfgp.columns.problems import numbers_as_text
        >>> numbers_as_text("price", ["1", "2"], "2")
        'numbers as text. Convert it with pandas.to_numeric.'
    """
    number = NumberFormat.of(example).pattern
    words = (level for level in levels if isinstance(level, str) and not re.fullmatch(number, level.strip()))
    word = next(words, None)
    what = "numbers as text" if word is None else f"text such as {short_repr(word)} among numbers"
    return f"{what}. {numbers_remedy(key, example)}"


def _title(column: ColumnSchema) -> str:
    return f"Column {short_repr(column.key)}"


def _sentence(column: ColumnSchema, problem: Problem, needs: str, remedy: str) -> str:
    """Return "Column 'price' holds text ('high' in row 2, 1 such cell); rbf(price) reads numbers. Convert it."."""
    words = str(problem)
    return f"{words[0].upper()}{words[1:]}; {column.readers} reads {needs}. {remedy}"


def _missing_values(column: ColumnSchema, cells: Cells) -> str:
    row = cells.first + int(cells.missing.argmax())
    problem = Problem(column.key, "missing values", row, "", int(cells.missing.sum()))
    return _sentence(column, problem, "it", "Leave such rows out, or fill them.")


def _holding(column: ColumnSchema, cells: Cells, bad: Any, remedy: str, needs: str) -> str:
    """Return a sentence about the cells marked by `bad` (n,)."""
    row = int(np.argmax(bad))
    cell = as_numpy(cells.values)[row : row + 1].tolist()[0]
    cell_type = cells.cell_type if cells.cell_type is not CellType.OBJECT else cell_type_of(type(cell))
    description = f"values of type {type(cell).__name__}" if cell_type is CellType.OBJECT else str(cell_type)
    is_time = cells.cell_type in (CellType.DATE, CellType.DURATION)
    word = str(cells.values[row].astype("M8[D]" if cells.cell_type is CellType.DATE else "m8[s]")) if is_time else ""
    word = word or short_repr(cell)
    problem = Problem(column.key, description, cells.first + row, word, int(np.sum(bad)))
    return _sentence(column, problem, needs, remedy)


def _present(cells: Cells, test: Callable[[Any], bool]) -> NDArray[np.bool_]:
    """Return whether each of the objects (n,) is present and satisfies a test."""
    flags = (
        not is_missing and test(cell)
        for cell, is_missing in zip(cells.values.tolist(), cells.missing.tolist(), strict=True)
    )
    return np.fromiter(flags, dtype=bool, count=len(cells.missing))


def _of_number(column: ColumnSchema, cells: Cells) -> list[str]:
    needs = "numbers or dates"
    if cells.cell_type is CellType.COMPLEX:
        return [_holding(column, cells, ~cells.missing, "Use two columns, real and imaginary part.", needs)]
    if cells.cell_type is CellType.TEXT:
        return [_holding(column, cells, *_texts(column.key, cells), needs)]
    if cells.cell_type is CellType.OBJECT:
        bad = _present(cells, lambda cell: cell_type_of(type(cell)) not in REAL)
        if bad.any():
            return [_holding(column, cells, bad, "Make all of its cells numbers, or all of them dates.", needs)]
    values = cells.values
    if cells.cell_type in (CellType.DATE, CellType.DURATION):
        return []
    if isinstance(values, np.ndarray) and values.dtype == object:
        values = np.array([as_float(cell) for cell in values.tolist()])
    return _infinite(column, as_numpy(values), cells.first)


def _infinite(
    column: ColumnSchema,
    values: NDArray[Any],  # (n,)
    first: int,
) -> list[str]:
    bad = np.isinf(values)
    if not bad.any():
        return []
    row = int(bad.argmax())
    problem = f"{not_finite(int(bad.sum()))}, the first ({values[row]}) in row {first + row}"
    return [f"{_title(column)} has {problem}; {column.readers} reads it. Leave such rows out, or fill them."]


def _texts(key: Key, cells: Cells) -> tuple[NDArray[np.bool_], str]:
    """Return a mask (n,) of texts among numbers to show, and a remedy."""
    if not _present(cells, lambda cell: not is_date(cell)).any():
        return ~cells.missing, "Convert it with pandas.to_datetime."
    example = example_of(dict.fromkeys(filter(str.strip, cells.values[~cells.missing].tolist())), least_share=0.0)
    if example is None:
        return ~cells.missing, "Read it as levels with k.Group, or as indicators (see rfgp.tables.read_table)."
    words = _present(cells, lambda cell: re.fullmatch(NumberFormat.of(example).pattern, cell.strip()) is None)
    remedy = numbers_remedy(key, example)
    if not words.any():
        return ~cells.missing, remedy
    return words, f"Replace such cells. {remedy}"


def _of_level(column: ColumnSchema, cells: Cells) -> list[str]:
    needs = "levels, which are text, integers or booleans"
    if cells.cell_type in (CellType.TEXT, CellType.INTEGER, CellType.BOOLEAN):
        return []
    if cells.cell_type is CellType.NUMBER:
        values = as_numpy(cells.values)
        bad = ~cells.missing & (np.isinf(values) | (values != np.round(values)))
        return [_holding(column, cells, bad, "Round it, or make it text.", needs)] if bad.any() else []
    if cells.cell_type is CellType.OBJECT:
        good = (*REAL, CellType.TEXT)
        bad = _present(cells, lambda cell: cell_type_of(type(cell)) not in good)
        if not bad.any():
            return [f"{_title(column)} holds {_types(cells)}; {column.readers} reads {needs}. Make all of it text."]
        return [_holding(column, cells, bad, "Make all of it text.", needs)]
    return [_holding(column, cells, ~cells.missing, "Make it text or an integer.", needs)]


def _types(cells: Cells) -> str:
    """Return "text ('a' in row 0) and integers (7 in row 1)" for cells of several types."""
    first_rows: dict[CellType | None, int] = {}
    for row, (cell, is_missing) in enumerate(zip(cells.values.tolist(), cells.missing.tolist(), strict=True)):
        if not is_missing:
            first_rows.setdefault(cell_type_of(type(cell)), row)
    words = (
        f"{cell_type} ({short_repr(cells.values[row])} in row {cells.first + row})"
        for cell_type, row in first_rows.items()
    )
    return " and ".join(words)


def _of_node(column: ColumnSchema, cells: Cells) -> list[str]:
    needs = "labels of nodes"
    if cells.cell_type in (CellType.TEXT, CellType.INTEGER, CellType.OBJECT):
        return []
    remedy = "Convert them to integers." if cells.cell_type is CellType.NUMBER else "Use labels that the graph has."
    return [_holding(column, cells, ~cells.missing, remedy, needs)]


_BY_KIND: dict[ColumnKind, Callable[[ColumnSchema, Cells], list[str]]] = {
    ColumnKind.NUMBER: _of_number,
    ColumnKind.COORDINATE: _of_number,
    ColumnKind.LEVEL: _of_level,
    ColumnKind.NODE: _of_node,
}
