"""Costs of pairs of quantiles by walks, against those of the spectrum."""

import networkx as nx
import numpy as np
import pytest
from checks import assert_mean

import graphs
from graphs import Graph, kernels

SMALL = Graph.from_networkx(nx.gnp_random_graph(24, 0.2, seed=1)).largest_component()
LARGE = Graph.from_networkx(nx.random_geometric_graph(2000, 0.04, seed=0)).largest_component()
LONG = kernels.Diffusion(3.0)


@pytest.mark.slow
def test_costs_by_walks_are_unbiased():
    exact = graphs.quantile_costs(SMALL, LONG, 0.3, 4)
    options = {"num_nodes": SMALL.num_nodes, "num_walkers": 4, "exact_hops": 0}
    draws = np.stack([graphs.walk_costs(SMALL, LONG, 0.3, 4, seed=s, **options) for s in range(1000)])
    assert draws.std(0).min() > 1e-9 * exact.max()
    assert_mean(draws, exact)


def test_costs_by_walks_halt_for_the_kernel():
    long = kernels.Diffusion(8.0)
    costs, exact = graphs.walk_costs(SMALL, long, 0.1, 5, seed=0), graphs.quantile_costs(SMALL, long, 0.1, 5)
    assert np.linalg.norm(costs - exact) < 0.05 * np.linalg.norm(exact)


def test_costs_by_walks_on_a_large_graph():
    costs = graphs.walk_costs(LARGE, LONG, 0.1, 10, seed=0)
    exact = graphs.quantile_costs(LARGE, LONG, 0.1, 10)
    assert np.linalg.norm(costs - exact) < 0.1 * np.linalg.norm(exact)
    permutation = graphs.match_quantiles(LARGE, LONG, 0.1, 10, costs=costs)
    np.testing.assert_array_equal(permutation, np.arange(10)[::-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graphs.walk_costs(SMALL, LONG, num_nodes=2.5), "num_nodes must be a positive"),
        (lambda: graphs.walk_costs(SMALL, LONG, num_nodes=0), "num_nodes must be a positive"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        call()
