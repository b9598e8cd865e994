"""The sparse inverse factor of a nearest-neighbor (Vecchia) process with noise, and its products.

Rows are ordered, and each has some earlier rows as neighbors. Let b_i and d_i be the weights and the variance of y_i
given its neighbors (`rfgp.local.loops`). The precision of y is V^T V. Row i of V has -b_i / sqrt(d_i) at the neighbors
and 1 / sqrt(d_i) at i. V y has independent entries of variance 1, and log |V| is the sum of the logarithms of its
diagonal. If all earlier rows are neighbors, V^T V is the exact precision (Vecchia 1988; Katzfuss and Guinness 2021).
"""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import Array, Gradients, Needs, as_array, with_gradient
from rfgp.local.neighbors import Indices
from rfgp.sparse import EntryPattern
from rfgp.threads import num_threads

IN_THREADS = 2**14
"""The number of entries from which a loop uses threads."""
IN_THREADS_OF_PRODUCTS = 2**21
"""The number of multiplications from which a transposed product uses threads, each for some columns."""
MAX_POSITION = 1e140
"""The largest scaled coordinate, in lengthscales. Its square is finite."""
MAX_SUMS = 2**28
"""The maximum number of numbers in the gradients of all threads (two gigabytes). Fewer threads are used beyond it."""


def inverse_factor(
    x: Tensor,  # (n, d)
    lengthscale: Tensor,  # (d,) or ()
    variance: Tensor,  # ()
    noise: Tensor,  # (n,)
    kind: int,
    pattern: EntryPattern,
    features: Tensor | None = None,  # (n, F)
) -> Tensor:  # (nnz,)
    """Return the entries of V, float64.

    They are differentiable once in lengthscale, variance, noise and features.

    Args:
        x: The ordered rows.
        lengthscale: The lengthscale of the local kernel.
        variance: The value of the local kernel at distance 0.
        noise: The noise variance of each observation.
        kind: A kernel of `rfgp.local.KINDS`.
        pattern: The pattern of V, or of some of its rows (r, n): the neighbors of each row, then the row itself.
        features: The features phi (n, F) of a part that is subtracted. The covariance is then v K - phi phi^T. If None,
            there are none.

    Examples:
        >>> from rfgp.local import KINDS, nearest_predecessors
        >>> x, one = torch.tensor([[0.0], [1.0], [3.0]]).double(), torch.tensor(1.0).double()
        >>> pattern = nearest_predecessors(x.numpy(), 2)
        >>> entries = inverse_factor(x, one, one, 0.1 * torch.ones(3).double(), KINDS["matern12"], pattern)
        >>> V = (
        ...     torch.zeros(3, 3)
        ...     .double()
        ...     .index_put((torch.tensor(pattern.rows), torch.tensor(pattern.indices)), entries)
        ... )
        >>> torch.allclose((V.mT @ V).inverse(), torch.exp(-torch.cdist(x, x)) + 0.1 * torch.eye(3).double())
        True
    """
    features = no_features(x) if features is None else features
    out: Tensor = _InverseFactor.apply(x.detach(), lengthscale, variance, noise, features, kind, pattern)
    return out


def log_prob(
    x: Tensor,  # (n, d)
    lengthscale: Tensor,  # (d,) or ()
    variance: Tensor,  # ()
    noise: Tensor,  # (n,)
    residual: Tensor,  # (n, k)
    output_weights: Tensor,  # (k,)
    kind: int,
    pattern: EntryPattern,  # (r, n)
) -> Tensor:  # ()
    """Return the log density of centered observations, with its gradient.

    It takes one pass over the rows. It is the log density of r rows, each given its neighbors. It is differentiable
    once in lengthscale, variance, noise and residual.

    Args:
        x: The ordered rows.
        lengthscale: The lengthscale of the local kernel.
        variance: The value of the local kernel at distance 0.
        noise: The noise variance of each observation.
        residual: The observations minus their mean.
        output_weights: The weight of each output.
        kind: A kernel of `rfgp.local.KINDS`.
        pattern: The neighbors of each row, with the row itself as the last.

    Examples:
        >>> from rfgp.local import KINDS, nearest_predecessors
        >>> x, one = torch.tensor([[0.0], [1.0]]).double(), torch.ones(()).double()
        >>> pattern, y = nearest_predecessors(x.numpy(), 1), torch.zeros(2, 1).double()
        >>> found = log_prob(x, one, one, torch.zeros(2).double(), y, torch.ones(1), KINDS["gaussian"], pattern)
        >>> round(float(found), 4)  # -log(2 pi) - log(1 - exp(-1)) / 2
        -1.6085
    """
    from rfgp.local import loops

    z, targets = scaled_positions(x, lengthscale), as_rows(residual)
    rows = kind, z, as_rows(no_features(x)), as_rows(noise), float(variance.detach()), pattern.indices, pattern.indptr
    fixed = *rows, targets, as_array(output_weights.double())

    def run(a: int, b: int) -> tuple[float, float, Array, Array, Array]:
        gradients = np.zeros(z.shape[1]), np.zeros(len(z)), np.zeros(targets.shape)
        return *loops.density_rows(a, b, *fixed, *gradients), *gradients

    def compute(needs: Needs) -> tuple[Tensor, Gradients]:
        parts = in_blocks(pattern.indptr, run)
        sums = (sum(part[i] for part in parts) for i in range(5))
        value, grad_variance, grad_lengths, grad_noise, grad_targets = sums

        def gradients() -> list[Tensor]:
            return [
                _grad_lengthscale(grad_lengths, lengthscale.detach()),
                torch.as_tensor(grad_variance, dtype=torch.float64).to(variance),
                torch.from_numpy(grad_noise).to(noise),
                torch.from_numpy(grad_targets).to(residual),
            ]

        return torch.tensor(value, dtype=torch.float64), gradients

    return with_gradient(compute, lengthscale, variance, noise, residual)


def _grad_lengthscale(grad_lengths: Array, lengthscale: Tensor) -> Tensor:
    """Return the gradient in a lengthscale, (d,) or ().

    The sums (d,) are those of slopes times squared distances.
    """
    gradient = -2 * torch.from_numpy(grad_lengths).to(lengthscale) / lengthscale
    return gradient if lengthscale.ndim else gradient.sum()


def no_features(x: Tensor) -> Tensor:
    """Return features (n, 0) for rows without a subtracted part.

    Args:
        x: The rows, (n, d).
    """
    return torch.zeros(len(x), 0, dtype=torch.float64)


def scaled_positions(x: Tensor, lengthscale: Tensor) -> Array:
    """Return rows in units of lengthscales.

    They are clamped so that squared distances are finite.

    Args:
        x: The rows, (n, d).
        lengthscale: The lengthscale, (d,) or ().

    Returns:
        The positions, (n, d), float64.
    """
    return as_rows((x.double() / lengthscale.double()).clamp(-MAX_POSITION, MAX_POSITION))


def as_rows(x: Tensor) -> Array:
    """Return rows (n, c) as a contiguous float64 array.

    Args:
        x: The rows, (n, c).
    """
    return np.ascontiguousarray(as_array(x.double()))


class _InverseFactor(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        lengthscale: Tensor,
        variance: Tensor,
        noise: Tensor,
        features: Tensor,
        kind: int,
        pattern: EntryPattern,
    ) -> Tensor:
        from rfgp.local import loops

        z, phi = scaled_positions(x, lengthscale), as_rows(features)
        ctx.fixed = (kind, z, phi, as_array(noise), float(variance), pattern.indices, pattern.indptr)
        ctx.save_for_backward(lengthscale, variance, noise, features)
        entries = np.empty(len(pattern.indices))
        in_blocks(pattern.indptr, lambda a, b: loops.conditional_rows(a, b, *ctx.fixed, 1.0, entries))
        diagonal = pattern.indptr[1:] - 1
        scale = 1 / entries[diagonal]
        entries *= np.repeat(-scale, np.diff(pattern.indptr))
        entries[diagonal] = scale
        ctx.entries = entries
        return torch.from_numpy(entries.copy())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from rfgp.local import loops

        (lengthscale, variance, noise, features), (_, z, phi, *_) = ctx.saved_tensors, ctx.fixed
        grad = np.ascontiguousarray(as_array(grads[0]))

        def pull(a: int, b: int) -> tuple[float, Array, Array, Array]:
            gradients = np.zeros(z.shape[1]), np.zeros(len(z)), np.zeros(phi.shape)
            return loops.add_row_gradients(a, b, *ctx.fixed, ctx.entries, grad, *gradients), *gradients

        parts = in_blocks(ctx.fixed[-1], pull, most=max(1, MAX_SUMS // max(1, phi.size)))
        grad_variance, grad_lengths, grad_noise, grad_features = (sum(part[i] for part in parts) for i in range(4))
        return (
            None,
            _grad_lengthscale(grad_lengths, lengthscale),
            torch.as_tensor(grad_variance, dtype=torch.float64).to(variance),
            torch.from_numpy(grad_noise).to(noise),
            torch.from_numpy(grad_features).to(features),
            None,
            None,
        )


def in_blocks(starts: Any, run: Callable[[int, int], Any], most: int | None = None) -> list[Any]:
    """Return run(first, last) of blocks of rows.

    Blocks have about equally many entries. Large ones run in threads.

    Args:
        starts: The first entry of each row, (n + 1,).
        run: The function of the first row of a block and of the row after its last.
        most: The most threads. If None, all.
    """
    count = min(num_threads(), most or num_threads()) if starts[-1] > IN_THREADS else 1
    inner = np.searchsorted(starts, np.linspace(0, starts[-1], count + 1)[1:-1]).tolist()
    ends = list(itertools.pairwise([0, *inner, len(starts) - 1]))
    if count == 1:
        return [run(*ends[0])]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda pair: run(*pair), ends))


def whitened(
    entries: Tensor,  # (nnz,)
    dense: Tensor,  # (n, c)
    pattern: EntryPattern,  # (r, n)
) -> Tensor:  # (r, c)
    """Return V B, float64, differentiable once in both.

    The gradient for upstream G is G_i . B_j in V_ij, and V^T G in B.

    Args:
        entries: The entries of V, (nnz,).
        dense: B, (n, c).
        pattern: The pattern of V, (r, n).

    Examples:
        >>> from rfgp.sparse import EntryPattern
        >>> pattern = EntryPattern(np.array([0, 1, 3]), np.array([0, 0, 1]), (2, 2))
        >>> entries, dense = torch.tensor([1.0, -0.5, 2.0]).double(), torch.tensor([[1.0], [3.0]])
        >>> whitened(entries, dense, pattern).tolist()
        [[1.0], [5.5]]
    """
    out: Tensor = _Whitened.apply(entries, dense.double(), pattern)
    return out


def whitened_transpose(
    entries: Tensor,  # (nnz,)
    dense: Tensor,  # (r, c)
    pattern: EntryPattern,  # (r, n)
) -> Tensor:  # (n, c)
    """Return V^T B, float64, without gradients.

    Args:
        entries: The entries of V, (nnz,).
        dense: B, (r, c).
        pattern: The pattern of V, (r, n).

    Examples:
        >>> from rfgp.sparse import EntryPattern
        >>> pattern = EntryPattern(np.array([0, 1, 3]), np.array([0, 0, 1]), (2, 2))
        >>> entries, dense = torch.tensor([1.0, -0.5, 2.0]).double(), torch.tensor([[1.0], [3.0]]).double()
        >>> whitened_transpose(entries, dense, pattern).tolist()
        [[-0.5], [6.0]]
    """
    from rfgp.local import products

    right, out = np.ascontiguousarray(as_array(dense)), np.zeros((pattern.shape[1], dense.shape[1]))
    fixed = (as_array(entries), pattern.indices, pattern.indptr, right, out)
    if len(entries) * out.shape[1] < IN_THREADS_OF_PRODUCTS or num_threads() == 1:
        products.multiply_transposed(0, out.shape[1], *fixed)
    else:  # threads take columns, because threads with rows would add to the same entries
        ends = np.linspace(0, out.shape[1], num_threads() + 1).astype(np.int64)
        with ThreadPoolExecutor(num_threads()) as pool:
            list(pool.map(lambda pair: products.multiply_transposed(*pair, *fixed), itertools.pairwise(ends)))
    return torch.from_numpy(out)


def conditionals(
    points: Tensor,  # (q, d)
    x: Tensor,  # (n, d)
    noise: Tensor,  # (n,)
    near: Indices,  # (q, k)
    lengthscale: Tensor,  # (d,) or ()
    variance: Tensor,  # ()
    kind: int,
    features: tuple[Tensor, Tensor] | None = None,  # (n, F), (q, F)
) -> tuple[Tensor, Tensor]:
    """Return the weights of the neighbors of points, and conditional variances.

    Args:
        points: The points.
        x: The rows.
        noise: The noise variance of each row.
        near: The rows that each point is conditioned on, in any order, followed by -1.
        lengthscale: The lengthscale of the local kernel.
        variance: The value of the local kernel at distance 0.
        kind: A kernel of `rfgp.local.KINDS`.
        features: The features of the subtracted part at rows and at points, as for `inverse_factor`. If None, there are
            none.

    Returns:
        The weights b (q, k) and the variances d (q,).

    Examples:
        >>> from rfgp.local import KINDS, nearest
        >>> x, one = torch.tensor([[0.0], [1.0], [3.0]]).double(), torch.ones(()).double()
        >>> near = nearest(x.numpy(), x[:1].numpy() + 0.5, 2)
        >>> weights, variance = conditionals(x[:1] + 0.5, x, torch.zeros(3), near, one, one, KINDS["matern12"])
        >>> near.tolist(), weights.round(decimals=3).tolist()
        ([[0, 1]], [[0.443, 0.443]])
    """
    from rfgp.local import loops

    z, scaled_points = (scaled_positions(a, lengthscale) for a in (x, points))
    phi, points_phi = map(as_rows, features or (no_features(x), no_features(points)))
    weights, left = np.zeros(near.shape), np.zeros(len(near))
    fixed = (kind, z, phi, as_array(noise), float(variance), scaled_points, points_phi, near, weights, left)
    in_blocks(np.arange(len(near) + 1) * near.shape[1], lambda a, b: loops.condition_points(a, b, *fixed))
    return torch.from_numpy(weights), torch.from_numpy(left)


class _Whitened(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entries: Tensor, dense: Tensor, pattern: EntryPattern) -> Tensor:
        ctx.save_for_backward(entries, dense)
        ctx.pattern = pattern
        from rfgp.local import products

        right, out = np.ascontiguousarray(as_array(dense)), np.empty((pattern.shape[0], dense.shape[1]))
        fixed = (as_array(entries), pattern.indices, pattern.indptr, right, out)
        in_blocks(pattern.indptr, lambda a, b: products.multiply_rows(a, b, *fixed))
        return torch.from_numpy(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        from rfgp.local import products

        (entries, dense), pattern = ctx.saved_tensors, ctx.pattern
        grad, grad_entries, grad_dense = np.ascontiguousarray(as_array(grads[0])), None, None
        if ctx.needs_input_grad[0]:
            grad_values, right = np.empty(len(entries)), np.ascontiguousarray(as_array(dense))
            fixed = (grad, right, pattern.indices, pattern.indptr, grad_values)
            in_blocks(pattern.indptr, lambda a, b: products.outer_rows(a, b, *fixed))
            grad_entries = torch.from_numpy(grad_values)
        if ctx.needs_input_grad[1]:
            grad_dense = whitened_transpose(entries, grads[0], pattern)
        return grad_entries, grad_dense, None
