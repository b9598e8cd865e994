"""Class labels of any hashable type, as numbers 0..C-1 and back."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import DataError

_PLAIN = (str, int, bool, float)


def listed(values: Any, what: str) -> list[Any]:
    """Return n values of a list, an array (n,), a tensor (n,) or a Series as a list.

    Args:
        values: The values.
        what: Their name in messages.

    Raises:
        DataError: They are not a sequence.

    Example:
        >>> listed(np.array([1, 2]), "Nodes")
        [1, 2]
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        if values.ndim == 0:
            raise DataError(f"{what} must be a sequence, got {values!r}.")
        return list(values) if values.dtype.kind in "mM" else values.tolist()
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise DataError(f"{what} must be a sequence, got {values!r}.")
    return list(values)


def encode(labels: Any) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
    """Return the classes (C,), sorted where they can be, and the class of each label (n,), as a number.

    Raises:
        DataError: there are none, one is missing (None, NaN) or not hashable, or all are of one class.

    Example:
        >>> classes, numbers = encode(["b", "a", "b"])
        >>> classes.tolist(), numbers.tolist()
        (['a', 'b'], [1, 0, 1])
    """
    values = listed(labels, "Labels of classes")
    if not values:
        raise DataError("There are no labels: at least two observations of different classes are needed.")
    for place, value in enumerate(values):
        if not isinstance(value, Hashable) or (isinstance(value, tuple) and not _is_hashable(value)):
            raise DataError(f"Labels must be (n,) hashable values, got {value!r} at place {place}.")
        if _is_missing(value):
            raise DataError(
                f"Labels must not be missing, got {value!r} at place {place}. Leave out nodes of unknown class."
            )
    distinct = _sorted(dict.fromkeys(values))
    if len(distinct) == 1:
        raise DataError(f"Labels must have at least two classes, got {distinct[0]!r} for all {len(values)}.")
    number = {value: place for place, value in enumerate(distinct)}
    dtype = labels.dtype if isinstance(labels, np.ndarray) and labels.dtype != object else None
    return _array(distinct, dtype), np.array([number[value] for value in values], dtype=np.int64)


def _sorted(distinct: Any) -> list[Any]:
    try:
        return sorted(distinct)
    except TypeError:  # of different types: in the order of their first appearance
        return list(distinct)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True


def _array(distinct: Sequence[Any], dtype: Any) -> NDArray[np.generic]:
    kinds = {type(value) for value in distinct}
    if dtype is not None or (len(kinds) == 1 and kinds <= set(_PLAIN)):
        return np.array(distinct, dtype=dtype)
    out = np.empty(len(distinct), dtype=object)
    for place, value in enumerate(distinct):  # assigned at once, tuples would become rows
        out[place] = value
    return out
