"""The posterior covariance at points as products and solves, for terms whose parts are known at points."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rfgp.solvers.iterative.operator import CGOperator
from rfgp.solvers.iterative.parts import Part

PRODUCT_TOLERANCE = 1e-8
"""The relative residual of the solves in products with a covariance."""


class PosteriorOperator:
    """S = h h^T - h H^T C^-1 H h^T, C = H H^T + D, never formed.

    Args:
        rows: C of the rows.
        parts: [H; h] of the rows and of m points after them.
        size: m.
    """

    def __init__(self, rows: CGOperator, parts: Sequence[Part], size: int) -> None:
        self._rows, self._size = rows, size
        self._joined = rows.replaced(parts=parts)

    def __len__(self) -> int:
        return self._size

    def times(self, v: Tensor) -> Tensor:
        """Return S v, (m, p)."""
        return self._left(self._joined.gather(self._stacked(None, v)))

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (S + E)^-1 v, (m, p): the coefficients of v at the points if the rows are zeros, E (m,)."""
        both = self._joined.replaced(noise_diag=torch.cat([self._rows.noise_diag, noise]))
        return both.solve(self._stacked(None, v), PRODUCT_TOLERANCE)[len(self._rows) :]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, S), (m, count), by pathwise conditioning."""
        sizes = self._joined.num_columns, len(self._rows)
        u, e = (torch.randn(size, count, generator=generator, dtype=torch.float64) for size in sizes)
        return self._left(u, self._rows.deviation[:, None] * e)

    def _left(self, u: Tensor, noise: Tensor | float = 0.0) -> Tensor:
        """Return h (u - H^T C^-1 (H u + noise)), (m, p)."""
        explained = self._rows.solve(self._joined.spread(u)[: len(self._rows)] + noise, PRODUCT_TOLERANCE)
        return self._joined.spread(u - self._joined.gather(self._stacked(explained, None)))[len(self._rows) :]

    def _stacked(self, rows: Tensor | None, points: Tensor | None) -> Tensor:
        """Return values of rows and points (n + m, p), zeros for those that are None."""
        known = points if rows is None else rows
        assert known is not None
        sizes = len(self._rows), self._size
        pairs = zip((rows, points), sizes, strict=True)
        return torch.cat([known.new_zeros(size, known.shape[1]) if one is None else one for one, size in pairs])
