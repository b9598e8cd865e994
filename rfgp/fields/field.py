"""A field: a graph in space with values at some of its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

import graphs
from graphs.arrays import component_of_nodes
from graphs.builders.lines import Lines
from graphs.builders.roads import RoadSegment, SplitRoads
from graphs.builders.snapping import MAX_WIDTH
from graphs.errors import warn
from rfgp.errors import InvalidArgumentError, requires_extra
from rfgp.kernels.fields import POINT_COLUMNS, ROAD_COLUMNS

_SNAP = 1.0
"""The tolerance that a message suggests for disconnected roads, in meters or the plane's units."""


@dataclass(frozen=True, eq=False)
class Field:
    """Values at some nodes of a graph in space.

    Attributes:
        graph: The graph, with coordinates.
        nodes: Labels (n,) of the observed nodes. A node may occur more than once.
        values: The values (n,) of the observations.
        quantity: The name of the quantity.
        train_share: The default fraction of values to train on.
        mesh: The `trimesh.Trimesh`, for a field on a mesh.
        on_faces: Whether nodes are faces of the mesh. Otherwise they are vertices.
        roads: The roads, for a field on roads.
        exact_positions: The positions of observations between nodes: points of the surface (n, 3), or positions
            (n, 2) of `graphs.RoadNetwork`. If None, observations are at their nodes.
        groups: Numbers or texts (n,) of groups that are held out together. If None, groups are nodes.
        group_name: The name of the groups.
        node_of_element: The node (K,) of each face or vertex of the mesh file, -1 for those without a node. If None,
            nodes are numbered as in the file.
        columns: Further inputs by name: values of all R roads, or of all N nodes of a mesh.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> from rfgp import fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     field = fields.read_mesh_field(f"{folder}/sphere.ply")
        >>> field.values.shape, field.coordinates.shape
        ((80,), (80, 3))
    """

    graph: graphs.Graph
    nodes: NDArray[Any]
    values: NDArray[np.float64]
    quantity: str
    train_share: float = 0.95
    mesh: Any = None
    on_faces: bool = True
    roads: graphs.Roads | None = None
    exact_positions: NDArray[np.float64] | None = None
    groups: NDArray[Any] | None = None
    group_name: str = ""
    node_of_element: NDArray[np.int64] | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def labels(self) -> list[Any]:
        """The labels of all N nodes."""
        labels = self.graph.labels
        return list(range(self.graph.num_nodes)) if labels is None else list(labels)

    @property
    def coordinates(self) -> NDArray[np.float64]:
        """The coordinates of the nodes, (N, 2) in degrees or (N, 3) in the unit of the mesh."""
        assert self.graph.coordinates is not None
        return self.graph.coordinates

    @cached_property
    def node_positions(self) -> NDArray[np.float64]:
        """The positions of nodes: points (N, 3), or positions on roads (N, 2).

        A crossing has its position on the first of its roads.
        """
        return self.coordinates if self.roads is None else self.split_roads.positions

    @cached_property
    def split_roads(self) -> SplitRoads:
        """The roads, split at crossings and sensors.

        Raises:
            InvalidArgumentError: If the field is not on roads.
        """
        if self.roads is None:
            raise InvalidArgumentError("split_roads requires a field on roads, got one on a mesh.")
        numbers, fractions, _ = self.roads.sensor_positions()
        roads = self.roads
        return graphs.split_roads(roads.lines, numbers, fractions, roads.metric, roads.snap, roads.duplicates)

    @property
    def observed_positions(self) -> NDArray[np.float64]:
        """The positions of the observations, as inputs of a process between nodes, (n, 3) or (n, 2)."""
        if self.exact_positions is not None:
            return self.exact_positions
        return self.node_positions[self.graph.index(self.nodes)]

    def frame(
        self,
        positions: NDArray[np.float64],  # (n, d)
        nodes: NDArray[Any] | None = None,  # (n,)
    ) -> Any:
        """Return positions and further inputs as a dataframe (n, d + c).

        Args:
            positions: Points of the surface (n, 3), or positions on roads (n, 2).
            nodes: The numbers (n,) of the nodes on a mesh whose further inputs are taken. Roads do not need them.
        """
        with requires_extra("tables"):
            import pandas as pd

        names = ROAD_COLUMNS if self.mesh is None else POINT_COLUMNS
        places = positions[:, 0].astype(np.int64) if self.mesh is None else nodes
        further = {name: values[places] for name, values in self.columns.items()}
        return pd.DataFrame({**dict(zip(names, positions.T, strict=True)), **further})

    @cached_property
    def component(self) -> NDArray[np.int32]:
        """The connected component (N,) of each node, from 0."""
        return np.asarray(connected_components(self.graph.adjacency, directed=False)[1])

    def describe_components(self) -> str:
        """Return a message about the connected components of the graph, or "" if it has one."""
        sizes = np.bincount(self.component)
        if len(sizes) == 1:
            return ""
        if self.mesh is not None and self.graph.num_edges == 0:
            return (
                f"No two of the mesh's {len(sizes):,} faces share an edge, so that observations of one do not inform "
                "predictions of others. If faces should touch, merge close vertices in the program that made the mesh."
            )
        num_unobserved = len(sizes) - len(np.unique(self.component[self.graph.index(self.nodes)]))
        subject = "roads have" if self.mesh is None else "mesh has"
        text = (
            f"The {subject} {len(sizes):,} connected components, the largest with {sizes.max():,} of "
            f"{len(self.component):,} nodes. Observations in one do not inform predictions in the others."
        )
        if num_unobserved:
            subject = "One component has" if num_unobserved == 1 else f"{num_unobserved:,} components have"
            text += f" {subject} no observation. Predictions there are the mean and standard deviation of the prior."
        if self.roads is not None:
            text += " Roads meet only at shared points (of equal height), and not where they cross between points."
        return text + self._snap_hint(len(sizes))

    def _snap_hint(self, num_components: int) -> str:
        """Return a sentence about a tolerance that would join components of roads, or nothing."""
        if self.roads is None or self.roads.snap >= _SNAP:
            return ""
        try:
            joined = Lines.of(self.roads.lines, self.roads.metric).join(_SNAP)
        except graphs.GraphError:
            return ""
        if joined.width > MAX_WIDTH:  # the tolerance is too large for these units
            return ""
        ends = joined.edges.source, joined.edges.target
        num_left = int(component_of_nodes(*ends, len(joined.coordinates)).max()) + 1
        unit = "m" if self.roads.metric == "haversine" else "in the units of the plane"
        joining = f" Joining points at most {_SNAP:g} {unit} apart, snap={_SNAP:g}, would leave"
        return f"{joining} {num_left:,}." if num_left < num_components else ""

    def segments(self) -> list[RoadSegment]:
        """Return the road segments between neighboring nodes.

        Raises:
            InvalidArgumentError: If the field is not on roads.
        """
        return self.split_roads.segments


def warn_of_components(field: Field) -> Field:
    """Return the field, with a warning if its graph is disconnected.

    Args:
        field: The field.

    Warns:
        graphs.DisconnectedWarning: If the graph is disconnected.
    """
    if text := field.describe_components():
        warn(graphs.DisconnectedWarning(text))
    return field


def check_field(field: Field) -> Field:
    """Return a field after a check that it is one, and not a mesh or a network.

    Args:
        field: The field.

    Raises:
        InvalidArgumentError: If it is not a `Field`.

    Examples:
        >>> import trimesh
        >>> from rfgp.fields.field import check_field
        >>> check_field(trimesh.creation.icosphere(1))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        graphs.errors.InvalidArgumentError: field must be an rfgp.fields.Field, got Trimesh. Read one with...
    """
    if not isinstance(field, Field):
        raise InvalidArgumentError(
            f"field must be an rfgp.fields.Field, got {type(field).__name__}. Read one with rfgp.fields.read_field, or "
            "pass a mesh or network itself to rfgp.MeshGP or rfgp.RoadGP, and their results to rfgp.plotting."
        )
    return field
