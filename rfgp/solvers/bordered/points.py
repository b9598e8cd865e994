"""The projection of sparse latent values and dense weights to points."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import Array, with_slopes
from rfgp.blocks import PrecisionBlock, Weights
from rfgp.blocks.precision import Slope, products
from rfgp.errors import NotDifferentiableError
from rfgp.limits import limits
from rfgp.solvers.bordered.projections import side_by_side
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.terms import MAX_JOINT, check_joint

MIN_JOINT = 256
"""The number of points of a joint distribution that is permitted for any number of rows."""


@dataclass(frozen=True, eq=False)
class BorderedProjection:
    """The projection f = A u + Phi w + e of latent values u and weights w to n points.

    The latent values and the weights are given the rows.

    Attributes:
        system: The latent values u and weights w given the rows.
        sparse: The projection A, (n, N).
        dense: The features Phi, (n, F).
        conditional_variance: The variances (n,) of e, or its covariance (n, n).
        inputs: The inputs of the points, if A is differentiated in them.
        slopes: The derivatives of A, and of the variances of e, in columns of the inputs.
    """

    system: BorderedSystem
    sparse: sp.csr_array
    dense: Tensor
    conditional_variance: Tensor
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
        variances = self.system.elimination.variances(self.sparse, self.reduced) + variances
        return self._with_slopes(variances, [self._variance_slope(slope) for slope in self.slopes]).clamp_min(0)

    @property
    def mean(self) -> Tensor:
        """The mean (n, k) of f."""
        system = self.system
        mean = self.dense @ system.weights
        if not system.elimination.is_sparse:
            return mean
        values = system.values.numpy()
        slopes = [np.asarray(slope.projector @ values) for slope in self.slopes]
        return self._with_slopes(mean + torch.from_numpy(np.asarray(self.sparse @ values)), slopes)

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
        ends = [
            elimination.variances(
                sp.csr_array(self.sparse + sign * moved), self.reduced.detach() - sign * border
            ).numpy()
            for sign in (1.0, -1.0)
        ]
        return np.asarray((ends[0] - ends[1]) / (2 * step) + slope.conditional_variance)


@dataclass(frozen=True, eq=False)
class PointProjector:
    """The projection of a sum of terms given the rows, for any points.

    Attributes:
        system: The latent values and weights given the rows.
        weights: The dense weights.
        blocks: The sparse blocks, in the order of the columns of A. Refined ones have the rows among their values.
        terms: The names of the terms. If None, all.
    """

    system: BorderedSystem
    weights: Weights
    blocks: Sequence[PrecisionBlock]
    terms: Sequence[str] | None = None

    def project(self, inputs: Tensor) -> BorderedProjection:
        """Return the projections of n single points.

        Args:
            inputs: The inputs of the points, (n, d), or positions (n,).
        """
        dense = self._features(inputs)
        variance = torch.zeros(len(inputs), dtype=torch.float64) + self._residual.residual_variance(inputs, dense)
        out = self._projection(inputs, dense, variance, PrecisionBlock.marginal_projection)
        return replace(out, inputs=inputs, slopes=list(self._slopes(inputs))) if self.needs_gradient(inputs) else out

    def needs_gradient(self, inputs: Tensor) -> bool:
        """Return whether projections of sparse blocks are differentiated in the inputs.

        Args:
            inputs: The inputs of the points, (n, d), or positions (n,).
        """
        is_smooth = any(block is not None and block.slopes is not None for block in self._predicted)
        return torch.is_grad_enabled() and inputs.requires_grad and is_smooth

    def check_constant(self, inputs: Tensor) -> None:
        """Raise if the covariance of points would be differentiated in their inputs.

        Args:
            inputs: The inputs of the points, (n, d), or positions (n,).

        Raises:
            NotDifferentiableError: If the inputs require gradients and a sparse block depends on them smoothly.
        """
        if self.needs_gradient(inputs):
            raise NotDifferentiableError(
                "X must not require gradients for covariances and samples of sparse precisions and neighbors, got X "
                "that does. Use predict(X.detach()), or Exact()."
            )

    def _slopes(self, inputs: Tensor) -> Iterator[Slope]:
        """Yield the derivatives of the projections of n points in columns of their inputs."""
        parts = [sp.csr_array((len(inputs), block.size)) for block in self.blocks]
        for number, predicted in enumerate(self._predicted):
            for slope in [] if predicted is None else predicted.marginal_slopes(inputs):
                slope_parts = [slope.projector if i == number else part for i, part in enumerate(parts)]
                yield slope._replace(projector=side_by_side(slope_parts, len(inputs)))

    def project_jointly(self, inputs: Tensor) -> tuple[BorderedProjection, Tensor]:
        """Return the projections of n points that may be neighbors of each other.

        Refined blocks must have the points among their values.

        Args:
            inputs: The inputs of the points, (n, d), or positions (n,).

        Returns:
            The projections with a joint covariance of errors, and the ratios (n,) of the standard deviations of single
            points to those in this joint distribution.
        """
        dense = self._features(inputs)
        covariance = torch.zeros(len(inputs), len(inputs), dtype=torch.float64)
        covariance = covariance + self._residual.residual_covariance(inputs, dense)
        projection = self._projection(inputs, dense, covariance, PrecisionBlock.joint_projection)
        if not depend_on_each_other(self.blocks):
            return projection, dense.new_ones(len(inputs))
        single, variance = self.project(inputs).variances, projection.variances
        return projection, (single / variance.clamp_min(torch.finfo(variance.dtype).tiny)).sqrt()

    def _features(self, inputs: Tensor) -> Tensor:
        """Return Phi (n, F), 0 for terms that are not in the sum."""
        dense = self.weights.scaled(inputs).double()
        return dense if self.terms is None else dense * self.weights.of(self.terms)

    @property
    def _predicted(self) -> list[PrecisionBlock | None]:
        """The sparse blocks of the predicted sum at points, None for those that are not in it."""
        return [block if self.terms is None else block.of(self.terms) for block in self.blocks]

    @cached_property
    def _residual(self) -> Weights:
        """The weights with the residuals of the predicted sum."""
        return self.weights.with_residuals_of(self.terms)

    def _projection(
        self,
        inputs: Tensor,
        dense: Tensor,
        conditional: Tensor,
        project: Callable[[PrecisionBlock, Tensor], tuple[sp.csr_array, Tensor]],
    ) -> BorderedProjection:
        """Return the projection to n points, with conditional variances (n,) or covariances (n, n)."""
        parts = list[sp.csr_array]()
        for block, predicted in zip(self.blocks, self._predicted, strict=True):
            if predicted is not None:
                part, residual = project(predicted, inputs)
                conditional = conditional + residual
            else:
                part = sp.csr_array((len(inputs), block.size))
            parts.append(part)
        return BorderedProjection(self.system, side_by_side(parts, len(inputs)), dense, conditional)


def between(left: BorderedProjection, right: BorderedProjection) -> Tensor:
    """Return the covariance (a, b) of A u + Phi w between two sets of points.

    Args:
        left: The projections of a points.
        right: The projections of b points given the same rows.
    """
    elimination = left.system.elimination
    out = elimination.half_border(left.reduced) @ elimination.half_border(right.reduced).mT
    if elimination.is_sparse:
        out = out + torch.from_numpy(products(elimination.factor, left.sparse, right.sparse))
    return out


def projects_singly(blocks: Sequence[PrecisionBlock]) -> bool:
    """Return whether single points have projections without a refined field.

    Otherwise they become values of a refined field.

    Args:
        blocks: The sparse blocks.
    """
    return all(block.refine is None or block.between is not None for block in blocks)


def depend_on_each_other(blocks: Sequence[PrecisionBlock]) -> bool:
    """Return whether points may be neighbors of each other.

    Args:
        blocks: The sparse blocks.
    """
    return any(block.joint is not None for block in blocks)


def _norms(matrix: sp.csr_array) -> Array:
    """Return the norms (n,) of the rows of a matrix (n, N)."""
    norms: Array = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).reshape(-1))
    return norms


def check_joint_size(blocks: Sequence[PrecisionBlock], num_points: int, num_rows: int) -> None:
    """Raise if a joint distribution has too many points.

    Args:
        blocks: The sparse blocks.
        num_points: The number of points.
        num_rows: The number of rows.

    Raises:
        InvalidArgumentError: If there are more than 2,000 points, or their projections do not fit in memory.
    """
    max_points = max(MIN_JOINT, limits().max_joint_numbers // num_rows) if depend_on_each_other(blocks) else MAX_JOINT
    check_joint(num_points, "points", max_points=min(MAX_JOINT, max_points))
