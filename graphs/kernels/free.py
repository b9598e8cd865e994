"""A kernel whose first modulation coefficients are free parameters."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.polynomial.polynomial import polyvander
from numpy.typing import ArrayLike, NDArray

from graphs.errors import InvalidArgumentError
from graphs.kernels.families import Diffusion, Matern, RegularizedLaplacian
from graphs.kernels.kernel import GraphKernel, Vector


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
        object.__setattr__(self, "factors", _positive(self.factors))
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
        numbers = np.asarray(values, dtype=np.float64)
        if numbers.shape != (len(self.parameters),):
            raise InvalidArgumentError(
                f"values must be one number for each of the parameters {self.parameters}, got {numbers!r}."
            )
        num_base = len(self.base.parameters)
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


def _positive(factors: object) -> tuple[float, ...]:
    """Return the factors as a tuple of floats."""
    try:
        values = np.asarray(list(factors) if isinstance(factors, Iterable) else [])
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.dtype.kind not in "iuf":
        values = np.zeros(0)
    if values.ndim != 1 or len(values) == 0 or not ((values > 0) & (values < np.inf)).all():
        raise InvalidArgumentError(f"FreeModulation: factors must be positive numbers, at least one, got {factors!r}.")
    return tuple(float(value) for value in values.tolist())
