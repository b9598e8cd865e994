"""Arguments that a caller gives: counts, names out of a few, and numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.errors import InvalidArgumentError


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return an integer from `least` on, up to `most` where there is one.

    Raises:
        InvalidArgumentError: it is none; the message names it and what is allowed.
    """
    if is_count(value) and least <= value and (most is None or value <= most):
        return int(value)
    what = "a positive integer" if (least, most) == (1, None) else f"an integer from {least} {_end(most)}"
    raise InvalidArgumentError(f"{name} must be {what}, got {value!r}.")


def check_counts(**values: Any) -> None:
    """Refuse counts by name that are not positive integers.

    Raises:
        InvalidArgumentError: the first that is none.
    """
    for name, value in values.items():
        check_count(name, value)


def is_count(value: Any) -> bool:
    """Whether a value is an integer, and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Refuse a value of the argument `name` that is not allowed.

    Raises:
        InvalidArgumentError: which are allowed.
    """
    choices = tuple(allowed)
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgumentError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def as_numbers(values: Any) -> NDArray[np.float64]:
    """Return a new array of real numbers of any shape; (0,) for what is none, such as text, ragged lists, complex."""
    try:
        return np.zeros(0) if np.iscomplexobj(values) else np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return np.zeros(0)


def _end(most: int | None) -> str:
    return "on" if most is None else f"to {most}"
