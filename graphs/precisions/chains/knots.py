"""Knots of a chain and interpolation between them.

Values of a column that are very close make the entries of a precision so large that it loses its digits. Where values
are closer than a spacing, the chain has knots at that spacing in their place, and a value between two knots is read by
Hermite interpolation of degree 2 alpha - 1 from f and its derivatives at both. That is the conditional mean of the
process up to terms of the order (kappa spacing)^(2 alpha). It leaves a variance of

    q (kappa spacing)^(2 alpha - 1) / ((2 alpha - 1) (alpha - 1)!^2 4^(2 alpha - 1))

in the middle of two knots, which is ignored.
"""

import math
from bisect import bisect_right

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]

SPACING = {1: 1e-8, 2: 0.012, 3: 0.12}
"""The spacing of knots times kappa, by alpha, at which the variance that interpolation ignores and the digits that the
precision loses are both about 1e-8, or 1e-7 of a chain of thousands of knots."""
SAME = 1e-10
"""Values closer than this share of the spacing are one, and so are values that differ by rounding."""


def place_knots(
    values: Floats,  # (T,)
    spacing: float,
) -> Floats:  # (K,)
    """Return knots, ascending: the values themselves except where they are closer than the spacing.

    Args:
        values: Distinct values, ascending, at least one.
        spacing: The least distance of two knots, positive.
    """
    if (np.diff(values) >= spacing).all():
        return values
    known, knots, number, same = values.tolist(), [float(values[0])], 1, _same(values, spacing)
    while number < len(known):
        gap = known[number] - knots[-1]
        if gap <= same:
            number += 1
        elif gap >= spacing:
            knots.append(known[number])
            number += 1
        else:
            knots.append(knots[-1] + spacing)
            number = bisect_right(known, knots[-1], number)
    return np.array(knots)


def hermite_projector(
    knots: Floats,  # (K,)
    points: Floats,  # (n,)
    alpha: int,
    unit: float,
) -> sp.csr_array:  # (n, alpha K)
    """Return the matrix that interpolates f at points from f^(j) unit^j, j < alpha, at knots.

    Args:
        knots: Ascending.
        points: Between the first and the last knot.
        alpha: The number of values at a knot.
        unit: The unit of the derivatives.

    Raises:
        InvalidArgumentError: a point is outside of the knots.
    """
    slack = _same(knots, unit)
    if len(points) and not (points.min() >= knots[0] - slack and points.max() <= knots[-1] + slack):
        raise InvalidArgumentError(f"Points must be between {knots[0]:g} and {knots[-1]:g}, the first and last knot.")
    above = np.clip(np.searchsorted(knots, points), 1, max(len(knots) - 1, 1)) if len(knots) > 1 else None
    if above is None:
        nearest = np.zeros(len(points), dtype=np.int64)
    else:
        nearest = np.where(points - knots[above - 1] <= knots[above] - points, above - 1, above)
    at_knot = np.abs(points - knots[nearest]) <= slack
    counts = np.where(at_knot, 1, 2 * alpha)
    starts = np.concatenate([[0], np.cumsum(counts)])
    entries, columns = np.ones(starts[-1]), np.empty(starts[-1], dtype=np.int64)
    columns[starts[:-1][at_knot]] = alpha * nearest[at_knot]
    inside = np.flatnonzero(~at_knot)
    if above is not None and len(inside):
        places = starts[inside][:, None] + np.arange(2 * alpha)
        first = above[inside] - 1
        gap = knots[first + 1] - knots[first]
        columns[places] = alpha * first[:, None] + np.arange(2 * alpha)
        entries[places] = _basis((points[inside] - knots[first]) / gap, gap / unit, alpha)
    return sp.csr_array((entries, columns, starts), shape=(len(points), alpha * len(knots)))


def _same(values: Floats, spacing: float) -> float:
    """Return the largest distance of values that are one."""
    return float(max(SAME * spacing, 8 * np.finfo(np.float64).eps * np.abs(values).max()))


def _basis(u: Floats, ratio: Floats, alpha: int) -> Floats:
    """Return the weights (n, 2 alpha) of both ends of an interval at shares u (n,) of it.

    The function with the derivative j equal to 1 at the left end and all others 0 is u^j / j! (1 - u)^alpha
    sum_(k < alpha - j) binom(alpha - 1 + k, k) u^k on [0, 1].

    Args:
        u: From 0 to 1.
        ratio: The lengths of the intervals in units, (n,).
        alpha: The number of values at an end.
    """

    def left(share: Floats, j: int) -> Floats:
        total = sum(math.comb(alpha - 1 + k, k) * share**k for k in range(alpha - j))
        return np.asarray(share**j / math.factorial(j) * (1 - share) ** alpha * total)

    starts = [left(u, j) * ratio**j for j in range(alpha)]
    ends = [(-1) ** j * left(1 - u, j) * ratio**j for j in range(alpha)]
    return np.stack([*starts, *ends], axis=1)
