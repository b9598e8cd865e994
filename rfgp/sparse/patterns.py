"""Where sparse matrices have entries, in CSR form."""

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
    """The role: where a sparse matrix (n, N) has entries, row by row, their columns in increasing order."""

    @property
    def indptr(self) -> Indices:
        """Where each row begins, (n + 1,)."""

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
        """Return it, (n, N), without gradients."""
        values = self.values.detach().cpu().numpy().astype(dtype, copy=False)
        return sp.csr_array((values, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape)


@dataclass(frozen=True, eq=False)
class EntryPattern:
    """Where a sparse matrix (n, N) has entries, row by row, their columns in any order.

    Attributes:
        indptr: (n + 1,), where each row begins.
        indices: (nnz,), the columns.
        shape: (n, N).

    Raises:
        InvalidArgumentError: rows that do not follow each other, or columns outside.
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
            raise InvalidArgumentError(f"These are no rows and columns of a sparse matrix of shape {self.shape}.")

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it never changes

    @cached_property
    def rows(self) -> Indices:
        """The row of each entry, (nnz,)."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def take(
        self,
        rows: Indices,  # (b,)
    ) -> tuple[Self, Tensor]:
        """Return the pattern (b, N) of some rows, and which entries of this one its entries are."""
        counts = np.diff(self.indptr)[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(starts[-1]) + np.repeat(self.indptr[:-1][rows] - starts[:-1], counts)
        return type(self)(starts, self.indices[entries], (len(rows), self.shape[1])), torch.from_numpy(entries)


class SparsityPattern(EntryPattern):
    """Where a sparse matrix (n, N) has entries, row by row, their columns in increasing order.

    Raises:
        InvalidArgumentError: columns that repeat or decrease within a row, or lie outside.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool((np.diff(self.keys) <= 0).any()):
            raise InvalidArgumentError("The columns of each row must increase.")

    @cached_property
    def keys(self) -> Indices:
        """The place row N + column of each entry in the dense matrix, (nnz,), increasing."""
        return self.rows * self.shape[1] + self.indices

    @cached_property
    def transposed(self) -> tuple["SparsityPattern", Tensor]:
        """The pattern (N, n) of the transpose, and which entries of this one its entries are (nnz,)."""
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=self.shape[1])
        starts = np.concatenate([[0], np.cumsum(counts)])
        return SparsityPattern(starts, self.rows[order], self.shape[::-1]), torch.from_numpy(order)
