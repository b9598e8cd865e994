"""What the data decide about a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rfgp.errors import DataError, NotFittedError
from rfgp.inference import ArrayRows, JoinedRows, Predictor, Rows, gathered
from rfgp.models.data import Source, join
from rfgp.models.inputs import Inputs
from rfgp.models.sources import SourceInputs, SourceRows, as_source
from rfgp.parameters import Hyperparameters, Prior, Quantity
from rfgp.scaling import Scaling

NOISE_BOUNDS = (1e-6, 1e2)  # of the variance of the targets
OUTPUTSCALE_BOUNDS = (1e-6, 1e8)


@dataclass(frozen=True, eq=False)
class ArrayPart:
    """Training data in memory, as they came and as they are used.

    Row i has the noise variance (learned + known_i), and counts as `weight_i` repetitions of one observation.
    """

    raw: Any  # what the user gave
    raw_targets: Tensor  # (n,) or (n, k)
    rows: ArrayRows  # standardised
    known: Tensor | None = None  # (n,) variances, in the user's units squared, float64

    @property
    def count(self) -> float:
        """The number of observations, repetitions included."""
        return self.rows.count


@dataclass(frozen=True, eq=False)
class SourcePart:
    """Training data that are read in blocks."""

    rows: SourceRows
    sample: ArrayRows | None  # standardised, in random order; None: rows that were added
    count: float  # the number of observations, repetitions included
    is_numpy: bool
    digest: str = ""  # of all values, where they have been read before


@dataclass(frozen=True, eq=False)
class Data:
    """The training data: those of `fit` or `condition`, and of each `update` since."""

    parts: tuple[ArrayPart | SourcePart, ...]

    @cached_property
    def rows(self) -> Rows:
        """All rows, standardised."""
        return self.parts[0].rows if len(self.parts) == 1 else JoinedRows([part.rows for part in self.parts])

    @property
    def count(self) -> float:
        """The number of observations, repetitions included."""
        return sum(part.count for part in self.parts)

    @property
    def is_numpy(self) -> bool:
        """Whether the user gave arrays rather than tensors."""
        part = self.parts[0]
        return part.is_numpy if isinstance(part, SourcePart) else not isinstance(part.raw, Tensor)

    def in_memory(self, purpose: str) -> ArrayPart:
        """Return all data as one part.

        Raises:
            DataError: some of them are read in blocks.
        """
        parts = [part for part in self.parts if isinstance(part, ArrayPart)]
        if len(parts) < len(self.parts):
            raise DataError(f"Some of the data are read in blocks, and {purpose} needs them in memory.")
        if len(parts) == 1:
            return parts[0]
        known = None
        if any(part.known is not None for part in parts):
            zeros = [torch.zeros(len(part.rows), dtype=torch.float64) for part in parts]
            known = torch.cat([z if part.known is None else part.known for part, z in zip(parts, zeros, strict=True)])
        targets = torch.cat([part.raw_targets for part in parts])
        return ArrayPart(join([part.raw for part in parts]), targets, gathered(self.rows), known)


@dataclass(frozen=True, eq=False)
class State:
    """Everything that the data decide. Replaced as a whole, so a refused call changes nothing."""

    data: Data | None  # None: loaded from a file without them
    num_observations: int
    scaling: Scaling
    hyperparameters: Hyperparameters
    draw: Any  # the features' draw, where it depends on the shape of the inputs

    def known_data(self, purpose: str) -> Data:
        """Return the data, or say what needs them.

        Raises:
            NotFittedError: the model was loaded without its data.
        """
        if self.data is None:
            raise NotFittedError(
                f"This model was loaded without its data, which {purpose} need. Call condition(X, y) first, or save "
                "it with data=True."
            )
        return self.data

    def read_new(self, reader: Inputs, X: Any) -> tuple[Tensor, Source]:
        """Check new inputs and return them standardised, tables (n, d) or positions (n,)."""
        inputs, source = reader.read(X)
        self.scaling.check_columns(inputs)
        return self.scaling.standardize(inputs), source

    def read_points(self, reader: Inputs, X: Any) -> tuple[Tensor | SourceInputs, Source]:
        """Return inputs (n, d) likewise, or some that are read in blocks when they are needed."""
        source = as_source(X) if self.scaling.inputs is not None else None
        if source is None:
            return self.read_new(reader, X)
        like = self.scaling.targets.scale.new_empty(0)
        return SourceInputs(source, self.scaling, reader.dtype), Source(not isinstance(X, Tensor), like)


class Kept:
    """The tensors of the last predictor, and the state and raw hyperparameters (p,) that they belong to.

    The predictor itself holds functions of its model, so a copied or unpickled one is restored from them.
    """

    def __init__(
        self, state: State, raw: Tensor, tensors: dict[str, Tensor], predictor: Predictor | None = None
    ) -> None:
        self.state, self.raw, self.tensors, self.predictor = state, raw, tensors, predictor

    def fits(self, state: State, raw: Tensor) -> bool:
        """Whether they are of this state and these hyperparameters (p,)."""
        return self.state is state and torch.equal(self.raw, raw)

    def __reduce__(self) -> tuple[type["Kept"], tuple[State, Tensor, dict[str, Tensor]]]:
        return Kept, (self.state, self.raw, self.tensors)


def starting_values(
    model: Inputs,
    inputs: Tensor,
    center: Tensor,
    spread: Tensor,
    scaling: Scaling,
    starts: Mapping[str, Any],
    priors: Mapping[str, Prior | None] | None,
) -> Hyperparameters:
    """Return hyperparameters that start from the data, or from the user's values.

    Args:
        model: Which hyperparameters the inputs bring.
        inputs: (n, d), or a sample of them.
        center: Mean of the targets, () or (k,).
        spread: Their standard deviation, likewise.
        scaling: To standardised units.
        starts: The user's values by name.
        priors: Log densities by name.
    """
    unit = scaling.targets.scale**2
    quantities, variance = model.quantities(inputs, scaling), (spread**2 / unit).mean()
    for name, start, bounds in (("outputscale", 1.0, OUTPUTSCALE_BOUNDS), ("noise", 0.1, NOISE_BOUNDS)):
        quantities[name] = Quantity(start * variance, unit, (bounds[0] * variance, bounds[1] * variance))
    hyperparameters = Hyperparameters(quantities, center, spread, scaling.targets, priors)
    hyperparameters.set(**{name: value for name, value in starts.items() if value is not None})
    return hyperparameters
