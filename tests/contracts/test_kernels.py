"""Each kernel against its formula in numpy, and the algebra, names and texts of kernels."""

import dataclasses
import time
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from refusals import refused
from scipy import stats

import rfgp
from rfgp import kernels as k
from rfgp.approximations import Approximation
from rfgp.parameters import Hyperparameter
from rfgp.tables import Batches

TABLE = {
    "t": np.array([0.0, 0.4, 1.7, 2.0, 3.1]),
    "p": np.array([-1.0, 0.3, 0.3, 2.0, 0.9]),
    "store": np.array(["a", "b", "a", "c", "b"]),
    "year": np.array([2001, 2001, 2002, 2001, 2001]),
}
T, P, STORE = TABLE["t"], TABLE["p"], TABLE["store"]
Y = np.array([0.3, 1.1, -0.4, 0.2, 0.9])
LENGTHS = np.array([2.0, 0.5])


def difference(x):
    return x[:, None] - x[None, :]


def distance(*columns):
    return np.sqrt(sum(difference(x) ** 2 for x in columns))


def equal(x):
    return (x[:, None] == x[None, :]).astype(float)


def periodic(x, period, lengthscale):
    return np.exp(-2 * np.sin(np.pi * difference(x) / period) ** 2 / lengthscale**2)


def on_sphere(longitude, latitude):
    turned, raised = np.deg2rad(longitude), np.deg2rad(latitude)
    return np.array([np.cos(raised) * np.cos(turned), np.cos(raised) * np.sin(turned), np.sin(raised)])


def centered(kernel, points, x):
    """The covariance of f given that its mean over points is 0, by conditioning a joint Gaussian vector."""
    joint = kernel(np.concatenate([x, points]))
    weights = np.concatenate([np.zeros(len(x)), np.full(len(points), 1 / len(points))])
    cross = joint @ weights
    return (joint - np.outer(cross, cross) / (weights @ cross))[: len(x), : len(x)]


R = distance(T / 2.0, P / 0.5)
COS, SIN = np.cos(np.radians(30)), np.sin(np.radians(30))
TURNED = distance((COS * T + SIN * P) / 2.0, (COS * P - SIN * T) / 0.5)
W = np.array([[1.0, 0.5], [-1.0, 0.2], [0.3, -0.7]])
LEVELS = W @ W.T + np.diag([1.0, 2.0, 0.5])
CODES = np.array([0, 1, 0, 2, 1])
ARD = {"lengthscale": LENGTHS}
BOTH = ("t", "p")
CUBIC = 0.7 + np.outer((T - 1) / 2, (T - 1) / 2) + np.outer(P, P)
SLOPES = 0.5 * np.outer(T - 1, T - 1) + 2.0 * np.outer(P - 0.5, P - 0.5)
CUBES = np.minimum.outer(T, T) ** 2 * np.maximum.outer(T, T) / 2 - np.minimum.outer(T, T) ** 3 / 6
WAVES = {"period": 1.3, "lengthscale": 0.8}
LEAVES = {
    "rbf": (k.RBF(BOTH), ARD, np.exp(-(R**2) / 2)),
    "one lengthscale": (k.RBF(BOTH, ard=False), {"lengthscale": 2.0}, np.exp(-(distance(T, P) ** 2) / 8)),
    "matern 1/2": (k.Matern(BOTH, nu=0.5), ARD, np.exp(-R)),
    "matern 3/2": (k.Matern(BOTH), ARD, (1 + 3**0.5 * R) * np.exp(-(3**0.5) * R)),
    "matern 5/2": (k.Matern(BOTH, nu=2.5), ARD, (1 + 5**0.5 * R + 5 / 3 * R**2) * np.exp(-(5**0.5) * R)),
    "learned rotation": (k.RBF(BOTH, rotation="learn"), {**ARD, "rotation": 30.0}, np.exp(-(TURNED**2) / 2)),
    "given rotation": (k.Matern(BOTH, nu=0.5, rotation=("learn", 30)), ARD, np.exp(-TURNED)),
    "rational quadratic": (k.RationalQuadratic(BOTH, alpha=0.7), ARD, (1 + R**2 / 1.4) ** -0.7),
    "stationary": (
        k.Stationary(BOTH, spectrum="product-laplace"),
        ARD,
        np.exp(-np.abs(difference(T / 2.0)) - np.abs(difference(P / 0.5))),
    ),
    "sphere": (
        k.Sphere(("t", "p"), k.Matern(nu=0.5), radius=50.0),
        {"lengthscale": 2.0},
        np.exp(-distance(*(50 * on_sphere(T, P))) / 2.0),
    ),
    "periodic": (k.Periodic("t", 1.0), WAVES, periodic(T, 1.3, 0.8)),
    "harmonics": (k.Harmonics("t", 1.0, num_harmonics=30), WAVES, periodic(T, 1.3, 0.8)),
    "learned period": (k.Harmonics("t", 1.0, 30, learn_period=True), WAVES, periodic(T, 1.3, 0.8)),
    "linear": (k.Linear(BOTH, origin=(1.0, 0.5)), {"variance": np.array([0.5, 2.0])}, SLOPES),
    "polynomial": (k.Polynomial(BOTH, degree=3, origin=(1.0, 0.0), scale=(2.0, 1.0)), {"offset": 0.7}, CUBIC**3),
    "wiener": (k.Wiener("t", origin=-1.0), {"variance": 0.6}, 0.6 * (np.minimum.outer(T, T) + 1)),
    "integrated wiener": (k.IntegratedWiener("t"), {"variance": 0.6}, 0.6 * CUBES),
    "constant": (k.Constant(), {}, np.ones((5, 5))),
    "group": (k.Group("store"), {}, equal(STORE)),
    "group of two": (k.Group(("store", "year")), {}, equal(STORE) * equal(TABLE["year"])),
    "categorical": (k.Categorical("store", correlation=0.3), {}, 0.3 + 0.7 * equal(STORE)),
    "learned categorical": (k.Categorical("store"), {"correlation": 0.4}, 0.4 + 0.6 * equal(STORE)),
    "coregionalization": (
        k.Coregionalization("store", rank=2),
        {"loadings": W, "diagonal": np.array([1.0, 2.0, 0.5])},
        (LEVELS / np.diag(LEVELS).mean())[CODES[:, None], CODES],
    ),
    "centered": (
        k.Centered("t", k.RBF("t"), points=(0.0, 1.0, 2.5)),
        {"lengthscale": 1.0},
        centered(lambda x: np.exp(-(difference(x) ** 2) / 2), np.array([0.0, 1.0, 2.5]), T),
    ),
}
"""Kernels, all their hyperparameters, and their matrices for `TABLE`."""
FINITE = ("Harmonics", "Linear", "Polynomial", "Group", "Categorical", "Coregionalization")
CASES = pytest.mark.parametrize(("kernel", "values", "expected"), LEAVES.values(), ids=LEAVES)
ELSEWHERE = {"Kernel", "Sum", "Additive", "Nodes", "Roads", "Mesh"}


def test_every_kernel_has_a_formula():
    kinds = {name for name, kind in vars(k).items() if isinstance(kind, type) and issubclass(kind, k.Kernel)}
    assert {type(kernel).__name__ for kernel, *_ in LEAVES.values()} == kinds - ELSEWHERE


@CASES
def test_matrices_are_those_of_the_formula(kernel, values, expected):
    found = kernel.matrix(TABLE, values=values)
    assert found.dtype == torch.float64
    assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    some = {name: column[:2] for name, column in TABLE.items()}
    assert_allclose(kernel.matrix(TABLE, some, values), expected[:, :2], rtol=1e-12, atol=1e-13)


@CASES
def test_gradients_are_those_of_differences(kernel, values, expected):
    names, some = list(values), {name: column[:3] for name, column in TABLE.items()}

    def matrix(*numbers):
        return kernel.matrix(TABLE, some, dict(zip(names, numbers, strict=True)))

    given = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values.values()]
    assert not given or torch.autograd.gradcheck(matrix, given, atol=1e-6)


@pytest.mark.parametrize("name", LEAVES)
def test_posteriors_are_those_of_the_formula(name):
    """In blocks, kernels of finitely many functions are read as these functions."""
    kernel, values, expected = LEAVES[name]
    source = (Batches([pd.DataFrame(TABLE).assign(y=Y)], "y"),) if type(kernel).__name__ in FINITE else (TABLE, Y)
    gp = rfgp.GP(kernel, approximation=rfgp.Exact(), standardize=False, seed=0, start={"noise": 0.1})
    size = 1.0 if "variance" in values else 1.7
    own = values if "variance" in values else {**values, "outputscale": 1.7}
    gp.condition(*source).hyperparameters.set(noise=0.1, mean=0.2, **own)
    K, A = size * expected, size * expected + 0.1 * np.eye(5)
    p = gp.predict(TABLE)
    assert_allclose(p.mean, 0.2 + K @ np.linalg.solve(A, Y - 0.2), rtol=1e-6, atol=1e-7)
    assert_allclose(p.variance, np.diag(K - K @ np.linalg.solve(A, K)), rtol=1e-5, atol=1e-7)
    density = stats.multivariate_normal(np.full(5, 0.2), A).logpdf(Y)
    assert gp.log_marginal_likelihood().item() == pytest.approx(density, rel=1e-7)


@pytest.mark.parametrize("lengthscale", [0.2, 1.0])
def test_the_series_of_a_periodic_kernel_misses_its_tail_only(lengthscale):
    kernel, x = k.Periodic("t", 1.3, lengthscale=lengthscale), np.linspace(-1, 2, 40)
    series = kernel.series({"lengthscale": torch.tensor(lengthscale)})
    fewer = dataclasses.replace(series, num_harmonics=series.num_harmonics - 1)
    missed = [np.abs(one.matrix({"t": x}).numpy() - periodic(x, 1.3, lengthscale)).max() for one in (series, fewer)]
    assert missed[0] < 1.01e-6 < missed[1]


def test_levels_that_no_row_has_are_independent_of_others():
    seen, new = {"store": ["a", "b"]}, {"store": ["b", "z", "z", "y"]}
    assert k.Group("store").matrix(seen, new).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]
    assert k.Categorical("store", correlation=0.5).matrix(seen, new)[1].tolist() == [1, 0.5, 0.5, 0.5]
    values = {"loadings": [[1.0], [1.0]], "diagonal": [1.0, 1.0]}
    assert k.Coregionalization("store").matrix(seen, new, values)[1].tolist() == [1, 0, 0, 0]


# --- algebra and names --------------------------------------------------------------------------------

A, B = k.RBF("t", lengthscale=1.3), k.Matern("p", lengthscale=0.7, nu=0.5)
C = k.Group("store")
KA, KB, KC = np.exp(-(difference(T / 1.3) ** 2) / 2), np.exp(-np.abs(difference(P / 0.7))), equal(STORE)
COMPOSED = [
    (A + B, KA + KB),
    (A * B, KA * KB),
    ((A + B) * C, KA * KC + KB * KC),
    (C * (A + B), KA * KC + KB * KC),
    ((A + B) * (A + C), KA * KA + KA * KC + KB * KA + KB * KC),
    (A * B * C, KA * KB * KC),
    (sum([A, B, C]), KA + KB + KC),
    ((A + B).named("x") * C.named("y") + C, KA * KC + KB * KC + KC),
]


@pytest.mark.parametrize(("kernel", "expected"), COMPOSED)
def test_matrices_of_sums_and_products(kernel, expected):
    assert_allclose(kernel.matrix(TABLE), expected, rtol=1e-13)
    gp = rfgp.GP(kernel, approximation=rfgp.Exact(), standardize=False, start={"noise": 0.1}, seed=0)
    gp.condition(TABLE, Y).hyperparameters.set(**{f"{term.name}.outputscale": 1.0 for term in kernel.terms()})
    assert_allclose(gp.prior_covariance(TABLE), expected, rtol=1e-9, atol=1e-12)
    assert_allclose(
        gp.predict({**TABLE, "t": T + 1e6, "p": P - 1e6, "store": ["z"] * 5}).variance, np.diag(expected), rtol=1e-9
    )


NAMES = [
    (k.RBF() + k.RBF(("lon", "lat")) + k.Group("s") * k.Matern("t"), ["rbf", "rbf(lon, lat)", "group(s):matern(t)"]),
    (A + A + k.RBF("t") + k.Constant(), ["rbf(t)", "rbf(t)_2", "rbf(t)_3", "constant"]),
    (((A + B) * C).named("x"), ["x.rbf(t):group(store)", "x.matern(p):group(store)"]),
    (k.RBF("t", name="trend") + k.RBF("t").named("other") * C, ["trend", "other:group(store)"]),
    (k.Additive(columns=("a", "b"), order=2), ["additive(a)", "additive(b)", "additive(a, b)"]),
]


@pytest.mark.parametrize(("kernel", "names"), NAMES)
def test_terms_have_names(kernel, names):
    assert [term.name for term in kernel.terms()] == names


def test_one_object_used_twice_shares_its_hyperparameters():
    values, shared = {"rbf(t).lengthscale": 2.0}, k.RBF("t")
    longer = np.exp(-(difference(T / 2.0) ** 2) / 2)
    assert_allclose((shared + shared * C).matrix(TABLE, values=values), longer * (1 + KC))
    apart = shared + k.RBF("t") * C
    refused(lambda: apart.matrix(TABLE, values=values), INVALID, "rbf(t):group(store).rbf.lengthscale")


def test_numbers_are_starting_variances():
    assert [term.variance for term in (2.0 * A + B * 3 + C).terms()] == [2.0, 3.0, None]
    assert [term.variance for term in (2.0 * (A + 4.0 * B) * (3.0 * C)).terms()] == [6.0, 24.0]
    assert_allclose((2.0 * A).matrix(TABLE), KA)  # `matrix` is at output scales of 1
    gp = rfgp.GP(2.0 * A + k.Linear("p", variance=0.3), standardize=False, seed=0).condition(TABLE, Y)
    found = [gp.hyperparameters[name].item() for name in ("rbf(t).outputscale", "rbf(t).lengthscale", "variance")]
    assert found == pytest.approx([2.0, 1.3, 0.3])
    lengths = rfgp.GP(k.RBF(BOTH), seed=0).condition(TABLE, Y).hyperparameters.lengthscale.detach()
    assert_allclose(lengths, 2**0.5 * np.array([T.std(ddof=1), P.std(ddof=1)]), rtol=1e-9)


def test_kernels_are_values():
    with pytest.raises(AttributeError):
        A.lengthscale = 2.0
    for wrong in (True, "2", None, np.ones(2)):
        refused(lambda wrong=wrong: A * wrong, TypeError, "")
    refused(lambda: A + 1.0, TypeError, "")


def test_additive_terms_have_zero_mean_over_the_rows():
    rows = {name: TABLE[name] for name in BOTH}
    gp = rfgp.GP(k.Additive(lambda key: k.RBF(key, lengthscale=1.0), order=2), standardize=False, seed=0)
    gp.condition(rows, Y)
    quantiles = {name: np.quantile(TABLE[name], (np.arange(64) + 0.5) / 64) for name in rows}
    for term in gp.kernel.terms()[:2]:
        key = term.factors[0].columns[0]
        expected = centered(lambda x: np.exp(-(difference(x) ** 2) / 2), quantiles[key], TABLE[key])
        assert_allclose(k.Sum((term,)).matrix(rows), expected, rtol=1e-9, atol=1e-12)


# --- texts --------------------------------------------------------------------------------------------

NESTED = 'RBF(t).named("a") + (RBF(t) * Group(s)).named("b")'
TEXTS = {
    "RBF(0) + RBF((1, 2))": k.RBF(0) + k.RBF((1, 2)),
    "RBF('t t', name='trend')": k.RBF("t t", name="trend"),
    "RBF((lon, 'lat'), lengthscale=2)": k.RBF(("lon", "lat"), lengthscale=2),
    "RBF(columns=t)  # a comment": k.RBF("t"),
    "Matern((x, y), rotation=learn)": k.Matern(("x", "y"), rotation="learn"),
    "2.0 * RBF(x) * 3": 6.0 * k.RBF("x"),
    NESTED: k.RBF("t").named("a") + (k.RBF("t") * k.Group("s")).named("b"),
    "(RBF(a) + RBF(b)).named('s')": (k.RBF("a") + k.RBF("b")).named("s"),
    "Linear((a, b), origin=(-1.5, 2))": k.Linear(("a", "b"), origin=(-1.5, 2)),
    "Additive(columns=(a, b), order=2)": k.Additive(columns=("a", "b"), order=2),
    "Additive(base=Matern, columns=a)": k.Additive(k.Matern, ("a",)),
    "Categorical(s, correlation=None) + Constant()": k.Categorical("s") + k.Constant(),
}


def assert_same(one, other):
    assert repr(one) == repr(other)
    assert [term.name for term in one.terms()] == [term.name for term in other.terms()]


@pytest.mark.parametrize(("text", "kernel"), TEXTS.items(), ids=TEXTS)
def test_text_is_the_kernel_of_python(text, kernel):
    assert_same(k.parse(text), kernel)


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in ("centered", "stationary")])
def test_every_repr_is_read_back(name):
    kernel = LEAVES[name][0]
    assert_same(k.parse(repr(kernel)), kernel)
    both = (kernel.named("x") * k.Linear("a")).named("varying") + 2.5 * k.Group("site")
    assert_same(k.parse(repr(both)), both)


def test_columns_are_names_or_places_of_a_table():
    found = k.parse("RBF(t) + Group('store no') + RBF(2)", ("t", "store no", "0"))
    assert [term.factors[0].columns for term in found.terms()] == [("t",), ("store no",), ("0",)]
    first, second = k.parse("(RBF(a) + RBF(b)) * Group(s)").terms()
    assert first.factors[1] is second.factors[1]
    columns = tuple(f"column_{i}" for i in range(200))
    assert len(k.parse(f"Additive(columns=({', '.join(columns)}))").terms()) == 200


CODE = [
    "__import__('os').system('ls')", "RBF.__class__", "[RBF(x) for x in y]", "lambda: RBF(t)", "(lambda: RBF(t))()",
    "RBF(t) if t else RBF(s)", "RBF(t := 3)", "RBF(f'{t}')", "RBF(*t)", "RBF(**t)", "RBF(b't')", "RBF(1j)", "RBF(...)",
    "RBF(t) - RBF(t)", "RBF(t)[0]", "{'a': RBF(t)}", "RBF(t).matrix(3)", "not RBF(t)", "RBF(t) < 3", "import os",
    "RBF(t); RBF(s)", "RBF(open('x'))", "(yield)", "RBF", "2 * 3", "'RBF(t)'", "", "RBF(t", "RBF(t)\0", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("text", CODE)
def test_texts_run_no_code(text):
    with pytest.raises(rfgp.InvalidArgumentError, match=r"(?i)kernel|column"):
        k.parse(text)


HUGE = {
    "characters": "x" * 10_000_000,
    "brackets": "(" * 5000,
    "calls": "RBF(" * 2000,
    "functions": "lambda:" * 1400 + "1",
    "conditions": "a if b else " * 800 + "c",
    "chained calls": "f" + "(x)" * 3300,
    "names": "RBF(t)" + ".named('a')" * 900,
    "digits": "9" * 9000,
    "terms": "RBF(t)" + "+RBF(t)" * 1400,
    "products": "*".join(["(RBF(a)+RBF(b))"] * 600),
    "pairs": f"Additive(columns=({','.join(f'c{i}' for i in range(1500))}), order=2)",
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_texts_are_refused_at_once(name):
    start = time.process_time()
    refused(lambda: k.parse(HUGE[name]), rfgp.InvalidArgumentError, "")
    assert time.process_time() - start < 2


# --- kernels and approximations of one's own ----------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tent(k.Kernel):
    """max(0, 1 - |x - z| / width) of one column."""

    def covariance(self, a, b, values):
        return (1 - (a - b.mT).abs() / values["width"]).clamp_min(0)

    def hyperparameters(self, columns):
        one = columns.spread[0]
        return {"width": Hyperparameter(one, columns.scale[0], (0.01 * one, 100 * one))}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Wrong(Tent):
    """A kernel with an error: its matrix has one column."""

    def covariance(self, a, b, values):
        return (1 - (a - b[:1]).abs() / values["width"]).clamp_min(0)


@dataclasses.dataclass(frozen=True, repr=False)
class Points(Approximation):
    """Inducing points for kernels of one column."""

    inner: ClassVar[Any] = rfgp.InducingPoints(40)

    def unsupported_reason(self, data):
        return None if len(data.term.term.factors) == 1 else "it does not support products. Use Exact()."

    def cost(self, data):
        return self.inner.cost(data)

    def build(self, data, seed):
        return self.inner.build(data, seed)


X = {"t": np.random.default_rng(0).uniform(0, 6, 40), "p": np.random.default_rng(1).normal(size=40)}
TARGETS = np.sin(2 * X["t"]) + 0.3 * X["p"]


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
@pytest.mark.parametrize("other", [rfgp.InducingPoints(40), Points()], ids=lambda other: type(other).__name__)
def test_own_kernels_and_approximations(other):
    """A sum with an own term equals the dense posterior, also by an approximation, and can be fitted."""
    start = {"noise": 0.05, "own.width": 1.5, "own.outputscale": 1.0, "slope.variance": 0.5, "mean": 0.0}
    K = np.maximum(0, 1 - np.abs(difference(X["t"])) / 1.5) + 0.5 * np.outer(X["p"], X["p"])
    gain = np.linalg.solve(K + 0.05 * np.eye(40), K)
    for approximation, atol in ((rfgp.Exact(), 1e-7), (other, 1e-3)):
        both = Tent("t").named("own") + k.Linear("p", origin=0.0, name="slope")
        gp = rfgp.GP(both, approximation={"own": approximation}, standardize=False, seed=0).condition(X, TARGETS)
        gp.hyperparameters.set(**start)
        assert_allclose(gp.predict(X).mean, gain.T @ TARGETS, atol=atol)
        assert_allclose(gp.predict(X).variance, np.diag(K - K @ gain), atol=atol)
        before = gp.log_marginal_likelihood().item()
        assert gp.fit(X, TARGETS, max_iterations=5).fit_report.log_marginal_likelihood > before


# --- refusals -----------------------------------------------------------------------------------------


def conditioned(kernel, approximation):
    return rfgp.GP(kernel, approximation=approximation, seed=0).condition(X, TARGETS).log_marginal_likelihood()


INVALID, DATA = rfgp.InvalidArgumentError, rfgp.DataError
WRONG_ANGLES = (np.nan, np.inf, True, "lern", np.array([1.0, 2.0]), ("learn", "30"), (), 10**400)
REFUSED = [
    (lambda: k.RBF(lengthscale="long"), INVALID, "lengthscale must be a number"),
    (lambda: k.RBF(()), INVALID, "at least one"),
    (lambda: k.RBF(("a", "a")), INVALID, "distinct"),
    (lambda: k.RBF(("a", 1.5)), INVALID, "1.5"),
    (lambda: k.RBF(True), INVALID, "must be a name"),
    (lambda: A.named(""), INVALID, "not empty"),
    (lambda: k.Stationary(spectrum="no such"), INVALID, "no such"),
    (lambda: k.RationalQuadratic(alpha=-1.0), INVALID, "alpha"),
    (lambda: k.Sphere("lon"), INVALID, "two columns"),
    (lambda: k.Sphere(("Lat", "Lon")), INVALID, "Swap"),
    (lambda: k.Sphere(BOTH, k.Periodic("t", 1.0)), INVALID, "stationary"),
    (lambda: k.Sphere(BOTH, k.Matern("t")), INVALID, "without columns"),
    (lambda: k.Sphere(BOTH, k.RBF(lengthscale=(1.0, 2.0))), INVALID, "one number"),
    (lambda: k.Sphere(BOTH, k.Matern(rotation=30)), INVALID, "rotation"),
    (lambda: k.Sphere(BOTH, radius=0.0), INVALID, "radius"),
    (lambda: k.Sphere(BOTH, k.Stationary(spectrum="product-laplace")), INVALID, "isotropic"),
    (lambda: k.Sphere(BOTH, distance="great-circle"), INVALID, "not positive definite"),
    (lambda: k.RBF("t", rotation="learn"), INVALID, "two columns"),
    (lambda: k.Matern(("a", "b", "c"), rotation=30), INVALID, "two columns"),
    (lambda: k.RBF(rotation=30).matrix(np.zeros((2, 3))), INVALID, "two columns"),
    (lambda: k.RBF(BOTH, ard=False, rotation="learn"), INVALID, "two lengthscales"),
    (lambda: k.Stationary(BOTH, "product-laplace", rotation=30), INVALID, "isotropic"),
    *((lambda wrong=wrong: k.RBF(BOTH, rotation=wrong), INVALID, "degrees") for wrong in WRONG_ANGLES),
    (lambda: k.RBF(BOTH, lengthscale=1.0, rotation="learn").matrix(TABLE), INVALID, "rotation"),
    (lambda: k.Periodic("t", 0.0), INVALID, "period must be a positive"),
    (lambda: k.Periodic(("t", "p"), 1.0), INVALID, "one column"),
    (lambda: k.Harmonics("t", 1.0, num_harmonics=0), INVALID, "num_harmonics"),
    (lambda: k.Linear("t", variance=-1.0), INVALID, "variance"),
    (lambda: k.Polynomial(degree=0), INVALID, "degree"),
    (lambda: k.Categorical("store", correlation=1.0), INVALID, "below 1"),
    (lambda: k.Coregionalization(("a", "b")), INVALID, "one column"),
    (lambda: k.Additive(order=3), INVALID, "order"),
    (lambda: k.Additive(base=3), INVALID, "base must map"),
    (lambda: k.Additive(base=lambda key: 3, columns=("a", "b")).terms(), INVALID, "base must return"),
    (lambda: k.Centered("a", k.RBF("b")), INVALID, "one column"),
    (lambda: k.Centered("a", k.RBF("a"), points=()), INVALID, "points"),
    (lambda: (k.RBF("t", name="x") + k.Matern("p", name="x")).terms(), INVALID, "unique"),
    (lambda: 0 * A, INVALID, "positive and finite"),
    (lambda: k.RBF("t").matrix(TABLE), INVALID, "values of rbf(t).lengthscale"),
    (lambda: k.RBF("x", lengthscale=1.0).matrix(TABLE), DATA, "no column 'x'"),
    (lambda: k.RBF(BOTH, lengthscale=(1.0, 1.0, 1.0)).matrix(TABLE), INVALID, "lengthscale"),
    (lambda: k.Linear(BOTH, origin=(1.0, 2.0, 3.0)).matrix(TABLE), INVALID, "origin"),
    (lambda: k.Centered("t", k.RBF("t", lengthscale=1.0)).matrix(TABLE), INVALID, "points"),
    (lambda: conditioned(Wrong("t"), rfgp.Exact()), INVALID, "(40, 40), got shape (40, 1)"),
    (lambda: conditioned(Tent("t"), rfgp.RandomFeatures(8)), INVALID, "no spectral measure"),
    (lambda: conditioned(Tent("t"), rfgp.SparsePrecision()), INVALID, "sparse precision"),
    (lambda: conditioned(Tent("t") * k.RBF("p"), Points()), INVALID, "does not support products"),
    (lambda: k.Wiener(BOTH), INVALID, "one column"),
    (lambda: k.Wiener("t", variance=-1.0), INVALID, "variance must be a positive number"),
    (lambda: k.IntegratedWiener("t", origin=0.5).matrix(TABLE), DATA, "before the origin"),
    (
        lambda: conditioned(k.Wiener("t") * k.Matern("t"), rfgp.SparsePrecision()),
        INVALID,
        "products with a Wiener process",
    ),
    (lambda: k.Wiener("t", origin=float("nan")), INVALID, "origin must be a finite number"),
    (lambda: k.Wiener("t", origin="2020-01-01"), INVALID, "days from the first row"),
    (lambda: conditioned(k.Wiener("t", origin=1.0), rfgp.SparsePrecision()), DATA, "before the origin"),
    (lambda: conditioned(k.Wiener("t") + k.Wiener("p"), rfgp.SparsePrecision()), INVALID, "filtered along its column"),
    (lambda: k.parse("Rbf(t)"), INVALID, "Did you mean 'RBF'"),
    (lambda: k.parse("Mesh('/etc/passwd')"), INVALID, "Python"),
    (lambda: k.parse("RBF(t, 1, 2)"), INVALID, "too many"),
    (lambda: k.parse("RBF(t, lengthscale=price)"), INVALID, "quotes"),
    (lambda: k.parse("RBF(1.5)"), INVALID, "column of RBF"),
    (lambda: k.parse("Additive((a, b))"), INVALID, "columns="),
    (lambda: k.parse("Additive(base=Group)"), INVALID, "base"),
    (lambda: k.parse("True * RBF(t)"), INVALID, "variance"),
    (lambda: k.parse(f"RBF(t, lengthscale={'9' * 400})"), INVALID, "2**63"),
    (lambda: k.parse("RBF(3)", ("t", "u")), INVALID, "got 3"),
]


@pytest.mark.parametrize(("call", "error", "word"), REFUSED)
def test_bad_kernels_are_refused(call, error, word):
    refused(call, error, word)


# --- rotations ------------------------------------------------------------------------------------


def test_a_turned_map_has_the_same_fit_at_another_angle():
    rng = np.random.default_rng(2)
    places = rng.uniform(0, 10, (150, 2)) * [1.0, 0.5]
    kernel = k.Matern((0, 1), lengthscale=(4.0, 0.8), rotation=70).matrix(places).numpy()
    y = np.linalg.cholesky(kernel + 0.01 * np.eye(150)) @ rng.normal(size=150)
    turn = np.array([[COS, -SIN], [SIN, COS]])  # by 30 degrees
    fits = [rfgp.GP(k.Matern((0, 1), rotation="learn"), seed=0).fit(Z, y) for Z in (places, places @ turn.T)]
    length, other_length = (gp.hyperparameters["lengthscale"].detach() for gp in fits)
    angle, other_angle = (gp.hyperparameters["rotation"].item() for gp in fits)
    first, second = (gp.log_marginal_likelihood().item() for gp in fits)
    assert first == pytest.approx(second, abs=0.01)
    assert_allclose(length, other_length, rtol=0.02)
    assert other_angle - angle == pytest.approx(30, abs=0.5)
    assert angle == pytest.approx(70, abs=8)


def of_turned_rows(approximation, lengthscale, act):
    """Return the results of a rotated kernel, and those of the kernel along columns of turned rows."""
    rows = np.random.default_rng(0).normal(size=(300, 2))
    y, results = np.sin(rows @ [1.0, 2.0]), []
    for rotation, turn in ((30, np.eye(2)), (None, np.array([[COS, -SIN], [SIN, COS]]))):
        kernel = k.RBF((0, 1), lengthscale=lengthscale, rotation=rotation)
        start = {"outputscale": 1.0, "noise": 0.1, "mean": 0.0}
        gp = rfgp.GP(kernel, approximation=approximation, start=start, standardize=False, seed=0)
        results.append(act(gp, rows @ turn, y))
    return results


@pytest.mark.parametrize(
    "approximation",
    [rfgp.RandomFeatures(16, coupling="iid"), rfgp.InducingPoints(12, method="sor"), rfgp.Vecchia(3, seed=0)],
    ids=lambda one: type(one).__name__,
)
def test_draws_points_and_neighbors_are_those_of_turned_rows(approximation):
    found, expected = of_turned_rows(
        approximation, (2.0, 0.3), lambda gp, X, y: gp.condition(X, y).predict(X[:9] + 0.01 * X[9:18]).mean
    )
    assert_allclose(found, expected, atol=1e-6)


def test_frequencies_of_the_columns_give_the_features():
    """Searches of learned frequencies use them in place of the features."""
    rows = np.random.default_rng(0).normal(size=(20, 2))
    kernel = k.RBF((0, 1), lengthscale=(2.0, 0.3), rotation=30)
    gp = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(5, coupling="iid"), start={"noise": 0.1}, seed=0)
    block = gp.condition(rows, rows[:, 0]).state.prior().weights[0]
    frequencies, columns, amplitudes = block.fourier(*block.parameters)
    angles = torch.tensor(rows)[:, columns] @ frequencies.mT
    expected = torch.cat([amplitudes * angles.cos(), amplitudes * angles.sin()], 1)
    assert_allclose(block.features(torch.tensor(rows), *block.parameters).detach(), expected.detach(), atol=1e-12)


@pytest.mark.parametrize("rotation", [45, 120])
def test_a_lattice_holds_a_long_narrow_kernel_across_it(rotation):
    """Its periods and bandwidths are those of the ellipse."""
    rows = np.random.default_rng(0).uniform(size=(50, 2))
    kernel = k.RBF((0, 1), lengthscale=(1.0, 0.15), rotation=rotation)
    lattice, start = rfgp.EquispacedFourier(tolerance=1e-6), {"outputscale": 1.0, "noise": 1.0}
    gp = rfgp.GP(kernel, approximation=lattice, start=start, seed=0).condition(rows, rows[:, 0])
    assert_allclose(gp.prior_covariance(rows).detach(), kernel.matrix(rows), atol=2e-4)


@pytest.mark.slow
def test_functions_outside_a_lattice_have_the_covariance_of_the_kernel():
    rows = np.random.default_rng(0).uniform(size=(50, 2))
    kernel = k.RBF((0, 1), lengthscale=(1.0, 0.2), rotation=45)
    lattice, start = rfgp.EquispacedFourier(max_features=300), {"outputscale": 1.0, "noise": 1.0}
    gp = rfgp.GP(kernel, approximation=lattice, start=start, seed=0).condition(rows, rows[:, 0])
    outside = np.array([[1.3, 1.3], [1.5, 1.5], [1.4, 1.2]])
    draws = gp.sample_functions(1500, seed=0)(outside)
    assert_allclose(np.cov(draws.T), gp.predict(outside).covariance, atol=0.15)
