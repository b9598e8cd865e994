"""Roads and sensors in GeoJSON: what is read, what is left out, what is refused."""

import json
import sys

import numpy as np
import pytest
from refusals import refused

import graphs
from graphs import Graph, RoadNetwork


def feature(kind, coordinates, **properties):
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def crs(name):
    return {"type": "name", "properties": {"name": name}}


NO_CRS = object()


@pytest.fixture
def file(tmp_path):
    """Return a function that writes features to a file, in a system of coordinates if one is given."""

    def write(features, crs=NO_CRS, **members):
        members |= {} if crs is NO_CRS else {"crs": crs}
        path = tmp_path / "roads.geojson"
        path.write_text(json.dumps({"type": "FeatureCollection", **members, "features": features}))
        return path

    return write


STREETS = [feature("LineString", [[0, 0], [50, 0]]), feature("LineString", [[50, 0], [50, 50]])]
PLANE = crs("EPSG:25832")
BENT = feature("LineString", [[8.0, 50.0], [8.0, 50.01], [8.02, 50.01]])
STRAIGHT = feature("LineString", [[8.0, 49.0], [8.1, 49.0]])


# --- what is read --------------------------------------------------------------------------------


def test_roads_sensors_and_values_are_read(file):
    point = feature("Point", [0.5, 0], edge=0, fraction=0.5, value=40)
    nowhere = feature("Point", [25, 0], value=float("nan"), edge=None, fraction=None)
    path = file([*STREETS, point, nowhere], crs=PLANE)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark
    roads = graphs.read_roads(path)
    np.testing.assert_array_equal(roads.lines[1], [[50, 0], [50, 50]])
    np.testing.assert_array_equal(roads.values, [40, np.nan])
    assert (roads.sensor_edges.tolist(), roads.sensor_fractions.tolist()) == ([0, 0], [0.5, 0.5])
    assert (roads.metric, roads.unit) == ("euclidean", "m")
    np.testing.assert_array_equal(RoadNetwork.from_geojson(file(STREETS), metric="euclidean").lengths, [50, 50])


def test_sensors_without_edge_move_to_the_nearest_road(file):
    parts = feature("MultiLineString", [[[8.0, 50.0], [8.0, 49.99, 120.0]], [[8.1, 50.0], [8.2, 50.0]]])
    points = [
        feature("Point", [8.0003, 50.004], speed=30),  # 21 m east of the first leg
        feature("Point", [8.01, 50.0099], speed=None),
        feature("Point", [8.0, 49.9899], speed=12.5, name="end"),  # beyond the end of road 1
        feature("Point", [8.15, 50.0], speed=50, edge=2, fraction=0.5),
    ]
    roads = graphs.read_roads(file([BENT, parts, *points]), "speed")
    assert roads.sensor_edges.tolist() == [0, 0, 1, 2]
    np.testing.assert_array_equal(roads.values, [30, np.nan, 12.5, 50])
    leg, other = 0.01 * 111_195.08, 0.02 * 111_195.08 * np.cos(np.radians(50.01))
    expected = [0.4 * leg / (leg + other), (leg + other / 2) / (leg + other), 1.0, 0.5]
    np.testing.assert_allclose(roads.sensor_fractions, expected, rtol=2e-4)


ALONE = ("epsg:32633", "urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326")  # known without pyproj


@pytest.mark.parametrize("has_pyproj", [True, False])
@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("EPSG:3857", "euclidean"),
        ("urn:x-ogc:def:crs:EPSG:2056", "euclidean"),
        ("epsg:32633", "euclidean"),
        ("http://www.opengis.net/def/crs/EPSG/0/2154", "euclidean"),
        ("urn:ogc:def:crs:OGC:1.3:CRS84", "haversine"),
        ("EPSG:4326", "haversine"),
        ("WGS84", "haversine"),
        ("urn:ogc:def:crs:EPSG::4258", "haversine"),
    ],
)
def test_metric_follows_from_the_coordinate_system(name, metric, has_pyproj, file, monkeypatch):
    if not has_pyproj:
        monkeypatch.setitem(sys.modules, "pyproj", None)
    path = file(STREETS, crs=crs(name))
    if not has_pyproj and name not in ALONE:
        refused(lambda: graphs.read_roads(path, None), graphs.FileFormatError, "pip install 'rfgp[geo]'")
        return
    roads = RoadNetwork.from_geojson(path)
    assert roads.lines.metric == metric
    assert (roads.total_length == 100) == (metric == "euclidean")
    assert graphs.read_roads(path, None).unit == ("" if "3857" in name else "m")  # Mercator stretches lengths
    other = {"euclidean": "haversine", "haversine": "euclidean"}[metric]
    refused(lambda: graphs.read_roads(path, None, other), graphs.FileFormatError, f"metric must be '{metric}'")


def test_missing_system_means_degrees_and_pyproj_knows_feet(file):
    assert graphs.read_roads(file(STREETS), None).metric == "haversine"
    assert graphs.read_roads(file(STREETS), None, "euclidean").unit == ""
    pytest.importorskip("pyproj")
    for name, unit in (("EPSG:2263", "US survey foot"), ("ESRI:102100", "")):  # the last is Mercator
        found = graphs.read_roads(file(STREETS, crs=crs(name)), None)
        assert (found.metric, found.unit) == ("euclidean", unit)


@pytest.mark.parametrize(
    "system",
    [
        None,
        "EPSG:3857",
        crs("EPSG:99999"),
        crs("a local grid"),
        crs(3857),
        crs("EPSG:4807"),  # grads
        {"type": "link", "properties": {"href": "http://example.com/crs"}},
        {"type": "name"},
    ],
)
def test_unknown_system_requires_a_metric(system, file):
    path = file(STREETS, crs=system)
    refused(lambda: graphs.read_roads(path, None), graphs.FileFormatError, "Pass metric")
    if system != crs("EPSG:4807"):
        assert graphs.read_roads(path, None, "euclidean").metric == "euclidean"


# --- what is left out ----------------------------------------------------------------------------

MIXED = [
    STRAIGHT,
    feature("Polygon", [[[8.0, 49.0], [8.1, 49.0], [8.0, 49.1], [8.0, 49.0]]], value=1),
    {"type": "Feature", "geometry": None},
    feature("Point", [8.01, 49.0], value=1.5),
    feature("Point", [8.02, 49.0], value="2.5"),
    feature("Point", [8.03, 49.0], value="fast"),
    feature("Point", [8.04, 49.0], value=None),
    feature("Point", [8.05, 49.0], value=[1, 2]),
    feature("Point", [8.06, 49.01], value=6),
]
"""Two features that are neither road nor sensor, three sensors without a number, and one 1,112 m away."""


def test_skip_drops_other_features(file):
    path = file(MIXED)
    with pytest.warns(graphs.SkippedFeaturesWarning) as caught:
        roads = graphs.read_roads(path, skip=True)
    np.testing.assert_array_equal(roads.values, [1.5, 2.5, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(roads.sensor_fractions, [0.1, 0.2, 0.3, 0.4, 0.5], rtol=1e-4)
    for words in ("1 Polygon left out", "1 feature without geometry", "1 number written as text", "1 sensor farther"):
        assert words in str(caught[0].message)
    assert graphs.read_roads(file([STRAIGHT, MIXED[3], MIXED[8]]), within=1200).values.tolist() == [1.5, 6.0]
    nothing = [
        feature("LineString", []),
        feature("MultiLineString", [[], [[1, 0], [2, 0]]]),
        feature("Point", [], value=3),
    ]
    with pytest.warns(graphs.SkippedFeaturesWarning) as caught:
        roads = graphs.read_roads(file([feature("LineString", [[0, 0], [1, 0]]), MIXED[2], *nothing]))
    assert (len(roads.lines), len(roads.values)) == (2, 0)
    for words in ("LineString without coord", "Point without coord", "1 part of a Multi"):
        assert words in str(caught[0].message)
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 LineString of one point left out"):
        graphs.read_roads(file([STRAIGHT, feature("LineString", [[8.0, 49.0]])]), skip=True)


def test_faulty_features_are_listed_together(file):
    bad = [feature("Point", ["a", 1]), *[feature("Polygon", []) for _ in range(6)]]
    far = [feature("Point", [8.01, y], value=1) for y in (49.0, 50.0, 51.0)]
    messages = [
        refused(lambda f=features: graphs.read_roads(file([STRAIGHT, *f])), graphs.FileFormatError, word)
        for features, word in ((bad, "has 7 features that cannot be used"), (far, "(and 1 more sensor farther"))
    ]
    assert [line.split(" ")[1] for line in messages[0].splitlines()[1:]] == ["1", "2", "3", "4", "5", "2"]


# --- bridges and layers --------------------------------------------------------------------------


def crossing(file, below=(), above=(), first=(), second=()):
    """Return the roads of a line and another that shares its middle, at some heights."""
    lines = [[[0, 0, *below], [1, 0, *below], [2, 0, *below]], [[1, -1, *above], [1, 0, *above], [1, 1, *above]]]
    ways = [feature("LineString", line, **dict(tags)) for line, tags in zip(lines, (first, second), strict=True)]
    return graphs.read_roads(file(ways), None, "euclidean")


@pytest.mark.parametrize(
    ("below", "above", "snap", "distance"),
    [
        ((), (), 0.0, 2.0),
        ((3,), (3,), 0.0, 2.0),
        ((0,), (5,), 0.1, np.inf),
        ((0,), (0.05,), 0.1, 2.0),
        ((None,), ("high",), 0.0, 2.0),
    ],
)
def test_heights_keep_a_bridge_apart(below, above, snap, distance, file):
    roads = crossing(file, below, above)._replace(snap=snap)
    network = RoadNetwork.from_roads(roads)
    assert network.distance([(0, 0.0)], [(1, 1.0)]).tolist() == [[distance]]
    assert Graph.from_roads(roads.lines, metric="euclidean", snap=snap).num_nodes == network.num_vertices


def test_joined_layers_and_missing_heights_are_named(file):
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 crossing of several heights joined"):
        assert RoadNetwork.from_roads(crossing(file, (), (5,))).num_vertices == 5
    for tags in ({"layer": "1"}, {"layer": -1}, {"bridge": "yes"}, {"tunnel": "culvert"}):
        with pytest.warns(graphs.SkippedFeaturesWarning, match="1 crossing of roads in different layers"):
            crossing(file, (), (), tags, {"bridge": "no", "layer": None})
        crossing(file, (0,), (5,), tags)  # heights have separated them, a warning would be an error
        graphs.read_roads(
            file([STREETS[0], feature("LineString", [[50, 0], [90, 0]], **tags)]), None
        )  # ends of a bridge
    ways = ({"oneway": "-1"}, {"oneway": True}, {"junction": "roundabout"}, {"oneway": "no"})
    assert [crossing(file, first=way).num_one_way for way in ways] == [1, 1, 1, 0]


# --- refusals ------------------------------------------------------------------------------------

AT = [8.0, 50.0]
FEATURES = {
    "feature 0 must be a LineString": [feature("Polygon", [])],
    "list of lines": [feature("MultiLineString", 3)],
    "coordinates that are numbers": [feature("LineString", [1, 2])],
    "two finite numbers": [feature("LineString", [[1], [2]])],
    "a LineString of one point": [STRAIGHT, feature("LineString", [[8.0, 49.0]])],
    "no LineString": [],
    "no geometry": [{"type": "Feature", "properties": {}}],
    "none at all": [BENT, feature("Point", AT)],
    "as in target='b'": [BENT, feature("Point", AT, a="1"), feature("Point", AT, b=3, a=1)],
    "got 'speed'": [BENT, feature("Point", AT, value=3), feature("Point", AT, speed=3)],
    "as in target='speed'": [BENT, *(feature("Point", AT, id=i, speed=i % 3) for i in range(6))],
    "got 'fast'": [BENT, feature("Point", AT, value="fast")],
    "[1, 2]": [BENT, feature("Point", AT, value=[1, 2])],
    "finite number or null": [BENT, feature("Point", AT, value=10**400)],
    "longitude and latitude, in this order": [BENT, feature("Point", [50.0, 8.0], value=3)],
    "must be numbers": [BENT, feature("Point", AT, value=3, edge=[], fraction=1)],
    "whole number": [BENT, feature("Point", AT, value=3, edge=0.5, fraction=0.5)],
    "got 1,111.95 m": [STRAIGHT, MIXED[3], MIXED[8]],
}


@pytest.mark.parametrize("word", FEATURES)
def test_bad_features_are_refused(word, file):
    message = refused(lambda: graphs.read_roads(file(FEATURES[word])), graphs.FileFormatError, word)
    assert "geojson" in message
    assert len(message) < 500


def test_bad_arguments_are_refused(file):
    for within in (True, 0, float("nan")):
        refused(
            lambda limit=within: graphs.read_roads(file(STREETS), within=limit), graphs.InvalidArgumentError, "within"
        )
    near = file([*STREETS, feature("Point", [25, 9], value=1)])
    word = "within 7.07107 of a road, got 9"  # a tenth of the diagonal
    refused(lambda: graphs.read_roads(near, metric="euclidean"), graphs.FileFormatError, word)
