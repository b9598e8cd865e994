"""Conjugate gradients against dense solves."""

import numpy as np
import pytest
import torch

from rfgp.solvers.conjugate_gradients import CGSolution, conjugate_gradients

F64 = torch.float64


def normal(rows, columns, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((rows, columns)))


def positive(n=60):
    root = normal(n, n)
    return root @ root.mT / n + 0.1 * torch.eye(n, dtype=F64)


def jacobi(A):
    return lambda r: r / A.diagonal()[:, None]


@pytest.mark.parametrize("make", [lambda A: None, jacobi])
def test_solution_matches_dense_solve(make):
    A, right = positive(), normal(60, 3, 1)
    right[:, 1] = 0
    found = conjugate_gradients(lambda v: A @ v, right, 1e-12, 500, make(A))
    assert torch.allclose(found.solution, torch.linalg.solve(A, right), atol=1e-9)
    assert float(found.residual.max()) <= 1e-12
    assert not found.is_indefinite.any()


def test_converged_columns_are_frozen():
    A, right = positive(), normal(60, 2, 1)
    loose = torch.tensor([0.1, 1e-10], dtype=F64)
    both = conjugate_gradients(lambda v: A @ v, right, loose, 500)
    alone = conjugate_gradients(lambda v: A @ v, right[:, :1], 0.1, 500)
    assert torch.allclose(both.solution[:, :1], alone.solution, atol=1e-12)
    assert not both.alphas[alone.num_steps :, 0].any()
    assert both.alphas[:, 1].all()


@pytest.mark.parametrize("make", [lambda A: None, jacobi])
def test_steps_give_lanczos_matrix(make):
    """After n steps its eigenvalues are those of M^(-1/2) A M^(-1/2)."""
    A = positive(8)
    found = conjugate_gradients(lambda v: A @ v, normal(8, 1, 1), 1e-15, 8, make(A))
    a, b = found.alphas[:, 0], found.betas[:, 0]
    diagonal = 1 / a + np.concatenate([[0], b[:-1] / a[:-1]])
    beside = np.sqrt(b[:-1]) / a[:-1]
    scale = torch.ones(8, dtype=F64) if make(A) is None else A.diagonal().rsqrt()
    expected = torch.linalg.eigvalsh(scale[:, None] * A * scale)
    values = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    np.testing.assert_allclose(values, expected, rtol=1e-8)


def test_further_rows_follow_the_solution():
    """With K^-1 x in addition to x, (K^-1 + W) x needs no solve with K."""
    K, W, right = positive(), torch.linspace(0.5, 2, 60, dtype=F64), normal(60, 1, 1)
    inverse, near = torch.linalg.inv(K), torch.linalg.inv(torch.linalg.inv(K) + 1.3 * torch.eye(60, dtype=F64))

    def precondition(r):
        z = near @ r
        return torch.cat([z, inverse @ z])

    found = conjugate_gradients(lambda v: v[60:] + W[:, None] * v[:60], right, 1e-12, 200, precondition)
    expected = torch.linalg.solve(inverse + torch.diag(W), right)
    assert torch.allclose(found.solution, torch.cat([expected, inverse @ expected]), atol=1e-8)


def test_negative_curvature_is_reported():
    A = torch.diag(torch.tensor([1.0, 2.0, -1.0], dtype=F64))
    right = torch.eye(3, dtype=F64)[:, [0, 2]]
    found = conjugate_gradients(lambda v: A @ v, right, 1e-12, 10, stop_on_negative_curvature=True)
    assert found.is_indefinite.tolist() == [False, True]
    assert found.solution.tolist() == [[1, 0], [0, 0], [0, 0]]


def test_blocks_of_columns_are_joined():
    A, right = positive(), normal(60, 5, 1)
    parts = [conjugate_gradients(lambda v: A @ v, part, 1e-10, 500) for part in torch.split(right, 2, dim=1)]
    joined, whole = CGSolution.joined(parts), conjugate_gradients(lambda v: A @ v, right, 1e-10, 500)
    assert torch.allclose(joined.solution, whole.solution, atol=1e-12)
    assert joined.num_steps == whole.num_steps
    np.testing.assert_allclose(joined.alphas[:10], whole.alphas[:10], rtol=1e-6)
