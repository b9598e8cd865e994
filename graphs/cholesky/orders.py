"""Nested dissection: a fill-reducing elimination order for sparse Cholesky factors (George 1973).

A separator is eliminated after the two sides, which are dissected recursively. Small parts are ordered by multiple
minimum degree (Liu 1985), as SuperLU of scipy has it. Nodes with very many neighbors are eliminated last: every
separator would contain them, and their rows are full in any order. Trees that are attached to the graph are eliminated
first, from their leaves, which causes no fill.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import csgraph
from scipy.sparse.linalg import spilu

from graphs.arrays import as_numbers
from graphs.checks import check_choice, short_repr
from graphs.errors import InvalidArgumentError, requires_extra

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MAX_LEAF_NODES = 1000
"""The largest number of nodes of a part that is not dissected. Its order takes some milliseconds."""
MAX_SIDE_FRACTION = 0.6
"""The largest fraction of the nodes on a side of a separator."""
SAMPLE_NODES = 50_000
"""The largest number of nodes that are sampled to compare planes."""
MAX_SEPARATOR_FRACTION = 0.1
"""The largest fraction of the nodes in a separator. Above this fraction, minimum degree is used instead."""
_DENSE_ROW_FACTOR = 10.0
"""A node is dense with more neighbors than this times sqrt(n) (Amestoy, Davis and Duff 2004, Algorithm 837: AMD)."""
_NUM_PIVOTS = 3
"""The number of nodes from which distances are computed."""
_NUM_SMOOTHINGS = 4
"""The number of times that distances are averaged over neighbors."""
_PLANE_FRACTIONS = (7 / 16, 8 / 16, 9 / 16)
"""The fractions of the nodes below the planes that are compared."""


def nested_dissection(
    indptr: Integers,  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
    coordinates: Floats | None = None,  # (n, d)
) -> Integers:  # (n,)
    """Return a fill-reducing elimination order (n,) of a symmetric pattern.

    Entry k of the order is eliminated k-th.

    The order depends only on the pattern and the coordinates. Separators lie along planes of the coordinates. If these
    are unknown, or no plane halves a part with a small separator, distances from a few nodes serve as coordinates.
    Parts without small separators are ordered by minimum degree.

    Args:
        indptr: Pointers (n + 1,) of the pattern in CSR form.
        indices: Indices (nnz,) of the pattern, with both triangles. Diagonal entries are ignored.
        coordinates: Coordinates (n, d) of the nodes with d up to 3, in any unit. If None, they are unknown.

    Raises:
        InvalidArgumentError: If coordinates have another shape, or are not numbers.

    Examples:
        >>> import graphs
        >>> from graphs.cholesky.orders import nested_dissection
        >>> W = graphs.Graph.from_grid((4, 4)).adjacency
        >>> sorted(nested_dissection(W.indptr, W.indices).tolist()) == list(range(16))
        True
    """
    from graphs.cholesky.loops import peeled

    n = len(indptr) - 1
    X = np.zeros((n, 0)) if coordinates is None else as_numbers(coordinates)
    if X.ndim != 2 or len(X) != n or X.shape[1] > 3:
        raise InvalidArgumentError(
            f"coordinates must be numbers of shape ({n}, d) with d up to 3, got {short_repr(coordinates)}."
        )
    A, sparse, dense = _without_dense(without_loops(indptr, indices))
    trees = peeled(A.indptr.astype(np.int64), A.indices.astype(np.int32))
    kept = np.ones(len(sparse), dtype=bool)
    kept[trees] = False
    inner = np.flatnonzero(kept)
    parts = _dissected(sp.csr_array(A[inner][:, inner]), X[sparse[inner]])
    return np.concatenate([sparse[trees], *(sparse[inner[part]] for part in parts), dense])


def minimum_degree_order(
    indptr: Integers,  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
) -> Integers:  # (n,)
    """Return the elimination order (n,) of multiple minimum degree (Liu 1985), of a symmetric pattern.

    Args:
        indptr: Pointers (n + 1,) of the pattern in CSR form.
        indices: Indices (nnz,) of the pattern, with both triangles. Diagonal entries are ignored.

    Examples:
        >>> import graphs
        >>> from graphs.cholesky.orders import minimum_degree_order
        >>> W = graphs.Graph.from_edges([(0, 1), (1, 2), (1, 3)]).adjacency
        >>> sorted(minimum_degree_order(W.indptr, W.indices).tolist()[:2])  # leaves
        [2, 3]
    """
    A, sparse, dense = _without_dense(without_loops(indptr, indices))
    return np.concatenate([sparse[_minimum_degree(A)], dense])


def without_loops(
    indptr: Integers,  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
) -> sp.csr_array:
    """Return the adjacency matrix (n, n) of a pattern, without its diagonal.

    Args:
        indptr: Pointers (n + 1,) of the pattern in CSR form.
        indices: Indices (nnz,) of the pattern.

    Examples:
        >>> import numpy as np
        >>> from graphs.cholesky.orders import without_loops
        >>> without_loops(np.array([0, 2, 4]), np.array([0, 1, 0, 1])).toarray().tolist()
        [[0, 1], [1, 0]]
    """
    n = len(indptr) - 1
    rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(indptr))
    others = rows != indices
    ones = np.ones(int(others.sum()), dtype=np.int8)
    return sp.csr_array((ones, (rows[others], indices[others].astype(np.int32))), shape=(n, n))


def _without_dense(A: sp.csr_array) -> tuple[sp.csr_array, Integers, Integers]:
    """Return the graph without its dense nodes, if they are few, and the numbers of other and of dense nodes.

    SuperLU would update the degrees of dense nodes again and again.
    """
    n = A.shape[0]
    dense = np.diff(A.indptr) > max(_DENSE_ROW_FACTOR * np.sqrt(n), 16.0)
    if 10 * dense.sum() > n or not dense.any():
        return A, np.arange(n), np.zeros(0, dtype=np.int64)
    sparse = np.flatnonzero(~dense)
    return sp.csr_array(A[sparse][:, sparse]), sparse, np.flatnonzero(dense)


def _dissected(A: sp.csr_array, X: Floats) -> Iterator[Integers]:
    """Yield the nodes of parts and separators in the order of their elimination.

    Args:
        A: A graph (n, n).
        X: Coordinates (n, d), with d = 0 if they are unknown.

    Yields:
        Numbers of nodes. Together they are a permutation.
    """
    pending: list[tuple[sp.csr_array | None, Integers]] = [(A, np.arange(A.shape[0]))]
    while pending:
        graph, nodes = pending.pop()
        if graph is None:
            yield nodes
            continue
        side = _halved(graph, X[nodes]) if len(nodes) > MAX_LEAF_NODES else None
        if side is None:
            yield nodes[_minimum_degree(graph)]
            continue
        pending.append((None, nodes[side == 2]))
        for part in (np.flatnonzero(side == 0), np.flatnonzero(side == 1)):
            pending.append((sp.csr_array(graph[part][:, part]), nodes[part]))


def _minimum_degree(A: sp.csr_array) -> Integers:
    """Return the multiple minimum degree order (n,) of a graph (n, n) without loops.

    SuperLU computes it before an incomplete factorization. A large diagonal and tolerance make that one trivial.
    """
    if A.shape[0] < 2:
        return np.arange(A.shape[0])
    ones = sp.csr_array((np.ones(len(A.indices)), A.indices, A.indptr), shape=A.shape)
    dominant = sp.diags_array(np.diff(A.indptr) + 2.0) - ones
    options = {"SymmetricMode": True, "DiagPivotThresh": 0.0}
    factor = spilu(dominant.tocsc(), drop_tol=1.0, fill_factor=1.0, permc_spec="MMD_AT_PLUS_A", options=options)
    return np.argsort(factor.perm_c)


def _halved(A: sp.csr_array, X: Floats) -> NDArray[np.int8] | None:
    """Return the side (n,) of each node: 0, 1, or 2 for the separator. None if no separator helps."""
    count, component = csgraph.connected_components(A)
    if count > 1:
        sizes = np.bincount(component)
        largest = np.argsort(-sizes, kind="stable")
        num_first = max(1, int(np.searchsorted(np.cumsum(sizes[largest]), len(component) / 2)))
        return np.isin(component, largest[num_first:]).astype(np.int8)
    with np.errstate(invalid="ignore", over="ignore"):  # of coordinates that are not finite
        side = _along_plane(A, X)
        return _along_plane(A, _distances(A)) if side is None else side


def _along_plane(A: sp.csr_array, X: Floats) -> NDArray[np.int8] | None:
    """Return the sides (n,) of the best of several planes, with a smallest separator of it. None if none helps."""
    n, d = X.shape
    chosen = np.arange(n) if n <= SAMPLE_NODES else np.random.default_rng(0).integers(n, size=SAMPLE_NODES)
    sample = A[chosen] if n > SAMPLE_NODES else A
    rows = np.repeat(np.arange(len(chosen)), np.diff(sample.indptr))
    best, smallest = None, n
    for a in range(d):
        for b in range(-a, a + 1):  # 0: axis a alone; otherwise with axis |b| - 1 added or subtracted
            values = X[:, a] if b == 0 else X[:, a] + np.sign(b) * X[:, abs(b) - 1]
            ranks = [int(fraction * n) for fraction in _PLANE_FRACTIONS]
            for bound in np.partition(values, ranks)[ranks]:
                above = values >= bound
                if not (1 - MAX_SIDE_FRACTION) * n <= above.sum() <= MAX_SIDE_FRACTION * n:
                    continue
                border = np.zeros(len(chosen), dtype=bool)
                border[rows[above[sample.indices]]] = True
                size = int(np.count_nonzero(border & ~above[chosen]))
                if size < smallest:
                    best, smallest = above, size
    if best is None:
        return None
    side = best.astype(np.int8)
    side[separator(A, best)] = 2
    return side if (side == 2).sum() <= MAX_SEPARATOR_FRACTION * n else None


def separator(A: sp.csr_array, above: Flags) -> Integers:
    """Return the fewest nodes that touch all edges between two sides.

    By the theorem of Koenig, a maximum matching gives such a cover.

    Args:
        A: The adjacency matrix (n, n) of the graph.
        above: The side of each node, (n,).

    Examples:
        >>> import graphs
        >>> import numpy as np
        >>> from graphs.cholesky.orders import separator
        >>> A = graphs.Graph.from_edges([(0, 1), (0, 2), (0, 3)]).adjacency
        >>> separator(A, np.array([False, True, True, True])).tolist()
        [0]
    """
    rows = np.repeat(np.arange(len(above), dtype=np.int32), np.diff(A.indptr))
    cut = ~above[rows] & above[A.indices]
    below, i = np.unique(rows[cut], return_inverse=True)
    over, j = np.unique(A.indices[cut], return_inverse=True)
    i, j, m, k = i.astype(np.int32), j.astype(np.int32), len(below), len(over)
    between = sp.csr_array((np.ones(len(i)), (i, j)), shape=(m, k))
    matched = csgraph.maximum_bipartite_matching(between, perm_type="column")
    free, paired = np.flatnonzero(matched < 0), np.flatnonzero(matched >= 0)
    tails = np.concatenate([i, m + matched[paired], np.full(len(free), m + k)]).astype(np.int32)
    heads = np.concatenate([m + j, paired, free]).astype(np.int32)
    steps = sp.csr_array((np.ones(len(tails)), (tails, heads)), shape=(m + k + 1, m + k + 1))
    reached = np.zeros(m + k + 1, dtype=bool)  # by alternating paths from nodes without a partner
    reached[csgraph.breadth_first_order(steps, m + k, return_predecessors=False)] = True
    return np.concatenate([below[~reached[:m]], over[reached[m:-1]]])


def _distances(A: sp.csr_array) -> Floats:
    """Return smoothed distances (n, _NUM_PIVOTS) from nodes far from each other.

    Source: Harel and Koren (2002), Graph drawing by high-dimensional embedding. Means over neighbors make level sets
    smoother.
    """
    root = int(np.argmax(csgraph.shortest_path(A, method="D", unweighted=True, indices=0)))
    nearest, columns = np.full(A.shape[0], np.inf), []
    for _ in range(_NUM_PIVOTS):
        columns.append(csgraph.shortest_path(A, method="D", unweighted=True, indices=root))
        nearest = np.minimum(nearest, columns[-1])
        root = int(np.argmax(nearest))
    X, degrees = np.stack(columns, axis=1), np.diff(A.indptr)[:, None]
    for _ in range(_NUM_SMOOTHINGS):
        X = (X + A @ X) / (1 + degrees)
    return X


# --- Elimination orders by name --------------------------------------------------------------------------------------


METHODS = ("auto", "metis", "dissection", "minimum-degree", "natural")
"""The names of elimination orders."""


def order(
    indptr: NDArray[np.int64],  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
    coordinates: Floats | None = None,  # (n, d)
    method: str = "auto",
) -> NDArray[np.int64]:  # (n,)
    """Return an elimination order (n,) of a symmetric pattern.

    Entry k of the order is eliminated k-th.

    Args:
        indptr: Pointers (n + 1,) of the pattern in CSR form.
        indices: Indices (nnz,) of the pattern, with both triangles, each entry once. The diagonal is optional.
        coordinates: Coordinates (n, d) of the nodes with d up to 3, for "dissection". If None, they are unknown.
        method: "dissection" (`nested_dissection`), "metis" (METIS by pymetis), "minimum-degree"
            (`minimum_degree_order`), "natural" (the given order) or "auto". The latter is "dissection" with
            coordinates, or without pymetis. Otherwise it is "metis".

    Raises:
        InvalidArgumentError: If the arrays are not a CSR pattern, coordinates have another shape, or the method is
            unknown.
        MissingDependencyError: If the method is "metis" and pymetis is not installed: pip install 'rfgp[metis]'.

    Examples:
        >>> import graphs
        >>> from graphs.cholesky.orders import order
        >>> W = graphs.Graph.from_grid((2, 2)).adjacency
        >>> order(W.indptr, W.indices, method="natural").tolist()
        [0, 1, 2, 3]
    """
    check_choice("method", method, METHODS)
    starts, columns = _read_pattern(indptr, indices)
    if method == "auto":
        method = "metis" if coordinates is None and find_spec("pymetis") else "dissection"
    if method == "metis":
        return _metis(starts, columns)
    if method == "minimum-degree":
        return minimum_degree_order(starts, columns)
    if method == "natural":
        return np.arange(len(starts) - 1)
    return nested_dissection(starts, columns, coordinates)


def _read_pattern(indptr: Any, indices: Any) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the pattern, (n + 1,) and (nnz,), checked so that compiled loops stay within bounds."""
    starts, columns = np.asarray(indptr), np.asarray(indices)
    if starts.ndim != 1 or columns.ndim != 1 or starts.dtype.kind not in "iu" or columns.dtype.kind not in "iu":
        raise InvalidArgumentError(
            "indptr and indices must be vectors of integers, got others. Pass those of a CSR array."
        )
    n = len(starts) - 1
    if n < 0 or starts[0] != 0 or starts[-1] != len(columns) or (np.diff(starts.astype(np.int64)) < 0).any():
        raise InvalidArgumentError(
            f"indptr must ascend from 0 to the number of indices, {len(columns)}, got {short_repr(indptr)}."
        )
    if len(columns) and not (columns.min() >= 0 and columns.max() < n):
        raise InvalidArgumentError(f"indices must be nodes, from 0 to {n - 1}, got {columns.min()} to {columns.max()}.")
    return starts.astype(np.int64), columns.astype(np.int32)


def _metis(
    indptr: NDArray[np.int64],  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
) -> NDArray[np.int64]:  # (n,)
    """Return the order (n,) of METIS (Karypis and Kumar 1998)."""
    with requires_extra("metis"):
        import pymetis

    A = without_loops(indptr, indices)
    if A.nnz == 0:
        return np.arange(A.shape[0])
    permutation, _ = pymetis.nested_dissection(pymetis.CSRAdjacency(A.indptr, A.indices))
    return np.asarray(permutation, dtype=np.int64)
