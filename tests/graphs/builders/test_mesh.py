"""Weights and shapes of meshes, against twins by angles and by hand."""

import itertools
import logging
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import trimesh
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

import graphs
from graphs import Graph


def mesh_of(vertices, faces):
    vertices = np.array([[*v, 0.0][:3] for v in vertices], dtype=float)
    return trimesh.Trimesh(vertices, faces, process=False)


def tetrahedron(seed):
    return mesh_of(np.random.default_rng(seed).normal(size=(4, 3)), list(itertools.combinations(range(4), 3)))


def angle_weights(mesh):
    """The twin: half the sums of 1 / tan of angles by arccos, in loops over faces and corners."""
    W = np.zeros((len(mesh.vertices),) * 2)
    for face in mesh.faces:
        for corner in range(3):
            p, a, b = face[corner], face[(corner + 1) % 3], face[(corner + 2) % 3]
            u, v = mesh.vertices[a] - mesh.vertices[p], mesh.vertices[b] - mesh.vertices[p]
            angle = np.arccos(u @ v / np.sqrt((u @ u) * (v @ v)))
            W[a, b] += 0.5 / np.tan(angle)
            W[b, a] += 0.5 / np.tan(angle)
    return W


def square_grid(n):
    """n x n squares of side 1, each cut into two right triangles from its corner (i, j) to (i + 1, j + 1)."""
    at = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    a, b, c, d = at[:-1, :-1].ravel(), at[1:, :-1].ravel(), at[1:, 1:].ravel(), at[:-1, 1:].ravel()
    vertices = np.stack(np.meshgrid(range(n + 1), range(n + 1), indexing="ij"), axis=-1).reshape(-1, 2)
    return mesh_of(vertices, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)]))


BOOK = trimesh.Trimesh(
    [(0, 0, 0), (0, 0, 1), (1, 0, 0.5), (-1, 0.3, 0.2), (0.2, -1, 0.4)],
    [(0, 1, 2), (1, 0, 3), (0, 1, 4)],
    process=False,
)


class TestShapes:
    def test_three_faces_on_an_edge_are_adjacent(self):
        assert len(BOOK.face_adjacency) == 0  # trimesh leaves such edges out
        faces, vertices = Graph.from_mesh(BOOK), Graph.from_mesh(BOOK, "vertices")
        np.testing.assert_array_equal(faces.adjacency.toarray(), 1 - np.eye(3))
        assert (vertices.num_nodes, vertices.num_edges) == (5, 7)

    def test_fan_of_faces_is_complete(self):
        ends = [(np.cos(t), np.sin(t), 0.5) for t in np.linspace(0, 6, 9)]
        fan = trimesh.Trimesh([(0, 0, 0), (0, 0, 1), *ends], [(0, 1, i + 2) for i in range(9)], process=False)
        assert Graph.from_mesh(fan).num_edges == 36

    @pytest.mark.parametrize("make", [trimesh.creation.box, trimesh.creation.icosphere, lambda: square_grid(5)])
    def test_manifold_adjacency_matches_trimesh(self, make):
        mesh = make()
        for g, pairs in (
            (Graph.from_mesh(mesh), mesh.face_adjacency),
            (Graph.from_mesh(mesh, "vertices"), mesh.edges_unique),
        ):
            expected = np.zeros((g.num_nodes,) * 2)
            expected[pairs[:, 0], pairs[:, 1]] = expected[pairs[:, 1], pairs[:, 0]] = 1
            np.testing.assert_array_equal(g.adjacency.toarray(), expected)

    def test_holes_and_boundaries_are_not_bridged(self):
        whole = square_grid(4)
        centers = whole.triangles_center
        holed = mesh_of(
            whole.vertices[:, :2], whole.faces[np.abs(centers - 2)[:, :2].max(1) > 1]
        )  # without the middle 2 x 2
        faces, vertices = Graph.from_mesh(holed), Graph.from_mesh(holed, "vertices")
        assert (faces.num_nodes, faces.num_edges) == (24, 24)  # a ring of 12 cut squares
        assert connected_components(faces.adjacency)[0] == 1
        assert vertices.num_nodes == 25
        alone = np.flatnonzero(vertices.degrees == 0)
        np.testing.assert_array_equal(vertices.coordinates[alone], [[2, 2, 0]])  # the middle: of no face
        assert vertices.num_edges == 24 + 24  # Euler: V - E + F = 0 on a ring
        assert connected_components(vertices.adjacency)[0] == 2

    @pytest.mark.parametrize("weights", ["unit", "edge-length"])
    @pytest.mark.parametrize("nodes", ["faces", "vertices"])
    def test_components_stay_separate(self, nodes, weights):
        one, two = trimesh.creation.box(), tetrahedron(0)
        both = trimesh.Trimesh(
            np.concatenate([one.vertices, two.vertices]), np.concatenate([one.faces, two.faces + 8]), process=False
        )
        g = Graph.from_mesh(both, nodes, weights=weights)
        counts = np.bincount(connected_components(g.adjacency)[1])
        assert counts.tolist() == ([12, 4] if nodes == "faces" else [8, 4])
        places = both.triangles_center if nodes == "faces" else both.vertices
        np.testing.assert_allclose(g.coordinates, places)

    @pytest.mark.parametrize("weights", ["unit", "edge-length", "cotangent"])
    def test_unreferenced_vertices_are_isolated_nodes(self, weights):
        mesh = mesh_of([(9, 9), (0, 0), (1, 0), (7, 7), (0, 1)], [(1, 2, 4)])
        g = Graph.from_mesh(mesh, "vertices", weights=weights)
        assert g.num_nodes == 5
        np.testing.assert_array_equal(np.flatnonzero(g.degrees == 0), [0, 3])
        np.testing.assert_array_equal(g.coordinates[:, :2], [(9, 9), (0, 0), (1, 0), (7, 7), (0, 1)])

    def test_faces_with_repeated_corners(self):
        mesh = mesh_of([(0, 0), (1, 0), (0, 1), (1, 1)], [(0, 1, 2), (1, 1, 2), (3, 3, 3), (1, 3, 2)])
        W = Graph.from_mesh(mesh).adjacency.toarray()
        np.testing.assert_array_equal(W, [[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]])
        assert Graph.from_mesh(mesh, "vertices").num_edges == 5

    @pytest.mark.parametrize(("nodes", "count"), [("faces", "1 node"), ("vertices", "3 nodes")])
    def test_mesh_of_one_point(self, nodes, count):
        """A face that names one vertex three times has no side."""
        mesh = mesh_of([(0, 0), (1, 0), (0, 1)], [(1, 1, 1)])
        for weights in ("unit", "edge-length"):
            assert repr(Graph.from_mesh(mesh, nodes, weights=weights)) == f"Graph({count}, 0 edges)"
        with pytest.warns(graphs.DegenerateFacesWarning, match="1 of 1"):
            assert Graph.from_mesh(mesh, "vertices", weights="cotangent").num_edges == 0

    def test_single_triangle(self):
        mesh = mesh_of([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)])
        for weights in ("unit", "edge-length"):
            assert repr(Graph.from_mesh(mesh, weights=weights)) == "Graph(1 node, 0 edges)"

    @pytest.mark.parametrize(
        ("vertices", "faces", "message"),
        [
            (np.zeros((3, 3)), [[0, 1, 3]], r"face 0 .*\[0, 1, 3\]"),
            (np.zeros((3, 3)), [[0, 1, 2], [0, -1, 2]], "face 1"),
            (np.zeros((4, 3)), [[0, 1, 2, 3]], r"triangles \(F, 3\), got \(4, 3\) and \(1, 4\)"),
            (np.zeros((4, 2)), [[0, 1, 2]], r"got \(4, 2\)"),
            (np.zeros((3, 3)), [[0, 1, 2.9]], r"corners of faces must be integers .* entry \[0, 2\] is 2\.9"),
            (np.zeros((3, 3)), np.array([[0, 1, np.nan]]), "must be integers"),
            (np.zeros((3, 3)), [[True, False, 2]], r"entry \[0, 0\] is True"),
            (np.zeros((3, 3)), np.ones((1, 3), bool), "must be integers"),
            (np.zeros((3, 3)), [["a", "b", "c"]], "must be integers"),
            (np.zeros((3, 3)), [[0, 1, 2], [0, 1, 2, 0]], "must be integers"),
            (np.zeros((3, 3)), [[0, 1, 2**70]], r"integers below 2\^53"),
            ("no numbers", [[0, 1, 2]], r"vertices \(V, 3\)"),
        ],
    )
    def test_invalid_meshes_are_refused(self, vertices, faces, message):
        class Plain:
            pass

        Plain.vertices, Plain.faces = vertices, faces
        with pytest.raises(graphs.InvalidGraphError, match=message):
            Graph.from_mesh(Plain())


class TestLengths:
    def test_vertex_weights_are_inverse_lengths(self):
        mesh = tetrahedron(1)
        W = Graph.from_mesh(mesh, "vertices", weights="edge-length").adjacency.toarray()
        D = np.linalg.norm(mesh.vertices[:, None] - mesh.vertices, axis=2)
        mean = D.sum() / 12
        np.testing.assert_allclose(W[~np.eye(4, dtype=bool)], mean / D[~np.eye(4, dtype=bool)], rtol=1e-12)

    def test_face_lengths_go_through_edge_middles(self):
        """By hand: corners (0, 0), (6, 0), (0, 3), then (6, 3), then (12, 3), unequal on purpose."""
        mesh = mesh_of([(0, 0), (6, 0), (0, 3), (6, 6), (12, 3)], [(0, 1, 2), (1, 3, 2), (1, 4, 3)])
        W = Graph.from_mesh(mesh, weights="edge-length").adjacency.toarray()
        a = np.hypot(3 - 2, 1.5 - 1) + np.hypot(3 - 4, 1.5 - 3)  # centroids (2, 1), (4, 3); the middle (3, 1.5)
        b = np.hypot(6 - 4, 3 - 3) + np.hypot(8 - 6, 3 - 3)  # (4, 3), (8, 3); the middle (6, 3)
        assert W[0, 1] == pytest.approx((a + b) / 2 / a)
        assert W[1, 2] == pytest.approx((a + b) / 2 / b)
        assert W[0, 2] == 0

    @pytest.mark.parametrize("angle", [0.1, 1.5, 3.0])
    def test_folding_keeps_weights(self, angle):
        """The second triangle turned about the shared edge; the straight line would shrink."""
        flat = square_grid(1)
        turn = trimesh.transformations.rotation_matrix(angle, [1, 1, 0])[:3, :3]
        folded = flat.copy()
        folded.vertices[2] = turn @ folded.vertices[2]
        both = [  # with a third face, or the mean would make every weight 1
            trimesh.Trimesh(
                np.concatenate([m.vertices, [(1.0, 2.0, 0.0)]]), [*m.faces.tolist(), [3, 4, 1]], process=False
            )
            for m in (flat, folded)
        ]
        W, V = (Graph.from_mesh(m, weights="edge-length").adjacency.toarray() for m in both)
        np.testing.assert_allclose(W, V, rtol=1e-12)

    def test_shorter_path_of_two_shared_edges_counts(self):
        """Two faces over the same corners, shared edges of lengths 2, 6 and sqrt(40), and a third one beyond."""
        mesh = mesh_of([(0, 0), (2, 0), (0, 6), (2, 6)], [(0, 1, 2), (0, 2, 1), (1, 3, 2)])
        W = Graph.from_mesh(mesh, weights="edge-length").adjacency.toarray()
        center = np.array([2 / 3, 2.0])
        middles = np.array([(1, 0), (0, 3), (1, 3)], dtype=float)
        twice = 2 * np.linalg.norm(middles - center, axis=1).min()
        across = np.linalg.norm(center - (1, 3)) + np.linalg.norm(np.array([4 / 3, 4.0]) - (1, 3))
        mean = (twice + 2 * across) / 3
        assert W[0, 1] == pytest.approx(mean / twice)
        assert W[0, 2] == W[1, 2] == pytest.approx(mean / across)

    @pytest.mark.parametrize("factor", [1e-300, 1e-160, 1.0, 1e160, 1e300])
    @pytest.mark.parametrize(("nodes", "weights"), [("faces", 1), ("vertices", 1), ("vertices", 2)])
    def test_weights_are_invariant_to_units(self, nodes, weights, factor):
        mesh, weights = tetrahedron(2), ["unit", "edge-length", "cotangent"][weights]

        class Plain:
            vertices, faces = mesh.vertices * factor, mesh.faces

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", graphs.NegativeCotangentsWarning)
            expected = Graph.from_mesh(mesh, nodes, weights=weights).adjacency.toarray()
            scaled = Graph.from_mesh(Plain(), nodes, weights=weights).adjacency.toarray()
        np.testing.assert_allclose(scaled, expected, rtol=1e-9)

    @pytest.mark.parametrize("gap", [0.0, 5e-324, 1e-310])
    def test_coincident_vertices_are_refused(self, gap):
        mesh = mesh_of([(0, 0), (1, 0), (0, 1), (gap, 0)], [(0, 1, 2), (0, 3, 2)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", graphs.DisconnectedWarning)
            with pytest.raises(graphs.InvalidGraphError, match=r"0 and 3 .*merge_vert"):
                Graph.from_mesh(mesh, "vertices", weights="edge-length")
            assert Graph.from_mesh(mesh, "vertices").num_edges == 5
        point = mesh_of([(0, 0), (0, 0), (0, 0), (gap, 0), (1, 1)], [(0, 1, 2), (1, 2, 3)])
        with (
            pytest.warns(graphs.DisconnectedWarning),
            pytest.raises(graphs.InvalidGraphError, match=r"Faces .*0 and 1"),
        ):
            Graph.from_mesh(point, weights="edge-length")

    def test_non_finite_coordinates_are_refused(self):
        mesh = mesh_of([(0, 0), (1, 0), (np.nan, 1)], [(0, 1, 2)])
        for nodes, weights in (("faces", "edge-length"), ("vertices", "edge-length"), ("vertices", "cotangent")):
            with pytest.raises(graphs.InvalidGraphError, match=r"Vertex 2 .*finite"):
                Graph.from_mesh(mesh, nodes, weights=weights)


class TestCotangents:
    @pytest.mark.parametrize("make", [trimesh.creation.icosphere, lambda: square_grid(3), lambda: BOOK])
    def test_cotangents_match_angles(self, make):
        mesh, expected = make(), angle_weights(make())
        assert expected.min() > -1e-12
        W = Graph.from_mesh(mesh, "vertices", weights="cotangent").adjacency.toarray()
        np.testing.assert_allclose(W, expected, atol=1e-12)

    @pytest.mark.parametrize("seed", range(5))
    def test_cotangents_match_obtuse_angles(self, seed):
        mesh, expected = tetrahedron(seed), angle_weights(tetrahedron(seed))
        negative = int((np.triu(expected) < 0).sum())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            W = Graph.from_mesh(mesh, "vertices", weights="cotangent").adjacency.toarray()
        np.testing.assert_allclose(W, np.maximum(expected, 0), rtol=1e-9)
        assert len(caught) == (negative > 0)
        if negative:
            assert caught[0].category is graphs.NegativeCotangentsWarning
            assert str(caught[0].message).startswith(f"{negative} of 6 edges have negative cotangent weights")
            assert caught[0].filename == __file__

    def test_rectangle_diagonals_have_no_weight(self):
        mesh = square_grid(4)
        g = Graph.from_mesh(mesh, "vertices", weights="cotangent")
        assert g.num_edges == 2 * 4 * 5
        W, at = g.adjacency.toarray(), np.arange(25).reshape(5, 5)
        assert W[at[1, 1], at[2, 2]] == 0
        assert W[at[1, 1], at[1, 2]] == pytest.approx(1)
        assert W[at[0, 1], at[0, 2]] == pytest.approx(0.5)  # one term at the boundary
        turned = mesh.copy()
        turned.apply_transform(trimesh.transformations.rotation_matrix(0.7, [1, 2, 3], [5, 5, 5]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            other = Graph.from_mesh(turned, "vertices", weights="cotangent")
        assert other.num_edges == 40
        np.testing.assert_allclose(other.adjacency.toarray(), W, atol=1e-12)

    def test_icosahedron_weights(self):
        """Equilateral faces: every weight is cot 60 degrees."""
        g = Graph.from_mesh(trimesh.creation.icosahedron(), "vertices", weights="cotangent")
        assert (g.num_nodes, g.num_edges) == (12, 30)
        np.testing.assert_allclose(g.adjacency.data, 1 / np.sqrt(3), rtol=1e-12)

    def test_spectrum_matches_spherical_harmonics(self):
        """(D - W) v = eigenvalue x lumped areas v on the unit sphere: l (l + 1), 2 l + 1 times."""
        mesh = trimesh.creation.icosphere(4)
        g = Graph.from_mesh(mesh, "vertices", weights="cotangent")
        areas = np.bincount(mesh.faces.ravel(), np.repeat(mesh.area_faces / 3, 3))
        root = sp.diags_array(areas**-0.5)
        matrix = root @ (sp.diags_array(g.degrees) - g.adjacency) @ root
        lowest = np.sort(eigsh(matrix, 16, sigma=-0.1, return_eigenvectors=False))
        expected = np.repeat([0, 2, 6, 12], [1, 3, 5, 7])
        np.testing.assert_allclose(lowest, expected, rtol=0.02, atol=1e-9)

    def test_linear_functions_are_harmonic(self):
        """The finite element Laplacian of a plane mesh kills x and y at inner vertices, whatever the triangles."""
        mesh = square_grid(6)
        inside = np.flatnonzero((mesh.vertices[:, :2] > 0.5).all(1) & (mesh.vertices[:, :2] < 5.5).all(1))
        mesh.vertices[inside, :2] += np.random.default_rng(0).uniform(-0.05, 0.05, (len(inside), 2))
        mesh.vertices[:, 0] += 0.4 * mesh.vertices[:, 1]
        mesh = mesh_of(mesh.vertices[:, :2], mesh.faces)
        W = angle_weights(mesh)
        flipped = W.min() < -1e-12
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", graphs.NegativeCotangentsWarning)
            g = Graph.from_mesh(mesh, "vertices", weights="cotangent")
        V = g.adjacency.toarray()
        assert flipped == ((W < -1e-12).sum() > 0)
        V = np.where(W < 0, W, V)  # with the edges that were left out
        residual = (V.sum(1)[:, None] * mesh.vertices - V @ mesh.vertices)[inside]
        np.testing.assert_allclose(residual, 0, atol=1e-12)

    @pytest.mark.parametrize("thin", [0.0, 1e-13, 5e-324])
    def test_faces_without_area_have_no_weight(self, thin):
        mesh = mesh_of([(0, 0), (1, 0), (0, 1), (0.5, -thin), (1, 1)], [(0, 1, 2), (0, 1, 3), (1, 1, 2), (4, 4, 4)])
        alone = mesh_of(mesh.vertices[:, :2], [(0, 1, 2)])
        with pytest.warns(graphs.DegenerateFacesWarning, match="3 of 4 faces have no area") as caught:
            W = Graph.from_mesh(mesh, "vertices", weights="cotangent").adjacency.toarray()
        assert caught[0].filename == __file__
        np.testing.assert_array_equal(W, Graph.from_mesh(alone, "vertices", weights="cotangent").adjacency.toarray())

    def test_thin_faces_have_finite_weights(self):
        mesh = mesh_of([(0, 0), (1, 0), (0.5, 1e-8)], [(0, 1, 2)])
        with pytest.warns(graphs.NegativeCotangentsWarning, match="1 of 3 edges"):
            W = Graph.from_mesh(mesh, "vertices", weights="cotangent").adjacency.toarray()
        assert W[0, 1] == 0
        assert W[0, 2] == pytest.approx(0.25e8)

    def test_cotangents_need_vertices(self):
        box = trimesh.creation.box()
        with pytest.raises(graphs.InvalidArgumentError, match=r'nodes="vertices"'):
            Graph.from_mesh(box, weights="cotangent")
        with pytest.raises(graphs.InvalidArgumentError, match="weights must be one of 'unit', 'edge-length', 'cotang"):
            Graph.from_mesh(box, weights="length")
        with pytest.raises(TypeError):
            Graph.from_mesh(box, "vertices", "unit")


def test_face_and_vertex_graphs_match_trimesh():
    box = trimesh.creation.box()
    faces, vertices = Graph.from_mesh(box), Graph.from_mesh(box, nodes="vertices")
    assert (faces.num_nodes, faces.num_edges) == (12, 18)
    assert (vertices.num_nodes, vertices.num_edges) == (8, 18)
    np.testing.assert_allclose(faces.coordinates, box.triangles_center)
    with pytest.raises(graphs.InvalidArgumentError, match="nodes must be"):
        Graph.from_mesh(box, nodes="edges")


def test_mesh_files_are_read(tmp_path):
    path = tmp_path / "box.stl"
    trimesh.creation.box().export(path)
    assert len(graphs.load_mesh(path).vertices) == 8  # STL repeats them per face
    (tmp_path / "empty.ply").write_bytes(b"")
    (tmp_path / "bad.ply").write_bytes(b"ply\nformat ascii 1.0\nelement vertex 99999999999\n")
    (tmp_path / "bad.stl").write_bytes(b"\xff" * 50)
    text = trimesh.creation.box().export(file_type="ply", encoding="ascii")
    (tmp_path / "cut.ply").write_bytes(b"\n".join(text.split(b"\n")[:-4]))
    for name in ("missing.stl", "empty.ply", "bad.ply", "bad.stl", "box.txt", "cut.ply"):
        with pytest.raises(graphs.GraphError, match=name):
            graphs.load_mesh(tmp_path / name)


def test_bad_mesh_raises_without_warnings(tmp_path, capsys, caplog):
    corners = "vertex 0 0 0\nvertex 1 0 0\nvertex 0 inf 0\n"
    (tmp_path / "bad.stl").write_text(f"solid bad\nfacet normal 0 0 x\nouter loop\n{corners}endloop\nendsolid\n")
    root = logging.getLogger()
    with pytest.raises(graphs.FileFormatError, match=r"bad\.stl.* finite"):
        graphs.load_mesh(tmp_path / "bad.stl")
    assert caplog.records  # a handler that there is hears of it
    handlers, root.handlers = root.handlers, []  # as in a program that has none
    try:
        with pytest.raises(graphs.FileFormatError):
            graphs.load_mesh(tmp_path / "bad.stl")
    finally:
        root.handlers = handlers
    assert capsys.readouterr().err == ""
    assert logging.getLogger("trimesh").handlers == []


def test_faces_without_area_are_dropped_with_a_warning(tmp_path):
    box = trimesh.creation.box()
    faces = np.concatenate([box.faces, [[0, 0, 1]]])
    trimesh.Trimesh(box.vertices, faces, process=False).export(tmp_path / "m.ply")
    with pytest.warns(graphs.DegenerateFacesWarning, match="1 of 13 faces"):
        assert len(graphs.load_mesh(tmp_path / "m.ply").faces) == 12


@pytest.mark.parametrize("weights", ["edge-length", "cotangent"])
@pytest.mark.filterwarnings("ignore::graphs.NegativeCotangentsWarning")
def test_weights_of_close_vertices_warn(weights):
    mesh = mesh_of([(0, 0), (1, 0), (0, 1), (0.003, 0.003)], [(0, 1, 3), (1, 2, 3), (2, 0, 3)])
    Graph.from_mesh(mesh, "vertices")
    with pytest.warns(graphs.DegenerateFacesWarning, match="2 of 3 faces have a side below") as caught:
        Graph.from_mesh(mesh, "vertices", weights=weights)
    assert caught[0].filename == __file__


def test_sliver_between_faces_stays(tmp_path):
    """A strip of two squares: vertex 6 is on the common side, only the faces to the right have it as a corner."""
    vertices = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (1, 1, 0), (2, 1, 0), (1, 0.5, 0)]
    faces = [(0, 1, 4), (0, 4, 3), (1, 4, 6), (1, 2, 6), (2, 5, 6), (5, 4, 6)]
    trimesh.Trimesh(vertices, faces, process=False).export(tmp_path / "strip.ply")
    mesh = graphs.load_mesh(tmp_path / "strip.ply")
    assert connected_components(Graph.from_mesh(mesh).adjacency)[0] == 1
    with pytest.warns(graphs.DegenerateFacesWarning, match="divides 1 long side"):
        field = graphs.MeshField(tmp_path / "strip.ply")
    divided = graphs.MeshField((vertices, [(0, 1, 6), (0, 6, 4), *faces[1:2], *faces[3:]]))
    np.testing.assert_allclose(field.entries([0.5]), divided.entries([0.5]), rtol=1e-9)


@pytest.mark.parametrize("nodes", ["faces", "vertices"])
def test_cut_mesh_warns_with_a_remedy(nodes):
    """A cube of 24 vertices, as files with a normal for each side have it; and a strip with a slit in one place."""
    cube = trimesh.creation.box()
    sides = trimesh.Trimesh(cube.vertices[cube.faces].reshape(-1, 3), np.arange(36).reshape(12, 3), process=False)
    with pytest.warns(graphs.DisconnectedWarning, match="28 of 36 .* 12 connected components .* 1[.] Merge") as caught:
        graph = Graph.from_mesh(sides, nodes)
    assert caught[0].filename == __file__
    assert connected_components(graph.adjacency)[0] == 12
    sides.merge_vertices()
    assert connected_components(Graph.from_mesh(sides, nodes).adjacency)[0] == 1
    slit = mesh_of([(0, 0), (1, 0), (1, 1), (0, 1), (2, 0), (1, 1)], [(0, 1, 2), (0, 2, 3), (1, 4, 5)])
    with pytest.warns(graphs.DisconnectedWarning, match="1 of 6 vertices .* cuts the surface[.] Merge"):
        Graph.from_mesh(slit, nodes)
    both = trimesh.util.concatenate([cube, cube.copy().apply_translation([3, 0, 0])])
    assert connected_components(Graph.from_mesh(both, nodes).adjacency)[0] == 2  # two bodies are no mistake
    loose = mesh_of([(0, 0), (1, 0), (0, 1), (0, 0)], [(0, 1, 2)])
    assert Graph.from_mesh(loose, "vertices").num_nodes == 4


@pytest.mark.parametrize("nodes", ["faces", "vertices"])
def test_mesh_labels_are_numbers(nodes):
    graph = Graph.from_mesh(trimesh.creation.box(), nodes)
    assert graph.labels == range(graph.num_nodes)
    assert graph.index([3, 1]).tolist() == graph.labels_at(np.array([3, 1])).tolist() == [3, 1]
    with pytest.raises(graphs.UnknownNodeError, match="got 12"):
        graph.index([12])
    part = graph.subgraph([4, 2])
    assert part.labels == (4, 2)
    assert part.index([2]).tolist() == [1]


@pytest.mark.parametrize("kind", ["path", "text", "scene", "pair"])
def test_accepted_mesh_types(kind, tmp_path):
    ball = trimesh.creation.icosphere(1)
    ball.export(tmp_path / "ball.ply")
    moved = trimesh.Scene()
    moved.add_geometry(ball, transform=trimesh.transformations.translation_matrix([2, 0, 0]))
    given = {"path": tmp_path / "ball.ply", "text": str(tmp_path / "ball.ply"), "scene": moved}
    mesh = given.get(kind, (ball.vertices, ball.faces))
    shift = np.array([2.0, 0, 0]) if kind == "scene" else np.zeros(3)
    for read in (Graph.from_mesh(mesh, "vertices"), graphs.MeshField(mesh)):
        np.testing.assert_allclose(read.coordinates, ball.vertices + shift, atol=1e-6)


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        (trimesh.Scene(), "scene must"),
        (trimesh.Scene([trimesh.PointCloud(np.eye(3))]), "scene must"),
        (trimesh.PointCloud(np.eye(3)), "(?i)point clouds"),
        ("missing.ply", "There is no file missing.ply"),
        (3, "must be an object with vertices and faces.* got 3"),
    ],
)
def test_non_mesh_error_names_the_type(mesh, message):
    for read in (Graph.from_mesh, graphs.MeshField):
        with pytest.raises(graphs.GraphError, match=message):
            read(mesh)
