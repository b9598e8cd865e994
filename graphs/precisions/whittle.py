"""Whittle-Matern precisions of integer order from a lumped mass matrix C and a stiffness matrix G.

The field x = sum_i x_i h_i of finite elements solves (kappa^2 - Laplacian)^(alpha/2) x = white noise / tau. Let K =
kappa^2 C + G. Section 2.3 of Lindgren, Rue and Lindstrom (2011), "An explicit link between Gaussian fields and Gaussian
Markov random fields", derives the precisions. They are Q_1 = K, Q_2 = K C^-1 K and Q_a = K C^-1 Q_(a-2) C^-1 K, times
tau^2. All of them are

    Q = tau^2 C (C^-1 K)^a = tau^2 sum_j binom(a, j) kappa^(2 (a - j)) G_j,      G_0 = C,   G_j = G (C^-1 G)^(j - 1),

fixed matrices with coefficients. On the infinite plane the variance of the process is

    integral of (kappa^2 + |w|^2)^-alpha d^2 w / (2 pi)^2 / tau^2 = 1 / (4 pi nu kappa^(2 nu) tau^2),   nu = alpha - 1,

so it is 1 for tau^2 = 1 / (4 pi nu kappa^(2 nu)). Then Q = sum_j binom(a, j) x^(1 - j) G_j / (4 pi nu) with x = kappa^2
is invariant under a common scaling of the mesh and the lengthscale. For a = 1 the sum is K itself.

Determinants need factors of K alone: log |Q| = a log |K| - (a - 1) sum_i log(kappa^2 C_ii) - N log(4 pi nu).
"""

from functools import cached_property
from math import comb, log, pi
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.errors import InvalidArgumentError
from graphs.precisions.base import Floats, MarkovField, Pattern, read_lengthscale
from graphs.precisions.elements import Elements
from graphs.precisions.powers import entry_indices, reached_within, symmetric_powers

_WIDEST = 500.0
"""The largest absolute logarithm of dimensionless numbers, so that products of a few stay finite."""


class Term(NamedTuple):
    """A matrix G_j: its entries and their indices on a pattern.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.whittle import Term
        >>> Term(np.array([0, 3]), np.array([1.0, 2.0])).entries.sum().item()
        3.0
    """

    entry_indices: NDArray[np.int64]  # (m,)
    entries: Floats  # (m,)


class WhittleField(MarkovField):
    """The precision of order alpha, with kappa^2 = ratio / lengthscale^2.

    Args:
        elements: The matrices C and G.
        order: The order alpha, a positive integer.
        ratio: kappa^2 lengthscale^2.
        norm: The divisor of the sum, 4 pi nu for variance 1 on the plane.
        coordinates: Coordinates (N, 2) or (N, 3) of the vertices for orderings. If None, they are unknown.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.elements import read_mesh
        >>> from graphs.precisions.whittle import WhittleField, unit_norm
        >>> mesh = read_mesh(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)]))
        >>> WhittleField(mesh.elements, 2, 2.0, unit_norm(2)).entries(np.array([1.0])).shape
        (9,)
    """

    parameters = ("lengthscale",)

    def __init__(
        self, elements: Elements, order: int, ratio: float, norm: float, coordinates: Floats | None = None
    ) -> None:
        self.order, self.ratio, self.norm, self.coordinates = order, ratio, norm, coordinates
        self._elements = elements
        self._pattern = reached_within(
            elements.stiffness, order, f"{len(elements.masses):,} vertices", "Take a smaller alpha, or a coarser mesh."
        )
        step = sp.csr_array(sp.diags_array(1 / elements.masses) @ elements.stiffness)
        powers = symmetric_powers(sp.csr_array(sp.diags_array(elements.masses)), step, order)
        self._terms = [Term(entry_indices(matrix, self._pattern), matrix.data) for matrix in powers]

    @property
    def pattern(self) -> Pattern:
        """Vertices within alpha edges of each other."""
        return self._pattern

    @np.errstate(under="ignore")
    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries of Q on the pattern.

        Args:
            values: The lengthscale (1,).
        """
        out = np.zeros(len(self._pattern.indices))
        for term, coefficient in zip(self._terms, self._coefficients(values), strict=True):
            out[term.entry_indices] += coefficient * term.entries
        return out

    @np.errstate(under="ignore")
    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / d lengthscale.

        Args:
            values: The lengthscale (1,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        slopes = 2 * (np.arange(self.order + 1) - 1) * self._coefficients(values) / float(values[0])
        inner = [float(weights[term.entry_indices] @ term.entries) for term in self._terms]
        return np.array([slopes @ inner])

    def log_determinant_from(
        self,
        values: Floats,  # (1,)
        root: tuple[float, Floats],  # log |K|, (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivative (1,), given those of log |K|.

        Args:
            values: The lengthscale (1,).
            root: log |K| and its derivative (1,) in the lengthscale.
        """
        masses, times = self._elements.masses, self.order - 1
        constant = times * float(np.log(self.shift(values) * masses).sum()) + len(masses) * log(self.norm)
        slope = self.order * root[1] + 2 * times * len(masses) / float(values[0])
        return self.order * root[0] - constant, slope

    def condition(
        self,
        values: Floats,  # (1,)
    ) -> float:
        """Return a bound of the condition number of C^(-1/2) Q C^(-1/2).

        Args:
            values: The lengthscale (1,).
        """
        with np.errstate(over="ignore"):
            return float(np.power(1 + self._steepest / self.shift(values), float(self.order)))

    def shift(
        self,
        values: Floats,  # (1,)
    ) -> float:
        """Return kappa^2 in the unit of the elements.

        Args:
            values: The lengthscale (1,).

        Raises:
            InvalidArgumentError: If the lengthscale is not a positive number, or out of range for the mesh.
        """
        lengthscale = read_lengthscale(values)
        with np.errstate(all="ignore"):
            shift = float(self.ratio * np.square(self._elements.unit / lengthscale))
            largest = np.log(shift) + self.order * np.log1p(np.divide(self._steepest, shift))  # of C^-1 Q
        if not abs(largest) < _WIDEST:
            raise InvalidArgumentError(
                f"The lengthscale must be in the range of a mesh with coordinates up to {self._elements.unit:.3g}, got "
                f"{lengthscale:.3g}. Use the same unit for both; other lengthscales are out of range."
            )
        return shift

    @cached_property
    def _steepest(self) -> float:
        """The largest row sum of |C^-1 G|, a bound of its largest eigenvalue."""
        return float((np.asarray(abs(self._elements.stiffness).sum(axis=1)) / self._elements.masses).max())

    def _coefficients(self, values: Floats) -> Floats:
        """Return binom(a, j) x^(1 - j) / norm, (a + 1,)."""
        shift, a = self.shift(values), self.order
        return np.array([comb(a, j) * shift ** (1 - j) for j in range(a + 1)]) / self.norm


def unit_norm(order: int) -> float:
    """Return 4 pi nu with nu = order - 1, or 1 for order 1 (infinite variance).

    Args:
        order: The order alpha.

    Examples:
        >>> from graphs.precisions.whittle import unit_norm
        >>> round(unit_norm(2), 4), unit_norm(1)
        (12.5664, 1.0)
    """
    return 4 * pi * (order - 1) if order > 1 else 1.0
