"""Lengths of edges, and weights from lengths."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.checks import counted
from graphs.errors import InvalidGraphError


def scale_to_unit(
    points: NDArray[np.float64],  # (n, d)
    subject: str,
) -> tuple[NDArray[np.float64], float]:
    """Return points (n, d) divided by their largest coordinate, and this number.

    The number is 1 if all are 0. Differences, squares and cross products of the result stay in the range of double
    precision.

    Args:
        points: The points.
        subject: The name of a row, for messages, such as "Vertex".

    Raises:
        InvalidGraphError: If a coordinate is not a finite number.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lengths import scale_to_unit
        >>> points, scale = scale_to_unit(np.array([[0.0, 4.0], [2.0, 0.0]]), "Point")
        >>> points.tolist(), scale
        ([[0.0, 1.0], [0.5, 0.0]], 4.0)
    """
    wrong = ~np.isfinite(points).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidGraphError(f"{subject} {row} must have finite coordinates, got {points[row].tolist()}.")
    scale = float(np.abs(points).max(initial=0.0)) or 1.0
    return points / scale, scale


def segment_distances(
    starts: NDArray[np.float64],  # (E, d)
    ends: NDArray[np.float64],  # (E, d)
) -> NDArray[np.float64]:  # (E,)
    """Return distances (E,) by `hypot`, since squares of short ones would underflow.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lengths import segment_distances
        >>> segment_distances(np.zeros((1, 2)), np.array([[3.0, 4.0]])).tolist()
        [5.0]
    """
    return np.asarray(np.hypot.reduce(ends - starts, axis=1, initial=0.0))


def inverse_lengths(
    lengths: NDArray[np.float64],  # (E,)
    sources: NDArray[Any],  # (E,)
    targets: NDArray[Any],  # (E,)
    subject: str,
    remedy: str,
) -> NDArray[np.float64]:  # (E,)
    """Return (mean length) / (length), (E,).

    Source: Borovitskiy et al. (2021), "Matern Gaussian processes on graphs".

    Args:
        lengths: Lengths (E,).
        sources: Positions (E,) of the first nodes, for messages.
        targets: Positions (E,) of the second nodes.
        subject: The name of nodes, for messages, such as "Vertices".
        remedy: A sentence that ends the message.

    Raises:
        InvalidGraphError: If a length is 0, or so short that the weight overflows.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.lengths import inverse_lengths
        >>> inverse_lengths(np.array([1.0, 3.0]), np.array([0, 1]), np.array([1, 2]), "Nodes", "").round(3).tolist()
        [2.0, 0.667]
    """
    if len(lengths) == 0:
        return lengths
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        weights = lengths.mean() / lengths
    wrong = (lengths < np.finfo(np.float64).tiny) | ~np.isfinite(weights)
    if wrong.any():
        worst = int(wrong.argmax())
        raise InvalidGraphError(
            f"{subject} of an edge must differ, got {sources[worst]} and {targets[worst]} with the same coordinates "
            f"({counted(int(wrong.sum()), 'such edge')}). Then (mean length) / (length) is infinite. {remedy}"
        )
    return np.asarray(weights)
