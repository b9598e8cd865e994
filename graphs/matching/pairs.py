"""Couplings of the lengths of two walkers: permutations of the quantiles of the length distribution.

With a permutation sigma a pair of walkers has a_q = g_q + g_sigma(q), see `graphs.matching.costs`. Two nodes with
independent pairs have

    sum_ij E[(phi_i . phi_j)^2] = N / (16 n^2) sum_k w_k (sum_q a_q(u_k)^2)^2                               (quadratic)

with u_k, w_k the spectral measure of U. This is a quadratic assignment problem (Reid et al. 2024, Eq. 55, over all
pairs of nodes), which exhaustive search solves for n <= 9. Two approximations are linear in sigma:

- With phi_j at its mean f(U) e_j a pair of quantiles costs tr(g_q(U) K g_q'(U)) / N.                       (linear)
- The paper keeps the terms in which both nodes are in one quantile, Eq. 56. The cost is the mean over        (quartic)
  i, j of [(psi_i(q) + psi_i(r)) . (psi_j(q) + psi_j(r))]^2 = sum_k w_k (g_q + g_r)(u_k)^4 / N.

The first ignores the fluctuation of one node, the second the independence of the two nodes. If f >= 0, the reversal is
optimal for all three objectives. With c_ql the coefficients of g_q, which grow with q, each objective is a sum of
constants and of products of sum_q c_ql c_sigma(q)l', with factors tr U^k >= 0. The reversal minimizes each such sum. It
does so for each pair of nodes too, as all entries of U^k are >= 0. See docs/mathematics.md for Eq. 12 of the paper.

Sums over all pairs of nodes are sums over the spectrum. `graphs.matching.diagonal` has the objective over i = j.
"""

from itertools import islice, permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from graphs.arrays import as_numbers
from graphs.checks import check_choice, check_count
from graphs.couplings import Sigma, as_halting_distribution
from graphs.errors import InvalidArgumentError, requires_extra
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import check_graph_and_kernel
from graphs.matching.costs import MAX_QUANTILES, averaged_features, complete_modulation, quantile_costs, quartic_costs
from graphs.matching.diagonal import PROJECTIONS, best_projection, reduced_vectors
from graphs.spectral import spectral_measure

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

OBJECTIVES = ("linear", "quartic", "diagonal", "quadratic")
"""The names of the objectives of a matching."""
_EXHAUSTIVE = 9
"""The largest number of quantiles for exhaustive search."""
_MAX_PROJECTIONS = 100_000
"""The largest number of random projections."""
_TIE = 1e-12
"""Costs that differ by less, relative to their sum, are equal."""


@np.errstate(under="ignore")
def match_quantiles(
    graph: Graph,
    kernel: GraphKernel,
    p_halt: float | ArrayLike = 0.1,
    num_quantiles: int = 50,
    *,
    objective: str = "linear",
    solver: str = "hungarian",
    costs: ArrayLike | None = None,  # (num_quantiles, num_quantiles)
    num_projections: int = 32,
    dimension: int = 64,
    projections: str | None = None,
) -> Integers:  # (num_quantiles,)
    """Return the permutation (n,) that pairs length quantiles of "sigma" walkers.

    If f >= 0, the reversal n-1, ..., 0 is optimal for every graph and objective. The ratios P(length >= l | q) /
    P(length >= l) grow with q, and tr U^l >= 0, so costs are supermodular. By the rearrangement inequality long lengths
    are then paired with short ones. The reversal is returned if it is as good as the assignment of a solver, since
    quantiles with equal lengths are interchangeable. If f takes both signs (the inverse cosine, the random walk with an
    odd p), other permutations can be better. Then "quartic" came nearest to the optimum of "quadratic"
    (`benchmarks/papers/own/matching.py`).

    Args:
        graph: The graph, or a smaller one like it.
        kernel: The kernel whose features are coupled.
        p_halt: The halting probability in (0, 1), or survival probabilities.
        num_quantiles: The number n of bins, at least 2.
        objective: "linear" fixes the other node at its mean. "quartic" has both nodes in one quantile (Reid et al.
            2024, Eq. 56). "diagonal" has i = j, by random projections. "quadratic" has all pairs of nodes (Eq. 55), by
            exhaustive search for n <= 9. The first two are linear assignments from the spectral measure of U.
        solver: The solver of linear assignments: "hungarian" (scipy) or "pot" (the network simplex of POT).
        costs: Costs (n, n) of "linear", for example `walk_costs`. If None, those from the spectrum.
        num_projections: The number of candidates of "diagonal", for each kind of projection.
        dimension: The dimension to which "diagonal" reduces vectors.
        projections: The projections of "diagonal": "positive" (rank one) or "gaussian" (Lemma C.2 of the paper, whose
            proof has a gap, see the module). If None, "positive" if f >= 0, otherwise the better of both.

    Raises:
        InvalidArgumentError: If an argument is out of range.

    Examples:
        >>> import graphs
        >>> graphs.match_quantiles(graphs.Graph.from_grid((5, 5)), graphs.kernels.Diffusion(), num_quantiles=4).tolist()
        [3, 2, 1, 0]
    """
    check_graph_and_kernel(graph, kernel)
    check_count("num_quantiles", num_quantiles, 2, MAX_QUANTILES)
    check_count("num_projections", num_projections, most=_MAX_PROJECTIONS)
    check_count("dimension", dimension)
    check_choice("objective", objective, OBJECTIVES)
    check_choice("solver", solver, _SOLVERS)
    if projections is not None:
        check_choice("projections", projections, PROJECTIONS)
    halting, assign = as_halting_distribution(p_halt), _SOLVERS[solver]
    if objective != "linear" and costs is not None:
        raise InvalidArgumentError(f'objective must be "linear" with costs, got {objective!r}. Leave costs out.')
    if objective in ("linear", "quartic"):
        if costs is None:
            cost_function = quantile_costs if objective == "linear" else quartic_costs
            matrix = cost_function(graph, kernel, halting, num_quantiles)
        else:
            matrix = _checked_costs(costs, num_quantiles)
        return _reversed_if_no_worse(matrix, assign(matrix))
    if objective == "diagonal":
        reduced = reduced_vectors(graph, kernel, halting, num_quantiles, dimension)
        if projections is None:
            kinds = list(PROJECTIONS) if (complete_modulation(kernel) < 0).any() else ["positive"]
        else:
            kinds = [projections]
        return best_projection(reduced, num_projections, assign, kinds)
    if num_quantiles > _EXHAUSTIVE:
        raise InvalidArgumentError(
            f"num_quantiles must be at most {_EXHAUSTIVE} for exhaustive search, got {num_quantiles}. Use "
            'objective="linear".'
        )
    u, mass = spectral_measure(graph)
    return exhaustive(averaged_features(kernel, halting, num_quantiles, u), mass)


@np.errstate(under="ignore")
def matching_variance(
    graph: Graph, kernel: GraphKernel, permutation: ArrayLike, p_halt: float | ArrayLike = 0.1
) -> float:
    """Return the relative variance of kernel estimates from one pair of walkers.

    It is sum_ij Var(phi_i . phi_j) / sum_ij K_ij^2 with directions averaged out: the exact quadratic objective,
    normalized. It is computed from the spectral measure, for a graph of any size.

    Args:
        graph: The graph.
        kernel: The kernel.
        permutation: The permutation (n,) of the length quantiles.
        p_halt: The halting probability, or survival probabilities.

    Raises:
        InvalidArgumentError: If the permutation is invalid.

    Examples:
        >>> import graphs
        >>> g, kernel = graphs.Graph.from_grid((5, 5)), graphs.kernels.Diffusion()
        >>> reversal, identity = (graphs.matching_variance(g, kernel, s) for s in ([3, 2, 1, 0], [0, 1, 2, 3]))
        >>> reversal < identity
        True
    """
    check_graph_and_kernel(graph, kernel)
    sigma = Sigma.from_array(permutation).permutation
    u, mass = spectral_measure(graph)
    g = averaged_features(kernel, as_halting_distribution(p_halt), len(sigma), u)
    paired = np.sum((g + g[sigma]) ** 2, axis=0) / (4 * len(sigma))
    return float(mass @ paired**2 / (mass @ kernel.spectral(1 - u) ** 2) - 1)


def _reversed_if_no_worse(costs: Floats, sigma: Integers) -> Integers:
    """Return the reversal if it costs no more than a permutation (n,), up to rounding."""
    indices = np.arange(len(costs))
    cost, back = costs[indices, sigma].sum(), costs[indices, indices[::-1]].sum()
    return indices[::-1].copy() if back <= cost + _TIE * np.abs(costs).sum() else sigma


def assign_by_scipy(costs: Floats) -> Integers:
    """Return the permutation of least cost, by the Hungarian algorithm of scipy.

    Args:
        costs: Costs (n, n) of pairs of quantiles.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.pairs import assign_by_scipy
        >>> assign_by_scipy(np.array([[2.0, 1.0], [1.0, 2.0]])).tolist()
        [1, 0]
    """
    return np.asarray(linear_sum_assignment(costs)[1], dtype=np.int64)


def assign_by_pot(costs: Floats) -> Integers:
    """Return the permutation of least cost, by the network simplex of POT.

    Args:
        costs: Costs (n, n) of pairs of quantiles.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.pairs import assign_by_pot
        >>> assign_by_pot(np.array([[2.0, 1.0], [1.0, 2.0]])).tolist()
        [1, 0]
    """
    with requires_extra("graphs"):
        import ot

    uniform = np.full(len(costs), 1 / len(costs))
    return np.asarray(np.argmax(ot.emd(uniform, uniform, np.ascontiguousarray(costs)), axis=1), dtype=np.int64)


_SOLVERS = {"hungarian": assign_by_scipy, "pot": assign_by_pot}


def exhaustive(
    g: Floats,  # (n, k)
    mass: Floats,  # (k,)
) -> Integers:
    """Return the permutation of least cost by search over all, the first of ties.

    The inner sum is 2 (c + s), c = sum_q g_q^2 and s = sum_q g_q g_sigma(q). With p the products g_q g_r, it is a
    quadratic form in the choice of one entry of p for each q.

    Args:
        g: The features g_q(u_k) of quantiles, (n, k).
        mass: The weights (k,) of the spectral measure.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.pairs import exhaustive
        >>> exhaustive(np.array([[0.0], [1.0], [2.0]]), np.ones(1)).tolist()
        [2, 1, 0]
    """
    n = len(g)
    products = (g[:, None, :] * g[None, :, :]).reshape(n * n, -1)
    quadratic = (products * mass) @ products.T
    linear = 2 * products @ (mass * np.sum(g**2, axis=0))
    stream, offsets = permutations(range(n)), n * np.arange(n)
    best, smallest = None, 0.0
    while chunk := list(islice(stream, 20_000)):
        sigmas = np.array(chunk)
        entries = sigmas + offsets
        values = linear[entries].sum(1) + quadratic[entries[:, :, None], entries[:, None, :]].sum((1, 2))
        first = int(np.argmax(values <= values.min() + _TIE * abs(values.min())))
        if best is None or values[first] < smallest - _TIE * abs(smallest):
            best, smallest = sigmas[first], float(values[first])
    return np.asarray(best, dtype=np.int64)


def _checked_costs(costs: ArrayLike, num_quantiles: int) -> Floats:
    matrix = as_numbers(costs)
    if matrix.shape != (num_quantiles, num_quantiles) or not np.isfinite(matrix).all():
        raise InvalidArgumentError(
            f"costs must be finite real numbers of shape ({num_quantiles}, {num_quantiles}), got {repr(costs)[:100]}."
        )
    return matrix
