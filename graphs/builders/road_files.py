"""Readers of roads with sensors: R data files and GeoJSON."""

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.builders.files import brief, check_file
from graphs.builders.roads import Roads, segment_lengths
from graphs.errors import FileFormatError

FARTHEST_SENSOR = 500.0
"""Metres from a road beyond which a sensor without a road of its own is refused."""

_END = 1e-3  # sensors at a crossing are put this fraction of the road away from it


def read_roads(path: str | Path, value: str = "value", metric: str = "haversine") -> Roads:
    """Read roads and sensors from an R data file (.rda) or GeoJSON (.geojson, .json).

    The R file holds one list with `edges` (line strings) and `data` (columns `y`, `.edge_number`
    counted from 1, `.distance_on_edge` as a fraction), as MetricGraph stores it. The GeoJSON is a
    FeatureCollection of LineStrings (MultiLineStrings count as several), longitude and latitude in degrees,
    and of Points, the sensors. A sensor's properties are `value` (null: nothing measured) and, where known, the
    number `edge` of its LineString (from 0) and the `fraction` of its length; a sensor without them is put on
    the nearest road, at most 500 metres away. Sensors that end up at one place share it.

    Args:
        path: The file.
        value: GeoJSON: the property that holds the sensors' values.
        metric: "haversine" for degrees, or "euclidean" for coordinates in a plane, in metres.

    Raises:
        FileFormatError: the file is missing, empty, or has another content.
    """
    file = check_file(path, "a road network", packed=Path(path).suffix.lower() == ".rda")
    try:
        return _read_rda(file, metric) if file.suffix.lower() == ".rda" else _read_geojson(file, value, metric)
    except FileFormatError:
        raise
    except Exception as error:  # the parsers raise whatever their bytes lead them to
        raise FileFormatError(
            f"{file} is not a road network that can be read: {type(error).__name__}, {brief(error)}"
        ) from error


def _read_rda(file: Path, metric: str) -> Roads:
    import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata names every R class that it has no constructor for
        content = next(iter(rdata.read_rda(file).values()))
    data = content["data"]
    lines = [np.asarray(line, dtype=np.float64) for line in content["edges"]["geometry"]]
    columns = (np.asarray(data[name], dtype=np.float64) for name in (".edge_number", ".distance_on_edge", "y"))
    edge, fraction, value = columns
    return Roads(lines, _whole(edge, file) - 1, fraction, value, metric=metric)


def _read_geojson(file: Path, value: str, metric: str) -> Roads:
    content = json.loads(file.read_text(encoding="utf-8"))
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list) or content.get("type") != "FeatureCollection":
        raise FileFormatError(f"{file} is not a GeoJSON FeatureCollection.")
    lines: list[NDArray[np.float64]] = []
    sensors: list[tuple[NDArray[np.float64], Mapping[str, Any]]] = []
    for i, feature in enumerate(features):
        kind, coordinates, properties = _read_feature(feature, i, file)
        if kind == "Point":
            sensors.append((_read_points([coordinates], i, file)[0], properties))
        elif kind == "LineString":
            lines.append(_read_points(coordinates, i, file))
        elif kind == "MultiLineString" and isinstance(coordinates, list):
            lines += [_read_points(part, i, file) for part in coordinates]
        else:
            raise FileFormatError(
                f"{file}: feature {i} is a {kind!r}; only LineString (roads) and Point (sensors) count."
            )
    if not lines:
        raise FileFormatError(f"{file} has no LineString. There are no roads.")
    segments = _Segments(lines, metric)
    places = [_place(sensor, i, segments, file) for i, sensor in enumerate(sensors)]
    values = np.array([_read_value(properties, value, i, file) for i, (_, properties) in enumerate(sensors)])
    edges, fractions = np.array(places, dtype=np.float64).reshape(-1, 2).T
    details = tuple(properties for _, properties in sensors)
    whole = _whole(edges, file) if len(edges) else np.zeros(0, np.int64)
    return Roads(lines, whole, fractions, values.reshape(-1), details, metric)


def _read_feature(feature: Any, index: int, file: Path) -> tuple[str, Any, Mapping[str, Any]]:
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    if not isinstance(geometry, dict) or "type" not in geometry:
        raise FileFormatError(f"{file}: feature {index} has no geometry.")
    properties = feature.get("properties")
    return str(geometry["type"]), geometry.get("coordinates"), properties if isinstance(properties, dict) else {}


def _read_points(coordinates: Any, index: int, file: Path) -> NDArray[np.float64]:  # (points, 2)
    try:
        points = np.array([[float(x) for x in point[:2]] for point in coordinates], dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{file}: feature {index} has coordinates that are no numbers.") from error
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise FileFormatError(f"{file}: feature {index} needs points of longitude and latitude, finite numbers.")
    return points


def _read_value(properties: Mapping[str, Any], name: str, index: int, file: Path) -> float:
    if name not in properties:
        names = ", ".join(map(repr, list(properties)[:8])) or "none"
        raise FileFormatError(
            f"{file}: sensor {index} has no property {name!r} (it has {names}); null means not measured."
        )
    value = properties[name]
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FileFormatError(
            f"{file}: {name!r} of sensor {index} is {str(value)[:40]!r}, not a finite number or null."
        )
    return float(value)


def _place(
    sensor: tuple[NDArray[np.float64], Mapping[str, Any]], index: int, segments: "_Segments", file: Path
) -> tuple[float, float]:
    """Return the road of a sensor and the fraction of its length: as its properties say, or the nearest."""
    point, properties = sensor
    if "edge" in properties and "fraction" in properties:
        given = (properties["edge"], properties["fraction"])
        try:
            edge, fraction = (math.nan if isinstance(entry, bool) else float(entry) for entry in given)
        except (TypeError, ValueError) as error:
            raise FileFormatError(f"{file}: edge and fraction of sensor {index} must be numbers.") from error
        return edge, fraction
    distance, road, fraction = segments.nearest(point)
    if distance > FARTHEST_SENSOR:
        raise FileFormatError(
            f"{file}: sensor {index} lies {distance:,.0f} m from the nearest road; at most {FARTHEST_SENSOR:.0f} m are "
            "allowed. Are its coordinates longitude and latitude, in this order?"
        )
    return float(road), min(max(fraction, _END), 1 - _END)


class _Segments:
    """The straight pieces of all lines, to find the one nearest to a point.

    Degrees are taken to metres in the plane that touches the globe at the point, good to a part in 10^4
    within 100 km.
    """

    def __init__(self, lines: list[NDArray[np.float64]], metric: str) -> None:
        self.metric = metric
        self.starts = np.concatenate([line[:-1] for line in lines])
        self.ends = np.concatenate([line[1:] for line in lines])
        self.road = np.repeat(np.arange(len(lines)), [len(line) - 1 for line in lines])
        self.lines = lines

    def nearest(self, point: NDArray[np.float64]) -> tuple[float, int, float]:
        """Return the distance from a point (2,) in metres, the road, and the fraction of its length there."""
        if len(self.starts) == 0:
            return math.inf, 0, 0.5
        degree = np.array([np.cos(np.radians(point[1])), 1.0]) * 111_195.08
        unit = degree if self.metric == "haversine" else np.ones(2)
        starts, steps = (self.starts - point) * unit, (self.ends - self.starts) * unit
        squared = np.maximum((steps**2).sum(1), 1e-18)
        along = np.clip(-(starts * steps).sum(1) / squared, 0, 1)
        distances = np.hypot(*(starts + along[:, None] * steps).T)
        best = int(distances.argmin())
        road = int(self.road[best])
        within = best - int(np.searchsorted(self.road, road))
        lengths = segment_lengths(self.lines[road], self.metric)
        reached = lengths[:within].sum() + along[best] * lengths[within]
        return float(distances[best]), road, float(reached / max(lengths.sum(), 1e-18))


def _whole(numbers: NDArray[np.float64], file: Path) -> NDArray[np.int64]:
    wrong = ~((np.abs(numbers) < 2**53) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise FileFormatError(f"{file}: sensor {int(wrong.argmax())} names road {numbers[wrong][0]}, no whole number.")
    return numbers.astype(np.int64)
