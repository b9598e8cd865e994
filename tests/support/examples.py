"""Public names of modules, and those of them whose docstrings have no example."""

import inspect
from types import ModuleType
from typing import Any


def public(module: ModuleType) -> dict[str, Any]:
    """Return the public classes and functions that a module defines, by name."""
    things = vars(module).items()
    own = {name: thing for name, thing in things if getattr(thing, "__module__", "") == module.__name__}
    return {
        name: t for name, t in own.items() if not name.startswith("_") and inspect.isroutine(t) | inspect.isclass(t)
    }


def without_example(things: dict[str, Any]) -> list[str]:
    """Return the names of things whose own docstring has no example."""
    return [name for name, thing in things.items() if ">>>" not in (thing.__doc__ or "")]
