"""What the data decide about a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rfgp.errors import NotFittedError
from rfgp.models.data import Source
from rfgp.models.inputs import Inputs
from rfgp.parameters import Hyperparameters, Prior, Quantity
from rfgp.scaling import Scaling

NOISE_BOUNDS = (1e-6, 1e2)  # of the variance of the targets
OUTPUTSCALE_BOUNDS = (1e-6, 1e8)


@dataclass(frozen=True, eq=False)
class Data:
    """The training data, as they came and as they are used.

    Row i has the noise variance (learned + known_noise_i), and counts as `weight_i` repetitions of one observation.
    """

    raw: Any  # what the user gave, for `update`
    raw_targets: Tensor  # (n,)
    inputs: Tensor  # standardised (n, d), or positions (n,)
    targets: Tensor  # standardised (n,)
    known_noise: Tensor | None = None  # (n,) variances, in the user's units squared, float64
    weight: Tensor | None = None  # (n,) float64

    def noise(self, learned: Tensor, scale: Tensor) -> Tensor:
        """Return the standardised noise variance of one observation, () or (n,); targets were divided by `scale` ()."""
        known = self.known_noise
        return learned.double() if known is None else learned.double() + known / scale.double() ** 2

    def spread(self, noise: Tensor) -> Tensor:
        """Return the noise of the mean of each row's repetitions, () or (n,)."""
        return noise if self.weight is None else noise / self.weight

    def repetitions(self, noise: Tensor) -> Tensor | float:
        """Return what repetitions add to the log density of their means, 0-d.

        w observations of variance D that are all y have the density N(y; f, D / w) (2 pi D)^(-(w - 1) / 2) w^(-1/2).
        """
        if self.weight is None:
            return 0.0
        return -0.5 * ((self.weight - 1) * (2 * torch.pi * noise).log() + self.weight.log()).sum()

    @property
    def count(self) -> float:
        """The number of observations, repetitions included."""
        return len(self.targets) if self.weight is None else float(self.weight.sum())


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
        maps = self.scaling.inputs
        return maps.forward(inputs.to(maps.scale)) if maps else inputs, source


def starting_values(
    model: Inputs,
    inputs: Tensor,
    targets: Tensor,
    scaling: Scaling,
    starts: Mapping[str, Any],
    priors: Mapping[str, Prior] | None,
) -> Hyperparameters:
    """Return hyperparameters that start from inputs (n, d) and targets (n,), or from the user's values."""
    unit, spread = scaling.targets.scale**2, targets.std()
    quantities, variance = model.quantities(inputs, scaling), spread**2 / unit
    for name, start, bounds in (("outputscale", 1.0, OUTPUTSCALE_BOUNDS), ("noise", 0.1, NOISE_BOUNDS)):
        quantities[name] = Quantity(start * variance, unit, (bounds[0] * variance, bounds[1] * variance))
    hyperparameters = Hyperparameters(quantities, targets.mean(), spread, scaling.targets, priors)
    hyperparameters.set(**{name: value for name, value in starts.items() if value is not None})
    return hyperparameters
