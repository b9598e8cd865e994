"""Nearest-neighbor (Vecchia) approximations of blocks with stationary kernels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.blocks.kernel import KernelBlock
from rfgp.blocks.kernel_neighbors import KernelVecchiaBlock, NearestRows, joined
from rfgp.blocks.role import LatentBlock
from rfgp.errors import InvalidArgumentError
from rfgp.local import (
    KINDS,
    LatentRoot,
    block_predecessors,
    conditionals,
    inverse_factor,
    log_prob,
    scaled_positions,
)
from rfgp.local.kinds import spectrum_of
from rfgp.local.latent import JITTER
from rfgp.local.neighbors import Floats, Indices
from rfgp.sparse import EntryPattern, SparsityPattern

AHEAD = 2
"""The ratio of the neighbors of new points to those of rows. Those of rows cost k^3 at each step of a fit.

On protein with k = 30 the RMSE falls from 0.495 to 0.494 and the NLPD rises from 0.509 to 0.511. On kin40k they fall
from 0.133 to 0.114 and from -0.66 to -0.81.
"""
SHARED = 2
"""The ratio of the neighbors of a block of rows to those of a row (`benchmarks/races/neighbor_blocks.py`)."""


@dataclass(frozen=True, eq=False)
class VecchiaBlock(NearestRows, LatentBlock):
    """g with a stationary kernel, each row conditioned on its nearest predecessors.

    If it is a residual, g has the covariance s^2 k - Phi Phi^T with the features Phi of the weights of one term. The
    sum then has the covariance s^2 k. Source: Gyger, Furrer and Sigrist (2025), Vecchia-inducing-points full-scale
    approximations, with neighbors near in the scaled inputs.

    Attributes:
        kernel_name: The name of the kernel in `rfgp.local.KINDS`.
        lengthscale: The lengthscale, (d,) or ().
        variance: The value s^2 of the kernel at distance 0, ().
        num_neighbors: The maximum number of neighbors of a row.
        seed: The seed of the order of the rows.
        condition_on: Whether rows are conditioned on "responses" or on "latent" values, or "auto".
        name: The name of the term.
        columns: The indices of the d columns of inputs (n, D) that g depends on. If None, all.
        residual_of: The name of the term of weights whose residual the block is. If None, it is no residual.
        block_size: The maximum number of rows with shared neighbors, if rows are conditioned on responses.

    Examples:
        >>> one = torch.ones((), dtype=torch.float64)
        >>> block = VecchiaBlock("matern12", lengthscale=one, variance=2 * one, num_neighbors=1, seed=0)
        >>> block.predecessors(torch.tensor([[0.0], [1.0]])).indices.tolist()
        [0, 0, 1]
        >>> block.diagonal(torch.tensor([[0.0]])).tolist()
        [2.0]
    """

    kernel_name: str
    lengthscale: Tensor
    variance: Tensor
    num_neighbors: int
    seed: int
    condition_on: str = "auto"
    name: str = "neighbors"
    columns: tuple[int, ...] | None = None
    residual_of: str | None = None
    block_size: int = 1

    @property
    def is_residual(self) -> bool:
        """Whether the block is the residual of weights."""
        return self.residual_of is not None

    @property
    def reading_jitter(self) -> float:
        """The noise of latent values at points, relative to their variance.

        It equals the jitter of a residual.

        Residuals of smooth kernels nearly vanish. Without this noise, variances of a Gaussian kernel with 6 points had
        errors of 25 %.
        """
        return JITTER if self.is_residual else 0.0

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The lengthscale, (d,) or (), and the variance, ()."""
        return self.lengthscale, self.variance

    def scaled(self, x: Tensor) -> Floats:
        """Return the columns of inputs (n, D) in units of lengthscales, (n, d)."""
        return scaled_positions(self.read(x).detach(), self.lengthscale.detach())

    def latent_root(
        self,
        x: Tensor,  # (n, d)
        pattern: SparsityPattern,  # (r, n)
        phi: Tensor | None = None,  # (n, F)
    ) -> LatentRoot:
        """Return the root of the covariance of g at ordered rows.

        Args:
            x: The rows.
            pattern: The neighbors of the rows.
            phi: The features of the weights whose residual the block is. Otherwise not used.
        """
        features = phi if self.is_residual else None
        lengthscale, variance = self.lengthscale.detach(), self.variance.detach()
        return LatentRoot.of(self.read(x), lengthscale, variance, KINDS[self.kernel_name], pattern, features)

    def inverse_factor(
        self,
        x: Tensor,  # (n, d)
        noise: Tensor,  # (n,)
        pattern: EntryPattern,  # (r, n)
        phi: Tensor,  # (n, F)
    ) -> Tensor:  # (nnz,)
        """Return the entries of the sparse inverse factor V of g + noise.

        Args:
            x: The rows.
            noise: The noise variance of each row.
            pattern: The neighbors of each row, with the row itself as the last.
            phi: The features of the weights whose residual the block is. Otherwise not used.
        """
        lengthscale, variance = self.lengthscale.double(), self.variance.double()
        features = phi if self.is_residual else None
        return inverse_factor(self.read(x), lengthscale, variance, noise, KINDS[self.kernel_name], pattern, features)

    def log_prob(
        self,
        x: Tensor,  # (n, D)
        noise: Tensor,  # (n,)
        residual: Tensor,  # (n, k)
        output_weights: Tensor,  # (k,)
        pattern: EntryPattern,  # (r, n)
    ) -> Tensor | None:
        """Return the log density of g + noise, with its gradient.

        It takes one pass over the rows.

        Args:
            x: The rows.
            noise: The noise variance of each row.
            residual: The observations of g + noise.
            output_weights: The weight of each output.
            pattern: The neighbors of each row, with the row itself as the last.

        Returns:
            The log density, 0-d, or None for the residual of features.
        """
        if self.is_residual:
            return None
        lengthscale, variance = self.lengthscale.double(), self.variance.double()
        kind = KINDS[self.kernel_name]
        return log_prob(self.read(x), lengthscale, variance, noise, residual, output_weights, kind, pattern)

    def latent_factor(
        self,
        x: Tensor,  # (n, D)
        pattern: SparsityPattern,  # (n, n)
        phi: Tensor,  # (n, F)
    ) -> Tensor:  # (nnz,)
        """Return the entries (nnz,) of the sparse inverse factor of g.

        A jitter is added to g.

        Args:
            x: The rows, (n, D).
            pattern: The neighbors of each row, with the row itself as the last.
            phi: The features of the weights whose residual the block is. Otherwise not used.
        """
        jitter = (JITTER * self.variance.detach().double()).expand(len(x))
        return self.inverse_factor(x, jitter, pattern, phi)

    def conditionals(
        self,
        points: tuple[Tensor, Tensor],  # (q, d), (q, F)
        rows: tuple[Tensor, Tensor, Tensor],  # (n, d), (n, F), (n,)
        near: Indices,  # (q, k)
        flags: tuple[Tensor, Tensor] | None = None,  # (n, 1), (q, 1)
    ) -> tuple[Tensor, Tensor]:
        """Return the weights of the rows near points, and conditional variances.

        Args:
            points: New inputs, and their features Phi.
            rows: Inputs, features Phi and noise variances of the rows.
            near: The rows that each point is conditioned on, or -1.
            flags: Not used.

        Returns:
            The weights (q, k) and the variances (q,) of g.
        """
        features = (rows[1], points[1]) if self.is_residual else None
        new, old = self.read(points[0]), self.read(rows[0])
        kind = KINDS[self.kernel_name]
        return conditionals(new, old, rows[2], near, self.lengthscale, self.variance, kind, features)

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the exact s^2 k(a, b), (n_a, n_b).

        For a residual this is the covariance of the sum.
        """
        covariance = _StationaryCovariance(self.kernel_name, self.columns)
        return covariance(a.double(), b.double(), self.lengthscale, self.variance.double())

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,). For a residual these are the variances of the sum."""
        return self.variance.double().expand(len(a))

    def read(self, x: Tensor) -> Tensor:
        """Return the columns (n, d) of inputs (n, D) that g depends on."""
        return _columns_of(x, self.columns)

    def of(self, names: Sequence[str]) -> "VecchiaBlock | None":
        """Return the block if its name is among the names, and None otherwise."""
        return self if self.name in names else None

    @property
    def latent_parameters(self) -> tuple[Tensor, Tensor]:
        """The lengthscale, (d,) or (1,), and the variance, 0-d."""
        return self.lengthscale.double().reshape(-1), self.variance.double()

    @property
    def covariance_key(self) -> tuple[object, ...]:
        """The values that define the covariance, besides rows, lengthscale and variance."""
        return (self.kernel_name,)

    def at_positions(self, values: Tensor | None = None) -> "VecchiaBlock":
        """Return the block as a function of its own columns.

        Args:
            values: The lengthscale, (d,) or (1,), for a variance of 1. If None, lengthscale and variance are the
                block's own.
        """
        columns = self.columns if self.is_residual else None
        if values is None:
            return replace(self, columns=columns)
        return replace(self, columns=columns, lengthscale=values, variance=torch.ones((), dtype=torch.float64))


NeighborBlock = VecchiaBlock | KernelVecchiaBlock
"""A block of nearest neighbors."""


def joined_neighbors(blocks: Sequence[NeighborBlock]) -> NeighborBlock | None:
    """Return one block for the sum of blocks of nearest neighbors.

    Args:
        blocks: The blocks.

    Returns:
        The block, or None if there are none.

    Raises:
        InvalidArgumentError: If their options differ, or one of them is a residual.
    """
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    return joined([block if isinstance(block, KernelVecchiaBlock) else as_sum(block) for block in blocks])


def as_sum(block: VecchiaBlock) -> KernelVecchiaBlock:
    """Return a block as a sum of one term, without the compiled loops.

    Args:
        block: The block.

    Raises:
        InvalidArgumentError: If the block is the residual of features.
    """
    if block.is_residual:
        raise InvalidArgumentError(
            f"The term {block.name!r} with neighbors for the residual of inducing points must be the only term with "
            "neighbors, got others. Use InducingPoints() without a residual."
        )
    function = _StationaryCovariance(block.kernel_name, block.columns)
    kernel = KernelBlock(function, function.variances, block.parameters, name=block.name)
    options = block.num_neighbors, block.seed, block.condition_on, block.columns, block.name
    return KernelVecchiaBlock((kernel,), (function.embedding,), *options)


@dataclass(frozen=True)
class _StationaryCovariance:
    """The covariance s^2 k of inputs and the parameters of a `VecchiaBlock`."""

    kernel_name: str
    columns: tuple[int, ...] | None

    def __call__(self, a: Tensor, b: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        """Return the covariance (n, m) of inputs a (n, D) and b (m, D)."""
        left, right = (_columns_of(x, self.columns) / lengthscale for x in (a, b))
        return variance * spectrum_of(self.kernel_name).kernel_between(left, right)

    def variances(self, a: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        """Return the variances (n,) of inputs a (n, D)."""
        return variance.double().expand(len(a))

    def embedding(self, a: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        """Return inputs a (n, D) in units of lengthscales, times s, (n, d)."""
        return variance.sqrt() * _columns_of(a, self.columns) / lengthscale


def _columns_of(x: Tensor, columns: tuple[int, ...] | None) -> Tensor:
    """Return some columns of inputs (n, D), or all if None."""
    return x if columns is None else x[:, list(columns)]


def predecessors_in_blocks(
    block: NeighborBlock,
    x: Tensor,  # (n, D)
    most: int | None = None,
) -> EntryPattern:
    """Return the nearest predecessors of blocks of rows, at the current parameters.

    Args:
        block: The block of the process.
        x: The rows, (n, D).
        most: The approximate number of rows of the result. If None, all.
    """
    count = block.num_neighbors if block.block_size == 1 else SHARED * block.num_neighbors
    return block_predecessors(block.scaled(x), count, block.block_size, most)
