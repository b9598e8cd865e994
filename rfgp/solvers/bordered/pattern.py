"""The pattern of the joint precision of several sparse blocks given rows."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs import cholesky
from rfgp.blocks.precision import Array, Factor, Field, factorized
from rfgp.sparse import gram_on

_MAX_CACHED = 4
"""The number of cached joint patterns, for the rows of a fit and for points of predictions."""


class Csr(NamedTuple):
    """The pattern of a symmetric matrix (N, N) in CSR form."""

    indptr: NDArray[Any]  # (N + 1,)
    indices: NDArray[Any]  # (nnz,), ascending in each row

    @property
    def shape(self) -> tuple[int, int]:
        """(N, N)."""
        return len(self.indptr) - 1, len(self.indptr) - 1


@dataclass(frozen=True, eq=False)
class JointPattern:
    """The pattern of blockdiag(Q_1, Q_2, ...) + A^T D^-1 A.

    The positions of the entries of its parts are stored too.

    Attributes:
        csr: The pattern, (N, N).
        factorize: Returns the factor of a matrix with entries (nnz,) on the pattern.
        indices: The positions of the entries of each field on the pattern. None denotes all in order.
        analyze: Returns the symbolic analysis of the pattern, with the memory and the operations of a factor.
    """

    csr: Csr
    factorize: Callable[[Array], Factor]
    indices: Sequence[NDArray[np.int64] | None]
    analyze: Callable[[], Any]

    @classmethod
    def of(
        cls, fields: Sequence[Field], projector: sp.csr_array, *, combines_non_neighbors: bool = False
    ) -> "JointPattern":
        """Return the joint pattern of the precisions and the projection to rows of fields.

        A single field has the joint pattern if each row depends on one value, or if each pair of values of a row has an
        entry in Q. Otherwise the union with the pattern of A^T A is analyzed. It is cached for the same fields and
        projection.

        Args:
            fields: The fields, at least one.
            projector: The projection A, (n, N).
            combines_non_neighbors: Whether a row depends on two values of a field that have no joint entry in its Q.
                The default is False.
        """
        if len(fields) == 1 and not (combines_non_neighbors and np.diff(projector.indptr).max(initial=0) > 1):
            field, pattern = fields[0], fields[0].pattern
            return cls(Csr(pattern.indptr, pattern.indices), field.factor, [None], lambda: field.analysis)
        key = (*map(id, fields), projector.indices.tobytes(), projector.indptr.tobytes())
        cached = _cache.get(key)
        if cached is None:
            cached = fields, cls._joined(fields, projector)  # the fields are kept alive so that their ids stay unique
            _cache[key] = cached
            while len(_cache) > _MAX_CACHED:
                _cache.popitem(last=False)
        return cached[1]

    @classmethod
    def _joined(cls, fields: Sequence[Field], projector: sp.csr_array) -> "JointPattern":
        patterns = [_as_matrix(field.pattern) for field in fields]
        blocks = sp.block_diag(patterns, format="csr")
        ones = sp.csr_array((np.ones(projector.nnz), projector.indices, projector.indptr), shape=projector.shape)
        union = sp.csr_array(blocks + ones.T @ ones)
        union.sort_indices()
        csr = Csr(union.indptr.astype(np.int64), union.indices.astype(np.int32))
        ends = np.cumsum([0, *(pattern.shape[0] for pattern in patterns)])
        indices = [positions(csr, pattern, offset) for pattern, offset in zip(patterns, ends[:-1], strict=True)]
        analysis = cholesky.analyze(*csr)
        return cls(csr, partial(cholesky.Factor.of, analysis), indices, lambda: analysis)

    @property
    def size(self) -> int:
        """The number N of latent values."""
        return len(self.csr.indptr) - 1

    def factor(self, entries: Array) -> Factor:
        """Return the factor of a matrix on the pattern.

        Args:
            entries: The entries of the matrix, (nnz,).
        """
        return factorized(self.factorize, entries)

    def block(self, number: int, entries: Array) -> Array:
        """Return the entries of the diagonal block of a field, (nnz_t,).

        Args:
            number: The index of the field.
            entries: The entries of a matrix on the joint pattern, (nnz,).
        """
        indices = self.indices[number]
        return entries if indices is None else entries[indices]

    def total(self, parts: Sequence[Array]) -> Array:
        """Return the entries of a block-diagonal matrix on the joint pattern, (nnz,).

        Args:
            parts: The entries of the diagonal block of each field, (nnz_t,) each.
        """
        if self.indices[0] is None:
            return np.array(parts[0])
        out = np.zeros(len(self.csr.indices))
        for indices, part in zip(self.indices, parts, strict=True):
            out[indices] += part
        return out

    def add_gram(self, entries: Array, projector: sp.csr_array, precision: Array) -> Array:
        """Return the entries plus those of A^T diag(p) A, (nnz,).

        Args:
            entries: The entries of a matrix on the joint pattern, (nnz,).
            projector: The projection A, (n, N).
            precision: The diagonal p, (n,).
        """
        return entries + gram_on(projector, self.csr, precision)


_cache: "OrderedDict[tuple[Any, ...], tuple[Sequence[Field], JointPattern]]" = OrderedDict()


def positions(csr: Csr, part: sp.csr_array, offset: int = 0) -> NDArray[np.int64]:
    """Return the positions, (nnz,), of the entries of a matrix in a larger pattern.

    The pattern contains all entries of the matrix. The positions are among its entries.

    Args:
        csr: The pattern.
        part: A matrix (M, M), whose first row and column have the number `offset` in the pattern.
        offset: The number of the first row.
    """
    numbers = _as_matrix(csr, np.arange(1, len(csr.indices) + 1))
    rows = offset + np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
    return np.asarray(numbers[rows, offset + part.indices]).ravel() - 1


def _as_matrix(pattern: Any, data: Any = None) -> sp.csr_array:
    size = len(pattern.indptr) - 1
    entries = np.ones(len(pattern.indices)) if data is None else data
    return sp.csr_array((entries, pattern.indices, pattern.indptr), shape=(size, size))
