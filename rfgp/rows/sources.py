"""Rows in memory or in chunks that are read repeatedly, checked and standardized block by block."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import DataError
from rfgp.limits import limits
from rfgp.rows.arrays import check_dtypes, check_targets, read_matrix, read_per_row, read_target_values
from rfgp.rows.blocks import Block, Rows, Sums, gathered, parts_of
from rfgp.rows.names import arranged, names_of, without_index
from rfgp.scaling import Scaling


class Chunk(NamedTuple):
    """A batch of b rows in the user's units, before or after validation.

    Attributes:
        X: An array (b, d), a dataframe, a dict of columns, or labels (b,). Validated, a tensor or node positions (b,).
        y: Targets (b,) or (b, k), or None.
        noise: Known variances (b,), added to the learned noise. If None, zeros.
        sample_weight: Positive frequency weights (b,). If None, ones.
        names: The names of the d columns. If None, those of X if it is a dataframe.
    """

    X: Any
    y: Any = None
    noise: Any = None
    sample_weight: Any = None
    names: tuple[str, ...] | None = None

    def named(self, wanted: tuple[str, ...] | None) -> "Chunk":
        """Return the rows with the wanted columns of X (b, d). If None, with all.

        Raises:
            DataError: If a wanted column is missing, or several have the same name.
        """
        names = names_of(self.X) if self.names is None else self.names
        return self._replace(X=arranged(self.X, wanted, names), names=names if wanted is None else wanted)

    def without_index_column(self) -> "Chunk":
        """Return the rows without an index column of a dataframe, and warn if there is one."""
        chunk = self.named(None)
        if self.names is not None or chunk.names is None:
            return chunk
        return chunk.named(without_index(self.X, chunk.names))

    def take(
        self,
        rows: slice | Tensor,  # (r,)
    ) -> "Chunk":
        """Return some rows, (r, d) and so on, of a checked chunk."""
        X, y, noise, weight = (None if column is None else column[rows] for column in self[:4])
        return Chunk(X, y, noise, weight, self.names)

    @classmethod
    def joined(cls, chunks: Sequence["Chunk"]) -> "Chunk":
        """Return the rows of checked chunks in one chunk, (b, d) and so on.

        If only some have noise or weights, the others get noise 0 and weight 1.
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
    """The interface of sources that yield the same rows in the same order."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in chunks."""


@runtime_checkable
class TableSource(RowSource, Protocol):
    """The interface of sources with cells of any kind, such as text and dates."""

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield all rows in chunks, with dataframes or dicts of columns (b,) as inputs.

        Args:
            columns: The names of the columns to read. If None, or if one is missing, all inputs.
        """


T = TypeVar("T")


@runtime_checkable
class DistributedSource(RowSource, Protocol):
    """The interface of sources with parts on other machines, as in `rfgp.dask`."""

    def reduce(self, function: Callable[[RowSource, int], T], combine: Callable[[T, T], T]) -> T:
        """Return function(part, rows before) of all parts, combined in order."""


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Arrays on disk (`numpy.memmap`), or other objects that can be sliced.

    Attributes:
        X: The inputs (n, d).
        y: The targets (n,) or (n, k), or None.
        noise: Known noise variances (n,), or None.
        sample_weight: The weights (n,), or None.
    """

    X: Any
    y: Any = None
    noise: Any = None
    sample_weight: Any = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in chunks."""
        parts = (self.X, self.y, self.noise, self.sample_weight)
        for first in range(0, len(self.X), limits().chunk_rows):
            yield Chunk(*(None if part is None else part[first : first + limits().chunk_rows] for part in parts))


def as_source(X: Any, y: Any = None, noise: Any = None, sample_weight: Any = None) -> RowSource | None:
    """Return a source of rows that are read in blocks, or None.

    Raises:
        DataError: If a source is combined with other arguments, or arrays differ in length.
    """
    if isinstance(X, RowSource) and callable(X.chunks):  # arrays of other libraries have an attribute `chunks`
        if any(value is not None for value in (y, noise, sample_weight)):
            remedy = "Name them in the source, as in rfgp.tables.Parquet(path, target=...)."
            raise DataError(f"y, noise and sample_weight must be part of a source of rows, got arrays. {remedy}")
        return X
    if not isinstance(X, np.memmap) or X.ndim != 2 or X.nbytes < limits().min_blocked_bytes:
        return None
    for name, value in (("y", y), ("noise", noise), ("sample_weight", sample_weight)):
        if value is not None and np.shape(value)[:1] != X.shape[:1]:
            n, remedy = counted(len(X), "row"), f"Pass one {'target' if name == 'y' else 'value'} per row."
            raise DataError(f"{name} must have {n} like X, got shape {np.shape(value)}. {remedy}")
    return ArraySource(X, y, noise, sample_weight)


def checked(
    chunks: Iterable[Chunk],
    dtype: torch.dtype | None,
    targets: bool,
    names: tuple[str, ...] | None = None,
    first: int = 0,
) -> Iterator[Chunk]:
    """Yield the checked rows of a source's chunks as tensors, with targets (b, k).

    Args:
        chunks: All chunks in order.
        dtype: The dtype of the inputs. If None, that of the source.
        targets: Whether targets are required.
        names: The names of the requested columns, in order. If None, those of the first chunk.
        first: The number of preceding rows.

    Raises:
        DataError: If a value is not finite, a column is missing, or a chunk differs from the first in its columns.
    """
    width, outputs, extras = None, None, None
    for block in chunks:
        chunk = block.named(names)
        names = chunk.names
        inputs, _ = read_matrix(chunk.X, dtype, first)
        if width is not None and inputs.shape[1] != width:
            raise DataError(_unequal_blocks("column", width, inputs.shape[1]))
        y = noise = weight = None
        if targets:
            given_extras = tuple(name for name in ("noise", "sample_weight") if getattr(chunk, name) is not None)
            if extras is not None and given_extras != extras:
                got = f"got {_listed(given_extras)} after {_listed(extras)}. Pass them with all blocks, or with none."
                raise DataError(f"All blocks of a source must have the same of noise and sample_weight, {got}")
            extras = given_extras
            if chunk.y is None:
                raise DataError("The source must have targets, got none. Name the target column of the source.")
            y = read_target_values(chunk.y)
            check_dtypes(y, inputs, dtype)
            y = check_targets(y, len(inputs), inputs, first)
            y = y[:, None] if y.ndim == 1 else y
            if outputs is not None and y.shape[1] != outputs:
                raise DataError(_unequal_blocks("target", outputs, y.shape[1]))
            like = inputs.new_empty(0)
            noise = read_per_row(chunk.noise, "noise", len(inputs), like, positive=False, first=first)
            weight = read_per_row(chunk.sample_weight, "sample_weight", len(inputs), like, positive=True, first=first)
            outputs = y.shape[1]
        first, width = first + len(inputs), inputs.shape[1]
        if len(inputs):
            yield Chunk(inputs, y, noise, weight)


def _unequal_blocks(kind: str, first: int, got: int) -> str:
    return f"All blocks of a source must have {counted(first, kind)}, got {got}. Select the same {kind}s in each block."


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "neither"


def rebatched(chunks: Iterator[Chunk], size: int) -> Iterator[Chunk]:
    """Yield checked rows in chunks of `size`. The last one may be smaller."""
    pending: list[Chunk] = []
    count = 0
    for chunk in chunks:
        pending.append(chunk)
        count += len(chunk.X)
        if count < size:
            continue
        joined, pending = Chunk.joined(pending), []
        last = count - count % size
        for first in range(0, last, size):
            yield joined.take(slice(first, first + size))
        if last < count:
            pending = [joined.take(slice(last, count))]
        count -= last
    if pending:
        yield Chunk.joined(pending)


def rows_in_memory(rows: Rows) -> Block:
    """Return all rows, or the sample of rows that are read in blocks."""
    block = rows.sample if isinstance(rows, SourceRows) else gathered(rows)
    assert block is not None  # rows for a fit have a sample
    return block


def is_read_in_blocks(rows: Rows) -> bool:
    """Return whether at least one part of the rows is read in blocks."""
    return any(isinstance(part, SourceRows) for part in parts_of(rows))


def standardized(chunk: Chunk, scaling: Scaling) -> Block:
    """Return checked rows in standardized units."""
    inputs = scaling.standardize(chunk.X)
    targets = scaling.targets.forward(chunk.y.to(scaling.targets.scale)).double()
    targets = targets if targets.ndim > 1 else targets[:, None]
    return Block(inputs, targets, standardized_noise(chunk, scaling), chunk.sample_weight)


def standardized_noise(chunk: Chunk, scaling: Scaling) -> Tensor | None:
    """Return the known noise variances (b,) of rows in standardized units, or None."""
    return None if chunk.noise is None else chunk.noise / scaling.targets.common_scale().double() ** 2


ASSUMED_NUM_ROWS = 2**16
"""The assumed number of rows of a source before it is read. Only its order of magnitude matters."""


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a source. See `rfgp.rows.Rows`.

    Attributes:
        source: The source.
        scaling: The map to standardized units.
        dtype: The dtype of the inputs. If None, that of the source.
        num_outputs: The number k of outputs.
        is_homoscedastic: Whether no row has a weight or known noise.
        has_fixed_noise: Whether rows have known noise.
        num_rows: The number n of rows. None before the first pass.
        count: The number of observations, including repetitions.
        as_numpy: Whether the rows are arrays and not tensors.
        sample: A standardized random sample of the rows. None for additional rows.
        digest: The digest of all values. Empty before the first pass.
        ends: The smallest and the largest standardized inputs, (d,) each. None before the first pass.
    """

    source: RowSource
    scaling: Scaling
    dtype: torch.dtype | None
    num_outputs: int
    is_homoscedastic: bool
    has_fixed_noise: bool
    num_rows: int | None = None
    count: float = 0.0
    as_numpy: bool = True
    sample: Block | None = None
    digest: str = ""
    ends: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return ASSUMED_NUM_ROWS if self.num_rows is None else self.num_rows

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of `size`.

        Raises:
            DataError: If the number of rows has changed since the first pass.
        """
        count = 0
        chunks = checked(self.source.chunks(), self.dtype, True, self.scaling.columns)
        for chunk in rebatched(chunks, size):
            count += len(chunk.X)
            check_row_format(chunk, self)
            yield from standardized(chunk, self.scaling).blocks(size)
        if self.num_rows is not None and count != self.num_rows:
            raise DataError(f"A source must not change, got {count:,} rows after {self.num_rows:,}. Read a copy.")

    def counted(self, num_rows: int, count: float) -> "SourceRows":
        """Return the rows with their numbers of rows and observations."""
        return replace(self, num_rows=num_rows, count=count)

    def read_once(self) -> "SourceRows":
        """Return the rows after a pass that checks and counts them."""
        num_rows, count = 0, 0.0
        for block in self.blocks(2**16):
            num_rows, count = num_rows + len(block), count + block.count
        return self.counted(num_rows, count)


class RemoteRows(SourceRows):
    """The rows of a `DistributedSource`, summed on the workers."""

    def total(self, function: Callable[[Rows], Sums], combine: Callable[[Sums, Sums], Sums]) -> Sums:
        """Return the combined values function(part) of the parts. Each part must fit into memory.

        Raises:
            DataError: If values are invalid, or have changed since the first pass.
        """
        assert isinstance(self.source, DistributedSource)
        template = replace(self, source=ArraySource(()), sample=None)  # do not send the other parts to a worker
        return self.source.reduce(partial(_total_of_part, template, function), combine)


def _total_of_part(template: SourceRows, function: Callable[[Rows], Sums], part: RowSource, first: int) -> Sums:
    chunks = []
    for chunk in checked(part.chunks(), template.dtype, True, template.scaling.columns, first):
        check_row_format(chunk, template)
        chunks.append(chunk)
    if chunks:
        return function(standardized(Chunk.joined(chunks), template.scaling))
    like = template.scaling.targets.scale.new_zeros(0, dtype=torch.float64)
    return function(Block(like.reshape(0, 1), like.reshape(0, template.num_outputs)))


@dataclass(frozen=True, eq=False)
class SourceInputs:
    """The inputs of a source, standardized block by block.

    Attributes:
        source: The source.
        scaling: The map to standardized units.
        dtype: The dtype of the inputs. If None, that of the source.
    """

    source: RowSource
    scaling: Scaling
    dtype: torch.dtype | None

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield all inputs in blocks (b, d) of `size`.

        Raises:
            DataError: If the number of columns differs from that of the training data.
        """
        has_rows, chunks = False, checked(self.source.chunks(), self.dtype, False, self.scaling.columns)
        for chunk in rebatched(chunks, size):
            has_rows = True
            self.scaling.check_columns(chunk.X)
            yield self.scaling.standardize(chunk.X)
        if not has_rows:
            raise DataError("A source must yield its rows at each pass, got none. Restart at each call of chunks().")


def check_row_format(chunk: Chunk, rows: SourceRows) -> None:
    """Check that rows have the outputs, weights and noise of the first pass.

    Raises:
        DataError: If the number of columns or outputs, or the presence of weights or noise, has changed.
    """
    rows.scaling.check_columns(chunk.X)
    now = (chunk.y.shape[1], chunk.noise is None and chunk.sample_weight is None, chunk.noise is not None)
    if now != (rows.num_outputs, rows.is_homoscedastic, rows.has_fixed_noise):
        given = f"got {now[0]} targets after {rows.num_outputs}, or other weights or noise. Check its chunks()."
        raise DataError(f"A source must yield equal numbers of targets, weights and noise in each pass, {given}")
