"""Problems of columns: sentences about cells that a kernel cannot read, each with a remedy."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.cells import IN_TIME, REAL, CellType, Column, Level, as_floats, as_numpy, cell_type_of
from rfgp.columns.rules import ColumnKind, ColumnSchema, MatrixKey
from rfgp.errors import DataError
from rfgp.messages import counted, not_finite, short_repr
from rfgp.number_texts import NumberFormat, example_of, is_date, numbers_remedy

S = TypeVar("S")
T = TypeVar("T")

_MAX_PROBLEMS = 8
"""The maximum number of columns whose problems one message lists."""
_IS_READ = {
    ColumnKind.NUMBER: (*REAL, *IN_TIME),
    ColumnKind.COORDINATE: (*REAL, *IN_TIME),
    ColumnKind.SPHERE: REAL,
    ColumnKind.AREA: REAL,
    ColumnKind.LEVEL: (CellType.TEXT, CellType.INTEGER, CellType.BOOLEAN),
    ColumnKind.NODE: (CellType.TEXT, CellType.INTEGER, CellType.OBJECT),
}
"""The types of cells of each kind of column."""
_NEEDS = {
    ColumnKind.NUMBER: "numbers or dates",
    ColumnKind.COORDINATE: "numbers or dates",
    ColumnKind.SPHERE: "angles in degrees",
    ColumnKind.AREA: "numbers of areas",
    ColumnKind.LEVEL: "levels, which are text, integers or booleans",
    ColumnKind.NODE: "labels of nodes",
}


class Problem(NamedTuple):
    """Cells of one kind in one column.

    Attributes:
        column: The column's name or index. None if there is only one.
        kind: "text", "dates", "missing values", or the name of another type.
        row: The first row with such a cell.
        cell: The cell as text for messages.
        number: The number of such cells.
    """

    column: MatrixKey | None
    kind: str
    row: int
    cell: str
    number: int

    def __str__(self) -> str:
        where = "it" if self.column is None else f"column {self.column!r}"
        if self.kind == "missing values":
            return f"{where} has {counted(self.number, 'missing value')}, the first in row {self.row}"
        return f"{where} holds {self.kind} ({self.cell} in row {self.row}, {counted(self.number, 'such cell')})"


def problem_of_numbers(cells: Column, key: MatrixKey | None = None) -> Problem | None:
    """Return the problem of cells (n,) that are neither numbers nor missing, or None if there are none.

    Args:
        cells: The cells.
        key: The key of the column. If None, there is one column.

    Examples:
        >>> from rfgp.columns.cells import Column
        >>> from rfgp.columns.problems import problem_of_numbers
        >>> str(problem_of_numbers(Column.of([1.0, "high", None])))
        "it holds text ('high' in row 1, 1 such cell)"
    """
    cells = cells.expanded()
    bad = ~cells.missing
    if cells.cell_type is CellType.OBJECT:
        bad = _present(cells, lambda cell: cell_type_of(type(cell)) not in REAL)
    return _problem(key, cells, bad) if cells.cell_type not in REAL and bad.any() else None


def cell_errors(column: ColumnSchema, cells: Column) -> list[str]:
    """Return the errors of cells (n,) of a column that cannot be read as its kind.

    Args:
        column: The schema of the column.
        cells: The cells of the column.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.cells import Column
        >>> from rfgp.columns.problems import cell_errors
        >>> cell_errors(ColumnSchema("t", ColumnKind.NUMBER, ("rbf(t)",)), Column.of([1.0, None]))
        ["Column 't' has 1 missing value, the first in row 1; rbf(t) reads it. Leave such rows out, or fill them."]
    """
    problems = []
    if cells.missing.any():
        row = cells.first + int(cells.missing.argmax())
        problem = Problem(column.key, "missing values", row, "", int(cells.missing.sum()))
        problems = [_sentence(column, problem, "it", "Leave such rows out, or fill them.")]
    if not cells.missing.all():
        problems += _errors_of_type(column, cells.expanded())
    return problems


def _errors_of_type(column: ColumnSchema, cells: Column) -> list[str]:
    """Return the errors of cells (n,), some of which are present, by their type."""
    is_number, cell_type = column.kind not in (ColumnKind.LEVEL, ColumnKind.NODE), cells.cell_type
    if cell_type is CellType.NUMBER and column.kind is ColumnKind.LEVEL:
        values = as_numpy(cells.values)
        bad = ~cells.missing & (np.isinf(values) | (values != np.round(values)))
        return [_holding(column, cells, bad, "Round it, or make it text.")] if bad.any() else []
    if cell_type is CellType.OBJECT and column.kind is not ColumnKind.NODE:
        good = REAL if is_number else (*REAL, CellType.TEXT)
        bad = _present(cells, lambda cell: cell_type_of(type(cell)) not in good)
        remedy = "Make all of its cells numbers, or all of them dates." if is_number else "Make all of it text."
        if bad.any():
            return [_holding(column, cells, bad, remedy)]
        if not is_number:
            needs = f"{column.readers} reads {_NEEDS[column.kind]}"
            return [f"Column {short_repr(column.key)} holds {_types(cells)}; {needs}. {remedy}"]
        return _infinite(column, cells)
    if cell_type in _IS_READ[column.kind]:
        return _infinite(column, cells) if is_number and cell_type in REAL else []
    if is_number and cell_type is CellType.TEXT:
        return [_holding(column, cells, *_texts(column.key, cells))]
    remedy = "Use two columns, real and imaginary part."
    if column.kind is ColumnKind.LEVEL:
        remedy = "Make it text or an integer."
    if column.kind is ColumnKind.NODE:
        remedy = "Convert them to integers." if cell_type is CellType.NUMBER else "Use labels that the graph has."
    return [_holding(column, cells, ~cells.missing, remedy)]


def type_errors(column: ColumnSchema, cells: Column) -> list[str]:
    """Return the errors of cells (n,) whose type differs from that in training.

    Args:
        column: The schema of the column.
        cells: The cells of the column.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.cells import Column
        >>> from rfgp.columns.problems import type_errors
        >>> len(type_errors(ColumnSchema("t", ColumnKind.NUMBER, is_date=True), Column.of([1.0])))
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
    must, got, remedy = f"hold {known}", str(cell_type), f"Convert it to {known}, as in the training data."
    if cell_type is known:
        if not column.is_date or bool(column.zone) == bool(cells.zone):
            return []
        must = f"have a time zone, as the training data ({column.zone})" if column.zone else "have no time zone"
        got = f"dates in {cells.zone}" if cells.zone else "dates without one"
        name = column.zone if column.zone and column.zone[0] not in "+-" else "Europe/Berlin"
        remedy = f"Use tz_localize('{name}') of pandas."
        if not column.zone:
            remedy = (
                "Convert to the clock of the training dates first: tz_convert('Europe/Berlin'), or whichever zone that "
                "is, then tz_localize(None) of pandas."
            )
    return [f"Column {short_repr(column.key)} must {must}, got {got}; {column.readers} reads it. {remedy}"]


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


def numbers_as_text(key: MatrixKey, levels: Sequence[Level], example: str) -> str:
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


def _sentence(column: ColumnSchema, problem: Problem, needs: str, remedy: str) -> str:
    """Return "Column 'price' holds text ('high' in row 2, 1 such cell); rbf(price) reads numbers. Convert it."."""
    words = str(problem)
    return f"{words[0].upper()}{words[1:]}; {column.readers} reads {needs}. {remedy}"


def _holding(column: ColumnSchema, cells: Column, bad: NDArray[np.bool_], remedy: str) -> str:
    """Return a sentence about the cells marked by `bad` (n,)."""
    return _sentence(column, _problem(column.key, cells, bad), _NEEDS[column.kind], remedy)


def _problem(key: MatrixKey | None, cells: Column, bad: NDArray[np.bool_]) -> Problem:
    """Return the problem of the cells marked by `bad` (n,)."""
    row = int(np.argmax(bad))
    cell, cell_type = as_numpy(cells.values)[row : row + 1].tolist()[0], cells.cell_type
    word = short_repr(cell)
    if cell_type in IN_TIME:
        word = str(cells.values[row].astype("M8[D]" if cell_type is CellType.DATE else "m8[s]"))
    cell_type = cell_type if cell_type is not CellType.OBJECT else cell_type_of(type(cell)) or cell_type
    description = f"values of type {type(cell).__name__}" if cell_type is CellType.OBJECT else str(cell_type)
    return Problem(key, description, cells.first + row, word, int(np.sum(bad)))


def _present(cells: Column, test: Callable[[Any], bool]) -> NDArray[np.bool_]:
    """Return whether each of the objects (n,) is present and satisfies a test."""
    pairs = zip(cells.values.tolist(), cells.missing.tolist(), strict=True)
    return np.fromiter((not is_missing and test(cell) for cell, is_missing in pairs), dtype=bool)


def _infinite(column: ColumnSchema, cells: Column) -> list[str]:
    """Return the error of infinite numbers, if there are any."""
    values = as_numpy(cells.values)
    values = as_floats(values) if values.dtype == object else values
    bad = np.isinf(values)
    if not bad.any():
        return []
    row = int(bad.argmax())
    problem = f"{not_finite(int(bad.sum()))}, the first ({values[row]}) in row {cells.first + row}"
    reads = f"{column.readers} reads it. Leave such rows out, or fill them."
    return [f"Column {short_repr(column.key)} has {problem}; {reads}"]


def _texts(key: MatrixKey, cells: Column) -> tuple[NDArray[np.bool_], str]:
    """Return a mask (n,) of texts among numbers to show, and a remedy."""
    if not _present(cells, lambda cell: not is_date(cell)).any():
        return ~cells.missing, "Convert it with pandas.to_datetime."
    example = example_of(dict.fromkeys(filter(str.strip, cells.values[~cells.missing].tolist())), least_share=0.0)
    if example is None:
        return ~cells.missing, "Read it as levels with k.Group, or as indicators (see rfgp.tables.read_table)."
    words = _present(cells, lambda cell: re.fullmatch(NumberFormat.of(example).pattern, cell.strip()) is None)
    remedy = numbers_remedy(key, example)
    return (words, f"Replace such cells. {remedy}") if words.any() else (~cells.missing, remedy)


def _types(cells: Column) -> str:
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
