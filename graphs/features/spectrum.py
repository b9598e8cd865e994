"""Spectral features of nodes: deterministic and biased, with a bound on the bias.

f(U), f = sqrt(k), is restricted to the eigenvectors of the largest eigenvalues of U.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_count, check_fits
from graphs.features.base import NodeFeatures, Pattern, as_vector, resolve_nodes
from graphs.features.eigenpairs import largest_eigenpairs
from graphs.graph import Graph
from graphs.kernels import GraphKernel

Floats = NDArray[np.float64]

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
    def pattern(self) -> Pattern:
        """All entries of (n, r); the columns are eigenvectors, not nodes."""
        n, r = len(self.nodes), len(self.eigenvalues)
        return Pattern(np.arange(n + 1) * r, np.tile(np.arange(r, dtype=np.int32), n), (n, r))

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
