"""Sparse features as linear operators, which are differentiable in their values only.

`linear_operator` splits an operator into tensors and rebuilds it. It differentiates in each tensor, and indexes and
expands it by batch. The indices of a sparse matrix must not take part in this. They are therefore in a frozen object
that is not a tensor, and are passed as a keyword argument.
"""

import math
from typing import Any

import numpy as np
import torch
from linear_operator.operators import LinearOperator, MatmulLinearOperator, RootLinearOperator, to_linear_operator
from torch import Tensor

from rfgp.sparse import SparsityPattern, gram, product


class SparseLinearOperator(LinearOperator):
    """A sparse matrix (..., n, N), or a batch of them on one pattern.

    Args:
        values: Values (..., nnz) of the entries of the pattern.
        pattern: The sparsity pattern (n, N).

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from rfgp.gpytorch import SparseLinearOperator
        >>> from rfgp.sparse import SparsityPattern
        >>> pattern = SparsityPattern(indptr=np.array([0, 1, 3]), indices=np.array([0, 0, 1]), shape=(2, 2))
        >>> SparseLinearOperator(torch.tensor([1.0, 3.0, 2.0]), pattern).to_dense().tolist()
        [[1.0, 0.0], [3.0, 2.0]]
    """

    def __init__(self, values: Tensor, pattern: SparsityPattern) -> None:
        super().__init__(values, pattern=pattern)
        self.values, self.pattern = values, pattern

    def take(
        self,
        rows: Tensor,  # (b,)
    ) -> "SparseLinearOperator":  # (..., b, N)
        """Return some of the rows.

        Args:
            rows: The indices (b,) of the rows.
        """
        pattern, entries = self.pattern.take(rows.cpu().numpy())
        return SparseLinearOperator(self.values[..., entries.to(self.device)], pattern)

    def squares(self) -> Tensor:
        """Return the sums of the squares of the rows, (..., n)."""
        out = self.values.new_zeros(*self.batch_shape, self.pattern.shape[0])
        return out.index_add(-1, _tensor(self.pattern.rows, self.values), self.values.square())

    def to_dense(self) -> Tensor:
        """Return the matrix (..., n, N)."""
        flat = self.values.new_zeros(*self.batch_shape, math.prod(self.pattern.shape))
        flat = flat.index_copy(-1, _tensor(self.pattern.keys, self.values), self.values)
        return flat.reshape(self._size())

    def _size(self) -> torch.Size:
        return torch.Size((*self.values.shape[:-1], *self.pattern.shape))

    def _matmul(self, rhs: Tensor) -> Tensor:
        return product(self.values, rhs, self.pattern)

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return self._transpose_nonbatch()._matmul(rhs)

    def _transpose_nonbatch(self) -> "SparseLinearOperator":
        pattern, order = self.pattern.transposed
        return SparseLinearOperator(self.values[..., order.to(self.device)], pattern)

    def _expand_batch(self, batch_shape: Any) -> "SparseLinearOperator":
        return SparseLinearOperator(self.values.expand(*batch_shape, self.values.shape[-1]), self.pattern)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        return SparseLinearOperator(self.values * other.unsqueeze(-1), self.pattern)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        keys = row_index.cpu().numpy() * self.pattern.shape[1] + col_index.cpu().numpy()
        own = self.pattern.keys
        if len(own) == 0:
            return self.values.new_zeros(keys.shape)
        places = np.minimum(np.searchsorted(own, keys), len(own) - 1)
        stored = own[places] == keys
        found = self.values[(*batch_indices, _tensor(places, self.values))]
        return torch.where(_tensor(stored, self.values), found, 0)

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        plain = isinstance(col_index, slice) and col_index == slice(None)
        plain = plain and not any(isinstance(index, Tensor) for index in batch_indices)
        plain = plain and (isinstance(row_index, slice) or row_index.ndim == 1)
        if not plain:
            return super()._getitem(row_index, col_index, *batch_indices)
        part = SparseLinearOperator(self.values[batch_indices], self.pattern) if batch_indices else self
        if isinstance(row_index, slice) and row_index == slice(None):
            return part
        rows = torch.arange(self.pattern.shape[0], device=self.device)
        return part.take(rows[row_index])


class SparseRootLinearOperator(RootLinearOperator):
    """Phi Phi^T (..., n, n) for sparse Phi (..., n, N).

    Args:
        root: Phi. Other operators or tensors give a `RootLinearOperator`.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from rfgp.gpytorch import SparseLinearOperator, SparseRootLinearOperator
        >>> from rfgp.sparse import SparsityPattern
        >>> pattern = SparsityPattern(indptr=np.array([0, 1, 3]), indices=np.array([0, 0, 1]), shape=(2, 2))
        >>> SparseRootLinearOperator(SparseLinearOperator(torch.tensor([1.0, 3.0, 2.0]), pattern)).to_dense().tolist()
        [[1.0, 3.0], [3.0, 13.0]]
    """

    def to_dense(self) -> Tensor:
        """Return the matrix (..., n, n)."""
        return _dense_gram(self.root, self.root) if _is_single(self.root) else super().to_dense()

    def _diagonal(self) -> Tensor:
        return self.root.squares() if isinstance(self.root, SparseLinearOperator) else super()._diagonal()

    def _prod_batch(self, dim: int) -> LinearOperator:
        # linear_operator pads an odd batch by a root of the wrong scale where roots are not square
        return to_linear_operator(self.to_dense().prod(dim))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        if not _is_single(self.root):
            return super()._get_indices(row_index, col_index, *batch_indices)
        rows, places = torch.cat([row_index.reshape(-1), col_index.reshape(-1)]).unique(return_inverse=True)
        some = self.root.take(rows)
        left, right = places[: row_index.numel()], places[row_index.numel() :]
        return _dense_gram(some, some)[left.reshape(row_index.shape), right.reshape(row_index.shape)]


class SparseProductLinearOperator(MatmulLinearOperator):
    """Phi_1 Phi_2^T (..., n, k) for sparse factors with the same number of columns.

    Args:
        left: Phi_1 (..., n, N).
        right: Phi_2^T (..., N, k).
    """

    def to_dense(self) -> Tensor:
        """Return the matrix (..., n, k)."""
        left, right = self.left_linear_op, self.right_linear_op
        if _is_single(left) and _is_single(right):
            return _dense_gram(left, right._transpose_nonbatch())
        return super().to_dense()


def _is_single(operator: Any) -> bool:
    return isinstance(operator, SparseLinearOperator) and operator.values.ndim == 1


def _dense_gram(a: SparseLinearOperator, b: SparseLinearOperator) -> Tensor:
    return gram(a.values, a.pattern, b.values, b.pattern)


def _tensor(array: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(array)).to(like.device)
