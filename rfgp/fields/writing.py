"""Writers of fitted fields: colored meshes, tables of nodes and GeoJSON. Files are written atomically."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import graphs
from graphs.builders.roads import RoadSegment
from rfgp.errors import InvalidArgumentError, requires_extra
from rfgp.fields.field import Field, check_field
from rfgp.fields.processes import FIGURES, NodePosterior
from rfgp.files import write_atomically
from rfgp.palette import COLOR_MAPS, color_range


def write_mesh(folder: str | Path, field: Field, posterior: NodePosterior) -> list[Path]:
    """Write the mean and the standard deviation as colored meshes.

    The files are mean.ply, sd.ply, mean.glb and sd.glb. The PLY files also have mean, sd, observed_sd, low and high as
    properties of faces or vertices.

    Args:
        folder: The folder of the files.
        field: A field on a mesh.
        posterior: The posterior at the nodes of the field.

    Returns:
        The four paths.

    Raises:
        InvalidArgumentError: If the field is not on a mesh.
        OSError: If the folder cannot be written.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> import rfgp
        >>> from rfgp import fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     field = fields.read_mesh_field(f"{folder}/sphere.ply")
        ...     gp = rfgp.GraphGP(field.graph, features="exact").condition(list(field.nodes), field.values)
        ...     paths = fields.write_mesh(folder, field, fields.posterior_at_nodes(gp, field))
        >>> [path.name for path in paths]
        ['mean.ply', 'mean.glb', 'sd.ply', 'sd.glb']
    """
    if check_field(field).mesh is None:
        raise InvalidArgumentError("A field must be on a mesh for colored meshes, got one on roads. Use write_roads.")
    out = []
    for name, values in (("mean", posterior.mean), ("sd", posterior.std)):
        colors = _colors(values, COLOR_MAPS[name])
        with_figures = _colored(field, colors, shares_vertices=True)
        attributes = with_figures.face_attributes if field.on_faces else with_figures.vertex_attributes
        attributes.update(zip(FIGURES, posterior.figures, strict=True))
        ply = with_figures.export(file_type="ply", include_attributes=True)
        glb = _colored(field, colors, shares_vertices=False).export(file_type="glb")
        for suffix, content in (("ply", ply), ("glb", glb)):
            out.append(Path(folder) / f"{name}.{suffix}")
            write_atomically(out[-1], bytes(content))
    return out


def write_nodes(path: str | Path, field: Field, posterior: NodePosterior) -> Path:
    """Write a CSV file with one row per node: label, position, observed value and predictions.

    Predictions are the mean and standard deviation of the field, and the standard deviation and 95 % interval of an
    observation. For a mesh from a file, the rows are the faces or vertices of the mesh file, by number. Those that are
    not nodes of the field, such as vertices without a face, have only their number.

    Args:
        path: The file.
        field: The field.
        posterior: The posterior at the nodes of the field.

    Returns:
        The path of the file.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> import rfgp
        >>> from rfgp import fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     field = fields.read_mesh_field(f"{folder}/sphere.ply")
        ...     gp = rfgp.GraphGP(field.graph, features="exact").condition(list(field.nodes), field.values)
        ...     file = fields.write_nodes(f"{folder}/nodes.csv", field, fields.posterior_at_nodes(gp, field))
        ...     len(file.read_text().splitlines())
        81
    """
    axes: tuple[str, ...] = ("x", "y", "z") if check_field(field).mesh is not None else ("longitude", "latitude")
    if field.roads is not None and field.roads.metric == "euclidean":
        axes = ("x", "y")
    positions, count = field.graph.index(field.nodes), field.graph.num_nodes
    totals, counts = np.bincount(positions, field.values, count), np.bincount(positions, minlength=count)
    pairs = zip(totals.tolist(), counts.tolist(), strict=True)
    observed = [total / number if number else "" for total, number in pairs]
    columns = zip(field.coordinates.tolist(), observed, posterior.figures.T.tolist(), strict=True)
    cells = [[*point, value, *figures] for point, value, figures in columns]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", *axes, "observed", *FIGURES])
    nodes, missing = field.node_of_element, [""] * (len(axes) + 1 + len(FIGURES))
    for label, node in zip(field.labels, range(count), strict=True) if nodes is None else enumerate(nodes):
        writer.writerow([label, *(cells[node] if node >= 0 else missing)])
    write_atomically(Path(path), text.getvalue().encode())
    return Path(path)


RESULTS = tuple(f"gp_{name}" for name in FIGURES)
"""The properties that `write_roads` adds."""


def write_roads(path: str | Path, field: Field, posterior: NodePosterior) -> Path:
    """Write GeoJSON with predictions for all road segments and all sensors.

    `gp_mean` and `gp_sd` are mean and standard deviation of the field. `gp_observed_sd`, `gp_low` and `gp_high` are the
    standard deviation and the 95 % interval of an observation.

    A segment lies between two neighboring nodes (crossings or sensors), and its values are averages of its ends. It
    has the properties of its road, and its length as `length_m`, or as `piece_length` if the unit may not be meters.
    `source_edge` is the number of the road in the file, and `source_id` its id, if any. The segment lies between the
    fractions `source_begin` and `source_end` of the road.

    Sensors keep their properties and ids. Their `edge` and `fraction` become `source_edge` and `source_fraction`. If
    the file is read again, a sensor is assigned to the nearest segment. Parallel copies of a street that are cut at
    sensors then meet at more points. Existing properties with these names are replaced, and numbers out of range become
    null. The file keeps its `name` and `crs`.

    Args:
        path: The file.
        field: A field on roads.
        posterior: The posterior at the nodes of the field.

    Returns:
        The path of the file.

    Raises:
        InvalidArgumentError: If the field is not on roads, or its value has the name of a result.
        OSError: If the folder cannot be written.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        ...     gp = fields.whittle_matern(field, alpha=1).condition(field.observed_positions, field.values)
        ...     fields.write_roads(f"{folder}/predicted.geojson", field, fields.posterior_at_nodes(gp, field)).name
        'predicted.geojson'
    """
    segments = check_field(field).segments()
    assert field.roads is not None
    roads, (_, _, position_of_sensor) = field.roads, field.roads.sensor_positions()
    if field.quantity in RESULTS:
        raise InvalidArgumentError(
            f"The values must not have the name of a result, got {field.quantity!r}. Rename them."
        )
    rows = []
    for segment, numbers in zip(segments, posterior.along(segments).T.tolist(), strict=True):
        figures = dict(zip(RESULTS, numbers, strict=True))
        rows.append(_feature("LineString", segment.shape.tolist(), {**_road_properties(roads, segment), **figures}))
    first = field.graph.num_nodes - (int(position_of_sensor.max()) + 1 if len(position_of_sensor) else 0)
    for i, value in enumerate(roads.values.tolist()):
        measurement = {field.quantity: value if np.isfinite(value) else None}
        sensor_properties = dict(roads.properties[i]) if roads.properties else measurement
        renamed = {_SOURCES[name]: sensor_properties.pop(name) for name in _SOURCES if name in sensor_properties}
        node = first + int(position_of_sensor[i])
        figures = dict(zip(RESULTS, posterior.figures[:, node].tolist(), strict=True))
        about = {**sensor_properties, **renamed, **figures}
        rows.append(_feature("Point", field.coordinates[node].tolist(), about))
        if roads.sensor_ids and roads.sensor_ids[i] is not None:
            rows[-1]["id"] = roads.sensor_ids[i]
    text = ",\n".join(json.dumps(_finite(row), allow_nan=False) for row in rows)
    members = json.dumps({"type": "FeatureCollection", **_finite(roads.metadata)}, allow_nan=False).removesuffix("}")
    write_atomically(Path(path), f'{members}, "features": [\n{text}\n]}}\n'.encode())
    return Path(path)


_SOURCES = {"edge": "source_edge", "fraction": "source_fraction"}
_LENGTHS = ("length_m", "piece_length")
"""The property with the length of a segment, in meters or in an unknown unit."""


def _road_properties(roads: graphs.Roads, segment: RoadSegment) -> dict[str, Any]:
    """Return the properties of a road segment, starting with those of its road."""
    given = roads.road_properties[segment.road] if roads.road_properties else {}
    properties = {key: value for key, value in given.items() if key not in _LENGTHS}
    name = roads.road_ids[segment.road] if roads.road_ids else None
    ids = {} if name is None else {"source_id": name}
    location = {"source_edge": segment.road, "source_begin": segment.start, "source_end": segment.end}
    if roads.unit == "m":
        return {**properties, **ids, **location, "length_m": round(segment.length, 3)}
    return {**properties, **ids, **location, "piece_length": float(f"{segment.length:.9g}")}


def _finite(value: Any) -> Any:
    """Return a value for JSON, with null instead of numbers that are not finite."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list) else value


def _feature(kind: str, coordinates: Any, properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Feature", "properties": properties, "geometry": {"type": kind, "coordinates": coordinates}}


def _colors(values: NDArray[np.float64], name: str) -> NDArray[np.uint8]:  # (N,) -> (N, 4)
    with requires_extra("plot"):
        from matplotlib import colormaps
        from matplotlib.colors import Normalize

    return np.asarray(colormaps[name](Normalize(*color_range(values), clip=True)(values), bytes=True), dtype=np.uint8)


def _colored(field: Field, colors: NDArray[np.uint8], shares_vertices: bool) -> Any:
    """Return a colored mesh, whose faces with colors of their own may not share vertices, as in glTF."""
    with requires_extra("mesh"):
        import trimesh

    vertices, faces, kind = field.mesh.vertices, field.mesh.faces, "face" if field.on_faces else "vertex"
    if field.on_faces and not shares_vertices:
        vertices, colors, kind = np.asarray(field.mesh.triangles).reshape(-1, 3), np.repeat(colors, 3, axis=0), "vertex"
        faces = np.arange(len(vertices)).reshape(-1, 3)
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    setattr(mesh.visual, f"{kind}_colors", colors)
    return mesh
