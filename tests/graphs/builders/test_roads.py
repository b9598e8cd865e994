import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

import graphs
from graphs import Graph

LINES = [[(0, 0), (1, 0)], [(1, 0), (1, 1), (2, 1)], [(0, 0), (0, 3), (1, 0)]]


def test_lines_join_at_ends_with_inverse_length_weights():
    g = Graph.from_roads(LINES, metric="euclidean")
    assert g.labels == ("crossing-0", "crossing-1", "crossing-2")
    long_way = 3 + np.sqrt(10)
    mean = (1 + 2 + long_way) / 3
    expected = {(0, 1): mean / 1 + mean / long_way, (1, 2): mean / 2}  # two roads between 0 and 1
    for (a, b), weight in expected.items():
        assert g.adjacency.toarray()[a, b] == pytest.approx(weight)


def test_sensors_are_inserted_in_order():
    g = Graph.from_roads(LINES, [1, 1], [0.75, 0.25], metric="euclidean")
    assert g.labels[3:] == ("sensor-0", "sensor-1")
    np.testing.assert_allclose(g.coordinates[3:], [[1.5, 1.0], [1.0, 0.5]])
    W = g.adjacency.toarray()
    a, b = g.index(["sensor-0", "sensor-1"])
    assert W[1, b] > 0
    assert W[b, a] > 0
    assert W[a, 2] > 0
    assert W[1, 2] == 0
    assert W[b, a] == pytest.approx(W[1, b] / 2)  # 1.0 long against 0.5


def test_loop_without_sensor_is_dropped():
    loop = [(0, 0), (0, 1), (-1, 1), (0, 0)]
    assert Graph.from_roads([LINES[0], loop], metric="euclidean").num_edges == 1
    with_sensor = Graph.from_roads([LINES[0], loop], [1], [0.5], metric="euclidean")
    assert with_sensor.num_edges == 2


def test_haversine_lengths_are_meters():
    degree = 2 * np.pi * 6_371_008.8 / 360
    g = Graph.from_roads([[(0, 0), (1, 0)], [(1, 0), (1, 2)]])
    W = g.adjacency.toarray()
    assert W[0, 1] / W[1, 2] == pytest.approx(2)
    from graphs.builders.lines import segment_lengths

    assert segment_lengths(np.array([[0.0, 0.0], [0.0, 1.0]]), "haversine")[0] == pytest.approx(degree)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[(0, 0)]],), "Road 0 .*at least two points"),
        (([[(0, 0), (0, 0)]],), "Road 0 .*length"),
        (([[(0, 0), (np.nan, 0)]],), "finite"),
        ((LINES, [7], [0.5]), "Sensor 0 .*7"),
        (([[(500_000, 5_000_000), (500_100, 5_000_000)]],), "longitude and latitude"),
        ((LINES, [0], [1.1]), r"fraction in \[0, 1\]"),
        ((LINES, [0, 0], [0.5, 0.5]), "distinct positions"),
        ((LINES, [0], [0.1, 0.2]), r"a number for each of the sensor_edges \(1,\)"),
        ((LINES, [0.9], [0.5]), r"roads of sensors must be integers .* entry \[0\] is 0\.9"),
        ((LINES, [0, True], [0.5, 0.5]), r"must be integers .* entry \[1\] is True"),
        ((LINES, np.array([True]), [0.5]), "must be integers"),
        ((LINES, [float("nan")], [0.5]), r"entry \[0\] is nan"),
        ((LINES, [2**63], [0.5]), "integers below 2"),
        ((LINES, ["0"], [0.5]), "must be integers"),
        ((LINES, [[0], [0, 1]], [0.5]), "must be integers"),
        ((LINES, [0], ["half"]), r"a number for each of the sensor_edges \(1,\), got \['half'\]"),
    ],
)
def test_bad_roads_are_refused(arguments, message):
    with pytest.raises(graphs.GraphError, match=message):
        Graph.from_roads(*arguments)


def test_segments_cover_roads_between_nodes():
    labels, coordinates, segments, _ = graphs.split_roads(LINES, [1, 1, 2], [0.75, 0.25, 0.5], metric="euclidean")
    g = Graph.from_roads(LINES, [1, 1, 2], [0.75, 0.25, 0.5], metric="euclidean")
    assert labels == g.labels
    for segment in segments:
        np.testing.assert_allclose(segment.shape[0], coordinates[segment.source], atol=1e-12)
        np.testing.assert_allclose(segment.shape[-1], coordinates[segment.target], atol=1e-12)
        assert np.linalg.norm(np.diff(segment.shape, axis=0), axis=1).sum() == pytest.approx(segment.length)
        assert g.adjacency.toarray()[segment.source, segment.target] > 0
    assert sum(segment.length for segment in segments) == pytest.approx(1 + 2 + 3 + np.sqrt(10))


def test_min_length_bounds_short_edges():
    lines = [[(0, 0), (1, 0)], [(1, 0), (1, 0.01)], [(1, 0.01), (3, 0.01)]]
    mean = 3.01 / 3
    W = Graph.from_roads(lines, metric="euclidean", min_length=0.5).adjacency.toarray()
    assert W[0, 1] == pytest.approx(mean / 1)
    assert W[1, 2] == pytest.approx(2)
    assert Graph.from_roads(lines, metric="euclidean").adjacency.toarray()[1, 2] == pytest.approx(mean / 0.01)
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(graphs.InvalidArgumentError, match="min_length"):
            Graph.from_roads(lines, metric="euclidean", min_length=wrong)


def test_whole_floats_are_road_numbers():
    g = Graph.from_roads(LINES, np.array([1.0, 0.0]), [0.5, 0.5], metric="euclidean")
    np.testing.assert_array_equal(g.coordinates[-1], [0.5, 0.0])


# --- ends that nearly meet -----------------------------------------------------------------------


def town(rng, spread, size=5):
    """Blocks of 0.001 degrees, each end of a street off by up to `spread` degrees, in random order and sense."""
    streets = []
    for i in range(size):
        for j in range(size):
            for step in ((1, 0), (0, 1)):
                ends = np.array([(i, j), (i + step[0], j + step[1])]) * 1e-3 + [7.0, 46.0]
                streets.append((ends + rng.uniform(-spread, spread, (2, 2)))[:: rng.choice([-1, 1])])
    return [streets[k] for k in rng.permutation(len(streets))]


def count_parts(graph):
    return connected_components(graph.adjacency, directed=False)[0]


def test_snap_joins_ends_that_nearly_meet():
    exact, loose = (town(np.random.default_rng(0), spread) for spread in (0.0, 1e-6))
    whole, snapped = Graph.from_roads(exact), Graph.from_roads(loose, snap=1.0)
    assert count_parts(whole) == count_parts(snapped) == 1
    assert count_parts(Graph.from_roads(loose)) == len(loose)
    assert whole.labels == snapped.labels
    np.testing.assert_array_equal(whole.adjacency.indices, snapped.adjacency.indices)
    np.testing.assert_allclose(whole.adjacency.data, snapped.adjacency.data, rtol=0.01)
    first = np.concatenate([road[[0, -1]] for road in loose]).tolist()
    assert all(place in first for place in snapped.coordinates.tolist())  # of the ends, none moves a crossing


def test_snap_is_a_length_on_globe_and_plane():
    """A thousandth of a degree east and north at 60 degrees, 55.6 and 111.2 m, and across the date line."""
    for step, meters in (((1e-3, 0.0), 55.597), ((0.0, 1e-3), 111.195), ((1e-3 - 360.0, 0.0), 55.597)):
        roads = [[(10.0, 59.9), (180.0 if step[0] < -1 else 10.0, 60.0)]]
        roads.append([np.add(roads[0][1], step), (20.0, 60.1)])
        assert [count_parts(Graph.from_roads(roads, snap=f * meters)) for f in (0.999, 1.001)] == [2, 1]
    plane = [[(0, 0), (1, 0)], [(1.25, 0), (2, 0)]]
    assert [count_parts(Graph.from_roads(plane, metric="euclidean", snap=s)) for s in (0.2, 0.3)] == [2, 1]


def test_chains_of_ends_are_one_crossing_in_any_order():
    """Four ends in a row, each within the tolerance of the next only."""
    spokes = [[(0.9 * k, 0), (0.9 * k, 10 + k)] for k in range(4)]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3, 1]):
        g = Graph.from_roads([spokes[k] for k in order], metric="euclidean", snap=1.0)
        assert g.num_nodes == 5
        assert g.coordinates[0].tolist() == [0.9 * order[0], 0]
        assert g.adjacency[[0], :].nnz == 4
    with pytest.raises(graphs.InvalidGraphError, match=r"6 points .*4\.5 tolerances"):
        Graph.from_roads([[(0.9 * k, 0), (0.9 * k, 10 + 2 * k)] for k in range(6)], metric="euclidean", snap=1.0)
    rng = np.random.default_rng(1)
    many = [rng.uniform(0, 1, (2, 2)) for _ in range(2000)]
    with pytest.raises(graphs.InvalidGraphError, match="distance of neighboring crossings"):
        Graph.from_roads(many, metric="euclidean", snap=0.5)
    for wrong in (-1, float("nan"), float("inf"), True, "1", None):
        with pytest.raises(graphs.InvalidArgumentError, match="snap must be a number"):
            Graph.from_roads(LINES, metric="euclidean", snap=wrong)


def test_road_closed_by_snap_is_dropped_without_sensor():
    roads = [[(0, 0), (5, 0)], [(5, 0), (5.4, 0)], [(5.4, 0), (9, 0)]]
    short = Graph.from_roads(roads, metric="euclidean", snap=0.5)
    assert (short.num_nodes, short.num_edges) == (3, 2)
    sensor = Graph.from_roads(roads, [1], [0.25], metric="euclidean", snap=0.5)
    assert (sensor.labels, sensor.num_edges) == (("crossing-0", "crossing-2", "sensor-0"), 2)
    for edges, fractions in (((), ()), ([1, 2], [0.25, 0.5])):
        _, coordinates, segments, _ = graphs.split_roads(roads, edges, fractions, "euclidean", 0.5)
        for segment in segments:
            np.testing.assert_allclose(
                segment.shape[[0, -1]], coordinates[[segment.source, segment.target]], atol=1e-12
            )
