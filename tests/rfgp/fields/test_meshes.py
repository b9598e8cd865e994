"""Fields on meshes from files: the file's own numbers, several columns, properties, and formats of simulations."""

import csv
import sys

import numpy as np
import pytest
import trimesh

import graphs
import rfgp
from rfgp import fields


def write(path, text):
    path.write_text(text)
    return path


def law_of(field):
    count = field.graph.num_nodes
    mean, deviation = np.arange(count) + 0.25, np.full(count, 0.5)
    return fields.NodePosterior(mean, deviation, len(field.values), 2 * deviation, mean - 2, mean + 2)


def rows_of(field, path, law=None):
    with fields.write_nodes(path, field, law or law_of(field)).open() as stream:
        return list(csv.DictReader(stream))


CUBE = trimesh.creation.box()
WITH_NORMALS = "".join(f"v {x} {y} {z}\n" for x, y, z in [(5.0, 5.0, 5.0), *CUBE.vertices[::-1].tolist()])
WITH_NORMALS += "vn 0 0 1\nvn 0 1 0\n" + "".join(
    "f " + " ".join(f"{9 - corner}//{1 + i % 2}" for corner in face) + "\n" for i, face in enumerate(CUBE.faces)
)
"""A cube whose vertices have two normals each, in an order of its own; its first vertex is on no face."""


def file_of(kind, folder):
    """Return a file of a cube and the places of its own vertices, in its order."""
    if kind == "obj":
        return write(folder / "c.obj", WITH_NORMALS), np.array([(5.0, 5.0, 5.0), *CUBE.vertices[::-1]])
    path = folder / f"c.{kind}"
    if kind == "stl":
        CUBE.export(path)
        return path, CUBE.vertices[CUBE.faces].reshape(-1, 3)
    places = np.array([(9.0, 0.0, 0.0), *CUBE.vertices, *CUBE.vertices[:2]])
    faces = np.concatenate([CUBE.faces[:6] + 1, np.where(CUBE.faces[6:] < 2, CUBE.faces[6:] + 9, CUBE.faces[6:] + 1)])
    trimesh.Trimesh(places, faces, process=False).export(path)
    return path, places


@pytest.mark.parametrize("kind", ["stl", "obj", "ply", "off"])
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
    for i, row in enumerate(rows):
        if i not in seen:
            assert set(list(row.values())[1:]) == {""}
            continue
        np.testing.assert_allclose([float(row[axis]) for axis in "xyz"], places[i], atol=1e-6)
        assert float(row["mean"]) == field.node_of_element[i] + 0.25
    if kind != "stl":
        with pytest.raises(rfgp.DataError, match="values must be at vertices of the surface, got 1 on no face: 0"):
            fields.read_mesh_field(path, write(tmp_path / "v.csv", "vertex,heat\n0,1\n3,2\n"))


def test_vertices_on_no_face_are_counted(tmp_path):
    path, _ = file_of("ply", tmp_path)
    with pytest.warns(graphs.UnreferencedVerticesWarning, match="1 of 11 vertices are on no face"):
        fields.read_mesh_field(path, nodes="vertices")


WALL = "ply\nformat ascii 1.0\nelement vertex 6\nproperty float x\nproperty float y\nproperty float z\n"
WALL += "element face 5\nproperty list uchar int vertex_indices\nend_header\n"
WALL += "0 0 0\n2 0 0\n2 1 0\n1 1 0\n0 1 0\n{far} 1 0\n3 2 3 4\n3 0 1 2\n3 0 2 4\n3 2 4 5\n3 0 0 1\n"
"""Three faces have no area: one has vertex 3 on a side of the others, one vertex 5 far beyond, one a corner twice."""


@pytest.mark.filterwarnings("ignore::graphs.DegenerateFacesWarning", "ignore::graphs.DisconnectedWarning")
def test_faces_without_area_keep_the_numbers_of_others(tmp_path):
    path = write(tmp_path / "w.ply", WALL.format(far=9))
    field = fields.read_mesh_field(path, write(tmp_path / "v.csv", "face,heat\n1,1\n2,2\n"))
    assert field.nodes.tolist() == [0, 1]
    rows = rows_of(field, tmp_path / "nodes.csv")
    assert [row["mean"] for row in rows] == ["", "0.25", "1.25", "", ""]
    with pytest.raises(rfgp.DataError, match="values must be at faces of the surface, got 2 without area: 0, 3"):
        fields.read_mesh_field(path, write(tmp_path / "v.csv", "face,heat\n3,1\n1,2\n0,2\n"))


@pytest.mark.filterwarnings("ignore::graphs.DegenerateFacesWarning", "ignore::graphs.DisconnectedWarning")
@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning")
def test_a_loose_vertex_on_the_surface_has_its_value_there(tmp_path):
    path = write(tmp_path / "w.ply", WALL.format(far=9))
    values = write(tmp_path / "v.csv", "vertex,heat\n0,1\n3,2\n")
    field = fields.read_mesh_field(path, values)
    assert field.node_of_element.tolist() == [0, 1, 2, 3, 4, -1]
    gp = fields.whittle_matern(field, 2, seed=0)
    gp.condition(fields.observed_inputs(gp, field), field.values)
    law = fields.posterior_at_nodes(gp, field)
    np.testing.assert_allclose(law.mean[3], law.mean[[2, 4]].mean(), rtol=1e-9)
    assert rows_of(field, tmp_path / "nodes.csv")[5]["mean"] == ""
    with pytest.raises(rfgp.DataError, match="got 1 on no face: 5"):
        fields.read_mesh_field(path, write(tmp_path / "v.csv", "vertex,heat\n0,1\n5,2\n"))


@pytest.mark.filterwarnings("ignore::graphs.DegenerateFacesWarning")
def test_close_vertices_of_a_file_keep_their_rows(tmp_path):
    """A vertex in each of 20 faces of a sphere, 1e-7 of the way from a corner, and some are observed."""
    sphere = trimesh.creation.icosphere(1)
    a, b, c = (np.asarray(sphere.vertices)[sphere.faces[:20, i]] for i in range(3))
    vertices = np.concatenate([sphere.vertices, a + 1e-7 * (b + c - 2 * a)])
    inner = [(*np.roll(face, -i)[:2], 42 + n) for n, face in enumerate(sphere.faces[:20]) for i in range(3)]
    faces = [*inner, *sphere.faces[20:].tolist()]
    rows = [f"{x!r} {y!r} {z!r}" for x, y, z in vertices.tolist()] + [f"3 {i} {j} {k}" for i, j, k in faces]
    path = write(tmp_path / "close.off", f"OFF\n{len(vertices)} {len(faces)} 0\n" + "\n".join(rows) + "\n")
    observed = [*range(30), 42, 50]
    table = "".join(f"{i},{vertices[i, 2]:.17g}\n" for i in observed)
    field = fields.read_mesh_field(path, write(tmp_path / "v.csv", "vertex,heat\n" + table))
    start = {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.01, "seed": 0}
    gp = rfgp.MeshGP(field.mesh, **start).condition(field.observed_positions, field.values)
    found = rows_of(field, tmp_path / "nodes.csv", fields.posterior_at_nodes(gp, field))
    right = rfgp.MeshGP(sphere, **start).condition(vertices[observed], vertices[observed, 2]).predict(vertices)
    np.testing.assert_allclose([float(row["mean"]) for row in found], right.mean, atol=1e-6)
    np.testing.assert_allclose([float(row["sd"]) for row in found], right.std, atol=1e-6)


@pytest.fixture
def ball(tmp_path):
    mesh = trimesh.creation.icosphere(1)
    mesh.export(tmp_path / "ball.ply")
    return tmp_path / "ball.ply"


def test_several_columns_are_several_fields(ball, tmp_path):
    """Each with its own gaps; other columns than the one asked for do not matter."""
    values = write(tmp_path / "v.csv", "heat,Face,stress,note\n1.5,3,7,a\n,4,8,b\n2.5,5,,c\n")
    options = {"table_options": {"missing": "drop", "drop": "note"}}
    found = fields.read_mesh_fields(ball, values, **options)
    assert list(found) == ["heat", "stress"]
    assert [(field.quantity, field.nodes.tolist(), field.values.tolist()) for field in found.values()] == [
        ("heat", [3, 5], [1.5, 2.5]),
        ("stress", [3, 4], [7, 8]),
    ]
    assert fields.read_mesh_field(ball, values, target="stress", **options).values.tolist() == [7, 8]
    with pytest.raises(rfgp.InvalidArgumentError, match="target must be one of heat, stress"):
        fields.read_mesh_field(ball, values, **options)
    with pytest.raises(rfgp.InvalidArgumentError, match="heat"):
        fields.read_mesh_field(ball, values, target="heet", **options)
    assert list(fields.read_mesh_fields(ball, values, table_options={"missing": "drop"})) == ["heat", "stress"]
    with pytest.raises(rfgp.DataError, match="note"):
        fields.read_mesh_field(ball, values, target="note")


def test_columns_that_identify_rows_are_no_values_unless_named(ball, tmp_path):
    rows = "".join(f"{i},{i},{100 + i},{i % 3}\n" for i in range(6))
    values = write(tmp_path / "v.csv", "face,Node ID,row,heat\n" + rows)
    assert list(fields.read_mesh_fields(ball, values)) == ["heat"]
    assert list(fields.read_mesh_fields(ball, values, targets=["row"])) == ["row"]
    rows = "".join(f"{i},{i},{i + 7}\n" for i in range(6))
    with pytest.raises(rfgp.DataError, match="numbers that do not identify rows"):
        fields.read_mesh_fields(ball, write(tmp_path / "v.csv", "face,id,row\n" + rows))


@pytest.mark.parametrize("header", ["X;Y;Z;heat", "heat;x;Y;z"])
def test_names_of_places_may_be_in_capitals(header, ball, tmp_path):
    mesh = trimesh.creation.icosphere(1)
    form = "{};{};{};1\n" if header[0] == "X" else "1;{};{};{}\n"
    rows = "".join(form.format(*place) for place in mesh.triangles_center[[5, 60]])
    field = fields.read_mesh_field(ball, write(tmp_path / "v.csv", f"{header}\n{rows}"))
    assert field.nodes.tolist() == [5, 60]
    assert fields.read_mesh_field(ball, write(tmp_path / "v.csv", "VERTEX,heat\n7,1\n8,2\n")).nodes.tolist() == [7, 8]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("x,y,heat", "in x, y and z, got the columns x, y, heat"),
        ("face,x,y,z,heat", "in a column face, or vertex"),
        ("x,X,y,z,heat", "must have places"),
        ("face,vertex,heat", "must have places"),
        ("x,y,z", "must have a column of values"),
    ],
)
def test_tables_that_do_not_say_where_are_refused(header, message, ball, tmp_path):
    cells = ",".join("1" for _ in header.split(","))
    with pytest.raises(rfgp.DataError, match=message):
        fields.read_mesh_field(ball, write(tmp_path / "v.csv", f"{header}\n{cells}\n{cells}\n"))


@pytest.mark.parametrize("encoding", ["ascii", "binary"])
def test_properties_of_the_file_are_fields(encoding, tmp_path):
    mesh = trimesh.creation.icosphere(1)
    mesh.vertex_attributes["heat"] = np.where(np.arange(42) % 7, np.arange(42.0), np.nan)
    mesh.face_attributes["stress"] = np.arange(80.0)
    mesh.face_attributes["both"], mesh.vertex_attributes["both"] = np.arange(80.0), np.arange(42.0)
    mesh.visual.face_colors = [10, 20, 30, 255]
    options = {"include_attributes": True, "encoding": encoding}
    (tmp_path / "m.ply").write_bytes(mesh.export(file_type="ply", **options))
    found = fields.read_mesh_fields(tmp_path / "m.ply", targets=["heat", "stress"])
    heat, stress = found.values()
    assert (heat.on_faces, stress.on_faces, len(heat.nodes)) == (False, True, 36)
    np.testing.assert_array_equal(heat.values, heat.nodes)
    np.testing.assert_array_equal(stress.values, np.arange(80))
    assert len(fields.read_mesh_field(tmp_path / "m.ply", target="both", nodes="vertices").nodes) == 42
    with pytest.raises(rfgp.DataError, match='nodes="faces" or nodes="vertices"'):
        fields.read_mesh_field(tmp_path / "m.ply", target="both")
    for target in ("red", "x", "hot"):
        with pytest.raises(rfgp.DataError, match=f"{target} must be a property .* which has both, heat, stress"):
            fields.read_mesh_field(tmp_path / "m.ply", target=target)
    mesh.export(tmp_path / "m.stl")
    with pytest.raises(rfgp.DataError, match="which has none"):
        fields.read_mesh_field(tmp_path / "m.stl", target="heat")


def test_equal_values_at_merged_vertices_count_once(tmp_path):
    text = WALL.replace("property float z\n", "property float z\nproperty float p\n")
    lines = text.format(far=9).splitlines()
    start = lines.index("end_header") + 1
    square = ["0 0 0 1", "1 0 0 2", "1 1 0 3", "0 0 0 1", "1 1 0 4", "0 1 0 5"]
    lines = [line.replace("face 5", "face 2") for line in lines[:start]] + square + ["3 0 1 2", "3 3 4 5"]
    field = fields.read_mesh_field(write(tmp_path / "s.ply", "\n".join(lines) + "\n"), target="p")
    places = map(tuple, field.coordinates[field.nodes][:, :2].tolist())
    pairs = set(zip(places, field.values.tolist(), strict=True))
    assert pairs == {((0, 0), 1), ((1, 0), 2), ((1, 1), 3), ((1, 1), 4), ((0, 1), 5)}
    assert len(field.nodes) == 5


def simulation(folder, kind, cells):
    """Return a file of a simulation with `heat` at its points, one of them on no face, and `stress` of its cells."""
    meshio = pytest.importorskip("meshio")
    points = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (2, 0, 0), (2, 1, 0), (0.5, 0.5, 5)], dtype=float)
    heat, count = np.arange(7.0), sum(len(block) for _, block in cells)
    stress = np.split(10.0 + np.arange(count), np.cumsum([len(block) for _, block in cells])[:-1])
    mesh = meshio.Mesh(points, cells, point_data={"heat": heat, "flow": np.ones((7, 3))}, cell_data={"stress": stress})
    path = folder / f"s.{kind}"
    if kind != "msh":
        meshio.write(path, mesh)
    else:
        del mesh.point_data["flow"]
        meshio.write(path, mesh, file_format="gmsh22", binary=True)
    return path


TRIANGLES = [("triangle", [(0, 1, 2), (0, 2, 3), (1, 4, 5), (1, 5, 2)])]


@pytest.mark.parametrize("kind", ["vtk", "vtu", "msh"])
@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning")
def test_files_of_simulations_are_meshes(kind, tmp_path):
    inside = [("tetra", [(0, 1, 2, 6)])] if kind != "msh" else []  # meshio writes no .msh of two kinds with data
    path = simulation(tmp_path, kind, [*TRIANGLES, *inside])
    assert len(graphs.load_mesh(path).faces) == 4
    heat, stress = fields.read_mesh_fields(path, targets=["heat", "stress"]).values()
    assert (heat.values.tolist(), stress.values.tolist()) == ([0, 1, 2, 3, 4, 5], [10, 11, 12, 13])
    np.testing.assert_array_equal(heat.coordinates[heat.nodes][4], (2, 0, 0))
    assert [row["mean"] for row in rows_of(heat, tmp_path / "nodes.csv")][6] == ""
    with pytest.raises(rfgp.DataError, match="flow must be a property"):
        fields.read_mesh_field(path, target="flow")


def test_quadrilaterals_are_cut_in_two(tmp_path):
    path = simulation(tmp_path, "vtk", [("quad", [(0, 1, 2, 3), (1, 4, 5, 2)])])
    mesh = graphs.load_mesh(path)
    assert (len(mesh.faces), mesh.area) == (4, 2)
    with pytest.raises(rfgp.DataError, match="must have triangles"):
        fields.read_mesh_field(path, target="stress")
    with pytest.raises(rfgp.DataError, match="must have triangles"):
        fields.read_mesh_field(path, write(tmp_path / "v.csv", "face,heat\n0,1\n1,2\n"))
    with pytest.warns(graphs.UnreferencedVerticesWarning):
        assert len(fields.read_mesh_field(path, target="heat").nodes) == 6


def test_unread_formats_name_one_that_is(tmp_path):
    polydata = "# vtk DataFile Version 3.0\nmade\nASCII\nDATASET POLYDATA\nPOINTS 3 float\n0 0 0 1 0 0 0 1 0\n"
    polydata += "POLYGONS 1 4\n3 0 1 2\n"
    with pytest.raises(graphs.FileFormatError, match=r"cast_to_unstructured_grid.*vtu"):
        graphs.load_mesh(write(tmp_path / "a.vtk", polydata))
    with pytest.raises(graphs.FileFormatError, match=r"could not be read by meshio"):
        graphs.load_mesh(
            write(tmp_path / "a.vtu", '<?xml version="1.0"?>\n<VTKFile type="UnstructuredGrid"></VTKFile>\n')
        )
    with pytest.raises(graphs.FileFormatError, match=r"Save it as \.ply"):
        graphs.load_mesh(write(tmp_path / "a.vtp", "other"))


@pytest.mark.parametrize("kind", ["vtk", "vtu", "msh"])
def test_bad_files_of_simulations_are_named(kind, tmp_path, monkeypatch):
    for content in ("hello\n", "# vtk DataFile Version 3.0\n", "$MeshFormat\n2.2 0 8\n", "\0" * 99):
        with pytest.raises(graphs.GraphError, match=rf"bad\.{kind} (could not be read|must hold triangles)"):
            graphs.load_mesh(write(tmp_path / f"bad.{kind}", content))
    path = simulation(tmp_path, kind, [("tetra", [(0, 1, 2, 6)])])
    with pytest.raises(graphs.InvalidGraphError, match="must hold triangles or quadrilaterals, got tetra"):
        graphs.load_mesh(path)
    monkeypatch.setitem(sys.modules, "meshio", None)
    with pytest.raises(graphs.MissingDependencyError, match=r"pip install 'rfgp\[mesh\]'"):
        graphs.load_mesh(path)
