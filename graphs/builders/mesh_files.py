"""Triangle meshes from files: vertices merged, and what the file's own numbers and properties mean after that."""

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.builders.files import brief, check_file
from graphs.builders.meshio_files import MESHIO_SUFFIXES, read_meshio
from graphs.errors import DegenerateFacesWarning, FileFormatError, GraphError, InvalidGraphError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MESH_SUFFIXES = (".stl", ".ply", ".obj", ".off", ".glb", *MESHIO_SUFFIXES)
_MERGED = 2e-8
"""How far vertices of a file may lie from that which they were merged into: trimesh rounds to 1e-8."""
_GEOMETRY = {"x", "y", "z", "nx", "ny", "nz", "s", "t", "u", "v", "texture_u", "texture_v", "texcoord", "texnumber"}
_GEOMETRY |= {"red", "green", "blue", "alpha", "diffuse_red", "diffuse_green", "diffuse_blue", "flags"}
"""Properties of a PLY file that say where vertices are or how they look."""


@dataclass(frozen=True, eq=False)
class MeshFile:
    """A mesh as a file has it.

    Attributes:
        mesh: A `trimesh.Trimesh`, coincident vertices merged, faces without area left out.
        places: The vertices (K, 3) in the order of the file.
        faces: The face (L,) of the mesh for each face of the file, -1 where it was left out; None where the file has
            polygons, which are several triangles.
        of_vertices: Properties of the file's vertices (K,), by name.
        of_faces: Properties of the file's faces (L,), by name.
    """

    mesh: Any
    places: Floats
    faces: Integers | None
    of_vertices: Mapping[str, Floats] = field(default_factory=dict)
    of_faces: Mapping[str, Floats] = field(default_factory=dict)

    @cached_property
    def vertices(self) -> Integers:
        """The vertex (K,) of the mesh for each vertex of the file, -1 for those on no face."""
        from scipy.spatial import KDTree

        finite = np.array(np.isfinite(self.places).all(axis=1))
        tree = KDTree(np.asarray(self.mesh.vertices, dtype=np.float64))
        distances, found = tree.query(np.where(finite[:, None], self.places, 0.0), distance_upper_bound=_MERGED)
        return np.where(finite & np.isfinite(distances), found, -1).astype(np.int64)


def load_mesh(path: str | Path) -> Any:
    """Load a triangle mesh, coincident vertices merged (STL repeats them per face), faces without area left out.

    Returns:
        A `trimesh.Trimesh`.

    Raises:
        FileFormatError: the file is missing, empty, or no mesh of a known format
            (.stl, .ply, .obj, .off, .glb; .vtk and .msh through meshio), or coordinates are not finite.
        InvalidGraphError: the file holds no faces.
        MissingDependencyError: a .vtk or .msh file, and meshio is not installed: pip install 'rfgp[mesh]'.

    Warns:
        DegenerateFacesWarning: with the number of faces left out.
    """
    return read_mesh_file(path).mesh


def read_mesh_file(path: str | Path) -> MeshFile:
    """Read a mesh as `load_mesh`, whose errors and warnings these are, with the file's own numbers and properties."""
    file = check_file(path, "a mesh")
    suffix = file.suffix.lower()
    if suffix not in MESH_SUFFIXES:
        raise FileFormatError(f"{file.name} is not a known mesh format ({', '.join(MESH_SUFFIXES)}).")
    try:
        mesh, of_vertices, of_faces = read_meshio(file) if suffix in MESHIO_SUFFIXES else _read_trimesh(file)
    except GraphError:
        raise
    except Exception as error:  # the parsers raise whatever their bytes lead them to
        raise FileFormatError(f"{file} could not be read as a mesh: {brief(error)}") from error
    if len(getattr(mesh, "faces", ())) == 0:
        raise InvalidGraphError(f"{file} holds no faces; it may be truncated.")
    declared, stored = declared_faces(file), len(mesh.faces)
    if declared is not None and stored < declared:
        raise FileFormatError(
            f"{file} declares {declared} faces and holds {stored}; it is truncated, or faces have fewer than 3 corners."
        )
    try:
        places = _own_places(file, mesh)
        _check_finite(file, mesh)
        mesh.merge_vertices(merge_tex=True, merge_norm=True)
        whole = np.asarray(mesh.nondegenerate_faces())
    except FileFormatError:
        raise
    except Exception as error:  # faces of vertices that there are not
        raise FileFormatError(f"{file} could not be read as a mesh: {brief(error)}") from error
    _drop_degenerate(mesh, whole, file)
    has_polygons = (declared is not None and declared != stored) or mesh.metadata.get("polygons", False)
    faces = None if has_polygons else np.where(whole, np.cumsum(whole) - 1, -1)
    return MeshFile(mesh, places, faces, of_vertices, of_faces)


def _read_trimesh(file: Path) -> tuple[Any, dict[str, Floats], dict[str, Floats]]:
    """Return the mesh as trimesh reads it, nothing merged or left out, and properties of a PLY file."""
    import trimesh

    content = io.BytesIO(file.read_bytes())  # without a path: files that this one names are not read
    kind = file.suffix[1:].lower()
    with _without_last_resort():
        mesh = trimesh.load(content, file_type=kind, force="mesh", skip_materials=True, process=False)
    return mesh, _ply_properties(mesh, "vertex"), _ply_properties(mesh, "face")


@contextmanager
def _without_last_resort() -> Iterator[None]:
    """Let trimesh log to handlers that there are, and not, where there is none, a traceback to the standard error."""
    nowhere = logging.NullHandler()
    logging.getLogger("trimesh").addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger("trimesh").removeHandler(nowhere)


def _ply_element(mesh: Any, kind: str) -> tuple[dict[str, Any], int]:
    """Return the columns of an element of a PLY file by name, lists among them, and its length."""
    element = (getattr(mesh, "metadata", None) or {}).get("_ply_raw", {}).get(kind)
    if element is None or not len(element.get("data", ())):
        return {}, 0
    data = element["data"]
    names = data.dtype.names if isinstance(data, np.ndarray) else data
    return {name: data[name] for name in names or ()}, int(element["length"])


def _ply_properties(mesh: Any, kind: str) -> dict[str, Floats]:
    """Return the properties of a PLY file's vertices or faces that are numbers."""
    columns, length = _ply_element(mesh, kind)
    out = {}
    for name, column in columns.items():
        values = np.asarray(column)
        if name.lower() not in _GEOMETRY and values.dtype.kind in "iuf" and values.size == length:
            out[str(name)] = values.reshape(-1).astype(np.float64)
    return out


def _own_places(file: Path, mesh: Any) -> Floats:
    """Return the vertices (K, 3) in the order of the file; trimesh changes it where a vertex has several normals."""
    if file.suffix.lower() == ".obj":
        lines = file.read_bytes().splitlines()
        rows = [line.split()[1:4] for line in map(bytes.strip, lines) if line.startswith((b"v ", b"v\t"))]
        return np.array(rows, dtype=np.float64).reshape(-1, 3)
    columns, length = _ply_element(mesh, "vertex")
    if {"x", "y", "z"} <= set(columns):
        return np.column_stack([np.asarray(columns[axis], dtype=np.float64).reshape(length) for axis in "xyz"])
    return np.array(mesh.vertices, dtype=np.float64)


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
        match = re.search(pattern, stream.read(4096).decode("latin-1"))
    return int(match.group(1)) if match else None


def _check_finite(file: Path, mesh: Any) -> None:
    """Refuse coordinates of faces that are no finite numbers; trimesh would leave out such faces in silence."""
    faces = np.asarray(mesh.faces)
    places = np.array(mesh.vertices, dtype=np.float64)
    finite = np.array(np.isfinite(places).all(axis=1))
    wrong = ~finite[faces].all(axis=1)
    if wrong.any():
        face = int(wrong.argmax())
        place = places[next(corner for corner in faces[face] if not finite[corner])].tolist()
        raise FileFormatError(
            f"{file}: coordinates must be finite numbers, got a vertex at {place} ({int(wrong.sum())} of {len(faces)} "
            f"faces have such a corner, the first is face {face}). Repair the file."
        )


def _drop_degenerate(mesh: Any, whole: NDArray[np.bool_], file: Path) -> None:
    """Leave out faces without area, which have no normal and share no whole edge, and say how many."""
    if whole.all():
        return
    if not whole.any():
        raise InvalidGraphError(f"{file}: every face is degenerate; its coordinates may be out of range.")
    message = f"{file.name}: {int((~whole).sum())} of {len(whole)} faces have no area and are left out."
    warnings.warn(DegenerateFacesWarning(message), stacklevel=4)
    mesh.update_faces(whole)
