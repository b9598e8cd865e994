"""Gaussian regression through a sparse precision; numbers alone.

u ~ N(0, (Q / s^2)^-1) is observed as y = mean + A u + e with e of variance D. With r = y - mean,

    H = Q / s^2 + A^T D^-1 A,    mu = H^-1 A^T D^-1 r,    u | y ~ N(mu, H^-1),
    -2 log N(y) = n log 2 pi + log|D| + log|H| - log|Q / s^2| + (r - A mu)^T D^-1 (r - A mu) + mu^T Q mu / s^2,

and its derivatives follow from those of the quadratic form at its minimum in mu, and from H^-1 on the pattern of Q
(Rue and Held 2005, Gaussian Markov Random Fields, Section 2.3). k outputs share H, and count c_j times each.
"""

import math
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from rfgp.inference.markov.prior import Array, Factor, Field, checked, squares

_LOG_2PI = math.log(2 * math.pi)


class MarkovSystem:
    """A field given observations.

    Args:
        field: Q of its parameters.
        values: Its parameters, (p,).
        variance: s^2.
        observed: A (n, N).
        noise: D (n,).
        residual: r (n, k).
        each: c (k,); None: ones.
    """

    def __init__(
        self,
        field: Field,
        values: Array,
        variance: float,
        observed: sp.csr_array,
        noise: Array,
        residual: Array,
        each: Array | None = None,
    ) -> None:
        self.field, self._values, self._variance = field, values, variance
        self.observed, self._noise, self._residual = observed, noise, residual
        self._each = np.ones(residual.shape[1]) if each is None else each
        self._prior = field.entries(values) / variance

    @cached_property
    def factor(self) -> Factor:
        """The factor of H."""
        return checked(self.field.factor, self._seeing(self._prior, self.observed, self._noise))

    def further(self, observed: sp.csr_array, noise: Array) -> Factor:
        """Return the factor of H + B^T E^-1 B, for further observations through B (m, N) with the variances E (m,)."""
        entries = self._seeing(self._prior, self.observed, self._noise)
        return checked(self.field.factor, self._seeing(entries, observed, noise))

    def _seeing(self, entries: Array, observed: sp.csr_array, noise: Array) -> Array:
        """Return entries (nnz,) of a precision and those of A^T D^-1 A, for observations through A (n, N)."""
        indptr, indices = self.field.pattern
        weighted = sp.csr_array(observed.T @ sp.diags_array(1 / noise) @ observed)
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(weighted.indptr))
        numbers = sp.csr_array((np.arange(1, len(indices) + 1), indices, indptr))
        data = entries.copy()
        data[np.asarray(numbers[rows, weighted.indices]).ravel() - 1] += weighted.data
        return data

    @cached_property
    def mean(self) -> Array:
        """The mean mu of u, (N, k)."""
        return self.factor.solve(self.observed.T @ (self._residual / self._noise[:, None]))

    @property
    def log_determinant(self) -> float:
        """The log determinant of I + K D^-1, for the covariance K = s^2 A Q^-1 A^T of the noiseless observations."""
        return self.factor.log_determinant - self._determinant[0] + len(self.mean) * math.log(self._variance)

    @cached_property
    def left(self) -> Array:
        """What the mean leaves, r - A mu, (n, k)."""
        return np.asarray(self._residual - self.observed @ self.mean)

    @cached_property
    def explained(self) -> Array:
        """The variances of A u given y, (n,)."""
        return squares(self.field, self.factor, self.observed)

    def log_density(self) -> float:
        """Return log N(y), of all outputs."""
        n, k = len(self._residual), self._each.sum()
        determinants = float(np.log(self._noise).sum()) + self.log_determinant
        square = (self.left**2 / self._noise[:, None]).sum(axis=0) + (self.mean * self._pulled).sum(axis=0)
        return float(-0.5 * (k * (n * _LOG_2PI + determinants) + square @ self._each))

    def gradient(self) -> tuple[Array, float, Array, Array]:
        """Return the derivatives of the log density in the parameters (p,), in s^2, in D (n,) and in r (n, k)."""
        k, size, counted = self._each.sum(), len(self.mean), self.mean * self._each
        indptr, indices = self.field.pattern
        rows = np.repeat(np.arange(size), np.diff(indptr))
        second = k * self.factor.inverse + np.einsum("ek,ek->e", counted[rows], self.mean[indices])
        in_values = 0.5 * (k * self._determinant[1] - self.field.pull_back(self._values, second) / self._variance)
        in_variance = 0.5 * (float(second @ self._prior) - k * size) / self._variance
        noise = self._noise
        in_noise = 0.5 * ((k * self.explained + self.left**2 @ self._each) / noise**2 - k / noise)
        return in_values, in_variance, in_noise, -self.left * self._each / noise[:, None]

    @cached_property
    def _determinant(self) -> tuple[float, Array]:
        return self.field.log_determinant(self._values)

    @cached_property
    def _pulled(self) -> Array:
        """Q mu / s^2, (N, k)."""
        indptr, indices = self.field.pattern
        return np.asarray(sp.csr_array((self._prior, indices, indptr)) @ self.mean)
