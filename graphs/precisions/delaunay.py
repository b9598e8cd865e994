"""Intrinsic Delaunay triangulations of surfaces, on which cotangents are never negative.

An edge of a surface is flipped to the other diagonal of its two triangles, unfolded into the plane, if the angles
opposite to it have a sum above pi. That changes neither the surface nor its vertices, only lengths along it (Fisher,
Springborn, Bobenko and Schroeder 2006, "An algorithm for the construction of intrinsic Delaunay triangulations with
applications to digital geometry processing"). Each face has two sides, and the side of a face is glued to the next one
around an edge. All edges then have two triangles, also at boundaries and where several faces meet (Sharp and Crane
2020, "A Laplacian for nonmanifold triangle meshes", Section 3).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.precisions.loops import area_of, flip

Floats = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]


def delaunay(
    points: Floats,  # (V, 3)
    faces: Integers,  # (F, 3)
) -> tuple[Integers, Floats, Floats]:
    """Return both sides of a surface as Delaunay triangles.

    Args:
        points: The vertices (V, 3).
        faces: The corners (F, 3) of faces with an area.

    Returns:
        Corners (2 F, 3), the cotangents (2 F, 3) of the angles opposite to the edge from each corner to the next, and
        areas (2 F,).

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.delaunay import delaunay
        >>> flat = np.array([[-3.0, 0, 0], [3, 0, 0], [0, 1, 0], [0, -1, 0]])
        >>> corners, cotangents, areas = delaunay(flat, np.array([[0, 1, 2], [1, 0, 3]]))
        >>> np.unique(np.sort(corners, axis=1), axis=0).tolist(), round(float(areas.sum()), 9)
        ([[0, 2, 3], [1, 2, 3]], 12.0)
    """
    tails = np.concatenate([faces, faces[:, ::-1]]).astype(np.int64)
    heads = np.roll(tails, -1, axis=1)
    lengths = np.linalg.norm(points[heads] - points[tails], axis=2)
    twins = _twins(tails.ravel(), heads.ravel(), len(faces))
    flip(tails.reshape(-1), twins, lengths.reshape(-1))
    return tails, *_shapes(lengths)


def _twins(tails: Integers, heads: Integers, count: int) -> Integers:
    """Return the half-edge (6 F,) to which each is glued: the one of the next face around the edge.

    Of the two sides of a face at an edge, one runs up, from the smaller number of a vertex to the larger, and the other
    down.
    """
    pairs = np.stack([np.minimum(tails, heads), np.maximum(tails, heads)], axis=1)
    _, edge = np.unique(pairs, axis=0, return_inverse=True)
    is_up = tails < heads
    up, down = np.flatnonzero(is_up), np.flatnonzero(~is_up)
    face_of = np.arange(len(tails)) // 3 % count
    up, down = (of[np.lexsort((face_of[of], edge.ravel()[of]))] for of in (up, down))  # face i of edge e at one place
    sizes = np.bincount(edge.ravel()) // 2
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = np.arange(len(up)) - starts
    following = starts + (place + 1) % np.repeat(sizes, sizes)
    twins = np.empty(len(tails), dtype=np.int64)
    twins[up], twins[down[following]] = down[following], up
    return twins


def _shapes(lengths: Floats) -> tuple[Floats, Floats]:
    """Return the cotangents (E, 3) opposite to sides of lengths (E, 3), and areas (E,)."""
    areas = np.array([area_of(*sides) for sides in lengths])
    squares = lengths**2
    return (squares.sum(axis=1, keepdims=True) - 2 * squares) / (4 * areas[:, None]), areas
