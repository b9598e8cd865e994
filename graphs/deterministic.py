"""Features of nodes without randomness, behind the interface of `graphs.Walks`: biased, with a bound on the bias.

f(U), f = sqrt(k), is replaced by a polynomial c_h(U), whose rows are sparse while h hops reach few nodes, or by its
part on the smooth end of the spectrum. With e = max |f - c_h| on the spectrum, the matrix of
all nodes has |Phi Phi^T - K|_2 <= 2 e max f + e^2.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.eigenpairs import largest_eigenpairs
from graphs.errors import InvalidArgumentError, MemoryBudgetError
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.walks import Pattern

Floats = NDArray[np.float64]

BASES = ("taylor", "chebyshev")
_BLOCK, _PROBED = 1024, 16
_GRID = 4001
_ROUNDING = 2e-15
"""Of the entries of Chebyshev terms, which are at most 1."""


@dataclass(frozen=True, eq=False)
class SeriesFeatures:
    """Rows of a polynomial in U of degree h; make them with `taylor_features` or `chebyshev_features`.

    Attributes:
        graph: The graph.
        nodes: Positions (n,), one per row.
        basis: "taylor": powers of U; "chebyshev": Chebyshev polynomials of U.
        pattern: The sparsity, the nodes within h hops.
        table: (nnz, h + 1), the entries of the basis polynomials on the pattern.
    """

    graph: Graph
    nodes: NDArray[np.int64]
    basis: str
    pattern: Pattern
    table: sp.csr_array

    @property
    def max_length(self) -> int:
        """The degree h."""
        return int(self.table.shape[1]) - 1

    def weights(self, kernel: GraphKernel) -> Floats:
        """Return the coefficients (h + 1,): the modulation, or those of the Chebyshev interpolant of sqrt(k)."""
        if self.basis == "taylor":
            return kernel.modulation(self.max_length)
        points, transform = interpolation(self.max_length)
        return np.asarray(transform @ kernel.root(1 - points))

    def weights_jacobian(self, kernel: GraphKernel) -> Floats:
        """Return their derivatives in the kernel's parameters, (h + 1, p)."""
        if self.basis == "taylor":
            return kernel.modulation_jacobian(self.max_length)
        points, transform = interpolation(self.max_length)
        return np.asarray(transform @ kernel.root_jacobian(1 - points))

    def features(self, kernel: GraphKernel) -> sp.csr_array:
        """Return Phi, `csr_array` (n, N), for a kernel; rows follow `nodes`, columns are positions."""
        indptr, indices, shape = self.pattern
        return sp.csr_array((self.values(self.weights(kernel)), indices, indptr), shape=shape)

    def values(
        self,
        weights: ArrayLike,  # (h + 1,)
    ) -> Floats:  # (nnz,)
        """Return the values (nnz,) of Phi on `pattern` for coefficients (h + 1,)."""
        return np.asarray(self.table @ _vector("weights", weights, self.table.shape[1]))

    def values_adjoint(
        self,
        v: ArrayLike,  # (nnz,)
    ) -> Floats:  # (h + 1,)
        """Return the adjoint of `values` at v (nnz,), (h + 1,)."""
        return np.asarray(self.table.T @ _vector("v", v, self.table.shape[0]))

    def times(self, kernel: GraphKernel, right: ArrayLike) -> Floats:
        """Return Phi of all N nodes times a matrix (N, p), by h sparse products, without any row of Phi."""
        weights, U = self.weights(kernel), self.graph.shift_operator
        before = np.asarray(right, dtype=np.float64)
        total, now = weights[0] * before, U @ before if len(weights) > 1 else before
        for place, weight in enumerate(weights[1:], 1):
            total = total + weight * now
            if place + 1 < len(weights):
                following = U @ now
                before, now = now, following if self.basis == "taylor" else 2 * following - before
        return np.asarray(total)

    def at(self, nodes: Iterable[Hashable]) -> "SeriesFeatures":
        """Return the features of other nodes (labels)."""
        return _series(self.graph, self.graph.index(nodes), self.basis, self.max_length, None)

    def error_bound(self, kernel: GraphKernel) -> float:
        """Return max |f - c_h| over [-1, 1], on a fine grid of the interval that holds every spectrum."""
        u = np.cos(np.linspace(0, np.pi, _GRID))
        basis = np.polynomial.polynomial if self.basis == "taylor" else np.polynomial.chebyshev
        series = basis.polyval if self.basis == "taylor" else basis.chebval
        return float(np.abs(kernel.root(1 - u) - series(u, self.weights(kernel))).max())


@dataclass(frozen=True, eq=False)
class SpectralFeatures:
    """The part of f(U) on its r largest eigenvalues; make them with `spectral_features`. They are dense.

    Attributes:
        graph: The graph.
        nodes: Positions (n,), one per row.
        eigenvalues: (r,) of U, descending.
        eigenvectors: (N, r).
    """

    graph: Graph
    nodes: NDArray[np.int64]
    eigenvalues: Floats
    eigenvectors: Floats

    @property
    def max_length(self) -> int:
        """One less than the number of weights."""
        return len(self.eigenvalues) - 1

    @cached_property
    def pattern(self) -> Pattern:
        """All of (n, r); the columns are eigenvectors, not nodes."""
        n, r = len(self.nodes), len(self.eigenvalues)
        return Pattern(np.arange(n + 1) * r, np.tile(np.arange(r, dtype=np.int32), n), (n, r))

    def weights(self, kernel: GraphKernel) -> Floats:
        """Return sqrt(k) at the eigenvalues, (r,)."""
        return kernel.root(1 - self.eigenvalues)

    def weights_jacobian(self, kernel: GraphKernel) -> Floats:
        """Return their derivatives in the kernel's parameters, (r, p)."""
        return kernel.root_jacobian(1 - self.eigenvalues)

    def features(self, kernel: GraphKernel) -> sp.csr_array:
        """Return Phi, `csr_array` (n, r), for a kernel; rows follow `nodes`."""
        indptr, indices, shape = self.pattern
        return sp.csr_array((self.values(self.weights(kernel)), indices, indptr), shape=shape)

    def values(
        self,
        weights: ArrayLike,  # (r,)
    ) -> Floats:  # (n r,)
        """Return the values (n r,) of Phi, row by row."""
        return np.asarray(self.eigenvectors[self.nodes] * _vector("weights", weights, len(self.eigenvalues))).ravel()

    def values_adjoint(
        self,
        v: ArrayLike,  # (n r,)
    ) -> Floats:  # (r,)
        """Return the adjoint of `values` at v (n r,), (r,)."""
        shape = (len(self.nodes), len(self.eigenvalues))
        rows = _vector("v", v, shape[0] * shape[1]).reshape(shape)
        return np.asarray((rows * self.eigenvectors[self.nodes]).sum(0))

    def at(self, nodes: Iterable[Hashable]) -> "SpectralFeatures":
        """Return the features of other nodes (labels)."""
        return SpectralFeatures(self.graph, self.graph.index(nodes), self.eigenvalues, self.eigenvectors)

    def error_bound(self, kernel: GraphKernel) -> float:
        """Return max f over what is left out, between -1 and the last eigenvalue."""
        u = np.linspace(-1, self.eigenvalues[-1], _GRID)
        left = self.graph.num_nodes - len(self.eigenvalues)
        return float(np.abs(kernel.root(1 - u)).max()) if left else 0.0


def taylor_features(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,)
    degree: int = 6,
    *,
    max_memory: float | None = None,
) -> SeriesFeatures:
    """Return the rows sum_{l <= h} f_l U^l: the power series, cut.

    Args:
        graph: The graph.
        nodes: Labels (n,); None: every node.
        degree: h, at least 0.
        max_memory: In bytes; refused where all rows would take more, judged by some of them.

    Raises:
        InvalidArgumentError: degree is no integer from 0 on.
        MemoryBudgetError: they would take more than `max_memory`.
        UnknownNodeError: a label names no node.
    """
    return _make(graph, nodes, "taylor", degree, max_memory)


def chebyshev_features(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,)
    degree: int = 6,
    *,
    max_memory: float | None = None,
) -> SeriesFeatures:
    """Return the rows of the polynomial of degree h that interpolates f at Chebyshev points of [-1, 1].

    The same non-zeros as `taylor_features`, and nearly the best uniform error for them.

    Args:
        graph: The graph.
        nodes: Labels (n,); None: every node.
        degree: h, at least 0.
        max_memory: In bytes; refused where all rows would take more, judged by some of them.

    Raises:
        InvalidArgumentError: degree is no integer from 0 on.
        MemoryBudgetError: they would take more than `max_memory`.
        UnknownNodeError: a label names no node.
    """
    return _make(graph, nodes, "chebyshev", degree, max_memory)


def spectral_features(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,)
    rank: int = 64,
) -> SpectralFeatures:
    """Return features on the eigenvectors of the r largest eigenvalues of U, by Lanczos.

    The right ones for long lengthscales, where the kernel lives on few eigenvectors.

    Args:
        graph: The graph.
        nodes: Labels (n,); None: every node.
        rank: r, at most N.

    Raises:
        InvalidArgumentError: rank out of range.
        UnknownNodeError: a label names no node.
    """
    starts = _positions(graph, nodes)
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or not 1 <= rank <= graph.num_nodes:
        raise InvalidArgumentError(f"rank must be an integer from 1 to {graph.num_nodes}, got {rank!r}.")
    if graph.num_nodes <= 50 or 4 * rank > graph.num_nodes:
        eigenvalues, vectors = graph.spectrum
        return SpectralFeatures(graph, starts, 1 - eigenvalues[:rank], np.ascontiguousarray(vectors[:, :rank]))
    return SpectralFeatures(graph, starts, *largest_eigenpairs(graph, int(rank)))


def _make(
    graph: Graph, nodes: Iterable[Hashable] | None, basis: str, degree: int, max_memory: float | None
) -> SeriesFeatures:
    if isinstance(degree, bool) or not isinstance(degree, int | np.integer) or degree < 0:
        raise InvalidArgumentError(f"degree must be an integer from 0 on, got {degree!r}.")
    return _series(graph, _positions(graph, nodes), basis, int(degree), max_memory)


def _vector(name: str, values: ArrayLike, size: int) -> Floats:
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (size,):
        raise InvalidArgumentError(f"{name} must have shape ({size},), got {vector.shape}.")
    return vector


def _positions(graph: Graph, nodes: Iterable[Hashable] | None) -> NDArray[np.int64]:
    if not isinstance(graph, Graph):
        raise InvalidArgumentError(f"A graphs.Graph is needed, got {type(graph).__name__}.")
    return np.arange(graph.num_nodes, dtype=np.int64) if nodes is None else graph.index(nodes)


def interpolation(degree: int) -> tuple[Floats, Floats]:
    """Return the h + 1 Chebyshev points (h + 1,) and the matrix (h + 1, h + 1) from values there to coefficients."""
    count = degree + 1
    angles = np.pi * (np.arange(count) + 0.5) / count
    transform = 2 / count * np.cos(np.arange(count)[:, None] * angles)
    transform[0] /= 2
    return np.cos(angles), transform


def _series(
    graph: Graph, starts: NDArray[np.int64], basis: str, degree: int, max_memory: float | None
) -> SeriesFeatures:
    matrix = graph.shift_operator
    if max_memory is not None and len(starts):
        some = starts[np.linspace(0, len(starts) - 1, min(len(starts), _PROBED), dtype=np.int64)]
        taken = sum(array.nbytes for array in _block(matrix, some, basis, degree)) / len(some) * len(starts)
        if not taken <= max_memory:
            raise MemoryBudgetError(
                f"{len(starts)} rows of degree {degree} take about {taken / 2**20:.4g} MiB, more than max_memory "
                f"allows ({max_memory / 2**20:.4g} MiB). Use a lower degree."
            )
    firsts = range(0, max(1, len(starts)), _BLOCK)
    blocks = [_block(matrix, starts[first : first + _BLOCK], basis, degree) for first in firsts]
    counts, indices, hop_counts, hops, loads = (np.concatenate(column) for column in zip(*blocks, strict=True))
    indptr, pointer = (np.concatenate(([0], np.cumsum(c, dtype=np.int64))) for c in (counts, hop_counts))
    table = sp.csr_array((loads, hops, pointer), shape=(len(indices), degree + 1))
    return SeriesFeatures(graph, starts, basis, Pattern(indptr, indices, (len(starts), graph.num_nodes)), table)


def _cleared(term: sp.csr_array) -> sp.csr_array:
    """Return a Chebyshev term without entries that are rounding errors of 0: on a ring two are left of many."""
    term.data[np.abs(term.data) < _ROUNDING] = 0
    term.eliminate_zeros()
    return sp.csr_array(term)


def _block(matrix: sp.csr_array, starts: NDArray[np.int64], basis: str, degree: int) -> tuple[NDArray[np.generic], ...]:
    """Return, for some rows, their numbers of entries, columns, hops of each entry, hops and entries."""
    n, size = len(starts), matrix.shape[0]
    first = sp.csr_array((np.ones(n), (np.arange(n), starts)), shape=(n, size))
    terms = [first]
    if degree > 0:
        terms.append(sp.csr_array(first @ matrix))
    while len(terms) <= degree:
        following = terms[-1] @ matrix
        terms.append(sp.csr_array(following) if basis == "taylor" else _cleared(2 * following - terms[-2]))
    parts = [term.tocoo() for term in terms]
    rows, columns, loads = (np.concatenate([getattr(p, name) for p in parts]) for name in ("row", "col", "data"))
    hops = np.repeat(np.arange(degree + 1, dtype=np.int32), [p.nnz for p in parts])
    order = np.lexsort((hops, columns, rows))
    rows, columns, hops, loads = rows[order], columns[order], hops[order], loads[order]
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    places = np.flatnonzero(new)
    hop_counts = np.diff(np.append(places, len(rows)))
    return np.bincount(rows[places], minlength=n), columns[places].astype(np.int32), hop_counts, hops, loads
