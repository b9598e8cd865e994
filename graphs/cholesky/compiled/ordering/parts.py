"""Parts of a graph: subsets of its nodes, renumbered, with the edges between them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.compiled import jit


class Part(NamedTuple):
    """A graph of m nodes without loops, in CSR form with both directions of each edge."""

    indptr: NDArray[np.int64]  # (m + 1,)
    indices: NDArray[np.int32]  # (nnz,)
    weights: NDArray[np.int64]  # (m,) the number of original nodes of each node


@jit
def part_of(indptr, indices, weights, nodes, place):
    """Return the part of a graph on some of its nodes; `place` (n,) is scratch space of -1."""
    for i in range(len(nodes)):
        place[nodes[i]] = i
    starts = np.empty(len(nodes) + 1, np.int64)
    starts[0] = count = 0
    for i in range(len(nodes)):
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            count += place[indices[k]] >= 0
        starts[i + 1] = count
    columns, at = np.empty(count, np.int32), 0
    for i in range(len(nodes)):
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            if place[indices[k]] >= 0:
                columns[at] = place[indices[k]]
                at += 1
    place[nodes] = -1
    return Part(starts, columns, weights[nodes])


@jit
def with_halo(indptr, indices, weights, nodes, place):
    """Return the part on some nodes and their neighbors, without the edges between the latter.

    `place` is scratch space as for `part_of`.
    """
    own, count = len(nodes), len(nodes)
    for i in range(own):
        place[nodes[i]] = i
    edges = 0
    for i in range(own):
        edges += indptr[nodes[i] + 1] - indptr[nodes[i]]
    every, degrees = np.empty(own + edges, np.int32), np.zeros(own + edges + 1, np.int64)
    every[:own] = nodes
    for i in range(own):
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            u = indices[k]
            if place[u] == -1:
                place[u] = count
                every[count] = u
                count += 1
            degrees[i + 1] += 1
            if place[u] >= own:
                degrees[place[u] + 1] += 1
    starts = np.cumsum(degrees[: count + 1])
    columns, at = np.empty(starts[count], np.int32), starts[:-1].copy()
    for i in range(own):
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            j = place[indices[k]]
            columns[at[i]] = j
            at[i] += 1
            if j >= own:
                columns[at[j]] = i
                at[j] += 1
    place[every[:count]] = -1
    return starts, columns, weights[every[:count]]
