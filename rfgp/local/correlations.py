"""Kernels of local processes at squared distances, in compiled loops that the compiler can vectorize."""

import numpy as np
from numba import float64, int64
from numba.extending import intrinsic

from rfgp.compiled import jit
from rfgp.local.kinds import KINDS

MATERN12, MATERN32, MATERN52, GAUSSIAN = KINDS.values()


@intrinsic
def _float_of(context, bits):
    """Return the float64 with these bits, an int64."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(float64))

    return float64(int64), generate


@jit(fastmath={"reassoc", "contract", "nsz"})
def _exp(x):
    """Return e^x for x <= 0, to a few roundings, in vectorizable steps.

    With x = n log 2 + r, the result is 2^n e^r, by 13 terms of the series at |r| < 0.35.
    """
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = x - n * 0.6931471805599453
    y = 1 / 12 * r + 1.0
    y = 1 / 11 * r * y + 1.0
    y = 1 / 10 * r * y + 1.0
    y = 1 / 9 * r * y + 1.0
    y = 1 / 8 * r * y + 1.0
    y = 1 / 7 * r * y + 1.0
    y = 1 / 6 * r * y + 1.0
    y = 1 / 5 * r * y + 1.0
    y = 1 / 4 * r * y + 1.0
    y = 1 / 3 * r * y + 1.0
    y = 1 / 2 * r * y + 1.0
    y = r * y + 1.0
    return y * _float_of((np.int64(max(n, -1022.0)) + 1023) << 52) if x > -700.0 else 0.0


@jit(fastmath={"reassoc", "contract", "nsz"})
def correlation(kind, square):
    """Return k and dk / d(r^2) at r^2.

    The infinite slope of Matern 1/2 at 0 is returned as 0.

    Args:
        kind: The number of the kernel.
        square: r^2.

    Returns:
        The value k and its derivative in r^2.
    """
    if kind == GAUSSIAN:
        value = _exp(-0.5 * square)
        return value, -0.5 * value
    r = np.sqrt(square)
    if kind == MATERN12:
        value = _exp(-r)
        return value, -0.5 * value / r if r > 0 else 0.0
    if kind == MATERN32:
        r *= np.sqrt(3.0)
        decay = _exp(-r)
        return (1 + r) * decay, -1.5 * decay
    r *= np.sqrt(5.0)
    decay = _exp(-r)
    return (1 + r + r * r / 3) * decay, -(5.0 / 6) * (1 + r) * decay


@jit(fastmath={"reassoc", "contract", "nsz"})
def correlate_row(kind, values, slopes, begin, end):
    """Overwrite squared distances with values of the kernel, and write slopes.

    Args:
        kind: The number of the kernel.
        values: Squared distances, which are overwritten.
        slopes: The derivatives in r^2, which are written.
        begin: The first entry.
        end: The entry after the last.
    """
    if kind == MATERN12:  # one loop for each kernel, so that the compiler vectorizes it
        for q in range(begin, end):
            values[q], slopes[q] = correlation(MATERN12, values[q])
    elif kind == MATERN32:
        for q in range(begin, end):
            values[q], slopes[q] = correlation(MATERN32, values[q])
    elif kind == MATERN52:
        for q in range(begin, end):
            values[q], slopes[q] = correlation(MATERN52, values[q])
    else:
        for q in range(begin, end):
            values[q], slopes[q] = correlation(GAUSSIAN, values[q])


@jit(fastmath={"reassoc", "contract", "nsz"})
def drop(kind, square):
    """Return 1 - k at r^2, without cancellation near 0.

    For Matern kernels with t = (2 nu)^(1/2) r it is a series: the integral of u e^-u for nu 3/2, and of
    u (1 + u) e^-u / 3 for nu 5/2, from 0 to t.

    Args:
        kind: The number of the kernel.
        square: r^2.
    """
    if kind in (GAUSSIAN, MATERN12):
        return -np.expm1(-0.5 * square if kind == GAUSSIAN else -np.sqrt(square))
    t = np.sqrt(square * (3.0 if kind == MATERN32 else 5.0))
    if t > 0.5:
        return 1 - correlation(kind, square)[0]
    total, power = 0.0, t * t
    for j in range(16):
        total += power / (j + 2) * (1.0 if kind == MATERN32 else (1 - j) / 3)
        power *= -t / (j + 1)
    return total
