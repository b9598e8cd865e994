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
    """Return the mean and the standard deviation of columns, each (d,) or (), where a row may count several times.

    They are right over the whole range of the type, though squares of the values leave it; of columns of equal values
    they are exact.
    """
    low, high = torch.aminmax(x, dim=0)
    unit = unit_of(torch.maximum(low.abs(), high.abs()))
    mean, deviation = _moments(x / unit, weight) if len(x) <= BLOCK_ROWS else _moments_in_blocks(x, unit, weight)
    is_constant = low == high
    return torch.where(is_constant, x[0], unit * mean), torch.where(
        is_constant, torch.zeros_like(deviation), unit * deviation
    )


BLOCK_ROWS = 2**16
"""The most rows whose moments are computed at once, with copies of them."""


def _moments(
    x: Tensor,  # (n, d) or (n,)
    weight: Tensor | None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of columns whose squares are in range, each (d,) or ()."""
    if weight is None:
        return x.mean(0), x.std(0) if x.numel() else x.mean(0)
    w = weight.to(x).reshape(-1, *(1 for _ in x.shape[1:]))
    total = w.sum()
    mean = (w * x).sum(0) / total
    return mean, ((w * (x - mean).square()).sum(0) / freedom(float(total), len(x))).sqrt()


def _moments_in_blocks(
    x: Tensor,  # (n, d) or (n,)
    unit: Tensor,  # (d,) or ()
    weight: Tensor | None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of x / unit as `_moments` does, in float64, without copies of all rows."""
    parts = torch.split(x, BLOCK_ROWS)
    ones = x.new_ones((), dtype=torch.float64)
    weights = [ones] * len(parts) if weight is None else torch.split(weight.to(ones), BLOCK_ROWS)
    pairs = [(one, w.reshape(-1, *(1 for _ in x.shape[1:]))) for one, w in zip(parts, weights, strict=True)]
    total = float(len(x)) if weight is None else float(weight.to(ones).sum())
    mean = torch.stack([(w * (one / unit).double()).sum(0) for one, w in pairs]).sum(0) / total
    squares = torch.stack([(w * ((one / unit).double() - mean).square()).sum(0) for one, w in pairs]).sum(0)
    return mean.to(x), (squares / freedom(total, len(x))).sqrt().to(x)


def unit_of(
    largest: Tensor,  # (d,) or ()
) -> Tensor:  # (d,) or ()
    """Return the power of two next to the largest absolute value of a column, 1 of zeros: to divide by it is exact."""
    return torch.where(largest > 0, largest / 2 / torch.frexp(largest).mantissa, torch.ones_like(largest))


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
        """Return the map to mean 0 and standard deviation 1; see `of_moments` for constant columns."""
        low, high = torch.aminmax(x, dim=0)
        return cls.of_moments(*moments(x, weight), torch.maximum(low.abs(), high.abs()))

    @classmethod
    def of_moments(
        cls,
        mean: Tensor,  # (d,) or ()
        deviation: Tensor,  # (d,) or ()
        largest: Tensor,  # (d,) or ()
    ) -> "Affine":
        """Return the map to mean 0 and standard deviation 1.

        A column that is constant but for rounding keeps scale 1, or its rounding where that is larger.

        Args:
            mean: (d,) or ().
            deviation: Likewise.
            largest: The largest absolute value, likewise.
        """
        rounding = 1e-14 * largest
        return cls(mean, torch.where(deviation > rounding, deviation, rounding.clamp_min(1.0)))

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
