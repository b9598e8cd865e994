"""Predecessors of blocks of rows: near rows that share their neighbours, and are neighbours of those after them.

Each block B of b rows is conditioned on the k rows before it that are nearest to its center, and each of its rows on
those of the block before it as well. So one factorisation of a matrix (k + b, k + b) serves b rows, where rows alone
take b factorisations of matrices (k, k) (`rfgp.local.loops`). With all rows before it as neighbours it is exact.

Source: Guinness (2018), Permutation and grouping methods for sharpening Gaussian process approximations; Pan et al.
(2024, 2025), arXiv 2410.04477 and 2504.12004.
"""

import numpy as np

from rfgp.local.neighbors import Floats, Indices, nearest_of_prefixes, nearest_predecessors
from rfgp.sparse import EntryPattern


def block_predecessors(
    z: Floats,  # (n, d)
    count: int,
    size: int,
    rows: Indices | None = None,  # (r,)
) -> EntryPattern:  # (r, n)
    """Return the neighbours of rows in blocks, and each row itself as the last; blocks follow each other.

    Blocks are in the order of the first row of each, so that rows in a random order have blocks in one.

    Args:
        z: The rows, in order.
        count: k.
        size: The most rows of a block. If 1, the neighbours are those of `nearest_predecessors`.
        rows: The rows of which blocks are wanted, in increasing order: as many rows as these, in the blocks of every
            `size`-th. If None, all.
    """
    if size == 1:
        return nearest_predecessors(z, count, rows)
    by, starts = _blocks(z, size)
    counts = np.diff(starts)
    centers = np.add.reduceat(z[by], starts[:-1]) / counts[:, None]
    wanted = np.arange(len(counts))
    if rows is not None:
        of = np.empty(len(z), dtype=np.int64)
        of[by] = np.repeat(wanted, counts)
        wanted = np.unique(of[rows[::size]])
    near, sizes = nearest_of_prefixes(z[by], centers[wanted], starts[wanted], count)
    return _runs(by[near], sizes, by, starts, wanted)


def _runs(near: Indices, sizes: Indices, by: Indices, starts: Indices, wanted: Indices) -> EntryPattern:
    """Return the pattern of the rows of blocks: the neighbours of the block, the rows before in it, and the row.

    Args:
        near: The neighbours of the blocks, one after another.
        sizes: How many each of them has.
        by: The rows, block by block.
        starts: Where each block begins.
        wanted: The blocks.
    """
    counts = np.diff(starts)[wanted]
    first = np.concatenate([[0], np.cumsum(sizes + counts)])[:-1]  # of what a block has together
    own = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # the place of a row in its block
    members = by[np.repeat(starts[wanted], counts) + own]
    together = np.empty(sizes.sum() + counts.sum(), dtype=np.int64)
    at_own = np.repeat(first + sizes, counts) + own
    is_near = np.ones(len(together), dtype=bool)
    is_near[at_own] = False
    together[at_own], together[is_near] = members, near
    lengths = np.repeat(sizes, counts) + own + 1
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(indptr[-1]) + np.repeat(np.repeat(first, counts) - indptr[:-1], lengths)
    return EntryPattern(indptr, together[places], (len(members), len(by)))


def _blocks(z: Floats, size: int) -> tuple[Indices, Indices]:
    """Return rows (n,) block by block, in the order of the first row of each, and where each block begins (m + 1,).

    Rows are halved at the column in which they are widest until `size` or fewer are left.
    """
    by, starts = np.arange(len(z)), np.array([0, len(z)])
    while (counts := np.diff(starts)).max() > size:
        part = np.repeat(np.arange(len(counts)), counts)
        known, begin = z[by], starts[:-1]
        widest = np.argmax(np.maximum.reduceat(known, begin) - np.minimum.reduceat(known, begin), axis=1)
        by = by[np.lexsort((known[np.arange(len(by)), widest[part]], part))]
        half = -(-(-(-counts // size)) // 2) * size  # whole blocks
        starts = np.unique(np.concatenate([starts, np.minimum(begin + half, starts[1:])]))
    part = np.repeat(np.arange(len(counts)), counts)
    by = by[np.lexsort((by, part))]
    order = np.argsort(by[starts[:-1]])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return by[np.argsort(rank[part], kind="stable")], np.concatenate([[0], np.cumsum(counts[order])])
