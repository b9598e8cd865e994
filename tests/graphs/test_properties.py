"""What holds for every graph: weighted, disconnected, with isolated nodes and self-loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import Graph, kernels, sample_walks


@st.composite
def weighted_graphs(draw):
    size = draw(st.integers(1, 12))
    pairs = [(a, b) for a in range(size) for b in range(a, size)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30))
    weights = draw(st.lists(st.floats(1e-6, 1e6), min_size=len(chosen), max_size=len(chosen)))
    return Graph.from_edges(chosen, weights, nodes=range(size), self_loops="keep")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(weighted_graphs(), st.floats(0.1, 5))
def test_laplacian_spectrum_and_positive_kernels(g, scale):
    U = g.shift_operator.toarray()
    np.testing.assert_array_equal(U, U.T)
    eigenvalues = np.linalg.eigvalsh(np.eye(g.num_nodes) - U)
    assert eigenvalues.min() > -1e-9
    assert eigenvalues.max() < 2 + 1e-9
    root = np.sqrt(g.degrees) + (g.degrees == 0)
    np.testing.assert_allclose(U @ root, root, rtol=1e-9)  # L has eigenvalue 0
    for kernel in (kernels.Diffusion(scale), kernels.RegularizedLaplacian(2, scale)):
        values = np.linalg.eigvalsh(kernel.exact(g))
        assert values.min() > -1e-9
        assert values.max() <= 1 + 1e-9


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(weighted_graphs(), st.sampled_from(["independent", "stratified"]), st.sampled_from(["weights", "uniform"]))
def test_walks_on_any_graph(g, step_coupling, transitions):
    walks = sample_walks(g, num_walkers=4, p_halt=0.4, step_coupling=step_coupling, transitions=transitions, seed=1)
    f = np.random.default_rng(0).standard_normal(walks.max_length + 1)
    phi = walks.values(f)
    assert np.isfinite(phi).all()
    rows = np.repeat(np.arange(g.num_nodes), np.diff(walks.pattern.indptr))
    reachable = np.linalg.matrix_power(np.eye(g.num_nodes) + (g.adjacency.toarray() > 0), g.num_nodes) > 0
    assert reachable[rows, walks.pattern.indices].all()
    last = walks.at([g.num_nodes - 1])
    np.testing.assert_array_equal(last.values(f), phi[rows == g.num_nodes - 1])
