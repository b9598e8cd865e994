"""Polynomial features of nodes: deterministic and biased, with a bound on the bias.

f(U), f = sqrt(k), is approximated by a polynomial c_h(U), whose rows are sparse if h hops reach few nodes. With
e = max |f - c_h| on the spectrum, the matrix of all nodes satisfies |Phi Phi^T - K|_2 <= 2 e max f + e^2. See
`graphs.features.spectrum` for an approximation on the smooth end of the spectrum.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import pointers
from graphs.checks import check_count, check_fits
from graphs.features.base import NodeFeatures, Sparsity, as_vector, resolve_nodes
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.walks.transitions import count_within_hops

Floats = NDArray[np.float64]

MAX_DEGREE = 10_000
"""The largest degree of a polynomial."""
_BLOCK_ROWS = 1024
"""The number of rows that are computed at once."""
_SAMPLE_ROWS = 16
"""The largest number of rows from which the memory is estimated."""
_ENTRY_BYTES = 12
"""The size of an entry of a term in bytes: a number and its power."""
_GRID = 4001
"""The number of points at which the error is evaluated."""
_ROUNDING = 2e-15
"""Entries of Chebyshev terms, which are at most 1, are rounding errors below this value."""


@dataclass(frozen=True, eq=False)
class SeriesFeatures(NodeFeatures):
    """Rows of a polynomial in U of degree h.

    Attributes:
        graph: The graph.
        nodes: Positions (n,), one per row.
        basis: "taylor" for powers of U, or "chebyshev" for Chebyshev polynomials of U.
        pattern: The sparsity of Phi: nodes within h hops.
        table: The entries (nnz, h + 1) of the basis polynomials on the pattern.

    Examples:
        >>> import graphs
        >>> features = graphs.chebyshev_features(graphs.Graph.from_grid((9, 9)), degree=4)
        >>> features.max_length, features.error_bound(graphs.kernels.Diffusion(1.0)) < 1e-4
        (4, True)
    """

    graph: Graph
    nodes: NDArray[np.int64]
    basis: str
    pattern: Sparsity
    table: sp.csr_array

    @property
    def max_length(self) -> int:
        """The degree h."""
        return int(self.table.shape[1]) - 1

    @np.errstate(under="ignore")
    def weights(self, kernel: GraphKernel) -> Floats:
        """Return the coefficients (h + 1,) of a kernel in the basis.

        They are the modulation, or the coefficients of the Chebyshev interpolant.

        Args:
            kernel: The kernel.
        """
        if self.basis == "taylor":
            return kernel.modulation(self.max_length)
        points, transform = chebyshev_interpolation(self.max_length)
        return np.asarray(transform @ kernel.root(1 - points))

    @np.errstate(under="ignore")
    def weights_jacobian(self, kernel: GraphKernel) -> Floats:
        """Return the derivatives (h + 1, p) of the coefficients in the parameters.

        Args:
            kernel: The kernel, with p parameters.
        """
        if self.basis == "taylor":
            return kernel.modulation_jacobian(self.max_length)
        points, transform = chebyshev_interpolation(self.max_length)
        return np.asarray(transform @ kernel.root_jacobian(1 - points))

    @np.errstate(under="ignore")
    def values(
        self,
        weights: ArrayLike,  # (h + 1,)
    ) -> Floats:  # (nnz,)
        """Return the values (nnz,) of Phi on `pattern` for coefficients (h + 1,).

        Args:
            weights: Coefficients (h + 1,), for example of `weights`.
        """
        return np.asarray(self.table @ as_vector("weights", weights, self.table.shape[1]))

    @np.errstate(under="ignore")
    def values_adjoint(
        self,
        v: ArrayLike,  # (nnz,)
    ) -> Floats:  # (h + 1,)
        """Return the adjoint of `values`: the gradient (h + 1,) in the coefficients.

        Args:
            v: The gradient (nnz,) in the values.
        """
        return np.asarray(self.table.T @ as_vector("v", v, self.table.shape[0]))

    @np.errstate(under="ignore")
    def matmul(self, kernel: GraphKernel, right: ArrayLike) -> Floats:
        """Return the product of Phi of all N nodes with a vector (N,) or matrix (N, k).

        It takes h sparse products and forms no row of Phi.

        Args:
            kernel: The kernel.
            right: A vector or matrix (N,) or (N, k).
        """
        weights, U = self.weights(kernel), self.graph.shift_operator
        before = np.asarray(right, dtype=np.float64)
        total, current = weights[0] * before, U @ before if len(weights) > 1 else before
        for power, weight in enumerate(weights[1:], 1):
            total = total + weight * current
            if power + 1 < len(weights):
                following = U @ current
                before, current = current, following if self.basis == "taylor" else 2 * following - before
        return np.asarray(total)

    def at(self, nodes: Iterable[Hashable]) -> "SeriesFeatures":
        """Return the features of other nodes (labels).

        Args:
            nodes: The labels of the nodes.
        """
        return _series(self.graph, self.graph.index(nodes), self.basis, self.max_length, None)

    @np.errstate(under="ignore")
    def error_bound(self, kernel: GraphKernel) -> float:
        """Return max |f - c_h| on a fine grid of [-1, 1], which contains every spectrum.

        Args:
            kernel: The kernel.
        """
        u = np.cos(np.linspace(0, np.pi, _GRID))
        basis = np.polynomial.polynomial if self.basis == "taylor" else np.polynomial.chebyshev
        series = basis.polyval if self.basis == "taylor" else basis.chebval
        return float(np.abs(kernel.root(1 - u) - series(u, self.weights(kernel))).max())


@np.errstate(under="ignore")
def taylor_features(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,)
    degree: int = 6,
    *,
    max_memory: float | None = None,
) -> SeriesFeatures:
    """Return features by a truncated power series of the square root of the kernel.

    The row of node i is row i of sum_{l <= h} f_l U^l. U is `graph.shift_operator`, and f_l are the coefficients
    `kernel.modulation(h)` of the kernel that is passed to `features`. The features are biased.
    `SeriesFeatures.error_bound` bounds the error.

    Args:
        graph: The graph.
        nodes: Labels (n,). If None, every node.
        degree: The degree h, from 0 to 10,000. The default is 6.
        max_memory: The memory allowed in bytes, compared with an estimate from 16 of the nodes. If None, the memory of
            this machine.

    Raises:
        InvalidArgumentError: If the degree is out of range.
        MemoryBudgetError: If the features would need more memory.
        UnknownNodeError: If a label is not a node.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_grid((9, 9))
        >>> features = graphs.taylor_features(g, nodes=[(0, 0), (4, 4)], degree=3)
        >>> features.features(graphs.kernels.Diffusion(1.0)).shape
        (2, 81)
    """
    return _series(graph, resolve_nodes(graph, nodes), "taylor", degree, max_memory)


@np.errstate(under="ignore")
def chebyshev_features(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,)
    degree: int = 6,
    *,
    max_memory: float | None = None,
) -> SeriesFeatures:
    """Return features of the Chebyshev interpolant of f, of degree h.

    They have the same non-zeros as `taylor_features`, and nearly the smallest uniform error on [-1, 1] for them.

    Args:
        graph: The graph.
        nodes: Labels (n,). If None, every node.
        degree: The degree h, from 0 to 10,000. The default is 6.
        max_memory: The memory allowed in bytes, compared with an estimate from 16 of the nodes. If None, the memory of
            this machine.

    Raises:
        InvalidArgumentError: If the degree is out of range.
        MemoryBudgetError: If the features would need more memory.
        UnknownNodeError: If a label is not a node.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> g, kernel = graphs.Graph.from_grid((9, 9)), graphs.kernels.Diffusion(1.0)
        >>> phi = graphs.chebyshev_features(g, degree=8).features(kernel)
        >>> np.allclose((phi @ phi.T).toarray(), kernel.exact(g), atol=1e-8)
        True
    """
    return _series(graph, resolve_nodes(graph, nodes), "chebyshev", degree, max_memory)


def chebyshev_interpolation(degree: int) -> tuple[Floats, Floats]:
    """Return h + 1 Chebyshev points, and the matrix that maps values there to coefficients.

    Args:
        degree: The degree h.

    Examples:
        >>> from graphs.features import chebyshev_interpolation
        >>> points, transform = chebyshev_interpolation(2)
        >>> (transform @ points).round(12).tolist()  # T_1 has the coefficients 0, 1, 0
        [0.0, 1.0, -0.0]
    """
    count = degree + 1
    angles = np.pi * (np.arange(count) + 0.5) / count
    transform = 2 / count * np.cos(np.arange(count)[:, None] * angles)
    transform[0] /= 2
    return np.cos(angles), transform


def _series(
    graph: Graph, starts: NDArray[np.int64], basis: str, degree: int, max_memory: float | None
) -> SeriesFeatures:
    matrix, degree = graph.shift_operator, check_count("degree", degree, 0, MAX_DEGREE)
    if len(starts):
        sample = starts[np.linspace(0, len(starts) - 1, min(len(starts), _SAMPLE_ROWS), dtype=np.int64)]
        entries_of_row = count_within_hops(graph, sample, degree, graph.num_nodes).sum(1)  # of all terms
        size = _ENTRY_BYTES * entries_of_row.mean() * len(starts)
        check_fits(f"{len(starts)} rows of degree {degree}", size, "Use a lower degree.", max_memory)
    firsts = range(0, max(1, len(starts)), _BLOCK_ROWS)
    blocks = [_block(matrix, starts[first : first + _BLOCK_ROWS], basis, degree) for first in firsts]
    counts, indices, hop_counts, hops, loads = (np.concatenate(column) for column in zip(*blocks, strict=True))
    table = sp.csr_array((loads, hops, pointers(hop_counts)), shape=(len(indices), degree + 1))
    pattern = Sparsity(pointers(counts), indices, (len(starts), graph.num_nodes))
    return SeriesFeatures(graph, starts, basis, pattern, table)


def _cleared(term: sp.csr_array) -> sp.csr_array:
    """Return a Chebyshev term without entries that are rounding errors of 0."""
    term.data[np.abs(term.data) < _ROUNDING] = 0
    term.eliminate_zeros()
    return sp.csr_array(term)


def _block(matrix: sp.csr_array, starts: NDArray[np.int64], basis: str, degree: int) -> tuple[NDArray[np.generic], ...]:
    """Return entry counts, columns, hop counts, hops and entries of rows."""
    n, size = len(starts), matrix.shape[0]
    first = sp.csr_array((np.ones(n), (np.arange(n), starts)), shape=(n, size))
    terms = [first]
    if degree > 0:
        terms.append(sp.csr_array(first @ matrix))
    while len(terms) <= degree:
        following = terms[-1] @ matrix
        terms.append(sp.csr_array(following) if basis == "taylor" else _cleared(2 * following - terms[-2]))
    entries = [term.tocoo() for term in terms]
    rows, columns, loads = (np.concatenate([getattr(p, name) for p in entries]) for name in ("row", "col", "data"))
    hops = np.repeat(np.arange(degree + 1, dtype=np.int32), [p.nnz for p in entries])
    order = np.lexsort((hops, columns, rows))
    rows, columns, hops, loads = rows[order], columns[order], hops[order], loads[order]
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    first_visits = np.flatnonzero(new)
    hop_counts = np.diff(np.append(first_visits, len(rows)))
    return np.bincount(rows[first_visits], minlength=n), columns[first_visits].astype(np.int32), hop_counts, hops, loads
