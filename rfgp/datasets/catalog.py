"""The catalog of public data sets in `catalog.json`: the address of each file, and the checksum of its bytes."""

import difflib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rfgp.errors import InvalidArgumentError

SERVER = "https://raw.githubusercontent.com"

Kind = Literal["table", "classification", "mesh", "graph", "roads"]


@dataclass(frozen=True)
class Entry:
    """One data set of the catalog: a file in a public repository at one commit, or in the package.

    Attributes:
        name: The name that `load` and `fetch` take.
        kind: "table" (regression), "classification", "mesh", "graph" or "roads".
        file: The path of the file in a local folder, for example "uci/airfoil.csv.gz".
        repository: The owner and name on GitHub, or "" for a file of the package.
        commit: The full commit hash, or "" for a file of the package.
        path: The path in the repository. For a file of the package, the web page of its source.
        size: The size of the file in bytes.
        sha256: The SHA-256 checksum of its bytes.
        rows: The number of rows of a table, faces of a mesh, nodes of a graph, or sensors of a road network.
        note: One sentence about the content.
        columns: The names of a table's columns in the order of the file, the target last. None if they are unknown.
        categories: The policy of `rfgp.tables.read_table` for text columns.
        drop: Columns that are not inputs.
        as_categories: Columns of categories or classes that are numbers in the file.

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

    @property
    def table_options(self) -> dict[str, Any]:
        """The options of `rfgp.tables.read_table` that the file needs."""
        names = ("categories", "drop", "as_categories")
        return {"names": self.columns, **{name: getattr(self, name) for name in names}}

    @property
    def packaged(self) -> Path | None:
        """The path of a file that comes with the package, None for a file that is downloaded."""
        return None if self.repository else Path(__file__).with_name(self.file)

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
        row |= {name: tuple(row[name]) for name in ("columns", "drop", "as_categories") if name in row}
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
