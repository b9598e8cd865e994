"""Roads cut into pieces at positions, which become vertices."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.builders.junctions import POSITION_TOLERANCE
from graphs.roads import RoadNetwork

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Pieces(NamedTuple):
    """P pieces of road between two different vertices each, ordered by road and along it."""

    source: Integers  # (P,) the vertex at its first point
    target: Integers  # (P,)
    length: Floats  # (P,) positive
    road: Integers  # (P,)
    low: Floats  # (P,) fraction of its road where a piece begins
    high: Floats  # (P,)
    coordinates: Floats  # (V, 2) of the vertices: those of the network, then the places where roads are cut
    vertex: Integers  # (c,) of each position at which roads were to be cut

    @property
    def begins(self) -> NDArray[np.complex128]:
        """Road + i low of each piece, (P,), ascending: complex numbers are sorted by real, then by imaginary parts."""
        return np.asarray(self.road + 1j * self.low)


class Spots(NamedTuple):
    """Where positions are among pieces."""

    vertex: Integers  # (n,) where a position is a vertex, else -1
    piece: Integers  # (n,) where it is inside a piece, else 0
    share: Floats  # (n,) of the piece's length before it


def cut(
    roads: RoadNetwork,
    road: Integers,  # (c,)
    fraction: Floats,  # (c,)
) -> Pieces:
    """Cut roads at positions, and in the middle those stretches that would still end where they begin."""
    stretch, fraction, vertex = roads.stretches.locate(road, fraction, roads.lengths)
    inner = np.flatnonzero(vertex < 0)
    loops = _used(roads) & (roads.stretches.source == roads.stretches.target)
    loops[stretch[inner]] = False
    halved = np.flatnonzero(loops)
    at = np.concatenate([stretch[inner], halved])
    middles = (roads.stretches.begin + roads.stretches.end)[halved] / 2
    where = np.concatenate([fraction[inner], middles])
    order = np.lexsort((where, at))
    at, where = at[order], where[order]
    is_new = (np.diff(at, prepend=-1) > 0) | (np.diff(where, prepend=-1.0) > POSITION_TOLERANCE)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = roads.num_vertices + np.cumsum(is_new) - 1
    vertex[inner] = number[: len(inner)]
    at, where = at[is_new], where[is_new]
    places = np.concatenate([roads.coordinates, roads.lines.along(roads.stretches.road[at], where)])
    return _between_cuts(roads, at, where, places, vertex)


def _used(roads: RoadNetwork) -> NDArray[np.bool_]:  # (S,)
    """Return which stretches have a length and stand for themselves."""
    return roads.stretches.is_distinct & (roads.lengths[roads.stretches.road] > 0)


def _between_cuts(roads: RoadNetwork, at: Integers, where: Floats, places: Floats, vertex: Integers) -> Pieces:
    """Return the pieces between distinct places inside stretches, ascending, numbered after the network's vertices."""
    found, used = roads.stretches, np.flatnonzero(_used(roads))
    stretch = np.concatenate([used, at, used])
    fraction = np.concatenate([found.begin[used], where, found.end[used]])
    node = np.concatenate([found.source[used], roads.num_vertices + np.arange(len(at)), found.target[used]])
    order = np.lexsort((fraction, stretch))
    stretch, fraction, node = stretch[order], fraction[order], node[order]
    first = np.flatnonzero(stretch[1:] == stretch[:-1])
    road, low, high = found.road[stretch[first]], fraction[first], fraction[first + 1]
    length = (high - low) * roads.lengths[road]
    return Pieces(node[first], node[first + 1], length, road, low, high, places, vertex)


def locate(
    roads: RoadNetwork,
    pieces: Pieces,
    begins: NDArray[np.complex128],  # (P,)
    road: Integers,  # (n,)
    fraction: Floats,  # (n,)
) -> Spots:
    """Return the vertex, or the piece, of each of n positions; `begins` are those of the pieces, which callers keep."""
    stretch, fraction, vertex = roads.stretches.locate(road, fraction, roads.lengths)
    piece = np.searchsorted(begins, roads.stretches.road[stretch] + 1j * fraction, side="right") - 1
    piece = np.where(vertex < 0, piece, 0)
    low, high = pieces.low[piece], pieces.high[piece]
    vertex = np.where((vertex < 0) & (fraction - low <= POSITION_TOLERANCE), pieces.source[piece], vertex)
    vertex = np.where((vertex < 0) & (high - fraction <= POSITION_TOLERANCE), pieces.target[piece], vertex)
    inside = vertex < 0
    share = np.where(inside, (fraction - low) / (high - low), 0.5)
    return Spots(vertex, np.where(inside, piece, 0), share)
