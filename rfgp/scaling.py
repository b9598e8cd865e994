"""Affine maps between the user's units and standardised ones."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.errors import DataError


@dataclass(frozen=True, eq=False)
class Affine:
    """z = (x - location) / scale, by column.

    Attributes:
        location: (d,) for inputs, () for targets; in the user's units.
        scale: Same shape, positive.
    """

    location: Tensor
    scale: Tensor

    @classmethod
    def standardizing(cls, x: Tensor) -> "Affine":  # x (n, d) or (n,)
        """Return the map to mean 0 and standard deviation 1; a constant column keeps scale 1."""
        location, scale = x.mean(0), x.std(0)
        constant = ~(scale > 1e-14 * x.abs().amax(0))
        return cls(location, torch.where(constant, torch.ones_like(scale), scale))

    @classmethod
    def identity(cls, x: Tensor) -> "Affine":  # x (n, d) or (n,)
        """Return the map that changes nothing."""
        return cls(torch.zeros_like(x[0]), torch.ones_like(x[0]))

    def forward(self, x: Tensor) -> Tensor:
        """Map the user's units to standardised ones, same shape."""
        return (x - self.location) / self.scale

    def inverse(self, z: Tensor) -> Tensor:
        """Map standardised units to the user's, (n, d), (n,) or ()."""
        return self.location + self.scale * z

    def log_jacobian(self, count: float) -> float:
        """Return log |dz / dx| of `count` rows, to add to a log density of z."""
        return -count * math.fsum(math.log(s) for s in self.scale.reshape(-1).tolist())


@dataclass(frozen=True, eq=False)
class Scaling:
    """The maps of inputs (d,) and targets (). Graph nodes have no input map."""

    targets: Affine
    inputs: Affine | None = None

    def check_columns(self, x: Tensor) -> None:
        """Refuse inputs (n, k) with another number of columns than the d that the scaling is for.

        Raises:
            DataError: with both numbers.
        """
        if self.inputs is not None and x.shape[1:] != self.inputs.scale.shape:
            raise DataError(f"X has {x.shape[1]} columns, the training data {len(self.inputs.scale)}.")
