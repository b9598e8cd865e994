"""Values at the vertices of meshes and at sensors of a road network, by this package and by GeometricKernels.

Protocol, fixed before the results were seen. Meshes: those of Reid et al. (2024) and data/mesh.ply, scaled to a box
whose longest side is 2. Two quantities at the vertices: the z component of the normal, and cos(3 x) + sin(3 y + 1.5 z)
with noise of deviation 0.1. At each seed a random tenth of the vertices is observed and the others are predicted.
Five cases of `OTHERS`, with meshes of the package pyvista and the same quantities, were added with the ten splits of
November 2026, before any model was fitted to them. Figures of a table are means of the splits. A model is behind
another on a table if its mean NLPD is higher by more than two standard errors of the paired difference. pems:
the protocol of Borovitskiy et al. (2021), 250 random sensors of 325 train and 75 test; their graph has a node for each
crossing and sensor, with the weight (mean length) / (length) of an edge. Each model fits its hyperparameters by its
marginal likelihood. Figures: RMSE and NLPD of observations; processor seconds of the fit and of all predictions,
imports apart. Each run is alone in a process of its own, with one thread, and ended after `--limit` seconds.

- rfgp: `rfgp.MeshGP` with alpha = 2; for pems `rfgp.RoadGP` with alpha = 2 on the roads themselves. rfgp-smooth: alpha
  = 3, and rfgp-auto: alpha = "auto", on the meshes, both added after the others had been seen. rfgp-auto selected 2, 3
  or 4 then, later 2, 3, 4 or math.inf, and averages these now, the default of `rfgp.MeshGP`. Its options were chosen on
  `TUNING` and on other meshes, fields that are in none of these tables.
- rfgp-graph: `rfgp.GraphGP` with its defaults (the exact diffusion kernel) on the graph, for pems.
- geometric: the MaternGeometricKernel of GeometricKernels with its default number of eigenfunctions in its GPyTorch
  wrapper, with a constant mean, an output scale and Gaussian noise; 200 steps of Adam at 0.1 from lengthscales 1/4, 1
  and 4, of which the likeliest result is taken. nu is learned from 5/2. geometric-heat: the same with the heat kernel.

A racer of a package that is not installed is left out, with a word. Results are lines of JSON that are added to
`--out`; what stands there already is not run again.

    python -m benchmarks.races.surfaces_and_graphs [--tables T,...] [--racers R,...] [--splits N] [--limit SECONDS]
                                                   [--out FILE]
"""

import importlib
import json
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from benchmarks.races import processes
from rfgp.datasets import fetch

Array = NDArray[Any]

MODULE = "benchmarks.races.surfaces_and_graphs"
MESHES = {"mesh": "data/mesh.ply", "sphere": "unit_sphere", "idler-riser": "idler_riser", "fuze": "fuze"}
MESHES |= {"busted": "busted", "teapot": "teapot", "torus": "torus"}
OF_PYVISTA = ("ant", "nut", "airplane")
QUANTITIES = ("normals", "waves")
PEMS, TRAINED = "pems", 250
OTHERS = ("ant-normals", "ant-waves", "nut-normals", "nut-waves", "airplane-waves")
TABLES = (*(f"{mesh}-{quantity}" for mesh in MESHES for quantity in QUANTITIES), *OTHERS, PEMS)
TUNING = tuple(f"{mesh}-{quantity}" for mesh in MESHES for quantity in ("ripples", "steps", "tilts"))
"""Tables on which options are chosen, and models are not compared: `--tables` names them."""
OF_SOME_TABLES = ("rfgp-graph", "rfgp-smooth", "rfgp-auto")
"""Racers of pems alone (graph), or of meshes alone."""
STEPS, RATE, STARTS = 200, 0.1, (0.25, 1.0, 4.0)


class Rows(NamedTuple):
    """A domain, its points (n, d) or nodes (n,), and their values (n,)."""

    domain: Any
    points: Array
    y: Array


Law = tuple[Array, Array]
"""The means and variances of observations, (m,) each."""
Fit = Callable[[str, Array, Array], Law]
"""`fit(table, train, test)` returns the distribution at the indices of `test`."""


def mesh_rows(table: str) -> Rows:
    """Return a scaled mesh, its vertices and the values of a quantity."""
    name, _, quantity = table.rpartition("-")
    mesh = graphs.load_mesh(mesh_file(name))
    low, size = mesh.vertices.min(axis=0), np.ptp(mesh.vertices, axis=0).max()
    mesh.vertices = 2 * (mesh.vertices - low) / size
    x, noise = np.array(mesh.vertices), np.random.default_rng(0).standard_normal(len(mesh.vertices))
    waves = np.cos(3 * x[:, 0]) + np.sin(3 * x[:, 1] + 1.5 * x[:, 2]) + 0.1 * noise
    values = {
        "waves": waves,
        "normals": np.array(mesh.vertex_normals[:, 2]),
        "ripples": np.sin(4 * x[:, 0] - 2 * x[:, 2]) * np.cos(3 * x[:, 1]) + 0.2 * noise,
        "steps": np.sign(np.sin(4 * x[:, 0] + x[:, 1])) + 0.1 * noise,
        "tilts": mesh.vertex_normals[:, 0] * x[:, 1] + 0.03 * noise,
    }
    return Rows(mesh, x, values[quantity])


def mesh_file(name: str) -> Any:
    """Return the path of the file of a mesh."""
    if name in OF_PYVISTA:
        package = find_spec("pyvista")
        if package is None or package.origin is None:
            raise SystemExit(f"{name} is a file of the package pyvista, which is not installed.")
        return Path(package.origin).parent / "examples" / f"{name}.ply"
    return MESHES[name] if "/" in MESHES[name] else fetch(MESHES[name])


def road_rows() -> Rows:
    """Return the roads, and the positions (n, 2) and speeds of sensors."""
    roads = graphs.read_roads(fetch(PEMS))
    return Rows(roads, np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1), roads.values)


def graph_rows() -> Rows:
    """Return the graph of crossings and sensors, and the nodes and speeds of sensors."""
    roads = road_rows().domain
    edges, fractions, place = roads.sensor_positions()
    graph = graphs.Graph.from_roads(roads.lines, edges, fractions, metric=roads.metric)
    return Rows(graph, np.array([f"sensor-{i}" for i in place]), roads.values)


# --- racers ----------------------------------------------------------------------------------------------------------


def of_gp(gp: Any, rows: Rows, train: Array, test: Array) -> Law:
    observed = gp.fit(rows.points[train], rows.y[train]).predict(rows.points[test]).observed()
    return observed.mean, observed.variance


def fields(table: str, train: Array, test: Array, alpha: int | str = 2) -> Law:
    import rfgp

    rows = road_rows() if table == PEMS else mesh_rows(table)
    if table == PEMS:
        return of_gp(rfgp.RoadGP(graphs.RoadNetwork.from_roads(rows.domain), 2, seed=0), rows, train, test)
    return of_gp(rfgp.MeshGP(rows.domain, alpha, seed=0), rows, train, test)


def on_graph(table: str, train: Array, test: Array) -> Law:
    import rfgp

    rows = graph_rows()
    return of_gp(rfgp.GraphGP(rows.domain, seed=0), rows, train, test)


def geometric(table: str, train: Array, test: Array, learns_nu: bool = True) -> Law:
    import gpytorch
    import torch
    from geometric_kernels.kernels import MaternGeometricKernel
    from geometric_kernels.spaces import Graph, Mesh

    torch.set_default_dtype(torch.float64)
    if table == PEMS:
        rows = graph_rows()
        space = Graph(np.asarray(rows.domain.adjacency.todense()), normalize_laplacian=False)
        inputs = torch.as_tensor(rows.domain.index(rows.points))[:, None]
    else:
        rows = mesh_rows(table)
        space = Mesh(np.array(rows.domain.vertices), np.array(rows.domain.faces))
        inputs = torch.arange(len(rows.y))[:, None]
    kernel, y = MaternGeometricKernel(space), torch.as_tensor(rows.y)
    location, scale = y[train].mean(), y[train].std()
    targets = (y[train] - location) / scale
    fitted = [ascend(kernel, inputs[train], targets, start, learns_nu) for start in STARTS]
    model = max(fitted, key=lambda pair: pair[0])[1]
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        law = model.likelihood(model(inputs[test]))
        return (law.mean * scale + location).numpy(), (law.variance * scale**2).numpy()


def ascend(kernel: Any, inputs: Any, targets: Any, lengthscale: float, learns_nu: bool) -> tuple[float, Any]:
    """Return the log marginal likelihood and the exact process after Adam's steps."""
    import gpytorch
    import torch
    from geometric_kernels.frontends.gpytorch import GPyTorchGeometricKernel

    class Exact(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(inputs, targets, gpytorch.likelihoods.GaussianLikelihood())
            self.mean = gpytorch.means.ConstantMean()
            given = {"nu": 2.5, "trainable_nu": True} if learns_nu else {}
            wrapped = GPyTorchGeometricKernel(kernel, lengthscale=lengthscale, **given)
            self.covariance = gpytorch.kernels.ScaleKernel(wrapped)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    model = Exact()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    with gpytorch.settings.fast_computations(False, False, False):
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = -objective(model(inputs), targets)
            loss.backward()
            optimizer.step()
        value = float(objective(model(inputs), targets))
    model.eval()
    return value, model


RACERS: dict[str, tuple[str, Fit]] = {
    "rfgp": ("rfgp.gp", fields),
    "rfgp-graph": ("rfgp.gp", on_graph),
    "rfgp-smooth": ("rfgp.gp", lambda *rows: fields(*rows, alpha=3)),
    "rfgp-auto": ("rfgp.gp", lambda *rows: fields(*rows, alpha="auto")),
    "geometric": ("geometric_kernels.torch", geometric),
    "geometric-heat": ("geometric_kernels.torch", lambda *rows: geometric(*rows, learns_nu=False)),
}
"""The module that is imported before the clock starts, and the method."""


def split(table: str, seed: int) -> tuple[Array, Array]:
    """Return the indices of the observed and the predicted points."""
    count = len(road_rows().y if table == PEMS else mesh_rows(table).y)
    order = np.random.default_rng(seed).permutation(count)
    observed = TRAINED if table == PEMS else count // 10
    return np.sort(order[:observed]), np.sort(order[observed:])


def run(table: str, racer: str, train: Array, test: Array) -> dict[str, float | int]:
    """Fit and predict in this process, and return the figures."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    package, fit = RACERS[racer]
    importlib.import_module(package)
    begin = time.process_time()
    mean, variance = fit(table, train, test)
    seconds = time.process_time() - begin
    y = (road_rows() if table == PEMS else mesh_rows(table)).y[test]
    nlpd = 0.5 * np.mean((y - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    error = float(np.sqrt(np.mean((y - mean) ** 2)))
    return {"rows": len(train), "nlpd": float(nlpd), "rmse": error, "processor": seconds}


def main() -> None:
    options = processes.options(TABLES, list(RACERS))
    if options.run:
        racer, _, file = options.run
        case = np.load(file)
        print(json.dumps(run(str(case["table"]), racer, case["train"], case["test"])))
        return
    racers = processes.present({name: RACERS[name][0] for name in options.racers})
    wanted = (
        (table, seed, racer)
        for seed in range(options.splits)
        for table in options.tables
        for racer in racers
        if racer not in OF_SOME_TABLES or (racer == "rfgp-graph") == (table == PEMS)
    )

    def arrays(table: str, seed: int) -> dict[str, Any]:
        train, test = split(table, seed)
        return {"table": table, "train": train, "test": test}

    found = processes.run_all(MODULE, wanted, arrays, options.limit, options.out)
    processes.show(processes.page(found, ("nlpd", "rmse", "processor")), options.page)


if __name__ == "__main__":
    main()
