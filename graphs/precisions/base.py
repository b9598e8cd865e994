"""The role of a field with a sparse precision: a Gaussian vector, as a function of its parameters."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.cholesky import Analysis, Factor, analyze

Floats = NDArray[np.float64]


class Pattern(NamedTuple):
    """Where a symmetric matrix (N, N) may have entries, in CSR form: both triangles and the whole diagonal."""

    indptr: NDArray[np.int64]  # (N + 1,)
    indices: NDArray[np.int32]  # (nnz,) ascending in each row


class MarkovField(ABC):
    """A Gaussian vector of N latent values with mean 0 and a sparse precision Q, for any of its parameters.

    Laws: `entries` are those of a symmetric positive definite matrix on `pattern`, and `pull_back` is the adjoint of
    their derivative in the parameters.

    Attributes:
        parameters: Names of the p parameters that can be learned, all positive.
        pattern: Where Q has entries, whatever the parameters.
        coordinates: Places of the N values, (N, 2) or (N, 3), for orderings; or None.
    """

    parameters: tuple[str, ...]
    coordinates: Floats | None = None

    @property
    @abstractmethod
    def pattern(self) -> Pattern:
        """Where Q has entries."""

    @abstractmethod
    def entries(
        self,
        values: Floats,  # (p,)
    ) -> Floats:  # (nnz,)
        """Return the entries of Q on the pattern, at some values of the parameters."""

    @abstractmethod
    def pull_back(
        self,
        values: Floats,  # (p,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (p,)
        """Return sum_e weights_e dQ_e / d parameters, over all entries e of the pattern."""

    @cached_property
    def analysis(self) -> Analysis:
        """The analysis of the pattern for factors, kept."""
        return analyze(*self.pattern, self.coordinates)

    def factor(
        self,
        data: Floats,  # (nnz,)
    ) -> Factor:
        """Return the Cholesky factor of a matrix of these entries on the pattern.

        Raises:
            NotPositiveDefiniteError: it is not positive definite in double precision.
            MemoryBudgetError: this machine has too little memory; nothing was begun.
        """
        return Factor.of(self.analysis, data)

    def factor_at(
        self,
        values: Floats,  # (p,)
    ) -> Factor:
        """Return the factor of Q at some values of the parameters; the last one is kept.

        Raises:
            NotPositiveDefiniteError: it is not positive definite in double precision.
            MemoryBudgetError: this machine has too little memory; nothing was begun.
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
        """Return log |Q| and its derivatives (p,); here by a factor and its inverse on the pattern."""
        factor = self.factor_at(values)
        return factor.log_determinant, self.pull_back(values, factor.inverse)
