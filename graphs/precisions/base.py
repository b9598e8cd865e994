"""The interface of fields with a sparse precision: Gaussian vectors as functions of parameters."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.arrays import as_numbers
from graphs.checks import short_repr
from graphs.cholesky import Analysis, Factor, analyze
from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]


class Pattern(NamedTuple):
    """The pattern of a symmetric (N, N) matrix in CSR form, with its diagonal.

    Examples:
        >>> from graphs.precisions import IndependentField
        >>> IndependentField(2).pattern.indices.tolist()
        [0, 1]
    """

    indptr: NDArray[np.int64]  # (N + 1,)
    indices: NDArray[np.int32]  # (nnz,) ascending in each row


class MarkovField(ABC):
    """A Gaussian vector of N latent values with mean 0 and a sparse precision Q.

    `entries` are those of a symmetric positive definite matrix on `pattern`. `pull_back` is the adjoint of their
    derivative in the parameters, a vector-Jacobian product.

    Attributes:
        parameters: The names of the p learnable parameters, all positive.
        pattern: The pattern of Q, for all parameters.
        coordinates: Coordinates (N, 2) or (N, 3) of the values for orderings, or None.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions import ChainField
        >>> field = ChainField([0.0, 1.0, 3.0])
        >>> value, slope = field.log_determinant(np.array([2.0]))
        >>> round(value, 4)
        0.6041
    """

    parameters: tuple[str, ...]
    coordinates: Floats | None = None

    @property
    @abstractmethod
    def pattern(self) -> Pattern:
        """The pattern of Q."""

    @abstractmethod
    def entries(
        self,
        values: Floats,  # (p,)
    ) -> Floats:  # (nnz,)
        """Return the entries (nnz,) of Q on the pattern.

        Args:
            values: The parameters (p,).
        """

    @abstractmethod
    def pull_back(
        self,
        values: Floats,  # (p,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (p,)
        """Return sum_e weights_e dQ_e / d parameters, over all entries e of the pattern.

        Args:
            values: The parameters (p,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """

    @cached_property
    def analysis(self) -> Analysis:
        """The symbolic analysis of the pattern for factors, cached."""
        return analyze(*self.pattern, self.coordinates)

    def factor(
        self,
        data: Floats,  # (nnz,)
    ) -> Factor:
        """Return the Cholesky factor of a matrix with these entries on the pattern.

        Args:
            data: The entries (nnz,) of the matrix on the pattern.

        Raises:
            NotPositiveDefiniteError: If the matrix is not positive definite in double precision.
            MemoryBudgetError: If the factor does not fit into memory. Nothing was computed.
        """
        return Factor.of(self.analysis, data)

    def factor_at(
        self,
        values: Floats,  # (p,)
    ) -> Factor:
        """Return the Cholesky factor of Q; the last one is cached.

        Args:
            values: The parameters (p,).

        Raises:
            NotPositiveDefiniteError: If Q is not positive definite in double precision.
            MemoryBudgetError: If the factor does not fit into memory. Nothing was computed.
        """
        key = np.asarray(values, dtype=np.float64).tobytes()
        factor = self._kept.get(key)
        if factor is None:
            factor = self.factor(self.entries(values))
            self._kept.clear()
            self._kept[key] = factor
        return factor

    @cached_property
    def _kept(self) -> dict[bytes, Factor]:
        """The last factor of Q, by its parameters."""
        return {}

    def log_determinant(
        self,
        values: Floats,  # (p,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivatives (p,), by a factor and its inverse.

        Args:
            values: The parameters (p,).
        """
        factor = self.factor_at(values)
        return factor.log_determinant, self.pull_back(values, factor.inverse)


def read_lengthscale(
    values: Floats,  # (1,)
) -> float:
    """Return the lengthscale in the parameters of a field that has no others.

    Args:
        values: The lengthscale (1,).

    Raises:
        InvalidArgumentError: If it is not one positive number.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.base import read_lengthscale
        >>> read_lengthscale(np.array([2.0]))
        2.0
    """
    given = as_numbers(values)
    if given.shape != (1,) or not 0 < given[0] < np.inf:
        raise InvalidArgumentError(f"The lengthscale must be one positive number, (1,), got {short_repr(values)}.")
    return float(given[0])
