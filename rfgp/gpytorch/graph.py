"""Sparse features of graph nodes as a GPyTorch kernel."""

from typing import Any

import gpytorch
import numpy as np
import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from rfgp.errors import InvalidArgumentError
from rfgp.features import WalkFeatures
from rfgp.gpytorch.sparse import (
    SparseLinearOperator,
    SparseProductLinearOperator,
    SparseRootLinearOperator,
    SparsityPattern,
)


class GraphFeatureKernel(gpytorch.kernels.Kernel):
    """A graph kernel estimated by the sparse features of random walks.

    Inputs are positions of nodes (..., n, 1), integer or float64. The graph kernel's parameters are GPyTorch parameters
    `raw_<name>` with a positive constraint, one for each element of a batch, reachable as `kernel.<name>`. The features
    stay sparse; for inputs that differ along a batch the covariances of all nodes among them are dense.

    Args:
        walks: The draw; its start nodes must include every input.
        kernel: The graph kernel, at its starting values.
        kernel_kwargs: Of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: at a call, where an input is no start node of the walks.
    """

    def __init__(self, walks: graphs.Walks, kernel: GraphKernel, **kernel_kwargs: Any) -> None:
        super().__init__(**kernel_kwargs)
        self.feature_map = WalkFeatures(walks, kernel)
        self._names = kernel.parameters
        self._pattern = SparsityPattern(*walks.pattern)
        self._row_of = np.full(self._pattern.shape[1], -1)
        self._row_of[walks.nodes] = np.arange(self._pattern.shape[0])
        for name, value in zip(kernel.parameters, kernel.values, strict=True):
            constraint = gpytorch.constraints.Positive()
            start = constraint.inverse_transform(torch.full(self.batch_shape, float(value)))
            self.register_parameter(f"raw_{name}", torch.nn.Parameter(start))
            self.register_constraint(f"raw_{name}", constraint)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_names", ()):
            raw = f"raw_{name}"
            return getattr(self, f"{raw}_constraint").transform(getattr(self, raw))
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_names", ()):
            raw = getattr(self, f"raw_{name}")
            value = torch.as_tensor(value).to(raw).expand(raw.shape)
            self.initialize(**{f"raw_{name}": getattr(self, f"raw_{name}_constraint").inverse_transform(value)})
        else:
            super().__setattr__(name, value)

    @property
    def lengthscale(self) -> Tensor | None:
        """The graph kernel's lengthscale, of the batch's shape, or None where it has none."""
        return self.__getattr__("lengthscale") if "lengthscale" in self._names else None

    def features(
        self,
        x: Tensor,  # (n, 1)
    ) -> SparseLinearOperator:  # (..., n, N)
        """Return the sparse features of the nodes at positions x, for each element of the kernel's batch."""
        return self._all_features().take(self._find(x.squeeze(-1)))

    def forward(
        self,
        x1: Tensor,  # (..., n, 1)
        x2: Tensor,  # (..., k, 1)
        diag: bool = False,
        **params: Any,
    ) -> Tensor | LinearOperator:  # (..., n, k), or (..., n)
        """Return the covariance, or its diagonal."""
        if x1.ndim > 2 or x2.ndim > 2:
            return self._of_batches(x1, x2, diag)
        phi1 = self.features(x1)
        if torch.equal(x1, x2):
            return phi1.squares() if diag else SparseRootLinearOperator(phi1)
        product = SparseProductLinearOperator(phi1, self.features(x2).mT)
        return product._diagonal() if diag else product

    def _all_features(self) -> SparseLinearOperator:
        """Return the features of all start nodes, (..., rows, N)."""
        theta = [getattr(self, name).reshape(-1) for name in self._names]
        if not theta:
            return SparseLinearOperator(self.feature_map(torch.zeros(0)), self._pattern).expand(
                *self.batch_shape, *self._pattern.shape
            )
        values = torch.stack([self.feature_map(one) for one in torch.stack(theta, dim=-1)])
        return SparseLinearOperator(values.reshape(*self.batch_shape, -1), self._pattern)

    def _of_batches(self, x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
        """Return the covariance of inputs that differ along a batch, from that of all nodes among them."""
        rows = torch.cat([x.reshape(-1).long() for x in (x1, x2)])
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
        whole = positions.long()
        if positions.is_floating_point() and not bool((whole == positions).all()):
            raise InvalidArgumentError(f"Positions of nodes are whole numbers, got {positions[whole != positions][0]}.")
        wanted = whole.cpu().numpy()
        outside = (wanted < 0) | (wanted >= len(self._row_of))
        rows = self._row_of[wanted.clip(0, len(self._row_of) - 1)]
        missing = outside | (rows < 0)
        if missing.any():
            raise InvalidArgumentError(
                f"The walks do not start at position {wanted[missing][0]}. Draw them from every node that "
                "the model will see: sample_walks(graph, nodes=...)."
            )
        return torch.from_numpy(rows)
