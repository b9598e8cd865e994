"""Summaries of sources: the number of rows, moments and a random sample, from one pass over the rows."""

import copy
import hashlib
from functools import partial
from itertools import chain
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import DataError
from rfgp.limits import limits
from rfgp.linalg import in_bytes
from rfgp.rows.sources import Chunk, DistributedSource, RowSource, checked
from rfgp.scaling import Affine, freedom, unit_of


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
