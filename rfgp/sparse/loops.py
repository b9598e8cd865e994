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
