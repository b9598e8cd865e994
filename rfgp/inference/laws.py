"""Laws of the latent function, and what prediction needs of a posterior: a few tensors.

A predictor holds nothing else of the data, so it is what a saved model keeps. With w the posterior
mean of the weights, in the notation of `rfgp.inference.posterior`:

- weights: phi w and phi A^-1 phi^T, with the Cholesky factor of A;
- rows: phi w and phi (I - S^T S) phi^T, with S = L^-1 Phi and L the Cholesky factor of Phi Phi^T + D;
- kernel: k a and k(x, x) - k C^-1 k^T, with the training inputs and the Cholesky factor of C.

Means and variances are computed in chunks of points, so that memory does not grow with their number.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError

FeatureMap = Callable[[Tensor], Tensor]
Functions = Callable[[Tensor], Tensor]


class PriorFunctions(Protocol):
    """The role: functions of a prior, for pathwise conditioning."""

    def draw(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of the inputs of n points, (n, count)."""

    def through(self, inputs: Tensor, coefficients: Tensor) -> Functions:
        """Return x -> k(x, inputs) @ coefficients, for the inputs of n points and coefficients (n, p)."""


_ENTRIES = 2**22
"""Of the features, or of the covariances with the data, of a chunk of points."""
_SPARSE = 0.05
"""The share of covariances with the data that are not 0, below which the others are left out of products."""


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


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


class Predictor(Protocol):
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
        """Return by name the tensors that the prior's `restore` takes: weights (F, k) or coefficients (n, k) too."""


class ChunkedPredictor(ABC):
    """A predictor by what ties inputs to the data, which is computed for chunks of them.

    Its tensors are contiguous, as they come back from a file: the last bits of a product depend on the layout.
    """

    def __post_init__(self) -> None:
        for name, tensor in self.tensors().items():
            object.__setattr__(self, name, tensor.contiguous())

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
        values, vectors = torch.linalg.eigh(self.covariance(inputs, prepared))
        root: Tensor = vectors * values.clamp_min(0).sqrt()
        return root

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Refuse, where the prior has no functions."""
        raise InvalidArgumentError(
            "This process has no functions to draw, since its prior is known at given points only. Sample from "
            "predict(X) there, or draw functions of an approximation."
        )

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return by name the tensors that the prior's `restore` takes: weights (F, k) or coefficients (n, k) too."""


@dataclass(frozen=True, eq=False)
class ChunkedLaw:
    """The law that a `ChunkedPredictor` gives.

    Attributes:
        predictor: What the data say.
        inputs: The points, tables (n, d) or positions (n,), or blocks of them.
    """

    predictor: ChunkedPredictor
    inputs: Tensor | InputBlocks

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        return torch.cat([self.predictor.mean(prepared) for _, prepared in self._chunks()])

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        return torch.cat([self.predictor.variance(x, prepared) for x, prepared in self._chunks()])

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""
        return self.predictor.covariance(*self._whole)

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return self.predictor.root(*self._whole)

    @property
    def _size(self) -> int:
        return max(1, _ENTRIES // max(self.predictor.width, 1))

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor]:
        if not isinstance(self.inputs, Tensor):
            raise InvalidArgumentError(
                "The joint law of rows that are read in blocks would not fit in memory. Ask for mean and variance, or "
                "predict at an array of some of the rows."
            )
        return self.inputs, self.predictor.prepare(self.inputs).double()

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield some inputs and what is prepared for them; where one chunk holds them all, that is kept."""
        if isinstance(self.inputs, Tensor) and len(self.inputs) <= self._size:
            yield self._whole
            return
        blocks = (
            torch.split(self.inputs, self._size) if isinstance(self.inputs, Tensor) else self.inputs.blocks(self._size)
        )
        for x in blocks:
            yield x, self.predictor.prepare(x).double()


@dataclass(frozen=True, eq=False)
class WeightPredictor(ChunkedPredictor):
    """Through the F x F factor of the weights' precision.

    Attributes:
        features: Maps inputs to Phi (n, F).
        weights: (F, k).
        factor: (F, F), lower triangular.
    """

    features: FeatureMap
    weights: Tensor
    factor: Tensor

    @property
    def width(self) -> int:
        """F."""
        return len(self.weights)

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return the features of n inputs, (n, F)."""
        return self.features(inputs)

    def mean(self, prepared: Tensor) -> Tensor:
        """Return the mean (n, k) for features (n, F)."""
        return prepared @ self.weights

    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n,)."""
        return self.root(inputs, prepared).square().sum(1)

    def covariance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance (n, n)."""
        root = self.root(inputs, prepared)
        return root @ root.mT

    def root(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return a matrix R (n, F) with R R^T the covariance."""
        root: Tensor = torch.linalg.solve_triangular(self.factor, prepared.mT, upper=False).mT
        return root

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F, k) and factor (F, F)."""
        return {"weights": self.weights, "factor": self.factor}

    def sample_weights(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw weights from their posterior, (count, F, k)."""
        standard = _normal(count, *self.weights.shape, generator=generator).to(self.weights)
        out: Tensor = self.weights + torch.linalg.solve_triangular(self.factor.mT, standard, upper=True)
        return out

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw weights from their posterior: functions of n inputs, (count, n, k)."""
        weights = self.sample_weights(count, generator)
        return lambda inputs: self.prepare(inputs).double() @ weights


@dataclass(frozen=True, eq=False)
class RowPredictor(ChunkedPredictor):
    """Through the n rows of S, for more features than data.

    Attributes:
        features: Maps inputs to Phi (k, F).
        weights: (F, k).
        rows: S (n, F).
    """

    features: FeatureMap
    weights: Tensor
    rows: Tensor

    @property
    def width(self) -> int:
        """F."""
        return len(self.weights)

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return the features of n inputs, (n, F)."""
        return self.features(inputs)

    def mean(self, prepared: Tensor) -> Tensor:
        """Return the mean (n, k) for features (n, F)."""
        return prepared @ self.weights

    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n,)."""
        explained = (prepared @ self.rows.mT).square().sum(1)
        return (prepared.square().sum(1) - explained).clamp_min(0)

    def covariance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance (n, n)."""
        explained = prepared @ self.rows.mT
        return prepared @ prepared.mT - explained @ explained.mT

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F, k) and rows (n, F)."""
        return {"weights": self.weights, "rows": self.rows}

    def sample_weights(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw weights from their posterior, (count, F, k).

        w + z - S^T (S z + e) with z ~ N(0, I) and e ~ N(0, I - S S^T): pathwise conditioning (Wilson et al. 2020), the
        noise seen through L^-1. Its covariance is (I - S^T S)^2 + S^T (I - S S^T) S = I - S^T S.
        """
        n, (F, k) = len(self.rows), self.weights.shape
        z = _normal(count, F, k, generator=generator).to(self.weights)
        e = _normal(count, n, k, generator=generator).to(self.weights)
        left = torch.eye(n, dtype=e.dtype, device=e.device) - self.rows @ self.rows.mT
        values, vectors = torch.linalg.eigh(left)
        e = (vectors * values.clamp_min(0).sqrt()) @ e
        out: Tensor = self.weights + z - self.rows.mT @ (self.rows @ z + e)
        return out

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw weights from their posterior: functions of n inputs, (count, n, k)."""
        weights = self.sample_weights(count, generator)
        return lambda inputs: self.prepare(inputs).double() @ weights


@dataclass(frozen=True, eq=False)
class KernelPredictor(ChunkedPredictor):
    """Through the n x n factor of the data's covariance.

    Attributes:
        kernel: (a, b) -> (n_a, n_b).
        diagonal: a -> (n_a,).
        inputs: The training inputs, tables (n, d) or positions (n,).
        coefficients: (n, k).
        factor: (n, n), lower triangular.
        functions: Of the prior, where it has some.
    """

    kernel: Callable[[Tensor, Tensor], Tensor]
    diagonal: FeatureMap
    inputs: Tensor
    coefficients: Tensor
    factor: Tensor
    functions: PriorFunctions | None = None

    @property
    def width(self) -> int:
        """The number n of training inputs."""
        return len(self.coefficients)

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return the covariances of n inputs with the training inputs, (n, n_train)."""
        return self.kernel(inputs, self.inputs)

    def mean(self, prepared: Tensor) -> Tensor:
        """Return the mean (n, k) for covariances (n, n_train)."""
        return prepared @ self.coefficients

    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n,)."""
        if int(torch.count_nonzero(prepared)) < _SPARSE * prepared.numel() and not prepared.requires_grad:
            rows = sp.csr_array(prepared.numpy())
            explained = torch.from_numpy(np.asarray(rows.multiply(rows @ self._precision.numpy()).sum(1)))
        else:
            explained = self._solved(prepared).square().sum(0)
        return (self.diagonal(inputs).double() - explained).clamp_min(0)

    def covariance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance (n, n)."""
        solved = self._solved(prepared)
        return self.kernel(inputs, inputs).double() - solved.mT @ solved

    def tensors(self) -> dict[str, Tensor]:
        """Return inputs, tables (n, d) or positions (n,), coefficients (n, k) and factor (n, n)."""
        return {"inputs": self.inputs, "coefficients": self.coefficients, "factor": self.factor}

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n inputs, (count, n, k), by pathwise conditioning (Wilson et al. 2020).

        f(x) = mean(x) + g(x) - k(x, X) C^-1 (g(X) + e), with g from the prior and e of the variance D = C - K.
        """
        if self.functions is None:
            return super().sample_functions(count, generator)
        n, k = self.coefficients.shape
        prior = self.functions.draw(count * k, generator)
        spread = (self.factor.square().sum(1) - self.diagonal(self.inputs).double()).clamp_min(0)
        noise = _normal(n, count * k, generator=generator).to(spread)
        seen = prior(self.inputs) + spread.sqrt()[:, None] * noise
        coefficients = self.coefficients.repeat(1, count) - torch.cholesky_solve(seen, self.factor)
        told = self.functions.through(self.inputs, coefficients)
        return lambda inputs: (prior(inputs) + told(inputs)).reshape(len(inputs), count, k).movedim(0, 1)

    @cached_property
    def _precision(self) -> Tensor:
        """C^-1 (n, n)."""
        return torch.cholesky_inverse(self.factor)

    def _solved(self, prepared: Tensor) -> Tensor:
        solved: Tensor = torch.linalg.solve_triangular(self.factor, prepared.mT, upper=False)
        return solved
