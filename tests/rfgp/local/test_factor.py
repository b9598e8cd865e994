"""Neighbors and the sparse inverse factor against dense algebra."""

import numpy as np
import pytest
import torch
from local_rows import as_dense, dense_factor, known_features, parameters, rows, slopes_agree

from rfgp import local
from rfgp.local import factor, loops, neighbors
from rfgp.local.neighbors import nearest_before
from rfgp.sparse import SparsityPattern


def all_before(n):
    starts = np.cumsum([0, *range(1, n + 1)])
    return SparsityPattern(starts, np.concatenate([np.arange(i + 1) for i in range(n)]), (n, n))


@pytest.mark.parametrize("of", ["each", "shared", "residual"])
@pytest.mark.parametrize("name", local.KINDS)
def test_all_predecessors_give_the_exact_inverse_factor(name, of):
    x, noise = rows()
    theta = [*parameters(shared=of == "shared"), noise.requires_grad_()]
    pattern, known = all_before(len(x)), [known_features(x, name)] if of == "residual" else []
    found = as_dense(local.inverse_factor(x, *theta, local.KINDS[name], pattern, *known), pattern)
    exact = dense_factor(x, *theta, name, *known)
    theta += known
    assert torch.allclose(found, exact, rtol=1e-11, atol=1e-12)
    weights = torch.randn(found.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).tril()
    assert slopes_agree(found, exact, theta, weights, rtol=1e-9, atol=1e-10)


def test_rows_are_conditioned_on_their_neighbors_only():
    x, noise = rows(60)
    lengthscale, variance = parameters()
    pattern = local.nearest_predecessors((x / lengthscale.detach()).numpy(), 5)
    found = as_dense(local.inverse_factor(x, lengthscale, variance, noise, 1, pattern), pattern)
    for i in (0, 3, 7, 59):
        near = [*pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]]]
        exact = dense_factor(x[near], lengthscale, variance, noise[near], "matern32")[-1]
        assert torch.allclose(found[i, near], exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", local.KINDS)
def test_slopes_of_kernels_match_differences(name):
    for square in (1e-8, 0.3, 2.0, 30.0):
        step = 1e-4 * square
        ends = [loops.correlation(local.KINDS[name], square + s * step)[0] for s in (1, -1)]
        _, slope = loops.correlation(local.KINDS[name], square)
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-4, abs=1e-12)


def test_copies_without_noise_are_omitted():
    x, _ = rows(30)
    x[20:] = x[:10]
    lengthscale, variance = parameters()
    pattern, noise = all_before(30), torch.full((30,), 1e-12, dtype=torch.float64)
    noise[11] = 0.5
    entries = local.inverse_factor(x, lengthscale, variance, noise, 1, pattern)
    assert bool(entries.isfinite().all())
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(entries.sum(), [lengthscale, variance]))
    scales = 1 / entries.detach()[torch.from_numpy(pattern.indptr[1:] - 1)]
    assert float(scales[20:].max()) < 1e-5  # their values are known


def test_products_and_gradients_match_dense():
    x, _ = rows(50)
    pattern = local.nearest_predecessors(x.numpy(), 6)
    generator = torch.Generator().manual_seed(0)
    entries, dense = (
        torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in ((len(pattern.indices),), (50, 4))
    )
    upstream = torch.randn(50, 4, dtype=torch.float64, generator=generator)
    found, exact = local.whitened(entries, dense, pattern), as_dense(entries, pattern) @ dense
    assert torch.allclose(found, exact, rtol=1e-12, atol=1e-13)
    assert slopes_agree(found, exact, [entries, dense], upstream, rtol=1e-12, atol=1e-13)
    back = as_dense(entries, pattern).mT @ upstream
    assert torch.allclose(local.whitened_transpose(entries, upstream, pattern), back, rtol=1e-12, atol=1e-13)


def test_factor_of_some_rows_has_their_entries():
    x, noise = rows(80)
    lengthscale, variance = (p.detach() for p in parameters())
    pattern, some = local.nearest_predecessors(x.numpy(), 7), np.array([0, 4, 31, 79])
    entries = local.inverse_factor(x, lengthscale, variance, noise, 1, pattern)
    smaller, columns = local.used(local.nearest_predecessors(x.numpy(), 7, some))
    found = local.inverse_factor(x[columns], lengthscale, variance, noise[columns], 1, smaller)
    expected = torch.cat([entries[pattern.indptr[i] : pattern.indptr[i + 1]] for i in some])
    assert torch.equal(found, expected)


def test_threads_do_not_change_factors(monkeypatch):
    x, noise = rows(300)
    theta, pattern = parameters(), local.nearest_predecessors(x.numpy(), 10)

    def both():
        entries = local.inverse_factor(x, *theta, noise, 2, pattern)
        return entries, *torch.autograd.grad(entries.square().sum(), theta)

    alone = both()
    monkeypatch.setattr(factor, "IN_THREADS", 1)
    monkeypatch.setattr(factor, "num_threads", lambda: 3)
    for one, other in zip(alone, both(), strict=True):
        assert torch.allclose(one, other, rtol=1e-13, atol=0)


@pytest.mark.parametrize(("n", "count"), [(1, 3), (2, 5), (60, 4), (500, 12), (700, 40)])
def test_neighbors_are_the_nearest_before(n, count):
    rng = np.random.default_rng(n)
    z = rng.standard_normal((n, 3))
    z[n // 2 : n // 2 + n // 10] = z[: n // 10]  # copies
    pattern = local.nearest_predecessors(z, count)
    for i in range(n):
        mine = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]]
        squares = ((z[:i] - z[i]) ** 2).sum(1)
        assert mine[-1] == i
        assert len(mine) == min(i, count) + 1
        assert np.allclose(np.sort(squares[mine[:-1]]), np.sort(squares)[:count])
    some = np.unique(rng.integers(0, n, 20))
    part = local.nearest_predecessors(z, count, some)
    for row, i in enumerate(some):
        expected = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]]
        assert np.array_equal(part.indices[part.indptr[row] : part.indptr[row + 1]], expected)


def test_neighbors_of_many_rows_are_nearly_exact(monkeypatch):
    z = np.random.default_rng(0).standard_normal((3000, 6))
    exact = local.nearest_predecessors(z, 20)
    monkeypatch.setattr(neighbors, "EXACT", 100)
    almost = local.nearest_predecessors(z, 20)
    assert almost.shape == exact.shape
    assert np.array_equal(almost.indptr, exact.indptr)
    same = len(np.intersect1d(almost.rows * 3000 + almost.indices, exact.rows * 3000 + exact.indices))
    assert 0.95 < same / len(exact.indices) < 1


def test_neighbors_of_new_points_may_be_new_points():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((30, 2))
    near = nearest_before(z, 20, 25)
    for i, found in zip(range(20, 30), near, strict=True):
        assert [*found[found >= 0]] == sorted(np.argsort(((z[:i] - z[i]) ** 2).sum(1), kind="stable")[:25])
        assert [*found[min(i, 25) :]] == [-1] * (25 - min(i, 25))


@pytest.mark.parametrize("fault", ["noise", "slope", "cross", "features", "feature slope"])
def test_planted_errors_in_the_loops_are_seen(fault, monkeypatch):
    x, noise = rows()
    theta, known = [*parameters(), noise.requires_grad_()], known_features(x, "matern32")
    pattern = all_before(len(x))

    def is_right(name="matern32"):
        found = as_dense(local.inverse_factor(x, *theta, 1, pattern, known), pattern)
        exact = dense_factor(x, *theta, name, known)
        return torch.allclose(found, exact, rtol=1e-9) and slopes_agree(found, exact, [*theta, known], rtol=1e-7)

    assert is_right()
    original = {name: getattr(loops, name) for name in ("conditional_rows", "add_row_gradients")}

    def wrong_noise(first, last, kind, z, phi, noise, *rest):
        return original["conditional_rows"](first, last, kind, z, phi, noise * 1.001, *rest)

    def wrong_features(first, last, kind, z, phi, *rest):
        return original["conditional_rows"](first, last, kind, z, phi * 0.999, *rest)

    def wrong_slope(first, last, *rest):
        value = original["add_row_gradients"](first, last, *rest)
        rest[-3][0] *= 1.001
        return value

    def wrong_feature_slope(first, last, *rest):
        value = original["add_row_gradients"](first, last, *rest)
        rest[-1][4] *= 1.001
        return value

    def wrong_kernel(first, last, kind, *rest):
        return original["conditional_rows"](first, last, 2, *rest)

    name, wrong = {
        "noise": ("conditional_rows", wrong_noise),
        "slope": ("add_row_gradients", wrong_slope),
        "cross": ("conditional_rows", wrong_kernel),
        "features": ("conditional_rows", wrong_features),
        "feature slope": ("add_row_gradients", wrong_feature_slope),
    }[fault]
    monkeypatch.setattr(loops, name, wrong)
    assert not is_right()
