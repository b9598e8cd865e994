"""The worked examples of the design: planted terms are recovered."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import trimesh
from field_cases import network

import rfgp
from rfgp import kernels as k

NET, BALL = network(), trimesh.creation.icosphere(3)


def sales(rng, n):
    X = {"t": rng.uniform(0, 4, n), "store": rng.choice(list("abcd"), n), "price": rng.uniform(1, 3, n)}
    effects = {"a": 1.0, "b": -0.5, "c": 0.2, "d": -0.7}
    parts = {
        "trend": 0.8 * X["t"] - 0.1 * X["t"] ** 2,
        "season": 0.7 * np.sin(2 * np.pi * X["t"]),
        "group(store)": np.vectorize(effects.get)(X["store"]),
        "matern(price)": np.cos(2 * X["price"]),
    }
    kernel = (
        k.RBF("t", name="trend")
        + k.Periodic("t", period=1.0, name="season")
        + k.Group("store")
        + k.Matern("price", nu=2.5)
    )
    return X, parts, kernel


def space(rng, n):
    X = {"lon": rng.uniform(0, 1, n), "lat": rng.uniform(0, 1, n)}
    X |= {"elevation": rng.normal(size=n), "age": rng.uniform(-1, 1, n)}
    parts = {
        "space": np.sin(4 * X["lon"]) * np.cos(3 * X["lat"]),
        ("linear(elevation, age)", "varying"): (0.5 + np.sin(2 * np.pi * X["lat"])) * X["elevation"] - 0.8 * X["age"],
    }
    kernel = (
        k.Matern(("lon", "lat"), name="space")
        + k.Linear(("elevation", "age"))
        + (k.Linear("elevation") * k.RBF(("lon", "lat"))).named("varying")
    )
    return X, parts, kernel


def roads(rng, n):
    X = {"road": rng.integers(0, 3, n), "fraction": rng.uniform(0, 1, n)}
    X |= {"hour": rng.uniform(0, 24, n), "sensor": rng.choice(list("abcdef"), n)}
    effects = dict(zip("abcdef", rng.normal(size=6), strict=True))
    parts = {
        "roads": np.sin(2 * X["fraction"] + X["road"]),
        "periodic(hour)": np.cos(2 * np.pi * X["hour"] / 24),
        "group(sensor)": np.vectorize(effects.get)(X["sensor"]),
    }
    return X, parts, k.Roads(NET) + k.Periodic("hour", period=24) + k.Group("sensor")


def surface(rng, n):
    points = BALL.vertices[rng.integers(0, len(BALL.vertices), n)]
    X = dict(zip("xyz", points.T, strict=True)) | {"pressure": rng.normal(size=n)}
    parts = {"mesh": np.sin(3 * X["x"]) + X["z"], "linear(pressure)": 0.6 * X["pressure"]}
    return X, parts, k.Mesh(BALL) + k.Linear("pressure")


def local(rng, n):
    X = {"u": rng.uniform(0, 1, n), "v": rng.uniform(0, 1, n)}
    parts = {"smooth": np.sin(3 * X["u"]) + X["v"], "local": 0.3 * np.sin(40 * X["u"]) * np.sin(30 * X["v"])}
    return X, parts, k.RBF(name="smooth") + k.Matern(nu=1.5, name="local")


EXAMPLES = {
    "sales": (sales, "auto"),
    "space": (space, "auto"),
    "roads": (roads, "auto"),
    "surface": (surface, "auto"),
    "local": (local, {"smooth": rfgp.RandomFeatures(32), "local": rfgp.Vecchia(30, condition_on="responses")}),
}


@cache
def fitted(name, standardize=True):
    make, approximation = EXAMPLES[name]
    rng = np.random.default_rng(8)
    X, parts, kernel = make(rng, 500)
    y = 3 + sum(parts.values()) + 0.1 * rng.normal(size=500)
    gp = rfgp.GP(kernel, approximation=approximation, standardize=standardize, seed=0)
    return gp.fit(pd.DataFrame(X).assign(units=y), "units"), X, y, parts


@pytest.mark.parametrize(
    ("name", "standardize"), [*((name, True) for name in EXAMPLES), ("roads", False), ("local", False)]
)
def test_planted_terms_are_recovered(name, standardize):
    gp, X, y, parts = fitted(name, standardize)
    prediction = gp.predict(X)
    assert np.std(prediction.mean - (y - np.mean(y) + np.mean(prediction.mean))) < 0.15
    assert list(prediction.terms) == [term.name for term in gp.kernel.terms()]
    for term, truth in parts.items():
        names = [term] if isinstance(term, str) else term  # a coefficient that varies has a constant of its own
        found = prediction.of(*names).centered()
        error = np.std(found.mean - (truth - truth.mean())) / np.std(truth)
        assert error < (0.6 if term == "local" else 0.3), term
    known = prediction.of(*prediction.terms)
    np.testing.assert_allclose(known.mean + gp.hyperparameters.mean.item(), prediction.mean, atol=1e-8)


def test_likelihood_with_terms_of_three_kinds():
    rng = np.random.default_rng(3)
    X = {"a": rng.uniform(0, 6, 400), "b": rng.normal(size=400), "site": rng.choice(list("pqr"), 400)}
    f = 2 * np.sin(X["a"]) + X["b"] + (X["site"] == "p")
    y = rng.uniform(size=400) < 1 / (1 + np.exp(-f))
    gp = rfgp.GP(k.RBF("a") + k.Linear("b") + k.Group("site"), likelihood="bernoulli", seed=0).fit(X, y)
    assert np.corrcoef(gp.predict(X).mean, f)[0, 1] > 0.95
    assert np.corrcoef(gp.predict(X).terms["linear(b)"].mean, X["b"])[0, 1] > 0.99
