"""The choice of a solver for a prior and a number of rows."""

from collections.abc import Callable, Mapping, Sized

from torch import Tensor

from rfgp.approximations.exact import MAX_FEATURES
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.limits import limits
from rfgp.rows import Block, Rows, gathered
from rfgp.solvers import chain, onepass, spectral, statespace
from rfgp.solvers.bordered import BorderedPosterior, BorderedSolver, bordered_latent
from rfgp.solvers.chain import ChainSolver
from rfgp.solvers.dense import DensePosterior, DenseSolver
from rfgp.solvers.iterative import IterativePosterior, IterativeSolver, LatentSolver, prefers_latent
from rfgp.solvers.kriging import neighbors_of
from rfgp.solvers.lowrank import FactorCovariance, LinearModel, LowRankPosterior, LowRankSolver, RowCovariance
from rfgp.solvers.onepass import OnePassSolver, SeriesPosterior
from rfgp.solvers.role import Inference, Posterior
from rfgp.solvers.statespace import StateSpacePosterior, StateSpaceSolver
from rfgp.solvers.whitened import WhitenedPosterior, is_large, whitened_inference


def uses_cg(prior: Prior, rows: Sized) -> bool:
    """Return whether the posterior is computed by conjugate gradients.

    With more than 4,000 rows, this holds for sparse features and for exact products on a grid. With any number of rows,
    it holds for sparse features together with sparse precisions or residuals.

    Args:
        prior: The prior.
        rows: The rows.

    Examples:
        >>> from rfgp.blocks import Prior, WeightBlock
        >>> uses_cg(Prior(weights=(WeightBlock(lambda x: x, num_features=1),)), range(1000))
        False
    """
    if len(rows) <= limits().max_dense:
        return bool(prior.graph_features) and needs_border(prior)
    return prior.has_grids or bool(prior.graph_features)


def is_low_rank(prior: Prior, rows: Sized) -> bool:
    """Return whether F x F algebra is used.

    Args:
        prior: The prior. All its blocks must be weights.
        rows: The rows, at least as many as weights unless a block has a residual.
    """
    return prior.has_weights_only and (prior.num_features <= len(rows) or prior.dense.has_residual)


def needs_border(prior: Prior) -> bool:
    """Return whether a prior has sparse precisions or residuals next to other blocks.

    Args:
        prior: The prior.
    """
    return bool(prior.precisions) or (prior.dense.has_residual and not prior.has_weights_only)


def solver_for(prior: Prior, rows: Rows, mean: Tensor, noise: Tensor) -> Inference:
    """Return the solver or the inference of rows under a Gaussian likelihood.

    Features on lattices are solved from statistics of one pass, or of two if rows have their own noise. Other weights
    alone are solved through F x F algebra, in passes over blocks of rows, unless there are more weights than rows.
    Nearest neighbors are whitened. Processes of one column are filtered, with a border of weights. Other sparse
    precisions have a sparse factor with such a border. Sparse features of many rows are solved by conjugate gradients.
    An exact kernel of a graph, most of whose nodes have a row, is solved through the other nodes. Everything else is
    dense.

    Args:
        prior: The prior, with gradients.
        rows: The data. All solvers but the first two need them in memory.
        mean: The prior mean, (k,).
        noise: The variance of one observation, 0-d.

    Raises:
        InvalidArgumentError: If no solver accepts all blocks.

    Examples:
        >>> import torch
        >>> from rfgp.blocks import Prior, WeightBlock
        >>> prior = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> rows = Block(torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double())
        >>> solver = solver_for(prior, rows, torch.zeros(1).double(), torch.tensor(1.0).double())
        >>> round(float(solver.log_marginal_likelihood()), 4)  # of N(0, x x^T + I)
        -3.1504
    """
    mean, noise = mean.double(), noise.double()
    if onepass.supports(prior, rows):
        return OnePassSolver(prior, rows, mean, noise)
    if is_low_rank(prior, rows):
        return LowRankSolver(LinearModel(prior.dense, rows, mean, noise))
    if prior.neighbors is not None:
        return _with_neighbors(prior, gathered(rows), mean, noise)
    block = gathered(rows)
    if spectral.num_unseen(prior, block) is not None:
        return spectral.SpectralSolver(prior, block, mean, noise)
    return solver_in_memory(prior, block, mean, noise)


def _with_neighbors(prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> Inference:
    """Return the inference of rows with nearest neighbors, conditioned on latent values or on responses.

    With "auto", rows are conditioned on latent values if the noise is large and a sparse factor, or a few iterations,
    solve them.
    """
    condition_on, large = neighbors_of(prior).condition_on, is_large(prior, len(rows))
    is_auto, has_parts = condition_on == "auto", not (prior.kernels or prior.adds_latent_points)
    if condition_on == "latent" or (is_auto and has_parts and not large and prefers_latent(prior, rows, noise)):
        bordered = bordered_latent(prior, rows, mean, noise)
        if bordered is not None:
            return bordered
        latent = LatentSolver(prior, rows, mean, noise)
        is_divided = len(neighbors_of(prior).names) > 1
        if not is_auto or (not is_divided and latent.converges_quickly()):
            return latent
    return whitened_inference(prior, rows, mean, noise)


def solver_in_memory(
    prior: Prior, rows: Rows, mean: Tensor, noise: Tensor
) -> BorderedSolver | ChainSolver | DenseSolver | IterativeSolver | LatentSolver | StateSpaceSolver:
    """Return a solver that caches the algebra of the inputs.

    Neighbors are conditioned on latent values.

    Args:
        prior: The prior, with gradients.
        rows: The data, which are read into memory.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.

    Raises:
        InvalidArgumentError: If no solver accepts all blocks.
    """
    block = gathered(rows)
    if prior.neighbors is not None:
        return bordered_latent(prior, block, mean, noise) or LatentSolver(prior, block, mean, noise)
    if chain.supports(prior):
        return ChainSolver(prior, block, mean, noise)
    if statespace.supports(prior):
        return StateSpaceSolver(prior, block, mean, noise)
    if prior.chains:
        raise InvalidArgumentError(
            f"The term {prior.chains[0].name!r} is filtered along its column, together with at most {MAX_FEATURES:,} "
            f"weights, got {prior.num_features:,} of them. Use Exact(), or fewer features of other terms."
        )
    if uses_cg(prior, block):
        return IterativeSolver(prior, block, mean, noise)
    if not (needs_border(prior) or is_low_rank(prior, block)):
        return DenseSolver(prior, block, mean, noise)
    return BorderedSolver(prior, block, mean, noise)


def restore(prior: Prior, tensors: Mapping[str, Tensor]) -> Posterior:
    """Return the posterior with saved tensors, whose names identify the solver.

    With nearest neighbors, posteriors of conjugate gradients have draws. Those of sparse factors have the noise of
    latent values, and others have a factor of weights.

    Args:
        prior: The prior of its rows.
        tensors: The tensors (...) of `Posterior.tensors`, by name.
    """
    if "gram" in tensors:
        return onepass.restored_series(prior, tensors)
    if "inputs" in tensors:
        return _stored_rows(prior, tensors)(prior, **tensors)
    weights, others = tensors["weights"], {name: t for name, t in tensors.items() if name != "weights"}
    if "rows" in others:
        return LowRankPosterior(prior, weights, RowCovariance(**others))
    kind = SeriesPosterior if onepass.has_lattices(prior) else LowRankPosterior
    return kind(prior, weights, FactorCovariance(**others))


def _stored_rows(prior: Prior, tensors: Mapping[str, Tensor]) -> Callable[..., Posterior]:
    """Return the class of a posterior that is stored as its rows."""
    if "draws" in tensors:
        return IterativePosterior
    if prior.neighbors is not None and "noise_diag" not in tensors:
        return WhitenedPosterior
    if chain.supports(prior):
        return chain.restored
    if statespace.supports(prior):
        return StateSpacePosterior
    return BorderedPosterior if prior.neighbors is not None or needs_border(prior) else DensePosterior
