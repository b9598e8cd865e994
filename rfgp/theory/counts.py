"""The error of kernel estimates over distances, and the number of frequencies that it requires."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from rfgp import random
from rfgp.couplings import Coupling, DataAdapted, distances_between, for_features, name_of
from rfgp.couplings.energy.potential import check_distances
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import read_numbers
from rfgp.spectra import Spectrum
from rfgp.theory.kernels import check_features, has_closed_form, rotated_error, variance

_LARGEST, LARGEST_DRAWN = 2**24, 2**12
"""The largest numbers of frequencies of a search, by a closed form and by draws."""


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

    If `variance` has a closed form, it is used. Otherwise the error is from a few draws, each averaged over all
    rotations. For couplings whose draws are not rotated at random (Sobol, Halton, structured) that is an average over
    directions.

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
    check_features(features, spectrum)
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
    if has_closed_form(name, features):
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

    m, largest = 2, _LARGEST if has_closed_form(_name(coupling), features) else LARGEST_DRAWN
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


def _name(coupling: str | Coupling) -> str:
    return coupling if isinstance(coupling, str) else name_of(coupling)
