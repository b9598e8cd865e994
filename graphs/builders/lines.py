"""Line strings: checked, and in flat arrays with their lengths."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers, last_before
from graphs.checks import is_number, short_repr
from graphs.errors import InvalidArgumentError, InvalidGraphError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

EARTH_RADIUS = 6_371_008.8
"""The mean radius in meters."""


class Lines(NamedTuple):
    """R lines with M points in all, one line after another.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import as_lines
        >>> lines = as_lines([np.array([(0.0, 0.0), (3.0, 4.0)])], "euclidean")
        >>> lines.lengths.tolist(), lines.along(np.array([0]), np.array([0.5])).tolist()
        ([5.0], [[1.5, 2.0]])
    """

    points: Floats  # (M, 2): x and y, or longitude and latitude in degrees
    first: Integers  # (R + 1,) line r has the points first[r] to first[r + 1] - 1
    reached: Floats  # (M,) the length of the line up to a point, in meters or the units of the plane
    metric: str  # "haversine" or "euclidean"
    heights: Floats | None = None  # (M,) of the points, which tell a bridge from the road below; lengths ignore them

    @property
    def lengths(self) -> Floats:
        """The lengths (R,) of the lines."""
        return self.reached[self.first[1:] - 1]

    @property
    def diagonal(self) -> float:
        """The diagonal of the bounding box of all points, in space on the globe."""
        return float(np.linalg.norm(np.ptp(self.in_space(), axis=0)))

    @np.errstate(under="ignore")
    def along(
        self,
        line: Integers,  # (n,)
        fraction: Floats,  # (n,)
    ) -> Floats:  # (n, 2)
        """Return the points (n, 2) at fractions of the lengths of lines.

        A segment is straight in the coordinates. A segment across the 180th meridian goes the short way, with
        longitudes on the side of the nearer end.

        Args:
            line: The numbers (n,) of the lines.
            fraction: Fractions (n,) of their lengths.
        """
        target = fraction * self.lengths[line]
        before = last_before(self.reached, self.first[line], self.first[line + 1] - 2, target)
        span = self.reached[before + 1] - self.reached[before]
        along = np.clip((target - self.reached[before]) / np.where(span > 0, span, 1.0), 0.0, 1.0)
        return interpolated(self.points[before], self.points[before + 1], along, self.metric)

    def in_space(self) -> Floats:  # (M, 2) or (M, 3)
        """Return Cartesian coordinates: of the plane, or on the globe in meters."""
        return in_space(self.points, self.metric)


def interpolated(
    starts: Floats,  # (n, 2)
    ends: Floats,  # (n, 2)
    fraction: Floats,  # (n,)
    metric: str,
) -> Floats:  # (n, 2)
    """Return points at fractions of segments that are straight in the coordinates.

    Args:
        starts: The first points (n, 2) of the segments.
        ends: The last points (n, 2) of the segments.
        fraction: Fractions (n,) of the segments, from 0 to 1.
        metric: "haversine" or "euclidean".

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import interpolated
        >>> starts, ends = np.array([[179.0, 0.0]]), np.array([[-179.0, 0.0]])
        >>> interpolated(starts, ends, np.array([0.25]), "haversine").tolist()
        [[179.5, 0.0]]
    """
    step = ends - starts
    if metric == "euclidean":
        return starts + fraction[:, None] * step
    turns = 360 * np.round(step[:, 0] / 360)
    step[:, 0] -= turns
    points = starts + fraction[:, None] * step
    longitude, crosses = points[:, 0], turns != 0
    seam = np.where(np.maximum(starts[:, 0], ends[:, 0]) > 180, 360.0 * (turns < 0), np.where(turns < 0, 180.0, -180.0))
    beyond = crosses & np.where(turns < 0, longitude > seam, longitude < seam)
    longitude[beyond] += turns[beyond]
    return points


def as_lines(
    shapes: Sequence[Floats],  # each (points, 2), or (points, 3)
    metric: str,
) -> Lines:
    """Return R lines, each (points, 2) or all (points, 3), as flat arrays.

    Args:
        shapes: The points of each line, (points, 2), or (points, 3) with heights.
        metric: "haversine" for degrees, or "euclidean".

    Raises:
        InvalidArgumentError: If the metric is unknown.
        InvalidGraphError: If coordinates are not degrees, for "haversine".

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import as_lines
        >>> as_lines([np.array([(0.0, 0.0), (3.0, 4.0), (3.0, 5.0)])], "euclidean").reached.tolist()
        [0.0, 5.0, 6.0]
    """
    first = np.concatenate(([0], np.cumsum([len(shape) for shape in shapes])))
    points, heights = np.concatenate(shapes), None
    if points.shape[1] == 3:
        points, heights = points[:, :2], points[:, 2]
    with np.errstate(under="ignore", over="ignore"):
        steps = np.concatenate(([0.0], segment_lengths(points, metric)))
    steps[first[:-1]] = 0.0
    for start, stop in pairwise(first.tolist()):  # one by one, so that no line is rounded by those before it
        np.cumsum(steps[start:stop], out=steps[start:stop])
    return Lines(points, first, steps, metric, heights)


class LinePoints(NamedTuple):
    """The K points of lines, line after line, without repetitions of the point before.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import as_lines, line_points
        >>> shape = np.array([(0.0, 0.0), (0.0, 0.0), (1.0, 0.0)])
        >>> line_points(as_lines([shape], "euclidean")).is_end.tolist()
        [True, True]
    """

    point: Integers  # (K,) index among the M points
    line: Integers  # (K,)
    site: Integers  # (K,) number of the coordinates, with the height, among the P distinct ones, sorted by them
    is_end: NDArray[np.bool_]  # (K,) whether it is the first or last point of its line


def line_points(lines: Lines) -> LinePoints:
    """Return the points of lines that differ from the point before.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import as_lines, line_points
        >>> shape = np.array([(0.0, 0.0), (0.0, 0.0), (1.0, 0.0)])
        >>> line_points(as_lines([shape], "euclidean")).point.tolist()
        [0, 2]
    """
    pairs = np.ascontiguousarray(_canonical(lines)).view(np.complex128).reshape(-1)
    site = np.unique(pairs, return_inverse=True)[1].reshape(-1)
    if lines.heights is not None:
        distinct, height = np.unique(lines.heights + 0.0, return_inverse=True)  # -0 is 0
        site = np.unique(site * len(distinct) + height.reshape(-1), return_inverse=True)[1].reshape(-1)
    line = np.repeat(np.arange(len(lines.first) - 1), np.diff(lines.first))
    kept = np.flatnonzero((np.diff(line, prepend=-1) > 0) | (np.diff(site, prepend=-1) != 0))
    line, site = line[kept], site[kept]
    is_end = (np.diff(line, prepend=-1) != 0) | (np.diff(line, append=-1) != 0)
    return LinePoints(kept, line, site, is_end)


def _canonical(lines: Lines) -> Floats:  # (M, 2)
    """Return the points with unique coordinates: no -0, longitudes in [-180, 180)."""
    points = lines.points + 0.0
    if lines.metric == "haversine":
        longitude = points[:, 0]
        longitude[longitude >= 180] -= 360
        longitude[longitude < -180] += 360
        longitude[np.abs(points[:, 1]) == 90] = 0.0
    return points


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


def segment_lengths(
    shape: Floats,  # (points, 2)
    metric: str,
) -> Floats:  # (points - 1,)
    """Return the lengths of a line's segments, in meters or the plane's units.

    Args:
        shape: The points (points, 2) of the line.
        metric: "haversine" for degrees, or "euclidean".

    Raises:
        InvalidArgumentError: If the metric is unknown.
        InvalidGraphError: If coordinates are not degrees, for "haversine".

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import segment_lengths
        >>> segment_lengths(np.array([(0.0, 0.0), (3.0, 4.0), (3.0, 5.0)]), "euclidean").tolist()
        [5.0, 1.0]
    """
    if metric == "haversine" and (np.abs(shape[:, 1]).max() > 90 or np.abs(shape[:, 0]).max() > 360):
        raise InvalidGraphError(
            f"Coordinates must be longitude and latitude in degrees, got "
            f"{tuple(shape[np.abs(shape[:, 1]).argmax()].tolist())}. "
            'Pass metric="euclidean" for coordinates in a plane.'
        )
    return distances(shape[:-1], shape[1:], metric)


def distances(
    starts: Floats,  # (n, 2)
    ends: Floats,  # (n, 2)
    metric: str,
) -> Floats:  # (n,)
    """Return the distances (n,) between points, in meters or the plane's units.

    Args:
        starts: The first points (n, 2).
        ends: The second points (n, 2).
        metric: "haversine" for degrees, or "euclidean".

    Raises:
        InvalidArgumentError: If the metric is unknown.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import distances
        >>> one_degree = distances(np.array([[0.0, 0.0]]), np.array([[0.0, 1.0]]), "haversine")
        >>> round(float(one_degree[0]))
        111195
    """
    if metric == "euclidean":
        return np.asarray(np.linalg.norm(ends - starts, axis=1))
    if metric != "haversine":
        raise InvalidArgumentError(f'metric must be "haversine" or "euclidean", got {metric!r}.')
    (longitude, latitude), (other, upper) = np.radians(starts).T, np.radians(ends).T
    half = np.sin((upper - latitude) / 2) ** 2
    half = half + np.cos(latitude) * np.cos(upper) * np.sin((other - longitude) / 2) ** 2
    return np.asarray(2 * EARTH_RADIUS * np.arcsin(np.sqrt(np.minimum(half, 1.0))))


def in_space(
    points: Floats,  # (n, 2)
    metric: str,
) -> Floats:  # (n, 2) or (n, 3)
    """Return Cartesian coordinates: (n, 2) in the plane, (n, 3) meters on the globe.

    Args:
        points: Points (n, 2): x and y, or longitude and latitude in degrees.
        metric: "haversine" or "euclidean".

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import EARTH_RADIUS, in_space
        >>> bool(np.isclose(np.linalg.norm(in_space(np.array([(10.0, 50.0)]), "haversine")), EARTH_RADIUS))
        True
    """
    if metric == "euclidean":
        return points
    longitude, latitude = np.radians(points).T
    circle = np.cos(latitude)
    return EARTH_RADIUS * np.stack([circle * np.cos(longitude), circle * np.sin(longitude), np.sin(latitude)], axis=1)


def chord(
    distance: float,
    metric: str,
) -> float:
    """Return the straight distance at a distance along the globe, or in the plane.

    Args:
        distance: The distance, in meters or the units of the plane.
        metric: "haversine" or "euclidean".

    Examples:
        >>> from graphs.builders.lines import chord
        >>> chord(5.0, "euclidean"), chord(1e6, "haversine") < 1e6
        (5.0, True)
    """
    if metric == "euclidean":
        return distance
    return float(2 * EARTH_RADIUS * np.sin(min(distance / (2 * EARTH_RADIUS), np.pi / 2)))


# --- The nearest points on lines, by a tree of samples ---------------------------------------------------------------
#
# Each straight segment is sampled at its ends and between them, such that neighboring samples are at most h apart. If
# the nearest sample of a point is at distance d, its nearest point on a line is no farther away and within h / 2 of a
# sample. So the segment is among those with a sample within d + h / 2 of the point.
#
# On the globe segments are straight in degrees. They are split into chords of at most a kilometer. Chords are 2 cm from
# the globe, and some centimeters from the segment outside of polar regions.


BLOCK = 2**14
"""The number of points that are processed at once."""
MAX_PAIRS = 2**22
"""The number of pairs of points and segments that are compared at once."""
_CHORD = 1000.0
"""The longest chord on the globe, in meters."""
_SLACK = 1e-9
"""The relative tolerance of distances, for rounding errors."""
DEFAULT_LIMIT_FRACTION = 0.1
"""The default limit of distances from lines in a plane and from surfaces, in diagonals of the bounding box."""
DEFAULT_LIMIT_METERS = 500.0
"""The default limit of distances from lines on the globe, in meters."""
MAX_COORDINATE = 1e100
"""The largest coordinate of a point, so that squared distances stay in the range of double precision."""


def distance_limit(
    lines: Lines,
    within: float | None,
) -> float:
    """Return the largest distance at which a point is matched to a line.

    It is in meters on the globe and in the units of the coordinates in a plane.

    Args:
        lines: The lines.
        within: The limit, or infinity for none. If None, 500 m, or in a plane a tenth of the diagonal of the bounding
            box.

    Raises:
        InvalidArgumentError: If `within` is not a positive number.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import as_lines
        >>> from graphs.builders.lines import distance_limit
        >>> distance_limit(as_lines([np.array([(0.0, 0.0), (3.0, 4.0)])], "euclidean"), None)
        0.5
    """
    if within is None:
        return DEFAULT_LIMIT_METERS if lines.metric == "haversine" else DEFAULT_LIMIT_FRACTION * lines.diagonal
    check_limit(within)
    return within


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


class LineProjections(NamedTuple):
    """The nearest points on lines, with distances.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import as_lines
        >>> from graphs.builders.lines import project_on_lines
        >>> lines = as_lines([np.array([(0.0, 0.0), (4.0, 0.0)])], "euclidean")
        >>> project_on_lines(lines, np.array([(1.0, 2.0)])).distance.tolist()
        [2.0]
    """

    line: Integers  # (n,)
    fraction: Floats  # (n,)
    distance: Floats  # (n,) meters along the globe, or the units of the plane


class _Chords(NamedTuple):
    """Straight segments (q,) in the plane or in space."""

    start: Integers  # (q,) the point of the lines at the start of the segment
    low: Floats  # (q,) fraction of the segment at which each chord starts
    high: Floats  # (q,)
    starts: Floats  # (q, c)
    ends: Floats  # (q, c)


@np.errstate(under="ignore")
def project_on_lines(
    lines: Lines,
    points: Floats,  # (n, 2)
) -> LineProjections:
    """Return the nearest point on any line for n points; ties go to the first line.

    Args:
        lines: The lines.
        points: Points (n, 2), in the coordinates of the lines.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import as_lines
        >>> from graphs.builders.lines import project_on_lines
        >>> lines = as_lines([np.array([(0.0, 0.0), (4.0, 0.0)])], "euclidean")
        >>> project_on_lines(lines, np.array([(1.0, 2.0)])).fraction.tolist()
        [0.25]
    """
    from scipy.spatial import cKDTree

    chords, queries = _chords(lines), in_space(points, lines.metric)
    owner, samples, apart = _sampled(chords.starts, chords.ends)
    tree = cKDTree(samples)
    line = np.searchsorted(lines.first, chords.start, side="right") - 1
    rounding = 8 * np.finfo(np.float64).eps * max(np.abs(chords.starts).max(), np.abs(queries).max())
    blocks = []
    for block in np.array_split(queries, max(1, -(-len(queries) // BLOCK))):
        reach = tree.query(block)[0] * (1 + _SLACK) + apart / 2
        counts = np.asarray(tree.query_ball_point(block, reach, return_length=True))
        for rows in np.split(np.arange(len(block)), np.flatnonzero(np.diff(np.cumsum(counts) // MAX_PAIRS)) + 1):
            groups = tree.query_ball_point(block[rows], reach[rows])
            row = np.repeat(np.arange(len(rows)), [len(group) for group in groups])
            near = owner[np.array([sample for group in groups for sample in group], dtype=np.int64)]
            distance, along = _projected(block[rows][row], chords.starts[near], chords.ends[near])
            best = _first_least(row, distance, near, rounding)
            chosen = near[best]
            along = chords.low[chosen] + along[best] * (chords.high[chosen] - chords.low[chosen])
            fraction = _fractions(lines, chords.start[chosen], along)
            blocks.append(LineProjections(line[chosen], fraction, distance[best]))
    projections = LineProjections(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))
    reached = lines.along(projections.line, projections.fraction)
    return projections._replace(distance=distances(points, reached, lines.metric))


def _chords(lines: Lines) -> _Chords:
    """Return the segments of lines, split into chords on the globe."""
    is_start = np.ones(len(lines.points), dtype=bool)
    is_start[lines.first[1:] - 1] = False
    start = np.flatnonzero(is_start)
    if lines.metric == "euclidean":
        zeros = np.zeros(len(start))
        return _Chords(start, zeros, zeros + 1, lines.points[start], lines.points[start + 1])
    counts = np.maximum(1, np.ceil((lines.reached[start + 1] - lines.reached[start]) / _CHORD)).astype(np.int64)
    start = np.repeat(start, counts)
    step = np.arange(len(start)) - np.repeat(np.cumsum(counts) - counts, counts)
    low, high = step / np.repeat(counts, counts), (step + 1) / np.repeat(counts, counts)
    first, second = lines.points[start], lines.points[start + 1]
    starts, ends = (in_space(interpolated(first, second, along, lines.metric), lines.metric) for along in (low, high))
    return _Chords(start, low, high, starts, ends)


def _sampled(starts: Floats, ends: Floats) -> tuple[Integers, Floats, float]:
    """Return segments (q,) of samples, the samples (q, c), and the spacing."""
    length = np.linalg.norm(ends - starts, axis=1)
    apart = float(length.mean())
    gaps = np.maximum(1, np.ceil(length / apart)).astype(np.int64) if apart > 0 else np.ones(len(length), dtype=int)
    owner = np.repeat(np.arange(len(starts)), gaps + 1)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(gaps + 1) - gaps - 1, gaps + 1)
    along = (step / gaps[owner])[:, None]
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


def _fractions(lines: Lines, start: Integers, along: Floats) -> Floats:
    """Return the fractions (n,) of lines at fractions of the segment after a point."""
    line = np.searchsorted(lines.first, start, side="right") - 1
    length = lines.lengths[line]
    reached = lines.reached[start] + along * (lines.reached[start + 1] - lines.reached[start])
    return np.minimum(reached / np.where(length > 0, length, 1.0), 1.0)
