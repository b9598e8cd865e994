"""Posteriors: what is kept of the rows for predictions, a few tensors beside the prior.

A posterior holds nothing else of the data, so it is what a saved model keeps. With w the posterior mean of the weights,
in the notation of `rfgp.inference.dense`:

- weights: phi w and phi A^-1 phi^T, with the Cholesky factor of A, or where features are more than rows
  phi (I - S^T S) phi^T, with S = L^-1 Phi and L the Cholesky factor of Phi Phi^T + D;
- kernel: k a and k(x, x) - k C^-1 k^T, with the training inputs and the Cholesky factor of C.

Their tensors are contiguous, as they come back from a file: the last bits of a product depend on the layout. Means and
variances are computed in chunks of points, so that memory does not grow with their number.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.ambient import Cached
from rfgp.errors import InvalidArgumentError
from rfgp.inference.laws import ChunkedPosterior, Functions, root_of
from rfgp.inference.priors import FeaturePrior, KernelPrior, SparsePrior

_SPARSE = 0.05
"""The share of covariances with the data that are not 0, below which the others are left out of products."""


def make_contiguous(posterior: Any, *names: str) -> None:
    """Make tensors of a frozen object contiguous, by their names."""
    for name in names:
        object.__setattr__(posterior, name, getattr(posterior, name).contiguous())


class WeightCovariance(Protocol):
    """The role: the posterior covariance of weights (F,)."""

    def variance(self, phi: Tensor) -> Tensor:
        """Return the variances (n,) at features (n, F)."""

    def covariance(self, phi: Tensor) -> Tensor:
        """Return the covariance (n, n) at features (n, F)."""

    def root(self, phi: Tensor) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance at features (n, F)."""

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights of mean 0, (count, F, k)."""

    def tensors(self) -> dict[str, Tensor]:
        """Return by name what it is made of, (F, F) or (n, F)."""


@dataclass(frozen=True, eq=False)
class FactorCovariance:
    """A^-1, through the factor of the weights' precision.

    Attributes:
        factor: (F, F), the lower Cholesky factor of A.
    """

    factor: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "factor")

    def variance(self, phi: Tensor) -> Tensor:
        """Return the variances (n,) at features (n, F)."""
        return self.root(phi).square().sum(1)

    def covariance(self, phi: Tensor) -> Tensor:
        """Return the covariance (n, n) at features (n, F)."""
        root = self.root(phi)
        return root @ root.mT

    def root(self, phi: Tensor) -> Tensor:
        """Return a matrix R (n, F) with R R^T the covariance at features (n, F)."""
        root: Tensor = torch.linalg.solve_triangular(self.factor, phi.mT, upper=False).mT
        return root

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights of mean 0, (count, F, k)."""
        standard = _normal(*shape, generator=generator).to(self.factor)
        out: Tensor = torch.linalg.solve_triangular(self.factor.mT, standard, upper=True)
        return out

    def tensors(self) -> dict[str, Tensor]:
        """Return the factor (F, F)."""
        return {"factor": self.factor}


@dataclass(frozen=True, eq=False)
class RowCovariance:
    """I - S^T S, for more features than data.

    Attributes:
        rows: S (n, F).
    """

    rows: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "rows")

    def variance(self, phi: Tensor) -> Tensor:
        """Return the variances (n,) at features (n, F)."""
        explained = (phi @ self.rows.mT).square().sum(1)
        return (phi.square().sum(1) - explained).clamp_min(0)

    def covariance(self, phi: Tensor) -> Tensor:
        """Return the covariance (n, n) at features (n, F)."""
        explained = phi @ self.rows.mT
        return phi @ phi.mT - explained @ explained.mT

    def root(self, phi: Tensor) -> Tensor:
        """Return a matrix R (n, n) with R R^T the covariance at features (n, F)."""
        return root_of(self.covariance(phi))

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights of mean 0, (count, F, k).

        z - S^T (S z + e) with z ~ N(0, I) and e ~ N(0, I - S S^T): pathwise conditioning (Wilson et al. 2020), the
        noise seen through L^-1. Its covariance is (I - S^T S)^2 + S^T (I - S S^T) S = I - S^T S.
        """
        count, _, k = shape
        z = _normal(*shape, generator=generator).to(self.rows)
        e = _normal(count, len(self.rows), k, generator=generator).to(self.rows)
        left = torch.eye(len(self.rows), dtype=e.dtype, device=e.device) - self.rows @ self.rows.mT
        e = root_of(left) @ e
        return z - self.rows.mT @ (self.rows @ z + e)

    def tensors(self) -> dict[str, Tensor]:
        """Return the rows (n, F)."""
        return {"rows": self.rows}


@dataclass(frozen=True, eq=False)
class WeightPosterior(ChunkedPosterior):
    """Through the weights of features.

    Attributes:
        prior: Its features make Phi (n, F).
        weights: Their posterior mean (F, k).
        uncertainty: Their posterior covariance.
    """

    prior: FeaturePrior
    weights: Tensor
    uncertainty: WeightCovariance

    def __post_init__(self) -> None:
        make_contiguous(self, "weights")

    @property
    def width(self) -> int:
        """F."""
        return len(self.weights)

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return the features of n inputs, (n, F)."""
        return self.prior.scaled(inputs)

    def mean(self, prepared: Tensor) -> Tensor:
        """Return the mean (n, k) for features (n, F)."""
        return prepared @ self.weights

    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n,)."""
        known = self.uncertainty.variance(prepared)
        return known if self.prior.residual is None else known + self.prior.missing(prepared)

    def covariance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance (n, n)."""
        known = self.uncertainty.covariance(prepared)
        return known if self.prior.residual is None else known + self.prior.left_over(inputs, prepared)

    def root(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        if self.prior.residual is not None:
            return root_of(self.covariance(inputs, prepared))
        return self.uncertainty.root(prepared)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F, k), and factor (F, F) or rows (n, F)."""
        return {"weights": self.weights, **self.uncertainty.tensors()}

    def sample_weights(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw weights from their posterior, (count, F, k)."""
        return self.weights + self.uncertainty.sample(count, *self.weights.shape, generator=generator)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw weights from their posterior: functions of n inputs, (count, n, k).

        Raises:
            InvalidArgumentError: the features are not all of the function.
        """
        if self.prior.residual is not None:
            raise InvalidArgumentError(
                "This process has no functions to draw: what its features miss is known at given points only. Sample "
                "from predict(X) there, or draw functions of redraw(diagonal=None)."
            )
        weights = self.sample_weights(count, generator)
        return lambda inputs: self.prepare(inputs).double() @ weights


@dataclass(frozen=True, eq=False)
class KernelPosterior(ChunkedPosterior):
    """Through the n x n factor of the data's covariance.

    Attributes:
        prior: With a covariance function.
        inputs: The training inputs, tables (n, d) or positions (n,).
        coefficients: (n, k).
        factor: (n, n), lower triangular.
    """

    prior: KernelPrior | SparsePrior
    inputs: Tensor
    coefficients: Tensor
    factor: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "inputs", "coefficients", "factor")

    @property
    def width(self) -> int:
        """The number n of training inputs."""
        return len(self.coefficients)

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return the covariances of n inputs with the training inputs, (n, n_train)."""
        return self.prior.kernel(inputs, self.inputs)

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
        return (self.prior.diagonal(inputs).double() - explained).clamp_min(0)

    def covariance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance (n, n)."""
        solved = self._solved(prepared)
        return self.prior.kernel(inputs, inputs).double() - solved.mT @ solved

    def tensors(self) -> dict[str, Tensor]:
        """Return inputs, tables (n, d) or positions (n,), coefficients (n, k) and factor (n, n)."""
        return {"inputs": self.inputs, "coefficients": self.coefficients, "factor": self.factor}

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n inputs, (count, n, k), by pathwise conditioning (Wilson et al. 2020).

        f(x) = mean(x) + g(x) - k(x, X) C^-1 (g(X) + e), with g from the prior and e of the variance D = C - K.
        """
        if self.prior.functions is None:
            raise InvalidArgumentError(
                "This process has no functions to draw, since its prior is known at given points only. Sample from "
                "predict(X) there, or draw functions of an approximation."
            )
        n, k = self.coefficients.shape
        prior = self.prior.functions.draw(count * k, generator)
        noise_diag = (self.factor.square().sum(1) - self.prior.diagonal(self.inputs).double()).clamp_min(0)
        noise = _normal(n, count * k, generator=generator).to(noise_diag)
        seen = prior(self.inputs) + noise_diag.sqrt()[:, None] * noise
        coefficients = self.coefficients.repeat(1, count) - torch.cholesky_solve(seen, self.factor)
        told = self.prior.functions.through(self.inputs, coefficients)
        return lambda inputs: (prior(inputs) + told(inputs)).reshape(len(inputs), count, k).movedim(0, 1)

    @Cached
    def _precision(self) -> Tensor:
        """C^-1 (n, n)."""
        return torch.cholesky_inverse(self.factor)

    def _solved(self, prepared: Tensor) -> Tensor:
        solved: Tensor = torch.linalg.solve_triangular(self.factor, prepared.mT, upper=False)
        return solved


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
