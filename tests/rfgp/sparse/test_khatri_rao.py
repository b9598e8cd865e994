"""Khatri-Rao products without rows, functions or right sides."""

import numpy as np
import pytest
import scipy.sparse as sp

from rfgp.sparse import KhatriRao


@pytest.mark.parametrize(("n", "size", "p"), [(0, 3, 2), (5, 0, 2), (5, 3, 0)])
def test_products_of_empty_matrices_are_empty(n, size, p):
    rows = np.arange(n) % 2
    left = sp.csr_array(np.eye(2)[: min(n, 2)])
    matrix = KhatriRao(left, rows, np.ones((n, size)))
    v, u = np.ones((n, p)), np.ones((2 * size, p))
    np.testing.assert_array_equal(matrix.times(u), np.full((n, p), float(size)))
    assert matrix.transposed_times(v).shape == (2 * size, p)
    np.testing.assert_array_equal(matrix.gram_times(v, left @ left.T), matrix.gram(matrix) @ v)
    assert matrix.above(matrix).shape == (2 * n, 2 * size)
