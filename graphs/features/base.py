"""The role of features of nodes: rows that are linear in a few weights, which a kernel gives."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.errors import InvalidArgumentError
from graphs.graph import Graph, check_graph
from graphs.kernels import GraphKernel

Floats = NDArray[np.float64]


class Pattern(NamedTuple):
    """The sparsity of Phi in CSR form, fixed for a draw."""

    indptr: NDArray[np.int64]  # (n + 1,)
    indices: NDArray[np.int32]  # (nnz,) ascending in each row: positions, or numbers of eigenvectors
    shape: tuple[int, int]  # (n, N), or (n, r) for r eigenvectors


class NodeFeatures(ABC):
    """Features Phi of n nodes of a graph: sparse rows on a fixed pattern, for any kernel.

    Law: `values` is linear, `values_adjoint` its adjoint, and `features(kernel)` holds `values(weights(kernel))`.

    Attributes:
        graph: The graph.
        nodes: Positions (n,), one per row.
        pattern: The sparsity.
    """

    graph: Graph
    nodes: NDArray[np.int64]

    if TYPE_CHECKING:  # a field of some kinds, computed when asked for by another

        @property
        @abstractmethod
        def pattern(self) -> Pattern:
            """The sparsity."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """One less than the number of weights: the last power of U, or the last eigenvector."""

    @abstractmethod
    def weights(self, kernel: GraphKernel) -> Floats:
        """Return what `values` wants of a kernel, (max_length + 1,)."""

    @abstractmethod
    def weights_jacobian(self, kernel: GraphKernel) -> Floats:
        """Return the derivatives of `weights` in the kernel's parameters, (max_length + 1, p)."""

    @abstractmethod
    def values(
        self,
        weights: ArrayLike,  # (max_length + 1,)
        /,
    ) -> Floats:  # (nnz,)
        """Return the values (nnz,) of Phi on `pattern`."""

    @abstractmethod
    def values_adjoint(
        self,
        v: ArrayLike,  # (nnz,)
    ) -> Floats:  # (max_length + 1,)
        """Return the adjoint of `values` at v (nnz,): the gradient with respect to the weights."""

    @abstractmethod
    def at(self, nodes: Iterable[Hashable]) -> "NodeFeatures":
        """Return the features of other nodes (labels)."""

    def features(self, kernel: GraphKernel) -> sp.csr_array:
        """Return Phi, `csr_array` (n, N) or (n, r), for a kernel; rows follow `nodes`, columns `pattern`."""
        return feature_matrix(self, kernel)


@np.errstate(under="ignore")
def feature_matrix(draw: NodeFeatures, kernel: GraphKernel) -> sp.csr_array:
    """Return Phi (n, N) of features for a kernel, without the warnings of walks."""
    indptr, indices, shape = draw.pattern
    return sp.csr_array((draw.values(draw.weights(kernel)), indices, indptr), shape=shape)


def resolve_nodes(
    graph: Graph,
    nodes: Iterable[Hashable] | None,  # (n,) labels
) -> NDArray[np.int64]:  # (n,)
    """Return the positions (n,) of n labels; None: of every node.

    Raises:
        InvalidArgumentError: what should be the graph is none.
        UnknownNodeError: a label names no node.
    """
    check_graph(graph)
    return np.arange(graph.num_nodes, dtype=np.int64) if nodes is None else graph.index(nodes)


def as_vector(name: str, values: ArrayLike, size: int) -> Floats:  # (size,)
    """Return numbers of shape (size,).

    Raises:
        InvalidArgumentError: of another shape; `name` is the argument's.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (size,):
        raise InvalidArgumentError(f"{name} must have shape ({size},), got {vector.shape}.")
    return vector
