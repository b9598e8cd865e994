"""What is said of a fit at its end."""

import math

import pytest
import torch

from rfgp.fitting.finish import neighbor_correlation


def test_the_correlation_of_neighbors():
    generator = torch.Generator().manual_seed(0)
    points, errors = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((200, 3), (200, 2)))
    near = (torch.cdist(points, points) + torch.diag(torch.full((200,), math.inf))).argmin(1)
    centered = errors - errors.mean(0)
    expected = (centered * centered[near]).sum() / centered.square().sum()
    assert neighbor_correlation(points, errors + 3) == pytest.approx(expected.item(), rel=1e-12)
    assert math.isnan(neighbor_correlation(points[:199], errors[:199]))
    twins, opposite = torch.cat([points, points]), torch.cat([errors, -errors])  # each the nearest of the other
    assert neighbor_correlation(twins, opposite) == pytest.approx(-1, rel=1e-12)
