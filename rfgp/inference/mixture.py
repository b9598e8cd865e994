"""Weighted mixtures of Gaussian processes with one output."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.arguments import read_draws
from rfgp.inference.composite import numbered
from rfgp.inference.distributions import (
    Distribution,
    InputBlocks,
    LatentDistribution,
)
from rfgp.inference.marginals import ByMarginals, MarginalMixture
from rfgp.inference.new_levels import with_new_levels
from rfgp.inference.prediction import LogNormal, Prediction
from rfgp.linalg import covariance_root
from rfgp.solvers import Inference, Posterior
from rfgp.solvers.role import Functions, Shape
from rfgp.threads import computed

NO_FUNCTIONS = "An average of models cannot draw functions. Use predict(X).sample() instead."
NO_TERMS = "An average of models is not divided into terms. Use its largest member: gp.members[0][1].predict(X).terms."


@dataclass(frozen=True, eq=False)
class MixtureMember:
    """A Gaussian process of a mixture.

    Attributes:
        weight: The weight. The weights of all members sum to one.
        prior: The prior of the latent function.
        mean: The mean, (1,).
        noise: The variance of one observation, 0-d.
    """

    weight: float
    prior: Prior
    mean: Tensor
    noise: Tensor


class MixtureInference(Inference):
    """The inference from rows under each member of a mixture.

    Args:
        members: The members. The hyperparameters of the first are learned.
        infer: A function that returns the inference from the rows under one member, such as a `DenseSolver`.
    """

    def __init__(self, members: Sequence[MixtureMember], infer: Callable[[MixtureMember], Inference]) -> None:
        self._members, self._infer, self._first = tuple(members), infer, infer(members[0])

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood of the first member, 0-d."""
        return self._first.log_marginal_likelihood()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of each row given all others."""
        means, variances = zip(*(inference.leave_one_out() for inference in self._member_inferences()), strict=True)
        return mixture_moments(self._weights, means, variances)

    def posterior(self) -> "MixturePosterior":
        """Return the posteriors of all members."""
        posteriors = [inference.posterior() for inference in self._member_inferences()]
        return MixturePosterior.from_members(self._members, posteriors)

    @property
    def _weights(self) -> tuple[float, ...]:
        return tuple(member.weight for member in self._members)

    def _member_inferences(self) -> Iterator[Inference]:
        yield self._first
        yield from map(self._infer, self._members[1:])


@dataclass(frozen=True, eq=False)
class MixturePosterior(Posterior):
    """The posteriors of the members of a mixture, with the moments of the mixture.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        members: The posterior of each member.
        weights: The weights of the members, which sum to one.
        shifts: The mean of each member minus that of the first, (1,).
        noises: The variance of one observation under each member, 0-d.
        prior: The prior of the first member.
    """

    members: tuple[Posterior, ...]
    weights: tuple[float, ...]
    shifts: tuple[Tensor, ...]
    noises: tuple[Tensor, ...]
    prior: Prior = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", self.members[0].prior)

    @classmethod
    def from_members(cls, members: Sequence[MixtureMember], posteriors: Sequence[Posterior]) -> "MixturePosterior":
        """Return the mixture of the posteriors of its members.

        Args:
            members: The members.
            posteriors: The posterior of each member.
        """
        return cls(
            tuple(posteriors),
            tuple(member.weight for member in members),
            tuple((member.mean - members[0].mean).detach() for member in members),
            tuple(member.noise.detach() for member in members),
        )

    def at(self, inputs: Tensor | InputBlocks, memory: float | None = None) -> "MixtureDistribution":
        """Return the distribution of the latent function at n points, (n, d) or (n,).

        Args:
            inputs: The points.
            memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
        """
        members = tuple(
            with_new_levels(LatentDistribution(member, inputs, memory), member.prior, None, inputs, memory)
            for member in self.members
        )
        return MixtureDistribution(members, self.weights, self.shifts, self.noises)

    @property
    def width(self) -> int:
        """The number of entries of one point in memory, for all members."""
        return sum(member.width for member in self.members)

    def project(self, inputs: Tensor) -> "MixtureDistribution":
        """Return the distribution at n points, (n, d) or (n,)."""
        return self.at(inputs)

    def mean(self, projected: "MixtureDistribution") -> Tensor:
        """Return the posterior mean, (n, 1)."""
        return projected.mean()

    def variance(self, inputs: Tensor, projected: "MixtureDistribution") -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        return projected.variance()

    def covariance(self, inputs: Tensor, projected: "MixtureDistribution") -> Tensor:
        """Return the posterior covariance, (n, n)."""
        return projected.covariance()

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Raise an error, because averages of models do not support drawing functions.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(NO_FUNCTIONS)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors (...) of all members, with names such as "0.factor"."""
        return numbered(member.tensors() for member in self.members)

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of the tensors of all members by name, for n rows and one output."""
        return numbered(member.shapes(n, k) for member in self.members)


@dataclass(frozen=True, eq=False)
class MixtureDistribution(Distribution):
    """The Gaussian distribution with the mean and covariance of a mixture.

    Attributes:
        members: The distribution of each member, at the same points.
        weights: The weights of the members, which sum to one.
        shifts: The shift that is added to the mean of each member, (1,).
        noises: The noise variance of an observation under each member, 0-d. For functionals, covariances (m, m).

    Examples:
        >>> import torch
        >>> from rfgp.inference.distributions import MarginalDistribution
        >>> from rfgp.inference.mixture import MixtureDistribution
        >>> low, high = (MarginalDistribution(torch.tensor([[m]]), torch.tensor([1.0])) for m in (-2.0, 2.0))
        >>> none = torch.zeros(1)
        >>> mixture = MixtureDistribution((low, high), (0.5, 0.5), (none, none), (none[0], none[0]))
        >>> mixture.mean().item(), mixture.variance().item()
        (0.0, 5.0)
    """

    members: Sequence[Distribution]
    weights: Sequence[float]
    shifts: Sequence[Tensor]
    noises: Sequence[Tensor]

    @property
    def num_points(self) -> int | None:
        """The number n of points, or None if it is not known before they are read."""
        return self.members[0].num_points

    @property
    def requires_grad(self) -> bool:
        """Whether an input of a member requires a gradient."""
        return any(member.requires_grad for member in self.members)

    def _mean(self) -> Tensor:
        return _weighted_sum(self.weights, self._means())

    def _variance(self) -> Tensor:
        variances = [member.variance() for member in self.members]
        return mixture_moments(self.weights, self._means(), variances)[1]

    def _covariance(self) -> Tensor:
        covariances = [member.covariance() for member in self.members]
        return mixture_covariance(self.weights, self._means(), covariances)

    def _root(self) -> Tensor:
        return covariance_root(self.covariance())

    def _means(self) -> list[Tensor]:
        return [member.mean() + shift for member, shift in zip(self.members, self.shifts, strict=True)]


def mixture_moments(
    weights: Sequence[float],
    means: Sequence[Tensor],  # (n, 1) each
    variances: Sequence[Tensor],  # (n,) each
) -> tuple[Tensor, Tensor]:  # (n, 1), (n,)
    """Return the mean and the marginal variances of a mixture.

    Args:
        weights: The weights of the members, (m,).
        means: The means of the members, (n, 1) each.
        variances: The variances of the members, (n,) each.
    """
    mean = _weighted_sum(weights, means)
    squares = [
        variance + (member_mean - mean).square()[:, 0] for member_mean, variance in zip(means, variances, strict=True)
    ]
    return mean, _weighted_sum(weights, squares)


def mixture_covariance(
    weights: Sequence[float],
    means: Sequence[Tensor],  # (n, 1) each
    covariances: Sequence[Tensor],  # (n, n) each
) -> Tensor:  # (n, n)
    """Return the covariance of a mixture.

    Args:
        weights: The weights of the members, (m,).
        means: The means of the members, (n, 1) each.
        covariances: The covariances of the members, (n, n) each.
    """
    differences = torch.cat(list(means), dim=1) - _weighted_sum(weights, means)
    between = differences * differences.new_tensor(weights) @ differences.mT
    return _weighted_sum(weights, covariances) + between


def _weighted_sum(weights: Sequence[float], values: Iterable[Tensor]) -> Tensor:
    first, *others = (weight * value for weight, value in zip(weights, values, strict=True))
    return sum(others, start=first)


Component = tuple[float, Tensor, Tensor]
"""A component of a mixture: its weight, and its means and variances (n,)."""


@dataclass(frozen=True, eq=False, repr=False)
class MixturePrediction(ByMarginals, Prediction):
    """The joint distribution at n points of a mixture of Gaussian processes.

    Methods are those of `Prediction`. Moments, densities, probabilities, quantiles and draws are those of the mixture.
    Its tails are longer than those of the Gaussian distribution with the same moments. `exp()` and divergences use that
    Gaussian distribution. `latent` is a `MixtureDistribution`.

    Examples:
        >>> from rfgp.inference.distributions import MarginalDistribution
        >>> low, high = (MarginalDistribution(torch.tensor([[m]]), torch.tensor([1.0])) for m in (-2.0, 2.0))
        >>> zero, one = torch.zeros(()), torch.ones(())
        >>> latent = MixtureDistribution((low, high), (0.5, 0.5), (zero[None], zero[None]), (zero, zero))
        >>> prediction = MixturePrediction(latent, zero, one, zero, torch.empty(0), as_numpy=True)
        >>> prediction.quantile([0.25, 0.75])[:, 0].round(1)
        array([-2.,  2.], dtype=float32)
    """

    def marginals(self) -> MarginalMixture:
        """Return the marginal distributions in the user's units."""
        weights, means, variances = zip(*self.parts(), strict=True)
        mean, variance = torch.stack(means), torch.stack(variances)
        return MarginalMixture(mean.new_tensor(weights), mean, variance, torch.zeros_like(mean[:1]), math.inf)

    @computed
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint distribution, (s, n), each draw from one member."""
        num_samples, generator = read_draws(num_samples, seed, generator)
        weights, like = torch.tensor(self._mixture.weights, dtype=torch.float64), self.latent.mean()
        members = torch.multinomial(weights, max(num_samples, 1), True, generator=generator)[:num_samples]
        draws = like.new_empty(num_samples, *self.mean_tensor().shape)
        for number, member in enumerate(self._members(like)):
            rows = (members == number).nonzero()[:, 0]
            if len(rows):
                draws[rows] = member.sample(len(rows), generator=generator)
        return self._out(draws)

    @computed
    def linear(self, weights: Any) -> "MixturePrediction":
        """Return the joint distribution of linear functionals with weights (m, n) or (n,)."""
        functionals = super().linear(weights)
        members = [member.linear(weights) for member in self._members(self.template)]
        shifts = [torch.zeros_like(shift) for shift in self._mixture.shifts]  # the functionals include them
        latent = MixtureDistribution(
            [member.latent for member in members], self._mixture.weights, shifts, [member.noise for member in members]
        )
        return replace(cast(MixturePrediction, functionals), latent=latent)

    @property
    def terms(self) -> NoReturn:
        """Raise an error, because an average of models is not divided into terms.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(NO_TERMS)

    def of(self, *terms: str) -> NoReturn:
        """Raise an InvalidArgumentError like `terms`."""
        raise InvalidArgumentError(NO_TERMS)

    def without(self, *terms: str) -> NoReturn:
        """Raise an InvalidArgumentError like `terms`."""
        raise InvalidArgumentError(NO_TERMS)

    def parts(self) -> Iterator[Component]:
        """Yield the weight of each member, with its means and variances (n,), float64."""
        for weight, member in zip(self._mixture.weights, self._members(self.template), strict=True):
            variance = member.variance_tensor().clamp_min(0)
            yield weight, member.mean_tensor(), variance

    def exp(self) -> LogNormal:
        """Return the log-normal distribution with these moments of the logarithm."""
        parts = (self.latent, self.location, self.scale, self.noise, self.template, self.as_numpy, self.has_noise)
        return LogNormal(Prediction(*parts, scales=self.scales))

    # --- in the user's units ---------------------------------------------------------------------

    @property
    def _mixture(self) -> MixtureDistribution:
        return cast(MixtureDistribution, self.latent)

    def _members(self, template: Tensor) -> Iterator[Prediction]:
        """Yield the predictions of the members, with tensors like a template, (0,)."""
        mixture = self._mixture
        noises = mixture.noises if self.scales is None else self.scales.extra_noises().to(template.device)
        for member, shift, noise in zip(mixture.members, mixture.shifts, noises, strict=True):
            location = self.location + self.scale * shift[0]
            yield Prediction(member, location, self.scale, noise, template, False, self.has_noise)
