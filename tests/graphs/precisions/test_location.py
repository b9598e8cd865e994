"""Nearest points of meshes against least squares over every face, and the weights that observations need."""

import itertools

import numpy as np
import pytest
import trimesh
from scipy.spatial import Delaunay

import graphs
from graphs import MeshField
from graphs.precisions import location


def sphere(subdivisions=2):
    return MeshField(trimesh.creation.icosphere(subdivisions))


def graded():
    """Triangles whose sides go from 1e-6 to 1, on a bent surface."""
    rng = np.random.default_rng(0)
    radii, turns = np.geomspace(1e-6, 1, 60), rng.uniform(0, 2 * np.pi, 60)
    flat = np.stack([radii * np.cos(turns), radii * np.sin(turns)], axis=1)
    faces = Delaunay(flat).simplices
    return MeshField((np.column_stack([flat, flat[:, 0] ** 2 - flat[:, 1]]), faces))


def thin():
    """A fan of triangles that are up to a million times as long as high."""
    heights = np.concatenate([[0], np.geomspace(1e-6, 1, 8)])
    vertices = np.array([(0, 0, 0), *((1, h, h**2) for h in heights)])
    return MeshField((vertices, [(0, i, i + 1) for i in range(1, 9)]), 1)


MESHES = {"sphere": lambda: sphere(1), "graded": graded, "thin": thin}


def in_space(field):
    return np.pad(field.coordinates, ((0, 0), (0, 3 - field.coordinates.shape[1])))


def nearest_by_least_squares(point, corners):
    """Return the distance to a triangle: that of the corners, sides and inside whose weights are not negative."""
    best = np.inf
    for count in (1, 2, 3):
        for some in itertools.combinations(range(3), count):
            base, spans = corners[some[0]], (corners[list(some[1:])] - corners[some[0]]).T
            shares = np.linalg.lstsq(spans, point - base)[0] if count > 1 else np.zeros(0)
            if (shares >= 0).all() and shares.sum() <= 1:
                best = min(best, float(np.linalg.norm(base + spans @ shares - point)))
    return best


def points_about(field, seed, n=12):
    rng, places = np.random.default_rng(seed), in_space(field)
    near = places[rng.integers(len(places), size=n)] + rng.normal(size=(n, 3)) * rng.choice([1e-7, 1e-3, 0.3], (n, 1))
    return np.concatenate([near, rng.normal(size=(n, 3)) * 2])


@pytest.mark.parametrize("name", MESHES)
def test_nearest_point_matches_least_squares(name):
    field = MESHES[name]()
    points, places = points_about(field, 1), in_space(field)
    found = field.locate(points)
    expected = [min(nearest_by_least_squares(point, places[face]) for face in field.faces) for point in points]
    np.testing.assert_allclose(found.distances, expected, rtol=1e-9, atol=1e-15)
    reached = (places[field.faces[found.faces]] * found.barycentric[:, :, None]).sum(axis=1)
    np.testing.assert_allclose(np.linalg.norm(reached - points, axis=1), found.distances, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("pairs", [1, 7, 100])
def test_blocks_do_not_change_results(pairs, monkeypatch):
    field = graded()
    points = points_about(field, 2, 40)
    expected = field.locate(points)
    monkeypatch.setattr(location, "MAX_PAIRS_AT_ONCE", pairs)
    for one, other in zip(field.locate(points), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_planted_search_of_one_face_is_found(monkeypatch):
    """The nearest centroid is not that of the nearest face."""
    monkeypatch.setattr(location.Locator, "improved", lambda self, points, same, faces, distances: (faces, distances))
    with pytest.raises(AssertionError):
        test_nearest_point_matches_least_squares("graded")


@pytest.mark.parametrize("name", MESHES)
def test_vertex_has_one_weight(name):
    field = MESHES[name]()
    found = field.locate(field.coordinates)
    A = field.projector(found.faces, found.barycentric)
    np.testing.assert_array_equal(A.toarray(), np.eye(field.num_vertices))
    assert A.nnz == field.num_vertices
    np.testing.assert_array_equal(found.distances, 0)


@pytest.mark.parametrize("name", MESHES)
def test_points_on_faces_are_recovered(name):
    field, rng = MESHES[name](), np.random.default_rng(3)
    faces, shares = rng.integers(len(field.faces), size=200), rng.dirichlet(np.ones(3), 200)
    shares[::5, 0] = 0  # on sides
    shares /= shares.sum(axis=1, keepdims=True)
    A = field.projector(faces, shares)
    points = A @ in_space(field)
    found = field.locate(points)
    assert found.distances.max() < 1e-15
    np.testing.assert_allclose(field.projector(found.faces, found.barycentric) @ in_space(field), points, atol=1e-15)
    for rows in (A, field.projector(found.faces, found.barycentric)):
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-14)
        assert rows.data.min() > 0
        assert rows.has_canonical_format


def test_side_has_two_weights():
    field = MeshField(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)]))
    found = field.locate([(0.25, 0), (0.5, 0.5), (0.25, -3), (-1, -1), (2, 2), (0.25, 0.25)])
    expected = [(0.75, 0.25, 0), (0, 0.5, 0.5), (0.75, 0.25, 0), (1, 0, 0), (0, 0.5, 0.5), (0.5, 0.25, 0.25)]
    np.testing.assert_allclose(found.barycentric, expected, atol=1e-15)
    np.testing.assert_allclose(found.distances, [0, 0, 3, np.sqrt(2), 1.5 * np.sqrt(2), 0], atol=1e-15)
    counts = np.diff(field.projector(found.faces, found.barycentric).indptr)
    np.testing.assert_array_equal(counts, [2, 2, 2, 1, 2, 3])


def test_projectors_of_centroids_and_vertices():
    field = sphere(1)
    np.testing.assert_allclose(
        field.projector(range(80)) @ field.coordinates, field.coordinates[field.faces].mean(axis=1), atol=1e-15
    )
    rows = field.projector_at_vertices([3, 0, 3])
    np.testing.assert_array_equal(rows.toarray(), np.eye(42)[[3, 0, 3]])
    assert field.projector([]).shape == field.projector_at_vertices([]).shape == (0, 42)


def test_far_points_and_center_of_a_sphere():
    field = sphere()
    inner = np.linalg.norm(field.coordinates[field.faces].mean(axis=1), axis=1).min()
    found = field.locate([(0, 0, 0), (1e6, 0, 0), *(3 * field.coordinates[:5])])
    np.testing.assert_allclose(found.distances[0], inner, rtol=1e-12)
    np.testing.assert_allclose(found.distances[1:], [1e6 - 1, 2, 2, 2, 2, 2], rtol=1e-12)


@pytest.mark.parametrize("factor", [1e-150, 1e-3, 1e150])
def test_location_is_invariant_to_units(factor):
    field = graded()
    points = points_about(field, 4)
    scaled = MeshField((field.coordinates * factor, field.faces)).locate(points * factor)
    expected = field.locate(points)
    np.testing.assert_allclose(scaled.distances, expected.distances * factor, rtol=1e-9, atol=1e-15 * factor)
    np.testing.assert_allclose(scaled.barycentric.sum(axis=1), 1, rtol=1e-14)


def test_face_numbers_are_the_given_ones():
    """Also where faces without area are left out."""
    with pytest.warns(graphs.DegenerateFacesWarning):
        field = MeshField(([(0, 0), (1, 0), (1, 1), (0, 1)], [(1, 1, 2), (0, 1, 2), (3, 3, 3), (0, 2, 3)]))
    np.testing.assert_array_equal(field.locate([(0.6, 0.2), (0.2, 0.6)]).faces, [1, 3])


@pytest.mark.parametrize("points", [[], np.zeros((0, 3))])
def test_empty_points(points):
    found = sphere(1).locate(points)
    assert [part.shape for part in found] == [(0,), (0, 3), (0,)]


POINTS = {
    "of the plane": ([(0, 0)], r"\(n, 3\)"),
    "one": ((0, 0, 1), r"\(n, 3\)"),
    "texts": ("abc", r"\(n, 3\)"),
    "ragged": ([(0, 0, 1), (0, 1)], r"\(n, 3\)"),
    "not finite": ([(0, 0, 1), (0, np.nan, 1)], "Point 1 .*finite"),
    "infinite": ([(0, 0, np.inf)], "Point 0 .*finite"),
    "far out": ([(0, 0, 1e200)], "Point 0 .*finite.* range"),
}


@pytest.mark.parametrize("name", POINTS)
def test_bad_points_are_refused(name):
    points, message = POINTS[name]
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        sphere(1).locate(points)


WEIGHTS = {
    "a face too many": (([80],), "faces .* from 0 to 79"),
    "a negative face": (([-1],), "faces .*integers"),
    "a part of a face": (([0.5],), "faces .*integers"),
    "a mask": (([True],), "faces .*integers"),
    "ragged": (([[0], [0, 1]],), "faces .*integers"),
    "one row too few": (([0, 1], [(1, 0, 0)]), r"shape \(2, 3\)"),
    "texts": (([0], [("a", "b", "c")]), r"shape \(1, 3\)"),
    "negative": (([0], [(1.5, -0.5, 0)]), "row 0"),
    "a sum of 2": (([0, 0], [(1, 0, 0), (1, 0, 1)]), "row 1"),
    "not finite": (([0], [(1, np.nan, 0)]), "row 0"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_bad_weights_are_refused(name):
    given, message = WEIGHTS[name]
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        sphere(1).projector(*given)
    with pytest.raises(graphs.InvalidArgumentError, match=r"vertices .* from 0 to 41"):
        sphere(1).projector_at_vertices([42])


def test_points_beyond_within_are_refused():
    field, points = MeshField(trimesh.creation.icosphere(1)), [(0.0, 0.0, 1.0), (0.0, 0.0, 3.0), (0.0, 2.0, 0.0)]
    np.testing.assert_array_equal(field.locate(points, within=2.5).distances, field.locate(points).distances)
    for within in (1.5, 0.5):
        with pytest.raises(graphs.InvalidArgumentError, match=r"within .* got row 1 at a distance of 2"):
            field.locate(points, within=within)
