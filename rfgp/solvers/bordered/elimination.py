"""The elimination of sparse latent values and dense weights, for a given noise.

See `rfgp.solvers.bordered.system` for the formulas.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks.precision import COLUMNS, Array, Factor, solved_forms
from rfgp.linalg import cholesky
from rfgp.solvers.bordered.latent import SparseLatents
from rfgp.solvers.bordered.pattern import JointPattern
from rfgp.solvers.lowrank.statistics import MAX_TRACE, WeightSolution, solve_root
from rfgp.sparse import add_outer, quadratic_forms, transposed_product


class BorderProducts(NamedTuple):
    """Products of the border's half of the posterior covariance."""

    on_triangle: Array  # Y C^-1 Y^T on the factored triangle of S, (e,)
    on_projector: Array  # Psi C^-1 Y^T on the pattern of A, (nnz,)


class RowSolves:
    """Solves with S for right-hand sides A^T D^-1 B, with B (n, F) at the rows.

    Args:
        factor: The factor of S.
        projector: The projection A, (n, N).
        noise: The noise D, (n,).
    """

    def __init__(self, factor: Factor, projector: sp.csr_array, noise: Array) -> None:
        self._factor, columns = factor, factor.analysis.inverse_order[projector.indices]
        over_noise = projector.data / np.repeat(noise, np.diff(projector.indptr))
        self.projector = sp.csr_array((projector.data, columns, projector.indptr), shape=projector.shape)
        """A with columns in the order of elimination, (n, N)."""
        self._over_noise = sp.csr_array((over_noise, columns, projector.indptr), shape=projector.shape)

    def blocks(self, columns: Tensor) -> Iterator[tuple[slice, Array]]:
        """Yield S^-1 A^T D^-1 B for blocks of columns of B, to bound the memory.

        Args:
            columns: The columns B at the rows, (n, F).

        Yields:
            The range of the columns, and their solutions (N, at most COLUMNS) with rows in the order of elimination.
            The next solutions overwrite them.
        """
        size, width = self.projector.shape[1], columns.shape[1]
        room = np.empty(size * min(COLUMNS, width))
        for begin in range(0, width, COLUMNS):
            part = slice(begin, min(begin + COLUMNS, width))
            x = room[: size * (part.stop - begin)].reshape(size, -1)
            transposed_product(self._over_noise, columns[:, part].numpy(), x)
            self._factor.solve_in_place(x)
            yield part, x


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
        return bool(self.prior.latents)

    @cached_property
    def factor(self) -> Factor:
        """The factor of S."""
        pattern, precision = self.prior.pattern, (1 / self.noise).numpy()
        return pattern.factor(pattern.add_gram(pattern.total(self.prior.entries), self.prior.matrix, precision))

    def factor_with(self, projector: sp.csr_array, noise: Array) -> Factor:
        """Return the factor of S + B^T E^-1 B, for further rows.

        Args:
            projector: The projection B of the further rows, (m, N).
            noise: Their noise E, (m,).
        """
        both = sp.csr_array(sp.vstack([self.prior.matrix, projector], format="csr"))
        precision = np.concatenate([1 / self.noise.numpy(), 1 / noise])
        pattern = JointPattern.of([latent.field for latent in self.prior.latents], both)
        return pattern.factor(pattern.add_gram(pattern.total(self.prior.entries), both, precision))

    def solve(self, b: Tensor) -> Tensor:
        """Return S^-1 b, (N, p).

        Args:
            b: The right-hand sides, (N, p).
        """
        if not self.is_sparse or not b.shape[1]:
            return b.new_zeros(self.prior.matrix.shape[1], b.shape[1])
        return torch.from_numpy(self.factor.solve(b.numpy()))

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
    def _solves(self) -> RowSolves:
        return RowSolves(self.factor, self.prior.matrix, self.noise.numpy())

    @cached_property
    def coupling(self) -> Tensor:
        """Y = S^-1 A^T D^-1 Phi, (N, F), for predictions.

        The likelihood and its gradient do not need it.
        """
        out = self.border.new_zeros(self.prior.matrix.shape[1], self.border.shape[1])
        if self.is_sparse:
            for part, solved in self._solves.blocks(self.border):
                out.numpy()[self.factor.analysis.order, part] = solved
        return out

    @cached_property
    def reduced(self) -> Tensor:
        """Psi = Phi - A Y, (n, F)."""
        if not self.is_sparse:
            return self.border
        out = self.border.clone()
        for part, solved in self._solves.blocks(self.border):
            out.numpy()[:, part] -= self._solves.projector @ solved
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
        (rows, columns), projector = self.factor.analysis.pairs, self._solves.projector
        reduced, points = self.half_reduced.numpy(), np.repeat(np.arange(projector.shape[0]), np.diff(projector.indptr))
        out = BorderProducts(np.zeros(len(rows)), np.zeros(projector.nnz))
        for part, half in self._solves.blocks(self.half_border(self.border)):
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
        return self._variances(self.prior.matrix, self.half_reduced)

    def variances(self, projector: sp.csr_array, reduced: Tensor) -> Tensor:
        """Return the posterior variances at points.

        Args:
            projector: The projection A of the points, (n, N).
            reduced: Psi = Phi - A Y of the points, (n, F).

        Returns:
            The variances, (n,).
        """
        return self._variances(projector, self.half_border(reduced))

    def _variances(self, projector: sp.csr_array, half: Tensor) -> Tensor:
        border = half.square().sum(1)
        if not self.is_sparse:
            return border
        return border + torch.from_numpy(sparse_variances(self.factor, self.prior.pattern, projector))


def sparse_variances(factor: Factor, pattern: JointPattern, projector: sp.csr_array) -> Array:
    """Return the diagonal of A S^-1 A^T.

    It is computed by the selected inverse if its pattern suffices, and otherwise by solves.

    Args:
        factor: The factor of S.
        pattern: The pattern of S.
        projector: The projection A, (n, N).

    Returns:
        The diagonal, (n,).
    """
    out, covered = quadratic_forms(projector, pattern.csr, factor.inverse)
    if not covered.all():
        out[~covered] = solved_forms(factor, projector[~covered])
    return out
