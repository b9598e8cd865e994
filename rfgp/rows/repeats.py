"""Rows that repeat each other: found by hashes, and merged into one row with a weight."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_OFTEN = 5
"""Times that inputs occur on average up to which equal rows count as copies."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Factor of the hash, odd so that each step can be undone: 2^64 over the golden ratio, as in Fibonacci hashing."""


def row_hashes(
    columns: Iterable[NDArray[np.float64]],  # each (n,)
    begun: NDArray[np.uint64],  # (n,)
) -> NDArray[np.uint64]:  # (n,)
    """Return a hash of each row, the same for equal rows, and for others with probability 2^-64.

    Args:
        columns: Numbers, in float64; a negative zero equals zero.
        begun: Hashes of other columns of the same rows, or zeros.
    """
    for column in columns:
        begun = (begun ^ (column + 0.0).view(np.uint64)) * _ODD  # no negative zero
        begun ^= begun >> np.uint64(29)
    return begun


def repeat_groups(
    X: NDArray[np.floating[Any]],  # (n, d)
    y: NDArray[np.floating[Any]],  # (n,) or (n, k)
) -> NDArray[np.int64] | None:  # (n,)
    """Return a number for each row, the same for rows that are equal; None without copies.

    Inputs that occur often are levels of a coarse table, and equal rows are no copies there.
    """
    inputs = row_hashes((column.astype(np.float64) for column in X.T), np.zeros(len(y), dtype=np.uint64))
    targets = (column.astype(np.float64) for column in y.reshape(len(y), -1).T)
    groups = np.unique(row_hashes(targets, inputs), return_inverse=True)[1].reshape(-1)
    is_coarse = MOST_OFTEN * len(np.unique(inputs)) < len(y)
    return None if is_coarse or groups.max() + 1 == len(y) else groups


def merge_repeats(
    columns: Sequence[Any],  # each (n,)
    weight: NDArray[np.float64] | None,  # (n,)
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:  # (m,), (m,)
    """Return which rows stand for all, and how often each counts.

    Equal rows become one whose weight is the sum of theirs. The order of the rows that remain depends on their values
    alone. Two data sets that repeat rows in different ways, by weights or written out, become the same numbers in the
    same order, so that no rounding tells them apart. Without weights and repeats all rows remain as they are.

    Args:
        columns: Everything by which rows differ: inputs and targets, numbers or texts.
        weight: How often each row counts. If None, once.

    Example:
        >>> rows, weight = merge_repeats([np.array([1.0, 2.0, 1.0])], np.array([1.0, 1.0, 4.0]))
        >>> sorted(zip(rows.tolist(), weight.tolist()))
        [(0, 5.0), (1, 1.0)]
    """
    numbers = [_numbers(np.asarray(column)) for column in columns]
    hashes = row_hashes(numbers, np.zeros(len(numbers[0]), dtype=np.uint64))
    _, first, member = np.unique(hashes, return_index=True, return_inverse=True)
    member = member.reshape(-1)  # numpy 2.0 returns another shape
    is_weighted = weight is not None and not bool((weight == 1).all())
    is_repeated = len(first) < len(hashes)
    if not (is_weighted or is_repeated):
        return np.arange(len(hashes)), None
    if is_repeated and not all(np.array_equal(column, column[first][member]) for column in numbers):
        return np.arange(len(hashes)), weight  # two rows that differ have one hash
    return first, np.bincount(member, weight, minlength=len(first)).astype(np.float64)


def _numbers(
    column: NDArray[Any],  # (n,)
) -> NDArray[np.float64]:  # (n,)
    """Return a column as numbers, texts by their place among the distinct ones."""
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.float64)
