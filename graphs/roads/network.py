"""The road network: a metric graph with the geometry of its roads."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components, dijkstra

from graphs.builders.road_files import read_roads
from graphs.builders.roads import Roads, check_lines, first_of_each, join_ends, on_globe
from graphs.checks import as_numbers, check_fits, is_number, shown
from graphs.errors import DuplicateRoadsWarning, InvalidArgumentError, InvalidGraphError
from graphs.roads.lines import Lines, as_lines
from graphs.roads.nearest import nearest_places

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_POINT = 3.0  # tolerances that a road whose ends were joined may be long and still be none: as wide as crossings may be


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """R roads that meet at V vertices: crossings, bends of their own making, and free ends.

    A position is a pair (road, fraction): the number of a road, as they were given, and the fraction of its length from
    its first point on. Roads may be loops, and several may join the same vertices. A road without length is the one
    vertex that both its ends are, and so is every position on it. Arrays are read-only.

    Build it with `from_lines`, `from_roads` or `from_geojson`; `dataclasses.replace(network, lengths=...)` gives roads
    other lengths than those of their lines, such as travel times.

    Attributes:
        coordinates: (V, 2) of the vertices: x and y, or longitude and latitude in degrees.
        starts: (R,) the vertex at the first point of each road.
        ends: (R,) the vertex at its last point.
        lengths: (R,) of the roads, in metres for "haversine", else in the units of the plane; 0 only where both ends
            are the same vertex.
        lines: The geometry of the roads, their metric with it.
    """

    coordinates: Floats
    starts: Integers
    ends: Integers
    lengths: Floats
    lines: Lines

    def __post_init__(self) -> None:
        lengths = as_numbers(self.lengths)
        if lengths.shape != (self.num_roads,) or not ((lengths >= 0) & (lengths < np.inf)).all():
            raise InvalidGraphError(
                f"Lengths must be a number of at least 0 for each of the {self.num_roads} roads, got "
                f"{shown(self.lengths)}."
            )
        wrong = np.flatnonzero((lengths == 0) & (self.starts != self.ends))
        if len(wrong):
            raise InvalidGraphError(
                f"Road {wrong[0]} has length 0 between two vertices; what is at no distance is one vertex."
            )
        met = np.zeros(self.num_vertices, dtype=bool)
        met[self.starts[lengths > 0]] = met[self.ends[lengths > 0]] = True
        if not met.all():
            road = int(np.flatnonzero(~met[self.starts])[0])
            raise InvalidGraphError(
                f"Road {road} has no length and meets no other; leave it out, or join what is near with snap=."
            )
        object.__setattr__(self, "lengths", lengths)
        for array in (self.coordinates, self.starts, self.ends, lengths, *self.lines[:3]):
            array.flags.writeable = False

    @classmethod
    def from_lines(
        cls,
        lines: Sequence[ArrayLike],  # each (points, 2)
        *,
        metric: str = "haversine",
        snap: float = 0.0,
    ) -> Self:
        """Build from line strings, which meet where their ends are the same point, or within `snap` of each other.

        What crosses elsewhere does not meet: a bridge is no crossing. Roads without length are kept as numbers and mean
        a vertex; so do roads that `snap` closed and that are no longer than three tolerances. The same line given
        twice is two parallel roads, on which two fields run that agree at the ends.

        Args:
            lines: Each (points, 2), at least two.
            metric: "haversine" for longitude and latitude in degrees, lengths in metres; or "euclidean".
            snap: The tolerance, in metres or the units of the plane.

        Raises:
            InvalidGraphError: no roads, something else than lines, degrees that are none, a road without length that
                meets no other, or a tolerance that would join what is far apart.
            InvalidArgumentError: an unknown metric, or a tolerance that is no number of at least 0.

        Warns:
            DuplicateRoadsWarning: lines that are the same as another, in either direction.
        """
        flat = as_lines(check_lines(lines, lengthless=True), metric)
        ends = np.stack([flat.points[flat.first[:-1]], flat.points[flat.first[1:] - 1]], axis=1)
        coordinates, vertex = join_ends(ends.reshape(-1, 2), metric, snap)
        lengths = np.array(flat.lengths)
        lengths[(vertex[::2] == vertex[1::2]) & (lengths <= _POINT * snap)] = 0.0
        _warn_of_duplicates(flat, lengths)
        return cls(*_merged(coordinates, vertex[::2], vertex[1::2], lengths), lengths, flat)

    @classmethod
    def from_roads(cls, roads: Roads) -> Self:
        """Build from what `graphs.read_roads` returns; its sensors are at (sensor_edges, sensor_fractions).

        Raises:
            InvalidGraphError: as for `from_lines`.
        """
        if not isinstance(roads, Roads):
            raise InvalidArgumentError(f"graphs.Roads are needed, got {shown(roads)}; from_lines takes lines.")
        return cls.from_lines(roads.lines, metric=roads.metric, snap=roads.snap)

    @classmethod
    def from_geojson(
        cls,
        path: str | Path,
        *,
        metric: str = "haversine",
        snap: float = 0.0,
        skip: bool = False,
    ) -> Self:
        """Build from the LineStrings and MultiLineStrings of a GeoJSON file, in its order; Points are passed over.

        Args:
            path: The file; an R data file (.rda) that `graphs.read_roads` reads is as good.
            metric: As for `from_lines`.
            snap: As for `from_lines`.
            skip: Whether to leave out what is neither a line nor a point.

        Raises:
            FileFormatError: the file is missing, or has another content.
            InvalidGraphError: as for `from_lines`.
        """
        return cls.from_lines(read_roads(path, None, metric, skip=skip).lines, metric=metric, snap=snap)

    @property
    def num_roads(self) -> int:
        """The number R of roads."""
        return len(self.starts)

    @property
    def num_vertices(self) -> int:
        """The number V of vertices."""
        return len(self.coordinates)

    @property
    def total_length(self) -> float:
        """The sum of the lengths of all roads."""
        return float(self.lengths.sum())

    @property
    def degrees(self) -> Integers:
        """How many ends of roads with a length are at each vertex, (V,): 2 more for a loop, and 1 at a free end."""
        road = self.lengths > 0
        return np.bincount(np.concatenate([self.starts[road], self.ends[road]]), minlength=self.num_vertices)

    def read_positions(
        self,
        positions: ArrayLike,  # (n, 2)
    ) -> tuple[Integers, Floats]:  # (n,), (n,)
        """Return the roads (n,) and fractions (n,) of n positions, (n, 2).

        Raises:
            InvalidArgumentError: another shape, a road that there is not, or a fraction outside [0, 1].
        """
        given = as_numbers(positions)
        given = given.reshape(0, 2) if given.size == 0 and np.size(np.asarray(positions, dtype=object)) == 0 else given
        if given.ndim != 2 or given.shape[1] != 2:
            raise InvalidArgumentError(f"Positions are pairs (road, fraction), (n, 2), got {shown(positions)}.")
        road, fraction = given.T
        wrong = ~((road >= 0) & (road < self.num_roads) & (road == np.floor(road)))
        if wrong.any():
            i = int(wrong.argmax())
            raise InvalidArgumentError(
                f"Position {i} is on road {road[i]:g}; roads are integers 0..{self.num_roads - 1}."
            )
        wrong = ~((fraction >= 0) & (fraction <= 1))
        if wrong.any():
            i = int(wrong.argmax())
            raise InvalidArgumentError(
                f"Position {i} is at fraction {fraction[i]:g} of its road; it must be in [0, 1]."
            )
        return road.astype(np.int64), fraction + 0.0

    def point(
        self,
        positions: ArrayLike,  # (n, 2)
    ) -> Floats:  # (n, 2)
        """Return the coordinates of n positions, (n, 2), on the lines of their roads.

        Raises:
            InvalidArgumentError: as for `read_positions`.
        """
        return self.lines.along(*self.read_positions(positions))

    def nearest(
        self,
        coordinates: ArrayLike,  # (n, 2)
        *,
        within: float = np.inf,
    ) -> Floats:  # (n, 2)
        """Return the positions (n, 2) nearest to n points; of several as near, that on the first road.

        Args:
            coordinates: (n, 2) of the points, like those of the vertices.
            within: How far away they may be, in metres or the units of the plane.

        Raises:
            InvalidArgumentError: no finite numbers of this shape, degrees that are none, a tolerance that is not
                positive, or a point further away.
        """
        points = as_numbers(coordinates)
        if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
            raise InvalidArgumentError(f"Points are finite coordinates (n, 2), got {shown(coordinates)}.")
        if not is_number(within) or not within > 0:
            raise InvalidArgumentError(f"within must be a positive number, got {shown(within)}.")
        if self.lines.metric == "haversine" and (np.abs(points) > (360, 90)).any():
            raise InvalidArgumentError(f"Points are longitudes and latitudes in degrees, got {shown(coordinates)}.")
        if len(points) == 0:
            return np.zeros((0, 2))
        found = nearest_places(self.lines, points if self.lines.metric == "euclidean" else on_globe(points))
        if (found.distance > within).any():
            i = int((found.distance > within).argmax())
            raise InvalidArgumentError(
                f"Point {i} is {found.distance[i]:,.6g} from the nearest road; within={within:g} are allowed."
            )
        return np.stack([found.line.astype(np.float64), found.fraction], axis=1)

    def distance(
        self,
        first: ArrayLike,  # (n, 2)
        second: ArrayLike,  # (m, 2)
    ) -> Floats:  # (n, m)
        """Return the lengths (n, m) of the shortest ways along roads between positions, infinite where there is none.

        Raises:
            InvalidArgumentError: as for `read_positions`.
            MemoryBudgetError: ways from the first positions to all vertices would not fit into memory.
        """
        (road, fraction), (other, share) = self.read_positions(first), self.read_positions(second)
        sides = [(self.starts, fraction, share), (self.ends, 1 - fraction, 1 - share)]
        size = (self.num_vertices, self.num_vertices)
        low, high = np.minimum(self.starts, self.ends), np.maximum(self.starts, self.ends)
        order = np.lexsort((self.lengths, high, low))
        order = order[low[order] != high[order]]
        chosen = order[first_of_each(low[order] * self.num_vertices + high[order])[0]]
        links = sp.csr_array((self.lengths[chosen], (low[chosen], high[chosen])), shape=size)
        direct = np.abs(fraction[:, None] - share[None]) * self.lengths[road][:, None]
        out = np.where(road[:, None] == other[None], direct, np.inf)
        for vertex, before, _ in sides:
            at, row = np.unique(vertex[road], return_inverse=True)
            check_fits("Ways from so many vertices", 8.0 * len(at) * self.num_vertices, "Ask for fewer at a time.")
            ways = dijkstra(links, directed=False, indices=at) if len(at) else np.zeros((0, self.num_vertices))
            start = (before * self.lengths[road])[:, None]
            for target, _, after in sides:
                end = (after * self.lengths[other])[None]
                out = np.minimum(out, start + ways[row.reshape(-1)][:, target[other]] + end)
        return out

    def __repr__(self) -> str:
        unit = " m" if self.lines.metric == "haversine" else ""
        return f"RoadNetwork({self.num_roads} roads, {self.num_vertices} vertices, {self.total_length:,.6g}{unit})"


def _merged(
    coordinates: Floats, starts: Integers, ends: Integers, lengths: Floats
) -> tuple[Floats, Integers, Integers]:
    """Join the ends of roads whose length is 0 in floating point, though their ends differ."""
    gone = lengths == 0
    if not (starts[gone] != ends[gone]).any():
        return coordinates, starts, ends
    links = sp.coo_array((np.ones(gone.sum()), (starts[gone], ends[gone])), shape=(len(coordinates),) * 2)
    kept, part = first_of_each(connected_components(links, directed=False)[1])
    return coordinates[kept], part[starts], part[ends]


def _warn_of_duplicates(lines: Lines, lengths: Floats) -> None:
    repeated = lines.repeated()
    repeated = repeated[lengths[repeated] > 0]
    if len(repeated):
        warnings.warn(
            DuplicateRoadsWarning(
                f"{len(repeated)} road{'s are' if len(repeated) > 1 else ' is'} the same line as another, the first of "
                f"them road {repeated[0]}; they count as parallel roads. Leave them out if they are one road."
            ),
            stacklevel=3,
        )
