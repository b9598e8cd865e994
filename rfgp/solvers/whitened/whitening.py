"""The whitener V of rows under a block of nearest neighbours with their noise, and rows that it has whitened.

With V^T V = (G + D)^-1, G the covariance of the neighbours' block at the rows (`rfgp.local.factor`), V (y - mean) is a
linear model of noise 1: V Phi w + V A u + e, e ~ N(0, I), with u of a sparse precision.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock, Prior
from rfgp.local import whitened, whitened_back
from rfgp.solvers.bordered.reads import latents_of
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.nearby import neighbors_of
from rfgp.sparse import SparseValues, SparsityPattern, times_sparse


@dataclass(frozen=True, eq=False)
class Whitener:
    """V (r, n) of n rows in order, or of r of them given their neighbours.

    Attributes:
        entries: The entries of V (nnz,), with gradients.
        pattern: The neighbours of each row, and the row itself as the last, (r, n).
    """

    entries: Tensor
    pattern: SparsityPattern

    @classmethod
    def of(
        cls,
        prior: Prior,
        x: Tensor,  # (n, d)
        noise: Tensor,  # (n,)
        phi: Tensor,  # (n, F)
        pattern: SparsityPattern,  # (r, n)
    ) -> "Whitener":
        """Return the whitener of rows with inputs x and features Phi of the dense weights, and others after them."""
        own = phi[:, : prior.num_features]
        return cls(neighbors_of(prior).inverse_factor(x, noise, pattern, own), pattern)

    def times(self, dense: Tensor) -> Tensor:
        """Return V B (r, c), float64, for B (n, c)."""
        return whitened(self.entries, dense, self.pattern)

    def back(self, dense: Tensor) -> Tensor:
        """Return V^T B (n, c), float64, without gradients, for B (r, c)."""
        return whitened_back(self.entries, dense, self.pattern)

    def times_sparse(self, reads: sp.csr_array) -> SparseValues:
        """Return V A (r, N) for reads A (n, N)."""
        return times_sparse(self.entries, self.pattern, reads)

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant log|V|, the sum of the logarithms of its diagonal, 0-d."""
        return self.entries[torch.from_numpy(self.pattern.indptr[1:] - 1)].log().sum()

    @property
    def matrix(self) -> sp.csr_array:
        """V (r, n), without gradients."""
        return SparseValues(self.entries, self.pattern).matrix()

    @property
    def own(self) -> Tensor:
        """The rows that are whitened, (r,)."""
        return torch.from_numpy(self.pattern.indices[self.pattern.indptr[1:] - 1])

    @property
    def precisions(self) -> Tensor:
        """The diagonal of V^T V, (n,), without gradients."""
        squares = self.entries.detach().square()
        zeros = torch.zeros(self.pattern.shape[1], dtype=torch.float64)
        return zeros.index_add(0, torch.from_numpy(self.pattern.indices), squares)


def white_system(
    blocks: Sequence[PrecisionBlock],
    reads: sp.csr_array,  # (r, N)
    dense: Tensor,  # (r, F)
    targets: Tensor,  # (r, k)
    each: Tensor | None = None,  # (k,)
) -> BorderedSystem:
    """Return the regression of whitened targets on whitened reads of sparse precisions and whitened features."""
    ones = torch.ones(len(targets), dtype=torch.float64)
    numbers = dense.detach(), ones, targets.detach(), each
    return BorderedSystem(latents_of(blocks), reads, *numbers, mixes=True)
