"""log |L + x| as a function of x, interpolated: once for a matrix, in place of a factor for each x and its inverse.

With t = log x the function is the sum of log(lambda + e^t) over eigenvalues lambda >= 0, analytic for |Im t| < pi. On a
panel of half-width h its Chebyshev interpolant on n points therefore converges as rho^-n, rho = pi / h + sqrt(1 +
(pi / h)^2): with the panels of `WIDTH` and the points of `POINTS` below, to some 1e-12 N, and its derivative x tr (L +
x)^-1 to some 1e-10 N. Panels are computed when first asked for.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray

WIDTH = math.log(100.0)
"""Of a panel, in log x: a factor of ten in a lengthscale."""
POINTS = 24


class LogDeterminant:
    """The interpolant.

    Args:
        exact: Computes log |L + x| at a positive x.
    """

    def __init__(self, exact: Callable[[float], float]) -> None:
        self._exact = exact
        self._panels: dict[int, Chebyshev] = {}

    def __call__(self, x: float) -> tuple[float, float]:
        """Return log |L + x| and its derivative tr (L + x)^-1."""
        place = math.log(x)
        number = math.floor(place / WIDTH)
        if number not in self._panels:
            self._panels[number] = self._computed(number)
        panel = self._panels[number]
        return float(panel(place)), float(panel.deriv()(place)) / x

    def _computed(self, number: int) -> Chebyshev:
        domain = [number * WIDTH, (number + 1) * WIDTH]

        def at(places: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.array([self._exact(math.exp(place)) for place in places])

        return Chebyshev.interpolate(at, POINTS - 1, domain)
