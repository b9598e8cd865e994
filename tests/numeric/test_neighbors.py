"""Neighbors, their sparse inverse factor and density against dense algebra, in loops and in batches."""

import numpy as np
import pytest
import torch

from rfgp import local

F64 = torch.float64


def rows(n=40):
    """Return rows (n, 3), one of which is a copy, and the noise of each."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((n, 3)) * [1.0, 0.5, 2.0])
    x[7] = x[3]
    return x, torch.from_numpy(rng.uniform(0.02, 0.3, n)).requires_grad_()


def parameters(shared=False):
    lengthscale = torch.tensor(0.9 if shared else [0.7, 1.1, 1.9], dtype=F64)
    return [lengthscale.requires_grad_(), torch.tensor(1.3, dtype=F64).requires_grad_()]


def correlation(name, r):
    if name == "gaussian":
        return torch.exp(-(r**2) / 2)
    root = {"matern12": 1, "matern32": 3, "matern52": 5}[name]
    r = root**0.5 * r
    return torch.exp(-r) * {1: 1, 3: 1 + r, 5: 1 + r + r**2 / 3}[root]


def covariance(x, lengthscale, variance, name, z=None):
    """Return the covariance of rows, with a finite gradient at copies."""
    z = x if z is None else z
    square = (((x[:, None] - z) / lengthscale) ** 2).sum(-1)
    return variance * correlation(name, torch.where(square > 0, square, 1e-30).sqrt())


def known_features(x, name):
    """Return features of five points, that explain a part of the process."""
    lengthscale, variance = (p.detach() for p in parameters())
    factor = torch.linalg.cholesky(covariance(x[8:13], lengthscale, variance, name) + 1e-6 * torch.eye(5))
    return torch.linalg.solve_triangular(factor, covariance(x[8:13], lengthscale, variance, name, x), upper=False).mT


def inverse_factor(x, lengthscale, variance, noise, name, known=None):
    left = covariance(x, lengthscale, variance, name)
    left = left if known is None else left - known @ known.mT
    return torch.linalg.inv(torch.linalg.cholesky(left + noise.diag()))


def as_dense(entries, pattern):
    places = torch.as_tensor(pattern.rows), torch.as_tensor(pattern.indices)
    return torch.zeros(pattern.shape, dtype=F64).index_put(places, entries)


def agree(found, expected, theta, digits=1e-8):
    """Assert that values and their gradients are equal, for random weights."""
    torch.testing.assert_close(found, expected, rtol=digits, atol=digits)
    weights = torch.randn(found.shape, dtype=F64, generator=torch.Generator().manual_seed(0))
    pairs = (torch.autograd.grad((weights * value).sum(), theta, retain_graph=True) for value in (found, expected))
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other, rtol=100 * digits, atol=100 * digits)


@pytest.mark.parametrize("of", ["each", "shared", "residual"])
@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("name", local.KINDS)
def test_factor_with_all_predecessors_is_exact(name, size, of):
    x, noise = rows()
    theta, known = [*parameters(of == "shared"), noise], None
    if of == "residual":
        known = known_features(x, name).detach().requires_grad_()
    pattern = local.block_predecessors(x.numpy(), 1000, size)
    process = local.StationaryProcess(x, *theta[:2], local.KINDS[name], x[:, :0] if known is None else known)
    V = as_dense(process.inverse_factor(noise, pattern), pattern)
    exact = inverse_factor(x, *theta, name, known)
    agree(V.mT @ V, exact.mT @ exact, [*theta, *([known] if of == "residual" else [])])


@pytest.mark.parametrize(("count", "size"), [(1000, 1), (1000, 4), (6, 1), (6, 8)])
@pytest.mark.parametrize("name", local.KINDS)
def test_density_in_one_pass_is_that_of_the_factor(name, count, size):
    """The density of targets is a sum over rows given their neighbors, with a weight of each output."""
    x, noise = rows()
    targets = torch.randn(40, 2, dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    theta, weights = [*parameters(), noise], torch.tensor([1.0, -0.5], dtype=F64)
    pattern = local.block_predecessors(x.numpy(), count, size)
    expected = 0.0
    for near in np.split(pattern.indices, pattern.indptr[1:-1]):
        factor = inverse_factor(x[near], *theta[:2], noise[near], name)[-1]
        white = factor @ targets[near]
        expected = expected + (weights * (factor[-1].log() - 0.5 * (white**2 + np.log(2 * np.pi)))).sum()
    process = local.StationaryProcess(x, *theta[:2], local.KINDS[name], x[:, :0])
    found = process.log_prob(noise, targets, weights, pattern)
    agree(found, expected, [*theta, targets])


@pytest.mark.parametrize(("n", "count"), [(1, 3), (60, 4), (500, 12)])
def test_neighbors_are_the_nearest_before(n, count):
    rng = np.random.default_rng(n)
    z = rng.standard_normal((n, 3))
    z[n // 2 : n // 2 + n // 10] = z[: n // 10]  # copies
    pattern = local.nearest_predecessors(z, count)
    for i, mine in enumerate(np.split(pattern.indices, pattern.indptr[1:-1])):
        squares = ((z[:i] - z[i]) ** 2).sum(1)
        assert mine[-1] == i
        assert len(mine) == min(i, count) + 1
        np.testing.assert_allclose(np.sort(squares[mine[:-1]]), np.sort(squares)[:count])
    some = np.unique(rng.integers(0, n, 20))
    part = local.nearest_predecessors(z, count, some)
    np.testing.assert_array_equal(part.indices, pattern.take(some)[0].indices)


def test_neighbors_of_new_points_may_be_new_points():
    z = np.random.default_rng(0).standard_normal((30, 2))
    for i, found in zip(range(20, 30), local.nearest_before(z, np.arange(20, 30), 25), strict=True):
        assert [*found[found >= 0]] == sorted(np.argsort(((z[:i] - z[i]) ** 2).sum(1), kind="stable")[:25])


@pytest.mark.parametrize(("n", "count", "size"), [(3, 2, 8), (60, 4, 7), (500, 12, 16)])
def test_rows_of_a_block_share_the_nearest_rows_before_it(n, count, size):
    """A block ends where a row has not all entries of the row before."""
    z = np.random.default_rng(n).standard_normal((n, 3))
    pattern = local.block_predecessors(z, count, size)
    every = [list(near) for near in np.split(pattern.indices, pattern.indptr[1:-1])]
    assert sorted(near[-1] for near in every) == [*range(n)]
    first, before = 0, []
    while first < n:
        near, last = every[first][:-1], first + 1
        while last < n and every[last][:-1] == every[last - 1]:
            last += 1
        block = [every[i][-1] for i in range(first, last)]
        assert len(near) == min(count, len(before))
        assert set(near) <= set(before)
        if len(before) > count and len(block) <= size:
            square = ((z - z[block].mean(0)) ** 2).sum(1)
            np.testing.assert_allclose(np.sort(square[near]), np.sort(square[before])[:count])
        before, first = before + block, last
