"""What the figures on graphs of the couplings paper are made with."""

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import graphs
from benchmarks.papers.couplings import walks_kernels, walks_pagerank, walks_processes, walks_shared


def test_the_worst_of_many_is_tested_as_one():
    rng = np.random.default_rng(0)
    found = [walks_shared.worst(rng.standard_normal(20)) for _ in range(4000)]
    assert np.mean(np.array(found) > 1) == pytest.approx(stats.norm.sf(1), abs=0.02)
    assert walks_shared.worst([6.0, 0.0]) > 5
    assert walks_shared.worst([-3.0, -4.0]) == 0
    assert walks_shared.worst([60.0]) > 30


def test_cases_count_where_sigma_is_not_significantly_worse():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((3, 50))
    good = {"i.i.d.": 2 + noise[0], "antithetic": 1 + noise[1], "sigma": 1 + noise[1]}
    bad = {"i.i.d.": 2 + noise[0], "antithetic": 1 + noise[1], "sigma": 3 + noise[2]}
    value = walks_shared.nowhere_worse("a", [good, bad])
    assert value.ours == 1
    assert value.printed == "2"
    assert value.verdict == "differs"
    assert walks_shared.nowhere_worse("a", [good]).verdict == "agrees"
    ratio = walks_shared.mean_ratio("a", [bad], "sigma")
    assert abs(ratio.ours - bad["sigma"].mean() / bad["i.i.d."].mean()) < 1e-12


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
        np.linalg.norm(graphs.pagerank(graph, 0.5, 2, lengths="iid", directions="independent", seed=s) - rank)
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


def test_the_divergence_is_that_of_normal_laws():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((3, 3)) for _ in range(2))
    first, second = (rng.standard_normal(3), a @ a.T + np.eye(3)), (rng.standard_normal(3), b @ b.T + np.eye(3))
    draws = stats.multivariate_normal(*first).rvs(200_000, random_state=0)
    logs = stats.multivariate_normal(*first).logpdf(draws) - stats.multivariate_normal(*second).logpdf(draws)
    assert walks_processes.divergence(first, second) == pytest.approx(logs.mean(), abs=5 * logs.std() / 200_000**0.5)
