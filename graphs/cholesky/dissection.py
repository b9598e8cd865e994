"""Nested dissection: an order of elimination that keeps the Cholesky factor of a sparse matrix sparse.

Nodes with the same neighbors, themselves among them, are dissected as one, with their number as its weight. Nodes of
very many neighbors are eliminated last: any separator would have to hold them, and their rows are full in any order.
Trees that hang on the graph are eliminated first, from their leaves, which fills nothing.
"""

import numpy as np
from numpy.typing import NDArray

from graphs import random
from graphs.checks import as_numbers, shown
from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]

_MANY = 10.0
"""A node has very many neighbors above _MANY sqrt(n) (Amestoy, Davis and Duff 2004, Algorithm 837: AMD)."""


def nested_dissection(
    indptr: NDArray[np.int64],  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
    coordinates: Floats | None = None,  # (n, d)
) -> NDArray[np.int64]:  # (n,)
    """Return a fill-reducing order (n,) of a symmetric pattern: its entry k is the node that is eliminated k-th.

    The order depends on the pattern and the coordinates alone. Separators lie along planes where there are coordinates,
    and are found on coarser graphs where not, or where no plane halves a part. Time O(nnz log n), memory O(nnz), but
    for parts without small separators, whose order is that of minimum degree.

    Args:
        indptr: Of the pattern in CSR form, (n + 1,).
        indices: Of the pattern, (nnz,), with both triangles; entries on the diagonal say nothing.
        coordinates: Where the n nodes are, (n, d) with d up to 3, in any unit; None: unknown.

    Raises:
        InvalidArgumentError: coordinates are of another shape, or no numbers.
    """
    from graphs.cholesky.compiled import dissect, peeled

    n = len(indptr) - 1
    X = np.zeros((n, 0)) if coordinates is None else as_numbers(coordinates)
    if X.ndim != 2 or len(X) != n or X.shape[1] > 3:
        raise InvalidArgumentError(
            f"coordinates must be numbers of shape ({n}, d), one row a node, d up to 3, got {shown(coordinates)}."
        )
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    first = first_indistinguishable(indptr, indices)
    kept = (first == np.arange(n)) & (np.diff(indptr) <= max(_MANY * np.sqrt(n), 16.0))
    trees = np.flatnonzero(kept)[peeled(*_between(indptr, indices, kept))]
    kept[trees] = False
    weights = np.bincount(first, minlength=n)[kept]
    others = np.flatnonzero(kept)[dissect(*_between(indptr, indices, kept), weights, X[kept])]
    order, position = np.concatenate([trees, others]), np.full(n, n)
    position[order] = np.arange(len(order))
    return np.argsort(position[first], kind="stable")


def first_indistinguishable(
    indptr: NDArray[np.int64],  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
) -> NDArray[np.int64]:  # (n,)
    """Return, for each of n nodes, the first with the same neighbors, itself among them (n,).

    Sets are told apart by sums of 64 random bits of each node: among 10^6 of them two are taken for one another with
    probability 3e-8, which would make the order worse and no more.
    """
    n = len(indptr) - 1
    bits = random.mix(np.arange(n, dtype=np.uint64))
    others = np.where(indices == np.repeat(np.arange(n), np.diff(indptr)), np.uint64(0), bits[indices])
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(others)])
    _, first, group = np.unique(bits + sums[indptr[1:]] - sums[indptr[:-1]], return_index=True, return_inverse=True)
    return np.asarray(first[group], dtype=np.int64)


def _between(
    indptr: NDArray[np.int64],  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
    kept: NDArray[np.bool_],  # (n,)
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:  # (m + 1,), (entries,)
    """Return the pattern between the m kept nodes, renumbered, without its diagonal."""
    rows = np.repeat(np.arange(len(kept), dtype=np.int32), np.diff(indptr))
    chosen = kept[rows] & kept[indices] & (rows != indices)
    number = np.cumsum(kept, dtype=np.int32) - np.int32(1)
    counts = np.bincount(rows[chosen], minlength=len(kept))[kept]
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]), number[indices[chosen]]
