"""Theorem 3.2 of Reid et al. (2024): up to which distance pairwise norms are optimal, and where they do harm."""

import numpy as np
from scipy import optimize

from benchmarks.record import Result, Scale, Value
from rfgp import theory, transport

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


def norms(scale: Scale) -> Result:
    """Return thresholds of the distance and ratios of variances by dimension."""
    values = []
    for d in DIMS:
        threshold = transport.monotone_threshold(d, num_quantiles=scale(64, least=16))
        values.append(Value(f"d = {d}, pairwise norms are optimal up to z", threshold))
        values.append(Value(f"d = {d}, pairwise norms are worse than independent ones from z", crossing(d)))
        values += [Value(f"d = {d}, z = {z:g}: variance, pairwise / orthogonal", ratio(z, d)) for z in DISTANCES]
    return Result(
        "negatively monotone norms of two orthogonal frequencies (couplings paper, Theorem 3.2)",
        "Fourier features of the Gaussian kernel, m = d, z = |x - y| in lengthscales. Variances in closed form"
        " (`rfgp.theory.variance`). The optimum over all couplings of the norms of a pair is a linear program on 64"
        " quantiles (`rfgp.transport.monotone_threshold`). The theorem claims optimality for small z only.",
        values,
    )


FIGURES = {"norms": norms}
