"""Angles and areas of triangles, against arccos and Heron's formula."""

import numpy as np
import pytest

import graphs
from graphs.builders.triangles import angles, read_triangles


def triangles(seed, n=20):
    return np.random.default_rng(seed).normal(size=(3 * n, 3)), np.arange(3 * n).reshape(n, 3)


def by_lengths(vertices, faces):
    """Return cotangents opposite to sides j, and areas, from the lengths of the sides alone."""
    sides = np.linalg.norm(vertices[np.roll(faces, -1, axis=1)] - vertices[faces], axis=2)
    half = sides.sum(axis=1) / 2
    areas = np.sqrt(half * np.prod(half[:, None] - sides, axis=1))
    one, two = np.roll(sides, -1, axis=1), np.roll(sides, -2, axis=1)
    return 1 / np.tan(np.arccos((one**2 + two**2 - sides**2) / (2 * one * two))), areas


@pytest.mark.parametrize("factor", [1e-150, 1.0, 1e150])
def test_angles_match_side_lengths(factor):
    vertices, faces = triangles(0)
    cotangents, areas = by_lengths(vertices, faces)
    with np.errstate(all="raise"):
        found = angles(vertices * factor, faces)
    assert found.unit == np.abs(vertices).max() * factor
    np.testing.assert_allclose(found.cotangents, cotangents, rtol=1e-9)
    np.testing.assert_allclose(found.areas * np.abs(vertices).max() ** 2, areas, rtol=1e-10)
    assert not found.flat.any()


@pytest.mark.parametrize(("height", "flat"), [(0.0, True), (0.9e-10, True), (1.1e-10, False), (1.0, False)])
def test_thin_faces_are_flat(height, flat):
    found = angles(np.array([(0, 0, 0), (1, 0, 0), (0.5, height, 0)]), np.array([[0, 1, 2]]))
    assert found.flat.tolist() == [flat]
    assert (found.areas[0] == 0) == flat
    assert (np.abs(found.cotangents).max() == 0) == flat


def test_allowed_dimensions():
    faces = [[0, 1, 2]]
    assert read_triangles(np.zeros((3, 2)), faces, (2, 3))[0].shape == (3, 2)
    with pytest.raises(graphs.InvalidGraphError, match=r"vertices \(V, 3\)"):
        read_triangles(np.zeros((3, 2)), faces)
    with pytest.raises(graphs.InvalidGraphError, match=r"vertices \(V, 2\) or \(V, 3\)"):
        read_triangles(np.zeros((3, 4)), faces, (2, 3))
