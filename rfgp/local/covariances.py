"""Conditionals of rows given their neighbors for any covariance function, in batches of small matrices.

The formulas are those of `rfgp.local.loops`. A covariance function is evaluated once for the rows of a block and all
of their neighbors. Its (u, u) values are gathered into small matrices (b, k, k). The rows of a block are therefore
near each other and share neighbors. Values are computed again for gradients, to keep one block in memory at a time.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import recomputed
from rfgp.local.factor import Floats, Indices, spatial_blocks
from rfgp.local.kinds import MIN_PIVOT_RATIO
from rfgp.sparse import EntryPattern

BLOCK = 64
"""The number of rows of a block."""
MAX_BLOCK_ROWS = 600
"""The maximum number of rows and neighbors of a block of several rows. A block with more is divided."""

Covariance = Callable[..., Tensor]
"""Maps the numbers of rows (u,), and the parameters, to the covariance (u, u) of these rows, float64."""


class BatchedProcess(NamedTuple):
    """A process of any covariance function at ordered rows, whose entries are computed in batches.

    Attributes:
        covariance: The covariance of rows.
        parameters: Its parameters (...).
        positions: The positions of the rows, for the division into blocks, (n, e).
    """

    covariance: Covariance
    parameters: tuple[Tensor, ...]
    positions: Floats

    def inverse_factor(
        self,
        noise: Tensor,  # (n,)
        pattern: EntryPattern,  # (r, n)
    ) -> Tensor:  # (nnz,)
        """Return the entries of the inverse factor of the process with noise (`rfgp.local.factor`).

        They are differentiable once in the noise and in the parameters.

        Args:
            noise: The noise variance of each row.
            pattern: The neighbors of each row, with the row itself as the last.
        """
        weights, variances = self._moments(noise, pattern, share=1.0)
        scale = variances.rsqrt()
        return _in_pattern(-weights * scale[:, None], scale, pattern)

    def root_entries(
        self,
        noise: Tensor,  # (n,)
        pattern: EntryPattern,  # (r, n)
    ) -> Tensor:  # (nnz,)
        """Return the weights of the neighbors of rows, then the conditional deviation of each row without its noise.

        Args:
            noise: The noise variance of each row as a neighbor.
            pattern: The neighbors of each row, with the row itself as the last.
        """
        weights, variances = self._moments(noise, pattern, share=0.0)
        return _in_pattern(weights, variances.sqrt(), pattern)

    def _moments(self, noise: Tensor, pattern: EntryPattern, *, share: float) -> tuple[Tensor, Tensor]:
        """Return the weights of neighbors (r, k), 0 after the last one, and conditional variances (r,).

        `share` is the share of the noise in the variance of a row.
        """
        near, numbers_of_rows = _neighbors_of(pattern)
        if not len(numbers_of_rows):
            return torch.zeros(near.shape, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        parts, order, noise = [], [], noise.double()
        for rows in _blocks(near, numbers_of_rows, self.positions):
            numbers = torch.from_numpy(near[rows]), torch.from_numpy(numbers_of_rows[rows])
            parts.append(recomputed(partial(_conditioned, self.covariance, numbers, share), noise, *self.parameters))
            order.append(rows)
        original_order = torch.from_numpy(np.argsort(np.concatenate(order)))
        weights, variances = (torch.cat(columns)[original_order] for columns in zip(*parts, strict=True))
        return weights, variances


def _neighbors_of(
    pattern: EntryPattern,  # (r, n)
) -> tuple[Indices, Indices]:  # (r, k), (r,)
    """Return the neighbors of rows, and the numbers of the rows themselves.

    -1 follows the last neighbor of a row.

    Args:
        pattern: The neighbors of each row, with the row itself as the last, (r, n).
    """
    counts = np.diff(pattern.indptr) - 1
    is_present = np.arange(max(int(counts.max(initial=0)), 1)) < counts[:, None]
    is_row = np.zeros(len(pattern.indices), dtype=bool)
    is_row[pattern.indptr[1:] - 1] = True
    near = np.full(is_present.shape, -1, dtype=np.int64)
    near[is_present] = np.asarray(pattern.indices)[~is_row]
    return near, np.asarray(pattern.indices, dtype=np.int64)[is_row]


def _in_pattern(
    weights: Tensor,  # (r, k)
    diagonal: Tensor,  # (r,)
    pattern: EntryPattern,  # (r, n)
) -> Tensor:  # (nnz,)
    """Return the entries of a pattern from those of neighbors and of rows.

    Args:
        weights: The entries at the neighbors of rows, (r, k).
        diagonal: The entries at the rows themselves, (r,).
        pattern: The pattern, (r, n).

    Returns:
        The entries, (nnz,).
    """
    counts = torch.from_numpy(np.diff(pattern.indptr)) - 1
    columns = torch.arange(weights.shape[1] + 1)
    both = torch.cat([weights, diagonal[:, None]], dim=1)
    is_last = columns == weights.shape[1]
    return both[(columns < counts[:, None]) | is_last]


def _blocks(near: Indices, rows_themselves: Indices, positions: Floats) -> Iterator[Indices]:
    """Yield blocks of near rows with few neighbors altogether, or single rows."""
    waiting = spatial_blocks(positions[rows_themselves], BLOCK)[::-1]
    while waiting:
        rows = waiting.pop()
        if len(rows) > 1 and len(np.unique(near[rows])) + len(rows) > MAX_BLOCK_ROWS:
            half = len(rows) // 2
            waiting += [rows[half:], rows[:half]]
        elif len(rows):
            yield rows


def _conditioned(
    covariance: Covariance,
    numbers: tuple[Tensor, Tensor],  # (b, k), (b,)
    share: float,
    noise: Tensor,  # (n,)
    *parameters: Tensor,
) -> tuple[Tensor, Tensor]:  # (b, k), (b,)
    """Return the weights and variances of the rows of a block."""
    near, rows_themselves = numbers
    is_present = near >= 0
    distinct, inverse = torch.unique(torch.cat([rows_themselves, near.clamp_min(0).reshape(-1)]), return_inverse=True)
    rows, neighbors = inverse[: len(rows_themselves)], inverse[len(rows_themselves) :].reshape(near.shape)
    matrix, noise_of_distinct = covariance(distinct, *parameters), noise[distinct]
    cross = torch.where(is_present, _entries_at(matrix, rows[:, None], neighbors), 0.0)
    pairs = is_present[:, :, None] & is_present[:, None, :]
    among = torch.where(pairs, _entries_at(matrix, neighbors[:, :, None], neighbors[:, None, :]), 0.0)
    among = among + torch.where(is_present, noise_of_distinct[neighbors], 1.0).diag_embed()
    weights: Tensor = _Solve.apply(among, cross)
    left = matrix.diagonal()[rows] - (weights * cross).sum(1)
    return weights, left.clamp_min(0) + share * noise_of_distinct[rows]


def _entries_at(
    matrix: Tensor,  # (u, u)
    rows: Tensor,  # (...)
    columns: Tensor,  # (...)
) -> Tensor:  # (...)
    """Return entries of a matrix at rows and columns that broadcast."""
    flat = rows * len(matrix) + columns
    return matrix.reshape(-1).index_select(0, flat.reshape(-1)).reshape(flat.shape)


class _Solve(torch.autograd.Function):
    """C^-1 c of each matrix C (b, k, k) and vector c (b, k).

    The result b is 0 for rows that earlier rows determine. For a gradient g in b, the gradients in C and c are -h b^T
    and h = C^-1 g.
    """

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, right: Tensor) -> Tensor:
        factors, is_kept = _factorized(matrices)
        solution = torch.cholesky_solve((right * is_kept)[:, :, None], factors)[:, :, 0]
        ctx.save_for_backward(factors, is_kept, solution)
        return solution

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        factors, is_kept, solution = ctx.saved_tensors
        solved = torch.cholesky_solve((grads[0] * is_kept)[:, :, None], factors)[:, :, 0]
        return -solved[:, :, None] * solution[:, None, :], solved


def _factorized(
    matrices: Tensor,  # (b, k, k)
) -> tuple[Tensor, Tensor]:  # (b, k, k), (b, k)
    """Return Cholesky factors of matrices, and whether each row is kept.

    Rows that are not kept are those of the identity.
    """
    diagonal = matrices.diagonal(dim1=1, dim2=2)
    factors, failed = torch.linalg.cholesky_ex(matrices)
    is_large = factors.diagonal(dim1=1, dim2=2).square() >= MIN_PIVOT_RATIO * diagonal
    failing = torch.nonzero((failed > 0) | ~is_large.all(1))[:, 0]
    is_kept = torch.ones_like(is_large)
    if len(failing):
        factors[failing], is_kept[failing] = _factorized_by_rows(matrices[failing])
    return factors, is_kept


def _factorized_by_rows(
    matrices: Tensor,  # (b, k, k)
) -> tuple[Tensor, Tensor]:  # (b, k, k), (b, k)
    """Return the result of `_factorized`, row by row.

    Rows with a pivot above rounding are kept.
    """
    lower, diagonal = torch.zeros_like(matrices), matrices.diagonal(dim1=1, dim2=2)
    is_kept = torch.ones_like(diagonal, dtype=torch.bool)
    for p in range(matrices.shape[1]):
        before = lower[:, p, :p].clone()
        pivot = diagonal[:, p] - before.square().sum(1)
        kept = is_kept[:, p] = pivot >= MIN_PIVOT_RATIO * diagonal[:, p]
        root = torch.where(kept, pivot, 1.0).sqrt()
        below = matrices[:, p + 1 :, p] - (lower[:, p + 1 :, :p] @ before[:, :, None])[:, :, 0]
        lower[:, p + 1 :, p] = torch.where(kept[:, None], below / root[:, None], 0.0)
        lower[:, p, :p] = torch.where(kept[:, None], before, 0.0)
        lower[:, p, p] = root
    return lower, is_kept
