"""Graphs of point clouds, against sorted distances of all pairs."""

import numpy as np
import pytest

from graphs import Graph


def all_pairs(points, k):
    """Return distances (n, n), nan where neither point is among the other's k nearest, and those of the k-th."""
    D = np.linalg.norm(points[:, None] - points, axis=2)
    near = np.zeros(D.shape, dtype=bool)
    for i, row in enumerate(D):
        near[i, [j for j in np.argsort(row, kind="stable") if j != i][:k]] = True
    return np.where(near | near.T, D, np.nan), np.sort(D, axis=1)[:, k]


@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 4), (3, 39), (6, 4)])
def test_neighbors_match_all_pairs(d, k):
    points = np.random.default_rng(0).normal(size=(40, d))
    D, farthest = all_pairs(points, k)
    edge = ~np.isnan(D)
    for options, expected in (
        ({"weights": "unit"}, np.ones_like(D)),
        ({"weights": "length"}, np.nanmean(D) / D),
        ({}, np.exp(-(D**2) / (2 * np.median(farthest) ** 2))),
        ({"bandwidth": 0.7}, np.exp(-(D**2) / (2 * 0.49))),
    ):
        g = Graph.from_points(points, k, **options)
        np.testing.assert_allclose(g.adjacency.toarray(), np.where(edge, expected, 0.0), rtol=1e-9)
    if d in (2, 3):
        np.testing.assert_array_equal(g.coordinates, points)
    else:
        assert g.coordinates is None


@pytest.mark.parametrize("copies", [2, 40])
def test_repeated_points_are_no_neighbors_of_themselves(copies):
    """With more copies than neighbors the tree need not find a point among its own."""
    points = np.repeat(np.random.default_rng(0).normal(size=(5, 2)), copies, axis=0)
    g = Graph.from_points(points, 4, weights="unit")
    edges = g.adjacency.tocoo()
    assert (edges.row != edges.col).all()
    assert (g.degrees >= 4).all()
    assert copies <= 4 or (edges.row // copies == edges.col // copies).all()


def test_small_and_large_bandwidths():
    points = np.array([(0, 0), (1, 0), (0, 0)], dtype=float)
    for bandwidth, far in ((1e-323, 0), (1e308, 1)):
        W = Graph.from_points(points, 2, bandwidth=bandwidth).adjacency.toarray()
        np.testing.assert_allclose([W[0, 2], W[0, 1], W[0, 0]], [1, far, 0])
    line = np.array([[0.0], [1.0], [100.0], [101.0]])
    assert Graph.from_points(line, 2, bandwidth=1.0).num_edges == 2  # weights that underflow are dropped


@pytest.mark.parametrize(
    ("weights", "factor"), [("gaussian", 1e-305), ("length", 1e-160), ("length", 1e300), ("unit", 1e160)]
)
def test_weights_are_invariant_to_units(weights, factor):
    points = np.random.default_rng(0).normal(size=(40, 3))
    scaled = Graph.from_points(points * factor, 5, weights=weights).adjacency.toarray()
    np.testing.assert_allclose(scaled, Graph.from_points(points, 5, weights=weights).adjacency.toarray(), rtol=1e-9)
