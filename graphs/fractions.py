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
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray
from scipy.optimize import least_squares

from graphs.checks import check_count
from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]

MAX_TERMS, LEAST = 8, 0.01
WIDEST = math.log(1e8)
"""The largest log R. Wider ranges use its fractions, with larger errors, which `error` returns."""
_POINTS, _NODES, _GRID, _EASED = 40, 16, 400, 6
_NARROWEST = 0.125
"""The smallest log R over the squared number of fractions. Below it the error is about 1e-6, near rounding."""


class PartialFractions(NamedTuple):
    """A sum of partial fractions on [1, R], with derivatives in log R.

    Examples:
        >>> from graphs.fractions import fractional_power
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
        >>> from graphs.fractions import FractionalPower
        >>> fit = FractionalPower(0.5, terms=4)
        >>> bool(fit.error(np.log(1000.0)) < 2e-3)
        True
    """

    def __init__(self, power: float, terms: int) -> None:
        if not LEAST <= power <= 1 - LEAST:
            raise InvalidArgumentError(
                f"The fractional part of a power must lie from {LEAST} to {1 - LEAST}, got {power:g}. Use an integer."
            )
        self.power, self.terms = power, check_count("terms", terms, 1, MAX_TERMS)
        self._domain = (_NARROWEST * terms**2, WIDEST)
        chebyshev_nodes = np.sort(np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS))
        widths = self._domain[0] + (chebyshev_nodes + 1) / 2 * (self._domain[1] - self._domain[0])
        coefficients = np.empty((_POINTS, 2 * terms))
        fitted = min(power, 1 - power)
        start = _spread(0.5, terms, widths[-1])
        for eased in np.geomspace(0.5, fitted, _EASED)[:-1]:
            start = _fitted(eased, terms, widths[-1], start)
        for i in reversed(range(_POINTS)):  # from the widest range to the narrowest, each from the last
            start = coefficients[i] = _fitted(fitted, terms, widths[i], start)
        if fitted < power:
            poles, weights = np.split(coefficients, 2, axis=1)
            coefficients = np.hstack([widths[:, None] - poles, fitted * widths[:, None] + weights - poles])
        self._logs = [Chebyshev.fit(widths, column, _POINTS - 1, self._domain) for column in coefficients.T]
        self._slopes = [series.deriv() for series in self._logs]

    def at(self, width: float) -> PartialFractions:
        """Return the fractions for [1, R], log R = width, with derivatives in the width.

        Args:
            width: log R, at least 0.
        """
        low, high = self._domain
        inside = min(max(width, low), high)
        logs = np.array([series(inside) for series in self._logs])
        slopes = np.array([series(inside) for series in self._slopes]) * (low < width < high)
        values = np.exp(logs)
        m = self.terms
        return PartialFractions(values[:m], values[m:], (values * slopes)[:m], (values * slopes)[m:])

    def error(self, width: float) -> float:
        """Return the largest relative error over [1, R], log R = width.

        Args:
            width: log R, at least 0.
        """
        t = np.exp(np.linspace(0.0, width, _GRID * self.terms))
        fraction = self.at(width)
        return float(np.abs(t**self.power * (fraction.weights / (t[:, None] + fraction.poles)).sum(axis=1) - 1).max())


@lru_cache(maxsize=64)
def fractional_power(power: float, terms: int) -> FractionalPower:
    """Return the cached approximation of a power.

    Args:
        power: The power f, from 0.01 to 0.99.
        terms: The number m of fractions, at most 8.

    Examples:
        >>> from graphs.fractions import fractional_power
        >>> fractional_power(0.5, 3) is fractional_power(0.5, 3)
        True
    """
    return FractionalPower(power, terms)


def min_num_terms(power: float, width: float, error: float) -> int:
    """Return the minimum number of fractions with a relative error of at most `error`.

    It is at most 8, even if the error is then larger.

    Args:
        power: The power f.
        width: The logarithm of R.
        error: The relative error allowed.

    Examples:
        >>> from graphs.fractions import min_num_terms
        >>> min_num_terms(0.5, 3.0, 1e-3)
        3
    """
    counts = range(1, MAX_TERMS)
    return next((m for m in counts if fractional_power(power, m).error(width) <= error), MAX_TERMS)


def _spread(power: float, terms: int, width: float) -> Floats:
    """Return log poles and log weights (2 m,) of the midpoint rule in log s for t^-f.

    t^-f = sin(pi f) / pi times the integral of s^-f / (t + s) ds.
    """
    poles = width * (np.arange(terms) + 0.5) / terms
    return np.concatenate([poles, (1 - power) * poles + math.log(width / terms * math.sin(math.pi * power) / math.pi)])


def _fitted(power: float, terms: int, width: float, start: Floats) -> Floats:
    """Return log poles and log weights (2 m,) of least squared relative error."""
    count = _NODES * terms + 8
    t = np.exp(width * (1 - np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2)[:, None]

    def parts(logs: Floats) -> tuple[Floats, Floats]:
        poles, weights = np.exp(logs[:terms]), np.exp(logs[terms:])
        return t**power * weights / (t + poles), poles / (t + poles)

    def left(logs: Floats) -> Floats:
        return np.asarray(parts(logs)[0].sum(axis=1) - 1)

    def slopes(logs: Floats) -> Floats:
        terms_of, shares = parts(logs)
        return np.concatenate([-terms_of * shares, terms_of], axis=1)

    with np.errstate(over="ignore", invalid="ignore"):
        solution = least_squares(left, start, slopes, method="lm", xtol=1e-14, ftol=1e-14, gtol=1e-14)
    return np.asarray(solution.x, dtype=np.float64)
