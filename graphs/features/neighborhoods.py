"""The growth of neighborhoods."""

import numpy as np

from graphs.checks import check_count
from graphs.graph import Graph, check_graph
from graphs.walks.hops import count_within_hops

_SAMPLE_NODES = 64
"""The largest number of nodes whose neighborhoods are counted."""
_MAX_DEGREE = 200
"""The largest degree that is returned."""


def max_series_degree(graph: Graph, max_nonzeros: int) -> int:
    """Return the largest degree of a series within a budget of non-zeros.

    The number of non-zeros is a mean over 64 nodes. The degree is at least 1, at most 200, and at most the number of
    hops that reach every node.

    Args:
        graph: The graph.
        max_nonzeros: The budget per row.

    Examples:
        >>> import graphs
        >>> graphs.max_series_degree(graphs.Graph.from_grid((50, 50), periodic=True), max_nonzeros=64)
        5
    """
    check_graph(graph)
    sample = np.sort(np.random.default_rng(0).permutation(graph.num_nodes)[:_SAMPLE_NODES])
    limit = min(16 * check_count("max_nonzeros", max_nonzeros), graph.num_nodes)
    sizes = count_within_hops(graph, sample, _MAX_DEGREE, limit).mean(0)
    fits = int((sizes <= max_nonzeros).sum()) - 1
    grows = int((np.diff(sizes) > 0).sum())
    return max(1, min(fits, grows))
