"""Triangles of a mesh: checks, angles and areas."""

import io
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.builders.edges import scale_to_unit
from graphs.builders.files import check_file
from graphs.checks import one_line
from graphs.errors import DegenerateFacesWarning, FileFormatError, GraphError, InvalidGraphError, requires_extra, warn

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_FLAT = 1e-10
"""The ratio of height and longest side below which a triangle has no area."""


class Angles(NamedTuple):
    """Angles and areas of triangles.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.mesh_files import angles
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
        >>> from graphs.builders.mesh_files import angles
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


# --- Triangle meshes of simulations, .vtk, .vtu and .msh, through meshio (`pip install 'rfgp[mesh]'`) ----------------


MESHIO_SUFFIXES = (".vtk", ".vtu", ".msh")
"""The suffixes of files that meshio reads."""


def read_meshio(file: Path) -> tuple[Any, dict[str, Floats], dict[str, Floats]]:
    """Return a file's triangles, and properties of points (K,) and triangles (L,).

    The mesh is a `trimesh.Trimesh`. Quadrilaterals are split in two, and the metadata of the mesh then has "polygons".
    Other cells, such as tetrahedra, and vector properties are ignored.

    Args:
        file: A .vtk, .vtu or .msh file.

    Raises:
        MissingDependencyError: If meshio is not installed.
        FileFormatError: If meshio cannot read the file.
        InvalidGraphError: If there are no triangles or quadrilaterals.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import meshio
        >>> from graphs.builders.mesh_files import read_meshio
        >>> path = Path(tempfile.mkdtemp()) / "triangle.vtk"
        >>> meshio.write_points_cells(path, [[0.0, 0, 0], [1, 0, 0], [0, 1, 0]], [("triangle", [[0, 1, 2]])])
        >>> read_meshio(path)[0].faces.tolist()
        [[0, 1, 2]]
    """
    with requires_extra("mesh"):
        import meshio
        import trimesh

    reader = {".vtk": meshio.vtk.read, ".vtu": meshio.vtu.read, ".msh": meshio.gmsh.read}[file.suffix.lower()]
    try:
        content = reader(file)  # meshio.read would end the process where no reader fits
    except Exception as error:
        remedy = "Save it in binary form, or as .vtu or .ply"
        if "POLYDATA" in str(error):
            remedy = "Save it as an unstructured grid, in pyvista mesh.cast_to_unstructured_grid().save('mesh.vtu')"
        raise FileFormatError(
            f"{file} could not be read by meshio: {one_line(error).rstrip('.')}. {remedy}."
        ) from error
    chosen = [i for i, block in enumerate(content.cells) if block.type in ("triangle", "quad")]
    if not chosen:
        kinds = ", ".join(sorted({block.type for block in content.cells})) or "nothing"
        raise InvalidGraphError(f"{file} must hold triangles or quadrilaterals, got {kinds}. Extract its surface.")
    faces = np.concatenate([_triangles(np.asarray(content.cells[i].data)) for i in chosen])
    points = np.asarray(content.points, dtype=np.float64)
    vertices = np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    mesh.metadata["polygons"] = any(content.cells[i].type == "quad" for i in chosen)
    of_faces = {
        name: np.concatenate([np.asarray(blocks[i]) for i in chosen]) for name, blocks in content.cell_data.items()
    }
    cells = sum(len(content.cells[i].data) for i in chosen)
    return mesh, _numbers(content.point_data, len(points)), _numbers(of_faces, cells)


def _triangles(
    corners: NDArray[Any],  # (c, 3) or (c, 4)
) -> NDArray[np.int64]:
    """Return triangles (t, 3); quadrilaterals are split along a diagonal."""
    if corners.shape[1] == 3:
        return corners.astype(np.int64)
    return np.stack([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]], axis=1).reshape(-1, 3).astype(np.int64)


def _numbers(columns: Any, count: int) -> dict[str, Floats]:
    """Return the columns with one number per point or cell."""
    arrays = {str(name): np.asarray(values) for name, values in columns.items()}
    return {
        name: values.reshape(-1).astype(np.float64)
        for name, values in arrays.items()
        if values.dtype.kind in "iuf" and values.size == count
    }


# --- Triangle meshes from files: merged vertices, and the numbering and properties of the file -----------------------


MESH_SUFFIXES = (".stl", ".ply", ".obj", ".off", ".glb", *MESHIO_SUFFIXES)
"""The suffixes of files of meshes."""
_MERGED = 2e-8
"""The largest distance of a vertex of a file from the merged one. trimesh rounds to 1e-8."""
_GEOMETRY = {"x", "y", "z", "nx", "ny", "nz", "s", "t", "u", "v", "texture_u", "texture_v", "texcoord", "texnumber"}
_GEOMETRY |= {"red", "green", "blue", "alpha", "diffuse_red", "diffuse_green", "diffuse_blue", "flags"}
"""Properties of a PLY file that are coordinates, normals, textures or colors."""


@dataclass(frozen=True, eq=False)
class MeshFile:
    r"""A mesh with the numbering and the properties of its file.

    Attributes:
        mesh: A `trimesh.Trimesh` with coincident vertices merged, without faces that have no area and join no others.
        file_vertices: The vertices (K, 3) in the order of the file.
        faces: The face (L,) of the mesh for each face of the file, -1 if it was dropped. None if the file has polygons,
            which are several triangles.
        of_vertices: Properties of the vertices (K,) of the file, by name.
        of_faces: Properties of the faces (L,) of the file, by name.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from graphs.builders.mesh_files import read_mesh_file
        >>> path = Path(tempfile.mkdtemp()) / "triangle.off"
        >>> _ = path.write_text("OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")
        >>> read_mesh_file(path).vertices.tolist()
        [0, 1, 2]
    """

    mesh: Any
    file_vertices: Floats
    faces: Integers | None
    of_vertices: Mapping[str, Floats] = field(default_factory=dict)
    of_faces: Mapping[str, Floats] = field(default_factory=dict)

    @cached_property
    def vertices(self) -> Integers:
        """The mesh's vertex (K,) for each vertex of the file, -1 if on no face."""
        from scipy.spatial import KDTree

        finite = np.array(np.isfinite(self.file_vertices).all(axis=1))
        tree = KDTree(np.asarray(self.mesh.vertices, dtype=np.float64))
        distances, nearest = tree.query(
            np.where(finite[:, None], self.file_vertices, 0.0), distance_upper_bound=_MERGED
        )
        return np.where(finite & np.isfinite(distances), nearest, -1).astype(np.int64)


def load_mesh(path: str | Path) -> Any:
    r"""Load a triangle mesh from a file.

    Coincident vertices are merged, since STL repeats them for each face. Faces without area are dropped, unless they
    share two sides with others, which would be cut apart.

    Args:
        path: A file of the format .stl, .ply, .obj, .off or .glb, or .vtk, .vtu and .msh through meshio.

    Returns:
        A `trimesh.Trimesh`.

    Raises:
        FileFormatError: If the file is missing, empty or not a mesh of a known format, or coordinates are not finite.
        InvalidGraphError: If the file holds no faces.
        MissingDependencyError: If a .vtk, .vtu or .msh file needs meshio: pip install 'rfgp[mesh]'.

    Warns:
        DegenerateFacesWarning: If faces were dropped.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import graphs
        >>> path = Path(tempfile.mkdtemp()) / "triangle.off"
        >>> _ = path.write_text("OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")
        >>> len(graphs.load_mesh(path).vertices)
        3
    """
    return read_mesh_file(path).mesh


def read_mesh_file(path: str | Path) -> MeshFile:
    r"""Read a mesh like `load_mesh`, with the numbering and the properties of the file.

    Args:
        path: The file, as for `load_mesh`.

    Returns:
        The mesh, with the vertices, faces and properties of the file.

    Raises:
        FileFormatError: If the file is missing, empty, truncated or not a mesh of a known format, or coordinates are
            not finite.
        InvalidGraphError: If the file holds no faces.
        MissingDependencyError: If a .vtk, .vtu or .msh file needs meshio: pip install 'rfgp[mesh]'.

    Warns:
        DegenerateFacesWarning: If faces were dropped.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from graphs.builders.mesh_files import read_mesh_file
        >>> path = Path(tempfile.mkdtemp()) / "triangle.off"
        >>> _ = path.write_text("OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")
        >>> read_mesh_file(path).faces.tolist()
        [0]
    """
    file = check_file(
        path, "a mesh", xml=Path(path).suffix.lower() == ".vtu" if isinstance(path, str | Path) else False
    )
    suffix = file.suffix.lower()
    if suffix not in MESH_SUFFIXES:
        raise FileFormatError(
            f"A mesh must be a file of {', '.join(MESH_SUFFIXES)}, got {file.name}. Save it as .ply, for example."
        )
    try:
        mesh, of_vertices, of_faces = read_meshio(file) if suffix in MESHIO_SUFFIXES else _read_trimesh(file)
    except GraphError:
        raise
    except Exception as error:  # the parsers raise whatever their bytes lead them to
        raise FileFormatError(f"{file} could not be read as a mesh: {one_line(error)}") from error
    if len(getattr(mesh, "faces", ())) == 0:
        raise InvalidGraphError(f"{file} must hold faces, got no faces. It may be truncated.")
    declared, stored = declared_faces(file), len(mesh.faces)
    if declared is not None and stored < declared:
        raise FileFormatError(
            f"{file} must hold the {declared} faces that it declares, got {stored}. It is truncated, or faces "
            "have fewer than 3 corners."
        )
    try:
        file_vertices = _file_vertices(file, mesh)
        _check_finite(file, mesh)
        mesh.merge_vertices(merge_tex=True, merge_norm=True)
        whole = _joins_or_has_area(file, mesh)
    except GraphError:
        raise
    except Exception as error:  # faces of vertices that there are not
        raise FileFormatError(f"{file} could not be read as a mesh: {one_line(error)}") from error
    _drop_degenerate(mesh, whole, file)
    has_polygons = (declared is not None and declared != stored) or mesh.metadata.get("polygons", False)
    faces = None if has_polygons else np.where(whole, np.cumsum(whole) - 1, -1)
    return MeshFile(mesh, file_vertices, faces, of_vertices, of_faces)


def _read_trimesh(file: Path) -> tuple[Any, dict[str, Floats], dict[str, Floats]]:
    """Return the mesh as trimesh reads it, unmerged, and the properties of a PLY file."""
    with requires_extra("mesh"):
        import trimesh

    content = io.BytesIO(file.read_bytes())  # without a path: files that this one names are not read
    kind = file.suffix[1:].lower()
    with _without_last_resort():
        mesh = trimesh.load(content, file_type=kind, force="mesh", skip_materials=True, process=False)
    return mesh, _ply_properties(mesh, "vertex"), _ply_properties(mesh, "face")


@contextmanager
def _without_last_resort() -> Iterator[None]:
    """Keep trimesh from logging tracebacks to standard error if there is no handler."""
    nowhere = logging.NullHandler()
    logging.getLogger("trimesh").addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger("trimesh").removeHandler(nowhere)


def _ply_element(mesh: Any, kind: str) -> tuple[dict[str, Any], int]:
    """Return the columns of an element of a PLY file by name, and its length."""
    element = (getattr(mesh, "metadata", None) or {}).get("_ply_raw", {}).get(kind)
    if element is None or not len(element.get("data", ())):
        return {}, 0
    data = element["data"]
    names = data.dtype.names if isinstance(data, np.ndarray) else data
    return {name: data[name] for name in names or ()}, int(element["length"])


def _ply_properties(mesh: Any, kind: str) -> dict[str, Floats]:
    """Return the numeric properties of the vertices or faces of a PLY file."""
    columns, length = _ply_element(mesh, kind)
    return _numbers({name: column for name, column in columns.items() if name.lower() not in _GEOMETRY}, length)


def _file_vertices(file: Path, mesh: Any) -> Floats:
    """Return the vertices (K, 3) in the file's order, which trimesh may change."""
    if file.suffix.lower() == ".obj":
        lines = file.read_bytes().splitlines()
        rows = [line.split()[1:4] for line in map(bytes.strip, lines) if line.startswith((b"v ", b"v\t"))]
        return np.array(rows, dtype=np.float64).reshape(-1, 3)
    columns, length = _ply_element(mesh, "vertex")
    if {"x", "y", "z"} <= set(columns):
        return np.column_stack([np.asarray(columns[axis], dtype=np.float64).reshape(length) for axis in "xyz"])
    return np.array(mesh.vertices, dtype=np.float64)


def declared_faces(path: str | Path) -> int | None:
    r"""Return the number of faces that a PLY, OFF or OBJ file declares, or None.

    Args:
        path: The file.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from graphs.builders.mesh_files import declared_faces
        >>> path = Path(tempfile.mkdtemp()) / "triangle.obj"
        >>> _ = path.write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
        >>> declared_faces(path)
        1
    """
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
    """Check that corners of faces are finite; trimesh drops other faces."""
    faces = np.asarray(mesh.faces)
    vertices = np.array(mesh.vertices, dtype=np.float64)
    finite = np.array(np.isfinite(vertices).all(axis=1))
    wrong = ~finite[faces].all(axis=1)
    if wrong.any():
        face = int(wrong.argmax())
        vertex = vertices[next(corner for corner in faces[face] if not finite[corner])].tolist()
        raise FileFormatError(
            f"{file}: coordinates must be finite numbers, got a vertex at {vertex}. {int(wrong.sum())} of {len(faces)} "
            f"faces have such a corner, first face {face}. Repair the file."
        )


def _joins_or_has_area(file: Path, mesh: Any) -> NDArray[np.bool_]:
    """Return a mask (F,) of faces that have an area, or share two sides with others.

    The surface would be cut without the latter, such as a sliver beside a vertex on a side.

    Raises:
        InvalidGraphError: If no face has an area.
    """
    faces = np.array(mesh.faces, dtype=np.int64)
    flat = angles(np.nan_to_num(np.array(mesh.vertices, dtype=np.float64)), faces).flat
    if flat.all():
        raise InvalidGraphError(f"{file}: a face must have an area, got only degenerate ones. Check the coordinates.")
    ends = np.roll(faces, -1, axis=1)
    keys = np.minimum(faces, ends) * len(mesh.vertices) + np.maximum(faces, ends)
    is_triangle = (faces != ends).all(axis=1)
    sides, counts = np.unique(keys[is_triangle], return_counts=True)
    is_shared = np.isin(keys, sides[counts > 1])
    return np.asarray(~flat | (is_triangle & (is_shared.sum(axis=1) > 1)))


def _drop_degenerate(mesh: Any, whole: NDArray[np.bool_], file: Path) -> None:
    """Drop faces without area, and warn with their number."""
    if whole.all():
        return
    message = f"{file.name}: {int((~whole).sum())} of {len(whole)} faces have no area and are dropped."
    warn(DegenerateFacesWarning(message))
    mesh.update_faces(whole)
