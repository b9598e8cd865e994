"""Rows with equal inputs, merged into one row each."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.rows.blocks import Block
from rfgp.rows.repeats import row_hashes


def input_groups(
    inputs: Tensor,  # (n, d)
    spacing: float = 0.0,
) -> NDArray[np.int64]:  # (n,)
    """Return a number for each row, shared by rows with equal inputs.

    Args:
        inputs: The inputs.
        spacing: The spacing of a grid to which inputs are rounded. If 0, they are not rounded.

    Examples:
        >>> groups = input_groups(torch.tensor([[1.0], [2.0], [1.0]]))
        >>> bool(groups[0] == groups[2]), bool(groups[0] == groups[1])
        (True, False)
    """
    x = inputs.detach().cpu().double().numpy()
    x = np.round(x / spacing) if spacing else x
    hashes = row_hashes(x.T, np.zeros(len(x), dtype=np.uint64))
    return np.unique(hashes, return_inverse=True)[1].reshape(-1)


def merge_replicates(rows: Block, num_parts: int = 1) -> Block:
    """Return one row for each distinct input, with mean, count and sum of squares.

    The Gaussian likelihood and its gradient are those of all rows, from the factor of a smaller matrix.

    Args:
        rows: The rows, without known noise.
        num_parts: The maximum number of rows for each distinct input, among which its replicates are divided.

    Examples:
        >>> import torch
        >>> from rfgp.rows.replicates import merge_replicates
        >>> x, y = torch.tensor([[1.0], [2.0], [1.0]]), torch.tensor([[3.0], [0.0], [5.0]])
        >>> merged = merge_replicates(Block(x, y))
        >>> columns = merged.targets, merged.counts()[:, None], merged.replicate_sum_of_squares
        >>> sorted(torch.cat(columns, dim=1).tolist())
        [[0.0, 1.0, 0.0], [4.0, 2.0, 2.0]]
    """
    groups = torch.from_numpy(_divided(input_groups(rows.inputs), num_parts))
    first = torch.from_numpy(np.unique(groups.numpy(), return_index=True)[1])
    if len(first) == len(rows):
        return rows
    counts, zeros = rows.counts(), rows.targets.new_zeros(len(first))
    weight = zeros.index_add(0, groups, counts)
    weighted = rows.targets.new_zeros(len(first), rows.num_outputs).index_add(0, groups, counts[:, None] * rows.targets)
    means = weighted / weight[:, None]
    squares = counts[:, None] * (rows.targets - means[groups]).square()
    if rows.replicate_sum_of_squares is not None:
        squares = squares + rows.replicate_sum_of_squares
    merged_squares = torch.zeros_like(means).index_add(0, groups, squares)
    return Block(rows.inputs[first], means, None, weight, rows.given_output_weights, merged_squares)


def _divided(
    groups: NDArray[np.int64],  # (n,)
    num_parts: int,
) -> NDArray[np.int64]:  # (n,)
    """Return the numbers of parts of groups, whose sizes differ by at most 1."""
    order = np.argsort(groups, kind="stable")
    rank = np.empty_like(groups)
    rank[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    parts: NDArray[np.int64] = np.unique(num_parts * groups + rank % num_parts, return_inverse=True)[1].reshape(-1)
    return parts
