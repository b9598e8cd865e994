"""Posteriors of C dependent latent functions, such as those of several classes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.composite import block_diagonal
from rfgp.linalg import covariance_root, half_solve
from rfgp.solvers import Posterior
from rfgp.solvers.role import Functions, Shape
from rfgp.solvers.terms import known_terms
from rfgp.torch_context import CachedWithoutLock


@dataclass(frozen=True, eq=False)
class CoupledDensePosterior(Posterior):
    """The posterior of C functions through their covariances with the training rows.

    The notation is that of `rfgp.inference.sites.coupled_dense`. A sum A of terms with the covariance k_A has the mean
    k_A(x, X) a_c in class c. Let B be another sum, and k_AB the covariance of the terms in both. The covariance of A in
    class c with B in class d is k_AB(x, x') 1(c = d) - k_A(x, X) T_cd k_B(X, x').

    Attributes:
        prior: The prior of each function.
        inputs: The training inputs, (n, d) or (n,).
        coefficients: The coefficients a, (n, C).
        class_matrices: The matrices E, (C, n, n).
        coupling_root: The matrices L^-1 E with L L^T = S, (C, n, n).
        terms: The names of the terms of the predicted sum. If None, all terms.
    """

    prior: Prior
    inputs: Tensor
    coefficients: Tensor
    class_matrices: Tensor
    coupling_root: Tensor
    terms: tuple[str, ...] | None = None

    serialized_fields = ("inputs", "coefficients", "class_matrices", "coupling_root")

    @property
    def width(self) -> int:
        """The number of entries of one point in memory: two for each row and class."""
        return 2 * self.coefficients.numel()

    @property
    def num_functions(self) -> int:
        """The number C of functions."""
        return self.coefficients.shape[1]

    def project(self, inputs: Tensor) -> Tensor:
        """Return the covariances of n points with the training inputs, (n, n_train)."""
        return self._predicted_prior.kernel(inputs, self.inputs)

    def mean(self, projected: Tensor) -> Tensor:
        """Return the posterior means, (n, C)."""
        return projected @ self.coefficients

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n, C)."""
        return self._plus_coupling(inputs, projected, self._coupling(projected).square().sum(1)).clamp_min(0)

    def function_covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""
        coupling = self._coupling(projected)
        out = torch.einsum("cki,dki->icd", coupling, coupling)
        diagonal = out.diagonal(dim1=1, dim2=2)
        diagonal.copy_(self._plus_coupling(inputs, projected, diagonal.mT))
        return out

    def covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the posterior covariances of each function between points, (n, n, C)."""
        return (self._predicted_prior.kernel(inputs, inputs) - self._explained(projected, projected)).movedim(0, -1)

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (C n, r) such that R R^T is the covariance of all values, function by function."""
        coupling = self._coupling(projected).movedim(0, 1).flatten(1)
        conditional = self._predicted_prior.kernel(inputs, inputs) - projected @ (self.class_matrices @ projected.mT)
        return covariance_root(block_diagonal(conditional) + coupling.mT @ coupling)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Raise an error, because functions of several classes without features are defined at given points only.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(
            "A model of several classes without features cannot draw functions. Use predict(X).sample(...) instead."
        )

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of the saved tensors by name, except that of inputs."""
        return {"coefficients": (n, k), "class_matrices": (k, n, n), "coupling_root": (k, n, n)}

    def of(self, names: Sequence[str]) -> "CoupledDensePosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: If an unknown term or no term is named.
        """
        return replace(self, terms=known_terms(self.prior, names))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariances (n, n, C) between two sums of terms.

        Raises:
            InvalidArgumentError: If an unknown term or no term is named.
        """
        left, right = (self.of(names).project(inputs) for names in (first, second))
        both = self.prior.of([name for name in first if name in second])
        prior = both.kernel(inputs, inputs) if both.blocks else left.new_zeros(())
        return (prior - self._explained(left, right)).movedim(0, -1)

    @CachedWithoutLock
    def _predicted_prior(self) -> Prior:
        """The terms that are predicted."""
        return self.prior if self.terms is None else self.prior.of(self.terms)

    def _explained(self, left: Tensor, right: Tensor) -> Tensor:
        """Return left T_cc right^T (C, a, b) of covariances (a, n) and (b, n) with the rows."""
        return left @ (self.class_matrices @ right.mT) - self._coupling(left).mT @ self._coupling(right)

    def _coupling(self, projected: Tensor) -> Tensor:
        return self.coupling_root @ projected.mT

    def _plus_coupling(self, inputs: Tensor, projected: Tensor, coupling: Tensor) -> Tensor:
        """Return the variances (n, C) of independent functions plus a coupling (C, n)."""
        explained = ((self.class_matrices @ projected.mT) * projected.mT).sum(1)
        return (self._predicted_prior.diagonal(inputs) - explained + coupling).mT


@dataclass(frozen=True, eq=False)
class CoupledLowRankPosterior(Posterior):
    """The posterior of C functions through the weights of features.

    Attributes:
        prior: The prior of each function, with dense weights only.
        weights: The posterior mean of the weights, (F, C).
        factor: The lower Cholesky factor of their precision A, (C F, C F), class by class.
        terms: The names of the terms of the predicted sum. If None, all terms.
        full: The posterior of all terms, which caches A^-1. If None, this posterior.
    """

    prior: Prior
    weights: Tensor
    factor: Tensor
    terms: tuple[str, ...] | None = None
    full: "CoupledLowRankPosterior | None" = None

    serialized_fields = ("weights", "factor")

    @property
    def width(self) -> int:
        """The number of entries of one point in memory: F for each pair of classes."""
        return self.weights.numel() * self.weights.shape[1]

    @property
    def num_functions(self) -> int:
        """The number C of functions."""
        return self.weights.shape[1]

    def project(self, inputs: Tensor) -> Tensor:
        """Return the features (n, F), 0 for terms that are not predicted."""
        phi = self.prior.dense.scaled(inputs).double()
        return phi if self.terms is None else phi * self.prior.dense.of(self.terms).to(phi)

    def mean(self, projected: Tensor) -> Tensor:
        """Return the posterior means, (n, C)."""
        return projected @ self.weights

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n, C)."""
        return torch.stack(
            [(projected @ block * projected).sum(1) for block in self._class_covariances], dim=1
        ).clamp_min(0)

    def function_covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""
        return function_covariance(projected, self._inverse)[1]

    def covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the posterior covariances of each function between points, (n, n, C)."""
        return torch.stack([projected @ block @ projected.mT for block in self._class_covariances], dim=-1)

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (C n, C F) such that R R^T is the covariance of all values, function by function."""
        joint = block_diagonal([projected.mT] * self.weights.shape[1])
        return half_solve(self.factor, joint).mT

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior.

        Returns:
            A map of the inputs of n points to (count, n, C).
        """
        F, C = self.weights.shape
        standard = torch.randn(C * F, count, generator=generator, dtype=torch.float64)
        drawn = torch.linalg.solve_triangular(self.factor.mT, standard, upper=True)
        w = self.weights + drawn.mT.reshape(count, C, F).mT
        return lambda inputs: self.project(inputs) @ w

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values at n points, (count, b, C) at b of them, or None if a root costs less."""
        return self.sample_functions(count, generator) if count < num_points else None

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of weights and factor by name."""
        size = self.prior.num_features
        return {"weights": (size, k), "factor": (size * k, size * k)}

    def of(self, names: Sequence[str]) -> "CoupledLowRankPosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: If an unknown term or no term is named.
        """
        return replace(self, terms=known_terms(self.prior, names), full=self.full or self)

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariances (n, n, C) between two sums of terms.

        Raises:
            InvalidArgumentError: If an unknown term or no term is named.
        """
        left, right = (self.of(names).project(inputs) for names in (first, second))
        return torch.stack([left @ block @ right.mT for block in self._class_covariances], dim=-1)

    @cached_property
    def _inverse(self) -> Tensor:
        return inverse_blocks(self.factor, self.weights) if self.full is None else self.full._inverse

    @property
    def _class_covariances(self) -> Iterator[Tensor]:
        """The diagonal blocks (F, F) of A^-1, one for each class."""
        F = len(self.weights)
        return (row[:, c * F : (c + 1) * F] for c, row in enumerate(self._inverse))


def inverse_blocks(
    factor: Tensor,  # (C F, C F)
    weights: Tensor,  # (F, C)
) -> Tensor:  # (C, F, C F)
    """Return A^-1 from a factor of A, as rows of blocks for weights of C classes.

    Args:
        factor: The lower Cholesky factor of A, (C F, C F).
        weights: The weights of F features for C classes, (F, C).
    """
    F, C = weights.shape
    return torch.cholesky_inverse(factor).reshape(C, F, C * F)


def function_covariance(
    phi: Tensor,  # (n, F)
    inverse: Tensor,  # (C, F, C F)
) -> tuple[Tensor, Tensor]:
    """Return Phi (A^-1)_cd (n, C, C, F) and the covariances of functions (n, C, C).

    Args:
        phi: The features at n points, (n, F).
        inverse: The blocks of A^-1, (C, F, C F).
    """
    C, F = inverse.shape[:2]
    products = torch.einsum("bf,cfg->bcg", phi, inverse).reshape(len(phi), C, C, F)
    return products, torch.einsum("bcdf,bf->bcd", products, phi)
