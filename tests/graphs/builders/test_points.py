"""Graphs of point clouds, against a twin by sorting all distances."""

import numpy as np
import pytest

import graphs
from graphs import Graph


def slow(points, k):
    """The twin: distances (n, n), nan where neither point is among the other's k nearest; distances must differ."""
    D = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    near = np.zeros(D.shape, dtype=bool)
    for i in range(len(D)):
        others = sorted((j for j in range(len(D)) if j != i), key=lambda j, i=i: D[i, j])
        near[i, others[:k]] = True
    return np.where(near | near.T, D, np.nan), np.array([sorted(row)[k] for row in D])


@pytest.mark.parametrize("k", [1, 4, 39])
@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_neighbors_match_all_pairs(d, k):
    points = np.random.default_rng(0).normal(size=(40, d))
    D, farthest = slow(points, k)
    edge = ~np.isnan(D)
    twins = {
        "unit": np.where(edge, 1.0, 0.0),
        "length": np.where(edge, np.nanmean(D) / D, 0.0),
        "gaussian": np.where(edge, np.exp(-(D**2) / (2 * np.median(farthest) ** 2)), 0.0),
    }
    for weights, expected in twins.items():
        g = Graph.from_points(points, k, weights=weights)
        np.testing.assert_allclose(g.adjacency.toarray(), np.nan_to_num(expected), rtol=1e-9)
    W = Graph.from_points(points, k, bandwidth=0.7).adjacency.toarray()
    np.testing.assert_allclose(W, np.where(edge, np.exp(-(D**2) / (2 * 0.49)), 0.0), rtol=1e-9)
    assert (edge.sum(1) >= k).all()


def test_edges_are_the_union_of_neighbors():
    """0, 1, 2.1, 10 on a line with k = 1: only 10 counts 2.1 a neighbor."""
    W = Graph.from_points(np.array([[0.0], [1.0], [2.1], [10.0]]), 1, weights="unit").adjacency.toarray()
    np.testing.assert_array_equal(W, [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]])


@pytest.mark.parametrize(("d", "drawable"), [(1, False), (2, True), (3, True), (4, False)])
def test_coordinates_are_the_points(d, drawable):
    points = np.random.default_rng(0).normal(size=(15, d))
    g = Graph.from_points(points)
    assert g.labels is None
    assert (g.coordinates is not None) == drawable
    if drawable:
        np.testing.assert_array_equal(g.coordinates, points)
        assert not np.shares_memory(g.coordinates, points)


class TestRepeatedPoints:
    POINTS = np.array([(0, 0), (1, 0), (0, 0), (0, 1), (3, 3), (0, 0)], dtype=float)

    def test_duplicates_have_weight_one(self):
        W = Graph.from_points(self.POINTS, 3, bandwidth=0.5).adjacency.toarray()
        assert W[0, 2] == W[0, 5] == W[2, 5] == 1
        np.testing.assert_array_equal(np.diag(W), 0)

    def test_duplicates_are_refused_for_lengths(self):
        with pytest.raises(graphs.InvalidGraphError, match=r"0 and 2 .*\(3 such edges\)"):
            Graph.from_points(self.POINTS, 3, weights="length")
        assert Graph.from_points(self.POINTS[[0, 1, 3, 4]], 2, weights="length").num_edges == 5

    @pytest.mark.parametrize("copies", [2, 5, 40])
    def test_more_duplicates_than_neighbors(self, copies):
        """The tree then need not find a point among its own neighbors."""
        points = np.repeat(np.random.default_rng(0).normal(size=(5, 2)), copies, axis=0)
        g = Graph.from_points(points, 4, weights="unit")
        edges = g.adjacency.tocoo()
        assert (edges.row != edges.col).all()
        assert (g.degrees >= 4).all()
        if copies > 4:
            assert (edges.row // copies == edges.col // copies).all()

    def test_zero_median_bandwidth_is_refused(self):
        points = np.repeat(np.random.default_rng(0).normal(size=(5, 2)), 20, axis=0)
        with pytest.raises(graphs.InvalidGraphError, match=r"median distance.*Pass bandwidth="):
            Graph.from_points(points, 4)
        np.testing.assert_array_equal(Graph.from_points(points, 4, bandwidth=1e-3).adjacency.data, 1)

    @pytest.mark.parametrize("bandwidth", [1e-323, 1e-308, 1e308])
    def test_extreme_bandwidths_are_finite(self, bandwidth):
        W = Graph.from_points(1e100 * self.POINTS, 3, bandwidth=bandwidth).adjacency.toarray()
        assert W[0, 2] == 1
        assert W[0, 1] == (1 if bandwidth > 1 else 0)


def test_underflowing_weights_are_dropped():
    points = np.array([[0.0], [1.0], [100.0], [101.0]])
    assert Graph.from_points(points, 2, bandwidth=1.0).num_edges == 2
    assert Graph.from_points(points, 2, weights="unit").num_edges == 5


@pytest.mark.parametrize("factor", [1e-305, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("weights", ["gaussian", "length", "unit"])
def test_weights_are_invariant_to_units(weights, factor):
    points = np.random.default_rng(0).normal(size=(40, 3))
    scaled = Graph.from_points(points * factor, 5, weights=weights).adjacency.toarray()
    np.testing.assert_allclose(scaled, Graph.from_points(points, 5, weights=weights).adjacency.toarray(), rtol=1e-9)


def test_lists_of_integers_are_points():
    g = Graph.from_points([[0, 0], [1, 0], [0, 2]], np.int64(1), weights="unit")
    np.testing.assert_array_equal(g.adjacency.toarray(), [[0, 1, 1], [1, 0, 0], [1, 0, 0]])
    assert g.coordinates.dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.zeros((3, 2)), 3), {}, "k must be at most 2 for 3 points, got 3"),
        ((np.zeros((1, 2)), 1), {}, "for 1 point, got 1.*more points"),
        ((np.zeros((3, 2)),), {}, "got 10"),
        ((np.zeros((3, 2)), 0), {}, "k must be a positive integer, got 0"),
        ((np.zeros((3, 2)), 1.0), {}, "k must be a positive integer"),
        ((np.zeros((3, 2)), True), {}, "k must be a positive integer"),
        ((np.zeros(30), 2), {}, r"shape \(n, d\), got float64 of shape \(30,\).*points\[:, None\]"),
        ((np.zeros((0, 2)), 2), {}, r"shape \(0, 2\)"),
        ((np.zeros((30, 0)), 2), {}, r"shape \(30, 0\)"),
        ((np.zeros((30, 2), complex), 2), {}, "complex128"),
        (([["a", "b"]] * 30, 2), {}, "(?i)points must be numbers"),
        ((np.array([[0, 0], [0, np.nan], [1, 1]]), 1), {}, "Point 1 .*finite"),
        ((np.array([[0, 0], [0, 1], [np.inf, 1]]), 1), {}, "Point 2 .*finite"),
        ((np.eye(3), 1), {"weights": "lengths"}, "weights must be one of 'gaussian', 'length', 'unit'"),
        ((np.eye(3), 1), {"weights": "unit", "bandwidth": 1.0}, 'weights must be "gaussian"'),
        ((np.eye(3), 1), {"bandwidth": 0.0}, "bandwidth must be a positive number"),
        ((np.eye(3), 1), {"bandwidth": np.nan}, "bandwidth must be a positive number"),
        ((np.eye(3), 1), {"bandwidth": "wide"}, "bandwidth must be a positive number"),
    ],
)
def test_invalid_points_are_refused(arguments, options, message):
    with pytest.raises(graphs.GraphError, match=message):
        Graph.from_points(*arguments, **options)
