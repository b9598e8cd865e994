"""Values and counts in messages, and checks of arguments, without numpy."""

import math
import os
import secrets
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Generic, TypeVar

from graphs.errors import InvalidArgumentError, MemoryBudgetError

T = TypeVar("T")

_SHOWN = 60
"""The number of characters of a value in a message."""

# --- Values in messages: short, on one line, and without terminal control characters ---------------------------------


def printable(text: str) -> str:
    r"""Return text without terminal control characters.

    Examples:
        >>> from graphs.checks import printable
        >>> printable("a\x1b[0m")
        'a?[0m'
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def one_line(error: BaseException) -> str:
    r"""Return the message of an error on one line of at most 200 characters.

    Examples:
        >>> from graphs.checks import one_line
        >>> one_line(ValueError("bad\n  header"))
        'bad header'
    """
    words = printable(" ".join(str(error).split())) or type(error).__name__
    return words if len(words) <= 200 else words[:199] + "…"


def quoted(text: str) -> str:
    """Return text in quotes, cut to about 60 characters.

    Control characters are escaped.

    Examples:
        >>> from graphs.checks import quoted
        >>> quoted("north")
        "'north'"
    """
    literal = repr(text[:_SHOWN])
    return literal if len(text) <= _SHOWN and len(literal) <= _SHOWN + 2 else f"{literal[: _SHOWN - 3]}...{literal[-1]}"


def short_repr(value: Any) -> str:
    """Return any value on one line of at most about 60 characters.

    Arrays of more than eight entries, or none, are shown by their type and shape. If the value has no repr, its type is
    returned.

    Examples:
        >>> import numpy as np
        >>> from graphs.checks import short_repr
        >>> short_repr(np.zeros((3, 9))), short_repr("north"), short_repr((0, 1))
        ('float64 of shape (3, 9)', "'north'", '(0, 1)')
    """
    if isinstance(value, str):
        return quoted(str.__str__(value))
    try:
        if hasattr(value, "dtype") and hasattr(value, "shape") and not 1 <= math.prod(value.shape) <= 8:
            return f"{value.dtype} of shape {tuple(value.shape)}"
        words = printable(" ".join((str(value) if hasattr(value, "isoformat") else repr(value)).split()))
    except Exception:  # from a user's class, or an integer with more digits than Python prints
        return f"a value of type {type(value).__name__}"
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}..."


def did_you_mean(wanted: str, names: Sequence[str]) -> str:
    """Return " Did you mean 'price'?" if a name is similar, else an empty text.

    Args:
        wanted: The wanted name.
        names: The existing names.

    Examples:
        >>> from graphs.checks import did_you_mean
        >>> did_you_mean("prise", ["price", "size"])
        " Did you mean 'price'?"
    """
    import difflib

    by_lower = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(wanted.lower(), by_lower, n=1)
    return f" Did you mean {quoted(by_lower[close[0]])}?" if close else ""


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return a count with its noun, such as "1 edge" or "2 edges".

    Args:
        number: The count.
        thing: The singular.
        things: The plural. If None, the singular with an "s".

    Examples:
        >>> from graphs.checks import counted
        >>> counted(1, "edge"), counted(2000, "vertex", "vertices")
        ('1 edge', '2,000 vertices')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


# --- Checks of numbers and names -------------------------------------------------------------------------------------


def is_count(value: Any) -> bool:
    """Return whether a value is an integer and not a bool.

    Examples:
        >>> from graphs.checks import is_count
        >>> is_count(3), is_count(3.0), is_count(True)
        (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is a real number and not a bool.

    Examples:
        >>> from graphs.checks import is_number
        >>> is_number(3.5), is_number("3.5"), is_number(True)
        (True, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return an integer from `least` to `most`.

    Args:
        name: The name of the argument, for the message.
        value: The value.
        least: The smallest integer allowed. The default is 1.
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
    kind = {0: "a non-negative integer", 1: "a positive integer"}.get(least, f"an integer of at least {least}")
    raise InvalidArgumentError(
        f"{name} must be {kind if most is None else f'an integer from {least} to {most}'}, got {short_repr(value)}."
    )


def check_counts(**counts: Any) -> None:
    """Check that counts by name are positive integers.

    Raises:
        InvalidArgumentError: If a value is not. The message names the first.

    Examples:
        >>> from graphs.checks import check_counts
        >>> check_counts(rank=3, degree=2)
    """
    for name, value in counts.items():
        check_count(name, value)


def non_negative(name: str, value: Any) -> float:
    """Check a finite number of at least 0, and return it as a float.

    Args:
        name: The name of the argument, for messages.
        value: The number.

    Raises:
        InvalidArgumentError: If the value is not such a number.

    Examples:
        >>> from graphs.checks import non_negative
        >>> non_negative("snap", 2)
        2.0
    """
    if not is_number(value) or not 0 <= float(value) < math.inf:
        raise InvalidArgumentError(f"{name} must be a number of at least 0, got {short_repr(value)}.")
    return float(value)


def positive(name: str, value: Any) -> float:
    """Check a positive number, and return it as a float.

    Args:
        name: The name of the argument, for messages.
        value: The number.

    Raises:
        InvalidArgumentError: If the value is not a positive number.

    Examples:
        >>> from graphs.checks import positive
        >>> positive("nu", 2)
        2.0
    """
    if not is_number(value) or not 0 < float(value) < math.inf:
        raise InvalidArgumentError(f"{name} must be a positive number, got {short_repr(value)}.")
    return float(value)


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Check that the argument `name` has an allowed value.

    Args:
        name: The name of the argument, for the message.
        value: The value.
        known: The allowed values.

    Raises:
        InvalidArgumentError: If it has another value. The message lists the allowed ones, and names a similar one.

    Examples:
        >>> from graphs.checks import check_choice
        >>> check_choice("nodes", "face", ("faces", "vertices"))
        Traceback (most recent call last):
        graphs.errors.InvalidArgumentError: nodes must be one of faces, vertices, got 'face'. Did you mean 'faces'?
    """
    choices = tuple(known)
    if not isinstance(value, str) or value not in choices:
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise InvalidArgumentError(f"{name} must be one of {', '.join(choices)}, got {short_repr(value)}.{hint}")


def check_is_file(file: Path, error: type[Exception]) -> None:
    """Check that a path is a regular file with content.

    Args:
        file: The path.
        error: The class of the error.

    Raises:
        Exception: The error, if the file is missing, empty, a folder, or a device.

    Examples:
        >>> from pathlib import Path
        >>> from graphs.checks import check_is_file
        >>> from graphs.errors import FileFormatError
        >>> check_is_file(Path("missing.csv"), FileFormatError)
        Traceback (most recent call last):
        graphs.errors.FileFormatError: There is no file missing.csv.
    """
    name = printable(str(file))
    try:
        if file.is_dir():
            raise error(f"{name} is a folder. Use a file in it.")
        if not file.exists():
            raise error(f"There is no file {name}.")
        if not file.is_file():
            raise error(f"{name} is not a regular file.")
        if file.stat().st_size == 0:
            raise error(f"{name} is empty.")
    except OSError as cause:
        raise error(f"{name} cannot be read: {cause.strerror}.") from cause


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


def resolve_seed(seed: int | None) -> int:
    """Return a seed as an int in [0, 2^63), drawn from the system if it is None.

    Args:
        seed: An integer, or None.

    Raises:
        InvalidArgumentError: If the seed is not an integer in this range.

    Examples:
        >>> from graphs.checks import resolve_seed
        >>> resolve_seed(7)
        7
    """
    if seed is None:
        return secrets.randbits(63)
    if not is_count(seed) or not 0 <= seed < 2**63:
        raise InvalidArgumentError(f"seed must be an integer from 0 to 2**63 - 1 or None, got {short_repr(seed)}.")
    return int(seed)


# --- Memory ----------------------------------------------------------------------------------------------------------


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


# --- Classes by name -------------------------------------------------------------------------------------------------


class Registry(Generic[T]):
    """The classes of one role by name.

    Args:
        role: The word for a class in messages, such as "coupling".
        classes: The classes by name.

    Examples:
        >>> from graphs.checks import Registry
        >>> registry = Registry("number", {"whole": int, "real": float})
        >>> registry.names, registry.make("whole")
        (('whole', 'real'), 0)
    """

    def __init__(self, role: str, classes: dict[str, type[T]]) -> None:
        self.role = role
        self.classes = dict(classes)

    def add(self, name: str, kind: type[T]) -> None:
        """Add a class, which files of models then may name.

        Args:
            name: The name of the class.
            kind: The class.

        Raises:
            InvalidArgumentError: If the name belongs to another class.
        """
        if self.classes.setdefault(name, kind) is not kind:
            raise InvalidArgumentError(f"A {self.role} must have a new name, got {name!r}. Choose another one.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.classes)

    def find(self, name: str) -> type[T]:
        """Return the class with a name.

        Args:
            name: The name.

        Raises:
            InvalidArgumentError: If the name is unknown.
        """
        check_choice(f"The {self.role}", name, self.classes)
        return self.classes[name]

    def make(self, name: str, /, **options: Any) -> T:
        """Return an instance of the class with a name.

        Args:
            name: The name.
            **options: The arguments of the class.

        Raises:
            InvalidArgumentError: If the name is unknown, or the class lacks an option.
        """
        kind = self.find(name)
        try:
            return kind(**options)
        except TypeError as error:
            raise InvalidArgumentError(f"{self.role.capitalize()} {name!r}: {error}.") from error

    def name_of(self, thing: T) -> str:
        """Return the name of an instance's class.

        Args:
            thing: The instance.

        Raises:
            InvalidArgumentError: If the class is not registered.
        """
        for name, kind in self.classes.items():
            if type(thing) is kind:
                return name
        raise InvalidArgumentError(
            f"The {self.role} must be one of {', '.join(self.classes)}, got {thing!r} of another class."
        )
