"""Checks of files before they are parsed: existence, content and unpacked size."""

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import IO, Any

from graphs.checks import check_is_file, one_line, printable, short_repr
from graphs.errors import FileFormatError

MAX_UNPACKED = 2**30
"""The largest number of bytes that a compressed file may unpack to."""

_MARKS = (
    (b"PK\x03\x04", "a zip archive"),
    (b"PAR1", "a Parquet file"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstandard data"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"%PDF", "a PDF document"),
    (b"\xd0\xcf\x11\xe0", "an old Excel or Word file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"ARROW1", "an Arrow file"),
    (b"\x7fELF", "a program"),
    (b"version https://git-lfs", "a Git LFS pointer in place of the file"),
)
"""The first bytes of files of other formats, with their names."""
_PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
"""The functions that open compressed files, by the first bytes."""
_XML = "a web page or XML"
"""The kind of a file that begins like XML."""
_CHUNK = 1 << 20
"""The number of bytes that are unpacked at once."""


def recognize(head: bytes) -> str | None:
    """Return the kind of a file from its first bytes, or None.

    Only kinds that are often confused with graphs and meshes are recognized.

    Args:
        head: The first bytes.

    Examples:
        >>> from graphs.builders.files import recognize
        >>> recognize(b"PAR1..."), recognize(b"solid cube")
        ('a Parquet file', None)
    """
    for mark, kind in _MARKS:
        if head.startswith(mark):
            return kind
    if head[257:262] == b"ustar":
        return "a tar archive"
    start = head[:200].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return _XML if start.startswith((b"<!doctype", b"<html", b"<?xml")) else None


def check_file(path: str | Path, expected: str, *, packed: bool = False, xml: bool = False) -> Path:
    """Return the path of a file that may have the expected content, such as "a mesh".

    Args:
        path: The file.
        expected: The expected content, for messages.
        packed: Whether gzip, bzip2 and xz data are allowed if they unpack to at most `MAX_UNPACKED`.
        xml: Whether XML is allowed.

    Raises:
        FileFormatError: If the file is missing or empty, or looks like something else.

    Examples:
        >>> from graphs.builders.files import check_file
        >>> check_file("missing.stl", "a mesh")
        Traceback (most recent call last):
        graphs.errors.FileFormatError: There is no file missing.stl.
    """
    if not isinstance(path, str | Path):
        raise FileFormatError(f"path must be the path of {expected}, got {short_repr(path)}.")
    file = Path(path)
    name = printable(str(file))
    check_is_file(file, FileFormatError)
    with file.open("rb") as stream:
        head = stream.read(512)
    opener = next((opener for mark, opener in _PACKED.items() if packed and head.startswith(mark)), None)
    if opener is not None:
        _check_unpacked(file, opener)
    elif (kind := recognize(head)) is not None and not (xml and kind == _XML):
        raise FileFormatError(f"{name} must be {expected}, got what looks like {kind}.")
    return file


def _check_unpacked(file: Path, opener: Any) -> None:
    total = 0
    try:
        stream: IO[bytes]
        with opener(file, "rb") as stream:
            while chunk := stream.read(_CHUNK):
                total += len(chunk)
                if total > MAX_UNPACKED:
                    raise FileFormatError(
                        f"{printable(str(file))} must unpack to at most {MAX_UNPACKED:,} bytes, got more."
                    )
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise FileFormatError(f"{printable(str(file))} is truncated or damaged: {one_line(error)}.") from error
