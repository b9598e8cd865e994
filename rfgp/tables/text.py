"""Text files: the separator of the cells, the header, and the cells."""

import csv
import io
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.tables.columns import Frame, is_value
from rfgp.tables.content import read_first, read_utf8
from rfgp.tables.decimals import decimal_advice, is_number_like
from rfgp.tables.messages import check_unique, counted, one_line, quoted, title, unreadable
from rfgp.tables.options import TextFormat

_MAX_COLUMNS = 100_000
"""The maximum number of cells of the first line."""
_SAMPLE_LINES = 20
"""The number of lines that determine the separator."""
_SAMPLE_BYTES = 1 << 20
"""The number of bytes that are read to find the header."""
_BLOCK = 1 << 22
"""The number of bytes that Arrow parses at once."""
_BLANK_LINES = re.compile(rb"(?:[ \t]*[\r\n]+)*")
"""Matches blank lines at the beginning."""
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""Matches a line with its end."""
_NOT_BLANK = re.compile(rb"\S")
"""Matches a character that is not blank."""
_CELL = re.compile(r'"[^"]*"(?!\S)|\S+')
"""Matches a cell of a line that is separated by blanks."""


class Header(NamedTuple):
    """The names of the columns and the separator, from the first lines of a text file."""

    names: tuple[str, ...]
    separator: str
    data_start: int  # the position of the first row, in bytes
    skipped: int  # lines before the first row
    is_named: bool  # by a header or by the caller


def read_text(
    file: Path, text_format: TextFormat, *, names: Sequence[str] | None = None, header: bool | None = None
) -> Frame:
    r"""Read a text table with any common separator, perhaps gzipped.

    Args:
        file: The file.
        text_format: The format of its cells.
        names: The columns' names. If None, they are in the header.
        header: Whether the first line holds names. If None, it holds names unless all its cells are numbers or dates.

    Returns:
        The columns of the file.

    Raises:
        DataError: If the file is missing, empty, not text, or ragged.
        InvalidArgumentError: If `names` does not have one name for each column.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("size,price\n1,2\n")
        ...     file.flush()
        ...     read_text(Path(file.name), TextFormat()).num_rows
        1
    """
    data = _without_comments(read_utf8(file, text_format.encoding), text_format)
    if text_format.comment is None and re.match(rb"\s*#", data):
        raise unreadable(file, 'its first line starts with "#". Use comment="#" to skip such lines.')
    separator = _find_separator(file, data, text_format)
    if b'"' in data and data.count(b'"') % 2:
        _check_lines(file, data, separator)
    data, separator = _normalized_separators(data, separator)
    header_info = _read_header(file, data, separator, text_format, names, header)
    if not _NOT_BLANK.search(data, header_info.data_start):
        raise DataError(f"{title(file)} has a header and no rows.")
    table = _parse(file, data, header_info, text_format)
    is_named = header_info.is_named and names is None
    return Frame(file, header_info.names, is_named, table.columns, len(table), text_format)


def read_header(file: Path, text_format: TextFormat, names: Sequence[str] | None = None) -> Header:
    r"""Return the names and the separator of a text table for batches.

    Args:
        file: The file.
        text_format: The format of its cells.
        names: The names of the columns. If None, they are in the header.

    Raises:
        DataError: If the file is missing, empty, not text, or separated by blanks.
        InvalidArgumentError: If `names` does not have one name for each column.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("size,price\n1,2\n")
        ...     file.flush()
        ...     read_header(Path(file.name), TextFormat()).separator
        ','
    """
    data = read_first(file, _SAMPLE_BYTES)
    separator = _find_separator(file, data, text_format)
    if separator == " ":
        raise unreadable(file, "its cells are separated by blanks, which cannot be read in batches. Use read_table.")
    header = _read_header(file, data, separator, text_format, names, None)
    check_unique(file, header.names)
    return header


def peek_names(file: Path, text_format: TextFormat) -> tuple[str, ...] | None:
    r"""Return the names of the columns from the first lines of a text table.

    The result is None if they cannot be found.

    Args:
        file: The file.
        text_format: The format of its cells.

    Raises:
        DataError: If the file is missing, empty or not text.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("size,price\n1,2\n")
        ...     file.flush()
        ...     peek_names(Path(file.name), TextFormat())
        ('size', 'price')
    """
    if text_format.encoding != TextFormat().encoding:
        return None
    data = _without_comments(read_first(file, _SAMPLE_BYTES), text_format)
    try:
        data, separator = _normalized_separators(data, _find_separator(file, data, text_format))
        return _read_header(file, data, separator, text_format, None, None).names
    except DataError:  # reading the whole file may give a better error
        return None


def _without_comments(data: bytes, text_format: TextFormat) -> bytes:
    """Return the text with empty lines in place of comments, so that line numbers are unchanged."""
    if text_format.comment is None:
        return data
    return re.sub(rb"(?m)^[ \t]*" + re.escape(text_format.comment.encode()) + rb"[^\r\n]*", b"", data)


def _first_lines(data: bytes) -> tuple[int, list[str]]:
    """Return the position of the first line that is not blank, and the first lines with their ends."""
    match = _BLANK_LINES.match(data)
    begin = match.end() if match else 0
    return begin, [line[0].decode() for line in itertools.islice(_LINE.finditer(data, begin), _SAMPLE_LINES)]


def _find_separator(file: Path, data: bytes, text_format: TextFormat) -> str:
    """Return the separator that splits the first lines into equal numbers of cells, " " for blanks."""
    lines = _first_lines(data)[1]
    if not "".join(lines).strip():
        raise DataError(f"{title(file)} is empty: it has only blank lines or comments.")
    num_cells = max(*map(lines[0].count, ",;\t"), len(lines[0].split()) - 1) + 1
    if num_cells > _MAX_COLUMNS:
        problem = f"its first line has {num_cells:,} cells, more than {_MAX_COLUMNS:,}"
        raise unreadable(file, f"{problem} (are the line ends missing?).")
    best, separator = 0.0, ","
    for candidate in ";\t, " if text_format.decimal == "." else ";\t ,":
        widths = [len(cells) for cells in _records(lines, candidate) if cells]
        if widths and widths[0] > 1 and (score := widths.count(widths[0]) / len(widths)) > best:
            best, separator = score, candidate
    return separator


def _records(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the records of the first lines. The last may be cut."""
    if separator == " ":
        return [_CELL.findall(line) for line in lines]
    try:
        return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    except csv.Error:
        return []


def _normalized_separators(data: bytes, separator: str) -> tuple[bytes, str]:
    """Return the data with single separators, and the separator.

    Runs of blanks become tabs. Blanks before quotes that open cells are removed.
    """
    if separator == " ":
        cells = re.compile(_CELL.pattern.encode())
        lines = (cells.findall(line) if b'"' in line else line.split() for line in data.splitlines())
        return b"\n".join(map(b"\t".join, lines)), "\t"
    if b'"' not in data:
        return data, separator
    end = re.escape(separator.encode())
    return re.sub(end + rb' +(?="(?:[^"]|"(?:[\r\n]|' + end + rb")))", separator.encode(), data), separator


def _read_header(
    file: Path, data: bytes, separator: str, text_format: TextFormat, names: Sequence[str] | None, header: bool | None
) -> Header:
    begin, lines = _first_lines(data)
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    try:
        cells = next(reader)
    except csv.Error as error:
        raise unreadable(file, f"its first lines cannot be split into cells ({error}).") from error
    end = begin + sum(len(line.encode()) for line in lines[: reader.line_num])
    if reader.line_num > 1:
        _check_lines(file, data, separator)
    if names is not None and len(names) != len(cells):
        problem = f"{counted(len(names), 'name')}, and its first line has {counted(len(cells), 'cell')}"
        raise InvalidArgumentError(f"{title(file)}: names holds {problem}.")
    if header is None or names is not None:
        header = names is None and _is_header(file, [cell.strip() for cell in cells], text_format)
    column_names = names if names is not None else _named(cells) if header else map(str, range(len(cells)))
    begin = end if header else begin
    return Header(
        tuple(name.strip() for name in column_names),
        separator,
        begin,
        data.count(b"\n", 0, begin),
        header or names is not None,
    )


def _named(cells: Sequence[str]) -> list[str]:
    """Return the names of a header, with "Unnamed: 0" and so on for empty ones, as pandas calls them."""
    names = [cell.strip() for cell in cells]
    for index, name in enumerate(names):
        if not name:
            names[index] = f"Unnamed: {index}{'.1' * (f'Unnamed: {index}' in names)}"
    return names


def _is_header(file: Path, cells: list[str], text_format: TextFormat) -> bool:
    """Return whether the first line holds names."""
    values = [is_value(cell, text_format) for cell in cells]
    if all(value or cell in text_format.missing_marks for value, cell in zip(values, cells, strict=True)):
        return not any(values)
    numbers = {str(position): [cell] if is_number_like(cell) else [] for position, cell in enumerate(cells)}
    if any(values):
        index = values.index(False)
        hint = decimal_advice(numbers, str(index), text_format)
        raise DataError(
            f"{title(file)}: the first line must be a header or a row, got numbers and text ({quoted(cells[index])}). "
            f"If it is a row, use names= for the columns. In a header no name may be a number. {hint}".rstrip()
        )
    hints = {name: hint for name in numbers if (hint := decimal_advice(numbers, name, text_format))}
    if hints and all(is_number_like(cell) or cell.isdecimal() for cell in cells):
        index = int(min(hints, key=int))
        raise DataError(
            f"{title(file)}: the first line holds cells like {quoted(cells[index])}. {hints[str(index)]}".rstrip()
        )
    return True


def _parse(file: Path, data: bytes, header: Header, text_format: TextFormat) -> Any:
    """Return the rows as an Arrow table of texts, null if a cell is missing."""
    with requires_extra("tables"):
        import pyarrow as pa
        from pyarrow import csv as arrow

    names = [str(index) for index in range(len(header.names))]
    types = dict.fromkeys(names, pa.string())
    marks = list(text_format.missing_marks)

    def parse(handler: Callable[[Any], str] | None) -> Any:
        return arrow.read_csv(
            pa.BufferReader(pa.py_buffer(memoryview(data)[header.data_start :])),
            arrow.ReadOptions(column_names=names, block_size=max(_BLOCK, 64 * len(names))),
            arrow.ParseOptions(
                delimiter=header.separator, newlines_in_values=b'"' in data, invalid_row_handler=handler
            ),
            arrow.ConvertOptions(check_utf8=False, column_types=types, null_values=marks, strings_can_be_null=True),
        )

    try:
        return parse(None)
    except pa.ArrowInvalid:  # some lines have other widths, perhaps only those of blanks
        try:
            return parse(lambda row: "error" if row.text.strip() else "skip")
        except pa.ArrowInvalid as error:
            _check_lines(file, data, header.separator, len(names))
            raise unreadable(file, f"{one_line(error)}.") from error


def _check_lines(file: Path, data: bytes, separator: str, width: int | None = None) -> None:
    """Raise an error for a quote that never closes, or for the first line without `width` cells."""
    opened = 1
    lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="")
    reader = csv.reader(lines, delimiter=separator, strict=width is None)
    try:
        for cells in reader:
            if width and cells and len(cells) != width and "".join(cells).strip():
                more = "more cells than" if len(cells) > width else "fewer cells than"
                problem = (
                    f"line {reader.line_num:,} has {counted(len(cells), 'cell')}, {more} the first line ({width:,})"
                )
                raise unreadable(file, f"{problem}; give every column a name and every row all its cells.")
            opened = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end" in str(error) or "field larger" in str(error):
            raise unreadable(file, f"a quote that opens in or after line {opened:,} never closes.") from error
        if width:
            raise unreadable(file, f"line {reader.line_num:,} cannot be read ({error}).") from error
