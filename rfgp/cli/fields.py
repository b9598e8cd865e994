"""`rfgp mesh` and `rfgp traffic`: a field on a surface or on roads, everywhere, with its uncertainty."""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli import checks, choices, options
from rfgp.cli.choices import FIELD
from rfgp.cli.common import (
    check_input,
    check_outputs,
    command_line,
    print_json,
    print_study,
    progress,
    resolve,
    say,
    stem,
)
from rfgp.cli.field_options import (
    AsJson,
    Boundary,
    Compare,
    Features,
    Halt,
    MeshAlpha,
    MeshKernel,
    MeshTarget,
    MinLength,
    Nodes,
    Out,
    Reach,
    RoadAlpha,
    RoadKernel,
    RoadTarget,
    Snap,
    TestShare,
    Values,
    Walkers,
    WithData,
)
from rfgp.errors import InvalidArgumentError

_OF_ALL = ("report.html", "nodes.csv", "model.safetensors")
_OF_MESHES = ("mean.ply", "mean.glb", "sd.ply", "sd.glb")
_OF_ROADS = ("roads.geojson",)


def mesh(
    file: Annotated[
        Path, typer.Argument(help="A mesh (.stl, .ply, .obj, .off, .glb, .vtk, .vtu, .msh) or a public mesh's name.")
    ],
    values: Values = None,
    target: MeshTarget = None,
    known: Annotated[
        float, typer.Option(help="Without --values: the share of the normals that are given to the fit.")
    ] = 0.1,
    nodes: Nodes = None,
    weights: options.Weights = "unit",
    within: Reach = None,
    missing: Annotated[str, typer.Option(help="Rows of values with a gap: error, or drop.")] = "error",
    drop: options.Drop = None,
    decimal: options.Decimal = ".",
    thousands: options.Thousands = None,
    comment: options.Comment = None,
    encoding: options.Encoding = "utf-8",
    missing_mark: options.MissingMark = None,
    out: Out = None,
    kernel: MeshKernel = FIELD,
    alpha: MeshAlpha = None,
    features: Features = None,
    num_walkers: Walkers = 64,
    halt: Halt = 0.1,
    test_share: TestShare = 0.1,
    holdout: options.Holdout = "random",
    holdout_by: options.HoldoutBy = None,
    comparison: Compare = None,
    with_data: WithData = False,
    seed: options.Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Interpolate values on a mesh: colored PLY and GLB, a table of nodes, a model and a report."""
    process: dict[str, Any] = {"kernel": kernel, "features": features, "num_walkers": num_walkers, "p_halt": halt}
    process |= {"seed": seed, "alpha": (alpha, 2), "within": within}
    checks.check_field(file, "mesh", process, (test_share, holdout, holdout_by))
    checks.check_choice("--weights", weights, choices.WEIGHTS)
    checks.check_choice("--nodes", nodes, choices.NODES)
    checks.check_within(within)
    _check_known(known, values)
    columns = _check_process(kernel, alpha, features, "Mesh")
    if missing not in ("error", "drop"):
        raise typer.BadParameter(f"--missing is error or drop here, not {missing!r}: a mean has no place on a mesh.")
    reading: dict[str, Any] = {"missing": missing, "drop": tuple(drop or ())}
    reading |= options.spelling(decimal, thousands, comment, encoding, missing_mark)
    how: dict[str, Any] = {"weights": weights, "nodes": nodes, "within": within, "table_options": reading}
    how |= {"group": holdout_by, "columns": columns}
    with progress(visible=not as_json) as report:
        report("Reading", 0, 0)
        path, folder = resolve(file, "mesh", report), out or Path(f"{stem(file)}-field")
        inputs = (path, values and check_input(values))
        check_outputs((folder / name for name in (*_OF_ALL, *_OF_MESHES)), inputs)
        fields_by_target = _mesh_fields(path, values, target, how, known, seed)
        stand_in = "properties of the file" if target else f"normals at a share of {known:g} of the nodes"
        given = {"file": file, "values": values or stand_in} | (
            {"weights": weights} if kernel in choices.GRAPH_KERNELS else {}
        )
        job = _Job(file.name, given, process, (test_share, comparison, with_data, holdout), _OF_MESHES, inputs)
        studies = job.run(fields_by_target, folder, report)
    _publish(studies, _OF_MESHES, as_json)


def traffic(
    file: Annotated[Path, typer.Argument(help="Roads and sensors (.geojson, .rda), or pems.")],
    target: RoadTarget = None,
    metric: options.Metric = None,
    min_length: MinLength = 0.5,
    within: Annotated[
        float | None,
        typer.Option(
            help="GeoJSON: the largest distance of a sensor from the nearest road. [default: 500 m; in a plane a tenth "
            "of the size of the roads]"
        ),
    ] = None,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip",
            help="GeoJSON: leave out features that are neither roads nor sensors, and sensors too far from a road. "
            "Sensors without a number are not observed. Numbers written as texts are read.",
        ),
    ] = False,
    snap: Snap = 0.0,
    duplicates: Annotated[
        str, typer.Option(help="Edges of roads that are drawn more than once: parallel roads, or merge.")
    ] = "parallel",
    out: Out = None,
    kernel: RoadKernel = FIELD,
    alpha: RoadAlpha = None,
    boundary: Boundary = "neumann",
    features: Features = None,
    num_walkers: Walkers = 64,
    halt: Halt = 0.1,
    test_share: TestShare = 0.1,
    holdout: options.Holdout = "random",
    holdout_by: options.HoldoutBy = None,
    comparison: Compare = None,
    with_data: WithData = False,
    seed: options.Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Interpolate sensors along roads: GeoJSON with predictions, a table of nodes, a model and a report."""
    process: dict[str, Any] = {"kernel": kernel, "features": features, "num_walkers": num_walkers, "p_halt": halt}
    process |= {"boundary": boundary, "seed": seed, "alpha": (alpha, 1)}
    checks.check_field(file, "traffic", process, (test_share, holdout, holdout_by))
    columns = _check_process(kernel, alpha, features, "Roads")
    targets = tuple(dict.fromkeys(target or ("value",)))
    how: dict[str, Any] = {"min_length": min_length, "snap": snap, "duplicates": duplicates}
    _check_roads(targets, metric, within, how)
    from rfgp import fields

    with progress(visible=not as_json) as report:
        report("Reading", 0, 0)
        path, folder = resolve(file, "traffic", report), out or Path(f"{stem(file)}-field")
        check_outputs((folder / name for name in (*_OF_ALL, *_OF_ROADS)), (path,))
        fields_by_target = fields.read_road_fields(
            path, targets, metric, within=within, skip=skip, group=holdout_by, columns=columns, **how
        )
        _say_of_directions(next(iter(fields_by_target.values())).roads)
        given = {"file": file, "metric": metric or "as the file says", **how}
        job = _Job(file.name, given, process, (test_share, comparison, with_data, holdout), _OF_ROADS, (path,))
        studies = job.run(fields_by_target, folder, report)
    _publish(studies, _OF_ROADS, as_json)


def _check_roads(targets: Iterable[str], metric: str | None, within: float | None, how: dict[str, Any]) -> None:
    """Check the options of roads, and that targets do not have names of results."""
    checks.check_choice("--metric", metric, choices.METRICS)
    checks.check_choice("--duplicates", how["duplicates"], choices.ROAD_DUPLICATES)
    checks.check_within(within)
    for option, number in (("--snap", how["snap"]), ("--min-length", how["min_length"])):
        checks.check_positive(option, number, or_zero=True)
    for name in targets:
        if name in choices.RESULTS:
            raise typer.BadParameter(
                f"The sensors' property must not have the name of a result, got {name}. Rename it."
            )


def _say_of_directions(roads: Any) -> None:
    """Print that directions of traffic are ignored, if the file has any."""
    from rfgp.messages import counted

    if count := roads.num_one_way:
        say(
            f"{count:,} of {counted(len(roads.lines), 'road')} are one-way or roundabouts in the file. Their direction "
            "is ignored: the field is as similar against the traffic as with it.",
            as_json=True,
        )


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


def _process(
    field: Any,
    kernel: str,
    alpha: tuple[int | None, int],
    features: str | None,
    *,
    boundary: str = "neumann",
    within: float | None = None,
    seed: int,
    **walks: Any,
) -> Any:
    """Return the process on a field's surface or roads, or on its graph.

    `alpha` has the given value or None, and the default. `walks` has options of walks.
    """
    from rfgp import GraphGP
    from rfgp.fields import whittle_matern

    given, usual = alpha
    if choices.is_expression(kernel):
        return _sum_of_terms(field, kernel, usual, boundary=boundary, within=within, seed=seed)
    if kernel != FIELD:
        return GraphGP(field.graph, kernel=kernel, features=features or "auto", seed=seed, **walks)
    return whittle_matern(field, usual if given is None else given, boundary=boundary, within=within, seed=seed)


def _sum_of_terms(field: Any, kernel: str, alpha: int, *, boundary: str, within: float | None, seed: int) -> Any:
    """Return the model of a kernel with a term on a field's surface or roads."""
    from functools import partial

    import graphs
    import rfgp
    from rfgp import kernels

    made: Any
    if field.roads is not None:
        made = {
            "Roads": partial(kernels.Roads, graphs.RoadNetwork.from_roads(field.roads), alpha=alpha, boundary=boundary)
        }
    else:
        made = {"Mesh": partial(kernels.Mesh, field.mesh, alpha=alpha, within=within)}
    return rfgp.GP(kernels.parse(kernel, objects=made), seed=seed)


def _check_known(known: float, values: Path | None) -> None:
    """Check the fraction of known normals, and that it is not combined with a table of values."""
    if not 0 < known <= 1:
        raise InvalidArgumentError(f"--known must be a share in (0, 1], got {known}.")
    if values is not None and not check_input(values).exists():
        raise InvalidArgumentError(f"There is no file {values}.")


_DOMAINS = {"Mesh": (6, ("x", "y", "z")), "Roads": (2, ("road", "fraction"))}
"""The largest alpha and the columns of positions of each domain."""


def _check_process(kernel: str, alpha: int | None, features: str | None, domain: str) -> tuple[str, ...]:
    """Return the further columns of the kernel, after checks that options are for the right kind of process."""
    from rfgp.cli.models import field_columns

    largest, positions = _DOMAINS[domain]
    if alpha is not None and not 1 <= alpha <= largest:
        raise typer.BadParameter(f"--alpha must be from 1 to {largest}, got {alpha}.")
    if kernel != FIELD and alpha is not None:
        remedy = f"Write alpha={alpha} in its term." if choices.is_expression(kernel) else "Leave it out."
        raise typer.BadParameter(f"--alpha {alpha} is of --kernel {FIELD}, got {kernel}. {remedy}")
    if (kernel == FIELD or choices.is_expression(kernel)) and features is not None:
        raise typer.BadParameter(
            f"--features {features} approximates the kernel of a graph; {kernel} needs none. Name a graph's kernel, as "
            "--kernel diffusion, to use it."
        )
    if not choices.is_expression(kernel):
        return ()
    return tuple(name for name in field_columns(kernel, domain) if name not in positions)


@dataclass(frozen=True)
class _Job:
    """The work of a command on each field: fit, score, condition and write.

    Attributes:
        name: The name of the file, for titles.
        given: The settings to list in the report.
        process: Options of `_process`.
        asked: The held-out fraction, whether to compare, whether to save the data, and the kind of holdout. If the
            second is None, features of a graph's kernel are compared.
        written: The output files that only meshes, or only roads, have.
        inputs: The input files, which must not be overwritten.
    """

    name: str
    given: dict[str, Any]
    process: dict[str, Any]
    asked: tuple[float, bool | None, bool, str]
    written: tuple[str, ...]
    inputs: tuple[Path | None, ...]

    def run(self, fields_by_target: dict[str, Any], folder: Path, report: Any) -> dict[str, tuple[Any, Path]]:
        """Return the study of each field and the folder of its files, by target.

        A single field has the given folder. Each of several fields has a folder in it.
        """
        from graphs import DisconnectedWarning, DuplicateRoadsWarning

        if len(fields_by_target) == 1:
            folders = dict.fromkeys(fields_by_target, folder)
        else:
            folders = {
                target: folder / name
                for target, name in zip(fields_by_target, _folder_names(fields_by_target), strict=True)
            }
            outputs = (directory / name for directory in folders.values() for name in (*_OF_ALL, *self.written))
            check_outputs(outputs, self.inputs)
        with warnings.catch_warnings():
            for category in (DisconnectedWarning, DuplicateRoadsWarning):  # reading the field has warned
                warnings.simplefilter("ignore", category)
            studies = {
                target: self._study(field, folders[target], report) for target, field in fields_by_target.items()
            }
        return {target: (study, folders[target]) for target, study in studies.items()}

    def _study(self, field: Any, folder: Path, report: Any) -> Any:
        """Fit, score, condition on all observations, and write."""
        from copy import copy

        from rfgp import fields
        from rfgp.files import made_folder, write_atomically
        from rfgp.report import field_report, study_field

        model, (test_share, compare, with_data, holdout) = _process(field, **self.process), self.asked
        about: dict[str, Any] = {"title": f"{self.name}, {field.quantity}", "test_share": test_share}
        compare = self.process["kernel"] in choices.GRAPH_KERNELS if compare is None else compare
        about |= {"compare": compare, "seed": model.seed, "holdout": holdout}
        study = study_field(field, model, **about, report=report)
        report("Predicting every node", 0, 0)
        final = copy(model).condition(fields.observed_inputs(model, field), field.values)
        posterior = fields.posterior_at_nodes(final, field)
        report("Writing", 0, 0)
        given = {**self.given, "target": field.quantity}
        page = field_report(study, field, posterior, settings=given, command=command_line())
        with made_folder(folder):
            final.save(folder / "model.safetensors", data=with_data)
            write_atomically(folder / "report.html", page.encode())
            fields.write_nodes(folder / "nodes.csv", field, posterior)
        if field.mesh is not None:
            fields.write_mesh(folder, field, posterior)
        else:
            fields.write_roads(folder / "roads.geojson", field, posterior)
        return study


def _folder_names(targets: Iterable[str]) -> list[str]:
    """Return a name of a folder for each target, with other characters as _."""
    names: list[str] = []
    for target in targets:
        name = re.sub(r"[^\w.+-]", "_", target).lstrip(".") or "_"
        while name in names:
            name += "_"
        names.append(name)
    return names


def _publish(studies: dict[str, tuple[Any, Path]], written: tuple[str, ...], as_json: bool) -> None:
    """Print the scores of each study, and the paths of its files."""
    names = [*written, "nodes.csv", "model.safetensors", "report.html"]
    if as_json:
        results = {
            target: {**study.summary(), "files": {name: str(folder / name) for name in names}}
            for target, (study, folder) in studies.items()
        }
        print_json(results if len(results) > 1 else next(iter(results.values())))
        return
    for study, folder in studies.values():
        print_study(study, "observations")
        say(f"Written to {folder}: {', '.join(names)}\nOpen {folder / 'report.html'} in a browser.")
