"""Nearest predecessors: the neighbours that each row of an order is conditioned on, and those of new points."""

import os

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from rfgp.sparse import SparsityPattern

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_SPARE = 1.6
"""How many more points than neighbours are asked for first: of the nearest of a prefix most come before a row."""
_TREE = 64
"""Rows below which all predecessors are compared."""


def nearest_predecessors(
    z: Floats,  # (n, d)
    count: int,
) -> SparsityPattern:  # (n, n)
    """Return the pattern of each row's `count` nearest rows before it, or all where they are fewer, and itself.

    Exact, but for ties. In a random order about three quarters of the rows of a prefix come before one of its second
    half, so trees of prefixes that double need little more than `count` points of a query.
    """
    n = len(z)
    rows, columns = [], []
    first = min(n, max(_TREE, 2 * count))
    near = np.broadcast_to(np.arange(first), (first, first))
    square = ((z[:first, None] - z[None, :first]) ** 2).sum(-1)
    square[near >= np.arange(first)[:, None]] = np.inf
    kept = np.argsort(square, axis=1, kind="stable")[:, :count]
    is_kept = np.isfinite(np.take_along_axis(square, kept, axis=1))
    rows.append(np.nonzero(is_kept)[0])
    columns.append(kept[is_kept])
    while first < n:
        last = min(n, 2 * first)
        rows.append(np.repeat(np.arange(first, last), count))
        columns.append(_before(cKDTree(z[:last]), z, np.arange(first, last), count).reshape(-1))
        first = last
    return _pattern(np.concatenate([*rows, np.arange(n)]), np.concatenate([*columns, np.arange(n)]), n)


def _before(tree: cKDTree, z: Floats, rows: Indices, count: int) -> Indices:
    """Return the nearest predecessors (r, count) of rows, all of which have as many in the tree."""
    out = np.empty((len(rows), count), dtype=np.int64)
    asked, left = min(tree.n, int(_SPARE * count) + 2), np.arange(len(rows))
    while len(left):
        near = tree.query(z[rows[left]], k=asked, workers=os.cpu_count() or 1)[1]
        is_before = near < rows[left, None]
        is_full = is_before.sum(1) >= count
        chosen = np.argsort(~is_before[is_full], axis=1, kind="stable")[:, :count]
        out[left[is_full]] = np.take_along_axis(near[is_full], chosen, axis=1)
        left, asked = left[~is_full], min(tree.n, 2 * asked)
    return out


def _pattern(rows: Indices, columns: Indices, n: int) -> SparsityPattern:
    order = np.lexsort((columns, rows))
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return SparsityPattern(starts, columns[order], (n, n))


def part(
    pattern: SparsityPattern,  # (n, n)
    rows: Indices,  # (r,)
) -> tuple[SparsityPattern, Indices]:
    """Return the pattern (r, u) of some rows, given in order, and the u rows that they and their neighbours are."""
    sizes = np.diff(pattern.indptr)[rows]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    entries = np.repeat(pattern.indptr[rows] - starts[:-1], sizes) + np.arange(starts[-1])
    used, columns = np.unique(pattern.indices[entries], return_inverse=True)
    return SparsityPattern(starts, columns.reshape(-1), (len(rows), len(used))), used


def nearest(
    z: Floats,  # (n, d)
    points: Floats,  # (q, d)
    count: int,
) -> Indices:  # (q, count)
    """Return the nearest rows of points, in increasing order of the rows."""
    found = cKDTree(z).query(points, k=np.arange(1, min(count, len(z)) + 1), workers=os.cpu_count() or 1)[1]
    return np.sort(found, axis=1)


def nearest_before(
    z: Floats,  # (n + q, d)
    first: int,
    count: int,
) -> Indices:  # (q, count)
    """Return the nearest rows before each row from `first` on, in increasing order, then -1 where they are fewer."""
    rows = np.arange(first, len(z))
    near = nearest(z, z[first:], min(len(z), count + len(rows)))
    square = ((z[near] - z[first:, None]) ** 2).sum(-1)
    square[near >= rows[:, None]] = np.inf
    chosen = np.argsort(square, axis=1, kind="stable")[:, :count]
    found = np.where(
        np.isfinite(np.take_along_axis(square, chosen, axis=1)), np.take_along_axis(near, chosen, 1), len(z)
    )
    found.sort(axis=1)
    return np.where(found == len(z), -1, found)
