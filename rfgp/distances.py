"""Distances between points, exactly 0 where these coincide."""

import math

import torch
from torch import Tensor

MANY = 12
"""The number of coordinates from which distances are one matrix product. With fewer, differences cost no more."""
NEAR = 0.01
"""The distance, in those of the farthest point, below which a pair is computed from its differences: eps / NEAR^2 is
the relative error of squares."""


def distance(
    x: Tensor,  # (..., n, d)
    z: Tensor,  # (..., k, d)
) -> Tensor:  # (..., n, k)
    """Return |x_i - z_j|, exactly 0 at coincident points, where the gradient is taken as 0."""
    return torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")


def self_distance(
    z: Tensor,  # (n, d)
) -> Tensor:  # (n, n)
    """Return the distances of points with themselves, exactly 0 at coincident points, without a gradient.

    |a|^2 + |b|^2 - 2 a.b is one matrix product for many coordinates. Its rounding is up to a few eps max |z|^2, so that
    pairs nearer than `NEAR` of the farthest point from the mean are computed again from their differences.
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
    """Return |x_i - z_j|^2 through one matrix product, cut at 0; first centred where a far point does not matter."""
    center = z.detach().median(-2, keepdim=True).values if z.shape[-2] else 0
    a, b = x - center, z - center
    own, other = (a**2).sum(-1)[..., :, None], (b**2).sum(-1)[..., None, :]
    if not math.isfinite(float(own.detach().sum() + other.detach().sum())):  # so far away that the product is no number
        return ((x[..., :, None, :] - z[..., None, :, :]) ** 2).sum(-1)
    return (own + other - 2 * (a @ b.transpose(-1, -2))).clamp_min(0)
