"""Neighbors, their sparse inverse factor and density against dense algebra, in loops and in batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rfgp import blocks, local

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
    V = as_dense(local.inverse_factor(x, *theta, local.KINDS[name], pattern, known), pattern)
    exact = inverse_factor(x, *theta, name, known)
    agree(V.mT @ V, exact.mT @ exact, [*theta, *([known] if of == "residual" else [])])


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("name", ["gaussian", "matern32"])
def test_rows_are_conditioned_on_their_neighbors_only(name, size):
    x, noise = rows(60)
    theta = parameters()
    pattern = local.block_predecessors(x.numpy(), 5, size)
    found = as_dense(local.inverse_factor(x, *theta, noise, local.KINDS[name], pattern), pattern)
    for i, near in enumerate(np.split(pattern.indices, pattern.indptr[1:-1])):
        exact = inverse_factor(x[near], *theta, noise[near], name)[-1]
        torch.testing.assert_close(found[i, near], exact, rtol=1e-9, atol=1e-11)


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
    found = local.log_prob(x, *theta, targets, weights, local.KINDS[name], pattern)
    agree(found, expected, [*theta, targets])


@pytest.mark.parametrize("columns", [1, 7])
@pytest.mark.parametrize("size", [1, 5, 90])
def test_products_with_the_factor_match_dense(size, columns):
    x, _ = rows(90)
    pattern, generator = local.block_predecessors(x.numpy(), 9, size), torch.Generator().manual_seed(size)
    entries = torch.randn(len(pattern.indices), dtype=F64, generator=generator, requires_grad=True)
    dense, other = torch.randn(2, 90, columns, dtype=F64, generator=generator)
    agree(
        local.whitened(entries, dense.requires_grad_(), pattern), as_dense(entries, pattern) @ dense, [entries, dense]
    )
    back = local.whitened_transpose(entries.detach(), other, pattern)
    torch.testing.assert_close(back, as_dense(entries.detach(), pattern).mT @ other, rtol=1e-11, atol=1e-12)


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
    for i, found in zip(range(20, 30), local.nearest_before(z, 20, 25), strict=True):
        assert [*found[found >= 0]] == sorted(np.argsort(((z[:i] - z[i]) ** 2).sum(1), kind="stable")[:25])


@pytest.mark.parametrize(("n", "count", "size"), [(3, 2, 8), (60, 4, 7), (500, 12, 16)])
def test_rows_of_a_block_share_the_nearest_rows_before_it(n, count, size):
    """A block ends where a row has not all entries of the row before, and itself."""
    z = np.random.default_rng(n).standard_normal((n, 3))
    every = [
        list(near)
        for near in np.split(*(lambda p: (p.indices, p.indptr[1:-1]))(local.block_predecessors(z, count, size)))
    ]
    assert sorted(near[-1] for near in every) == [*range(n)]
    before, i = [], 0
    while i < n:
        near, block = every[i][:-1], [every[i][-1]]
        while i + len(block) < n and every[i + len(block)][:-1] == [*near, *block]:
            block.append(every[i + len(block)][-1])
        assert len(near) == min(count, len(before))
        assert set(near) <= set(before)
        if len(before) > count and len(block) <= size:
            square = ((z[before] - z[block].mean(0)) ** 2).sum(1)
            np.testing.assert_allclose(np.sort(((z[near] - z[block].mean(0)) ** 2).sum(1)), np.sort(square)[:count])
        before, i = before + block, i + len(block)


@pytest.mark.parametrize("case", ["copies", "all the same", "far"])
def test_degenerate_rows_have_finite_factors(case):
    x, _ = rows()
    x = {"copies": x[[0, 1] * 20], "all the same": 0 * x, "far": 1e150 * x}[case]
    noise = torch.full((40,), 1e-12 if case == "copies" else 0.1, dtype=F64, requires_grad=True)
    theta, pattern = [*parameters(), noise], local.block_predecessors((x / 1e100).numpy(), 8, 5)
    for found in (
        local.inverse_factor(x, *theta, 1, pattern).sum(),
        local.log_prob(x, *theta, x[:, :1].clamp(-1, 1), torch.ones(1, dtype=F64), 1, pattern),
    ):
        assert bool(found.isfinite())
        assert all(bool(slope.isfinite().all()) for slope in torch.autograd.grad(found, theta))


@pytest.mark.parametrize("of_copies", [0.2, 0.0])
@pytest.mark.parametrize("name", ["gaussian", "matern12", "matern52"])
def test_batches_match_loops(name, of_copies):
    """Copies of neighbors without noise have no effect."""
    theta = torch.tensor([0.7, 1.3], dtype=F64, requires_grad=True), torch.tensor(0.8, dtype=F64, requires_grad=True)
    block = blocks.VecchiaBlock.stationary(name, *theta, 6, 0)
    x, none = torch.randn(80, 2, generator=torch.Generator().manual_seed(1), dtype=F64), torch.zeros(80, 0, dtype=F64)
    x[40:50] = x[:10]
    noise = torch.full((80,), 0.2, dtype=F64)
    noise[:10] = noise[40:50] = of_copies
    noise.requires_grad_()
    some = torch.tensor([i for i in range(10, 80) if not 40 <= i < 50])
    pattern = block.predecessors(x, some)
    entries = [one.inverse_factor(x, noise, pattern, none) for one in (block, replace(block, kind=None))]
    agree(*entries, theta, 1e-7)
    near = np.array([[0, 3, 40], [5, 45, -1], [7, -1, -1]])
    given = (x[70:73], none[:3]), (x, none, noise.detach()), near
    found = [one.detached().conditionals(*given) for one in (block, replace(block, kind=None))]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
