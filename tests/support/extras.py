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
from collections.abc import Callable
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
    packages: tuple
    function: Callable


USES = {}


def use(extra, *packages):
    """Register a use under its function's name."""

    def registered(function):
        USES[function.__name__] = Use(extra, packages, function)
        return function

    return registered


def fit_and_load():
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


def written(name, *lines):
    """Write a file into the current folder."""
    path = Path(name)
    path.write_text("\n".join(lines) + "\n")
    return path


def table():
    """Write a table of 30 rows."""
    return written("table.csv", "a,b,y", *(f"{i / 3},{i % 3},{(i % 7) / 5 + i / 30}" for i in range(30)))


POINTS, FACES = ("0 0 0", "1 0 0", "0 1 0", "1 1 0"), ("3 0 1 2", "3 1 3 2")
"""Two triangles."""
VTK = ("# vtk DataFile Version 3.0", "mesh", "ASCII", "DATASET UNSTRUCTURED_GRID", "POINTS 4 double", *POINTS)
VTK += ("CELLS 2 8", *FACES, "CELL_TYPES 2", "5", "5")


@use("plot", "matplotlib")
def draw():
    from rfgp import plotting

    assert plotting.to_png(plotting.new_axes().figure)


@use("gpytorch", "gpytorch")
def use_a_gpytorch_kernel():
    import torch

    import rfgp

    kernel = rfgp.gpytorch.SpectrumKernel(rfgp.spectra.Gaussian())
    assert kernel(torch.zeros(2, 1)).to_dense().shape == (2, 2)


@use("botorch", "botorch")
def fit_a_botorch_model():
    import torch

    import rfgp

    X = torch.rand(8, 2, dtype=torch.float64)
    rfgp.botorch.RandomFeatureGP(X, X.sum(1, keepdim=True)).posterior(X)


@use("sklearn", "sklearn")
def transform_as_scikit_learn():
    import rfgp

    assert len(rfgp.sklearn.RandomFeatures(16, random_state=0).fit_transform([[1.0], [2.0]])) == 2


@use("sklearn", "sklearn")
def cluster_vectors():
    import torch

    from rfgp.features import softmax

    x = torch.randn(20, 2)
    softmax.clustered(x, x, 400, num_clusters=2, generator=torch.Generator())


@use("graphs", "networkx")
def read_gml():
    import graphs

    graphs.builders.read_gml(written("graph.gml", 'graph [ node [ id 0 label "a" ] ]'))


@use("graphs", "ot")
def match_by_pot():
    import numpy as np

    from graphs.matching import assign_by_pot

    assert assign_by_pot(np.array([[2.0, 1.0], [1.0, 2.0]])).tolist() == [1, 0]


@use("mesh", "trimesh")
def read_a_mesh():
    import graphs

    mesh = graphs.load_mesh(written("mesh.off", "OFF", "4 2 0", *POINTS, *FACES))
    assert graphs.Graph.from_mesh(mesh, nodes="vertices").num_nodes == 4


@use("mesh", "trimesh", "meshio")
def read_a_simulation():
    import graphs

    assert len(graphs.load_mesh(written("mesh.vtk", *VTK)).faces) == 2


@use("tables", "pyarrow")
def read_a_table():
    from rfgp import tables

    assert tables.read_table(table(), "y").X.shape == (30, 2)


@use("tables", "pyarrow")
def read_parquet():
    from rfgp import tables
    from rfgp.errors import DataError

    with suppress(DataError):
        tables.read_parquet(written("table.parquet", "no Parquet"), "y")


@use("report", "jinja2", "plotly", "pandas", "matplotlib", "pyarrow")
def study_a_table():
    import numpy as np

    import rfgp
    from rfgp import kernels as k
    from rfgp import report, tables

    t = np.arange(60.0)
    rows = tables.Table(t[:, None], np.sin(t / 9), ("t",), "y")
    study = report.study_table(rows, rfgp.GP(k.RBF("t"), seed=0), compare=False)
    assert report.table_report(study, rows).startswith("<!doctype html>")


@use("datasets", "pooch")
def download_a_data_set():
    from rfgp import datasets
    from rfgp.errors import DataError

    os.environ["RFGP_DATA_URL"] = "http://127.0.0.1:9"  # where nothing listens
    os.environ.pop("RFGP_DATA_DIR", None)
    with suppress(DataError):
        datasets.fetch("torus")


@use("datasets", "rdata")
def read_rda():
    import graphs

    with suppress(graphs.errors.FileFormatError):
        graphs.builders.read_roads(written("roads.rda", "no data of R"))


@use("cli", "typer", "rich")
def run_the_command():
    from rfgp import cli
    from rfgp.errors import MissingDependencyError

    sys.argv = ["rfgp", "--version"]
    try:
        cli.main()
    except SystemExit as stop:
        if stop.code:
            raise MissingDependencyError(str(stop.code)) from stop


@use("dask", "dask", "distributed", "pandas")
def load_dask():
    import rfgp

    assert rfgp.dask.fit


@use("metis", "pymetis")
def order_by_metis():
    import numpy as np

    from graphs.cholesky.orders import order

    assert sorted(order(np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1]), method="metis")) == [0, 1, 2]


@use("geo", "pyproj")
def read_a_rare_projection():
    from graphs.builders.road_files import read_crs
    from graphs.errors import FileFormatError, MissingDependencyError

    try:
        read_crs({"crs": {"type": "name", "properties": {"name": "EPSG:3347"}}}, None, "roads.geojson")
    except FileFormatError as error:  # pyproj is one remedy of two
        raise MissingDependencyError(str(error)) from error


def expectation(entry, extras):
    """Return how a use ends: those of an extra that is installed work, others if their packages are there anyway."""
    is_there = entry.extra in extras or "all" in extras or all(map(find_spec, entry.packages))
    return "works" if is_there else "names its extra"


def outcome(entry):
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


def loaded(packages):
    """Return which packages are loaded now."""
    return [name for name in packages if sys.modules.get(name) is not None]


def main(extras):
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
