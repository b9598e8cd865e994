"""Roads with sensors and their readers: GeoJSON with its coordinate reference system, and R data files."""

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from graphs.arrays import first_of_each, identifies_rows
from graphs.builders.files import check_file
from graphs.builders.lines import Lines, check_limit, check_positions
from graphs.checks import check_choice, counted, is_number, one_line, short_repr
from graphs.errors import (
    FileFormatError,
    GraphError,
    GraphWarning,
    InvalidGraphError,
    SkippedFeaturesWarning,
    requires_extra,
    warn,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Roads(NamedTuple):
    """A road network with sensors, as its file describes it.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> line = np.array([(0.0, 0.0), (2.0, 0.0)])
        >>> roads = graphs.Roads([line], np.array([0]), np.array([0.5]), np.array([3.5]), metric="euclidean")
        >>> graphs.RoadNetwork.from_roads(roads)
        RoadNetwork(1 road, 2 vertices, length 2)
        >>> roads._replace(road_properties=({"oneway": "yes"},)).num_one_way
        1
    """

    lines: list[Floats]  # each (points, 2): longitude and latitude, or x and y; or all (points, 3), with heights
    sensor_edges: Integers  # (S,) number of the line of each sensor
    sensor_fractions: Floats  # (S,) fraction of the length of the line, from its first point
    values: Floats  # (S,) measurements, for example in mph; NaN if nothing was measured
    properties: tuple[Mapping[str, Any], ...] = ()  # S properties of sensors in the file, or empty
    metric: str = "haversine"  # of the coordinates of lines; or "euclidean"
    snap: float = 0.0  # distance at which points of lines meet, in meters or the units of the plane
    duplicates: str = "parallel"  # treatment of lines that repeat others: "parallel" or "merge"
    road_properties: tuple[Mapping[str, Any], ...] = ()  # R properties of lines in the file, or empty
    road_ids: tuple[Any, ...] = ()  # R ids of lines in the file, None for a line without one; or empty
    sensor_ids: tuple[Any, ...] = ()  # S ids of sensors, or empty
    unit: str = ""  # of lengths: "m", another unit of a plane, or "" if unknown
    metadata: Mapping[str, Any] = {}  # `name` and `crs` of the file

    @property
    def num_one_way(self) -> int:
        """The number of lines with a direction (`oneway` or a roundabout of OpenStreetMap), which is ignored."""
        return sum(map(_is_one_way, self.road_properties))

    def sensor_positions(self) -> tuple[Integers, Floats, Integers]:
        """Return the distinct positions of sensors, and the index of each sensor's.

        The result has roads (U,), fractions (U,) and the index (S,). Sensors at one crossing share a position.

        Raises:
            InvalidGraphError: If a sensor is on a road that does not exist, or outside its road.
        """
        check_positions(
            "Sensor",
            self.sensor_edges,
            self.sensor_fractions,
            len(self.lines),
            InvalidGraphError,
            "Change its edge or fraction in the file.",
        )
        joined = Lines.of(self.lines, self.metric).join(self.snap, self.duplicates)
        cut = joined.edges.split(self.sensor_edges, self.sensor_fractions, joined.lengths)
        distinct, position_of_sensor = first_of_each(cut.vertex)
        return self.sensor_edges[distinct], self.sensor_fractions[distinct], position_of_sensor


def _is_one_way(properties: Mapping[str, Any]) -> bool:
    """Return whether properties of OpenStreetMap give a road a direction."""
    direction = str(properties.get("oneway")).lower()
    is_one_way = direction in ("yes", "true", "1", "-1", "reverse", "reversible", "alternating")
    return is_one_way or properties.get("junction") in ("roundabout", "circular")


# --- The coordinate reference system of GeoJSON ----------------------------------------------------------------------


_NAME = re.compile(r"(?i)(?:\b(?:EPSG|OGC)(?:[:/][\d.]*)?[:/]|^)([A-Z]*\d+h?)$")
"""The pattern of a name, with the code as a group."""


class CoordinateSystem(NamedTuple):
    """The metric and the unit of coordinates.

    Examples:
        >>> from graphs.builders.road_files import read_crs
        >>> read_crs({}, None, "roads.geojson")
        CoordinateSystem(metric='haversine', unit='m')
    """

    metric: str  # "haversine" for degrees, "euclidean" for a plane
    unit: str  # of lengths: "m" for degrees and for a plane in meters, otherwise the unit, or "" if unknown


def read_crs(content: Mapping[str, Any], metric: str | None, file: Any) -> CoordinateSystem:
    """Return the coordinate system of a FeatureCollection, or the given one.

    Args:
        content: The FeatureCollection. Without a `crs` member it is in degrees (RFC 7946).
        metric: "haversine" or "euclidean". If None, it follows from the file.
        file: The name of the file, for messages.

    Raises:
        FileFormatError: If the system is unknown and no metric is given, or they contradict each other.

    Examples:
        >>> from graphs.builders.road_files import read_crs
        >>> read_crs({"crs": {"type": "name", "properties": {"name": "EPSG:32633"}}}, None, "roads.geojson").metric
        'euclidean'
    """
    if metric is not None:
        check_choice("metric", metric, ("haversine", "euclidean"))
    if "crs" not in content:
        return CoordinateSystem(metric or "haversine", "" if metric == "euclidean" else "m")
    name = _name_of(content["crs"])
    crs = None if name is None else _known_system(name)
    if crs is None and metric is None:
        more = (
            ""
            if name is None or find_spec("pyproj")
            else " Or install pyproj, which knows all systems: pip install 'rfgp[geo]'."
        )
        raise FileFormatError(
            f"{file}: its coordinate reference system must be a known one, got crs {short_repr(content['crs'])}. Pass "
            f'metric="haversine" if the coordinates are degrees and metric="euclidean" if they are a plane.{more}'
        )
    if crs is None:
        assert metric is not None
        return CoordinateSystem(metric, "m" if metric == "haversine" else "")
    if metric is not None and metric != crs.metric:
        kind = "geographic" if crs.metric == "haversine" else "projected"
        raise FileFormatError(
            f"{file}: metric must be {crs.metric!r} for its crs {name}, which is {kind}, got {metric!r}. Leave "
            "metric out, or correct the file."
        )
    return crs


def _name_of(member: Any) -> str | None:
    """Return the name in a `crs` member (before RFC 7946), or None."""
    properties = member.get("properties") if isinstance(member, dict) else None
    if not isinstance(properties, dict):
        return None
    if member.get("type") == "EPSG" and isinstance(properties.get("code"), int):
        return f"EPSG:{properties['code']}"
    name = properties.get("name")
    return name if member.get("type") == "name" and isinstance(name, str) else None


def _known_system(name: str) -> CoordinateSystem | None:
    """Return the system of a name such as "EPSG:4326", or None if unknown.

    EPSG:4326, CRS84 and the UTM zones of WGS 84, in meters, need no pyproj.
    """
    match = _NAME.search(name.strip())
    code = match[1].upper() if match else ""
    if code in ("4326", "CRS84", "CRS84H"):
        return CoordinateSystem("haversine", "m")
    if code.isdigit() and (32601 <= int(code) <= 32660 or 32701 <= int(code) <= 32760):
        return CoordinateSystem("euclidean", "m")
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return None
    try:
        named = f"OGC:{code}" if code.startswith("CRS") else name
        crs = CRS.from_epsg(int(code)) if code.isdigit() else CRS.from_user_input(named)
    except CRSError:
        return None
    units = {axis.unit_name for axis in crs.axis_info[:2]}
    if crs.is_geographic and units == {"degree"}:
        return CoordinateSystem("haversine", "m")
    if not crs.is_projected or len(units) != 1:
        return None
    unit, method = units.pop(), crs.coordinate_operation.method_name if crs.coordinate_operation else ""
    if method.startswith("Mercator") or "Pseudo Mercator" in method:
        unit = ""  # stretched by 1 / cos(latitude)
    return CoordinateSystem("euclidean", "m" if unit in ("metre", "meter") else unit)


# --- Roads and sensors in GeoJSON ------------------------------------------------------------------------------------
#
# LineStrings are roads, in the order of the file. The parts of a MultiLineString are separate roads. Points are
# sensors. Features with a null geometry, and geometries without points, are skipped with a warning and have no number.
#
# Roads have no direction, whatever `oneway` says (`Roads.num_one_way`). Third coordinates are heights, if all points of
# roads have one, so that a bridge does not meet the road below. `layer`, `bridge` and `tunnel` of OpenStreetMap do not
# separate roads. Lines in different layers that share a point inside both meet, with a warning.
#
# Properties may be any JSON. The value of a sensor is a number, or null if nothing was measured.


T = TypeVar("T")
R = TypeVar("R")

_POSITION = ("edge", "fraction")
"""The properties with the position of a sensor."""
_MAX_LISTED_FAULTS = 5
"""The number of faulty features that a message lists."""
_MAX_LISTED_NAMES = 8
"""The number of names that a message lists."""
_KINDS = ("Point", "LineString", "MultiLineString")
"""The types of geometries that are read."""


class Feature(NamedTuple):
    """A feature that is a road or a sensor.

    Examples:
        >>> from graphs.builders.road_files import Feature
        >>> Feature(0, "Point", [1.0, 2.0], {"value": 3.5}, None).kind
        'Point'
    """

    number: int  # among all features of the file
    kind: str
    coordinates: Any
    properties: Mapping[str, Any]
    id: Any  # a text, a number or None


class _Road(NamedTuple):
    """A line of a feature."""

    points: NDArray[np.float64]  # (points, 3), with a height of NaN for points without one
    feature: Feature


def read_geojson(
    file: Path,
    target: str | None,
    metric: str | None,
    within: float | None,
    skip: bool,
) -> Roads:
    """Return the roads and sensors of a FeatureCollection, with arguments and errors of `read_roads`.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from graphs.builders.road_files import read_geojson
        >>> line = '{"type": "Feature", "geometry": {"type": "LineString", "coordinates": [[0, 0], [1, 0]]}}'
        >>> path = Path(tempfile.mkdtemp()) / "roads.geojson"
        >>> _ = path.write_text(f'{{"type": "FeatureCollection", "features": [{line}]}}')
        >>> len(read_geojson(path, "value", None, None, False).lines)
        1
    """
    content = _collection(file)
    system = read_crs(content, metric, file)
    skipped: Counter[str] = Counter()
    roads, sensors = _roads_and_sensors(content["features"], file, target, skip, skipped)
    if not roads:
        raise FileFormatError(f"{file} has no LineString with points. There are no roads.")
    name = target or ""
    if not skip and (fault := missing_property([sensor.properties for sensor in sensors], name)):
        raise FileFormatError(f"{file}: {fault}")
    shapes = _with_heights([road.points for road in roads], system.metric, skipped)
    lines = Lines.of(shapes, system.metric)
    skipped["crossing of roads in different layers joined"] += _num_joined_layers(lines, roads)
    edges, fractions, kept = _locate_sensors(sensors, lines, within, file, system.unit, skip, skipped)
    sensors = [sensor for sensor, is_kept in zip(sensors, kept, strict=True) if is_kept]
    properties = tuple(sensor.properties for sensor in sensors)
    values = _read_values(properties, name, file, skip, skipped)
    if +skipped:
        description = ", ".join(_counted(count, name) for name, count in sorted((+skipped).items()))
        warn(SkippedFeaturesWarning(f"{file}: {description}."))
    return Roads(
        shapes,
        edges,
        fractions,
        values,
        properties,
        system.metric,
        road_properties=tuple(road.feature.properties for road in roads),
        road_ids=tuple(road.feature.id for road in roads),
        sensor_ids=tuple(sensor.id for sensor in sensors),
        unit=system.unit,
        metadata={key: content[key] for key in ("name", "crs") if key in content},
    )


def missing_property(
    sensors: Sequence[Mapping[str, Any]],  # their properties
    name: str,
) -> str:
    """Return an error message if no sensor has a property, otherwise "".

    The message lists the properties that hold numbers.

    Args:
        sensors: The properties of each sensor.
        name: The name of the property.

    Examples:
        >>> from graphs.builders.road_files import missing_property
        >>> missing_property([{"speed": 60.0}], "speed")
        ''
        >>> missing_property([{"speed": 60.0}], "value")
        "no sensor has the property 'value'; they have numbers in 'speed'. Pass one of them, as in target='speed'."
    """
    if not sensors or any(name in sensor for sensor in sensors):
        return ""
    numbers: dict[str, list[float]] = {}
    for sensor in sensors:
        for key, value in sensor.items():
            if key not in _POSITION and is_number(value):
                numbers.setdefault(key, []).append(value)
    if numbers:
        order = sorted(numbers, key=lambda key: (identifies_rows(key, numbers[key]), -len(numbers[key])))
        best = [short_repr(key) for key in order[:_MAX_LISTED_NAMES]]
        return (
            f"no sensor has the property {short_repr(name)}; they have numbers in {', '.join(best)}. Pass one of them, "
            f"as in target={best[0]}."
        )
    others = list(dict.fromkeys(key for sensor in sensors for key in sensor))
    names = ", ".join(map(short_repr, others[:_MAX_LISTED_NAMES])) or "none at all"
    return f"no sensor has the property {short_repr(name)}, nor another that holds numbers (they have {names})."


def _counted(count: int, subject: str) -> str:
    """Return "2 sensors not observed" for 2 and "sensor not observed"."""
    thing, _, rest = subject.partition(" ")
    return f"{count} {thing}{'s' * (count > 1)} {rest}"


def _collection(file: Path) -> Mapping[str, Any]:
    """Return the FeatureCollection in a file; NaN becomes null."""
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"), parse_constant=lambda _: None)
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file} must be text in UTF-8, got other bytes at {error.start}.") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise FileFormatError(
            f"{file} must be JSON, got an error at {where}. Use GeoJSON, or an R data file whose name ends in .rda."
        ) from error
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list) or content.get("type") != "FeatureCollection":
        raise FileFormatError(f"{file} must be a GeoJSON FeatureCollection, got other JSON.")
    found: Mapping[str, Any] = content
    return found


def _roads_and_sensors(
    features: Sequence[Any], file: Path, target: str | None, skip: bool, skipped: Counter[str]
) -> tuple[list[_Road], list[Feature]]:
    """Return the roads and sensors among features, and count skipped features."""
    roads: list[_Road] = []
    sensors: list[Feature] = []

    def read(given: Any, i: int) -> None:
        feature = _read_feature(given, i, skip)
        if feature is None:
            skipped["feature without geometry left out"] += 1
        elif feature.kind in _KINDS and feature.coordinates == []:
            skipped[f"{feature.kind} without coordinates left out"] += 1
        elif feature.kind == "Point":
            if target is not None:
                points = _read_points([feature.coordinates], i)
                sensors.append(feature._replace(coordinates=points[0, :2]))
        elif feature.kind == "LineString":
            points = _read_points(feature.coordinates, i)
            if len(points) < 2 and not skip:
                raise FileFormatError(f"feature {i} is a LineString of one point. Pass skip=True to leave it out.")
            if len(points) < 2:
                skipped["LineString of one point left out"] += 1
            else:
                roads.append(_Road(points, feature))
        elif feature.kind == "MultiLineString" and isinstance(feature.coordinates, list):
            roads.extend(_Road(_read_points(part, i), feature) for part in feature.coordinates if part != [])
            skipped["part of a MultiLineString without coordinates left out"] += feature.coordinates.count([])
        elif skip:
            skipped[f"{feature.kind} left out"] += 1
        elif feature.kind == "MultiLineString":
            raise FileFormatError(f"feature {i} must have a list of lines as its coordinates.")
        else:
            raise FileFormatError(
                f"feature {i} must be a LineString (a road) or a Point (a sensor), got {feature.kind!r}. Pass "
                "skip=True to leave others out."
            )

    _read_each(read, features, file)
    return roads, sensors


def _read_each(read: Callable[[T, int], R], entries: Iterable[T], file: Path) -> list[R]:
    """Read each entry with its number and return the results.

    Raises:
        FileFormatError: If some cannot be read. The message lists the first.
    """
    results, faults = [], []
    for i, entry in enumerate(entries):
        try:
            results.append(read(entry, i))
        except FileFormatError as error:
            faults.append(str(error))
    if faults:
        start = f"{file}: " if len(faults) == 1 else f"{file} has {len(faults):,} features that cannot be used:\n"
        more = f"\nand {len(faults) - _MAX_LISTED_FAULTS:,} more." if len(faults) > _MAX_LISTED_FAULTS else ""
        raise FileFormatError(start + "\n".join(faults[:_MAX_LISTED_FAULTS]) + more)
    return results


def _read_feature(given: Any, number: int, skip: bool) -> Feature | None:
    """Return a feature, or None if its geometry is null."""
    if isinstance(given, dict) and "geometry" in given and given["geometry"] is None:
        return None
    geometry = given.get("geometry") if isinstance(given, dict) else None
    if not isinstance(geometry, dict) or "type" not in geometry:
        if skip:
            return None
        raise FileFormatError(f"feature {number} has no geometry. Pass skip=True to leave it out.")
    properties, name = given.get("properties"), given.get("id")
    return Feature(
        number,
        str(geometry["type"]),
        geometry.get("coordinates"),
        properties if isinstance(properties, dict) else {},
        name if isinstance(name, str) or is_number(name) else None,
    )


def _read_points(coordinates: Any, number: int) -> NDArray[np.float64]:  # (points, 3)
    """Return points with heights, which are NaN if they are missing or not numbers."""
    try:
        points = np.array([[*map(_coordinate, point[:2]), _height(point)] for point in coordinates], dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"feature {number} must have coordinates that are numbers, got others.") from error
    if points.ndim != 2 or points.shape[1] != 3 or not np.isfinite(points[:, :2]).all():
        raise FileFormatError(f"feature {number} must have points of at least two finite numbers.")
    return points


def _height(point: Sequence[Any]) -> float:
    return float(point[2]) if len(point) > 2 and _is_finite(point[2]) else math.nan


def _with_heights(shapes: list[NDArray[np.float64]], metric: str, skipped: Counter[str]) -> list[NDArray[np.float64]]:
    """Return lines (points, 3), or (points, 2) if heights are equal or some are missing."""
    heights, plane = np.concatenate([shape[:, 2] for shape in shapes]), [shape[:, :2] for shape in shapes]
    known = np.isfinite(heights)
    if known.all() and np.ptp(heights) > 0:
        return shapes
    if known.any() and not known.all():
        points = Lines.of(plane, metric).distinct_points()
        skipped["crossing of several heights joined, since other points have no height"] += _num_mixed(
            points.site, np.where(known, heights, -np.inf)[points.point]
        )
    return plane


def _num_mixed(sites: NDArray[np.int64], values: NDArray[np.float64]) -> int:
    """Return the number of sites with different values, given the site and value (K,) of each point."""
    lowest, highest = np.full(int(sites.max()) + 1, np.inf), np.full(int(sites.max()) + 1, -np.inf)
    np.minimum.at(lowest, sites, values)
    np.maximum.at(highest, sites, values)
    return int((lowest < highest).sum())


def _num_joined_layers(lines: Lines, roads: Sequence[_Road]) -> int:
    """Return the number of points inside roads of different layers, at which no road ends."""
    layers = np.array([_layer(road.feature.properties) for road in roads])
    if (layers == layers[0]).all():
        return 0
    points = lines.distinct_points()
    has_end = np.bincount(points.site, points.is_end) > 0
    inner = ~has_end[points.site]
    return _num_mixed(points.site[inner], layers[points.line[inner]]) if inner.any() else 0


def _layer(properties: Mapping[str, Any]) -> float:
    """Return `layer` of OpenStreetMap, or 1 for a bridge and -1 for a tunnel without it."""
    given = properties.get("layer")
    level = _number(given) if isinstance(given, str | int | float) else math.nan
    if math.isfinite(level):
        return level
    is_bridge, is_tunnel = (properties.get(name) not in (None, "", "no", False) for name in ("bridge", "tunnel"))
    return float(is_bridge) - float(is_tunnel)


def with_target(
    roads: Roads,
    target: str,
    path: str | Path,
    skip: bool = False,
) -> Roads:
    """Return roads of a file with another property of their sensors as values.

    Args:
        roads: The roads.
        target: The name of the property.
        path: The file, for messages.
        skip: Whether to take values that are not numbers as not measured.

    Raises:
        FileFormatError: If no sensor has the property, or some values are not numbers; see `read_roads`.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.builders.road_files import with_target
        >>> line, place = np.array([(0.0, 0.0), (2.0, 0.0)]), (np.array([0]), np.array([0.5]))
        >>> roads = graphs.Roads([line], *place, np.array([3.5]), properties=({"value": 3.5, "speed": 60.0},))
        >>> with_target(roads, "speed", "roads.geojson").values.tolist()
        [60.0]
    """
    if not skip and (fault := missing_property(roads.properties, target)):
        raise FileFormatError(f"{path}: {fault}")
    return roads._replace(values=_read_values(roads.properties, target, Path(path), skip, Counter()))


def _read_values(
    sensors: Sequence[Mapping[str, Any]], name: str, file: Path, skip: bool, skipped: Counter[str]
) -> NDArray[np.float64]:  # (S,)
    values = _read_each(lambda properties, i: _read_value(properties, name, i, skip, skipped), sensors, file)
    return np.array(values, dtype=np.float64)


def _coordinate(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("a coordinate must be a number")
    return float(value)


def _is_finite(value: Any) -> bool:
    """Return whether a value is a number in the range of double precision."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:
        return False


def _read_value(properties: Mapping[str, Any], name: str, number: int, skip: bool, skipped: Counter[str]) -> float:
    """Return the value of a sensor, NaN if nothing was measured or it is skipped."""
    value = properties.get(name)
    if skip and isinstance(value, str) and math.isfinite(written := _number(value)):
        skipped["number written as text"] += 1
        return written
    if not skip and name not in properties:
        names = ", ".join(map(repr, list(properties)[:_MAX_LISTED_NAMES])) or "none"
        raise FileFormatError(
            f"sensor {number} must have the property {name!r}, got {names}. Use null for a value that was not "
            "measured, or pass skip=True."
        )
    if skip and not _is_finite(value) and (value is not None or name not in properties):
        skipped[f"sensor without a number {name!r} not observed"] += 1
        return math.nan
    if value is None:
        return math.nan
    if not _is_finite(value):
        raise FileFormatError(
            f"{name!r} of sensor {number} must be a finite number or null, got {str(value)[:40]!r}. Pass "
            "skip=True to read numbers written as text and to take other values as not measured."
        )
    return float(value)


def _number(text: str | float) -> float:
    try:
        return float(text)
    except (ValueError, OverflowError):
        return math.nan


def _locate_sensors(
    sensors: Sequence[Feature],
    lines: Lines,
    within: float | None,
    file: Path,
    unit: str,
    skip: bool,
    skipped: Counter[str],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return roads (k,) and fractions (k,) of sensors near a road, and a mask (S,).

    Positions in the properties `edge` and `fraction` take precedence over the nearest position.
    """
    named = np.array([all(s.properties.get(name) is not None for name in _POSITION) for s in sensors], dtype=bool)
    edges, fractions, apart = (np.zeros(len(sensors)) for _ in range(3))
    for i in np.flatnonzero(named).tolist():
        edges[i], fractions[i] = _given_position(sensors[i].properties, i, file)
    others = np.flatnonzero(~named)
    if len(others):
        points = np.array([sensors[i].coordinates for i in others.tolist()])
        edges[others], fractions[others], apart[others] = lines.project(points)
    limit = lines.limit(within)
    near = apart <= limit
    if not near.all():
        i, size = int((~near).argmax()), f" {unit}" if unit else ""
        hint = " Are its coordinates longitude and latitude, in this order?" if lines.metric == "haversine" else ""
        if not skip:
            count = int((~near).sum()) - 1
            more = f" (and {counted(count, 'more sensor')} farther than that)" if count else ""
            raise FileFormatError(
                f"{file}: sensor {i} must lie within {limit:,.6g}{size} of a road, got {apart[i]:,.6g}{size}{more}."
                f"{hint} Pass within= for more, or skip=True to leave it out."
            )
        skipped[f"sensor farther than {limit:,.6g}{size} from a road left out"] += int((~near).sum())
    wrong = ~((np.abs(edges) < 2**53) & (edges == np.floor(edges)))
    if wrong.any():
        raise FileFormatError(
            f"{file}: edge of sensor {int(wrong.argmax())} must be the whole number of a road, got {edges[wrong][0]}."
        )
    return edges[near].astype(np.int64), fractions[near], near


def _given_position(properties: Mapping[str, Any], number: int, file: Path) -> tuple[float, float]:
    given = [properties[name] for name in _POSITION]
    try:
        edge, fraction = (math.nan if isinstance(entry, bool) else float(entry) for entry in given)
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{file}: edge and fraction of sensor {number} must be numbers.") from error
    return edge, fraction


# --- Readers of roads with sensors: R data files and GeoJSON ---------------------------------------------------------


def read_roads(
    path: str | Path,
    target: str | None = "value",
    metric: str | None = None,
    *,
    within: float | None = None,
    skip: bool = False,
) -> Roads:
    """Return the roads and sensors of an R data file (.rda) or GeoJSON (.geojson, .json).

    The R file holds one list with `edges` (line strings) and `data`, as MetricGraph stores it. The columns of `data`
    are `y`, `.edge_number` from 1 and `.distance_on_edge` as a fraction. The GeoJSON file is a FeatureCollection of
    LineStrings and MultiLineStrings, whose parts are separate roads, and of Points, the sensors. Coordinates are
    longitude and latitude in degrees, unless the `crs` of the file says otherwise.

    The properties of a sensor are the target (null if nothing was measured) and optionally the number `edge` of its
    LineString (from 0) and the `fraction` of its length. A sensor without them is moved to the nearest road. Features
    with a null geometry or without points are skipped with a warning. Third coordinates are heights in the unit of
    lengths: points of different heights do not meet, and lengths stay horizontal. If only some points of the roads have
    one, all heights are ignored, with a warning if this joins roads. Roads have no direction, and `Roads.num_one_way`
    counts those with one in the file. Properties, ids, `name` and `crs` are kept, and
    `rfgp.fields.write_roads` writes them.

    Args:
        path: The file.
        target: For GeoJSON, the property with the values of sensors. If None, sensors are ignored.
        metric: "haversine" for degrees, or "euclidean" for coordinates in a plane. If None, it follows from the `crs`
            of the file, or is "haversine" without one.
        within: For GeoJSON, the largest distance of a sensor from the nearest road, in meters or the units of the
            plane. If None, 500 m on the globe, and a tenth of the diagonal of the bounding box of the roads in a plane.
        skip: For GeoJSON, whether to skip features that are neither roads nor sensors, and sensors too far away.
            Sensors whose value is not a number are then not observed, and numbers written as text are read.

    Raises:
        FileFormatError: If the file is missing, empty or has other content, or its `crs` is unknown or contradicts the
            metric.
        InvalidGraphError: If coordinates are not degrees.
        InvalidArgumentError: If `within` is not a positive number.

    Warns:
        SkippedFeaturesWarning: If features were skipped or not observed, heights were ignored, or roads of different
            layers (`layer`, `bridge`, `tunnel`) meet at a point inside both.

    Examples:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> import graphs
        >>> line = {"type": "LineString", "coordinates": [[0, 0], [2, 0]]}
        >>> point = {"type": "Point", "coordinates": [1, 0.1]}
        >>> features = [
        ...     {"type": "Feature", "geometry": line, "properties": {}},
        ...     {"type": "Feature", "geometry": point, "properties": {"value": 3.5}},
        ... ]
        >>> path = Path(tempfile.mkdtemp()) / "roads.geojson"
        >>> _ = path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        >>> roads = graphs.read_roads(path, metric="euclidean")
        >>> roads.sensor_fractions.tolist(), roads.values.tolist()
        ([0.5], [3.5])
    """
    if within is not None:
        check_limit(within)
    file = check_file(path, "a road network", packed=Path(path).suffix.lower() == ".rda")
    try:
        if file.suffix.lower() == ".rda":
            return _read_rda(file, metric or "haversine")
        return read_geojson(file, target, metric, within, skip)
    except (GraphError, GraphWarning):
        raise
    except Exception as error:  # the parsers raise whatever their bytes lead them to
        raise FileFormatError(
            f"{file} must be a road network that can be read, got {type(error).__name__}: {one_line(error)}"
        ) from error


def _read_rda(file: Path, metric: str) -> Roads:
    with requires_extra("datasets"):
        import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata names every R class that it has no constructor for
        content = next(iter(rdata.read_rda(file).values()))
    data = content["data"]
    lines = [np.asarray(line, dtype=np.float64) for line in content["edges"]["geometry"]]
    columns = (np.asarray(data[name], dtype=np.float64) for name in (".edge_number", ".distance_on_edge", "y"))
    edge, fraction, value = columns
    return Roads(lines, _integers(edge, file) - 1, fraction, value, metric=metric, unit="m" * (metric == "haversine"))


def _integers(numbers: NDArray[np.float64], file: Path) -> NDArray[np.int64]:
    wrong = ~((np.abs(numbers) < 2**53) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise FileFormatError(
            f"{file}: the road of sensor {int(wrong.argmax())} must be a whole number, got {numbers[wrong][0]}."
        )
    return numbers.astype(np.int64)
