"""Graph kernels: functions of the normalised Laplacian L = I - U, and their modulations.

A kernel k(L) = sum_l alpha_l U^l is estimated by walks through a modulation f with f * f = alpha
(discrete convolution), because then f(U) f(U)^T = k(L). Both families here have a closed form:
with K = k(L), f is the series of sqrt(k), and its coefficients are a probability law.

- Diffusion, t = lengthscale^2 / 2: sqrt(k) = exp(-(t/2) (1 - u)), the generating function of a
  Poisson law with mean t/2: f_l = exp(-t/2) (t/2)^l / l!.
- Regularised Laplacian, s = sigma, p = order: k = (1 + s^2 (1 - u))^-p, so with c = s^2 / (1 + s^2),
  sqrt(k) = ((1 - c) / (1 - c u))^(p/2), the generating function of a negative binomial law:
  f_l = Gamma(l + p/2) / (Gamma(p/2) l!) (1 - c)^(p/2) c^l.

So sum_l f_l = sqrt(k(0)) = 1, and evaluation by scipy.stats keeps its relative accuracy for every
parameter, where a recursion or a convolution would not.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from graphs.errors import InvalidArgumentError
from graphs.graph import Graph

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class GraphKernel(ABC):
    """A kernel k(L) of the normalised Laplacian, with its parameters as fields.

    Laws of every kernel: `exact(g)` is V k(eigenvalues) V^T; `modulation` is the power series in U
    of sqrt(k), so (f * f) is that of k; both Jacobians are derivatives with respect to `parameters`.
    """

    shape: ClassVar[tuple[str, ...]] = ()
    """Fields that are fixed numbers, not parameters to learn."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
            if not number or not (0 < float(value) < np.inf):
                raise InvalidArgumentError(f"{type(self).__name__}: {entry.name} must be positive, got {value!r}.")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the p learnable parameters, in the order of the Jacobians' columns."""
        return tuple(entry.name for entry in fields(self) if entry.name not in self.shape)

    @property
    def values(self) -> Vector:  # (p,)
        """The learnable parameters, (p,)."""
        return np.array([float(getattr(self, name)) for name in self.parameters])

    def with_values(self, values: ArrayLike) -> Self:
        """Return the kernel with other learnable parameters (p,)."""
        numbers = np.asarray(values, dtype=np.float64)
        if numbers.shape != (len(self.parameters),):
            raise InvalidArgumentError(f"{type(self).__name__} has parameters {self.parameters}, got {numbers!r}.")
        return replace(self, **{name: float(v) for name, v in zip(self.parameters, numbers, strict=True)})

    def exact(self, graph: Graph) -> NDArray[np.float64]:
        """Return the dense, unnormalised kernel matrix (N, N); O(N^3) once per graph."""
        spectrum = graph.spectrum
        return np.asarray((spectrum.eigenvectors * self.spectral(spectrum.eigenvalues)) @ spectrum.eigenvectors.T)

    @property
    @abstractmethod
    def radius(self) -> float:
        """The radius of convergence of the modulation as a power series in U."""

    @abstractmethod
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return k at eigenvalues of L: (n,) -> (n,)."""

    @abstractmethod
    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d parameters at eigenvalues of L: (n,) -> (n, p)."""

    @abstractmethod
    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length, shape (length + 1,)."""

    @abstractmethod
    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d parameters, shape (length + 1, p)."""


@dataclass(frozen=True)
class Diffusion(GraphKernel):
    """The diffusion (heat) kernel exp(-lengthscale^2 / 2 L) of Kondor and Lafferty (2002).

    Attributes:
        lengthscale: Positive; in steps on the graph, roughly.
    """

    lengthscale: float = 2.0

    @property
    def radius(self) -> float:
        """Infinite: the series of an exponential."""
        return np.inf

    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return exp(-lengthscale^2 / 2 lambda): (n,) -> (n,)."""
        return np.asarray(np.exp(-0.5 * self.lengthscale**2 * eigenvalues))

    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return -lengthscale lambda k(lambda): (n,) -> (n, 1)."""
        return np.asarray(-self.lengthscale * eigenvalues * self.spectral(eigenvalues))[:, None]

    def modulation(self, length: int) -> Vector:
        """Return the Poisson law with mean lengthscale^2 / 4, shape (length + 1,)."""
        return np.asarray(stats.poisson.pmf(np.arange(length + 1), self.lengthscale**2 / 4))

    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d lengthscale = lengthscale / 2 (f_{l-1} - f_l), shape (length + 1, 1)."""
        f = self.modulation(length)
        return (self.lengthscale / 2 * (np.concatenate(([0.0], f[:-1])) - f))[:, None]


@dataclass(frozen=True)
class RegularizedLaplacian(GraphKernel):
    """The regularised Laplacian kernel (I + sigma^2 L)^-order of Smola and Kondor (2003).

    Attributes:
        order: Positive; the smoothness, a fixed number.
        sigma: Positive; the scale, learnable.
    """

    shape: ClassVar[tuple[str, ...]] = ("order",)
    order: float = 2
    sigma: float = 1.0

    @property
    def radius(self) -> float:
        """1 / c = (1 + sigma^2) / sigma^2."""
        return 1 + 1 / self.sigma**2

    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return (1 + sigma^2 lambda)^-order: (n,) -> (n,)."""
        return np.asarray((1 + self.sigma**2 * eigenvalues) ** -float(self.order))

    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d sigma: (n,) -> (n, 1)."""
        inner = 1 + self.sigma**2 * eigenvalues
        return np.asarray(-2 * self.order * self.sigma * eigenvalues * inner ** (-self.order - 1.0))[:, None]

    def modulation(self, length: int) -> Vector:
        """Return the negative binomial law, shape (length + 1,)."""
        return np.asarray(stats.nbinom.pmf(np.arange(length + 1), self.order / 2, 1 / (1 + self.sigma**2)))

    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d sigma = f_l (2 l / sigma - order sigma) / (1 + sigma^2), shape (length + 1, 1)."""
        slope = 2 * np.arange(length + 1) / self.sigma - self.order * self.sigma
        return (self.modulation(length) * slope / (1 + self.sigma**2))[:, None]


_REGISTRY: dict[str, type[GraphKernel]] = {
    "diffusion": Diffusion,
    "regularized-laplacian": RegularizedLaplacian,
}


def by_name(name: str, **options: Any) -> GraphKernel:
    """Return a kernel by its name: "diffusion" or "regularized-laplacian"; options are its fields.

    Raises:
        InvalidArgumentError: an unknown name, or an option that the kernel does not have.
    """
    if name not in _REGISTRY:
        raise InvalidArgumentError(f"There is no graph kernel {name!r}; known are {', '.join(_REGISTRY)}.")
    try:
        return _REGISTRY[name](**options)
    except TypeError as error:
        raise InvalidArgumentError(f"Graph kernel {name!r}: {error}.") from error


def name_of(kernel: GraphKernel) -> str:
    """Return the name under which `by_name` knows a kernel's class.

    Raises:
        InvalidArgumentError: it is not one of this package.
    """
    for name, kind in _REGISTRY.items():
        if type(kernel) is kind:
            return name
    raise InvalidArgumentError(f"{kernel!r} is not a kernel of this package; known are {', '.join(_REGISTRY)}.")


def names() -> tuple[str, ...]:
    """Return the names that `by_name` knows."""
    return tuple(_REGISTRY)
