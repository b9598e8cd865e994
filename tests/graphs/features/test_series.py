"""Polynomials of the matrix, against dense powers."""

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph, kernels

KERNELS = [kernels.Diffusion(2.5), kernels.RegularizedLaplacian(2, 0.8), kernels.Matern(1.5, 2.0)]
MAKERS = {"taylor": graphs.taylor_features, "chebyshev": graphs.chebyshev_features}


def root(g, kernel):
    """f(U) by the eigendecomposition."""
    values, vectors = g.spectrum
    return (vectors * np.sqrt(kernel.spectral(values))) @ vectors.T


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("degree", [0, 1, 4, 30])
def test_features_match_polynomials_within_error_bound(g, kernel, name, degree):
    made = MAKERS[name](g, degree=degree)
    phi = made.features(kernel).toarray()
    U, weights = g.shift_operator.toarray(), made.weights(kernel)
    powers = [np.eye(60), U]
    while len(powers) <= degree:
        powers.append(U @ powers[-1] if name == "taylor" else 2 * U @ powers[-1] - powers[-2])
    expected = sum(w * power for w, power in zip(weights, powers, strict=False))
    np.testing.assert_allclose(phi, expected, atol=1e-12)
    bound, error = made.error_bound(kernel), np.linalg.norm(phi - root(g, kernel), 2)
    assert error <= bound + 1e-12
    if degree == 30 and name == "chebyshev":
        assert bound < 1e-6
    assert error > 1e-4 * bound


def test_cancelled_terms_are_not_stored():
    """On a ring T_l(U) has the entry 1/2 at the two nodes l steps away, and rounding errors between them."""
    ring = Graph.from_networkx(nx.cycle_graph(300))
    made = graphs.chebyshev_features(ring, degree=100)
    assert made.table.nnz == 300 * 201
    hops, entries = made.table.indices, made.table.data
    np.testing.assert_allclose(entries, np.where(hops == 0, 1.0, 0.5), atol=1e-12)
    kernel = kernels.Diffusion(6.0)
    phi = made.features(kernel)
    np.testing.assert_allclose((phi @ phi.T).toarray(), kernel.exact(ring), atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_chebyshev_error_bound_decreases_faster_than_taylor(g, kernel):
    for degree in (3, 6, 9):
        chebyshev, taylor = (make(g, degree=degree).error_bound(kernel) for make in MAKERS.values().__reversed__())
        assert chebyshev < 0.5 * taylor


def test_modulation_keeps_its_sign(g):
    kernel = kernels.Modulated((1.0, -2.0))
    for make in MAKERS.values():
        made = make(g, degree=1)
        phi = made.features(kernel)
        np.testing.assert_allclose((phi @ phi.T).toarray(), kernel.exact(g), atol=1e-12)
        assert made.error_bound(kernel) < 1e-12


def test_memory_budget_is_checked_first():
    crowd = Graph.from_networkx(nx.complete_graph(600))
    with pytest.raises(graphs.MemoryBudgetError, match="take up to"):
        graphs.chebyshev_features(crowd, degree=6, max_memory=1e6)


def test_max_series_degree_keeps_the_budget():
    g = Graph.from_networkx(nx.cycle_graph(500))
    assert graphs.max_series_degree(g, 21) == 10
    assert graphs.max_series_degree(g, 20) == 9
    assert graphs.max_series_degree(g, 1) == 1
    assert len(graphs.chebyshev_features(g, degree=10).pattern.indices) == 21 * 500


@pytest.mark.parametrize("degree", [0, 1, 2, 7])
@pytest.mark.parametrize("make", [graphs.taylor_features, graphs.chebyshev_features])
def test_matmul_matches_dense_product(make, degree):
    g, kernel = Graph.from_networkx(nx.lollipop_graph(6, 9)), kernels.Diffusion(2.5)
    features = make(g, [], degree)
    right = np.random.default_rng(0).standard_normal((15, 3))
    expected = make(g, None, degree).features(kernel) @ right
    np.testing.assert_allclose(features.matmul(kernel, right), expected, atol=1e-13)
