"""Nearest places on roads, against all segments one by one."""

import itertools

import numpy as np
import pytest

import graphs
from graphs import RoadNetwork


def all_segments(lines, point):
    """Return the smallest distance, its road, and the length before the place."""
    found = []
    for road, line in enumerate(lines):
        reached = 0.0
        for a, b in itertools.pairwise(line):
            length = np.linalg.norm(b - a)
            share = 0.0 if length == 0 else min(1.0, max(0.0, (point - a) @ (b - a) / length**2))
            found.append((np.linalg.norm(point - a - share * (b - a)), road, reached + share * length))
            reached += length
    return min(found)


@pytest.mark.parametrize("spread", [0.05, 1.0, 30.0])
def test_nearest_matches_all_segments(spread):
    rng = np.random.default_rng(0)
    counts = rng.integers(2, 20, 15)
    lines = [rng.uniform(0, 10, 2) + np.cumsum(spread * rng.normal(size=(n, 2)), axis=0) for n in counts]
    lines[1] = np.concatenate([lines[1][:1], lines[1]])  # a segment without length
    roads = RoadNetwork.from_lines(lines, metric="euclidean")
    points = rng.uniform(-10, 20, (40, 2))
    found = roads.nearest(points, within=np.inf)
    for point, (road, fraction), distance in zip(points, found.positions, found.distances, strict=True):
        expected, best, along = all_segments(lines, point)
        assert (road, distance) == (best, pytest.approx(expected))
        assert fraction * roads.lengths[best] == pytest.approx(along, abs=1e-8 * roads.lengths[best])


def test_blocks_do_not_change_results():
    rng = np.random.default_rng(0)
    roads = RoadNetwork.from_lines(list(rng.uniform(size=(30, 2, 2))), metric="euclidean")
    points, some = rng.uniform(size=(20_000, 2)), [0, 77, 19_999]
    whole = roads.nearest(points, within=2).positions
    np.testing.assert_array_equal(roads.nearest(points[some], within=2).positions, whole[some])


@pytest.mark.parametrize("line", [[(0, 0), (2, 0)], [(10, 60), (15, 60)], [(0, 60), (40, 61)], [(178, 5), (-178, 5)]])
def test_positions_on_the_globe_are_recovered(line):
    roads = RoadNetwork.from_lines([line, [(0, 0), (0.5, 0.7), (0.3, 1.0)]])
    positions = np.stack([np.arange(20) % 2, np.linspace(0.02, 0.98, 20)], axis=1)
    found, distances = roads.nearest(roads.point(positions))
    assert distances.max() < 0.5
    np.testing.assert_allclose(found, positions, atol=1e-5)  # segments are chords of the globe


def test_ties_go_to_the_first_road():
    lines = [[(0, 1), (0, 2)], [(0, 1), (3, 1)], [(0, 1), (-3, 1)], [(0, -1), (1, -1)]]
    roads = RoadNetwork.from_lines(lines, metric="euclidean")
    found = roads.nearest([(0, 0), (0, 1), (1, 0), (2, 2), (-1, 1)], within=2)
    np.testing.assert_allclose(found.positions, [(0, 0), (0, 0), (1, 1 / 3), (1, 2 / 3), (2, 1 / 3)])
    np.testing.assert_allclose(found.distances, [1, 0, 1, 1, 0], atol=1e-12)
    rng = np.random.default_rng(0)
    crossings = rng.uniform(8, 9, (50, 2))
    lines = [np.stack([crossings[i], other]) for i in range(50) for other in rng.uniform(8, 9, (4, 2))]
    found = RoadNetwork.from_lines(lines).nearest(crossings).positions
    np.testing.assert_array_equal(found[:, 0], 4 * np.arange(50))
    np.testing.assert_allclose(found[:, 1], 0, atol=1e-9)


@pytest.mark.parametrize(
    ("metric", "points", "options", "word"),
    [
        ("euclidean", [(0.5, 9.0)], {"within": 2.0}, "Point 0 .*got 9"),
        ("euclidean", [(0.5, 0.01), (0.5, 9.0)], {}, "Point 1 must lie within 0.1"),
        ("haversine", [(0.5, 0.005)], {}, "within 500 m of a road, got 555"),
        ("haversine", [(0.5, 100.0)], {}, "longitudes and latitudes"),
        ("euclidean", [(0.5, np.nan)], {}, "finite coordinates"),
        ("euclidean", [1.0, 2.0], {}, "finite coordinates"),
        ("euclidean", [(1e160, 0)], {"within": np.inf}, "nearer than"),
        ("euclidean", [(0.5, 1.0)], {"within": 0}, "within"),
        ("euclidean", [(0.5, 1.0)], {"within": np.nan}, "within"),
    ],
)
def test_bad_points_are_refused(metric, points, options, word):
    roads = RoadNetwork.from_lines([[(0, 0), (1, 0)]], metric=metric)
    assert roads.nearest(np.zeros((0, 2))).positions.shape == (0, 2)
    with pytest.raises(graphs.InvalidArgumentError, match=word):
        roads.nearest(points, **options)
