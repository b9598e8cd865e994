"""A field: a graph in space with values at some of its nodes."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

import graphs
from graphs.builders.junctions import join_lines
from graphs.builders.lines import as_lines
from graphs.builders.roads import CutRoads, Piece, connected_parts
from rfgp.errors import InvalidArgumentError

_SNAP = 1.0
"""Metres, or the plane's units: what is tried where roads fall into parts."""


@dataclass(frozen=True, eq=False)
class Field:
    """Values at some nodes of a graph in space.

    Attributes:
        graph: The graph, with coordinates.
        nodes: Labels (n,) of the observed nodes. A node may occur more than once.
        values: The values there (n,).
        quantity: The name of the quantity.
        train_share: The default share of values to train on.
        mesh: The `trimesh.Trimesh`, for a field on a mesh.
        on_faces: Whether nodes are faces of the mesh. If not, they are vertices.
        roads: The roads, for a field on roads.
        exact_places: The places of observations between nodes: points of the surface (n, 3), or positions (n, 2) of
            `graphs.RoadNetwork`. If None, observations are at their nodes.
        groups: Numbers or texts (n,) of groups that stay together when observations are held out. If None,
            observations of one node stay together.
        group_name: The name of the groups.
        numbers: The nodes (K,) of all faces or vertices of the mesh's file, with -1 for those without a node. If None,
            nodes are numbered as in the file.
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
    groups: NDArray[Any] | None = None
    group_name: str = ""
    numbers: NDArray[np.int64] | None = None

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

        A crossing is at its first position, road after road.
        """
        return self.coordinates if self.roads is None else self.cut_roads.positions

    @cached_property
    def cut_roads(self) -> CutRoads:
        """The roads cut at their crossings and at the places of sensors.

        Raises:
            InvalidArgumentError: The field is not on roads.
        """
        if self.roads is None:
            raise InvalidArgumentError("This field is not on roads.")
        edges, fractions, _ = self.roads.places()
        roads = self.roads
        return graphs.cut_roads(roads.lines, edges, fractions, roads.metric, roads.snap, roads.duplicates)

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
            text += f" {those} no observation. Predictions there are the mean and standard deviation of the prior."
        if self.roads is not None:
            text += " Roads meet only at shared points, and not where they cross between points."
        return text + self._snap_hint(len(sizes))

    def _snap_hint(self, parts: int) -> str:
        """Return how many parts of roads a tolerance would leave, if it would help."""
        if self.roads is None or self.roads.snap >= _SNAP:
            return ""
        try:
            joined = join_lines(as_lines(self.roads.lines, self.roads.metric), _SNAP)
        except graphs.InvalidGraphError:  # too large a tolerance for these units
            return ""
        ends = joined.stretches.source, joined.stretches.target
        left = int(connected_parts(*ends, len(joined.coordinates)).max()) + 1
        unit = "m" if self.roads.metric == "haversine" else "in the units of the plane"
        joining = f" Joining points that miss each other by at most {_SNAP:g} {unit}, snap={_SNAP:g}, would leave"
        return f"{joining} {left:,}." if left < parts else ""

    def pieces(self) -> list[Piece]:
        """Return the pieces of road between neighbouring nodes, which are positions in the graph.

        Raises:
            InvalidArgumentError: The field is not on roads.
        """
        return self.cut_roads.pieces


def warn_of_parts(field: Field) -> Field:
    """Return the field, with a warning where its graph falls into parts."""
    if text := field.describe_parts():
        warnings.warn(graphs.DisconnectedWarning(text), stacklevel=3)
    return field
