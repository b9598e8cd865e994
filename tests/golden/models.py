"""Models of each family, approximation and likelihood, conditioned on a few rows at given hyperparameters.

Draws are given by seeds, so that nothing is searched for. Data come from a generator of each case's own.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

import graphs
import rfgp
from rfgp import kernels as k

SCALES = {"lengthscale": [0.8, 1.3], "outputscale": 1.5}
MATERN = k.Matern(nu=1.5, lengthscale=[0.8, 1.3], name="matern")
BOTH = k.RBF(lengthscale=[0.8, 1.3], name="rbf") + k.Matern(nu=1.5, lengthscale=0.5, name="local")
FEATURES = {"num_frequencies": 12, "coupling": rfgp.couplings.Energy(), **SCALES, "noise": 0.1}


def near(condition_on="responses"):
    """Return nearest neighbours with a seed of their own."""
    return rfgp.Vecchia(6, condition_on=condition_on, seed=0)


def points(method="sor", residual=None):
    """Return inducing points with a seed of their own."""
    return rfgp.InducingPoints(8, method=method, residual=residual, seed=0)


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


def table(model, likelihood="gaussian", given=None, count=40, outputs=1, dtype=None, has_gradient=True, **options):
    """Return the case of a process on a table."""
    X, y, new = rows(count)
    y = y if likelihood == "gaussian" else targets(likelihood, X)
    if outputs > 1:
        y = np.stack([y, np.cos(X[:, 0])], axis=1)
    if dtype is not None:
        X, y, new = (torch.as_tensor(part, dtype=dtype) for part in (X, y, new))
    options |= {"likelihood": likelihood} | ({} if model is rfgp.ExactGP else {"seed": 0})
    return Case(model(**options).condition(X, y, **(given or {})), new, has_gradient, outputs=outputs)


def seen(f, likelihood, rng, noise):
    """Return targets around values or log rates f, and the option of a noise, which counts do not have."""
    if likelihood == "gaussian":
        return f + 0.1 * rng.standard_normal(len(f)), {"noise": noise}
    return rng.poisson(np.exp(f)).astype(float), {}


def fourier(likelihood="gaussian", **options):
    """Return the case of features on a table, at given hyperparameters."""
    known = {name: value for name, value in FEATURES.items() if name != "noise" or likelihood == "gaussian"}
    return table(rfgp.SparseSpectrumGP, likelihood, **known | options)


def exact(likelihood="gaussian", **options):
    """Return the case of an exact process on a table, at given hyperparameters."""
    noise = {"noise": 0.1} if likelihood == "gaussian" else {}
    return table(rfgp.ExactGP, likelihood, **SCALES, **noise, **options)


def process(kernel, *approximations, **options):
    """Return the case of a process with an approximation of each term, at given hyperparameters."""
    names = [term.name for term in kernel.terms()]
    scales = {"outputscale": 1.5} if len(names) == 1 else {"rbf.outputscale": 1.5, "local.outputscale": 0.4}
    chosen = dict(zip(names, approximations, strict=True))
    return table(rfgp.GP, kernel=kernel, approximation=chosen, start={**scales, "noise": 0.1}, **options)


def streamed():
    """Return features that read their rows in blocks."""
    X, y, new = rows(200)
    source = rfgp.tables.Batches(lambda: ((X[i : i + 64], y[i : i + 64]) for i in range(0, 200, 64)))
    return Case(rfgp.SparseSpectrumGP(**FEATURES, seed=0).condition(source), new, can_update=False)


def distributed():
    """Return features whose rows are the partitions of a Dask array, on a cluster within this process."""
    import dask.array as da
    from distributed import Client

    X, y, new = rows(200)
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        parts = rfgp.dask.Partitions(da.from_array(X, chunks=(64, 2)), da.from_array(y, chunks=64), client=client)
        model = rfgp.SparseSpectrumGP(**FEATURES, seed=0).condition(parts)
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
    y, noise = seen(f, likelihood, rng, 0.2)
    start = {"a.outputscale": 0.7, "g.outputscale": 0.3, **noise}
    model = rfgp.GP(kernel, likelihood, approximation, start=start, seed=0)
    return Case(model.condition(X, y), {name: values[:6] for name, values in X.items()})


LINES = [
    [(0, 0), (1, 0), (2, 0)],
    [(1, 1), (1, 0), (1, -1)],
    [(2, 0), (3, 0), (3, 1), (2, 0)],
    [(0.5, 1), (0.5, -1), (1, -1)],
]
"""Roads that meet inside each other, a closed one, and a bridge."""


def roads(alpha=1, boundary="neumann", outputs=1, likelihood="gaussian"):
    """Return the case of a field on roads."""
    rng = np.random.default_rng(4)
    X = np.stack([rng.integers(0, 4, 25).astype(float), rng.uniform(size=25)], axis=1)
    y, noise = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.standard_normal(25), {"noise": 0.05}
    if outputs > 1:
        y = np.stack([y, y**2], axis=1)
    if likelihood == "poisson":
        y, noise = seen(0.3 * y, likelihood, rng, 0.05)
    network = graphs.RoadNetwork.from_lines(LINES, metric="euclidean")
    options = {"boundary": boundary, "likelihood": likelihood, "lengthscale": 0.9, "outputscale": 1.2, **noise}
    model = rfgp.RoadGP(network, alpha, seed=0, **options)
    return Case(model.condition(X, y), np.array([(0, 0.0), (0, 0.37), (1, 0.5), (2, 0.8), (3, 1.0)]), outputs=outputs)


def mesh(alpha=2, likelihood="gaussian"):
    """Return the case of a field on a sphere."""
    import trimesh

    ball = trimesh.creation.icosphere(1)
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    f, options = np.sin(3 * X[:, 2]) + X[:, 0], {"lengthscale": 0.7, "outputscale": 1.1, "likelihood": likelihood}
    if likelihood == "gaussian":
        y, noise = seen(f, likelihood, rng, 0.05)
        options |= noise
    else:
        y = (rng.uniform(size=30) < 1 / (1 + np.exp(-f))).astype(float)
    return Case(rfgp.MeshGP(graphs.MeshField(ball, alpha), seed=0, **options).condition(X, y), 0.95 * X[:5])


def nodes(features, kernel=None, outputs=1, likelihood="gaussian", size=(6, 7), **options):
    """Return the case of a process on a grid's nodes."""
    graph = graphs.Graph.from_grid(size)
    rng = np.random.default_rng(6)
    known = rng.permutation(graph.num_nodes)[: graph.num_nodes // 2]
    f = np.sin(known / 5.0)
    y, noise = seen(f, "gaussian", rng, 0.05)
    if likelihood == "poisson":
        y, noise = seen(f, likelihood, rng, 0.05)
    y = np.stack([y, y**2], axis=1) if outputs > 1 else y
    options |= {"features": features, "likelihood": likelihood, "outputscale": 1.3, **noise}
    model = rfgp.GraphGP(graph, kernel or graphs.kernels.Diffusion(1.5), seed=0, **options)
    return Case(model.condition(known, y), np.setdiff1d(np.arange(graph.num_nodes), known)[:6], outputs=outputs)


def weighted():
    """Return weights of rows, and known variances of their errors."""
    rng = np.random.default_rng(2)
    return {"sample_weight": rng.integers(1, 4, 40).astype(float)}, {"noise": 0.05 + rng.uniform(size=40)}


WEIGHTS, NOISE = weighted()
EXPOSURE = {"exposure": np.random.default_rng(3).uniform(0.5, 2.0, 40)}
LAPLACE, VARIATIONAL = {"inference": "laplace"}, {"inference": "variational"}
PRECISE = partial(nodes, "precision", graphs.kernels.RegularizedLaplacian(2, 1.5))
WALKS = partial(nodes, "walks", exact_hops=0, num_walkers=8, p_halt=0.1)
FREQUENCIES = rfgp.RandomFeatures(12, coupling=FEATURES["coupling"], seed=0)
OTHERS = {"l": rfgp.Exact(), "g": rfgp.SparsePrecision(), "f": rfgp.SparsePrecision()}
SEASON = k.Matern(0, nu=2.5, name="a") + k.Periodic(0, period=3.1, lengthscale=1.2, name="b")

MODELS = {
    "features": fourier,
    "features-matern": partial(fourier, spectrum="matern32"),
    "features-weights": partial(fourier, given=WEIGHTS),
    "features-noise": partial(fourier, given=NOISE),
    "features-outputs": partial(fourier, outputs=2),
    "features-more-than-rows": partial(fourier, num_frequencies=30, count=20),
    "features-float32": partial(fourier, dtype=torch.float32),
    "features-positive": partial(fourier, kind="laplace", coupling="energy"),
    "features-streamed": streamed,
    "features-dask": distributed,
    "exact": exact,
    "exact-matern": partial(exact, spectrum="matern52"),
    "exact-weights": partial(exact, given={**WEIGHTS, **NOISE}),
    "exact-outputs": partial(exact, outputs=2),
    "exact-sum": partial(process, BOTH, rfgp.Exact(), rfgp.Exact()),
    "inducing": partial(process, MATERN, points()),
    "inducing-fitc": partial(process, MATERN, points("fitc"), given=WEIGHTS),
    "inducing-vfe": partial(process, MATERN, points("vfe")),
    "inducing-residual": partial(process, MATERN, points(residual=near("auto"))),
    "neighbors": partial(process, MATERN, near()),
    "neighbors-weights": partial(process, MATERN, near(), given={**WEIGHTS, **NOISE}),
    "neighbors-outputs": partial(process, MATERN, near(), outputs=2),
    "neighbors-features": partial(process, BOTH, FREQUENCIES, near()),
    "equispaced": partial(series, rfgp.EquispacedFourier()),
    "chain": partial(series, rfgp.SparsePrecision()),
    "chain-season": partial(series, rfgp.Exact(), SEASON),
    "terms": partial(terms, "auto"),
    "terms-neighbors": partial(terms, {"a": near(), **OTHERS}),
    "terms-residual": partial(terms, {"a": points(None, near()), **OTHERS}),
    "terms-poisson": partial(terms, "auto", "poisson"),
    "neighbors-latent": partial(process, MATERN, near("latent"), count=80, has_gradient=False),
    "neighbors-latent-features": partial(process, BOTH, FREQUENCIES, near("latent"), count=80, has_gradient=False),
    "bernoulli": partial(fourier, "bernoulli", **LAPLACE),
    "bernoulli-variational": partial(fourier, "bernoulli", **VARIATIONAL),
    "bernoulli-exact": partial(exact, "bernoulli", **LAPLACE),
    "bernoulli-more-features-than-rows": partial(fourier, "bernoulli", num_frequencies=30, count=20, **LAPLACE),
    "categorical": partial(fourier, "categorical", **LAPLACE),
    "categorical-variational": partial(fourier, "categorical", **VARIATIONAL),
    "poisson": partial(fourier, "poisson", **LAPLACE),
    "poisson-exposure": partial(fourier, "poisson", given=EXPOSURE),
    "gamma-exact": partial(exact, "gamma"),
    **{name: partial(fourier, name) for name in ("negative-binomial", "student-t", "heteroscedastic")},
    "roads": roads,
    "roads-smooth": partial(roads, 2, "stationary"),
    "roads-outputs": partial(roads, 1, "open", outputs=2),
    "roads-poisson": partial(roads, likelihood="poisson"),
    "mesh": mesh,
    "mesh-rough": partial(mesh, 1),
    "mesh-bernoulli": partial(mesh, likelihood="bernoulli"),
    "graph-exact": partial(nodes, "exact"),
    "graph-exact-outputs": partial(nodes, "exact", outputs=2),
    "graph-precision": PRECISE,
    "graph-precision-outputs": partial(PRECISE, outputs=2),
    "graph-precision-poisson": partial(PRECISE, likelihood="poisson"),
    "graph-rational": partial(nodes, "rational", graphs.kernels.Matern(1.5, 2.0)),
    "graph-walks": WALKS,
    "graph-walks-poisson": partial(WALKS, likelihood="poisson"),
    "graph-walks-iterated": partial(WALKS, num_walkers=4, p_halt=0.3, size=(66, 70)),
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
        is_named = isinstance(case.inputs, dict)
        more = {name: part[:2] for name, part in case.inputs.items()} if is_named else case.inputs[:2]
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
