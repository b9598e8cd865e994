"""Sparse latent values and dense weights: the solver, the posterior, and projections to rows and points."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.cholesky import Factor
from graphs.errors import MemoryBudgetError
from rfgp.autograd import Array, Gradients, Needs, with_gradient, with_slopes
from rfgp.blocks import PrecisionBlock, Prior, Weights
from rfgp.blocks.prior import COLUMNS, Slope, products
from rfgp.errors import InvalidArgumentError, NotDifferentiableError
from rfgp.limits import limits
from rfgp.rows import Block
from rfgp.solvers.bordered.system import BorderedSystem, Elimination, SparseLatents
from rfgp.solvers.kriging import latent_precision, neighbors_of
from rfgp.solvers.lowrank import FactorCovariance, LowRankPosterior
from rfgp.solvers.role import (
    Functions,
    Joint,
    LatentOperator,
    OnDemand,
    Posterior,
    Shape,
    Solver,
    TermwisePosterior,
    check_divided,
    check_joint,
    joint_scales,
)

# --- The projection of sparse latent values and dense weights to rows ------------------------------------------------


def all_weights(prior: Prior, rows: Tensor) -> Weights:
    """Return the dense weights of a prior, and those of its kernels at the rows.

    Args:
        prior: The prior.
        rows: The inputs of the rows, (n, d), or positions (n,).
    """
    return Weights((*prior.weights, *(block.as_weights(rows) for block in prior.kernels)))


def sparse_blocks(prior: Prior, rows: Tensor) -> tuple[PrecisionBlock, ...]:
    """Return the precisions of a prior, and its neighbors as latent values at rows.

    Args:
        prior: The prior.
        rows: The inputs of the rows, (n, d), or positions (n,).
    """
    near = () if prior.neighbors is None else (latent_precision(prior.neighbors, rows, explained=prior.explained),)
    return (*prior.precisions, *near)


def joint_projector(blocks: Sequence[PrecisionBlock], inputs: Tensor) -> sp.csr_array:
    """Return the joint projection A = [A_1, A_2, ...] of n points, (n, N).

    It has no columns if there are no blocks.

    Args:
        blocks: The sparse blocks.
        inputs: The inputs of the points, (n, d), or positions (n,).
    """
    return side_by_side([block.projector(inputs) for block in blocks], len(inputs))


def side_by_side(parts: Sequence[sp.csr_array], count: int) -> sp.csr_array:
    """Return [A_1, A_2, ...], (n, N), without columns if there are no parts.

    Args:
        parts: The projections A_t, (n, N_t) each.
        count: The number n of points.
    """
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.hstack(parts, format="csr")) if parts else sp.csr_array((count, 0))


def has_residuals(blocks: Sequence[PrecisionBlock]) -> bool:
    """Return whether a block has a residual.

    A row may then depend on values without a joint entry in Q.

    Args:
        blocks: The sparse blocks.
    """
    return any(block.residual is not None for block in blocks)


def bordered_system(
    blocks: Sequence[PrecisionBlock],
    projector: sp.csr_array,  # (n, N)
    border: Tensor,  # (n, F)
    noise: Tensor,  # (n,)
    residual: Tensor,  # (n, k)
    output_weights: Tensor | None = None,  # (k,)
    *,
    combines_non_neighbors: bool = False,
) -> BorderedSystem:
    """Return the regression of residuals on sparse blocks and features.

    The result has no gradients.

    Args:
        blocks: The sparse blocks, in the order of the columns of the projection.
        projector: The projection A to the rows.
        border: Phi of the rows.
        noise: The noise D of the rows.
        residual: The residual r of the rows.
        output_weights: The weight of the log marginal likelihood of each output. If None, 1.
        combines_non_neighbors: Whether a row depends on two values of a block that have no joint entry in Q. The
            default is False.
    """
    prior = SparseLatents(blocks, projector, combines_non_neighbors=combines_non_neighbors)
    return BorderedSystem(Elimination(prior, border.detach(), noise.detach()), residual.detach(), output_weights)


# --- The covariance of projected sparse latent values, as products and solves ----------------------------------------


class SparseOperator:
    """The covariance A S^-1 A^T of n points.

    The latent values have the posterior precision S. Methods have the arguments of those of `LatentOperator`.

    Args:
        system: The latent values given rows.
        projector: The projection A, (n, N).
    """

    def __init__(self, system: BorderedSystem, projector: sp.csr_array) -> None:
        self._system, self._projector = system, projector
        self._factor_with_points: tuple[Tensor, Factor] | None = None

    def __len__(self) -> int:
        return int(self._projector.shape[0])

    def times(self, v: Tensor) -> Tensor:
        """Return A S^-1 A^T v, (n, p)."""
        return torch.from_numpy(self._projector @ self._system.elimination.factor.solve(self._projector.T @ v.numpy()))

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (A S^-1 A^T + D)^-1 v, (n, p).

        It is computed as D^-1 (v - A (S + A^T D^-1 A)^-1 A^T D^-1 v). The factor for the last D is cached.
        """
        if self._factor_with_points is None or self._factor_with_points[0] is not noise:
            self._factor_with_points = noise, self._system.elimination.factor_with(self._projector, noise.numpy())
        scaled = v / noise[:, None]
        explained = self._factor_with_points[1].solve(self._projector.T @ scaled.numpy())
        return scaled - torch.from_numpy(self._projector @ explained) / noise[:, None]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from N(0, A S^-1 A^T).

        Returns:
            The draws, (n, count).
        """
        standard = torch.randn(self._projector.shape[1], count, generator=generator, dtype=torch.float64)
        return torch.from_numpy(self._projector @ self._system.elimination.factor.sample(standard.numpy()))


# --- The projection of sparse latent values and dense weights to points ----------------------------------------------


@dataclass(frozen=True, eq=False)
class BorderedProjection:
    """The projection f = offset + A u + Phi w + e of latent values u and weights w to n points.

    The latent values and the weights are given the rows.

    Attributes:
        system: The latent values u and weights w given the rows.
        sparse: The projection A, (n, N).
        dense: The features Phi, (n, F).
        conditional_variance: The variances (n,) of e, or its covariance (n, n).
        offset: The part of f that the rows determine, (n, k). The default is 0.
        inputs: The inputs of the points, if A is differentiated in them.
        slopes: The derivatives of A, and of the variances of e, in columns of the inputs.
    """

    system: BorderedSystem
    sparse: sp.csr_array
    dense: Tensor
    conditional_variance: Tensor
    offset: Tensor | float = 0.0
    inputs: Tensor | None = None
    slopes: Sequence[Slope] = ()

    @cached_property
    def reduced(self) -> Tensor:
        """Psi = Phi - A Y, (n, F)."""
        elimination = self.system.elimination
        if not elimination.is_sparse or not self.dense.shape[1]:
            return self.dense
        return self.dense - torch.from_numpy(self.sparse @ elimination.coupling.numpy())

    @property
    def variances(self) -> Tensor:
        """The variances (n,) of f."""
        variances = self.conditional_variance
        variances = variances if variances.ndim == 1 else variances.diagonal()
        elimination = self.system.elimination
        variances = elimination.variances(self.sparse, elimination.half_border(self.reduced)) + variances
        return self._with_slopes(variances, [self._variance_slope(slope) for slope in self.slopes]).clamp_min(0)

    @property
    def mean(self) -> Tensor:
        """The mean (n, k) of f."""
        system = self.system
        mean = self.dense @ system.weights + self.offset
        if not system.elimination.is_sparse:
            return mean
        values = system.values.numpy()
        slopes = [np.asarray(slope.projector @ values) for slope in self.slopes]
        return self._with_slopes(mean + torch.from_numpy(np.asarray(self.sparse @ values)), slopes)

    @property
    def root(self) -> Tensor:
        """A root (n, F + N) of the covariance of A u + Phi w."""
        elimination = self.system.elimination
        half = elimination.half_border(self.reduced)
        if not elimination.is_sparse:
            return half
        return torch.cat([half, torch.from_numpy(elimination.factor.half_solve(self.sparse.toarray().T).T)], dim=1)

    def _with_slopes(self, values: Tensor, slopes: Sequence[Array]) -> Tensor:
        """Return values (n, ...) whose derivatives in columns of the inputs include the slopes (n, ...)."""
        if self.inputs is None:
            return values
        columns = [slope.column for slope in self.slopes]
        return with_slopes(values, self.inputs, list(zip(columns, slopes, strict=True)))

    def _variance_slope(self, slope: Slope) -> Array:
        """Return the derivative (n,) of the variances in A, along A'.

        The variances V are quadratic in A. The derivative is (V(A + h A') - V(A - h A')) / 2h for any h, here |A| /
        |A'|.
        """
        elimination, size, slope_size = self.system.elimination, _norms(self.sparse), _norms(slope.projector)
        step = np.where((size > 0) & (slope_size > 0), size, 1.0) / np.where(slope_size > 0, slope_size, 1.0)
        moved = sp.csr_array(sp.diags_array(step) @ slope.projector)
        border = torch.from_numpy(moved @ elimination.coupling.numpy())
        ends = list[Array]()
        for sign in (1.0, -1.0):
            half = elimination.half_border(self.reduced.detach() - sign * border)
            ends.append(elimination.variances(sp.csr_array(self.sparse + sign * moved), half).numpy())
        return np.asarray((ends[0] - ends[1]) / (2 * step) + slope.conditional_variance)


class BorderedRows(NamedTuple):
    """The rows of a posterior, with their computed algebra."""

    system: BorderedSystem  # the latent values and weights given the rows
    weights: Weights  # the dense weights, including those of kernels at the rows
    blocks: Sequence[PrecisionBlock]  # in the order of the columns of A. Refined ones have the rows among their values


def projects_singly(blocks: Sequence[PrecisionBlock]) -> bool:
    """Return whether single points have projections without a refined field.

    Otherwise they become values of a refined field.

    Args:
        blocks: The sparse blocks.
    """
    return all(block.refine is None or block.between is not None for block in blocks)


def _norms(matrix: sp.csr_array) -> Array:
    """Return the norms (n,) of the rows of a matrix (n, N)."""
    norms: Array = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).reshape(-1))
    return norms


# --- The posterior of sparse latent values and dense weights at points -----------------------------------------------


@dataclass(frozen=True, eq=False)
class BorderedPosterior(TermwisePosterior):
    """The posterior of sparse latent values and dense weights, stored as the rows.

    After loading, the factors are computed again from the rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior of precisions, weights, kernels and neighbors.
        inputs: The inputs of the rows, positions (n,) or (n, d).
        noise_diag: The noise D, (n,).
        targets: The centered targets y - mean, (n, k).
        known: The rows with their computed algebra. If None, it is computed on demand.
    """

    inputs: Tensor
    noise_diag: Tensor
    targets: Tensor
    known: BorderedRows | None = None

    serialized_fields = ("inputs", "noise_diag", "targets")

    @cached_property
    def _rows(self) -> BorderedRows:
        """The rows, which are among the values of refined fields."""
        return self.known or self._given(all_weights(self.prior, self.inputs), self.inputs)

    def _rows_with(self, inputs: Tensor) -> BorderedRows:
        """Return the rows, with n inputs, (n,) or (n, d), among the values of refined fields too."""
        return self._given(self._rows.weights, self.inputs, inputs) if self.prior.adds_latent_points else self._rows

    def _given(self, weights: Weights, *inputs: Tensor) -> BorderedRows:
        """Return the rows, with some inputs among the values of refined fields."""
        blocks = [block.refined(*inputs) for block in sparse_blocks(self.prior, self.inputs)]
        border, noise = weights.scaled(self.inputs).double(), self.noise_diag.double()
        data = joint_projector(blocks, self.inputs), border, noise, self.targets
        return BorderedRows(
            bordered_system(blocks, *data, combines_non_neighbors=has_residuals(blocks)), weights, blocks
        )

    @property
    def width(self) -> int:
        """The number of entries of a point: features and projections of latent values."""
        return self._rows.weights.num_features + (COLUMNS if projects_singly(self.prior.precisions) else 1)

    def project(self, inputs: Tensor) -> BorderedProjection:
        """Return the projections of n single points, (n, d) or positions (n,)."""
        return self._project(self._rows if projects_singly(self.prior.precisions) else self._rows_with(inputs), inputs)

    def _project(self, rows: BorderedRows, inputs: Tensor) -> BorderedProjection:
        """Return the projections of n single points given the rows."""
        out = self._projection(rows, inputs)
        return replace(out, inputs=inputs, slopes=list(self._slopes(rows, inputs))) if self._is_smooth(inputs) else out

    def _is_smooth(self, inputs: Tensor) -> bool:
        """Return whether projections of sparse blocks are differentiated in the inputs."""
        is_smooth = any(block is not None and block.slopes is not None for block in self._predicted(self._rows))
        return torch.is_grad_enabled() and inputs.requires_grad and is_smooth

    def _predicted(self, rows: BorderedRows) -> list[PrecisionBlock | None]:
        """Return the sparse blocks of the predicted sum at points, None for those that are not in it."""
        return [block if self.terms is None else block.of(self.terms) for block in rows.blocks]

    def _projection(self, rows: BorderedRows, inputs: Tensor, *, jointly: bool = False) -> BorderedProjection:
        """Return the projections of n points, with conditional variances (n,), or jointly with covariances (n, n)."""
        dense = rows.weights.scaled(inputs).double()
        dense = dense if self.terms is None else dense * rows.weights.of(self.terms)
        residual, parts = rows.weights.with_residuals_of(self.terms), list[sp.csr_array]()
        conditional = torch.zeros((len(inputs),) * (2 if jointly else 1), dtype=torch.float64)
        missing = residual.residual_covariance if jointly else residual.residual_variance
        conditional = conditional + missing(inputs, dense)
        for block, predicted in zip(rows.blocks, self._predicted(rows), strict=True):
            if predicted is None:
                part = sp.csr_array((len(inputs), block.size))
            else:
                part, own = (predicted.joint_projection if jointly else predicted.marginal_projection)(inputs)
                conditional = conditional + own
            parts.append(part)
        return BorderedProjection(rows.system, side_by_side(parts, len(inputs)), dense, conditional)

    def _slopes(self, rows: BorderedRows, inputs: Tensor) -> Iterator[Slope]:
        """Yield the derivatives of the projections of n points in columns of their inputs."""
        parts = [sp.csr_array((len(inputs), block.size)) for block in rows.blocks]
        for number, predicted in enumerate(self._predicted(rows)):
            for slope in [] if predicted is None else predicted.marginal_slopes(inputs):
                slope_parts = [slope.projector if i == number else part for i, part in enumerate(parts)]
                yield slope._replace(projector=side_by_side(slope_parts, len(inputs)))

    def joints(
        self,
        inputs: Tensor,
        parts: Sequence["BorderedPosterior"],
        projected: Sequence[OnDemand],
    ) -> Sequence[Joint]:
        """Return the joint projections of at most 2,000 points for sums of terms.

        Raises:
            InvalidArgumentError: If there are more points, or latent neighbors are divided.
            NotDifferentiableError: If inputs of sparse blocks require gradients.
        """
        are_neighbors = any(block.joint is not None for block in self._rows.blocks)
        check_joint(len(inputs), len(self.inputs) if are_neighbors else 0)
        check_divided(self.prior, *(part.terms for part in parts if part.terms is not None))
        if any(part._is_smooth(inputs) for part in parts):
            raise NotDifferentiableError(
                "X must not require gradients for covariances and samples of sparse precisions and neighbors, got X "
                "that does. Use predict(X.detach()), or Exact()."
            )
        rows = self._rows_with(inputs)
        joints = [part._projection(rows, inputs, jointly=True) for part in parts]
        if not are_neighbors:
            return [Joint(joint) for joint in joints]
        pairs = zip(projected, joints, strict=True)
        return [Joint(joint, joint_scales(single().variances, joint.variances)) for single, joint in pairs]

    def between(self, left: BorderedProjection, right: BorderedProjection) -> Tensor:
        """Return the covariance (n, n) of A u + Phi w."""
        elimination = left.system.elimination
        out = elimination.half_border(left.reduced) @ elimination.half_border(right.reduced).mT
        if elimination.is_sparse:
            out = out + torch.from_numpy(products(elimination.factor, left.sparse, right.sparse))
        return (out + out.mT) / 2 if left is right else out

    def residual_covariance(self, inputs: Tensor, projected: BorderedProjection) -> Tensor:
        """Return the covariance (n, n) given the latent values and weights."""
        return projected.conditional_variance

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the posterior covariance (n, n) as products and solves, or None.

        The result is None if the covariance must be formed. It must be formed if there are dense weights, residuals, or
        inputs that require gradients.
        """
        if self._rows.weights.blocks or has_residuals(self._rows.blocks) or self._is_smooth(inputs):
            return None
        projection = self._project(self._rows_with(inputs), inputs)
        return SparseOperator(projection.system, projection.sparse)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior.

        Given w, u has the mean of u minus Y (w - E w), and the precision S.

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If a block is defined at given positions only, or has a residual.
        """
        system, weights, blocks = self._rows
        if self.prior.adds_latent_points or weights.has_residual or has_residuals(blocks):
            raise InvalidArgumentError(
                "This process has no functions to draw, because it is defined at given positions only. Use "
                "predict(X).sample() instead."
            )
        k = self.targets.shape[1]
        sizes = system.elimination.prior.matrix.shape[1], len(system.weights)
        z, e = (torch.randn(size, count * k, generator=generator, dtype=torch.float64) for size in sizes)
        deviation = torch.linalg.solve_triangular(system.elimination.border_factor.mT, e, upper=True)
        u = system.values.repeat(1, count) - system.elimination.coupling @ deviation
        w = system.weights.repeat(1, count) + deviation
        if system.elimination.is_sparse:
            u = u + torch.from_numpy(system.elimination.factor.sample(z.numpy()))

        def functions(inputs: Tensor) -> Tensor:
            projection = self.project(inputs)
            values = projection.dense @ w + torch.from_numpy(np.asarray(projection.sparse @ u.numpy()))
            out: Tensor = values.reshape(len(inputs), count, k).movedim(0, 1)
            return out

        return functions

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag and targets by name."""
        return {"noise_diag": (n,), "targets": (n, k)}

    def of(self, names: Sequence[str]) -> Self:
        """Return the posterior of the sum of some terms, with the same factors.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        return replace(super().of(names), known=self._rows)


# --- The solver of sparse precisions and dense weights, for rows in memory -------------------------------------------


class BorderedSolver(Solver):
    """Rows under a sum of sparse precisions and dense weights, exactly.

    Blocks with a covariance function become weights at the rows (`KernelBlock.as_weights`). Nearest neighbors become
    latent values (`latent_precision`).

    Args:
        prior: Precisions, weights, kernels and neighbors, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
        like: A solver of the same prior and inputs whose algebra is shared. If None, it is computed.

    Examples:
        >>> from rfgp.blocks import WeightBlock
        >>> prior = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> rows = Block(torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double())
        >>> solver = BorderedSolver(prior, rows, torch.zeros(1).double(), torch.tensor(1.0).double())
        >>> solver.fitted.round(decimals=4).tolist()  # x w with w = x^T y / (1 + x^T x) = 5 / 6
        [[0.8333], [1.6667]]
    """

    def __init__(self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor, like: "Self | None" = None) -> None:
        self._prior, self._like = prior, like
        self._blocks: list[PrecisionBlock] = []
        if like is None:
            self._blocks = [block.refined(rows.inputs) for block in sparse_blocks(prior, rows.inputs)]
            self._border: Tensor = all_weights(prior, rows.inputs).scaled(rows.inputs).double()
        else:
            self._blocks, self._border = like._blocks, like._border
        super().__init__(rows, mean, noise, features=(prior.dense, self._border))

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs.

        For the same noise the factors are reused.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        return type(self)(self._prior, rows, mean, noise, self)

    @cached_property
    def system(self) -> BorderedSystem:
        """The linear algebra of the rows."""
        numbers = self._noise.detach(), self._residual.detach(), self._rows.output_weights
        if self._like is not None:
            like, self._like = self._like, None  # a chain of solvers would keep the algebra of all of them
            return like.system.with_data(*numbers)
        data = joint_projector(self._blocks, self._rows.inputs), self._border, *numbers
        return bordered_system(self._blocks, *data, combines_non_neighbors=has_residuals(self._blocks))

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        of_fields = [tensor.double() for block in self._blocks for tensor in (block.values, block.variance)]
        inputs = (self._border, self._noise, self._residual, *of_fields)
        return with_gradient(self._value, *inputs) + self._other_terms

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        return self.system.log_prob(), self._gradients

    def _gradients(self) -> list[Tensor]:
        system = self.system
        return [system.in_border(), system.in_noise(), system.in_residual(), *system.in_fields()]

    @property
    def solved(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""
        return self.system.residual_of_mean / self.system.noise[:, None]

    @property
    def precisions(self) -> Tensor:
        """The diagonal (D_i - v_i) / D_i^2 of C^-1, with the posterior variances v of f at the rows, (n,)."""
        return (self.system.noise - self.system.elimination.row_variances) / self.system.noise.square()

    @property
    def fitted(self) -> Tensor:
        """The posterior mean of f at the rows, (n, k)."""
        return self.system.fitted

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,)."""
        return self.system.elimination.row_variances

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        return self.system.noise.new_tensor(self.system.elimination.log_determinant)

    @property
    def effective_dof_fraction(self) -> float | None:
        """The effective degrees of freedom of the F weights over F, or None without any."""
        factor = self.system.elimination.border_factor
        return 1 - float(torch.cholesky_inverse(factor).diagonal().mean()) if len(factor) else None

    def posterior(self) -> Posterior:
        """Return the posterior for predictions, without gradients.

        If the prior has dense weights only, it is a `LowRankPosterior`, which does not store the rows. Otherwise it is
        a `BorderedPosterior` with the rows and their factorization.
        """
        if self._prior.has_weights_only:
            covariance = FactorCovariance(self.system.elimination.border_factor)
            return LowRankPosterior(self._prior.detached(), self.system.weights, covariance)
        prior, rows, system = self._prior.detached(), self._rows.inputs, self.system
        known = BorderedRows(system, all_weights(prior, rows), [block.detached() for block in self._blocks])
        return BorderedPosterior(prior, rows, system.noise, system.residual, known)


# --- The choice of a sparse factor for latent neighbors, by operations and memory ------------------------------------

FLOPS_EXPONENT = 1.5
"""The exponent of the growth of operations in the number of rows, a lower bound for two columns or more. It saves the
analysis of all rows where the factor is clearly too large."""
MAX_ROUNDING_ERROR = 1e-3
"""The maximum rounding error of a precision, in units of the precision of a row's noise. It bounds the relative errors
of variances."""


def bordered_latent(prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> BorderedSolver | None:
    """Return the solver of latent nearest neighbors by a sparse factor.

    The number of operations is first extrapolated from the factor of a sample of many rows.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.

    Returns:
        The solver, or None if the factor is too large or its rounding errors are not small relative to the noise.
    """
    size, count, max_flops = len(rows), limits().pattern_rows, limits().max_elimination_flops
    if prior.graph_features:
        return None
    if size > count:
        known = prior.detached()
        sample = rows.inputs[neighbors_of(known).order(size)[:count]]
        analysis = latent_precision(neighbors_of(known), sample, explained=known.explained).field.analysis
        if analysis.flops * (size / count) ** FLOPS_EXPONENT > max_flops:
            return None
    solver = BorderedSolver(prior, rows, mean, noise)
    elimination = solver.system.elimination
    with suppress(MemoryBudgetError):
        analysis = elimination.prior.pattern.analyze()
        analysis.check_fits()
        largest = float(np.abs(elimination.prior.entries[-1]).max())
        error = float(np.finfo(np.float64).eps) * largest * float(elimination.noise.max())
        if analysis.flops <= max_flops and error <= MAX_ROUNDING_ERROR:
            return solver
    return None
