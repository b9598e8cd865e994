"""Distributions that models predict, and their scores at held-out targets.

A distribution has `mean` (n,), `log_prob(y)` (n,) and, for the coverage of its 95 % intervals, `covers(y)` (n,). The
observations of `rfgp` have the first two too.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import gammaln, logsumexp

Array = NDArray[Any]
FLOOR, BINS = 1e-12, 15
"""The least probability of a class, and the number of bins of the calibration error."""
_GRID = np.linspace(-8, 8, 2001)


class Normal(NamedTuple):
    """Normal distributions, or mixtures of them.

    Attributes:
        means: The means, (n,) or (k, n).
        variances: The variances, of the same shape.
        shares: The shares (k,) of a mixture.
    """

    means: Array
    variances: Array
    shares: Any = (1.0,)

    def _parts(self) -> tuple[Array, Array, Array]:
        return np.asarray(self.shares), np.atleast_2d(self.means), np.atleast_2d(self.variances)

    @property
    def mean(self) -> Array:
        """The means of the mixtures, (n,)."""
        shares, means, _ = self._parts()
        return np.asarray(shares @ means)

    def log_prob(self, y: Array) -> Array:
        """Return the log densities (n,)."""
        shares, means, variances = self._parts()
        z = (y - means) / np.sqrt(variances)
        return np.asarray(logsumexp(stats.norm.logpdf(z) - np.log(variances) / 2 + np.log(shares)[:, None], axis=0))

    def covers(self, y: Array) -> Array:
        """Return whether targets are in the central 95 % intervals, (n,)."""
        shares, means, variances = self._parts()
        below = shares @ stats.norm.cdf((y - means) / np.sqrt(variances))
        return np.asarray((below > 0.025) & (below < 0.975))

    def crps(self, y: Array) -> Array:
        """Return E|x - y| - E|x - x'| / 2, (n,).

        The mean of |N(m, v)| is in closed form (Grimit et al. 2006, Eq. 5).
        """

        def far(m: Array, v: Array) -> Array:
            z = m / np.sqrt(v)
            return np.asarray(np.sqrt(v) * (2 * stats.norm.pdf(z) + z * (2 * stats.norm.cdf(z) - 1)))

        shares, means, variances = self._parts()
        between = far(means[:, None] - means, variances[:, None] + variances)
        return np.asarray(shares @ far(y - means, variances) - 0.5 * np.einsum("i,j,ijn->n", shares, shares, between))


class Counts(NamedTuple):
    """Counts given normal distributions of their log rates, which are integrated out on a grid.

    Attributes:
        means: The means (n,) of the log rates.
        variances: The variances (n,) of the log rates.
        shape: The r of the negative binomial distribution of variance m + m^2 / r. If None, Poisson.
    """

    means: Array
    variances: Array
    shape: float | None = None

    @classmethod
    def of_means(cls, mean: Array, shape: float | None = None) -> "Counts":
        """Return the distributions of given means (n,)."""
        return cls(np.log(np.maximum(mean, 1e-12)), np.zeros(len(mean)), shape)

    @property
    def mean(self) -> Array:
        """The means of the counts, (n,)."""
        return np.asarray(np.exp(self.means + self.variances / 2))

    def _rates(self) -> tuple[Array, Array]:
        """Return log rates (n, k) and the logarithms of their weights (k,)."""
        if self.variances.max() == 0:
            return self.means[:, None], np.zeros(1)
        rates = self.means[:, None] + np.sqrt(self.variances)[:, None] * _GRID
        return rates, -0.5 * _GRID**2 - np.log(np.sum(np.exp(-0.5 * _GRID**2)))

    def log_prob(self, y: Array) -> Array:
        """Return the log probabilities (n,)."""
        rates, weights = self._rates()
        if self.shape is None:
            given = y[:, None] * rates - np.exp(rates) - gammaln(y + 1)[:, None]
        else:
            r = self.shape
            given = y[:, None] * rates - (y[:, None] + r) * np.logaddexp(np.log(r), rates) + r * np.log(r)
            given += (gammaln(y + r) - gammaln(r) - gammaln(y + 1))[:, None]
        return np.asarray(np.logaddexp.reduce(given + weights, axis=1))

    def covers(self, y: Array) -> Array:
        """Return whether counts are from the quantile 0.025 to the quantile 0.975, (n,)."""
        rates, weights = self._rates()

        def below(k: Array) -> Array:
            if self.shape is None:
                given = stats.poisson.cdf(k[:, None], np.exp(rates))
            else:
                given = stats.nbinom.cdf(k[:, None], self.shape, self.shape / (self.shape + np.exp(rates)))
            return np.asarray(given @ np.exp(weights))

        return np.asarray((below(y) >= 0.025) & (below(y - 1) < 0.975))


def of_targets(found: Any, y: Array) -> dict[str, float]:
    """Return RMSE, NLPD and, if the distribution has them, CRPS and the coverage of 95 % intervals."""
    figures = {"rmse": np.sqrt(np.mean((found.mean - y) ** 2)), "nlpd": -np.mean(found.log_prob(y))}
    figures |= {"crps": found.crps(y).mean()} if hasattr(found, "crps") else {}
    if hasattr(found, "covers"):
        figures["coverage"] = np.mean(found.covers(y))
    elif hasattr(found, "interval"):
        low, high = found.interval(0.95)
        figures["coverage"] = np.mean((low <= y) & (y <= high))
    return {name: float(value) for name, value in figures.items()}


def of_classes(found: Array, y: Array) -> dict[str, float]:
    """Return accuracy, NLPD and expected calibration error of probabilities (n, c).

    The codes y (n,) are -1 for unknown classes. They have the probability `FLOOR`.
    """
    known = np.where(y >= 0, found[np.arange(len(y)), y], 0.0)
    top, right = found.max(1), found.argmax(1) == y
    place = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = [abs(np.sum(right[place == k]) - np.sum(top[place == k])) for k in range(BINS)]
    nlpd = -np.log(np.maximum(known, FLOOR)).mean()
    return {"accuracy": float(right.mean()), "nlpd": float(nlpd), "calibration": float(sum(gaps) / len(y))}
