"""The functions that make the figures on graphs of Reid et al. (2024)."""

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import graphs
from benchmarks.papers.couplings import walks_kernels, walks_pagerank, walks_processes, walks_shared


def test_sigma_is_tested_by_the_case_that_speaks_most_against_it():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((3, 50))
    good = {"i.i.d.": 20 + noise[0], "antithetic": 18 + noise[1], "sigma": 17 + noise[2]}
    tie = {**good, "antithetic": good["sigma"]}
    bad = {**good, "sigma": 30 + noise[2]}
    assert [value.verdict for value in walks_shared.nowhere_worse("a", [good, good])] == ["holds", "holds"]
    assert [value.verdict for value in walks_shared.nowhere_worse("a", [good, tie])] == ["holds", "undecided"]
    against, also = walks_shared.nowhere_worse("a", [good, bad])
    assert (against.verdict, also.verdict) == ("fails", "fails")
    assert against.ours == pytest.approx(bad["sigma"].mean() / bad["i.i.d."].mean())
    assert against.why == "no larger in 1 of 2"
    ratio = walks_shared.mean_ratio("a", [bad, good], "sigma")
    assert ratio.ours == pytest.approx(np.sqrt(30 / 20 * 17 / 20), rel=0.02)
    assert ratio.printed == "< 1"
    assert walks_shared.mean_ratio("a", [bad], "antithetic").printed == ""


def test_few_draws_are_compared_by_the_t_distribution():
    rng = np.random.default_rng(0)
    found = np.array([walks_shared.behind(*rng.standard_normal((2, 5))) for _ in range(2000)])
    assert np.mean(np.abs(found) > 2) == pytest.approx(2 * stats.norm.sf(2), abs=0.015)
    assert walks_shared.behind(np.zeros(5), np.arange(1.0, 6.0)) > 2
    assert walks_shared.behind(np.ones(5), np.ones(5)) == 0


def test_the_largest_of_equal_gains_is_not_found_too_large():
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(300):
        cases = [{name: 1 + 0.2 * rng.standard_normal(20) for name in ("i.i.d.", "sigma")} for _ in range(24)]
        gains.append(walks_processes.largest_gain(cases))
    z = np.array([(ratio - 1) / error for ratio, error in gains])
    assert abs(z.mean()) < 4 * z.std() / len(z) ** 0.5
    better = [{"i.i.d.": case["i.i.d."] * 3, "sigma": case["sigma"]} for case in cases[:1]]
    assert walks_processes.largest_gain([*cases[1:], *better])[0] > 2


def test_the_distance_of_permutations_counts_transpositions():
    first = np.array([3, 1, 0, 2, 4])
    second = first[[1, 0, 2, 4, 3]]
    assert walks_kernels.cayley(first, first) == 0
    assert walks_kernels.cayley(first, second) == walks_kernels.cayley(second, first) == 2
    assert walks_kernels.cayley(np.arange(5), np.roll(np.arange(5), 1)) == 4


def test_frobenius_errors_are_those_of_dense_matrices():
    graph = walks_shared.random_graph()
    K, options = walks_kernels.KERNEL.exact(graph), walks_shared.PAPER["antithetic"]
    found, shares = walks_kernels.errors(graph, K, 0.3, 2, **options)
    for seed in range(2):
        phi = walks_shared.draw(graph, 2, 0.3, seed, **options).features(walks_kernels.KERNEL).toarray()
        square = (phi @ phi.T - K) ** 2
        assert found[seed] == pytest.approx(np.sqrt(square.sum() / np.sum(K**2)), rel=1e-9)
        assert shares[seed] == pytest.approx(np.trace(square) / square.sum(), rel=1e-9)


def test_copies_of_a_graph_have_its_rank():
    graph = graphs.Graph.from_networkx(nx.karate_club_graph(), weight=None)
    copies = walks_pagerank.Copies(graph, 400)
    errors = copies.errors(0.5, "iid", "independent", np.arange(10))
    rank = walks_pagerank.exact_rank(graph, 0.5)
    assert len(errors) == 400
    single = [
        np.linalg.norm(graphs.pagerank(graph, 0.5, 2, lengths="iid", step_coupling="independent", seed=s) - rank)
        for s in range(400)
    ]
    error = np.sqrt((errors.var() + np.var(single)) / 400)
    assert abs(errors.mean() - np.mean(single)) < 4 * error


def test_hyperparameters_are_trained_by_their_gradient():
    graph = walks_shared.random_graph()
    rng = np.random.default_rng(0)
    order = rng.permutation(100)
    task = walks_processes.Task(graph, order[:60], order[60:], rng.standard_normal(100))
    walks = walks_shared.draw(graph, 8, 0.4, 0, **walks_shared.PAPER["i.i.d."])
    at = np.log([1.3, 0.7, 0.4])

    def negative(x):
        found = walks_processes.Trained(*np.exp(x))
        phi = walks.features(found.kernel)[task.train]
        M = found.kappa * (phi @ phi.T).toarray() + found.sigma**2 * np.eye(60)
        y = task.y[task.train]
        return 0.5 * (np.linalg.slogdet(M)[1] + y @ np.linalg.solve(M, y))

    slopes = [(negative(at + 1e-5 * e) - negative(at - 1e-5 * e)) / 2e-5 for e in np.eye(3)]
    found = walks_processes.gradient(task, walks, walks_processes.Trained(*np.exp(at)))
    np.testing.assert_allclose(found, slopes, rtol=1e-5, atol=1e-5)
