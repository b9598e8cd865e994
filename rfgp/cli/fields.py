"""`rfgp mesh` and `rfgp traffic`: a field on a surface or on roads, everywhere, with its uncertainty."""

import warnings
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp import names
from rfgp.cli.common import Input, check_input, say
from rfgp.cli.job import MODEL, REPORT, Job, Result, command_line
from rfgp.cli.models import advised, field_columns, is_expression
from rfgp.cli.options import (
    FIELD,
    Drop,
    FieldRequest,
    Metric,
    Spelling,
    above_zero,
    among,
    grouped,
    not_negative,
    up_to_one,
)
from rfgp.errors import InvalidArgumentError
from rfgp.messages import counted
from rfgp.progress import Bar

_OF_ALL = ("nodes.csv", MODEL, REPORT)


@dataclass(frozen=True)
class _Domain:
    """What meshes and roads do not share: their command, the term of a kernel, the range of alpha, and files."""

    kind: str
    command: str
    term: str
    alpha: int
    largest_alpha: int
    positions: tuple[str, ...]
    files: tuple[str, ...]


_MESH = _Domain("mesh", "mesh", "Mesh", 2, 6, ("x", "y", "z"), ("mean.ply", "mean.glb", "sd.ply", "sd.glb", *_OF_ALL))
_ROADS = _Domain("roads", "traffic", "Roads", 1, 2, ("road", "fraction"), ("roads.geojson", *_OF_ALL))


@grouped
def mesh(
    file: Path,
    request: FieldRequest,
    spelling: Spelling,
    values: Path | None = None,
    target: list[str] | None = None,
    known: Annotated[float, up_to_one] = 0.1,
    nodes: Annotated[str | None, among(*names.NODES)] = None,
    weights: Annotated[str, among(*names.WEIGHTS)] = "unit",
    within: Annotated[float | None, above_zero] = None,
    missing: Annotated[str, among("error", "drop")] = "error",
    drop: Drop = None,
    kernel: str = FIELD,
    alpha: int | None = None,
) -> None:
    """Interpolate values on a mesh: colored PLY and GLB, a table of nodes, a model and a report.

    Args:
        file: A mesh (.stl, .ply, .obj, .off, .glb, .vtk, .vtu, .msh) or a public mesh's name.
        values: A table of values: columns x, y, z or face or vertex, and columns of values.
        target: The column of --values to interpolate, or without it a property of the mesh's file; repeatable.
            [default: the only column of numbers that do not identify rows; without --values the z component of the
            normals]
        known: Without --values: the share of the normals that are given to the fit.
        nodes: Where the field lies: faces or vertices. [default: as the values say, else faces]
        weights: Weights of a mesh's edges: unit, edge-length, or cotangent (between vertices).
        within: How far from the surface a place may lie, in the mesh's units. [default: a tenth of its size]
        missing: Rows of values with a gap: error, or drop.
        kernel: whittle-matern: on the surface, exactly; a kernel of the graph of faces or vertices: diffusion,
            regularized-laplacian or matern; or a sum of terms, as "Mesh() + Linear(thickness)", of columns x, y, z, and
            others that are known on the whole surface.
        alpha: The smoothness of whittle-matern, from 1 (roughest) to 6. [default: 2]
    """

    def read(path: Path) -> dict[str, Any]:
        table = {"missing": missing, "drop": tuple(drop or ()), **spelling.options()}
        how = {"weights": weights, "nodes": nodes, "within": within, "table_options": table, "columns": job.columns}
        return _mesh_fields(path, values, target, {**how, "group": request.holdout_by}, known, request.seed)

    stand_in = "properties of the file" if target else f"normals at a share of {known:g} of the nodes"
    given = {"file": file, "values": values or stand_in}
    given |= {"weights": weights} if kernel in names.GRAPH_KERNELS else {}
    job = _FieldJob(Input(file), request, _MESH, kernel, alpha, {"within": within}, given, read)
    job.check()
    if values is not None and not check_input(values).exists():
        raise InvalidArgumentError(f"There is no file {values}.")
    job.run("field", values)


@grouped
def traffic(
    file: Path,
    request: FieldRequest,
    target: list[str] | None = None,
    metric: Metric = None,
    min_length: Annotated[float, not_negative] = 0.5,
    within: Annotated[float | None, above_zero] = None,
    skip: bool = False,
    snap: Annotated[float, not_negative] = 0.0,
    duplicates: Annotated[str, among(*names.ROAD_DUPLICATES)] = "parallel",
    kernel: str = FIELD,
    alpha: int | None = None,
    boundary: Annotated[str, among(*names.BOUNDARIES)] = "neumann",
) -> None:
    """Interpolate sensors along roads: GeoJSON with predictions, a table of nodes, a model and a report.

    Args:
        file: Roads and sensors (.geojson, .rda), or pems.
        target: GeoJSON: the sensors' property to interpolate; repeatable. [default: value]
        min_length: For a kernel of a graph: the smallest length of a road segment, in mean lengths of segments. Shorter
            segments count as this long. The weight of an edge is one over its length.
        within: GeoJSON: the largest distance of a sensor from the nearest road. [default: 500 m; in a plane a tenth of
            the size of the roads]
        skip: GeoJSON: leave out features that are neither roads nor sensors, and sensors too far from a road. Sensors
            without a number are not observed. Numbers written as texts are read.
        snap: Join points of roads that are at most this far apart, in meters or the units of the plane.
        duplicates: Edges of roads that are drawn more than once: parallel roads, or merge.
        kernel: whittle-matern: along the roads, exactly; a kernel of the graph of their segments: diffusion,
            regularized-laplacian or matern; or a sum of terms, as "Roads() + Linear(maxspeed) + Group(highway)", of
            properties of the roads.
        alpha: The smoothness of whittle-matern: 1 (rough) or 2. [default: 1]
        boundary: The condition of whittle-matern at the free ends of roads: neumann (a derivative of zero), stationary
            (as if the road continued without an end) or open (none).
    """
    targets = tuple(dict.fromkeys(target or ("value",)))
    how: dict[str, Any] = {"min_length": min_length, "snap": snap, "duplicates": duplicates}

    def read(path: Path) -> dict[str, Any]:
        from rfgp.fields import read_road_fields

        options = {**how, "within": within, "skip": skip, "group": request.holdout_by, "columns": job.columns}
        found = read_road_fields(path, targets, metric, **options)
        roads: Any = next(iter(found.values())).roads
        if count := roads.num_one_way:
            say(
                f"{count:,} of {counted(len(roads.lines), 'road')} are one-way or roundabouts in the file. Their "
                "direction is ignored: the field is as similar against the traffic as with it.",
                as_json=True,
            )
        return found

    given = {"file": file, "metric": metric or "as the file says", **how}
    job = _FieldJob(Input(file), request, _ROADS, kernel, alpha, {"boundary": boundary}, given, read)
    job.check()
    if clashing := [name for name in targets if name in names.RESULTS]:
        raise typer.BadParameter(
            f"The sensors' property must not have the name of a result, got {clashing[0]}. Rename it."
        )
    job.run("field")


def _mesh_fields(
    path: Path, values: Path | None, target: list[str] | None, how: dict[str, Any], known: float, seed: int
) -> dict[str, Any]:
    """Return the fields of a mesh by their targets."""
    from rfgp import fields

    fields_by_target = fields.read_mesh_fields(path, values, targets=target and tuple(dict.fromkeys(target)), **how)
    if values is not None and not target and len(fields_by_target) > 1:
        names = " or ".join(fields_by_target)
        raise InvalidArgumentError(
            f"--target must name the columns of {values} to interpolate: {names}. It is repeatable."
        )
    if values is not None or target:
        return fields_by_target
    ((quantity, field),) = fields_by_target.items()
    field = _hide(field, known, seed)
    say(
        f"No --values: the z component of the normals is interpolated from a random {len(field.values):,} of "
        f"{field.graph.num_nodes:,} {'faces' if field.on_faces else 'vertices'}.",
        as_json=True,
    )
    return {quantity: field}


def _hide(field: Any, known: float, seed: int) -> Any:
    """Return a field with a random share of its values."""
    from dataclasses import replace

    from rfgp import random

    order = random.numpy_generator(seed, random.Role.DATA, 0).permutation(len(field.values))
    kept = order[: max(8, round(known * len(order)))]
    return replace(field, nodes=field.nodes[kept], values=field.values[kept])


@dataclass(frozen=True)
class _FieldJob(Job):
    """The job of `rfgp mesh` or `rfgp traffic`.

    `of_domain` are options of the process on the surface or along the roads, `given` settings for the report. `reader`
    returns the fields of a file by their targets.
    """

    options: FieldRequest
    domain: _Domain
    kernel: str
    alpha: int | None
    of_domain: Mapping[str, Any]
    given: Mapping[str, Any]
    reader: Callable[[Path], dict[str, Any]]
    noun = "observations"

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that are written."""
        return self.domain.files

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the kernel that are not positions."""
        read = field_columns(self.kernel, self.domain.term) if is_expression(self.kernel) else ()
        return tuple(name for name in read if name not in self.domain.positions)

    def check(self) -> None:
        """Check that the options are for the right kind of process."""
        kernel, alpha, request, largest = self.kernel, self.alpha, self.options, self.domain.largest_alpha
        is_sum = is_expression(kernel)
        if not is_sum:
            among(FIELD, *names.GRAPH_KERNELS)("kernel", kernel)
        if alpha is not None and not 1 <= alpha <= largest:
            raise typer.BadParameter(f"--alpha must be from 1 to {largest}, got {alpha}.")
        if kernel != FIELD and alpha is not None:
            remedy = f"Write alpha={alpha} in its term." if is_sum else "Leave it out."
            raise typer.BadParameter(f"--alpha {alpha} is of --kernel {FIELD}, got {kernel}. {remedy}")
        if (kernel == FIELD or is_sum) and (request.features is not None or request.dry_run):
            flag = "--dry-run" if request.dry_run else f"--features {request.features}"
            raise typer.BadParameter(
                f"{flag} is of the kernel of a graph; {kernel} is exact. Name a graph's kernel, as --kernel diffusion, "
                "to use it."
            )
        if request.holdout == "last" and request.holdout_by is not None:
            raise InvalidArgumentError("--holdout last takes observations by their order. Leave out --holdout-by.")
        _ = self.columns

    def process(self, field: Any) -> Any:
        """Return the process on a field's surface or roads, on its graph, or the model of a sum of terms."""
        import graphs
        import rfgp
        from rfgp import kernels
        from rfgp.fields import whittle_matern

        def term(alpha: int = self.domain.alpha, **options: Any) -> Any:
            given = {"alpha": alpha, **self.of_domain, **options}
            if field.roads is None:
                return kernels.Mesh(field.mesh, **given)
            return kernels.Roads(graphs.RoadNetwork.from_roads(field.roads), **given)

        request = self.options
        if is_expression(self.kernel):
            return rfgp.GP(kernels.parse(self.kernel, objects={self.domain.term: term}), seed=request.seed)
        if self.kernel == FIELD:
            used = self.domain.alpha if self.alpha is None else self.alpha
            return whittle_matern(field, used, seed=request.seed, **self.of_domain)
        walks: dict[str, Any] = {"num_walkers": request.num_walkers, "p_halt": request.halt, "seed": request.seed}
        return rfgp.GraphGP(field.graph, kernel=self.kernel, features=request.features or "auto", **walks)

    def look(self) -> None:
        """Check that the file is of the domain."""
        self.source.check(self.domain.command, self.domain.kind)

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the fields by their targets."""
        return self.reader(path)

    def selected(self, data: Any, report: Bar) -> tuple[Any, dict[str, str | None]]:
        """Return the comparison of features of a graph's kernel, and the option that uses the best."""
        report("Measuring", 0, 0)
        selection = advised(data.graph, self.kernel, self.options.num_walkers, self.options.seed)
        return selection, {"features": selection.chosen.options["features"]}

    def fit(self, data: Any, folder: Path, report: Bar) -> Result:
        """Fit a model to a part of a field, score it, condition it on all observations, and write."""
        import graphs
        from rfgp import fields
        from rfgp.files import made_folder, write_atomically
        from rfgp.report import field_report, study_field

        request, title = self.options, f"{self.source.name.name}, {data.quantity}"
        compare = self.kernel in names.GRAPH_KERNELS if request.comparison is None else request.comparison
        how: dict[str, Any] = {"test_share": request.test_share, "holdout": request.holdout, "compare": compare}
        with warnings.catch_warnings():
            for category in (graphs.DisconnectedWarning, graphs.DuplicateRoadsWarning):  # reading the field has warned
                warnings.simplefilter("ignore", category)
            model = self.process(data)
            study = study_field(data, model, title=title, seed=model.seed, **how, report=report)
            report("Predicting every node", 0, 0)
            final = copy(model).condition(fields.observed_inputs(model, data), data.values)
            posterior = fields.posterior_at_nodes(final, data)
            report("Writing", 0, 0)
            settings = {**self.given, "target": data.quantity}
            page = field_report(study, data, posterior, settings=settings, command=command_line())
            with made_folder(folder):
                final.save(folder / MODEL, data=request.with_data)
                write_atomically(folder / REPORT, page.encode())
                fields.write_nodes(folder / "nodes.csv", data, posterior)
            if data.mesh is not None:
                fields.write_mesh(folder, data, posterior)
            else:
                fields.write_roads(folder / "roads.geojson", data, posterior)
        words = f"Written to {folder}: {', '.join(self.files)}\nOpen {folder / REPORT} in a browser."
        return Result({**study.summary(), "files": {name: str(folder / name) for name in self.files}}, words, study)
