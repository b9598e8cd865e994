"""Kernels with a learnable scale: diffusion, regularized Laplacian and Matern."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.polynomial.polynomial import polyroots, polyval, polyvander
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from graphs.arrays import as_numbers
from graphs.checks import check_count, short_repr
from graphs.errors import InvalidArgumentError
from graphs.kernels.kernel import MAX_SERIES, GraphKernel, Resolvent, Vector, analytic_radius, powers, root_coefficients


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


class _ResolventKernel(GraphKernel):
    """A kernel k(lambda) = c^q (1 + c lambda)^-order, where c is a multiple of the squared learnable parameter.

    With r = order / 2 its modulation consists of negative binomial probabilities times c^(q / 2),

        f_l = c^(q / 2) Gamma(l + r) / (Gamma(r) l!) (1 + c)^-r (c / (1 + c))^l.
    """

    @property
    @abstractmethod
    def _form(self) -> tuple[float, float, float]:
        """The order, c and the power q."""

    @property
    def radius(self) -> float:
        """The radius 1 + 1 / c, which is inside of the pole of the kernel."""
        return 1 + 1 / self._form[1]

    def resolvent(self) -> Resolvent:
        """Return the order, the shift 1 / c and the amplitude c^(q - order)."""
        order, c, q = self._form
        shift, amplitude = 1 / c, c ** (q - order)
        slopes = np.array([[-2 * shift], [2 * (q - order) * amplitude]])
        return Resolvent(order, shift, amplitude, slopes / self.values)

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return c^q (1 + c lambda)^-order: (n,) -> (n,)."""
        order, c, q = self._form
        return np.asarray(c**q * (1 + c * eigenvalues) ** -order)

    @np.errstate(under="ignore")
    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d parameter: (n,) -> (n, 1)."""
        order, c, q = self._form
        slope = (q + (q - order) * c * eigenvalues) / (1 + c * eigenvalues)
        return np.asarray(2 * self.spectral(eigenvalues) * slope)[:, None] / self.values

    @np.errstate(under="ignore")
    def modulation(self, length: int) -> Vector:
        """Return the modulation, (length + 1,)."""
        order, c, q = self._form
        return np.asarray(c ** (q / 2) * stats.nbinom.pmf(powers(length), order / 2, 1 / (1 + c)))

    @np.errstate(under="ignore")
    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d parameter, (length + 1, 1)."""
        order, c, q = self._form
        slope = (q + (q - order) * c + 2 * powers(length)) / (1 + c)
        return (self.modulation(length) * slope)[:, None] / self.values


@dataclass(frozen=True)
class RegularizedLaplacian(_ResolventKernel):
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
    def _form(self) -> tuple[float, float, float]:
        return float(self.order), self.sigma**2.0, 0.0


@dataclass(frozen=True)
class Matern(_ResolventKernel):
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
    def _form(self) -> tuple[float, float, float]:
        return float(self.nu), self.kappa**2.0 / (2 * self.nu), float(self.nu)


# --- Kernels without learnable parameters: random walks, inverse cosine and given series -----------------------------


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


def _read_tuple(name: str, given: object, fits: Callable[[Vector], bool], rule: str) -> tuple[float, ...]:
    """Return numbers of a kernel as a tuple of floats, if they follow a rule."""
    values = as_numbers(list(given) if isinstance(given, Iterable) else ())
    if values.ndim != 1 or len(values) == 0 or not fits(values):
        raise InvalidArgumentError(f"{name} must be {rule}, got {given!r}.")
    return tuple(values.tolist())


def _read_coefficients(kernel: Modulated | PowerSeries) -> tuple[float, ...]:
    """Return the coefficients as a tuple of floats."""
    name, rule = f"{type(kernel).__name__}: coefficients", "finite numbers, the first positive"
    return _read_tuple(name, kernel.coefficients, lambda a: bool(np.isfinite(a).all() and a[0] > 0), rule)


# --- A kernel whose first modulation coefficients are free parameters ------------------------------------------------


@dataclass(frozen=True)
class FreeModulation(GraphKernel):
    """The kernel f(U) f(U)^T, f_l = factors[l] times the modulation of a base kernel.

    Coefficients beyond the factors are those of the base. Learnable parameters are those of the base, by their names,
    then "factor_0", "factor_1", .... A common factor is nearly an output scale, and parameters of the base can be
    traded for factors. Few data therefore need few factors, or a prior on them. Learned modulations are from Reid et
    al. (2024), "General Graph Random Features". Here a family gives the start and the tail.

    Attributes:
        base: A kernel with a positive modulation: Diffusion, RegularizedLaplacian or Matern.
        factors: c_0, ..., c_{m-1}, at least one positive number. If all are 1, the kernel is the base.

    Examples:
        >>> from graphs import kernels
        >>> kernel = kernels.FreeModulation(kernels.Diffusion(2.0), factors=(1.0, 2.0))
        >>> kernel.parameters
        ('lengthscale', 'factor_0', 'factor_1')
        >>> (kernel.modulation(2) / kernel.base.modulation(2)).tolist()
        [1.0, 2.0, 1.0]
    """

    base: GraphKernel = field(default_factory=Diffusion)
    factors: tuple[float, ...] = (1.0,) * 8

    def __post_init__(self) -> None:
        if not isinstance(self.base, Diffusion | RegularizedLaplacian | Matern):
            raise InvalidArgumentError(
                "FreeModulation: base must be a kernel with a positive modulation (Diffusion, RegularizedLaplacian, "
                f"Matern), got {self.base!r}."
            )
        is_positive, rule = (lambda a: bool(((a > 0) & (a < np.inf)).all())), "positive numbers, at least one"
        object.__setattr__(self, "factors", _read_tuple("FreeModulation: factors", self.factors, is_positive, rule))
        self._check_range()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters of the base, then of the m factors."""
        return (*self.base.parameters, *(f"factor_{i}" for i in range(len(self.factors))))

    @property
    def values(self) -> Vector:  # (p + m,)
        """The p parameters of the base, then the m factors, (p + m,)."""
        return np.concatenate([self.base.values, self.factors])

    def with_values(self, values: ArrayLike) -> Self:
        """Return the kernel with other learnable parameters (p + m,).

        Args:
            values: The values (p + m,), in the order of `parameters`.

        Raises:
            InvalidArgumentError: If their number is wrong, or one is not positive.
        """
        numbers, num_base = self._checked(values), len(self.base.parameters)
        return replace(self, base=self.base.with_values(numbers[:num_base]), factors=tuple(numbers[num_base:].tolist()))

    @property
    def radius(self) -> float:
        """The radius of the base, which finitely many coefficients do not change."""
        return self.base.radius

    @np.errstate(under="ignore")
    def root(self, eigenvalues: Vector) -> Vector:
        """Return f(1 - lambda), signed.

        It is base.root + sum_l (c_l - 1) f_l^base (1 - lambda)^l.
        """
        excess = (np.array(self.factors) - 1) * self._first
        return np.asarray(self.base.root(eigenvalues) + self._powers(eigenvalues) @ excess)

    @np.errstate(under="ignore")
    def root_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return df / d parameters at eigenvalues of L: (n,) -> (n, p + m)."""
        powers, excess = self._powers(eigenvalues), np.array(self.factors)[:, None] - 1
        inner = powers @ (excess * self.base.modulation_jacobian(len(self.factors) - 1))
        return np.hstack([self.base.root_jacobian(eigenvalues) + inner, powers * self._first])

    @np.errstate(under="ignore")
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return f(1 - lambda)^2: (n,) -> (n,)."""
        return np.asarray(self.root(eigenvalues) ** 2)

    @np.errstate(under="ignore")
    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d parameters = 2 f df / d parameters: (n,) -> (n, p + m)."""
        return np.asarray(2 * self.root(eigenvalues)[:, None] * self.root_jacobian(eigenvalues))

    @np.errstate(under="ignore")
    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length, shape (length + 1,)."""
        return self.base.modulation(length) * self._stretch(length)

    @np.errstate(under="ignore")
    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d parameters, (length + 1, p + m).

        The derivative in factor l is f_l^base in row l.
        """
        of_base = self._stretch(length)[:, None] * self.base.modulation_jacobian(length)
        free = np.zeros((length + 1, len(self.factors)))
        np.fill_diagonal(free, self.base.modulation(length))
        return np.hstack([of_base, free])

    @property
    def _first(self) -> Vector:
        """The first m coefficients of the modulation of the base, (m,)."""
        return self.base.modulation(len(self.factors) - 1)

    def _powers(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return (1 - lambda)^l for l < m: (n,) -> (n, m)."""
        return np.asarray(polyvander(1 - eigenvalues, len(self.factors) - 1))

    def _stretch(self, length: int) -> Vector:
        """Return c_0..c_{m-1}, 1, 1, ..., (length + 1,)."""
        return np.concatenate([self.factors, np.ones(max(length + 1 - len(self.factors), 0))])[: length + 1]
