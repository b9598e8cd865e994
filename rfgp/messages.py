"""Values in messages: short, on one line, and without terminal control characters."""

import difflib
from collections.abc import Sequence
from typing import Any

MISSING_LABEL = "(missing)"
"""The level of missing cells in a column of levels that accepts them."""
_SHOWN = 60


def printable(text: str) -> str:
    r"""Return text without terminal control characters.

    Examples:
        >>> printable("a\x1b[0m")
        'a?[0m'
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line of at most 200 characters.

    Examples:
        >>> one_line(ValueError("too large"))
        'too large'
    """
    words = printable(" ".join(str(error).split())) or type(error).__name__
    return words if len(words) <= 200 else words[:199] + "…"


def quoted(text: str) -> str:
    """Return text in quotes, cut to about 60 characters.

    Control characters are escaped.

    Examples:
        >>> quoted("north")
        "'north'"
    """
    literal = repr(text[:_SHOWN])
    return literal if len(text) <= _SHOWN and len(literal) <= _SHOWN + 2 else f"{literal[: _SHOWN - 3]}...{literal[-1]}"


def short_repr(value: Any) -> str:
    """Return any value on one line of at most about 60 characters.

    If the value has no repr, its type is returned.

    Examples:
        >>> short_repr("north"), short_repr(7), short_repr((0, 1))
        ("'north'", '7', '(0, 1)')
    """
    if isinstance(value, str):
        return quoted(str.__str__(value))
    try:
        words = printable(" ".join((str(value) if hasattr(value, "isoformat") else repr(value)).split()))
    except Exception:  # from a user's class, or an integer with more digits than Python prints
        return f"a value of type {type(value).__name__}"
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}..."


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
