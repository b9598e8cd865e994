"""Gaussian regression in 90 digits: integers in units of 2^-300, in arrays of Python integers."""

from typing import NamedTuple

import mpmath as mp
import numpy as np

BITS = 300


def fixed(values):
    """Return floats or numbers of mpmath (...) in fixed point, exactly for floats above 1e-70."""
    values = np.asarray(values, dtype=object)
    with mp.workprec(2 * BITS):
        flat = [int(mp.floor(mp.ldexp(mp.mpf(value), BITS))) for value in values.reshape(-1)]
    return np.array(flat, dtype=object).reshape(values.shape)


def floats(values):
    """Return numbers in fixed point (...) as floats."""
    values = np.asarray(values, dtype=object)
    return np.array([float(mp.ldexp(mp.mpf(value), -BITS)) for value in values.reshape(-1)]).reshape(values.shape)


def product(a, b):
    """Return A B of matrices in fixed point."""
    return a.dot(b) >> BITS


class Answers(NamedTuple):
    """The answers of a model at new points and rows, as floats, and its gradients by the names of `slopes`."""

    mean: np.ndarray
    std: np.ndarray
    left_out_mean: np.ndarray
    left_out_std: np.ndarray
    log_prob: float
    gradients: dict[str, float]


def regression(kernel, cross, variances, noise, y, slopes):
    """Return the answers of Gaussian regression.

    Args:
        kernel: The covariance of the rows (n, n), in fixed point like the next two and the slopes.
        cross: The covariance of new points and rows, (q, n).
        variances: The variances of the new points, (q,).
        noise: The noise variance.
        y: The targets (n,).
        slopes: The derivatives of the covariance in logarithms of hyperparameters by name, (n, n) each.
    """
    identity, noise = fixed(np.eye(len(y))), fixed(noise)[()]
    y = fixed(y)
    solved, log_determinant = _solve(kernel + noise * np.eye(len(y), dtype=int).astype(object), np.c_[y, identity])
    a, precision = solved[:, 0], solved[:, 1:]
    variances = variances - ((product(cross, precision) * cross).sum(1) >> BITS)
    left_out = np.array([(1 << 2 * BITS) // value for value in precision.diagonal()], dtype=object)
    twice = ((a[:, None] * a) >> BITS) - precision
    gradients = {name: float(floats((twice * slope).sum() >> BITS)) / 2 for name, slope in slopes.items()}
    gradients["noise"] = float(floats(twice.diagonal().sum() * noise >> BITS)) / 2
    log_prob = -0.5 * (float(floats((y * a).sum() >> BITS)) + log_determinant + len(y) * float(mp.log(2 * mp.pi)))
    means = floats(product(cross, a)), floats(y - (a * left_out >> BITS))
    stds = np.sqrt(floats(variances)), np.sqrt(floats(left_out))
    return Answers(means[0], stds[0], means[1], stds[1], log_prob, gradients)


def _solve(matrix, right):
    """Return A^-1 B and log|A| of a positive definite A, by elimination."""
    n, both, log_determinant = len(matrix), np.concatenate([matrix, right], axis=1), mp.mpf(0)
    for p in range(n):
        pivot = both[p, p]
        log_determinant += mp.log(mp.ldexp(mp.mpf(pivot), -BITS))
        factors = (both[p + 1 :, p] << BITS) // pivot
        both[p + 1 :, p:] -= factors[:, None] * both[p, p:] >> BITS
    out = both[:, n:]
    for p in range(n - 1, -1, -1):
        out[p] = ((out[p] - (both[p, p + 1 : n].dot(out[p + 1 :]) >> BITS)) << BITS) // both[p, p]
    return out, float(log_determinant)
