"""Spectra: the spectral measures of stationary kernels at unit scale, and the distances that the kernels read."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.messages import positive
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

# --- Distances between points, exactly 0 between equal points --------------------------------------------------------

MANY = 12
"""The number of coordinates above which distances use a matrix product. Below, differences cost no more."""
NEAR = 0.01
"""The distance below which a pair is computed from its differences, relative to that of the farthest point. The
relative error of squared distances is then at most eps / NEAR^2."""


def distance(
    x: Tensor,  # (..., n, d)
    z: Tensor,  # (..., k, d)
) -> Tensor:  # (..., n, k)
    """Return |x_i - z_j|, exactly 0 between equal points, with gradient 0 there.

    Args:
        x: The first points, (..., n, d).
        z: The second points, (..., k, d).

    Examples:
        >>> distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])).item()
        5.0
    """
    if any(torch.autograd.forward_ad.unpack_dual(points).tangent is not None for points in (x, z)):  # cdist has no jvp
        found: Tensor = torch.linalg.vector_norm(x[..., :, None, :] - z[..., None, :, :], dim=-1)
        return found
    return torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")


def self_distance(
    z: Tensor,  # (n, d)
) -> Tensor:  # (n, n)
    """Return the pairwise distances of points, exactly 0 between equal points.

    Gradients can be NaN, because distances are 0, so `z` should have none. Points of at least `MANY` coordinates in
    float64 use one matrix product, |a|^2 + |b|^2 - 2 a.b. Its rounding error is a few eps max |z|^2. Pairs closer than
    `NEAR` times the largest distance from the mean are therefore recomputed from their differences.

    Args:
        z: The points, (n, d).

    Examples:
        >>> self_distance(torch.tensor([[0.0], [2.0]])).tolist()
        [[0.0, 2.0], [2.0, 0.0]]
    """
    if z.shape[1] < MANY or z.dtype != torch.float64 or not bool(torch.isfinite(z).all()):
        return distance(z, z)
    z = z - z.mean(0)
    squares = z.square().sum(1)
    found = torch.addmm(squares, z, z.mT, alpha=-2).add_(squares[:, None])
    near = (found.view(-1) < NEAR**2 * squares.amax()).nonzero()[:, 0]
    if len(near) > len(z) ** 2 / MANY:
        return distance(z, z)
    i, j = near // len(z), near % len(z)
    found.view(-1)[near] = (z[i] - z[j]).square().sum(1)
    return found.sqrt_()


def squared_distance(
    x: Tensor,  # (..., n, d)
    z: Tensor,  # (..., k, d)
) -> Tensor:  # (..., n, k)
    """Return |x_i - z_j|^2 by one matrix product, at least 0.

    Points are centered first unless one is far away.

    Args:
        x: The first points, (..., n, d).
        z: The second points, (..., k, d).

    Examples:
        >>> squared_distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])).item()
        25.0
    """
    center = z.detach().median(-2, keepdim=True).values if z.shape[-2] else 0
    a, b = x - center, z - center
    own, other = (a**2).sum(-1)[..., :, None], (b**2).sum(-1)[..., None, :]
    if not math.isfinite(float(own.detach().sum() + other.detach().sum())):  # the product would overflow
        return ((x[..., :, None, :] - z[..., None, :, :]) ** 2).sum(-1)
    return (own + other - 2 * (a @ b.transpose(-1, -2))).clamp_min(0)


# --- The role of a spectrum: the spectral distribution of a stationary kernel at unit scale --------------------------


class Spectrum(ABC):
    """A spectral measure: the distribution of a frequency omega.

    kernel_between(x, z) = E cos(omega . (x - z)), which is 1 at coincident points. In an isotropic spectrum omega is a
    uniform direction times an independent norm, and the kernel is a function of the distance. A product has independent
    coordinates of one distribution. Spectra of one class with the same options are equal.

    Examples:
        >>> from rfgp import spectra
        >>> spectrum = spectra.Matern(1.5)
        >>> spectrum.is_isotropic, spectrum == spectra.Matern(1.5)
        (True, True)
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> torch.allclose(spectrum.kernel_between(x, x)[1:], spectrum.kernel(x.mT).flip(1))
        True
        >>> spectrum.radial_quantile(torch.tensor([0.5], dtype=torch.float64), 1).shape, spectrum.log_prob(x).shape
        (torch.Size([1]), torch.Size([2]))
        >>> spectrum.slope_variance, spectrum.has_slope, spectrum.is_quick
        (3.0, True, True)
    """

    is_isotropic: ClassVar[bool] = True

    @property
    def is_quick(self) -> bool:
        """Whether a value of the kernel takes no longer than a few exponentials."""
        return True

    @property
    def has_slope(self) -> bool:
        """Whether the derivative of the kernel in r^2 has a closed form."""
        return False

    @property
    def is_steep(self) -> bool:
        """Whether the derivative of the kernel in r^2 is infinite at 0."""
        return False

    @property
    def slope_variance(self) -> float:
        """The variance of one coordinate of omega.

        It is the variance of the derivative of a process.

        Raises:
            InvalidArgumentError: If it is infinite.
        """
        if not self.has_slope:
            raise self._refusal("has no derivative: its paths are rough")
        return 1.0

    @abstractmethod
    def kernel_between(
        self,
        x: Tensor,  # (..., n, d)
        z: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the exact kernel between points at unit lengthscale.

        Args:
            x: Points, (..., n, d).
            z: Points, (..., k, d).

        Returns:
            The kernel, (..., n, k).
        """

    def kernel(self, r: Tensor) -> Tensor:
        """Return the exact kernel at distances.

        Args:
            r: The distances, at least 0, (...), in lengthscales.

        Returns:
            The kernel, (...).

        Raises:
            InvalidArgumentError: If the spectrum is not isotropic.
        """
        raise self._refusal("has no kernel of the distance alone; use kernel_between")

    def gram_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the exact kernel of points and its derivative in r^2, detached.

        The derivative at coincident points may be set to 0, as it is multiplied by 0 there.

        Args:
            z: The points, (n, d).

        Returns:
            The kernel and its derivative, (n, n) each.

        Raises:
            InvalidArgumentError: If the spectrum is not isotropic.
        """
        with torch.enable_grad():
            r = distance(z.detach(), z.detach()).requires_grad_()
            kernel = self.kernel(r)
            (slope,) = torch.autograd.grad(kernel.sum(), r)
        return kernel.detach(), torch.where(r > 0, slope / (2 * r), 0.0).detach()

    def radial_quantile(self, u: Tensor, d: int) -> Tensor:
        """Return quantiles of |omega| in d dimensions.

        Args:
            u: Numbers in (0, 1), (...).
            d: The number of dimensions.

        Returns:
            The quantiles, (...), float64.

        Raises:
            InvalidArgumentError: If the spectrum is not isotropic.
        """
        raise self._refusal("has no radial distribution")

    def radial_log_density(self, r: Tensor, d: int) -> Tensor:
        """Return the log density of |omega| in d dimensions.

        Args:
            r: Positive numbers, (...).
            d: The number of dimensions.

        Returns:
            The log density, (...), float64.

        Raises:
            InvalidArgumentError: If the spectrum is not isotropic.
        """
        raise self._refusal("has no radial distribution")

    def log_prob(self, omega: Tensor) -> Tensor:
        """Return the log density of omega, differentiable once.

        Args:
            omega: Frequencies, (F, d).

        Returns:
            The log density, (F,), float64.

        Raises:
            InvalidArgumentError: If it has no closed form here, or is infinite at 0.
        """
        raise self._refusal("has no density in closed form")

    def coordinate_quantile(self, u: Tensor) -> Tensor:
        """Return quantiles of one coordinate of omega.

        Args:
            u: Numbers in (0, 1), (...).

        Returns:
            The quantiles, (...), float64.

        Raises:
            InvalidArgumentError: If the coordinates are not independent.
        """
        raise self._refusal("has coordinates that depend on each other")

    def _refusal(self, why: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self!r} {why}.")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"


# --- Spectra of Gaussian, Matern, rational quadratic and product kernels ---------------------------------------------


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

    def kernel_between(self, x: Tensor, z: Tensor) -> Tensor:
        """Return exp(-|x - z|^2 / 2), (..., n, k), smooth at coincident points."""
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

    def kernel_between(self, x: Tensor, z: Tensor) -> Tensor:
        """Return the exact kernel, (..., n, k). Its gradient at coincident points is set to 0."""
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

    def kernel_between(self, x: Tensor, z: Tensor) -> Tensor:
        """Return the exact kernel, (..., n, k), smooth at coincident points."""
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

    def kernel_between(self, x: Tensor, z: Tensor) -> Tensor:
        """Return exp(-|x - z|_1), (..., n, k)."""
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

    def kernel_between(self, x: Tensor, z: Tensor) -> Tensor:
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
