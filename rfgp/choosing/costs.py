"""What a fit is predicted to cost, in operations and bytes.

The constants are those of fits of ten tables of 189 to 41,000 rows and 4 to 120 columns, one core: how often a search
evaluates its likelihood, and what an evaluation with its gradient takes. A prediction is off by a factor of two now and
then, mostly because searches end sooner or later; candidates differ by factors of ten to a thousand.
"""

from dataclasses import dataclass

from rfgp.fitting.subsets import MOST_ROWS
from rfgp.regression import FeatureOptions, InducingOptions, KernelOptions
from rfgp.regression.record import RATE
from rfgp.solvers.bordered.planning import MOST_BYTES
from rfgp.solvers.iterative.latent import MOST_ROWS as MOST_LATENT
from rfgp.solvers.iterative.operator import columns_at_once
from rfgp.solvers.iterative.solver import NUM_PATHS
from rfgp.solvers.whitened.blocked import MOST_FEATURES

EXACT, FIXED, NEAR, BOTH, POINTS, STEPS = 55.0, 80.0, 110.0, 180.0, 150.0, 300.0
"""Evaluations of a search: of an exact kernel, fixed frequencies, neighbours, frequencies beside these, inducing points
with the residual; and steps of learning frequencies beside them."""
LEARNED = 180.0
"""As many evaluations take as long as the 300 steps of learning frequencies alone, whose products are large."""
TWICE, MOST_NEAR = 60.0, 180.0
"""Columns with which searches evaluate twice as often; and evaluations with neighbours at most, which are found six
times (elevators' 18 columns, and made tables of 60 and 120: 91, 168 and 172 evaluations with neighbours; the first two,
190 and 388 with points and the residual; 1,850 rows of 128 columns: 560 with fixed frequencies)."""
BATCH, SEARCHED, SUBSET = 6000, 2**14, 8000
"""Rows of a step of learning; of a search with neighbours where there are twice as many; of one with fixed frequencies,
which stops growing where its optimum does."""
_OVERHEAD, _FOUND, _FEATURE = 4e7, 1e4, 300.0
"""Operations that an evaluation takes beside its matrices, for each row among which neighbours are found (once in 25
evaluations), and for each feature of a row that is a neighbour."""
_FACTORS = 3.0
"""The sizes of a factor of latent neighbours, of all pairs of rows at most, that it takes with its gradient."""
_SOLVED = 2e6, 1.5e4
"""Operations that conjugate gradients of a local process take for a row, and for each of its features."""
_PAIRS, _COPIES_ALONE, _COPIES, _ENTRIES, _SOLVING = 18, (8, 16), (7.5, 16), 12, 33
"""Numbers held for each pair of rows of exact kernels; for each feature of a row, of frequencies and of inducing
points, alone and with neighbours; for each neighbour; and for each of the right-hand sides that conjugate gradients
solve together, with what the allocator cannot give back. (Measured as in `tests/rfgp/choosing/test_costs.py`, 1,000 to
120,000 rows; at most, for searches on fewer rows or rows that speak for themselves hold less.)"""
_SCATTERED = 2**22
"""Numbers in features (32 MiB) up to which glibc keeps as much again as it cannot give back."""


@dataclass(frozen=True)
class Cost:
    """What a fit takes.

    Attributes:
        operations: Of products and factorisations.
        memory: Bytes, at most at once.
    """

    operations: float
    memory: float

    @property
    def seconds(self) -> float:
        """On one core."""
        return self.operations / RATE


def fit_cost(options: KernelOptions, rows: int, columns: int, outputs: int = 1) -> Cost:
    """Return what a fit of a candidate to so many rows is predicted to take, the posterior at its end included."""
    searched = rows if options.features == "exact" else _searched(rows)
    search = search_operations(options, searched, columns, rows)
    return Cost(search + posterior_operations(options, rows, columns), memory(options, rows, columns, outputs))


def search_operations(options: KernelOptions, rows: int, columns: int, among: int) -> float:
    """Return what a search on so many rows takes, with neighbours among more of them."""
    if options.features == "exact":
        return EXACT * (1.7 if options.has_both else 1.0) * _exact(rows, columns, 2 if options.has_both else 1)
    rows = rows if options.local is not None else min(rows, SUBSET)
    near = 0.0 if options.local is None else rows * _neighbors(options.num_neighbors, columns) + among * _FOUND
    more = 1 + columns / TWICE
    if isinstance(options, InducingOptions):
        features = rows * 12.0 * options.num_inducing**2 + 20.0 * options.num_inducing**3
        return (POINTS if options.has_residual else FIXED) * more * (near + features + _OVERHEAD)
    if not isinstance(options, FeatureOptions):
        return min(NEAR * more, MOST_NEAR) * (near + _OVERHEAD)
    size = 2 * options.num_frequencies
    if options.local is None:
        return _alone(options, rows, columns)
    beside = rows * (5.0 * size**2 + 6.0 * size * options.num_neighbors)
    beside += min(among, rows * (options.num_neighbors + 1)) * size * _FEATURE
    fixed = BOTH * (near + beside + _OVERHEAD)
    if options.frequencies != "learned":
        return fixed
    return fixed + _learning(rows, size) + STEPS * (1.5 * near + 2 * beside + _OVERHEAD)


def _alone(options: FeatureOptions, rows: int, columns: int) -> float:
    """Return what a search takes through frequencies alone; one for learned ones begins with the fixed."""
    size = 2 * options.num_frequencies
    fixed = (1 + columns / TWICE) * _fixed(rows, columns, size)
    return fixed + _learning(rows, size) if options.frequencies == "learned" else fixed


def _learning(rows: int, size: int) -> float:
    """Return what learning frequencies alone takes."""
    return LEARNED * (_linear(min(rows, BATCH), size) + _OVERHEAD)


def posterior_operations(options: KernelOptions, rows: int, columns: int) -> float:
    """Return what the posterior of so many rows takes, and the density of each given the others."""
    if options.features == "exact":
        return _exact(rows, columns, 1)
    size = _features(options)
    near = 0.0
    if options.local is not None:
        near = rows * (0.5 * _neighbors(options.num_neighbors, columns) + _SOLVED[0] + _SOLVED[1] * size)
    return near + 3.0 * rows * size**2 + float(size) ** 3


def memory(options: KernelOptions, rows: int, columns: int, outputs: int = 1) -> float:
    """Return the bytes at most at once: of matrices, of neighbours, and of the rows."""
    own = 2 * 8.0 * rows * (columns + outputs)
    if options.features == "exact":
        return own + 8.0 * _PAIRS * float(rows) ** 2
    size = _features(options)
    if options.local is None:
        copies = _COPIES_ALONE[isinstance(options, InducingOptions)]
        return own + 8.0 * (copies * min(rows, MOST_ROWS) * size + 4 * float(size) ** 2)
    held = min(rows, max(_searched(rows) * (options.num_neighbors + 1), MOST_FEATURES // max(size, 1)))
    entries = held * size + min(held * size, _SCATTERED)
    near = _COPIES[isinstance(options, InducingOptions)] * entries + _ENTRIES * rows * options.num_neighbors
    may_solve = options.condition_on == "auto" and rows <= MOST_LATENT and size * rows <= MOST_FEATURES
    is_latent = options.condition_on == "latent"
    solving = _SOLVING * rows * min(NUM_PATHS, columns_at_once(rows)) if may_solve or is_latent else 0
    factor = _FACTORS * min(8.0 * float(rows) ** 2, MOST_BYTES) if is_latent else 0
    return own + 8.0 * (near + solving) + factor


def _searched(rows: int) -> int:
    """Return the rows of a search with neighbours."""
    return rows if rows <= 2 * SEARCHED else SEARCHED


def _features(options: KernelOptions) -> int:
    if isinstance(options, FeatureOptions):
        return 2 * options.num_frequencies
    return options.num_inducing if isinstance(options, InducingOptions) else 0


def _exact(rows: int, columns: int, kernels: int) -> float:
    """Return what an evaluation of the exact likelihood with its gradient takes."""
    return 0.45 * float(rows) ** 3 + kernels * float(rows) ** 2 * (380.0 + 15.0 * columns) + _OVERHEAD


def _linear(rows: int, size: int) -> float:
    """Return what an evaluation through features takes, by whichever side is smaller."""
    if size < rows:
        return rows * size * (2.0 * size + _FEATURE)
    return 0.5 * float(rows) ** 3 + rows * size * (2.0 * rows + _FEATURE)


def _fixed(rows: int, columns: int, size: int) -> float:
    """Return what a search with fixed frequencies takes, which begins with the exact kernel where rows are few."""
    if rows < 2 * size:
        return EXACT * _exact(rows, columns, 1) + 15 * (_linear(rows, size) + _OVERHEAD)
    return FIXED * (_linear(rows, size) + _OVERHEAD)


def _neighbors(count: int, columns: int) -> float:
    """Return what a row's neighbours take in an evaluation."""
    return 7.5 * float(count) ** 3 + 5.0 * float(count) ** 2 * columns + 1e4
