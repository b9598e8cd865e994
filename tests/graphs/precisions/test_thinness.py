"""Surfaces with nearly coincident vertices and flat faces against the same surfaces without them."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import trimesh

import graphs
from graphs import MeshField

BALL = trimesh.creation.icosphere(2)
VERTICES, FACES = np.asarray(BALL.vertices), np.asarray(BALL.faces)


def near_corners(eps):
    """A vertex inside each of 20 faces, eps of the way from a corner, and eps^2 of the way another one."""
    vertices, faces = list(VERTICES), list(FACES[20:])
    for a, b, c in FACES[:20]:
        away = VERTICES[b] + VERTICES[c] - 2 * VERTICES[a]
        vertices += [VERTICES[a] + eps * away, VERTICES[a] + eps**2 * away]
        n, m = len(vertices) - 2, len(vertices) - 1
        faces += [(n, b, c), (a, b, m), (m, b, n), (c, a, m), (c, m, n)]
    return np.array(vertices), np.array(faces)


def on_sides(eps):
    """Three vertices on a side, eps off, that only the faces of one half know: slivers fill the gap."""
    a, b, c = FACES[0]
    inner = [VERTICES[a] + t * (VERTICES[b] - VERTICES[a]) + eps * t * VERTICES[c] for t in (0.2, 0.5, 0.7)]
    p, q, r = range(len(VERTICES), len(VERTICES) + 3)
    slivers, fan = [(a, p, q), (a, q, r), (a, r, b)], [(a, p, c), (p, q, c), (q, r, c), (r, b, c)]
    return np.concatenate([VERTICES, inner]), np.concatenate([FACES[1:], slivers, fan])


def divided():
    """The surface of `on_sides` without slivers: the face beyond the side has the three vertices too."""
    vertices, faces = on_sides(0.0)
    a, b, _ = FACES[0]
    beyond = next(i for i, face in enumerate(faces) if {a, b} < set(face) and max(face) < len(VERTICES))
    (d,) = set(faces[beyond].tolist()) - {a, b}
    places = [a, *range(len(VERTICES), len(VERTICES) + 3), b]
    kept = np.delete(faces, [beyond, *range(len(FACES) - 1, len(FACES) + 2)], axis=0)
    return vertices, np.concatenate([kept, [(i, j, d) for i, j in itertools.pairwise(places)]])


def law(field, points, lengthscale=1.0):
    """Return the mean and standard deviation at points, given heights of 80 vertices."""

    def rows(at):
        found = field.locate(at)
        return field.projector(found.faces, found.barycentric)

    given = rows(VERTICES[:80])
    pattern = field.pattern
    prior = sp.csr_array((field.entries(np.array([lengthscale])), pattern.indices, pattern.indptr)).toarray()
    root = np.linalg.cholesky(prior + 100 * (given.T @ given).toarray())
    half = np.linalg.solve(root, rows(points).toarray().T)
    return half.T @ np.linalg.solve(root, given.T @ (100 * VERTICES[:80, 2])), np.linalg.norm(half, axis=0)


@pytest.mark.parametrize("eps", [1e-3, 1e-5, 1e-7, 1e-8, 1e-10, 1e-13])
@pytest.mark.parametrize("alpha", [1, 2, 3])
@pytest.mark.filterwarnings("ignore::graphs.DegenerateFacesWarning")
def test_close_vertices_leave_posterior_unchanged(alpha, eps):
    vertices, faces = near_corners(eps)
    points = np.concatenate([VERTICES[80:], vertices[162:], vertices[faces[-40:]].mean(axis=1)])
    found, expected = (law(MeshField(mesh, alpha), points) for mesh in ((vertices, faces), BALL))
    np.testing.assert_allclose(found, expected, atol=max(5 * eps, 1e-6))


@pytest.mark.parametrize("eps", [0.0, 1e-13, 1e-7])
@pytest.mark.parametrize("alpha", [2, 3])
@pytest.mark.filterwarnings("ignore::graphs.DegenerateFacesWarning")
def test_slivers_do_not_cut_the_surface(alpha, eps):
    mesh = on_sides(eps)
    points = np.concatenate([mesh[0][80:], mesh[0][mesh[1][-40:]].mean(axis=1)])
    found, expected = (law(MeshField(each, alpha), points) for each in (mesh, divided()))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [2, 3, 4])
@pytest.mark.filterwarnings("ignore::graphs.DegenerateFacesWarning", "ignore::graphs.UnreferencedVerticesWarning")
def test_damaged_surface_stays_whole(alpha, seed):
    """Vertices near corners, near sides and on sides, one after another, also in faces that have some already."""
    rng, vertices, faces = np.random.default_rng(seed), list(VERTICES), FACES.tolist()
    for number in range(60):
        face, eps, share = rng.integers(len(faces)), 10.0 ** -rng.uniform(4, 14), rng.uniform(0.1, 0.9)
        a, b, c = np.roll(faces[face], rng.integers(3)).tolist()
        on_side = (1 - share) * vertices[a] + share * vertices[b]
        kinds = (
            vertices[a] + eps * (vertices[b] + vertices[c] - 2 * vertices[a]),
            on_side + eps * (vertices[c] - on_side),
        )
        vertices.append((*kinds, on_side)[number % 3])
        new = len(vertices) - 1
        faces[face] = [a, b, new]
        faces += [[b, c, new], [c, a, new]]
    field = MeshField((np.array(vertices), faces), alpha)  # a cut surface would warn
    assert np.isfinite(field.factor_at(np.array([1.0])).log_determinant)
    assert field.areas.sum() == pytest.approx(BALL.area, rel=1e-3)
    np.testing.assert_allclose(
        field.projector_at_vertices(range(len(vertices))) @ field.coordinates, vertices, atol=1e-3
    )


def test_joined_vertices_are_named_and_keep_values():
    vertices, faces = near_corners(1e-6)
    with pytest.warns(graphs.DegenerateFacesWarning, match="80 of 400 .* joins 40 vertices .*first 162 with"):
        field = MeshField((vertices, faces))
    assert (field.num_vertices, len(field.coordinates)) == (202, 162)
    np.testing.assert_array_equal(field.vertices, vertices)
    np.testing.assert_allclose(field.projector_at_vertices(range(202)) @ field.coordinates, vertices, atol=1e-15)
    np.testing.assert_allclose(field.projector(range(400)) @ field.coordinates, vertices[faces].mean(1), atol=1e-15)


def test_chain_of_short_sides_is_thinned_out():
    """A disk whose rim has 400 sides of 1e-6: a fan of needles."""
    turns = np.concatenate([np.arange(401) * 1e-6, np.linspace(0.1, 2 * np.pi, 60)[:-1]])
    rim = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    faces = [(0, i, i % len(rim) + 1) for i in range(1, len(rim) + 1)]
    with pytest.warns(graphs.DegenerateFacesWarning):
        field = MeshField((np.concatenate([[(0.0, 0.0)], rim]), faces))
    kept = field.coordinates[1:]
    gaps = np.linalg.norm(kept - np.roll(kept, 1, axis=0), axis=1)
    assert gaps.min() > 1e-5
    assert 59 + 10 < len(kept) < 59 + 21
    some = np.arange(0, 401, 25)
    assert field.locate(rim[some]).distances.max() < 1e-15
    np.testing.assert_allclose(field.projector_at_vertices(some + 1) @ field.coordinates, rim[some], atol=5e-5)


@pytest.mark.parametrize("alpha", [2, 3])
def test_graded_mesh_is_unchanged(alpha):
    """Rings of 8 vertices with radii from 1e-9 to 1."""
    radii = np.repeat(np.geomspace(1e-9, 1, 60), 8)
    turns = np.tile(np.arange(8) * np.pi / 4, 60) + np.repeat(np.arange(60) * np.pi / 8, 8)
    ring, step = 8 * np.arange(59)[:, None], np.arange(8)
    a, b = ring + step, ring + (step + 1) % 8
    faces = np.stack([np.stack([a, b, a + 8], axis=2), np.stack([b, b + 8, a + 8], axis=2)]).reshape(-1, 3)
    field = MeshField((np.stack([radii * np.cos(turns), radii * np.sin(turns)], axis=1), faces), alpha)
    assert len(field.coordinates) == 480


def test_cut_of_close_vertices_is_named():
    slit = [(0, 0), (1, 0), (1, 1), (0, 1), (2, 0), (1, 1 + 1e-9)]
    with pytest.warns(graphs.DisconnectedWarning, match="first 2 and 5"):
        MeshField((slit, [(0, 1, 2), (0, 2, 3), (1, 4, 5)]))
