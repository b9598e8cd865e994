"""How fast neighbourhoods grow."""

import numpy as np

from graphs.checks import check_count
from graphs.graph import Graph, check_graph
from graphs.walks.hops import count_within_hops

_SAMPLED, _MAX_DEGREE = 64, 200


def max_series_degree(graph: Graph, max_nonzeros: int) -> int:
    """Return the largest degree of a series whose rows have at most so many non-zeros, on average over 64 nodes.

    At least 1, at most 200 and at most what reaches every node.

    Args:
        graph: The graph.
        max_nonzeros: The budget of a row.
    """
    check_graph(graph)
    sample = np.sort(np.random.default_rng(0).permutation(graph.num_nodes)[:_SAMPLED])
    limit = min(16 * check_count("max_nonzeros", max_nonzeros), graph.num_nodes)
    sizes = count_within_hops(graph, sample, _MAX_DEGREE, limit).mean(0)
    fits = int((sizes <= max_nonzeros).sum()) - 1
    grows = int((np.diff(sizes) > 0).sum())
    return max(1, min(fits, grows))
