"""`rfgp mesh` and `rfgp traffic`: a field on a surface or on roads, everywhere, with its uncertainty."""

import re
import warnings
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp import names
from rfgp.cli.common import (
    check_input,
    check_outputs,
    command_line,
    known_input,
    print_json,
    print_selection,
    print_study,
    resolve,
    say,
    stem,
    typed_again,
)
from rfgp.cli.models import field_columns, is_expression
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
from rfgp.progress import Bar

_OF_ALL = ("nodes.csv", "model.safetensors", "report.html")


@dataclass(frozen=True)
class _Domain:
    """What meshes and roads do not share: the term of a kernel, the range of alpha, positions, and files."""

    term: str
    alpha: int
    largest_alpha: int
    positions: tuple[str, ...]
    files: tuple[str, ...]


_MESH = _Domain("Mesh", 2, 6, ("x", "y", "z"), ("mean.ply", "mean.glb", "sd.ply", "sd.glb"))
_ROADS = _Domain("Roads", 1, 2, ("road", "fraction"), ("roads.geojson",))


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
    columns = _check_process(kernel, alpha, request, _MESH)
    if values is not None and not check_input(values).exists():
        raise InvalidArgumentError(f"There is no file {values}.")
    known_input(file, "mesh")
    reading: dict[str, Any] = {"missing": missing, "drop": tuple(drop or ()), **spelling.options()}
    how = {"weights": weights, "nodes": nodes, "within": within, "table_options": reading, "columns": columns}

    def read(path: Path) -> dict[str, Any]:
        return _mesh_fields(path, values, target, {**how, "group": request.holdout_by}, known, request.seed)

    def process(field: Any) -> Any:
        return _process(field, kernel, alpha, request, _MESH, within=within)

    stand_in = "properties of the file" if target else f"normals at a share of {known:g} of the nodes"
    given = {"file": file, "values": values or stand_in}
    given |= {"weights": weights} if kernel in names.GRAPH_KERNELS else {}
    _run(file, "mesh", request, _MESH, kernel, given, (values,), read, process)


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
    columns = _check_process(kernel, alpha, request, _ROADS)
    targets = tuple(dict.fromkeys(target or ("value",)))
    if clashing := [name for name in targets if name in names.RESULTS]:
        raise typer.BadParameter(
            f"The sensors' property must not have the name of a result, got {clashing[0]}. Rename it."
        )
    known_input(file, "traffic")
    how: dict[str, Any] = {"min_length": min_length, "snap": snap, "duplicates": duplicates}

    def read(path: Path) -> dict[str, Any]:
        from rfgp.fields import read_road_fields
        from rfgp.messages import counted

        options = {**how, "within": within, "skip": skip, "group": request.holdout_by, "columns": columns}
        found = read_road_fields(path, targets, metric, **options)
        roads: Any = next(iter(found.values())).roads
        if count := roads.num_one_way:
            say(
                f"{count:,} of {counted(len(roads.lines), 'road')} are one-way or roundabouts in the file. Their "
                "direction is ignored: the field is as similar against the traffic as with it.",
                as_json=True,
            )
        return found

    def process(field: Any) -> Any:
        return _process(field, kernel, alpha, request, _ROADS, boundary=boundary)

    given = {"file": file, "metric": metric or "as the file says", **how}
    _run(file, "traffic", request, _ROADS, kernel, given, (), read, process)


def _check_process(kernel: str, alpha: int | None, request: FieldRequest, domain: _Domain) -> tuple[str, ...]:
    """Return the further columns of the kernel, after checks that options are for the right kind of process."""
    is_sum = is_expression(kernel)
    if not is_sum:
        among(FIELD, *names.GRAPH_KERNELS)("kernel", kernel)
    if alpha is not None and not 1 <= alpha <= domain.largest_alpha:
        raise typer.BadParameter(f"--alpha must be from 1 to {domain.largest_alpha}, got {alpha}.")
    if kernel != FIELD and alpha is not None:
        remedy = f"Write alpha={alpha} in its term." if is_sum else "Leave it out."
        raise typer.BadParameter(f"--alpha {alpha} is of --kernel {FIELD}, got {kernel}. {remedy}")
    if (kernel == FIELD or is_sum) and (request.features is not None or request.dry_run):
        flag = "--dry-run" if request.dry_run else f"--features {request.features}"
        raise typer.BadParameter(
            f"{flag} is of the kernel of a graph; {kernel} is exact. Name a graph's kernel, as --kernel diffusion, to "
            "use it."
        )
    if request.holdout == "last" and request.holdout_by is not None:
        raise InvalidArgumentError("--holdout last takes observations by their order. Leave out --holdout-by.")
    return tuple(name for name in field_columns(kernel, domain.term) if name not in domain.positions) if is_sum else ()


def _process(
    field: Any,
    kernel: str,
    alpha: int | None,
    request: FieldRequest,
    domain: _Domain,
    *,
    boundary: str = "neumann",
    within: float | None = None,
) -> Any:
    """Return the process on a field's surface or roads, on its graph, or the model of a sum of terms."""
    import graphs
    import rfgp
    from rfgp import kernels
    from rfgp.fields import whittle_matern

    def term(alpha: int = domain.alpha, **options: Any) -> Any:
        if field.roads is None:
            return kernels.Mesh(field.mesh, **{"alpha": alpha, "within": within, **options})
        network = graphs.RoadNetwork.from_roads(field.roads)
        return kernels.Roads(network, **{"alpha": alpha, "boundary": boundary, **options})

    if is_expression(kernel):
        return rfgp.GP(kernels.parse(kernel, objects={domain.term: term}), seed=request.seed)
    if kernel == FIELD:
        used = domain.alpha if alpha is None else alpha
        return whittle_matern(field, used, boundary=boundary, within=within, seed=request.seed)
    walks: dict[str, Any] = {"num_walkers": request.num_walkers, "p_halt": request.halt}
    features = request.features or "auto"
    return rfgp.GraphGP(field.graph, kernel=kernel, features=features, seed=request.seed, **walks)


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


def _run(
    file: Path,
    command: str,
    request: FieldRequest,
    domain: _Domain,
    kernel: str,
    given: dict[str, Any],
    inputs: tuple[Path | None, ...],
    read: Callable[[Path], dict[str, Any]],
    process: Callable[[Any], Any],
) -> None:
    """Read fields; fit, score, condition and write a model of each, or compare features of their graph.

    Args:
        file: The file, or the name of a public data set.
        command: The command, for messages.
        request: The options of both commands.
        domain: The domain.
        kernel: The kernel as text.
        given: The settings to list in the report.
        inputs: Further files that are read, which must not be overwritten.
        read: A function of the path that returns the fields by their targets.
        process: A function of a field that returns its model.
    """
    folder, written = request.out or Path(f"{stem(file)}-field"), (*domain.files, *_OF_ALL)
    with Bar(not request.as_json) as report:
        report("Reading", 0, 0)
        path = resolve(file, command, report)
        if not request.dry_run:
            check_outputs((folder / name for name in written), (path, *inputs))
        fields_by_target = read(path)
        if request.dry_run:
            report("Measuring", 0, 0)
            print_selection(*_advised(next(iter(fields_by_target.values())).graph, kernel, request), request.as_json)
            return
        several = len(fields_by_target) > 1
        parts = _folder_names(fields_by_target) if several else [""]
        folders = {target: folder / part for target, part in zip(fields_by_target, parts, strict=True)}
        if several:
            outputs = (each / name for each in folders.values() for name in written)
            check_outputs(outputs, (path, *inputs))
        from graphs import DisconnectedWarning, DuplicateRoadsWarning

        studies = {}
        with warnings.catch_warnings():
            for category in (DisconnectedWarning, DuplicateRoadsWarning):  # reading the field has warned
                warnings.simplefilter("ignore", category)
            for target, field in fields_by_target.items():
                model, title = process(field), f"{file.name}, {field.quantity}"
                studies[target] = _study(field, model, title, folders[target], request, kernel, given, report)
    if request.as_json:
        results = {
            target: {**study.summary(), "files": {name: str(folders[target] / name) for name in written}}
            for target, study in studies.items()
        }
        print_json(results if several else next(iter(results.values())))
        return
    for target, study in studies.items():
        print_study(study, "observations")
        report_file = folders[target] / "report.html"
        say(f"Written to {folders[target]}: {', '.join(written)}\nOpen {report_file} in a browser.")


def _study(
    field: Any,
    model: Any,
    title: str,
    folder: Path,
    request: FieldRequest,
    kernel: str,
    given: dict[str, Any],
    report: Bar,
) -> Any:
    """Fit a model to a part of a field, score it, condition it on all observations, and write."""
    from rfgp import fields
    from rfgp.files import made_folder, write_atomically
    from rfgp.report import field_report, study_field

    compare = kernel in names.GRAPH_KERNELS if request.comparison is None else request.comparison
    how: dict[str, Any] = {"test_share": request.test_share, "holdout": request.holdout, "compare": compare}
    study = study_field(field, model, title=title, seed=model.seed, **how, report=report)
    report("Predicting every node", 0, 0)
    final = copy(model).condition(fields.observed_inputs(model, field), field.values)
    posterior = fields.posterior_at_nodes(final, field)
    report("Writing", 0, 0)
    settings = {**given, "target": field.quantity}
    page = field_report(study, field, posterior, settings=settings, command=command_line())
    with made_folder(folder):
        final.save(folder / "model.safetensors", data=request.with_data)
        write_atomically(folder / "report.html", page.encode())
        fields.write_nodes(folder / "nodes.csv", field, posterior)
    if field.mesh is not None:
        fields.write_mesh(folder, field, posterior)
    else:
        fields.write_roads(folder / "roads.geojson", field, posterior)
    return study


def _advised(graph: Any, kernel: str, request: FieldRequest) -> tuple[Any, str]:
    """Return the comparison of features of a graph's kernel, and the command that uses the best."""
    from graphs.kernels import by_name
    from rfgp.approximations.nodes import NONZEROS_PER_WALKER
    from rfgp.models.graphs import advised_selection

    budget = NONZEROS_PER_WALKER * request.num_walkers  # as features="auto" has
    selection = advised_selection(graph, by_name(kernel), budget, request.seed)
    return selection, typed_again("--dry-run", "--json", features=selection.chosen.options["features"])


def _folder_names(targets: Iterable[str]) -> list[str]:
    """Return a name of a folder for each target, with other characters as _."""
    names: list[str] = []
    for target in targets:
        name = re.sub(r"[^\w.+-]", "_", target).lstrip(".") or "_"
        while name in names:
            name += "_"
        names.append(name)
    return names
