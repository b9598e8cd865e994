"""What an argument makes large is refused with its size, before it is allocated."""

import time

import networkx as nx
import pytest

import graphs
from graphs.checks import check_count, check_fits, machine_memory, short_repr

RING = graphs.Graph.from_networkx(nx.cycle_graph(16))
KERNEL = graphs.kernels.Diffusion()
HUGE = 10**9


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: graphs.chebyshev_features(RING, degree=HUGE), "degree must be an integer from 0 to 10000"),
        (lambda: graphs.taylor_features(RING, degree=HUGE), "degree must be an integer from 0 to 10000"),
        (lambda: graphs.spectral_features(RING, rank=HUGE), "rank must be an integer from 1 to 16"),
        (lambda: graphs.sample_walks(RING, num_walkers=HUGE), "steps per node"),
        (lambda: graphs.sample_walks(RING, p_halt=1e-12), "steps per node"),
        (lambda: graphs.sample_walks(RING, exact_hops=HUGE), "exact_hops must be an integer from 0 to 10000"),
        (lambda: graphs.sample_walks(RING, lengths="sigma", num_quantiles=HUGE), "num_quantiles must be"),
        (lambda: graphs.match_quantiles(RING, KERNEL, num_quantiles=HUGE), "num_quantiles must be"),
        (lambda: graphs.match_quantiles(RING, KERNEL, num_projections=HUGE), "num_projections must be"),
        (lambda: graphs.quantile_costs(RING, KERNEL, 0.1, HUGE), "num_quantiles must be"),
        (lambda: graphs.couple_quantiles(RING, KERNEL, num_walkers=HUGE), "tuples of 1000000000 walkers take up to"),
        (lambda: graphs.couple_quantiles(RING, KERNEL, num_quantiles=HUGE), "tuples of 16 walkers take up to"),
        (lambda: graphs.couple_quantiles(RING, KERNEL, num_tuples=32 * HUGE), "tuples of 16 walkers take up to"),
        (lambda: graphs.walk_costs(RING, KERNEL, num_quantiles=HUGE), "num_quantiles must be"),
        (lambda: graphs.walk_costs(RING, KERNEL, num_walkers=HUGE), "steps per node"),
        (lambda: graphs.pagerank(RING, num_walkers=HUGE), "1,000,000,000 walkers .* take up to"),
        (lambda: graphs.match_pagerank_quantiles(RING, num_quantiles=HUGE), "quantiles of 62 steps .* take up to"),
        (lambda: graphs.match_pagerank_quantiles(RING, p_halt=1e-9), "take up to"),
        (lambda: graphs.spectral_density(RING, [1.0], num_moments=HUGE), "num_moments must be"),
        (lambda: graphs.spectral_density(RING, [1.0], num_probes=HUGE), "probes and 100 moments take up to"),
        (lambda: graphs.Graph.from_grid((10**4, 10**5)), "nodes and .* edges"),
        *[
            (lambda name=name: graphs.kernels.by_name(name).modulation(10**12), "length must be an integer")
            for name in graphs.kernels.names()
        ],
    ],
)
def test_too_large_requests_are_refused_at_once(ask, message):
    began = time.process_time()
    with pytest.raises(
        (graphs.InvalidArgumentError, graphs.MemoryBudgetError, graphs.InvalidGraphError), match=message
    ):
        ask()
    assert time.process_time() - began < 2


def test_large_budgets_are_accepted():
    assert graphs.max_series_degree(RING, 10**12) == 8
    assert graphs.advise(RING, KERNEL, 10**6, num_nodes=10**12).best.error < 1e-6
    assert graphs.sample_walks(RING, num_walkers=2, max_nonzeros=10**15, seed=0).pattern.shape == (16, 16)


def test_rows_of_high_degree_beyond_memory_are_refused(monkeypatch):
    monkeypatch.setattr("graphs.checks.machine_memory", lambda: 2.0**20)
    g = graphs.Graph.from_networkx(nx.cycle_graph(400))
    with pytest.raises(graphs.MemoryBudgetError, match=r"400 rows of degree 200 take up to .* than this machine has"):
        graphs.chebyshev_features(g, degree=200)
    with pytest.raises(graphs.MemoryBudgetError, match=r"These walks take up to .* than this machine has"):
        graphs.sample_walks(g, num_walkers=1000, seed=0)
    with pytest.raises(graphs.MemoryBudgetError, match="eigenvectors of 400 nodes take up to"):
        graphs.spectral_features(g, rank=300)
    assert graphs.chebyshev_features(g, degree=200, max_memory=1e9).max_length == 200


def test_check_fits_uses_either_bound():
    check_fits("It", machine_memory(), "No.")
    for bound, words in ((None, "this machine has"), (5.0, "max_memory allows")):
        with pytest.raises(graphs.MemoryBudgetError, match=rf"It take up to .* MiB, more than {words}.* No."):
            check_fits("It", float("nan"), "No.", bound)


def test_shown_shortens_any_value():
    assert short_repr(10**5000) == "a very long int"
    assert len(short_repr("x" * 1000)) == 80
    with pytest.raises(graphs.InvalidArgumentError, match="k must be a positive integer, got a very long int"):
        check_count("k", -(10**5000))
