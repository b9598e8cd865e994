"""A small use of each public entry point that needs an extra, and of the core, which needs none.

`python extras.py plot tables` runs in an environment with these extras: the uses of both must work, and the others must
raise a `MissingDependencyError` that names their extra. `python extras.py --blocked` hides all optional packages first.
Neither pytest nor the checkout is needed: `make wheel-check` runs it in environments that hold a wheel and one extra.
"""

import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

PACKAGES = (
    *("botorch", "dask", "distributed", "gpytorch", "jinja2", "linear_operator", "matplotlib"),
    *("meshio", "mpl_toolkits", "networkx", "ot", "pandas", "plotly", "pooch", "pyarrow", "pymetis", "pyproj"),
    *("rdata", "requests", "rich", "sklearn", "trimesh", "typer"),
)
"""The optional packages that rfgp and graphs import, by the names of their imports."""


class Use(NamedTuple):
    """A use of an entry point, its extra, and the optional packages that it imports."""

    extra: str
    packages: tuple[str, ...]
    function: Callable[[], object]


USES: dict[str, Use] = {}


def use(extra: str, *packages: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register a use under its function's name."""

    def registered(function: Callable[[], object]) -> Callable[[], object]:
        USES[function.__name__] = Use(extra, packages, function)
        return function

    return registered


def fit_and_load() -> None:
    """Fit small models of numpy's arrays, and load one again: the core, without any extra."""
    import numpy as np

    import rfgp
    from rfgp import kernels as k

    X = np.linspace(0, 10, 40)[:, None]
    for approximation in (rfgp.Exact(), rfgp.RandomFeatures(16)):
        gp = rfgp.GP(k.RBF(), approximation=approximation, seed=0).fit(X, np.sin(X[:, 0]))
        gp.save("model.safetensors")
        loaded = rfgp.load("model.safetensors").predict(X).mean
        assert np.array_equal(loaded, gp.predict(X).mean)
        assert np.abs(loaded - np.sin(X[:, 0])).max() < 0.1


def table() -> Path:
    """Write a table of 30 rows."""
    lines = [f"{i / 3},{i % 3},{(i % 7) / 5 + i / 30}" for i in range(30)]
    return written("table.csv", "\n".join(["a,b,y", *lines]) + "\n")


def written(name: str, content: str) -> Path:
    """Write a file into the current folder."""
    path = Path(name)
    path.write_text(content)
    return path


def triangle() -> tuple[list[tuple[float, ...]], list[tuple[int, ...]]]:
    """Return the vertices and faces of two triangles."""
    return [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0)], [(0, 1, 2), (1, 3, 2)]


@use("plot", "matplotlib")
def draw_a_band() -> None:
    import numpy as np
    import torch

    from rfgp import plotting

    axes = plotting.new_axes()
    axes.plot(np.arange(3), torch.arange(3))
    assert plotting.to_png(axes.figure)


@use("gpytorch", "gpytorch")
def use_a_gpytorch_kernel() -> None:
    import torch

    import rfgp

    kernel = rfgp.gpytorch.SpectrumKernel(rfgp.spectra.Gaussian())
    assert kernel(torch.zeros(2, 1)).to_dense().shape == (2, 2)


@use("botorch", "botorch")
def fit_a_botorch_model() -> None:
    import torch

    import rfgp

    X = torch.rand(8, 2, dtype=torch.float64)
    rfgp.botorch.RandomFeatureGP(X, X.sum(1, keepdim=True)).posterior(X)


@use("sklearn", "sklearn")
def transform_as_scikit_learn() -> None:
    import numpy as np

    import rfgp

    found = rfgp.sklearn.RandomFeatures(16, random_state=0).fit_transform(np.eye(4))
    assert len(found) == 4


@use("sklearn", "sklearn")
def cluster_vectors() -> None:
    import torch

    from rfgp.features import softmax

    x = torch.randn(20, 2)
    softmax.clustered(x, x, 400, num_clusters=2, generator=torch.Generator())


@use("graphs", "networkx")
def read_gml() -> None:
    import graphs

    graphs.builders.read_gml(written("graph.gml", 'graph [ node [ id 0 label "a" ] ]'))


@use("graphs", "ot")
def match_by_pot() -> None:
    import numpy as np

    from graphs.matching.pairs import assign_by_pot

    assert assign_by_pot(np.array([[2.0, 1.0], [1.0, 2.0]])).tolist() == [1, 0]


@use("graphs", "ot")
def couple_norms() -> None:
    import numpy as np

    from rfgp.transport import optimal_norm_coupling

    assert optimal_norm_coupling(np.eye(2)).shape == (2, 2)


@use("mesh", "trimesh")
def read_a_mesh() -> None:
    import graphs

    points, faces = triangle()
    rows = [" ".join(map(str, row)) for row in (*points, *((3, *face) for face in faces))]
    mesh = graphs.load_mesh(written("mesh.off", "\n".join(["OFF", "4 2 0", *rows]) + "\n"))
    assert graphs.Graph.from_mesh(mesh, nodes="vertices").num_nodes == 4


@use("mesh", "trimesh")
def make_a_mesh() -> None:
    from rfgp import datasets

    assert len(datasets.make_mesh(subdivisions=1).faces) == 80


@use("mesh", "trimesh", "meshio")
def read_a_simulation() -> None:
    import graphs

    points, faces = triangle()
    rows = ["# vtk DataFile Version 3.0", "mesh", "ASCII", "DATASET UNSTRUCTURED_GRID", "POINTS 4 double"]
    rows += [" ".join(map(str, point)) for point in points]
    rows += ["CELLS 2 8", *(" ".join(map(str, (3, *face))) for face in faces), "CELL_TYPES 2", "5", "5"]
    assert len(graphs.load_mesh(written("mesh.vtk", "\n".join(rows) + "\n")).faces) == 2


@use("tables", "pyarrow")
def read_a_table() -> None:
    from rfgp import tables

    assert tables.read_table(table(), "y").X.shape == (30, 2)


@use("tables", "pyarrow")
def read_blocks_of_a_table() -> None:
    from rfgp import tables

    assert sum(len(chunk[1]) for chunk in tables.CSV(table(), "y").chunks()) == 30


@use("tables", "pyarrow")
def read_parquet() -> None:
    from rfgp import tables
    from rfgp.errors import DataError

    with suppress(DataError):
        tables.read_parquet(written("table.parquet", "no Parquet"), "y")


@use("report", "jinja2", "plotly", "pandas", "matplotlib", "pyarrow")
def study_a_table() -> None:
    import numpy as np

    import rfgp
    from rfgp import kernels as k
    from rfgp import report, tables

    t = np.arange(60.0)
    table = tables.Table(t[:, None], np.sin(t / 9), ("t",), "y")
    study = report.study_table(table, rfgp.GP(k.RBF("t"), seed=0), compare=False)
    assert report.table_report(study, table).startswith("<!doctype html>")


@use("datasets", "pooch")
def download_a_data_set() -> None:
    from rfgp import datasets
    from rfgp.errors import DataError

    os.environ["RFGP_DATA_URL"] = "http://127.0.0.1:9"  # where nothing listens
    os.environ.pop("RFGP_DATA_DIR", None)
    name = next(name for name in datasets.names() if "://" in datasets.describe(name).url)
    with suppress(DataError):
        datasets.fetch(name)


@use("datasets", "rdata")
def read_rda() -> None:
    import graphs

    with suppress(graphs.errors.FileFormatError):
        graphs.builders.read_roads(written("roads.rda", "no data of R"))


@use("cli", "typer", "rich")
def run_the_command() -> None:
    from rfgp import cli
    from rfgp.errors import MissingDependencyError

    sys.argv = ["rfgp", "--version"]
    try:
        cli.main()
    except SystemExit as stop:
        if stop.code:
            raise MissingDependencyError(str(stop.code)) from stop


@use("cli", "rich")
def show_a_comparison() -> None:
    from rfgp.compare import Comparison, to_table

    with suppress(AttributeError, TypeError):
        to_table(object.__new__(Comparison))


@use("dask", "dask", "distributed", "pandas")
def load_dask() -> None:
    import rfgp

    assert rfgp.dask.fit


@use("metis", "pymetis")
def order_by_metis() -> None:
    import numpy as np

    from graphs.cholesky.orders import order

    indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])
    assert sorted(order(indptr, indices, method="metis")) == [0, 1, 2]


@use("geo", "pyproj")
def read_a_rare_projection() -> None:
    from graphs.builders.crs import read_crs
    from graphs.errors import FileFormatError, MissingDependencyError

    try:
        read_crs({"crs": {"type": "name", "properties": {"name": "EPSG:3347"}}}, None, "roads.geojson")
    except FileFormatError as error:  # pyproj is one remedy of two
        raise MissingDependencyError(str(error)) from error


def expectation(entry: Use, extras: Sequence[str]) -> str:
    """Return how a use ends: those of an extra that is installed work, others if their packages are there anyway."""
    is_there = entry.extra in extras or "all" in extras or all(map(find_spec, entry.packages))
    return "works" if is_there else "names its extra"


def outcome(entry: Use) -> str:
    """Return "works", "names its extra", or the error of a use."""
    from graphs.errors import MissingDependencyError as OfGraphs
    from rfgp.errors import MissingDependencyError

    try:
        entry.function()
    except (MissingDependencyError, OfGraphs) as error:
        return "names its extra" if f"pip install 'rfgp[{entry.extra}]'" in str(error) else f"{error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "works"


def loaded(packages: list[str]) -> list[str]:
    """Return which packages are loaded now."""
    return [name for name in packages if sys.modules.get(name) is not None]


def main(extras: list[str]) -> int:
    """Check all uses with these extras installed; print the results as JSON, and return how many are wrong."""
    if "--blocked" in extras:
        sys.modules.update(dict.fromkeys(PACKAGES))
    os.chdir(tempfile.mkdtemp())
    os.environ["RFGP_CACHE_DIR"] = os.getcwd()
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    import rfgp  # noqa: F401

    seconds = time.perf_counter() - begin
    results = {"seconds of import rfgp": seconds, "loaded by import rfgp": loaded(["torch", *PACKAGES])}
    if not extras or "--blocked" in extras:
        fit_and_load()
    results["loaded by a fit"] = loaded(PACKAGES)
    found = {name: outcome(entry) for name, entry in USES.items()}
    expected = {name: expectation(entry, extras) for name, entry in USES.items()}
    results["uses"] = found
    results["wrong"] = {name: text for name, text in found.items() if text != expected[name]}
    print(json.dumps(results))
    return len(results["wrong"]) + len(results["loaded by a fit"]) + len(results["loaded by import rfgp"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
