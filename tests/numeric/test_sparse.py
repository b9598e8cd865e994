"""Products of sparse and Kronecker matrices against dense ones."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose

import rfgp
from rfgp import sparse


def matrix(rows, columns, seed, density=0.3):
    found = sp.csr_array(sp.random_array((rows, columns), density=density, rng=np.random.default_rng(seed)))
    found.sort_indices()
    return found


def places(A):
    return np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)), A.indices


def test_products_on_patterns_match_dense():
    A, weights = matrix(20, 8, 0), np.linspace(-1, 2, 20)
    M = sp.csr_array(abs(A.T @ A) + sp.eye_array(8))
    M.sort_indices()
    dense = A.toarray()
    assert_allclose(sparse.gram_on(A, M), (dense.T @ dense)[places(M)], rtol=1e-12)
    assert_allclose(sparse.gram_on(A, M, weights), ((dense.T * weights) @ dense)[places(M)], atol=1e-12)
    assert_allclose(sparse.times_symmetric(A, M, M.data), (dense @ M.toarray())[places(A)], rtol=1e-12)
    narrow = sp.csr_array(sp.eye_array(8))
    for call in (lambda: sparse.gram_on(A, narrow), lambda: sparse.times_symmetric(A, narrow, narrow.data)):
        with pytest.raises(rfgp.InvalidArgumentError, match="must have an entry"):
            call()
    for one in (M, sp.csr_array(sp.diags_array([np.ones(7), 2 * np.ones(8), np.ones(7)], offsets=[-1, 0, 1]))):
        forms, covered = sparse.quadratic_forms(A, one, one.data)
        assert_allclose(forms, np.einsum("ij,jk,ik->i", dense, one.toarray(), dense), atol=1e-12)
        there = one.toarray() != 0
        assert covered.tolist() == [there[np.ix_(row, row)].all() for row in dense != 0]


@pytest.mark.parametrize("width", [1, 7])
def test_outer_products_match_dense(width):
    rng = np.random.default_rng(0)
    dense, out = rng.standard_normal((20, width)), rng.standard_normal((8, width))
    rows, columns, total = rng.integers(20, size=30), rng.integers(8, size=30), np.ones(30)
    sparse.add_outer(dense, out, rows, columns, total)
    assert_allclose(total, 1 + (dense @ out.T)[rows, columns], atol=1e-12)


@pytest.mark.parametrize("density", [0.0, 0.3])
def test_sparse_times_sparse_has_a_gradient(density):
    V, A = matrix(10, 12, 1), matrix(12, 6, 2, density)
    values = torch.tensor(V.data, requires_grad=True)
    found = sparse.times_sparse(values, sparse.SparsityPattern(V.indptr, V.indices, V.shape), A)
    dense = sparse.SparseValues(found.values, found.pattern).matrix().toarray()
    assert_allclose(dense, (V @ A).toarray())
    if density:
        weights = torch.linspace(-1, 2, len(found.values), dtype=torch.float64)
        (slope,) = torch.autograd.grad(found.values @ weights, values)
        G = sparse.SparseValues(weights, found.pattern).matrix().toarray()
        assert_allclose(slope, (G @ A.toarray().T)[places(V)], rtol=1e-12)


@pytest.mark.parametrize("count", [4, 40])
def test_rows_of_a_kronecker_product_match_a_formed_one(count):
    rng = np.random.default_rng(5)
    first, second, w = (torch.from_numpy(rng.normal(size=shape)) for shape in ((6, 3), (7, 2), (6, 2)))
    rows, columns = torch.from_numpy(rng.integers(6, size=count)), torch.from_numpy(rng.integers(7, size=count))
    found = sparse.KroneckerRows(first, second, rows, columns)
    formed = torch.stack([torch.kron(first[i], second[j]) for i, j in zip(rows, columns, strict=True)])
    assert_allclose(found.times(w), formed @ w, atol=1e-12)
    assert_allclose(found.t_times(formed), formed.mT @ formed, atol=1e-12)
    assert_allclose(found.squares(), formed.square().sum(1), atol=1e-12)
    assert_allclose(found.gram(found), formed @ formed.mT, atol=1e-12)
