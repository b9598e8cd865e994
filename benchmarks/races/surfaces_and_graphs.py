"""Values at the vertices of meshes and at sensors of a road network, by this package and by GeometricKernels.

Protocol, fixed before the results were seen. Meshes: those of Reid et al. (2024) and data/mesh.ply, scaled to a box
whose longest side is 2. Two quantities at the vertices: the z component of the normal, and cos(3 x) + sin(3 y + 1.5 z)
with noise of deviation 0.1. At each seed a random tenth of the vertices is observed and the others are predicted.
Five cases of `OTHERS`, with meshes of the package pyvista and the same quantities, were added with the ten splits of
November 2026, before any model was fitted to them. Figures of a table are means of the splits. A model is behind
another on a table if its mean NLPD is higher by more than two standard errors of the paired difference. pems:
the protocol of Borovitskiy et al. (2021), 250 random sensors of 325 train and 75 test; their graph has a node for each
crossing and sensor, with the weight (mean length) / (length) of an edge. Each model fits its hyperparameters by its
marginal likelihood. Scores: RMSE, NLPD and coverage of observations.

- rfgp: `rfgp.MeshGP` with alpha = 2; for pems `rfgp.RoadGP` with alpha = 2 on the roads themselves. rfgp-smooth: alpha
  = 3, and rfgp-auto: alpha = "auto", on the meshes, both added after the others had been seen. rfgp-auto selected 2, 3
  or 4 then, later 2, 3, 4 or math.inf, and averages these now, the default of `rfgp.MeshGP`. Its options were chosen on
  `TUNING` and on other meshes, fields that are in none of these tables.
- rfgp-graph: `rfgp.GraphGP` with its defaults (the exact diffusion kernel) on the graph, for pems.
- geometric: the MaternGeometricKernel of GeometricKernels with its default number of eigenfunctions in its GPyTorch
  wrapper, with a constant mean, an output scale and Gaussian noise; 200 steps of Adam at 0.1 from lengthscales 1/4, 1
  and 4, of which the likeliest result is taken. nu is learned from 5/2. geometric-heat: the same with the heat kernel.

    python -m benchmarks.races.surfaces_and_graphs [--tables T,...] [--racers R,...] [--splits N] [--limit SECONDS]
                                                   [--out FILE]
"""

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import graphs
import rfgp
from benchmarks import models
from benchmarks.race import Array, Model, Race, Split
from benchmarks.scores import Normal
from rfgp.datasets import fetch

MESHES = {"mesh": "data/mesh.ply", "sphere": "unit_sphere", "idler-riser": "idler_riser", "fuze": "fuze"}
MESHES |= {"busted": "busted", "teapot": "teapot", "torus": "torus"}
OF_PYVISTA = ("ant", "nut", "airplane")
QUANTITIES = ("normals", "waves")
PEMS, TRAINED = "pems", 250
OTHERS = ("ant-normals", "ant-waves", "nut-normals", "nut-waves", "airplane-waves")
TABLES = (*(f"{mesh}-{quantity}" for mesh in MESHES for quantity in QUANTITIES), *OTHERS, PEMS)
TUNING = tuple(f"{mesh}-{quantity}" for mesh in MESHES for quantity in ("ripples", "steps", "tilts"))
"""Tables on which options are chosen, and models are not compared: `--tables` names them."""
STEPS, RATE, STARTS = 200, 0.1, (0.25, 1.0, 4.0)


class Rows(NamedTuple):
    """A domain, its points (n, d) or nodes (n,), and their values (n,)."""

    domain: Any
    points: Array
    y: Array


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


def split(table: str, seed: int, options: argparse.Namespace) -> Split:
    """Return the indices of the observed and the predicted points."""
    y = (road_rows() if table == PEMS else mesh_rows(table)).y
    order = np.random.default_rng(seed).permutation(len(y))
    observed = TRAINED if table == PEMS else len(y) // 10
    train, test = np.sort(order[:observed]), np.sort(order[observed:])
    return Split(train, y[train], test, y[test])


def field(table: str, alpha: Any) -> models.Fit:
    """Return the fit of a field on a mesh or on roads, to indices."""

    def fit(train: Array, y: Array, seed: int = 0) -> models.Predict:
        rows = road_rows() if table == PEMS else mesh_rows(table)
        roads = table == PEMS
        network = graphs.RoadNetwork.from_roads(rows.domain) if roads else None
        gp = rfgp.RoadGP(network, alpha, seed=0) if roads else rfgp.MeshGP(rows.domain, alpha, seed=0)
        predict = models.gp(lambda _: gp)(rows.points[train], y)
        return lambda test: predict(rows.points[test])

    return fit


def on_graph(train: Array, y: Array, seed: int = 0) -> models.Predict:
    """Fit the exact diffusion kernel on the graph of crossings and sensors."""
    rows = graph_rows()
    predict = models.gp(lambda _: rfgp.GraphGP(rows.domain, seed=0))(rows.points[train], y)
    return lambda test: predict(rows.points[test])


def geometric(table: str, learns_nu: bool = True) -> models.Fit:
    """Return the fit of GeometricKernels' process, to indices."""

    def fit(train: Array, y: Array, seed: int = 0) -> models.Predict:
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
        kernel, target = MaternGeometricKernel(space), torch.as_tensor(y)
        location, scale = target.mean(), target.std()
        targets = (target - location) / scale
        fitted = [ascend(kernel, inputs[train], targets, start, learns_nu) for start in STARTS]
        model = max(fitted, key=lambda pair: pair[0])[1]

        def predict(test: Array) -> Normal:
            with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
                law = model.likelihood(model(inputs[test]))
                return Normal((law.mean * scale + location).numpy(), (law.variance * scale**2).numpy())

        return predict

    return fit


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


def models_of(table: str) -> dict[str, Model]:
    """Return the models of a table by name."""
    of_meshes = {"rfgp-smooth": 3, "rfgp-auto": "auto"}
    ours = {name: Model("rfgp.gp", field(table, alpha)) for name, alpha in of_meshes.items() if table != PEMS}
    if table == PEMS:
        ours["rfgp-graph"] = Model("rfgp.gp", on_graph)
    return {
        "rfgp": Model("rfgp.gp", field(table, 2)),
        **ours,
        "geometric": Model("geometric_kernels.torch", geometric(table)),
        "geometric-heat": Model("geometric_kernels.torch", geometric(table, learns_nu=False)),
    }


RACE = Race("benchmarks.races.surfaces_and_graphs", TABLES, split, models_of)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
