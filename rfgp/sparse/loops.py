"""The compiled loop behind the gradient of Phi Phi^T. Serial and `nogil`; threads take blocks of rows."""

from rfgp.compiled import jit


@jit()
def sampled_product(first, last, grad, columns, rows, values, indptr, indices, out):
    """Write the entries of grad (n, k) @ right (k, N) on a pattern (n, N) to `out`, from row `first` to before `last`.

    `columns`, `rows` and `values` are right by columns (CSC): the sum over an entry's column takes as many steps as
    the column has entries, so that all take no more than the product of the two sparse matrices itself.
    """
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            column, total = indices[e], 0.0
            for q in range(columns[column], columns[column + 1]):
                total += grad[i, rows[q]] * values[q]
            out[e] = total


@jit()
def place_of(row, column, indptr, indices):
    """Return where the entry of a row and a column stands on a pattern; -1 if it has none."""
    first, last = indptr[row], indptr[row + 1]
    while first < last:
        middle = (first + last) // 2
        if indices[middle] < column:
            first = middle + 1
        else:
            last = middle
    return first if first < indptr[row + 1] and indices[first] == column else -1


@jit()
def add_gram(starts, columns, values, indptr, indices, out):
    """Add the entries of A^T A, A (n, N) in CSR form, to those on a pattern (N, N); return whether it has all."""
    for i in range(starts.size - 1):
        for p in range(starts[i], starts[i + 1]):
            for q in range(starts[i], starts[i + 1]):
                place = place_of(columns[p], columns[q], indptr, indices)
                if place < 0:
                    return False
                out[place] += values[p] * values[q]
    return True


@jit()
def times_symmetric(starts, columns, values, indptr, indices, entries, out):
    """Write the entries of A M on the pattern of A (n, N), M symmetric on a pattern (N, N); return as `add_gram`."""
    for i in range(starts.size - 1):
        for p in range(starts[i], starts[i + 1]):
            out[p] = 0.0
            for q in range(starts[i], starts[i + 1]):
                place = place_of(columns[p], columns[q], indptr, indices)
                if place < 0:
                    return False
                out[p] += values[q] * entries[place]
    return True
