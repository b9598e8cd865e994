"""Rows on a Dask cluster, as a source that models accept instead of arrays, and computations of its workers."""

import math
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import dask
import numpy as np
from distributed import Client, get_client

from rfgp.columns.table import without_index
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.messages import counted, listed
from rfgp.rows import Chunk, RowSource
from rfgp.rows.sources import warn_of_booleans

T = TypeVar("T")
_EXTRAS = ("y", "noise", "sample_weight")


@dataclass(frozen=True)
class _Part:
    """The rows of one partition, on a worker.

    Attributes:
        chunk: The rows, with an array (b, d) of inputs or a dataframe.
    """

    chunk: Chunk

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield the rows, with all columns."""
        if len(self.chunk.X):
            yield self.chunk

    chunks = tables


class Partitions:
    """The rows of Dask arrays or dataframes, for `fit`, `condition` and `update` of a `SparseSpectrumGP` or a `GP`.

    The workers compute sums over the rows, and only F x F matrices are returned to the client. Rows that are not
    persisted are computed again in each pass, so call `X.persist()` if they fit into the memory of the cluster. If a
    worker dies, the others compute its partitions. rfgp must be installed on the workers.

    Args:
        X: A Dask array (n, d), or a Dask dataframe. A `SparseSpectrumGP` needs columns of numbers. A `GP` also reads
            dates, text and booleans by column name.
        y: Targets: a Dask array (n,) or (n, k), or a series or dataframe with the partitions of X. If X is a dataframe,
            the name of its target column or k names are accepted. If None, there are no targets.
        noise: Known noise variances (n,), or the name of a column.
        sample_weight: Numbers of observations (n,), or the name of a column.
        client: The client of the cluster. If None, the current one.

    Raises:
        DataError: If the partitions do not match.
        InvalidArgumentError: If X is not a Dask collection, or there is no client.

    Examples:
        >>> import dask.array as da
        >>> from distributed import Client
        >>> import rfgp
        >>> with Client(processes=False, dashboard_address=None) as client:
        ...     rows = rfgp.dask.Partitions(da.ones((6, 1), chunks=(3, 1)), da.arange(6, chunks=3), client=client)
        ...     rows.lengths
        [3, 3]
    """

    def __init__(
        self, X: Any, y: Any = None, noise: Any = None, sample_weight: Any = None, *, client: Client | None = None
    ) -> None:
        self._client = client_of(client)
        named = dict(zip(_EXTRAS, (y, noise, sample_weight), strict=True))
        columns = {name: value for name, value in named.items() if _is_name(value)}
        own = {name: value for name, value in named.items() if value is not None and name not in columns}
        if columns and not _is_frame(X):
            raise InvalidArgumentError(
                f"X must be a Dask dataframe if columns are given by name, got {type(X).__name__}. Pass y, noise and "
                "sample_weight as Dask arrays."
            )
        others = {name: blocks_of(value, name, like=X) for name, value in own.items()}
        parts = blocks_of(X, "X")
        for name, found in others.items():
            if len(found) != len(parts):
                raise DataError(f"{name} must have {counted(len(parts), 'partition')}, as X, got {len(found)}.")
        make = dask.delayed(partial(_part, columns), pure=False)
        rows = zip(parts, *others.values(), strict=True)
        self._parts = [make(x, dict(zip(others, values, strict=True))) for x, *values in rows]
        self._lengths = known_lengths(X)
        names = tuple(map(str, getattr(X, "columns", ())))
        without_index(names, lambda name: ())  # only warns: whether one counts all rows nobody sees here
        if {"bool", "boolean"} & set(_types(X, y)):
            warn_of_booleans(np.empty(0, dtype=bool))

    def __len__(self) -> int:
        return sum(self.lengths)

    @property
    def lengths(self) -> list[int]:
        """The numbers of rows of the partitions. Those of a dataframe are counted on first use."""
        if self._lengths is None:
            count = dask.delayed(_length, pure=False)
            self._lengths = computed(self._client, [count(part) for part in self._parts])
        return self._lengths

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield all rows on the client, one partition at a time, with unchanged dataframes.

        This is slow, for computations that cannot run on the workers.

        Args:
            columns: Not used. All columns are read.
        """
        for part in self._parts:
            yield from computed(self._client, part).tables()

    chunks = tables

    def reduce(self, function: Callable[[RowSource, int], T], combine: Callable[[T, T], T]) -> T:
        """Return the results of a function for all partitions, computed on the workers and combined in order.

        Args:
            function: A function of a partition and of the number of rows before it.
            combine: A function that combines the results of two neighboring partitions.

        Raises:
            DataError: If the function raises it for a part.
        """
        begins = np.concatenate([[0], np.cumsum(self.lengths)])
        apply, sent = dask.delayed(_apply, pure=False), shipped(function)
        leaves = [apply(sent, part, int(first)) for part, first in zip(self._parts, begins[:-1], strict=True)]
        out: T = computed(self._client, combined(leaves, combine))
        return out

    def __deepcopy__(self, memo: Any) -> "Partitions":
        return self  # the rows do not change

    def __reduce__(self) -> Any:
        raise TypeError("Rows on a cluster cannot be pickled. Save models without their data.")


def _apply(function: Callable[[RowSource, int], T], part: _Part, first: int) -> T:
    return function(part, first)


def _length(part: _Part) -> int:
    return len(part.chunk.X)


def _part(columns: dict[str, Any], X: Any, others: dict[str, Any]) -> _Part:
    """Return the rows of one partition; columns of a dataframe by their names."""
    taken = [name for wanted in columns.values() for name in ([wanted] if isinstance(wanted, str) else wanted)]
    for name in taken:
        if name not in X.columns:
            raise DataError(f"The dataframe has no column {name!r}; it has {listed(list(map(str, X.columns)))}.")
    found = others | {name: X[wanted if isinstance(wanted, str) else list(wanted)] for name, wanted in columns.items()}
    found = {name: value.to_numpy() if hasattr(value, "to_numpy") else value for name, value in found.items()}
    for name, value in found.items():
        if len(value) != len(X):
            raise DataError(f"Partitions of {name} must match X, with {counted(len(X), 'row')}, got {len(value)}.")
    return _Part(Chunk(X.drop(columns=taken) if taken else X, **found))


def _types(X: Any, y: Any) -> list[str]:
    """Return the names of the types of targets, which are columns of X by their names or collections of their own."""
    if _is_name(y):
        kinds = dict(zip(X.columns, X.dtypes, strict=True))
        return [str(kinds.get(name)) for name in ([y] if isinstance(y, str) else y)]
    return [str(kind) for kind in y.dtypes] if _is_frame(y) and y.ndim == 2 else [str(getattr(y, "dtype", None))]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, Sequence) and len(value) > 0 and all(isinstance(v, str) for v in value)
    )


def _is_frame(X: Any) -> bool:
    return hasattr(X, "to_delayed") and hasattr(X, "columns")


def blocks_of(value: Any, name: str, like: Any = None) -> list[Any]:
    """Return the partitions of a collection as delayed values.

    Args:
        value: An array (n, ...) or dataframe.
        name: The name of the argument, for messages.
        like: An array with the required partitions. If None, they are not changed.

    Raises:
        InvalidArgumentError: If it is not a Dask collection.
        DataError: If it has another number of rows.

    Examples:
        >>> import dask.array as da
        >>> len(blocks_of(da.zeros((5, 2), chunks=(3, 1)), "X"))
        2
    """
    if not hasattr(value, "to_delayed"):
        raise InvalidArgumentError(
            f"{name} must be a Dask array or dataframe, got {type(value).__name__}; what is in memory goes to the "
            "model itself."
        )
    if not hasattr(value, "chunks"):
        return list(value.to_delayed())
    if value.ndim > 1:
        value = value.rechunk({1: -1})
    if like is not None and hasattr(like, "chunks") and like.chunks[0] != value.chunks[0]:
        if like.shape[0] != value.shape[0] and not (math.isnan(like.shape[0]) or math.isnan(value.shape[0])):
            raise DataError(f"X has {counted(like.shape[0], 'row')} and {name} has {value.shape[0]}.")
        if not (math.isnan(like.shape[0]) or math.isnan(value.shape[0])):
            value = value.rechunk({0: like.chunks[0]})
    return list(value.to_delayed().reshape(-1))


def known_lengths(X: Any) -> list[int] | None:
    """Return the numbers of rows of the chunks of an array, or None if they are unknown.

    Args:
        X: A Dask array (n, d), or another collection.

    Examples:
        >>> import dask.array as da
        >>> known_lengths(da.zeros((5, 2), chunks=(3, 2)))
        [3, 2]
    """
    if not hasattr(X, "chunks") or any(math.isnan(rows) for rows in X.chunks[0]):
        return None
    return [int(rows) for rows in X.chunks[0]]


# --- Computations of the workers --------------------------------------------------------------------------------------


def client_of(client: Client | None) -> Client:
    """Return the given client, or the current one.

    Args:
        client: The client of a cluster, or None.

    Raises:
        InvalidArgumentError: If there is no client.
    """
    if client is not None:
        return client
    try:
        return get_client()
    except ValueError:
        raise InvalidArgumentError(
            "There is no Dask client. Make one first, such as distributed.Client(n_workers=4, threads_per_worker=1), "
            "or pass client=."
        ) from None


def shipped(value: Any) -> Any:
    """Return a delayed value that is sent to each worker once.

    If a worker dies, the value is sent again.

    Args:
        value: The value, which must be picklable.

    Examples:
        >>> shipped([1, 2]).compute()
        [1, 2]
    """
    return dask.delayed(value, name=f"rfgp-{uuid.uuid4().hex}", pure=False, traverse=False)


def combined(leaves: Sequence[Any], combine: Callable[[T, T], T]) -> Any:
    """Return the delayed combination of delayed values, as a balanced tree.

    The order of the values is kept.

    Args:
        leaves: The delayed values, at least one.
        combine: A function of two neighboring values.

    Examples:
        >>> from operator import add
        >>> combined([1, 2, 3], add).compute(scheduler="synchronous")
        6
    """
    level, step = list(leaves), dask.delayed(combine, pure=False)
    while len(level) > 1:
        pairs = [step(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = [*pairs, *level[2 * len(pairs) :]]
    return level[0]


def computed(client: Client, value: Any) -> Any:
    """Return the results of delayed values, computed on the workers.

    Errors of the computation are raised on the client.

    Args:
        client: The client of the cluster.
        value: A delayed value, or a list of them.
    """
    return client.gather(client.compute(value))
