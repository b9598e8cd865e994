"""Frozen values, shown by their arguments that differ from the defaults."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any


def brief_repr(value: Any) -> str:
    """Return the representation of a value, with six significant digits for numbers.

    A tuple of one entry is shown as the entry.

    Examples:
        >>> from rfgp.values import brief_repr
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
