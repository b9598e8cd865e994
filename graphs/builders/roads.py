"""Road geometry to edges: line strings join at their ends, sensors are inserted on them."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.builders.edges import EdgeArrays
from graphs.checks import as_numbers, is_number, shown
from graphs.errors import InvalidArgumentError, InvalidGraphError

_EARTH_RADIUS = 6_371_008.8  # metres, mean


class Roads(NamedTuple):
    """A road network with sensors, as its file tells it."""

    lines: list[NDArray[np.float64]]  # each (points, 2): longitude, latitude
    sensor_edges: NDArray[np.int64]  # (S,) which line
    sensor_fractions: NDArray[np.float64]  # (S,) of the line's length, from its first point
    values: NDArray[np.float64]  # (S,) measured there, for example mph; NaN where nothing was measured
    properties: tuple[Mapping[str, Any], ...] = ()  # S of them, what else the file says of a sensor; or none
    metric: str = "haversine"  # of the lines' coordinates; or "euclidean"

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return the roads (U,) and fractions (U,) of the distinct places of sensors, and each sensor's place (S,)."""
        pairs = np.stack([self.sensor_edges.astype(np.float64), self.sensor_fractions], axis=1).reshape(-1, 2)
        _, first, place = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")  # in the order of the sensors
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        distinct = first[order]
        return self.sensor_edges[distinct], self.sensor_fractions[distinct], rank[place.reshape(-1)]


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
) -> EdgeArrays:
    """Join lines that share an end point exactly; cut each line at its sensors.

    An edge weighs (mean edge length) / (its length), Borovitskiy et al. (2021), lengths below `min_length` times
    the mean counting as that; parallel roads add up.
    A line that returns to its own start without a sensor in between joins nothing and is left out.
    Nodes are labelled "crossing-0", ... and "sensor-0", ....
    """
    labels, coordinates, pieces = cut_roads(lines, sensor_edges, sensor_fractions, metric)
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
) -> tuple[tuple[str, ...], NDArray[np.float64], list[Piece]]:
    """Return the labels (N,) and coordinates (N, 2) of the nodes, and the pieces of road between them.

    Arguments are those of `from_roads`.

    Raises:
        InvalidGraphError: a road without length, or a sensor outside its road or on another sensor.
        InvalidArgumentError: an unknown metric, or arrays of different lengths.
    """
    if not isinstance(lines, Sequence | np.ndarray) or isinstance(lines, str):
        raise InvalidGraphError(f"Roads are a list of lines, each (points, 2), got {shown(lines)}.")
    if len(lines) == 0:
        raise InvalidGraphError("There are no roads.")
    shapes = [_check_line(i, line) for i, line in enumerate(lines)]
    edges = np.asarray(sensor_edges, dtype=np.int64)
    fractions = np.asarray(sensor_fractions, dtype=np.float64)
    _check_sensors(edges, fractions, len(shapes))
    crossings: dict[tuple[float, float], int] = {}
    ends = [
        [crossings.setdefault((float(x), float(y)), len(crossings)) for x, y in (shape[0], shape[-1])]
        for shape in shapes
    ]
    coordinates = np.zeros((len(crossings) + len(edges), 2))
    coordinates[: len(crossings)] = list(crossings)
    pieces = []
    for i, shape in enumerate(shapes):
        steps = segment_lengths(shape, metric)
        on_line = np.flatnonzero(edges == i)
        on_line = on_line[np.argsort(fractions[on_line], kind="stable")]
        coordinates[len(crossings) + on_line] = _along(shape, steps, fractions[on_line])
        nodes = [ends[i][0], *(len(crossings) + on_line).tolist(), ends[i][1]]
        if len(nodes) == 2 and nodes[0] == nodes[1]:
            continue
        pieces += _cut(shape, steps, nodes, fractions[on_line])
    labels = (*(f"crossing-{i}" for i in range(len(crossings))), *(f"sensor-{i}" for i in range(len(edges))))
    return labels, coordinates, pieces


def _cut(
    shape: NDArray[np.float64], steps: NDArray[np.float64], nodes: list[int], fractions: NDArray[np.float64]
) -> list[Piece]:
    """Cut one line at ascending fractions of its length."""
    reached = np.concatenate(([0.0], np.cumsum(steps))) / steps.sum()
    cuts = np.concatenate(([0.0], fractions, [1.0]))
    places = np.concatenate([shape[:1], _along(shape, steps, fractions), shape[-1:]])
    out = []
    for i, (low, high) in enumerate(itertools.pairwise(cuts)):
        inside = shape[(reached > low) & (reached < high)]
        points = np.concatenate([places[i : i + 1], inside, places[i + 1 : i + 2]])
        out.append(Piece(nodes[i], nodes[i + 1], float((high - low) * steps.sum()), points))
    return out


def _check_line(index: int, line: ArrayLike) -> NDArray[np.float64]:
    shape = as_numbers(line)
    if shape.ndim != 2 or shape.shape[0] < 2 or shape.shape[1] != 2:
        raise InvalidGraphError(
            f"Road {index} needs at least two points (longitude, latitude) of numbers, got {shown(line)}."
        )
    if not np.isfinite(shape).all():
        raise InvalidGraphError(f"Road {index} has a coordinate that is not a finite number.")
    if not np.abs(np.diff(shape, axis=0)).sum() > 0:
        raise InvalidGraphError(f"Road {index} has no length.")
    return shape


def _check_sensors(edges: NDArray[np.int64], fractions: NDArray[np.float64], count: int) -> None:
    if edges.ndim != 1 or edges.shape != fractions.shape:
        raise InvalidArgumentError(f"Sensor edges {edges.shape} and fractions {fractions.shape} must be (S,).")
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
