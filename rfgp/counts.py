"""Checks of counts and amounts in arguments, and counts in messages."""

import math
import re
from numbers import Integral, Real
from typing import Any

from rfgp.errors import InvalidArgumentError


def check_flag(name: str, value: object) -> None:
    """Check that an argument is True or False.

    Args:
        name: The name of the argument.
        value: The argument.

    Raises:
        InvalidArgumentError: If the value is not a bool.

    Examples:
        >>> check_flag("learn", True)
    """
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be True or False, got {value!r}.")


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return an integer that is at least a given one.

    Args:
        name: The name of the argument.
        value: The argument.
        least: The smallest allowed integer. The default is 1.

    Raises:
        InvalidArgumentError: If the value is not such an integer.

    Examples:
        >>> check_count("num_features", 16)
        16
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        kind = {0: "a non-negative integer", 1: "a positive integer"}.get(least, f"an integer of at least {least}")
        raise InvalidArgumentError(f"{name} must be {kind}, got {value!r}.")
    return int(value)


def positive(name: str, value: Any) -> float:
    """Check a positive number, and return it as a float.

    Args:
        name: The name of the argument, for messages.
        value: The number.

    Raises:
        InvalidArgumentError: If the value is not a positive number.

    Examples:
        >>> positive("nu", 2)
        2.0
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise InvalidArgumentError(f"{name} must be a positive number, got {value!r}.")
    return float(value)


def check_counts(**counts: Any) -> None:
    """Check that counts by name are positive integers.

    Raises:
        InvalidArgumentError: If a count is not a positive integer.

    Examples:
        >>> check_counts(rows=3, columns=2)
    """
    for name, value in counts.items():
        check_count(name, value)


def read_seconds(name: str, value: Any) -> float:
    """Return the seconds of "30s", "5min" or "2h", or of a number.

    Args:
        name: The name of the argument.
        value: A text or a positive number.

    Raises:
        InvalidArgumentError: If the value has another form, or is not positive.

    Examples:
        >>> read_seconds("time_limit", "5min")
        300.0
    """
    return read_amount(name, value, {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}, '"30s", "5min" or "2h"')


def read_bytes(name: str, value: Any) -> float:
    """Return the bytes of "500MB" or "4GB", or of a number.

    Args:
        name: The name of the argument.
        value: A text or a positive number.

    Raises:
        InvalidArgumentError: If the value has another form, or is not positive.

    Examples:
        >>> read_bytes("memory", "4GB")
        4000000000.0
    """
    return read_amount(name, value, {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}, '"500MB" or "4GB"')


def read_amount(name: str, value: Any, units: dict[str, float], such: str) -> float:
    """Return a positive number, or a number with a unit, in the base unit.

    The factor of the base unit is 1.

    Args:
        name: The name of the argument.
        value: A number, or a text such as "5min".
        units: The factors of the units by name.
        such: Examples for the message.

    Raises:
        InvalidArgumentError: If the value has another form, or is not positive.

    Examples:
        >>> read_amount("length", "2km", {"m": 1.0, "km": 1000.0}, '"5m"')
        2000.0
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", str(value).lower())
    try:
        number = float(match[1]) * units[match[2]] if match else math.nan
    except (KeyError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 < number < math.inf:
        raise InvalidArgumentError(f"{name} must be a text such as {such}, or a positive number, got {value!r}.")
    return number


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return "1 cell" or "2 cells".

    Args:
        number: The number.
        thing: The singular.
        things: The plural. If None, the singular with an s.

    Examples:
        >>> counted(1, "cell"), counted(2000, "entry", "entries")
        ('1 cell', '2,000 entries')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def not_finite(number: int) -> str:
    """Return "1 value that is not finite" or "2 values that are not finite".

    Examples:
        >>> not_finite(2)
        '2 values that are not finite'
    """
    return f"{counted(number, 'value')} that {'is' if number == 1 else 'are'} not finite"
