"""Couplings of the lengths of two walkers: permutations of the quantiles of the length distribution.

Averaged over its directions, a walker whose length falls into quantile q of n gives node i the features psi_i(q) =
g_q(U) e_i, g_q(x) = sum_l f_l P(length >= l | q) / P(length >= l) x^l (Reid et al. 2024, "Variance-reducing couplings
for random features", section 4). With a permutation sigma a pair of walkers has a_q = g_q + g_sigma(q), and two nodes
with independent pairs have

    sum_ij E[(phi_i . phi_j)^2] = N / (16 n^2) sum_k w_k (sum_q a_q(u_k)^2)^2                               (quadratic)

with u_k, w_k the spectral measure of U. This is a quadratic assignment problem (Eq. 55, over all pairs of nodes), which
exhaustive search solves for n <= 9. Two approximations are linear in sigma:

- With phi_j at its mean f(U) e_j a pair of quantiles costs tr(g_q(U) K g_q'(U)) / N                     (linear)
- The paper keeps the terms in which both nodes are in one quantile, Eq. 56:                             (quartic)
  the mean over i, j of [(psi_i(q) + psi_i(r)) . (psi_j(q) + psi_j(r))]^2 = sum_k w_k (g_q + g_r)(u_k)^4 / N

The first ignores the fluctuation of one node, the second the independence of the two nodes. If f >= 0, the reversal is
optimal for all three objectives. With c_ql the coefficients of g_q, which grow with q, each objective is a sum of
constants and of products of sum_q c_ql c_sigma(q)l', with factors tr U^k >= 0. The reversal minimizes each such sum. It
does so for each pair of nodes too, as all entries of U^k are >= 0. See docs/index.md for Eq. 12 of the paper.

Over pairs of nodes i = j only, with A_i = sum_q v_i(q) v_i(q)^T and v_i(q) = psi_i(q) + psi_i(sigma(q)), it is sum_i
|A_i|_F^2 / (16 n^2)                                                                             (diagonal) A matrix G_i
makes sum_i <G_i, A_i> linear in sigma. Each draw of the G_i gives a candidate by linear assignment, and the best
candidate for the objective itself is kept. Lemma C.2 of the paper draws G_i with independent normal entries, and claims
that sigma is found once G is nearly orthogonal to its A, the shortest, and to no other. This cannot hold, since some G
is orthogonal to any two given matrices. Moreover the least signed <G, A> belongs to the matrix most opposed to G. G_i =
g_i g_i^T with normal g_i avoids the signs: <G_i, A_i> = sum_q (g_i . v_i(q))^2 >= 0 is small if A is. Both are only
sources of candidates. The psi_i(q) enter through inner products only, so a Gaussian matrix (N, d) may first reduce them
to d dimensions (Johnson and Lindenstrauss, as in Eq. 62 for the A), at the cost of d vectors per power of U. Sums over
all pairs of nodes are sums over the spectrum and need no projection.
"""

from collections.abc import Callable, Sequence
from itertools import islice, permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from graphs.checks import as_numbers, check_choice, check_count, check_fits
from graphs.couplings import (
    HaltingDistribution,
    Sigma,
    as_halting_distribution,
    quantile_survival,
    truncated_modulation,
)
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import check_graph_and_kernel
from graphs.spectral import spectral_measure

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

OBJECTIVES = ("linear", "quartic", "diagonal", "quadratic")
_EXHAUSTIVE = 9
MAX_QUANTILES, _MAX_PROJECTIONS = 10_000, 100_000
_BLOCK = 4096
_SEED = 0x3A7C
DENSE = 1500
"""The largest number of nodes for which vectors are reduced by the eigendecomposition."""
_NODES = 512
_LEFT_OUT, _MAX_POWERS = 1e-6, 4096
_TIE = 1e-12
_SHORT = 0.05


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
    P(length >= l) grow with q and tr U^l >= 0, so costs are supermodular, and the rearrangement inequality pairs long
    lengths with short ones. The reversal is returned if it is as good as the assignment of a solver, since quantiles
    with equal lengths are interchangeable. If f takes both signs (the inverse cosine, the random walk with an odd p),
    other permutations can be better. Then "quartic" came nearest to the optimum of "quadratic"
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
            made = quantile_costs if objective == "linear" else quartic_costs
            matrix = made(graph, kernel, halting, num_quantiles)
        else:
            matrix = _checked_costs(costs, num_quantiles)
        return _reversed_if_as_good(matrix, assign(matrix))
    if objective == "diagonal":
        reduced = reduced_vectors(graph, kernel, halting, num_quantiles, dimension)
        if projections is None:
            kinds = list(PROJECTIONS) if (complete_modulation(kernel) < 0).any() else ["positive"]
        else:
            kinds = [projections]
        return _best_projection(reduced, num_projections, assign, kinds)
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


@np.errstate(under="ignore")
def quantile_costs(
    graph: Graph, kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, num_quantiles: int
) -> Floats:  # (n, n)
    """Return tr(g_q(U) K g_q'(U)) / N for all pairs of n quantiles, (n, n), by the spectral measure.

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
    Here it is tr (g_q + g_r)(U)^4 / N^2 exactly, by the spectral measure. The module says how it differs from
    `quantile_costs`.

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
    """Return the spectral measure of a graph, (k,) and (k,), and the features (n, k) of quantiles."""
    check_graph_and_kernel(graph, kernel)
    check_count("num_quantiles", num_quantiles, most=MAX_QUANTILES)
    halting = p_halt if isinstance(p_halt, HaltingDistribution) else as_halting_distribution(p_halt)
    u, mass = spectral_measure(graph)
    return u, mass, averaged_features(kernel, halting, num_quantiles, u)


def averaged_features(
    kernel: GraphKernel,
    halting: HaltingDistribution,
    num_quantiles: int,
    u: Floats,  # (k,)
) -> Floats:  # (n, k)
    """Return g_q(u) of n quantiles at k eigenvalues of U."""
    f = complete_modulation(kernel)
    check_fits(f"{num_quantiles} quantiles", 8.0 * num_quantiles * (3 * len(f) + len(u)), "Use fewer of them.")
    each = quantile_survival(halting, num_quantiles, len(f) - 1) * f
    out = np.zeros((num_quantiles, len(u)))
    for first in range(0, len(f), _BLOCK):
        part = each[:, first : first + _BLOCK]
        out += part @ (u[None, :] ** np.arange(first, first + part.shape[1])[:, None])
    return out


def complete_modulation(kernel: GraphKernel) -> Floats:  # (L + 1,)
    """Return f_0..f_L, up to 65,536 of them, that sum nearly to sqrt(k(0)).

    Raises:
        InvalidArgumentError: If they are not enough.

    Examples:
        >>> from graphs import kernels
        >>> from graphs.matching.pairs import complete_modulation
        >>> len(complete_modulation(kernels.Diffusion(1.0)))
        65
    """
    f, total = truncated_modulation(kernel), float(np.sqrt(kernel.spectral(np.zeros(1))[0]))
    if abs(f.sum() - total) > _SHORT * total:
        raise InvalidArgumentError(
            f"kernel must need at most {len(f):,} powers of U to match lengths, got {kernel}. Use a smoother one."
        )
    return f


def _reversed_if_as_good(costs: Floats, sigma: Integers) -> Integers:
    """Return the reversal if it costs no more than a permutation (n,), up to rounding."""
    places = np.arange(len(costs))
    cost, back = costs[places, sigma].sum(), costs[places, places[::-1]].sum()
    return places[::-1].copy() if back <= cost + _TIE * np.abs(costs).sum() else sigma


def assign_by_scipy(costs: Floats) -> Integers:
    """Return the permutation of least cost, by the Hungarian algorithm of scipy.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.pairs import assign_by_scipy
        >>> assign_by_scipy(np.array([[2.0, 1.0], [1.0, 2.0]])).tolist()
        [1, 0]
    """
    return np.asarray(linear_sum_assignment(costs)[1], dtype=np.int64)


def assign_by_pot(costs: Floats) -> Integers:
    """Return the permutation of least cost, by the network simplex of POT.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.pairs import assign_by_pot
        >>> assign_by_pot(np.array([[2.0, 1.0], [1.0, 2.0]])).tolist()
        [1, 0]
    """
    import ot

    uniform = np.full(len(costs), 1 / len(costs))
    return np.asarray(np.argmax(ot.emd(uniform, uniform, np.ascontiguousarray(costs)), axis=1), dtype=np.int64)


_SOLVERS = {"hungarian": assign_by_scipy, "pot": assign_by_pot}


def reduced_vectors(
    graph: Graph, kernel: GraphKernel, halting: HaltingDistribution, num_quantiles: int, dimension: int
) -> Floats:  # (n, nodes, d)
    """Return psi_i(q) of up to 512 nodes in d dimensions, by a Gaussian matrix unless d >= N."""
    U, size = graph.shift_operator, graph.num_nodes
    generator = np.random.default_rng(_SEED)
    nodes = np.sort(generator.permutation(size)[:_NODES])
    whole = dimension >= size
    width = min(dimension, size)
    check_fits(f"Vectors in {width} dimensions", 8.0 * width * (size + 2 * num_quantiles * len(nodes)), "Use fewer.")
    now = np.eye(size) if whole else generator.standard_normal((size, dimension)) / np.sqrt(dimension)
    if size <= DENSE:
        eigenvalues, vectors = graph.spectrum
        g = averaged_features(kernel, halting, num_quantiles, 1 - eigenvalues)
        return np.asarray(np.einsum("ik,qk,kd->qid", vectors[nodes], g, vectors.T @ now, optimize=True))
    f = complete_modulation(kernel)
    rest = np.cumsum(np.abs(f[::-1]))[::-1]
    f = f[rest > _LEFT_OUT * rest[0]]
    if len(f) > _MAX_POWERS:
        raise InvalidArgumentError(
            f'objective="diagonal" must need at most {_MAX_POWERS} powers of U on {size} nodes, got more for '
            f'{kernel}. Use objective="linear", or a graph of at most {DENSE} nodes like it.'
        )
    each = quantile_survival(halting, num_quantiles, len(f) - 1) * f
    out = np.zeros((num_quantiles, len(nodes), now.shape[1]))
    for column in each.T:
        out += column[:, None, None] * now[nodes]
        now = U @ now
    return out


def diagonal_objective(
    grams: Floats,  # (nodes, n, n)
    permutation: Integers,  # (n,)
) -> float:
    """Return sum_i |A_i|_F^2 / (16 n^2) from the products psi_i(q) . psi_i(r) of vectors."""
    half = grams + grams[:, permutation]
    return float(np.sum((half + half[:, :, permutation]) ** 2) / (16 * len(permutation) ** 2))


def _best_projection(
    reduced: Floats, num_projections: int, assign: Callable[[Floats], Integers], kinds: Sequence[str]
) -> Integers:
    """Return the candidate with the least diagonal objective: one per projection, and one of all directions."""
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
    """Return sum_i psi_i(q)^T G_i psi_i(r) with G_i = g_i g_i^T and normal g_i."""
    seen = np.einsum("qid,id->qi", reduced, generator.standard_normal(reduced.shape[1:]))
    return np.asarray(seen @ seen.T)


def gaussian_projection(
    reduced: Floats,  # (n, nodes, d)
    generator: np.random.Generator,
) -> Floats:  # (n, n)
    """Return the symmetrized sum_i psi_i(q)^T G_i psi_i(r) with normal entries of G_i."""
    _, nodes, d = reduced.shape
    turned = np.stack([generator.standard_normal((d, d)) @ reduced[:, i].T for i in range(nodes)])  # (nodes, d, n)
    half = np.einsum("qid,idr->qr", reduced, turned, optimize=True)
    return np.asarray(half + half.T)


PROJECTIONS = {"positive": positive_projection, "gaussian": gaussian_projection}


def exhaustive(
    g: Floats,  # (n, k)
    mass: Floats,  # (k,)
) -> Integers:
    """Return the permutation of least sum_k w_k (sum_q (g_q + g_sigma(q))^2)^2, the first of ties.

    The inner sum is 2 (c + s), c = sum_q g_q^2 and s = sum_q g_q g_sigma(q). With p the products g_q g_r, it is a
    quadratic form in the choice of one entry of p for each q.

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
    best, least = None, 0.0
    while chunk := list(islice(stream, 20_000)):
        sigmas = np.array(chunk)
        places = sigmas + offsets
        values = linear[places].sum(1) + quadratic[places[:, :, None], places[:, None, :]].sum((1, 2))
        first = int(np.argmax(values <= values.min() + _TIE * abs(values.min())))
        if best is None or values[first] < least - _TIE * abs(least):
            best, least = sigmas[first], float(values[first])
    return np.asarray(best, dtype=np.int64)


def _checked_costs(costs: ArrayLike, num_quantiles: int) -> Floats:
    matrix = as_numbers(costs)
    if matrix.shape != (num_quantiles, num_quantiles) or not np.isfinite(matrix).all():
        raise InvalidArgumentError(
            f"costs must be finite real numbers of shape ({num_quantiles}, {num_quantiles}), got {repr(costs)[:100]}."
        )
    return matrix
