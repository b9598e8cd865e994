"""Posteriors of a function whose observations have noise that varies, and the laws of these observations."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.inference.laws import Functions, InputBlocks, Law, Posterior
from rfgp.inference.mixtures import chunks, drawn
from rfgp.likelihoods.role import PLACES, WEIGHTS

OF_NOISE = "noise"
"""Before the names of tensors of the posterior of g, and a point."""


@dataclass(frozen=True, eq=False)
class NoisyLaw:
    """The law of the function at n points, beside that of the logarithm of the noise, independent of it.

    Attributes:
        function: Of f.
        noise: Of g, by whose exponential the noise varies.
    """

    function: Law
    noise: Law

    def mean(self) -> Tensor:
        """Return the mean (n, 1)."""
        return self.function.mean()

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        return self.function.variance()

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""
        return self.function.covariance()

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return self.function.root()


@dataclass(frozen=True, eq=False)
class NoisyPosterior:
    """Of the function, beside that of the logarithm of the noise.

    Attributes:
        function: Of f.
        noise: Of g.
    """

    function: Posterior
    noise: Posterior

    def law(self, inputs: Tensor | InputBlocks) -> NoisyLaw:
        """Return the latent laws at n inputs, (n, d) or (n,)."""
        return NoisyLaw(self.function.law(inputs), self.noise.law(inputs))

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions f of n inputs, (count, n, 1)."""
        return self.function.sample_functions(count, generator)

    def tensors(self) -> dict[str, Tensor]:
        """Return those of both by name, (...), "noise." before those of g."""
        return self.function.tensors() | {f"{OF_NOISE}.{name}": one for name, one in self.noise.tensors().items()}


@dataclass(frozen=True, eq=False)
class NoiseMixture:
    """Of observations whose noise is a function: normal given its logarithm, over whose normal law it is integrated.

    Attributes:
        level: The noise at g = 0, 0-d.
        law: Of both functions, without the mean of f.
        location: That mean, 0-d.
    """

    level: Tensor
    law: NoisyLaw
    location: Tensor

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return means and variances, (n,) each."""
        (mean, variance), (log_mean, log_variance) = self._function, self._noise
        return mean, variance + self.level * (log_mean + log_variance / 2).exp()

    def log_density(self, y: Tensor) -> Tensor:
        """Return the log densities of observations, (n,) -> (n,)."""
        return torch.cat([_log_density(*part) for part in self._parts(y)])

    def below(self, y: Tensor) -> Tensor:
        """Return the probabilities of at most y, (n,) -> (n,)."""
        return torch.cat([_below(*part) for part in self._parts(y)]).clamp(0, 1)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw both functions, and an observation of each value, (count, n)."""
        f = drawn(self._function[0], self.law, count, generator)
        g = drawn(self._noise[0], self.law.noise, count, generator)
        return f + torch.randn(f.shape, generator=generator, dtype=f.dtype) * (self.level * g.exp()).sqrt()

    def around(self) -> tuple[Tensor, Tensor]:
        """Return means and deviations, (n,) each."""
        mean, variance = self.moments()
        return mean, variance.sqrt()

    @property
    def _function(self) -> tuple[Tensor, Tensor]:
        """The mean and the variance (n,) of f."""
        return (self.location + self.law.mean()[:, 0]).cpu(), self.law.variance().clamp_min(0).double().cpu()

    @property
    def _noise(self) -> tuple[Tensor, Tensor]:
        """The mean and the variance (n,) of g."""
        noise = self.law.noise
        return noise.mean()[:, 0].double().cpu(), noise.variance().clamp_min(0).double().cpu()

    def _parts(self, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield y - E f (b, 1), and the variances (b, q) of observations at places of g, for some points at a time."""
        mean, variance = self._function
        for left, own, m, v in chunks(y - mean, variance, *self._noise):
            noise = self.level * (m[:, None] + v.sqrt()[:, None] * PLACES).exp()
            yield left[:, None], own[:, None] + noise


def _log_density(left: Tensor, variance: Tensor) -> Tensor:
    """Return the log density (n,) of a mixture of normal laws, y - mean (n, 1) and variances (n, q)."""
    inside = -0.5 * (left.square() / variance + (2 * math.pi * variance).log())
    return torch.logsumexp(inside + WEIGHTS.log(), dim=1)


def _below(left: Tensor, variance: Tensor) -> Tensor:
    """Return the probability (n,) of at most y under such a mixture."""
    out: Tensor = torch.special.ndtr(left / variance.sqrt()) @ WEIGHTS
    return out
