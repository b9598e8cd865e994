"""Columns of a file: texts that become numbers, dates or booleans, and errors that name a cell."""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.cells import CellType, Column
from rfgp.columns.days import common_zone, offset_seconds, zone_of_offset
from rfgp.columns.indicators import LevelCounts
from rfgp.errors import DataError, IdentifierWarning, warn
from rfgp.limits import limits
from rfgp.messages import MISSING_LABEL, counted, quoted, unquoted
from rfgp.number_texts import DATE, NumberFormat, is_date, numbers_remedy
from rfgp.tables.options import TextFormat, decimal_advice, title
from rfgp.tables.text import Frame, decoded, is_text, number_like_cells

_BOOLEAN = r"^(?:True|TRUE|true|False|FALSE|false)$"
"""The pattern of a boolean."""
_NOT_FINITE = r"^[+-]?(?i:inf|infinity|nan)$"
"""The pattern of infinity and NaN."""
_OFFSET = r"^(.{11}[0-9:.]+) ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)$"
"""The pattern of a time with an offset from UTC."""
_OTHER_DATE = r"\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}(?:\D.*)?"
"""The pattern of a text that may be a date in another format than ISO 8601."""
_PROBE = 1000
"""The number of first cells that tell cheaply that a column does not have a type: Arrow describes each failed cell."""

# --- From Arrow cells to columns --------------------------------------------------------------------------------------


def column_of(cells: Any, text_format: TextFormat, example: str = "", first: int = 0) -> Column:
    """Return Arrow cells (n,) as a column. Texts become numbers, booleans or dates if all of them are.

    Args:
        cells: Arrow cells (n,) of a type that can be read.
        text_format: The format of texts.
        example: An example of the format of numbers as text, which all texts must have. If empty, there is none.
        first: The number of preceding rows, for messages.

    Raises:
        DataError: If a text is not in the format of the example, or only some dates have an offset from UTC.

    Examples:
        >>> import pyarrow as pa
        >>> column_of(pa.array(["1", "2.5"]), TextFormat()).values.tolist()
        [1.0, 2.5]
        >>> column_of(pa.array(["2024-02-29", "NA"]), TextFormat()).missing.tolist()
        [False, True]
    """
    import pyarrow as pa

    cells = decoded(cells)
    if not is_text(cells.type):
        return Column.of(cells)
    if example:
        return Column.of(in_format(with_nulls(cells, text_format), example, first))
    if text_format.is_plain and (numbers := _cast(cells)) is not None:
        return Column.of(numbers)
    texts = with_nulls(cells, text_format)
    for part in (texts[:_PROBE], texts):
        numbers = as_numbers(part, text_format.number)
        if numbers.null_count > part.null_count:
            break
    else:
        return Column.of(_cast(numbers))
    if _all_match(texts, _BOOLEAN):
        return Column.of(texts.cast(pa.bool_()))
    return _of_dates(texts) if _all_match(texts, DATE) else Column.of(texts)


def texts_of(cells: Any, text_format: TextFormat) -> Column:
    """Return Arrow cells (n,) as a column of text, as they are written in the file.

    Args:
        cells: Arrow cells (n,) of a type that can be read. Numbers have 15 digits, and dates are days.
        text_format: The format of texts.

    Examples:
        >>> import pyarrow as pa
        >>> texts_of(pa.array(["01", " 1"]), TextFormat()).levels, texts_of(pa.array([1.0, 2.0]), TextFormat()).levels
        (('01', '1'), ('1', '2'))
    """
    cells = decoded(cells)
    if is_text(cells.type):
        return Column.of(with_nulls(cells, text_format))
    import pyarrow as pa

    values = Column.of(cells).numbers().tolist()
    return Column.of(pa.array((None if value != value else f"{value:.15g}" for value in values), pa.string()))


def numbers_among(texts: Column, text_format: TextFormat) -> NDArray[np.float64]:
    """Return texts (n,) as numbers, NaN if they are missing or no numbers.

    Args:
        texts: The texts, with codes.
        text_format: The format of numbers.

    Examples:
        >>> import pyarrow as pa
        >>> numbers_among(texts_of(pa.array(["2", "x", None]), TextFormat()), TextFormat()).tolist()
        [2.0, nan, nan]
    """
    import pyarrow as pa

    words = pa.array([*texts.values.tolist(), None], pa.string())
    values = as_numbers(words, text_format.number).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(values[:-1] if texts.codes is None else values[texts.codes])  # the last is that of the code -1


def with_nulls(texts: Any, text_format: TextFormat) -> Any:
    """Return Arrow texts (n,) without blanks around them, null if they are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    is_missing = pc.is_in(texts, value_set=pa.array(list(text_format.missing_marks), texts.type))
    return pc.if_else(is_missing, pa.scalar(None, texts.type), texts) if pc.any(is_missing).as_py() else texts


def as_numbers(texts: Any, form: NumberFormat) -> Any:
    """Return numbers in a format as Arrow texts (n,) that Arrow reads, null for other texts.

    Args:
        texts: Arrow texts (n,) without blanks around them.
        form: The format of the numbers.

    Examples:
        >>> import pyarrow as pa
        >>> as_numbers(pa.array(["1.200,5", "+7", "x"]), NumberFormat("", "", ",", ".")).to_pylist()
        ['1200.5', '7', None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers, is_number = texts, pc.match_substring_regex(texts, form.pattern)
    if form.prefix or form.suffix:
        numbers = pc.replace_substring_regex(numbers, form.pattern, r"\1\2\3")
    if form.thousands is not None:
        numbers = pc.replace_substring(numbers, form.thousands, "")
    if form.decimal != ".":
        numbers = pc.replace_substring(numbers, form.decimal, ".")
    if not pc.all(is_number).as_py():
        is_number = pc.or_(is_number, pc.match_substring_regex(texts, _NOT_FINITE))
    numbers = pc.if_else(pc.fill_null(is_number, False), numbers, pa.scalar(None, numbers.type))
    return pc.utf8_ltrim(numbers, "+")


def in_format(texts: Any, example: str, first: int = 0) -> Any:
    """Return the numbers (n,) of Arrow texts in the format of an example, null if a text is null.

    Args:
        texts: Arrow texts (n,).
        example: An example of the format, such as "1.234,50 EUR".
        first: The number of preceding rows, for messages.

    Raises:
        DataError: If a text is not in this format. The message names its row.

    Examples:
        >>> import pyarrow as pa
        >>> in_format(pa.array(["1.234,50 EUR", "7,00 EUR"]), "1.234,50 EUR").to_pylist()
        [1234.5, 7.0]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    numbers = as_numbers(texts, NumberFormat.of(example))
    if numbers.null_count > texts.null_count:
        row = pc.index(pc.and_(pc.is_null(numbers), pc.is_valid(texts)), True).as_py()
        raise DataError(
            f"must hold numbers such as {quoted(example)}, got {quoted(str(texts[row]))} in row {first + row}. Correct "
            "the cell, or mark it as missing."
        )
    return numbers.cast(pa.float64())


def _cast(texts: Any) -> Any:
    """Return Arrow texts (n,) as numbers, or None if one is none. Arrow reads "0x1f" as an integer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            texts[:_PROBE].cast(kind)
            numbers = texts.cast(kind)
            is_hex = kind == pa.int64() and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py()
            return None if is_hex else numbers
    return None


def _all_match(texts: Any, pattern: str) -> bool:
    """Return whether all Arrow texts (n,) that are not missing match a pattern."""
    import pyarrow.compute as pc

    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (texts[:_PROBE], texts))


def _of_dates(texts: Any) -> Column:
    """Return ISO 8601 dates (n,) on the clock as they are written. Dates that do not exist are NaT, and not missing.

    Raises:
        DataError: If some times have an offset from UTC and others do not.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    has_offset = pc.fill_null(pc.match_substring_regex(texts, _OFFSET), False)
    num_offsets = pc.sum(has_offset).as_py() or 0
    if num_offsets and num_offsets < len(texts) - texts.null_count:
        raise DataError("holds dates with and without an offset from UTC. Write all of them alike.")
    local = pc.replace_substring_regex(pc.replace_substring_regex(texts, _OFFSET, r"\1"), r"^(.{10})$", r"\1T00:00")
    kind = pa.timestamp("ns" if pc.any(pc.match_substring_regex(local, r"[.][0-9]{7}")).as_py() else "us")
    try:
        stamps = local.cast(kind)
    except pa.ArrowInvalid:
        stamps = pa.array([_as_stamp(text, kind) for text in local], kind)
    column = Column(CellType.DATE, np.asarray(stamps), np.asarray(texts.is_null()))
    if not num_offsets:
        return column
    names = pc.replace_substring_regex(texts, _OFFSET, r"\2").fill_null("").to_pylist()
    seconds = {name: offset_seconds(name) if name else 0 for name in set(names)}
    zone = common_zone({zone_of_offset(seconds[name]) for name in seconds if name})
    return replace(column, zone=zone, offsets=np.array([seconds[name] for name in names], dtype=np.int64))


def _as_stamp(text: Any, kind: Any) -> Any:
    """Return an Arrow text as a time, or None if there is no such date."""
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        return text.cast(kind)
    return None


# --- The columns of a file, with errors that name their place ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FileColumn:
    """A column of n cells at its place in a file.

    Attributes:
        frame: The file.
        position: The position of the column in the file.
        cells: The cells (n,). Text may also hold numbers.
        example: An example of the format of numbers as text. If empty, that of the file.
        is_target: Whether this is the target, which cannot be left out.
        is_level: Whether a kernel reads the cells as levels.
        is_category: Whether the user says that the cells are categories.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.reading import read_frame
        >>> frame = read_frame(pd.DataFrame({"size": [1, 2], "color": ["red", "blue"]}), TextFormat())
        >>> color = FileColumn.of(frame, 1)
        >>> color.kind, color.drop_option
        ('text', "drop='color'")
    """

    frame: Frame
    position: int
    cells: Column
    example: str = ""
    is_target: bool = False
    is_level: bool = False
    is_category: bool = False

    @classmethod
    def of(cls, frame: Frame, position: int, example: str = "", *, is_target: bool = False) -> "FileColumn":
        """Return the column at a position.

        Args:
            frame: The file.
            position: The position.
            example: An example of the format of numbers as text. If empty, that of the file.
            is_target: Whether the column is the target. The default is False.

        Raises:
            DataError: If the type of the column cannot be converted to numbers, or a cell is not in the format.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        source, column = frame.sources[position], cls(frame, position, _NO_CELLS, example, is_target)
        if isinstance(source, pa.DataType):
            problem = f"holds values of type {unquoted(str(source))}, which cannot become numbers"
            raise column.error(f"{problem}. {column.drop_advice}")
        if pa.types.is_dictionary(source.type) and is_text(source.type):  # a long text that is repeated is short there
            lengths = (pc.binary_length(part.dictionary).take(part.indices).cast(pa.int64()) for part in source.chunks)
            if (total := sum(pc.sum(part).as_py() or 0 for part in lengths)) > limits().max_file_bytes:
                raise column.error(f"holds {total:,} bytes of text. {column.drop_advice}")
        try:
            example = example if is_text(source.type) else ""
            return replace(column, cells=column_of(source, frame.text_format, example), example=example)
        except DataError as error:
            raise column.error(str(error)) from None

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.frame.names[self.position]

    @property
    def kind(self) -> str:
        """The type of the cells: "number", "date" or "text". A column without any value counts as numbers."""
        return {CellType.DATE: "date", CellType.TEXT: "text"}.get(self.cells.cell_type, "number")

    @property
    def missing(self) -> NDArray[np.bool_]:
        """The mask (n,) of missing cells."""
        return self.cells.missing

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Numbers (n,), or days since 1970-01-01, NaN if missing. In text, NaN for cells that are not numbers."""
        is_text = self.cells.cell_type is CellType.TEXT
        return numbers_among(self.cells, self.frame.text_format) if is_text else self.cells.numbers()

    @cached_property
    def unparsed_rows(self) -> NDArray[np.int64]:
        """The positions (k,) of cells that are not missing and cannot be read as values of the kind."""
        return np.flatnonzero(np.isnan(self.values) & ~self.missing)

    @cached_property
    def counts(self) -> LevelCounts:
        """The levels of the cells."""
        return replace(LevelCounts.of(self.cells), is_category=self.is_category)

    @property
    def drop_option(self) -> str:
        """The option that drops the column."""
        return f"drop={quoted(self.name) if self.frame.header else self.position}"

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
        return DataError(f"{title(self.frame.file)}: column {quoted(self.name)} {why}")

    def shown(self, row: int | np.integer[Any]) -> str:
        """Return a cell as text for messages.

        Args:
            row: The position of the cell.
        """
        if self.kind == "text":
            return quoted(self.cells.take(np.array([row])).expanded().values[0])
        source = self.frame.sources[self.position]
        if self.kind == "date" and is_text(source.type):
            return quoted(str(source[int(row)]).strip())
        return f"{'day ' * (self.kind == 'date')}{self.values[row]:.10g}"

    def as_text(self) -> "FileColumn":
        """Return the column as a column of texts."""
        if self.kind == "text":
            return self
        return replace(self, cells=texts_of(self.frame.sources[self.position], self.frame.text_format))

    def with_missing_level(self) -> "FileColumn":
        """Return a column of texts in which missing cells have their own level."""
        return replace(self, cells=self.cells.filled(MISSING_LABEL))

    def take(self, rows: NDArray[np.int64]) -> "FileColumn":
        """Return the cells at positions `rows` (m,)."""
        return self if len(rows) == len(self.missing) else replace(self, cells=self.cells.take(rows))

    # --- Errors of columns that cannot be encoded as numbers

    @property
    def text_phrase(self) -> str:
        """The words "holds text ('x' in row 1, 1 such cell)" of a column with texts among its cells."""
        rows = self.unparsed_rows
        return f"holds text ({self.shown(rows[0])} in row {rows[0]}, {counted(len(rows), 'such cell')})"

    @property
    def format_advice(self) -> str:
        """The advice on the number or date format of the text cells, or ""."""
        sources, names = self.frame.sources, self.frame.names
        if own := number_like_cells(sources[self.position]):
            cells = {name: number_like_cells(source) for name, source in zip(names, sources, strict=True)}
            if advice := decimal_advice({**cells, self.name: own}, self.name, self.frame.text_format):
                return advice
        if (example := replace(self.counts, is_category=False).number) is not None:
            return f"{numbers_remedy(self.name, example)} "
        words = (self.shown(row)[1:-1] for row in self.unparsed_rows[:1])
        is_other = any(re.fullmatch(_OTHER_DATE, word) for word in words) and not all(
            is_date(str(level)) for level in self.counts.levels
        )
        return "Dates must be ISO (YYYY-MM-DD). " * is_other

    @property
    def are_all_different(self) -> bool:
        """Whether the texts are all different, or too many for categories."""
        return len(self.counts.levels) == self.counts.num_cells or self.counts.is_identifier

    def check_category(self) -> None:
        """Check that the texts can be categories.

        Raises:
            DataError: If the texts are all different, or too many.
        """
        if self.are_all_different:
            advice = self.format_advice.rstrip() or self.drop_advice
            raise self.error(f"has {self.counts.sizes}; it looks like an identifier. {advice}")

    def is_left_out(self) -> bool:
        """Return whether texts cannot be levels, since all of them differ, and warn if so.

        Raises:
            DataError: If the texts may be numbers or dates in another format, or are too many for levels.

        Warns:
            IdentifierWarning: If all texts of the column differ.
        """
        if advice := self.format_advice:
            raise self.error(f"{self.text_phrase}. {advice}Or leave it out ({self.drop_option}).")
        if len(self.counts.levels) < self.counts.num_cells:
            if self.counts.is_identifier:
                remedy = f"or use as_categories={quoted(self.name)} if they are levels"
                raise self.error(
                    f"has {self.counts.sizes}, like an identifier. Leave it out ({self.drop_option}), {remedy}."
                )
            return False
        cell = self.shown(self.unparsed_rows[0])
        each = f"is left out: each of its {self.counts.num_cells:,} texts is different, such as {cell}."
        warn(IdentifierWarning(str(self.error(each))))
        return True

    def text_error(self, *, is_named: bool) -> DataError:
        """Return the error for text if no option encodes it.

        Args:
            is_named: Whether a kernel names the column.
        """
        remedy = f'Use categories="one-hot" or leave the column out ({self.drop_option} or categories="drop").'
        phrase = self.text_phrase
        if is_named and not self.is_target:
            remedy = f"The kernel reads numbers there. Use a kernel of levels, such as Group({quoted(self.name)})."
        elif self.are_all_different:
            phrase += f", {counted(len(self.counts.levels), 'different text')}, like an identifier"
            remedy = self.drop_advice
        return self.error(f"{phrase}. {self.format_advice}{remedy}")

    def dates_error(self) -> DataError:
        """Return the error for dates if no option encodes them."""
        row = np.flatnonzero(~self.missing)[0]
        remedy = 'Use dates="days" or leave them out with dates="drop".'
        remedy = 'The target must be a number. Use dates="days".' if self.is_target else remedy
        return self.error(f"holds dates ({self.shown(row)} in row {row}). {remedy}")

    def check_mixed(self) -> None:
        """Check that texts are not mainly numbers.

        Raises:
            DataError: If at least half of the cells are numbers.
        """
        numbers = int(np.count_nonzero(~np.isnan(self.values)))
        if 2 * numbers >= self.counts.num_cells:
            remedy = "Correct these cells, add them to missing_marks, name the column in as_categories or "
            remedy += "choose another target" if self.is_target else f"leave it out ({self.drop_option})"
            problem = f"{self.text_phrase} among {counted(numbers, 'number')}. {self.format_advice}"
            raise self.error(f"{problem}{remedy}.")

    def check_dates(self) -> None:
        """Check that all dates exist.

        Raises:
            DataError: If a date does not exist, such as February 30.
        """
        for row in self.unparsed_rows[:1]:
            raise self.error(f"holds a date that does not exist ({self.shown(row)} in row {row}).")

    def check_missing(self, policy: str) -> None:
        """Check that no cell is infinite, and that missing cells are allowed by a policy.

        With the policy "mean", rows without a target are dropped. Numbers that are levels are never filled.

        Args:
            policy: The policy for missing cells: "error", "drop" or "mean".

        Raises:
            DataError: If a cell is infinite, or missing against the policy.
        """
        bad = np.isinf(self.values) if self.kind == "number" else np.zeros_like(self.missing)
        if policy not in ("drop", "mean") or (policy == "mean" and self.is_level):
            bad |= self.missing
        if not bad.any():
            return
        row, count = np.flatnonzero(bad)[0], np.count_nonzero(bad)
        cell, remedy = self.shown(row), "Correct these cells first."
        if self.missing[row]:
            may_fill = policy == "error" and not self.is_target and (not self.is_level or self.kind == "text")
            cell, remedy = "missing", 'Use missing="drop", or missing="mean".' if may_fill else 'Use missing="drop".'
        role = "(the target) " * self.is_target
        values = counted(int(count), "missing or infinite value")
        raise self.error(f"{role}has {values}, the first in row {row} ({cell}). {remedy}")


_NO_CELLS = Column(CellType.NUMBER, np.empty(0), np.empty(0, dtype=bool))
"""The cells of a column that is not read."""
