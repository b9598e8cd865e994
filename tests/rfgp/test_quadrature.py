import numpy as np
import pytest
import scipy.linalg
import torch
from refusals import refused

import rfgp
from rfgp import metrics


class Dense:
    """A covariance matrix."""

    def __init__(self, matrix):
        self.matrix = torch.from_numpy(matrix)

    def times(self, v):
        return self.matrix @ v

    def solve(self, v):
        return torch.linalg.solve(self.matrix, v)

    def draw(self, count, generator):
        normals = torch.randn(len(self.matrix), count, generator=generator, dtype=torch.float64)
        return torch.linalg.cholesky(self.matrix) @ normals


def covariances(n, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, n))
    first = root @ root.T / n + np.eye(n)
    return first, first + 0.3 * np.diag(rng.uniform(size=n))


@pytest.mark.parametrize(("size", "error"), [(3, 1e-9), (30, 1e-4)])
def test_each_trace_is_that_of_its_probe(size, error):
    """In three dimensions after as many steps, and exactly."""
    first, second = covariances(size)
    generator = torch.Generator().manual_seed(3)
    draws = Dense(first).draw(5, generator)
    found = metrics.quadrature(Dense(first), Dense(second), draws, torch.log)
    w = np.linalg.solve(first, draws.numpy())
    values, vectors = scipy.linalg.eigh(second, first)  # V^T C_1 V = I
    parts = (vectors.T @ first @ w) ** 2
    expected = size * (np.log(values)[:, None] * parts).sum(0) / parts.sum(0)
    np.testing.assert_allclose(found, expected, rtol=error)


@pytest.mark.slow
def test_traces_that_do_not_settle_are_refused():
    first, second = np.eye(250), np.diag(10.0 ** np.linspace(-8, 8, 250))
    ones = torch.ones(250, 1, dtype=torch.float64)
    call = lambda: metrics.quadrature(Dense(first), Dense(second), ones, torch.log)  # noqa: E731
    refused(call, rfgp.SolverError, "250 points")
