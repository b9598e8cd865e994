"""Exact hops: given, and chosen for each node."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from checks import assert_mean
from walking import (
    sample_walks,
    weighted,
)

import graphs
from graphs import Graph, HopRule, kernels
from graphs.walks import compiled, pilot

GRID = Graph.from_networkx(nx.grid_2d_graph(15, 15))
HUBS = Graph.from_networkx(nx.barabasi_albert_graph(300, 2, seed=0))
SMOOTH = kernels.Diffusion(2.0)


def variances(g, options, count=30):
    """Of `count` draws: the sum of the variances of all entries of Phi, and the mean non-zeros of a row."""
    rule = graphs.sample_walks(g, [], seed=0, kernel=SMOOTH, **options).settings.exact_hops
    options = {**options, "exact_hops": rule}
    phis = [graphs.sample_walks(g, seed=s, kernel=SMOOTH, **options).features(SMOOTH) for s in range(count)]
    dense = np.stack([phi.toarray() for phi in phis])
    return dense.var(0, ddof=1).sum(), np.mean([phi.nnz for phi in phis]) / g.num_nodes


@pytest.mark.parametrize("g", [GRID, HUBS], ids=["grid", "hubs"])
@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
def test_neighborhoods_are_counted(g, limit):
    U = g.shift_operator
    G = nx.from_scipy_sparse_array(U)
    starts = np.arange(0, g.num_nodes, 7)
    neighborhood_sizes = compiled.reach(U.indptr, U.indices, starts, 6, limit)
    for start, row in zip(starts, neighborhood_sizes, strict=True):
        distances = np.array(list(nx.single_source_shortest_path_length(G, start).values()))
        exact = np.array([(distances <= hop).sum() for hop in range(7)])
        np.testing.assert_array_equal(np.minimum(row, limit + 1), np.minimum(exact, limit + 1))


def test_rule_takes_the_most_allowed_hops():
    rule = HopRule(np.array([1, 3, -1, 9]))
    drawn = graphs.sample_walks(Graph.from_networkx(nx.path_graph(20)), exact_hops=rule, seed=0)
    np.testing.assert_array_equal(drawn.exact_hops, [3] * 20)  # at most 7 nodes lie within three hops
    drawn = graphs.sample_walks(Graph.from_networkx(nx.star_graph(5)), exact_hops=rule, seed=0)
    np.testing.assert_array_equal(drawn.exact_hops, [3] * 6)
    drawn = graphs.sample_walks(Graph.from_networkx(nx.star_graph(12)), exact_hops=rule, seed=0)
    np.testing.assert_array_equal(drawn.exact_hops, [0] + [1] * 12)


def test_rows_match_their_number_of_hops():
    rule = HopRule(np.array([1, 8, 16, 30]))
    drawn = graphs.sample_walks(HUBS, exact_hops=rule, seed=3)
    assert len(np.unique(drawn.exact_hops)) == 4
    for hops in range(4):
        rows = np.flatnonzero(drawn.exact_hops == hops)
        plain = graphs.sample_walks(HUBS, rows, exact_hops=hops, seed=3)
        a, b = drawn.features(SMOOTH)[rows], plain.features(SMOOTH)
        np.testing.assert_array_equal(a.indices, b.indices)
        if hops > 0:
            np.testing.assert_array_equal(a.data, b.data)
        np.testing.assert_allclose(a.data, b.data, rtol=1e-13)  # without hops loads are formed otherwise


@pytest.mark.parametrize("max_nonzeros", [20, 64, 120])
@pytest.mark.parametrize("g", [GRID, HUBS], ids=["grid", "hubs"])
def test_hops_keep_the_budget_and_lower_variance(g, max_nonzeros):
    none, before = variances(g, {"num_walkers": 4, "exact_hops": 0})
    auto, after = variances(g, {"num_walkers": 4, "max_nonzeros": max_nonzeros})
    assert before <= after <= max_nonzeros or (before > max_nonzeros and after == before)
    if after > before:
        assert auto < 0.95 * none


def test_budget_is_used():
    variance, nonzeros = variances(GRID, {"max_nonzeros": 90})
    assert nonzeros > 70
    assert variance < 0.01 * variances(GRID, {"exact_hops": 0})[0]


def test_isolated_nodes_do_not_hide_dense_rows():
    G = nx.disjoint_union(nx.barabasi_albert_graph(300, 3, seed=0), nx.empty_graph(3000))
    drawn = graphs.sample_walks(Graph.from_networkx(G), seed=0, kernel=kernels.Diffusion(3.0))
    plain = graphs.sample_walks(Graph.from_networkx(G), seed=0, exact_hops=0)
    most = np.diff(plain.pattern.indptr)[:300].mean()
    assert most > 64
    assert np.diff(drawn.pattern.indptr)[:300].mean() < 1.02 * most


def test_useless_hops_are_not_taken():
    """On a cycle visits, not non-zeros, grow with the hops; in small components a few hops know everything."""
    cycle = Graph.from_networkx(nx.cycle_graph(2000))
    drawn = graphs.sample_walks(cycle, seed=0)
    assert len(drawn.visits.hops) / 2000 <= 3 * 16 * 9
    parts = Graph.from_networkx(nx.disjoint_union_all([nx.gnm_random_graph(30, 60, seed=s) for s in range(20)]))
    assert 0 < graphs.sample_walks(parts, seed=0).exact_hops.max() < 12


def test_second_moment_check_uses_fewest_hops():
    path, long = Graph.from_networkx(nx.path_graph(400)), kernels.Diffusion(12.0)
    with pytest.warns(graphs.LargeVarianceWarning):
        graphs.sample_walks(path, exact_hops=0, seed=0).features(long)
    graphs.sample_walks(path, exact_hops=HopRule(np.full(40, 10**6)), seed=0).features(
        long
    )  # a warning would be an error
    graphs.sample_walks(path, [], exact_hops=HopRule([1, 5]), seed=0).features(SMOOTH)


def test_huge_budgets_mean_all_nodes():
    for options in ({"max_nonzeros": 10**30}, {"exact_hops": HopRule([1, 10**18])}):
        assert graphs.sample_walks(HUBS, [0], seed=0, **options).exact_hops.max() > 0


def test_hubs_reached_last_are_sorted_fast():
    """The order [1, ..., n, 0] of a hub's neighbors made numba's np.sort quadratic."""
    n = 20_000
    U = Graph.from_networkx(nx.star_graph(n)).with_laplacian("combinatorial").shift_operator
    arguments = (U.indptr, U.indices, U.data, np.ones(n + 1), np.array([n // 2]), np.array([2]))
    ends, nodes, mass, _ = compiled.push(*arguments)
    assert ends[0, -1] == 1 + 2 + n + 1
    np.testing.assert_array_equal(nodes[3:], np.arange(n + 1))
    np.testing.assert_allclose(mass[3:].sum(), 1)


def test_walks_over_budget_have_no_hops():
    drawn = graphs.sample_walks(HUBS, num_walkers=64, max_nonzeros=10, seed=0)
    assert drawn.settings.exact_hops == 0
    assert drawn.visits.loads.dtype == np.uint8


def test_hops_that_raise_variance_are_not_taken(monkeypatch):
    """The pilot is told that walkers are noisier after one and two hops, then after any."""
    original = pilot.measure

    def chosen(noisy):
        def measure(graph, kernel, settings, *rest):
            measured = original(graph, kernel, settings, *rest)
            return measured._replace(variances=measured.variances + 10.0 * (settings.exact_hops in noisy))

        monkeypatch.setattr(pilot, "measure", measure)
        return graphs.sample_walks(GRID, max_nonzeros=90, kernel=SMOOTH, seed=0).settings.exact_hops

    assert (chosen([]).limits[1:5] > 0).all()
    np.testing.assert_array_equal(chosen([1, 2]).limits[1:5] > 0, [False, False, True, True])
    assert chosen(range(1, 40)) == 0


def test_choice_depends_only_on_graph_and_settings():
    full = graphs.sample_walks(HUBS, seed=0)
    part = graphs.sample_walks(HUBS, [5, 250, 17], seed=0)
    np.testing.assert_array_equal(part.exact_hops, full.exact_hops[[5, 250, 17]])
    np.testing.assert_array_equal(part.features(SMOOTH).toarray(), full.features(SMOOTH).toarray()[[5, 250, 17]])
    other = full.at([9, 9])
    np.testing.assert_array_equal(other.features(SMOOTH).toarray(), full.features(SMOOTH).toarray()[[9, 9]])


def test_draws_with_chosen_hops_are_unbiased():
    g = Graph.from_networkx(nx.lollipop_graph(6, 8))
    kernel = kernels.RegularizedLaplacian(2, 1.0)
    rule = graphs.sample_walks(g, num_walkers=2, max_nonzeros=9, kernel=kernel, seed=0).settings.exact_hops
    assert len(np.unique(graphs.sample_walks(g, exact_hops=rule, seed=0).exact_hops)) > 1
    many = Graph.from_scipy(sp.block_diag([g.adjacency] * 4000))
    rows = graphs.sample_walks(many, num_walkers=2, p_halt=0.3, exact_hops=rule, seed=0).features(kernel).tocoo()
    phi, size = np.zeros((4000, g.num_nodes, g.num_nodes)), g.num_nodes
    phi[rows.row // size, rows.row % size, rows.col % size] = rows.data
    often = (phi != 0).sum(0) >= 400
    u, vectors = np.linalg.eigh(g.shift_operator.toarray())
    exact = (vectors * np.sqrt(kernel.spectral(1 - u))) @ vectors.T
    random = phi.std(0) > 1e-12
    assert_mean(phi[:, often & random], exact[often & random])
    np.testing.assert_allclose(phi[0][~random], exact[~random], atol=0.2)


@pytest.mark.parametrize("limits", [[], [[1, 2]], [1.0, 2.5], "ab", [1] * 2000, [1, 10**30]])
def test_bad_rules_are_refused(limits):
    with pytest.raises(graphs.InvalidArgumentError, match="integer limits"):
        HopRule(limits)


def test_isolated_and_single_nodes():
    g = Graph.from_edges([(0, 1)], nodes=[0, 1, 2])
    drawn = graphs.sample_walks(g, seed=0, kernel=SMOOTH)
    np.testing.assert_allclose(drawn.features(SMOOTH).toarray()[2], [0, 0, 1], atol=1e-5)
    one = graphs.sample_walks(Graph.from_edges([], nodes=["a"]), seed=0)
    assert one.features(SMOOTH).shape == (1, 1)


class TestExactHops:
    def test_first_hops_are_powers_of_the_matrix(self):
        g = weighted(nx.gnm_random_graph(30, 60, seed=0), 1)
        U = g.shift_operator.toarray()
        drawn = sample_walks(g, exact_hops=3, seed=0)
        assert (drawn.exact_hops == 3).all()
        for hop in range(4):
            f = np.zeros(drawn.max_length + 1)
            f[hop] = 1.0
            exact = np.zeros((30, 30))
            indptr, indices, _ = drawn.pattern
            exact[np.repeat(np.arange(30), np.diff(indptr)), indices] = drawn.values(f)
            np.testing.assert_allclose(exact, np.linalg.matrix_power(U, hop), atol=1e-14)

    def test_walkers_carry_only_the_tail(self):
        g, kernel = Graph.from_networkx(nx.grid_2d_graph(12, 12)), kernels.Diffusion(2.0)
        K = kernel.exact(g)

        def error(hops):
            phis = [sample_walks(g, seed=s, exact_hops=hops).features(kernel) for s in range(20)]
            errors = [np.linalg.norm((phi @ phi.T).toarray() - K) for phi in phis]
            return np.mean(errors), np.std(errors, ddof=1) / np.sqrt(20)

        (none, a), (five, b) = error(0), error(5)
        assert (0.2 * none - five) / np.hypot(0.2 * a, b) > 6


def test_weights_that_underflow_are_pushed_once():
    pairs = [(i, i + k) for i in range(40) for k in (1, 2, 3, 4) if i + k < 40]
    g = Graph.from_edges(pairs, [1.0 if b == a + 1 else 1e-200 for a, b in pairs])
    drawn = sample_walks(g, [0], num_walkers=1, exact_hops=8, seed=0)
    assert len(drawn.pattern.indices) <= 40
