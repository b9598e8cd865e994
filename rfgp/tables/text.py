"""Text files: which mark separates the cells, whether the first line names them, and the cells."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.tables.cells import DATE, NUMBER
from rfgp.tables.content import read_first, read_utf8
from rfgp.tables.frame import Frame
from rfgp.tables.messages import counted, show, title, unreadable
from rfgp.tables.options import TextFormat

_MOST_COLUMNS = 100_000
_SAMPLE_LINES = 20
_SAMPLE_BYTES = 1 << 20
_BLOCK = 1 << 22
_BLANK_LINES = re.compile(rb"(?:[ \t]*(?:\r\n|\r|\n))*[ \t]*\Z|(?:[ \t]*(?:\r\n|\r|\n))*")
_ONLY_BLANKS = re.compile(rb"(?m)^ +(?=\r?$)")
_BLANK_CELLS = re.compile(r'"[^"]*"(?!\S)|\S+')


class _Start(NamedTuple):
    """The first record, where it ends, and the records of the next lines."""

    cells: list[str]
    begin: int  # bytes
    end: int  # bytes
    sample: list[list[str]]


def read_text(
    file: Path,
    form: TextFormat,
    *,
    names: Sequence[str] | None = None,
    header: bool | None = None,
    as_text: bool = False,
) -> Frame:
    """Read a text table, plain or gzipped, separated by commas, semicolons, tabs or blanks.

    Args:
        file: The file.
        form: How its cells are spelled.
        names: The columns' names; the first line then is a row.
        header: Whether the first line holds names; None: unless every cell of it is a number or date.
        as_text: Keep the spelling of all cells.

    Raises:
        DataError: the file is missing, empty, not text, or ragged.
        InvalidArgumentError: `names` has not one name for each column.
    """
    data = _without_comments(read_utf8(file, form.encoding), form.comment)
    mark, data = _separate(file, data, form)
    start = _read_start(file, data, mark)
    if names is not None:
        if len(names) != len(start.cells):
            found = f"{counted(len(names), 'name')}, and its first line has {counted(len(start.cells), 'cell')}"
            raise InvalidArgumentError(f"{title(file)}: names holds {found}.")
        header = False
    elif header is None:
        header = _is_header(file, start.cells, form)
    body = start.end if header else start.begin
    if _blank_end(data, body) == len(data):
        raise DataError(f"{title(file)} has a header and no rows.")
    given = names if names is not None else start.cells if header else [str(i) for i in range(len(start.cells))]
    sample = start.sample if header else [start.cells, *start.sample]
    numeric = [] if as_text or form.decimal != "." else _numeric_columns(sample, len(start.cells), form)
    table = _parse(file, data, body, mark, len(start.cells), numeric, form)
    own = header or names is not None
    return Frame(file, tuple(name.strip() for name in given), bool(own and header), table.columns, len(table), form)


class Head(NamedTuple):
    """What the first lines of a text file tell."""

    names: tuple[str, ...]
    mark: str
    skipped: int  # lines before the first row
    is_named: bool  # by a header or by the caller


def read_head(file: Path, form: TextFormat, names: Sequence[str] | None = None) -> Head:
    """Return the columns' names and the separator of a text table that is read in blocks.

    Raises:
        DataError: the file is missing, empty, not text, or separated by blanks.
        InvalidArgumentError: `names` has not one name for each column.
    """
    data = read_first(file, _SAMPLE_BYTES)
    begin = _blank_end(data, 0)
    if begin == len(data):
        raise DataError(f"{title(file)} is empty: it has only blank lines.")
    lines = _head_lines(data, begin)
    _check_width(file, lines[0])
    mark = _find_separator(lines, form.decimal)
    if mark == " ":
        raise unreadable(file, "its cells are separated by blanks, which are not read in blocks; use read_table.")
    start = _read_start(file, data, mark)
    header = names is None and _is_header(file, start.cells, form)
    given = names if names is not None else start.cells if header else [str(i) for i in range(len(start.cells))]
    if len(given) != len(start.cells):
        found = f"{counted(len(given), 'name')}, and its first line has {counted(len(start.cells), 'cell')}"
        raise InvalidArgumentError(f"{title(file)}: names holds {found}.")
    stripped = tuple(name.strip() for name in given)
    if len(set(stripped)) < len(stripped):
        twice = next(name for name in stripped if stripped.count(name) > 1)
        raise DataError(f"{title(file)} has two columns named {show(twice)}. Rename one.")
    end = start.end if header else start.begin
    return Head(stripped, mark, data[:end].count(b"\n"), header or names is not None)


def _without_comments(data: bytes, mark: str | None) -> bytes:
    """Empty the lines that begin with the mark; they still count as lines."""
    if mark is None:
        return data
    return re.sub(rb"(?m)^[ \t]*" + re.escape(mark.encode()) + rb"[^\r\n]*", b"", data)


def _separate(file: Path, data: bytes, form: TextFormat) -> tuple[str, bytes]:
    """Return the separator and the data; runs of blanks become a tab."""
    begin = _blank_end(data, 0)
    if begin == len(data):
        raise DataError(f"{title(file)} is empty: it has only blank lines or comments.")
    lines = _head_lines(data, begin)
    if form.comment is None and lines[0].lstrip().startswith("#"):
        raise unreadable(file, 'its first line starts with "#"; give comment="#" to skip such lines.')
    _check_width(file, lines[0])
    mark = _find_separator(lines, form.decimal)
    if b'"' in data and data.count(b'"') % 2:
        _check_quotes(file, data)
    if mark == " ":
        return "\t", _tabbed(data)
    return mark, _joined_quotes(data, mark) if b'"' in data else data


def _blank_end(data: bytes, begin: int) -> int:
    match = _BLANK_LINES.match(data, begin)
    return begin if match is None else match.end()


def _head_lines(data: bytes, begin: int) -> list[str]:
    """Return the first lines, with their ends."""
    first = data[begin : begin + _SAMPLE_BYTES].splitlines(keepends=True)
    if len(first) == 1:
        first = data[begin:].splitlines(keepends=True)[:1] if len(data) - begin > _SAMPLE_BYTES else first
    elif begin + _SAMPLE_BYTES < len(data):
        first.pop()
    return [line.decode() for line in first[:_SAMPLE_LINES]]


def _check_width(file: Path, line: str) -> None:
    most = max(line.count(","), line.count(";"), line.count("\t"), len(line.split()) - 1) + 1
    if most > _MOST_COLUMNS:
        raise unreadable(
            file, f"its first line has {most:,} cells, more than {_MOST_COLUMNS:,}; are the line ends missing?"
        )


def _find_separator(lines: list[str], decimal: str) -> str:
    """Return the mark that gives the first lines alike numbers of cells; blanks are " "."""
    best, mark = 0.0, ","
    for candidate in (";", "\t", ",", " ") if decimal == "." else (";", "\t", " ", ","):
        widths = [len(cells) for cells in _records(lines, candidate) if cells]
        if not widths or widths[0] < 2:
            continue
        score = widths.count(widths[0]) / len(widths)
        if score > best:
            best, mark = score, candidate
    return mark


def _records(lines: Sequence[str], mark: str) -> list[list[str]]:
    """Return the records of the first lines; the last may continue after them."""
    if mark == " ":
        return [_BLANK_CELLS.findall(line) for line in lines]
    try:
        return list(csv.reader(lines, delimiter=mark, skipinitialspace=True))
    except csv.Error:
        return []


def _tabbed(data: bytes) -> bytes:
    cells = re.compile(_BLANK_CELLS.pattern.encode())
    lines = (cells.findall(line) if b'"' in line else line.split() for line in data.splitlines())
    return b"\n".join(map(b"\t".join, lines))


def _read_start(file: Path, data: bytes, mark: str) -> _Start:
    begin = _blank_end(data, 0)
    lines = _head_lines(data, begin)
    reader = csv.reader(lines, delimiter=mark, skipinitialspace=True)
    try:
        cells = next(reader)
        used = reader.line_num
        sample = [record for record in reader if record][:-1] if len(lines) > used + 1 else []
    except csv.Error as error:
        raise unreadable(file, f"its first lines cannot be told apart ({error}).") from error
    end = begin + sum(len(line.encode()) for line in lines[:used])
    if used > 1 or end == len(data):
        _check_quotes(file, data)
    return _Start(cells, begin, end, sample)


def _is_header(file: Path, cells: list[str], form: TextFormat) -> bool:
    """Say whether the first line holds names."""
    texts = [cell.strip() for cell in cells]
    values = [bool(re.match(NUMBER, _pointed(text, form)) or re.match(DATE, text)) for text in texts]
    if all(value or text in form.missing_marks for value, text in zip(values, texts, strict=True)):
        return not any(values)
    if any(values):
        odd = next(text for text, value in zip(texts, values, strict=True) if not value)
        hint = ""
        if re.fullmatch(r"[+-]?\d+,\d+", odd):
            hint = ' Give decimal="," where a comma is the decimal mark.'
        raise DataError(
            f"{title(file)}: the first line mixes numbers and text ({show(odd)}); is it a header or a row? If a row, "
            f"give names for the columns; if a header, no name may be a number.{hint}"
        )
    commas = next((text for text in texts if re.fullmatch(r"[+-]?\d+,\d+", text)), None)
    if commas is not None and all(re.fullmatch(r"[+-]?[\d,]+", text) for text in texts):
        raise DataError(
            f'{title(file)}: the first line holds cells like {show(commas)}. Give decimal="," where a comma is the '
            "decimal mark."
        )
    return True


def _pointed(cell: str, form: TextFormat) -> str:
    return cell if form.decimal == "." else "text" if "." in cell else cell.replace(",", ".")


def _numeric_columns(sample: list[list[str]], width: int, form: TextFormat) -> list[int]:
    """Return the columns whose first cells are all numbers."""
    alike = [record for record in sample if len(record) == width]
    return [
        place
        for place in range(width)
        if all(re.match(NUMBER, record[place].strip()) or record[place] in form.missing_marks for record in alike)
    ]


def _parse(file: Path, data: bytes, begin: int, mark: str, width: int, numeric: Sequence[int], form: TextFormat) -> Any:
    """Return the rows as an Arrow table; numbers where all cells of the columns `numeric` are, else texts."""
    import pyarrow as pa

    try:
        return _parse_as(data, begin, mark, width, numeric, form)
    except pa.ArrowInvalid as error:
        if numeric and "conversion" in str(error):
            return _parse(file, data, begin, mark, width, (), form)
        cleaned = _ONLY_BLANKS.sub(b"", data[begin:])
        if len(cleaned) < len(data) - begin:
            return _parse(file, data[:begin] + cleaned, begin, mark, width, numeric, form)
        _check_records(file, data, mark, width)
        raise unreadable(file, show(str(error))) from error


def _parse_as(data: bytes, begin: int, mark: str, width: int, numeric: Sequence[int], form: TextFormat) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    names = [str(place) for place in range(width)]
    numbers = set(numeric)
    types = {name: pa.float64() if place in numbers else pa.string() for place, name in enumerate(names)}
    block = max(_BLOCK, 64 * width)
    return arrow.read_csv(
        pa.BufferReader(pa.py_buffer(memoryview(data)[begin:])),
        read_options=arrow.ReadOptions(column_names=names, block_size=block),
        parse_options=arrow.ParseOptions(delimiter=mark, newlines_in_values=b'"' in data),
        convert_options=arrow.ConvertOptions(
            column_types=types, null_values=list(form.missing_marks), check_utf8=False, strings_can_be_null=False
        ),
    )


def _joined_quotes(data: bytes, mark: str) -> bytes:
    """Remove blanks between a separator and a quote that opens a cell."""
    pattern = re.escape(mark.encode()) + rb' +(?="(?:[^"]|"(?:[\r\n]|' + re.escape(mark.encode()) + rb")))"
    return re.sub(pattern, mark.encode(), data)


def _lines(data: bytes) -> Iterator[str]:
    return iter(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline=""))


def _check_quotes(file: Path, data: bytes) -> None:
    """Name a quote that never closes."""
    opened = 1
    reader = csv.reader(_lines(data), strict=True)
    try:
        for _ in reader:
            opened = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end" in str(error) or "field larger" in str(error):
            raise unreadable(file, f"a quote that opens in or after line {opened:,} never closes.") from error


def _check_records(file: Path, data: bytes, mark: str, width: int) -> None:
    """Name the first line that has another number of cells."""
    reader = csv.reader(_lines(data), delimiter=mark)
    try:
        for cells in reader:
            if cells and len(cells) != width and "".join(cells).strip():
                more = "more cells than" if len(cells) > width else "fewer cells than"
                found = f"line {reader.line_num:,} has {counted(len(cells), 'cell')}, {more} the first line ({width:,})"
                raise unreadable(file, f"{found}; give every column a name and every row all its cells.")
    except csv.Error as error:
        raise unreadable(file, f"line {reader.line_num:,} cannot be read ({error}).") from error
