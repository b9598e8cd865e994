"""Predictions of an average of processes: moments of the mixture, and its densities, quantiles and draws."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import plain
from rfgp.counts import check_count
from rfgp.inference.averages import AverageLaw
from rfgp.inference.laws import LinearLaw, normal_log_density
from rfgp.inference.prediction import LogNormal, Prediction, probabilities, values_like

_HALVINGS = 80
Part = tuple[float, Tensor, Tensor]
"""A weight, means and variances (n,)."""


@dataclass(frozen=True, eq=False, repr=False)
class MixturePrediction(Prediction):
    """The joint law at n points of a mixture of normal ones, of one output.

    Means, variances and covariances are its own; densities, probabilities, quantiles and draws are of the mixture,
    which has longer tails than the normal law with these moments. `exp()` is of that law, as divergences are. Its `law`
    is an `AverageLaw`.
    """

    def cdf(self, y: Any) -> Any:
        """Return the probabilities that values are at most y, one number or (n,): (n,)."""
        return self._out(_below(list(self.parts()), values_like(y, self.mean_tensor(), may_be_one=True)))

    @plain()
    def quantile(self, probability: Any) -> Any:
        """Return the quantiles of the marginal laws: (n,), or (q, n) for q probabilities."""
        mean, parts = self.mean_tensor(), list(self.parts())
        p = probabilities("probability", probability, mean)
        found = torch.stack([_at(parts, one.expand_as(mean)) for one in p.reshape(-1)])
        return self._out(found.reshape(*p.shape, *mean.shape))

    def log_density(self, y: Any) -> Any:
        """Return the log density of each value (n,) under its marginal law."""
        values = values_like(y, self.mean_tensor())
        return self._out(_log_density(self.parts(), values))

    @plain()
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint law, (s, n): each draw is one of one of the processes."""
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = random.chosen(seed, generator, random.Role.FUNCTIONS)
        law, like = self._law, self.law.mean()
        which = torch.multinomial(like.new_tensor(law.weights).cpu(), max(num_samples, 1), True, generator=generator)
        draws = like.new_empty(num_samples, *self.mean_tensor().shape)
        for number, part in enumerate(self._normal(like)):
            rows = (which[:num_samples] == number).nonzero()[:, 0]
            if len(rows):
                draws[rows] = part.sample(len(rows), generator=generator)
        return self._out(draws)

    @plain()
    def linear(self, weights: Any) -> "MixturePrediction":
        """Return the joint law of linear functionals of the values (m, n), or of one, (n,)."""
        whole, parts = super().linear(weights), [part.linear(weights) for part in self._normal(self.template)]
        laws = [cast(LinearLaw, part.law) for part in parts]
        none, noises = [torch.zeros_like(shift) for shift in self._law.shifts], [part.noise for part in parts]
        law = AverageLaw(laws[0].weights, self._law.weights, none, noises, laws)
        return replace(self, law=law, location=whole.location, noise=whole.noise)

    def parts(self) -> Iterator[Part]:
        """Yield the weight of each part, with its means and variances (n,), float64."""
        for weight, part in zip(self._law.weights, self._normal(self.template), strict=True):
            yield weight, part.mean_tensor(), part.variance_tensor().clamp_min(0)

    def exp(self) -> LogNormal:
        """Return the law of the exponentials of normal values with these moments."""
        parts = (self.law, self.location, self.scale, self.noise, self.template, self.as_numpy, self.has_noise)
        return LogNormal(Prediction(*parts))

    # --- in the user's units ---------------------------------------------------------------------

    @property
    def _law(self) -> AverageLaw:
        return cast(AverageLaw, self.law)

    def _normal(self, template: Tensor) -> Iterator[Prediction]:
        """Yield the laws of the parts, whose results are like a template, (0,)."""
        law = self._law
        for part, shift, noise in zip(law.laws, law.shifts, law.noises, strict=True):
            location = self.location + self.scale * shift[0]
            yield Prediction(part, location, self.scale, noise, template, False, self.has_noise)


def _log_density(parts: Iterable[Part], y: Tensor) -> Tensor:
    """Return the log densities of values (n,)."""
    return torch.logsumexp(torch.stack([math.log(w) + normal_log_density(y, m, v) for w, m, v in parts]), dim=0)


def _below(parts: Iterable[Part], y: Tensor) -> Tensor:
    """Return the probabilities of at most y, () or (n,)."""
    total = torch.zeros((), dtype=torch.float64, device=y.device)
    for weight, mean, variance in parts:
        deviation = variance.sqrt()
        scaled = (y - mean) / torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        share = 0.5 * torch.special.erfc(-scaled / 2**0.5)
        total = total + weight * torch.where(deviation > 0, share, (y >= mean).to(share))
    return total


def _at(parts: Sequence[Part], p: Tensor) -> Tensor:
    """Return the quantiles (n,) of probabilities (n,), by bisection between those of the parts.

    A last step of Newton's has the gradient, which the halvings have not.
    """
    with torch.no_grad():
        ends = torch.stack([mean + variance.sqrt() * torch.special.ndtri(p) for _, mean, variance in parts])
        low, high = ends.min(0).values, ends.max(0).values
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = _below(parts, middle) < p
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    if not any(mean.requires_grad for _, mean, _ in parts):
        return high
    return high - (_below(parts, high) - p) / _log_density(parts, high).exp().detach()
