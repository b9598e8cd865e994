"""Real observations whose noise varies with the inputs."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rfgp.likelihoods.real import Normal
from rfgp.likelihoods.role import Expected, InitialMoments, Likelihood, LogProbDerivatives


@dataclass(frozen=True, repr=False)
class Heteroscedastic(Likelihood):
    """y ~ N(f, noise e^g), for a second function g ~ GP(0) of the inputs.

    g has the kernel of f, with hyperparameters of its own: those of f with "noise_" before their names. The posterior
    is variational, with f and g independent (Lazaro-Gredilla and Titsias 2011, "Variational heteroscedastic Gaussian
    process regression"). `expected` takes both functions; methods of one function are at g = 0.

    Attributes:
        noise: The noise variance at g = 0, in the squared unit of the targets. If None, it is learned.
    """

    noise: Any = None
    parameters = Normal.parameters
    is_standardized = has_noise_process = True
    approximations = ("variational",)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean of the log density of y (n,) for f and g ~ N(mean, variance), (n, 2) each.

        With r = (y - E f)^2 + var f and q = E e^-g / noise it is -(log(2 pi noise) + E g + r q) / 2.
        """
        noise = torch.as_tensor(self.noise, dtype=mean.dtype)
        left, square = y - mean[:, 0], (y - mean[:, 0]).square() + variance[:, 0]
        share = (variance[:, 1] / 2 - mean[:, 1]).exp() / noise
        value = -0.5 * ((2 * math.pi * noise).log() + mean[:, 1] + square * share)
        half = 0.5 * square * share
        return Expected(value, torch.stack([left * share, half - 0.5], dim=1), torch.stack([share, half], dim=1))

    @property
    def middle(self) -> Normal:
        """The likelihood at g = 0."""
        return Normal(self.noise)

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return the median of y (n,) and the variance that its median absolute deviation implies."""
        return self.middle.begin(y, weight)

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f."""
        return self.middle.slopes(y, f)

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of observations for f ~ N(mean, variance), (n,) each."""
        return self.middle.moments(mean, variance)

    def mean(self, f: Tensor) -> Tensor:
        """Return f (...)."""
        return f

    def variance(self, f: Tensor) -> Tensor:
        """Return the noise for each f (...)."""
        return self.middle.variance(f)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        return self.middle.cdf(y, f)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Draw an observation for each f (...)."""
        return self.middle.sample(f, generator)
