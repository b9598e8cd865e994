"""Affine maps between the user's units and standardised ones."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import DataError


def moments(
    x: Tensor,  # (n, d) or (n,)
    weight: Tensor | None = None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of columns, each (d,) or (), where a row may count several times."""
    if weight is None:
        return x.mean(0), x.std(0)
    w = weight.to(x).reshape(-1, *(1 for _ in x.shape[1:]))
    total = w.sum()
    mean = (w * x).sum(0) / total
    return mean, ((w * (x - mean).square()).sum(0) / freedom(float(total), len(x))).sqrt()


def freedom(total: float, num_rows: int) -> float:
    """Return what a sum of squares is divided by for a variance, of rows that count so often in total.

    For numbers of repetitions the degrees of freedom, total - 1; where rows count less than once on average, the share
    of the total that is not lost to the mean of as many equal ones: the two agree where they count once.
    """
    return max(total - 1, total * (num_rows - 1) / num_rows) or 1.0


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
    def standardizing(cls, x: Tensor, weight: Tensor | None = None) -> "Affine":  # x (n, d) or (n,), weight (n,)
        """Return the map to mean 0 and standard deviation 1; a constant column keeps scale 1."""
        largest = x.abs().amax(0)
        power = largest / 2 / torch.frexp(largest).mantissa  # of two: squares stay in range, no digit is lost
        unit = torch.where(largest > 0, power, torch.ones_like(largest))
        mean, deviation = moments(x / unit, weight)
        return cls.of_moments(unit * mean, unit * deviation, largest)

    @classmethod
    def of_moments(
        cls,
        mean: Tensor,  # (d,) or ()
        deviation: Tensor,  # (d,) or ()
        largest: Tensor,  # (d,) or ()
    ) -> "Affine":
        """Return the map to mean 0 and standard deviation 1; a column that is constant but for rounding keeps scale 1.

        Args:
            mean: (d,) or ().
            deviation: Likewise.
            largest: The largest absolute value, likewise.
        """
        constant = ~(deviation > 1e-14 * largest)
        return cls(mean, torch.where(constant, torch.ones_like(deviation), deviation))

    @classmethod
    def identity(cls, x: Tensor) -> "Affine":  # x (n, d) or (n,)
        """Return the map that changes nothing."""
        return cls(torch.zeros_like(x[0]), torch.ones_like(x[0]))

    def common_scale(self) -> Tensor:
        """Return the scale, 0-d, where all columns have the same.

        Raises:
            DataError: they differ.
        """
        scales = self.scale.reshape(-1)
        if bool((scales != scales[0]).any()):
            raise DataError(
                "Known noise is one variance per row, and these outputs are standardised by different scales. Scale "
                "them to one unit and use standardize=False, or fit one model for each."
            )
        return scales[0]

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
    """The maps of inputs (d,) and targets (). Graph nodes have no input map.

    Attributes:
        targets: Of targets, () or (k,).
        inputs: Of inputs, (d,).
        columns: The inputs' names, where the data had some.
    """

    targets: Affine
    inputs: Affine | None = None
    columns: tuple[str, ...] | None = None

    def standardize(
        self,
        x: Tensor,  # (n, d)
    ) -> Tensor:  # (n, d)
        """Return inputs in standardised units, or as they are where there is no map.

        Raises:
            DataError: a value that leaves the range of the data's type on the way.
        """
        if self.inputs is None:
            return x
        out = self.inputs.forward(x.to(self.inputs.scale))
        bad = (~torch.isfinite(out)).nonzero()
        if len(bad):
            row, column = bad[0].tolist()
            raise DataError(f"X has a value too large for {out.dtype} in row {row}, column {column}.")
        return out

    def check_columns(self, x: Tensor) -> None:
        """Refuse inputs (n, k) with another number of columns than the d that the scaling is for.

        Raises:
            DataError: with both numbers.
        """
        if self.inputs is not None and x.shape[1:] != self.inputs.scale.shape:
            raise DataError(f"X has {counted(x.shape[1], 'column')}, the training data {len(self.inputs.scale)}.")
