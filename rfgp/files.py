"""Files that appear whole or not at all, and the folder for those that can be made again."""

import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rfgp.errors import FileWriteError, MissingFolderError

_DAY = 86400  # seconds


def cache_folder() -> Path:
    """Return the folder of downloads and solutions: RFGP_CACHE_DIR, or the system's cache folder for rfgp."""
    return Path(os.environ.get("RFGP_CACHE_DIR") or _system_cache()).expanduser().absolute()


def _system_cache() -> Path:
    """Return the folder that the system reserves for caches of rfgp."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"), "rfgp", "rfgp", "Cache")
    if sys.platform == "darwin":
        return Path("~/Library/Caches/rfgp")
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "rfgp")


def sweep(folder: Path, pattern: str) -> None:
    """Remove the temporary files of a cache folder that are a day old: those of processes that were killed."""
    for stray in folder.glob(pattern):
        with suppress(OSError):
            if stray.is_file() and stray.stat().st_mtime < time.time() - _DAY:
                stray.unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file through a temporary one beside it; a full disk or a kill leaves the old file.

    A link stays, and what it leads to is replaced. Pipes and terminals, /dev/null and the like are written to as they
    are. The permissions are those of any new file, by the umask.

    Raises:
        FileWriteError: the disk is full, the folder is missing or cannot be written, or the path is a folder.
    """
    with _named(path):
        check_target(path)
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                stream.write(content)
        else:
            _replace(Path(os.path.realpath(path)), content)


def check_target(path: Path) -> None:
    """Refuse a path that no file can be written to, before work is done for it.

    Raises:
        FileWriteError: the path is a folder or a disk, or its folder is missing or cannot be written.
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
    """Refuse a folder that cannot be made or written to, before work is done for it; nothing is made.

    Raises:
        FileWriteError: something on its way is no folder, or cannot be written.
    """
    with _named(folder):
        _check_folder(
            next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
        )


@contextmanager
def made_folder(folder: Path) -> Iterator[Path]:
    """Make a folder to write to; where that fails, folders that were made and stayed empty are removed.

    Raises:
        FileWriteError: the folder cannot be made.
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
    """Raise the named error for what the system says of a path."""
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
    errno.ENOTDIR: "A file stands where a folder is needed; choose another place.",
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
