"""Predicted costs of fits, in operations and bytes.

The constants are those of fits of ten tables of 189 to 41,000 rows and 4 to 120 columns on one core. A prediction may
be off by a factor of two, mostly because searches take more or fewer evaluations. Candidates differ by factors of ten
to a thousand.
"""

from dataclasses import dataclass

from rfgp.approximations import Vecchia
from rfgp.blocks.neighbors import SHARED
from rfgp.fitting.neighbors import MOST_ROWS as MOST_SEARCHED
from rfgp.fitting.neighbors import MOST_SHARED
from rfgp.fitting.subsets import MOST_ROWS
from rfgp.regression.selection_report import RATE
from rfgp.selection.candidates import POINTS as BY_POINTS
from rfgp.selection.candidates import Candidate
from rfgp.solvers.bordered.planning import MOST_BYTES
from rfgp.solvers.iterative.latent import MOST_ROWS as MOST_LATENT
from rfgp.solvers.iterative.operator import columns_at_once
from rfgp.solvers.iterative.solver import NUM_PATHS
from rfgp.solvers.whitened.blocked import MOST_FEATURES

EXACT, FIXED, NEAR, BOTH, POINTS, STEPS = 55.0, 80.0, 110.0, 180.0, 150.0, 300.0
"""The evaluations of a search with an exact kernel, fixed frequencies, neighbours, frequencies beside neighbours, and
inducing points with a residual; and the steps that learn frequencies beside neighbours."""
LEARNED = 180.0
"""The evaluations that take as long as the 300 steps that learn frequencies alone, whose products are large."""
TWICE, MOST_NEAR = 60.0, 180.0
"""The number of columns with which a search takes twice as many evaluations, and the most evaluations with neighbours.
(18, 60 and 120 columns: 91, 168 and 172 evaluations with neighbours.)"""
SCORING, ON_LATTICE = 20.0, {1: 200.0, 2: 1000.0, 3: 1500.0}
"""The evaluations of a fit on a lattice, and a typical number of features of a term by the number of columns."""
_TRANSFORM = 1e4
"""The operations of a non-uniform transform for each row."""
BATCH, SUBSET = 6000, 8000
"""The rows of a step that learns frequencies, and of a search with fixed frequencies."""
_TOGETHER = 0.4
"""The operations of neighbours that blocks of rows share, in those of neighbours of each row (loops over 4,000 rows:
5.6 and 14.7 microseconds a row)."""
_OVERHEAD, _FOUND, _FEATURE = 4e7, 1e4, 300.0
"""The operations of an evaluation apart from its matrices, for each row among which neighbours are found (once in 25
evaluations), and for each feature of a row that is a neighbour."""
_FACTORS = 3.0
"""The memory of latent neighbours with a gradient, in sizes of their factor, of at most all pairs of rows."""
_SOLVED = 2e6, 1.5e4
"""The operations that conjugate gradients with neighbours take for a row, and for each of its features."""
_PAIRS, _COPIES_ALONE, _COPIES, _ENTRIES, _SOLVING = 18, (8, 16), (7.5, 16), 12, 33
"""The numbers held for each pair of rows of exact kernels, for each feature of a row (of frequencies and of inducing
points, alone and with neighbours), for each neighbour, and for each right-hand side of conjugate gradients. They are
upper bounds from 1,000 to 120,000 rows (`tests/rfgp/selection/test_costs.py`)."""
_SCATTERED = 2**22
"""The numbers in features (32 MiB) up to which the allocator keeps as much again."""


@dataclass(frozen=True)
class Cost:
    """The predicted cost of a fit.

    Attributes:
        operations: The number of operations of products and factorisations.
        memory: The largest number of bytes at once.
    """

    operations: float
    memory: float

    @property
    def seconds(self) -> float:
        """The seconds on one core."""
        return self.operations / RATE


def fit_cost(candidate: Candidate, rows: int, columns: int, outputs: int = 1) -> Cost:
    """Return the predicted cost of a fit to a number of rows, with the posterior at its end."""
    searched = rows if candidate.is_exact else _searched(candidate, rows)
    operations = search_operations(candidate, searched, columns, rows) + posterior_operations(candidate, rows, columns)
    return Cost(operations, memory(candidate, rows, columns, outputs))


def search_operations(candidate: Candidate, rows: int, columns: int, among: int) -> float:
    """Return the operations of a search on some rows, whose neighbours are found among more of them."""
    if candidate.is_exact:
        return EXACT * (1.7 if candidate.is_sum else 1.0) * _exact(rows, columns, 2 if candidate.is_sum else 1)
    if candidate.is_lattice:
        size = _size_on_lattice(candidate, columns)
        return SCORING * 2.0 * size**3 + among * _TRANSFORM
    neighbors, near, more = candidate.neighbors, 0.0, 1 + columns / TWICE
    rows = min(rows, SUBSET) if neighbors is None else rows
    if neighbors is not None:
        near = rows * _neighbors(neighbors, columns) + among * _FOUND
    if candidate.kind == BY_POINTS:
        features = rows * 12.0 * candidate.num_points**2 + 20.0 * candidate.num_points**3
        return (POINTS if candidate.has_residual else FIXED) * more * (near + features + _OVERHEAD)
    if not candidate.num_frequencies:
        return min(NEAR * more, MOST_NEAR) * (near + _OVERHEAD)
    if neighbors is None:
        return _alone(candidate, rows, columns)
    size = candidate.num_features
    beside = rows * (5.0 * size**2 + 6.0 * size * _entries(neighbors))
    beside += min(among, rows * (neighbors.num_neighbors + 1)) * size * _FEATURE
    fixed = BOTH * (near + beside + _OVERHEAD)
    if not candidate.learns_frequencies:
        return fixed
    return fixed + _learning(rows, size) + STEPS * (1.5 * near + 2 * beside + _OVERHEAD)


def _size_on_lattice(candidate: Candidate, columns: int) -> float:
    """Return a typical number of features on the lattices of all terms."""
    return ON_LATTICE[min(columns, 3)] * len(candidate.terms)


def _alone(candidate: Candidate, rows: int, columns: int) -> float:
    """Return the operations of a search with frequencies alone. If they are learned it begins with fixed ones."""
    size = candidate.num_features
    fixed = (1 + columns / TWICE) * _fixed(rows, columns, size)
    return fixed + _learning(rows, size) if candidate.learns_frequencies else fixed


def _learning(rows: int, size: int) -> float:
    """Return the operations that learn frequencies alone."""
    return LEARNED * (_linear(min(rows, BATCH), size) + _OVERHEAD)


def posterior_operations(candidate: Candidate, rows: int, columns: int) -> float:
    """Return the operations of the posterior given rows, and of the density of each row given the others."""
    if candidate.is_exact:
        return _exact(rows, columns, 1)
    if candidate.is_lattice:
        return 2.0 * _size_on_lattice(candidate, columns) ** 3 + rows * _TRANSFORM
    size, near = candidate.num_features, 0.0
    if candidate.neighbors is not None:
        near = rows * (0.5 * _neighbors(candidate.neighbors, columns) + _SOLVED[0] + _SOLVED[1] * size)
    return near + 3.0 * rows * size**2 + float(size) ** 3


def memory(candidate: Candidate, rows: int, columns: int, outputs: int = 1) -> float:
    """Return the largest number of bytes at once, of matrices, neighbours and the rows."""
    own = 2 * 8.0 * rows * (columns + outputs)
    if candidate.is_exact:
        return own + 8.0 * _PAIRS * float(rows) ** 2
    if candidate.is_lattice:
        return own + 8.0 * 6 * _size_on_lattice(candidate, columns) ** 2
    size, neighbors, has_points = candidate.num_features, candidate.neighbors, candidate.kind == BY_POINTS
    if neighbors is None:
        return own + 8.0 * (_COPIES_ALONE[has_points] * min(rows, MOST_ROWS) * size + 4 * float(size) ** 2)
    held = min(rows, max(_searched(candidate, rows) * (neighbors.num_neighbors + 1), MOST_FEATURES // max(size, 1)))
    entries = held * size + min(held * size, _SCATTERED)
    near = _COPIES[has_points] * entries + _ENTRIES * rows * _entries(neighbors)
    may_solve = neighbors.condition_on == "auto" and rows <= MOST_LATENT and size * rows <= MOST_FEATURES
    is_latent = neighbors.condition_on == "latent"
    solving = _SOLVING * rows * min(NUM_PATHS, columns_at_once(rows)) if may_solve or is_latent else 0
    factor = _FACTORS * min(8.0 * float(rows) ** 2, MOST_BYTES) if is_latent else 0
    return own + 8.0 * (near + solving) + factor


def _searched(candidate: Candidate, rows: int) -> int:
    """Return the rows of a search with neighbours."""
    near = candidate.neighbors
    is_shared = near is not None and near.block_size > 1 and not candidate.num_features
    most = MOST_SHARED if is_shared else MOST_SEARCHED
    return rows if rows <= 2 * most else most


def _exact(rows: int, columns: int, kernels: int) -> float:
    """Return the operations of an evaluation of the exact likelihood with its gradient."""
    return 0.45 * float(rows) ** 3 + kernels * float(rows) ** 2 * (380.0 + 15.0 * columns) + _OVERHEAD


def _linear(rows: int, size: int) -> float:
    """Return the operations of an evaluation with features, by whichever side is smaller."""
    if size < rows:
        return rows * size * (2.0 * size + _FEATURE)
    return 0.5 * float(rows) ** 3 + rows * size * (2.0 * rows + _FEATURE)


def _fixed(rows: int, columns: int, size: int) -> float:
    """Return the operations of a search with fixed frequencies, which begins with the exact kernel if rows are few."""
    if rows < 2 * size:
        return EXACT * _exact(rows, columns, 1) + 15 * (_linear(rows, size) + _OVERHEAD)
    return FIXED * (_linear(rows, size) + _OVERHEAD)


def _neighbors(near: Vecchia, columns: int) -> float:
    """Return the operations that the neighbours of a row take in an evaluation."""
    singly = 7.5 * float(near.num_neighbors) ** 3 + 5.0 * float(near.num_neighbors) ** 2 * columns + 1e4
    return singly if near.block_size == 1 else _TOGETHER * singly


def _entries(near: Vecchia) -> float:
    """Return the entries of a row of the inverse factor."""
    shared = SHARED * near.num_neighbors + 0.5 * near.block_size
    return shared if near.block_size > 1 and near.condition_on != "latent" else near.num_neighbors
