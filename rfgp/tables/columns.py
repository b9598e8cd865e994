"""Columns of a file before they are encoded: the type of their cells, and their values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.limits import limits
from rfgp.messages import MISSING_LABEL
from rfgp.tables.decimals import cast_or_none, cell_with_decimal_point, in_format, with_decimal_point
from rfgp.tables.messages import did_you_mean, listed, quoted, title, unquoted
from rfgp.tables.options import TextFormat

NUMBER = r"^[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?$"
"""The pattern of a finite number with a decimal point."""
DATE = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,9})?)?"
    r" ?(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)
"""The pattern of an ISO 8601 date, with or without a time and a time zone."""
_NUMERIC = rf"(?:{NUMBER})|(?:^[+-]?(?i:inf|infinity|nan)$)"
"""The pattern of a number, infinity or NaN."""
BOOLEAN = r"^(?:True|TRUE|true|False|FALSE|false)$"
"""The pattern of a boolean."""

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
        >>> from rfgp.tables.frames import read_frame
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
            cells = _with_nulls(as_texts(source), self.text_format)
            try:
                return replace(column, values=_floats(in_format(cells, example)), cells=cells, example=example)
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
        return _read_texts(column, _with_nulls(source, text_format) if is_coded else source, text_format)
    if t.is_temporal(source.type):
        from rfgp.columns.cells import Column as Cells

        return column.with_times(Cells.of(source).times)
    return replace(column, values=_floats(source))


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is that of texts, perhaps with a dictionary.

    Examples:
        >>> import pyarrow as pa
        >>> is_text(pa.large_string()), is_text(pa.int64())
        (True, False)
    """
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    return bool(t.is_string(kind) or t.is_large_string(kind))


def as_texts(cells: Any) -> Any:
    """Return Arrow texts (n,) without a dictionary.

    Examples:
        >>> import pyarrow as pa
        >>> as_texts(pa.array(["a", "a"]).dictionary_encode()).to_pylist()
        ['a', 'a']
    """
    import pyarrow.types as t

    return cells.cast(cells.type.value_type) if t.is_dictionary(cells.type) else cells


def _check_size(column: Column, source: Any) -> None:
    """Check that texts with a dictionary take less memory than the limit without it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(source.type.value_type) or pa.types.is_large_string(source.type.value_type):
        lengths = (pc.binary_length(part.dictionary).take(part.indices).cast(pa.int64()) for part in source.chunks)
        total = sum(pc.sum(part).as_py() or 0 for part in lengths)
        if total > limits().max_file_bytes:
            raise column.error(f"holds {total:,} bytes of text. {column.drop_advice}")


def _floats(array: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    if not pa.types.is_floating(array.type):
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(array, dtype=np.float64)


def _with_nulls(cells: Any, text_format: TextFormat) -> Any:
    """Return the cells without blanks around them, null if they are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(cells)
    is_missing = pc.is_in(cells, value_set=pa.array(list(text_format.missing_marks), cells.type))
    return pc.if_else(is_missing, pa.scalar(None, cells.type), cells)


def _read_texts(column: Column, cells: Any, text_format: TextFormat) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return replace(column, values=_floats(with_decimal_point(cells, text_format)), cells=cells)
    except pa.ArrowInvalid:  # some are no numbers, or have blanks around them
        cells = _with_nulls(cells, text_format)
    numbers = with_decimal_point(cells, text_format)
    is_number = pc.fill_null(pc.match_substring_regex(numbers, _NUMERIC), False)
    numbers = pc.if_else(is_number, numbers, pa.scalar(None, numbers.type))
    values = _floats(pc.replace_substring_regex(numbers, "^[+]", ""))
    column = replace(column, values=values, cells=cells)
    if pc.all(pc.or_(is_number, pc.is_null(cells))).as_py():
        return column
    if all_match(cells, BOOLEAN):
        return replace(column, values=_floats(cells.cast(pa.bool_())))
    return column.with_times(times_of_texts(cells)) if all_match(cells, DATE) else replace(column, kind="text")


def all_match(cells: Any, pattern: str) -> bool:
    """Return whether all Arrow texts (n,) that are not missing match a pattern.

    Examples:
        >>> import pyarrow as pa
        >>> all_match(pa.array(["1", "2"]), NUMBER)
        True
    """
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


_OFFSET = r"^(.{11}[0-9:.]+) ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)$"
"""The pattern of a time with an offset from UTC."""


def times_of_texts(cells: Any) -> Any:
    """Return ISO 8601 dates (n,) on the clock as they are written, as `rfgp.columns.days.Times`.

    Dates that do not exist become NaT.

    Args:
        cells: Arrow texts (n,).

    Raises:
        DataError: If some times have an offset from UTC and others do not.

    Examples:
        >>> import pyarrow as pa
        >>> times = times_of_texts(pa.array(["2026-01-01T00:00+01:00", "2026-02-30T00:00+01:00"]))
        >>> times.zone, np.isnat(times.values).tolist()
        ('+01:00', [False, True])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from rfgp.columns.days import Times, common_zone, offset_seconds, zone_of_offset

    has_offset = pc.fill_null(pc.match_substring_regex(cells, _OFFSET), False)
    num_offsets = pc.sum(has_offset).as_py() or 0
    if num_offsets and num_offsets < len(cells) - cells.null_count:
        raise DataError("holds dates with and without an offset from UTC. Write all of them alike.")
    local = pc.replace_substring_regex(pc.replace_substring_regex(cells, _OFFSET, r"\1"), r"^(.{10})$", r"\1T00:00")
    kind = pa.timestamp("ns" if pc.any(pc.match_substring_regex(local, r"[.][0-9]{7}")).as_py() else "us")
    try:
        stamps = local.cast(kind)
    except pa.ArrowInvalid:
        stamps = pa.array([cast_or_none(cell, kind) for cell in local], kind)
    values = np.asarray(stamps)
    if not num_offsets:
        return Times(values)
    names = pc.replace_substring_regex(cells, _OFFSET, r"\2").fill_null("").to_pylist()
    seconds = {name: offset_seconds(name) if name else 0 for name in set(names)}
    zone = common_zone({zone_of_offset(seconds[name]) for name in seconds if name})
    return Times(values, zone, np.array([seconds[name] for name in names], dtype=np.int64))


def is_value(cell: str, text_format: TextFormat) -> bool:
    """Return whether a text is a number or a date.

    Examples:
        >>> is_value("1e3", TextFormat()), is_value("2026-01-01", TextFormat()), is_value("red", TextFormat())
        (True, True, False)
    """
    return re.match(NUMBER, cell_with_decimal_point(cell, text_format)) is not None or re.match(DATE, cell) is not None
