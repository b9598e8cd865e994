"""The examples of the modules of these rooms run."""

import doctest
import importlib
import pkgutil

import pytest

import rfgp

ROOMS = ("tables", "datasets", "fields", "compare", "report", "sklearn", "gpytorch", "botorch", "dask")
ROOMS += ("axes", "cli", "divergences", "effects", "files", "metrics", "palette", "plotting", "progress", "quadrature")
ROOMS += ("columns", "kernels", "likelihoods", "regression", "rows", "saving")
ROOMS += ("autograd", "compiled", "counts", "distances", "errors", "expressions", "grams", "hyperparameters", "linalg")
ROOMS += ("loading", "messages", "parameters", "paths", "priors", "random", "registry", "scaling", "threads")
ROOMS += ("torch_context", "values")
ROOMS += ("approximations", "blocks", "descent", "fitting", "inference", "lattices", "local", "models", "selection")
ROOMS += ("solvers", "sparse")


def names():
    """Return the names of the modules of the rooms."""
    walked = pkgutil.walk_packages(rfgp.__path__, "rfgp.")
    return [module.name for module in walked if module.name.split(".")[1] in ROOMS]


@pytest.mark.parametrize("name", names())
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_planted_wrong_example_is_found():
    def wrong():
        """Return 1.

        >>> 1 + 1
        1
        """

    test = doctest.DocTestFinder().find(wrong, "wrong", globs={})[0]
    assert doctest.DocTestRunner().run(test, out=lambda text: None).failed == 1
