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

from graphs.builders.mesh import as_triangles
from graphs.builders.triangles import Angles, angles
from graphs.checks import counted
from graphs.errors import (
    DegenerateFacesWarning,
    DisconnectedWarning,
    DuplicateFacesWarning,
    InvalidGraphError,
    UnreferencedVerticesWarning,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
    faces_with_area: Integers  # (M,) the faces with elements: those with an area, and the first of equal ones
    vertices_on_faces: Integers  # (N,) the vertices on a face with an area, ascending, at which the field has values
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


def read_mesh(mesh: Any) -> Mesh:
    """Return a mesh and its elements.

    Arguments, errors and warnings are as for `graphs.MeshField`.

    Examples:
        >>> from graphs.precisions.elements import read_mesh
        >>> read_mesh(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)])).vertices_on_faces.tolist()
        [0, 1, 2]
    """
    vertices, faces = as_triangles(mesh, dimensions=(2, 3))
    data = angles(in_space(vertices), faces)
    _check_flat(data.flat)
    with_area = _without_repeated(faces, np.flatnonzero(~data.flat))
    vertices_on_faces, corners = np.unique(faces[with_area], return_inverse=True)
    _check_loose(len(vertices) - len(vertices_on_faces), len(vertices))
    _check_distinct(vertices[vertices_on_faces], vertices_on_faces)
    angled = Angles(data.cotangents[with_area], data.areas[with_area], data.flat[with_area], data.unit)
    elements = assemble(corners.reshape(-1, 3), angled, len(vertices_on_faces))
    _warn_of_components(elements.stiffness)
    _check_range(elements, vertices_on_faces)
    return Mesh(vertices, faces, with_area, vertices_on_faces, elements)


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


def _check_flat(flat: NDArray[np.bool_]) -> None:
    if flat.all():
        raise InvalidGraphError(f"A mesh must have a face with an area, got none among {len(flat)} faces.")
    if flat.any():
        message = f"{int(flat.sum())} of {len(flat)} faces have no area and are dropped from the field."
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
            f"({counted(len(pairs), 'such vertex', 'such vertices')}). Merge them with mesh.merge_vertices(); STL "
            "repeats vertices for each face."
        )


def _without_repeated(faces: Integers, numbers: Integers) -> Integers:
    """Return the numbers (m,) of faces whose corners are not those of earlier ones."""
    pairs = _repeated(np.sort(faces[numbers], axis=1))
    if len(pairs) == 0:
        return numbers
    kept, repeated = numbers[pairs[0]].tolist()
    message = (
        f"{len(pairs)} of {len(faces)} faces have the same corners as another (first {repeated} and {kept}) and are "
        "dropped from the field."
    )
    warnings.warn(DuplicateFacesWarning(message), stacklevel=4)
    return np.delete(numbers, pairs[:, 1])


def _repeated(rows: NDArray[Any]) -> Integers:
    """Return the pairs (m, 2) of equal rows: the first one and a later one."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    firsts = first[inverse.ravel()].astype(np.int64)
    later = np.flatnonzero(firsts != np.arange(len(rows)))
    return np.stack([firsts[later], later], axis=1)


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
