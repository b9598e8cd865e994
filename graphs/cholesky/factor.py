"""Symbolic analysis of a pattern for sparse Cholesky factors, once for all matrices on it."""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.arrays import pointers
from graphs.checks import check_fits
from graphs.cholesky.orders import order
from graphs.compiled import single_threaded_blas
from graphs.errors import InvalidArgumentError, NotPositiveDefiniteError

Integers = NDArray[np.int64]
Indices = NDArray[np.int32]
Floats = NDArray[np.float64]

MAX_COMPARED_ROWS = 20_000
"""The largest number of rows for which two orders are compared."""
CHUNK_FLOPS = 5e8
"""Operations between two checks for interrupts, about half a second."""


class Supernodes(NamedTuple):
    """The s supernodes of a factor in postorder, see `graphs.cholesky.loops`.

    Attributes:
        starts: The first column of each supernode, (s + 1,).
        row_pointers: The index of the first row of each panel, (s + 1,).
        rows: The rows of all panels, one after another.
        relative_indices: Relative indices: the index of each row below the columns of a supernode in the panel of its
            parent.
        parents: The parents (s,), -1 for roots.
        children: The numbers of children, (s,).
        panel_pointers: The index of the first entry of each panel, (s + 1,).

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.cholesky import analyze
        >>> pattern = sp.csr_array(sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(3, 3)))
        >>> int(analyze(pattern.indptr, pattern.indices).supernodes.starts[-1])
        3
    """

    starts: Indices
    row_pointers: Integers
    rows: Indices
    relative_indices: Indices
    parents: Indices
    children: Indices
    panel_pointers: Integers

    @property
    def flops(self) -> NDArray[np.float64]:
        """The number of multiplications and additions for each supernode, (s,)."""
        columns, rows = np.diff(self.starts).astype(np.float64), np.diff(self.row_pointers).astype(np.float64)
        below = rows - columns
        return np.asarray(columns**3 / 3 + below * columns**2 + below**2 * columns)


@dataclass(frozen=True, eq=False)
class Analysis:
    """The elimination order, the supernodes, and the indices of matrix entries.

    Attributes:
        indptr: The pattern (N + 1,) in CSR form, with both triangles and the whole diagonal.
        indices: The indices (nnz,) of the pattern, ascending in each row.
        order: The elimination order (N,): entry k is the row that is eliminated k-th.
        supernodes: The supernodes of the factor.
        num_nonzeros: The number of non-zeros of the factor. Its panels also store some zeros.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.cholesky import analyze
        >>> pattern = sp.csr_array(sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(4, 4)))
        >>> analyze(pattern.indptr, pattern.indices).num_nonzeros
        7
    """

    indptr: Integers
    indices: Indices
    order: Integers
    supernodes: Supernodes
    num_nonzeros: int

    @classmethod
    def of(
        cls,
        indptr: Integers,  # (N + 1,)
        indices: Indices,  # (nnz,)
        order: Integers,  # (N,)
    ) -> "Analysis":
        """Analyze a pattern for an elimination order.

        The order becomes an equivalent one in postorder, with as many non-zeros.

        Args:
            indptr: Pointers (N + 1,) of CSR, with both triangles and the whole diagonal.
            indices: Indices (nnz,), ascending in each row.
            order: An elimination order (N,).

        Returns:
            The analysis, with an equivalent order in postorder.

        Raises:
            MemoryBudgetError: If the factor does not fit into the memory of this machine.
        """
        from graphs.cholesky import loops

        order = order[loops.postorder(loops.elimination_tree(*_permuted(indptr, indices, order)))]
        permuted = _permuted(indptr, indices, order)
        parent = loops.elimination_tree(*permuted)
        counts = loops.column_counts(*permuted, parent)
        _check_fits(len(order), int(counts.sum()), 8.0 * float(counts.sum()))
        starts, heights = loops.supernodes(parent, counts)
        parents, children = loops.supernode_tree(parent, starts)
        row_pointers = pointers(heights)
        rows, relative_indices = loops.panel_rows(*permuted, starts, parents, row_pointers)
        panel_pointers = pointers(np.diff(starts) * heights)
        fronts = Supernodes(starts, row_pointers, rows, relative_indices, parents, children, panel_pointers)
        return cls(indptr, indices, order, fronts, int(counts.sum()))

    @property
    def size(self) -> int:
        """The number N of rows."""
        return len(self.order)

    @cached_property
    def chunks(self) -> list[tuple[int, int]]:
        """Ranges of supernodes of about half a second each, between which interrupts are handled."""
        part = np.floor(np.cumsum(self.supernodes.flops) / CHUNK_FLOPS)
        cuts = np.flatnonzero(np.diff(part)) + 1
        ends = [0, *cuts.tolist(), len(self.supernodes.parents)]
        return [(a, b) for a, b in itertools.pairwise(ends) if a < b]

    @property
    def flops(self) -> float:
        """The number of multiplications and additions of a factorization."""
        return float(self.supernodes.flops.sum())

    @cached_property
    def num_bytes(self) -> float:
        """The bytes of a factor and its inverse on the pattern, with temporary arrays."""
        stack, update, path, front = self.peaks
        panel_pointers = int(self.supernodes.panel_pointers[-1])
        return 8.0 * (panel_pointers + max(stack + update, path + 2 * front) + 4 * len(self.indices)) + 12.0 * len(
            self.supernodes.rows
        )

    def check_fits(self) -> None:
        """Check that a factorization fits into the memory of this machine.

        Raises:
            MemoryBudgetError: If it does not.
        """
        _check_fits(self.size, self.num_nonzeros, self.num_bytes)

    @cached_property
    def peaks(self) -> tuple[int, int, int, int]:
        """The peak numbers of entries: of the stack of updates, one update, the path of fronts, one front."""
        from graphs.cholesky import loops

        stack, update, path, front = loops.peaks(self.supernodes)
        return int(stack), int(update), int(path), int(front)

    @cached_property
    def scatter_indices(self) -> tuple[Integers, Integers, Integers]:
        """The indices of factored entries in the matrix and the panels (e,), and the first of each supernode."""
        from graphs.cholesky import loops

        source, target, first_entries = loops.scatter_indices(
            self.indptr, self.indices, self.order, self.inverse_order, self.supernodes
        )
        return source, target, first_entries

    @cached_property
    def inverse_order(self) -> Integers:
        """The step at which each row is eliminated, (N,), the inverse of the order."""
        inverse_order = np.empty(self.size, dtype=np.int64)
        inverse_order[self.order] = np.arange(self.size)
        return inverse_order

    @cached_property
    def pairs(self) -> tuple[Indices, Indices]:
        """The rows and columns (e,) of factored entries, as positions in the order."""
        (source, _, _), inverse_order = self.scatter_indices, self.inverse_order.astype(np.int32)
        return inverse_order[self.indices[source]], np.repeat(inverse_order, np.diff(self.indptr))[source]

    def mirrored(self, triangle: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the entries (nnz,) of a symmetric matrix from factored ones (e,).

        Args:
            triangle: Values (e,) of the factored entries.
        """
        source, _, _ = self.scatter_indices
        out = np.empty(len(self.indices))
        out[source] = triangle
        out[self.transpose_indices[source]] = triangle
        return out

    @cached_property
    def transpose_indices(self) -> Integers:
        """The index of the entry (j, i) for each entry (i, j) of the pattern, (nnz,)."""
        numbers = np.arange(len(self.indices))
        return np.asarray(_matrix(numbers, self.indices, self.indptr).T.tocsr().data)


def analyze(
    indptr: Integers,  # (N + 1,)
    indices: Indices,  # (nnz,)
    coordinates: NDArray[np.float64] | None = None,  # (N, 2) or (N, 3)
    method: str = "auto",
) -> Analysis:
    """Analyze a pattern with a fill-reducing order.

    Up to `MAX_COMPARED_ROWS` rows, "auto" takes the order with fewer entries in the factor: its own, or that of minimum
    degree.

    Args:
        indptr: Pointers (N + 1,) of CSR with both triangles and the whole diagonal.
        indices: Indices (nnz,), ascending in each row.
        coordinates: Coordinates (N, 2) or (N, 3) of the rows. If None, they are unknown.
        method: The ordering, as for `graphs.cholesky.orders.order`.

    Examples:
        >>> import graphs
        >>> from graphs.cholesky import analyze
        >>> pattern = graphs.kernels.Matern(nu=1).precision(graphs.Graph.from_grid((9, 9))).matrix
        >>> analyze(pattern.indptr, pattern.indices, method="natural").size
        81
    """
    made = Analysis.of(indptr, indices, order(indptr, indices, coordinates, method))
    if method != "auto" or made.size > MAX_COMPARED_ROWS:
        return made
    other = Analysis.of(indptr, indices, order(indptr, indices, coordinates, "minimum-degree"))
    return min(made, other, key=lambda analysis: analysis.num_nonzeros)


def _check_fits(size: int, num_nonzeros: int, num_bytes: float) -> None:
    check_fits(
        f"The Cholesky factor of {size:,} nodes, with {num_nonzeros:,} non-zeros, and its temporary arrays",
        num_bytes,
        "Graphs with hubs or long edges have no sparse factor. Use walks or a series instead.",
    )


def _matrix(data: NDArray[np.generic], indices: Indices, indptr: Integers) -> sp.csr_array:
    size = len(indptr) - 1
    return sp.csr_array((data, indices, indptr), shape=(size, size))


def _permuted(indptr: Integers, indices: Indices, order: Integers) -> tuple[Integers, Indices]:
    """Return the pattern of P A P^T with ascending rows."""
    matrix = _matrix(np.ones(len(indices), dtype=np.int8), indices, indptr)
    matrix = sp.csr_array(matrix[order][:, order])
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


# --- The Cholesky factor of a sparse symmetric positive definite matrix ----------------------------------------------


@dataclass(frozen=True, eq=False)
class Factor:
    """The factor P A P^T = L L^T of a matrix A (N, N) on the pattern of an analysis.

    Attributes:
        analysis: The analysis of the pattern.
        entries: The entries of the panels of L.

    Examples:
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> from graphs.cholesky import Factor, analyze
        >>> A = sp.csr_array(sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(3, 3)))
        >>> factor = Factor.of(analyze(A.indptr, A.indices), A.data)
        >>> np.allclose(factor.solve(A @ np.arange(3.0)), np.arange(3.0))
        True
        >>> round(factor.log_determinant, 6) == round(float(np.linalg.slogdet(A.toarray())[1]), 6)
        True
    """

    analysis: Analysis
    entries: Floats

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        data: Floats,  # (nnz,)
    ) -> "Factor":
        """Factorize a matrix on the pattern.

        Args:
            analysis: The analysis of the pattern.
            data: The entries (nnz,) of the matrix on the pattern; only one triangle is used.

        Raises:
            NotPositiveDefiniteError: If the matrix is not positive definite. `node` is the row of the failing pivot.
            MemoryBudgetError: If the factor does not fit into the memory of this machine.
            InvalidArgumentError: If data have another shape, or an entry is not finite.
        """
        from graphs.cholesky import loops

        if data.shape != analysis.indices.shape:
            raise InvalidArgumentError(
                f"data must hold {len(analysis.indices)} entries on the pattern, got shape {data.shape}."
            )
        if wrong := int((~np.isfinite(data)).sum()):
            raise InvalidArgumentError(f"data must be finite, got {wrong:,} entries that are NaN or infinite.")
        analysis.check_fits()
        s = analysis.supernodes
        source, target, _ = analysis.scatter_indices
        entries = np.zeros(s.panel_pointers[-1])
        entries[target] = data[source]
        stack, update, _, _ = analysis.peaks
        workspaces = (
            np.empty(stack),
            np.empty(update),
            np.empty((2, len(s.starts)), dtype=np.int64),
            np.zeros(2, np.int64),
        )
        with single_threaded_blas():
            for first, last in analysis.chunks:
                wrong = loops.factorize(loops.ADDRESSES, first, last, s, entries, *workspaces)
                if wrong >= 0:
                    raise NotPositiveDefiniteError.at(int(analysis.order[wrong]))
        return cls(analysis, entries)

    @cached_property
    def log_determinant(self) -> float:
        """The logarithm of the determinant of A."""
        from graphs.cholesky import loops

        return 2 * float(loops.sum_of_logarithms(self.analysis.supernodes, self.entries))

    def solve(
        self,
        b: Floats,  # (N,) or (N, k)
    ) -> Floats:
        """Return A^-1 b, of the shape of b.

        Args:
            b: Right-hand sides (N,) or (N, k).
        """
        x = np.ascontiguousarray(b.reshape(self.analysis.size, -1)[self.analysis.order])
        self.solve_in_place(x)
        return self._unordered(x).reshape(b.shape)

    def solve_in_place(
        self,
        x: Floats,  # (N, k)
    ) -> None:
        """Overwrite x with A^-1 x.

        Args:
            x: Right-hand sides (N, k) with contiguous rows, in the order `analysis.order`.
        """
        self._run(x, "forward", "backward")

    def half_solve(
        self,
        b: Floats,  # (N, k)
    ) -> Floats:  # (N, k)
        """Return L^-1 P b.

        The inner products of its columns are b^T A^-1 b.

        Args:
            b: Vectors (N, k).
        """
        x = np.ascontiguousarray(b[self.analysis.order])
        self._run(x, "forward")
        return x

    def sample(
        self,
        standard: Floats,  # (N, k)
    ) -> Floats:  # (N, k)
        """Return P^T L^-T z, which are draws of N(0, A^-1) if z is standard normal.

        Args:
            standard: The vectors z, (N, k).
        """
        x = np.array(standard, order="C")
        self._run(x, "backward")
        return self._unordered(x)

    @property
    def variances(self) -> Floats:
        """The diagonal of A^-1, (N,)."""
        return self._inverse[1]

    @property
    def inverse(self) -> Floats:
        """The entries of A^-1 on the pattern, (nnz,)."""
        return self._inverse[0]

    @cached_property
    def _inverse(self) -> tuple[Floats, Floats]:
        from graphs.cholesky import loops

        a, s = self.analysis, self.analysis.supernodes
        _, target, first_entries = a.scatter_indices
        _, _, path, front = a.peaks
        inverse_entries, diagonal = np.empty(len(target)), np.empty((a.size, 1))
        workspaces = np.empty(path), np.empty(front), np.empty(front)
        state = np.empty((2, len(s.starts)), dtype=np.int64), np.zeros(2, dtype=np.int64)
        wanted = target, first_entries, inverse_entries, diagonal[:, 0]
        with single_threaded_blas():
            for first, last in reversed(a.chunks):
                loops.invert(loops.ADDRESSES, first, last, s, self.entries, *wanted, *workspaces, *state)
        return a.mirrored(inverse_entries), self._unordered(diagonal)[:, 0]

    def _run(self, x: Floats, *names: str) -> None:
        from graphs.cholesky import loops

        s = self.analysis.supernodes
        workspace = np.empty(int(np.diff(s.row_pointers).max(initial=0)) * x.shape[1])
        with single_threaded_blas():
            for name in names:
                getattr(loops, name)(loops.ADDRESSES, s, self.entries, x, workspace)

    def _unordered(self, x: Floats) -> Floats:
        out = np.empty_like(x)
        out[self.analysis.order] = x
        return out
