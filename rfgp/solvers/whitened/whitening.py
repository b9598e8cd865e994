"""The whitening of rows under a block of nearest neighbors with noise.

Let V^T V = (G + D)^-1, with the covariance G of the block of neighbors at the rows (`rfgp.local.factor`). V (y - mean)
is a linear model of noise 1: V Phi w + V A u + e, e ~ N(0, I), with u of a sparse precision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock, Prior, predecessors_in_blocks
from rfgp.linalg import half_solve
from rfgp.local import whitened, whitened_transpose
from rfgp.solvers.bordered.projections import all_weights, bordered_system, joint_projector
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.kriging import explained_columns, features, neighbors_of
from rfgp.sparse import EntryPattern, SparseValues, times_sparse


@dataclass(frozen=True, eq=False)
class Whitener:
    """The whitener V (r, n) of n ordered rows, or of r of them given their neighbors.

    Attributes:
        entries: The entries of V (nnz,), with gradients.
        pattern: The neighbors of each row, with the row itself as the last, (r, n).
    """

    entries: Tensor
    pattern: EntryPattern

    @classmethod
    def of(
        cls,
        prior: Prior,
        x: Tensor,  # (n, d)
        noise: Tensor,  # (n,)
        phi: Tensor,  # (n, F)
        pattern: EntryPattern,  # (r, n)
    ) -> "Whitener":
        """Return the whitener of ordered rows.

        Args:
            prior: The prior with neighbors.
            x: The inputs of the rows.
            noise: The noise variances of the rows.
            phi: The features of the dense weights, and possibly further ones, at the rows.
            pattern: The neighbors of each row, with the row itself as the last.
        """
        columns = explained_columns(prior, phi)
        return cls(neighbors_of(prior).inverse_factor(x, noise, pattern, columns), pattern)

    def times(self, dense: Tensor) -> Tensor:
        """Return V B, (r, c), float64.

        Args:
            dense: The matrix B, (n, c).
        """
        return whitened(self.entries, dense, self.pattern)

    def back(self, dense: Tensor) -> Tensor:
        """Return V^T B, (n, c), float64, without gradients.

        Args:
            dense: The matrix B, (r, c).
        """
        return whitened_transpose(self.entries, dense, self.pattern)

    def times_sparse(self, projector: sp.csr_array) -> SparseValues:
        """Return V A, (r, N).

        Args:
            projector: The projection A, (n, N).
        """
        return times_sparse(self.entries, self.pattern, projector)

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant log|V|, the sum of the logarithms of its diagonal, 0-d."""
        return self.entries[torch.from_numpy(self.pattern.indptr[1:] - 1)].log().sum()

    @property
    def matrix(self) -> sp.csr_array:
        """V (r, n), without gradients."""
        return SparseValues(self.entries, self.pattern).matrix()

    @property
    def row_indices(self) -> Tensor:
        """The indices of the whitened rows, (r,)."""
        return torch.from_numpy(self.pattern.indices[self.pattern.indptr[1:] - 1])

    @property
    def precisions(self) -> Tensor:
        """The diagonal of V^T V, (n,), without gradients."""
        squares = self.entries.detach().square()
        zeros = torch.zeros(self.pattern.shape[1], dtype=torch.float64)
        return zeros.index_add(0, torch.from_numpy(self.pattern.indices), squares)


def white_system(
    blocks: Sequence[PrecisionBlock],
    projector: sp.csr_array,  # (r, N)
    dense: Tensor,  # (r, F)
    targets: Tensor,  # (r, k)
    output_weights: Tensor | None = None,  # (k,)
) -> BorderedSystem:
    """Return the regression of whitened targets on whitened projections and features.

    Args:
        blocks: The sparse blocks, in the order of the columns of the projection.
        projector: The whitened projection V A.
        dense: The whitened features V Phi.
        targets: The whitened targets V (y - mean).
        output_weights: The weight of the log marginal likelihood of each output. If None, 1.
    """
    ones = torch.ones(len(targets), dtype=torch.float64)
    return bordered_system(blocks, projector, dense, ones, targets, output_weights, combines_non_neighbors=True)


class WhiteRows:
    """Ordered rows under neighbors and other blocks, for projections to new points.

    Args:
        prior: The prior of neighbors, weights, kernels and sparse precisions.
        inputs: The inputs of the rows, (n, d).
        targets: The centered targets y - mean, (n, k).
        noise: The noise variances of the rows, (n,).
        system: The regression of the whitened rows. If None, it is computed on demand.
    """

    def __init__(
        self, prior: Prior, inputs: Tensor, targets: Tensor, noise: Tensor, system: BorderedSystem | None = None
    ) -> None:
        self._prior, self.inputs, self.targets, self.noise = prior, inputs, targets, noise
        self.weights, self._known = all_weights(prior, inputs), system

    def regression_for(self, inputs: Tensor) -> tuple[Sequence[PrecisionBlock], BorderedSystem | None]:
        """Return the sparse precisions for new points, and the regression of the rows.

        Refined precisions have the new points among their values.

        Args:
            inputs: The inputs of the new points, (n, d).

        Returns:
            The precisions, and the regression, or None if there are no precisions.
        """
        if not self._prior.precisions:
            return (), None
        if not self._prior.adds_latent_points:
            return self._prior.precisions, self._system
        blocks = [block.refined(self.inputs, inputs) for block in self._prior.precisions]
        return blocks, self._regression(blocks)

    def weighted_sums(self, blocks: Sequence[PrecisionBlock], weights: sp.csr_array) -> tuple[Tensor, sp.csr_array]:
        """Return weighted sums of the features (q, F) and the projections (q, N) of rows.

        Args:
            blocks: The sparse precisions.
            weights: The weights of the rows, (q, n).
        """
        rows = np.unique(weights.indices)
        inputs = self.inputs[torch.from_numpy(rows)]
        weights = sp.csr_array(weights[:, rows])
        dense = features(self._prior, self.weights, inputs).numpy()
        return torch.from_numpy(weights @ dense), sp.csr_array(weights @ joint_projector(blocks, inputs))

    @cached_property
    def _system(self) -> BorderedSystem:
        return self._known or self._regression(self._prior.precisions)

    def _regression(self, blocks: Sequence[PrecisionBlock]) -> BorderedSystem:
        whitener, dense, targets = self._white
        projector = whitener.times_sparse(joint_projector(blocks, self.inputs)).matrix()
        return white_system(blocks, projector, dense, targets)

    @cached_property
    def _white(self) -> tuple[Whitener, Tensor, Tensor]:
        """The whitener, and the features (n, F) and targets (n, k) whitened."""
        phi = features(self._prior, self.weights, self.inputs)
        pattern = predecessors_in_blocks(neighbors_of(self._prior), self.inputs)
        whitener = Whitener.of(self._prior, self.inputs, self.noise, phi, pattern)
        both = whitener.times(torch.cat([phi, self.targets], dim=1))
        return whitener, both[:, : phi.shape[1]], both[:, phi.shape[1] :]


def half_solved(system: BorderedSystem | None, factor: Tensor, dense: Tensor, sparse: sp.csr_array) -> Tensor:
    """Return a root (q, F + N) of the posterior covariance of Phi w + A u.

    Args:
        system: The regression. If None, there are no latent values u.
        factor: The Cholesky factor of the precision of the weights, (F, F).
        dense: The features Phi, (q, F).
        sparse: The projection A, (q, N).
    """
    if system is None:
        return half_solve(factor, dense.mT).mT
    elimination = system.elimination
    half = elimination.half_border(dense - torch.from_numpy(np.asarray(sparse @ elimination.coupling.numpy())))
    return torch.cat([half, torch.from_numpy(elimination.factor.half_solve(sparse.toarray().T).T)], dim=1)
