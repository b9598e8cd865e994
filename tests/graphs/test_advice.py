"""Features measured, and recommended."""

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph, kernels, precisions

KERNEL = kernels.Diffusion(2.5)
RANDOM = Graph.from_networkx(nx.gnm_random_graph(60, 130, seed=0))
GRID = Graph.from_grid((20, 20))


@pytest.mark.slow
def test_best_features_depend_on_graph_and_kernel():
    """Where few hops do, where the kernel lives on few eigenvectors, and where neighborhoods explode."""
    hubs = Graph.from_networkx(nx.barabasi_albert_graph(3000, 2, seed=0))
    for graph, kernel, budget, best in (
        (Graph.from_grid((30, 30)), kernels.Diffusion(2.0), 64, "chebyshev"),
        (Graph.from_grid((30, 30)), kernels.Diffusion(15.0), 64, "spectrum"),
        (hubs, kernels.RegularizedLaplacian(1.5, 2.0), 200, "walks"),
    ):
        advice = graphs.advise(graph, kernel, budget)
        errors = [candidate.error for candidate in advice.candidates]
        assert (advice.best.features, errors) == (best, sorted(errors))
        assert advice.best.nonzeros <= budget
        assert advice.best.error == min(c.error for c in advice.candidates if c.nonzeros <= budget)
        assert best in advice.reason
        assert str(advice).count("\n") == len(advice.candidates)


@pytest.mark.slow
def test_measured_errors_are_those_of_the_features():
    advice, K = graphs.advise(RANDOM, KERNEL, 40, num_nodes=60), KERNEL.exact(RANDOM)
    makers = {
        "taylor": graphs.taylor_features,
        "chebyshev": graphs.chebyshev_features,
        "spectrum": graphs.spectral_features,
    }
    deterministic = [candidate for candidate in advice.candidates if candidate.features in makers]
    assert len(deterministic) == 3
    for candidate in deterministic:
        phi = makers[candidate.features](RANDOM, **candidate.options).features(KERNEL)
        error = np.linalg.norm((phi @ phi.T).toarray() - K) / np.linalg.norm(K)
        assert candidate.error == pytest.approx(error, rel=0.4)
    none = graphs.advise(RANDOM, kernels.InverseCosine()).candidates  # without a second moment
    assert all(candidate.features != "walks" for candidate in none)


@pytest.mark.slow
def test_small_precisions_are_preferred():
    advice = graphs.advise(GRID, kernels.Matern(2, 2.0), 20)
    assert (advice.best.features, advice.best.error) == ("precision", 0.0)
    assert {candidate.features for candidate in advice.candidates} > {"precision", "chebyshev"}
    kernel = kernels.Matern(1.5, 4.0)
    best, shift = graphs.advise(GRID, kernel, 20).best, 3 / 16
    field = precisions.RationalField(GRID, 1.5, best.options["degree"])
    assert (best.features, best.error) == ("rational", pytest.approx(field.error(shift)))
    assert best.error <= 1e-3 < precisions.RationalField(GRID, 1.5, best.options["degree"] - 1).error(shift)
    assert best.nonzeros == pytest.approx(field.analysis.num_nonzeros / 400, rel=0.3)
