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

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from graphs.builders.mesh import MERGE, as_triangles
from graphs.builders.triangles import Angles, angles
from graphs.checks import counted
from graphs.errors import (
    DegenerateFacesWarning,
    DisconnectedWarning,
    DuplicateFacesWarning,
    InvalidGraphError,
    UnreferencedVerticesWarning,
)
from graphs.precisions.thinness import SoundFaces, relative_heights, sound_faces, tolerance_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
        >>> from graphs.builders.triangles import angles
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


def _warn_of_thin(subject: str, sound: SoundFaces, alpha: int) -> None:
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
    warnings.warn(DegenerateFacesWarning(message), stacklevel=4)


def _check_loose(count: int, num_vertices: int) -> None:
    if count:
        message = (
            f"{count} of {num_vertices} vertices are on no face that has an area and are dropped from the field. "
            "The field at such a vertex is that at the nearest point of the surface."
        )
        warnings.warn(UnreferencedVerticesWarning(message), stacklevel=4)


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
        warnings.warn(DuplicateFacesWarning(message), stacklevel=4)
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
        warnings.warn(DisconnectedWarning(message), stacklevel=4)


def _warn_of_components(stiffness: sp.csr_array) -> None:
    linked = sp.csr_array((np.ones(stiffness.nnz), stiffness.indices, stiffness.indptr), shape=stiffness.shape)
    count = int(connected_components(linked, directed=False)[0])
    if count > 1:
        message = (
            f"The mesh has {count} connected components, on which the field is independent. Merge vertices "
            "that coincide up to rounding if they should be connected."
        )
        warnings.warn(DisconnectedWarning(message), stacklevel=4)


def _check_range(elements: Elements, numbers: Integers) -> None:
    smallest = int(elements.masses.argmin())
    if not elements.masses[smallest] > _SMALLEST:
        raise InvalidGraphError(
            f"Faces must be large enough for double precision, got those of vertex {numbers[smallest]} with a largest "
            f"coordinate of {elements.unit:.3g}. Drop them, or move the origin to the mesh."
        )
