"""The catalog of public data sets, and their files: from a local folder, the cache, or their repositories.

`catalog.json` has the address of each file, and the checksum of its bytes.
"""

import difflib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.files import cache_folder, sweep
from rfgp.progress import Report

SERVER = "https://raw.githubusercontent.com"

Kind = Literal["table", "classification", "frame", "mesh", "graph", "roads"]


@dataclass(frozen=True)
class Entry:
    """One data set of the catalog: a file in a public repository at one commit, or in the package.

    Attributes:
        name: The name that `load` and `fetch` take.
        kind: "table" (regression), "classification", "frame" (a table with names, texts and dates), "mesh", "graph" or
            "roads".
        file: The path of the file in a local folder, for example "uci/airfoil.csv.gz".
        repository: The owner and name on GitHub, or "" for a file of the package.
        commit: The full commit hash, or "" for a file of the package.
        path: The path in the repository. For a file of the package, the web page of its source.
        size: The size of the file in bytes.
        sha256: The SHA-256 checksum of its bytes.
        rows: The number of rows of a table or frame, faces of a mesh, nodes of a graph, or sensors of a road network.
        note: One sentence about the content.
        columns: The names of a table's columns in the order of the file, the target last. None if they are unknown.
        categories: The policy of `rfgp.tables.read_table` for text columns.
        drop: Columns that are not inputs.
        as_categories: Columns of categories or classes that are numbers in the file.
        dates: Columns of dates in a frame.
        license: The license of a file of the package, or "" for files elsewhere, whose source states it.

    Examples:
        >>> from rfgp import datasets
        >>> entry = datasets.describe("airfoil")
        >>> entry.kind, entry.rows
        ('table', 1503)
    """

    name: str
    kind: Kind
    file: str
    repository: str
    commit: str
    path: str
    size: int
    sha256: str
    rows: int
    note: str
    columns: tuple[str, ...] | None = None
    categories: Literal["error", "one-hot"] = "error"
    drop: tuple[str, ...] = ()
    as_categories: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    license: str = ""

    @property
    def table_options(self) -> dict[str, Any]:
        """The options of `rfgp.tables.read_table` that the file needs."""
        names = ("categories", "drop", "as_categories")
        return {"names": self.columns, **{name: getattr(self, name) for name in names}}

    @property
    def packaged(self) -> Path | None:
        """The path of a file that comes with the package, None for a file that is downloaded."""
        return None if self.repository else Path(__file__).with_name("files") / self.file

    @property
    def url(self) -> str:
        """The download address.

        RFGP_DATA_URL replaces the server by a mirror of the same layout. For a file of the package it is the page of
        its source.

        Raises:
            InvalidArgumentError: If RFGP_DATA_URL is not an http or https address.
        """
        if self.packaged is not None:
            return self.path
        server = os.environ.get("RFGP_DATA_URL") or SERVER
        if not server.lower().startswith(("http://", "https://")):
            raise InvalidArgumentError(
                f"RFGP_DATA_URL is {server!r}, but it must begin with http:// or https://. "
                "Name a local folder in RFGP_DATA_DIR instead."
            )
        return f"{server.rstrip('/')}/{self.repository}/{self.commit}/{self.path}"


def _catalog() -> dict[str, Entry]:
    """Return the entries of `catalog.json` by name."""
    rows: list[dict[str, Any]] = json.loads(Path(__file__).with_name("catalog.json").read_text(encoding="utf-8"))
    for row in rows:
        row |= {name: tuple(row[name]) for name in ("columns", "drop", "as_categories", "dates") if name in row}
    return {row["name"]: Entry(**row) for row in rows}


CATALOG = _catalog()


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the names of the data sets, in the order of the catalog.

    Args:
        kind: The kind of the data sets, such as "table". If None, all kinds.

    Raises:
        InvalidArgumentError: If there is no such kind.

    Examples:
        >>> names("mesh")[:2] == tuple(sorted(names("mesh"))[:2])
        True
    """
    kinds = get_args(Kind)
    if kind is not None and kind not in kinds:
        raise InvalidArgumentError(f"kind must be one of {', '.join(kinds)}, got {kind!r}.")
    return tuple(name for name, entry in CATALOG.items() if kind in (None, entry.kind))


def describe(name: str) -> Entry:
    """Return the entry of a data set in the catalog.

    Args:
        name: A name of the catalog.

    Raises:
        InvalidArgumentError: If there is no such data set. The message lists similar names.

    Examples:
        >>> describe("airfoil").kind
        'table'
    """
    if isinstance(name, str) and name in CATALOG:
        return CATALOG[name]
    close = difflib.get_close_matches(str(name).lower(), CATALOG, n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise InvalidArgumentError(
        f"There is no data set {name!r}.{hint} rfgp.datasets.names() lists all {len(CATALOG)} of them."
    )


# --- Files: from a local folder, the cache, or their public repositories ----------------------------------------------


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
        reason = str(getattr(next(iter(error.args), None), "reason", error))  # without the names of urllib3's objects
        reason = reason.partition("): ")[2] or reason
        raise DataError(f"{entry.name}: {entry.url} could not be downloaded: {reason}. {remedy}") from None
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
