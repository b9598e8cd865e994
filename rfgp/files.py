"""Atomic writing of files, the cache folder, and typed values of JSON."""

import errno
import math
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rfgp.errors import DataError, FileWriteError, MissingFolderError
from rfgp.messages import short_repr

_DAY = 86400  # seconds


def cache_folder() -> Path:
    """Return the folder of downloads and solutions.

    It is RFGP_CACHE_DIR, or the system's cache folder for rfgp.

    Examples:
        >>> cache_folder().is_absolute()
        True
    """
    return Path(os.environ.get("RFGP_CACHE_DIR") or _system_cache()).expanduser().absolute()


def _system_cache() -> Path:
    """Return the folder that the system reserves for caches of rfgp."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"), "rfgp", "rfgp", "Cache")
    if sys.platform == "darwin":
        return Path("~/Library/Caches/rfgp")
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "rfgp")


def sweep(folder: Path, pattern: str) -> None:
    """Remove day-old temporary files of killed processes from a cache folder.

    Args:
        folder: The folder.
        pattern: The pattern of their names, as for `Path.glob`.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sweep(Path(folder), ".rfgp-*")
    """
    for stray in folder.glob(pattern):
        with suppress(OSError):
            if stray.is_file() and stray.stat().st_mtime < time.time() - _DAY:
                stray.unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file through a temporary one in its folder.

    A full disk or a kill leaves the old file. A symbolic link stays, and its target is replaced. Pipes, terminals and
    devices such as /dev/null are written to directly. The permissions are those of a new file.

    Args:
        path: The file.
        content: The bytes of the file.

    Raises:
        FileWriteError: If the disk is full, the folder is missing or cannot be written, or the path is a folder.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder) / "a.txt", b"text")
        ...     (Path(folder) / "a.txt").read_text()
        'text'
    """
    with _named(path):
        check_target(path)
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                stream.write(content)
        else:
            _replace(Path(os.path.realpath(path)), content)


def check_target(path: Path) -> None:
    """Check that a file can be written to a path, without writing it.

    Args:
        path: The file.

    Raises:
        FileWriteError: If the path is a folder or a disk, or its folder is missing or cannot be written.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     check_target(Path(folder) / "a.txt")
    """
    with _named(path):
        mode = path.stat().st_mode if path.exists() else 0
        if stat.S_ISDIR(mode):
            raise _refusal(errno.EISDIR)
        if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
            raise OSError(errno.EINVAL, "It is a block device or a socket")
        if mode and not stat.S_ISREG(mode):
            return
        found = Path(os.path.realpath(path))
        if found.is_symlink():
            raise _refusal(errno.ELOOP)
        if not found.parent.exists():
            raise _refusal(errno.ENOENT)
        _check_folder(found.parent)


def check_folder(folder: Path) -> None:
    """Check that a folder can be made and written to, without making it.

    Args:
        folder: The folder.

    Raises:
        FileWriteError: If a part of the path is not a folder, or cannot be written.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     check_folder(Path(folder) / "a" / "b")
    """
    with _named(folder):
        _check_folder(
            next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
        )


@contextmanager
def made_folder(folder: Path) -> Iterator[Path]:
    """Make a folder.

    After an error in the block, new folders that are empty are removed.

    Args:
        folder: The folder. Missing parents are made as well.

    Yields:
        The folder.

    Raises:
        FileWriteError: If the folder cannot be made.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent, made_folder(Path(parent) / "a") as folder:
        ...     folder.is_dir()
        True
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with _named(folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException:
        for place in made:
            with suppress(OSError):
                place.rmdir()
        raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn errors of the system about a path into a `FileWriteError`."""
    try:
        yield
    except FileWriteError:
        raise
    except OSError as error:
        raise _error(path, error) from error


_REMEDIES = {
    errno.ENOSPC: "Make room, or choose another place.",
    errno.EDQUOT: "Make room, or choose another place.",
    errno.EISDIR: "Name a file in it.",
    errno.ENOTDIR: "A file stands where a folder is needed. Choose another place.",
    errno.ENOENT: "Make its folder first, or choose another place.",
}


def _error(path: Path, error: OSError) -> FileWriteError:
    reason, remedy = error.strerror or str(error), _REMEDIES.get(error.errno or 0, "Choose another place.")
    kind = MissingFolderError if isinstance(error, FileNotFoundError) else FileWriteError
    found = kind(f"{path} cannot be written: {reason.rstrip('.')}. {remedy}")
    found.errno, found.strerror, found.filename = error.errno, error.strerror, str(path)
    return found


def _refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise _refusal(errno.ENOTDIR)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _refusal(errno.EACCES)


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".rfgp-{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


# --- Typed values of JSON ---------------------------------------------------------------------------------------------


def from_json(kind: Any, value: Any, name: str, optional: tuple[str, ...] = ()) -> Any:
    """Return a value of JSON as a text, integer, boolean, number or choice, or as a tuple or dataclass of such.

    Args:
        kind: The type of the result.
        value: The value.
        name: The name of the value, for messages.
        optional: The fields of dataclasses that may be left out.

    Raises:
        DataError: If the value has another type, or a field is missing or unknown.

    Examples:
        >>> from_json(tuple[float, ...], [1, 2.5], "means")
        (1.0, 2.5)
    """
    if isinstance(kind, UnionType) and isinstance(value, dict):
        kind = next((one for one in get_args(kind) if is_dataclass(one)), kind)
    if is_dataclass(kind) and isinstance(value, dict):
        hints = get_type_hints(kind)
        value = {field.name: field.default for field in fields(kind) if field.name in optional} | value
        if mismatched := set(hints).symmetric_difference(value):
            raise not_usable(f"{name} lacks or does not know the field {short_repr(str(min(mismatched, key=str)))}")
        make: Any = kind
        return make(**{key: from_json(hint, value[key], key, optional) for key, hint in hints.items()})
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(from_json(get_args(kind)[0], entry, name, optional) for entry in value)
    if kind is float and type(value) in (int, float):
        return float(value) if abs(value) < sys.float_info.max else math.inf
    if isinstance(kind, type) and issubclass(kind, Enum) and value in [choice.value for choice in kind]:
        return kind(value)
    if type(value) not in (get_args(kind) if isinstance(kind, UnionType) else (kind,)):
        raise not_usable(f"{name} is {short_repr(value)}, not {getattr(kind, '__name__', kind)}")
    return value


def not_usable(why: str) -> DataError:
    """Return the error for the content of a schema that cannot be used.

    Args:
        why: The reason, without a period.

    Examples:
        >>> str(not_usable("a mean is not finite"))
        'This is not a schema that can be used: a mean is not finite.'
    """
    return DataError(f"This is not a schema that can be used: {why}.")
