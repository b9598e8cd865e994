"""Files that appear whole or not at all, and the folder for those that can be made again."""

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

_DAY = 86400  # seconds


def cache_folder() -> Path:
    """Return the folder of downloads and solutions: RFGP_CACHE_DIR, or the system's cache folder for rfgp."""
    import pooch

    named = os.path.expanduser(os.environ.get("RFGP_CACHE_DIR") or str(pooch.os_cache("rfgp")))
    return Path(named).absolute()


def sweep(folder: Path, pattern: str) -> None:
    """Remove the temporary files of a cache folder that are a day old: those of processes that were killed."""
    for stray in folder.glob(pattern):
        with suppress(OSError):
            if stray.is_file() and stray.stat().st_mtime < time.time() - _DAY:
                stray.unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file through a temporary one beside it; a full disk or a kill leaves the old file.

    The permissions are those of any new file, by the umask.

    Raises:
        OSError: the folder is missing or cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = _open(temporary, path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _open(temporary: Path, path: Path) -> int:
    """Open a new file; an error names the file that was asked for."""
    try:
        return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
