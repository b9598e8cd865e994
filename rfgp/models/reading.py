"""Training data at the door: from what a caller gives to a part of a model's data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import DataError
from rfgp.models.data import copy_inputs, read_per_row, read_targets
from rfgp.models.inputs import Inputs, Rows
from rfgp.models.sources import (
    CountedRows,
    DistributedSource,
    Read,
    RemoteRows,
    RowSource,
    SourceRows,
    as_source,
    read_chunks,
    standardized,
)
from rfgp.models.state import ArrayPart, SourcePart, starting_values
from rfgp.models.survey import Survey, survey
from rfgp.parameters import Hyperparameters, Prior
from rfgp.scaling import Affine, Scaling


@dataclass(frozen=True, eq=False)
class Arrays:
    """Checked training data in memory, in the user's units."""

    raw: Any
    inputs: Tensor  # (n, d), or positions (n,)
    targets: Tensor  # (n,) or (n, k)
    known: Tensor | None  # (n,)
    weight: Tensor | None  # (n,)

    @classmethod
    def read(cls, reader: Inputs, X: Any, y: Any, noise: Any, weight: Any, least: int) -> "Arrays":
        """Check data: inputs (n, d), or n labels, targets (n,) or (n, k), and what the rows bring, (n,) each.

        Raises:
            DataError: they cannot be used; the message names the place.
        """
        if y is None:
            raise DataError("y is missing: pass targets beside X, or one source of rows such as rfgp.tables.Parquet.")
        X, y, noise, weight = reader.complete(Rows(X, y, noise, weight))
        inputs, source = reader.read(X)
        targets = read_targets(y, len(inputs), source.template, reader.dtype, least)
        known = read_per_row(noise, "noise", len(targets), targets, positive=False)
        weights = read_per_row(weight, "sample_weight", len(targets), targets, positive=True)
        return cls(copy_inputs(X), inputs, targets.clone(), known, weights)

    def part(self, scaling: Scaling) -> ArrayPart:
        """Return the data in standardised units too.

        Raises:
            DataError: another number of columns or outputs than the scaling is for.
        """
        _check_outputs(self.targets, scaling)
        scaling.check_columns(self.inputs)
        read = Read(self.inputs, self.targets.reshape(len(self.targets), -1), self.known, self.weight)
        return ArrayPart(self.raw, self.targets, standardized(read, scaling), self.known)


@dataclass(frozen=True, eq=False)
class Unread:
    """Rows to be added that are read in blocks, and have not been read yet."""

    source: RowSource
    dtype: torch.dtype | None

    def counted(self, scaling: Scaling) -> CountedRows:
        """Return the rows, standardised and counted as they are read.

        Raises:
            DataError: there are none, or they have another number of columns or outputs than the scaling is for.
        """
        first = next((chunk for chunk in self.source.chunks() if np.ndim(chunk.X) < 1 or len(chunk.X)), None)
        if first is None:
            raise DataError("The source has no rows.")
        (some,) = read_chunks([first], self.dtype, True, scaling.columns)
        return CountedRows(self.source, scaling, self.dtype, *_kind_of_rows(some, np.ndim(first.y) == 1, scaling))


@dataclass(frozen=True, eq=False)
class Streamed:
    """Training data that are read in blocks, after a first pass."""

    source: RowSource
    dtype: torch.dtype | None
    found: Survey

    def part(self, scaling: Scaling) -> SourcePart:
        """Return the rows, standardised as they are read.

        Raises:
            DataError: another number of columns or outputs than the scaling is for.
        """
        sample, found = self.found.sample, self.found
        kind = _kind_of_rows(sample, found.is_vector, scaling)
        rows_of = RemoteRows if isinstance(self.source, DistributedSource) else SourceRows
        rows = rows_of(self.source, scaling, self.dtype, found.num_rows, *kind)
        return SourcePart(rows, standardized(sample, scaling), found.observations, found.is_numpy, found.digest)

    def scaling(self, standardize: bool) -> Scaling:
        """Return the maps of inputs and targets to standardised units."""
        like, found = self.found.sample.inputs.new_empty(0), self.found
        maps = [moments.standardizing(like) for moments in (found.targets, found.inputs)]
        if not standardize:
            maps = [Affine.identity(m.location[None]) for m in maps]
        targets = Affine(maps[0].location[0], maps[0].scale[0]) if found.is_vector else maps[0]
        return Scaling(targets, maps[1], found.names)


def read_new_rows(
    reader: Inputs,
    X: Any,
    y: Any,
    noise: Any,  # (n,)
    weight: Any,  # (n,)
    seed: int,
) -> Arrays | Unread | Streamed:
    """Check rows to be added; those that are read in blocks are only looked at, to be checked as they are read.

    Those that lie elsewhere are surveyed, since nothing can be counted here while they are read there.

    Raises:
        DataError: they cannot be used; the message names the place.
    """
    source = _table_source(reader, X, y, noise, weight)
    if isinstance(source, DistributedSource):
        return Streamed(source, reader.dtype, survey(source, reader.dtype, seed, is_all=False))
    return Arrays.read(reader, X, y, noise, weight, 1) if source is None else Unread(source, reader.dtype)


def read_training(
    reader: Inputs,
    X: Any,
    y: Any,
    noise: Any,  # (n,)
    weight: Any,  # (n,)
    seed: int,
    least: int = 2,
) -> Arrays | Streamed:
    """Check training data, at least so many rows; those read in blocks once as a whole, with a sample under the seed.

    Raises:
        DataError: they cannot be used; the message names the place.
    """
    source = _table_source(reader, X, y, noise, weight)
    if source is None:
        return Arrays.read(reader, X, y, noise, weight, least)
    return Streamed(source, reader.dtype, survey(source, reader.dtype, seed))


def begin(
    reader: Inputs, read: Arrays | Streamed, starts: Mapping[str, Any], priors: Mapping[str, Prior | None] | None
) -> tuple[Scaling, Hyperparameters]:
    """Return the scaling that the data decide, and the hyperparameters at their starting values."""
    if isinstance(read, Arrays):
        inputs, targets = read.inputs, read.targets
        scaling = reader.fit_scaling(inputs, targets)
        center, spread = targets.mean(0), targets.std(0)
    else:
        inputs = read.found.sample.inputs
        scaling = read.scaling(getattr(reader, "standardize", True))
        moments = read.found.targets.standardizing(inputs.new_empty(0))
        one = read.found.is_vector
        center, spread = (v[0] if one else v for v in (moments.location, moments.scale))
    _check_units(scaling.targets)
    return scaling, starting_values(reader, inputs, center, spread, scaling, starts, priors)


def _kind_of_rows(some: Read, is_vector: bool, scaling: Scaling) -> tuple[int, bool, bool]:
    """Return the number of outputs, whether rows are uniform, and whether they know noise, of a source like `some`."""
    assert some.targets is not None
    scaling.check_columns(some.inputs)
    _check_outputs(some.targets[:, 0] if is_vector else some.targets, scaling)
    if some.known is not None:
        scaling.targets.common_scale()
    return some.targets.shape[1], some.known is None and some.weight is None, some.known is not None


def _table_source(reader: Inputs, X: Any, y: Any, noise: Any, weight: Any) -> RowSource | None:
    source = as_source(X, y, noise, weight)
    if source is not None and not hasattr(reader, "standardize"):
        raise DataError("Nodes of a graph are given as labels; rows that are read in blocks are for tables.")
    return source


def _check_units(targets: Affine) -> None:
    """Refuse targets whose variance leaves the range of their type."""
    scale = targets.scale.reshape(-1)
    lost = ~torch.isfinite(scale**2) | (scale**2 <= torch.finfo(scale.dtype).tiny)
    if bool(lost.any()):
        worst = scale[lost][0].item()
        raise DataError(f"The target's deviation is {worst:g}, whose square is out of {scale.dtype}. Rescale y.")


def _check_outputs(targets: Tensor, scaling: Scaling) -> None:
    if targets.shape[1:] != scaling.targets.scale.shape:
        known = scaling.targets.scale.shape
        raise DataError(
            f"y has {'one output' if targets.ndim == 1 else f'{targets.shape[1]} outputs'}, the training data "
            f"{f'{known[0]}' if known else 'one'}."
        )
