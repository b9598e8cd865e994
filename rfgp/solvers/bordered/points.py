"""What points read of sparse latent values and dense weights given the rows, each by itself and jointly."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock
from rfgp.blocks.precision import products
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.terms import check_joint

MOST_NUMBERS, LEAST_JOINT = 2**27, 256
"""The most entries of what points read of rows (a gigabyte) in a joint distribution, and the points that always may."""


class Reads(NamedTuple):
    """What n points read of the latent values and the weights given the rows."""

    system: BorderedSystem
    sparse: sp.csr_array  # A (n, N)
    dense: Tensor  # Phi (n, F)

    @property
    def reduced(self) -> Tensor:
        """Psi = Phi - A Y, (n, F)."""
        known = self.system.elimination
        if not known.is_sparse or not self.dense.shape[1]:
            return self.dense
        return self.dense - torch.from_numpy(self.sparse @ known.coupling.numpy())


def between(left: Reads, right: Reads) -> Tensor:
    """Return the covariance (a, b) of what some points read and others do."""
    check_joint(left.dense.shape[0], "points")
    known = left.system.elimination
    out = known.half_border(left.reduced) @ known.half_border(right.reduced).mT
    if known.is_sparse:
        out = out + torch.from_numpy(products(known.factor, left.sparse, right.sparse))
    return out


def left_alone(blocks: Sequence[PrecisionBlock], terms: Sequence[str] | None, inputs: Tensor) -> Tensor:
    """Return the variances (n,) that reads of sparse blocks leave, each point by itself.

    Args:
        blocks: The sparse blocks.
        terms: The names of those that are predicted. If None, all.
        inputs: The inputs of n points.
    """
    kept = (block for block in blocks if terms is None or block.name in terms)
    return sum((block.residual_variance(inputs) for block in kept), start=torch.zeros(len(inputs)).double())


def read_jointly(
    blocks: Sequence[PrecisionBlock], terms: Sequence[str] | None, inputs: Tensor, alone: Reads
) -> tuple[Reads, Tensor]:
    """Return what points read that may be each other's neighbours, and the covariance (n, n) that this leaves.

    Args:
        blocks: The sparse blocks.
        terms: The names of those that are predicted. If None, all.
        inputs: The inputs of n points.
        alone: What each reads by itself, zeros of blocks that are not predicted.
    """
    ends = np.cumsum([0, *(latent.size for latent in alone.system.elimination.prior.latents)])
    parts, left = list[sp.csr_array](), torch.zeros(len(inputs), len(inputs), dtype=torch.float64)
    for block, first, last in zip(blocks, ends[:-1], ends[1:], strict=True):
        part = alone.sparse[:, first:last]
        if terms is None or block.name in terms:
            part, own = (part, block.residual_variance(inputs).diag()) if block.joint is None else block.joint(inputs)
            left = left + own
        parts.append(part)
    return alone._replace(sparse=sp.csr_array(sp.hstack(parts, format="csr"))), left
