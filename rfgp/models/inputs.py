"""Inputs of a process: how they are read, scaled, and which hyperparameters they bring."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rfgp.models.data import Source, read_matrix
from rfgp.parameters import Quantity
from rfgp.scaling import Affine, Scaling

LENGTHSCALE_BOUNDS = (1e-3, 1e4)  # in standard deviations of a column


class Rows(NamedTuple):
    """What a user gives: inputs of n rows, targets (n,) or (n, k), and what the rows bring, (n,) each or None."""

    X: Any
    y: Any
    noise: Any
    sample_weight: Any


class Inputs(Protocol):
    """The role: tables here, graph nodes beside their model."""

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that the user chose; None: that of the data."""

    def read(self, inputs: Any) -> tuple[Tensor, Source]:
        """Check inputs and return them as a tensor in the user's units, tables (n, d) or positions (n,)."""

    def fit_scaling(self, inputs: Tensor, targets: Tensor) -> Scaling:
        """Return the maps of inputs (n, d) and targets (n,) to standardised units."""

    def quantities(self, inputs: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the kernel's hyperparameters at their starting values, for inputs (n, d)."""

    def starts(self) -> dict[str, Any]:
        """Return the user's starting values of these hyperparameters, in the user's units."""

    def complete(self, rows: Rows) -> Rows:
        """Return the rows without those that are missing, or all of them where nothing may be."""

    def restore(self, inputs: Tensor, as_numpy: bool) -> Any:
        """Return, in the user's terms, what `read` maps to these tables (n, d) or positions (n,)."""


@dataclass(frozen=True, eq=False)
class TableInputs:
    """Numeric tables (n, d) with one lengthscale per column or one for all.

    Attributes:
        ard: One lengthscale per column.
        standardize: Map inputs and targets to mean 0 and standard deviation 1.
        lengthscale: The user's starting value, () or (d,), or None.
        dtype: The user's choice, or None.
    """

    ard: bool
    standardize: bool
    lengthscale: Any
    dtype: torch.dtype | None

    def read(self, inputs: Any) -> tuple[Tensor, Source]:
        """Return a checked table (n, d)."""
        return read_matrix(inputs, self.dtype)

    def fit_scaling(self, inputs: Tensor, targets: Tensor) -> Scaling:
        """Return the maps of inputs (n, d) and targets (n,), the identity without `standardize`."""
        make = Affine.standardizing if self.standardize else Affine.identity
        return Scaling(make(targets), make(inputs))

    def quantities(self, inputs: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return a lengthscale for inputs (n, d); it starts at sqrt(d) standard deviations.

        That is the order of the distance of two rows. A shared lengthscale of standardised columns
        has one standardised value, and one value per column in the user's units.
        """
        assert scaling.inputs is not None
        unit = scaling.inputs.scale
        deviation = inputs.std(0) / unit
        deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        if not self.ard:
            deviation, unit = deviation.mean(), unit if self.standardize else torch.ones_like(unit[0])
        bounds = (LENGTHSCALE_BOUNDS[0] * deviation, LENGTHSCALE_BOUNDS[1] * deviation)
        return {"lengthscale": Quantity(math.sqrt(inputs.shape[1]) * deviation, unit, bounds)}

    def starts(self) -> dict[str, Any]:
        """Return the user's lengthscale."""
        return {"lengthscale": self.lengthscale}

    def complete(self, rows: Rows) -> Rows:
        """Return the rows as they are: tables have no missing values."""
        return rows

    def restore(self, inputs: Tensor, as_numpy: bool) -> Any:
        """Return the table (n, d) as an array or a tensor."""
        return inputs.numpy() if as_numpy else inputs
