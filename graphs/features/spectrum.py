"""The largest eigenvalues of U with their eigenvectors, by Lanczos' method."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu

from graphs.checks import check_count, check_fits
from graphs.errors import GraphError
from graphs.features.base import NodeFeatures, Sparsity, as_vector, max_series_degree, resolve_nodes
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.walks.transitions import TransitionModel

Floats = NDArray[np.float64]

_MAX_ROUNDS = 20
"""The largest number of searches for further eigenvalues."""
_SLOW_NODES = 256
"""Neighborhoods grow slowly if `_SLOW_HOPS` hops reach at most this number of nodes, on average."""
_SLOW_HOPS = 6
"""The number of hops after which the mean size of neighborhoods is compared with `_SLOW_NODES`."""
_SHIFT = 1e-6
"""c - 1 in the operator (c - U)^-1."""
_FOUND: "WeakKeyDictionary[Graph, tuple[Floats, Floats]]" = WeakKeyDictionary()
"""The eigenpairs that were computed last for a graph. A fit needs them several times."""


def largest_eigenpairs(graph: Graph, rank: int) -> tuple[Floats, Floats]:
    """Return the r largest eigenvalues of U, descending, and eigenvectors (N, r), kept with the graph.

    The eigenvalue 1 has one eigenvector for each connected component, sqrt(d) there. Lanczos' method from a single
    vector cannot separate the eigenvectors of one eigenvalue. Therefore eigenpairs are deflated as they are found, and
    the search is repeated until nothing larger appears.

    Args:
        graph: The graph.
        rank: The number r.

    Raises:
        GraphError: If fewer eigenvalues converge.

    Examples:
        >>> import graphs
        >>> from graphs.features.spectrum import largest_eigenpairs
        >>> grid = graphs.Graph.from_grid((10, 10))
        >>> values, vectors = largest_eigenpairs(grid, 3)
        >>> round(float(values[0]), 12), vectors.shape, largest_eigenpairs(grid, 3)[1] is vectors
        (1.0, (100, 3), True)
    """
    known = _FOUND.get(graph)
    if known is not None and len(known[0]) == rank:
        return known
    count, component = connected_components(graph.adjacency, directed=False)
    sqrt_degrees = TransitionModel(graph, "weights").sqrt_degrees
    largest = np.zeros(count)
    np.maximum.at(largest, component, sqrt_degrees)
    sqrt_degrees = sqrt_degrees / largest[component]  # squares of very small ones would lose digits
    sqrt_degrees = sqrt_degrees / np.sqrt(np.bincount(component, sqrt_degrees**2))[component]
    indicators = sp.csr_array((sqrt_degrees, (np.arange(graph.num_nodes), component)), shape=(graph.num_nodes, count))
    if rank <= count:
        return np.ones(rank), np.ascontiguousarray(indicators[:, :rank].toarray())
    values, vectors = np.ones(count), indicators.toarray()
    generator, wanted, operator = np.random.default_rng(0), rank - count, _Operator.of(graph)
    for _ in range(_MAX_ROUNDS):
        rest = operator.without(vectors)
        start = generator.standard_normal(graph.num_nodes)
        num_values = wanted if len(values) == count else min(wanted, 8)
        more, more_vectors = _converged_eigenpairs(rest, num_values, start)
        more = operator.back(more)
        new = more > (values[rank - 1] if len(values) >= rank else -np.inf) + 1e-9
        values, vectors = np.concatenate([values, more[new]]), np.hstack([vectors, more_vectors[:, new]])
        order = np.argsort(-values, kind="stable")[:rank]
        values, vectors = values[order], vectors[:, order]
        if len(values) == rank and not new.any():
            break
    if len(values) < rank:
        raise GraphError(
            f"The {rank} largest eigenvalues of the graph must converge, got {len(values)} of them. Use a smaller rank "
            "or chebyshev_features."
        )
    _FOUND[graph] = found = np.clip(values, -1, 1), np.ascontiguousarray(vectors)
    return found


def _converged_eigenpairs(
    matrix: LinearOperator,
    num_values: int,
    start: Floats,  # (N,)
) -> tuple[Floats, Floats]:
    """Return up to `num_values` eigenvalues (k,) that converged, and vectors (N, k)."""
    try:
        values, vectors = eigsh(matrix, k=num_values, which="LA", v0=start)
    except ArpackNoConvergence as error:  # a few eigenvalues of many copies each end older releases' iterations
        values, vectors = error.eigenvalues, error.eigenvectors
    return values, vectors


class _Operator(NamedTuple):
    """A symmetric operator with the eigenvectors of U, largest first.

    It is U itself or, if neighborhoods grow slowly, (c - U)^-1 with c just above 1, by a sparse factorization.
    Eigenvalues of U near 1, 1e-7 apart on a ring of 10,000 nodes, are then well separated, and Lanczos' method needs
    few steps. On graphs whose neighborhoods grow fast the factors would be large.
    """

    product: Callable[[Floats], Floats]
    size: int
    lowest: float
    back: Callable[[Floats], Floats]

    @classmethod
    def of(cls, graph: Graph) -> "_Operator":
        """Return the operator that suits a graph."""
        U, size = graph.shift_operator, graph.num_nodes
        if max_series_degree(graph, _SLOW_NODES) < _SLOW_HOPS:
            return cls(lambda x: U @ x, size, -4.0, lambda values: values)
        factors = splu(((1 + _SHIFT) * sp.eye_array(size) - U).tocsc(), permc_spec="MMD_AT_PLUS_A")
        return cls(factors.solve, size, 0.0, lambda values: 1 + _SHIFT - 1 / values)

    def without(self, vectors: Floats) -> LinearOperator:
        """Return the operator with the eigenvalues of vectors (N, k) set to `lowest`."""

        def matvec(x: Floats) -> Floats:
            x = np.ravel(x)
            inside = vectors @ (vectors.T @ x)
            outside = self.product(x - inside)
            return np.asarray(outside - vectors @ (vectors.T @ outside) + self.lowest * inside)

        return LinearOperator((self.size, self.size), matvec=matvec, dtype=np.float64)


# --- Spectral features of nodes: deterministic and biased, with a bound on the bias ----------------------------------
#
# f(U), f = sqrt(k), is restricted to the eigenvectors of the largest eigenvalues of U.


_GRID = 4001
"""The number of points at which the error is evaluated."""


@dataclass(frozen=True, eq=False)
class SpectralFeatures(NodeFeatures):
    """f(U) restricted to its r largest eigenvalues, from `spectral_features`; dense.

    Attributes:
        graph: The graph.
        nodes: Positions (n,), one per row.
        eigenvalues: Eigenvalues (r,) of U, descending.
        eigenvectors: Eigenvectors (N, r).

    Examples:
        >>> import graphs
        >>> features = graphs.spectral_features(graphs.Graph.from_grid((9, 9)), rank=8)
        >>> features.features(graphs.kernels.Diffusion(4.0)).shape
        (81, 8)
    """

    graph: Graph
    nodes: NDArray[np.int64]
    eigenvalues: Floats
    eigenvectors: Floats

    @property
    def max_length(self) -> int:
        """The number of weights minus one."""
        return len(self.eigenvalues) - 1

    @cached_property
    def pattern(self) -> Sparsity:
        """All entries of (n, r); the columns are eigenvectors, not nodes."""
        n, r = len(self.nodes), len(self.eigenvalues)
        return Sparsity(np.arange(n + 1) * r, np.tile(np.arange(r, dtype=np.int32), n), (n, r))

    @np.errstate(under="ignore")
    def weights(self, kernel: GraphKernel) -> Floats:
        """Return sqrt(k) at the eigenvalues, (r,).

        Args:
            kernel: The kernel.
        """
        return kernel.root(1 - self.eigenvalues)

    @np.errstate(under="ignore")
    def weights_jacobian(self, kernel: GraphKernel) -> Floats:
        """Return the derivatives of the weights in the parameters of the kernel, (r, p).

        Args:
            kernel: The kernel, with p parameters.
        """
        return kernel.root_jacobian(1 - self.eigenvalues)

    @np.errstate(under="ignore")
    def values(
        self,
        weights: ArrayLike,  # (r,)
    ) -> Floats:  # (n r,)
        """Return the values (n r,) of Phi, row by row.

        Args:
            weights: Weights (r,), for example of `weights`.
        """
        return np.asarray(self.eigenvectors[self.nodes] * as_vector("weights", weights, len(self.eigenvalues))).ravel()

    @np.errstate(under="ignore")
    def values_adjoint(
        self,
        v: ArrayLike,  # (n r,)
    ) -> Floats:  # (r,)
        """Return the adjoint of `values`: the gradient (r,) in the weights.

        Args:
            v: The gradient (n r,) in the values.
        """
        shape = (len(self.nodes), len(self.eigenvalues))
        rows = as_vector("v", v, shape[0] * shape[1]).reshape(shape)
        return np.asarray((rows * self.eigenvectors[self.nodes]).sum(0))

    def at(self, nodes: Iterable[Hashable]) -> "SpectralFeatures":
        """Return the features of other nodes (labels).

        Args:
            nodes: The labels of the nodes.
        """
        return SpectralFeatures(self.graph, self.graph.index(nodes), self.eigenvalues, self.eigenvectors)

    @np.errstate(under="ignore")
    def error_bound(self, kernel: GraphKernel) -> float:
        """Return max f between -1 and the last eigenvalue, which bounds the omitted part.

        Args:
            kernel: The kernel.
        """
        u = np.linspace(-1, self.eigenvalues[-1], _GRID)
        left = self.graph.num_nodes - len(self.eigenvalues)
        return float(np.abs(kernel.root(1 - u)).max()) if left else 0.0


@np.errstate(under="ignore")
def spectral_features(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,)
    rank: int = 64,
) -> SpectralFeatures:
    """Return features on the eigenvectors of the r largest eigenvalues of U.

    They are computed by Lanczos' method. They suit long lengthscales, for which few eigenvectors carry the kernel.

    Args:
        graph: The graph.
        nodes: Labels (n,). If None, every node.
        rank: The number r of eigenvectors, at most N.

    Raises:
        InvalidArgumentError: If the rank is out of range.
        UnknownNodeError: If a label is not a node.

    Examples:
        >>> import graphs
        >>> g, kernel = graphs.Graph.from_grid((9, 9)), graphs.kernels.Diffusion(6.0)
        >>> graphs.spectral_features(g, rank=20).error_bound(kernel) < 0.01
        True
    """
    starts = resolve_nodes(graph, nodes)
    check_count("rank", rank, most=graph.num_nodes)
    check_fits(f"{rank} eigenvectors of {graph.num_nodes} nodes", 24.0 * rank * graph.num_nodes, "Use a lower rank.")
    if graph.num_nodes <= 50 or 4 * rank > graph.num_nodes:
        eigenvalues, vectors = graph.spectrum
        return SpectralFeatures(graph, starts, 1 - eigenvalues[:rank], vectors[:, :rank].copy())
    return SpectralFeatures(graph, starts, *largest_eigenpairs(graph, int(rank)))
