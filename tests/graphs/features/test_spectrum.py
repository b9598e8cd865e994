"""The largest eigenvalues and their vectors, against the dense decomposition."""

import networkx as nx
import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence

import graphs
from graphs import Graph, kernels
from graphs.features import eigenpairs

KERNELS = [kernels.Diffusion(2.5), kernels.RegularizedLaplacian(2, 0.8), kernels.Matern(1.5, 2.0)]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("rank", [5, 12, 60])
def test_features_match_the_largest_eigenvalues(g, kernel, rank):
    assert connected_components(g.adjacency)[0] == 3  # an eigenvalue of multiplicity three
    made = graphs.spectral_features(g, rank=rank)
    values, vectors = g.spectrum
    expected = (vectors[:, :rank] * kernel.spectral(values[:rank])) @ vectors[:, :rank].T
    phi = made.features(kernel)
    assert phi.shape == (60, rank)
    np.testing.assert_allclose((phi @ phi.T).toarray(), expected, atol=1e-10)
    assert np.linalg.norm(kernel.exact(g) - expected, 2) <= made.error_bound(kernel) ** 2 + 1e-10


def test_lanczos_matches_dense_spectrum():
    g, kernel = Graph.from_networkx(nx.grid_2d_graph(20, 20)), kernels.Diffusion(4.0)
    made = graphs.spectral_features(g, rank=30)
    np.testing.assert_allclose(made.eigenvalues, 1 - g.spectrum.eigenvalues[:30], atol=1e-9)
    assert made.error_bound(kernel) < 0.5
    np.testing.assert_array_equal(made.eigenvectors, graphs.spectral_features(g, rank=30).eigenvectors)


def test_more_components_than_rank():
    g = Graph.from_edges([(4 * k + a, 4 * k + a + 1) for k in range(80) for a in range(3)])
    made = graphs.spectral_features(g, rank=70)
    assert (made.eigenvalues == 1).all()
    assert made.error_bound(KERNELS[0]) == pytest.approx(1)
    more = graphs.spectral_features(g, rank=79)
    np.testing.assert_allclose(more.eigenvectors.T @ more.eigenvectors, np.eye(79), atol=1e-12)


def test_repeated_eigenvalues_are_found():
    """Graphs whose spectra one Lanczos run misses parts of."""
    for G, rank in ((nx.kneser_graph(10, 3), 20), (nx.hypercube_graph(9), 60)):
        g = Graph.from_networkx(G)
        made = graphs.spectral_features(g, rank=rank)
        np.testing.assert_allclose(made.eigenvalues, 1 - g.spectrum.eigenvalues[:rank], atol=1e-8)
        phi = made.features(kernels.Diffusion(4.0)).toarray()
        rest = kernels.Diffusion(4.0).exact(g) - phi @ phi.T
        assert np.linalg.norm(rest, 2) <= made.error_bound(kernels.Diffusion(4.0)) ** 2 + 1e-10


def test_unconverged_eigenvalues_raise(monkeypatch):
    def stop(matrix, k, **options):
        raise ArpackNoConvergence("No convergence", np.zeros(0), np.zeros((matrix.shape[0], 0)))

    monkeypatch.setattr(eigenpairs, "eigsh", stop)
    with pytest.raises(graphs.GraphError, match="got 1 of them"):
        graphs.spectral_features(Graph.from_networkx(nx.hypercube_graph(9)), rank=5)


def test_close_eigenvalues_of_a_ring_are_found():
    """Pairs 1e-5 apart, by a factorisation; the analytic ones are cos(2 pi k / N), each but the first twice."""
    g = Graph.from_grid((3000,), periodic=True)
    features = graphs.spectral_features(g, [], 41)
    exact = np.sort(np.cos(2 * np.pi * np.arange(3000) / 3000))[::-1][:41]
    np.testing.assert_allclose(features.eigenvalues, exact, atol=1e-13)
    vectors = features.eigenvectors
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(41), atol=1e-12)
    np.testing.assert_allclose(g.shift_operator @ vectors, vectors * exact, atol=1e-12)
