"""Nested dissection (George 1973, Nested dissection of a regular finite element mesh).

A separator is eliminated after the two sides, which are dissected recursively. Parts that are small, or have no small
separator, are ordered by minimum degree, with their neighbors in separators as the halo (Pellegrini, Roman and Amestoy
2000).
"""

import numpy as np

from graphs.cholesky.compiled.ordering.degree import minimum_degree
from graphs.cholesky.compiled.ordering.parts import part_of, with_halo
from graphs.cholesky.compiled.ordering.refining import SEPARATOR
from graphs.cholesky.compiled.ordering.separating import by_plane, embedded, helps
from graphs.compiled import jit

LEAF = 400
"""The largest number of nodes of a part that is not dissected."""


@jit
def _separated(indptr, indices, weights, nodes, local, coordinates):
    """Return the sides (m,) of a part, all in the separator if none helps."""
    part = part_of(indptr, indices, weights, nodes, local)
    if coordinates.shape[1] > 0:
        side = by_plane(part, coordinates[nodes])
        if helps(part, side):
            return side
    side = by_plane(part, embedded(part))
    if not helps(part, side):
        side[:] = SEPARATOR
    return side


@jit
def _arrange(nodes, side):
    """Sort nodes by side, in place and stably; return the sizes of the sides."""
    nodes[:] = np.concatenate((nodes[side == 0], nodes[side == 1], nodes[side == SEPARATOR]))
    return np.bincount(side, minlength=3)


@jit
def dissect(indptr, indices, weights, coordinates):
    """Return an elimination order (n,) by nested dissection.

    Args:
        indptr: Pointers (n + 1,) of the pattern, without its diagonal.
        indices: Indices of the pattern.
        weights: The number of original nodes of each node, (n,).
        coordinates: Coordinates (n, d), with d = 0 if they are unknown.
    """
    nodes, local = np.arange(len(weights)).astype(np.int32), np.full(len(weights), -1, np.int32)
    waiting, depth = np.zeros((128, 2), np.int64), 1  # ranges of nodes; each is at most half of the previous one
    waiting[0, 1] = len(nodes)
    while depth > 0:
        depth -= 1
        first, last = waiting[depth]
        mine, counts = nodes[first:last], np.zeros(3, np.int64)
        if last - first > LEAF:
            counts = _arrange(mine, _separated(indptr, indices, weights, mine, local, coordinates))
        if counts[0] == 0 or counts[1] == 0:
            starts, columns, together = with_halo(indptr, indices, weights, mine, local)
            mine[:] = mine[minimum_degree(starts, columns, together, last - first)]
            continue
        middle, end = first + counts[0], first + counts[0] + counts[1]
        smaller = counts[0] < counts[1]  # is taken first, so that the stack stays small
        waiting[depth + smaller] = first, middle
        waiting[depth + 1 - smaller] = middle, end
        depth += 2
    return nodes


@jit
def peeled(indptr, indices):
    """Return the nodes (k,) that have degree <= 1 once previous ones are removed.

    Args:
        indptr: Pointers (n + 1,) of the pattern, without its diagonal.
        indices: Indices of the pattern.
    """
    n = len(indptr) - 1
    degrees, out, count = indptr[1:] - indptr[:-1], np.empty(n, np.int32), 0
    for v in range(n):
        if degrees[v] <= 1:
            out[count] = v
            count += 1
    done = 0
    while done < count:
        v = out[done]
        done += 1
        for k in range(indptr[v], indptr[v + 1]):
            u = indices[k]
            degrees[u] -= 1
            if degrees[u] == 1:
                out[count] = u
                count += 1
    return out[:count]
