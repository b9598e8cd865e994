"""Approximations from text, their options, and the plan of terms that have none."""

import numpy as np
import pytest
from refusals import refused

import graphs
import rfgp
from rfgp import approximations
from rfgp import kernels as k

NEAR = rfgp.InducingPoints(8, residual=rfgp.Vecchia(5))
VALUES = [
    rfgp.Exact(), rfgp.RandomFeatures(8), rfgp.EquispacedFourier(), rfgp.InducingPoints(8), rfgp.Vecchia(5),
    rfgp.SparsePrecision(), rfgp.RationalPrecision(2), rfgp.RandomWalks(8), rfgp.TruncatedSpectrum(6),
    rfgp.Chebyshev(3), rfgp.Taylor(3),
]  # fmt: skip


TEXTS = {
    "auto": "auto",
    "Exact": rfgp.Exact(),
    "RandomFeatures(256, learn_frequencies=True)": rfgp.RandomFeatures(256, learn_frequencies=True),
    "RandomFeatures(coupling='orthogonal', seed=3)": rfgp.RandomFeatures(coupling="orthogonal", seed=3),
    "InducingPoints(64, residual=Vecchia(20))": rfgp.InducingPoints(64, residual=rfgp.Vecchia(20)),
    "InducingPoints(residual=Vecchia)": rfgp.InducingPoints(residual=rfgp.Vecchia()),
    "trend=Vecchia(30), local=Exact()": {"trend": rfgp.Vecchia(30), "local": rfgp.Exact()},
    "{'group(store)': Exact(), 'a': Vecchia}": {"group(store)": rfgp.Exact(), "a": rfgp.Vecchia()},
}


@pytest.mark.parametrize(("text", "value"), TEXTS.items())
def test_text_is_the_value_of_python(text, value):
    assert approximations.parse(text) == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_repr_is_read_back(value):
    assert approximations.parse(repr(value)) == value
    assert approximations.parse(repr({"a b": value})) == {"a b": value}


WRONG = {
    "nothing": "RandomFeatures, EquispacedFourier",
    "Vechia(30)": "Did you mean 'Vecchia'",
    "RandomFeatures('a')": "num_frequencies",
    "RandomFeatures(1000000000)": "at most",
    "RandomFeatures(coupling=energy)": "Put quotes",
    "RandomFeatures(frequencies=3)": "got 'frequencies'",
    "InducingPoints(residual=Exact)": "residual",
    "a=Exact(), Vecchia()": "approximation",
    "Exact(), Vecchia()": "one value",
    "trend=Exact(), trend=Vecchia()": "Use only",
    "trend=auto": "got 'auto'",
    "Exact), _(Exact": "brackets",
    "{}": "at least one",
    "{1: Exact()}": "Use only",
    "RandomFeatures(__import__('os'))": "got '__import__'",
    "": "text",
    "3": "got 3",
    "(" * 5000: "at most 32",
}


@pytest.mark.parametrize(("text", "word"), WRONG.items(), ids=range(len(WRONG)))
def test_anything_else_is_refused(text, word):
    refused(lambda: approximations.parse(text), INVALID, word)


INVALID = rfgp.InvalidArgumentError
BAD = [
    (lambda: rfgp.RandomFeatures(0), "num_frequencies"),
    (lambda: rfgp.RandomFeatures(kind="wavelet"), "kind must be one of"),
    (lambda: rfgp.RandomFeatures(kind="laplace", learn_frequencies=True), "learn_frequencies must be False"),
    (lambda: rfgp.InducingPoints(init="first"), "init must be one of"),
    (lambda: rfgp.InducingPoints(method="dtc"), "method must be None or one of"),
    (lambda: rfgp.Vecchia(0), "num_neighbors"),
    (lambda: rfgp.Vecchia(condition_on="rows"), "condition_on must be one of"),
    (lambda: rfgp.Exact(seed="one"), "seed"),
    (lambda: rfgp.InducingPoints(8, residual=rfgp.Exact()), "residual must be None or a value such as"),
    (lambda: rfgp.InducingPoints(8, residual=rfgp.Vecchia(5), method="fitc"), "with a residual, got 'fitc'"),
    (lambda: rfgp.EquispacedFourier(tolerance=0.5), "tolerance"),
    (lambda: rfgp.EquispacedFourier(max_features=0), "max_features"),
    (lambda: rfgp.RandomWalks(0), "num_walkers"),
    (lambda: rfgp.Chebyshev(0), "degree"),
    (lambda: rfgp.RationalPrecision(1.5), "degree"),
]


@pytest.mark.parametrize(("make", "word"), BAD)
def test_bad_options_are_named(make, word):
    refused(make, INVALID, word)


RING = rfgp.kernels.Nodes(graphs.Graph.from_edges([(i, (i + 1) % 6) for i in range(6)]), column="node")


@pytest.mark.parametrize(
    ("kernel", "approximation", "word"),
    [
        (k.Group("g"), rfgp.RandomFeatures(8), "finitely many functions"),
        (k.Matern("t"), rfgp.RandomFeatures(8, kind="laplace"), "Gaussian kernel only"),
        (k.Group("g") * k.RBF("t"), rfgp.InducingPoints(8, learn_locations=True), "columns of numbers"),
        (k.RBF("t") + k.Constant(name="level"), {"level": rfgp.Vecchia(8)}, "reads no column"),
        (RING, rfgp.Vecchia(8), "nodes of a graph"),
        (k.RBF("t", name="a") + k.RBF("u", name="b"), {"a": rfgp.Vecchia(8), "b": rfgp.Vecchia(9)}, "one value"),
        (k.RationalQuadratic("t"), NEAR, "requires a Gaussian kernel"),
        (k.RBF("t") * k.Group("g"), NEAR, "requires columns of numbers"),
        (k.RBF("t", name="a") + k.RBF("u", name="b"), {"a": NEAR, "b": rfgp.Vecchia(5)}, "one term"),
    ],
)
def test_terms_that_cannot_be_served_are_named(kernel, approximation, word):
    X, y = data(60)
    gp = rfgp.GP(kernel, approximation=approximation)
    refused(lambda: gp.condition({**X, "node": np.arange(60) % 6}, y), INVALID, word)


def data(n):
    rng = np.random.default_rng(0)
    X = {"t": rng.uniform(0, 1, n), "u": rng.uniform(0, 1, n), "g": np.resize(["a", "b"], n)}
    return X, (np.sin(9 * X["t"]) + 0.5 * rng.normal(size=n) > 0).astype(float)


def planned(kernel, n, likelihood="bernoulli", approximation="auto"):
    gp = rfgp.GP(kernel, likelihood, approximation=approximation, seed=0).condition(*data(n))
    return [type(term.approximation).__name__ for term in gp.terms.values()]


RBF = k.RBF("t", lengthscale=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "n", "likelihood", "expected"),
    [
        (RBF, 1100, "bernoulli", "EquispacedFourier"),
        (RBF, 1100, "student-t", "EquispacedFourier"),
        (RBF, 900, "bernoulli", "Exact"),
        (RBF, 1100, "gaussian", "Exact"),
        (k.RBF("t", lengthscale=0.0005), 1100, "bernoulli", "Exact"),
        (k.RBF(["t", "u"], lengthscale=0.3), 1100, "bernoulli", "Exact"),
    ],
)
def test_exact_kernels_of_one_column_are_replaced(kernel, n, likelihood, expected):
    assert planned(kernel, n, likelihood)[0] == expected


@pytest.mark.slow
def test_terms_are_replaced_only_if_all_have_weights():
    assert planned(RBF + k.Group("g"), 1100) == ["EquispacedFourier", "Exact"]
    assert planned(RBF + k.RBF("u", lengthscale=0.3), 1100) == ["Exact", "Exact"]
    assert planned(RBF, 1100, approximation=rfgp.Exact()) == ["Exact"]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (k.Matern("t", nu=0.5), "SparsePrecision"),
        (k.Matern("t", nu=0.5) + k.Group("g"), "SparsePrecision"),
        (k.Matern(("t", "u"), nu=0.5, lengthscale=1e-4), "Vecchia"),
        (k.RBF("t"), "EquispacedFourier"),
        (k.RBF("t") * k.Group("g"), "RandomFeatures"),
    ],
)
def test_terms_of_many_rows_are_planned(kernel, expected, limits):
    assert planned(kernel, 60, "gaussian")[0] == "Exact"
    limits(max_exact_rows=50)
    assert planned(kernel, 60, "gaussian")[0] == expected


WAVE = k.Harmonics("t", 0.2, num_harmonics=2) * k.Matern("t", nu=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "few", "many"),
    [
        (k.Wiener("t") + k.Matern("t", nu=1.5) + k.Group("g"), ["SparsePrecision", "SparsePrecision", "Exact"], None),
        (k.Wiener("t") + k.Matern("u"), ["Exact", "Exact"], ["SparsePrecision", "RandomFeatures"]),
        (WAVE + k.Group("g") * k.Matern("t"), ["Exact", "Exact"], ["SparsePrecision", "RandomFeatures"]),
        (WAVE + k.Wiener("u"), ["Exact", "Exact"], ["RandomFeatures", "InducingPoints"]),
    ],
    ids=["a sum of one column", "another column", "products", "two columns"],
)
def test_processes_that_only_a_filter_knows_are_planned_together(kernel, few, many, limits):
    assert planned(kernel, 60, "gaussian") == few
    limits(max_exact_rows=50)
    assert planned(kernel, 60, "gaussian") == (many or few)


def test_a_filter_leaves_other_terms_to_the_planner():
    sparse = rfgp.SparsePrecision()
    kernel = k.Wiener("t", name="w") + k.Group("g")
    assert planned(kernel, 60, "gaussian", sparse) == ["SparsePrecision", "Exact"]
    assert planned(kernel, 60, "gaussian", {"w": sparse}) == ["SparsePrecision", "Exact"]
    assert planned(k.Wiener("t", name="w") + k.RBF("u"), 60, "gaussian", {"w": sparse})[1] == "RandomFeatures"


def test_one_value_serves_its_terms_and_others_are_planned():
    kernel = k.RBF("t") + k.Group("g") + k.Linear("u")
    assert planned(kernel, 60, "gaussian", rfgp.RandomFeatures(8)) == ["RandomFeatures", "Exact", "Exact"]


ROWS_OF_NUMBERS = 8.0 * 60
LARGEST = {
    "exact": (RBF, rfgp.Exact(), 60 * ROWS_OF_NUMBERS),
    "functions": (k.Polynomial("t", degree=6), rfgp.Exact(), 7 * ROWS_OF_NUMBERS),
    "features": (RBF, rfgp.RandomFeatures(16), 32 * ROWS_OF_NUMBERS),
    "more features than rows": (RBF, rfgp.RandomFeatures(256), 8.0 * 512**2),
    "points": (RBF, rfgp.InducingPoints(30), 30 * ROWS_OF_NUMBERS),
    "points and neighbors": (RBF, rfgp.InducingPoints(30, residual=rfgp.Vecchia(5)), 30 * ROWS_OF_NUMBERS),
    "neighbors": (RBF, rfgp.Vecchia(9, block_size=1), 10 * ROWS_OF_NUMBERS),
    "blocks of neighbors": (RBF, rfgp.Vecchia(9, block_size=5, condition_on="responses"), 21 * ROWS_OF_NUMBERS),
    "a chain": (k.Matern("t", nu=1.5), rfgp.SparsePrecision(), 10 * 2 * ROWS_OF_NUMBERS),
    "nodes": (RING, rfgp.Chebyshev(5), 64 * ROWS_OF_NUMBERS),
}
"""Bytes of the largest array, by the definition of each approximation. Features of nodes have up to 64 non-zeros."""


@pytest.mark.parametrize("name", LARGEST)
def test_predicted_memory_is_an_upper_bound_and_not_far_above(name):
    kernel, approximation, largest = LARGEST[name]
    X, y = data(60)
    X["node"] = np.arange(60) % 6
    make = lambda memory: rfgp.GP(kernel.named("f"), approximation=approximation, memory=memory, seed=0)  # noqa: E731
    memory = make(None).condition(X, y).terms["f"].cost.memory
    assert largest <= memory <= 4 * largest
    assert make(1.01 * memory).condition(X, y).num_observations == 60
    refused(lambda: make(0.99 * memory).condition(X, y), INVALID, "'f' takes")


def test_seeds_decide_the_draws():
    def mean(own, seed):
        gp = rfgp.GP(k.RBF(("t", "u")), approximation=rfgp.RandomFeatures(8, seed=own), seed=seed)
        return gp.condition(*data(60)).predict(data(5)[0]).mean

    np.testing.assert_array_equal(mean(None, 1), mean(None, 1))
    np.testing.assert_array_equal(mean(5, 1), mean(5, 2))
    assert np.abs(mean(None, 1) - mean(None, 2)).max() > 1e-4
