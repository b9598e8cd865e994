"""Rows of a user, in memory or in chunks that are read as often as asked: checked, and standardized block by block."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import DataError
from rfgp.rows.arrays import check_dtypes, check_targets, read_matrix, read_per_row, read_target_values
from rfgp.rows.blocks import Block, Rows, Sums, gathered, parts_of
from rfgp.rows.names import arranged, names_of, without_index
from rfgp.scaling import Scaling

CHUNK = 2**16
"""Rows of an array on disk that are read at a time."""
SMALL = 2**26
"""Bytes: smaller arrays on disk are taken into memory."""


class Chunk(NamedTuple):
    """Some rows in the user's units: as the user passed them, or as tensors after validation.

    Attributes:
        X: Inputs (b, d), or b labels. Validated nodes are positions (b,).
        y: Targets (b,) or (b, k). If None, there are none.
        noise: Known noise variances (b,). If None, zeros.
        sample_weight: Numbers of observations (b,). If None, ones.
        names: The names of the d columns. If None, those of X if it is a dataframe.
    """

    X: Any
    y: Any = None
    noise: Any = None
    sample_weight: Any = None
    names: tuple[str, ...] | None = None

    def named(self, wanted: tuple[str, ...] | None) -> "Chunk":
        """Return the rows with the wanted columns of X, (b, d), in the wanted order; without any wanted, as they are.

        Raises:
            DataError: A wanted column is missing, or several have one name.
        """
        names = names_of(self.X) if self.names is None else self.names
        return self._replace(X=arranged(self.X, wanted, names), names=names if wanted is None else wanted)

    def trained_on(self) -> "Chunk":
        """Return the rows to train on, without an index among the columns of a dataframe, of which it warns."""
        chunk = self.named(None)
        if self.names is not None or chunk.names is None:
            return chunk
        return chunk.named(without_index(self.X, chunk.names))

    def take(
        self,
        rows: slice | Tensor,  # (r,)
    ) -> "Chunk":
        """Return some of the rows, (r, d) and so on, of a checked chunk."""
        X, y, noise, weight = (None if column is None else column[rows] for column in self[:4])
        return Chunk(X, y, noise, weight, self.names)

    @classmethod
    def joined(cls, chunks: Sequence["Chunk"]) -> "Chunk":
        """Return the rows of checked chunks, one after the other, (b, d) and so on.

        Where some have noise or weights and others have not, these have no noise, and count once.
        """
        if len(chunks) == 1:
            return chunks[0]
        X = torch.cat([chunk.X for chunk in chunks])
        y = None if chunks[0].y is None else torch.cat([chunk.y for chunk in chunks])
        noise = _joined_column(chunks, "noise", torch.zeros)
        return cls(X, y, noise, _joined_column(chunks, "sample_weight", torch.ones), chunks[0].names)


def _joined_column(chunks: Sequence[Chunk], name: str, missing: Callable[..., Tensor]) -> Tensor | None:
    columns = [getattr(chunk, name) for chunk in chunks]
    if all(column is None for column in columns):
        return None
    pairs = zip(chunks, columns, strict=True)
    return torch.cat([missing(len(k.X), dtype=torch.float64, device=k.X.device) if c is None else c for k, c in pairs])


@runtime_checkable
class RowSource(Protocol):
    """The role: the same rows in the same order, whenever they are asked for. `rfgp.tables` has some."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""


@runtime_checkable
class TableSource(RowSource, Protocol):
    """The role: a source whose columns may have cells of any kind, such as text and dates."""

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield all rows, some at a time, with dataframes or dicts of columns (b,) in the place of inputs.

        Args:
            columns: The names of the columns that are read. If None, or if one of them is missing, all inputs.
        """


T = TypeVar("T")


@runtime_checkable
class DistributedSource(RowSource, Protocol):
    """The role: a source whose rows lie in parts on other machines; `rfgp.dask` has one."""

    def reduce(self, function: Callable[[RowSource, int], T], combine: Callable[[T, T], T]) -> T:
        """Return function(part, rows before it) of each part, taken where it lies, combined in the parts' order."""


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Arrays that lie on disk (`numpy.memmap`), or whatever can be sliced.

    Attributes:
        X: (n, d).
        y: (n,) or (n, k), or None.
        noise: (n,), or None.
        sample_weight: (n,), or None.
    """

    X: Any
    y: Any = None
    noise: Any = None
    sample_weight: Any = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""
        parts = (self.X, self.y, self.noise, self.sample_weight)
        for first in range(0, len(self.X), CHUNK):
            yield Chunk(*(None if part is None else part[first : first + CHUNK] for part in parts))


def as_source(X: Any, y: Any = None, noise: Any = None, sample_weight: Any = None) -> RowSource | None:
    """Return a source of rows that are read in blocks. None if they are held in memory.

    Raises:
        DataError: A source is given together with other arguments, or arrays differ in length.
    """
    if isinstance(X, RowSource) and callable(X.chunks):  # arrays of others have numbers there
        if any(value is not None for value in (y, noise, sample_weight)):
            raise DataError(
                "Rows that are read in blocks bring their own targets, noise and weights: name them where the source "
                "is made, as in rfgp.tables.Parquet(path, target=...)."
            )
        return X
    if not isinstance(X, np.memmap) or X.ndim != 2 or X.nbytes < SMALL:
        return None
    for name, value in (("y", y), ("noise", noise), ("sample_weight", sample_weight)):
        if value is not None and np.shape(value)[:1] != X.shape[:1]:
            raise DataError(f"X has {counted(len(X), 'row')} and {name} has shape {np.shape(value)}.")
    return ArraySource(X, y, noise, sample_weight)


def checked(
    chunks: Iterable[Chunk],
    dtype: torch.dtype | None,
    targets: bool,
    names: tuple[str, ...] | None = None,
    first: int = 0,
) -> Iterator[Chunk]:
    """Yield the rows of a source's chunks, checked: tensors, targets (b, k).

    Args:
        chunks: All of them, in order.
        dtype: Of the inputs; None: the source's.
        targets: Whether these are wanted.
        names: The names of the requested columns, in order. If None, those of the first chunk.
        first: The number of rows before these.

    Raises:
        DataError: Values that are not finite, named by their row in the source, a column that is missing, or chunks
            that differ from the first in shape or in what they know of their rows.
    """
    width, outputs, extras = None, None, None
    for given in chunks:
        chunk = given.named(names)
        names = chunk.names
        inputs, _ = read_matrix(chunk.X, dtype, first)
        if width is not None and inputs.shape[1] != width:
            raise DataError(f"A block of the source has {counted(inputs.shape[1], 'column')}, the first has {width}.")
        y = noise = weight = None
        if targets:
            given_extras = tuple(name for name in ("noise", "sample_weight") if getattr(chunk, name) is not None)
            if extras is not None and given_extras != extras:
                raise DataError(
                    f"A block of the source has {_listed(given_extras)} with X and y, the first {_listed(extras)}."
                )
            extras = given_extras
            if chunk.y is None:
                raise DataError("The source has no targets; name the target column where the source is made.")
            y = read_target_values(chunk.y)
            check_dtypes(y, inputs, dtype)
            y = check_targets(y, len(inputs), inputs, first)
            y = y[:, None] if y.ndim == 1 else y
            if outputs is not None and y.shape[1] != outputs:
                raise DataError(f"A block of the source has {counted(y.shape[1], 'target')}, the first has {outputs}.")
            like = inputs.new_empty(0)
            noise = read_per_row(chunk.noise, "noise", len(inputs), like, positive=False, first=first)
            weight = read_per_row(chunk.sample_weight, "sample_weight", len(inputs), like, positive=True, first=first)
            outputs = y.shape[1]
        first, width = first + len(inputs), inputs.shape[1]
        if len(inputs):
            yield Chunk(inputs, y, noise, weight)


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "nothing"


def rebatched(chunks: Iterator[Chunk], size: int) -> Iterator[Chunk]:
    """Yield the same checked rows in chunks of `size`, the last one smaller."""
    waiting: list[Chunk] = []
    count = 0
    for chunk in chunks:
        waiting.append(chunk)
        count += len(chunk.X)
        if count < size:
            continue
        whole, waiting = Chunk.joined(waiting), []
        last = count - count % size
        for first in range(0, last, size):
            yield whole.take(slice(first, first + size))
        if last < count:
            waiting = [whole.take(slice(last, count))]
        count -= last
    if waiting:
        yield Chunk.joined(waiting)


def pool_of(rows: Rows) -> Block:
    """Return all rows, or of those that are read in blocks the sample."""
    pool = rows.sample if isinstance(rows, SourceRows) else gathered(rows)
    assert pool is not None  # the rows of a fit are surveyed
    return pool


def is_read_in_blocks(rows: Rows) -> bool:
    """Return whether some of the rows are read in blocks."""
    return any(isinstance(part, SourceRows) for part in parts_of(rows))


def standardized(chunk: Chunk, scaling: Scaling) -> Block:
    """Return checked rows in standardized units."""
    inputs = scaling.standardize(chunk.X)
    targets = scaling.targets.forward(chunk.y.to(scaling.targets.scale)).double()
    targets = targets if targets.ndim > 1 else targets[:, None]
    return Block(inputs, targets, standardized_noise(chunk, scaling), chunk.sample_weight)


def standardized_noise(chunk: Chunk, scaling: Scaling) -> Tensor | None:
    """Return the noise variances (b,) of rows in standardized units, or None if they have none of their own."""
    return None if chunk.noise is None else chunk.noise / scaling.targets.common_scale().double() ** 2


_UNCOUNTED = 2**16
"""The assumed number of rows of a source that has not been read. Only its magnitude matters."""


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a source; see `rfgp.rows.Rows`.

    Attributes:
        source: Where they come from.
        scaling: The map to standardized units.
        dtype: The dtype of the inputs. If None, that of the source.
        num_outputs: The number k of outputs.
        is_uniform: Whether no row has a weight or a noise of its own.
        has_fixed_noise: Whether rows have a noise of their own.
        num_rows: The number n of rows. None until they have been read.
        count: The number of observations, repetitions included.
        as_numpy: Whether they came as arrays rather than tensors.
        sample: A standardized random sample of the rows. None for rows that were added.
        digest: The digest of all values. None until they have been read.
        ends: The smallest and the largest standardized inputs, (d,) each. None until they have been read.
    """

    source: RowSource
    scaling: Scaling
    dtype: torch.dtype | None
    num_outputs: int
    is_uniform: bool
    has_fixed_noise: bool
    num_rows: int | None = None
    count: float = 0.0
    as_numpy: bool = True
    sample: Block | None = None
    digest: str = ""
    ends: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return _UNCOUNTED if self.num_rows is None else self.num_rows

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of `size`.

        Raises:
            DataError: The source has not as many rows as when it was read first.
        """
        count = 0
        chunks = checked(self.source.chunks(), self.dtype, True, self.scaling.columns)
        for chunk in rebatched(chunks, size):
            count += len(chunk.X)
            check_kind(chunk, self)
            yield from standardized(chunk, self.scaling).blocks(size)
        if self.num_rows is not None and count != self.num_rows:
            raise DataError(
                f"The source had {counted(self.num_rows, 'row')} at first and has {count:,} now; it must not change."
            )

    def counted(self, num_rows: int, count: float) -> "SourceRows":
        """Return the rows, now that their number and that of their observations is known."""
        return replace(self, num_rows=num_rows, count=count)

    def read_once(self) -> "SourceRows":
        """Return the rows after one pass that checks and counts them."""
        num_rows, count = 0, 0.0
        for block in self.blocks(2**16):
            num_rows, count = num_rows + len(block), count + block.count
        return self.counted(num_rows, count)


class RemoteRows(SourceRows):
    """Likewise, of a `DistributedSource`; sums over them are taken where they lie."""

    def total(self, function: Callable[[Rows], Sums]) -> Sums:
        """Return the sum of function(part) over the parts, none of which may be larger than memory.

        Raises:
            DataError: Values that cannot be used, or other than at first.
        """
        assert isinstance(self.source, DistributedSource)
        whole = replace(self, source=ArraySource(()), sample=None)  # what is sent to each part is without the others
        return self.source.reduce(partial(_total_of_part, whole, function), _added)


def _total_of_part(whole: SourceRows, function: Callable[[Rows], Sums], part: RowSource, first: int) -> Sums:
    chunks = []
    for chunk in checked(part.chunks(), whole.dtype, True, whole.scaling.columns, first):
        check_kind(chunk, whole)
        chunks.append(chunk)
    if chunks:
        return function(standardized(Chunk.joined(chunks), whole.scaling))
    like = whole.scaling.targets.scale.new_zeros(0, dtype=torch.float64)
    return function(Block(like.reshape(0, 1), like.reshape(0, whole.num_outputs)))


def _added(a: Sums, b: Sums) -> Sums:
    return tuple(x + y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, eq=False)
class SourceInputs:
    """The inputs of a source, standardized block by block; see `rfgp.inference.InputBlocks`.

    Attributes:
        source: Where they come from.
        scaling: To standardized units.
        dtype: Of the inputs; None: the source's.
    """

    source: RowSource
    scaling: Scaling
    dtype: torch.dtype | None

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield all inputs in blocks (b, d) of `size`.

        Raises:
            DataError: Another number of columns than the training data have.
        """
        some, chunks = False, checked(self.source.chunks(), self.dtype, False, self.scaling.columns)
        for chunk in rebatched(chunks, size):
            some = True
            self.scaling.check_columns(chunk.X)
            yield self.scaling.standardize(chunk.X)
        if not some:
            raise DataError("The source has no rows; one that is read a second time must begin anew.")


def check_kind(chunk: Chunk, rows: SourceRows) -> None:
    """Refuse checked rows of another kind than those that the source had when it was surveyed.

    Raises:
        DataError: Another number of columns or outputs, or weights or noise that came or went.
    """
    rows.scaling.check_columns(chunk.X)
    now = (chunk.y.shape[1], chunk.noise is None and chunk.sample_weight is None, chunk.noise is not None)
    if now != (rows.num_outputs, rows.is_uniform, rows.has_fixed_noise):
        raise DataError("The source has other targets, weights or noise than at first; it must not change.")
