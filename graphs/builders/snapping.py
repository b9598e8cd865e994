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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.arrays import component_of_nodes, pointers, ranks
from graphs.errors import InvalidGraphError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_WIDTH = 3.0
"""The largest width of a crossing, in tolerances. Closed lines up to this length vanish."""
_MAX_NEAR = 32
"""The largest mean number of vertices within the tolerance of one. Above it the tolerance is too large."""
_FIRST_NEIGHBORS = 8
"""The initial number of nearest sites that are searched for one on another line."""


class LinePoints(NamedTuple):
    """The K points of lines, line after line, without repetitions of the point before.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import Lines
        >>> shape = np.array([(0.0, 0.0), (0.0, 0.0), (1.0, 0.0)])
        >>> points = Lines.of([shape], "euclidean").distinct_points()
        >>> points.point.tolist(), points.is_end.tolist()
        ([0, 2], [True, True])
    """

    point: Integers  # (K,) index among the points of the lines
    line: Integers  # (K,)
    site: Integers  # (K,) number of the coordinates, with the height, among the P distinct ones, sorted by them
    is_end: NDArray[np.bool_]  # (K,) whether it is the first or last point of its line
    reached: Floats  # (K,) the length of the line up to there


class _Visits(NamedTuple):
    """The points of lines at each of n sites, site after site."""

    first: Integers  # (n + 1,)
    line: Integers  # (first[n],)
    reached: Floats  # (first[n],) the length of the line up to there

    def chosen(self, sites: Integers) -> "_Visits":
        """Return the visits of some sites."""
        counts = np.diff(self.first)[sites]
        rows = np.repeat(self.first[sites], counts) + ranks(counts)
        return _Visits(pointers(counts), self.line[rows], self.reached[rows])

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
        step = ranks(sizes)
        a = self.first[first_sites][pair] + step // counts[second_sites][pair]
        b = self.first[second_sites][pair] + step % counts[second_sites][pair]
        near = (self.line[a] == self.line[b]) & (np.abs(self.reached[a] - self.reached[b]) <= length)
        return np.asarray(np.bincount(pair, near, minlength=len(first_sites)) == 0)


def snapped_vertices(
    points: LinePoints,
    space: Floats,  # (P, d)
    is_vertex: NDArray[np.bool_],  # (P,)
    snap: float,
    reach: float,
) -> tuple[Integers, Integers, float]:
    """Return points at which lines meet, the crossing of all points (K,), and the largest width of a crossing.

    Args:
        points: The distinct points of the lines.
        space: The Cartesian coordinates (P, d) of the sites.
        is_vertex: A mask (P,) of the sites that are vertices without a tolerance.
        snap: The tolerance, positive, along lines.
        reach: The straight distance of points that are `snap` apart.

    Returns:
        Ascending indices into the points (v,), a crossing for each point, -1 for none, and the width in tolerances.

    Raises:
        InvalidGraphError: If there are too many vertices within the tolerance of each other.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lines import Lines
        >>> from graphs.builders.snapping import snapped_vertices
        >>> shapes = [np.array([(0.0, 0), (1, 0)]), np.array([(1.01, 0), (2, 0)])]
        >>> points = Lines.of(shapes, "euclidean").distinct_points()
        >>> space = np.array([(0.0, 0), (1, 0), (1.01, 0), (2, 0)])
        >>> snapped_vertices(points, space, np.ones(4, dtype=bool), 0.1, 0.1)[1].tolist()
        [0, 1, 1, 2]
    """
    order = np.argsort(points.site, kind="stable")
    first = np.searchsorted(points.site[order], np.arange(len(space) + 1))
    visits = _Visits(first, points.line[order], points.reached[order])
    group, width = _crossings(space, is_vertex, visits, snap, reach)
    crossing = group[points.site]
    near = np.flatnonzero(crossing >= 0)
    run = _runs(points.line[near], crossing[near], points.reached[near], MAX_WIDTH * snap)
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
    reach: float,
) -> tuple[Integers, float]:  # (P,)
    """Return the crossing of each site, -1 for none, and the largest width of a chain of vertices in tolerances."""
    from scipy.spatial import cKDTree

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
