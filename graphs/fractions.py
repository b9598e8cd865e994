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
        >>> from graphs.fractions import fractional_power
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
        >>> from graphs.fractions import min_num_terms
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
