"""The largest eigenvalues of U with their eigenvectors, by Lanczos' method."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu

from graphs.errors import GraphError
from graphs.features.neighborhoods import max_series_degree
from graphs.graph import Graph
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


def largest_eigenpairs(graph: Graph, rank: int) -> tuple[Floats, Floats]:
    """Return the r largest eigenvalues of U, descending, and eigenvectors (N, r).

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
        >>> from graphs.features.eigenpairs import largest_eigenpairs
        >>> values, vectors = largest_eigenpairs(graphs.Graph.from_grid((10, 10)), 3)
        >>> round(float(values[0]), 12), vectors.shape
        (1.0, (100, 3))
    """
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
    return np.clip(values, -1, 1), np.ascontiguousarray(vectors)


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
