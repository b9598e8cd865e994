"""Rows of a Kronecker product of two dense matrices, without forming it."""

from typing import NamedTuple

import torch
from torch import Tensor

ENTRIES = 2**23
"""The maximum number of entries of an intermediate array of a product."""
FULL = 4
"""The maximum number of cells of the whole product that are computed for each requested row."""


def on_grid(first: Tensor, second: Tensor, cells: Tensor) -> Tensor:
    """Return the product of a Kronecker product A kron B with cells.

    Args:
        first: A, (M_1, N_1).
        second: B, (M_2, N_2).
        cells: The cells, (N_1, N_2, p).

    Returns:
        The product, (M_1, M_2, p).

    Examples:
        >>> cells = torch.ones(2, 2, 1)
        >>> on_grid(torch.eye(2), torch.ones(1, 2), cells)[:, :, 0].tolist()
        [[2.0], [2.0]]
    """
    inner = (first @ cells.reshape(len(cells), -1)).reshape(len(first), *cells.shape[1:])
    return second @ inner


class KroneckerRows(NamedTuple):
    """Rows of X_1 kron X_2, (n, N_1 N_2), without forming them.

    Examples:
        >>> first, rows = torch.tensor([[1.0, 2.0]]), torch.tensor([0])
        >>> KroneckerRows(first, torch.tensor([[3.0, 4.0]]), rows, rows).times(torch.eye(4)).tolist()
        [[3.0, 4.0, 6.0, 8.0]]
    """

    first: Tensor  # X_1 (M_1, N_1)
    second: Tensor  # X_2 (M_2, N_2)
    rows: Tensor  # the row of X_1 of each row, (n,)
    columns: Tensor  # the row of X_2 of each row, (n,)

    def times(self, weights: Tensor) -> Tensor:
        """Return the product (n, p) with weights (N_1 N_2, p), in their precision.

        Args:
            weights: The right factor, (N_1 N_2, p).
        """
        first, second = self.first.to(weights), self.second.to(weights)
        cells = weights.reshape(first.shape[1], second.shape[1], -1)
        if len(first) * len(second) <= FULL * len(self.rows):
            return on_grid(first, second, cells)[self.rows, self.columns]
        inner = (first @ cells.reshape(len(cells), -1)).reshape(len(first), *cells.shape[1:])
        size = max(1, ENTRIES // max(inner[0].numel(), 1))
        pairs = zip(torch.split(self.rows, size), torch.split(self.columns, size), strict=True)
        return torch.cat([torch.einsum("nk,nkp->np", second[column], inner[row]) for row, column in pairs])

    def between(self, first: Tensor, second: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the product (m, n) of some rows of A kron B and the transpose.

        Args:
            first: A (M, N_1).
            second: B (M', N_2).
            rows: The rows of A, (m,).
            columns: The rows of B, (m,).
        """
        left, right = first @ self.first.mT, second @ self.second.mT
        return left[rows][:, self.rows] * right[columns][:, self.columns]

    def squares(self) -> Tensor:
        """Return the squared norms of the rows, (n,)."""
        return self.first.square().sum(1)[self.rows] * self.second.square().sum(1)[self.columns]
