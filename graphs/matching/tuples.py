"""Couplings of the lengths of all m walkers of a node: a multi-marginal optimal transport problem.

The m quantiles of a node get a joint distribution with uniform marginals of least expected cost sum_{a < b} c(q_a,
q_b), with the costs c of pairs. The distribution is a mixture of S tuples. A tuple s has for each walker a distribution
P_a(. | s), whose mean over s is uniform. Given the distributions of the others, the one of a walker solves a
two-marginal problem between tuples and quantiles. Its cost is sum_q' c(q, q') sum_{b != a} P_b(q' | s). The problem is
solved by entropic transport (Sinkhorn's iteration) with a decreasing regularization. At the end POT's exact solver
leaves one quantile for each walker of each tuple.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_counts, check_fits, resolve_seed
from graphs.couplings import as_halting_distribution
from graphs.errors import InvalidArgumentError, requires_extra
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import check_graph_and_kernel
from graphs.matching.costs import quantile_costs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_REGULARIZATIONS = (1.0, 0.3, 0.1, 0.03, 0.01)
"""The entropic regularizations, in standard deviations of the cost."""
_NUM_SWEEPS = 2
"""The number of sweeps over the walkers at each regularization."""
_MAX_ITERATIONS = 200
"""The largest number of Sinkhorn iterations."""
_SINKHORN_TOLERANCE = 1e-6
"""The relative change of the scalings at which Sinkhorn iterations end."""
_MAX_EXACT_SWEEPS = 20
"""The largest number of sweeps without regularization."""
_COST_TOLERANCE = 1e-6
"""The relative decrease of the cost below which these sweeps end."""
_MAX_EXPONENT = 300.0
"""The largest ratio of a cost to the regularization, so that products stay in the range of double precision."""


@np.errstate(under="ignore")
def couple_quantiles(
    graph: Graph,
    kernel: GraphKernel,
    p_halt: float | ArrayLike = 0.1,
    num_walkers: int = 16,
    num_quantiles: int = 32,
    *,
    num_tuples: int | None = None,
    seed: int = 0,
) -> Integers:  # (S, m)
    """Return S tuples of length quantiles for m walkers, for `lengths="learned"`.

    Every quantile appears equally often in each column, so each walker keeps the length distribution.

    Source: Reid et al. (2024), "Variance-reducing couplings for random features", sec. 4.1, poses the problem. The
    solution by alternating entropic transport is ours.

    Args:
        graph: The graph, or a smaller one like it.
        kernel: The kernel whose features are coupled.
        p_halt: The halting probability, or survival probabilities.
        num_walkers: The number m of walkers, at least 2.
        num_quantiles: The number n of quantiles, at least 2.
        num_tuples: The number S of tuples, a multiple of n. If None, 4 n.
        seed: The seed of the initial tuples.

    Raises:
        InvalidArgumentError: If an argument is out of range.

    Examples:
        >>> import graphs
        >>> g, kernel = graphs.Graph.from_grid((5, 5)), graphs.kernels.Diffusion()
        >>> tuples = graphs.couple_quantiles(g, kernel, num_walkers=4, num_quantiles=8)
        >>> tuples.shape
        (32, 4)
    """
    check_graph_and_kernel(graph, kernel)
    check_counts(num_walkers=num_walkers, num_quantiles=num_quantiles)
    count = 4 * num_quantiles if num_tuples is None else num_tuples
    check_counts(num_tuples=count)
    if num_walkers < 2 or num_quantiles < 2:
        raise InvalidArgumentError(
            f"num_walkers and num_quantiles must be at least 2, got {num_walkers} and {num_quantiles}."
        )
    if count % num_quantiles:
        raise InvalidArgumentError(f"num_tuples must be a multiple of the {num_quantiles} quantiles, got {count}.")
    size = 24.0 * count * num_quantiles * num_walkers
    check_fits(f"{count} tuples of {num_walkers} walkers", size, "Use fewer quantiles, tuples or walkers.")
    costs = quantile_costs(graph, kernel, as_halting_distribution(p_halt), num_quantiles)
    costs = costs / np.ptp(costs) if np.ptp(costs) > 0 else costs
    return _alternate(costs, num_walkers, count, np.random.default_rng(resolve_seed(seed)))


def tuple_cost(
    costs: Floats,  # (n, n)
    tuples: Integers,  # (S, m)
) -> float:
    """Return the mean over tuples of the mean cost c(q_a, q_b) over pairs a < b.

    Args:
        costs: Costs (n, n) of pairs of quantiles.
        tuples: Quantiles (S, m).

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.tuples import tuple_cost
        >>> tuple_cost(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0, 1], [1, 0]]))
        0.0
    """
    counts = np.stack([np.bincount(row, minlength=len(costs)) for row in tuples])
    m = tuples.shape[1]
    total = np.einsum("sq,qr,sr->", counts, costs, counts) / len(tuples)
    return float((total - m * np.trace(costs) / len(costs)) / (m * (m - 1)))


def _alternate(costs: Floats, num_walkers: int, count: int, generator: np.random.Generator) -> Integers:
    """Solve for one walker after another, with a decreasing regularization."""
    with requires_extra("graphs"):
        import ot

    n = len(costs)
    rows, columns = np.full(count, 1 / count), np.full(n, 1 / n)
    table = np.stack([generator.permutation(np.arange(count) % n) for _ in range(num_walkers)], axis=1)
    distributions = np.eye(n)[table]  # (S, m, n)
    total = distributions.sum(1)
    for regularization in _REGULARIZATIONS:
        for _ in range(_NUM_SWEEPS):
            for a in generator.permutation(num_walkers):
                cost = (total - distributions[:, a]) @ costs
                better = _entropic(cost, regularization * max(cost.std(), 1e-12))
                total += better - distributions[:, a]
                distributions[:, a] = better
    best = np.inf
    for _ in range(_MAX_EXACT_SWEEPS):
        for a in range(num_walkers):
            cost = np.ascontiguousarray((distributions.sum(1) - distributions[:, a]) @ costs)
            table[:, a] = np.argmax(ot.emd(rows, columns, cost), axis=1)
            distributions[:, a] = np.eye(n)[table[:, a]]
        cost_now = tuple_cost(costs, table)
        if cost_now > best - _COST_TOLERANCE * abs(best):
            break
        best = cost_now
    return np.asarray(table, dtype=np.int64)


def _entropic(cost: Floats, regularization: float) -> Floats:
    """Return distributions (S, n) of quantiles given tuples, by entropic transport.

    They are balanced over tuples, and a start for an exact solution. Rows and columns are shifted and truncated such
    that no factor leaves the range of double precision.
    """
    shifted = cost - cost.min(1, keepdims=True)
    shifted -= shifted.min(0)
    kernel = np.exp(-np.minimum(shifted / regularization, _MAX_EXPONENT))
    right, column_sum = np.ones(cost.shape[1]), len(cost) / cost.shape[1]
    for iteration in range(_MAX_ITERATIONS):
        before, right = right, column_sum / ((1 / (kernel @ right)) @ kernel)
        if iteration % 10 == 9 and np.abs(right / before - 1).max() < _SINKHORN_TOLERANCE:
            break
    plan = kernel * right
    return np.asarray(plan / plan.sum(1, keepdims=True))
