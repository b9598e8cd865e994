"""Roads cut into pieces at positions, which become vertices."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.roads import RoadNetwork

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SAME = 1e-12
"""Of the length of a road: places this near to each other are one, as what fractions are computed by rounds them."""


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
    """Cut roads at positions, and in the middle those that would still end where they begin."""
    vertex = _ends(roads, road, fraction)
    inner = np.flatnonzero(vertex < 0)
    loops = (roads.starts == roads.ends) & (roads.lengths > 0)
    loops[road[inner]] = False
    halved = np.flatnonzero(loops)
    at = np.concatenate([road[inner], halved])
    where = np.concatenate([fraction[inner], np.full(len(halved), 0.5)])
    order = np.lexsort((where, at))
    at, where = at[order], where[order]
    is_new = (np.diff(at, prepend=-1) > 0) | (np.diff(where, prepend=-1.0) > SAME)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = roads.num_vertices + np.cumsum(is_new) - 1
    vertex[inner] = number[: len(inner)]
    at, where = at[is_new], where[is_new]
    places = np.concatenate([roads.coordinates, roads.lines.along(at, where)])
    return _between_cuts(roads, at, where, places, vertex)


def _ends(roads: RoadNetwork, road: Integers, fraction: Floats) -> Integers:
    """Return the vertices (c,) of positions at the ends of roads, -1 of others."""
    at_start = (fraction <= SAME) | (roads.lengths[road] == 0)
    return np.where(at_start, roads.starts[road], np.where(fraction >= 1 - SAME, roads.ends[road], -1))


def _between_cuts(roads: RoadNetwork, at: Integers, where: Floats, places: Floats, vertex: Integers) -> Pieces:
    """Return the pieces between distinct places inside roads, ascending, numbered behind the network's vertices."""
    whole = np.flatnonzero(roads.lengths > 0)
    road = np.concatenate([whole, at, whole])
    fraction = np.concatenate([np.zeros(len(whole)), where, np.ones(len(whole))])
    node = np.concatenate([roads.starts[whole], roads.num_vertices + np.arange(len(at)), roads.ends[whole]])
    order = np.lexsort((fraction, road))
    road, fraction, node = road[order], fraction[order], node[order]
    first = np.flatnonzero(road[1:] == road[:-1])
    low, high = fraction[first], fraction[first + 1]
    length = (high - low) * roads.lengths[road[first]]
    return Pieces(node[first], node[first + 1], length, road[first], low, high, places, vertex)


def locate(
    roads: RoadNetwork,
    pieces: Pieces,
    road: Integers,  # (n,)
    fraction: Floats,  # (n,)
) -> Spots:
    """Return the vertex, or the piece, of each of n positions."""
    vertex = _ends(roads, road, fraction)
    is_position = np.repeat([False, True], [len(pieces.road), len(road)])
    keys = np.concatenate([pieces.road, road]), np.concatenate([pieces.low, fraction])
    order = np.lexsort((is_position, keys[1], keys[0]))
    piece = np.empty(len(order), dtype=np.int64)
    piece[order] = np.cumsum(~is_position[order]) - 1
    piece = np.where(vertex < 0, piece[len(pieces.road) :], 0)
    low, high = pieces.low[piece], pieces.high[piece]
    vertex = np.where((vertex < 0) & (fraction - low <= SAME), pieces.source[piece], vertex)
    vertex = np.where((vertex < 0) & (high - fraction <= SAME), pieces.target[piece], vertex)
    inside = vertex < 0
    share = np.where(inside, (fraction - low) / (high - low), 0.5)
    return Spots(vertex, np.where(inside, piece, 0), share)
