"""Laws of the latent function, and what prediction needs of a posterior: a few tensors.

A predictor holds nothing else of the data, so it is what a saved model keeps. With w the posterior
mean of the weights, in the notation of `rfgp.inference.posterior`:

- weights: phi w and phi A^-1 phi^T, with the Cholesky factor of A;
- rows: phi w and phi (I - S^T S) phi^T, with S = L^-1 Phi and L the Cholesky factor of Phi Phi^T + D;
- kernel: k a and k(x, x) - k C^-1 k^T, with the training inputs and the Cholesky factor of C.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FeatureMap = Callable[[Tensor], Tensor]


class Law(ABC):
    """The joint Gaussian law of the latent function at n points, float64."""

    @abstractmethod
    def mean(self) -> Tensor:
        """Return the mean (n,)."""

    @abstractmethod
    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""

    @abstractmethod
    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        values, vectors = torch.linalg.eigh(self.covariance())
        root: Tensor = vectors * values.clamp_min(0).sqrt()
        return root


class Predictor(ABC):
    """Maps inputs to the latent law there.

    Its tensors are contiguous, as they come back from a file: the last bits of a product depend on the layout.
    """

    def __post_init__(self) -> None:
        for name, tensor in self.tensors().items():
            object.__setattr__(self, name, tensor.contiguous())

    @abstractmethod
    def law(self, inputs: Tensor) -> Law:
        """Return the latent law at n inputs, tables (n, d) or positions (n,)."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return by name the tensors that the prior's `restore` takes: weights (F,) or coefficients (n,) among them."""


@dataclass(frozen=True, eq=False)
class WeightPredictor(Predictor):
    """Through the F x F factor of the weights' precision.

    Attributes:
        features: Maps inputs to Phi (n, F).
        weights: (F,).
        factor: (F, F), lower triangular.
    """

    features: FeatureMap
    weights: Tensor
    factor: Tensor

    def law(self, inputs: Tensor) -> Law:
        """Return the latent law at n inputs, tables (n, d) or positions (n,)."""
        return _WeightLaw(self.features(inputs).double(), self.weights, self.factor)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F,) and factor (F, F)."""
        return {"weights": self.weights, "factor": self.factor}


@dataclass(frozen=True, eq=False)
class RowPredictor(Predictor):
    """Through the n rows of S, for more features than data.

    Attributes:
        features: Maps inputs to Phi (k, F).
        weights: (F,).
        rows: S (n, F).
    """

    features: FeatureMap
    weights: Tensor
    rows: Tensor

    def law(self, inputs: Tensor) -> Law:
        """Return the latent law at k inputs, tables (k, d) or positions (k,)."""
        return _RowLaw(self.features(inputs).double(), self.weights, self.rows)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F,) and rows (n, F)."""
        return {"weights": self.weights, "rows": self.rows}


@dataclass(frozen=True, eq=False)
class KernelPredictor(Predictor):
    """Through the n x n factor of the data's covariance.

    Attributes:
        kernel: (a, b) -> (n_a, n_b).
        diagonal: a -> (n_a,).
        inputs: The training inputs, tables (n, d) or positions (n,).
        coefficients: (n,).
        factor: (n, n), lower triangular.
    """

    kernel: Callable[[Tensor, Tensor], Tensor]
    diagonal: FeatureMap
    inputs: Tensor
    coefficients: Tensor
    factor: Tensor

    def law(self, inputs: Tensor) -> Law:
        """Return the latent law at k inputs, tables (k, d) or positions (k,)."""
        return _KernelLaw(inputs, self.kernel(inputs, self.inputs).double(), self)

    def tensors(self) -> dict[str, Tensor]:
        """Return inputs, tables (n, d) or positions (n,), coefficients (n,) and factor (n, n)."""
        return {"inputs": self.inputs, "coefficients": self.coefficients, "factor": self.factor}


@dataclass(frozen=True, eq=False)
class _WeightLaw(Law):
    phi: Tensor  # (n, F)
    weights: Tensor
    factor: Tensor

    def mean(self) -> Tensor:
        return self.phi @ self.weights

    def variance(self) -> Tensor:
        return self.root().square().sum(1)

    def covariance(self) -> Tensor:
        root = self.root()
        return root @ root.mT

    def root(self) -> Tensor:
        root: Tensor = torch.linalg.solve_triangular(self.factor, self.phi.mT, upper=False).mT
        return root


@dataclass(frozen=True, eq=False)
class _RowLaw(Law):
    phi: Tensor  # (k, F)
    weights: Tensor
    rows: Tensor  # (n, F)

    def mean(self) -> Tensor:
        return self.phi @ self.weights

    def variance(self) -> Tensor:
        explained = (self.phi @ self.rows.mT).square().sum(1)
        return (self.phi.square().sum(1) - explained).clamp_min(0)

    def covariance(self) -> Tensor:
        explained = self.phi @ self.rows.mT
        return self.phi @ self.phi.mT - explained @ explained.mT


@dataclass(frozen=True, eq=False)
class _KernelLaw(Law):
    inputs: Tensor
    cross: Tensor  # (k, n)
    predictor: KernelPredictor

    def mean(self) -> Tensor:
        return self.cross @ self.predictor.coefficients

    def variance(self) -> Tensor:
        explained = self._solved().square().sum(0)
        return (self.predictor.diagonal(self.inputs).double() - explained).clamp_min(0)

    def covariance(self) -> Tensor:
        solved = self._solved()
        return self.predictor.kernel(self.inputs, self.inputs).double() - solved.mT @ solved

    def _solved(self) -> Tensor:
        solved: Tensor = torch.linalg.solve_triangular(self.predictor.factor, self.cross.mT, upper=False)
        return solved
