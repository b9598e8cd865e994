"""Models of each family, approximation and likelihood, conditioned on a few rows at given hyperparameters.

Draws are given by seeds, so that nothing is searched for. Data come from a generator of each case's own.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

import graphs
import rfgp
from rfgp import kernels as k

SCALES = {"lengthscale": [0.8, 1.3], "outputscale": 1.5, "noise": 0.1, "seed": 0}
LATENT = {"lengthscale": [0.8, 1.3], "outputscale": 1.5, "seed": 0}
RBF, MATERN = k.RBF(lengthscale=[0.8, 1.3], name="rbf"), k.Matern(nu=1.5, lengthscale=[0.8, 1.3], name="matern")
BOTH = RBF + k.Matern(nu=1.5, lengthscale=0.5, name="local")
START, LOCAL_START = (
    {"outputscale": 1.5, "noise": 0.1},
    {"rbf.outputscale": 1.5, "local.outputscale": 0.4, "noise": 0.1},
)
EQUAL = rfgp.couplings.Energy()
FEW = {"num_frequencies": 12, "coupling": EQUAL}


def near(condition_on="responses"):
    """Return nearest neighbours with a seed of their own."""
    return rfgp.Vecchia(6, condition_on=condition_on, seed=0)


def frequencies(count=12):
    """Return frequencies with a seed of their own."""
    return rfgp.RandomFeatures(count, coupling=EQUAL, seed=0)


def points(method="sor", residual=None):
    """Return inducing points with a seed of their own."""
    return rfgp.InducingPoints(8, method=method, residual=residual, seed=0)


def gp(kernel, *approximations):
    """Return the options of `rfgp.GP` with an approximation of each term, at given hyperparameters."""
    chosen = dict(zip([term.name for term in kernel.terms()], approximations, strict=True))
    return {
        "kernel": kernel,
        "approximation": chosen,
        "start": LOCAL_START if len(chosen) > 1 else START,
        "seed": 0,
    }


class Case(NamedTuple):
    """A conditioned model, and where to ask it.

    Attributes:
        model: The model.
        inputs: New inputs, (n, d) or n labels.
        has_gradient: Whether its log marginal likelihood has a gradient here; an estimate from draws has none.
        can_update: Whether it takes new rows.
        outputs: The number of targets of a row.
    """

    model: Any
    inputs: Any
    has_gradient: bool = True
    can_update: bool = True
    outputs: int = 1


def rows(count=40, columns=2, seed=0):
    """Return inputs (n, d), targets (n,) and new inputs (5, d)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, columns))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + 0.1 * rng.standard_normal(count)
    return X, y, 0.8 * rng.normal(size=(5, columns))


def targets(likelihood, X, seed=1):
    """Return targets (n,) of a likelihood, around a function of the rows."""
    rng = np.random.default_rng(seed)
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, -1]
    draws = {
        "bernoulli": lambda: (rng.uniform(size=len(f)) < 1 / (1 + np.exp(-2 * f))).astype(float),
        "categorical": lambda: np.digitize(f, [-0.5, 0.6]).astype(float),
        "poisson": lambda: rng.poisson(np.exp(f)).astype(float),
        "negative-binomial": lambda: rng.negative_binomial(3, 3 / (3 + np.exp(f))).astype(float),
        "gamma": lambda: np.exp(f) * rng.gamma(4, 0.25, size=len(f)),
        "student-t": lambda: f + 0.2 * rng.standard_t(3, size=len(f)),
        "heteroscedastic": lambda: f + np.exp(0.5 * X[:, 0] - 2) * rng.standard_normal(len(f)),
    }
    return draws[likelihood]()


def table(model, options, given=None, count=40, outputs=1, dtype=None):
    """Return the case of a process on a table."""
    X, y, new = rows(count)
    options = {name: value for name, value in options.items() if name != "seed" or model is not rfgp.ExactGP}
    if outputs > 1:
        y = np.stack([y, np.cos(X[:, 0])], axis=1)
    if dtype is not None:
        X, y, new = (torch.as_tensor(part, dtype=dtype) for part in (X, y, new))
    return Case(model(**options).condition(X, y, **(given or {})), new, outputs=outputs)


def weighted(count=40):
    """Return weights (n,) of rows, and known variances of their errors (n,)."""
    rng = np.random.default_rng(2)
    return {"sample_weight": rng.integers(1, 4, count).astype(float)}, {"noise": 0.05 + rng.uniform(size=count)}


def observed(model, likelihood, options, count=40, exposure=False):
    """Return the case of a process on a table under another likelihood."""
    X, _, new = rows(count)
    given = {"exposure": np.random.default_rng(3).uniform(0.5, 2.0, count)} if exposure else {}
    options = {**LATENT, **options}
    if model is rfgp.ExactGP:
        del options["seed"]
    return Case(model(likelihood=likelihood, **options).condition(X, targets(likelihood, X), **given), new)


def streamed():
    """Return features that read their rows in blocks."""
    X, y, new = rows(200)
    source = rfgp.tables.Batches(lambda: ((X[i : i + 64], y[i : i + 64]) for i in range(0, 200, 64)))
    return Case(rfgp.SparseSpectrumGP(**FEW, **SCALES).condition(source), new, can_update=False)


def distributed():
    """Return features whose rows are the partitions of a Dask array, on a cluster within this process."""
    import dask.array as da
    from distributed import Client

    X, y, new = rows(200)
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        parts = rfgp.dask.Partitions(da.from_array(X, chunks=(64, 2)), da.from_array(y, chunks=64), client=client)
        model = rfgp.SparseSpectrumGP(**FEW, **SCALES).condition(parts)
        assert np.isfinite(model.predict(new).mean).all()  # computed while there is a cluster
    return Case(model, new, has_gradient=False, can_update=False)


def series(approximation, kernel=None, count=60):
    """Return the case of a process of one column, asked at rows, between them and beyond."""
    rng = np.random.default_rng(7)
    x = np.sort(rng.uniform(0, 12, count))
    y = np.sin(2 * x) + 0.2 * x + 0.1 * rng.standard_normal(count)
    kernel = kernel or k.Matern(0, nu=1.5, lengthscale=0.7, name="matern")
    model = rfgp.GP(kernel, approximation=approximation, start={"noise": 0.05}, seed=0)
    return Case(model.condition(x[:, None], y), np.array([[x[3]], [5.5], [12.5], [20.0]]))


def terms(approximation, likelihood="gaussian"):
    """Return the case of a sum of terms of numbers, levels and nodes of a graph."""
    rng, size = np.random.default_rng(8), 45
    ring = graphs.Graph.from_edges([(f"n{i}", f"n{(i + 1) % 20}") for i in range(20)])
    kernel = k.RBF(("h", "p"), lengthscale=(4.0, 1.5), name="a") + k.Linear("p", origin=0.0, name="l")
    kernel += k.Group("s", name="g") + k.Nodes(ring, graphs.kernels.Matern(nu=2, kappa=1.5), name="f")
    X = {
        "h": rng.uniform(0, 24, size),
        "p": rng.normal(2, 1, size),
        "s": rng.choice(list("abcd"), size),
        "node": np.array([f"n{i}" for i in rng.integers(0, 20, size)]),
    }
    f = np.sin(X["h"] / 3) + 0.3 * X["p"] + 0.2 * (X["s"] == "a")
    y = f + 0.1 * rng.standard_normal(size) if likelihood == "gaussian" else rng.poisson(np.exp(f)).astype(float)
    noise = {"noise": 0.2} if likelihood == "gaussian" else {}
    model = rfgp.GP(
        kernel, likelihood, approximation, start={"a.outputscale": 0.7, "g.outputscale": 0.3, **noise}, seed=0
    )
    return Case(model.condition(X, y), {name: values[:6] for name, values in X.items()})


def latent(options):
    """Return a nearest-neighbor process whose rows are conditioned on latent values."""
    X, y, new = rows(80)
    return Case(rfgp.GP(**options).condition(X, y), new, has_gradient=False)


def network():
    """Return roads that meet inside each other, a closed one, and a bridge."""
    lines = [
        [(0, 0), (1, 0), (2, 0)],
        [(1, 1), (1, 0), (1, -1)],
        [(2, 0), (3, 0), (3, 1), (2, 0)],
        [(0.5, 1), (0.5, -1), (1, -1)],
    ]
    return graphs.RoadNetwork.from_lines(lines, metric="euclidean")


def roads(alpha=1, boundary="neumann", outputs=1, likelihood="gaussian"):
    """Return the case of a field on roads."""
    rng = np.random.default_rng(4)
    X = np.stack([rng.integers(0, 4, 25).astype(float), rng.uniform(size=25)], axis=1)
    y = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.standard_normal(25)
    y = np.stack([y, y**2], axis=1) if outputs > 1 else y
    noise = {"noise": 0.05} if likelihood == "gaussian" else {}
    y = y if likelihood == "gaussian" else rng.poisson(np.exp(0.3 * y)).astype(float)
    model = rfgp.RoadGP(
        network(), alpha, boundary=boundary, lengthscale=0.9, outputscale=1.2, likelihood=likelihood, seed=0, **noise
    )
    return Case(model.condition(X, y), np.array([(0, 0.0), (0, 0.37), (1, 0.5), (2, 0.8), (3, 1.0)]), outputs=outputs)


def mesh(alpha=2, likelihood="gaussian"):
    """Return the case of a field on a sphere."""
    import trimesh

    ball = trimesh.creation.icosphere(1)
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    f, noise = np.sin(3 * X[:, 2]) + X[:, 0], {"noise": 0.05} if likelihood == "gaussian" else {}
    y = (
        f + 0.1 * rng.standard_normal(30)
        if likelihood == "gaussian"
        else (rng.uniform(size=30) < 1 / (1 + np.exp(-f))).astype(float)
    )
    model = rfgp.MeshGP(
        graphs.MeshField(ball, alpha), lengthscale=0.7, outputscale=1.1, likelihood=likelihood, seed=0, **noise
    )
    return Case(model.condition(X, y), 0.95 * X[:5])


def nodes(features, kernel=None, outputs=1, likelihood="gaussian", size=(6, 7), **options):
    """Return the case of a process on a grid's nodes."""
    graph = graphs.Graph.from_grid(size)
    rng = np.random.default_rng(6)
    seen = rng.permutation(graph.num_nodes)[: graph.num_nodes // 2]
    f = np.sin(seen / 5.0)
    y = f + 0.1 * rng.standard_normal(len(seen))
    y = np.stack([y, y**2], axis=1) if outputs > 1 else y
    noise = {"noise": 0.05} if likelihood == "gaussian" else {}
    y = y if likelihood == "gaussian" else rng.poisson(np.exp(f)).astype(float)
    kernel = kernel or graphs.kernels.Diffusion(1.5)
    model = rfgp.GraphGP(
        graph, kernel, features=features, outputscale=1.3, likelihood=likelihood, seed=0, **noise, **options
    )
    return Case(model.condition(seen, y), np.setdiff1d(np.arange(graph.num_nodes), seen)[:6], outputs=outputs)


FOURIER, EXACT, TABLE = rfgp.SparseSpectrumGP, rfgp.ExactGP, rfgp.GP
WEIGHTS, NOISE = weighted()
PRECISE = graphs.kernels.RegularizedLaplacian(2, 1.5)
RATIONAL = graphs.kernels.Matern(1.5, 2.0)
BESIDE = gp(BOTH, frequencies(), near())

MODELS: dict[str, Callable[[], Case]] = {
    "features": partial(table, FOURIER, {**FEW, **SCALES}),
    "features-matern": partial(table, FOURIER, {"spectrum": "matern32", **FEW, **SCALES}),
    "features-weights": partial(table, FOURIER, {**FEW, **SCALES}, WEIGHTS),
    "features-noise": partial(table, FOURIER, {**FEW, **SCALES}, NOISE),
    "features-outputs": partial(table, FOURIER, {**FEW, **SCALES}, outputs=2),
    "features-more-than-rows": partial(table, FOURIER, {"num_frequencies": 30, "coupling": EQUAL, **SCALES}, count=20),
    "features-float32": partial(table, FOURIER, {**FEW, **SCALES}, dtype=torch.float32),
    "features-positive": partial(table, FOURIER, {"kind": "laplace", "num_frequencies": 12, **SCALES}),
    "features-streamed": streamed,
    "features-dask": distributed,
    "exact": partial(table, EXACT, SCALES),
    "exact-matern": partial(table, EXACT, {"spectrum": "matern52", **SCALES}),
    "exact-weights": partial(table, EXACT, SCALES, {**WEIGHTS, **NOISE}),
    "exact-outputs": partial(table, EXACT, SCALES, outputs=2),
    "exact-sum": partial(table, TABLE, gp(BOTH, rfgp.Exact(), rfgp.Exact())),
    "inducing": partial(table, TABLE, gp(MATERN, points())),
    "inducing-fitc": partial(table, TABLE, gp(MATERN, points("fitc")), WEIGHTS),
    "inducing-vfe": partial(table, TABLE, gp(MATERN, points("vfe"))),
    "inducing-residual": partial(table, TABLE, gp(MATERN, points(residual=near("auto")))),
    "neighbors": partial(table, TABLE, gp(MATERN, near())),
    "neighbors-weights": partial(table, TABLE, gp(MATERN, near()), {**WEIGHTS, **NOISE}),
    "neighbors-outputs": partial(table, TABLE, gp(MATERN, near()), outputs=2),
    "neighbors-features": partial(table, TABLE, BESIDE),
    "equispaced": partial(series, rfgp.EquispacedFourier()),
    "chain": partial(series, rfgp.SparsePrecision()),
    "chain-season": partial(
        series, rfgp.Exact(), k.Matern(0, nu=2.5, name="a") + k.Periodic(0, period=3.1, lengthscale=1.2, name="b")
    ),
    "terms": partial(terms, "auto"),
    "terms-neighbors": partial(
        terms, {"a": near(), "l": rfgp.Exact(), "g": rfgp.SparsePrecision(), "f": rfgp.SparsePrecision()}
    ),
    "terms-residual": partial(
        terms, {"a": points(None, near()), "l": rfgp.Exact(), "g": rfgp.SparsePrecision(), "f": rfgp.SparsePrecision()}
    ),
    "terms-poisson": partial(terms, "auto", "poisson"),
    "neighbors-latent": partial(latent, gp(MATERN, near("latent"))),
    "neighbors-latent-features": partial(latent, gp(BOTH, frequencies(), near("latent"))),
    "bernoulli": partial(observed, FOURIER, "bernoulli", {**FEW, "inference": "laplace"}),
    "bernoulli-variational": partial(observed, FOURIER, "bernoulli", {**FEW, "inference": "variational"}),
    "bernoulli-exact": partial(observed, EXACT, "bernoulli", {"inference": "laplace"}),
    "bernoulli-more-features-than-rows": partial(
        observed, FOURIER, "bernoulli", {"num_frequencies": 30, "coupling": EQUAL, "inference": "laplace"}, count=20
    ),
    "categorical": partial(observed, FOURIER, "categorical", {**FEW, "inference": "laplace"}),
    "categorical-variational": partial(observed, FOURIER, "categorical", {**FEW, "inference": "variational"}),
    "categorical-exact": partial(observed, EXACT, "categorical", {"inference": "laplace"}),
    "poisson": partial(observed, FOURIER, "poisson", {**FEW, "inference": "laplace"}),
    "poisson-exposure": partial(observed, FOURIER, "poisson", {**FEW}, exposure=True),
    "negative-binomial": partial(observed, FOURIER, "negative-binomial", {**FEW}),
    "gamma-exact": partial(observed, EXACT, "gamma", {}),
    "student-t": partial(observed, FOURIER, "student-t", {**FEW}),
    "heteroscedastic": partial(observed, FOURIER, "heteroscedastic", {**FEW}),
    "roads": roads,
    "roads-smooth": partial(roads, 2, "stationary"),
    "roads-outputs": partial(roads, 1, "open", outputs=2),
    "roads-poisson": partial(roads, likelihood="poisson"),
    "mesh": mesh,
    "mesh-rough": partial(mesh, 1),
    "mesh-bernoulli": partial(mesh, likelihood="bernoulli"),
    "graph-exact": partial(nodes, "exact"),
    "graph-exact-outputs": partial(nodes, "exact", outputs=2),
    "graph-precision": partial(nodes, "precision", PRECISE),
    "graph-precision-outputs": partial(nodes, "precision", PRECISE, outputs=2),
    "graph-precision-poisson": partial(nodes, "precision", PRECISE, likelihood="poisson"),
    "graph-rational": partial(nodes, "rational", RATIONAL),
    "graph-walks": partial(nodes, "walks", num_walkers=8, p_halt=0.1, exact_hops=0),
    "graph-walks-poisson": partial(nodes, "walks", num_walkers=8, p_halt=0.1, exact_hops=0, likelihood="poisson"),
    "graph-walks-iterated": partial(nodes, "walks", num_walkers=4, p_halt=0.3, exact_hops=0, size=(66, 70)),
    "graph-chebyshev": partial(nodes, "chebyshev", degree=8),
    "graph-taylor": partial(nodes, "taylor", degree=8),
    "graph-spectrum": partial(nodes, "spectrum", rank=12),
}
"""A model of each kind by name."""


def answers_of(case):
    """Return what a model answers: predictions, likelihood and gradient, rows left out, draws, and more rows."""
    model, found = case.model, {}
    prediction = model.predict(case.inputs)
    found["mean"], found["variance"] = prediction.mean, prediction.variance
    found["covariance"] = prediction.covariance
    observed = prediction.observed()
    found |= {f"observed.{name}": getattr(observed, name) for name in ("mean", "variance") if hasattr(observed, name)}
    if case.has_gradient:
        found |= _gradient(model)
        left_out = model.leave_one_out()
        found["left out"] = left_out.mean if hasattr(left_out, "mean") else left_out.log_prob
    if type(model) is rfgp.GP and len(model.kernel.terms()) > 1:
        found["terms"] = [prediction.of(term.name).mean for term in model.kernel.terms()]
    if case.can_update:
        more = (
            {name: part[:2] for name, part in case.inputs.items()} if isinstance(case.inputs, dict) else case.inputs[:2]
        )
        targets = np.ones((2, case.outputs) if case.outputs > 1 else 2)
        targets = torch.as_tensor(targets, dtype=more.dtype) if isinstance(more, torch.Tensor) else targets
        updated = model.update(more, targets).predict(case.inputs)
        found["updated.mean"], found["updated.variance"] = updated.mean, updated.variance
    return found


def _gradient(model):
    """Return the log marginal likelihood, and its gradient in each raw hyperparameter."""
    live = model.hyperparameters
    live.requires_grad_(True)
    value = model.log_marginal_likelihood()
    value.backward()
    found = {"log marginal likelihood": value}
    found |= {f"gradient.{name}": p.grad for name, p in live.named_parameters() if p.grad is not None}
    live.requires_grad_(False)
    return found


CASES = {name: lambda make=make: answers_of(make()) for name, make in MODELS.items()}
