"""Lattices of frequencies, features by their modes, plans, and terms by non-uniform fast Fourier transforms (finufft).

With frequencies j h for integer vectors j, a stationary process on a box is nearly

    f(x) = sum_j sqrt(D_j) w_j phi_j(x),   D_j = prod(h) S(j h).

S is the spectral density in cycles per unit. phi are the functions 1, sqrt(2) cos(2 pi j h . x) and sqrt(2) sin(...)
of half of the modes. The process of the sum is periodic. Its covariance is the sum of all images of k.

Source: Greengard, Rachh and Barnett (2022), Equispaced Fourier representations for efficient Gaussian process
regression from a billion data points, Eq. 3.

Source: Barnett, Magland and af Klinteberg (2019), A parallel nonuniform fast Fourier transform library based on an
"exponential of semicircle" kernel.

The periodic process is valid only within the box of the rows. Outside, f is conditioned on its values at a few points
U of the box that are as near as possible. Let W = k(x, U) k(U, U)^-1. Then

    f(x) = W f(U) + r(x),   cov(r(x), r(z)) = k(x, z) - W_x k(U, z).

Far from the rows it has the prior.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from rfgp.autograd import input_derivatives, mixed_derivatives
from rfgp.grams import rotated
from rfgp.spectra import Gaussian, Matern, Spectrum

# --- Lattices of frequencies, and features of points by their modes --------------------------------------------------

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lattice:
    """Frequencies k h with integers |k_c| <= K_c, for points in a box.

    Attributes:
        column_indices: The indices of the d columns among those of the rows.
        low: The lower ends of the box of all rows, (d,).
        high: The upper ends, (d,).
        spacing: The spacing h, (d,). The process has the period 1 / h_c in column c.
        half_widths: The largest integers K, (d,).

    Examples:
        >>> lattice = Lattice((0,), np.zeros(1), np.ones(1), spacing=np.array([0.5]), half_widths=np.array([2]))
        >>> lattice.shape, lattice.contains(torch.tensor([[0.5], [1.5]])).tolist()
        ((5,), [True, False])
    """

    column_indices: tuple[int, ...]
    low: Floats
    high: Floats
    spacing: Floats
    half_widths: Integers

    @property
    def num_columns(self) -> int:
        """The number d of columns."""
        return len(self.column_indices)

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers 2 K_c + 1 of integers k_c."""
        return tuple(int(2 * k + 1) for k in self.half_widths)

    @property
    def doubled_shape(self) -> tuple[int, ...]:
        """The numbers 4 K_c + 1 of differences of two integers k_c."""
        return tuple(int(4 * k + 1) for k in self.half_widths)

    @cached_property
    def center(self) -> Floats:
        """The middle of the box, (d,)."""
        return 0.5 * self.low + 0.5 * self.high

    def columns(self, x: Tensor) -> Tensor:
        """Return the columns of rows (n, D) that the lattice covers, (n, d), float64.

        Args:
            x: The rows, (n, D).
        """
        return x[:, list(self.column_indices)].double()

    def angles(self, points: Tensor) -> Floats:
        """Return 2 pi h (x - center) of points (n, d), in radians.

        Args:
            points: The points, (n, d).

        Returns:
            The angles, (n, d).
        """
        angles: Floats = 2 * np.pi * self.spacing * (points.detach().numpy() - self.center)
        return angles

    def contains(self, points: Tensor, slack: float = 1e-9) -> Tensor:
        """Return whether points (n, d) are in the box, up to a relative margin, (n,).

        Args:
            points: The points, (n, d).
            slack: The margin, relative to the extent of the box.
        """
        low, high = torch.as_tensor(self.low), torch.as_tensor(self.high)
        margin = slack * (high - low)
        return ((points >= low - margin) & (points <= high + margin)).all(1)

    def joined(self, other: "Lattice") -> "Lattice":
        """Return a lattice with the periods and the bandwidths of two lattices.

        Both are on the same columns.

        Args:
            other: The other lattice.
        """
        spacing = np.minimum(self.spacing, other.spacing)
        widths = [np.ceil(lattice.half_widths * lattice.spacing / spacing) for lattice in (self, other)]
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Lattice(self.column_indices, low, high, spacing, np.maximum(*widths).astype(np.int64))

    def same_as(self, other: "Lattice") -> bool:
        """Return whether another lattice has the same columns and frequencies.

        Args:
            other: The other lattice.
        """
        pairs = ((self.low, other.low), (self.high, other.high), (self.spacing, other.spacing))
        arrays = (*pairs, (self.half_widths, other.half_widths))
        return self.column_indices == other.column_indices and all(np.array_equal(a, b) for a, b in arrays)


@dataclass(frozen=True, eq=False)
class Modes:
    """The modes of a lattice as features: the constant, and one of each pair j and -j.

    Attributes:
        lattice: The lattice.
        indices: The integer vectors j without 0, (p, d).

    Examples:
        >>> lattice = Lattice((0,), np.zeros(1), np.ones(1), np.array([0.5]), np.array([2]))
        >>> Modes(lattice, np.array([[1], [2]])).features(torch.tensor([[0.5]]).double()).round(decimals=3)
        tensor([[1.0000, 1.4140, 1.4140, 0.0000, 0.0000]], dtype=torch.float64)
    """

    lattice: Lattice
    indices: Integers

    @property
    def num_features(self) -> int:
        """The number 2 p + 1 of features."""
        return 2 * len(self.indices) + 1

    @cached_property
    def with_zero(self) -> Integers:
        """The integer vectors j, 0 first, (p + 1, d)."""
        return np.concatenate([np.zeros((1, self.lattice.num_columns), dtype=np.int64), self.indices])

    @property
    def places(self) -> tuple[Integers, ...]:
        """The places of these vectors in an array of all integers of the lattice, (p + 1,) for each column."""
        return tuple((self.with_zero + self.lattice.half_widths).T)

    @cached_property
    def amplitudes(self) -> Floats:
        """The amplitudes c_j of the features: 1 of the constant, and sqrt(2) of the others, (p + 1,)."""
        return np.where(np.arange(len(self.indices) + 1) == 0, 1.0, math.sqrt(2))

    @cached_property
    def frequencies(self) -> Tensor:
        """The frequencies (p + 1, d) in cycles per unit, the constant first."""
        return torch.as_tensor(self.with_zero * self.lattice.spacing)

    def slopes(self, weights: Tensor, column: int) -> Tensor:
        """Return the weights (2 p + 1, m) of the derivative of sums of features in a column.

        The derivative of a cos(w x) + b sin(w x) is w b cos(w x) - w a sin(w x).

        Args:
            weights: The weights of the features, (2 p + 1, m).
            column: The index of the column among those of the rows.
        """
        if column not in self.lattice.column_indices:
            return torch.zeros_like(weights)
        rates = 2 * math.pi * self.frequencies[1:, self.lattice.column_indices.index(column), None]
        first, cosines, sines = torch.split(weights, [1, len(rates), len(rates)])
        return torch.cat([torch.zeros_like(first), rates * sines, -rates * cosines])

    def by_feature(self, values: Tensor) -> Tensor:
        """Return values (p + 1,) of the modes as values (2 p + 1,) of the features.

        Args:
            values: The values of the modes, the constant first, (p + 1,).
        """
        return torch.cat([values, values[1:]])

    def features(self, points: Tensor) -> Tensor:
        """Return 1, sqrt(2) cos and sqrt(2) sin of the modes at points.

        The features are float64 and differentiable.

        Args:
            points: The points, (n, d), float64.

        Returns:
            The features, (n, 2 p + 1).
        """
        center = torch.as_tensor(self.lattice.center)
        angles = (2 * math.pi) * ((points - center) @ self.frequencies[1:].mT)
        root = math.sqrt(2)
        return torch.cat([torch.ones_like(points[:, :1]), root * angles.cos(), root * angles.sin()], dim=1)


# --- Products of stationary kernels as spectral densities on a lattice -----------------------------------------------

Values = Mapping[str, Tensor]
IMAGES = 2
"""The number of periods on each side whose images add to the variance of the periodic process."""


@dataclass(frozen=True)
class SpectralProduct:
    """A product of stationary kernels on disjoint columns, of variance 1.

    Attributes:
        measures: The spectral measures of the kernels.
        positions: The positions of the columns of each kernel among the d columns of the product.
        prefixes: The prefixes of the hyperparameters of each kernel.

    Examples:
        >>> from rfgp import spectra
        >>> product = SpectralProduct((spectra.Gaussian(),), ((0,),), ("",))
        >>> values, x = {"lengthscale": torch.tensor(2.0)}, torch.tensor([[0.0], [2.0]]).double()
        >>> product.kernel(x[:1], x, values).round(decimals=4)
        tensor([[1.0000, 0.6065]], dtype=torch.float64)
    """

    measures: tuple[Spectrum, ...]
    positions: tuple[tuple[int, ...], ...]
    prefixes: tuple[str, ...]

    @property
    def num_columns(self) -> int:
        """The number d of columns."""
        return sum(map(len, self.positions))

    def lengthscales(self, values: Values) -> Tensor:
        """Return the lengthscale of each column, (d,), float64.

        Args:
            values: The hyperparameters by path.
        """
        out = [torch.zeros((), dtype=torch.float64)] * self.num_columns
        for columns, prefix in zip(self.positions, self.prefixes, strict=True):
            values_of_columns = values[f"{prefix}lengthscale"].double().reshape(-1).expand(len(columns))
            for column, lengthscale in zip(columns, values_of_columns.unbind(), strict=True):
                out[column] = lengthscale
        return torch.stack(out)

    def turned(self, points: Tensor, values: Values) -> Tensor:
        """Return points or frequencies (..., d) along the axes of the lengthscales.

        Args:
            points: The points, (..., d).
            values: The hyperparameters by path.
        """
        for columns, prefix in zip(self.positions, self.prefixes, strict=True):
            if (angle := values.get(f"{prefix}rotation")) is not None:
                index = torch.tensor(columns)
                points = points.index_copy(-1, index, rotated(points[..., index], angle))
        return points

    def extents(self, values: Values) -> tuple[Tensor, Tensor]:
        """Return the lengthscale along each column, and the half-width in it of the ellipsoid of lengthscales.

        They are (d,) each, and differ if lengthscales are rotated against the columns.

        Args:
            values: The hyperparameters by path.
        """
        lengthscales = self.lengthscales(values)
        axes = self.turned(torch.eye(self.num_columns, dtype=torch.float64), values)
        return 1 / (axes / lengthscales).norm(dim=1), (axes * lengthscales).norm(dim=1)

    def log_prob(self, frequencies: Tensor, values: Values) -> Tensor:
        """Return the log spectral density, (F,), float64.

        It is the log density of omega = 2 pi l xi under the measures, plus log((2 pi)^d prod(l)).

        Args:
            frequencies: The frequencies xi in cycles per unit, (F, d).
            values: The hyperparameters by path.
        """
        lengthscales = self.lengthscales(values)
        omega = 2 * math.pi * self.turned(frequencies, values) * lengthscales
        total = self.num_columns * math.log(2 * math.pi) + lengthscales.log().sum()
        pairs = zip(self.measures, self.positions, strict=True)
        return total + sum(measure.log_prob(omega[:, list(columns)]) for measure, columns in pairs)

    def kernel(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the kernel between points (..., n, d) and (..., m, d), (..., n, m).

        Args:
            a: Points, (..., n, d).
            b: Points, (..., m, d).
            values: The hyperparameters by path.
        """
        lengthscales = self.lengthscales(values)
        a, b = (self.turned(points, values) / lengthscales for points in (a, b))
        out = torch.ones((), dtype=torch.float64)
        for measure, columns in zip(self.measures, self.positions, strict=True):
            out = out * measure.kernel_between(a[..., list(columns)], b[..., list(columns)])
        return out

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw frequencies of the kernels for lengthscales of 1.

        Args:
            count: The number of frequencies.
            generator: A CPU generator.

        Returns:
            The frequencies in radians per unit, (count, d), float64.
        """
        out = torch.zeros(count, self.num_columns, dtype=torch.float64)
        for measure, columns in zip(self.measures, self.positions, strict=True):
            directions = torch.randn(count, len(columns), generator=generator, dtype=torch.float64)
            quantiles = torch.rand(count, 1, generator=generator, dtype=torch.float64)
            norms = directions.norm(dim=1, keepdim=True)
            out[:, list(columns)] = measure.radial_quantile(quantiles, len(columns)) * directions / norms
        return out

    def periodic_variance(self, periods: Tensor, values: Values) -> Tensor:
        """Return the variance of the periodic process, 0-d.

        It is the sum of k at the nearest images.

        Args:
            periods: The periods, (d,).
            values: The hyperparameters by path.
        """
        steps = torch.arange(-IMAGES, IMAGES + 1, dtype=torch.float64)
        shifts = torch.cartesian_prod(*(steps * period for period in periods)).reshape(-1, len(periods))
        return self.kernel(torch.zeros(1, len(periods), dtype=torch.float64), shifts, values).sum()

    def measure_of(self, column: int) -> Spectrum:
        """Return the measure of the factor that depends on a column.

        Args:
            column: The position of the column among the d columns.
        """
        return next(m for m, columns in zip(self.measures, self.positions, strict=True) if column in columns)


# --- Plans of lattices: periods and bandwidths ------------------------------------------------------------------------

CUT_PER_TOLERANCE = 100.0
"""The n D_j / noise below which modes are omitted, in tolerances.

`benchmarks/races/low_dimensions.py` measures held-out densities at 0.1, the default."""
ROUGH = ((1.0, 100.0), (2.0, 100.0), (3.0, 30.0))
"""The correlation with the nearest image in tolerances, for Matern kernels up to each smoothness. Beyond, it is 1.

Rough kernels would otherwise need periods several times as long, and as many more modes in each column."""
SLACK = 1.25
"""The factor by which lengthscales may change before a new lattice is planned, which takes another pass over rows."""
_MAX_DISTANCE = 1e4
"""The largest distance in lengthscales in the search for a correlation, for tails that decay slowly."""


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
    extents = product.extents(values)[1].detach().numpy()
    measures = [product.measure_of(column) for column in range(product.num_columns)]
    distances = [distance_at_correlation(measure, image_correlation(measure, tolerance)) for measure in measures]
    return np.asarray(extent + np.array(distances) * extents)


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
    inverse = product.turned(torch.eye(product.num_columns, dtype=torch.float64), values) / product.lengthscales(values)
    tangents = (inverse @ inverse.mT).detach()  # row j: the frequency of the largest density with a given component j
    for column in range(product.num_columns):

        def below(index: float, column: int = column) -> bool:
            xi = tangents[column : column + 1] * (index / period[column] / float(tangents[column, column]))
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

    It has at most 64 times the maximum number of features, all of which are ranked by their spectral density.
    """
    widths = half_widths.copy()
    while np.prod(2.0 * widths + 1) > 64 * most and (widths > 1).any():
        widths = np.maximum(1, (widths * 0.9).astype(np.int64))
    return widths


# --- Non-uniform fast Fourier transforms by finufft, in one to three columns and double precision --------------------

Complex = NDArray[np.complex128]

PRECISION = 1e-13
"""The relative error of a transform, near that of rounding: sums are subtracted from each other, as by `forget`."""


def sums_at_frequencies(angles: Floats, strengths: Complex, shape: Sequence[int]) -> Complex:
    """Return sum_n c_n exp(i k . a_n) for the integers |k_c| <= K_c.

    The result is (2 K_1 + 1, ..., 2 K_d + 1).

    Args:
        angles: The angles a, (n, d), in radians.
        strengths: The strengths c, (n,).
        shape: The shape of the result. Its sizes are odd.
    """
    return _transformed(f"nufft{len(shape)}d1", angles, strengths, tuple(shape), tuple(shape))


def series_at_points(angles: Floats, coefficients: Complex) -> Complex:
    """Return sum_k C_k exp(i k . a_n) at n points, (n,).

    Args:
        angles: The angles a, (n, d), in radians.
        coefficients: The coefficients C, (2 K_1 + 1, ..., 2 K_d + 1), from k = -K on.
    """
    return _transformed(f"nufft{coefficients.ndim}d2", angles, coefficients, (0,))


def _transformed(name: str, angles: Floats, given: Complex, empty: tuple[int, ...], *sizes: Any) -> Complex:
    """Return the result of a function of finufft, or zeros of the shape `empty` without points."""
    import finufft

    if not len(angles):
        return np.zeros(empty, dtype=np.complex128)
    columns = (np.ascontiguousarray(column) for column in angles.T)
    options = {"isign": 1, "eps": PRECISION, "nthreads": 1}
    result = getattr(finufft, name)(*columns, np.ascontiguousarray(given), *sizes, **options)
    return np.asarray(result, dtype=np.complex128)


# --- Stationary terms on a lattice ------------------------------------------------------------------------------------

NEAREST, FARTHEST = 0.01, 4.0
"""The distances of the second and of the last point of U from the first in a column, in lengthscales."""
NUM_NEAR = {1: 17, 2: 9, 3: 5}
"""The number of points of U in a column, by the number of columns. It is odd."""
JITTER = 1e-14
"""The first jitter of k(U, U). It is multiplied by 10 until the matrix has a Cholesky factor.

With 1e-9, standard deviations just outside the box are up to 1.5 times too wide for a noise of 1e-8."""


@dataclass(frozen=True, eq=False)
class LatticeDesign:
    """The features of a product of stationary kernels on a lattice.

    Attributes:
        modes: The modes of the lattice.
        product: The product of kernels.
        names: The paths of the hyperparameters, in the order of the arguments of the methods.

    Examples:
        >>> import numpy as np
        >>> from rfgp import spectra
        >>> from rfgp.lattices import SpectralProduct, plan_lattice
        >>> product = SpectralProduct((spectra.Gaussian(),), ((0,),), ("",))
        >>> values = {"lengthscale": torch.tensor(0.5)}
        >>> plan = plan_lattice(product, values, (0,), (np.zeros(1), np.ones(1)), 1e-10, 1e-10, 100)
        >>> design, x = LatticeDesign(plan.modes, product, ("lengthscale",)), torch.tensor([[0.0], [0.5]])
        >>> phi = design.features(x, values["lengthscale"])
        >>> (phi @ phi.mT).round(decimals=6)  # k(0) = 1 and k(0.5) = exp(-1 / 2)
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]], dtype=torch.float64)
    """

    modes: Modes
    product: SpectralProduct
    names: tuple[str, ...]

    @property
    def lattice(self) -> Lattice:
        """The lattice."""
        return self.modes.lattice

    @property
    def num_features(self) -> int:
        """The number F of features."""
        return self.modes.num_features

    def scale(self, *parameters: Tensor) -> Tensor:
        """Return the prior standard deviations sqrt(D_j) of the weights, (F,).

        The variance of the term is 1.
        """
        return (0.5 * self._log_variances(parameters)).exp()

    def residual_variance(self, *parameters: Tensor) -> Tensor:
        """Return the variance that the modes miss, 0-d, for a variance of 1.

        It is the same at all points.
        """
        return (self.variance(*parameters) - self._log_variances(parameters).exp().sum()).clamp_min(0)

    def variance(self, *parameters: Tensor) -> Tensor:
        """Return the variance of the periodic process, 0-d.

        It is 1 plus the correlations with all images.
        """
        periods = torch.as_tensor(1 / self.lattice.spacing)
        return self.product.periodic_variance(periods, self._values(parameters))

    def residual_derivative_variance(self, column: int, *parameters: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Return the variance that the modes miss of the derivative in a column, 0-d or (n,).

        The variance of the term is 1. Outside the box it includes the derivative of r.

        Args:
            column: The index of the column.
            parameters: The hyperparameters.
            inputs: The inputs of n points, (n, D). If None, a point in the box.

        Raises:
            InvalidArgumentError: If the kernel is not differentiable.
        """
        if column not in self.lattice.column_indices:
            return torch.zeros((), dtype=torch.float64)
        number = self.lattice.column_indices.index(column)
        lengthscale = self.product.extents(self._values(parameters))[0][number]
        total = self.product.measure_of(number).slope_variance / lengthscale.square()
        rates = self.modes.by_feature(2 * math.pi * self.modes.frequencies[:, number])
        missing = (total - (rates.square() * self._log_variances(parameters).exp()).sum()).clamp_min(0)
        if inputs is None:
            return missing

        def beyond(x: Tensor) -> Tensor:
            slopes = input_derivatives(lambda z: self.features(z, *parameters), x, column)
            return (total - slopes.square().sum(1)).clamp_min(0)

        return self._with_outside(inputs, missing.expand(len(inputs)), beyond)

    def residual_derivative_covariance(self, inputs: Tensor, column: int, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, n) of the derivative of r in a column, 0 for points in the box.

        The variance of the term is 1.

        Args:
            inputs: The inputs of n points, (n, D).
            column: The index of the column.
            parameters: The hyperparameters.
        """
        out, rows = torch.zeros(len(inputs), len(inputs), dtype=torch.float64), self.is_outside(inputs).nonzero()[:, 0]
        if column in self.lattice.column_indices and len(rows):
            points = inputs[rows].double()
            slopes = input_derivatives(lambda x: self.features(x, *parameters), points, column)
            exact = mixed_derivatives(lambda a, b: self.kernel(a, b, *parameters), points, points, column)
            out[rows[:, None], rows] = exact - slopes @ slopes.mT
        return out

    def fixed_features(self, x: Tensor) -> Tensor:
        """Return the features of rows in the box, without hyperparameters.

        Args:
            x: The rows, (n, D).

        Returns:
            The features, (n, F), float64.
        """
        return self.modes.features(self.lattice.columns(x))

    def features(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the features of rows times prior standard deviations, (n, F).

        Args:
            x: The rows, (n, D). Outside the box, f is conditioned on its values at near points of the box.
            parameters: The hyperparameters in the order of `names`.
        """
        inside = self.fixed_features(x)
        phi = self._with_outside(x, inside, lambda rows: self._conditioned(rows, parameters, self.modes.features))
        return phi * self.scale(*parameters)

    def is_outside(self, x: Tensor) -> Tensor:
        """Return whether rows (n, D) are outside the box, (n,).

        Args:
            x: The rows, (n, D).
        """
        return ~self.lattice.contains(self.lattice.columns(x).detach())

    def _with_outside(self, x: Tensor, inside: Tensor, outside: Callable[[Tensor], Tensor]) -> Tensor:
        """Return values (n, ...) of rows (n, D): those given for rows in the box, and a function of the others."""
        rows = self.is_outside(x).nonzero()[:, 0]
        return inside.index_put((rows,), outside(x[rows])) if len(rows) else inside

    def total(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of features and missing modes at rows (n, D).

        They are about 1 within the box, for a variance of 1.

        Args:
            x: The rows, (n, D).
            parameters: The hyperparameters in the order of `names`.
        """
        inside = self.variance(*parameters).expand(len(x))
        return self._with_outside(x, inside, lambda rows: self.features(rows, *parameters).square().sum(1))

    def between(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, m) of r between rows a (n, D) and b (m, D) outside the box.

        The variance of the term is 1.

        Args:
            a: The rows, (n, D).
            b: The rows, (m, D).
            parameters: The hyperparameters in the order of `names`.
        """
        explained = self.features(a, *parameters) @ self.features(b, *parameters).mT
        return self.kernel(a, b, *parameters) - explained

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of r at rows (n, D) outside the box, for a variance of 1.

        Args:
            a: The rows, (n, D).
            parameters: The hyperparameters in the order of `names`.
        """
        return (1 - self.features(a, *parameters).square().sum(1)).clamp_min(0)

    def extend(self, x: Tensor, functions: Callable[[Tensor], Tensor], *parameters: Tensor) -> Tensor:
        """Return g(x) - W g(U) for functions g, (n, F), at rows (n, D).

        It is 0 within the box. If g are draws of the kernel, the result is a draw of r.

        Args:
            x: The rows, (n, D).
            functions: Maps points (n, d) to the values of the functions, (n, F).
            parameters: The hyperparameters.
        """
        none = functions(self.lattice.columns(x[:0]))

        def residual(rows: Tensor) -> Tensor:
            return functions(self.lattice.columns(rows)) - self._conditioned(rows, parameters, functions)

        return self._with_outside(x, none.new_zeros(len(x), none.shape[1]), residual)

    def kernel(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the exact kernel (n, m) between rows a (n, D) and b (m, D).

        The variance of the term is 1.

        Args:
            a: The rows, (n, D).
            b: The rows, (m, D).
            parameters: The hyperparameters in the order of `names`.
        """
        return self.product.kernel(self.lattice.columns(a), self.lattice.columns(b), self._values(parameters))

    def _log_variances(self, parameters: tuple[Tensor, ...]) -> Tensor:
        """Return log D_j of the features, (F,)."""
        log_density = self.product.log_prob(self.modes.frequencies, self._values(parameters))
        return self.modes.by_feature(log_density + self._log_cell)

    @cached_property
    def _log_cell(self) -> float:
        """The logarithm of the volume of a cell of the lattice."""
        return sum(map(math.log, self.lattice.spacing))

    def _conditioned(self, x: Tensor, parameters: tuple[Tensor, ...], functions: Callable[[Tensor], Tensor]) -> Tensor:
        """Return W phi(U) at rows (n, D) outside the box, (n, F), for functions phi."""
        values = self._values(parameters)
        parts = []
        for chunk in torch.split(self.lattice.columns(x), _CHUNK):
            near = _near(self.lattice, chunk.detach(), self.product.extents(values)[0].detach())  # (n, u, d)
            inner = self.product.kernel(near, near, values)
            factor = _factors(inner)
            cross = self.product.kernel(chunk[:, None], near, values)
            weights = torch.cholesky_solve(cross.mT, factor).mT
            phi = functions(near.reshape(-1, near.shape[-1])).reshape(*near.shape[:2], -1)
            parts.append((weights @ phi)[:, 0])
        return torch.cat(parts)

    def _values(self, parameters: tuple[Tensor, ...]) -> Values:
        return dict(zip(self.names, parameters, strict=True))


_CHUNK = 64
"""The number of points outside the box whose conditional features are computed at once. In three columns each has
covariances of 125 points."""


def _near(lattice: Lattice, points: Tensor, lengthscales: Tensor) -> Tensor:
    """Return U (n, u, d) for points (n, d) outside the box.

    In a column in which the point is beyond the box, U are at distances from the end of the box that grow
    geometrically. In other columns they are on both sides of the point, clamped to the box.
    """
    low, high = torch.as_tensor(lattice.low), torch.as_tensor(lattice.high)
    base, columns = points.clamp(low, high), list[Tensor]()
    inward = _distances(NUM_NEAR[points.shape[1]])
    half = _distances(NUM_NEAR[points.shape[1]] // 2 + 1)
    around = torch.cat([-half[1:].flip(0), half])
    for column, lengthscale in enumerate(lengthscales):
        side = (points[:, column] - base[:, column]).sign()[:, None]
        offsets = torch.where(side == 0, around, -side * inward) * lengthscale
        columns.append((base[:, column, None] + offsets).clamp(low[column], high[column]))
    grids = [
        torch.stack(torch.meshgrid(*rows, indexing="ij"), -1).flatten(0, -2) for rows in zip(*columns, strict=True)
    ]
    return torch.stack(grids)


def _factors(matrices: Tensor) -> Tensor:
    """Return the Cholesky factors of correlation matrices (n, u, u).

    Each has the smallest jitter that is sufficient.
    """
    jitter = torch.full((len(matrices), 1), JITTER, dtype=torch.float64)
    while True:
        shifted = matrices + torch.diag_embed(jitter.expand(matrices.shape[:2]))
        factors: Tensor
        factors, failures = torch.linalg.cholesky_ex(shifted)
        if not bool(failures.any()):
            return factors
        jitter = torch.where(failures[:, None] > 0, 10 * jitter, jitter)


def _distances(count: int) -> Tensor:
    """Return 0 and distances that grow geometrically, (count,), in lengthscales."""
    steps = torch.linspace(math.log(NEAREST), math.log(FARTHEST), count - 1, dtype=torch.float64)
    return torch.cat([torch.zeros(1, dtype=torch.float64), steps.exp()])
