"""Blocks of latent values with a sparse precision, and sparse projections to points."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.blocks.role import LatentBlock, NewLevels
from rfgp.errors import NotPositiveDefiniteError
from rfgp.sparse import quadratic_forms

Array = NDArray[np.float64]

COLUMNS = 64
"""The number of right-hand sides of the size of the field that are solved at once."""


class Factor(Protocol):
    """Interface: a Cholesky factor of a sparse matrix (N, N)."""

    @property
    def analysis(self) -> Any:
        """The symbolic analysis of the pattern, with the order of elimination."""

    @property
    def log_determinant(self) -> float:
        """The logarithm of the determinant."""

    @property
    def inverse(self) -> Array:
        """The entries of A^-1 on the pattern, (nnz,)."""

    def solve(self, b: Array) -> Array:
        """Return A^-1 b, for b (N,) or (N, k)."""

    def solve_in_place(self, x: Array) -> None:
        """Overwrite x (N, k), with rows in the order of elimination, with A^-1 x."""

    def half_solve(self, b: Array) -> Array:
        """Return L^-1 P b, for b (N, k)."""

    def sample(self, standard: Array) -> Array:
        """Return draws of N(0, A^-1) from standard normal z (N, k)."""


class Field(Protocol):
    """Interface: N values with a sparse precision Q of p parameters.

    An example is `graphs.precisions.MarkovField`.
    """

    @property
    def coordinates(self) -> Array | None:
        """The coordinates of the values for orderings, or None."""

    @property
    def analysis(self) -> Any:
        """The symbolic analysis of the pattern. Its `num_nonzeros` is that of a factor."""

    @property
    def pattern(self) -> Any:
        """The pattern of Q in CSR form: indptr (N + 1,) and indices (nnz,)."""

    def entries(self, values: Array) -> Array:
        """Return the entries of Q (nnz,) at parameters (p,)."""

    def pull_back(self, values: Array, weights: Array) -> Array:
        """Return the derivatives, (p,), of a weighted sum of entries of Q.

        They are sum_e weights_e dQ_e / d parameters.

        Args:
            values: The parameters, (p,).
            weights: The weight of each entry, (nnz,).
        """

    def log_determinant(self, values: Array) -> tuple[float, Array]:
        """Return log |Q| and its derivatives (p,)."""

    def factor(self, data: Array) -> Factor:
        """Return the factor of a matrix with these entries (nnz,)."""

    def factor_at(self, values: Array) -> Factor:
        """Return the factor of Q at parameters (p,). The last one is cached."""


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

    field: Field
    values: Tensor
    variance: Tensor
    projector: Projector
    refine: "Callable[[Tensor], tuple[Field, Projector]] | None" = None
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
