"""Two classes, 0 and 1."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rfgp.errors import InvalidArgumentError
from rfgp.likelihoods.role import InitialMoments, Likelihood, LogProbDerivatives, drawing, first_where

LINKS = ("logit", "probit")
START_VARIANCE = 2.0
"""The variance of the latent function before a fit: probabilities of 0.2 and 0.8 are then usual."""
WIDEST = 1e3
"""The largest ratio of the latent variance to its start. Separable classes are likelier without end as it grows."""


@dataclass(frozen=True, repr=False)
class Bernoulli(Likelihood):
    """P(y = 1 | f) = 1 / (1 + e^-f), or the normal distribution function of f.

    Attributes:
        link: "logit" or "probit".

    Raises:
        InvalidArgumentError: another link.
    """

    link: str = "logit"
    is_discrete = is_far_from_normal = True
    lowest, widest = 0.0, WIDEST

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link not in LINKS:
            raise InvalidArgumentError(f'link must be "logit" or "probit", got {self.link!r}.')

    def check(self, y: Tensor) -> str | None:
        """Take 0 and 1, (n,)."""
        return first_where((y != 0) & (y != 1), y, "0 or 1")

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return the f of the fraction of ones in y (n,), after half an observation of each class is added."""
        share = ((weight * y).sum() + 0.5) / (weight.sum() + 1)
        center = share.logit() if self.link == "logit" else torch.special.ndtri(share)
        return InitialMoments(center, torch.full_like(center, START_VARIANCE))

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f."""
        if self.link == "logit":
            one = torch.sigmoid(f)
            width = one * torch.sigmoid(-f)
            return LogProbDerivatives(logsigmoid((2 * y - 1) * f), y - one, -width, -width * (1 - 2 * one))
        return _probit(2 * y - 1, f)

    def fisher(self, f: Tensor) -> Tensor:
        """Return the mean of the curvature over observations given f, (n,)."""
        ones, zeros = (self.slopes(torch.full_like(f, y), f).second for y in (1.0, 0.0))
        return -(self.mean(f) * ones + self.mean(-f) * zeros)

    def mixture(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor | None:
        """Return log Phi(+-mean / sqrt(1 + variance)) for the probit link, (n,)."""
        if self.link == "logit":
            return None
        out: Tensor = torch.special.log_ndtr((2 * y - 1) * mean / (1 + variance).sqrt())
        return out

    def mean(self, f: Tensor) -> Tensor:
        """Return P(y = 1) given f, (...)."""
        return torch.sigmoid(f) if self.link == "logit" else torch.special.ndtr(f)

    def variance(self, f: Tensor) -> Tensor:
        """Return P(y = 1) P(y = 0) given f, (...)."""
        return self.mean(f) * self.mean(-f)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        zero = self.mean(-f)
        return torch.where(y < 0, torch.zeros_like(zero), torch.where(y < 1, zero, torch.ones_like(zero)))

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Draw 0 or 1 for each f (...)."""
        return torch.from_numpy(drawing(generator).random(f.shape) < self.mean(f).numpy()).to(f)


def _probit(sign: Tensor, f: Tensor) -> LogProbDerivatives:
    """Return log Phi(z), z = sign f, (n,), with its derivatives in f.

    With h = phi(z) / Phi(z) they are h, -h (z + h) and h ((z + h)^2 + h (z + h) - 1), odd ones times the sign; h is a
    scaled complementary error function, which loses no digits where both of its parts vanish.
    """
    z = sign * f
    h = math.sqrt(2 / math.pi) / torch.special.erfcx(-z / math.sqrt(2))
    rest = z + h
    value: Tensor = torch.special.log_ndtr(z)
    return LogProbDerivatives(value, sign * h, -h * rest, sign * h * (rest.square() + h * rest - 1))
