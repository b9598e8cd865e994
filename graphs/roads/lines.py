"""The geometry of many lines in flat arrays: lengths, places along them, and lines that repeat each other."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.builders.roads import on_globe, segment_lengths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Lines(NamedTuple):
    """R lines with M points in all, one line after another."""

    points: Floats  # (M, 2): x and y, or longitude and latitude in degrees
    first: Integers  # (R + 1,) line r has the points first[r] to first[r + 1] - 1
    reached: Floats  # (M,) the length of its line up to a point, in metres or the units of the plane
    metric: str  # "haversine" or "euclidean"

    @property
    def lengths(self) -> Floats:
        """The lengths (R,) of the lines."""
        return self.reached[self.first[1:] - 1]

    @np.errstate(under="ignore")
    def along(
        self,
        line: Integers,  # (n,)
        fraction: Floats,  # (n,)
    ) -> Floats:  # (n, 2)
        """Return the points at fractions of the lengths of lines.

        A segment is straight in the coordinates; one over the meridian of 180 degrees goes the short way.
        """
        target = fraction * self.lengths[line]
        before = self._points_before(line, target)
        span = self.reached[before + 1] - self.reached[before]
        share = np.clip((target - self.reached[before]) / np.where(span > 0, span, 1.0), 0.0, 1.0)
        step = self.points[before + 1] - self.points[before]
        if self.metric == "haversine":
            step[:, 0] -= 360 * np.round(step[:, 0] / 360)
        return self.points[before] + share[:, None] * step

    def in_space(self) -> Floats:  # (M, 2) or (M, 3)
        """Return the points where distances are straight lines: in the plane, or on the globe, in metres."""
        return self.points if self.metric == "euclidean" else on_globe(self.points)

    def repeated(self) -> Integers:  # (c,)
        """Return the numbers (c,) of lines that are the same as one before them, in either direction."""
        ends = np.concatenate([self.points[self.first[:-1]], self.points[self.first[1:] - 1]], axis=1)
        turned = (ends[:, 0] > ends[:, 2]) | ((ends[:, 0] == ends[:, 2]) & (ends[:, 1] > ends[:, 3]))
        ends[turned] = ends[turned][:, [2, 3, 0, 1]]
        keys = np.concatenate([ends, np.diff(self.first)[:, None].astype(np.float64)], axis=1)
        _, group, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        seen: set[tuple[int, bytes]] = set()
        found = []
        for line in np.flatnonzero(count[group.reshape(-1)] > 1).tolist():
            shape = self.points[self.first[line] : self.first[line + 1]] + 0.0  # no negative zeros
            key = (len(shape), min(shape.tobytes(), shape[::-1].tobytes()))
            found += [line] if key in seen else []
            seen.add(key)
        return np.array(found, dtype=np.int64)

    def _points_before(self, line: Integers, target: Floats) -> Integers:
        """Return the last point (n,) of each line, but its end, that lies no further along it than a target (n,)."""
        low, high = self.first[line], self.first[line + 1] - 2
        while (low < high).any():
            middle = (low + high + 1) // 2
            is_before = self.reached[middle] <= target
            low, high = np.where(is_before, middle, low), np.where(is_before, high, middle - 1)
        return low


def as_lines(
    shapes: Sequence[Floats],  # each (points, 2)
    metric: str,
) -> Lines:
    """Return R lines, each (points, 2), as flat arrays.

    Raises:
        InvalidArgumentError: an unknown metric.
        InvalidGraphError: what should be degrees is none.
    """
    first = np.concatenate(([0], np.cumsum([len(shape) for shape in shapes])))
    points = np.concatenate(shapes)
    with np.errstate(under="ignore", over="ignore"):
        steps = np.concatenate(([0.0], segment_lengths(points, metric)))
    steps[first[:-1]] = 0.0
    for start, stop in pairwise(first.tolist()):  # each on its own: no line is rounded by those before it
        np.cumsum(steps[start:stop], out=steps[start:stop])
    return Lines(points, first, steps, metric)
