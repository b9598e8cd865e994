"""The exact kernel of a graph's nodes as a GPyTorch kernel."""

from typing import Any

import torch
from torch import Tensor

import graphs
from graphs.graph import not_a_graph_message
from graphs.kernels import GraphKernel
from rfgp.errors import InvalidArgumentError
from rfgp.features.walks import spectral_values
from rfgp.gpytorch.positions import PositionKernel, whole


class _Shared:
    """The graph and the family of kernels: never copied with a model."""

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel) -> None:
        self.graph = graph
        self.kernel = kernel

    def __deepcopy__(self, memo: Any) -> "_Shared":
        return self


class GraphExactKernel(PositionKernel):
    """A graph kernel, evaluated exactly through all eigenpairs of the Laplacian.

    The eigenpairs cost O(N^3) once per graph, which caches them. Inputs are positions of nodes (..., n, 1), integer or
    float64. Parameters are those of `GraphFeatureKernel`.

    Args:
        graph: The graph, with at most 20,000 nodes.
        kernel: The graph kernel at its starting values.
        kernel_kwargs: Options of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: At a call, if an input is not a position.

    Examples:
        >>> import networkx as nx
        >>> import torch
        >>> from graphs import Graph, kernels
        >>> from rfgp.gpytorch import GraphExactKernel
        >>> kernel = GraphExactKernel(Graph.from_networkx(nx.path_graph(5)), kernels.Diffusion())
        >>> kernel(torch.tensor([[0], [4]])).shape
        torch.Size([2, 2])
    """

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel, **kernel_kwargs: Any) -> None:
        if (wrong := not_a_graph_message(graph)) is not None:
            raise InvalidArgumentError(wrong)
        super().__init__(kernel, **kernel_kwargs)
        self._shared = _Shared(graph, kernel)

    def at(self, nodes: Any) -> "GraphExactKernel":
        """Return this kernel, which covers all nodes.

        Args:
            nodes: Not used.
        """
        return self

    def forward(
        self,
        x1: Tensor,  # (..., n, 1)
        x2: Tensor,  # (..., k, 1)
        diag: bool = False,
        **params: Any,
    ) -> Tensor:  # (..., n, k), or (..., n)
        """Return the covariance (..., n, k), or its diagonal (..., n).

        Args:
            x1: Positions (..., n, 1).
            x2: Positions (..., k, 1).
            diag: Whether to return the diagonal.
            params: Not used.
        """
        values = self._values().unsqueeze(-2)  # (..., 1, N)
        left = self._rows(x1)
        right = left if x2 is x1 else self._rows(x2)
        if diag:
            return (left * right * values).sum(-1)
        return (left * values) @ right.mT

    def _rows(self, x: Tensor) -> Tensor:
        """Return the nodes' entries of all eigenvectors, (..., n, 1) -> (..., n, N)."""
        positions, count = whole(x).squeeze(-1).cpu().numpy(), self._shared.graph.num_nodes
        outside = (positions < 0) | (positions >= count)
        if outside.any():
            raise InvalidArgumentError(f"Positions must be in 0..{count - 1}, got {positions[outside][0]}.")
        rows = self._shared.graph.spectrum.eigenvectors[positions]
        return torch.as_tensor(rows).to(device=x.device, dtype=self._theta().dtype)

    def _values(self) -> Tensor:
        """Return the kernel at the eigenvalues, (..., N)."""
        eigenvalues, family = self._shared.graph.spectrum.eigenvalues, self._shared.kernel
        values = [spectral_values(theta, family, eigenvalues) for theta in self._theta()]
        return torch.stack(values).reshape(*self.batch_shape, -1)
