"""Affine maps between the user's units and standardized ones."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import DataError


def moments(
    x: Tensor,  # (n, d) or (n,)
    weight: Tensor | None = None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """Return the weighted mean and standard deviation of columns, each (d,) or ().

    They are accurate even if squares of the values overflow or underflow, and exact for constant columns.

    Args:
        x: The rows, (n, d) or (n,).
        weight: The weight of each row, (n,). If None, 1.

    Examples:
        >>> [value.item() for value in moments(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))]
        [2.0, 1.4142135381698608]
    """
    found = Moments.of(x, weight)
    return found.mean.to(x), found.deviation.to(x)


BLOCK_ROWS = 2**16
"""The largest number of rows whose moments are computed at once, with copies of the rows."""
BLOCK_ENTRIES = 2**20
"""The number of entries of the columns whose quartiles are computed at once. At least one column is."""


def unit_of(
    largest: Tensor,  # (d,) or ()
) -> Tensor:  # (d,) or ()
    """Return the greatest power of two up to the largest absolute value of a column.

    Division by it is exact.

    Args:
        largest: The largest absolute values, (d,) or (). For 0 the result is 1.

    Examples:
        >>> unit_of(torch.tensor([5.0, 0.0])).tolist()
        [4.0, 1.0]
    """
    return torch.where(largest > 0, largest / 2 / torch.frexp(largest).mantissa, torch.ones_like(largest))


MAX_RATIO = 10.0
"""The largest ratio of the standard deviation of a column to its robust scale at which the former is its unit."""
NORMAL_RANGE = 1.35
"""The interquartile range of a normal distribution, in standard deviations."""
_ROUNDING = 1e-14
"""The spread of a column, relative to its values, up to which it is rounding error."""


def _quartiles(
    x: Tensor,  # (n, d)
    weight: Tensor | None,  # (n,)
) -> NDArray[np.float64]:  # (3, d)
    """Return the first values whose cumulative weights reach 1/4, 1/2 and 3/4 of the total, (3, d)."""
    values, shares = x.double().cpu().numpy(), np.array([0.25, 0.5, 0.75])
    if weight is None:
        ranks = np.ceil(shares * len(values)).astype(int) - 1
        return np.asarray(np.partition(values, ranks, axis=0)[ranks])
    order = values.argsort(axis=0)
    below = weight.detach().double().cpu().numpy()[order].cumsum(axis=0)
    reached = [np.searchsorted(column, shares * column[-1]) for column in below.T]
    return np.take_along_axis(values, np.take_along_axis(order, np.stack(reached, axis=1), axis=0), axis=0)


def freedom(total: float, num_rows: int) -> float:
    """Return the divisor that makes a weighted sum of squares a variance.

    If weights count repeated rows, it is total - 1. If weights are below one on average, it is total (1 - 1 / n). The
    two agree for weights of one.

    Args:
        total: The sum of the weights.
        num_rows: The number of rows n.

    Examples:
        >>> freedom(10.0, 5), freedom(2.5, 5)
        (9.0, 2.0)
    """
    return max(total - 1, total * (num_rows - 1) / num_rows) or 1.0


@dataclass(frozen=True, eq=False)
class Affine:
    """The map z = (x - location) / scale of columns.

    Attributes:
        location: The location in the user's units, (d,) for inputs, () or (k,) for targets.
        scale: The scale, of the same shape, positive.

    Examples:
        >>> targets = Affine.standardizing(torch.tensor([1.0, 2.0, 3.0]))
        >>> targets.forward(torch.tensor([4.0])).item(), targets.inverse(torch.tensor(-1.0)).item()
        (2.0, 1.0)
    """

    location: Tensor
    scale: Tensor

    @classmethod
    def standardizing(cls, x: Tensor, weight: Tensor | None = None) -> "Affine":  # x (n, d) or (n,), weight (n,)
        """Return the map to mean 0 and standard deviation 1.

        See `Moments.standardizing` for constant columns.

        Args:
            x: The rows, (n, d) or (n,).
            weight: The weight of each row, (n,). If None, 1.
        """
        return Moments.of(x, weight).standardizing(x)

    def robust(self, x: Tensor, weight: Tensor | None = None) -> "Affine":  # x (n, d) or (n,), weight (n,)
        """Return the map with the median and the robust scale of columns with outliers.

        The robust scale is the interquartile range over 1.35, the standard deviation of a normal distribution with this
        range. Columns whose scale is at most ten robust scales, or whose robust scale is 0, keep their map.

        Args:
            x: The rows, or a random sample of them, (n, d) or (n,).
            weight: The weight of each row, (n,). If None, 1.

        Examples:
            >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 1000.0])
            >>> units = Affine.standardizing(x).robust(x)
            >>> units.location.item(), round(units.scale.item(), 3)
            (3.0, 2.222)
        """
        columns = x.detach().reshape(len(x), -1)
        parts = torch.split(columns, max(1, BLOCK_ENTRIES // max(len(x), 1)), dim=1)
        quartiles = np.concatenate([_quartiles(part, weight) for part in parts], axis=1)
        low, median, high = (torch.from_numpy(q).reshape(self.scale.shape).to(self.scale) for q in quartiles)
        scale = (high - low) / NORMAL_RANGE
        ratio = self.scale / scale
        is_exact = scale > _ROUNDING * torch.maximum(low.abs(), high.abs())
        chosen = is_exact & (ratio > MAX_RATIO) & (ratio < torch.finfo(scale.dtype).max ** 0.25)
        return Affine(torch.where(chosen, median, self.location), torch.where(chosen, scale, self.scale))

    @classmethod
    def identity(cls, x: Tensor) -> "Affine":  # x (n, d) or (n,)
        """Return the identity map.

        Args:
            x: The rows, (n, d) or (n,), whose dtype and shape the map has.
        """
        return cls(torch.zeros_like(x[0]), torch.ones_like(x[0]))

    def common_scale(self) -> Tensor:
        """Return the scale, 0-d, if all columns share it.

        Raises:
            DataError: If the scales differ.
        """
        scales = self.scale.reshape(-1)
        if bool((scales != scales[0]).any()):
            raise DataError(
                "Outputs with known noise must share one scale, got different scales. Scale them to one unit and use "
                "standardize=False, or fit one model for each."
            )
        return scales[0]

    def forward(self, x: Tensor) -> Tensor:
        """Map the user's units to standardized ones, of the same shape."""
        return (x - self.location) / self.scale

    def inverse(self, z: Tensor) -> Tensor:
        """Map standardized units to the user's, (n, d), (n,) or ()."""
        return self.location + self.scale * z

    def log_jacobian(self, count: float) -> float:
        """Return log |dz / dx| of some rows, which is added to a log density of z.

        Args:
            count: The number of rows.
        """
        return -count * math.fsum(math.log(s) for s in self.scale.reshape(-1).tolist())


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean, squares and ends of columns (b, d) or of one (b,), which are computed in parts.

    Sums are in float64, and those of parts are combined as by Chan, Golub and LeVeque (1983).

    Attributes:
        count: The number of rows.
        total: The sum of their weights.
        mean: The means, (d,) or ().
        squares: The weighted sums of squares about the means, divided by the square of `unit`.
        unit: A power of two for each column, which avoids overflow.
        ends: The smallest and the largest values, (2, d) or (2,).
        end_rows: The numbers of the first rows with these values, as `ends`.

    Examples:
        >>> low, high = Moments.of(torch.tensor([1.0, 2.0])), Moments.of(torch.tensor([6.0]), first=2)
        >>> total = low.merged(high)
        >>> total.mean.item(), round(total.deviation.item(), 3), total.end_rows.tolist()
        (3.0, 2.646, [0, 2])
    """

    count: int
    total: float
    mean: Tensor
    squares: Tensor
    unit: Tensor
    ends: Tensor
    end_rows: Tensor

    @classmethod
    def of(
        cls,
        x: Tensor,  # (b, d) or (b,)
        weight: Tensor | None = None,  # (b,)
        first: int = 0,
    ) -> "Moments":
        """Return the moments of at least one row, in parts so that only few rows are copied.

        Args:
            x: The rows, (b, d) or (b,).
            weight: The weight of each row, (b,). If None, 1.
            first: The number of the first row. The default is 0.
        """
        weight = x.new_ones(len(x)) if weight is None else weight
        if len(x) > BLOCK_ROWS:
            half = len(x) // 2
            return cls.of(x[:half], weight[:half], first).merged(cls.of(x[half:], weight[half:], first + half))
        x, w = x.detach().double().cpu(), weight.detach().double().cpu().reshape(-1, *(1 for _ in x.shape[1:]))
        (low, low_row), (high, high_row) = x.min(0), x.max(0)
        largest, total = torch.maximum(low.abs(), high.abs()), float(w.sum())
        unit = torch.where(largest > 0, unit_of(largest), torch.full_like(largest, torch.finfo(torch.float64).tiny))
        scaled = x / unit
        mean = torch.where(low == high, scaled[0], (w * scaled).sum(0) / total)
        squares = (w * (scaled - mean).square()).sum(0)
        ends, rows = torch.stack([low, high]), first + torch.stack([low_row, high_row])
        return cls(len(x), total, mean * unit, squares, unit, ends, rows)

    def merged(self, later: "Moments") -> "Moments":
        """Return the moments of these rows and later ones.

        Args:
            later: The moments of rows with the same columns.
        """
        total, unit = self.total + later.total, torch.maximum(self.unit, later.unit)
        shift = (later.mean - self.mean) / unit
        squares = self.squares * (self.unit / unit).square() + later.squares * (later.unit / unit).square()
        squares = squares + shift.square() * (self.total * later.total / total)
        mean = self.mean + shift * unit * (later.total / total)
        is_beyond = torch.stack([later.ends[0] < self.ends[0], later.ends[1] > self.ends[1]])
        ends, rows = (
            torch.where(is_beyond, b, a) for a, b in ((self.ends, later.ends), (self.end_rows, later.end_rows))
        )
        return Moments(self.count + later.count, total, mean, squares, unit, ends, rows)

    @property
    def deviation(self) -> Tensor:
        """The standard deviations, (d,) or ()."""
        return self.unit * (self.squares / freedom(self.total, self.count)).sqrt()

    def standardizing(self, like: Tensor) -> Affine:
        """Return the map to mean 0 and standard deviation 1.

        The scale of a column that is constant up to rounding is 1, or the rounding error if that is larger.

        Args:
            like: A tensor with the dtype and device of the map.
        """
        mean, deviation, largest = (value.to(like) for value in (self.mean, self.deviation, self.ends.abs().amax(0)))
        rounding = _ROUNDING * largest
        return Affine(mean, torch.where(deviation > rounding, deviation, rounding.clamp_min(1.0)))


@dataclass(frozen=True, eq=False)
class Scaling:
    """The maps of inputs (d,) and targets () to standardized units.

    Attributes:
        targets: The map of targets, () or (k,).
        inputs: The map of inputs, (d,).

    Examples:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> Scaling(Affine.identity(x[:, 0]), Affine.standardizing(x)).standardize(x).tolist()
        [[-0.7071067690849304], [0.7071067690849304]]
    """

    targets: Affine
    inputs: Affine

    def standardize(
        self,
        x: Tensor,  # (n, d)
    ) -> Tensor:  # (n, d)
        """Return standardized inputs, (n, d).

        Args:
            x: The inputs, (n, d).

        Raises:
            DataError: If a standardized value overflows the dtype of the data.
        """
        out = self.inputs.forward(x.to(self.inputs.scale))
        bad = (~torch.isfinite(out)).nonzero()
        if len(bad):
            row, column = bad[0].tolist()
            raise DataError(
                f"X must be in the range of {out.dtype}, got a value in row {row}, column {column} that is too large. "
                "Rescale it."
            )
        return out
