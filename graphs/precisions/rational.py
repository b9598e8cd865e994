"""Fractional powers of the resolvent on a graph as sums of fields with sparse precisions.

With t = lambda + x in [x, x + 2] and a fractional order b = q + f, 0 < f < 1,

    t^-b ~ x^-f sum_i w_i t^-q / (t / x + p_i),    (w, p) of `graphs.fractions` for R = 1 + 2 / x,

so that the process is approximately the sum of m independent fields with precisions (L + x)^q (L + x (1 + p_i)) x^(f -
1) / w_i. The relative error of the spectrum of the kernel is that of the fractions, for every graph. The m values of a
node are next to each other, and the projector sums them.

Source: Bolin, Simas and Xiong (2024), "Covariance-based rational approximations of fractional SPDEs for computationally
efficient Bayesian inference", Section 3, with other fractions.
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.cholesky import Factor
from graphs.errors import NotPositiveDefiniteError
from graphs.fractions import fractional_power, min_num_terms
from graphs.graph import Graph
from graphs.precisions.base import Floats, MarkovField, Pattern
from graphs.precisions.resolvent import ResolventField, resolvent_field

SPECTRAL_ERROR = 1e-3
"""The relative spectral error of the default number of fields."""


def default_num_terms(order: float, shift: float) -> int:
    """Return the minimum number of fields with relative error <= `SPECTRAL_ERROR`.

    Args:
        order: The fractional order.
        shift: The shift x.

    Raises:
        InvalidArgumentError: If the order is an integer.

    Examples:
        >>> from graphs.precisions import default_num_terms
        >>> default_num_terms(1.5, 0.1)
        3
    """
    return min_num_terms(order - math.floor(order), _log_range(shift), SPECTRAL_ERROR)


class _Blocks(NamedTuple):
    """Polynomials in L of the m fields, with derivatives in log x."""

    coefficients: Floats  # (m, q + 2), of the powers of L
    slopes: Floats  # (m, q + 2)


class RationalField(MarkovField):
    """m N latent values whose sum has approximately the covariance (L + x)^-b.

    The m values of a node are next to each other.

    Args:
        graph: The graph.
        order: The order b, positive and fractional.
        terms: The number m of fields.

    Raises:
        InvalidArgumentError: If the order is an integer, or the number of terms is out of range.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions import RationalField
        >>> field = RationalField(graphs.Graph.from_grid((3, 3)), order=1.5, terms=3)
        >>> field.projector(np.arange(9)).shape, field.error(0.1) < 1e-3
        ((9, 27), True)
    """

    parameters = ("shift",)

    def __init__(self, graph: Graph, order: float, terms: int) -> None:
        self.order, self.terms = order, terms
        self.fractions = fractional_power(order - math.floor(order), terms)
        self._floor = math.floor(order)
        self._resolvent: ResolventField = resolvent_field(graph, self._floor + 1)
        first: ResolventField = resolvent_field(graph, 1)
        self._log_determinants, self._size = first.log_determinants, graph.num_nodes
        self.coordinates = None if graph.coordinates is None else np.repeat(graph.coordinates, terms, axis=0)

    def error(self, shift: float) -> float:
        """Return the largest relative error of the spectrum for lambda in [0, 2].

        Args:
            shift: The shift x, positive.
        """
        return self.fractions.error(_log_range(shift))

    @cached_property
    def pattern(self) -> Pattern:
        """Values of one field at nodes within q + 1 edges, and all values of one node."""
        return self._layout[0]

    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries of the m precisions; those between fields are 0.

        Args:
            values: The shift x, (1,).
        """
        blocks = self._blocks(float(values[0]))
        out = np.zeros(len(self.pattern.indices))
        for i, entry_indices in enumerate(self._layout[1]):
            out[entry_indices] = blocks.coefficients[i] @ self._resolvent.powers
        return out

    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / dx.

        Args:
            values: The shift x, (1,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        shift = float(values[0])
        slopes, total = self._blocks(shift).slopes, 0.0
        for i, entry_indices in enumerate(self._layout[1]):
            total += float(slopes[i] @ (self._resolvent.powers @ weights[entry_indices]))
        return np.array([total / shift])

    def factor(
        self,
        data: Floats,  # (nnz,)
    ) -> Factor:
        """Return the Cholesky factor of a matrix on the pattern.

        Args:
            data: The entries (nnz,) of the matrix on the pattern.

        Raises:
            NotPositiveDefiniteError: If the matrix is not positive definite. `node` is a position on the graph.
            MemoryBudgetError: If the factor does not fit into memory. Nothing was computed.
        """
        try:
            return super().factor(data)
        except NotPositiveDefiniteError as error:
            raise NotPositiveDefiniteError.at((error.node or 0) // self.terms) from error

    def log_determinant(
        self,
        values: Floats,  # (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| = sum_i q log |L + x| + log |L + x (1 + p_i)| - N log(w_i x^(1 - f)), and its derivative.

        Args:
            values: The shift x, (1,).
        """
        x, (f, q, size) = float(values[0]), (self.fractions.power, self._floor, self._size)
        fraction = self.fractions.at(_log_range(x))
        log_det, log_det_slope = self._log_determinants(x) if q else (0.0, 0.0)
        total = self.terms * (q * log_det - size * (1 - f) * math.log(x)) - size * float(np.log(fraction.weights).sum())
        slope = self.terms * (q * log_det_slope * x - size * (1 - f))
        widening = _widening(x)
        for pole, weight, bend, gain in zip(*fraction, strict=True):
            value, value_slope = self._log_determinants(x * (1 + pole))
            total += value
            slope += value_slope * x * (1 + pole + bend * widening) - size * gain * widening / weight
        return total, np.array([slope / x])

    def _blocks(self, x: float) -> _Blocks:
        """Return the polynomials at a shift x."""
        f, q, fraction, widening = self.fractions.power, self._floor, self.fractions.at(_log_range(x)), _widening(x)
        power = np.array([math.comb(q, j) * x ** (q - j) for j in range(q + 1)])
        power_slope = power * (q - np.arange(q + 1))
        rows, slopes = [], []
        for pole, weight, bend, gain in zip(*fraction, strict=True):
            shift, moved = x * (1 + pole), x * (1 + pole + bend * widening)
            scale = x ** (f - 1) / weight
            coefficients = np.append(shift * power, 0.0) + np.append(0.0, power)
            change = np.append(moved * power + shift * power_slope, 0.0) + np.append(0.0, power_slope)
            rows.append(scale * coefficients)
            slopes.append(scale * (change + (f - 1 - gain * widening / weight) * coefficients))
        return _Blocks(np.array(rows), np.array(slopes))

    @cached_property
    def _layout(self) -> tuple[Pattern, NDArray[np.int64]]:
        """The pattern, and the indices (m, nnz of a field) of each field's entries."""
        indptr, indices = self._resolvent.pattern
        m, count = self.terms, len(indices)
        degree = np.diff(indptr)
        width = np.repeat(degree + m - 1, m)  # of the rows: entries of a field, and the other values of the node
        starts = np.concatenate([[0], np.cumsum(width)])
        rows = np.repeat(np.arange(self._size), degree)
        is_diagonal = indices == rows
        before = np.arange(count) - indptr[rows]  # entries before it in its row
        later = (indices > rows).astype(np.int64)
        out = np.empty(starts[-1], dtype=np.int64)
        entry_indices = np.empty((m, count), dtype=np.int64)
        for i in range(m):  # fields 0..i-1 of the node come before an entry at or after the diagonal
            row_starts = starts[rows * m + i]
            entry_indices[i] = row_starts + before + np.where(is_diagonal, i, later * (m - 1))
            out[entry_indices[i]] = indices.astype(np.int64) * m + i
            diagonal = row_starts[is_diagonal] + before[is_diagonal]
            for j in range(m):
                out[diagonal + j] = rows[is_diagonal] * m + j
        return Pattern(starts, out.astype(np.int32)), entry_indices

    def projector(
        self,
        positions: NDArray[np.int64],  # (n,)
    ) -> sp.csr_array:  # (n, m N)
        """Return the matrix that sums the values of the nodes at n positions.

        Args:
            positions: Positions (n,) of nodes of the graph.
        """
        columns = (positions[:, None] * self.terms + np.arange(self.terms)).ravel()
        starts = np.arange(0, len(columns) + 1, self.terms)
        return sp.csr_array((np.ones(len(columns)), columns, starts), shape=(len(positions), self.terms * self._size))


def _log_range(shift: float) -> float:
    """Return log R = log(1 + 2 / x)."""
    return math.log1p(2 / shift)


def _widening(shift: float) -> float:
    """Return d log R / d log x = -2 / (x + 2)."""
    return -2 / (shift + 2)
