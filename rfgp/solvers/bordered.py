"""Sparse latent values with a border of dense weights: pattern, elimination, solver, and posterior.

y = mean + A u + Phi w + e with u ~ N(0, Q^-1), Q = blockdiag(Q_t / s_t^2), w ~ N(0, I) and e of variance D. With
r = y - mean,

    S = Q + A^T D^-1 A,    Y = S^-1 A^T D^-1 Phi,    Psi = Phi - A Y,    C = I + Phi^T D^-1 Psi,
    w = C^-1 Psi^T D^-1 r,    u = S^-1 A^T D^-1 (r - Phi w),    e = r - A u - Phi w,
    -2 log N(y) = n log 2 pi + log|D| + log|S| + log|C| - log|Q| + e^T D^-1 e + u^T Q u + w^T w.

The posterior covariance is C^-1 of w, -Y C^-1 between u and w, and S^-1 + Y C^-1 Y^T of u. u and w minimize the
quadratic form. With the posterior variances v at the rows, the derivatives of the log marginal likelihood are therefore

    in Q    (Q^-1 - S^-1 - Y C^-1 Y^T - u u^T) / 2 on its pattern, the selected inverse of S with the border,
    in Phi  D^-1 (e w^T - Psi C^-1),
    in A    D^-1 (e u^T - A S^-1 + Psi C^-1 Y^T),
    in D_i  ((e_i^2 + v_i) / D_i^2 - 1 / D_i) / 2,
    in r    -D^-1 e.

k outputs share S and C, with weights c_j. Without a border this is regression on a Markov field (Rue and Held 2005,
Gaussian Markov Random Fields, Section 2.3). Without latent values it is the primal form of `rfgp.solvers.dense`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphs.cholesky import Factor, analyze
from graphs.errors import MemoryBudgetError
from graphs.precisions import MarkovField
from graphs.precisions.fields import SymmetricPattern
from rfgp.autograd import Gradients, Needs, as_array, with_gradient, with_slopes
from rfgp.blocks import COLUMNS, Array, PrecisionBlock, Prior, Slope, Weights, factorized, products, solved_forms
from rfgp.errors import InvalidArgumentError, NotDifferentiableError
from rfgp.limits import limits
from rfgp.linalg import cholesky
from rfgp.rows import Block
from rfgp.solvers.kriging import latent_precision, neighbors_of
from rfgp.solvers.lowrank import MAX_TRACE, FactorCovariance, LowRankPosterior, WeightSolution, solve_root
from rfgp.solvers.role import (
    Functions,
    Joint,
    LatentOperator,
    OnDemand,
    Posterior,
    Shape,
    Solver,
    TermwisePosterior,
    check_divided,
    check_joint,
    joint_scales,
    log_density,
)
from rfgp.sparse import add_outer, gram_on, quadratic_forms, times_symmetric
from rfgp.torch_context import Recent

# --- The pattern of the joint precision of several sparse blocks given rows ------------------------------------------


@dataclass(frozen=True, eq=False)
class JointPattern:
    """The pattern of blockdiag(Q_1, Q_2, ...) + A^T D^-1 A.

    The positions of the entries of its parts are stored too.

    Attributes:
        csr: The pattern, (N, N).
        factorize: Returns the factor of a matrix with entries (nnz,) on the pattern.
        indices: The positions of the entries of each field on the pattern. None denotes all in order.
        analyze: Returns the symbolic analysis of the pattern, with the memory and the operations of a factor.
    """

    csr: SymmetricPattern
    factorize: Callable[[Array], Factor]
    indices: Sequence[NDArray[np.int64] | None]
    analyze: Callable[[], Any]

    @classmethod
    def of(
        cls, fields: Sequence[MarkovField], projector: sp.csr_array, *, combines_non_neighbors: bool = False
    ) -> "JointPattern":
        """Return the joint pattern of the precisions and the projection to rows of fields.

        A single field has the joint pattern if each row depends on one value, or if each pair of values of a row has an
        entry in Q. Otherwise the union with the pattern of A^T A is analyzed. It is cached for the same fields and
        projection.

        Args:
            fields: The fields, at least one.
            projector: The projection A, (n, N).
            combines_non_neighbors: Whether a row depends on two values of a field that have no joint entry in its Q.
                The default is False.
        """
        if len(fields) == 1 and not (combines_non_neighbors and np.diff(projector.indptr).max(initial=0) > 1):
            field, pattern = fields[0], fields[0].pattern
            return cls(pattern, field.factor, [None], lambda: field.analysis)
        key = *fields, projector.indices.tobytes(), projector.indptr.tobytes()
        return _PATTERNS.find(key, lambda: cls._joined(fields, projector))

    @classmethod
    def _joined(cls, fields: Sequence[MarkovField], projector: sp.csr_array) -> "JointPattern":
        patterns = [_as_matrix(field.pattern) for field in fields]
        blocks = sp.block_diag(patterns, format="csr")
        ones = sp.csr_array((np.ones(projector.nnz), projector.indices, projector.indptr), shape=projector.shape)
        union = sp.csr_array(blocks + ones.T @ ones)
        union.sort_indices()
        csr = SymmetricPattern(union.indptr.astype(np.int64), union.indices.astype(np.int32))
        ends = np.cumsum([0, *(pattern.shape[0] for pattern in patterns)])
        indices = [positions(csr, pattern, offset) for pattern, offset in zip(patterns, ends[:-1], strict=True)]
        analysis = analyze(*csr)
        return cls(csr, partial(Factor.of, analysis), indices, lambda: analysis)

    def factor(self, parts: Sequence[Array], projector: sp.csr_array, precision: Array) -> Factor:
        """Return the factor of blockdiag(Q_1, Q_2, ...) + A^T diag(p) A.

        Args:
            parts: The entries of Q_t of each field, (nnz_t,) each.
            projector: The projection A, (n, N).
            precision: The diagonal p, (n,).
        """
        return factorized(self.factorize, self.total(parts) + gram_on(projector, self.csr, precision))

    def total(self, parts: Sequence[Array]) -> Array:
        """Return the entries of a block-diagonal matrix on the joint pattern, (nnz,).

        Args:
            parts: The entries of the diagonal block of each field, (nnz_t,) each.
        """
        if self.indices[0] is None:
            return np.array(parts[0])
        out = np.zeros(len(self.csr.indices))
        for indices, part in zip(self.indices, parts, strict=True):
            out[indices] += part
        return out


_PATTERNS: Recent[JointPattern] = Recent(4)
"""The last joint patterns, for the rows of a fit and for points of predictions."""


def positions(csr: SymmetricPattern, part: sp.csr_array, offset: int = 0) -> NDArray[np.int64]:
    """Return the positions, (nnz,), of the entries of a matrix in a larger pattern.

    The pattern contains all entries of the matrix. The positions are among its entries.

    Args:
        csr: The pattern.
        part: A matrix (M, M), whose first row and column have the number `offset` in the pattern.
        offset: The number of the first row.
    """
    numbers = _as_matrix(csr, np.arange(1, len(csr.indices) + 1))
    rows = offset + np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
    return np.asarray(numbers[rows, offset + part.indices]).ravel() - 1


def _as_matrix(pattern: Any, data: Any = None) -> sp.csr_array:
    size = len(pattern.indptr) - 1
    entries = np.ones(len(pattern.indices)) if data is None else data
    return sp.csr_array((entries, pattern.indices, pattern.indptr), shape=(size, size))


# --- Sparse latent values at given hyperparameters, and their projection to rows -------------------------------------


class SparseLatents:
    """Latent values u ~ N(0, Q^-1) and their projection to rows.

    The precision is Q = blockdiag(Q_t / s_t^2).

    Args:
        blocks: The sparse blocks, in the order of the columns of A. There may be none.
        matrix: The projection A, (n, N).
        combines_non_neighbors: Whether a row depends on two values of a block that have no joint entry in Q.
    """

    def __init__(
        self, blocks: Sequence[PrecisionBlock], matrix: sp.csr_array, *, combines_non_neighbors: bool = False
    ) -> None:
        self.matrix, self._combines_non_neighbors = matrix, combines_non_neighbors
        self.fields, self._sizes = [block.field for block in blocks], [block.size for block in blocks]
        self._values = [as_array(block.values) for block in blocks]
        self._variances = [float(block.variance.detach()) for block in blocks]

    @cached_property
    def pattern(self) -> JointPattern:
        """The pattern of Q + A^T D^-1 A."""
        return JointPattern.of(self.fields, self.matrix, combines_non_neighbors=self._combines_non_neighbors)

    @cached_property
    def entries(self) -> list[Array]:
        """The entries of Q_t / s_t^2, (nnz_t,) each."""
        parts = zip(self.fields, self._values, self._variances, strict=True)
        return [field.entries(values) / variance for field, values, variance in parts]

    @cached_property
    def determinants(self) -> list[tuple[float, Array]]:
        """The log determinants of Q_t and their derivatives in its parameters."""
        return [field.log_determinant(values) for field, values in zip(self.fields, self._values, strict=True)]

    @property
    def log_determinant(self) -> float:
        """The log determinant of Q."""
        parts = zip(self.determinants, self._sizes, self._variances, strict=True)
        return sum(prior - size * math.log(variance) for (prior, _), size, variance in parts)

    def times(self, u: Tensor) -> Tensor:
        """Return Q u, (N, p).

        Args:
            u: The latent values u, (N, p).
        """
        indptr, indices = self.pattern.csr
        prior = sp.csr_array((self.pattern.total(self.entries), indices, indptr), shape=(len(indptr) - 1,) * 2)
        return torch.from_numpy(np.asarray(prior @ u.numpy()))

    def pull_back(self, second: Array, k: float) -> list[Tensor]:
        """Return the derivatives of (k log|Q| - tr(Q M)) / 2.

        They are those in the parameters (p,) and the variance of each block.

        Args:
            second: The entries of M on the pattern, (nnz,).
            k: The factor.
        """
        out = list[Tensor]()
        parts = zip(self.fields, self._values, self._sizes, self._variances, strict=True)
        for number, (field, values, size, variance) in enumerate(parts):
            indices, (_, slopes) = self.pattern.indices[number], self.determinants[number]
            entries = second if indices is None else second[indices]
            in_values = 0.5 * (k * slopes - field.pull_back(values, entries) / variance)
            in_variance = 0.5 * (float(entries @ self.entries[number]) - k * size) / variance
            out += [torch.as_tensor(slope, dtype=torch.float64) for slope in (in_values, in_variance)]
        return out


# --- The elimination of sparse latent values and dense weights, for a given noise ------------------------------------


class BorderProducts(NamedTuple):
    """Products of the border's half of the posterior covariance."""

    on_triangle: Array  # Y C^-1 Y^T on the factored triangle of S, (e,)
    on_projector: Array  # Psi C^-1 Y^T on the pattern of A, (nnz,)


class Elimination:
    """The matrices S, Y, Psi and C of rows.

    Args:
        prior: The sparse latent values, with projection A (n, N).
        border: The features Phi, (n, F), float64. F may be 0.
        noise: The noise D, (n,), float64.
    """

    def __init__(self, prior: SparseLatents, border: Tensor, noise: Tensor) -> None:
        self.prior, self.border, self.noise = prior, border, noise

    def with_noise(self, noise: Tensor) -> "Elimination":
        """Return the elimination for another noise, or this one if the noise is unchanged.

        Args:
            noise: The noise D, (n,), float64.
        """
        return self if torch.equal(noise, self.noise) else Elimination(self.prior, self.border, noise)

    @property
    def is_sparse(self) -> bool:
        """Whether there are sparse latent values."""
        return bool(self.prior.fields)

    @cached_property
    def factor(self) -> Factor:
        """The factor of S."""
        return self.prior.pattern.factor(self.prior.entries, self.prior.matrix, (1 / self.noise).numpy())

    def factor_with(self, projector: sp.csr_array, noise: Array) -> Factor:
        """Return the factor of S + B^T E^-1 B, for further rows.

        Args:
            projector: The projection B of the further rows, (m, N).
            noise: Their noise E, (m,).
        """
        both = sp.csr_array(sp.vstack([self.prior.matrix, projector], format="csr"))
        precision = np.concatenate([1 / self.noise.numpy(), 1 / noise])
        return JointPattern.of(self.prior.fields, both).factor(self.prior.entries, both, precision)

    def over_noise(self, v: Tensor) -> Tensor:
        """Return D^-1 v, (n, p).

        The noise of whitened rows is 1, and v itself is returned.

        Args:
            v: The vectors v, (n, p).
        """
        return v if self._is_white else v / self.noise[:, None]

    @cached_property
    def _is_white(self) -> bool:
        return bool((self.noise == 1).all())

    @cached_property
    def _permuted(self) -> tuple[sp.csr_array, sp.csr_array]:
        """A and D^-1 A with columns in the order of elimination, (n, N)."""
        matrix, columns = self.prior.matrix, self.factor.analysis.inverse_order[self.prior.matrix.indices]
        over_noise = matrix.data / np.repeat(self.noise.numpy(), np.diff(matrix.indptr))
        arrays = (
            sp.csr_array((data, columns, matrix.indptr), shape=matrix.shape) for data in (matrix.data, over_noise)
        )
        projector, scaled = arrays
        return projector, scaled

    def _solves(self, columns: Tensor) -> Iterator[tuple[slice, Array]]:
        """Yield S^-1 A^T D^-1 B for blocks of columns of B, to bound the memory.

        Args:
            columns: The columns B at the rows, (n, F).

        Yields:
            The range of the columns, and their solutions (N, at most COLUMNS) with rows in the order of elimination.
            The next solutions overwrite them.
        """
        size, width = self.prior.matrix.shape[1], columns.shape[1]
        room = np.empty(size * min(COLUMNS, width))
        for begin in range(0, width, COLUMNS):
            part = slice(begin, min(begin + COLUMNS, width))
            x = room[: size * (part.stop - begin)].reshape(size, -1)
            x[:] = self._permuted[1].T @ columns[:, part].numpy()
            self.factor.solve_in_place(x)
            yield part, x

    @cached_property
    def coupling(self) -> Tensor:
        """Y = S^-1 A^T D^-1 Phi, (N, F), for predictions.

        The likelihood and its gradient do not need it.
        """
        out = self.border.new_zeros(self.prior.matrix.shape[1], self.border.shape[1])
        if self.is_sparse:
            for part, solved in self._solves(self.border):
                out.numpy()[self.factor.analysis.order, part] = solved
        return out

    @cached_property
    def reduced(self) -> Tensor:
        """Psi = Phi - A Y, (n, F)."""
        if not self.is_sparse:
            return self.border
        out = self.border.clone()
        for part, solved in self._solves(self.border):
            out.numpy()[:, part] -= self._permuted[0] @ solved
        return out

    @cached_property
    def border_factor(self) -> Tensor:
        """The lower Cholesky factor of C, (F, F)."""
        matrix = self.over_noise(self.border).mT @ self.reduced
        matrix = (matrix + matrix.mT) / 2
        if not self.is_sparse and bool(matrix.diagonal().sum() > MAX_TRACE):
            return self.by_orthogonalization(self.border[:, :0]).factor
        matrix.diagonal().add_(1)
        return cholesky(matrix, "The precision of the weights")

    def by_orthogonalization(self, residual: Tensor) -> WeightSolution:
        """Return the weights and the factor of C without C itself. There are no sparse latent values.

        Args:
            residual: The residual r, (n, k).
        """
        F, root = self.border.shape[1], self.noise.sqrt()[:, None]
        rows = torch.cat([self.border, residual], dim=1) / root
        return solve_root(torch.cat([rows, torch.eye(F, rows.shape[1], dtype=rows.dtype)]), F)

    @cached_property
    def log_determinant(self) -> float:
        """The log determinant of I + K D^-1, for the prior covariance K of the rows."""
        total = 2 * float(self.border_factor.diagonal().log().sum())
        return total + self.factor.log_determinant - self.prior.log_determinant if self.is_sparse else total

    @cached_property
    def border_products(self) -> BorderProducts:
        """Products of Y L_C^-T, accumulated over blocks of columns."""
        (rows, columns), projector = self.factor.analysis.pairs, self._permuted[0]
        reduced, points = self.half_reduced.numpy(), np.repeat(np.arange(projector.shape[0]), np.diff(projector.indptr))
        out = BorderProducts(np.zeros(len(rows)), np.zeros(projector.nnz))
        for part, half in self._solves(self.half_border(self.border)):
            add_outer(half, half, rows, columns, out.on_triangle)
            add_outer(reduced[:, part], half, points, projector.indices, out.on_projector)
        return out

    def half_border(self, border: Tensor) -> Tensor:
        """Return B L_C^-T, (n, F), with the Cholesky factor L_C of C.

        Args:
            border: The features B, (n, F).
        """
        out: Tensor = torch.linalg.solve_triangular(self.border_factor, border.mT, upper=False).mT
        return out

    @cached_property
    def half_reduced(self) -> Tensor:
        """Psi L_C^-T of the rows, (n, F). Its Gram matrix is Psi C^-1 Psi^T."""
        return self.half_border(self.reduced)

    @cached_property
    def row_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,)."""
        return self.variances(self.prior.matrix, self.half_reduced)

    def variances(self, projector: sp.csr_array, half: Tensor) -> Tensor:
        """Return the posterior variances at points.

        Those of A u are computed by the selected inverse if its pattern suffices, and otherwise by solves.

        Args:
            projector: The projection A of the points, (n, N).
            half: Psi L_C^-T of the points, (n, F), with Psi = Phi - A Y.

        Returns:
            The variances, (n,).
        """
        border = half.square().sum(1)
        if not self.is_sparse:
            return border
        sparse, covered = quadratic_forms(projector, self.prior.pattern.csr, self.factor.inverse)
        if not covered.all():
            sparse[~covered] = solved_forms(self.factor, projector[~covered])
        return border + torch.from_numpy(sparse)


# --- Gaussian regression on latent values with a sparse precision and a dense border of weights -----------------------


class BorderedSystem:
    """Rows given sparse latent values and dense weights.

    Args:
        elimination: The latent values and weights at the rows, for their noise.
        residual: The residual r, (n, k), float64.
        output_weights: The weight of the log marginal likelihood of each output, (k,). If None, 1.
    """

    def __init__(self, elimination: Elimination, residual: Tensor, output_weights: Tensor | None = None) -> None:
        self.elimination, self.residual = elimination, residual
        self.output_weights = residual.new_ones(residual.shape[1]) if output_weights is None else output_weights

    @classmethod
    def of_weights(cls, weights: Tensor, factor: Tensor) -> "BorderedSystem":
        """Return the known posterior of dense weights alone, without the rows.

        Args:
            weights: The posterior mean w, (F, k).
            factor: The lower Cholesky factor of C, (F, F).
        """
        none = SparseLatents((), sp.csr_array((0, 0)))
        system = cls(Elimination(none, weights.mT[:0], weights.new_zeros(0)), weights[:0])
        system.weights, system.elimination.border_factor = weights, factor
        return system

    def with_data(self, noise: Tensor, residual: Tensor, output_weights: Tensor) -> "BorderedSystem":
        """Return the system with other noise, residuals and weights of the outputs.

        For the same noise the factors are reused.

        Args:
            noise: The noise D, (n,), float64.
            residual: The residual r, (n, k), float64.
            output_weights: The weight of the log marginal likelihood of each output, (k,).
        """
        return BorderedSystem(self.elimination.with_noise(noise), residual, output_weights)

    @property
    def noise(self) -> Tensor:
        """D (n,)."""
        return self.elimination.noise

    @cached_property
    def weights(self) -> Tensor:
        """The posterior mean w, (F, k)."""
        elimination = self.elimination
        if not elimination.is_sparse and elimination.border_factor.square().sum() > MAX_TRACE:
            return elimination.by_orthogonalization(self.residual).weights
        target = elimination.reduced.mT @ elimination.over_noise(self.residual)
        return torch.cholesky_solve(target, elimination.border_factor)

    @cached_property
    def values(self) -> Tensor:
        """The posterior mean u, (N, k)."""
        elimination = self.elimination
        residual = elimination.over_noise(self.residual - elimination.border @ self.weights)
        target = elimination.prior.matrix.T @ residual.numpy()
        return torch.from_numpy(elimination.factor.solve(target) if elimination.is_sparse else target)

    @cached_property
    def fitted(self) -> Tensor:
        """The posterior mean A u + Phi w of f at the rows, (n, k)."""
        elimination = self.elimination
        return elimination.border @ self.weights + torch.from_numpy(elimination.prior.matrix @ self.values.numpy())

    @cached_property
    def residual_of_mean(self) -> Tensor:
        """The residual e of the posterior mean, (n, k)."""
        return self.residual - self.fitted

    def log_prob(self) -> Tensor:
        """Return the log marginal likelihood of y over all outputs, 0-d."""
        elimination = self.elimination
        determinants = self.noise.log().sum() + elimination.log_determinant
        squares = (self.residual_of_mean.square() / self.noise[:, None]).sum(0) + self.weights.square().sum(0)
        if elimination.is_sparse:
            squares = squares + (self.values * elimination.prior.times(self.values)).sum(0)
        return log_density(squares, determinants, self.output_weights, len(self.noise))

    # --- the gradient ----------------------------------------------------------------------------

    def in_border(self) -> Tensor:
        """Return the derivatives of the log marginal likelihood in Phi, (n, F)."""
        elimination = self.elimination
        gradient: Tensor = torch.linalg.solve_triangular(
            elimination.border_factor, elimination.half_reduced, upper=False, left=False
        )
        gradient.mul_(-self.output_weights.sum()).addmm_(self._counted, self.weights.mT)
        return elimination.over_noise(gradient)

    def in_noise(self) -> Tensor:
        """Return the derivatives of the log marginal likelihood in D, (n,)."""
        k, noise, variances = self.output_weights.sum(), self.noise, self.elimination.row_variances
        squares = self.residual_of_mean.square() @ self.output_weights
        return 0.5 * ((k * variances + squares) / noise.square() - k / noise)

    def in_residual(self) -> Tensor:
        """Return the derivatives of the log marginal likelihood in r, (n, k)."""
        return -self.elimination.over_noise(self._counted)

    def in_projector(self) -> Tensor:
        """Return derivatives of the log marginal likelihood in the entries of A, (nnz,)."""
        k, elimination, projector = float(self.output_weights.sum()), self.elimination, self.elimination.prior.matrix
        rows = np.repeat(np.arange(projector.shape[0]), np.diff(projector.indptr))
        entries = times_symmetric(projector, elimination.prior.pattern.csr, elimination.factor.inverse)  # A S^-1
        entries = k * (elimination.border_products.on_projector - entries)
        add_outer(self._counted.numpy(), self.values.numpy(), rows, projector.indices, entries)
        return torch.from_numpy(entries) / self.noise[torch.from_numpy(rows)]

    @property
    def _counted(self) -> Tensor:
        """The residual e times the weight of each output, (n, k)."""
        return self.residual_of_mean * self.output_weights

    def in_fields(self) -> list[Tensor]:
        """Return the derivatives of the likelihood in the parameters of each field.

        For each field these are the derivatives in the parameters (p,) and in the variance, 0-d.
        """
        if not self.elimination.is_sparse:
            return []
        k = float(self.output_weights.sum())
        return self.elimination.prior.pull_back(self._second_moments(k), k)

    def _second_moments(self, k: float) -> Array:
        """Return the entries of k (S^-1 + Y C^-1 Y^T) + sum_j c_j u_j u_j^T on the pattern, (nnz,)."""
        factor = self.elimination.factor
        values, (rows, columns) = self.values.numpy()[factor.analysis.order], factor.analysis.pairs
        out = k * self.elimination.border_products.on_triangle
        add_outer(values * self.output_weights.numpy(), values, rows, columns, out)
        return np.asarray(k * factor.inverse + factor.analysis.mirrored(out))


# --- The projection of sparse latent values and dense weights to rows ------------------------------------------------


def all_weights(prior: Prior, rows: Tensor) -> Weights:
    """Return the dense weights of a prior, and those of its kernels at the rows.

    Args:
        prior: The prior.
        rows: The inputs of the rows, (n, d), or positions (n,).
    """
    return Weights((*prior.weights, *(block.as_weights(rows) for block in prior.kernels)))


def sparse_blocks(prior: Prior, rows: Tensor) -> tuple[PrecisionBlock, ...]:
    """Return the precisions of a prior, and its neighbors as latent values at rows.

    Args:
        prior: The prior.
        rows: The inputs of the rows, (n, d), or positions (n,).
    """
    near = () if prior.neighbors is None else (latent_precision(prior.neighbors, rows, explained=prior.explained),)
    return (*prior.precisions, *near)


def joint_projector(blocks: Sequence[PrecisionBlock], inputs: Tensor) -> sp.csr_array:
    """Return the joint projection A = [A_1, A_2, ...] of n points, (n, N).

    It has no columns if there are no blocks.

    Args:
        blocks: The sparse blocks.
        inputs: The inputs of the points, (n, d), or positions (n,).
    """
    return side_by_side([block.projector(inputs) for block in blocks], len(inputs))


def side_by_side(parts: Sequence[sp.csr_array], count: int) -> sp.csr_array:
    """Return [A_1, A_2, ...], (n, N), without columns if there are no parts.

    Args:
        parts: The projections A_t, (n, N_t) each.
        count: The number n of points.
    """
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.hstack(parts, format="csr")) if parts else sp.csr_array((count, 0))


def bordered_system(
    blocks: Sequence[PrecisionBlock],
    projector: sp.csr_array,  # (n, N)
    border: Tensor,  # (n, F)
    noise: Tensor,  # (n,)
    residual: Tensor,  # (n, k)
    output_weights: Tensor | None = None,  # (k,)
    *,
    combines_non_neighbors: bool = False,
) -> BorderedSystem:
    """Return the regression of residuals on sparse blocks and features.

    The result has no gradients.

    Args:
        blocks: The sparse blocks, in the order of the columns of the projection.
        projector: The projection A to the rows.
        border: Phi of the rows.
        noise: The noise D of the rows.
        residual: The residual r of the rows.
        output_weights: The weight of the log marginal likelihood of each output. If None, 1.
        combines_non_neighbors: Whether a row depends on two values of a block that have no joint entry in Q. The
            default is False.
    """
    is_joined = combines_non_neighbors or any(block.combines_non_neighbors for block in blocks)
    prior = SparseLatents(blocks, projector, combines_non_neighbors=is_joined)
    return BorderedSystem(Elimination(prior, border.detach(), noise.detach()), residual.detach(), output_weights)


# --- The covariance of projected sparse latent values, as products and solves ----------------------------------------


class SparseOperator:
    """The covariance A S^-1 A^T of n points.

    The latent values have the posterior precision S. Methods have the arguments of those of `LatentOperator`.

    Args:
        system: The latent values given rows.
        projector: The projection A, (n, N).
    """

    def __init__(self, system: BorderedSystem, projector: sp.csr_array) -> None:
        self._system, self._projector = system, projector
        self._factor_with_points: tuple[Tensor, Factor] | None = None

    def __len__(self) -> int:
        return int(self._projector.shape[0])

    def times(self, v: Tensor) -> Tensor:
        """Return A S^-1 A^T v, (n, p)."""
        return torch.from_numpy(self._projector @ self._system.elimination.factor.solve(self._projector.T @ v.numpy()))

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (A S^-1 A^T + D)^-1 v, (n, p).

        It is computed as D^-1 (v - A (S + A^T D^-1 A)^-1 A^T D^-1 v). The factor for the last D is cached.
        """
        if self._factor_with_points is None or self._factor_with_points[0] is not noise:
            self._factor_with_points = noise, self._system.elimination.factor_with(self._projector, noise.numpy())
        scaled = v / noise[:, None]
        explained = self._factor_with_points[1].solve(self._projector.T @ scaled.numpy())
        return scaled - torch.from_numpy(self._projector @ explained) / noise[:, None]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from N(0, A S^-1 A^T).

        Returns:
            The draws, (n, count).
        """
        standard = torch.randn(self._projector.shape[1], count, generator=generator, dtype=torch.float64)
        return torch.from_numpy(self._projector @ self._system.elimination.factor.sample(standard.numpy()))


# --- The projection of sparse latent values and dense weights to points ----------------------------------------------


@dataclass(frozen=True, eq=False)
class BorderedProjection:
    """The projection f = offset + A u + Phi w + e of latent values u and weights w to n points.

    The latent values and the weights are given the rows.

    Attributes:
        system: The latent values u and weights w given the rows.
        sparse: The projection A, (n, N).
        dense: The features Phi, (n, F).
        conditional_variance: The variances (n,) of e, or its covariance (n, n).
        offset: The part of f that the rows determine, (n, k). The default is 0.
        inputs: The inputs of the points, if A is differentiated in them.
        slopes: The derivatives of A, and of the variances of e, in columns of the inputs.
    """

    system: BorderedSystem
    sparse: sp.csr_array
    dense: Tensor
    conditional_variance: Tensor
    offset: Tensor | float = 0.0
    inputs: Tensor | None = None
    slopes: Sequence[Slope] = ()

    @cached_property
    def reduced(self) -> Tensor:
        """Psi = Phi - A Y, (n, F)."""
        elimination = self.system.elimination
        if not elimination.is_sparse or not self.dense.shape[1]:
            return self.dense
        return self.dense - torch.from_numpy(self.sparse @ elimination.coupling.numpy())

    @property
    def variances(self) -> Tensor:
        """The variances (n,) of f."""
        variances = self.conditional_variance
        variances = variances if variances.ndim == 1 else variances.diagonal()
        elimination = self.system.elimination
        variances = elimination.variances(self.sparse, elimination.half_border(self.reduced)) + variances
        return self._with_slopes(variances, [self._variance_slope(slope) for slope in self.slopes]).clamp_min(0)

    @property
    def mean(self) -> Tensor:
        """The mean (n, k) of f."""
        system = self.system
        mean = self.dense @ system.weights + self.offset
        if not system.elimination.is_sparse:
            return mean
        values = system.values.numpy()
        slopes = [np.asarray(slope.projector @ values) for slope in self.slopes]
        return self._with_slopes(mean + torch.from_numpy(np.asarray(self.sparse @ values)), slopes)

    @property
    def root(self) -> Tensor:
        """A root (n, F + N) of the covariance of A u + Phi w."""
        elimination = self.system.elimination
        half = elimination.half_border(self.reduced)
        if not elimination.is_sparse:
            return half
        return torch.cat([half, torch.from_numpy(elimination.factor.half_solve(self.sparse.toarray().T).T)], dim=1)

    def _with_slopes(self, values: Tensor, slopes: Sequence[Array]) -> Tensor:
        """Return values (n, ...) whose derivatives in columns of the inputs include the slopes (n, ...)."""
        if self.inputs is None:
            return values
        columns = [slope.column for slope in self.slopes]
        return with_slopes(values, self.inputs, list(zip(columns, slopes, strict=True)))

    def _variance_slope(self, slope: Slope) -> Array:
        """Return the derivative (n,) of the variances in A, along A'.

        The variances V are quadratic in A. The derivative is (V(A + h A') - V(A - h A')) / 2h for any h, here |A| /
        |A'|.
        """
        elimination, size, slope_size = self.system.elimination, _norms(self.sparse), _norms(slope.projector)
        step = np.where((size > 0) & (slope_size > 0), size, 1.0) / np.where(slope_size > 0, slope_size, 1.0)
        moved = sp.csr_array(sp.diags_array(step) @ slope.projector)
        border = torch.from_numpy(moved @ elimination.coupling.numpy())
        ends = list[Array]()
        for sign in (1.0, -1.0):
            half = elimination.half_border(self.reduced.detach() - sign * border)
            ends.append(elimination.variances(sp.csr_array(self.sparse + sign * moved), half).numpy())
        return np.asarray((ends[0] - ends[1]) / (2 * step) + slope.conditional_variance)


class BorderedRows(NamedTuple):
    """The rows of a posterior, with their computed algebra."""

    system: BorderedSystem  # the latent values and weights given the rows
    weights: Weights  # the dense weights, including those of kernels at the rows
    blocks: Sequence[PrecisionBlock]  # in the order of the columns of A. Refined ones have the rows among their values

    @property
    def combines_non_neighbors(self) -> bool:
        """Whether a block combines values that have no entry in its precision."""
        return any(block.combines_non_neighbors for block in self.blocks)


def projects_singly(blocks: Sequence[PrecisionBlock]) -> bool:
    """Return whether single points have projections without a refined field.

    Otherwise they become values of a refined field.

    Args:
        blocks: The sparse blocks.
    """
    return all(block.refine is None or block.between is not None for block in blocks)


def _norms(matrix: sp.csr_array) -> Array:
    """Return the norms (n,) of the rows of a matrix (n, N)."""
    norms: Array = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).reshape(-1))
    return norms


# --- The posterior of sparse latent values and dense weights at points -----------------------------------------------


@dataclass(frozen=True, eq=False)
class BorderedPosterior(TermwisePosterior):
    """The posterior of sparse latent values and dense weights, stored as the rows.

    After loading, the factors are computed again from the rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior of precisions, weights, kernels and neighbors.
        inputs: The inputs of the rows, positions (n,) or (n, d).
        noise_diag: The noise D, (n,).
        targets: The centered targets y - mean, (n, k).
        known: The rows with their computed algebra. If None, it is computed on demand.
    """

    inputs: Tensor
    noise_diag: Tensor
    targets: Tensor
    known: BorderedRows | None = None

    serialized_fields = ("inputs", "noise_diag", "targets")

    @cached_property
    def _rows(self) -> BorderedRows:
        """The rows, which are among the values of refined fields."""
        return self.known or self._given(all_weights(self.prior, self.inputs), self.inputs)

    def _rows_with(self, inputs: Tensor) -> BorderedRows:
        """Return the rows, with n inputs, (n,) or (n, d), among the values of refined fields too."""
        return self._given(self._rows.weights, self.inputs, inputs) if self.prior.adds_latent_points else self._rows

    def _given(self, weights: Weights, *inputs: Tensor) -> BorderedRows:
        """Return the rows, with some inputs among the values of refined fields."""
        blocks = [block.refined(*inputs) for block in sparse_blocks(self.prior, self.inputs)]
        border, noise = weights.scaled(self.inputs).double(), self.noise_diag.double()
        data = joint_projector(blocks, self.inputs), border, noise, self.targets
        return BorderedRows(bordered_system(blocks, *data), weights, blocks)

    @property
    def width(self) -> int:
        """The number of entries of a point: features and projections of latent values."""
        return self._rows.weights.num_features + (COLUMNS if projects_singly(self.prior.precisions) else 1)

    def project(self, inputs: Tensor) -> BorderedProjection:
        """Return the projections of n single points, (n, d) or positions (n,)."""
        return self._project(self._rows if projects_singly(self.prior.precisions) else self._rows_with(inputs), inputs)

    def _project(self, rows: BorderedRows, inputs: Tensor) -> BorderedProjection:
        """Return the projections of n single points given the rows."""
        out = self._projection(rows, inputs)
        return replace(out, inputs=inputs, slopes=list(self._slopes(rows, inputs))) if self._is_smooth(inputs) else out

    def _is_smooth(self, inputs: Tensor) -> bool:
        """Return whether projections of sparse blocks are differentiated in the inputs."""
        is_smooth = any(block is not None and block.slopes is not None for block in self._predicted(self._rows))
        return torch.is_grad_enabled() and inputs.requires_grad and is_smooth

    def _predicted(self, rows: BorderedRows) -> list[PrecisionBlock | None]:
        """Return the sparse blocks of the predicted sum at points, None for those that are not in it."""
        return [block if self.terms is None else block.of(self.terms) for block in rows.blocks]

    def _projection(self, rows: BorderedRows, inputs: Tensor, *, jointly: bool = False) -> BorderedProjection:
        """Return the projections of n points, with conditional variances (n,), or jointly with covariances (n, n)."""
        dense = rows.weights.scaled(inputs).double()
        dense = dense if self.terms is None else dense * rows.weights.of(self.terms)
        residual, parts = rows.weights.with_residuals_of(self.terms), list[sp.csr_array]()
        conditional = torch.zeros((len(inputs),) * (2 if jointly else 1), dtype=torch.float64)
        missing = residual.residual_covariance if jointly else residual.residual_variance
        conditional = conditional + missing(inputs, dense)
        for block, predicted in zip(rows.blocks, self._predicted(rows), strict=True):
            if predicted is None:
                part = sp.csr_array((len(inputs), block.size))
            else:
                part, own = (predicted.joint_projection if jointly else predicted.marginal_projection)(inputs)
                conditional = conditional + own
            parts.append(part)
        return BorderedProjection(rows.system, side_by_side(parts, len(inputs)), dense, conditional)

    def _slopes(self, rows: BorderedRows, inputs: Tensor) -> Iterator[Slope]:
        """Yield the derivatives of the projections of n points in columns of their inputs."""
        parts = [sp.csr_array((len(inputs), block.size)) for block in rows.blocks]
        for number, predicted in enumerate(self._predicted(rows)):
            for slope in [] if predicted is None else predicted.marginal_slopes(inputs):
                slope_parts = [slope.projector if i == number else part for i, part in enumerate(parts)]
                yield slope._replace(projector=side_by_side(slope_parts, len(inputs)))

    def joints(
        self,
        inputs: Tensor,
        parts: Sequence["BorderedPosterior"],
        projected: Sequence[OnDemand],
    ) -> Sequence[Joint]:
        """Return the joint projections of at most 2,000 points for sums of terms.

        Raises:
            InvalidArgumentError: If there are more points, or latent neighbors are divided.
            NotDifferentiableError: If inputs of sparse blocks require gradients.
        """
        are_neighbors = any(block.joint is not None for block in self._rows.blocks)
        check_joint(len(inputs), len(self.inputs) if are_neighbors else 0)
        check_divided(self.prior, *(part.terms for part in parts if part.terms is not None))
        if any(part._is_smooth(inputs) for part in parts):
            raise NotDifferentiableError(
                "X must not require gradients for covariances and samples of sparse precisions and neighbors, got X "
                "that does. Use predict(X.detach()), or Exact()."
            )
        rows = self._rows_with(inputs)
        joints = [part._projection(rows, inputs, jointly=True) for part in parts]
        if not are_neighbors:
            return [Joint(joint) for joint in joints]
        pairs = zip(projected, joints, strict=True)
        return [Joint(joint, joint_scales(single().variances, joint.variances)) for single, joint in pairs]

    def between(self, left: BorderedProjection, right: BorderedProjection) -> Tensor:
        """Return the covariance (n, n) of A u + Phi w."""
        elimination = left.system.elimination
        out = elimination.half_border(left.reduced) @ elimination.half_border(right.reduced).mT
        if elimination.is_sparse:
            out = out + torch.from_numpy(products(elimination.factor, left.sparse, right.sparse))
        return (out + out.mT) / 2 if left is right else out

    def residual_covariance(self, inputs: Tensor, projected: BorderedProjection) -> Tensor:
        """Return the covariance (n, n) given the latent values and weights."""
        return projected.conditional_variance

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the posterior covariance (n, n) as products and solves, or None.

        The result is None if the covariance must be formed. It must be formed if there are dense weights, residuals, or
        inputs that require gradients.
        """
        if self._rows.weights.blocks or self._rows.combines_non_neighbors or self._is_smooth(inputs):
            return None
        projection = self._project(self._rows_with(inputs), inputs)
        return SparseOperator(projection.system, projection.sparse)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior.

        Given w, u has the mean of u minus Y (w - E w), and the precision S.

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If a block is defined at given positions only, or has a residual.
        """
        system, weights, _ = self._rows
        if self.prior.adds_latent_points or weights.has_residual or self._rows.combines_non_neighbors:
            raise InvalidArgumentError(
                "This process has no functions to draw, because it is defined at given positions only. Use "
                "predict(X).sample() instead."
            )
        k = self.targets.shape[1]
        sizes = system.elimination.prior.matrix.shape[1], len(system.weights)
        z, e = (torch.randn(size, count * k, generator=generator, dtype=torch.float64) for size in sizes)
        deviation = torch.linalg.solve_triangular(system.elimination.border_factor.mT, e, upper=True)
        u = system.values.repeat(1, count) - system.elimination.coupling @ deviation
        w = system.weights.repeat(1, count) + deviation
        if system.elimination.is_sparse:
            u = u + torch.from_numpy(system.elimination.factor.sample(z.numpy()))

        def functions(inputs: Tensor) -> Tensor:
            projection = self.project(inputs)
            values = projection.dense @ w + torch.from_numpy(np.asarray(projection.sparse @ u.numpy()))
            out: Tensor = values.reshape(len(inputs), count, k).movedim(0, 1)
            return out

        return functions

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag and targets by name."""
        return {"noise_diag": (n,), "targets": (n, k)}

    def of(self, names: Sequence[str]) -> Self:
        """Return the posterior of the sum of some terms, with the same factors.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        return replace(super().of(names), known=self._rows)


# --- The solver of sparse precisions and dense weights, for rows in memory -------------------------------------------


class BorderedSolver(Solver):
    """Rows under a sum of sparse precisions and dense weights, exactly.

    Blocks with a covariance function become weights at the rows (`KernelBlock.as_weights`). Nearest neighbors become
    latent values (`latent_precision`).

    Args:
        prior: Precisions, weights, kernels and neighbors, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
        like: A solver of the same prior and inputs whose algebra is shared. If None, it is computed.

    Examples:
        >>> from rfgp.blocks import WeightBlock
        >>> prior = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> rows = Block(torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double())
        >>> solver = BorderedSolver(prior, rows, torch.zeros(1).double(), torch.tensor(1.0).double())
        >>> solver.fitted.round(decimals=4).tolist()  # x w with w = x^T y / (1 + x^T x) = 5 / 6
        [[0.8333], [1.6667]]
    """

    def __init__(self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor, like: "Self | None" = None) -> None:
        self._prior, self._like = prior, like
        self._blocks: list[PrecisionBlock] = []
        if like is None:
            self._blocks = [block.refined(rows.inputs) for block in sparse_blocks(prior, rows.inputs)]
            self._border: Tensor = all_weights(prior, rows.inputs).scaled(rows.inputs).double()
        else:
            self._blocks, self._border = like._blocks, like._border
        super().__init__(rows, mean, noise, features=(prior.dense, self._border))

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs.

        For the same noise the factors are reused.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        return type(self)(self._prior, rows, mean, noise, self)

    @cached_property
    def system(self) -> BorderedSystem:
        """The linear algebra of the rows."""
        numbers = self._noise.detach(), self._residual.detach(), self._rows.output_weights
        if self._like is not None:
            like, self._like = self._like, None  # a chain of solvers would keep the algebra of all of them
            return like.system.with_data(*numbers)
        data = joint_projector(self._blocks, self._rows.inputs), self._border, *numbers
        return bordered_system(self._blocks, *data)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        of_fields = [tensor.double() for block in self._blocks for tensor in (block.values, block.variance)]
        inputs = (self._border, self._noise, self._residual, *of_fields)
        return with_gradient(self._value, *inputs) + self._other_terms

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        return self.system.log_prob(), self._gradients

    def _gradients(self) -> list[Tensor]:
        system = self.system
        return [system.in_border(), system.in_noise(), system.in_residual(), *system.in_fields()]

    @property
    def solved(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""
        return self.system.residual_of_mean / self.system.noise[:, None]

    @property
    def precisions(self) -> Tensor:
        """The diagonal (D_i - v_i) / D_i^2 of C^-1, with the posterior variances v of f at the rows, (n,)."""
        return (self.system.noise - self.system.elimination.row_variances) / self.system.noise.square()

    @property
    def fitted(self) -> Tensor:
        """The posterior mean of f at the rows, (n, k)."""
        return self.system.fitted

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,)."""
        return self.system.elimination.row_variances

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        return self.system.noise.new_tensor(self.system.elimination.log_determinant)

    @property
    def effective_dof_fraction(self) -> float | None:
        """The effective degrees of freedom of the F weights over F, or None without any."""
        factor = self.system.elimination.border_factor
        return 1 - float(torch.cholesky_inverse(factor).diagonal().mean()) if len(factor) else None

    def posterior(self) -> Posterior:
        """Return the posterior for predictions, without gradients.

        If the prior has dense weights only, it is a `LowRankPosterior`, which does not store the rows. Otherwise it is
        a `BorderedPosterior` with the rows and their factorization.
        """
        if self._prior.has_weights_only:
            covariance = FactorCovariance(self.system.elimination.border_factor)
            return LowRankPosterior(self._prior.detached(), self.system.weights, covariance)
        prior, rows, system = self._prior.detached(), self._rows.inputs, self.system
        known = BorderedRows(system, all_weights(prior, rows), [block.detached() for block in self._blocks])
        return BorderedPosterior(prior, rows, system.noise, system.residual, known)


# --- The choice of a sparse factor for latent neighbors, by operations and memory ------------------------------------

FLOPS_EXPONENT = 1.5
"""The exponent of the growth of operations in the number of rows, a lower bound for two columns or more. It saves the
analysis of all rows where the factor is clearly too large."""
MAX_ROUNDING_ERROR = 1e-3
"""The maximum rounding error of a precision, in units of the precision of a row's noise. It bounds the relative errors
of variances."""


def bordered_latent(prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> BorderedSolver | None:
    """Return the solver of latent nearest neighbors by a sparse factor.

    The number of operations is first extrapolated from the factor of a sample of many rows.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.

    Returns:
        The solver, or None if the factor is too large or its rounding errors are not small relative to the noise.
    """
    size, count, max_flops = len(rows), limits().pattern_rows, limits().max_elimination_flops
    if prior.graph_features:
        return None
    if size > count:
        known = prior.detached()
        sample = rows.inputs[neighbors_of(known).order(size)[:count]]
        analysis = latent_precision(neighbors_of(known), sample, explained=known.explained).field.analysis
        if analysis.flops * (size / count) ** FLOPS_EXPONENT > max_flops:
            return None
    solver = BorderedSolver(prior, rows, mean, noise)
    elimination = solver.system.elimination
    with suppress(MemoryBudgetError):
        analysis = elimination.prior.pattern.analyze()
        analysis.check_fits()
        largest = float(np.abs(elimination.prior.entries[-1]).max())
        error = float(np.finfo(np.float64).eps) * largest * float(elimination.noise.max())
        if analysis.flops <= max_flops and error <= MAX_ROUNDING_ERROR:
            return solver
    return None
