"""Rows as the user gives them: in memory, or from a source that is read block by block, and its first pass."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp import random
from rfgp.errors import DataError
from rfgp.limits import limits
from rfgp.messages import counted
from rfgp.rows.arrays import read_per_row, read_targets, row_hashes
from rfgp.scaling import Moments

# --- Rows in memory or in chunks that are read repeatedly, and checked block by block --------------------------------


class Chunk(NamedTuple):
    """A batch of b rows in the user's units, before or after validation.

    Attributes:
        X: An array (b, d), a dataframe, a dict of columns, or labels (b,). Validated, a tensor (b, d).
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

    def checked(self, X: Tensor, dtype: torch.dtype | None, first: int = 0) -> "Chunk":
        """Return the rows as tensors, with copies of all columns but the inputs.

        Args:
            X: The checked inputs (b, d).
            dtype: The dtype that the user selected. If None, that of the data.
            first: The number of preceding rows, for messages.

        Raises:
            DataError: If targets, noise or weights cannot be used. The message names the row.
        """
        y = read_targets(self.y, len(X), X, dtype, first)
        noise = read_per_row(self.noise, "noise", len(X), X, positive=False, first=first)
        weight = read_per_row(self.sample_weight, "sample_weight", len(X), X, positive=True, first=first)
        return Chunk(X, y, noise, weight)

    def take(
        self,
        rows: slice | Tensor,  # (r,)
    ) -> "Chunk":
        """Return some rows, (r, d) and so on, of a checked chunk."""
        return Chunk(*(None if column is None else column[rows] for column in self[:4]))

    @classmethod
    def joined(cls, chunks: Sequence["Chunk"]) -> "Chunk":
        """Return the rows of checked chunks in one chunk, (b, d) and so on.

        If only some have noise or weights, the others get noise 0 and weight 1.
        """
        if len(chunks) == 1:
            return chunks[0]
        X, y, noise, weight, _ = zip(*chunks, strict=True)
        sizes = list(map(len, X))
        targets = None if y[0] is None else torch.cat(y)
        return cls(torch.cat(X), targets, joined_column(noise, sizes, 0.0), joined_column(weight, sizes, 1.0))


def joined_column(columns: Sequence[Tensor | None], sizes: Sequence[int], missing: float) -> Tensor | None:
    """Return the numbers per row of several parts (n,), or None if no part has them.

    Args:
        columns: The numbers of each part, or None.
        sizes: The numbers of rows of the parts.
        missing: The number in parts without them.
    """
    known = next((column for column in columns if column is not None), None)
    if known is None:
        return None
    pairs = zip(columns, sizes, strict=True)
    return torch.cat([known.new_full((size,), missing) if column is None else column for column, size in pairs])


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


class ArraySource(NamedTuple):
    """Arrays on disk (`numpy.memmap`), or other objects that can be sliced."""

    arrays: Chunk

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in chunks."""
        for first in range(0, len(self.arrays.X), limits().chunk_rows):
            yield self.arrays.take(slice(first, first + limits().chunk_rows))


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
    return ArraySource(Chunk(X, y, noise, sample_weight))


Layout = tuple[tuple[int, ...], bool, bool]
"""The shape of the targets of a row, () or (k,), and whether rows have known noise, and weights."""


def layout_of(chunk: Chunk, expected: Layout | None = None) -> Layout:
    """Return the layout of checked rows.

    Args:
        chunk: The rows.
        expected: The layout of other rows of the source. If None, there are none.

    Raises:
        DataError: If the layouts differ.
    """
    layout = tuple(chunk.y.shape[1:]), chunk.noise is not None, chunk.sample_weight is not None
    if expected is not None and layout != expected:
        raise DataError(
            "A source must have the same targets, noise and sample_weight in all blocks, got other ones. Check its "
            "chunks()."
        )
    return layout


def checked(source: RowSource, layout: Layout, first: int = 0) -> Iterator[Chunk]:
    """Yield the checked rows of a source of matrices after the first pass.

    Args:
        source: The source, whose inputs have been read as matrices of numbers.
        layout: The layout of all rows.
        first: The number of preceding rows.

    Raises:
        DataError: If a value is not finite, or the columns have changed since the first pass.
    """
    for block in source.chunks():
        X = torch.as_tensor(block.X)
        chunk = block.checked(X, X.dtype, first)
        layout_of(chunk, layout)
        first += len(X)
        yield chunk


def rebatched(chunks: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """Yield rows in chunks of `size`. The last one may be smaller."""
    pending, count = list[Chunk](), 0
    for chunk in chunks:
        pending.append(chunk)
        count += len(chunk.X)
        if count < size:
            continue
        joined, pending, count = Chunk.joined(pending), [], count % size
        for first in range(0, len(joined.X), size):
            part = joined.take(slice(first, first + size))
            if len(part.X) == size:
                yield part
            else:
                pending = [part]
    if pending:
        yield Chunk.joined(pending)


# --- The first pass over a source: the number of rows, moments, a digest and a random sample -------------------------


class Sample(NamedTuple):
    """A random sample without replacement: the rows with the smallest of independent uniform keys.

    Attributes:
        keys: The keys, (s,).
        rows: The rows, in the order of their keys.
    """

    keys: NDArray[np.float64]
    rows: Chunk

    @classmethod
    def joined(cls, parts: Sequence["Sample"]) -> "Sample":
        """Return the sample from the rows of several."""
        keys, rows = np.concatenate([part.keys for part in parts]), Chunk.joined([part.rows for part in parts])
        order = np.argsort(keys, kind="stable")[: limits().sample_rows]
        return cls(keys[order], rows.take(torch.as_tensor(order)))


@dataclass(frozen=True, eq=False)
class SourceSummary:
    """The summary of a source, or of consecutive rows of it, after the first pass.

    Attributes:
        inputs: The moments of the inputs.
        targets: The moments of the targets.
        layout: The columns of all rows.
        is_numpy: Whether inputs are arrays and not tensors.
        samples: Random samples of parts of the rows.
        digest: The sum of hashes of the numbered rows, modulo 2^64.
    """

    inputs: Moments
    targets: Moments
    layout: Layout
    is_numpy: bool
    samples: tuple[Sample, ...]
    digest: int

    @property
    def sample(self) -> Chunk:
        """A random sample of all rows of a source in random order. It depends on the rows in order, not on blocks."""
        return self.samples[0].rows

    @property
    def largest_key(self) -> float:
        """A key above which no row is in the sample."""
        keys = self.samples[0].keys
        return float(keys.max()) if len(keys) >= limits().sample_rows else np.inf

    def merged(self, later: "SourceSummary") -> "SourceSummary":
        """Return the summary of these rows followed by later ones.

        Raises:
            DataError: If the rows differ in their targets, weights or noise.
        """
        layout_of(later.samples[0].rows, self.layout)
        samples = (*self.samples, *later.samples)
        if sum(len(sample.keys) for sample in samples) >= 2 * limits().sample_rows:
            samples = (Sample.joined(samples),)
        inputs, targets = self.inputs.merged(later.inputs), self.targets.merged(later.targets)
        digest = (self.digest + later.digest) % 2**64
        return SourceSummary(inputs, targets, self.layout, self.is_numpy, samples, digest)


def summarize_source(source: RowSource, dtype: torch.dtype | None, seed: int) -> SourceSummary:
    """Return the summary of a source after reading all rows once.

    Args:
        source: The rows. Those of a `DistributedSource` are read on the workers that hold them.
        dtype: The dtype that the user selected. If None, that of the data.
        seed: The seed of the sample.

    Raises:
        DataError: If there are no rows, or values are invalid.
    """
    read = partial(_summary_of_part, dtype, seed)
    summary = source.reduce(read, _merged) if isinstance(source, DistributedSource) else read(source, 0)
    if summary is None:
        raise DataError("The source must have rows, got none. Check its path or its filter.")
    for moments, name in ((summary.inputs, "a column of X"), (summary.targets, "y")):
        overflows = ~torch.isfinite(moments.deviation) | ~torch.isfinite(moments.mean)
        if bool(overflows.any()):
            largest = moments.ends.abs().amax(0)[overflows].reshape(-1)[0].item()
            raise DataError(f"The values of {name} must differ by less than 1e308, got up to {largest:g}. Rescale it.")
    return replace(summary, samples=(Sample.joined(summary.samples),))


def _merged(first: SourceSummary | None, later: SourceSummary | None) -> SourceSummary | None:
    return first.merged(later) if first and later else first or later


def _summary_of_part(dtype: torch.dtype | None, seed: int, source: RowSource, first: int) -> SourceSummary | None:
    """Return the summary of a part of a source, or None if it has no rows.

    Args:
        dtype: The dtype that the user selected, or None.
        seed: The seed of the keys. Row i has key i of the stream.
        source: The part.
        first: The number of preceding rows.
    """
    generator = random.numpy_generator(seed, random.Role.SAMPLE)
    cast(np.random.PCG64, generator.bit_generator).advance(first)  # one step for each key
    found = None
    for block in source.chunks():
        number = first + (found.targets.count if found else 0)
        chunk = block.checked(torch.as_tensor(block.X), dtype, number)
        keys = generator.random(len(chunk.X))
        chosen = np.flatnonzero(keys <= (found.largest_key if found else np.inf))
        sample = Sample(keys[chosen], chunk.take(torch.as_tensor(chosen)))
        inputs, targets = (Moments.of(x, chunk.sample_weight, number) for x in (chunk.X, chunk.y))
        numbers = np.arange(number, number + len(keys), dtype=np.uint64)
        columns = (x.detach().double().cpu().numpy() for x in chunk[:4] if x is not None)
        hashes = row_hashes((column for x in columns for column in x.reshape(len(keys), -1).T), numbers)
        is_numpy, digest = not isinstance(block.X, Tensor), int(hashes.sum())
        own = SourceSummary(inputs, targets, layout_of(chunk), is_numpy, (sample,), digest)
        found = own if found is None else found.merged(own)
    return found
