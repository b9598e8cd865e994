"""Edges as arrays, and the checks that every source of edges passes through."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_choice, counted, is_hashable, shown
from graphs.errors import InvalidGraphError

SelfLoops = Literal["error", "drop", "keep"]
Duplicates = Literal["error", "sum"]

_MAX_DECADES = 600


class EdgeArrays(NamedTuple):
    """Undirected edges, each once, and what is known about the nodes."""

    num_nodes: int
    sources: NDArray[np.int64]  # (E,) positions
    targets: NDArray[np.int64]  # (E,) positions
    weights: NDArray[np.float64]  # (E,)
    labels: tuple[Hashable, ...] | None = None  # N of them; None: the positions themselves
    coordinates: NDArray[np.float64] | None = None  # (N, 2) or (N, 3), for plots only
    computed: Sequence[Hashable] | None = None  # N distinct labels that follow from the positions, instead of `labels`


def from_pairs(
    pairs: Iterable[tuple[Hashable, Hashable]],  # (E, 2) labels
    weights: ArrayLike | None,  # (E,)
    nodes: Iterable[Hashable] | None,
) -> EdgeArrays:
    """Read labelled pairs; the nodes are `nodes` first, then the others as they appear."""
    given = _listed(pairs, "Edges", "pairs of labels")
    rows = [tuple(pair) if isinstance(pair, Iterable) else (pair,) for pair in given]
    wrong = next((i for i, row in enumerate(rows) if len(row) != 2), None)
    if wrong is not None:
        raise InvalidGraphError(f"Edge {wrong} is {shown(given[wrong])}: an edge is a pair of two labels.")
    first = () if nodes is None else _listed(nodes, "Nodes", "labels")
    _check_hashable(chain(first, *rows))
    positions: dict[Hashable, int] = {}
    for label in first:
        positions.setdefault(label, len(positions))
    for row in rows:
        for label in row:
            positions.setdefault(label, len(positions))
    ends = np.array([(positions[a], positions[b]) for a, b in rows], dtype=np.int64).reshape(-1, 2)
    values = np.ones(len(rows)) if weights is None else _as_weights(weights, len(rows))
    return EdgeArrays(len(positions), ends[:, 0], ends[:, 1], values, tuple(positions))


def from_scipy(
    matrix: Any,  # (N, N) scipy sparse or dense
    labels: Sequence[Hashable] | None,
) -> EdgeArrays:
    """Read a symmetric adjacency matrix."""
    try:
        given = matrix if sp.issparse(matrix) else np.asarray(matrix)
    except ValueError:  # ragged lists
        given = np.zeros(0)
    if given.ndim != 2 or given.dtype.kind not in "biufc":
        raise InvalidGraphError(f"The adjacency is not a numeric matrix, scipy sparse or dense, but {shown(matrix)}.")
    if given.dtype.kind == "c":
        raise InvalidGraphError("The adjacency is complex; weights are real numbers.")
    table = _as_entries(given)
    if table.shape[0] != table.shape[1]:
        raise InvalidGraphError(f"The adjacency must be square, got shape {table.shape}.")
    names = None if labels is None else tuple(_listed(labels, "Labels", "one label for each node"))
    table.sum_duplicates()  # scipy's own meaning of repeated entries
    _check_weights(table.row, table.col, table.data, names)
    difference = abs(table.tocsr() - table.T.tocsr())
    excess = (difference - 1e-9 * table.tocsr().maximum(table.T.tocsr())).tocoo()
    worst = int(excess.data.argmax()) if excess.nnz else 0
    if excess.nnz and excess.data[worst] > 0:
        a, b = excess.row[worst], excess.col[worst]
        raise InvalidGraphError(
            f"The adjacency is not symmetric: entries ({a}, {b}) and ({b}, {a}) differ by "
            f"{difference[a, b]:g}. Directed graphs are not supported; symmetrise it, for example (A + A.T) / 2."
        )
    upper = table.row <= table.col
    ends = (table.row[upper].astype(np.int64), table.col[upper].astype(np.int64))
    return EdgeArrays(table.shape[0], *ends, table.data[upper], names)


def _as_entries(
    given: Any,  # (N, N) scipy sparse or dense
) -> sp.coo_array:
    """Return the entries (N, N) of a matrix whose arrays fit each other; scipy would write where they do not."""
    if sp.issparse(given) and given.format in ("csr", "csc", "bsr") and not _is_whole(given):
        raise InvalidGraphError(
            f"The adjacency is no {given.format} matrix: its indptr must ascend from 0 to the number of its indices "
            "and values. Build it anew, for example from rows, columns and values with scipy.sparse.coo_array."
        )
    try:
        return sp.coo_array(given).astype(np.float64)
    except ValueError as error:
        raise InvalidGraphError(f"The adjacency holds arrays that do not fit each other: {error}.") from error


def _is_whole(given: Any) -> bool:
    """Whether the pointers of a CSR, CSC or BSR matrix are those of its entries."""
    size = given.shape[1] if given.format == "csc" else given.shape[0]
    if given.format == "bsr":
        size //= given.blocksize[0]
    ends, entries = given.indptr, len(given.indices)
    fits = ends.shape == (size + 1,) and len(given.data) == entries
    return bool(fits and ends[0] == 0 and ends[-1] == entries and (ends[1:] >= ends[:-1]).all())


def clean(
    edges: EdgeArrays,
    self_loops: SelfLoops,
    duplicates: Duplicates,
) -> tuple[EdgeArrays, int]:
    """Check edges and apply the caller's choices.

    Returns:
        The edges without zero weights (no edge), and the number of self-loops dropped.

    Raises:
        InvalidGraphError: no node, duplicate labels, a negative or non-finite weight, a self-loop
            or a duplicate edge where they are errors.
        InvalidArgumentError: an unknown choice.
    """
    check_choice("self_loops", self_loops, ("error", "drop", "keep"))
    check_choice("duplicates", duplicates, ("error", "sum"))
    _check_nodes(edges)
    _check_weights(edges.sources, edges.targets, edges.weights, edges.labels)
    _check_total(edges.weights)
    edges = _select(edges, edges.weights > 0)
    loops = edges.sources == edges.targets
    if self_loops == "error" and loops.any():
        where = _name(edges.labels, edges.sources[int(loops.argmax())])
        raise InvalidGraphError(
            f"{counted(int(loops.sum()), 'self-loop')}, the first at node {where}. "
            'Pass self_loops="drop" to leave them out or self_loops="keep" to count them as edges.'
        )
    dropped = int(loops.sum()) if self_loops == "drop" else 0
    return _merge_duplicates(_select(edges, ~loops) if dropped else edges, duplicates), dropped


def _merge_duplicates(edges: EdgeArrays, duplicates: Duplicates) -> EdgeArrays:
    low = np.minimum(edges.sources, edges.targets)
    high = np.maximum(edges.sources, edges.targets)
    keys = low * edges.num_nodes + high
    ascending = np.sort(keys)
    if not (ascending[1:] == ascending[:-1]).any():  # a fourth of the time of what follows
        return edges
    pairs, first, group, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if duplicates == "error":
        worst = first[int(counts.argmax())]
        a, b = _name(edges.labels, low[worst]), _name(edges.labels, high[worst])
        raise InvalidGraphError(
            f"{counted(len(low) - len(pairs), 'duplicate edge')}; ({a}, {b}) appears "
            f"{counted(counts.max(), 'time')}. An undirected edge "
            'is listed once, in either direction. Pass duplicates="sum" to add up the weights of parallel edges.'
        )
    weights = np.bincount(group, weights=edges.weights).astype(np.float64)
    return edges._replace(sources=low[first], targets=high[first], weights=weights)


def _check_nodes(edges: EdgeArrays) -> None:
    if edges.num_nodes == 0:
        raise InvalidGraphError("The graph has no nodes.")
    if edges.num_nodes > np.iinfo(np.int32).max:
        raise InvalidGraphError(f"{edges.num_nodes} nodes are more than 32-bit positions can name.")
    if edges.labels is None:
        return
    if len(edges.labels) != edges.num_nodes:
        raise InvalidGraphError(f"{counted(len(edges.labels), 'label')} for {counted(edges.num_nodes, 'node')}.")
    _check_hashable(edges.labels)
    seen: set[Hashable] = set()
    for label in edges.labels:
        if label != label:
            raise InvalidGraphError("A label is NaN, which equals nothing; use a number or a string.")
        if label in seen:
            raise InvalidGraphError(f"Label {label!r} names two nodes; labels must be distinct.")
        seen.add(label)


def _check_weights(
    sources: NDArray[Any],
    targets: NDArray[Any],
    weights: NDArray[np.float64],
    labels: Sequence[Hashable] | None,
) -> None:
    for bad, what in ((~np.isfinite(weights), "not a finite number"), (weights < 0, "negative")):
        if bad.any():
            worst = int(bad.argmax())
            a, b = _name(labels, sources[worst]), _name(labels, targets[worst])
            raise InvalidGraphError(
                f"The weight of edge ({a}, {b}) is {weights[worst]}, which is {what}. Weights measure similarity "
                "and must be finite and at least 0."
            )


def _check_total(weights: NDArray[np.float64]) -> None:
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        raise InvalidGraphError("The weights add up to more than a float can hold; divide them by their largest.")
    positive = weights[weights > 0]
    if len(positive) and np.log10(positive.max()) - np.log10(positive.min()) > _MAX_DECADES:
        raise InvalidGraphError(
            f"The weights range from {positive.min():.3g} to {positive.max():.3g}, so that ratios of degrees are more "
            "than a float can hold. Leave out the edges of so little weight."
        )


def _select(edges: EdgeArrays, keep: NDArray[np.bool_]) -> EdgeArrays:
    return edges._replace(sources=edges.sources[keep], targets=edges.targets[keep], weights=edges.weights[keep])


def _as_weights(weights: ArrayLike, count: int) -> NDArray[np.float64]:
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidGraphError(f"The weights are not numbers: {error}.") from error
    if values.shape != (count,):
        raise InvalidGraphError(f"{count} edges need weights of shape ({count},), got {values.shape}.")
    return values


def _listed(items: Any, what: str, wanted: str) -> list[Any]:
    """Return a list; arrays and tensors give plain numbers."""
    plain = items.tolist() if hasattr(items, "tolist") else items
    if not isinstance(plain, Iterable):
        raise InvalidGraphError(f"{what} must be a sequence of {wanted}, got {shown(items)}.")
    return list(plain)


def _check_hashable(labels: Iterable[Any]) -> None:
    for label in labels:
        if not is_hashable(label):
            raise InvalidGraphError(
                f"{shown(label)} is no label of a node: labels are hashable, such as numbers, texts and tuples of them."
            )


def _name(labels: Sequence[Hashable] | None, position: Any) -> str:
    return str(position) if labels is None else repr(labels[int(position)])
