"""Which solver serves a prior and so many rows."""

from collections.abc import Mapping, Sized
from contextlib import suppress

import numpy as np
from torch import Tensor

from graphs.cholesky import Analysis
from graphs.errors import MemoryBudgetError
from rfgp.blocks import Prior, VecchiaBlock
from rfgp.rows import Block, Rows, gathered
from rfgp.solvers.bordered import BorderedPosterior, BorderedSolver
from rfgp.solvers.bordered.latent_neighbors import latent_precision
from rfgp.solvers.dense import DensePosterior, DenseSolver
from rfgp.solvers.iterative import IterativePosterior, IterativeSolver, LatentSolver, prefers_latent
from rfgp.solvers.lowrank import FactorCovariance, LinearModel, LowRankPosterior, LowRankSolver, RowCovariance
from rfgp.solvers.nearby import neighbors_of
from rfgp.solvers.role import Inference, Posterior
from rfgp.solvers.whitened import WhitenedPosterior, is_large, whitened

MOST_DENSE = 4000
"""The most rows whose covariance is factorised if features are sparse."""


MOST_FLOPS, MOST_BYTES = 4e10, 2**30
"""The most operations and the most memory of a factor by which neighbours that are latent are solved.

Near that limit, for 40,000 rows in 2 columns with 30 neighbours, a value with its gradient took 16 s and a posterior
8 s, by conjugate gradients 8 s and 22 s. In 8 columns a factor of 4,000 rows took 5 times as long as conjugate
gradients, whose value had a standard error of 0.8 (`benchmarks/races/latent_neighbors.py`)."""
SOME, GROWTH = 2000, 1.5
"""The number of rows whose factor says first that one of all is too large, and the least power of the rows with which
operations grow in two columns or more."""
LEAST_DIGITS = 1e-3
"""The largest rounding error of a precision, in precisions of a row's noise, at which its factor is used. It bounds the
relative errors of variances."""


def uses_cg(prior: Prior, rows: Sized) -> bool:
    """Return whether the posterior given so many rows is computed by conjugate gradients.

    That is so for sparse features of many rows, or together with sparse precisions or residuals.
    """
    return bool(prior.walks) and (len(rows) > MOST_DENSE or needs_border(prior))


def is_low_rank(prior: Prior, rows: Sized) -> bool:
    """Return whether F x F algebra serves: all blocks are weights, and no more than rows, or they have a residual."""
    return prior.has_weights_only and (prior.num_features <= len(rows) or prior.dense.has_residual)


def needs_border(prior: Prior) -> bool:
    """Return whether a prior has sparse precisions, or residuals of weights and other blocks."""
    return bool(prior.precisions) or (prior.dense.has_residual and not prior.has_weights_only)


def solver_for(prior: Prior, rows: Rows, mean: Tensor, noise: Tensor) -> Inference:
    """Return what is known of rows under a Gaussian likelihood.

    Weights alone are solved through F x F algebra, in passes over blocks of rows, unless there are more than rows.
    Neighbours are whitened. Sparse precisions have a sparse factor, with a dense border of weights. Sparse features of
    many rows are solved by conjugate gradients. Everything else is dense.

    Args:
        prior: The prior, with gradients.
        rows: The data. All solvers but the first need them in memory.
        mean: (k,).
        noise: The variance of one observation, 0-d.

    Raises:
        InvalidArgumentError: no solver has all these blocks.
    """
    mean, noise = mean.double(), noise.double()
    if is_low_rank(prior, rows):
        return LowRankSolver(LinearModel(prior.dense, rows, mean, noise))
    if prior.neighbors is not None:
        return _with_neighbors(prior, gathered(rows), mean, noise)
    return solver_in_memory(prior, rows, mean, noise)


def _with_neighbors(prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> Inference:
    """Return what is known of rows under nearest neighbours, conditioned on latent values or on responses.

    If neither is asked for, rows are conditioned on latent values if the noise is large and a factor, or few
    iterations, solve them.
    """
    condition_on, large = neighbors_of(prior).condition_on, is_large(prior, len(rows))
    is_auto, has_parts = condition_on == "auto", not (prior.kernels or prior.moves)
    if condition_on == "latent" or (is_auto and has_parts and not large and prefers_latent(prior, rows, noise)):
        bordered = bordered_latent(prior, rows, mean, noise)
        if bordered is not None:
            return bordered
        latent = LatentSolver(prior, rows, mean, noise)
        if not is_auto or latent.is_solved():
            return latent
    return whitened(prior, rows, mean, noise)


def bordered_latent(prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> BorderedSolver | None:
    """Return the solver of nearest neighbours that are latent by a sparse factor. None if the factor is too large.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: (k,), float64.
        noise: The variance of one observation, 0-d, float64.
    """
    block = neighbors_of(prior)
    if prior.walks or block.is_residual or _surely_exceeds(block, rows.inputs):
        return None
    solver = BorderedSolver(prior, rows, mean, noise)
    with suppress(MemoryBudgetError):
        analysis = solver.system.elimination.prior.pattern.analyse()
        analysis.check_fits()
        if not _exceeds(analysis) and _has_digits(solver):
            return solver
    return None


def _exceeds(analysis: Analysis, times: float = 1.0, power: float = 1.0) -> bool:
    """Return whether a factor is too large that is so many times larger than one that was analysed."""
    return bool(analysis.flops * times**power > MOST_FLOPS or analysis.num_bytes * times > MOST_BYTES)


def _surely_exceeds(block: VecchiaBlock, inputs: Tensor) -> bool:
    """Return whether the factor of some of very many rows (n, d) says that one of all is too large."""
    if len(inputs) <= SOME:
        return False
    some = latent_precision(block.detached(), inputs[block.order(len(inputs))[:SOME]])
    return _exceeds(some.field.analysis, len(inputs) / SOME, GROWTH if inputs.shape[1] > 1 else 1.0)


def _has_digits(solver: BorderedSolver) -> bool:
    """Return whether the precision of neighbours, which is large if some rows are close, is exact beside the noise."""
    known = solver.system.elimination
    largest = float(np.abs(known.prior.entries[-1]).max())
    return bool(np.finfo(np.float64).eps * largest * float(known.noise.max()) <= LEAST_DIGITS)


def solver_in_memory(
    prior: Prior, rows: Rows, mean: Tensor, noise: Tensor
) -> BorderedSolver | DenseSolver | IterativeSolver | LatentSolver:
    """Return a solver that keeps what depends on the inputs, for searches that change targets and noise.

    Neighbours are latent.

    Args:
        prior: The prior, with gradients.
        rows: The data, which are read into memory.
        mean: (k,), float64.
        noise: The variance of one observation, 0-d, float64.

    Raises:
        InvalidArgumentError: no solver has all these blocks.
    """
    block = gathered(rows)
    if prior.neighbors is not None:
        return bordered_latent(prior, block, mean, noise) or LatentSolver(prior, block, mean, noise)
    if uses_cg(prior, block):
        return IterativeSolver(prior, block, mean, noise)
    if not (needs_border(prior) or is_low_rank(prior, block)):
        return DenseSolver(prior, block, mean, noise)
    return BorderedSolver(prior, block, mean, noise)


def restore(prior: Prior, tensors: Mapping[str, Tensor]) -> Posterior:
    """Return the posterior that has these tensors (...), whose names say which solver they are of.

    Neighbours have draws if they were solved by conjugate gradients, the noise of latent values if by a sparse factor,
    and else a factor of weights.

    Args:
        prior: The prior of its rows.
        tensors: Those of `Posterior.tensors`, by name.
    """
    if "draws" in tensors:
        rows = tensors["inputs"], tensors["noise_diag"]
        return IterativePosterior(prior, *rows, tensors["coefficients"], tensors["draws"])
    if prior.neighbors is not None and "noise_diag" not in tensors:
        responses = tensors["inputs"], tensors["targets"], tensors["noise"]
        return WhitenedPosterior(prior, *responses, tensors["weights"], tensors["factor"])
    if prior.neighbors is not None or needs_border(prior):
        return BorderedPosterior(prior, tensors["inputs"], tensors["noise_diag"], tensors["targets"])
    if not prior.has_weights_only:
        return DensePosterior(prior, tensors["inputs"], tensors["coefficients"], tensors["factor"])
    weights, others = tensors["weights"], {name: t for name, t in tensors.items() if name != "weights"}
    return LowRankPosterior(prior, weights, (RowCovariance if "rows" in others else FactorCovariance)(**others))
