"""Half-integer Matern processes as Markov chains: the energy of a step and its derivatives.

Let nu = alpha - 1/2 and kappa = sqrt(2 nu) / lengthscale. The process with the Matern kernel of variance 1 solves (d/dt
+ kappa)^alpha f = white noise. Source: Hartikainen and Sarkka (2010), "Kalman filtering and smoothing solutions to
temporal Gaussian process regression models", Section 3. The state z = (f, f' / kappa, ..., f^(alpha - 1) / kappa^(alpha
- 1)) is a Markov process. Over a distance x / kappa

    z_1 = A z_0 + e,    A = exp(F x),    e ~ N(0, R),    R = q int_0^x g(s) g(s)^T ds,    g(s) = exp(F s) (0, .., 0, 1),

with F the companion matrix of (s + 1)^alpha. Since (F + I)^alpha = 0, exp(F x) = exp(-x) sum_k x^k (F + I)^k / k!. The
energy of a step, z_0^T (A^T R^-1 A) z_0 - 2 z_0^T A^T R^-1 z_1 + z_1^T R^-1 z_1, adds to the precision of the chain.

R = P - A P A^T, with the stationary covariance P, cancels in short steps, where R_ij is of the order x^(2 alpha - 1 - i
- j). There R / (x_i x_j), x_i = x^(alpha - 1/2 - i), is the integral over [0, 1] of products of polynomials times
exp(-2 x s), computed by Gauss-Legendre quadrature. Its condition is below 1,000 and does not depend on x in the limit.

The derivatives are dA / dx = F A and dR / dx = q g(x) g(x)^T. With v = R^-1 g(x), d R^-1 / dx = -q v v^T and
d log|R^-1| / dx = -q g(x)^T v.

Let z_0 and z_1 be the states at distances x before and y after a point, and G = R(x) A(y)^T R(x + y)^-1. Given them,
the state at the point has the mean A(x) z_0 + G (z_1 - A(x + y) z_0) and the covariance R(x) - G A(y) R(x). As the
point moves towards z_1, x grows and y shrinks by the same amount. With M = R'(x) A(y)^T - R(x) A'(y)^T, the derivative
of G is M R(x + y)^-1, and that of the covariance is R'(x) - G M^T - M G^T.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
        >>> from graphs.precisions.chains.transition import steps
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
        >>> from graphs.precisions.chains.transition import companion
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
        >>> from graphs.precisions.chains.transition import propagator
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
        >>> from graphs.precisions.chains.transition import steps
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
        >>> from graphs.precisions.chains.transition import bridge
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
        >>> from graphs.precisions.chains.transition import extrapolation
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
        >>> from graphs.precisions.chains.transition import bridge_slopes
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
        >>> from graphs.precisions.chains.transition import extrapolation_slopes
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
        >>> from graphs.precisions.chains.transition import innovations
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
