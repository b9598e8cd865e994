"""What a user sees who lists names or shows objects: what is ours, in a line or two."""

import types
import typing

import numpy as np
import pytest

import graphs
import rfgp
from rfgp.regression import FitReport
from rfgp.tables import Inputs, Table


def foreign(module):
    """Return the public names that a module lists and that are neither its package's nor a module of it."""
    out = []
    for name in dir(module):
        thing = getattr(module, name)
        home = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", module.__name__)
        is_alias = typing.get_origin(thing) is not None  # of a type, which has the home of what it stands for
        if not name.startswith("_") and not is_alias and home.split(".")[0] != "rfgp":
            out.append(name)
    return out


LISTED = [rfgp, *(thing for name in dir(rfgp) if isinstance(thing := getattr(rfgp, name), types.ModuleType))]


@pytest.mark.parametrize("module", LISTED, ids=lambda module: module.__name__)
def test_listed_names_exist_and_are_our_own(module):
    assert foreign(module) == []
    assert len(set(dir(module))) == len(dir(module))


def test_planted_a_foreign_name_is_found():
    module = types.ModuleType("rfgp.planted")
    vars(module).update(np=np, Table=Table, path=np.ndarray)
    assert foreign(module) == ["np", "path"]


def model():
    X = np.random.default_rng(0).standard_normal((200, 3))
    return rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).condition(X, X[:, 0] ** 2)


def table(n, columns, **options):
    return Table(np.zeros((n, len(columns))), np.zeros(n), columns, "price", **options)


COLUMNS = tuple(f"column {i}" for i in range(40))
SHOWN = {
    "table": (lambda: table(500, COLUMNS), "Table(500 rows, 40 columns (column 0"),
    "classes": (lambda: table(1, ("a",), classes=("x", "y")), "target 'price' of 2 classes)"),
    "inputs": (lambda: Inputs(np.zeros((500, 40)), np.arange(500), 500), "Inputs(500 rows, 40 columns, no targets)"),
    "prediction": (lambda: model().predict(np.zeros((500, 3))), "Prediction(latent function at 500 points)"),
    "leave one out": (lambda: model().leave_one_out(), "LeaveOneOut(200 observations, mean log density "),
    "state": (lambda: model().state, "GPState(200 observations, rbf.lengthscale=["),
    "report": (
        lambda: FitReport(True, 9, 9, -1 / 3, "", ("noise",), (0.1,) * 999),
        "(converged, 9 iterations, log marg",
    ),
    "values": (lambda: model().hyperparameters.values, "ParameterValues(rbf.lengthscale=["),
}


@pytest.mark.parametrize("name", SHOWN)
def test_representations_are_short(name):
    make, words = SHOWN[name]
    shown = repr(make())
    assert words in shown
    assert len(shown) < 200
    assert "\n" not in shown


def test_hyperparameters_list_themselves_and_little_else():
    listed = dir(model().hyperparameters)
    assert {"lengthscale", "outputscale", "noise", "mean", "set", "parameters"} <= set(listed)
    assert len(listed) < 25
    assert all(hasattr(model().hyperparameters, name) for name in listed)


INNER = {  # what is there for the rest of the house, and not for completion
    "model": (model, ("spec", "of", "state"), ("fit", "predict", "seed", "terms")),
    "prediction": (
        lambda: model().predict(np.zeros((2, 3))),
        ("latent", "location", "scale", "template"),
        ("mean", "std"),
    ),
    "table": (lambda: table(5, ("a",)), ("check_numeric_target",), ("X", "frame", "y")),
    "graphs": (lambda: graphs, ("costs", "matching", "quantile_costs", "walks"), ("Graph", "errors", "kernels")),
    "rfgp": (lambda: rfgp, ("models", "rows"), ("MissingFolderError", "GraphGP")),
}


@pytest.mark.parametrize("name", INNER)
def test_internal_names_exist_and_are_not_listed(name):
    make, inner, outer = INNER[name]
    thing = make()
    listed = set(dir(thing))
    assert not listed & set(inner)
    assert set(outer) <= listed
    assert all(hasattr(thing, other) for other in (*inner, *outer))


def test_unfitted_model_shows_its_options():
    gp = rfgp.SparseSpectrumGP(num_frequencies=64, ard=False, lengthscale=np.ones(40), seed=3)
    assert repr(gp).startswith("SparseSpectrumGP(num_frequencies=64, ard=False, lengthscale=(1.0, 1.0, ")
    assert repr(gp).endswith("..., seed=3, not fitted)")
    assert repr(rfgp.ExactGP(spectrum=rfgp.spectra.Gaussian())) == "ExactGP(not fitted)"
    graph = graphs.Graph.from_edges([(0, 1)])
    assert (
        repr(rfgp.GraphGP(graph, seed=2)) == "GraphGP(kernel=Nodes(graph=Graph(2 nodes, 1 edge)), seed=2, not fitted)"
    )
