"""Surfaces from files, with nodes by their numbers in the file or by position."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

import graphs
from graphs.builders.lines import DEFAULT_LIMIT_FRACTION
from graphs.builders.mesh_files import MeshFile, angles
from graphs.precisions.elements import Location, Locator
from graphs.precisions.mesh import too_far_message
from rfgp.errors import DataError
from rfgp.fields.field import Field
from rfgp.tables import Table

Integers = NDArray[np.int64]

_COUNTED = "Rows count from 0, after the header."
_LISTED = 8
"""The largest number of faces or vertices that a message lists."""


@dataclass(frozen=True, eq=False)
class Surface:
    """A mesh with the graph on which fields are read.

    Attributes:
        file: The mesh in the numbering of its file.
        path: The file.
        weights: The weights of the edges.
        nodes: "faces" or "vertices".
        within: The largest distance of a point from the surface. If None, a tenth of the diagonal of the bounding box.
    """

    file: MeshFile
    path: Path
    weights: str
    nodes: str
    within: float | None

    @property
    def on_faces(self) -> bool:
        """Whether the nodes are faces."""
        return self.nodes == "faces"

    @cached_property
    def graph(self) -> graphs.Graph:
        """The graph of the nodes."""
        return graphs.Graph.from_mesh(self.mesh, nodes=self.nodes, weights=self.weights)

    @cached_property
    def _kept(self) -> tuple[Any, Integers]:
        """The mesh without vertices off the surface, and the new vertices (K,)."""
        mesh, numbers = self.file.mesh, self.file.vertices
        loose = np.setdiff1d(np.arange(len(mesh.vertices)), mesh.faces)
        far = loose[self.located(mesh.vertices[loose]).distances > self.limit] if len(loose) else loose
        if len(far):
            keep = np.setdiff1d(np.arange(len(mesh.vertices)), far)
            renumbered = np.full(len(mesh.vertices) + 1, -1, dtype=np.int64)  # the last is for missing ones
            renumbered[keep] = np.arange(len(keep))
            mesh, numbers = mesh.copy(), renumbered[numbers]
            mesh.update_vertices(keep)
        if (numbers < 0).any():
            count = int((numbers < 0).sum())
            message = f"{self.path.name}: {count} of {len(numbers)} vertices are on no face and have no value."
            warnings.warn(graphs.UnreferencedVerticesWarning(message), stacklevel=6)
        return mesh, numbers

    @property
    def mesh(self) -> Any:
        """The mesh."""
        return self.file.mesh if self.on_faces else self._kept[0]

    @property
    def node_of_element(self) -> Integers | None:
        """The node of each face or vertex of the file, or -1 without one. None if the file has polygons."""
        return self.file.faces if self.on_faces else self._kept[1]

    @cached_property
    def limit(self) -> float:
        """The largest distance of a point from the surface."""
        corners = np.asarray(self.file.mesh.vertices)[np.unique(self.file.mesh.faces)]
        return (
            DEFAULT_LIMIT_FRACTION * float(np.linalg.norm(np.ptp(corners, axis=0)))
            if self.within is None
            else self.within
        )

    def located(
        self,
        points: NDArray[np.float64],  # (n, 3)
    ) -> Location:
        """Return the nearest points of the surface to given points.

        Args:
            points: Points (n, 3).
        """
        vertices = np.array(self.file.mesh.vertices, dtype=np.float64)
        faces = np.array(self.file.mesh.faces, dtype=np.int64)
        with_area = np.flatnonzero(~angles(vertices, faces).flat)
        location = Locator(vertices, faces[with_area]).nearest(np.asarray(points, dtype=np.float64))
        return location._replace(faces=with_area[location.faces])

    def nearest(
        self,
        points: NDArray[np.float64],  # (n, 3)
        rows: Integers,  # (n,)
        table: Path,
    ) -> Integers:  # (n,)
        """Return the nodes that are nearest to the points in the rows of a table.

        Args:
            points: Points (n, 3).
            rows: The rows (n,) of the points in the table, for messages.
            table: The file of the table, for messages.

        Raises:
            DataError: If a point is farther from the surface than the limit.
        """
        location = self.located(points)
        worst = int(location.distances.argmax())
        if location.distances[worst] > self.limit:
            message = too_far_message(int(rows[worst]), float(location.distances[worst]), self.limit)
            raise DataError(f"{table}: {message}")
        nearest = location.faces if self.on_faces else KDTree(self.mesh.vertices).query(points)[1]
        return np.asarray(nearest, dtype=np.int64)

    @property
    def normals(self) -> NDArray[np.float64]:
        """The z component of the normal at every node, (N,)."""
        return np.array((self.mesh.face_normals if self.on_faces else self.mesh.vertex_normals)[:, 2])

    @property
    def quantity(self) -> str:
        """The name of `normals`."""
        return f"z of the {'face' if self.on_faces else 'vertex'} normal"

    def field(
        self,
        nodes: Integers,  # (n,)
        values: NDArray[np.float64],  # (n,)
        quantity: str,
        points: NDArray[np.float64] | None = None,  # (n, 3)
        **groups: Any,
    ) -> Field:
        """Return the field of values at nodes.

        Args:
            nodes: The nodes (n,).
            values: The values (n,).
            quantity: The name of the values.
            points: The points (n, 3) of the observations. If None, observations are at their nodes.
            groups: `groups` and `group_name` of `Field`, if there are groups.
        """
        numbers = self.node_of_element
        trivial = numbers is None or np.array_equal(numbers, np.arange(self.graph.num_nodes))
        options: dict[str, Any] = {"exact_positions": points, "node_of_element": None if trivial else numbers, **groups}
        return Field(self.graph, nodes, values, quantity, mesh=self.mesh, on_faces=self.on_faces, **options)

    def numbered(self, table: Table, file: Path) -> Integers:
        """Return the nodes (n,) with the numbers of the mesh file in the rows of a table.

        Args:
            table: The table. Its first input is the number of the face or vertex.
            file: The file of the table, for messages.

        Raises:
            DataError: If a number is not in the file, or its face or vertex has no value.
        """
        kind, kinds = ("face", "faces") if self.on_faces else ("vertex", "vertices")
        if self.node_of_element is None:
            raise DataError(
                f"{self.path} must have triangles for face numbers, got polygons, which are "
                f"{len(self.file.mesh.faces)} triangles. Give x, y and z."
            )
        numbers, count = table.X[:, 0], len(self.node_of_element)
        wrong = np.array((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= count))
        if wrong.any():
            row = int(wrong.argmax())
            problem = f"row {table.rows[row]} must name a {kind} from 0 to {count - 1}, got {numbers[row]:g}"
            raise DataError(f"{file}: {problem}. {_COUNTED}")
        nodes = self.node_of_element[numbers.astype(np.int64)]
        if nodes.min(initial=0) < 0:
            missing = np.unique(numbers[nodes < 0]).astype(np.int64)
            listed = ", ".join(map(str, missing[:_LISTED])) + (", ..." if len(missing) > _LISTED else "")
            without = "without area" if self.on_faces else "on no face"
            raise DataError(
                f"{file}: values must be at {kinds} of the surface, got {len(missing)} {without}: {listed}. Leave "
                "their rows out."
            )
        return nodes
