"""Frequencies of a product of kernels on different columns, drawn jointly over the columns of all factors.

Let omega_i = (omega_1i, ..., omega_Fi), with one Haar rotation R_a for each factor's block of columns. The estimate of
k_1(x_1) ... k_F(x_F) is k_hat = sum_i w_i / m cos(sum_a omega_ai . x_a). Its moments are averages over the rotations.
Let |x_a| = z_a and C_a(t) = E cos(t u_1), with u uniform on the sphere of d_a dimensions. Then

    E k_hat^2 = sum_ij w_i w_j / m^2 [P_ij(+) + P_ij(-)] / 2,    P_ij(+-) = prod_a C_a(|omega_ai +- omega_aj| z_a).
    E k_hat   = sum_i  w_i / m prod_a C_a(r_ai z_a).

`rfgp.couplings.energy.potential` has the case F = 1. The mean depends on the norms r_ai alone. So k_hat is unbiased if
each frequency's norms are independent and follow their radial distributions, for any directions found from the norms.
Pairing norms by their energy (the mean squared kernel error up to a constant) would break this. Instead frequency i
takes the norms of the strata (rank_a(i) + S_a) mod m, with S_a uniform and independent. For each i these strata are
uniform and independent for any ranks. The ranks are those of Sobol points, which spreads the pairs of norms evenly.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp.couplings.coupling import sobol_points
from rfgp.descent import adam
from rfgp.special import sphere_cosine
from rfgp.spectra import Spectrum

Array = NDArray[Any]

DISTANCE_GRID = {2: (0.0, 0.6, 1.2, 2.0, 3.0), 3: (0.0, 0.9, 2.0)}
"""Distances of each factor in lengthscales, by the number of factors. All their combinations are used."""

FEW_DISTANCES = (0.0, 1.5)
"""Distances for four factors and more. At most two of them are not 0."""

_KNOTS = 4096
_RATE = 0.1
STEPS, FULL_STEPS = 30, 300
MAX_JOINT, BLOCK_SIZE = 512, 256
"""The largest number of frequencies that a quick draw optimizes jointly, and the block size of larger ones."""

QUICK_PAIRS = 2e7
"""The number of pairs in all steps of a quick draw, about 4 s on one core."""

_MIN_STEPS = 10
SWEEPS = 5
"""The number of sweeps over the signs of all frequencies."""


def distance_tuples(num_factors: int) -> Array:  # (K, F)
    """Return the distances at which the error is minimized, in lengthscales.

    They are combinations of distances of each factor.

    Args:
        num_factors: The number F of factors.

    Returns:
        The distances, (K, F).

    Examples:
        >>> distance_tuples(2).shape, distance_tuples(2)[0].tolist()
        ((24, 2), [0.0, 0.6])
    """
    grid = DISTANCE_GRID.get(num_factors, FEW_DISTANCES)
    most = num_factors if num_factors in DISTANCE_GRID else 2
    tuples = itertools.product(grid, repeat=num_factors)
    return np.array([z for z in tuples if 1 <= np.count_nonzero(z) <= most])


def distance_weights(
    spectra: Sequence[Spectrum],
    distances: Array,  # (K, F)
) -> Array:  # (K,)
    """Return weights of distances with sum 1, in proportion to inverse variances.

    The variances are those of the kernel estimate by one independent frequency.

    Args:
        spectra: The spectrum of each of F factors.
        distances: The distance of each factor in lengthscales, (K, F).

    Returns:
        The weights, (K,).

    Examples:
        >>> from rfgp import spectra
        >>> pair = [spectra.Gaussian(), spectra.Gaussian()]
        >>> round(float(distance_weights(pair, distance_tuples(2)).sum()), 6)
        1.0
    """
    mean, double = (
        np.prod([s.kernel(torch.as_tensor(c * z)).numpy() for s, z in zip(spectra, distances.T, strict=True)], axis=0)
        for c in (1, 2)
    )
    precisions = 1 / ((1 + double) / 2 - mean**2)
    normalized: Array = precisions / precisions.sum()
    return normalized


def paired_strata(m: int, num_factors: int, generator: torch.Generator) -> torch.Tensor:  # (F, m)
    """Return the stratum of the norm for each factor and frequency.

    For each frequency the strata are independent and uniform. See the docstring of the module.

    Args:
        m: The number of frequencies and of strata.
        num_factors: The number F of factors.
        generator: A CPU generator.

    Returns:
        A permutation of 0 to m - 1 for each factor, (F, m).

    Examples:
        >>> strata = paired_strata(4, 2, torch.Generator().manual_seed(0))
        >>> strata.shape, strata.sort(1).values[0].tolist()
        (torch.Size([2, 4]), [0, 1, 2, 3])
    """
    ranks = torch.as_tensor(sobol_points(m, num_factors, generator)).T.argsort(1).argsort(1)
    shifts = torch.randint(m, (num_factors, 1), generator=generator)
    return (ranks + shifts) % m


@dataclass(frozen=True, eq=False)
class ProductPotential:
    """The product potential as tables over s = |omega_ai +- omega_aj|, at equal steps.

    Attributes:
        values: (F, knots, K), C_a(s z_ka).
        slopes: (F, knots, K), their derivatives in s^2.
        per_length: (F,), steps per unit of s.
        distance_weights: (K,), the weights of the distances.

    Examples:
        >>> from rfgp import spectra
        >>> potential = ProductPotential.of((spectra.Gaussian(), spectra.Matern(1.5)), (1, 2), (8.0, 9.0))
        >>> potential.values.shape, float(potential.values[0, 0, 0])
        ((2, 4096, 24), 1.0)
    """

    values: Array
    slopes: Array
    per_length: Array
    distance_weights: Array

    @staticmethod
    @lru_cache(maxsize=16)
    def of(spectra: tuple[Spectrum, ...], dims: tuple[int, ...], table_ends: tuple[float, ...]) -> "ProductPotential":
        """Return the potential of factors, tabulated up to `table_ends`.

        Args:
            spectra: The spectrum of each factor.
            dims: The number of columns of each factor.
            table_ends: The largest |omega_ai +- omega_aj| of each factor in the tables.
        """
        distances = distance_tuples(len(dims))
        tables = [_tables(d, table_end, z) for d, table_end, z in zip(dims, table_ends, distances.T, strict=True)]
        values, slopes = (np.array(table, np.float32) for table in zip(*tables, strict=True))
        per_length = np.array([(_KNOTS - 1) / table_end for table_end in table_ends], np.float32)
        return ProductPotential(values, slopes, per_length, distance_weights(spectra, distances).astype(np.float32))

    def gradient(self, frequencies: Sequence[Array], weights: Array) -> list[Array]:
        """Return half the gradient of the second moment in the frequencies.

        Args:
            frequencies: (m, d_a) for each factor.
            weights: (m,).

        Returns:
            The gradient in the frequencies (m, d_a) of each factor.
        """
        from rfgp.couplings.energy.loops import repel_products

        omegas = [np.ascontiguousarray(omega, np.float32) for omega in frequencies]
        gram = np.array([omega @ omega.T for omega in omegas])
        squares = np.array([(omega**2).sum(1) for omega in omegas])
        push, w = np.zeros_like(squares), weights.astype(np.float32)
        repel_products(gram, squares, w, self.values, self.slopes, self.per_length, self.distance_weights, push)
        return [w[:, None] * (p[:, None] * omega + g @ omega) for p, g, omega in zip(push, gram, omegas, strict=True)]


def _tables(d: int, table_end: float, distances: Array) -> tuple[Array, Array]:
    """Return C(s z) and its derivative in s^2, (knots, K) each.

    C'(t) / (2 t) is -C(t) / (2 d) in d + 2 dimensions.
    """
    distinct, indices = np.unique(distances, return_inverse=True)
    t = np.linspace(0.0, table_end, _KNOTS)[:, None] * distinct
    return sphere_cosine(t, d)[:, indices], (-(distinct**2) / (2 * d) * sphere_cosine(t, d + 2))[:, indices]


def plan(m: int, num_factors: int, full: bool) -> tuple[int, int]:
    """Return the size of blocks and the number of steps for m frequencies.

    Args:
        m: The number of frequencies.
        num_factors: The number of factors.
        full: Whether there is no time limit.

    Examples:
        >>> plan(1, 2, full=False), plan(512, 2, full=True)
        ((1, 0), (512, 300))
    """
    if m == 1 or full:
        return m, FULL_STEPS if m > 1 else 0
    size = m if m <= MAX_JOINT else BLOCK_SIZE
    cost = num_factors**2 * len(distance_tuples(num_factors)) / (4 * len(distance_tuples(2)))
    steps = min(STEPS, int(QUICK_PAIRS / (m * size / 2 * cost)))
    return size, steps if steps >= _MIN_STEPS else 0


def with_optimized_directions(
    blocks: Sequence[Array],  # (m, d_a) each
    weights: Array,  # (m,)
    potential: ProductPotential,
    num_steps: int,
) -> list[Array]:  # (m, d_a) each
    """Return frequencies with the same norms and directions of lower energy.

    Args:
        blocks: The frequencies of each factor, (m, d_a).
        weights: The importance weights, (m,).
        potential: The product potential.
        num_steps: The number of steps of Adam. Their rates decay along a cosine.

    Returns:
        The frequencies of each factor, (m, d_a).

    Examples:
        >>> from rfgp import spectra
        >>> potential = ProductPotential.of((spectra.Gaussian(),) * 2, (2, 2), (8.0, 8.0))
        >>> blocks = [np.array([[1.0, 0.0], [0.9, 0.1]])] * 2
        >>> blocks = with_optimized_directions(blocks, np.ones(2), potential, 30)
        >>> np.linalg.norm(blocks[0], axis=1).round(3).tolist()  # the norms stay
        [1.0, 0.906]
    """
    norms = [np.minimum(np.linalg.norm(block, axis=1, keepdims=True), 1e9) for block in blocks]
    directions = [block / np.linalg.norm(block, axis=1, keepdims=True) for block in blocks]
    moments = [(0.0, 0.0) for _ in blocks]
    for step in range(num_steps):
        fraction = 0.5 * (1 + math.cos(math.pi * step / num_steps))
        gradients = potential.gradient([u * r for u, r in zip(directions, norms, strict=True)], weights)
        for a, (u, r) in enumerate(zip(directions, norms, strict=True)):
            gradient = gradients[a] * r
            gradient = gradient - (gradient * u).sum(1, keepdims=True) * u
            change, moments[a] = adam(gradient, moments[a], step + 1, _RATE * fraction)
            moved = u - change
            directions[a] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return [u * np.linalg.norm(block, axis=1, keepdims=True) for u, block in zip(directions, blocks, strict=True)]


def signed(
    omega: Array,  # (m, F)
    weights: Array,  # (m,)
    spectra: Sequence[Spectrum],
) -> Array:  # (m, F)
    """Flip signs of frequencies to lower the energy, for factors of one column each.

    The energy is the mean squared error of the kernel estimate over a grid of distances, up to a constant. Five sweeps
    of coordinate descent flip one sign at a time, and keep a flip if it lowers the energy. The first factor keeps its
    signs.

    Args:
        omega: The frequencies (m, F), one column for each factor. They are not changed.
        weights: The importance weights, (m,).
        spectra: The spectrum of each factor.

    Returns:
        The frequencies with new signs, (m, F).

    Examples:
        >>> from rfgp import spectra
        >>> pair = (spectra.Gaussian(), spectra.Gaussian())
        >>> signed(np.array([[1.0, 1.0], [1.0, 1.0]]), np.ones(2), pair).tolist()
        [[1.0, -1.0], [1.0, 1.0]]
    """
    m, num_factors = omega.shape
    points, weight = _signed_points(spectra)
    scaled = weights[:, None] * np.sqrt(weight)
    omega, total = omega.copy(), (scaled * np.cos(omega @ points.T)).sum(0)
    for _, i, a in itertools.product(range(SWEEPS), range(m), range(1, num_factors)):
        changed = omega[i] * np.where(np.arange(num_factors) == a, -1, 1)
        step = scaled[i] * (np.cos(points @ changed) - np.cos(points @ omega[i]))
        if step @ (2 * total + step) < 0:
            omega[i], total = changed, total + step
    return omega


def _signed_points(spectra: Sequence[Spectrum]) -> tuple[Array, Array]:
    """Return the distances with all signs but the first, (P, F), and their weights, (P,)."""
    distances = distance_tuples(len(spectra))
    points, weights = [], []
    for z, weight in zip(distances, distance_weights(spectra, distances), strict=True):
        columns = np.flatnonzero(z)[1:]
        patterns = list(itertools.product((1.0, -1.0), repeat=len(columns)))
        for pattern in patterns:
            point = z.copy()
            point[columns] *= pattern
            points.append(point)
            weights.append(weight / len(patterns))
    return np.array(points), np.array(weights)
