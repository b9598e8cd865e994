"""Rows of a source, standardised block by block as they are read: they need not fit in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import DataError
from rfgp.rows.blocks import Block, Rows, Sums
from rfgp.rows.sources import (
    ArraySource,
    Chunk,
    DistributedSource,
    RowSource,
    checked,
    rebatched,
    standardized,
)
from rfgp.scaling import Scaling

_UNCOUNTED = 2**16
"""Rows that a source is taken to have before it has been read, where only the order of their number matters."""


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a source; see `rfgp.rows.Rows`.

    Attributes:
        source: Where they come from.
        scaling: To standardised units.
        dtype: Of the inputs; None: the source's.
        num_outputs: k.
        is_uniform: Whether no row has a weight or a noise of its own.
        has_fixed_noise: Whether rows have a noise of their own.
        num_rows: n; None before they have been read.
        count: The number of observations, repetitions included.
        as_numpy: Whether they came as arrays rather than tensors.
        sample: Some of them, standardised, in random order; None: rows that were added.
        digest: Of all values, where they have been read before.
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

    def __len__(self) -> int:
        return _UNCOUNTED if self.num_rows is None else self.num_rows

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of `size`.

        Raises:
            DataError: the source has not as many rows as when it was read first.
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
            DataError: values that cannot be used, or other than at first.
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
        chunks = checked(self.source.chunks(), self.dtype, False, self.scaling.columns)
        for chunk in rebatched(chunks, size):
            some = True
            self.scaling.check_columns(chunk.X)
            yield self.scaling.standardize(chunk.X)
        if not some:
            raise DataError("The source has no rows; one that is read a second time must begin anew.")


def check_kind(chunk: Chunk, rows: SourceRows) -> None:
    """Refuse checked rows of another kind than those that the source had when it was looked at.

    Raises:
        DataError: another number of columns or outputs, or weights or noise that came or went.
    """
    rows.scaling.check_columns(chunk.X)
    now = (chunk.y.shape[1], chunk.noise is None and chunk.sample_weight is None, chunk.noise is not None)
    if now != (rows.num_outputs, rows.is_uniform, rows.has_fixed_noise):
        raise DataError("The source has other targets, weights or noise than at first; it must not change.")
