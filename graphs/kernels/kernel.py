"""Power series of square roots, numerically stable for long series.

The recursion f_n = (a_n - sum_k f_k f_{n-k}) / (2 f_0) for the square root of a power series cancels if f decays fast.
For exp(30 (u - 1)) no digit of f_60 is right, although f * f agrees with a up to rounding. Cauchy's integral over a
circle |u| = r, computed by a Fourier transform, has an error near 2^-53 max |g| / r^l. The radius can be chosen for
each l (Bornemann 2011, "Accuracy and stability of computing high-order derivatives of analytic functions by Cauchy
integrals").
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_count, positive
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph, check_graph
from graphs.precisions import Precision, resolvent_field

Vector = NDArray[np.float64]

Function = Callable[[NDArray[np.complex128]], NDArray[np.complex128]]

_NUM_RADII = 240
"""The number of radii that are compared for entire functions."""
_CHECK_POINTS = 4096
"""The number of points on a circle at which a function is checked to be analytic."""
_MAX_RADIUS = 64.0
"""The largest radius of convergence that is tried."""
_NEGLIGIBLE = 1e-11
"""The relative size of coefficients of negative powers below which a function counts as analytic."""
_ALIASING = 39.0
"""-log of the aliasing error 2^-56."""


def root_coefficients(
    log_function: Function,  # (n,) -> (n,)
    length: int,
    radius: float,
) -> Vector:  # (length + 1,)
    """Return the Taylor coefficients (length + 1,) at 0 of sqrt(k), positive at 0.

    Args:
        log_function: log k at complex points, on any branch. k(0) must be positive, and k analytic without zeros inside
            `radius` and real on the real axis.
        length: The largest power.
        radius: The radius of convergence of the root. It may be infinite.

    Raises:
        InvalidArgumentError: If no circle works, for example because k has zeros near 0.

    Examples:
        >>> from graphs.kernels.kernel import root_coefficients
        >>> root_coefficients(lambda u: 2 * u, 3, float("inf")).round(6).tolist()
        [1.0, 1.0, 0.5, 0.166667]
    """
    points = 1 << (8 * length + 1023).bit_length()
    bounded = np.isfinite(radius)
    largest = radius * np.exp(-_ALIASING / points) if bounded else 1e4 * (length + 1)
    circle, powers = np.exp(2j * np.pi * np.arange(points) / points), np.arange(length + 1)
    best, error = np.zeros(length + 1), np.full(length + 1, np.inf)
    radii = largest * 0.7 ** np.arange(6) if bounded else np.geomspace(largest, 1e-6, _NUM_RADII)
    for r in radii:
        log_root = _continuous_half(log_function(r * circle))
        if log_root is None:
            continue
        size = float(log_root.real.max())
        scaled = np.fft.fft(np.exp(log_root - size)).real / points  # f_l r^l / exp(size)
        if np.abs(scaled[points // 2 - 8 : points // 2 + 8]).max() > 1e-8:
            continue  # aliasing: coefficients at twice the index are not below 1e-16
        bound = size - powers * np.log(r)
        with np.errstate(divide="ignore", over="ignore"):
            first = scaled[: length + 1]
            values = np.sign(first) * np.exp(np.log(np.abs(first)) + bound)
        best = np.where(bound < error, values, best)
        error = np.minimum(error, bound)
    if not np.isfinite(error).all():
        raise InvalidArgumentError(
            "The square root of the series must be analytic around u = 0, got one that cannot be evaluated. Check the "
            "kernel for zeros near eigenvalue 1."
        )
    return best


def analytic_radius(
    log_function: Function,  # (n,) -> (n,)
) -> float:
    """Return a radius >= 1 inside which exp(log_function) has an analytic root.

    It is infinite if it exceeds 64.

    Args:
        log_function: A function (n,) -> (n,) of complex points, on any branch.

    Raises:
        InvalidArgumentError: If there is none, so the series may diverge on the spectrum of U.

    Examples:
        >>> import numpy as np
        >>> from graphs.kernels.kernel import analytic_radius
        >>> round(analytic_radius(lambda u: np.log(2 - u)), 1)
        2.0
    """
    check_analytic(log_function)
    low, high = 1.0, _MAX_RADIUS
    if _is_analytic(log_function, high):
        return np.inf
    while high > 1.005 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _is_analytic(log_function, middle) else (low, middle)
    return low


def check_analytic(log_function: Function) -> None:
    """Check that a function has an analytic root in the unit disk.

    Args:
        log_function: A function (n,) -> (n,) of complex points, on any branch.

    Raises:
        InvalidArgumentError: If it has none. The message names features that do not need a series.

    Examples:
        >>> import numpy as np
        >>> from graphs.kernels.kernel import check_analytic
        >>> check_analytic(lambda u: np.log(2 - u))
    """
    if not _is_analytic(log_function, 1.0):
        raise InvalidArgumentError(
            "The root of this function of eigenvalues has no power series in U = I - L that converges for |u| <= 1. "
            "The function must be analytic there for complex lambda = 1 - u, without zeros, kinks, max or abs. Use "
            'features="exact", "chebyshev" or "spectrum", which need no series.'
        )


def _is_analytic(log_function: Function, r: float) -> bool:
    """Return whether exp(log_function) has an analytic root inside a circle.

    The logarithm must not wind around the circle (zeros inside), and the root must have no negative powers (poles).
    """
    log_root = _continuous_half(log_function(r * np.exp(2j * np.pi * np.arange(_CHECK_POINTS) / _CHECK_POINTS)))
    if log_root is None:
        return False
    scaled = np.abs(np.fft.fft(np.exp(log_root - log_root.real.max()))) / _CHECK_POINTS
    return bool(scaled[_CHECK_POINTS // 2 :].max() < _NEGLIGIBLE)


def _continuous_half(logs: NDArray[np.complex128]) -> NDArray[np.complex128] | None:
    """Return half the logarithm along a circle, continuous, or None if it winds."""
    if not np.isfinite(logs).all():
        return None
    phase = np.unwrap(np.append(logs.imag, logs.imag[0]))
    if abs(phase[-1] - phase[0]) > 1:  # a zero inside, or steps too coarse to follow the phase
        return None
    return np.asarray(0.5 * (logs.real + 1j * (phase[:-1] - phase[0])))


# --- The base class of graph kernels ---------------------------------------------------------------------------------


MAX_POWERS = 10**7
"""The largest power of U of a modulation in closed form."""
MAX_SERIES = 2**17
"""The largest power of a series by Cauchy's integral, which evaluates eight points per power on several circles."""
_STEP = float(np.finfo(float).eps ** (1 / 3))
"""The relative step of central differences, at which rounding and truncation errors are of similar size."""


class Resolvent(NamedTuple):
    """A kernel of the form k(lambda) = amplitude (shift + lambda)^-order.

    Examples:
        >>> from graphs import kernels
        >>> kernels.Matern(nu=2, kappa=2.0).resolvent()[:3]
        (2.0, 1.0, 1.0)
    """

    order: float
    shift: float
    amplitude: float
    jacobian: NDArray[np.float64]  # (2, p), of shift and amplitude in the kernel's parameters


@dataclass(frozen=True)
class GraphKernel(ABC):
    """A kernel k(L) of the Laplacian of a graph, a frozen dataclass of its parameters.

    A subclass only has to define `spectral`, with numpy functions that accept complex numbers. The modulation then
    follows by Cauchy's integral, if it converges, and Jacobians by central differences.

    For every kernel `exact(g)` is V k(eigenvalues) V^T, `modulation` is the power series of sqrt(k) in U, and Jacobians
    are derivatives with respect to `parameters`.

    Attributes:
        fixed_fields: The names of the fields that are not learned.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> import graphs
        >>> @dataclass(frozen=True)
        ... class Exponential(graphs.kernels.GraphKernel):
        ...     rate: float = 1.0
        ...
        ...     def spectral(self, eigenvalues):
        ...         return np.exp(-self.rate * eigenvalues)
        >>> Exponential(2.0).modulation(2).round(4).tolist()
        [0.3679, 0.3679, 0.1839]
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ()
    """Names of fields that are fixed and not learned."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            positive(f"{type(self).__name__}: {entry.name}", value)
            if isinstance(value, np.generic):  # numbers of few bits overflow in products
                object.__setattr__(self, entry.name, value.item())
        self._check_range()

    def _check_range(self) -> None:
        """Check that k(0) and f_0 are in the range of double precision."""
        try:
            with np.errstate(all="ignore"):
                ends = self.spectral(np.array([0.0, 1.0]))
                largest = float(ends[0])
                overrides_modulation = type(self).modulation is not GraphKernel.modulation
                first = float(self.modulation(0)[0]) if overrides_modulation else float(np.sqrt(ends[1]))
        except OverflowError:
            largest = first = np.inf
        if not (0 < largest < np.inf and np.isfinite(first)):
            raise InvalidArgumentError(
                f"{type(self).__name__} must stay in the range of double precision, got {self!r}. Use less extreme "
                "parameters."
            )

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the p learnable parameters, in the order of Jacobians."""
        return tuple(entry.name for entry in fields(self) if entry.name not in self.fixed_fields)

    @property
    def values(self) -> Vector:  # (p,)
        """The learnable parameters, (p,)."""
        return np.array([float(getattr(self, name)) for name in self.parameters])

    def with_values(self, values: ArrayLike) -> Self:
        """Return the kernel with other learnable parameters (p,).

        Args:
            values: The values (p,) of the parameters, in the order of `parameters`.

        Raises:
            InvalidArgumentError: If their number is wrong, or one is out of range.
        """
        numbers = self._checked(values)
        return replace(self, **dict(zip(self.parameters, numbers.tolist(), strict=True)))

    def _checked(self, values: ArrayLike) -> Vector:  # (p,)
        """Return values of the parameters as an array, if there is one for each."""
        numbers = np.asarray(values, dtype=np.float64)
        if numbers.shape != (len(self.parameters),):
            raise InvalidArgumentError(
                f"values must be one number for each of the parameters {self.parameters}, got {numbers!r}."
            )
        return numbers

    @np.errstate(under="ignore")
    def exact(self, graph: Graph) -> NDArray[np.float64]:
        """Return the dense kernel matrix (N, N), which is not normalized; O(N^3) once per graph.

        Args:
            graph: The graph, with N nodes.
        """
        check_graph(graph)
        spectrum = graph.spectrum
        return np.asarray((spectrum.eigenvectors * self.spectral(spectrum.eigenvalues)) @ spectrum.eigenvectors.T)

    def resolvent(self) -> Resolvent:
        """Return k as a power of the resolvent of L.

        Kernels of an integer order have a sparse precision.

        Raises:
            InvalidArgumentError: If k is not such a power. The base class always raises.
        """
        raise InvalidArgumentError(
            f"{self!r} has no sparse precision: its inverse is not a polynomial of the Laplacian. Use "
            "RegularizedLaplacian or Matern with an integer order, or features, or the exact kernel of up to 20,000 "
            "nodes."
        )

    def precision(self, graph: Graph) -> Precision:
        """Return the inverse of the kernel matrix if it is sparse.

        Entries have a relative error of about eps (1 + 2 / shift)^order, the determinant of eps. The elimination order
        is computed once per graph and order, and cached with the graph.

        Args:
            graph: The graph, with N nodes.

        Raises:
            InvalidArgumentError: If the kernel has no sparse precision.
        """
        check_graph(graph)
        resolvent, order = self.resolvent(), precision_order(self)
        field = resolvent_field(graph, order)
        indptr, indices = field.pattern
        data = field.entries(np.array([resolvent.shift])) / resolvent.amplitude
        return Precision(sp.csr_array((data, indices, indptr), shape=(graph.num_nodes,) * 2), field.analysis)

    @property
    def radius(self) -> float:
        """The radius of convergence of the modulation, estimated from `spectral`.

        Raises:
            InvalidArgumentError: If it is below 1, so the series may diverge on the spectrum of U.
        """
        return analytic_radius(self.log_series)

    @abstractmethod
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return k at eigenvalues of L: (n,) -> (n,).

        Args:
            eigenvalues: Eigenvalues (n,) of the Laplacian L.
        """

    def root(self, eigenvalues: Vector) -> Vector:
        """Return f = sum_l f_l (1 - lambda)^l (n,), a root of k, at eigenvalues of L.

        Args:
            eigenvalues: Eigenvalues lambda (n,) of the Laplacian L.
        """
        return np.asarray(np.sqrt(self.spectral(eigenvalues)))

    def root_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return df / d parameters (n, p) at eigenvalues of L, 0 where k underflows.

        Args:
            eigenvalues: Eigenvalues (n,) of the Laplacian L.
        """
        slope, root = self.spectral_jacobian(eigenvalues), 2 * self.root(eigenvalues)[:, None]
        return np.divide(slope, root, out=np.zeros_like(slope), where=root > 0)

    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d parameters (n, p) at eigenvalues of L.

        By default, central differences compute it.

        Args:
            eigenvalues: Eigenvalues (n,) of the Laplacian L.
        """
        return self._differences(lambda kernel: kernel.spectral(eigenvalues), len(eigenvalues))

    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length, (length + 1,).

        By default, Cauchy's integral over `spectral` computes them.

        Args:
            length: The number of terms minus one.

        Raises:
            InvalidArgumentError: If the series does not converge for |u| <= 1.
        """
        check_count("length", length, 0, MAX_SERIES)
        check_analytic(self.log_series)
        return root_coefficients(self.log_series, length, 1.0)

    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d parameters, (length + 1, p).

        By default, central differences compute it.

        Args:
            length: The number of terms minus one.
        """
        return self._differences(lambda kernel: kernel.modulation(length), length + 1)

    def log_series(self, u: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return log k(1 - u) at complex points: (n,) -> (n,).

        Args:
            u: Complex points (n,).

        Raises:
            InvalidArgumentError: If `spectral` does not accept complex numbers.
        """
        eigenvalues: Any = 1 - u
        with np.errstate(all="ignore"):
            try:
                return np.asarray(np.log(np.asarray(self.spectral(eigenvalues), dtype=np.complex128)))
            except TypeError as error:
                raise InvalidArgumentError(
                    f"{type(self).__name__}.spectral must accept complex numbers, got an error: {error}. Use numpy "
                    "functions, which do."
                ) from error

    def _differences(self, function: Callable[[Self], Vector], size: int) -> NDArray[np.float64]:
        """Return the derivatives (size, p) of a function of the kernel in its parameters."""
        slopes, values = np.zeros((size, len(self.parameters))), self.values
        for column, step in enumerate(_STEP * values):
            move = np.zeros_like(values)
            move[column] = step
            low, high = (function(self.with_values(values + sign * move)) for sign in (-1, 1))
            slopes[:, column] = (high - low) / (2 * step)
        return slopes


def powers(length: int) -> Vector:  # (length + 1,)
    """Return 0, 1, ..., length, the powers of U of a modulation.

    Args:
        length: The largest power.

    Raises:
        InvalidArgumentError: If `length` is not an integer from 0 to 10^7.

    Examples:
        >>> from graphs.kernels.kernel import powers
        >>> powers(3).tolist()
        [0.0, 1.0, 2.0, 3.0]
    """
    return np.arange(check_count("length", length, 0, MAX_POWERS) + 1.0)


def precision_order(kernel: GraphKernel) -> int:
    """Return the order of the sparse precision of a kernel.

    Args:
        kernel: The kernel.

    Raises:
        InvalidArgumentError: If the kernel has no sparse precision, or a fractional order.

    Examples:
        >>> from graphs import kernels
        >>> from graphs.kernels.kernel import precision_order
        >>> precision_order(kernels.RegularizedLaplacian(order=3))
        3
    """
    order = kernel.resolvent().order
    if order != round(order):
        below = max(int(order), 1)
        raise InvalidArgumentError(
            f"{kernel!r} has no sparse precision: its order {order:g} is fractional. Use order {below} or "
            f"{int(order) + 1}, or approximate this one with features='rational'."
        )
    return int(order)


def check_graph_and_kernel(graph: Graph, kernel: GraphKernel) -> None:
    """Check that the arguments are a graph and a graph kernel.

    Args:
        graph: The value that must be a graph.
        kernel: The value that must be a kernel.

    Raises:
        InvalidArgumentError: If they are not.

    Examples:
        >>> import graphs
        >>> from graphs.kernels.kernel import check_graph_and_kernel
        >>> check_graph_and_kernel(graphs.Graph.from_grid((2, 2)), graphs.kernels.Diffusion())
    """
    check_graph(graph)
    if not isinstance(kernel, GraphKernel):
        raise InvalidArgumentError(f"kernel must be a graphs.kernels.GraphKernel, got {kernel!r}.")
