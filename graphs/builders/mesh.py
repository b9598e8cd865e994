"""Graphs of triangle meshes: nodes are faces or vertices."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.arrays import as_numbers, component_of_nodes, read_integers
from graphs.builders.edges import EdgeArrays, inverse_lengths, scale_to_unit, segment_distances
from graphs.builders.mesh_files import angles, load_mesh
from graphs.checks import check_choice, short_repr
from graphs.errors import (
    DegenerateFacesWarning,
    DisconnectedWarning,
    InvalidArgumentError,
    InvalidGraphError,
    NegativeCotangentsWarning,
    warn,
)

_ROUNDING = 1e-12
"""The relative size below which a sum of cotangents counts as 0."""
_SHORT = 1e-2
"""The ratio of a side to the longest side of its face below which weights other than "unit" warn.

On a sphere with 40 such vertices, predictions of values with standard deviation 0.6 were wrong by up to 11.
"""
MERGE = "mesh.merge_vertices(merge_tex=True, merge_norm=True)"
"""The call of trimesh that merges vertices at one place, also if their textures or normals differ."""
_REMEDY = f'Merge coincident vertices ({MERGE}), or pass weights="unit".'
"""The remedy for edges without length."""


def from_mesh(mesh: Any, nodes: str, weights: str) -> EdgeArrays:
    """Return the edges between the faces or vertices of a mesh; see `graphs.Graph.from_mesh`.

    Faces are joined if they are adjacent, and vertices if they share an edge. The coordinates are face centroids (F, 3)
    or vertices (V, 3).

    Examples:
        >>> from graphs.builders import from_mesh
        >>> square = ([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)], [(0, 1, 2), (0, 2, 3)])
        >>> from_mesh(square, "vertices", "unit").num_nodes
        4
    """
    check_choice("nodes", nodes, ("faces", "vertices"))
    check_choice("weights", weights, ("unit", "edge-length", "cotangent"))
    if nodes == "faces" and weights == "cotangent":
        raise InvalidArgumentError(
            'weights must be "unit" or "edge-length" between faces, got "cotangent". Pass nodes="vertices".'
        )
    vertices, faces = as_triangles(mesh)
    _warn_of_cuts(vertices, faces)
    edges = (_from_faces if nodes == "faces" else _from_vertices)(vertices, faces, weights)
    return edges._replace(computed=range(edges.num_nodes))


def as_triangles(
    mesh: Any,
    dimensions: tuple[int, ...] = (3,),
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return new arrays of the vertices (V, d) and the faces (F, 3) of a mesh.

    Args:
        mesh: An object with `vertices` and `faces`, or the pair of them. A `trimesh.Scene` is concatenated by its
            `to_mesh()`. A path is read by `load_mesh`.
        dimensions: The values of d that are allowed.

    Raises:
        FileFormatError: If the file is missing or not a mesh.
        InvalidGraphError: If there are no faces, or they are not triangles of the vertices.

    Examples:
        >>> from graphs.builders.mesh import as_triangles
        >>> vertices, faces = as_triangles(([(0, 0, 0), (1, 0, 0), (0, 1, 0)], [(0, 1, 2)]))
        >>> vertices.shape, faces.tolist()
        ((3, 3), [[0, 1, 2]])
    """
    if isinstance(mesh, str | Path):
        mesh = load_mesh(mesh)
    elif hasattr(mesh, "geometry") and (hasattr(mesh, "to_mesh") or hasattr(mesh, "dump")):
        mesh = mesh.to_mesh() if hasattr(mesh, "to_mesh") else mesh.dump(concatenate=True)
        if len(getattr(mesh, "faces", ())) == 0:
            raise InvalidGraphError(
                "A scene must contain a triangle mesh, got one without. Paths and points are not meshes."
            )
    if isinstance(mesh, tuple | list) and len(mesh) == 2:
        given, faces = mesh
    elif hasattr(mesh, "vertices"):
        given, faces = mesh.vertices, getattr(mesh, "faces", ())  # point clouds have no faces
    else:
        raise InvalidGraphError(
            "A mesh must be an object with vertices and faces, a trimesh.Scene or the path of a file, got "
            f"{short_repr(mesh)}."
        )
    if given is None or faces is None:
        raise InvalidGraphError("A mesh must have vertices and faces, got neither or one of them.")
    corners = read_integers(faces, "The corners of faces")
    if corners.size == 0:
        raise InvalidGraphError("A mesh must have faces, got no faces. Use Graph.from_points for point clouds.")
    points = as_numbers(given)
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


def _warn_of_cuts(vertices: NDArray[np.float64], faces: NDArray[np.int64]) -> None:
    """Warn if vertices coincide, so that the surface is cut there (STL files)."""
    used = np.unique(faces)
    coordinates = vertices[used] + 0.0  # -0 is 0
    order = np.lexsort(coordinates.T)
    first = np.concatenate([[True], (coordinates[order][1:] != coordinates[order][:-1]).any(axis=1)])
    count = int((~first).sum())
    if count == 0:
        return
    site = np.empty(len(vertices), dtype=np.int64)
    site[used[order]] = np.cumsum(first) - 1
    total, merged = _num_components(np.searchsorted(used, faces)), _num_components(site[faces])
    fewer = f", which has {total} connected components instead of {merged}" if merged < total else ""
    message = (
        f"{count} of {len(used)} vertices coincide with another, which cuts the surface{fewer}. "
        f"Merge them with {MERGE}, or read the file with graphs.load_mesh, which does."
    )
    warn(DisconnectedWarning(message))


def _num_components(faces: NDArray[np.int64]) -> int:
    """Return the number of components of faces (F, 3) that use all vertices."""
    components = component_of_nodes(faces[:, [0, 1]].ravel(), faces[:, [1, 2]].ravel(), int(faces.max()) + 1)
    return int(components.max()) + 1


class _Sides(NamedTuple):
    """The S sides of all faces, without those that start and end at one vertex."""

    low: NDArray[np.int64]  # (S,) the lower vertex
    high: NDArray[np.int64]  # (S,)
    key: NDArray[np.int64]  # (S,) equal for sides of the same edge
    edge: NDArray[np.int64]  # (S,) 3 face + j; side j leads from corner j to corner j + 1


def _sides(faces: NDArray[np.int64], num_vertices: int) -> _Sides:
    starts, ends = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    edge = np.flatnonzero(starts != ends)
    low, high = np.minimum(starts, ends)[edge], np.maximum(starts, ends)[edge]
    return _Sides(low, high, low * num_vertices + high, edge)


def _from_faces(vertices: NDArray[np.float64], faces: NDArray[np.int64], weights: str) -> EdgeArrays:
    centroids = vertices[faces].mean(axis=1)
    sides = _sides(faces, len(vertices))
    first, second, shared = _adjacent(sides)
    lengths = np.zeros(len(first))
    if weights == "edge-length":
        scaled, _ = scale_to_unit(vertices, "Vertex")
        middles = (scaled[sides.low[shared]] + scaled[sides.high[shared]]) / 2
        centers = scaled[faces].mean(axis=1)
        lengths = segment_distances(centers[first], middles) + segment_distances(middles, centers[second])
    pair = first * len(faces) + second
    order = np.lexsort((lengths, pair))  # of several ways between two faces the shortest comes first
    shortest = order[np.unique(pair[order], return_index=True)[1]]
    values = np.ones(len(shortest))
    if weights == "edge-length":
        values = inverse_lengths(lengths[shortest], first[shortest], second[shortest], "Faces", _REMEDY)
    return EdgeArrays(len(faces), first[shortest], second[shortest], values, None, centroids)


def _adjacent(sides: _Sides) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs (P,) of faces with a common edge, and one side each."""
    order = np.argsort(sides.key, kind="stable")  # the faces of an edge ascend
    key, face = sides.key[order], sides.edge[order] // 3
    empty = np.zeros(0, dtype=np.int64)
    pairs = [(empty, empty, empty)]
    for step in range(1, len(key)):
        same = np.flatnonzero(key[step:] == key[:-step])
        if len(same) == 0:
            break
        same = same[face[same] != face[same + step]]
        pairs.append((face[same], face[same + step], order[same]))
    first, second, shared = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return first, second, shared


def _from_vertices(vertices: NDArray[np.float64], faces: NDArray[np.int64], weights: str) -> EdgeArrays:
    sides = _sides(faces, len(vertices))
    _, once, edge = np.unique(sides.key, return_index=True, return_inverse=True)
    low, high = sides.low[once], sides.high[once]
    values = np.ones(len(once))
    if weights != "unit":
        scaled, _ = scale_to_unit(vertices, "Vertex")
        _warn_of_short(scaled[faces], weights)
    if weights == "edge-length":
        values = inverse_lengths(segment_distances(scaled[low], scaled[high]), low, high, "Vertices", _REMEDY)
    elif weights == "cotangent":
        values = _cotangent_weights(_cotangents(vertices, faces).ravel()[sides.edge], edge, len(once))
    return EdgeArrays(len(vertices), low, high, values, None, vertices)


def _warn_of_short(corners: NDArray[np.float64], weights: str) -> None:
    """Warn if sides of faces (F, 3, 3) are so short that weights nearly cut their ends off from other vertices."""
    lengths = np.linalg.norm(np.roll(corners, -1, axis=1) - corners, axis=2)
    count = int(((lengths > 0) & (lengths < _SHORT * lengths.max(axis=1, keepdims=True))).any(axis=1).sum())
    if count:
        message = (
            f"{count} of {len(corners)} faces have a side below {_SHORT:g} of the longest one. Its {weights} weight "
            'nearly cuts its ends off from other vertices. Merge close vertices, pass weights="unit", or use a '
            "graphs.MeshField, which contracts them."
        )
        warn(DegenerateFacesWarning(message))


def _cotangents(vertices: NDArray[np.float64], faces: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the cotangents (F, 3) opposite to sides j, 0 for faces without area."""
    of_faces = angles(vertices, faces)
    if of_faces.flat.any():
        message = (
            f"{int(of_faces.flat.sum())} of {len(faces)} faces have no area and do not contribute to cotangent weights."
        )
        warn(DegenerateFacesWarning(message))
    return of_faces.cotangents


def _cotangent_weights(cotangents: NDArray[np.float64], edge: NDArray[np.int64], num_edges: int) -> NDArray[np.float64]:
    """Return half the sums (E,) over sides of each edge, 0 if not positive."""
    sums = np.bincount(edge, cotangents, minlength=num_edges) / 2
    sizes = np.bincount(edge, np.abs(cotangents), minlength=num_edges) / 2
    sums[np.abs(sums) <= _ROUNDING * (1 + sizes)] = 0
    negative = sums < 0
    if negative.any():
        message = (
            f"{int(negative.sum())} of {num_edges} edges have negative cotangent weights (the lowest is "
            f"{sums.min():.3g}, the highest of all {sums.max():.3g}) and are dropped. The angles opposite to them add "
            "up to more than pi, or at a boundary exceed pi / 2. Use a Delaunay mesh to avoid them."
        )
        warn(NegativeCotangentsWarning(message))
    return np.where(negative, 0.0, sums)
