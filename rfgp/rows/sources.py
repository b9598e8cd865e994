"""Rows as users give them: arrays, tables and sources of blocks."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp import random
from rfgp.columns.cells import Column
from rfgp.columns.problems import problem_of_numbers
from rfgp.columns.table import OutputFormat as OutputFormat
from rfgp.errors import BooleanTargetWarning, DataError, warn
from rfgp.limits import limits
from rfgp.messages import counted, not_finite
from rfgp.number_texts import example_of, numbers_remedy
from rfgp.scaling import Moments

# --- Conversion of numpy arrays and tensors from users to checked tensors --------------------------------------------


def read_targets(y: Any, n: int, like: Tensor, dtype: torch.dtype | None, first: int = 0) -> Tensor:
    """Return a copy of targets (n,) or (n, k) in the dtype and on the device of `like`.

    Args:
        y: The targets of the user.
        n: The number of rows of X.
        like: A tensor with the dtype and device of X.
        dtype: The dtype that the user selected, to which targets are converted. If None, that of X.
        first: The number of the first row, for messages.

    Raises:
        DataError: If targets are not numeric, the shape or length is wrong, or values are not finite. If the user
            selected no dtype, also if floating targets have another one than X, or integers are not exact in it.

    Examples:
        >>> read_targets([0, 1], 2, torch.empty(0), None)
        tensor([0., 1.])
    """
    if y is None:
        raise DataError("y must have targets, got None. Pass y with X, or name the target column of the source.")
    t = _to_tensor(y, "y").detach()
    if t.ndim not in (1, 2) or (t.ndim == 2 and t.shape[1] == 0):
        raise DataError(f"y must have shape (n,), or (n, k) for k outputs, got {tuple(t.shape)}.")
    if len(t) != n:
        raise DataError(f"y must have {counted(n, 'row')} like X, got {len(t):,}. Pass one target per row.")
    if dtype is None and t.is_floating_point() and t.dtype != like.dtype:
        raise DataError(
            f"X and y must have one dtype, got {like.dtype} and {t.dtype}. Convert one, or choose dtype= for the model."
        )
    largest = 2 / torch.finfo(like.dtype).eps
    if dtype is None and not t.is_floating_point() and n and float(t.double().abs().max()) > largest:
        raise DataError(
            f"y must hold integers up to {int(largest)} that {like.dtype}, the dtype of X, represents exactly, got "
            f"{int(t.double().abs().max())}. Convert X to float64, or choose dtype= for the model."
        )
    t = t.to(like, copy=True)
    bad = (~torch.isfinite(t)).nonzero()
    if len(bad):
        index = bad[0].tolist()
        column = f", column {index[1]}" if len(index) > 1 else ""
        value = t[tuple(index)].item()
        raise DataError(f"y has {not_finite(len(bad))}, the first ({value}) in row {first + index[0]}{column}.")
    return t


def constant_message(low: Tensor, high: Tensor, n: int) -> str | None:  # () or (k,), () or (k,)
    """Return a message about the first target that is constant up to rounding errors, or None.

    Args:
        low: The smallest value of each target.
        high: The largest value of each target.
        n: The number of rows, for the message.
    """
    constant = (high - low) <= _ROUNDING[low.dtype] * torch.maximum(low.abs(), high.abs())
    if not bool(constant.any()):
        return None
    k = int(constant.reshape(-1).nonzero()[0])
    subject = "The target" if low.ndim == 0 else f"Output {k}"
    return f"{subject} is constant ({low.reshape(-1)[k].item():g} in all {counted(n, 'row')})"


_ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
"""The maximum relative range of a constant target by dtype."""


def read_per_row(
    values: Any,  # (n,)
    name: str,
    n: int,
    like: Tensor,
    *,
    positive: bool,
    first: int = 0,
) -> Tensor | None:
    """Return one number per row (n,) as float64, or None if there are no values.

    Args:
        values: The numbers of the user, or None.
        name: The name of the argument, for messages.
        n: The number of rows.
        like: A tensor with the device of the result.
        positive: Whether 0 is invalid.
        first: The number of the first row, for messages.

    Raises:
        DataError: If the shape is wrong, or values are not finite, negative, or zero if they must be positive. Squares
            of positive values must not overflow or underflow.
    """
    if values is None:
        return None
    t = _to_tensor(values, name)
    if t.shape != (n,):
        raise DataError(f"{name} must have one value for each of the {counted(n, 'row')}, got shape {tuple(t.shape)}.")
    t = t.to(like.device, torch.float64, copy=True)
    least = -1 if name == "censored" else 0  # a code of censoring
    bad = (~torch.isfinite(t) | ((t <= 0) if positive else (t < least))).nonzero()
    if len(bad):
        row = int(bad[0])
        kind = "positive" if positive else "not negative"
        raise DataError(f"{name} must be finite and {kind}, got {t[row].item():g} in row {first + row}.")
    extreme = ((t < _SMALLEST) | (t > 1 / _SMALLEST)).nonzero()
    if positive and len(extreme):
        row = int(extreme[0])
        raise DataError(
            f"{name} must lie between {_SMALLEST:.0e} and {1 / _SMALLEST:.0e}, so that squares are in range, got "
            f"{t[row].item():g} in row {first + row}. Leave out rows that do not count."
        )
    return t


_SMALLEST = 1e-150
"""The minimum positive number per row. Its inverse is the maximum."""


def _to_tensor(values: Any, name: str) -> Tensor:
    """Return real numbers as a tensor with an unchanged dtype, for the caller to copy."""
    if isinstance(values, Tensor):
        if values.is_complex():
            raise DataError(f"{name} must be real, got complex numbers. Use two columns, real and imaginary part.")
        if values.is_meta:
            raise DataError(f"{name} must have values, got a tensor on torch's meta device. Make it on another one.")
        return values
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(f"{name} must not be masked, got a masked array. Drop or fill its masked entries.")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        remedy = "Convert it to a numpy array of numbers."
        raise DataError(f"{name} must hold numbers, but {error}. {remedy}") from error
    if array.dtype.kind not in "fiub":
        array = _numbers(array, name)
    if array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    # torch supports neither foreign byte orders, nor negative strides, nor read-only arrays
    return torch.as_tensor(np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True))


def _numbers(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Return objects, texts or dates (...) as numbers, NaN if they are missing.

    Raises:
        DataError: If a cell is not a number.
    """
    if array.dtype == object and not any(isinstance(cell, np.datetime64 | np.timedelta64) for cell in array.flat):
        with suppress(TypeError, ValueError):  # numbers of any class, such as decimals, and texts of numbers
            return array.astype(np.float64)
    columns = list[NDArray[np.float64]]()
    for key, cells in enumerate(array.reshape(len(array) if array.ndim else 1, -1).T):
        try:
            column = Column.of(cells)
        except DataError as error:
            raise DataError(f"{name} must hold numbers, but it {error}") from error
        if (problem := problem_of_numbers(column, key if array.ndim > 1 else None)) is None:
            columns.append(column.numbers())
            continue
        remedy = "Encode text and dates as numbers, for example with rfgp.tables.read_table."
        remedy += " rfgp.sklearn.GPClassifier takes classes as text." * (name == "y")
        cell = column.values[problem.row]
        if isinstance(cell, str) and (example := example_of([cell])) is not None:
            remedy = numbers_remedy(name if problem.column is None else key, example)
        raise DataError(f"{name} must hold numbers, but {problem}. {remedy}")
    return np.stack(columns, axis=1).reshape(array.shape)


def warn_of_booleans(y: Any, name: str = "y") -> bool:
    """Return whether targets are boolean, and warn if they are.

    Args:
        y: Targets (n,) or (n, k).
        name: The name of the argument, for the message.

    Warns:
        BooleanTargetWarning: If the targets are boolean.
    """
    kind = str(getattr(y, "dtype", "object"))
    objects: Any = y if isinstance(y, list) else ()
    if kind == "object" and hasattr(y, "__array__"):
        objects = np.asarray(y).reshape(-1)
    is_boolean = kind.removeprefix("torch.") in ("bool", "boolean")
    is_boolean |= len(objects) > 0 and all(isinstance(cell, bool | np.bool_) for cell in objects)
    if is_boolean:
        message = (
            f"{name} holds booleans, which are fitted as numbers 0 and 1. A classifier, such as "
            'likelihood="bernoulli", has probabilities. Pass numbers to avoid this warning.'
        )
        warn(BooleanTargetWarning(message))
    return is_boolean


def check_labels(X: Any, **columns: Any) -> None:
    """Check that pandas columns with the row labels of a pandas table have them in the same order.

    Rows are matched by position, so that a sorted series would be fitted to other rows of the table.

    Args:
        X: The table.
        **columns: Columns (n,) by the names of arguments. Columns and tables without labels are not checked.

    Raises:
        DataError: If a column has the labels of the table in another order.
    """
    labels: Any = getattr(X, "index", None)
    for name, column in columns.items():
        own: Any = getattr(column, "index", None)
        if not (hasattr(labels, "is_unique") and hasattr(own, "is_unique")) or own.equals(labels):
            continue
        if len(own) == len(labels) and own.is_unique and own.isin(labels).all():
            raise DataError(
                f"{name} must have its row labels in the order of X, got another order. Pass {name}.loc[X.index], "
                f"or {name}.to_numpy() if its rows are those of X in order."
            )


# --- Hashes of rows -------------------------------------------------------------------------------------------------

_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""The multiplier of the hash, 2^64 over the golden ratio (Fibonacci hashing). As it is odd, steps are invertible."""


def row_hashes(
    columns: Iterable[NDArray[Any]],  # each (n,)
    seeds: NDArray[np.uint64] | None = None,  # (n,)
) -> NDArray[np.uint64]:  # (n,)
    """Return a hash of each row. Different rows collide with probability 2^-64.

    Args:
        columns: At least one column of numbers. A negative zero equals zero.
        seeds: Numbers of which the hashes depend, too. If None, zeros.

    Examples:
        >>> hashes = row_hashes([np.array([1.0, 2.0, 1.0])])
        >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
        (True, False)
    """
    hashes = np.uint64(0) if seeds is None else seeds
    for column in columns:
        bits = (column.astype(np.float64) + 0.0).view(np.uint64)  # no negative zero
        hashes = (hashes ^ bits) * _HASH_MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return np.asarray(hashes)


def numbered_rows(columns: Iterable[NDArray[Any]]) -> NDArray[np.int64]:  # each (n,) -> (n,)
    """Return a number for each row, from 0, shared by equal rows.

    Args:
        columns: At least one column of numbers.

    Examples:
        >>> int(numbered_rows([np.array([1.0, 2.0, 1.0])]).max())
        1
    """
    return np.unique(row_hashes(columns), return_inverse=True)[1].reshape(-1)  # numpy 2.0 returns another shape


# --- Rows in memory or in chunks that are read repeatedly, and checked block by block --------------------------------


class Chunk(NamedTuple):
    """A batch of b rows in the user's units, before or after validation.

    Attributes:
        X: An array (b, d), a dataframe, a dict of columns, or labels (b,). Validated, a tensor (b, d).
        y: Targets (b,) or (b, k), or None.
        noise: Known variances (b,), added to the learned noise, or other numbers that the likelihood takes (see
            `Block.fixed_noise`). If None, zeros. Before validation also the key of a column, like the weights.
        sample_weight: Positive frequency weights (b,). If None, ones.
        names: The names of the d columns. If None, those of X if it is a dataframe.
    """

    X: Any
    y: Any = None
    noise: Any = None
    sample_weight: Any = None
    names: tuple[str, ...] | None = None

    def checked(self, X: Tensor, dtype: torch.dtype | None, first: int = 0, numbers: str = "noise") -> "Chunk":
        """Return the rows as tensors, with copies of all columns but the inputs.

        Args:
            X: The checked inputs (b, d).
            dtype: The dtype that the user selected. If None, that of the data.
            first: The number of preceding rows, for messages.
            numbers: The name of the numbers in the field of the noise.

        Raises:
            DataError: If targets, noise or weights cannot be used. The message names the row.
        """
        y = read_targets(self.y, len(X), X, dtype, first)
        noise = read_per_row(self.noise, numbers, len(X), X, positive=False, first=first)
        weight = read_per_row(self.sample_weight, "sample_weight", len(X), X, positive=True, first=first)
        return Chunk(X, y, noise, weight)

    def take(self, rows: slice | Tensor) -> "Chunk":  # (r,)
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
