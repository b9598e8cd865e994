"""Fourier and positive features: variances, the costs of couplings, and the required number of frequencies.

The chapter has, in this order: moments of pairs of points, by coupling; variances; the number of frequencies for an
error; and the error over the pairs of given rows.

Notation: omega_i = r_i u_i, z = |x - y| and v = |x + y| in lengthscales. C(t) = E cos(t u) and H(t) = E cosh(t u) for
one coordinate u of a uniform direction (`rfgp.special`). Fourier features estimate k(z). Positive features estimate
exp(-|x|^2 - |y|^2) times exp(v^2 / 2), the mean of exp(omega . (x + y)). Below, their moments are those of that mean,
without the first factor, which is the same for every coupling.

Every cross moment is that of two jointly drawn frequencies that are rotated at random as a whole or by blocks. For a
pair with lengths |omega_i +- omega_j| = s_+, s_- it is E[C(s_+ z) + C(s_- z)] / 2 for Fourier features. It is
E H(s_+ v) for positive features (Reid et al., 2024, Eqs. 14 to 18; Reid et al., 2023, Eq. 10).
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from rfgp import random
from rfgp.couplings import Coupling, DataAdapted, Frequencies, by_name, distances_between, for_features, name_of
from rfgp.couplings.energy.potential import check_distances
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier
from rfgp.linalg import finite_rows, real_array
from rfgp.messages import check_counts
from rfgp.special import direction_average, kummer, unit_quadrature
from rfgp.spectra import Gaussian, Spectrum

Array = NDArray[np.float64]
ROWS = 512
"""The number of frequencies in a block of rows of pairs."""


def rotated_moments(
    frequencies: Frequencies | torch.Tensor,  # (m, d)
    distances: Any,  # (k,)
    features: str = "fourier",
) -> tuple[Array, Array]:  # (k,), (k,)
    """Return the mean and the second moment of the kernel estimate over one random rotation of all frequencies.

    Args:
        frequencies: A draw with its weights, or a matrix (m, d).
        distances: z for Fourier features, v for positive ones, in lengthscales.
        features: "fourier" or "laplace".

    Returns:
        E k_hat (k,) and E k_hat^2 (k,). For positive features, without the first factor.

    Source: Reid et al. (2024), Eqs. 14 to 18, which hold for any directions. Time m^2 k.

    Raises:
        InvalidArgumentError: If the features are unknown.

    Examples:
        >>> from rfgp import couplings, theory
        >>> mean, second = theory.rotated_moments(couplings.by_name("energy").sample(32, 3, seed=0), [0.0])
        >>> mean.round(6).tolist(), second.round(6).tolist()
        ([1.0], [1.0])
    """
    draw = frequencies if isinstance(frequencies, Frequencies) else Frequencies(frequencies)
    omega, weights = draw.dense().double().numpy(), draw.weights.double().numpy()
    (m, d), z = omega.shape, np.atleast_1d(real_array("distances", distances))
    average = direction_average(features, d)
    squares = (omega**2).sum(1)
    mean = np.array([weights @ average(np.sqrt(squares) * value) for value in z]) / m
    second = np.zeros_like(mean)
    for start in range(0, m, ROWS):
        rows = slice(start, start + ROWS)
        both, twice = squares[rows, None] + squares, 2 * (omega[rows] @ omega.T)
        far, near = (np.sqrt(np.maximum(both + sign * twice, 0)) for sign in (1, -1))
        for k, value in enumerate(z):
            pairs = average(far * value)
            if features == "fourier":
                pairs = (pairs + average(near * value)) / 2
            second[k] += weights[rows] @ pairs @ weights
    return mean, second / m**2


def rotated_error(
    frequencies: Frequencies | torch.Tensor,  # (m, d)
    distances: Any,  # (k,)
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Array:  # (k,)
    """Return the mean squared error of the kernel estimate over one random rotation of all frequencies.

    Its average over draws is the variance of the coupling. It has far less noise than errors of kernel matrices.

    Args:
        frequencies: A draw, or a matrix (m, d).
        distances: z, or v for positive features, in lengthscales.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Returns:
        The mean squared error at each distance, (k,).

    Examples:
        >>> from rfgp import couplings, theory
        >>> draw = couplings.by_name("energy").sample(32, 3, seed=0)
        >>> bool(theory.rotated_error(draw, [1.0]) < theory.independent_variance([1.0], 32))
        True
    """
    mean, second = rotated_moments(frequencies, distances, features)
    exact = expected(np.atleast_1d(real_array("distances", distances)), spectrum or Gaussian(), features)
    return np.maximum(second - 2 * exact * mean + exact**2, 0.0)


# --- closed forms


def independent_variance(
    distances: Any,  # (k,)
    num_frequencies: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Array:  # (k,)
    """Return the variance of m independent frequencies.

    Fourier: ((1 + k(2 z)) / 2 - k(z)^2) / m, for the Gaussian kernel (1 - k^2)^2 / (2 m) (Yu et al. 2016, Lemma 1).
    Positive: (exp(2 v^2) - exp(v^2)) / m (Reid et al., 2023, Eqs. 11 and 19).

    Args:
        distances: z, or v for positive features.
        num_frequencies: m.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Examples:
        >>> from rfgp import theory
        >>> theory.independent_variance([0.0, 10.0], 50).round(6).tolist()
        [0.0, 0.01]
    """
    z = real_array("distances", distances)
    exact = expected(z, spectrum or Gaussian(), features)
    if features == "laplace":
        return np.asarray((np.exp(2 * z**2) - exact**2) / num_frequencies)
    double = expected(2 * z, spectrum or Gaussian(), features)
    return np.asarray(((1 + double) / 2 - exact**2) / num_frequencies)


def orthogonal_moment(
    distances: Any,  # (k,)
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Array:  # (k,)
    """Return the cross moment of two orthogonal frequencies with independent norms.

    For the Gaussian spectrum r^2 + r'^2 is chi-squared with 2 d degrees of freedom. The average over it is
    1F1(d; d/2; -z^2 / 2) for Fourier features and 1F1(d; d/2; v^2 / 2) for positive ones (Reid et al., 2023, Eq. 23;
    Eq. 25 there lacks the factor 1 / 2^k). For other spectra it is computed by quadrature.

    Args:
        distances: z, or v for positive features.
        num_dims: d, at least 2.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Examples:
        >>> from rfgp import theory
        >>> theory.orthogonal_moment([0.0, 1.0], 3).round(4).tolist()
        [1.0, 0.3188]
    """
    z = real_array("distances", distances)
    if spectrum is None or isinstance(spectrum, Gaussian):
        return kummer(num_dims, (z**2 if features == "laplace" else -(z**2)) / 2)
    u, weights = unit_quadrature()
    norms = spectrum.radial_quantile(torch.as_tensor(u), num_dims).numpy()
    lengths, average = np.hypot(norms[:, None], norms), direction_average(features, num_dims)
    return np.array([weights @ average(lengths * value) @ weights for value in np.atleast_1d(z)]).reshape(z.shape)


def orthogonality_gap(
    distances: Any, num_dims: int, *, spectrum: Spectrum | None = None, features: str = "fourier"
) -> Array:
    """Return the decrease of a cross moment if two frequencies are orthogonal, k^2 - E k_hat_i k_hat_j, (k,).

    The variance of m <= d orthogonal frequencies is that of independent ones minus (m - 1) / m times the gap. For
    Fourier features it can be negative at large z.

    Args:
        distances: z, or v for positive features, (k,).
        num_dims: d, at least 2.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Examples:
        >>> from rfgp import theory
        >>> bool(theory.orthogonality_gap([1.0], 3) > 0)
        True
    """
    z = real_array("distances", distances)
    exact = expected(z, spectrum or Gaussian(), features)
    return np.asarray(exact**2 - orthogonal_moment(z, num_dims, spectrum=spectrum, features=features))


def pairwise_moment(
    distances: Any,  # (k,)
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Array:  # (k,)
    """Return the cross moment of two orthogonal frequencies with negatively monotone norms.

    For Fourier features it is the average over u in (0, 1) of C(sqrt(q(u)^2 + q(1 - u)^2) z), with q the radial
    quantile. For positive features C is replaced by H. Source: Reid et al. (2024), Theorem 3.2.

    Args:
        distances: z, or v for positive features.
        num_dims: d, at least 2.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Examples:
        >>> from rfgp import theory
        >>> bool(theory.pairwise_moment([1.0], 3) < theory.orthogonal_moment([1.0], 3))
        True
    """
    z = real_array("distances", distances)
    u, weights = unit_quadrature()
    up, down = ((spectrum or Gaussian()).radial_quantile(torch.as_tensor(p), num_dims).numpy() for p in (u, 1 - u))
    lengths, average = np.hypot(up, down), direction_average(features, num_dims)
    return np.array([weights @ average(lengths * value) for value in np.atleast_1d(z)]).reshape(z.shape)


def simplex_moment(distances: Any, num_dims: int) -> Array:
    """Return the cross moment of two simplex frequencies of positive features, (k,) (Reid et al., 2023, Eq. 24).

    Let r^2 + r'^2 = S, chi-squared with 2 d degrees of freedom, and r^2 / S = B, Beta(d / 2, d / 2) and independent of
    S. The squared length |omega_i + omega_j|^2 is S (1 - 2 sqrt(B (1 - B)) / (d - 1)). The double series
    of the paper is computed as the mean over B of 1F1(d; d/2; (v^2 / 2) (1 - 2 sqrt(B (1 - B)) / (d - 1))).

    Args:
        distances: v, (k,).
        num_dims: d, at least 2.

    Examples:
        >>> from rfgp import theory
        >>> orthogonal = theory.orthogonal_moment([1.0], 3, features="laplace")
        >>> bool(theory.simplex_moment([1.0], 3) < orthogonal)
        True
    """
    v = real_array("distances", distances)
    u, weights = unit_quadrature()
    b = stats.beta(num_dims / 2, num_dims / 2).ppf(u)
    shrink = 1 - 2 * np.sqrt(b * (1 - b)) / (num_dims - 1)
    return np.array([weights @ kummer(num_dims, value**2 / 2 * shrink) for value in np.atleast_1d(v)]).reshape(v.shape)


def expected(z: Array, spectrum: Spectrum, features: str) -> Array:
    """Return the expected kernel estimate at distances.

    Args:
        z: The distances, (...).
        spectrum: The spectrum.
        features: "fourier" or "laplace".

    Returns:
        The kernel k(z), or exp(z^2 / 2) for positive features, (...).

    Examples:
        >>> expected(np.array([0.0]), Gaussian(), "fourier").tolist()
        [1.0]
    """
    if features == "laplace":
        return np.asarray(np.exp(z**2 / 2))
    return np.asarray(spectrum.kernel(torch.as_tensor(z)).numpy())


# --- Variances of couplings with a closed form ------------------------------------------------------------------------


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

    Blocks are independent of each other. Within a block, the pairs of frequencies have the cross moments above.

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
    z, m = real_array("distances", distances), num_frequencies
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
    table = real_array("distances", distances)
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
