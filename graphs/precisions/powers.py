"""Powers of sparse symmetric matrices on the pattern of the highest one."""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.checks import check_fits
from graphs.precisions.base import Pattern


def reached_within(
    matrix: sp.csr_array,  # (N, N)
    steps: int,
    nodes: str,
    remedy: str,
) -> Pattern:
    """Return the pattern of pairs that are connected by at most so many steps, with read-only arrays.

    Args:
        matrix: A matrix (N, N) whose pattern, which is symmetric, has the pairs that are one step apart.
        steps: The largest number of steps, a positive integer.
        nodes: The number of nodes as text, for messages.
        remedy: A sentence that ends the message.

    Raises:
        MemoryBudgetError: If the pattern does not fit into memory.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.precisions.powers import reached_within
        >>> chain = sp.csr_array(sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(4, 4)))
        >>> reached_within(chain, 2, "4 nodes", "").indptr.tolist()
        [0, 3, 7, 11, 14]
    """
    once = sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    hop = sp.csr_array(once + sp.eye_array(matrix.shape[0]))
    reached = hop
    for _ in range(steps - 1):
        size = 12.0 * float(np.diff(hop.indptr)[reached.indices].sum())
        check_fits(f"The precision of {nodes}", size, remedy)
        reached = sp.csr_array(reached @ hop)
    reached.sort_indices()
    pattern = Pattern(reached.indptr.astype(np.int64), reached.indices.astype(np.int32))
    for array in pattern:
        array.flags.writeable = False
    return pattern


def symmetric_powers(
    first: sp.csr_array,  # (N, N)
    step: sp.csr_array,  # (N, N)
    count: int,
) -> Iterator[sp.csr_array]:
    """Yield the first matrix and its products with powers of the step, all exactly symmetric with sorted entries.

    Args:
        first: A symmetric matrix (N, N).
        step: A matrix (N, N), such that the products are symmetric up to rounding.
        count: The number of products after the first matrix.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.precisions.powers import symmetric_powers
        >>> identity, double = sp.csr_array(sp.eye_array(2)), sp.csr_array(2 * sp.eye_array(2))
        >>> [power.diagonal().tolist() for power in symmetric_powers(identity, double, 2)]
        [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]
    """
    power = first
    for number in range(count + 1):
        if number:
            power = sp.csr_array(power @ step)
            power = sp.csr_array((power + power.T) / 2)
        power.sort_indices()
        yield power


def entry_indices(
    matrix: sp.csr_array,  # (N, N)
    pattern: Pattern,
) -> NDArray[np.int64]:  # (m,)
    """Return the indices of the entries of a matrix on a pattern that contains its own.

    Args:
        matrix: The matrix (N, N), with m sorted entries.
        pattern: The pattern.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.precisions.powers import entry_indices, reached_within
        >>> chain = sp.csr_array(sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(2, 2)))
        >>> entry_indices(sp.csr_array(sp.eye_array(2)), reached_within(chain, 1, "2 nodes", "")).tolist()
        [0, 3]
    """
    starts = np.arange(matrix.shape[0], dtype=np.int64) * matrix.shape[0]
    all_keys = np.repeat(starts, np.diff(pattern.indptr)) + pattern.indices
    keys = np.repeat(starts, np.diff(matrix.indptr)) + matrix.indices
    return np.asarray(np.searchsorted(all_keys, keys))
