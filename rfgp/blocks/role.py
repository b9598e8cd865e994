"""The role of a latent block: one term of a Gaussian process prior."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from rfgp.grams import Gram

S = TypeVar("S")

Functions = Callable[[Tensor], Tensor]
"""Functions of the inputs of n points, (n, p)."""


class NewLevels(Protocol):
    """Interface: the part of a term at levels without rows, for a variance of 1.

    It is independent of the rows. Inputs with the same new level share it.
    """

    def covariance(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n_a, n_b) of inputs a and b. It is 0 without new levels.

        Args:
            a: The inputs of n_a points, (n_a, D).
            b: The inputs of n_b points, (n_b, D).
            parameters: The parameters of the block.
        """

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n_a,) of inputs a.

        Args:
            a: The inputs of n_a points, (n_a, D).
            parameters: The parameters of the block.
        """


class LatentBlock(ABC):
    """A zero-mean Gaussian term f of the prior.

    A solver chooses how to eliminate its latent vector.

    Attributes:
        name: The name of the term, unique within a prior.
    """

    name: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms of which the block is the sum."""
        return (self.name,)

    def flags(self, names: Sequence[str] | None) -> Tensor:
        """Return whether each term of the block is among the names, (T,).

        Args:
            names: The names of the terms. If None, all are.
        """
        return torch.tensor([names is None or name in names for name in self.names])

    @property
    @abstractmethod
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors (...) that may have gradients."""

    @abstractmethod
    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the prior covariance (n_a, n_b) between inputs a and b, float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
            b: The inputs of n_b points, (n_b,) or (n_b, D).
        """

    def gram(self, a: Tensor) -> Gram:
        """Return the prior covariance (n_a, n_a) of inputs, with its gradient.

        It is float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
        """
        return Gram.of(self.kernel(a, a))

    @abstractmethod
    def diagonal(self, a: Tensor) -> Tensor:
        """Return the prior variances (n_a,), float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
        """

    def detached(self) -> Self:
        """Return the block without gradients."""
        return detached(self)


def detached(state: S) -> S:
    """Return a frozen dataclass without gradients.

    Its tensors (...), blocks, and tuples of these are detached.

    Args:
        state: The dataclass.
    """
    known: Any = state
    copy: S = replace(known, **{entry.name: _detached(getattr(known, entry.name)) for entry in fields(known)})
    return copy


def _detached(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_detached, value))
    if isinstance(value, LatentBlock):
        return value.detached()
    return value.detach() if isinstance(value, Tensor) else value
