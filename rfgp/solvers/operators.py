"""The role of a covariance that is never formed: products, solves and draws."""

from typing import Protocol

import torch
from torch import Tensor


class LatentOperator(Protocol):
    """Interface: the covariance S (n, n) of latent values."""

    def __len__(self) -> int:
        """Return n."""

    def times(self, v: Tensor) -> Tensor:
        """Return S v, (n, p)."""

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (S + D)^-1 v, (n, p), for positive D (n,)."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, S), (n, count)."""
