"""Features of nodes on the smooth end of the spectrum: without randomness, biased, with a bound on the bias.

f(U), f = sqrt(k), is replaced by its part on the eigenvectors of the largest eigenvalues of U.
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


@dataclass(frozen=True, eq=False)
class SpectralFeatures(NodeFeatures):
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

    @np.errstate(under="ignore")
    def weights(self, kernel: GraphKernel) -> Floats:
        """Return sqrt(k) at the eigenvalues, (r,)."""
        return kernel.root(1 - self.eigenvalues)

    @np.errstate(under="ignore")
    def weights_jacobian(self, kernel: GraphKernel) -> Floats:
        """Return their derivatives in the kernel's parameters, (r, p)."""
        return kernel.root_jacobian(1 - self.eigenvalues)

    @np.errstate(under="ignore")
    def values(
        self,
        weights: ArrayLike,  # (r,)
    ) -> Floats:  # (n r,)
        """Return the values (n r,) of Phi, row by row."""
        return np.asarray(self.eigenvectors[self.nodes] * as_vector("weights", weights, len(self.eigenvalues))).ravel()

    @np.errstate(under="ignore")
    def values_adjoint(
        self,
        v: ArrayLike,  # (n r,)
    ) -> Floats:  # (r,)
        """Return the adjoint of `values` at v (n r,), (r,)."""
        shape = (len(self.nodes), len(self.eigenvalues))
        rows = as_vector("v", v, shape[0] * shape[1]).reshape(shape)
        return np.asarray((rows * self.eigenvectors[self.nodes]).sum(0))

    def at(self, nodes: Iterable[Hashable]) -> "SpectralFeatures":
        """Return the features of other nodes (labels)."""
        return SpectralFeatures(self.graph, self.graph.index(nodes), self.eigenvalues, self.eigenvectors)

    @np.errstate(under="ignore")
    def error_bound(self, kernel: GraphKernel) -> float:
        """Return max f over what is left out, between -1 and the last eigenvalue."""
        u = np.linspace(-1, self.eigenvalues[-1], _GRID)
        left = self.graph.num_nodes - len(self.eigenvalues)
        return float(np.abs(kernel.root(1 - u)).max()) if left else 0.0


@np.errstate(under="ignore")
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
    starts = resolve_nodes(graph, nodes)
    check_count("rank", rank, most=graph.num_nodes)
    check_fits(f"{rank} eigenvectors of {graph.num_nodes} nodes", 24.0 * rank * graph.num_nodes, "Use a lower rank.")
    if graph.num_nodes <= 50 or 4 * rank > graph.num_nodes:
        eigenvalues, vectors = graph.spectrum
        return SpectralFeatures(graph, starts, 1 - eigenvalues[:rank], vectors[:, :rank].copy())
    return SpectralFeatures(graph, starts, *largest_eigenpairs(graph, int(rank)))
