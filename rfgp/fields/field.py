"""A field: a graph in space with values at some of its nodes."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

import graphs
from graphs.builders.roads import Piece, join_ends, num_parts
from rfgp.errors import InvalidArgumentError

_SNAP = 1.0
"""Metres, or the plane's units: what is tried where roads fall into parts."""


@dataclass(frozen=True, eq=False)
class Field:
    """Values at some nodes of a graph that lies in space.

    Attributes:
        graph: The graph, with coordinates.
        nodes: Labels (n,) of the observed nodes; a node may occur more than once.
        values: The values there (n,).
        quantity: What the values are, in words.
        train_share: The usual share of them to train on.
        mesh: The `trimesh.Trimesh`, for a field on a mesh.
        on_faces: Whether the nodes are the mesh's faces (else its vertices).
        roads: The roads, for a field on roads.
        exact_places: Where the observations are, for a process that is defined between nodes: points of the surface
            (n, 3), or positions (n, 2) of `graphs.RoadNetwork`; None: at their nodes.
    """

    graph: graphs.Graph
    nodes: NDArray[Any]
    values: NDArray[np.float64]
    quantity: str
    train_share: float = 0.95
    mesh: Any = None
    on_faces: bool = True
    roads: graphs.Roads | None = None
    exact_places: NDArray[np.float64] | None = None

    @property
    def labels(self) -> list[Any]:
        """The labels of all N nodes."""
        labels = self.graph.labels
        return list(range(self.graph.num_nodes)) if labels is None else list(labels)

    @property
    def coordinates(self) -> NDArray[np.float64]:
        """Where the nodes are, (N, 2) in degrees or (N, 3) in the mesh's units."""
        assert self.graph.coordinates is not None
        return self.graph.coordinates

    @cached_property
    def node_places(self) -> NDArray[np.float64]:
        """Where the nodes are, for a process that is defined between them: points (N, 3), or positions on roads (N, 2).

        A crossing is at an end of the first road that has one there.
        """
        if self.roads is None:
            return self.coordinates
        ends = np.concatenate([line[[0, -1]] for line in self.roads.lines])
        first = np.unique(join_ends(ends, self.roads.metric, self.roads.snap)[1], return_index=True)[1]
        edges, fractions, _ = self.roads.places()
        crossings = np.stack([first // 2, first % 2], axis=1).astype(np.float64)
        return np.concatenate([crossings, np.stack([edges, fractions], axis=1)])

    @property
    def places(self) -> NDArray[np.float64]:
        """Where the observations are, (n, 3) or (n, 2), like `node_places`."""
        if self.exact_places is not None:
            return self.exact_places
        return self.node_places[self.graph.index(self.nodes)]

    @cached_property
    def part(self) -> NDArray[np.int32]:
        """The connected part (N,) of each node, from 0."""
        return np.asarray(connected_components(self.graph.adjacency, directed=False)[1])

    def describe_parts(self) -> str:
        """Say into how many parts the graph falls, and what follows from it; "" for a single one."""
        sizes = np.bincount(self.part)
        if len(sizes) == 1:
            return ""
        if self.mesh is not None and self.graph.num_edges == 0:
            return (
                f"No two of the mesh's {len(sizes):,} faces share an edge: what is observed at one says nothing about "
                "the others. If they are meant to touch, their corners lie apart: merge close vertices, in the program "
                "that made the mesh."
            )
        silent = len(sizes) - len(np.unique(self.part[self.graph.index(self.nodes)]))
        what = "roads" if self.mesh is None else "mesh"
        text = (
            f"The {what} fall{'s' * (what == 'mesh')} into {len(sizes):,} parts without a way between them, the "
            f"largest of {sizes.max():,} of {len(self.part):,} nodes: what is observed in one says nothing about the "
            "others."
        )
        if silent:
            those = "One part has" if silent == 1 else f"{silent:,} parts have"
            text += f" {those} no observation; the prior's mean and standard deviation stand there."
        ends = " Lines join at their ends alone: where they cross in between, they do not meet." if self.roads else ""
        return text + ends + self._snap_hint(len(sizes))

    def _snap_hint(self, parts: int) -> str:
        """Return how many parts of roads a tolerance would leave, where it would help."""
        if self.roads is None or self.roads.snap >= _SNAP:
            return ""
        try:
            left = num_parts(self.roads.lines, self.roads.metric, _SNAP)
        except graphs.InvalidGraphError:  # too large a tolerance for these units
            return ""
        unit = "m" if self.roads.metric == "haversine" else "in the units of the plane"
        joined = f" Joining road ends that miss each other by at most {_SNAP:g} {unit}, snap={_SNAP:g}, would leave"
        return f"{joined} {left:,}." if left < parts else ""

    def pieces(self) -> list[Piece]:
        """Return the pieces of road between neighbouring nodes, which are positions in the graph.

        Raises:
            InvalidArgumentError: the field is not on roads.
        """
        if self.roads is None:
            raise InvalidArgumentError("This field is not on roads.")
        edges, fractions, _ = self.roads.places()
        return graphs.cut_roads(self.roads.lines, edges, fractions, self.roads.metric, self.roads.snap)[2]


def warn_of_parts(field: Field) -> Field:
    """Return the field, with a warning where its graph falls into parts."""
    if text := field.describe_parts():
        warnings.warn(graphs.DisconnectedWarning(text), stacklevel=3)
    return field
