"""Road geometry as edges: lines join at shared points, and sensors are inserted on them."""

from collections.abc import Mapping, Sequence, Sized
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers, component_of_nodes, first_of_each, read_integers
from graphs.builders.edges import EdgeArrays
from graphs.builders.junctions import MAX_WIDTH, POSITION_TOLERANCE, EdgeLocations, Junctions, join_lines
from graphs.builders.lines import Lines, as_lines, check_lines
from graphs.checks import is_number, short_repr
from graphs.errors import (
    DisconnectedWarning,
    DuplicateRoadsWarning,
    InvalidArgumentError,
    InvalidGraphError,
    WideCrossingWarning,
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
        _check_sensors(self.sensor_edges, self.sensor_fractions, len(self.lines))
        joined = join_lines(as_lines(self.lines, self.metric), self.snap, self.duplicates)
        located = joined.edges.locate(self.sensor_edges, self.sensor_fractions, joined.lengths)
        distinct, position_of_sensor = first_of_each(_position_numbers(located))
        return self.sensor_edges[distinct], self.sensor_fractions[distinct], position_of_sensor


def _is_one_way(properties: Mapping[str, Any]) -> bool:
    """Return whether properties of OpenStreetMap give a road a direction."""
    direction = str(properties.get("oneway")).lower()
    is_one_way = direction in ("yes", "true", "1", "-1", "reverse", "reversible", "alternating")
    return is_one_way or properties.get("junction") in ("roundabout", "circular")


class RoadSegment(NamedTuple):
    """A segment of a road between two neighboring nodes.

    Examples:
        >>> import graphs
        >>> segment = graphs.split_roads([[(0, 0), (2, 0)]], [0], [0.25], metric="euclidean").segments[0]
        >>> segment.start, segment.end, segment.shape.tolist()
        (0.0, 0.25, [[0.0, 0.0], [0.5, 0.0]])
    """

    source: int  # position of the node at the first point
    target: int
    length: float  # in meters, or the units of the plane
    shape: Floats  # (points, 2)
    road: int  # number of the line
    start: float  # fraction of the length of the line at the first point
    end: float


class SplitRoads(NamedTuple):
    """Roads that are split at crossings and sensors: N nodes and the segments between them.

    Examples:
        >>> import graphs
        >>> cut = graphs.split_roads([[(0, 0), (2, 0)]], [0], [0.25], metric="euclidean")
        >>> [segment.length for segment in cut.segments]
        [0.5, 1.5]
    """

    labels: tuple[str, ...]  # N of them, "crossing-0", ... and "sensor-0", ...
    coordinates: Floats  # (N, 2)
    segments: list[RoadSegment]
    positions: Floats  # (N, 2) the road and the fraction of its length at each node


def from_roads(
    lines: Sequence[ArrayLike],  # each (points, 2), or (points, 3)
    sensor_edges: ArrayLike,  # (S,)
    sensor_fractions: ArrayLike,  # (S,)
    metric: str,
    min_length: float = 0.0,
    snap: float = 0.0,
    duplicates: str = "parallel",
) -> EdgeArrays:
    """Return the edges of roads that are split at their sensors.

    Lines are joined at shared points or within `snap`. The weight of an edge is (mean edge length) / (its length),
    after Borovitskiy et al. (2021). Lengths below `min_length` times the mean are raised to this bound. The weights of
    parallel roads are added. A line that returns to its start without a sensor in between is dropped.

    Examples:
        >>> from graphs.builders import from_roads
        >>> from_roads([[(0, 0), (1, 0)], [(1, 0), (4, 0)]], (), (), "euclidean").weights.tolist()
        [2.0, 0.6666666666666666]
    """
    if not is_number(min_length) or not 0 <= min_length < np.inf:
        raise InvalidArgumentError(f"min_length must be a number of at least 0, got {short_repr(min_length)}.")
    joined, cut = _split(lines, sensor_edges, sensor_fractions, metric, snap, duplicates)
    warn_of_joins(joined)
    segments = [segment for segment in cut.segments if segment.source != segment.target]
    distance = np.array([segment.length for segment in segments])
    weights = _weights(distance, min_length * distance.mean()) if len(segments) else distance
    ends = np.array([(segment.source, segment.target) for segment in segments], dtype=np.int64).reshape(-1, 2)
    _warn_of_components(ends, len(cut.labels), len(np.atleast_1d(np.asarray(sensor_edges))))
    return EdgeArrays(len(cut.labels), ends[:, 0], ends[:, 1], weights, cut.labels, cut.coordinates)


def _weights(distance: Floats, least: float) -> Floats:  # (E,)
    """Return (mean length) / (length) for lengths of at least `least`."""
    with np.errstate(over="ignore", divide="ignore"):
        weights = distance.mean() / np.maximum(distance, least)
    if not np.isfinite(weights).all():
        raise InvalidGraphError(
            f"Lengths of road segments must be in the range of double precision, got {distance.min():.3g} and "
            f"{distance.max():.3g}. Pass min_length=, or drop short roads."
        )
    return np.asarray(weights)


def _warn_of_components(ends: Integers, num_nodes: int, num_sensors: int) -> None:
    """Warn of components of roads without a sensor, if there are sensors."""
    component = component_of_nodes(ends[:, 0], ends[:, 1], num_nodes)
    num_components = int(component.max()) + 1
    num_without_sensor = num_components - len(np.unique(component[num_nodes - num_sensors :]))
    if num_sensors and num_without_sensor:
        warn(
            DisconnectedWarning(
                f"The roads have {num_components:,} connected components, {num_without_sensor:,} of them without a "
                "sensor. Roads meet at shared points; use snap= to join points that nearly meet."
            )
        )


def split_roads(
    lines: Sequence[ArrayLike],  # each (points, 2), or (points, 3)
    sensor_edges: ArrayLike = (),  # (S,)
    sensor_fractions: ArrayLike = (),  # (S,)
    metric: str = "haversine",
    snap: float = 0.0,
    duplicates: str = "parallel",
) -> SplitRoads:
    """Return nodes, at crossings and sensors, and the road segments between them.

    Arguments are those of `graphs.Graph.from_roads`. A sensor at a crossing replaces its node: "crossing-2" is missing
    if a sensor is there.

    Raises:
        InvalidGraphError: If a road without length meets no other, or a sensor is outside its road or on another
            sensor.
        InvalidArgumentError: If the metric is unknown, or arrays differ in length.

    Examples:
        >>> import graphs
        >>> cut = graphs.split_roads([[(0, 0), (2, 0)]], [0], [0.25], metric="euclidean")
        >>> cut.labels, cut.coordinates[-1].tolist()
        (('crossing-0', 'crossing-1', 'sensor-0'), [0.5, 0.0])
    """
    return _split(lines, sensor_edges, sensor_fractions, metric, snap, duplicates)[1]


def _split(
    lines: Sequence[ArrayLike],
    sensor_edges: ArrayLike,
    sensor_fractions: ArrayLike,
    metric: str,
    snap: float,
    duplicates: str,
) -> tuple[Junctions, SplitRoads]:
    flat = as_lines(check_lines(lines), metric)
    roads, fractions = _read_sensors(sensor_edges, sensor_fractions, len(flat.first) - 1)
    joined = join_lines(flat, snap, duplicates)
    check_isolated(joined, snap, flat.lengths)
    located = joined.edges.locate(roads, fractions, joined.lengths)
    vertex = located.vertex
    _check_distinct(located)
    free = np.ones(len(joined.coordinates), dtype=bool)
    free[vertex[vertex >= 0]] = False
    node = np.cumsum(free) - 1
    sensors = int(free.sum()) + np.arange(len(roads))
    node[vertex[vertex >= 0]] = sensors[vertex >= 0]
    labels = (*(f"crossing-{i}" for i in np.flatnonzero(free)), *(f"sensor-{i}" for i in range(len(roads))))
    coordinates = np.concatenate([joined.coordinates[free], flat.along(roads, fractions)])
    positions = np.concatenate([_positions(joined)[free], np.stack([roads.astype(np.float64), fractions], axis=1)])
    inner = vertex < 0
    cuts = (located.edge[inner], located.fraction[inner], sensors[inner])
    return joined, SplitRoads(labels, coordinates, _segments(flat, joined, node, cuts, coordinates), positions)


def _positions(joined: Junctions) -> Floats:  # (V, 2)
    """Return the first position (road, fraction) of each vertex, road after road."""
    edges = joined.edges
    roads = np.repeat(edges.road, 2).astype(np.float64)
    fractions = np.stack([edges.start, edges.end], axis=1).reshape(-1)
    first = np.unique(np.stack([edges.source, edges.target], axis=1).reshape(-1), return_index=True)[1]
    return np.stack([roads, fractions], axis=1)[first]


def _segments(
    flat: Lines,
    joined: Junctions,
    node: Integers,  # (V,) of each vertex
    cuts: tuple[Integers, Floats, Integers],  # (c,) edges, fractions and nodes of sensors inside them
    coordinates: Floats,  # (N, 2)
) -> list[RoadSegment]:
    """Return the segments between the nodes of each edge."""
    found = joined.edges.split(joined.lengths, node, cuts)
    length = joined.lengths[found.road]
    inside = _points_between(flat, found.road, found.start * length, found.end * length)
    shapes = [
        np.concatenate([coordinates[source][None], flat.points[points], coordinates[target][None]])
        for source, target, points in zip(found.source, found.target, inside, strict=True)
    ]
    columns = (found.source, found.target, (found.end - found.start) * length, found.road, found.start, found.end)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        RoadSegment(source, target, size, shape, line, start, end)
        for (source, target, size, line, start, end), shape in zip(rows, shapes, strict=True)
    ]


def _points_between(flat: Lines, road: Integers, low: Floats, high: Floats) -> list[slice]:
    """Return the points of lines strictly between two lengths, for n segments."""
    out = []
    for line, first, last in zip(road.tolist(), low.tolist(), high.tolist(), strict=True):
        start, stop = flat.first[line], flat.first[line + 1]
        along = flat.reached[start:stop]
        rounding = 1e-12 * along[-1]
        out.append(
            slice(
                int(start + np.searchsorted(along, first + rounding, side="right")),
                int(start + np.searchsorted(along, last - rounding, side="left")),
            )
        )
    return out


def warn_of_joins(joined: Junctions) -> None:
    """Warn of edges of roads that repeat another as parallel roads, and of wide crossings.

    Warns:
        DuplicateRoadsWarning: If edges repeat another. The message has their number and the first.
        WideCrossingWarning: If snapping joined points that are more than three tolerances apart.

    Examples:
        >>> import warnings, graphs
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     _ = graphs.RoadNetwork.from_lines([[(0, 0), (1, 1)]] * 2, metric="euclidean")
        >>> caught[0].category.__name__
        'DuplicateRoadsWarning'
    """
    if joined.width > MAX_WIDTH:
        warn(
            WideCrossingWarning(
                "snap must be well below the distance of neighboring crossings, got one that joins a chain of points "
                f"up to {joined.width:.3g} tolerances apart. Use a smaller one."
            )
        )
    roads = joined.repeats
    if len(roads):
        several = len(roads) > 1
        subject = f"{len(roads)} edges of roads repeat another, the first" if several else "1 edge repeats another,"
        warn(
            DuplicateRoadsWarning(
                f"{subject} on road {roads[0]}. Copies count as parallel roads. "
                'Pass duplicates="merge" to count them as one road.'
            )
        )


def check_isolated(
    joined: Junctions,
    snap: float = 0.0,
    lengths: Floats | None = None,  # (R,)
) -> None:
    """Check that roads without length meet a road with a length.

    Args:
        joined: The roads.
        snap: The tolerance with which they were joined.
        lengths: The lengths (R,) of their lines. If None, no road was closed by the tolerance.

    Raises:
        InvalidGraphError: If one does not. The message says whether the tolerance closed it.

    Examples:
        >>> import graphs
        >>> graphs.RoadNetwork.from_lines([[(0, 0), (0, 0)]], metric="euclidean")
        Traceback (most recent call last):
        graphs.errors.InvalidGraphError: Road 0 must have a length or meet another road, got neither. Drop it.
    """
    edges = joined.edges
    is_long = joined.lengths[edges.road] > 0
    met = np.zeros(len(joined.coordinates), dtype=bool)
    met[edges.source[is_long]] = met[edges.target[is_long]] = True
    if met.all():
        return
    road = int(edges.road[~met[edges.source]][0])
    if lengths is not None and lengths[road] > 0:
        raise InvalidGraphError(
            f"snap must not close road {road} of length {lengths[road]:.3g} to a point that no other road meets, got "
            f"snap={snap:g}. Use a smaller tolerance, or drop the road."
        )
    raise InvalidGraphError(f"Road {road} must have a length or meet another road, got neither. Drop it.")


def _read_sensors(sensor_edges: ArrayLike, sensor_fractions: ArrayLike, count: int) -> tuple[Integers, Floats]:
    """Return the roads (S,) and fractions (S,) of sensors, checked."""
    roads, fractions = read_integers(sensor_edges, "The roads of sensors"), as_numbers(sensor_fractions)
    counted = isinstance(sensor_fractions, Sized) and roads.ndim == 1 and roads.shape == fractions.shape
    if not counted or len(cast(Sized, sensor_fractions)) != len(roads):
        raise InvalidArgumentError(
            f"sensor_fractions must be a number for each of the sensor_edges {roads.shape}, got "
            f"{short_repr(sensor_fractions)}."
        )
    _check_sensors(roads, fractions, count)
    return roads, fractions


def _check_sensors(roads: Integers, fractions: Floats, count: int) -> None:
    wrong = (roads < 0) | (roads >= count)
    if wrong.any():
        raise InvalidGraphError(
            f"Sensor {int(wrong.argmax())} must lie on one of the roads 0..{count - 1}, got {roads[wrong][0]}."
        )
    wrong = ~((fractions >= 0) & (fractions <= 1))
    if wrong.any():
        raise InvalidGraphError(
            f"Sensor {int(wrong.argmax())} must lie at a fraction in [0, 1] of its road, got {fractions[wrong][0]}."
        )


def _position_numbers(located: EdgeLocations) -> Integers:  # (S,)
    """Return a number for each sensor, equal for sensors at the same position."""
    inner = located.vertex < 0
    group = np.where(inner, located.edge, -1)
    where = np.where(inner, located.fraction, located.vertex)
    order = np.lexsort((where, group))
    steps = (np.diff(group[order], prepend=-2) != 0) | (np.diff(where[order], prepend=0.0) > POSITION_TOLERANCE)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(steps)
    return number


def _check_distinct(located: EdgeLocations) -> None:
    """Check that no two sensors share a position."""
    _, first, counts = np.unique(_position_numbers(located), return_index=True, return_counts=True)
    if (counts > 1).any():
        raise InvalidGraphError(
            f"Sensors must have distinct positions, got sensor {int(first[counts.argmax()])} at that of another. "
            "Use one sensor there and observe it twice."
        )
