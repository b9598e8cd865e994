"""How many first hops of a start node are computed exactly."""

import numpy as np
from numpy.typing import NDArray

from graphs.graph import Graph
from graphs.walks.settings import HopRule

Integers = NDArray[np.int64]


def exact_hops_of(exact_hops: int | HopRule, graph: Graph, starts: Integers) -> Integers:
    """Return how many first hops are exact (n,) for n start nodes."""
    if not isinstance(exact_hops, HopRule):
        return np.full(len(starts), exact_hops, dtype=np.int64)
    limit = min(int(exact_hops.limits.max()), graph.num_nodes)
    fits = count_within_hops(graph, starts, exact_hops.most, limit) <= exact_hops.limits
    fits[:, 0] = True
    return np.asarray(exact_hops.most - np.argmax(fits[:, ::-1], axis=1), dtype=np.int64)


def count_within_hops(graph: Graph, starts: Integers, most: int, limit: int) -> Integers:
    """Return how many nodes lie within 0, 1, ..., `most` hops of each of n start nodes, (n, most + 1).

    Once more than `limit` are found the search ends; that hop and the later ones get a number beyond it.
    """
    from graphs.walks.compiled import reach

    matrix = graph.shift_operator
    return np.asarray(reach(matrix.indptr, matrix.indices, starts, most, limit))
