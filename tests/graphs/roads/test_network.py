"""Road networks: what joins, where positions are, and how far apart."""

import itertools

import fields
import numpy as np
import pytest

import graphs
from graphs import RoadNetwork

LINES = [[(0, 0), (1, 0)], [(1, 0), (1, 1), (2, 1)], [(0, 0), (0, 3), (1, 0)]]
DEGREE = 2 * np.pi * 6_371_008.8 / 360
"""Metres of a degree of the equator."""


def flat(lines, **options):
    return RoadNetwork.from_lines(lines, metric="euclidean", **options)


def test_lines_meet_at_their_ends():
    mine = [np.array(line, dtype=float) for line in LINES]
    roads = flat(mine)
    assert (roads.starts.tolist(), roads.ends.tolist(), roads.degrees.tolist()) == ([0, 1, 0], [1, 2, 1], [2, 3, 1])
    np.testing.assert_array_equal(roads.coordinates, [(0, 0), (1, 0), (2, 1)])
    np.testing.assert_allclose(roads.lengths, [1, 2, 3 + np.sqrt(10)])
    assert repr(roads) == "RoadNetwork(3 roads, 3 vertices, length 9.16228)"
    mine[0][0, 0] = 5.0  # raises an error if the array is read-only
    np.testing.assert_array_equal(roads.lines.points[:2], LINES[0])
    with pytest.raises(ValueError, match="read-only"):
        roads.lengths[0] = 1


def test_roads_take_the_short_way_over_the_antimeridian():
    roads = RoadNetwork.from_lines([[(0, 0), (1, 0)], [(179.5, 0), (-179.5, 0)]])
    np.testing.assert_allclose(roads.lengths, DEGREE)
    np.testing.assert_allclose(roads.point([(1, 0.25), (1, 0.75)]), [(179.75, 0), (-179.75, 0)])
    found = roads.nearest([(-179.9, 1.0), (180.1, -1.0)], within=np.inf)
    np.testing.assert_allclose(found.positions, [(1, 0.6), (1, 0.6)], atol=1e-4)  # by chords
    np.testing.assert_allclose(found.distances, DEGREE, rtol=1e-3)
    assert repr(roads) == f"RoadNetwork(2 roads, 4 vertices, 2 connected components, length {2 * DEGREE:,.6g} m)"
    around = RoadNetwork.from_lines([[(-180, 10), (-90, 10), (0, 10), (90, 10), (180, 10)]])
    assert around.lines.diagonal > 1e7


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([(179, 0), (180, 0)], [(-180, 0), (-179, 0)]),
        ([(0, 80), (0, 90)], [(90, 90), (90, 80)]),
        ([(0, 0), (1, 0)], [(360, 0), (359, 0)]),
    ],
)
def test_equal_points_on_the_globe_are_one_vertex(first, second):
    assert RoadNetwork.from_lines([first, second]).components.max() == 0


def test_extreme_lengths_merge_vertices_or_raise():
    """The squares of the first road's coordinates are 0, so its ends are one vertex; those of the others overflow."""
    with np.errstate(all="raise"):
        tiny = flat([[(0, 0), (1e-200, 0)], [(1e-200, 0), (1, 0)]])
        np.testing.assert_array_equal(tiny.nearest([(0.25, 1)], within=2).positions, [(1, 0.25)])
        with pytest.raises(graphs.InvalidGraphError, match="Lengths"):
            flat([[(0, 0), (1e300, 0)]])
    assert (tiny.num_vertices, tiny.lengths.tolist(), tiny.ends.tolist()) == (2, [0.0, 1.0], [0, 1])


EDGES = [(0, 1, 1.0), (1, 2, 2.0), (0, 2, 5.0), (1, 0, 0.5), (2, 2, 3.0), (3, 4, 1.0)]


def test_distances_match_shortest_paths():
    """By hand: 0-1 is 0.5, 1-2 is 2, and 0-2 is 2.5; a loop of 3 at 2, and a part of its own."""
    roads = fields.network(EDGES)
    places = [(0, 0.5), (3, 0.2), (4, 0.25), (4, 0.9), (2, 0.9), (2, 0.1)]
    found = roads.distance(places, places)
    expected = [0.6, 3.25, 2.8, 3, 1, 2.85, 2.4, 2.6, 0.9, 1.05, 1.25, 3.75, 0.8, 3.3, 3.5]
    np.testing.assert_allclose(found[np.triu_indices(6, 1)], expected)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    assert np.isinf(roads.distance([(0, 0.5)], [(5, 0.5)])).all()


# --- nearest places ------------------------------------------------------------------------------


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


@pytest.mark.parametrize("spread", [0.05, 30.0])
def test_nearest_matches_all_segments(spread):
    rng = np.random.default_rng(0)
    counts = rng.integers(2, 20, 15)
    lines = [rng.uniform(0, 10, 2) + np.cumsum(spread * rng.normal(size=(n, 2)), axis=0) for n in counts]
    lines[1] = np.concatenate([lines[1][:1], lines[1]])  # a segment without length
    roads = flat(lines)
    points = rng.uniform(-10, 20, (40, 2))
    found = roads.nearest(points, within=np.inf)
    assert roads.point([]).shape == roads.nearest(np.zeros((0, 2))).positions.shape == (0, 2)
    for point, (road, fraction), distance in zip(points, found.positions, found.distances, strict=True):
        expected, best, along = all_segments(lines, point)
        assert (road, distance) == (best, pytest.approx(expected))
        assert fraction * roads.lengths[best] == pytest.approx(along, abs=1e-8 * roads.lengths[best])


def test_blocks_do_not_change_results():
    rng = np.random.default_rng(0)
    roads = flat(list(rng.uniform(size=(30, 2, 2))))
    points, some = rng.uniform(size=(20_000, 2)), [0, 77, 19_999]
    whole = roads.nearest(points, within=0.9).positions
    np.testing.assert_array_equal(roads.nearest(points[some], within=2).positions, whole[some])


def test_ties_go_to_the_first_road():
    lines = [[(0, 1), (0, 2)], [(0, 1), (3, 1)], [(0, 1), (-3, 1)], [(0, -1), (1, -1)]]
    found = flat(lines).nearest([(0, 0), (0, 1), (1, 0), (2, 2), (-1, 1)], within=2)
    np.testing.assert_allclose(found.positions, [(0, 0), (0, 0), (1, 1 / 3), (1, 2 / 3), (2, 1 / 3)])
    np.testing.assert_allclose(found.distances, [1, 0, 1, 1, 0], atol=1e-12)
    crossings = np.random.default_rng(0).uniform(8, 9, (5, 50, 2))  # on the globe, where distances are rounded
    lines = [
        np.stack(pair) for pair in zip(np.repeat(crossings[0], 4, axis=0), crossings[1:].reshape(-1, 2), strict=True)
    ]
    found = RoadNetwork.from_lines(lines).nearest(crossings[0]).positions
    np.testing.assert_array_equal(found[:, 0], 4 * np.arange(50))
