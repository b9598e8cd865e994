"""Point clouds to edges: nearest neighbours."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.builders.edges import EdgeArrays
from graphs.builders.lengths import inverse_lengths, scale_to_unit, segment_distances
from graphs.checks import as_numbers, check_choice, check_count, check_fits, counted, is_number, shown
from graphs.errors import InvalidArgumentError, InvalidGraphError

_REMEDY = 'Leave repeated points out (np.unique(points, axis=0)), or pass weights="gaussian" or "unit".'


def from_points(
    points: ArrayLike,  # (n, d)
    k: int,
    weights: str,
    bandwidth: float | None,
) -> EdgeArrays:
    """Join n points in d dimensions with their k nearest neighbours; see `graphs.Graph.from_points`."""
    check_choice("weights", weights, ("gaussian", "length", "unit"))
    _check_bandwidth(bandwidth, weights)
    given = _check_points(points)
    _check_k(k, len(given))
    check_fits(f"{counted(k, 'neighbor')} of {counted(len(given), 'point')}", 80.0 * k * len(given), "Use a smaller k.")
    places, scale = scale_to_unit(given, "Point")
    neighbors, farthest = _nearest(places, int(k))
    low, high = _union(neighbors)
    lengths = segment_distances(places[low], places[high])
    values = np.ones(len(low))
    if weights == "length":
        values = inverse_lengths(lengths, low, high, "Points", _REMEDY)
    elif weights == "gaussian":
        values = _gaussian(lengths, _median(farthest) if bandwidth is None else bandwidth / scale)
    coordinates = given if given.shape[1] in (2, 3) else None
    return EdgeArrays(len(given), low, high, values, None, coordinates)


def _nearest(places: NDArray[np.float64], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k nearest others (n, k) of each point, and the distance (n,) to the last of them.

    A point is its own nearest neighbour, but need not come first, or at all, where others are at its place. Then the
    farthest of the k + 1 that were found is left out, which is at distance 0 as well.
    """
    from scipy.spatial import KDTree

    distances, nearest = KDTree(places).query(places, k=k + 1, workers=-1)
    own = nearest == np.arange(len(places))[:, None]
    own[~own.any(axis=1), -1] = True
    return nearest[~own].reshape(-1, k).astype(np.int64), np.asarray(distances[~own].reshape(-1, k)[:, -1])


def _union(neighbors: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs (E,) in which either is among the other's neighbours (n, k), each once, sorted."""
    count, k = neighbors.shape
    rows, others = np.repeat(np.arange(count), k), neighbors.ravel()
    keys = np.unique(np.minimum(rows, others) * count + np.maximum(rows, others))
    return keys // count, keys % count


def _median(distances: NDArray[np.float64]) -> float:
    median = float(np.median(distances))
    if median == 0:
        raise InvalidGraphError(
            "Most points have their k nearest neighbors at their own place, so that the median distance to the k-th is "
            "0, which is no bandwidth. Pass bandwidth=, or leave repeated points out (np.unique(points, axis=0))."
        )
    return median


def _gaussian(lengths: NDArray[np.float64], bandwidth: float) -> NDArray[np.float64]:
    """Return exp(-r^2 / (2 bandwidth^2)), (E,); 1 at r = 0, even where the bandwidth underflowed."""
    with np.errstate(all="ignore"):
        ratios = np.divide(lengths, bandwidth, out=np.zeros_like(lengths), where=lengths > 0)
        return np.asarray(np.exp(-0.5 * ratios**2))


def _check_points(points: ArrayLike) -> NDArray[np.float64]:
    table = as_numbers(points)
    if table.ndim != 2 or 0 in table.shape:
        raise InvalidGraphError(
            f"Points are numbers of shape (n, d), got {shown(points)}. Points on a line are (n, 1): points[:, None]."
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
        raise InvalidArgumentError(f'bandwidth= belongs to weights="gaussian"; weights={weights!r} has none.')
    if not is_number(bandwidth) or not 0 < bandwidth < np.inf:
        raise InvalidArgumentError(f"bandwidth must be a positive number, got {shown(bandwidth)}.")
