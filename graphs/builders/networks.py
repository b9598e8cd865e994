"""networkx graphs and GML files to edges."""

from pathlib import Path
from typing import Any

import numpy as np

from graphs.builders.edges import EdgeArrays
from graphs.builders.files import brief, check_file
from graphs.checks import is_hashable, shown
from graphs.errors import FileFormatError, InvalidArgumentError, InvalidGraphError


def from_networkx(graph: Any, weight: str | None) -> EdgeArrays:
    """Read a networkx graph; an edge without the attribute `weight` weighs 1, as in networkx."""
    if not hasattr(graph, "is_directed"):
        raise InvalidGraphError(
            f"A networkx graph is needed, got {type(graph).__name__}; matrices go into Graph.from_scipy, pairs of "
            "labels into Graph.from_edges."
        )
    if not is_hashable(weight):
        raise InvalidArgumentError(f"weight must be the name of an edge attribute or None, got {shown(weight)}.")
    if graph.is_directed():
        raise InvalidGraphError(
            "Directed graphs are not supported. Pass graph.to_undirected() if direction can be ignored."
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
                f"Attribute {weight!r} of edge ({a!r}, {b!r}) is {shown(value)}, not a number in the range of a float."
            ) from error
        sources.append(positions[a])
        targets.append(positions[b])
    ends = (np.array(sources, dtype=np.int64), np.array(targets, dtype=np.int64))
    return EdgeArrays(len(labels), *ends, np.array(weights, dtype=np.float64), labels)


def read_gml(path: str | Path) -> Any:
    """Read a GML file into a networkx graph whose nodes are the file's labels.

    Raises:
        FileFormatError: the file is missing, empty or not GML.
    """
    import networkx as nx

    file = check_file(path, "a GML graph")
    try:
        return nx.read_gml(file)
    except Exception as error:  # the parser takes what it reads for keys and numbers: a node's id may be a list
        raise FileFormatError(f"{file} is not a GML graph: {brief(error)}") from error
