"""Gaussian processes by dense matrices in numpy, to compare with.

Nothing here knows the package: priors are matrices of the n rows followed by the new points.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import gammaln


@dataclass
class DenseGP:
    """Rows y = mean + f + e with f = sum of terms, and e ~ N(0, noise / weight).

    Attributes:
        priors: The covariance of each term at the n rows and the m new points, (n + m, n + m).
        y: The targets (n,). A row of weight w is w observations with this target.
        noise: The variance of one observation, (n,).
        mean: The prior mean.
        weight: The number of observations of each row, (n,).
        missed: A further covariance of one term, that the rows do not see, (n + m, n + m). It is independent between
            rows and new points (VFE).
    """

    priors: dict
    y: np.ndarray
    noise: np.ndarray
    mean: float = 0.0
    weight: np.ndarray | float = 1.0
    missed: dict = field(default_factory=dict)

    @cached_property
    def total(self):
        """The prior covariance of all terms."""
        return sum(self.priors.values())

    @property
    def n(self):
        return len(self.y)

    @cached_property
    def inverse(self):
        """The inverse covariance of the rows."""
        return np.linalg.inv(self.total[: self.n, : self.n] + np.diag(self.noise / self.weight))

    @cached_property
    def coefficients(self):
        return self.inverse @ (self.y - self.mean)

    def log_marginal_likelihood(self):
        """Return log N(y; mean, K + D), the observations of a row each counted."""
        density = -0.5 * ((self.y - self.mean) @ self.coefficients + self.n * np.log(2 * np.pi))
        density += 0.5 * np.linalg.slogdet(self.inverse)[1]
        weight = self.weight * np.ones(self.n)
        repeated = -0.5 * ((weight - 1) * np.log(2 * np.pi * self.noise) + np.log(weight)).sum()
        bound = -0.5 * sum((weight * np.diag(part)[: self.n] / self.noise).sum() for part in self.missed.values())
        return density + repeated + bound

    def prior(self, names):
        """Return the sum of the priors of some terms, of all if None."""
        return self.total if names is None else sum(self.priors[name] for name in names)

    def mean_at(self, names=None):
        """Return the posterior mean of some terms at the new points. That of all terms has the prior mean."""
        own = self.prior(names)[self.n :, : self.n] @ self.coefficients
        return own + self.mean if names is None else own

    def covariance(self, first=None, second=None):
        """Return the posterior covariance of sums of terms at the new points."""
        second = first if second is None else second
        own = [name for name in self.priors if name in (first or self.priors) and name in (second or self.priors)]
        left, right = (self.prior(names)[self.n :, : self.n] for names in (first, second))
        shared = sum((self.priors[name] + self.missed.get(name, 0.0))[self.n :, self.n :] for name in own)
        return shared - left @ self.inverse @ right.T

    def leave_one_out(self):
        """Return the mean and variance of one observation at each row given all others."""
        precisions = np.diag(self.inverse)
        once = self.noise * (1 - 1 / (self.weight * np.ones(self.n)))
        missed = sum(np.diag(part)[: self.n] for part in self.missed.values())
        return self.y - self.coefficients / precisions, 1 / precisions + once + missed


def poisson(priors, counts, mean, *, variational=False, missed=0.0):
    """Return the model of Gaussian sites of counts with log rate f, and its log marginal likelihood.

    It is that of Laplace, or the largest lower bound of a Gaussian posterior.

    Args:
        priors: As for `DenseGP`.
        counts: The counts, (n,).
        mean: The prior mean.
        variational: Whether the bound is maximized.
        missed: The variances that the rows do not see, (n,).
    """
    n = len(counts)
    prior = sum(priors.values())[:n, :n]
    f, v = np.full(n, mean), np.zeros(n)
    for _ in range(200):
        rate = np.exp(f + v / 2)
        sites = DenseGP(priors, f + (counts - rate) / rate, 1 / rate, mean)
        f = mean + prior @ sites.coefficients
        if variational:
            v = 0.5 * v + 0.5 * np.diag(prior - prior @ sites.inverse @ prior)
    fit = (counts * f - np.exp(f + v / 2) - gammaln(counts + 1)).sum()
    squares = (f - mean) @ sites.coefficients
    log_determinant = -np.linalg.slogdet(sites.inverse)[1] + np.log(rate).sum()
    trace = np.trace(prior @ sites.inverse) if variational else 0.0
    return sites, fit - 0.5 * (squares + log_determinant - trace)
