"""The unpacked bytes of a text file, and errors that name other formats."""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rfgp.errors import DataError
from rfgp.limits import limits
from rfgp.tables.messages import one_line, title, unreadable

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
    try:
        if file.is_dir():
            raise DataError(f"{title(file)} is a folder. Use a file in it.")
        if not file.exists():
            raise DataError(f"There is no file {title(file)}.")
        if not file.is_file():
            raise DataError(f"{title(file)} is not a regular file.")
        if file.stat().st_size == 0:
            raise DataError(f"{title(file)} is empty.")
    except OSError as error:
        raise unreadable(file, f"{error.strerror}.") from error


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
