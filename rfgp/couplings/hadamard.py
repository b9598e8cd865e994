"""The Hadamard transform by two small matrix products.

H of size D = p q, both powers of two, is the Kronecker product of H of size p and H of size q. So for x as a matrix X
(p, q) the product is H_p X H_q. It takes 2 D (p + q) flops in two matrix products, which run at full speed. A butterfly
has fewer flops, but each of its log D passes reads and writes all of x.
"""

import math
from typing import Any

import torch
from torch import Tensor

ENTRIES = 2**19
"""The number of entries of a block of rows, chosen so that it stays in the cache."""


def hadamard(size: int) -> Tensor:
    """Return the normalized Hadamard matrix (size, size), float64.

    It is formed by Sylvester's construction.

    Args:
        size: A power of two.

    Examples:
        >>> (hadamard(2) * 2**0.5).round().tolist()
        [[1.0, 1.0], [1.0, -1.0]]
    """
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)


def flip_and_transform(
    x: Tensor,  # (n, D)
    flips: Tensor,  # (k, D)
) -> Tensor:  # (n, D)
    """Return H D_k ... H D_1 x for each row x, D_i = diag(flips_i).

    It is differentiable in x any number of times.

    Args:
        x: The rows, (n, D), D a power of two.
        flips: The signs of the k products, (k, D).

    Returns:
        The transformed rows, (n, D).

    Examples:
        >>> x = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        >>> flip_and_transform(x, torch.ones(1, 4))
        tensor([[0.5000, 0.5000, 0.5000, 0.5000]])
    """
    out: Tensor = _Transform.apply(x, flips, False)
    return out


class _Transform(torch.autograd.Function):
    """The transform, or its transpose D_1 H ... D_k H.

    Each of them is the derivative of the other.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, flips: Tensor, transposed: bool) -> Tensor:
        ctx.flips, ctx.transposed = flips.to(x), transposed
        size = x.shape[1]
        half = (size.bit_length() - 1) // 2
        inner, outer = (hadamard(part).to(x) for part in (size >> half, 1 << half))
        out, rows = torch.empty_like(x, memory_format=torch.contiguous_format), max(1, ENTRIES // size)
        for start in range(0, len(x), rows):
            _block(x[start : start + rows], ctx.flips, inner, outer, out[start : start + rows], transposed)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Transform.apply(grads[0], ctx.flips, not ctx.transposed), None, None


def _block(x: Tensor, flips: Tensor, inner: Tensor, outer: Tensor, out: Tensor, transposed: bool) -> None:
    """Transform rows (r, D) into `out`. They stay in the cache."""
    shape = (len(x), len(outer), len(inner))
    left, right, many = torch.empty_like(out), torch.empty_like(out), outer.expand(shape[0], -1, -1)
    for k, flip in enumerate(flips.flip(0) if transposed else flips):
        source = x if k == 0 else left
        if not transposed:
            source = torch.mul(source, flip, out=left)
        torch.mm(source.reshape(-1, shape[2]), inner, out=right.view(-1, shape[2]))
        torch.bmm(many, right.view(shape), out=left.view(shape))
        if transposed:
            left.mul_(flip)
    out.copy_(left)


def next_power_of_two(d: int) -> int:
    """Return the smallest power of two that is at least d.

    Args:
        d: A positive integer.

    Examples:
        >>> next_power_of_two(5), next_power_of_two(8)
        (8, 8)
    """
    return 1 << (d - 1).bit_length()
