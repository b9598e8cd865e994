"""Products of sparse matrices on patterns, against dense ones."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import rfgp
from rfgp.sparse import (
    SparseValues,
    SparsityPattern,
    add_outer,
    gram_on,
    quadratic_forms,
    times_sparse,
    times_symmetric,
    transposed_product,
)

F64 = torch.float64


def sparse(rows, columns, seed, density=0.3):
    matrix = sp.csr_array(sp.random_array((rows, columns), density=density, rng=np.random.default_rng(seed)))
    matrix.sort_indices()
    return matrix


def test_products_on_patterns_match_dense():
    A, weights = sparse(20, 8, 0), np.linspace(-1, 2, 20)
    M = sp.csr_array(abs(A.T @ A) + sp.eye_array(8))
    M.sort_indices()
    rows = np.repeat(np.arange(8), np.diff(M.indptr))
    np.testing.assert_allclose(gram_on(A, M), (A.T @ A).toarray()[rows, M.indices], rtol=1e-12)
    np.testing.assert_allclose(gram_on(A, M, weights), ((A.T * weights) @ A).toarray()[rows, M.indices], atol=1e-12)
    at = np.repeat(np.arange(20), np.diff(A.indptr)), A.indices
    np.testing.assert_allclose(times_symmetric(A, M, M.data), (A @ M).toarray()[at], rtol=1e-12)
    narrow = sp.csr_array(sp.eye_array(8))
    for call in (lambda: gram_on(A, narrow), lambda: times_symmetric(A, narrow, narrow.data)):
        with pytest.raises(rfgp.InvalidArgumentError, match="must have an entry"):
            call()


def test_quadratic_forms_match_dense():
    A = sparse(20, 8, 0)
    whole = sp.csr_array(abs(A.T @ A) + sp.eye_array(8))
    narrow = sp.csr_array(sp.diags_array([np.ones(7), 2 * np.ones(8), np.ones(7)], offsets=[-1, 0, 1]))
    for M in (whole, narrow):
        M.sort_indices()
        forms, covered = quadratic_forms(A, M, M.data)
        np.testing.assert_allclose(forms, np.einsum("ij,jk,ik->i", A.toarray(), M.toarray(), A.toarray()), atol=1e-12)
        there = M.toarray() != 0
        assert covered.tolist() == [there[np.ix_(row, row)].all() for row in A.toarray() != 0]
    assert 0 < covered.sum() < 20


@pytest.mark.parametrize("width", [1, 4, 7])
def test_transposed_and_outer_products_match_dense(width):
    rng, A = np.random.default_rng(0), sparse(20, 8, 0)
    dense, out = rng.standard_normal((20, width)), np.ones((8, width))
    transposed_product(A, dense, out)
    np.testing.assert_allclose(out, A.T @ dense, atol=1e-12)
    rows, columns, total = rng.integers(20, size=30), rng.integers(8, size=30), np.ones(30)
    add_outer(dense, out, rows, columns, total)
    np.testing.assert_allclose(total, 1 + (dense @ out.T)[rows, columns], atol=1e-12)


@pytest.mark.parametrize("density", [0.0, 0.3])
def test_sparse_times_sparse_has_a_gradient(density):
    V, A = sparse(10, 12, 1), sparse(12, 6, 2, density)
    values = torch.tensor(V.data, requires_grad=True)
    pattern = SparsityPattern(V.indptr, V.indices, V.shape)
    found = times_sparse(values, pattern, A)
    np.testing.assert_allclose(SparseValues(found.values, found.pattern).matrix().toarray(), (V @ A).toarray())
    if density:
        weights = torch.randn(len(found.values), dtype=F64, generator=torch.Generator().manual_seed(0))
        (slope,) = torch.autograd.grad(found.values @ weights, values)
        G = SparseValues(weights, found.pattern).matrix().toarray()
        at = np.repeat(np.arange(10), np.diff(V.indptr)), V.indices
        np.testing.assert_allclose(slope, (G @ A.toarray().T)[at], rtol=1e-12)
