"""A sparse precision matrix, and properties of its Gaussian vector."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.checks import check_count, check_fits, resolve_seed
from graphs.cholesky import Analysis, Factor
from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]

_COLUMNS = 64
"""The number of columns that are solved at once."""


@dataclass(frozen=True, eq=False)
class Precision:
    """The sparse inverse Q of the covariance matrix of a Gaussian vector of mean 0.

    Rows are positions 0..N-1. All results use one sparse Cholesky factor, which is computed on demand and cached.

    Attributes:
        matrix: Q, `csr_array` (N, N).
        analysis: The analysis of its pattern.

    Raises:
        NotPositiveDefiniteError: From methods that need the factor, if Q is not positive definite.
        MemoryBudgetError: From methods that need the factor, if it does not fit into memory.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> g, kernel = graphs.Graph.from_grid((9, 9)), graphs.kernels.Matern(nu=2)
        >>> precision = kernel.precision(g)
        >>> np.allclose(precision.variances, np.diag(kernel.exact(g)))
        True
        >>> precision.sample(3, seed=0).shape
        (3, 81)
        >>> (
        ...     round(precision.log_determinant),
        ...     precision.solve(np.ones(81)).shape,
        ...     precision.covariance(np.arange(3)).shape,
        ... )
        (260, (81,), (3, 3))
    """

    matrix: sp.csr_array
    analysis: Analysis

    @cached_property
    def factor(self) -> Factor:
        """The Cholesky factor of Q."""
        return Factor.of(self.analysis, self.matrix.data)

    @property
    def log_determinant(self) -> float:
        """The log determinant of Q."""
        return self.factor.log_determinant

    @property
    def variances(self) -> Floats:
        """The diagonal of Q^-1, (N,)."""
        return self.factor.variances

    def solve(
        self,
        b: Floats,  # (N,) or (N, k)
    ) -> Floats:
        """Return Q^-1 b, the covariance matrix times b, of the shape of b.

        Args:
            b: The right-hand sides (N,) or (N, k).

        Raises:
            InvalidArgumentError: If b does not have N rows.
        """
        b = np.asarray(b, dtype=np.float64)
        if b.ndim not in (1, 2) or len(b) != self.analysis.size:
            raise InvalidArgumentError(f"b must have shape ({self.analysis.size},) or (N, k), got {b.shape}.")
        return self.factor.solve(b)

    def covariance(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> Floats:  # (n, n)
        """Return the covariance matrix of the values at n positions.

        Args:
            positions: Positions (n,) of latent values, integers from 0.

        Raises:
            InvalidArgumentError: If a position is outside 0..N-1.
            MemoryBudgetError: If the matrix does not fit into memory.
        """
        indices, size = np.asarray(positions), self.analysis.size
        if indices.ndim != 1 or indices.dtype.kind not in "iu" or ((indices < 0) | (indices >= size)).any():
            raise InvalidArgumentError(f"positions must be integers 0..{size - 1} of shape (n,), got {indices!r}.")
        check_fits(f"The covariance of {len(indices):,} positions", 8.0 * len(indices) ** 2, "Ask for variances.")
        out = np.empty((len(indices), len(indices)))
        for start in range(0, len(indices), _COLUMNS):
            block = indices[start : start + _COLUMNS]
            columns = np.zeros((size, len(block)))
            columns[block, np.arange(len(block))] = 1.0
            out[:, start : start + _COLUMNS] = self.factor.solve(columns)[indices]
        return (out + out.T) / 2

    def sample(
        self,
        count: int = 1,
        *,
        seed: int | None = None,
    ) -> Floats:  # (count, N)
        """Draw vectors from the distribution N(0, Q^-1).

        Args:
            count: The number of vectors.
            seed: An integer. If None, one from the system.

        Returns:
            Vectors (count, N), one per row.

        Raises:
            InvalidArgumentError: If the count or the seed is invalid.
        """
        generator = np.random.default_rng(resolve_seed(seed))
        standard = generator.standard_normal((self.analysis.size, check_count("count", count)))
        return self.factor.sample(standard).T
