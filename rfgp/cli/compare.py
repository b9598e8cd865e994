"""`rfgp demo` and `rfgp compare`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli import checks, options
from rfgp.cli.common import (
    check_outputs,
    console,
    error_console,
    is_field,
    known_input,
    progress,
    resolve,
    say,
    stem,
    table_options,
)
from rfgp.cli.models import ModelRequest

Target = Annotated[
    str | None,
    typer.Option(
        help="Tables: the target column, by name or position [default: the last]. GeoJSON: a property of the sensors "
        "[default: value]. Meshes: a property of the file [default: the z component of the normals]."
    ),
]

TableOrGraphKernel = Annotated[
    str | None,
    typer.Option(
        help='Tables: a sum of terms, as "Matern(t, nu=1.5) + Group(store)", of which the first one with random '
        "features is approximated [default: RBF of all columns]. Graphs: diffusion or regularized-laplacian "
        "[default: diffusion]."
    ),
]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for inputs and pictures.")] = Path("rfgp-demo"),
) -> None:
    """Compare couplings on four generated inputs: a table, a mesh, a road network, and a terrain of 5,408 faces.

    The folder has the inputs, a picture of each, and index.html with the results.
    """
    from rfgp.files import check_folder, made_folder, write_atomically

    check_folder(out)
    from rfgp.compare import compare_file
    from rfgp.report.reports import DemoCase, demo_page

    cases, page = [], out / "index.html"
    with made_folder(out):
        for path, options in demo_cases(out):
            with progress() as report:
                comparison, fields = compare_file(path, report=report, **options)
                cases.append(DemoCase(path, comparison, fields() if fields else None))
            _publish(comparison, cases[-1].fields, out / f"{path.stem}.png")
        write_atomically(page, demo_page(cases).encode())
    say(f"All results: {page}")


_MESH: dict[str, Any] = {"num_train": 400, "num_test": 200}
_MESH |= {"methods": ("iid", "systematic", "stratified", "exact-hops")}
"""Settings of the demo's mesh. Few faces and methods keep it to seconds. The roads have all methods."""
_TERRAIN: dict[str, Any] = {"kernel": "regularized-laplacian", "p_halt": 0.02, "num_train": 800, "num_test": 200}
_TERRAIN |= {"methods": ("iid", "stratified", "chebyshev")}
"""Settings of the demo's terrain, whose exact process uses a sparse precision. The variance of walks is finite for
halting probabilities below 0.054 (`graphs.max_p_halt` of the fitted kernel)."""


def demo_cases(out: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Write the inputs of the demo, and return their paths with options of `compare_file`.

    Args:
        out: The folder.
    """
    from rfgp import datasets
    from rfgp.compare import Plan

    table, mesh, roads = datasets.write_all(out)
    cases = [(table, {}), (mesh, _MESH), (roads, {}), (datasets.write_terrain(out), _TERRAIN)]
    return [(path, {"plan": Plan(splits=1, draws=3, seed=0), **options}) for path, options in cases]


def compare(
    file: Annotated[
        Path,
        typer.Argument(
            help="A table (.csv, .parquet, ...), a mesh (.stl, .ply, ...), roads (.geojson, .rda), or the name of a "
            "public data set."
        ),
    ],
    target: Target = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the picture and the figures of every draw.")] = None,
    size: Annotated[
        list[int] | None,
        typer.Option(
            "--size",
            "--num-frequencies",
            "--num-walkers",
            help="The number of frequencies (tables) or of walkers per node (graphs); repeatable. [default: 4 and 16 "
            "times the number of columns; 16 and 64 walkers]",
        ),
    ] = None,
    features: Annotated[str, typer.Option(help="Tables: fourier or laplace.")] = "fourier",
    ard: Annotated[
        bool, typer.Option("--ard/--shared", help="Tables: one lengthscale per column, or one for all.")
    ] = False,
    missing: options.Missing = "error",
    drop: options.Drop = None,
    as_category: options.AsCategory = None,
    numbers: options.Numbers = None,
    decimal: options.Decimal = ".",
    thousands: options.Thousands = None,
    comment: options.Comment = None,
    encoding: options.Encoding = "utf-8",
    missing_mark: options.MissingMark = None,
    metric: options.Metric = None,
    kernel: TableOrGraphKernel = None,
    halt: Annotated[float, typer.Option(help="Graphs: the probability that a walker halts at a step.")] = 0.1,
    num_train: Annotated[
        int | None,
        typer.Option(
            help="Training rows or nodes. [default: 256, or 3/4 of fewer rows; 95 % of a mesh; 250 of 325 sensors]"
        ),
    ] = None,
    num_test: Annotated[
        int | None, typer.Option(help="Test rows or nodes. [default: 256, or 1/4 of fewer rows; the other nodes]")
    ] = None,
    splits: Annotated[int, typer.Option(help="Random splits into training and test part.")] = 1,
    draws: Annotated[int, typer.Option(help="Draws per coupling, size and split.")] = 10,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print every draw as JSON instead of a table.")] = False,
) -> None:
    """Fit the exact process, approximate it under every coupling, and compare.

    If the exact process explains less than 10 % of the variance of the test targets, the command says so.
    """
    reading = options.reading(missing, drop, as_category, numbers) | {"categories": "one-hot", "dates": "days"}
    reading |= options.spelling(decimal, thousands, comment, encoding, missing_mark)
    protocol = {"sizes": size, "features": features, "ard": ard, "kernel": kernel, "p_halt": halt}
    protocol |= {"num_train": num_train, "num_test": num_test, "metric": metric, "target": target}
    _compare(file, protocol, reading, (splits, draws, seed), out, as_json)


def _compare(
    file: Path,
    protocol: dict[str, Any],
    reading: dict[str, Any],
    amount: tuple[int, int, int],
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare and publish.

    `amount` is the numbers of splits and draws and the seed. `reading` has the options of tables.
    """
    from contextlib import nullcontext

    from rfgp.files import check_folder, made_folder, write_atomically

    request, names = _checked(file, protocol, reading, amount)
    if out is not None:
        check_folder(out)
    from rfgp.compare import Plan, compare_file, to_json

    with progress(visible=not as_json) as report:
        path, reading = resolve(file, "compare", report), table_options(file, reading)
        if request is not None:
            from rfgp.tables import read_names

            model = request.build(names or read_names(path, **reading))
            reading, protocol = model.reading(reading), {**protocol, "kernel": model.kernel}
        if out is not None:
            check_outputs((out / f"{stem(path)}.json", out / f"{stem(path)}.png"), (path,))
        comparison, fields = compare_file(path, table_options=reading, plan=Plan(*amount), report=report, **protocol)
    with nullcontext() if out is None else made_folder(out):
        if out is not None:
            write_atomically(out / f"{stem(path)}.json", to_json(comparison).encode())
        picture = None if out is None else out / f"{stem(path)}.png"
        _publish(comparison, fields() if fields and picture else None, picture, as_json=as_json)


def _checked(
    file: Path, protocol: dict[str, Any], reading: dict[str, Any], amount: tuple[int, int, int]
) -> tuple[ModelRequest | None, tuple[str, ...] | None]:
    """Check all options before torch is loaded.

    The results are the request of the kernel of a table, and the names of its columns, if they are known.
    """
    kernel, on_graph = protocol["kernel"], is_field(file)
    checks.check_comparison({**protocol, "kernel": kernel if on_graph and kernel else "diffusion"}, *amount)
    if on_graph:
        known_input(file, "compare")
        return None, None
    request = None if kernel is None else ModelRequest(kernel)
    if request is not None:
        request.check()
        if request.is_auto or protocol["ard"]:
            raise typer.BadParameter("--kernel must be a sum of terms, without auto and without --ard.")
    names = checks.check_table(file, protocol["target"], reading, "compare")
    if request is not None:
        request.check_columns(names, None)
    return request, names


def _publish(comparison: Any, fields: Any, picture: Path | None, *, as_json: bool = False) -> None:
    """Print a comparison, and draw it if a picture is requested."""
    from rfgp.compare import to_json, to_table

    if as_json:
        print(to_json(comparison))
    else:
        console.print(to_table(comparison))
    if comparison.remark:
        say(comparison.remark, as_json=as_json)
    if picture is not None:
        from rfgp.plotting import draw_comparison, save

        save(draw_comparison(comparison, fields), picture)
        (error_console if as_json else console).print(f"Picture: {picture}", highlight=False)
