"""The base class of graph kernels."""

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
            number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
            if not number or not (0 < float(value) < np.inf):
                raise InvalidArgumentError(
                    f"{type(self).__name__}: {entry.name} must be a positive number, got {value!r}."
                )
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
        numbers = np.asarray(values, dtype=np.float64)
        if numbers.shape != (len(self.parameters),):
            raise InvalidArgumentError(
                f"values must be one number for each of the parameters {self.parameters}, got {numbers!r}."
            )
        return replace(self, **{name: float(v) for name, v in zip(self.parameters, numbers, strict=True)})

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
