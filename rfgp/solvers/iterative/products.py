"""The covariances of terms as matrix products, and preconditioners.

A block f has coordinates z = R u, u ~ N(0, I), that a matrix X projects to points. Its covariance at the rows is H H^T
with H = X R, and that of other points with the projections Z and the rows is Z R R^T X^T. All products, covariances,
means and draws follow from X, R and R R^T.

For long lengthscales, Psi Psi^T has a few large eigenvalues. A randomized Nystrom approximation of it is U (L) U^T,
with the smallest eigenvalue l of L. It gives the preconditioner P = (I - U U^T) + U (L + 1) / (l + 1) U^T (Frangella,
Tropp and Udell 2023, "Randomized Nystrom preconditioning", Eqs. 1.3 and 5.2).

For latent nearest neighbors, the covariance of the same rows conditioned on observations is close to C. With V and P of
`rfgp.solvers.whitened` its inverse is V^T (I + P P^T)^-1 V. Most preconditioned eigenvalues are near 1, so that
conjugate gradients take few steps and the estimated part of the log determinant is small
(`benchmarks/races/latent_neighbors.py`).

Products of two kernels: let their columns have N_1 and N_2 distinct positions. Then K = R (K_1 kron K_2) R^T, where R
selects the cells of the grid with rows. With K_s = L_s L_s^T it is X X^T, X = R (L_1 kron L_2). A product takes
O(N_1 N_2 (N_1 + N_2)) operations. Cells may be missing or have several rows.

The preconditioner combines the noise with the largest eigenvalues of K_1 kron K_2 and their eigenvectors at the rows.

The coordinates w ~ N(0, I) of f on the grid are projected to a point x by the Kronecker product of k_1(x, U_1) L_1^-T
and k_2(x, U_2) L_2^-T. Points off the grid have a conditional variance.

Source: "latent Kronecker" structure, Lin et al. (2024), "Scalable Gaussian processes with latent Kronecker structure".

Latent nearest neighbors: if the noise is large, a few neighbors have little information, and that of all other rows is
lost. Therefore the process g of the block is approximated as g = L u (`rfgp.local.factor`), apart from the noise.
`docs/mathematics.md` has the KL divergences from the exact posterior.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.blocks import KernelBlock, PrecisionBlock, Prior, SparseWeightBlock, WeightBlock
from rfgp.blocks.prior import AHEAD, products
from rfgp.blocks.role import JITTER, MAX_CELLS
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, half_solve
from rfgp.local import LatentRoot
from rfgp.messages import counted
from rfgp.solvers.iterative.operator import CGOperator, Preconditioner, generator
from rfgp.solvers.kriging import (
    explained_columns,
    explained_features,
    features,
    joint_kriging_weights,
    kriging_weights,
    neighbors_of,
)
from rfgp.solvers.whitened import Whitener
from rfgp.sparse import Dense, KroneckerRows, Matrix, Sparse, SparsityPattern, sampled_outer

# --- Interface of a term of a prior at rows: its covariance and projection -------------------------------------------

Projection = Any
"""A matrix of `rfgp.sparse` with `gram` and `squares`: `Dense`, `Sparse` or `KroneckerRows`."""
ALL_COLUMNS = 4
"""The role of the random generator that draws prior weights without effect on the rows."""


class TermProjection(NamedTuple):
    """The projection of a term to n points."""

    matrix: Projection  # X (n, N)
    conditional: Tensor | None = None  # variances (n,) or covariance (n, n) given the coordinates, None for 0


class Term(Matrix):
    """Interface: a block of the prior at rows, as the root H = X R of its covariance.

    The coordinates z = R u of the term, u ~ N(0, I), are projected to points by a matrix X. By default R = s I.

    Attributes:
        name: The name of the term.
        matrix: The projections X of the rows.
        scale: The scale s.
        width: The number of entries of X of a point, 0 if there are few.
        seed: The seed of draws and of the preconditioner.
        dtype: The precision of the coordinates of draws.
        advice: A remedy for the message of a failed solve.
        has_residual: Whether points have a conditional variance given the coordinates.
        depends_on_other_points: Whether the projection of a point may depend on other points.
    """

    name: str
    matrix: Projection
    scale = 1.0
    width = 0
    seed = 0
    dtype = torch.float64
    advice = "Give the noise a prior or a larger start, or fit fewer observations."
    has_residual = False
    depends_on_other_points = False

    def latent(self, u: Tensor) -> Tensor:
        """Return R u, (N, p).

        Args:
            u: The vectors u, (columns, p).
        """
        return u if self.scale == 1.0 else self.scale * u

    def t_latent(self, z: Tensor) -> Tensor:
        """Return R^T z, (columns, p).

        Args:
            z: The vectors z, (N, p).
        """
        return z if self.scale == 1.0 else self.scale * z

    def latent_covariance(self, z: Tensor) -> Tensor:
        """Return R R^T z, (N, p).

        Args:
            z: The vectors z, (N, p).
        """
        return self.scale**2 * z

    def times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        product: Tensor = self.matrix.times(self.latent(u))
        return product

    def t_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (columns, p)."""
        return self.t_latent(self.matrix.t_times(v))

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return the coordinates R u (N, p) of standard normal draws, in their precision.

        Args:
            standard: The standard normal draws u of the columns of H, (columns, p).
            seed: The seed of coordinates without effect on the rows.
        """
        return self.latent(standard)

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return coordinates z (N, p) with X z = K(x, rows) a, for the projections X of points.

        Args:
            coefficients: The coefficients a, (rows, p).
        """
        return self.latent_covariance(self.matrix.t_times(coefficients))

    def gram(self, left: Projection, right: Projection) -> Tensor:
        """Return the prior covariance X R R^T Z^T (n, m) of points, without conditional covariances.

        Args:
            left: The projections X of n points.
            right: The projections Z of m points.
        """
        covariance: Tensor = self.scale**2 * left.gram(right)
        return covariance

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of projections, without conditional ones.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
            projection: The projections of the points by `project`.
        """
        squares: Tensor = self.scale**2 * projection.matrix.squares()
        return squares

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of an operator whose last root is this term.

        Args:
            operator: The operator of all terms.
        """
        return nystrom(operator)

    @abstractmethod
    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the projections of n points, and their conditional variances or, jointly, their covariance.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
            jointly: Whether points may be neighbors of each other.
        """

    @abstractmethod
    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient of sum_j signs_j v_j^T K v_j / 2.

        The gradient is in the parameters of the block.

        Args:
            vectors: The vectors v_j, (rows, p).
            signs: The signs, (p,).
        """

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function with given coordinates.

        Args:
            coordinates: The coordinates z, (N, p).

        Returns:
            A function of the inputs of n points to X z, (n, p), with the projections X by `project`.

        Raises:
            InvalidArgumentError: If points have a conditional variance, so that the block is defined at given points
                only.
        """
        if self.has_residual:
            raise InvalidArgumentError(
                f"The term {self.name!r} has no functions to draw, because it is exact or has a residual, which is "
                "defined at given points only. Use predict(X).sample() instead."
            )
        return lambda inputs: self.project(inputs).matrix.times(coordinates)


# --- Preconditioners of the terms of a prior -------------------------------------------------------------------------

RANK = 64
"""The rank of the Nystrom approximation, without that of dense columns."""
_MIN_RANK = 8
"""The rank below which there is no Nystrom approximation."""
MIN_EIGENVALUE_RATIO = 10.0
"""The minimum ratio of the first to the last of the computed eigenvalues of B for a preconditioner."""


MAX_DENSE_COLUMNS = 1000
"""The maximum number of columns of a sparse root in the preconditioner of another term."""


def nystrom(operator: CGOperator) -> Preconditioner:
    """Return a randomized Nystrom preconditioner, of rank 0 if no eigenvalue is large.

    Args:
        operator: The operator.
    """
    n = len(operator)
    identity = Preconditioner(operator.noise_diag.new_empty(n, 0), operator.noise_diag.new_empty(0))
    rank = min(RANK + sum(root.num_dense for root in operator.roots), n // 4)
    if rank < _MIN_RANK:
        return identity
    test = torch.from_numpy(generator(operator.seed, 0).standard_normal((n, rank))) / n**0.5
    image = operator.scaled_product(test) - test
    shift = torch.finfo(image.dtype).eps * image.norm()
    shifted = image + shift * test
    inner = test.mT @ shifted
    factor, info = torch.linalg.cholesky_ex((inner + inner.mT) / 2)
    if bool(info.any()):
        return identity
    root = half_solve(factor, shifted.mT).mT
    sizes = torch.linalg.eigvalsh(root.mT @ root)
    if float((sizes[-1] + 1) / (sizes[0] + 1)) < MIN_EIGENVALUE_RATIO:
        return identity
    vectors, sizes, _ = torch.linalg.svd(root, full_matrices=False)
    values = (sizes.square() - shift).clamp_min(0)
    return Preconditioner(vectors, (values + 1) / (values[-1] + 1))


def dense_columns_except(operator: CGOperator, term: Term) -> Tensor:
    """Return the columns (n, c) of the other terms, if they are dense or few.

    Args:
        operator: The operator.
        term: The excluded term.
    """
    columns = [operator.noise_diag.new_zeros(len(operator), 0)]
    for root in operator.roots:
        if root is not term and (root.num_dense or root.num_columns <= MAX_DENSE_COLUMNS):
            columns.append(root.dense())
    return torch.cat(columns, dim=1)


# --- Products of two kernels at rows on a grid, by products with two small matrices ----------------------------------

MAX_RANK = 512
"""The maximum number of eigenvectors of a preconditioner."""
MIN_SIGNAL = 0.5
"""The minimum eigenvalue, relative to the noise, whose eigenvector is in a preconditioner."""
MAX_DECOMPOSED = 2048
"""The maximum number of positions of one side whose eigenvectors are computed."""


class KroneckerTerm(Term):
    """A product of two covariances at rows on a grid, with the root H = R (L_1 kron L_2).

    Its coordinates are w, (N_1 N_2,). Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows, (n, D).

    Raises:
        InvalidArgumentError: If the grid has too many cells.
    """

    dtype = torch.float32
    has_residual = True

    def __init__(self, block: KernelBlock, inputs: Tensor) -> None:
        assert block.sides is not None
        self.name, self._block, self._sides = block.name, block, block.sides
        (first, rows), (second, columns) = (side.distinct(inputs) for side in block.sides)
        if len(first) * len(second) > MAX_CELLS:
            raise InvalidArgumentError(
                f"The term {block.name!r} must have at most {MAX_CELLS:,} pairs of distinct positions with Exact(), "
                f"got {len(first):,} x {len(second):,} at {counted(len(inputs), 'row')}. Round its columns to fewer "
                "distinct values, or use InducingPoints()."
            )
        self._positions = first, second
        self.width, self.num_columns = len(first) + len(second), len(first) * len(second)
        self._kernels = [
            side.covariance(x, x, *block.parameters).double()
            for side, x in zip(self._sides, self._positions, strict=True)
        ]
        self._codes = rows, columns

    @cached_property
    def matrix(self) -> KroneckerRows:
        """The rows of L_1 kron L_2."""
        first, second = (
            cholesky(kernel.detach(), "The kernel matrix of positions", expected=JITTER) for kernel in self._kernels
        )
        return KroneckerRows(first, second, *self._codes)

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of the noise and the largest eigenvectors of the grid.

        Other terms of few columns are included. Sides of more than 2,048 positions have a Nystrom preconditioner
        instead.
        """
        if max(map(len, self._kernels)) > MAX_DECOMPOSED:
            return nystrom(operator)
        columns = torch.cat([self._eigenvectors(operator), dense_columns_except(operator, self)], dim=1)
        return Preconditioner.of_features(columns / operator.deviation[:, None])

    def _eigenvectors(self, operator: CGOperator) -> Tensor:
        """Return eigenvectors of the grid at the rows times the roots of their eigenvalues, (n, r)."""
        (first, left), (second, right) = (torch.linalg.eigh(kernel.detach()) for kernel in self._kernels)
        values = (first[:, None] * second).flatten()
        occupied_fraction = len(operator) / len(values)
        count = int((occupied_fraction * values > MIN_SIGNAL * operator.noise_diag.median()).sum())
        rank = min(MAX_RANK, len(operator) // 4, count)
        indices = torch.topk(values, rank).indices
        rows, columns = indices // len(second), indices % len(second)
        vectors: Tensor = left[:, rows][self._codes[0]] * right[:, columns][self._codes[1]]
        return torch.mul(vectors, values[indices].sqrt())

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return X of n points, and the variances (n,) or the covariance (n, n) given the coordinates."""
        factors, codes = [], []
        for side, grid, root in zip(self._sides, self._positions, (self.matrix.first, self.matrix.second), strict=True):
            positions, indices = side.distinct(inputs)
            cross = side.covariance(grid, positions, *self._block.parameters).double()
            factors.append(half_solve(root, cross).mT)
            codes.append(indices)
        matrix = KroneckerRows(*factors, *codes)
        if jointly:
            return TermProjection(matrix, self._block.kernel(inputs, inputs) - matrix.gram(matrix))
        return TermProjection(matrix, (self._block.diagonal(inputs) - matrix.squares()).clamp_min(0))

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in K_1 and K_2.

        With V_j = R^T v_j on the grid it is sum_j signs_j tr(V_j^T dK_1 V_j K_2) / 2, and the same form for dK_2.
        """
        first, second = self._kernels
        cells = self.matrix.scattered(vectors)
        signed = cells * signs
        in_first = torch.einsum("ajp,bjp->ab", signed, second.detach() @ cells)
        by_first = (first.detach() @ cells.reshape(len(first), -1)).reshape(cells.shape)
        in_second = torch.einsum("iap,ibp->ab", signed, by_first)
        return 0.5 * ((first * in_first).sum() + (second * in_second).sum())


# --- Nearest neighbors conditioned on latent values without noise, at ordered rows -----------------------------------


class NeighborsTerm(Term):
    """A process g = L u of ordered rows, without noise.

    Its coordinates are the values of g at the rows. Methods have the arguments of those of `Term`.

    Args:
        prior: The prior, with the features whose residual the block of neighbors models.
        inputs: The inputs of the ordered rows, (rows, d).
    """

    advice = 'Use condition_on="responses".'
    has_residual = True
    depends_on_other_points = True

    def __init__(self, prior: Prior, inputs: Tensor) -> None:
        self._prior, self._inputs = prior.detached(), inputs
        self._block = neighbors_of(self._prior)
        self.name, self.seed, self.num_columns = self._block.name, self._block.seed, len(inputs)
        self.width = AHEAD * self._block.num_neighbors * (inputs.shape[1] + 1)
        self.matrix = Sparse(sp.eye_array(len(inputs), format="csr"))
        self._jitter = self._block.reading_jitter * self._block.diagonal(inputs)  # the noise of values, for projections

    @cached_property
    def _phi(self) -> Tensor:
        """The features (rows, F) of the rows."""
        return features(self._prior, self._prior.dense, self._inputs)

    @cached_property
    def _pattern(self) -> SparsityPattern:
        """The neighbors of the rows."""
        return self._block.predecessors(self._inputs)

    @cached_property
    def _root(self) -> LatentRoot:
        """L of the rows."""
        explained = explained_columns(self._prior, self._phi)
        return self._block.latent_root(self._inputs, self._pattern, explained)

    def latent(self, u: Tensor) -> Tensor:
        """Return L u, (rows, p)."""
        return self._root.times(u)

    def t_latent(self, z: Tensor) -> Tensor:
        """Return L^T z, (rows, p)."""
        return self._root.t_times(z)

    def latent_covariance(self, z: Tensor) -> Tensor:
        """Return L L^T z, (rows, p)."""
        return self.latent(self.t_latent(z))

    def gram(self, left: Projection, right: Projection) -> Tensor:
        """Return X L L^T Z^T, (n, m)."""
        product: Tensor = left.times(self.latent_covariance(right.dense().mT))
        return product

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of the same rows conditioned on observations.

        It includes other terms of few columns.
        """
        whitener = Whitener.of(self._prior, self._inputs, operator.noise_diag, self._phi, self._pattern)
        features = whitener.times(dense_columns_except(operator, self))
        scaled = whitener.matrix @ sp.diags_array(operator.deviation.numpy())
        return Preconditioner.of_features(features, Sparse(sp.csr_array(scaled)))

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the weights (n, rows) of near rows, jointly also of earlier points, and the conditional variances."""
        data = self._prior, self._inputs, self._jitter, inputs
        if jointly:
            weights, covariance = joint_kriging_weights(*data)
            return TermProjection(Dense(torch.from_numpy(weights)), covariance)
        near, variance = kriging_weights(*data)
        return TermProjection(Sparse(near), variance)

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of the block without the conditional ones."""
        assert projection.conditional is not None
        prior = self._block.diagonal(inputs) - explained_features(self._prior, inputs).square().sum(1)
        return (prior - projection.conditional).clamp_min(0)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return 0, 0-d. The gradient is that of neighbors conditioned on observations."""
        return vectors.new_zeros(())


# --- The terms of a prior at rows, and the operator of their covariance ----------------------------------------------


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
        self.has_residual = block.residual is not None
        self._phi = self._features(inputs)
        self.matrix = Dense(self._phi.detach())
        self.num_columns, self.num_dense = self.matrix.num_columns, self.matrix.num_columns

    def _features(self, inputs: Tensor) -> Tensor:
        """Return Phi (n, F), float64. If neighbors model a residual, it is evaluated in float64."""
        return self._block.scaled(inputs.double() if self._needs_float64 else inputs).double()

    def dense(self) -> Tensor:
        """Return Phi."""
        return self._phi.detach()

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the features (n, F) of n points, and the variances (n,) or the covariance (n, n) of a residual."""
        phi = self._features(inputs).detach()
        residual = self._block.residual_covariance if jointly else self._block.residual_variance
        return TermProjection(Dense(phi), residual(inputs, phi) if self.has_residual else None)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in Phi."""
        return (self._phi * ((vectors * signs) @ self.t_times(vectors).mT)).sum()


class WalkTerm(Term):
    """A term f = s phi w with sparse phi and the coordinates s w, (N,).

    The columns of H are those of phi with entries at the rows. Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The positions of the rows, (rows,).

    Attributes:
        block_variance: The variance s^2, 0-d, float64, with gradients.
    """

    dtype = torch.float32
    advice = "Give the noise a prior or a larger start, fit fewer observations, or use features='spectrum'."

    def __init__(self, block: SparseWeightBlock, inputs: Tensor) -> None:
        self.name, self.seed, self.block_variance = block.name, block.seed, block.variance.double()
        self.scale = float(self.block_variance.detach()) ** 0.5
        self._block, self._features = block, block.features(inputs, keep=True)
        self.matrix = Sparse(self._features.matrix())
        self._used = torch.from_numpy(np.flatnonzero(np.bincount(self.matrix.matrix.indices)))
        self.num_columns = len(self._used)
        self._root = Sparse(self.scale * self.matrix.matrix[:, self._used.numpy()])

    def times(self, u: Tensor) -> Tensor:
        """Return s phi u, (rows, p)."""
        return self._root.times(u)

    def t_times(self, v: Tensor) -> Tensor:
        """Return s phi^T v, (columns, p)."""
        return self._root.t_times(v)

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return s u, (N, p), with u in single precision."""
        shape = self._block.num_columns, standard.shape[1]
        out = torch.from_numpy(generator(seed, ALL_COLUMNS).standard_normal(shape, dtype=np.float32))
        out[self._used] = standard.float()
        return self.latent(out.to(standard))

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the features (n, N) of n positions."""
        return TermProjection(Sparse(self._block.features(inputs, keep=False).matrix()))

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function of the positions of n points to X z, (n, p)."""
        return self._block.of_weights(coordinates)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in the entries of phi and in s^2.

        The entries of phi are those on its pattern.
        """
        values, pattern = self._features
        right = self.matrix.t_times(vectors)
        in_values = self.scale**2 * sampled_outer(vectors * signs, right, pattern)
        in_variance = 0.5 * (right.square() * signs).sum()
        gradient: Tensor = (values * in_values).sum() + self.block_variance * in_variance
        return gradient


class PrecisionTerm(Term):
    """A term f = A u with the coordinates u, (N,), of precision Q / s^2.

    Its root is H = s A P^T L^-T, with P Q P^T = L L^T.

    Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows, (rows, D), or positions (rows,).
    """

    def __init__(self, block: PrecisionBlock, inputs: Tensor) -> None:
        self.name, self._block, self.scale = block.name, block, float(block.variance.detach()) ** 0.5
        self.matrix = Sparse(block.projector(inputs))
        self.num_columns = self.matrix.num_columns

    def latent(self, u: Tensor) -> Tensor:
        """Return s Q^(-1/2) u, (N, p)."""
        return self.scale * torch.from_numpy(self._block.factor.sample(u.numpy()))

    def t_latent(self, z: Tensor) -> Tensor:
        """Return s Q^(-1/2) z, (N, p), for the transpose of this root."""
        return self.scale * torch.from_numpy(self._block.factor.half_solve(z.numpy()))

    def latent_covariance(self, z: Tensor) -> Tensor:
        """Return s^2 Q^-1 z, (N, p)."""
        return self.scale**2 * torch.from_numpy(self._block.factor.solve(z.numpy()))

    def gram(self, left: Sparse, right: Sparse) -> Tensor:
        """Return s^2 X Q^-1 Z^T, (n, m)."""
        return torch.from_numpy(self.scale**2 * products(self._block.factor, left.matrix, right.matrix))

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances, (n,)."""
        return self._block.diagonal(inputs)

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the projection A (n, N) of n points."""
        return TermProjection(Sparse(self._block.projector(inputs)))

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in the precision parameters and in s^2.

        With t = Q^-1 A^T v, the gradient in the parameters is -s^2 t^T dQ t / 2.
        """
        field, values = self._block.field, self._block.values
        gathered = self.matrix.t_times(vectors).numpy()
        solved = torch.from_numpy(self._block.factor.solve(gathered))
        outer = sampled_outer(solved * signs, solved, field.pattern).numpy()
        in_values = torch.from_numpy(-0.5 * self.scale**2 * field.pull_back(as_array(values), outer))
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
    terms += [WalkTerm(block, inputs) for block in prior.graph_features]
    return terms if prior.neighbors is None else [*terms, NeighborsTerm(prior, inputs)]


def operator_of(terms: Sequence[Term], noise_diag: Tensor) -> CGOperator:
    """Return the covariance C = sum_t H_t H_t^T + D of terms at rows.

    It is preconditioned by the last term.

    Args:
        terms: The terms, at least one.
        noise_diag: The diagonal of D, (rows,), positive.
    """
    last = terms[-1]
    return CGOperator(terms, noise_diag, last.seed, last.precondition, last.advice)
