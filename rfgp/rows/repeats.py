"""Repeated rows: found by hashes, and merged into one row with a weight."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_MEAN_REPEATS = 5
"""The maximum mean number of rows with the same inputs for which equal rows count as copies."""
_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""The multiplier of the hash, 2^64 over the golden ratio (Fibonacci hashing). As it is odd, steps are invertible."""


def row_hashes(
    columns: Iterable[NDArray[np.float64]],  # each (n,)
    initial_hashes: NDArray[np.uint64],  # (n,)
) -> NDArray[np.uint64]:  # (n,)
    """Return a hash of each row. Different rows collide with probability 2^-64.

    Args:
        columns: Numbers in float64. A negative zero equals zero.
        initial_hashes: Hashes of other columns of the same rows, or zeros.

    Examples:
        >>> hashes = row_hashes([np.array([1.0, 2.0, 1.0])], np.zeros(3, dtype=np.uint64))
        >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
        (True, False)
    """
    hashes = initial_hashes
    for column in columns:
        hashes = (hashes ^ (column + 0.0).view(np.uint64)) * _HASH_MULTIPLIER  # no negative zero
        hashes ^= hashes >> np.uint64(29)
    return hashes


def repeat_groups(
    X: NDArray[np.floating[Any]],  # (n, d)
    y: NDArray[np.floating[Any]],  # (n,) or (n, k)
) -> NDArray[np.int64] | None:  # (n,)
    """Return a number for each row, shared by equal rows, or None if there are no copies.

    If the same inputs are repeated often, the inputs are considered coarse, and equal rows are not copies. The result
    is then None.

    Args:
        X: The inputs (n, d).
        y: The targets (n,) or (n, k).

    Examples:
        >>> groups = repeat_groups(np.array([[1.0], [2.0], [1.0]]), np.array([3.0, 3.0, 3.0]))
        >>> bool(groups[0] == groups[2]), bool(groups[0] == groups[1])
        (True, False)
    """
    inputs = row_hashes((column.astype(np.float64) for column in X.T), np.zeros(len(y), dtype=np.uint64))
    targets = (column.astype(np.float64) for column in y.reshape(len(y), -1).T)
    groups = np.unique(row_hashes(targets, inputs), return_inverse=True)[1].reshape(-1)
    is_coarse = MAX_MEAN_REPEATS * len(np.unique(inputs)) < len(y)
    return None if is_coarse or groups.max() + 1 == len(y) else groups


def merge_repeats(
    columns: Sequence[Any],  # each (n,)
    weight: NDArray[np.float64] | None,  # (n,)
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:  # (m,), (m,)
    """Return the indices of distinct rows, and their weights.

    Equal rows become one with the sum of their weights. The order of the remaining rows depends only on their values.
    Data sets with weights and with written-out repetitions therefore give identical numbers in the same order. Without
    weights and repetitions all rows remain unchanged.

    Args:
        columns: All inputs and targets, numbers or texts.
        weight: The weight of each row. If None, 1.

    Examples:
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
        return np.arange(len(hashes)), weight  # two different rows have equal hashes
    return first, np.bincount(member, weight, minlength=len(first)).astype(np.float64)


def _numbers(
    column: NDArray[Any],  # (n,)
) -> NDArray[np.float64]:  # (n,)
    """Return a column as numbers, texts as indices of the distinct ones."""
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.float64)
