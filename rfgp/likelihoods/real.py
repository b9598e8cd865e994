"""Likelihoods of real observations: Gaussian, Student's t, and Gaussian with varying noise."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import special
from torch import Tensor

from rfgp.likelihoods.role import Expected, Likelihood, LogProbDerivatives, Parameter, drawing

_MIXED = 400
"""The number of nodes of the rule for a scale mixture of normal densities."""


def normal_log_prob(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return the log densities of N(mean, variance) at y, (...).

    Args:
        y: Values (...).
        mean: Means (...).
        variance: Variances (...).

    Examples:
        >>> round(float(normal_log_prob(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(1.0))), 4)
        -0.9189
    """
    return -0.5 * ((y - mean).square() / variance + (2 * torch.pi * variance).log())


class NormalNoise:
    """The common part of likelihoods with y ~ N(f, noise)."""

    noise: Any
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("noise", 0.1, (1e-6, 1e2), power=2),)
    is_standardized: ClassVar[bool] = True

    def log_prob(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the log density of y (...) given f (...)."""
        return normal_log_prob(y, f, torch.as_tensor(self.noise, dtype=f.dtype))

    def variance(self, f: Tensor) -> Tensor:
        """Return the noise for each f (...)."""
        return torch.as_tensor(self.noise, dtype=f.dtype).expand_as(f)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        out: Tensor = torch.special.ndtr((y - f) / torch.as_tensor(self.noise, dtype=f.dtype).sqrt())
        return out

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return an observation for each f, (...) -> (...)."""
        return f + self.variance(f).sqrt() * torch.randn(f.shape, generator=generator, dtype=f.dtype)


@dataclass(frozen=True, repr=False)
class Gaussian(NormalNoise, Likelihood):
    """y ~ N(f, noise), with inference in closed form.

    Attributes:
        noise: The noise variance, in the squared unit of the targets. If None, it is learned.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.Gaussian(noise=0.1)
        Gaussian(noise=0.1)
    """

    noise: Any = None
    approximations = ()


@dataclass(frozen=True, repr=False)
class StudentT(Likelihood):
    """y = f + scale t with Student's t distribution. Outliers have little influence on f.

    The log density is not concave, and the posterior may have several modes. The search starts at the constant mean.
    The Laplace approximation uses the Fisher information (df + 1) / ((df + 3) scale^2), which is positive and constant.

    Source: Hartmann and Vanhatalo (2019), Laplace approximation and natural gradient for Gaussian process regression
    with heteroscedastic Student-t model.

    Attributes:
        df: The degrees of freedom, at least 2. If None, they are learned, and start at 4.
        scale: The scale, in the unit of the targets. If None, it is learned. For df > 2 the variance is
            scale^2 df / (df - 2).

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.StudentT(df=4.0)
        StudentT(df=4)
    """

    df: Any = None
    scale: Any = None
    parameters = (Parameter("df", 4.0, (2.0, 1e3)), Parameter("scale", 0.3, (1e-3, 1e1), power=1))
    is_standardized, is_concave = True, False
    approximations = ("laplace",)

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f."""
        nu, square = self._numbers(f)
        left = y - f
        spread, total = nu * square, nu * square + left.square()
        normalizer = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * (math.pi * spread).log()
        value = normalizer - (nu + 1) / 2 * torch.log1p(left.square() / spread)
        second = (nu + 1) * (left.square() - spread) / total.square()
        third = -2 * (nu + 1) * left * (3 * spread - left.square()) / total**3
        return LogProbDerivatives(value, (nu + 1) * left / total, second, third)

    def fisher(self, f: Tensor) -> Tensor:
        """Return the Fisher information (n,)."""
        nu, square = self._numbers(f)
        return ((nu + 1) / ((nu + 3) * square)).expand_as(f)

    def majorizer(self, slopes: LogProbDerivatives, y: Tensor, f: Tensor) -> Tensor:
        """Return the weights (n,) of iteratively reweighted least squares, which never lower the log density."""
        nu, square = self._numbers(f)
        return (nu + 1) / (nu * square + (y - f).square())

    def mixture(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the log density of y (n,) for f ~ N(mean, variance), (n,) each.

        t is a scale mixture: it is normal with variance scale^2 / g, where g has a gamma distribution. The integral
        over log g, whose density is smooth, uses the trapezoidal rule.
        """
        nu, square = self._numbers(mean)
        a = float(nu) / 2
        far = 40 / a + (80 / a) ** 0.5  # log g lies beyond -far and log(1 + far) with probability below e^-40
        log_g = torch.linspace(-far, math.log1p(far), _MIXED, dtype=mean.dtype)
        weight = a * math.log(a) - math.lgamma(a) + a * log_g - a * log_g.exp()
        total = variance[:, None] + square / log_g.exp()
        normal = normal_log_prob(y[:, None], mean[:, None], total)
        return torch.logsumexp(normal + weight, dim=1) + (log_g[1] - log_g[0]).log()

    def variance(self, f: Tensor) -> Tensor:
        """Return the variance for each f (...). It is infinite for two or fewer degrees of freedom."""
        nu, square = self._numbers(f)
        return torch.where(nu > 2, square * nu / (nu - 2).clamp_min(1e-300), torch.inf).expand_as(f)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        nu, square = self._numbers(f)
        return torch.as_tensor(special.stdtr(float(nu), np.asarray((y - f) / square.sqrt())), dtype=f.dtype)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return an observation for each f, (...) -> (...)."""
        nu, square = self._numbers(f)
        return f + square.sqrt() * torch.from_numpy(drawing(generator).standard_t(float(nu), size=f.shape))

    def _numbers(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return df and scale^2, 0-d."""
        return torch.as_tensor(self.df, dtype=f.dtype), torch.as_tensor(self.scale, dtype=f.dtype).square()


@dataclass(frozen=True, repr=False)
class Heteroscedastic(NormalNoise, Likelihood):
    """y ~ N(f, noise e^g) with a second latent function g ~ GP(0) of the inputs.

    The function g has its own hyperparameters. Their paths begin with "noise.". The posterior is variational, with f
    and g independent. `expected` takes both functions. Other methods evaluate at g = 0.

    Source: Lazaro-Gredilla and Titsias (2011), Variational heteroscedastic Gaussian process regression.

    Attributes:
        noise: The noise variance at g = 0, in the squared unit of the targets. If None, it is learned.
        kernel: The kernel of g, of `rfgp.kernels`. If None, it is the kernel of f.

    Examples:
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> gp = rfgp.GP(k.RBF("t"), rfgp.likelihoods.Heteroscedastic(kernel=k.RBF("t") + k.Group("sensor")))
        >>> data = {"t": [0.0, 1.0, 2.0, 3.0], "sensor": ["a", "b", "a", "b"]}
        >>> gp = gp.condition(data, [0.0, 1.2, 2.0, 2.8])
        >>> gp.hyperparameters["noise.group(sensor).outputscale"].item()
        0.25
    """

    noise: Any = None
    kernel: Any = field(default=None, kw_only=True)
    has_noise_process = True
    approximations = ("variational",)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean of the log density of y (n,) for f and g ~ N(mean, variance), (n, 2) each.

        It is -(log(2 pi noise) + E g + r q) / 2. Here r = (y - E f)^2 + var f, and q = E e^-g / noise.
        """
        noise = torch.as_tensor(self.noise, dtype=mean.dtype)
        left, square = y - mean[:, 0], (y - mean[:, 0]).square() + variance[:, 0]
        share = (variance[:, 1] / 2 - mean[:, 1]).exp() / noise
        value = -0.5 * ((2 * math.pi * noise).log() + mean[:, 1] + square * share)
        half = 0.5 * square * share
        return Expected(value, torch.stack([left * share, half - 0.5], dim=1), torch.stack([share, half], dim=1))

    @property
    def noise_kernel(self) -> Any:
        """The kernel of g. If None, it is that of f."""
        return self.kernel
