"""Where lines meet: the points that they share are vertices, which divide them into stretches.

A point of a line is a vertex if it is an end of a line, or if it is passed twice on the way between different pairs of
points: so lines meet at the interior points that they share, as OpenStreetMap's ways do. A street that is drawn twice
has no vertices inside, and its copies are stretches with the same points. Lines that cross between their points do not
meet.
"""

from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from graphs.builders.lines import Lines, Passes, first_of_each, last_before, passes_of
from graphs.builders.snapping import WIDEST, check_snap, snapped_stops
from graphs.checks import check_choice
from graphs.errors import InvalidGraphError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DUPLICATES = ("parallel", "merge")
"""What to do with stretches that repeat another: keep them as parallel roads, or count them as the same road."""
SAME = 1e-12
"""The largest distance, as a fraction of a road's length, between positions that count as one (rounding errors)."""


class Stretches(NamedTuple):
    """S stretches of road from one vertex to the next, road after road and along each.

    A road without length is one stretch from a vertex to itself.
    """

    road: Integers  # (S,) ascending, each of 0..R-1 at least once
    begin: Floats  # (S,) fraction of the road's length at which it begins: 0 for a road's first stretch
    end: Floats  # (S,) fraction at which it ends: 1 for a road's last stretch
    source: Integers  # (S,) vertex at its first point
    target: Integers  # (S,) vertex at its last point
    same: Integers  # (S,) the stretch that stands for it: an earlier one that it repeats, otherwise itself
    turned: NDArray[np.bool_]  # (S,) whether it repeats that one in the opposite direction

    @classmethod
    def of_ends(
        cls,
        starts: Integers,  # (R,)
        ends: Integers,  # (R,)
    ) -> Self:
        """Return one stretch for each of R roads that have no vertex between their ends."""
        roads = np.arange(len(starts))
        zeros = np.zeros(len(starts))
        return cls(roads, zeros, zeros + 1, starts, ends, roads.copy(), np.zeros(len(starts), dtype=bool))

    def check(self, num_roads: int, num_vertices: int) -> None:
        """Refuse arrays that do not describe stretches of roads 0..R-1 between vertices 0..V-1.

        Raises:
            InvalidGraphError: likewise.
        """
        count, opens = len(self.road), np.diff(self.road, prepend=-1)
        closes = np.append(opens[1:], 1)
        sized = count > 0 and all(len(part) == count for part in self)
        if not sized or ((opens != 0) & (opens != 1)).any() or self.road[-1] != num_roads - 1:
            raise InvalidGraphError(f"Stretches must follow each other along {num_roads} roads.")
        follows = (self.begin[1:] == self.end[:-1]) & (self.source[1:] == self.target[:-1])
        whole = (self.begin[opens == 1] == 0).all() and (self.end[closes == 1] == 1).all()
        if not (whole and (follows | (opens[1:] == 1)).all() and (self.begin < self.end).all()):
            raise InvalidGraphError("Stretches must divide each road from fraction 0 to 1, one after the other.")
        ends, same = np.concatenate([self.source, self.target]), self.same
        outside = (ends < 0) | (ends >= num_vertices)
        if outside.any() or (same < 0).any() or (same > np.arange(count)).any() or (same[same] != same).any():
            raise InvalidGraphError("Stretches must name vertices, and earlier stretches that stand for them.")

    @property
    def is_distinct(self) -> NDArray[np.bool_]:
        """Whether each stretch (S,) stands for itself."""
        return np.asarray(self.same == np.arange(len(self.same)))

    def find(
        self,
        road: Integers,  # (n,)
        fraction: Floats,  # (n,)
    ) -> tuple[Integers, Floats]:
        """Return the stretch (n,) of each position, one that stands for itself, and the fraction (n,) of its road."""
        first = np.searchsorted(self.road, np.arange(self.road[-1] + 2))
        own = last_before(self.begin, first[road], first[road + 1] - 1, fraction)
        found = self.same[own]
        share = (fraction - self.begin[own]) / (self.end[own] - self.begin[own])
        share = np.where(self.turned[own], 1 - share, share)
        moved = self.begin[found] + np.clip(share, 0.0, 1.0) * (self.end[found] - self.begin[found])
        return found, np.where(found == own, fraction, moved)

    def vertices(
        self,
        stretch: Integers,  # (n,)
        fraction: Floats,  # (n,)
        lengths: Floats,  # (R,)
    ) -> Integers:  # (n,)
        """Return the vertices of positions at an end of their stretch, or on a road without length; -1 for others."""
        inner = np.where(fraction >= self.end[stretch] - SAME, self.target[stretch], -1)
        at_begin = (fraction <= self.begin[stretch] + SAME) | (lengths[self.road[stretch]] == 0)
        return np.where(at_begin, self.source[stretch], inner)


class Junctions(NamedTuple):
    """What lines become when they are joined."""

    coordinates: Floats  # (V, 2) of the vertices
    lengths: Floats  # (R,) of the lines; 0 if snapping closed a line
    stretches: Stretches
    repeats: Integers  # (r,) roads of the stretches that repeat another and stay parallel to it


def join_lines(
    lines: Lines,
    snap: float = 0.0,
    duplicates: str = "parallel",
) -> Junctions:
    """Join lines where they share points, or have points within a tolerance; see `graphs.RoadNetwork.from_lines`.

    Vertices are numbered in the order in which lines reach them. A vertex lies where the first of them does.

    Raises:
        InvalidArgumentError: the tolerance is not a number of at least 0, or another value of `duplicates`.
        InvalidGraphError: the tolerance would join points that are far apart.
    """
    check_snap(snap)
    check_choice("duplicates", duplicates, DUPLICATES)
    if not np.isfinite(lines.lengths).all():
        road = int((~np.isfinite(lines.lengths)).argmax())
        raise InvalidGraphError(f"Lengths must be finite, got an infinite one for road {road}. Use larger units.")
    passes = passes_of(lines)
    meets = _meeting_places(passes)
    if snap > 0:
        stop, group = snapped_stops(lines, passes, meets, snap)
    else:
        stop = np.flatnonzero(meets[passes.place])
        group = passes.place[stop]
    line = passes.line[stop]
    twice = np.where(np.bincount(line, minlength=len(lines.first) - 1)[line] == 1, 2, 1)  # of lines without length
    stop, group, line = (np.repeat(each, twice) for each in (stop, group, line))
    kept, vertex = first_of_each(group)
    coordinates = lines.points[passes.point[stop[kept]]]
    first = np.flatnonzero(line[1:] == line[:-1])
    reached, total = lines.reached[passes.point[stop]], lines.lengths[line[first]]
    is_long = total > 0
    scale = np.where(is_long, total, 1.0)
    opens = np.diff(line[first], prepend=-1) > 0
    begin = np.where(is_long, reached[first] / scale, np.where(opens, 0.0, 1.0))
    end = np.where(is_long, reached[first + 1] / scale, 1.0)
    lengths = np.array(lines.lengths)
    whole = (begin == 0) & (end == 1) & (vertex[first] == vertex[first + 1]) & (total <= WIDEST * snap)
    lengths[line[first[whole]]] = 0.0
    ends = vertex[first], vertex[first + 1]
    found = Stretches(line[first], begin, end, *ends, *_repeats(passes, stop[first], stop[first + 1]))
    return _without_gaps(coordinates, lengths, found, duplicates == "merge")


def _meeting_places(passes: Passes) -> NDArray[np.bool_]:  # (P,)
    """Return whether each place is an end of a line, or is passed on the way between different pairs of places."""
    size = int(passes.place.max()) + 1
    found = np.zeros(size, dtype=bool)
    found[passes.place[passes.is_end]] = True
    inner = np.flatnonzero(~passes.is_end)
    place, before, after = passes.place[inner], passes.place[inner - 1], passes.place[inner + 1]
    low, high = np.minimum(before, after), np.maximum(before, after)
    usual = np.zeros((2, size), dtype=np.int64)
    usual[0, place], usual[1, place] = low, high
    found[place[(low != usual[0, place]) | (high != usual[1, place])]] = True
    return found


def _repeats(
    passes: Passes,
    first: Integers,  # (S,) the pass at which each stretch begins
    last: Integers,  # (S,)
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the first stretch (S,) with the same points as each, and whether it has them in the opposite order."""
    same, turned = np.arange(len(first)), np.zeros(len(first), dtype=bool)
    ends = np.sort(np.stack([passes.place[first], passes.place[last]], axis=1), axis=1)
    keys = np.concatenate([ends, (last - first)[:, None]], axis=1)
    _, group, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    seen: dict[bytes, tuple[int, bytes]] = {}
    for stretch in np.flatnonzero((count[group.reshape(-1)] > 1) & (last > first)).tolist():
        points = passes.place[first[stretch] : last[stretch] + 1]
        forwards, backwards = points.tobytes(), points[::-1].tobytes()
        earlier, order = seen.setdefault(min(forwards, backwards), (stretch, forwards))
        same[stretch], turned[stretch] = earlier, forwards != order
    return same, turned


def _without_gaps(coordinates: Floats, lengths: Floats, found: Stretches, merge: bool) -> Junctions:
    """Join vertices with no length between them in floating point, and leave out the stretches between them."""
    gone = (found.begin == found.end) | (lengths[found.road] == 0)
    source, target = found.source, found.target
    if (source[gone] != target[gone]).any():
        links = sp.coo_array((np.ones(gone.sum()), (source[gone], target[gone])), shape=(len(coordinates),) * 2)
        kept, part = first_of_each(connected_components(links, directed=False)[1])
        coordinates, source, target = coordinates[kept], part[source], part[target]
    stays = found.begin < found.end
    number = np.cumsum(stays) - 1
    same = np.where(stays[found.same] & merge, number[found.same], number)
    parts: tuple[NDArray[Any], ...] = (found.road, found.begin, found.end, source, target, same, found.turned & merge)
    repeats = [] if merge else found.road[~found.is_distinct & stays & ~gone]
    stretches = Stretches(*(part[stays] for part in parts))
    return Junctions(coordinates, lengths, stretches, np.array(repeats, dtype=np.int64))
