"""Posterior predictive distributions, by integrals over the latent function.

Moments without a closed form and cumulative probabilities are integrals of smooth functions against N(mean, variance).
They use the trapezoidal rule, which is exact to rounding for analytic functions. If the standard deviation of y given f
is much smaller than that of f, the error of a probability is at most 0.03. The integrand of a density has a peak. A
Gauss-Hermite rule is centered at it (adaptive Gauss-Hermite quadrature, Liu and Pierce 1994).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rfgp.inference.distributions import Distribution
from rfgp.likelihoods import Likelihood
from rfgp.likelihoods.real import normal_log_prob
from rfgp.likelihoods.role import PLACES, WEIGHTS

_HERMITE_NODES = 40
"""The number of nodes of the Gauss-Hermite rule."""
_CHUNK = 2**14
"""The number of points that are integrated at once."""
_MAX_NEWTON_STEPS = 50
"""The maximum number of Newton steps to the peak of an integrand."""


@dataclass(frozen=True, eq=False)
class LatentPredictive:
    """The distribution of observations given one latent function.

    Attributes:
        likelihood: The likelihood, with all its parameters.
        latent: The distribution of the function, without its mean.
        location: The mean of the function, 0-d, or (n,) with exposures.
    """

    likelihood: Likelihood
    latent: Distribution
    location: Tensor

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the means and the variances of observations, (n,) each."""
        likelihood = self.likelihood
        if (moments := likelihood.moments(*self.latent_moments)) is not None:
            return moments
        integrands = (likelihood.variance, lambda f: likelihood.mean(f).square(), likelihood.mean)
        within, squares, mean = (self._expectation(function) for function in integrands)
        return mean, within + (squares - mean.square()).clamp_min(0)

    def log_prob(self, y: Tensor) -> Tensor:
        """Return the log densities of observations, (n,).

        Args:
            y: The standardized observations, (n,).
        """
        parts = chunks(y, *self.latent_moments)
        return torch.cat([log_predictive_prob(self.likelihood, *part) for part in parts])

    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities that observations are at most y, (n,).

        Args:
            y: The standardized values, (n,).
        """
        parts = [
            expectation(lambda f, y: self.likelihood.cdf(y[:, None].expand_as(f), f), mean, variance, y)
            for y, mean, variance in chunks(y, *self.latent_moments)
        ]
        return torch.cat(parts).clamp(0, 1)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw observations from the joint distribution, (count, n).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        f = draw_values(self.location, self.latent, count, generator)
        return self.likelihood.sample(f, generator)

    def quantile_search_start(self) -> tuple[Tensor, Tensor]:
        """Return the start and the step of a search for quantiles, (n,) each.

        The start is the mean of y at the mean of f. The step is the sum of the scales of both distributions.
        """
        mean, variance = self.latent_moments
        return self.likelihood.mean(mean), 1 + variance.sqrt() + self.likelihood.variance(mean).clamp_max(1e300).sqrt()

    @property
    def latent_moments(self) -> tuple[Tensor, Tensor]:
        """The mean and the variance (n,) of the latent function."""
        return latent_moments(self.latent, self.location)

    def _expectation(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the mean of a function of f (...) at each point, (n,)."""
        return torch.cat([expectation(lambda f, _: function(f), *part) for part in chunks(*self.latent_moments)])


@dataclass(frozen=True, eq=False)
class HeteroscedasticPredictive:
    """The distribution of Gaussian observations with the noise variance e^g and Gaussian g.

    Attributes:
        base_noise: The noise variance at g = 0, 0-d.
        latent: The distribution of f, without its mean. Its `noise` is the distribution of g.
        location: The mean of f, 0-d.
    """

    base_noise: Tensor
    latent: Distribution
    location: Tensor

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the means and the variances of observations, (n,) each."""
        (mean, variance), (log_mean, log_variance) = self._function_moments, self._noise_moments
        return mean, variance + self.base_noise * (log_mean + log_variance / 2).exp()

    def log_prob(self, y: Tensor) -> Tensor:
        """Return the marginal log density of each observation in standardized units, (n,), float64.

        The function is integrated exactly, and the log noise by a trapezoidal rule.

        Args:
            y: The standardized observations, (n,).
        """
        parts = (normal_log_prob(*part) + WEIGHTS.log() for part in self._given_noise(y))
        return torch.cat([torch.logsumexp(part, dim=1) for part in parts])

    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities that observations are at most y, (n,).

        Args:
            y: The standardized values, (n,).
        """
        parts = (torch.special.ndtr((y - mean) / total.sqrt()) for y, mean, total in self._given_noise(y))
        return torch.cat([part @ WEIGHTS for part in parts]).clamp(0, 1)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw observations from the joint distribution, (count, n).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        f = draw_values(self.location, self.latent, count, generator)
        g = draw_values(torch.zeros_like(self.location), self._noise, count, generator)
        return f + torch.randn(f.shape, generator=generator, dtype=f.dtype) * (self.base_noise * g.exp()).sqrt()

    def quantile_search_start(self) -> tuple[Tensor, Tensor]:
        """Return the start and the step of a search for quantiles, (n,) each.

        They are the means and the standard deviations.
        """
        mean, variance = self.moments()
        return mean, variance.sqrt()

    @property
    def _noise(self) -> Distribution:
        assert self.latent.noise is not None
        return self.latent.noise

    @property
    def _function_moments(self) -> tuple[Tensor, Tensor]:
        return latent_moments(self.latent, self.location)

    @property
    def _noise_moments(self) -> tuple[Tensor, Tensor]:
        return latent_moments(self._noise, torch.zeros_like(self.location))

    def _given_noise(self, y: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield y (b, 1), E f (b, 1) and the variances (b, q) of observations, in chunks."""
        mean, variance = self._function_moments
        for values, f, latent_variance, m, v in chunks(y, mean, variance, *self._noise_moments):
            noise = self.base_noise * (m[:, None] + v.sqrt()[:, None] * PLACES).exp()
            yield values[:, None], f[:, None], latent_variance[:, None] + noise


Predictive = LatentPredictive | HeteroscedasticPredictive
"""The distributions of standardized observations at n points."""


def latent_moments(latent: Distribution, location: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and variance (n,) of the first function of a distribution.

    Args:
        latent: The distribution of the functions at n points.
        location: The mean of the first function, 0-d.
    """
    variance = latent.variance().clamp_min(0).double().cpu()  # first: its pass over the points finds the mean too
    return (location + latent.mean()[:, 0]).double().cpu(), variance


def draw_values(location: Tensor, latent: Distribution, count: int, generator: torch.Generator) -> Tensor:
    """Draw values of the first function from the joint distribution at n points, (count, n).

    Args:
        location: The mean of the first function, () or (n,).
        latent: The joint distribution at n points, without the mean of the first function.
        count: The number of draws.
        generator: A generator on the CPU.
    """
    return (location + latent.sample(count, generator)[..., 0]).double().cpu()


def expectation(
    function: Callable[[Tensor, Tensor], Tensor],
    mean: Tensor,  # (n,)
    variance: Tensor,  # (n,)
    argument: Tensor | None = None,  # (n,)
) -> Tensor:  # (n,)
    """Return E[function(f, argument)] for f ~ N(mean, variance), by the trapezoidal rule with q nodes.

    Args:
        function: A function of f (n, q) and its argument (n,).
        mean: The means, (n,).
        variance: The variances, (n,).
        argument: The second argument of the function at each point, (n,). If None, the means.

    Examples:
        >>> round(float(expectation(lambda f, _: f**2, torch.zeros(1), torch.full((1,), 2.0))), 3)
        2.0
    """
    f = mean[:, None] + variance.sqrt()[:, None] * PLACES
    return function(f, mean if argument is None else argument) @ WEIGHTS


def log_predictive_prob(
    likelihood: Likelihood,
    y: Tensor,  # (n,)
    mean: Tensor,  # (n,)
    variance: Tensor,  # (n,)
) -> Tensor:  # (n,)
    """Return the log of the integral of p(y | f) N(f; mean, variance).

    Newton's method finds the peak of concave log densities. Other likelihoods implement `Likelihood.mixture`.

    Args:
        likelihood: The likelihood.
        y: The observations, (n,).
        mean: The means of f, (n,).
        variance: The variances of f, (n,).
    """
    variance = variance.clamp_min(1e-300)
    if (log_prob := likelihood.mixture(y, mean, variance)) is not None:
        return log_prob
    f = mean.clone()
    for _ in range(_MAX_NEWTON_STEPS):
        slopes = likelihood.slopes(y, f)
        step = (slopes.first - (f - mean) / variance) / (1 / variance - slopes.second)
        f = f + step.clamp(-2.0, 2.0)  # e^f changes by a factor of at most 7, so no step overflows
        if bool((step.abs() < 1e-8 * (1 + f.abs())).all()):
            break
    width = (1 / variance - likelihood.slopes(y, f).second).rsqrt()
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(_HERMITE_NODES))
    values = f[:, None] + width[:, None] * nodes
    prior = -0.5 * (values - mean[:, None]).square() / variance[:, None]
    log_ratio = likelihood.log_prob(y[:, None].expand_as(values), values) + prior + 0.5 * nodes.square()
    log_prob = torch.logsumexp(log_ratio + weights.log(), dim=1) + (width / variance.sqrt()).log()
    log_prob = log_prob - 0.5 * math.log(2 * math.pi)
    return torch.where(log_prob.isnan(), -torch.inf, log_prob)  # e^f overflows


def chunks(*columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield columns in chunks of rows, at least one chunk.

    Args:
        columns: The columns, (n,) each.
    """
    return zip(*(torch.split(column, _CHUNK) for column in columns), strict=True)
