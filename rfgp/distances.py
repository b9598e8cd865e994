"""Distances between points, exactly 0 between equal points."""

import math

import torch
from torch import Tensor

MANY = 12
"""The number of coordinates above which distances use a matrix product. Below, differences cost no more."""
NEAR = 0.01
"""The distance below which a pair is computed from its differences, relative to that of the farthest point. The
relative error of squared distances is then at most eps / NEAR^2."""


def distance(
    x: Tensor,  # (..., n, d)
    z: Tensor,  # (..., k, d)
) -> Tensor:  # (..., n, k)
    """Return |x_i - z_j|, exactly 0 between equal points, with gradient 0 there.

    Args:
        x: The first points, (..., n, d).
        z: The second points, (..., k, d).

    Examples:
        >>> distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])).item()
        5.0
    """
    if any(torch.autograd.forward_ad.unpack_dual(points).tangent is not None for points in (x, z)):  # cdist has no jvp
        found: Tensor = torch.linalg.vector_norm(x[..., :, None, :] - z[..., None, :, :], dim=-1)
        return found
    return torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")


def self_distance(
    z: Tensor,  # (n, d)
) -> Tensor:  # (n, n)
    """Return the pairwise distances of points, exactly 0 between equal points.

    Gradients can be NaN, because distances are 0, so `z` should have none. Points of at least `MANY` coordinates in
    float64 use one matrix product, |a|^2 + |b|^2 - 2 a.b. Its rounding error is a few eps max |z|^2. Pairs closer than
    `NEAR` times the largest distance from the mean are therefore recomputed from their differences.

    Args:
        z: The points, (n, d).

    Examples:
        >>> self_distance(torch.tensor([[0.0], [2.0]])).tolist()
        [[0.0, 2.0], [2.0, 0.0]]
    """
    if z.shape[1] < MANY or z.dtype != torch.float64 or not bool(torch.isfinite(z).all()):
        return distance(z, z)
    z = z - z.mean(0)
    squares = z.square().sum(1)
    found = torch.addmm(squares, z, z.mT, alpha=-2).add_(squares[:, None])
    near = (found.view(-1) < NEAR**2 * squares.amax()).nonzero()[:, 0]
    if len(near) > len(z) ** 2 / MANY:
        return distance(z, z)
    i, j = near // len(z), near % len(z)
    found.view(-1)[near] = (z[i] - z[j]).square().sum(1)
    return found.sqrt_()


def squared_distance(
    x: Tensor,  # (..., n, d)
    z: Tensor,  # (..., k, d)
) -> Tensor:  # (..., n, k)
    """Return |x_i - z_j|^2 by one matrix product, at least 0.

    Points are centered first unless one is far away.

    Args:
        x: The first points, (..., n, d).
        z: The second points, (..., k, d).

    Examples:
        >>> squared_distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])).item()
        25.0
    """
    center = z.detach().median(-2, keepdim=True).values if z.shape[-2] else 0
    a, b = x - center, z - center
    own, other = (a**2).sum(-1)[..., :, None], (b**2).sum(-1)[..., None, :]
    if not math.isfinite(float(own.detach().sum() + other.detach().sum())):  # the product would overflow
        return ((x[..., :, None, :] - z[..., None, :, :]) ** 2).sum(-1)
    return (own + other - 2 * (a @ b.transpose(-1, -2))).clamp_min(0)
