"""What a sparse Cholesky factorisation needs to know of a pattern: once for all matrices on it."""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.checks import check_fits
from graphs.cholesky.orders import order

Integers = NDArray[np.int64]
Indices = NDArray[np.int32]

CHUNK_FLOPS = 5e8


@dataclass(frozen=True, eq=False)
class Supernodes:
    """The supernodes of a factor, s of them, in postorder; see `graphs.cholesky.compiled.fronts`.

    Attributes:
        starts: Columns where they begin, (s + 1,).
        tops: Where the rows of their panels begin, (s + 1,).
        rows: Of all panels, one after another.
        there: Where those below a supernode's own are in the panel of its parent.
        above: Their parents, (s,), -1 of roots.
        children: How many they have, (s,).
        panels: Where the entries of their panels begin, (s + 1,).
    """

    starts: Indices
    tops: Integers
    rows: Indices
    there: Indices
    above: Indices
    children: Indices
    panels: Integers

    @cached_property
    def flops(self) -> NDArray[np.float64]:
        """Multiplications and additions of each one's factorisation, (s,)."""
        columns, rows = np.diff(self.starts).astype(np.float64), np.diff(self.tops).astype(np.float64)
        below = rows - columns
        return np.asarray(columns**3 / 3 + below * columns**2 + below**2 * columns)

    @cached_property
    def chunks(self) -> list[tuple[int, int]]:
        """Ranges of supernodes between which an interrupt is heard, each of about half a second at most."""
        part = np.floor(np.cumsum(self.flops) / CHUNK_FLOPS)
        cuts = np.flatnonzero(np.diff(part)) + 1
        ends = [0, *cuts.tolist(), len(self.above)]
        return [(a, b) for a, b in itertools.pairwise(ends) if a < b]


@dataclass(frozen=True, eq=False)
class Analysis:
    """The order of elimination, the supernodes of the factor, and where entries of a matrix go.

    Attributes:
        indptr: Of the pattern, CSR with both triangles and the whole diagonal, (N + 1,).
        indices: Ascending in each row, (nnz,).
        order: What is eliminated k-th, (N,).
        supernodes: Of the factor.
        num_nonzeros: Of the factor, exactly; its panels hold some zeros more.
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
        """Analyse a pattern for an order of elimination, which becomes one in postorder with as many non-zeros.

        Raises:
            MemoryBudgetError: this machine has no memory for the factor; how much it would take.
        """
        from graphs.cholesky import compiled

        order = order[compiled.postorder(compiled.elimination_tree(*_permuted(indptr, indices, order)))]
        permuted = _permuted(indptr, indices, order)
        parent = compiled.elimination_tree(*permuted)
        counts = compiled.column_counts(*permuted, parent)
        _check_fits(len(order), int(counts.sum()), 8.0 * float(counts.sum()))
        starts, heights = compiled.supernodes(parent, counts)
        _, above, children = compiled.supernode_tree(parent, starts)
        tops = _cumulated(heights)
        rows, there = compiled.panel_rows(*permuted, starts, above, tops)
        panels = _cumulated(np.diff(starts) * heights)
        found = Supernodes(starts, tops, rows, there, above, children, panels)
        return cls(indptr, indices, order, found, int(counts.sum()))

    @property
    def size(self) -> int:
        """The number N of rows."""
        return len(self.order)

    @property
    def flops(self) -> float:
        """Multiplications and additions of a factorisation."""
        return float(self.supernodes.flops.sum())

    @cached_property
    def num_bytes(self) -> float:
        """The memory that a factor and its inverse on the pattern take, with what they need on the way."""
        stack, update, path, front = self.peaks
        panels = int(self.supernodes.panels[-1])
        return 8.0 * (panels + max(stack + update, path + 2 * front) + 4 * len(self.indices)) + 12.0 * len(
            self.supernodes.rows
        )

    def check_fits(self) -> None:
        """Refuse a factorisation for which this machine has no memory.

        Raises:
            MemoryBudgetError: how much it would take.
        """
        _check_fits(self.size, self.num_nonzeros, self.num_bytes)

    @cached_property
    def peaks(self) -> tuple[int, int, int, int]:
        """The most entries at once: of update matrices that wait, of one, of inverse fronts, of one."""
        from graphs.cholesky import compiled

        s = self.supernodes
        stack, update, path, front = compiled.peaks(s.starts, s.tops, s.above, s.children)
        return int(stack), int(update), int(path), int(front)

    @cached_property
    def placement(self) -> tuple[Integers, Integers, Integers]:
        """Where entries of the factored triangle are in the matrix, (e,), and in the panels, (e,); see `placement`."""
        from graphs.cholesky import compiled

        s = self.supernodes
        source, target, begins = compiled.placement(
            self.indptr, self.indices, self.order, self.rank, s.starts, s.tops, s.rows, s.panels
        )
        return source, target, begins

    @cached_property
    def rank(self) -> Integers:
        """When each row is eliminated, (N,): the inverse of the order."""
        rank = np.empty(self.size, dtype=np.int64)
        rank[self.order] = np.arange(self.size)
        return rank

    @cached_property
    def pairs(self) -> tuple[Indices, Indices]:
        """Which rows and columns the entries of the factored triangle have, as places in the order, (e,) each."""
        (source, _, _), rank = self.placement, self.rank.astype(np.int32)
        return rank[self.indices[source]], np.repeat(rank, np.diff(self.indptr))[source]

    def mirrored(self, triangle: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the entries (nnz,) of a symmetric matrix whose entries in the factored triangle are these, (e,)."""
        source, _, _ = self.placement
        out = np.empty(len(self.indices))
        out[source] = triangle
        out[self.mirror[source]] = triangle
        return out

    @cached_property
    def mirror(self) -> Integers:
        """Where the entry (j, i) is, of each entry (i, j) of the pattern, (nnz,)."""
        numbers = np.arange(len(self.indices))
        return np.asarray(_matrix(numbers, self.indices, self.indptr).T.tocsr().data)


def analyze(
    indptr: Integers,  # (N + 1,)
    indices: Indices,  # (nnz,)
    coordinates: NDArray[np.float64] | None = None,  # (N, 2) or (N, 3)
    method: str = "auto",
) -> Analysis:
    """Analyse a pattern in an order with little fill.

    Args:
        indptr: Of CSR with both triangles and the whole diagonal.
        indices: Ascending in each row.
        coordinates: Places of the rows, where they have some.
        method: Of `graphs.cholesky.orders.order`.
    """
    return Analysis.of(indptr, indices, order(indptr, indices, coordinates, method))


def _check_fits(size: int, num_nonzeros: int, num_bytes: float) -> None:
    check_fits(
        f"The Cholesky factor of {size:,} nodes, with {num_nonzeros:,} non-zeros, and what it needs",
        num_bytes,
        "A graph with hubs or edges between far places has no sparse factor: use walks or a series.",
    )


def _matrix(data: NDArray[np.generic], indices: Indices, indptr: Integers) -> sp.csr_array:
    size = len(indptr) - 1
    return sp.csr_array((data, indices, indptr), shape=(size, size))


def _permuted(indptr: Integers, indices: Indices, order: Integers) -> tuple[Integers, Indices]:
    """Return the pattern of P A P^T, rows ascending."""
    matrix = _matrix(np.ones(len(indices), dtype=np.int8), indices, indptr)
    matrix = sp.csr_array(matrix[order][:, order])
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def _cumulated(sizes: NDArray[np.generic]) -> Integers:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
