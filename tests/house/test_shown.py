"""A user who lists names or shows objects sees only what is ours, in a line or two."""

import types
import typing

import numpy as np
import pytest

import graphs
import rfgp
from rfgp.tables import Table

MODULES = [rfgp, *(thing for name in dir(rfgp) if isinstance(thing := getattr(rfgp, name), types.ModuleType))]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_listed_names_are_our_own(module):
    assert len(set(dir(module))) == len(dir(module))
    for name in dir(module):
        thing = getattr(module, name)
        home = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", module.__name__)
        is_alias = typing.get_origin(thing) is not None  # of a type, with the module of this type
        assert name.startswith("_") or is_alias or home.split(".")[0] in ("rfgp", "graphs"), name


def model():
    X = np.random.default_rng(0).standard_normal((200, 3))
    return rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).condition(X, X[:, 0] ** 2)


def wide_table():
    return Table(np.zeros((500, 40)), np.zeros(500), tuple(f"column {i}" for i in range(40)), "price")


RING = graphs.Graph.from_edges([(0, 1)])
SHOWN = {
    "table": (wide_table, "Table(500 rows, 40 columns (column 0"),
    "prediction": (lambda: model().predict(np.zeros((500, 3))), "Prediction(latent function at 500 points)"),
    "state": (lambda: model().state, "GPState(200 observations, rbf.lengthscale=["),
    "unfitted": (lambda: rfgp.ExactGP(lengthscale=np.ones(40)), "ExactGP(lengthscale=(1.0, 1.0, "),
    "graph": (lambda: rfgp.GraphGP(RING), "GraphGP(kernel=Nodes(graph=Graph(2 nodes, 1 edge))"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_representations_are_short(name):
    make, words = SHOWN[name]
    shown = repr(make())
    assert words in shown
    assert len(shown) < 200
    assert "\n" not in shown


INNER = {
    "model": (model, ("spec", "of", "state"), ("fit", "predict", "seed", "terms")),
    "prediction": (lambda: model().predict(np.zeros((2, 3))), ("latent", "location", "scale"), ("mean", "std")),
    "graphs": (lambda: graphs, ("lengths", "matching", "walks"), ("Graph", "errors", "kernels")),
    "rfgp": (lambda: rfgp, ("models", "rows"), ("MissingFolderError", "GraphGP")),
}
"""Names that other modules use, and names that are listed for completion."""


@pytest.mark.parametrize("name", INNER)
def test_inner_names_are_not_listed(name):
    make, inner, outer = INNER[name]
    thing = make()
    listed = set(dir(thing))
    assert not listed & set(inner)
    assert set(outer) <= listed
    assert all(hasattr(thing, each) for each in (*inner, *outer))
