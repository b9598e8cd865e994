"""Nested dissection: a fill-reducing elimination order for sparse Cholesky factors.

Nodes with the same closed neighborhoods are dissected as one, with their number as weight. Nodes with very many
neighbors are eliminated last: every separator would contain them, and their rows are full in any order. Trees that are
attached to the graph are eliminated first, from their leaves, which causes no fill.
"""

import numpy as np
from numpy.typing import NDArray

from graphs import random
from graphs.checks import as_numbers, short_repr
from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]

_MANY = 10.0
"""Nodes with more than _MANY sqrt(n) neighbors are dense (Amestoy, Davis and Duff 2004, Algorithm 837: AMD)."""


def nested_dissection(
    indptr: NDArray[np.int64],  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
    coordinates: Floats | None = None,  # (n, d)
) -> NDArray[np.int64]:  # (n,)
    """Return a fill-reducing elimination order (n,) of a symmetric pattern.

    Entry k of the order is eliminated k-th.

    The order depends only on the pattern and the coordinates. Separators lie along planes of the coordinates. If these
    are unknown, or no plane halves a part, distances from a few nodes serve as coordinates. Time is O(nnz log n) and
    memory O(nnz), except for parts without small separators, which are ordered by minimum degree.

    Args:
        indptr: Pointers (n + 1,) of the pattern in CSR form.
        indices: Indices (nnz,) of the pattern, with both triangles. Diagonal entries are ignored.
        coordinates: Coordinates (n, d) of the nodes with d up to 3, in any unit. If None, they are unknown.

    Raises:
        InvalidArgumentError: If coordinates have another shape, or are not numbers.

    Examples:
        >>> import graphs
        >>> from graphs.cholesky.dissection import nested_dissection
        >>> W = graphs.Graph.from_grid((4, 4)).adjacency
        >>> sorted(nested_dissection(W.indptr, W.indices).tolist()) == list(range(16))
        True
    """
    from graphs.cholesky.compiled import dissect, peeled

    n = len(indptr) - 1
    X = np.zeros((n, 0)) if coordinates is None else as_numbers(coordinates)
    if X.ndim != 2 or len(X) != n or X.shape[1] > 3:
        raise InvalidArgumentError(
            f"coordinates must be numbers of shape ({n}, d) with d up to 3, got {short_repr(coordinates)}."
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
    """Return, for each of n nodes, the first with the same closed neighborhood (n,).

    Neighborhoods are compared by sums of 64 random bits per node. Among 10^6 of them two are confused with probability
    3e-8, which would only make the order worse.

    Examples:
        >>> import graphs
        >>> from graphs.cholesky.dissection import first_indistinguishable
        >>> W = graphs.Graph.from_edges([(0, 1), (0, 2), (1, 2)]).adjacency
        >>> first_indistinguishable(W.indptr, W.indices).tolist()
        [0, 0, 0]
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
