"""Half-integer Matern processes of one column as Gaussian vectors with a sparse precision."""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers, pointers
from graphs.checks import check_count, positive, short_repr
from graphs.errors import InvalidArgumentError
from graphs.precisions.fields import MarkovField, SymmetricPattern, read_lengthscale

Floats = NDArray[np.float64]

# --- Half-integer Matern processes as Markov chains: the energy of a step and its derivatives ------------------------
#
# Let nu = alpha - 1/2 and kappa = sqrt(2 nu) / lengthscale. The process with the Matern kernel of variance 1 solves
# (d/dt + kappa)^alpha f = white noise. Source: Hartikainen and Sarkka (2010), "Kalman filtering and smoothing solutions
# to temporal Gaussian process regression models", Section 3. The state z = (f, f' / kappa, ..., f^(alpha - 1) /
# kappa^(alpha
# - 1)) is a Markov process. Over a distance x / kappa
#
#     z_1 = A z_0 + e,    A = exp(F x),   e ~ N(0, R),   R = q int_0^x g(s) g(s)^T ds,    g(s) = exp(F s) (0, .., 0, 1),
#
# with F the companion matrix of (s + 1)^alpha. Since (F + I)^alpha = 0, exp(F x) = exp(-x) sum_k x^k (F + I)^k / k!.
# The energy of a step, z_0^T (A^T R^-1 A) z_0 - 2 z_0^T A^T R^-1 z_1 + z_1^T R^-1 z_1, adds to the precision of the
# chain.
#
# R = P - A P A^T, with the stationary covariance P, cancels in short steps, where R_ij is of the order x^(2 alpha - 1 -
# i
# - j). There R / (x_i x_j), x_i = x^(alpha - 1/2 - i), is the integral over [0, 1] of products of polynomials times
# exp(-2 x s), computed by Gauss-Legendre quadrature. Its condition is below 1,000 and does not depend on x in the
# limit.
#
# The derivatives are dA / dx = F A and dR / dx = q g(x) g(x)^T. With v = R^-1 g(x), d R^-1 / dx = -q v v^T and
# d log|R^-1| / dx = -q g(x)^T v.
#
# Let z_0 and z_1 be the states at distances x before and y after a point, and G = R(x) A(y)^T R(x + y)^-1. Given them,
# the state at the point has the mean A(x) z_0 + G (z_1 - A(x + y) z_0) and the covariance R(x) - G A(y) R(x). As the
# point moves towards z_1, x grows and y shrinks by the same amount. With M = R'(x) A(y)^T - R(x) A'(y)^T, the
# derivative of G is M R(x + y)^-1, and that of the covariance is R'(x) - G M^T - M G^T.


INTENSITY = {1: 2.0, 2: 4.0, 3: 16 / 3}
"""q by alpha, such that f has variance 1."""
STATIONARY = {
    1: np.eye(1),
    2: np.eye(2),
    3: np.array([[1.0, 0.0, -1 / 3], [0.0, 1 / 3, 0.0], [-1 / 3, 0.0, 1.0]]),
}
"""P by alpha, the covariance of the state."""
MAX_STEP = 700.0
"""The longest step. Longer steps are truncated to this length. Its ends are independent to the last bit."""
_MAX_INTEGRATED_STEP = 2.0
"""The longest step whose R is integrated. The difference P - A P A^T loses no digits for longer ones."""
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(20)
"""The points and weights of the quadrature on [-1, 1]."""


class Step(NamedTuple):
    """The energies of n steps, z_0^T L z_0 + 2 z_0^T C z_1 + z_1^T R^-1 z_1.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import steps
        >>> energy, slopes = steps(1, np.array([1.0]))
        >>> round(float(energy.right[0, 0, 0]), 4)  # 1 / (1 - exp(-2))
        1.1565
    """

    left: Floats  # L (n, alpha, alpha)
    cross: Floats  # C (n, alpha, alpha)
    right: Floats  # R^-1 (n, alpha, alpha)
    log_determinant: Floats  # log|R^-1| (n,)


def companion(alpha: int) -> Floats:  # (alpha, alpha)
    """Return F, the companion matrix of (s + 1)^alpha.

    Args:
        alpha: 1, 2 or 3.

    Examples:
        >>> from graphs.precisions.chains import companion
        >>> companion(2).tolist()
        [[0.0, 1.0], [-1.0, -2.0]]
    """
    matrix = np.eye(alpha, k=1)
    matrix[-1] = [-math.comb(alpha, k) for k in range(alpha)]
    return matrix


def propagator(
    alpha: int,
    x: Floats,  # (n,)
) -> Floats:  # (n, alpha, alpha)
    """Return A = exp(F x).

    Args:
        alpha: 1, 2 or 3.
        x: Distances (n,) times kappa.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import propagator
        >>> propagator(2, np.array([0.0]))[0].tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    with np.errstate(under="ignore"):
        powers = [np.exp(-x) * x**k for k in range(alpha)]
        return np.asarray(np.einsum("kn,kij->nij", np.stack(powers), _terms(alpha)), dtype=np.float64)


def steps(
    alpha: int,
    x: Floats,  # (n,)
) -> tuple[Step, Step]:
    """Return the energies of steps and their derivatives in x.

    Args:
        alpha: 1, 2 or 3.
        x: Distances times kappa, positive. They are truncated at `MAX_STEP`.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import steps
        >>> energy, slopes = steps(2, np.array([0.5, 1.0]))
        >>> energy.left.shape, slopes.log_determinant.shape
        ((2, 2, 2), (2,))
    """
    x = np.minimum(x, MAX_STEP)
    with np.errstate(under="ignore"):
        transition, (right, log_determinant) = propagator(alpha, x), _innovation_precision(alpha, x)
        back = -np.swapaxes(transition, 1, 2) @ right  # -A^T R^-1 = C
        left = -back @ transition
        gain = transition[:, :, -1:]  # g(x), (n, alpha, 1)
        v = right @ gain
        change, q = companion(alpha) @ transition, INTENSITY[alpha]
        innovation_precision = q * v @ np.swapaxes(v, 1, 2)
        to_right = np.swapaxes(change, 1, 2) @ right
        both = -back @ change
        mixed = np.swapaxes(transition, 1, 2) @ innovation_precision
        slopes = Step(
            both + np.swapaxes(both, 1, 2) - mixed @ transition,
            mixed - to_right,
            -innovation_precision,
            -q * (np.swapaxes(gain, 1, 2) @ v)[:, 0, 0],
        )
        return Step(_symmetric(left), back, right, log_determinant), slopes


def bridge(
    alpha: int,
    x: Floats,  # (n,)
    y: Floats,  # (n,)
) -> tuple[Floats, Floats, Floats]:  # (n, alpha), (n, alpha), (n,)
    """Return the weights of both states in f between them, and the variance.

    Args:
        alpha: 1, 2 or 3.
        x: Distances from the states before the points times kappa, at least 0.
        y: Distances from the states after the points times kappa. At least one of x and y is positive.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import bridge
        >>> before, after, variance = bridge(1, np.array([0.5]), np.array([0.5]))
        >>> round(float(before[0, 0]), 4), round(float(variance[0]), 4)
        (0.4434, 0.4621)
    """
    x, y = np.minimum(x, MAX_STEP), np.minimum(y, MAX_STEP)
    with np.errstate(under="ignore"):
        innovation, forward = innovations(alpha, x), propagator(alpha, y)
        gain = (innovation[:, :1] @ np.swapaxes(forward, 1, 2) @ _innovation_precision(alpha, x + y)[0])[:, 0]
        start = propagator(alpha, x)[:, 0] - np.einsum("ni,nij->nj", gain, propagator(alpha, x + y))
        variance = innovation[:, 0, 0] - np.einsum("ni,nij,nj->n", gain, forward, innovation[:, :, 0])
    return start, gain, np.maximum(variance, 0.0)


def extrapolation(
    alpha: int,
    x: Floats,  # (n,)
) -> tuple[Floats, Floats]:  # (n, alpha), (n,)
    """Return the weights of the last state in f after it, and the variance.

    Args:
        alpha: 1, 2 or 3.
        x: Distances times kappa, at least 0.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import extrapolation
        >>> weights, variance = extrapolation(1, np.array([1.0]))
        >>> weights.round(4).tolist(), variance.round(4).tolist()
        ([[0.3679]], [0.8647])
    """
    x = np.minimum(x, MAX_STEP)
    with np.errstate(under="ignore"):
        return propagator(alpha, x)[:, 0], innovations(alpha, x)[:, 0, 0]


def bridge_slopes(
    alpha: int,
    x: Floats,  # (n,)
    y: Floats,  # (n,)
) -> tuple[Floats, Floats, Floats]:  # (n, alpha), (n, alpha), (n,)
    """Return the derivatives of `bridge` as points move towards the other state.

    Args:
        alpha: 1, 2 or 3.
        x: Distances (n,) from the states before the points times kappa.
        y: Distances (n,) from the states after the points times kappa.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import bridge_slopes
        >>> bridge_slopes(1, np.array([0.5]), np.array([0.5]))[2].round(6).tolist()  # the variance is largest there
        [0.0]
    """
    x, y = np.minimum(x, MAX_STEP), np.minimum(y, MAX_STEP)
    with np.errstate(under="ignore"):
        innovation, innovation_slope = innovations(alpha, x)[:, :1], _innovation_slopes(alpha, x)[:, :1]
        forward, drift = propagator(alpha, y), companion(alpha)
        precision = _innovation_precision(alpha, x + y)[0]
        gain = (innovation @ np.swapaxes(forward, 1, 2) @ precision)[:, 0]
        moved = innovation_slope @ np.swapaxes(forward, 1, 2) - innovation @ np.swapaxes(drift @ forward, 1, 2)
        slope = (moved @ precision)[:, 0]
        start = (drift @ propagator(alpha, x))[:, 0] - np.einsum("ni,nij->nj", slope, propagator(alpha, x + y))
        return start, slope, innovation_slope[:, 0, 0] - 2 * (gain * moved[:, 0]).sum(1)


def extrapolation_slopes(
    alpha: int,
    x: Floats,  # (n,)
) -> tuple[Floats, Floats]:  # (n, alpha), (n,)
    """Return the derivatives in x of the results of `extrapolation`.

    Args:
        alpha: 1, 2 or 3.
        x: Distances (n,) times kappa.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import extrapolation_slopes
        >>> extrapolation_slopes(1, np.array([1.0]))[0].round(4).tolist()  # -exp(-1)
        [[-0.3679]]
    """
    x = np.minimum(x, MAX_STEP)
    with np.errstate(under="ignore"):
        return (companion(alpha) @ propagator(alpha, x))[:, 0], _innovation_slopes(alpha, x)[:, 0, 0]


def innovations(
    alpha: int,
    x: Floats,  # (n,)
) -> Floats:  # (n, alpha, alpha)
    """Return R, the covariance of a state given the one at a distance x before.

    Args:
        alpha: 1, 2 or 3.
        x: Distances (n,) times kappa, positive.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.chains import innovations
        >>> innovations(1, np.array([1.0])).round(4).tolist()  # 1 - exp(-2)
        [[[0.8647]]]
    """
    if alpha == 1:
        return -np.expm1(-2 * x)[:, None, None]
    covariance, scales = _scaled_innovations(alpha, x)
    return np.asarray(covariance * (scales[:, :, None] * scales[:, None, :]))


def _innovation_slopes(alpha: int, x: Floats) -> Floats:
    """Return the derivatives q g(x) g(x)^T of R, (n, alpha, alpha)."""
    gain = propagator(alpha, x)[:, :, -1:]
    return np.asarray(INTENSITY[alpha] * gain @ np.swapaxes(gain, 1, 2))


def _terms(alpha: int) -> Floats:
    """Return (F + I)^k / k!, (alpha, alpha, alpha)."""
    shifted = companion(alpha) + np.eye(alpha)
    return np.stack([np.linalg.matrix_power(shifted, k) / math.factorial(k) for k in range(alpha)])


def _innovation_precision(alpha: int, x: Floats) -> tuple[Floats, Floats]:
    """Return R^-1 (n, alpha, alpha) and log|R^-1| (n,)."""
    if alpha == 1:
        variance = -np.expm1(-2 * x)
        return (1 / variance)[:, None, None], -np.log(variance)
    covariance, scales = _scaled_innovations(alpha, x)
    inverse = _symmetric(np.asarray(np.linalg.inv(covariance), dtype=np.float64)) / (
        scales[:, :, None] * scales[:, None, :]
    )
    return inverse, -np.linalg.slogdet(covariance)[1] - 2 * np.log(scales).sum(1)


def _scaled_innovations(alpha: int, x: Floats) -> tuple[Floats, Floats]:
    """Return R_ij / (x_i x_j), (n, alpha, alpha), and x_i, (n, alpha)."""
    scales = x[:, None] ** (alpha - 0.5 - np.arange(alpha))
    covariance = np.empty((len(x), alpha, alpha))
    short = x < _MAX_INTEGRATED_STEP
    covariance[short] = _integrated(alpha, x[short])
    transition, stationary = propagator(alpha, x[~short]), STATIONARY[alpha]
    unscaled = stationary - transition @ stationary @ np.swapaxes(transition, 1, 2)
    covariance[~short] = unscaled / (scales[~short, :, None] * scales[~short, None, :])
    return covariance, scales


def _integrated(alpha: int, x: Floats) -> Floats:
    """Return R_ij / (x_i x_j), (n, alpha, alpha), by quadrature."""
    points, weights = (_POINTS + 1) / 2, _WEIGHTS / 2
    gains = np.zeros((alpha, len(x), len(points)))
    for k, term in enumerate(_terms(alpha)):
        for i in range(alpha - 1 - k, alpha):  # entry i of the last column of (F + I)^k is 0 for smaller i
            gains[i] += term[i, -1] * x[:, None] ** (k - (alpha - 1 - i)) * points**k
    gains *= np.exp(-x[:, None] * points)
    return np.asarray(INTENSITY[alpha] * np.einsum("inp,jnp,p->nij", gains, gains, weights), dtype=np.float64)


def _symmetric(matrices: Floats) -> Floats:
    return (matrices + np.swapaxes(matrices, 1, 2)) / 2


# --- Knots of a chain and interpolation between them -----------------------------------------------------------------
#
# Values of a column that are very close make the entries of a precision so large that it loses digits. Values closer
# than a spacing are therefore replaced by knots at that spacing. A value between two knots is interpolated from f and
# its derivatives at both, by Hermite interpolation of degree 2 alpha - 1. This is the conditional mean of the process
# up to terms of the order (kappa spacing)^(2 alpha). It ignores the variance
#
#     q (kappa spacing)^(2 alpha - 1) / ((2 alpha - 1) (alpha - 1)!^2 4^(2 alpha - 1))
#
# in the middle of two knots.


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
        >>> from graphs.precisions.chains import hermite_projector
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
    starts = pointers(counts)
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


# --- Half-integer Matern processes of one column as Gaussian vectors with a block-tridiagonal precision --------------


@dataclass(frozen=True, eq=False)
class ChainField(MarkovField):
    """A process of one column with a Matern kernel, nu = alpha - 1/2, at knots.

    The latent values at a knot are f, unit f', ..., unit^(alpha - 1) f^(alpha - 1), next to each other. Their precision
    is exact and block tridiagonal.

    Source: Hartikainen and Sarkka (2010), Kalman filtering and smoothing solutions to temporal Gaussian process
    regression models; the formulas are in `graphs.precisions.chains`.

    Numerics: entries grow like (kappa gap)^(1 - 2 alpha) with kappa = sqrt(2 nu) / lengthscale, and covariances lose as
    many digits. They are accurate to about 1e-8 if gaps are at least `SPACING` of `graphs.precisions.chains` over
    kappa. `place_knots` returns such knots.

    Attributes:
        knots: Distinct ascending numbers (K,).
        alpha: The order 1, 2 or 3, for nu = 1/2, 3/2 or 5/2.
        unit: The unit of the derivatives, in units of the knots.
        parameters: ("lengthscale",), in the units of the knots.
        coordinates: None.

    Raises:
        InvalidArgumentError: If the knots do not ascend, or alpha or the unit is invalid.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions import ChainField
        >>> field = ChainField([0.0, 1.0, 3.0], alpha=2)
        >>> Q = field.factor_at(np.array([2.0]))
        >>> Q.variances[::2].round(6).tolist()  # of f, which is followed by its derivative at each knot
        [1.0, 1.0, 1.0]
    """

    knots: ArrayLike
    alpha: int = 1
    unit: float = 1.0

    parameters = ("lengthscale",)

    def __post_init__(self) -> None:
        check_count("alpha", self.alpha, 1, 3)
        knots = as_numbers(self.knots)
        if knots.ndim != 1 or not len(knots) or not np.isfinite(knots).all() or not (np.diff(knots) > 0).all():
            raise InvalidArgumentError(
                f"knots must be ascending finite numbers (K,), got {short_repr(self.knots)}. Pass np.unique(knots)."
            )
        positive("unit", self.unit)
        object.__setattr__(self, "knots", knots)

    @cached_property
    def _block_exists(self) -> NDArray[np.bool_]:
        """A mask of the blocks before, at and after each knot that exist, (K, alpha, 3, alpha)."""
        size = len(self._gaps) + 1
        exists = np.ones((size, self.alpha, 3, self.alpha), dtype=bool)
        exists[0, :, 0], exists[-1, :, 2] = False, False
        return exists

    @cached_property
    def _gaps(self) -> Floats:
        """The distances between knots, (K - 1,)."""
        return np.diff(np.asarray(self.knots))

    @cached_property
    def pattern(self) -> SymmetricPattern:
        """Pairs of values at the same knot and at neighboring knots."""
        a, exists = self.alpha, self._block_exists
        first = a * np.arange(len(exists)) - a
        columns = np.broadcast_to(first[:, None, None] + np.arange(3 * a).reshape(3, a), (*exists.shape[:1], 3, a))
        indices = np.broadcast_to(columns[:, None], exists.shape)[exists]
        return SymmetricPattern(pointers(exists.sum((2, 3)).reshape(-1)), indices.astype(np.int32))

    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries (nnz,) of Q on the pattern for a lengthscale.

        Args:
            values: The lengthscale (1,).

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number.
        """
        kappa = self._kappa(values)
        return self._on_pattern(steps(self.alpha, kappa * self._gaps)[0], kappa)

    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / d lengthscale, (1,).

        Args:
            values: The lengthscale (1,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        kappa = self._kappa(values)
        x = kappa * self._gaps
        step, slope = steps(self.alpha, x)
        dense_weights = np.zeros(self._block_exists.shape)
        dense_weights[self._block_exists] = weights
        dense_weights *= self._scales(kappa)
        diagonal, cross = dense_weights[:, :, 1], dense_weights[:-1, :, 2] + np.swapaxes(dense_weights[1:, :, 0], 1, 2)
        pulled = sum(
            (a * b).sum((1, 2))
            for a, b in ((slope.left, diagonal[:-1]), (slope.right, diagonal[1:]), (slope.cross, cross))
        )
        entries = np.zeros(self._block_exists.shape)
        entries[self._block_exists] = self._on_pattern(step, kappa)
        orders = np.arange(self.alpha)[:, None, None] + np.arange(self.alpha)
        unscaled_weights = np.zeros(self._block_exists.shape)
        unscaled_weights[self._block_exists] = weights
        return np.array([((orders * entries * unscaled_weights).sum() - float(x @ pulled)) / float(values[0])])

    def log_determinant(
        self,
        values: Floats,  # (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivative (1,), from the chain of conditionals.

        Args:
            values: The lengthscale (1,).
        """
        kappa, lengthscale = self._kappa(values), float(values[0])
        x = kappa * self._gaps
        step, slope = steps(self.alpha, x)
        orders = len(self._block_exists) * self.alpha * (self.alpha - 1)  # 2 K sum_j j
        value = float(step.log_determinant.sum()) - float(np.linalg.slogdet(STATIONARY[self.alpha])[1])
        value -= orders * math.log(kappa * self.unit)
        return value, np.array([(orders - float(x @ slope.log_determinant)) / lengthscale])

    def projector(
        self,
        points: ArrayLike,  # (n,)
    ) -> sp.csr_array:  # (n, N)
        """Return the matrix that maps latent values to f at points between the knots.

        It is exact at knots, and Hermite interpolation between them.

        Args:
            points: Numbers (n,) between the first and the last knot, in the units of the knots.

        Raises:
            InvalidArgumentError: If a point is outside the knots.
        """
        return hermite_projector(np.asarray(self.knots), as_numbers(points), self.alpha, self.unit)

    def conditional(
        self,
        values: Floats,  # (1,)
        points: ArrayLike,  # (n,)
    ) -> tuple[sp.csr_array, Floats]:  # (n, N), (n,)
        """Return the conditional mean and variance of f at points, given the latent values.

        The prior variance is 1. Points may be anywhere. At a knot the conditional variance is 0. Errors of points
        between the same knots, or beyond the same end, are correlated.

        Args:
            values: The lengthscale, (1,).
            points: Numbers (n,), in the units of the knots.

        Returns:
            The matrix A (n, N) from latent values to conditional means, and the conditional variances (n,).

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number.
        """
        kappa, knots, given = self._kappa(values), np.asarray(self.knots), as_numbers(points)
        after = np.searchsorted(knots, given)  # knots[after - 1] < point <= knots[after]
        weights, variances = self._evaluate(kappa, given, after, (bridge, extrapolation), 1.0)
        exact = knots[np.minimum(after, len(knots) - 1)] == given
        weights[exact], variances[exact] = 0.0, 0.0
        weights[exact, 1, 0] = 1.0
        return self._matrix(after, weights * self._scales(kappa)[0, 0]), variances

    def conditional_slopes(
        self,
        values: Floats,  # (1,)
        points: ArrayLike,  # (n,)
    ) -> tuple[sp.csr_array, Floats]:  # (n, N), (n,)
        """Return the derivatives of the results of `conditional` in the points.

        For alpha 1 the derivatives on both sides of a knot differ. At a knot their mean is returned.

        Args:
            values: The lengthscale, (1,).
            points: Numbers (n,), in the units of the knots.

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number.
        """
        kappa, knots, given = self._kappa(values), np.asarray(self.knots), as_numbers(points)
        reads, slopes = sp.csr_array((len(given), self.alpha * len(knots))), np.zeros(len(given))
        for after in (np.searchsorted(knots, given, side="left"), np.searchsorted(knots, given, side="right")):
            weights, slope_of_knot = self._evaluate(kappa, given, after, (bridge_slopes, extrapolation_slopes), -1.0)
            reads = reads + self._matrix(after, kappa / 2 * weights * self._scales(kappa)[0, 0])
            slopes += kappa / 2 * slope_of_knot
        return reads, slopes

    def _evaluate(
        self,
        kappa: float,
        points: Floats,  # (n,)
        after: NDArray[np.int64],  # (n,)
        formulas: tuple[Callable[..., tuple[Floats, ...]], Callable[..., tuple[Floats, ...]]],
        sign: float,
    ) -> tuple[Floats, Floats]:  # (n, 2, alpha), (n,)
        """Evaluate formulas of the transition at points among knots.

        Args:
            kappa: sqrt(2 nu) / lengthscale.
            points: Numbers, in the units of the knots.
            after: The indices of the knots after the points.
            formulas: One for points between two states, and one for points after the last state.
            sign: 1, or -1 if the formulas are derivatives, which change their sign before the first state.

        Returns:
            Weights of the states at two knots, and numbers.
        """
        (within, outside), knots = formulas, np.asarray(self.knots)
        weights, numbers = np.zeros((len(points), 2, self.alpha)), np.zeros(len(points))
        first, last = np.flatnonzero(after == 0), np.flatnonzero(after == len(knots))
        weight, number = outside(self.alpha, kappa * (knots[0] - points[first]))
        weights[first, 1] = sign * weight * (-1.0) ** np.arange(self.alpha)  # derivatives in reversed direction
        numbers[first] = sign * number
        weights[last, 0], numbers[last] = outside(self.alpha, kappa * (points[last] - knots[-1]))
        inside = np.flatnonzero((after > 0) & (after < len(knots)))
        x, y = points[inside] - knots[after[inside] - 1], knots[after[inside]] - points[inside]
        weights[inside, 0], weights[inside, 1], numbers[inside] = within(self.alpha, kappa * x, kappa * y)
        return weights, numbers

    def _matrix(self, after: NDArray[np.int64], weights: Floats) -> sp.csr_array:
        """Return the matrix (n, N) of weights (n, 2, alpha) of neighboring states."""
        knots = np.stack([after - 1, after], axis=1)
        columns = self.alpha * knots[:, :, None] + np.arange(self.alpha)
        is_stored = (weights != 0) & ((knots >= 0) & (knots < len(self._block_exists)))[:, :, None]
        starts = pointers(is_stored.sum((1, 2)))
        size = self.alpha * len(self._block_exists)
        return sp.csr_array((weights[is_stored], columns[is_stored], starts), shape=(len(after), size))

    def _on_pattern(self, step: Step, kappa: float) -> Floats:
        """Return the entries (nnz,) of the energies of steps and of the first state."""
        blocks = np.zeros(self._block_exists.shape)
        blocks[0, :, 1] = np.linalg.inv(STATIONARY[self.alpha])
        blocks[:-1, :, 1] += step.left
        blocks[1:, :, 1] += step.right
        blocks[:-1, :, 2] = step.cross
        blocks[1:, :, 0] = np.swapaxes(step.cross, 1, 2)
        return np.asarray((blocks * self._scales(kappa))[self._block_exists])

    def _scales(self, kappa: float) -> Floats:
        """Return the factors (alpha, 1, alpha) of entries for derivatives with a unit."""
        powers = (kappa * self.unit) ** -np.arange(float(self.alpha))
        return powers[:, None, None] * powers

    def _kappa(self, values: Floats) -> float:
        """Return sqrt(2 nu) / lengthscale."""
        return math.sqrt(2 * self.alpha - 1) / read_lengthscale(values)
