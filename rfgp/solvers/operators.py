"""The role of a covariance that is never formed: products, solves and draws."""

from typing import Protocol

import torch
from torch import Tensor


class LatentOperator(Protocol):
    """Interface: the covariance S (n, n) of latent values."""

    def __len__(self) -> int:
        """Return n."""

    def times(self, v: Tensor) -> Tensor:
        """Return S v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (S + D)^-1 v, (n, p).

        Args:
            v: The vectors v, (n, p).
            noise: The diagonal of D, (n,), positive.
        """

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from N(0, S).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.

        Returns:
            The draws, (n, count).
        """
