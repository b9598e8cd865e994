"""The role of a graph kernel."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_count
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph, check_graph
from graphs.precisions import Precision, resolvent_field
from graphs.series import analytic_radius, check_analytic, root_coefficients

Vector = NDArray[np.float64]

MAX_POWERS = 10**7
MAX_SERIES = 2**17
"""Powers of a series by Cauchy's integral, which takes eight points for each on several circles."""
_STEP = float(np.finfo(float).eps ** (1 / 3))


class Resolvent(NamedTuple):
    """k(lambda) = amplitude (shift + lambda)^-order."""

    order: float
    shift: float
    amplitude: float
    jacobian: NDArray[np.float64]  # (2, p), of shift and amplitude in the kernel's parameters


@dataclass(frozen=True)
class GraphKernel(ABC):
    """A kernel k(L) of a graph's Laplacian (`Graph.with_laplacian`), with its parameters as fields.

    A subclass, a frozen dataclass, needs `spectral` alone, in numpy functions that take complex numbers. The rest then
    follows from it: the modulation by Cauchy's integral, where it converges, and Jacobians by central differences.

    Laws of every kernel: `exact(g)` is V k(eigenvalues) V^T; `modulation` is the power series in U
    of sqrt(k), so (f * f) is that of k; both Jacobians are derivatives with respect to `parameters`.
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that are fixed numbers, not parameters to learn."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
            if not number or not (0 < float(value) < np.inf):
                raise InvalidArgumentError(f"{type(self).__name__}: {entry.name} must be positive, got {value!r}.")
            if isinstance(value, np.generic):  # numbers of few bits overflow in products
                object.__setattr__(self, entry.name, value.item())
        self._check_range()

    def _check_range(self) -> None:
        """Refuse parameters with which k(0) or f_0 leaves the range of double precision."""
        try:
            with np.errstate(all="ignore"):
                ends = self.spectral(np.array([0.0, 1.0]))
                largest = float(ends[0])
                is_own = type(self).modulation is not GraphKernel.modulation
                first = float(self.modulation(0)[0]) if is_own else float(np.sqrt(ends[1]))
        except OverflowError:
            largest = first = np.inf
        if not (0 < largest < np.inf and np.isfinite(first)):
            raise InvalidArgumentError(f"{self!r} is out of the range of double precision.")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the p learnable parameters, in the order of the Jacobians' columns."""
        return tuple(entry.name for entry in fields(self) if entry.name not in self.fixed_fields)

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

    @np.errstate(under="ignore")
    def exact(self, graph: Graph) -> NDArray[np.float64]:
        """Return the dense, unnormalised kernel matrix (N, N); O(N^3) once per graph."""
        check_graph(graph)
        spectrum = graph.spectrum
        return np.asarray((spectrum.eigenvectors * self.spectral(spectrum.eigenvalues)) @ spectrum.eigenvectors.T)

    def resolvent(self) -> Resolvent:
        """Return how k is a power of the resolvent of L: such kernels of an integer order have a sparse precision.

        Raises:
            InvalidArgumentError: it is none; here always.
        """
        raise InvalidArgumentError(
            f"{self!r} has no sparse precision: its inverse is no polynomial of the Laplacian. Those of "
            "RegularizedLaplacian and Matern of an integer order are; other kernels are served by features, or exactly "
            "up to 20,000 nodes."
        )

    def precision(self, graph: Graph) -> Precision:
        """Return the inverse of the kernel matrix, which is sparse where k is one over a polynomial of L.

        Entries of the precision are known to a relative error of about eps (1 + 2 / shift)^order, its determinant to
        eps. The order of elimination is found once for a graph and an order, and kept with the graph.

        Raises:
            InvalidArgumentError: the kernel has no sparse precision; the message says why.
        """
        check_graph(graph)
        found, order = self.resolvent(), precision_order(self)
        field = resolvent_field(graph, order)
        indptr, indices = field.pattern
        data = field.entries(np.array([found.shift])) / found.amplitude
        return Precision(sp.csr_array((data, indices, indptr), shape=(graph.num_nodes,) * 2), field.analysis)

    @property
    def radius(self) -> float:
        """The radius of convergence of the modulation as a power series in U; here as far as `spectral` shows it.

        Raises:
            InvalidArgumentError: it is below 1, so that the series need not converge on the spectrum of U.
        """
        return analytic_radius(self.log_series)

    @abstractmethod
    def spectral(self, eigenvalues: Vector) -> Vector:
        """Return k at eigenvalues of L: (n,) -> (n,)."""

    def root(self, eigenvalues: Vector) -> Vector:
        """Return f, sum_l f_l (1 - lambda)^l, at eigenvalues of L: (n,) -> (n,); the root of k."""
        return np.asarray(np.sqrt(self.spectral(eigenvalues)))

    def root_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return df / d parameters at eigenvalues of L: (n,) -> (n, p); 0 where k is 0 in double precision."""
        slope, root = self.spectral_jacobian(eigenvalues), 2 * self.root(eigenvalues)[:, None]
        return np.divide(slope, root, out=np.zeros_like(slope), where=root > 0)

    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d parameters at eigenvalues of L: (n,) -> (n, p); here by central differences."""
        return self._differences(lambda kernel: kernel.spectral(eigenvalues), len(eigenvalues))

    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length, shape (length + 1,); here by Cauchy's integral over `spectral`.

        Raises:
            InvalidArgumentError: the series does not converge for |u| <= 1.
        """
        check_count("length", length, 0, MAX_SERIES)
        check_analytic(self.log_series)
        return root_coefficients(self.log_series, length, 1.0)

    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d parameters, shape (length + 1, p); here by central differences."""
        return self._differences(lambda kernel: kernel.modulation(length), length + 1)

    def log_series(self, u: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return log k(1 - u) at complex points: (n,) -> (n,).

        Raises:
            InvalidArgumentError: `spectral` takes no complex numbers.
        """
        eigenvalues: Any = 1 - u
        with np.errstate(all="ignore"):
            try:
                return np.asarray(np.log(np.asarray(self.spectral(eigenvalues), dtype=np.complex128)))
            except TypeError as error:
                raise InvalidArgumentError(
                    f"{type(self).__name__}.spectral takes no complex numbers, so its power series cannot be found: "
                    f"{error}."
                ) from error

    def _differences(self, function: Callable[[Self], Vector], size: int) -> NDArray[np.float64]:
        """Return the slopes (size, p) of a function of the kernel in its parameters."""
        slopes, values = np.zeros((size, len(self.parameters))), self.values
        for column, step in enumerate(_STEP * values):
            move = np.zeros_like(values)
            move[column] = step
            low, high = (function(self.with_values(values + sign * move)) for sign in (-1, 1))
            slopes[:, column] = (high - low) / (2 * step)
        return slopes


def powers(length: int) -> Vector:  # (length + 1,)
    """Return 0, 1, ..., length, of as many powers of U as a modulation is asked for.

    Raises:
        InvalidArgumentError: it is no integer from 0 to 10^7.
    """
    return np.arange(check_count("length", length, 0, MAX_POWERS) + 1.0)


def precision_order(kernel: GraphKernel) -> int:
    """Return the order of a kernel's sparse precision.

    Raises:
        InvalidArgumentError: it has none, or a fractional one.
    """
    order = kernel.resolvent().order
    if order != round(order):
        below = max(int(order), 1)
        raise InvalidArgumentError(
            f"{kernel!r} has no sparse precision: its order {order:g} is fractional. Those of order {below} and "
            f"{int(order) + 1} have one; features='rational' approximates one of this order."
        )
    return int(order)


def check_graph_and_kernel(graph: Graph, kernel: GraphKernel) -> None:
    """Refuse what is no graph, or no kernel on graphs.

    Raises:
        InvalidArgumentError: with what it is.
    """
    check_graph(graph)
    if not isinstance(kernel, GraphKernel):
        raise InvalidArgumentError(f"kernel must be one of graphs.kernels, got {kernel!r}.")
