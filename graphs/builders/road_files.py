"""Readers of roads with sensors: R data files and GeoJSON."""

import json
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.builders.files import brief, check_file
from graphs.builders.lines import segment_lengths
from graphs.builders.roads import Roads
from graphs.checks import is_number, shown
from graphs.errors import FileFormatError, InvalidArgumentError, SkippedFeaturesWarning

FARTHEST_SENSOR = 500.0
"""Metres from a road beyond which a sensor without a road of its own is refused."""

_PLACE = ("edge", "fraction")  # the properties that say where a sensor is
_SHOWN = 8
_END = 1e-3  # sensors at a crossing are put this fraction of the road away from it


def read_roads(
    path: str | Path,
    value: str | None = "value",
    metric: str = "haversine",
    *,
    within: float = FARTHEST_SENSOR,
    skip: bool = False,
) -> Roads:
    """Read roads and sensors from an R data file (.rda) or GeoJSON (.geojson, .json).

    The R file holds one list with `edges` (line strings) and `data` (columns `y`, `.edge_number`
    counted from 1, `.distance_on_edge` as a fraction), as MetricGraph stores it. The GeoJSON is a
    FeatureCollection of LineStrings (MultiLineStrings count as several), longitude and latitude in degrees,
    and of Points, the sensors. A sensor's properties are `value` (null: nothing measured) and, where known, the
    number `edge` of its LineString (from 0) and the `fraction` of its length; a sensor without them is put on
    the nearest road, at most `within` metres away. Sensors that end up at one place share it.

    Args:
        path: The file.
        value: GeoJSON: the property that holds the sensors' values. None: sensors are passed over.
        metric: "haversine" for degrees, or "euclidean" for coordinates in a plane, in metres.
        within: GeoJSON: how far from a road a sensor may lie that names none, in metres.
        skip: GeoJSON: whether to leave out features that are neither roads nor sensors, and sensors too far away, and
            to take sensors whose value is no number as not observed; numbers that are written as text count.

    Raises:
        FileFormatError: the file is missing, empty, or has another content.
        InvalidArgumentError: `within` is no positive number.

    Warns:
        SkippedFeaturesWarning: with what was left out or not observed.
    """
    if not within > 0:
        raise InvalidArgumentError(f"within must be a positive number of metres, got {within}.")
    file = check_file(path, "a road network", packed=Path(path).suffix.lower() == ".rda")
    try:
        return (
            _read_rda(file, metric)
            if file.suffix.lower() == ".rda"
            else _read_geojson(file, value, metric, within, skip)
        )
    except FileFormatError:
        raise
    except Exception as error:  # the parsers raise whatever their bytes lead them to
        raise FileFormatError(
            f"{file} is not a road network that can be read: {type(error).__name__}, {brief(error)}"
        ) from error


def missing_property(
    sensors: Sequence[Mapping[str, Any]],  # their properties
    name: str,
) -> str:
    """Say that no sensor has a property, and which of theirs hold numbers; "" where one has it, or there are none."""
    if not sensors or any(name in sensor for sensor in sensors):
        return ""
    numbers = Counter(
        key for sensor in sensors for key, value in sensor.items() if key not in _PLACE and is_number(value)
    )
    if numbers:
        best = [shown(key) for key, _ in numbers.most_common(_SHOWN)]
        return (
            f"no sensor has the property {shown(name)}; they have numbers in {', '.join(best)}. Name the one to read, "
            f"as in value={best[0]}."
        )
    others = list(dict.fromkeys(key for sensor in sensors for key in sensor))
    names = ", ".join(map(shown, others[:_SHOWN])) or "none at all"
    return f"no sensor has the property {shown(name)}, nor another that holds numbers (they have {names})."


def _counted(count: int, what: str) -> str:
    """Return "2 roads left out" of 2 and "road left out"."""
    thing, _, rest = what.partition(" ")
    return f"{count} {thing}{'s' * (count > 1)} {rest}"


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


def _read_geojson(file: Path, value: str | None, metric: str, within: float, skip: bool) -> Roads:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise FileFormatError(
            f"{file} is not a road network that can be read: it is no JSON ({where}). Roads are GeoJSON, or an R data "
            "file whose name ends in .rda."
        ) from error
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list) or content.get("type") != "FeatureCollection":
        raise FileFormatError(f"{file} is not a GeoJSON FeatureCollection.")
    lines: list[NDArray[np.float64]] = []
    sensors: list[tuple[NDArray[np.float64], Mapping[str, Any]]] = []
    skipped: Counter[str] | None = Counter() if skip else None
    for i, feature in enumerate(features):
        kind, coordinates, properties = _read_feature(feature, i, file, skip)
        if kind == "Point" and value is None:
            continue
        if kind == "Point":
            sensors.append((_read_points([coordinates], i, file)[0], properties))
        elif kind == "LineString":
            lines.append(_read_points(coordinates, i, file))
        elif kind == "MultiLineString" and isinstance(coordinates, list):
            lines += [_read_points(part, i, file) for part in coordinates]
        elif skipped is not None:
            skipped[f"{kind} left out"] += 1
        else:
            raise FileFormatError(
                f"{file}: feature {i} is a {kind!r}; only LineString (roads) and Point (sensors) count. Pass skip=True "
                "to leave others out."
            )
    if not lines:
        raise FileFormatError(f"{file} has no LineString. There are no roads.")
    segments, places, values, details = _Segments(lines, metric), [], [], []
    name = value or ""
    if not skip and (fault := missing_property([properties for _, properties in sensors], name)):
        raise FileFormatError(f"{file}: {fault}")
    for i, sensor in enumerate(sensors):
        place = _place(sensor, i, segments, file, within, skipped)
        if place is not None:
            places.append(place)
            values.append(_read_value(sensor[1], name, i, file, skipped))
            details.append(sensor[1])
    if skipped:
        what = ", ".join(_counted(count, name) for name, count in sorted(skipped.items()))
        warnings.warn(SkippedFeaturesWarning(f"{file}: {what}."), stacklevel=3)
    edges, fractions = np.array(places, dtype=np.float64).reshape(-1, 2).T
    whole = _whole(edges, file) if len(edges) else np.zeros(0, np.int64)
    return Roads(lines, whole, fractions, np.array(values, dtype=np.float64), tuple(details), metric)


def _read_feature(feature: Any, index: int, file: Path, skip: bool) -> tuple[str, Any, Mapping[str, Any]]:
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    if not isinstance(geometry, dict) or "type" not in geometry:
        if skip:
            return "feature without geometry", None, {}
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


def _read_value(
    properties: Mapping[str, Any], name: str, index: int, file: Path, skipped: Counter[str] | None
) -> float:
    """Return what a sensor measured, NaN where nothing; with something to count in, also where it is no number."""
    value = properties.get(name)
    if skipped is not None and isinstance(value, str) and math.isfinite(number := _number(value)):
        skipped["number written as text"] += 1
        return number
    if skipped is None and name not in properties:
        names = ", ".join(map(repr, list(properties)[:8])) or "none"
        raise FileFormatError(
            f"{file}: sensor {index} has no property {name!r} (it has {names}); null means not measured. Pass "
            "skip=True to take it as not measured."
        )
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if skipped is not None and not is_number and (value is not None or name not in properties):
        skipped[f"sensor without a number {name!r} not observed"] += 1
        return math.nan
    if value is None:
        return math.nan
    if not is_number:
        raise FileFormatError(
            f"{file}: {name!r} of sensor {index} is {str(value)[:40]!r}, not a finite number or null. Pass "
            "skip=True to read numbers that are texts, and to take what is none as not measured."
        )
    return float(value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _place(
    sensor: tuple[NDArray[np.float64], Mapping[str, Any]],
    index: int,
    segments: "_Segments",
    file: Path,
    within: float,
    skipped: Counter[str] | None,
) -> tuple[float, float] | None:
    """Return the road of a sensor and the fraction of its length: as its properties say, or the nearest; or None."""
    point, properties = sensor
    if all(name in properties for name in _PLACE):
        given = [properties[name] for name in _PLACE]
        try:
            edge, fraction = (math.nan if isinstance(entry, bool) else float(entry) for entry in given)
        except (TypeError, ValueError) as error:
            raise FileFormatError(f"{file}: edge and fraction of sensor {index} must be numbers.") from error
        return edge, fraction
    distance, road, fraction = segments.nearest(point)
    if distance <= within:
        return float(road), min(max(fraction, _END), 1 - _END)
    if skipped is None:
        raise FileFormatError(
            f"{file}: sensor {index} lies {distance:,.0f} m from the nearest road; at most {within:g} m are allowed. "
            "Are its coordinates longitude and latitude, in this order? Pass within= for more, or skip=True to leave "
            "it out."
        )
    skipped[f"sensor further than {within:g} m from a road left out"] += 1
    return None


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
