"""Rows in memory or in chunks, standardized block by block, and summaries from one pass."""

import copy
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.counts import counted
from rfgp.errors import DataError
from rfgp.limits import limits
from rfgp.linalg import in_bytes
from rfgp.rows.arrays import (
    arranged,
    check_dtypes,
    check_targets,
    names_of,
    read_matrix,
    read_per_row,
    read_target_values,
    without_index,
)
from rfgp.rows.blocks import Block, Rows, Sums, gathered, parts_of
from rfgp.scaling import Affine, Scaling, freedom, unit_of

# --- Rows in memory or in chunks that are read repeatedly, checked and standardized block by block -------------------


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


# --- Summaries of sources: the number of rows, moments and a random sample, from one pass over the rows --------------


class Moments:
    """Mean, standard deviation and range of columns read in parts.

    Parts are combined in float64 as by Chan, Golub and LeVeque (1983).
    """

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0  # the number of rows, and their total weight
        self.mean = self._squares = self._unit = self.low = self.high = torch.zeros(0, dtype=torch.float64)
        self._low_row = self._high_row = torch.zeros(0, dtype=torch.int64)

    def add(
        self,
        x: Tensor,  # (b, d)
        weight: Tensor | None = None,  # (b,)
        first: int = 0,
    ) -> None:
        """Add rows (b, d) with weights.

        Args:
            x: Rows (b, d).
            weight: The weights (b,) of the rows. If None, ones.
            first: The number of the first row. The default is 0.
        """
        x = x.detach().double().cpu()
        w = torch.ones(len(x), 1, dtype=torch.float64) if weight is None else weight.detach().double().cpu()[:, None]
        total, largest = float(w.sum()), x.abs().amax(0)
        unit = torch.where(largest > 0, unit_of(largest), torch.full_like(largest, torch.finfo(torch.float64).tiny))
        scaled = x / unit
        mean = scaled.mean(0) if weight is None else (w * scaled).sum(0) / total
        squares = (w * (scaled - mean).square()).sum(0)
        (low, low_row), (high, high_row) = x.min(0), x.max(0)
        self._combine(len(x), total, mean * unit, squares, unit, (low, high), (first + low_row, first + high_row))

    def merge(self, other: "Moments") -> None:
        """Add the rows of other moments.

        Args:
            other: Moments of the same columns.
        """
        if other.count:
            sums = other.count, other.total, other.mean, other._squares, other._unit
            self._combine(*sums, (other.low, other.high), (other._low_row, other._high_row))

    def _combine(
        self,
        count: int,
        weight: float,
        mean: Tensor,
        squares: Tensor,
        unit: Tensor,
        ends: tuple[Tensor, Tensor],
        rows: tuple[Tensor, Tensor],
    ) -> None:
        """Add rows with a mean, and with sums of squares in units of `unit` (d,), which avoid overflow."""
        if self.count == 0:
            self.count, self.total, self.mean = count, weight, mean
            self._squares, self._unit, (self.low, self.high) = squares, unit, ends
            self._low_row, self._high_row = rows
            return
        total, largest = self.total + weight, torch.maximum(self._unit, unit)
        shift = (mean - self.mean) / largest
        squares = self._squares * (self._unit / largest).square() + squares * (unit / largest).square()
        self._squares = squares + shift.square() * (self.total * weight / total)
        self._unit, self.mean = largest, self.mean + shift * largest * (weight / total)
        self._low_row = torch.where(ends[0] < self.low, rows[0], self._low_row)
        self._high_row = torch.where(ends[1] > self.high, rows[1], self._high_row)
        self.low, self.high = torch.minimum(self.low, ends[0]), torch.maximum(self.high, ends[1])
        self.count, self.total = self.count + count, total

    @property
    def ends(self) -> Tensor:
        """The smallest and the largest values, (2, d)."""
        return torch.stack([self.low, self.high])

    @property
    def end_rows(self) -> Tensor:
        """The numbers of the rows with these values, (2, d)."""
        return torch.stack([self._low_row, self._high_row])

    @property
    def deviation(self) -> Tensor:
        """The standard deviations (d,)."""
        deviation = self._unit * (self._squares / freedom(self.total, self.count)).sqrt()
        return torch.where(self.low == self.high, torch.zeros_like(deviation), deviation)

    def standardizing(self, like: Tensor) -> Affine:
        """Return the map to mean 0 and standard deviation 1.

        Args:
            like: A tensor (0,) with the dtype and device of the map.
        """
        largest = torch.maximum(self.low.abs(), self.high.abs())
        mean = torch.where(self.low == self.high, self.low, self.mean)
        return Affine.of_moments(*(value.to(like) for value in (mean, self.deviation, largest)))


class SourceSummary(NamedTuple):
    """The summary of a source after the first pass."""

    inputs: Moments
    targets: Moments
    num_rows: int
    observations: float  # the sum of the weights
    is_homoscedastic: bool
    is_vector: bool  # targets (n,) rather than (n, k)
    is_numpy: bool
    sample: Chunk  # checked, in random order
    names: tuple[str, ...] | None  # of the columns
    digest: str  # of all values, independent of blocks, but not of parts on other machines


def summarize_source(
    source: RowSource,
    dtype: torch.dtype | None,
    seed: int,
    is_all: bool = True,
    columns: tuple[str, ...] | None = None,
) -> SourceSummary:
    """Return the summary of a source after reading all rows once.

    Args:
        source: The rows. Those of a `DistributedSource` are read on the workers that hold them.
        dtype: The dtype of the inputs. If None, that of the source.
        seed: The seed of the sample. The sample depends on the rows and their order, not on the blocks.
        is_all: Whether these are all the data, which must have two rows.
        columns: The names of the wanted columns in order. If None, those of the source.

    Raises:
        DataError: If values are invalid, or there are fewer than two rows.
    """
    if isinstance(source, DistributedSource):
        return source.reduce(partial(_accumulated, dtype, seed, columns), SourceAccumulator.merged).summary(is_all)
    return _accumulated(dtype, seed, columns, source, 0).summary(is_all)


def _accumulated(
    dtype: torch.dtype | None, seed: int, columns: tuple[str, ...] | None, source: RowSource, first: int
) -> "SourceAccumulator":
    accumulator = SourceAccumulator(seed, first)
    accumulator.read(source, dtype, columns)
    return accumulator


class SourceAccumulator:
    """Sums over rows. Accumulators of consecutive rows can be merged.

    Args:
        seed: The seed of the sample.
        first: The number of preceding rows.
    """

    def __init__(self, seed: int, first: int = 0) -> None:
        self._first = first
        self._inputs, self._targets, self._sample = Moments(), Moments(), _Sample(seed, first)
        self._observations, self._is_homoscedastic = 0.0, True
        self._digests: tuple[str, ...] = ("",) * 4
        self._format: tuple[bool, bool, tuple[str, ...] | None] | None = None  # vector, numpy, names

    def read(self, source: RowSource, dtype: torch.dtype | None, columns: tuple[str, ...] | None = None) -> None:
        """Add all rows of a source.

        Args:
            source: The rows.
            dtype: The dtype of the inputs. If None, that of the source.
            columns: The names of the columns to read. If None, all columns except an index.

        Raises:
            DataError: If values are invalid.
        """
        chunks, digests = iter(source.chunks()), [hashlib.sha256() for _ in range(4)]
        first = next(chunks, None)
        if first is None:
            return
        columns = first.without_index_column().names if columns is None else columns
        self._format = (np.ndim(first.y) == 1, not isinstance(first.X, Tensor), first.named(columns).names)
        for chunk in checked(chain([first], chunks), dtype, True, columns, self._first):
            weight, number = chunk.sample_weight, self._first + self._inputs.count
            self._inputs.add(chunk.X, weight, number)
            self._targets.add(chunk.y, weight, number)
            self._sample.add(chunk)
            for digest, tensor in zip(digests, chunk[:4], strict=True):
                if tensor is not None:
                    digest.update(in_bytes(tensor))
            self._observations += len(chunk.X) if weight is None else float(weight.sum())
            self._is_homoscedastic = self._is_homoscedastic and chunk.noise is None and weight is None
        self._digests = tuple(digest.hexdigest() for digest in digests)

    def merged(self, other: "SourceAccumulator") -> "SourceAccumulator":
        """Return the accumulator of these rows followed by those of another.

        Args:
            other: The accumulator of the rows that follow.

        Raises:
            DataError: If the rows differ in their columns, targets, weights or noise.
        """
        if other._targets.count == 0 or self._targets.count == 0:
            return self if other._targets.count == 0 else other
        shapes = [(len(t._inputs.mean), len(t._targets.mean), t._format, t._is_homoscedastic) for t in (self, other)]
        if shapes[0] != shapes[1]:
            raise DataError(
                "The parts of a source must have the same columns, targets, weights and noise, got different ones."
            )
        new = copy.copy(self)
        for name in ("_inputs", "_targets"):
            moments = copy.copy(getattr(self, name))
            moments.merge(getattr(other, name))
            setattr(new, name, moments)
        new._sample = self._sample.merged(other._sample)
        new._observations = self._observations + other._observations
        pairs = zip(self._digests, other._digests, strict=True)
        new._digests = tuple(hashlib.sha256((a + b).encode()).hexdigest() for a, b in pairs)
        return new

    def summary(self, is_all: bool = True) -> SourceSummary:
        """Return the summary of the rows.

        Args:
            is_all: Whether these are all the data.

        Raises:
            DataError: If there are fewer than two rows, or squares of values overflow.
        """
        if self._format is None:
            raise DataError("The source must have rows, got none. Check its path or its filter.")
        count, (is_vector, is_numpy, names) = self._targets.count, self._format
        if is_all and count < 2:
            raise DataError(f"There must be at least two observations, got {count}.")
        sample = self._sample.rows()
        _check_range(self._inputs, "a column of X")
        _check_range(self._targets, "y")
        kind = (self._observations, self._is_homoscedastic, is_vector, is_numpy)
        return SourceSummary(self._inputs, self._targets, count, *kind, sample, names, " ".join(self._digests))


def _check_range(moments: Moments, name: str) -> None:
    """Check that differences of values do not overflow in float64.

    Raises:
        DataError: If differences overflow. The message has the largest value.
    """
    overflows = ~torch.isfinite(moments.deviation) | ~torch.isfinite(moments.mean)
    if bool(overflows.any()):
        largest = torch.maximum(moments.low.abs(), moments.high.abs())[overflows][0].item()
        raise DataError(f"The values of {name} must differ by less than 1e308, got up to {largest:g}. Rescale it.")


class _Sample:
    """A random sample without replacement: the rows with the smallest of independent uniform keys.

    Args:
        seed: The seed of the keys. Row i has key i of the stream.
        first: The number of the first row.
    """

    def __init__(self, seed: int, first: int = 0) -> None:
        self._random = random.numpy_generator(seed, random.Role.SAMPLE)
        cast(np.random.PCG64, self._random.bit_generator).advance(first)  # one step for each key
        self._keys = np.empty(0)
        self._chunks: list[Chunk] = []

    def add(self, chunk: Chunk) -> None:
        """Add checked rows to the population of the sample."""
        keys = self._random.random(len(chunk.X))
        if len(self._keys) >= limits().sample_rows:
            chosen = np.flatnonzero(keys < self._keys.max())
            if len(chosen) == 0:
                return
            chunk, keys = chunk.take(torch.as_tensor(chosen)), keys[chosen]
        self._keys = np.concatenate([self._keys, keys])
        self._chunks.append(chunk)
        if len(self._keys) >= 2 * limits().sample_rows:
            self._shrink()

    def merged(self, other: "_Sample") -> "_Sample":
        """Return the sample from the rows of both."""
        new = copy.copy(self)
        new._keys, new._chunks = np.concatenate([self._keys, other._keys]), [*self._chunks, *other._chunks]
        new._shrink()
        return new

    def rows(self) -> Chunk:
        """Return the sample in random order."""
        self._shrink()
        return self._chunks[0]

    def _shrink(self) -> None:
        order = np.argsort(self._keys, kind="stable")[: limits().sample_rows]
        joined = Chunk.joined(self._chunks)
        self._chunks, self._keys = [joined.take(torch.as_tensor(order))], self._keys[order]
