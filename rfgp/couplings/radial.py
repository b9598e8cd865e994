"""Radial distributions other than the spectral one, with importance weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.linalg import read_numbers
from rfgp.spectra import Spectrum

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
    values = torch.as_tensor(read_numbers("A radial histogram", heights))
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
