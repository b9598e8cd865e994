"""Sparse Cholesky factors against dense algebra."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_graphs import GRAPHS, definite

import graphs
from graphs.cholesky import Analysis, Factor, analyze
from graphs.cholesky.compiled import factoring, inverting


def factor_of(matrix, order=None):
    pattern = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    analysis = analyze(*pattern) if order is None else Analysis.of(*pattern, order)
    return Factor.of(analysis, matrix.data)


def check(matrix, factor, tolerance=1e-11):
    """Compare everything that a factor answers with dense algebra."""
    dense, size = matrix.toarray(), matrix.shape[0]
    inverse = np.linalg.inv(dense)
    scale = np.abs(inverse).max()
    b = np.random.default_rng(0).standard_normal((size, 5))
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(dense)[1], abs=1e-9)
    for rhs in (b, b[:, :1], b[:, 0]):
        np.testing.assert_allclose(factor.solve(rhs), inverse @ rhs, atol=tolerance * scale * size)
    order = factor.analysis.order
    moved = np.ascontiguousarray(b[order])
    factor.solve_in_place(moved)
    np.testing.assert_allclose(moved, (inverse @ b)[order], atol=tolerance * scale * size)
    half, root = factor.half_solve(np.eye(size)), factor.sample(np.eye(size))
    np.testing.assert_allclose(half.T @ half, inverse, atol=tolerance * scale)
    np.testing.assert_allclose(root @ root.T, inverse, atol=tolerance * scale)
    np.testing.assert_allclose(factor.variances, inverse.diagonal(), atol=tolerance * scale)
    rows = np.repeat(np.arange(size), np.diff(matrix.indptr))
    np.testing.assert_allclose(factor.inverse, inverse[rows, matrix.indices], atol=tolerance * scale)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def test_factor_matches_dense_algebra(name, hops):
    matrix = definite(GRAPHS[name](), hops=hops)
    check(matrix, factor_of(matrix))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_factor_matches_for_any_pattern_and_order(size, edges, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(size, size=(2, edges))
    weights = rng.standard_normal(edges)
    matrix = sp.coo_array((np.r_[weights, weights], (np.r_[a, b], np.r_[b, a])), shape=(size, size)).tocsr()
    matrix = sp.csr_array(matrix + sp.diags_array(1 + np.asarray(abs(matrix).sum(axis=1))))
    matrix.sort_indices()
    check(matrix, factor_of(matrix, rng.permutation(size)))


def test_order_changes_only_the_fill():
    matrix = definite(GRAPHS["grid"](), hops=2)
    natural, found = factor_of(matrix, np.arange(matrix.shape[0])), factor_of(matrix)
    np.testing.assert_allclose(natural.inverse, found.inverse, rtol=1e-12)
    assert found.analysis.num_nonzeros < natural.analysis.num_nonzeros
    assert sorted(found.analysis.order) == list(range(matrix.shape[0]))


def test_empty_and_scalar_matrices():
    nothing = Factor.of(Analysis.of(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)), np.zeros(0))
    assert (nothing.log_determinant, nothing.inverse.shape) == (0.0, (0,))
    one = factor_of(sp.csr_array(np.array([[4.0]])))
    assert one.variances == pytest.approx(0.25)


def test_indefinite_matrix_names_the_pivot():
    matrix = definite(GRAPHS["grid"]())
    matrix[7, 7] = -1.0
    with pytest.raises(graphs.NotPositiveDefiniteError, match="pivot at node 7") as raised:
        factor_of(matrix, np.r_[7, np.delete(np.arange(110), 7)])
    assert raised.value.node == 7
    dense = sp.csr_array(np.ones((30, 30)) + np.diag(np.r_[np.ones(29), -2.0]))
    with pytest.raises(np.linalg.LinAlgError, match="node 29"):
        factor_of(dense, np.arange(30))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_entries_are_refused(value):
    matrix = definite(GRAPHS["path"]())
    matrix.data[3] = value
    with pytest.raises(graphs.InvalidArgumentError, match="finite"):
        factor_of(matrix)


def test_large_fill_is_refused_before_allocation(monkeypatch):
    matrix = definite(graphs.Graph.from_networkx(nx.random_regular_graph(8, 2000, seed=0)))
    analysis = analyze(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
    monkeypatch.setattr("graphs.checks.machine_memory", lambda: analysis.num_bytes - 1)
    with pytest.raises(graphs.MemoryBudgetError, match=f"2,000 nodes, with {analysis.num_nonzeros:,} non-zeros"):
        Factor.of(analysis, matrix.data)
    monkeypatch.setattr("graphs.checks.machine_memory", lambda: 8.0 * analysis.num_nonzeros - 1)
    with pytest.raises(graphs.MemoryBudgetError, match="hubs"):
        Analysis.of(analysis.indptr, analysis.indices, analysis.order)


def test_chunks_do_not_change_results(monkeypatch):
    """A factorisation goes in stretches, between which an interrupt is heard."""
    matrix = definite(GRAPHS["mesh"](), hops=2)
    whole = factor_of(matrix)
    monkeypatch.setattr("graphs.cholesky.analysis.CHUNK_FLOPS", 1e3)
    parts = factor_of(matrix)
    assert len(parts.analysis.chunks) > len(whole.analysis.chunks)
    np.testing.assert_array_equal(parts.entries, whole.entries)
    np.testing.assert_array_equal(parts.inverse, whole.inverse)


def test_factorization_can_be_interrupted(monkeypatch):
    matrix = definite(GRAPHS["mesh"]())
    monkeypatch.setattr("graphs.cholesky.analysis.CHUNK_FLOPS", 1e3)
    calls, factorize = [], factoring.factorize

    def interrupted(*args):
        calls.append(args[1])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return factorize(*args)

    monkeypatch.setattr("graphs.cholesky.compiled.factorize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        factor_of(matrix)
    assert len(calls) == 2


@pytest.mark.parametrize("fault", ["there", "target", "begins"])
def test_planted_errors_are_found(fault):
    matrix = definite(GRAPHS["mesh"](), hops=2)
    factor = factor_of(matrix)
    analysis = factor.analysis
    if fault == "there":
        supernodes = analysis.supernodes
        analysis = Analysis(*(getattr(analysis, name) for name in ("indptr", "indices", "order")), supernodes, 0)
        large = int(np.flatnonzero(np.diff(supernodes.relative_indices) > 0)[-1])
        supernodes.relative_indices[large : large + 2] = supernodes.relative_indices[[large + 1, large]]
    elif fault == "target":
        analysis.scatter_indices[1][[5, 6]] = analysis.scatter_indices[1][[6, 5]]
    else:
        analysis.scatter_indices[2][3] -= 1
    with pytest.raises((AssertionError, graphs.NotPositiveDefiniteError)):
        check(matrix, Factor.of(analysis, matrix.data))


def test_loops_are_compiled():
    """The twins above compare what numba compiled, not Python."""
    assert hasattr(factoring.factorize, "py_func")
    assert hasattr(inverting.invert, "py_func")
