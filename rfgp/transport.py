"""Optimal transport between the norms of two frequencies (Reid et al., 2024, Theorem 3.2), to verify closed forms."""

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
    """Return the cross moments of two orthogonal frequencies by norm quantiles.

    The quantiles of their norms are (i + 1/2) / q and (j + 1/2) / q.

    Args:
        distance: z, or v for positive features.
        num_dims: d, at least 2.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".
        num_quantiles: q.

    Examples:
        >>> from rfgp import transport
        >>> transport.transport_costs(1.0, 3, num_quantiles=4).shape
        (4, 4)
    """
    u = (torch.arange(num_quantiles, dtype=torch.float64) + 0.5) / num_quantiles
    norms = (spectrum or Gaussian()).radial_quantile(u, num_dims).numpy()
    return np.asarray(direction_average(features, num_dims)(np.hypot(norms[:, None], norms) * distance))


def optimal_norm_coupling(costs: Array) -> Array:  # (q, q)
    """Return the plan (q, q) of minimal cost between two uniform distributions.

    The distributions are on q quantiles, and the plan is from POT. It solves the two-marginal problem of Reid et al.
    (2024), Theorem 3.2, without assumptions about its solution.

    Args:
        costs: (q, q), from `transport_costs`.

    Examples:
        >>> from rfgp import transport
        >>> plan = transport.optimal_norm_coupling(transport.transport_costs(0.5, 3, num_quantiles=4))
        >>> np.fliplr(plan).diagonal().tolist()  # negatively monotone
        [0.25, 0.25, 0.25, 0.25]
    """
    with requires_extra("graphs"):
        import ot

    q = len(costs)
    uniform = np.full(q, 1 / q)
    return np.asarray(ot.emd(uniform, uniform, np.ascontiguousarray(costs)))


def monotone_threshold(
    num_dims: int, *, spectrum: Spectrum | None = None, num_quantiles: int = 64, largest: float = 20.0
) -> float:
    """Return the z up to which negatively monotone norms solve optimal transport.

    The transport problem is that of Fourier features. If C(sqrt(q) z) is convex in q = r^2 + r'^2, the cost is
    supermodular, and these norms solve it. The second derivative is C in d + 4 dimensions, which is positive up to its
    first zero. So they solve it at least if sqrt(q) z stays below the zero. z is raised in steps of a tenth until the
    plan of POT costs less by more than 10^-9 of the range of the costs. Bisection follows. At very large z all costs
    vanish, and any plan is optimal.

    Args:
        num_dims: d, at least 2.
        spectrum: The spectrum. If None, the Gaussian one.
        num_quantiles: The number of quantiles of the norms.
        largest: The largest z of the search, returned if they are still optimal there.

    Examples:
        >>> from rfgp import transport
        >>> 1.5 < transport.monotone_threshold(4, num_quantiles=8) < 3
        True
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
