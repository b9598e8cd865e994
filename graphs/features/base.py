"""The interface of node features: rows that are linear in a few weights, which depend on a kernel."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_count
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph, check_graph
from graphs.kernels import GraphKernel
from graphs.walks.transitions import count_within_hops

Floats = NDArray[np.float64]


class Sparsity(NamedTuple):
    """The sparsity of Phi in CSR form.

    Examples:
        >>> import graphs
        >>> features = graphs.spectral_features(graphs.Graph.from_grid((3, 3)), rank=2)
        >>> features.pattern.shape
        (9, 2)
    """

    indptr: NDArray[np.int64]  # (n + 1,)
    indices: NDArray[np.int32]  # (nnz,) ascending in each row: positions, or numbers of eigenvectors
    shape: tuple[int, int]  # (n, N), or (n, r) for r eigenvectors


class NodeFeatures(ABC):
    """Features Phi of n nodes of a graph: sparse rows with a fixed pattern.

    `values` is linear, `values_adjoint` is its adjoint, and `features(kernel)` holds `values(weights(kernel))`.

    Attributes:
        graph: The graph.
        nodes: Positions (n,), one per row.
        pattern: The sparsity of Phi.

    Examples:
        >>> import graphs
        >>> g, kernel = graphs.Graph.from_grid((3, 3)), graphs.kernels.Diffusion(1.0)
        >>> features = graphs.chebyshev_features(g, degree=4)
        >>> features.values(features.weights(kernel)).shape == features.pattern.indices.shape
        True
    """

    graph: Graph
    nodes: NDArray[np.int64]

    if TYPE_CHECKING:  # a field in some subclasses, a cached property in another

        @property
        @abstractmethod
        def pattern(self) -> Sparsity:
            """The sparsity of Phi."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The number of weights minus one: the last power of U, or the last eigenvector."""

    @abstractmethod
    def weights(self, kernel: GraphKernel) -> Floats:
        """Return the weights (max_length + 1,) of a kernel, for `values`.

        Args:
            kernel: The kernel.
        """

    @abstractmethod
    def weights_jacobian(self, kernel: GraphKernel) -> Floats:
        """Return the derivatives of `weights` in the parameters, (max_length + 1, p).

        Args:
            kernel: The kernel, with p parameters.
        """

    @abstractmethod
    def values(
        self,
        weights: ArrayLike,  # (max_length + 1,)
        /,
    ) -> Floats:  # (nnz,)
        """Return the values (nnz,) of Phi on `pattern` for given weights.

        Args:
            weights: The weights (max_length + 1,), for example of `weights`.
        """

    @abstractmethod
    def values_adjoint(
        self,
        v: ArrayLike,  # (nnz,)
    ) -> Floats:  # (max_length + 1,)
        """Return the adjoint of `values`: the gradient (max_length + 1,) in the weights.

        Args:
            v: The gradient (nnz,) in the values.
        """

    @abstractmethod
    def at(self, nodes: Iterable[Hashable]) -> "NodeFeatures":
        """Return the same features for other nodes (labels).

        Args:
            nodes: The labels of the nodes.
        """

    def features(self, kernel: GraphKernel) -> sp.csr_array:
        """Return Phi, `csr_array` (n, N) or (n, r), for a kernel.

        Rows follow `nodes`, and columns are those of `pattern`.

        Args:
            kernel: The kernel.
        """
        return feature_matrix(self, kernel)


@np.errstate(under="ignore")
def feature_matrix(draw: NodeFeatures, kernel: GraphKernel) -> sp.csr_array:
    """Return Phi (n, N) for a kernel, without the warnings of walks.

    Args:
        draw: The features.
        kernel: The kernel.

    Examples:
        >>> import graphs
        >>> from graphs.features import feature_matrix
        >>> g = graphs.Graph.from_grid((3, 3))
        >>> feature_matrix(graphs.taylor_features(g, degree=2), graphs.kernels.Diffusion(1.0)).shape
        (9, 9)
    """
    indptr, indices, shape = draw.pattern
    return sp.csr_array((draw.values(draw.weights(kernel)), indices, indptr), shape=shape)


def resolve_nodes(
    graph: Graph,
    nodes: Iterable[Hashable] | None,  # (n,) labels
) -> NDArray[np.int64]:  # (n,)
    """Return the positions (n,) of n labels, or of every node if labels are None.

    Args:
        graph: The graph.
        nodes: Labels (n,). If None, every node.

    Raises:
        InvalidArgumentError: If the first argument is not a graph.
        UnknownNodeError: If a label is not a node.

    Examples:
        >>> import graphs
        >>> from graphs.features.base import resolve_nodes
        >>> resolve_nodes(graphs.Graph.from_edges([("a", "b")]), ["b"]).tolist()
        [1]
    """
    check_graph(graph)
    return np.arange(graph.num_nodes, dtype=np.int64) if nodes is None else graph.index(nodes)


def as_vector(name: str, values: ArrayLike, size: int) -> Floats:  # (size,)
    """Return numbers of shape (size,).

    Args:
        name: The name of the argument, for the message.
        values: The numbers.
        size: The length.

    Raises:
        InvalidArgumentError: If they have another shape.

    Examples:
        >>> from graphs.features.base import as_vector
        >>> as_vector("weights", [1, 2], 2).tolist()
        [1.0, 2.0]
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (size,):
        raise InvalidArgumentError(f"{name} must have shape ({size},), got {vector.shape}.")
    return vector


# --- The growth of neighborhoods -------------------------------------------------------------------------------------


_SAMPLE_NODES = 64
"""The largest number of nodes whose neighborhoods are counted."""
_MAX_DEGREE = 200
"""The largest degree that is returned."""


def max_series_degree(graph: Graph, max_nonzeros: int) -> int:
    """Return the largest degree of a series within a budget of non-zeros.

    The number of non-zeros is a mean over 64 nodes. The degree is at least 1, at most 200, and at most the number of
    hops that reach every node.

    Args:
        graph: The graph.
        max_nonzeros: The budget per row.

    Examples:
        >>> import graphs
        >>> graphs.max_series_degree(graphs.Graph.from_grid((50, 50), periodic=True), max_nonzeros=64)
        5
    """
    check_graph(graph)
    sample = np.sort(np.random.default_rng(0).permutation(graph.num_nodes)[:_SAMPLE_NODES])
    limit = min(16 * check_count("max_nonzeros", max_nonzeros), graph.num_nodes)
    sizes = count_within_hops(graph, sample, _MAX_DEGREE, limit).mean(0)
    fits = int((sizes <= max_nonzeros).sum()) - 1
    grows = int((np.diff(sizes) > 0).sum())
    return max(1, min(fits, grows))
