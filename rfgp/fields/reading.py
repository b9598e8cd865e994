"""From files to fields by the ending of their names, and roads with sensors."""

import warnings
from pathlib import Path

import numpy as np

import graphs
from graphs.builders.geojson import missing_property
from graphs.builders.mesh_files import MESH_SUFFIXES
from graphs.builders.road_files import FARTHEST_SENSOR
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields.field import Field, warn_of_parts
from rfgp.fields.meshes import read_mesh_field
from rfgp.tables import TABLE_SUFFIXES

ROAD_SUFFIXES = (".rda", ".geojson", ".json")
FIELD_SUFFIXES = (*MESH_SUFFIXES, *ROAD_SUFFIXES)


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
