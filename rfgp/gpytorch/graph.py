"""Sparse features of graph nodes as a GPyTorch kernel."""

from collections.abc import Hashable, Iterable
from typing import Any

import gpytorch
import numpy as np
import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from graphs.features import NodeFeatures
from graphs.kernels import GraphKernel
from rfgp.errors import InvalidArgumentError
from rfgp.features import WalkFeatures
from rfgp.features.walks import Draw
from rfgp.gpytorch.covariances import SparseLinearOperator, SparseProductLinearOperator, SparseRootLinearOperator
from rfgp.sparse import SparsityPattern


class GraphFeatureKernel(gpytorch.kernels.Kernel):
    """A graph kernel estimated by sparse features: of random walks, or deterministic ones.

    Inputs are positions of nodes (..., n, 1), integer or float64. Parameters of the graph kernel are GPyTorch
    parameters `raw_<name>` with a positive constraint, one for each element of a batch. `kernel.<name>` has their
    values. Features stay sparse, except for inputs that differ along a batch, whose covariances are dense.

    Args:
        walks: Features of `graphs.sample_walks`, `chebyshev_features`, `taylor_features` or `spectral_features`. Their
            nodes must include all inputs.
        kernel: The graph kernel at its starting values.
        kernel_kwargs: Options of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: At a call, if an input is not a start node of the walks.

    Examples:
        >>> import graphs
        >>> import networkx as nx
        >>> import torch
        >>> from rfgp.gpytorch import GraphFeatureKernel
        >>> walks = graphs.sample_walks(graphs.Graph.from_networkx(nx.path_graph(5)), num_walkers=16, seed=0)
        >>> GraphFeatureKernel(walks, graphs.kernels.Diffusion())(torch.tensor([[0], [4]])).shape
        torch.Size([2, 2])
    """

    def __init__(self, walks: Draw, kernel: GraphKernel, **kernel_kwargs: Any) -> None:
        if not isinstance(walks, NodeFeatures):
            raise InvalidArgumentError(
                f"walks must be features of nodes, such as graphs.sample_walks(graph), got {type(walks).__name__}."
            )
        super().__init__(**kernel_kwargs)
        self._names = kernel.parameters
        for name, value in zip(kernel.parameters, kernel.values, strict=True):
            constraint = gpytorch.constraints.Positive()
            start = constraint.inverse_transform(torch.full(self.batch_shape, float(value)))
            self.register_parameter(f"raw_{name}", torch.nn.Parameter(start))
            self.register_constraint(f"raw_{name}", constraint)
        self._see(WalkFeatures(walks, kernel))

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_names", ()):
            raw = f"raw_{name}"
            return getattr(self, f"{raw}_constraint").transform(getattr(self, raw))
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_names", ()):
            raw = getattr(self, f"raw_{name}")
            value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device).expand(raw.shape)
            self.initialize(**{f"raw_{name}": getattr(self, f"raw_{name}_constraint").inverse_transform(value)})
        else:
            super().__setattr__(name, value)

    @property
    def lengthscale(self) -> Tensor | None:
        """The lengthscale of the graph kernel, of the shape of the batch, or None if it has none."""
        return self.__getattr__("lengthscale") if "lengthscale" in self._names else None

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the graph kernel's p parameters."""
        return tuple(self._names)

    def _theta(self) -> Tensor:
        """Return the graph kernel's parameters for each element of the batch, flattened, (b, p)."""
        theta = [getattr(self, name).reshape(-1) for name in self._names]
        return torch.stack(theta, dim=-1) if theta else torch.zeros(max(1, self.batch_shape.numel()), 0)

    def at(self, nodes: Iterable[Hashable]) -> "GraphFeatureKernel":
        """Return the kernel on other nodes of the same draw.

        It shares the parameters of this kernel.

        Args:
            nodes: The labels of the nodes.
        """
        other = GraphFeatureKernel.__new__(
            GraphFeatureKernel
        )  # copy.copy would share the dictionary of GPyTorch's kernels
        other.__dict__.update(self.__dict__, _modules=dict(self._modules))
        other._see(self.feature_map.at(nodes))
        return other

    def _see(self, features: WalkFeatures) -> None:
        """Take the rows of a draw for the nodes that there are."""
        self.feature_map = features
        self._pattern = SparsityPattern(*features.walks.pattern)
        self._row_of = np.full(features.walks.graph.num_nodes, -1)
        self._row_of[features.walks.nodes] = np.arange(self._pattern.shape[0])

    def features(
        self,
        x: Tensor,  # (n, 1)
    ) -> SparseLinearOperator:  # (..., n, N)
        """Return the sparse features of nodes, for each element of the batch of the kernel.

        Args:
            x: Positions (n, 1) of the nodes.
        """
        return self._all_features().take(self._find(x.squeeze(-1)))

    def forward(
        self,
        x1: Tensor,  # (..., n, 1)
        x2: Tensor,  # (..., k, 1)
        diag: bool = False,
        **params: Any,
    ) -> Tensor | LinearOperator:  # (..., n, k), or (..., n)
        """Return the covariance (..., n, k), or its diagonal (..., n).

        Args:
            x1: Positions (..., n, 1).
            x2: Positions (..., k, 1).
            diag: Whether to return the diagonal.
            params: Not used.
        """
        if x1.ndim > 2 or x2.ndim > 2:
            return self._of_batches(x1, x2, diag)
        phi1 = self.features(x1)
        if torch.equal(x1, x2):
            return phi1.squares() if diag else SparseRootLinearOperator(phi1)
        product = SparseProductLinearOperator(phi1, self.features(x2).mT)
        return product.diagonal() if diag else product

    def _all_features(self) -> SparseLinearOperator:
        """Return the features of all start nodes, (..., rows, N)."""
        if not self._names:
            return SparseLinearOperator(self.feature_map(torch.zeros(0)), self._pattern).expand(
                *self.batch_shape, *self._pattern.shape
            )
        values = torch.stack([self.feature_map(one) for one in self._theta()])
        return SparseLinearOperator(values.reshape(*self.batch_shape, -1), self._pattern)

    def _of_batches(self, x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
        """Return the covariance of inputs that differ along a batch, from that of all nodes among them."""
        rows = torch.cat([_whole(x).reshape(-1) for x in (x1, x2)])
        nodes, places = rows.unique(return_inverse=True)
        matrix = SparseRootLinearOperator(self.features(nodes[:, None])).to_dense()  # (..., u, u)
        left, right = places[: x1.numel()].reshape(x1.shape), places[x1.numel() :].reshape(x2.shape)
        pairs = (left.squeeze(-1), right.squeeze(-1)) if diag else (left, right.mT)
        trailing = 1 if diag else 2
        axes = [
            torch.arange(size, device=matrix.device).reshape(-1, *[1] * (len(self.batch_shape) - 1 - axis + trailing))
            for axis, size in enumerate(self.batch_shape)
        ]
        out: Tensor = matrix[(*axes, *pairs)]
        return out

    def _find(self, positions: Tensor) -> Tensor:
        """Return the rows of the draw of nodes at positions, (n,) -> (n,)."""
        wanted = _whole(positions).cpu().numpy()
        outside = (wanted < 0) | (wanted >= len(self._row_of))
        rows = self._row_of[wanted.clip(0, len(self._row_of) - 1)]
        missing = outside | (rows < 0)
        if missing.any():
            raise InvalidArgumentError(
                f"The walks do not start at position {wanted[missing][0]}. Draw them from every node that "
                "the model will see: sample_walks(graph, nodes=...), or kernel.at(nodes)."
            )
        return torch.from_numpy(rows)


def _whole(positions: Tensor) -> Tensor:
    """Return positions (...) as integers."""
    integers = positions.long()
    if positions.is_floating_point() and not bool((integers == positions).all()):
        raise InvalidArgumentError(f"Positions of nodes are whole numbers, got {positions[integers != positions][0]}.")
    return integers
