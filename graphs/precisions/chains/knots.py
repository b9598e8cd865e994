"""Knots of a chain and interpolation between them.

Values of a column that are very close make the entries of a precision so large that it loses digits. Values closer than
a spacing are therefore replaced by knots at that spacing. A value between two knots is interpolated from f and its
derivatives at both, by Hermite interpolation of degree 2 alpha - 1. This is the conditional mean of the process up to
terms of the order (kappa spacing)^(2 alpha). It ignores the variance

    q (kappa spacing)^(2 alpha - 1) / ((2 alpha - 1) (alpha - 1)!^2 4^(2 alpha - 1))

in the middle of two knots.
"""

import math
from bisect import bisect_right

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]

SPACING = {1: 1e-8, 2: 0.012, 3: 0.12}
"""The spacing of knots times kappa, by alpha. It balances the variance that interpolation ignores and the digits that
the precision loses, both about 1e-8, or 1e-7 for thousands of knots."""
MERGE_FRACTION = 1e-10
"""Values closer than this fraction of the spacing are equal, and so are values that differ by rounding."""


def place_knots(
    values: Floats,  # (T,)
    spacing: float,
) -> Floats:  # (K,)
    """Return ascending knots: the values, or a grid if they are too close.

    Args:
        values: Distinct ascending values, at least one.
        spacing: The smallest distance of two knots, positive.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import place_knots
        >>> place_knots(np.array([0.0, 1.0, 1.01, 3.0]), 0.5).tolist()
        [0.0, 1.0, 1.5, 3.0]
    """
    if (np.diff(values) >= spacing).all():
        return values
    known, knots, number, same = values.tolist(), [float(values[0])], 1, _merge_distance(values, spacing)
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
    """Return the matrix that interpolates f from f^(j) unit^j, j < alpha, at knots.

    Args:
        knots: Ascending numbers.
        points: Numbers between the first and the last knot.
        alpha: The number of values at a knot.
        unit: The unit of the derivatives.

    Raises:
        InvalidArgumentError: If a point is outside the knots.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains.knots import hermite_projector
        >>> hermite_projector(np.array([0.0, 2.0]), np.array([0.5]), 1, 1.0).toarray().tolist()
        [[0.75, 0.25]]
    """
    slack = _merge_distance(knots, unit)
    if len(points) and not (points.min() >= knots[0] - slack and points.max() <= knots[-1] + slack):
        raise InvalidArgumentError(
            f"Points must be between the knots {knots[0]:g} and {knots[-1]:g}, got {points.min():g} to "
            f"{points.max():g}."
        )
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
        entry_indices = starts[inside][:, None] + np.arange(2 * alpha)
        first = above[inside] - 1
        gap = knots[first + 1] - knots[first]
        columns[entry_indices] = alpha * first[:, None] + np.arange(2 * alpha)
        entries[entry_indices] = _basis((points[inside] - knots[first]) / gap, gap / unit, alpha)
    return sp.csr_array((entries, columns, starts), shape=(len(points), alpha * len(knots)))


def _merge_distance(values: Floats, spacing: float) -> float:
    """Return the largest distance of values that count as equal."""
    return float(max(MERGE_FRACTION * spacing, 8 * np.finfo(np.float64).eps * np.abs(values).max()))


def _basis(u: Floats, ratio: Floats, alpha: int) -> Floats:
    """Return weights (n, 2 alpha) of the ends of an interval at fractions u (n,).

    The polynomial whose derivative j is 1 at the left end, and all others 0, is u^j / j! (1 - u)^alpha
    sum_(k < alpha - j) binom(alpha - 1 + k, k) u^k on [0, 1].

    Args:
        u: Fractions from 0 to 1.
        ratio: The lengths of the intervals in units, (n,).
        alpha: The number of values at an end.
    """

    def left_weight(fraction: Floats, j: int) -> Floats:
        total = sum(math.comb(alpha - 1 + k, k) * fraction**k for k in range(alpha - j))
        return np.asarray(fraction**j / math.factorial(j) * (1 - fraction) ** alpha * total)

    starts = [left_weight(u, j) * ratio**j for j in range(alpha)]
    ends = [(-1) ** j * left_weight(1 - u, j) * ratio**j for j in range(alpha)]
    return np.stack([*starts, *ends], axis=1)
