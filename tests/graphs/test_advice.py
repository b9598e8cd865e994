"""Features measured, and recommended."""

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph, kernels
from graphs.advice import exact_block, precision_candidate, rational_candidate
from graphs.precisions import RationalField, resolvent_field

KERNELS = [kernels.Diffusion(2.5), kernels.RegularizedLaplacian(2, 0.8), kernels.Matern(1.5, 2.0)]
MAKERS = {"taylor": graphs.taylor_features, "chebyshev": graphs.chebyshev_features}


def test_exact_block_matches_the_kernel(g):
    some = np.array([3, 0, 59])
    for kernel in (*KERNELS, kernels.InverseCosine(), kernels.RandomWalk(3, 2.0)):
        np.testing.assert_allclose(exact_block(g, kernel, some), kernel.exact(g)[np.ix_(some, some)], atol=1e-8)


@pytest.mark.slow
def test_best_features_depend_on_graph_and_kernel():
    """Where few hops do, where the kernel lives on few eigenvectors, and where neighbourhoods explode."""
    grid = Graph.from_networkx(nx.grid_2d_graph(30, 30))
    near = graphs.advise(grid, kernels.Diffusion(2.0), 64)
    assert near.best.features == "chebyshev"
    far = graphs.advise(grid, kernels.Diffusion(15.0), 64)
    assert far.best.features == "spectrum"
    hubs = Graph.from_networkx(nx.barabasi_albert_graph(3000, 2, seed=0))
    crowded = graphs.advise(hubs, kernels.RegularizedLaplacian(1.5, 2.0), 200)
    assert crowded.best.features == "walks"
    for advice in (near, far, crowded):
        errors = [candidate.error for candidate in advice.candidates]
        assert errors == sorted(errors)
        budget = 200 if advice is crowded else 64
        assert advice.best.nonzeros <= budget
        assert advice.best.error == min(c.error for c in advice.candidates if c.nonzeros <= budget)
        assert advice.best.features in advice.reason
        assert str(advice).count("\n") == len(advice.candidates)


def test_measured_error_matches_the_features(g):
    advice = graphs.advise(g, KERNELS[0], 40, num_nodes=60)
    K = KERNELS[0].exact(g)
    for candidate in advice.candidates:
        if candidate.features == "walks":
            continue
        make = {**MAKERS, "spectrum": graphs.spectral_features}[candidate.features]
        phi = make(g, **candidate.options).features(KERNELS[0])
        if len(set(phi.nonzero()[0])) == 60:
            error = np.linalg.norm((phi @ phi.T).toarray() - K) / np.linalg.norm(K)
            assert candidate.error == pytest.approx(error, rel=0.3)


def test_bad_graphs_and_kernels_are_refused(g):
    with pytest.raises(graphs.InvalidArgumentError, match="max_nonzeros must be a positive integer"):
        graphs.advise(g, KERNELS[0], 0)
    with pytest.raises(graphs.InvalidArgumentError, match="num_nodes must be a positive integer"):
        graphs.advise(g, KERNELS[0], num_nodes=0)


def test_kernel_beyond_2000_terms_is_refused(g):
    some, kernel = np.array([3, 0, 59]), kernels.Matern(1.5, 1000.0)
    np.testing.assert_allclose(exact_block(g, kernel, some), kernel.exact(g)[np.ix_(some, some)], rtol=1e-12)
    with pytest.raises(graphs.InvalidArgumentError, match=r"2000 terms.*kappa=1000\.0"):
        exact_block(graphs.Graph.from_grid((2001,)), kernel, some)


def test_kernel_without_second_moment_has_no_walks(g):
    assert all(c.features != "walks" for c in graphs.advise(g, kernels.InverseCosine()).candidates)


def test_arguments_out_of_range(g):
    for options, words in (
        ({"seed": -1}, "seed"),
        ({"p_halt": [1, 0.5]}, "probability"),
        ({"p_halt": 1.5}, "halt must"),
    ):
        with pytest.raises(graphs.InvalidArgumentError, match=words):
            graphs.advise(g, KERNELS[0], **options)
    with pytest.raises(graphs.InvalidArgumentError, match="double precision"):
        exact_block(g, kernels.Matern(100, 3e-3), np.array([0]))


def test_small_precision_is_preferred(monkeypatch):
    grid, kernel = Graph.from_networkx(nx.grid_2d_graph(20, 20)), kernels.Matern(2, 2.0)
    advice = graphs.advise(grid, kernel, 20)
    factor = resolvent_field(grid, 2).analysis
    assert (advice.best.features, advice.best.error) == ("precision", 0.0)
    assert advice.best.nonzeros == factor.num_nonzeros / 400
    assert "exact" in advice.reason
    assert {candidate.features for candidate in advice.candidates} > {"precision", "chebyshev"}
    assert precision_candidate(grid, kernels.Matern(1.5)) is None
    monkeypatch.setattr("graphs.advice.MAX_FLOPS", factor.flops - 1)
    assert precision_candidate(grid, kernel) is None
    assert graphs.advise(grid, kernel, 20).best.features != "precision"
    monkeypatch.undo()
    monkeypatch.setattr("graphs.advice.machine_memory", lambda: 2 * factor.num_bytes - 1)
    assert precision_candidate(grid, kernel) is None


def test_small_rational_precision_is_preferred(monkeypatch):
    grid, kernel = Graph.from_networkx(nx.grid_2d_graph(20, 20)), kernels.Matern(1.5, 4.0)
    advice = graphs.advise(grid, kernel, 20)
    terms = advice.best.options["degree"]
    field = RationalField(grid, 1.5, terms)
    assert (advice.best.features, advice.best.error) == ("rational", field.error(kernel.resolvent().shift))
    assert advice.best.error <= 1e-3 < RationalField(grid, 1.5, terms - 1).error(kernel.resolvent().shift)
    assert "relative error" in advice.reason
    assert advice.best.nonzeros == pytest.approx(field.analysis.num_nonzeros / 400, rel=0.3)
    assert rational_candidate(grid, kernels.Matern(2, 4.0)) is None
    assert rational_candidate(grid, kernels.Diffusion(2.0)) is None
    assert rational_candidate(grid, kernels.Matern(0.5, 1e6)) is None  # no eight fields are that kernel
    flops = terms**3 * resolvent_field(grid, 2).analysis.flops
    assert flops == pytest.approx(field.analysis.flops, rel=0.5)
    monkeypatch.setattr("graphs.advice.MAX_FLOPS", flops - 1)
    assert rational_candidate(grid, kernel) is None
    monkeypatch.undo()
    monkeypatch.setattr("graphs.advice.machine_memory", lambda: 1e4)
    assert rational_candidate(grid, kernel) is None
