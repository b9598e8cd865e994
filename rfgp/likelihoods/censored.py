"""Likelihoods of numbers and times of which some are only known to be beyond a limit."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rfgp.likelihoods.labels import probit
from rfgp.likelihoods.real import NormalNoise
from rfgp.likelihoods.role import (
    InitialMoments,
    Likelihood,
    LogProbDerivatives,
    Parameter,
    first_where,
)
from rfgp.scaling import moments

_VARIANCES = (0.1, 10.0)
"""The bounds of the variance of the latent function before a fit."""


class Censored(Likelihood, ABC):
    """A likelihood with u(y) = f + e / rate, of a standard error e, whose observations may be censored.

    With z = rate (u(y) - f) the log density is log p(z) + log(rate u'(y)). If y is right-censored, the log probability
    of a larger value replaces it, log P(e > z), and if y is left-censored log P(e <= z). All three are concave in f.
    """

    row_argument: ClassVar[str | None] = "censored"

    @abstractmethod
    def standard(self, z: Tensor, sign: int) -> LogProbDerivatives:
        """Return the log density of the error, or a log probability, with its derivatives in z.

        Args:
            z: The standardized errors, (...).
            sign: 0 for the density at z, 1 for the probability above z, -1 for that up to z.
        """

    @abstractmethod
    def rate(self, f: Tensor) -> Tensor:
        """Return 1 over the scale of the error, 0-d, in the dtype of f."""

    def scale_of(self, y: Tensor) -> tuple[Tensor, Tensor | float]:
        """Return u(y) and log u'(y), (...). By default u is the identity."""
        return y, 0.0

    @property
    def codes(self) -> Tensor:
        """-1, 0 or 1 for each row, (n,), or 0-d without censoring."""
        return torch.zeros((), dtype=torch.float64) if self.row_numbers is None else self.row_numbers.sign()

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), or log probability beyond y, with its derivatives in f."""
        (u, jacobian), rate = self.scale_of(y), self.rate(f)
        z, codes = rate * (u - f), self.codes
        found = list[Tensor]()
        parts = [self.standard(torch.where(codes == sign, z, 0.0), sign) for sign in (0, 1, -1)]
        for seen, above, below in zip(*parts, strict=True):
            found.append(torch.where(codes == 0, seen, torch.where(codes > 0, above, below)))
        # the density of a standardized target is multiplied by 1 / unit, which a probability has not
        more = torch.where(codes == 0, rate.log() + jacobian, math.log(self.unit))
        return LogProbDerivatives(found[0] + more, -rate * found[1], rate**2 * found[2], -(rate**3) * found[3])

    def fisher(self, f: Tensor) -> Tensor:
        """Return the mean of the curvature over observed values given f, (n,)."""
        return self.rate(f).square().expand_as(f)


class _NormalScale(Censored):
    """The common part of likelihoods with normal errors."""

    noise: Any

    def standard(self, z: Tensor, sign: int) -> LogProbDerivatives:
        """Return log phi(z), log Phi(-z) or log Phi(z), with derivatives in z (...)."""
        if sign == 0:
            one = torch.ones_like(z)
            return LogProbDerivatives(-0.5 * (z.square() + math.log(2 * math.pi)), -z, -one, 0 * one)
        return probit(-sign, z)

    def rate(self, f: Tensor) -> Tensor:
        """Return 1 / sqrt(noise), 0-d."""
        return torch.as_tensor(self.noise, dtype=f.dtype).rsqrt()


@dataclass(frozen=True, repr=False)
class Tobit(NormalNoise, _NormalScale):
    """y ~ N(f, noise), known to be above or below a limit in rows that are censored (the Tobit model).

    `GP.fit(X, y, censored=codes)` has the code of each row: -1 if the value is at most y, 0 if it is y, and 1 if it is
    at least y. `predict(X).observed()` is the distribution of the value itself.

    Source: Tobin (1958), Estimation of relationships for limited dependent variables.

    Attributes:
        noise: The noise variance, in the squared unit of the targets. If None, it is learned.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> x = np.linspace(0, 6, 60)
        >>> y = np.minimum(np.sin(x) + 0.1 * np.random.default_rng(0).standard_normal(60), 0.5)  # a sensor saturates
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), "tobit", seed=0).fit(x[:, None], y, censored=(y == 0.5).astype(int))
        >>> bool(gp.predict([[np.pi / 2]]).mean[0] > 0.8)
        True
    """

    noise: Any = None
    log_prob = Likelihood.log_prob


class _LogScale(Censored):
    """The common part of likelihoods of positive targets with log y = f + e / rate."""

    lowest: ClassVar[float] = 0.0
    has_log_link: ClassVar[bool] = True

    def check(self, y: Tensor) -> str | None:
        """Return a message about the first target of (n,) that is not positive, or None."""
        return first_where(~(y > 0), y, "positive", 'Use likelihood="tobit" for numbers of any sign')

    def scale_of(self, y: Tensor) -> tuple[Tensor, Tensor | float]:
        """Return log y and log 1 / y, (...)."""
        return y.log(), -y.log()

    @abstractmethod
    def power(self, k: int, f: Tensor) -> Tensor:
        """Return E (y / e^f)^k, 0-d."""

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return moments of f from targets (n,) with weights (n,).

        The location is that of an exponential distribution, the sum of all targets over the number of those that are
        not right-censored.
        """
        events = (weight * (self.codes <= 0)).sum().clamp_min(0.5)
        center, spread = ((weight * y).sum() / events).log(), moments(y.log(), weight)
        variance = spread[1].square().clamp(*_VARIANCES)
        return InitialMoments(center - 0.5 * variance, variance)

    def mean(self, f: Tensor) -> Tensor:
        """Return the mean of an observation for each f (...)."""
        return self.power(1, f) * f.exp()

    def variance(self, f: Tensor) -> Tensor:
        """Return the variance of an observation for each f (...)."""
        return (self.power(2, f) - self.power(1, f).square()) * (2 * f).exp()

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of observations for f ~ N(mean, variance), (n,) each."""
        first = self.power(1, mean) * (mean + variance / 2).exp()
        return first, self.power(2, mean) * (2 * mean + 2 * variance).exp() - first.square()

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        z = self.rate(f) * (y.clamp_min(1e-300).log() - f)
        return torch.where(y > 0, self.standard(z, -1).value.exp(), 0.0)


@dataclass(frozen=True, repr=False)
class LogNormal(_LogScale, _NormalScale):
    """log y ~ N(f, noise) for positive targets y, which may be censored (see `Tobit`).

    The posterior without censoring is exact, that of a Gaussian process of log y. The log density of y is that of log y
    minus log y. The median of y is e^f, and its mean e^(f + noise / 2).

    Attributes:
        noise: The noise variance of log y. If None, it is learned.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> x = np.linspace(0, 6, 60)
        >>> y = np.exp(np.sin(x) + 0.2 * np.random.default_rng(0).standard_normal(60))
        >>> p = rfgp.GP(rfgp.kernels.RBF(), "lognormal", seed=0).fit(x[:, None], y).predict([[1.0]]).observed()
        >>> bool(p.mean[0] > p.quantile(0.5)[0])
        True
    """

    noise: Any = None
    parameters = (Parameter("noise", 0.1, (1e-6, 1e2)),)

    def power(self, k: int, f: Tensor) -> Tensor:
        """Return E (y / e^f)^k, 0-d."""
        return (0.5 * k**2 * torch.as_tensor(self.noise, dtype=f.dtype)).exp()

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return an observation for each f, (...) -> (...)."""
        return (f + torch.randn(f.shape, generator=generator, dtype=f.dtype) / self.rate(f)).exp()


@dataclass(frozen=True, repr=False)
class Weibull(_LogScale):
    """Times y with P(y > t) = exp(-(t / e^f)^shape), which may be censored (see `Tobit`).

    It is the accelerated failure time model: f is the logarithm of the scale, so a unit of f multiplies all times by e.
    With shape 1 times are exponential. The hazard rate is shape / y (y / e^f)^shape.

    Source: Kalbfleisch and Prentice (2002), The Statistical Analysis of Failure Time Data, Section 2.3.

    Attributes:
        shape: The shape. If None, it is learned.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.Weibull(shape=1.0)
        Weibull(shape=1)
    """

    shape: Any = None
    parameters = (Parameter("shape", 1.0, (1e-2, 1e3)),)

    def standard(self, z: Tensor, sign: int) -> LogProbDerivatives:
        """Return the log density z - e^z of the log of an exponential variable, or a log probability, as z (...)."""
        hazard = z.exp()
        if sign == 0:
            return LogProbDerivatives(z - hazard, 1 - hazard, -hazard, -hazard)
        if sign > 0:
            return LogProbDerivatives(-hazard, -hazard, -hazard, -hazard)
        # log(1 - exp(-h)) has the derivative r = h exp(-h) / (1 - exp(-h)), and r' = r (1 - h - r)
        below = -torch.expm1(-hazard)
        first = hazard * (-hazard).exp() / below
        second = first * (1 - hazard - first)
        return LogProbDerivatives(below.log(), first, second, second * (1 - hazard - first) - first * (hazard + second))

    def rate(self, f: Tensor) -> Tensor:
        """Return the shape, 0-d."""
        return torch.as_tensor(self.shape, dtype=f.dtype)

    def power(self, k: int, f: Tensor) -> Tensor:
        """Return E (y / e^f)^k, 0-d."""
        return torch.lgamma(1 + k / self.rate(f)).exp()

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return an observation for each f, (...) -> (...)."""
        standard = torch.empty(f.shape, dtype=f.dtype).exponential_(generator=generator)
        return (f + standard.log() / self.rate(f)).exp()
