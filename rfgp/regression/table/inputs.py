"""Inputs of tables, and what hyperparameters their columns give."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rfgp.parameters import Quantity
from rfgp.regression.family import OUTPUTSCALE_BOUNDS, Variance
from rfgp.regression.table.offers import OpenOptions
from rfgp.regression.table.options import KernelOptions
from rfgp.rows import Chunk
from rfgp.rows.arrays import Origin, read_matrix
from rfgp.scaling import Scaling

LENGTHSCALE_BOUNDS = (1e-3, 1e4)  # in standard deviations of a column
LOCAL_START = 0.5
"""Of the other starting lengthscale: where that of a local process beside another starts."""
LOCAL_VARIANCE = Variance("local_outputscale", 0.25, OUTPUTSCALE_BOUNDS)
LEAST_NOISE = 1e-8
"""Of the targets' variance, beside a local process, which can explain targets without noise. At 1e-10 means of smooth
kernels were off by 1e-5 of the targets' deviation by rounding."""


@dataclass(frozen=True, eq=False)
class TableInputs:
    """Numeric tables (n, d) with one lengthscale per column or one for all.

    Attributes:
        options: The user's choices.
    """

    options: KernelOptions | OpenOptions
    reads_blocks = True

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that the user chose; None: that of the data."""
        return self.options.dtype

    @property
    def standardize(self) -> bool:
        """Whether inputs and targets are mapped to mean 0 and standard deviation 1."""
        return self.options.standardize

    def read(self, inputs: Any) -> tuple[Tensor, Origin]:
        """Return a checked table (n, d)."""
        return read_matrix(inputs, self.dtype)

    def complete(self, given: Chunk) -> Chunk:
        """Return the rows as they are: tables have no missing values."""
        return given

    def check(self, inputs: Tensor) -> None:
        """Take any table (n, d)."""

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return a lengthscale for columns of these standard deviations, (d,); it starts at sqrt(d) of them.

        That is the order of the distance of two rows; that of a local process beside another starts at half of it. A
        shared lengthscale of standardised columns has one standardised value, and one value per column in the user's
        units.
        """
        assert scaling.inputs is not None
        unit = scaling.inputs.scale
        deviation = spread / unit
        deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        if not self.options.ard:
            deviation, unit = deviation.mean(), unit if self.standardize else torch.ones_like(unit[0])
        bounds = (LENGTHSCALE_BOUNDS[0] * deviation, LENGTHSCALE_BOUNDS[1] * deviation)
        own = Quantity(math.sqrt(len(spread)) * deviation, unit, bounds, fades=True)
        if not self.options.has_both:
            return {"lengthscale": own}
        return {"lengthscale": own, "local_lengthscale": replace(own, start=LOCAL_START * own.start)}
