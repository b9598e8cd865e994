"""Theorem 3.2 of Reid et al. (2024): up to which distance pairwise norms are optimal, and where they do harm."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize

from benchmarks.record import Entries, Figure, Scale, Value, figure
from rfgp import spectra, theory
from rfgp.special import direction_average

DIMS, DISTANCES = (2, 3, 5, 8, 16), (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


def ratio(distance: float, d: int) -> float:
    """Return the variance of m = d pairwise frequencies relative to orthogonal ones with independent norms."""
    pairwise, orthogonal = (float(theory.variance(name, distance, d, d)) for name in ("pairwise", "orthogonal"))
    return pairwise / orthogonal


def crossing(d: int) -> float:
    """Return the smallest distance at which pairwise norms are no better than independent ones."""
    grid = np.arange(0.5, 6, 0.05)
    first = next(z for z in grid if ratio(z, d) > 1)
    return float(optimize.brentq(lambda z: ratio(z, d) - 1, first - 0.05, first))


def transport_costs(distance: float, d: int, num_quantiles: int) -> NDArray[np.float64]:
    """Return the cross moments (q, q) of two orthogonal frequencies at q quantiles of their norms."""
    u = (torch.arange(num_quantiles, dtype=torch.float64) + 0.5) / num_quantiles
    norms = spectra.Gaussian().radial_quantile(u, d).numpy()
    return np.asarray(direction_average("fourier", d)(np.hypot(norms[:, None], norms) * distance))


def monotone_threshold(d: int, num_quantiles: int, largest: float = 20.0) -> float:
    """Return the z up to which negatively monotone norms solve optimal transport.

    If C(sqrt(q) z) is convex in q = r^2 + r'^2, the cost is supermodular, and these norms solve it. The second
    derivative is C in d + 4 dimensions, which is positive up to its first zero. So they solve it at least if sqrt(q) z
    stays below the zero. z is raised in steps of a tenth until the plan of POT costs less by more than 10^-9 of the
    range of the costs. Bisection follows. At very large z all costs vanish, and any plan is optimal.
    """
    import ot

    uniform = np.full(num_quantiles, 1 / num_quantiles)

    def solves(z: float) -> bool:
        costs = transport_costs(z, d, num_quantiles)
        best = float((ot.emd(uniform, uniform, np.ascontiguousarray(costs)) * costs).sum())
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


@figure("negatively monotone norms of two orthogonal frequencies (couplings paper, Theorem 3.2)")
def norms(scale: Scale) -> Entries:
    """Return thresholds of the distance and ratios of variances by dimension.

    Fourier features of the Gaussian kernel, m = d, z = |x - y| in lengthscales. Variances in closed form
    (`rfgp.theory.variance`). The optimum over all couplings of the norms of a pair is a linear program on 64 quantiles
    (`monotone_threshold` in `benchmarks/papers/own/norms.py`). The theorem claims optimality for small z only.
    """
    values = []
    for d in DIMS:
        threshold = monotone_threshold(d, scale(64, least=16))
        values.append(Value(f"d = {d}, pairwise norms are optimal up to z", threshold))
        values.append(Value(f"d = {d}, pairwise norms are worse than independent ones from z", crossing(d)))
        values += [Value(f"d = {d}, z = {z:g}: variance, pairwise / orthogonal", ratio(z, d)) for z in DISTANCES]
    return values


FIGURES: dict[str, Figure] = {"norms": norms}
