"""Frozen values, shown by the arguments that are not their defaults."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any


def changed_arguments(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a dataclass's arguments that are not their defaults, in order."""
    for entry in fields(value):
        found = getattr(value, entry.name)
        if entry.init and found is not entry.default and (hasattr(found, "shape") or found != entry.default):
            yield entry.name, found
