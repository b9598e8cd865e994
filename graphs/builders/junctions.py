"""Junctions of lines: shared points are vertices, which divide lines into edges.

A point of a line is a vertex if it is an end of a line or if the line turns back there. It is also a vertex if it lies
between different pairs of points. Lines therefore meet at interior points that they share, as ways do in OpenStreetMap.
A street that is drawn twice has no vertices inside, and its copies are edges with the same points. Lines that cross
between their points do not meet. If points have heights, those with equal coordinates and different heights are two
places: a bridge and the road below.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from graphs.arrays import component_of_nodes, first_of_each, last_before
from graphs.builders.lines import LinePoints, Lines, line_points
from graphs.builders.snapping import MAX_WIDTH, check_snap, snapped_vertices
from graphs.checks import check_choice
from graphs.errors import InvalidGraphError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DUPLICATES = ("parallel", "merge")
"""Treatments of edges that repeat another: separate parallel roads, or the same road."""
POSITION_TOLERANCE = 1e-12
"""The distance below which positions are equal, as a fraction of the length of a road, above rounding errors."""


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

    @classmethod
    def of_ends(
        cls,
        starts: Integers,  # (R,)
        ends: Integers,  # (R,)
    ) -> Self:
        """Return one edge for each of R roads that have no vertex between their ends.

        Args:
            starts: The first vertex (R,) of each road.
            ends: The last vertex (R,) of each road.
        """
        roads = np.arange(len(starts))
        zeros = np.zeros(len(starts))
        return cls(roads, zeros, zeros + 1, starts, ends, roads.copy(), np.zeros(len(starts), dtype=bool))

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
        lengths: Floats,  # (R,)
        nodes: Integers,  # (V,)
        cuts: tuple[Integers, Floats, Integers],  # (c,) each
    ) -> "Segments":
        """Return the segments of edges with a length between vertices and cuts.

        Args:
            lengths: Lengths (R,) of the roads.
            nodes: The node (V,) of each vertex.
            cuts: The edge, the fraction of its road and the node of each of c cuts inside edges.
        """
        used = np.flatnonzero(self.has_length(lengths))
        edge = np.concatenate([used, cuts[0], used])
        fraction = np.concatenate([self.start[used], cuts[1], self.end[used]])
        node = np.concatenate([nodes[self.source[used]], cuts[2], nodes[self.target[used]]])
        order = np.lexsort((fraction, edge))
        edge, fraction, node = edge[order], fraction[order], node[order]
        first = np.flatnonzero(edge[1:] == edge[:-1])
        return Segments(node[first], node[first + 1], self.road[edge[first]], fraction[first], fraction[first + 1])

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


class Segments(NamedTuple):
    """The P segments of edges that are split at cuts, ordered along roads.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> cuts = np.array([0]), np.array([0.25]), np.array([2])
        >>> roads.edges.split(roads.lengths, np.arange(2), cuts).end.tolist()
        [0.25, 1.0]
    """

    source: Integers  # (P,) node at the first point
    target: Integers  # (P,)
    road: Integers  # (P,)
    start: Floats  # (P,) fraction of the length of the road
    end: Floats  # (P,)


class Junctions(NamedTuple):
    """Joined lines: vertices and the edges between them.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.junctions import join_lines
        >>> from graphs.builders.lines import as_lines
        >>> lines = as_lines([np.array([(0.0, 0.0), (1.0, 0.0)]), np.array([(1.0, 0.0), (1.0, 1.0)])], "euclidean")
        >>> len(join_lines(lines).coordinates)
        3
    """

    coordinates: Floats  # (V, 2) of the vertices
    lengths: Floats  # (R,) of the lines; 0 if snapping closed a line
    edges: RoadEdges
    repeats: Integers  # (r,) roads of the edges that repeat another and stay parallel to it


def join_lines(
    lines: Lines,
    snap: float = 0.0,
    duplicates: str = "parallel",
) -> Junctions:
    """Join lines at shared points, or at points within a tolerance.

    Vertices are numbered in the order in which lines reach them, and lie where the first line does.

    Args:
        lines: The lines.
        snap: The largest distance of points that are joined, in meters or the units of the plane. 0 joins equal points
            only.
        duplicates: "parallel" keeps edges with the same points as separate roads, "merge" makes them one.

    Returns:
        The vertices, and the edges between them.

    Raises:
        InvalidArgumentError: If the tolerance is not a number of at least 0, or `duplicates` is unknown.
        InvalidGraphError: If a length is infinite, or the tolerance would join points that are far apart.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.junctions import join_lines
        >>> from graphs.builders.lines import as_lines
        >>> shapes = [np.array([(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]), np.array([(1.0, 0.0), (1.0, 1.0)])]
        >>> join_lines(as_lines(shapes, "euclidean")).edges.road.tolist()
        [0, 0, 1]
    """
    check_snap(snap)
    check_choice("duplicates", duplicates, DUPLICATES)
    if not np.isfinite(lines.lengths).all():
        wrong = int((~np.isfinite(lines.lengths)).argmax())
        raise InvalidGraphError(f"Lengths must be finite, got an infinite one for road {wrong}. Use larger units.")
    points = line_points(lines)
    label: Integers = points.site
    chosen = np.flatnonzero(_vertex_sites(points)[points.site])
    if snap > 0:
        chosen, crossing = snapped_vertices(lines, points, _vertex_sites(points), snap)
        label = np.where(crossing >= 0, int(points.site.max()) + 1 + crossing, points.site)
    stops = np.bincount(points.line[chosen], minlength=len(lines.first) - 1)
    chosen = np.repeat(chosen, np.where(stops[points.line[chosen]] == 1, 2, 1))  # a single point is both ends
    kept, vertex = first_of_each(label[chosen])
    coordinates = lines.points[points.point[chosen[kept]]]
    line, reached = points.line[chosen], lines.reached[points.point[chosen]]
    first = np.flatnonzero(line[1:] == line[:-1])
    road, total = line[first], lines.lengths[line[first]]
    is_long = total > 0
    scale = np.where(is_long, total, 1.0)
    start = np.where(is_long, reached[first] / scale, np.where(np.diff(road, prepend=-1) > 0, 0.0, 1.0))
    end = np.where(is_long, reached[first + 1] / scale, 1.0)
    lengths = np.array(lines.lengths)
    is_closed = (start == 0) & (end == 1) & (vertex[first] == vertex[first + 1]) & (total <= MAX_WIDTH * snap)
    lengths[road[is_closed]] = 0.0
    ends = vertex[first], vertex[first + 1]
    edges = RoadEdges(road, start, end, *ends, *_repeats(label, chosen[first], chosen[first + 1]))
    return _without_gaps(coordinates, lengths, edges, duplicates == "merge")


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


def _repeats(
    label: Integers,  # (K,) equal for points with the same coordinates or at one crossing
    first: Integers,  # (S,) the first point of each edge
    last: Integers,  # (S,)
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the first edge (S,) with the same points, and whether it is reversed."""
    representative, is_reversed = np.arange(len(first)), np.zeros(len(first), dtype=bool)
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
