"""Distances between points, exactly 0 where these coincide."""

import math

import torch
from torch import Tensor


def distance(
    x: Tensor,  # (..., n, d)
    z: Tensor,  # (..., k, d)
) -> Tensor:  # (..., n, k)
    """Return |x_i - z_j|, exactly 0 at coincident points, where the gradient is taken as 0."""
    return torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")


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
