"""A sparse precision, and what it says of the Gaussian vector whose it is."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs import random
from graphs.checks import check_count, check_fits
from graphs.cholesky import Analysis, Factor
from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]

_COLUMNS = 64


@dataclass(frozen=True, eq=False)
class Precision:
    """The inverse Q of the covariance matrix of a Gaussian vector of mean 0, sparse. Its rows are positions 0..N-1.

    Everything comes from one sparse Cholesky factor, which is computed when first asked for, and kept.

    Attributes:
        matrix: Q, `csr_array` (N, N).
        analysis: Of its pattern.

    Raises:
        NotPositiveDefiniteError: from whatever needs the factor; so does `MemoryBudgetError`, before it is begun.
    """

    matrix: sp.csr_array
    analysis: Analysis

    @cached_property
    def factor(self) -> Factor:
        """The Cholesky factor of Q."""
        return Factor.of(self.analysis, self.matrix.data)

    @property
    def log_determinant(self) -> float:
        """Log |Q|."""
        return self.factor.log_determinant

    @property
    def variances(self) -> Floats:
        """The diagonal of Q^-1, (N,)."""
        return self.factor.variances

    def solve(
        self,
        b: Floats,  # (N,) or (N, k)
    ) -> Floats:
        """Return Q^-1 b: the covariance matrix times b, of the shape of b.

        Raises:
            InvalidArgumentError: b has not N rows.
        """
        b = np.asarray(b, dtype=np.float64)
        if b.ndim not in (1, 2) or len(b) != self.analysis.size:
            raise InvalidArgumentError(f"Right-hand sides are ({self.analysis.size},) or (N, k), got {b.shape}.")
        return self.factor.solve(b)

    def covariance(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> Floats:  # (n, n)
        """Return the covariance matrix of the values at n positions.

        Raises:
            InvalidArgumentError: a position is none of 0..N-1.
        """
        places, size = np.asarray(positions), self.analysis.size
        if places.ndim != 1 or places.dtype.kind not in "iu" or ((places < 0) | (places >= size)).any():
            raise InvalidArgumentError(f"Positions are integers 0..{size - 1} in one dimension.")
        check_fits(f"The covariance of {len(places):,} positions", 8.0 * len(places) ** 2, "Ask for variances.")
        out = np.empty((len(places), len(places)))
        for begin in range(0, len(places), _COLUMNS):
            some = places[begin : begin + _COLUMNS]
            columns = np.zeros((size, len(some)))
            columns[some, np.arange(len(some))] = 1.0
            out[:, begin : begin + _COLUMNS] = self.factor.solve(columns)[places]
        return (out + out.T) / 2

    def sample(
        self,
        count: int = 1,
        *,
        seed: int | None = None,
    ) -> Floats:  # (count, N)
        """Draw vectors of the law N(0, Q^-1).

        Raises:
            InvalidArgumentError: a count or a seed that is none.
        """
        generator = np.random.default_rng(random.resolve_seed(seed))
        standard = generator.standard_normal((self.analysis.size, check_count("count", count)))
        return self.factor.sample(standard).T
