"""Predictions of a mixture of Gaussian processes: its moments, densities, quantiles and draws."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import plain
from rfgp.counts import check_count
from rfgp.inference.arguments import check_probabilities, check_values
from rfgp.inference.distributions import normal_log_density
from rfgp.inference.mixture import MixtureDistribution
from rfgp.inference.prediction import LogNormal, Prediction

_HALVINGS = 80
"""The number of halvings of the interval of a quantile."""
Part = tuple[float, Tensor, Tensor]
"""A weight, means and variances (n,)."""


@dataclass(frozen=True, eq=False, repr=False)
class MixturePrediction(Prediction):
    """The joint distribution at n points of a mixture of Gaussian processes, of one output.

    Means, variances and covariances are those of the mixture, and so are densities, probabilities, quantiles and draws:
    their tails are longer than those of the Gaussian distribution with these moments. `exp()` and divergences use that
    Gaussian distribution. `latent` is a `MixtureDistribution`.
    """

    def cdf(self, y: Any) -> Any:
        """Return the probabilities that values are at most y, one number or (n,): (n,)."""
        parts = list(self.parts())
        return self._out(_mixture_cdf(parts, check_values(y, self.mean_tensor(), may_be_one=True)))

    @plain()
    def quantile(self, probability: Any) -> Any:
        """Return the quantiles of the marginal distributions: (n,), or (q, n) for q probabilities."""
        parts, mean = list(self.parts()), self.mean_tensor()
        p = check_probabilities("probability", probability, mean)
        found = torch.stack([_mixture_quantile(parts, one.expand_as(mean)) for one in p.reshape(-1)])
        return self._out(found.reshape(*p.shape, *mean.shape))

    def log_density(self, y: Any) -> Any:
        """Return the log density of each value (n,) under its marginal distribution."""
        parts = list(self.parts())
        return self._out(_mixture_log_density(parts, check_values(y, self.mean_tensor())))

    @plain()
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint distribution, (s, n): each draw is a draw of one member."""
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = random.chosen(seed, generator, random.Role.FUNCTIONS)
        weights, like = torch.tensor(self._mixture.weights, dtype=torch.float64), self.latent.mean()
        members = torch.multinomial(weights, max(num_samples, 1), True, generator=generator)[:num_samples]
        draws = like.new_empty(num_samples, *self.mean_tensor().shape)
        for number, member in enumerate(self._members(like)):
            rows = (members == number).nonzero()[:, 0]
            if len(rows):
                draws[rows] = member.sample(len(rows), generator=generator)
        return self._out(draws)

    @plain()
    def linear(self, weights: Any) -> "MixturePrediction":
        """Return the joint distribution of linear functionals of the values (m, n), or of one, (n,)."""
        whole, members = super().linear(weights), [member.linear(weights) for member in self._members(self.template)]
        shifts = [torch.zeros_like(shift) for shift in self._mixture.shifts]  # the functionals include them
        latent = MixtureDistribution(
            [member.latent for member in members], self._mixture.weights, shifts, [member.noise for member in members]
        )
        return replace(self, latent=latent, location=whole.location, noise=whole.noise)

    def parts(self) -> Iterator[Part]:
        """Yield the weight of each member, with its means and variances (n,), float64."""
        for weight, member in zip(self._mixture.weights, self._members(self.template), strict=True):
            variance = member.variance_tensor().clamp_min(0)
            yield weight, member.mean_tensor(), variance

    def exp(self) -> LogNormal:
        """Return the log-normal distribution of the exponentials of Gaussian values with these moments."""
        parts = (self.latent, self.location, self.scale, self.noise, self.template, self.as_numpy, self.has_noise)
        return LogNormal(Prediction(*parts))

    # --- in the user's units ---------------------------------------------------------------------

    @property
    def _mixture(self) -> MixtureDistribution:
        return cast(MixtureDistribution, self.latent)

    def _members(self, template: Tensor) -> Iterator[Prediction]:
        """Yield the predictions of the members. Their results are tensors like a template, (0,)."""
        mixture = self._mixture
        for member, shift, noise in zip(mixture.members, mixture.shifts, mixture.noises, strict=True):
            location = self.location + self.scale * shift[0]
            yield Prediction(member, location, self.scale, noise, template, False, self.has_noise)


def _mixture_log_density(parts: Iterable[Part], y: Tensor) -> Tensor:
    """Return the log densities of values (n,)."""
    return torch.logsumexp(torch.stack([math.log(w) + normal_log_density(y, m, v) for w, m, v in parts]), dim=0)


def _mixture_cdf(parts: Iterable[Part], y: Tensor) -> Tensor:
    """Return the probabilities of at most y, () or (n,)."""
    total = torch.zeros((), dtype=torch.float64, device=y.device)
    for weight, mean, variance in parts:
        deviation = variance.sqrt()
        scaled = (y - mean) / torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        share = 0.5 * torch.special.erfc(-scaled / 2**0.5)
        total = total + weight * torch.where(deviation > 0, share, (y >= mean).to(share))
    return total


def _mixture_quantile(parts: Sequence[Part], p: Tensor) -> Tensor:
    """Return the quantiles (n,) of probabilities (n,), by bisection between those of the members.

    Bisection has no gradient. One Newton step after it has.
    """
    with torch.no_grad():
        ends = torch.stack([mean + variance.sqrt() * torch.special.ndtri(p) for _, mean, variance in parts])
        low, high = ends.min(0).values, ends.max(0).values
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_low = _mixture_cdf(parts, middle) < p
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    if not any(mean.requires_grad for _, mean, _ in parts):
        return high
    return high - (_mixture_cdf(parts, high) - p) / _mixture_log_density(parts, high).exp().detach()
