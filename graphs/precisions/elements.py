"""Linear finite elements on a triangle mesh: the lumped mass matrix C and the stiffness matrix G.

The hat function h_i is 1 at vertex i, 0 at the other vertices, and linear on every face. G_ij is the integral of grad
h_i . grad h_j, and C_ii is the integral of h_i. C is the mass matrix of the integrals of h_i h_j with each row summed
into its diagonal. On one face grad h_i has length 1 / height_i = side_i / (2 area), across the side opposite to i, so
that

    area grad h_i . grad h_j = -side_i side_j cos(angle_k) / (4 area) = -cot(angle_k) / 2,      k the third corner,

and the integral of h_i is area / 3. Obtuse angles have negative cotangents, which are kept. G is the matrix of the
Dirichlet energy, positive semidefinite for all triangles, and maps constants on each component of the mesh to 0. There
is no boundary term, which is Neumann's condition: the normal derivative is 0 at the boundary of an open mesh.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from graphs.builders.edges import scale_to_unit
from graphs.builders.mesh import MERGE, as_triangles
from graphs.builders.mesh_files import Angles, angles
from graphs.checks import counted
from graphs.errors import (
    DegenerateFacesWarning,
    DisconnectedWarning,
    DuplicateFacesWarning,
    InvalidGraphError,
    UnreferencedVerticesWarning,
    warn,
)

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_CUT = 1e-3
"""The distance, in units of the shortest side, below which vertices without a common face nearly coincide."""
_SMALLEST = 1e-40
"""The smallest area in squares of the largest coordinate. The inverse of its sixth power must be finite."""


class Elements(NamedTuple):
    """The matrices of linear elements, with lengths in `unit`.

    Examples:
        >>> from graphs.precisions.elements import read_mesh
        >>> mesh = read_mesh(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)]))
        >>> (mesh.elements.masses * 6).round(12).tolist()
        [1.0, 1.0, 1.0]
    """

    masses: Floats  # (N,) the diagonal of C: a third of the areas of the faces of each vertex
    stiffness: sp.csr_array  # (N, N) G, symmetric, with entries for vertices that share a face
    unit: float


class Mesh(NamedTuple):
    """A mesh that can carry a field.

    Examples:
        >>> from graphs.precisions.elements import read_mesh
        >>> read_mesh(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)])).points.shape
        (3, 3)
    """

    vertices: Floats  # (V, 2) or (V, 3) as given
    faces: Integers  # (F, 3)
    faces_with_area: Integers  # (M,) those with an area, and the first of equal ones
    cells: Integers  # (E, 3) the corners of the elements: the same faces, but without thin ones
    is_cell: NDArray[np.bool_]  # (F,) whether an element has the corners of the face
    vertices_on_faces: Integers  # (N,) the corners of elements, ascending, at which the field has values
    elements: Elements  # of these N vertices

    @property
    def points(self) -> Floats:
        """The vertices in space (V, 3)."""
        return in_space(self.vertices)


def in_space(
    points: Floats,  # (n, 2) or (n, 3)
) -> Floats:  # (n, 3)
    """Return points in space (n, 3); points in the plane get height 0.

    Args:
        points: Points (n, 2) or (n, 3).

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.elements import in_space
        >>> in_space(np.array([[1.0, 2.0]])).tolist()
        [[1.0, 2.0, 0.0]]
    """
    return np.pad(points, ((0, 0), (0, 3 - points.shape[1])))


def read_mesh(mesh: Any, alpha: int = 2) -> Mesh:
    """Return a mesh and its elements.

    Arguments, errors and warnings are as for `graphs.MeshField`.

    Examples:
        >>> from graphs.precisions.elements import read_mesh
        >>> read_mesh(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)])).vertices_on_faces.tolist()
        [0, 1, 2]
    """
    vertices, faces = as_triangles(mesh, dimensions=(2, 3))
    points, tolerance = in_space(vertices), tolerance_of(alpha)
    data, distinct = angles(points, faces), _without_repeated(faces)
    with_area = distinct[~data.flat[distinct]]
    thin = relative_heights(points, faces) <= tolerance
    if thin.any():
        sound = sound_faces(points, faces[distinct], tolerance)
        cells, angled = _with_area(sound.faces, angles(points, sound.faces), np.arange(len(sound.faces)))
        owners, is_cell = sound.owners, _are_among(faces, cells)
    else:
        cells, angled = _with_area(faces, data, distinct)
        owners, is_cell = np.arange(len(vertices)), np.ones(len(faces), dtype=bool)
    if len(cells) == 0:
        raise InvalidGraphError(f"A mesh must have a face with an area, got none among {len(faces)} faces.")
    if thin.any():
        _warn_of_thin(f"{int(thin.sum())} of {len(faces)} faces", sound, alpha)
    vertices_on_faces, corners = np.unique(cells, return_inverse=True)
    has_owner = owners != np.arange(len(vertices))
    _check_loose(len(vertices) - len(vertices_on_faces) - int(has_owner.sum()), len(vertices))
    _check_distinct(vertices[vertices_on_faces], vertices_on_faces)
    elements = assemble(corners.reshape(-1, 3), angled, len(vertices_on_faces))
    _warn_of_cuts(points[vertices_on_faces], corners.reshape(-1, 3), vertices_on_faces)
    _warn_of_components(elements.stiffness)
    _check_range(elements, vertices_on_faces)
    return Mesh(vertices, faces, with_area, cells, is_cell, vertices_on_faces, elements)


@np.errstate(under="ignore")
def assemble(faces: Integers, angle_data: Angles, num_vertices: int) -> Elements:
    """Return the matrices (N, N) of the elements of faces.

    Args:
        faces: Corners (F, 3), numbers of vertices.
        angle_data: The cotangents and areas of the faces.
        num_vertices: The number N of vertices.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.mesh_files import angles
        >>> from graphs.precisions.elements import assemble
        >>> vertices, faces = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]])
        >>> assemble(faces, angles(vertices, faces), 3).stiffness.toarray().round(6).tolist()
        [[1.0, -0.5, -0.5], [-0.5, 0.5, 0.0], [-0.5, 0.0, 0.5]]
    """
    thirds = np.repeat(angle_data.areas / 3, 3)
    masses = np.asarray(np.bincount(faces.ravel(), thirds, minlength=num_vertices), dtype=np.float64)
    has_area = ~angle_data.flat
    starts, ends = faces[has_area].ravel(), np.roll(faces[has_area], -1, axis=1).ravel()
    halves = angle_data.cotangents[has_area].ravel() / 2
    rows, columns = (np.concatenate(parts) for parts in ((starts, ends, starts, ends), (ends, starts, starts, ends)))
    entries = np.concatenate([-halves, -halves, halves, halves])
    stiffness = sp.csr_array(sp.coo_array((entries, (rows, columns)), shape=(num_vertices, num_vertices)))
    stiffness.sum_duplicates()
    stiffness.data = (
        stiffness.data + sp.csr_array(stiffness.T).data
    ) / 2  # a sum would drop sums of cotangents that are 0
    return Elements(masses, stiffness, angle_data.unit)


def _with_area(faces: Integers, found: Angles, numbers: Integers) -> tuple[Integers, Angles]:
    """Return those of some faces (E, 3) that have an area, and their angles."""
    kept = numbers[~found.flat[numbers]]
    return faces[kept], Angles(found.cotangents[kept], found.areas[kept], found.flat[kept], found.unit)


def _are_among(faces: Integers, others: Integers) -> NDArray[np.bool_]:
    """Return a mask (F,) of faces that have the corners of some of the others."""
    pairs = _repeated(np.sort(np.concatenate([others, faces]), axis=1))
    found = np.zeros(len(others) + len(faces), dtype=bool)
    found[pairs[pairs[:, 0] < len(others), 1]] = True
    return found[len(others) :]


def _warn_of_thin(subject: str, sound: "SoundFaces", alpha: int) -> None:
    gone = np.flatnonzero(sound.owners != np.arange(len(sound.owners)))
    remaining = len(sound.faces) - sound.num_sound
    steps = "leaves them out" if not remaining else f"leaves them out, except {counted(remaining, 'face')}"
    if len(gone):
        first = f"first {gone[0]} with {sound.owners[gone[0]]}"
        steps += f", joins {counted(len(gone), 'vertex', 'vertices')} with a neighbor ({first})"
    if sound.num_divided:
        steps += f", divides {counted(sound.num_divided, 'long side')} at the vertex on it"
    message = (
        f"{subject} have no area, or a height below {tolerance_of(alpha):.1g} of the longest side, too thin for alpha "
        f"= {alpha} in double precision. The field {steps}. Values and predictions keep their places."
    )
    warn(DegenerateFacesWarning(message))


def _check_loose(count: int, num_vertices: int) -> None:
    if count:
        message = (
            f"{count} of {num_vertices} vertices are on no face that has an area and are dropped from the field. "
            "The field at such a vertex is that at the nearest point of the surface."
        )
        warn(UnreferencedVerticesWarning(message))


def _check_distinct(vertices: Floats, numbers: Integers) -> None:
    pairs = numbers[_repeated(vertices + 0.0)]  # -0 is 0
    if len(pairs):
        first, second = pairs[0].tolist()
        raise InvalidGraphError(
            f"Vertices must be distinct, got {first} and {second} with the same coordinates "
            f"({counted(len(pairs), 'such vertex', 'such vertices')}). Files repeat vertices for textures, normals, or "
            f"each face of STL. Merge them with {MERGE}."
        )


def _without_repeated(faces: Integers) -> Integers:
    """Return the numbers (m,) of faces whose corners are not those of earlier ones."""
    pairs = _repeated(np.sort(faces, axis=1))
    if len(pairs):
        kept, repeated = pairs[0].tolist()
        message = (
            f"{len(pairs)} of {len(faces)} faces have the same corners as another (first {repeated} and {kept}) and "
            "are dropped from the field."
        )
        warn(DuplicateFacesWarning(message))
    return np.delete(np.arange(len(faces)), pairs[:, 1])


def _repeated(rows: NDArray[Any]) -> Integers:
    """Return the pairs (m, 2) of equal rows: the first one and a later one."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    firsts = first[inverse.ravel()].astype(np.int64)
    later = np.flatnonzero(firsts != np.arange(len(rows)))
    return np.stack([firsts[later], later], axis=1)


def _warn_of_cuts(points: Floats, faces: Integers, numbers: Integers) -> None:
    """Warn if vertices on the boundary nearly coincide with others that share no face with them."""
    starts, ends = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    low, high = np.minimum(starts, ends), np.maximum(starts, ends)
    _, first, uses = np.unique(low * len(points) + high, return_index=True, return_counts=True)
    border = np.unique([low[first[uses == 1]], high[first[uses == 1]]])
    if len(border) < 2:
        return
    shortest = np.full(len(points), np.inf)
    lengths = np.linalg.norm(points[starts] - points[ends], axis=1)
    np.minimum.at(shortest, starts, lengths)
    np.minimum.at(shortest, ends, lengths)
    distances, nearest = KDTree(points[border]).query(points[border], k=2)
    close = np.flatnonzero(distances[:, 1] < _CUT * shortest[border])
    if len(close):
        one, other = numbers[border[close[0]]], numbers[border[nearest[close[0], 1]]]
        message = (
            f"{counted(len(close), 'vertex', 'vertices')} of the boundary nearly coincide with another (first {one} "
            f"and {other}, {distances[close[0], 1]:.1g} apart), which cuts the surface there. Merge them with {MERGE} "
            "and fewer digits_vertex, if it should be whole."
        )
        warn(DisconnectedWarning(message))


def _warn_of_components(stiffness: sp.csr_array) -> None:
    linked = sp.csr_array((np.ones(stiffness.nnz), stiffness.indices, stiffness.indptr), shape=stiffness.shape)
    count = int(connected_components(linked, directed=False)[0])
    if count > 1:
        message = (
            f"The mesh has {count} connected components, on which the field is independent. Merge vertices "
            "that coincide up to rounding if they should be connected."
        )
        warn(DisconnectedWarning(message))


def _check_range(elements: Elements, numbers: Integers) -> None:
    smallest = int(elements.masses.argmin())
    if not elements.masses[smallest] > _SMALLEST:
        raise InvalidGraphError(
            f"Faces must be large enough for double precision, got those of vertex {numbers[smallest]} with a largest "
            f"coordinate of {elements.unit:.3g}. Drop them, or move the origin to the mesh."
        )


# --- Faces that are too thin for double precision, and the same surface without them ---------------------------------
#
# Let a face have a longest side L and a height h = t L above it. Its cotangents are of order 1 / t, so that entries of
# the precision of order alpha are of order t^-alpha. They cancel for smooth functions, which leaves a relative error of
# variances of about eps r^(alpha - 1) t^-alpha, with r the lengthscale in units of L. A surface without the face
# differs from the given one by t. Both errors are equal at t = (eps r^(alpha - 1))^(1 / (alpha + 1)). Thinner faces are
# left out:
#
# - A side shorter than t L is contracted: one of its two vertices takes the place of the other.
# - Otherwise one corner is near the inside of the longest side. The other faces of this side are divided at that corner
#   if this makes faces thicker. At a boundary the thin face is dropped.
#
# Both move the surface by at most t L and keep it connected. They are repeated until there is nothing to do. Small
# faces of a usual shape, as in graded meshes, stay, and so do thin ones that cannot be replaced, as in a narrow strip.


_LENGTHSCALE = 30.0
"""The lengthscale r in units of a longest side. Fields that are resolved well have 3 to 30."""
_LARGEST = 5e-3
"""The largest tolerance t. Usable meshes have faces as thin as 1 / 100, which alpha > 3 must not lose."""
_FLAT = 1e-10
"""The height, in units of the longest side, of faces without area, as in `graphs.builders.mesh_files`."""
_MAX_ROUNDS = 100
"""The largest number of rounds, against endless loops. A round ends a thin face in each neighborhood."""


class SoundFaces(NamedTuple):
    """The faces of a surface without thin ones.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.elements import sound_faces
        >>> vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1e-9, 0, 0]])
        >>> found = sound_faces(vertices, np.array([[3, 1, 2], [0, 3, 2]]), 1e-5)
        >>> found.faces.tolist(), found.owners.tolist(), found.num_divided
        ([[0, 1, 2]], [0, 1, 2, 0], 0)
    """

    faces: Integers  # (M, 3)
    owners: Integers  # (V,) the vertex that took the place of each vertex, usually itself
    num_divided: int  # the number of sides that were divided
    num_sound: int  # the number of faces that are not thin


def tolerance_of(alpha: int) -> float:
    """Return the ratio t of height and longest side below which a face is too thin.

    Args:
        alpha: The order of the field.

    Examples:
        >>> from graphs.precisions.elements import tolerance_of
        >>> [float(f"{tolerance_of(alpha):.0e}") for alpha in (1, 2, 3, 4)]
        [1e-08, 2e-05, 0.0007, 0.005]
    """
    eps = float(np.finfo(np.float64).eps)
    return min(_LARGEST, float((eps * _LENGTHSCALE ** (alpha - 1)) ** (1 / (alpha + 1))))


def relative_heights(
    points: Floats,  # (V, 3)
    faces: Integers,  # (F, 3)
) -> Floats:  # (F,)
    """Return the height (F,) of each face above its longest side, in units of this side, or 0 for a point.

    Args:
        points: Vertices (V, 3).
        faces: Corners (F, 3).

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.elements import relative_heights
        >>> relative_heights(np.array([[0.0, 0, 0], [2, 0, 0], [1, 0.5, 0]]), np.array([[0, 1, 2]])).tolist()
        [0.25]
    """
    return _shapes(points, faces)[1]


def sound_faces(
    points: Floats,  # (V, 3)
    faces: Integers,  # (F, 3)
    tolerance: float,
) -> SoundFaces:
    """Return the faces of a surface with short sides contracted, and long sides of thin faces divided.

    Args:
        points: Vertices (V, 3).
        faces: Corners (F, 3), without repeated faces.
        tolerance: The ratio t of height and longest side at which a face is too thin.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.elements import sound_faces
        >>> kite = np.array([[0.0, 0, 0], [2, 0, 0], [1, 1, 0], [1, 0, 0], [1, -1, 0]])
        >>> sound_faces(kite, np.array([[0, 1, 2], [0, 3, 1], [0, 3, 4], [3, 1, 4]]), 1e-5).faces.tolist()
        [[0, 3, 4], [3, 1, 4], [0, 3, 2], [1, 3, 2]]
    """
    owners, num_divided = np.arange(len(points)), 0
    for _ in range(_MAX_ROUNDS):
        faces = faces[(faces != np.roll(faces, -1, axis=1)).all(axis=1)]
        faces = faces[np.sort(np.unique(np.sort(faces, axis=1), axis=0, return_index=True)[1])]
        lengths, heights = _shapes(points, faces)
        short = lengths <= tolerance * lengths.max(axis=1, keepdims=True)
        if short.any():
            moved = _contracted(faces, lengths, short, len(points))
            owners, faces = moved[owners], moved[faces]
        else:
            before = len(faces)
            faces, divided = _divided(points, faces, lengths, heights, tolerance)
            num_divided += divided
            if not divided and len(faces) == before:
                break
    return SoundFaces(faces, owners, num_divided, int((heights > tolerance).sum()))


def _shapes(points: Floats, faces: Integers) -> tuple[Floats, Floats]:
    """Return sides (F, 3), from corner j to j + 1, and heights (F,) in units of the longest side."""
    corners = points[faces]
    sides = np.roll(corners, -1, axis=1) - corners
    sizes = np.abs(sides).max(axis=(1, 2))  # about the longest side; squares of short ones would underflow
    sides = sides / np.where(sizes > 0, sizes, 1.0)[:, None, None]
    lengths = np.linalg.norm(sides, axis=2)
    heights = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1) / np.maximum(lengths.max(axis=1), 1.0) ** 2
    return lengths * sizes[:, None], heights


def _contracted(faces: Integers, lengths: Floats, short: NDArray[np.bool_], num_vertices: int) -> Integers:
    """Return the vertex (V,) that takes the place of each vertex, by the shortest sides first.

    A vertex that took another's place stays, and one that is gone takes no place, so that chains of short sides do not
    end in one point.
    """
    ends = np.stack([faces, np.roll(faces, -1, axis=1)], axis=2)[short]
    order = np.lexsort((ends.max(axis=1), ends.min(axis=1), lengths[short]))
    owners, stays = np.arange(num_vertices), np.zeros(num_vertices, dtype=bool)
    for first, second in np.sort(ends[order], axis=1).tolist():
        kept, gone = (second, first) if stays[second] and not stays[first] else (first, second)
        if owners[kept] == kept and owners[gone] == gone and not stays[gone]:
            owners[gone], stays[kept] = kept, True
    return owners


def _divided(
    points: Floats, faces: Integers, lengths: Floats, heights: Floats, tolerance: float
) -> tuple[Integers, int]:
    """Return faces without thin ones, whose longest side is divided in other faces, and the number of divided sides.

    The longest sides come first. A thin face waits if a neighbor was changed, or has a longer side of its own: in a fan
    of thin faces with corners on one line, turning diagonals would have no end.
    """
    thin = np.flatnonzero(heights <= tolerance)
    thin = thin[np.argsort(-lengths[thin].max(axis=1), kind="stable")]
    starts, ends = faces, np.roll(faces, -1, axis=1)
    keys = np.minimum(starts, ends) * len(points) + np.maximum(starts, ends)  # (M, 3) of sides
    longest = dict(zip(thin.tolist(), keys[thin, lengths[thin].argmax(axis=1)].tolist(), strict=True))
    wanted = np.isin(keys, list(longest.values()))
    sharing: dict[int, list[int]] = {}
    for key, face in zip(keys[wanted].tolist(), np.nonzero(wanted)[0].tolist(), strict=True):
        sharing.setdefault(key, []).append(face)
    uses = np.bincount(faces.ravel(), minlength=len(points))
    is_held = np.bincount(faces[heights > tolerance].ravel(), minlength=len(points)) > 0
    gone, added, num_divided = np.zeros(len(faces), dtype=bool), [faces[:0]], 0
    for face, key in longest.items():
        start, end = divmod(key, len(points))
        others = [other for other in sharing[key] if other != face]
        if gone[sharing[key]].any() or any(longest.get(other, key) != key for other in others):
            continue
        (apex,) = set(faces[face].tolist()) - {start, end}
        if not others or uses[apex] == 1:  # at a boundary, or a fin
            gone[face] = bool(others) or is_held[apex] or heights[face] <= _FLAT
            continue
        opposite = [corner for other in others for corner in faces[other].tolist() if corner not in (start, end)]
        new = np.array([(at, apex, corner) for corner in opposite for at in (start, end)])
        if all(other in longest for other in others) or _shapes(points, new)[1].min() > heights[face]:
            gone[[face, *others]] = True
            added.append(new)
            num_divided += 1
    return np.concatenate([faces[~gone], *added]), num_divided


# --- The points of a triangle mesh that are nearest to given points --------------------------------------------------
#
# A face lies in the ball around its centroid that reaches its corners. If a point is at most d from some face, the
# nearest face has its centroid within d + r, with r the radius of its ball. Faces are therefore grouped by r, up to a
# factor of two, with a k-d tree of the centroids of each group. The candidates of the trees are compared exactly.


MAX_PAIRS_AT_ONCE = 2**17
"""The number of pairs of a point and a face that are compared at once."""
_SLACK = 1e-9
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
        >>> from graphs.precisions.elements import Locator
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
        reach = (distances + same.radius) * (1 + _SLACK)
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
        >>> from graphs.precisions.elements import nearest_in_triangles
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
