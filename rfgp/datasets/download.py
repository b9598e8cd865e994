"""Files of data sets, from a local folder, the cache, or their public repositories."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from rfgp.datasets.catalog import Entry, describe
from rfgp.errors import DataError, requires_extra
from rfgp.files import cache_folder, sweep
from rfgp.progress import Report

_ATTEMPTS = 3
_SECONDS = (10.0, 20.0)  # for a connection, and without a byte
_PIECE = 1 << 14  # bytes


def fetch(
    name: str, folder: str | Path | None = None, *, download: bool = True, progress: Report | None = None
) -> Path:
    """Return the path of the file of a data set, after a check of its SHA-256 checksum.

    The file is searched in `folder`, and then in the cache. If it is in neither, it is downloaded into the cache. Files
    in `folder` are never changed. Files of the package are used directly. The environment variable RFGP_CACHE_DIR sets
    the cache, by default the cache folder of the system. RFGP_DATA_URL replaces the server by a mirror.

    Args:
        name: A name of the catalog.
        folder: A local folder with files such as "uci/airfoil.csv.gz" or "airfoil.csv.gz". If None, the environment
            variable RFGP_DATA_DIR.
        download: Whether to download a file that is in neither folder.
        progress: A function that is called as progress(name, bytes so far, bytes in total) during a download. If None,
            there is no report.

    Raises:
        InvalidArgumentError: If the name is unknown, or RFGP_DATA_URL is not an http or https address.
        DataError: If a local file has another checksum, or the file cannot be downloaded or stored.

    Examples:
        >>> from rfgp import datasets
        >>> datasets.fetch("machine").name  # a file of the package, without a download
        'machine.csv'
    """
    entry = describe(name)
    if entry.packaged is not None:
        return entry.packaged
    named = folder or os.environ.get("RFGP_DATA_DIR")
    root, cached = Path(named or "").expanduser(), cache_folder() / entry.file
    if named and not root.is_dir():
        where = "folder" if folder else "RFGP_DATA_DIR"
        raise DataError(f"{name}: {where} is {str(named)!r}, and there is no such folder. Correct it or leave it out.")
    path = cached
    try:
        for path in (root / entry.file, root / Path(entry.file).name) if named else ():
            if path.is_file():
                return _checked(entry, path)
        path = cached
        if cached.exists() and _sha256(cached) == entry.sha256:
            return cached
        if download:
            return _download(entry, cached, progress)
    except OSError as error:
        raise DataError(
            f"{name}: {path} cannot be read or written: {error.strerror or error}. "
            "Make room or give access there, or name another folder in RFGP_CACHE_DIR."
        ) from error
    state = "is damaged" if cached.exists() else "is missing"
    raise DataError(f"{name}: {cached} {state} and downloads are switched off. Allow them, or {_by_hand(entry)}")


def _checked(entry: Entry, path: Path) -> Path:
    """Return the path of a local file, whose checksum must be that of the catalog."""
    if (sha256 := _sha256(path)) != entry.sha256:
        raise DataError(
            f"{entry.name}: {path} is not the file of the catalog: expected sha256 {entry.sha256}, found {sha256}. "
            f"Replace it by {entry.url}, or remove it so that it is downloaded."
        )
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(entry: Entry, cached: Path, progress: Report | None) -> Path:
    """Download a file. It is stored whole, with the right checksum, or not at all."""
    with requires_extra("datasets"):
        import pooch
        import requests

    def ask(url: str, file: str, store: object) -> None:
        bar = _Counter(entry.name, entry.size, progress)
        headers = {"Accept-Encoding": "identity"}
        pooch.HTTPDownloader(bar, chunk_size=_PIECE, timeout=_SECONDS, headers=headers)(url, file, store)

    store = pooch.create(
        cache_folder(),
        base_url="",
        registry={entry.file: f"sha256:{entry.sha256}"},
        urls={entry.file: entry.url},
        retry_if_failed=_ATTEMPTS - 1,
    )
    cached.parent.mkdir(parents=True, exist_ok=True)  # pooch fails if another thread makes it at the same moment
    remedy = f"Check the connection, name a mirror in RFGP_DATA_URL, or {_by_hand(entry)}"
    try:
        store.fetch(entry.file, downloader=ask)
    except requests.RequestException as error:
        raise DataError(f"{entry.name}: {entry.url} could not be downloaded: {error}. {remedy}") from error
    except ValueError as error:
        raise DataError(f"{entry.name}: {entry.url} sent a wrong file: {error} It was not kept. {remedy}") from error
    sweep(cached.parent, "tmp*")  # pooch's names
    return cached


@dataclass
class _Counter:
    """A progress bar for pooch that reports the bytes and stops downloads that are too large.

    Attributes:
        name: The name of the data set.
        size: The expected size in bytes.
        report: A function of the name, the bytes so far and the size.
        done: The number of bytes so far.
        total: The size that the server announces, which pooch sets.
    """

    name: str
    size: int
    report: Report | None
    done: int = 0
    total: int = 0

    def update(self, count: int) -> None:
        """Count bytes that arrived.

        pooch counts the last piece as whole.

        Raises:
            ValueError: If more bytes arrived than the file has.
        """
        self.done += count
        if self.done >= self.size + _PIECE:
            raise ValueError(f"More than its {self.size:,} bytes arrived.")
        if self.report is not None:
            self.report(self.name, min(self.done, self.size), self.size)

    def reset(self) -> None:
        """Begin anew."""
        self.done = 0

    def close(self) -> None:
        """Do nothing at the end."""


def _by_hand(entry: Entry) -> str:
    return f"save {entry.url} as {entry.file} in a folder and name it in RFGP_DATA_DIR."
