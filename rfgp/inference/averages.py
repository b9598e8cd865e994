"""Averages of processes: the mean and the covariance of a mixture of their posteriors.

Of posteriors with means m_i and covariances C_i and weights w_i that sum to one, the mixture has the mean
m = sum w_i m_i and the covariance sum w_i (C_i + (m_i - m) (m_i - m)^T): what the processes know and where they
disagree. The weights are given; rows do not change them. Its densities are in `rfgp.inference.mixed`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.dense import KernelEvidence
from rfgp.inference.evidence import Evidence
from rfgp.inference.independent import by_function
from rfgp.inference.laws import Functions, InputBlocks, Law, root_of
from rfgp.inference.posteriors import KernelPosterior
from rfgp.inference.priors import KernelPrior
from rfgp.rows import Block

NO_FUNCTIONS = "An average of exact processes has no functions to draw: sample at given points from predict(X)."


@dataclass(frozen=True, eq=False)
class Averaged:
    """A process of an average.

    Attributes:
        weight: Its share.
        prior: Of its function.
        mean: (1,).
        noise: Learned variance of one observation, 0-d.
    """

    weight: float
    prior: KernelPrior
    mean: Tensor
    noise: Tensor


@dataclass(frozen=True, eq=False)
class AveragePrior(KernelPrior):
    """A mixture of zero-mean priors; its covariance function is the average of theirs.

    Attributes:
        parts: The processes. That whose hyperparameters are learned is the first.
    """

    parts: tuple[Averaged, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Averaged]) -> "AveragePrior":
        """Return the mixture of some processes."""

        def kernel(a: Tensor, b: Tensor) -> Tensor:
            return _sum(part.weight * part.prior.kernel(a, b) for part in parts)

        def diagonal(a: Tensor) -> Tensor:
            return _sum(part.weight * part.prior.diagonal(a) for part in parts)

        return cls(kernel, diagonal, parts=tuple(parts))

    @property
    def weights(self) -> tuple[float, ...]:
        """Those of all, which sum to one."""
        return tuple(part.weight for part in self.parts)

    @property
    def shifts(self) -> tuple[Tensor, ...]:
        """What the mean of each has more than that of the first, (1,)."""
        return tuple(part.mean - self.parts[0].mean for part in self.parts)


class AverageEvidence(Evidence):
    """Regression by each of the processes.

    Args:
        prior: Of all.
        rows: The data, of one output.
    """

    def __init__(self, prior: AveragePrior, rows: Block) -> None:
        self._prior, self._rows = prior, rows
        self._first = self._of(prior.parts[0])

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y by the first process, 0-d: the one whose hyperparameters are learned."""
        return self._first.log_marginal_likelihood()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of each row given all the others."""
        means, variances = zip(*(part.leave_one_out() for part in self._parts()), strict=True)
        return mixed(self._prior.weights, means, variances)

    def posterior(self) -> "AveragePosterior":
        """Return those of all."""
        return AveragePosterior(self._prior, tuple(part.posterior() for part in self._parts()))

    def _parts(self) -> list[KernelEvidence]:
        return [self._first, *(self._of(part) for part in self._prior.parts[1:])]

    def _of(self, part: Averaged) -> KernelEvidence:
        return KernelEvidence(part.prior, self._rows, part.mean, part.noise)


@dataclass(frozen=True, eq=False)
class AveragePosterior:
    """Of all processes.

    Attributes:
        prior: With their weights and means.
        parts: What each knows.
    """

    prior: AveragePrior
    parts: tuple[KernelPosterior, ...]

    @classmethod
    def restored(cls, prior: AveragePrior, tensors: Mapping[str, Tensor]) -> "AveragePosterior":
        """Return what has these `tensors` (...)."""
        told = by_function(tensors)
        return cls(prior, tuple(KernelPosterior(part.prior, **told[str(i)]) for i, part in enumerate(prior.parts)))

    def law(self, inputs: Tensor | InputBlocks) -> "AverageLaw":
        """Return the latent law at n inputs, (n, d)."""
        noises = [part.noise for part in self.prior.parts]
        laws = [part.law(inputs) for part in self.parts]
        return AverageLaw(inputs, self.prior.weights, self.prior.shifts, noises, laws)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Refuse: exact processes on tables have no functions of n inputs, (count, n, 1).

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(NO_FUNCTIONS)

    def tensors(self) -> dict[str, Tensor]:
        """Return those of each by name, (...), with its number before it: "0.factor"."""
        return {f"{i}.{name}": one for i, each in enumerate(self.parts) for name, one in each.tensors().items()}


@dataclass(frozen=True, eq=False)
class AverageLaw:
    """The normal law at n points with the moments of the mixture.

    Attributes:
        inputs: The points, (n, d), or blocks of them.
        weights: Of the laws.
        shifts: What is added to the mean of each, (1,).
        noises: Of an observation by each, 0-d; of functionals covariances (m, m).
        laws: Of each process.
    """

    inputs: Any
    weights: Sequence[float]
    shifts: Sequence[Tensor]
    noises: Sequence[Tensor]
    laws: Sequence[Law]

    def mean(self) -> Tensor:
        """Return the mean (n, 1)."""
        return _sum(weight * mean for weight, mean in zip(self.weights, self._means(), strict=True))

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        return mixed(self.weights, self._means(), [law.variance() for law in self.laws])[1]

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""
        within = _sum(weight * law.covariance() for weight, law in zip(self.weights, self.laws, strict=True))
        apart = torch.cat(self._means(), dim=1) - self.mean()
        return within + apart * apart.new_tensor(self.weights) @ apart.mT

    def root(self) -> Tensor:
        """Return a matrix R (n, n) with R R^T the covariance."""
        return root_of(self.covariance())

    def _means(self) -> list[Tensor]:
        return [law.mean() + shift for law, shift in zip(self.laws, self.shifts, strict=True)]


def mixed(
    weights: Sequence[float],
    means: Sequence[Tensor],  # (n, 1) each
    variances: Sequence[Tensor],  # (n,) each
) -> tuple[Tensor, Tensor]:
    """Return the mean (n, 1) and the variance (n,) of a mixture."""
    mean = _sum(weight * one for weight, one in zip(weights, means, strict=True))
    parts = zip(weights, means, variances, strict=True)
    return mean, _sum(weight * (variance + (one - mean).square()[:, 0]) for weight, one, variance in parts)


def _sum(values: Iterable[Tensor]) -> Tensor:
    first, *others = values
    total: Tensor = sum(others, start=first)
    return total
