"""Nearest-neighbor graphs of point clouds."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers
from graphs.builders.edges import EdgeArrays
from graphs.builders.lengths import inverse_lengths, scale_to_unit, segment_distances
from graphs.checks import check_choice, check_count, check_fits, counted, is_number, short_repr
from graphs.errors import InvalidArgumentError, InvalidGraphError

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
    _check_bandwidth(bandwidth, weights)
    given = _check_points(points)
    _check_k(k, len(given))
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


def _check_points(points: ArrayLike) -> NDArray[np.float64]:
    table = as_numbers(points)
    if table.ndim != 2 or 0 in table.shape:
        raise InvalidGraphError(
            f"points must be numbers of shape (n, d), got {short_repr(points)}. Pass points[:, None] for points on a "
            "line."
        )
    return table


def _check_k(k: Any, count: int) -> None:
    if check_count("k", k) >= count:
        raise InvalidArgumentError(
            f"k must be at most {count - 1} for {counted(count, 'point')}, got {k}. "
            + ("Pass a smaller k." if count > 1 else "Pass more points.")
        )


def _check_bandwidth(bandwidth: Any, weights: str) -> None:
    if bandwidth is None:
        return
    if weights != "gaussian":
        raise InvalidArgumentError(
            f'weights must be "gaussian" with a bandwidth, got {weights!r}. Leave bandwidth out.'
        )
    if not is_number(bandwidth) or not 0 < bandwidth < np.inf:
        raise InvalidArgumentError(f"bandwidth must be a positive number, got {short_repr(bandwidth)}.")
