"""The choice of exact hops by a pilot: walks from a sample of nodes, with several numbers of hops.

Exact hops are useful if they lower the variance of the features within the budget of non-zeros. A pilot measures both.
Its walks are independent of every draw of the user, so the choice does not bias these.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.walks.drawing import draw
from graphs.walks.hops import count_within_hops
from graphs.walks.settings import HopRule, WalkSettings
from graphs.walks.transitions import TransitionModel
from graphs.walks.visits import Visits

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_MAX_NODES = 64
"""The largest number of nodes of the pilot."""
_MIN_NODES = 16
"""The smallest number of nodes of the pilot, if the graph has so many."""
_NUM_DRAWS = 6
"""The number of independent draws from which variances are estimated."""
_WALKERS = 2**11
"""The number of walkers of the pilot; it uses fewer nodes if each has many walkers."""
_MAX_HOPS = 32
"""The largest number of exact hops that is considered."""
_MAX_VARIANCE_RATIO = 0.9
"""The largest ratio of variances after and before a hop at which the hop is taken."""
_NEGLIGIBLE_VARIANCE = 1e-12
"""The fraction of |Phi|^2 below which a variance counts as 0."""
_PILOT_SEED = 0x9111_07
"""The first seed of the pilot, unlikely to be the seed of a user."""


class HopMeasurements(NamedTuple):
    """Measurements of one number of hops, on nodes within the budget.

    Examples:
        >>> import graphs
        >>> from graphs.walks.pilot import measure
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> measure(walks.graph, graphs.kernels.Diffusion(), walks.settings, walks.nodes[:4], 1).variances.shape
        (4,)
    """

    nonzeros: Floats  # (k,) expected non-zeros per row
    visits: float  # expected visits of a row
    variances: Floats  # (k,) the sum of the variances of the entries of each row
    squares: float  # the sum of their expected squares over rows and entries


def choose_hops(
    graph: Graph, kernel: GraphKernel, settings: WalkSettings, max_nonzeros: int, num_threads: int | None = None
) -> int | HopRule:
    """Return a rule for exact hops that lowers the variance within the budget.

    With B_h nodes within h hops, a row has B_h non-zeros, and further ones at the nodes that its walkers reach outside.
    A node may have h exact hops up to a limit of B_h. Below the limit, rows of the sample stay within `max_nonzeros` in
    expectation and on average over nodes with neighborhoods of similar size. The hops must also lower the variance by
    at least a tenth below that of every smaller number, over the nodes within the limit. Visits may be at most twice
    those of the walkers, or four times `max_nonzeros`. If zero hops already exceed the budget, no hops are taken.

    Args:
        graph: The graph.
        kernel: The kernel whose features should have a small variance.
        settings: The settings of the walks; their number of hops is ignored.
        max_nonzeros: The budget of expected non-zeros per row of Phi.
        num_threads: As for `sample_walks`.

    Examples:
        >>> import graphs
        >>> from graphs.walks.pilot import choose_hops
        >>> g = graphs.Graph.from_grid((20, 20))
        >>> settings = graphs.sample_walks(g, nodes=[0], exact_hops=0, seed=0).settings
        >>> choose_hops(g, graphs.kernels.Diffusion(2.0), settings, 64).max_hops > 0
        True
    """
    count = max(_MIN_NODES, min(_MAX_NODES, _WALKERS // settings.num_walkers))
    sample = np.sort(np.random.default_rng(0).permutation(graph.num_nodes)[:count])
    budget = min(max_nonzeros, graph.num_nodes)
    neighborhood_sizes = count_within_hops(graph, sample, _MAX_HOPS, budget)
    fits_any = (neighborhood_sizes <= budget).any(0)
    neighborhood_sizes = neighborhood_sizes[:, fits_any]  # up to the last number of hops within it
    max_visits = max(2 * settings.num_walkers * settings.halting.mean(), 4 * budget)
    limits, variances = [1], np.full(neighborhood_sizes.shape, np.nan)
    for hops in range(neighborhood_sizes.shape[1]):
        fits = neighborhood_sizes[:, hops] <= budget
        measured = measure(graph, kernel, replace(settings, exact_hops=hops), sample[fits], num_threads)
        variances[fits, hops] = measured.variances
        limit = _largest_neighborhood(neighborhood_sizes[fits, hops], measured.nonzeros, budget)
        in_reach = neighborhood_sizes[:, hops] <= limit
        if not in_reach.any() or (hops > 0 and measured.visits > max_visits):
            break
        if hops > 0:
            totals = variances[in_reach, : hops + 1].sum(0)
            limits.append(limit if totals[hops] <= _MAX_VARIANCE_RATIO * totals[:hops].min() else -1)
        if variances[in_reach, hops].sum() <= _NEGLIGIBLE_VARIANCE * measured.squares:
            break
    num_hops = max(hops for hops, limit in enumerate(limits) if limit > 0)
    return HopRule(np.array(limits[: num_hops + 1])) if num_hops > 0 else 0


def _largest_neighborhood(neighborhood_sizes: Integers, nonzeros: Floats, budget: int) -> int:
    """Return the size of the largest neighborhood within the budget, 0 for none.

    Rows with B nodes do if the mean non-zeros of nodes with 0.8 B to B nodes do. The limit is half as much again beyond
    the largest such B of the sample, or up to the first that does not. The non-zeros outside must leave room for it.
    """
    limit = 0
    for size in np.unique(neighborhood_sizes):
        is_similar = (neighborhood_sizes > 0.8 * size) & (neighborhood_sizes <= size)
        if nonzeros[is_similar].mean() > budget:
            return min(limit, int(size) - 1)
        outside = float((nonzeros - neighborhood_sizes)[is_similar].mean())
        limit = max(int(size), min(int(1.5 * size), int(budget - outside)))
    return limit


def measure(
    graph: Graph,
    kernel: GraphKernel,
    settings: WalkSettings,
    nodes: Integers,  # (n,)
    num_threads: int | None,
) -> HopMeasurements:
    """Measure walks from n nodes over several draws.

    Args:
        graph: The graph.
        kernel: The kernel.
        settings: The settings of the walks.
        nodes: Positions (n,) of the start nodes.
        num_threads: The number of threads. If None, one per core.

    Returns:
        The measurements of each node.

    Examples:
        >>> import graphs
        >>> from graphs.walks.pilot import measure
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> measure(walks.graph, graphs.kernels.Diffusion(), walks.settings, walks.nodes[:4], 1).nonzeros.shape
        (4,)
    """
    sqrt_degrees, phis, visits = TransitionModel(graph, settings.transitions).sqrt_degrees, [], 0
    for k in range(_NUM_DRAWS):
        columns = draw(graph, nodes, replace(settings, seed=_PILOT_SEED + k), num_threads)
        visited = Visits.of(nodes, settings, columns, sqrt_degrees)
        values = visited.values(kernel.modulation(visited.max_length))
        phis.append(sp.csr_array((values, visited.indices, visited.indptr), shape=(len(nodes), graph.num_nodes)))
        visits += len(visited.hops)
    squares = sum(phi.power(2).sum(1) for phi in phis)
    variances = (squares - sum(phis).power(2).sum(1) / _NUM_DRAWS) / (_NUM_DRAWS - 1)
    nonzeros = np.mean([np.diff(phi.indptr) for phi in phis], axis=0)
    return HopMeasurements(
        nonzeros, visits / _NUM_DRAWS / max(len(nodes), 1), variances, float(np.sum(squares)) / _NUM_DRAWS
    )
