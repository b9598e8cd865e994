"""`rfgp compare`, `rfgp demo` and `rfgp datasets`."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp import names
from rfgp.cli.common import Input, check_outputs, console, error_console, print_json, say
from rfgp.cli.models import AUTO, built, check_model
from rfgp.cli.options import AsJson, Halt, Metric, ModelRequest, Reading, Seed, among, at_least
from rfgp.progress import Bar


@dataclass(frozen=True, kw_only=True)
class Compare(Reading):
    """Fit the exact process, approximate it under every coupling, and compare.

    If the exact process explains less than 10 % of the variance of the test targets, the command says so.

    Attributes:
        file: A table (.csv, .parquet, ...), a mesh (.stl, .ply, ...), roads (.geojson, .rda), or the name of a public
            data set.
        target: Tables: the target column, by name or position [default: the last]. GeoJSON: a property of the sensors
            [default: value]. Meshes: a property of the file [default: the z component of the normals].
        out: Folder for the picture and the figures of every draw.
        size: The number of frequencies (tables) or of walkers per node (graphs); repeatable. [default: 4 and 16 times
            the number of columns; 16 and 64 walkers]
        features: Tables: fourier or laplace.
        ard: Tables: one lengthscale per column, or one for all.
        kernel: Tables: a sum of terms, as "Matern(t, nu=1.5) + Group(store)", of which the first one with random
            features is approximated [default: RBF of all columns]. Graphs: diffusion or regularized-laplacian [default:
            diffusion].
        num_train: Training rows or nodes. [default: 256, or 3/4 of fewer rows; 95 % of a mesh; 250 of 325 sensors]
        num_test: Test rows or nodes. [default: 256, or 1/4 of fewer rows; the other nodes]
        splits: Random splits into training and test part.
        draws: Draws per coupling, size and split.
    """

    file: Path
    target: str | None = None
    out: Path | None = None
    size: Annotated[list[int] | None, "--size", "--num-frequencies", "--num-walkers", at_least(1)] = None
    features: Annotated[str, among(*names.FEATURES)] = "fourier"
    ard: Annotated[bool, "--ard/--shared"] = False
    metric: Metric = None
    kernel: str | None = None
    halt: Halt = 0.1
    num_train: Annotated[int | None, at_least(2)] = None
    num_test: Annotated[int | None, at_least(1)] = None
    splits: Annotated[int, at_least(1)] = 1
    draws: Annotated[int, at_least(1)] = 10
    seed: Seed = 0
    as_json: AsJson = False

    def run(self) -> None:
        """Compare, and print and draw the results."""
        from rfgp.files import check_folder, made_folder, write_atomically

        kernel, out, given = self.kernel, self.out, {**self.options(), "categories": "one-hot", "dates": "days"}
        source = Input(self.file).check("compare", "table", "mesh", "roads")
        model, columns = None if kernel is None else ModelRequest(kernel), None
        if source.kind == "table":
            if model is not None and (kernel == AUTO or self.ard):
                raise typer.BadParameter("--kernel must be a sum of terms, without auto and without --ard.")
            columns = source.columns(self.target, given)
            if model is not None:
                check_model(model, columns)
        elif kernel is not None:
            among(*names.GRAPH_KERNELS)("kernel", kernel)
        if out is not None:
            check_folder(out)
        from rfgp.compare import Plan, compare_file, to_json

        same = ("features", "ard", "kernel", "num_train", "num_test", "metric", "target")
        protocol: dict[str, Any] = {name: getattr(self, name) for name in same}
        protocol |= {"sizes": self.size, "p_halt": self.halt, "plan": Plan(self.splits, self.draws, self.seed)}
        with Bar(not self.as_json) as report:
            path, given = source.path(report), source.table_options(given)
            if model is not None and source.kind == "table":
                from rfgp.tables import read_names

                made = built(model, columns or read_names(path, **given))
                given, protocol["kernel"] = made.reading(given), made.kernel
            picture = None if out is None else out / f"{Input(path).stem}.png"
            if picture is not None:
                check_outputs((picture.with_suffix(".json"), picture), (path,))
            comparison, fields = compare_file(path, table_options=given, report=report, **protocol)
        with nullcontext() if out is None else made_folder(out):
            if picture is not None:
                write_atomically(picture.with_suffix(".json"), to_json(comparison).encode())
            _publish(comparison, fields() if fields and picture else None, picture, as_json=self.as_json)


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


def demo(
    out: Path = Path("rfgp-demo"),
) -> None:
    """Compare couplings on four generated inputs: a table, a mesh, a road network, and a terrain of 5,408 faces.

    The folder has the inputs, a picture of each, and index.html with the results.

    Args:
        out: Folder for inputs and pictures.
    """
    from rfgp.files import check_folder, made_folder, write_atomically

    check_folder(out)
    from rfgp.compare import compare_file
    from rfgp.report.reports import DemoCase, demo_page

    cases, page = [], out / "index.html"
    with made_folder(out):
        for path, options in demo_cases(out):
            with Bar() as report:
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


def datasets(
    name: Annotated[list[str] | None, typer.Argument(help="Data sets to fetch. Without names, all are listed.")] = None,
    folder: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """List the public data sets, or fetch some: from a local folder, the cache, or their pinned address.

    Args:
        folder: A folder that already holds the files. [default: RFGP_DATA_DIR, if set]
    """
    from rfgp.datasets import CATALOG, fetch

    if not name:
        entries = list(CATALOG.values())
        if as_json:
            shown = ("kind", "rows", "size", "note", "url", "sha256")
            print_json({entry.name: {name: getattr(entry, name) for name in shown} for entry in entries})
        else:
            console.print(_listing(entries))
        return
    paths = {}
    for dataset in name:
        with Bar(not as_json) as report:
            paths[dataset] = fetch(dataset, folder, progress=report)
        if not as_json:
            say(f"{dataset}: {paths[dataset]}")
    if as_json:
        print_json(paths)


def _listing(entries: list[Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("name", "kind", "size", "kB", "what it is"):
        table.add_column(title, justify="right" if title in ("size", "kB") else "left", no_wrap=title != "what it is")
    for entry in entries:
        table.add_row(entry.name, entry.kind, f"{entry.rows:,}", f"{entry.size / 1000:,.0f}", entry.note)
    return table
