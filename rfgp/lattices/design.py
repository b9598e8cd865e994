"""Stationary terms on a lattice, evaluated by non-uniform fast Fourier transforms (finufft).

Source: Barnett, Magland and af Klinteberg (2019), A parallel nonuniform fast Fourier transform library based on an
"exponential of semicircle" kernel.

The periodic process is valid only within the box of the rows. Outside, f is conditioned on its values at a few points
U of the box that are as near as possible. Let W = k(x, U) k(U, U)^-1. Then

    f(x) = W f(U) + r(x),   cov(r(x), r(z)) = k(x, z) - W_x k(U, z).

Far from the rows it has the prior.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import input_derivatives, mixed_derivatives
from rfgp.lattices.lattice import Lattice, Modes, SpectralProduct, Values

# --- Non-uniform fast Fourier transforms by finufft, in one to three columns and double precision --------------------

Floats = NDArray[np.float64]
Complex = NDArray[np.complex128]

PRECISION = 1e-13
"""The relative error of a transform."""


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
        lengthscale = self.product.lengthscales(self._values(parameters))[number]
        total = self.product.measure_of(number).slope_variance / lengthscale.square()
        rates = self.modes.by_feature(2 * math.pi * self.modes.frequencies[:, number])
        missing = (total - (rates.square() * self._log_variances(parameters).exp()).sum()).clamp_min(0)
        if inputs is None:
            return missing
        out, rows = missing.repeat(len(inputs)), self.is_outside(inputs).nonzero()[:, 0]
        if len(rows):
            slopes = input_derivatives(lambda x: self.features(x, *parameters), inputs[rows], column)
            out[rows] = (total - slopes.square().sum(1)).clamp_min(0)
        return out

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
        points, outside = self.lattice.columns(x), self.is_outside(x).nonzero()[:, 0]
        out = self.modes.features(points)
        if len(outside):
            conditioned = self._conditioned(points[outside], parameters, self.modes.features)
            out = out.index_put((outside,), conditioned)
        return out * self.scale(*parameters)

    def is_outside(self, x: Tensor) -> Tensor:
        """Return whether rows (n, D) are outside the box, (n,).

        Args:
            x: The rows, (n, D).
        """
        return ~self.lattice.contains(self.lattice.columns(x).detach())

    def total(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of features and missing modes at rows (n, D).

        They are about 1 within the box, for a variance of 1.

        Args:
            x: The rows, (n, D).
            parameters: The hyperparameters in the order of `names`.
        """
        out, rows = self.variance(*parameters).expand(len(x)), self.is_outside(x).nonzero()[:, 0]
        return out.index_put((rows,), self.features(x[rows], *parameters).square().sum(1)) if len(rows) else out

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
        points, outside = self.lattice.columns(x), self.is_outside(x).nonzero()[:, 0]
        if not len(outside):
            return torch.zeros_like(functions(points))
        rows = points[outside]
        residual = functions(rows) - self._conditioned(rows, parameters, functions)
        return residual.new_zeros(len(points), residual.shape[1]).index_put((outside,), residual)

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

    def _conditioned(
        self, points: Tensor, parameters: tuple[Tensor, ...], functions: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return W phi(U) at points (n, d) outside the box, (n, F), for functions phi."""
        values = self._values(parameters)
        parts = []
        for chunk in torch.split(points, _CHUNK):
            near = _near(self.lattice, chunk.detach(), self.product.lengthscales(values).detach())  # (n, u, d)
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
"""The number of points outside the box whose conditional features are computed at once."""


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
