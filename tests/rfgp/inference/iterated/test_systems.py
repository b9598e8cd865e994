"""Conjugate gradients, log determinants and draws against dense algebra in numpy on the same features."""

from functools import cache

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch
from checks import assert_mean, assert_mean_of_normals, fails
from grid import grid
from rfgp.inference.iterated import sparse_system, systems
from rfgp.inference.iterated.evidence import PATH_TOLERANCE
from rfgp.inference.iterated.sparse_system import SparseSystem

import graphs
import rfgp

NAMES = ("walks", "long")


@cache
def features(name, step=3):
    """Return features of some nodes: a few of each from walks, or many of a long lengthscale."""
    if name == "walks":
        return graphs.sample_walks(grid(), np.arange(0, 900, step), seed=0).features(graphs.kernels.Diffusion(2.0))
    long = graphs.kernels.Diffusion(20.0).exact(grid())
    part = long[::step, ::step] / long.diagonal().mean()
    return sp.csr_array(np.linalg.cholesky(part + 1e-9 * np.eye(len(part))))


def system(name, seed=0, variance=9.0, step=3):
    """Return a system on every third node, or another, and its dense matrix."""
    phi = features(name, step)
    noise_diag = np.random.default_rng(0).uniform(0.02, 0.2, phi.shape[0])
    dense = variance * (phi @ phi.T).toarray() + np.diag(noise_diag)
    return SparseSystem(phi, variance, noise_diag, seed), dense


def normal(columns, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((300, columns)))


@pytest.mark.parametrize("name", NAMES)
def test_solutions(name):
    ours, C = system(name)
    right = normal(3)
    expected = np.linalg.solve(C, right.numpy())
    np.testing.assert_allclose(ours.solve(right, 1e-11), expected, rtol=1e-8, atol=1e-8 * abs(expected).max())
    np.testing.assert_allclose(ours.product(right), C @ right.numpy(), rtol=1e-10, atol=1e-10)
    zero = ours.solve(torch.zeros(300, 2, dtype=torch.float64), 1e-8)
    assert not zero.any()


def test_a_preconditioner_is_there_for_long_lengthscales_only(monkeypatch):
    """Without one the long lengthscale takes more steps, and the features of walks the very same."""
    right = normal(2)
    monkeypatch.setattr(systems, "ROUNDS", 1)
    usual = system("walks")[0].solve(right, 1e-9)
    with monkeypatch.context() as patch:
        patch.setattr(sparse_system, "STANDS_OUT", np.inf)
        torch.testing.assert_close(system("walks")[0].solve(right, 1e-9), usual, rtol=0, atol=0)
    monkeypatch.setattr(systems, "MOST_ITERATIONS", 16)
    system("long")[0].solve(right, 1e-9)
    monkeypatch.setattr(sparse_system, "STANDS_OUT", np.inf)
    with pytest.raises(rfgp.SolverError, match="in 1 x 16 iterations"):
        system("long")[0].solve(right, 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_log_determinants_and_their_errors(name):
    exact = np.linalg.slogdet(system(name)[1])[1]
    estimates = [system(name, seed)[0].paths(8, 1e-5).log_determinant for seed in range(40)]
    values = np.array([e.value for e in estimates])
    assert_mean_of_normals(values[:, None], np.array([exact]))
    assert fails(assert_mean_of_normals, values[:, None] + 3 * values.std(), np.array([exact]))
    stated = np.sqrt(np.mean([e.error**2 for e in estimates]))
    assert 0.5 < stated / values.std(ddof=1) < 2  # 39 degrees of freedom: six deviations of a chi-square


@pytest.mark.parametrize("name", NAMES)
def test_paths_have_the_inverse_as_their_covariance(name):
    ours, C = system(name, step=9)
    w = ours.paths(4000, PATH_TOLERANCE).solved
    inverse = np.linalg.inv(C)
    directions = np.stack([np.eye(100)[0], normal(1)[:100, 0].numpy() / 10, inverse[:, 5] * 5])
    samples = (directions @ w.numpy()) ** 2
    assert_mean(samples.T, np.einsum("ij,jk,ik->i", directions, inverse, directions))
    assert fails(assert_mean, samples.T, 1.2 * np.einsum("ij,jk,ik->i", directions, inverse, directions))


def test_all_ways_to_multiply(monkeypatch):
    """By Phi Phi^T, by its factors, and by these in threads."""
    right, widths, multiply = normal(2), set(), sparse_system.multiply
    monkeypatch.setattr(sparse_system, "multiply", lambda blocks, v: widths.add(len(v)) or multiply(blocks, v))

    def solved(fill):
        widths.clear()
        monkeypatch.setattr(sparse_system, "FILL", fill)
        return system("walks")[0].solve(right, 1e-12)

    formed = solved(10**9)
    assert widths == {300}
    factored = solved(0)
    assert widths == {300, np.unique(features("walks").indices).size}
    torch.testing.assert_close(factored, formed)
    monkeypatch.setattr("rfgp.sparse.products.IN_THREADS", 0)
    torch.testing.assert_close(solved(0), factored)


def test_searches_that_end_early_begin_again(monkeypatch):
    monkeypatch.setattr(systems, "MOST_ITERATIONS", 40)
    ours, C = system("walks")
    right = normal(3)
    right[:, 1] = 0
    np.testing.assert_allclose(ours.solve(right, 1e-9), np.linalg.solve(C, right.numpy()), rtol=0, atol=1e-7)
    monkeypatch.setattr(systems, "ROUNDS", 1)
    with pytest.raises(rfgp.SolverError, match="reached a relative residual of"):
        ours.solve(right, 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_columns_in_blocks_are_solved_as_they_are_together(monkeypatch, name):
    """Their draws and determinant too, though blocks take steps of their own."""
    right, together = normal(5), system(name)[0]
    solved, draws = together.solve(right, 1e-11), together.paths(5, 1e-9)
    monkeypatch.setattr(systems, "MOST_NUMBERS", 0)
    monkeypatch.setattr(systems, "LEAST_COLUMNS", 2)
    apart = system(name)[0]
    torch.testing.assert_close(apart.solve(right, 1e-11), solved, rtol=1e-8, atol=1e-8 * float(solved.abs().max()))
    again = apart.paths(5, 1e-9)
    torch.testing.assert_close(again.solved, draws.solved, rtol=1e-6, atol=1e-6 * float(draws.solved.abs().max()))
    torch.testing.assert_close(again.log_determinant, draws.log_determinant, rtol=1e-7, atol=0)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_sizes_that_squares_cannot_hold(size):
    ours, _ = system("walks")
    right = normal(2)
    torch.testing.assert_close(ours.solve(size * right, 1e-9) / size, ours.solve(right, 1e-9))
    right[3, 1] = torch.inf
    with pytest.raises(rfgp.SolverError, match="not finite"):
        ours.solve(right, 1e-9)


@pytest.mark.filterwarnings("error")
def test_one_draw_does_not_know_its_error():
    estimate = system("walks")[0].paths(1, 1e-6).log_determinant
    assert np.isfinite(estimate.value)
    assert estimate.error == np.inf


def test_eigenpairs_where_the_fast_method_fails(monkeypatch):
    expected, fast = system("walks")[0].paths(4, 1e-6).log_determinant, scipy.linalg.eigh_tridiagonal
    failed = []

    def fails_once(*arguments, lapack_driver=None):
        if lapack_driver is None:
            failed.append(1)
            raise np.linalg.LinAlgError("stevd did not converge")
        return fast(*arguments, lapack_driver=lapack_driver)

    monkeypatch.setattr(scipy.linalg, "eigh_tridiagonal", fails_once)
    assert system("walks")[0].paths(4, 1e-6).log_determinant.value == pytest.approx(expected.value, rel=1e-12)
    assert len(failed) == 4


def test_a_solve_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(systems, "MOST_ITERATIONS", 3)
    with pytest.raises(rfgp.SolverError, match="reached a relative residual of"):
        system("walks", variance=1e6)[0].solve(torch.ones(300, 1, dtype=torch.float64), 1e-9)
