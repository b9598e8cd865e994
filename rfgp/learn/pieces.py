"""Differentiable functions for draws."""

import math
from typing import Any

import torch
from torch import Tensor

from rfgp.couplings.radial import PROPOSAL_SCALES, histogram_quantile
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


def proposed_norms(
    heights: Tensor,  # (K,), mean 1
    log_b: Tensor,  # ()
    u: Tensor,  # (k,)
    spectrum: Spectrum,
    num_dims: int,
) -> tuple[Tensor, Tensor]:  # (k,), (k,)
    """Return norms and their importance weights, differentiable in the heights and in log b.

    Args:
        heights: The heights of the proposal histogram, (K,), with mean 1.
        log_b: The logarithm of the proposal scale, 0-d. It is clamped to the range that is solved for.
        u: Uniforms, (k,).
        spectrum: The spectrum of the norms.
        num_dims: The number of dimensions.

    Examples:
        >>> from rfgp import spectra
        >>> u, log_b = torch.tensor([0.3, 0.6]).double(), torch.zeros(()).double()
        >>> proposed_norms(torch.ones(4).double(), log_b, u, spectra.Gaussian(), 2)[1].tolist()
        [1.0, 1.0]
    """
    inner, weights = histogram_quantile(heights, u)
    radius: Tensor = Radial.apply(to_normal(inner), spectrum, num_dims)
    inside = log_b.clamp(*(math.log(b) for b in PROPOSAL_SCALES))
    wide = radius * inside.exp()
    log_ratio = LogDensity.apply(wide, spectrum, num_dims) - LogDensity.apply(radius, spectrum, num_dims)
    return wide, weights * (inside + log_ratio).exp()


def proposal_scale_of(log_b: Tensor) -> float:
    """Return the proposal scale b of `proposed_norms`.

    Args:
        log_b: Its logarithm, 0-d.

    Examples:
        >>> proposal_scale_of(torch.tensor(9.0))
        1.6
    """
    return min(max(math.exp(float(log_b.detach())), PROPOSAL_SCALES[0]), PROPOSAL_SCALES[1])
