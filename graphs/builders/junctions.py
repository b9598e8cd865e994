"""Snapping: joins points of lines that nearly meet, within a tolerance.

Three rules apply to the distinct coordinates ("sites") of all points. Heights are one more coordinate in distances.

1. Vertices within the tolerance of each other are one crossing. So are chains of such vertices, with a warning if one
   is wider than three tolerances.
2. Another point of a line belongs to the crossing of the nearest vertex within the tolerance.
3. The remaining points are joined in chains as well, but only through pairs on different lines or far apart along one.
   A chain that is wider than three tolerances, as for two parallel lines, is split into pairs of mutually nearest
   points.

A line may have several points at one crossing, each within three tolerances of the next along the line. It then meets
the crossing once: at its end if it ends there, otherwise at the vertex nearest to the center of the crossing. If there
is no vertex, it meets the crossing at its point nearest to the center. The result depends on neither the order nor the
direction of the lines.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from graphs.arrays import component_of_nodes, first_of_each, last_before
from graphs.builders.lines import LinePoints, Lines, chord, in_space, line_points
from graphs.checks import check_choice
from graphs.errors import InvalidArgumentError, InvalidGraphError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_WIDTH = 3.0
"""The largest width of a crossing, in tolerances. Closed lines up to this length vanish."""
_MAX_NEAR = 32
"""The largest mean number of vertices within the tolerance of one. Above it the tolerance is too large."""
_FIRST_NEIGHBORS = 8
"""The initial number of nearest sites that are searched for one on another line."""


def check_snap(snap: Any) -> None:
    """Check that a tolerance is a number of at least 0.

    Args:
        snap: The tolerance.

    Raises:
        InvalidArgumentError: If it is not.

    Examples:
        >>> from graphs.builders.junctions import check_snap
        >>> check_snap(1.5)
    """
    if isinstance(snap, bool) or not isinstance(snap, int | float | np.number) or not 0 <= snap < np.inf:
        raise InvalidArgumentError(
            f"snap must be a number of at least 0, in meters or the units of the plane, got {snap!r}."
        )


class _Visits(NamedTuple):
    """The points of lines at each of n sites, site after site."""

    first: Integers  # (n + 1,)
    line: Integers  # (first[n],)
    reached: Floats  # (first[n],) the length of the line up to there

    def chosen(self, sites: Integers) -> "_Visits":
        """Return the visits of some sites."""
        counts = np.diff(self.first)[sites]
        first = np.concatenate([[0], np.cumsum(counts)])
        rows = np.arange(first[-1]) + np.repeat(self.first[sites] - first[:-1], counts)
        return _Visits(first, self.line[rows], self.reached[rows])

    def are_apart(
        self,
        first_sites: Integers,  # (q,)
        second_sites: Integers,  # (q,)
        length: float,
    ) -> NDArray[np.bool_]:  # (q,)
        """Return whether no line passes both sites of a pair within a length along it."""
        counts = np.diff(self.first)
        sizes = counts[first_sites] * counts[second_sites]
        pair = np.repeat(np.arange(len(first_sites)), sizes)
        step = np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        a = self.first[first_sites][pair] + step // counts[second_sites][pair]
        b = self.first[second_sites][pair] + step % counts[second_sites][pair]
        near = (self.line[a] == self.line[b]) & (np.abs(self.reached[a] - self.reached[b]) <= length)
        return np.asarray(np.bincount(pair, near, minlength=len(first_sites)) == 0)


def snapped_vertices(
    lines: Lines,
    points: LinePoints,
    is_vertex: NDArray[np.bool_],  # (P,)
    snap: float,
) -> tuple[Integers, Integers, float]:
    """Return points at which lines meet, the crossing of all points (K,), and the largest width of a crossing.

    Args:
        lines: The lines.
        points: Their distinct points.
        is_vertex: A mask (P,) of the sites that are vertices without a tolerance.
        snap: The tolerance, positive.

    Returns:
        Ascending indices into the points (v,), a crossing for each point, -1 for none, and the width in tolerances.

    Raises:
        InvalidGraphError: If there are too many vertices within the tolerance of each other.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import as_lines, line_points
        >>> from graphs.builders.junctions import snapped_vertices
        >>> lines = as_lines([np.array([(0.0, 0), (1, 0)]), np.array([(1.01, 0), (2, 0)])], "euclidean")
        >>> points = line_points(lines)
        >>> snapped_vertices(lines, points, np.ones(4, dtype=bool), 0.1)[1].tolist()
        [0, 1, 1, 2]
    """
    first_points = np.unique(points.site, return_index=True)[1]
    space = in_space(lines.points[points.point[first_points]], lines.metric)
    if lines.heights is not None:
        space = np.column_stack([space, lines.heights[points.point[first_points]]])
    order = np.argsort(points.site, kind="stable")
    first = np.searchsorted(points.site[order], np.arange(len(first_points) + 1))
    visits = _Visits(first, points.line[order], lines.reached[points.point[order]])
    group, width = _crossings(space, is_vertex, visits, snap, lines.metric)
    crossing = group[points.site]
    near = np.flatnonzero(crossing >= 0)
    run = _runs(points.line[near], crossing[near], lines.reached[points.point[near]], MAX_WIDTH * snap)
    site, is_end = points.site[near], points.is_end[near]
    distance = np.round(_from_centers(space, group)[site] / snap, 9)  # ties are broken by site, not by rounding
    order = np.lexsort((site, distance, ~is_vertex[site], run))
    best = np.zeros(len(near), dtype=bool)
    best[order[np.diff(run[order], prepend=-1) > 0]] = True
    has_end = np.bincount(run, is_end) > 0
    return near[is_end | (best & ~has_end[run])], crossing, width


def _runs(line: Integers, crossing: Integers, reached: Floats, longest: float) -> Integers:
    """Return the run (q,) of each point: consecutive points at one crossing."""
    order = np.lexsort((np.arange(len(line)), crossing, line))
    opens = (np.diff(line[order], prepend=-1) != 0) | (np.diff(crossing[order], prepend=-1) != 0)
    run = np.empty(len(line), dtype=np.int64)
    run[order] = np.cumsum(opens | (np.diff(reached[order], prepend=0.0) > longest)) - 1
    return run


def _from_centers(space: Floats, group: Integers) -> Floats:
    """Return the distance (P,) of sites (P, d) from their group's center, or 0."""
    inside = np.flatnonzero(group >= 0)
    counts = np.bincount(group[inside])
    centers = np.stack([np.bincount(group[inside], axis) for axis in space[inside].T], axis=1) / counts[:, None]
    out = np.zeros(len(space))
    out[inside] = np.linalg.norm(space[inside] - centers[group[inside]], axis=1)
    return out


def _crossings(
    space: Floats,  # (P, d)
    is_vertex: NDArray[np.bool_],  # (P,)
    visits: _Visits,
    snap: float,
    metric: str,
) -> tuple[Integers, float]:  # (P,)
    """Return the crossing of each site, -1 for none, and the largest width of a chain of vertices in tolerances."""
    from scipy.spatial import cKDTree

    reach = chord(float(snap), metric)
    group = np.full(len(space), -1)
    vertices, others = np.flatnonzero(is_vertex), np.flatnonzero(~is_vertex)
    group[vertices] = component = _chains(space[vertices], reach, snap)
    width = float(_widths(space[vertices], component).max() / max(reach, np.finfo(float).tiny))
    distance, nearest = cKDTree(space[vertices]).query(space[others], distance_upper_bound=np.nextafter(reach, np.inf))
    is_near = np.isfinite(distance)
    group[others[is_near]] = component[nearest[is_near]]
    unmerged = others[~is_near]
    pair_group = _crossing_of_points(space[unmerged], visits.chosen(unmerged), reach, MAX_WIDTH * snap)
    group[unmerged[pair_group >= 0]] = component.max() + 1 + pair_group[pair_group >= 0]
    return group, width


def _crossing_of_points(
    space: Floats,  # (n, d)
    visits: _Visits,
    reach: float,
    apart: float,
) -> Integers:  # (n,)
    """Return the crossing of points that are not near a vertex, -1 for none."""
    partner = _partners(space, visits, reach, apart)
    paired = np.flatnonzero(partner >= 0)
    chain = _eligible_chains(space[paired], visits.chosen(paired), reach, apart)
    is_narrow = np.zeros(len(paired), dtype=bool)
    crossing = np.full(len(space), -1)
    if chain is not None:
        is_narrow = (_widths(space[paired], chain) <= MAX_WIDTH * reach)[chain]
        crossing[paired[is_narrow]] = chain[is_narrow]
    wide = paired[~is_narrow]
    first = wide[(partner[partner[wide]] == wide) & (wide < partner[wide])]
    crossing[first] = crossing[partner[first]] = crossing.max(initial=-1) + 1 + np.arange(len(first))
    return crossing


def _eligible_chains(space: Floats, visits: _Visits, reach: float, apart: float) -> Integers | None:  # (n,)
    """Return the chain of each point through eligible pairs, None if too many.

    Pairs are eligible if they are on different lines or far apart along one.
    """
    from scipy.spatial import cKDTree

    tree = cKDTree(space)
    if len(space) == 0 or tree.count_neighbors(tree, reach) > _MAX_NEAR * len(space):
        return None
    first, second = tree.query_pairs(reach, output_type="ndarray").T
    fits = visits.are_apart(first, second, apart)
    return component_of_nodes(first[fits], second[fits], len(space)).astype(np.int64)


def _partners(
    space: Floats,  # (n, d)
    visits: _Visits,
    reach: float,
    apart: float,
) -> Integers:  # (n,)
    """Return the nearest eligible point within reach of each point, -1 for none."""
    from scipy.spatial import cKDTree

    partner, rest, count = np.full(len(space), -1), np.arange(len(space)), _FIRST_NEIGHBORS
    tree = cKDTree(space) if len(space) else None
    while tree is not None and len(rest):
        ranks = np.arange(1, min(count, len(space)) + 1)
        distance, near = tree.query(space[rest], ranks, distance_upper_bound=np.nextafter(reach, np.inf))
        is_near = np.isfinite(distance)
        fits = is_near.copy()
        fits[is_near] = visits.are_apart(np.repeat(rest, is_near.sum(axis=1)), near[is_near], apart)
        has_partner = fits.any(axis=1)
        partner[rest[has_partner]] = near[has_partner, fits[has_partner].argmax(axis=1)]
        rest = rest[~has_partner & is_near.all(axis=1) & (len(ranks) < len(space))]
        count *= 4
    return partner


def _chains(space: Floats, reach: float, snap: float) -> Integers:
    """Return the component (n,) of points (n, d), connected within reach."""
    from scipy.spatial import cKDTree

    tree = cKDTree(space)
    if tree.count_neighbors(tree, reach) > _MAX_NEAR * len(space):  # before the pairs are listed
        raise InvalidGraphError(
            f"snap must be less than the distance of neighboring crossings, got {snap:g}. Use a smaller one."
        )
    first, second = tree.query_pairs(reach, output_type="ndarray").T
    return component_of_nodes(first, second, len(space)).astype(np.int64)


def _widths(space: Floats, component: Integers) -> Floats:
    """Return the diagonals of the bounding boxes of components of points (n, d)."""
    low, high = np.full((2, component.max(initial=-1) + 1, space.shape[1]), np.inf)
    np.minimum.at(low, component, space)
    np.minimum.at(high, component, -space)
    return np.asarray(np.linalg.norm(high + low, axis=1))


# --- Junctions of lines: shared points are vertices, which divide lines into edges -----------------------------------
#
# A point of a line is a vertex if it is an end of a line or if the line turns back there. It is also a vertex if it
# lies between different pairs of points. Lines therefore meet at interior points that they share, as ways do in
# OpenStreetMap. A street that is drawn twice has no vertices inside, and its copies are edges with the same points.
# Lines that cross between their points do not meet. If points have heights, those with equal coordinates and different
# heights are two places: a bridge and the road below.


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
    width: float = 0.0  # the largest width of a chain of snapped vertices, in tolerances


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
        InvalidGraphError: If a length is infinite.

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
    label, width = points.site, 0.0
    chosen = np.flatnonzero(_vertex_sites(points)[points.site])
    if snap > 0:
        chosen, crossing, width = snapped_vertices(lines, points, _vertex_sites(points), snap)
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
    return _without_gaps(coordinates, lengths, edges, duplicates == "merge")._replace(width=width)


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
