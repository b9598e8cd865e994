"""Readers of fields by the ending of the file, and of roads with sensors."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import graphs
from graphs.builders.mesh_files import MESH_SUFFIXES
from graphs.builders.road_files import missing_property, with_target
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields.field import Field, warn_of_components
from rfgp.fields.meshes import read_mesh_field
from rfgp.messages import did_you_mean
from rfgp.tables import TABLE_SUFFIXES

ROAD_SUFFIXES = (".rda", ".geojson", ".json")
FIELD_SUFFIXES = (*MESH_SUFFIXES, *ROAD_SUFFIXES)


def read_field(path: str | Path, target: str = "value", metric: str | None = None) -> Field:
    """Read a mesh with the z component of its face normals, or roads with sensors.

    Args:
        path: The file of a mesh or of roads.
        target: For roads, the property of sensors with the measurements.
        metric: For roads, "haversine" or "euclidean". If None, that of the file.

    Returns:
        The field.

    Raises:
        InvalidArgumentError: If it is not a path, or the ending of the file's name is unknown.
        FileFormatError: If the file is missing, empty or of another format.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     read_field(f"{folder}/sphere.ply").on_faces
        True
    """
    if not isinstance(path, str | Path):
        raise InvalidArgumentError(f"path must be the path of a file, got {type(path).__name__}. Use rfgp.MeshGP.")
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix in MESH_SUFFIXES:
        return read_mesh_field(file)
    if suffix in ROAD_SUFFIXES:
        return read_road_field(file, target, metric)
    known = ", ".join((*TABLE_SUFFIXES, *FIELD_SUFFIXES))
    raise InvalidArgumentError(f"The ending of path must be one of {known}, got {file.name}.")


def read_road_field(
    path: str | Path,
    target: str = "value",
    metric: str | None = None,
    min_length: float = 0.0,
    snap: float = 0.0,
    *,
    duplicates: str = "parallel",
    within: float | None = None,
    skip: bool = False,
) -> Field:
    """Read roads with sensors.

    Sensors without a value are nodes without observation. Sensors at one position share a node, labeled by the number
    of the position, with one observation each.

    Args:
        path: An R data file or GeoJSON, see `graphs.read_roads`.
        target: For GeoJSON, the property with the values of the sensors.
        metric: "haversine" for degrees, or "euclidean" for coordinates in a plane. If None, it follows from the `crs`
            of the file.
        min_length: The smallest length of a road segment, in mean lengths. See `graphs.Graph.from_roads`.
        snap: The largest distance at which points of roads meet, in meters or the units of the plane. See
            `graphs.Graph.from_roads`.
        duplicates: The treatment of repeated edges of roads: "parallel" or "merge".
        within: For GeoJSON, the largest distance of a sensor without a position from the nearest road, in meters or the
            units of the plane. If None, 500 m on the globe, and a tenth of the diagonal of the bounding box of the
            roads in a plane.
        skip: For GeoJSON, whether to leave out other features with a warning. See `graphs.read_roads`.

    Returns:
        The field.

    Raises:
        FileFormatError: If the file is missing, empty or of another format.
        InvalidGraphError: If roads or sensors do not form a graph.
        DataError: If no sensor has a value.

    Warns:
        graphs.DisconnectedWarning: If the roads are disconnected.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> field.graph, len(field.values)
        (Graph(241 nodes, 314 edges), 120)
    """
    options: dict[str, Any] = {"snap": snap, "duplicates": duplicates, "within": within, "skip": skip}
    return read_road_fields(path, (target,), metric, min_length, **options)[target]


def read_road_fields(
    path: str | Path,
    targets: Sequence[str],
    metric: str | None = None,
    min_length: float = 0.0,
    snap: float = 0.0,
    *,
    duplicates: str = "parallel",
    within: float | None = None,
    skip: bool = False,
    group: str | None = None,
    columns: Sequence[str] = (),
) -> dict[str, Field]:
    """Read roads and one field for each of several properties of sensors.

    The file is read once.

    Args:
        path: The file, as for `read_road_field`.
        targets: The properties.
        metric: As for `read_road_field`.
        min_length: As for `read_road_field`.
        snap: As for `read_road_field`.
        duplicates: As for `read_road_field`.
        within: As for `read_road_field`.
        skip: As for `read_road_field`.
        group: A property of the sensors, such as an operator, whose groups are held out together. If None, groups are
            positions.
        columns: Properties of the roads, such as a speed limit, that are further inputs.

    Returns:
        The fields by target.

    Raises:
        InvalidArgumentError: If there are no targets.
        DataError: If no sensor has a value of a target, or a road does not have a further input.

    Examples:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> from rfgp import fields
        >>> road = {"type": "LineString", "coordinates": [[8.0, 50.0], [8.1, 50.0]]}
        >>> sensor = {"type": "Point", "coordinates": [8.05, 50.0]}
        >>> features = [{"type": "Feature", "geometry": road, "properties": {}}]
        >>> features += [{"type": "Feature", "geometry": sensor, "properties": {"speed": 30, "noise": 60}}]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "roads.geojson"
        ...     _ = file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        ...     found = fields.read_road_fields(file, ["speed", "noise"])
        >>> {name: field.values.tolist() for name, field in found.items()}
        {'speed': [30.0], 'noise': [60.0]}
    """
    if not targets:
        raise InvalidArgumentError("targets must name at least one property, got none.")
    roads = graphs.read_roads(path, targets[0], metric, within=within, skip=skip)
    roads = roads._replace(snap=snap, duplicates=duplicates)
    edges, fractions, position_of_sensor = roads.sensor_positions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphs.DisconnectedWarning)  # the warning of the field says more
        graph = graphs.Graph.from_roads(
            roads.lines,
            edges,
            fractions,
            metric=roads.metric,
            min_length=min_length,
            snap=snap,
            duplicates=duplicates,
        )
    is_geojson = Path(path).suffix.lower() != ".rda"
    fields = {}
    for target in dict.fromkeys(targets):
        with_values = with_target(roads, target, path, skip) if is_geojson and target != targets[0] else roads
        known, quantity = np.isfinite(with_values.values), target if is_geojson else "y"
        if not known.any():
            none = "there are no sensors." if len(known) == 0 else f"no sensor has a number as its {quantity!r}."
            problem = missing_property(with_values.properties, target) or none
            raise DataError(f"{path}: {problem} There is nothing to interpolate.")
        labels = np.array([f"sensor-{i}" for i in position_of_sensor[known]], dtype=object)
        kept: dict[str, Any] = {}
        if group is not None:
            groups = _property_of_each("sensor", with_values.properties, group, len(known), path)
            kept = {"groups": np.array([str(value) for value in groups])[known], "group_name": group}
        kept |= {"roads": with_values, "columns": {name: _road_column(roads, name, path) for name in columns}}
        fields[target] = Field(graph, labels, with_values.values[known], quantity, 250 / 325, **kept)
    warn_of_components(next(iter(fields.values())))
    return fields


def _road_column(roads: graphs.Roads, name: str, path: str | Path) -> NDArray[Any]:
    """Return a property (R,) of roads: numbers, also if they are written as texts, or else texts."""
    values = _property_of_each("road", roads.road_properties, name, len(roads.lines), path)
    try:
        return np.array([float(value) for value in values])
    except (TypeError, ValueError):
        return np.array([str(value) for value in values], dtype=object)


def _property_of_each(
    thing: str, properties: Sequence[Mapping[str, Any]], name: str, count: int, path: str | Path
) -> list[Any]:
    """Return a property of each of some roads or sensors.

    Raises:
        DataError: If one does not have it.
    """
    values = [of_one.get(name) for of_one in properties] or [None] * count
    if None in values:
        known = list(dict.fromkeys(key for of_one in properties for key in of_one))
        raise DataError(
            f"{path}: each {thing} must have the property {name!r}, got none for {values.count(None):,} of {count:,} "
            f"{thing}s, the first with number {values.index(None)}. Add it to the file, or leave it out."
            f"{did_you_mean(name, known)}"
        )
    return values
