"""Blocks with sparse precisions and of nearest neighbors, and the prior as a sum of all blocks.

The entries of the sparse factors (`rfgp.local.factor`) are computed in two ways: by compiled loops for one stationary
kernel of `rfgp.local.KINDS`, and in batches of small matrices for any covariance functions (`rfgp.local.covariances`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphs.cholesky import Factor
from graphs.precisions import MarkovField
from rfgp import random
from rfgp.blocks.role import (
    KernelBlock,
    LatentBlock,
    NewLevels,
    PriorFunctions,
    SparseWeightBlock,
    WeightBlock,
    Weights,
    detached,
)
from rfgp.errors import InvalidArgumentError, NotPositiveDefiniteError
from rfgp.grams import Gram
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
from rfgp.sparse import EntryPattern, SparsityPattern, quadratic_forms

# --- Blocks of latent values with a sparse precision, and sparse projections to points -------------------------------

Array = NDArray[np.float64]

COLUMNS = 64
"""The number of right-hand sides of the size of the field that are solved at once."""


Between = Callable[[Any, Array, Tensor], tuple[sp.csr_array, Array]]
"""Maps a field, its parameters (p,) and n points to A (n, N) and the variances (n,) of f / s given u.

The mean of f given u is A u. Given u, points may be correlated. Each pair of values of a row has an entry in Q.
"""
Projector = Callable[[Tensor], sp.csr_array]
"""Maps n points to the sparse matrix A (n, N) of their projection on the latent values."""


class Slope(NamedTuple):
    """The derivatives of the projection of n points in one column of their inputs.

    Attributes:
        column: The index of the column.
        projector: The derivatives of A, (n, N).
        conditional_variance: The derivatives of the conditional variances, (n,).
    """

    column: int
    projector: sp.csr_array
    conditional_variance: Array


class MaternColumn(NamedTuple):
    """A half-integer Matern process of one column.

    Attributes:
        position: The index of the column among those of the inputs.
        order: The number nu + 1/2 of entries of the state of its Markov process.
    """

    position: int
    order: int


@dataclass(frozen=True, eq=False)
class PrecisionBlock(LatentBlock):
    """A process f = A u with values u of precision Q / s^2.

    Attributes:
        field: The precision Q as a function of its parameters.
        values: The parameters of Q, (p,).
        variance: The variance s^2, 0-d.
        projector: Maps n points to A (n, N). Each pair of values of a row has an entry in Q.
        refine: Maps inputs to a field with values at these inputs, and its projector. If None, `projector` accepts any
            inputs.
        name: The name of the term.
        residual: Maps n points to the conditional variances (n,) of f given u, independent between points. Pairs of
            values of a row then need no entry in Q. If None, the variances are 0.
        joint: Maps n dependent points to A (n, N) and the conditional covariance (n, n) of f given u. If None,
            `projector` and `residual` are used.
        new_levels: The covariance of f between inputs with levels that no row has, for a variance of 1. If None, 0.
        between: The projection of single points between the values of a refined field. If None, the field must be
            refined by all points.
        restricted: Maps names of terms to the block of their sum at points, for a block that is a sum of terms. If
            None, it is one term.
        slopes: Maps the arguments of `between` to the derivatives of its result, in units of s^2, for columns with
            smooth dependence. If None, projections are constant in the inputs.
        column: The column of which f is a Matern process with the lengthscale as its only parameter. If None, f is
            another process.
    """

    field: MarkovField
    values: Tensor
    variance: Tensor
    projector: Projector
    refine: "Callable[[Tensor], tuple[MarkovField, Projector]] | None" = None
    name: str = "precision"
    residual: Callable[[Tensor], Tensor] | None = None
    joint: "Callable[[Tensor], tuple[sp.csr_array, Tensor]] | None" = None
    new_levels: NewLevels | None = None
    between: Between | None = None
    restricted: "Callable[[Sequence[str]], PrecisionBlock | None] | None" = None
    slopes: Callable[[Any, Array, Tensor], Iterable[Slope]] | None = None
    column: MaternColumn | None = None

    def of(self, names: Sequence[str]) -> "PrecisionBlock | None":
        """Return the block of the named terms at points, or None if it has none of them.

        Args:
            names: The names of the terms.
        """
        if self.restricted is not None:
            return self.restricted(names)
        return self if self.name in names else None

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The field's parameters (p,) and the variance, 0-d."""
        return self.values, self.variance

    @property
    def size(self) -> int:
        """The number N of latent values."""
        return len(self.field.pattern.indptr) - 1

    def refined(self, *inputs: Tensor) -> "PrecisionBlock":
        """Return the block with values at these points, (n,) or (n, d) each."""
        if self.refine is None:
            return self
        field, projector = self.refine(torch.cat(inputs))
        return replace(self, field=field, projector=projector, refine=None)

    def residual_variance(self, a: Tensor) -> Tensor:
        """Return the conditional variances (n_a,) of f given u."""
        return torch.zeros(len(a), dtype=torch.float64) if self.residual is None else self.residual(a)

    def marginal_projection(self, inputs: Tensor) -> tuple[sp.csr_array, Tensor]:
        """Return the projection of n single points, and conditional variances.

        A refined block with `between` accepts points that are not among its values.

        Args:
            inputs: The inputs of n points.

        Returns:
            A (n, N) and the variances (n,) of f given u.
        """
        if self.between is None:
            return self.projector(inputs), self.residual_variance(inputs)
        projector, variance = self.between(self.field, self.values.detach().numpy(), inputs)
        return projector, float(self.variance.detach()) * torch.from_numpy(variance) + self.residual_variance(inputs)

    def marginal_slopes(self, inputs: Tensor) -> list[Slope]:
        """Return the derivatives of A (n, N) and the variances (n,) in columns of inputs.

        Args:
            inputs: The inputs of n points, (n, D).
        """
        if self.slopes is None:
            return []
        slopes, variance = self.slopes(self.field, self.values.detach().numpy(), inputs), float(self.variance.detach())
        return [slope._replace(conditional_variance=variance * slope.conditional_variance) for slope in slopes]

    def joint_projection(self, inputs: Tensor) -> tuple[sp.csr_array, Tensor]:
        """Return the projection of n dependent points, and a conditional covariance.

        The points must be among the values of a refined block.

        Args:
            inputs: The inputs of n points.

        Returns:
            A (n, N) and the covariance (n, n) of f given u.
        """
        if self.joint is not None:
            return self.joint(inputs)
        return self.projector(inputs), self.residual_variance(inputs).diag()

    def new_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance (n_a, n_b) at levels without rows, float64."""
        if self.new_levels is None:
            return torch.zeros(len(a), len(b), dtype=torch.float64)
        return self.new_levels.covariance(a, b)

    def new_variance(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,) at levels without rows, float64."""
        return torch.zeros(len(a), dtype=torch.float64) if self.new_levels is None else self.new_levels.variances(a)

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return s^2 A_a Q^-1 A_b^T, (n_a, n_b), without gradients.

        Residuals are independent between points.
        """
        block = self.refined(a, b)
        left, right = block.projector(a), block.projector(b)
        covariance = float(self.variance.detach()) * torch.from_numpy(products(block.factor, left, right))
        return covariance + self.residual_variance(a).diag() if a is b else covariance

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,), without gradients."""
        block = self.refined(a)
        reads = block.projector(a)
        if self.residual is None:
            squares, _ = quadratic_forms(reads, block.field.pattern, block.factor.inverse)
        else:
            squares = solved_forms(block.factor, reads)
        return float(self.variance.detach()) * torch.from_numpy(squares) + self.residual_variance(a)

    @cached_property
    def factor(self) -> Factor:
        """The factor of Q."""
        return factorized(self.field.factor_at, self.values.detach().numpy())


def factorized(factorize: Callable[[Array], Factor], entries: Array) -> Factor:
    """Return factorize(entries).

    Args:
        factorize: The function.
        entries: The entries of a sparse matrix, (nnz,).

    Raises:
        NotPositiveDefiniteError: If the matrix is not positive definite in double precision.
    """
    try:
        return factorize(entries)
    except np.linalg.LinAlgError as error:
        raise NotPositiveDefiniteError(
            f"{error} A field loses its digits if its lengthscale is far longer than its edges or the heights of its "
            "faces. Bound it with priors, or use a smaller alpha or a mesh without thin faces."
        ) from error


def products(
    factor: Factor,
    left: sp.csr_array,  # (a, N)
    right: sp.csr_array,  # (b, N)
) -> Array:  # (a, b)
    """Return left A^-1 right^T, for the factor of A.

    Args:
        factor: The factor of A, (N, N).
        left: (a, N).
        right: (b, N).

    Returns:
        The product, (a, b).
    """
    out = np.empty((left.shape[0], right.shape[0]))
    for begin in range(0, right.shape[0], COLUMNS):
        out[:, begin : begin + COLUMNS] = left @ factor.solve(right[begin : begin + COLUMNS].T.toarray())
    return out


def solved_forms(
    factor: Factor,
    reads: sp.csr_array,  # (n, N)
) -> Array:  # (n,)
    """Return the diagonal of A M^-1 A^T by one solve for each row.

    Args:
        factor: The factor of M, (N, N).
        reads: A, (n, N).

    Returns:
        The diagonal, (n,).
    """
    out = np.empty(reads.shape[0])
    for begin in range(0, len(out), COLUMNS):
        columns = reads[begin : begin + COLUMNS].T.toarray()
        out[begin : begin + COLUMNS] = np.square(factor.half_solve(columns)).sum(axis=0)
    return out


# --- Nearest-neighbor (Vecchia) approximations of sums of terms with any covariance functions ------------------------

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


# --- A Gaussian process prior as a sum of independent latent blocks --------------------------------------------------

B = TypeVar("B", bound=LatentBlock)


@dataclass(frozen=True, eq=False)
class Prior:
    """The sum of independent zero-mean blocks.

    They are grouped by the elimination of their latent vectors.

    Attributes:
        weights: Blocks of dense weights.
        kernels: Blocks with a covariance function.
        graph_features: Blocks of sparse features of nodes.
        precisions: Blocks with a sparse precision.
        neighbors: A block with nearest neighbors, or None.
        order: The names of the first terms in lists. Others follow.

    Examples:
        >>> import torch
        >>> from rfgp.blocks import Prior, WeightBlock
        >>> linear = WeightBlock(lambda x: x, num_features=2)
        >>> x = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
        >>> Prior(weights=(linear,)).kernel(x, x).tolist()
        [[5.0, 2.0], [2.0, 1.0]]
    """

    weights: tuple[WeightBlock, ...] = ()
    kernels: tuple[KernelBlock, ...] = ()
    graph_features: tuple[SparseWeightBlock, ...] = ()
    precisions: tuple[PrecisionBlock, ...] = ()
    neighbors: VecchiaBlock | None = None
    order: tuple[str, ...] = ()

    @classmethod
    def of_terms(cls, priors: "Sequence[Prior]") -> "Prior":
        """Return the sum of independent priors.

        Args:
            priors: The priors. Names of terms are unique.

        Raises:
            InvalidArgumentError: If several have nearest neighbors with different options.
        """
        return cls(
            tuple(block for prior in priors for block in prior.weights),
            tuple(block for prior in priors for block in prior.kernels),
            tuple(block for prior in priors for block in prior.graph_features),
            tuple(block for prior in priors for block in prior.precisions),
            joined_neighbors([prior.neighbors for prior in priors if prior.neighbors is not None]),
            tuple(dict.fromkeys(name for prior in priors for block in prior.blocks for name in block.names)),
        )

    @property
    def blocks(self) -> tuple[LatentBlock, ...]:
        """All blocks, by kind."""
        last = () if self.neighbors is None else (self.neighbors,)
        return (*self.weights, *self.kernels, *self.graph_features, *self.precisions, *last)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms. A term may have several blocks."""
        names = dict.fromkeys(name for block in self.blocks for name in block.names)
        return (*(name for name in self.order if name in names), *(name for name in names if name not in self.order))

    @cached_property
    def dense(self) -> Weights:
        """The concatenated dense weights."""
        return Weights(self.weights)

    @property
    def explained(self) -> tuple[WeightBlock, ...]:
        """The blocks of weights whose residual the block of neighbors is."""
        near = self.neighbors
        if near is None or not near.is_residual:
            return ()
        return tuple(block for block in self.weights if near.residual_of == block.name)

    @property
    def num_features(self) -> int:
        """The number F of dense weights."""
        return self.dense.num_features

    @property
    def has_weights_only(self) -> bool:
        """Whether all blocks are dense weights."""
        return not (self.kernels or self.graph_features or self.precisions or self.neighbors)

    @property
    def has_grids(self) -> bool:
        """Whether there are covariances, and all of them are products at rows on a grid."""
        return bool(self.kernels) and all(block.sides is not None for block in self.kernels)

    @property
    def adds_latent_points(self) -> bool:
        """Whether a block adds points to its latent values."""
        return any(block.refine is not None for block in self.precisions)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """All tensors (...) that may have gradients."""
        scales = tuple(block.variance for block in self.weights if block.variance is not None)
        scales += tuple(block.variance for block in self.graph_features)
        return (*(parameter for block in self.blocks for parameter in block.parameters), *scales)

    @property
    def wants_gradients(self) -> bool:
        """Whether gradients are enabled and a parameter requires one."""
        return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.parameters)

    @property
    def functions(self) -> PriorFunctions | None:
        """The functions drawn from the prior, or None.

        They exist if a single block defines them.
        """
        drawn = [block.functions for block in self.kernels] + [block.functions for block in self.graph_features]
        return drawn[0] if len(self.blocks) == len(drawn) == 1 else None

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the prior covariance (n_a, n_b) between inputs a and b, float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
            b: The inputs of n_b points, (n_b,) or (n_b, D).
        """
        return _total(block.kernel(a, b) for block in self._summands)

    def gram(self, a: Tensor) -> Gram:
        """Return the prior covariance (n_a, n_a) of inputs, with its gradient.

        It is float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
        """
        return Gram.total([block.gram(a) for block in self._summands])

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the prior variances (n_a,), float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
        """
        return _total(block.diagonal(a) for block in self._summands)

    def of(self, names: Sequence[str]) -> "Prior":
        """Return the sum of the named blocks.

        Args:
            names: The names of the terms. Names of other terms have no effect.
        """

        def kept(blocks: tuple[B, ...]) -> tuple[B, ...]:
            return tuple(block for block in blocks if block.name in names)

        near = None if self.neighbors is None else self.neighbors.of(names)
        return Prior(
            kept(self.weights), kept(self.kernels), kept(self.graph_features), kept(self.precisions), near, self.order
        )

    def detached(self) -> "Prior":
        """Return the prior without gradients."""
        return detached(self)

    @property
    def _summands(self) -> tuple[LatentBlock, ...]:
        """The blocks whose covariances add up.

        A residual includes the weights whose residual it is.
        """
        return tuple(block for block in self.blocks if block not in self.explained)


def _total(values: Iterator[Tensor]) -> Tensor:
    first, *others = values
    return sum(others, start=first)
