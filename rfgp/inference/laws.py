"""Laws of the latent function at some points, standardised and lazily: the role, and what gives them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rfgp.ambient import Cached
from rfgp.counts import counted
from rfgp.errors import InvalidArgumentError

Functions = Callable[[Tensor], Tensor]

ENTRIES = 2**22
"""Of the features, or of the covariances with the data, of a chunk of points."""


class InputBlocks(Protocol):
    """Standardised inputs that are not in memory at once."""

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield the inputs in blocks (b, d) of about `size` rows."""


class Law(Protocol):
    """The role: the joint Gaussian law of the latent function at n points, float64; k outputs share the covariance."""

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""


class Posterior(Protocol):
    """The role: maps inputs to the latent law there."""

    def law(self, inputs: Any) -> Law:
        """Return the latent law at n inputs, tables (n, d) or positions (n,), or blocks of them."""

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior of the latent function: a map of inputs of n points to (count, n, k).

        Args:
            count: How many.
            generator: On the CPU.

        Raises:
            InvalidArgumentError: the prior has no functions to draw.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return by name the tensors that `restore` takes: weights (F, k) or coefficients (n, k) too."""


class ChunkedPosterior(ABC):
    """A posterior by what ties inputs to the data, which is computed for chunks of them."""

    def law(self, inputs: Tensor | InputBlocks) -> "ChunkedLaw":
        """Return the latent law at n inputs, tables (n, d) or positions (n,)."""
        return ChunkedLaw(self, inputs)

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of columns of what `prepare` returns."""

    @abstractmethod
    def prepare(self, inputs: Tensor) -> Tensor:
        """Return what ties n inputs to the data: features (n, F), or covariances with the training inputs."""

    @abstractmethod
    def mean(self, prepared: Tensor) -> Tensor:
        """Return the mean (n, k) for what `prepare` returned."""

    @abstractmethod
    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n,)."""

    @abstractmethod
    def covariance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance (n, n)."""

    def root(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return root_of(self.covariance(inputs, prepared))

    @abstractmethod
    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior: a map of inputs of n points to (count, n, k)."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return by name the tensors that `restore` takes: weights (F, k) or coefficients (n, k) too."""


@dataclass(frozen=True, eq=False)
class ChunkedLaw:
    """The law that a `ChunkedPosterior` gives.

    Attributes:
        posterior: What the data say.
        inputs: The points, tables (n, d) or positions (n,), or blocks of them.
    """

    posterior: ChunkedPosterior
    inputs: Tensor | InputBlocks

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        return torch.cat([self.posterior.mean(prepared) for _, prepared in self._chunks()])

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        return torch.cat([self.posterior.variance(x, prepared) for x, prepared in self._chunks()])

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""
        return self.posterior.covariance(*self._whole)

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return self.posterior.root(*self._whole)

    @property
    def _size(self) -> int:
        return max(1, ENTRIES // max(self.posterior.width, 1))

    @Cached
    def _whole(self) -> tuple[Tensor, Tensor]:
        inputs = in_memory(self.inputs)
        return inputs, self.posterior.prepare(inputs).double()

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield some inputs and what is prepared for them; where one chunk holds them all, that is kept."""
        if isinstance(self.inputs, Tensor) and len(self.inputs) <= self._size:
            yield self._whole
            return
        for x in chunks_of(self.inputs, self._size):
            yield x, self.posterior.prepare(x).double()


def in_memory(inputs: Tensor | InputBlocks) -> Tensor:
    """Return the inputs (n, ...) of a joint law.

    Raises:
        InvalidArgumentError: they are not in memory.
    """
    if isinstance(inputs, Tensor):
        return inputs
    raise InvalidArgumentError(
        "The joint law of rows that are read in blocks would not fit in memory. Ask for mean and variance, or predict "
        "at an array of some of the rows."
    )


def chunks_of(inputs: Tensor | InputBlocks, size: int) -> Iterable[Tensor]:
    """Return inputs (n, ...) in chunks of about `size`, one where there are none."""
    return torch.split(inputs, size) if isinstance(inputs, Tensor) else inputs.blocks(size)


def at_points(law: Law) -> str:
    """Return " at 3 points"; "" where their number is not known before they are read."""
    points = law.weights if isinstance(law, LinearLaw) else getattr(law, "inputs", None)
    return f" at {counted(len(points), 'point')}" if isinstance(points, Tensor) else ""


def normal_log_density(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return the log density of each of some values (...) under normal laws."""
    return -0.5 * ((y - mean).square() / variance + (2 * torch.pi * variance).log())


def root_of(covariance: Tensor) -> Tensor:
    """Return a matrix R (n, n) with R R^T a covariance (n, n), whose eigenvalues below 0 count as 0."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = vectors * values.clamp_min(0).sqrt()
    return root


@dataclass(frozen=True, eq=False)
class LinearLaw:
    """The law of linear functionals of a law at n points, as of differences between two of them.

    Attributes:
        law: At the points.
        weights: (m, n), a functional a row.
        shift: What is added to the mean at every point, (k,).
    """

    law: Law
    weights: Tensor
    shift: Tensor

    def mean(self) -> Tensor:
        """Return the mean (m, k)."""
        return self.weights @ (self.law.mean() + self.shift)

    def variance(self) -> Tensor:
        """Return the marginal variances (m,)."""
        return (self.weights @ self.law.covariance() * self.weights).sum(1).clamp_min(0)

    def covariance(self) -> Tensor:
        """Return the covariance (m, m)."""
        return self.weights @ self.law.covariance() @ self.weights.mT

    def root(self) -> Tensor:
        """Return a matrix R (m, r) with R R^T the covariance."""
        return self.weights @ self.law.root()
