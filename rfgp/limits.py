"""The sizes at which a computation takes another path, in one place.

`rfgp.testing.limits` changes them, so that small tables take the paths of large ones.
"""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Numbers of rows, nodes, matrix entries and operations.

    Attributes:
        max_dense: The largest number of rows whose covariance is factorized if features are sparse or rows lie on a
            grid.
        max_exact_rows: The largest number of rows with an exact covariance by default. At 2,000 rows an evaluation
            takes about 1 s.
        max_exact_nodes: The largest number of nodes for which the exact kernel by eigenvectors is the default.
        max_elimination_flops: The largest number of operations of a factor of latent neighbors.
        pattern_rows: The number of rows from which the size of such a factor is extrapolated.
        max_whitened: The number of entries of the features of all rows beside neighbors (a gigabyte) above which they
            are not stored.
        whitened_block: The number of entries of the features of a block of these rows.
        max_solved: The largest number of points whose variances are computed by solves to the tolerance of the solver.
        max_joint_numbers: The largest number of entries of a covariance of rows and points (a gigabyte).
        subset_rows: The least number of rows of the first subset of a fit.
        min_subset_gain: The gain of a larger subset in nats a row below which the optimum has converged.
        neighbor_rows: The largest number of rows of a search with neighbors. Up to twice as many are all used.
        lattice_rows: The largest number of rows of the first search on a lattice.
        few_rows: The largest number of rows with distinct inputs for which the candidates of a selection are exact.
        first_rows: The number of rows of the first round of a selection.
        max_held_out: The largest number of rows that a selection holds out.
        sample_rows: The number of rows of the random sample of a source.
        chunk_rows: The number of rows of an array or a Parquet file that are read at once.
        chunk_bytes: The number of bytes of a text file that are read at once.
        max_file_bytes: The largest number of unpacked bytes of a table file. Reading needs several times as much
            memory.
        min_blocked_bytes: The least size in bytes of arrays on disk that are read in blocks.
        max_copied: The largest number of rows whose standardized values are stored. More rows are standardized in
            blocks.
        small_rows: The largest number of rows and points of computations in one thread
            (`benchmarks/races/threads.py`: an exact fit of 1,000 rows takes half the processor seconds of two threads).

    Examples:
        >>> limits().max_dense
        4000
    """

    max_dense: int = 4000
    max_exact_rows: int = 2000
    max_exact_nodes: int = 2000
    max_elimination_flops: float = 4e10
    pattern_rows: int = 2000
    max_whitened: int = 2**27
    whitened_block: int = 2**23
    max_solved: int = 256
    max_joint_numbers: int = 2**27
    subset_rows: int = 2000
    min_subset_gain: float = 1e-3
    neighbor_rows: int = 2**14
    lattice_rows: int = 20_000
    few_rows: int = 2000
    first_rows: int = 1000
    max_held_out: int = 4000
    sample_rows: int = 2**15
    chunk_rows: int = 2**16
    chunk_bytes: int = 2**24
    max_file_bytes: int = 2**30
    min_blocked_bytes: int = 2**26
    max_copied: int = 2**21
    small_rows: int = 1000


_DEFAULTS = Limits()
CURRENT: ContextVar[Limits] = ContextVar("limits", default=_DEFAULTS)
"""The limits of a context."""


def limits() -> Limits:
    """Return the limits of this context."""
    return CURRENT.get()
