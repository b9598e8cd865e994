"""Nearest-neighbor (Vecchia) approximations of sums of terms with any covariance functions.

The entries of the sparse factors (`rfgp.local.factor`) are computed in two ways: by compiled loops for one stationary
kernel of `rfgp.local.KINDS`, and in batches of small matrices for any covariance functions (`rfgp.local.covariances`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp import random
from rfgp.blocks.role import KernelBlock, LatentBlock
from rfgp.errors import InvalidArgumentError
from rfgp.local import (
    KINDS,
    BatchedProcess,
    LatentRoot,
    StationaryProcess,
    block_predecessors,
    nearest_predecessors,
    scaled_positions,
)
from rfgp.local.factor import JITTER, Floats
from rfgp.local.kinds import spectrum_of
from rfgp.sparse import EntryPattern, SparsityPattern

AHEAD = 2
"""The ratio of the neighbors of new points to those of rows. Those of rows cost k^3 at each step of a fit.

On protein with k = 30 the RMSE falls from 0.495 to 0.494 and the NLPD rises from 0.509 to 0.511. On kin40k they fall
from 0.133 to 0.114 and from -0.66 to -0.81.
"""
SHARED = 2
"""The ratio of the neighbors of a block of rows to those of a row (`benchmarks/races/neighbor_blocks.py`)."""

Embedding = Callable[..., Tensor]
"""Maps rows (n, D), and the parameters of a covariance function, to positions (n, e).

The squared distance of close positions is about k(x, x) + k(z, z) - 2 k(x, z)."""


@dataclass(frozen=True, eq=False)
class VecchiaBlock(LatentBlock):
    """A sum g of terms, each row conditioned on its nearest predecessors in a random order.

    The sum is approximated as one process. Each term is conditioned on the same values of the sum.

    If the block is a residual, g has the covariance s^2 k - Phi Phi^T with the features Phi of the weights of one term.
    The sum then has the covariance s^2 k. Source: Gyger, Furrer and Sigrist (2025), Vecchia-inducing-points full-scale
    approximations, with neighbors near in the scaled inputs.

    Attributes:
        kernels: The terms.
        embeddings: The maps of rows to positions, one for each term.
        num_neighbors: The maximum number of neighbors of a row.
        seed: The seed of the order of the rows.
        condition_on: Whether rows are conditioned on "responses" or on "latent" values, or "auto".
        columns: The indices of the columns of inputs (n, D) that g depends on. If None, all.
        name: The name of the term, or of the sum.
        kind: The name in `rfgp.local.KINDS` of the stationary kernel of a single term with compiled loops. If None,
            they are not used.
        residual_of: The name of the term of weights whose residual the block is. If None, it is no residual.
        block_size: The maximum number of rows with shared neighbors, if rows are conditioned on responses.

    Examples:
        >>> kernel = KernelBlock(lambda a, b: torch.exp(-torch.cdist(a, b)), lambda a: torch.ones(len(a)))
        >>> block = VecchiaBlock((kernel, kernel), (lambda x: x, lambda x: x), num_neighbors=5, seed=0)
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
    kind: str | None = None
    residual_of: str | None = None
    block_size: int = 1

    @classmethod
    def stationary(
        cls,
        kind: str,
        lengthscale: Tensor,  # (d,) or ()
        variance: Tensor,  # ()
        num_neighbors: int,
        seed: int,
        condition_on: str = "auto",
        columns: tuple[int, ...] | None = None,
        name: str = "neighbors",
        block_size: int = 1,
    ) -> "VecchiaBlock":
        """Return a block of one term with a stationary kernel and compiled loops.

        Args:
            kind: The name of the kernel in `rfgp.local.KINDS`.
            lengthscale: The lengthscale of each column, or of all.
            variance: The value s^2 of the kernel at distance 0.
            num_neighbors: The maximum number of neighbors of a row.
            seed: The seed of the order of the rows.
            condition_on: Whether rows are conditioned on "responses" or on "latent" values, or "auto".
            columns: The indices of the d columns of inputs (n, D). If None, all.
            name: The name of the term.
            block_size: The maximum number of rows with shared neighbors.

        Examples:
            >>> one = torch.ones((), dtype=torch.float64)
            >>> block = VecchiaBlock.stationary("matern12", one, 2 * one, num_neighbors=1, seed=0)
            >>> block.predecessors(torch.tensor([[0.0], [1.0]])).indices.tolist()
            [0, 0, 1]
            >>> block.diagonal(torch.tensor([[0.0]])).tolist()
            [2.0]
        """
        covariance = StationaryCovariance(kind, columns)
        kernel = KernelBlock(covariance, covariance.variances, (lengthscale, variance), name=name)
        embeddings, options = (covariance.embedding,), (num_neighbors, seed, condition_on, columns, name, kind)
        return cls((kernel,), embeddings, *options, block_size=block_size)

    @property
    def is_residual(self) -> bool:
        """Whether the block is the residual of weights."""
        return self.residual_of is not None

    @property
    def reading_jitter(self) -> float:
        """The noise of latent values at points, relative to their variance. It equals the jitter of the values.

        Residuals of smooth kernels nearly vanish, and one of several smooth terms has large weights. Without this
        noise, variances of a Gaussian kernel with 6 points had errors of 25 %, and those of sums errors of up to 6.
        """
        return JITTER if self.kind is None or self.is_residual else 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms."""
        return tuple(kernel.name for kernel in self.kernels)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The parameters (...) of all covariance functions."""
        return tuple(parameter for kernel in self.kernels for parameter in kernel.parameters)

    def of(self, names: Sequence[str]) -> "VecchiaBlock | None":
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
        """The parameters (p,) of the process of variance 1, and its variance, 0-d.

        The variance is 1 if it is not the last of the parameters.
        """
        *others, last = (torch.zeros(0).double(), *(parameter.double().reshape(-1) for parameter in self.parameters))
        if self.kind is None:
            return torch.cat([*others, last]), torch.ones((), dtype=torch.float64)
        return torch.cat(others), last.reshape(())

    @property
    def covariance_key(self) -> tuple[object, ...]:
        """The functions that define the covariance, besides rows and parameters."""
        return tuple(kernel.covariance for kernel in self.kernels)

    def at_latent(self, values: Tensor) -> "VecchiaBlock":
        """Return the process of variance 1 at other parameters.

        Args:
            values: The parameters (p,), as the first of `latent_parameters`.
        """
        values = values if self.kind is None else torch.cat([values, torch.ones(1, dtype=values.dtype)])
        sizes = [parameter.numel() for parameter in self.parameters]
        pairs = zip(torch.split(values, sizes), self.parameters, strict=True)
        return self._at([value.reshape(parameter.shape) for value, parameter in pairs])

    def _at(self, parameters: Sequence[Tensor]) -> "VecchiaBlock":
        """Return the block with other parameters (...)."""
        values = iter(parameters)
        kernels = (
            replace(kernel, parameters=tuple(next(values) for _ in kernel.parameters)) for kernel in self.kernels
        )
        return replace(self, kernels=tuple(kernels))

    # --- rows and their neighbors ---------------------------------------------------------------------

    def order(self, count: int) -> Tensor:
        """Return a random order of rows, (n,).

        Args:
            count: The number n of rows.
        """
        return torch.from_numpy(random.numpy_generator(self.seed, random.Role.ORDER).permutation(count))

    def read(self, x: Tensor) -> Tensor:
        """Return inputs (n, D) with zeros in the columns that g does not depend on."""
        if self.columns is None:
            return x
        kept = torch.zeros(x.shape[1], dtype=torch.bool).index_fill(0, torch.tensor(self.columns, dtype=torch.long), 1)
        return torch.where(kept, x, 0.0)

    def scaled(self, x: Tensor) -> Floats:
        """Return positions (n, e) of inputs (n, D), among which neighbors are the nearest.

        They are the columns in lengthscales, or those of all terms side by side.

        Args:
            x: The inputs, (n, D).
        """
        if self.kind is not None:
            return scaled_positions(columns_of(x, self.columns).detach(), self.parameters[0].detach())
        rows = self.read(x).detach().double()
        with torch.no_grad():
            pairs = zip(self.kernels, self.embeddings, strict=True)
            positions = [embedding(rows, *kernel.parameters).double() for kernel, embedding in pairs]
        return scaled_positions(torch.cat(positions, dim=1), torch.ones((), dtype=torch.float64))

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

    # --- the process: its covariance, and rows given their neighbors ------------------------------------

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the exact covariance (n_a, n_b). For a residual this is the covariance of the sum."""
        left = self.read(a).double()
        right = left if b is a else self.read(b).double()
        return torch.stack([kernel.kernel(left, right) for kernel in self.kernels]).sum(0)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,). For a residual these are the variances of the sum."""
        rows = self.read(a).double()
        return torch.stack([kernel.diagonal(rows) for kernel in self.kernels]).sum(0)

    def jitter(self, x: Tensor) -> Tensor:
        """Return the noise (n,) of latent values at rows (n, D), without gradients. It bounds their weights."""
        return JITTER * self.diagonal(x).detach()

    def latent_root(
        self,
        x: Tensor,  # (n, D)
        pattern: SparsityPattern,  # (r, n)
        phi: Tensor,  # (n, F)
    ) -> LatentRoot:
        """Return the root L of the prior covariance L L^T at ordered rows, without noise and without gradients.

        Args:
            x: The rows.
            pattern: The neighbors of the rows.
            phi: The features of the weights whose residual the block is. Otherwise not used.
        """
        with torch.no_grad():
            return LatentRoot(self.process(x, phi).root_entries(self.jitter(x), pattern).numpy(), pattern)

    def process(
        self,
        x: Tensor,  # (n, D)
        phi: Tensor,  # (n, F)
        flags: Tensor | None = None,  # (n, T)
    ) -> StationaryProcess | BatchedProcess:
        """Return g at ordered rows, which computes entries of sparse factors.

        Args:
            x: The rows.
            phi: The features of the weights whose residual the block is. Otherwise not used.
            flags: Whether each term is in the values of each row. If None, all are.
        """
        if self.kind is not None:
            lengthscale, variance = (parameter.double() for parameter in self.parameters)
            explained = phi if self.is_residual else phi[:, :0]
            return StationaryProcess(columns_of(x, self.columns), lengthscale, variance, KINDS[self.kind], explained)
        inputs = self.read(x).detach().double()

        def covariance(rows: Tensor, *parameters: Tensor) -> Tensor:
            subset = inputs[rows]
            matrices = [kernel.kernel(subset, subset) for kernel in self._at(parameters).kernels]
            if flags is not None:
                pairs = zip(matrices, flags[rows].double().unbind(1), strict=True)
                matrices = [flag[:, None] * matrix * flag for matrix, flag in pairs]
            return torch.stack(matrices).sum(0) if len(matrices) > 1 else matrices[0]

        return BatchedProcess(covariance, self.parameters, self.scaled(x))


@dataclass(frozen=True)
class StationaryCovariance:
    """The covariance s^2 k of inputs, of a lengthscale, and of the variance s^2.

    Attributes:
        kind: The name of the kernel in `rfgp.local.KINDS`.
        columns: The indices of the d columns of inputs (n, D). If None, all.
    """

    kind: str
    columns: tuple[int, ...] | None

    def __call__(self, a: Tensor, b: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        """Return the covariance (n, m) of inputs a (n, D) and b (m, D)."""
        left, right = (columns_of(x, self.columns) / lengthscale for x in (a, b))
        return variance * spectrum_of(self.kind).kernel_between(left, right)

    def variances(self, a: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        """Return the variances (n,) of inputs a (n, D)."""
        return variance.double().expand(len(a))

    def embedding(self, a: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        """Return inputs a (n, D) in units of lengthscales, times s, (n, d)."""
        return variance.sqrt() * columns_of(a, self.columns) / lengthscale


def columns_of(x: Tensor, columns: tuple[int, ...] | None) -> Tensor:
    """Return some columns of inputs.

    Args:
        x: The inputs, (n, D).
        columns: The indices of the columns. If None, all.
    """
    return x if columns is None else x[:, list(columns)]


def joined_neighbors(blocks: Sequence[VecchiaBlock]) -> VecchiaBlock | None:
    """Return one block for the sum of blocks of nearest neighbors.

    Args:
        blocks: The blocks. The first one gives the order of the rows.

    Returns:
        The block, or None if there are none.

    Raises:
        InvalidArgumentError: If their options differ, or one of several is a residual.
    """
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    first = blocks[0]
    for block in blocks:
        if block.is_residual:
            raise InvalidArgumentError(
                f"The term {block.name!r} with neighbors for the residual of inducing points must be the only term "
                "with neighbors, got others. Use InducingPoints() without a residual."
            )
        if (block.num_neighbors, block.condition_on) != (first.num_neighbors, first.condition_on):
            raise InvalidArgumentError(
                f"Terms with nearest neighbors must have the same options, because their sum is approximated, got "
                f"{first.num_neighbors} and {block.num_neighbors} neighbors of {first.condition_on} and "
                f"{block.condition_on} values. Use one Vecchia for all of them."
            )
    restricted = [block.columns for block in blocks if block.columns is not None]
    columns = tuple(sorted({index for indices in restricted for index in indices}))
    return replace(
        first,
        kernels=tuple(kernel for block in blocks for kernel in block.kernels),
        embeddings=tuple(embedding for block in blocks for embedding in block.embeddings),
        columns=columns if len(restricted) == len(blocks) else None,
        name=" + ".join(name for block in blocks for name in block.names),
        kind=None,
        block_size=1,
    )


def predecessors_in_blocks(
    block: VecchiaBlock,
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
