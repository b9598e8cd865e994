"""Laws of fields on meshes against processes that are known: on the sphere, the plane, its edges, and cylinders."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import trimesh
from scipy.sparse.linalg import splu
from scipy.spatial import Delaunay
from scipy.special import eval_legendre, gamma, kv

import graphs
from graphs import MeshField
from graphs.precisions import elements


def covariances(field, lengthscale, rows):
    """Return rows (k, V) of the covariance matrix, rows being numbers of vertices or weights (k, V)."""
    indptr, indices = field.pattern
    Q = sp.csc_array((field.entries([lengthscale]), indices, indptr))
    ask = rows if sp.issparse(rows) else field.projector_at_vertices(rows)
    return splu(Q, options={"SymmetricMode": True}, permc_spec="MMD_AT_PLUS_A").solve(ask.toarray().T).T


def matern(distances, nu, lengthscale):
    z = np.sqrt(2 * nu) * np.maximum(distances, 1e-9 * lengthscale) / lengthscale
    return z**nu * kv(nu, z) * 2 ** (1 - nu) / gamma(nu)


def grid(width, height, columns, rows):
    """A rectangle from (0, 0), with diagonals that alternate."""
    x, y = np.linspace(0, width, columns + 1), np.linspace(0, height, rows + 1)
    at = np.arange((columns + 1) * (rows + 1)).reshape(columns + 1, rows + 1)
    a, b, c, d = at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:]
    even = (np.add.outer(np.arange(columns), np.arange(rows)) % 2 == 0)[..., None]
    first = np.where(even, np.stack([a, b, c], -1), np.stack([a, b, d], -1))
    second = np.where(even, np.stack([a, c, d], -1), np.stack([b, c, d], -1))
    vertices = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    return vertices, np.concatenate([first.reshape(-1, 3), second.reshape(-1, 3)]), at


def patch(seed, n=30):
    points = np.random.default_rng(seed).uniform(0, 3, (n, 2))
    return points, Delaunay(points).simplices


def sphere_error(alpha, subdivisions, radius=1.7, lengthscale=1.0):
    """Return the largest error of the covariances with one vertex, against the series of Legendre polynomials."""
    mesh = trimesh.creation.icosphere(subdivisions, radius)
    nu = alpha - 1
    kappa2 = 2 * nu / lengthscale**2 if nu else 1 / lengthscale**2
    scale = 4 * np.pi * nu * kappa2**nu if nu else 1
    degrees = np.arange(300)
    terms = (2 * degrees + 1) / (4 * np.pi * radius**2) / (kappa2 + degrees * (degrees + 1) / radius**2) ** alpha
    cosines = np.asarray(mesh.vertices @ mesh.vertices[0]) / radius**2
    expected = scale * terms @ eval_legendre(degrees[:, None], cosines[None])
    found = covariances(MeshField(mesh, alpha), lengthscale, [0])[0]
    apart = cosines < (0.5 if alpha == 1 else 2)  # order 1 has no finite variance, its series converges slowly
    return np.abs(found - expected)[apart].max()


class TestSphere:
    @pytest.mark.parametrize("alpha", [2, 3])
    def test_error_falls_by_four_per_refinement(self, alpha):
        errors = [sphere_error(alpha, subdivisions) for subdivisions in (3, 4)]
        assert errors[1] < 0.011
        assert 3.2 < errors[0] / errors[1] < 6

    @pytest.mark.parametrize("alpha", [4, 5, 6])
    def test_error_falls_for_high_orders_on_coarse_meshes(self, alpha):
        errors = [sphere_error(alpha, subdivisions) for subdivisions in (2, 3)]
        assert errors[1] < 0.015
        assert 3.2 < errors[0] / errors[1] < 8

    def test_order_one_matches_bessel_between_points(self):
        assert sphere_error(1, 3) < 1e-3

    @pytest.mark.parametrize("fault", ["cotangents", "areas"])
    def test_planted_errors_are_found(self, fault, monkeypatch):
        right = elements.angles

        def wrong(vertices, faces):
            found = right(vertices, faces)
            return found._replace(**{fault: getattr(found, fault) / 2})

        monkeypatch.setattr(elements, "angles", wrong)
        with pytest.raises(AssertionError):
            self.test_error_falls_by_four_per_refinement(2)

    def test_planted_mass_matrix_of_one_corner_is_found(self, monkeypatch):
        """The areas given to the first corner of each face, not shared."""
        right = elements.assemble

        def wrong(faces, found, num_vertices):
            masses = np.bincount(faces[:, 0], found.areas, minlength=num_vertices) + found.areas.mean() / 10
            return right(faces, found, num_vertices)._replace(masses=masses)

        monkeypatch.setattr(elements, "assemble", wrong)
        with pytest.raises(AssertionError):
            self.test_error_falls_by_four_per_refinement(2)


def plane_errors(alpha, per_lengthscale, size, lengthscale=0.3):
    """Return errors at and about the middle of a square of so many lengthscales; and variances, also of the rim."""
    count = size * per_lengthscale
    vertices, faces, at = grid(size * lengthscale, size * lengthscale, count, count)
    places = [at[count // 2, count // 2], at[count // 2, 0], at[0, 0]]
    found = covariances(MeshField((vertices, faces), alpha), lengthscale, places)
    distances = np.linalg.norm(vertices - vertices[places[0]], axis=1)
    errors = np.abs(found[0] - matern(distances, alpha - 1, lengthscale))
    about = (distances > 0.49 * lengthscale) & (distances < 1.3 * lengthscale)  # images are seven away
    return errors[places[0]], errors[about].max(), found[range(3), places]


class TestPlane:
    @pytest.mark.parametrize("alpha", [2, 3])
    def test_covariance_matches_matern_in_the_middle(self, alpha):
        """The error of covariances falls as h^2, that of variances of order 2 as h^2 log(1 / h)."""
        coarse, fine = (plane_errors(alpha, per_lengthscale, 8) for per_lengthscale in (4, 8))
        assert 3.5 < coarse[1] / fine[1] < 5
        assert (2.5 if alpha == 2 else 3.5) < coarse[0] / fine[0] < 5
        assert fine[0] < 0.04
        assert fine[1] < 0.01

    @pytest.mark.parametrize("alpha", [2, 3])
    def test_variance_doubles_at_edges_and_again_at_corners(self, alpha):
        """The mesh is its own image in its rim: the ratios are those of the plane, but for images ten scales away."""
        middle, edge, corner = plane_errors(alpha, 4, 10)[2]
        assert edge / middle == pytest.approx(2, rel=1e-4)
        assert corner / middle == pytest.approx(4, rel=1e-4)

    def test_order_one_matches_bessel_and_grows_by_log_two(self):
        """K_0(r / l) / (2 pi) apart, and log(l / h) / (2 pi) + log(32) / (4 pi) at one place."""
        variances = []
        for count in (64, 128):
            vertices, faces, at = grid(8.0, 8.0, count, count)
            middle = at[count // 2, count // 2]
            found = covariances(MeshField((vertices, faces), 1), 1.0, [middle])[0]
            distances = np.linalg.norm(vertices - 4.0, axis=1)
            ring = (distances > 0.5) & (distances < 1.5)
            np.testing.assert_allclose(found[ring], kv(0, distances[ring]) / (2 * np.pi), rtol=0.02)
            variances.append(found[middle])
            assert found[middle] == pytest.approx(np.log(count / 8) / (2 * np.pi) + np.log(32) / (4 * np.pi), abs=3e-3)
        assert variances[1] - variances[0] == pytest.approx(np.log(2) / (2 * np.pi), abs=2e-3)

    def test_plane_in_space_matches_plane(self):
        vertices, faces = patch(0)
        flat, field = MeshField((vertices, faces)), MeshField((np.pad(vertices, ((0, 0), (0, 1))), faces))
        np.testing.assert_array_equal(flat.entries([0.4]), field.entries([0.4]))
        assert (flat.coordinates.shape, field.coordinates.shape) == ((30, 2), (30, 3))


def prism(width, height, sides, rows):
    """Return a prism without top and bottom, which a strip of that width and height unrolls to."""
    vertices, faces, at = grid(width, height, sides, rows)
    radius, turns = width / sides / (2 * np.sin(np.pi / sides)), 2 * np.pi * np.arange(sides) / sides
    rim = radius * np.column_stack([np.cos(turns), np.sin(turns)])
    heights = vertices[: rows + 1, 1]
    places = np.column_stack([np.repeat(rim, rows + 1, axis=0), np.tile(heights, sides)])
    around = at.ravel() % len(places)  # the last column is the first
    return trimesh.Trimesh(places, around[faces], process=False), heights


def test_open_prism_matches_its_strip():
    """Images: the strip is repeated around, and reflected at both rims by Neumann's condition."""
    mesh, heights = prism(4.0, 3.0, 16, 12)
    expected = np.zeros((13, 13))
    for around, up, sign in itertools.product(4.0 * np.arange(-5, 6), 6.0 * np.arange(-3, 4), (1, -1)):
        expected += matern(np.hypot(around, heights[:, None] - sign * heights - up), 1, 1.0)
    errors = []
    for _ in range(3):
        found = covariances(MeshField(mesh), 1.0, range(13))[:, :13]
        np.testing.assert_array_equal(mesh.vertices[:13, 2], heights)
        errors.append(np.abs(found - expected)[~np.eye(13, dtype=bool)].max())
        mesh = mesh.subdivide()
    assert errors[2] < 0.004
    assert 3 < errors[0] / errors[1] < 5
    assert 3 < errors[1] / errors[2] < 5


def test_refinement_keeps_distribution_at_common_points():
    """An irregular mesh with obtuse angles; vertices keep their numbers."""
    vertices, faces, _ = grid(5.0, 5.0, 5, 5)
    vertices = vertices + np.random.default_rng(1).uniform(-0.25, 0.25, vertices.shape)
    mesh = trimesh.Trimesh(np.pad(vertices, ((0, 0), (0, 1))), faces, process=False)
    assert mesh.face_angles.max() > 2
    laws = []
    for _ in range(5):
        laws.append(covariances(MeshField(mesh), 2.0, range(36))[:, :36])
        mesh = mesh.subdivide()
    apart = ~np.eye(36, dtype=bool)
    steps = [np.abs(one - other)[apart].max() for one, other in itertools.pairwise(laws)]
    assert steps[3] < 0.005
    assert 3 < steps[1] / steps[2] < 5.5
    assert 3 < steps[2] / steps[3] < 5.5


@pytest.mark.parametrize("alpha", [1, 2, 4])
class TestSymmetries:
    @pytest.mark.parametrize("factor", [1e-150, 1e-3, 7.0, 1e150])
    def test_precision_is_invariant_to_common_scaling(self, alpha, factor):
        vertices, faces = patch(2)
        field, scaled = MeshField((vertices, faces), alpha), MeshField((vertices * factor, faces), alpha)
        expected = field.entries([0.5])
        np.testing.assert_allclose(scaled.entries([0.5 * factor]), expected, atol=1e-13 * np.abs(expected).max())
        assert scaled.condition([0.5 * factor]) == pytest.approx(field.condition([0.5]))

    def test_precision_is_invariant_to_rigid_motion(self, alpha):
        mesh = trimesh.creation.icosphere(1)
        expected = MeshField(mesh, alpha).entries([0.5])
        mesh.apply_transform(trimesh.transformations.rotation_matrix(0.7, [1, 2, 3], [5, 5, 5]))
        np.testing.assert_allclose(MeshField(mesh, alpha).entries([0.5]), expected, atol=1e-12 * np.abs(expected).max())

    def test_precision_is_invariant_to_order_of_faces(self, alpha):
        vertices, faces = patch(3)
        rng = np.random.default_rng(4)
        mixed = rng.permuted(faces, axis=1)[rng.permutation(len(faces))]
        field, other = MeshField((vertices, faces), alpha), MeshField((vertices, mixed), alpha)
        np.testing.assert_array_equal(field.pattern.indices, other.pattern.indices)
        expected = field.entries([0.5])
        np.testing.assert_allclose(other.entries([0.5]), expected, atol=1e-13 * np.abs(expected).max())

    def test_two_components_are_two_fields(self, alpha):
        (vertices, faces), (others, their) = patch(5), patch(6, 20)
        with pytest.warns(graphs.DisconnectedWarning, match="2 connected components"):
            both = MeshField((np.concatenate([vertices, others + 9]), np.concatenate([faces, their + 30])), alpha)
        found = covariances(both, 0.5, range(50))
        assert np.abs(found[:30, 30:]).max() == 0
        for part, mesh in ((slice(0, 30), (vertices, faces)), (slice(30, 50), (others, their))):
            alone = MeshField(mesh, alpha)
            expected = covariances(alone, 0.5, range(alone.num_vertices))
            np.testing.assert_allclose(found[part, part], expected, rtol=1e-6)


def test_constant_has_the_documented_variance():
    """2 pi l^2 / A for every order from 2 on: the mean of the covariance matrix, by areas."""
    mesh = trimesh.creation.icosphere(2)
    for alpha in (2, 3, 4):
        field = MeshField(mesh, alpha)
        shares = field.areas / field.areas.sum()
        found = shares @ covariances(field, 2.0, range(field.num_vertices)) @ shares
        assert found == pytest.approx(2 * np.pi * 4 / field.areas.sum(), rel=1e-6)


def test_repr():
    field = MeshField(trimesh.creation.icosphere(1), 4)
    assert repr(field) == "MeshField(42 vertices, 80 faces, alpha=4)"
    assert field.parameters == ("lengthscale",)
    assert field.root.parameters == ("lengthscale",)
    assert field.areas.sum() == pytest.approx(trimesh.creation.icosphere(1).area)
