"""The joint system of sparse latent values and a border of dense weights: pattern, elimination and log density.

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
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphs.cholesky import Factor, analyze
from graphs.precisions import MarkovField
from graphs.precisions.base import Pattern
from rfgp.autograd import as_array
from rfgp.blocks import PrecisionBlock
from rfgp.blocks.prior import COLUMNS, Array, factorized, solved_forms
from rfgp.linalg import cholesky
from rfgp.solvers.lowrank.statistics import MAX_TRACE, WeightSolution, solve_root
from rfgp.solvers.role import log_density
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

    csr: Pattern
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
        csr = Pattern(union.indptr.astype(np.int64), union.indices.astype(np.int32))
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


def positions(csr: Pattern, part: sp.csr_array, offset: int = 0) -> NDArray[np.int64]:
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
