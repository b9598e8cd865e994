"""The choice of the settings of walks: moments, halting probabilities, exact hops, and the arguments of users."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_choice
from graphs.errors import InfiniteVarianceWarning, InvalidArgumentError, LargeVarianceWarning, warn
from graphs.graph import Graph, check_graph
from graphs.kernels import GraphKernel
from graphs.lengths import HaltingDistribution, as_halting_distribution, truncated_modulation
from graphs.spectral import squared_growth
from graphs.walks.drawing import Visits, draw
from graphs.walks.transitions import TRANSITIONS, HopRule, TransitionModel, WalkSettings, count_within_hops

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# --- Second moments of walks: when they are finite, and how large they are -------------------------------------------


@np.errstate(under="ignore")
def relative_variance(
    kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, exact_hops: int = 0, *, growth: float = 1.0
) -> float:
    """Return the relative variance of the total weight of the row of one walker.

    The total weight sum_l f_l [length >= l] / S_l has the mean sum_l f_l and the second moment sum_{kl} f_k f_l /
    S_min(k, l). This is the effect of the lengths alone, on a regular graph. It is relative to (sum_l |f_l|)^2, and
    infinite if it cannot be evaluated. With h exact hops a walker carries f_(h+1), f_(h+2), ... and halts only from
    there on.

    Args:
        kernel: The kernel.
        p_halt: The halting probability, or survival probabilities.
        exact_hops: The number h of exact first hops.
        growth: The growth of the squared load of a walk per step, 1 for moves in proportion to weight.

    Raises:
        InvalidArgumentError: If an argument is out of range.

    Examples:
        >>> import graphs
        >>> kernel = graphs.kernels.Diffusion(2.0)
        >>> graphs.relative_variance(kernel, 0.1) < graphs.relative_variance(kernel, 0.4)
        True
    """
    halting = as_halting_distribution(p_halt)
    if exact_hops < 0:
        raise InvalidArgumentError(f"exact_hops must be an integer of at least 0, got {exact_hops!r}.")
    ends = None if halting.is_geometric else int(np.size(halting.p_halt)) - 1 + exact_hops
    whole = truncated_modulation(kernel) if ends is None else kernel.modulation(ends)
    f = whole[min(exact_hops, len(whole) - 1) :]
    survival = halting.survival(len(f) - 1) * np.exp(-np.log(growth) * np.arange(len(f)))
    f = f[survival > 0]
    later = np.cumsum(f[::-1])[::-1]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        second = np.sum(f * (2 * later - f) / survival[survival > 0])
        ratio = (second - f.sum() ** 2) / np.abs(whole[: exact_hops + len(survival)]).sum() ** 2
    return float(ratio) if np.isfinite(ratio) else np.inf


@np.errstate(under="ignore")
def max_p_halt(graph: Graph, kernel: GraphKernel, *, transitions: str = "weights") -> float:
    """Return the supremum of the halting probabilities with a finite second moment.

    The squared load of a walk grows by rho per step, the spectral radius of U_ab^2 / (p_ab (1 - p_halt)). The second
    moment is finite if sum_l f_l^2 rho^l is, that is for rho below the squared radius of convergence of f. A result of
    1 means that every halting probability works, and 0 that none does.

    Args:
        graph: The graph.
        kernel: The kernel.
        transitions: "weights" or "uniform", as for `sample_walks`.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_grid((9, 9))
        >>> graphs.max_p_halt(g, graphs.kernels.Diffusion()), graphs.max_p_halt(g, graphs.kernels.Matern(kappa=2.0))
        (1.0, 0.6734693877551021)
    """
    check_graph(graph)
    check_choice("transitions", transitions, TRANSITIONS)
    if np.isinf(kernel.radius):
        return 1.0
    return max(0.0, 1 - squared_growth(graph, transitions) / kernel.radius**2)


def check_second_moment(
    graph: Graph, kernel: GraphKernel, halting: HaltingDistribution, transitions: str, num_walkers: int, exact_hops: int
) -> None:
    """Warn if walks estimate a kernel with a large or infinite variance.

    Args:
        graph: The graph.
        kernel: The kernel.
        halting: The distribution of the length.
        transitions: "weights" or "uniform".
        num_walkers: The number m of walkers.
        exact_hops: The number of exact first hops.

    Warns:
        InfiniteVarianceWarning: If the second moment is infinite. The message has the largest halting probability.
        LargeVarianceWarning: If the total weight of a row has a relative variance above 1.

    Examples:
        >>> import graphs
        >>> from graphs.lengths import HaltingDistribution
        >>> from graphs.walks.sampling import check_second_moment
        >>> g, kernel = graphs.Graph.from_grid((3, 3)), graphs.kernels.Diffusion(1.0)
        >>> check_second_moment(g, kernel, HaltingDistribution(0.1), "weights", 16, 0)
    """
    limit = max_p_halt(graph, kernel, transitions=transitions)
    if isinstance(halting.p_halt, float) and halting.p_halt >= limit:
        remedy = f"Use a p_halt below {limit:.3g}, or features without walks." if limit > 0 else "Use other features."
        message = (
            f"The features of {kernel} have no finite second moment with p_halt = {halting.p_halt:g}, since the loads "
            f"of long walks grow faster than the modulation decays. {remedy}"
        )
        warn(InfiniteVarianceWarning(message))
        return
    growth = max(1.0, squared_growth(graph, transitions))
    variance = relative_variance(kernel, halting, exact_hops, growth=growth) / num_walkers
    if variance > 1:
        message = (
            f"The features of {kernel} need longer walks: with {num_walkers} independent lengths the total weight of a "
            f"row has a relative variance of {variance:.2g}. Use a smaller p_halt or more walkers, or compare with the "
            "exact kernel before trusting error bars."
        )
        warn(LargeVarianceWarning(message))


# --- Halting probabilities and length distributions for a kernel -----------------------------------------------------


_MAX_P_HALT = 0.5
"""The largest halting probability that is considered."""
_MIN_P_HALT = 1e-3
"""The smallest halting probability that is considered."""
_MAX_OMITTED = 1e-9
"""The fraction of the modulation that the longest walk may omit."""


@np.errstate(under="ignore")
def choose_p_halt(
    graph: Graph,
    kernel: GraphKernel,
    num_walkers: int = 16,
    *,
    transitions: str = "weights",
    exact_hops: int = 0,
    max_variance: float = 0.1,
) -> float:
    """Return the largest halting probability whose variance is small enough.

    It is between 0.001 and 0.5, and at most half of `max_p_halt`, above which the second moment is infinite. With it, m
    independent lengths give the total weight of a row a relative variance of at most `max_variance`
    (`relative_variance`).

    Args:
        graph: The graph.
        kernel: The kernel.
        num_walkers: The number m of walkers.
        transitions: "weights" or "uniform".
        exact_hops: The number of exact first hops.
        max_variance: The relative variance allowed.

    Raises:
        InvalidArgumentError: If no halting probability of at least 0.001 is small enough.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_grid((9, 9))
        >>> graphs.choose_p_halt(g, graphs.kernels.Diffusion(1.0))
        0.5
    """
    limit = max_p_halt(graph, kernel, transitions=transitions) / 2
    growth = max(1.0, squared_growth(graph, transitions))

    def good(p_halt: float) -> bool:
        return relative_variance(kernel, p_halt, exact_hops, growth=growth) <= max_variance * num_walkers

    low, high = _MIN_P_HALT, min(_MAX_P_HALT, limit)
    if high < low or not good(low):
        raise InvalidArgumentError(
            f"The variance must be at most {max_variance:g} for a halting probability of at least {_MIN_P_HALT:g}, got "
            f"more with {num_walkers} walkers for {kernel}. Use more walkers, exact hops, or features without walks."
        )
    if good(high):
        return high
    while high - low > 1e-3 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


@np.errstate(under="ignore")
def optimal_survival(kernel: GraphKernel, mean_length: float = 9.0) -> NDArray[np.float64]:  # (L + 1,)
    """Return survival probabilities of least variance for a given mean length.

    The second moment of the total weight of a walker is sum_l f_l (2 F_l - f_l) / S_l with F_l = f_l + f_(l+1) + ....
    The mean length is sum_(l >= 1) S_l. The second moment is minimized over S with a given mean length, S_l <= 1 and
    S_(l+1) <= S_l. Without these bounds the minimizer is proportional to sqrt(f_l (2 F_l - f_l)). Walks have at most L
    steps, where F_L is 1e-9 of F_0.

    Args:
        kernel: A kernel with a non-negative modulation.
        mean_length: The mean number of steps of a walker, positive.

    Raises:
        InvalidArgumentError: If the mean length is not positive or exceeds L, or the modulation has negative terms.

    Examples:
        >>> import graphs
        >>> survival = graphs.optimal_survival(graphs.kernels.Diffusion(2.0), mean_length=3.0)
        >>> float(survival[0]), round(float(survival[1:].sum()), 6)
        (1.0, 3.0)
    """
    f = truncated_modulation(kernel)
    if f.min() < -1e-12 * f.max():
        raise InvalidArgumentError(
            f"kernel must have a non-negative modulation, got {kernel}. Use a halting probability instead."
        )
    tails = np.cumsum(f[::-1])[::-1]
    f, tails = f[tails > _MAX_OMITTED * tails[0]], tails[tails > _MAX_OMITTED * tails[0]]
    if not 0 < mean_length <= len(f) - 1:
        raise InvalidArgumentError(
            f"mean_length must lie between 0 and {len(f) - 1}, the length of the longest walk, got {mean_length!r}."
        )
    shape = np.sqrt(np.maximum(f * (2 * tails - f), 0.0))
    shape = np.maximum.accumulate(shape[::-1])[::-1]
    shape = np.maximum(shape / shape.max(), 1e-12)
    low, high = 0.0, 1 / shape[-1]
    for _ in range(200):
        scale = (low + high) / 2
        total = np.minimum(1.0, scale * shape[1:]).sum()
        low, high = (scale, high) if total < mean_length else (low, scale)
    return np.concatenate([[1.0], np.minimum(1.0, high * shape[1:])])


# --- The choice of exact hops by a pilot: walks from a sample of nodes, with several numbers of hops -----------------
#
# Exact hops are useful if they lower the variance of the features within the budget of non-zeros. A pilot measures
# both. Its walks are independent of every draw of the user, so the choice does not bias these.


_MAX_NODES = 64
"""The largest number of nodes of the pilot."""
_MIN_NODES = 16
"""The smallest number of nodes of the pilot, if the graph has so many."""
_NUM_DRAWS = 6
"""The number of independent draws from which variances are estimated."""
_WALKERS = 2**11
"""The number of walkers of the pilot; it uses fewer nodes if each has many walkers."""
_MAX_PILOT_HOPS = 32
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
        >>> from graphs.walks.sampling import measure
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
        >>> from graphs.walks.sampling import choose_hops
        >>> g = graphs.Graph.from_grid((20, 20))
        >>> settings = graphs.sample_walks(g, nodes=[0], exact_hops=0, seed=0).settings
        >>> choose_hops(g, graphs.kernels.Diffusion(2.0), settings, 64).max_hops > 0
        True
    """
    count = max(_MIN_NODES, min(_MAX_NODES, _WALKERS // settings.num_walkers))
    sample = np.sort(np.random.default_rng(0).permutation(graph.num_nodes)[:count])
    budget = min(max_nonzeros, graph.num_nodes)
    neighborhood_sizes = count_within_hops(graph, sample, _MAX_PILOT_HOPS, budget)
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
        >>> from graphs.walks.sampling import measure
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
