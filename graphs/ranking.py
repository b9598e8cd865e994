"""PageRank by random walks: the fraction of walkers that end on a node (Reid et al., 2024, App. E)."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from graphs.arrays import pointers
from graphs.checks import check_choice, check_count, check_fits, counted, resolve_seed
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph, check_graph
from graphs.lengths import (
    LENGTHS,
    STEP_COUPLINGS,
    Sigma,
    as_halting_distribution,
    quantile_survival,
)
from graphs.spectral import MAX_EXACT_NODES
from graphs.walks.drawing import CHUNK_WALKERS, node_draws
from graphs.walks.transitions import TransitionModel, WalkSettings

Floats = NDArray[np.float64]

_PROBES = 16
"""The number of random vectors that estimate the trace for larger graphs."""


@np.errstate(under="ignore")
def pagerank(
    graph: Graph,
    p_halt: float = 0.2,
    num_walkers: int = 2,
    lengths: str = "sigma",
    seed: int | None = None,
    *,
    step_coupling: str = "stratified",
    num_quantiles: int = 50,
    permutation: ArrayLike | None = None,  # (num_quantiles,)
    num_threads: int | None = None,
) -> Floats:  # (N,)
    """Estimate the PageRank (N,) of all nodes by walkers that start on each node.

    The estimates sum to 1. A walk from a uniformly random node that halts with probability p before each step ends on
    node j with probability PageRank_j. `networkx.pagerank` calls 1 - p alpha. As there, moves are in proportion to
    weight, and nodes without neighbors lead to any node. The latter is computed exactly, so walkers start on the other
    nodes only.

    Source: Fogaras et al. (2005); Reid et al. (2024, "Variance-reducing couplings for random features", Eq. 79).

    Args:
        graph: The graph.
        p_halt: The halting probability p, in (0, 1).
        num_walkers: The number m of walkers per node. It must be even if `lengths` is "antithetic" or "sigma".
        lengths: "iid", "antithetic", "sigma" or "systematic", as for `sample_walks`.
        seed: An integer. If None, one from the system.
        step_coupling: "independent", "stratified" or, for unweighted graphs, "repelling".
        num_quantiles: The number of quantile bins of "sigma", at least 2. A given permutation determines it.
        permutation: The permutation of "sigma". If None, that of `match_pagerank_quantiles` for this graph.
        num_threads: The number of threads. If None, one per core. It does not change the estimate.

    Returns:
        The estimates in the order of the nodes, (N,), float64.

    Raises:
        InvalidArgumentError: If an argument is out of range.
        MemoryBudgetError: If the walks of a node do not fit into memory.

    Examples:
        >>> import graphs
        >>> star = graphs.Graph.from_edges([(0, 1), (0, 2), (0, 3)])
        >>> rank = graphs.pagerank(star, p_halt=0.15, num_walkers=1000, seed=0)
        >>> [round(float(r), 1) for r in rank]
        [0.5, 0.2, 0.2, 0.2]
    """
    check_graph(graph)
    halting = as_halting_distribution(p_halt)
    if not halting.is_geometric:
        raise InvalidArgumentError(f"p_halt must be one halting probability for PageRank, got {p_halt!r}.")
    p = float(np.asarray(halting.p_halt))
    check_count("num_walkers", num_walkers)
    if num_threads is not None:
        check_count("num_threads", num_threads)
    walkers = f"{counted(num_walkers, 'walker')} with p_halt {p:g}"
    check_fits(walkers, 64.0 * num_walkers / p, "Use fewer walkers, or a larger p_halt.")
    check_choice("lengths", lengths, (name for name in LENGTHS if name != "learned"))
    check_choice("step_coupling", step_coupling, STEP_COUPLINGS)
    graph = graph.with_laplacian("normalized")  # whose moves are those of PageRank
    model = TransitionModel(graph, "weights")
    if step_coupling == "repelling" and len(model.cumulative):
        raise InvalidArgumentError(
            'step_coupling must be "independent" or "stratified" for a weighted graph, got "repelling".'
        )
    if lengths == "sigma" and permutation is None:
        permutation = match_pagerank_quantiles(graph, p, num_quantiles)
    coupling = LENGTHS[lengths]() if lengths != "sigma" or permutation is None else Sigma.from_array(permutation)
    reachable = np.flatnonzero(graph.degrees > 0)
    number = resolve_seed(seed)
    settings = WalkSettings(int(num_walkers), halting, lengths, step_coupling, "weights", number, coupling)
    ends = _count_final_nodes(model, reachable, settings, num_threads)
    rank = np.where(graph.degrees > 0, ends / num_walkers, p)
    return np.asarray(rank / (len(reachable) + (graph.num_nodes - len(reachable)) * p))


@np.errstate(under="ignore")
def match_pagerank_quantiles(graph: Graph, p_halt: float = 0.2, num_quantiles: int = 50) -> NDArray[np.int64]:
    """Return the permutation (num_quantiles,) of length quantiles for PageRank.

    Among all permutations it minimizes the variance of the estimates.

    A pair of walkers from node i adds to sum_j Var the probability that both end on one node. Averaged over i this is
    cost(q, q') = tr(A_q A_q'^T). Here A_q = sum_l P(length = l | quantile q) P^l, and P is the transition matrix (Reid
    et al. 2024, App. E, Eq. 82, summed over end nodes). The trace is exact for up to 1,500 nodes. For larger graphs it
    is estimated by 16 random sign vectors of a fixed internal seed.

    Args:
        graph: The graph, or a smaller one like it.
        p_halt: The halting probability.
        num_quantiles: The number n of quantiles, at least 2.

    Raises:
        InvalidArgumentError: If an argument is out of range.
        MemoryBudgetError: If the walks of all quantiles do not fit into memory.

    Examples:
        >>> import graphs
        >>> permutation = graphs.match_pagerank_quantiles(graphs.Graph.from_grid((4, 4)), num_quantiles=4)
        >>> sorted(permutation.tolist())
        [0, 1, 2, 3]
    """
    check_graph(graph)
    halting = as_halting_distribution(p_halt)
    check_count("num_quantiles", num_quantiles, least=2)
    longest = int(np.log(1e-6) / np.log1p(-float(np.asarray(halting.p_halt)))) + 1
    check_fits(
        f"{num_quantiles} quantiles of {longest:,} steps on {graph.num_nodes} nodes",
        24.0 * num_quantiles * (longest + num_quantiles + _PROBES * graph.num_nodes),
        "Use fewer quantiles, a larger p_halt, or a smaller graph like it.",
    )
    reach = quantile_survival(halting, num_quantiles, longest) * halting.survival(longest)
    length_probabilities = reach - np.column_stack([reach[:, 1:], np.zeros(num_quantiles)])  # P(length = l | q)
    transposed = transposed_moves(graph)
    if graph.num_nodes <= MAX_EXACT_NODES:
        vectors = np.eye(graph.num_nodes)
    else:
        vectors = np.random.default_rng(0).choice([-1.0, 1.0], (graph.num_nodes, _PROBES))
    cost = np.zeros((num_quantiles, num_quantiles))
    for first in range(0, vectors.shape[1], _PROBES):
        now, ahead = vectors[:, first : first + _PROBES], np.zeros((num_quantiles, graph.num_nodes, _PROBES))
        ahead = ahead[:, :, : now.shape[1]]
        for power in range(longest + 1):
            ahead += length_probabilities[:, power, None, None] * now
            now = transposed @ now
        flat = ahead.reshape(num_quantiles, -1)
        cost += flat @ flat.T
    _, permutation = linear_sum_assignment(cost)
    return np.asarray(permutation, dtype=np.int64)


def transposed_moves(graph: Graph) -> sp.csr_array:
    """Return P^T (N, N), the transposed transition matrix of PageRank.

    Args:
        graph: The graph.

    Examples:
        >>> import graphs
        >>> from graphs.ranking import transposed_moves
        >>> transposed_moves(graphs.Graph.from_edges([(0, 1)])).toarray().tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    graph = graph.with_laplacian("normalized")
    root = TransitionModel(graph, "weights").sqrt_degrees
    return sp.csr_array(sp.diags_array(root) @ graph.shift_operator @ sp.diags_array(1 / root))


def _count_final_nodes(
    model: TransitionModel,
    starts: NDArray[np.int64],
    settings: WalkSettings,
    num_threads: int | None,
) -> Floats:  # (N,)
    """Return the number of walkers (N,) that end on each node."""
    from graphs.walks.loops import walk

    matrix, m, none = model.matrix, settings.num_walkers, np.zeros(0)
    code, chunk = STEP_COUPLINGS.index(settings.step_coupling), max(1, CHUNK_WALKERS // settings.num_walkers)

    def run(first: int) -> NDArray[np.int64]:
        nodes = starts[first : first + chunk]
        keys, drawn = node_draws(nodes, settings)
        moves = (drawn > 0).sum(1)
        firsts, visits = pointers(moves), np.empty(int(moves.sum()), np.uint64)
        start_nodes, hops = np.repeat(nodes.astype(np.int32)[:, None], m, axis=1), np.zeros_like(nodes)
        graph_arrays = (matrix.indptr, matrix.indices, model.cumulative, none)
        walk(*graph_arrays, start_nodes, none[:, None], hops, keys, drawn, none, code, firsts[:-1], visits, none)
        last_nodes = (visits >> np.uint64(32)).astype(np.int64)
        return np.concatenate([np.repeat(nodes, m - moves), last_nodes])

    total = np.zeros(model.graph.num_nodes)
    with ThreadPoolExecutor(num_threads or os.cpu_count()) as pool:
        for ends in pool.map(run, range(0, len(starts), chunk)):
            total += np.bincount(ends, minlength=len(total))
    return total
