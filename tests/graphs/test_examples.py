"""The examples of docstrings run, and everything that the package exports has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import graphs

MODULES = ["graphs", *(module.name for module in pkgutil.walk_packages(graphs.__path__, "graphs."))]
EXPORTING = [name for name in MODULES if hasattr(importlib.import_module(name), "__path__") and "compiled" not in name]


def exported(module):
    """Return the classes and functions that a package exports."""
    public = {name: thing for name, thing in vars(module).items() if not name.startswith("_")}
    return {name: t for name, t in public.items() if inspect.isroutine(t) or inspect.isclass(t)}


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0


@pytest.mark.parametrize("name", EXPORTING)
def test_every_export_has_an_example(name):
    things = exported(importlib.import_module(name)).items()
    assert [key for key, thing in things if ">>>" not in (inspect.getdoc(thing) or "")] == []
