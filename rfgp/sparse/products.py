"""Products of sparse matrices with gradients in their values, and entries of products on a pattern."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import Array, as_array, once
from rfgp.sparse.patterns import Pattern, SparseValues, SparsityPattern
from rfgp.threads import num_threads

_BLOCKS = 8
_ENTRIES = 2**22
_SMALL, _DENSE_SPEED = 2**20, 16
"""The multiplications below which a product may be dense, and the speed of dense ones relative to sparse ones."""
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
    bounds = np.linspace(0, pattern.shape[0], _BLOCKS + 1, dtype=np.int64)
    with ThreadPoolExecutor(num_threads()) as pool:
        list(pool.map(lambda ends: loops.sampled_product(*ends, *fixed), itertools.pairwise(bounds)))
    return out


def _is_better_dense(left: sp.csr_array, right: sp.csr_array) -> bool:
    """Return whether a product of matrices (n, N) and (k, N) is faster dense.

    It must also fit into `_ENTRIES`.
    """
    (n, size), k = left.shape, len(right.indptr) - 1
    if (n + k) * size > _ENTRIES:
        return False
    return bool(n * k * size <= _SMALL or left.nnz * right.nnz * _DENSE_SPEED > n * k * size * size)


def sampled_outer(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
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
    indptr, indices = pattern.indptr, pattern.indices
    rows = np.repeat(np.arange(len(left)), np.diff(indptr))
    out, size = torch.empty(len(indices), dtype=torch.float64), max(1, _ENTRIES // left.shape[1])
    for first in range(0, len(indices), size):
        part = slice(first, first + size)
        i, j = torch.from_numpy(rows[part]), torch.from_numpy(indices[part].astype(np.int64))
        out[part] = torch.einsum("ep,ep->e", left[i], right[j])
    return out


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


def transposed_product(
    matrix: sp.csr_array,  # (n, N)
    dense: Array,  # (n, p)
    out: Array,  # (N, p)
) -> None:
    """Overwrite `out` with A^T dense, for a sparse A.

    Args:
        matrix: A, (n, N).
        dense: (n, p).
        out: (N, p), which is overwritten.

    Examples:
        >>> out = np.empty((2, 1))
        >>> transposed_product(sp.csr_array([[1.0, 2.0]]), np.array([[3.0]]), out)
        >>> out.tolist()
        [[3.0], [6.0]]
    """
    from rfgp.sparse import loops

    arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data
    loops.transposed_product(*arrays, np.ascontiguousarray(dense), out)


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


def with_columns(matrix: sp.csr_array, columns: NDArray[np.int64]) -> sp.csr_array:
    """Return a matrix (n, c) with some columns of another.

    They include all columns with entries.

    Args:
        matrix: The matrix, (n, N).
        columns: The indices of the columns, (c,).

    Examples:
        >>> with_columns(sp.csr_array([[0.0, 0.0, 5.0]]), np.array([1, 2])).toarray().tolist()
        [[0.0, 5.0]]
    """
    new_index = np.zeros(matrix.shape[1], dtype=np.int32)
    new_index[columns] = np.arange(len(columns))
    entries = matrix.data, new_index[matrix.indices], matrix.indptr
    return sp.csr_array(entries, shape=(matrix.shape[0], len(columns)))


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
    with ThreadPoolExecutor(len(blocks)) as pool:
        return np.concatenate(list(pool.map(lambda block: block @ v, blocks)))
