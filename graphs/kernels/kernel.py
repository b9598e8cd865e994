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

    def spectral_jacobian(self, eigenvalues: Vector) -> NDArray[np.float64]:
        """Return dk / d parameters at eigenvalues of L: (n,) -> (n, p); here for p = 0."""
        return np.zeros((len(eigenvalues), 0))

    @abstractmethod
    def modulation(self, length: int) -> Vector:
        """Return f_0..f_length, shape (length + 1,)."""

    def modulation_jacobian(self, length: int) -> NDArray[np.float64]:
        """Return df / d parameters, shape (length + 1, p); here for p = 0."""
        return np.zeros((length + 1, 0))
