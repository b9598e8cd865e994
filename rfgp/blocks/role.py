"""The role of a latent block: one term of a Gaussian process prior."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from torch import Tensor

Functions = Callable[[Tensor], Tensor]
"""Functions of the inputs of n points, (n, p)."""


class LatentBlock(ABC):
    """A zero-mean Gaussian term f of the prior. A solver decides how its latent vector is eliminated.

    Attributes:
        name: The name of the term, unique within a prior.
    """

    name: str

    @property
    @abstractmethod
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors (...) that may carry gradients."""

    @abstractmethod
    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the prior covariance (n_a, n_b) between inputs a and b, float64."""

    @abstractmethod
    def diagonal(self, a: Tensor) -> Tensor:
        """Return the prior variances (n_a,), float64."""

    @abstractmethod
    def detached(self) -> Self:
        """Return the block without gradients."""
