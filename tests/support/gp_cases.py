"""Models of terms on one small table, at given hyperparameters, and their dense twins."""

import numpy as np
import twins
from dense_terms import DenseTerms

import rfgp
from rfgp import kernels as k


def table(n, seed):
    rng = np.random.default_rng(seed)
    return {
        "t": rng.uniform(0, 10, n),
        "p": rng.normal(3, 2, n),
        "q": rng.uniform(-1, 1, n),
        "store": rng.choice(["a", "b", "c"], n),
        "year": rng.integers(2001, 2004, n),
    }


ROWS, NEW = table(60, 1), table(9, 2)
Y = 5 + np.sin(ROWS["t"]) + 0.5 * (ROWS["store"] == "a") + 0.3 * ROWS["p"] + 0.2 * ROWS["q"] * np.cos(7 * ROWS["t"])

TREND = k.RBF("t", name="trend", lengthscale=1.7)
SPACE = k.Matern(("p", "q"), nu=2.5, lengthscale=(2.0, 0.6), name="space")
SEASON = k.Periodic("t", 2.5, lengthscale=0.9, name="season")
STORE = k.Group("store", name="store")
SLOPE = k.Linear(("p", "q"), origin=(3.0, 0.0), name="slope")

KERNELS = {
    "one": TREND,
    "two smooth": TREND + SPACE,
    "season and groups": TREND + SEASON + STORE,
    "linear": SPACE + SLOPE,
    "linear alone": SLOPE,
    "groups alone": STORE + k.Group("year", name="year"),
    "a coefficient that varies": SPACE + (k.Linear("q", origin=0.0) * k.RBF("t", lengthscale=2.0)).named("varying"),
    "a trend of each store": TREND + (STORE * k.RBF("t", lengthscale=1.0)).named("own"),
    "a season that changes": (SEASON * k.RBF("t", lengthscale=5.0)).named("changing"),
    "shared lengthscale": TREND + (TREND * STORE).named("own"),
    "categories": SPACE + k.Categorical("store", correlation=0.3, name="category"),
    "coregionalization": (k.Coregionalization("store", rank=2) * TREND).named("both") + k.Constant(name="level"),
    "polynomial": k.Polynomial(("p", "q"), degree=2, origin=0.0, scale=2.0, name="poly") + STORE,
    "every kind": TREND + SPACE + SEASON + STORE + SLOPE + (STORE * k.Linear("p", origin=3.0)).named("slopes"),
}
START = {
    "slope.variance": [0.1, 0.4],
    "varying.linear.variance": 0.3,
    "slopes.linear.variance": 0.05,
    "both.coregionalization.loadings": [[1.0, 0.2], [-0.5, 0.4], [0.3, 0.1]],
    "both.coregionalization.diagonal": [0.5, 1.0, 0.2],
    "poly.offset": 1.5,
    "mean": 4.5,
    "noise": 0.07,
}
NO_OUTPUTSCALE = ("slope", "varying", "slopes")
NAMES = {name: [term.name for term in kernel.terms()] for name, kernel in KERNELS.items()}


def start_of(case):
    scales = {f"{name}.outputscale": 0.4 + 0.3 * i for i, name in enumerate(NAMES[case]) if name not in NO_OUTPUTSCALE}
    prefixes = ("mean", "noise", *(f"{name}." for name in NAMES[case]))
    return {**scales, **{path: value for path, value in START.items() if path.startswith(prefixes)}}


def covariance_of(case):
    """Return the covariance of each term of a case between "rows" and "new" points, in the user's units."""
    return twins.covariance_of(KERNELS[case], ROWS, NEW, start_of(case))


def twin(case, y=Y, noise=0.07):
    """Return the dense twin of a case, in the user's units."""
    return DenseTerms(covariance_of(case), NAMES[case], y, 4.5, noise)


def model(case, approximation="auto", **options):
    return rfgp.GP(KERNELS[case], approximation=approximation, start=start_of(case), seed=0, **options)
