"""Predicted costs of fits, in operations and bytes.

A predicted time may be off by a factor of two, because the number of evaluations varies. Candidates differ by factors
of ten to a thousand. The predicted memory is meant as an upper bound.
"""

from dataclasses import dataclass

from rfgp.fitting.frequencies import BATCH_ROWS
from rfgp.fitting.subsets import MAX_ROWS
from rfgp.limits import limits
from rfgp.models.report import FLOPS_PER_SECOND
from rfgp.selection.candidates import Candidate

EVALUATIONS = 100.0
"""The number of evaluations of a search for hyperparameters, or of steps that learn frequencies."""
GRID_FEATURES = {1: 200.0, 2: 1000.0, 3: 1500.0}
"""A typical number of features of a term on an equispaced Fourier grid, by the number of columns."""
EVALUATION_FLOPS = 4e7
"""The operations of an evaluation apart from its matrices."""
_ENTRY_FLOPS = 350.0
"""The operations of an entry of a covariance or feature matrix with its gradient, apart from products."""
_ROW_FLOPS = 1e4
"""The operations of a neighbor search or a non-uniform Fourier transform for each row."""
_NUMBERS = 18.0
"""The numbers in memory for each pair of rows of exact kernels, and each feature of a row beside neighbors."""
_NUMBERS_PER_FEATURE = 8.0
"""The numbers in memory for each feature of a row, with random features alone."""
_NUMBERS_PER_NEIGHBOR = {"responses": 26.0, "latent": 450.0}
"""The numbers in memory for each neighbor of a row, by the values that rows are conditioned on."""


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
    size, neighbors, searched, last = candidate.num_features, candidate.neighbors, min(rows, max_rows or rows), 0.0
    if candidate.is_exact and not candidate.is_linear:
        entries = len(candidate.terms) * (_ENTRY_FLOPS + 15 * columns)
        evaluation, numbers = 0.45 * searched**3 + entries * searched**2, _NUMBERS * searched**2
    elif candidate.is_equispaced_or_automatic:
        size = int(GRID_FEATURES[min(columns, 3)]) * len(candidate.terms)
        evaluation, last, numbers = 0.2 * size**3, rows * _ROW_FLOPS, 6 * size**2
    elif neighbors is None:
        searched = min(rows if candidate.learns_frequencies else searched, BATCH_ROWS)
        evaluation = searched * size * (2 * min(searched, max(size, 1)) + _ENTRY_FLOPS)
        per_feature = _NUMBERS if candidate.features is None else _NUMBERS_PER_FEATURE
        last, numbers = 3 * rows * size**2, per_feature * min(rows, MAX_ROWS) * size + 4 * size**2
    else:
        most, k = limits().neighbor_rows, neighbors.num_neighbors
        searched = min(searched, most) if rows > 2 * most else searched
        a_row = 3 * k**3 + 5 * k**2 * columns + 6 * size * k + 5 * size**2 + _ROW_FLOPS
        per_neighbor = _NUMBERS_PER_NEIGHBOR["latent" if neighbors.condition_on == "latent" else "responses"]
        evaluation, last, numbers = searched * a_row, rows * (a_row + 2e6), rows * (_NUMBERS * size + per_neighbor * k)
    flops = EVALUATIONS * (evaluation + EVALUATION_FLOPS) + last
    return Cost(flops / FLOPS_PER_SECOND, 8.0 * numbers + 16.0 * rows * (columns + outputs))
