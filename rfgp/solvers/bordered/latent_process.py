"""Nearest neighbors as a process of positions and parameters."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.blocks import NeighborBlock, Prior, WeightBlock
from rfgp.blocks.kernel_neighbors import only
from rfgp.blocks.role import detached
from rfgp.solvers.kriging import explained_features, neighbors_of
from rfgp.sparse import SparsityPattern


@dataclass(frozen=True, eq=False)
class LatentProcess:
    """Nearest neighbors, and the weights whose residual they model.

    Attributes:
        block: The neighbors.
        explained: The weights. There are none unless the block is a residual.
    """

    block: NeighborBlock
    explained: tuple[WeightBlock, ...] = ()

    def detached(self) -> "LatentProcess":
        """Return the process without gradients."""
        return detached(self)

    def positions(self, inputs: Tensor) -> Tensor:
        """Return the positions (n, e) of inputs, in double precision.

        Equal positions have equal bytes.

        Positions are the columns that the block depends on. For a residual, the other columns are zeros instead,
        because the features depend on all columns.

        Args:
            inputs: The inputs, (n, D).
        """
        block = self.block
        columns = only(inputs, block.columns) if block.is_residual else block.read(inputs)
        return columns.detach().double().contiguous() + 0.0

    @property
    def parameters(self) -> tuple[Tensor, Tensor]:
        """The parameters (p,) of the process for a variance of 1, and its variance, 0-d.

        The parameters of the block are first. For each block of weights, its relative variance and the parameters of
        its features follow.
        """
        values, variance = self.block.latent_parameters
        parts = [values]
        for weights in self.explained:
            parts += [(weights.prior_variance / variance).reshape(1)]
            parts += [parameter.double().reshape(-1) for parameter in weights.parameters]
        return torch.cat(parts), variance

    @property
    def key(self) -> tuple[object, ...]:
        """The objects that define the process, besides positions and parameters."""
        return (*self.block.covariance_key, self.block.num_neighbors, self.block.seed, *self._features)

    @property
    def _features(self) -> tuple[object, ...]:
        """The feature functions, and the columns of the positions."""
        return (self.block.columns, *(weights.features for weights in self.explained)) if self.explained else ()

    def prior(self, values: Tensor | None = None) -> Prior:
        """Return the prior as a function of positions.

        Args:
            values: The parameters (p,), for a variance of 1. If None, the parameters and the variance of the process.
        """
        if values is None:
            return Prior(weights=self.explained, neighbors=self.block.at_positions())
        parts = list(torch.split(values, self._sizes))
        block = self.block.at_positions(parts.pop(0))
        return Prior(weights=tuple(_with_values(weights, parts) for weights in self.explained), neighbors=block)

    @property
    def _sizes(self) -> list[int]:
        """The number of parameters of the block, and of each tensor of the weights."""
        sizes = [len(self.block.latent_parameters[0])]
        for weights in self.explained:
            sizes += [1, *(parameter.numel() for parameter in weights.parameters)]
        return sizes

    def factor(
        self,
        positions: Tensor,  # (N, e)
        values: Tensor,  # (p,)
        pattern: SparsityPattern,  # (N, N)
    ) -> Tensor:  # (nnz,)
        """Return the entries of the sparse inverse factor V for a variance of 1.

        Args:
            positions: The positions.
            values: The parameters, in the order of `parameters`.
            pattern: The neighbors of each position, with the position itself as the last.
        """
        prior = self.prior(values)
        return neighbors_of(prior).latent_factor(positions, pattern, explained_features(prior, positions))


def _with_values(weights: WeightBlock, values: list[Tensor]) -> WeightBlock:
    """Return weights with variance and parameters from the beginning of a list."""
    variance = values.pop(0).reshape(())
    parameters = tuple(values.pop(0).reshape(parameter.shape) for parameter in weights.parameters)
    return replace(weights, variance=variance, parameters=parameters)
