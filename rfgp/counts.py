"""Counts that a caller gives, and counts in messages."""

from typing import Any

import numpy as np

from rfgp.errors import InvalidArgumentError


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return an integer of at least 1, or 0.

    Raises:
        InvalidArgumentError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        what = "a positive integer" if least else "an integer that is not negative"
        raise InvalidArgumentError(f"{name} must be {what}, got {value!r}.")
    return int(value)


def check_counts(**counts: Any) -> None:
    """Refuse counts by name that are not positive integers.

    Raises:
        InvalidArgumentError: one is not.
    """
    for name, value in counts.items():
        check_count(name, value)


def counted(number: int, thing: str) -> str:
    """Return "1 cell" or "2 cells"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def not_finite(number: int) -> str:
    """Return "1 value that is not finite" or "2 values that are not finite"."""
    return f"{counted(number, 'value')} that {'is' if number == 1 else 'are'} not finite"
