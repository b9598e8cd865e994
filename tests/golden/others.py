"""Forecasts, slopes in the inputs, draws, readers, tables of the theory, command lines and refusals."""

import csv
import os
import tempfile
from functools import partial
from pathlib import Path
from unittest.mock import patch

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch
import trimesh

import graphs
import rfgp
from rfgp import couplings, theory
from rfgp import features as maps
from rfgp import kernels as k
from rfgp.features import softmax
from tests.golden import cases, models
from tests.support.commands import command

DATA = Path(__file__).parents[2] / "data"
ROWS = np.random.default_rng(0).uniform(-2, 2, (50, 2))
TARGETS = np.sin(2 * ROWS[:, 0]) + 0.5 * ROWS[:, 1]
NEW = np.random.default_rng(1).uniform(-1.5, 1.5, (4, 2))


# --- forecasts and slopes --------------------------------------------------------------------------


def forecast(kernel, approximation):
    """Return a forecast of 60 points beyond the rows, at given hyperparameters."""
    t = np.arange(200.0)
    y = 0.01 * t + np.sin(2 * np.pi * t / 12) + 0.1 * np.random.default_rng(3).standard_normal(200)
    gp = rfgp.GP(kernel, approximation=approximation, start={"noise": 0.05}, seed=0).condition(t[:, None], y)
    prediction = gp.predict(np.arange(200.0, 260.0)[:, None])
    return {"mean": prediction.mean, "std": prediction.std, "observed": prediction.observed().std}


LOCAL = k.Matern(0, nu=1.5, lengthscale=9.0, name="local")
SEASON = k.Periodic(0, period=12.0, lengthscale=1.0, name="season")
FEATURES = rfgp.RandomFeatures(40, seed=0)
FORECASTS = cases(
    forecast,
    {
        "exact": (LOCAL + SEASON + k.Linear(0), rfgp.Exact()),
        "chain": (LOCAL, rfgp.SparsePrecision()),
        "features": (LOCAL, FEATURES),
        "features-season": (LOCAL + SEASON, {"local": FEATURES, "season": rfgp.Exact()}),
        "equispaced": (LOCAL, rfgp.EquispacedFourier()),
        "inducing": (LOCAL, rfgp.InducingPoints(20, seed=0)),
        "neighbors": (LOCAL, rfgp.Vecchia(10, seed=0)),
        "auto": (LOCAL + k.Linear(0), "auto"),
    },
)


def slopes(kernel, approximation, likelihood="gaussian", has_derivative=True):
    """Return gradients of predictions in the inputs, by autograd and by `derivative`."""
    y = TARGETS if likelihood == "gaussian" else (TARGETS > 0).astype(float)
    gp = rfgp.GP(kernel, likelihood, approximation, start={}, seed=0).condition(ROWS, y)
    found = {}
    for name in ("mean", "variance"):
        x = torch.tensor(NEW, requires_grad=True)
        (found[name],) = torch.autograd.grad(getattr(gp.predict(x), name).sum(), x)
    if has_derivative:
        derivative = gp.predict(NEW, derivative=1)
        found |= {"derivative.mean": derivative.mean, "derivative.std": derivative.std}
    return found


RBF = k.RBF(lengthscale=(0.9, 1.4), name="a")
SLOPES = cases(
    slopes,
    {
        "exact": (RBF + k.Matern(1, nu=2.5, name="b"), rfgp.Exact()),
        "features": (RBF, rfgp.RandomFeatures(20, seed=0)),
        "inducing": (RBF, rfgp.InducingPoints(12, seed=0), "gaussian", False),
        "inducing-sor": (RBF, rfgp.InducingPoints(12, method="sor", seed=0)),
        "equispaced": (RBF, rfgp.EquispacedFourier()),
        "product": (k.RationalQuadratic(1) * k.RBF(0), rfgp.Exact()),
        "classes": (RBF, rfgp.RandomFeatures(20, seed=0), "bernoulli", False),
    },
)


# --- draws -----------------------------------------------------------------------------------------


def frequencies(name, spectrum=None, shape=(7, 3)):
    """Return the first frequencies of a draw.

    No other test solves the shapes of energy directions, which are kept.
    """
    draw = couplings.by_name(name).sample(*shape, spectrum=spectrum, seed=5)
    return {"frequencies": draw.dense()[:3], "weights": draw.weights[:3]}


def walks(**options):
    """Return sums of the features of walks on a grid."""
    graph = graphs.Graph.from_grid((7, 8))
    drawn = graphs.sample_walks(graph, num_walkers=8, seed=5, progress=False, **options)
    phi = drawn.features(graphs.kernels.RegularizedLaplacian(2, 1.0))
    return {"sums": phi.sum(axis=1)[:5], "squares": phi.power(2).sum(axis=1)[:5], "nnz": phi.nnz}


def kinds():
    """Return the features of each kind at two points."""
    omega, x = couplings.by_name("energy").sample(6, 2, seed=5), torch.tensor(NEW[:2])
    found = {
        "fourier": maps.Fourier(omega)(x),
        "laplace": maps.Laplace(omega)(0.3 * x),
        "nystrom": maps.Nystrom(torch.tensor(ROWS[:5]), rfgp.spectra.Gaussian())(x),
    }
    graph, kernel = graphs.Graph.from_grid((6, 6)), graphs.kernels.Diffusion(1.2)
    nodes = [(0, 0), (2, 3)]
    found["chebyshev_features"] = graphs.chebyshev_features(graph, nodes, degree=4)
    found["taylor_features"] = graphs.taylor_features(graph, nodes, degree=4)
    found["spectral_features"] = graphs.spectral_features(graph, nodes, rank=8)
    for name in list(found)[-3:]:
        phi = found[name].features(kernel)
        found[name] = (phi @ phi.T).toarray()
    return found


def attention():
    """Return attention by random features, and draws of classes."""
    generator = torch.Generator().manual_seed(5)
    q, key, v = (torch.randn(1, 6, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    omega = couplings.by_name("orthogonal").sample(16, 4, seed=5)
    pairs = {"positive": softmax.Positive(omega), "trigonometric": softmax.Trigonometric(omega, kernel="gaussian")}
    found = {
        f"{name}-{causal}": rfgp.attention.random_feature_attention(q, key, v, pair, is_causal=causal)
        for name, pair in pairs.items()
        for causal in (False, True)
    }
    sampler = rfgp.sampling.SoftmaxSampler(softmax.Positive(omega), key[0])
    return {**found, "log totals": sampler.estimates(q[0])}


def functions():
    """Return draws of predictions and of functions."""
    gp = rfgp.GP(RBF, approximation=rfgp.Exact(), start={"noise": 0.1}, seed=0).condition(ROWS, TARGETS)
    of_features = gp.with_approximation(rfgp.RandomFeatures(20, seed=0))
    return {
        "prediction": gp.predict(NEW).sample(2, seed=5),
        "observed": gp.predict(NEW).observed().sample(2, seed=5),
        "functions": of_features.sample_functions(2, seed=5)(NEW),
    }


OF_PACKAGE = [name for name in couplings.names() if type(couplings.by_name(name)).__module__.startswith("rfgp.")]
DRAWS = {
    **{f"coupling-{name}": partial(frequencies, name) for name in OF_PACKAGE},  # benchmarks register others
    "coupling-energy": partial(frequencies, "energy", None, (9, 7)),
    "coupling-matern": partial(frequencies, "energy", rfgp.spectra.Matern(1.5), (9, 7)),
    "coupling-rational": partial(frequencies, "energy", rfgp.spectra.by_name("rational-quadratic"), (9, 7)),
    **{
        f"walks-{name}": partial(walks, lengths=name)
        for name in ("iid", "antithetic", "sigma", "systematic", "learned")
    },
    **{f"walks-{name}": partial(walks, step_coupling=name, exact_hops=0) for name in ("independent", "stratified")},
    "walks-repelling": partial(walks, step_coupling="repelling", transitions="uniform", exact_hops=1),
    "kinds": kinds,
    "attention": attention,
    "functions": functions,
}


# --- readers ---------------------------------------------------------------------------------------


def graph(make):
    """Return the numbers of nodes and edges, the sum of weights, and a quadratic form of the weights."""
    one = make()
    u = np.cos(np.arange(one.num_nodes))
    form = u @ (one.adjacency @ u)
    return {"nodes": one.num_nodes, "edges": one.num_edges, "weights": one.adjacency.sum(), "form": form}


def network(make):
    """Return the numbers of roads and vertices, and lengths."""
    one = make()
    return {"roads": one.num_roads, "vertices": one.num_vertices, "length": one.total_length}


def sensors(**options):
    """Return the roads and sensors of a file."""
    roads = graphs.read_roads(DATA / "roads.geojson", target="value", **options)
    return {
        "roads": len(roads.lines),
        "sensors": len(roads.values),
        "edges": roads.sensor_edges,
        "fractions": roads.sensor_fractions,
        "values": np.nansum(roads.values),
    }


def mesh(suffix):
    """Return a mesh that was written in a format, and a field on it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"ball{suffix}"
        BALL.export(path)
        one = graphs.load_mesh(path)
    field = graphs.MeshField(one, 2)
    return {"area": one.area, "faces": len(one.faces), "vertices": field.num_vertices, "volume": one.volume}


def gml():
    """Read a graph that networkx wrote."""
    one = nx.path_graph(5)
    nx.set_edge_attributes(one, {edge: 0.5 + i for i, edge in enumerate(one.edges)}, "weight")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "path.gml"
        nx.write_gml(one, path)
        return graphs.Graph.from_gml(path)


LINES = models.LINES[:3]
PAIRS = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("a", "b")]
Graph, Network, BALL = graphs.Graph, graphs.RoadNetwork, trimesh.creation.icosphere(1)
PLANE = partial(Network.from_lines, metric="euclidean")
GRAPHS = {
    "edges": lambda: Graph.from_edges(PAIRS[:4], [1.0, 2.0, 0.5, 3.0]),
    "edges-sum": lambda: Graph.from_edges(PAIRS, nodes="dcbae", duplicates="sum"),
    "gml": gml,
    "grid": lambda: Graph.from_grid((4, 5)),
    "grid-periodic": lambda: Graph.from_grid((4, 5), periodic=(True, False)),
    "grid-diagonals": lambda: Graph.from_grid((3, 4), diagonals=True, spacing=(1.0, 2.0)),
    "mesh-faces": lambda: Graph.from_mesh(BALL),
    "mesh-lengths": lambda: Graph.from_mesh(trimesh.creation.box((1, 2, 3)), weights="edge-length"),
    "mesh-vertices": lambda: Graph.from_mesh(BALL, "vertices", weights="cotangent"),
    "networkx": lambda: Graph.from_networkx(nx.karate_club_graph()),
    "points": lambda: Graph.from_points(ROWS, 4),
    "points-unit": lambda: Graph.from_points(ROWS, 3, weights="unit"),
    "scipy": lambda: Graph.from_scipy(sp.csr_array(np.ones((4, 4)) - np.eye(4))),
    "graph-of-roads": lambda: Graph.from_roads(LINES, [0, 2], [0.3, 0.7], metric="euclidean"),
}
NETWORKS = {
    "lines": lambda: PLANE(LINES),
    "lines-degrees": lambda: Network.from_lines([[(8.6, 49.4), (8.7, 49.5)]]),
    "lines-snap": lambda: PLANE([*LINES, [(3.01, 1), (4, 4)]], snap=0.1),
    "geojson": lambda: Network.from_geojson(DATA / "roads.geojson"),
}
READERS = {
    **cases(graph, GRAPHS),
    **cases(network, NETWORKS),
    "sensors": sensors,
    "sensors-within": partial(sensors, within=2000.0),
    **{f"mesh{suffix}": partial(mesh, suffix) for suffix in (".ply", ".stl", ".obj", ".off", ".glb")},
}


# --- the theory ------------------------------------------------------------------------------------

DISTANCES = np.array([0.1, 0.5, 1.0, 2.0, 3.5])
X, Y = np.array([[0.3, -0.2, 0.5]]), np.array([[0.1, 0.4, -0.6]])
MATERN = rfgp.spectra.Matern


def rotated():
    """Return moments of rotations of solved directions."""
    omega = couplings.by_name("energy").sample(8, 3, seed=0)
    return {"error": theory.rotated_error(omega, DISTANCES), "moments": theory.rotated_moments(omega, DISTANCES)}


THEORY = {
    "independent": lambda: {
        **{f: theory.independent_variance(DISTANCES, 8, features=f) for f in ("fourier", "laplace")},
        "matern": theory.independent_variance(DISTANCES, 8, spectrum=MATERN(1.5)),
    },
    "variance": lambda: {name: theory.variance(name, DISTANCES, 8, 4) for name in ("iid", "orthogonal", "pairwise")},
    "moments": lambda: {
        "orthogonal": theory.orthogonal_moment(DISTANCES, 4),
        "pairwise": theory.pairwise_moment(DISTANCES, 4),
        "simplex": theory.simplex_moment(DISTANCES, 4),
        "gap": theory.orthogonality_gap(DISTANCES, 4),
        "matern": theory.orthogonal_moment(DISTANCES, 4, spectrum=MATERN(2.5)),
        "laplace": theory.orthogonal_moment(DISTANCES, 4, features="laplace"),
    },
    "errors": lambda: {
        "energy": theory.kernel_error("energy", DISTANCES, 8, 3, num_draws=4),
        "pairs": theory.pairs_error("orthogonal", ROWS[:6], 8, num_draws=4),
        "required": theory.required_num_frequencies(ROWS, 0.2),
    },
    "rotated": rotated,
    "softmax": lambda: {
        "positive": theory.softmax_variance(X, Y, 16),
        "orthogonal": theory.softmax_variance(X, Y, 16, coupling="orthogonal"),
        "trigonometric": theory.softmax_variance(X, Y, 16, estimator="trigonometric"),
        "angular": theory.angular_moments(X, Y, 8),
        "gaussian": theory.gaussian_moments(X, Y, 8),
    },
}


# --- command lines ---------------------------------------------------------------------------------


def table(folder):
    """Write a table, new rows, and counts."""
    rng = np.random.default_rng(7)
    x, price = rng.uniform(0, 5, 80), rng.uniform(1, 3, 80)
    shop = rng.choice(["n", "s"], 80)
    y = np.sin(2 * x) + price + (shop == "s") + 0.1 * rng.standard_normal(80)
    lines = [
        f"{a:.6f},{b:.6f},{c},{d:.6f},{rng.poisson(np.exp(d / 4))}"
        for a, b, c, d in zip(x, price, shop, y, strict=True)
    ]
    head = "x,price,shop,y,count\n"
    (folder / "table.csv").write_text(head + "\n".join(lines) + "\n")
    (folder / "new.csv").write_text(head + "\n".join(lines[:5]) + "\n")


def commands(*lines):
    """Return exit codes of command lines in a folder with a table, and the columns of the file of predictions."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"COLUMNS": "100"}):
        table(Path(folder))
        found["codes"] = [command(line, folder, code=None).code for line in lines]
        files = sorted(Path(folder).rglob("out.csv")) or sorted(Path(folder).rglob("*nodes.csv"))
        rows = list(csv.reader(files[0].read_text().splitlines())) if files else []
        found["files"] = sorted(path.name for path in Path(folder).rglob("*") if path.is_file())
    if files:
        found |= {"columns": rows[0], "rows": len(rows) - 1}
        for name, *cells in zip(*rows[:6], strict=True):
            try:
                found[f"column.{name}"] = [float(cell) for cell in cells]
            except ValueError:
                found[f"column.{name}"] = cells
    return found


FIT, OF_Y = "fit table.csv --out f", "--target y --drop count"
SUM = f"{FIT} {OF_Y} --kernel RBF(x)+Linear(price)+Group(shop)"
FEW = f"{FIT} {OF_Y} --drop shop --kernel RBF(x)+Matern(price) --approximation RandomFeatures(20)"
LOG = f"{FIT} --target price --drop count --drop shop --kernel RBF(x) --log"
PREDICT = "predict f/model.safetensors new.csv --out out.csv"
COMMANDS = cases(
    commands,
    {
        "fit": (SUM, PREDICT),
        "fit-features": (FEW, f"{PREDICT} --id shop"),
        "fit-auto": (f"{FIT} {OF_Y} --time-limit 10h", PREDICT),
        "fit-log": (LOG, f"{PREDICT} --terms"),
        "fit-counts": (f"{FIT} --target count --drop y --kernel RBF(x) --likelihood poisson", PREDICT),
        "terms": (SUM, f"{PREDICT} --terms --json"),
        "mesh": f"mesh {DATA / 'mesh.ply'} --known 0.05 --out f",
        "traffic": f"traffic {DATA / 'roads.geojson'} --out f",
        "compare": f"compare table.csv {OF_Y} --drop shop --draws 1 --size 8 --out f",
        "no-target": "fit table.csv --target z",
        "no-file": "fit none.csv",
        "no-option": "fit table.csv --kernels RBF",
        "bad-kernel": "fit table.csv --target y --kernel RBF(w)",
        "no-model": "predict none.safetensors new.csv",
        "datasets": "datasets",
    },
)


# --- refusals --------------------------------------------------------------------------------------


def refused(call, word):
    """Return the class of an error, and the word if its message has it."""
    try:
        call()
    except Exception as error:
        return {"class": type(error).__name__, "word": word if word in str(error) else f"not in {error}"}
    return {"class": "none", "word": ""}


def fit(X=ROWS, y=TARGETS, kernel=None, **options):
    """Condition a process."""
    given = {name: options.pop(name) for name in ("noise", "sample_weight", "exposure") if name in options}
    return rfgp.GP(kernel or k.RBF(), seed=0, **options).condition(X, y, **given)


REFUSALS = {
    "nan-input": (lambda: fit(np.where(ROWS < 1.9, ROWS, np.nan)), "missing"),
    "inf-target": (lambda: fit(y=np.append(TARGETS[1:], np.inf)), "y"),
    "no-rows": (lambda: fit(ROWS[:0], TARGETS[:0]), "row"),
    "lengths": (lambda: fit(y=TARGETS[:-1]), "rows"),
    "negative-noise": (lambda: fit(noise=-np.ones(50)), "noise"),
    "zero-weight": (lambda: fit(sample_weight=np.zeros(50)), "sample_weight"),
    "exposure-of-gaussian": (lambda: fit(exposure=np.ones(50)), "exposure"),
    "counts": (lambda: fit(likelihood="poisson"), "counts"),
    "likelihood": (lambda: fit(likelihood="laplacian"), "likelihood"),
    "approximation": (lambda: fit(approximation="nystrom"), "approximation"),
    "hyperparameter": (
        lambda: fit(start={"rbf.width": 1.0}),
        "in start must be one of rbf.lengthscale, rbf.outputscale, noise, mean, got",
    ),
    "start": (lambda: fit(start={"noise": -1.0}), "noise"),
    "columns": (lambda: fit().predict(ROWS[:, :1]), "columns"),
    "unfitted": (lambda: rfgp.GP(k.RBF()).predict(ROWS), "fit"),
    "selection": (lambda: rfgp.GP(k.RBF()).fit(ROWS, TARGETS).select(0), "select"),
    "quantile": (lambda: fit().predict(NEW).quantile(1.5), "probability"),
    "draws": (lambda: fit().predict(NEW).sample(-1), "num_samples"),
    "update": (lambda: fit().update(ROWS[:, :1], TARGETS), "columns"),
    "neighbors": (lambda: rfgp.Vecchia(0), "num_neighbors"),
    "frequencies": (lambda: rfgp.RandomFeatures(2.5), "num_frequencies"),
    "points": (lambda: rfgp.InducingPoints(8, method="best"), "method"),
    "nu": (lambda: k.Matern(nu=-1.0), "nu"),
    "lengthscale": (lambda: k.RBF(lengthscale=0.0), "lengthscale"),
    "period": (lambda: k.Periodic(0, period=-1.0), "period"),
    "features-of-group": (
        lambda: fit({"a": list("abcab")}, TARGETS[:5], k.Group("a"), approximation=rfgp.RandomFeatures()),
        "group",
    ),
    "coupling": (lambda: couplings.by_name("sobel"), "coupling"),
    "dims": (lambda: couplings.by_name("iid").sample(4, 0), "num_dims"),
    "spectrum": (lambda: rfgp.spectra.by_name("cauchy"), "spectrum"),
    "theory": (lambda: theory.variance("iid", DISTANCES, 0, 3), "positive"),
    "file": (lambda: rfgp.load("none.safetensors"), "none"),
    "self-loops": (lambda: Graph.from_edges([("a", "a")]), "self"),
    "duplicates": (lambda: Graph.from_edges(PAIRS), "duplicates"),
    "grid": (lambda: Graph.from_grid((0, 3)), "shape"),
    "node": (lambda: graphs.sample_walks(Graph.from_grid((3, 3)), [(9, 9)]), "9"),
    "p-halt": (lambda: graphs.sample_walks(Graph.from_grid((3, 3)), p_halt=1.5), "p_halt"),
    "alpha": (lambda: rfgp.RoadGP(PLANE(LINES), alpha=3), "alpha"),
    "metric": (lambda: Network.from_lines(LINES, metric="miles"), "metric"),
    "degrees": (lambda: Network.from_lines([[(500, 0), (0, 0)]]), "longitude"),
    "position": (lambda: PLANE(LINES).read_positions([[0, 1.5]]), "1.5"),
    "mesh": (lambda: graphs.MeshField("ball", 2), "ball"),
    "seed": (lambda: rfgp.GP(k.RBF(), seed=-1), "seed"),
    "validate": (lambda: rfgp.GP(validate="backward").fit(ROWS, TARGETS), "validate"),
}
REFUSALS = cases(refused, REFUSALS)
