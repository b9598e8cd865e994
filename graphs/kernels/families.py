"""Kernels with a learnable scale: diffusion, regularized Laplacian and Matern."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from graphs.kernels.kernel import GraphKernel, Resolvent, Vector, powers


@dataclass(frozen=True)
class Diffusion(GraphKernel):
    """The diffusion kernel exp(-lengthscale^2 / 2 L) (Kondor and Lafferty 2002).

    Attributes:
        lengthscale: The lengthscale, positive, roughly in steps on the graph.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_grid((3, 3))
        >>> graphs.kernels.Diffusion(lengthscale=1.0).exact(g).shape
        (9, 9)
    """

    lengthscale: float = 2.0

    @property
    def radius(self) -> float:
        """Infinite, since the exponential is entire."""
        return np.inf

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return exp(-lengthscale^2 / 2 lambda): (n,) -> (n,)."""
        return np.asarray(np.exp(-0.5 * self.lengthscale**2 * eigenvalues))

    @np.errstate(under="ignore")
    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return -lengthscale lambda k(lambda): (n,) -> (n, 1)."""
        return np.asarray(-self.lengthscale * eigenvalues * self.spectral(eigenvalues))[:, None]

    @np.errstate(under="ignore")
    def modulation(self, length: int) -> Vector:
        """Return the Poisson probabilities of mean lengthscale^2 / 4, (length + 1,)."""
        steps, mean = powers(length), self.lengthscale**2 / 4
        return np.asarray(np.exp(special.xlogy(steps, mean) - special.gammaln(steps + 1) - mean))

    @np.errstate(under="ignore")
    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d lengthscale, (length + 1, 1).

        It is lengthscale / 2 (f_{l-1} - f_l).
        """
        f = self.modulation(length)
        return (self.lengthscale / 2 * (np.concatenate(([0.0], f[:-1])) - f))[:, None]


@dataclass(frozen=True)
class RegularizedLaplacian(GraphKernel):
    """The kernel (I + sigma^2 L)^-order (Smola and Kondor 2003).

    Attributes:
        order: The smoothness, positive and not learned.
        sigma: The scale, positive.

    Examples:
        >>> import graphs
        >>> kernel = graphs.kernels.RegularizedLaplacian(order=1, sigma=1.0)
        >>> kernel.modulation(2).round(4).tolist()
        [0.7071, 0.1768, 0.0663]
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ("order",)
    order: float = 2
    sigma: float = 1.0

    @property
    def radius(self) -> float:
        """The radius 1 / c = (1 + sigma^2) / sigma^2."""
        return 1 + 1 / self.sigma**2

    def resolvent(self) -> Resolvent:
        """Return the order, the shift sigma^-2 and the amplitude sigma^(-2 order)."""
        order, sigma = float(self.order), self.sigma
        shift, amplitude = sigma**-2.0, sigma ** (-2.0 * order)
        return Resolvent(order, shift, amplitude, np.array([[-2 * shift / sigma], [-2 * order * amplitude / sigma]]))

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return (1 + sigma^2 lambda)^-order: (n,) -> (n,)."""
        return np.asarray((1 + self.sigma**2 * eigenvalues) ** -float(self.order))

    @np.errstate(under="ignore")
    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d sigma: (n,) -> (n, 1)."""
        inner = 1 + self.sigma**2 * eigenvalues
        return np.asarray(-2 * self.order * self.sigma * eigenvalues * inner ** (-self.order - 1.0))[:, None]

    @np.errstate(under="ignore")
    def modulation(self, length: int) -> Vector:
        """Return the negative binomial probabilities, (length + 1,)."""
        return np.asarray(stats.nbinom.pmf(powers(length), self.order / 2, 1 / (1 + self.sigma**2)))

    @np.errstate(under="ignore")
    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d sigma, (length + 1, 1).

        It is f_l (2 l / sigma - order sigma) / (1 + sigma^2).
        """
        slope = 2 * powers(length) / self.sigma - self.order * self.sigma
        return (self.modulation(length) * slope / (1 + self.sigma**2))[:, None]


@dataclass(frozen=True)
class Matern(GraphKernel):
    """The graph Matern kernel (2 nu / kappa^2 I + L)^-nu.

    Borovitskiy et al. (2021), Eq. 9.

    It is not normalized: k(0) is not 1.

    Attributes:
        nu: The smoothness, positive and not learned.
        kappa: The lengthscale, positive.

    Examples:
        >>> import graphs
        >>> kernel = graphs.kernels.Matern(nu=2, kappa=2.0)
        >>> precision = kernel.precision(graphs.Graph.from_grid((3, 3)))  # sparse, since nu is an integer
        >>> precision.matrix.shape
        (9, 9)
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ("nu",)
    nu: float = 1.5
    kappa: float = 1.0

    @property
    def _shift(self) -> float:
        return 2 * self.nu / self.kappa**2

    @property
    def radius(self) -> float:
        """The radius 1 + 2 nu / kappa^2."""
        return 1 + self._shift

    def resolvent(self) -> Resolvent:
        """Return the order nu, the shift 2 nu / kappa^2 and the amplitude 1."""
        return Resolvent(float(self.nu), self._shift, 1.0, np.array([[-2 * self._shift / self.kappa], [0.0]]))

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return (2 nu / kappa^2 + lambda)^-nu: (n,) -> (n,)."""
        return np.asarray((self._shift + eigenvalues) ** -float(self.nu))

    @np.errstate(under="ignore")
    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d kappa: (n,) -> (n, 1)."""
        slope = self.nu * (self._shift + eigenvalues) ** (-self.nu - 1.0)
        return np.asarray(slope * 2 * self._shift / self.kappa)[:, None]

    @np.errstate(under="ignore")
    def modulation(self, length: int) -> Vector:
        """Return the modulation (length + 1,).

        It consists of negative binomial probabilities times (2 nu / kappa^2)^(-nu / 2).
        """
        a = self._shift
        return np.asarray(a ** (-self.nu / 2) * stats.nbinom.pmf(powers(length), self.nu / 2, a / (1 + a)))

    @np.errstate(under="ignore")
    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d kappa, (length + 1, 1).

        It is f_l (nu / 2 + l) / (1 + a) 2 a / kappa with a = 2 nu / kappa^2.
        """
        slope = (self.nu / 2 + powers(length)) / (1 + self._shift) * 2 * self._shift / self.kappa
        return (self.modulation(length) * slope)[:, None]
