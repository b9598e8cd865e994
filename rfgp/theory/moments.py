"""Moments of Fourier and positive features of pairs of points, by coupling.

Notation: omega_i = r_i u_i, z = |x - y| and v = |x + y| in lengthscales. C(t) = E cos(t u) and H(t) = E cosh(t u) for
one coordinate u of a uniform direction (`rfgp.special`). Fourier features estimate k(z). Positive features estimate
exp(-|x|^2 - |y|^2) times exp(v^2 / 2), the mean of exp(omega . (x + y)). Below, their moments are those of that mean,
without the first factor, which is the same for every coupling.

Every cross moment is that of two jointly drawn frequencies that are rotated at random as a whole or by blocks. For a
pair with lengths |omega_i +- omega_j| = s_+, s_- it is E[C(s_+ z) + C(s_- z)] / 2 for Fourier features. It is
E H(s_+ v) for positive features (Reid et al., 2024, Eqs. 14 to 18; Reid et al., 2023, Eq. 10).
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from rfgp.couplings import Frequencies
from rfgp.linalg import real_array
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
