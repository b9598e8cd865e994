"""Plans of lattices: periods and bandwidths from the extent of the rows, kernels, number of rows and noise."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq

from rfgp.lattices.lattice import Floats, Integers, Lattice, Modes
from rfgp.lattices.spectral import SpectralProduct, Values
from rfgp.spectra import Gaussian, Matern, Spectrum

CUT_PER_TOLERANCE = 100.0
"""The n D_j / noise below which modes are omitted, in tolerances.

`benchmarks/races/low_dimensions.py` measures held-out densities at 0.1, the default."""
ROUGH = ((1.0, 100.0), (2.0, 100.0), (3.0, 30.0))
"""The correlation with the nearest image in tolerances, for Matern kernels up to each smoothness. Beyond, it is 1.

Rough kernels would otherwise need periods several times as long, and as many more modes in each column."""
SLACK = 1.25
"""The factor by which lengthscales may change before a new lattice is planned."""
_MAX_DISTANCE = 1e4
"""The largest distance in lengthscales in the search for a correlation."""
_MAX_CELLS = 4_000_000
"""The maximum number of points of a lattice that are ranked by their spectral density."""


@dataclass(frozen=True, eq=False)
class LatticePlan:
    """A lattice with its modes, and the size that the tolerance requires.

    Attributes:
        modes: The modes.
        num_wanted: The number of features that the tolerance requires. The modes may be fewer.
        residual_variance: The variance that the modes omit, for a prior variance of 1.
    """

    modes: Modes
    num_wanted: int
    residual_variance: float


def distance_at_correlation(spectrum: Spectrum, correlation: float) -> float:
    """Return the distance at which an isotropic kernel reaches a correlation.

    Args:
        spectrum: The spectrum of the kernel.
        correlation: The correlation, in (0, 1).

    Returns:
        The distance in lengthscales.

    Examples:
        >>> round(distance_at_correlation(Gaussian(), 1e-3), 3)
        3.717
    """

    def excess(r: float) -> float:
        value = float(spectrum.kernel(torch.tensor([r], dtype=torch.float64)))
        return math.log(max(value, 1e-300)) - math.log(correlation)

    return float(brentq(excess, 1e-9, _MAX_DISTANCE)) if excess(_MAX_DISTANCE) < 0 else _MAX_DISTANCE


def image_correlation(spectrum: Spectrum, tolerance: float) -> float:
    """Return the largest permitted correlation with the nearest periodic image.

    It applies within the box of the rows.

    Args:
        spectrum: The spectrum of the kernel.
        tolerance: The tolerance of the approximation.
    """
    if isinstance(spectrum, Gaussian):
        return tolerance
    nu = spectrum.nu if isinstance(spectrum, Matern) else 1.0
    return min(0.1, tolerance * next((factor for most, factor in ROUGH if nu <= most), 1.0))


def periods(product: SpectralProduct, values: Values, extent: Floats, tolerance: float) -> Floats:
    """Return the period (d,) of a product of kernels on a box of an extent (d,).

    Args:
        product: The product of kernels.
        values: The hyperparameters by path.
        extent: The extent of the box, (d,).
        tolerance: The tolerance of the approximation.
    """
    lengthscales = product.lengthscales(values).detach().numpy()
    measures = [product.measure_of(column) for column in range(product.num_columns)]
    distances = [distance_at_correlation(measure, image_correlation(measure, tolerance)) for measure in measures]
    return np.asarray(extent + np.array(distances) * lengthscales)


def bandwidths(product: SpectralProduct, values: Values, period: Floats, level: float) -> Integers:
    """Return the largest index (d,) on each axis with a relevant mode.

    D_j / variance of such a mode exceeds the level.

    Args:
        product: The product of kernels.
        values: The hyperparameters by path.
        period: The periods, (d,).
        level: The level of D_j / variance.
    """
    widths = []
    for column in range(product.num_columns):

        def below(index: float, column: int = column) -> bool:
            xi = torch.zeros(1, product.num_columns, dtype=torch.float64)
            xi[0, column] = index / period[column]
            return float(product.log_prob(xi, values)) - float(np.log(period).sum()) < math.log(level)

        low, high = 0, 1
        while not below(high) and high < 2**40:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if below(middle) else (middle, high)
        widths.append(max(low, 1))
    return np.array(widths, dtype=np.int64)


def plan_lattice(
    product: SpectralProduct,
    values: Values,
    column_indices: tuple[int, ...],
    box: tuple[Floats, Floats],
    level: float,
    tolerance: float,
    most: int,
) -> LatticePlan:
    """Return a lattice for a product of kernels on a box.

    Args:
        product: The product.
        values: The hyperparameters by path.
        column_indices: The indices of the columns of the product among those of the rows.
        box: The lower and the upper ends of the box, (d,) each.
        level: Modes with D_j / variance below it are omitted.
        tolerance: The correlation of a smooth kernel with its nearest image.
        most: The maximum number of features. The modes with the largest D_j are kept.
    """
    low, high = box
    wide, narrow = (_scaled(product, values, factor) for factor in (SLACK, 1 / SLACK))
    period = periods(product, wide, high - low, tolerance)
    half_widths = bandwidths(product, narrow, period, level)
    half_widths = _within(half_widths, most)
    lattice = Lattice(column_indices, low, high, 1 / period, half_widths)
    return active_modes(product, values, lattice, level, most)


def active_modes(product: SpectralProduct, values: Values, lattice: Lattice, level: float, most: int) -> LatticePlan:
    """Return the modes of a lattice for a product of kernels.

    Args:
        product: The product.
        values: The hyperparameters by path.
        lattice: The lattice.
        level: Modes with D_j / variance below it are omitted.
        most: The maximum number of features. The modes with the largest D_j are kept.
    """
    indices = half_space(lattice.half_widths)
    scale = np.log(lattice.spacing).sum()
    with torch.no_grad():
        frequencies = torch.as_tensor(indices * lattice.spacing)
        logs = product.log_prob(frequencies, values).numpy() + scale
        at_zero = float(product.log_prob(torch.zeros(1, lattice.num_columns, dtype=torch.float64), values)) + scale
    kept = np.flatnonzero(logs > math.log(level))
    num_wanted = 2 * len(kept) + 1
    if num_wanted > most:
        kept = np.sort(kept[np.argsort(-logs[kept], kind="stable")[: max(most - 1, 2) // 2]])
    total = float(product.periodic_variance(torch.as_tensor(1 / lattice.spacing), values))
    residual_variance = max(0.0, total - math.exp(at_zero) - 2 * float(np.exp(logs[kept]).sum()))
    return LatticePlan(Modes(lattice, indices[kept]), num_wanted, residual_variance)


def supports(product: SpectralProduct, values: Values, lattice: Lattice, level: float, tolerance: float) -> bool:
    """Return whether a lattice for other hyperparameters suffices for these.

    Args:
        product: The product of kernels.
        values: The hyperparameters by path.
        lattice: The lattice.
        level: Modes with D_j / variance below it are omitted.
        tolerance: The tolerance of the approximation.
    """
    period = 1 / lattice.spacing
    needed = periods(product, values, lattice.high - lattice.low, tolerance)
    widths = bandwidths(product, values, period, level)
    return bool((needed <= period * (1 + 1e-9)).all() and (widths <= lattice.half_widths).all())


def half_space(half_widths: Integers) -> Integers:
    """Return one of each pair of integer vectors j and -j, (p, d).

    They satisfy |j_c| <= K_c. 0 is left out.

    Args:
        half_widths: The largest integers K, (d,).
    """
    axes = [np.arange(-k, k + 1) for k in half_widths]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    return np.ascontiguousarray(grid[len(grid) // 2 + 1 :])


def _scaled(product: SpectralProduct, values: Values, factor: float) -> dict[str, torch.Tensor]:
    """Return the hyperparameters with lengthscales times a factor."""
    names = {f"{prefix}lengthscale" for prefix in product.prefixes}
    return {name: factor * value if name in names else value for name, value in values.items()}


def _within(half_widths: Integers, most: int) -> Integers:
    """Return half-widths of a lattice of limited size.

    It has at most `_MAX_CELLS` points, and at most 64 times the maximum number of features.
    """
    widths = half_widths.copy()
    cells = min(_MAX_CELLS, 64 * most)
    while np.prod(2.0 * widths + 1) > cells and (widths > 1).any():
        widths = np.maximum(1, (widths * 0.9).astype(np.int64))
    return widths
