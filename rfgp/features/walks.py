"""Sparse features of graph nodes in torch: numpy draws, differentiable values.

A `graphs.Walks`, or a draw without randomness behind the same interface, is the linear map from weights (for walks the
modulation) to the values of Phi, and gives the weights of a graph kernel with their Jacobian. This file wraps both for
autograd; it does not import `graphs`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from torch import Tensor, nn

from rfgp.autograd import Array, numpy_function


class Kernel(Protocol):
    """What is used of a `graphs.kernels.GraphKernel`."""

    def with_values(self, values: Any) -> "Kernel":
        """Return the kernel with other parameters (p,)."""


class Draw(Protocol):
    """What is used of a `graphs.Walks`, or of `graphs.chebyshev_features` and its like."""

    @property
    def graph(self) -> Any:
        """The graph."""

    @property
    def nodes(self) -> Any:
        """The positions (n,) of the rows."""

    @property
    def pattern(self) -> Any:
        """The CSR pattern: indptr, indices, shape."""

    def weights(self, kernel: Any) -> Array:
        """Return what `values` wants of a kernel, (w,)."""

    def weights_jacobian(self, kernel: Any) -> Array:
        """Return its derivatives in the kernel's parameters, (w, p)."""

    def values(self, f: Any) -> Array:
        """Map weights (w,) to the values (nnz,) of Phi."""

    def values_adjoint(self, v: Any) -> Array:
        """Map values (nnz,) back to weights (w,)."""

    def at(self, nodes: Iterable[Any]) -> "Draw":
        """Return the same draw at other nodes."""


def kernel_function(
    theta: Tensor,  # (p,)
    value: Callable[[Array], Array],
    jacobian: Callable[[Array], Array],
) -> Tensor:
    """Return value(theta) (k,), differentiable through jacobian(theta) (k, p); both in numpy."""
    return numpy_function(theta, value, lambda point, grad: jacobian(point).T @ grad)


class WalkFeatures(nn.Module):
    """The features of one draw for one family of graph kernels.

    Args:
        walks: The draw, n rows; walks, or features without randomness.
        kernel: Any member of the family; its parameters are arguments of `forward`.
    """

    def __init__(self, walks: Draw, kernel: Kernel) -> None:
        super().__init__()
        self.walks = walks
        self.kernel = kernel

    def forward(
        self,
        theta: Tensor,  # (p,)
    ) -> Tensor:  # (nnz,)
        """Return the values of Phi on `walks.pattern` at kernel parameters theta."""
        f = kernel_function(
            theta,
            lambda point: self.walks.weights(self.kernel.with_values(point)),
            lambda point: self.walks.weights_jacobian(self.kernel.with_values(point)),
        )
        return numpy_function(f, self.walks.values, lambda _, grad: self.walks.values_adjoint(grad))

    def __deepcopy__(self, memo: Any) -> "WalkFeatures":
        return self  # nothing in it changes, and draws are large

    def at(self, nodes: Iterable[Any]) -> "WalkFeatures":
        """Return the features of other nodes (labels) of the same draw."""
        return WalkFeatures(self.walks.at(nodes), self.kernel)
