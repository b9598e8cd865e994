"""Likelihoods of counts and of positive observations, with mean e^f."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor
from torch.nn.functional import logsigmoid

from rfgp.likelihoods.role import (
    Expected,
    InitialMoments,
    Likelihood,
    LogProbDerivatives,
    Parameter,
    drawing,
    first_where,
)
from rfgp.scaling import moments

_VARIANCES = (0.1, 10.0)
"""The bounds of the variance of the latent function before a fit."""


class LogLink:
    """The common part of likelihoods with mean e^f.

    The variance is e^f + share e^(2 f) for counts, and share e^(2 f) for positive observations.
    """

    is_discrete: ClassVar[bool] = True
    row_argument: ClassVar[str | None] = "exposure"
    has_log_link: ClassVar[bool] = True
    lowest: ClassVar[float] = 0.0
    latent_deviation: ClassVar[float | None] = 2.0
    """The scale of the half-normal prior of the standard deviation of the log rate.

    It prevents means of e^200 after many zeros and one large count."""

    def check(self, y: Tensor) -> str | None:
        """Return a message about the first target of (n,) that is not a count, or None."""
        return first_where((y < 0) | (y != y.round()), y, "counts 0, 1, 2, ...")

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return moments of f from targets (n,) with weights (n,).

        Since E e^f = exp(E f + var f / 2), the mean is the log mean of the targets minus half the variance of their
        logarithms. Half a count is added before logarithms are taken.
        """
        least, half = (0.5 / float(weight.sum()), 0.5) if self.is_discrete else (1e-300, 0.0)
        variance = moments((y + half).log(), weight)[1].square().clamp(*_VARIANCES)
        return InitialMoments(moments(y, weight)[0].clamp_min(least).log() - 0.5 * variance, variance)

    def mean(self, f: Tensor) -> Tensor:
        """Return e^f (...)."""
        return f.exp()

    def variance(self, f: Tensor) -> Tensor:
        """Return the variance of an observation for each f (...)."""
        return (f.exp() if self.is_discrete else 0) + (2 * f).exp() * self._share(f)

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of observations for f ~ N(mean, variance), (n,) each.

        They are E e^f, and E e^f (for counts) + var e^f + share E e^(2 f).
        """
        first = (mean + variance / 2).exp()
        square = (2 * mean + variance).exp()  # the squared first moment, and E e^(2 f) = e^variance times it
        spread = square * variance.expm1() + self._share(mean) * square * variance.exp()
        return first, first + spread if self.is_discrete else spread

    def _share(self, f: Tensor) -> Tensor | float:
        """Return the share, 0-d."""
        return 0.0


_MAX_RATE = 1e15
"""The rate above which counts are drawn from a normal distribution. numpy refuses rates beyond 9e18."""


def counts(rates: NDArray[np.float64], rng: np.random.Generator) -> Tensor:
    """Return Poisson draws at rates (...), which may be infinite.

    Args:
        rates: The rates, (...).
        rng: The generator.

    Examples:
        >>> counts(np.array([0.0, np.inf]), np.random.default_rng(0)).tolist()
        [0.0, inf]
    """
    is_large = rates > _MAX_RATE
    counts = rng.poisson(np.where(is_large, 0.0, rates)).astype(np.float64)
    if is_large.any():
        normal = rng.standard_normal(rates.shape)
        counts = np.where(is_large, rates + np.sqrt(np.minimum(rates, 1e300)) * normal, counts)
    return torch.from_numpy(counts)


@dataclass(frozen=True, repr=False)
class Poisson(LogLink, Likelihood):
    """Counts y ~ Poisson(e^f). With an exposure t, y ~ Poisson(t e^f).

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 30)[:, None]
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), "poisson", seed=0).condition(X, np.arange(30) % 3)
        >>> gp.predict(X).observed().mean.shape
        (30,)
    """

    has_fixed_dispersion: ClassVar[bool] = True

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f.

        With d = f - log y it is -y (e^d - 1 - d) plus terms without f. Unlike y f - e^f, this form has no cancellation
        for large counts.
        """
        mean, some = f.exp(), y.clamp_min(1.0)
        d = f - some.log()
        fixed = torch.special.xlogy(y, y) - y - torch.lgamma(y + 1)
        value = torch.where(y > 0, -y * (d.expm1() - d), -mean) + fixed
        return LogProbDerivatives(value, y - mean, -mean, -mean)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean of the log density of y (n,) for f ~ N(mean, variance), (n, 1) each, in closed form."""
        rate = (mean + variance / 2).exp()
        return Expected(y * mean[:, 0] - rate[:, 0] - torch.lgamma(y + 1), y[:, None] - rate, rate)

    def variance(self, f: Tensor) -> Tensor:
        """Return e^f (...)."""
        return f.exp()

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        found: Tensor = torch.special.gammaincc(y.floor().clamp_min(0) + 1, f.exp())
        return torch.where(y < 0, torch.zeros_like(found), found)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a count for each f, (...) -> (...)."""
        return counts(f.exp().numpy(), drawing(generator))


@dataclass(frozen=True, repr=False)
class NegativeBinomial(LogLink, Likelihood):
    """Counts with mean m = e^f and variance m + dispersion m^2. The limit at dispersion 0 is Poisson.

    Attributes:
        dispersion: The dispersion. If None, it is learned.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.NegativeBinomial(dispersion=0.5)
        NegativeBinomial(dispersion=0.5)
    """

    dispersion: Any = None
    parameters = (Parameter("dispersion", 0.5, (1e-4, 1e2)),)

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f."""
        r = self._size(f)
        share, rest = torch.sigmoid(f - r.log()), torch.sigmoid(r.log() - f)  # m / (m + r), and r / (m + r)
        ways = torch.lgamma(y + r) - torch.lgamma(r) - torch.lgamma(y + 1)
        value = ways + y * logsigmoid(f - r.log()) + r * logsigmoid(r.log() - f)
        second = -(y + r) * share * rest
        return LogProbDerivatives(value, y - (y + r) * share, second, second * (rest - share))

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        r = self._size(f)
        found = special.betainc(
            float(r), np.asarray(y.floor().clamp_min(0) + 1), np.asarray(torch.sigmoid(r.log() - f))
        )
        return torch.where(y < 0, torch.zeros_like(f), torch.as_tensor(found, dtype=f.dtype))

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a count for each f, (...) -> (...)."""
        r, rng = float(self._size(f)), drawing(generator)
        rates = rng.gamma(r, f.exp().numpy() / r)
        return counts(rates, rng)

    def _size(self, f: Tensor) -> Tensor:
        """Return 1 / dispersion, 0-d."""
        return 1 / torch.as_tensor(self.dispersion, dtype=f.dtype)

    def _share(self, f: Tensor) -> Tensor:
        return 1 / self._size(f)


@dataclass(frozen=True, repr=False)
class Gamma(LogLink, Likelihood):
    """Gamma distribution with mean e^f and shape a. Its standard deviation is the mean over sqrt(a).

    Attributes:
        shape: The shape a. If None, it is learned.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.Gamma(shape=2.0)
        Gamma(shape=2)
    """

    shape: Any = None
    parameters = (Parameter("shape", 2.0, (1e-2, 1e5)),)
    is_discrete, latent_deviation = False, None

    def check(self, y: Tensor) -> str | None:
        """Return a message about the first target of (n,) that is not positive, or None."""
        return first_where(~(y > 0), y, "positive")

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f."""
        a = self._shape(f)
        ratio = a * (y.log() - f).exp()
        value = a * a.log() - a * f - torch.lgamma(a) + (a - 1) * y.log() - ratio
        return LogProbDerivatives(value, ratio - a, -ratio, ratio)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean of the log density of y (n,) for f ~ N(mean, variance), (n, 1) each, in closed form."""
        a = self._shape(mean)
        ratio = a * (y.log()[:, None] - mean + variance / 2).exp()
        fixed = a * a.log() - torch.lgamma(a) + (a - 1) * y.log()
        return Expected(fixed - a * mean[:, 0] - ratio[:, 0], ratio - a, ratio)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        a = self._shape(f)
        scaled = a * y.clamp_min(0) * (-f).exp()
        out: Tensor = torch.special.gammainc(a.expand_as(scaled), scaled)
        return out

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return an observation for each f, (...) -> (...)."""
        a = float(self._shape(f))
        return torch.from_numpy(np.asarray(drawing(generator).gamma(a, f.exp().numpy() / a)))

    def _shape(self, f: Tensor) -> Tensor:
        return torch.as_tensor(self.shape, dtype=f.dtype)

    def _share(self, f: Tensor) -> Tensor:
        return 1 / self._shape(f)
