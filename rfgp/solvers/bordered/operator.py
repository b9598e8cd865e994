"""The covariance of projected sparse latent values, as products and solves."""

import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks.precision import Factor
from rfgp.solvers.bordered.system import BorderedSystem


class SparseOperator:
    """The covariance A S^-1 A^T of n points.

    The latent values have the posterior precision S. Methods have the arguments of those of `LatentOperator`.

    Args:
        system: The latent values given rows.
        projector: The projection A, (n, N).
    """

    def __init__(self, system: BorderedSystem, projector: sp.csr_array) -> None:
        self._system, self._projector = system, projector
        self._factor_with_points: tuple[Tensor, Factor] | None = None

    def __len__(self) -> int:
        return int(self._projector.shape[0])

    def times(self, v: Tensor) -> Tensor:
        """Return A S^-1 A^T v, (n, p)."""
        return torch.from_numpy(self._projector @ self._system.elimination.factor.solve(self._projector.T @ v.numpy()))

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (A S^-1 A^T + D)^-1 v, (n, p).

        It is computed as D^-1 (v - A (S + A^T D^-1 A)^-1 A^T D^-1 v). The factor for the last D is cached.
        """
        if self._factor_with_points is None or self._factor_with_points[0] is not noise:
            self._factor_with_points = noise, self._system.elimination.factor_with(self._projector, noise.numpy())
        scaled = v / noise[:, None]
        explained = self._factor_with_points[1].solve(self._projector.T @ scaled.numpy())
        return scaled - torch.from_numpy(self._projector @ explained) / noise[:, None]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from N(0, A S^-1 A^T).

        Returns:
            The draws, (n, count).
        """
        standard = torch.randn(self._projector.shape[1], count, generator=generator, dtype=torch.float64)
        return torch.from_numpy(self._projector @ self._system.elimination.factor.sample(standard.numpy()))
