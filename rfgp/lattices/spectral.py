"""Products of stationary kernels as spectral densities on a lattice."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.spectra import Spectrum

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

    def log_prob(self, frequencies: Tensor, values: Values) -> Tensor:
        """Return the log spectral density, (F,), float64.

        It is the log density of omega = 2 pi l xi under the measures, plus log((2 pi)^d prod(l)).

        Args:
            frequencies: The frequencies xi in cycles per unit, (F, d).
            values: The hyperparameters by path.
        """
        lengthscales = self.lengthscales(values)
        omega = 2 * math.pi * frequencies * lengthscales
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
        a, b = a / lengthscales, b / lengthscales
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
