"""Kernels in numpy, written from their definitions, and tables for them."""

import numpy as np

from rfgp import kernels as k

TABLE = {
    "t": np.array([0.0, 0.4, 1.7, 2.0, 3.1]),
    "p": np.array([-1.0, 0.3, 0.3, 2.0, 0.9]),
    "store": np.array(["a", "b", "a", "c", "b"]),
    "year": np.array([2001, 2001, 2002, 2001, 2001]),
}


def difference(x):
    return x[:, None] - x[None, :]


def distance(*columns):
    return np.sqrt(sum(difference(x) ** 2 for x in columns))


def equal(x):
    return (x[:, None] == x[None, :]).astype(float)


def periodic(x, period, lengthscale):
    return np.exp(-2 * np.sin(np.pi * difference(x) / period) ** 2 / lengthscale**2)


def centered(kernel, points, x):
    """The covariance of f given that its mean over points is 0, by conditioning a joint Gaussian vector."""
    joint = kernel(np.concatenate([x, points]))
    weights = np.concatenate([np.zeros(len(x)), np.full(len(points), 1 / len(points))])
    cross = joint @ weights
    return (joint - np.outer(cross, cross) / (weights @ cross))[: len(x), : len(x)]


def rbf(x):
    return np.exp(-(difference(x) ** 2) / 2)


T, P, STORE = TABLE["t"], TABLE["p"], TABLE["store"]
R = distance(T / 2.0, P / 0.5)
W = np.array([[1.0, 0.5], [-1.0, 0.2], [0.3, -0.7]])
LEVELS = W @ W.T + np.diag([1.0, 2.0, 0.5])
CODES = np.array([0, 1, 0, 2, 1])

LEAVES = {
    "rbf": (k.RBF(("t", "p"), lengthscale=(2.0, 0.5)), {}, np.exp(-(R**2) / 2)),
    "one lengthscale": (k.RBF(("t", "p"), ard=False, lengthscale=2.0), {}, np.exp(-(distance(T, P) ** 2) / 8)),
    "matern 1/2": (k.Matern(("t", "p"), nu=0.5, lengthscale=(2.0, 0.5)), {}, np.exp(-R)),
    "matern 3/2": (k.Matern(("t", "p"), lengthscale=(2.0, 0.5)), {}, (1 + 3**0.5 * R) * np.exp(-(3**0.5) * R)),
    "matern 5/2": (
        k.Matern(("t", "p"), nu=2.5, lengthscale=(2.0, 0.5)),
        {},
        (1 + 5**0.5 * R + 5 / 3 * R**2) * np.exp(-(5**0.5) * R),
    ),
    "rational quadratic": (
        k.RationalQuadratic(("t", "p"), alpha=0.7, lengthscale=(2.0, 0.5)),
        {},
        (1 + R**2 / 1.4) ** -0.7,
    ),
    "stationary": (
        k.Stationary(("t", "p"), spectrum="product-laplace", lengthscale=(2.0, 0.5)),
        {},
        np.exp(-np.abs(difference(T / 2.0)) - np.abs(difference(P / 0.5))),
    ),
    "periodic": (k.Periodic("t", 1.3, lengthscale=0.8), {}, periodic(T, 1.3, 0.8)),
    "harmonics": (k.Harmonics("t", 1.3, num_harmonics=30, lengthscale=0.8), {}, periodic(T, 1.3, 0.8)),
    "linear": (
        k.Linear(("t", "p"), origin=(1.0, 0.5)),
        {"variance": [0.5, 2.0]},
        0.5 * np.outer(T - 1, T - 1) + 2.0 * np.outer(P - 0.5, P - 0.5),
    ),
    "polynomial": (
        k.Polynomial(("t", "p"), degree=3, origin=(1.0, 0.0), scale=(2.0, 1.0)),
        {"offset": 0.7},
        (0.7 + np.outer((T - 1) / 2, (T - 1) / 2) + np.outer(P, P)) ** 3,
    ),
    "constant": (k.Constant(), {}, np.ones((5, 5))),
    "group": (k.Group("store"), {}, equal(STORE)),
    "group of two": (k.Group(("store", "year")), {}, equal(STORE) * equal(TABLE["year"])),
    "categorical": (k.Categorical("store", correlation=0.3), {}, 0.3 + 0.7 * equal(STORE)),
    "learned categorical": (k.Categorical("store"), {"correlation": 0.4}, 0.4 + 0.6 * equal(STORE)),
    "coregionalization": (
        k.Coregionalization("store", rank=2),
        {"loadings": W, "diagonal": [1.0, 2.0, 0.5]},
        (LEVELS / np.diag(LEVELS).mean())[CODES[:, None], CODES],
    ),
    "centered": (
        k.Centered("t", k.RBF("t", lengthscale=1.0), points=(0.0, 1.0, 2.5)),
        {},
        centered(rbf, np.array([0.0, 1.0, 2.5]), T),
    ),
}
"""Kernels, values that they need, and their matrices for `TABLE`."""
