"""Integers from users: the corners of faces, the roads of sensors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.checks import is_count
from graphs.errors import InvalidGraphError

_MAX = 2**53
"""The bound of integers. Floats are exact below it."""


def read_integers(
    values: Any,
    subject: str,
) -> NDArray[np.int64]:
    """Return a new array of integers of any shape; whole floats are accepted.

    Args:
        values: The integers.
        subject: The subject of the message, plural.

    Raises:
        InvalidGraphError: If an entry is not an integer, such as 0.9, True, NaN or text.

    Examples:
        >>> from graphs.builders.numbering import read_integers
        >>> read_integers([1, 2.0], "Faces").tolist()
        [1, 2]
    """
    given = np.asarray(values) if hasattr(values, "__array__") else _as_objects(values)
    wrong = ~_are_whole(given)
    if wrong.any():
        entry = np.unravel_index(int(wrong.argmax()), given.shape)
        location = f"; entry [{', '.join(str(int(i)) for i in entry)}] is" if entry else ", got"
        raise InvalidGraphError(f"{subject} must be integers below 2^53{location} {str(given[entry])[:40]}.")
    return given.astype(np.int64)


def _as_objects(values: Any) -> NDArray[Any]:
    """Return an object array without conversions, such as True to 1."""
    try:
        return np.array(values, dtype=object)
    except ValueError:  # ragged in a way that fits no array
        return np.array([str(values)], dtype=object)


def _are_whole(given: NDArray[Any]) -> NDArray[np.bool_]:
    if given.dtype.kind in "iuf":
        return np.asarray((np.abs(given.astype(np.float64)) < _MAX) & (np.floor(given) == given))
    is_whole = [_is_whole(entry) for entry in given.reshape(-1)] if given.dtype.kind == "O" else False
    return np.broadcast_to(np.array(is_whole, dtype=bool), given.size).reshape(given.shape)


def _is_whole(entry: Any) -> bool:
    is_integer = is_count(entry) or (isinstance(entry, float | np.floating) and float(entry).is_integer())
    return bool(is_integer and abs(entry) < _MAX)
