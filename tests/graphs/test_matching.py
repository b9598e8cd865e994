"""Couplings of lengths learned for a graph and a kernel."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from checks import assert_mean

import graphs
from graphs import Graph, kernels
from graphs.couplings import Halting, modulation_to_the_end, quantile_survival
from graphs.matching import pairs, tuples

SMALL = Graph.from_networkx(nx.gnp_random_graph(24, 0.2, seed=1)).largest_component()
LARGE = Graph.from_networkx(nx.random_geometric_graph(2000, 0.04, seed=0)).largest_component()
ALTERNATING = kernels.RandomWalk(3, 2.0)
LONG = kernels.Diffusion(3.0)


def averaged(g, kernel, count, halt=0.1):
    """The matrices g_q(U), (n, N, N), by powers of the dense matrix."""
    U, f = g.shift_operator.toarray(), modulation_to_the_end(kernel)[:400]
    each = quantile_survival(Halting(halt), count, len(f) - 1) * f
    out, power = np.zeros((count, *U.shape)), np.eye(len(U))
    for column in each.T:
        out += column[:, None, None] * power
        power = power @ U
    return out


def variance(g, kernel, sigma, halt=0.1):
    """matching_variance by its definition, a double sum over quantiles of both nodes."""
    G = averaged(g, kernel, len(sigma), halt)
    v = (G + G[list(sigma)]) / 2
    square = sum(np.sum((v[q] @ v[r]) ** 2) for q in range(len(v)) for r in range(len(v))) / len(v) ** 2
    K = kernel.exact(g)
    return square / np.sum(K**2) - 1


@pytest.mark.parametrize("kernel", [LONG, ALTERNATING], ids=["diffusion", "alternating"])
@pytest.mark.parametrize("sigma", [(3, 2, 1, 0), (0, 1, 2, 3), (1, 3, 0, 2)])
def test_the_quadratic_objective_is_a_sum_over_spectra(kernel, sigma):
    assert graphs.matching_variance(SMALL, kernel, sigma) == pytest.approx(variance(SMALL, kernel, sigma), rel=1e-5)


@pytest.mark.parametrize("kernel", [LONG, ALTERNATING], ids=["diffusion", "alternating"])
def test_exhaustive_search_finds_the_least(kernel):
    found = graphs.match_quantiles(SMALL, kernel, 0.1, 5, objective="quadratic")
    values = {sigma: variance(SMALL, kernel, sigma) for sigma in permutations(range(5))}
    assert values[tuple(found.tolist())] <= min(values.values()) * (1 + 1e-9)
    assert max(values.values()) > 1.2 * min(values.values())


def test_the_diagonal_objective_is_that_of_equal_nodes():
    G, sigma = averaged(SMALL, LONG, 4), np.array([1, 3, 0, 2])
    v = (G + G[sigma]) / 2
    nodes = range(SMALL.num_nodes)
    expected = sum((v[q, i] @ v[r, i]) ** 2 for i in nodes for q in range(4) for r in range(4)) / 16
    whole = pairs.reduced_vectors(SMALL, LONG, Halting(0.1), 4, SMALL.num_nodes)
    assert pairs.diagonal_objective(whole, sigma) == pytest.approx(expected, rel=1e-6)


def test_reduced_vectors_keep_their_inner_products():
    """Johnson and Lindenstrauss: an inner product of unit vectors has a standard error of at most sqrt(2 / d)."""
    whole = pairs.reduced_vectors(LARGE, LONG, Halting(0.1), 3, 10**6) if LARGE.num_nodes < 1500 else None
    dense = averaged(SMALL, LONG, 3).transpose(0, 1, 2)
    exact = np.einsum("qid,rid->iqr", dense, dense)
    errors = []
    for d in (8, 20):
        reduced = pairs.reduced_vectors(SMALL, LONG, Halting(0.1), 3, d)
        assert reduced.shape == (3, SMALL.num_nodes, d)
        grams = np.einsum("qid,rid->iqr", reduced, reduced)
        errors.append(np.sqrt(np.mean((grams / exact - 1) ** 2)))
        assert errors[-1] < 2 * np.sqrt(2 / d)
    assert whole is None or whole.shape[2] == LARGE.num_nodes


def test_large_graphs_are_reduced_by_their_powers(monkeypatch):
    by_spectrum = pairs.reduced_vectors(SMALL, LONG, Halting(0.1), 3, 6)
    monkeypatch.setattr(pairs, "DENSE", 0)
    np.testing.assert_allclose(pairs.reduced_vectors(SMALL, LONG, Halting(0.1), 3, 6), by_spectrum, atol=1e-5)


@pytest.mark.parametrize("kernel", [LONG, ALTERNATING], ids=["diffusion", "alternating"])
@pytest.mark.parametrize("count", [5, 12])
def test_both_solvers_agree(kernel, count):
    costs = graphs.quantile_costs(SMALL, kernel, 0.1, count)
    one, other = (graphs.match_quantiles(SMALL, kernel, 0.1, count, solver=s) for s in ("hungarian", "pot"))
    least = costs[np.arange(count), one].sum()
    assert costs[np.arange(count), other].sum() == pytest.approx(least, rel=1e-9)
    assert np.array_equal(np.sort(other), np.arange(count))
    assert least < costs[np.arange(count), np.arange(count)].sum()


def test_projections_come_near_the_best():
    for count in (5, 7):
        best = graphs.match_quantiles(SMALL, ALTERNATING, 0.1, count, objective="quadratic")
        found = graphs.match_quantiles(SMALL, ALTERNATING, 0.1, count, objective="diagonal")
        best, found, worst = (
            graphs.matching_variance(SMALL, ALTERNATING, sigma) for sigma in (best, found, np.arange(count))
        )
        assert best <= found < best + 0.1 * (worst - best)


@pytest.mark.slow
def test_costs_by_walks_are_unbiased():
    exact = graphs.quantile_costs(SMALL, LONG, 0.3, 4)
    options = {"num_nodes": SMALL.num_nodes, "num_walkers": 4, "exact_hops": 0}
    draws = np.stack([graphs.walk_costs(SMALL, LONG, 0.3, 4, seed=s, **options) for s in range(1000)])
    assert draws.std(0).min() > 1e-9 * exact.max()
    assert_mean(draws, exact)


def test_costs_by_walks_halt_as_the_kernel_needs():
    long = kernels.Diffusion(8.0)
    costs, exact = graphs.walk_costs(SMALL, long, 0.1, 5, seed=0), graphs.quantile_costs(SMALL, long, 0.1, 5)
    assert np.linalg.norm(costs - exact) < 0.05 * np.linalg.norm(exact)


def test_costs_by_walks_serve_a_large_graph():
    costs = graphs.walk_costs(LARGE, LONG, 0.1, 10, seed=0)
    exact = graphs.quantile_costs(LARGE, LONG, 0.1, 10)
    assert np.linalg.norm(costs - exact) < 0.1 * np.linalg.norm(exact)
    found = graphs.match_quantiles(LARGE, LONG, 0.1, 10, costs=costs)
    np.testing.assert_array_equal(found, np.arange(10)[::-1])


class TestTuples:
    @pytest.mark.parametrize("num_walkers", [2, 3, 8, 32])
    def test_each_column_is_uniform_and_the_cost_is_near_its_bound(self, num_walkers):
        n = 16
        found = graphs.couple_quantiles(SMALL, LONG, 0.1, num_walkers, n)
        assert found.shape == (64, num_walkers)
        for column in found.T:
            np.testing.assert_array_equal(np.bincount(column), [4] * n)
        costs = graphs.quantile_costs(SMALL, LONG, 0.1, n)
        learned, independent = tuples.tuple_cost(costs, found), costs.mean()
        # sum_{a != b} <z_a, z_b> = |sum z|^2 - sum |z|^2, and |sum z|^2 is at least that of the means
        m = num_walkers
        bound = (m * costs.mean() - np.trace(costs) / n) / (m - 1)
        assert bound <= learned + 1e-12
        if m > 2:
            assert learned < bound + 0.15 * (independent - bound)

    def test_two_walkers_do_as_well_as_the_assignment(self):
        costs = graphs.quantile_costs(SMALL, LONG, 0.1, 12)
        found = graphs.couple_quantiles(SMALL, LONG, 0.1, 2, 12)
        assert tuples.tuple_cost(costs, found) == pytest.approx(
            costs[np.arange(12), np.arange(12)[::-1]].mean(), rel=1e-3
        )

    def test_systematic_lengths_attain_the_bound(self):
        """As many walkers as quantiles, each in its own: sum_a z_a is constant, so nothing learned can be better."""
        costs = graphs.quantile_costs(SMALL, LONG, 0.1, 8)
        systematic = (np.arange(8)[:, None] + np.arange(8)) % 8
        bound = (8 * costs.mean() - np.trace(costs) / 8) / 7
        assert tuples.tuple_cost(costs, systematic) == pytest.approx(bound, rel=1e-12)

    def test_walks_use_them(self):
        learned = graphs.sample_walks(SMALL, num_walkers=4, lengths="learned", num_quantiles=8, kernel=LONG, seed=0)
        table = graphs.couple_quantiles(SMALL, LONG, 0.1, 4, 8)
        given = graphs.sample_walks(SMALL, num_walkers=4, lengths="learned", tuples=table, kernel=LONG, seed=0)
        np.testing.assert_array_equal(learned.features(LONG).toarray(), given.features(LONG).toarray())

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (np.zeros((4, 3), int), "shape"),
            ([[0, 1], [0, 1]], "equally often"),
            ([[0.0, 1.0], [1.0, 0.0]], "integers"),
            (np.zeros((0, 2), int), "equally often"),
            ([[0, -1], [1, 0]], "equally often"),
            ([[0, 1], [1]], "shape"),
            ([[10**13, 0], [0, 10**13]], "equally often"),
        ],
    )
    def test_bad_tables_are_named(self, table, message):
        with pytest.raises(graphs.InvalidArgumentError, match=message):
            graphs.sample_walks(SMALL, num_walkers=2, lengths="learned", tuples=table, seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 10, objective="quadratic"), "at most 9 quantiles"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 10, objective="cubic"), "objective must be one of"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 10, solver="greedy"), "solver must be one of"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 3, costs=np.ones((2, 2))), r"shape \(3, 3\)"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs=[[1, np.nan], [0, 1]]), "finite"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 4, objective="diagonal", dimension=0), "dimension must be"),
        (lambda: graphs.matching_variance(SMALL, LONG, [0, 0]), "each once"),
        (lambda: graphs.matching_variance(SMALL, LONG, [[0], [1, 2]]), "each once"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs="ab"), "finite real numbers"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs=np.eye(2) * 1j), "finite real numbers"),
        (lambda: graphs.match_quantiles(SMALL, LONG, 0.1, 2, costs=np.eye(2), objective="diagonal"), "costs serve"),
        (lambda: graphs.match_quantiles(SMALL, "diffusion"), "kernel must be one of graphs.kernels"),
        (lambda: graphs.match_quantiles(nx.path_graph(3), LONG), "A graphs.Graph is needed, got Graph"),
        (lambda: graphs.quantile_costs(SMALL, LONG, 0.1, 0), "num_quantiles must be a positive"),
        (lambda: graphs.quantile_costs(SMALL, kernels.Diffusion(600.0), 0.1, 3), "more than 65,537 powers of U"),
        (lambda: graphs.walk_costs(SMALL, LONG, num_nodes=2.5), "num_nodes must be a positive"),
        (lambda: graphs.match_quantiles(LARGE, kernels.InverseCosine(), 0.1, 3, objective="diagonal"), "4096 powers"),
        (lambda: graphs.couple_quantiles(SMALL, LONG, 0.1, 2, 4, seed="x"), "seed"),
        (lambda: graphs.walk_costs(SMALL, LONG, num_nodes=0), "num_nodes must be a positive"),
        (lambda: graphs.couple_quantiles(SMALL, LONG, 0.1, 1), "at least 2"),
        (lambda: graphs.couple_quantiles(SMALL, LONG, 0.1, 4, 8, num_tuples=12), "a multiple of"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        call()


def test_ties_are_broken_towards_the_reversal():
    for kernel, count in ((kernels.Diffusion(2.0), 50), (kernels.RandomWalk(2), 5)):
        found = graphs.match_quantiles(SMALL, kernel, 0.1, count)
        np.testing.assert_array_equal(found, np.arange(count)[::-1])


def test_exhaustive_search_of_any_functions():
    """Also where sum_q g_q^2 and the products pull apart: against the definition, permutation by permutation."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        g, mass = rng.standard_normal((5, 6)), rng.uniform(size=6)
        values = {sigma: mass @ np.sum((g + g[list(sigma)]) ** 2, axis=0) ** 2 for sigma in permutations(range(5))}
        assert values[tuple(pairs.exhaustive(g, mass).tolist())] == pytest.approx(min(values.values()), rel=1e-12)
