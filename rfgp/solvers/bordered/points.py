"""How points read sparse latent values and dense weights given the rows, each by itself and jointly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock, Weights
from rfgp.blocks.precision import products
from rfgp.solvers.bordered.reads import side_by_side
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.terms import MOST_JOINT, check_joint

MOST_NUMBERS, LEAST_JOINT = 2**27, 256
"""The most entries of what points read of rows (a gigabyte) in a joint distribution, and the points that always may."""


@dataclass(frozen=True, eq=False)
class Reads:
    """How n points read the latent values u and the weights w given the rows: f = A u + Phi w + e.

    Attributes:
        system: u and w given the rows.
        sparse: A, (n, N).
        dense: Phi, (n, F).
        left: The variances (n,) of e, or its covariance (n, n).
    """

    system: BorderedSystem
    sparse: sp.csr_array
    dense: Tensor
    left: Tensor

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
        return (self.system.elimination.variances(self.sparse, self.reduced) + left).clamp_min(0)


@dataclass(frozen=True, eq=False)
class PointReader:
    """The sum of some terms given the rows, as points read it.

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
        """Return the reads of n inputs, (n,) or (n, d), whose errors are right for each point by itself."""
        dense = self._features(inputs)
        left = torch.zeros(len(inputs), dtype=torch.float64) + self._residual.residual_variance(inputs, dense)
        return self._read(inputs, dense, left, PrecisionBlock.marginal_reads)

    def jointly(self, inputs: Tensor) -> tuple[Reads, Tensor]:
        """Return the reads of n inputs, (n,) or (n, d), which are among the values of refined blocks.

        Points may be each other's neighbours.

        Returns:
            The reads, with a covariance of errors, and the ratios (n,) of the deviations of points each by itself and
            in this joint distribution.
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

    @cached_property
    def _residual(self) -> Weights:
        """The weights with the residuals that are in the sum."""
        return self.weights.with_residuals_of(self.terms)

    def _read(
        self,
        inputs: Tensor,
        dense: Tensor,
        left: Tensor,
        read: Callable[[PrecisionBlock, Tensor], tuple[sp.csr_array, Tensor]],
    ) -> Reads:
        """Return reads whose A is that of the terms in the sum, no entries for others, and add what each leaves."""
        parts = list[sp.csr_array]()
        for block in self.blocks:
            if self.terms is None or block.name in self.terms:
                part, own = read(block, inputs)
                left = left + own
            else:
                part = sp.csr_array((len(inputs), block.size))
            parts.append(part)
        return Reads(self.system, side_by_side(parts, len(inputs)), dense, left)


def between(left: Reads, right: Reads) -> Tensor:
    """Return the covariance (a, b) of A u + Phi w at some points and at others."""
    known = left.system.elimination
    out = known.half_border(left.reduced) @ known.half_border(right.reduced).mT
    if known.is_sparse:
        out = out + torch.from_numpy(products(known.factor, left.sparse, right.sparse))
    return out


def read_singly(blocks: Sequence[PrecisionBlock]) -> bool:
    """Return whether blocks can read points each by itself, without a refined field that has them among its values."""
    return all(block.refine is None or block.between is not None for block in blocks)


def depend_on_each_other(blocks: Sequence[PrecisionBlock]) -> bool:
    """Return whether points may be each other's neighbours."""
    return any(block.joint is not None for block in blocks)


def check_jointly(blocks: Sequence[PrecisionBlock], num_points: int, num_rows: int) -> None:
    """Raise unless so many points may be read jointly.

    Raises:
        InvalidArgumentError: there are more than 2,000, or more than fit if they read neighbours among the rows.
    """
    fitting = max(LEAST_JOINT, MOST_NUMBERS // num_rows) if depend_on_each_other(blocks) else MOST_JOINT
    check_joint(num_points, "points", most=min(MOST_JOINT, fitting))
