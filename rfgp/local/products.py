"""Compiled products with the factors of local processes.

The rows of a run (`rfgp.local.loops`) form a dense matrix on the columns of its last row, whose products are those of
BLAS. A run of one row has products of its own, without copies of its columns.
"""

import numpy as np

from rfgp.compiled import jit
from rfgp.local.loops import run_end


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_root(entries, near, starts, x):
    """Overwrite x with L x, and return it.

    Row i is sqrt(d_i) x_i plus the weighted rows of its neighbors in L x.

    Args:
        entries: The entries of L, (nnz,).
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
        x: The right factor, (n, c), which is overwritten.
    """
    for i in range(x.shape[0]):
        a, b = starts[i], starts[i + 1] - 1
        for c in range(x.shape[1]):
            x[i, c] *= entries[b]
        for e in range(a, b):
            weight, j = entries[e], near[e]
            for c in range(x.shape[1]):
                x[i, c] += weight * x[j, c]
    return x


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_transposed_root(entries, near, starts, x):
    """Overwrite x with L^T x, and return it.

    Args:
        entries: The entries of L, (nnz,).
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
        x: The right factor, (n, c), which is overwritten.
    """
    for i in range(x.shape[0] - 1, -1, -1):
        a, b = starts[i], starts[i + 1] - 1
        for e in range(a, b):
            weight, j = entries[e], near[e]
            for c in range(x.shape[1]):
                x[j, c] += weight * x[i, c]
        for c in range(x.shape[1]):
            x[i, c] *= entries[b]
    return x


@jit()
def _run(i, last, entries, near, starts):
    """Return the row after the run from row i, the columns of the run, and its entries as a matrix (b, m)."""
    end = run_end(i, last, near, starts)
    columns = near[starts[end - 1] : starts[end]]
    block = np.zeros((end - i, columns.size))
    for j in range(i, end):
        block[j - i, : starts[j + 1] - starts[j]] = entries[starts[j] : starts[j + 1]]
    return end, columns, block


@jit(fastmath={"reassoc", "contract", "nsz"})
def _add(x, i, out, j, weight):
    """Add a weighted row of x to a row of `out`."""
    for q in range(np.uint64(x.shape[1])):
        out[j, q] += weight * x[i, q]


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_rows(first, last, entries, near, starts, x, out):
    """Write some rows of V x.

    Args:
        first: The first row.
        last: The row after the last one.
        entries: The entries of V, (nnz,).
        near: The columns of the entries, (nnz,).
        starts: The index of the first entry of each row.
        x: The right factor, (n, c), contiguous.
        out: The product, (r, c), whose rows are overwritten.
    """
    i = first
    while i < last:
        end, columns, block = _run(i, last, entries, near, starts)
        if end - i > 1:
            out[i:end] = np.dot(block, x[columns])
        else:
            out[i] = 0.0
            for e in range(columns.size):
                _add(x, columns[e], out, i, block[0, e])
        i = end


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_transposed(size, entries, near, starts, x):
    """Return V^T x, (n, c).

    Args:
        size: The number n of columns of V.
        entries: The entries of V, (nnz,).
        near: The columns of the entries, (nnz,).
        starts: The index of the first entry of each row.
        x: The right factor, (r, c), contiguous.
    """
    i, count, out = 0, starts.size - 1, np.zeros((size, x.shape[1]))
    while i < count:
        end, columns, block = _run(i, count, entries, near, starts)
        if end - i > 1:
            part = np.dot(block.T, x[i:end])
            for e in range(columns.size):
                _add(part, e, out, columns[e], 1.0)
        else:
            for e in range(columns.size):
                _add(x, i, out, columns[e], block[0, e])
        i = end
    return out


@jit(fastmath={"reassoc", "contract", "nsz"})
def outer_rows(first, last, left, right, near, starts, out):
    """Write left[i] . right[j] at the entries (i, j) of some rows of V.

    Args:
        first: The first row.
        last: The row after the last one.
        left: The left factor, (r, c), contiguous.
        right: The right factor, (n, c), contiguous.
        near: The columns of the entries of V, (nnz,).
        starts: The index of the first entry of each row.
        out: The products at the entries, (nnz,), which are overwritten.
    """
    i = first
    while i < last:
        end = run_end(i, last, near, starts)
        block = np.dot(right[near[starts[end - 1] : starts[end]]], left[i:end].T)
        for j in range(i, end):
            for e in range(starts[j + 1] - starts[j]):
                out[starts[j] + e] = block[e, j - i]
        i = end
