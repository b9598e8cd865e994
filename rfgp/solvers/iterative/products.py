"""The covariances of terms as matrix products, and preconditioners.

A block f has the covariance H H^T at the rows. A matrix X projects coordinates z of the block to points. For draws
u ~ N(0, I) of the columns of H, X `sample_coordinates(u)` is a draw of f. X `coordinates(a)` is K(x, rows) a.

For long lengthscales, Psi Psi^T has a few large eigenvalues. A randomized Nystrom approximation of it is U (L) U^T,
with the smallest eigenvalue l of L. It gives the preconditioner P = (I - U U^T) + U (L + 1) / (l + 1) U^T (Frangella,
Tropp and Udell 2023, "Randomized Nystrom preconditioning", Eqs. 1.3 and 5.2).

For latent nearest neighbors, the covariance of the same rows conditioned on observations is close to C. With V and P of
`rfgp.solvers.whitened` its inverse is V^T (I + P P^T)^-1 V. Most preconditioned eigenvalues are near 1, so that
conjugate gradients take few steps and the estimated part of the log determinant is small
(`benchmarks/races/latent_neighbors.py`).

Let the columns of the kernels have N_1 and N_2 distinct positions. Then K = R (K_1 kron K_2) R^T, where R selects the
cells of the grid with rows. With K_s = L_s L_s^T it is H H^T, H = R (L_1 kron L_2). A product takes
O(N_1 N_2 (N_1 + N_2)) operations. Cells may be missing or have several rows.

The preconditioner combines the noise with the largest eigenvalues of K_1 kron K_2 and their eigenvectors at the rows.

The coordinates w ~ N(0, I) of f on the grid are projected to a point x by the Kronecker product of k_1(x, U_1) L_1^-T
and k_2(x, U_2) L_2^-T. Points off the grid have a conditional variance.

Source: "latent Kronecker" structure, Lin et al. (2024), "Scalable Gaussian processes with latent Kronecker structure".

If the noise is large, the observations of a few neighbors have little information, and that of all other rows is lost.
Therefore g is approximated as g = L u (`rfgp.local.factor`), apart from the noise. `docs/mathematics.md` has the KL
divergences from the exact posterior.
"""

import math
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
from rfgp.blocks.neighbors import AHEAD
from rfgp.blocks.precision import products
from rfgp.blocks.role import JITTER, MAX_CELLS
from rfgp.counts import counted
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, half_solve
from rfgp.local import LatentRoot
from rfgp.solvers.iterative.operator import (
    CGOperator,
    DensePart,
    Part,
    Preconditioner,
    SparsePart,
    dense_columns_except,
    generator,
)
from rfgp.solvers.kriging import (
    explained_columns,
    explained_features,
    features,
    joint_kriging_weights,
    kriging_weights,
    neighbors_of,
    no_functions,
)
from rfgp.solvers.whitened import Whitener
from rfgp.sparse import KroneckerRows, SparsityPattern, multiply, on_grid, row_blocks, sampled_outer, with_columns

# --- Interface of a term of a prior at rows: its covariance and projection -------------------------------------------

Matrix = Any
"""A sparse matrix, rows of a Kronecker product, or an array."""
ALL_COLUMNS = 4
"""The role of the random generator that draws prior weights without effect on the rows."""


class TermProjection(NamedTuple):
    """The projection of a term to n single points."""

    matrix: Matrix  # X (n, N)
    conditional_variance: Tensor | None = None  # (n,), given the coordinates, None for 0


class Term(Part):
    """Interface: a block of the prior at rows, with the root H of its covariance.

    The coordinates z of a term at points are X z. By default they are those of the columns of H.

    Attributes:
        name: The name of the term.
        width: The number of entries of X of a point, 0 if there are few.
        seed: The seed of draws and of the preconditioner.
        dtype: The precision of the coordinates of draws.
        advice: A remedy for the message of a failed solve.
        depends_on_other_points: Whether the projection of a point may depend on other points.
    """

    name: str
    depends_on_other_points = False
    width = 0
    seed = 0
    dtype = torch.float64
    advice = "Give the noise a prior or a larger start, or fit fewer observations."

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of an operator whose last part belongs to this term.

        Args:
            operator: The operator of all terms.
        """
        return nystrom(operator)

    @abstractmethod
    def project(self, inputs: Tensor) -> TermProjection:
        """Return the projections X (n, N) of n single points.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
        """

    def project_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor | None]:
        """Return the projections of points that may be neighbors of each other.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).

        Returns:
            X (n, N), and the conditional covariance (n, n) given the coordinates, or None if it is 0.
        """
        return self.project(inputs).matrix, None

    def half(self, matrix: Matrix) -> Tensor:
        """Return the root of the covariance of n points in the columns of H, (columns, n), by default X^T.

        Args:
            matrix: The projections X, (n, N).
        """
        return torch.from_numpy(matrix if isinstance(matrix, np.ndarray) else matrix.toarray()).mT

    def cross(self, matrix: Matrix) -> Tensor:
        """Return the prior covariance between the rows and n points, (rows, n).

        Args:
            matrix: The projections X, (n, N).
        """
        return self.root_times(self.half(matrix))

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return the prior covariance of n points, (n, n).

        Args:
            matrix: The projections X, (n, N).
        """
        half = self.half(matrix)
        return half.mT @ half

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of projections, without conditional ones.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
            projection: The projections of the points by `project`.
        """
        return self.half(projection.matrix).square().sum(0)

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return coordinates z (N, p) with X z = K(x, rows) a.

        Args:
            coefficients: The coefficients a, (rows, p).
        """
        return self.sample_coordinates(self.transposed_root_times(coefficients), self.seed)

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return the coordinates (N, p) of standard normal draws.

        By default these are the draws.

        Args:
            standard: The standard normal draws u of the columns of H, (columns, p), in the requested precision.
            seed: The seed of weights without effect on the rows.
        """
        return standard

    def joined(self, inputs: Tensor) -> Part | None:
        """Return the root [H; h] of the rows, followed by points, or None.

        The result is None if points have conditional variances.

        Args:
            inputs: The inputs of the points.
        """
        return None

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

        The conditional variance given the coordinates is excluded.

        Args:
            coordinates: The coordinates z, (N, p).

        Returns:
            A function of the inputs of n points to X z, (n, p), with the projections X by `project`.

        Raises:
            InvalidArgumentError: If the block is defined at given points only, such as a block with a residual.
        """
        return lambda inputs: times(self.project(inputs).matrix, coordinates)


def times(matrix: Matrix, coordinates: Tensor) -> Tensor:
    """Return X z, (n, p), in the precision of z.

    Args:
        matrix: The projections X, (n, N).
        coordinates: The coordinates z, (N, p).
    """
    if isinstance(matrix, np.ndarray):
        out: Tensor = torch.from_numpy(matrix) @ coordinates
        return out
    if isinstance(matrix, KroneckerRows):
        return matrix.times(coordinates)
    array = coordinates.numpy()
    return torch.from_numpy(multiply(row_blocks(matrix.astype(array.dtype, copy=False)), array))


# --- Preconditioners P of B = I + Psi Psi^T, Psi = D^(-1/2) H --------------------------------------------------------

RANK = 64
"""The rank of the Nystrom approximation, without that of dense parts."""
_MIN_RANK = 8
"""The rank below which there is no Nystrom approximation."""
MIN_EIGENVALUE_RATIO = 10.0
"""The minimum ratio of the first to the last of the computed eigenvalues of B for a preconditioner."""
_MIN_RELATIVE_EIGENVALUE = 1e-12
"""The eigenvalue of F F^T, relative to the largest, up to which eigenvalues are set to 0."""


class LowRankPreconditioner(NamedTuple):
    """P = I + U diag(p - 1) U^T with orthonormal U (n, r).

    The symmetric inverse root of P is R.

    Examples:
        >>> one = LowRankPreconditioner.of_features(torch.tensor([[2.0], [0.0]]).double())
        >>> one.half_solve(torch.tensor([[1.0], [1.0]]).double()).round(decimals=4).tolist()  # 1 / sqrt(1 + 4)
        [[0.4472], [1.0]]
    """

    vectors: Tensor  # U (n, r)
    factors: Tensor  # 1 / sqrt(p) - 1, (r,)
    logs: Tensor  # log p, (r,)

    @classmethod
    def of(cls, vectors: Tensor, values: Tensor) -> "LowRankPreconditioner":
        """Return the preconditioner P with given eigenvectors.

        Args:
            vectors: The orthonormal eigenvectors U, (n, r).
            values: Their eigenvalues p, (r,), positive.
        """
        return cls(vectors, values.rsqrt() - 1, values.log())

    @classmethod
    def of_features(cls, features: Tensor) -> "LowRankPreconditioner":
        """Return the preconditioner P = I + F F^T.

        Args:
            features: The features F, (n, r).
        """
        values, vectors = torch.linalg.eigh(features.mT @ features)
        is_large = values > _MIN_RELATIVE_EIGENVALUE * values.max() if len(values) else values > 0
        values, vectors = values[is_large], vectors[:, is_large]
        return cls.of(features @ (vectors / values.sqrt()), 1 + values)

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|."""
        return float(self.logs.sum())

    def half_solve(self, v: Tensor) -> Tensor:
        """Return R v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        if not len(self.factors):
            return v
        return v + self.vectors @ (self.factors[:, None] * (self.vectors.mT @ v))

    def half_solve_transposed(self, v: Tensor) -> Tensor:
        """Return R^T v = R v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self.half_solve(v)


def nystrom(operator: CGOperator) -> LowRankPreconditioner:
    """Return a randomized Nystrom preconditioner, of rank 0 if no eigenvalue is large.

    Args:
        operator: The operator.
    """
    n = len(operator)
    identity = LowRankPreconditioner.of(operator.noise_diag.new_empty(n, 0), operator.noise_diag.new_empty(0))
    rank = min(RANK + sum(part.num_dense for part in operator.parts), n // 4)
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
    return LowRankPreconditioner.of(vectors, (values + 1) / (values[-1] + 1))


class WhiteningPreconditioner:
    """The preconditioner with R = (I + P P^T)^(-1/2) V D^(1/2).

    Args:
        whitener: The whitening V of rows with the noise D.
        deviation: The standard deviations D^(1/2), (n,).
        features: The features P = V Phi, (n, F).
    """

    def __init__(self, whitener: Whitener, deviation: Tensor, features: Tensor) -> None:
        matrix = whitener.matrix
        self._deviation, self._low_rank = deviation, LowRankPreconditioner.of_features(features)
        self._factor, self._transposed = row_blocks(matrix), row_blocks(matrix.T.tocsr())
        self._logs = float(whitener.log_determinant) + float(deviation.log().sum())

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|, P = (R^T R)^-1."""
        return self._low_rank.log_determinant - 2 * self._logs

    def half_solve(self, v: Tensor) -> Tensor:
        """Return R v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        scaled = (self._deviation[:, None] * v).numpy()
        return self._low_rank.half_solve(torch.from_numpy(multiply(self._factor, scaled)))

    def half_solve_transposed(self, v: Tensor) -> Tensor:
        """Return R^T v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        back = multiply(self._transposed, self._low_rank.half_solve_transposed(v).numpy())
        return self._deviation[:, None] * torch.from_numpy(back)


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

    def __init__(self, block: KernelBlock, inputs: Tensor) -> None:
        assert block.sides is not None
        self.name, self._block, self._sides = block.name, block, block.sides
        pairs = [side.distinct(inputs) for side in block.sides]
        self._positions, self._codes = [x for x, _ in pairs], [codes for _, codes in pairs]
        sizes = [len(x) for x in self._positions]
        if sizes[0] * sizes[1] > MAX_CELLS:
            raise InvalidArgumentError(
                f"The term {block.name!r} must have at most {MAX_CELLS:,} pairs of distinct positions with Exact(), "
                f"got {sizes[0]:,} x {sizes[1]:,} at {counted(len(inputs), 'row')}. Round its columns to fewer "
                "distinct values, or use InducingPoints()."
            )
        self.width, self.num_columns, self._shape = sum(sizes), math.prod(sizes), tuple(sizes)
        self._kernels = [
            side.covariance(x, x, *block.parameters).double()
            for side, x in zip(self._sides, self._positions, strict=True)
        ]

    @cached_property
    def _roots(self) -> list[Tensor]:
        """L_1 (N_1, N_1) and L_2 (N_2, N_2)."""
        return [cholesky(k.detach(), "The kernel matrix of positions", expected=JITTER) for k in self._kernels]

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        first, second = self._roots
        cells = on_grid(first.to(u), second.to(u), u.reshape(*self._shape, -1))
        return cells[self._codes[0], self._codes[1]]

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N_1 N_2, p)."""
        first, second = self._roots
        return on_grid(first.mT.to(v), second.mT.to(v), self._scattered(v)).reshape(self.num_columns, -1)

    def _scattered(self, v: Tensor) -> Tensor:
        """Return R^T v on the grid, (N_1, N_2, p), for values of rows (n, p)."""
        cells = v.new_zeros(self.num_columns, v.shape[1])
        cells.index_add_(0, self._codes[0] * self._shape[1] + self._codes[1], v)
        return cells.reshape(*self._shape, -1)

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of the noise and the largest eigenvectors of the grid.

        Other terms of few columns are included. Sides of more than 2,048 positions have a Nystrom preconditioner
        instead.
        """
        if max(map(len, self._kernels)) > MAX_DECOMPOSED:
            return nystrom(operator)
        columns = torch.cat([self._eigenvectors(operator), dense_columns_except(operator, self)], dim=1)
        return LowRankPreconditioner.of_features(columns / operator.deviation[:, None])

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

    def project(self, inputs: Tensor) -> TermProjection:
        """Return X of n points, and the conditional variances (n,) given the coordinates."""
        with torch.no_grad():
            matrix = self._project(inputs)
            return TermProjection(matrix, (self._block.diagonal(inputs) - matrix.squares()).clamp_min(0))

    def _project(self, inputs: Tensor) -> KroneckerRows:
        factors, codes = [], []
        for side, grid, root in zip(self._sides, self._positions, self._roots, strict=True):
            positions, indices = side.distinct(inputs)
            cross = side.covariance(grid, positions, *self._block.parameters).double()
            factors.append(half_solve(root, cross).mT)
            codes.append(indices)
        return KroneckerRows(*factors, *codes)

    def project_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor]:
        """Return X of n points, and the covariance (n, n) given the coordinates."""
        with torch.no_grad():
            matrix = self._project(inputs)
            return matrix, self._block.kernel(inputs, inputs) - self.covariance(matrix)

    def cross(self, matrix: Matrix) -> Tensor:
        """Return H X^T, (rows, n)."""
        out: Tensor = matrix.between(*self._roots, *self._codes)
        return out

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return X X^T, (n, n)."""
        out: Tensor = matrix.between(*matrix)
        return out

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of the projections of n points."""
        variance: Tensor = projection.matrix.squares()
        return variance

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in K_1 and K_2.

        With V_j = R^T v_j on the grid it is sum_j signs_j tr(V_j^T dK_1 V_j K_2) / 2, and the same form for dK_2.
        """
        first, second = self._kernels
        cells = self._scattered(vectors)
        signed = cells * signs
        in_first = torch.einsum("ajp,bjp->ab", signed, second.detach() @ cells)
        by_first = (first.detach() @ cells.reshape(len(first), -1)).reshape(cells.shape)
        in_second = torch.einsum("iap,ibp->ab", signed, by_first)
        return 0.5 * ((first * in_first).sum() + (second * in_second).sum())

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Raise an error, because there are no functions off the grid.

        Coordinates (N_1 N_2, p) do not define them.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(
            f"The term {self.name!r} is exact and has no functions to draw, because it is defined at given "
            "points only. Use predict(X).sample() instead."
        )


# --- Nearest neighbors conditioned on latent values without noise, at ordered rows -----------------------------------


class NeighborsTerm(Term):
    """A process g = L u of ordered rows, without noise.

    Its coordinates are the values of g at the rows. Methods have the arguments of those of `Term`.

    Args:
        prior: The prior, with the features whose residual the block of neighbors models.
        inputs: The inputs of the ordered rows, (rows, d).
    """

    advice = 'Use condition_on="responses".'
    depends_on_other_points = True

    def __init__(self, prior: Prior, inputs: Tensor) -> None:
        self._prior, self._inputs = prior.detached(), inputs
        self._block = neighbors_of(self._prior)
        self.name, self.seed, self.num_columns = self._block.name, self._block.seed, len(inputs)
        self.width = AHEAD * self._block.num_neighbors * (inputs.shape[1] + 1)

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

    def root_times(self, u: Tensor) -> Tensor:
        """Return L u, (rows, p)."""
        return self._root.root_times(u)

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return L^T v, (rows, p)."""
        return self._root.transposed_root_times(v)

    def precondition(self, operator: CGOperator) -> WhiteningPreconditioner:
        """Return a preconditioner of the same rows conditioned on observations.

        It includes other terms of few columns.
        """
        whitener = Whitener.of(self._prior, self._inputs, operator.noise_diag, self._phi, self._pattern)
        features = whitener.times(dense_columns_except(operator, self))
        return WhiteningPreconditioner(whitener, operator.deviation, features)

    def project(self, inputs: Tensor) -> TermProjection:
        """Return the weights (n, rows) of near rows, and conditional variances (n,)."""
        return TermProjection(*kriging_weights(self._prior, self._inputs, self._jitter, inputs))

    def project_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor | None]:
        """Return the weights (n, rows) of points, and the conditional covariance.

        Points have earlier points as neighbors.
        """
        return joint_kriging_weights(self._prior, self._inputs, self._jitter, inputs)

    def half(self, matrix: Matrix) -> Tensor:
        """Return L^T X^T, (rows, n)."""
        return self.transposed_root_times(super().half(matrix))

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of the block without the conditional ones."""
        prior = self._block.diagonal(inputs)
        prior = prior - explained_features(self._prior, inputs).square().sum(1)
        conditional = projection.conditional_variance
        return prior if conditional is None else (prior - conditional).clamp_min(0)

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return L u, (rows, p)."""
        return self.root_times(standard)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return 0, 0-d. The gradient is that of neighbors conditioned on observations."""
        return vectors.new_zeros(())

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Raise an error, because coordinates (rows, p) do not define functions.

        Raises:
            InvalidArgumentError: Always.
        """
        raise no_functions()

    @cached_property
    def _jitter(self) -> Tensor:
        """The noise (rows,) of the values of rows, for the projection to points."""
        return self._block.reading_jitter * self._block.diagonal(self._inputs)


# --- The terms of a prior at rows, and the operator of their covariance ----------------------------------------------


class WeightTerm(DensePart, Term):
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
        super().__init__(self._phi.detach())

    def _features(self, inputs: Tensor) -> Tensor:
        """Return Phi (n, F), float64. If neighbors model a residual, it is evaluated in float64."""
        return self._block.scaled(inputs.double() if self._needs_float64 else inputs).double()

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

    def joined(self, inputs: Tensor) -> DensePart | None:
        """Return Phi of the rows, followed by points, or None if there is a residual."""
        if self._block.residual is not None:
            return None
        return DensePart(torch.cat([self._phi.detach(), self._features(inputs).detach()]))

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in Phi."""
        return (self._phi * ((vectors * signs) @ self.transposed_root_times(vectors).mT)).sum()

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


class WalkTerm(SparsePart, Term):
    """A term f = s phi w with sparse phi and the coordinates s w, (N,).

    Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The positions of the rows, (rows,).

    Attributes:
        block_variance: The variance s^2, 0-d, float64, with gradients.
        s2: Its value.
    """

    dtype = torch.float32
    advice = "Give the noise a prior or a larger start, fit fewer observations, or use features='spectrum'."

    def __init__(self, block: SparseWeightBlock, inputs: Tensor) -> None:
        self.name, self.seed, self.block_variance = block.name, block.seed, block.variance.double()
        self.s2 = float(self.block_variance.detach())
        self._block, self._features = block, block.features(inputs, keep=True)
        self._phi = self._features.matrix()
        self._used = np.flatnonzero(np.bincount(self._phi.indices))  # the columns (c,) of phi with entries
        super().__init__(with_columns(self._phi, self._used), self.s2**0.5)

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

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return s u, (N, p), with u in single precision."""
        shape = self._block.num_columns, standard.shape[1]
        out = torch.from_numpy(generator(seed, ALL_COLUMNS).standard_normal(shape, dtype=np.float32))
        out[torch.from_numpy(self._used)] = standard.float()
        coordinates: Tensor = out.to(standard) * self.s2**0.5
        return coordinates

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function of the positions of n points to X z, (n, p)."""
        return self._block.of_weights(coordinates)

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

    Its root is H = s A P^T L^-T, with P Q P^T = L L^T.

    Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows, (rows, D), or positions (rows,).
    """

    def __init__(self, block: PrecisionBlock, inputs: Tensor) -> None:
        self.name, self._block, self._projector = block.name, block, block.projector(inputs)
        self._s2, self._inputs, self.num_columns = float(block.variance.detach()), inputs, self._projector.shape[1]

    def root_times(self, u: Tensor) -> Tensor:
        """Return A Q^(-1/2) u, (n, p)."""
        return torch.from_numpy(self._s2**0.5 * (self._projector @ self._block.factor.sample(u.numpy())))

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return Q^(-1/2) A^T v, (N, p)."""
        return torch.from_numpy(self._s2**0.5 * self._block.factor.half_solve(self._projector.T @ v.numpy()))

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

    def joined(self, inputs: Tensor) -> "PrecisionTerm":
        """Return the term at the rows, followed by points."""
        return PrecisionTerm(self._block, torch.cat([self._inputs, inputs]))

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
