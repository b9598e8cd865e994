"""Training data at the door: from what a caller gives to a part of a model's data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rfgp.errors import DataError
from rfgp.inference import ArrayRows
from rfgp.models.data import copy_inputs, read_per_row, read_targets
from rfgp.models.inputs import Inputs
from rfgp.models.sources import RowSource, SourceRows, as_source
from rfgp.models.state import ArrayPart, SourcePart, starting_values
from rfgp.models.survey import Survey, survey
from rfgp.parameters import Hyperparameters, Prior
from rfgp.scaling import Scaling


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
        inputs = scaling.inputs.forward(self.inputs) if scaling.inputs else self.inputs
        targets = scaling.targets.forward(self.targets).double().reshape(len(self.targets), -1)
        known = None if self.known is None else self.known / scaling.targets.common_scale().double() ** 2
        return ArrayPart(self.raw, self.targets, ArrayRows(inputs, targets, known, self.weight), self.known)


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
        assert sample.targets is not None
        scaling.check_columns(sample.inputs)
        _check_outputs(sample.targets[:, 0] if found.is_vector else sample.targets, scaling)
        if sample.known is not None:
            scaling.targets.common_scale()
        kind = (sample.targets.shape[1], found.is_uniform, sample.known is not None)
        rows = SourceRows(self.source, scaling, self.dtype, found.num_rows, *kind)
        return SourcePart(rows, rows.standardized(sample), found.observations, found.is_numpy)

    def scaling(self, standardize: bool) -> Scaling:
        """Return the maps of inputs and targets to standardised units."""
        like, found = self.found.sample.inputs.new_empty(0), self.found
        maps = [moments.standardizing(like) for moments in (found.targets, found.inputs)]
        if not standardize:
            maps = [type(m)(torch.zeros_like(m.location), torch.ones_like(m.scale)) for m in maps]
        targets = type(maps[0])(maps[0].location[0], maps[0].scale[0]) if found.is_vector else maps[0]
        return Scaling(targets, maps[1])


def read_training(
    reader: Inputs,
    X: Any,
    y: Any,
    noise: Any,  # (n,)
    weight: Any,  # (n,)
    seed: int,
    least: int = 2,
) -> Arrays | Streamed:
    """Check training data; those that are read in blocks once as a whole, with a sample under the seed.

    Fewer than `least` rows are refused; where one will do, so do constant targets.

    Raises:
        DataError: they cannot be used; the message names the place.
    """
    source = as_source(X, y, noise, weight)
    if source is None:
        return Arrays.read(reader, X, y, noise, weight, least)
    if not hasattr(reader, "standardize"):
        raise DataError("Nodes of a graph are given as labels; rows that are read in blocks are for tables.")
    return Streamed(source, reader.dtype, survey(source, reader.dtype, seed, least))


def begin(
    reader: Inputs, read: Arrays | Streamed, starts: Mapping[str, Any], priors: Mapping[str, Prior] | None
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
    return scaling, starting_values(reader, inputs, center, spread, scaling, starts, priors)


def _check_outputs(targets: Tensor, scaling: Scaling) -> None:
    if targets.shape[1:] != scaling.targets.scale.shape:
        known = scaling.targets.scale.shape
        raise DataError(
            f"y has {'one output' if targets.ndim == 1 else f'{targets.shape[1]} outputs'}, the training data "
            f"{f'{known[0]}' if known else 'one'}."
        )
