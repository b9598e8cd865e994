"""The bytes of a text file, unpacked, with anything that is not text named."""

import gzip
import io
import zlib
from pathlib import Path
from typing import IO

from graphs.builders.files import recognize
from rfgp.errors import DataError
from rfgp.tables.messages import title, unreadable

MOST_BYTES = 1 << 30  # unpacked; reading takes several times as much
_LONGEST_LINE = 16 << 20  # the first line
_CHUNK = 1 << 20
_BOM = b"\xef\xbb\xbf"
_REMEDIES = {
    "a zip archive": " (Excel's .xlsx is one); unpack it or export a CSV file",
    "a Parquet file": "; end its name in .parquet",
    "gzip data": "; end its name in .gz, and pack it only once",
    "an old Excel or Word file": "; export a CSV file",
    "an Arrow file": "; write it as Parquet",
    "a Git LFS pointer in place of the file": "; fetch the file itself",
    "a web page or XML": ", not a table",
}
_ARCHIVES = ("bzip2 data", "xz data", "zstandard data", "a 7z archive", "a tar archive")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def check_file(file: Path) -> None:
    """Name a file that is missing, a folder, a device, or empty.

    Raises:
        DataError: there is nothing to read.
    """
    try:
        if file.is_dir():
            raise DataError(f"{title(file)} is a folder; give a file in it.")
        if not file.exists():
            raise DataError(f"There is no file {title(file)}.")
        if not file.is_file():
            raise DataError(f"{title(file)} is not a regular file.")
        if file.stat().st_size == 0:
            raise DataError(f"{title(file)} is empty.")
    except OSError as error:
        raise unreadable(file, f"{error.strerror}.") from error


def read_bytes(file: Path, wide: bool = False) -> bytes:
    """Return a file's bytes, unpacked where its name ends in .gz.

    Args:
        file: The file.
        wide: Text of two bytes and more a character is expected (UTF-16, UTF-32).

    Raises:
        DataError: there is no such file, it is no text, cannot be unpacked, or is larger than 1 GiB.
    """
    check_file(file)
    packed = file.suffix.lower() == ".gz"
    try:
        with file.open("rb") as raw:
            if not packed:
                return _drain(raw, file, wide)
            if raw.read(2) != b"\x1f\x8b":
                raise unreadable(file, "its name ends in .gz and it does not hold gzip data.")
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) as unpacked:
                return _drain(unpacked, file, wide)
    except EOFError as error:
        raise unreadable(file, "the gzip data end too early; fetch the file again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise unreadable(file, f"the gzip data are damaged ({error}).") from error
    except PermissionError as error:
        raise unreadable(file, "permission denied.") from error
    except OSError as error:
        raise unreadable(file, f"{error.strerror or error}.") from error


def read_first(file: Path, count: int) -> bytes:
    """Return the first bytes of a UTF-8 text file, unpacked where its name ends in .gz, without half a last line.

    Raises:
        DataError: there is no such file, it is no text, or cannot be unpacked.
    """
    check_file(file)
    try:
        with file.open("rb") as raw:
            stream = gzip.GzipFile(fileobj=raw) if file.suffix.lower() == ".gz" else raw
            data = stream.read(count)
    except (EOFError, zlib.error, OSError) as error:
        raise unreadable(file, f"{error}.") from error
    _check_kind(data, file, wide=False)
    if b"\0" in data:
        raise unreadable(file, f"byte {data.find(bytes(1)):,} is NUL, which text never holds; it looks binary.")
    data = data.removeprefix(_BOM)
    if len(data) >= count - len(_BOM) and b"\n" in data:
        data = data[: data.rfind(b"\n") + 1]
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise unreadable(file, f"byte {error.start:,} is not utf-8 text.") from error
    return data


def _drain(stream: IO[bytes] | gzip.GzipFile, file: Path, wide: bool) -> bytes:
    """Read to the end; what is known early is said early."""
    out = io.BytesIO()
    line_ended = False
    while chunk := stream.read(_CHUNK):
        if out.tell() == 0:
            _check_kind(chunk, file, wide)
        out.write(chunk)
        if out.tell() > MOST_BYTES:
            raise unreadable(file, f"it holds more than {MOST_BYTES:,} bytes.")
        if not wide and (place := chunk.find(b"\0")) >= 0:
            place += out.tell() - len(chunk)
            raise unreadable(file, f"byte {place:,} is NUL, which text never holds; it looks binary.")
        line_ended = line_ended or b"\n" in chunk or b"\r" in chunk
        if not line_ended and out.tell() > _LONGEST_LINE:
            raise unreadable(file, f"its first line is longer than {_LONGEST_LINE:,} bytes.")
    if out.tell() == 0:
        raise DataError(f"{title(file)} is empty.")
    return out.getvalue()


def _check_kind(head: bytes, file: Path, wide: bool) -> None:
    if not wide and head.startswith(_WIDE_MARKS):
        raise unreadable(file, 'it is UTF-16 text; save it as UTF-8 or give encoding="utf-16".')
    kind = recognize(head)
    if kind is not None:
        remedy = "; unpack it first" if kind in _ARCHIVES else _REMEDIES.get(kind, "")
        raise unreadable(file, f"it looks like {kind}{remedy}.")


def read_utf8(file: Path, encoding: str) -> bytes:
    """Return a text file as UTF-8 without a byte order mark.

    Raises:
        DataError: the file cannot be read, or is not text in this encoding.
    """
    name = encoding.lower().replace("_", "-")
    data = read_bytes(file, wide=name.startswith(("utf-16", "utf-32", "utf16", "utf32")))
    try:
        if name in ("utf-8", "utf8", "utf-8-sig"):
            if not data.isascii():
                str(data, "utf-8")
            return data.removeprefix(_BOM)
        data = str(data, encoding).removeprefix("\ufeff").encode()
    except UnicodeDecodeError as error:
        remedy = 'try encoding="latin-1"' if name.startswith("utf") else "give its encoding"
        raise unreadable(file, f"byte {error.start:,} is not {encoding} text; {remedy}.") from error
    except (UnicodeError, LookupError) as error:
        raise unreadable(file, f"it is not {encoding} text.") from error
    if b"\0" in data:
        raise unreadable(file, "it holds NUL characters; it looks binary.")
    return data
