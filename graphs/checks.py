"""Arguments that a caller gives: counts, names out of a few, and numbers."""

import os
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.errors import InvalidArgumentError, MemoryBudgetError

_IDENTIFIER = re.compile(r"(?:.*[ _-])?(?:id|index|node|vertex|face|cell|fid)", re.IGNORECASE)
"""Matches names of columns that identify rows."""


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return an integer from `least` on, up to `most` where there is one.

    Raises:
        InvalidArgumentError: it is none; the message names it and what is allowed.
    """
    if is_count(value) and least <= value and (most is None or value <= most):
        return int(value)
    what = "a positive integer" if (least, most) == (1, None) else f"an integer from {least} {_end(most)}"
    raise InvalidArgumentError(f"{name} must be {what}, got {shown(value)}.")


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


def is_number(value: Any) -> bool:
    """Whether a value is a real number, and no truth value."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_identifier(name: str, values: Any) -> bool:  # (n,)
    """Return whether a column identifies its rows: by its name, or as it holds consecutive integers, five or more."""
    if _IDENTIFIER.fullmatch(name.strip()):
        return True
    found = np.unique(np.asarray(values, dtype=np.float64))
    is_whole = bool((found == np.floor(found)).all())
    return 4 < len(found) == np.size(values) and is_whole and found[-1] - found[0] == len(found) - 1


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Refuse a value of the argument `name` that is not allowed.

    Raises:
        InvalidArgumentError: which are allowed.
    """
    choices = tuple(allowed)
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgumentError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}.")


def as_numbers(values: Any) -> NDArray[np.float64]:
    """Return a new array of real numbers of any shape; (0,) for what is none: text, truth, ragged, complex."""
    try:
        given = values if hasattr(values, "__array__") else np.array(values, dtype=object)
        foreign = np.iscomplexobj(values) or _holds_words(given)
        return np.zeros(0) if foreign else np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(0)


def _holds_words(given: Any) -> bool:
    """Whether texts or truth values are among what is given; numpy would make numbers of them."""
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    if kind == "O":
        return any(isinstance(entry, bool | np.bool_ | str | bytes) for entry in np.asarray(given).flat)
    return kind in tuple("bUS")


def is_hashable(value: Any) -> bool:
    """Whether a value can be a label: a tuple that holds a list, for one, cannot."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def check_fits(what: str, size: float, remedy: str, max_memory: float | None = None) -> None:
    """Refuse what would take more than so many bytes; None: than this machine has. Asked before it is allocated.

    Raises:
        MemoryBudgetError: with the size; `what` begins the message and `remedy` ends it.
    """
    allowed = machine_memory() if max_memory is None else max_memory
    if not size <= allowed:
        bound = "more than this machine has" if max_memory is None else "more than max_memory allows"
        raise MemoryBudgetError(
            f"{what} take up to {size / 2**20:,.4g} MiB, {bound} ({allowed / 2**20:,.4g} MiB). {remedy}"
        )


def machine_memory() -> float:
    """Return the bytes of memory of this machine, 64 GiB where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 2.0**36


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return "1 edge" or "2 edges"; `things` is the plural, if it is no thing with an s."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def shown(value: Any) -> str:
    """Return what a value is, in a few words for a message."""
    if isinstance(value, np.ndarray) and not 1 <= value.size <= 8:
        return f"{value.dtype} of shape {value.shape}"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more than 4,300 digits
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _end(most: int | None) -> str:
    return "on" if most is None else f"to {most}"
