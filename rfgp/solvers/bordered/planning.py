"""The choice of a sparse factor for latent neighbors, by operations and memory."""

from contextlib import suppress

import numpy as np
from torch import Tensor

from graphs.cholesky import Analysis
from graphs.errors import MemoryBudgetError
from rfgp.blocks import Prior
from rfgp.rows import Block
from rfgp.solvers.bordered.latent_neighbors import latent_precision
from rfgp.solvers.bordered.solver import BorderedSolver
from rfgp.solvers.nearby import neighbors_of

MAX_FLOPS, MAX_BYTES = 4e10, 2**30
"""The most operations and the most memory of a factor of latent neighbors.

Near that limit, for 40,000 rows in 2 columns with 30 neighbors, a value with its gradient took 16 s and a posterior
8 s. Conjugate gradients took 8 s and 22 s. In 8 columns a factor of 4,000 rows took 5 times as long as conjugate
gradients, whose value had a standard error of 0.8 (`benchmarks/races/latent_neighbors.py`)."""
SOME, GROWTH = 2000, 1.5
"""The number of rows in a first test of the size of the factor, and the smallest power with which operations grow.

The power holds for two columns or more."""
MIN_DIGITS = 1e-3
"""The largest rounding error of a precision, in units of the precision of a row's noise. It bounds the relative errors
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
    if prior.graph_features or _surely_exceeds(prior.detached(), rows.inputs):
        return None
    solver = BorderedSolver(prior, rows, mean, noise)
    with suppress(MemoryBudgetError):
        analysis = solver.system.elimination.prior.pattern.analyze()
        analysis.check_fits()
        if not _exceeds(analysis) and _has_digits(solver):
            return solver
    return None


def _exceeds(analysis: Analysis, times: float = 1.0, power: float = 1.0) -> bool:
    """Return whether a factor is too large, if it is `times` times larger than the analyzed one."""
    return bool(analysis.flops * times**power > MAX_FLOPS or analysis.num_bytes * times > MAX_BYTES)


def _surely_exceeds(prior: Prior, inputs: Tensor) -> bool:
    """Return whether the factor of some of very many rows (n, d) proves that one of all is too large."""
    if len(inputs) <= SOME:
        return False
    block = neighbors_of(prior)
    some = latent_precision(block, inputs[block.order(len(inputs))[:SOME]], explained=prior.explained)
    return _exceeds(some.field.analysis, len(inputs) / SOME, GROWTH if inputs.shape[1] > 1 else 1.0)


def _has_digits(solver: BorderedSolver) -> bool:
    """Return whether the precision of neighbors, which is large for close rows, is exact relative to the noise."""
    known = solver.system.elimination
    largest = float(np.abs(known.prior.entries[-1]).max())
    return bool(np.finfo(np.float64).eps * largest * float(known.noise.max()) <= MIN_DIGITS)
