"""Non-uniform fast Fourier transforms by finufft, in one to three columns and double precision.

Source: Barnett, Magland and af Klinteberg (2019), A parallel nonuniform fast Fourier transform library based on an
"exponential of semicircle" kernel.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Complex = NDArray[np.complex128]

PRECISION = 1e-13
"""The relative error of a transform."""


def sums_at_frequencies(angles: Floats, strengths: Complex, shape: Sequence[int]) -> Complex:
    """Return sum_n c_n exp(i k . a_n) for the integers |k_c| <= K_c.

    The result is (2 K_1 + 1, ..., 2 K_d + 1).

    Args:
        angles: The angles a, (n, d), in radians.
        strengths: The strengths c, (n,).
        shape: The shape of the result. Its sizes are odd.
    """
    if not len(angles):
        return np.zeros(tuple(shape), dtype=np.complex128)
    result = _function("1", len(shape))(
        *_columns(angles), np.ascontiguousarray(strengths), tuple(shape), isign=1, eps=PRECISION, nthreads=1
    )
    return np.asarray(result, dtype=np.complex128)


def series_at_points(angles: Floats, coefficients: Complex) -> Complex:
    """Return sum_k C_k exp(i k . a_n) at n points, (n,).

    Args:
        angles: The angles a, (n, d), in radians.
        coefficients: The coefficients C, (2 K_1 + 1, ..., 2 K_d + 1), from k = -K on.
    """
    if not len(angles):
        return np.zeros(0, dtype=np.complex128)
    result = _function("2", coefficients.ndim)(
        *_columns(angles), np.ascontiguousarray(coefficients), isign=1, eps=PRECISION, nthreads=1
    )
    return np.asarray(result, dtype=np.complex128)


def _function(kind: str, num_columns: int) -> Any:
    import finufft

    return getattr(finufft, f"nufft{num_columns}d{kind}")


def _columns(angles: Floats) -> list[Floats]:
    return [np.ascontiguousarray(column) for column in angles.T]
