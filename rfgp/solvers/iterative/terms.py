"""The terms of a prior at rows, and the operator of their covariance."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.blocks import PrecisionBlock, Prior, SparseBlock, SparseProductBlock, SparseWeightBlock, WeightBlock
from rfgp.blocks.precision import products
from rfgp.errors import InvalidArgumentError
from rfgp.solvers.iterative.kronecker import KroneckerTerm
from rfgp.solvers.iterative.neighbors import NeighborsTerm
from rfgp.solvers.iterative.operator import CGOperator
from rfgp.solvers.iterative.parts import DensePart, PrecisionPart, SparsePart
from rfgp.solvers.iterative.products import ProductTerm
from rfgp.solvers.iterative.role import Matrix, SparseTerm, Term, TermProjection
from rfgp.sparse import sampled_outer, with_columns


class WeightTerm(Term):
    """A term f = Phi w with w ~ N(0, I) and dense features Phi.

    Phi includes the prior scale. The coordinates of the term are the weights w, (F,).

    Methods have the arguments of those of `Term`.

    Args:
        prior: The prior of all terms. If its neighbors model a residual, features are evaluated in float64.
        block: The block, with gradients.
        inputs: The inputs of the rows, (rows, D), or positions (rows,).
    """

    def __init__(self, prior: Prior, block: WeightBlock, inputs: Tensor) -> None:
        self.name, self.width, self._block = block.name, block.num_features, block
        self._needs_float64 = prior.neighbors is not None and prior.neighbors.is_residual
        self._phi = self._features(inputs)

    def _features(self, inputs: Tensor) -> Tensor:
        """Return Phi (n, F), float64. If neighbors model a residual, it is evaluated in float64."""
        return self._block.scaled(inputs.double() if self._needs_float64 else inputs).double()

    @cached_property
    def part(self) -> DensePart:
        """Phi of the rows."""
        return DensePart(self._phi.detach())

    def project(self, inputs: Tensor) -> TermProjection:
        """Return the features (n, F) of n points, and the variance (n,) of a residual."""
        phi = self._features(inputs).detach()
        variance = None if self._block.residual is None else self._block.residual_variance(inputs, phi)
        return TermProjection(phi.numpy(), variance)

    def project_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor | None]:
        """Return the features (n, F) of n points, and the covariance (n, n) of a residual."""
        phi = self._features(inputs).detach()
        covariance = None if self._block.residual is None else self._block.residual_covariance(inputs, phi)
        return phi.numpy(), covariance

    def cross(self, matrix: Matrix) -> Tensor:
        """Return Phi X^T, (rows, n)."""
        return self.part.root_times(torch.from_numpy(np.asarray(matrix)).mT)

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return X X^T, (n, n)."""
        return torch.from_numpy(np.asarray(matrix @ matrix.T))

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the squared norms |X_i|^2, (n,)."""
        return torch.from_numpy(np.square(projection.matrix).sum(1))

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return Phi^T a, (F, p)."""
        return self.part.transposed_root_times(coefficients)

    def joined(self, inputs: Tensor) -> DensePart | None:
        """Return Phi of the rows, followed by points, or None if there is a residual."""
        if self._block.residual is not None:
            return None
        return DensePart(torch.cat([self._phi.detach(), self._features(inputs).detach()]))

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in Phi."""
        return (self._phi * ((vectors * signs) @ self.part.transposed_root_times(vectors).mT)).sum()

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function of the inputs of n points to Phi z, (n, p).

        Raises:
            InvalidArgumentError: If there is a residual.
        """
        if self._block.residual is not None:
            raise InvalidArgumentError(
                "This process has no functions to draw, because the residual of its features is defined at given "
                "points only. Use predict(X).sample() instead."
            )
        return super().functions(coordinates)


class WalkTerm(SparseTerm, Term):
    """A term f = s phi w with sparse phi and the coordinates s w, (N,).

    Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The positions of the rows, (rows,).
    """

    advice = "Give the noise a prior or a larger start, fit fewer observations, or use features='spectrum'."

    def __init__(self, block: SparseWeightBlock, inputs: Tensor) -> None:
        super().__init__(block)
        self._block, self._features = block, block.features(inputs, keep=True)

    @cached_property
    def _phi(self) -> sp.csr_array:
        """The features (rows, N) of the rows."""
        return self._features.matrix()

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """The columns (c,) of phi with entries."""
        return np.flatnonzero(np.bincount(self._phi.indices))

    @cached_property
    def part(self) -> SparsePart:
        """The columns of s phi with entries."""
        return SparsePart(with_columns(self._phi, self.used), self.s2**0.5)

    def project(self, inputs: Tensor) -> TermProjection:
        """Return the features (n, N) of n positions."""
        return TermProjection(self._block.features(inputs, keep=False).matrix())

    def cross(self, matrix: Matrix) -> Tensor:
        """Return s^2 phi X^T, (rows, n)."""
        return torch.from_numpy(self.s2 * (self._phi @ matrix.T).toarray())

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return s^2 X X^T, (n, n)."""
        return torch.from_numpy(self.s2 * (matrix @ matrix.T).toarray())

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return s^2 |X_i|^2, (n,)."""
        return torch.from_numpy(self.s2 * np.asarray(projection.matrix.power(2).sum(1)))

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return s^2 phi^T a, (N, p), in the precision of a."""
        array = coefficients.numpy()
        return torch.from_numpy(self._phi.astype(array.dtype, copy=False).T @ array) * self.s2

    def joined(self, inputs: Tensor) -> SparsePart:
        """Return all columns of s phi at the rows, followed by points, (rows + n, N)."""
        return SparsePart(sp.csr_array(sp.vstack([self._phi, self.project(inputs).matrix])), self.s2**0.5)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in the entries of phi and in s^2.

        The entries of phi are those on its pattern.
        """
        values, pattern = self._features
        right = torch.from_numpy(self._phi.T @ vectors.numpy())
        in_values = self.s2 * sampled_outer(vectors * signs, right, pattern)
        in_variance = 0.5 * (right.square() * signs).sum()
        return (values * in_values).sum() + self.block_variance * in_variance


class PrecisionTerm(Term):
    """A term f = A u with the coordinates u, (N,), of precision Q / s^2.

    Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows, (rows, D), or positions (rows,).
    """

    def __init__(self, block: PrecisionBlock, inputs: Tensor) -> None:
        self.name, self._block, self._projector = block.name, block, block.projector(inputs)
        self._s2 = float(block.variance.detach())

    @cached_property
    def part(self) -> PrecisionPart:
        """A Q^(-1/2) of the rows."""
        return PrecisionPart(self._block.factor, self._projector, self._s2**0.5)

    def project(self, inputs: Tensor) -> TermProjection:
        """Return the projection A (n, N) of n points."""
        return TermProjection(self._block.projector(inputs))

    def cross(self, matrix: Matrix) -> Tensor:
        """Return s^2 A Q^-1 X^T, (rows, n)."""
        return torch.from_numpy(self._s2 * products(self._block.factor, self._projector, matrix))

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return s^2 X Q^-1 X^T, (n, n)."""
        return torch.from_numpy(self._s2 * products(self._block.factor, matrix, matrix))

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances, (n,)."""
        return self._block.diagonal(inputs)

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return s^2 Q^-1 A^T a, (N, p)."""
        return torch.from_numpy(self._s2 * self._block.factor.solve(self._projector.T @ coefficients.numpy()))

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return draws of N(0, s^2 Q^-1), (N, p)."""
        return torch.from_numpy(self._s2**0.5 * self._block.factor.sample(standard.numpy()))

    def joined(self, inputs: Tensor) -> PrecisionPart:
        """Return A Q^(-1/2) of the rows, followed by points."""
        projector = sp.csr_array(sp.vstack([self._projector, self._block.projector(inputs)]))
        return PrecisionPart(self._block.factor, projector, self._s2**0.5)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in the precision parameters and in s^2.

        With t = Q^-1 A^T v, the gradient in the parameters is -s^2 t^T dQ t / 2.
        """
        field, values = self._block.field, self._block.values
        gathered = self._projector.T @ vectors.numpy()
        solved = torch.from_numpy(self._block.factor.solve(gathered))
        outer = sampled_outer(solved * signs, solved, field.pattern).numpy()
        in_values = torch.from_numpy(-0.5 * self._s2 * field.pull_back(as_array(values), outer))
        in_variance = 0.5 * float(np.einsum("np,np,p->", gathered, solved.numpy(), signs.numpy()))
        return (values * in_values).sum() + self._block.variance * in_variance


def terms_of(prior: Prior, inputs: Tensor) -> list[Term]:
    """Return the terms of a prior at rows.

    They are weights, grids, precisions, walks, and neighbors.

    Args:
        prior: The prior.
        inputs: The inputs of the rows, (rows, D), or positions (rows,). They must be ordered if there are neighbors.

    Raises:
        InvalidArgumentError: If a block has no term of this kind.
    """
    if (prior.kernels and not prior.has_grids) or prior.adds_latent_points:
        raise InvalidArgumentError(
            "Exact kernels and fields with values at the points cannot be added to many walks, to exact products on a "
            "grid, nor to latent neighbors. Use an approximation of the kernel, or a field with fixed values."
        )
    terms: list[Term] = [WeightTerm(prior, block, inputs) for block in prior.weights]
    terms += [KroneckerTerm(block, inputs) for block in prior.kernels]
    terms += [PrecisionTerm(block, inputs) for block in prior.precisions]
    terms += [_sparse_term(block, inputs) for block in prior.graph_features]
    return terms if prior.neighbors is None else [*terms, NeighborsTerm(prior, inputs)]


def _sparse_term(block: SparseBlock, inputs: Tensor) -> Term:
    """Return the term of sparse features at rows (n, ...), of nodes or of a product with columns."""
    return ProductTerm(block, inputs) if isinstance(block, SparseProductBlock) else WalkTerm(block, inputs)


def operator_of(terms: Sequence[Term], noise_diag: Tensor) -> CGOperator:
    """Return the covariance C = sum_t H_t H_t^T + D of terms at rows.

    It is preconditioned by the last term.

    Args:
        terms: The terms, at least one.
        noise_diag: The diagonal of D, (rows,), positive.
    """
    last = terms[-1]
    return CGOperator([term.part for term in terms], noise_diag, last.seed, last.precondition, last.advice)
