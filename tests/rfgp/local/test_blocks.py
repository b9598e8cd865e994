"""Rows in blocks with shared neighbors and one factorization against dense algebra and single rows."""

import numpy as np
import pytest
import torch
from local_rows import as_dense, dense_factor, known_features, parameters, rows, slopes_agree

import rfgp.local.blocks as module
from rfgp import local
from rfgp.local import factor, kinds, loops
from rfgp.sparse import EntryPattern


def parts(pattern):
    """Return the neighbors of each row of a pattern, with the row itself last."""
    return np.split(pattern.indices, pattern.indptr[1:-1])


def own(pattern):
    return pattern.indices[pattern.indptr[1:] - 1]


def precision(x, theta, name, pattern, known=None):
    V = as_dense(local.inverse_factor(x, *theta, local.KINDS[name], pattern, known), pattern)
    return V.mT @ V


def by_rows(x, theta, name, pattern, known=None):
    """Return the entries of rows without shared factorizations."""
    every = [pattern.take(np.array([i]))[0] for i in range(pattern.shape[0])]
    return torch.cat([local.inverse_factor(x, *theta, local.KINDS[name], one, known) for one in every])


def weights_like(entries, seed=0):
    return torch.randn(entries.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def theta_of(noise, shared=False):
    return [*parameters(shared=shared), noise.requires_grad_()]


@pytest.mark.parametrize(("count", "size"), [(0, 1000), (1000, 4), (1000, 1)], ids=["one block", "blocks", "rows"])
@pytest.mark.parametrize("name", local.KINDS)
def test_blocks_with_all_predecessors_are_exact(name, count, size):
    x, noise = rows()
    theta, known = theta_of(noise), known_features(x, name)
    pattern = local.block_predecessors(x.numpy(), max(count, 1), size)
    found = precision(x, theta, name, pattern, known)
    root = dense_factor(x, *theta, name, known)
    exact = root.mT @ root
    assert torch.allclose(found, exact, rtol=1e-9, atol=1e-9)
    upstream = weights_like(found)
    assert slopes_agree(found, exact, [*theta, known], upstream, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("has_features", [False, True])
@pytest.mark.parametrize("name", local.KINDS)
def test_blocks_match_single_rows(name, has_features):
    x, noise = rows(150)
    theta = theta_of(noise)
    known = known_features(x, name).detach().requires_grad_() if has_features else torch.zeros(150, 0).double()
    pattern = local.block_predecessors(x.numpy(), 9, 6)
    found, singly = (of(x, theta, name, pattern, known) for of in (entries_of, by_rows))
    assert torch.allclose(found, singly, rtol=1e-12, atol=1e-13)
    all_theta, upstream = [*theta, *[known] * has_features], weights_like(found)
    assert slopes_agree(found, singly, all_theta, upstream, rtol=1e-10, atol=1e-11)


def entries_of(x, theta, name, pattern, known=None):
    return local.inverse_factor(x, *theta, local.KINDS[name], pattern, known)


def test_rows_are_conditioned_on_their_entries_only():
    x, noise = rows(60)
    theta = theta_of(noise)
    pattern = local.block_predecessors(x.numpy(), 5, 4)
    found = as_dense(entries_of(x, theta, "matern32", pattern), pattern)
    for i in (0, 3, 30, 59):
        near = [*parts(pattern)[i]]
        exact = dense_factor(x[near], *theta[:2], noise[near], "matern32")[-1]
        assert torch.allclose(found[i, near], exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("n", "count", "size"), [(1, 3, 4), (3, 2, 8), (60, 4, 7), (500, 12, 16), (700, 40, 3)])
def test_blocks_are_near_rows_with_the_nearest_before(n, count, size):
    z = np.random.default_rng(n).standard_normal((n, 3))
    z[n // 2 : n // 2 + n // 10] = z[: n // 10]  # copies
    pattern, before = local.block_predecessors(z, count, size), []
    assert sorted(own(pattern)) == [*range(n)]
    every, i = parts(pattern), 0
    blocks = []
    while i < n:
        near, block = every[i][:-1], [every[i][-1]]
        assert len(near) == min(count, len(before))
        while i + 1 < n and len(every[i + 1]) == len(every[i]) + 1 and set(every[i]) < set(every[i + 1]):
            i += 1
            block.append(every[i][-1])
        center = z[block].mean(0) if len(block) <= size else None
        if center is not None and len(before) > count:
            squares = ((z[before] - center) ** 2).sum(1)
            assert np.allclose(np.sort(((z[near] - center) ** 2).sum(1)), np.sort(squares)[:count])
        assert set(near) <= set(before)
        before += block
        blocks.append(block)
        i += 1
    assert [min(block) for block in blocks] == sorted(min(block) for block in blocks)
    if n == 500:
        radii = [np.ptp(z[block], axis=0).max() for block in blocks if len(block) == size]
        assert np.mean(radii) < 0.6 * np.ptp(z, axis=0).min()


def test_blocks_of_one_row_are_the_nearest_before():
    z = rows(200)[0].numpy()
    found, expected = local.block_predecessors(z, 7, 1), local.nearest_predecessors(z, 7)
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)


@pytest.mark.parametrize("most", [1, 30, 64, 299, 10**6])
def test_chosen_blocks_are_blocks_of_all_rows(most):
    """Their mean density is that of all rows, because each is conditioned on the same rows."""
    z = np.random.default_rng(0).standard_normal((300, 2))
    whole = {row[-1]: row.tolist() for row in parts(local.block_predecessors(z, 10, 8))}
    chosen = parts(local.block_predecessors(z, 10, 8, most))
    assert min(most, 290) <= len(chosen) <= min(most + 7, 300)
    assert all(row.tolist() == whole[row[-1]] for row in chosen)
    assert len({row[-1] for row in chosen}) == len(chosen)


@pytest.mark.parametrize("case", ["copies", "all the same", "far", "alone"])
def test_degenerate_rows_have_finite_factors(case):
    x, noise = rows(40)
    x = {"copies": x[[0, 1] * 20], "all the same": 0 * x, "far": 1e150 * x, "alone": x[:1]}[case]
    noise = torch.full((len(x),), 1e-12 if case == "copies" else 0.1, dtype=torch.float64)
    theta, z = theta_of(noise), factor.scaled_positions(x, torch.ones(3))
    for most in (None, 17):
        pattern = local.block_predecessors(z, 8, 5, most)
        entries = entries_of(x, theta, "gaussian", pattern)
        found = torch.autograd.grad(entries.sum(), theta)
        assert bool(entries.isfinite().all())
        assert all(bool(slope.isfinite().all()) for slope in found)
        assert torch.allclose(entries, by_rows(x, theta, "gaussian", pattern), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("fault", ["later", "far", "lost", "none"])
def test_planted_errors_in_blocks_are_seen(fault, monkeypatch):
    original, runs = module.nearest_of_prefixes, module.runs_of

    def wrong(z, points, lengths, count):
        if fault == "later":  # rows of later blocks
            return original(z, points, np.minimum(lengths + count, len(z)), count)
        return original(z, -points, lengths, count) if fault == "far" else original(z, points, lengths, count)

    def lost(near, counts, members, sizes, columns):
        found = runs(near, counts, members, sizes, columns)
        if fault != "lost":
            return found
        indices = found.indices.copy()
        indices[-1] = indices[0]
        return EntryPattern(found.indptr, indices, found.shape)

    monkeypatch.setattr(module, "nearest_of_prefixes", wrong)
    monkeypatch.setattr(module, "runs_of", lost)
    if fault == "none":
        test_blocks_are_near_rows_with_the_nearest_before(60, 4, 7)
        return
    with pytest.raises(AssertionError):
        test_blocks_are_near_rows_with_the_nearest_before(60, 4, 7)


@pytest.mark.parametrize("name", local.KINDS)
def test_kernels_of_the_loops_are_exact_at_any_distance(name):
    for r in (0.0, 1e-9, 0.3, 5.0, 40.0, 1e3, 1e100):
        expected = float(kinds.spectrum_of(name).kernel(torch.tensor(r, dtype=torch.float64)))
        assert loops.correlation(local.KINDS[name], r**2)[0] == pytest.approx(expected, rel=2e-13, abs=1e-300)
