"""Kernels without learnable parameters: random walks, inverse cosine and given series."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.polynomial.polynomial import polyroots, polyval
from numpy.typing import NDArray

from graphs.arrays import as_numbers
from graphs.checks import check_count, short_repr
from graphs.errors import InvalidArgumentError
from graphs.kernels.kernel import MAX_SERIES, GraphKernel, Vector, powers
from graphs.series import analytic_radius, root_coefficients


@dataclass(frozen=True)
class RandomWalk(GraphKernel):
    """The p-step random walk kernel (alpha I - L)^p of Smola and Kondor (2003).

    Attributes:
        p: The number of steps, a positive integer. For even p the modulation ends at p / 2.
        alpha: The shift, at least 2, so that the kernel is positive semi-definite.

    Examples:
        >>> from graphs import kernels
        >>> kernels.RandomWalk(p=2, alpha=2.0).modulation(2).tolist()
        [1.0, 1.0, 0.0]
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ("p", "alpha")
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
        """The radius alpha - 1 for odd p, infinite for even p."""
        return float(self.alpha) - 1 if self.p % 2 else np.inf

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return (alpha - lambda)^p: (n,) -> (n,)."""
        return np.asarray((self.alpha - eigenvalues) ** int(self.p))

    @np.errstate(under="ignore")
    def modulation(self, length: int) -> Vector:
        """Return binom(p / 2, l) (alpha - 1)^(p / 2 - l), shape (length + 1,)."""
        ell, base = powers(length)[1:], float(self.alpha) - 1
        return np.asarray(np.cumprod(np.concatenate(([base ** (self.p / 2)], (self.p / 2 - ell + 1) / (ell * base)))))


def _series_up_to(kernel: GraphKernel, length: int) -> Vector:
    """Return f_0..f_length by Cauchy's integral, which is computed once for all lengths up to a power of two."""
    check_count("length", length, 0, MAX_SERIES)
    return _series(kernel, 1 << max(length - 1, 0).bit_length())[: length + 1].copy()


@lru_cache(maxsize=48)
@np.errstate(under="ignore")
def _series(kernel: GraphKernel, length: int) -> Vector:
    if isinstance(kernel, Spectral):  # its radius is unknown
        return GraphKernel.modulation(kernel, length)
    return root_coefficients(kernel.log_series, length, kernel.radius)


@dataclass(frozen=True)
class InverseCosine(GraphKernel):
    """The inverse cosine kernel cos(pi L / 4) of Smola and Kondor (2003).

    It is 0 at lambda = 2, so the modulation decays only like l^(-3/2), with alternating signs.

    Examples:
        >>> from graphs import kernels
        >>> kernels.InverseCosine().modulation(2).round(3).tolist()
        [0.841, 0.33, -0.195]
    """

    @property
    def radius(self) -> float:
        """The radius 1, the distance of the zero u = -1."""
        return 1.0

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return cos(pi lambda / 4): (n,) -> (n,)."""
        return np.maximum(np.cos(np.pi / 4 * eigenvalues), 0.0)

    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length by Cauchy's integral, (length + 1,)."""
        return _series_up_to(self, length)

    def log_series(self, u: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return log cos(pi (1 - u) / 4): (n,) -> (n,)."""
        return np.asarray(np.log(np.cos(np.pi / 4 * (1 - u))))


@dataclass(frozen=True)
class Modulated(GraphKernel):
    """The kernel f(U) f(U)^T of a given modulation f_0, f_1, ....

    Coefficients after the last are 0.

    Attributes:
        coefficients: The modulation f, finite numbers, the first positive.

    Examples:
        >>> import numpy as np
        >>> from graphs import kernels
        >>> kernels.Modulated((1.0, 0.5)).spectral(np.array([0.0, 1.0])).tolist()
        [2.25, 1.0]
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ("coefficients",)
    coefficients: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", _read_coefficients(self))
        with np.errstate(over="ignore"):
            size = np.sum(np.square(self.coefficients))
        if not np.isfinite(size):
            raise InvalidArgumentError(
                "Modulated: coefficients must have squares in the range of double precision, got larger ones."
            )

    @property
    def radius(self) -> float:
        """Infinite, since the series is finite."""
        return np.inf

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return f(1 - lambda)^2: (n,) -> (n,)."""
        return np.asarray(polyval(1 - eigenvalues, self.coefficients) ** 2)

    @np.errstate(under="ignore")
    def root(self, eigenvalues: Vector) -> Vector:
        """Return f(1 - lambda), signed: (n,) -> (n,)."""
        return np.asarray(polyval(1 - eigenvalues, self.coefficients))

    @np.errstate(under="ignore")
    def modulation(self, length: int) -> Vector:
        """Return f, truncated or padded with zeros, (length + 1,)."""
        out = np.zeros_like(powers(length))
        out[: len(self.coefficients)] = self.coefficients[: length + 1]
        return out


@dataclass(frozen=True)
class PowerSeries(GraphKernel):
    """The kernel sum_l alpha_l U^l of given coefficients.

    Its modulation is an infinite series that must converge on the spectrum of U. The polynomial must therefore have no
    zero inside the unit circle of the complex plane.

    Attributes:
        coefficients: alpha_0 > 0, alpha_1, ..., finite numbers.

    Examples:
        >>> import numpy as np
        >>> from graphs import kernels
        >>> kernels.PowerSeries((1.0, 0.5)).spectral(np.array([0.0, 1.0])).tolist()
        [1.5, 1.0]
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ("coefficients",)
    coefficients: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", _read_coefficients(self))
        if self.radius < 1:
            raise InvalidArgumentError(
                f"PowerSeries: coefficients must have no zero inside |u| = 1, got one at {self.radius:.3g}. Its square "
                "root has no power series there. Use Modulated with the coefficients of the root."
            )

    @property
    def radius(self) -> float:
        """The smallest absolute value of a zero of the polynomial, infinite for a constant."""
        zeros = np.abs(polyroots(np.trim_zeros(np.array(self.coefficients), "b")))
        if len(zeros) == 0:
            return np.inf
        least = float(zeros.min())
        blur = min(0.03, 2 * np.finfo(float).eps ** (1 / len(zeros)))  # a zero of multiplicity m is known to eps^(1/m)
        return 1.0 if 1 - blur <= least < 1 else least

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return sum_l alpha_l (1 - lambda)^l: (n,) -> (n,)."""
        return np.asarray(np.maximum(polyval(1 - eigenvalues, self.coefficients), 0.0))

    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length by Cauchy's integral, (length + 1,)."""
        return _series_up_to(self, length)

    def log_series(self, u: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return log sum_l alpha_l u^l: (n,) -> (n,)."""
        return np.asarray(np.log(polyval(u, self.coefficients)))


@dataclass(frozen=True)
class Spectral(GraphKernel):
    """The kernel of a function of the eigenvalues of the Laplacian.

    Exact kernels, Chebyshev polynomials and truncated spectra need only its values on [0, 2]. Walks and power series
    need its modulation, for which the function must be analytic without zeros for complex |lambda - 1| <= 1. The kernel
    has no learnable parameters and cannot be saved. Subclass `GraphKernel` for parameters.

    Attributes:
        function: A numpy function (n,) -> (n,), non-negative on [0, 2] and positive at 0.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> kernel = graphs.kernels.Spectral(lambda x: np.exp(-2 * x))
        >>> g = graphs.Graph.from_grid((3, 3))
        >>> np.allclose(kernel.exact(g), graphs.kernels.Diffusion(2.0).exact(g))
        True
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ("function",)
    function: Callable[[Vector], Vector] = field(default_factory=lambda: _heat)

    def __post_init__(self) -> None:
        values = np.asarray(self.spectral(_GRID)) if callable(self.function) else np.zeros(0)
        fits = values.shape == _GRID.shape and values.dtype.kind in "fiu"
        if not fits or not ((values >= 0) & (values < np.inf)).all() or values[0] <= 0:
            raise InvalidArgumentError(
                "Spectral: function must map eigenvalues (n,) in [0, 2] to finite non-negative numbers (n,), positive "
                f"at 0, got {short_repr(values)}."
            )

    def __repr__(self) -> str:
        return f"Spectral({getattr(self.function, '__name__', type(self.function).__name__)})"

    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return the function at the eigenvalues: (n,) -> (n,)."""
        return np.asarray(self.function(eigenvalues))

    @property
    def radius(self) -> float:
        """The radius of convergence of the modulation, estimated numerically."""
        return _spectral_radius(self)

    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length by Cauchy's integral, (length + 1,)."""
        return _series_up_to(self, length)


_GRID = np.linspace(0.0, 2.0, 201)
"""The eigenvalues at which a function is checked."""


def _heat(eigenvalues: Vector) -> Vector:
    return np.asarray(np.exp(-eigenvalues))


@lru_cache(maxsize=16)
def _spectral_radius(kernel: Spectral) -> float:
    return analytic_radius(kernel.log_series)


def _read_coefficients(kernel: Modulated | PowerSeries) -> tuple[float, ...]:
    """Return the coefficients as a tuple of floats."""
    values = as_numbers(list(kernel.coefficients) if isinstance(kernel.coefficients, Iterable) else ())
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all() or values[0] <= 0:
        raise InvalidArgumentError(
            f"{type(kernel).__name__}: coefficients must be finite numbers, the first positive, got "
            f"{kernel.coefficients!r}."
        )
    return tuple(values.tolist())
