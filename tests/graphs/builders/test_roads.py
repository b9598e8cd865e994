"""Graphs of roads with sensors: weights, segments, and ends that nearly meet."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

import graphs
from graphs import Graph

LINES = [[(0, 0), (1, 0)], [(1, 0), (1, 1), (2, 1)], [(0, 0), (0, 3), (1, 0)]]


def flat(lines, *sensors, **options):
    return Graph.from_roads(lines, *sensors, metric="euclidean", **options)


def test_lines_join_at_ends_with_inverse_length_weights():
    g, long_way = flat(LINES), 3 + np.sqrt(10)
    assert g.labels == ("crossing-0", "crossing-1", "crossing-2")
    mean = (1 + 2 + long_way) / 3
    W = g.adjacency.toarray()
    np.testing.assert_allclose([W[0, 1], W[1, 2], W[0, 2]], [mean / 1 + mean / long_way, mean / 2, 0])  # two roads


def test_sensors_divide_roads_in_order():
    sensors = np.array([1.0, 1.0, 2.0]), [0.75, 0.25, 0.5]
    g = flat(LINES, *sensors)
    assert g.labels[3:] == ("sensor-0", "sensor-1", "sensor-2")
    W, found = g.adjacency.toarray(), graphs.split_roads(LINES, *sensors, metric="euclidean")
    mean = (6 + np.sqrt(10)) / len(found.segments)
    np.testing.assert_allclose([W[1, 4], W[4, 3], W[3, 2], W[1, 2]], [mean / 0.5, mean, mean / 0.5, 0])
    for segment in found.segments:
        ends = found.coordinates[[segment.source, segment.target]]
        np.testing.assert_allclose(segment.shape[[0, -1]], ends, atol=1e-12)
        assert np.linalg.norm(np.diff(segment.shape, axis=0), axis=1).sum() == pytest.approx(segment.length)


def test_sensor_at_a_crossing_replaces_its_node():
    cross = [[(1, 0), (1, 1), (1, 2)], [(0, 1), (1, 1), (2, 1)]]
    graph = flat(cross, [0, 1], [0.5, 0.25])
    assert graph.labels == ("crossing-0", "crossing-2", "crossing-3", "crossing-4", "sensor-0", "sensor-1")
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components, 1 of them without a sensor"):
        flat([*cross, [(9, 9), (10, 9)]], [0], [0.2])


def test_short_edges_have_bounded_weights():
    lines = [[(0, 0), (1, 0)], [(1, 0), (1, 0.01)], [(1, 0.01), (3, 0.01)]]
    W, mean = flat(lines, min_length=0.5).adjacency.toarray(), 3.01 / 3
    np.testing.assert_allclose([W[0, 1], W[1, 2]], [mean, 2])
    assert flat(lines).adjacency.toarray()[1, 2] == pytest.approx(mean / 0.01)


# --- ends that nearly meet -----------------------------------------------------------------------


def count_parts(graph):
    return connected_components(graph.adjacency, directed=False)[0]


def test_snap_is_a_length_on_globe_and_plane():
    """A thousandth of a degree east and north at 60 degrees, 55.6 and 111.2 m, and across the date line."""
    for step, meters in (((1e-3, 0.0), 55.597), ((0.0, 1e-3), 111.195), ((1e-3 - 360.0, 0.0), 55.597)):
        roads = [[(10.0, 59.9), (180.0 if step[0] < -1 else 10.0, 60.0)]]
        roads.append([np.add(roads[0][1], step), (20.0, 60.1)])
        assert [count_parts(Graph.from_roads(roads, snap=f * meters)) for f in (0.999, 1.001)] == [2, 1]
    plane = [[(0, 0), (1, 0)], [(1.25, 0), (2, 0)]]
    assert [count_parts(flat(plane, snap=s)) for s in (0.2, 0.3)] == [2, 1]


def test_chains_of_ends_are_one_crossing_in_any_order():
    """Four ends in a row, each within the tolerance of the next only."""
    spokes = [[(0.9 * k, 0), (0.9 * k, 10 + k)] for k in range(4)]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3, 1]):
        g = flat([spokes[k] for k in order], snap=1.0)
        assert (g.num_nodes, g.num_edges, g.coordinates[0].tolist()) == (5, 4, [0.9 * order[0], 0])


def test_road_closed_by_snap_is_dropped_without_a_sensor():
    roads = [[(0, 0), (5, 0)], [(5, 0), (5.4, 0)], [(5.4, 0), (9, 0)]]
    short, sensor = flat(roads, snap=0.5), flat(roads, [1], [0.25], snap=0.5)
    assert (short.num_nodes, short.num_edges) == (3, 2)
    assert (sensor.labels, sensor.num_edges) == (("crossing-0", "crossing-2", "sensor-0"), 2)
    loop = [LINES[0], [(0, 0), (0, 1), (-1, 1), (0, 0)]]
    assert (flat(loop).num_edges, flat(loop, [1], [0.5]).num_edges) == (1, 2)


def test_wide_chain_of_snapped_points_warns_with_its_width():
    spokes = [[(0.9 * k, 0), (0.9 * k, 10 + 2 * k)] for k in range(6)]
    with pytest.warns(graphs.WideCrossingWarning, match=r"up to 4.5 tolerances"):
        network = graphs.RoadNetwork.from_lines(spokes, metric="euclidean", snap=1.0)
    assert network.num_vertices == 7
