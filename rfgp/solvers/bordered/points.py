"""The projection of sparse latent values and dense weights to points."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import Array, numpy_function
from rfgp.blocks import PrecisionBlock, Weights
from rfgp.blocks.precision import Slope, products
from rfgp.errors import NotDifferentiableError
from rfgp.solvers.bordered.reads import side_by_side
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.terms import MAX_JOINT, check_joint

MAX_NUMBERS, MIN_JOINT = 2**27, 256
"""The maximum number of entries of projections in a joint distribution (a gigabyte), and the number of points always
permitted."""


@dataclass(frozen=True, eq=False)
class Reads:
    """The projection f = A u + Phi w + e of latent values u and weights w given the rows to n points.

    Attributes:
        system: The latent values u and weights w given the rows.
        sparse: The projection A, (n, N).
        dense: The features Phi, (n, F).
        left: The variances (n,) of e, or its covariance (n, n).
        inputs: The inputs of the points, if A is differentiated in them.
        slopes: The derivatives of A, and of the variances of e, in columns of the inputs.
    """

    system: BorderedSystem
    sparse: sp.csr_array
    dense: Tensor
    left: Tensor
    inputs: Tensor | None = None
    slopes: Sequence[Slope] = ()

    @cached_property
    def reduced(self) -> Tensor:
        """Psi = Phi - A Y, (n, F)."""
        known = self.system.elimination
        if not known.is_sparse or not self.dense.shape[1]:
            return self.dense
        return self.dense - torch.from_numpy(self.sparse @ known.coupling.numpy())

    @property
    def variances(self) -> Tensor:
        """The variances (n,) of f."""
        left = self.left if self.left.ndim == 1 else self.left.diagonal()
        variances = self.system.elimination.variances(self.sparse, self.reduced) + left
        return self._moving(variances, [self._variance_slope(slope) for slope in self.slopes]).clamp_min(0)

    @property
    def mean(self) -> Tensor:
        """The mean (n, k) of f."""
        system = self.system
        mean = self.dense @ system.weights
        if not system.elimination.is_sparse:
            return mean
        values = system.values.numpy()
        slopes = [np.asarray(slope.reads @ values) for slope in self.slopes]
        return self._moving(mean + torch.from_numpy(np.asarray(self.sparse @ values)), slopes)

    def _moving(self, values: Tensor, slopes: Sequence[Array]) -> Tensor:
        """Return values (n, ...) whose derivatives in columns of the inputs include the slopes (n, ...)."""
        if self.inputs is None or not slopes:
            return values

        def pull_back(inputs: Array, gradient: Array) -> Array:
            out = np.zeros_like(inputs)
            for slope, derivative in zip(self.slopes, slopes, strict=True):
                out[:, slope.column] += (gradient * derivative).reshape(len(out), -1).sum(axis=1)
            return out

        return values + numpy_function(self.inputs, lambda inputs: np.zeros(values.shape), pull_back)

    def _variance_slope(self, slope: Slope) -> Array:
        """Return the derivative (n,) of the variances in A, along A'.

        The variances V are quadratic in A. The derivative is (V(A + h A') - V(A - h A')) / 2h for any h, here |A| /
        |A'|.
        """
        known, (size, slope_size) = self.system.elimination, (_norms(matrix) for matrix in (self.sparse, slope.reads))
        step = np.where((size > 0) & (slope_size > 0), size, 1.0) / np.where(slope_size > 0, slope_size, 1.0)
        moved = sp.csr_array(sp.diags_array(step) @ slope.reads)
        border = torch.from_numpy(moved @ known.coupling.numpy())
        ends = [
            known.variances(sp.csr_array(self.sparse + sign * moved), self.reduced.detach() - sign * border).numpy()
            for sign in (1.0, -1.0)
        ]
        return np.asarray((ends[0] - ends[1]) / (2 * step) + slope.left)


@dataclass(frozen=True, eq=False)
class PointReader:
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

    def singly(self, inputs: Tensor) -> Reads:
        """Return the projections of n single points.

        Args:
            inputs: The inputs of the points, (n, d), or positions (n,).
        """
        dense = self._features(inputs)
        left = torch.zeros(len(inputs), dtype=torch.float64) + self._residual.residual_variance(inputs, dense)
        reads = self._read(inputs, dense, left, PrecisionBlock.marginal_reads)
        return replace(reads, inputs=inputs, slopes=list(self._slopes(inputs))) if self.moves_with(inputs) else reads

    def moves_with(self, inputs: Tensor) -> bool:
        """Return whether the projections of sparse blocks are differentiated in the inputs.

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
        if self.moves_with(inputs):
            raise NotDifferentiableError(
                "X must not require gradients for covariances and samples of sparse precisions, got X that does. Use "
                "predict(X.detach()), or Exact()."
            )

    def _slopes(self, inputs: Tensor) -> Iterator[Slope]:
        """Yield the derivatives of the projections of n points in columns of their inputs."""
        parts = [sp.csr_array((len(inputs), block.size)) for block in self.blocks]
        for number, predicted in enumerate(self._predicted):
            for slope in [] if predicted is None else predicted.marginal_slopes(inputs):
                slope_parts = [slope.reads if i == number else part for i, part in enumerate(parts)]
                yield slope._replace(reads=side_by_side(slope_parts, len(inputs)))

    def jointly(self, inputs: Tensor) -> tuple[Reads, Tensor]:
        """Return the projections of n points that may be neighbors of each other.

        Refined blocks must have the points among their values.

        Args:
            inputs: The inputs of the points, (n, d), or positions (n,).

        Returns:
            The projections with a joint covariance of errors, and the ratios (n,) of the standard deviations of single
            points to those in this joint distribution.
        """
        dense = self._features(inputs)
        left = torch.zeros(len(inputs), len(inputs), dtype=torch.float64)
        left = left + self._residual.residual_covariance(inputs, dense)
        reads = self._read(inputs, dense, left, PrecisionBlock.joint_reads)
        if not depend_on_each_other(self.blocks):
            return reads, dense.new_ones(len(inputs))
        single, variance = self.singly(inputs).variances, reads.variances
        return reads, (single / variance.clamp_min(torch.finfo(variance.dtype).tiny)).sqrt()

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

    def _read(
        self,
        inputs: Tensor,
        dense: Tensor,
        left: Tensor,
        read: Callable[[PrecisionBlock, Tensor], tuple[sp.csr_array, Tensor]],
    ) -> Reads:
        """Return the projection to points of the terms in the sum, with the residual variances."""
        parts = list[sp.csr_array]()
        for block, predicted in zip(self.blocks, self._predicted, strict=True):
            if predicted is not None:
                part, residual = read(predicted, inputs)
                left = left + residual
            else:
                part = sp.csr_array((len(inputs), block.size))
            parts.append(part)
        return Reads(self.system, side_by_side(parts, len(inputs)), dense, left)


def between(left: Reads, right: Reads) -> Tensor:
    """Return the covariance (a, b) of A u + Phi w between two sets of points.

    Args:
        left: The projections of a points.
        right: The projections of b points given the same rows.
    """
    known = left.system.elimination
    out = known.half_border(left.reduced) @ known.half_border(right.reduced).mT
    if known.is_sparse:
        out = out + torch.from_numpy(products(known.factor, left.sparse, right.sparse))
    return out


def read_singly(blocks: Sequence[PrecisionBlock]) -> bool:
    """Return whether single points have projections without becoming values of a refined field.

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


def _norms(reads: sp.csr_array) -> Array:
    """Return the norms (n,) of the rows of a matrix (n, N)."""
    norms: Array = np.sqrt(np.asarray(reads.multiply(reads).sum(axis=1)).reshape(-1))
    return norms


def check_jointly(blocks: Sequence[PrecisionBlock], num_points: int, num_rows: int) -> None:
    """Raise if a joint distribution has too many points.

    Args:
        blocks: The sparse blocks.
        num_points: The number of points.
        num_rows: The number of rows.

    Raises:
        InvalidArgumentError: If there are more than 2,000 points, or their projections do not fit in memory.
    """
    fitting = max(MIN_JOINT, MAX_NUMBERS // num_rows) if depend_on_each_other(blocks) else MAX_JOINT
    check_joint(num_points, "points", most=min(MAX_JOINT, fitting))
