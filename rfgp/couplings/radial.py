"""Radial distributions other than the spectral one, with importance weights, and norms that blocks share."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from rfgp import random
from rfgp.couplings.coupling import Coupling, Frequencies, WeightedDraws
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, finite_rows, real_array
from rfgp.spectra import Gaussian, Spectrum

# --- Radial distributions other than the spectral one, with importance weights ----------------------------------------

PROPOSAL_SCALES = (0.8, 1.6)
"""The range of b that is solved for or learned. Outside it the weights vary too much."""


class RadialDistribution:
    """The distribution q of the norms r of frequencies, and the weights p(r) / q(r).

    p is the radial distribution of the spectrum, with the distribution function F and the density f. The norms are
    r = b F^{-1}(u'), and u' in (0, 1) has the density h of a histogram with bins of equal width. Both factors of the
    weight are exact: w = f(r) b / f(r / b) for the scale b, and 1 / h(u') for the histogram.

    Args:
        spectrum: An isotropic spectrum.
        num_dims: d.
        proposal_scale: b > 0. The default 1 changes nothing.
        proposal_histogram: Positive heights of h in bins of equal width, normalized here. If None, h is uniform.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> radial = couplings.RadialDistribution(spectra.Gaussian(), 2, proposal_scale=1.2)
        >>> norms, weights = radial.draw((torch.arange(1000) + 0.5) / 1000)
        >>> round(float(weights.mean()), 2)
        1.0
    """

    def __init__(
        self,
        spectrum: Spectrum,
        num_dims: int,
        proposal_scale: float = 1.0,
        proposal_histogram: Sequence[float] | None = None,
    ) -> None:
        self.spectrum, self.num_dims, self.proposal_scale = spectrum, num_dims, float(proposal_scale)
        self._heights = None if proposal_histogram is None else check_histogram(proposal_histogram)

    def draw(
        self,
        u: Tensor,  # (k,)
    ) -> tuple[Tensor, Tensor]:  # (k,), (k,)
        """Return norms and weights at quantiles of q. The mean of the weights is 1.

        Args:
            u: Numbers in (0, 1), (k,).

        Returns:
            The norms and their importance weights, (k,) each, float64.
        """
        u = u.double()
        inner, weights = (u, torch.ones_like(u)) if self._heights is None else histogram_quantile(self._heights, u)
        return self.scale_proposal(self.spectrum.radial_quantile(inner, self.num_dims), weights)

    def scale_proposal(
        self,
        norms: Tensor,  # (k,)
        weights: Tensor,  # (k,)
    ) -> tuple[Tensor, Tensor]:  # (k,), (k,)
        """Multiply norms r by b, and weights w by f(b r) b / f(r).

        Args:
            norms: r, (k,).
            weights: w, (k,).

        Returns:
            The new norms and weights, (k,) each.

        Raises:
            InvalidArgumentError: If a weight is not finite.
        """
        if self.proposal_scale == 1.0:
            return norms, weights
        log_density, wide = self.spectrum.radial_log_density, self.proposal_scale * norms
        log_ratio = log_density(wide, self.num_dims) - log_density(norms, self.num_dims)
        changed = weights * self.proposal_scale * log_ratio.exp()
        if not bool(torch.isfinite(changed).all()):
            raise InvalidArgumentError(
                f"The weights must be finite, got others for {self.spectrum!r} in {self.num_dims} dimensions. "
                "Use proposal_scale=1."
            )
        return wide, changed


def check_histogram(heights: Sequence[float]) -> Tensor:
    """Return heights (K,) with mean 1.

    Args:
        heights: The heights of the bins.

    Raises:
        InvalidArgumentError: If they are not positive finite numbers within a factor of 10^4. Otherwise bins with large
            weights would hardly ever be drawn.

    Examples:
        >>> check_histogram([1.0, 3.0]).tolist()
        [0.5, 1.5]
    """
    values = torch.as_tensor(real_array("A radial histogram", heights))
    fine = values.ndim == 1 and len(values) > 0 and bool(torch.isfinite(values).all())
    if not fine or values.min() <= 0 or values.max() > 1e4 * values.min():
        raise InvalidArgumentError(
            "A radial histogram must be a list of positive numbers within a factor of 10^4, got another."
        )
    return values / values.mean()


def histogram_quantile(
    heights: Tensor,  # (K,), mean 1
    u: Tensor,  # (k,)
) -> tuple[Tensor, Tensor]:  # (k,), (k,)
    """Return the quantiles of a histogram on (0, 1), and 1 / density at them.

    They are differentiable in the heights.

    Args:
        heights: The heights of K bins of equal width, with mean 1.
        u: Numbers in (0, 1), (k,).

    Returns:
        The quantiles and the inverse densities, (k,) each.

    Examples:
        >>> heights, u = torch.tensor([0.5, 1.5]).double(), torch.tensor([0.125, 0.25]).double()
        >>> [values.tolist() for values in histogram_quantile(heights, u)]
        [[0.25, 0.5], [2.0, 0.6666666666666666]]
    """
    edges = torch.cat([torch.zeros(1, dtype=heights.dtype), heights.cumsum(0) / len(heights)])
    bins = (torch.searchsorted(edges.detach(), u, right=True) - 1).clamp(0, len(heights) - 1)
    inside = (u - edges[bins]) * len(heights) / heights[bins]
    value = ((bins + inside.clamp(0, 1)) / len(heights)).clamp(2.0**-53, 1 - 2.0**-53)
    return value, 1 / heights[bins]


def leverage_histogram(
    x: Any,  # (n, d)
    noise: float,
    *,
    spectrum: Spectrum | None = None,
    power: float = 1.0,
    num_bins: int = 32,
    num_samples: int = 128,
) -> list[float]:
    """Return a histogram of u = F(|omega|) in proportion to the ridge leverage.

    It is an argument of `Energy(proposal_histogram=...)`. F is the radial distribution function.
    The leverage of a frequency is tau(omega) = phi* (K + noise I)^-1 phi, with phi = exp(i x omega) at the rows x
    (Avron et al. 2017, Definition 1). Here it is averaged over directions, so that a random rotation does not change
    it.

    Args:
        x: Inputs divided by the lengthscale, (n, d). Some hundreds to a few thousand rows represent a table.
        noise: The noise variance divided by the outputscale (the signal variance), positive.
        spectrum: An isotropic spectrum. If None, the Gaussian one.
        power: The exponent a of tau^a: 1 for the posterior, 1/2 for the error of the kernel.
        num_bins: The number of bins, which are equally probable under the spectrum.
        num_samples: The number of frequencies, with evenly spaced norms, that are averaged in each bin.

    Returns:
        The heights of the bins, at least 1e-3 of the largest.

    Raises:
        InvalidArgumentError: If noise is not positive, or x is not a finite matrix.

    Examples:
        >>> import torch
        >>> from rfgp import couplings
        >>> heights = couplings.leverage_histogram(torch.linspace(-2, 2, 30)[:, None], noise=0.1, num_bins=4)
        >>> heights == sorted(heights)  # high frequencies have the largest leverage
        True
    """
    rows = finite_rows(x)
    if not 0 < noise < np.inf or not 0 <= power <= 4 or num_bins < 1 or num_samples < 1:
        raise InvalidArgumentError(
            f"noise must be positive, power between 0 and 4 and the counts positive, got {noise!r}, {power!r}, "
            f"{num_bins!r} and {num_samples!r}."
        )
    measure, d = spectrum or Gaussian(), rows.shape[1]
    kernel = measure.kernel_between(rows, rows)
    factor = cholesky(kernel + noise * torch.eye(len(rows), dtype=torch.float64), "The kernel matrix")
    count = num_bins * num_samples
    norms = measure.radial_quantile((torch.arange(count, dtype=torch.float64) + 0.5) / count, d)
    directions = haar_blocks(num_samples, d, random.generator(0, d))
    heights = []
    for lengths in norms.reshape(num_bins, num_samples):
        angles = rows @ (lengths[:, None] * directions).mT
        phi = torch.cat([angles.cos(), angles.sin()], dim=1)
        solved = torch.linalg.solve_triangular(factor, phi, upper=False)
        heights.append(float(solved.square().sum() / num_samples) ** power)
    floor = 1e-3 * max(heights)
    return [max(height, floor) for height in heights]


# --- Norms that are shared within blocks and correlated between them, for softmax attention ---------------------------


class SharedNorms(WeightedDraws, Coupling):
    """Orthogonal directions with one norm for each block, correlated over blocks.

    It extends `Monotone` by two degrees of freedom. A correlation between the blocks adds a common factor to all
    estimates, which cancels in softmax attention. The norms may have any distribution, with importance weights, which
    also contain such a factor. Both make kernel estimates worse. With a correlation, neither their variance nor the
    error of attention vanishes as m grows, so the best values depend on m. `rfgp.learn.learn_attention` finds them. Use
    "shared-norms-antithetic" for positive (Laplace) features.

    Args:
        correlation: The correlation of the Gaussian copula of the blocks' norms, from 0 (`Monotone`) to 1 (one norm).
        proposal_histogram: Heights of the density of F(|omega|) on (0, 1) in bins of equal width, with F the radial
            distribution function. If None, the density is uniform.
        proposal_scale: The factor of the norms, positive. The default is 1.

    Raises:
        InvalidArgumentError: If an option is out of range.

    Examples:
        >>> from rfgp import couplings
        >>> norms = couplings.SharedNorms(correlation=1.0).sample(6, 3, seed=0).dense().norm(dim=1)
        >>> bool(norms.std() < 1e-12)
        True
    """

    def __init__(
        self, correlation: float = 0.0, proposal_histogram: Sequence[float] | None = None, proposal_scale: float = 1.0
    ) -> None:
        if not 0 <= correlation <= 1:
            raise InvalidArgumentError(f"correlation must be between 0 and 1, got {correlation!r}.")
        if not 0 < proposal_scale < math.inf:
            raise InvalidArgumentError(f"proposal_scale must be positive and finite, got {proposal_scale!r}.")
        self.correlation = float(correlation)
        self.proposal_histogram = (
            None if proposal_histogram is None else tuple(float(h) for h in check_histogram(proposal_histogram))
        )
        self.proposal_scale = float(proposal_scale)

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        directions, u = haar_blocks(m, d, generator), self._uniforms(-(-m // d), generator)
        lengths, weights = RadialDistribution(spectrum, d, self.proposal_scale, self.proposal_histogram).draw(u)
        lengths, weights = (x.repeat_interleave(d)[:m] for x in (lengths, weights))
        order = torch.randperm(m, generator=generator)
        return Frequencies((directions * lengths[:, None])[order], weights[order])

    def _uniforms(self, blocks: int, generator: torch.Generator) -> Tensor:
        drawn = torch.randn(1 + blocks, generator=generator, dtype=torch.float64)
        normal = math.sqrt(self.correlation) * drawn[0] + math.sqrt(1 - self.correlation) * drawn[1:]
        return torch.as_tensor(special.ndtr(normal.numpy())).clamp(2.0**-53, 1 - 2.0**-53)

    def __repr__(self) -> str:
        options = (f"{name}={value}" for name, value in vars(self).items())
        return f"SharedNorms({', '.join(options)})"
