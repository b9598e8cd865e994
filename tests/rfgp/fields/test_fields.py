import csv
import json

import numpy as np
import pytest
import trimesh

import graphs
import rfgp
from rfgp import datasets, fields
from rfgp.palette import COLOR_MAPS, color_range

pytestmark = pytest.mark.filterwarnings("ignore::graphs.LargeVarianceWarning")


@pytest.fixture
def ball(tmp_path):
    """A ball of 80 faces and 42 vertices in a PLY file."""
    mesh = trimesh.creation.icosphere(subdivisions=1)
    mesh.export(tmp_path / "ball.ply")
    return tmp_path / "ball.ply", mesh


def write(path, text):
    path.write_text(text)
    return path


def test_without_values_a_mesh_has_its_normals(ball):
    path, mesh = ball
    field = fields.read_field(path)
    np.testing.assert_allclose(field.values, mesh.face_normals[:, 2], atol=1e-6)
    assert field.on_faces
    assert field.labels == list(range(80))


@pytest.mark.parametrize(("column", "count"), [("face", 80), ("vertex", 42)])
def test_values_by_number(ball, tmp_path, column, count):
    path, mesh = ball
    field = fields.read_mesh_field(path, write(tmp_path / "v.csv", f"{column},heat\n3,1.5\n7,2.5\n3,1.6\n"))
    assert field.graph.num_nodes == count
    assert field.on_faces == (column == "face")
    assert field.quantity == "heat"
    assert field.nodes.tolist() == [3, 7, 3]
    np.testing.assert_array_equal(field.values, [1.5, 2.5, 1.6])
    where = mesh.triangles_center if column == "face" else mesh.vertices
    np.testing.assert_allclose(field.coordinates[7], where[7], atol=1e-6)


@pytest.mark.parametrize(
    ("properties", "skip", "message"),
    [
        (
            [{"speed": 3.0}, {}],
            True,
            "no sensor has the property 'value'; they have numbers in 'speed'.*target='speed'",
        ),
        ([{"value": None}, {"value": "fast"}], True, "no sensor has a number as its 'value'. There is nothing to"),
        ([{"value": None}], False, "no sensor has a number as its 'value'"),
        ([], False, "there are no sensors. There is nothing to interpolate"),
    ],
)
@pytest.mark.filterwarnings("ignore::graphs.SkippedFeaturesWarning")
def test_roads_on_which_nothing_was_measured_are_refused(tmp_path, properties, skip, message):
    path = roads_file(tmp_path / "r.geojson", [([8.0, 50.004], entry) for entry in properties])
    with pytest.raises(rfgp.DataError, match=message):
        fields.read_road_field(path, skip=skip)


def test_edges_may_be_weighted(ball, tmp_path):
    path, mesh = ball
    values = write(tmp_path / "v.csv", "vertex,heat\n3,1.5\n7,2.5\n")
    for weights in ("edge-length", "cotangent"):
        graph = fields.read_mesh_field(path, values, weights=weights).graph
        expected = graphs.Graph.from_mesh(mesh, nodes="vertices", weights=weights).adjacency
        np.testing.assert_allclose(graph.adjacency.toarray(), expected.toarray(), rtol=1e-5)
    assert not np.allclose(graph.adjacency.data, 1)
    with pytest.raises(graphs.InvalidArgumentError, match="cotangent"):
        fields.read_mesh_field(path, weights="cotangent")


def test_values_by_place_go_to_the_nearest_face(ball, tmp_path):
    path, mesh = ball
    centers = mesh.triangles_center
    rows = "".join(f"{z},{x},{y},{i}\n" for i, (x, y, z) in zip((5, 60), 1.01 * centers[[5, 60]], strict=True))
    field = fields.read_mesh_field(path, write(tmp_path / "v.csv", "z,x,y,heat\n" + rows))
    assert field.nodes.tolist() == [5, 60]


def test_the_limit_of_places_is_an_option(ball, tmp_path):
    """On faces by the surface, on vertices too: the middle of a large face is far from its corners."""
    values = write(tmp_path / "v.csv", "x,y,z,heat\n0,0,1.5,1\n0,0,1,2\n")
    for nodes in ("faces", "vertices"):
        with pytest.raises(rfgp.DataError, match="row 0"):
            fields.read_mesh_field(ball[0], values, nodes=nodes)
        assert len(fields.read_mesh_field(ball[0], values, nodes=nodes, within=0.6).nodes) == 2
    trimesh.Trimesh([(0, 0, 0), (9, 0, 0), (9, 9, 0), (0, 9, 0)], [(0, 1, 2), (0, 2, 3)]).export(
        tmp_path / "square.ply"
    )
    write(values, "x,y,z,heat\n4.5,4.5,0,1\n0,0,0,2\n")
    assert fields.read_mesh_field(tmp_path / "square.ply", values, nodes="vertices").nodes.shape == (2,)


def test_the_nearest_face_may_have_a_distant_centroid(tmp_path):
    """A long face beside many small ones, whose centroids are all nearer to a point that lies on the long one."""
    fan = [(x / 10, y / 10, 0.5) for x in range(8) for y in range(8)]
    small = [(8 * i + j, 8 * i + j + 1, 8 * i + j + 8) for i in range(7) for j in range(7)]
    mesh = trimesh.Trimesh([*fan, (-1, -1, 0), (99, -1, 0), (-1, 9, 0)], [*small, (64, 65, 66)], process=False)
    mesh.export(tmp_path / "m.ply")
    with pytest.warns(graphs.DisconnectedWarning):
        field = fields.read_mesh_field(
            tmp_path / "m.ply", write(tmp_path / "v.csv", "x,y,z,heat\n.3,.3,0,1\n1,2,0,3\n")
        )
    assert field.nodes.tolist() == [49, 49]


@pytest.mark.parametrize("snap", [0.0, 30.0])
def test_nodes_of_roads_are_positions_on_them(tmp_path, snap):
    lines = ((8.0, 50.0, 8.0, 50.01), (8.0, 50.0102, 8.02, 50.01), (8.02, 50.01, 8.0, 50.0))
    points = [([8.0, 50.004], {"value": 1.0}), ([8.01, 50.0101], {"value": 2.0}), ([8.0, 50.004], {"value": 3.0})]
    field = fields.read_road_field(roads_file(tmp_path / "r.geojson", points, lines), snap=snap)
    network = graphs.RoadNetwork.from_roads(field.roads)
    assert len(field.node_positions) == field.graph.num_nodes == (6 if snap == 0 else 5)
    found = network.point(field.node_positions)
    np.testing.assert_allclose(found, field.coordinates, atol=1e-9)
    assert field.observed_positions.tolist() == field.node_positions[field.graph.index(field.nodes)].tolist()
    planted = np.roll(field.node_positions, 1, axis=0)
    assert not np.allclose(network.point(planted), field.coordinates, atol=1e-9)


def test_a_process_between_nodes_reads_places_as_they_are(ball, tmp_path):
    path, mesh = ball
    places = mesh.triangles_center[[5, 60]] + [[0.01, 0, 0], [0, 0, 0.02]]
    rows = "".join(f"{z},{x},{y},{i}\n" for i, (x, y, z) in enumerate(places))
    field = fields.read_mesh_field(path, write(tmp_path / "v.csv", "z,x,y,heat\n" + rows))
    gp = fields.whittle_matern(field, 2, seed=0)
    np.testing.assert_array_equal(fields.observed_inputs(gp, field), places)
    np.testing.assert_allclose(fields.node_inputs(gp, field), mesh.triangles_center, atol=1e-7)  # as the file has them
    assert fields.observed_inputs(rfgp.GraphGP(field.graph, seed=0), field).tolist() == [5, 60]


def test_a_field_may_lie_on_vertices_by_place_or_by_normals(ball, tmp_path):
    path, mesh = ball
    places = 1.01 * mesh.vertices[[7, 30]]
    rows = "".join(f"{x},{y},{z},{i}\n" for i, (x, y, z) in zip((7, 30), places, strict=True))
    values = write(tmp_path / "v.csv", "x,y,z,heat\n,,,\n" + rows)
    options = {"nodes": "vertices", "weights": "cotangent", "table_options": {"missing": "drop"}}
    field = fields.read_mesh_field(path, values, **options)
    assert (field.on_faces, field.nodes.tolist()) == (False, [7, 30])
    assert not np.allclose(field.graph.adjacency.data, 1)
    field = fields.read_mesh_field(path, nodes="vertices")
    np.testing.assert_allclose(field.values, mesh.vertex_normals[:, 2], atol=1e-6)
    with pytest.raises(rfgp.DataError, match="in a column vertex, or in x, y and z"):
        fields.read_mesh_field(path, write(tmp_path / "f.csv", "face,heat\n1,2\n3,4\n"), nodes="vertices")
    far = write(tmp_path / "far.csv", "x,y,z,heat\n,,,\n0,0,1,1\n9,9,9,2\n")
    with pytest.raises(rfgp.DataError, match=r"row 2 at a distance of 14\.\d+ .rows count from 0"):
        fields.read_mesh_field(path, far, nodes="vertices", table_options={"missing": "drop"})
    with pytest.raises(graphs.InvalidArgumentError, match="nodes"):
        fields.read_mesh_field(path, nodes="corners")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("face,heat\n80,1\n1,2\n", "row 0 must name a face from 0 to 79, got 80"),
        ("face,heat\n1,1\n-1,2\n", "got -1"),
        ("face,heat\n1.5,1\n1,2\n", r"got 1.5"),
        ("vertex,heat\n42,1\n1,2\n", "must name a vertex from 0 to 41, got 42"),
        ("x,y,z,heat\n0,0,1,1\n9,9,9,2\n", "within .* of the surface, got row 1 .* same units"),
        ("place,heat\n1,1\n2,2\n", "must have places of values.* got the columns place, heat"),
        ("face,heat\n1,hot\n2,3\n", "'heat'"),
        ("face,heat\n1,\n2,3\n", "'heat'"),
        ("", "is empty"),
    ],
)
def test_bad_values_are_named(ball, tmp_path, text, message):
    with pytest.raises(rfgp.DataError, match=message):
        fields.read_mesh_field(ball[0], write(tmp_path / "v.csv", text))


def test_sensors_without_a_value_are_predicted_not_observed(tmp_path):
    point = {"type": "Point", "coordinates": [8.0, 50.005]}
    features = [
        {"type": "Feature", "properties": {}, "geometry": {"type": "LineString", "coordinates": [[8, 50], [8, 50.01]]}},
        {"type": "Feature", "properties": {"speed": None}, "geometry": point},
        {"type": "Feature", "properties": {"speed": 3}, "geometry": {**point, "coordinates": [8.0, 50.002]}},
    ]
    path = write(tmp_path / "r.geojson", json.dumps({"type": "FeatureCollection", "features": features}))
    field = fields.read_road_field(path, "speed")
    assert field.nodes.tolist() == ["sensor-1"]
    assert field.values.tolist() == [3]
    assert "sensor-0" in field.labels
    assert field.quantity == "speed"


def test_unknown_endings_are_named(tmp_path):
    with pytest.raises(rfgp.InvalidArgumentError, match="ending of path"):
        fields.read_field(tmp_path / "a.xyz")


# --- out again -----------------------------------------------------------------------------------


def law_of(field):
    rng = np.random.default_rng(0)
    count = field.graph.num_nodes
    mean, deviation = rng.standard_normal(count), rng.uniform(0.1, 0.2, count)
    return fields.NodePosterior(
        mean, deviation, len(field.values), 2 * deviation, mean - 4 * deviation, mean + 4 * deviation
    )


@pytest.mark.parametrize("column", ["face", "vertex"])
def test_coloured_meshes_read_back(ball, tmp_path, column):
    field = fields.read_mesh_field(ball[0], write(tmp_path / "v.csv", f"{column},heat\n0,1\n1,2\n"))
    law = law_of(field)
    paths = fields.write_mesh(tmp_path, field, law)
    assert [path.name for path in paths] == ["mean.ply", "mean.glb", "sd.ply", "sd.glb"]
    from matplotlib import colormaps

    for name, values in (("mean", law.mean), ("sd", law.std)):
        low, high = color_range(values)
        expected = colormaps[COLOR_MAPS[name]](np.clip((values - low) / (high - low), 0, 1), bytes=True)
        ply = trimesh.load(tmp_path / f"{name}.ply", process=False)
        found = ply.visual.face_colors if column == "face" else ply.visual.vertex_colors
        np.testing.assert_array_equal(found, expected)
        rows = ply.metadata["_ply_raw"][column]["data"]
        np.testing.assert_allclose(np.asarray(rows["mean"]).ravel(), law.mean, rtol=1e-6)
        for key, figures in zip(("mean", "sd", "observed_sd", "low", "high"), law.figures, strict=True):
            np.testing.assert_allclose(np.asarray(rows[key]).ravel(), figures, rtol=1e-6)
        glb = trimesh.load(tmp_path / f"{name}.glb", force="mesh", process=False)
        np.testing.assert_allclose(glb.area, ball[1].area, rtol=1e-5)
        corners = np.repeat(expected, 3, axis=0) if column == "face" else expected
        np.testing.assert_array_equal(glb.visual.vertex_colors, corners)


def roads_file(path, points, lines=((8.0, 50.0, 8.0, 50.01), (8.0, 50.01, 8.02, 50.01))):
    features = [
        {"type": "Feature", "properties": {}, "geometry": {"type": "LineString", "coordinates": [[a, b], [c, d]]}}
        for a, b, c, d in lines
    ]
    features += [
        {"type": "Feature", "properties": properties, "geometry": {"type": "Point", "coordinates": place}}
        for place, properties in points
    ]
    return write(path, json.dumps({"type": "FeatureCollection", "features": features}))


def test_roads_out_are_geojson(tmp_path):
    roads = datasets.make_roads()
    values = roads.values.copy()
    values[3] = np.nan
    roads = roads._replace(values=values)
    graph = graphs.Graph.from_roads(*roads[:3])
    known = np.flatnonzero(np.isfinite(values))
    field = fields.Field(graph, np.array([f"sensor-{i}" for i in known], object), values[known], "mph", roads=roads)
    law = law_of(field)
    content = json.loads(fields.write_roads(tmp_path / "out.geojson", field, law).read_text())
    lines = [f for f in content["features"] if f["geometry"]["type"] == "LineString"]
    points = [f for f in content["features"] if f["geometry"]["type"] == "Point"]
    assert len(points) == len(values)
    assert points[3]["properties"]["mph"] is None
    position = graph.index(["sensor-7"])[0]
    assert points[7]["properties"]["gp_mean"] == law.mean[position]
    for name, figures in zip(fields.RESULTS, law.figures, strict=True):
        assert points[7]["properties"][name] == figures[position]
    np.testing.assert_array_equal(points[7]["geometry"]["coordinates"], graph.coordinates[position])
    place = {tuple(xy): i for i, xy in enumerate(graph.coordinates.tolist())}
    for line in lines:
        ends = [place[tuple(line["geometry"]["coordinates"][i])] for i in (0, -1)]
        assert line["properties"]["gp_mean"] == pytest.approx(law.mean[ends].mean())
    assert len(lines) == len(roads.lines) + len(values)


def test_written_values_are_read_at_the_same_positions(tmp_path):
    points = [
        ([8.0, 50.004], {"speed": 30.0, "name": "A", "edge": 0, "fraction": 0.4}),
        ([8.01, 50.0101], {"speed": 20.0, "name": "B"}),
        ([8.005, 50.0099], {"speed": None, "name": "C"}),
    ]
    field = fields.read_road_field(roads_file(tmp_path / "r.geojson", points), "speed")
    law = law_of(field)
    again = fields.read_road_field(fields.write_roads(tmp_path / "out.geojson", field, law), "speed")
    np.testing.assert_array_equal(again.values, field.values)
    for before, after in zip(field.nodes, again.nodes, strict=True):
        a, b = field.coordinates[field.graph.index([before])[0]], again.coordinates[again.graph.index([after])[0]]
        np.testing.assert_allclose(a, b, atol=2e-5)  # a thousandth of a segment from its end
    written = [
        f["properties"]
        for f in json.loads((tmp_path / "out.geojson").read_text())["features"]
        if f["properties"].get("name")
    ]
    assert [p["name"] for p in written] == ["A", "B", "C"]
    assert (written[0]["source_edge"], written[0]["source_fraction"], written[0]["speed"]) == (0, 0.4, 30.0)


def test_a_value_with_the_name_of_a_result_is_refused(tmp_path):
    field = fields.read_road_field(roads_file(tmp_path / "r.geojson", [([8.0, 50.004], {"gp_mean": 1.0})]), "gp_mean")
    with pytest.raises(rfgp.InvalidArgumentError, match="name of a result"):
        fields.write_roads(tmp_path / "out.geojson", field, law_of(field))


def test_sensors_at_one_place_share_a_node(tmp_path):
    beyond = [8.0, 49.9995]
    points = [
        ([8.0, 50.004], {"value": 1}),
        (beyond, {"value": 2}),
        (beyond, {"value": 4}),
        ([8.0, 50.004], {"value": 3}),
    ]
    field = fields.read_road_field(roads_file(tmp_path / "r.geojson", points))
    assert field.nodes.tolist() == ["sensor-0", "sensor-1", "sensor-1", "sensor-0"]
    assert field.values.tolist() == [1, 2, 4, 3]
    assert field.graph.labels == ("crossing-1", "crossing-2", "sensor-0", "sensor-1")  # one at the end of a road
    gp = rfgp.GraphGP(field.graph).condition(list(field.nodes), field.values)
    content = json.loads(
        fields.write_roads(tmp_path / "o.geojson", field, fields.posterior_at_nodes(gp, field)).read_text()
    )
    means = [f["properties"]["gp_mean"] for f in content["features"] if f["geometry"]["type"] == "Point"]
    assert means[0] == means[3] != means[1] == means[2]


def test_coordinates_in_a_plane(tmp_path):
    lines = ((500_000, 5_000_000, 500_100, 5_000_000), (500_100, 5_000_000, 500_100, 5_000_300))
    path = roads_file(tmp_path / "r.geojson", [([500_050, 5_000_007], {"value": 1})], lines)
    field = fields.read_road_field(path, metric="euclidean")
    assert fields.write_nodes(tmp_path / "n.csv", field, law_of(field)).read_text().startswith("node,x,y,observed")
    assert field.roads.sensor_fractions[0] == pytest.approx(0.5)
    assert sorted(segment.length for segment in field.segments()) == pytest.approx([50, 50, 300])


def test_roads_come_back_with_ids_properties_and_crs(tmp_path):
    def feature(kind, coordinates, number=None, **properties):
        geometry = {"type": kind, "coordinates": coordinates}
        return {"type": "Feature", "id": number, "properties": properties, "geometry": geometry}

    crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::25832"}}
    features = [
        feature("LineString", [[0, 0], [50, 0], [100, 0]], "way/1", name="High Street", lanes=["2", "3"]),
        feature("LineString", [[50, -40], [50, 0], [50, 40]], 2, name=None),
        feature("Point", [25, 0], "s1", speed=30, huge=1e400, edge=None, source_edge="mine"),
        feature("Point", [50, 20], speed=40),
        feature("LineString", [[100, 0], [120, 9], [120, -9], [100, 0]], "ring"),
    ]
    path = tmp_path / "r.geojson"
    content = {"type": "FeatureCollection", "name": "town", "crs": crs, "features": features}
    path.write_text(json.dumps(content).replace("Infinity", "1e400"))
    field = fields.read_road_field(path, "speed")
    written = fields.write_roads(tmp_path / "o.geojson", field, law_of(field))
    content = json.loads(written.read_text())
    assert (content["name"], content["crs"]) == ("town", crs)
    roads = [f["properties"] for f in content["features"] if f["geometry"]["type"] == "LineString"]
    own = [p for p in roads if p["source_edge"] == 0]
    assert [(p["source_id"], p["name"], p["lanes"]) for p in own] == 3 * [("way/1", "High Street", ["2", "3"])]
    assert [(p["source_begin"], p["source_end"]) for p in own] == [(0, 0.25), (0.25, 0.5), (0.5, 1)]
    assert sum(p["length_m"] for p in own) == pytest.approx(100)
    assert [p["source_id"] for p in roads if p["source_edge"] == 2] == ["ring"]
    (sensor,) = [f for f in content["features"] if f.get("id") == "s1"]
    assert (sensor["properties"]["huge"], sensor["properties"]["source_edge"]) == (None, None)
    again = fields.read_road_field(written, "speed")
    assert again.roads.metric == "euclidean"
    assert again.graph.num_edges == field.graph.num_edges
    del content["crs"]
    path.write_text(json.dumps(content))
    field = fields.read_road_field(path, "speed", "euclidean")
    written = fields.write_roads(tmp_path / "o.geojson", field, law_of(field))
    assert "length_m" not in json.loads(written.read_text())["features"][0]["properties"]


def test_several_properties_are_fields_of_one_graph(tmp_path):
    points = [([8.0, 50.004], {"value": 1, "noise": 60}), ([8.01, 50.01], {"value": 2, "noise": None})]
    path = roads_file(tmp_path / "r.geojson", points)
    found = fields.read_road_fields(path, ["value", "noise"])
    alone = fields.read_road_field(path, "noise")
    assert found["value"].graph is found["noise"].graph
    assert (found["noise"].values.tolist(), found["noise"].nodes.tolist()) == ([60], alone.nodes.tolist())
    with pytest.raises(graphs.FileFormatError, match="'speed'"):
        fields.read_road_fields(path, ["value", "speed"])
    with pytest.raises(rfgp.InvalidArgumentError, match="targets"):
        fields.read_road_fields(path, [])


LOOSE = ((8.0, 50.0, 8.0, 50.01), (8.0, 50.010001, 8.02, 50.01), (8.3, 50.0, 8.4, 50.0))
"""Two roads that miss each other by a millionth of a degree, and one far away."""


def test_disconnected_graph_issues_a_warning(tmp_path):
    path = roads_file(tmp_path / "r.geojson", [([8.0, 50.004], {"value": 1}), ([8.01, 50.01], {"value": 2})], LOOSE)
    with pytest.warns(
        graphs.DisconnectedWarning,
        match="3 connected .* One component has no obs.* Roads meet only at shared points.*snap=1, would leave 2",
    ):
        fields.read_road_field(path)
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components") as caught:
        field = fields.read_road_field(path, snap=1.0)
    assert "snap" not in str(caught[0].message)
    law = law_of(field)
    segments = field.segments()
    assert {segment.source for segment in segments} | {segment.target for segment in segments} == set(
        range(field.graph.num_nodes)
    )
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components"):  # what is written meets exactly
        again = fields.read_road_field(fields.write_roads(tmp_path / "out.geojson", field, law))
    assert again.graph.num_nodes == field.graph.num_nodes
    two = trimesh.util.concatenate([trimesh.creation.box(), trimesh.creation.box().apply_translation([3, 0, 0])])
    two.export(tmp_path / "two.ply")
    with pytest.warns(
        graphs.DisconnectedWarning, match=r"mesh has 2 connected components.* largest with 12 of 24 nodes"
    ):
        fields.read_field(tmp_path / "two.ply")
    loose = trimesh.Trimesh(np.random.default_rng(0).normal(size=(60, 3)), np.arange(60).reshape(20, 3))
    loose.export(tmp_path / "loose.obj")
    with pytest.warns(graphs.DisconnectedWarning, match="No two of the mesh's 20 faces share an edge.* merge close"):
        fields.read_field(tmp_path / "loose.obj")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.obj", "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nv 2 0 0\nf 1 2 3 4\nf 2 5 3\n"),
        ("q.off", "OFF\n5 2 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n2 0 0\n4 0 1 2 3\n3 1 4 2\n"),
    ],
)
def test_face_numbers_of_polygons_are_refused(name, text, tmp_path):
    path, values = write(tmp_path / name, text), write(tmp_path / "v.csv", "face,heat\n0,1\n1,2\n")
    with pytest.raises(rfgp.DataError, match="polygons, which are 3 triangles"):
        fields.read_mesh_field(path, values)
    write(values, "x,y,z,heat\n0.9,0.2,0,1\n1.6,0.2,0.05,2\n")
    assert len(fields.read_mesh_field(path, values).nodes) == 2


def test_nodes_out_are_a_table(ball, tmp_path):
    field = fields.read_mesh_field(ball[0], write(tmp_path / "v.csv", "face,heat\n3,1.5\n3,2.5\n7,1\n"))
    law = law_of(field)
    with fields.write_nodes(tmp_path / "nodes.csv", field, law).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 80
    assert [float(row["mean"]) for row in rows] == law.mean.tolist()
    assert [float(row["x"]) for row in rows] == field.coordinates[:, 0].tolist()
    assert {row["node"]: row["observed"] for row in rows if row["observed"]} == {"3": "2.0", "7": "1.0"}


def test_the_wrong_kind_of_field_is_refused(ball, tmp_path):
    field = fields.read_field(ball[0])
    with pytest.raises(rfgp.InvalidArgumentError, match="on roads"):
        fields.write_roads(tmp_path / "a.geojson", field, law_of(field))
    from dataclasses import replace

    with pytest.raises(rfgp.InvalidArgumentError, match="must be on a mesh"):
        fields.write_mesh(tmp_path, replace(field, mesh=None), law_of(field))
    assert not list(tmp_path.glob("*.geojson"))


def test_distribution_at_all_nodes_matches_the_model(ball):
    field = fields.read_field(ball[0])
    gp = rfgp.GraphGP(field.graph).fit(field.nodes[::2], field.values[::2])
    law = fields.posterior_at_nodes(gp, field)
    one = gp.predict([field.labels[11]])
    assert law.mean[11] == pytest.approx(one.mean[0])
    assert law.std[11] ** 2 == pytest.approx(one.variance[0])
    assert law.num_observed == 40
