"""Nearest-neighbor graphs of point clouds."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers
from graphs.builders.edges import EdgeArrays, inverse_lengths, relative_to_mean, scale_to_unit, segment_distances
from graphs.checks import check_choice, check_count, check_fits, counted, is_count, positive, short_repr
from graphs.errors import InvalidArgumentError, InvalidGraphError, UnknownNodeError

_REMEDY = 'Drop duplicates with np.unique(points, axis=0), or pass weights="gaussian" or "unit".'
"""The remedy for points that coincide."""


def from_points(
    points: ArrayLike,  # (n, d)
    k: int,
    weights: str,
    bandwidth: float | None,
) -> EdgeArrays:
    """Return the edges of the nearest-neighbor graph of n points; see `graphs.Graph.from_points`.

    Examples:
        >>> from graphs.builders import from_points
        >>> from_points([[0.0], [1.0], [3.0]], 1, "length", None).weights.round(6).tolist()
        [1.5, 0.75]
    """
    check_choice("weights", weights, ("gaussian", "length", "unit"))
    if bandwidth is not None and weights != "gaussian":
        raise InvalidArgumentError(
            f'weights must be "gaussian" with a bandwidth, got {weights!r}. Leave bandwidth out.'
        )
    if bandwidth is not None:
        positive("bandwidth", bandwidth)
    given = as_numbers(points)
    if given.ndim != 2 or 0 in given.shape:
        raise InvalidGraphError(
            f"points must be numbers of shape (n, d), got {short_repr(points)}. Pass points[:, None] for points on a "
            "line."
        )
    if check_count("k", k) >= len(given):
        raise InvalidArgumentError(
            f"k must be at most {len(given) - 1} for {counted(len(given), 'point')}, got {k}. Pass more points, or a "
            "smaller k."
        )
    check_fits(f"{counted(k, 'neighbor')} of {counted(len(given), 'point')}", 80.0 * k * len(given), "Use a smaller k.")
    scaled, scale = scale_to_unit(given, "Point")
    neighbors, farthest = _nearest(scaled, int(k))
    low, high = _union(neighbors)
    lengths = segment_distances(scaled[low], scaled[high])
    values = np.ones(len(low))
    if weights == "length":
        values = inverse_lengths(lengths, low, high, "Points", _REMEDY)
    elif weights == "gaussian":
        values = _gaussian(lengths, _median(farthest) if bandwidth is None else bandwidth / scale)
    coordinates = given if given.shape[1] in (2, 3) else None
    return EdgeArrays(len(given), low, high, values, None, coordinates)


def _nearest(points: NDArray[np.float64], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k nearest others (n, k) of each point, and the last distance (n,).

    A point is its own nearest neighbor, but may be missing if others coincide with it. Then the farthest of the k + 1
    results is dropped, which is at distance 0 as well.
    """
    from scipy.spatial import KDTree

    distances, nearest = KDTree(points).query(points, k=k + 1, workers=-1)
    is_self = nearest == np.arange(len(points))[:, None]
    is_self[~is_self.any(axis=1), -1] = True
    return nearest[~is_self].reshape(-1, k).astype(np.int64), np.asarray(distances[~is_self].reshape(-1, k)[:, -1])


def _union(neighbors: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted pairs (E,) in which either is a neighbor of the other."""
    count, k = neighbors.shape
    rows, others = np.repeat(np.arange(count), k), neighbors.ravel()
    keys = np.unique(np.minimum(rows, others) * count + np.maximum(rows, others))
    return keys // count, keys % count


def _median(distances: NDArray[np.float64]) -> float:
    median = float(np.median(distances))
    if median == 0:
        raise InvalidGraphError(
            "The median distance to the k-th neighbor must be positive, got 0, since most points have k duplicates. "
            "Pass bandwidth=, or drop duplicates with np.unique(points, axis=0)."
        )
    return median


def _gaussian(lengths: NDArray[np.float64], bandwidth: float) -> NDArray[np.float64]:
    """Return exp(-r^2 / (2 bandwidth^2)), (E,), and 1 at r = 0."""
    with np.errstate(all="ignore"):
        ratios = np.divide(lengths, bandwidth, out=np.zeros_like(lengths), where=lengths > 0)
        return np.asarray(np.exp(-0.5 * ratios**2))


# --- Grid graphs: nodes are the entries of an array, in C order ------------------------------------------------------


_MAX = int(np.iinfo(np.int32).max)
"""The largest number of nodes, and of entries of the adjacency matrix."""


@dataclass(frozen=True)
class GridLabels(Sequence[tuple[int, ...]]):
    """The labels of the nodes of a grid: tuples (i, j, ...) in C order.

    Attributes:
        shape: The shape of the grid.

    Examples:
        >>> from graphs.builders.points import GridLabels
        >>> labels = GridLabels((2, 3))
        >>> labels[4], (1, 1) in labels, len(labels)
        ((1, 1), True, 6)
    """

    shape: tuple[int, ...]

    def __len__(self) -> int:
        return math.prod(self.shape)

    @overload
    def __getitem__(self, index: int) -> tuple[int, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[int, ...]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, ...] | list[tuple[int, ...]]:
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            return self.at(np.arange(chosen.start, chosen.stop, chosen.step, dtype=np.int64))
        return self.at(np.array([chosen]))[0]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.shape))

    def __contains__(self, label: object) -> bool:
        return (
            isinstance(label, tuple)
            and len(label) == len(self.shape)
            and all(is_count(i) and 0 <= i < size for i, size in zip(label, self.shape, strict=True))
        )

    def at(
        self,
        positions: NDArray[np.int64],  # (n,)
    ) -> list[tuple[int, ...]]:
        """Return the labels of n positions (n,).

        Args:
            positions: Positions (n,) in C order.
        """
        columns = (column.tolist() for column in np.unravel_index(positions, self.shape))
        return list(zip(*columns, strict=True))

    def positions(
        self,
        labels: NDArray[np.int64],  # (n, d)
    ) -> NDArray[np.int64]:  # (n,)
        """Return the positions (n,) of labels, the rows of (n, d).

        Args:
            labels: Indices (n, d) of nodes along the axes.

        Raises:
            UnknownNodeError: If a label is not in the grid.
        """
        if labels.shape[1] != len(self.shape):
            raise UnknownNodeError(f"Labels of a grid of shape {self.shape} must be {self._allowed}, got {labels[0]}.")
        outside = ((labels < 0) | (labels >= self.shape)).any(axis=1)
        if outside.any():
            wrong = tuple(labels[int(outside.argmax())].tolist())
            raise UnknownNodeError(f"Labels of a grid of shape {self.shape} must be {self._allowed}, got {wrong}.")
        return np.asarray(np.ravel_multi_index(tuple(labels.T), self.shape), dtype=np.int64)

    @property
    def _allowed(self) -> str:
        return f"tuples {(0,) * len(self.shape)} to {tuple(size - 1 for size in self.shape)}"


def from_grid(
    shape: Sequence[int],  # (d,)
    periodic: bool | Sequence[bool],
    diagonals: bool,
    spacing: ArrayLike | None,  # (d,)
) -> EdgeArrays:
    """Return the edges of the grid graph of a d-dimensional array; see `graphs.Graph.from_grid`.

    An axis of length 1 has no neighbors. An axis of length 2 is never periodic, since the step around it is the step
    within it. From length 3 on, every unordered pair of neighbors differs by exactly one offset out of each pair
    +-offset.

    Examples:
        >>> from graphs.builders import from_grid
        >>> from_grid((3,), True, False, None).sources.tolist()
        [0, 1, 2]
    """
    sizes = _check_shape(shape)
    wraps = [wrap and size > 2 for wrap, size in zip(_check_periodic(periodic, len(sizes)), sizes, strict=True)]
    steps = _check_spacing(spacing, sizes)
    _check_size(sizes, wraps, diagonals)
    long = [axis for axis, size in enumerate(sizes) if size > 1]
    positions = np.arange(math.prod(sizes), dtype=np.int64).reshape([sizes[axis] for axis in long])
    scale = steps.max()
    pairs, lengths = [], []
    for offset in _offsets(len(long), diagonals):
        pairs.append(_shifted(positions, offset, [wraps[axis] for axis in long]))
        lengths.append(math.hypot(*(step / scale for step, move in zip(steps[long], offset, strict=True) if move)))
    counts = np.array([len(sources) for sources, _ in pairs], dtype=np.int64)
    mean = np.average(lengths, weights=counts) if spacing is not None and counts.sum() else 1.0
    weights = np.repeat(relative_to_mean(np.array(lengths), mean, lambda _: _too_different(spacing)), counts)
    empty = [np.zeros(0, dtype=np.int64)]
    sources, targets = (np.concatenate(empty + [pair[end] for pair in pairs]) for end in range(2))
    coordinates = None
    if len(sizes) in (2, 3):
        coordinates = np.indices(sizes).reshape(len(sizes), -1).T * steps
    return EdgeArrays(math.prod(sizes), sources, targets, weights, None, coordinates, GridLabels(sizes))


def _offsets(count: int, diagonals: bool) -> Iterator[tuple[int, ...]]:
    """Yield one of each pair +-offset of neighbors."""
    if not diagonals:
        yield from (tuple(int(axis == i) for i in range(count)) for axis in range(count))
        return
    for lead in range(count):
        for rest in itertools.product((-1, 0, 1), repeat=count - lead - 1):
            yield (0,) * lead + (1, *rest)


def _shifted(
    positions: NDArray[np.int64], offset: tuple[int, ...], wraps: list[bool]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return positions with a neighbor at an offset, and these neighbors."""
    sources = targets = positions
    for axis, (move, wrap) in enumerate(zip(offset, wraps, strict=True)):
        if move and wrap:
            targets = np.roll(targets, -move, axis)
        elif move:
            before: list[slice] = [slice(None)] * positions.ndim
            after = before.copy()
            before[axis], after[axis] = slice(None, -1), slice(1, None)
            first, second = (tuple(before), tuple(after)) if move > 0 else (tuple(after), tuple(before))
            sources, targets = sources[first], targets[second]
    return sources.ravel(), targets.ravel()


def _too_different(spacing: ArrayLike | None) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Ratios of spacings must be in the range of double precision, got {short_repr(spacing)}. Rescale an axis."
    )


def _check_shape(shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence | np.ndarray) and not isinstance(shape, str) else ()
    are_counts = all(is_count(size) and size > 0 for size in sizes)
    if not sizes or not are_counts:
        raise InvalidArgumentError(f"shape must be a tuple of positive integers, such as (20, 30), got {shape!r}.")
    return tuple(int(size) for size in sizes)


def _check_periodic(periodic: Any, count: int) -> list[bool]:
    if isinstance(periodic, bool | np.bool_):
        return [bool(periodic)] * count
    wraps = list(periodic) if isinstance(periodic, Sequence | np.ndarray) else []
    if len(wraps) != count or not all(isinstance(wrap, bool | np.bool_) for wrap in wraps):
        raise InvalidArgumentError(f"periodic must be a bool or one for each of the {count} axes, got {periodic!r}.")
    return [bool(wrap) for wrap in wraps]


def _check_spacing(spacing: ArrayLike | None, sizes: tuple[int, ...]) -> NDArray[np.float64]:
    if spacing is None:
        return np.ones(len(sizes))
    steps = as_numbers(spacing)
    if steps.shape != (len(sizes),) or not ((steps > 0) & (steps < np.inf)).all():
        raise InvalidArgumentError(
            f"spacing must be one positive number for each of the {len(sizes)} axes, got {short_repr(spacing)}."
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(steps * sizes).all():
            raise InvalidArgumentError(
                f"A grid of shape {sizes} must end in the range of double precision, got spacing {spacing!r}. Use less."
            )
    return steps


def _check_size(sizes: tuple[int, ...], wraps: list[bool], diagonals: bool) -> None:
    """Check the numbers of nodes and edges before arrays are allocated."""
    nodes = math.prod(sizes)
    ordered = [2 * size if wrap else 2 * (size - 1) for size, wrap in zip(sizes, wraps, strict=True)]
    if diagonals:  # along each axis: stay, or move
        edges = (math.prod(size + moves for size, moves in zip(sizes, ordered, strict=True)) - nodes) // 2
    else:
        edges = sum(nodes // size * moves for size, moves in zip(sizes, ordered, strict=True)) // 2
    if nodes > _MAX or 2 * edges > _MAX:
        raise InvalidGraphError(
            f"A grid must have at most {_MAX} nodes and half as many edges, got {nodes} nodes and {edges} edges. Use a "
            "smaller shape."
        )
    check_fits(
        f"The {nodes} nodes and {edges} edges of this grid", 64.0 * nodes + 100.0 * edges, "Use a smaller shape."
    )
