"""A data set's file: from a local folder, from the cache, or from its public repository."""

import os
from pathlib import Path

from rfgp.datasets.catalog import Entry, describe
from rfgp.datasets.transfer import Patience, Progress, Transfer
from rfgp.errors import DataError
from rfgp.files import cache_folder

PATIENCE = Patience()


def fetch(
    name: str, folder: str | Path | None = None, *, download: bool = True, progress: Progress | None = None
) -> Path:
    """Return the path of a data set's file, whose sha256 has been checked.

    The file is looked for in `folder` (by default the folder that RFGP_DATA_DIR names), where it is never
    changed; then in the cache (RFGP_CACHE_DIR, by default the system's cache folder); then it is
    downloaded into the cache. RFGP_DATA_URL replaces the server by a mirror.

    Args:
        name: A name of the catalog.
        folder: A local folder with files such as "uci/airfoil.csv.gz" or "airfoil.csv.gz".
        download: Whether to download a file that is neither there nor in the cache.
        progress: Called as progress(name, bytes so far, bytes in all) during a download.

    Raises:
        InvalidArgumentError: there is no such data set, or RFGP_DATA_URL is no address.
        DataError: a local file has another checksum, or the file cannot be downloaded or stored.
    """
    entry = describe(name)
    local = _find_local(entry, folder)
    if local is not None:
        return local
    cached = cache_folder() / entry.file
    try:
        if download:
            return _retrieve(entry, cached, progress)
        if _is_intact(entry, cached):
            return cached
    except OSError as error:
        raise DataError(
            f"{name}: {cached} cannot be read or written: {error.strerror or error}. "
            "Make room or give access there, or name another folder in RFGP_CACHE_DIR."
        ) from error
    state = "is damaged" if cached.exists() else "is missing"
    raise DataError(f"{name}: {cached} {state} and downloads are switched off. Allow them, or {_by_hand(entry)}")


def _find_local(entry: Entry, folder: str | Path | None) -> Path | None:
    """Return the checked file of a local folder, None where the folder has no such file or is not named."""
    named = folder or os.environ.get("RFGP_DATA_DIR")
    if not named:
        return None
    root = Path(named).expanduser()
    if not root.is_dir():
        where = "folder" if folder else "RFGP_DATA_DIR"
        raise DataError(
            f"{entry.name}: {where} is {str(named)!r}, and there is no such folder. Correct it or leave it out."
        )
    for path in (root / entry.file, root / Path(entry.file).name):
        if path.is_file():
            _check_local(entry, path)
            return path
    return None


def _check_local(entry: Entry, path: Path) -> None:
    import pooch

    try:
        found = pooch.file_hash(path)
    except OSError as error:
        raise DataError(
            f"{entry.name}: {path} cannot be read: {error.strerror or error}. Give access to it."
        ) from error
    if found != entry.sha256:
        raise DataError(
            f"{entry.name}: {path} is not the file of the catalog: expected sha256 {entry.sha256}, found {found}. "
            f"Replace it by {entry.url}, or remove it so that it is downloaded."
        )


def _is_intact(entry: Entry, path: Path) -> bool:
    import pooch

    return path.exists() and bool(pooch.file_hash(path) == entry.sha256)


def _retrieve(entry: Entry, cached: Path, progress: Progress | None) -> Path:
    import pooch

    part = cached.with_name(f".{cached.name}.{entry.sha256[:12]}.part")
    remedy = f"Check the connection, name a mirror in RFGP_DATA_URL, or {_by_hand(entry)}"
    transfer = Transfer(entry.name, entry.size, entry.sha256, part, remedy, PATIENCE, progress)
    try:
        pooch.retrieve(entry.url, f"sha256:{entry.sha256}", cached.name, cached.parent, downloader=transfer)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(
            f"{entry.name}: {cached} did not keep the bytes written to it: {error} Check the disk."
        ) from error
    return cached


def _by_hand(entry: Entry) -> str:
    return f"save {entry.url} as {entry.file} in a folder and name it in RFGP_DATA_DIR."
