"""Predictions at levels that are not in the training rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock, Prior, SparseProductBlock, WeightBlock
from rfgp.inference.distributions import (
    Distribution,
    InputBlocks,
    LatentDistribution,
    check_joint_fits,
    concatenated,
    in_memory,
)
from rfgp.lattices.design import LatticeDesign
from rfgp.linalg import covariance_root
from rfgp.solvers.extensions import Extensions

LevelBlock = WeightBlock | PrecisionBlock | SparseProductBlock
"""A block that may have new levels."""
CHUNK_SIZE = 2**14
"""The number of rows of a block of inputs."""
FUNCTION_COST = 2**15
"""The square of the number of points beyond which a draw as a function costs less than a root, per draw.

A root of 300 points takes as long as 3 draws as functions, and one of 2,000 points as long as 120."""


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


def with_new_levels(
    base: Distribution, prior: Prior, names: Sequence[str] | None, inputs: Tensor | InputBlocks, memory: float | None
) -> Distribution:
    """Return a distribution at n inputs that includes the effects of new levels.

    Args:
        base: The posterior distribution without new levels.
        prior: The prior.
        names: The names of the terms of the predicted sum. If None, all of them.
        inputs: The inputs, (n, D), or blocks of them.
        memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
    """
    effects = blocks_with_new_levels(prior, names)
    weights = (block for block in prior.weights if block in effects)
    on_lattices = tuple(block for block in weights if isinstance(block.new_levels, LatticeDesign))
    return WithNewLevels(base, effects, inputs, on_lattices, memory) if effects else base


def blocks_with_new_levels(prior: Prior, names: Sequence[str] | None) -> tuple[LevelBlock, ...]:
    """Return the blocks of a prior that may have new levels.

    Args:
        prior: The prior.
        names: The names of the blocks. If None, all of them.
    """
    products = [block for block in prior.graph_features if isinstance(block, SparseProductBlock)]
    blocks: list[LevelBlock] = [*prior.weights, *prior.precisions, *products]
    return tuple(b for b in blocks if b.new_levels is not None and (names is None or b.name in names))


class HeteroscedasticDistribution(LatentDistribution):
    """The posterior of a function with a log noise of its own, which has the prior variance of new levels."""

    @property
    def noise(self) -> Distribution | None:
        """The distribution of the log noise at the points, or None for constant noise."""
        base, process = super().noise, self.posterior.noise_process
        if base is None or process is None:
            return base
        return self._cached(
            "noise of new levels", lambda: with_new_levels(base, process.prior, None, self.inputs, self.memory)
        )


def prior_kernel(prior: Prior, inputs: Tensor, memory: float | None) -> Tensor:
    """Return the prior covariance (n, n) at n inputs, including new levels, float64.

    Args:
        prior: The prior.
        inputs: The inputs, (n, D) or (n,).
        memory: The memory limit in bytes. If None, the memory of this machine.

    Raises:
        MemoryBudgetError: If the covariance does not fit into memory.
    """
    check_joint_fits(len(inputs), memory)
    new = (block.new_covariance(inputs, inputs) for block in prior.weights)
    return sum(new, start=prior.kernel(inputs, inputs))


@dataclass(frozen=True, eq=False)
class WithNewLevels(Distribution):
    """The sum of a posterior distribution and independent effects of new levels.

    Attributes:
        base: The posterior distribution without new levels.
        effects: The effects of new levels, one for each block with levels.
        inputs: The points, (n, D), or blocks of them.
        on_lattices: The effects that are those of points outside the box of a lattice.
        memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
    """

    base: Distribution
    effects: tuple[LevelEffects, ...]
    inputs: Tensor | InputBlocks
    on_lattices: tuple[WeightBlock, ...] = ()
    memory: float | None = None

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

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw values from the joint distribution, (count, n, k).

        Effects of many points outside the box of a lattice are drawn as functions.

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        values, rows = self.base.sample(count, generator), self._rows()
        if not len(rows):
            return values
        k, rest = values.shape[2], self
        if self.on_lattices and len(rows) ** 2 > FUNCTION_COST * count:
            functions = Extensions.of_blocks(self.on_lattices, count, k, generator)
            values = values.index_add(1, rows, functions.evaluate(in_memory(self.inputs)[rows]).to(values))
            others = tuple(effect for effect in self.effects if effect not in self.on_lattices)
            rest = replace(self, effects=others, on_lattices=())
            rows = rest._rows() if others else rows[:0]
        root = rest._new_root(rows)
        standard = torch.randn(count, k, root.shape[1], generator=generator, dtype=root.dtype)
        return values.index_add(1, rows, (standard @ root.mT).mT.to(values))

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
        base, rows = self.base.covariance(), self._rows()
        if not len(rows):
            return base
        new = self._new_covariance(rows)
        return base.index_put((rows[:, None], rows), new[..., None] if base.ndim > 2 else new, accumulate=True)

    def _root(self) -> Tensor:
        base, rows = self.base.root(), self._rows()
        if not len(rows):
            return base
        part = self._new_root(rows)
        new_root = part.new_zeros(len(in_memory(self.inputs)), part.shape[1]).index_put((rows,), part)
        if len(base) == len(new_root):
            return torch.cat([base, new_root], dim=1)
        functions = torch.eye(len(base) // len(new_root), dtype=new_root.dtype)
        copies = torch.kron(functions, new_root)
        return torch.cat([base, copies], dim=1)

    def _new_variance(self) -> Tensor:
        return self._total(lambda effect, x: effect.new_variance(x))

    def _rows(self) -> Tensor:
        """Return the indices of the points with new levels, (r,)."""
        return self._new_variance().detach().nonzero()[:, 0]

    def _new_covariance(self, rows: Tensor) -> Tensor:
        """Return the covariance of new levels at some points, (r, r)."""
        check_joint_fits(len(rows), self.memory)
        x = in_memory(self.inputs)[rows]
        first, *others = (effect.new_covariance(x, x) for effect in self.effects)
        return sum(others, start=first)

    def _new_root(self, rows: Tensor) -> Tensor:
        """Return a root (r, q) of the covariance of new levels at some points."""
        if not len(rows):
            return torch.zeros(0, 0, dtype=torch.float64)
        covariance = self._new_covariance(rows)
        if not self.on_lattices:
            return covariance_root(covariance)
        values, vectors = torch.linalg.eigh(covariance)  # a difference of two matrices, whose rounding may be negative
        root: Tensor = vectors * values.clamp_min(0).sqrt()
        return root

    def _total(self, evaluate: Callable[[LevelEffects, Tensor], Tensor]) -> Tensor:
        """Return the sum over the effects."""
        if isinstance(self.inputs, Tensor):
            return torch.stack([evaluate(effect, self.inputs) for effect in self.effects]).sum(0)
        chunks = self.inputs.blocks(CHUNK_SIZE)
        return concatenated(torch.stack([evaluate(effect, x) for effect in self.effects]).sum(0) for x in chunks)
