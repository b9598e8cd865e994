"""Data sets by name, ready to use, and their standard splits."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rfgp import random
from rfgp.datasets.catalog import Entry, describe, fetch
from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.progress import Report

SPLITS = 10

_SPLIT_SEED = 0
_CLASS = "gt"
"""The attribute of the repository's GML files: ground truth."""

_TEST_SHARE = {"table": 0.10, "classification": 0.05, "mesh": 0.05, "roads": 75 / 325}
_STREAM = {"table": 0, "classification": 1, "mesh": 2, "roads": 3}


class Split(NamedTuple):
    """The positions of a training set and a test set, ascending and disjoint.

    Examples:
        >>> Split(np.array([0, 2]), np.array([1])).test.tolist()
        [1]
    """

    train: NDArray[np.int64]  # (n_train,)
    test: NDArray[np.int64]  # (n_test,)


def load(name: str, folder: str | Path | None = None, *, download: bool = True, progress: Report | None = None) -> Any:
    """Return a data set by its name in the catalog, downloading it at the first call.

    Args:
        name: A name of the catalog.
        folder: A local folder to search first, as for `fetch`.
        download: Whether to download a missing file.
        progress: A function that is called as progress(name, bytes so far, bytes in total) during a download. If None,
            there is no report.

    Returns:
        `rfgp.tables.Table` for tables and classification, `pandas.DataFrame` for frames, `trimesh.Trimesh` for
        meshes, `graphs.Graph` for graphs, `graphs.Roads` for road networks.

    Raises:
        InvalidArgumentError: If there is no such data set.
        DataError: If the file cannot be read or downloaded, as in `fetch`.

    Examples:
        >>> from rfgp import datasets
        >>> datasets.load("machine")  # a file of the package, without a download
        Table(209 rows, 7 columns (MYCT, MMIN, MMAX, CACH, CHMIN, CHMAX, ERP), target 'PRP')
        >>> datasets.load("bikes").columns.tolist()
        ['date', 'kind', 'temperature', 'humidity', 'wind', 'rentals']
    """
    entry = describe(name)
    return _read(entry, fetch(name, folder, download=download, progress=progress))


def _read(entry: Entry, path: Path) -> Any:
    import graphs

    if entry.kind == "mesh":
        return graphs.load_mesh(path)
    if entry.kind == "graph":
        return graphs.Graph.from_gml(path)
    if entry.kind == "roads":
        return graphs.read_roads(path)
    if entry.kind == "frame":
        with requires_extra("tables"):
            import pandas as pd
        return pd.read_csv(path, parse_dates=list(entry.dates), keep_default_na=False, na_values=[""])
    from rfgp.tables import read_table

    return read_table(path, **entry.table_options)


def load_classes(
    name: str, folder: str | Path | None = None, *, download: bool = True, progress: Report | None = None
) -> dict[Hashable, Any]:
    """Return the classes of the nodes of a graph data set, by label.

    Nodes without a class are omitted.

    Args:
        name: The name of a graph in the catalog.
        folder: A local folder to search first, as for `fetch`.
        download: Whether to download a missing file.
        progress: A function that is called as progress(name, bytes so far, bytes in total) during a download. If None,
            there is no report.

    Raises:
        InvalidArgumentError: If the name is unknown, or the data set is not a graph.
        DataError: If the file cannot be read or downloaded, or has no classes.

    Examples:
        >>> from rfgp import datasets
        >>> datasets.load_classes("machine")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        graphs.errors.InvalidArgumentError: The data set must be a graph, got machine, a table....
    """
    entry = describe(name)
    if entry.kind != "graph":
        raise InvalidArgumentError(
            f"The data set must be a graph, got {name}, a {entry.kind}. rfgp.datasets.names('graph') lists graphs."
        )
    from graphs.builders import read_gml

    nodes = read_gml(fetch(name, folder, download=download, progress=progress)).nodes(data=_CLASS)
    classes = {label: value for label, value in nodes if value is not None}
    if not classes:
        raise DataError(f"The nodes of {name} have no classes (no attribute {_CLASS!r} in its file).")
    return classes


def split(name: str, index: int = 0) -> Split:
    """Return one of the ten standard splits of a data set, without a download.

    The test set has 10 % of the rows of a regression table, or 5 % of the rows of a classification table. For a mesh it
    has 5 % of the faces, and for the road network 75 of the 325 sensors. A split depends only on the kind of data, the
    number of rows and `index`.

    Args:
        name: A name of the catalog, not of a graph or frame.
        index: The number of the split, from 0 to 9.

    Returns:
        The positions `train` (n_train,) and `test` (n_test,).

    Raises:
        InvalidArgumentError: If there is no such data set or split, or the data set is a graph or a frame.

    Examples:
        >>> train, test = split("airfoil")
        >>> len(train), len(test)
        (1353, 150)
    """
    entry = describe(name)
    if entry.kind in ("graph", "frame"):
        raise InvalidArgumentError(
            f"{name} is a {entry.kind} without a standard split. Make your own from the numbers 0..{entry.rows - 1}."
        )
    if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < SPLITS:
        raise InvalidArgumentError(f"index must be an integer from 0 to {SPLITS - 1}, got {index!r}.")
    key = (random.Role.SPLIT, _STREAM[entry.kind], entry.rows, int(index))
    order = random.numpy_generator(_SPLIT_SEED, *key).permutation(entry.rows).astype(np.int64)
    num_test = round(_TEST_SHARE[entry.kind] * entry.rows)
    return Split(np.sort(order[num_test:]), np.sort(order[:num_test]))
