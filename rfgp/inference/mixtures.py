"""The law of an observation at points where the latent function has a normal law: mixtures, by quadrature.

Means and variances, where they have no closed form, and probabilities of at most y are integrals of smooth functions
against N(mean, variance): by the trapezoidal rule, which is exact to rounding for analytic ones and off by at most .03
where the law of y given f is far narrower than that of f. A density is an integrand with a peak, which Gauss and
Hermite's rule is laid over (adaptive Gauss-Hermite quadrature, Liu and Pierce 1994).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import plain
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.inference.prediction import NO_LOGARITHM, LogNormal, Prediction, probabilities, values_like
from rfgp.likelihoods import Likelihood

_REACH, _STEP = 8.0, 0.125
"""Of the trapezoidal rule, in standard deviations."""
_HERMITE = 40
"""Nodes of Gauss and Hermite's rule."""
_CHUNK = 2**14
"""Points that are integrated at once."""
NO_COVARIANCE = (
    "Observations under this likelihood have no covariance in closed form: take that of many samples, or that of the "
    "latent function, predict(X).covariance."
)
NO_SUMS = "Sums of observations under this likelihood have no law in closed form: sample them."
_NEWTON, _HALVINGS = 50, 60
_ROUNDED = 2.0**-50
"""Of a count: what it is known to."""


@dataclass(frozen=True, eq=False, repr=False)
class ObservedPrediction(Prediction):
    """The law of observations at n points under a likelihood that is not normal, in the user's units.

    Its marginal laws are mixtures over the latent function's; draws are joint.

    Attributes:
        likelihood: With all its parameters, of standardised observations.
    """

    likelihood: Likelihood | None = None

    def observed(self) -> "ObservedPrediction":
        """Return the law itself."""
        return self

    @plain()
    def mean_tensor(self) -> Tensor:
        """Return the mean (n,), float64 tensor."""
        closed = self._law.moments(*self._latent)
        return self._unit * (self._integrated(self._law.mean) if closed is None else closed[0])

    @plain()
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,), float64 tensor."""
        law = self._law
        if (closed := law.moments(*self._latent)) is not None:
            return self._unit**2 * closed[1]
        within, squares, mean = (
            self._integrated(function) for function in (law.variance, lambda f: law.mean(f).square(), law.mean)
        )
        return self._unit**2 * (within + (squares - mean.square()).clamp_min(0))

    def covariance_tensor(self) -> Tensor:
        """Refuse: (n, n) numbers would be an integral each.

        Raises:
            InvalidArgumentError: always; with what to do.
        """
        raise InvalidArgumentError(NO_COVARIANCE)

    def log_density(self, y: Any) -> Any:
        """Return the log density of each observation (n,) under its marginal law; of counts and labels that of y."""
        mean, variance = self._latent
        values = values_like(y, mean) / self._unit
        if (wrong := self._law.check(values)) is not None:
            raise InvalidArgumentError(f"y is no observation: {wrong}.")
        parts = _chunks(values, mean, variance)
        found = torch.cat([log_density(self._law, *part) for part in parts])
        return self._out(found - (0.0 if self._law.is_discrete else math.log(self._unit)))

    def cdf(self, y: Any) -> Any:
        """Return the probabilities that observations are at most y, one number or (n,)."""
        mean, _ = self._latent
        values = (values_like(y, mean, may_be_one=True) / self._unit).expand_as(mean)
        return self._out(self._below(values))

    @plain()
    def quantile(self, probability: Any) -> Any:
        """Return the least y with at least this probability of at most y: (n,), or (q, n) for q probabilities."""
        mean, _ = self._latent
        p = probabilities("probability", probability, mean)
        found = [self._unit * self._at_least(one.expand_as(mean)) for one in p.reshape(-1)]
        return self._out(torch.stack(found).reshape(*p.shape, *mean.shape))

    @plain()
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint law, (s, n): functions, and an observation of each value."""
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = random.chosen(seed, generator, random.Role.FUNCTIONS)
        root, mean = self.law.root().cpu(), self._latent[0]
        standard = torch.randn(num_samples, root.shape[1], generator=generator, dtype=root.dtype)
        return self._out(self._unit * self._law.sample(mean + standard @ root.mT, generator))

    def linear(self, weights: Any) -> Prediction:
        """Refuse: sums (m, n) of observations have no law in closed form.

        Raises:
            InvalidArgumentError: always; with what to do.
        """
        raise InvalidArgumentError(NO_SUMS)

    def exp(self) -> LogNormal:
        """Refuse: these are observations, not the logarithms of some.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(NO_LOGARITHM)

    def operator(self) -> None:
        """Return that there is none of a covariance (n, n)."""
        return

    def __repr__(self) -> str:
        return f"ObservedPrediction({self.likelihood!r})"

    # --- standardised ----------------------------------------------------------------------------

    @property
    def _law(self) -> Likelihood:
        assert self.likelihood is not None
        return self.likelihood

    @property
    def _unit(self) -> float:
        return float(self.scale)

    @property
    def _latent(self) -> tuple[Tensor, Tensor]:
        """The mean and the variance (n,) of the latent function."""
        mean = (self.location / self.scale).double() + self.law.mean()[:, 0]
        return mean.cpu(), self.law.variance().clamp_min(0).double().cpu()

    def _integrated(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the mean of a function of f (...) at each point, (n,)."""
        return torch.cat([expectation(lambda f, _: function(f), *part) for part in _chunks(*self._latent)])

    def _below(self, y: Tensor) -> Tensor:
        """Return the probability of at most y (n,)."""
        found = [
            expectation(lambda f, y: self._law.cdf(y[:, None].expand_as(f), f), mean, variance, y)
            for y, mean, variance in _chunks(y, *self._latent)
        ]
        return torch.cat(found).clamp(0, 1)

    def _at_least(self, p: Tensor) -> Tensor:
        """Return the least y (n,) with at least the probabilities p (n,) of at most y, by bisection."""
        law, (mean, variance) = self._law, self._latent
        center, width = law.mean(mean), 1 + variance.sqrt() + law.variance(mean).clamp_max(1e300).sqrt()
        low, high = torch.full_like(center, law.lowest), center + width
        if not math.isfinite(law.lowest):
            low = center - width
        for _ in range(200):
            short, far = self._below(high) < p, (self._below(low) > p) & (not math.isfinite(law.lowest))
            if not bool((short | far).any()):
                break
            width = 2 * width
            low, high = torch.where(far, low - width, low), torch.where(short, high + width, high)
        if law.is_discrete:
            return self._least_count(p, high.ceil())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = self._below(middle) < p
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high

    def _least_count(self, p: Tensor, high: Tensor) -> Tensor:
        """Return the least whole numbers (n,) from 0 to `high` with at least these probabilities of at most that."""
        low = torch.full_like(high, -1.0)
        while bool((high - low > (_ROUNDED * high).clamp_min(1)).any()):
            middle = ((low + high) / 2).floor()
            below = self._below(middle) < p
            low, high = torch.where(below, middle, low), torch.where(below, high, torch.maximum(middle, low + 1))
        return high


def expectation(
    function: Callable[[Tensor, Tensor], Tensor],
    mean: Tensor,  # (n,)
    variance: Tensor,  # (n,)
    beside: Tensor | None = None,  # (n,)
) -> Tensor:  # (n,)
    """Return the mean of function(f (n, q), beside (n,)) for f ~ N(mean, variance), by the trapezoidal rule."""
    places = torch.arange(-_REACH, _REACH + _STEP, _STEP, dtype=mean.dtype)
    weights = torch.exp(-0.5 * places.square())
    values = function(mean[:, None] + variance.sqrt()[:, None] * places, mean if beside is None else beside)
    out: Tensor = values @ (weights / weights.sum())
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


def _chunks(*columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield some rows of columns (n,) at a time, at least once."""
    return zip(*(torch.split(column, _CHUNK) for column in columns), strict=True)
