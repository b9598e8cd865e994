"""The role of a graph kernel."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.errors import InvalidArgumentError
from graphs.graph import Graph

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class GraphKernel(ABC):
    """A kernel k(L) of a graph's Laplacian (`Graph.with_laplacian`), with its parameters as fields.

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
            if isinstance(value, np.generic):  # numbers of few bits overflow in products
                object.__setattr__(self, entry.name, value.item())
        self._check_range()

    def _check_range(self) -> None:
        """Refuse parameters with which k(0) or f_0 leaves the range of double precision."""
        try:
            with np.errstate(all="ignore"):
                largest, first = float(self.spectral(np.zeros(1))[0]), float(self.modulation(0)[0])
        except OverflowError:
            largest = first = np.inf
        if not (0 < largest < np.inf and np.isfinite(first)):
            raise InvalidArgumentError(f"{self!r} is out of the range of double precision.")

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

    @np.errstate(under="ignore")
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

    def root(self, eigenvalues: Vector) -> Vector:
        """Return f, sum_l f_l (1 - lambda)^l, at eigenvalues of L: (n,) -> (n,); the root of k."""
        return np.asarray(np.sqrt(self.spectral(eigenvalues)))

    def root_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return df / d parameters at eigenvalues of L: (n,) -> (n, p); 0 where k is 0 in double precision."""
        slope, root = self.spectral_jacobian(eigenvalues), 2 * self.root(eigenvalues)[:, None]
        return np.divide(slope, root, out=np.zeros_like(slope), where=root > 0)

    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d parameters at eigenvalues of L: (n,) -> (n, p); here for p = 0."""
        return np.zeros((len(eigenvalues), 0))

    @abstractmethod
    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length, shape (length + 1,)."""

    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d parameters, shape (length + 1, p); here for p = 0."""
        return np.zeros((length + 1, 0))


def check_graph_and_kernel(graph: Graph, kernel: GraphKernel) -> None:
    """Refuse what is no graph, or no kernel on graphs.

    Raises:
        InvalidArgumentError: with what it is.
    """
    if not isinstance(graph, Graph):
        raise InvalidArgumentError(
            f"A graphs.Graph is needed, got {type(graph).__name__}; build one, for example with Graph.from_networkx."
        )
    if not isinstance(kernel, GraphKernel):
        raise InvalidArgumentError(f"kernel must be one of graphs.kernels, got {kernel!r}.")
