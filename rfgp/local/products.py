"""Compiled products with the factors of local processes."""

from rfgp.compiled import jit


@jit(fastmath={"reassoc", "contract", "nsz"})
def spread_rows(entries, near, starts, x):
    """Turn x (n, c) into L x: row i is sqrt(d_i) x_i and the weighted rows of its neighbours, those of L x."""
    for i in range(x.shape[0]):
        a, b = starts[i], starts[i + 1] - 1
        for c in range(x.shape[1]):
            x[i, c] *= entries[b]
        for e in range(a, b):
            weight, j = entries[e], near[e]
            for c in range(x.shape[1]):
                x[i, c] += weight * x[j, c]


@jit(fastmath={"reassoc", "contract", "nsz"})
def gather_rows(entries, near, starts, x):
    """Turn x (n, c) into L^T x."""
    for i in range(x.shape[0] - 1, -1, -1):
        a, b = starts[i], starts[i + 1] - 1
        for e in range(a, b):
            weight, j = entries[e], near[e]
            for c in range(x.shape[1]):
                x[j, c] += weight * x[i, c]
        for c in range(x.shape[1]):
            x[i, c] *= entries[b]


@jit(fastmath={"reassoc", "contract", "nsz"})
def outer_rows(first, last, left, right, near, starts, out):
    """Write left[i] . right[j] at the entries (i, j) of rows from `first` to before `last`; left, right (n, c)."""
    for i in range(first, last):
        for e in range(starts[i], starts[i + 1]):
            j, total = near[e], 0.0
            for c in range(left.shape[1]):
                total += left[i, c] * right[j, c]
            out[e] = total
