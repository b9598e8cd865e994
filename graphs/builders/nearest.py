"""The places on lines that are nearest to points, exactly, by a tree of samples.

Each straight segment is sampled at its ends and so densely between them that no two neighbouring samples are more than
h apart. Where a point's nearest sample is at distance d, its nearest place on a line is no further away, and has a
sample within h / 2 of itself: so the segment is among those with a sample within d + h / 2 of the point.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.builders.lines import Lines

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK = 2**14
"""Points at once."""
_SLACK = 1e-9  # of a distance, for rounding


class Places(NamedTuple):
    """Places on lines, and how far they are from what they were asked for."""

    line: Integers  # (n,)
    fraction: Floats  # (n,)
    distance: Floats  # (n,) metres, or the units of the plane


@np.errstate(under="ignore")
def nearest_places(
    lines: Lines,
    points: Floats,  # (n, c)
) -> Places:
    """Return the nearest place on any line of each of n points; of several, that on the first line.

    Args:
        lines: The lines.
        points: Where their points are with `Lines.in_space`: c is 2 in the plane, and 3 on the globe, where segments
            are chords.
    """
    from scipy.spatial import cKDTree

    corners = lines.in_space()
    is_start = np.ones(len(corners), dtype=bool)
    is_start[lines.first[1:] - 1] = False
    starts = np.flatnonzero(is_start)
    owner, samples, apart = _sampled(corners[starts], corners[starts + 1])
    tree = cKDTree(samples)
    line = np.repeat(np.arange(len(lines.first) - 1), np.diff(lines.first))[starts]
    rounding = 8 * np.finfo(np.float64).eps * max(np.abs(corners).max(), np.abs(points).max())
    found = []
    for block in np.array_split(points, max(1, -(-len(points) // BLOCK))):
        reach = tree.query(block)[0] * (1 + _SLACK) + apart / 2
        groups = tree.query_ball_point(block, reach)
        asked = np.repeat(np.arange(len(block)), [len(group) for group in groups])
        near = np.array([sample for group in groups for sample in group], dtype=np.int64)
        segment = owner[near]
        distance, share = _projected(block[asked], corners[starts[segment]], corners[starts[segment] + 1])
        best = _first_least(asked, distance, segment, rounding)
        found.append(Places(line[segment[best]], _fractions(lines, starts[segment[best]], share[best]), distance[best]))
    return Places(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _sampled(starts: Floats, ends: Floats) -> tuple[Integers, Floats, float]:
    """Return which segment samples are of (q,), the samples (q, c), and how far apart neighbours are at most."""
    length = np.linalg.norm(ends - starts, axis=1)
    apart = float(length.mean())
    gaps = np.maximum(1, np.ceil(length / apart)).astype(np.int64) if apart > 0 else np.ones(len(length), dtype=int)
    owner = np.repeat(np.arange(len(starts)), gaps + 1)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(gaps + 1) - gaps - 1, gaps + 1)
    share = (step / gaps[owner])[:, None]
    return owner, starts[owner] + share * (ends - starts)[owner], apart * (1 + _SLACK)


def _projected(points: Floats, starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """Return distances (k,) of points from segments, and the share (k,) of each segment before the nearest place."""
    steps = ends - starts
    squared = (steps**2).sum(1)
    share = np.clip(((points - starts) * steps).sum(1) / np.where(squared > 0, squared, 1.0), 0.0, 1.0)
    return np.linalg.norm(points - starts - share[:, None] * steps, axis=1), share


def _first_least(asked: Integers, distance: Floats, segment: Integers, rounding: float) -> Integers:
    """Return for each point, ascending, which of its rows has the least distance, and of these the first segment.

    Distances that differ by rounding are the same: roads meet at crossings.
    """
    starts = np.flatnonzero(np.diff(asked, prepend=-1))
    least = np.minimum.reduceat(distance, starts)[asked] * (1 + _SLACK) + rounding
    order = np.lexsort((segment, distance > least, asked))
    return order[starts]


def _fractions(lines: Lines, start: Integers, share: Floats) -> Floats:
    """Return how far along their lines (n,) places are that divide the segment behind a point."""
    line = np.searchsorted(lines.first, start, side="right") - 1
    length = lines.lengths[line]
    reached = lines.reached[start] + share * (lines.reached[start + 1] - lines.reached[start])
    return np.minimum(reached / np.where(length > 0, length, 1.0), 1.0)
