"""Products of two fields, for example of space and time."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from graphs.checks import check_fits
from graphs.precisions.base import Floats, MarkovField, Pattern


@dataclass(frozen=True, eq=False)
class KroneckerField(MarkovField):
    """A field on pairs of values of two fields, with covariance K_1 x K_2.

    The values of the second field vary fastest.

    Attributes:
        first: A field of N_1 values, with the first parameters.
        second: A field of N_2 values, with the other parameters.
        parameters: The parameters of both.
        coordinates: None.

    Examples:
        >>> from graphs.precisions import ChainField, KroneckerField
        >>> field = KroneckerField(ChainField([0.0, 1.0]), ChainField([0.0, 2.0, 3.0]))
        >>> field.parameters, len(field.pattern.indptr) - 1
        (('lengthscale', 'lengthscale'), 6)
    """

    first: MarkovField
    second: MarkovField

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", (*self.first.parameters, *self.second.parameters))

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes (N_1, N_2)."""
        return len(self.first.pattern.indptr) - 1, len(self.second.pattern.indptr) - 1

    @cached_property
    def pattern(self) -> Pattern:
        """Pairs of values that have an entry in both fields."""
        first, second = self.first.pattern, self.second.pattern
        counts = np.diff(first.indptr)[:, None] * np.diff(second.indptr)
        starts = np.concatenate([[0], np.cumsum(counts.reshape(-1))]).astype(np.int64)
        i, j = self._pairs
        return Pattern(starts, (first.indices[i] * self.sizes[1] + second.indices[j]).astype(np.int32))

    def entries(
        self,
        values: Floats,  # (p,)
    ) -> Floats:  # (nnz,)
        """Return the products of the entries of both fields.

        Args:
            values: The parameters (p,) of the first field, then of the second.
        """
        (i, j), (left, right) = self._pairs, self._split(values)
        return np.asarray(self.first.entries(left)[i] * self.second.entries(right)[j])

    def pull_back(
        self,
        values: Floats,  # (p,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (p,)
        """Return sum_e weights_e dQ_e / d parameters.

        Args:
            values: The parameters (p,) of the first field, then of the second.
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        (i, j), (left, right) = self._pairs, self._split(values)
        first, second = self.first.entries(left), self.second.entries(right)
        in_first: Floats = np.bincount(i, weights * second[j], len(first)).astype(np.float64)
        in_second: Floats = np.bincount(j, weights * first[i], len(second)).astype(np.float64)
        return np.concatenate([self.first.pull_back(left, in_first), self.second.pull_back(right, in_second)])

    def log_determinant(
        self,
        values: Floats,  # (p,)
    ) -> tuple[float, Floats]:
        """Return log |Q| = N_2 log |Q_1| + N_1 log |Q_2| and its derivatives (p,).

        Args:
            values: The parameters (p,) of the first field, then of the second.
        """
        (left, right), (rows, columns) = self._split(values), self.sizes
        (first, in_first), (second, in_second) = self.first.log_determinant(left), self.second.log_determinant(right)
        return columns * first + rows * second, np.concatenate([columns * in_first, rows * in_second])

    def _split(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the parameters of each field."""
        count = len(self.first.parameters)
        return values[:count], values[count:]

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The indices (nnz,) of the entry of each field in each product.

        The row (i, j) has, for each entry of row i of the first field, all entries of row j of the second.
        """
        (starts, indices), (others, inner) = self.first.pattern, self.second.pattern
        check_fits(
            f"The precision of {len(starts) - 1:,} x {len(others) - 1:,} latent values",
            60.0 * len(indices) * len(inner),
            "Use fewer distinct values of the column, or fewer positions.",
        )
        width, degree = np.diff(others), np.diff(starts)
        outer = np.repeat(np.arange(len(degree)), len(width))  # i of each row (i, j)
        row = np.tile(np.arange(len(width)), len(degree))  # j
        counts = degree[outer] * width[row]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        row_width = np.repeat(width[row], counts)
        i = np.repeat(starts[:-1][outer], counts) + offset // row_width
        j = np.repeat(others[:-1][row], counts) + offset % row_width
        return i.astype(np.int32), j.astype(np.int32)
