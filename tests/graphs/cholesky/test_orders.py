"""Orders of elimination by name."""

import sys
from importlib.util import find_spec

import networkx as nx
import numpy as np
import pytest
from elimination import fill_by_tree, is_permutation, pattern

from graphs.cholesky import orders
from graphs.cholesky.dissection import nested_dissection
from graphs.errors import InvalidArgumentError, MissingDependencyError

needs_metis = pytest.mark.skipif(find_spec("pymetis") is None, reason="pymetis is not installed")


def made(n=900):
    points = np.random.default_rng(0).random((n, 2))
    return *pattern(nx.random_geometric_graph(n, 0.06, pos=dict(enumerate(points)))), points


@pytest.mark.parametrize(
    "method", ["auto", "dissection", "minimum-degree", "natural", pytest.param("metis", marks=needs_metis)]
)
@pytest.mark.parametrize("graph", [nx.empty_graph(1), nx.empty_graph(5), nx.path_graph(2), nx.star_graph(50)])
def test_orders_are_permutations(method, graph):
    indptr, indices = pattern(graph)
    assert is_permutation(orders.order(indptr, indices, method=method), len(graph))


@pytest.mark.parametrize(
    "method", ["auto", "dissection", "minimum-degree", "natural", pytest.param("metis", marks=needs_metis)]
)
def test_empty_pattern_has_an_order(method):
    assert orders.order(np.zeros(1, np.int64), np.zeros(0, np.int32), method=method).shape == (0,)


def test_dissection_uses_coordinates_natural_ignores_them():
    indptr, indices, points = made(2000)
    assert np.array_equal(orders.order(indptr, indices, method="natural"), np.arange(2000))
    for X in (None, points):
        expected = nested_dissection(indptr, indices, X)
        assert np.array_equal(orders.order(indptr, indices, X, method="dissection"), expected)
    assert not np.array_equal(nested_dissection(indptr, indices, points), nested_dissection(indptr, indices))


@needs_metis
def test_dissection_fill_is_near_metis():
    indptr, indices, points = made()
    metis = fill_by_tree(indptr, indices, orders.order(indptr, indices, method="metis"))
    for X in (None, points):
        ours = orders.order(indptr, indices, X, method="dissection")
        assert fill_by_tree(indptr, indices, ours) <= 1.2 * metis
    assert fill_by_tree(indptr, indices, np.arange(900)) > 2 * metis


@needs_metis
def test_auto_is_metis_without_coordinates():
    indptr, indices, points = made()
    expected = orders.order(indptr, indices, method="metis")
    assert np.array_equal(orders.order(indptr, indices), expected)
    assert np.array_equal(orders.order(indptr, indices, points), nested_dissection(indptr, indices, points))


def test_auto_is_dissection_without_pymetis(monkeypatch):
    monkeypatch.setattr(orders, "find_spec", lambda name: None)
    indptr, indices, _ = made()
    assert np.array_equal(orders.order(indptr, indices), nested_dissection(indptr, indices))


def test_missing_pymetis_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingDependencyError, match="metis"):
        orders.order(*made()[:2], method="metis")


def test_integers_of_any_width_are_accepted():
    indptr, indices, points = made()
    expected = nested_dissection(indptr, indices, points)
    for kind in (np.int32, np.int64, np.uint32):
        given = orders.order(indptr.astype(kind), indices.astype(kind), points, method="dissection")
        assert np.array_equal(given, expected)


@pytest.mark.parametrize("method", ["best", "", None, 3, "METIS"])
def test_unknown_method_is_refused(method):
    with pytest.raises(InvalidArgumentError, match="method must be one of 'auto', 'metis'"):
        orders.order(*made()[:2], method=method)


WRONG = {
    "no vector": ([[0, 1]], [0], "vectors of integers"),
    "floats": ([0.0, 1.0], [0], "vectors of integers"),
    "text": (["a"], [0], "vectors of integers"),
    "no beginning": (np.zeros(0, np.int64), np.zeros(0, np.int32), "must ascend from 0"),
    "too short": ([0, 1], [0, 0], "must ascend from 0"),
    "late": ([1, 1], [0], "must ascend from 0"),
    "back": ([0, 2, 1], [0], "must ascend from 0"),
    "negative": ([0, 1, 2], [1, -1], "from 0 to 1"),
    "beyond": ([0, 1, 2], [1, 2], "from 0 to 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_patterns_are_refused(name):
    indptr, indices, says = WRONG[name]
    with pytest.raises(InvalidArgumentError, match=says):
        orders.order(np.array(indptr), np.array(indices), method="dissection")
