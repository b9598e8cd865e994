"""Spectra of Gaussian, Matern, rational quadratic and product kernels."""

import math
from typing import ClassVar

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor

from rfgp.counts import positive
from rfgp.distances import distance, self_distance, squared_distance
from rfgp.errors import InvalidArgumentError
from rfgp.special import (
    MAX_ORDER,
    elementwise,
    gamma_mixture_log_density,
    has_polynomial,
    matern,
    rational_quadratic_log_density,
    rational_quadratic_quantile,
    student_t_log_density,
)
from rfgp.spectra.spectrum import Spectrum


class Gaussian(Spectrum):
    """The standard normal measure of the kernel exp(-r^2 / 2).

    The norm is chi-distributed with d degrees of freedom.

    Examples:
        >>> from rfgp import spectra
        >>> spectra.Gaussian().kernel(torch.tensor([0.0, 1.0])).round(decimals=4)
        tensor([1.0000, 0.6065])
    """

    @property
    def has_slope(self) -> bool:
        """Always True. The derivative at 0 is -1/2."""
        return True

    def kernel(self, r: Tensor) -> Tensor:
        """Return exp(-r^2 / 2), (...) -> (...)."""
        return torch.exp(-0.5 * r**2)

    def kernel_between(
        self,
        x: Tensor,  # (..., n, d)
        z: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return exp(-|x - z|^2 / 2), smooth at coincident points."""
        return torch.exp(-0.5 * squared_distance(x, z))

    def gram_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return k and -k / 2, (n, d) -> (n, n), (n, n)."""
        z = z.detach() - z.detach().mean(0)
        half = 0.5 * z.square().sum(1)
        kernel = (z @ z.mT).sub_(half[:, None]).sub_(half).clamp_max_(0).exp_()  # one matrix, in place
        return kernel, -0.5 * kernel

    def radial_quantile(self, u: Tensor, d: int) -> Tensor:
        """Return the chi quantiles, (...) -> (...), float64."""
        return elementwise(lambda values: np.sqrt(2 * special.gammaincinv(d / 2, values)), u)

    def radial_log_density(self, r: Tensor, d: int) -> Tensor:
        """Return the log density of chi, (...) -> (...), float64."""
        return elementwise(lambda values: stats.chi.logpdf(values, d), r)

    def log_prob(self, omega: Tensor) -> Tensor:
        """Return -(d log(2 pi) + |omega|^2) / 2, (F, d) -> (F,), float64."""
        return -0.5 * (omega.shape[1] * math.log(2 * math.pi) + omega.double().square().sum(1))

    def coordinate_quantile(self, u: Tensor) -> Tensor:
        """Return the normal quantiles, (...) -> (...), float64."""
        return elementwise(special.ndtri, u)


class Matern(Spectrum):
    """The multivariate t measure with 2 nu degrees of freedom, of the Matern kernel.

    kernel(r) = 2^(1-nu) / Gamma(nu) t^nu K_nu(t) with t = sqrt(2 nu) r (Rasmussen and Williams 2006, Eq. 4.14).
    omega = g / sqrt(chi^2_(2 nu) / (2 nu)) with g normal. |omega|^2 / d is F-distributed with d and 2 nu degrees of
    freedom.

    Args:
        nu: The smoothness, in (0, 100], which is not a hyperparameter.

    Raises:
        InvalidArgumentError: If nu is out of range.

    Examples:
        >>> from rfgp import spectra
        >>> spectra.Matern(0.5).kernel(torch.tensor([0.0, 1.0])).round(decimals=4)
        tensor([1.0000, 0.3679])
    """

    def __init__(self, nu: float = 1.5) -> None:
        self.nu = positive("nu", nu)
        if self.nu > MAX_ORDER:
            raise InvalidArgumentError(f"nu must be at most {MAX_ORDER:g}, got {nu:g}. Use the Gaussian spectrum.")

    @property
    def is_quick(self) -> bool:
        """Whether nu is a half-integer.

        The kernel is then a polynomial times an exponential.
        """
        return has_polynomial(self.nu)

    @property
    def has_slope(self) -> bool:
        """Whether nu is above 1, or 1/2."""
        return self.nu > 1 or self.is_steep

    @property
    def is_steep(self) -> bool:
        """Whether nu is 1/2: the derivative in r^2 is -exp(-r) / (2 r)."""
        return self.nu == 0.5

    def kernel(self, r: Tensor) -> Tensor:
        """Return the Matern function, (...) -> (...)."""
        return matern(math.sqrt(2 * self.nu) * r, self.nu)

    def kernel_between(
        self,
        x: Tensor,  # (..., n, d)
        z: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the exact kernel. Its gradient at coincident points is set to 0."""
        return self.kernel(distance(x, z))

    def gram_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return k and its derivative in r^2, (n, d) -> (n, n), (n, n).

        With t = sqrt(2 nu) r, M_nu'(t) = -t M_(nu-1)(t) / (2 (nu - 1)). So the derivative of M_nu(t) in r^2 is
        -nu / (2 (nu - 1)) M_(nu-1)(t), finite at 0. For nu = 1/2 it is -exp(-r) / (2 r), and huge but finite at r = 0.
        """
        if not self.has_slope:
            return super().gram_and_slope(z)
        r = self_distance(z.detach())
        if self.is_steep:
            kernel = torch.exp(-r)
            return kernel, (kernel / r.clamp_min_(1e-100)).mul_(-0.5)  # times a distance of 0 it is 0, never NaN
        t = r.mul_(math.sqrt(2 * self.nu))
        if self.nu == 1.5:  # one exponential serves both
            slope = torch.exp(-t).mul_(-1.5)
            return t.add_(1).mul_(slope).mul_(-1 / 1.5), slope
        return matern(t, self.nu), -self.nu / (2 * (self.nu - 1)) * matern(t, self.nu - 1)

    @property
    def slope_variance(self) -> float:
        """The variance nu / (nu - 1) of one coordinate of omega.

        Raises:
            InvalidArgumentError: If nu is at most 1.
        """
        if self.nu <= 1:
            raise self._refusal("has no derivative. Use nu above 1")
        return self.nu / (self.nu - 1)

    def radial_quantile(self, u: Tensor, d: int) -> Tensor:
        """Return sqrt(d F^-1(u)), (...) -> (...), float64."""
        return elementwise(lambda values: np.sqrt(d * stats.f.ppf(values, d, 2 * self.nu)), u)

    def radial_log_density(self, r: Tensor, d: int) -> Tensor:
        """Return the log density of sqrt(d F), (...) -> (...), float64."""
        return elementwise(lambda values: stats.f.logpdf(values**2 / d, d, 2 * self.nu) + np.log(2 * values / d), r)

    def log_prob(self, omega: Tensor) -> Tensor:
        """Return the log density of the multivariate t, (F, d) -> (F,), float64."""
        return student_t_log_density(omega.double().square().sum(1), omega.shape[1], 2 * self.nu)


class RationalQuadratic(Spectrum):
    """The measure of the kernel (1 + r^2 / (2 alpha))^-alpha.

    It is a Gaussian whose variance is Gamma-distributed.

    Args:
        alpha: Between 0.02 and 10^4, which is not a hyperparameter. A small alpha mixes many scales.

    Raises:
        InvalidArgumentError: If alpha is out of range.

    Examples:
        >>> from rfgp import spectra
        >>> spectra.RationalQuadratic(1.0).kernel(torch.tensor([0.0, 2.0])).round(decimals=4)
        tensor([1.0000, 0.3333])
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = positive("alpha", alpha)
        if not 0.02 <= self.alpha <= 1e4:
            raise InvalidArgumentError(f"alpha must lie between 0.02 and 10^4, got {alpha:g}.")

    @property
    def has_slope(self) -> bool:
        """Always True. The derivative at 0 is -1/2."""
        return True

    def kernel(self, r: Tensor) -> Tensor:
        """Return (1 + r^2 / (2 alpha))^-alpha, (...) -> (...)."""
        return torch.exp(-self.alpha * torch.log1p(r**2 / (2 * self.alpha)))

    def kernel_between(
        self,
        x: Tensor,  # (..., n, d)
        z: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the exact kernel, smooth at coincident points."""
        return torch.exp(-self.alpha * torch.log1p(squared_distance(x, z) / (2 * self.alpha)))

    def gram_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return k and -k / (2 (1 + r^2 / (2 alpha))), (n, d) -> (n, n), (n, n)."""
        z = z.detach()
        more = 1 + squared_distance(z, z) / (2 * self.alpha)
        kernel = more.pow(-self.alpha)
        return kernel, -0.5 * kernel / more

    def radial_quantile(self, u: Tensor, d: int) -> Tensor:
        """Return the quantiles of sqrt(s chi^2_d), (...) -> (...), float64.

        s is distributed as Gamma(alpha, rate alpha).
        """
        return elementwise(lambda values: rational_quadratic_quantile(values, d, self.alpha), u)

    def radial_log_density(self, r: Tensor, d: int) -> Tensor:
        """Return the log density of |omega|, (...) -> (...), float64."""
        return elementwise(lambda values: rational_quadratic_log_density(values, d, self.alpha), r)

    def log_prob(self, omega: Tensor) -> Tensor:
        """Return the log density, (F, d) -> (F,), float64.

        Raises:
            InvalidArgumentError: If alpha is at most d / 2.
        """
        d = omega.shape[1]
        if self.alpha <= d / 2:
            raise self._refusal(f"has a spectral density that is infinite at 0 in {d} columns. Use alpha above {d / 2}")
        return gamma_mixture_log_density(omega.double().square().sum(1), d, self.alpha)


class ProductLaplace(Spectrum):
    """Independent standard Cauchy coordinates.

    They are the measure of the kernel exp(-sum_i |x_i - z_i|).

    Examples:
        >>> from rfgp import spectra
        >>> spectra.ProductLaplace().kernel_between(torch.zeros(1, 2), torch.ones(1, 2)).round(decimals=4)
        tensor([[0.1353]])
    """

    is_isotropic: ClassVar[bool] = False

    def kernel_between(
        self,
        x: Tensor,  # (..., n, d)
        z: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return exp(-|x - z|_1)."""
        return torch.exp(-torch.cdist(x, z, p=1.0))

    def coordinate_quantile(self, u: Tensor) -> Tensor:
        """Return the Cauchy quantiles, (...) -> (...), float64."""
        return elementwise(stats.cauchy.ppf, u)


class ProductCauchy(Spectrum):
    """Independent standard Laplace coordinates.

    They are the measure of the kernel prod_i 1 / (1 + (x_i - z_i)^2).

    Examples:
        >>> from rfgp import spectra
        >>> spectra.ProductCauchy().kernel_between(torch.zeros(1, 2), torch.ones(1, 2)).round(decimals=4)
        tensor([[0.2500]])
    """

    is_isotropic: ClassVar[bool] = False

    def kernel_between(
        self,
        x: Tensor,  # (..., n, d)
        z: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the product over coordinates, (..., n, k).

        It is computed one by one, without a temporary of size n k d.
        """
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for i in range(x.shape[-1]):
            total = total + torch.log1p((x[..., :, None, i] - z[..., None, :, i]) ** 2)
        return torch.exp(-total)

    def coordinate_quantile(self, u: Tensor) -> Tensor:
        """Return the Laplace quantiles, (...) -> (...), float64."""
        return elementwise(stats.laplace.ppf, u)
