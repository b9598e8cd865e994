"""Training data: from user input to rows in standardized units."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import DataError
from rfgp.limits import limits
from rfgp.rows.arrays import OutputFormat, read_per_row, read_targets
from rfgp.rows.blocks import Block, Rows, parts_of
from rfgp.rows.sources import (
    Chunk,
    DistributedSource,
    RemoteRows,
    RowSource,
    SourceRows,
    SourceSummary,
    as_source,
    checked,
    rows_in_memory,
    standardized,
    standardized_noise,
    summarize_source,
)
from rfgp.scaling import MAX_RATIO, Affine, Scaling
from rfgp.torch_context import CachedWithoutLock


class InputReader(Protocol):
    """The interface of readers of inputs: tables, or nodes of a graph."""

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the rows. If None, that of the data."""

    @property
    def standardize(self) -> bool:
        """Whether inputs and targets are mapped to mean 0 and standard deviation 1."""

    @property
    def reads_blocks(self) -> bool:
        """Whether rows may be read in blocks."""

    def read(self, inputs: Any) -> tuple[Tensor, OutputFormat]:
        """Return checked inputs (n, d), or positions (n,), in the user's units."""

    def complete(self, chunk: Chunk) -> Chunk:
        """Return the rows without those whose target is missing.

        For tables, missing targets are errors.
        """


@runtime_checkable
class SourceReader(InputReader, Protocol):
    """The interface of readers of sources with columns of any kind."""

    def coded(self, source: RowSource) -> RowSource:
        """Return a source whose blocks are matrices of numbers."""


class ArrayRows(Block):
    """Rows in memory in the user's units, standardized on demand.

    Attributes:
        chunk: The checked rows in the user's units, with targets (n,) or (n, k).
        as_numpy: Whether the user passed arrays and not tensors.
        scaling: The maps to standardized units.
    """

    chunk: Chunk
    as_numpy: bool
    scaling: Scaling

    def __init__(self, chunk: Chunk, as_numpy: bool, scaling: Scaling) -> None:
        vars(self).update(
            chunk=chunk, as_numpy=as_numpy, scaling=scaling, weight=chunk.sample_weight, given_output_weights=None
        )
        vars(self)["fixed_noise"] = standardized_noise(chunk, scaling)

    @CachedWithoutLock
    def standardized_block(self) -> Block:
        """All rows in standardized units."""
        return standardized(self.chunk, self.scaling)

    @property
    def inputs(self) -> Tensor:
        """The inputs (n, d), or positions (n,)."""
        return self.standardized_block.inputs

    @property
    def targets(self) -> Tensor:
        """The targets (n, k), float64."""
        return self.standardized_block.targets

    @CachedWithoutLock
    def ends(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest inputs, (d,) each."""
        low, high = self.scaling.standardize(torch.stack(torch.aminmax(self.chunk.X.detach(), dim=0))).unbind()
        return low, high

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""
        return self.chunk.y.shape[1] if self.chunk.y.ndim > 1 else 1

    def __len__(self) -> int:
        return len(self.chunk.y)

    def take(
        self,
        rows: slice | Tensor,  # (b,)
    ) -> Block:
        """Return some rows.

        Args:
            rows: A slice, indices (b,) or a mask.
        """
        if len(self) <= limits().max_copied or "standardized_block" in vars(self):
            return self.standardized_block.take(rows)
        return standardized(self.chunk.take(rows), self.scaling)

    def __repr__(self) -> str:
        return f"ArrayRows({counted(len(self), 'row')})"


class Outliers(NamedTuple):
    """Rows whose values make the standard deviation of a column exceed ten robust scales.

    Attributes:
        column: The index of the column of the inputs. None for the targets.
        deviation: The standard deviation, in the user's units.
        scale: The robust scale (see `rfgp.scaling.Affine.robust`).
        rows: The numbers of the rows that are more than ten robust scales from the median. For rows that are read in
            blocks, only those with the smallest and the largest value.
        extreme: The value of these rows that is farthest from 0.
    """

    column: int | None
    deviation: float
    scale: float
    rows: tuple[int, ...]
    extreme: float


@dataclass(frozen=True, eq=False)
class DataSummary:
    """The statistics of the data that initialize a model.

    Attributes:
        scaling: The map to standardized units.
        center: The mean of the targets, () or (k,), or the median if they have outliers.
        deviation: The standard deviation of the targets, () or (k,).
        narrow: The robust scale of the targets if they have outliers, otherwise their standard deviation, () or (k,).
        targets: All targets, or a sample, (n,) or (n, k).
        weight: The weights of these targets, (n,). If None, ones.
        outliers: The outliers of columns and of one output.
    """

    scaling: Scaling
    center: Tensor
    deviation: Tensor
    narrow: Tensor
    targets: Tensor
    weight: Tensor | None = None
    outliers: tuple[Outliers, ...] = ()


@dataclass(frozen=True, eq=False)
class TrainingArrays:
    """Checked training data in memory, in the user's units.

    Attributes:
        chunk: The rows as tensors, with targets (n,) or (n, k).
        as_numpy: Whether the user passed arrays.
    """

    chunk: Chunk
    as_numpy: bool

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, or None."""
        return self.chunk.names

    @classmethod
    def read(
        cls, reader: InputReader, chunk: Chunk, min_rows: int, columns: tuple[str, ...] | None = None
    ) -> "TrainingArrays":
        """Check data of at least `min_rows` rows, and copy them.

        Named columns are read in the order of `columns` if it is not None.

        Raises:
            DataError: If the data cannot be used. The message names the position.
        """
        if chunk.y is None:
            raise DataError(
                "y must have targets, got None. Pass y with X, or a source of rows such as rfgp.tables.Parquet."
            )
        complete = reader.complete(chunk.without_index_column() if columns is None else chunk.named(columns))
        inputs, output_format = reader.read(complete.X)
        targets = read_targets(complete.y, len(inputs), output_format.like, reader.dtype, min_rows)
        noise = read_per_row(complete.noise, "noise", len(targets), targets, positive=False)
        weight = read_per_row(complete.sample_weight, "sample_weight", len(targets), targets, positive=True)
        inputs = inputs if output_format.is_numpy and inputs.ndim == 2 else inputs.detach().clone()
        names = complete.names if inputs.ndim == 2 else None
        return cls(Chunk(inputs, targets.detach().clone(), noise, weight, names), output_format.is_numpy)

    @property
    def target_range(self) -> tuple[Tensor, Tensor, int]:
        """The smallest and the largest target, () or (k,) each, and the number of rows."""
        return *torch.aminmax(self.chunk.y, dim=0), len(self.chunk.y)

    def summary(self, standardize: bool) -> DataSummary:
        """Return the summary of the data. Nodes have no map of inputs."""
        inputs, targets, weight = self.chunk.X, self.chunk.y, self.chunk.sample_weight
        y = targets[:, None] if targets.ndim == 1 else targets
        of_targets, of_inputs = Affine.standardizing(targets, weight), None
        units = _robust_targets(of_targets, targets, weight)
        outliers = [*_outliers(of_targets, units, y, None)]
        if inputs.ndim == 2:
            whole = Affine.standardizing(inputs, weight)
            of_inputs = whole.robust(inputs, weight)
            outliers += _outliers(whole, of_inputs, inputs)
            of_inputs = of_inputs if standardize else Affine.identity(inputs)
        maps = _checked_units(units if standardize else Affine.identity(targets)), of_inputs
        scaling, deviation = Scaling(*maps, self.names), of_targets.scale
        return DataSummary(scaling, units.location, deviation, units.scale, targets, weight, tuple(outliers))

    def rows(self, scaling: Scaling) -> ArrayRows:
        """Return the rows.

        Raises:
            DataError: If the number of columns or outputs differs from that of the scaling.
        """
        _check_outputs(self.chunk.y, scaling)
        scaling.check_columns(self.chunk.X)
        rows = ArrayRows(self.chunk, self.as_numpy, scaling)
        if len(rows) <= limits().max_copied or not _is_in_range(rows):
            len(rows.standardized_block)  # raises an error for values out of range
        return rows


@dataclass(frozen=True, eq=False)
class TrainingSource:
    """Training data that are read in blocks, after a first pass.

    Attributes:
        source: The source.
        dtype: The dtype of the inputs. If None, that of the source.
        source_summary: The results of the first pass.
    """

    source: RowSource
    dtype: torch.dtype | None
    source_summary: SourceSummary

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, or None."""
        return self.source_summary.names

    @property
    def target_range(self) -> tuple[Tensor, Tensor, int]:
        """The smallest and the largest target, () or (k,) each, and the number of rows."""
        stats = self.source_summary
        low, high = stats.targets.ends.to(stats.sample.X)
        return (low[0], high[0], stats.num_rows) if stats.is_vector else (low, high, stats.num_rows)

    def summary(self, standardize: bool) -> DataSummary:
        """Return the summary of the data."""
        stats, sample = self.source_summary, self.source_summary.sample
        like, weight = sample.X.new_empty(0), sample.sample_weight
        of_targets, of_inputs = (moments.standardizing(like) for moments in (stats.targets, stats.inputs))
        units, inputs = _robust_targets(of_targets, sample.y, weight), of_inputs.robust(sample.X, weight)
        outliers = [*_outliers(of_targets, units, stats.targets.ends, None, stats.targets.end_rows)]
        outliers += _outliers(of_inputs, inputs, stats.inputs.ends, 0, stats.inputs.end_rows)
        all_sizes = units.location, of_targets.scale, units.scale
        center, deviation, narrow = (v[0] if stats.is_vector else v for v in all_sizes)
        if not standardize:
            units, inputs = (Affine.identity(m.location[None]) for m in (units, inputs))
        targets = Affine(units.location[0], units.scale[0]) if stats.is_vector else units
        scaling = Scaling(_checked_units(targets), inputs, stats.names)
        return DataSummary(scaling, center, deviation, narrow, sample.y, weight, tuple(outliers))

    def rows(self, scaling: Scaling) -> SourceRows:
        """Return the rows, which are standardized during reading.

        Raises:
            DataError: If the number of columns or outputs differs from that of the scaling.
        """
        stats, make = self.source_summary, RemoteRows if isinstance(self.source, DistributedSource) else SourceRows
        kind = _row_format(stats.sample, stats.is_vector, scaling)
        sizes = (stats.num_rows, stats.observations, stats.is_numpy)
        sample, like = standardized(stats.sample, scaling), stats.sample.X
        low, high = (scaling.standardize(end.to(like)[None])[0] for end in (stats.inputs.low, stats.inputs.high))
        return make(self.source, scaling, self.dtype, *kind, *sizes, sample, stats.digest, (low, high))


def read_training(
    reader: InputReader, chunk: Chunk, seed: int, min_rows: int = 2, columns: tuple[str, ...] | None = None
) -> TrainingArrays | TrainingSource:
    """Check training data of at least `min_rows` rows, and summarize a source.

    Named columns are read in the order of `columns` if it is not None.

    Raises:
        DataError: If the data cannot be used. The message names the position.
    """
    source = _source_of(reader, chunk)
    if source is None:
        return TrainingArrays.read(reader, chunk, min_rows, columns)
    return TrainingSource(source, reader.dtype, summarize_source(source, reader.dtype, seed, columns=columns))


def read_additional_rows(reader: InputReader, chunk: Chunk, seed: int, scaling: Scaling) -> ArrayRows | SourceRows:
    """Return additional rows. A source is checked later.

    A distributed source is read once, because its rows cannot be counted during later passes.

    Raises:
        DataError: If the data cannot be used. The message names the position.
    """
    source = _source_of(reader, chunk)
    if source is None:
        return TrainingArrays.read(reader, chunk, 1, scaling.columns).rows(scaling)
    if isinstance(source, DistributedSource):
        stats = summarize_source(source, reader.dtype, seed, is_all=False, columns=scaling.columns)
        return TrainingSource(source, reader.dtype, stats).rows(scaling)
    return _rows_without_first_pass(source, reader.dtype, scaling)


def _rows_without_first_pass(source: RowSource, dtype: torch.dtype | None, scaling: Scaling) -> SourceRows:
    """Return the rows of a source after reading its first chunk.

    Raises:
        DataError: If there are no rows, or their number of columns or outputs differs from that of the scaling.
    """
    first = next((chunk for chunk in source.chunks() if np.ndim(chunk.X) < 1 or len(chunk.X)), None)
    if first is None:
        raise DataError("The source must have rows, got none. Check its path or its filter.")
    (chunk,) = checked([first], dtype, True, scaling.columns)
    return SourceRows(source, scaling, dtype, *_row_format(chunk, np.ndim(first.y) == 1, scaling))


def inputs_source(reader: InputReader, X: Any) -> RowSource | None:
    """Return a source of inputs that are read in blocks, or None."""
    source = as_source(X) if reader.reads_blocks else None
    return reader.coded(source) if source is not None and isinstance(reader, SourceReader) else source


def in_memory(rows: Rows, purpose: str) -> tuple[Chunk, bool]:
    """Return all checked rows in the user's units, and whether the user passed arrays.

    Raises:
        DataError: If some rows are read in blocks.
    """
    parts = parts_of(rows)
    arrays = [part for part in parts if isinstance(part, ArrayRows)]
    if len(arrays) < len(parts):
        raise DataError(
            f"Rows must be in memory for {purpose}, got rows that are read in blocks. Pass a dataframe or arrays."
        )
    return Chunk.joined([part.chunk for part in arrays]), arrays[0].as_numpy


def is_numpy_input(rows: Rows) -> bool:
    """Return whether the user passed the (first) rows as arrays."""
    first = parts_of(rows)[0]
    return not isinstance(first, ArrayRows | SourceRows) or first.as_numpy


def _source_of(reader: InputReader, chunk: Chunk) -> RowSource | None:
    source = as_source(*chunk[:4])
    if source is not None and not reader.reads_blocks:
        raise DataError("Nodes of a graph must be labels, got rows that are read in blocks. Pass all labels.")
    return source


def _row_format(first: Chunk, is_vector: bool, scaling: Scaling) -> tuple[int, bool, bool]:
    """Return the number of outputs, whether rows are homoscedastic, and whether they have noise."""
    scaling.check_columns(first.X)
    _check_outputs(first.y[:, 0] if is_vector else first.y, scaling)
    if first.noise is not None:
        scaling.targets.common_scale()
    return first.y.shape[1], first.noise is None and first.sample_weight is None, first.noise is not None


def _is_in_range(rows: ArrayRows) -> bool:
    """Return whether the standardized inputs are finite."""
    try:
        return bool(torch.isfinite(torch.stack(rows.ends)).all())
    except DataError:
        return False


def _robust_targets(
    units: Affine,
    y: Tensor,  # (n,) or (n, k)
    weight: Tensor | None,  # (n,)
) -> Affine:
    """Return robust units of one output. Several share a noise variance, which outliers in one would dominate."""
    return units.robust(y, weight) if units.scale.numel() == 1 else units


def _outliers(
    whole: Affine,
    robust: Affine,
    x: Tensor,  # (n, d)
    first: int | None = 0,
    rows: Tensor | None = None,  # (n, d)
) -> Iterator[Outliers]:
    """Yield the outliers of columns whose robust scale differs from their standard deviation.

    Args:
        whole: The map by means and standard deviations, (d,) or ().
        robust: The map by robust scales.
        x: Values that contain the outliers.
        first: The index of the first column. None for targets.
        rows: The numbers of the rows of the values. If None, they are in order.
    """
    changed = (whole.scale != robust.scale).reshape(-1)
    for index in changed.nonzero()[:, 0].tolist():
        location, scale = robust.location.reshape(-1)[index], robust.scale.reshape(-1)[index]
        is_far = ((x[:, index].detach().to(scale) - location) / scale).abs() > MAX_RATIO
        numbers = is_far.nonzero()[:, 0] if rows is None else rows[is_far.cpu(), index]
        extreme = max(x[is_far, index].tolist(), key=abs)
        sizes = float(whole.scale.reshape(-1)[index]), float(scale)
        yield Outliers(None if first is None else index, *sizes, tuple(dict.fromkeys(numbers.tolist())), extreme)


def _checked_units(targets: Affine) -> Affine:
    """Check that the variance of targets does not overflow or underflow in their dtype."""
    scale = targets.scale.reshape(-1)
    is_extreme = ~torch.isfinite(scale**2) | (scale**2 <= torch.finfo(scale.dtype).tiny)
    if bool(is_extreme.any()):
        extreme, limits = scale[is_extreme][0].item(), torch.finfo(scale.dtype)
        ends = f"{limits.tiny**0.5:.0e} and {limits.max**0.5:.0e}"
        raise DataError(
            f"The standard deviation of y must lie between {ends}, so that variances of predictions fit into "
            f"{scale.dtype}, got {extreme:.3g}. Divide y by {extreme:.0e}."
        )
    return targets


def _check_outputs(targets: Tensor, scaling: Scaling) -> None:
    shapes = scaling.targets.scale.shape, targets.shape[1:]
    if shapes[0] != shapes[1]:
        known, got = (f"shape (n, {shape[0]})" if shape else "shape (n,)" for shape in shapes)
        remedy = "Pass the same targets in the same order."
        raise DataError(f"y must have {known} like the training data, got {got}. {remedy}")


def typical_noise(rows: Rows) -> float:
    """Return the harmonic mean of known noise variances, or 0 if the noise of some rows is not known."""
    noises = [rows_in_memory(part).fixed_noise for part in parts_of(rows)]
    known = [noise for noise in noises if noise is not None]
    return 1 / float((1 / torch.cat(known)).mean()) if len(known) == len(noises) else 0.0


def ends_of(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest inputs of rows (n, d), (d,) each."""
    ends = []
    for part in parts_of(rows):
        if isinstance(part, SourceRows | ArrayRows) and part.ends is not None:
            ends.append(part.ends)
        else:
            low, high = torch.aminmax(rows_in_memory(part).inputs.detach(), dim=0)
            ends.append((low, high))
    lows, highs = zip(*ends, strict=True)
    return torch.stack(lows).amin(0), torch.stack(highs).amax(0)
