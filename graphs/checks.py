"""Checks of arguments: counts, choices, numbers and memory."""

import os
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.errors import InvalidArgumentError, MemoryBudgetError

_IDENTIFIER = re.compile(r"(?:.*[ _-])?(?:id|index|node|vertex|face|cell|fid)", re.IGNORECASE)
"""Matches the names of columns that identify rows."""


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return an integer from `least` to `most`.

    Args:
        name: The name of the argument, for the message.
        value: The value.
        least: The smallest integer allowed.
        most: The largest integer allowed. If None, there is no upper limit.

    Raises:
        InvalidArgumentError: If the value is not such an integer.

    Examples:
        >>> from graphs.checks import check_count
        >>> check_count("rank", 3)
        3
        >>> check_count("rank", 0)
        Traceback (most recent call last):
        graphs.errors.InvalidArgumentError: rank must be a positive integer, got 0.
    """
    if is_count(value) and least <= value and (most is None or value <= most):
        return int(value)
    requirement = "a positive integer" if (least, most) == (1, None) else f"an integer from {least} {_end(most)}"
    raise InvalidArgumentError(f"{name} must be {requirement}, got {short_repr(value)}.")


def check_counts(**values: Any) -> None:
    """Check that all values are positive integers.

    Raises:
        InvalidArgumentError: If a value is not. The message names the first.

    Examples:
        >>> from graphs.checks import check_counts
        >>> check_counts(rank=3, degree=2)
    """
    for name, value in values.items():
        check_count(name, value)


def is_count(value: Any) -> bool:
    """Return whether a value is an integer and not a bool.

    Examples:
        >>> from graphs.checks import is_count
        >>> is_count(3), is_count(3.0), is_count(True)
        (True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is a real number and not a bool.

    Examples:
        >>> from graphs.checks import is_number
        >>> is_number(3.5), is_number("3.5"), is_number(True)
        (True, False, False)
    """
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_identifier(name: str, values: Any) -> bool:  # (n,)
    """Return whether a column identifies its rows.

    A column is an identifier if the last word of its name is "id", "index", "node", "vertex", "face", "cell" or "fid".
    It is also one if it holds at least five consecutive integers, each once.

    Args:
        name: The name of the column.
        values: The values (n,) of the column.

    Examples:
        >>> from graphs.checks import is_identifier
        >>> is_identifier("sensor_id", [7.0, 3.0]), is_identifier("speed", [60.0, 55.5])
        (True, False)
    """
    if _IDENTIFIER.fullmatch(name.strip()):
        return True
    distinct = np.unique(np.asarray(values, dtype=np.float64))
    is_whole = bool((distinct == np.floor(distinct)).all())
    return 4 < len(distinct) == np.size(values) and is_whole and distinct[-1] - distinct[0] == len(distinct) - 1


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Check that the argument `name` has an allowed value.

    Args:
        name: The name of the argument, for the message.
        value: The value.
        allowed: The allowed values.

    Raises:
        InvalidArgumentError: If it has another value. The message lists the allowed ones.

    Examples:
        >>> from graphs.checks import check_choice
        >>> check_choice("metric", "cosine", ("haversine", "euclidean"))
        Traceback (most recent call last):
        graphs.errors.InvalidArgumentError: metric must be one of 'haversine', 'euclidean', got 'cosine'.
    """
    choices = tuple(allowed)
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgumentError(f"{name} must be one of {', '.join(map(repr, choices))}, got {short_repr(value)}.")


def as_numbers(values: Any) -> NDArray[np.float64]:
    """Return a new float64 array, or an empty one if values are not real numbers.

    Text, booleans, complex numbers and ragged lists give an array of shape (0,).

    Examples:
        >>> from graphs.checks import as_numbers
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


def is_hashable(value: Any) -> bool:
    """Return whether a value can be a label. A tuple that contains a list cannot.

    Examples:
        >>> from graphs.checks import is_hashable
        >>> is_hashable((1, 2)), is_hashable((1, [2]))
        (True, False)
    """
    try:
        hash(value)
    except TypeError:
        return False
    return True


def check_fits(
    subject: str, size: float, remedy: str, max_memory: float | None = None, *, option: str = "max_memory"
) -> None:
    """Check that a result fits into memory, before it is allocated.

    Args:
        subject: The subject of the message, plural, such as "The eigenvectors".
        size: The size of the result in bytes.
        remedy: A sentence that ends the message.
        max_memory: The memory allowed, in bytes. If None, the memory of this machine.
        option: The name of the option that is `max_memory`.

    Raises:
        MemoryBudgetError: If the result is larger.

    Examples:
        >>> from graphs.checks import check_fits
        >>> check_fits("The eigenvectors", 2**20, "Use a lower rank.", max_memory=2**21)
    """
    allowed = machine_memory() if max_memory is None else max_memory
    if not size <= allowed:
        bound = "more than this machine has" if max_memory is None else f"more than {option} allows"
        raise MemoryBudgetError(f"{subject} take up to {_mebibytes(size)}, {bound} ({_mebibytes(allowed)}). {remedy}")


def _mebibytes(size: float) -> str:
    """Return a number of bytes in MiB, with at least four digits of large numbers."""
    mebibytes = size / 2**20
    return f"{mebibytes:,.0f} MiB" if mebibytes >= 1000 else f"{mebibytes:.4g} MiB"


def machine_memory() -> float:
    """Return the memory of this machine in bytes, or 64 GiB if it is unknown.

    Examples:
        >>> from graphs.checks import machine_memory
        >>> machine_memory() > 2**28
        True
    """
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 2.0**36


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return a count with its noun, such as "1 edge" or "2 edges".

    Args:
        number: The count.
        thing: The singular.
        things: The plural. If None, the singular with an "s".

    Examples:
        >>> from graphs.checks import counted
        >>> counted(1, "edge"), counted(2, "vertex", "vertices")
        ('1 edge', '2 vertices')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def short_repr(value: Any) -> str:
    """Return a short description of a value for a message.

    Examples:
        >>> import numpy as np
        >>> from graphs.checks import short_repr
        >>> short_repr(np.zeros((3, 9))), short_repr("abc")
        ('float64 of shape (3, 9)', "'abc'")
    """
    if isinstance(value, np.ndarray) and not 1 <= value.size <= 8:
        return f"{value.dtype} of shape {value.shape}"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more than 4,300 digits
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _end(most: int | None) -> str:
    return "on" if most is None else f"to {most}"
