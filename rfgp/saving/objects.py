"""Graphs, road networks and meshes in files, as JSON and arrays."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import graphs
from graphs.builders.junctions import RoadEdges
from graphs.builders.lines import Lines
from graphs.builders.points import GridLabels
from graphs.checks import is_count
from rfgp.errors import InvalidArgumentError
from rfgp.saving.container import Json

Arrays = Mapping[str, NDArray[Any]]

_LINES = {"coordinates": "f", "lengths": "f", "points": "f", "first": "i", "reached": "f"}
_EDGES = {
    "road": "i",
    "begin": "f",  # `RoadEdges.start`
    "end": "f",
    "source": "i",
    "target": "i",
    "representative": "i",
    "is_reversed": "b",
}
_ENDS = {"starts": "i", "ends": "i"}
"""The kinds of the arrays of roads in files. Formats 1 and 2 have ends of roads instead of edges."""


# --- graphs ----------------------------------------------------------------------------------------


def encode_graph(graph: graphs.Graph) -> tuple[Json, dict[str, NDArray[Any]]]:
    """Return a graph as JSON and arrays.

    The arrays are the adjacency (N, N) in CSR form, and coordinates (N, d).

    Args:
        graph: The graph.

    Raises:
        InvalidArgumentError: If a label cannot be written as JSON.
    """
    described = {
        **_encode_labels(graph.labels),
        "num_self_loops_dropped": graph.num_self_loops_dropped,
        "laplacian": graph.laplacian,
    }
    matrix = graph.adjacency
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    if graph.coordinates is not None:
        arrays["coordinates"] = graph.coordinates
    return described, arrays


def decode_graph(described: Mapping[str, Any], arrays: Arrays) -> graphs.Graph:
    """Return the graph that `encode_graph` wrote.

    Args:
        described: The JSON.
        arrays: The arrays (...) by name.

    Raises:
        InvalidArgumentError: If the parts are inconsistent.
    """
    _check_sparse(arrays)
    size = len(arrays["indptr"]) - 1
    matrix = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(size, size))
    matrix.check_format(full_check=True)
    graph = graphs.Graph.from_scipy(matrix, _decode_labels(described), self_loops="keep")
    coordinates = arrays.get("coordinates")
    if coordinates is not None and (coordinates.shape not in ((size, 2), (size, 3)) or coordinates.dtype.kind != "f"):
        raise InvalidArgumentError(f"coordinates must match {size} nodes, got shape {coordinates.shape}")
    dropped = int(described["num_self_loops_dropped"])
    graph = graph.with_laplacian(described["laplacian"])
    graph = replace(graph, coordinates=coordinates, num_self_loops_dropped=dropped)
    computed = _computed_labels(described)
    if computed is not None and (graph.labels is not None or len(computed) != size):
        raise InvalidArgumentError(f"the labels of the grid or mesh must match {size} nodes")
    return graph if computed is None else replace(graph, labels=computed)


def _check_sparse(arrays: Arrays) -> None:
    """Check that arrays form a CSR matrix, because scipy writes out of bounds for some invalid `indptr`."""
    for name, kind in {"data": "f", "indices": "i", "indptr": "i"}.items():
        if arrays[name].ndim != 1 or arrays[name].dtype.kind != kind:
            raise InvalidArgumentError(
                f"{name} of the graph must be valid, got {arrays[name].dtype} of shape {arrays[name].shape}"
            )
    ends, entries = arrays["indptr"], len(arrays["indices"])
    if len(ends) < 2 or ends[0] != 0 or ends[-1] != entries or (ends[1:] < ends[:-1]).any():
        raise InvalidArgumentError("the rows of the graph's adjacency must be in order")
    if len(arrays["data"]) != entries:
        raise InvalidArgumentError("the graph must have one weight for each edge")


def _encode_labels(labels: Sequence[Hashable] | None) -> Json:
    """Return labels as JSON. Labels that follow from positions are the shape of a grid, or numbers."""
    computed = isinstance(labels, range | GridLabels)
    kind = {"grid": list(labels.shape)} if isinstance(labels, GridLabels) else {"numbers": len(labels or ())}
    listed = None if labels is None or computed else [_encode_label(label) for label in labels]
    return {"labels": listed, "has_labels": listed is not None, **(kind if computed else {})}


def _decode_labels(described: Mapping[str, Any]) -> list[Hashable] | None:
    labels = described["labels"]
    if described["has_labels"] != (labels is not None):
        raise InvalidArgumentError("the graph must have labels of its nodes")
    return None if labels is None else [_decode_label(label) for label in labels]


def _computed_labels(described: Mapping[str, Any]) -> range | GridLabels | None:
    """Return the labels of a grid or a mesh."""
    if "grid" in described:
        shape = described["grid"]
        if not isinstance(shape, list) or not shape or not all(is_count(size) and size > 0 for size in shape):
            raise InvalidArgumentError("the shape of the grid must have positive integers")
        return GridLabels(tuple(shape))
    return range(described["numbers"]) if "numbers" in described else None


def _encode_label(label: Hashable) -> Any:
    """Return a label as JSON. Tuples become lists, which are never labels."""
    if isinstance(label, tuple):
        return [_encode_label(part) for part in label]
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or isinstance(label, bool | int | str) or (isinstance(label, float) and np.isfinite(label)):
        return label
    raise InvalidArgumentError(
        f"The node label {label!r} ({type(label).__name__}) cannot be saved; texts, numbers, None and tuples of them "
        "can."
    )


def _decode_label(label: Any) -> Hashable:
    return tuple(_decode_label(part) for part in label) if isinstance(label, list) else label


# --- roads and meshes ------------------------------------------------------------------------------


def encode_roads(network: graphs.RoadNetwork) -> tuple[Json, dict[str, NDArray[Any]]]:
    """Return a road network as JSON and arrays (...).

    Args:
        network: The road network.
    """
    held = {**vars(network), **network.lines._asdict(), **network.edges._asdict(), "begin": network.edges.start}
    return {"metric": network.lines.metric}, {name: held[name] for name in (*_LINES, *_EDGES)}


def decode_roads(described: Mapping[str, Any], arrays: Arrays) -> graphs.RoadNetwork:
    """Return the road network that `encode_roads` wrote.

    Args:
        described: The JSON.
        arrays: The arrays (...) by name.

    Raises:
        InvalidArgumentError: If the parts are inconsistent.
    """
    ends = _ENDS if "starts" in arrays else _EDGES
    for name, kind in (_LINES | ends).items():
        if arrays[name].dtype.kind != kind or arrays[name].ndim != (2 if name in ("coordinates", "points") else 1):
            raise InvalidArgumentError(
                f"{name} of the roads must be valid, got {arrays[name].dtype} of shape {arrays[name].shape}"
            )
    vertices, first = len(arrays["coordinates"]), arrays["first"]
    is_chain = len(first) > 1 and first[0] == 0 and (np.diff(first) >= 2).all()
    if not is_chain or first[-1] != len(arrays["points"]) or len(arrays["reached"]) != len(arrays["points"]):
        raise InvalidArgumentError("the lines of the roads must be in order")
    reached = np.diff(arrays["reached"])
    reached[first[1:-1] - 1] = 0.0  # from one line to the next
    if (arrays["reached"][first[:-1]] != 0).any() or not (reached >= 0).all() or not np.isfinite(reached).all():
        raise InvalidArgumentError("the lines of the roads must get longer from point to point")
    if described["metric"] not in ("haversine", "euclidean"):
        raise InvalidArgumentError(f"the metric of the roads must be known, got {str(described['metric'])[:20]!r}")
    if arrays["points"].shape[1:] != (2,) or arrays["coordinates"].shape[1:] != (2,):
        raise InvalidArgumentError("the coordinates of the roads must be pairs")
    of_ends = [arrays[name] for name in ends]
    edges = RoadEdges.of_ends(*of_ends) if ends is _ENDS else RoadEdges(*of_ends)
    edges.check(len(first) - 1, vertices)
    lines = Lines(arrays["points"], first, arrays["reached"], described["metric"])
    return graphs.RoadNetwork(arrays["coordinates"], edges, arrays["lengths"], lines)


def encode_mesh(mesh: graphs.MeshField) -> tuple[Json, dict[str, NDArray[Any]]]:
    """Return a mesh field as JSON and arrays: vertices (V, d) and faces (F, 3).

    Args:
        mesh: The mesh field.
    """
    return {"alpha": mesh.alpha}, {"vertices": mesh.vertices, "faces": mesh.faces}


def decode_mesh(described: Mapping[str, Any], arrays: Arrays) -> graphs.MeshField:
    """Return the mesh field that `encode_mesh` wrote.

    Args:
        described: The JSON.
        arrays: The vertices (V, d) and the faces (F, 3) by name.
    """
    return graphs.MeshField((arrays["vertices"], arrays["faces"]), described["alpha"])
