"""Counts and amounts that a caller gives, and counts in messages."""

import math
import re
from numbers import Integral
from typing import Any

from rfgp.errors import InvalidArgumentError


def check_flag(name: str, value: object) -> None:
    """Refuse an argument that is no truth value.

    Args:
        name: The name of the argument.
        value: The argument.

    Raises:
        InvalidArgumentError: it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be True or False, got {value!r}.")


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return an integer of at least 1, or 0.

    Raises:
        InvalidArgumentError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
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


def read_seconds(name: str, value: Any) -> float:
    """Return the seconds of "30s", "5min" or "2h", or of a number.

    Raises:
        InvalidArgumentError: they cannot be read, or are not positive.
    """
    return read_amount(name, value, {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}, '"30s", "5min" or "2h"')


def read_bytes(name: str, value: Any) -> float:
    """Return the bytes of "500MB" or "4GB", or of a number.

    Raises:
        InvalidArgumentError: they cannot be read, or are not positive.
    """
    return read_amount(name, value, {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}, '"500MB" or "4GB"')


def read_amount(name: str, value: Any, units: dict[str, float], such: str) -> float:
    """Return a positive number, or one with a unit, in the unit whose factor is 1; `such` is an example of it.

    Raises:
        InvalidArgumentError: it cannot be read, or is not positive.
    """
    said = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", str(value).lower())
    try:
        number = float(said[1]) * units[said[2]] if said else math.nan
    except (KeyError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 < number < math.inf:
        raise InvalidArgumentError(f"{name} must be such as {such}, or a positive number, got {value!r}.")
    return number


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return "1 cell" or "2 cells"; `things` is the plural, if it is no thing with an s."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def not_finite(number: int) -> str:
    """Return "1 value that is not finite" or "2 values that are not finite"."""
    return f"{counted(number, 'value')} that {'is' if number == 1 else 'are'} not finite"
