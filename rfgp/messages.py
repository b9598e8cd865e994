"""Values in messages: short, in one line, and without characters that steer a terminal."""

import difflib
from collections.abc import Sequence
from typing import Any

MISSING_LEVEL = "(missing)"
"""The level of missing cells of a column of levels, if these are not refused."""
_SHOWN = 60


def printable(text: str) -> str:
    """Return text without characters that steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def brief(error: BaseException) -> str:
    """Return the message of an error in one line of at most 200 characters."""
    words = printable(" ".join(str(error).split())) or type(error).__name__
    return words if len(words) <= 200 else words[:199] + "…"


def show(text: str) -> str:
    """Return text in quotes, cut to about 60 characters, with control characters escaped."""
    quoted = repr(text[:_SHOWN])
    return quoted if len(text) <= _SHOWN and len(quoted) <= _SHOWN + 2 else f"{quoted[: _SHOWN - 3]}...{quoted[-1]}"


def shown(value: Any) -> str:
    """Return any value in one line of at most about 60 characters; of a value without a repr, its type.

    Examples:
        >>> shown("north"), shown(7), shown((0, 1))
        ("'north'", '7', '(0, 1)')
    """
    if isinstance(value, str):
        return show(str.__str__(value))
    try:
        words = printable(" ".join((str(value) if hasattr(value, "isoformat") else repr(value)).split()))
    except Exception:  # of a caller's own class, or of an integer with more digits than Python prints
        return f"a value of type {type(value).__name__}"
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}..."


def plain(text: str) -> str:
    """Return text without quotes, cut to about 60 characters, with control characters replaced."""
    clean = printable(text[:_SHOWN])
    return clean if len(text) <= _SHOWN else f"{clean[: _SHOWN - 3]}..."


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return the first names, separated by commas."""
    return ", ".join(plain(name) for name in names[:most]) + (", ..." if len(names) > most else "")


def like(wanted: str, names: Sequence[str]) -> str:
    """Return " Did you mean 'price'?" where a name is much like the one that is wanted, else nothing."""
    by_lower = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(wanted.lower(), by_lower, n=1)
    return f" Did you mean {show(by_lower[close[0]])}?" if close else ""
