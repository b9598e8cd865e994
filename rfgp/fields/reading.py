"""From files to fields: a mesh with values, or roads with sensors."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

import graphs
from graphs.builders.geojson import missing_property
from graphs.builders.mesh import MESH_SUFFIXES, declared_faces
from graphs.builders.road_files import FARTHEST_SENSOR
from graphs.builders.triangles import angles
from graphs.precisions.location import Locator
from graphs.precisions.mesh import FARTHEST, too_far
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields.field import Field, warn_of_parts
from rfgp.tables import TABLE_SUFFIXES, Table, read_table

ROAD_SUFFIXES = (".rda", ".geojson", ".json")
FIELD_SUFFIXES = (*MESH_SUFFIXES, *ROAD_SUFFIXES)

_COUNTED = "Rows count from 0, after the header."


def read_field(path: str | Path, value: str = "value", metric: str | None = None) -> Field:
    """Read a mesh, with the z component of its face normals as the field, or roads with their sensors.

    `value` and `metric` are those of `read_road_field`.

    Raises:
        InvalidArgumentError: the ending of the file's name is not known.
        FileFormatError: the file is missing, empty or of another format.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix in MESH_SUFFIXES:
        return read_mesh_field(file)
    if suffix in ROAD_SUFFIXES:
        return read_road_field(file, value, metric)
    known = ", ".join((*TABLE_SUFFIXES, *FIELD_SUFFIXES))
    raise InvalidArgumentError(f"{file.name}: what it holds is not clear from its ending; known are {known}.")


def read_road_field(
    path: str | Path,
    value: str = "value",
    metric: str | None = None,
    min_length: float = 0.0,
    snap: float = 0.0,
    *,
    duplicates: str = "parallel",
    within: float = FARTHEST_SENSOR,
    skip: bool = False,
) -> Field:
    """Read roads with sensors; those without a value are nodes, but not observed.

    Sensors at one place are one node, labelled by the number of the place, observed as often as they are.

    Args:
        path: An R data file or GeoJSON, see `graphs.read_roads`.
        value: GeoJSON: the property that holds the sensors' values.
        metric: "haversine" for degrees, or "euclidean" for coordinates in a plane. If None, as the file's `crs` says.
        min_length: Shorter pieces of road count as this long, in mean lengths; see `graphs.Graph.from_roads`.
        snap: Points of roads at most this far apart meet, in metres or the units of the plane; see
            `graphs.Graph.from_roads`.
        duplicates: Stretches of road that repeat another: "parallel" roads, or "merge".
        within: GeoJSON: how far from a road a sensor may lie that names none, in metres or the units of the plane.
        skip: GeoJSON: whether to leave out what is neither road nor sensor, with a warning; see `graphs.read_roads`.

    Raises:
        FileFormatError: the file is missing, empty or of another format.
        InvalidGraphError: roads or sensors that make no graph.
        DataError: no sensor has a value.

    Warns:
        graphs.DisconnectedWarning: the roads fall into parts.
    """
    roads = graphs.read_roads(path, value, metric, within=within, skip=skip)
    roads = roads._replace(snap=snap, duplicates=duplicates)
    known, quantity = np.isfinite(roads.values), "y" if Path(path).suffix.lower() == ".rda" else value
    if not known.any():
        none = "there are no sensors." if len(known) == 0 else f"no sensor has a number as its {quantity!r}."
        raise DataError(f"{path}: {missing_property(roads.properties, value) or none} There is nothing to interpolate.")
    edges, fractions, place = roads.places()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphs.DisconnectedWarning)  # the field has a warning that says more
        graph = graphs.Graph.from_roads(
            roads.lines,
            edges,
            fractions,
            metric=roads.metric,
            min_length=min_length,
            snap=snap,
            duplicates=duplicates,
        )
    labels = np.array([f"sensor-{i}" for i in place[known]], dtype=object)
    return warn_of_parts(Field(graph, labels, roads.values[known], quantity, 250 / 325, roads=roads))


def read_mesh_field(
    path: str | Path,
    values: str | Path | None = None,
    *,
    weights: str = "unit",
    nodes: str | None = None,
    within: float | None = None,
    table_options: Mapping[str, Any] | None = None,
) -> Field:
    """Read a mesh and values on it.

    Args:
        path: The mesh.
        values: A table (CSV or Parquet) whose last column is the value and whose other columns say where:
            `face` or `vertex` (numbers from 0, as in the mesh's file), or `x`, `y`, `z` in the mesh's units (the
            nearest face, or vertex). None: the z component of the normal of every face, or vertex.
        weights: Of the edges, "unit", "edge-length" or, between vertices, "cotangent"; see
            `graphs.Graph.from_mesh`.
        nodes: Where the field lies, "faces" or "vertices"; None: as the table's columns say, else faces.
        within: How far from the surface a place may lie, in the mesh's units. If None, a tenth of the diagonal of the
            mesh's box, as for `rfgp.MeshGP`.
        table_options: Those of `rfgp.tables.read_table`.

    Raises:
        graphs.InvalidArgumentError: other weights or nodes, or "cotangent" for faces.
        DataError: the table has other columns, numbers that the mesh does not have, or places far from it.
        FileFormatError: the mesh is missing, empty or of another format.

    Warns:
        graphs.DisconnectedWarning: the mesh falls into parts.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", graphs.DegenerateFacesWarning)
        mesh = graphs.load_mesh(path)
    for entry in caught:
        warnings.warn(entry.message, stacklevel=2)
    table = None if values is None else read_table(values, **(table_options or {}))
    nodes = nodes or ("vertices" if table is not None and table.columns == ("vertex",) else "faces")
    graph = graphs.Graph.from_mesh(mesh, nodes=nodes, weights=weights)
    on_faces, places = nodes == "faces", None
    if table is None or values is None:
        normals = np.array((mesh.face_normals if on_faces else mesh.vertex_normals)[:, 2])
        quantity = f"z of the {'face' if on_faces else 'vertex'} normal"
        return warn_of_parts(Field(graph, np.arange(graph.num_nodes), normals, quantity, mesh=mesh, on_faces=on_faces))
    if set(table.columns) == {"x", "y", "z"}:
        places = table.X[:, [table.columns.index(axis) for axis in "xyz"]]
        found = _nearest(places, table.rows, mesh, on_faces, within, Path(values))
    elif table.columns == (("face",) if on_faces else ("vertex",)):
        renumbered = any(issubclass(entry.category, graphs.DegenerateFacesWarning) for entry in caught)
        _check_numbering(table.columns[0], renumbered, mesh, Path(path))
        found = _read_numbers(table, graph.num_nodes, Path(values))
    else:
        raise DataError(
            f"{values} has the columns {', '.join(table.columns)} before the value {table.target!r}; a field on a "
            f"mesh's {nodes} needs {'face' if on_faces else 'vertex'}, or x, y and z, and then the value."
        )
    field = Field(graph, found, table.y, table.target, mesh=mesh, on_faces=on_faces, exact_places=places)
    return warn_of_parts(field)


def _nearest(
    places: NDArray[np.float64],  # (n, 3)
    rows: NDArray[np.int64],  # (n,)
    mesh: Any,
    on_faces: bool,
    within: float | None,
    file: Path,
) -> NDArray[np.int64]:  # (n,)
    """Return the faces or vertices that are nearest to the places in the rows of a table.

    Raises:
        DataError: a place lies far from the surface.
    """
    vertices, faces = np.array(mesh.vertices, dtype=np.float64), np.array(mesh.faces, dtype=np.int64)
    whole = np.flatnonzero(~angles(vertices, faces).flat)
    found = Locator(vertices, faces[whole]).nearest(places)
    limit = FARTHEST * float(np.linalg.norm(np.ptp(mesh.vertices, axis=0))) if within is None else within
    worst = int(found.distances.argmax())
    if found.distances[worst] > limit:
        raise DataError(f"{file}: {too_far(int(rows[worst]), float(found.distances[worst]), limit)}")
    return whole[found.faces] if on_faces else np.asarray(KDTree(mesh.vertices).query(places)[1], dtype=np.int64)


def _check_numbering(kind: str, renumbered: bool, mesh: Any, file: Path) -> None:
    """Refuse numbers that do not mean in the file what they mean in the loaded mesh."""
    import trimesh

    if kind == "face" and renumbered:
        raise DataError(f"{file} has faces without area, so its face numbers are not clear; give x, y and z instead.")
    stored = declared_faces(file) if kind == "face" else None
    if stored is not None and stored != len(mesh.faces):
        raise DataError(
            f"{file} stores {stored} faces, which are {len(mesh.faces)} triangles, so its face numbers are not clear; "
            "give x, y and z instead."
        )
    if kind == "vertex":
        count = len(trimesh.load(file, force="mesh", process=False).vertices)
        if count != len(mesh.vertices):
            raise DataError(
                f"{file} stores {count} vertices, {len(mesh.vertices)} of them distinct, so its vertex numbers are not "
                "clear; give x, y and z instead."
            )


def _read_numbers(table: Table, count: int, file: Path) -> NDArray[np.int64]:
    numbers = table.X[:, 0]
    wrong = (numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= count)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{file}: row {table.rows[row]} names {table.columns[0]} {numbers[row]:g}; there are 0 to "
            f"{count - 1}. {_COUNTED}"
        )
    return numbers.astype(np.int64)
