"""Walks on a graph, drawn by the workers of a cluster."""

from collections.abc import Hashable, Iterable
from typing import Any

import dask
import numpy as np
from distributed import Client
from numpy.typing import NDArray

import graphs
from graphs.graph import check_graph
from graphs.walks import VisitArrays, WalkSettings, check_memory, concatenate_visits, draw
from rfgp.dask.cluster import client_of, computed, shipped
from rfgp.messages import check_count

_PARTS_PER_THREAD = 4


def sample_walks(
    graph: graphs.Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,) labels
    *,
    client: Client | None = None,
    num_parts: int | None = None,
    **options: Any,
) -> graphs.Walks:
    """Draw random walks on the workers.

    The walks are identical to those of `graphs.sample_walks` with the same seed. The graph is sent to each worker once,
    and the loads of the walks are returned. The client chooses couplings and exact hops.

    Args:
        graph: The graph.
        nodes: Labels of the start nodes (n,). If None, every node.
        client: The client of the cluster. If None, the current one.
        num_parts: The number of parts of the nodes. If None, four for each thread of the cluster.
        options: Options of `graphs.sample_walks` except `num_threads` and `progress`.

    Returns:
        The walks of the start nodes.

    Raises:
        MemoryBudgetError: If the result would take more than `max_memory`.
        InvalidArgumentError: If there is no client, the number of parts is not positive, or an option of
            `graphs.sample_walks` is wrong.

    Examples:
        >>> from distributed import Client
        >>> import graphs
        >>> import rfgp
        >>> with Client(processes=False, dashboard_address=None):
        ...     walks = rfgp.dask.sample_walks(graphs.Graph.from_grid((4, 4)), num_walkers=4, seed=0)
        >>> walks.features(graphs.kernels.Diffusion(1.0)).shape
        (16, 16)
    """
    client = client_of(client)
    check_graph(graph)
    labels = None if nodes is None else list(nodes)
    starts = np.arange(graph.num_nodes) if labels is None else graph.index(labels)
    few = graph.as_nodes(starts[:1])
    max_memory = options.pop("max_memory", None)
    settings = graphs.sample_walks(graph, few, **options).settings
    check_memory(graph, starts, settings, max_memory)
    if num_parts is None:
        num_parts = _PARTS_PER_THREAD * max(1, sum(client.nthreads().values()))
    pieces = [part for part in np.array_split(starts, check_count("num_parts", num_parts)) if len(part)] or [starts]
    there, step = [shipped(value) for value in (graph, settings)], dask.delayed(_columns, pure=False)
    parts = computed(client, [step(*there, piece) for piece in pieces])
    return graphs.Walks.of(graph, starts, settings, concatenate_visits(parts))


def _columns(graph: graphs.Graph, settings: WalkSettings, starts: NDArray[np.int64]) -> VisitArrays:
    return draw(graph, starts, settings, num_threads=1)
