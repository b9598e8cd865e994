"""Triangle meshes of simulations, .vtk, .vtu and .msh, through meshio (`pip install 'rfgp[mesh]'`)."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.checks import one_line
from graphs.errors import FileFormatError, InvalidGraphError, requires_extra

Floats = NDArray[np.float64]

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
        >>> from graphs.builders.meshio_files import read_meshio
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
