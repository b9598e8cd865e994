"""Roads split into segments at positions, which become vertices."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.builders.junctions import POSITION_TOLERANCE
from graphs.roads import RoadNetwork

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class FieldSegments(NamedTuple):
    """The P road segments of a field, ordered along roads, each between two different vertices.

    Examples:
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> graphs.RoadField(roads, cuts=[(0, 0.25)]).segments.length.tolist()
        [1.0, 3.0]
    """

    source: Integers  # (P,) the vertex at the first point
    target: Integers  # (P,)
    length: Floats  # (P,) positive
    road: Integers  # (P,)
    start: Floats  # (P,) fraction of the length of the road at the start of a segment
    end: Floats  # (P,)
    coordinates: Floats  # (V, 2) of the vertices: those of the network, then the cuts
    vertex: Integers  # (c,) the vertex of each requested cut

    @property
    def start_keys(self) -> NDArray[np.complex128]:
        """Road + i start of each segment, (P,), ascending, since complex numbers are sorted lexicographically."""
        return np.asarray(self.road + 1j * self.start)


class SegmentLocations(NamedTuple):
    """The segments and vertices of n positions on roads.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions.roads.segments import locate
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> segments = graphs.RoadField(roads, cuts=[(0, 0.5)]).segments
        >>> locate(roads, segments, segments.start_keys, np.array([0]), np.array([0.75])).fraction.tolist()
        [0.5]
    """

    vertex: Integers  # (n,) the vertex at a position, -1 for none
    segment: Integers  # (n,) the segment around a position, 0 at a vertex
    fraction: Floats  # (n,) of the length of the segment, from its start to a position


def split(
    roads: RoadNetwork,
    road: Integers,  # (c,)
    fraction: Floats,  # (c,)
) -> FieldSegments:
    """Return the segments of roads that are split at positions.

    An edge that returns to its own vertex is also split in the middle if there is no position inside.

    Args:
        roads: The network.
        road: The roads (c,) of the positions.
        fraction: Their fractions (c,) of the lengths of the roads.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions.roads.segments import split
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> split(roads, np.array([0]), np.array([0.25])).length.tolist()
        [1.0, 3.0]
    """
    edges = roads.edges
    edge, fraction, vertex = edges.locate(road, fraction, roads.lengths)
    inner = np.flatnonzero(vertex < 0)
    loops = edges.has_length(roads.lengths) & (edges.source == edges.target)
    loops[edge[inner]] = False
    whole_loops = np.flatnonzero(loops)
    cut_edge = np.concatenate([edge[inner], whole_loops])
    middles = (edges.start + edges.end)[whole_loops] / 2
    cut_fraction = np.concatenate([fraction[inner], middles])
    order = np.lexsort((cut_fraction, cut_edge))
    cut_edge, cut_fraction = cut_edge[order], cut_fraction[order]
    is_new = (np.diff(cut_edge, prepend=-1) > 0) | (np.diff(cut_fraction, prepend=-1.0) > POSITION_TOLERANCE)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = roads.num_vertices + np.cumsum(is_new) - 1
    vertex[inner] = number[: len(inner)]
    cut_edge, cut_fraction = cut_edge[is_new], cut_fraction[is_new]
    coordinates = np.concatenate([roads.coordinates, roads.lines.along(edges.road[cut_edge], cut_fraction)])
    nodes = np.arange(len(coordinates))
    segments = edges.split(roads.lengths, nodes, (cut_edge, cut_fraction, nodes[roads.num_vertices :]))
    length = (segments.end - segments.start) * roads.lengths[segments.road]
    return FieldSegments(
        segments.source, segments.target, length, segments.road, segments.start, segments.end, coordinates, vertex
    )


def locate(
    roads: RoadNetwork,
    segments: FieldSegments,
    start_keys: NDArray[np.complex128],  # (P,)
    road: Integers,  # (n,)
    fraction: Floats,  # (n,)
) -> SegmentLocations:
    """Return the vertex or the segment of each of n positions.

    Args:
        roads: The network.
        segments: The segments.
        start_keys: `segments.start_keys`, (P,).
        road: The roads (n,) of the positions.
        fraction: Their fractions (n,) of the lengths of the roads.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions.roads.segments import locate
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (4, 0)]], metric="euclidean")
        >>> segments = graphs.RoadField(roads, cuts=[(0, 0.5)]).segments
        >>> locate(roads, segments, segments.start_keys, np.array([0, 0]), np.array([0.5, 0.75])).vertex.tolist()
        [2, -1]
    """
    edge, fraction, vertex = roads.edges.locate(road, fraction, roads.lengths)
    segment = np.searchsorted(start_keys, roads.edges.road[edge] + 1j * fraction, side="right") - 1
    segment = np.where(vertex < 0, segment, 0)
    start, end = segments.start[segment], segments.end[segment]
    vertex = np.where((vertex < 0) & (fraction - start <= POSITION_TOLERANCE), segments.source[segment], vertex)
    vertex = np.where((vertex < 0) & (end - fraction <= POSITION_TOLERANCE), segments.target[segment], vertex)
    inside = vertex < 0
    segment_fraction = np.where(inside, (fraction - start) / (end - start), 0.5)
    return SegmentLocations(vertex, np.where(inside, segment, 0), segment_fraction)
