"""The examples of docstrings run, and public classes and functions of these rooms have one."""

import doctest
import importlib
import pkgutil

import pytest

from examples import public, without_example

ROOMS = ["attention", "couplings", "features", "learn", "spectra", "theory"]
MODULES = ["rfgp.lengthscales", "rfgp.sampling", "rfgp.special", "rfgp.transport"]
for room in ROOMS:
    package = importlib.import_module(f"rfgp.{room}")
    MODULES += [module.name for module in pkgutil.walk_packages(package.__path__, f"rfgp.{room}.")]
COMPILED = "rfgp.couplings.energy.loops"  # loops whose callers have examples


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", [name for name in MODULES if name != COMPILED])
def test_public_names_have_examples(name):
    assert without_example(public(importlib.import_module(name))) == []
