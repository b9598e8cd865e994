"""Fields in files: values at places of surfaces and roads, and what is written of a model."""

import json
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from refusals import refused

import graphs
import rfgp
from rfgp import fields

pytestmark = pytest.mark.filterwarnings("ignore::graphs.LargeVarianceWarning")
BALL = trimesh.creation.icosphere(1)


@pytest.fixture
def ball(tmp_path):
    """A ball of 80 faces and 42 vertices in a PLY file."""
    BALL.export(tmp_path / "ball.ply")
    return tmp_path / "ball.ply"


@pytest.fixture
def table(tmp_path):
    def write(text):
        (tmp_path / "values.csv").write_text(text)
        return tmp_path / "values.csv"

    return write


def feature(kind, coordinates, number=None, **properties):
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "id": number, "properties": properties, "geometry": geometry}


TWO_ROADS = ((8.0, 50.0, 8.0, 50.01), (8.0, 50.01, 8.02, 50.01))


@pytest.fixture
def roads(tmp_path):
    """Return a function that writes lines and (place, properties) of sensors as GeoJSON."""

    def write(points, lines=TWO_ROADS, others=(), **members):
        features = [feature("LineString", [[a, b], [c, d]]) for a, b, c, d in lines]
        features += [feature("Point", place, **properties) for place, properties in points]
        content = {"type": "FeatureCollection", **members, "features": [*features, *others]}
        (tmp_path / "roads.geojson").write_text(json.dumps(content))
        return tmp_path / "roads.geojson"

    return write


def law_of(field):
    rng, count = np.random.default_rng(0), field.graph.num_nodes
    mean, deviation = rng.standard_normal(count), rng.uniform(0.1, 0.2, count)
    low, high = mean - 4 * deviation, mean + 4 * deviation
    return fields.NodePosterior(mean, deviation, len(field.values), 2 * deviation, low, high)


def of_kind(path, kind):
    content = json.loads(path.read_text())
    return [entry for entry in content["features"] if entry["geometry"]["type"] == kind]


# --- surfaces ------------------------------------------------------------------------------------


def test_without_values_a_mesh_has_its_normals(ball):
    faces, vertices = fields.read_field(ball), fields.read_mesh_field(ball, nodes="vertices")
    np.testing.assert_allclose(faces.values, BALL.face_normals[:, 2], atol=1e-6)
    np.testing.assert_allclose(vertices.values, BALL.vertex_normals[:, 2], atol=1e-6)
    assert (faces.on_faces, vertices.on_faces, faces.labels) == (True, False, list(range(80)))


@pytest.mark.parametrize(("column", "count"), [("face", 80), ("vertex", 42)])
def test_values_by_number(column, count, ball, table):
    field = fields.read_mesh_field(ball, table(f"{column},heat\n3,1.5\n7,2.5\n3,1.6\n"))
    assert (field.graph.num_nodes, field.on_faces, field.quantity) == (count, column == "face", "heat")
    assert (field.nodes.tolist(), field.values.tolist()) == ([3, 7, 3], [1.5, 2.5, 1.6])
    where = BALL.triangles_center if column == "face" else BALL.vertices
    np.testing.assert_allclose(field.coordinates[7], where[7], atol=1e-6)
    rows = fields.write_nodes(ball.with_name("n.csv"), field, law_of(field)).read_text().splitlines()
    assert float(rows[4].split(",")[4]) == pytest.approx(1.55)  # the mean of both observations of number 3
    weights = "edge-length" if column == "face" else "cotangent"
    graph = fields.read_mesh_field(ball, table(f"{column},heat\n3,1.5\n7,2\n"), weights=weights).graph
    expected = graphs.Graph.from_mesh(BALL, "faces" if column == "face" else "vertices", weights=weights)
    np.testing.assert_allclose(graph.adjacency.toarray(), expected.adjacency.toarray(), rtol=1e-5)


def test_values_by_place_go_to_the_nearest_face_or_vertex(ball, table):
    centers, places = 1.01 * BALL.triangles_center[[5, 60]], 1.01 * BALL.vertices[[7, 30]]
    field = fields.read_mesh_field(ball, table("z,X,y,heat\n" + "".join(f"{z},{x},{y},1\n" for x, y, z in centers)))
    assert field.nodes.tolist() == [5, 60]
    gp = fields.whittle_matern(field, 2, seed=0)  # a process between nodes reads places as they are
    np.testing.assert_allclose(fields.observed_inputs(gp, field), centers, rtol=1e-12)
    np.testing.assert_allclose(fields.node_inputs(gp, field), BALL.triangles_center, atol=1e-7)
    assert fields.observed_inputs(rfgp.GraphGP(field.graph, seed=0), field).tolist() == [5, 60]
    rows = "x,y,z,heat\n,,,\n" + "".join(f"{x},{y},{z},1\n" for x, y, z in places)
    options = {"nodes": "vertices", "table_options": {"missing": "drop"}}
    assert fields.read_mesh_field(ball, table(rows), **options).nodes.tolist() == [7, 30]


@pytest.mark.filterwarnings("ignore::graphs.DisconnectedWarning")
def test_places_go_to_a_long_face_although_centroids_of_others_are_nearer(table, tmp_path):
    small = [(8 * i + j, 8 * i + j + 1, 8 * i + j + 8) for i in range(7) for j in range(7)]
    many = [(x / 10, y / 10, 0.5) for x in range(8) for y in range(8)]
    mesh = trimesh.Trimesh([*many, (-1, -1, 0), (99, -1, 0), (-1, 9, 0)], [*small, (64, 65, 66)], process=False)
    mesh.export(tmp_path / "long.ply")
    field = fields.read_mesh_field(tmp_path / "long.ply", table("x,y,z,heat\n.3,.3,0,1\n1,2,0,3\n"))
    assert field.nodes.tolist() == [49, 49]


@pytest.mark.parametrize("nodes", ["faces", "vertices"])
def test_limit_of_distance_is_an_option(nodes, ball, table):
    values = table("x,y,z,heat\n0,0,1.5,1\n0,0,1,2\n")
    refused(lambda: fields.read_mesh_field(ball, values, nodes=nodes), rfgp.DataError, "row 0")
    assert len(fields.read_mesh_field(ball, values, nodes=nodes, within=0.6).nodes) == 2


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("face,heat\n80,1\n1,2\n", "face from 0 to 79, got 80"),
        ("face,heat\n1.5,1\n1,2\n", "got 1.5"),
        ("vertex,heat\n42,1\n1,2\n", "vertex from 0 to 41"),
        ("place,heat\n1,1\n2,2\n", "columns place, heat"),
        ("x,y,heat\n1,1,1\n", "x, y and z"),
        ("face,x,y,z,heat\n1,1,1,1,1\n", "face, or vertex"),
        ("x,X,y,z,heat\n1,1,1,1,1\n", "places"),
        ("x,y,z\n1,1,1\n", "column of values"),
        ("face,id,row\n" + "".join(f"{i},{i},{i + 7}\n" for i in range(6)), "identify rows"),
        ("face,heat\n1,hot\n2,3\n", "'heat'"),
        ("", "is empty"),
    ],
)
def test_bad_values_are_refused(text, word, ball, table):
    refused(lambda: fields.read_mesh_field(ball, table(text)), rfgp.DataError, word)


def test_other_bad_arguments_are_refused(ball, tmp_path):
    field = fields.read_field(ball)
    for call, error, word in (
        (lambda: fields.read_field(tmp_path / "a.xyz"), rfgp.InvalidArgumentError, "xyz"),
        (lambda: fields.read_mesh_field(ball, nodes="corners"), graphs.InvalidArgumentError, "corners"),
        (lambda: fields.read_mesh_field(ball, weights="cotangent"), graphs.InvalidArgumentError, "cotangent"),
        (lambda: fields.write_roads(tmp_path / "a.geojson", field, law_of(field)), rfgp.InvalidArgumentError, "roads"),
        (lambda: fields.write_mesh(tmp_path, replace(field, mesh=None), law_of(field)), rfgp.InvalidArgumentError, ""),
    ):
        refused(call, error, word)
    assert not list(tmp_path.glob("*.geojson"))


@pytest.mark.parametrize("column", ["face", "vertex"])
def test_written_meshes_have_colors_and_numbers(column, ball, table, tmp_path):
    field = fields.read_mesh_field(ball, table(f"{column},heat\n0,1\n1,2\n"))
    law = law_of(field)
    paths = fields.write_mesh(tmp_path, field, law)
    assert [path.name for path in paths] == ["mean.ply", "mean.glb", "sd.ply", "sd.glb"]
    for name, values in (("mean", law.mean), ("sd", law.std)):
        ply = trimesh.load(tmp_path / f"{name}.ply", process=False)
        colors = np.asarray(ply.visual.face_colors if column == "face" else ply.visual.vertex_colors)
        steps = [np.abs(np.diff(each.astype(int), axis=0)).mean() for each in (colors[np.argsort(values)], colors)]
        assert steps[0] < 0.5 * steps[1]  # neighbors in value have similar colors
        rows = ply.metadata["_ply_raw"][column]["data"]
        for key, figures in zip(("mean", "sd", "observed_sd", "low", "high"), law.figures, strict=True):
            np.testing.assert_allclose(np.asarray(rows[key]).ravel(), figures, rtol=1e-6)
        glb = trimesh.load(tmp_path / f"{name}.glb", force="mesh", process=False)
        np.testing.assert_allclose(glb.area, BALL.area, rtol=1e-5)
        corners = np.repeat(colors, 3, axis=0) if column == "face" else colors
        np.testing.assert_array_equal(glb.visual.vertex_colors, corners)


# --- roads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("snap", [0.0, 30.0])
def test_nodes_of_roads_are_positions_on_them(snap, roads):
    lines = ((8.0, 50.0, 8.0, 50.01), (8.0, 50.0102, 8.02, 50.01), (8.02, 50.01, 8.0, 50.0))
    points = [([8.0, 50.004], {"value": 1.0}), ([8.01, 50.0101], {"value": 2.0}), ([8.0, 50.004], {"value": 3.0})]
    field = fields.read_road_field(roads(points, lines), snap=snap)
    assert len(field.node_positions) == field.graph.num_nodes == (6 if snap == 0 else 5)
    network = graphs.RoadNetwork.from_roads(field.roads)
    np.testing.assert_allclose(network.point(field.node_positions), field.coordinates, atol=1e-9)
    assert field.observed_positions.tolist() == field.node_positions[field.graph.index(field.nodes)].tolist()


def test_sensors_without_a_value_have_a_result_and_those_at_one_place_share_a_node(roads):
    beyond = [8.0, 49.9995]
    points = [([8.0, 50.004], {"v": 1}), (beyond, {"v": 2}), (beyond, {"v": 4}), ([8.0, 50.007], {"v": None})]
    field = fields.read_road_field(roads(points), "v")
    assert (field.nodes.tolist(), field.values.tolist()) == (["sensor-0", "sensor-1", "sensor-1"], [1, 2, 4])
    assert field.graph.labels == ("crossing-1", "crossing-2", "sensor-0", "sensor-1", "sensor-2")
    law = law_of(field)
    sensors = of_kind(fields.write_roads(roads([]).with_name("out.geojson"), field, law), "Point")
    at = field.graph.index(["sensor-0", "sensor-1", "sensor-1", "sensor-2"])
    assert [entry["properties"]["gp_mean"] for entry in sensors] == law.mean[at].tolist()


def test_roads_are_written_with_results_and_read_at_the_same_positions(roads, tmp_path):
    points = [
        ([8.0, 50.004], {"speed": 30.0, "name": "A", "edge": 0, "fraction": 0.4}),
        ([8.01, 50.0101], {"speed": 20.0, "name": "B"}),
        ([8.005, 50.0099], {"speed": None, "name": "C"}),
    ]
    field = fields.read_road_field(roads(points), "speed")
    graph, law = field.graph, law_of(field)
    path = fields.write_roads(tmp_path / "out.geojson", field, law)
    again = fields.read_road_field(path, "speed")
    np.testing.assert_array_equal(again.values, field.values)
    before, after = (one.coordinates[one.graph.index(one.nodes)] for one in (field, again))
    np.testing.assert_allclose(before, after, atol=2e-5)  # a thousandth of a segment from its end
    written = [entry["properties"] for entry in of_kind(path, "Point")]
    assert [p["name"] for p in written] == ["A", "B", "C"]
    assert (written[0]["source_edge"], written[0]["source_fraction"], written[0]["speed"]) == (0, 0.4, 30.0)
    position = graph.index(["sensor-1"])[0]
    assert [written[1][name] for name in fields.RESULTS] == [figures[position] for figures in law.figures]
    place = {tuple(xy): i for i, xy in enumerate(graph.coordinates.tolist())}
    for line in of_kind(path, "LineString"):
        ends = [place[tuple(line["geometry"]["coordinates"][i])] for i in (0, -1)]
        assert line["properties"]["gp_mean"] == pytest.approx(law.mean[ends].mean())


def test_roads_keep_ids_properties_and_crs(roads, tmp_path):
    crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::25832"}}
    others = [
        feature("LineString", [[0, 0], [50, 0], [100, 0]], "way/1", name="High Street", lanes=["2", "3"]),
        feature("LineString", [[50, -40], [50, 0], [50, 40]], 2, name=None),
        feature("Point", [25, 0], "s1", speed=30, edge=None, source_edge="mine"),
        feature("Point", [50, 20], speed=40),
        feature("LineString", [[100, 0], [120, 9], [120, -9], [100, 0]], "ring"),
    ]
    field = fields.read_road_field(roads([], (), others, name="town", crs=crs), "speed")
    written = fields.write_roads(tmp_path / "o.geojson", field, law_of(field))
    content = json.loads(written.read_text())
    assert (content["name"], content["crs"]) == ("town", crs)
    own = [entry["properties"] for entry in of_kind(written, "LineString") if entry["properties"]["source_edge"] == 0]
    assert [(p["source_id"], p["name"], p["lanes"]) for p in own] == 3 * [("way/1", "High Street", ["2", "3"])]
    assert [(p["source_begin"], p["source_end"]) for p in own] == [(0, 0.25), (0.25, 0.5), (0.5, 1)]
    assert sum(p["length_m"] for p in own) == pytest.approx(100)
    field = fields.read_road_field(roads([], (), others), "speed", "euclidean")
    written = fields.write_roads(tmp_path / "o.geojson", field, law_of(field))
    assert "length_m" not in of_kind(written, "LineString")[0]["properties"]  # in unknown units
    assert fields.write_nodes(tmp_path / "n.csv", field, law_of(field)).read_text().startswith("node,x,y,observed")


def test_several_properties_are_fields_of_one_graph(roads):
    path = roads([([8.0, 50.004], {"value": 1, "noise": 60}), ([8.01, 50.01], {"value": 2, "noise": None})])
    found = fields.read_road_fields(path, ["value", "noise"])
    assert found["value"].graph is found["noise"].graph
    assert (found["noise"].values.tolist(), found["noise"].nodes.tolist()) == ([60], ["sensor-0"])
    refused(lambda: fields.read_road_fields(path, []), rfgp.InvalidArgumentError, "targets")


@pytest.mark.parametrize(
    ("properties", "skip", "word"),
    [
        ([{"speed": 3.0}, {}], True, "target='speed'"),
        ([{"value": None}, {"value": "fast"}], True, "no sensor has a number"),
        ([{"value": None}], False, "no sensor has a number"),
        ([], False, "no sensors"),
    ],
)
@pytest.mark.filterwarnings("ignore::graphs.SkippedFeaturesWarning")
def test_roads_without_measurements_are_refused(properties, skip, word, roads):
    path = roads([([8.0, 50.004], entry) for entry in properties])
    refused(lambda: fields.read_road_field(path, skip=skip), rfgp.DataError, word)


def test_roads_of_a_result_are_not_written_over_it(roads, tmp_path):
    field = fields.read_road_field(roads([([8.0, 50.004], {"gp_mean": 1.0})]), "gp_mean")
    write = fields.write_roads
    refused(lambda: write(tmp_path / "o.geojson", field, law_of(field)), rfgp.InvalidArgumentError, "name of a result")


def test_disconnected_fields_warn_with_a_remedy(roads, tmp_path):
    loose = ((8.0, 50.0, 8.0, 50.01), (8.0, 50.010001, 8.02, 50.01), (8.3, 50.0, 8.4, 50.0))
    path = roads([([8.0, 50.004], {"value": 1}), ([8.01, 50.01], {"value": 2})], loose)
    words = "The roads have 3 connected .* One component has no obs.*snap=1, would leave 2"
    with pytest.warns(graphs.DisconnectedWarning, match=words):
        fields.read_road_field(path)
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components") as caught:
        field = fields.read_road_field(path, snap=1.0)
    assert "snap" not in str(caught[0].message)
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components"):  # what is written meets exactly
        again = fields.read_road_field(fields.write_roads(tmp_path / "out.geojson", field, law_of(field)))
    assert again.graph.num_nodes == field.graph.num_nodes
    soup = trimesh.Trimesh(np.random.default_rng(0).normal(size=(60, 3)), np.arange(60).reshape(20, 3))
    soup.export(tmp_path / "loose.obj")
    with pytest.warns(graphs.DisconnectedWarning, match="No two of the mesh's 20 faces share an edge.* merge close"):
        fields.read_field(tmp_path / "loose.obj")
