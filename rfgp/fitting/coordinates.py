"""Coordinates of a search: functions of the logarithms of hyperparameters that vary on one scale."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rfgp.fitting.mean_variances import Shift
from rfgp.parameters import Space

Floats = NDArray[np.float64]
Limits = tuple[float | None, float | None]

_FADED = 0.1
"""Of the largest lengthscale (10^4 deviations of a column): beyond it a column has hardly any effect.

On 8 tables at 50 to 600 rows, .03 leads to likelihoods lower by up to .5 nats in longer searches, and .003 by up to 3.
"""
_BACK, _WORTH = 0.03, 0.1
"""Of e^f: where a column is put that was given up, and the nats that it must promise there."""


@dataclass(frozen=True)
class Coordinates:
    """Coordinates u(x) = -log(e^(-2x) + e^(-2f)) / 2 of raw numbers x = log l; where f is infinite, u = x.

    A kernel depends on 1 / l^2, so in log l the slope fades like 1 / l^2: a column that has once been given up does not
    come back, and one that should be given up creeps towards the bound for dozens of iterations. In u, the logarithm up
    to l = e^f and then as good as linear in 1 / l^2, neither happens.

    Attributes:
        fading: f of each entry (p,).
        shift: The logarithms of mean variances that are added to raw output scales. If None, there are none.
    """

    fading: Floats
    shift: Shift | None = None

    @classmethod
    def of(cls, space: Space, names: Iterable[str], shift: Shift | None = None) -> "Coordinates":
        """Return those of the raw numbers of some names, one after the other."""
        fades = {name for name, quantity in space.quantities.items() if quantity.fades}
        ends = [high if name in fades else None for name in names for _, high in space.bounds(name)]
        return cls(np.array([np.inf if end is None else np.log(_FADED) + end for end in ends]), shift)

    def at(self, x: Floats) -> Floats:
        """Return u (p,) of raw numbers (p,)."""
        return self._faded(x) if self.shift is None else self._faded(x) + self.shift.at(x)

    def raw(self, u: Floats) -> Floats:
        """Return raw numbers (p,) of u (p,), each less than f."""
        x = np.asarray(u - 0.5 * np.log1p(-np.exp(2 * np.where(self._fades, u - self.fading, -np.inf))))
        return x if self.shift is None else x - self.shift.at(x)

    def gradient(self, x: Floats, gradient: Floats) -> Floats:
        """Return the gradient (p,) in u, given that in raw numbers x (p,)."""
        own = gradient if self.shift is None else self.shift.gradient(x, gradient)
        return own * self.slope(x)

    def slope(self, x: Floats) -> Floats:
        """Return dx / du (p,) of each entry at raw numbers x (p,), the shift aside."""
        return np.asarray(1 + np.exp(2 * np.where(self._fades, x - self.fading, -np.inf)))

    def restart(self, x: Floats, gradient: Floats) -> Floats:
        """Return raw numbers (p,), those of faded lengthscales shorter where the objective would gain by it.

        Args:
            x: Raw numbers (p,) where a search has ended.
            gradient: Of the loss in them, (p,), in nats. That in 1 / l^2 = e^(-2x) is -e^(2x) / 2 times as much, which
                does not fade, and tells what a column has to say that was given up.
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
