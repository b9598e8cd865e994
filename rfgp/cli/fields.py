"""`rfgp mesh` and `rfgp traffic`: a field on a surface or on roads, everywhere, with its uncertainty."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli import options
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

Kernel = Annotated[str, typer.Option(help="diffusion or regularized-laplacian.")]
Features = Annotated[
    str, typer.Option(help="exact, precision, walks, chebyshev, taylor, spectrum, or auto: exact up to 2,000 nodes.")
]
Walkers = Annotated[int, typer.Option(help="Walkers per node.")]
Halt = Annotated[float, typer.Option(help="The walkers' halting probability.")]
TestShare = Annotated[float, typer.Option(help="Share of the observations held out to judge the fit.")]
Compare = Annotated[bool, typer.Option("--compare/--no-compare", help="Compare with the exact process.")]
WithData = Annotated[bool, typer.Option("--with-data", help="Save the observed values with the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results. [default: NAME-field]")]

_OF_ALL = ("report.html", "nodes.csv", "model.safetensors")
_OF_MESHES = ("mean.ply", "mean.glb", "sd.ply", "sd.glb")
_OF_ROADS = ("roads.geojson",)


def mesh(
    file: Annotated[Path, typer.Argument(help="A mesh (.stl, .ply, .obj, .off, .glb) or a public mesh's name.")],
    values: Annotated[
        Path | None,
        typer.Option(help="A table of values: x,y,z,value or face,value or vertex,value."),
    ] = None,
    known: Annotated[float, typer.Option(help="Without --values: the share of faces whose normal's z is known.")] = 0.1,
    nodes: Annotated[
        str | None,
        typer.Option(help="Where the field lies: faces or vertices. [default: as the values say, else faces]"),
    ] = None,
    weights: options.Weights = "unit",
    missing: Annotated[str, typer.Option(help="Rows of values with a gap: error, or drop.")] = "error",
    drop: options.Drop = None,
    decimal: options.Decimal = ".",
    thousands: options.Thousands = None,
    comment: options.Comment = None,
    encoding: options.Encoding = "utf-8",
    missing_mark: options.MissingMark = None,
    out: Out = None,
    kernel: Kernel = "diffusion",
    features: Features = "auto",
    num_walkers: Walkers = 64,
    halt: Halt = 0.1,
    test_share: TestShare = 0.1,
    comparison: Compare = True,
    with_data: WithData = False,
    seed: options.Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Interpolate values on a mesh: coloured PLY and GLB, a table of nodes, a model and a report."""
    from rfgp import fields

    if missing not in ("error", "drop"):
        raise typer.BadParameter(f"--missing is error or drop here, not {missing!r}: a mean has no place on a mesh.")
    reading = {
        "missing": missing,
        "drop": tuple(drop or ()),
        **options.spelling(decimal, thousands, comment, encoding, missing_mark),
    }
    with progress(visible=not as_json) as report:
        report("Reading", 0, 0)
        path, folder = resolve(file, "mesh", report), out or Path(f"{stem(file)}-field")
        check_outputs((folder / name for name in (*_OF_ALL, *_OF_MESHES)), (path, values and check_input(values)))
        field = fields.read_mesh_field(path, values, weights=weights, nodes=nodes, table_options=reading)
        if values is None:
            field = _hide(field, known, seed)
            say(
                f"No --values: the z component of the normals of a random {len(field.values)} of "
                f"{field.graph.num_nodes} {'faces' if field.on_faces else 'vertices'} stands in for them.",
                as_json=True,
            )
        model = {"kernel": kernel, "features": features, "num_walkers": num_walkers, "halt": halt, "seed": seed}
        given = {
            "file": file,
            "weights": weights,
            "values": values or f"normals of {known:g} of {'faces' if field.on_faces else 'vertices'}",
        }
        study, law = _study(file.name, field, model, given, folder, test_share, comparison, with_data, report)
        fields.write_mesh(folder, field, law)
    _publish(study, folder, _OF_MESHES, as_json)


def traffic(
    file: Annotated[Path, typer.Argument(help="Roads and sensors (.geojson, .rda), or pems.")],
    value: Annotated[str, typer.Option(help="GeoJSON: the sensors' property to interpolate.")] = "value",
    metric: options.Metric = "haversine",
    min_length: Annotated[
        float, typer.Option(help="Shorter pieces of road count as this long, in mean lengths.")
    ] = 0.5,
    within: Annotated[
        float, typer.Option(help="GeoJSON: how far from a road a sensor may lie that names none, in metres.")
    ] = 500.0,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip",
            help="GeoJSON: leave out what is neither road nor sensor, and sensors too far away; sensors without a "
            "number are not observed, numbers written as text count.",
        ),
    ] = False,
    snap: Annotated[float, typer.Option(help="Ends of roads at most so far apart, in metres, meet.")] = 0.0,
    out: Out = None,
    kernel: Kernel = "diffusion",
    features: Features = "auto",
    num_walkers: Walkers = 64,
    halt: Halt = 0.1,
    test_share: TestShare = 0.1,
    comparison: Compare = True,
    with_data: WithData = False,
    seed: options.Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Interpolate sensors along roads: GeoJSON with mean and sd, a table of nodes, a model and a report."""
    from rfgp import fields

    if value in fields.RESULTS:
        raise typer.BadParameter(f"{value} is the name of a result; rename the sensors' property.")
    with progress(visible=not as_json) as report:
        report("Reading", 0, 0)
        path, folder = resolve(file, "traffic", report), out or Path(f"{stem(file)}-field")
        check_outputs((folder / name for name in (*_OF_ALL, *_OF_ROADS)), (path,))
        field = fields.read_road_field(path, value, metric, min_length, snap, within=within, skip=skip)
        model = {"kernel": kernel, "features": features, "num_walkers": num_walkers, "halt": halt, "seed": seed}
        given = {"file": file, "value": value, "metric": metric, "min_length": min_length, "snap": snap}
        study, law = _study(file.name, field, model, given, folder, test_share, comparison, with_data, report)
        fields.write_roads(folder / "roads.geojson", field, law)
    _publish(study, folder, _OF_ROADS, as_json)


def _hide(field: Any, known: float, seed: int) -> Any:
    """Return a field with a random share of its values."""
    from dataclasses import replace

    from rfgp import random
    from rfgp.errors import InvalidArgumentError

    if not 0 < known <= 1:
        raise InvalidArgumentError(f"--known is a share in (0, 1], got {known}.")
    order = random.numpy_generator(seed, random.Role.DATA, 0).permutation(len(field.values))
    kept = order[: max(8, round(known * len(order)))]
    return replace(field, nodes=field.nodes[kept], values=field.values[kept])


def _study(
    name: str,
    field: Any,
    options: dict[str, Any],
    reading: dict[str, Any],
    folder: Path,
    test_share: float,
    comparison: bool,
    with_data: bool,
    report: Any,
) -> tuple[Any, Any]:
    """Fit, judge, condition on everything, and write what meshes and roads have in common."""
    from rfgp import GraphGP
    from rfgp.fields import law_at_nodes, write_nodes
    from rfgp.files import made_folder, write_atomically
    from rfgp.report import field_report, study_field

    title, seed = f"{name}, {field.quantity}", options["seed"]
    model = GraphGP(field.graph, **options)
    study = study_field(field, model, title=title, test_share=test_share, compare=comparison, seed=seed, report=report)
    report("Predicting every node", 0, 0)
    final = model.redraw(seed=seed).condition(list(field.nodes), field.values)
    law = law_at_nodes(final, field)
    report("Writing", 0, 0)
    page = field_report(study, field, law, settings=reading, command=command_line())
    final.fit_report = model.fit_report
    with made_folder(folder):
        final.save(folder / "model.safetensors", data=with_data)
        write_atomically(folder / "report.html", page.encode())
        write_nodes(folder / "nodes.csv", field, law)
    return study, law


def _publish(study: Any, folder: Path, written: tuple[str, ...], as_json: bool) -> None:
    names = [*written, "nodes.csv", "model.safetensors", "report.html"]
    if as_json:
        print_json({**study.summary(), "files": {name: str(folder / name) for name in names}})
        return
    print_study(study, "observations")
    say(f"Written to {folder}: {', '.join(names)}\nOpen {folder / 'report.html'} in a browser.")
