"""The number of exact first hops of start nodes."""

import numpy as np
from numpy.typing import NDArray

from graphs.graph import Graph
from graphs.walks.settings import HopRule

Integers = NDArray[np.int64]


def exact_hops_of(exact_hops: int | HopRule, graph: Graph, starts: Integers) -> Integers:
    """Return the number (n,) of exact first hops of n start nodes.

    Args:
        exact_hops: The number of hops, or a rule.
        graph: The graph.
        starts: Positions (n,) of the start nodes.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.walks.hops import exact_hops_of
        >>> g, rule = graphs.Graph.from_grid((5, 5)), graphs.HopRule(np.array([1, 4]))
        >>> exact_hops_of(rule, g, np.array([0, 12])).tolist()  # a corner has 3 nodes within 1 hop, the center 5
        [1, 0]
    """
    if not isinstance(exact_hops, HopRule):
        return np.full(len(starts), exact_hops, dtype=np.int64)
    limit = min(int(exact_hops.limits.max()), graph.num_nodes)
    fits = count_within_hops(graph, starts, exact_hops.max_hops, limit) <= exact_hops.limits
    fits[:, 0] = True
    return np.asarray(exact_hops.max_hops - np.argmax(fits[:, ::-1], axis=1), dtype=np.int64)


def count_within_hops(graph: Graph, starts: Integers, max_hops: int, limit: int) -> Integers:
    """Return the numbers (n, max_hops + 1) of nodes within 0, 1, ... hops of n nodes.

    The search ends when more than `limit` are found. This and the later hops then have a count above the limit.

    Args:
        graph: The graph.
        starts: Positions (n,) of the start nodes.
        max_hops: The largest number of hops.
        limit: The number of nodes at which the search ends.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.walks.hops import count_within_hops
        >>> count_within_hops(graphs.Graph.from_grid((5, 5)), np.array([12]), 2, 25).tolist()
        [[1, 5, 13]]
    """
    from graphs.walks.compiled import reach

    matrix = graph.shift_operator
    return np.asarray(reach(matrix.indptr, matrix.indices, starts, max_hops, limit))
