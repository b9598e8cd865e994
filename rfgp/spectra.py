"""Spectra: the spectral measures of stationary kernels at unit scale."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from rfgp.registry import Registry


class Spectrum(ABC):
    """An isotropic spectral measure: a uniform direction times a norm with the radial law.

    Laws: kernel(0) = 1, and kernel(|x - z|) = E[cos(omega . (x - z))] for omega of this law.
    """

    @abstractmethod
    def kernel(self, r: Tensor) -> Tensor:
        """Return the exact kernel at distances r >= 0, (...) -> (...)."""

    @abstractmethod
    def radial_quantile(self, u: Tensor, d: int) -> Tensor:
        """Return the quantiles of |omega| in d dimensions at u in (0, 1), (...) -> (...), float64."""

    def kernel_between(
        self,
        x: Tensor,  # (..., n, d)
        z: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the exact kernel between points at unit lengthscale."""
        squared = squared_distance(x, z)
        return self.kernel((squared + 1e-30).sqrt())

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Gaussian(Spectrum):
    """The standard normal measure of the kernel exp(-r^2 / 2); the norm is chi with d degrees."""

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

    def radial_quantile(self, u: Tensor, d: int) -> Tensor:
        """Return the chi quantiles, (...) -> (...), float64."""
        return torch.as_tensor(stats.chi.ppf(u.double().cpu().numpy(), d))


def squared_distance(
    x: Tensor,  # (..., n, d)
    z: Tensor,  # (..., k, d)
) -> Tensor:  # (..., n, k)
    """Return |x_i - z_j|^2 through one matrix product, centred first and cut at 0."""
    center = x.mean(-2, keepdim=True).detach()
    x, z = x - center, z - center
    cross = x @ z.transpose(-1, -2)
    total = (x**2).sum(-1)[..., :, None] + (z**2).sum(-1)[..., None, :]
    return (total - 2 * cross).clamp_min(0)


_REGISTRY: Registry[Spectrum] = Registry("spectrum", {"gaussian": Gaussian})


def by_name(name: str | Spectrum, **options: Any) -> Spectrum:
    """Return a spectrum by its name ("gaussian"); a spectrum passes through.

    Raises:
        InvalidArgumentError: there is no spectrum of that name, or it lacks an option.
    """
    return name if isinstance(name, Spectrum) else _REGISTRY.make(name, **options)


def name_of(spectrum: Spectrum) -> str:
    """Return the name under which `by_name` knows a spectrum's class.

    Raises:
        InvalidArgumentError: it is not one of this package.
    """
    return _REGISTRY.name_of(spectrum)


def names() -> tuple[str, ...]:
    """Return the names that `by_name` knows."""
    return _REGISTRY.names
