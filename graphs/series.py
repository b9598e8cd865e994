"""Power series of square roots, numerically stable for long series.

The recursion f_n = (a_n - sum_k f_k f_{n-k}) / (2 f_0) for the square root of a power series cancels if f decays fast.
For exp(30 (u - 1)) no digit of f_60 is right, although f * f agrees with a up to rounding. Cauchy's integral over a
circle |u| = r, computed by a Fourier transform, has an error near 2^-53 max |g| / r^l. The radius can be chosen for
each l (Bornemann 2011, "Accuracy and stability of computing high-order derivatives of analytic functions by Cauchy
integrals").
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from graphs.errors import InvalidArgumentError

Vector = NDArray[np.float64]
Function = Callable[[NDArray[np.complex128]], NDArray[np.complex128]]

_NUM_RADII = 240
"""The number of radii that are compared for entire functions."""
_CHECK_POINTS = 4096
"""The number of points on a circle at which a function is checked to be analytic."""
_MAX_RADIUS = 64.0
"""The largest radius of convergence that is tried."""
_NEGLIGIBLE = 1e-11
"""The relative size of coefficients of negative powers below which a function counts as analytic."""
_ALIASING = 39.0
"""-log of the aliasing error 2^-56."""


def root_coefficients(
    log_function: Function,  # (n,) -> (n,)
    length: int,
    radius: float,
) -> Vector:  # (length + 1,)
    """Return the Taylor coefficients (length + 1,) at 0 of sqrt(k), positive at 0.

    Args:
        log_function: log k at complex points, on any branch. k(0) must be positive, and k analytic without zeros inside
            `radius` and real on the real axis.
        length: The largest power.
        radius: The radius of convergence of the root. It may be infinite.

    Raises:
        InvalidArgumentError: If no circle works, for example because k has zeros near 0.

    Examples:
        >>> from graphs.series import root_coefficients
        >>> root_coefficients(lambda u: 2 * u, 3, float("inf")).round(6).tolist()
        [1.0, 1.0, 0.5, 0.166667]
    """
    points = 1 << (8 * length + 1023).bit_length()
    bounded = np.isfinite(radius)
    largest = radius * np.exp(-_ALIASING / points) if bounded else 1e4 * (length + 1)
    circle, powers = np.exp(2j * np.pi * np.arange(points) / points), np.arange(length + 1)
    best, error = np.zeros(length + 1), np.full(length + 1, np.inf)
    radii = largest * 0.7 ** np.arange(6) if bounded else np.geomspace(largest, 1e-6, _NUM_RADII)
    for r in radii:
        log_root = _continuous_half(log_function(r * circle))
        if log_root is None:
            continue
        size = float(log_root.real.max())
        scaled = np.fft.fft(np.exp(log_root - size)).real / points  # f_l r^l / exp(size)
        if np.abs(scaled[points // 2 - 8 : points // 2 + 8]).max() > 1e-8:
            continue  # aliasing: coefficients at twice the index are not below 1e-16
        bound = size - powers * np.log(r)
        with np.errstate(divide="ignore", over="ignore"):
            first = scaled[: length + 1]
            values = np.sign(first) * np.exp(np.log(np.abs(first)) + bound)
        best = np.where(bound < error, values, best)
        error = np.minimum(error, bound)
    if not np.isfinite(error).all():
        raise InvalidArgumentError(
            "The square root of the series must be analytic around u = 0, got one that cannot be evaluated. Check the "
            "kernel for zeros near eigenvalue 1."
        )
    return best


def analytic_radius(
    log_function: Function,  # (n,) -> (n,)
) -> float:
    """Return a radius >= 1 inside which exp(log_function) has an analytic root.

    It is infinite if it exceeds 64.

    Args:
        log_function: A function (n,) -> (n,) of complex points, on any branch.

    Raises:
        InvalidArgumentError: If there is none, so the series may diverge on the spectrum of U.

    Examples:
        >>> import numpy as np
        >>> from graphs.series import analytic_radius
        >>> round(analytic_radius(lambda u: np.log(2 - u)), 1)
        2.0
    """
    check_analytic(log_function)
    low, high = 1.0, _MAX_RADIUS
    if _is_analytic(log_function, high):
        return np.inf
    while high > 1.005 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _is_analytic(log_function, middle) else (low, middle)
    return low


def check_analytic(log_function: Function) -> None:
    """Check that a function has an analytic root in the unit disk.

    Args:
        log_function: A function (n,) -> (n,) of complex points, on any branch.

    Raises:
        InvalidArgumentError: If it has none. The message names features that do not need a series.

    Examples:
        >>> import numpy as np
        >>> from graphs.series import check_analytic
        >>> check_analytic(lambda u: np.log(2 - u))
    """
    if not _is_analytic(log_function, 1.0):
        raise InvalidArgumentError(
            "The root of this function of eigenvalues has no power series in U = I - L that converges for |u| <= 1. "
            "The function must be analytic there for complex lambda = 1 - u, without zeros, kinks, max or abs. Use "
            'features="exact", "chebyshev" or "spectrum", which need no series.'
        )


def _is_analytic(log_function: Function, r: float) -> bool:
    """Return whether exp(log_function) has an analytic root inside a circle.

    The logarithm must not wind around the circle (zeros inside), and the root must have no negative powers (poles).
    """
    log_root = _continuous_half(log_function(r * np.exp(2j * np.pi * np.arange(_CHECK_POINTS) / _CHECK_POINTS)))
    if log_root is None:
        return False
    scaled = np.abs(np.fft.fft(np.exp(log_root - log_root.real.max()))) / _CHECK_POINTS
    return bool(scaled[_CHECK_POINTS // 2 :].max() < _NEGLIGIBLE)


def _continuous_half(logs: NDArray[np.complex128]) -> NDArray[np.complex128] | None:
    """Return half the logarithm along a circle, continuous, or None if it winds."""
    if not np.isfinite(logs).all():
        return None
    phase = np.unwrap(np.append(logs.imag, logs.imag[0]))
    if abs(phase[-1] - phase[0]) > 1:  # a zero inside, or steps too coarse to follow the phase
        return None
    return np.asarray(0.5 * (logs.real + 1j * (phase[:-1] - phase[0])))
