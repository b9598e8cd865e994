"""Road networks: metric graphs with the geometry of their roads, and their division at crossings and sensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import dijkstra

from graphs.arrays import as_numbers, component_of_nodes, first_of_each, read_integers
from graphs.builders.edges import EdgeArrays, relative_to_mean
from graphs.builders.lines import MAX_COORDINATE, Junctions, Lines, RoadEdges, check_lines, check_positions, read_points
from graphs.builders.road_files import Roads, read_roads
from graphs.builders.snapping import MAX_WIDTH
from graphs.checks import check_fits, counted, non_negative, short_repr
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


class NearestPositions(NamedTuple):
    """The positions on roads that are nearest to n points.

    Examples:
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> roads.nearest([(1.0, 0.2)]).positions.tolist()
        [[0.0, 0.25]]
    """

    positions: Floats  # (n, 2) of (road, fraction)
    distances: Floats  # (n,) from the points, in meters or the units of the plane


class Segments(NamedTuple):
    """The P segments of roads that are divided at positions, and their vertices.

    Examples:
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> graphs.RoadField(roads, cuts=[(0, 0.25)]).segments.length.tolist()
        [1.0, 3.0]
    """

    edges: RoadEdges  # P of them with a length, ordered along roads
    length: Floats  # (P,)
    coordinates: Floats  # (V, 2) of the vertices: those of the network, then new ones
    vertex: Integers  # (c,) the vertex of each requested position


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """R roads that meet at V vertices: crossings, free ends and junctions.

    A position is a pair (road, fraction): the number of a road, in the given order, and the fraction of its length from
    its first point. Vertices divide roads into the edges of the metric graph. Roads may be loops, and
    several may join the same vertices. A road without length is one vertex, and so is every position on it. Arrays are
    read-only. Roads have no direction: a field on a one-way street is correlated in both directions.

    Build it with `from_lines`, `from_roads` or `from_geojson`. `dataclasses.replace(network, lengths=...)` gives roads
    other lengths than those of their lines, such as travel times.

    Attributes:
        coordinates: Coordinates (V, 2) of the vertices: x and y, or longitude and latitude in degrees.
        edges: The S edges between vertices: `road`, `start` and `end` as fractions of the road, `source` and `target`,
            and the edge that each was merged into (`representative`, `is_reversed`).
        lengths: Lengths (R,) of the roads, in meters for "haversine", otherwise in the units of the plane. A length is
            0 only if all vertices of the road are the same.
        lines: The geometry of the roads, with their metric.

    Examples:
        >>> import graphs
        >>> ways = [[(1, 0), (1, 1), (1, 2)], [(0, 1), (1, 1), (2, 1)]]  # share the point (1, 1)
        >>> roads = graphs.RoadNetwork.from_lines(ways, metric="euclidean")
        >>> roads, roads.degrees.tolist()
        (RoadNetwork(2 roads, 5 vertices, length 4), [1, 4, 1, 1, 1])
        >>> roads.distance([(0, 0.0)], [(1, 1.0)]).tolist()
        [[2.0]]
        >>> roads.num_roads, roads.num_vertices, roads.total_length, roads.starts.tolist(), roads.ends.tolist()
        (2, 5, 4.0, [0, 3], [2, 4])
        >>> roads.edge_lengths.tolist(), roads.point([(0, 0.25)]).tolist(), roads.read_positions([(1, 0.5)])
        ([1.0, 1.0, 1.0, 1.0], [[1.0, 0.5]], (array([1]), array([0.5])))
    """

    coordinates: Floats
    edges: RoadEdges
    lengths: Floats
    lines: Lines

    def __post_init__(self) -> None:
        lengths = as_numbers(self.lengths)
        if lengths.shape != (self.num_roads,) or not ((lengths >= 0) & (lengths < np.inf)).all():
            raise InvalidGraphError(
                f"lengths must be a number of at least 0 for each of the {counted(self.num_roads, 'road')}, got "
                f"{short_repr(self.lengths)}."
            )
        wrong = (lengths[self.edges.road] == 0) & (self.edges.source != self.edges.target)
        if wrong.any():
            road = self.edges.road[wrong][0]
            raise InvalidGraphError(
                f"Road {road} must have a positive length between its two vertices, got 0. Join them, with snap=, or "
                "leave the road out."
            )
        self.edges.check_met(lengths)
        object.__setattr__(self, "lengths", lengths)
        for array in (self.coordinates, lengths, *self.edges, *self.lines[:3]):
            array.flags.writeable = False

    @classmethod
    def from_lines(
        cls,
        lines: Sequence[ArrayLike],  # each (points, 2), or (points, 3)
        *,
        metric: str = "haversine",
        snap: float = 0.0,
        duplicates: str = "parallel",
    ) -> Self:
        """Build a network from line strings, which meet at points that they share.

        Lines that cross between their points do not meet, since a bridge is not a crossing. Roads keep the numbers of
        their lines. Repeated points change nothing. A line of equal points is the vertex of another road at that point.

        Args:
            lines: Line strings, each (points, 2), of at least two points. They may all be (points, 3), with heights in
                the unit of lengths: points with different heights do not meet, as on a bridge and the road below, and
                lengths stay horizontal.
            metric: "haversine" for longitude and latitude in degrees, with lengths in meters, or "euclidean".
            snap: Points of lines within this distance meet, in meters or the units of the plane, heights included.
                Nearby vertices become one, and so do a vertex and a point of another line, or two points of different
                lines that are mutually nearest. A road of at most three tolerances whose ends are joined becomes a
                single vertex. Lengths remain those of the lines.
            duplicates: Treatment of lines, or edges between vertices, with the same points in either direction.
                "parallel" keeps them as separate roads, whose values agree at vertices only, and warns. "merge" makes
                them one road.

        Raises:
            InvalidGraphError: If there are no roads, lines are invalid, coordinates are not degrees, or a road
                without length meets no other.
            InvalidArgumentError: If the metric or `duplicates` is unknown, or the tolerance is not a number of at least
                0.

        Warns:
            DuplicateRoadsWarning: If there are parallel edges with the same points.
            WideCrossingWarning: If the tolerance joins points that are far apart.

        Examples:
            >>> import graphs
            >>> lines = [[(0, 0), (1, 0)], [(1.01, 0), (2, 0)]]
            >>> graphs.RoadNetwork.from_lines(lines, metric="euclidean", snap=0.05)
            RoadNetwork(2 roads, 3 vertices, length 1.99)
        """
        network, joined = cls._joined(lines, metric, snap, duplicates)
        _warn_of_joins(joined)
        return network

    @classmethod
    def _joined(cls, lines: Sequence[ArrayLike], metric: str, snap: float, duplicates: str) -> tuple[Self, Junctions]:
        """Return the network of `from_lines` without its warnings, and its junctions."""
        flat = Lines.of(check_lines(lines), metric)
        joined = flat.join(snap, duplicates)
        return cls(joined.coordinates, joined.edges, joined.lengths, flat), joined

    @classmethod
    def from_roads(cls, roads: Roads) -> Self:
        """Build a network from the result of `graphs.read_roads`.

        Its sensors are at (sensor_edges, sensor_fractions).

        Args:
            roads: The roads, for example of `graphs.read_roads`.

        Raises:
            InvalidGraphError: As for `from_lines`.
            InvalidArgumentError: If the argument is not `graphs.Roads`.

        Examples:
            >>> import numpy as np
            >>> import graphs
            >>> line = np.array([(0.0, 0.0), (2.0, 0.0)])
            >>> roads = graphs.Roads([line], np.array([0]), np.array([0.5]), np.array([3.5]), metric="euclidean")
            >>> graphs.RoadNetwork.from_roads(roads).point([(0, 0.5)]).tolist()  # its sensor
            [[1.0, 0.0]]
        """
        if not isinstance(roads, Roads):
            raise InvalidArgumentError(f"roads must be graphs.Roads, got {short_repr(roads)}. Use from_lines instead.")
        return cls.from_lines(roads.lines, metric=roads.metric, snap=roads.snap, duplicates=roads.duplicates)

    @classmethod
    def from_geojson(
        cls,
        path: str | Path,
        *,
        metric: str | None = None,
        snap: float = 0.0,
        duplicates: str = "parallel",
        skip: bool = False,
    ) -> Self:
        """Build a network from the LineStrings and MultiLineStrings of a GeoJSON file.

        Roads are in the order of the file. Points are ignored. Heights are read as by `graphs.read_roads`.

        Args:
            path: A GeoJSON file, or an R data file (.rda); see `graphs.read_roads`.
            metric: As for `from_lines`. If None, it follows from the `crs` of the file, or is "haversine" without one.
            snap: As for `from_lines`.
            duplicates: As for `from_lines`.
            skip: Whether to skip features that are neither lines nor points.

        Raises:
            FileFormatError: If the file is missing or has other content.
            InvalidGraphError: As for `from_lines`.

        Examples:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import graphs
            >>> line = '{"type": "Feature", "geometry": {"type": "LineString", "coordinates": [[0, 0], [3, 4]]}}'
            >>> path = Path(tempfile.mkdtemp()) / "roads.geojson"
            >>> _ = path.write_text(f'{{"type": "FeatureCollection", "features": [{line}]}}')
            >>> graphs.RoadNetwork.from_geojson(path, metric="euclidean")
            RoadNetwork(1 road, 2 vertices, length 5)
        """
        return cls.from_roads(read_roads(path, None, metric, skip=skip)._replace(snap=snap, duplicates=duplicates))

    @property
    def num_roads(self) -> int:
        """The number R of roads."""
        return len(self.lines.first) - 1

    @property
    def num_vertices(self) -> int:
        """The number V of vertices."""
        return len(self.coordinates)

    @property
    def total_length(self) -> float:
        """The sum of the lengths of all edges; merged ones count once."""
        return float(self.edge_lengths[self.edges.is_distinct].sum())

    @property
    def starts(self) -> Integers:
        """The vertex (R,) at the first point of each road."""
        return np.asarray(self.edges.source[self.edges.start == 0])

    @property
    def ends(self) -> Integers:
        """The vertex (R,) at the last point of each road."""
        return np.asarray(self.edges.target[self.edges.end == 1])

    @property
    def edge_lengths(self) -> Floats:
        """The lengths (S,) of the edges, in the units of `lengths`."""
        return self.edges.sizes(self.lengths)

    @property
    def degrees(self) -> Integers:
        """The number (V,) of ends of edges at each vertex; a loop has 2.

        Parallel edges count, but not edges without length or merged into another.
        """
        used = self.edges.has_length(self.lengths)
        ends = np.concatenate([self.edges.source[used], self.edges.target[used]])
        return np.bincount(ends, minlength=self.num_vertices)

    @cached_property
    def components(self) -> NDArray[np.int32]:
        """The connected component (V,) of each vertex, numbered from 0."""
        return component_of_nodes(self.edges.source, self.edges.target, self.num_vertices)

    def read_positions(
        self,
        positions: ArrayLike,  # (n, 2)
    ) -> tuple[Integers, Floats]:  # (n,), (n,)
        """Return the roads (n,) and fractions (n,) of n positions (n, 2).

        Args:
            positions: Positions (n, 2): the number of the road and a fraction of its length.

        Raises:
            InvalidArgumentError: If the shape is wrong, a road does not exist, or a fraction is outside [0, 1].
        """
        given = as_numbers(positions)
        given = given.reshape(0, 2) if given.size == 0 and np.size(np.asarray(positions, dtype=object)) == 0 else given
        if given.ndim != 2 or given.shape[1] != 2:
            raise InvalidArgumentError(f"Positions must be (n, 2) pairs (road, fraction), got {short_repr(positions)}.")
        road, fraction = given.T
        check_positions("Position", road, fraction, self.num_roads, InvalidArgumentError)
        return road.astype(np.int64), fraction + 0.0

    def point(
        self,
        positions: ArrayLike,  # (n, 2)
    ) -> Floats:  # (n, 2)
        """Return the coordinates (n, 2) of n positions on the lines of their roads.

        Args:
            positions: Positions (n, 2): the number of the road and a fraction of its length.

        Raises:
            InvalidArgumentError: As for `read_positions`.
        """
        return self.lines.interpolate(*self.read_positions(positions))

    def split(
        self,
        road: Integers,  # (c,)
        fraction: Floats,  # (c,)
    ) -> "Segments":
        """Return the segments of roads that are divided at positions.

        Args:
            road: The roads (c,) of the positions.
            fraction: Their fractions (c,) of the lengths of the roads.

        Examples:
            >>> import numpy as np
            >>> import graphs
            >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
            >>> roads.split(np.array([0]), np.array([0.25])).length.tolist()
            [1.0, 3.0]
        """
        cut = self.edges.split(road, fraction, self.lengths)
        coordinates = np.concatenate([self.coordinates, self.lines.interpolate(cut.road, cut.fraction)])
        return Segments(cut.edges, cut.edges.sizes(self.lengths), coordinates, cut.vertex)

    def nearest(
        self,
        coordinates: ArrayLike,  # (n, 2)
        *,
        within: float | None = None,
    ) -> NearestPositions:
        """Return the positions on roads that are nearest to n points, with distances.

        Ties go to the first road.

        Args:
            coordinates: Points (n, 2), in the coordinates of the vertices.
            within: The largest distance allowed, in meters or the units of the plane. If None, 500 m on the globe and a
                tenth of the diagonal of the bounding box of the roads in a plane. `math.inf` allows any.

        Raises:
            InvalidArgumentError: If coordinates are not finite numbers of this shape or not degrees, the limit is not
                positive, or a point is farther away.

        Examples:
            >>> import graphs
            >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
            >>> roads.nearest([(1.0, 0.2)])
            NearestPositions(positions=array([[0.  , 0.25]]), distances=array([0.2]))
        """
        points = read_points(coordinates, 2, MAX_COORDINATE, "roads")
        is_globe, limit = self.lines.metric == "haversine", self.lines.limit(within)
        if is_globe and (np.abs(points) > (360, 90)).any():
            raise InvalidArgumentError(
                f"Points must be longitudes and latitudes in degrees, got {short_repr(coordinates)}."
            )
        if len(points) == 0:
            return NearestPositions(np.zeros((0, 2)), np.zeros(0))
        nearest = self.lines.project(points)
        if (nearest.distance > limit).any():
            i, unit = int((nearest.distance > limit).argmax()), " m" * is_globe
            raise InvalidArgumentError(
                f"Point {i} must lie within {limit:,.6g}{unit} of a road, got {nearest.distance[i]:,.6g}{unit}. Are "
                f"both in the same coordinates{', longitude before latitude' * is_globe}? Pass within= to allow more."
            )
        return NearestPositions(np.stack([nearest.line.astype(np.float64), nearest.fraction], axis=1), nearest.distance)

    def distance(
        self,
        first: ArrayLike,  # (n, 2)
        second: ArrayLike,  # (m, 2)
    ) -> Floats:  # (n, m)
        """Return lengths (n, m) of shortest paths along roads, infinity without a path.

        Args:
            first: Positions (n, 2) on roads.
            second: Positions (m, 2) on roads.

        Raises:
            InvalidArgumentError: As for `read_positions`.
            MemoryBudgetError: If paths from the first positions to all vertices do not fit into memory.
        """
        edges = self.edges
        (edge, fraction), (other, other_fraction) = self._along_edges(first), self._along_edges(second)
        lengths = self.edge_lengths
        sides = [(edges.source, fraction, other_fraction), (edges.target, 1 - fraction, 1 - other_fraction)]
        size = (self.num_vertices, self.num_vertices)
        low, high = np.minimum(edges.source, edges.target), np.maximum(edges.source, edges.target)
        order = np.lexsort((lengths, high, low))
        order = order[(low != high)[order] & edges.is_distinct[order]]
        chosen = order[first_of_each(low[order] * self.num_vertices + high[order])[0]]
        links = sp.csr_array((lengths[chosen], (low[chosen], high[chosen])), shape=size)
        direct = np.abs(fraction[:, None] - other_fraction[None]) * lengths[edge][:, None]
        out = np.where(edge[:, None] == other[None], direct, np.inf)
        for vertex, before, _ in sides:
            at, row = np.unique(vertex[edge], return_inverse=True)
            check_fits("The shortest paths", 8.0 * len(at) * self.num_vertices, "Ask for fewer positions at a time.")
            paths = dijkstra(links, directed=False, indices=at) if len(at) else np.zeros((0, self.num_vertices))
            start = (before * lengths[edge])[:, None]
            for target, _, after in sides:
                end = (after * lengths[other])[None]
                out = np.minimum(out, start + paths[row.reshape(-1)][:, target[other]] + end)
        return out

    def _along_edges(self, positions: ArrayLike) -> tuple[Integers, Floats]:
        """Return the edges (n,) of positions, and fractions (n,) of their lengths."""
        edge, fraction, _ = self.edges.locate(*self.read_positions(positions), self.lengths)
        start, end = self.edges.start[edge], self.edges.end[edge]
        return edge, (fraction - start) / (end - start)

    def __repr__(self) -> str:
        unit, num_components = " m" if self.lines.metric == "haversine" else "", int(self.components.max()) + 1
        counts = f"{counted(self.num_roads, 'road')}, {counted(self.num_vertices, 'vertex', 'vertices')}"
        components = f", {num_components} connected components" * (num_components > 1)
        return f"RoadNetwork({counts}{components}, length {self.total_length:,.6g}{unit})"


def _warn_of_joins(joined: Junctions) -> None:
    """Warn of edges of roads that repeat another as parallel roads, and of wide crossings."""
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


# --- Roads as a graph of crossings and sensors, and the segments between them --------------------------------------


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
    non_negative("min_length", min_length)
    network = RoadNetwork.from_lines(lines, metric=metric, snap=snap, duplicates=duplicates)
    cut = _split(network, sensor_edges, sensor_fractions)
    segments = [segment for segment in cut.segments if segment.source != segment.target]
    distance = np.array([segment.length for segment in segments])
    mean = distance.mean() if len(segments) else 1.0
    weights = relative_to_mean(np.maximum(distance, min_length * mean), mean, lambda _: _too_short(distance))
    ends = np.array([(segment.source, segment.target) for segment in segments], dtype=np.int64).reshape(-1, 2)
    _warn_of_components(ends, len(cut.labels), len(np.atleast_1d(np.asarray(sensor_edges))))
    return EdgeArrays(len(cut.labels), ends[:, 0], ends[:, 1], weights, cut.labels, cut.coordinates)


def _too_short(distance: Floats) -> InvalidGraphError:
    return InvalidGraphError(
        f"Lengths of road segments must be in the range of double precision, got {distance.min():.3g} and "
        f"{distance.max():.3g}. Pass min_length=, or drop short roads."
    )


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
    network = RoadNetwork._joined(lines, metric, snap, duplicates)[0]
    return _split(network, sensor_edges, sensor_fractions)


def _split(
    network: RoadNetwork,
    sensor_edges: ArrayLike,  # (S,)
    sensor_fractions: ArrayLike,  # (S,)
) -> SplitRoads:
    """Return the nodes and segments of a network with sensors."""
    roads, fractions = read_integers(sensor_edges, "The roads of sensors"), as_numbers(sensor_fractions)
    if roads.ndim != 1 or not roads.shape == fractions.shape == np.asarray(sensor_fractions, dtype=object).shape:
        raise InvalidArgumentError(
            f"sensor_fractions must be a number for each of the sensor_edges {roads.shape}, got "
            f"{short_repr(sensor_fractions)}."
        )
    check_positions("Sensor", roads, fractions, network.num_roads, InvalidGraphError)
    cut = network.split(roads, fractions)
    _, first, counts = np.unique(cut.vertex, return_index=True, return_counts=True)
    if (counts > 1).any():
        raise InvalidGraphError(
            f"Sensors must have distinct positions, got sensor {int(first[counts.argmax()])} at that of another. "
            "Use one sensor there and observe it twice."
        )
    is_crossing = np.ones(len(cut.coordinates), dtype=bool)
    is_crossing[cut.vertex] = False
    crossings = np.flatnonzero(is_crossing)
    node = np.cumsum(is_crossing) - 1
    node[cut.vertex] = len(crossings) + np.arange(len(roads))
    labels = (*(f"crossing-{i}" for i in crossings), *(f"sensor-{i}" for i in range(len(roads))))
    coordinates = np.concatenate([network.coordinates[crossings], network.lines.interpolate(roads, fractions)])
    at_sensors = np.stack([roads.astype(np.float64), fractions], axis=1)
    positions = np.concatenate([_positions(network.edges)[crossings], at_sensors])
    edges = cut.edges._replace(source=node[cut.edges.source], target=node[cut.edges.target])
    return SplitRoads(labels, coordinates, _segments(network.lines, edges, cut.length, coordinates), positions)


def _positions(edges: RoadEdges) -> Floats:  # (V, 2)
    """Return the first position (road, fraction) of each vertex, road after road."""
    roads, fractions = np.repeat(edges.road, 2), np.stack([edges.start, edges.end], axis=1).reshape(-1)
    first = np.unique(np.stack([edges.source, edges.target], axis=1).reshape(-1), return_index=True)[1]
    return np.stack([roads.astype(np.float64), fractions], axis=1)[first]


def _segments(lines: Lines, edges: RoadEdges, length: Floats, coordinates: Floats) -> list[RoadSegment]:
    """Return the segments of edges between nodes at coordinates (N, 2)."""
    inside = lines.points_inside(edges.road, edges.start, edges.end)
    columns = (edges.source, edges.target, length, edges.road, edges.start, edges.end, *inside)
    out = []
    for source, target, size, road, start, end, first, last in zip(*(c.tolist() for c in columns), strict=True):
        shape = np.concatenate([coordinates[source][None], lines.points[first:last], coordinates[target][None]])
        out.append(RoadSegment(source, target, size, shape, road, start, end))
    return out
