"""Gaussian processes given data: posteriors of several functions, mixtures, and integrals over boxes.

The integral over a box is the sum over nodes x_q of v_q f(x_q). It is Gaussian with the mean sum_q v_q m(x_q) and the
variance v^T C v, with C the covariance of the nodes. The residual variance of features is independent between points.
It does not contribute to an integral, because sum_q v_q^2 vanishes as the nodes become dense. A rule is used if the
prior variances of integrals change little from a rule with fewer nodes to it.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from scipy import special
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.distributions import (
    Distribution,
    InputBlocks,
    LatentDistribution,
    LinearFunctionals,
    MarginalMixture,
    blocks_with_new_levels,
    in_memory,
    kept,
)
from rfgp.inference.prediction import LogNormal, Prediction
from rfgp.linalg import covariance_root
from rfgp.parameters import ParameterValues
from rfgp.solvers import Inference, Posterior
from rfgp.solvers.role import Functions, Shape
from rfgp.threads import computed

# --- Posteriors composed of the posteriors of several functions ------------------------------------------------------

T = TypeVar("T")

NOISE_PREFIX = "noise"
"""The prefix of the names of the tensors of a noise process."""


@dataclass(frozen=True, eq=False)
class IndependentFunctions(Posterior):
    """The posterior of C independent functions.

    Attributes:
        members: The posterior of each, with one output.
        prior: The prior of the first.
    """

    members: tuple[Posterior, ...]
    prior: Prior = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", self.members[0].prior)

    @property
    def width(self) -> int:
        """The number of entries of one point in memory, for all members."""
        return sum(member.width for member in self.members)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors (...) of all members, with names such as "0.weights"."""
        return numbered(member.tensors() for member in self.members)

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of the tensors of all members by name."""
        return numbered(member.shapes(n, 1) for member in self.members)

    def project(self, inputs: Tensor) -> tuple[Any, ...]:
        """Return the projections of n points, such as (n, F), one for each function."""
        return tuple(function.project(inputs) for function in self.members)

    def mean(self, projected: tuple[Any, ...]) -> Tensor:
        """Return the posterior means, (n, C)."""
        return torch.cat([f.mean(reads) for f, reads in zip(self.members, projected, strict=True)], dim=1)

    def variance(self, inputs: Tensor, projected: tuple[Any, ...]) -> Tensor:
        """Return the marginal posterior variances, (n, C)."""
        pairs = zip(self.members, projected, strict=True)
        return torch.stack([function.variance(inputs, reads) for function, reads in pairs], dim=1)

    def covariance(self, inputs: Tensor, projected: tuple[Any, ...]) -> Tensor:
        """Return the posterior covariances of each function between points, (n, n, C)."""
        pairs = zip(self.members, projected, strict=True)
        return torch.stack([function.covariance(inputs, reads) for function, reads in pairs], dim=2)

    def root(self, inputs: Tensor, projected: tuple[Any, ...]) -> Tensor:
        """Return a matrix R (C n, r) such that R R^T is the covariance of all values, function by function."""
        return block_diagonal(f.root(inputs, reads) for f, reads in zip(self.members, projected, strict=True))

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior.

        Returns:
            A map of the inputs of n points to (count, n, C).
        """
        samples = [function.sample_functions(count, generator) for function in self.members]
        return lambda inputs: torch.cat([sample(inputs) for sample in samples], dim=2)

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values at n points, (count, b, C) at b of them, or None if a function has no weights."""
        samples = [function.sample_values(num_points, count, generator) for function in self.members]
        known = [sample for sample in samples if sample is not None]
        if len(known) < len(samples):
            return None
        return lambda inputs: torch.cat([sample(inputs) for sample in known], dim=2)

    @property
    def num_functions(self) -> int:
        """The number C of functions."""
        return len(self.members)

    def of(self, names: Sequence[str]) -> "IndependentFunctions":
        """Return the posterior of the sum of some terms of each function."""
        return IndependentFunctions(tuple(function.of(names) for function in self.members))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariances (n, n, C) between two sums of terms of each function."""
        parts = [function.cross_covariance(inputs, first, second) for function in self.members]
        return torch.stack(parts, dim=2)


def saved_tensors(posterior: Posterior) -> dict[str, Tensor]:
    """Return the saved tensors (...) of a posterior and of its noise process, such as "noise.weights", by name.

    Args:
        posterior: The posterior.
    """
    noise = posterior.noise_process
    return posterior.tensors() | ({} if noise is None else prefixed(NOISE_PREFIX, noise.tensors()))


def saved_shapes(posterior: Posterior, n: int, k: int) -> dict[str, Shape]:
    """Return the shapes of the saved tensors by name, except those of inputs.

    Args:
        posterior: The posterior.
        n: The number of rows.
        k: The number of outputs.
    """
    noise = posterior.noise_process
    return posterior.shapes(n, k) | ({} if noise is None else prefixed(NOISE_PREFIX, noise.shapes(n, k)))


def block_diagonal(blocks: Iterable[Tensor]) -> Tensor:
    """Return the block-diagonal matrix of the given blocks.

    Args:
        blocks: The blocks, (a_i, b_i) each.
    """
    out: Tensor = torch.block_diag(*blocks)
    return out


def prefixed(prefix: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return values by name, with a prefix and a dot before the names.

    Args:
        prefix: The prefix.
        values: The values by name, such as tensors (...).
    """
    return {f"{prefix}.{name}": value for name, value in values.items()}


def numbered(values: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Return values (...) of several posteriors by name, with the index of the posterior as a prefix.

    Args:
        values: The tensors (...) by name of each posterior.
    """
    tensors: dict[str, T] = {}
    for number, part in enumerate(values):
        tensors |= prefixed(str(number), part)
    return tensors


def tensors_by_prefix(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return tensors grouped by the part of their names before the last dot, or "".

    Args:
        tensors: The tensors (...) by name.

    Examples:
        >>> from rfgp.inference.mixture import tensors_by_prefix
        >>> tensors_by_prefix({"weights": 1, "noise.weights": 2})
        {'': {'weights': 1}, 'noise': {'weights': 2}}
    """
    by_prefix: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        prefix, _, last = name.rpartition(".")
        by_prefix.setdefault(prefix, {})[last] = tensor
    return by_prefix


# --- Weighted mixtures of Gaussian processes with one output ---------------------------------------------------------

NO_FUNCTIONS = "An average of models cannot draw functions. Use predict(X).sample() instead."
NO_TERMS_OF_AVERAGE = (
    "An average of models is not divided into terms. Use its largest member: gp.members[0][1].predict(X).terms."
)


@dataclass(frozen=True, eq=False)
class Member:
    """A process with its weight in an average of posteriors.

    Attributes:
        weight: The weight. The weights of an average sum to one.
        spec: The specification of the process.
        values: Its hyperparameters.
    """

    weight: float
    spec: Any
    values: ParameterValues

    @property
    def mean(self) -> Tensor:
        """The standardized mean, (k,), float64."""
        return self.values.standardized("mean").reshape(-1).double()

    @property
    def noise(self) -> Tensor:
        """The standardized noise variance, 0-d, float64, of a Gaussian likelihood."""
        return self.values.standardized("noise").double()

    @property
    def prior(self) -> Prior:
        """The prior at these hyperparameters."""
        prior: Prior = self.spec.prior(self.values)
        return prior


class MixtureInference(Inference):
    """The inference from rows under each member of a mixture.

    Args:
        members: The members. The hyperparameters of the first are learned.
        infer: A function that returns the inference from the rows under one member, such as a `DenseSolver`.
    """

    def __init__(self, members: Sequence[Member], infer: Callable[[Member], Inference]) -> None:
        self._members, self._infer, self._first = tuple(members), infer, infer(members[0])

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood of the first member, 0-d."""
        return self._first.log_marginal_likelihood()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of each row given all others."""
        means, variances = zip(*(inference.leave_one_out() for inference in self._member_inferences()), strict=True)
        return mixture_moments([member.weight for member in self._members], means, variances)

    def posterior(self) -> "MixturePosterior":
        """Return the posteriors of all members."""
        posteriors = [inference.posterior() for inference in self._member_inferences()]
        return MixturePosterior.from_members(self._members, posteriors)

    def _member_inferences(self) -> Iterator[Inference]:
        yield self._first
        yield from map(self._infer, self._members[1:])


@dataclass(frozen=True, eq=False)
class MixturePosterior(IndependentFunctions):
    """A weighted mixture of posteriors of one function, which each member of an average of models has for itself.

    Attributes:
        weights: The weights of the members, which sum to one.
        shifts: The mean of each member minus that of the first, (1,).
        noises: The variance of one observation under each member, 0-d.
    """

    weights: tuple[float, ...]
    shifts: tuple[Tensor, ...]
    noises: tuple[Tensor, ...]

    @classmethod
    def from_members(cls, members: Sequence[Member], posteriors: Sequence[Posterior]) -> "MixturePosterior":
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
        members = tuple(LatentDistribution.at(member, inputs, memory) for member in self.members)
        return MixtureDistribution(members, self.weights, self.shifts, self.noises)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Raise an error, because averages of models do not support drawing functions.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(NO_FUNCTIONS)


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

    not_divided = NO_TERMS_OF_AVERAGE

    @property
    def num_points(self) -> int | None:
        """The number n of points, or None if the values are not at points."""
        return self.members[0].num_points

    @kept
    def mean(self) -> Tensor:
        """Return the mean, (n, 1)."""
        return _weighted_sum(self.weights, self._means())

    @kept
    def variance(self) -> Tensor:
        """Return the marginal variances, (n,)."""
        variances = [member.variance() for member in self.members]
        return mixture_moments(self.weights, self._means(), variances)[1]

    @kept
    def covariance(self) -> Tensor:
        """Return the covariance, (n, n)."""
        means = self._means()
        differences = torch.cat(means, dim=1) - _weighted_sum(self.weights, means)
        between = differences * differences.new_tensor(self.weights) @ differences.mT
        return _weighted_sum(self.weights, [member.covariance() for member in self.members]) + between

    @kept
    def root(self) -> Tensor:
        """Return a root of the covariance, (n, n)."""
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


def _weighted_sum(weights: Sequence[float], values: Iterable[Tensor]) -> Tensor:
    first, *others = (weight * value for weight, value in zip(weights, values, strict=True))
    return sum(others, start=first)


@dataclass(frozen=True, eq=False, repr=False)
class MixturePrediction(Prediction):
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

    is_mixture = True

    latent: Any

    @kept
    def marginals(self) -> MarginalMixture:
        """Return the marginal distributions in the user's units."""
        members = list(self._members())
        mean = torch.stack([member.mean_tensor() for member in members])
        variance = torch.stack([member.variance_tensor().clamp_min(0) for member in members])
        weights = mean.new_tensor(self.latent.weights)
        return MarginalMixture(weights, mean, variance, math.inf)

    def draws(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from the joint distribution, (s, n), each draw from one member."""
        weights, mean = torch.tensor(self.latent.weights, dtype=torch.float64), self.mean_tensor()
        members = torch.multinomial(weights, max(count, 1), True, generator=generator)[:count]
        draws = mean.new_empty(count, *mean.shape)
        for number, member in enumerate(self._members()):
            rows = (members == number).nonzero()[:, 0]
            if len(rows):
                draws[rows] = member.draws(len(rows), generator)
        return draws

    @computed
    def linear(self, weights: Any) -> Prediction:
        """Return the joint distribution of linear functionals with weights (m, n) or (n,)."""
        functionals = super().linear(weights)
        members = [member.linear(weights) for member in self._members()]
        shifts = [torch.zeros_like(shift) for shift in self.latent.shifts]  # the functionals include them
        latent = MixtureDistribution(
            [member.latent for member in members], self.latent.weights, shifts, [member.noise for member in members]
        )
        return replace(functionals, latent=latent)

    def exp(self) -> LogNormal:
        """Return the log-normal distribution with these moments of the logarithm."""
        return self.as_kind(Prediction).exp()

    # --- in the user's units ---------------------------------------------------------------------

    def _members(self) -> Iterator[Prediction]:
        """Yield the predictions of the members."""
        mixture, template = self.latent, self.template
        noises = mixture.noises if self.scales is None else self.scales.extra_noises().to(template.device)
        for member, shift, noise in zip(mixture.members, mixture.shifts, noises, strict=True):
            location = self.location + self.scale * shift[0]
            yield Prediction(member, location, self.scale, noise, template, False, self.has_noise)


def latent_distribution(
    posterior: Posterior, inputs: Tensor | InputBlocks, memory: float | None = None
) -> LatentDistribution | MixtureDistribution:
    """Return the distribution of the latent function at n points.

    Args:
        posterior: The posterior, or that of the members of an average.
        inputs: The points, (n, d), or positions (n,), or blocks of them.
        memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
    """
    if isinstance(posterior, MixturePosterior):
        return posterior.at(inputs, memory)
    return LatentDistribution.at(posterior, inputs, memory)


# --- Integrals of the latent function over boxes, by products of Gauss-Legendre rules ---------------------------------

NUM_NODES = (16, 64, 1024)
"""The numbers of nodes of the rules for a box. The difference of two rules is the error of the first.

Several columns have rules of equally many nodes a column. Those that are equal are one, which has no known error."""
MAX_ERROR = 1e-7
"""The largest relative error of prior variances with which a rule is used."""
MAX_DIFFERENCE = 1e-2
"""The largest relative difference to a rule with less than 1,000 nodes, or of the last two. The error of the second is
then about 1e-3 or less."""
MIN_VARIANCE_FRACTION = 1e-6
"""The smallest variance to which an error is relative, as a fraction of the upper bound of the variance."""
MAX_JOINT = 2**13
"""The maximum number of nodes of all boxes in total for which a joint covariance is formed."""


def box_nodes(corners: Tensor, columns: Sequence[int], size: int) -> tuple[Tensor, Tensor]:
    """Return the nodes (m, Q, D) and weights (m, Q), float64, of a product of Gauss-Legendre rules over m boxes.

    Args:
        corners: Two opposite corners of each box, (m, 2, D). They agree in the other columns.
        columns: The indices of the columns in which boxes extend.
        size: The number of nodes of a box, up to rounding.

    Examples:
        >>> nodes, weights = box_nodes(torch.tensor([[[0.0], [2.0]]]), (0,), 4)
        >>> round(float((weights * nodes[..., 0] ** 2).sum()), 4)  # the integral of x^2 over [0, 2]
        2.6667
    """
    columns, low, sides = list(columns), corners[:, :1], corners[:, 1:] - corners[:, :1]
    points, weights = (
        torch.stack(torch.meshgrid(*[torch.from_numpy(part / 2)] * len(columns), indexing="ij"), dim=-1)
        for part in special.roots_legendre(_nodes_per_column(size, columns))
    )
    fractions = points.new_zeros(weights[..., 0].numel(), corners.shape[2])
    fractions[:, columns] = points.flatten(0, -2) + 0.5
    volumes = sides[:, 0, columns].double().prod(1)
    return low + fractions.to(corners) * sides, volumes[:, None] * weights.prod(-1).flatten().to(corners.device)


def _nodes_per_column(size: int, columns: Sequence[int]) -> int:
    """Return the number of nodes in each column of a rule with about so many nodes in total."""
    per_column: int = round(size ** (1 / len(columns)))
    return per_column


def box_rule(priors: Sequence[Prior], corners: Tensor, columns: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the nodes (m, Q, D) and weights (m, Q) of the rule for boxes.

    The error is that of the prior variance of the integral of each term, over the widest box of each column. It does
    not depend on the targets.

    Args:
        priors: The priors of the members of a mixture, or one prior.
        corners: The corners of the boxes, (m, 2, D), standardized.
        columns: The indices of the columns in which boxes extend.

    Raises:
        InvalidArgumentError: If a box needs too many nodes.
    """
    held = corners.detach().double()
    sides = (held[:, 1] - held[:, 0])[:, list(columns)]
    widest = held[sorted(set(sides.argmax(0).tolist()))] if len(held) else held
    parts = [part for prior in priors for name in prior.names if (part := prior.of((name,))).blocks]

    @torch.no_grad()
    def moments(size: int) -> list[tuple[Tensor, Tensor]]:
        boxes = zip(*box_nodes(widest, columns, size), strict=True)
        return [_variance_of(part, *box) for box in boxes for part in parts]

    rules = {_nodes_per_column(size, columns): size for size in NUM_NODES}
    of_few, error = moments(next(iter(rules.values()))), 0.0
    for size, larger in itertools.pairwise(rules.values()):
        of_many = moments(larger)
        changes = zip(of_few, of_many, strict=True)
        relative = (abs(few - many) / max(many, MIN_VARIANCE_FRACTION * bound) for (few, _), (many, bound) in changes)
        error, of_few = float(max(relative, default=0.0)), of_many
        if error <= MAX_ERROR:
            return box_nodes(corners, columns, size)
        if error <= MAX_DIFFERENCE and larger > NUM_NODES[1]:
            return box_nodes(corners, columns, larger)
    raise InvalidArgumentError(
        "A box must extend over few lengthscales, got one whose integral has a relative error of "
        f"{error:.1g} with {NUM_NODES[-1]:,} nodes. Divide it and add up the parts: "
        "gp.integrate(lows, highs).linear(np.ones(len(lows)))."
    )


def _variance_of(prior: Prior, nodes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the prior variance of an integral and its upper bound, which is positive, 0-d each."""
    again = nodes.clone()  # a copy: residuals that are independent between points do not contribute
    new = (block.new_covariance(nodes, again) for block in blocks_with_new_levels(prior))
    kernel = sum(new, start=prior.kernel(nodes, again).double())
    bound = (weights @ kernel.diagonal().clamp_min(0).sqrt()).square()
    return weights @ kernel @ weights, bound.clamp_min(torch.finfo(bound.dtype).tiny / MIN_VARIANCE_FRACTION)


@dataclass(frozen=True, eq=False)
class BoxIntegrals(Distribution):
    """The joint distribution of integrals over m boxes.

    Attributes:
        latent: The distribution of the function at the nodes of all boxes, (m Q, D).
        weights: The weights of the nodes, (m, Q).
        shift: A constant that is added to the function, (k,) or ().
    """

    latent: LatentDistribution
    weights: Tensor
    shift: Tensor

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of all terms."""
        return self.latent.terms

    def of(self, *names: str) -> "BoxIntegrals":
        """Return the distribution of integrals of the sum of some terms, without the constant."""
        return replace(self, latent=self.latent.of(*names), shift=0 * self.shift)

    def cross_covariance(self, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the covariance (m, m) or (m, m, C) between integrated sums of terms."""
        joint, base = self._jointly().weights, self.latent.cross_covariance(first, second)
        if base.ndim == 2:
            return joint @ base @ joint.mT
        return (joint @ base.movedim(-1, 0) @ joint.mT).movedim(0, -1)

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each box, (m, C, C)."""
        return torch.cat([box.function_covariance() for box in self._boxes()])

    @kept
    def mean(self) -> Tensor:
        """Return the mean, (m, k)."""
        values = (self.latent.mean() + self.shift).reshape(*self.weights.shape, -1)
        mean: Tensor = (self.weights[..., None] * values).sum(1)
        return mean

    @kept
    def variance(self) -> Tensor:
        """Return the marginal variances (m,), or (m, C) of C functions."""
        variance, residual = torch.cat([box.variance() for box in self._boxes()]), self._independent_variance()
        return (variance - (residual[:, None] if variance.ndim > 1 else residual)).clamp_min(0)

    @kept
    def covariance(self) -> Tensor:
        """Return the covariance (m, m), or (m, m, C) of C functions."""
        covariance, residual = self._jointly().covariance(), self._independent_variance().diag()
        return covariance - (residual[..., None] if covariance.ndim > 2 else residual)

    @kept
    def root(self) -> Tensor:
        """Return a matrix R (m, r), or (C m, r) for C functions, such that R R^T is the covariance of the integrals."""
        if bool(self._independent_variance().any()):  # of one function
            return covariance_root(self.covariance())
        return self._jointly().root()

    def _boxes(self) -> Iterator[LinearFunctionals]:
        """Yield the integral over each box."""
        nodes = in_memory(self.latent.inputs).unflatten(0, self.weights.shape)
        for points, weights in zip(nodes, self.weights, strict=True):
            yield LinearFunctionals(replace(self.latent, inputs=points), weights[None], self.shift)

    def _jointly(self) -> LinearFunctionals:
        """Return the integrals over all boxes as functionals of all nodes.

        Raises:
            InvalidArgumentError: If the boxes have more than `MAX_JOINT` nodes in total.
        """
        if self.weights.numel() > MAX_JOINT:
            raise InvalidArgumentError(
                f"The boxes of a covariance of integrals must have at most {MAX_JOINT:,} nodes in total, got "
                f"{len(self.weights):,} boxes with {self.weights.shape[1]:,} each. Use mean and std, or fewer boxes."
            )
        return LinearFunctionals(self.latent, block_diagonal(self.weights[:, None]), self.shift)

    def _independent_variance(self) -> Tensor:
        """Return the variances (m,) of weighted sums of residuals that are independent between nodes."""
        points, total = in_memory(self.latent.inputs), torch.zeros_like(self.weights)
        for block in self.latent.posterior.prior.weights:
            is_summed = self.latent.names is None or block.name in self.latent.names
            if is_summed and block.residual is not None and block.residual.is_noise:
                total = total + block.residual_variance(points, block.scaled(points)).reshape(total.shape)
        return (self.weights.square() * total).sum(1)


def integrals(latent: Distribution, weights: Tensor, shift: Tensor) -> Distribution:
    """Return the joint distribution of integrals over m boxes.

    Args:
        latent: The distribution of the function at the nodes of all boxes, (m Q, D).
        weights: The weights of the nodes, (m, Q).
        shift: A constant that is added to the function, (k,) or ().
    """
    if isinstance(latent, MixtureDistribution):
        members = [integrals(d, weights, shift + own) for d, own in zip(latent.members, latent.shifts, strict=True)]
        return replace(latent, members=members, shifts=[torch.zeros_like(own) for own in latent.shifts])
    assert isinstance(latent, LatentDistribution)
    return BoxIntegrals(latent, weights, shift)
