"""Distributions of positive observations with mean e^f."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.likelihoods.counts import begin_of_logs, log_moments
from rfgp.likelihoods.role import (
    Expected,
    InitialMoments,
    Likelihood,
    LogProbDerivatives,
    Parameter,
    drawing,
    first_where,
)


@dataclass(frozen=True, repr=False)
class Gamma(Likelihood):
    """Gamma distribution with mean e^f and shape a. Its standard deviation is the mean over sqrt(a).

    Attributes:
        shape: a. If None, it is learned.
    """

    shape: Any = None
    parameters = (Parameter("shape", 2.0, (1e-2, 1e5)),)
    lowest, takes_exposure = 0.0, True

    def check(self, y: Tensor) -> str | None:
        """Take positive numbers (n,)."""
        return first_where(~(y > 0), y, "positive")

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return moments of f from targets (n,)."""
        return begin_of_logs(y, weight, 0.0)

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f."""
        a = self._shape(f)
        ratio = a * (y.log() - f).exp()
        value = a * a.log() - a * f - torch.lgamma(a) + (a - 1) * y.log() - ratio
        return LogProbDerivatives(value, ratio - a, -ratio, ratio)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean of the log density of y (n,) for f ~ N(mean, variance), (n, 1) each: E e^-f is known."""
        a = self._shape(mean)
        ratio = a * (y.log()[:, None] - mean + variance / 2).exp()
        fixed = a * a.log() - torch.lgamma(a) + (a - 1) * y.log()
        return Expected(fixed - a * mean[:, 0] - ratio[:, 0], ratio - a, ratio)

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of observations for f ~ N(mean, variance), (n,) each."""
        return log_moments(mean, variance, 1 / self._shape(mean))

    def mean(self, f: Tensor) -> Tensor:
        """Return e^f (...)."""
        return f.exp()

    def variance(self, f: Tensor) -> Tensor:
        """Return e^(2 f) / a, (...)."""
        return (2 * f).exp() / self._shape(f)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        a = self._shape(f)
        scaled = a * y.clamp_min(0) * (-f).exp()
        out: Tensor = torch.special.gammainc(a.expand_as(scaled), scaled)
        return out

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Draw an observation for each f (...)."""
        a = float(self._shape(f))
        return torch.from_numpy(np.asarray(drawing(generator).gamma(a, f.exp().numpy() / a)))

    def _shape(self, f: Tensor) -> Tensor:
        return torch.as_tensor(self.shape, dtype=f.dtype)
