"""The projection of sparse latent values and dense weights to rows."""

from collections.abc import Sequence

import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.blocks import PrecisionBlock, Prior, Weights
from rfgp.rows import Block
from rfgp.solvers.bordered.elimination import Elimination
from rfgp.solvers.bordered.latent import Latent, SparseLatents
from rfgp.solvers.bordered.latent_neighbors import latent_precision
from rfgp.solvers.bordered.system import BorderedSystem


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


def with_feature_residuals(
    weights: Weights, rows: Block, noise: Tensor, border: Tensor
) -> tuple[Block, Tensor, Tensor]:
    """Add residual variances of features, to the noise (FITC) or to the bound (VFE).

    Args:
        weights: The weights. The formulas are those of `rfgp.solvers.lowrank.solver`.
        rows: The data.
        noise: The variance of one observation, 0-d.
        border: Phi of the weights, and possibly of further ones, (n, F).

    Returns:
        The rows with residual noise, the term of VFE residuals in the log marginal likelihood, 0-d, and the residual
        variances (n,) that are not in the noise of row means.
    """
    if not weights.has_residual:
        return rows, torch.zeros_like(noise), torch.zeros_like(noise)
    of_weights, counts = border[:, : weights.num_features], rows.counts()
    by_kind = ([b.name for b in weights.blocks if b.residual and b.residual.is_noise == flag] for flag in (True, False))
    as_noise, bounding = (
        weights.with_residuals_of(names).residual_variance(rows.inputs, of_weights) for names in by_kind
    )
    if weights.adds_noise:
        rows = rows.with_more_noise(as_noise)
    bound = -0.5 * rows.output_weights.sum() * (counts * bounding / rows.observation_noise(noise)).sum()
    return rows, bound, (1 - 1 / counts) * as_noise + bounding


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
    latents = [Latent(block.field, as_array(block.values), float(block.variance.detach())) for block in blocks]
    prior = SparseLatents(latents, projector, combines_non_neighbors=combines_non_neighbors)
    return BorderedSystem(Elimination(prior, border.detach(), noise.detach()), residual.detach(), output_weights)
