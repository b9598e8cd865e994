"""The error of kernel estimates over the pairs of given rows, and the share of the bias."""

import math
from typing import Any, NamedTuple

import torch

from rfgp import random
from rfgp.couplings import Coupling, by_name
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier
from rfgp.linalg import finite_rows
from rfgp.messages import check_counts
from rfgp.spectra import Gaussian, Spectrum

MAX_ROWS = 4096
"""The largest number of rows, whose pairs are kept for each draw."""


class PairsError(NamedTuple):
    """The error of a kernel estimate over pairs of rows.

    Attributes:
        error: The root mean square over pairs and draws.
        bias: The root mean square over pairs of the expected error. Its square is estimated without bias, and 0 is
            returned if that estimate is negative.
        bias_error: The jackknife standard error of bias^2.

    Examples:
        >>> from rfgp import theory
        >>> theory.PairsError(0.1, 0.01, 0.001).error
        0.1
    """

    error: float
    bias: float
    bias_error: float


def pairs_error(
    coupling: str | Coupling,
    x: Any,  # (n, d)
    num_frequencies: int,
    *,
    spectrum: Spectrum | None = None,
    num_draws: int = 32,
    seed: int = 0,
) -> PairsError:
    """Return the error of the Fourier estimate over the pairs of distinct rows.

    With e_r the error of draw r of R at a pair, the mean over r != s of e_r e_s estimates the squared bias. It equals
    ((sum_r e_r)^2 - sum_r e_r^2) / (R (R - 1)). If frequencies have the spectral measure, the estimated bias is zero up
    to its standard error. The bias of `rfgp.couplings.DataAdapted` is not zero.

    Args:
        coupling: A name, or a coupling.
        x: Rows divided by the lengthscale, (n, d), at most 4,096.
        num_frequencies: m.
        spectrum: The spectrum. If None, the Gaussian one.
        num_draws: The number of draws R, at least 3.
        seed: The seed of the draws.

    Returns:
        The error, the bias, and the standard error of the squared bias.

    Raises:
        InvalidArgumentError: If there are too many rows or too few draws, or for the reasons of `Coupling.sample`.

    Examples:
        >>> from rfgp import theory
        >>> found = theory.pairs_error("iid", [[0.0], [0.5], [1.0]], 32)
        >>> 0 <= found.bias < found.error < 0.2
        True
    """
    rows, measure = finite_rows(x, least=2), spectrum or Gaussian()
    check_counts(num_frequencies=num_frequencies, num_draws=num_draws)
    if len(rows) > MAX_ROWS or num_draws < 3:
        raise InvalidArgumentError(
            f"x must have at most {MAX_ROWS:,} rows, and num_draws be at least 3, got {len(rows):,} and {num_draws}."
        )
    chosen, generator = by_name(coupling), random.generator(seed, random.Role.FREQUENCIES)
    places = torch.triu_indices(len(rows), len(rows), offset=1)
    kernel = measure.kernel_between(rows, rows)[*places]
    every = torch.empty(num_draws, len(kernel), dtype=torch.float64)
    for number in range(num_draws):
        phi = Fourier(chosen.sample(num_frequencies, rows.shape[1], spectrum=measure, generator=generator))(rows)
        every[number] = (phi @ phi.mT)[*places] - kernel
    products = every @ every.mT / every.shape[1]
    own, total = products.diagonal(), products.sum()
    square = float((total - own.sum()) / (num_draws * (num_draws - 1)))
    without = total - 2 * products.sum(1) + own - (own.sum() - own)  # of all but one, each with the others
    left = without / ((num_draws - 1) * (num_draws - 2))
    spread = math.sqrt((num_draws - 1) / num_draws * float((left - left.mean()).square().sum()))
    return PairsError(math.sqrt(float(own.mean())), math.sqrt(max(square, 0.0)), spread)
