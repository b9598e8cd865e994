"""Compiled products with the factors of local processes.

The rows of a run (`rfgp.local.loops`) form a dense matrix on the columns of its last row. Products process four of
these columns at once, so that each loaded number takes part in several multiplications.
"""

import numpy as np

from rfgp.compiled import jit
from rfgp.local.loops import MAX_RUN, max_entries, run_end


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_root(entries, near, starts, x):
    """Overwrite x with L x.

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


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_transposed_root(entries, near, starts, x):
    """Overwrite x with L^T x.

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


@jit()
def _fill(i, end, entries, starts, block):
    """Write the entries of the rows of a run as rows (b, m).

    They are padded with zeros to multiples of four.
    """
    most, number = starts[end] - starts[end - 1], end - i
    for j in range((number + 3) & ~3):
        size = starts[i + j + 1] - starts[i + j] if j < number else 0
        for e in range(size):
            block[j, e] = entries[starts[i + j] + e]
        for e in range(size, (most + 3) & ~3):
            block[j, e] = 0.0


@jit()
def _workspace(most):
    """Allocate zeros for `_fill`, for runs whose rows have at most so many entries."""
    return np.zeros((MAX_RUN, (most + 3) & ~3))


@jit()
def _four(rows, e):
    """Return four numbers of rows from position e on.

    After the end, the last one is repeated.
    """
    last = rows.size - 1
    return rows[e], rows[min(e + 1, last)], rows[min(e + 2, last)], rows[min(e + 3, last)]


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_rows(first, last, entries, near, starts, x, out):
    """Write some rows of V x.

    Args:
        first: The first row.
        last: The row after the last one.
        entries: The entries of V (r, n), (nnz,).
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
        x: The right factor, (n, c).
        out: The product, (r, c), whose rows are written.
    """
    block, sums = _workspace(max_entries(first, last, starts)), np.empty((MAX_RUN + 1, x.shape[1]))
    i = first
    while i < last:
        end = run_end(i, last, near, starts)
        rows = near[starts[end - 1] : starts[end]]
        _fill(i, end, entries, starts, block)
        sums[: end - i + 1] = 0.0
        for e in range(0, rows.size, 4):
            four = _four(rows, e)
            if end - i == 1:
                _add_to_one(x, four, sums, block[0, e], block[0, e + 1], block[0, e + 2], block[0, e + 3])
            else:
                for j in range(0, end - i, 2):
                    a, b, c, d = block[j, e], block[j, e + 1], block[j, e + 2], block[j, e + 3]
                    f, g, h, k = block[j + 1, e], block[j + 1, e + 1], block[j + 1, e + 2], block[j + 1, e + 3]
                    _add(x, four, sums, (j, j + 1), (a, b, c, d, f, g, h, k), 0, x.shape[1])
        for j in range(end - i):
            for q in range(x.shape[1]):
                out[i + j, q] = sums[j, q]
        i = end


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_transposed(first, last, entries, near, starts, x, out):
    """Add some columns of V^T x to those of `out`.

    Args:
        first: The first column.
        last: The column after the last one.
        entries: The entries of V (r, n), (nnz,).
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
        x: The right factor, (r, c).
        out: The product, (n, c), whose columns are changed.
    """
    count = starts.size - 1
    block = _workspace(max_entries(0, count, starts))
    i = 0
    while i < count:
        end = run_end(i, count, near, starts)
        rows = near[starts[end - 1] : starts[end]]
        _fill(i, end, entries, starts, block)
        single = 0 if end - i > 1 else rows.size
        for e in range(single):
            _add_one(x, i, out, rows[e], block[0, e], first, last)
        for e in range(single, rows.size & ~1, 2):
            for j in range(0, end - i, 4):
                four = i + j, min(i + j + 1, end - 1), min(i + j + 2, end - 1), min(i + j + 3, end - 1)
                a, b, c, d = block[j, e], block[j + 1, e], block[j + 2, e], block[j + 3, e]
                f, g, h, k = block[j, e + 1], block[j + 1, e + 1], block[j + 2, e + 1], block[j + 3, e + 1]
                _add(x, four, out, (rows[e], rows[e + 1]), (a, b, c, d, f, g, h, k), first, last)
        for e in range(max(single, rows.size & ~1), rows.size):
            for j in range(end - i):
                _add_one(x, i + j, out, rows[e], block[j, e], first, last)
        i = end


@jit(fastmath={"reassoc", "contract", "nsz"})
def _add(x, four, out, rows, weights, first, last):
    """Add weighted sums of four rows of x to two rows of `out`.

    The columns are those from `first` to `last` - 1.
    """
    (r, s, t, u), (i, j), (a, b, c, d, f, g, h, k) = four, rows, weights
    for q in range(np.uint64(first), np.uint64(last)):
        out[i, q] += (a * x[r, q] + b * x[s, q]) + (c * x[t, q] + d * x[u, q])
        out[j, q] += (f * x[r, q] + g * x[s, q]) + (h * x[t, q] + k * x[u, q])


@jit(fastmath={"reassoc", "contract", "nsz"})
def _add_one(x, i, out, j, weight, first, last):
    """Add a weighted row of x to a row of `out`, for some columns."""
    for q in range(np.uint64(first), np.uint64(last)):
        out[j, q] += weight * x[i, q]


@jit(fastmath={"reassoc", "contract", "nsz"})
def _add_to_one(x, four, out, a, b, c, d):
    """Add a weighted sum of four rows of x to the first row of `out`."""
    r, s, t, u = four
    for q in range(np.uint64(x.shape[1])):
        out[0, q] += (a * x[r, q] + b * x[s, q]) + (c * x[t, q] + d * x[u, q])


@jit(fastmath={"reassoc", "contract", "nsz"})
def outer_rows(first, last, left, right, near, starts, out):
    """Write left[i] . right[j] at the entries (i, j) of some rows of V.

    Args:
        first: The first row.
        last: The row after the last one.
        left: The left factor, (r, c).
        right: The right factor, (n, c).
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
        out: The entries, (nnz,), which are written.
    """
    block = _workspace(max_entries(first, last, starts))
    i = first
    while i < last:
        end = run_end(i, last, near, starts)
        rows = near[starts[end - 1] : starts[end]]
        for e in range(0, rows.size, 4):
            four = _four(rows, e)
            for j in range(0, end - i, 2):
                _multiply(left, (i + j, min(i + j + 1, end - 1)), right, four, block, j, e)
        for j in range(end - i):
            for e in range(starts[i + j + 1] - starts[i + j]):
                out[starts[i + j] + e] = block[j, e]
        i = end


@jit(fastmath={"reassoc", "contract", "nsz"})
def _multiply(left, rows, right, four, out, j, e):
    """Write the products of two left rows and four right rows from entry (j, e) on."""
    (r, s, t, u), (i, v) = four, rows
    a = b = c = d = f = g = h = k = 0.0
    for q in range(np.uint64(left.shape[1])):
        left_1, left_2 = left[i, q], left[v, q]
        a += left_1 * right[r, q]
        b += left_1 * right[s, q]
        c += left_1 * right[t, q]
        d += left_1 * right[u, q]
        f += left_2 * right[r, q]
        g += left_2 * right[s, q]
        h += left_2 * right[t, q]
        k += left_2 * right[u, q]
    out[j, e], out[j, e + 1], out[j, e + 2], out[j, e + 3] = a, b, c, d
    out[j + 1, e], out[j + 1, e + 1], out[j + 1, e + 2], out[j + 1, e + 3] = f, g, h, k
