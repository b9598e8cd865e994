"""Weights and shapes of graphs of meshes, against angles in loops, distances by hand, and trimesh."""

import itertools
import logging
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from fields import squares
from scipy.sparse.csgraph import connected_components

import graphs
from graphs import Graph


def mesh_of(vertices, faces):
    vertices = np.array([[*v, 0.0][:3] for v in vertices], dtype=float)
    return trimesh.Trimesh(vertices, faces, process=False)


def tetrahedron(seed):
    return mesh_of(np.random.default_rng(seed).normal(size=(4, 3)), list(itertools.combinations(range(4), 3)))


def square_grid(count):
    return mesh_of(*squares(count, count)[:2])


def weights_of(mesh, nodes="vertices", weights="cotangent"):
    return Graph.from_mesh(mesh, nodes, weights=weights).adjacency.toarray()


def angle_weights(mesh):
    """Return half the sums of 1 / tan of angles by arccos, in loops over faces and corners."""
    W = np.zeros((len(mesh.vertices),) * 2)
    for face, corner in itertools.product(mesh.faces, range(3)):
        p, a, b = np.roll(face, -corner)
        u, v = mesh.vertices[a] - mesh.vertices[p], mesh.vertices[b] - mesh.vertices[p]
        W[a, b] += 0.5 / np.tan(np.arccos(u @ v / np.sqrt((u @ u) * (v @ v))))
    return W + W.T


BOX, TURNED = trimesh.creation.box(), square_grid(4)
TURNED.apply_transform(trimesh.transformations.rotation_matrix(0.7, [1, 2, 3], [5, 5, 5]))
BOOK = mesh_of([(0, 0, 0), (0, 0, 1), (1, 0, 0.5), (-1, 0.3, 0.2), (0.2, -1, 0.4)], [(0, 1, 2), (1, 0, 3), (0, 1, 4)])


# --- shapes --------------------------------------------------------------------------------------


def test_faces_on_one_edge_are_all_adjacent():
    assert len(BOOK.face_adjacency) == 0  # trimesh leaves such edges out
    np.testing.assert_array_equal(weights_of(BOOK, "faces", "unit"), 1 - np.eye(3))
    vertices = Graph.from_mesh(BOOK, "vertices")
    assert (vertices.num_nodes, vertices.num_edges) == (5, 7)


@pytest.mark.parametrize("mesh", [BOX, trimesh.creation.icosphere(2), square_grid(5)], ids=["box", "ball", "grid"])
def test_adjacency_matches_trimesh(mesh):
    for nodes, pairs, places in (
        ("faces", mesh.face_adjacency, mesh.triangles_center),
        ("vertices", mesh.edges_unique, mesh.vertices),
    ):
        g = Graph.from_mesh(mesh, nodes)
        expected = np.zeros((g.num_nodes,) * 2)
        expected[pairs[:, 0], pairs[:, 1]] = expected[pairs[:, 1], pairs[:, 0]] = 1
        np.testing.assert_array_equal(g.adjacency.toarray(), expected)
        np.testing.assert_allclose(g.coordinates, places)


def test_repeated_corners_and_single_faces():
    mesh = mesh_of([(0, 0), (1, 0), (0, 1), (1, 1)], [(0, 1, 2), (1, 1, 2), (3, 3, 3), (1, 3, 2)])
    expected = [[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]]
    np.testing.assert_array_equal(weights_of(mesh, "faces", "unit"), expected)
    one = mesh_of([(0, 0), (1, 0), (0, 1)], [(1, 1, 1)])
    assert repr(Graph.from_mesh(one, weights="edge-length")) == "Graph(1 node, 0 edges)"
    loose = mesh_of([(9, 9), (0, 0), (1, 0), (7, 7), (0, 1)], [(1, 2, 4)])
    for weights in ("unit", "edge-length", "cotangent"):
        np.testing.assert_array_equal(np.flatnonzero(weights_of(loose, weights=weights).sum(1) == 0), [0, 3])


# --- lengths -------------------------------------------------------------------------------------


def test_vertex_weights_are_mean_over_length():
    mesh, apart = tetrahedron(1), ~np.eye(4, dtype=bool)
    D = np.linalg.norm(mesh.vertices[:, None] - mesh.vertices, axis=2)
    np.testing.assert_allclose(weights_of(mesh, weights="edge-length")[apart], D.sum() / 12 / D[apart], rtol=1e-12)


def test_face_lengths_go_through_edge_middles():
    """Corners (0, 0), (6, 0), (0, 3), then (6, 6), then (12, 3), unequal on purpose; by hand."""
    mesh = mesh_of([(0, 0), (6, 0), (0, 3), (6, 6), (12, 3)], [(0, 1, 2), (1, 3, 2), (1, 4, 3)])
    W = weights_of(mesh, "faces", "edge-length")
    a = np.hypot(3 - 2, 1.5 - 1) + np.hypot(3 - 4, 1.5 - 3)  # centroids (2, 1), (4, 3); the middle (3, 1.5)
    b = np.hypot(6 - 4, 3 - 3) + np.hypot(8 - 6, 3 - 3)  # (4, 3), (8, 3); the middle (6, 3)
    np.testing.assert_allclose([W[0, 1], W[1, 2], W[0, 2]], [(a + b) / 2 / a, (a + b) / 2 / b, 0])


def test_shorter_path_of_two_shared_edges_counts():
    """Two faces over the same corners, shared edges of lengths 2, 6 and sqrt(40), and a third one beyond."""
    mesh = mesh_of([(0, 0), (2, 0), (0, 6), (2, 6)], [(0, 1, 2), (0, 2, 1), (1, 3, 2)])
    W, center = weights_of(mesh, "faces", "edge-length"), np.array([2 / 3, 2.0])
    twice = 2 * np.linalg.norm(np.array([(1, 0), (0, 3), (1, 3)]) - center, axis=1).min()
    across = 2 * np.linalg.norm(center - (1, 3))  # the third centroid is as far from the middle (1, 3)
    mean = (twice + 2 * across) / 3
    np.testing.assert_allclose([W[0, 1], W[0, 2], W[1, 2]], [mean / twice, mean / across, mean / across])


@pytest.mark.parametrize("factor", [1e-300, 1e300])
@pytest.mark.parametrize(
    "nodes_and_weights", [("faces", "edge-length"), ("vertices", "edge-length"), ("vertices", "cotangent")]
)
@pytest.mark.filterwarnings("ignore::graphs.NegativeCotangentsWarning")
def test_weights_are_invariant_to_units(nodes_and_weights, factor):
    mesh = tetrahedron(2)
    scaled = SimpleNamespace(vertices=mesh.vertices * factor, faces=mesh.faces)
    np.testing.assert_allclose(weights_of(scaled, *nodes_and_weights), weights_of(mesh, *nodes_and_weights), rtol=1e-9)


# --- cotangents ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mesh", [square_grid(3), TURNED, BOOK, *map(tetrahedron, range(4))])
def test_cotangents_match_angles(mesh):
    """Negative weights of obtuse angles are left out with a warning, those of right angles without."""
    expected = angle_weights(mesh)
    negative = int((np.triu(expected) < -1e-12).sum())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        W = weights_of(mesh)
    np.testing.assert_allclose(W, np.maximum(expected, 0), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(W > 0, expected > 1e-12)  # diagonals of rectangles are no edges
    assert [str(entry.message).split(" edges")[0] for entry in caught] == (
        [f"{negative} of {len(mesh.edges_unique)}"] if negative else []
    )


@pytest.mark.parametrize("thin", [0.0, 1e-13, 5e-324])
def test_faces_without_area_have_no_weight(thin):
    mesh = mesh_of([(0, 0), (1, 0), (0, 1), (0.5, -thin), (1, 1)], [(0, 1, 2), (0, 1, 3), (1, 1, 2), (4, 4, 4)])
    with pytest.warns(graphs.DegenerateFacesWarning, match="3 of 4 faces have no area") as caught:
        W = weights_of(mesh)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(W, weights_of(mesh_of(mesh.vertices[:, :2], [(0, 1, 2)])))
    with pytest.warns(graphs.NegativeCotangentsWarning, match="1 of 3 edges"):
        W = weights_of(mesh_of([(0, 0), (1, 0), (0.5, 1e-8)], [(0, 1, 2)]))  # thin, yet with an area
    np.testing.assert_allclose(W[0, 1:], [0, 0.25e8])


# --- warnings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["edge-length", "cotangent"])
@pytest.mark.filterwarnings("ignore::graphs.NegativeCotangentsWarning")
def test_weights_of_close_vertices_warn(weights):
    mesh = mesh_of([(0, 0), (1, 0), (0, 1), (0.003, 0.003)], [(0, 1, 3), (1, 2, 3), (2, 0, 3)])
    with pytest.warns(graphs.DegenerateFacesWarning, match="2 of 3 faces have a side below") as caught:
        weights_of(mesh, weights=weights)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("nodes", ["faces", "vertices"])
def test_cut_mesh_warns_with_a_remedy(nodes):
    """A cube of 24 vertices, as files with a normal for each side have it; and a strip with a slit in one place."""
    sides = trimesh.Trimesh(BOX.vertices[BOX.faces].reshape(-1, 3), np.arange(36).reshape(12, 3), process=False)
    with pytest.warns(graphs.DisconnectedWarning, match="28 of 36 .* 12 connected components .*Merge") as caught:
        Graph.from_mesh(sides, nodes)
    assert caught[0].filename == __file__
    sides.merge_vertices()
    assert connected_components(Graph.from_mesh(sides, nodes).adjacency)[0] == 1
    slit = mesh_of([(0, 0), (1, 0), (1, 1), (0, 1), (2, 0), (1, 1)], [(0, 1, 2), (0, 2, 3), (1, 4, 5)])
    with pytest.warns(graphs.DisconnectedWarning, match="1 of 6 vertices .* cuts the surface"):
        Graph.from_mesh(slit, nodes)


# --- files ---------------------------------------------------------------------------------------


def test_sliver_between_faces_stays(tmp_path):
    """A strip of two squares: vertex 6 is on the common side, only the faces to the right have it as a corner."""
    vertices = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (1, 0.5)]
    faces = [(0, 1, 4), (0, 4, 3), (1, 4, 6), (1, 2, 6), (2, 5, 6), (5, 4, 6)]
    mesh_of(vertices, faces).export(tmp_path / "strip.ply")
    assert connected_components(Graph.from_mesh(graphs.load_mesh(tmp_path / "strip.ply")).adjacency)[0] == 1


def test_errors_of_files_are_not_logged_to_the_terminal(tmp_path, capsys, caplog):
    corners = "vertex 0 0 0\nvertex 1 0 0\nvertex 0 inf 0\n"
    (tmp_path / "bad.stl").write_text(f"solid bad\nfacet normal 0 0 x\nouter loop\n{corners}endloop\nendsolid\n")
    with pytest.raises(graphs.FileFormatError, match=r"bad\.stl.* finite"):
        graphs.load_mesh(tmp_path / "bad.stl")
    assert caplog.records  # a handler that there is hears of it
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []  # as in a program that has none
    try:
        with pytest.raises(graphs.FileFormatError):
            graphs.load_mesh(tmp_path / "bad.stl")
    finally:
        root.handlers = handlers
    assert capsys.readouterr().err == ""
    assert logging.getLogger("trimesh").handlers == []


@pytest.mark.parametrize("kind", ["path", "text", "scene", "pair"])
def test_meshes_may_be_paths_scenes_and_pairs(kind, tmp_path):
    ball, moved, shift = trimesh.creation.icosphere(1), trimesh.Scene(), np.array([2.0, 0, 0])
    ball.export(tmp_path / "ball.ply")
    moved.add_geometry(ball, transform=trimesh.transformations.translation_matrix(shift))
    given = {"path": tmp_path / "ball.ply", "scene": moved, "pair": (ball.vertices, ball.faces)}
    mesh = given.get(kind, str(tmp_path / "ball.ply"))
    for read in (Graph.from_mesh(mesh, "vertices"), graphs.MeshField(mesh)):
        np.testing.assert_allclose(read.coordinates, ball.vertices + shift * (kind == "scene"), atol=1e-6)
