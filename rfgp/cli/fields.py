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

FIELD = "whittle-matern"
Alpha = Annotated[
    int | None, typer.Option(help=f"Of {FIELD}: 1 is the roughest; 1 or 2 on roads, 1 to 6 on meshes. [default: 1; 2]")
]
Features = Annotated[
    str | None,
    typer.Option(
        help="Of a graph's kernel: exact, precision, rational, walks, chebyshev, taylor, spectrum, or auto: exact "
        "where that is cheap. [default: auto]"
    ),
]
Walkers = Annotated[int, typer.Option(help="Of a graph's kernel: walkers per node.")]
Halt = Annotated[float, typer.Option(help="Of a graph's kernel: the walkers' halting probability.")]
_GRAPH_KERNELS = "or of a graph of {}: diffusion, regularized-laplacian, matern."
Values = Annotated[Path | None, typer.Option(help="A table of values: x,y,z,value or face,value or vertex,value.")]
Nodes = Annotated[
    str | None, typer.Option(help="Where the field lies: faces or vertices. [default: as the values say, else faces]")
]
Reach = Annotated[
    float | None,
    typer.Option(help="How far from the surface a place may lie, in the mesh's units. [default: a tenth of its size]"),
]
MeshKernel = Annotated[
    str, typer.Option(help=f"{FIELD}: on the surface, exactly; {_GRAPH_KERNELS.format('faces or vertices')}")
]
RoadKernel = Annotated[
    str, typer.Option(help=f"{FIELD}: along the roads, exactly; {_GRAPH_KERNELS.format('their pieces')}")
]
Boundary = Annotated[
    str, typer.Option(help=f"Of {FIELD}, at free ends: neumann (no derivative), stationary (roads go on) or open.")
]
MinLength = Annotated[
    float,
    typer.Option(
        help="Of a graph's kernel: shorter pieces of road count as this long, in mean lengths, since an edge weighs "
        "one over its length."
    ),
]
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
    values: Values = None,
    known: Annotated[float, typer.Option(help="Without --values: the share of faces whose normal's z is known.")] = 0.1,
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
    alpha: Alpha = None,
    features: Features = None,
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
        field = fields.read_mesh_field(path, values, weights=weights, nodes=nodes, within=within, table_options=reading)
        if values is None:
            field = _hide(field, known, seed)
            say(
                f"No --values: the z component of the normals of a random {len(field.values)} of "
                f"{field.graph.num_nodes} {'faces' if field.on_faces else 'vertices'} stands in for them.",
                as_json=True,
            )
        walks: Any = {"num_walkers": num_walkers, "halt": halt}
        model = _process(field, kernel, (alpha, 2), features, within=within, seed=seed, **walks)
        given = {
            "file": file,
            "weights": weights,
            "values": values or f"normals of {known:g} of {'faces' if field.on_faces else 'vertices'}",
        }
        study, law = _study(file.name, field, model, given, folder, (test_share, comparison, with_data), report)
        fields.write_mesh(folder, field, law)
    _publish(study, folder, _OF_MESHES, as_json)


def traffic(
    file: Annotated[Path, typer.Argument(help="Roads and sensors (.geojson, .rda), or pems.")],
    value: Annotated[str, typer.Option(help="GeoJSON: the sensors' property to interpolate.")] = "value",
    metric: options.Metric = "haversine",
    min_length: MinLength = 0.5,
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
    kernel: RoadKernel = FIELD,
    alpha: Alpha = None,
    boundary: Boundary = "neumann",
    features: Features = None,
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
        walks = {"num_walkers": num_walkers, "halt": halt}
        model = _process(field, kernel, (alpha, 1), features, boundary=boundary, seed=seed, **walks)
        given = {"file": file, "value": value, "metric": metric, "min_length": min_length, "snap": snap}
        study, law = _study(file.name, field, model, given, folder, (test_share, comparison, with_data), report)
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

    `alpha` is what was given, if anything, and the usual one; `walks` are options of walks.
    """
    from rfgp import GraphGP
    from rfgp.fields import whittle_matern

    given, usual = alpha
    if kernel != FIELD and given is not None:
        raise typer.BadParameter(f"--alpha {given} is of --kernel {FIELD}; {kernel} has none.")
    if kernel != FIELD:
        return GraphGP(field.graph, kernel=kernel, features=features or "auto", seed=seed, **walks)
    if features is not None:
        raise typer.BadParameter(
            f"--features {features} approximates the kernel of a graph; {FIELD} needs none. Name a graph's kernel, as "
            "--kernel diffusion, to use it."
        )
    return whittle_matern(field, usual if given is None else given, boundary=boundary, within=within, seed=seed)


def _study(
    name: str,
    field: Any,
    model: Any,
    reading: dict[str, Any],
    folder: Path,
    asked: tuple[float, bool, bool],
    report: Any,
) -> tuple[Any, Any]:
    """Fit, judge, condition on everything, and write what meshes and roads have in common.

    `asked` is the share to test on, whether to compare, and whether to save the data.
    """
    from copy import copy

    from rfgp.fields import law_at_nodes, observed_inputs, write_nodes
    from rfgp.files import made_folder, write_atomically
    from rfgp.report import field_report, study_field

    title, (test_share, compare, with_data) = f"{name}, {field.quantity}", asked
    about = {"title": title, "test_share": test_share, "compare": compare, "seed": model.seed}
    study = study_field(field, model, **about, report=report)
    report("Predicting every node", 0, 0)
    final = copy(model).condition(observed_inputs(model, field), field.values)
    law = law_at_nodes(final, field)
    report("Writing", 0, 0)
    page = field_report(study, field, law, settings=reading, command=command_line())
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
