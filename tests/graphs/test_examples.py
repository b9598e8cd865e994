"""The examples of docstrings run, and public classes and functions have one."""

import doctest
import importlib
import pkgutil

import pytest

import graphs
from examples import public, without_example

MODULES = ["graphs", *(module.name for module in pkgutil.walk_packages(graphs.__path__, "graphs."))]
COMPILED = (".compiled", "graphs.errors")  # loops whose callers have examples, and classes of errors


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", [name for name in MODULES if not any(word in name for word in COMPILED)])
def test_public_names_have_examples(name):
    assert without_example(public(importlib.import_module(name))) == []
