"""Nested dissection (George 1973, Nested dissection of a regular finite element mesh).

A separator is eliminated after the two sides, which are dissected in turn; what is small, or has no small separator, is
eliminated by minimum degree, with its neighbors in separators as the halo (Pellegrini, Roman and Amestoy 2000).
"""

import numpy as np

from graphs.cholesky.compiled.ordering.degree import minimum_degree
from graphs.cholesky.compiled.ordering.parts import part_of, with_halo
from graphs.cholesky.compiled.ordering.refining import SEPARATOR
from graphs.cholesky.compiled.ordering.separating import by_levels, by_plane, helps
from graphs.compiled import jit

LEAF = 400
"""Nodes up to which a part is not dissected."""


@jit
def _separated(indptr, indices, weights, nodes, place, coordinates):
    """Return the sides (m,) of a part of the graph, all in the separator where none helps."""
    part = part_of(indptr, indices, weights, nodes, place)
    if coordinates.shape[1] > 0:
        side = by_plane(part, coordinates[nodes])
        if helps(part, side):
            return side
    side = by_levels(part)
    if not helps(part, side):
        side[:] = SEPARATOR
    return side


@jit
def _arrange(nodes, side):
    """Sort nodes by their sides, in place, those of a side as they were; return how many each has."""
    old, counts = nodes.copy(), np.zeros(3, np.int64)
    for s in side:
        counts[s] += 1
    at = np.array([0, counts[0], counts[0] + counts[1]])
    for i in range(len(side)):
        nodes[at[side[i]]] = old[i]
        at[side[i]] += 1
    return counts


@jit
def dissect(indptr, indices, weights, coordinates):
    """Return an order (n,) of a graph's n nodes; coordinates are (n, d), (n, 0) where there are none."""
    nodes, place = np.arange(len(weights)).astype(np.int32), np.full(len(weights), -1, np.int32)
    waiting, depth = np.zeros((128, 2), np.int64), 1  # ranges of nodes; each is half of what waits below it, or less
    waiting[0, 1] = len(nodes)
    while depth > 0:
        depth -= 1
        first, last = waiting[depth]
        mine, counts = nodes[first:last], np.zeros(3, np.int64)
        if last - first > LEAF:
            counts = _arrange(mine, _separated(indptr, indices, weights, mine, place, coordinates))
        if counts[0] == 0 or counts[1] == 0:
            starts, columns, together = with_halo(indptr, indices, weights, mine, place)
            mine[:] = mine[minimum_degree(starts, columns, together, last - first)]
            continue
        middle, end = first + counts[0], first + counts[0] + counts[1]
        smaller = counts[0] < counts[1]  # is taken first, so that few wait
        waiting[depth + smaller] = first, middle
        waiting[depth + 1 - smaller] = middle, end
        depth += 2
    return nodes


@jit
def peeled(indptr, indices):
    """Return the nodes (k,) that have one neighbor or none once those before them are gone, in that order."""
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
