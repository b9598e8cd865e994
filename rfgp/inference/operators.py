"""Implicit covariances of predictions, with products, solves and draws."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.solvers.operators import LatentOperator


@dataclass(frozen=True, eq=False)
class ObservedOperator:
    """The covariance c^2 (S + D) of observations in the user's units.

    Attributes:
        latent: The covariance S of the latent values.
        noise: The diagonal of D (n,), positive.
        scale: The scale c.
    """

    latent: LatentOperator
    noise: Tensor
    scale: float

    @classmethod
    def of(cls, latent: LatentOperator, noise: Tensor, scale: float) -> "ObservedOperator":
        """Return the covariance of observations.

        Args:
            latent: The covariance S of the latent values.
            noise: The noise variance, () or (n,).
            scale: The scale c.
        """
        return cls(latent, noise.detach().double().cpu().expand(len(latent)), scale)

    def times(self, v: Tensor) -> Tensor:
        """Return c^2 (S + D) v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self.scale**2 * (self.latent.times(v) + self.noise[:, None] * v)

    def solve(self, v: Tensor) -> Tensor:
        """Return (S + D)^-1 v / c^2, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self.latent.solve(v, self.noise) / self.scale**2

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from N(0, c^2 (S + D)).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.

        Returns:
            The draws, (n, count).
        """
        standard = torch.randn(len(self.noise), count, generator=generator, dtype=torch.float64)
        return self.scale * (self.latent.draw(count, generator) + self.noise.sqrt()[:, None] * standard)
