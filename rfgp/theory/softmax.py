"""Mean squared errors of estimators of the softmax and the Gaussian kernel, and of their hybrids.

Vectors x and y come in pairs, (..., d) each, divided by the lengthscale. All estimators are unbiased, so mean squared
errors are variances.

Let Z = exp(omega . c - q) with c = A x + A^-T y and q = ((A x)^2 + (A^-T y)^2) / 2. Then c^2 / 2 - q = x . y. Here u^2
= u^T u also for complex u. The estimate from one frequency is Re Z. Two matrices may have a common omega. Then

    E Re Z Re Z' = Re E[Z Z' + Z conj(Z')] / 2,     E Z Z' = exp((c + c')^2 / 2 - q - q').

With A = A' = I and i I these are the variances of the positive and the trigonometric estimators. With one of each it is
the cross term of Theorem 3.1: c = x + y, c' = i (x - y), c . c' = i (|x|^2 - |y|^2), hence

    cov(Z_+, Re Z_trig) = -exp(2 x . y) (1 - cos(|x|^2 - |y|^2)).

Source: Choromanski et al. (2022).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import InvalidArgumentError
from rfgp.features.softmax.coefficients import normalizer
from rfgp.features.softmax.pairs import check_kernel
from rfgp.messages import check_count, counted
from rfgp.theory.kernels import variance

Array = NDArray[np.float64]

_ANTITHETIC = "-antithetic"
_OPPOSITE = ("iid", "orthogonal", "pairwise")


def softmax_variance(
    x: Any,  # (..., d)
    y: Any,  # (..., d)
    num_frequencies: int,
    *,
    estimator: str = "positive",
    coupling: str = "iid",
    matrix: Any = None,  # (d, d) or (d,)
    kernel: str = "softmax",
) -> Array:  # (...)
    """Return the variance of an estimator.

    With v = |x + y|, z = |x - y|, and independent frequencies, for the softmax kernel SM::

        trigonometric: exp(v^2) SM^-2 (1 - exp(-z^2))^2 / (2 m).
        positive: exp(v^2) SM^2 (1 - exp(-v^2)) / m.
        positive, antithetic, m with both signs: exp(v^2) SM^2 (1 - exp(-v^2))^2 / m.
        exponential: (E (Re Z)^2 - SM^2) / m, see above. With a real A it is that of "positive" at v = |c|, up to
            factors.

    Coupled frequencies add m (m - 1) cross moments over m^2, those of `rfgp.theory.variance`. For opposite pairs
    (1 + exp(2 v^2)) / 2 replaces exp(2 v^2), and there are m / 2 (m / 2 - 1) cross moments.

    Source: Choromanski et al. (2022), Lemma 2.2. Cross moments are derived in `rfgp.theory.kernels`.

    Args:
        x: (..., d).
        y: (..., d), paired with x.
        num_frequencies: m, with both signs of antithetic ones.
        estimator: "trigonometric", "positive" or "exponential".
        coupling: "iid". Without a complex matrix also "orthogonal" and "pairwise". For positive features, including
            those of a real matrix, also "simplex" and the first three with "-antithetic".
        matrix: A of the exponential estimator.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: If the estimator or kernel is unknown, shapes do not match, or there is no closed form.

    Examples:
        >>> from rfgp import theory
        >>> float(theory.softmax_variance([1.0, 0.0], [-1.0, 0.0], 32))  # exact at x = -y
        0.0
    """
    a, b = _vectors(x, y)
    m, log_scale = check_count("num_frequencies", num_frequencies), _log_scale(a, b, kernel)
    if estimator == "exponential":
        return _exponential(a, b, matrix, coupling, m, kernel)
    squares = (a**2).sum(-1) + (b**2).sum(-1)
    if estimator == "trigonometric":
        z = np.linalg.norm(a - b, axis=-1)
        return np.asarray(np.exp(2 * log_scale + squares) * variance_at(coupling, z, m, a.shape[-1], "fourier"))
    if estimator == "positive":
        v = np.linalg.norm(a + b, axis=-1)
        return np.asarray(np.exp(2 * log_scale - squares) * _positive(coupling, v, m, a.shape[-1]))
    raise InvalidArgumentError(f'estimator must be "trigonometric", "positive" or "exponential", got {estimator!r}.')


def exponential_covariance(
    x: Any,  # (..., d)
    y: Any,  # (..., d)
    first: Any,  # (d, d) or (d,)
    second: Any,  # (d, d) or (d,)
    *,
    kernel: str = "softmax",
) -> Array:  # (...)
    """Return the covariance of two exponential estimators with one common frequency.

    For m independent frequencies the covariance of the means is this divided by m.

    Source: the docstring of the module, and Choromanski et al. (2022), Theorem 3.1 for the positive and the
    trigonometric estimator.

    Args:
        x: (..., d).
        y: (..., d), paired with x.
        first: A of the first estimator, real or complex.
        second: A of the second.
        kernel: "softmax" or "gaussian".

    Examples:
        >>> from rfgp import theory
        >>> covariance = theory.exponential_covariance([1.0, 0.5], [0.2, 0.1], np.ones(2), 1j * np.ones(2))
        >>> bool(covariance < 0)  # the positive and the trigonometric estimator
        True
    """
    a, b = _vectors(x, y)
    (c1, q1), (c2, q2) = (_exponent(a, b, matrix) for matrix in (first, second))
    shift = 2 * _log_scale(a, b, kernel)  # added before exponentials are taken, which could overflow otherwise
    plain = np.exp(0.5 * ((c1 + c2) ** 2).sum(-1) - q1 - q2 + shift)
    conjugate = np.exp(0.5 * ((c1 + c2.conj()) ** 2).sum(-1) - q1 - q2.conj() + shift)
    return np.asarray(0.5 * (plain + conjugate).real - np.exp(2 * (a * b).sum(-1) + shift))


def angular_moments(
    x: Any,  # (..., d)
    y: Any,  # (..., d)
    num_signs: int,
) -> tuple[Array, Array]:  # (...), (...)
    """Return the mean and the second moment of the angular coefficient with n independent sign features.

    n lambda is binomial with the probability p = theta / pi, so they are p and p^2 + p (1 - p) / n.

    Source: Choromanski et al. (2022), Lemma 3.2.

    Args:
        x: (..., d).
        y: (..., d), paired with x.
        num_signs: n.

    Examples:
        >>> from rfgp import theory
        >>> mean, second = theory.angular_moments([1.0, 0.0], [0.0, 1.0], 4)
        >>> float(mean), float(second)
        (0.5, 0.3125)
    """
    a, b = _vectors(x, y)
    lengths = [np.linalg.norm(u, axis=-1, keepdims=True) for u in (a, b)]
    one, other = a * lengths[1], b * lengths[0]
    halves = np.linalg.norm(one - other, axis=-1), np.linalg.norm(one + other, axis=-1)
    p, n = 2 * np.arctan2(*halves) / math.pi, check_count("num_signs", num_signs)
    is_zero = (lengths[0] * lengths[1])[..., 0] == 0  # the signs of a zero vector are 0
    p = np.where(is_zero, 0.5, p)
    return np.asarray(p), np.asarray(p**2 + np.where(is_zero, 0, p * (1 - p) / n))


def gaussian_moments(
    x: Any,  # (..., d)
    y: Any,  # (..., d)
    num_frequencies: int,
    *,
    scale: float = 1.0,
    of: str = "difference",
    complement: bool = False,
    length: float | None = None,
    estimator: str = "trigonometric",
) -> tuple[Array, Array]:  # (...), (...)
    """Return the mean and the second moment of the Gaussian coefficient with n independent frequencies.

    With k = exp(-|x -+ y|^2 / (2 tau^2)) the mean is k or 1 - k. The variance with trigonometric features is
    (1 - k^2)^2 / (2 n). With positive ones it is that of the positive estimator of the Gaussian kernel. With a length
    the mean is divided by rho = 1 - exp(-2 r^2 / tau^2), and the variance by its square.

    Source: Choromanski et al. (2022), Theorems F.1 and F.2 (Eqs. 72 and 78).

    Args:
        x: (..., d).
        y: (..., d), paired with x.
        num_frequencies: n.
        scale: tau.
        of: "difference" or "sum".
        complement: Whether the coefficient is 1 minus the exponential.
        length: As in `rfgp.features.softmax.coefficients.Gaussian`.
        estimator: "trigonometric" or "positive".

    Raises:
        InvalidArgumentError: If `of` or the estimator is unknown, the scale is not positive, or a length is not
            allowed.

    Examples:
        >>> from rfgp import theory
        >>> mean, second = theory.gaussian_moments([1.0, 0.0], [1.0, 0.0], 4)
        >>> float(mean), float(second)
        (1.0, 1.0)
    """
    if of not in ("difference", "sum") or not 0 < scale < math.inf:
        raise InvalidArgumentError(f'of must be "difference" or "sum" and scale positive, got {of!r} and {scale!r}.')
    a, b = _vectors(x, y)
    squares = ((a - b if of == "difference" else a + b) ** 2).sum(-1) / scale**2
    rho = normalizer(length, scale, of == "difference" and complement)
    mean = (-np.expm1(-squares / 2) if complement else np.exp(-squares / 2)) / rho
    n = check_count("num_frequencies", num_frequencies)
    if estimator == "positive":
        sign = scale if of == "difference" else -scale
        spread = softmax_variance(a / scale, b / sign, n, kernel="gaussian")
    elif estimator == "trigonometric":
        spread = np.expm1(-squares) ** 2 / (2 * n)
    else:
        raise InvalidArgumentError(f'estimator must be "trigonometric" or "positive", got {estimator!r}.')
    return np.asarray(mean), np.asarray(mean**2 + spread / rho**2)


def bipolar_variance(
    x: Any,  # (..., d)
    y: Any,  # (..., d)
    num_frequencies: int,
    moments: tuple[Array, Array],
    *,
    common: bool = True,
    antithetic: bool = False,
    kernel: str = "softmax",
) -> Array:  # (...)
    """Return the variance of lambda S_positive + (1 - lambda) S_trigonometric with independent frequencies.

    It is E lambda^2 MSE(S_+) + E (1 - lambda)^2 MSE(S_trig), with lambda independent of both. With common frequencies,
    (2 / m) SM^2 (1 - cos(|x|^2 - |y|^2)) E lambda (1 - lambda) is subtracted.

    Source: Choromanski et al. (2022), Theorems 3.1, D.1, F.1 and F.2.

    Args:
        x: (..., d).
        y: (..., d), paired with x.
        num_frequencies: m of each estimator.
        moments: E lambda and E lambda^2, (...) each, from `angular_moments` or `gaussian_moments`.
        common: Whether the two estimators have the same frequencies.
        antithetic: Whether the positive estimator uses -omega as well.
        kernel: "softmax" or "gaussian".

    Examples:
        >>> from rfgp import theory
        >>> x, y = [1.0, 0.0], [0.0, 0.5]
        >>> moments = theory.angular_moments(x, y, 8)
        >>> bool(theory.bipolar_variance(x, y, 32, moments) < theory.bipolar_variance(x, y, 32, moments, common=False))
        True
    """
    a, b = _vectors(x, y)
    m, (mean, second) = check_count("num_frequencies", num_frequencies), moments
    opposite = {"num_frequencies": 2 * m, "coupling": "iid-antithetic"} if antithetic else {"num_frequencies": m}
    positive = softmax_variance(a, b, kernel=kernel, **opposite)
    trigonometric = softmax_variance(a, b, m, estimator="trigonometric", kernel=kernel)
    total = second * positive + (1 - 2 * mean + second) * trigonometric
    if common:
        cosine = np.cos((a**2).sum(-1) - (b**2).sum(-1))
        square = np.exp(2 * ((a * b).sum(-1) + _log_scale(a, b, kernel)))
        total = total - 2 / m * square * (1 - cosine) * (mean - second)
    return np.asarray(total)


def _exponential(a: Array, b: Array, matrix: Any, coupling: str, m: int, kernel: str) -> Array:
    if matrix is None:
        raise InvalidArgumentError("matrix must be given for the exponential estimator, got None.")
    if not np.iscomplexobj(np.asarray(matrix)):
        (c, q), d = _exponent(a, b, matrix), a.shape[-1]
        return np.asarray(
            np.exp(2 * (_log_scale(a, b, kernel) - q)) * _positive(coupling, np.linalg.norm(c, axis=-1), m, d)
        )
    if coupling != "iid":
        raise InvalidArgumentError(
            f"coupling must be 'iid' for a complex matrix, got {coupling!r}, which has no closed form."
        )
    return exponential_covariance(a, b, matrix, matrix, kernel=kernel) / m


def _positive(coupling: str, v: Array, m: int, d: int) -> Array:
    """Return the variance of the mean of exp(omega . (x + y)) over the frequencies."""
    if not coupling.endswith(_ANTITHETIC):
        return variance_at(coupling, v, m, d, "laplace")
    base = coupling.removesuffix(_ANTITHETIC)
    if base not in _OPPOSITE or m % 2:
        raise InvalidArgumentError(
            f"coupling must be one of {', '.join(_OPPOSITE)} with the suffix {_ANTITHETIC} and an even number, got "
            f"{coupling!r} and {counted(m, 'frequency', 'frequencies')}, which have no closed form."
        )
    change = variance_at(base, v, m // 2, d, "laplace") - variance_at("iid", v, m // 2, d, "laplace")
    return np.asarray(np.expm1(v**2) ** 2 / m + change)


def variance_at(
    coupling: str,
    distances: Array,  # (...)
    m: int,
    d: int,
    features: str,
) -> Array:  # (...)
    """Return `variance` for distances of any shape.

    Args:
        coupling: As in `variance`.
        distances: The distances, (...).
        m: The number of frequencies.
        d: The number of dimensions.
        features: "fourier" or "laplace".

    Examples:
        >>> variance_at("iid", np.ones((2, 3)), 8, 2, "fourier").shape
        (2, 3)
    """
    return variance(coupling, distances.reshape(-1), m, d, features=features).reshape(distances.shape)


def _exponent(a: Array, b: Array, matrix: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return c = A x + A^-T y and q = ((A x)^2 + (A^-T y)^2) / 2."""
    full, d = np.asarray(matrix), a.shape[-1]
    full = np.diag(full) if full.ndim == 1 else full
    if full.shape != (d, d):
        raise InvalidArgumentError(f"The matrix A must be ({d}, {d}) or ({d},), got {np.shape(matrix)}.")
    try:
        inverse = np.linalg.inv(full)
    except np.linalg.LinAlgError as error:
        raise InvalidArgumentError("The matrix A must be invertible, got a singular one.") from error
    left, right = a @ full.T, b @ inverse
    return left + right, 0.5 * ((left**2).sum(-1) + (right**2).sum(-1))


def _log_scale(a: Array, b: Array, kernel: str) -> Array:
    """Return the logarithm of the ratio between the kernel and the softmax kernel."""
    if check_kernel(kernel) == "softmax":
        return np.zeros(a.shape[:-1])
    return np.asarray(-0.5 * ((a**2).sum(-1) + (b**2).sum(-1)))


def _vectors(x: Any, y: Any) -> tuple[Array, Array]:
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim < 1 or b.ndim < 1 or a.shape[-1] != b.shape[-1]:
        raise InvalidArgumentError(f"x and y must be (..., d) with the same d, got {a.shape} and {b.shape}.")
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError as error:
        raise InvalidArgumentError(f"x and y must broadcast, got {a.shape} and {b.shape}.") from error
    return a, b
