"""Road networks: what joins, where positions are, and how far apart."""

from dataclasses import replace

import fields
import numpy as np
import pytest

import graphs
from graphs import RoadNetwork, Roads

LINES = [[(0, 0), (1, 0)], [(1, 0), (1, 1), (2, 1)], [(0, 0), (0, 3), (1, 0)]]
DEGREE = 2 * np.pi * 6_371_008.8 / 360
"""Metres of a degree of the equator."""


def flat(lines, **options):
    return RoadNetwork.from_lines(lines, metric="euclidean", **options)


def test_lines_meet_at_their_ends():
    mine = [np.array(line, dtype=float) for line in LINES]
    roads = flat(mine)
    assert (roads.num_roads, roads.num_vertices) == (3, 3)
    assert (roads.starts.tolist(), roads.ends.tolist(), roads.degrees.tolist()) == ([0, 1, 0], [1, 2, 1], [2, 3, 1])
    np.testing.assert_array_equal(roads.coordinates, [(0, 0), (1, 0), (2, 1)])
    np.testing.assert_allclose(roads.lengths, [1, 2, 3 + np.sqrt(10)])
    assert repr(roads) == "RoadNetwork(3 roads, 3 vertices, length 9.16228)"
    mine[0][0, 0] = 5.0  # raises an error if the array is read-only
    np.testing.assert_array_equal(roads.lines.points[:2], LINES[0])
    for array in (roads.coordinates, roads.edges.source, roads.lengths, roads.lines.points):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_points_match_interpolation():
    places = [(0, 0), (0, 0.25), (1, 0), (1, 0.25), (1, 0.5), (1, 0.75), (1, 1), (2, 0.3), (2, 1.0)]
    expected = [(0, 0), (0.25, 0), (1, 0), (1, 0.5), (1, 1), (1.5, 1), (2, 1), (0, 0.3 * (3 + np.sqrt(10))), (1, 0)]
    np.testing.assert_allclose(flat(LINES).point(places), expected, atol=1e-15)
    assert flat(LINES).point([]).shape == (0, 2)


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


def test_loops_copies_and_roads_without_length():
    loop = [(0, 0), (-1, 1), (0, 1), (0, 0)]
    roads = flat([*LINES, loop, [(0, 0), (0.5, 0.5), (1, 0)], [(1, 0), (1, 0)]])
    assert roads.starts[3] == roads.ends[3] == 0
    assert roads.degrees.tolist() == [5, 4, 1]
    assert (roads.lengths[5], roads.point([(5, 0.4)]).tolist()) == (0, [[1, 0]])
    with pytest.warns(graphs.DuplicateRoadsWarning, match="2 edges of roads repeat another, the first on road 3"):
        assert flat([*LINES, LINES[1][::-1], LINES[0]]).degrees.tolist() == [3, 5, 2]


def test_extreme_lengths_merge_vertices_or_raise():
    """The squares of the first road's coordinates are 0, so its ends are one vertex; those of the others overflow."""
    with np.errstate(all="raise"):
        tiny = flat([[(0, 0), (1e-200, 0)], [(1e-200, 0), (1, 0)]])
        np.testing.assert_array_equal(tiny.nearest([(0.25, 1)], within=2).positions, [(1, 0.25)])
        with pytest.raises(graphs.InvalidGraphError, match="Lengths"):
            flat([[(0, 0), (1e300, 0)]])
    assert (tiny.num_vertices, tiny.lengths.tolist(), tiny.ends.tolist()) == (2, [0.0, 1.0], [0, 1])


def test_lengths_can_be_replaced():
    roads = replace(flat(LINES), lengths=np.array([3.0, 1.0, 2.0]))
    assert roads.total_length == 6
    np.testing.assert_allclose(roads.distance([(0, 0.5)], [(1, 0.5), (2, 0.25)]), [[2.0, 2.0]])


def test_roads_of_a_file_keep_metric_and_tolerance():
    none, lines = np.zeros(0), [np.array(line, dtype=float) for line in ([(0, 0), (1, 0)], [(1.1, 0), (2, 0)])]
    read = Roads(lines, none.astype(int), none, none, metric="euclidean", snap=0.2)
    assert RoadNetwork.from_roads(read).num_vertices == 3


EDGES = [(0, 1, 1.0), (1, 2, 2.0), (0, 2, 5.0), (1, 0, 0.5), (2, 2, 3.0), (3, 4, 1.0)]


def test_distances_match_shortest_paths():
    """Between vertices by hand: 0-1 is 0.5, 1-2 is 2, and 0-2 is 2.5; a loop of 3 at 2, and a part of its own."""
    roads, D = fields.network(EDGES), np.array([[0, 0.5, 2.5], [0.5, 0, 2], [2.5, 2, 0]])
    positions = [(road, fraction) for road in range(5) for fraction in (0.0, 0.2, 0.9, 1.0)]

    def distance(one, other):
        (a, b, length), (c, d, width) = EDGES[one[0]], EDGES[other[0]]
        ways = [
            x + D[u, v] + y
            for u, x in ((a, one[1] * length), (b, (1 - one[1]) * length))
            for v, y in ((c, other[1] * width), (d, (1 - other[1]) * width))
        ]
        return min([*ways, *([abs(one[1] - other[1]) * length] if one[0] == other[0] else [])])

    expected = [[distance(one, other) for other in positions] for one in positions]
    np.testing.assert_allclose(roads.distance(positions, positions), expected, atol=1e-12)
    assert np.isinf(roads.distance([(0, 0.5)], [(5, 0.5)])).all()
    assert roads.distance([], [(0, 0.5)]).shape == (0, 1)


ROADS = flat(LINES)
REFUSED = {
    "no lines": (lambda: flat([]), "(?i)road"),
    "one point": (lambda: flat([[(0, 0)]]), "Road 0"),
    "a missing place": (lambda: flat([LINES[0], [(0, 0), (np.nan, 1)]]), "Road 1"),
    "a point alone": (lambda: flat([LINES[0], [(5, 5), (5, 5)]]), "Road 1 .*meet"),
    "some heights": (lambda: flat([[(0, 0), (1, 0)], [(1, 0, 5), (1, 1, 5)]]), "first road 0"),
    "a metric": (lambda: RoadNetwork.from_lines(LINES, metric="miles"), "metric"),
    "a snap": (lambda: flat(LINES, snap=-1), "snap"),
    "two lengths": (lambda: replace(ROADS, lengths=[1.0, 2.0]), "lengths"),
    "a negative length": (lambda: replace(ROADS, lengths=[1.0, -1.0, 2.0]), "lengths"),
    "a length of nothing": (lambda: replace(ROADS, lengths=[1.0, 0.0, 1.0]), "Road 1"),
    "lines as roads": (lambda: RoadNetwork.from_roads(LINES), "Roads"),
    "a road too many": (lambda: ROADS.point([(3, 0.5)]), "Position 0"),
    "half a road": (lambda: ROADS.point([(0, 0.5), (0.5, 0.5)]), "Position 1"),
    "coordinates": (lambda: ROADS.point([(13.4, 52.5)]), "nearest"),
    "a fraction": (lambda: ROADS.point([(0, 1.1)]), "Position 0"),
    "no pairs": (lambda: ROADS.point([0.5]), "pairs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused(name):
    call, word = REFUSED[name]
    with pytest.raises((graphs.InvalidGraphError, graphs.InvalidArgumentError), match=word):
        call()
