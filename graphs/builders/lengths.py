"""Lengths of edges between places, and the weights that come from them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.checks import counted
from graphs.errors import InvalidGraphError


def scale_to_unit(
    points: NDArray[np.float64],  # (n, d)
    what: str,
) -> tuple[NDArray[np.float64], float]:
    """Return the points (n, d) divided by their largest absolute coordinate, and that number (1 if all are 0).

    Differences, squares and cross products of what is returned stay in the range of double precision.

    Raises:
        InvalidGraphError: a coordinate is not a finite number; `what` names a row, such as "Vertex".
    """
    wrong = ~np.isfinite(points).all(axis=1)
    if wrong.any():
        raise InvalidGraphError(f"{what} {int(wrong.argmax())} has a coordinate that is not a finite number.")
    scale = float(np.abs(points).max(initial=0.0)) or 1.0
    return points / scale, scale


def segment_distances(
    starts: NDArray[np.float64],  # (E, d)
    ends: NDArray[np.float64],  # (E, d)
) -> NDArray[np.float64]:  # (E,)
    """Return distances (E,), by `hypot`: squares of short ones would underflow."""
    return np.asarray(np.hypot.reduce(ends - starts, axis=1, initial=0.0))


def inverse_lengths(
    lengths: NDArray[np.float64],  # (E,)
    sources: NDArray[Any],  # (E,)
    targets: NDArray[Any],  # (E,)
    what: str,
    remedy: str,
) -> NDArray[np.float64]:  # (E,)
    """Return (mean length) / (length), (E,), after Borovitskiy et al. (2021), "Matern Gaussian processes on graphs".

    Raises:
        InvalidGraphError: a length is 0, or so short that the weight is out of range; `what` are the nodes, such as
            "Vertices", and `remedy` says what to do.
    """
    if len(lengths) == 0:
        return lengths
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        weights = lengths.mean() / lengths
    wrong = (lengths < np.finfo(np.float64).tiny) | ~np.isfinite(weights)
    if wrong.any():
        worst = int(wrong.argmax())
        raise InvalidGraphError(
            f"{what} {sources[worst]} and {targets[worst]} are at the same place "
            f"({counted(int(wrong.sum()), 'such edge')}), so "
            f"that (mean length) / (length) is infinite. {remedy}"
        )
    return np.asarray(weights)
