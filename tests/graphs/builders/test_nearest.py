"""Nearest places on roads, against all segments one by one."""

import itertools

import numpy as np
import pytest

import graphs
from graphs import RoadNetwork
from graphs.builders import nearest


def all_segments(lines, point):
    """The twin: the smallest distance, and each (distance, road, length before it)."""
    found = []
    for road, line in enumerate(lines):
        reached = 0.0
        for a, b in itertools.pairwise(line):
            length = np.linalg.norm(b - a)
            share = 0.0 if length == 0 else min(1.0, max(0.0, (point - a) @ (b - a) / length**2))
            found.append((np.linalg.norm(point - a - share * (b - a)), road, reached + share * length))
            reached += length
    return min(found)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.05, 1.0, 30.0])
def test_nearest_matches_all_segments(spread):
    rng = np.random.default_rng(0)
    lines = [
        rng.uniform(0, 10, 2) + np.cumsum(spread * rng.normal(size=(n, 2)), axis=0) for n in rng.integers(2, 30, 40)
    ]
    lines[0][3] = lines[0][2]  # a segment without length
    roads = RoadNetwork.from_lines(lines, metric="euclidean")
    points = rng.uniform(-10, 20, (100, 2))
    found = roads.nearest(points, within=np.inf).positions
    for point, (road, fraction) in zip(points, found, strict=True):
        _, expected, along = all_segments(lines, point)
        assert road == expected
        assert fraction * roads.lengths[expected] == pytest.approx(along, abs=1e-8 * roads.lengths[expected])


def test_positions_are_recovered_from_points():
    rng = np.random.default_rng(0)
    lines = [8 + 0.05 * np.cumsum(rng.normal(size=(n, 2)), axis=0) for n in (2, 5, 9)]
    roads = RoadNetwork.from_lines(lines)
    positions = np.stack([rng.integers(0, 3, 40).astype(float), rng.uniform(0.01, 0.99, 40)], axis=1)
    back, distances = roads.nearest(roads.point(positions))
    np.testing.assert_array_equal(back[:, 0], positions[:, 0])
    np.testing.assert_allclose(back[:, 1], positions[:, 1], atol=1e-5)  # segments are chords of the globe
    assert distances.max() < 1.0


def test_ties_go_to_the_first_road():
    lines = [[(0, 1), (0, 2)], [(0, 1), (3, 1)], [(0, 1), (-3, 1)], [(0, -1), (1, -1)]]
    roads = RoadNetwork.from_lines(lines, metric="euclidean")
    np.testing.assert_array_equal(roads.nearest([(0, 0), (0, 1)], within=2).positions, [(0, 0), (0, 0)])
    found = roads.nearest([(1, 0), (2, 2), (-1, 1)], within=2)
    np.testing.assert_allclose(found.positions, [(1, 1 / 3), (1, 2 / 3), (2, 1 / 3)])
    np.testing.assert_allclose(found.distances, [1, 1, 0], atol=1e-12)


def test_ties_on_the_globe_go_to_the_first_road():
    rng = np.random.default_rng(0)
    crossings = rng.uniform(8, 9, (50, 2))
    lines = [np.stack([crossings[i], other]) for i in range(50) for other in rng.uniform(8, 9, (4, 2))]
    found = RoadNetwork.from_lines(lines).nearest(crossings).positions
    np.testing.assert_array_equal(found[:, 0], 4 * np.arange(50))
    np.testing.assert_allclose(found[:, 1], 0, atol=1e-9)


@pytest.mark.parametrize("line", [[(0, 0), (2, 0)], [(10, 60), (15, 60)], [(0, 60), (40, 61)], [(178, 5), (-178, 5)]])
def test_segments_are_straight_in_degrees(line):
    roads = RoadNetwork.from_lines([line])
    positions = np.stack([np.zeros(20), np.linspace(0.02, 0.98, 20)], axis=1)
    found, distances = roads.nearest(roads.point(positions))
    assert distances.max() < 0.5
    np.testing.assert_allclose(found[:, 1], positions[:, 1], atol=1e-6)


def test_points_out_of_range_are_refused():
    roads = RoadNetwork.from_lines([[(0, 0), (1, 0)]], metric="euclidean")
    with pytest.raises(graphs.InvalidArgumentError, match="nearer than"):
        roads.nearest([(1e160, 0)], within=np.inf)


def test_small_blocks_of_pairs_match(monkeypatch):
    angles = np.linspace(0, 2 * np.pi, 500)
    roads = RoadNetwork.from_lines([np.stack([np.cos(angles), np.sin(angles)], axis=1)], metric="euclidean")
    points = 0.001 * np.random.default_rng(0).normal(size=(50, 2))
    whole = roads.nearest(points, within=2).positions
    monkeypatch.setattr(nearest, "MAX_PAIRS", 700)
    np.testing.assert_array_equal(roads.nearest(points, within=2).positions, whole)


def test_many_points_are_processed_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    roads = RoadNetwork.from_lines(list(rng.uniform(size=(30, 2, 2))), metric="euclidean")
    points = rng.uniform(size=(100, 2))
    whole = roads.nearest(points, within=1).positions
    monkeypatch.setattr(nearest, "BLOCK", 7)
    np.testing.assert_array_equal(roads.nearest(points, within=1).positions, whole)


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        ([(0.5, 9.0)], {"within": 2.0}, "Point 0 must lie within 2 of a road, got 9"),
        ([(0.5, 0.01), (0.5, 9.0)], {}, "Point 1 must lie within 0.1 of a road, got 9"),
        ([(0.5, np.nan)], {}, "finite coordinates"),
        ([1.0, 2.0], {}, "finite coordinates"),
        ([(0.5, 1.0)], {"within": 0}, "within must be a positive number"),
        ([(0.5, 1.0)], {"within": np.nan}, "within must be a positive number"),
    ],
)
def test_bad_arguments_are_refused(points, options, message):
    roads = RoadNetwork.from_lines([[(0, 0), (1, 0)]], metric="euclidean")
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        roads.nearest(points, **options)


def test_degrees_and_empty_points():
    roads = RoadNetwork.from_lines([[(0, 0), (1, 0)]])
    with pytest.raises(graphs.InvalidArgumentError, match="longitudes and latitudes"):
        roads.nearest([(0.5, 100.0)])
    assert roads.nearest(np.zeros((0, 2))).positions.shape == (0, 2)
    with pytest.raises(graphs.InvalidArgumentError, match="within 500 m of a road, got 555"):
        roads.nearest([(0.5, 0.005)])
