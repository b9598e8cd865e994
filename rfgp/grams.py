"""Exact kernels of points with themselves, in the fewest passes over the matrix."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.spectra import Spectrum

NEAR, FAR = 1e-4, 1e5
"""Distance, in the rows' deviation from their mean, below which pairs are summed one by one where the slope at 0 is
infinite; and lengthscales from the mean up to which products of matrices do not cancel otherwise."""


class _ScaledGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, spectrum: Spectrum, x: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        z = x / lengthscale
        kernel, slope = spectrum.gram_and_slope(z)
        kernel.mul_(variance)
        slope.fill_diagonal_(0)  # a row is at distance 0 from itself, to the last digit
        ctx.is_steep = spectrum.is_steep
        ctx.save_for_backward(z, kernel, slope, lengthscale, variance)
        return kernel

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor, Tensor]:
        z, kernel, slope, lengthscale, variance = ctx.saved_tensors
        grad = grads[0] if grads[0].is_contiguous() else grads[0].mT  # all else is symmetric, and laid out in rows
        pull = grad * slope
        apart = _of_near_pairs(z, slope, pull) if ctx.is_steep else 0.0
        z = z - z.mean(0)
        around = (pull.sum(0) + pull.sum(1))[:, None] * z.square() - 2 * z * (pull @ z)
        total = -2 * variance * (around.sum(0) + apart) / lengthscale
        in_variance = torch.vdot(grad.reshape(-1), kernel.reshape(-1)) / variance
        return None, None, total if lengthscale.ndim else total.sum(), in_variance


def _of_near_pairs(z: Tensor, slope: Tensor, pull: Tensor) -> Tensor:
    """Return sum_ij W_ij (z_i - z_j)^2 (d,) of pairs near each other, where -slope is large, and set W to 0 there."""
    spread = (z - z.mean(0)).square().sum(1).mean().sqrt()
    i, j = (slope < -0.5 / (NEAR * spread)).nonzero(as_tuple=True)
    weights = pull[i, j]
    pull[i, j] = 0
    return torch.stack([weights @ (column[i] - column[j]).square() for column in z.unbind(1)])


def scaled_gram(
    spectrum: Spectrum,
    x: Tensor,  # (n, d)
    lengthscale: Tensor,  # () or (d,)
    variance: Tensor,  # ()
) -> Tensor:  # (n, n)
    """Return v times the exact kernel of points x / lengthscale with themselves, differentiable once in these two.

    With z = x / l and W the gradient in the kernel times its derivative in |z_i - z_j|^2, that in l_c is

        -(2 / l_c) sum_ij W_ij (z_ic - z_jc)^2 = -(2 / l_c) (sum_i z_ic^2 (W 1 + W^T 1)_i - 2 sum_i z_ic (W z)_ic):

    one product (n, n) by (n, d), where autograd takes twenty passes over (n, n). Where the slope at 0 is infinite the
    difference would cancel for pairs that nearly coincide, which are summed by themselves. Spectra without a slope, and
    rows far out, are left to autograd.

    Args:
        spectrum: Of the kernel at unit scale.
        x: The points.
        lengthscale: Of each coordinate, or of all.
        variance: v > 0, the kernel at distance 0.
    """
    z = x / lengthscale
    is_far = not bool(((z - z.mean(0)).detach().abs() <= FAR).all())  # or no number
    if is_far or not (spectrum.has_slope and lengthscale.requires_grad):
        return variance * spectrum.kernel_between(z, z)
    out: Tensor = _ScaledGram.apply(spectrum, x, lengthscale, variance)
    return out
