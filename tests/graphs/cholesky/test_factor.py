"""Sparse Cholesky factors against dense algebra, and what elimination orders do to a pattern."""

import sys

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scipy.sparse.linalg import splu
from scipy.spatial import KDTree
from sparse_graphs import GRAPHS, definite, star

import graphs
from graphs import cholesky


def pattern_of(A):
    """Return the CSR pattern (indptr, indices) of a matrix, with its diagonal."""
    out = sp.csr_array((abs(sp.csr_array(A)) + sp.eye_array(A.shape[0])) > 0)
    out.sort_indices()
    return out.indptr.astype(np.int64), out.indices.astype(np.int32)


def pattern(graph):
    return pattern_of(nx.to_scipy_sparse_array(graph, dtype=float)) if len(graph) else pattern_of(sp.csr_array((0, 0)))


def factor_of(matrix, order=None):
    whole = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    analysis = cholesky.analyze(*whole) if order is None else cholesky.Analysis.of(*whole, order)
    return cholesky.Factor.of(analysis, matrix.data)


def fill_by_sets(indptr, indices, order):
    """Count the entries of the factor by definition: neighbors of an eliminated node become a clique."""
    near = [set(indices[indptr[v] : indptr[v + 1]].tolist()) - {v} for v in range(len(indptr) - 1)]
    count = 0
    for v in order.tolist():
        count += 1 + len(near[v])
        for u in near[v]:
            near[u] = (near[u] | near[v]) - {u, v}
    return count


def fill_of_superlu(indptr, indices):
    """Return the entries of SuperLU's factor in its order of multiple minimum degree."""
    n = len(indptr) - 1
    A = sp.csc_array((np.full(len(indices), -1.0), indices, indptr), shape=(n, n))
    A.setdiag(1.0 + np.diff(indptr))
    return splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}).L.nnz


# --- factors -------------------------------------------------------------------------------------


def check(matrix, factor, tolerance=1e-11):
    """Compare all results of a factor with dense algebra."""
    dense, size, rng = matrix.toarray(), matrix.shape[0], np.random.default_rng(0)
    inverse = np.linalg.inv(dense)
    scale, b = np.abs(inverse).max(), rng.standard_normal((size, 5))
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(dense)[1], abs=1e-9)
    for right in (b, b[:, :1], b[:, 0]):
        np.testing.assert_allclose(factor.solve(right), inverse @ right, atol=tolerance * scale * size)
    order = factor.analysis.order
    moved = b[order]
    factor.solve_in_place(moved)
    np.testing.assert_allclose(moved, (inverse @ b)[order], atol=tolerance * scale * size)
    half, root = factor.half_solve(np.eye(size)), factor.sample(np.eye(size))
    np.testing.assert_allclose(half.T @ half, inverse, atol=tolerance * scale)
    np.testing.assert_allclose(root @ root.T, inverse, atol=tolerance * scale)
    np.testing.assert_allclose(factor.variances, inverse.diagonal(), atol=tolerance * scale)
    rows = np.repeat(np.arange(size), np.diff(matrix.indptr))
    np.testing.assert_allclose(factor.inverse, inverse[rows, matrix.indices], atol=tolerance * scale)
    first, second = factor.analysis.pairs
    assert (first >= second).all()
    triangle = dense[np.ix_(order, order)][first, second]
    np.testing.assert_allclose(factor.analysis.mirrored(triangle), matrix.data, rtol=1e-14)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def test_factor_matches_dense_algebra(name, hops):
    matrix = definite(GRAPHS[name](), hops=hops)
    check(matrix, factor_of(matrix))


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_factor_matches_for_any_pattern_and_order(size, edges, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(size, size=(2, edges))
    weights = rng.standard_normal(edges)
    matrix = sp.coo_array((np.r_[weights, weights], (np.r_[a, b], np.r_[b, a])), shape=(size, size)).tocsr()
    matrix = sp.csr_array(matrix + sp.diags_array(1 + np.asarray(abs(matrix).sum(axis=1))))
    matrix.sort_indices()
    check(matrix, factor_of(matrix, rng.permutation(size)))


@pytest.mark.slow
def test_large_supernodes_match_dense_algebra():
    """A dense block and a long chain: panels of hundreds of columns beside single ones, in two stretches."""
    size, rng = 1500, np.random.default_rng(0)
    block = rng.standard_normal((size, 3))
    dense = block @ block.T + size * np.eye(size)
    chain = sp.diags_array([np.full(299, -1.0), np.full(300, 3.0), np.full(299, -1.0)], offsets=[-1, 0, 1])
    link = sp.csr_array(([-1.0], ([0], [299])), shape=(size, 300))
    matrix = sp.csr_array(sp.block_array([[sp.csr_array(dense), link], [link.T, chain]]))
    matrix.sort_indices()
    factor, b = factor_of(matrix), rng.standard_normal(size + 300)
    assert len(factor.analysis.chunks) > 1
    np.testing.assert_allclose(matrix @ factor.solve(b), b, atol=1e-9)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(matrix.toarray())[1], rel=1e-12)


def test_order_changes_only_the_fill():
    matrix = definite(GRAPHS["grid"](), hops=2)
    natural, found = factor_of(matrix, np.arange(matrix.shape[0])), factor_of(matrix)
    assert found.analysis.num_nonzeros < natural.analysis.num_nonzeros
    nothing = cholesky.Analysis.of(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))
    assert cholesky.Factor.of(nothing, np.zeros(0)).log_determinant == 0.0
    assert factor_of(sp.csr_array(np.array([[4.0]]))).variances == pytest.approx(0.25)


def test_indefinite_and_infinite_matrices_are_refused():
    matrix = definite(GRAPHS["grid"]())
    matrix[7, 7] = -1.0
    with pytest.raises(graphs.NotPositiveDefiniteError, match="node 7") as raised:
        factor_of(matrix, np.r_[7, np.delete(np.arange(110), 7)])
    assert raised.value.node == 7
    dense = sp.csr_array(np.ones((30, 30)) + np.diag(np.r_[np.ones(29), -2.0]))
    refused(lambda: factor_of(dense, np.arange(30)), graphs.NotPositiveDefiniteError, "node 29")
    matrix.data[3] = np.inf
    refused(lambda: factor_of(matrix), graphs.InvalidArgumentError, "finite")


# --- orders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mesh", "roads", "star", "random"])
def test_number_of_nonzeros_matches_elimination_by_sets(name):
    matrix = definite(GRAPHS[name]())
    whole = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    found = cholesky.analyze(*whole)
    random = np.random.default_rng(0).permutation(matrix.shape[0])
    assert found.num_nonzeros == fill_by_sets(*whole, found.order)
    assert cholesky.Analysis.of(*whole, random).num_nonzeros == fill_by_sets(*whole, random)


def scattered(n, near=7):
    points = np.random.default_rng(1).random((n, 2))
    _, nearest = KDTree(points).query(points, near)
    A = sp.csr_array((np.ones(nearest.size), nearest.ravel(), np.arange(0, nearest.size + 1, near)), shape=(n, n))
    return A + A.T, points


def with_hubs(n):
    A, _ = scattered(n)
    hubs = np.ones((2, n))
    return sp.csr_array(sp.block_array([[None, hubs], [hubs.T, A]])), None


MADE = {
    "grid": lambda: (nx.to_scipy_sparse_array(nx.grid_2d_graph(36, 36)), np.indices((36, 36)).reshape(2, -1).T),
    "points": lambda: scattered(3000),
    "hubs": lambda: with_hubs(1600),
    "scale-free": lambda: (nx.to_scipy_sparse_array(nx.barabasi_albert_graph(1200, 3, seed=0)), None),
}
"""Matrices and coordinates. The fill of our order is at most a quarter more than that of multiple minimum degree."""


@pytest.mark.parametrize("name", MADE)
def test_fill_is_at_most_that_of_minimum_degree(name):
    A, points = MADE[name]()
    whole = pattern_of(A)
    least = fill_of_superlu(*whole)
    degree = cholesky.analyze(*whole, points, method="minimum-degree")
    assert degree.num_nonzeros <= 1.05 * least
    assert cholesky.analyze(*whole, points).num_nonzeros <= degree.num_nonzeros
    for places in (None, points):
        found = cholesky.analyze(*whole, places, method="dissection")
        assert found.num_nonzeros <= 1.25 * least
        np.testing.assert_array_equal(cholesky.analyze(*whole, places, method="dissection").order, found.order)
    if name == "hubs":
        assert {0, 1} <= set(found.order[-3:].tolist())


SINGULAR = {
    "no node": nx.empty_graph(0),
    "no edges": nx.empty_graph(1000),
    "a path": nx.path_graph(20_000),
    "two stars": nx.disjoint_union(nx.star_graph(5000), nx.star_graph(3000)),
    "a complete graph": nx.complete_graph(300),
    "a random graph": nx.fast_gnp_random_graph(1500, 0.001, seed=0),
    "a bipartite graph": nx.complete_bipartite_graph(5, 2000),
    "many parts": nx.disjoint_union_all([nx.cycle_graph(k) for k in range(3, 40)] + [nx.empty_graph(300)]),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_orders_of_singular_graphs_are_permutations(name):
    whole = pattern(SINGULAR[name])
    n = len(whole[0]) - 1
    for method, points in (
        ("dissection", None),
        ("dissection", np.random.default_rng(n).random((n, 3))),
        ("auto", None),
    ):
        found = cholesky.analyze(*whole, points, method=method)
        assert (found.order.dtype, found.order.shape) == (np.int64, (n,))
        np.testing.assert_array_equal(np.sort(found.order), np.arange(n))
        if name in ("a path", "two stars"):
            assert found.num_nonzeros == (len(whole[1]) + n) // 2  # no fill


def test_methods_and_uninformative_coordinates():
    A, points = scattered(1500)
    whole = pattern_of(A)
    none = cholesky.analyze(*whole, method="dissection").order
    assert not np.array_equal(cholesky.analyze(*whole, points, method="dissection").order, none)
    for places in (np.zeros((1500, 2)), np.full((1500, 2), np.nan), np.full((1500, 3), np.inf)):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(cholesky.analyze(*whole, places, method="dissection").order, none)
    expected = cholesky.Analysis.of(*whole, np.arange(1500)).num_nonzeros
    assert cholesky.analyze(*whole, method="natural").num_nonzeros == expected
    pytest.importorskip("pymetis")
    metis = cholesky.analyze(*whole, method="metis").num_nonzeros
    assert cholesky.analyze(*whole, points, method="dissection").num_nonzeros <= 1.2 * metis


def test_missing_pymetis_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    whole = pattern(nx.path_graph(9))
    refused(lambda: cholesky.analyze(*whole, method="metis"), graphs.MissingDependencyError, "metis")


@pytest.mark.slow
def test_fill_beyond_memory_is_refused_before_allocation():
    """A star of 400,000 nodes whose center is eliminated first."""
    whole = pattern_of(star(400_000))
    refused(lambda: cholesky.analyze(*whole, method="natural"), graphs.MemoryBudgetError, "hubs")
