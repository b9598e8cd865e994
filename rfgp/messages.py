"""Values in messages, and checks of arguments, without numpy and torch. `graphs.checks` has those of both packages."""

import difflib
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any

from graphs.checks import check_count as check_count
from graphs.checks import check_counts as check_counts
from graphs.checks import counted as counted
from graphs.checks import one_line as one_line
from graphs.checks import positive as positive
from graphs.checks import printable as printable
from graphs.checks import quoted as quoted
from graphs.checks import short_repr as short_repr
from rfgp.errors import InvalidArgumentError

# --- Values in messages: short, on one line, and without terminal control characters ---------------------------------

MISSING_LABEL = "(missing)"
"""The level of missing cells in a column of levels that accepts them."""
_SHOWN = 60


def unquoted(text: str) -> str:
    """Return text without quotes, cut to about 60 characters.

    Control characters are replaced.

    Examples:
        >>> unquoted("north")
        'north'
    """
    clean = printable(text[:_SHOWN])
    return clean if len(text) <= _SHOWN else f"{clean[: _SHOWN - 3]}..."


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return the first names, separated by commas.

    Args:
        names: The names.
        most: The most names. If there are more, dots follow. The default is 8.

    Examples:
        >>> listed(["a", "b", "c"], most=2)
        'a, b, ...'
    """
    return ", ".join(unquoted(name) for name in names[:most]) + (", ..." if len(names) > most else "")


def did_you_mean(wanted: str, names: Sequence[str]) -> str:
    """Return " Did you mean 'price'?" if a name is similar, else an empty text.

    Args:
        wanted: The wanted name.
        names: The existing names.

    Examples:
        >>> did_you_mean("prise", ["price", "size"])
        " Did you mean 'price'?"
    """
    by_lower = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(wanted.lower(), by_lower, n=1)
    return f" Did you mean {quoted(by_lower[close[0]])}?" if close else ""


# --- Frozen values, shown by their arguments that differ from the defaults -------------------------------------------


def brief_repr(value: Any) -> str:
    """Return the representation of a value, with six significant digits for numbers.

    A tuple of one entry is shown as the entry.

    Examples:
        >>> from rfgp.messages import brief_repr
        >>> brief_repr((0.123456789,)), brief_repr((1.0, 2.5)), brief_repr("day")
        ('0.123457', '(1, 2.5)', "'day'")
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple) and len(value) == 1:
        return brief_repr(value[0])
    return f"({', '.join(map(brief_repr, value))})" if isinstance(value, tuple) else repr(value)


def changed_arguments(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a dataclass that differ from the defaults, in order.

    Args:
        value: The dataclass.

    Yields:
        The name and the value of an argument.

    Examples:
        >>> from rfgp.kernels import RBF
        >>> list(changed_arguments(RBF(lengthscale=2.0)))
        [('lengthscale', 2.0)]
    """
    for entry in fields(value):
        found = getattr(value, entry.name)
        if entry.init and found is not entry.default and (hasattr(found, "shape") or found != entry.default):
            yield entry.name, found


# --- Checks of counts and amounts in arguments, and counts in messages -----------------------------------------------


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


def check_choice(name: str, value: Any, known: Collection[str]) -> None:
    """Check that an argument is one of some names.

    Args:
        name: The name of the argument.
        value: The argument.
        known: The accepted names.

    Raises:
        InvalidArgumentError: If the name is not accepted. The message lists the accepted names, and suggests the
            closest.

    Examples:
        >>> check_choice("weights", "unit", ["unit", "cotangent"])
    """
    if value not in known:
        names = list(known)
        hint = did_you_mean(value, names) if isinstance(value, str) else ""
        raise InvalidArgumentError(f"{name} must be one of {listed(names, 40)}, got {short_repr(value)}.{hint}")


def check_share(name: str, value: float) -> None:
    """Check that a fraction is strictly between 0 and 1.

    Args:
        name: The name of the argument.
        value: The fraction.

    Raises:
        InvalidArgumentError: If the number is outside this range.

    Examples:
        >>> check_share("test_share", 0.2)
    """
    if not 0 < value < 1:
        raise InvalidArgumentError(f"{name} must lie strictly between 0 and 1, got {value}.")


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


def not_finite(number: int) -> str:
    """Return "1 value that is not finite" or "2 values that are not finite".

    Examples:
        >>> not_finite(2)
        '2 values that are not finite'
    """
    return f"{counted(number, 'value')} that {'is' if number == 1 else 'are'} not finite"
