"""Predicted costs of fits, in operations and bytes.

A predicted time may be off by a factor of two, because the number of evaluations varies. Candidates differ by factors
of ten to a thousand. The predicted memory is an upper bound (`tests/rfgp/selection/test_costs.py`).
"""

from dataclasses import dataclass

from rfgp.fitting.subsets import MAX_ROWS
from rfgp.regression.selection_report import FLOPS_PER_SECOND
from rfgp.selection.candidates import Candidate

EVALUATIONS, STEPS = 80.0, 110.0
"""The number of evaluations of a search, and the equivalent number for learning frequencies."""
SEARCHED, SUBSET, BATCH = 2**14, 8000, 6000
"""The rows of a search with neighbors if there are at least twice as many, of a search with fixed frequencies, and of a
step that learns frequencies."""
ON_LATTICE = {1: 200.0, 2: 1000.0, 3: 1500.0}
"""A typical number of features of a term on an equispaced Fourier grid, by the number of columns."""
_OVERHEAD, _FOUND, _TRANSFORM = 4e7, 1e4, 1e4
"""The operations of an evaluation apart from its matrices, of the neighbor search for each row, and of a non-uniform
Fourier transform for each row."""
_PAIRS, _COPIES, _ENTRIES, _LATENT = 18.0, (8.0, 16.0), 26.0, 450.0
"""The numbers held for each pair of rows of exact kernels; for each feature of a row, without and with neighbors or
inducing points; for each neighbor; and for each neighbor of a row that is conditioned on latent values."""


@dataclass(frozen=True)
class Cost:
    """The predicted cost of a fit.

    Attributes:
        seconds: The time on one core, in seconds.
        memory: The peak memory, in bytes.
    """

    seconds: float
    memory: float


def fit_cost(candidate: Candidate, rows: int, columns: int, outputs: int = 1, most_rows: int | None = None) -> Cost:
    """Return the predicted cost of a fit and of the posterior given all rows.

    Args:
        candidate: The candidate.
        rows: The number of rows.
        columns: The number of columns.
        outputs: The number of targets.
        most_rows: The largest number of rows of the search for hyperparameters. If None, all rows.
    """
    size, near = candidate.num_features, candidate.neighbors
    data, search_rows = 16.0 * rows * (columns + outputs), min(rows, most_rows or rows)
    if candidate.is_exact and not candidate.is_linear:
        return Cost(
            EVALUATIONS * _exact(candidate, search_rows, columns) / FLOPS_PER_SECOND,
            data + 8.0 * _PAIRS * float(search_rows) ** 2,
        )
    if candidate.is_equispaced_or_automatic:
        size = int(ON_LATTICE[min(columns, 3)]) * len(candidate.terms)
        return Cost((20.0 * size**3 + rows * _TRANSFORM) / FLOPS_PER_SECOND, data + 48.0 * size**2)
    if near is None:
        learned = STEPS * _linear(min(rows, BATCH), size) if candidate.learns_frequencies else 0.0
        searched = 0.0 if candidate.learns_frequencies else EVALUATIONS * _linear(min(search_rows, SUBSET), size)
        copies = _COPIES[candidate.features is None]
        held = 8.0 * (copies * min(rows, MAX_ROWS) * size + 4.0 * size**2)
        return Cost((searched + learned + 3.0 * rows * size**2) / FLOPS_PER_SECOND, data + held)
    k, search_rows = near.num_neighbors, search_rows if rows <= 2 * SEARCHED else min(search_rows, SEARCHED)
    per_row = 3.0 * k**3 + 5.0 * k**2 * columns + 6.0 * size * k + 5.0 * size**2 + _FOUND
    held = 8.0 * rows * (_COPIES[1] * size + (_LATENT if near.condition_on == "latent" else _ENTRIES) * k)
    return Cost(
        (EVALUATIONS * (search_rows * per_row + _OVERHEAD) + rows * (per_row + 2e6)) / FLOPS_PER_SECOND, data + held
    )


def _exact(candidate: Candidate, rows: int, columns: int) -> float:
    """Return the operations of one exact likelihood with its gradient."""
    kernels = len(candidate.terms)
    return 0.45 * float(rows) ** 3 + kernels * float(rows) ** 2 * (380.0 + 15.0 * columns) + _OVERHEAD


def _linear(rows: int, size: int) -> float:
    """Return the operations of one evaluation by the smaller Gram matrix."""
    smaller = min(rows, max(size, 1))
    return rows * size * (2.0 * smaller + 300.0) + _OVERHEAD
