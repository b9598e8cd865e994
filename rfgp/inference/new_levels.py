"""Distributions at inputs with new levels, which no training row has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock, Prior, SparseProductBlock, WeightBlock
from rfgp.inference.distributions import Distribution, InputBlocks, joined
from rfgp.linalg import covariance_root

LevelBlock = WeightBlock | PrecisionBlock | SparseProductBlock
"""A block that may have new levels."""
CHUNK = 2**14
"""The number of rows of a block of inputs."""


class LevelEffects(Protocol):
    """Interface: the effects of new levels."""

    def new_variance(self, a: Tensor) -> Tensor:
        """Return the variances at n inputs, (n,).

        Args:
            a: The inputs, (n, D).
        """

    def new_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance of two sets of inputs, (n_a, n_b).

        Args:
            a: The first inputs, (n_a, D).
            b: The second inputs, (n_b, D).
        """


def with_new_levels(known: Distribution, effects: Sequence[LevelEffects], inputs: Tensor | InputBlocks) -> Distribution:
    """Return a distribution at n inputs that includes the effects of new levels.

    Args:
        known: The posterior distribution without new levels.
        effects: The effects of each term. If there are none, the distribution is unchanged.
        inputs: The inputs, (n, D), or blocks of them.
    """
    return WithNewLevels(known, tuple(effects), inputs) if effects else known


def blocks_with_new_levels(prior: Prior, names: Sequence[str] | None) -> tuple[LevelBlock, ...]:
    """Return the blocks of a prior that may have new levels.

    Args:
        prior: The prior.
        names: The names of the blocks. If None, all of them.
    """
    products = [block for block in prior.graph_features if isinstance(block, SparseProductBlock)]
    blocks: list[LevelBlock] = [*prior.weights, *prior.precisions, *products]
    return tuple(b for b in blocks if b.new_levels is not None and (names is None or b.name in names))


def prior_kernel(prior: Prior, inputs: Tensor) -> Tensor:
    """Return the prior covariance (n, n) at n inputs, including new levels, float64.

    Args:
        prior: The prior.
        inputs: The inputs, (n, D) or (n,).
    """
    new = (block.new_covariance(inputs, inputs) for block in prior.weights)
    return sum(new, start=prior.kernel(inputs, inputs))


@dataclass(frozen=True, eq=False)
class WithNewLevels(Distribution):
    """The sum of a posterior distribution and independent effects of new levels.

    Attributes:
        known: The posterior distribution without new levels.
        blocks: The effects of new levels, such as blocks.
        inputs: The points, (n, D), or blocks of them.
    """

    known: Distribution
    blocks: tuple[LevelEffects, ...]
    inputs: Tensor | InputBlocks

    @property
    def num_points(self) -> int | None:
        """The number n of points, or None if it is not known before they are read."""
        return self.known.num_points

    @property
    def requires_grad(self) -> bool:
        """Whether an input of the distribution requires a gradient."""
        return self.known.requires_grad

    @property
    def noise(self) -> Distribution | None:
        """The distribution of the log noise at the points, or None for constant noise."""
        return self.known.noise

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        covariance, new = self.known.function_covariance(), self._new_variance()
        return covariance + torch.diag_embed(new[:, None].expand(covariance.shape[:2]))

    def _mean(self) -> Tensor:
        return self.known.mean()

    def _variance(self) -> Tensor:
        known, new = self.known.variance(), self._new_variance()
        return known + (new[:, None] if known.ndim > 1 else new)

    def _covariance(self) -> Tensor:
        known, new = self.known.covariance(), self._new_covariance()
        return known + (new[..., None] if known.ndim > 2 else new)

    def _root(self) -> Tensor:
        known, new = self.known.root(), self._new_covariance()
        if not bool(new.any()):
            return known
        new_root = covariance_root(new)
        if len(known) == len(new_root):
            return torch.cat([known, new_root], dim=1)
        functions = torch.eye(len(known) // len(new_root), dtype=new_root.dtype)
        copies = torch.kron(functions, new_root)
        return torch.cat([known, copies], dim=1)

    def _new_variance(self) -> Tensor:
        return self._total(lambda block, x: block.new_variance(x))

    def _new_covariance(self) -> Tensor:
        return self._total(lambda block, x: block.new_covariance(x, x))

    def _total(self, of_block: Callable[[LevelEffects, Tensor], Tensor]) -> Tensor:
        """Return the sum over the blocks."""
        if isinstance(self.inputs, Tensor):
            return torch.stack([of_block(block, self.inputs) for block in self.blocks]).sum(0)
        chunks = self.inputs.blocks(CHUNK)
        return joined(torch.stack([of_block(block, x) for block in self.blocks]).sum(0) for x in chunks)
