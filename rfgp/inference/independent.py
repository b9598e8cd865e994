"""Posteriors of C functions of one kernel that are independent of each other, and their laws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.inference.laplace.laws import block_diagonal
from rfgp.inference.laws import Functions, InputBlocks, Law, Posterior


@dataclass(frozen=True, eq=False)
class IndependentLaw:
    """The laws of C functions at n points.

    Attributes:
        laws: Of each of them.
    """

    laws: Sequence[Law]

    def mean(self) -> Tensor:
        """Return the means (n, C)."""
        return torch.cat([law.mean() for law in self.laws], dim=1)

    def variance(self) -> Tensor:
        """Return the marginal variances (n, C)."""
        return torch.stack([law.variance() for law in self.laws], dim=1)

    def spread(self) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""
        return torch.diag_embed(self.variance())

    def covariance(self) -> Tensor:
        """Return the covariances between points, (n, n, C), of each function."""
        return torch.stack([law.covariance() for law in self.laws], dim=-1)

    def root(self) -> Tensor:
        """Return a matrix R (C n, r) with R R^T the covariance of all functions at all points, class by class."""
        return block_diagonal(law.root() for law in self.laws)


@dataclass(frozen=True, eq=False)
class IndependentPosterior:
    """Of C functions.

    Attributes:
        functions: Of each of them.
    """

    functions: Sequence[Posterior]

    def law(self, inputs: Tensor | InputBlocks) -> IndependentLaw:
        """Return the latent laws at n inputs, (n, d) or (n,)."""
        return IndependentLaw([each.law(inputs) for each in self.functions])

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n inputs, (count, n, C)."""
        drawn = [each.sample_functions(count, generator) for each in self.functions]
        return lambda inputs: torch.cat([each(inputs) for each in drawn], dim=2)

    def tensors(self) -> dict[str, Tensor]:
        """Return those of each by name, (...), with its number before it: "0.weights"."""
        return {f"{i}.{name}": one for i, each in enumerate(self.functions) for name, one in each.tensors().items()}


def by_function(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return the tensors (...) of a posterior by what stands before the point in their names, "" where none does."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        whose, _, own = name.rpartition(".")
        found.setdefault(whose, {})[own] = tensor
    return found
