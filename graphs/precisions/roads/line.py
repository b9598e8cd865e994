"""Whittle-Matern fields on one road segment: the energy of its ends in closed form.

u solves (kappa^2 - Laplace)^(alpha / 2) (tau u) = white noise, with tau such that the variance is 1 on the infinite
line: 2 kappa tau^2 = 1 for alpha = 1 (covariance exp(-x), x = kappa distance) and 4 kappa^3 tau^2 = 1 for alpha = 2
(covariance (1 + x) exp(-x)). Its density is proportional to exp(-E / 2). The energy E is tau^2 int kappa^2 u^2 + u'^2
for alpha = 1, and tau^2 int kappa^4 u^2 + 2 kappa^2 u'^2 + u''^2 for alpha = 2. It is a sum over the segments of a
network. With its inside integrated out, one segment of length x / kappa adds z_0^T O z_0 + z_1^T O z_1 + 2 z_0^T C z_1
for its ends. Here z holds u at an end and, for alpha = 2, also the derivative w in the direction into the segment. At
the two ends w_0 = u' / kappa and w_1 = -u' / kappa. O ("own") and C ("cross") are symmetric.

alpha = 1. The least energy with given ends is that of the solution of u'' = kappa^2 u:

    O = coth(x) / 2,    C = -1 / (2 sinh x).

alpha = 2. Let R be the covariance (4, 4) of both ends of the segment within an infinite line. (u, w) has covariance I
at a point of the line. The point is shared by the two sides, so each side has half of its precision: [[O, C], [C, O]] =
R^-1 - I / 2. Bolin, Simas and Wallin (2024), "Gaussian Whittle-Matern fields on metric graphs", derive the same by
conditioning independent segments on the conditions at vertices. The result differs from the energy above by a multiple
of u w at each end, and these cancel at a vertex, where the w sum to 0. Sums and differences of the two ends are
independent on the line, so R has two blocks of size two,

    var (u_0 +- u_1, w_0 +- w_1) / sqrt(2) = [[1 +- (1 + x) e, +- x e], [+- x e, 1 -+ (1 - x) e]],    e = exp(-x),

with determinants 2 e (sinh x +- x). With s = sinh x, c = cosh x and D = s^2 - x^2 the inverses give

    O = [[s c + x, x^2], [x^2, s c - x]] / (2 D),    C = -[[s + x c, x s], [x s, x c - s]] / (2 D).

Derivatives follow from O and C. With k = 1 + 4 O_uw, differentiating in x:

    alpha = 1:  O' = -2 C^2,                            C' = -2 O C;
    alpha = 2:  O' = -4 (C_uw, C_ww) (C_uw, C_ww)^T,    C_uu' = -k C_uw,  C_uw' = -k C_ww,  C_ww' = C_uw - 4 O_ww C_ww.

sinh x - x and x cosh x - sinh x cancel in short segments, where their series have positive terms. In long segments s
and c overflow, so numerators and denominators are multiplied by 2 exp(-x) for each of them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KAPPA = {1: 1.0, 2: float(np.sqrt(3.0))}
"""kappa times the lengthscale, by alpha. Correlations are exp(-d / l), and Matern with nu = 3/2."""

MIN_LENGTH = {1: 1e-8, 2: 3e-4}
"""The length, in 1 / kappa, to which shorter segments are raised. Entries grow like 1 / (2 x) and 3 / x^3, and their
sums with entries of order one are rounded. At these lengths rounding and the longer segment cause equal errors."""
MAX_LENGTH = 1e3
"""The length, in 1 / kappa, at which longer segments are truncated. Their ends are independent beyond 750."""

_MAX_SERIES_LENGTH = 1.0
"""The length, in 1 / kappa, up to which series are used."""
_NUM_TERMS = 9
"""The number of terms of the series. The next one is below 1e-18 of the first."""


class Bridge(NamedTuple):
    """u at a point between two ends: weights of the ends, and an independent error.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads.line import bridge
        >>> found = bridge(1, np.array([0.5]), np.array([0.5]))
        >>> found.start.round(4).tolist(), found.variance.round(4).tolist()
        ([[0.4434]], [0.4621])
    """

    start: Floats  # (alpha, n) weights of u and w at the first end
    end: Floats  # (alpha, n)
    variance: Floats  # (n,)


def blocks(
    alpha: int,
    x: Floats,  # (n,)
) -> Floats:  # (2, k, n)
    """Return O and C as k rows each: one entry, or uu, uw and ww for alpha = 2.

    Args:
        alpha: 1 or 2.
        x: Lengths (n,), positive, times kappa. They are truncated at 1,000.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads.line import blocks
        >>> blocks(1, np.array([1.0])).round(4).ravel().tolist()  # coth(1) / 2, -1 / (2 sinh(1))
        [0.6565, -0.4255]
    """
    x = np.minimum(x, MAX_LENGTH)
    with np.errstate(under="ignore"):
        e = np.exp(-x)
        s, c = -np.expm1(-2 * x), 1 + e * e  # 2 e sinh x, 2 e cosh x
        if alpha == 1:
            return np.stack([c / (2 * s), -e / s])[:, None]
        y, gap = 2 * e * x, cosine_gap(x)
        double = 2 * (s + y) * sine_gap(x)  # 8 e^2 D
        diagonal = np.stack([s * c + 2 * e * y, y * y, sine_gap(2 * x)])
        cross = -np.stack([2 * e * (s + x * c), y * s, 2 * e * gap])
        return np.stack([diagonal, cross]) / double


def slopes(
    segment_blocks: Floats,  # (2, k, n)
) -> Floats:  # (2, k, n)
    """Return the derivatives in x of the results of `blocks`.

    Args:
        segment_blocks: The result (2, k, n) of `blocks`.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads.line import blocks, slopes
        >>> slopes(blocks(1, np.array([1.0]))).round(4).ravel().tolist()
        [-0.362, 0.5586]
    """
    with np.errstate(under="ignore"):
        if segment_blocks.shape[1] == 1:
            diagonal, cross = segment_blocks[:, 0]
            return np.stack([-2 * cross**2, -2 * diagonal * cross])[:, None]
        (_, own_uw, own_ww), (_, uw, ww) = segment_blocks
        k = 1 + 4 * own_uw
        diagonal = -4 * np.stack([uw**2, uw * ww, ww**2])
        return np.stack([diagonal, np.stack([-k * uw, -k * ww, uw - 4 * own_ww * ww])])


def bridge(
    alpha: int,
    x: Floats,  # (n,)
    y: Floats,  # (n,)
) -> Bridge:
    """Return u at distances x and y from the ends of segments, given the ends.

    The point divides its segment in two, and the energies of the two are added. Their sum for (u, u' / kappa) at the
    point is K, the precision given the ends. The derivative points into the second segment and out of the first.

    Args:
        alpha: 1 or 2.
        x: Distances (n,) from the first ends, positive, times kappa.
        y: Distances (n,) from the last ends, positive, times kappa.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads.line import bridge
        >>> bridge(2, np.array([0.5]), np.array([0.5])).start.shape
        (2, 1)
    """
    (before_own, before_cross), (after_own, after_cross) = blocks(alpha, x), blocks(alpha, y)
    with np.errstate(under="ignore"):
        if alpha == 1:
            total = before_own[0] + after_own[0]
            return Bridge(-before_cross / total, -after_cross / total, 1 / total)
        uu, uw, ww = before_own[0] + after_own[0], after_own[1] - before_own[1], before_own[2] + after_own[2]
        determinant = uu * ww - uw * uw
        a, b = ww / determinant, -uw / determinant  # the first row of the inverse of K
        start = np.stack([b * before_cross[1] - a * before_cross[0], b * before_cross[2] - a * before_cross[1]])
        end = -np.stack([a * after_cross[0] + b * after_cross[1], a * after_cross[1] + b * after_cross[2]])
        return Bridge(start, end, a)


def sine_gap(
    x: Floats,  # (n,)
) -> Floats:  # (n,)
    """Return 2 exp(-x) (sinh x - x), by a series for small x.

    Args:
        x: Positive numbers (n,).

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads.line import sine_gap
        >>> sine_gap(np.array([2.0])).round(4).tolist()  # 1 - exp(-4) - 4 exp(-2)
        [0.4403]
    """
    ratios = [1 / ((2 * k + 2) * (2 * k + 3)) for k in range(1, _NUM_TERMS)]
    e = np.exp(-x)
    return np.where(x < _MAX_SERIES_LENGTH, e * _nested(x, 3.0, ratios), -np.expm1(-2 * x) - 2 * e * x)


def cosine_gap(
    x: Floats,  # (n,)
) -> Floats:  # (n,)
    """Return 2 exp(-x) (x cosh x - sinh x), by a series for small x.

    Args:
        x: Positive numbers (n,).

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads.line import cosine_gap
        >>> cosine_gap(np.array([2.0])).round(4).tolist()  # 2 (1 + exp(-4)) - (1 - exp(-4))
        [1.0549]
    """
    ratios = [1 / (2 * k * (2 * k + 3)) for k in range(1, _NUM_TERMS)]
    e = np.exp(-x)
    return np.where(x < _MAX_SERIES_LENGTH, e * _nested(x, 1.5, ratios), x * (1 + e * e) + np.expm1(-2 * x))


def _nested(x: Floats, divisor: float, ratios: list[float]) -> Floats:
    """Return x^3 / divisor (1 + r_1 x^2 (1 + r_2 x^2 (...))) for small x."""
    small = np.minimum(x, _MAX_SERIES_LENGTH)
    total = np.ones_like(small)
    for ratio in reversed(ratios):
        total = 1 + ratio * small**2 * total
    return small**3 / divisor * total
