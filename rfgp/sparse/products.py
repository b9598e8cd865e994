"""Sparse matrix products with gradients in their values, on given patterns, and matrices with one interface."""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import Array, as_array, once
from rfgp.errors import InvalidArgumentError
from rfgp.threads import in_threads, num_threads

# --- Patterns of the entries of sparse matrices, in CSR form ---------------------------------------------------------

Indices = NDArray[np.integer[Any]]


class Pattern(Protocol):
    """Interface: the entries of a sparse matrix (n, N) row by row, columns increasing."""

    @property
    def indptr(self) -> Indices:
        """The index of the first entry of each row, and the number of entries, (n + 1,)."""

    @property
    def indices(self) -> Indices:
        """The columns, (nnz,)."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, N)."""


class SparseValues(NamedTuple):
    """A sparse matrix: the values (nnz,), with gradients, on a pattern."""

    values: Tensor
    pattern: Pattern

    def matrix(self, dtype: Any = np.float64) -> sp.csr_array:
        """Return the matrix (n, N) without gradients.

        Args:
            dtype: The dtype of the matrix. The default is float64.
        """
        values = self.values.detach().cpu().numpy().astype(dtype, copy=False)
        return sp.csr_array((values, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape)

    def squares(self) -> Tensor:
        """Return the squared norms of the rows, (n,), with gradients."""
        count = self.pattern.shape[0]
        rows = torch.from_numpy(np.repeat(np.arange(count), np.diff(self.pattern.indptr)))
        return self.values.new_zeros(count).index_add(0, rows, self.values.square())


@dataclass(frozen=True, eq=False)
class EntryPattern:
    """The entries of a sparse matrix (n, N) row by row, with columns in any order.

    Attributes:
        indptr: The index of the first entry of each row, and the number of entries, (n + 1,).
        indices: The columns, (nnz,).
        shape: The shape (n, N).

    Raises:
        InvalidArgumentError: If rows do not follow each other, or columns are out of range.

    Examples:
        >>> EntryPattern(np.array([0, 2, 3]), np.array([1, 0, 1]), (2, 2)).rows.tolist()
        [0, 0, 1]
    """

    indptr: Indices
    indices: Indices
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        starts, columns = (np.asarray(a, dtype=np.int64) for a in (self.indptr, self.indices))
        object.__setattr__(self, "indptr", starts)
        object.__setattr__(self, "indices", columns)
        bounded = len(columns) == 0 or (columns.min() >= 0 and columns.max() < self.shape[1])
        whole = len(starts) == self.shape[0] + 1 and starts[0] == 0 and starts[-1] == len(columns)
        if not whole or not bounded or (starts[1:] < starts[:-1]).any():
            raise InvalidArgumentError(
                f"A pattern must have the row starts and columns of a matrix of shape {self.shape}, got "
                f"{len(starts)} starts and {len(columns)} columns, some out of range. Take them from a CSR matrix."
            )

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it is immutable

    @cached_property
    def rows(self) -> Indices:
        """The row of each entry, (nnz,)."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def take(
        self,
        rows: Indices,  # (b,)
    ) -> tuple[Self, Tensor]:
        """Return the pattern (b, N) of some rows, and its entries' indices in this one.

        Args:
            rows: The indices of the rows, (b,).
        """
        counts = np.diff(self.indptr)[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(starts[-1]) + np.repeat(self.indptr[:-1][rows] - starts[:-1], counts)
        return type(self)(starts, self.indices[entries], (len(rows), self.shape[1])), torch.from_numpy(entries)


class SparsityPattern(EntryPattern):
    """The entries of a sparse matrix (n, N) with increasing columns in each row.

    Raises:
        InvalidArgumentError: If columns repeat or decrease within a row, or are out of range.

    Examples:
        >>> pattern = SparsityPattern(np.array([0, 2, 3]), np.array([0, 1, 1]), (2, 2))
        >>> pattern.transposed[0].indices.tolist()
        [0, 0, 1]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool((np.diff(self.keys) <= 0).any()):
            raise InvalidArgumentError(
                "The columns of each row must increase, got a repeated or decreasing one. Sort them and sum duplicates."
            )

    @cached_property
    def keys(self) -> Indices:
        """The position row N + column of each entry in the dense matrix.

        The positions (nnz,) increase.
        """
        return self.rows * self.shape[1] + self.indices

    @cached_property
    def transposed(self) -> tuple["SparsityPattern", Tensor]:
        """The pattern (N, n) of the transpose.

        The second result has the index of each of its entries here, (nnz,).
        """
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=self.shape[1])
        starts = np.concatenate([[0], np.cumsum(counts)])
        return SparsityPattern(starts, self.rows[order], self.shape[::-1]), torch.from_numpy(order)


# --- Products of sparse matrices with gradients in their values, and entries of products on a pattern ----------------

_ENTRIES = 2**22
_SMALL, _DENSE_SPEED = 2**20, 16
"""The multiplications below which a product may be dense, and the speed of dense ones relative to sparse ones.

A Gram matrix with its gradient takes a third of the time for 1,000 rows with 30 % of the entries."""
IN_THREADS = 2**21
"""The multiplications from which a product uses threads."""


class _Gram(torch.autograd.Function):
    """Phi_a Phi_b^T for two sparse patterns, differentiable in both values."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, pattern_a: Pattern, pattern_b: Pattern) -> Tensor:
        left = SparseValues(a, pattern_a).matrix()
        right = left if a is b and pattern_a is pattern_b else SparseValues(b, pattern_b).matrix()
        ctx.left, ctx.right = left, right
        ctx.save_for_backward(a, b)
        if _is_better_dense(left, right):
            return (torch.from_numpy(left.toarray()) @ torch.from_numpy(right.toarray()).mT).to(a)
        return torch.as_tensor((left @ right.T).toarray()).to(a)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        is_same = ctx.left is ctx.right

        def in_a(grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
            upstream = as_array(grad)
            return torch.as_tensor(
                sampled_product(upstream + upstream.T if is_same else upstream, ctx.right, ctx.left)
            ).to(a)

        def in_b(grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return torch.as_tensor(sampled_product(as_array(grad).T, ctx.left, ctx.right)).to(b)

        tensors = (grads[0], *ctx.saved_tensors)
        grad_a = once(in_a, *tensors) if ctx.needs_input_grad[0] else None
        grad_b = once(in_b, *tensors) if ctx.needs_input_grad[1] and not is_same else None
        return grad_a, grad_b, None, None


def gram(a: Tensor, pattern_a: Pattern, b: Tensor, pattern_b: Pattern) -> Tensor:
    """Return Phi_a Phi_b^T (n_a, n_b), dense, from values (nnz,) on their patterns.

    Args:
        a: The values of Phi_a.
        pattern_a: Its pattern.
        b: The values of Phi_b.
        pattern_b: Its pattern.

    Examples:
        >>> pattern = SparsityPattern(np.array([0, 1, 3]), np.array([1, 0, 1]), (2, 2))
        >>> values = torch.tensor([1.0, 2.0, 3.0])
        >>> gram(values, pattern, values, pattern).tolist()
        [[1.0, 3.0], [3.0, 13.0]]
    """
    out: Tensor = _Gram.apply(a, b, pattern_a, pattern_b)
    return out


def sampled_product(
    dense: Array,  # (n, k)
    right: sp.csr_array,  # (k, N)
    pattern: sp.csr_array,  # (n, N)
) -> Array:  # (nnz,)
    """Return the entries of dense @ right on a pattern.

    Large products use threads for blocks of rows.

    Args:
        dense: The left matrix, (n, k).
        right: The right matrix, (k, N).
        pattern: The pattern, (n, N).

    Returns:
        The entries, (nnz,).

    Examples:
        >>> pattern = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
        >>> sampled_product(np.array([[1.0], [2.0]]), sp.csr_array([[3.0, 4.0]]), pattern).tolist()
        [4.0, 6.0]
    """
    from rfgp.sparse import loops

    if _is_better_dense(pattern, right):
        rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
        whole = torch.from_numpy(dense) @ torch.from_numpy(right.toarray())
        return np.asarray(whole.numpy()[rows, pattern.indices])
    by_column, dense = right.tocsc(), np.ascontiguousarray(dense)
    out = np.empty(pattern.nnz)
    fixed = (dense, by_column.indptr, by_column.indices, by_column.data, pattern.indptr, pattern.indices, out)
    if np.diff(by_column.indptr)[pattern.indices].sum() < IN_THREADS:
        loops.sampled_product(0, pattern.shape[0], *fixed)
        return out
    bounds = np.linspace(0, pattern.shape[0], num_threads() + 1, dtype=np.int64)
    in_threads(lambda a, b: loops.sampled_product(a, b, *fixed), list(itertools.pairwise(bounds)))
    return out


def _is_better_dense(left: sp.csr_array, right: sp.csr_array) -> bool:
    """Return whether a product of matrices (n, N) and (k, N) is faster dense.

    It must also fit into `_ENTRIES`.
    """
    (n, size), k = left.shape, len(right.indptr) - 1
    if (n + k) * size > _ENTRIES:
        return False
    return bool(n * k * size <= _SMALL or left.nnz * right.nnz * _DENSE_SPEED > n * k * size * size)


def sampled_outer(left: Tensor, right: Tensor, pattern: Any) -> Tensor:
    """Return the entries of left @ right^T on a pattern, (nnz,), float64.

    Args:
        left: The left factor, (n, p).
        right: The right factor, (N, p).
        pattern: The pattern, (n, N).

    Examples:
        >>> pattern = SparsityPattern(np.array([0, 1, 2]), np.array([1, 0]), (2, 2))
        >>> one = torch.tensor([[1.0], [2.0]]).double()
        >>> sampled_outer(one, one, pattern).tolist()
        [2.0, 2.0]
    """
    out, rows = np.zeros(len(pattern.indices)), np.repeat(np.arange(len(left)), np.diff(pattern.indptr))
    add_outer(as_array(left), as_array(right), rows, pattern.indices, out)
    return torch.from_numpy(out)


def add_outer(
    left: Array,  # (a, p)
    right: Array,  # (b, p)
    rows: NDArray[np.integer[Any]],  # (e,)
    columns: NDArray[np.integer[Any]],  # (e,)
    out: Array,  # (e,)
) -> None:
    """Add the entries of left @ right^T at some rows and columns to `out`.

    Args:
        left: (a, p).
        right: (b, p).
        rows: The row of each entry, (e,).
        columns: The column of each entry, (e,).
        out: The entries, (e,), which are changed.

    Examples:
        >>> one, out = np.array([[1.0], [2.0]]), np.zeros(2)
        >>> add_outer(one, one, np.array([0, 1]), np.array([1, 1]), out)
        >>> out.tolist()
        [2.0, 4.0]
    """
    from rfgp.sparse import loops

    indices = rows.astype(np.int32, copy=False), columns.astype(np.int32, copy=False)
    loops.add_outer(np.ascontiguousarray(left), np.ascontiguousarray(right), *indices, out)


def product(
    values: Tensor,  # (..., nnz)
    dense: Tensor,  # (..., N, c), or (N,)
    pattern: SparsityPattern,
) -> Tensor:  # (..., n, c), or (n,)
    """Return the product of sparse and dense matrices, broadcast over batches.

    Args:
        values: The values of the sparse matrices, (..., nnz).
        dense: The dense matrices, (..., N, c), or a vector (N,).
        pattern: The pattern (n, N) of the sparse matrices.

    Returns:
        The products, (..., n, c) or (n,).

    Examples:
        >>> pattern = SparsityPattern(np.array([0, 1, 3]), np.array([1, 0, 1]), (2, 2))
        >>> product(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0]), pattern).tolist()
        [10.0, 32.0]
    """
    if dense.ndim == 1:
        return product(values, dense[:, None], pattern).squeeze(-1)
    if values.ndim == 1:  # the batch of the dense side becomes columns
        columns = dense.movedim(-2, 0)
        out: Tensor = _Product.apply(values, columns.reshape(len(columns), -1), pattern)
        return out.reshape(len(out), *columns.shape[1:]).movedim(0, -2)
    batch = torch.broadcast_shapes(values.shape[:-1], dense.shape[:-2])
    values = values.expand(*batch, -1).reshape(-1, values.shape[-1])
    dense = dense.expand(*batch, -1, -1).reshape(-1, *dense.shape[-2:])
    parts = [_Product.apply(v, b, pattern) for v, b in zip(values, dense, strict=True)]
    return torch.stack(parts).reshape(*batch, pattern.shape[0], dense.shape[-1])


class _Product(torch.autograd.Function):
    """S B (n, c) for sparse S (n, N) with values (nnz,) and dense B (N, c).

    It is differentiable any number of times. For upstream G (n, c), d/dB = S^T G and d/dS_ij = sum_c G_ic B_jc on the
    pattern.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, dense: Tensor, pattern: SparsityPattern) -> Tensor:
        ctx.save_for_backward(values, dense)
        ctx.pattern = pattern
        if values.device.type == "cpu":
            matrix = sp.csr_array((values.detach().numpy(), pattern.indices, pattern.indptr), shape=pattern.shape)
            return torch.as_tensor(matrix @ dense.detach().numpy()).to(values)
        indices = torch.stack([_tensor(pattern.rows, values), _tensor(pattern.indices, values)])
        return torch.sparse_coo_tensor(indices, values, pattern.shape, is_coalesced=True) @ dense

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (values, dense), pattern = ctx.saved_tensors, ctx.pattern
        grad_values = grad_dense = None
        if ctx.needs_input_grad[0]:
            rows, columns = _tensor(pattern.rows, values), _tensor(pattern.indices, values)
            grad_values = sum(
                (grads[0][:, c][rows] * dense[:, c][columns] for c in range(dense.shape[1])), torch.zeros_like(values)
            )
        if ctx.needs_input_grad[1]:
            transposed, order = pattern.transposed
            grad_dense = _Product.apply(values[order.to(values.device)], grads[0], transposed)
        return grad_values, grad_dense, None


def _tensor(array: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(array)).to(like.device)


def selection(positions: Tensor, size: int) -> sp.csr_array:
    """Return the matrix (n, N) that selects values at positions.

    Args:
        positions: The positions, (n,).
        size: The number N of values.

    Examples:
        >>> selection(torch.tensor([1]), 2).toarray().tolist()
        [[0.0, 1.0]]
    """
    count = len(positions)
    return sp.csr_array((np.ones(count), positions.numpy(), np.arange(count + 1)), shape=(count, size))


def row_blocks(matrix: sp.csr_array) -> list[sp.csr_array]:
    """Return blocks (b, N) of the rows of a matrix, one for each thread.

    They have about equally many entries.

    Args:
        matrix: The matrix, (n, N).
    """
    count = num_threads()
    if count == 1:
        return [matrix]
    ends = np.searchsorted(matrix.indptr, np.linspace(0, matrix.nnz, count + 1)[1:-1]).tolist()
    return [matrix[a:b] for a, b in itertools.pairwise([0, *ends, matrix.shape[0]])]


def multiply(blocks: list[sp.csr_array], v: NDArray[Any]) -> NDArray[Any]:
    """Return the product of a matrix in blocks of rows with v.

    Large products use threads.

    Args:
        blocks: The blocks of rows, from `row_blocks`.
        v: (N, p).

    Returns:
        The product, (n, p).

    Examples:
        >>> matrix = sp.csr_array([[1.0, 2.0], [0.0, 3.0]])
        >>> multiply(row_blocks(matrix), np.array([[1.0], [1.0]])).tolist()
        [[3.0], [3.0]]
    """
    if len(blocks) == 1 or sum(block.nnz for block in blocks) * v.shape[1] < IN_THREADS:
        return np.concatenate([block @ v for block in blocks])
    return np.concatenate(in_threads(lambda block: block @ v, [(block,) for block in blocks]))


# --- Products of sparse matrices with themselves and with symmetric ones, on given patterns --------------------------

_UNCOVERED = (
    "The precision must have an entry for each pair of latent values of a row, got a pair without one. "
    "Add the entry, which may be 0."
)


def gram_on(
    matrix: sp.csr_array,  # (n, N)
    pattern: Any,
    weights: Array | None = None,  # (n,)
) -> Array:  # (nnz,)
    """Return the entries of A^T diag(weights) A on a pattern.

    The pattern is that of a symmetric matrix (N, N).

    Args:
        matrix: A.
        pattern: The pattern of the symmetric matrix.
        weights: The weight of each row. If None, all are 1.

    Raises:
        InvalidArgumentError: If the product has other entries.

    Examples:
        >>> import scipy.sparse as sp
        >>> matrix, pattern = sp.csr_array([[1.0, 2.0]]), sp.csr_array(np.ones((2, 2)))
        >>> gram_on(matrix, pattern).tolist()
        [1.0, 2.0, 2.0, 4.0]
    """
    from rfgp.sparse import loops

    out = np.zeros(len(pattern.indices))
    weights = np.ones(matrix.shape[0]) if weights is None else np.ascontiguousarray(weights)
    if not loops.add_gram(*_arrays(matrix), weights, pattern.indptr, pattern.indices, out):
        raise InvalidArgumentError(_UNCOVERED)
    return out


def quadratic_forms(
    matrix: sp.csr_array,  # (n, N)
    pattern: Any,
    entries: Array,  # (nnz,)
) -> tuple[Array, NDArray[np.bool_]]:  # (n,), (n,)
    """Return the diagonal of A M A^T for a symmetric M with a pattern.

    Args:
        matrix: A, (n, N).
        pattern: The pattern of M, (N, N).
        entries: The entries of M on the pattern, (nnz,).

    Returns:
        The diagonal, and whether all pairs of columns of each row of A have an entry on the pattern. An entry that is
        missing counts as 0.

    Examples:
        >>> import scipy.sparse as sp
        >>> matrix, pattern = sp.csr_array([[1.0, 2.0]]), sp.csr_array(np.ones((2, 2)))
        >>> values, covered = quadratic_forms(matrix, pattern, np.ones(4))
        >>> values.tolist(), covered.tolist()
        ([9.0], [True])
    """
    from rfgp.sparse import loops

    out, covered = np.empty(matrix.shape[0]), np.empty(matrix.shape[0], dtype=np.bool_)
    loops.quadratic_forms(*_arrays(matrix), pattern.indptr, pattern.indices, entries, out, covered)
    return out, covered


def times_symmetric(
    matrix: sp.csr_array,  # (n, N)
    pattern: Any,
    entries: Array,  # (nnz,)
) -> Array:  # (nnz of the matrix,)
    """Return the entries of A M on the pattern of A, for a symmetric M.

    Args:
        matrix: A, (n, N).
        pattern: The pattern of M, (N, N).
        entries: The entries of M on the pattern, (nnz,).

    Raises:
        InvalidArgumentError: If a pair of columns of a row has no entry on the pattern of M.

    Examples:
        >>> import scipy.sparse as sp
        >>> matrix, pattern = sp.csr_array([[1.0, 2.0]]), sp.csr_array(np.ones((2, 2)))
        >>> times_symmetric(matrix, pattern, np.ones(4)).tolist()
        [3.0, 3.0]
    """
    from rfgp.sparse import loops

    out = np.empty(matrix.nnz)
    if not loops.times_symmetric(*_arrays(matrix), pattern.indptr, pattern.indices, entries, out):
        raise InvalidArgumentError(_UNCOVERED)
    return out


def _arrays(matrix: sp.csr_array) -> tuple[Any, Any, Any]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data


def times_sparse(
    values: Tensor,  # (nnz,)
    pattern: EntryPattern,  # (n, m)
    right: sp.csr_array,  # (m, N)
) -> SparseValues:  # (n, N)
    """Return the product of two sparse matrices, with gradients in the first.

    Args:
        values: The values of the first matrix, (nnz,).
        pattern: Its pattern, (n, m).
        right: The second matrix, (m, N).

    Examples:
        >>> import scipy.sparse as sp
        >>> pattern = EntryPattern(np.array([0, 2]), np.array([1, 0]), (1, 2))
        >>> found = times_sparse(torch.tensor([3.0, 2.0]).double(), pattern, sp.csr_array([[1.0, 0.0], [1.0, 5.0]]))
        >>> found.matrix().toarray().tolist()
        [[5.0, 15.0]]
    """
    if right.nnz == 0:
        starts = np.zeros(pattern.shape[0] + 1, dtype=np.int64)
        return SparseValues(values[:0], SparsityPattern(starts, starts[:0], (pattern.shape[0], int(right.shape[1]))))
    counts = np.diff(right.indptr)[pattern.indices]  # the number of terms v_ij r_jk of each entry v_ij
    entries = np.repeat(np.arange(len(pattern.indices)), counts)
    others = np.arange(counts.sum()) + np.repeat(right.indptr[pattern.indices] - np.cumsum(counts) + counts, counts)
    size = int(right.shape[1])
    keys, inverse = np.unique(pattern.rows[entries] * size + right.indices[others], return_inverse=True)
    starts = np.searchsorted(keys, np.arange(pattern.shape[0] + 1) * size)
    terms = values[torch.from_numpy(entries)] * torch.from_numpy(right.data[others])
    total = values.new_zeros(len(keys)).index_add(0, torch.from_numpy(inverse.reshape(-1)), terms)
    return SparseValues(total, SparsityPattern(starts, keys % size, (pattern.shape[0], size)))


# --- Matrices (n, N) with products in both directions: dense, sparse, or rows of a Kronecker product -----------------

KRONECKER_ENTRIES = 2**23
"""The maximum number of entries of an intermediate array of a product."""
FULL = 4
"""The maximum number of cells of the whole product that are computed for each requested row."""


class Matrix(ABC):
    """Interface: a matrix X (n, N).

    Attributes:
        num_columns: The number N of columns.
        num_dense: The number of columns of a dense matrix, 0 for others.
    """

    num_columns: int
    num_dense = 0

    @abstractmethod
    def times(self, u: Tensor) -> Tensor:
        """Return X u, (n, p).

        Args:
            u: The vectors u, (N, p).
        """

    @abstractmethod
    def t_times(self, v: Tensor) -> Tensor:
        """Return X^T v, (N, p).

        Args:
            v: The vectors v, (n, p).
        """

    def dense(self) -> Tensor:
        """Return X as a dense matrix, float64."""
        return self.times(torch.eye(self.num_columns, dtype=torch.float64))


class Dense(Matrix):
    """A dense matrix X (n, F), float64, such as random features.

    Methods have the arguments of those of `Matrix`.

    Args:
        matrix: The matrix.

    Examples:
        >>> matrix = Dense(torch.tensor([[1.0], [2.0]]).double())
        >>> matrix.times(matrix.t_times(torch.ones(2, 1).double())).tolist()
        [[3.0], [6.0]]
    """

    def __init__(self, matrix: Tensor) -> None:
        self.matrix, self.num_columns, self.num_dense = matrix, matrix.shape[1], matrix.shape[1]

    def times(self, u: Tensor) -> Tensor:
        """Return X u, (n, p)."""
        return self.matrix @ u

    def t_times(self, v: Tensor) -> Tensor:
        """Return X^T v, (F, p)."""
        return self.matrix.mT @ v

    def gram(self, other: "Dense") -> Tensor:
        """Return X Z^T, (n, m), for another matrix Z (m, F)."""
        return self.matrix @ other.matrix.mT

    def squares(self) -> Tensor:
        """Return the squared norms of the rows, (n,)."""
        return self.matrix.square().sum(1)

    def dense(self) -> Tensor:
        """Return X."""
        return self.matrix


class Sparse(Matrix):
    """A sparse matrix X (n, N). Products are in the precision of the vectors, in threads.

    Methods have the arguments of those of `Matrix`.

    Args:
        matrix: The matrix, float64.
    """

    def __init__(self, matrix: sp.csr_array) -> None:
        self.matrix, self.num_columns = matrix, int(matrix.shape[1])
        self._blocks: dict[tuple[torch.dtype, bool], list[sp.csr_array]] = {}

    def times(self, u: Tensor) -> Tensor:
        """Return X u, (n, p)."""
        return self._product(u, transposed=False)

    def t_times(self, v: Tensor) -> Tensor:
        """Return X^T v, (N, p)."""
        return self._product(v, transposed=True)

    def _product(self, v: Tensor, *, transposed: bool) -> Tensor:
        key, array = (v.dtype, transposed), v.numpy()
        if key not in self._blocks:
            matrix = self.matrix.astype(array.dtype, copy=False)
            self._blocks[key] = row_blocks(matrix.T.tocsr() if transposed else matrix)
        return torch.from_numpy(multiply(self._blocks[key], array))

    def gram(self, other: "Sparse") -> Tensor:
        """Return X Z^T, (n, m), for another matrix Z (m, N)."""
        return torch.from_numpy((self.matrix @ other.matrix.T).toarray())

    def squares(self) -> Tensor:
        """Return the squared norms of the rows, (n,)."""
        return torch.from_numpy(np.asarray(self.matrix.power(2).sum(1)))

    def dense(self) -> Tensor:
        """Return X as a dense matrix."""
        return torch.from_numpy(self.matrix.toarray())


class KroneckerRows(Matrix):
    """Rows of X_1 kron X_2, (n, N_1 N_2), without forming them.

    Methods have the arguments of those of `Matrix`. Products are in the precision of the vectors.

    Args:
        first: X_1, (M_1, N_1).
        second: X_2, (M_2, N_2).
        rows: The row of X_1 of each row, (n,).
        columns: The row of X_2 of each row, (n,).

    Examples:
        >>> first, rows = torch.tensor([[1.0, 2.0]]), torch.tensor([0])
        >>> KroneckerRows(first, torch.tensor([[3.0, 4.0]]), rows, rows).times(torch.eye(4)).tolist()
        [[3.0, 4.0, 6.0, 8.0]]
    """

    def __init__(self, first: Tensor, second: Tensor, rows: Tensor, columns: Tensor) -> None:
        self.first, self.second, self.rows, self.columns = first, second, rows, columns
        self.num_columns = first.shape[1] * second.shape[1]

    def times(self, u: Tensor) -> Tensor:
        """Return the product (n, p) with cells u, (N_1 N_2, p)."""
        first, second = self.first.to(u), self.second.to(u)
        cells = u.reshape(first.shape[1], second.shape[1], -1)
        inner = (first @ cells.reshape(len(cells), -1)).reshape(len(first), *cells.shape[1:])
        if len(first) * len(second) <= FULL * len(self.rows):
            return (second @ inner)[self.rows, self.columns]
        size = max(1, KRONECKER_ENTRIES // max(inner[0].numel(), 1))
        pairs = zip(torch.split(self.rows, size), torch.split(self.columns, size), strict=True)
        return torch.cat([torch.einsum("nk,nkp->np", second[column], inner[row]) for row, column in pairs])

    def t_times(self, v: Tensor) -> Tensor:
        """Return the product (N_1 N_2, p) of the transpose with values of rows, (n, p)."""
        first, second, cells = self.first.to(v), self.second.to(v), self.scattered(v)
        inner = (first.mT @ cells.reshape(len(cells), -1)).reshape(first.shape[1], *cells.shape[1:])
        return (second.mT @ inner).reshape(self.num_columns, -1)

    def scattered(self, v: Tensor) -> Tensor:
        """Return values of rows summed in the cells of rows of X_1 and X_2, (M_1, M_2, p).

        Args:
            v: The values, (n, p).
        """
        cells = v.new_zeros(len(self.first) * len(self.second), v.shape[1])
        cells.index_add_(0, self.rows * len(self.second) + self.columns, v)
        return cells.reshape(len(self.first), len(self.second), -1)

    def gram(self, other: "KroneckerRows") -> Tensor:
        """Return the product (n, m) with the transpose of other rows."""
        left, right = self.first @ other.first.mT, self.second @ other.second.mT
        return left[self.rows][:, other.rows] * right[self.columns][:, other.columns]

    def squares(self) -> Tensor:
        """Return the squared norms of the rows, (n,)."""
        return self.first.square().sum(1)[self.rows] * self.second.square().sum(1)[self.columns]
