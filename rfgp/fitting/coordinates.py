"""Coordinates of a search: functions of the logarithms of hyperparameters that vary on one scale."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rfgp.fitting.mean_variances import Shift
from rfgp.parameters import ParameterSpace

Floats = NDArray[np.float64]
Limits = tuple[float | None, float | None]

_FADED = 0.1
"""The lengthscale e^f beyond which a column has hardly any effect, relative to its upper bound.

On 8 tables at 50 to 600 rows, 0.03 lowers likelihoods by up to 0.5 nats in longer searches, and 0.003 by up to 3."""
_BACK, _WORTH = 0.03, 0.1
"""The lengthscale at which a faded column is restarted, relative to e^f, and the least expected gain there, in nats."""


@dataclass(frozen=True)
class Coordinates:
    """Coordinates u of raw numbers x in which lengthscales do not fade.

    A kernel depends on 1 / l^2, so its slope in x = log l fades like 1 / l^2. An irrelevant column takes dozens of
    iterations to reach the upper bound of its lengthscale, and never comes back. The coordinate

        u(x) = -log(e^(-2x) + e^(-2f)) / 2,    or u = x for infinite f,

    is the logarithm up to l = e^f and then nearly linear in 1 / l^2, so the slope does not fade.

    Attributes:
        fading: The f of each entry (p,).
        shift: The logarithms of mean variances that are added to raw output scales. If None, there are none.

    Examples:
        >>> coordinates = Coordinates(np.array([np.log(1000.0)]))
        >>> u = coordinates.at(np.log([10.0]))
        >>> np.exp(u).round(3), np.exp(coordinates.raw(u)).round(3)
        (array([10.]), array([10.]))
    """

    fading: Floats
    shift: Shift | None = None

    @classmethod
    def of(cls, space: ParameterSpace, names: Iterable[str], shift: Shift | None = None) -> "Coordinates":
        """Return the coordinates of the raw numbers of some names, concatenated."""
        fades = {name for name, quantity in space.quantities.items() if quantity.fades}
        ends = [high if name in fades else None for name in names for _, high in space.bounds(name)]
        return cls(np.array([np.inf if end is None else np.log(_FADED) + end for end in ends]), shift)

    def at(self, x: Floats) -> Floats:
        """Return the coordinates u (p,) of raw numbers (p,)."""
        return self._faded(x) if self.shift is None else self._faded(x) + self.shift.at(x)

    def raw(self, u: Floats) -> Floats:
        """Return the raw numbers (p,) of coordinates u (p,), each less than f."""
        x = np.asarray(u - 0.5 * np.log1p(-np.exp(2 * np.where(self._fades, u - self.fading, -np.inf))))
        return x if self.shift is None else x - self.shift.at(x)

    def gradient(self, x: Floats, gradient: Floats) -> Floats:
        """Return the gradient (p,) in u from the gradient in raw numbers x (p,)."""
        own = gradient if self.shift is None else self.shift.gradient(x, gradient)
        return own * self.slope(x)

    def slope(self, x: Floats) -> Floats:
        """Return dx / du (p,) of each entry at raw numbers x (p,), without the shift."""
        return np.asarray(1 + np.exp(2 * np.where(self._fades, x - self.fading, -np.inf)))

    def restart(self, x: Floats, gradient: Floats) -> Floats:
        """Return raw numbers (p,) with faded lengthscales shortened if that should gain.

        The gradient in 1 / l^2 = e^(-2x) is -e^(2x) / 2 times the gradient in x. It does not fade, so it estimates the
        gain of a faded column.

        Args:
            x: Raw numbers (p,) at the end of a search.
            gradient: The gradient (p,) of the loss in them, in nats.
        """
        back = self.fading + np.log(_BACK)
        with np.errstate(over="ignore", invalid="ignore"):
            gain = 0.5 * gradient * np.expm1(2 * (x - back))
            return np.where(self._fades & (x > back) & (gain > _WORTH), back, x)

    def limits(self, bounds: Sequence[Limits]) -> list[Limits]:
        """Return the bounds of u (p,) for those of x (p,). Bounds of shifted output scales are of mean variances."""
        low, high = (
            [None if end is None else float(u) for end, u in zip(side, self._faded(np.array(side, float)), strict=True)]
            for side in zip(*bounds, strict=True)
        )
        return list(zip(low, high, strict=True))

    def _faded(self, x: Floats) -> Floats:
        """Return u (p,) of raw numbers (p,) without a shift."""
        u = x.copy()
        u[self._fades] = -0.5 * np.logaddexp(-2 * x[self._fades], -2 * self.fading[self._fades])
        return u

    @property
    def _fades(self) -> NDArray[np.bool_]:
        return np.isfinite(self.fading)
