"""C and G against an assembly by gradients, which solves for each hat function; and what is no mesh for a field."""

import numpy as np
import pytest
import trimesh

import graphs
from graphs import MeshField
from graphs.precisions import elements


def pair_of(vertices, faces):
    return np.array(vertices, dtype=float), np.array(faces)


def plane(seed, n=6):
    """A grid of squares, cut by diagonals and shaken: with obtuse angles."""
    at = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    a, b, c, d = at[:-1, :-1].ravel(), at[1:, :-1].ravel(), at[1:, 1:].ravel(), at[:-1, 1:].ravel()
    vertices = np.stack(np.meshgrid(range(n + 1), range(n + 1), indexing="ij"), axis=-1).reshape(-1, 2)
    shaken = vertices + np.random.default_rng(seed).uniform(-0.3, 0.3, vertices.shape)
    return pair_of(shaken, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)]))


def sphere(subdivisions=1):
    mesh = trimesh.creation.icosphere(subdivisions)
    return pair_of(mesh.vertices, mesh.faces)


BOOK = pair_of([(0, 0, 0), (0, 0, 1), (1, 0, 0.5), (-1, 0.3, 0.2), (0.2, -1, 0.4)], [(0, 1, 2), (1, 0, 3), (0, 1, 4)])
MESHES = {
    "plane": lambda: plane(0),
    "sphere": sphere,
    "three faces on an edge": lambda: BOOK,
    "one face": lambda: pair_of([(0, 0), (3, 0), (1, 0.5)], [(0, 1, 2)]),
}


def twin(vertices, faces):
    """Return C and G: gradients solve linear systems, and integrals are means over the middles of sides (exact)."""
    size = len(vertices)
    mass, stiffness, area = np.zeros((size, size)), np.zeros((size, size)), 0.0
    places = np.zeros((size, 3))
    places[:, : vertices.shape[1]] = vertices
    middles = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    for face in faces:
        p, q, r = places[face]
        normal = np.cross(q - p, r - p)
        size = np.sqrt(normal @ normal) / 2
        gradients = np.linalg.solve(np.array([q - p, r - p, normal]), np.array([[-1.0, 1, 0], [-1, 0, 1], [0, 0, 0]]))
        stiffness[np.ix_(face, face)] += size * gradients.T @ gradients
        mass[np.ix_(face, face)] += size * (middles.T @ middles) / 3
        area += size
    return np.diag(mass.sum(axis=1)), stiffness, area


def read(vertices, faces):
    """Return C and G of what is tested, in the mesh's own unit."""
    masses, stiffness, unit = elements.read_mesh((vertices, faces)).elements
    return np.diag(masses) * unit**2, stiffness.toarray()


@pytest.mark.parametrize("name", MESHES)
def test_stiffness_matches_gradients(name):
    vertices, faces = MESHES[name]()
    C, G = read(vertices, faces)
    mass, stiffness, area = twin(vertices, faces)
    np.testing.assert_allclose(C, mass, rtol=1e-12)
    np.testing.assert_allclose(G, stiffness, atol=1e-12 * np.abs(stiffness).max())
    np.testing.assert_allclose(np.trace(C), area, rtol=1e-12)
    np.testing.assert_allclose(G.sum(axis=1), 0, atol=1e-13 * np.abs(G).max())
    assert np.linalg.eigvalsh(G).min() > -1e-12 * np.abs(G).max()
    np.testing.assert_array_equal(G, G.T)


def test_negative_cotangents_are_kept():
    """The energy of the coordinates x and y is the area each, and they are harmonic inside, on any plane mesh."""
    vertices, faces = plane(1)
    C, G = read(vertices, faces)
    off = G - np.diag(np.diag(G))
    assert off.max() > 0.05
    np.testing.assert_allclose(np.diag(vertices.T @ G @ vertices), np.trace(C), rtol=1e-12)
    inside = np.setdiff1d(np.arange(49), np.flatnonzero([i // 7 in (0, 6) or i % 7 in (0, 6) for i in range(49)]))
    np.testing.assert_allclose((G @ vertices)[inside], 0, atol=1e-12)
    left_out = np.minimum(off, 0)
    left_out -= np.diag(left_out.sum(axis=1))
    assert np.abs(np.diag(vertices.T @ left_out @ vertices) - np.trace(C)).min() > 0.1


FAULTS = {
    "cotangents halved": lambda found: found._replace(cotangents=found.cotangents / 2),
    "cotangents of the next side": lambda found: found._replace(cotangents=np.roll(found.cotangents, 1, axis=1)),
    "negative ones left out": lambda found: found._replace(cotangents=np.maximum(found.cotangents, 0)),
    "half the areas": lambda found: found._replace(areas=found.areas * 1.5),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_errors_are_found(name, monkeypatch):
    right = elements.angles
    monkeypatch.setattr(elements, "angles", lambda vertices, faces: FAULTS[name](right(vertices, faces)))
    with pytest.raises(AssertionError):
        test_stiffness_matches_gradients("plane")


SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]
REFUSED = {
    "nothing": (([], []), "no faces"),
    "points": ((SQUARE, []), "no faces"),
    "a number": (3, "vertices and faces"),
    "texts": (("abcd", [(0, 1, 2)]), r"vertices \(V, 2\) or \(V, 3\)"),
    "squares": ((SQUARE, [(0, 1, 2, 3)]), "(?i)split polygons"),
    "a line": (([(0,), (1,), (2,)], [(0, 1, 2)]), "(?i)split polygons"),
    "a corner too many": ((SQUARE, [(0, 1, 4)]), r"face 0 .*\[0, 1, 4\]"),
    "no integers": ((SQUARE, [(0, 1, 1.5)]), "must be integers"),
    "not finite": (([(0, 0), (1, 0), (np.nan, 1)], [(0, 1, 2)]), "Vertex 2 .*finite"),
    "infinite": (([(0, 0), (1, 0), (np.inf, 1)], [(0, 1, 2)]), "Vertex 2 .*finite"),
    "twins": (([*SQUARE, (1, -0.0)], [(0, 1, 2), (0, 4, 3)]), "1 and 4 .*merge_vertices"),
    "no area": (([(0, 0), (1, 0), (2, 0)], [(0, 1, 2)]), "area.* 1 faces"),
    "a point": (([(0, 0), (0, 0), (0, 0)], [(0, 1, 2)]), "area.* 1 faces"),
    "tiny": (([*SQUARE, (1e-25, 0), (0, 1e-25)], [(0, 4, 5), (1, 2, 3)]), "vertex 0"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::graphs.DisconnectedWarning")
def test_invalid_meshes_are_refused(name):
    mesh, message = REFUSED[name]
    with pytest.raises(graphs.InvalidGraphError, match=message):
        MeshField(mesh)


def test_unmerged_stl_mesh_is_refused():
    vertices, faces = sphere()
    torn = trimesh.Trimesh(vertices[faces].reshape(-1, 3), np.arange(faces.size).reshape(-1, 3), process=False)
    with pytest.raises(graphs.InvalidGraphError, match=r"198 such vertices.*merge_vertices"):
        MeshField(torn)
    torn.merge_vertices()
    assert MeshField(torn).num_vertices == 42


def test_textured_mesh_is_merged_by_the_advice():
    """A seam: five vertices are twice at one place, with two texture coordinates."""
    vertices, faces = sphere()
    faces = faces.copy()
    for i in range(5):
        face = np.flatnonzero((faces == i).any(axis=1))[0]
        faces[face, faces[face] == i] += 42
    uv = np.random.default_rng(0).uniform(size=(47, 2))
    texture = trimesh.visual.TextureVisuals(uv=uv)
    seam = trimesh.Trimesh(np.concatenate([vertices, vertices[:5]]), faces, process=False, visual=texture)
    seam.merge_vertices()
    with pytest.raises(graphs.InvalidGraphError, match=r"5 such vertices.*merge_tex=True"):
        MeshField(seam)
    seam.merge_vertices(merge_tex=True, merge_norm=True)
    assert MeshField(seam).num_vertices == 42


def test_face_without_area_divides_long_side():
    center = [*SQUARE, (0.5, 0.5)]
    sound = MeshField((center, [(0, 1, 4), (1, 2, 4), (0, 4, 3), (4, 2, 3)]))
    with pytest.warns(graphs.DegenerateFacesWarning, match="2 of 5 faces .* divides 1 long side") as caught:
        field = MeshField((center, [(0, 4, 2), (0, 1, 4), (1, 2, 4), (1, 1, 2), (0, 2, 3)]))
    assert caught[0].filename == __file__
    np.testing.assert_allclose(field.entries([0.7]), sound.entries([0.7]), rtol=1e-12)
    halves = [(0.5, 0, 0, 0, 0.5), (0, 0, 0, 0.5, 0.5)]  # a quarter along the flat face, and inside the divided one
    np.testing.assert_allclose(field.projector([0, 4], [(0.5, 0.5, 0), (0.25, 0.25, 0.5)]).toarray(), halves)


def test_duplicate_faces_count_once():
    with pytest.warns(graphs.DuplicateFacesWarning, match=r"2 of 4 faces .*first 2 and 0") as caught:
        field = MeshField((SQUARE, [(0, 1, 2), (0, 2, 3), (2, 1, 0), (0, 1, 2)]))
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(field.entries([0.7]), MeshField((SQUARE, [(0, 1, 2), (0, 2, 3)])).entries([0.7]))
    assert field.locate([(0.6, 0.4), (0.4, 0.6)]).faces.tolist() == [0, 1]
    np.testing.assert_array_equal(field.projector([2]).toarray(), field.projector([0]).toarray())


WALL = [(0, 0), (2, 0), (2, 1), (1, 1), (0, 1), (5, 5)], [(0, 1, 2), (0, 2, 4), (2, 3, 4)]
"""A sliver has vertex 3 in the middle of a side, and vertex 5 is on no face, as in trimesh's wallhole.obj."""


def wall():
    with (
        pytest.warns(graphs.DegenerateFacesWarning, match="1 of 3"),
        pytest.warns(graphs.UnreferencedVerticesWarning, match="2 of 6 vertices") as caught,
    ):
        field = MeshField(WALL)
    assert caught[0].filename == __file__
    return field


def test_unreferenced_vertices_are_dropped_with_a_warning():
    field, sound = wall(), MeshField(([*WALL[0][:3], WALL[0][4]], [(0, 1, 2), (0, 2, 3)]))
    np.testing.assert_allclose(field.entries([0.7]), sound.entries([0.7]), rtol=1e-12)
    assert field.vertices_on_faces.tolist() == [0, 1, 2, 4]
    assert (field.num_vertices, field.max_distance) == (6, sound.max_distance)
    np.testing.assert_array_equal(field.vertices, WALL[0])
    np.testing.assert_array_equal(field.coordinates, sound.coordinates)


def test_unreferenced_vertex_projects_to_nearest_point():
    field = wall()
    np.testing.assert_array_equal(
        field.projector_at_vertices([4, 3, 0]).toarray(), [[0, 0, 0, 1], [0, 0, 0.5, 0.5], [1, 0, 0, 0]]
    )
    of_sliver = field.projector([2, 2], [(0, 1, 0), (1, 0, 0)])
    np.testing.assert_array_equal(of_sliver.toarray(), [[0, 0, 0.5, 0.5], [0, 0, 1, 0]])
    assert field.locate([(1, 1)]).distances.tolist() == [0]


def test_far_unreferenced_vertices_are_listed():
    with pytest.raises(graphs.InvalidArgumentError, match=r"got 1 on no face .*: 5\."):
        wall().projector_at_vertices([3, 5])


def test_components_are_counted():
    (vertices, faces), (others, their) = sphere(), plane(0, 1)
    both = np.concatenate([vertices, np.pad(others, ((0, 0), (0, 1))) + 5]), np.concatenate([faces, their + 42])
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components") as caught:
        MeshField(both)
    assert caught[0].filename == __file__


def test_arguments_are_copied():
    vertices, faces = plane(3)
    before = vertices.copy()
    field = MeshField((vertices, faces))
    entries = field.entries([1.0])
    vertices += 1
    np.testing.assert_array_equal(field.coordinates, before)
    np.testing.assert_array_equal(field.entries([1.0]), entries)
    for array in (field.coordinates, field.faces, field.areas, field.pattern.indices, field.pattern.indptr):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
