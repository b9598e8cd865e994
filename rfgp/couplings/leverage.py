"""Frequencies in proportion to their ridge leverage on given data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rfgp import random
from rfgp.couplings.coupling import Coupling, WeightedDraws, uniform
from rfgp.couplings.frequencies import Frequencies
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.couplings.radial import RadialDistribution, check_histogram
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, finite_rows
from rfgp.spectra import Gaussian, Spectrum


class Leverage(WeightedDraws, Coupling):
    """Independent frequencies whose norms follow a ridge leverage.

    Source: Avron et al. (2017) and Li et al. (2019).

    Importance weights keep the kernel estimate unbiased.

    Args:
        proposal_histogram: A histogram from `leverage_histogram`. If None, it is flat, which is `IID`.

    Raises:
        InvalidArgumentError: If the proposal histogram is not positive.

    Examples:
        >>> import torch
        >>> from rfgp import couplings
        >>> x = torch.linspace(-2, 2, 30)[:, None]
        >>> couplings.Leverage(couplings.leverage_histogram(x, noise=0.1)).sample(8, 1, seed=0)
        Frequencies(m=8, d=1)
    """

    def __init__(self, proposal_histogram: Sequence[float] | None = None) -> None:
        self.proposal_histogram = None if proposal_histogram is None else check_histogram(proposal_histogram).tolist()

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        gaussian = torch.randn(m, d, generator=generator, dtype=torch.float64)
        norms, weights = RadialDistribution(spectrum, d, proposal_histogram=self.proposal_histogram).draw(
            uniform(m, generator)
        )
        return Frequencies(gaussian / gaussian.norm(dim=1, keepdim=True) * norms[:, None], weights)

    def __repr__(self) -> str:
        return f"Leverage({'' if self.proposal_histogram is None else 'proposal_histogram=...'})"


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

    It is an argument of `Leverage` and of `Energy(proposal_histogram=...)`. F is the radial distribution function.
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
