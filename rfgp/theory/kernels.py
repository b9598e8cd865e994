"""Fourier and positive features: variances, the costs of couplings, and how many frequencies are needed.

Notation: omega_i = r_i u_i, z = |x - y| and v = |x + y| in lengthscales, C(t) = E cos(t u) and H(t) = E cosh(t u)
for one coordinate u of a uniform direction (`rfgp.special`). Fourier features estimate k(z). Positive features
estimate exp(-|x|^2 - |y|^2) times exp(v^2 / 2), the mean of exp(omega . (x + y)); below, their moments are those of
that mean, without the factor in front, which is the same for every coupling.

Every cross moment is one of two frequencies of an ensemble that is rotated at random as a whole or block by block.
For a pair with lengths |omega_i +- omega_j| = s_+, s_-, it is E[C(s_+ z) + C(s_- z)] / 2 for Fourier features and
E H(s_+ v) for positive ones (couplings paper, Eqs. 14 to 18; simplex paper, Eq. 10).
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from rfgp import random
from rfgp.couplings import Coupling, DataAdapted, Frequencies, distances_between, for_features, name_of
from rfgp.couplings.energy.potential import check_distances
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import read_numbers
from rfgp.special import direction_average, kummer, unit_quadrature
from rfgp.spectra import Gaussian, Spectrum

Array = NDArray[np.float64]

ROWS = 512
_CLOSED = ("iid", "orthogonal", "pairwise", "simplex")
_LARGEST, LARGEST_DRAWN = 2**24, 2**12


# --- any ensemble


def rotated_moments(
    frequencies: Frequencies | torch.Tensor,  # (m, d)
    distances: Any,  # (k,)
    features: str = "fourier",
) -> tuple[Array, Array]:  # (k,), (k,)
    """Return the mean and the second moment of the kernel estimate over one random rotation of all frequencies.

    Args:
        frequencies: A draw, its weights included, or a matrix (m, d).
        distances: z for Fourier features, v for positive ones, in lengthscales.
        features: "fourier" or "laplace".

    Returns:
        E k_hat (k,) and E k_hat^2 (k,); without the factor in front for positive features.

    Source: couplings paper, Eqs. 14 to 18, which hold for any directions. Time m^2 k.

    Raises:
        InvalidArgumentError: unknown features.
    """
    draw = frequencies if isinstance(frequencies, Frequencies) else Frequencies(frequencies)
    omega, weights = draw.dense().double().numpy(), draw.weights.double().numpy()
    (m, d), z = omega.shape, np.atleast_1d(read_numbers("distances", distances))
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

    Averaged over draws it is the variance of the coupling, with far less noise than errors of kernel matrices have.

    Args:
        frequencies: A draw, or a matrix (m, d).
        distances: z, or v for positive features, in lengthscales.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    mean, second = rotated_moments(frequencies, distances, features)
    exact = _expected(np.atleast_1d(read_numbers("distances", distances)), spectrum or Gaussian(), features)
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
    Positive: (exp(2 v^2) - exp(v^2)) / m (simplex paper, Eqs. 11 and 19).

    Args:
        distances: z, or v for positive features.
        num_frequencies: m.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    z = read_numbers("distances", distances)
    exact = _expected(z, spectrum or Gaussian(), features)
    if features == "laplace":
        return np.asarray((np.exp(2 * z**2) - exact**2) / num_frequencies)
    double = _expected(2 * z, spectrum or Gaussian(), features)
    return np.asarray(((1 + double) / 2 - exact**2) / num_frequencies)


def orthogonal_moment(
    distances: Any,  # (k,)
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Array:  # (k,)
    """Return the cross moment of two orthogonal frequencies with independent norms.

    For the Gaussian spectrum r^2 + r'^2 is chi-squared with 2 d degrees, and the average over it 1F1(d; d/2; -z^2 /
    2) for Fourier features, 1F1(d; d/2; v^2 / 2) for positive ones (simplex paper, Eq. 23; its Eq. 25
    lacks the factor 1 / 2^k). Other spectra by quadrature.

    Args:
        distances: z, or v for positive features.
        num_dims: d, at least 2.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    z = read_numbers("distances", distances)
    if spectrum is None or isinstance(spectrum, Gaussian):
        return kummer(num_dims, (z**2 if features == "laplace" else -(z**2)) / 2)
    u, weights = unit_quadrature()
    norms = spectrum.radial_quantile(torch.as_tensor(u), num_dims).numpy()
    lengths, average = np.hypot(norms[:, None], norms), direction_average(features, num_dims)
    return np.array([weights @ average(lengths * value) @ weights for value in np.atleast_1d(z)]).reshape(z.shape)


def orthogonality_gap(
    distances: Any, num_dims: int, *, spectrum: Spectrum | None = None, features: str = "fourier"
) -> Array:
    """Return by how much a cross moment falls where two frequencies are orthogonal, k^2 - E k_hat_i k_hat_j, (k,).

    The variance of m <= d orthogonal frequencies is that of independent ones less (m - 1) / m of it. For Fourier
    features it can be negative at large z.

    Args:
        distances: z, or v for positive features, (k,).
        num_dims: d, at least 2.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    z = read_numbers("distances", distances)
    exact = _expected(z, spectrum or Gaussian(), features)
    return np.asarray(exact**2 - orthogonal_moment(z, num_dims, spectrum=spectrum, features=features))


def pairwise_moment(
    distances: Any,  # (k,)
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Array:  # (k,)
    """Return the cross moment of two orthogonal frequencies with negatively monotone norms.

    Couplings paper, Theorem 3.2: the average over u in (0, 1) of C(sqrt(q(u)^2 + q(1 - u)^2) z), q the radial quantile,
    or of H for positive features.

    Args:
        distances: z, or v for positive features.
        num_dims: d, at least 2.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    z = read_numbers("distances", distances)
    u, weights = unit_quadrature()
    up, down = ((spectrum or Gaussian()).radial_quantile(torch.as_tensor(p), num_dims).numpy() for p in (u, 1 - u))
    lengths, average = np.hypot(up, down), direction_average(features, num_dims)
    return np.array([weights @ average(lengths * value) for value in np.atleast_1d(z)]).reshape(z.shape)


def simplex_moment(distances: Any, num_dims: int) -> Array:
    """Return the cross moment of two simplex frequencies of positive features, (k,) (simplex paper, Eq. 24).

    With r^2 + r'^2 = S chi-squared with 2 d degrees and r^2 / S = B independent of it, Beta(d / 2, d / 2), the
    squared length |omega_i + omega_j|^2 is S (1 - 2 sqrt(B (1 - B)) / (d - 1)); the paper's double series is the
    mean over B of 1F1(d; d/2; (v^2 / 2) (1 - 2 sqrt(B (1 - B)) / (d - 1))), which is computed here.

    Args:
        distances: v, (k,).
        num_dims: d, at least 2.
    """
    v = read_numbers("distances", distances)
    u, weights = unit_quadrature()
    b = stats.beta(num_dims / 2, num_dims / 2).ppf(u)
    shrink = 1 - 2 * np.sqrt(b * (1 - b)) / (num_dims - 1)
    return np.array([weights @ kummer(num_dims, value**2 / 2 * shrink) for value in np.atleast_1d(v)]).reshape(v.shape)


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

    Blocks are independent of each other; within a block of b frequencies the pairs have the cross moments above.

    Args:
        coupling: "iid", "orthogonal", "pairwise", or "simplex" (positive features only).
        distances: z, or v for positive features.
        num_frequencies: m.
        num_dims: d.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".

    Raises:
        InvalidArgumentError: a coupling without a closed form here.
    """
    _check(features, spectrum)
    z, m = read_numbers("distances", distances), num_frequencies
    if m < 1 or num_dims < 1:
        raise InvalidArgumentError(f"m and d must be positive, got {m} and {num_dims}.")
    if not _is_closed(coupling, features):
        raise InvalidArgumentError(
            f"There is no closed form for {coupling!r} with {features} features; see rotated_error."
        )
    independent = independent_variance(z, m, spectrum=spectrum, features=features)
    if coupling == "iid" or num_dims == 1:
        return independent
    options: dict[str, Any] = {"spectrum": spectrum, "features": features}
    blocks = [num_dims] * (m // num_dims) + ([m % num_dims] if m % num_dims else [])
    pairs = sum(b * (b - 1) for b in blocks)
    coupled = sum(2 * (b // 2) for b in blocks) if coupling == "pairwise" else 0
    square = _expected(z, spectrum or Gaussian(), features) ** 2
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
    """Return the root mean squared error of the kernel estimate over a law of distances.

    By the closed form where `variance` has one, otherwise from a few draws, each averaged over all rotations: for
    couplings whose draws are not rotated at random (Sobol, Halton, structured) that is an average over directions.

    Args:
        coupling: A name, or a coupling.
        distances: Distances, or distances and weights as `distances_between` returns them.
        num_frequencies: m.
        num_dims: d.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace" (then distances need their weights).
        num_draws: Draws, where there is no closed form.
        seed: Of these draws.
    """
    _check(features, spectrum)
    if isinstance(coupling, DataAdapted):
        raise InvalidArgumentError("Frequencies for given rows have no error at a distance; see pairs_error.")
    table = read_numbers("distances", distances)
    z, weights = check_distances(table if table.ndim == 2 else np.stack([table, np.ones_like(table)], -1)).T
    if features == "laplace":
        if z.max() > 18:  # the second moment exp(2 v^2) overflows
            raise InvalidArgumentError(f"Positive features fail at |x + y| = {z.max():.3g} lengthscales.")
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
            f"The error at distances up to {z.max():.3g} is not finite; are the inputs divided by the lengthscale?"
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
    """Return how many frequencies a root mean squared kernel error over the pairs of some inputs needs.

    The number doubles until the error is small enough; between the last two it is interpolated on logarithmic scales,
    and raised by a twentieth until the error there is small enough too.

    Args:
        x: Inputs divided by the lengthscale, (n, d); some hundreds represent a large table.
        tolerance: The error, in units of the outputscale, in (0, 1).
        coupling: A name, or a coupling.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".

    Raises:
        InvalidArgumentError: tolerance out of range, bad inputs, or more frequencies are needed than are tried: 2^24
            where there is a closed form, 2^12 elsewhere.
    """
    if not 0 < tolerance < 1:
        raise InvalidArgumentError(f"tolerance must lie between 0 and 1, got {tolerance!r}.")
    distances, d = distances_between(x, features, num_distances=30), int(np.shape(x)[1])

    @lru_cache
    def error(m: int) -> float:
        draws = 4 if m > 512 else 32
        return kernel_error(coupling, distances, m, d, spectrum=spectrum, features=features, num_draws=draws)

    m, largest = 2, _LARGEST if _is_closed(_name(coupling), features) else LARGEST_DRAWN
    while not error(m) <= tolerance:
        if m == largest:
            raise InvalidArgumentError(
                f"An error of {tolerance:g} needs more than {largest} frequencies; there it is {error(m):.2g}."
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
    """Refuse features that do not exist, or not for a spectrum."""
    direction_average(features, 1)
    if features == "laplace" and not isinstance(spectrum or Gaussian(), Gaussian):
        raise InvalidArgumentError(f"Positive features exist for the Gaussian spectrum only, not {spectrum!r}.")


def _name(coupling: str | Coupling) -> str:
    return coupling if isinstance(coupling, str) else name_of(coupling)


def _is_closed(coupling: str, features: str) -> bool:
    return coupling in _CLOSED and (coupling != "simplex" or features == "laplace")


def _expected(z: Array, spectrum: Spectrum, features: str) -> Array:
    if features == "laplace":
        return np.asarray(np.exp(z**2 / 2))
    return np.asarray(spectrum.kernel(torch.as_tensor(z)).numpy())
