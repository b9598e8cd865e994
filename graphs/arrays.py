"""Arrays of users, and small tools of arrays that several rooms share."""

import re
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from graphs.checks import is_count
from graphs.errors import InvalidGraphError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_IDENTIFIER = re.compile(r"(?:.*[ _-])?(?:id|index|node|vertex|face|cell|fid)", re.IGNORECASE)
"""Matches the names of columns that identify rows."""
_MAX = 2**53
"""The bound of integers. Floats are exact below it."""


def identifies_rows(name: str, values: Any) -> bool:  # (n,)
    """Return whether a column identifies its rows.

    A column is an identifier if the last word of its name is "id", "index", "node", "vertex", "face", "cell" or "fid".
    It is also one if it holds at least five consecutive integers, each once.

    Args:
        name: The name of the column.
        values: The values (n,) of the column.

    Examples:
        >>> from graphs.arrays import identifies_rows
        >>> identifies_rows("sensor_id", [7.0, 3.0]), identifies_rows("speed", [60.0, 55.5])
        (True, False)
    """
    if _IDENTIFIER.fullmatch(name.strip()):
        return True
    distinct = np.unique(np.asarray(values, dtype=np.float64))
    is_whole = bool((distinct == np.floor(distinct)).all())
    return 4 < len(distinct) == np.size(values) and is_whole and distinct[-1] - distinct[0] == len(distinct) - 1


def as_numbers(values: Any) -> NDArray[np.float64]:
    """Return a new float64 array, or an empty one if values are not real numbers.

    Text, booleans, complex numbers and ragged lists give an array of shape (0,).

    Examples:
        >>> from graphs.arrays import as_numbers
        >>> as_numbers([1, 2.5]).tolist(), as_numbers(["1", "2"]).size
        ([1.0, 2.5], 0)
    """
    try:
        given = values if hasattr(values, "__array__") else np.array(values, dtype=object)
        foreign = np.iscomplexobj(values) or _has_text_or_booleans(given)
        return np.zeros(0) if foreign else np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(0)


def _has_text_or_booleans(given: Any) -> bool:
    """Return whether values contain text or booleans, which numpy would convert."""
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    if kind == "O":
        return any(isinstance(entry, bool | np.bool_ | str | bytes) for entry in np.asarray(given).flat)
    return kind in tuple("bUS")


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
        >>> from graphs.arrays import read_integers
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


def component_of_nodes(
    sources: NDArray[np.int64],  # (E,)
    targets: NDArray[np.int64],  # (E,)
    num_nodes: int,
) -> NDArray[np.int32]:  # (N,)
    """Return the connected component (N,) of each node, numbered from 0.

    Examples:
        >>> import numpy as np
        >>> from graphs.arrays import component_of_nodes
        >>> component_of_nodes(np.array([0]), np.array([1]), 3).tolist()
        [0, 0, 1]
    """
    links = sp.coo_array((np.ones(len(sources)), (sources, targets)), shape=(num_nodes, num_nodes))
    return np.asarray(connected_components(links, directed=False)[1])


def last_before(
    values: Floats,  # (M,), ascending within each range
    low: Integers,  # (n,)
    high: Integers,  # (n,)
    target: Floats,  # (n,)
) -> Integers:  # (n,)
    """Return the last index in each range with a value of at most a target.

    Args:
        values: Numbers (M,), ascending within each range.
        low: The first index (n,) of each range.
        high: The last index (n,) of each range.
        target: The target (n,) of each range.

    Examples:
        >>> import numpy as np
        >>> from graphs.arrays import last_before
        >>> last_before(np.array([0.0, 1.0, 4.0]), np.array([0]), np.array([2]), np.array([3.0])).tolist()
        [1]
    """
    while (low < high).any():
        middle = (low + high + 1) // 2
        is_before = values[middle] <= target
        low, high = np.where(is_before, middle, low), np.where(is_before, high, middle - 1)
    return low


def first_of_each(
    groups: NDArray[np.integer[Any]],  # (n,)
) -> tuple[Integers, Integers]:
    """Return the first index (g,) of each group, ascending, and the groups (n,).

    Groups are numbered in this order.

    Examples:
        >>> import numpy as np
        >>> from graphs.arrays import first_of_each
        >>> first, member = first_of_each(np.array([7, 3, 7]))
        >>> first.tolist(), member.tolist()
        ([0, 1], [0, 1, 0])
    """
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[member.reshape(-1)]


def pointers(
    counts: NDArray[Any],  # (n,)
) -> NDArray[np.int64]:  # (n + 1,)
    """Return CSR pointers (n + 1,) for the numbers of entries (n,) of rows.

    Args:
        counts: The numbers (n,) of entries.

    Examples:
        >>> import numpy as np
        >>> from graphs.arrays import pointers
        >>> pointers(np.array([2, 0, 3])).tolist()
        [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def ranks(
    counts: NDArray[np.integer[Any]],  # (n,)
) -> NDArray[np.int64]:  # (counts.sum(),)
    """Return 0, 1, ... for the entries of each row.

    Args:
        counts: The numbers (n,) of entries of rows.

    Examples:
        >>> import numpy as np
        >>> from graphs.arrays import ranks
        >>> ranks(np.array([2, 0, 3])).tolist()
        [0, 1, 0, 1, 2]
    """
    starts = pointers(counts)
    return np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
