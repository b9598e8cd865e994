"""Graph kernels: functions of the normalised Laplacian L = I - U, and their modulations.

A kernel k(L) = sum_l alpha_l U^l is estimated by walks through a modulation f with f * f = alpha
(discrete convolution), because then f(U) f(U)^T = k(L): f is the series of sqrt(k) in u = 1 - lambda.

- Diffusion, t = lengthscale^2 / 2: sqrt(k) = exp(-(t/2) (1 - u)), the generating function of a
  Poisson law with mean t/2: f_l = exp(-t/2) (t/2)^l / l!.
- Regularised Laplacian, s = sigma, p = order: k = (1 + s^2 (1 - u))^-p, so with c = s^2 / (1 + s^2),
  sqrt(k) = ((1 - c) / (1 - c u))^(p/2), the generating function of a negative binomial law:
  f_l = Gamma(l + p/2) / (Gamma(p/2) l!) (1 - c)^(p/2) c^l.
- Matern, a = 2 nu / kappa^2: k = (a + 1 - u)^-nu, that law with p = nu, c = 1 / (1 + a), times a^(-nu/2).
- p-step random walk: k = (alpha - 1 + u)^p, f_l = binom(p/2, l) (alpha - 1)^(p/2 - l).
- Inverse cosine and power series by `graphs.series.root_coefficients`.

The laws are evaluated by scipy.stats, which keeps its relative accuracy for every parameter, where a recursion or a
convolution would not.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.series import root_coefficients

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


@dataclass(frozen=True)
class Matern(GraphKernel):
    """The graph Matern kernel (2 nu / kappa^2 I + L)^-nu of Borovitskiy et al. (2021), Eq. 9; k(0) is not 1.

    Attributes:
        nu: Positive; the smoothness, a fixed number.
        kappa: Positive; the lengthscale, learnable.
    """

    shape: ClassVar[tuple[str, ...]] = ("nu",)
    nu: float = 1.5
    kappa: float = 1.0

    @property
    def _shift(self) -> float:
        return 2 * self.nu / self.kappa**2

    @property
    def radius(self) -> float:
        """1 + 2 nu / kappa^2."""
        return 1 + self._shift

    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return (2 nu / kappa^2 + lambda)^-nu: (n,) -> (n,)."""
        return np.asarray((self._shift + eigenvalues) ** -float(self.nu))

    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d kappa: (n,) -> (n, 1)."""
        slope = self.nu * (self._shift + eigenvalues) ** (-self.nu - 1.0)
        return np.asarray(slope * 2 * self._shift / self.kappa)[:, None]

    def modulation(self, length: int) -> Vector:
        """Return the negative binomial law times (2 nu / kappa^2)^(-nu / 2), shape (length + 1,)."""
        a = self._shift
        return np.asarray(a ** (-self.nu / 2) * stats.nbinom.pmf(np.arange(length + 1), self.nu / 2, a / (1 + a)))

    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d kappa = f_l (nu / 2 + l) / (1 + a) 2 a / kappa, a = 2 nu / kappa^2, shape (length + 1, 1)."""
        slope = (self.nu / 2 + np.arange(length + 1)) / (1 + self._shift) * 2 * self._shift / self.kappa
        return (self.modulation(length) * slope)[:, None]


class _Fixed(GraphKernel):
    """A kernel without learnable parameters."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """None."""
        return ()

    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return (n, 0)."""
        return np.zeros((len(eigenvalues), 0))

    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return (length + 1, 0)."""
        return np.zeros((length + 1, 0))


@dataclass(frozen=True)
class RandomWalk(_Fixed):
    """The p-step random walk kernel (alpha I - L)^p of Smola and Kondor (2003).

    Attributes:
        p: Steps, a positive integer. For even p the modulation ends at p / 2.
        alpha: At least 2, so that the kernel is positive semi-definite.
    """

    p: int = 2
    alpha: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if float(self.p) != int(self.p) or self.alpha < 2:
            raise InvalidArgumentError(
                f"RandomWalk: p must be an integer and alpha at least 2, got {self.p!r} and {self.alpha!r}."
            )

    @property
    def radius(self) -> float:
        """The number alpha - 1 for odd p, infinite for even p."""
        return float(self.alpha) - 1 if self.p % 2 else np.inf

    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return (alpha - lambda)^p: (n,) -> (n,)."""
        return np.asarray((self.alpha - eigenvalues) ** int(self.p))

    def modulation(self, length: int) -> Vector:
        """Return binom(p / 2, l) (alpha - 1)^(p / 2 - l), shape (length + 1,)."""
        ell, base = np.arange(1, length + 1), float(self.alpha) - 1
        return np.asarray(np.cumprod(np.concatenate(([base ** (self.p / 2)], (self.p / 2 - ell + 1) / (ell * base)))))


@dataclass(frozen=True)
class InverseCosine(_Fixed):
    """The inverse cosine kernel cos(pi L / 4) of Smola and Kondor (2003).

    It is 0 at lambda = 2, so the modulation falls like l^(-3/2) only, with alternating signs.
    """

    @property
    def radius(self) -> float:
        """1, the distance of u = -1."""
        return 1.0

    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return cos(pi lambda / 4): (n,) -> (n,)."""
        return np.maximum(np.cos(np.pi / 4 * eigenvalues), 0.0)

    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length by Cauchy's integral, shape (length + 1,)."""
        return _inverse_cosine(1 << length.bit_length())[: length + 1].copy()


@lru_cache(maxsize=4)
def _inverse_cosine(length: int) -> Vector:
    return root_coefficients(lambda u: np.log(np.cos(np.pi / 4 * (1 - u))), length, 1.0)


@dataclass(frozen=True)
class _Series(_Fixed):
    """A kernel given by numbers.

    Attributes:
        coefficients: Finite numbers, the first positive.
    """

    coefficients: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        given = self.coefficients if isinstance(self.coefficients, Iterable) else (np.nan,)
        try:
            values = np.asarray(list(given), dtype=np.float64)
        except (TypeError, ValueError):
            values = np.zeros(0)
        if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all() or values[0] <= 0:
            raise InvalidArgumentError(
                f"{type(self).__name__}: the coefficients must be finite numbers and the first positive, got "
                f"{self.coefficients!r}."
            )
        object.__setattr__(self, "coefficients", tuple(values.tolist()))

    def _polynomial(self, u: Any) -> Any:
        return np.polynomial.polynomial.polyval(u, np.array(self.coefficients))


@dataclass(frozen=True)
class Modulated(_Series):
    """The kernel f(U) f(U)^T of a modulation f_0, f_1, ... that is given; what comes after the last is 0.

    Attributes:
        coefficients: f.
    """

    @property
    def radius(self) -> float:
        """Infinite: the series ends."""
        return np.inf

    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return f(1 - lambda)^2: (n,) -> (n,)."""
        return np.asarray(self._polynomial(1 - eigenvalues) ** 2)

    def modulation(self, length: int) -> Vector:
        """Return f, cut or padded with zeros, shape (length + 1,)."""
        out = np.zeros(length + 1)
        out[: len(self.coefficients)] = self.coefficients[: length + 1]
        return out


@dataclass(frozen=True)
class PowerSeries(_Series):
    """The kernel sum_l alpha_l U^l of given coefficients.

    Its modulation is an infinite series, which has to converge on the spectrum of U: the polynomial may have
    no zero inside the unit circle of the complex plane.

    Attributes:
        coefficients: alpha_0 > 0, alpha_1, ...
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius < 1 - 1e-9:
            raise InvalidArgumentError(
                f"PowerSeries: it has a zero at |u| = {self.radius:.3g}, so that its root is no power series where U "
                "has eigenvalues. Give a modulation instead (Modulated)."
            )

    @property
    def radius(self) -> float:
        """The smallest absolute value of a zero of the polynomial; infinite for a constant."""
        zeros = np.abs(np.polynomial.polynomial.polyroots(np.trim_zeros(np.array(self.coefficients), "b")))
        return float(zeros.min()) if len(zeros) else np.inf

    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return sum_l alpha_l (1 - lambda)^l: (n,) -> (n,)."""
        return np.asarray(np.maximum(self._polynomial(1 - eigenvalues), 0.0))

    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length by Cauchy's integral, shape (length + 1,)."""
        return _power_series(self, 1 << length.bit_length())[: length + 1].copy()


@lru_cache(maxsize=16)
def _power_series(kernel: PowerSeries, length: int) -> Vector:
    return root_coefficients(lambda u: np.log(kernel._polynomial(u)), length, kernel.radius)


_REGISTRY: dict[str, type[GraphKernel]] = {
    "diffusion": Diffusion,
    "regularized-laplacian": RegularizedLaplacian,
    "matern": Matern,
    "random-walk": RandomWalk,
    "inverse-cosine": InverseCosine,
    "modulated": Modulated,
    "power-series": PowerSeries,
}


def by_name(name: str, **options: Any) -> GraphKernel:
    """Return a kernel by its name, one of `names()`; options are its fields.

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
