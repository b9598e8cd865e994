import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_graphs import GRAPHS

import graphs
from graphs.precisions import RationalField, resolvent_field

X = 0.07
CASES = [(name, order, terms) for name in ("grid", "mesh", "star") for order in (0.5, 1.5, 2.3) for terms in (1, 4)]


def matrix(field, x=X):
    return sp.csr_array((field.entries(np.array([x])), field.pattern.indices, field.pattern.indptr)).toarray()


@pytest.mark.parametrize(("name", "order", "terms"), CASES)
def test_spectrum_matches_the_kernel_within_error(name, order, terms):
    graph = GRAPHS[name]()
    field, (eigenvalues, vectors) = RationalField(graph, order, terms), graph.spectrum
    read = field.projector(np.arange(graph.num_nodes))
    spectrum = np.einsum("nk,nk->k", vectors, read @ np.linalg.solve(matrix(field), read.T @ vectors))
    error = np.abs(spectrum * (eigenvalues + X) ** order - 1).max()
    assert 0.3 * field.error(X) < error < 1.01 * field.error(X)
    assert field.error(X) < (0.2 if terms == 1 else 3e-5)
    planted = np.abs(spectrum * (eigenvalues + 1.02 * X) ** order - 1).max()
    assert planted > field.error(X) or terms == 1


@pytest.mark.parametrize(("name", "order", "terms"), CASES)
def test_derivatives_and_determinants_match_the_matrix(name, order, terms):
    field, step = RationalField(GRAPHS[name](), order, terms), 1e-5
    (sign, value), found = np.linalg.slogdet(matrix(field)), field.log_determinant(np.array([X]))
    assert sign == 1
    assert found[0] == pytest.approx(value, abs=1e-9)
    ends = [np.linalg.slogdet(matrix(field, X + change))[1] for change in (-step, step)]
    assert found[1][0] == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5)
    weights = np.random.default_rng(0).standard_normal(len(field.pattern.indices))
    changes = [weights @ field.entries(np.array([X + change])) for change in (-step, step)]
    pulled = field.pull_back(np.array([X]), weights)[0]
    assert pulled == pytest.approx((changes[1] - changes[0]) / (2 * step), rel=1e-5)


def test_patterns_are_sorted_symmetric_and_join_nodes():
    field = RationalField(GRAPHS["grid"](), 1.5, 3)
    indptr, indices = field.pattern
    for row, (low, high) in enumerate(itertools.pairwise(indptr)):
        columns = indices[low:high]
        assert (np.diff(columns) > 0).all()
        node = row // 3
        assert set(range(3 * node, 3 * node + 3)) <= set(columns.tolist())
    dense = sp.csr_array((np.ones(len(indices)), indices, indptr)).toarray()
    np.testing.assert_array_equal(dense, dense.T)
    between = matrix(field)[0, 1:3]
    np.testing.assert_array_equal(between, 0)
    assert len(indices) == 3 * len(resolvent_field(GRAPHS["grid"](), 2).pattern.indices) + 6 * dense.shape[0] // 3


def test_integer_orders_are_refused():
    for order in (1, 2.0):
        with pytest.raises(graphs.InvalidArgumentError, match="power"):
            RationalField(GRAPHS["path"](), order, 3)


def test_indefinite_matrix_names_a_node():
    field = RationalField(GRAPHS["grid"](), 0.5, 3)
    data = field.entries(np.array([X]))
    indptr, indices = field.pattern
    row = 3 * 7 + 2  # a value of node 7
    data[indptr[row] + np.flatnonzero(indices[indptr[row] : indptr[row + 1]] == row)] = -1.0
    with pytest.raises(graphs.NotPositiveDefiniteError) as caught:
        field.factor(data)
    assert caught.value.node < GRAPHS["grid"]().num_nodes
    alone = np.zeros(len(indices))
    alone[np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) == indices] = 1.0
    alone[indptr[row] + np.flatnonzero(indices[indptr[row] : indptr[row + 1]] == row)] = -1.0
    with pytest.raises(graphs.NotPositiveDefiniteError, match="node 7"):
        field.factor(alone)
