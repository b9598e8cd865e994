"""Points of lines that nearly meet: which of them a tolerance joins.

Three rules, on the distinct places of all points:

1. Places that are vertices anyway and lie within the tolerance of each other are one crossing, and so are those that a
   chain of such places joins, as long as all of them stay within three tolerances.
2. Another point of a line belongs to the crossing of the nearest vertex within the tolerance.
3. The points that are left are joined in chains as well, but only through pairs on different lines or far apart along
   one. A chain that is wider than three tolerances, as of two lines that run beside each other, falls into pairs of
   points that are the nearest to each other.

A line that has several points at one crossing, each within three tolerances of the next along the line, meets it once:
at its end if it ends there, otherwise at a vertex rather than at another point, and of these at the one nearest to the
crossing's first place. The crossings depend on neither the order nor the direction of the lines.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from graphs.builders.lines import Lines, Passes, chord, in_space
from graphs.errors import InvalidArgumentError, InvalidGraphError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WIDEST = 3.0
"""The largest width of a crossing, in tolerances; also the length up to which a line that snapping closes vanishes."""
_MOST_NEAR = 32
"""The largest average number of vertices within the tolerance of one: more means that the tolerance is too large."""
_FIRST_NEIGHBORS = 8
"""How many nearest places are looked at before more are, to find one of another line."""


def check_snap(snap: Any) -> None:
    """Refuse a tolerance that is not a number of at least 0.

    Raises:
        InvalidArgumentError: it is not.
    """
    if isinstance(snap, bool) or not isinstance(snap, int | float | np.number) or not 0 <= snap < np.inf:
        raise InvalidArgumentError(
            f"snap must be a number of at least 0, in metres or the plane's units, got {snap!r}."
        )


def snapped_stops(
    lines: Lines,
    passes: Passes,
    meets: NDArray[np.bool_],  # (P,)
    snap: float,
) -> tuple[Integers, Integers]:
    """Return the passes at which lines meet a crossing, ascending, and the number of the crossing of each.

    Args:
        lines: The lines.
        passes: Their distinct points.
        meets: Whether each place is a vertex without a tolerance.
        snap: The tolerance, positive.

    Raises:
        InvalidGraphError: chains of vertices would join places that are more than three tolerances apart.
    """
    own = np.unique(passes.place, return_index=True)[1]
    space = in_space(lines.points[passes.point[own]], lines.metric)
    group = _crossings(space, meets, passes.line[own], lines.reached[passes.point[own]], snap, lines.metric)
    near = np.flatnonzero(group[passes.place] >= 0)
    line, crossing = passes.line[near], group[passes.place[near]]
    first = np.full(int(crossing.max()) + 1, len(passes.place))
    np.minimum.at(first, crossing, near)
    distance = np.linalg.norm(space[passes.place[near]] - space[passes.place[first[crossing]]], axis=1)
    order = np.lexsort((near, crossing, line))
    steps = np.diff(lines.reached[passes.point[near[order]]], prepend=0.0)
    opens = (np.diff(line[order], prepend=-1) != 0) | (np.diff(crossing[order], prepend=-1) != 0)
    run = np.empty(len(near), dtype=np.int64)
    run[order] = np.cumsum(opens | (steps > WIDEST * snap)) - 1
    is_end = passes.is_end[near]
    ends = np.bincount(run, is_end) > 0
    order = np.lexsort((near, distance, ~meets[passes.place[near]], run))
    best = np.zeros(len(near), dtype=bool)
    best[order[np.diff(run[order], prepend=-1) > 0]] = True
    stops = is_end | (best & ~ends[run])
    return near[stops], crossing[stops]


def _crossings(
    space: Floats,  # (P, d)
    meets: NDArray[np.bool_],  # (P,)
    line: Integers,  # (P,) a line that passes each place
    reached: Floats,  # (P,) its length up to there
    snap: float,
    metric: str,
) -> Integers:  # (P,)
    """Return the crossing of each place, -1 for none."""
    from scipy.spatial import cKDTree

    reach = chord(float(snap), metric)
    group = np.full(len(space), -1)
    vertices, others = np.flatnonzero(meets), np.flatnonzero(~meets)
    group[vertices] = part = _chains(space[vertices], reach, snap)
    _check_chains(space[vertices], part, reach, snap)
    distance, nearest = cKDTree(space[vertices]).query(space[others], distance_upper_bound=np.nextafter(reach, np.inf))
    is_near = np.isfinite(distance)
    group[others[is_near]] = part[nearest[is_near]]
    left = others[~is_near]
    found = _joined(space[left], line[left], reached[left], reach, WIDEST * snap)
    group[left[found >= 0]] = part.max() + 1 + found[found >= 0]
    return group


def _joined(
    space: Floats,  # (n, d)
    line: Integers,  # (n,)
    reached: Floats,  # (n,)
    reach: float,
    apart: float,
) -> Integers:  # (n,)
    """Return a number for the points of each crossing that is not at a vertex; -1 for points of none."""
    partner = _partners(space, line, reached, reach, apart)
    paired = np.flatnonzero(partner >= 0)
    chain = _eligible_chains(space[paired], line[paired], reached[paired], reach, apart)
    is_narrow = np.zeros(len(paired), dtype=bool)
    found = np.full(len(space), -1)
    if chain is not None:
        is_narrow = (_widths(space[paired], chain) <= WIDEST * reach)[chain]
        found[paired[is_narrow]] = chain[is_narrow]
    wide = paired[~is_narrow]
    first = wide[(partner[partner[wide]] == wide) & (wide < partner[wide])]
    found[first] = found[partner[first]] = found.max(initial=-1) + 1 + np.arange(len(first))
    return found


def _eligible_chains(
    space: Floats, line: Integers, reached: Floats, reach: float, apart: float
) -> Integers | None:  # (n,)
    """Return the chain of each point, through pairs on different lines or far apart along one; None if too many."""
    from scipy.spatial import cKDTree

    tree = cKDTree(space)
    if len(space) == 0 or tree.count_neighbors(tree, reach) > _MOST_NEAR * len(space):
        return None
    first, second = tree.query_pairs(reach, output_type="ndarray").T
    fits = (line[first] != line[second]) | (np.abs(reached[first] - reached[second]) > apart)
    return _components(first[fits], second[fits], len(space))


def _partners(
    space: Floats,  # (n, d)
    line: Integers,  # (n,)
    reached: Floats,  # (n,)
    reach: float,
    apart: float,
) -> Integers:  # (n,)
    """Return the nearest point within reach of each that is on another line or farther along the same; -1 for none."""
    from scipy.spatial import cKDTree

    partner, rest, count = np.full(len(space), -1), np.arange(len(space)), _FIRST_NEIGHBORS
    while len(rest):
        ranks = np.arange(1, min(count, len(space)) + 1)
        distance, near = cKDTree(space).query(space[rest], ranks, distance_upper_bound=np.nextafter(reach, np.inf))
        is_near = np.isfinite(distance)
        near = np.where(is_near, near, 0)
        is_far_along = np.abs(reached[near] - reached[rest][:, None]) > apart
        fits = is_near & ((line[near] != line[rest][:, None]) | is_far_along)
        found = fits.any(axis=1)
        partner[rest[found]] = near[found, fits[found].argmax(axis=1)]
        rest = rest[~found & is_near.all(axis=1) & (len(ranks) < len(space))]
        count *= 4
    return partner


def _chains(space: Floats, reach: float, snap: float) -> Integers:
    """Return the part (n,) of each point (n, d); points within reach of each other are in one part."""
    from scipy.spatial import cKDTree

    tree = cKDTree(space)
    if tree.count_neighbors(tree, reach) > _MOST_NEAR * len(space):  # before the pairs are listed
        raise InvalidGraphError(
            f"snap={snap:g} is more than the distance of neighbouring crossings. Choose a smaller one."
        )
    first, second = tree.query_pairs(reach, output_type="ndarray").T
    return _components(first, second, len(space))


def _components(first: Integers, second: Integers, count: int) -> Integers:  # (n,)
    """Return the connected component of each of n points, given pairs."""
    links = sp.coo_array((np.ones(len(first)), (first, second)), shape=(count, count))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def _widths(space: Floats, part: Integers) -> Floats:
    """Return the diagonals of the boxes around the points (n, d) of each part."""
    low, high = np.full((2, part.max(initial=-1) + 1, space.shape[1]), np.inf)
    np.minimum.at(low, part, space)
    np.minimum.at(high, part, -space)
    return np.asarray(np.linalg.norm(high + low, axis=1))


def _check_chains(space: Floats, part: Integers, reach: float, snap: float) -> None:
    """Refuse chains that join points that are far apart."""
    widths = _widths(space, part)
    if widths.max() > WIDEST * reach:
        members = int((part == widths.argmax()).sum())
        raise InvalidGraphError(
            f"snap={snap:g} would make one crossing of {members} points of roads, each near the next one, the "
            f"outermost {widths.max():.3g} apart. Choose a tolerance well below the distance of neighbouring crossings."
        )
