"""What rows and points read of sparse latent values and dense weights."""

from collections.abc import Sequence

import scipy.sparse as sp
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.blocks import PrecisionBlock, Prior, Weights
from rfgp.solvers.bordered.system import Latent


def all_weights(prior: Prior, rows: Tensor) -> Weights:
    """Return the dense weights of a prior, and those that its kernels have at the inputs of rows, (n, d) or (n,)."""
    return Weights((*prior.weights, *(block.as_weights(rows) for block in prior.kernels)))


def joined_reads(blocks: Sequence[PrecisionBlock], inputs: Tensor) -> sp.csr_array:
    """Return A = [A_1, A_2, ...] (n, N) of inputs of n points; no columns without blocks."""
    parts = [block.projector(inputs) for block in blocks]
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.hstack(parts, format="csr")) if parts else sp.csr_array((len(inputs), 0))


def latents_of(blocks: Sequence[PrecisionBlock]) -> list[Latent]:
    """Return the numbers of some blocks at their hyperparameters."""
    return [Latent(block.field, as_array(block.values), float(block.variance.detach())) for block in blocks]
