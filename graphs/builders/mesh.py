"""Triangle meshes to edges: faces or vertices are the nodes."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from graphs.builders.edges import EdgeArrays
from graphs.builders.files import brief, check_file
from graphs.errors import DegenerateFacesWarning, FileFormatError, InvalidArgumentError, InvalidGraphError

MESH_SUFFIXES = (".stl", ".ply", ".obj", ".off", ".glb")


def from_mesh(mesh: Any, nodes: str) -> EdgeArrays:
    """Join adjacent faces, or vertices that share an edge, with weight 1.

    The coordinates are face centroids or vertex positions.
    """
    faces = getattr(mesh, "faces", None)
    if faces is None or len(faces) == 0:
        raise InvalidGraphError("The mesh has no faces, so there is nothing to walk on. Point clouds are not meshes.")
    if nodes == "faces":
        pairs, count, where = mesh.face_adjacency, len(faces), mesh.triangles_center
    elif nodes == "vertices":
        pairs, count, where = mesh.edges_unique, len(mesh.vertices), mesh.vertices
    else:
        raise InvalidArgumentError(f'nodes must be "faces" or "vertices", got {nodes!r}.')
    pairs = np.unique(np.sort(np.asarray(pairs, dtype=np.int64).reshape(-1, 2), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]  # degenerate triangles name a vertex twice
    coordinates = np.array(where, dtype=np.float64)
    return EdgeArrays(count, pairs[:, 0], pairs[:, 1], np.ones(len(pairs)), None, coordinates)


def load_mesh(path: str | Path) -> Any:
    """Load a triangle mesh, coincident vertices merged (STL repeats them per face), faces without area left out.

    Returns:
        A `trimesh.Trimesh`.

    Raises:
        FileFormatError: the file is missing, empty, or no mesh of a known format
            (.stl, .ply, .obj, .off, .glb).
        InvalidGraphError: the file holds no faces.

    Warns:
        DegenerateFacesWarning: with the number of faces left out.
    """
    import trimesh

    file = check_file(path, "a mesh")
    if file.suffix.lower() not in MESH_SUFFIXES:
        raise FileFormatError(f"{file.name} is not a known mesh format ({', '.join(MESH_SUFFIXES)}).")
    try:
        mesh = trimesh.load(file, force="mesh", skip_materials=True)
    except Exception as error:  # trimesh's parsers raise whatever their bytes lead them to
        raise FileFormatError(f"{file} could not be read as a mesh: {brief(error)}") from error
    if len(getattr(mesh, "faces", ())) == 0:
        raise InvalidGraphError(f"{file} holds no faces; it may be truncated.")
    _check_complete(file, len(mesh.faces))
    try:
        mesh.merge_vertices(merge_tex=True, merge_norm=True)
        kept = mesh.nondegenerate_faces()
    except Exception as error:  # coordinates that are no numbers
        raise FileFormatError(f"{file} could not be read as a mesh: {brief(error)}") from error
    return _drop_degenerate(mesh, kept, file)


def declared_faces(path: str | Path) -> int | None:
    """Return the number of faces, polygons included, that a PLY, OFF or OBJ file says it stores; None for others."""
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix == ".obj":
        return sum(line.startswith((b"f ", b"f\t")) for line in file.read_bytes().splitlines())
    pattern = {".ply": r"element face (\d+)", ".off": r"^\s*OFF(?:\s+|#.*\n)*\d+\s+(\d+)"}.get(suffix)
    if pattern is None:
        return None
    with file.open("rb") as stream:
        found = re.search(pattern, stream.read(4096).decode("latin-1"))
    return int(found.group(1)) if found else None


def _check_complete(file: Path, faces: int) -> None:
    declared = declared_faces(file)
    if declared is not None and faces < declared:
        raise FileFormatError(f"{file} declares {declared} faces and holds {faces}; it is truncated.")


def _drop_degenerate(mesh: Any, kept: Any, file: Path) -> Any:
    """Leave out faces without area, which have no normal and share no whole edge, and say how many."""
    if kept.all():
        return mesh
    if not kept.any():
        raise InvalidGraphError(f"{file}: every face is degenerate; its coordinates may be out of range.")
    message = f"{file.name}: {int((~kept).sum())} of {len(kept)} faces have no area and are left out."
    warnings.warn(DegenerateFacesWarning(message), stacklevel=3)
    mesh.update_faces(kept)
    return mesh
