"""Predictions at levels that are not in the training rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock, Prior, SparseProductBlock, WeightBlock
from rfgp.inference.distributions import Distribution, InputBlocks, concatenated
from rfgp.linalg import covariance_root

LevelBlock = WeightBlock | PrecisionBlock | SparseProductBlock
"""A block that may have new levels."""
CHUNK_SIZE = 2**14
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


def with_new_levels(base: Distribution, effects: Sequence[LevelEffects], inputs: Tensor | InputBlocks) -> Distribution:
    """Return a distribution at n inputs that includes the effects of new levels.

    Args:
        base: The posterior distribution without new levels.
        effects: The effects of new levels. If there are none, the distribution is unchanged.
        inputs: The inputs, (n, D), or blocks of them.
    """
    return WithNewLevels(base, tuple(effects), inputs) if effects else base


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
        base: The posterior distribution without new levels.
        effects: The effects of new levels, one for each block with levels.
        inputs: The points, (n, D), or blocks of them.
    """

    base: Distribution
    effects: tuple[LevelEffects, ...]
    inputs: Tensor | InputBlocks

    @property
    def num_points(self) -> int | None:
        """The number n of points, or None if it is not known before they are read."""
        return self.base.num_points

    @property
    def requires_grad(self) -> bool:
        """Whether an input of the distribution requires a gradient."""
        return self.base.requires_grad

    @property
    def noise(self) -> Distribution | None:
        """The distribution of the log noise at the points, or None for constant noise."""
        return self.base.noise

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        covariance, new = self.base.function_covariance(), self._new_variance()
        return covariance + torch.diag_embed(new[:, None].expand(covariance.shape[:2]))

    def _mean(self) -> Tensor:
        return self.base.mean()

    def _variance(self) -> Tensor:
        base, new = self.base.variance(), self._new_variance()
        return base + (new[:, None] if base.ndim > 1 else new)

    def _covariance(self) -> Tensor:
        base, new = self.base.covariance(), self._new_covariance()
        return base + (new[..., None] if base.ndim > 2 else new)

    def _root(self) -> Tensor:
        base, new = self.base.root(), self._new_covariance()
        if not bool(new.any()):
            return base
        new_root = covariance_root(new)
        if len(base) == len(new_root):
            return torch.cat([base, new_root], dim=1)
        functions = torch.eye(len(base) // len(new_root), dtype=new_root.dtype)
        copies = torch.kron(functions, new_root)
        return torch.cat([base, copies], dim=1)

    def _new_variance(self) -> Tensor:
        return self._total(lambda effect, x: effect.new_variance(x))

    def _new_covariance(self) -> Tensor:
        return self._total(lambda effect, x: effect.new_covariance(x, x))

    def _total(self, evaluate: Callable[[LevelEffects, Tensor], Tensor]) -> Tensor:
        """Return the sum over the effects."""
        if isinstance(self.inputs, Tensor):
            return torch.stack([evaluate(effect, self.inputs) for effect in self.effects]).sum(0)
        chunks = self.inputs.blocks(CHUNK_SIZE)
        return concatenated(torch.stack([evaluate(effect, x) for effect in self.effects]).sum(0) for x in chunks)
