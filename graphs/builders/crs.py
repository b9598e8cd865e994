"""The coordinate reference system of a GeoJSON file: degrees, or a plane with its unit."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from graphs.checks import check_choice, short_repr
from graphs.errors import FileFormatError

_NAME = re.compile(r"(?i)\b(?:EPSG|OGC)(?:[:/][\d.]*)?[:/]([A-Z]*\d+h?)$|^(CRS84h?)$")
"""The pattern of a name, with the code as a group."""
_DEGREE_NAMES = ("CRS84", "CRS84H", "CRS83", "CRS27")
"""OGC names of geographic systems, longitude and latitude in degrees."""
# fmt: off
_DEGREES = frozenset({
    4326, 4148, 4149, 4150, 4167, 4171, 4230, 4240, 4258, 4267, 4269, 4272, 4275, 4277, 4283, 4289, 4314, 4490, 4612,
    4617, 4619, 4674, 4737, 4755, 4979, 6668, 7844,
})
"""EPSG codes of geographic systems, longitude and latitude in degrees (GeoJSON always has this order)."""
_METERS = frozenset({
    2056, 2100, 2154, 2157, 2180, 2193, 2326, 3003, 3004, 3006, 3021, 3034, 3035, 3067, 3111, 3112, 3308, 3414, 3577,
    3812, 5070, 5179, 5186, 5514, 5880, 21781, 27572, 27700, 28992, 31370,
})
"""EPSG codes of projected systems in meters, in addition to the ranges below."""
# fmt: on
_MERCATOR = frozenset({3857, 900913, 3785, 3395})
"""EPSG codes of Mercator projections. Their lengths are stretched by 1 / cos(latitude) and not in meters."""
_METER_RANGES = (
    (2443, 2461),  # JGD2000 planes
    (6669, 6687),  # JGD2011 planes
    (7846, 7859),  # GDA2020 MGA
    (23028, 23038),  # ED50 UTM
    (25828, 25838),  # ETRS89 UTM
    (26901, 26923),  # NAD83 UTM
    (28348, 28358),  # GDA94 MGA
    (31466, 31469),  # DHDN Gauss-Krueger
    (31965, 31985),  # SIRGAS 2000 UTM
    (32601, 32660),  # WGS 84 UTM north
    (32701, 32760),  # WGS 84 UTM south
)


class CoordinateSystem(NamedTuple):
    """The metric and the unit of coordinates.

    Examples:
        >>> from graphs.builders.crs import read_crs
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
        >>> from graphs.builders.crs import read_crs
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
    """Return the system of a name such as "EPSG:4326", or None if unknown."""
    match = _NAME.search(name.strip())
    code = (match[1] or match[2]).upper() if match else ""
    number = int(code) if code.isdigit() else -1
    if code in _DEGREE_NAMES or number in _DEGREES:
        return CoordinateSystem("haversine", "m")
    if number in _MERCATOR:
        return CoordinateSystem("euclidean", "")
    if number in _METERS or any(low <= number <= high for low, high in _METER_RANGES):
        return CoordinateSystem("euclidean", "m")
    return _pyproj_system(name)


def _pyproj_system(name: str) -> CoordinateSystem | None:
    """Return the system of a name as pyproj knows it, or None."""
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return None
    try:
        crs = CRS.from_user_input(name)
    except CRSError:
        return None
    units = {axis.unit_name for axis in crs.axis_info[:2]}
    if crs.is_geographic and units == {"degree"}:
        return CoordinateSystem("haversine", "m")
    if not crs.is_projected or len(units) != 1:
        return None
    unit, method = units.pop(), crs.coordinate_operation.method_name if crs.coordinate_operation else ""
    if "Mercator" in method and "Transverse" not in method:
        unit = ""  # stretched by 1 / cos(latitude)
    return CoordinateSystem("euclidean", "m" if unit in ("metre", "meter") else unit)
