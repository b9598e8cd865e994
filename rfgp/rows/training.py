"""Training data: from user input to rows in standardized units."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rfgp.errors import DataError
from rfgp.limits import limits
from rfgp.messages import counted
from rfgp.rows.blocks import (
    Block,
    DistributedRows,
    Rows,
    SourceRows,
    parts_of,
    standardized,
    standardized_noise,
)
from rfgp.rows.sources import Chunk, DistributedSource, OutputFormat, RowSource, SourceSummary, summarize_source
from rfgp.scaling import MAX_RATIO, Affine, Moments, Scaling
from rfgp.torch_context import CachedWithoutLock


class InputReader(Protocol):
    """The interface of the reader of inputs: the columns of a table as one matrix."""

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the rows. If None, that of the data."""

    @property
    def row_argument(self) -> str:
        """The name of the numbers in the field of the noise."""

    def read(self, inputs: Any) -> tuple[Tensor, OutputFormat]:
        """Return checked inputs (n, d) in the user's units."""


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
        """The inputs (n, d)."""
        return self.standardized_block.inputs

    @property
    def targets(self) -> Tensor:
        """The targets (n, k), float64."""
        return self.standardized_block.targets

    @CachedWithoutLock
    def ends(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest inputs, (d,) each."""
        low, high = torch.aminmax(self.chunk.X.detach().to(self.scaling.inputs.scale), dim=0)
        return self.scaling.inputs.forward(low), self.scaling.inputs.forward(high)

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""
        return self.chunk.y.shape[1] if self.chunk.y.ndim > 1 else 1

    def __len__(self) -> int:
        return len(self.chunk.y)

    def take(self, rows: slice | Tensor) -> Block:  # (b,)
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
class TrainingData:
    """Checked training data in the user's units.

    Attributes:
        chunk: The rows as tensors, with targets (n,) or (n, k). If they are read in blocks, a random sample.
        as_numpy: Whether the user passed arrays.
        source: The rows that are read in blocks. If None, all rows are in memory.
        first_pass: The summary of the source, if there is one.
    """

    chunk: Chunk
    as_numpy: bool
    source: RowSource | None = None
    first_pass: SourceSummary | None = None

    @CachedWithoutLock
    def moments(self) -> tuple[Moments, Moments]:
        """The moments of the targets and of the inputs."""
        if self.first_pass is not None:
            return self.first_pass.targets, self.first_pass.inputs
        targets, inputs = (Moments.of(x, self.chunk.sample_weight) for x in (self.chunk.y, self.chunk.X))
        return targets, inputs

    @property
    def target_range(self) -> tuple[Tensor, Tensor, int]:
        """The smallest and the largest target, () or (k,) each, and the number of rows."""
        low, high = self.moments[0].ends.to(self.chunk.y)
        return low, high, self.moments[0].count

    def summary(self, standardize: bool) -> DataSummary:
        """Return the summary of the data.

        Args:
            standardize: Whether inputs and targets are mapped to mean 0 and standard deviation 1.

        Raises:
            DataError: If the standard deviation of targets is out of range.
        """
        X, y, weight = self.chunk.X, self.chunk.y, self.chunk.sample_weight
        of_targets, of_inputs = (moments.standardizing(X) for moments in self.moments)
        # several outputs share a noise variance, which outliers in one would dominate
        targets = of_targets.robust(y, weight) if of_targets.scale.numel() == 1 else of_targets
        inputs = of_inputs.robust(X, weight)
        outliers = (*self._outliers(of_targets, targets, is_target=True), *self._outliers(of_inputs, inputs))
        maps = (targets, inputs) if standardize else (Affine.identity(y), Affine.identity(X))
        _check_units(maps[0])
        sizes = targets.location, of_targets.scale, targets.scale
        return DataSummary(Scaling(*maps), *sizes, y, weight, outliers)

    def _outliers(self, whole: Affine, robust: Affine, *, is_target: bool = False) -> Iterator[Outliers]:
        """Yield the outliers of columns whose robust scale differs from their standard deviation.

        Args:
            whole: The map by means and standard deviations, (d,) or ().
            robust: The map by robust scales.
            is_target: Whether the columns are targets. The default is False.
        """
        ends, values = self.moments[0 if is_target else 1], self.chunk.y if is_target else self.chunk.X
        rows = torch.arange(len(values)).reshape(-1, *(1 for _ in values.shape[1:])).expand(values.shape)
        x, rows = (values, rows) if self.first_pass is None else (ends.ends, ends.end_rows)
        x, rows = (part.detach().cpu().reshape(len(part), -1) for part in (x, rows))
        for index in (whole.scale != robust.scale).reshape(-1).nonzero()[:, 0].tolist():
            location, scale, deviation = (
                v.reshape(-1)[index].cpu() for v in (robust.location, robust.scale, whole.scale)
            )
            is_far = ((x[:, index].to(scale) - location) / scale).abs() > MAX_RATIO
            extreme = max(x[is_far, index].tolist(), key=abs)
            numbers = tuple(dict.fromkeys(rows[is_far, index].tolist()))
            yield Outliers(None if is_target else index, float(deviation), float(scale), numbers, extreme)

    def rows(self, scaling: Scaling) -> ArrayRows | SourceRows:
        """Return the rows, which are standardized during reading if they come from a source.

        Args:
            scaling: The maps to standardized units.

        Raises:
            DataError: If the number of outputs differs from that of the scaling, or a value is out of range.
        """
        shapes = scaling.targets.scale.shape, self.chunk.y.shape[1:]
        if shapes[0] != shapes[1]:
            expected, got = (f"shape (n, {shape[0]})" if shape else "shape (n,)" for shape in shapes)
            remedy = "Pass the same targets in the same order."
            raise DataError(f"y must have {expected} like the training data, got {got}. {remedy}")
        if self.source is None or self.first_pass is None:
            rows = ArrayRows(self.chunk, self.as_numpy, scaling)
            if len(rows) <= limits().max_copied or not bool(torch.isfinite(torch.stack(rows.ends)).all()):
                len(rows.standardized_block)  # raises an error for values out of range
            return rows
        found, sample = self.first_pass, standardized(self.chunk, scaling)
        low, high = scaling.standardize(found.inputs.ends.to(self.chunk.X))
        make = DistributedRows if isinstance(self.source, DistributedSource) else SourceRows
        sizes, digest = (found.targets.count, found.targets.total), f"{found.layout} {found.digest:016x}"
        return make(self.source, scaling, found.layout, *sizes, self.as_numpy, sample, digest, (low, high))


def read_training(reader: InputReader, data: Chunk, seed: int, min_rows: int = 2) -> TrainingData:
    """Check training data of at least `min_rows` rows, and summarize a source.

    Args:
        reader: The reader of inputs.
        data: The rows: a table in memory, or a source of matrices.
        seed: The seed of the sample of a source.
        min_rows: The smallest number of rows. The default is 2.

    Raises:
        DataError: If the data cannot be used. The message names the position.
    """
    if isinstance(data.X, RowSource):
        found = summarize_source(data.X, reader.dtype, seed)
        given, n = TrainingData(found.sample, found.is_numpy, data.X, found), found.targets.count
    else:
        X, output_format = reader.read(data.X)
        X = X if output_format.is_numpy else X.detach().clone()
        checked = data.checked(X, reader.dtype, numbers=reader.row_argument)
        given, n = TrainingData(checked, output_format.is_numpy), len(X)
    if n < min_rows:
        raise DataError(f"There must be at least {'two observations' if min_rows > 1 else 'one observation'}, got {n}.")
    return given


def in_memory(rows: Rows, purpose: str) -> TrainingData:
    """Return all checked rows in the user's units.

    Raises:
        DataError: If some rows are read in blocks.
    """
    parts = parts_of(rows)
    arrays = [part for part in parts if isinstance(part, ArrayRows)]
    if len(arrays) < len(parts):
        raise DataError(
            f"Rows must be in memory for {purpose}, got rows that are read in blocks. Pass a dataframe or arrays."
        )
    return TrainingData(Chunk.joined([part.chunk for part in arrays]), arrays[0].as_numpy)


def is_numpy_input(rows: Rows) -> bool:
    """Return whether the user passed the (first) rows as arrays."""
    first = parts_of(rows)[0]
    return not isinstance(first, ArrayRows | SourceRows) or first.as_numpy


def _check_units(targets: Affine) -> None:
    """Check that the variance of targets does not overflow or underflow in their dtype.

    Raises:
        DataError: If it does.
    """
    scale = targets.scale.reshape(-1)
    is_extreme = ~torch.isfinite(scale**2) | (scale**2 <= torch.finfo(scale.dtype).tiny)
    if bool(is_extreme.any()):
        extreme, ends = scale[is_extreme][0].item(), torch.finfo(scale.dtype)
        raise DataError(
            f"The standard deviation of y must lie between {ends.tiny**0.5:.0e} and {ends.max**0.5:.0e}, so that "
            f"variances of predictions fit into {scale.dtype}, got {extreme:.3g}. Divide y by {extreme:.0e}."
        )
