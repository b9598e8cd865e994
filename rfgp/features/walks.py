"""Sparse features of graph nodes in torch: numpy draws, differentiable values.

A `graphs.Walks`, or a draw without randomness behind the same interface, is the linear map from weights (for walks the
modulation) to the values of Phi, and gives the weights of a graph kernel with their Jacobian. This room wraps both, and
the product Phi Phi^T, for autograd; it does not import `graphs`.
"""

import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rfgp.errors import NotDifferentiableError

Array = NDArray[np.float64]


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


class _Once(torch.autograd.Function):
    """A gradient that cannot be differentiated again, and says so: a constant in its place would be silently wrong."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        return compute(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise NotDifferentiableError(
            "Sparse features can be differentiated once; second derivatives would need those of the graph kernel's "
            "modulation, which kernels do not have."
        )


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()


class _NumpyFunction(torch.autograd.Function):
    """y = value(theta) with a pull-back, both in numpy, float64."""

    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, value: Callable[[Array], Array], pull_back: Callable[[Array, Array], Array]
    ) -> Tensor:
        ctx.pull_back = pull_back
        ctx.save_for_backward(theta)
        return torch.as_tensor(value(_array(theta))).to(theta)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        def pull_back(theta: Tensor, grad: Tensor) -> Tensor:
            return torch.as_tensor(ctx.pull_back(_array(theta), _array(grad))).to(theta)

        (theta,) = ctx.saved_tensors
        return _Once.apply(pull_back, theta, grads[0]), None, None


def kernel_function(
    theta: Tensor,  # (p,)
    value: Callable[[Array], Array],
    jacobian: Callable[[Array], Array],
) -> Tensor:
    """Return value(theta) (k,), differentiable through jacobian(theta) (k, p); both in numpy."""
    out: Tensor = _NumpyFunction.apply(theta, value, lambda point, grad: jacobian(point).T @ grad)  # (k,)
    return out


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
        out: Tensor = _NumpyFunction.apply(f, self.walks.values, lambda _, grad: self.walks.values_adjoint(grad))
        return out

    def __deepcopy__(self, memo: Any) -> "WalkFeatures":
        return self  # nothing in it changes, and draws are large

    def at(self, nodes: Iterable[Any]) -> "WalkFeatures":
        """Return the features of other nodes (labels) of the same draw."""
        return WalkFeatures(self.walks.at(nodes), self.kernel)


class _SparseGram(torch.autograd.Function):
    """Phi_a Phi_b^T for two sparse patterns, differentiable in both values."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, pattern_a: Any, pattern_b: Any) -> Tensor:
        left, right = _csr(a, pattern_a), _csr(b, pattern_b)
        ctx.left, ctx.right = left, right
        ctx.save_for_backward(a, b)
        return torch.as_tensor((left @ right.T).toarray()).to(a)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        def in_a(grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return torch.as_tensor(_sampled_product(_array(grad), ctx.right, ctx.left)).to(a)

        def in_b(grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return torch.as_tensor(_sampled_product(_array(grad).T, ctx.left, ctx.right)).to(b)

        tensors = (grads[0], *ctx.saved_tensors)
        grad_a = _Once.apply(in_a, *tensors) if ctx.needs_input_grad[0] else None
        grad_b = _Once.apply(in_b, *tensors) if ctx.needs_input_grad[1] else None
        return grad_a, grad_b, None, None


def gram(a: Tensor, pattern_a: Any, b: Tensor, pattern_b: Any) -> Tensor:
    """Return Phi_a Phi_b^T (n_a, n_b), dense, from values (nnz,) on their patterns."""
    out: Tensor = _SparseGram.apply(a, b, pattern_a, pattern_b)
    return out


def _csr(values: Tensor, pattern: Any) -> sp.csr_array:
    return sp.csr_array((_array(values), pattern.indices, pattern.indptr), shape=pattern.shape)


_BLOCKS = 8


def _sampled_product(grad: Array, right: sp.csr_array, pattern: sp.csr_array) -> Array:
    """Return the entries of grad (n, k) @ right (k, N) on a pattern (n, N), blocks of rows in threads."""
    from rfgp.features import loops

    by_column, grad = right.tocsc(), np.ascontiguousarray(grad)
    out = np.empty(pattern.nnz)
    bounds = np.linspace(0, pattern.shape[0], _BLOCKS + 1, dtype=np.int64)
    fixed = (grad, by_column.indptr, by_column.indices, by_column.data, pattern.indptr, pattern.indices, out)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda ends: loops.sampled_product(*ends, *fixed), itertools.pairwise(bounds)))
    return out
