"""Readers of fields on meshes, with values from tables or from properties of the mesh file.

A `Surface` is a mesh with the graph of its faces or vertices. It makes fields of values at numbers of the file, or at
points. `_Columns` are those of a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

import graphs
from graphs.arrays import identifies_rows
from graphs.builders.lines import DEFAULT_LIMIT_FRACTION
from graphs.builders.mesh_files import MeshFile, angles, read_mesh_file
from graphs.checks import check_choice
from graphs.errors import warn
from graphs.precisions.elements import Location, Locator
from graphs.precisions.mesh import too_far_message
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields.field import Field, warn_of_components
from rfgp.messages import listed
from rfgp.tables import Table, read_groups, read_kinds, read_table

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_PLACES = ({"face"}, {"vertex"}, {"x", "y", "z"})
_COUNTED = "Rows count from 0, after the header."


def read_mesh_field(
    path: str | Path,
    values: str | Path | None = None,
    *,
    target: str | None = None,
    weights: str = "unit",
    nodes: str | None = None,
    within: float | None = None,
    table_options: Mapping[str, Any] | None = None,
) -> Field:
    """Read a mesh and one field on it; see `read_mesh_fields` for several fields.

    Args:
        path: The file of the mesh.
        values: A table. If None, `target` is a property of the mesh file.
        target: The column or property to interpolate. If None, the only column of values of the table.
        weights: The weights of the edges, as for `read_mesh_fields`.
        nodes: "faces" or "vertices", as for `read_mesh_fields`.
        within: The largest distance of a point from the surface, as for `read_mesh_fields`.
        table_options: Options of `rfgp.tables.read_table`.

    Returns:
        The field.

    Raises:
        InvalidArgumentError: If several columns have values, and `target` is None.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     read_mesh_field(f"{folder}/sphere.ply").graph.num_nodes
        80
    """
    targets = None if target is None else [target]
    options: dict[str, Any] = {"weights": weights, "nodes": nodes, "within": within, "table_options": table_options}
    fields = read_mesh_fields(path, values, targets=targets, **options)
    if len(fields) > 1:
        raise InvalidArgumentError(f"target must be one of {', '.join(fields)}, got None.")
    return next(iter(fields.values()))


def read_mesh_fields(
    path: str | Path,
    values: str | Path | None = None,
    *,
    targets: Sequence[str] | None = None,
    weights: str = "unit",
    nodes: str | None = None,
    within: float | None = None,
    table_options: Mapping[str, Any] | None = None,
    group: str | None = None,
    columns: Sequence[str] = (),
) -> dict[str, Field]:
    """Read a mesh and one field for each of several columns or properties.

    Faces and vertices have the numbers of the mesh file, from 0, even if vertices at the same position are merged
    (STL). A vertex without a face has no value. It cannot be observed, and is listed without a prediction.

    Args:
        path: The file of the mesh.
        values: A table (CSV or Parquet) with columns of positions and of values. Columns of positions are `face` or
            `vertex` (numbers), or `x`, `y` and `z` in the unit of the mesh. Points are assigned to the nearest face or
            vertex. Capitals are allowed. If None, the targets are properties of the mesh file (.ply, .vtk, .vtu, .msh).
        targets: The columns or properties to interpolate. If None, all columns of numbers that do not identify rows, or
            without a table the z component of the normals.
        weights: The weights of the edges: "unit", "edge-length" or, between vertices, "cotangent"
            (`graphs.Graph.from_mesh`).
        nodes: "faces" or "vertices". If None, they follow from the table or the property, and are faces by default.
        within: The largest distance of a point from the surface, in the unit of the mesh. If None, a tenth of the
            diagonal of the bounding box of the mesh, as for `rfgp.MeshGP`.
        table_options: Options of `rfgp.tables.read_table`.
        group: A column of the table, such as a specimen, whose groups are held out together. If None, groups are faces
            or vertices.
        columns: Further inputs: properties of the mesh file, or columns of the table with a value for every face or
            vertex.

    Returns:
        The fields by the names of their values.

    Raises:
        graphs.InvalidArgumentError: If the weights or nodes are unknown, or weights are "cotangent" for faces.
        InvalidArgumentError: If a column does not exist.
        DataError: If the table has no positions, names faces or vertices without a value, or has points far from the
            mesh. Also if a property does not exist, or a further input is missing somewhere.
        FileFormatError: If the mesh is missing, empty or of another format.

    Warns:
        graphs.DisconnectedWarning: If the mesh is disconnected.
        graphs.UnreferencedVerticesWarning: If some vertices are on no face.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     len(read_mesh_fields(f"{folder}/sphere.ply"))
        1
    """
    if nodes is not None:
        check_choice("nodes", nodes, ("faces", "vertices"))
    file, source = read_mesh_file(path), None
    surface_of = partial(Surface, file, Path(path), weights, within)
    if values is not None:
        source = _columns(Path(values), targets, table_options or {}, nodes, group, columns)
        surface = surface_of(source.nodes)
        fields = {target: field for target in source.targets if (field := source.field(target, surface)) is not None}
        if not fields:
            raise DataError(f"{values} must have a column of numbers that do not identify rows. Name one as target.")
    elif targets is not None:
        if not targets:
            raise InvalidArgumentError("targets must name at least one property of the mesh, got none.")
        nodes_of = {target: _holder(file, Path(path), target, nodes) for target in targets}
        surfaces = {kind: surface_of(kind) for kind in dict.fromkeys(nodes_of.values())}
        fields = {target: surfaces[kind].of_property(target) for target, kind in nodes_of.items()}
        surface = surfaces[nodes_of[targets[0]]]
    else:
        surface = surface_of(nodes or "faces")
        field = surface.field(np.arange(surface.graph.num_nodes), surface.normals, surface.quantity)
        fields = {field.quantity: field}
    warn_of_components(next(iter(fields.values())))
    further = {name: surface.further_input(name, source) for name in columns}
    return {target: replace(field, columns=further) for target, field in fields.items()}


@dataclass(frozen=True, eq=False)
class Surface:
    """A mesh with the graph on which fields are read.

    Attributes:
        file: The mesh in the numbering of its file.
        path: The file.
        weights: The weights of the edges.
        within: The largest distance of a point from the surface. If None, a tenth of the diagonal of the bounding box.
        nodes: "faces" or "vertices".
    """

    file: MeshFile
    path: Path
    weights: str
    within: float | None
    nodes: str

    @property
    def on_faces(self) -> bool:
        """Whether the nodes are faces."""
        return self.nodes == "faces"

    @property
    def properties(self) -> Mapping[str, Floats]:
        """The properties of the faces or vertices in the file."""
        return self.file.of_faces if self.on_faces else self.file.of_vertices

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
            warn(graphs.UnreferencedVerticesWarning(message))
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
        if self.within is not None:
            return self.within
        corners = np.asarray(self.file.mesh.vertices)[np.unique(self.file.mesh.faces)]
        return DEFAULT_LIMIT_FRACTION * float(np.linalg.norm(np.ptp(corners, axis=0)))

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
        kind = "face" if self.on_faces else "vertex"
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
            without = "without area" if self.on_faces else "on no face"
            raise DataError(
                f"{file}: values must be at {self.nodes} of the surface, got {len(missing)} {without}: "
                f"{listed([*map(str, missing)])}. Leave their rows out."
            )
        return nodes

    def of_property(self, target: str) -> Field:
        """Return the field of a property of the mesh's file.

        Args:
            target: The name of the property.

        Raises:
            DataError: If the property has no value on the surface.
        """
        if self.node_of_element is None:
            raise DataError(f"{self.path} must have triangles, got polygons, so that {target} is ambiguous. Cut them.")
        values = self.properties[target]
        known = np.isfinite(values) & (self.node_of_element >= 0)
        if not known.any():
            raise DataError(f"{target} must be a number somewhere on the surface of {self.path}, got none.")
        pairs = np.unique(np.stack([self.node_of_element[known].astype(np.float64), values[known]], axis=1), axis=0)
        return self.field(pairs[:, 0].astype(np.int64), pairs[:, 1], target)

    def further_input(self, name: str, source: "_Columns | None") -> Floats:
        """Return a further input (N,) of all nodes: a property of the mesh's file, or a column of the table.

        Args:
            name: The name of the property or the column.
            source: The columns of the table, if there is one.

        Raises:
            DataError: If there is none of this name, or a node has no value.
        """
        values = np.full(self.graph.num_nodes, np.nan)
        if name in self.properties:
            numbers = self.node_of_element
            numbers = np.arange(len(self.properties[name])) if numbers is None else numbers
            values[numbers[numbers >= 0]] = self.properties[name][numbers >= 0]
        elif source is not None and name in source.others:
            given = source.field(name, self)
            assert given is not None
            values[given.nodes] = given.values
        else:
            known = ", ".join((*self.properties, *(source.others if source is not None else ()))) or "none"
            raise DataError(
                f"{name} must be a property of the {self.nodes} in {self.path} or a column of values, got {known}."
            )
        if missing := int((~np.isfinite(values)).sum()):
            raise DataError(
                f"{name} must have a value for each of the {len(values):,} {self.nodes}, got none for {missing:,}. "
                "Predictions need it everywhere, so give it in the mesh's file or for every row of values."
            )
        return values


def _holder(file: MeshFile, path: Path, target: str, nodes: str | None) -> str:
    """Return "faces" or "vertices", whichever have a property.

    Raises:
        DataError: If neither has it, or both have.
    """
    sources = {"faces": file.of_faces, "vertices": file.of_vertices}
    holders = [kind for kind, columns in sources.items() if target in columns and nodes in (None, kind)]
    if not holders:
        names = ", ".join(sorted({*file.of_faces, *file.of_vertices})) or "none"
        raise DataError(
            f"{target} must be a property of the {nodes or 'faces or vertices'} in {path}, which has {names}."
        )
    if len(holders) > 1:
        raise DataError(f'{path} has {target} of faces and of vertices. Give nodes="faces" or nodes="vertices".')
    return holders[0]


@dataclass(frozen=True)
class _Columns:
    """The columns of a table of values.

    Attributes:
        file: The table.
        options: Options of `read_table`, without `drop`.
        dropped: The columns that are left out.
        places: The columns of positions: "face", "vertex", or "x", "y" and "z", perhaps in capitals.
        others: All other columns.
        targets: The columns that may be interpolated.
        is_given: Whether the user named the targets, or there is one column of values.
        nodes: "faces" or "vertices".
        group: The name of the column of groups.
    """

    file: Path
    options: Mapping[str, Any]
    dropped: tuple[str | int, ...]
    places: tuple[str, ...]
    others: tuple[str, ...]
    targets: tuple[str, ...]
    is_given: bool
    nodes: str
    group: str | None

    def field(self, target: str, surface: Surface) -> Field | None:
        """Return the field of a column, or None if it identifies rows."""
        dropped = (*self.dropped, *(name for name in self.others if name != target))
        table = read_table(self.file, target, **self.options, drop=dropped)
        if not self.is_given and identifies_rows(target, table.y):
            return None
        table.check_numeric_target()
        groups: dict[str, Any] = {}
        if self.group is not None:
            group_of_row = read_groups(self.file, self.group, rows=table.rows, **self.options, drop=self.dropped)
            groups = {"groups": group_of_row, "group_name": self.group}
        if len(self.places) == 1:
            return surface.field(surface.numbered(table, self.file), table.y, target, **groups)
        axes = [name.lower() for name in table.columns]
        points = table.X[:, [axes.index(axis) for axis in "xyz"]]
        return surface.field(surface.nearest(points, table.rows, self.file), table.y, target, points, **groups)


def _columns(
    file: Path,
    targets: Sequence[str] | None,
    options: Mapping[str, Any],
    nodes: str | None,
    group: str | None,
    further: Sequence[str],
) -> _Columns:
    """Return the columns of a table with places, and those with values.

    Raises:
        DataError: If there are no columns of positions or several kinds of them, or there are no values.
    """
    drop = options.get("drop", ())
    dropped = (drop,) if isinstance(drop, str | int) else tuple(drop)
    options = {name: value for name, value in options.items() if name != "drop"}
    kinds = read_kinds(file, **options, drop=dropped)
    names, given = [name for name in kinds if name not in dropped], tuple(targets or ())
    places = tuple(name for name in names if name.lower() in set().union(*_PLACES) and name not in given)
    axes = {name.lower() for name in places}
    if (
        axes not in _PLACES
        or len(axes) != len(places)
        or axes == {"faces": {"vertex"}, "vertices": {"face"}}.get(nodes or "")
    ):
        needed = {"faces": "face", "vertices": "vertex"}.get(nodes or "", "face, or vertex")
        raise DataError(
            f"{file} must have places of values, in a column {needed}, or in x, y and z, got the columns "
            f"{', '.join(names)}."
        )
    others = tuple(name for name in names if name not in places)
    if group is not None and group not in others:
        raise DataError(f"{file} must have the column {group!r} of groups, got {', '.join(names)}.")
    values = tuple(name for name in others if name not in (group, *further))
    if not values:
        raise DataError(f"{file} must have a column of values, got {', '.join(names)}. Add one.")
    is_given = len(given or values) == 1 or bool(given)
    chosen = given or (values if is_given else tuple(name for name in values if kinds[name] == "number"))
    kind = nodes or ("vertices" if axes == {"vertex"} else "faces")
    return _Columns(file, options, dropped, places, others, chosen, is_given, kind, group)
