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
def part_of(indptr, indices, weights, nodes, local):
    """Return the part of a graph on m nodes.

    Args:
        indptr: Pointers (n + 1,) of the graph.
        indices: Indices of the graph.
        weights: The weight of each node, (n,).
        nodes: The nodes (m,) of the part.
        local: Scratch space (n,), filled with -1.
    """
    local[nodes] = np.arange(len(nodes))
    starts, count = np.zeros(len(nodes) + 1, np.int64), 0
    columns = np.empty((indptr[nodes + 1] - indptr[nodes]).sum(), np.int32)
    for i in range(len(nodes)):
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            if local[indices[k]] >= 0:
                columns[count] = local[indices[k]]
                count += 1
        starts[i + 1] = count
    local[nodes] = -1
    return Part(starts, columns[:count], weights[nodes])


@jit
def with_halo(indptr, indices, weights, nodes, local):
    """Return the part on some nodes and their neighbors, the halo.

    Args:
        indptr: Pointers (n + 1,) of the graph.
        indices: Indices of the graph.
        weights: The weight of each node, (n,).
        nodes: The nodes of the part.
        local: Scratch space (n,), filled with -1.

    Returns:
        Pointers, indices and weights of the part. Its nodes come first, then the halo. Nodes of the halo are not
        joined.
    """
    num_interior, count = len(nodes), len(nodes)
    local[nodes] = np.arange(num_interior)
    room = num_interior + (indptr[nodes + 1] - indptr[nodes]).sum()
    every, degrees = np.empty(room, np.int32), np.zeros(room + 1, np.int64)
    every[:num_interior] = nodes
    for i in range(num_interior):
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            u = indices[k]
            if local[u] == -1:
                local[u] = count
                every[count] = u
                count += 1
            degrees[i + 1] += 1
            if local[u] >= num_interior:
                degrees[local[u] + 1] += 1
    starts = np.cumsum(degrees[: count + 1])
    columns, at = np.empty(starts[count], np.int32), starts[:-1].copy()
    for i in range(num_interior):
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            j = local[indices[k]]
            columns[at[i]] = j
            at[i] += 1
            if j >= num_interior:
                columns[at[j]] = i
                at[j] += 1
    local[every[:count]] = -1
    return starts, columns, weights[every[:count]]
