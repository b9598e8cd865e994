"""Predicted costs of fits, in operations and bytes.

A predicted time may be off by a factor of two, because the number of evaluations varies. Candidates differ by factors
of ten to a thousand. The predicted memory is meant as an upper bound.
"""

from dataclasses import dataclass

from rfgp.fitting.subsets import MAX_ROWS
from rfgp.models.report import FLOPS_PER_SECOND
from rfgp.selection.candidates import Candidate

EVALUATIONS = 80.0
"""The number of evaluations of a search for hyperparameters."""
LEARNING_EVALUATIONS = 110.0
"""The number of evaluations that cost as much as learning frequencies."""
NEIGHBOR_SEARCH_ROWS = 2**14
"""The maximum number of rows of a search with neighbors, if there are more than twice as many."""
FEATURE_SEARCH_ROWS = 8000
"""The maximum number of rows of a search with fixed frequencies."""
BATCH_ROWS = 6000
"""The maximum number of rows of a step that learns frequencies."""
GRID_FEATURES = {1: 200.0, 2: 1000.0, 3: 1500.0}
"""A typical number of features of a term on an equispaced Fourier grid, by the number of columns."""
_OVERHEAD_FLOPS = 4e7
"""The operations of an evaluation apart from its matrices."""
_NEIGHBOR_SEARCH_FLOPS = 1e4
"""The operations of the neighbor search for each row."""
_TRANSFORM_FLOPS = 1e4
"""The operations of a non-uniform Fourier transform for each row."""
_NUMBERS_PER_PAIR = 18.0
"""The numbers in memory for each pair of rows of exact kernels."""
_NUMBERS_PER_RANDOM_FEATURE = 8.0
"""The numbers in memory for each feature of a row, with random features alone."""
_NUMBERS_PER_FEATURE = 16.0
"""The numbers in memory for each feature of a row, with neighbors or inducing points."""
_NUMBERS_PER_NEIGHBOR = 26.0
"""The numbers in memory for each neighbor of a row that is conditioned on responses."""
_NUMBERS_PER_LATENT_NEIGHBOR = 450.0
"""The numbers in memory for each neighbor of a row that is conditioned on latent values."""


@dataclass(frozen=True)
class Cost:
    """The predicted cost of a fit.

    Attributes:
        seconds: The time on one core, in seconds.
        memory: The peak memory, in bytes.
    """

    seconds: float
    memory: float


def fit_cost(candidate: Candidate, rows: int, columns: int, outputs: int = 1, max_rows: int | None = None) -> Cost:
    """Return the predicted cost of a fit and of the posterior given all rows.

    Args:
        candidate: The candidate.
        rows: The number of rows.
        columns: The number of columns.
        outputs: The number of targets.
        max_rows: The maximum number of rows of the search for hyperparameters. If None, all rows.
    """
    size, neighbors = candidate.num_features, candidate.neighbors
    data_bytes, search_rows = 16.0 * rows * (columns + outputs), min(rows, max_rows or rows)
    if candidate.is_exact and not candidate.is_linear:
        return Cost(
            EVALUATIONS * _dense_flops(candidate, search_rows, columns) / FLOPS_PER_SECOND,
            data_bytes + 8.0 * _NUMBERS_PER_PAIR * float(search_rows) ** 2,
        )
    if candidate.is_equispaced_or_automatic:
        size = int(GRID_FEATURES[min(columns, 3)]) * len(candidate.terms)
        return Cost((20.0 * size**3 + rows * _TRANSFORM_FLOPS) / FLOPS_PER_SECOND, data_bytes + 48.0 * size**2)
    if neighbors is None:
        if candidate.learns_frequencies:
            search_flops = LEARNING_EVALUATIONS * _feature_flops(min(rows, BATCH_ROWS), size)
        else:
            search_flops = EVALUATIONS * _feature_flops(min(search_rows, FEATURE_SEARCH_ROWS), size)
        per_feature = _NUMBERS_PER_FEATURE if candidate.features is None else _NUMBERS_PER_RANDOM_FEATURE
        fit_bytes = 8.0 * (per_feature * min(rows, MAX_ROWS) * size + 4.0 * size**2)
        return Cost((search_flops + 3.0 * rows * size**2) / FLOPS_PER_SECOND, data_bytes + fit_bytes)
    if rows > 2 * NEIGHBOR_SEARCH_ROWS:
        search_rows = min(search_rows, NEIGHBOR_SEARCH_ROWS)
    k, is_latent = neighbors.num_neighbors, neighbors.condition_on == "latent"
    per_row = 3.0 * k**3 + 5.0 * k**2 * columns + 6.0 * size * k + 5.0 * size**2 + _NEIGHBOR_SEARCH_FLOPS
    per_neighbor = _NUMBERS_PER_LATENT_NEIGHBOR if is_latent else _NUMBERS_PER_NEIGHBOR
    fit_bytes = 8.0 * rows * (_NUMBERS_PER_FEATURE * size + per_neighbor * k)
    flops = EVALUATIONS * (search_rows * per_row + _OVERHEAD_FLOPS) + rows * (per_row + 2e6)
    return Cost(flops / FLOPS_PER_SECOND, data_bytes + fit_bytes)


def _dense_flops(candidate: Candidate, rows: int, columns: int) -> float:
    """Return the operations of one likelihood with its gradient, by a dense matrix of the rows."""
    kernels = len(candidate.terms)
    return 0.45 * float(rows) ** 3 + kernels * float(rows) ** 2 * (380.0 + 15.0 * columns) + _OVERHEAD_FLOPS


def _feature_flops(rows: int, size: int) -> float:
    """Return the operations of one evaluation by the smaller Gram matrix."""
    smaller = min(rows, max(size, 1))
    return rows * size * (2.0 * smaller + 300.0) + _OVERHEAD_FLOPS
