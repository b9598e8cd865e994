"""Nearest neighbors as a process of places and parameters, with the weights that they are the residual of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.blocks import NeighborBlock, Prior, WeightBlock
from rfgp.blocks.kernel_neighbors import only
from rfgp.blocks.role import detached
from rfgp.solvers.nearby import explained_features, neighbors_of
from rfgp.sparse import SparsityPattern


@dataclass(frozen=True, eq=False)
class LatentProcess:
    """Nearest neighbors, and the weights that they are the residual of.

    Attributes:
        block: The neighbors.
        explained: The weights. There are none unless the block is a residual.
    """

    block: NeighborBlock
    explained: tuple[WeightBlock, ...] = ()

    def detached(self) -> "LatentProcess":
        """Return the process without gradients."""
        return detached(self)

    def places(self, inputs: Tensor) -> Tensor:
        """Return the places (n, e) of inputs (n, D), in double precision; equal places have equal bytes.

        They are the columns that the block reads. Those of a residual are inputs whose other columns are zeros, which
        the features read as well.
        """
        block = self.block
        found = only(inputs, block.columns) if block.is_residual else block.read(inputs)
        return found.detach().double().contiguous() + 0.0

    @property
    def parameters(self) -> tuple[Tensor, Tensor]:
        """The parameters (p,) of the process for a variance of 1, and its variance, 0-d.

        Those of the block come first. For each block of weights their variance, in that of the process, and what the
        features depend on follow.
        """
        values, variance = self.block.latent_parameters
        parts = [values]
        for weights in self.explained:
            parts += [(weights.unit / variance).reshape(1)]
            parts += [parameter.double().reshape(-1) for parameter in weights.parameters]
        return torch.cat(parts), variance

    @property
    def key(self) -> tuple[object, ...]:
        """What the process depends on besides places and parameters."""
        return (*self.block.covariance_key, self.block.num_neighbors, self.block.seed, *self._features)

    @property
    def _features(self) -> tuple[object, ...]:
        """The features, which are functions of places, and the columns that these have."""
        return (self.block.columns, *(weights.features for weights in self.explained)) if self.explained else ()

    def prior(self, values: Tensor | None = None) -> Prior:
        """Return the prior as a function of places.

        Args:
            values: The parameters (p,), for a variance of 1. If None, its own, and its own variance.
        """
        if values is None:
            return Prior(weights=self.explained, neighbors=self.block.at_places())
        left = list(torch.split(values, self._sizes))
        block = self.block.at_places(left.pop(0))
        return Prior(weights=tuple(_with(weights, left) for weights in self.explained), neighbors=block)

    @property
    def _sizes(self) -> list[int]:
        """The number of parameters of the block, and of each that the weights add."""
        sizes = [len(self.block.latent_parameters[0])]
        for weights in self.explained:
            sizes += [1, *(parameter.numel() for parameter in weights.parameters)]
        return sizes

    def factor(
        self,
        places: Tensor,  # (N, e)
        values: Tensor,  # (p,)
        pattern: SparsityPattern,  # (N, N)
    ) -> Tensor:  # (nnz,)
        """Return the entries of the sparse inverse factor of values at places, for a variance of 1."""
        prior = self.prior(values)
        return neighbors_of(prior).latent_factor(places, pattern, explained_features(prior, places))


def _with(weights: WeightBlock, left: list[Tensor]) -> WeightBlock:
    """Return weights with a variance and parameters that are taken from the beginning of a list."""
    variance = left.pop(0).reshape(())
    return replace(weights, variance=variance, parameters=_shaped(weights.parameters, left))


def _shaped(parameters: Sequence[Tensor], left: list[Tensor]) -> tuple[Tensor, ...]:
    """Return tensors from the beginning of a list in the shapes of parameters (...)."""
    return tuple(left.pop(0).reshape(parameter.shape) for parameter in parameters)
