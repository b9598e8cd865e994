"""Triangles of a mesh: checks, angles and areas."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.arrays import as_numbers, read_integers
from graphs.builders.lengths import scale_to_unit
from graphs.errors import InvalidGraphError

Floats = NDArray[np.float64]

_FLAT = 1e-10
"""The ratio of height and longest side below which a triangle has no area."""


def read_triangles(
    vertices: Any,  # (V, 3)
    faces: Any,  # (F, 3)
    dimensions: tuple[int, ...] = (3,),
) -> tuple[Floats, NDArray[np.int64]]:
    """Return new arrays of the vertices (V, d) and the faces (F, 3) of a mesh.

    Args:
        vertices: Coordinates.
        faces: Corners, numbers of vertices.
        dimensions: The values of d that are allowed.

    Raises:
        InvalidGraphError: If there are no faces, or they are not triangles of the vertices.

    Examples:
        >>> from graphs.builders.triangles import read_triangles
        >>> read_triangles([(0, 0, 0), (1, 0, 0), (0, 1, 0)], [(0, 1, 2)])[1].tolist()
        [[0, 1, 2]]
    """
    if vertices is None or faces is None:
        raise InvalidGraphError("A mesh must have vertices and faces, got neither or one of them.")
    corners = read_integers(faces, "The corners of faces")
    if corners.size == 0:
        raise InvalidGraphError("A mesh must have faces, got no faces. Use Graph.from_points for point clouds.")
    points = as_numbers(vertices)
    if points.ndim != 2 or points.shape[1] not in dimensions or corners.ndim != 2 or corners.shape[1] != 3:
        allowed = " or ".join(f"(V, {dimension})" for dimension in dimensions)
        raise InvalidGraphError(
            f"A mesh must have real vertices {allowed} and triangles (F, 3), got {points.shape} and {corners.shape}. "
            "Split polygons into triangles."
        )
    wrong = ((corners < 0) | (corners >= len(points))).any(axis=1)
    if wrong.any():
        face = int(wrong.argmax())
        raise InvalidGraphError(
            f"The corners of face {face} must be vertices 0..{len(points) - 1}, got {corners[face].tolist()}."
        )
    return points, corners


class Angles(NamedTuple):
    """Angles and areas of triangles.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.triangles import angles
        >>> found = angles(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]]))
        >>> found.areas.tolist(), found.cotangents.round(6).tolist()
        ([0.5], [[1.0, 0.0, 1.0]])
    """

    cotangents: Floats  # (F, 3) of the angles opposite to sides j, from corner j to corner j + 1; 0 without area
    areas: Floats  # (F,) in squares of the unit
    flat: NDArray[np.bool_]  # (F,) a mask of faces without area
    unit: float  # the largest absolute coordinate of the mesh


@np.errstate(under="ignore")
def angles(
    vertices: Floats,  # (V, 3)
    faces: NDArray[np.int64],  # (F, 3)
) -> Angles:
    """Return the cotangents and areas of faces.

    With a and b the two sides at a corner, cot = (a . b) / |a x b|. At every corner |a x b| is twice the area. The
    cotangent loses digits for very thin triangles. Those with a height below 1e-10 of the longest side therefore have
    no area. The other cotangents are below 1e10.

    Args:
        vertices: Coordinates (V, 3).
        faces: Corners (F, 3), numbers of vertices.

    Raises:
        InvalidGraphError: If a coordinate is not a finite number.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.triangles import angles
        >>> angles(np.array([[0.0, 0, 0], [2, 0, 0], [0, 2, 0]]), np.array([[0, 1, 2]])).unit
        2.0
    """
    scaled, unit = scale_to_unit(vertices, "Vertex")
    corners = scaled[faces]  # (F, 3 corners, 3)
    before, after = np.roll(corners, 1, axis=1) - corners, np.roll(corners, -1, axis=1) - corners
    double_area = np.linalg.norm(np.cross(after[:, 0], before[:, 0]), axis=1)
    flat = ~(double_area > _FLAT * (after**2).sum(axis=2).max(axis=1))
    cotangents = (before * after).sum(axis=2) / np.where(flat, np.inf, double_area)[:, None]
    opposite = np.roll(cotangents, 1, axis=1)  # opposite to side j is corner j + 2, that is j - 1
    return Angles(np.asarray(opposite), np.where(flat, 0.0, double_area / 2), flat, unit)
