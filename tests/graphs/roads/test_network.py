"""Road networks: what joins, what is refused, and where positions are."""

import json
from dataclasses import replace

import fields
import numpy as np
import pytest
from scipy.sparse.csgraph import floyd_warshall

import graphs
from graphs import RoadNetwork, Roads, checks

LINES = [[(0, 0), (1, 0)], [(1, 0), (1, 1), (2, 1)], [(0, 0), (0, 3), (1, 0)]]


def flat(lines, **options):
    return RoadNetwork.from_lines(lines, metric="euclidean", **options)


def test_lines_meet_at_their_ends():
    roads = flat(LINES)
    assert (roads.num_roads, roads.num_vertices) == (3, 3)
    assert roads.starts.tolist() == [0, 1, 0]
    assert roads.ends.tolist() == [1, 2, 1]
    assert roads.degrees.tolist() == [2, 3, 1]
    np.testing.assert_array_equal(roads.coordinates, [(0, 0), (1, 0), (2, 1)])
    np.testing.assert_allclose(roads.lengths, [1, 2, 3 + np.sqrt(10)])
    assert roads.total_length == pytest.approx(6 + np.sqrt(10))
    assert repr(roads) == "RoadNetwork(3 roads, 3 vertices, length 9.16228)"


def test_points_match_interpolation():
    roads = flat(LINES)
    places = [(0, 0), (0, 0.25), (1, 0), (1, 0.25), (1, 0.5), (1, 0.75), (1, 1), (2, 0.3), (2, 1.0)]
    expected = [(0, 0), (0.25, 0), (1, 0), (1, 0.5), (1, 1), (1.5, 1), (2, 1), (0, 0.3 * (3 + np.sqrt(10))), (1, 0)]
    np.testing.assert_allclose(roads.point(places), expected, atol=1e-15)
    assert roads.point([]).shape == (0, 2)


def test_points_match_the_graph_of_roads():
    rng = np.random.default_rng(0)
    lines = [rng.uniform(8, 9, (n, 2)) for n in (2, 5, 17, 130)]
    road, fraction = rng.integers(0, 4, 50), rng.uniform(0.01, 0.99, 50)
    coordinates = graphs.split_roads(lines, road, fraction, "haversine").coordinates
    found = RoadNetwork.from_lines(lines).point(np.stack([road, fraction], axis=1))
    np.testing.assert_allclose(found, coordinates[-50:], atol=1e-12)


def test_haversine_takes_the_short_way_over_the_antimeridian():
    degree = 2 * np.pi * 6_371_008.8 / 360
    roads = RoadNetwork.from_lines([[(0, 0), (1, 0)], [(179.5, 0), (-179.5, 0)]])
    np.testing.assert_allclose(roads.lengths, degree)
    np.testing.assert_allclose(roads.point([(1, 0.25), (1, 0.75)]), [(179.75, 0), (-179.75, 0)])
    found = roads.nearest([(-179.9, 1.0), (180.1, -1.0)], within=np.inf)
    np.testing.assert_allclose(found.positions, [(1, 0.6), (1, 0.6)], atol=1e-4)  # by chords
    np.testing.assert_allclose(found.distances, degree, rtol=1e-3)
    assert repr(roads) == f"RoadNetwork(2 roads, 4 vertices, 2 connected components, length {2 * degree:,.6g} m)"


def test_loops_and_parallel_roads_are_kept():
    loop = [(0, 0), (-1, 1), (0, 1), (0, 0)]
    roads = flat([*LINES, loop, [(0, 0), (0.5, 0.5), (1, 0)]])
    assert roads.starts[3] == roads.ends[3] == 0
    assert roads.degrees.tolist() == [5, 4, 1]


def test_duplicate_lines_warn():
    with pytest.warns(graphs.DuplicateRoadsWarning, match="2 edges of roads repeat another, the first on road 3"):
        roads = flat([*LINES, LINES[1][::-1], LINES[0]])
    assert roads.num_roads == 5
    assert roads.degrees.tolist() == [3, 5, 2]


def test_a_road_without_length_is_a_vertex():
    roads = flat([[(1, 0), (1, 0), (1, 0)], *LINES])
    assert roads.starts[0] == roads.ends[0] == roads.starts[2]
    assert roads.lengths[0] == 0
    assert roads.degrees.tolist() == [3, 2, 1]
    np.testing.assert_array_equal(roads.point([(0, 0.0), (0, 0.4), (0, 1.0)]), [(1, 0)] * 3)


def test_extreme_lengths_merge_vertices_or_raise():
    """The squares of the first road's coordinates are 0, so its ends are one vertex; those of the others overflow."""
    with np.errstate(all="raise"):
        tiny = flat([[(0, 0), (1e-200, 0)], [(1e-200, 0), (1, 0)]])
        np.testing.assert_array_equal(tiny.point([(0, 0.5), (1, 0.5)]), [(0, 0), (0.5, 0)])
        np.testing.assert_array_equal(tiny.nearest([(0.25, 1)], within=2).positions, [(1, 0.25)])
        with pytest.raises(graphs.InvalidGraphError, match="Lengths must be"):
            flat([[(0, 0), (1e300, 0)]])
    assert (tiny.num_vertices, tiny.lengths.tolist()) == (2, [0.0, 1.0])
    assert (tiny.starts.tolist(), tiny.ends.tolist()) == ([0, 0], [0, 1])


def test_snap_closes_short_loops_only():
    lines = [[(0, 0), (1, 0)], [(1, 0), (1.05, 0)], [(1.05, 0), (2, 0)], [(2, 0), (2.5, 1), (2.04, 0)]]
    roads = flat(lines, snap=0.06)
    assert roads.num_vertices == 3
    assert roads.lengths[1] == 0
    assert roads.starts[3] == roads.ends[3]
    assert roads.lengths[3] > 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "(?i)road"),
        ("roads", "list of lines"),
        ([[(0, 0)]], "Road 0 .*at least two points"),
        ([LINES[0], [(0, 0), (np.nan, 1)]], "Road 1 .*finite"),
        ([LINES[0], [(5, 5), (5, 5)]], "Road 1 .*meet"),
        ([[(0, 0), (1,)]], "Road 0"),
    ],
)
def test_bad_lines_are_refused(lines, message):
    with pytest.raises(graphs.InvalidGraphError, match=message):
        flat(lines)


def test_bad_metrics_and_degrees_are_refused():
    with pytest.raises(graphs.InvalidArgumentError, match="metric must be"):
        RoadNetwork.from_lines(LINES, metric="miles")
    with pytest.raises(graphs.InvalidGraphError, match="longitude and latitude"):
        RoadNetwork.from_lines([[(500_000, 5_000_000), (500_100, 5_000_000)]])
    with pytest.raises(graphs.InvalidArgumentError, match="snap must be"):
        flat(LINES, snap=-1)


def test_lengths_can_be_replaced():
    roads = replace(flat(LINES), lengths=np.array([3.0, 1.0, 2.0]))
    assert roads.total_length == 6
    for wrong in ([1.0, 2.0], [1.0, -1.0, 2.0], [1.0, np.nan, 2.0], ["a", "b", "c"]):
        with pytest.raises(graphs.InvalidGraphError, match="lengths must be a number"):
            replace(roads, lengths=wrong)
    with pytest.raises(graphs.InvalidGraphError, match="Road 1 must have a positive length"):
        replace(roads, lengths=[1.0, 0.0, 1.0])


def test_arrays_are_read_only():
    roads = flat(LINES)
    for array in (roads.coordinates, roads.edges.source, roads.lengths, roads.lines.points):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_arrays_of_the_caller_stay_writable():
    mine = np.array(LINES[0], dtype=float)
    network = flat([mine])
    mine[0, 0] = 5.0  # raises an error if the array is read-only
    np.testing.assert_array_equal(network.lines[0], LINES[0])


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([(3, 0.5)], r"Position 0 .*0\.\.2, got 3"),
        ([(0, 0.5), (-1, 0.5)], "Position 1 .*-1"),
        ([(0.5, 0.5)], "Position 0 .*0.5"),
        ([(13.4, 52.5)], r"Use network.nearest\(points\).positions for points in coordinates"),
        ([(1, 52.5)], r"Use network.nearest\(points\).positions for points in coordinates"),
        ([(np.nan, 0.5)], "Position 0 .*nan"),
        ([(0, 1.1)], r"Position 0 .*1\.1"),
        ([(0, np.nan)], "Position 0 .*nan"),
        ([0.5], r"pairs \(road, fraction\)"),
        ([(0, 0.5), (1,)], r"pairs \(road, fraction\)"),
        ([("a", "b")], r"pairs \(road, fraction\)"),
    ],
)
def test_bad_positions_are_refused(positions, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        flat(LINES).point(positions)


def test_networks_from_files(tmp_path):
    def feature(kind, coordinates, **properties):
        return {"type": "Feature", "properties": properties, "geometry": {"type": kind, "coordinates": coordinates}}

    path = tmp_path / "roads.geojson"
    features = [feature("LineString", LINES[0]), feature("Point", [0.5, 0]), feature("MultiLineString", LINES[1:])]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    roads = RoadNetwork.from_geojson(path, metric="euclidean")
    np.testing.assert_array_equal(roads.lengths, flat(LINES).lengths)
    features[1]["properties"]["value"] = 3.0
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    read = graphs.read_roads(path, metric="euclidean", within=10)
    same = RoadNetwork.from_roads(read)
    np.testing.assert_array_equal(same.lengths, roads.lengths)
    np.testing.assert_allclose(same.point(np.stack([read.sensor_edges, read.sensor_fractions], axis=1)), [(0.5, 0)])
    with pytest.raises(graphs.InvalidArgumentError, match=r"must be graphs\.Roads"):
        RoadNetwork.from_roads(LINES)
    with pytest.raises(graphs.FileFormatError):
        RoadNetwork.from_geojson(tmp_path / "missing.geojson")
    features.append(feature("Polygon", [LINES[2]]))
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with pytest.raises(graphs.FileFormatError, match="Polygon"):
        RoadNetwork.from_geojson(path, metric="euclidean")
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 Polygon left out"):
        RoadNetwork.from_geojson(path, metric="euclidean", skip=True)


def test_roads_keep_metric_and_tolerance():
    none = np.zeros(0)
    lines = [np.array(line, dtype=float) for line in ([(0, 0), (1, 0)], [(1.1, 0), (2, 0)])]
    read = Roads(lines, none.astype(int), none, none, metric="euclidean", snap=0.2)
    assert RoadNetwork.from_roads(read).num_vertices == 3


EDGES = [(0, 1, 1.0), (1, 2, 2.0), (0, 2, 5.0), (1, 0, 0.5), (2, 2, 3.0), (3, 4, 1.0)]


def test_distances_match_the_cut_graph():
    """The twin: shortest ways between all nodes of the graph whose nodes are the positions as well."""
    roads = fields.network(EDGES)
    positions = [(road, fraction) for road in range(len(EDGES)) for fraction in (0.0, 0.2, 0.9, 1.0)]
    field, index = graphs.RoadField(roads).refine(positions)
    size = len(field.coordinates)
    W = np.full((size, size), np.inf)
    for a, b, length in zip(field.segments.source, field.segments.target, field.segments.length, strict=True):
        W[a, b] = W[b, a] = min(W[a, b], length)
    expected = floyd_warshall(np.where(np.isinf(W), 0, W), directed=False)[np.ix_(index, index)]
    np.testing.assert_allclose(roads.distance(positions, positions), expected, atol=1e-12)
    assert np.isinf(roads.distance([(0, 0.5)], [(5, 0.5)])).all()
    assert roads.distance([], [(0, 0.5)]).shape == (0, 1)


def test_distances_beyond_memory_are_refused(monkeypatch):
    monkeypatch.setattr(checks, "machine_memory", lambda: 8.0)
    with pytest.raises(graphs.MemoryBudgetError, match="shortest paths"):
        flat(LINES).distance([(0, 0.5)], [(1, 0.5)])
