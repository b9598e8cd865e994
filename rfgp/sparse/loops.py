"""Compiled loops over the entries of sparse matrices, serial and `nogil`, for threads that take blocks of rows."""

from graphs.compiled import jit


@jit()
def sampled_product(first, last, grad, columns, rows, values, indptr, indices, out):
    """Write the entries of grad (n, k) @ right (k, N) on a pattern (n, N).

    The sum of an entry takes one step for each entry of its column. All sums take no more steps than the product of the
    two sparse matrices.

    Args:
        first: The first row.
        last: The row after the last one.
        grad: The left matrix, (n, k), dense.
        columns: The index of the first entry of each column of `right` (CSC).
        rows: The rows of its entries.
        values: The values of its entries.
        indptr: The index of the first entry of each row of the pattern.
        indices: The columns of the entries of the pattern.
        out: The entries, (nnz,), which are written.
    """
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            column, total = indices[e], 0.0
            for q in range(columns[column], columns[column + 1]):
                total += grad[i, rows[q]] * values[q]
            out[e] = total


@jit()
def entry_index(row, column, indptr, indices):
    """Return the index of an entry of a pattern, or -1 if there is none.

    Args:
        row: The row of the entry.
        column: The column of the entry.
        indptr: The index of the first entry of each row.
        indices: The columns of the entries.
    """
    first, last = indptr[row], indptr[row + 1]
    while first < last:
        middle = (first + last) // 2
        if indices[middle] < column:
            first = middle + 1
        else:
            last = middle
    return first if first < indptr[row + 1] and indices[first] == column else -1


@jit()
def add_gram(starts, columns, values, weights, indptr, indices, out):
    """Add the entries of A^T diag(weights) A to those on a pattern (N, N).

    Args:
        starts: The index of the first entry of each row of A (n, N).
        columns: The columns of the entries of A.
        values: The values of the entries of A.
        weights: The weight of each row of A, (n,).
        indptr: The index of the first entry of each row of the pattern.
        indices: The columns of the entries of the pattern.
        out: The entries on the pattern, (nnz,), which are changed.

    Returns:
        Whether the pattern has all entries. If not, `out` is incomplete.
    """
    for i in range(starts.size - 1):
        for p in range(starts[i], starts[i + 1]):
            for q in range(starts[i], starts[i + 1]):
                entry = entry_index(columns[p], columns[q], indptr, indices)
                if entry < 0:
                    return False
                out[entry] += values[p] * weights[i] * values[q]
    return True


@jit()
def times_symmetric(starts, columns, values, indptr, indices, entries, out):
    """Write the entries of A M on the pattern of A, for a symmetric M.

    Args:
        starts: The index of the first entry of each row of A (n, N).
        columns: The columns of the entries of A.
        values: The values of the entries of A.
        indptr: The index of the first entry of each row of the pattern of M (N, N).
        indices: The columns of the entries of M.
        entries: The values of the entries of M.
        out: The entries on the pattern of A, which are written.

    Returns:
        Whether the pattern of M has all pairs of columns of each row. If not, `out` is incomplete.
    """
    for i in range(starts.size - 1):
        for p in range(starts[i], starts[i + 1]):
            out[p] = 0.0
            for q in range(starts[i], starts[i + 1]):
                entry = entry_index(columns[p], columns[q], indptr, indices)
                if entry < 0:
                    return False
                out[p] += values[q] * entries[entry]
    return True


@jit()
def quadratic_forms(starts, columns, values, indptr, indices, entries, out, covered):
    """Write the diagonal of A M A^T, for a symmetric M.

    A missing entry of M counts as 0.

    Args:
        starts: The index of the first entry of each row of A (n, N).
        columns: The columns of the entries of A.
        values: The values of the entries of A.
        indptr: The index of the first entry of each row of the pattern of M (N, N).
        indices: The columns of the entries of M.
        entries: The values of the entries of M.
        out: The diagonal, (n,), which is written.
        covered: Whether the pattern of M has all pairs of columns of each row, (n,), which is written.
    """
    for i in range(starts.size - 1):
        total, covered[i] = 0.0, True
        for p in range(starts[i], starts[i + 1]):
            for q in range(starts[i], p + 1):
                entry = entry_index(columns[p], columns[q], indptr, indices)
                if entry < 0:
                    covered[i] = False
                else:
                    total += (1 + (q < p)) * values[p] * values[q] * entries[entry]
        out[i] = total


@jit()
def add_outer(left, right, rows, columns, out):
    """Add inner products of pairs of rows to the entries of `out`.

    Four sums at once avoid waiting for the last addition.

    Args:
        left: The first rows, (a, p).
        right: The second rows, (b, p).
        rows: The row of `left` of each entry, (e,).
        columns: The row of `right` of each entry, (e,).
        out: The entries, (e,), which are changed.
    """
    width = left.shape[1]
    whole = width - width % 4
    for e in range(out.size):
        i, j = rows[e], columns[e]
        first = second = third = fourth = 0.0
        for c in range(0, whole, 4):
            first += left[i, c] * right[j, c]
            second += left[i, c + 1] * right[j, c + 1]
            third += left[i, c + 2] * right[j, c + 2]
            fourth += left[i, c + 3] * right[j, c + 3]
        for c in range(whole, width):
            first += left[i, c] * right[j, c]
        out[e] += (first + second) + (third + fourth)
