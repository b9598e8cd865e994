"""The choice of a sparse factor for latent neighbors, by operations and memory."""

from contextlib import suppress

import numpy as np
from torch import Tensor

from graphs.cholesky import Analysis
from graphs.errors import MemoryBudgetError
from rfgp.blocks import Prior
from rfgp.limits import limits
from rfgp.rows import Block
from rfgp.solvers.bordered.latent_neighbors import latent_precision
from rfgp.solvers.bordered.solver import BorderedSolver
from rfgp.solvers.kriging import neighbors_of

MAX_BYTES = 2**30
"""The maximum memory of a factor of latent neighbors, in bytes."""
FLOPS_EXPONENT = 1.5
"""The exponent of the growth of operations in the number of rows, a lower bound for two columns or more."""
MAX_ROUNDING_ERROR = 1e-3
"""The maximum rounding error of a precision, in units of the precision of a row's noise. It bounds the relative errors
of variances."""


def bordered_latent(prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> BorderedSolver | None:
    """Return the solver of latent nearest neighbors by a sparse factor.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.

    Returns:
        The solver, or None if the factor is too large or its rounding errors are not small relative to the noise.
    """
    if prior.graph_features or _extrapolated_factor_exceeds(prior.detached(), rows.inputs):
        return None
    solver = BorderedSolver(prior, rows, mean, noise)
    with suppress(MemoryBudgetError):
        analysis = solver.system.elimination.prior.pattern.analyze()
        analysis.check_fits()
        if not _exceeds(analysis) and _is_accurate(solver):
            return solver
    return None


def _exceeds(analysis: Analysis, ratio: float = 1.0, exponent: float = 1.0) -> bool:
    """Return whether a factor is too large for `ratio` times as many rows as were analyzed."""
    flops, num_bytes = analysis.flops * ratio**exponent, analysis.num_bytes * ratio
    return bool(flops > limits().max_elimination_flops or num_bytes > MAX_BYTES)


def _extrapolated_factor_exceeds(prior: Prior, inputs: Tensor) -> bool:
    """Return whether the factor of rows (n, d) is too large, extrapolated from that of a sample."""
    block, count = neighbors_of(prior), limits().pattern_rows
    if len(inputs) <= count:
        return False
    sample = latent_precision(block, inputs[block.order(len(inputs))[:count]], explained=prior.explained)
    exponent = FLOPS_EXPONENT if inputs.shape[1] > 1 else 1.0
    return _exceeds(sample.field.analysis, len(inputs) / count, exponent)


def _is_accurate(solver: BorderedSolver) -> bool:
    """Return whether the rounding error of the precision of neighbors is small relative to the noise."""
    elimination = solver.system.elimination
    largest = float(np.abs(elimination.prior.entries[-1]).max())
    return bool(np.finfo(np.float64).eps * largest * float(elimination.noise.max()) <= MAX_ROUNDING_ERROR)
