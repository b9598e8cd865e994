"""Nearest-neighbor (Vecchia) approximations of blocks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.blocks.role import KernelBlock, LatentBlock
from rfgp.errors import InvalidArgumentError
from rfgp.local import (
    KINDS,
    LatentRoot,
    block_predecessors,
    conditionals,
    inverse_factor,
    log_prob,
    nearest_predecessors,
    scaled_positions,
)
from rfgp.local.covariances import Process, conditional_entries, in_pattern, pattern_of
from rfgp.local.factor import JITTER, Floats, Indices
from rfgp.local.kinds import spectrum_of
from rfgp.sparse import EntryPattern, SparsityPattern

# --- Nearest-neighbor (Vecchia) approximations of blocks with any covariance function --------------------------------

Embedding = Callable[..., Tensor]
"""Maps rows (n, D), and the parameters of a covariance function, to positions (n, e).

The squared distance of close positions is about k(x, x) + k(z, z) - 2 k(x, z)."""


class NearestRows(ABC):
    """Part of a block whose rows are conditioned on their nearest predecessors.

    The rows are in a random order.

    Attributes:
        num_neighbors: The maximum number of neighbors of a row.
        seed: The seed of the order of the rows.
    """

    num_neighbors: int
    seed: int

    @abstractmethod
    def scaled(self, x: Tensor) -> Floats:
        """Return positions (n, e) of inputs (n, D), among which neighbors are the nearest.

        Args:
            x: The inputs, (n, D).
        """

    def order(self, count: int) -> Tensor:
        """Return a random order of rows, (n,).

        Args:
            count: The number n of rows.
        """
        return torch.from_numpy(random.numpy_generator(self.seed, random.Role.ORDER).permutation(count))

    def predecessors(
        self,
        x: Tensor,  # (n, D)
        rows: Tensor | None = None,  # (r,)
    ) -> SparsityPattern:
        """Return the nearest predecessors of ordered rows, at the present parameters.

        Args:
            x: The rows, (n, D).
            rows: The requested rows, (r,). If None, all.
        """
        return nearest_predecessors(self.scaled(x), self.num_neighbors, None if rows is None else rows.numpy())


@dataclass(frozen=True, eq=False)
class KernelVecchiaBlock(NearestRows, LatentBlock):
    """A sum g of terms, each row conditioned on its nearest predecessors.

    The terms have any covariance functions. The sum is approximated as one process. Each term is conditioned on the
    same values of the sum.

    Attributes:
        kernels: The terms.
        embeddings: The maps of rows to positions, one for each term.
        num_neighbors: The maximum number of neighbors of a row.
        seed: The seed of the order of the rows.
        condition_on: Whether rows are conditioned on "responses" or on "latent" values, or "auto".
        columns: The indices of the columns of inputs (n, D) that g depends on. If None, all.
        name: The name of the sum.

    Examples:
        >>> kernel = KernelBlock(lambda a, b: torch.exp(-torch.cdist(a, b)), lambda a: torch.ones(len(a)))
        >>> block = KernelVecchiaBlock((kernel, kernel), (lambda x: x, lambda x: x), num_neighbors=5, seed=0)
        >>> block.diagonal(torch.tensor([[0.0]])).tolist()
        [2.0]
    """

    kernels: tuple[KernelBlock, ...]
    embeddings: tuple[Embedding, ...]
    num_neighbors: int
    seed: int
    condition_on: str = "auto"
    columns: tuple[int, ...] | None = None
    name: str = "neighbors"

    is_residual: ClassVar[bool] = False
    block_size: ClassVar[int] = 1
    """The maximum number of rows of a block with shared neighbors."""
    residual_of: ClassVar[str | None] = None
    reading_jitter: ClassVar[float] = JITTER
    """The noise of latent values at points, relative to their variance. It equals the jitter of the values.

    One of several smooth terms has large weights. Without this noise variances had errors of up to 6."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms."""
        return tuple(kernel.name for kernel in self.kernels)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The parameters (...) of all covariance functions."""
        return tuple(parameter for kernel in self.kernels for parameter in kernel.parameters)

    def of(self, names: Sequence[str]) -> "KernelVecchiaBlock | None":
        """Return the sum of the named terms, or None if there are none.

        Args:
            names: The names of the terms. Names of other terms have no effect.
        """
        kept = [i for i, name in enumerate(self.names) if name in names]
        if len(kept) == len(self.kernels):
            return self
        kernels, embeddings = tuple(self.kernels[i] for i in kept), tuple(self.embeddings[i] for i in kept)
        return replace(self, kernels=kernels, embeddings=embeddings) if kept else None

    @property
    def latent_parameters(self) -> tuple[Tensor, Tensor]:
        """The parameters of all covariance functions, (p,).

        The second value is the factor of the covariance, 1, 0-d.
        """
        one = torch.ones((), dtype=torch.float64)
        return torch.cat([one.new_zeros(0), *(parameter.double().reshape(-1) for parameter in self.parameters)]), one

    @property
    def covariance_key(self) -> tuple[object, ...]:
        """The functions that define the covariance, besides rows and parameters."""
        return tuple(kernel.covariance for kernel in self.kernels)

    def at_positions(self, values: Tensor | None = None) -> "KernelVecchiaBlock":
        """Return the block at other parameters.

        Args:
            values: The parameters, (p,). If None, the block's own.
        """
        if values is None:
            return self
        sizes = [parameter.numel() for parameter in self.parameters]
        pairs = zip(torch.split(values, sizes), self.parameters, strict=True)
        return _at_parameters(self, [value.reshape(parameter.shape) for value, parameter in pairs])

    def scaled(self, x: Tensor) -> Floats:
        """Return the concatenated positions (n, e) of inputs (n, D) for all terms.

        Args:
            x: The inputs, (n, D).
        """
        rows, unit_lengthscale = self.read(x).detach().double(), torch.ones((), dtype=torch.float64)
        with torch.no_grad():
            pairs = zip(self.kernels, self.embeddings, strict=True)
            positions = [embedding(rows, *kernel.parameters).double() for kernel, embedding in pairs]
        return scaled_positions(torch.cat(positions, dim=1), unit_lengthscale)

    def latent_root(
        self,
        x: Tensor,  # (n, D)
        pattern: SparsityPattern,  # (r, n)
        phi: Tensor | None = None,  # (n, F)
    ) -> LatentRoot:
        """Return the root L of the prior covariance L L^T at ordered rows.

        It is that of the nearest-neighbor process without noise.

        Args:
            x: The rows.
            pattern: The neighbors of the rows.
            phi: Not used.
        """
        with torch.no_grad():
            weights, left = conditional_entries(self._process(x), JITTER, self.scaled(x), pattern, share=0.0)
            return LatentRoot(np.ascontiguousarray(in_pattern(weights, left.sqrt(), pattern).numpy()), pattern)

    def inverse_factor(
        self,
        x: Tensor,  # (n, D)
        noise: Tensor,  # (n,)
        pattern: EntryPattern,  # (r, n)
        phi: Tensor,  # (n, F)
    ) -> Tensor:  # (nnz,)
        """Return the entries (nnz,) of the sparse inverse factor V of g + noise.

        Args:
            x: The rows, (n, D).
            noise: The noise variance of each row, (n,).
            pattern: The neighbors of each row, with the row itself as the last.
            phi: Not used.
        """
        return _inverse_entries(self._process(x), noise.double(), self.scaled(x), pattern)

    def log_prob(
        self,
        x: Tensor,  # (n, D)
        noise: Tensor,  # (n,)
        residual: Tensor,  # (n, k)
        output_weights: Tensor,  # (k,)
        pattern: EntryPattern,  # (r, n)
    ) -> None:
        """Return None: this block has no one-pass log density of g + noise."""

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
            phi: Not used.
        """
        return _inverse_entries(self._process(x), JITTER, self.scaled(x), pattern)

    def conditionals(
        self,
        points: tuple[Tensor, Tensor],  # (q, D), (q, F)
        rows: tuple[Tensor, Tensor, Tensor],  # (n, D), (n, F), (n,)
        near: Indices,  # (q, k)
        flags: tuple[Tensor, Tensor] | None = None,  # (n, T), (q, T)
    ) -> tuple[Tensor, Tensor]:
        """Return the weights of the rows near points, and conditional variances.

        Args:
            points: New inputs, and features that are not used.
            rows: Inputs, features that are not used, and noise variances of the rows.
            near: The rows that each point is conditioned on, or -1.
            flags: Whether each term is in the observations of rows and in the predictions at points. If None, all are.

        Returns:
            The weights (q, k) and the variances (q,) of g.
        """
        both, count = torch.cat([rows[0].double(), points[0].double()]), len(rows[0])
        noise = torch.cat([rows[2].double(), torch.zeros(len(points[0]), dtype=torch.float64)])
        process = self._process(both, None if flags is None else torch.cat(flags))
        with torch.no_grad():
            given = noise, self.scaled(both), pattern_of(near, count)
            weights, left = conditional_entries(process, *given, share=0.0)
        out = torch.zeros(near.shape, dtype=torch.float64)
        out[:, : weights.shape[1]] = weights
        return out, left

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the exact covariance (n_a, n_b)."""
        left = self.read(a).double()
        right = left if b is a else self.read(b).double()
        return torch.stack([kernel.kernel(left, right) for kernel in self.kernels]).sum(0)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,)."""
        rows = self.read(a).double()
        return torch.stack([kernel.diagonal(rows) for kernel in self.kernels]).sum(0)

    def read(self, x: Tensor) -> Tensor:
        """Return inputs (n, D) with zeros in the columns that g does not depend on."""
        return only(x, self.columns)

    def _process(self, x: Tensor, flags: Tensor | None = None) -> Process:
        """Return the covariance between some of the rows (n, D), and its parameters.

        Each row is the sum of the terms with a flag (n, T).
        """
        inputs = self.read(x).detach().double()

        def covariance(rows: Tensor, *parameters: Tensor) -> Tensor:
            subset, block = inputs[rows], _at_parameters(self, parameters)
            matrices = [kernel.kernel(subset, subset) for kernel in block.kernels]
            if flags is not None:
                pairs = zip(matrices, flags[rows].double().unbind(1), strict=True)
                matrices = [flag[:, None] * matrix * flag for matrix, flag in pairs]
            return torch.stack(matrices).sum(0) if len(matrices) > 1 else matrices[0]

        return covariance, self.parameters


def _at_parameters(block: KernelVecchiaBlock, parameters: Sequence[Tensor]) -> KernelVecchiaBlock:
    """Return a block with other parameters (...)."""
    values = iter(parameters)
    kernels = [replace(kernel, parameters=tuple(next(values) for _ in kernel.parameters)) for kernel in block.kernels]
    return replace(block, kernels=tuple(kernels))


def only(x: Tensor, columns: Sequence[int] | None) -> Tensor:
    """Return inputs (n, D) with zeros in other columns.

    Args:
        x: The inputs, (n, D).
        columns: The indices of the columns that are kept. If None, all.
    """
    if columns is None:
        return x
    kept = torch.zeros(x.shape[1], dtype=torch.bool).index_fill(0, torch.tensor(columns, dtype=torch.long), 1)
    return torch.where(kept, x, 0.0)


def _inverse_entries(
    process: Process,
    noise: Tensor | float,  # (n,)
    positions: Floats,  # (n, e)
    pattern: EntryPattern,  # (r, n)
) -> Tensor:  # (nnz,)
    """Return the entries of the inverse factor of a process with noise.

    The neighbors of each row are given.
    """
    weights, left = conditional_entries(process, noise, positions, pattern, share=1.0)
    scale = left.rsqrt()
    return in_pattern(-weights * scale[:, None], scale, pattern)


def joined(blocks: Sequence[KernelVecchiaBlock]) -> KernelVecchiaBlock:
    """Return one block for the sum of blocks.

    Args:
        blocks: The blocks, at least one. The first one gives the order of the rows.

    Raises:
        InvalidArgumentError: If their numbers of neighbors or their `condition_on` differ.
    """
    first, *others = blocks
    for block in others:
        if (block.num_neighbors, block.condition_on) != (first.num_neighbors, first.condition_on):
            raise InvalidArgumentError(
                f"Terms with nearest neighbors must have the same options, because their sum is approximated, got "
                f"{first.num_neighbors} and {block.num_neighbors} neighbors of {first.condition_on} and "
                f"{block.condition_on} values. Use one Vecchia for all of them."
            )
    return replace(
        first,
        kernels=tuple(kernel for block in blocks for kernel in block.kernels),
        embeddings=tuple(embedding for block in blocks for embedding in block.embeddings),
        columns=_columns(blocks),
        name=" + ".join(name for block in blocks for name in block.names),
    )


def _columns(blocks: Sequence[KernelVecchiaBlock]) -> tuple[int, ...] | None:
    """Return the indices of the columns that some block depends on, or None for all."""
    all_columns = [block.columns for block in blocks]
    restricted = [columns for columns in all_columns if columns is not None]
    return (
        tuple(sorted({index for columns in restricted for index in columns}))
        if len(restricted) == len(all_columns)
        else None
    )


# --- Nearest-neighbor (Vecchia) approximations of blocks with stationary kernels -------------------------------------

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
