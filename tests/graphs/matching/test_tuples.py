"""Lengths of all walkers coupled at once."""

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph, kernels
from graphs.matching import tuples

SMALL = Graph.from_networkx(nx.gnp_random_graph(24, 0.2, seed=1)).largest_component()
LONG = kernels.Diffusion(3.0)


@pytest.mark.parametrize("num_walkers", [2, 3, 8, 32])
def test_columns_are_uniform_with_cost_near_bound(num_walkers):
    n = 16
    table = graphs.couple_quantiles(SMALL, LONG, 0.1, num_walkers, n)
    assert table.shape == (64, num_walkers)
    for column in table.T:
        np.testing.assert_array_equal(np.bincount(column), [4] * n)
    costs = graphs.quantile_costs(SMALL, LONG, 0.1, n)
    learned, independent = tuples.tuple_cost(costs, table), costs.mean()
    # sum_{a != b} <z_a, z_b> = |sum z|^2 - sum |z|^2, and |sum z|^2 is at least that of the means
    m = num_walkers
    bound = (m * costs.mean() - np.trace(costs) / n) / (m - 1)
    assert bound <= learned + 1e-12
    if m > 2:
        assert learned < bound + 0.15 * (independent - bound)


def test_two_walkers_match_the_assignment():
    costs = graphs.quantile_costs(SMALL, LONG, 0.1, 12)
    table = graphs.couple_quantiles(SMALL, LONG, 0.1, 2, 12)
    assert tuples.tuple_cost(costs, table) == pytest.approx(costs[np.arange(12), np.arange(12)[::-1]].mean(), rel=1e-3)


def test_systematic_lengths_attain_the_bound():
    """As many walkers as quantiles, each in its own: sum_a z_a is constant, so nothing learned can be better."""
    costs = graphs.quantile_costs(SMALL, LONG, 0.1, 8)
    systematic = (np.arange(8)[:, None] + np.arange(8)) % 8
    bound = (8 * costs.mean() - np.trace(costs) / 8) / 7
    assert tuples.tuple_cost(costs, systematic) == pytest.approx(bound, rel=1e-12)


def test_walks_use_tuples():
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
def test_bad_tables_are_refused(table, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        graphs.sample_walks(SMALL, num_walkers=2, lengths="learned", tuples=table, seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graphs.couple_quantiles(SMALL, LONG, 0.1, 2, 4, seed="x"), "seed"),
        (lambda: graphs.couple_quantiles(SMALL, LONG, 0.1, 1), "at least 2"),
        (lambda: graphs.couple_quantiles(SMALL, LONG, 0.1, 4, 8, num_tuples=12), "a multiple of"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        call()
