"""networkx graphs and GML files as edges."""

from pathlib import Path
from typing import Any

import numpy as np

from graphs.builders.edges import EdgeArrays
from graphs.builders.files import check_file
from graphs.checks import is_hashable, one_line, short_repr
from graphs.errors import FileFormatError, InvalidArgumentError, InvalidGraphError, requires_extra


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
