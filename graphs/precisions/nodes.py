"""Negative fractional powers as sums of partial fractions, for all ranges at once.

For 0.01 <= f <= 0.99 and t in [1, R]

    t^-f ~ sum_i w_i / (t + p_i),    w_i, p_i > 0.

The logarithms of w and p minimize the mean squared relative error at Chebyshev nodes in log t (Gauss-Newton). The
largest error is nearly that of the best rational approximation, for example 1e-3 with four fractions for R = 1000. The
logarithms are analytic in log R, and are interpolated in it. Replacing t by R / t turns fractions for f into fractions
for 1 - f, with poles R / p, weights R^f w / p and the same errors. Therefore only f <= 1/2 is fitted. Fits of small f
start from fits of larger f, since evenly spread poles may not converge.

Sources: Bolin and Kirchner (2020), "The rational SPDE approach for Gaussian random fields with general smoothness".
Bolin, Simas and Xiong (2024), "Covariance-based rational approximations of fractional SPDEs for computationally
efficient Bayesian inference", also use sums of fractions.
"""

import math
from functools import cached_property, lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray
from scipy.optimize import least_squares

from graphs.arrays import pointers
from graphs.checks import check_count
from graphs.cholesky import Factor
from graphs.errors import InvalidArgumentError, NotPositiveDefiniteError
from graphs.graph import Graph
from graphs.precisions.fields import Floats, MarkovField, ResolventField, SymmetricPattern

MAX_TERMS = 8
"""The largest number of fractions."""
MIN_POWER = 0.01
"""The smallest power. The largest one is 1 - MIN_POWER."""
MAX_LOG_RANGE = math.log(1e8)
"""The largest log R. Wider ranges use its fractions, with larger errors, which `error` returns."""
_NUM_RANGES = 40
"""The number of values of log R at which fractions are fitted, for interpolation."""
_NODES_PER_TERM = 16
"""The number of values of t per fraction at which a fit evaluates errors."""
_GRID_PER_TERM = 400
"""The number of values of t per fraction at which the largest error is searched."""
_NUM_CONTINUATION_STEPS = 6
"""The number of powers from 1/2 to the given power whose fits start each other."""
_MIN_LOG_RANGE_FACTOR = 0.125
"""The smallest log R over the squared number of fractions. Below it the error is about 1e-6, near rounding."""


class PartialFractions(NamedTuple):
    """A sum of partial fractions on [1, R], with derivatives in log R.

    Examples:
        >>> from graphs.precisions.nodes import fractional_power
        >>> fractional_power(0.5, 2).at(3.0).poles.shape
        (2,)
    """

    poles: Floats  # p (m,)
    weights: Floats  # w (m,)
    pole_slopes: Floats  # (m,)
    weight_slopes: Floats  # (m,)


class FractionalPower:
    """Sums of m partial fractions that approximate t^-f, for any range [1, R].

    Args:
        power: The power f, from 0.01 to 0.99.
        terms: The number m of fractions, at most 8.

    Raises:
        InvalidArgumentError: If the power or the number of terms is out of range.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.nodes import FractionalPower
        >>> fit = FractionalPower(0.5, terms=4)
        >>> bool(fit.error(np.log(1000.0)) < 2e-3)
        True
    """

    def __init__(self, power: float, terms: int) -> None:
        if not MIN_POWER <= power <= 1 - MIN_POWER:
            raise InvalidArgumentError(
                f"The fractional part of a power must lie from {MIN_POWER} to {1 - MIN_POWER}, got {power:g}. Use an "
                "integer."
            )
        self.power, self.terms = power, check_count("terms", terms, 1, MAX_TERMS)
        self._domain = (_MIN_LOG_RANGE_FACTOR * terms**2, MAX_LOG_RANGE)
        chebyshev_nodes = np.sort(np.cos(np.pi * (np.arange(_NUM_RANGES) + 0.5) / _NUM_RANGES))
        log_ranges = self._domain[0] + (chebyshev_nodes + 1) / 2 * (self._domain[1] - self._domain[0])
        coefficients = np.empty((_NUM_RANGES, 2 * terms))
        fitted = min(power, 1 - power)
        start = _midpoint_rule(0.5, terms, log_ranges[-1])
        for step_power in np.geomspace(0.5, fitted, _NUM_CONTINUATION_STEPS)[:-1]:
            start = _fitted(step_power, terms, log_ranges[-1], start)
        for i in reversed(range(_NUM_RANGES)):  # from the widest range to the narrowest, each from the last
            start = coefficients[i] = _fitted(fitted, terms, log_ranges[i], start)
        if fitted < power:
            poles, weights = np.split(coefficients, 2, axis=1)
            coefficients = np.hstack([log_ranges[:, None] - poles, fitted * log_ranges[:, None] + weights - poles])
        self._logs = [Chebyshev.fit(log_ranges, column, _NUM_RANGES - 1, self._domain) for column in coefficients.T]
        self._slopes = [series.deriv() for series in self._logs]

    def at(self, log_range: float) -> PartialFractions:
        """Return the fractions for [1, R], with derivatives in log R.

        Args:
            log_range: log R, at least 0.
        """
        low, high = self._domain
        inside = min(max(log_range, low), high)
        logs = np.array([series(inside) for series in self._logs])
        slopes = np.array([series(inside) for series in self._slopes]) * (low < log_range < high)
        values = np.exp(logs)
        m = self.terms
        return PartialFractions(values[:m], values[m:], (values * slopes)[:m], (values * slopes)[m:])

    def error(self, log_range: float) -> float:
        """Return the largest relative error over [1, R].

        Args:
            log_range: log R, at least 0.
        """
        t = np.exp(np.linspace(0.0, log_range, _GRID_PER_TERM * self.terms))
        fraction = self.at(log_range)
        return float(np.abs(t**self.power * (fraction.weights / (t[:, None] + fraction.poles)).sum(axis=1) - 1).max())


@lru_cache(maxsize=64)
def fractional_power(power: float, terms: int) -> FractionalPower:
    """Return the cached approximation of a power.

    Args:
        power: The power f, from 0.01 to 0.99.
        terms: The number m of fractions, at most 8.

    Examples:
        >>> from graphs.precisions.nodes import fractional_power
        >>> fractional_power(0.5, 3) is fractional_power(0.5, 3)
        True
    """
    return FractionalPower(power, terms)


def min_num_terms(power: float, log_range: float, error: float) -> int:
    """Return the minimum number of fractions with a relative error of at most `error`.

    It is at most 8, even if the error is then larger.

    Args:
        power: The power f.
        log_range: The logarithm of R.
        error: The relative error allowed.

    Examples:
        >>> from graphs.precisions.nodes import min_num_terms
        >>> min_num_terms(0.5, 3.0, 1e-3)
        3
    """
    counts = range(1, MAX_TERMS)
    return next((m for m in counts if fractional_power(power, m).error(log_range) <= error), MAX_TERMS)


def _midpoint_rule(power: float, terms: int, log_range: float) -> Floats:
    """Return log poles and log weights (2 m,) of the midpoint rule in log s for t^-f.

    t^-f = sin(pi f) / pi times the integral of s^-f / (t + s) ds.
    """
    poles = log_range * (np.arange(terms) + 0.5) / terms
    return np.concatenate(
        [poles, (1 - power) * poles + math.log(log_range / terms * math.sin(math.pi * power) / math.pi)]
    )


def _fitted(power: float, terms: int, log_range: float, start: Floats) -> Floats:
    """Return log poles and log weights (2 m,) of least squared relative error."""
    count = _NODES_PER_TERM * terms + 8
    t = np.exp(log_range * (1 - np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2)[:, None]

    def terms_and_ratios(logs: Floats) -> tuple[Floats, Floats]:
        poles, weights = np.exp(logs[:terms]), np.exp(logs[terms:])
        return t**power * weights / (t + poles), poles / (t + poles)

    def residuals(logs: Floats) -> Floats:
        return np.asarray(terms_and_ratios(logs)[0].sum(axis=1) - 1)

    def slopes(logs: Floats) -> Floats:
        terms_of, ratios = terms_and_ratios(logs)
        return np.concatenate([-terms_of * ratios, terms_of], axis=1)

    with np.errstate(over="ignore", invalid="ignore"):
        solution = least_squares(residuals, start, slopes, method="lm", xtol=1e-14, ftol=1e-14, gtol=1e-14)
    return np.asarray(solution.x, dtype=np.float64)


# --- The field with precision (L + x)^p on a graph, for kernels that are powers of the resolvent ---------------------


MAX_POWERS = 16
"""The largest order."""
_CACHE: "WeakKeyDictionary[Graph, dict[int, ResolventField]]" = WeakKeyDictionary()
"""The fields of each graph by their order."""


def resolvent_field(graph: Graph, order: int) -> ResolventField:
    """Return the field with precision (L + x)^p on a graph, cached with the graph.

    Args:
        graph: The graph.
        order: The power p, a positive integer.

    Raises:
        InvalidArgumentError: If the order is out of range.

    Examples:
        >>> import graphs
        >>> from graphs.precisions import resolvent_field
        >>> g = graphs.Graph.from_grid((3, 3))
        >>> resolvent_field(g, 2) is resolvent_field(g, 2)
        True
    """
    fields = _CACHE.setdefault(graph, {})
    order = check_count("order", order, 1, MAX_POWERS)
    if order not in fields:
        identity = sp.eye_array(graph.num_nodes, format="csr")
        fields[order] = ResolventField(sp.csr_array(identity - graph.shift_operator), order, graph.coordinates)
    return fields[order]


# --- Fractional powers of the resolvent on a graph as sums of fields with sparse precisions --------------------------
#
# With t = lambda + x in [x, x + 2] and a fractional order b = q + f, 0 < f < 1,
#
#     t^-b ~ x^-f sum_i w_i t^-q / (t / x + p_i),    (w, p) of `graphs.precisions.nodes` for R = 1 + 2 / x,
#
# so that the process is approximately the sum of m independent fields with precisions (L + x)^q (L + x (1 + p_i)) x^(f
# - 1) / w_i. The relative error of the spectrum of the kernel is that of the fractions, for every graph. The m values
# of a node are next to each other, and the projector sums them.
#
# Source: Bolin, Simas and Xiong (2024), "Covariance-based rational approximations of fractional SPDEs for
# computationally efficient Bayesian inference", Section 3, with other fractions.


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
    def pattern(self) -> SymmetricPattern:
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
        for i, entry in enumerate(self._layout[1]):
            out[entry] = blocks.coefficients[i] @ self._resolvent.powers
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
        for i, entry in enumerate(self._layout[1]):
            total += float(slopes[i] @ (self._resolvent.powers @ weights[entry]))
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
    def _layout(self) -> tuple[SymmetricPattern, NDArray[np.int64]]:
        """The pattern, and the indices (m, nnz of a field) of each field's entries."""
        indptr, indices = self._resolvent.pattern
        m, count = self.terms, len(indices)
        degree = np.diff(indptr)
        width = np.repeat(degree + m - 1, m)  # of the rows: entries of a field, and the other values of the node
        starts = pointers(width)
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
        return SymmetricPattern(starts, out.astype(np.int32)), entry_indices

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
