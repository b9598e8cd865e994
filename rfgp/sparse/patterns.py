"""Patterns of the entries of sparse matrices, in CSR form."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import InvalidArgumentError

Indices = NDArray[np.integer[Any]]


class Pattern(Protocol):
    """Interface: the entries of a sparse matrix (n, N) row by row, columns increasing."""

    @property
    def indptr(self) -> Indices:
        """The index of the first entry of each row, and the number of entries, (n + 1,)."""

    @property
    def indices(self) -> Indices:
        """The columns, (nnz,)."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, N)."""


class SparseValues(NamedTuple):
    """A sparse matrix: the values (nnz,), with gradients, on a pattern."""

    values: Tensor
    pattern: Pattern

    def matrix(self, dtype: Any = np.float64) -> sp.csr_array:
        """Return the matrix (n, N) without gradients.

        Args:
            dtype: The dtype of the matrix. The default is float64.
        """
        values = self.values.detach().cpu().numpy().astype(dtype, copy=False)
        return sp.csr_array((values, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape)

    def squares(self) -> Tensor:
        """Return the squared norms of the rows, (n,), with gradients."""
        count = self.pattern.shape[0]
        rows = torch.from_numpy(np.repeat(np.arange(count), np.diff(self.pattern.indptr)))
        return self.values.new_zeros(count).index_add(0, rows, self.values.square())


@dataclass(frozen=True, eq=False)
class EntryPattern:
    """The entries of a sparse matrix (n, N) row by row, with columns in any order.

    Attributes:
        indptr: The index of the first entry of each row, and the number of entries, (n + 1,).
        indices: The columns, (nnz,).
        shape: The shape (n, N).

    Raises:
        InvalidArgumentError: If rows do not follow each other, or columns are out of range.

    Examples:
        >>> EntryPattern(np.array([0, 2, 3]), np.array([1, 0, 1]), (2, 2)).rows.tolist()
        [0, 0, 1]
    """

    indptr: Indices
    indices: Indices
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        starts, columns = (np.asarray(a, dtype=np.int64) for a in (self.indptr, self.indices))
        object.__setattr__(self, "indptr", starts)
        object.__setattr__(self, "indices", columns)
        bounded = len(columns) == 0 or (columns.min() >= 0 and columns.max() < self.shape[1])
        whole = len(starts) == self.shape[0] + 1 and starts[0] == 0 and starts[-1] == len(columns)
        if not whole or not bounded or (starts[1:] < starts[:-1]).any():
            raise InvalidArgumentError(
                f"A pattern must have the row starts and columns of a matrix of shape {self.shape}, got "
                f"{len(starts)} starts and {len(columns)} columns, some out of range. Take them from a CSR matrix."
            )

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it is immutable

    @cached_property
    def rows(self) -> Indices:
        """The row of each entry, (nnz,)."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def take(
        self,
        rows: Indices,  # (b,)
    ) -> tuple[Self, Tensor]:
        """Return the pattern (b, N) of some rows, and its entries' indices in this one.

        Args:
            rows: The indices of the rows, (b,).
        """
        counts = np.diff(self.indptr)[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(starts[-1]) + np.repeat(self.indptr[:-1][rows] - starts[:-1], counts)
        return type(self)(starts, self.indices[entries], (len(rows), self.shape[1])), torch.from_numpy(entries)


class SparsityPattern(EntryPattern):
    """The entries of a sparse matrix (n, N) with increasing columns in each row.

    Raises:
        InvalidArgumentError: If columns repeat or decrease within a row, or are out of range.

    Examples:
        >>> pattern = SparsityPattern(np.array([0, 2, 3]), np.array([0, 1, 1]), (2, 2))
        >>> pattern.transposed[0].indices.tolist()
        [0, 0, 1]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool((np.diff(self.keys) <= 0).any()):
            raise InvalidArgumentError(
                "The columns of each row must increase, got a repeated or decreasing one. Sort them and sum duplicates."
            )

    @cached_property
    def keys(self) -> Indices:
        """The position row N + column of each entry in the dense matrix.

        The positions (nnz,) increase.
        """
        return self.rows * self.shape[1] + self.indices

    @cached_property
    def transposed(self) -> tuple["SparsityPattern", Tensor]:
        """The pattern (N, n) of the transpose.

        The second result has the index of each of its entries here, (nnz,).
        """
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=self.shape[1])
        starts = np.concatenate([[0], np.cumsum(counts)])
        return SparsityPattern(starts, self.rows[order], self.shape[::-1]), torch.from_numpy(order)
