"""The contract of fields with a sparse precision, kept by every implementation of this package."""

import numpy as np
import pytest
import scipy.sparse as sp
import trimesh
from sparse_graphs import GRAPHS

import graphs
from graphs.precisions import (
    ChainField,
    IndependentField,
    KroneckerField,
    MarkovField,
    RationalField,
    ReplicatedField,
    resolvent_field,
)
from graphs.precisions.elements import read_mesh
from graphs.precisions.whittle import WhittleField

ROADS = graphs.RoadNetwork.from_lines([[(0.0, 0.0), (3.0, 0.0)], [(3.0, 0.0), (3.0, 2.0)]], metric="euclidean")
KNOTS = np.array([0.0, 0.4, 1.5, 1.7, 4.0])
BALL = trimesh.creation.icosphere(1)


def whittle():
    return WhittleField(read_mesh(BALL).elements, 2, 2.0, 4 * np.pi)


FIELDS = {
    "independent": (lambda: IndependentField(5), ()),
    "mesh": (lambda: graphs.MeshField(BALL, 2), (0.7,)),
    "elements": (whittle, (0.7,)),
    "roads": (lambda: graphs.RoadField(ROADS, 1, cuts=[(0, 0.3), (1, 0.5)]), (1.3,)),
    "smooth roads": (lambda: graphs.RoadField(ROADS, 2, cuts=[(0, 0.3), (1, 0.5)]), (1.3,)),
    "nodes": (lambda: resolvent_field(GRAPHS["grid"](), 2), (0.3,)),
    "fraction": (lambda: RationalField(GRAPHS["grid"](), 1.5, 3), (0.3,)),
    "copies": (lambda: ReplicatedField(ChainField(KNOTS, 2), 3), (1.1,)),
    "chain of order 1": (lambda: ChainField(KNOTS, 1), (1.1,)),
    "chain of order 2": (lambda: ChainField(KNOTS, 2, 0.3), (1.1,)),
    "chain of order 3": (lambda: ChainField(KNOTS, 3, 0.3), (1.1,)),
    "product": (lambda: KroneckerField(graphs.RoadField(ROADS), ChainField(KNOTS, 2)), (1.3, 0.8)),
    "product of three": (
        lambda: KroneckerField(KroneckerField(ChainField(KNOTS), IndependentField(2)), ChainField([0.0, 2.0])),
        (1.3, 0.8),
    ),
}
CASES = pytest.mark.parametrize("name", FIELDS)


def made(name):
    make, values = FIELDS[name]
    return make(), np.array(values)


def matrix(field, values):
    return sp.csr_array((field.entries(values), field.pattern.indices, field.pattern.indptr)).toarray()


def differences(function, values, step=1e-5):
    out = []
    for i in range(len(values)):
        change = step * values[i] * (np.arange(len(values)) == i)
        out.append((function(values + change) - function(values - change)) / (2 * change[i]))
    return np.array(out)


def implementations(role):
    for one in role.__subclasses__():
        yield from (one, *implementations(one))


def test_all_implementations_are_tested():
    known = {type(make()) for make, _ in FIELDS.values()}
    assert {one for one in implementations(MarkovField) if one.__module__.startswith("graphs.")} <= known


@CASES
def test_patterns_are_sorted_symmetric_with_diagonal(name):
    field, _ = made(name)
    indptr, indices = field.pattern
    assert (indptr.dtype, indices.dtype) == (np.int64, np.int32)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    assert (np.diff(rows * (len(indptr) - 1) + indices) > 0).all()
    dense = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(indptr) - 1,) * 2).toarray()
    np.testing.assert_array_equal(dense, dense.T)
    assert dense.diagonal().all()


@CASES
def test_entries_are_positive_definite(name):
    field, values = made(name)
    assert len(field.parameters) == len(values)
    dense = matrix(field, values)
    np.testing.assert_allclose(dense, dense.T, atol=1e-12 * np.abs(dense).max())
    assert np.linalg.eigvalsh(dense).min() > 0
    b = np.random.default_rng(0).standard_normal(len(dense))
    np.testing.assert_allclose(field.factor_at(values).solve(b), np.linalg.solve(dense, b), rtol=1e-7, atol=1e-9)


@CASES
def test_pull_back_is_the_adjoint_derivative(name):
    field, values = made(name)
    weights = np.random.default_rng(1).standard_normal(len(field.pattern.indices))
    expected = differences(lambda point: weights @ field.entries(point), values)
    scale = np.abs(weights) @ np.abs(field.entries(values))
    np.testing.assert_allclose(field.pull_back(values, weights), expected, atol=1e-8 * scale)


@CASES
def test_log_determinants_match_the_matrix(name):
    field, values = made(name)
    value, slopes = field.log_determinant(values)
    assert value == pytest.approx(np.linalg.slogdet(matrix(field, values))[1], abs=1e-7)
    np.testing.assert_allclose(slopes, differences(lambda v: field.log_determinant(v)[0], values), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slopes, MarkovField.log_determinant(field, values)[1], rtol=1e-6, atol=1e-6)
