"""Fits along each path of a search, and selections by the default with their noise."""

from functools import partial

import numpy as np

import graphs
import rfgp
from rfgp import kernels as k

LONG = 1e6
"""A time limit that no fit reaches, because a slow machine would select something else."""


def table(count, columns=2, seed=0, noise=0.2):
    """Return rows, targets and 20 new rows, some of them beyond the others."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (count, columns))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + noise * rng.standard_normal(count)
    return X, y, rng.uniform(-2.2, 2.2, (20, columns))


def series(count, seed=0, noise=0.2):
    """Return times with a trend and a season, targets and 20 new times, half of them beyond the others."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 20, count))
    y = 0.1 * t + np.sin(2 * np.pi * t / 1.7) + noise * rng.standard_normal(count)
    return t[:, None], y, np.linspace(10, 30, 20)[:, None]


def counts(count, seed=0):
    """Return rows, counts and new rows."""
    X, y, new = table(count, seed=seed)
    return X, np.random.default_rng(seed + 1).poisson(np.exp(y)).astype(float), new


def classes(count, seed=0):
    """Return rows, 0 or 1, and new rows."""
    X, y, new = table(count, seed=seed)
    return X, (np.random.default_rng(seed + 1).uniform(size=count) < 1 / (1 + np.exp(-2 * y))).astype(float), new


def fitted(model, X, y, new, **options):
    """Return what is known of a fitted model."""
    gp = model.fit(X, y, **options)
    prediction, report = gp.predict(new), gp.fit_report
    return {
        "log marginal likelihood": report.log_marginal_likelihood,
        "mean": prediction.mean,
        "std": prediction.std,
        "about.hyperparameters": {name: gp.hyperparameters.value(name).tolist() for name in gp.hyperparameters.names},
        "about.evaluations": report.evaluations,
    }


def gp(kernel, approximation, data, likelihood="gaussian", **options):
    """Fit a process of a table."""
    return fitted(rfgp.GP(kernel, likelihood, approximation, seed=0, **options), *data())


def nodes(kernel, features):
    """Fit a process on the nodes of a grid."""
    graph, rng = graphs.Graph.from_grid((9, 9)), np.random.default_rng(6)
    seen = rng.permutation(81)[:55]
    y = np.sin(seen / 5.0) + 0.1 * rng.standard_normal(len(seen))
    model = rfgp.GraphGP(graph, kernel, features=features, seed=0)
    return fitted(model, seen, y, np.setdiff1d(np.arange(81), seen)[:20])


def roads():
    """Fit a field on roads."""
    lines = [[(0, 0), (1, 0), (2, 0)], [(1, 1), (1, 0), (1, -1)], [(2, 0), (3, 0), (3, 1), (2, 0)]]
    rng = np.random.default_rng(4)
    X, new = (np.stack([rng.integers(0, 3, n).astype(float), rng.uniform(size=n)], axis=1) for n in (40, 20))
    y = X[:, 0] - np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(40)
    return fitted(rfgp.RoadGP(graphs.RoadNetwork.from_lines(lines, metric="euclidean"), seed=0), X, y, new)


MATERN = k.Matern(nu=1.5)
FITS = {
    "exact": partial(gp, MATERN, rfgp.Exact(), partial(table, 120)),
    "exact-sum": partial(gp, k.Linear(1, name="l") + k.RBF(0, name="r"), rfgp.Exact(), partial(table, 120)),
    "period": partial(gp, k.Periodic(0, period=1.6) + k.Linear(0), rfgp.Exact(), partial(series, 150)),
    "features": partial(gp, k.RBF(), rfgp.RandomFeatures(48, seed=0), partial(table, 400)),
    "subsets": partial(gp, k.RBF(), rfgp.RandomFeatures(48, seed=0), partial(table, 6000)),
    "learned": partial(gp, k.RBF(), rfgp.RandomFeatures(12, learn_frequencies=True, seed=0), partial(table, 400)),
    "inducing": partial(gp, MATERN, rfgp.InducingPoints(32, seed=0), partial(table, 500)),
    "residual": partial(
        gp, MATERN, rfgp.InducingPoints(16, residual=rfgp.Vecchia(8, seed=0), seed=0), partial(table, 500)
    ),
    "neighbors": partial(gp, MATERN, rfgp.Vecchia(12, seed=0), partial(table, 1500)),
    "neighbors-features": partial(
        gp,
        k.RBF(name="a") + k.Matern(nu=0.5, name="b"),
        {"a": rfgp.RandomFeatures(24, seed=0), "b": rfgp.Vecchia(12, seed=0)},
        partial(table, 800),
    ),
    "latent-neighbors": partial(gp, MATERN, rfgp.Vecchia(12, condition_on="latent", seed=0), partial(table, 500)),
    "lattice": partial(gp, MATERN, rfgp.EquispacedFourier(), partial(table, 3000)),
    "chain": partial(gp, k.Matern(0, nu=1.5), rfgp.SparsePrecision(), partial(series, 3000)),
    "poisson": partial(gp, k.RBF(), rfgp.RandomFeatures(32, seed=0), partial(counts, 300), "poisson"),
    "variational": partial(
        gp, k.RBF(), rfgp.RandomFeatures(32, seed=0), partial(classes, 300), "bernoulli", inference="variational"
    ),
    "classes-exact": partial(gp, k.RBF(), rfgp.Exact(), partial(classes, 120), "bernoulli"),
    "nodes": partial(nodes, graphs.kernels.Diffusion(1.5), "exact"),
    "nodes-precision": partial(nodes, graphs.kernels.RegularizedLaplacian(2, 1.5), "precision"),
    "roads": roads,
}
"""A fit along each path of a search, by name."""


def selected(model, X, y, new):
    """Return what a default selects, and its noise."""
    gp = model.fit(X, y)
    selection, prediction = gp.selection, gp.predict(new)
    observed, noise = prediction.observed(), selection.noise
    return {
        "mean": prediction.mean,
        "std": prediction.std,
        "observed.std": observed.std,
        "chosen": selection.chosen.name,
        "trials": sorted(trial.name for trial in selection.trials),
        "noise": "none" if noise is None else noise.chosen.name,
        "about.scores": {trial.name: [score.value for score in trial.scores] for trial in selection.trials},
        "about.noise": {} if noise is None else {t.name: t.scores[-1].value for t in noise.trials},
        "about.weights": [weight for weight, _ in gp.members],
    }


def default(data, **options):
    """Fit the default to a table."""
    return selected(rfgp.GP(seed=0, time_limit=LONG, **options), *data())


def scaled(count):
    """Return rows whose noise grows with a column."""
    X, y, new = table(count, noise=0.0)
    return X, y + np.exp(X[:, 1] - 1.5) * np.random.default_rng(2).standard_normal(count), new


def tails(count):
    """Return rows with heavy tails."""
    X, y, new = table(count, columns=3, noise=0.0)
    return X, y + 0.2 * np.random.default_rng(2).standard_t(2.5, count), new


def levels(count):
    """Return a table of numbers and levels."""
    rng = np.random.default_rng(3)
    X = {"x": rng.uniform(0, 3, count), "shop": rng.choice(["n", "s", "w"], count)}
    y = np.sin(2 * X["x"]) + np.array([{"n": 0.0, "s": 1.0, "w": -0.5}[s] for s in X["shop"]])
    new = {"x": np.linspace(0, 3, 20), "shop": np.array(["n", "s"] * 10)}
    return X, y + 0.1 * rng.standard_normal(count), new


SELECTIONS = {
    "smooth": partial(default, partial(table, 150)),
    "noise-free": partial(default, partial(table, 100, noise=0.0)),
    "scaled": partial(default, partial(scaled, 400)),
    "tails": partial(default, partial(tails, 300)),
    "season": partial(default, partial(series, 200)),
    "levels": partial(default, partial(levels, 160)),
    "counts": partial(default, partial(counts, 150)),
    "classes": partial(default, partial(classes, 200), likelihood="bernoulli"),
    "held-out": partial(default, partial(table, 2050)),
}
"""What the default selects, by name of the table."""
