"""Gradients by hand, in numpy, that can be taken once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import NotDifferentiableError

Array = NDArray[np.float64]


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


def once(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Return compute(*tensors), a gradient (of any shape) that refuses to be differentiated again."""
    out: Tensor = _Once.apply(compute, *tensors)
    return out


def as_array(tensor: Tensor) -> Array:
    """Return the values of a tensor (...) as float64."""
    return tensor.detach().cpu().double().numpy()


class _NumpyFunction(torch.autograd.Function):
    """y = value(theta) with a pull-back, both in numpy, float64."""

    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, value: Callable[[Array], Array], pull_back: Callable[[Array, Array], Array]
    ) -> Tensor:
        ctx.pull_back = pull_back
        ctx.save_for_backward(theta)
        return torch.as_tensor(value(as_array(theta))).to(theta)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        def pull_back(theta: Tensor, grad: Tensor) -> Tensor:
            return torch.as_tensor(ctx.pull_back(as_array(theta), as_array(grad))).to(theta)

        (theta,) = ctx.saved_tensors
        return once(pull_back, theta, grads[0]), None, None


def numpy_function(
    theta: Tensor,  # (p,)
    value: Callable[[Array], Array],
    pull_back: Callable[[Array, Array], Array],
) -> Tensor:  # (k,)
    """Return value(theta), differentiable once.

    Args:
        theta: (p,).
        value: In numpy, (p,) -> (k,).
        pull_back: In numpy, theta and the gradient (k,) in the value -> the gradient (p,) in theta.
    """
    out: Tensor = _NumpyFunction.apply(theta, value, pull_back)
    return out
