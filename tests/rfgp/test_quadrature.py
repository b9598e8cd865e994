import numpy as np
import pytest
import scipy.linalg
import torch
from checks import assert_mean_of_normals, fails

import rfgp
from rfgp import quadrature


class Dense:
    """A covariance as it is."""

    def __init__(self, matrix):
        self.matrix = torch.from_numpy(matrix)

    def times(self, v):
        return self.matrix @ v

    def solve(self, v):
        return torch.linalg.solve(self.matrix, v)

    def draw(self, count, generator):
        return torch.linalg.cholesky(self.matrix) @ torch.randn(
            len(self.matrix), count, generator=generator, dtype=torch.float64
        )


def covariances(n, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, n))
    first = root @ root.T / n + np.eye(n)
    return first, first + 0.3 * np.diag(rng.uniform(size=n))


def traced(first, second, function, probes):
    generator = torch.Generator().manual_seed(0)
    a, b = Dense(first), Dense(second)
    return quadrature.quadrature(a, b, a.draw(probes, generator), function).numpy()


@pytest.mark.parametrize("function", [lambda r: 1 / r - 1 + r.log(), torch.log, lambda r: r**2])
def test_traces_agree_with_eigenvalues(function):
    first, second = covariances(40)
    eigenvalues = torch.from_numpy(scipy.linalg.eigh(second, first, eigvals_only=True))
    found = traced(first, second, function, 256)
    assert_mean_of_normals(found, float(function(eigenvalues).sum()))
    assert fails(assert_mean_of_normals, found, float(function(1 / eigenvalues).sum()))  # of the inverse


def test_constants_have_no_error_and_small_spaces_are_exhausted():
    first, second = covariances(6)
    np.testing.assert_allclose(traced(first, 2 * first, torch.log, 3), 6 * np.log(2), rtol=1e-12)
    np.testing.assert_allclose(traced(first, first, lambda r: r - 1, 3), 0, atol=1e-12)
    assert np.isfinite(traced(first[:1, :1], second[:1, :1], torch.log, 2)).all()


@pytest.mark.parametrize(("size", "error"), [(3, 1e-9), (30, 1e-4)])
def test_each_trace_is_that_of_its_probe(size, error):
    """In three dimensions after as many steps, and exactly."""
    first, second = covariances(size)
    generator = torch.Generator().manual_seed(3)
    draws = Dense(first).draw(5, generator)
    found = quadrature.quadrature(Dense(first), Dense(second), draws, torch.log)
    w = np.linalg.solve(first, draws.numpy())
    values, vectors = scipy.linalg.eigh(second, first)  # V^T C_1 V = I
    parts = (vectors.T @ first @ w) ** 2
    expected = size * (np.log(values)[:, None] * parts).sum(0) / parts.sum(0)
    np.testing.assert_allclose(found, expected, rtol=error)


def test_traces_that_do_not_settle_are_refused(monkeypatch):
    monkeypatch.setattr(quadrature, "MAX_STEPS", 4)
    first = np.diag(10.0 ** np.linspace(-6, 6, 50))
    with pytest.raises(rfgp.SolverError, match="50 points must settle within 4"):
        traced(np.eye(50), first, torch.log, 2)
