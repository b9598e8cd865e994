"""Fields on meshes: finite elements, spheres and planes, nearest points, and faces that are too thin."""

import gc
import itertools
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
import trimesh
from fields import elements, matern, matrix, mesh_precision, squares
from refusals import refused
from scipy.linalg import eigh
from scipy.spatial import Delaunay

import graphs
from graphs import MeshField

BALL = trimesh.creation.icosphere(1)


def scattered(seed, n=30):
    points = np.random.default_rng(seed).uniform(0, 3, (n, 2))
    return points, Delaunay(points).simplices


BOOK = ([(0, 0, 0), (0, 0, 1), (1, 0, 0.5), (-1, 0.3, 0.2), (0.2, -1, 0.4)], [(0, 1, 2), (1, 0, 3), (0, 1, 4)])
MESHES = {
    "scattered": scattered(0),
    "ball": (BALL.vertices, BALL.faces),
    "three faces on an edge": BOOK,
    "grid": squares(4, 4.0)[:2],
}


def heat(mesh):
    """Return exp(-L / 9) C^-1 of the Laplacian L = C^-1 G, by a dense generalized eigenproblem."""
    C, G = elements(*mesh)
    values, vectors = eigh(G, np.diag(C))
    return (vectors * np.exp(-values / 9)) @ vectors.T


def jittered(seed, count=6):
    """Return a Delaunay triangulation without obtuse angles at its boundary."""
    points, _, at = squares(count, float(count))
    inner = at[1:-1, 1:-1].ravel()
    points[inner] += np.random.default_rng(seed).uniform(-0.3, 0.3, (len(inner), 2))
    return points, Delaunay(points).simplices


@pytest.mark.parametrize("name", ["ball", "grid"])
def test_spectrum_solves_the_generalized_eigenproblem(name):
    mesh = MESHES[name]
    scaled = MeshField((1e3 * np.asarray(mesh[0]), mesh[1]), 3)
    values, vectors = MeshField(mesh).spectrum(len(mesh[0]))
    np.testing.assert_allclose((vectors * np.exp(-values / 9)) @ vectors.T, heat(mesh), atol=1e-9)
    np.testing.assert_allclose(scaled.spectrum(5)[0], 1e-6 * values[:5], rtol=1e-7, atol=1e-15)
    np.testing.assert_allclose(vectors.T @ (elements(*mesh)[0][:, None] * vectors), np.eye(len(values)), atol=1e-9)


def test_spectrum_is_of_the_delaunay_triangulation():
    """Edges are flipped to the other diagonal of a convex quadrilateral, until many faces have changed."""
    points, faces = jittered(2)
    faces, flips = faces.copy(), 0
    for first, second in itertools.permutations(range(len(faces)), 2):
        shared = np.intersect1d(faces[first], faces[second])
        if len(shared) == 2 and flips < len(faces) // 2:
            (i, j), k, m = shared, np.setdiff1d(faces[first], shared)[0], np.setdiff1d(faces[second], shared)[0]
            sides = [np.linalg.det([points[i] - points[k], points[m] - points[k]])]
            sides.append(np.linalg.det([points[j] - points[k], points[m] - points[k]]))
            if sides[0] * sides[1] < 0 and min(map(abs, sides)) > 0.01:
                faces[first], faces[second], flips = (i, m, k), (m, j, k), flips + 1
    values, vectors = MeshField((points, faces)).spectrum(49)
    assert flips > len(faces) // 4
    np.testing.assert_allclose((vectors * np.exp(-values / 9)) @ vectors.T, heat(jittered(2)), atol=1e-9)


def test_spectrum_of_surfaces_with_several_sheets_has_constants():
    """Faces of one edge have different orders of corners, or there are three, or a strip is twisted."""
    angle = np.linspace(0, np.pi, 9)[:-1]
    middle, across = np.stack([np.cos(2 * angle), np.sin(2 * angle), 0 * angle], 1), np.sin(angle)
    along = 0.4 * np.stack([np.cos(angle) * np.cos(2 * angle), np.cos(angle) * np.sin(2 * angle), across], 1)
    vertices = np.concatenate([middle - along, middle + along])
    strip = [(i, i + 1, i + 8) for i in range(7)] + [(i + 1, i + 9, i + 8) for i in range(7)] + [(7, 8, 15), (8, 0, 15)]
    for mesh in (
        BOOK,
        (vertices, strip),
        (BALL.vertices, np.where(np.arange(80)[:, None] < 9, BALL.faces[:, ::-1], BALL.faces)),
    ):
        values, vectors = MeshField(mesh).spectrum(3)
        assert values[0] < 1e-9 < 1e-2 < values[1]
        np.testing.assert_allclose(np.ptp(vectors[:, 0]), 0, atol=1e-9)


def test_largest_meshes_have_the_spectrum_of_the_sphere():
    """Each eigenvalue l (l + 1) has 2 l + 1 copies, found by blocks; the dense problem has the same numbers."""
    ball = trimesh.creation.icosphere(3)
    values, vectors = MeshField(ball).spectrum(16)
    sphere = np.concatenate([[degree * (degree + 1.0)] * (2 * degree + 1) for degree in range(4)])
    np.testing.assert_allclose(values, sphere, rtol=0.02, atol=1e-9)
    everything, _ = MeshField(ball).spectrum(200)
    np.testing.assert_allclose(values, everything[:16], atol=1e-9)
    np.testing.assert_allclose(vectors.T @ (MeshField(ball).areas[:, None] * vectors), np.eye(16), atol=1e-9)


@pytest.mark.parametrize("alpha", range(1, 7))
def test_mesh_entries_match_the_recursion(alpha):
    """Obtuse angles have negative cotangents, which are kept; right angles cancel, and stay on the pattern."""
    for mesh in MESHES.values():
        field = MeshField(mesh, alpha)
        np.testing.assert_allclose(field.areas, elements(*mesh)[0], rtol=1e-12)
        hop = np.eye(field.num_vertices, dtype=int)
        for face in field.faces:
            hop[np.ix_(face, face)] = 1
        indptr, indices = field.pattern
        found = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=hop.shape).toarray()
        np.testing.assert_array_equal(found, np.linalg.matrix_power(hop, alpha) > 0)
        roots = np.sqrt(field.areas)
        for lengthscale in (0.1, 4.0):
            expected, Q = mesh_precision(mesh, alpha, lengthscale), matrix(field, lengthscale)
            np.testing.assert_allclose(Q, expected, atol=1e-12 * np.abs(expected).max())
            np.testing.assert_array_equal(Q, Q.T)
        actual = np.linalg.cond(matrix(field, 0.1) / roots / roots[:, None])
        assert 0.999 * actual <= field.condition([0.1]) <= 4**alpha * actual


def test_mesh_determinant_keeps_its_digits_for_long_lengthscales():
    """By eigenvalues x_i >= 0: log |Q| = sum_i log(kappa^2 C_ii / (4 pi nu)) + a log(1 + x_i / kappa^2)."""
    C, G = elements(BALL.vertices, BALL.faces)
    eigenvalues, kappa2 = np.linalg.eigvalsh(G / np.sqrt(C) / np.sqrt(C)[:, None]), 10 / 300.0**2
    eigenvalues[0] = 0
    expected = np.log(kappa2 * C / (20 * np.pi)).sum() + 6 * np.log1p(eigenvalues / kappa2).sum()
    field = MeshField(BALL, 6)
    assert field.condition([300.0]) > 1e30
    assert field.log_determinant(np.array([300.0]))[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("alpha", [2, 3])
def test_plane_has_the_matern_kernel_and_its_images_at_edges(alpha):
    """The mesh is its own image in its rim: variances double at an edge, and again at a corner."""
    vertices, faces, at = squares(36, 2.7)
    places = [at[18, 18], at[18, 0], at[0, 0]]
    Q = matrix(MeshField((vertices, faces), alpha), 0.3)
    found = np.linalg.solve(Q, np.eye(len(Q))[:, places]).T
    distances = np.linalg.norm(vertices - vertices[places[0]], axis=1)
    about = (distances > 0.147) & (distances < 0.39)
    assert np.abs(found[0] - matern(alpha - 1, distances, 0.3))[about].max() < 0.04
    assert found[0, places[0]] == pytest.approx(1, abs=0.1)
    assert found[1, places[1]] / found[0, places[0]] == pytest.approx(2, rel=1e-4)
    assert found[2, places[2]] / found[0, places[0]] == pytest.approx(4, rel=1e-4)


@pytest.mark.parametrize("alpha", [1, 2, 4])
def test_mesh_precision_is_invariant_to_units(alpha):
    vertices, faces = scattered(2)
    before, field = vertices.copy(), MeshField((vertices, faces), alpha)
    expected = field.entries([0.5])
    for unit in (1e-150, 1e150):
        other = MeshField((vertices * unit, faces), alpha)
        np.testing.assert_allclose(other.entries([0.5 * unit]), expected, atol=1e-11 * np.abs(expected).max())
    vertices += 1
    np.testing.assert_array_equal(field.coordinates, before)
    with np.errstate(all="raise"):
        for lengthscale in np.geomspace(1e-12, 1e12, 13):
            assert np.isfinite(field.entries([lengthscale])).all()


def test_a_field_is_freed_with_its_last_name():
    field = MeshField(trimesh.creation.icosphere(1))
    field.entries(np.ones(1))
    kept = weakref.ref(field)
    gc.disable()
    try:
        del field
        assert kept() is None
    finally:
        gc.enable()


def fan():
    """Return triangles that are up to a million times as long as high."""
    heights = np.concatenate([[0], np.geomspace(1e-6, 1, 8)])
    vertices = np.array([(0, 0, 0), *((1, h, h**2) for h in heights)])
    return MeshField((vertices, [(0, i, i + 1) for i in range(1, 9)]), 1)


def nearest_by_least_squares(point, corners):
    """Return the distance to a triangle: that of the corners, sides and inside whose weights are not negative."""
    best = np.inf
    for some in itertools.chain.from_iterable(itertools.combinations(range(3), count) for count in (1, 2, 3)):
        base, spans = corners[some[0]], (corners[list(some[1:])] - corners[some[0]]).T
        shares = np.linalg.lstsq(spans, point - base)[0] if len(some) > 1 else np.zeros(0)
        if (shares >= 0).all() and shares.sum() <= 1:
            best = min(best, float(np.linalg.norm(base + spans @ shares - point)))
    return best


@pytest.mark.parametrize("make", [lambda: MeshField(BALL), fan], ids=["ball", "fan"])
def test_nearest_point_matches_least_squares(make):
    field, rng = make(), np.random.default_rng(1)
    places = field.coordinates
    near = places[rng.integers(len(places), size=8)] + rng.normal(size=(8, 3)) * rng.choice([1e-7, 1e-3, 0.3], (8, 1))
    points = np.concatenate([near, rng.normal(size=(6, 3)) * 2])
    found = field.locate(points)
    expected = [min(nearest_by_least_squares(point, places[face]) for face in field.faces) for point in points]
    np.testing.assert_allclose(found.distances, expected, rtol=1e-9, atol=1e-15)
    A = field.projector(found.faces, found.barycentric)
    np.testing.assert_allclose(np.linalg.norm(A @ places - points, axis=1), found.distances, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(A.sum(axis=1), 1, rtol=1e-14)
    at_vertices = field.locate(places)
    own = field.projector(at_vertices.faces, at_vertices.barycentric)
    assert own.nnz == len(places)
    np.testing.assert_array_equal(own.toarray(), np.eye(len(places)))


def test_points_on_sides_have_two_weights():
    field = MeshField(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)]))
    found = field.locate([(0.5, 0.5), (0.25, -3), (-1, -1), (0.25, 0.25)])
    assert np.diff(field.projector(found.faces, found.barycentric).indptr).tolist() == [2, 2, 1, 3]
    np.testing.assert_allclose(field.projector([0]).toarray(), [[1 / 3] * 3])
    assert field.projector([]).shape == field.projector_at_vertices([]).shape == (0, 3)
    assert [part.shape for part in field.locate([])] == [(0,), (0, 3), (0,)]


@pytest.mark.slow
def test_many_equally_near_faces_are_compared_in_blocks():
    """From the center of a sphere all faces are about equally far: 300,000 pairs for 240 points."""
    field = MeshField(trimesh.creation.icosphere(3))
    inner = np.linalg.norm(field.coordinates[field.faces].mean(axis=1), axis=1).min()
    points = 1e-9 * np.random.default_rng(0).normal(size=(240, 3))
    found = field.locate(points)
    np.testing.assert_allclose(found.distances, inner, atol=1e-8)
    for row in (0, 101, 239):
        alone = field.locate(points[[row]])
        assert (alone.faces[0], alone.distances[0]) == (found.faces[row], found.distances[row])
    np.testing.assert_allclose(field.locate([(1e6, 0, 0)]).distances, 1e6 - 1, rtol=1e-12)


# --- thin and degenerate faces -------------------------------------------------------------------

SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]
SPHERE = trimesh.creation.icosphere(2)
VERTICES, FACES = np.asarray(SPHERE.vertices), np.asarray(SPHERE.faces)


def near_corners(eps):
    """Return a vertex inside each of 20 faces, eps of the way from a corner, and eps^2 of the way another one."""
    vertices, faces = list(VERTICES), list(FACES[20:])
    for a, b, c in FACES[:20]:
        away = VERTICES[b] + VERTICES[c] - 2 * VERTICES[a]
        vertices += [VERTICES[a] + eps * away, VERTICES[a] + eps**2 * away]
        n, m = len(vertices) - 2, len(vertices) - 1
        faces += [(n, b, c), (a, b, m), (m, b, n), (c, a, m), (c, m, n)]
    return np.array(vertices), np.array(faces)


def posterior(field, points):
    """Return the mean and standard deviation at points, given heights of 80 vertices."""

    def rows(at):
        found = field.locate(at)
        return field.projector(found.faces, found.barycentric).toarray()

    given_rows = rows(VERTICES[:80])
    root = np.linalg.cholesky(matrix(field, 1.0) + 100 * given_rows.T @ given_rows)
    half = np.linalg.solve(root, rows(points).T)
    return half.T @ np.linalg.solve(root, given_rows.T @ (100 * VERTICES[:80, 2])), np.linalg.norm(half, axis=0)


@pytest.mark.parametrize(
    ("eps", "alpha", "error"), [(1e-3, 1, 5e-3), (1e-5, 2, 5e-5), (1e-7, 3, 1e-6), (1e-13, 2, 1e-6)]
)
@pytest.mark.filterwarnings("ignore::graphs.DegenerateFacesWarning")
def test_thin_faces_leave_the_posterior_unchanged(eps, alpha, error):
    vertices, faces = near_corners(eps)
    points = np.concatenate([VERTICES[80:], vertices[162:], vertices[faces[-40:]].mean(axis=1)])
    found, expected = (posterior(MeshField(mesh, alpha), points) for mesh in ((vertices, faces), (VERTICES, FACES)))
    np.testing.assert_allclose(found, expected, atol=error)


def test_joined_vertices_keep_their_places():
    vertices, faces = near_corners(1e-6)
    with pytest.warns(graphs.DegenerateFacesWarning, match="80 of 400 .* joins 40 vertices .*first 162 with"):
        field = MeshField((vertices, faces))
    assert (field.num_vertices, len(field.coordinates)) == (202, 162)
    np.testing.assert_allclose(field.projector_at_vertices(range(202)) @ field.coordinates, vertices, atol=1e-15)


def test_faces_without_area_divide_long_sides():
    center = [*SQUARE, (0.5, 0.5)]
    sound = MeshField((center, [(0, 1, 4), (1, 2, 4), (0, 4, 3), (4, 2, 3)]))
    with pytest.warns(graphs.DegenerateFacesWarning, match="2 of 5 faces .* divides 1 long side") as caught:
        field = MeshField((center, [(0, 4, 2), (0, 1, 4), (1, 2, 4), (1, 1, 2), (0, 2, 3)]))
    assert caught[0].filename == __file__
    np.testing.assert_allclose(field.entries([0.7]), sound.entries([0.7]), rtol=1e-12)
    halves = [(0.5, 0, 0, 0, 0.5), (0, 0, 0, 0.5, 0.5)]  # a quarter along the flat face, and inside the divided one
    np.testing.assert_allclose(field.projector([0, 4], [(0.5, 0.5, 0), (0.25, 0.25, 0.5)]).toarray(), halves)
    with pytest.warns(graphs.DuplicateFacesWarning, match=r"2 of 4 faces .*first 2 and 0"):
        field = MeshField((SQUARE, [(0, 1, 2), (0, 2, 3), (2, 1, 0), (0, 1, 2)]))
    np.testing.assert_array_equal(field.entries([0.7]), MeshField((SQUARE, [(0, 1, 2), (0, 2, 3)])).entries([0.7]))
    assert field.locate([(0.6, 0.4), (0.4, 0.6)]).faces.tolist() == [0, 1]


def test_vertices_on_no_face_are_read_at_the_surface():
    """A sliver has vertex 3 in the middle of a side, and vertex 5 is on no face."""
    vertices = [(0, 0), (2, 0), (2, 1), (1, 1), (0, 1), (5, 5)]
    with (
        pytest.warns(graphs.DegenerateFacesWarning, match="1 of 3"),
        pytest.warns(graphs.UnreferencedVerticesWarning, match="2 of 6 vertices"),
    ):
        field = MeshField((vertices, [(0, 1, 2), (0, 2, 4), (2, 3, 4)]))
    sound = MeshField(([*vertices[:3], vertices[4]], [(0, 1, 2), (0, 2, 3)]))
    np.testing.assert_allclose(field.entries([0.7]), sound.entries([0.7]), rtol=1e-12)
    assert (field.vertices_on_faces.tolist(), field.max_distance) == ([0, 1, 2, 4], sound.max_distance)
    found = field.projector_at_vertices([4, 3, 0]).toarray()
    np.testing.assert_array_equal(found, [[0, 0, 0, 1], [0, 0, 0.5, 0.5], [1, 0, 0, 0]])
    refused(lambda: field.projector_at_vertices([3, 5]), graphs.InvalidArgumentError, "got 1 on no face")


def test_cut_surfaces_warn_and_are_independent():
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components") as caught:
        field = MeshField(([*SQUARE, (2, 0), (3, 1), (2, 1)], [(0, 1, 2), (0, 2, 3), (4, 5, 6)]))
    assert caught[0].filename == __file__
    assert not matrix(field, 0.5)[:4, 4:].any()
    with pytest.warns(graphs.DisconnectedWarning, match="first 2 and 5"):
        MeshField(([*SQUARE, (2, 0), (1, 1 + 1e-9)], [(0, 1, 2), (0, 2, 3), (1, 4, 5)]))
