"""Conjugate gradients, log determinants and draws against dense algebra in numpy on the same parts."""

from functools import cache

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch
from checks import assert_mean, assert_mean_of_normals, fails
from grid import grid
from planting import planted

import graphs
import rfgp
from rfgp.solvers.iterative import operator as operators
from rfgp.solvers.iterative import parts, preconditioners
from rfgp.solvers.iterative.operator import CGOperator
from rfgp.solvers.iterative.parts import DensePart, PrecisionPart, SparsePart
from rfgp.solvers.iterative.posterior import PATH_TOLERANCE
from rfgp.solvers.iterative.preconditioners import nystrom

NAMES = ("walks", "long", "sum")
F64 = torch.float64


@cache
def features(name, step=3):
    """Return features of some nodes: a few of each from walks, or many of a long lengthscale."""
    if name == "walks":
        return graphs.sample_walks(grid(), np.arange(0, 900, step), seed=0).features(graphs.kernels.Diffusion(2.0))
    long = graphs.kernels.Diffusion(20.0).exact(grid())
    part = long[::step, ::step] / long.diagonal().mean()
    return sp.csr_array(np.linalg.cholesky(part + 1e-9 * np.eye(len(part))))


def in_parts(name, variance, step):
    """Return parts of a covariance, and the covariance. A sum has walks, features and a field of 40 values."""
    phi = features("walks" if name == "sum" else name, step)
    found, dense = [SparsePart(phi, variance**0.5)], variance * (phi @ phi.T).toarray()
    if name == "sum":
        rng = np.random.default_rng(5)
        wide, reads = rng.standard_normal((phi.shape[0], 5)), sp.random_array((phi.shape[0], 40), density=0.05, rng=rng)
        line = sp.diags_array([np.full(39, -1.0), np.full(40, 2.5), np.full(39, -1.0)], offsets=[-1, 0, 1]).tocsr()
        factor = graphs.cholesky.Factor.of(graphs.cholesky.analyze(line.indptr, line.indices), line.data)
        found = [DensePart(torch.from_numpy(wide)), PrecisionPart(factor, sp.csr_array(reads), 1.3), *found]
        dense = dense + wide @ wide.T + 1.3**2 * reads @ np.linalg.inv(line.toarray()) @ reads.T
    return found, dense


def operator(name, seed=0, variance=9.0, step=3):
    """Return an operator on every third node, or another, and its dense matrix."""
    found, dense = in_parts(name, variance, step)
    noise = np.random.default_rng(0).uniform(0.02, 0.2, len(dense))
    return CGOperator(found, torch.from_numpy(noise), seed, nystrom, "Do else."), dense + np.diag(noise)


def normal(columns, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((300, columns)))


@pytest.mark.parametrize("name", NAMES)
def test_solutions_match_dense(name):
    ours, C = operator(name)
    right = normal(3)
    expected = np.linalg.solve(C, right.numpy())
    np.testing.assert_allclose(ours.solve(right, 1e-11), expected, rtol=1e-8, atol=1e-8 * abs(expected).max())
    np.testing.assert_allclose(ours.product(right), C @ right.numpy(), rtol=1e-10, atol=1e-10)
    K = C - np.diag(ours.noise_diag)
    np.testing.assert_allclose(ours.covariance_times(right), K @ right.numpy(), rtol=1e-10, atol=1e-9)
    assert not ours.solve(torch.zeros(300, 2, dtype=F64), 1e-8).any()


def test_parts_are_adjoint():
    """Products with a root and its transpose are adjoint, and dense columns agree."""
    for part in (part for name in NAMES for part in in_parts(name, 2.0, 3)[0]):
        for one in (part, part.over(torch.linspace(1, 2, 300, dtype=F64))):
            u, v = torch.randn(one.num_columns, 2, dtype=F64, generator=torch.Generator().manual_seed(0)), normal(2)
            torch.testing.assert_close((one.root_times(u) * v).sum(), (u * one.transposed_root_times(v)).sum())
            torch.testing.assert_close(one.times(v), one.root_times(one.transposed_root_times(v)))
        if part.dense_columns() is not None:
            torch.testing.assert_close(part.dense_columns() @ u, part.root_times(u))


def test_preconditioner_is_for_long_lengthscales_only(monkeypatch):
    """Without it the long lengthscale takes more steps, and the features of walks as many."""
    right = normal(2)
    monkeypatch.setattr(operators, "ROUNDS", 1)
    usual = operator("walks")[0].solve(right, 1e-9)
    with monkeypatch.context() as patch:
        patch.setattr(preconditioners, "MIN_EIGENVALUE_RATIO", np.inf)
        torch.testing.assert_close(operator("walks")[0].solve(right, 1e-9), usual, rtol=0, atol=0)
    operator("long")[0].solve(right, 1e-9, max_iterations=16)
    monkeypatch.setattr(preconditioners, "MIN_EIGENVALUE_RATIO", np.inf)
    with pytest.raises(rfgp.SolverError, match=r"after 1 x 16 iterations.*Do else"):
        operator("long")[0].solve(right, 1e-9, max_iterations=16)


def log_determinants(name, count=40):
    exact = np.linalg.slogdet(operator(name)[1])[1]
    return [operator(name, seed)[0].draws(8, 1e-5).log_determinant for seed in range(count)], exact


@pytest.mark.parametrize("name", ["long", pytest.param("sum", marks=pytest.mark.slow)])
def test_log_determinants_have_stated_errors(name):
    estimates, exact = log_determinants(name)
    values = np.array([e.value for e in estimates])
    assert_mean_of_normals(values[:, None], np.array([exact]))
    assert fails(assert_mean_of_normals, values[:, None] + 3 * values.std(), np.array([exact]))
    stated = np.sqrt(np.mean([e.error**2 for e in estimates]))
    assert 0.5 < stated / values.std(ddof=1) < 2  # 39 degrees of freedom: six deviations of a chi-square


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        (operators, "+ self.preconditioner.log_determinant", ""),
        (operators, "2 * float(self.deviation.log().sum())", "float(self.deviation.log().sum())"),
        (preconditioners, "return float(self.logs.sum())", "return -float(self.logs.sum())"),
    ],
)
def test_planted_errors_in_log_determinants_are_seen(module, right, wrong):
    with planted(module, right, wrong):
        estimates, exact = log_determinants("long", 15)
    assert fails(assert_mean_of_normals, np.array([[e.value] for e in estimates]), np.array([exact]))


@pytest.mark.parametrize("name", ["long", pytest.param("sum", marks=pytest.mark.slow)])
def test_draws_have_the_inverse_as_covariance(name):
    ours, C = operator(name, step=9)
    w = ours.draws(4000, PATH_TOLERANCE).solved
    inverse = np.linalg.inv(C)
    directions = np.stack([np.eye(100)[0], normal(1)[:100, 0].numpy() / 10, inverse[:, 5] * 5])
    samples, expected = (directions @ w.numpy()) ** 2, np.einsum("ij,jk,ik->i", directions, inverse, directions)
    assert_mean(samples.T, expected)
    assert fails(assert_mean, samples.T, 1.2 * expected)


def test_all_products_agree(monkeypatch):
    """Products by H H^T, by its factors, and by these in threads."""
    right, widths, multiply = normal(2), set(), parts.multiply
    monkeypatch.setattr(parts, "multiply", lambda blocks, v: widths.add(len(v)) or multiply(blocks, v))

    def solved(fill):
        widths.clear()
        monkeypatch.setattr(parts, "MAX_OPERATIONS_PER_ENTRY", fill)
        return operator("walks")[0].solve(right, 1e-12)

    formed = solved(10**9)
    assert widths == {300}
    factored = solved(0)
    assert widths == {300, features("walks").shape[1]}
    torch.testing.assert_close(factored, formed)
    monkeypatch.setattr("rfgp.sparse.products.IN_THREADS", 0)
    torch.testing.assert_close(solved(0), factored)


def test_searches_restart_from_the_residual(monkeypatch):
    ours, C = operator("walks")
    right = normal(3)
    right[:, 1] = 0
    solved = ours.solve(right, 1e-9, max_iterations=40)
    np.testing.assert_allclose(solved, np.linalg.solve(C, right.numpy()), rtol=0, atol=1e-7)
    monkeypatch.setattr(operators, "ROUNDS", 1)
    with pytest.raises(rfgp.SolverError, match="relative residual"):
        ours.solve(right, 1e-9, max_iterations=40)


@pytest.mark.parametrize("name", ["long", "sum"])
def test_blocks_of_columns_match_all_together(monkeypatch, name):
    """Draws and determinants agree too, although blocks take different steps."""
    right, together = normal(5), operator(name)[0]
    solved, draws = together.solve(right, 1e-11), together.draws(5, 1e-9)
    monkeypatch.setattr(operators, "MAX_NUMBERS", 0)
    monkeypatch.setattr(operators, "MIN_COLUMNS", 2)
    apart = operator(name)[0]
    torch.testing.assert_close(apart.solve(right, 1e-11), solved, rtol=1e-8, atol=1e-8 * float(solved.abs().max()))
    again = apart.draws(5, 1e-9)
    torch.testing.assert_close(again.solved, draws.solved, rtol=1e-6, atol=1e-6 * float(draws.solved.abs().max()))
    torch.testing.assert_close(again.log_determinant, draws.log_determinant, rtol=1e-7, atol=0)


def test_extreme_scales_do_not_overflow():
    ours, _ = operator("walks")
    right = normal(2)
    for size in (1e-200, 1e200):
        torch.testing.assert_close(ours.solve(size * right, 1e-9) / size, ours.solve(right, 1e-9))
    right[3, 1] = torch.inf
    with pytest.raises(rfgp.SolverError, match="must be finite"):
        ours.solve(right, 1e-9)


@pytest.mark.filterwarnings("error")
def test_error_of_one_draw_is_infinite():
    estimate = operator("walks")[0].draws(1, 1e-6).log_determinant
    assert np.isfinite(estimate.value)
    assert estimate.error == np.inf


def test_eigenpairs_if_the_fast_method_fails(monkeypatch):
    expected, fast = operator("walks")[0].draws(4, 1e-6).log_determinant, scipy.linalg.eigh_tridiagonal
    failed = []

    def fails_once(*arguments, lapack_driver=None):
        if lapack_driver is None:
            failed.append(1)
            raise np.linalg.LinAlgError("stevd did not converge")
        return fast(*arguments, lapack_driver=lapack_driver)

    monkeypatch.setattr(scipy.linalg, "eigh_tridiagonal", fails_once)
    assert operator("walks")[0].draws(4, 1e-6).log_determinant.value == pytest.approx(expected.value, rel=1e-12)
    assert len(failed) == 4
