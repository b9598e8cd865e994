"""The distribution of eigenvalues, and the growth of second moments."""

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph
from graphs.spectral import lanczos, spectral_measure, squared_growth


def test_lanczos_quadrature_agrees_with_the_spectrum(monkeypatch):
    g = graphs.Graph.from_networkx(nx.random_regular_graph(4, 1000, seed=0))
    u, weights = spectral_measure(g)
    monkeypatch.setattr("graphs.spectral.MAX_EXACT_NODES", 10)
    points, mass = spectral_measure(g)
    assert len(points) < 400
    for power in (1, 2, 4, 8):
        assert mass @ points**power == pytest.approx(weights @ u**power, abs=0.02)
    assert mass.sum() == pytest.approx(1)
    assert len(lanczos(g.shift_operator, np.ones(1000))[0]) == 1  # an eigenvector ends it at once


def test_squared_growth_is_a_spectral_radius():
    rng = np.random.default_rng(0)
    for size in (30, 80):
        G = nx.gnm_random_graph(size, 4 * size, seed=2)
        g = graphs.Graph.from_edges(G.edges, rng.uniform(0.1, 5, G.number_of_edges()), nodes=range(size))
        U = g.shift_operator.toarray()
        uniform = (U > 0).sum(1)[:, None] * U**2
        by_weight = np.divide(U**2, g.adjacency.toarray() / g.degrees[:, None], out=np.zeros_like(U), where=U > 0)
        assert squared_growth(g, "uniform") == pytest.approx(abs(np.linalg.eigvals(uniform)).max())
        assert squared_growth(g, "weights") == pytest.approx(abs(np.linalg.eigvals(by_weight)).max())


def test_density_matches_eigenvalues():
    g = Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(30, 40)))
    eigenvalues = g.spectrum.eigenvalues
    at = (np.arange(20_000) + 0.5) / 10_000
    density = graphs.spectral_density(g, at, num_probes=64)
    assert density.mean() * 2 == pytest.approx(1, abs=0.002)
    shares = [density[at <= limit].sum() / 10_000 for limit in (0.3, 0.7, 1.05, 1.6)]
    np.testing.assert_allclose(shares, [(eigenvalues <= limit).mean() for limit in (0.3, 0.7, 1.05, 1.6)], atol=0.015)
    for bad in ([-0.1], [2.1], [[1.0]]):
        with pytest.raises(graphs.InvalidArgumentError, match="eigenvalues"):
            graphs.spectral_density(g, bad)
