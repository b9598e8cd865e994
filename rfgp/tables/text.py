"""Files: the bytes, separator, header and cells of text, and Parquet, as the Arrow cells of each column."""

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.checks import check_is_file
from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.limits import limits
from rfgp.messages import counted, did_you_mean, listed, one_line, quoted, unquoted
from rfgp.tables.options import NUMBER_LIKE, TextFormat, decimal_advice, is_number_like, is_value, title

_PIECE = 1 << 20
"""The number of bytes that are read at once."""
_HEAD = 512
"""The number of first bytes by which other formats are recognized."""
_BOM = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""
_REMEDIES = {
    "a zip archive": " (Excel's .xlsx is one); unpack it or export a CSV file",
    "a Parquet file": "; end its name in .parquet",
    "gzip data": "; end its name in .gz, and pack it only once",
    "an old Excel or Word file": "; export a CSV file",
    "an Arrow file": "; write it as Parquet",
    "a Git LFS pointer in place of the file": "; fetch the file itself",
    "a web page or XML": ", not a table",
}
"""The remedies for files of other formats."""
_PLAIN = re.compile(rb"(?!\s*<)(?!PK|PAR1|BZh|7z|GIF8|%PDF|SQLite|ARROW1|version https)[\x20-\x7e\s]*")
"""Matches the beginning of a file that is text and no other known format."""
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16."""
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
        >>> read_frame(pd.DataFrame({"size": [1, 2], "color": ["red", "blue"]}), TextFormat()).names
        ('size', 'color')
    """

    file: Path | str
    names: tuple[str, ...]
    header: bool
    sources: Sequence[Any]
    num_rows: int
    text_format: TextFormat

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


def is_readable(kind: Any) -> bool:
    """Return whether a column of an Arrow type can be read.

    Examples:
        >>> import pyarrow as pa
        >>> is_readable(pa.float32()), is_readable(pa.list_(pa.float32()))
        (True, False)
    """
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    tests = (is_text, t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_null, t.is_date, t.is_timestamp)
    return any(test(kind) for test in tests)


def decoded(cells: Any) -> Any:
    """Return Arrow cells (n,) without a dictionary.

    Examples:
        >>> import pyarrow as pa
        >>> decoded(pa.array(["a", "a"]).dictionary_encode()).to_pylist()
        ['a', 'a']
    """
    import pyarrow.types as t

    return cells.cast(cells.type.value_type) if t.is_dictionary(cells.type) else cells


def number_like_cells(source: Any) -> list[str]:
    """Return distinct cells that may be numbers with a comma or a point.

    Args:
        source: Arrow cells (n,), or an Arrow type.

    Examples:
        >>> import pyarrow as pa
        >>> number_like_cells(pa.array(["1,5", "2", "x"]))
        ['1,5']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(source, pa.DataType) or not is_text(source.type):
        return []
    cells = pc.utf8_trim_whitespace(decoded(source.unique()).drop_null())
    texts: list[str] = cells.filter(pc.match_substring_regex(cells, NUMBER_LIKE)).to_pylist()
    return texts


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


# --- The unpacked bytes of a file, and errors that name other formats ---------------------------------------------


def unreadable(file: Path, why: str) -> DataError:
    """Return the error for a file that is not a table.

    Args:
        file: The file.
        why: The reason, which ends the message.

    Examples:
        >>> str(unreadable(Path("table.csv"), "it is a picture."))
        'table.csv is not a table that can be read: it is a picture.'
    """
    return DataError(f"{title(file)} is not a table that can be read: {why}")


def check_file(file: Path) -> None:
    """Check that a file exists and is not empty.

    Args:
        file: The file.

    Raises:
        DataError: If the file is missing, empty, a folder, or a device.

    Examples:
        >>> check_file(Path("missing.csv"))
        Traceback (most recent call last):
        rfgp.errors.DataError: There is no file missing.csv.
    """
    check_is_file(file, DataError)


def read_utf8(file: Path, encoding: str) -> bytes:
    """Return the content of a text file, perhaps gzipped, as UTF-8 without a byte order mark.

    Args:
        file: The file.
        encoding: The encoding of the file.

    Raises:
        DataError: If there is no such file, it is not text in this encoding, cannot be unpacked, or is larger than 1
            GiB.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("size,price")
        ...     file.flush()
        ...     read_utf8(Path(file.name), "utf-8")
        b'size,price'
    """
    data = bytearray()
    with _opened(file) as stream:
        while piece := stream.read(_PIECE):
            if not data:
                _check_kind(piece[:_HEAD], file, encoding)
            data += piece
            if len(data) > limits().max_file_bytes:
                raise unreadable(file, f"it holds more than {limits().max_file_bytes:,} bytes.")
    if not data:
        raise DataError(f"{title(file)} is empty.")
    remedy = 'try encoding="latin-1"' if encoding.lower().startswith("utf") else "use its encoding"
    return _as_utf8(bytes(data), file, encoding, remedy)


def read_first(file: Path, count: int) -> bytes:
    r"""Return the first lines of a UTF-8 text file, perhaps gzipped.

    Args:
        file: The file.
        count: The number of bytes to read. Only whole lines within them are returned.

    Raises:
        DataError: If there is no such file, it is not text, or cannot be unpacked.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "t.csv"
        ...     _ = file.write_bytes(b"a,b\n1,2\n")
        ...     read_first(file, 6)
        b'a,b\n'
    """
    with _opened(file) as stream:
        data = stream.read(count)
    _check_kind(data[:_HEAD], file, "utf-8")
    if len(data) == count and b"\n" in data:
        data = data[: data.rfind(b"\n") + 1]
    return _as_utf8(data, file, "utf-8", "save it as UTF-8")


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    check_file(file)
    try:
        with file.open("rb") as raw:
            if file.suffix.lower() != ".gz":
                yield raw
                return
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise unreadable(
            file, f"it cannot be unpacked ({one_line(error)}); fetch it again, or correct its name."
        ) from error
    except OSError as error:
        raise unreadable(file, f"{(error.strerror or str(error)).lower()}.") from error


def _is_wide(encoding: str) -> bool:
    """Return whether a character of this encoding has two or more bytes."""
    return re.match(r"utf[_-]?(16|32)", encoding.lower()) is not None


def _check_kind(head: bytes, file: Path, encoding: str) -> None:
    if not _is_wide(encoding) and head.startswith(_WIDE_MARKS):
        raise unreadable(file, 'it is UTF-16 text. Save it as UTF-8 or use encoding="utf-16".')
    if _PLAIN.fullmatch(head):  # nearly all tables begin so; the import of graphs is slow
        return
    from graphs.builders.files import recognize

    kind = recognize(head)
    if kind is not None:
        remedy = "; unpack it first" if kind.endswith(("data", "archive")) else ""
        raise unreadable(file, f"it looks like {kind}{_REMEDIES.get(kind, remedy)}.")


def _as_utf8(data: bytes, file: Path, encoding: str, remedy: str) -> bytes:
    if not _is_wide(encoding) and b"\0" in data:
        raise unreadable(file, f"byte {data.find(0):,} is NUL, which text never holds. It looks binary.")
    try:
        text = str(data, encoding)
    except UnicodeDecodeError as error:
        raise unreadable(file, f"byte {error.start:,} is not {encoding} text; {remedy}.") from error
    except UnicodeError as error:
        raise unreadable(file, f"it is not {encoding} text.") from error
    return data.removeprefix(_BOM) if encoding == "utf-8" else text.removeprefix("\ufeff").encode()


# --- Parquet ----------------------------------------------------------------------------------------------------------

_MAGIC = b"PAR1"
"""The first bytes of a Parquet file."""


def check_unique(file: Path, names: Sequence[str]) -> None:
    """Check that the columns of a file have different names.

    Args:
        file: The file.
        names: The names of its columns.

    Raises:
        DataError: If two columns have the same name.

    Examples:
        >>> check_unique(Path("table.csv"), ["size", "price"])  # no error
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{title(file)} has two columns named {quoted(twice)}. Rename one.")


@contextmanager
def opened(file: Path, **options: Any) -> Iterator[Any]:
    """Open a Parquet file, and convert errors inside the context.

    Args:
        file: The file.
        options: Options of `pyarrow.parquet.ParquetFile`.

    Yields:
        The open `pyarrow.parquet.ParquetFile`.

    Raises:
        DataError: If the file is missing, not Parquet, damaged, or has two columns of the same name.

    Examples:
        >>> import tempfile
        >>> import pyarrow as pa
        >>> import pyarrow.parquet
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "t.parquet"
        ...     pa.parquet.write_table(pa.table({"a": [1, 2]}), file)
        ...     with opened(file) as parquet:
        ...         parquet.metadata.num_rows
        2
    """
    with requires_extra("tables"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    check_file(file)
    try:
        with file.open("rb") as stream:
            if stream.read(len(_MAGIC)) != _MAGIC:
                raise unreadable(file, "its name says Parquet, and it does not begin as such a file.")
        with pq.ParquetFile(file, **options) as parquet:
            check_unique(file, [name.strip() for name in parquet.schema_arrow.names])
            yield parquet
    except PermissionError as error:
        raise unreadable(file, "permission denied.") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise unreadable(
            file, f"the Parquet data are damaged or end too early ({one_line(error)}); fetch it again."
        ) from error


def read_parquet_frame(file: Path, text_format: TextFormat) -> Frame:
    """Return the columns of a Parquet file.

    Args:
        file: The file.
        text_format: The format of text cells.

    Raises:
        DataError: If the file is missing, not Parquet, damaged, without rows or columns, or too large.

    Examples:
        >>> import tempfile
        >>> import pandas as pd
        >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        ...     pd.DataFrame({"size": [1, 2]}).to_parquet(file.name)
        ...     read_parquet_frame(Path(file.name), TextFormat()).names
        ('size',)
    """
    with requires_extra("tables"):
        import pyarrow as pa

    with opened(file) as parquet:
        fields, num_rows = list(parquet.schema_arrow), parquet.metadata.num_rows
    if not fields:
        raise DataError(f"{title(file)} has no columns.")
    if num_rows == 0:
        raise DataError(f"{title(file)} has columns and no rows.")
    if not 0 < num_rows * len(fields) * 8 <= limits().max_file_bytes:
        claim = f"its footer claims {counted(num_rows, 'row')} and {counted(len(fields), 'column')}"
        raise unreadable(file, f"{claim}, which is more than {limits().max_file_bytes:,} bytes.")
    texts = [field.name for field in fields if is_text(field.type) and not pa.types.is_dictionary(field.type)]
    wanted = [field.name for field in fields if is_readable(field.type)]
    with opened(file, read_dictionary=texts) as parquet:  # a long text that is repeated is short there
        table = parquet.read(columns=wanted, use_pandas_metadata=False)
        table.validate(full=True)
    sources = dict(zip(table.column_names, table.columns, strict=True))
    cells = [sources.get(field.name, field.type) for field in fields]
    return Frame(file, tuple(field.name.strip() for field in fields), True, cells, table.num_rows, text_format)
