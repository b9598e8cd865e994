"""Fields on meshes from files: the file's own numbers, several columns, properties, and formats of simulations."""

import csv
import sys
from functools import partial

import numpy as np
import pytest
import trimesh
from refusals import refused

import graphs
import rfgp
from rfgp import fields
from rfgp import kernels as k

CUBE = trimesh.creation.box()


def write(path, text):
    path.write_text(text)
    return path


def rows_of(field, path, law=None):
    mean, deviation = np.arange(field.graph.num_nodes) + 0.25, np.full(field.graph.num_nodes, 0.5)
    law = law or fields.NodePosterior(mean, deviation, len(field.values), 2 * deviation, mean - 2, mean + 2)
    with fields.write_nodes(path, field, law).open() as stream:
        return list(csv.DictReader(stream))


def file_of(kind, folder):
    """Return a file of a cube with repeated or loose vertices, and the places of its own vertices, in its order."""
    path = folder / f"c.{kind}"
    if kind == "obj":  # vertices have two normals each, in an order of its own; the first is on no face
        places = [(5.0, 5.0, 5.0), *CUBE.vertices[::-1].tolist()]
        text = "".join(f"v {x} {y} {z}\n" for x, y, z in places) + "vn 0 0 1\nvn 0 1 0\n"
        text += "".join(f"f {' '.join(f'{9 - c}//{1 + i % 2}' for c in face)}\n" for i, face in enumerate(CUBE.faces))
        return write(path, text), np.array(places)
    CUBE.export(path)
    return path, CUBE.vertices[CUBE.faces].reshape(-1, 3)


@pytest.mark.parametrize("kind", ["stl", "obj"])
@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning")
def test_vertex_numbers_are_those_of_the_file(kind, tmp_path):
    path, places = file_of(kind, tmp_path)
    seen = [i for i, place in enumerate(places) if np.abs(place).max() < 1]
    text = "vertex,heat\n" + "".join(f"{i},{i}\n" for i in seen)
    field = fields.read_mesh_field(path, write(tmp_path / "v.csv", text))
    assert field.graph.num_nodes == 8
    np.testing.assert_allclose(field.coordinates[field.nodes], places[seen], atol=1e-6)
    rows = rows_of(field, tmp_path / "nodes.csv")
    assert [int(row["node"]) for row in rows] == list(range(len(places)))
    for i in seen:
        np.testing.assert_allclose([float(rows[i][axis]) for axis in "xyz"], places[i], atol=1e-6)
        assert float(rows[i]["mean"]) == field.node_of_element[i] + 0.25
    if kind != "stl":
        assert set(list(rows[0].values())[1:]) == {""}
        write(tmp_path / "v.csv", "vertex,heat\n0,1\n3,2\n")
        refused(lambda: fields.read_mesh_field(path, tmp_path / "v.csv"), rfgp.DataError, "1 on no face: 0")


WALL = "ply\nformat ascii 1.0\nelement vertex 6\nproperty float x\nproperty float y\nproperty float z\n"
WALL += "element face 5\nproperty list uchar int vertex_indices\nend_header\n"
WALL += "0 0 0\n2 0 0\n2 1 0\n1 1 0\n0 1 0\n9 1 0\n3 2 3 4\n3 0 1 2\n3 0 2 4\n3 2 4 5\n3 0 0 1\n"
"""Three faces have no area: one has vertex 3 on a side of the others, one vertex 5 far beyond, one a corner twice."""


@pytest.mark.filterwarnings("ignore::graphs.DegenerateFacesWarning", "ignore::graphs.DisconnectedWarning")
@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning")
def test_faces_without_area_and_loose_vertices_keep_the_numbers_of_others(tmp_path):
    path, values = write(tmp_path / "w.ply", WALL), tmp_path / "v.csv"
    field = fields.read_mesh_field(path, write(values, "face,heat\n1,1\n2,2\n"))
    assert field.nodes.tolist() == [0, 1]
    assert [row["mean"] for row in rows_of(field, tmp_path / "nodes.csv")] == ["", "0.25", "1.25", "", ""]
    write(values, "face,heat\n3,1\n1,2\n0,2\n")
    refused(lambda: fields.read_mesh_field(path, values), rfgp.DataError, "got 2 without area: 0, 3")
    field = fields.read_mesh_field(path, write(values, "vertex,heat\n0,1\n3,2\n"))
    assert field.node_of_element.tolist() == [0, 1, 2, 3, 4, -1]
    gp = fields.whittle_matern(field, 2, seed=0)
    law = fields.posterior_at_nodes(gp.condition(fields.observed_inputs(gp, field), field.values), field)
    np.testing.assert_allclose(law.mean[3], law.mean[[2, 4]].mean(), rtol=1e-9)  # in the middle of a side


@pytest.fixture
def ball(tmp_path):
    trimesh.creation.icosphere(1).export(tmp_path / "ball.ply")
    return tmp_path / "ball.ply"


def test_several_columns_are_several_fields(ball, tmp_path):
    """Each with its own gaps; other columns than the one asked for do not matter."""
    values = write(tmp_path / "v.csv", "heat,Face,stress,note\n1.5,3,7,a\n,4,8,b\n2.5,5,,c\n")
    options = {"table_options": {"missing": "drop", "drop": "note"}}
    found = fields.read_mesh_fields(ball, values, **options)
    assert {name: (field.nodes.tolist(), field.values.tolist()) for name, field in found.items()} == {
        "heat": ([3, 5], [1.5, 2.5]),
        "stress": ([3, 4], [7, 8]),
    }
    assert fields.read_mesh_field(ball, values, target="stress", **options).values.tolist() == [7, 8]
    for target, word in ((None, "heat, stress"), ("heet", "heat")):
        read = partial(fields.read_mesh_field, ball, values, target=target, **options)
        refused(read, rfgp.InvalidArgumentError, word)
    refused(lambda: fields.read_mesh_field(ball, values, target="note"), rfgp.DataError, "note")
    rows = "face,Node ID,row,heat\n" + "".join(f"{i},{i},{100 + i},{i % 3}\n" for i in range(6))
    assert list(fields.read_mesh_fields(ball, write(tmp_path / "v.csv", rows))) == ["heat"]  # others identify rows
    assert list(fields.read_mesh_fields(ball, tmp_path / "v.csv", targets=["row"])) == ["row"]


def test_properties_of_the_file_are_fields(tmp_path):
    mesh = trimesh.creation.icosphere(1)
    mesh.vertex_attributes["heat"] = np.where(np.arange(42) % 7, np.arange(42.0), np.nan)
    mesh.face_attributes["stress"] = np.arange(80.0)
    mesh.face_attributes["both"], mesh.vertex_attributes["both"] = np.arange(80.0), np.arange(42.0)
    mesh.visual.face_colors = [10, 20, 30, 255]
    (tmp_path / "m.ply").write_bytes(mesh.export(file_type="ply", include_attributes=True))
    heat, stress = fields.read_mesh_fields(tmp_path / "m.ply", targets=["heat", "stress"]).values()
    assert (heat.on_faces, stress.on_faces, len(heat.nodes)) == (False, True, 36)
    np.testing.assert_array_equal(heat.values, heat.nodes)
    np.testing.assert_array_equal(stress.values, np.arange(80))
    assert len(fields.read_mesh_field(tmp_path / "m.ply", target="both", nodes="vertices").nodes) == 42
    for target, word in (("both", "nodes="), ("red", "both, heat, stress"), ("x", "both, heat, stress")):
        refused(partial(fields.read_mesh_field, tmp_path / "m.ply", target=target), rfgp.DataError, word)


def test_equal_values_at_merged_vertices_count_once(tmp_path):
    lines = WALL.replace("property float z\n", "property float z\nproperty float p\n").splitlines()
    start = lines.index("end_header") + 1
    square = ["0 0 0 1", "1 0 0 2", "1 1 0 3", "0 0 0 1", "1 1 0 4", "0 1 0 5"]
    lines = [line.replace("face 5", "face 2") for line in lines[:start]] + square + ["3 0 1 2", "3 3 4 5"]
    field = fields.read_mesh_field(write(tmp_path / "s.ply", "\n".join(lines) + "\n"), target="p")
    places = map(tuple, field.coordinates[field.nodes][:, :2].tolist())
    pairs = sorted(zip(places, field.values.tolist(), strict=True))
    assert pairs == [((0, 0), 1), ((0, 1), 5), ((1, 0), 2), ((1, 1), 3), ((1, 1), 4)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.obj", "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nv 2 0 0\nf 1 2 3 4\nf 2 5 3\n"),
        ("q.off", "OFF\n5 2 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n2 0 0\n4 0 1 2 3\n3 1 4 2\n"),
    ],
)
def test_face_numbers_of_polygons_are_refused(name, text, tmp_path):
    path, values = write(tmp_path / name, text), write(tmp_path / "v.csv", "face,heat\n0,1\n1,2\n")
    refused(lambda: fields.read_mesh_field(path, values), rfgp.DataError, "polygons, which are 3 triangles")
    write(values, "x,y,z,heat\n0.9,0.2,0,1\n1.6,0.2,0.05,2\n")
    assert len(fields.read_mesh_field(path, values).nodes) == 2


# --- formats of simulations ----------------------------------------------------------------------

TRIANGLES = [("triangle", [(0, 1, 2), (0, 2, 3), (1, 4, 5), (1, 5, 2)])]


def simulation(folder, kind, cells):
    """Return a file of a simulation with `heat` at its points, one of them on no face, and `stress` of its cells."""
    meshio = pytest.importorskip("meshio")
    points = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (2, 0, 0), (2, 1, 0), (0.5, 0.5, 5)], dtype=float)
    count = sum(len(block) for _, block in cells)
    stress = np.split(10.0 + np.arange(count), np.cumsum([len(block) for _, block in cells])[:-1])
    data = {"heat": np.arange(7.0)} | ({"flow": np.ones((7, 3))} if kind != "msh" else {})
    mesh, path = meshio.Mesh(points, cells, point_data=data, cell_data={"stress": stress}), folder / f"s.{kind}"
    meshio.write(path, mesh, **({"file_format": "gmsh22", "binary": True} if kind == "msh" else {}))
    return path


@pytest.mark.parametrize("kind", ["vtk", "vtu", "msh"])
@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning")
def test_files_of_simulations_are_meshes(kind, tmp_path):
    inside = [("tetra", [(0, 1, 2, 6)])] if kind != "msh" else []  # meshio writes no .msh of two kinds with data
    path = simulation(tmp_path, kind, [*TRIANGLES, *inside])
    heat, stress = fields.read_mesh_fields(path, targets=["heat", "stress"]).values()
    assert (heat.values.tolist(), stress.values.tolist()) == ([0, 1, 2, 3, 4, 5], [10, 11, 12, 13])
    np.testing.assert_array_equal(heat.coordinates[heat.nodes][4], (2, 0, 0))
    assert rows_of(heat, tmp_path / "nodes.csv")[6]["mean"] == ""
    refused(lambda: fields.read_mesh_field(path, target="flow"), rfgp.DataError, "flow must be a property")
    refused(lambda: fields.read_mesh_fields(path, targets=[]), rfgp.InvalidArgumentError, "targets must name")


def test_a_warning_of_a_file_names_the_line_that_reads_it(tmp_path):
    path = simulation(tmp_path, "vtk", TRIANGLES)
    with pytest.warns(graphs.UnreferencedVerticesWarning, match="have no value") as caught:
        fields.read_mesh_field(path, target="heat")
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning")
def test_quadrilaterals_are_cut_in_two(tmp_path):
    path = simulation(tmp_path, "vtk", [("quad", [(0, 1, 2, 3), (1, 4, 5, 2)])])
    mesh = graphs.load_mesh(path)
    assert (len(mesh.faces), mesh.area) == (4, 2)
    refused(lambda: fields.read_mesh_field(path, target="stress"), rfgp.DataError, "must have triangles")
    assert len(fields.read_mesh_field(path, target="heat").nodes) == 6


POLYDATA = "# vtk DataFile Version 3.0\nmade\nASCII\nDATASET POLYDATA\n"
POLYDATA += "POINTS 3 float\n0 0 0 1 0 0 0 1 0\nPOLYGONS 1 4\n3 0 1 2\n"


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("a.vtk", POLYDATA, "cast_to_unstructured_grid"),
        ("a.vtu", '<?xml version="1.0"?>\n<VTKFile type="UnstructuredGrid"></VTKFile>\n', "meshio"),
        ("a.vtp", "other", ".ply"),
        ("a.vtk", "hello\n", "could not be read"),
        ("a.vtu", "\0" * 99, "could not be read"),
        ("a.msh", "$MeshFormat\n2.2 0 8\n", "must hold"),
    ],
)
def test_bad_files_of_simulations_are_refused(name, content, word, tmp_path):
    with pytest.raises(graphs.GraphError) as caught:
        graphs.load_mesh(write(tmp_path / name, content))
    assert word in str(caught.value)


def test_meshes_of_volumes_and_missing_packages_are_named(tmp_path, monkeypatch):
    path = simulation(tmp_path, "vtk", [("tetra", [(0, 1, 2, 6)])])
    refused(lambda: graphs.load_mesh(path), graphs.InvalidGraphError, "got tetra")
    monkeypatch.setitem(sys.modules, "meshio", None)
    refused(lambda: graphs.load_mesh(path), graphs.MissingDependencyError, "mesh")


def test_lengthscales_far_longer_than_a_mesh_are_refused_with_a_remedy():
    square = [(0, 0), (1, 0), (1, 1), (0, 1)], [(0, 1, 2), (0, 2, 3)]
    X, y = np.random.default_rng(0).uniform(size=(9, 2)), np.arange(9.0)
    with pytest.raises(rfgp.NotPositiveDefiniteError, match="Bound it with priors"):
        rfgp.MeshGP(square, lengthscale=1e6).condition(np.sort(X)[:, ::-1], y)
    product = k.Mesh(square, columns=(0, 1), lengthscale=1e6) * k.Matern(2, nu=1.5)
    times = np.column_stack([np.sort(X)[:, ::-1], np.arange(9) % 3])
    with pytest.raises(rfgp.InvalidArgumentError, match="use a shorter lengthscale="):
        rfgp.GP(product, approximation=rfgp.SparsePrecision()).condition(times, y)
