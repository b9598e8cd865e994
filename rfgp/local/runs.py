"""Runs of rows: each has the entries of the row before it and one more, so that they share loads and factorizations."""

from rfgp.compiled import jit

LONGEST = 64
"""The most rows of a run, which bounds its memory."""


@jit()
def run_end(i, last, near, starts):
    """Return the row after the last of the run that begins at row i, at most `last`."""
    j = i + 1
    while j < min(last, i + LONGEST):
        a, b, c = starts[j - 1], starts[j], starts[j + 1]
        if c - b != b - a + 1:
            return j
        for e in range(b - a):
            if near[a + e] != near[b + e]:
                return j
        j += 1
    return j


@jit()
def most_entries(first, last, starts):
    """Return the most entries of one of the rows from `first` to before `last`, at least 1."""
    most = 1
    for i in range(first, last):
        most = max(most, starts[i + 1] - starts[i])
    return most
