"""Processes on fields, their predictions at nodes, and files of these: colored meshes, tables of nodes and GeoJSON."""

import csv
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from graphs.builders.roads import RoadSegment
from rfgp.errors import InvalidArgumentError, requires_extra
from rfgp.fields.field import Field, check_field
from rfgp.files import write_atomically
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP, MeshGP, RoadGP
from rfgp.palette import COLOR_MAPS, color_range

FIGURES = ("mean", "sd", "observed_sd", "low", "high")
"""The names in files of five figures: mean and standard deviation of the field, and standard deviation and ends of the
95 % interval of an observation."""


class NodePosterior(NamedTuple):
    """The predictions of a model at all N nodes of a graph.

    Attributes:
        mean: The mean (N,) of the latent field.
        std: The standard deviation (N,) of the latent field.
        num_observed: The number of observations.
        observed_std: The standard deviation (N,) of an observation.
        low: The lower end (N,) of the central 95 % interval of an observation.
        high: The upper end (N,) of the interval.
        segment_figures: The figures (5, S) of the road segments, if inputs differ between roads that meet. If None,
            they are averages of their ends.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> gp = fields.whittle_matern(field, alpha=1).condition(field.observed_positions, field.values)
        >>> fields.posterior_at_nodes(gp, field).figures.shape
        (5, 241)
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    num_observed: int
    observed_std: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    segment_figures: NDArray[np.float64] | None = None

    @property
    def figures(self) -> NDArray[np.float64]:  # (5, N)
        """The figures of each node in the order of `FIGURES`."""
        return np.stack([self.mean, self.std, self.observed_std, self.low, self.high])

    def along(self, segments: Sequence[RoadSegment]) -> NDArray[np.float64]:  # (5, S)
        """Return the figures of the road segments of the field, in the order of `FIGURES`.

        Args:
            segments: All S segments.
        """
        if self.segment_figures is not None:
            return self.segment_figures
        ends = np.array([(segment.source, segment.target) for segment in segments]).reshape(-1, 2)
        return np.asarray(self.figures[:, ends].mean(axis=2))


def whittle_matern(
    field: Field, alpha: int, *, boundary: str = "neumann", within: float | None = None, seed: int | None = None
) -> MeshGP | RoadGP:
    """Return the Whittle-Matern process on the surface or the roads of a field.

    Args:
        field: The field.
        alpha: The order of the process, as for `rfgp.RoadGP` and `graphs.MeshField`.
        boundary: The boundary condition of roads, as for `rfgp.RoadGP`.
        within: The largest distance from a mesh, as for `rfgp.MeshGP`.
        seed: The seed, as for `rfgp.RoadGP`.

    Returns:
        The model, before a fit.

    Raises:
        InvalidArgumentError: If alpha or the boundary is invalid.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> gp = fields.whittle_matern(field, alpha=1).condition(field.observed_positions, field.values)
        >>> gp.predict(field.observed_positions[:3]).mean.shape
        (3,)
    """
    field = check_field(field)
    if field.roads is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", graphs.DuplicateRoadsWarning)  # the reader of the field has warned
            network = graphs.RoadNetwork.from_roads(field.roads)
        return RoadGP(network, alpha, boundary=boundary, seed=seed)
    return MeshGP(graphs.MeshField(field.mesh, alpha), within=within, seed=seed)


def observed_inputs(model: GP, field: Field) -> Any:
    """Return the inputs of the observations of a field for a model.

    Args:
        model: The model.
        field: The field, with n observations.

    Returns:
        Labels (n,) for a process on the graph, positions (n, d) for a field alone, or a dataframe with the positions
        and the further inputs of the field.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> gp = fields.whittle_matern(field, alpha=1)
        >>> fields.observed_inputs(gp, field).shape  # road and fraction
        (120, 2)
    """
    field = check_field(field)
    if isinstance(model, GraphGP):
        return field.nodes
    positions = field.observed_positions
    return positions if _is_field_alone(model) else field.frame(positions, field.graph.index(field.nodes))


def node_inputs(model: GP, field: Field) -> Any:
    """Return the inputs of all nodes of a field for a model.

    Args:
        model: The model.
        field: The field, with N nodes.

    Returns:
        Labels (N,), positions (N, d) or a dataframe, as for `observed_inputs`.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> fields.node_inputs(fields.whittle_matern(field, alpha=1), field).shape  # road and fraction
        (241, 2)
    """
    field = check_field(field)
    if isinstance(model, GraphGP):
        return field.labels
    positions = field.node_positions
    return positions if _is_field_alone(model) else field.frame(positions, np.arange(field.graph.num_nodes))


def posterior_at_nodes(model: GP, field: Field) -> NodePosterior:
    """Return the predictions of a fitted model at all nodes of a field.

    Args:
        model: The model, fitted to the field.
        field: The field.

    Returns:
        The moments and intervals at the N nodes.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> import rfgp
        >>> from rfgp import fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     field = fields.read_mesh_field(f"{folder}/sphere.ply")
        >>> gp = rfgp.GraphGP(field.graph, features="exact").condition(list(field.nodes), field.values)
        >>> fields.posterior_at_nodes(gp, field).mean.shape
        (80,)
    """
    mean, std, *observed = _figures(model, node_inputs(model, field))
    return NodePosterior(mean, std, model.num_observations, *observed)._replace(
        segment_figures=_along_roads(model, field)
    )


def _figures(model: GP, inputs: Any) -> NDArray[np.float64]:  # (5, n)
    """Return the figures of predictions at inputs, in the order of `FIGURES`."""
    latent: Any = model.predict(inputs)
    observed = latent.observed()
    return np.stack([latent.mean, latent.std, np.sqrt(observed.variance), *observed.quantile([0.025, 0.975])])


def _along_roads(model: GP, field: Field) -> NDArray[np.float64] | None:
    """Return the figures (5, S) of segments with the further inputs of their own roads, or None without any."""
    if field.roads is None or not field.columns:
        return None
    ends = [(piece.road, fraction) for piece in field.segments() for fraction in (piece.start, piece.end)]
    return np.asarray(_figures(model, field.frame(np.array(ends))).reshape(len(FIGURES), -1, 2).mean(axis=2))


def _is_field_alone(model: GP) -> bool:
    return isinstance(model, RoadGP | MeshGP)


# --- Files of predictions, which are written atomically ----------------------------------------------------------


def write_mesh(folder: str | Path, field: Field, posterior: NodePosterior) -> list[Path]:
    """Write the mean and the standard deviation as colored meshes.

    The files are mean.ply, sd.ply, mean.glb and sd.glb. The PLY files also have mean, sd, observed_sd, low and high as
    properties of faces or vertices.

    Args:
        folder: The folder of the files.
        field: A field on a mesh.
        posterior: The posterior at the nodes of the field.

    Returns:
        The four paths.

    Raises:
        InvalidArgumentError: If the field is not on a mesh.
        OSError: If the folder cannot be written.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> import rfgp
        >>> from rfgp import fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     field = fields.read_mesh_field(f"{folder}/sphere.ply")
        ...     gp = rfgp.GraphGP(field.graph, features="exact").condition(list(field.nodes), field.values)
        ...     paths = fields.write_mesh(folder, field, fields.posterior_at_nodes(gp, field))
        >>> [path.name for path in paths]
        ['mean.ply', 'mean.glb', 'sd.ply', 'sd.glb']
    """
    if check_field(field).mesh is None:
        raise InvalidArgumentError("A field must be on a mesh for colored meshes, got one on roads. Use write_roads.")
    out = []
    for name, values in (("mean", posterior.mean), ("sd", posterior.std)):
        colors = _colors(values, COLOR_MAPS[name])
        with_figures = _colored(field, colors, shares_vertices=True)
        attributes = with_figures.face_attributes if field.on_faces else with_figures.vertex_attributes
        attributes.update(zip(FIGURES, posterior.figures, strict=True))
        ply = with_figures.export(file_type="ply", include_attributes=True)
        glb = _colored(field, colors, shares_vertices=False).export(file_type="glb")
        for suffix, content in (("ply", ply), ("glb", glb)):
            out.append(Path(folder) / f"{name}.{suffix}")
            write_atomically(out[-1], bytes(content))
    return out


def write_nodes(path: str | Path, field: Field, posterior: NodePosterior) -> Path:
    """Write a CSV file with one row per node: label, position, observed value and predictions.

    Predictions are the mean and standard deviation of the field, and the standard deviation and 95 % interval of an
    observation. For a mesh from a file, the rows are the faces or vertices of the mesh file, by number. Those that are
    not nodes of the field, such as vertices without a face, have only their number.

    Args:
        path: The file.
        field: The field.
        posterior: The posterior at the nodes of the field.

    Returns:
        The path of the file.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> import rfgp
        >>> from rfgp import fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     field = fields.read_mesh_field(f"{folder}/sphere.ply")
        ...     gp = rfgp.GraphGP(field.graph, features="exact").condition(list(field.nodes), field.values)
        ...     file = fields.write_nodes(f"{folder}/nodes.csv", field, fields.posterior_at_nodes(gp, field))
        ...     len(file.read_text().splitlines())
        81
    """
    axes: tuple[str, ...] = ("x", "y", "z") if check_field(field).mesh is not None else ("longitude", "latitude")
    if field.roads is not None and field.roads.metric == "euclidean":
        axes = ("x", "y")
    positions, count = field.graph.index(field.nodes), field.graph.num_nodes
    totals, counts = np.bincount(positions, field.values, count), np.bincount(positions, minlength=count)
    pairs = zip(totals.tolist(), counts.tolist(), strict=True)
    observed = [total / number if number else "" for total, number in pairs]
    columns = zip(field.coordinates.tolist(), observed, posterior.figures.T.tolist(), strict=True)
    cells = [[*point, value, *figures] for point, value, figures in columns]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", *axes, "observed", *FIGURES])
    nodes, missing = field.node_of_element, [""] * (len(axes) + 1 + len(FIGURES))
    for label, node in zip(field.labels, range(count), strict=True) if nodes is None else enumerate(nodes):
        writer.writerow([label, *(cells[node] if node >= 0 else missing)])
    write_atomically(Path(path), text.getvalue().encode())
    return Path(path)


RESULTS = tuple(f"gp_{name}" for name in FIGURES)
"""The properties that `write_roads` adds."""


def write_roads(path: str | Path, field: Field, posterior: NodePosterior) -> Path:
    """Write GeoJSON with predictions for all road segments and all sensors.

    `gp_mean` and `gp_sd` are mean and standard deviation of the field. `gp_observed_sd`, `gp_low` and `gp_high` are the
    standard deviation and the 95 % interval of an observation.

    A segment lies between two neighboring nodes (crossings or sensors), and its values are averages of its ends. It
    has the properties of its road, and its length as `length_m`, or as `piece_length` if the unit may not be meters.
    `source_edge` is the number of the road in the file, and `source_id` its id, if any. The segment lies between the
    fractions `source_begin` and `source_end` of the road.

    Sensors keep their properties and ids. Their `edge` and `fraction` become `source_edge` and `source_fraction`. If
    the file is read again, a sensor is assigned to the nearest segment. Parallel copies of a street that are cut at
    sensors then meet at more points. Existing properties with these names are replaced, and numbers out of range become
    null. The file keeps its `name` and `crs`.

    Args:
        path: The file.
        field: A field on roads.
        posterior: The posterior at the nodes of the field.

    Returns:
        The path of the file.

    Raises:
        InvalidArgumentError: If the field is not on roads, or its value has the name of a result.
        OSError: If the folder cannot be written.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        ...     gp = fields.whittle_matern(field, alpha=1).condition(field.observed_positions, field.values)
        ...     fields.write_roads(f"{folder}/predicted.geojson", field, fields.posterior_at_nodes(gp, field)).name
        'predicted.geojson'
    """
    segments = check_field(field).segments()
    assert field.roads is not None
    roads, (_, _, position_of_sensor) = field.roads, field.roads.sensor_positions()
    if field.quantity in RESULTS:
        raise InvalidArgumentError(
            f"The values must not have the name of a result, got {field.quantity!r}. Rename them."
        )
    rows = []
    for segment, numbers in zip(segments, posterior.along(segments).T.tolist(), strict=True):
        figures = dict(zip(RESULTS, numbers, strict=True))
        rows.append(_feature("LineString", segment.shape.tolist(), {**_road_properties(roads, segment), **figures}))
    first = field.graph.num_nodes - (int(position_of_sensor.max()) + 1 if len(position_of_sensor) else 0)
    for i, value in enumerate(roads.values.tolist()):
        measurement = {field.quantity: value if np.isfinite(value) else None}
        sensor_properties = dict(roads.properties[i]) if roads.properties else measurement
        renamed = {_SOURCES[name]: sensor_properties.pop(name) for name in _SOURCES if name in sensor_properties}
        node = first + int(position_of_sensor[i])
        figures = dict(zip(RESULTS, posterior.figures[:, node].tolist(), strict=True))
        about = {**sensor_properties, **renamed, **figures}
        rows.append(_feature("Point", field.coordinates[node].tolist(), about))
        if roads.sensor_ids and roads.sensor_ids[i] is not None:
            rows[-1]["id"] = roads.sensor_ids[i]
    text = ",\n".join(json.dumps(_finite(row), allow_nan=False) for row in rows)
    members = json.dumps({"type": "FeatureCollection", **_finite(roads.metadata)}, allow_nan=False).removesuffix("}")
    write_atomically(Path(path), f'{members}, "features": [\n{text}\n]}}\n'.encode())
    return Path(path)


_SOURCES = {"edge": "source_edge", "fraction": "source_fraction"}
_LENGTHS = ("length_m", "piece_length")
"""The property with the length of a segment, in meters or in an unknown unit."""


def _road_properties(roads: graphs.Roads, segment: RoadSegment) -> dict[str, Any]:
    """Return the properties of a road segment, starting with those of its road."""
    given = roads.road_properties[segment.road] if roads.road_properties else {}
    properties = {key: value for key, value in given.items() if key not in _LENGTHS}
    name = roads.road_ids[segment.road] if roads.road_ids else None
    ids = {} if name is None else {"source_id": name}
    location = {"source_edge": segment.road, "source_begin": segment.start, "source_end": segment.end}
    if roads.unit == "m":
        return {**properties, **ids, **location, "length_m": round(segment.length, 3)}
    return {**properties, **ids, **location, "piece_length": float(f"{segment.length:.9g}")}


def _finite(value: Any) -> Any:
    """Return a value for JSON, with null instead of numbers that are not finite."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list) else value


def _feature(kind: str, coordinates: Any, properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Feature", "properties": properties, "geometry": {"type": kind, "coordinates": coordinates}}


def _colors(values: NDArray[np.float64], name: str) -> NDArray[np.uint8]:  # (N,) -> (N, 4)
    with requires_extra("plot"):
        from matplotlib import colormaps
        from matplotlib.colors import Normalize

    return np.asarray(colormaps[name](Normalize(*color_range(values), clip=True)(values), bytes=True), dtype=np.uint8)


def _colored(field: Field, colors: NDArray[np.uint8], shares_vertices: bool) -> Any:
    """Return a colored mesh, whose faces with colors of their own may not share vertices, as in glTF."""
    with requires_extra("mesh"):
        import trimesh

    vertices, faces, kind = field.mesh.vertices, field.mesh.faces, "face" if field.on_faces else "vertex"
    if field.on_faces and not shares_vertices:
        vertices, colors, kind = np.asarray(field.mesh.triangles).reshape(-1, 3), np.repeat(colors, 3, axis=0), "vertex"
        faces = np.arange(len(vertices)).reshape(-1, 3)
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    setattr(mesh.visual, f"{kind}_colors", colors)
    return mesh
