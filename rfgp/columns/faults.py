"""Faults of columns: sentences about cells that a kernel cannot read, each with a remedy."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.cells import REAL, Cells, Content, as_float, as_numpy, content_of
from rfgp.columns.kinds import Kind
from rfgp.columns.requests import ColumnSchema
from rfgp.counts import not_finite
from rfgp.messages import shown
from rfgp.rows.cells import Fault

_DATE = re.compile(r"\s*\d{4}-(?:0?[1-9]|1[0-2])-(?:0?[1-9]|[12]\d|3[01])(?:[T ].*)?\s*")
_NUMBER = re.compile(r"\s*[+-]?[\d.,]+(?:[eE][+-]?\d+)?\s*")
_MOST = 8
"""The largest number of columns whose faults one message lists."""


def faults_of(column: ColumnSchema, cells: Cells) -> list[str]:
    """Return sentences about cells (n,) of a column that cannot be read as its kind.

    Examples:
        >>> from rfgp.columns import ColumnSchema, Kind
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.faults import faults_of
        >>> faults_of(ColumnSchema("t", Kind.NUMBER, ("rbf(t)",)), of_objects([1.0, None]))
        ["Column 't' has 1 missing value, the first in row 1; rbf(t) reads it. Leave such rows out, or fill them."]
    """
    gaps = [_gaps(column, cells)] if cells.missing.any() else []
    if cells.missing.all():
        return gaps
    cells = cells.expanded()
    return gaps + _BY_KIND[column.kind](column, cells)


def disagreements(column: ColumnSchema, cells: Cells) -> list[str]:
    """Return sentences about cells (n,) of a column that differ in type from the training data.

    Examples:
        >>> from rfgp.columns import ColumnSchema, Kind
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.faults import disagreements
        >>> len(disagreements(ColumnSchema("t", Kind.NUMBER, is_date=True), of_objects([1.0])))
        1
    """
    if column.kind is Kind.NODE:
        return []
    content, known = cells.content, Content.DATE if column.is_date else Content.NUMBER
    if column.kind is Kind.LEVEL:
        known = content_of(type(column.levels[0])) or Content.OBJECT
        content = Content.INTEGER if content is Content.NUMBER else content
    elif content is not Content.DATE:
        content = Content.NUMBER
    if content is known:
        return []
    remedy = f"Convert it to {known}, as in the training data."
    return [f"{_title(column)} must hold {known}, got {content}; {column.readers} reads it. {remedy}"]


def joined(problems: list[str]) -> str:
    """Return one message about the problems of at most eight columns.

    Examples:
        >>> from rfgp.columns.faults import joined
        >>> joined(["Column 't' has 1 missing value, the first in row 3. Fill it."])
        "Column 't' has 1 missing value, the first in row 3. Fill it. Rows count from 0."
    """
    lines = list(dict.fromkeys(problems))
    if len(lines) > _MOST:
        lines = [*lines[:_MOST], f"There are {len(lines) - _MOST} more such problems."]
    names_row = any(re.search(r"\brow \d", line) for line in lines)
    return "\n".join(lines) + " Rows count from 0." * names_row


def is_date(text: str) -> bool:
    """Return whether a text is an ISO date, with or without a time.

    Examples:
        >>> from rfgp.columns.faults import is_date
        >>> is_date("2026-01-31 12:00"), is_date("31 January")
        (True, False)
    """
    return _DATE.fullmatch(text) is not None


def _title(column: ColumnSchema) -> str:
    return f"Column {shown(column.key)}"


def _sentence(column: ColumnSchema, fault: Fault, needs: str, remedy: str) -> str:
    """Return "Column 'price' holds text ('high' in row 2, 1 such cell); rbf(price) reads numbers. Convert it."."""
    words = str(fault)
    return f"{words[0].upper()}{words[1:]}; {column.readers} reads {needs}. {remedy}"


def _gaps(column: ColumnSchema, cells: Cells) -> str:
    row = cells.first + int(cells.missing.argmax())
    fault = Fault(column.key, "missing values", row, "", int(cells.missing.sum()))
    return _sentence(column, fault, "it", "Leave such rows out, or fill them.")


def _holding(column: ColumnSchema, cells: Cells, bad: Any, remedy: str, needs: str) -> str:
    """Return a sentence about the cells marked by `bad` (n,), with the type of the first."""
    row = int(np.argmax(bad))
    cell = as_numpy(cells.values)[row : row + 1].tolist()[0]
    content = cells.content if cells.content is not Content.OBJECT else content_of(type(cell))
    kind = f"values of type {type(cell).__name__}" if content is Content.OBJECT else str(content)
    word = str(np.datetime64(int(cell // 1), "D")) if cells.content is Content.DATE else shown(cell)
    fault = Fault(column.key, kind, cells.first + row, word, int(np.sum(bad)))
    return _sentence(column, fault, needs, remedy)


def _present(cells: Cells, test: Callable[[Any], bool]) -> NDArray[np.bool_]:
    """Return whether each of the objects (n,) is present and satisfies a test."""
    found = (not gap and test(cell) for cell, gap in zip(cells.values.tolist(), cells.missing.tolist(), strict=True))
    return np.fromiter(found, dtype=bool, count=len(cells.missing))


def _of_number(column: ColumnSchema, cells: Cells) -> list[str]:
    needs = "numbers or dates"
    if cells.content is Content.COMPLEX:
        return [_holding(column, cells, ~cells.missing, "Use two columns, real and imaginary part.", needs)]
    if cells.content is Content.TEXT:
        return [_holding(column, cells, *_texts(cells), needs)]
    if cells.content is Content.OBJECT:
        bad = _present(cells, lambda cell: content_of(type(cell)) not in REAL)
        if bad.any():
            return [_holding(column, cells, bad, "Make all of its cells numbers, or all of them dates.", needs)]
    values = cells.values
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
    found = f"{not_finite(int(bad.sum()))}, the first ({values[row]}) in row {first + row}"
    return [f"{_title(column)} has {found}; {column.readers} reads it. Leave such rows out, or fill them."]


def _texts(cells: Cells) -> tuple[NDArray[np.bool_], str]:
    """Return a mask (n,) of texts among numbers to show, and a remedy."""
    if not _present(cells, lambda cell: not is_date(cell)).any():
        return ~cells.missing, "Convert it with pandas.to_datetime."
    words = _present(cells, lambda cell: _NUMBER.fullmatch(cell) is None)
    if not words.any():
        return ~cells.missing, "Convert it with pandas.to_numeric."
    if words.sum() < np.sum(~cells.missing):
        return words, "Replace such cells, and convert the column with pandas.to_numeric."
    return words, "Convert it to numbers (see rfgp.tables.read_table), or read it as levels with a Group kernel."


def _of_level(column: ColumnSchema, cells: Cells) -> list[str]:
    needs = "levels, which are text, integers or booleans"
    if cells.content in (Content.TEXT, Content.INTEGER, Content.TRUTH):
        return []
    if cells.content is Content.NUMBER:
        values = as_numpy(cells.values)
        bad = ~cells.missing & (np.isinf(values) | (values != np.round(values)))
        return [_holding(column, cells, bad, "Round it, or make it text.", needs)] if bad.any() else []
    if cells.content is Content.OBJECT:
        good = (*REAL, Content.TEXT)
        bad = _present(cells, lambda cell: content_of(type(cell)) not in good)
        if not bad.any():
            return [f"{_title(column)} holds {_types(cells)}; {column.readers} reads {needs}. Make all of it text."]
        return [_holding(column, cells, bad, "Make all of it text.", needs)]
    return [_holding(column, cells, ~cells.missing, "Make it text or an integer.", needs)]


def _types(cells: Cells) -> str:
    """Return "text ('a' in row 0) and integers (7 in row 1)" for cells of several types."""
    found: dict[Content | None, int] = {}
    for row, (cell, gap) in enumerate(zip(cells.values.tolist(), cells.missing.tolist(), strict=True)):
        if not gap:
            found.setdefault(content_of(type(cell)), row)
    words = (f"{content} ({shown(cells.values[row])} in row {cells.first + row})" for content, row in found.items())
    return " and ".join(words)


def _of_node(column: ColumnSchema, cells: Cells) -> list[str]:
    needs = "labels of nodes"
    if cells.content in (Content.TEXT, Content.INTEGER, Content.OBJECT):
        return []
    remedy = "Convert them to integers." if cells.content is Content.NUMBER else "Give the labels that the graph has."
    return [_holding(column, cells, ~cells.missing, remedy, needs)]


_BY_KIND: dict[Kind, Callable[[ColumnSchema, Cells], list[str]]] = {
    Kind.NUMBER: _of_number,
    Kind.COORDINATE: _of_number,
    Kind.LEVEL: _of_level,
    Kind.NODE: _of_node,
}
