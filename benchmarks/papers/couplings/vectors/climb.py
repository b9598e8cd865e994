"""The authors' search for hyperparameters: 5,000 steps of Adam on the likelihood of the exact process (App. B.1).

Adam begins at a lengthscale of 1 and standard deviations of 1 (signal) and 0.1 (noise), and moves their logarithms. It
does not always end at the highest likelihood: on abalone its lengthscales are shorter, and on one fold of concrete
with positive features its signal is smaller.
"""

import numpy as np
from scipy.linalg import lapack

from benchmarks.papers.couplings.vectors.splits import Array, Fit

STEPS, RATE = 5000, 0.01
_FIRST, _SECOND, _SMALL = 0.9, 0.999, 1e-7
"""Decay rates of Adam's two moments, and the number that keeps its divisor above 0, as in Keras."""


class Adam:
    """Adam's steps downhill.

    Args:
        start: The first position (k,).
    """

    def __init__(self, start: Array) -> None:
        self.place = start
        self._mean, self._square, self._count = np.zeros_like(start), np.zeros_like(start), 0

    def step(self, gradient: Array) -> None:
        """Move against a gradient (k,)."""
        self._count += 1
        self._mean = _FIRST * self._mean + (1 - _FIRST) * gradient
        self._square = _SECOND * self._square + (1 - _SECOND) * gradient**2
        mean, square = self._mean / (1 - _FIRST**self._count), self._square / (1 - _SECOND**self._count)
        self.place = self.place - RATE * mean / (np.sqrt(square) + _SMALL)


def climb_scales(squares: Array, y: Array, lengthscale: float) -> Fit:  # (n, n), (n,)
    """Return the final signal and noise of Adam at a given lengthscale."""
    values, vectors = np.linalg.eigh(np.exp(-squares / (2 * lengthscale**2)))
    values, parts = np.maximum(values, 0), (vectors.T @ y) ** 2
    adam = Adam(np.log([1.0, 0.1]))
    for _ in range(STEPS):
        signal, noise = np.exp(2 * adam.place)
        total = signal * values + noise
        slope = (1 / total - parts / total**2) / len(y)
        adam.step(np.array([signal * (slope @ values), noise * slope.sum()]))
    signal, noise = np.exp(2 * adam.place)
    total = signal * values + noise
    log_likelihood = -(parts / total + np.log(2 * np.pi * total)).sum() / 2
    return Fit(lengthscale, float(noise / signal), float(signal), float(log_likelihood))


def climb(squares: Array, y: Array) -> Fit:  # (n, n), (n,)
    """Return the final lengthscale, signal and noise of Adam."""
    adam = Adam(np.log([1.0, 1.0, 0.1]))
    for _ in range(STEPS):
        adam.step(slopes(squares, y, adam.place)[1] / len(y))
    lengthscale, signal, noise = np.exp(adam.place * [1, 2, 2])
    return Fit(float(lengthscale), float(noise / signal), float(signal), -slopes(squares, y, adam.place)[0])


def slopes(squares: Array, y: Array, place: Array) -> tuple[float, Array]:  # (n, n), (n,), (3,)
    """Return minus the log likelihood, and its gradient in the logarithms of the lengthscale and of both deviations."""
    lengthscale, signal, noise = np.exp(place * [1, 2, 2])
    scaled, n = squares / lengthscale**2, len(y)
    gram = signal * np.exp(scaled / -2)
    noisy = gram.copy()
    noisy.flat[:: n + 1] += noise
    factor = lapack.dpotrf(noisy.T, lower=1, clean=1, overwrite_a=1)[0]
    weights = lapack.dpotrs(factor, y, lower=1)[0]
    value = y @ weights / 2 + np.log(factor.diagonal()).sum() + n * np.log(2 * np.pi) / 2
    inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0]  # its lower half, zeros above
    diagonal = inverse.diagonal().sum()
    slope, moved = gram * inverse.T, gram @ weights
    by_signal = 2 * slope.sum() - signal * diagonal - weights @ moved
    by_length = np.vdot(slope, scaled) - weights @ ((gram * scaled) @ weights) / 2
    return float(value), np.array([by_length, by_signal, noise * (diagonal - weights @ weights)])
