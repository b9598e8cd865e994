"""`rfgp demo` and `rfgp compare`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli.common import console, error_console, progress, resolve, stem, table_options


def demo(
    out: Annotated[Path, typer.Option(help="Folder for inputs and pictures.")] = Path("rfgp-demo"),
) -> None:
    """Compare couplings on three generated inputs: a table, a mesh and a road network."""
    from rfgp import datasets
    from rfgp.compare import Plan, compare_file

    out.mkdir(parents=True, exist_ok=True)
    for path in datasets.write_all(out):
        with progress() as report:
            comparison, fields = compare_file(path, plan=Plan(splits=1, draws=3, seed=0), report=report)
        _publish(comparison, fields, out / f"{path.stem}.png")


def compare(
    file: Annotated[
        Path,
        typer.Argument(
            help="A table (.csv, .parquet, ...), a mesh (.stl, .ply, ...), roads (.geojson, .rda), or the name of a "
            "public data set."
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="Tables: the target column, by name or position. [default: the last]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the picture and the figures of every draw.")] = None,
    size: Annotated[
        list[int] | None,
        typer.Option(help="Frequencies or walkers; repeatable. [default: 4 d and 16 d; 16 and 64]"),
    ] = None,
    features: Annotated[str, typer.Option(help="Tables: fourier or laplace.")] = "fourier",
    ard: Annotated[bool, typer.Option("--ard", help="Tables: one lengthscale per column.")] = False,
    categories: Annotated[str, typer.Option(help="Tables: text columns; error, one-hot or drop.")] = "error",
    dates: Annotated[str, typer.Option(help="Tables: date columns; error, days or drop.")] = "error",
    missing: Annotated[str, typer.Option(help="Tables: missing values; error, drop (rows) or mean.")] = "error",
    drop: Annotated[list[str] | None, typer.Option(help="Tables: a column to leave out; repeatable.")] = None,
    as_category: Annotated[list[str] | None, typer.Option(help="Tables: a column of categories; repeatable.")] = None,
    decimal: Annotated[str, typer.Option(help="Tables: the decimal mark.")] = ".",
    encoding: Annotated[str, typer.Option(help="Tables: of a text file.")] = "utf-8",
    value: Annotated[str, typer.Option(help="Roads in GeoJSON: the sensors' property to interpolate.")] = "value",
    kernel: Annotated[str, typer.Option(help="Graphs: diffusion or regularized-laplacian.")] = "diffusion",
    halt: Annotated[float, typer.Option(help="Graphs: the walkers' halting probability.")] = 0.1,
    num_train: Annotated[
        int | None,
        typer.Option(help="Training rows or nodes. [default: 256; 95 % of a mesh; 250 of 325 sensors]"),
    ] = None,
    num_test: Annotated[int | None, typer.Option(help="Test rows or nodes. [default: 256; the others]")] = None,
    splits: Annotated[int, typer.Option(help="Random splits into training and test part.")] = 1,
    draws: Annotated[int, typer.Option(help="Draws per coupling, size and split.")] = 10,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print every draw as JSON instead of a table.")] = False,
) -> None:
    """Fit the exact process, approximate it under every coupling, and compare."""
    options: dict[str, Any] = {"categories": categories, "dates": dates, "missing": missing, "decimal": decimal}
    options |= {"encoding": encoding, "drop": tuple(drop or ()), "as_categories": tuple(as_category or ())}
    protocol = {"sizes": size, "features": features, "ard": ard, "kernel": kernel, "halt": halt}
    protocol |= {"num_train": num_train, "num_test": num_test, "value": value, "target": target}
    _compare(file, protocol, options, (splits, draws, seed), out, as_json)


def _compare(
    file: Path,
    protocol: dict[str, Any],
    options: dict[str, Any],
    amount: tuple[int, int, int],
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare and publish; `amount` is splits, draws and seed, `options` are those of tables."""
    from rfgp.compare import Plan, compare_file, to_json
    from rfgp.files import write_atomically

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with progress(visible=not as_json) as report:
        path, reading = resolve(file, report), table_options(file, options)
        comparison, fields = compare_file(path, table_options=reading, plan=Plan(*amount), report=report, **protocol)
    if out is not None:
        write_atomically(out / f"{stem(path)}.json", to_json(comparison).encode())
    _publish(comparison, fields, None if out is None else out / f"{stem(path)}.png", as_json=as_json)


def _publish(comparison: Any, fields: Any, picture: Path | None, *, as_json: bool = False) -> None:
    """Print a comparison, and draw it where a picture is asked for."""
    from rfgp.compare import to_json, to_table

    if as_json:
        print(to_json(comparison))
    else:
        console.print(to_table(comparison))
    if picture is not None:
        from rfgp.plotting import draw_comparison, save

        save(draw_comparison(comparison, fields() if fields else None), picture)
        (error_console if as_json else console).print(f"Picture: {picture}", highlight=False)
