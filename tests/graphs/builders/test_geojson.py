"""Roads and sensors in GeoJSON: what is read, what is left out, what is refused."""

import json
import sys

import numpy as np
import pytest

import graphs
from graphs import Graph

LINES = [[(0, 0), (1, 0)], [(1, 0), (1, 1), (2, 1)], [(0, 0), (0, 3), (1, 0)]]


def test_geojson_round_trip(tmp_path):
    point = {"type": "Point", "coordinates": [0.5, 0]}
    features = [
        {"type": "Feature", "properties": {}, "geometry": {"type": "LineString", "coordinates": LINES[1]}},
        {"type": "Feature", "properties": {"edge": 0, "fraction": 0.5, "value": 40}, "geometry": point},
    ]
    path = tmp_path / "roads.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    roads = graphs.read_roads(path)
    np.testing.assert_array_equal(roads.lines[0], LINES[1])
    assert (roads.sensor_edges[0], roads.sensor_fractions[0], roads.values[0]) == (0, 0.5, 40)
    features[0]["geometry"]["type"] = "Polygon"
    (tmp_path / "polygon.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    features[0]["geometry"]["type"], features[1]["properties"]["edge"] = "LineString", 3.7
    (tmp_path / "edge.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    (tmp_path / "list.geojson").write_text("{}")
    (tmp_path / "cut.geojson").write_text('{"type": "Feat')
    (tmp_path / "empty.rda").write_bytes(b"")
    (tmp_path / "bad.rda").write_bytes(b"RDX9 not R data")
    for name in (
        "missing.rda",
        "polygon.geojson",
        "edge.geojson",
        "list.geojson",
        "cut.geojson",
        "empty.rda",
        "bad.rda",
    ):
        with pytest.raises(graphs.FileFormatError, match=name):
            graphs.read_roads(tmp_path / name)


def collection(features):
    out = [
        {"type": "Feature", "properties": properties, "geometry": {"type": kind, "coordinates": coordinates}}
        for kind, coordinates, properties in features
    ]
    return json.dumps({"type": "FeatureCollection", "features": out})


ROAD = ("LineString", [[8.0, 50.0], [8.0, 50.01], [8.02, 50.01]], {})


def test_sensors_without_edge_move_to_nearest_road(tmp_path):
    path = tmp_path / "r.geojson"
    second = ("MultiLineString", [[[8.0, 50.0], [8.0, 49.99, 120.0]], [[8.1, 50.0], [8.2, 50.0]]], None)
    points = [
        ("Point", [8.0003, 50.004], {"speed": 30}),  # 21 m east of the first leg
        ("Point", [8.01, 50.0099], {"speed": None}),
        ("Point", [8.0, 49.9899], {"speed": 12.5, "name": "end"}),  # beyond the end of road 1
        ("Point", [8.15, 50.0], {"speed": 50, "edge": 2, "fraction": 0.5}),
    ]
    path.write_text(collection([ROAD, second, *points]))
    roads = graphs.read_roads(path, "speed")
    assert roads.sensor_edges.tolist() == [0, 0, 1, 2]
    np.testing.assert_array_equal(roads.values, [30, np.nan, 12.5, 50])
    leg, other = 0.01 * 111_195.08, 0.02 * 111_195.08 * np.cos(np.radians(50.01))
    expected = [0.4 * leg / (leg + other), (leg + other / 2) / (leg + other), 1.0, 0.5]
    np.testing.assert_allclose(roads.sensor_fractions, expected, rtol=2e-4)
    g = Graph.from_roads(*roads[:3])
    np.testing.assert_allclose(g.coordinates[g.index(["sensor-0"])[0]], [8.0, 50.004], atol=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "GeoJSON FeatureCollection"),
        ('{"type": "FeatureCollection"}', "GeoJSON FeatureCollection"),
        ('{"type": "FeatureCollection", "features": [3]}', "feature 0 has no geometry"),
        (
            '{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {}}]}',
            "feature 0 has no geometry",
        ),
        (collection([("Polygon", [], {})]), "feature 0 must be a LineString .* got 'Polygon'"),
        (collection([("MultiLineString", 3, {})]), "feature 0 must have a list of lines"),
        (collection([("LineString", [["a", "b"], [1, 2]], {})]), "coordinates that are"),
        (collection([("LineString", [1, 2], {})]), "coordinates that are"),
        (collection([("LineString", [[1], [2]], {})]), "two finite numbers"),
        (collection([]), "has no LineString with points"),
        (collection([("LineString", [[1, 10**400], [2, 2]], {})]), "coordinates that are"),
        (collection([ROAD, ("Point", [8.0, 50.0], {})]), r"no sensor has the property 'value'.* have none at all"),
        (
            collection(
                [ROAD, *[("Point", [8.0, 50.0], {"edge": 0, **more}) for more in ({"a": "1"}, {"b": 3, "a": 1})]]
            ),
            r"no sensor has the property 'value'; they have numbers in 'b', 'a'. .*as in target='b'",
        ),
        (collection([ROAD, ("Point", [8.0, 50.0], {"a": True})]), r"nor another that holds numbers \(they have 'a'\)"),
        (
            collection([ROAD, *[("Point", [8.0, 50.0], {name: 3}) for name in ("value", "speed")]]),
            r"sensor 1 .*'value'.*'speed'",
        ),
        (collection([ROAD, ("Point", [8.0, 50.0], {"value": "fast"})]), "'value' of sensor 0 must be .* got 'fast'"),
        (collection([ROAD, ("Point", [8.0, 50.0], {"value": True})]), "'value' of sensor 0 must be .* got 'True'"),
        (collection([ROAD, ("Point", [50.0, 8.0], {"value": 3})]), "within 500 m of a road.*in this order"),
        (collection([ROAD, ("Point", [8.0, 50.0], {"value": 3, "edge": [], "fraction": 1})]), "must be numbers"),
        *(
            (
                collection([ROAD, ("Point", [8.0, 50.0], {"value": 3, "edge": edge, "fraction": 0.5})]),
                "must be the whole number of a road",
            )
            for edge in (0.5, True, 1e300)
        ),
        ("[" * 100_000, "road network that can be read"),
        ("\x00" * 100, "must be JSON.* line 1, column 1: "),
    ],
)
def test_bad_geojson_raises_named_errors(content, message, tmp_path):
    path = tmp_path / "bad.geojson"
    path.write_text(content)
    with pytest.raises(graphs.FileFormatError, match=message) as caught:
        graphs.read_roads(path)
    assert "bad.geojson" in str(caught.value)
    assert len(str(caught.value)) < 400


def feature(kind, coordinates, **properties):
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


MIXED = [
    feature("LineString", [[8.0, 49.0], [8.1, 49.0]]),
    feature("Polygon", [[[8.0, 49.0], [8.1, 49.0], [8.0, 49.1], [8.0, 49.0]]], value=1),
    {"type": "Feature", "geometry": None},
    feature("Point", [8.01, 49.0], value=1.5),
    feature("Point", [8.02, 49.0], value="2.5"),
    feature("Point", [8.03, 49.0], value="fast"),
    feature("Point", [8.04, 49.0], value=None),
    feature("Point", [8.05, 49.0]),
    feature("Point", [8.06, 49.01], value=6),
]
"""Two features that are neither road nor sensor, two sensors without a number, one with a text, one 1,112 m away."""


def test_skip_drops_other_features(tmp_path):
    path = tmp_path / "r.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": MIXED}))
    with pytest.warns(graphs.SkippedFeaturesWarning) as caught:
        roads = graphs.read_roads(path, skip=True)
    np.testing.assert_array_equal(roads.values, [1.5, 2.5, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(roads.sensor_fractions, [0.1, 0.2, 0.3, 0.4, 0.5], rtol=1e-4)
    assert len(roads.properties) == 5
    assert str(caught[0].message) == (
        f"{path}: 1 Polygon left out, 1 feature without geometry left out, 1 number written as text, 1 sensor farther "
        "than 500 m from a road left out, 2 sensors without a number 'value' not observed."
    )
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 number written as text, 2 sensors without"):
        assert graphs.read_roads(path, skip=True, within=1200).values[-1] == 6
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [MIXED[0], *MIXED[3:4], MIXED[8]]}))
    assert graphs.read_roads(path, within=1200).values.tolist() == [1.5, 6.0]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (1, "feature 2 must be .* got 'Polygon'.* Pass skip=True to leave others out"),
        (4, "must be a finite number or null, got '2.5'. Pass skip=True"),
        (7, "property 'value'.*skip=True"),
        (8, "within 500 m of a road, got 1,111.95 m.* Pass within= for more, or skip=True to leave it out"),
    ],
)
def test_other_features_are_refused_with_a_remedy(place, message, tmp_path):
    path = tmp_path / "r.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [MIXED[0], MIXED[3], MIXED[place]]}))
    with pytest.raises(graphs.FileFormatError, match=message):
        graphs.read_roads(path)
    with pytest.raises(graphs.InvalidArgumentError, match="within must be a positive number"):
        graphs.read_roads(path, within=0)


def test_faulty_features_are_listed_together(tmp_path):
    path, bad = tmp_path / "r.geojson", [feature("Polygon", []) for _ in range(6)]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [MIXED[0], feature("Point", ["a", 1]), *bad]}))
    with pytest.raises(graphs.FileFormatError, match="has 7 features that cannot be used:\nfeature 1 ") as caught:
        graphs.read_roads(path)
    assert [line.split(" ")[1] for line in str(caught.value).splitlines()[1:]] == ["1", "2", "3", "4", "5", "2"]
    assert str(caught.value).endswith("and 2 more.")
    sensors = [feature("Point", [8.01, 49.0], value=value) for value in (1, "x", 2, "y")]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [MIXED[0], *sensors]}))
    with pytest.raises(graphs.FileFormatError, match=r"(?s)'value' of sensor 1 .*'value' of sensor 3"):
        graphs.read_roads(path)
    far = [feature("Point", [8.01, y], value=1) for y in (49.0, 50.0, 51.0)]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [MIXED[0], *far]}))
    with pytest.raises(graphs.FileFormatError, match=r"sensor 1 must lie.*\(and 1 more sensor farther"):
        graphs.read_roads(path)


def test_roads_of_one_point_are_refused_or_skipped(tmp_path):
    path, one = tmp_path / "r.geojson", feature("LineString", [[8.0, 49.0]])
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [MIXED[0], one]}))
    with pytest.raises(graphs.FileFormatError, match="feature 1 is a LineString of one point"):
        graphs.read_roads(path)
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 LineString of one point left out"):
        assert len(graphs.read_roads(path, skip=True).lines) == 1


def test_identifier_properties_are_suggested_last(tmp_path):
    path = tmp_path / "r.geojson"
    sensors = [feature("Point", [8.01, 49.0], id=i, number=10 + i, speed=i % 3) for i in range(6)]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [MIXED[0], *sensors]}))
    with pytest.raises(graphs.FileFormatError, match=r"numbers in 'speed', 'id', 'number'.* as in target='speed'"):
        graphs.read_roads(path)


# --- coordinate reference systems ----------------------------------------------------------------


def file_of(path, features, **members):
    path.write_text(json.dumps({"type": "FeatureCollection", **members, "features": features}))
    return path


def named(name):
    return {"type": "name", "properties": {"name": name}}


GRID = [feature("LineString", [[0, 0], [50, 0]]), feature("LineString", [[50, 0], [50, 50]])]


@pytest.mark.parametrize("has_pyproj", [True, False])
@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("EPSG:3857", "euclidean"),
        ("urn:x-ogc:def:crs:EPSG:2056", "euclidean"),
        ("CRS84", "haversine"),
        ("urn:ogc:def:crs:EPSG::3857", "euclidean"),
        ("EPSG:25832", "euclidean"),
        ("epsg:32633", "euclidean"),
        ("http://www.opengis.net/def/crs/EPSG/0/2154", "euclidean"),
        ("urn:ogc:def:crs:OGC:1.3:CRS84", "haversine"),
        ("OGC:CRS84", "haversine"),
        ("EPSG:4326", "haversine"),
        ("urn:ogc:def:crs:EPSG::4258", "haversine"),
    ],
)
def test_metric_follows_from_crs(name, metric, has_pyproj, tmp_path, monkeypatch):
    if not has_pyproj:
        monkeypatch.setitem(sys.modules, "pyproj", None)
    path = file_of(tmp_path / "r.geojson", GRID, crs=named(name))
    roads = graphs.RoadNetwork.from_geojson(path)
    assert roads.lines.metric == metric
    assert (roads.total_length == 100) == (metric == "euclidean")
    assert graphs.read_roads(path, None).unit == ("" if "3857" in name else "m")  # Mercator stretches lengths
    other = "haversine" if metric == "euclidean" else "euclidean"
    with pytest.raises(graphs.FileFormatError, match=f"metric must be '{metric}'"):
        graphs.read_roads(path, None, other)
    assert graphs.read_roads(path, None, metric).metric == metric


@pytest.mark.parametrize(
    "crs",
    [
        None,
        "EPSG:3857",
        named("EPSG:99999"),
        named("a local grid"),
        named(3857),
        {"type": "link", "properties": {"href": "http://example.com/crs"}},
        {"type": "name"},
    ],
)
def test_unknown_crs_requires_metric(crs, tmp_path):
    path = file_of(tmp_path / "r.geojson", GRID, crs=crs)
    with pytest.raises(graphs.FileFormatError, match=r"known one.* Pass metric"):
        graphs.read_roads(path, None)
    roads = graphs.read_roads(path, None, "euclidean")
    assert (roads.metric, roads.unit) == ("euclidean", "")


def test_missing_crs_means_degrees(tmp_path):
    path = file_of(tmp_path / "r.geojson", GRID)
    assert graphs.read_roads(path, None)[5] == "haversine"
    assert graphs.read_roads(path, None, "euclidean").unit == ""


def test_pyproj_reads_systems_in_feet(tmp_path):
    pytest.importorskip("pyproj")
    path = file_of(tmp_path / "r.geojson", GRID, crs=named("EPSG:2263"))
    assert graphs.read_roads(path, None)[5:] == graphs.read_roads(path, None, "euclidean")[5:]
    assert graphs.read_roads(path, None).unit == "US survey foot"
    path = file_of(tmp_path / "r.geojson", GRID, crs=named("ESRI:102100"))  # Mercator
    assert graphs.read_roads(path, None)[5:] == graphs.read_roads(path, None, "euclidean")[5:]
    assert graphs.read_roads(path, None).unit == ""
    path = file_of(tmp_path / "r.geojson", GRID, crs=named("EPSG:4807"))  # grads
    with pytest.raises(graphs.FileFormatError, match="known one"):
        graphs.read_roads(path, None)


# --- files as they are ---------------------------------------------------------------------------


def test_ids_properties_and_members_are_kept(tmp_path):
    roads = [
        {**feature("LineString", [[0, 0], [50, 0]], oneway="yes", lanes=["2", "3"], name=None), "id": "way/7"},
        {**feature("MultiLineString", [[[50, 0], [50, 50]], [[50, 50], [90, 50]]], ref="A1"), "id": 8},
        feature("LineString", [[0, 0], [0, 50]]),
    ]
    path = file_of(tmp_path / "r.geojson", roads, crs=named("EPSG:3857"), name="streets", other=1)
    found = graphs.read_roads(path, None)
    assert found.road_ids == ("way/7", 8, 8, None)
    assert found.road_properties[0] == {"oneway": "yes", "lanes": ["2", "3"], "name": None}
    assert [part.get("ref") for part in found.road_properties] == [None, "A1", "A1", None]
    assert found.metadata == {"name": "streets", "crs": named("EPSG:3857")}


def test_byte_order_mark_and_nan_are_read(tmp_path):
    path = tmp_path / "r.geojson"
    features = [*GRID, feature("Point", [25, 0], value=float("nan")), feature("Point", [50, 25], value=3)]
    text = json.dumps({"type": "FeatureCollection", "crs": named("EPSG:3857"), "features": features})
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    np.testing.assert_array_equal(graphs.read_roads(path).values, [np.nan, 3])


@pytest.mark.parametrize(
    ("point", "properties", "message"),
    [
        ("12", {"value": 1}, "coordinates that are"),
        (["0", "0"], {"value": 1}, "coordinates that are"),
        ([False, True], {"value": 1}, "coordinates that are"),
        ([25, 0], {"value": 10**400}, "'value' of sensor 0 must be a finite number"),
        ([25, 0], {"value": 1, "edge": 10**400, "fraction": 0.5}, "edge and fraction of sensor 0 must be numbers"),
    ],
)
def test_odd_sensor_numbers_are_refused(point, properties, message, tmp_path):
    sensor = {"type": "Feature", "geometry": {"type": "Point", "coordinates": point}, "properties": properties}
    path = file_of(tmp_path / "r.geojson", [*GRID, sensor], crs=named("EPSG:25832"))
    with pytest.raises(graphs.FileFormatError, match=message):
        graphs.read_roads(path)


def test_null_positions_count_as_missing(tmp_path):
    path = file_of(
        tmp_path / "r.geojson",
        [*GRID, feature("Point", [25, 0], value=1, edge=None, fraction=None)],
        crs=named("EPSG:25832"),
    )
    assert graphs.read_roads(path).sensor_fractions.tolist() == [0.5]


@pytest.mark.parametrize("within", ["a", True, 0, float("nan")])
def test_within_must_be_positive(within, tmp_path):
    with pytest.raises(graphs.InvalidArgumentError, match="within must be a positive number"):
        graphs.read_roads(file_of(tmp_path / "r.geojson", GRID), within=within)


def test_metric_is_checked_before_the_file(tmp_path):
    with pytest.raises(graphs.InvalidArgumentError, match="metric must be one of"):
        graphs.read_roads(file_of(tmp_path / "r.geojson", GRID, crs=named("EPSG:25832")), metric="miles")


def test_empty_features_are_skipped(tmp_path):
    nothing = [
        {"type": "Feature", "properties": {"value": 1}, "geometry": None},
        feature("LineString", []),
        feature("MultiLineString", []),
        feature("MultiLineString", [[], [[1, 0], [2, 0]]]),
        feature("Point", [], value=3),
    ]
    path = file_of(tmp_path / "r.geojson", [feature("LineString", [[0, 0], [1, 0]]), *nothing])
    with pytest.warns(graphs.SkippedFeaturesWarning) as caught:
        roads = graphs.read_roads(path)
    assert len(roads.lines) == 2
    assert len(roads.values) == 0
    for text in ("feature without geometry", "LineString without coord", "Point without coord", "1 part of a Multi"):
        assert text in str(caught[0].message)


def test_one_way_streets_have_no_direction(tmp_path):
    there = [[0, 0], [1, 0], [2, 0.5]]
    paths = [
        file_of(tmp_path / f"{i}.geojson", [feature("LineString", line, oneway=way)])
        for i, (line, way) in enumerate([(there, "yes"), (there, "no"), (there, "-1")])
    ]
    lengths = [graphs.RoadNetwork.from_geojson(path).distance([(0, 0.1)], [(0, 0.9)]) for path in paths]
    assert lengths[0] == lengths[1] == lengths[2]


def test_list_values_are_refused(tmp_path):
    points = [feature("Point", [25, 0], value=[1, 2]), feature("Point", [20, 0], value=2)]
    path = file_of(tmp_path / "r.geojson", [*GRID, *points], crs=named("EPSG:3857"))
    with pytest.raises(graphs.FileFormatError, match=r"must be a finite number or null, got '\[1, 2\]'"):
        graphs.read_roads(path)
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 sensor without a number"):
        np.testing.assert_array_equal(graphs.read_roads(path, skip=True).values, [np.nan, 2])


def test_far_sensors_in_a_plane_are_named_without_meters(tmp_path):
    path = file_of(tmp_path / "r.geojson", [*GRID, feature("Point", [25, 9], value=1)])
    with pytest.raises(graphs.FileFormatError, match="within 5 of a road, got 9"):
        graphs.read_roads(path, metric="euclidean", within=5)
    with pytest.raises(graphs.FileFormatError, match=r"within 7\.07107 of a road, got 9"):  # a tenth of the diagonal
        graphs.read_roads(path, metric="euclidean")


def crossing(tmp_path, below, above, first=(), second=()):
    """Return the network of a road and another that shares its middle."""
    lines = [[[0, 0, *below], [1, 0, *below], [2, 0, *below]], [[1, -1, *above], [1, 0, *above], [1, 1, *above]]]
    features = [
        {"type": "Feature", "properties": dict(properties), "geometry": {"type": "LineString", "coordinates": line}}
        for properties, line in zip((first, second), lines, strict=True)
    ]
    path = tmp_path / "crossing.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return graphs.read_roads(path, None, "euclidean")


@pytest.mark.parametrize(
    ("below", "above", "snap", "distance"),
    [
        ((), (), 0.0, 2.0),
        ((3,), (3,), 0.0, 2.0),
        ((0,), (5,), 0.0, np.inf),
        ((0,), (5,), 0.1, np.inf),
        ((0,), (0.05,), 0.1, 2.0),
        ((None,), ("high",), 0.0, 2.0),
    ],
)
def test_heights_keep_a_bridge_apart(below, above, snap, distance, tmp_path):
    roads = crossing(tmp_path, below, above)._replace(snap=snap)
    network = graphs.RoadNetwork.from_roads(roads)
    assert network.distance([(0, 0.0)], [(1, 1.0)]).tolist() == [[distance]]
    assert network.lengths.tolist() == [2.0, 2.0]
    assert graphs.Graph.from_roads(roads.lines, metric="euclidean", snap=snap).num_nodes == network.num_vertices


def test_missing_heights_are_named(tmp_path):
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 crossing of several heights joined"):
        roads = crossing(tmp_path, (), (5,))
    assert graphs.RoadNetwork.from_roads(roads).distance([(0, 0.0)], [(1, 1.0)]).tolist() == [[2.0]]
    with pytest.raises(graphs.InvalidGraphError, match="first road 0"):
        graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0, 5), (1, 1, 5)]], metric="euclidean")


@pytest.mark.parametrize("first", [{"layer": "1"}, {"layer": -1}, {"bridge": "yes"}, {"tunnel": "culvert"}])
def test_joined_layers_are_named(first, tmp_path):
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 crossing of roads in different layers"):
        crossing(tmp_path, (), (), first, {"bridge": "no", "layer": None})
    crossing(tmp_path, (0,), (5,), first)  # heights have separated them
    features = [
        {"type": "Feature", "properties": way, "geometry": {"type": "LineString", "coordinates": line}}
        for way, line in (({}, [[0, 0], [1, 0]]), (first, [[1, 0], [2, 0]]))  # a bridge begins at an end
    ]
    (tmp_path / "ends.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    assert graphs.RoadNetwork.from_geojson(tmp_path / "ends.geojson", metric="euclidean").num_vertices == 3


def test_one_way_roads_are_counted(tmp_path):
    ways = [{"oneway": "-1"}, {"oneway": True}, {"junction": "roundabout"}, {"oneway": "no"}]
    counts = [crossing(tmp_path, (), (), way).num_one_way for way in ways]
    assert counts == [1, 1, 1, 0]
