"""The role of a spectrum: the spectral distribution of a stationary kernel at unit scale."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from rfgp.distances import distance
from rfgp.errors import InvalidArgumentError


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
