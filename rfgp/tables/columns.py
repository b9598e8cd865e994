"""Columns of a file before they are encoded: the type of their cells, their values, and errors that name a cell."""

import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError, IdentifierWarning, InvalidArgumentError
from rfgp.limits import limits
from rfgp.messages import MISSING_LABEL, counted, did_you_mean, listed, quoted, unquoted
from rfgp.number_texts import DATE, number_of, numbers_remedy
from rfgp.number_texts import is_identifier as are_identifiers
from rfgp.tables.formats import (
    BOOLEAN,
    all_match,
    as_floats,
    as_numbers,
    as_texts,
    decimal_advice,
    in_format,
    is_text,
    number_like_cells,
    times_of_texts,
    title,
    with_nulls,
)
from rfgp.tables.options import TextFormat

ColumnType = Literal["number", "date", "text"]


@dataclass(frozen=True, eq=False)
class Column:
    """A column of n cells.

    Attributes:
        file: The file, or the title of a dataframe.
        name: The column's name.
        position: Its position in the file.
        is_named: Whether the name is from the file.
        kind: The type of the cells. A column without any value counts as numbers.
        values: Numbers (n,), or days since 1970-01-01, NaN if missing. In text columns, NaN for cells that are not
            numbers.
        cells: Arrow texts (n,), null if missing. None if the file held typed values.
        is_target: Whether this is the target, which cannot be left out.
        is_level: Whether a kernel reads the cells as levels.
        example: An example of the format of numbers as text. If empty, that of the file.
        is_category: Whether the user says that the cells are categories.
        times: Dates on their clock, as `rfgp.columns.days.Times`. None for other columns.

    Examples:
        >>> column = Column("t.csv", "size", 0, True, "number", np.array([1.0, np.nan]))
        >>> column.missing.tolist(), column.drop_option
        ([False, True], "drop='size'")
    """

    file: Path | str
    name: str
    position: int
    is_named: bool
    kind: ColumnType
    values: NDArray[np.float64]
    cells: Any = None
    is_target: bool = False
    is_level: bool = False
    example: str = ""
    is_category: bool = False
    times: Any = None

    @property
    def zone(self) -> str:
        """The time zone or the UTC offsets of dates, or ""."""
        return "" if self.times is None else self.times.zone

    @property
    def missing(self) -> NDArray[np.bool_]:
        """The mask (n,) of missing cells."""
        if self.cells is not None and self.kind != "number":
            return np.asarray(self.cells.is_null())
        return np.isnan(self.values)

    @property
    def drop_option(self) -> str:
        """The option that drops the column."""
        return f"drop={quoted(self.name) if self.is_named else self.position}"

    @property
    def drop_advice(self) -> str:
        """The advice to drop the column, as a sentence."""
        advice = f"Leave it out with {self.drop_option}."
        return "This column is the target. Choose another target." if self.is_target else advice

    def error(self, why: str) -> DataError:
        """Return an error that names the column.

        Args:
            why: The end of the message, after the name of the column.
        """
        return DataError(f"{title(self.file)}: column {quoted(self.name)} {why}")

    def cell_text(self, row: int | np.integer[Any]) -> str:
        """Return a cell as text for messages.

        Args:
            row: The position of the cell.
        """
        if self.kind == "number" or self.cells is None:
            return f"{'day ' * (self.kind == 'date')}{self.values[row]:.10g}"
        return quoted(str(self.cells[int(row)]))

    @property
    def unparsed_rows(self) -> NDArray[np.int64]:
        """The positions (k,) of cells that are not missing and cannot be read as values of the kind."""
        return np.flatnonzero(np.isnan(self.values) & ~self.missing)

    def as_text(self) -> "Column":
        """Return the column as a column of texts."""
        import pyarrow as pa

        texts = (None if np.isnan(v) else f"{v:.15g}" for v in self.values)
        return replace(self, kind="text", cells=pa.array(texts, pa.string()) if self.cells is None else self.cells)

    def with_missing_level(self) -> "Column":
        """Return a column of texts in which missing cells have their own level."""
        return replace(self, cells=self.cells.fill_null(MISSING_LABEL))

    def take(self, rows: NDArray[np.int64]) -> "Column":
        """Return the cells at positions `rows` (m,)."""
        cells = None if self.cells is None else self.cells.take(rows)
        times = None if self.times is None else self.times._replace(values=self.times.values[rows], offsets=None)
        return replace(self, values=self.values[rows], cells=cells, times=times)

    def with_times(self, times: Any) -> "Column":
        """Return the column as a column of dates.

        Args:
            times: Dates on their clock, as `rfgp.columns.days.Times`.
        """
        from rfgp.columns.days import to_days  # needs torch, which the names of columns do not

        return replace(self, kind="date", values=to_days(times.values), times=times)


@dataclass(frozen=True, eq=False)
class Frame:
    """The columns of a file.

    Attributes:
        file: The file, or the title of a dataframe.
        names: The columns' names. They are "0", "1", ... if the file has no header.
        header: Whether the file has names.
        sources: The Arrow cells (n,) of each column, or the Arrow type of a column that cannot be read. Missing cells
            are null, except in texts with a dictionary.
        num_rows: The number n of rows.
        text_format: The format of text cells.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.reading import read_frame
        >>> frame = read_frame(pd.DataFrame({"size": [1, 2], "color": ["red", "blue"]}), TextFormat())
        >>> frame.names, frame.column(1).kind
        (('size', 'color'), 'text')
    """

    file: Path | str
    names: tuple[str, ...]
    header: bool
    sources: Sequence[Any]
    num_rows: int
    text_format: TextFormat

    def column(self, index: int, is_target: bool = False, example: str = "") -> Column:
        """Return the column at a position.

        Args:
            index: The position of the column.
            is_target: Whether the column is the target.
            example: An example of the format of numbers as text. If empty, that of the file.

        Raises:
            DataError: If the type of the column cannot be converted to numbers, or a cell is not in the format.
        """
        import pyarrow as pa

        source = self.sources[index]
        column = Column(self.file, self.names[index], index, self.header, "number", np.empty(0), is_target=is_target)
        if isinstance(source, pa.DataType):
            problem = f"holds values of type {unquoted(str(source))}, which cannot become numbers"
            raise column.error(f"{problem}. {column.drop_advice}")
        if example and is_text(source.type):
            cells = with_nulls(as_texts(source), self.text_format)
            try:
                return replace(column, values=as_floats(in_format(cells, example)), cells=cells, example=example)
            except DataError as error:
                raise column.error(str(error)) from None
        try:
            return _read(column, source, self.text_format)
        except DataError as error:  # of zones
            begin = column.error("")
            raise error if str(error).startswith(str(begin)) else column.error(str(error)) from None

    def texts(self, index: int, rows: NDArray[np.int64]) -> tuple[str, ...]:
        """Return the cells of a column in `rows` (m,) as texts, "" if null. Texts that mark missing cells are kept.

        Raises:
            DataError: If the type of the column cannot be written as text.
        """
        import pyarrow as pa

        source = self.sources[index]
        if isinstance(source, pa.DataType):
            problem = f"holds values of type {unquoted(str(source))}, which cannot become text."
            raise DataError(f"{title(self.file)}: column {quoted(self.names[index])} {problem}")
        return tuple(cell or "" for cell in source.take(rows).cast(pa.string()).to_pylist())

    def find(self, wanted: str | int) -> int:
        """Return the position of a column by name, or by position from an end.

        Args:
            wanted: The name, or the position. Negative positions count from the end.

        Raises:
            InvalidArgumentError: If there is no such column.
        """
        return find_column(self.names, wanted)

    def holds_booleans(self, column: Column) -> bool:
        """Return whether the numbers of a column of this file are booleans."""
        import pyarrow as pa

        if column.kind != "number" or column.cells is None:
            return bool(pa.types.is_boolean(self.sources[column.position].type))
        first = column.cells.drop_null()[:1]
        return len(first) > 0 and all_match(first, BOOLEAN)

    def check_names(self, indices: Sequence[int]) -> None:
        """Check that columns have different names.

        Raises:
            DataError: If two columns have the same name.
        """
        seen: dict[str, int] = {}
        for index in indices:
            first = seen.setdefault(self.names[index], index)
            if first != index:
                raise DataError(
                    f"{title(self.file)} has two columns named {quoted(self.names[index])}, at positions {first} and "
                    f"{index}. Rename one or leave it out with drop={index}."
                )


def is_readable(kind: Any) -> bool:
    """Return whether a column of an Arrow type can be read.

    Examples:
        >>> import pyarrow as pa
        >>> is_readable(pa.float32()), is_readable(pa.list_(pa.float32()))
        (True, False)
    """
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    tests = (t.is_string, t.is_large_string, t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_null)
    return any(test(kind) for test in (*tests, t.is_date, t.is_timestamp))


def _read(column: Column, source: Any, text_format: TextFormat) -> Column:
    """Return the column with the kind, the values (n,), the texts (n,) if any, and the dates of Arrow's cells."""
    import pyarrow.types as t

    is_coded = t.is_dictionary(source.type)
    if is_coded:
        _check_size(column, source)
        source = as_texts(source)
    if is_text(source.type):
        return _read_texts(column, with_nulls(source, text_format) if is_coded else source, text_format)
    if t.is_temporal(source.type):
        from rfgp.columns.cells import Column as Cells

        return column.with_times(Cells.of(source).times)
    return replace(column, values=as_floats(source))


def _check_size(column: Column, source: Any) -> None:
    """Check that texts with a dictionary take less memory than the limit without it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(source.type.value_type) or pa.types.is_large_string(source.type.value_type):
        lengths = (pc.binary_length(part.dictionary).take(part.indices).cast(pa.int64()) for part in source.chunks)
        total = sum(pc.sum(part).as_py() or 0 for part in lengths)
        if total > limits().max_file_bytes:
            raise column.error(f"holds {total:,} bytes of text. {column.drop_advice}")


def _read_texts(column: Column, cells: Any, text_format: TextFormat) -> Column:
    import pyarrow as pa

    if text_format.is_plain:
        with suppress(pa.ArrowInvalid):  # some are no numbers, or have blanks around them
            return replace(column, values=as_floats(cells), cells=cells)
    cells = with_nulls(cells, text_format)
    numbers = as_numbers(cells, text_format.number)
    column = replace(column, values=as_floats(numbers), cells=cells)
    if numbers.null_count == cells.null_count:
        return column
    if all_match(cells, BOOLEAN):
        return replace(column, values=as_floats(cells.cast(pa.bool_())))
    return column.with_times(times_of_texts(cells)) if all_match(cells, DATE) else replace(column, kind="text")


def find_column(names: Sequence[str], wanted: str | int) -> int:
    """Return the position of a column by name or position.

    Args:
        names: The names of all columns.
        wanted: The name, or the position. Negative positions count from the end.

    Raises:
        InvalidArgumentError: If there is no such column.

    Examples:
        >>> find_column(["size", "price"], "price"), find_column(["size", "price"], -2)
        (1, 0)
    """
    if isinstance(wanted, str) and wanted in names:
        return names.index(wanted)
    width = len(names)
    try:
        index = int(wanted)
    except ValueError:
        index = width
    if -width <= index < width and not isinstance(wanted, bool):
        return index % width
    raise InvalidArgumentError(
        f"There is no column {quoted(str(wanted))}. The columns are {listed(names)}.{did_you_mean(str(wanted), names)}"
    )


# --- Errors of columns that cannot be encoded as numbers ----------------------------------------------------------

_CORRECT = "Correct these cells first."
"""The remedy for infinite values."""


def dates_error(column: Column, is_target: bool) -> DataError:
    """Return the error for a column of dates if no option encodes them.

    Args:
        column: The column.
        is_target: Whether the column is the target.

    Examples:
        >>> column = Column("t.csv", "day", 0, True, "date", np.array([19_000.0]))
        >>> "holds dates" in str(dates_error(column, is_target=False))
        True
    """
    row = np.flatnonzero(~column.missing)[0]
    remedy = 'Use dates="days" or leave them out with dates="drop".'
    remedy = 'The target must be a number. Use dates="days".' if is_target else remedy
    return column.error(f"holds dates ({column.cell_text(row)} in row {row}). {remedy}")


def text_error(column: Column, frame: Frame, *, is_named: bool = False) -> DataError:
    """Return the error for a column of text if no option encodes it.

    Args:
        column: The column.
        frame: The file.
        is_named: Whether a kernel names the column.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.reading import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"color": ["red", "blue", "red"]}), TextFormat())
        >>> "holds text ('red' in row 0, 3 such cells)" in str(text_error(frame.column(0), frame))
        True
    """
    if is_named and not column.is_target:
        remedy = f"The kernel reads numbers there. Use a kernel of levels, such as Group({quoted(column.name)})."
        return column.error(f"{text_phrase(column)}. {format_advice(column, frame)}{remedy}")
    if are_all_different(column):
        kind = f"{counted(len(column.cells.drop_null().unique()), 'different text')}, like an identifier"
        return column.error(f"{text_phrase(column)}, {kind}. {format_advice(column, frame)}{column.drop_advice}")
    remedy = f'Use categories="one-hot" or leave the column out ({column.drop_option} or categories="drop").'
    return column.error(f"{text_phrase(column)}. {format_advice(column, frame)}{remedy}")


def are_all_different(column: Column) -> bool:
    """Return whether the texts of a column are all different, or too many for categories.

    Args:
        column: The column of texts.

    Examples:
        >>> import pyarrow as pa
        >>> texts = pa.array(["a", "b", "a"])
        >>> are_all_different(Column("t.csv", "id", 0, True, "text", np.full(3, np.nan), texts))
        False
    """
    cells = column.cells.drop_null()
    levels = len(cells.unique())
    return levels == len(cells) or (are_identifiers(levels, len(cells)) and not column.is_category)


def check_identifier(column: Column, frame: Frame) -> None:
    """Check that the texts of a column can be categories.

    Args:
        column: The column of texts.
        frame: The file, for a remedy.

    Raises:
        DataError: If the texts are all different, or too many.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.reading import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"color": ["red", "blue", "red"]}), TextFormat())
        >>> check_identifier(frame.column(0), frame)  # no error
    """
    if are_all_different(column):
        cells = column.cells.drop_null()
        different = f"has {counted(len(cells.unique()), 'different text')} in {counted(len(cells), 'cell')}"
        raise column.error(
            f"{different}; it looks like an identifier. {format_advice(column, frame).rstrip() or column.drop_advice}"
        )


def is_identifier(column: Column, frame: Frame) -> bool:
    """Return whether all texts of a column differ, and warn if they do.

    Args:
        column: The column of texts.
        frame: The file, for a remedy.

    Raises:
        DataError: If the texts may be numbers or dates in another format, or are too many for levels.

    Warns:
        IdentifierWarning: If all texts of the column differ.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.reading import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"color": ["red", "blue", "red"]}), TextFormat())
        >>> is_identifier(frame.column(0), frame)
        False
    """
    if advice := format_advice(column, frame):
        raise column.error(f"{text_phrase(column)}. {advice}Or leave it out ({column.drop_option}).")
    cells = column.cells.drop_null()
    different = len(cells.unique())
    if different < len(cells) and are_identifiers(different, len(cells)):
        sizes = f"{counted(different, 'different text')} in {counted(len(cells), 'cell')}"
        raise column.error(
            f"has {sizes}, like an identifier. Leave it out ({column.drop_option}), or use "
            f"as_categories={quoted(column.name)} if they are levels."
        )
    if different < len(cells):
        return False
    begin = f"{title(column.file)}: column {quoted(column.name)} is left out: each of its {len(cells):,} texts is "
    warnings.warn(
        IdentifierWarning(f"{begin}different, such as {column.cell_text(column.unparsed_rows[0])}."),
        stacklevel=11,
    )
    return True


def text_phrase(column: Column) -> str:
    """Return "holds text ('x' in row 1, 1 such cell)".

    Args:
        column: A column with texts among its cells.

    Examples:
        >>> import pyarrow as pa
        >>> text_phrase(Column("t.csv", "size", 0, True, "text", np.array([1.0, np.nan]), pa.array(["1", "x"])))
        "holds text ('x' in row 1, 1 such cell)"
    """
    row = column.unparsed_rows[0]
    return f"holds text ({column.cell_text(row)} in row {row}, {counted(len(column.unparsed_rows), 'such cell')})"


def format_advice(column: Column, frame: Frame) -> str:
    """Return advice on the number or date format of the text cells of a column, or "".

    Args:
        column: The column.
        frame: The file.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.reading import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"day": ["31/12/2024", "30/12/2024"]}), TextFormat())
        >>> format_advice(frame.column(0), frame)
        'Dates must be ISO (YYYY-MM-DD). '
    """
    cells = {name: number_like_cells(source) for name, source in zip(frame.names, frame.sources, strict=True)}
    cells[column.name] = number_like_cells(frame.sources[column.position])
    if advice := decimal_advice(cells, column.name, frame.text_format):
        return advice
    texts = column.cells.drop_null()
    if (example := number_of(texts.unique().to_pylist(), len(texts))) is not None:
        return f"{numbers_remedy(column.name, example)} "
    cell = str(column.cells[column.unparsed_rows[0]]) if len(column.unparsed_rows) else ""
    if re.fullmatch(r"\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}(?:\D.*)?", cell):
        return "Dates must be ISO (YYYY-MM-DD). "
    return ""


def check_mixed(column: Column, frame: Frame) -> None:
    """Check that a column of texts does not mainly hold numbers.

    Args:
        column: The column.
        frame: The file, for a remedy.

    Raises:
        DataError: If at least half of the cells are numbers.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.reading import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"color": ["red", "blue", "red"]}), TextFormat())
        >>> check_mixed(frame.column(0), frame)  # no error, as there are no numbers
    """
    numbers = int(np.count_nonzero(~np.isnan(column.values)))
    if 2 * numbers >= int(np.count_nonzero(~column.missing)):
        remedy = "Correct these cells, add them to missing_marks, name the column in as_categories or "
        remedy += "choose another target" if column.is_target else f"leave it out ({column.drop_option})"
        problem = f"{text_phrase(column)} among {counted(numbers, 'number')}. {format_advice(column, frame)}"
        raise column.error(f"{problem}{remedy}.")


def check_cells(column: Column, policy: str) -> None:
    """Check that a column has values, and missing cells only if the policy allows them.

    Args:
        column: The column.
        policy: The policy for missing cells: "error", "drop" or "mean".

    Raises:
        DataError: If all cells are missing, or a cell is missing against the policy or infinite.

    Examples:
        >>> column = Column("t.csv", "size", 0, True, "number", np.array([1.0, np.nan]))
        >>> check_cells(column, "drop")  # no error, as rows with missing values are dropped
    """
    if column.missing.all():
        count = len(column.values)
        raise column.error(f"has no values, all {count:,} are missing. {column.drop_advice}")
    check_missing_values(column, policy)


def check_dates(column: Column) -> None:
    """Check that all dates of a column exist.

    Args:
        column: The column of dates.

    Raises:
        DataError: If a date does not exist, such as February 30.

    Examples:
        >>> import pyarrow as pa
        >>> values, texts = np.array([19_000.0]), pa.array(["2022-01-08"])
        >>> check_dates(Column("t.csv", "day", 0, True, "date", values, texts))  # no error
    """
    for row in column.unparsed_rows[:1]:
        raise column.error(f"holds a date that does not exist ({column.cell_text(row)} in row {row}).")


def check_missing_values(column: Column, policy: str) -> None:
    """Check that no cell is infinite, and that missing cells are allowed by the policy.

    With the policy "mean", rows without a target are dropped. Numbers that are levels are never filled.

    Args:
        column: The column.
        policy: The policy for missing cells: "error", "drop" or "mean".

    Raises:
        DataError: If a cell is infinite, or missing against the policy.

    Examples:
        >>> column = Column("t.csv", "size", 0, True, "number", np.array([1.0, np.nan]))
        >>> check_missing_values(column, "drop")  # no error, as rows with missing values are dropped
    """
    missing = column.missing
    bad = np.isinf(column.values) if column.kind == "number" else np.zeros_like(missing)
    if policy not in ("drop", "mean") or (policy == "mean" and column.is_level):
        bad |= missing
    if not bad.any():
        return
    row, count = np.flatnonzero(bad)[0], np.count_nonzero(bad)
    cell, remedy = column.cell_text(row), _CORRECT
    if missing[row]:
        may_fill = policy == "error" and not column.is_target and (not column.is_level or column.kind == "text")
        cell, remedy = "missing", 'Use missing="drop", or missing="mean".' if may_fill else 'Use missing="drop".'
    role = "(the target) " * column.is_target
    values = counted(int(count), "missing or infinite value")
    raise column.error(f"{role}has {values}, the first in row {row} ({cell}). {remedy}")
