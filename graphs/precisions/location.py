"""The points of a triangle mesh that are nearest to given points.

A face lies in the ball around its centroid that reaches its corners. If a point is at most d from some face, the
nearest face has its centroid within d + r, with r the radius of its ball. Faces are therefore grouped by r, up to a
factor of two, with a k-d tree of the centroids of each group. The candidates of the trees are compared exactly.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from graphs.builders.lengths import scale_to_unit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_PAIRS_AT_ONCE = 2**17
"""The number of pairs of a point and a face that are compared at once."""
_ROUNDING = 1e-9
"""The relative slack of distances, above rounding errors."""


class Location(NamedTuple):
    """The faces, barycentric weights and distances of points on a mesh.

    Examples:
        >>> import graphs
        >>> field = graphs.MeshField(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)]))
        >>> field.locate([(0.25, 0.25)]).barycentric.round(6).tolist()
        [[0.5, 0.25, 0.25]]
    """

    faces: Integers  # (n,)
    barycentric: Floats  # (n, 3) non-negative weights of the corners of the face, which sum to 1
    distances: Floats  # (n,) from the points to the mesh, in its unit


class _Class(NamedTuple):
    """Faces with balls of one size, up to a factor of two."""

    numbers: Integers  # (m,)
    tree: KDTree
    radius: float


class Locator:
    """The faces of a mesh in k-d trees.

    Args:
        vertices: Vertices (V, 3).
        faces: Faces (F, 3) with an area.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.location import Locator
        >>> locator = Locator(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]]))
        >>> locator.nearest(np.array([[0.25, 0.25, 2.0]])).distances.tolist()
        [2.0]
    """

    def __init__(self, vertices: Floats, faces: Integers) -> None:
        scaled, self._unit = scale_to_unit(vertices, "Vertex")
        self._corners = scaled[faces]

    @np.errstate(under="ignore")
    def nearest(
        self,
        points: Floats,  # (n, 3)
    ) -> Location:
        """Return the nearest points of the mesh; ties go to the first face.

        Args:
            points: Points (n, 3).
        """
        scaled_points = points / self._unit
        first = self._by_centroid(scaled_points)
        best = first, self._distances(scaled_points, first)
        for same in self._classes:
            best = self.improved(scaled_points, same, *best)
        barycentric, distances = nearest_in_triangles(scaled_points, self._corners[best[0]])
        return Location(best[0], barycentric, distances * self._unit)

    @cached_property
    def _classes(self) -> list[_Class]:
        centroids = self._corners.mean(axis=1)
        radii = np.linalg.norm(self._corners - centroids[:, None], axis=2).max(axis=1)
        sizes = np.frexp(radii)[1]
        members = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
        return [_Class(faces, KDTree(centroids[faces]), float(radii[faces].max())) for faces in members]

    def _by_centroid(self, points: Floats) -> Integers:
        """Return the faces (n,) with the nearest centroids."""
        nearest = [same.tree.query(points) for same in self._classes]
        chosen = np.argmin([distances for distances, _ in nearest], axis=0)
        faces = np.stack([same.numbers[indices] for same, (_, indices) in zip(self._classes, nearest, strict=True)])
        return np.asarray(np.take_along_axis(faces, chosen[None], axis=0)[0])

    def _distances(self, points: Floats, faces: Integers) -> Floats:
        """Return the distances (m,) of points (m, 3) to faces (m,), in blocks."""
        blocks = range(0, len(points), MAX_PAIRS_AT_ONCE)
        parts = [slice(start, start + MAX_PAIRS_AT_ONCE) for start in blocks]
        distances = [nearest_in_triangles(points[part], self._corners[faces[part]])[1] for part in parts]
        return np.concatenate(distances) if distances else np.zeros(0)

    def improved(self, points: Floats, same: _Class, faces: Integers, distances: Floats) -> tuple[Integers, Floats]:
        """Return nearest faces and distances (n,) after comparing one class of faces.

        Args:
            points: Points (n, 3).
            same: The class of faces.
            faces: The nearest faces (n,) so far.
            distances: Their distances (n,).
        """
        faces, distances = faces.copy(), distances.copy()
        reach = (distances + same.radius) * (1 + _ROUNDING)
        counts = same.tree.query_ball_point(points, reach, return_length=True)
        for rows in _blocks(counts):
            lists = same.tree.query_ball_point(points[rows], reach[rows])
            near = np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(counts[rows].sum()))
            query = np.arange(rows.start, rows.stop)
            owners = np.concatenate([np.repeat(query, counts[rows]), query])
            rivals = np.concatenate([same.numbers[near], faces[rows]])
            lengths = self._distances(points[owners], rivals)
            order = np.lexsort((rivals, lengths, owners))
            winners = order[np.unique(owners[order], return_index=True)[1]]
            faces[rows], distances[rows] = rivals[winners], lengths[winners]
        return faces, distances


def _blocks(counts: Integers) -> Iterator[slice]:
    """Yield ranges of points with about `MAX_PAIRS_AT_ONCE` faces to compare, or single points."""
    ends, start = np.cumsum(counts), 0
    while start < len(counts):
        before = ends[start] - counts[start]
        end = max(start + 1, int(np.searchsorted(ends, before + MAX_PAIRS_AT_ONCE, side="right")))
        yield slice(start, end)
        start = end


def nearest_in_triangles(
    points: Floats,  # (m, 3)
    corners: Floats,  # (m, 3, 3): corner, coordinate
) -> tuple[Floats, Floats]:
    """Return nearest points of triangles: barycentric weights (m, 3), distances (m,).

    The nearest point is on a side, or the foot of the perpendicular if this is inside. The four candidates are compared
    by their distances, so that an inexact foot in a thin triangle does no harm. A point that equals a corner has
    exactly the weights 1, 0, 0.

    Args:
        points: Points (m, 3), one for each triangle.
        corners: The corners (m, 3, 3) of the triangles: corner, coordinate.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.location import nearest_in_triangles
        >>> corners = np.array([[[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]])
        >>> nearest_in_triangles(np.array([[0.0, 0.0, 2.0]]), corners)[1].tolist()
        [2.0]
    """
    sides = np.roll(corners, -1, axis=1) - corners
    offsets = points[:, None] - corners
    fractions = np.clip((offsets * sides).sum(axis=2) / (sides**2).sum(axis=2), 0.0, 1.0)  # (m, 3)
    weights = np.zeros((len(points), 4, 3))
    for side in range(3):
        weights[:, side, side], weights[:, side, (side + 1) % 3] = 1 - fractions[:, side], fractions[:, side]
    normals = np.cross(sides[:, 0], sides[:, 1])
    volumes = (np.cross(sides, offsets) * normals[:, None]).sum(axis=2)  # (m, 3) of the side: the corner after next
    inside = (volumes >= 0).all(axis=1) & (volumes.sum(axis=1) > 0)
    foot = np.roll(volumes, -1, axis=1) / np.where(inside, volumes.sum(axis=1), 1.0)[:, None]
    weights[:, 3] = np.where(inside[:, None], foot, weights[:, 0])
    reached = np.einsum("mkc,mcd->mkd", weights, corners)
    distances = np.linalg.norm(points[:, None] - reached, axis=2)
    best = distances.argmin(axis=1)
    rows = np.arange(len(points))
    return weights[rows, best], distances[rows, best]
