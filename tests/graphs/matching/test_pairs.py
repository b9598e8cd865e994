"""Permutations of length quantiles, against their definition."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph, couplings, kernels
from graphs.couplings import HaltingDistribution, quantile_survival, truncated_modulation
from graphs.matching import diagonal, pairs

SMALL = Graph.from_networkx(nx.gnp_random_graph(24, 0.2, seed=1)).largest_component()
LARGE = Graph.from_networkx(nx.random_geometric_graph(2000, 0.04, seed=0)).largest_component()
ALTERNATING = kernels.RandomWalk(3, 2.0)
LONG = kernels.Diffusion(3.0)


def averaged(g, kernel, count, p_halt=0.1):
    """The matrices g_q(U), (n, N, N), by powers of the dense matrix."""
    U, f = g.shift_operator.toarray(), truncated_modulation(kernel)[:400]
    each = quantile_survival(HaltingDistribution(p_halt), count, len(f) - 1) * f
    out, power = np.zeros((count, *U.shape)), np.eye(len(U))
    for column in each.T:
        out += column[:, None, None] * power
        power = power @ U
    return out


def variance(g, kernel, sigma, p_halt=0.1):
    """matching_variance by its definition, a double sum over quantiles of both nodes."""
    G = averaged(g, kernel, len(sigma), p_halt)
    v = (G + G[list(sigma)]) / 2
    square = sum(np.sum((v[q] @ v[r]) ** 2) for q in range(len(v)) for r in range(len(v))) / len(v) ** 2
    K = kernel.exact(g)
    return square / np.sum(K**2) - 1


@pytest.mark.parametrize("kernel", [LONG, ALTERNATING], ids=["diffusion", "alternating"])
@pytest.mark.parametrize("sigma", [(3, 2, 1, 0), (0, 1, 2, 3), (1, 3, 0, 2)])
def test_quadratic_objective_is_a_spectral_sum(kernel, sigma):
    assert graphs.matching_variance(SMALL, kernel, sigma) == pytest.approx(variance(SMALL, kernel, sigma), rel=1e-5)


@pytest.mark.parametrize("kernel", [LONG, ALTERNATING], ids=["diffusion", "alternating"])
def test_exhaustive_search_finds_the_minimum(kernel):
    permutation = graphs.match_quantiles(SMALL, kernel, 0.1, 5, objective="quadratic")
    values = {sigma: variance(SMALL, kernel, sigma) for sigma in permutations(range(5))}
    assert values[tuple(permutation.tolist())] <= min(values.values()) * (1 + 1e-9)
    assert max(values.values()) > 1.2 * min(values.values())


@pytest.mark.parametrize("kernel", [LONG, ALTERNATING], ids=["diffusion", "alternating"])
def test_quartic_costs_match_the_paper(kernel):
    """Eq. 56, averaged over all pairs of nodes, by its definition."""
    G = averaged(SMALL, kernel, 4)
    expected = [[np.mean(((a + b) @ (a + b)) ** 2) for b in G] for a in G]
    np.testing.assert_allclose(graphs.quartic_costs(SMALL, kernel, 0.1, 4), expected, rtol=1e-5)
    costs, sigma = np.array(expected), graphs.match_quantiles(SMALL, kernel, 0.1, 4, objective="quartic")
    least = min(costs[np.arange(4), list(tau)].sum() for tau in permutations(range(4)))
    assert costs[np.arange(4), sigma].sum() == pytest.approx(least, rel=1e-5)


@pytest.mark.slow
def test_costs_differ_for_alternating_modulations():
    kernel, graph = kernels.InverseCosine(), Graph.from_networkx(nx.star_graph(6))
    linear, quartic = (graphs.match_quantiles(graph, kernel, 0.1, 6, objective=o) for o in ("linear", "quartic"))
    assert graphs.matching_variance(graph, kernel, quartic) < graphs.matching_variance(graph, kernel, linear)


@pytest.mark.parametrize("kernel", [LONG, kernels.RegularizedLaplacian(2, 1.0)], ids=str)
@pytest.mark.parametrize("p_halt", [0.1, 0.5])
def test_reversal_is_optimal_for_non_negative_modulations(kernel, p_halt):
    reversal = np.arange(6)[::-1]
    assert np.array_equal(graphs.match_quantiles(SMALL, kernel, p_halt, 6, objective="quartic"), reversal)
    best = graphs.match_quantiles(SMALL, kernel, p_halt, 6, objective="quadratic")
    least, reversed_ = (graphs.matching_variance(SMALL, kernel, sigma, p_halt) for sigma in (best, reversal))
    assert reversed_ == pytest.approx(least, rel=1e-9)


def test_reversal_is_optimal_for_each_pair_of_nodes():
    """Eq. 55 of the paper, by its definition."""
    G = averaged(SMALL, LONG, 4)
    for i, j in ((0, 1), (3, 3), (2, 17)):
        values = {}
        for sigma in permutations(range(4)):
            v = G + G[list(sigma)]
            values[sigma] = np.sum(np.einsum("qa,ra->qr", v[:, i], v[:, j]) ** 2)
        assert values[3, 2, 1, 0] <= min(values.values()) * (1 + 1e-9)


def moments_of_one_walker(graph, kernel, survival):
    """Of a walker that may take 3 steps: E[psi(l)] (4, N, N) and E[psi(l) psi(l)^T] (4, N, N, N), by all its ways."""
    U, size = graph.shift_operator.toarray(), graph.num_nodes
    f, neighbors = kernel.modulation(3), [np.flatnonzero(row) for row in graph.adjacency.toarray()]
    first, second = np.zeros((4, size, size)), np.zeros((4, size, size, size))

    def go(start, here, length, chance, load, psi):
        psi = psi.copy()
        psi[here] += f[length] * load / survival[length]
        first[length, start] += chance * psi
        second[length, start] += chance * np.outer(psi, psi)
        for there in neighbors[here] if length < 3 else ():
            k = len(neighbors[here])
            go(start, there, length + 1, chance / k, load * U[here, there] * k, psi)

    for start in range(size):
        go(start, start, 0, 1.0, 1.0, np.zeros(size))
    return first, second


@pytest.mark.parametrize("kernel", [LONG, kernels.RegularizedLaplacian(2, 1.0)], ids=str)
def test_countermonotone_coupling_solves_transport(kernel):
    """Eq. 12 of the paper itself, directions within the square: all ways of all walkers, each pair of nodes."""
    graph = Graph.from_networkx(nx.lollipop_graph(3, 2))
    first, second = moments_of_one_walker(graph, kernel, [1.0, 0.75, 0.5, 0.25])
    objectives = {}
    for sigma in permutations(range(4)):
        cross = np.einsum("qia,qib->iab", first, first[list(sigma)])
        A = (second + second[list(sigma)]).sum(0) + cross + cross.swapaxes(1, 2)
        objectives[sigma] = np.einsum("iab,jab->ij", A, A)
    for values in objectives.values():
        assert (objectives[3, 2, 1, 0] <= values * (1 + 1e-12)).all()
    assert (objectives[0, 1, 2, 3] > 1.01 * objectives[3, 2, 1, 0]).all()


def test_diagonal_objective_matches_equal_nodes():
    G, sigma = averaged(SMALL, LONG, 4), np.array([1, 3, 0, 2])
    v = (G + G[sigma]) / 2
    nodes = range(SMALL.num_nodes)
    expected = sum((v[q, i] @ v[r, i]) ** 2 for i in nodes for q in range(4) for r in range(4)) / 16
    whole = diagonal.reduced_vectors(SMALL, LONG, HaltingDistribution(0.1), 4, SMALL.num_nodes)
    grams = np.einsum("qid,rid->iqr", whole, whole)
    assert diagonal.diagonal_objective(grams, sigma) == pytest.approx(expected, rel=1e-6)


def test_reduced_vectors_keep_inner_products():
    """Johnson and Lindenstrauss: an inner product of unit vectors has a standard error of at most sqrt(2 / d)."""
    dense = averaged(SMALL, LONG, 3)
    exact = np.einsum("qid,rid->iqr", dense, dense)
    errors = []
    for d in (8, 20):
        reduced = diagonal.reduced_vectors(SMALL, LONG, HaltingDistribution(0.1), 3, d)
        assert reduced.shape == (3, SMALL.num_nodes, d)
        grams = np.einsum("qid,rid->iqr", reduced, reduced)
        errors.append(np.sqrt(np.mean((grams / exact - 1) ** 2)))
        assert errors[-1] < 2 * np.sqrt(2 / d)


def test_vectors_reduced_by_powers_match_spectrum(monkeypatch):
    by_spectrum = diagonal.reduced_vectors(SMALL, LONG, HaltingDistribution(0.1), 3, 6)
    monkeypatch.setattr(diagonal, "MAX_EXACT_NODES", 0)
    np.testing.assert_allclose(
        diagonal.reduced_vectors(SMALL, LONG, HaltingDistribution(0.1), 3, 6), by_spectrum, atol=1e-5
    )


@pytest.mark.parametrize("kernel", [LONG, ALTERNATING], ids=["diffusion", "alternating"])
@pytest.mark.parametrize("count", [5, 12])
def test_solvers_agree(kernel, count):
    costs = graphs.quantile_costs(SMALL, kernel, 0.1, count)
    one, other = (graphs.match_quantiles(SMALL, kernel, 0.1, count, solver=s) for s in ("hungarian", "pot"))
    least = costs[np.arange(count), one].sum()
    assert costs[np.arange(count), other].sum() == pytest.approx(least, rel=1e-9)
    assert np.array_equal(np.sort(other), np.arange(count))
    assert least < costs[np.arange(count), np.arange(count)].sum()


def test_projections_come_near_the_optimum():
    for count in (5, 7):
        best = graphs.match_quantiles(SMALL, ALTERNATING, 0.1, count, objective="quadratic")
        near = graphs.match_quantiles(SMALL, ALTERNATING, 0.1, count, objective="diagonal")
        best, near, worst = (
            graphs.matching_variance(SMALL, ALTERNATING, sigma) for sigma in (best, near, np.arange(count))
        )
        assert best <= near < best + 0.1 * (worst - best)


def test_projections_match_the_lemma():
    """u = vec((psi_q + psi_r) (psi_q + psi_r)^T) against G, less what q and r add by themselves."""
    vectors, seed = np.random.default_rng(0).standard_normal((3, 2, 4)), 5
    for project, squared in ((diagonal.gaussian_projection, False), (diagonal.positive_projection, True)):
        drawn = np.random.default_rng(seed)
        if squared:
            g = drawn.standard_normal((2, 4))
            G = np.einsum("id,ie->ide", g, g)
        else:
            G = np.stack([drawn.standard_normal((4, 4)) for _ in range(2)])
        costs = project(vectors, np.random.default_rng(seed))
        both = vectors[:, None] + vectors[None]
        whole = np.einsum("qrid,ide,qrie->qr", both, G, both)
        alone = np.einsum("qid,ide,qie->q", vectors, G, vectors)
        np.testing.assert_allclose((1 + squared) * costs, whole - alone[:, None] - alone, rtol=1e-9)


def test_gaussian_projection_misses_the_shortest_matrix():
    """The gap in the proof of Lemma C.2: G is orthogonal to the shortest matrix, yet others lie against G."""
    rng = np.random.default_rng(0)
    vectors = np.sort(rng.uniform(size=(4, 5)), axis=0)
    found = {}
    for sigma in permutations(range(4)):
        v = vectors + vectors[list(sigma)]
        found[sigma] = (v.T @ v).ravel()
    shortest = min(found, key=lambda sigma: np.linalg.norm(found[sigma]))
    assert shortest == (3, 2, 1, 0)
    unit = found[shortest] / np.linalg.norm(found[shortest])
    right = 0
    for _ in range(200):
        G = rng.standard_normal(25)
        G -= (G @ unit) * unit
        right += min(found, key=lambda sigma: found[sigma] @ G) == shortest
    assert right < 100


def test_both_projections_find_the_reversal():
    for projections in diagonal.PROJECTIONS:
        sigma = graphs.match_quantiles(SMALL, LONG, 0.1, 5, objective="diagonal", projections=projections)
        values = [graphs.matching_variance(SMALL, LONG, s) for s in (sigma, np.arange(5)[::-1], np.arange(5))]
        assert values[0] < values[1] + 0.01 * (values[2] - values[1])


def test_better_projection_is_kept_for_signed_modulations():
    kernel, size = kernels.InverseCosine(), SMALL.num_nodes
    whole = diagonal.reduced_vectors(SMALL, kernel, HaltingDistribution(0.3), 6, size)
    grams = np.einsum("qid,rid->iqr", whole, whole)
    positive, gaussian, better = (
        diagonal.diagonal_objective(
            grams,
            graphs.match_quantiles(SMALL, kernel, 0.3, 6, objective="diagonal", dimension=size, projections=kind),
        )
        for kind in (*diagonal.PROJECTIONS, None)
    )
    assert better == gaussian < positive


def test_projections_are_positive_for_non_negative_f(monkeypatch):
    monkeypatch.setitem(diagonal.PROJECTIONS, "gaussian", None)
    graphs.match_quantiles(SMALL, LONG, 0.1, 5, objective="diagonal")
    with pytest.raises(TypeError):
        graphs.match_quantiles(SMALL, ALTERNATING, 0.1, 5, objective="diagonal")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 10, objective="quadratic"), "at most 9"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 10, objective="cubic"), "objective must be one of"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 10, solver="greedy"), "solver must be one of"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 3, costs=np.ones((2, 2))), r"shape \(3, 3\)"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs=[[1, np.nan], [0, 1]]), "finite"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 4, objective="diagonal", dimension=0), "dimension must be"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 3, projections="signed"), "projections must be one of"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs=np.eye(2), objective="quartic"), "costs"),
        (lambda: graphs.quartic_costs(SMALL, LONG, 0.1, 0), "num_quantiles must be an integer from 1 to"),
        (lambda: graphs.matching_variance(SMALL, LONG, [0, 0]), "permutation"),
        (lambda: graphs.matching_variance(SMALL, LONG, [[0], [1, 2]]), "permutation"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs="ab"), "finite real numbers"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs=np.eye(2) * 1j), "finite real numbers"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs=np.eye(2), objective="diagonal"), "costs"),
        (lambda: graphs.match_quantiles(SMALL, "diffusion"), "GraphKernel"),
        (lambda: graphs.match_quantiles(nx.path_graph(3), LONG), "graphs.Graph"),
        (lambda: graphs.quantile_costs(SMALL, LONG, 0.1, 0), "num_quantiles must be an integer from 1 to"),
        (lambda: graphs.quantile_costs(SMALL, kernels.Diffusion(600.0), 0.1, 3), "65,537 powers"),
        (lambda: graphs.match_quantiles(LARGE, kernels.InverseCosine(), 0.1, 3, objective="diagonal"), "4096 powers"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        call()


def test_ties_go_to_the_reversal():
    for kernel, count in ((kernels.Diffusion(2.0), 50), (kernels.RandomWalk(2), 5)):
        permutation = graphs.match_quantiles(SMALL, kernel, 0.1, count)
        np.testing.assert_array_equal(permutation, np.arange(count)[::-1])


def test_exhaustive_search_matches_brute_force():
    """Also where sum_q g_q^2 and the products pull apart: against the definition, permutation by permutation."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        g, mass = rng.standard_normal((5, 6)), rng.uniform(size=6)
        values = {sigma: mass @ np.sum((g + g[list(sigma)]) ** 2, axis=0) ** 2 for sigma in permutations(range(5))}
        assert values[tuple(pairs.exhaustive(g, mass).tolist())] == pytest.approx(min(values.values()), rel=1e-12)


@pytest.fixture(scope="module")
def g():
    return graphs.Graph.from_networkx(nx.erdos_renyi_graph(60, 0.1, seed=1))


def test_matching_is_the_optimal_assignment(g):
    kernel = graphs.kernels.RegularizedLaplacian(2, 1.0)
    permutation = graphs.match_quantiles(g, kernel, 0.1, 6)
    f = kernel.modulation(400)
    share = couplings.quantile_survival(HaltingDistribution(0.1), 6, 400)
    U = g.shift_operator.toarray()
    powers = [np.eye(g.num_nodes)]
    for _ in range(150):
        powers.append(powers[-1] @ U)
    averaged = [sum(share[q, hop] * f[hop] * powers[hop] for hop in range(151)) for q in range(6)]
    K = kernel.exact(g)
    cost = np.array([[np.trace(a @ K @ b) for b in averaged] for a in averaged])
    best = min(permutations(range(6)), key=lambda s: sum(cost[q, s[q]] for q in range(6)))
    assert sum(cost[q, permutation[q]] for q in range(6)) == pytest.approx(sum(cost[q, best[q]] for q in range(6)))
    assert sum(cost[q, q] for q in range(6)) > sum(cost[q, permutation[q]] for q in range(6))


@pytest.mark.parametrize(
    "kernel", [graphs.kernels.Diffusion(100.0), graphs.kernels.RegularizedLaplacian(2, 1.0)], ids=str
)
@pytest.mark.parametrize("p_halt", [0.1, 0.4])
def test_matching_of_non_negative_modulation_is_reversal(g, kernel, p_halt):
    matched, reversal = graphs.match_quantiles(g, kernel, p_halt, 12), np.arange(12)[::-1]
    u = 1 - g.spectrum.eigenvalues
    f = kernel.modulation(8000)
    averaged = (couplings.quantile_survival(HaltingDistribution(p_halt), 12, 8000) * f) @ (
        u[None] ** np.arange(8001)[:, None]
    )
    cost = (averaged * kernel.spectral(1 - u)) @ averaged.T
    costs = [cost[np.arange(12), permutation].sum() for permutation in (matched, reversal, np.arange(12))]
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)
    assert costs[2] > 1.01 * costs[1]


def test_matching_needs_two_quantiles(g):
    with pytest.raises(graphs.InvalidArgumentError, match="num_quantiles must be an integer from 2 to 10000"):
        graphs.match_quantiles(g, graphs.kernels.Diffusion(), 0.1, 1)
