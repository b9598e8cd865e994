"""Products of sparse features of nodes and dense features of columns."""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import Array
from rfgp.blocks import SparseProductBlock
from rfgp.solvers.iterative.parts import Part
from rfgp.solvers.iterative.role import Matrix, SparseTerm, Term, TermProjection
from rfgp.sparse import KhatriRao, multiply, row_blocks, sampled_outer
from rfgp.sparse.khatri_rao import ENTRIES

MAX_DENSE_GRAM = 2**13
"""The maximum number of rows whose H H^T is formed as a dense matrix, of 512 MB."""
DENSE_SPEED = 4
"""The speed of a dense product relative to a sparse one."""
OPERATIONS_PER_SUM = 8
"""The number of operations for each row and function in sums over the rows of a node and in their transpose."""


class KhatriRaoPart(Part):
    """H = diag(s) M with a Khatri-Rao product M of sparse and dense features.

    Methods have the arguments of those of `Part`.

    Args:
        matrix: The product M, (n, N F).
        scale: The scale s, (n,), or one for all rows.
    """

    def __init__(self, matrix: KhatriRao, scale: float | Array) -> None:
        self._unscaled, self._scale = matrix, np.broadcast_to(scale, matrix.shape[:1])
        self._matrix, self.num_columns = matrix.scaled(self._scale), matrix.shape[1]

    def over(self, deviation: Tensor) -> "KhatriRaoPart":
        """Return the part D^-1 H, for a diagonal D (n,)."""
        return KhatriRaoPart(self._unscaled, self._scale / deviation.numpy())

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        return torch.from_numpy(self._matrix.times(u.numpy()))

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N F, p)."""
        return torch.from_numpy(self._matrix.transposed_times(v.numpy()))

    def times(self, v: Tensor) -> Tensor:
        """Return H H^T v, (n, p).

        It is computed through H H^T if that is small or sparse, and otherwise through products of distinct nodes.
        """
        if self._dense_gram is not None:
            return self._dense_gram @ v
        if self._small_gram is not None:
            return torch.from_numpy(self._matrix.gram_times(v.numpy(), self._small_gram))
        if self._sparse_gram is not None:
            return torch.from_numpy(multiply(self._sparse_gram, v.numpy()))
        return self.root_times(self.transposed_root_times(v))

    @cached_property
    def _dense_gram(self) -> Tensor | None:
        """H H^T (n, n) if there are few rows, and not many more than distinct nodes."""
        n, size = self._matrix.shape[0], self._matrix.num_functions
        by_nodes = size * (self._matrix.left.shape[0] ** 2 + OPERATIONS_PER_SUM * n)
        few = n <= MAX_DENSE_GRAM and n**2 <= by_nodes
        return torch.from_numpy(self._matrix.gram(self._matrix)) if few else None

    @cached_property
    def _small_gram(self) -> Array | None:
        """The products (U, U) of the distinct rows of the sparse factor, if they take few operations."""
        left = self._matrix.left
        few = left.shape[0] ** 2 <= DENSE_SPEED * 2 * left.nnz
        return np.asarray((left @ left.T).toarray()) if few else None

    @cached_property
    def _sparse_gram(self) -> list[sp.csr_array] | None:
        """H H^T in blocks of rows, if it takes no more operations than two products with M."""
        rows, grams = self._matrix.rows, self._grams_of_nodes()
        if grams is None:
            return None
        gram = sp.csr_array(grams[rows][:, rows])
        gram.sort_indices()
        right = torch.from_numpy(self._matrix.right)
        gram.data = gram.data * sampled_outer(right, right, gram).numpy()
        return row_blocks(gram)

    def _grams_of_nodes(self) -> sp.csr_array | None:
        """Return the products (U, U) of the distinct rows of the sparse factor, or None if H H^T has too many entries.

        Blocks of rows are formed until there are too many entries, because all of them may not fit into memory.
        """
        left, total, grams = self._matrix.left, 0.0, []
        counts = np.bincount(self._matrix.rows, minlength=left.shape[0]).astype(np.float64)
        max_entries, transposed = 2.0 * left.nnz * self._matrix.num_functions, left.T.tocsr()
        size = max(1, ENTRIES // left.shape[0])
        for first in range(0, left.shape[0], size):
            chunk = slice(first, first + size)
            block = sp.csr_array(left[chunk] @ transposed)
            total += counts[chunk] @ ((block != 0) @ counts)
            if total > max_entries:
                return None
            grams.append(block)
        return sp.csr_array(sp.vstack(grams))


class ProductTerm(SparseTerm, Term):
    """A term f = s (phi kron psi) w with sparse phi and dense psi.

    Its coordinates are s w, (N F,). Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows, (rows, D).
    """

    def __init__(self, block: SparseProductBlock, inputs: Tensor) -> None:
        super().__init__(block)
        self.width, self._block, self._features = block.num_functions, block, block.factors(inputs, keep=True)

    @cached_property
    def _phi(self) -> KhatriRao:
        """The features (rows, N F) of the rows."""
        return self._features.matrix()

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """The columns (c,) of the sparse factor of phi with entries."""
        return np.flatnonzero(np.bincount(self._phi.left.indices))

    @cached_property
    def part(self) -> KhatriRaoPart:
        """The columns of s (phi kron psi) with entries."""
        return KhatriRaoPart(self._phi.restricted(self.used), self.s2**0.5)

    def project(self, inputs: Tensor) -> TermProjection:
        """Return the features (n, N F) of n points."""
        return TermProjection(self._block.factors(inputs, keep=False).matrix())

    def cross(self, matrix: Matrix) -> Tensor:
        """Return s^2 (phi kron psi) X^T, (rows, n)."""
        return torch.from_numpy(self.s2 * self._phi.gram(matrix))

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return s^2 X X^T, (n, n)."""
        return torch.from_numpy(self.s2 * matrix.gram(matrix))

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return s^2 |X_i|^2, (n,)."""
        return torch.from_numpy(self.s2 * projection.matrix.squares())

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return s^2 (phi kron psi)^T a, (N F, p), in the precision of a."""
        return self.s2 * torch.from_numpy(self._phi.transposed_times(coefficients.numpy()))

    def joined(self, inputs: Tensor) -> KhatriRaoPart:
        """Return all columns of s (phi kron psi), (rows + n, N F).

        The rows are followed by the points.
        """
        return KhatriRaoPart(self._phi.above(self.project(inputs).matrix), self.s2**0.5)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in phi, in psi and in s^2.

        The gradient in phi is that in the entries on its pattern.

        With Z = (phi kron psi)^T v these are s^2 sum_f,p (psi_f v_p signs_p) Z_fp^T and s^2 v_p phi Z_fp.
        """
        values, pattern = self._features.left
        psi, v = self._features.right, vectors.numpy()
        signed = np.ascontiguousarray(v * signs.numpy())
        gathered = self._phi.transposed_times(v).reshape(-1, psi.shape[1], v.shape[1])
        in_values, in_psi = torch.zeros(len(values), dtype=torch.float64), torch.empty(psi.shape, dtype=torch.float64)
        for f in range(psi.shape[1]):
            weighted = np.ascontiguousarray(gathered[:, f])
            summed = self._phi.summed(signed, slice(f, f + 1))[:, 0]
            in_values += sampled_outer(torch.from_numpy(summed), torch.from_numpy(weighted), pattern)
            projected = np.asarray(self._phi.left @ weighted)[self._phi.rows]
            in_psi[:, f] = torch.from_numpy(np.einsum("np,np->n", signed, projected))
        in_variance = 0.5 * float(np.einsum("nfp,nfp,p->", gathered, gathered, signs.numpy()))
        return self.s2 * ((values * in_values).sum() + (psi * in_psi).sum()) + self.block_variance * in_variance
