"""Exact first hops, and the nodes from which walkers continue."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs import random
from graphs.walks.hops import exact_hops_of
from graphs.walks.settings import HopRule, WalkSettings
from graphs.walks.transitions import TransitionModel

Integers = NDArray[np.int64]


class ExactFirstHops(NamedTuple):
    """The exact visits of n start nodes, and the nodes from which their m walkers continue.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.walks.transitions import TransitionModel
        >>> from graphs.walks.starts import prepare_starts
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=4, exact_hops=1, seed=0)
        >>> prepare_starts(TransitionModel(walks.graph, "weights"), walks.nodes, walks.settings).initial_nodes.shape
        (9, 4)
    """

    hops: Integers  # (n,) the number of exact hops
    counts: Integers  # (n,) the number of exact visits
    visits: NDArray[np.uint64]  # (counts.sum(),) ascending in hop for each start
    loads: NDArray[np.float64]  # (counts.sum(),)
    initial_nodes: NDArray[np.int32]  # (n, m)
    initial_loads: NDArray[np.float64]  # (n, m)


def prepare_starts(model: TransitionModel, starts: Integers, settings: WalkSettings) -> ExactFirstHops:
    """Return the exact first hops of start nodes, and the nodes where walkers continue.

    Walkers continue at nodes that are drawn from the distribution after the exact hops. Without exact hops, they
    continue at the start node, each with the load 1 / m.

    Args:
        model: The transition probabilities.
        starts: Positions (n,) of the start nodes.
        settings: The settings of the walks: walkers, exact hops, step coupling and seed.

    Returns:
        The exact visits, and the nodes and loads (n, m) at which the m walkers of each start node continue.

    Examples:
        >>> import graphs
        >>> from graphs.walks.transitions import TransitionModel
        >>> from graphs.walks.starts import prepare_starts
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=4, exact_hops=1, seed=0)
        >>> int(
        ...     prepare_starts(TransitionModel(walks.graph, "weights"), walks.nodes, walks.settings).counts[4]
        ... )  # the center
        5
    """
    m, n = settings.num_walkers, len(starts)
    if settings.max_hops == 0:
        visits = starts.astype(np.uint64) << np.uint64(32)
        nodes = np.repeat(starts.astype(np.int32)[:, None], m, axis=1)  # contiguous, so that `walk` is compiled once
        counts, loads = np.ones(n, np.int64), np.full((n, m), 1 / m)
        return ExactFirstHops(np.zeros(n, np.int64), counts, visits, np.ones(n), nodes, loads)
    from graphs.walks.compiled import draw_starts

    num_hops = exact_hops_of(settings.exact_hops, model.graph, starts)
    ends, nodes, mass, loads = _push(model, starts, num_hops)
    per_hop = np.diff(np.concatenate([[0], ends.ravel()])).reshape(ends.shape)
    hops = np.repeat(np.tile(np.arange(ends.shape[1], dtype=np.uint64), n), per_hop.ravel())
    visits = (nodes.astype(np.uint64) << np.uint64(32)) | hops
    keys = random.derive(random.stream(settings.seed, random.Role.STARTS), starts)
    indices = draw_starts(ends, num_hops, mass, keys, m, settings.step_coupling != "independent")
    initial_nodes = nodes[indices]
    initial_loads = model.sqrt_degrees[starts][:, None] / model.sqrt_degrees[initial_nodes] / m
    return ExactFirstHops(num_hops, per_hop.sum(1), visits, loads, initial_nodes, initial_loads)


def mean_exact_visits(model: TransitionModel, starts: Integers, exact_hops: int | HopRule) -> float:
    """Return an estimate of the mean number of exact visits of a start node, from a sample.

    Args:
        model: The transition probabilities.
        starts: Positions (n,) of the start nodes.
        exact_hops: The number of exact first hops, or a rule.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.walks.transitions import TransitionModel
        >>> from graphs.walks.starts import mean_exact_visits
        >>> mean_exact_visits(TransitionModel(graphs.Graph.from_grid((3, 3)), "weights"), np.array([4]), 1)
        5.0
    """
    sample = starts[np.linspace(0, len(starts) - 1, min(len(starts), 32), dtype=np.int64)]
    ends, *_ = _push(model, sample, exact_hops_of(exact_hops, model.graph, sample))
    return float(ends[-1, -1]) / len(sample) if len(sample) else 0.0


def _push(model: TransitionModel, starts: Integers, num_hops: Integers) -> tuple[NDArray[Any], ...]:
    """Return ends, nodes, probabilities and loads of first hops, as `compiled.push`."""
    from graphs.walks.compiled import push

    matrix = model.matrix
    pushed: tuple[NDArray[Any], ...] = push(
        matrix.indptr, matrix.indices, model.probabilities, model.sqrt_degrees, starts, num_hops
    )
    return pushed
