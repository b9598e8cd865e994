"""Fits along each path of a search, and selections by the default with their noise."""

import numpy as np

import graphs
import rfgp
from rfgp import kernels as k
from tests.golden import cases, models

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


def gp(kernel, approximation, data, count, likelihood="gaussian", inference=None):
    """Fit a process of a table."""
    return fitted(rfgp.GP(kernel, likelihood, approximation, inference=inference, seed=0), *data(count))


def nodes(kernel, features):
    """Fit a process on the nodes of a grid."""
    graph, rng = graphs.Graph.from_grid((9, 9)), np.random.default_rng(6)
    seen = rng.permutation(81)[:55]
    y = np.sin(seen / 5.0) + 0.1 * rng.standard_normal(len(seen))
    model = rfgp.GraphGP(graph, kernel, features=features, seed=0)
    return fitted(model, seen, y, np.setdiff1d(np.arange(81), seen)[:20])


def roads():
    """Fit a field on roads."""
    rng = np.random.default_rng(4)
    X, new = (np.stack([rng.integers(0, 3, n).astype(float), rng.uniform(size=n)], axis=1) for n in (40, 20))
    y = X[:, 0] - np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(40)
    return fitted(rfgp.RoadGP(graphs.RoadNetwork.from_lines(models.LINES[:3], metric="euclidean"), seed=0), X, y, new)


MATERN, RBF = k.Matern(nu=1.5), k.RBF()


def features(count, **options):
    """Return features with a seed of their own."""
    return rfgp.RandomFeatures(count, seed=0, **options)


def near(count, **options):
    """Return neighbors with a seed of their own."""
    return rfgp.Vecchia(count, seed=0, **options)


FITS = {
    **cases(
        gp,
        {
            "exact": (MATERN, rfgp.Exact(), table, 120),
            "exact-sum": (k.Linear(1, name="l") + k.RBF(0, name="r"), rfgp.Exact(), table, 120),
            "period": (k.Periodic(0, period=1.6) + k.Linear(0), rfgp.Exact(), series, 150),
            "features": (RBF, features(48), table, 400),
            "subsets": (RBF, features(48), table, 6000),
            "learned": (RBF, features(12, learn_frequencies=True), table, 400),
            "inducing": (MATERN, rfgp.InducingPoints(32, seed=0), table, 500),
            "residual": (MATERN, rfgp.InducingPoints(16, residual=near(8), seed=0), table, 500),
            "neighbors": (MATERN, near(12), table, 1500),
            "neighbors-features": (
                k.RBF(name="a") + k.Matern(nu=0.5, name="b"),
                {"a": features(24), "b": near(12)},
                table,
                800,
            ),
            "latent-neighbors": (MATERN, near(12, condition_on="latent"), table, 500),
            "lattice": (MATERN, rfgp.EquispacedFourier(), table, 3000),
            "chain": (k.Matern(0, nu=1.5), rfgp.SparsePrecision(), series, 3000),
            "poisson": (RBF, features(32), counts, 300, "poisson"),
            "variational": (RBF, features(32), classes, 300, "bernoulli", "variational"),
            "classes-exact": (RBF, rfgp.Exact(), classes, 120, "bernoulli"),
        },
    ),
    **cases(
        nodes,
        {
            "nodes": (graphs.kernels.Diffusion(1.5), "exact"),
            "nodes-precision": (graphs.kernels.RegularizedLaplacian(2, 1.5), "precision"),
        },
    ),
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


def default(data, count, likelihood=None):
    """Fit the default to a table."""
    return selected(rfgp.GP(likelihood=likelihood, seed=0, time_limit=LONG), *data(count))


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


def smooth(count):
    """Return rows without noise."""
    return table(count, noise=0.0)


SELECTIONS = cases(
    default,
    {
        "smooth": (table, 150),
        "noise-free": (smooth, 100),
        "scaled": (scaled, 400),
        "tails": (tails, 300),
        "season": (series, 200),
        "levels": (levels, 160),
        "counts": (counts, 150),
        "classes": (classes, 200, "bernoulli"),
        "held-out": (table, 2050),
    },
)
"""What the default selects, by name of the table."""
