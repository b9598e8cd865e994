"""Optimal transport between the norms of two frequencies: an oracle (couplings paper, Theorem 3.2)."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp.errors import requires_extra
from rfgp.special import direction_average
from rfgp.spectra import Gaussian, Spectrum

Array = NDArray[Any]


def transport_costs(
    distance: float,
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
    num_quantiles: int = 64,
) -> Array:  # (q, q)
    """Return the cross moments of two orthogonal frequencies whose norms are quantiles (i + 1/2) / q and (j + 1/2) / q.

    Args:
        distance: z, or v for positive features.
        num_dims: d, at least 2.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
        num_quantiles: q.
    """
    u = (torch.arange(num_quantiles, dtype=torch.float64) + 0.5) / num_quantiles
    norms = (spectrum or Gaussian()).radial_quantile(u, num_dims).numpy()
    return np.asarray(direction_average(features, num_dims)(np.hypot(norms[:, None], norms) * distance))


def optimal_norm_coupling(costs: Array) -> Array:  # (q, q)
    """Return the plan (q, q) of least cost between two uniform laws on q quantiles, solved by POT.

    The two-marginal problem of the couplings paper, Theorem 3.2, without any assumption about its solution.

    Args:
        costs: (q, q), from `transport_costs`.
    """
    with requires_extra("graphs"):
        import ot

    q = len(costs)
    uniform = np.full(q, 1 / q)
    return np.asarray(ot.emd(uniform, uniform, np.ascontiguousarray(costs)))


def monotone_threshold(
    num_dims: int, *, spectrum: Spectrum | None = None, num_quantiles: int = 64, largest: float = 20.0
) -> float:
    """Return the z up to which negatively monotone norms solve the transport problem of Fourier features.

    With C(sqrt(q) z) convex in q = r^2 + r'^2 the cost is supermodular and they do; the second derivative is C in d + 4
    dimensions, positive up to its first zero, so they do at least while sqrt(q) z stays below it. z rises in steps of a
    tenth until POT's plan costs less, by more than 10^-9 of the costs' spread; then follows bisection. (At very large z
    all costs vanish, and any plan would do.)

    Args:
        num_dims: d, at least 2.
        spectrum: None: Gaussian.
        num_quantiles: The norms' quantiles.
        largest: Where the search ends; returned if they solve it there still.
    """

    def solves(z: float) -> bool:
        costs = transport_costs(z, num_dims, spectrum=spectrum, num_quantiles=num_quantiles)
        best = float((optimal_norm_coupling(costs) * costs).sum())
        return float(np.fliplr(costs).diagonal().mean()) <= best + 1e-9 * float(np.ptp(costs))

    high = 0.1
    while solves(high):
        high *= 1.1
        if high > largest:
            return largest
    low = high / 1.1
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if solves(middle) else (low, middle)
    return low
