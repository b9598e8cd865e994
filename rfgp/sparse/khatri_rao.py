"""Row-wise Kronecker products (Khatri-Rao products) of a sparse and a dense matrix, without forming them.

Row i of the product has the entry left_ij right_if in the column j F + f. Rows of the sparse factor often repeat.
Only its distinct rows are stored, with the index of the distinct row of each row.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import Array
from rfgp.sparse.patterns import Indices, SparseValues, SparsityPattern
from rfgp.sparse.products import gram, multiply, row_blocks, with_columns

ENTRIES = 2**22
"""The maximum number of entries of an intermediate array."""


@dataclass(frozen=True, eq=False)
class KhatriRao:
    """The row-wise Kronecker product (n, N F) of a sparse and a dense matrix.

    Attributes:
        left: The distinct rows of the sparse factor, (U, N).
        rows: The index of the distinct row of each row, (n,).
        right: The dense factor, (n, F).

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from rfgp.sparse import KhatriRao
        >>> matrix = KhatriRao(sp.csr_array([[1.0, 2.0]]), np.array([0]), np.array([[3.0, 4.0]]))
        >>> matrix.times(np.eye(4)).tolist()
        [[3.0, 4.0, 6.0, 8.0]]
    """

    left: sp.csr_array
    rows: Indices
    right: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(n, N F)."""
        return len(self.rows), int(self.left.shape[1]) * self.num_functions

    @property
    def num_functions(self) -> int:
        """The number F of columns of the dense factor."""
        return int(self.right.shape[1])

    def times(self, u: Array) -> Array:
        """Return the product (n, p) with u (N F, p), in the precision of u.

        Args:
            u: The right factor, (N F, p).
        """
        (count, width), p = self.left.shape, u.shape[1]
        blocks = row_blocks(self.left.astype(u.dtype, copy=False))
        wide = np.ascontiguousarray(u).reshape(width, self.num_functions, p)
        out = np.zeros((len(self.rows), p), dtype=u.dtype)
        for chunk in self._chunks(p):
            size = chunk.stop - chunk.start
            read = multiply(blocks, wide[:, chunk].reshape(width, size * p)).reshape(count, size, p)
            self._add_read(read, chunk, out)
        return out

    def transposed_times(self, v: Array) -> Array:
        """Return the product (N F, p) of the transpose with v, in the precision of v.

        Args:
            v: The right factor, (n, p).
        """
        (count, width), p = self.left.shape, v.shape[1]
        transposed = row_blocks(self.left.T.tocsr().astype(v.dtype, copy=False))
        out = np.empty((width, self.num_functions, p), dtype=v.dtype)
        for chunk in self._chunks(p):
            size = chunk.stop - chunk.start
            summed = self.summed(v, chunk).reshape(count, size * p)
            out[:, chunk] = multiply(transposed, summed).reshape(width, size, p)
        return out.reshape(width * self.num_functions, p)

    def summed(self, v: Array, chunk: slice) -> Array:
        """Return the sums (U, f, p) of right_if v_i over rows.

        The rows i are those of each distinct row, and f are some columns.

        Args:
            v: (n, p).
            chunk: The columns f.
        """
        right = self.right[:, chunk].astype(v.dtype, copy=False)
        size, p = right.shape[1], v.shape[1]
        products = (right[:, :, None] * v[:, None, :]).reshape(len(v), size * p)
        return np.asarray(self._members.astype(v.dtype) @ products).reshape(self.left.shape[0], size, p)

    def gram_times(self, v: Array, small: Any) -> Array:
        """Return the product (n, p) of the matrix and its transpose with v (n, p).

        Args:
            v: (n, p).
            small: The products (U, U) of the distinct rows of the sparse factor, a sparse matrix or an array.
        """
        out = np.zeros_like(v)
        for chunk in self._chunks(v.shape[1]):
            summed = self.summed(v, chunk)
            flat = summed.reshape(len(summed), summed.shape[1] * summed.shape[2])
            self._add_read(np.asarray(small @ flat).reshape(summed.shape), chunk, out)
        return out

    def _add_read(self, read: Array, chunk: slice, out: Array) -> None:
        """Add sum_f right_if read_uf to out (n, p), for some columns f.

        u is the distinct row of row i.

        Args:
            read: (U, f, p).
            chunk: The columns.
            out: (n, p).
        """
        right = self.right[:, chunk].astype(out.dtype, copy=False)
        for column in range(right.shape[1]):
            out += right[:, column, None] * read[self.rows, column]

    def gram(self, other: "KhatriRao") -> Array:
        """Return the products (n, m) of its rows with those of another matrix.

        They are products of the entries of two Gram matrices.

        Args:
            other: The other matrix, (m, N F).
        """
        small = np.asarray((self.left @ other.left.T).toarray())
        out: Array = small[self.rows][:, other.rows] * (self.right @ other.right.T)
        return out

    def squares(self) -> Array:
        """Return the squared norms of the rows, (n,)."""
        norms: Array = np.asarray(self.left.power(2).sum(1))[self.rows] * np.square(self.right).sum(1)
        return norms

    def scaled(self, scale: Array) -> "KhatriRao":
        """Return the matrix with rows times a scale (n,).

        Args:
            scale: The factor of each row, (n,).
        """
        return KhatriRao(self.left, self.rows, self.right * scale[:, None])

    def restricted(self, columns: NDArray[np.int64]) -> "KhatriRao":
        """Return the matrix with some columns (c,) of its sparse factor.

        They must include all columns with entries.

        Args:
            columns: The indices of the columns, (c,).
        """
        return KhatriRao(with_columns(self.left, columns), self.rows, self.right)

    def above(self, other: "KhatriRao") -> "KhatriRao":
        """Return the rows of the matrix, followed by those of another one (m, N F).

        Args:
            other: The other matrix, (m, N F).

        Returns:
            The matrix, (n + m, N F).
        """
        left = sp.csr_array(sp.vstack([self.left, other.left]))
        rows = np.concatenate([self.rows, self.left.shape[0] + other.rows])
        return KhatriRao(left, rows, np.concatenate([self.right, other.right]))

    @cached_property
    def _members(self) -> sp.csr_array:
        """The indicators of the rows of each distinct row, (U, n)."""
        n = len(self.rows)
        return sp.coo_array((np.ones(n), (self.rows, np.arange(n))), shape=(self.left.shape[0], n)).tocsr()

    def _chunks(self, p: int) -> list[slice]:
        """Return ranges of columns of the dense factor.

        Their products with p columns have at most `ENTRIES` entries.
        """
        size = max(1, ENTRIES // max(1, p * max(len(self.rows), int(self.left.shape[1]))))
        return [slice(a, min(a + size, self.num_functions)) for a in range(0, self.num_functions, size)]


class KhatriRaoValues(NamedTuple):
    """A Khatri-Rao product with gradients in its factors."""

    left: SparseValues  # (U, N)
    rows: Indices  # (n,)
    right: Tensor  # (n, F)

    def matrix(self) -> KhatriRao:
        """Return the matrix (n, N F) without gradients."""
        return KhatriRao(self.left.matrix(), self.rows, self.right.detach().numpy())

    def formed(self) -> SparseValues:
        """Return the product (n, N F) itself.

        Its values have the gradients of both factors.
        """
        whole = self.left.pattern
        pattern, entries = SparsityPattern(whole.indptr, whole.indices, whole.shape).take(self.rows)
        size = self.right.shape[1]
        values = self.left.values[entries][:, None] * self.right[torch.from_numpy(pattern.rows)]
        indices = (pattern.indices[:, None] * size + np.arange(size)).reshape(-1)
        shape = len(self.rows), pattern.shape[1] * size
        return SparseValues(values.reshape(-1), SparsityPattern(pattern.indptr * size, indices, shape))

    def gram(self, other: "KhatriRaoValues") -> Tensor:
        """Return the products (n, m) of its rows with another product's, with gradients.

        Args:
            other: The other product, (m, N F).
        """
        small = gram(self.left.values, self.left.pattern, other.left.values, other.left.pattern)
        indices = torch.from_numpy(self.rows)[:, None], torch.from_numpy(other.rows)
        return small[indices] * (self.right @ other.right.mT)

    def squares(self) -> Tensor:
        """Return the squared norms of the rows, (n,), with gradients."""
        return self.left.squares()[torch.from_numpy(self.rows)] * self.right.square().sum(1)
