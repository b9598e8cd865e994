"""Predecessors of blocks of near rows that share their neighbors.

Each block B of b rows is conditioned on the k earlier rows that are nearest to its center. Each of its rows is also
conditioned on the rows of the block before it. One factorization of a matrix (k + b, k + b) then serves b rows,
instead of b factorizations of matrices (k, k) (`rfgp.local.loops`). It is exact if all earlier rows are neighbors.

Sources: Guinness (2018), Permutation and grouping methods for sharpening Gaussian process approximations. Pan et al.
(2024, 2025), arXiv 2410.04477 and 2504.12004.
"""

import numpy as np

from rfgp.local.neighbors import Floats, Indices, nearest_of_prefixes, nearest_predecessors
from rfgp.sparse import EntryPattern


def block_predecessors(
    z: Floats,  # (n, d)
    count: int,
    size: int,
    most: int | None = None,
) -> EntryPattern:  # (r, n)
    """Return the neighbors of rows in blocks, with each row itself as the last.

    Blocks follow each other. All rows are divided into blocks, in the order of the first row of each block. Rows in a
    random order therefore have blocks in a random order. If fewer rows are requested, blocks are chosen at equal
    distances in that order. Their mean log density is then that of all rows, on average.

    Args:
        z: The ordered rows.
        count: The number k of neighbors of a block.
        size: The maximum number of rows of a block. If 1, the neighbors are those of `nearest_predecessors`.
        most: The approximate number r of rows. If None, all.

    Examples:
        >>> pattern = block_predecessors(np.array([[0.0], [1.0], [0.1], [1.1]]), count=1, size=2)
        >>> [row.tolist() for row in np.split(pattern.indices, pattern.indptr[1:-1])]
        [[0], [0, 2], [2, 1], [2, 1, 3]]
    """
    if size == 1:
        chosen = None if most is None else np.linspace(0, len(z) - 1, most).astype(np.int64)
        return nearest_predecessors(z, count, chosen)
    by, starts = _blocks(z, size)
    first, sizes = starts[:-1], np.diff(starts)
    centers = np.add.reduceat(z[by], first) / sizes[:, None]
    if most is not None:
        chosen = np.unique(np.linspace(0, len(first) - 1, min(-(-most // size), len(first))).astype(np.int64))
        first, sizes, centers = first[chosen], sizes[chosen], centers[chosen]
    near, counts = nearest_of_prefixes(z[by], centers, first, count)
    members = by[np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())]
    return runs_of(by[near], counts, members, sizes, len(z))


def runs_of(near: Indices, counts: Indices, members: Indices, sizes: Indices, columns: int) -> EntryPattern:
    """Return the pattern of rows in blocks.

    A row has the neighbors of its block, the earlier rows of the block, and itself.

    Args:
        near: The neighbors of the blocks, one block after another.
        counts: The number of neighbors of each block.
        members: The rows of the blocks.
        sizes: The number of rows of each block.
        columns: The number of all rows.
    """
    first = np.cumsum(counts + sizes) - (counts + sizes)  # the first position of each block
    rank = np.arange(len(members)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # the position of a row in its block
    merged, is_near = (
        np.empty(len(near) + len(members), dtype=np.int64),
        np.ones(len(near) + len(members), dtype=bool),
    )
    position_of_rows = np.repeat(first + counts, sizes) + rank
    is_near[position_of_rows] = False
    merged[position_of_rows], merged[is_near] = members, near
    lengths = np.repeat(counts, sizes) + rank + 1
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.arange(indptr[-1]) + np.repeat(np.repeat(first, sizes) - indptr[:-1], lengths)
    return EntryPattern(indptr, merged[indices], (len(members), columns))


def _blocks(z: Floats, size: int) -> tuple[Indices, Indices]:
    """Return rows (n,) block by block, in the order of first rows.

    The second result has the first position of each block (m + 1,).

    Rows are divided at the median of their widest column until blocks have at most `size` rows.
    """
    by, starts = np.arange(len(z)), np.array([0, len(z)])
    while (counts := np.diff(starts)).max() > size:
        block = np.repeat(np.arange(len(counts)), counts)
        sorted_rows, begin = z[by], starts[:-1]
        widest = np.argmax(np.maximum.reduceat(sorted_rows, begin) - np.minimum.reduceat(sorted_rows, begin), axis=1)
        by = by[np.lexsort((sorted_rows[np.arange(len(by)), widest[block]], block))]
        half = (counts + 2 * size - 1) // (2 * size) * size  # whole blocks
        starts = np.unique(np.concatenate([starts, np.minimum(begin + half, starts[1:])]))
    block = np.repeat(np.arange(len(counts)), counts)
    by = by[np.lexsort((by, block))]
    order = np.argsort(by[starts[:-1]])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return by[np.argsort(rank[block], kind="stable")], np.concatenate([[0], np.cumsum(counts[order])])
