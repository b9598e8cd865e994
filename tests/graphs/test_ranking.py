from functools import lru_cache

import networkx as nx
import numpy as np
import pytest
from checks import assert_mean, fails
from walking import copies

import graphs
from graphs import Graph, pagerank
from graphs.couplings import LENGTHS, STEP_COUPLINGS
from graphs.ranking import transposed_moves

HALT = 0.2


@lru_cache
def example(weighted):
    G = nx.gnm_random_graph(12, 20, seed=1)
    G.add_nodes_from([12, 13])  # nodes without neighbours
    rng = np.random.default_rng(0)
    for a, b in G.edges:
        G[a][b]["weight"] = rng.uniform(0.3, 3) if weighted else 1.0
    ranks = nx.pagerank(G, alpha=1 - HALT, tol=1e-14, max_iter=1000)
    return Graph.from_networkx(G), np.array([ranks[k] for k in G])


def estimates(g, repeats=1000, p_halt=HALT, **options):
    """Independent estimates (repeats, N), from one draw over as many copies of g."""
    options = {"num_walkers": 4, "permutation": graphs.match_pagerank_quantiles(g, HALT, 10), **options}
    return repeats * pagerank(copies(g, repeats), p_halt, seed=0, **options).reshape(repeats, -1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("step_coupling", STEP_COUPLINGS)
@pytest.mark.parametrize("lengths", [name for name in LENGTHS if name != "learned"])
def test_estimates_match_networkx(weighted, step_coupling, lengths):
    if weighted and step_coupling == "repelling":
        pytest.skip("repelling walkers move uniformly, which a test of the arguments shows")
    g, exact = example(weighted)
    ranks = estimates(g, step_coupling=step_coupling, lengths=lengths)
    np.testing.assert_allclose(ranks.sum(1), 1)
    np.testing.assert_allclose(ranks[:, 12:], exact[12:][None].repeat(len(ranks), 0))
    assert_mean(ranks[:, :12], exact[:12])


def test_planted_halting_probability_is_found():
    g, exact = example(False)
    ranks = estimates(g, 2000, p_halt=0.4, lengths="iid")[:, :12]
    assert fails(assert_mean, ranks, exact[:12])


def test_couplings_lower_the_error():
    g, exact = example(False)

    def error(**options):
        squares = ((estimates(g, 6000, **options) - exact) ** 2).sum(1)
        return squares.mean(), squares.std(ddof=1) / np.sqrt(6000)

    (plain, a), (sigma, b) = (error(lengths=name, step_coupling="independent") for name in ("iid", "sigma"))
    ours, c = error(lengths="systematic", step_coupling="stratified", num_walkers=4)
    assert (plain - sigma) / np.hypot(a, b) > 4
    assert (plain - ours) / np.hypot(a, c) > 4


def test_matching_costs_match_dense_matrices(monkeypatch):
    g, _ = example(True)
    P = transposed_moves(g).toarray().T
    np.testing.assert_allclose(P.sum(1), 1)
    lengths = np.arange(400)
    u = (np.arange(8 * 4000) + 0.5) / (8 * 4000)
    drawn = (np.log(1 - u) / np.log(1 - HALT)).astype(int).reshape(8, -1)
    powers = [np.eye(14)]
    for _ in range(120):
        powers.append(powers[-1] @ P)
    parts = [sum(np.mean(row == k) * powers[k] for k in lengths[:121]) for row in drawn]
    cost = np.array([[np.trace(a @ b.T) for b in parts] for a in parts])
    permutation = graphs.match_pagerank_quantiles(g, HALT, 8)
    best = cost[np.arange(8), permutation].sum()
    rng = np.random.default_rng(0)
    assert best <= 1.001 * min(cost[np.arange(8), rng.permutation(8)].sum() for _ in range(3000))
    monkeypatch.setattr("graphs.ranking.MAX_EXACT_NODES", 5)
    probed = graphs.match_pagerank_quantiles(g, HALT, 8)
    assert cost[np.arange(8), probed].sum() < 1.1 * best


def test_threads_and_chunks_do_not_change_results(monkeypatch):
    g = Graph.from_networkx(nx.gnm_random_graph(300, 900, seed=0))
    one = pagerank(g, seed=3, num_threads=1)
    monkeypatch.setattr("graphs.ranking.CHUNK_WALKERS", 20)
    np.testing.assert_array_equal(one, pagerank(g, seed=3, num_threads=4))
    assert not np.array_equal(one, pagerank(g, seed=4))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"p_halt": 0.0}, "halt must lie strictly between"),
        ({"p_halt": [1.0, 0.5]}, "one halting probability"),
        ({"num_walkers": 0}, "num_walkers must be a positive integer"),
        ({"num_walkers": 3}, "must be even"),
        ({"num_threads": 0}, "num_threads must be a positive integer"),
        ({"lengths": "all"}, "lengths must be one of"),
        ({"step_coupling": "all"}, "step_coupling must be one of"),
        ({"permutation": [0, 0]}, "permutation"),
        ({"num_quantiles": 1}, "an integer from 2 on"),
        ({"step_coupling": "repelling"}, "weighted graph"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    with pytest.raises(graphs.InvalidArgumentError, match=words):
        pagerank(example(True)[0], **{"seed": 0, **options})


def test_graph_without_edges():
    np.testing.assert_allclose(pagerank(Graph.from_edges([], nodes=[0, 1, 2]), seed=0), 1 / 3)
