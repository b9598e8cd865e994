"""Roads cut into pieces at positions, which become vertices."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.builders.junctions import POSITION_TOLERANCE
from graphs.roads import RoadNetwork

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Pieces(NamedTuple):
    """P pieces of road between two different vertices each, ordered along roads.

    Examples:
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> graphs.RoadField(roads, cuts=[(0, 0.25)]).pieces.length.tolist()
        [1.0, 3.0]
    """

    source: Integers  # (P,) the vertex at the first point
    target: Integers  # (P,)
    length: Floats  # (P,) positive
    road: Integers  # (P,)
    low: Floats  # (P,) fraction of the road at the begin of a piece
    high: Floats  # (P,)
    coordinates: Floats  # (V, 2) of the vertices: those of the network, then the cuts
    vertex: Integers  # (c,) the vertex of each requested cut

    @property
    def begins(self) -> NDArray[np.complex128]:
        """Road + i low of each piece, (P,), ascending, since complex numbers are sorted lexicographically."""
        return np.asarray(self.road + 1j * self.low)


class Spots(NamedTuple):
    """The vertices and pieces of positions.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions.roads.pieces import locate
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> pieces = graphs.RoadField(roads, cuts=[(0, 0.5)]).pieces
        >>> locate(roads, pieces, pieces.begins, np.array([0]), np.array([0.75])).share.tolist()
        [0.5]
    """

    vertex: Integers  # (n,) the vertex at a position, -1 for none
    piece: Integers  # (n,) the piece around a position, 0 at a vertex
    share: Floats  # (n,) of the length of the piece before a position


def cut(
    roads: RoadNetwork,
    road: Integers,  # (c,)
    fraction: Floats,  # (c,)
) -> Pieces:
    """Return the pieces of roads that are cut at positions.

    A stretch that returns to its own vertex is also cut in the middle if there is no position inside.

    Args:
        roads: The network.
        road: The roads (c,) of the positions.
        fraction: Their fractions (c,) of the lengths of the roads.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions.roads.pieces import cut
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> cut(roads, np.array([0]), np.array([0.25])).length.tolist()
        [1.0, 3.0]
    """
    stretches = roads.stretches
    stretch, fraction, vertex = stretches.locate(road, fraction, roads.lengths)
    inner = np.flatnonzero(vertex < 0)
    loops = stretches.has_length(roads.lengths) & (stretches.source == stretches.target)
    loops[stretch[inner]] = False
    halved = np.flatnonzero(loops)
    at = np.concatenate([stretch[inner], halved])
    middles = (stretches.begin + stretches.end)[halved] / 2
    where = np.concatenate([fraction[inner], middles])
    order = np.lexsort((where, at))
    at, where = at[order], where[order]
    is_new = (np.diff(at, prepend=-1) > 0) | (np.diff(where, prepend=-1.0) > POSITION_TOLERANCE)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = roads.num_vertices + np.cumsum(is_new) - 1
    vertex[inner] = number[: len(inner)]
    at, where = at[is_new], where[is_new]
    coordinates = np.concatenate([roads.coordinates, roads.lines.along(stretches.road[at], where)])
    nodes = np.arange(len(coordinates))
    made = stretches.cut(roads.lengths, nodes, (at, where, nodes[roads.num_vertices :]))
    length = (made.end - made.begin) * roads.lengths[made.road]
    return Pieces(made.source, made.target, length, made.road, made.begin, made.end, coordinates, vertex)


def locate(
    roads: RoadNetwork,
    pieces: Pieces,
    begins: NDArray[np.complex128],  # (P,)
    road: Integers,  # (n,)
    fraction: Floats,  # (n,)
) -> Spots:
    """Return the vertex or the piece of each of n positions.

    Args:
        roads: The network.
        pieces: The pieces.
        begins: `pieces.begins`, (P,).
        road: The roads (n,) of the positions.
        fraction: Their fractions (n,) of the lengths of the roads.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions.roads.pieces import locate
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> pieces = graphs.RoadField(roads, cuts=[(0, 0.5)]).pieces
        >>> locate(roads, pieces, pieces.begins, np.array([0, 0]), np.array([0.5, 0.75])).vertex.tolist()
        [2, -1]
    """
    stretch, fraction, vertex = roads.stretches.locate(road, fraction, roads.lengths)
    piece = np.searchsorted(begins, roads.stretches.road[stretch] + 1j * fraction, side="right") - 1
    piece = np.where(vertex < 0, piece, 0)
    low, high = pieces.low[piece], pieces.high[piece]
    vertex = np.where((vertex < 0) & (fraction - low <= POSITION_TOLERANCE), pieces.source[piece], vertex)
    vertex = np.where((vertex < 0) & (high - fraction <= POSITION_TOLERANCE), pieces.target[piece], vertex)
    inside = vertex < 0
    share = np.where(inside, (fraction - low) / (high - low), 0.5)
    return Spots(vertex, np.where(inside, piece, 0), share)
