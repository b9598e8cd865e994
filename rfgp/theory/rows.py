"""The error of kernel estimates over the pairs of given rows, and how much of it is a bias."""

import math
from typing import Any, NamedTuple

import torch

from rfgp import random
from rfgp.counts import check_counts
from rfgp.couplings import Coupling, by_name
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier
from rfgp.linalg import finite_rows
from rfgp.spectra import Gaussian, Spectrum

MOST_ROWS = 4096


class PairsError(NamedTuple):
    """The error of a kernel estimate over pairs of rows.

    Attributes:
        error: Root mean square over pairs and draws.
        bias: Root mean square over pairs of the mean over all draws that there are, estimated without a bias of its
            own; 0 where the estimate of its square is negative.
        bias_error: The standard error of bias^2, by leaving out each draw.
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
    """Return the error of the Fourier estimate over the pairs of some rows, each row with itself left out.

    With e_r the error of draw r of R at a pair, the mean over r != s of e_r e_s estimates the squared bias: it is the
    square of sum_r e_r without the squares of each, divided by R (R - 1). Of couplings whose frequencies have the
    spectral law it is zero but for its error; of `rfgp.couplings.DataAdapted` it is not.

    Args:
        coupling: A name, or a coupling.
        x: Rows divided by the lengthscale, (n, d); at most 4,096.
        num_frequencies: m.
        spectrum: None: Gaussian.
        num_draws: Draws R, at least 3.
        seed: Of the draws.

    Raises:
        InvalidArgumentError: too many rows, too few draws, or what a draw refuses.
    """
    rows, measure = finite_rows(x, least=2), spectrum or Gaussian()
    check_counts(num_frequencies=num_frequencies, num_draws=num_draws)
    if len(rows) > MOST_ROWS or num_draws < 3:
        raise InvalidArgumentError(
            f"At most {MOST_ROWS:,} rows and at least 3 draws, got {len(rows):,} and {num_draws}."
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
