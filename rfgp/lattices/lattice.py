"""Lattices of frequencies, and features of points by their modes.

With frequencies j h for integer vectors j, a stationary process on a box is nearly

    f(x) = sum_j sqrt(D_j) w_j phi_j(x),   D_j = prod(h) S(j h).

S is the spectral density in cycles per unit. phi are the functions 1, sqrt(2) cos(2 pi j h . x) and sqrt(2) sin(...)
of half of the modes. The process of the sum is periodic. Its covariance is the sum of all images of k.

Source: Greengard, Rachh and Barnett (2022), Equispaced Fourier representations for efficient Gaussian process
regression from a billion data points, Eq. 3.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lattice:
    """Frequencies k h with integers |k_c| <= K_c, for points in a box.

    Attributes:
        column_indices: The indices of the d columns among those of the rows.
        low: The lower ends of the box of all rows, (d,).
        high: The upper ends, (d,).
        spacing: The spacing h, (d,). The process has the period 1 / h_c in column c.
        half_widths: The largest integers K, (d,).

    Examples:
        >>> lattice = Lattice((0,), np.zeros(1), np.ones(1), spacing=np.array([0.5]), half_widths=np.array([2]))
        >>> lattice.shape, lattice.contains(torch.tensor([[0.5], [1.5]])).tolist()
        ((5,), [True, False])
    """

    column_indices: tuple[int, ...]
    low: Floats
    high: Floats
    spacing: Floats
    half_widths: Integers

    @property
    def num_columns(self) -> int:
        """The number d of columns."""
        return len(self.column_indices)

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers 2 K_c + 1 of integers k_c."""
        return tuple(int(2 * k + 1) for k in self.half_widths)

    @property
    def doubled_shape(self) -> tuple[int, ...]:
        """The numbers 4 K_c + 1 of differences of two integers k_c."""
        return tuple(int(4 * k + 1) for k in self.half_widths)

    @cached_property
    def center(self) -> Floats:
        """The middle of the box, (d,)."""
        return 0.5 * self.low + 0.5 * self.high

    def columns(self, x: Tensor) -> Tensor:
        """Return the columns of rows (n, D) that the lattice covers, (n, d), float64.

        Args:
            x: The rows, (n, D).
        """
        return x[:, list(self.column_indices)].double()

    def angles(self, points: Tensor) -> Floats:
        """Return 2 pi h (x - center) of points (n, d), in radians.

        Args:
            points: The points, (n, d).

        Returns:
            The angles, (n, d).
        """
        angles: Floats = 2 * np.pi * self.spacing * (points.detach().numpy() - self.center)
        return angles

    def contains(self, points: Tensor, slack: float = 1e-9) -> Tensor:
        """Return whether points (n, d) are in the box, up to a relative margin, (n,).

        Args:
            points: The points, (n, d).
            slack: The margin, relative to the extent of the box.
        """
        low, high = torch.as_tensor(self.low), torch.as_tensor(self.high)
        margin = slack * (high - low)
        return ((points >= low - margin) & (points <= high + margin)).all(1)

    def joined(self, other: "Lattice") -> "Lattice":
        """Return a lattice with the periods and the bandwidths of two lattices.

        Both are on the same columns.

        Args:
            other: The other lattice.
        """
        spacing = np.minimum(self.spacing, other.spacing)
        widths = [np.ceil(lattice.half_widths * lattice.spacing / spacing) for lattice in (self, other)]
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Lattice(self.column_indices, low, high, spacing, np.maximum(*widths).astype(np.int64))

    def same_as(self, other: "Lattice") -> bool:
        """Return whether another lattice has the same columns and frequencies.

        Args:
            other: The other lattice.
        """
        pairs = ((self.low, other.low), (self.high, other.high), (self.spacing, other.spacing))
        arrays = (*pairs, (self.half_widths, other.half_widths))
        return self.column_indices == other.column_indices and all(np.array_equal(a, b) for a, b in arrays)


@dataclass(frozen=True, eq=False)
class Modes:
    """The modes of a lattice as features: the constant, and one of each pair j and -j.

    Attributes:
        lattice: The lattice.
        indices: The integer vectors j without 0, (p, d).

    Examples:
        >>> lattice = Lattice((0,), np.zeros(1), np.ones(1), np.array([0.5]), np.array([2]))
        >>> Modes(lattice, np.array([[1], [2]])).features(torch.tensor([[0.5]]).double()).round(decimals=3)
        tensor([[1.0000, 1.4140, 1.4140, 0.0000, 0.0000]], dtype=torch.float64)
    """

    lattice: Lattice
    indices: Integers

    @property
    def num_features(self) -> int:
        """The number 2 p + 1 of features."""
        return 2 * len(self.indices) + 1

    @cached_property
    def frequencies(self) -> Tensor:
        """The frequencies (p + 1, d) in cycles per unit, the constant first."""
        zero = np.zeros((1, self.lattice.num_columns))
        return torch.as_tensor(np.concatenate([zero, self.indices * self.lattice.spacing]))

    def by_feature(self, values: Tensor) -> Tensor:
        """Return values (p + 1,) of the modes as values (2 p + 1,) of the features.

        Args:
            values: The values of the modes, the constant first, (p + 1,).
        """
        return torch.cat([values, values[1:]])

    def features(self, points: Tensor) -> Tensor:
        """Return 1, sqrt(2) cos and sqrt(2) sin of the modes at points.

        The features are float64 and differentiable.

        Args:
            points: The points, (n, d), float64.

        Returns:
            The features, (n, 2 p + 1).
        """
        center = torch.as_tensor(self.lattice.center)
        angles = (2 * math.pi) * ((points - center) @ self.frequencies[1:].mT)
        root = math.sqrt(2)
        return torch.cat([torch.ones_like(points[:, :1]), root * angles.cos(), root * angles.sin()], dim=1)
