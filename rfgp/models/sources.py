"""Rows that are read in blocks, as often as asked, because they need not fit in memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import DataError
from rfgp.inference import ArrayRows, Block, Rows
from rfgp.inference.rows import Sums
from rfgp.models.data import check_dtypes, check_targets, read_matrix, read_per_row, read_target_values
from rfgp.scaling import Scaling

_CHUNK = 2**16
"""Rows of an array on disk that are read at a time."""
_SMALL = 2**26
"""Bytes: smaller arrays on disk are taken into memory."""


class Chunk(NamedTuple):
    """Some rows in the user's units, arrays or tensors.

    Attributes:
        X: Inputs (b, d).
        y: Targets (b,) or (b, k); None where the source has none.
        noise: Known variances (b,), or None.
        sample_weight: Numbers of observations (b,), or None.
        names: Of the d columns of X, where they have some.
    """

    X: Any
    y: Any = None
    noise: Any = None
    sample_weight: Any = None
    names: tuple[str, ...] | None = None


@runtime_checkable
class RowSource(Protocol):
    """The role: the same rows in the same order, whenever they are asked for. `rfgp.tables` has some."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""


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
        for first in range(0, len(self.X), _CHUNK):
            yield Chunk(*(None if part is None else part[first : first + _CHUNK] for part in parts))


def as_source(X: Any, y: Any = None, noise: Any = None, sample_weight: Any = None) -> RowSource | None:
    """Return what is to be read in blocks as a source; None for what is taken into memory.

    Raises:
        DataError: arguments beside a source, which brings its own; or arrays of different lengths.
    """
    if isinstance(X, RowSource):
        if any(value is not None for value in (y, noise, sample_weight)):
            raise DataError(
                "Rows that are read in blocks bring their own targets, noise and weights: name them where the source "
                "is made, as in rfgp.tables.Parquet(path, target=...)."
            )
        return X
    if not isinstance(X, np.memmap) or X.ndim != 2 or X.nbytes < _SMALL:
        return None
    for name, value in (("y", y), ("noise", noise), ("sample_weight", sample_weight)):
        if value is not None and np.shape(value)[:1] != X.shape[:1]:
            raise DataError(f"X has {len(X)} rows and {name} has shape {np.shape(value)}.")
    return ArraySource(X, y, noise, sample_weight)


class Read(NamedTuple):
    """Checked rows in the user's units."""

    inputs: Tensor  # (b, d)
    targets: Tensor | None  # (b, k)
    known: Tensor | None  # (b,)
    weight: Tensor | None  # (b,)

    def take(
        self,
        rows: slice | Tensor,  # (r,)
    ) -> "Read":
        """Return some of the rows, (r, d) and so on."""
        targets, known, weight = (None if tensor is None else tensor[rows] for tensor in self[1:])
        return Read(self.inputs[rows], targets, known, weight)

    @classmethod
    def joined(cls, reads: Sequence["Read"]) -> "Read":
        """Return the rows of all, one after the other, (b, d) and so on."""
        if len(reads) == 1:
            return reads[0]
        columns = list(zip(*reads, strict=True))
        targets, known, weight = (None if column[0] is None else torch.cat(column) for column in columns[1:])
        return cls(torch.cat(columns[0]), targets, known, weight)


def read_chunks(
    chunks: Iterable[Chunk],
    dtype: torch.dtype | None,
    targets: bool,
    names: tuple[str, ...] | None = None,
    first: int = 0,
) -> Iterator[Read]:
    """Yield the rows of a source's chunks, checked.

    Args:
        chunks: All of them, in order.
        dtype: Of the inputs; None: the source's.
        targets: Whether these are wanted.
        names: Of the columns, in order, where they are known.
        first: The number of rows before these.

    Raises:
        DataError: values that are not finite, named by their row in the source, or chunks that differ from the first in
            shape, names, or in what they know of their rows.
    """
    width, outputs, extras = None, None, None
    for chunk in chunks:
        inputs, _ = read_matrix(chunk.X, dtype, first)
        if width is not None and inputs.shape[1] != width:
            raise DataError(f"A block of the source has {inputs.shape[1]} columns, the first has {width}.")
        names = _checked_names(names, chunk.names)
        y = known = weight = None
        if targets:
            found = tuple(name for name in ("noise", "sample_weight") if getattr(chunk, name) is not None)
            if extras is not None and found != extras:
                raise DataError(
                    f"A block of the source has {_listed(found)} beside X and y, the first {_listed(extras)}."
                )
            extras = found
            if chunk.y is None:
                raise DataError("The source has no targets; name the target column where the source is made.")
            y = read_target_values(chunk.y)
            check_dtypes(y, inputs, dtype)
            y = check_targets(y, len(inputs), inputs, first)
            y = y[:, None] if y.ndim == 1 else y
            if outputs is not None and y.shape[1] != outputs:
                raise DataError(f"A block of the source has {y.shape[1]} targets, the first has {outputs}.")
            like = inputs.new_empty(0)
            known = read_per_row(chunk.noise, "noise", len(inputs), like, positive=False, first=first)
            weight = read_per_row(chunk.sample_weight, "sample_weight", len(inputs), like, positive=True, first=first)
            outputs = y.shape[1]
        first, width = first + len(inputs), inputs.shape[1]
        if len(inputs):
            yield Read(inputs, y, known, weight)


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "nothing"


def _checked_names(known: tuple[str, ...] | None, found: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if known is not None and found is not None and known != found:
        raise DataError(
            f"The columns are {', '.join(found)[:200]}, and must be {', '.join(known)[:200]} in this order. Give "
            "columns= where the source is made."
        )
    return found if known is None else known


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a source, standardised block by block; see `rfgp.inference.Rows`.

    Attributes:
        source: Where they come from.
        scaling: To standardised units.
        dtype: Of the inputs; None: the source's.
        count: n.
        num_outputs: k.
        is_uniform: Whether no row has a weight or a noise of its own.
        knows_noise: Whether rows have a noise of their own.
    """

    source: RowSource
    scaling: Scaling
    dtype: torch.dtype | None
    count: int
    num_outputs: int
    is_uniform: bool
    knows_noise: bool

    def __len__(self) -> int:
        return self.count

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of `size`.

        Raises:
            DataError: the source has not as many rows as when it was read first.
        """
        found = 0
        chunks = read_chunks(self.source.chunks(), self.dtype, True, self.scaling.columns)
        for read in rebatched(chunks, size):
            found += len(read.inputs)
            check_kind(read, self)
            yield from standardized(read, self.scaling).blocks(size)
        if found != self.count:
            raise DataError(f"The source had {self.count:,} rows at first and has {found:,} now; it must not change.")


class RemoteRows(SourceRows):
    """Likewise, of a `DistributedSource`; sums over them are taken where they lie."""

    def total(self, function: Callable[[Rows], Sums]) -> Sums:
        """Return the sum of function(part) over the parts, none of which may be larger than memory.

        Raises:
            DataError: values that cannot be used, or other than at first.
        """
        assert isinstance(self.source, DistributedSource)
        whole = replace(self, source=ArraySource(()))  # what is sent to each part is without the others
        return self.source.reduce(partial(_total_of_part, whole, function), _added)


def _total_of_part(whole: SourceRows, function: Callable[[Rows], Sums], part: RowSource, first: int) -> Sums:
    reads = []
    for read in read_chunks(part.chunks(), whole.dtype, True, whole.scaling.columns, first):
        check_kind(read, whole)
        reads.append(read)
    if reads:
        return function(standardized(Read.joined(reads), whole.scaling))
    like = whole.scaling.targets.scale.new_zeros(0, dtype=torch.float64)
    return function(ArrayRows(like.reshape(0, 1), like.reshape(0, whole.num_outputs)))


def _added(a: Sums, b: Sums) -> Sums:
    return tuple(x + y for x, y in zip(a, b, strict=True))


@dataclass(eq=False)
class CountedRows:
    """The rows of a source that are read once, and counted then; for one pass, as of `rfgp.inference.linear.gather`.

    Attributes:
        source: Where they come from.
        scaling: To standardised units.
        dtype: Of the inputs; None: the source's.
        num_outputs: k.
        is_uniform: Whether no row has a weight or a noise of its own.
        knows_noise: Whether rows have a noise of their own.
        num_rows: How many have been read.
        count: How many observations these are, repetitions included.
    """

    source: RowSource
    scaling: Scaling
    dtype: torch.dtype | None
    num_outputs: int
    is_uniform: bool
    knows_noise: bool
    num_rows: int = 0
    count: float = 0.0

    def __len__(self) -> int:
        return max(self.num_rows, _CHUNK)  # for what depends on the order of their number only

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of `size`."""
        chunks = read_chunks(self.source.chunks(), self.dtype, True, self.scaling.columns)
        for read in rebatched(chunks, size):
            check_kind(read, self)
            rows = standardized(read, self.scaling)
            self.num_rows, self.count = self.num_rows + len(rows), self.count + rows.count
            yield from rows.blocks(size)

    def counted(self) -> SourceRows:
        """Return the rows, now that their number is known."""
        kind = (self.num_outputs, self.is_uniform, self.knows_noise)
        return SourceRows(self.source, self.scaling, self.dtype, self.num_rows, *kind)


@dataclass(frozen=True, eq=False)
class SourceInputs:
    """The inputs of a source, standardised block by block; see `rfgp.inference.InputBlocks`.

    Attributes:
        source: Where they come from.
        scaling: To standardised units.
        dtype: Of the inputs; None: the source's.
    """

    source: RowSource
    scaling: Scaling
    dtype: torch.dtype | None

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield all inputs in blocks (b, d) of `size`.

        Raises:
            DataError: another number of columns than the training data have.
        """
        some = False
        chunks = read_chunks(self.source.chunks(), self.dtype, False, self.scaling.columns)
        for read in rebatched(chunks, size):
            some = True
            self.scaling.check_columns(read.inputs)
            yield self.scaling.standardize(read.inputs)
        if not some:
            raise DataError("The source has no rows; one that is read a second time must begin anew.")


def check_kind(read: Read, rows: "SourceRows | CountedRows") -> None:
    """Refuse rows of another kind than those that the source had when it was looked at.

    Raises:
        DataError: another number of columns or outputs, or weights or noise that came or went.
    """
    assert read.targets is not None
    rows.scaling.check_columns(read.inputs)
    now = (read.targets.shape[1], read.known is None and read.weight is None, read.known is not None)
    if now != (rows.num_outputs, rows.is_uniform, rows.knows_noise):
        raise DataError("The source has other targets, weights or noise than at first; it must not change.")


def standardized(read: Read, scaling: Scaling) -> ArrayRows:
    """Return rows in standardised units."""
    assert read.targets is not None
    inputs = scaling.standardize(read.inputs)
    targets = scaling.targets.forward(read.targets.to(scaling.targets.scale)).double()
    known = None if read.known is None else read.known / scaling.targets.common_scale().double() ** 2
    return ArrayRows(inputs, targets, known, read.weight)


def rebatched(chunks: Iterator[Read], size: int) -> Iterator[Read]:
    """Yield the same rows in chunks of `size`, the last one smaller."""
    waiting: list[Read] = []
    count = 0
    for chunk in chunks:
        waiting.append(chunk)
        count += len(chunk.inputs)
        if count < size:
            continue
        whole, waiting = Read.joined(waiting), []
        last = count - count % size
        for first in range(0, last, size):
            yield whole.take(slice(first, first + size))
        if last < count:
            waiting = [whole.take(slice(last, count))]
        count -= last
    if waiting:
        yield Read.joined(waiting)
