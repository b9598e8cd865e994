"""Conditionals in batches against the compiled loops, also for rows that determine each other."""

import numpy as np
import pytest
import torch

from rfgp.blocks import VecchiaBlock
from rfgp.blocks.neighbors import as_sum
from rfgp.local import covariances
from rfgp.local.covariances import in_pattern, neighbors_of, pattern_of

F64 = torch.float64


def blocks(kind="gaussian", count=6):
    lengthscale = torch.tensor([0.7, 1.3], dtype=F64, requires_grad=True)
    variance = torch.tensor(0.8, dtype=F64, requires_grad=True)
    block = VecchiaBlock(kind, lengthscale, variance, count, 0)
    return block, as_sum(block), (lengthscale, variance)


def rows(count=80):
    x = torch.randn(count, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    x[40:50] = x[:10]
    x[60:65] = x[:5]
    return x


@pytest.mark.parametrize("copies", ["with noise", "without noise"])
@pytest.mark.parametrize("kind", ["gaussian", "matern12", "matern52"])
def test_batches_match_loops(kind, copies):
    """Copies of neighbors without noise have no effect."""
    loops, batches, parameters = blocks(kind)
    x, none, noise = rows(), torch.zeros(80, 0, dtype=F64), torch.full((80,), 0.2, dtype=F64)
    noise[:10] = noise[40:50] = 0.2 if copies == "with noise" else 0.0
    noise.requires_grad_()
    some = torch.tensor([i for i in range(10, 80) if not 40 <= i < 50])
    pattern, found = loops.predecessors(x, some), []
    assert np.array_equal(pattern.indices, batches.predecessors(x, some).indices)
    upstream = torch.randn(len(pattern.indices), generator=torch.Generator().manual_seed(2), dtype=F64)
    for block in (loops, batches):
        entries = block.inverse_factor(x, noise, pattern, none)
        *slopes, grad_noise = torch.autograd.grad(entries @ upstream, (*parameters, noise))
        found.append((entries, *slopes, grad_noise[noise.detach() > 0]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    near = np.array([[0, 3, 40], [5, 45, -1], [7, -1, -1]])
    given = (x[70:73], none[:3]), (x, none, noise.detach()), near
    loops, batches = loops.detached(), batches.detached()
    for one, other in zip(loops.conditionals(*given), batches.conditionals(*given), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_patterns_are_those_of_neighbors():
    near = np.array([[0, 2], [1, -1], [-1, -1]])
    pattern = pattern_of(near, 4)
    found, own = neighbors_of(pattern)
    np.testing.assert_array_equal(found, near)
    np.testing.assert_array_equal(own, [4, 5, 6])
    values = torch.arange(6, dtype=F64).reshape(3, 2)
    entries = in_pattern(values, torch.tensor([10.0, 11.0, 12.0], dtype=F64), pattern)
    assert entries.tolist() == [0, 1, 10, 2, 11, 12]


def test_one_block_is_in_memory_at_a_time(monkeypatch):
    """The covariance of one block and its neighbors is computed again for gradients."""
    _, batches, parameters = blocks()
    monkeypatch.setattr(covariances, "BLOCK", 8)
    x, sizes = rows(), []
    kernel = type(batches.kernels[0]).kernel
    monkeypatch.setattr(
        type(batches.kernels[0]), "kernel", lambda self, a, b: sizes.append(len(a)) or kernel(self, a, b)
    )
    pattern = batches.predecessors(x)
    entries = batches.inverse_factor(x, torch.ones(80, dtype=F64), pattern, torch.zeros(80, 0, dtype=F64))
    assert len(sizes) == 10
    torch.autograd.grad(entries.sum(), parameters)
    assert len(sizes) == 20
    assert max(sizes) <= 8 + 8 * 6
