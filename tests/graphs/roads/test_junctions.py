"""Where lines meet: at shared points, within a tolerance, and when they repeat each other.

The comparisons share no code with the package: a graph whose nodes are all points and whose edges are all segments
(networkx), and networks of lines that are already divided where they meet.
"""

import itertools
from dataclasses import replace

import fields
import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph, RoadNetwork

CROSS = [[(1, 0), (1, 1), (1, 2)], [(0, 1), (1, 1), (2, 1)]]


def flat(lines, **options):
    return RoadNetwork.from_lines(lines, metric="euclidean", **options)


def degrees(lines, **options):
    return sorted(flat(lines, **options).degrees.tolist())


def streets(rng, size=6, count=12, most=9):
    """Return ways along the lines of a square grid, with diagonal shortcuts that cross without a shared point."""
    ways = []
    for _ in range(count):
        way = [tuple(rng.integers(0, size, 2).tolist())]
        while len(way) < rng.integers(3, most):
            step = rng.permutation([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1)])[0]
            to = (way[-1][0] + int(step[0]), way[-1][1] + int(step[1]))
            if min(to) >= 0 and max(to) < size:
                way.append(to)
        ways.append(way)
    return ways


def points_of(ways):
    """Return the positions of all points of ways, and the points."""
    positions = []
    for road, way in enumerate(ways):
        reached = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(way, axis=0), axis=1))])
        positions += [(road, reach / reached[-1]) for reach in reached]
    return positions, list(itertools.chain(*ways))


@pytest.mark.parametrize("seed", range(5))
def test_distances_match_the_graph_of_all_segments(seed):
    rng = np.random.default_rng(seed)
    ways = streets(rng)
    roads, (positions, points), graph = flat(ways, duplicates="merge"), points_of(ways), nx.Graph()
    for a, b in itertools.chain.from_iterable(map(itertools.pairwise, ways)):
        graph.add_edge(a, b, weight=np.hypot(a[0] - b[0], a[1] - b[1]))
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph))
    expected = [[lengths[a].get(b, np.inf) for b in points] for a in points]
    np.testing.assert_allclose(roads.distance(positions, positions), expected, atol=1e-9)
    np.testing.assert_allclose(roads.point(positions), points, atol=1e-12)
    loose = flat(moved(rng, ways, 0.02), snap=0.03, duplicates="merge")
    np.testing.assert_allclose(loose.distance(positions, positions), expected, atol=0.08 * len(ways))


@pytest.mark.parametrize(("seed", "alpha"), [(0, 1), (1, 2)])
def test_fields_and_graphs_match_divided_lines(seed, alpha):
    """Every segment is a road of the other network, each once; with a sensor at every point, nodes are the points."""
    ways = streets(np.random.default_rng(seed), size=4, count=8, most=7)
    segments = sorted({tuple(sorted(pair)) for way in ways for pair in itertools.pairwise(way)})
    (positions, points), ends = points_of(ways), {}
    for road, (a, b) in enumerate(segments):
        ends.setdefault(a, (road, 0.0))
        ends.setdefault(b, (road, 1.0))
    found = fields.law(flat(ways, duplicates="merge"), positions, alpha, 1.3)
    expected = fields.law(flat(segments), [ends[point] for point in points], alpha, 1.3)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    first = dict(zip(reversed(points), reversed(positions), strict=True))
    graph = Graph.from_roads(ways, *np.array(list(first.values())).T, metric="euclidean", duplicates="merge")
    other = Graph.from_roads(segments, metric="euclidean")
    places = {tuple(place): i for i, place in enumerate(other.coordinates.tolist())}
    order = [places[tuple(place)] for place in np.round(graph.coordinates).tolist()]
    np.testing.assert_allclose(graph.adjacency.toarray(), other.adjacency.toarray()[np.ix_(order, order)], rtol=1e-9)


# --- within a tolerance --------------------------------------------------------------------------


def moved(rng, ways, spread):
    """Return ways whose points are off by at most a distance, each on its own."""
    return [np.array(way, dtype=float) + spread / 2 * rng.uniform(-1, 1, (len(way), 2)) for way in ways]


BEND, SIDE = [(0, 0), (1, 0), (2, 1)], [(1, 0.04), (1, 2)]
TIE, NEAR = [(0, 0), (0.75, 0), (1.25, 0), (4, 0)], [(1, 0.125), (1, 3)]
THREE = [
    [(-5, 0), (0, 0), (0.9, 0), (6, 0)],
    [(-0.3, 5), (-0.3, 0.9), (-0.3, -5)],
    [(1.2, 5), (1.2, 0.9), (1.2, -5)],
]
COPIES = [[(0, 0), (1, 0), (2, 0)], [(0, 0.01), (1, 0.01), (2, 0.01)], [(2, 0.02), (1, 0.02), (0, 0.02)]]
LOOP = [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (1, 0.04)]


@pytest.mark.parametrize(
    ("lines", "snap", "expected"),
    [
        ([BEND, SIDE], 0.05, [1, 1, 1, 3]),
        ([SIDE[::-1], BEND[::-1]], 0.05, [1, 1, 1, 3]),
        ([BEND, SIDE], 0.0, [1, 1, 1, 1]),
        ([TIE, TIE[::-1], NEAR], 0.3, [1, 1, 1, 3]),  # two points are equally near
        ([LOOP], 0.05, [1, 3]),  # a line that returns to itself
        (THREE, 1.0, [1] * 6 + [4, 4]),  # close points of one line join no crossings
        (COPIES, 0.05, [1, 1, 2]),
        ([[(0, 0), (1, 0), (2, 0)], [(1.02, 1), (1.02, 0.01), (1.02, -1)]], 0.05, [1, 1, 1, 1, 4]),
        ([[(0, 0), (1, 0)], [(1, 0), (1.05, 0)], [(1.05, 0), (2, 0)], [(2, 0), (2.5, 1), (2.04, 0)]], 0.06, [1, 2, 3]),
    ],
)
def test_degrees_of_vertices_within_a_tolerance(lines, snap, expected):
    assert degrees(lines, snap=snap, duplicates="merge") == expected


def test_a_dense_line_meets_a_crossing_once():
    """Its points are nearer to each other than the tolerance, which joins none of them."""
    x = np.linspace(0, 1, 201)
    dense = np.stack([x, 0.1 * np.sin(9 * x)], axis=1)
    roads = flat([dense, [tuple(dense[100] + [0, 0.004]), (0.5, 2.0)]], snap=0.02)
    assert sorted(roads.degrees.tolist()) == [1, 1, 1, 3]
    assert roads.edges.start[1] == pytest.approx(0.5, abs=0.02)
    with pytest.raises(graphs.InvalidGraphError, match=r"road 0.* of length 10"):
        flat([[(0, 0), (10, 0)]], snap=30.0)


# --- roads that are drawn twice, and odd lines ---------------------------------------------------


def test_copies_are_merged_or_counted():
    street = [(0, 0), (1, 0), (1, 1), (2, 1)]
    lines = [street, street[::-1], [(1, 1), (1, 3)]]
    merged, single = flat(lines, duplicates="merge"), flat([lines[0], lines[2]])
    assert merged.degrees.tolist() == single.degrees.tolist()
    np.testing.assert_allclose(merged.distance([(1, 0.25)], [(0, 0.5), (1, 0.5)]), [[0.75, 0.75]])
    other = replace(merged, lengths=[6.0, 9.0, 2.0])
    np.testing.assert_allclose(other.distance([(0, 0.0)], [(1, 0.25)]), [[4.5]])
    ways = [[(0, 0), (1, 0), (2, 0), (3, 0)], [(1, 1), (1, 0), (2, 0), (2, 1)]]
    assert degrees(ways, duplicates="merge") == [1, 1, 1, 1, 3, 3]
    with pytest.warns(graphs.DuplicateRoadsWarning, match="1 edge repeats another, on road 1"):
        assert degrees(ways) == [1, 1, 1, 1, 4, 4]


def test_sensors_on_merged_roads_share_positions():
    street, none = [(0, 0), (1, 0), (2, 0)], np.zeros(2)
    with pytest.raises(graphs.InvalidGraphError, match="distinct positions"):
        Graph.from_roads([street, street[::-1]], [0, 1], [0.3, 0.7], metric="euclidean", duplicates="merge")
    at_crossing = graphs.Roads(CROSS, np.array([0, 1, 1]), np.array([0.5, 0.5, 0.25]), none, metric="euclidean")
    assert at_crossing.sensor_positions()[2].tolist() == [0, 0, 1]
    long = np.stack([np.arange(20_001.0), np.zeros(20_001)], axis=1)  # one of its edges is a road of its own
    roads = graphs.Roads([long[7000:7002], long], np.array([1, 0]), none, none, metric="euclidean", duplicates="merge")
    for rounding in (0.0, 1e-16, -1e-16, 2.0**-41):
        near = roads._replace(sensor_fractions=np.array([7000 / 20_000 + rounding, 0.0]))
        assert near.sensor_positions()[2].tolist() == [0, 0]


def test_repeated_points_closed_lines_and_points():
    once, twice = flat(CROSS), flat([[p for p in line for _ in range(2)] for line in CROSS])
    np.testing.assert_array_equal(twice.edges.start, once.edges.start)
    point = [[(1, 1), (1, 1)], CROSS[1]]
    assert flat(point).distance([(0, 0.3)], [(1, 0.5)]).tolist() == [[0.0]]
    assert Graph.from_roads(point, metric="euclidean").num_edges == 2
    square = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
    assert degrees([square, [(1, 0), (3, 0)], [(0, 1), (0, 3)]]) == [1, 1, 2, 3, 3]


def test_warnings_point_to_the_caller():
    streets = [np.array([(0.0, 0.0), (0.0, 1.0)])] * 2
    read = graphs.Roads(streets, np.zeros(0, dtype=int), np.zeros(0), np.zeros(0))
    for build, given in (
        (RoadNetwork.from_lines, streets),
        (RoadNetwork.from_roads, read),
        (Graph.from_roads, streets),
    ):
        with pytest.warns(graphs.DuplicateRoadsWarning, match="1 edge repeats") as caught:
            build(given)
        assert [entry.filename for entry in caught] == [__file__]
