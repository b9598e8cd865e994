"""Covariances of laws that are never formed: products, solves and draws."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


class CovarianceOperator(Protocol):
    """The role: a covariance C (n, n)."""

    def times(self, v: Tensor) -> Tensor:
        """Return C v, (n, p)."""

    def solve(self, v: Tensor) -> Tensor:
        """Return C^-1 v, (n, p)."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, C), (n, count)."""


class LatentOperator(Protocol):
    """The role: the covariance S (n, n) of a latent law."""

    def __len__(self) -> int:
        """Return n."""

    def times(self, v: Tensor) -> Tensor:
        """Return S v, (n, p)."""

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (S + D)^-1 v, (n, p), for positive D (n,)."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, S), (n, count)."""


@runtime_checkable
class HasOperator(Protocol):
    """The role: a law whose covariance need not be formed."""

    def operator(self) -> LatentOperator | None:
        """Return the covariance of its n points."""


@dataclass(frozen=True, eq=False)
class ObservedOperator:
    """c^2 (S + D), of observations in the user's units.

    Attributes:
        latent: S.
        noise: D (n,), positive.
        scale: c.
    """

    latent: LatentOperator
    noise: Tensor
    scale: float

    def times(self, v: Tensor) -> Tensor:
        """Return c^2 (S + D) v, (n, p)."""
        return self.scale**2 * (self.latent.times(v) + self.noise[:, None] * v)

    def solve(self, v: Tensor) -> Tensor:
        """Return (S + D)^-1 v / c^2, (n, p)."""
        return self.latent.solve(v, self.noise) / self.scale**2

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, c^2 (S + D)), (n, count)."""
        own = torch.randn(len(self.noise), count, generator=generator, dtype=torch.float64)
        return self.scale * (self.latent.draw(count, generator) + self.noise.sqrt()[:, None] * own)


def in_units(law: object, scale: Tensor, noise: Tensor) -> ObservedOperator | None:
    """Return the covariance of a standardised law with noise, () or (n,), of one output in the user's units.

    None where its law forms it, has several outputs, or no noise.
    """
    latent = law.operator() if isinstance(law, HasOperator) and scale.ndim == 0 and noise.ndim < 2 else None
    if latent is None or not bool((noise > 0).all()):
        return None
    return ObservedOperator(latent, noise.detach().double().cpu().expand(len(latent)), float(scale))
