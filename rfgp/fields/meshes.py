"""Readers of fields on meshes, with values from tables or from properties of the mesh file."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.arrays import is_identifier
from graphs.builders.mesh_files import MeshFile, read_mesh_file
from graphs.checks import check_choice
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields.field import Field, warn_of_components
from rfgp.fields.surfaces import Surface
from rfgp.tables import read_groups, read_kinds, read_table

_PLACES = ({"face"}, {"vertex"}, {"x", "y", "z"})


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
    with _warn_as_caller():
        file = read_mesh_file(path)
    source = None
    if values is not None:
        source = _columns(Path(values), targets, table_options or {}, nodes, group, columns)
        surface = Surface(file, Path(path), weights, source.nodes, within)
        fields = {target: field for target in source.targets if (field := source.field(target, surface)) is not None}
        if not fields:
            raise DataError(f"{values} must have a column of numbers that do not identify rows. Name one as target.")
    elif targets is not None:
        fields = {target: _property(file, Path(path), target, (weights, nodes, within)) for target in targets}
    else:
        surface = Surface(file, Path(path), weights, nodes or "faces", within)
        field = surface.field(np.arange(surface.graph.num_nodes), surface.normals, surface.quantity)
        fields = {field.quantity: field}
    warn_of_components(next(iter(fields.values())))
    further = {name: _further_input(name, file, Path(path), next(iter(fields.values())), source) for name in columns}
    return {target: replace(field, columns=further) for target, field in fields.items()}


@contextmanager
def _warn_as_caller() -> Iterator[None]:
    """Attribute warnings of reading a mesh to the caller of `read_mesh_field`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for entry in caught:
        warnings.warn(entry.message, stacklevel=4)


@dataclass(frozen=True)
class _Columns:
    """The columns of a table of values.

    Attributes:
        file: The table.
        options: Options of `read_table`.
        where: The names of the columns of positions, as in the table.
        others: The names of all other columns.
        targets: The columns that may be interpolated.
        is_given: Whether the user named the targets, or there is one column of values.
        nodes: "faces" or "vertices".
        group: The name of the column of groups.
    """

    file: Path
    options: Mapping[str, Any]
    where: tuple[str, ...]
    others: tuple[str, ...]
    targets: tuple[str, ...]
    is_given: bool
    nodes: str
    group: str | None = None

    def field(self, target: str, surface: Surface) -> Field | None:
        """Return the field of a column, or None if it identifies rows."""
        drop = self.options.get("drop", ())
        dropped = [drop] if isinstance(drop, str | int) else list(drop)
        dropped += [name for name in self.others if name != target]
        table = read_table(self.file, target, **{**self.options, "drop": tuple(dropped)})
        if not self.is_given and is_identifier(target, table.y):
            return None
        table.check_numeric_target()
        groups: dict[str, Any] = {}
        if self.group is not None:
            group_of_row = read_groups(self.file, self.group, rows=table.rows, **self.options)
            groups = {"groups": group_of_row, "group_name": self.group}
        if len(self.where) == 1:
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
    dropped = {drop} if isinstance(drop, str | int) else set(drop)
    kinds = {name: kind for name, kind in read_kinds(file, **options).items() if name not in dropped}
    names = list(kinds)
    named_columns = tuple(targets or ())
    where = tuple(name for name in names if name.lower() in set().union(*_PLACES) and name not in named_columns)
    axes = sorted(name.lower() for name in where)
    fits = next((axis_names for axis_names in _PLACES if sorted(axis_names) == axes), None)
    if fits is None or (nodes == "faces" and fits == {"vertex"}) or (nodes == "vertices" and fits == {"face"}):
        needed = {"faces": "face", "vertices": "vertex"}.get(nodes or "", "face, or vertex")
        raise DataError(
            f"{file} must have places of values, in a column {needed}, or in x, y and z, got the columns "
            f"{', '.join(names)}."
        )
    others = tuple(name for name in names if name not in where)
    if group is not None and group not in others:
        raise DataError(f"{file} must have the column {group!r} of groups, got {', '.join(names)}.")
    if set(others) <= {group, *further}:
        raise DataError(f"{file} must have a column of values, got {', '.join(names)}. Add one.")
    columns = named_columns or tuple(name for name in others if name not in (group, *further))
    is_given = len(columns) == 1 or bool(named_columns)
    chosen = columns if is_given else tuple(name for name in columns if kinds[name] == "number")
    kind = nodes or ("vertices" if "vertex" in fits else "faces")
    return _Columns(file, options, where, others, chosen, is_given, kind, group)


def _property(file: MeshFile, path: Path, target: str, options: tuple[str, str | None, float | None]) -> Field:
    """Return the field of a property of the mesh's file.

    Raises:
        DataError: If the property does not exist, or has no value on the surface.
    """
    weights, nodes, within = options
    sources = {"faces": file.of_faces, "vertices": file.of_vertices}
    holders = [kind for kind, columns in sources.items() if target in columns and nodes in (None, kind)]
    if len(holders) != 1:
        names = ", ".join(sorted({*file.of_faces, *file.of_vertices})) or "none"
        raise DataError(
            f"{target} must be a property of the {nodes or 'faces or vertices'} in {path}, which has {names}."
            if not holders
            else f'{path} has {target} of faces and of vertices. Give nodes="faces" or nodes="vertices".'
        )
    surface = Surface(file, path, weights, holders[0], within)
    if surface.node_of_element is None:
        raise DataError(f"{path} must have triangles, got polygons, so that {target} is ambiguous. Cut them.")
    values = sources[holders[0]][target]
    known = np.isfinite(values) & (surface.node_of_element >= 0)
    if not known.any():
        raise DataError(f"{target} must be a number somewhere on the surface of {path}, got none.")
    pairs = np.unique(np.stack([surface.node_of_element[known].astype(np.float64), values[known]], axis=1), axis=0)
    return surface.field(pairs[:, 0].astype(np.int64), pairs[:, 1], target)


def _further_input(name: str, file: MeshFile, path: Path, field: Field, source: _Columns | None) -> NDArray[np.float64]:
    """Return a further input (N,) of all nodes: a property of the mesh's file, or a column of the table.

    Raises:
        DataError: If there is none of this name, or a node has no value.
    """
    kind, found = ("faces", file.of_faces) if field.on_faces else ("vertices", file.of_vertices)
    values = np.full(field.graph.num_nodes, np.nan)
    if name in found:
        numbers = file.faces if field.on_faces else field.node_of_element
        numbers = np.arange(len(found[name])) if numbers is None else numbers
        values[numbers[numbers >= 0]] = found[name][numbers >= 0]
    elif source is not None and name in source.others:
        given = source.field(name, Surface(file, path, "unit", kind, None))
        assert given is not None
        values[given.nodes] = given.values
    else:
        known = ", ".join((*found, *(source.others if source is not None else ()))) or "none"
        raise DataError(f"{name} must be a property of the {kind} in {path} or a column of values, got {known}.")
    if missing := int((~np.isfinite(values)).sum()):
        raise DataError(
            f"{name} must have a value for each of the {len(values):,} {kind}, got none for {missing:,}. Predictions "
            "need it everywhere, so give it in the mesh's file or for every row of values."
        )
    return values
