"""Closed-form gradients in torch and in numpy. They can be differentiated once."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import InvalidArgumentError, NotDifferentiableError

Array = NDArray[np.float64]

STEP = 1e-5
"""The step of central differences, in standard deviations of a column."""
MIXED_STEP = 1e-6
"""The step of differences of derivatives, in standard deviations of a column."""
MAX_ROUGHNESS = 0.02
"""The relative change of these differences at twice the step from which a process counts as rough. It is 0.5 for
Matern 1/2, and below 0.01 for Matern 3/2 with lengthscales from 2e-4 standard deviations."""
Gradients = Callable[[], Sequence[Tensor | None]]
"""Returns the derivatives of a scalar in several tensors, in their shapes, or None where none is needed."""
Needs = tuple[bool, ...]
"""Whether each of several tensors needs a derivative."""


def input_derivatives(function: Callable[[Tensor], Tensor], inputs: Tensor, column: int) -> Tensor:
    """Return the derivatives of row features in one column, (n, F), float64.

    Forward differentiation is used, or central differences if the features do not support it.

    Args:
        function: Maps rows (n, D) to features (n, F).
        inputs: The rows (n, D).
        column: The index of the column.

    Examples:
        >>> input_derivatives(torch.sin, torch.zeros(1, 1, dtype=torch.float64), 0).tolist()
        [[1.0]]
    """
    rows = inputs.detach().double()
    direction = torch.zeros_like(rows)
    direction[:, column] = 1
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        try:
            value = function(torch.autograd.forward_ad.make_dual(rows, direction))
        except NotImplementedError:
            return (function(rows + STEP * direction) - function(rows - STEP * direction)).double() / (2 * STEP)
        found = torch.autograd.forward_ad.unpack_dual(value).tangent
    return torch.zeros_like(value, dtype=torch.float64) if found is None else found.double()


def mixed_derivatives(
    covariance: Callable[[Tensor, Tensor], Tensor],
    a: Tensor,  # (n, D)
    b: Tensor,  # (m, D)
    column: int,
) -> Tensor:  # (n, m)
    """Return the covariance d^2 k(a, b) / da_c db_c of derivatives in one column, float64.

    Differences of first derivatives in a are extrapolated from two steps, which is stable at coincident points.

    Args:
        covariance: Maps rows (n, D) and (m, D) to the covariance k (n, m).
        a: The rows, (n, D).
        b: The rows, (m, D).
        column: The index c of the column.

    Raises:
        InvalidArgumentError: If the process has no derivative at a coincident point.

    Examples:
        >>> x = torch.zeros(1, 1, dtype=torch.float64)
        >>> mixed_derivatives(lambda a, b: torch.exp(-0.5 * (a - b.mT).square()), x, x, 0).round(decimals=6).tolist()
        [[1.0]]
    """
    step = torch.zeros(b.shape[1], dtype=torch.float64)
    step[column] = MIXED_STEP

    def slopes(end: Tensor) -> Tensor:
        return input_derivatives(lambda z: covariance(z, end), a, column)

    def difference(size: float) -> Tensor:
        return (slopes(b + size * step) - slopes(b - size * step)) / (2 * size * MIXED_STEP)

    fine, coarse = difference(1), difference(2)
    if bool(((fine - coarse).abs() > MAX_ROUGHNESS * fine.abs() + MIXED_STEP).any()):
        raise InvalidArgumentError(
            "A process must be smooth for a derivative, got one with rough paths. Use RBF(), RationalQuadratic(), or "
            "Matern() with nu above 1."
        )
    return 2 * fine - coarse


def is_differentiated(*tensors: Tensor) -> bool:
    """Return whether tensors (...) are differentiated, backward or forward.

    Examples:
        >>> is_differentiated(torch.ones(1)), is_differentiated(torch.ones(1, requires_grad=True))
        (False, True)
    """
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    return any(torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


class _Once(torch.autograd.Function):
    """A gradient that raises an error if it is differentiated again. A constant would be silently wrong."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        return compute(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise NotDifferentiableError(
            "This value can be differentiated only once, because its gradient is computed in closed form. "
            "Use first derivatives only."
        )


def once(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Return compute(*tensors), a gradient (...) that cannot be differentiated again.

    Args:
        compute: Maps the tensors to the gradient.
        tensors: The tensors (...).

    Examples:
        >>> once(lambda x: 2 * x, torch.ones(2)).tolist()
        [2.0, 2.0]
    """
    out: Tensor = _Once.apply(compute, *tensors)
    return out


class _WithGradient(torch.autograd.Function):
    """A scalar with its gradient in closed form."""

    @staticmethod
    def forward(
        ctx: Any, compute: Callable[[Needs], tuple[Tensor, Gradients]], needs: Needs, *inputs: Tensor
    ) -> Tensor:
        value, ctx.gradients = compute(needs)
        ctx.save_for_backward(*(tensor for tensor, need in zip(inputs, needs, strict=True) if need))
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            gradients = ctx.gradients()

        def scaled(found: Tensor | None) -> Tensor | None:
            if found is not None and not torch.is_grad_enabled():  # no second derivatives are requested
                return grads[0] * found
            return None if found is None else once(lambda grad, *_: grad * found, grads[0], *ctx.saved_tensors)

        return (None, None, *map(scaled, gradients))


def with_gradient(compute: Callable[[Needs], tuple[Tensor, Gradients]], *inputs: Tensor) -> Tensor:
    """Return a scalar with a closed-form gradient. It can be differentiated once.

    Args:
        compute: Takes a flag for each input, whether it needs a derivative. Returns the value, 0-d, and a function
            that returns the derivatives. Each backward pass calls it. Both run without recording gradients.
        inputs: The tensors (...) that the value depends on.

    Examples:
        >>> import torch
        >>> from rfgp.autograd import with_gradient
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> y = with_gradient(lambda needs: (x.detach().square().sum(), lambda: [2 * x.detach()]), x)
        >>> torch.autograd.grad(y, x)[0].tolist()
        [2.0, 4.0]
    """
    needs = tuple(torch.is_grad_enabled() and tensor.requires_grad for tensor in inputs)
    out: Tensor = _WithGradient.apply(compute, needs, *inputs)
    return out


@torch.enable_grad()
def pulled_back(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Return the derivatives of the sum of outputs (...) times upstream gradients (...) in inputs (...).

    Those without an upstream gradient do not count. `torch.autograd.grad(outputs, inputs, grads)` returns the same, but
    its first call imports a library of symbolic mathematics, which takes longer than a fit of 100 rows.

    Examples:
        >>> import torch
        >>> from rfgp.autograd import pulled_back
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> pulled_back([x.square()], [x], [torch.tensor([1.0, 3.0])])[0].tolist()
        [2.0, 12.0]
    """
    pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
    total = torch.stack([(output * grad).sum() for output, grad in pairs]).sum()
    return torch.autograd.grad(total, list(inputs), allow_unused=True)


class _Recomputed(torch.autograd.Function):
    """Tensors whose graph is rebuilt for the backward pass."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.compute = compute
        ctx.save_for_backward(*inputs)
        return compute(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        with torch.enable_grad():
            inputs = [
                tensor.detach().requires_grad_(need) for tensor, need in zip(ctx.saved_tensors, needs, strict=True)
            ]
            needed = [tensor for tensor in inputs if tensor.requires_grad]
            found = iter(pulled_back(ctx.compute(*inputs), needed, grads))
        return None, *(next(found) if need else None for need in needs)


def recomputed(compute: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return compute(*inputs), differentiable once.

    Gradients recompute it, so that no graph is kept in memory.

    Args:
        compute: Maps the inputs to tensors (...).
        inputs: The tensors (...) that may need gradients.

    Examples:
        >>> import torch
        >>> from rfgp.autograd import recomputed
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> (y,) = recomputed(lambda x: (x.square().sum(),), x)
        >>> torch.autograd.grad(y, x)[0].tolist()
        [2.0, 4.0]
    """
    out: tuple[Tensor, ...] = _Recomputed.apply(compute, *inputs)
    return out


def as_array(tensor: Tensor) -> Array:
    """Return the values of a tensor (...) as a float64 array.

    Examples:
        >>> as_array(torch.ones(2)).dtype
        dtype('float64')
    """
    return tensor.detach().cpu().double().numpy()


class _NumpyFunction(torch.autograd.Function):
    """y = value(theta) and its vector-Jacobian product, both in numpy, float64."""

    @staticmethod
    def forward(
        ctx: Any,
        theta: Tensor,
        value: Callable[[Array], Array],
        pull_back: Callable[[Array, Array], Array],
        is_elementwise: bool,
    ) -> Tensor:
        ctx.pull_back, ctx.is_elementwise = pull_back, is_elementwise
        ctx.save_for_backward(theta)
        ctx.save_for_forward(theta)
        return _in_numpy(value, theta)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (theta,) = ctx.saved_tensors
        return once(partial(_in_numpy, ctx.pull_back), theta, grads[0]), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        if not ctx.is_elementwise:
            raise NotImplementedError
        (theta,) = ctx.saved_tensors
        return _in_numpy(ctx.pull_back, theta, tangent)


def _in_numpy(function: Callable[..., Array], theta: Tensor, *others: Tensor) -> Tensor:
    return torch.as_tensor(function(as_array(theta), *map(as_array, others))).to(theta)


def numpy_function(
    theta: Tensor,  # (p,), (), or (...) if it is elementwise
    value: Callable[[Array], Array],
    pull_back: Callable[[Array, Array], Array],
    *,
    is_elementwise: bool = False,
) -> Tensor:  # (k,)
    """Return value(theta), differentiable once.

    Args:
        theta: The parameters, (p,) or 0-d. Any shape (...) if `is_elementwise`.
        value: Maps a numpy array of the shape of theta to (k,), or to the same shape if `is_elementwise`.
        pull_back: Maps theta and the gradient in the value to the gradient in theta, in numpy. If `is_elementwise`, it
            also maps a tangent of theta to that of the value.
        is_elementwise: Whether each entry of the value depends on the same entry of theta only. Then forward
            differentiation works as well. The default is False.

    Examples:
        >>> theta = torch.ones(2, dtype=torch.float64, requires_grad=True)
        >>> numpy_function(theta, np.square, lambda t, g: 2 * t * g).sum().backward()
        >>> theta.grad.tolist()
        [2.0, 2.0]
    """
    out: Tensor = _NumpyFunction.apply(theta, value, pull_back, is_elementwise)
    return out


def with_slopes(
    values: Tensor,  # (n, ...)
    inputs: Tensor,  # (n, D)
    slopes: Sequence[tuple[int, Array]],
) -> Tensor:  # (n, ...)
    """Return values whose gradients in the inputs include given derivatives.

    Args:
        values: The values of n points, (n, ...).
        inputs: The inputs of the points, (n, D).
        slopes: Columns of the inputs, and the derivatives (n, ...) of the values in them.

    Examples:
        >>> import numpy as np
        >>> x = torch.ones(2, 1, requires_grad=True)
        >>> with_slopes(torch.zeros(2), x, [(0, np.array([3.0, 4.0]))]).sum().backward()
        >>> x.grad.tolist()
        [[3.0], [4.0]]
    """
    if not slopes:
        return values

    def pull_back(points: Array, gradient: Array) -> Array:
        out = np.zeros_like(points)
        for column, derivative in slopes:
            out[:, column] += (gradient * derivative).reshape(len(out), -1).sum(axis=1)
        return out

    return values + numpy_function(inputs, lambda _: np.zeros(values.shape), pull_back).to(values)
