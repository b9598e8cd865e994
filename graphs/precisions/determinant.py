"""Interpolation of log |L + x| in x, which replaces a factor and its inverse for each x.

With t = log x the function is the sum of log(lambda + e^t) over eigenvalues lambda >= 0, analytic for |Im t| < pi. On a
panel of half-width h its Chebyshev interpolant on n points therefore converges like rho^-n, rho = pi / h + sqrt(1 + (pi
/ h)^2). With the panels of `WIDTH` and the points of `POINTS` the error is about 1e-12 N, and about 1e-10 N for its
derivative x tr (L + x)^-1. Panels are computed on demand.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray

WIDTH = math.log(100.0)
"""The width of a panel in log x, a factor of ten in a lengthscale."""
POINTS = 24
"""The number of points of a panel."""


class LogDeterminant:
    """The interpolant of log |L + x|.

    Args:
        exact: A function that returns log |L + x| at a positive x.

    Examples:
        >>> import math
        >>> from graphs.precisions.determinant import LogDeterminant
        >>> value, slope = LogDeterminant(lambda x: math.log(2 + x))(3.0)
        >>> round(value, 8) == round(math.log(5), 8), round(slope, 8)
        (True, 0.2)
    """

    def __init__(self, exact: Callable[[float], float]) -> None:
        self._exact = exact
        self._panels: dict[int, Chebyshev] = {}

    def __call__(self, x: float) -> tuple[float, float]:
        """Return log |L + x| and its derivative tr (L + x)^-1.

        Args:
            x: A positive number.
        """
        log_x = math.log(x)
        number = math.floor(log_x / WIDTH)
        if number not in self._panels:
            self._panels[number] = self._computed(number)
        panel = self._panels[number]
        return float(panel(log_x)), float(panel.deriv()(log_x)) / x

    def _computed(self, number: int) -> Chebyshev:
        domain = [number * WIDTH, (number + 1) * WIDTH]

        def at(log_x: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.array([self._exact(math.exp(value)) for value in log_x])

        return Chebyshev.interpolate(at, POINTS - 1, domain)
