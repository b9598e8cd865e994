"""Line strings in flat arrays, positions on them, and the edges into which their junctions divide them.

1. `Lines`: lengths, points at fractions of lines (`interpolate`), and the nearest positions (`project`).
2. `RoadEdges`: the edge or vertex of a position (`locate`), and edges that are divided at positions (`split`).
3. `Lines.join`: the vertices at which lines meet, and the edges between them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers, component_of_nodes, first_of_each, last_before, pointers, ranks
from graphs.builders.snapping import MAX_WIDTH, LinePoints, snapped_vertices
from graphs.checks import check_choice, is_number, non_negative, short_repr
from graphs.errors import GraphError, InvalidArgumentError, InvalidGraphError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

EARTH_RADIUS = 6_371_008.8
"""The mean radius in meters."""
DUPLICATES = ("parallel", "merge")
"""Treatments of edges that repeat another: separate parallel roads, or the same road."""
POSITION_TOLERANCE = 1e-12
"""The distance below which positions are equal, as a fraction of the length of a road, above rounding errors."""
DEFAULT_LIMIT_FRACTION = 0.1
"""The default limit of distances from lines in a plane and from surfaces, in diagonals of the bounding box."""
DEFAULT_LIMIT_METERS = 500.0
"""The default limit of distances from lines on the globe, in meters."""
MAX_COORDINATE = 1e100
"""The largest coordinate of a point, so that squared distances stay in the range of double precision."""
_BLOCK = 2**14
"""The number of points that are projected at once."""
_MAX_PAIRS = 2**22
"""The number of pairs of points and segments that are compared at once."""
_CHORD = 1000.0
"""The longest chord on the globe, in meters."""
_SLACK = 1e-9
"""The relative tolerance of distances, for rounding errors."""


class Lines(NamedTuple):
    """R lines with M points in all, one line after another.

    A position is a line and a fraction of its length. Segments between points are straight in the coordinates. A
    segment across the 180th meridian goes the short way.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import Lines
        >>> lines = Lines.of([np.array([(0.0, 0.0), (3.0, 4.0)])], "euclidean")
        >>> lines.lengths.tolist(), lines.interpolate(np.array([0]), np.array([0.5])).tolist()
        ([5.0], [[1.5, 2.0]])
        >>> lines.project(np.array([(1.0, 2.0)])).fraction.round(12).tolist()
        [0.44]
        >>> lines.join().edges.target.tolist()
        [1]
    """

    points: Floats  # (M, 2): x and y, or longitude and latitude in degrees
    first: Integers  # (R + 1,) line r has the points first[r] to first[r + 1] - 1
    reached: Floats  # (M,) the length of the line up to a point, in meters or the units of the plane
    metric: str  # "haversine" or "euclidean"
    heights: Floats | None = None  # (M,) of the points, which tell a bridge from the road below; lengths ignore them

    @classmethod
    def of(
        cls,
        shapes: Sequence[Floats],  # each (points, 2), or all (points, 3)
        metric: str,
    ) -> Self:
        """Return R lines, each (points, 2) or all (points, 3), as flat arrays.

        Args:
            shapes: The points of each line, (points, 2), or (points, 3) with heights.
            metric: "haversine" for degrees, or "euclidean".

        Raises:
            InvalidArgumentError: If the metric is unknown.
            InvalidGraphError: If coordinates are not degrees, for "haversine".
        """
        first = pointers(np.array([len(shape) for shape in shapes]))
        points, heights = np.concatenate(shapes), None
        if points.shape[1] == 3:
            points, heights = points[:, :2], points[:, 2]
        if metric == "haversine" and (np.abs(points[:, 1]).max() > 90 or np.abs(points[:, 0]).max() > 360):
            wrong = tuple(points[np.abs(points[:, 1]).argmax()].tolist())
            raise InvalidGraphError(
                f"Coordinates must be longitude and latitude in degrees, got {wrong}. "
                'Pass metric="euclidean" for coordinates in a plane.'
            )
        with np.errstate(under="ignore", over="ignore"):
            steps = np.concatenate(([0.0], _distances(points[:-1], points[1:], metric)))
        steps[first[:-1]] = 0.0
        for start, stop in pairwise(first.tolist()):  # one by one, so that no line is rounded by those before it
            np.cumsum(steps[start:stop], out=steps[start:stop])
        return cls(points, first, steps, metric, heights)

    @property
    def lengths(self) -> Floats:
        """The lengths (R,) of the lines."""
        return self.reached[self.first[1:] - 1]

    @property
    def diagonal(self) -> float:
        """The diagonal of the bounding box of all points, in space on the globe."""
        return float(np.linalg.norm(np.ptp(_in_space(self.points, self.metric), axis=0)))

    def limit(self, within: float | None) -> float:
        """Return the largest distance at which a point is matched to a line.

        It is in meters on the globe and in the units of the coordinates in a plane.

        Args:
            within: The limit, or infinity for none. If None, 500 m, or in a plane a tenth of the diagonal of the
                bounding box.

        Raises:
            InvalidArgumentError: If `within` is not a positive number.
        """
        if within is None:
            return DEFAULT_LIMIT_METERS if self.metric == "haversine" else DEFAULT_LIMIT_FRACTION * self.diagonal
        check_limit(within)
        return within

    @np.errstate(under="ignore")
    def interpolate(
        self,
        line: Integers,  # (n,)
        fraction: Floats,  # (n,)
    ) -> Floats:  # (n, 2)
        """Return the points (n, 2) at fractions of the lengths of lines.

        Args:
            line: The numbers (n,) of the lines.
            fraction: Fractions (n,) of their lengths.
        """
        target = fraction * self.lengths[line]
        before = last_before(self.reached, self.first[line], self.first[line + 1] - 2, target)
        span = self.reached[before + 1] - self.reached[before]
        along = np.clip((target - self.reached[before]) / np.where(span > 0, span, 1.0), 0.0, 1.0)
        return self._between(before, along)

    def points_inside(
        self,
        line: Integers,  # (n,)
        start: Floats,  # (n,)
        end: Floats,  # (n,)
    ) -> tuple[Integers, Integers]:  # (n,), (n,)
        """Return the first point inside parts of lines, and the first one that is not before their ends.

        Args:
            line: The lines (n,).
            start: The fractions (n,) of their lengths at which the parts start.
            end: The fractions (n,) at which they end.
        """
        length, first, last = self.lengths[line], self.first[line], self.first[line + 1] - 1
        after = last_before(self.reached, first, last, (start + POSITION_TOLERANCE) * length) + 1
        below = np.nextafter((end - POSITION_TOLERANCE) * length, -np.inf)
        return after, last_before(self.reached, first, last, below) + 1

    @np.errstate(under="ignore")
    def project(
        self,
        points: Floats,  # (n, 2)
    ) -> "LineProjections":
        """Return the nearest position on any line for n points; ties go to the first line.

        Each straight segment is sampled at its ends and between them, such that neighboring samples are at most h
        apart. If the nearest sample of a point is at distance d, its nearest point on a line is no farther away and
        within h / 2 of a sample. So the segment is among those with a sample within d + h / 2 of the point.

        On the globe segments are split into chords of at most a kilometer. Chords are 2 cm from the globe, and some
        centimeters from the segment outside of polar regions. Distances are those of the positions, along the globe.

        Args:
            points: Points (n, 2), in the coordinates of the lines.
        """
        from scipy.spatial import cKDTree

        chords, queries = self._chords(), _in_space(points, self.metric)
        owner, samples, apart = _sampled(chords.starts, chords.ends)
        tree = cKDTree(samples)
        rounding = 8 * np.finfo(np.float64).eps * max(np.abs(chords.starts).max(), np.abs(queries).max())
        starts, fractions = [], []
        for block in np.array_split(queries, max(1, -(-len(queries) // _BLOCK))):
            reach = tree.query(block)[0] * (1 + _SLACK) + apart / 2
            counts = np.asarray(tree.query_ball_point(block, reach, return_length=True))
            full = np.flatnonzero(np.diff(np.cumsum(counts) // _MAX_PAIRS)) + 1
            for rows in np.split(np.arange(len(block)), full):
                groups = tree.query_ball_point(block[rows], reach[rows])
                row = np.repeat(np.arange(len(rows)), [len(group) for group in groups])
                near = owner[np.array([sample for group in groups for sample in group], dtype=np.int64)]
                distance, along = _projected(block[rows][row], chords.starts[near], chords.ends[near])
                best = _first_least(row, distance, near, rounding)
                low, high = chords.low[near[best]], chords.high[near[best]]
                starts.append(chords.point[near[best]])
                fractions.append(low + along[best] * (high - low))
        point, along = np.concatenate(starts), np.concatenate(fractions)
        line = np.searchsorted(self.first, point, side="right") - 1
        reached = self.reached[point] + along * (self.reached[point + 1] - self.reached[point])
        length = self.lengths[line]
        fraction = np.minimum(reached / np.where(length > 0, length, 1.0), 1.0)
        distance = _distances(points, self.interpolate(line, fraction), self.metric)
        return LineProjections(line, fraction, distance)

    def distinct_points(self) -> LinePoints:
        """Return the points of lines that differ from the point before, with the number of their coordinates.

        Coordinates are equal if they are the same place, as longitudes of -180 and 180 degrees, at the same height.
        """
        places = self.points + 0.0  # -0 is 0
        if self.metric == "haversine":
            longitude = places[:, 0]
            longitude[longitude >= 180] -= 360
            longitude[longitude < -180] += 360
            longitude[np.abs(places[:, 1]) == 90] = 0.0
        pairs = np.ascontiguousarray(places).view(np.complex128).reshape(-1)
        site = np.unique(pairs, return_inverse=True)[1].reshape(-1)
        if self.heights is not None:
            distinct, height = np.unique(self.heights + 0.0, return_inverse=True)
            site = np.unique(site * len(distinct) + height.reshape(-1), return_inverse=True)[1].reshape(-1)
        line = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        kept = np.flatnonzero((np.diff(line, prepend=-1) > 0) | (np.diff(site, prepend=-1) != 0))
        line, site = line[kept], site[kept]
        is_end = (np.diff(line, prepend=-1) != 0) | (np.diff(line, append=-1) != 0)
        return LinePoints(kept, line, site, is_end, self.reached[kept])

    def join(self, snap: float = 0.0, duplicates: str = "parallel") -> "Junctions":
        """Join lines at shared points, or at points within a tolerance.

        A point of a line is a vertex if it is an end of a line or if the line turns back there. It is also a vertex if
        it lies between different pairs of points. Lines therefore meet at interior points that they share, as ways do
        in OpenStreetMap. A street that is drawn twice has no vertices inside, and its copies are edges with the same
        points. Lines that cross between their points do not meet. If points have heights, those with equal coordinates
        and different heights are two places: a bridge and the road below.

        Vertices are numbered in the order in which lines reach them, and lie where the first line does.

        Args:
            snap: The largest distance of points that are joined, in meters or the units of the plane. 0 joins equal
                points only. The rules are those of `graphs.builders.snapping`.
            duplicates: "parallel" keeps edges with the same points as separate roads, "merge" makes them one.

        Raises:
            InvalidArgumentError: If the tolerance is not a number of at least 0, or `duplicates` is unknown.
            InvalidGraphError: If a length is infinite, or a line without length meets no other. The message says
                whether the tolerance closed it.
        """
        non_negative("snap", snap)
        check_choice("duplicates", duplicates, DUPLICATES)
        if not np.isfinite(self.lengths).all():
            wrong = int((~np.isfinite(self.lengths)).argmax())
            raise InvalidGraphError(f"Lengths must be finite, got an infinite one for road {wrong}. Use larger units.")
        points = self.distinct_points()
        is_vertex, label, width = _vertex_sites(points), points.site, 0.0
        chosen = np.flatnonzero(is_vertex[points.site])
        if snap > 0:
            first_points = points.point[np.unique(points.site, return_index=True)[1]]
            space = _in_space(self.points[first_points], self.metric)
            if self.heights is not None:
                space = np.column_stack([space, self.heights[first_points]])
            chosen, crossing, width = snapped_vertices(points, space, is_vertex, snap, self._chord(snap))
            label = np.where(crossing >= 0, int(points.site.max()) + 1 + crossing, points.site)
        stops = np.bincount(points.line[chosen], minlength=len(self.first) - 1)
        chosen = np.repeat(chosen, np.where(stops[points.line[chosen]] == 1, 2, 1))  # a single point is both ends
        kept, vertex = first_of_each(label[chosen])
        coordinates = self.points[points.point[chosen[kept]]]
        line, reached = points.line[chosen], points.reached[chosen]
        first = np.flatnonzero(line[1:] == line[:-1])
        road, total = line[first], self.lengths[line[first]]
        is_long = total > 0
        scale = np.where(is_long, total, 1.0)
        start = np.where(is_long, reached[first] / scale, np.where(np.diff(road, prepend=-1) > 0, 0.0, 1.0))
        end = np.where(is_long, reached[first + 1] / scale, 1.0)
        lengths = np.array(self.lengths)
        is_closed = (start == 0) & (end == 1) & (vertex[first] == vertex[first + 1]) & (total <= MAX_WIDTH * snap)
        lengths[road[is_closed]] = 0.0
        ends = vertex[first], vertex[first + 1]
        edges = RoadEdges(road, start, end, *ends, *_repeats(label, chosen[first], chosen[first + 1]))
        joined = _without_gaps(coordinates, lengths, edges, duplicates == "merge")._replace(width=width)
        joined.edges.check_met(lengths, self.lengths, snap)
        return joined

    def _between(self, before: Integers, along: Floats) -> Floats:  # (n, 2)
        """Return points at fractions (n,) of the segments after points (n,), straight in the coordinates."""
        starts, ends = self.points[before], self.points[before + 1]
        step = ends - starts
        if self.metric == "euclidean":
            return starts + along[:, None] * step
        turns = 360 * np.round(step[:, 0] / 360)
        step[:, 0] -= turns
        points = starts + along[:, None] * step
        longitude, crosses = points[:, 0], turns != 0
        seam = np.where(turns < 0, 180.0, -180.0)
        seam = np.where(np.maximum(starts[:, 0], ends[:, 0]) > 180, 360.0 * (turns < 0), seam)
        beyond = crosses & np.where(turns < 0, longitude > seam, longitude < seam)
        longitude[beyond] += turns[beyond]  # on the side of the nearer end
        return points

    def _chords(self) -> "_Chords":
        """Return the segments of lines, split into chords on the globe."""
        is_start = np.ones(len(self.points), dtype=bool)
        is_start[self.first[1:] - 1] = False
        point = np.flatnonzero(is_start)
        counts = np.ones(len(point), dtype=np.int64)
        if self.metric == "haversine":
            counts = np.maximum(1, np.ceil((self.reached[point + 1] - self.reached[point]) / _CHORD)).astype(np.int64)
        step = ranks(counts)
        point, counts = np.repeat(point, counts), np.repeat(counts, counts)
        low, high = step / counts, (step + 1) / counts
        starts, ends = (_in_space(self._between(point, along), self.metric) for along in (low, high))
        return _Chords(point, low, high, starts, ends)

    def _chord(self, distance: float) -> float:
        """Return the straight distance at a distance along the globe, or in the plane."""
        if self.metric == "euclidean":
            return float(distance)
        return float(2 * EARTH_RADIUS * np.sin(min(distance / (2 * EARTH_RADIUS), np.pi / 2)))


class LineProjections(NamedTuple):
    """The nearest positions on lines, with distances.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import Lines
        >>> lines = Lines.of([np.array([(0.0, 0.0), (4.0, 0.0)])], "euclidean")
        >>> lines.project(np.array([(1.0, 2.0)])).distance.tolist()
        [2.0]
    """

    line: Integers  # (n,)
    fraction: Floats  # (n,)
    distance: Floats  # (n,) meters along the globe, or the units of the plane


class _Chords(NamedTuple):
    """Straight segments (q,) in the plane or in space."""

    point: Integers  # (q,) the point of the lines at the start of the segment
    low: Floats  # (q,) fraction of the segment at which each chord starts
    high: Floats  # (q,)
    starts: Floats  # (q, c)
    ends: Floats  # (q, c)


def _sampled(starts: Floats, ends: Floats) -> tuple[Integers, Floats, float]:
    """Return segments (q,) of samples, the samples (q, c), and the spacing."""
    length = np.linalg.norm(ends - starts, axis=1)
    apart = float(length.mean())
    gaps = np.maximum(1, np.ceil(length / apart)).astype(np.int64) if apart > 0 else np.ones(len(length), dtype=int)
    owner = np.repeat(np.arange(len(starts)), gaps + 1)
    along = (ranks(gaps + 1) / gaps[owner])[:, None]
    return owner, starts[owner] + along * (ends - starts)[owner], apart * (1 + _SLACK)


def _projected(points: Floats, starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """Return distances (k,) of points from segments, and fractions (k,) along these."""
    steps = ends - starts
    squared = (steps**2).sum(1)
    along = np.clip(((points - starts) * steps).sum(1) / np.where(squared > 0, squared, 1.0), 0.0, 1.0)
    return np.linalg.norm(points - starts - along[:, None] * steps, axis=1), along


def _first_least(query: Integers, distance: Floats, segment: Integers, rounding: float) -> Integers:
    """Return for each point the row of least distance, of ties the first segment.

    Distances that differ by rounding are ties, since roads meet at crossings.
    """
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    least = np.minimum.reduceat(distance, starts)[query] * (1 + _SLACK) + rounding
    order = np.lexsort((segment, distance > least, query))
    return order[starts]


# --- Checks, and distances in the plane and on the globe -----------------------------------------------------------


def check_lines(
    lines: Sequence[ArrayLike],  # each (points, 2), or (points, 3)
) -> list[Floats]:
    """Return lines as arrays, each (points, 2), or all (points, 3) with heights.

    All points of a line may be equal.

    Args:
        lines: Line strings, each (points, 2), or each (points, 3).

    Raises:
        InvalidGraphError: If there are no lines, a line has fewer than two points or a coordinate that is not finite,
            or only some have heights.

    Examples:
        >>> from graphs.builders.lines import check_lines
        >>> check_lines([[(0, 0), (1, 1)]])[0].shape
        (2, 2)
    """
    if not isinstance(lines, Sequence | np.ndarray) or isinstance(lines, str):
        raise InvalidGraphError(f"Roads must be a list of lines, each (points, 2), got {short_repr(lines)}.")
    if len(lines) == 0:
        raise InvalidGraphError("lines must hold at least one road, got none. Pass at least one line.")
    shapes = [_check_line(i, line) for i, line in enumerate(lines)]
    without = [i for i, shape in enumerate(shapes) if shape.shape[1] == 2]
    if without and len(without) < len(shapes):
        raise InvalidGraphError(
            f"All roads must have heights as third coordinates, or none, got {len(without)} of {len(shapes)} without "
            f"(first road {without[0]}). Add them, or pass line[:, :2] for each."
        )
    return shapes


def _check_line(index: int, line: ArrayLike) -> Floats:
    shape = line.copy() if isinstance(line, np.ndarray) and line.dtype == np.float64 else as_numbers(line)
    if shape.ndim != 2 or shape.shape[0] < 2 or shape.shape[1] not in (2, 3):
        raise InvalidGraphError(
            f"Road {index} must have at least two points (longitude, latitude) of numbers, each with a height or "
            f"without, got {short_repr(line)}."
        )
    if not np.isfinite(shape).all():
        raise InvalidGraphError(f"Road {index} must have finite coordinates, got others.")
    return shape


def check_limit(within: Any) -> None:
    """Check that a limit of distances is a positive number, possibly infinite.

    Args:
        within: The limit.

    Raises:
        InvalidArgumentError: If it is not.

    Examples:
        >>> from graphs.builders.lines import check_limit
        >>> check_limit(0.5)
    """
    if not is_number(within) or not within > 0:
        raise InvalidArgumentError(
            f"within must be a positive number, got {short_repr(within)}. Use math.inf for no limit."
        )


_POSITIONS = "A position is a pair (road, fraction). Use network.nearest(points).positions for points in coordinates."
"""The remedy for points passed as positions."""


def check_positions(
    subject: str,
    road: NDArray[Any],  # (n,)
    fraction: Floats,  # (n,)
    num_roads: int,
    error: type[GraphError],
    remedy: str = _POSITIONS,
) -> None:
    """Check that roads exist and that fractions are in [0, 1].

    Args:
        subject: The word for a position in messages, such as "Sensor".
        road: The roads (n,).
        fraction: Fractions (n,) of their lengths.
        num_roads: The number of roads.
        error: The class of the error.
        remedy: What to do, for the message.

    Raises:
        GraphError: If a road does not exist, or a fraction is outside [0, 1].

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import check_positions
        >>> from graphs.errors import InvalidGraphError
        >>> check_positions("Sensor", np.array([0]), np.array([0.5]), 1, InvalidGraphError)
    """
    exists = (road >= 0) & (road < num_roads) & (road == np.floor(road))
    in_range = (fraction >= 0) & (fraction <= 1)
    for fits, given, place in (
        (exists, road, f"on one of the roads 0..{num_roads - 1}"),
        (in_range, fraction, "at a fraction in [0, 1] of its road"),
    ):
        if not fits.all():
            i = int(fits.argmin())
            raise error(f"{subject} {i} must lie {place}, got {given[i]:g}. {remedy}")


def read_points(
    points: ArrayLike,  # (n, d)
    dimension: int,
    largest: float,
    places: str,
) -> Floats:  # (n, d)
    """Return points as an array (n, d).

    Args:
        points: Points (n, d), or an empty list.
        dimension: The dimension d.
        largest: The bound of coordinates.
        places: The word for what has these coordinates, for messages.

    Raises:
        InvalidArgumentError: If points have another dimension, are not finite, or are out of range.

    Examples:
        >>> from graphs.builders.lines import read_points
        >>> read_points([(0, 1)], 2, 1e100, "vertices").tolist()
        [[0.0, 1.0]]
    """
    coordinates = as_numbers(points)
    if isinstance(points, list | tuple) and not points:
        coordinates = coordinates.reshape(0, dimension)
    if coordinates.ndim != 2 or coordinates.shape[1] != dimension:
        raise InvalidArgumentError(
            f"Points must be real numbers (n, {dimension}) like the {places}, got {short_repr(points)}."
        )
    wrong = ~(np.abs(coordinates) < largest).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidArgumentError(
            f"Point {row} must be finite and below {largest:g}, got {coordinates[row].tolist()}. Use the coordinates "
            f"of the {places}."
        )
    return coordinates


def _distances(starts: Floats, ends: Floats, metric: str) -> Floats:
    """Return the distances (n,) between points, in meters or the plane's units."""
    if metric == "euclidean":
        return np.asarray(np.linalg.norm(ends - starts, axis=1))
    if metric != "haversine":
        raise InvalidArgumentError(f'metric must be "haversine" or "euclidean", got {metric!r}.')
    (longitude, latitude), (other, upper) = np.radians(starts).T, np.radians(ends).T
    half = np.sin((upper - latitude) / 2) ** 2
    half = half + np.cos(latitude) * np.cos(upper) * np.sin((other - longitude) / 2) ** 2
    return np.asarray(2 * EARTH_RADIUS * np.arcsin(np.sqrt(np.minimum(half, 1.0))))


def _in_space(points: Floats, metric: str) -> Floats:
    """Return Cartesian coordinates: (n, 2) in the plane, (n, 3) meters on the globe."""
    if metric == "euclidean":
        return points
    longitude, latitude = np.radians(points).T
    circle = np.cos(latitude)
    return EARTH_RADIUS * np.stack([circle * np.cos(longitude), circle * np.sin(longitude), np.sin(latitude)], axis=1)


# --- Edges between vertices along lines ------------------------------------------------------------------------------


class EdgeLocations(NamedTuple):
    """The edges and vertices of n positions on roads.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (2, 0)]], metric="euclidean")
        >>> roads.edges.locate(np.array([0, 0]), np.array([0.5, 1.0]), roads.lengths).vertex.tolist()
        [-1, 1]
    """

    edge: Integers  # (n,) edges that represent themselves
    fraction: Floats  # (n,) of the length of the road of the edge
    vertex: Integers  # (n,) the vertex at an end of an edge, or on a road without length; otherwise -1


class RoadEdges(NamedTuple):
    """The S edges of a road network, which connect consecutive vertices along roads.

    A road without length is one edge from a vertex to itself.

    Examples:
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0), (4, 0)], [(1, 0), (1, 1)]], metric="euclidean")
        >>> roads.edges.road.tolist(), roads.edges.end.tolist()
        ([0, 0, 1], [0.25, 1.0, 1.0])
    """

    road: Integers  # (S,) ascending, each of 0..R-1 at least once
    start: Floats  # (S,) fraction of the length of the road at the start of the edge, 0 for the first edge of a road
    end: Floats  # (S,) fraction of the length of the road at the end of the edge, 1 for the last edge of a road
    source: Integers  # (S,) vertex at the first point
    target: Integers  # (S,) vertex at the last point
    representative: Integers  # (S,) the earlier edge that each was merged into, otherwise itself
    is_reversed: NDArray[np.bool_]  # (S,) whether an edge is opposite in direction to its representative

    def check(self, num_roads: int, num_vertices: int) -> None:
        """Check that the arrays describe edges of R roads between V vertices.

        Args:
            num_roads: The number R of roads.
            num_vertices: The number V of vertices.

        Raises:
            InvalidGraphError: If edges are not ordered along roads, do not divide each road, or do not match the
                vertices or their representatives.
        """
        count, opens = len(self.road), np.diff(self.road, prepend=-1)
        closes = np.append(opens[1:], 1)
        sized = count > 0 and all(len(part) == count for part in self)
        if not sized or ((opens != 0) & (opens != 1)).any() or self.road[-1] != num_roads - 1:
            raise InvalidGraphError(f"Edges must follow each other along {num_roads} roads, got another order.")
        follows = (self.start[1:] == self.end[:-1]) & (self.source[1:] == self.target[:-1])
        is_full = (self.start[opens == 1] == 0).all() and (self.end[closes == 1] == 1).all()
        if not (is_full and (follows | (opens[1:] == 1)).all() and (self.start < self.end).all()):
            raise InvalidGraphError("Edges must divide each road from fraction 0 to 1, one after the other.")
        used = np.unique(np.concatenate([self.source, self.target]))
        if not np.array_equal(used, np.arange(num_vertices)):
            raise InvalidGraphError(
                f"The ends of edges must be the vertices 0 to {num_vertices - 1}, got {len(used)} vertices from "
                f"{used.min(initial=0)} to {used.max(initial=0)}."
            )
        if (self.representative < 0).any() or (self.representative > np.arange(count)).any():
            raise InvalidGraphError("Edges must be represented by themselves or by earlier ones.")
        ends = np.stack([self.source, self.target])
        ends = np.where(self.is_reversed, ends[::-1], ends)
        theirs = np.stack([self.source, self.target])[:, self.representative]
        if not self.is_distinct[self.representative].all() or (ends != theirs).any():
            raise InvalidGraphError("Edges must have the ends of the edge that represents them.")

    def check_met(
        self,
        lengths: Floats,  # (R,)
        lines: Floats | None = None,  # (R,)
        snap: float = 0.0,
    ) -> None:
        """Check that roads without length meet a road with a length.

        Args:
            lengths: Lengths (R,) of the roads.
            lines: Lengths (R,) of their lines. If None, no road was closed by a tolerance.
            snap: The tolerance with which the lines were joined.

        Raises:
            InvalidGraphError: If one does not. The message says whether the tolerance closed it.
        """
        is_long = lengths[self.road] > 0
        is_alone = ~np.isin(self.source, np.concatenate([self.source[is_long], self.target[is_long]]))
        if not is_alone.any():
            return
        road = int(self.road[is_alone][0])
        if lines is not None and lines[road] > 0:
            raise InvalidGraphError(
                f"snap must not close road {road} of length {lines[road]:.3g} to a point that no other road meets, got "
                f"snap={snap:g}. Use a smaller tolerance, or drop the road."
            )
        raise InvalidGraphError(f"Road {road} must have a length or meet another road, got neither. Drop it.")

    def sizes(
        self,
        lengths: Floats,  # (R,)
    ) -> Floats:  # (S,)
        """Return the lengths (S,) of the edges.

        Args:
            lengths: Lengths (R,) of the roads.
        """
        return (self.end - self.start) * lengths[self.road]

    @property
    def is_distinct(self) -> NDArray[np.bool_]:
        """Whether each edge (S,) represents itself."""
        return np.asarray(self.representative == np.arange(len(self.road)))

    def has_length(
        self,
        lengths: Floats,  # (R,)
    ) -> NDArray[np.bool_]:  # (S,)
        """Return whether each edge has a length and represents itself.

        Args:
            lengths: Lengths (R,) of the roads.
        """
        return np.asarray(self.is_distinct & (lengths[self.road] > 0))

    def split(
        self,
        road: Integers,  # (c,)
        fraction: Floats,  # (c,)
        lengths: Floats,  # (R,)
    ) -> "SplitEdges":
        """Return the edges with a length, divided at positions, which become vertices.

        Edges that represent others stand for them. The new vertices are numbered after the present ones, along edges.

        Args:
            road: The roads (c,) of the positions.
            fraction: Their fractions (c,) of the lengths of the roads.
            lengths: Lengths (R,) of the roads.
        """
        edge, fraction, vertex = self.locate(road, fraction, lengths)
        inner = np.flatnonzero(vertex < 0)
        order = inner[np.lexsort((fraction[inner], edge[inner]))]
        apart = np.diff(fraction[order], prepend=-1.0) > POSITION_TOLERANCE
        is_new = apart | (np.diff(edge[order], prepend=-1) > 0)
        vertex[order] = max(self.source.max(), self.target.max()) + np.cumsum(is_new)
        new, used = order[is_new], np.flatnonzero(self.has_length(lengths))
        edges = np.concatenate([used, edge[new], used])
        fractions = np.concatenate([self.start[used], fraction[new], self.end[used]])
        nodes = np.concatenate([self.source[used], vertex[new], self.target[used]])
        along = np.lexsort((fractions, edges))
        edges, fractions, nodes = edges[along], fractions[along], nodes[along]
        first = np.flatnonzero(edges[1:] == edges[:-1])
        roads, ends = self.road[edges[first]], (nodes[first], nodes[first + 1])
        pieces = RoadEdges(roads, fractions[first], fractions[first + 1], *ends, *_unmerged(len(first)))
        return SplitEdges(pieces, vertex, self.road[edge[new]], fraction[new])

    def locate(
        self,
        road: Integers,  # (n,)
        fraction: Floats,  # (n,)
        lengths: Floats,  # (R,)
    ) -> EdgeLocations:
        """Return the edges and vertices of positions (road, fraction).

        Args:
            road: Roads (n,).
            fraction: Fractions (n,) of their lengths.
            lengths: Lengths (R,) of the roads.
        """
        first, end = (np.searchsorted(self.road, road, side) for side in ("left", "right"))
        edge = last_before(self.start, first, end - 1, fraction)
        vertex = np.where(lengths[road] == 0, self.source[edge], self._ends(edge, fraction))
        representative = self.representative[edge]
        edge_fraction = (fraction - self.start[edge]) / (self.end[edge] - self.start[edge])
        edge_fraction = np.where(self.is_reversed[edge], 1 - edge_fraction, edge_fraction)
        moved = self.start[representative] + np.clip(edge_fraction, 0.0, 1.0) * (
            self.end[representative] - self.start[representative]
        )
        moved = np.where(representative == edge, fraction, moved)
        return EdgeLocations(representative, moved, np.where(vertex < 0, self._ends(representative, moved), vertex))

    def _ends(self, edge: Integers, fraction: Floats) -> Integers:
        """Return the vertices (n,) of positions at an end of their edge, -1 for others."""
        inner = np.where(fraction >= self.end[edge] - POSITION_TOLERANCE, self.target[edge], -1)
        return np.where(fraction <= self.start[edge] + POSITION_TOLERANCE, self.source[edge], inner)


class SplitEdges(NamedTuple):
    """The P pieces of edges that are divided at positions.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> cut = roads.edges.split(np.array([0]), np.array([0.25]), roads.lengths)
        >>> cut.edges.end.tolist(), cut.vertex.tolist()
        ([0.25, 1.0], [2])
    """

    edges: RoadEdges  # P of them, ordered along roads
    vertex: Integers  # (c,) of each position
    road: Integers  # (w,) of the new vertices
    fraction: Floats  # (w,)


class Junctions(NamedTuple):
    """Joined lines: vertices and the edges between them.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import Lines
        >>> shapes = [np.array([(0.0, 0.0), (1.0, 0.0)]), np.array([(1.0, 0.0), (1.0, 1.0)])]
        >>> len(Lines.of(shapes, "euclidean").join().coordinates)
        3
    """

    coordinates: Floats  # (V, 2) of the vertices
    lengths: Floats  # (R,) of the lines; 0 if snapping closed a line
    edges: RoadEdges
    repeats: Integers  # (r,) roads of the edges that repeat another and stay parallel to it
    width: float = 0.0  # the largest width of a chain of snapped vertices, in tolerances


def _vertex_sites(points: LinePoints) -> NDArray[np.bool_]:  # (P,)
    """Return a mask (P,) of sites that are ends, turning points or forks."""
    size = int(points.site.max()) + 1
    is_vertex = np.zeros(size, dtype=bool)
    is_vertex[points.site[points.is_end]] = True
    inner = np.flatnonzero(~points.is_end)
    site, before, after = points.site[inner], points.site[inner - 1], points.site[inner + 1]
    low, high = np.minimum(before, after), np.maximum(before, after)
    neighbors = np.zeros((2, size), dtype=np.int64)
    neighbors[0, site], neighbors[1, site] = low, high
    is_vertex[site[(low == high) | (low != neighbors[0, site]) | (high != neighbors[1, site])]] = True
    return is_vertex


def _unmerged(count: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the representatives (S,) and directions (S,) of edges that represent themselves."""
    return np.arange(count), np.zeros(count, dtype=bool)


def _repeats(
    label: Integers,  # (K,) equal for points with the same coordinates or at one crossing
    first: Integers,  # (S,) the first point of each edge
    last: Integers,  # (S,)
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the first edge (S,) with the same points, and whether it is reversed."""
    representative, is_reversed = _unmerged(len(first))
    ends = np.sort(np.stack([label[first], label[last]], axis=1), axis=1)
    _, group, count = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    seen: dict[bytes, tuple[int, bytes]] = {}
    for edge in np.flatnonzero((count[group.reshape(-1)] > 1) & (last > first)).tolist():
        points = label[first[edge] : last[edge] + 1]
        points = points[np.diff(points, prepend=-1) != 0]
        if len(points) == 1:  # a loop within one crossing
            continue
        forwards, backwards = points.tobytes(), points[::-1].tobytes()
        earlier, order = seen.setdefault(min(forwards, backwards), (edge, forwards))
        representative[edge], is_reversed[edge] = earlier, forwards != order
    return representative, is_reversed


def _without_gaps(coordinates: Floats, lengths: Floats, edges: RoadEdges, merge: bool) -> Junctions:
    """Merge vertices at distance 0, and drop the edges between them."""
    has_none = (edges.start == edges.end) | (lengths[edges.road] == 0)
    source, target = edges.source, edges.target
    if (source[has_none] != target[has_none]).any():
        kept, vertex = first_of_each(component_of_nodes(source[has_none], target[has_none], len(coordinates)))
        coordinates, source, target = coordinates[kept], vertex[source], vertex[target]
    stays = edges.start < edges.end
    number = np.cumsum(stays) - 1
    merged = stays[edges.representative] & merge & ~has_none
    columns: tuple[NDArray[Any], ...] = (edges.road, edges.start, edges.end, source, target)
    columns += (np.where(merged, number[edges.representative], number), edges.is_reversed & merged)
    repeats = [] if merge else edges.road[~edges.is_distinct & stays & ~has_none]
    edges = RoadEdges(*(column[stays] for column in columns))
    return Junctions(coordinates, lengths, edges, np.array(repeats, dtype=np.int64))
