"""Products of sparse matrices with themselves and with symmetric ones, on given patterns."""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import Array
from rfgp.errors import InvalidArgumentError
from rfgp.sparse.patterns import EntryPattern, SparseValues, SparsityPattern

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
