"""Fourier and positive features: variances, the costs of couplings, and the required number of frequencies.

The notation is that of `rfgp.theory.moments`. The last part has the error over the pairs of given rows, and the share
of the bias.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp import random
from rfgp.couplings import Coupling, DataAdapted, by_name, distances_between, for_features, name_of
from rfgp.couplings.energy.potential import check_distances
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier
from rfgp.linalg import finite_rows, read_numbers
from rfgp.messages import check_counts
from rfgp.special import direction_average
from rfgp.spectra import Gaussian, Spectrum
from rfgp.theory.moments import (
    expected,
    independent_variance,
    orthogonal_moment,
    pairwise_moment,
    rotated_error,
    simplex_moment,
)

Array = NDArray[np.float64]

_CLOSED = ("iid", "orthogonal", "pairwise", "simplex")
_LARGEST, MAX_DRAWN = 2**24, 2**12
"""The largest numbers of frequencies of a search, by a closed form and by draws."""


def variance(
    coupling: str,
    distances: Any,  # (k,)
    num_frequencies: int,
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Array:  # (k,)
    """Return the variance of the kernel estimate for a coupling with a closed form, for any m and d.

    Blocks are independent of each other. Within a block, the pairs of frequencies have the cross moments of
    `rfgp.theory.moments`.

    Args:
        coupling: "iid", "orthogonal", "pairwise", or "simplex" (positive features only).
        distances: z, or v for positive features.
        num_frequencies: m.
        num_dims: d.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Returns:
        The variance at each distance, (k,). For positive features, without the factor exp(-2 |x|^2 - 2 |y|^2).

    Raises:
        InvalidArgumentError: If the coupling has no closed form here.

    Examples:
        >>> from rfgp import theory
        >>> iid, pairwise = (theory.variance(name, [1.0], 32, 4) for name in ("iid", "pairwise"))
        >>> bool(pairwise < iid)
        True
    """
    _check(features, spectrum)
    z, m = read_numbers("distances", distances), num_frequencies
    if m < 1 or num_dims < 1:
        raise InvalidArgumentError(f"m and d must be positive, got {m} and {num_dims}.")
    if not _is_closed(coupling, features):
        raise InvalidArgumentError(
            f"coupling must be one of {', '.join(_CLOSED)}, got {coupling!r} with {features} features, which has no "
            "closed form. Use rotated_error."
        )
    independent = independent_variance(z, m, spectrum=spectrum, features=features)
    if coupling == "iid" or num_dims == 1:
        return independent
    options: dict[str, Any] = {"spectrum": spectrum, "features": features}
    blocks = [num_dims] * (m // num_dims) + ([m % num_dims] if m % num_dims else [])
    pairs = sum(b * (b - 1) for b in blocks)
    coupled = sum(2 * (b // 2) for b in blocks) if coupling == "pairwise" else 0
    square = expected(z, spectrum or Gaussian(), features) ** 2
    plain = simplex_moment(z, num_dims) if coupling == "simplex" else orthogonal_moment(z, num_dims, **options)
    change = (pairs - coupled) * (plain - square)
    if coupled:
        change = change + coupled * (pairwise_moment(z, num_dims, **options) - square)
    return np.asarray(independent + change / m**2)


# --- how many frequencies


def kernel_error(
    coupling: str | Coupling,
    distances: Any,  # (k,) or (k, 2)
    num_frequencies: int,
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
    num_draws: int = 32,
    seed: int = 0,
) -> float:
    """Return the root mean squared error of the kernel estimate over a distribution of distances.

    The closed form of `variance` is used if there is one. Otherwise the error is the mean over a few draws, each
    averaged over all rotations. For couplings whose draws are not rotated at random (Sobol, Halton, structured) that is
    an average over directions.

    Args:
        coupling: A name, or a coupling.
        distances: Distances, or distances and weights from `distances_between`.
        num_frequencies: m.
        num_dims: d.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace", which requires weights of the distances.
        num_draws: The number of draws if there is no closed form.
        seed: The seed of these draws.

    Raises:
        InvalidArgumentError: If the coupling is optimized for rows, or the error is not finite.

    Examples:
        >>> from rfgp import theory
        >>> iid, energy = (theory.kernel_error(name, [0.5, 1.0], 32, 2) for name in ("iid", "energy"))
        >>> energy < iid
        True
    """
    _check(features, spectrum)
    if isinstance(coupling, DataAdapted):
        raise InvalidArgumentError("coupling must not be optimized for rows, got DataAdapted. Use pairs_error.")
    table = read_numbers("distances", distances)
    z, weights = check_distances(table if table.ndim == 2 else np.stack([table, np.ones_like(table)], -1)).T
    if features == "laplace":
        if z.max() > 18:  # the second moment exp(2 v^2) overflows
            raise InvalidArgumentError(
                f"|x + y| must be at most 18 lengthscales for positive features, got {z.max():.3g}. Center the inputs."
            )
        weights = weights * np.exp(-(z**2))
    name = _name(coupling)
    if _is_closed(name, features):
        found = variance(name, z, num_frequencies, num_dims, spectrum=spectrum, features=features)
    else:
        chosen, generator = for_features(coupling, features), random.generator(seed, random.Role.FREQUENCIES)
        options: dict[str, Any] = {"spectrum": spectrum}
        draws = (chosen.sample(num_frequencies, num_dims, generator=generator, **options) for _ in range(num_draws))
        found = np.mean([rotated_error(draw, z, features=features, **options) for draw in draws], axis=0)
    total = float((weights * found).mean())
    if not math.isfinite(total):
        raise InvalidArgumentError(
            f"The error must be finite, got another at distances up to {z.max():.3g}. Divide the inputs by the "
            "lengthscale."
        )
    return math.sqrt(total)


def required_num_frequencies(
    x: Any,  # (n, d)
    tolerance: float,
    *,
    coupling: str | Coupling = "energy",
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> int:
    """Return the number of frequencies that achieves a root mean squared kernel error over the pairs of inputs.

    The number is doubled until the error is small enough. Between the last two numbers it is interpolated on
    logarithmic scales, and increased by a twentieth until the error is small enough.

    Args:
        x: Inputs divided by the lengthscale, (n, d). Some hundreds represent a large table.
        tolerance: The error, in units of the outputscale, in (0, 1).
        coupling: A name, or a coupling.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Returns:
        The number of frequencies, an even number.

    Raises:
        InvalidArgumentError: If the tolerance is out of range, inputs are invalid, or more than 2^24 frequencies are
            required (2^12 without a closed form).

    Examples:
        >>> from rfgp import theory
        >>> x = np.linspace(0, 2, 20)[:, None] * [1.0, 0.5]
        >>> energy, iid = (theory.required_num_frequencies(x, 0.05, coupling=name) for name in ("energy", "iid"))
        >>> energy < iid
        True
    """
    if not 0 < tolerance < 1:
        raise InvalidArgumentError(f"tolerance must lie between 0 and 1, got {tolerance!r}.")
    distances, d = distances_between(x, features, num_distances=30), int(np.shape(x)[1])

    @lru_cache
    def error(m: int) -> float:
        draws = 4 if m > 512 else 32
        return kernel_error(coupling, distances, m, d, spectrum=spectrum, features=features, num_draws=draws)

    m, largest = 2, _LARGEST if _is_closed(_name(coupling), features) else MAX_DRAWN
    while not error(m) <= tolerance:
        if m == largest:
            raise InvalidArgumentError(
                f"tolerance must be at least {error(m):.2g}, the error of {largest} frequencies, got {tolerance:g}."
            )
        m *= 2
    if m == 2:
        return m
    above, below = math.log(error(m // 2)), math.log(max(error(m), 1e-300))
    share = (above - math.log(tolerance)) / max(above - below, 1e-12)
    guess = 2 * math.ceil(m / 2 * 2**share / 2)
    while guess < m and error(guess) > tolerance:
        guess = min(m, 2 * math.ceil(1.05 * guess / 2))
    return min(m, guess)


def _check(features: str, spectrum: Spectrum | None) -> None:
    """Refuse unknown features, and positive features of another spectrum than the Gaussian one."""
    direction_average(features, 1)
    if features == "laplace" and not isinstance(spectrum or Gaussian(), Gaussian):
        raise InvalidArgumentError(f"The spectrum of positive features must be Gaussian, got {spectrum!r}.")


def _name(coupling: str | Coupling) -> str:
    return coupling if isinstance(coupling, str) else name_of(coupling)


def _is_closed(coupling: str, features: str) -> bool:
    return coupling in _CLOSED and (coupling != "simplex" or features == "laplace")


# --- The error over the pairs of given rows ---------------------------------------------------------------------------


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
