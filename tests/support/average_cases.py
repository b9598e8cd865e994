"""Averages of models of terms, built by hand."""

import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.models.process import Fitted
from rfgp.regression.spec import averaged

SHARES = (0.5, 0.3, 0.2)
NEW = {"t": np.linspace(-1, 12, 9), "p": np.linspace(2, -2, 9), "store": np.array(list("abcabcaba"))}
MORE = {"t": np.array([1.5, 9.0]), "p": np.array([0.3, -0.3]), "store": np.array(["d", "a"])}
KERNELS = (
    k.RBF("t") + k.Linear("p") + k.Group("store"),
    k.RBF(("t", "p"), name="smooth") + k.Group("store"),
    k.Matern("t", nu=0.5, name="rough") + k.Linear("p") * k.Group("store"),
)
EXACT, FEATURES, POINTS = rfgp.Exact(), rfgp.RandomFeatures(8), rfgp.InducingPoints(9)


def table(n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = {"t": rng.uniform(0, 10, n), "p": rng.standard_normal(n), "store": rng.choice(list("abc"), n)}
    return X, 5 + np.sin(X["t"]) + X["p"] + (X["store"] == "a") + 0.2 * rng.standard_normal(n)


ROWS, Y = table()


def model(kernel, approximation=EXACT, *, noise=0.1, seed=0, rows=ROWS, y=Y, **options):
    return rfgp.GP(kernel, approximation=approximation, seed=seed, start={"noise": noise}, **options).condition(rows, y)


def average(models, shares=SHARES):
    """Return the average of models of the same class."""
    others = [(share, one.state) for share, one in zip(shares[1:], models[1:], strict=True)]
    found = averaged(models[0].state, shares[0], others)
    return rfgp.GP.of(found.spec, Fitted.of(found))


def models_of(*approximations):
    """Return a model of each kernel, with different noise."""
    pairs = enumerate(zip(KERNELS, approximations, strict=True))
    return [model(kernel, one, noise=0.1 * (place + 1), seed=place) for place, (kernel, one) in pairs]


CASES = {"exact": (EXACT,) * 3, "mixed": (FEATURES, EXACT, POINTS), "neighbors": (EXACT, rfgp.Vecchia(5), FEATURES)}
