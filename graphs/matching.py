"""Couplings of walk lengths that are learned for a graph and a kernel."""

from collections.abc import Callable, Sequence
from itertools import islice, permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from graphs.arrays import as_numbers
from graphs.checks import check_choice, check_count, check_counts, check_fits, resolve_seed
from graphs.errors import InvalidArgumentError, requires_extra
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import check_graph_and_kernel
from graphs.lengths import HaltingDistribution, Sigma, as_halting_distribution, quantile_survival, truncated_modulation
from graphs.spectral import MAX_EXACT_NODES, spectral_measure

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# --- Costs of pairs of length quantiles, from the spectral measure of the graph --------------------------------------
#
# A walker whose length falls into quantile q of n gives node i the features psi_i(q) = g_q(U) e_i, averaged over its
# directions. Here g_q(x) = sum_l f_l P(length >= l | q) / P(length >= l) x^l (Reid et al. 2024, "Variance-reducing
# couplings for random features", section 4). `graphs.matching` derives the costs.


MAX_QUANTILES = 10_000
"""The largest number of quantiles."""
_BLOCK = 4096
"""The number of powers of U that are summed at once."""
_SHORT = 0.05
"""The largest relative difference of the sum of a modulation and sqrt(k(0))."""


@np.errstate(under="ignore")
def quantile_costs(
    graph: Graph, kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, num_quantiles: int
) -> Floats:  # (n, n)
    """Return tr(g_q(U) K g_q'(U)) / N for all pairs of quantiles, (n, n).

    Args:
        graph: The graph.
        kernel: The kernel.
        p_halt: The halting probability, survival probabilities (L + 1,), or their distribution.
        num_quantiles: The number n of quantiles.

    Examples:
        >>> import graphs
        >>> graphs.quantile_costs(graphs.Graph.from_grid((5, 5)), graphs.kernels.Diffusion(), 0.1, 4).shape
        (4, 4)
    """
    u, mass, g = _quantile_features(graph, kernel, p_halt, num_quantiles)
    return np.asarray((g * (mass * kernel.spectral(1 - u))) @ g.T)


@np.errstate(under="ignore")
def quartic_costs(
    graph: Graph, kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, num_quantiles: int
) -> Floats:  # (n, n)
    """Return the costs (n, n) of pairs of n quantiles in Eq. 56 of Reid et al. (2024).

    They are the mean over i, j of [(psi_i(q) + psi_i(r)) . (psi_j(q) + psi_j(r))]^2. The paper estimates it by walks.
    Here it is tr (g_q + g_r)(U)^4 / N^2 exactly, by the spectral measure. `graphs.matching` compares it with
    `quantile_costs`.

    Args:
        graph: The graph.
        kernel: The kernel.
        p_halt: The halting probability, or survival probabilities.
        num_quantiles: The number n of quantiles.

    Examples:
        >>> import graphs
        >>> graphs.quartic_costs(graphs.Graph.from_grid((5, 5)), graphs.kernels.Diffusion(), 0.1, 4).shape
        (4, 4)
    """
    _, mass, g = _quantile_features(graph, kernel, p_halt, num_quantiles)
    square, mixed = g**2, g * mass
    cubes, fourths = (g * square) @ mixed.T, square**2 @ mass
    both = 4 * (cubes + cubes.T) + 6 * (square * mass) @ square.T + fourths[:, None] + fourths
    return np.asarray(both / graph.num_nodes)


def _quantile_features(
    graph: Graph, kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, num_quantiles: int
) -> tuple[Floats, Floats, Floats]:
    """Return the spectral measure, (k,) and (k,), and quantile features (n, k)."""
    check_graph_and_kernel(graph, kernel)
    check_count("num_quantiles", num_quantiles, most=MAX_QUANTILES)
    u, mass = spectral_measure(graph)
    return u, mass, averaged_features(kernel, as_halting_distribution(p_halt), num_quantiles, u)


def averaged_features(
    kernel: GraphKernel,
    halting: HaltingDistribution,
    num_quantiles: int,
    u: Floats,  # (k,)
) -> Floats:  # (n, k)
    """Return g_q(u) of n quantiles at k eigenvalues of U.

    Args:
        kernel: The kernel.
        halting: The distribution of the length.
        num_quantiles: The number n of quantiles.
        u: Eigenvalues (k,) of U.

    Examples:
        >>> import numpy as np
        >>> from graphs import kernels
        >>> from graphs.lengths import HaltingDistribution
        >>> from graphs.matching import averaged_features
        >>> averaged_features(kernels.Diffusion(1.0), HaltingDistribution(0.1), 4, np.array([1.0, 0.5])).shape
        (4, 2)
    """
    f = complete_modulation(kernel)
    check_fits(f"{num_quantiles} quantiles", 8.0 * num_quantiles * (3 * len(f) + len(u)), "Use fewer of them.")
    modulations = quantile_survival(halting, num_quantiles, len(f) - 1) * f
    out = np.zeros((num_quantiles, len(u)))
    for first in range(0, len(f), _BLOCK):
        block = modulations[:, first : first + _BLOCK]
        out += block @ (u[None, :] ** np.arange(first, first + block.shape[1])[:, None])
    return out


def complete_modulation(kernel: GraphKernel) -> Floats:  # (L + 1,)
    """Return f_0..f_L, up to 65,536 of them, that sum nearly to sqrt(k(0)).

    Args:
        kernel: The kernel.

    Raises:
        InvalidArgumentError: If they are not enough.

    Examples:
        >>> from graphs import kernels
        >>> from graphs.matching import complete_modulation
        >>> len(complete_modulation(kernels.Diffusion(1.0)))
        65
    """
    f, total = truncated_modulation(kernel), float(np.sqrt(kernel.spectral(np.zeros(1))[0]))
    if abs(f.sum() - total) > _SHORT * total:
        raise InvalidArgumentError(
            f"kernel must need at most {len(f):,} powers of U to match lengths, got {kernel}. Use a smoother one."
        )
    return f


# --- The diagonal objective: couplings of pairs of walkers by random projections -------------------------------------
#
# Over pairs of nodes i = j, with A_i = sum_q v_i(q) v_i(q)^T and v_i(q) = psi_i(q) + psi_i(sigma(q)), the objective is
# sum_i |A_i|_F^2 / (16 n^2). A matrix G_i makes sum_i <G_i, A_i> linear in sigma. Each draw of the G_i gives a
# candidate by linear assignment, and the best candidate for the objective itself is kept.
#
# Lemma C.2 of Reid et al. (2024) draws G_i with independent normal entries. It claims that sigma is found once G is
# nearly orthogonal to its A, the shortest, and to no other. This cannot hold, since some G is orthogonal to any two
# given matrices. Moreover the least signed <G, A> belongs to the matrix most opposed to G. G_i = g_i g_i^T with normal
# g_i avoids the signs: <G_i, A_i> = sum_q (g_i . v_i(q))^2 >= 0 is small if A is. Both are only sources of candidates.
#
# The psi_i(q) enter through inner products only. A Gaussian matrix (N, d) may therefore first reduce them to d
# dimensions (Johnson and Lindenstrauss, as in Eq. 62 for the A), at the cost of d vectors per power of U.


_SEED = 0x3A7C
"""The seed of the sampled nodes and vectors."""
_MAX_NODES = 512
"""The largest number of nodes in the objective."""
_MAX_OMITTED = 1e-6
"""The fraction of the modulation that may be omitted."""
_MAX_POWERS = 4096
"""The largest number of powers of U."""


def reduced_vectors(
    graph: Graph, kernel: GraphKernel, halting: HaltingDistribution, num_quantiles: int, dimension: int
) -> Floats:  # (n, nodes, d)
    """Return psi_i(q) of up to 512 nodes, projected to d dimensions.

    Args:
        graph: The graph.
        kernel: The kernel.
        halting: The distribution of the length.
        num_quantiles: The number n of quantiles.
        dimension: The number d of dimensions. It is at most the number of nodes.

    Raises:
        InvalidArgumentError: If the graph has more than 1,500 nodes and the kernel needs too many powers of U.
        MemoryBudgetError: If the vectors do not fit into memory.

    Examples:
        >>> import graphs
        >>> from graphs.lengths import HaltingDistribution
        >>> from graphs.matching import reduced_vectors
        >>> g, kernel = graphs.Graph.from_grid((3, 3)), graphs.kernels.Diffusion(1.0)
        >>> reduced_vectors(g, kernel, HaltingDistribution(0.1), 4, 5).shape
        (4, 9, 5)
    """
    U, size = graph.shift_operator, graph.num_nodes
    generator = np.random.default_rng(_SEED)
    nodes = np.sort(generator.permutation(size)[:_MAX_NODES])
    is_exact = dimension >= size
    width = min(dimension, size)
    check_fits(f"Vectors in {width} dimensions", 8.0 * width * (size + 2 * num_quantiles * len(nodes)), "Use fewer.")
    now = np.eye(size) if is_exact else generator.standard_normal((size, dimension)) / np.sqrt(dimension)
    if size <= MAX_EXACT_NODES:
        eigenvalues, vectors = graph.spectrum
        g = averaged_features(kernel, halting, num_quantiles, 1 - eigenvalues)
        return np.asarray(np.einsum("ik,qk,kd->qid", vectors[nodes], g, vectors.T @ now, optimize=True))
    f = complete_modulation(kernel)
    rest = np.cumsum(np.abs(f[::-1]))[::-1]
    f = f[rest > _MAX_OMITTED * rest[0]]
    if len(f) > _MAX_POWERS:
        raise InvalidArgumentError(
            f'objective="diagonal" must need at most {_MAX_POWERS} powers of U on {size} nodes, got more for '
            f'{kernel}. Use objective="linear", or a graph of at most {MAX_EXACT_NODES} nodes like it.'
        )
    modulations = quantile_survival(halting, num_quantiles, len(f) - 1) * f
    out = np.zeros((num_quantiles, len(nodes), now.shape[1]))
    for column in modulations.T:
        out += column[:, None, None] * now[nodes]
        now = U @ now
    return out


def diagonal_objective(
    grams: Floats,  # (nodes, n, n)
    permutation: Integers,  # (n,)
) -> float:
    """Return sum_i |A_i|_F^2 / (16 n^2) from products psi_i(q) . psi_i(r).

    Args:
        grams: Inner products (nodes, n, n) of the psi_i(q) of each node.
        permutation: The permutation (n,).

    Examples:
        >>> import numpy as np
        >>> from graphs.matching import diagonal_objective
        >>> diagonal_objective(np.eye(2)[None], np.array([1, 0]))
        0.25
    """
    half = grams + grams[:, permutation]
    return float(np.sum((half + half[:, :, permutation]) ** 2) / (16 * len(permutation) ** 2))


def best_projection(
    reduced: Floats, num_projections: int, assign: Callable[[Floats], Integers], kinds: Sequence[str]
) -> Integers:
    """Return the candidate with the least diagonal objective.

    Args:
        reduced: Vectors (n, nodes, d), from `reduced_vectors`.
        num_projections: The number of candidates for each kind of projection.
        assign: A function from costs (n, n) to the permutation of least cost.
        kinds: The kinds of projections, "positive" and "gaussian".

    Returns:
        The permutation (n,).

    Examples:
        >>> import numpy as np
        >>> from graphs.matching import best_projection
        >>> from graphs.matching import assign_by_scipy
        >>> reduced = np.arange(3.0)[:, None, None] * np.ones((3, 2, 4))  # quantiles, nodes, dimensions
        >>> best_projection(reduced, 2, assign_by_scipy, ["positive"]).tolist()
        [2, 1, 0]
    """
    grams = np.einsum("qid,rid->iqr", reduced, reduced, optimize=True)
    candidates = [assign(grams.sum(0))]
    for kind in kinds:
        generator, project = np.random.default_rng(_SEED + 1), PROJECTIONS[kind]
        candidates += [assign(project(reduced, generator)) for _ in range(num_projections)]
    return min(candidates, key=lambda sigma: diagonal_objective(grams, sigma))


def positive_projection(
    reduced: Floats,  # (n, nodes, d)
    generator: np.random.Generator,
) -> Floats:  # (n, n)
    """Return sum_i psi_i(q)^T G_i psi_i(r) with G_i = g_i g_i^T and normal g_i.

    Args:
        reduced: Vectors psi_i(q), (n, nodes, d).
        generator: The generator of g_i.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching import positive_projection
        >>> positive_projection(np.ones((3, 2, 4)), np.random.default_rng(0)).shape
        (3, 3)
    """
    seen = np.einsum("qid,id->qi", reduced, generator.standard_normal(reduced.shape[1:]))
    return np.asarray(seen @ seen.T)


def gaussian_projection(
    reduced: Floats,  # (n, nodes, d)
    generator: np.random.Generator,
) -> Floats:  # (n, n)
    """Return the symmetrized sum_i psi_i(q)^T G_i psi_i(r) with normal entries of G_i.

    Args:
        reduced: Vectors psi_i(q), (n, nodes, d).
        generator: The generator of G_i.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching import gaussian_projection
        >>> gaussian_projection(np.ones((3, 2, 4)), np.random.default_rng(0)).shape
        (3, 3)
    """
    _, nodes, d = reduced.shape
    turned = np.stack([generator.standard_normal((d, d)) @ reduced[:, i].T for i in range(nodes)])  # (nodes, d, n)
    half = np.einsum("qid,idr->qr", reduced, turned, optimize=True)
    return np.asarray(half + half.T)


PROJECTIONS = {"positive": positive_projection, "gaussian": gaussian_projection}


# --- Couplings of the lengths of two walkers: permutations of the quantiles of the length distribution ---------------
#
# With a permutation sigma a pair of walkers has a_q = g_q + g_sigma(q), see `graphs.matching`. Two nodes with
# independent pairs have
#
#     sum_ij E[(phi_i . phi_j)^2] = N / (16 n^2) sum_k w_k (sum_q a_q(u_k)^2)^2                             (quadratic)
#
# with u_k, w_k the spectral measure of U. This is a quadratic assignment problem (Reid et al. 2024, Eq. 55, over all
# pairs of nodes), which exhaustive search solves for n <= 9. Two approximations are linear in sigma:
#
# - With phi_j at its mean f(U) e_j a pair of quantiles costs tr(g_q(U) K g_q'(U)) / N.                       (linear)
# - The paper keeps the terms in which both nodes are in one quantile, Eq. 56. The cost is the mean over
# (quartic)
#   i, j of [(psi_i(q) + psi_i(r)) . (psi_j(q) + psi_j(r))]^2 = sum_k w_k (g_q + g_r)(u_k)^4 / N.
#
# The first ignores the fluctuation of one node, the second the independence of the two nodes. If f >= 0, the reversal
# is optimal for all three objectives. With c_ql the coefficients of g_q, which grow with q, each objective is a sum of
# constants and of products of sum_q c_ql c_sigma(q)l', with factors tr U^k >= 0. The reversal minimizes each such sum.
# It does so for each pair of nodes too, as all entries of U^k are >= 0. See docs/mathematics.md for Eq. 12 of the
# paper.
#
# Sums over all pairs of nodes are sums over the spectrum. `graphs.matching` has the objective over i = j.


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
        >>> from graphs.matching import assign_by_scipy
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
        >>> from graphs.matching import assign_by_pot
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
        >>> from graphs.matching import exhaustive
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


# --- Couplings of the lengths of all m walkers of a node: a multi-marginal optimal transport problem -----------------
#
# The m quantiles of a node get a joint distribution with uniform marginals of least expected cost sum_{a < b} c(q_a,
# q_b), with the costs c of pairs. The distribution is a mixture of S tuples. A tuple s has for each walker a
# distribution P_a(. | s), whose mean over s is uniform. Given the distributions of the others, the one of a walker
# solves a two-marginal problem between tuples and quantiles. Its cost is sum_q' c(q, q') sum_{b != a} P_b(q' | s). The
# problem is solved by entropic transport (Sinkhorn's iteration) with a decreasing regularization. At the end POT's
# exact solver leaves one quantile for each walker of each tuple.


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
    costs = quantile_costs(graph, kernel, p_halt, num_quantiles)
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
        >>> from graphs.matching import tuple_cost
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
