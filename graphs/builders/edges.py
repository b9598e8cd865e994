"""Edges as arrays, and the checks that every source of edges passes."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.builders.files import check_file
from graphs.checks import check_choice, counted, is_hashable, one_line, short_repr
from graphs.errors import FileFormatError, GraphError, InvalidArgumentError, InvalidGraphError, requires_extra

SelfLoops = Literal["error", "drop", "keep"]
Duplicates = Literal["error", "sum"]

_MAX_DECADES = 600
"""The largest ratio of weights, in powers of ten, so that ratios of degrees stay finite."""


class EdgeArrays(NamedTuple):
    """Undirected edges, each once, with labels and coordinates of the nodes.

    Examples:
        >>> from graphs.builders import from_pairs
        >>> from_pairs([("a", "b"), ("b", "c")], None, None).targets.tolist()
        [1, 2]
    """

    num_nodes: int
    sources: NDArray[np.int64]  # (E,) positions
    targets: NDArray[np.int64]  # (E,) positions
    weights: NDArray[np.float64]  # (E,)
    labels: tuple[Hashable, ...] | None = None  # N labels; if None, the positions
    coordinates: NDArray[np.float64] | None = None  # (N, 2) or (N, 3), for plots only
    computed: Sequence[Hashable] | None = None  # N distinct labels computed from positions, instead of `labels`


def from_pairs(
    pairs: Iterable[tuple[Hashable, Hashable]],  # (E, 2) labels
    weights: ArrayLike | None,  # (E,)
    nodes: Iterable[Hashable] | None,
) -> EdgeArrays:
    """Return the edges of pairs of labels.

    The nodes are `nodes`, then other labels in order of appearance.

    Args:
        pairs: Pairs (E, 2) of labels.
        weights: Weights (E,). If None, all are 1.
        nodes: The labels that come first. If None, there are none.

    Raises:
        InvalidGraphError: If an edge is not a pair, a label is not hashable, or weights are invalid.

    Examples:
        >>> from graphs.builders import from_pairs
        >>> from_pairs([("a", "b")], [2.0], nodes=["b"]).labels
        ('b', 'a')
    """
    given = _listed(pairs, "Edges", "pairs of labels")
    rows = [tuple(pair) if isinstance(pair, Iterable) else (pair,) for pair in given]
    wrong = next((i for i, row in enumerate(rows) if len(row) != 2), None)
    if wrong is not None:
        raise InvalidGraphError(f"Edge {wrong} must be a pair of labels, got {short_repr(given[wrong])}.")
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
    """Return the edges of a symmetric adjacency matrix.

    Args:
        matrix: The matrix (N, N), sparse or dense.
        labels: N labels. If None, positions are the labels.

    Raises:
        InvalidGraphError: If it is not a symmetric numeric matrix.

    Examples:
        >>> from graphs.builders import from_scipy
        >>> from_scipy([[0, 2.0], [2.0, 0]], None).weights.tolist()
        [2.0]
    """
    try:
        given = matrix if sp.issparse(matrix) else np.asarray(matrix)
    except ValueError:  # ragged lists
        given = np.zeros(0)
    if given.ndim != 2 or given.dtype.kind not in "biufc":
        raise InvalidGraphError(f"The adjacency must be a numeric matrix, sparse or dense, got {short_repr(matrix)}.")
    if given.dtype.kind == "c":
        raise InvalidGraphError("The adjacency must be real, got complex weights. Pass abs(adjacency).")
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
            f"The adjacency must be symmetric, got entries ({a}, {b}) and ({b}, {a}) that differ by "
            f"{difference[a, b]:g}. Symmetrize it, for example (A + A.T) / 2; directed graphs are not supported."
        )
    upper = table.row <= table.col
    ends = (table.row[upper].astype(np.int64), table.col[upper].astype(np.int64))
    return EdgeArrays(table.shape[0], *ends, table.data[upper], names)


def _as_entries(
    given: Any,  # (N, N) scipy sparse or dense
) -> sp.coo_array:
    """Return the entries (N, N) of a matrix, after a check of its arrays."""
    if sp.issparse(given) and given.format in ("csr", "csc", "bsr") and not _is_whole(given):
        raise InvalidGraphError(
            f"The indptr of the {given.format} adjacency must ascend from 0 to the number of its indices and values, "
            "got another one. Build the matrix again, for example with scipy.sparse.coo_array."
        )
    try:
        return sp.coo_array(given).astype(np.float64)
    except ValueError as error:
        raise InvalidGraphError(f"The arrays of the adjacency must fit each other, got an error: {error}.") from error


def _is_whole(given: Any) -> bool:
    """Return whether the pointers of a CSR, CSC or BSR matrix fit its entries."""
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
    """Check edges and apply the choices for self-loops and duplicates.

    Args:
        edges: The edges.
        self_loops: "error", "drop" or "keep".
        duplicates: "error" or "sum".

    Returns:
        The edges with positive weights, and the number of self-loops dropped.

    Raises:
        InvalidGraphError: If there is no node, labels repeat, a weight is negative or not finite, or there is a
            self-loop or duplicate edge that is not allowed.
        InvalidArgumentError: If a choice is unknown.

    Examples:
        >>> from graphs.builders import clean, from_pairs
        >>> edges, dropped = clean(from_pairs([(0, 0), (0, 1)], None, None), "drop", "error")
        >>> len(edges.weights), dropped
        (1, 1)
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
            f"Edges must join different nodes, got {counted(int(loops.sum()), 'self-loop')}, the first at {where}. "
            'Pass self_loops="drop" to drop them or self_loops="keep" to count them as edges.'
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
            f"Undirected edges must be listed once, got {counted(len(low) - len(pairs), 'duplicate edge')}; "
            f"({a}, {b}) appears {counted(counts.max(), 'time')}. "
            'Pass duplicates="sum" to add the weights of parallel edges.'
        )
    weights = np.bincount(group, weights=edges.weights).astype(np.float64)
    return edges._replace(sources=low[first], targets=high[first], weights=weights)


def _check_nodes(edges: EdgeArrays) -> None:
    if edges.num_nodes == 0:
        raise InvalidGraphError("A graph must have at least one node, got no nodes. Pass edges or nodes.")
    most = np.iinfo(np.int32).max
    if edges.num_nodes > most:
        raise InvalidGraphError(f"A graph must have at most {most} nodes, got {edges.num_nodes}. Use a subgraph.")
    if edges.labels is None:
        return
    if len(edges.labels) != edges.num_nodes:
        raise InvalidGraphError(
            f"labels must have one entry per node, got {counted(len(edges.labels), 'label')} for "
            f"{counted(edges.num_nodes, 'node')}."
        )
    _check_hashable(edges.labels)
    seen: set[Hashable] = set()
    for label in edges.labels:
        if label != label:
            raise InvalidGraphError("Labels must equal themselves, got NaN. Use numbers or strings.")
        if label in seen:
            raise InvalidGraphError(f"Labels must be distinct, got {label!r} twice.")
        seen.add(label)


def _check_weights(
    sources: NDArray[Any],
    targets: NDArray[Any],
    weights: NDArray[np.float64],
    labels: Sequence[Hashable] | None,
) -> None:
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        worst = int(bad.argmax())
        a, b = _name(labels, sources[worst]), _name(labels, targets[worst])
        raise InvalidGraphError(
            f"The weight of edge ({a}, {b}) must be finite and at least 0, got {weights[worst]}. Weights are "
            "similarities, for example exp(-distance)."
        )


def _check_total(weights: NDArray[np.float64]) -> None:
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        raise InvalidGraphError("Weights must have a finite sum, got larger ones. Divide them by the largest.")
    positive = weights[weights > 0]
    if len(positive) and np.log10(positive.max()) - np.log10(positive.min()) > _MAX_DECADES:
        raise InvalidGraphError(
            f"Weights must differ by less than {_MAX_DECADES} powers of ten, got {positive.min():.3g} to "
            f"{positive.max():.3g}. Drop the edges with the smallest weights."
        )


def _select(edges: EdgeArrays, keep: NDArray[np.bool_]) -> EdgeArrays:
    return edges._replace(sources=edges.sources[keep], targets=edges.targets[keep], weights=edges.weights[keep])


def _as_weights(weights: ArrayLike, count: int) -> NDArray[np.float64]:
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidGraphError(f"weights must be numbers, got an error: {error}.") from error
    if values.shape != (count,):
        raise InvalidGraphError(f"weights must have shape ({count},), one per edge, got {values.shape}.")
    return values


def _listed(items: Any, subject: str, wanted: str) -> list[Any]:
    """Return a list; arrays and tensors are converted to plain numbers."""
    plain = items.tolist() if hasattr(items, "tolist") else items
    if not isinstance(plain, Iterable):
        raise InvalidGraphError(f"{subject} must be a sequence of {wanted}, got {short_repr(items)}.")
    return list(plain)


def _check_hashable(labels: Iterable[Any]) -> None:
    for label in labels:
        if not is_hashable(label):
            raise InvalidGraphError(
                f"Labels must be hashable, such as numbers, strings and tuples of them, got {short_repr(label)}."
            )


def _name(labels: Sequence[Hashable] | None, position: Any) -> str:
    return str(position) if labels is None else repr(labels[int(position)])


# --- Lengths of edges, and weights from lengths ----------------------------------------------------------------------


def scale_to_unit(
    points: NDArray[np.float64],  # (n, d)
    subject: str,
) -> tuple[NDArray[np.float64], float]:
    """Return points (n, d) divided by their largest coordinate, and this number.

    The number is 1 if all are 0. Differences, squares and cross products of the result stay in the range of double
    precision.

    Args:
        points: The points.
        subject: The name of a row, for messages, such as "Vertex".

    Raises:
        InvalidGraphError: If a coordinate is not a finite number.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.edges import scale_to_unit
        >>> points, scale = scale_to_unit(np.array([[0.0, 4.0], [2.0, 0.0]]), "Point")
        >>> points.tolist(), scale
        ([[0.0, 1.0], [0.5, 0.0]], 4.0)
    """
    wrong = ~np.isfinite(points).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidGraphError(f"{subject} {row} must have finite coordinates, got {points[row].tolist()}.")
    scale = float(np.abs(points).max(initial=0.0)) or 1.0
    return points / scale, scale


def segment_distances(
    starts: NDArray[np.float64],  # (E, d)
    ends: NDArray[np.float64],  # (E, d)
) -> NDArray[np.float64]:  # (E,)
    """Return distances (E,) by `hypot`, since squares of short ones would underflow.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.edges import segment_distances
        >>> segment_distances(np.zeros((1, 2)), np.array([[3.0, 4.0]])).tolist()
        [5.0]
    """
    return np.asarray(np.hypot.reduce(ends - starts, axis=1, initial=0.0))


def inverse_lengths(
    lengths: NDArray[np.float64],  # (E,)
    sources: NDArray[Any],  # (E,)
    targets: NDArray[Any],  # (E,)
    subject: str,
    remedy: str,
) -> NDArray[np.float64]:  # (E,)
    """Return (mean length) / (length), (E,).

    Source: Borovitskiy et al. (2021), "Matern Gaussian processes on graphs".

    Args:
        lengths: Lengths (E,).
        sources: Positions (E,) of the first nodes, for messages.
        targets: Positions (E,) of the second nodes.
        subject: The name of nodes, for messages, such as "Vertices".
        remedy: A sentence that ends the message.

    Raises:
        InvalidGraphError: If a length is 0, or so short that the weight overflows.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.edges import inverse_lengths
        >>> inverse_lengths(np.array([1.0, 3.0]), np.array([0, 1]), np.array([1, 2]), "Nodes", "").round(3).tolist()
        [2.0, 0.667]
    """

    def error(wrong: NDArray[np.int64]) -> InvalidGraphError:
        first, second = sources[wrong[0]], targets[wrong[0]]
        return InvalidGraphError(
            f"{subject} of an edge must differ, got {first} and {second} with the same coordinates "
            f"({counted(len(wrong), 'such edge')}). Then (mean length) / (length) is infinite. {remedy}"
        )

    return relative_to_mean(lengths, lengths.mean() if len(lengths) else 1.0, error)


def relative_to_mean(
    lengths: NDArray[np.float64],  # (E,)
    mean: float,
    error: Callable[[NDArray[np.int64]], GraphError],
) -> NDArray[np.float64]:  # (E,)
    """Return mean / length, (E,).

    Args:
        lengths: Lengths (E,).
        mean: Their mean.
        error: A function that returns the error for the numbers of edges whose length is 0, or so short that the weight
            overflows.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.edges import relative_to_mean
        >>> from graphs.errors import InvalidGraphError
        >>> relative_to_mean(np.array([1.0, 4.0]), 2.0, lambda wrong: InvalidGraphError("too short")).tolist()
        [2.0, 0.5]
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        weights = mean / lengths
    wrong = np.flatnonzero((lengths < np.finfo(np.float64).tiny) | ~np.isfinite(weights))
    if len(wrong):
        raise error(wrong)
    return np.asarray(weights)


# --- networkx graphs and GML files as edges --------------------------------------------------------------------------


def from_networkx(graph: Any, weight: str | None) -> EdgeArrays:
    """Return the edges of a networkx graph.

    Args:
        graph: An undirected `networkx.Graph` or `MultiGraph`.
        weight: The edge attribute with the weights. Edges without it have weight 1. If None, all weights are 1.

    Raises:
        InvalidGraphError: If the argument is not a networkx graph, it is directed, or a weight is not a number.
        InvalidArgumentError: If `weight` is not hashable.

    Examples:
        >>> import networkx as nx
        >>> from graphs.builders import from_networkx
        >>> from_networkx(nx.path_graph(3), "weight").weights.tolist()
        [1.0, 1.0]
    """
    if not hasattr(graph, "is_directed"):
        raise InvalidGraphError(
            f"graph must be a networkx graph, got {type(graph).__name__}. Use Graph.from_scipy for matrices and "
            "Graph.from_edges for pairs of labels."
        )
    if not is_hashable(weight):
        raise InvalidArgumentError(f"weight must be the name of an edge attribute or None, got {short_repr(weight)}.")
    if graph.is_directed():
        raise InvalidGraphError(
            "graph must be undirected, got a directed one. Pass graph.to_undirected() if directions do not matter."
        )
    labels = tuple(graph.nodes)
    positions = {label: i for i, label in enumerate(labels)}
    sources, targets, weights = [], [], []
    for a, b, attributes in graph.edges(data=True):
        value = 1.0 if weight is None else attributes.get(weight, 1.0)
        try:
            weights.append(float(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidGraphError(
                f"Attribute {weight!r} of edge ({a!r}, {b!r}) must be a number in the range of a float, got "
                f"{short_repr(value)}."
            ) from error
        sources.append(positions[a])
        targets.append(positions[b])
    ends = (np.array(sources, dtype=np.int64), np.array(targets, dtype=np.int64))
    return EdgeArrays(len(labels), *ends, np.array(weights, dtype=np.float64), labels)


def read_gml(path: str | Path) -> Any:
    """Return the graph of a GML file; its nodes are the labels of the file.

    Args:
        path: The file.

    Returns:
        A networkx graph.

    Raises:
        FileFormatError: If the file is missing, empty or not GML.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import networkx as nx
        >>> from graphs.builders import read_gml
        >>> path = Path(tempfile.mkdtemp()) / "path.gml"
        >>> nx.write_gml(nx.path_graph(3), path)
        >>> list(read_gml(path))
        ['0', '1', '2']
    """
    with requires_extra("graphs"):
        import networkx as nx

    file = check_file(path, "a GML graph")
    try:
        return nx.read_gml(file)
    except Exception as error:  # the parser takes what it reads for keys and numbers: a node's id may be a list
        raise FileFormatError(f"{file} must be a GML graph, got an error: {one_line(error)}") from error
