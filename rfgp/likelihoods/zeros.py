"""Likelihoods of counts with more zeros than a Poisson or negative binomial distribution has."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.likelihoods.exponential import LogLink, NegativeBinomial, Poisson, counts
from rfgp.likelihoods.role import PLACES, WEIGHTS, InitialMoments, Likelihood, LogProbDerivatives, Parameter, drawing

_ZEROS = Parameter("zero_probability", 0.2, (1e-4, 0.9999))


class _ExtraZeros(LogLink, Likelihood):
    """The common part of counts that are 0 with a probability pi, and otherwise have another distribution."""

    zero_probability: Any

    @property
    def base(self) -> Poisson | NegativeBinomial:
        """The other distribution."""
        return Poisson()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.zero_probability is not None and not float(self.zero_probability) < 1:
            raise InvalidArgumentError(
                f"zero_probability must be below 1, or None to be learned, got {float(self.zero_probability):g}."
            )

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return moments of f from the positive counts of y (n,) with weights (n,)."""
        seen = y > 0 if bool((y > 0).any()) else y == 0
        return super().begin(y[seen], weight[seen])

    def _zeros(self, f: Tensor) -> Tensor:
        """Return pi, 0-d."""
        return torch.as_tensor(self.zero_probability, dtype=f.dtype)


class _ZeroInflated(_ExtraZeros):
    """The common part of zero-inflated counts.

    The log density is not concave in f at y = 0, since a zero says little on a large rate.
    """

    is_concave = False
    approximations = ("variational",)

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log probability of y (n,) given f (n,), with its derivatives in f.

        A zero is log(pi + (1 - pi) e^b), with the log probability b of the other distribution and the probability w
        that the zero is from it. Its derivatives follow from w' = w (1 - w) b'.
        """
        pi = self._zeros(f)
        base = self.base.slopes(y, f)
        value, b1, b2, b3 = base._replace(value=base.value + (-pi).log1p())
        total = torch.where(y > 0, value, torch.logaddexp(pi.log().expand_as(value), value))
        w = (value - total).exp()
        rest = w * (1 - w)
        third = w * b3 + 3 * rest * b1 * b2 + rest * (1 - 2 * w) * b1**3
        return LogProbDerivatives(total, w * b1, w * b2 + rest * b1.square(), third)

    def fisher(self, f: Tensor) -> Tensor:
        """Return the mean of the curvature over observations given f, (n,)."""
        none = torch.zeros_like(f)
        pi, zero, own = self._zeros(f), self.base.slopes(none, f), self.slopes(none, f)
        others = zero.value.exp() * zero.second - self.base.slopes(f.exp(), f).second  # of counts above 0
        return (1 - pi) * others - own.value.exp() * own.second

    def mixture(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the log probability of y (n,) for f ~ N(mean, variance), (n,) each.

        That of 0 is a mean of probabilities, which has no peak to be found.
        """
        zero = WEIGHTS @ self.slopes(torch.zeros_like(y), mean + variance.sqrt() * PLACES[:, None]).value.exp()
        return torch.where(y > 0, super().mixture(y.clamp_min(1), mean, variance), zero.log())

    def mean(self, f: Tensor) -> Tensor:
        """Return the mean for each f (...)."""
        return (1 - self._zeros(f)) * f.exp()

    def variance(self, f: Tensor) -> Tensor:
        """Return the variance of an observation for each f (...)."""
        pi, mean = self._zeros(f), f.exp()
        return (1 - pi) * (self.base.variance(f) + pi * mean.square())

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of observations for f ~ N(mean, variance), (n,) each."""
        pi, (first, spread) = self._zeros(mean), self.base.moments(mean, variance)
        return (1 - pi) * first, (1 - pi) * (spread + pi * first.square())

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        pi = self._zeros(f)
        return torch.where(y < 0, 0.0, pi + (1 - pi) * self.base.cdf(y, f))

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a count for each f, (...) -> (...)."""
        is_extra = torch.rand(f.shape, generator=generator, dtype=f.dtype) < self._zeros(f)
        return torch.where(is_extra, 0.0, self.base.sample(f, generator))


@dataclass(frozen=True, repr=False)
class ZeroInflatedPoisson(_ZeroInflated):
    """Counts that are 0 with probability pi, and otherwise y ~ Poisson(e^f), which may be 0 as well.

    With an exposure t, the rate is t e^f. The posterior is variational.

    Source: Lambert (1992), Zero-inflated Poisson regression, with an application to defects in manufacturing.

    Attributes:
        zero_probability: The probability pi of an extra zero. If None, it is learned.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.ZeroInflatedPoisson(zero_probability=0.3)
        ZeroInflatedPoisson(zero_probability=0.3)
    """

    zero_probability: Any = None
    parameters = (_ZEROS,)


@dataclass(frozen=True, repr=False)
class ZeroInflatedNegativeBinomial(_ZeroInflated):
    """Counts that are 0 with probability pi, and otherwise negative binomial with mean e^f, as `NegativeBinomial`.

    The posterior is variational.

    Attributes:
        dispersion: The dispersion. If None, it is learned.
        zero_probability: The probability pi of an extra zero. If None, it is learned.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.ZeroInflatedNegativeBinomial(zero_probability=0.3).parameters[0].name
        'dispersion'
    """

    dispersion: Any = None
    zero_probability: Any = None
    parameters = (*NegativeBinomial.parameters, _ZEROS)

    @property
    def base(self) -> NegativeBinomial:
        """The negative binomial distribution."""
        return NegativeBinomial(self.dispersion)


@dataclass(frozen=True, repr=False)
class HurdlePoisson(_ExtraZeros):
    """Counts that are 0 with probability pi, and otherwise y ~ Poisson(e^f) given y > 0.

    All zeros are from the hurdle, so they say nothing on f. With an exposure t, the rate is t e^f. The log density is
    concave in f, since m / (1 - e^-m) increases with the rate m.

    Source: Mullahy (1986), Specification and testing of some modified count data models.

    Attributes:
        zero_probability: The probability pi of a zero. If None, it is learned.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.HurdlePoisson(zero_probability=0.3)
        HurdlePoisson(zero_probability=0.3)
    """

    zero_probability: Any = None
    parameters = (_ZEROS,)
    has_log_link = False

    def log_prob(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the log probability of y (...) given f (...)."""
        pi = self._zeros(f)
        positive = (-pi).log1p() + self.base.slopes(y, f).value - (-torch.expm1(-f.exp())).log()
        return torch.where(y > 0, positive, pi.log())

    def moments(self, mean: Tensor, variance: Tensor) -> Any:
        """Return None, since moments over f (n,) have no closed form."""

    def fisher(self, f: Tensor) -> Tensor:
        """Return the mean of the curvature over observations given f, (n,). It is that of each positive count."""
        return (self._zeros(f) - 1) * self.slopes(torch.ones_like(f), f).second

    def mean(self, f: Tensor) -> Tensor:
        """Return the mean for each f (...)."""
        return (1 - self._zeros(f)) * f.exp() / -torch.expm1(-f.exp())

    def variance(self, f: Tensor) -> Tensor:
        """Return the variance of an observation for each f (...), from E y (y - 1) = m E y."""
        mean = self.mean(f)
        return mean * (1 + f.exp() - mean)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        pi, rate = self._zeros(f), f.exp()
        above = torch.special.gammainc(y.floor().clamp_min(0) + 1, rate) / -torch.expm1(-rate)
        return torch.where(y < 0, 0.0, 1 - (1 - pi) * above.clamp_max(1.0))

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a count for each f, (...) -> (...).

        A positive count is 1 plus the events after the first one, whose time is exponential below 1.
        """
        share = torch.rand((2, *f.shape), generator=generator, dtype=f.dtype)
        rate = f.exp()
        left = rate + (share[0] * torch.expm1(-rate)).log1p()  # the rate of the events after the first
        later = counts(left.clamp_min(0).numpy(), drawing(generator))
        return torch.where(share[1] < self._zeros(f), 0.0, 1 + later)
