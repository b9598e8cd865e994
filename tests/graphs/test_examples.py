"""The examples of docstrings run, and public classes and functions have one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import graphs

MODULES = ["graphs", *(module.name for module in pkgutil.walk_packages(graphs.__path__, "graphs."))]
COMPILED = (".compiled", "graphs.errors")  # loops whose callers have examples, and classes of errors


def public(module):
    """Return the public classes and functions that a module defines, by name."""
    things = vars(module).items()
    own = {name: thing for name, thing in things if getattr(thing, "__module__", "") == module.__name__}
    return {
        name: t for name, t in own.items() if not name.startswith("_") and inspect.isroutine(t) | inspect.isclass(t)
    }


def without_example(things):
    """Return the names of things whose own docstring has no example."""
    return [name for name, thing in things.items() if ">>>" not in (thing.__doc__ or "")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", [name for name in MODULES if not any(word in name for word in COMPILED)])
def test_public_names_have_examples(name):
    assert without_example(public(importlib.import_module(name))) == []


def test_planted_missing_example_is_found():
    def bare():
        """Return nothing."""

    assert without_example({"bare": bare, "checked": graphs.checks.check_count}) == ["bare"]
