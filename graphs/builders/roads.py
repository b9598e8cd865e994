"""Road geometry to edges: line strings join at their ends, sensors are inserted on them."""

import itertools
from collections.abc import Mapping, Sequence, Sized
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from graphs.builders.edges import EdgeArrays
from graphs.builders.numbering import read_integers
from graphs.checks import as_numbers, is_number, shown
from graphs.errors import InvalidArgumentError, InvalidGraphError

_EARTH_RADIUS = 6_371_008.8  # metres, mean
_WIDEST = 3.0  # tolerances from one side of a crossing to the other, where ends are joined in chains
_MOST_NEAR = 32  # distinct ends of lines within the tolerance of one, on average


class Roads(NamedTuple):
    """A road network with sensors, as its file tells it."""

    lines: list[NDArray[np.float64]]  # each (points, 2): longitude, latitude
    sensor_edges: NDArray[np.int64]  # (S,) which line
    sensor_fractions: NDArray[np.float64]  # (S,) of the line's length, from its first point
    values: NDArray[np.float64]  # (S,) measured there, for example mph; NaN where nothing was measured
    properties: tuple[Mapping[str, Any], ...] = ()  # S of them, what else the file says of a sensor; or none
    metric: str = "haversine"  # of the lines' coordinates; or "euclidean"
    snap: float = 0.0  # ends of lines within so much of each other meet, metres or the units of the plane

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return the roads (U,) and fractions (U,) of the distinct places of sensors, and each sensor's place (S,)."""
        pairs = np.stack([self.sensor_edges.astype(np.float64), self.sensor_fractions], axis=1).reshape(-1, 2)
        distinct, place = first_of_each(np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1))
        return self.sensor_edges[distinct], self.sensor_fractions[distinct], place


class Piece(NamedTuple):
    """A stretch of road between two neighbouring nodes."""

    source: int  # position of the node at its first point
    target: int
    length: float  # metres, or the units of the plane
    shape: NDArray[np.float64]  # (points, 2)


def from_roads(
    lines: Sequence[ArrayLike],  # each (points, 2)
    sensor_edges: ArrayLike,  # (S,)
    sensor_fractions: ArrayLike,  # (S,)
    metric: str,
    min_length: float = 0.0,
    snap: float = 0.0,
) -> EdgeArrays:
    """Join lines that share an end point, or whose ends are within `snap`; cut each line at its sensors.

    An edge weighs (mean edge length) / (its length), Borovitskiy et al. (2021), lengths below `min_length` times
    the mean counting as that; parallel roads add up.
    A line that returns to its own start without a sensor in between joins nothing and is left out.
    Nodes are labelled "crossing-0", ... and "sensor-0", ....
    """
    labels, coordinates, pieces = cut_roads(lines, sensor_edges, sensor_fractions, metric, snap)
    distance = np.array([piece.length for piece in pieces])
    if not is_number(min_length) or not 0 <= min_length < np.inf:
        raise InvalidArgumentError(f"min_length must be a number of at least 0, got {shown(min_length)}.")
    weights = distance.mean() / np.maximum(distance, min_length * distance.mean()) if len(distance) else distance
    ends = np.array([(piece.source, piece.target) for piece in pieces], dtype=np.int64).reshape(-1, 2)
    return EdgeArrays(len(labels), ends[:, 0], ends[:, 1], weights, labels, coordinates)


def cut_roads(
    lines: Sequence[ArrayLike],  # each (points, 2)
    sensor_edges: ArrayLike,  # (S,)
    sensor_fractions: ArrayLike,  # (S,)
    metric: str = "haversine",
    snap: float = 0.0,
) -> tuple[tuple[str, ...], NDArray[np.float64], list[Piece]]:
    """Return the labels (N,) and coordinates (N, 2) of the nodes, and the pieces of road between them.

    Arguments are those of `from_roads`.

    Raises:
        InvalidGraphError: a road without length, or a sensor outside its road or on another sensor.
        InvalidArgumentError: an unknown metric, or arrays of different lengths.
    """
    shapes = check_lines(lines)
    edges, fractions = read_integers(sensor_edges, "The roads of sensors"), as_numbers(sensor_fractions)
    counted = isinstance(sensor_fractions, Sized) and edges.ndim == 1 and edges.shape == fractions.shape
    if not counted or len(cast(Sized, sensor_fractions)) != len(edges):
        raise InvalidArgumentError(
            f"sensor_fractions must be a number for each of the sensor_edges {edges.shape}, got "
            f"{shown(sensor_fractions)}."
        )
    _check_sensors(edges, fractions, len(shapes))
    steps = [segment_lengths(shape, metric) for shape in shapes]
    crossings, ends = join_ends(np.concatenate([shape[[0, -1]] for shape in shapes]), metric, snap)
    coordinates = np.concatenate([crossings, np.zeros((len(edges), 2))])
    order = np.lexsort((fractions, edges))
    sensors = np.split(order, np.searchsorted(edges[order], np.arange(1, len(shapes))))
    pieces = []
    for i, (shape, on_line) in enumerate(zip(shapes, sensors, strict=True)):
        coordinates[len(crossings) + on_line] = _along(shape, steps[i], fractions[on_line])
        nodes = [int(ends[2 * i]), *(len(crossings) + on_line).tolist(), int(ends[2 * i + 1])]
        if len(nodes) == 2 and nodes[0] == nodes[1]:
            continue
        pieces += _cut(shape, steps[i], nodes, fractions[on_line], coordinates)
    labels = (*(f"crossing-{i}" for i in range(len(crossings))), *(f"sensor-{i}" for i in range(len(edges))))
    return labels, coordinates, pieces


def _cut(
    shape: NDArray[np.float64],
    steps: NDArray[np.float64],
    nodes: list[int],
    fractions: NDArray[np.float64],
    coordinates: NDArray[np.float64],
) -> list[Piece]:
    """Cut one line at ascending fractions of its length; pieces end where their nodes are."""
    reached = np.concatenate(([0.0], np.cumsum(steps))) / steps.sum()
    cuts = np.concatenate(([0.0], fractions, [1.0]))
    places = coordinates[nodes]
    out = []
    for i, (low, high) in enumerate(itertools.pairwise(cuts)):
        inside = shape[(reached > low) & (reached < high)]
        points = np.concatenate([places[i : i + 1], inside, places[i + 1 : i + 2]])
        out.append(Piece(nodes[i], nodes[i + 1], float((high - low) * steps.sum()), points))
    return out


def join_ends(
    points: NDArray[np.float64],  # (E, 2)
    metric: str,
    snap: float,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the distinct places (C, 2) of ends of lines (E, 2), in the order of the ends, and each end's place (E,).

    Ends within `snap` of each other are one, and so are those that a chain of such ends joins: the result depends on
    neither the order of the lines nor their direction, but for the number of a place and which of its ends it is at,
    the first.

    Raises:
        InvalidArgumentError: the tolerance is no number of at least 0.
        InvalidGraphError: chains of ends would join what is more than three tolerances apart.
    """
    if isinstance(snap, bool) or not isinstance(snap, int | float | np.number) or not 0 <= snap < np.inf:
        raise InvalidArgumentError(
            f"snap must be a number of at least 0, in metres or the plane's units, got {snap!r}."
        )
    places, joined = first_of_each(np.unique(points + 0.0, axis=0, return_inverse=True)[1].reshape(-1))
    distinct = points[places]
    if snap == 0:
        return distinct, joined
    space, reach = (distinct, float(snap)) if metric == "euclidean" else (on_globe(distinct), _chord(float(snap)))
    kept, part = first_of_each(_chains(space, reach, snap))
    _check_chains(space, part, reach, snap)
    return distinct[kept], part[joined]


def num_parts(
    lines: Sequence[ArrayLike],  # each (points, 2)
    metric: str,
    snap: float,
) -> int:
    """Return into how many parts without a way between them roads fall, with a tolerance.

    Raises:
        InvalidGraphError: the tolerance joins what is far apart.
    """
    shapes = check_lines(lines)
    crossings, ends = join_ends(np.concatenate([shape[[0, -1]] for shape in shapes]), metric, snap)
    links = sp.coo_array((np.ones(len(shapes)), (ends[::2], ends[1::2])), shape=(len(crossings), len(crossings)))
    return int(connected_components(links, directed=False)[0])


def first_of_each(
    groups: NDArray[np.integer[Any]],  # (n,)
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each group first occurs (g,), ascending, and each member's group (n,), numbered in that order."""
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[member.reshape(-1)]


def _chains(space: NDArray[np.float64], reach: float, snap: float) -> NDArray[np.int32]:
    """Return the part (n,) of each point (n, d), points within reach of each other being in one."""
    from scipy.spatial import cKDTree

    tree = cKDTree(space)
    if tree.count_neighbors(tree, reach) > _MOST_NEAR * len(space):  # before the pairs are listed
        raise InvalidGraphError(
            f"snap={snap:g} is more than the distance of neighbouring crossings; choose a smaller one."
        )
    pairs = tree.query_pairs(reach, output_type="ndarray")
    links = sp.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(space), len(space)))
    return np.asarray(connected_components(links, directed=False)[1])


def _check_chains(space: NDArray[np.float64], part: NDArray[np.int64], reach: float, snap: float) -> None:
    """Refuse chains that join what is far apart."""
    low, high = np.full((2, part.max() + 1, space.shape[1]), np.inf)
    np.minimum.at(low, part, space)
    np.minimum.at(high, part, -space)
    widths = np.linalg.norm(high + low, axis=1)
    if widths.max() > _WIDEST * reach:
        members = int((part == widths.argmax()).sum())
        raise InvalidGraphError(
            f"snap={snap:g} would make one crossing of {members} road ends, each near the next one, the outermost "
            f"{widths.max():.3g} apart. Choose a tolerance well below the distance of neighbouring crossings."
        )


def on_globe(
    points: NDArray[np.float64],  # (n, 2)
) -> NDArray[np.float64]:  # (n, 3)
    """Return longitudes and latitudes (n, 2) in degrees as points (n, 3) on the globe, in metres."""
    longitude, latitude = np.radians(points).T
    circle = np.cos(latitude)
    return _EARTH_RADIUS * np.stack([circle * np.cos(longitude), circle * np.sin(longitude), np.sin(latitude)], axis=1)


def _chord(distance: float) -> float:
    """Return the straight distance between two points of the globe that are so many metres apart on it."""
    return float(2 * _EARTH_RADIUS * np.sin(min(distance / (2 * _EARTH_RADIUS), np.pi / 2)))


def check_lines(
    lines: Sequence[ArrayLike],  # each (points, 2)
    lengthless: bool = False,
) -> list[NDArray[np.float64]]:
    """Return lines as arrays, each (points, 2).

    Args:
        lines: At least one, each of at least two points.
        lengthless: Whether all points of a line may be the same.

    Raises:
        InvalidGraphError: something else; the message says which line.
    """
    if not isinstance(lines, Sequence | np.ndarray) or isinstance(lines, str):
        raise InvalidGraphError(f"Roads are a list of lines, each (points, 2), got {shown(lines)}.")
    if len(lines) == 0:
        raise InvalidGraphError("There are no roads.")
    return [_check_line(i, line, lengthless) for i, line in enumerate(lines)]


def _check_line(index: int, line: ArrayLike, lengthless: bool) -> NDArray[np.float64]:
    shape = line.copy() if isinstance(line, np.ndarray) and line.dtype == np.float64 else as_numbers(line)
    if shape.ndim != 2 or shape.shape[0] < 2 or shape.shape[1] != 2:
        raise InvalidGraphError(
            f"Road {index} needs at least two points (longitude, latitude) of numbers, got {shown(line)}."
        )
    if not np.isfinite(shape).all():
        raise InvalidGraphError(f"Road {index} has a coordinate that is not a finite number.")
    if not lengthless and not np.abs(np.diff(shape, axis=0)).sum() > 0:
        raise InvalidGraphError(f"Road {index} has no length.")
    return shape


def _check_sensors(edges: NDArray[np.int64], fractions: NDArray[np.float64], count: int) -> None:
    wrong = (edges < 0) | (edges >= count)
    if wrong.any():
        raise InvalidGraphError(f"Sensor {int(wrong.argmax())} lies on road {edges[wrong][0]}; there are {count}.")
    wrong = ~((fractions > 0) & (fractions < 1))
    if wrong.any():
        raise InvalidGraphError(
            f"Sensor {int(wrong.argmax())} lies at fraction {fractions[wrong][0]} of its road; it must be "
            "inside (0, 1)."
        )
    _, first, counts = np.unique(np.stack([edges, fractions], axis=1), axis=0, return_index=True, return_counts=True)
    if (counts > 1).any():
        raise InvalidGraphError(
            f"Sensor {int(first[counts.argmax()])} shares its place with another; give the place one sensor "
            "and observe it twice."
        )


def segment_lengths(shape: NDArray[np.float64], metric: str) -> NDArray[np.float64]:
    """Return the lengths (points - 1,) of the segments of one line (points, 2), in metres or the units of the plane."""
    if metric == "euclidean":
        return np.asarray(np.linalg.norm(np.diff(shape, axis=0), axis=1))
    if metric != "haversine":
        raise InvalidArgumentError(f'metric must be "haversine" or "euclidean", got {metric!r}.')
    if np.abs(shape[:, 1]).max() > 90 or np.abs(shape[:, 0]).max() > 360:
        raise InvalidGraphError(
            f"A road passes {tuple(shape[np.abs(shape[:, 1]).argmax()].tolist())}, which is no longitude and latitude "
            'in degrees. Pass metric="euclidean" for coordinates in a plane.'
        )
    longitude, latitude = np.radians(shape).T
    half = np.sin(np.diff(latitude) / 2) ** 2
    half = half + np.cos(latitude[:-1]) * np.cos(latitude[1:]) * np.sin(np.diff(longitude) / 2) ** 2
    return np.asarray(2 * _EARTH_RADIUS * np.arcsin(np.sqrt(np.minimum(half, 1.0))))


def _along(shape: NDArray[np.float64], steps: NDArray[np.float64], fractions: NDArray[Any]) -> NDArray[np.float64]:
    """Points at fractions of a line's length, shape (len(fractions), 2)."""
    reached = np.concatenate(([0.0], np.cumsum(steps))) / steps.sum()
    return np.stack([np.interp(fractions, reached, shape[:, axis]) for axis in range(2)], axis=1)
