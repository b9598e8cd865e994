"""Where lines meet: at shared points, within a tolerance, and when they repeat each other.

The twins share no code with the package: a graph whose nodes are all points and whose edges are all segments
(networkx), and networks of lines that are already divided where they meet.
"""

import itertools
from dataclasses import replace

import fields
import networkx as nx
import numpy as np
import pytest

import graphs
import rfgp
from graphs import Graph, RoadNetwork

CROSS = [[(1, 0), (1, 1), (1, 2)], [(0, 1), (1, 1), (2, 1)]]


def flat(lines, **options):
    return RoadNetwork.from_lines(lines, metric="euclidean", **options)


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


def points_of(roads, ways):
    """Return the positions of all points of ways, and the points."""
    positions = []
    for road, way in enumerate(ways):
        reached = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(way, axis=0), axis=1))])
        positions += [(road, reach / reached[-1]) for reach in reached]
    return positions, list(itertools.chain(*ways))


def test_ways_meet_at_interior_points():
    roads = flat(CROSS)
    assert repr(roads) == "RoadNetwork(2 roads, 5 vertices, length 4)"
    assert roads.degrees.tolist() == [1, 4, 1, 1, 1]
    np.testing.assert_allclose(roads.distance([(0, 0.0)], [(1, 0.0), (1, 1.0), (0, 1.0)]), [[2, 2, 2]])
    np.testing.assert_array_equal(roads.point([(0, 0.25), (1, 0.75)]), [(1, 0.5), (1.5, 1)])


def test_bridges_stay_apart():
    roads = flat([[(1, 0), (1, 2)], [(0, 1), (1, 1), (2, 1)]])
    assert np.isinf(roads.distance([(0, 0.5)], [(1, 0.5)])).all()
    assert repr(roads) == "RoadNetwork(2 roads, 4 vertices, 2 connected components, length 4)"


@pytest.mark.parametrize("seed", range(20))
def test_distances_match_the_graph_of_all_segments(seed):
    ways = streets(np.random.default_rng(seed))
    roads = flat(ways, duplicates="merge")
    positions, points = points_of(roads, ways)
    graph = nx.Graph()
    for way in ways:
        for a, b in itertools.pairwise(way):
            graph.add_edge(a, b, weight=np.hypot(a[0] - b[0], a[1] - b[1]))
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph))
    expected = [[lengths[a].get(b, np.inf) for b in points] for a in points]
    np.testing.assert_allclose(roads.distance(positions, positions), expected, atol=1e-9)
    np.testing.assert_allclose(roads.point(positions), points, atol=1e-12)


@pytest.mark.parametrize("alpha", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_field_matches_divided_lines(seed, alpha):
    """Every segment is a road of the twin, each once."""
    ways = streets(np.random.default_rng(seed), size=4, count=8, most=7)
    roads = flat(ways, duplicates="merge")
    segments = sorted({tuple(sorted(pair)) for way in ways for pair in itertools.pairwise(way)})
    twin = flat(segments)
    positions, points = points_of(roads, ways)
    first = {}
    for road, (a, b) in enumerate(segments):
        first.setdefault(a, (road, 0.0))
        first.setdefault(b, (road, 1.0))
    covariances = []
    for network, places in ((roads, positions), (twin, [first[point] for point in points])):
        field, index = graphs.RoadField(network, alpha).refine(places)
        covariances.append(fields.covariance(field, 1.3)[np.ix_(index, index)])
    np.testing.assert_allclose(*covariances, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_graph_matches_divided_lines(seed):
    """With a sensor at every point, nodes are the points of either."""
    ways = streets(np.random.default_rng(seed), size=4, count=8, most=7)
    positions, points = points_of(flat(ways, duplicates="merge"), ways)
    first = dict(zip(reversed(points), reversed(positions), strict=True))
    road, fraction = np.array(list(first.values())).T
    found = Graph.from_roads(ways, road, fraction, metric="euclidean", duplicates="merge")
    segments = sorted({tuple(sorted(pair)) for way in ways for pair in itertools.pairwise(way)})
    twin = Graph.from_roads(segments, metric="euclidean")
    assert found.num_nodes == twin.num_nodes == len(first)
    places = {tuple(place): i for i, place in enumerate(twin.coordinates.tolist())}
    order = [places[tuple(place)] for place in np.round(found.coordinates).tolist()]
    np.testing.assert_allclose(found.adjacency.toarray(), twin.adjacency.toarray()[np.ix_(order, order)], rtol=1e-9)


def test_predictions_use_the_other_way():
    positions = [(0, f) for f in np.linspace(0, 1, 11)]
    gp = rfgp.RoadGP(flat(CROSS), lengthscale=2.0, outputscale=1.0, noise=1e-4, seed=0)
    gp.condition(positions, np.linspace(1, 3, 11))
    found = gp.predict([(1, 0.5), (1, 0.4), (1, 1.0)])
    assert found.variance[0] < 1e-4 < found.variance[1] < found.variance[2]
    assert found.mean[0] == pytest.approx(2, abs=0.01)
    np.testing.assert_allclose(gp.predict([(1, 0.2)]).variance, gp.predict([(1, 0.8)]).variance)


def test_models_warn_of_components_without_observations():
    lines = [*CROSS, [(9, 9), (10, 9)]]
    gp = rfgp.RoadGP(flat(lines), lengthscale=2.0, outputscale=1.0, noise=0.1, seed=0)
    message = (
        r"The roads have 2 connected components, 1 of them without an observation, which hold 22\.2% of all values"
    )
    with pytest.warns(graphs.DisconnectedWarning, match=message):
        gp.condition([(0, 0.25), (1, 0.1)], [1.0, 2.0])
    assert gp.predict([(2, 0.5)]).mean[0] == pytest.approx(gp.hyperparameters.mean.item())
    gp.condition([(0, 0.25), (2, 0.1)], [1.0, 2.0])
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components, 1 of them"):
        gp.fit([(0, f) for f in np.linspace(0, 1, 9)], np.sin(np.arange(9)))
    graph = Graph.from_roads(lines, metric="euclidean")
    nodes = rfgp.GraphGP(graph, features="exact", seed=0)
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components, 1 of them without an obs"):
        nodes.condition(["crossing-0", "crossing-1"], [1.0, 2.0])


# --- within a tolerance --------------------------------------------------------------------------


def moved(rng, ways, spread):
    """Return ways whose points are off by at most a distance, each on its own."""
    return [np.array(way, dtype=float) + spread / 2 * rng.uniform(-1, 1, (len(way), 2)) for way in ways]


@pytest.mark.filterwarnings("ignore::graphs.DuplicateRoadsWarning")
@pytest.mark.parametrize("seed", range(10))
def test_snapped_ways_meet_where_exact_ones_do(seed):
    rng = np.random.default_rng(seed)
    ways = streets(rng)
    exact = flat(ways, duplicates="merge")
    loose = flat(moved(rng, ways, 0.02), snap=0.03)
    positions, _ = points_of(exact, ways)
    there, here = (roads.distance(positions, positions) for roads in (exact, loose))
    np.testing.assert_array_equal(np.isinf(there), np.isinf(here))
    near = np.isfinite(there)
    np.testing.assert_allclose(here[near], there[near], atol=0.04 * 2 * len(ways))
    assert not np.isfinite(flat(moved(rng, ways, 0.02)).distance(positions[:1], positions[-1:])).any()


@pytest.mark.filterwarnings("ignore::graphs.DuplicateRoadsWarning")
@pytest.mark.parametrize("seed", range(8))
def test_snapping_is_invariant_to_order_and_direction(seed):
    rng = np.random.default_rng(seed)
    ways = moved(rng, streets(rng), (0.02, 0.3)[seed % 2])  # the last is coarse: chains, and several points of one line
    snap = (0.03, 0.2)[seed % 2]
    order, turned = rng.permutation(len(ways)), rng.random(len(ways)) < 0.5
    other = flat([ways[i][::-1] if turned[i] else ways[i] for i in order], snap=snap)
    positions = np.stack([rng.integers(0, len(ways), 30), rng.uniform(size=30)], axis=1)
    there = np.stack([np.argsort(order)[positions[:, 0].astype(int)], positions[:, 1]], axis=1)
    back = turned[positions[:, 0].astype(int)]
    there[back, 1] = 1 - there[back, 1]
    expected = flat(ways, snap=snap).distance(positions, positions)
    np.testing.assert_allclose(other.distance(there, there), expected, atol=1e-9)


def test_ties_are_invariant_to_order_and_direction():
    """Two points of one line are equally near, and places are passed by several lines."""
    line, side = [(0, 0), (0.75, 0), (1.25, 0), (4, 0)], [(1, 0.125), (1, 3)]
    there = flat([line, side], snap=0.3).distance([(0, 0.0)], [(1, 1.0)])
    back = flat([line[::-1], side], snap=0.3).distance([(0, 1.0)], [(1, 1.0)])
    np.testing.assert_allclose(there, back)
    for lines in ([line, line[::-1], side], [side, line, line[::-1]]):
        assert sorted(flat(lines, snap=0.3, duplicates="merge").degrees.tolist()) == [1, 1, 1, 3]
    A = [(-5, 0), (0, 0), (1.2, 0.25), (6, 0)]
    B = [(-5, 0), (0, 0), (1.2, 0.25), (0, 0.5), (-3, 4)]
    with pytest.warns(graphs.DuplicateRoadsWarning):
        assert flat([A, B], snap=1.0).num_vertices == flat([B, A], snap=1.0).num_vertices


def test_near_copies_are_merged():
    copies = [[(0, 0), (1, 0), (2, 0)], [(0, 0.01), (1, 0.01), (2, 0.01)], [(2, 0.02), (1, 0.02), (0, 0.02)]]
    merged = flat(copies, snap=0.05, duplicates="merge")
    assert (merged.total_length, sorted(merged.degrees.tolist())) == (2, [1, 1, 2])


def test_a_side_street_is_snapped_to_a_bend():
    bend = [(0, 0), (1, 0), (2, 1)]
    side = [(1, 0.04), (1, 2)]
    for lines in ([bend, side], [side, bend], [bend[::-1], side], [bend, side[::-1]]):
        assert flat(lines, snap=0.05).degrees.tolist().count(3) == 1
        assert flat(lines).components.max() == 1


def test_a_dense_line_meets_a_crossing_once():
    """Its points are nearer to each other than the tolerance, which joins none of them."""
    x = np.linspace(0, 1, 201)
    dense = np.stack([x, 0.1 * np.sin(9 * x)], axis=1)
    side = [tuple(dense[100] + [0, 0.004]), (0.5, 2.0)]
    roads = flat([dense, side], snap=0.02)
    assert (roads.num_vertices, sorted(roads.degrees.tolist())) == (4, [1, 1, 1, 3])
    assert roads.edges.start[1] == pytest.approx(0.5, abs=0.02)
    assert flat([dense], snap=0.02).num_vertices == 2


def test_a_line_that_returns_to_itself_is_closed():
    p_shaped = [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (1, 0.04)]
    roads = flat([p_shaped], snap=0.05)
    assert sorted(roads.degrees.tolist()) == [1, 3]


def test_ways_that_nearly_cross_at_points_meet():
    ways = [[(0, 0), (1, 0), (2, 0)], [(1.02, 1), (1.02, 0.01), (1.02, -1)]]
    assert sorted(flat(ways, snap=0.05).degrees.tolist()) == [1, 1, 1, 1, 4]
    assert flat(ways, snap=0.01).components.max() == 1


def test_neighboring_points_of_one_line_join_no_crossings():
    """Two ways pass a third one at points of it that are within the tolerance of each other."""
    ways = [
        [(-5, 0), (0, 0), (0.9, 0), (6, 0)],
        [(-0.3, 5), (-0.3, 0.9), (-0.3, -5)],
        [(1.2, 5), (1.2, 0.9), (1.2, -5)],
    ]
    assert sorted(flat(ways, snap=1.0).degrees.tolist()) == [1, 1, 1, 1, 1, 1, 4, 4]


def test_snap_that_closes_a_lone_road_is_refused():
    with pytest.raises(graphs.InvalidGraphError, match=r"road 0.* of length 10") as caught:
        flat([[(0, 0), (10, 0)]], snap=30.0)
    assert "snap=." not in str(caught.value)


# --- roads that are drawn twice ------------------------------------------------------------------


def test_a_line_that_turns_back_is_drawn_twice():
    a, b, c, d = (0, 0), (1, 0), (1, 1), (2, 0)
    spur, twin = flat([[a, b, c, b, d]], duplicates="merge"), flat([[a, b, d], [b, c]])
    assert sorted(spur.degrees.tolist()) == sorted(twin.degrees.tolist()) == [1, 1, 1, 3]
    assert spur.distance([(0, 1.5 / 4)], [(0, 2.5 / 4)])[0, 0] == pytest.approx(0, abs=1e-12)
    with pytest.warns(graphs.DuplicateRoadsWarning, match="1 edge repeats"):
        graph = Graph.from_roads([[a, b, c, b, d]], metric="euclidean")
    assert (graph.num_nodes, graph.num_edges) == (4, 3)


def test_positions_at_vertices_of_merged_edges():
    """One edge of a long line is a road of its own; a rounded fraction of the long line is its vertex."""
    long = np.stack([np.arange(20_001.0), np.zeros(20_001)], axis=1)
    roads = graphs.Roads([long[7000:7002], long], np.array([1, 0]), np.zeros(2), np.zeros(2), metric="euclidean")
    for rounding in (0.0, 1e-16, -1e-16, 2.0**-41):
        exact = roads._replace(sensor_fractions=np.array([7000 / 20_000 + rounding, 0.0]), duplicates="merge")
        assert exact.sensor_positions()[2].tolist() == [0, 0]


def test_sensors_on_merged_roads_share_positions():
    street = [(0, 0), (1, 0), (2, 0)]
    read = graphs.Roads(
        [np.array(street, float), np.array(street[::-1], float)], np.array([0, 1]), np.array([0.3, 0.7]), np.zeros(2)
    )
    read = read._replace(metric="euclidean", duplicates="merge")
    assert read.sensor_positions()[2].tolist() == [0, 0]
    with pytest.raises(graphs.InvalidGraphError, match="distinct positions"):
        Graph.from_roads([street, street[::-1]], [0, 1], [0.3, 0.7], metric="euclidean", duplicates="merge")
    with pytest.raises(graphs.InvalidGraphError, match="distinct positions"):
        Graph.from_roads([street], [0, 0], [0.3, 0.1 + 0.2], metric="euclidean")


def test_merged_copies_are_one_road():
    street = [(0, 0), (1, 0), (1, 1), (2, 1)]
    lines = [street, street[::-1], [(1, 1), (1, 3)]]
    merged, single = flat(lines, duplicates="merge"), flat([lines[0], lines[2]])
    with pytest.warns(graphs.DuplicateRoadsWarning, match="2 edges of roads repeat"):
        parallel = flat(lines)
    assert merged.degrees.tolist() == single.degrees.tolist()
    assert parallel.degrees.tolist() != single.degrees.tolist()
    np.testing.assert_allclose(merged.distance([(1, 0.25)], [(0, 0.5), (1, 0.5)]), [[0.75, 0.75]])
    models = [rfgp.RoadGP(roads, lengthscale=1.0, outputscale=1.0, noise=0.1, seed=0) for roads in (merged, single)]
    models[0].condition([(0, 0.2), (1, 0.3), (2, 0.5)], [1.0, 2.0, 3.0])
    models[1].condition([(0, 0.2), (0, 0.7), (1, 0.5)], [1.0, 2.0, 3.0])
    found = models[0].predict([(0, 0.4), (1, 0.6), (1, 0.1), (2, 0.9)])
    expected = models[1].predict([(0, 0.4), (0, 0.4), (0, 0.9), (1, 0.9)])
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-10)


def test_merging_survives_other_lengths():
    street = [(0, 0), (1, 0), (2, 0)]
    roads = replace(flat([street, street[::-1]], duplicates="merge"), lengths=[4.0, 9.0])
    np.testing.assert_allclose(roads.distance([(0, 0.0)], [(1, 0.25)]), [[3.0]])


def test_an_overlap_of_two_ways_is_one_edge():
    ways = [[(0, 0), (1, 0), (2, 0), (3, 0)], [(1, 1), (1, 0), (2, 0), (2, 1)]]
    assert sorted(flat(ways, duplicates="merge").degrees.tolist()) == [1, 1, 1, 1, 3, 3]
    with pytest.warns(graphs.DuplicateRoadsWarning, match="1 edge repeats another, on road 1"):
        assert sorted(flat(ways).degrees.tolist()) == [1, 1, 1, 1, 4, 4]
    with pytest.raises(graphs.InvalidArgumentError, match="duplicates"):
        flat(ways, duplicates="sum")


# --- odd lines -----------------------------------------------------------------------------------


def test_repeated_points_change_nothing():
    once, twice = flat(CROSS), flat([[p for p in line for _ in range(2)] for line in CROSS])
    assert twice.degrees.tolist() == once.degrees.tolist()
    np.testing.assert_array_equal(twice.lengths, once.lengths)
    np.testing.assert_array_equal(twice.edges.start, once.edges.start)


def test_line_of_equal_points_is_a_vertex():
    roads = flat([[(1, 1), (1, 1)], CROSS[1]])
    assert roads.distance([(0, 0.3)], [(1, 0.5)]).tolist() == [[0.0]]
    graph = Graph.from_roads([[(1, 1), (1, 1)], CROSS[1]], metric="euclidean")
    assert (graph.num_nodes, graph.num_edges) == (3, 2)
    for build in (flat, lambda lines: Graph.from_roads(lines, metric="euclidean")):
        with pytest.raises(graphs.InvalidGraphError, match=r"Road 0 .*meet"):
            build([[(5, 5), (5, 5)], CROSS[1]])


def test_roundabout_meets_joining_roads():
    ring = [(np.cos(t), np.sin(t)) for t in np.linspace(0, 2 * np.pi, 9)[:-1]]
    roads = flat([[*ring, ring[0]], [ring[2], (0, 3)], [ring[5], (-2, -2)]])
    assert sorted(roads.degrees.tolist()) == [1, 1, 2, 3, 3]


def test_closed_roads_are_pieces_and_no_edges():
    street, ring = [(0, 0), (1, 0)], [(1, 0), (2, 1), (2, -1), (1, 0)]
    found = graphs.split_roads([street, ring], metric="euclidean")
    assert sum(segment.length for segment in found.segments) == pytest.approx(flat([street, ring]).total_length)
    assert Graph.from_roads([street, ring], metric="euclidean").num_edges == 1


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


def test_road_around_the_globe_has_a_diagonal():
    roads = RoadNetwork.from_lines([[(-180, 10), (-90, 10), (0, 10), (90, 10), (180, 10)]])
    assert roads.lines.diagonal > 1e7


def test_lengths_out_of_range_are_refused():
    with pytest.raises(graphs.InvalidGraphError, match="range of double precision"):
        Graph.from_roads([[(0, 0), (1e-160, 0)], [(1e-160, 0), (1e150, 0)]], metric="euclidean")


def test_warnings_point_to_the_caller():
    street = [(0.0, 0.0), (0.0, 1.0)]
    read = graphs.Roads([np.array(street)] * 2, np.zeros(0, dtype=int), np.zeros(0), np.zeros(0))
    calls = [(RoadNetwork.from_lines, [street] * 2), (RoadNetwork.from_roads, read), (Graph.from_roads, [street] * 2)]
    for build, given in calls:
        with pytest.warns(graphs.DuplicateRoadsWarning) as caught:
            exec(compile("build(given)", "caller.py", "exec"), {"build": build, "given": given})
        assert [entry.filename for entry in caught] == ["caller.py"]


def test_sensor_at_a_crossing_replaces_its_node():
    graph = Graph.from_roads(CROSS, [0, 1], [0.5, 0.25], metric="euclidean")
    assert graph.labels == ("crossing-0", "crossing-2", "crossing-3", "crossing-4", "sensor-0", "sensor-1")
    assert np.diff(graph.adjacency.indptr)[4] == 4
    with pytest.raises(graphs.InvalidGraphError, match="distinct positions"):
        Graph.from_roads(CROSS, [0, 1], [0.5, 0.5], metric="euclidean")
    none = np.zeros(0)
    read = graphs.Roads(CROSS, np.array([0, 1, 1]), np.array([0.5, 0.5, 0.25]), none, metric="euclidean")
    assert [part.tolist() for part in read.sensor_positions()] == [[0, 1], [0.5, 0.25], [0, 0, 1]]


def test_components_without_sensor_warn():
    lines = [*CROSS, [(9, 9), (10, 9)]]
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components, 1 of them without a sensor"):
        Graph.from_roads(lines, [0], [0.2], metric="euclidean")
