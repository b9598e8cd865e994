"""The nearest points on lines, by a tree of samples.

Each straight segment is sampled at its ends and between them, such that neighboring samples are at most h apart. If the
nearest sample of a point is at distance d, its nearest point on a line is no farther away and within h / 2 of a sample.
So the segment is among those with a sample within d + h / 2 of the point.

On the globe segments are straight in degrees. They are split into chords of at most a kilometer. Chords are 2 cm from
the globe, and some centimeters from the segment outside of polar regions.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.builders.lines import Lines, distances, in_space, interpolated
from graphs.checks import is_number, short_repr
from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
        >>> from graphs.builders.nearest import distance_limit
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
        >>> from graphs.builders.nearest import check_limit
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
        >>> from graphs.builders.nearest import project_on_lines
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
        >>> from graphs.builders.nearest import project_on_lines
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
