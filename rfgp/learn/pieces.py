"""Differentiable functions for draws."""

import math
from typing import Any

import torch
from torch import Tensor

from rfgp.spectra import Spectrum

_MAX_NORMAL = 8.0


def factor(
    theta: Tensor,  # (k, k)
) -> Tensor:  # (k, k)
    """Return the Cholesky factor (k, k) of a correlation matrix.

    Its rows (theta_i1, ..., theta_i(i-1), 1, 0, ...) are normalized.

    Args:
        theta: The parameters, (k, k). Only entries below the diagonal are used.

    Examples:
        >>> factor(torch.zeros(2, 2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    rows = theta.tril(-1) + torch.eye(len(theta), dtype=theta.dtype)
    factor: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return factor


def to_normal(
    u: Tensor,  # (k,)
) -> Tensor:  # (k,)
    """Return standard normal quantiles (k,) of uniforms.

    Args:
        u: The uniforms, (k,).

    Examples:
        >>> to_normal(torch.tensor([0.5])).tolist()
        [0.0]
    """
    normal: Tensor = torch.special.ndtri(u.clamp(1e-15, 1 - 1e-15))
    return normal


class Radial(torch.autograd.Function):
    """The norms r = F^{-1}(Phi(z)) of normals z, with dr/dz = phi(z) / f(r).

    Examples:
        >>> from rfgp import spectra
        >>> Radial.apply(torch.zeros(1).double(), spectra.Gaussian(), 2).round(decimals=4).tolist()  # the median
        [1.1774]
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, spectrum: Spectrum, num_dims: int) -> Tensor:
        """Return norms (k,) at normals (k,)."""
        inside = z.clamp(-_MAX_NORMAL, _MAX_NORMAL)
        r = spectrum.radial_quantile(torch.special.ndtr(inside).clamp(2.0**-53, 1 - 2.0**-53), num_dims)
        log_slope = -(inside**2) / 2 - 0.5 * math.log(2 * math.pi) - spectrum.radial_log_density(r, num_dims)
        ctx.save_for_backward(log_slope.exp())
        return r

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient (k,)."""
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None


class LogDensity(torch.autograd.Function):
    """The log density log f(r) of norms. Its derivative is by central differences in log r.

    Examples:
        >>> from rfgp import spectra
        >>> LogDensity.apply(torch.ones(1).double(), spectra.Gaussian(), 2).round(decimals=4).tolist()
        [-0.5]
    """

    @staticmethod
    def forward(ctx: Any, r: Tensor, spectrum: Spectrum, num_dims: int) -> Tensor:
        """Return log densities (k,) at norms (k,)."""
        step = 1e-5
        up, down = (spectrum.radial_log_density(r * math.exp(sign * step), num_dims) for sign in (1, -1))
        ctx.save_for_backward((up - down) / (2 * step * r))
        return spectrum.radial_log_density(r, num_dims)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient (k,)."""
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None
