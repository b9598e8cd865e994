"""Mixtures of the law of an observation over normal laws of the latent function, by quadrature.

Means and variances, where they have no closed form, and probabilities of at most y are integrals of smooth functions
against N(mean, variance): by the trapezoidal rule, which is exact to rounding for analytic ones and off by at most .03
where the law of y given f is far narrower than that of f. A density is an integrand with a peak, which Gauss and
Hermite's rule is laid over (adaptive Gauss-Hermite quadrature, Liu and Pierce 1994).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rfgp.inference.laws import Law
from rfgp.likelihoods import Likelihood
from rfgp.likelihoods.role import PLACES, WEIGHTS

_HERMITE = 40
"""Nodes of Gauss and Hermite's rule."""
_CHUNK = 2**14
"""Points that are integrated at once."""
_NEWTON = 50


class Mixture(Protocol):
    """The role: the laws of standardised observations at n points."""

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return means and variances, (n,) each."""

    def log_density(self, y: Tensor) -> Tensor:
        """Return the log densities of observations, (n,) -> (n,)."""

    def below(self, y: Tensor) -> Tensor:
        """Return the probabilities of at most y, (n,) -> (n,)."""

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from the joint law, (count, n)."""

    def around(self) -> tuple[Tensor, Tensor]:
        """Return where most of the laws is: places and widths, (n,) each."""


@dataclass(frozen=True, eq=False)
class LatentMixture:
    """Over the latent function alone.

    Attributes:
        law: Of an observation given it, with all parameters.
        latent: Its law, without its mean.
        location: That mean, 0-d.
    """

    law: Likelihood
    latent: Law
    location: Tensor

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return means and variances, (n,) each."""
        law = self.law
        if (closed := law.moments(*self.normal)) is not None:
            return closed
        within, squares, mean = (
            self._integrated(function) for function in (law.variance, lambda f: law.mean(f).square(), law.mean)
        )
        return mean, within + (squares - mean.square()).clamp_min(0)

    def log_density(self, y: Tensor) -> Tensor:
        """Return the log densities of observations, (n,) -> (n,)."""
        return torch.cat([log_density(self.law, *part) for part in chunks(y, *self.normal)])

    def below(self, y: Tensor) -> Tensor:
        """Return the probabilities of at most y, (n,) -> (n,)."""
        found = [
            expectation(lambda f, y: self.law.cdf(y[:, None].expand_as(f), f), mean, variance, y)
            for y, mean, variance in chunks(y, *self.normal)
        ]
        return torch.cat(found).clamp(0, 1)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw functions, and an observation of each value, (count, n)."""
        return self.law.sample(drawn(self.normal[0], self.latent, count, generator), generator)

    def around(self) -> tuple[Tensor, Tensor]:
        """Return the means at the middle of the latent law, and widths that are those of its parts, (n,) each."""
        mean, variance = self.normal
        return self.law.mean(mean), 1 + variance.sqrt() + self.law.variance(mean).clamp_max(1e300).sqrt()

    @property
    def normal(self) -> tuple[Tensor, Tensor]:
        """The mean and the variance (n,) of the latent function."""
        return (self.location + self.latent.mean()[:, 0]).cpu(), self.latent.variance().clamp_min(0).double().cpu()

    def _integrated(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the mean of a function of f (...) at each point, (n,)."""
        return torch.cat([expectation(lambda f, _: function(f), *part) for part in chunks(*self.normal)])


def drawn(mean: Tensor, law: Law, count: int, generator: torch.Generator) -> Tensor:
    """Draw (count, n) from the joint law around means (n,)."""
    root = law.root().cpu()
    return mean + torch.randn(count, root.shape[1], generator=generator, dtype=root.dtype) @ root.mT


def expectation(
    function: Callable[[Tensor, Tensor], Tensor],
    mean: Tensor,  # (n,)
    variance: Tensor,  # (n,)
    beside: Tensor | None = None,  # (n,)
) -> Tensor:  # (n,)
    """Return the mean of function(f (n, q), beside (n,)) for f ~ N(mean, variance), by the trapezoidal rule."""
    out: Tensor = (
        function(mean[:, None] + variance.sqrt()[:, None] * PLACES, mean if beside is None else beside) @ WEIGHTS
    )
    return out


def log_density(
    law: Likelihood,
    y: Tensor,  # (n,)
    mean: Tensor,  # (n,)
    variance: Tensor,  # (n,)
) -> Tensor:  # (n,)
    """Return log of the integral of p(y | f) N(f; mean, variance), by Gauss and Hermite's rule over its peak.

    The peak is found by Newton's method, for concave log densities; others have a form of their own
    (`Likelihood.mixture`).
    """
    variance = variance.clamp_min(1e-300)
    if (found := law.mixture(y, mean, variance)) is not None:
        return found
    f = mean.clone()
    for _ in range(_NEWTON):
        slopes = law.slopes(y, f)
        step = (slopes.first - (f - mean) / variance) / (1 / variance - slopes.second)
        f = f + step.clamp(-2.0, 2.0)  # e^f changes by 7 at most: far steps could overflow
        if bool((step.abs() < 1e-8 * (1 + f.abs())).all()):
            break
    width = (1 / variance - law.slopes(y, f).second).rsqrt()
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(_HERMITE))
    places = f[:, None] + width[:, None] * nodes
    prior = -0.5 * (places - mean[:, None]).square() / variance[:, None]
    inside = law.log_density(y[:, None].expand_as(places), places) + prior + 0.5 * nodes.square() + weights.log()
    found = torch.logsumexp(inside, dim=1) + (width / variance.sqrt()).log() - 0.5 * math.log(2 * math.pi)
    return torch.where(found.isnan(), -torch.inf, found)  # where e^f overflows


def chunks(*columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield some rows of columns (n,) at a time, at least once."""
    return zip(*(torch.split(column, _CHUNK) for column in columns), strict=True)
