"""Runs of rows that share loads and factorizations: each has the entries of the previous row and one more."""

from rfgp.compiled import jit

MAX_RUN = 64
"""The maximum number of rows of a run. It bounds the memory."""


@jit()
def run_end(i, last, near, starts):
    """Return the row after the last one of the run from row i.

    Args:
        i: The first row of the run.
        last: The largest result.
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
    """
    j = i + 1
    while j < min(last, i + MAX_RUN):
        a, b, c = starts[j - 1], starts[j], starts[j + 1]
        if c - b != b - a + 1:
            return j
        for e in range(b - a):
            if near[a + e] != near[b + e]:
                return j
        j += 1
    return j


@jit()
def max_entries(first, last, starts):
    """Return the largest number of entries of some rows, at least 1.

    Args:
        first: The first row.
        last: The row after the last one.
        starts: The index of the first entry of each row.
    """
    most = 1
    for i in range(first, last):
        most = max(most, starts[i + 1] - starts[i])
    return most
