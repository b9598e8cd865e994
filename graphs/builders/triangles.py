"""The triangles of a mesh: read and checked, their angles and areas."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.builders.lengths import scale_to_unit
from graphs.builders.numbering import read_integers
from graphs.checks import as_numbers
from graphs.errors import InvalidGraphError

Floats = NDArray[np.float64]

_FLAT = 1e-10


def read_triangles(
    vertices: Any,  # (V, 3)
    faces: Any,  # (F, 3)
    dimensions: tuple[int, ...] = (3,),
) -> tuple[Floats, NDArray[np.int64]]:
    """Return new arrays of the vertices (V, d), d one of the dimensions, and the faces (F, 3) of a mesh.

    Raises:
        InvalidGraphError: there are no faces, or they are no triangles of the vertices.
    """
    if vertices is None or faces is None:
        raise InvalidGraphError("A mesh must have vertices and faces, got neither or one of them.")
    corners = read_integers(faces, "The corners of faces")
    if corners.size == 0:
        raise InvalidGraphError("The mesh has no faces, so there is nothing to walk on. Point clouds are not meshes.")
    places = as_numbers(vertices)
    if places.ndim != 2 or places.shape[1] not in dimensions or corners.ndim != 2 or corners.shape[1] != 3:
        allowed = " or ".join(f"(V, {dimension})" for dimension in dimensions)
        raise InvalidGraphError(
            f"A mesh has vertices {allowed}, real numbers, and triangles (F, 3), got {places.shape} and "
            f"{corners.shape}; split polygons."
        )
    wrong = ((corners < 0) | (corners >= len(places))).any(axis=1)
    if wrong.any():
        face = int(wrong.argmax())
        raise InvalidGraphError(f"Face {face} has corners {corners[face].tolist()}; there are {len(places)} vertices.")
    return places, corners


class Angles(NamedTuple):
    """Angles and areas of triangles."""

    cotangents: Floats  # (F, 3) of the angles opposite to sides j, from corner j to corner j + 1; 0 without area
    areas: Floats  # (F,) in squares of the unit
    flat: NDArray[np.bool_]  # (F,) which faces have no area
    unit: float  # a length of the mesh: its largest absolute coordinate


@np.errstate(under="ignore")
def angles(
    vertices: Floats,  # (V, 3)
    faces: NDArray[np.int64],  # (F, 3)
) -> Angles:
    """Return the cotangents and areas of faces.

    cot = (a . b) / |a x b| with a, b the two sides at the corner; |a x b| is twice the area at every corner. It
    loses its digits where the area is rounding, so a triangle whose height is below 1e-10 of its longest side counts as
    one without area; the others' cotangents are below 1e10.

    Raises:
        InvalidGraphError: a coordinate is not a finite number.
    """
    places, unit = scale_to_unit(vertices, "Vertex")
    corners = places[faces]  # (F, 3 corners, 3)
    before, after = np.roll(corners, 1, axis=1) - corners, np.roll(corners, -1, axis=1) - corners
    double_area = np.linalg.norm(np.cross(after[:, 0], before[:, 0]), axis=1)
    flat = ~(double_area > _FLAT * (after**2).sum(axis=2).max(axis=1))
    cotangents = (before * after).sum(axis=2) / np.where(flat, np.inf, double_area)[:, None]
    opposite = np.roll(cotangents, 1, axis=1)  # opposite to side j is corner j + 2, that is j - 1
    return Angles(np.asarray(opposite), np.where(flat, 0.0, double_area / 2), flat, unit)
