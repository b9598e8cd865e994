"""Compiled products and solves with small triangular factors, stored as rows of L^T (upper) and L (lower)."""

import numpy as np

from rfgp.compiled import jit


@jit()
def padded_length(count):
    """Return the smallest multiple of 16 that is at least `count`.

    Loops of that length vectorize without a remainder. It is unsigned, so that the compiler omits checks for negative
    indices.
    """
    return np.uint64((count + 15) & ~15)


@jit()
def aligned_start(p):
    """Return the greatest multiple of 16 that is at most p, unsigned."""
    return np.uint64(p & ~15)


@jit(fastmath={"reassoc", "contract", "nsz"})
def subtract_projection(upper, p, row, begin, end):
    """Subtract from row p of a matrix its projection on earlier rows of the factor.

    Args:
        upper: The rows of L^T, (m, m).
        p: The index of the row.
        row: The row p of the matrix, (m,), which is changed.
        begin: The first entry that is changed.
        end: The entry after the last one.
    """
    most = p & ~3
    for s in range(0, most, 4):  # four at a time, for fewer stores
        a, b, c, d = upper[s, p], upper[s + 1, p], upper[s + 2, p], upper[s + 3, p]
        first, second, third, fourth = upper[s], upper[s + 1], upper[s + 2], upper[s + 3]
        for q in range(begin, end):
            row[q] -= (a * first[q] + b * second[q]) + (c * third[q] + d * fourth[q])
    for s in range(most, p):
        a, first = upper[s, p], upper[s]
        for q in range(begin, end):
            row[q] -= a * first[q]


@jit(fastmath={"reassoc", "contract", "nsz"})
def transpose(upper, lower, count):
    """Write the rows of L from those of L^T, without the diagonal.

    Args:
        upper: The rows of L^T, (m, m).
        lower: The rows of L, (m, m), which are written.
        count: The number of rows.
    """
    for p in range(count):
        for q in range(p):
            lower[p, q] = upper[q, p]


@jit(fastmath={"reassoc", "contract", "nsz"})
def solve(upper, inverse, x, number, count):
    """Overwrite rows of x with their products with L^-1.

    Args:
        upper: The rows of L^T, (m, m), without the diagonal.
        inverse: The inverses of the diagonal of L, (m,).
        x: The rows, (b, m).
        number: The number of rows that are overwritten.
        count: The number of entries of a row.
    """
    end = padded_length(count)
    for p in range(count):
        _eliminate(upper[p], inverse[p], x, number, p, aligned_start(p), end)


@jit(fastmath={"reassoc", "contract", "nsz"})
def solve_transposed(lower, inverse, x, number, count):
    """Overwrite rows of x with their products with L^-T.

    Args:
        lower: The rows of L, (m, m), without the diagonal.
        inverse: The inverses of the diagonal of L, (m,).
        x: The rows, (b, m).
        number: The number of rows that are overwritten.
        count: The number of entries of a row.
    """
    for p in range(count - 1, -1, -1):
        _eliminate(lower[p], inverse[p], x, number, p, aligned_start(0), padded_length(p))


@jit(fastmath={"reassoc", "contract", "nsz"})
def _eliminate(row, inverse, x, number, p, begin, end):
    """Divide entry p of rows of x by a pivot.

    Its product with a row of the factor is subtracted.
    """
    for j in range(0, number - 3, 4):  # four at a time, for fewer loads
        first, second, third, fourth = x[j], x[j + 1], x[j + 2], x[j + 3]
        a, b, c, d = first[p] * inverse, second[p] * inverse, third[p] * inverse, fourth[p] * inverse
        first[p], second[p], third[p], fourth[p] = a, b, c, d
        for s in range(begin, end):
            first[s] -= a * row[s]
            second[s] -= b * row[s]
            third[s] -= c * row[s]
            fourth[s] -= d * row[s]
    for j in range(number & ~3, number):
        single = x[j]
        single[p] *= inverse
        last = single[p]
        for s in range(begin, end):
            single[s] -= last * row[s]
