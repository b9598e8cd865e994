"""Rows that are read in blocks, as often as asked, because they need not fit in memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import DataError
from rfgp.inference import ArrayRows, Block
from rfgp.models.data import check_targets, read_matrix, read_per_row, read_target_values
from rfgp.scaling import Scaling

_CHUNK = 2**16
"""Rows of an array on disk that are read at a time."""


class Chunk(NamedTuple):
    """Some rows in the user's units, arrays or tensors.

    Attributes:
        X: Inputs (b, d).
        y: Targets (b,) or (b, k); None where the source has none.
        noise: Known variances (b,), or None.
        sample_weight: Numbers of observations (b,), or None.
    """

    X: Any
    y: Any = None
    noise: Any = None
    sample_weight: Any = None


@runtime_checkable
class RowSource(Protocol):
    """The role: the same rows in the same order, whenever they are asked for. `rfgp.tables` has some."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""


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
    if not isinstance(X, np.memmap) or X.ndim != 2:
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


def read_chunks(chunks: Iterable[Chunk], dtype: torch.dtype | None, targets: bool) -> Iterator[Read]:
    """Yield the rows of a source's chunks, checked.

    Raises:
        DataError: values that are not finite, named by their row in the source, or chunks of different shapes.
    """
    first, width, outputs = 0, None, None
    for chunk in chunks:
        inputs, _ = read_matrix(chunk.X, dtype, first)
        if width is not None and inputs.shape[1] != width:
            raise DataError(f"A block of the source has {inputs.shape[1]} columns, the first has {width}.")
        y = known = weight = None
        if targets:
            if chunk.y is None:
                raise DataError("The source has no targets; name the target column where the source is made.")
            y = check_targets(read_target_values(chunk.y), len(inputs), inputs, first)
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
        for read in rebatched(read_chunks(self.source.chunks(), self.dtype, True), size):
            found += len(read.inputs)
            yield from self.standardized(read).blocks(size)
            if size == 1:
                return  # one row was asked for, to see what a row is like
        if found != self.count:
            raise DataError(f"The source had {self.count:,} rows at first and has {found:,} now; it must not change.")

    def standardized(self, read: Read) -> ArrayRows:
        """Return rows in standardised units."""
        assert self.scaling.inputs is not None
        assert read.targets is not None
        inputs = self.scaling.inputs.forward(read.inputs.to(self.scaling.inputs.scale))
        targets = self.scaling.targets.forward(read.targets.to(self.scaling.targets.scale)).double()
        known = None if read.known is None else read.known / self.scaling.targets.common_scale().double() ** 2
        return ArrayRows(inputs, targets, known, read.weight)


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
        for read in rebatched(read_chunks(self.source.chunks(), self.dtype, False), size):
            self.scaling.check_columns(read.inputs)
            assert self.scaling.inputs is not None
            yield self.scaling.inputs.forward(read.inputs.to(self.scaling.inputs.scale))


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
