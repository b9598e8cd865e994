"""Stationary kernels: functions of the difference of two rows in lengthscales."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rfgp import spectra
from rfgp.grams import scaled_gram
from rfgp.kernels.arguments import bounds_in, read_positives
from rfgp.kernels.chains import ORDERS, ColumnField
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.role import LatentField, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.parameters import Hyperparameter
from rfgp.spectra import Spectrum

LENGTHSCALE_BOUNDS = (1e-3, 1e4)
"""The bounds of a lengthscale, in standard deviations of the column."""


@dataclass(frozen=True, eq=False, repr=False)
class Stationary(Kernel):
    """The stationary kernel k(x, z) = E cos(omega . (x - z) / lengthscale).

    The distribution of omega is a spectrum of `rfgp.spectra`.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        spectrum: The spectrum, or its name.
        ard: Whether each column has its own lengthscale. Otherwise the standardized columns share one. For one in the
            columns' own unit, such as that of a map, also set `standardize=False` in `rfgp.GP`.
        lengthscale: The starting lengthscale in the columns' units, one number or one for each column. If None, the
            data decide.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If there is no such spectrum, or a lengthscale is not positive.

    Examples:
        >>> from rfgp import kernels as k
        >>> kernel = k.Stationary("t", spectrum="product-laplace", lengthscale=2.0)
        >>> kernel.matrix({"t": [0.0, 2.0]}).shape
        torch.Size([2, 2])
    """

    spectrum: Any = "gaussian"
    ard: bool = field(default=True, kw_only=True)
    lengthscale: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "spectrum", spectra.by_name(self.spectrum))
        object.__setattr__(self, "lengthscale", read_positives("lengthscale", self.lengthscale))

    @property
    def measure(self) -> Spectrum:
        """The spectral measure at unit lengthscale."""
        measure: Spectrum = self.spectrum
        return measure

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting lengthscale, if it was given."""
        return {"lengthscale": self.lengthscale}

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c)."""
        lengthscale = values["lengthscale"].to(a.dtype)
        if a is b and not a.requires_grad:
            return scaled_gram(self.measure, a, lengthscale, torch.ones((), dtype=a.dtype, device=a.device))
        return self.measure.kernel_between(a / lengthscale, b / lengthscale)

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return ones (n,)."""
        return torch.ones(len(a), dtype=torch.float64, device=a.device)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the dict of the hyperparameter "lengthscale".

        It has one number for each of the c columns, or one number if `ard` is False. Each starts at sqrt(c) standard
        deviations of its column (of their mean, if `ard` is False), and is within `LENGTHSCALE_BOUNDS` of them. In
        standard deviations, sqrt(c) is the root mean square distance of a row from the mean. The root mean square
        distance of two rows is sqrt(2 c).

        Args:
            columns: The summary of the c columns, with their standard deviations.
        """
        spread, unit = columns.spread, columns.scale
        if not self.ard:
            spread = spread.mean()
        bounds = bounds_in(spread, LENGTHSCALE_BOUNDS)
        return {"lengthscale": Hyperparameter(math.sqrt(columns.num_columns) * spread, unit, bounds, saturates=True)}


@dataclass(frozen=True, eq=False, repr=False)
class RBF(Stationary):
    """The Gaussian (squared exponential) kernel exp(-r^2 / 2).

    r is the distance in lengthscales.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        ard: Whether each column has its own lengthscale. Otherwise the standardized columns share one. For one in the
            columns' own unit, such as that of a map, also set `standardize=False` in `rfgp.GP`.
        lengthscale: The starting lengthscale in the columns' units. If None, the data decide.
        name: The name of the term. If None, the class and the columns.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.RBF(lengthscale=1.0).matrix([[0.0], [2.0]])[0, 1].item()
        0.1353352832366127
    """

    spectrum: Any = field(default="gaussian", init=False)


@dataclass(frozen=True, eq=False, repr=False)
class Matern(Stationary):
    """The Matern kernel of smoothness nu.

    For nu = 1/2 it is exp(-r), for nu = 3/2 (1 + sqrt(3) r) exp(-sqrt(3) r), with r the distance in lengthscales.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        nu: The smoothness, positive.
        ard: Whether each column has its own lengthscale. Otherwise the standardized columns share one. For one in the
            columns' own unit, such as that of a map, also set `standardize=False` in `rfgp.GP`.
        lengthscale: The starting lengthscale in the columns' units. If None, the data decide.
        name: The name of the term. If None, the class and the columns.

    Examples:
        >>> from rfgp import kernels as k
        >>> round(k.Matern("t", nu=0.5, lengthscale=1.0).matrix({"t": [0.0, 2.0]})[0, 1].item(), 6)
        0.135335
    """

    spectrum: Any = field(default=None, init=False)
    nu: float = 1.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "spectrum", spectra.Matern(self.nu))
        super().__post_init__()

    def latent_field(self, columns: ColumnSummary) -> LatentField | None:
        """Return the process at distinct values if nu is 1/2, 3/2 or 5/2, otherwise None."""
        order = ORDERS.get(float(self.nu))
        return ColumnField(order) if order is not None and columns.num_columns == 1 else None


@dataclass(frozen=True, eq=False, repr=False)
class RationalQuadratic(Stationary):
    """The rational quadratic kernel (1 + r^2 / (2 alpha))^-alpha.

    r is the distance in lengthscales.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        alpha: The exponent, positive.
        ard: Whether each column has its own lengthscale. Otherwise the standardized columns share one. For one in the
            columns' own unit, such as that of a map, also set `standardize=False` in `rfgp.GP`.
        lengthscale: The starting lengthscale in the columns' units. If None, the data decide.
        name: The name of the term. If None, the class and the columns.

    Examples:
        >>> from rfgp import kernels as k
        >>> round(k.RationalQuadratic(lengthscale=1.0).matrix([[0.0], [2.0]])[0, 1].item(), 6)
        0.333333
    """

    spectrum: Any = field(default=None, init=False)
    alpha: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "spectrum", spectra.RationalQuadratic(self.alpha))
        super().__post_init__()
