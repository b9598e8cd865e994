"""Sparse features of graph nodes in torch: numpy draws with differentiable values.

A `graphs.Walks`, or a deterministic draw with the same interface, is the linear map from weights (the modulation of
walks) to the values of Phi. It also maps a graph kernel to its weights and their Jacobian. This module wraps both for
autograd. It does not import `graphs`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from rfgp.autograd import Array, numpy_function


class Kernel(Protocol):
    """The part of `graphs.kernels.GraphKernel` that is used here.

    Examples:
        >>> import graphs
        >>> graphs.kernels.by_name("diffusion").with_values([2.0]).values.tolist()
        [2.0]
    """

    def with_values(self, values: Any) -> "Kernel":
        """Return the kernel with other parameters (p,)."""


class Draw(Protocol):
    """The part of draws of node features that is used here.

    Such draws are `graphs.Walks` and the result of `graphs.chebyshev_features`.

    Examples:
        >>> import graphs
        >>> draw = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> draw.pattern.shape
        (9, 9)
    """

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
        """Return the weights (w,) of a kernel, the argument of `values`."""

    def weights_jacobian(self, kernel: Any) -> Array:
        """Return the derivatives of `weights` in the kernel's parameters, (w, p)."""

    def values(self, f: Any) -> Array:
        """Map weights (w,) to the values (nnz,) of Phi."""

    def values_adjoint(self, v: Any) -> Array:
        """Map values (nnz,) to weights (w,) by the transpose of `values`."""

    def at(self, nodes: Iterable[Any]) -> "Draw":
        """Return the same draw at other nodes."""


def kernel_function(
    theta: Tensor,  # (p,)
    value: Callable[[Array], Array],
    jacobian: Callable[[Array], Array],
) -> Tensor:
    """Return value(theta) (k,), differentiable by its Jacobian.

    Args:
        theta: The parameters, (p,).
        value: Maps a numpy array theta (p,) to the values (k,).
        jacobian: Maps a numpy array theta (p,) to their derivatives (k, p).

    Examples:
        >>> import torch
        >>> theta = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
        >>> kernel_function(theta, lambda t: t**2, lambda t: 2 * t[:, None]).sum().backward()
        >>> theta.grad.tolist()
        [6.0]
    """
    return numpy_function(theta, value, lambda point, grad: jacobian(point).T @ grad)


def function_of_kernel(
    theta: Tensor,  # (p,)
    kernel: Kernel,
    value: Callable[[Any], Any],
    jacobian: Callable[[Any], Any],
) -> Tensor:
    """Return a function (k,) of the kernel of a family, differentiable in its parameters.

    Args:
        theta: The parameters, (p,).
        kernel: A member of the family.
        value: Maps a kernel to the values (k,).
        jacobian: Maps a kernel to their derivatives (k, p).

    Examples:
        >>> import graphs, numpy as np, torch
        >>> kernel = graphs.kernels.by_name("diffusion")
        >>> at_zero = lambda k: k.spectral(np.zeros(1)), lambda k: k.spectral_jacobian(np.zeros(1))
        >>> function_of_kernel(torch.tensor(kernel.values), kernel, *at_zero).tolist()
        [1.0]
    """
    return kernel_function(
        theta, lambda point: value(kernel.with_values(point)), lambda point: jacobian(kernel.with_values(point))
    )


def spectral_values(
    theta: Tensor,  # (p,)
    kernel: Kernel,
    eigenvalues: Any,
) -> Tensor:  # (N,)
    """Return a graph kernel at eigenvalues of the Laplacian, differentiable in its parameters.

    Args:
        theta: The parameters, (p,).
        kernel: A member of the family.
        eigenvalues: The eigenvalues, (N,).

    Examples:
        >>> import graphs, numpy as np, torch
        >>> kernel = graphs.kernels.by_name("diffusion")
        >>> spectral_values(torch.tensor(kernel.values), kernel, np.zeros(1)).tolist()
        [1.0]
    """
    return function_of_kernel(
        theta, kernel, lambda one: one.spectral(eigenvalues), lambda one: one.spectral_jacobian(eigenvalues)
    )


def resolvent_values(
    theta: Tensor,  # (p,)
    kernel: Kernel,
) -> tuple[Tensor, Tensor]:  # (1,), ()
    """Return the shift and the amplitude of a kernel that is a power of the resolvent of the Laplacian.

    Args:
        theta: The parameters, (p,).
        kernel: A member of the family.

    Examples:
        >>> import graphs, torch
        >>> kernel = graphs.kernels.by_name("matern")
        >>> shift, _ = resolvent_values(torch.tensor(kernel.values), kernel)
        >>> shift.shape
        torch.Size([1])
    """

    def value(one: Any) -> Array:
        resolvent = one.resolvent()
        return np.array([resolvent.shift, resolvent.amplitude])

    shift, amplitude = function_of_kernel(theta, kernel, value, lambda one: one.resolvent().jacobian)
    return shift[None], amplitude


class WalkFeatures(nn.Module):
    """The features of one draw for a family of graph kernels.

    Args:
        walks: The draw with n rows.
        kernel: A member of the family. Its parameters are the argument of `forward`.

    Examples:
        >>> import graphs, torch
        >>> kernel = graphs.kernels.by_name("diffusion")
        >>> draw = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> phi = WalkFeatures(draw, kernel)
        >>> len(phi(torch.tensor(kernel.values))) == len(phi.walks.pattern.indices)
        True
    """

    def __init__(self, walks: Draw, kernel: Kernel) -> None:
        super().__init__()
        self.walks = walks
        self.kernel = kernel

    def forward(
        self,
        theta: Tensor,  # (p,)
    ) -> Tensor:  # (nnz,)
        """Return the values of Phi on `walks.pattern`.

        Args:
            theta: The parameters of the kernel, (p,).

        Returns:
            The values, (nnz,), differentiable in theta.
        """
        f = function_of_kernel(theta, self.kernel, self.walks.weights, self.walks.weights_jacobian)
        return numpy_function(f, self.walks.values, lambda _, grad: self.walks.values_adjoint(grad))

    def __deepcopy__(self, memo: Any) -> "WalkFeatures":
        return self  # nothing in it changes, and draws are large

    def at(self, nodes: Iterable[Any]) -> "WalkFeatures":
        """Return the features of other nodes of the same draw.

        Args:
            nodes: The labels of the nodes.
        """
        return WalkFeatures(self.walks.at(nodes), self.kernel)
