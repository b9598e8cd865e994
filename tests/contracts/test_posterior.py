"""What every approximation and every solver must return, by public names, compared with dense algebra in numpy.

A case is a sum of terms with their approximations. The prior of a term is a formula, or the prior covariance of a
model of that term alone. A new approximation or solver needs a line in CASES.
"""

import copy
import functools
import os
import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from checks import assert_mean
from dense import DenseGP, poisson
from refusals import refused
from scipy import special

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.approximations import Approximation
from rfgp.solvers import Inference, Posterior
from rfgp.solvers.iterative.operator import Draws

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")

# --- rows -----------------------------------------------------------------------------------------

N, M = 36, 6
NOISE, MEAN = 0.2, 0.3


def ring(size=20):
    return graphs.Graph.from_edges([(f"n{i}", f"n{(i + 1) % size}") for i in range(size)])


def rows(n, seed):
    rng = np.random.default_rng(seed)
    return {
        "h": rng.uniform(0, 24, n),
        "p": rng.normal(2, 1, n),
        "s": rng.choice(list("abcd"), n),
        "node": np.array([f"n{i}" for i in rng.integers(0, 20, n)]),
        "place": np.array([f"n{i}" for i in np.arange(n) + 20]),
        "road": rng.integers(0, 3, n),
        "fraction": rng.uniform(0, 1, n),
    }


def taken(table, part):
    return {key: values[part] for key, values in table.items()}


def joined(first, second):
    return {key: np.concatenate([first[key], second[key]]) for key in first}


def numbers(table):
    return np.stack([table["h"], table["p"]], axis=1)


X = taken(rows(N, 1), np.r_[0:7, 3, 8:N])  # row 7 is a copy of row 3
X["place"] = np.array([f"n{i}" for i in np.random.default_rng(7).permutation(50)[:N]])  # most nodes of a ring
NEW = joined(taken(rows(M, 2), [0, 1, 2, 2]), taken(X, [5, 9]))  # a point twice, and two rows
WHOLE = joined(X, NEW)
Y = np.sin(X["h"] / 3) + 0.3 * X["p"] + 0.2 * (X["s"] == "a") + 0.1 * np.random.default_rng(3).normal(size=N)
COUNTS = np.random.default_rng(4).poisson(np.exp(0.5 + 0.8 * np.sin(X["h"] / 3))).astype(float)
UNEVEN = {
    "sample_weight": np.random.default_rng(5).integers(1, 3, N).astype(float),
    "noise": np.random.default_rng(6).uniform(0, 0.3, N),
}
KINDS = {"plain": {}, "uneven": UNEVEN, "weighted": {"sample_weight": UNEVEN["sample_weight"]}}

# --- terms ----------------------------------------------------------------------------------------

LINES = [[(0.0, 0.0), (1.0, 0.0), (2.0, 0.3)], [(1.0, 0.0), (1.0, 1.0)], [(1.0, 1.0), (2.0, 0.3)]]
ROADS = graphs.RoadNetwork.from_lines(LINES, metric="euclidean")
SMOOTH, FIELD = k.Matern("h", nu=1.5, lengthscale=5.0), k.Nodes(ring(), graphs.kernels.Matern(nu=2, kappa=1.5))
TERMS = {
    "a": k.RBF(("h", "p"), lengthscale=(4.0, 1.5), name="a"),
    "m": k.Matern(("h", "p"), nu=1.5, lengthscale=(4.0, 1.5), name="m"),
    "c": SMOOTH.named("c"),
    "o": k.Matern("h", nu=0.5, lengthscale=5.0, name="o"),
    "t": k.Matern("h", nu=2.5, lengthscale=5.0, name="t"),
    "w": k.RBF("h", lengthscale=5.0, name="w"),
    "z": k.RBF("p", lengthscale=2.0, name="z"),
    "g": k.Group("s", name="g"),
    "l": k.Linear("p", origin=0.0, name="l"),
    "v": (k.Linear("p", origin=0.0) * SMOOTH * FIELD).named("v"),
    "f": FIELD.named("f"),
    "q": k.Nodes(ring(), graphs.kernels.Matern(nu=1.5, kappa=1.5), name="q"),
    "d": k.Nodes(ring(), "diffusion", name="d"),
    "r": k.Roads(ROADS, lengthscale=0.8, name="r"),
    "r2": k.Roads(ROADS, 2, lengthscale=0.9, name="r2"),
    "rs": (k.Roads(ROADS, lengthscale=0.8) * k.Group("s")).named("rs"),
    "b": k.Wiener("h", origin=-1.0, name="b"),
    "i": k.IntegratedWiener("h", origin=-2.0, name="i"),
    "s": (k.Harmonics("h", 9.0, num_harmonics=2, lengthscale=1.3) * k.Matern("h", lengthscale=30.0)).named("s"),
    "u": k.Matern(("h", "p"), nu=1.5, lengthscale=(4.0, 1.5), rotation=30, name="u"),
    "n": k.RBF(("h", "p"), lengthscale=(4.0, 8.0), rotation=-50, name="n"),
    "e": k.Nodes(ring(50), graphs.kernels.Diffusion(1.5), column="place", name="e"),
}
SCALE = {name: 0.5 + 0.05 * i for i, name in enumerate(TERMS)} | {"l": 0.15, "v": 0.15, "b": 0.04, "i": 2e-4}


def distance(names, lengthscales):
    return np.sqrt(
        sum(np.subtract.outer(WHOLE[n], WHOLE[n]) ** 2 / s**2 for n, s in zip(names, lengthscales, strict=True))
    )


def turned(degrees, lengthscales):
    """Distances in lengthscales along axes at an angle to the columns."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    axes = cos * WHOLE["h"] + sin * WHOLE["p"], cos * WHOLE["p"] - sin * WHOLE["h"]
    return np.hypot(*(np.subtract.outer(axis, axis) / s for axis, s in zip(axes, lengthscales, strict=True)))


def matern(r, nu):
    r = np.sqrt(2 * nu) * r
    return np.exp(-r) * {0.5: 1.0, 1.5: 1 + r, 2.5: 1 + r + r**2 / 3}[nu]


R, H, SLOPES = distance("hp", (4.0, 1.5)), distance("h", (5.0,)), np.multiply.outer(WHOLE["p"], WHOLE["p"])
FIRST, LAST = (function.outer(WHOLE["h"], WHOLE["h"]) + 2 for function in (np.minimum, np.maximum))
SHARES = [special.ive(0, 1.3**-2), *(2 * special.ive(j, 1.3**-2) for j in (1, 2))]
WAVES = sum(share * np.cos(2 * np.pi * j * 5 * H / 9) for j, share in enumerate(SHARES))
FORMULAS = {
    "a": np.exp(-(R**2) / 2),
    "m": matern(R, 1.5),
    "c": matern(H, 1.5),
    "o": matern(H, 0.5),
    "t": matern(H, 2.5),
    "w": np.exp(-(H**2) / 2),
    "z": np.exp(-(distance("p", (2.0,)) ** 2) / 2),
    "g": np.equal.outer(WHOLE["s"], WHOLE["s"]).astype(float),
    "l": SLOPES,
    "b": np.minimum.outer(WHOLE["h"], WHOLE["h"]) + 1,
    "i": FIRST**2 * LAST / 2 - FIRST**3 / 6,
    "s": WAVES * matern(5 * H / 30, 1.5),
    "v": SLOPES * matern(H, 1.5) * FIELD.matrix(WHOLE).numpy(),
    "u": matern(turned(30, (4.0, 1.5)), 1.5),
    "n": np.exp(-(turned(-50, (4.0, 8.0)) ** 2) / 2),
}
"""The kernels at all rows and points, at unit scale."""
FORMULAS = {name: SCALE[name] * matrix for name, matrix in FORMULAS.items()}

# --- cases ----------------------------------------------------------------------------------------


def near(condition_on, count=200, **options):
    return rfgp.Vecchia(count, condition_on=condition_on, seed=0, **options)


def points(method=None, residual=None):
    return rfgp.InducingPoints(8, method=method, residual=residual, seed=0)


FEW, WIDE = rfgp.RandomFeatures(5, seed=1), rfgp.RandomFeatures(40, seed=1, coupling="iid")
SPARSE, EXACT = rfgp.SparsePrecision(), rfgp.Exact()
LATTICE, COARSE = rfgp.EquispacedFourier(tolerance=1e-8), rfgp.EquispacedFourier(max_features=9)
WALKS = rfgp.RandomWalks(4, exact_hops=0, seed=0)
CG = {"max_dense": 0}
LATENT_CG = {"max_elimination_flops": 0}
BLOCKED = {"max_whitened": 0, "whitened_block": 200}


@dataclass(frozen=True)
class Case:
    """Terms with their approximations.

    Attributes:
        approximation: One by term, or one of all.
        terms: The names of the terms, if the approximation is of all.
        limits: Of `rfgp.testing.limits`.
        digits: The largest error, of the largest number.
        functions: Whether functions can be drawn.
        estimated: Whether likelihoods are estimates.
        divided: Whether posteriors of terms are known.
    """

    approximation: dict | Approximation
    terms: tuple = ()
    limits: dict = field(default_factory=dict)
    digits: float = 1e-7
    functions: bool = False
    estimated: bool = False
    divided: bool = True

    @property
    def names(self):
        return self.terms or tuple(self.approximation)

    @property
    def kernel(self):
        return functools.reduce(lambda a, b: a + b, (TERMS[name] for name in self.names))

    def of(self, name):
        """Return the approximation of a term."""
        return self.approximation[name] if isinstance(self.approximation, dict) else self.approximation

    def is_few(self, name):
        """Return whether a term is conditioned on few neighbors."""
        return isinstance(self.of(name), rfgp.Vecchia) and self.of(name).num_neighbors < N

    @property
    def approximations(self):
        return [self.of(name) for name in self.names]

    @property
    def has_points(self):
        return any(isinstance(one, rfgp.InducingPoints) for one in self.approximations)

    @property
    def has_residual(self):
        return any(getattr(one, "method", None) in ("fitc", "vfe") for one in self.approximations)


CASES = {
    "features": Case({"a": FEW, "l": EXACT}, functions=True),
    "laplace features": Case({"a": rfgp.RandomFeatures(6, kind="laplace", seed=1)}, functions=True),
    "features wide": Case({"a": WIDE, "l": EXACT}, functions=True),
    "points sor": Case({"a": points("sor"), "l": EXACT}, functions=True),
    "points fitc": Case({"a": points("fitc"), "l": EXACT}),
    "points vfe": Case({"a": points("vfe"), "l": EXACT}),
    "points fitc and vfe": Case({"a": points("fitc"), "m": points("vfe"), "c": FEW}),
    "lattice": Case({"w": LATTICE}, digits=1e-4, functions=True),
    "lattices": Case({"w": LATTICE, "z": LATTICE, "g": EXACT, "l": EXACT}, digits=1e-4, functions=True),
    "coarse lattice": Case({"c": COARSE}, functions=True),
    "exact": Case(EXACT, ("a", "m", "l", "g", "v")),
    "exact and features": Case({"a": FEW, "m": EXACT, "d": WALKS}),
    "chain": Case({"c": SPARSE}),
    "rough chain": Case({"o": SPARSE}),
    "smooth chain": Case({"t": SPARSE}),
    "slopes and groups": Case({"v": SPARSE, "g": SPARSE}),
    "exact chains": Case(EXACT, ("b", "i", "s")),
    "filter": Case(SPARSE, ("c", "o", "b", "s")),
    "filter and weights": Case({"i": SPARSE, "t": SPARSE, "s": SPARSE, "l": EXACT, "g": EXACT, "a": FEW}),
    "filter and fitc": Case({"b": SPARSE, "a": points("fitc")}),
    "filter and vfe": Case({"o": SPARSE, "b": SPARSE, "a": points("vfe")}),
    "nodes": Case({"f": SPARSE, "g": SPARSE, "a": FEW, "l": EXACT}, functions=True),
    "nodes rational": Case({"q": rfgp.RationalPrecision(3)}, functions=True),
    "nodes and fitc": Case({"f": SPARSE, "a": points("fitc")}),
    "nodes, exact and vfe": Case({"f": SPARSE, "m": EXACT, "a": points("vfe")}),
    "roads": Case({"r": SPARSE, "g": SPARSE, "a": FEW}),
    "smooth roads": Case({"r2": SPARSE, "l": EXACT}, digits=1e-5),
    "roads of groups": Case({"rs": SPARSE, "l": EXACT}),
    "walks": Case({"d": WALKS, "l": EXACT}),
    "walks by products": Case({"d": WALKS, "l": EXACT}, limits=CG, estimated=True, functions=True, digits=1e-6),
    "walks and nodes": Case({"d": WALKS, "a": FEW, "f": SPARSE}, estimated=True, functions=True, digits=1e-6),
    "walks and fitc": Case({"d": WALKS, "a": points("fitc")}, limits=CG, estimated=True, digits=1e-6),
    "walks alone": Case({"d": WALKS}, functions=True),
    "nodes exact": Case({"d": EXACT}, functions=True),
    "most nodes": Case({"e": EXACT}, functions=True),
    "chebyshev": Case({"d": rfgp.Chebyshev(3)}, functions=True),
    "taylor": Case({"d": rfgp.Taylor(3)}, functions=True),
    "spectrum": Case({"d": rfgp.TruncatedSpectrum(6), "l": EXACT}, functions=True),
    "responses": Case({"m": near("responses")}),
    "responses and features": Case({"m": near("responses"), "a": FEW}),
    "responses and nodes": Case({"m": near("responses"), "f": SPARSE, "g": SPARSE, "l": EXACT}),
    "responses and exact": Case({"m": near("responses"), "a": EXACT, "c": points("fitc")}),
    "responses of a sum": Case(near("responses"), ("m", "g")),
    "responses of blocks": Case({"m": near("responses", block_size=5), "a": FEW}),
    "responses in blocks": Case({"m": near("responses"), "a": WIDE}, limits=BLOCKED),
    "responses and fitc in blocks": Case({"m": near("responses"), "a": points("fitc")}, limits=BLOCKED),
    "residual": Case({"m": points(residual=near("responses")), "l": EXACT}),
    "residual in blocks": Case({"m": points(residual=near("responses")), "l": EXACT}, limits=BLOCKED),
    "few responses": Case({"m": near("responses", 4, block_size=1)}),
    "few responses and others": Case({"m": near("responses", 4, block_size=1), "a": FEW, "g": SPARSE}),
    "latent": Case({"m": near("latent"), "g": SPARSE}),
    "latent of a sum": Case(near("latent"), ("m", "g"), digits=1e-5, divided=False),
    "latent and features": Case({"m": near("latent"), "a": FEW, "g": SPARSE, "l": EXACT}),
    "latent residual": Case({"m": points(residual=near("latent")), "a": FEW, "g": SPARSE}, digits=1e-6),
    "latent by products": Case({"m": near("latent"), "g": SPARSE, "a": FEW}, limits=LATENT_CG, estimated=True),
    "latent residual by products": Case(
        {"m": points(residual=near("latent")), "a": FEW}, limits=LATENT_CG, estimated=True
    ),
    "latent of a sum by products": Case(
        near("latent"), ("m", "g"), limits=LATENT_CG, digits=1e-5, estimated=True, divided=False
    ),
    "few latent": Case({"m": near("latent", 4), "a": FEW}),
    "rotated, exact": Case(EXACT, ("u", "n", "l")),
    "rotated, features": Case({"u": FEW, "l": EXACT}, functions=True),
    "rotated, points": Case({"u": points("fitc"), "n": points("sor")}),
    "rotated, lattice": Case({"n": LATTICE}, digits=1e-4, functions=True),
    "rotated, responses": Case({"u": near("responses"), "a": FEW}),
    "rotated, latent": Case({"u": near("latent"), "g": SPARSE}),
    "rotated, residual": Case({"u": points(residual=near("responses")), "l": EXACT}),
}
ESTIMATED = [name for name, case in CASES.items() if case.estimated]
START = {"noise": NOISE, "mean": MEAN}


def start_of(names):
    return {
        f"{name}.{'linear.' * (name == 'v')}{'variance' if name in 'lvbi' else 'outputscale'}": SCALE[name]
        for name in names
    }


def model(case, likelihood="gaussian", start=START, **options):
    start = {**start_of(case.names), **start}
    return rfgp.GP(case.kernel, likelihood, case.approximation, start=start, seed=0, **options)


@functools.cache
def conditioned(name, kind="plain"):
    """Return a model of the rows that no test changes."""
    return model(CASES[name]).condition(X, Y, **KINDS[kind])


@functools.cache
def prior_alone(name, approximation, kind, count):
    """Return the prior covariance of a model of one term alone, given the first rows."""
    start = {**start_of([name]), **START}
    gp = rfgp.GP(TERMS[name], approximation=approximation, start=start, seed=0)
    given = {key: values[:count] for key, values in KINDS[kind].items()}
    gp.condition(taken(X, slice(0, count)), Y[:count], **given)
    return gp.prior_covariance(WHOLE).detach().numpy()


def noise_of(kind):
    return NOISE + KINDS[kind].get("noise", np.zeros(N))


def prior_of(case, name, kind, count, joint):
    """Return the covariance of a term that features or neighbors represent, and what is missed at each point."""
    approximation = case.of(name)
    if isinstance(approximation, rfgp.InducingPoints) and approximation.residual is None:
        own = prior_alone(name, points("sor"), kind, count)
        return own, FORMULAS[name] - own
    if approximation is COARSE:
        own = prior_alone(name, COARSE, kind, count)
        missed = own[0, 0] - own[3, 7]  # of a row and its copy
        return own - missed * np.eye(N + M), missed * np.eye(N + M)
    if case.is_few(name):
        noise = noise_of(kind) / KINDS[kind].get("sample_weight", 1.0)
        return by_neighbors(case, noise if approximation.condition_on == "responses" else np.zeros(N), joint), None
    if name in FORMULAS and not isinstance(approximation, rfgp.RandomFeatures):
        return FORMULAS[name], None
    return prior_alone(name, EXACT if approximation is SPARSE else approximation, kind, count), None


def by_neighbors(case, noise, joint):
    """Return the covariance of the Matern term given few neighbors, by its definition.

    Each row is conditioned on the nearest rows before it in a random order, and each point on twice as many rows. In
    a joint distribution, points may be neighbors of later points. Copies of rows without noise are one row.
    """
    kernel, rows = FORMULAS["m"], np.arange(N) if noise.any() else np.delete(np.arange(N), 7)
    order = rows[conditioned("few responses").state.prior().neighbors.order(len(rows))]
    noise, order = np.r_[noise, np.zeros(M)], [*order, *range(N, N + M)]
    weights, variances = np.zeros((N + M, N + M)), np.ones(N + M)
    for place, i in enumerate(order):
        before = np.array(order[: place if i < N or joint else len(rows)], dtype=int)
        nearest = before[np.argsort(R[i, before], kind="stable")[: 4 if i < N else 8]]
        matrix = kernel[np.ix_(nearest, nearest)] + np.diag(noise[nearest] + 1e-12)
        weights[i, nearest] = np.linalg.solve(matrix, kernel[nearest, i])
        variances[i] = kernel[i, i] + noise[i] - weights[i] @ kernel[:, i]
    root = np.linalg.inv(np.eye(N + M) - weights) * np.sqrt(variances.clip(0))
    root[7] = root[7] if noise.any() else root[3]
    return root @ root.T - np.diag(noise)


@functools.cache
def dense(name, kind="plain", rows=N, joint=False):
    """Return the dense model of a case, whose features are chosen for the first rows."""
    case, given = CASES[name], KINDS[kind]
    noise, missed, priors = noise_of(kind), {}, {}
    for term in case.names:
        priors[term], rest = prior_of(case, term, kind, rows, joint)
        if getattr(case.of(term), "method", None) == "vfe":
            missed[term] = rest
        elif rest is not None and getattr(case.of(term), "method", None) != "sor":
            noise = noise + np.diag(rest)[:N]
            missed[term] = np.diag(np.r_[np.zeros(N), np.diag(rest)[N:]])
    return DenseGP(priors, Y, noise, MEAN, given.get("sample_weight", 1.0), missed)


def close(found, expected, digits):
    found = found.detach().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)
    np.testing.assert_allclose(found, expected, rtol=0, atol=digits * max(1.0, np.abs(expected).max()))


@pytest.fixture
def case(request, limits):
    """Enter the limits of a case, and return it."""
    found = CASES[request.param]
    limits(**found.limits)
    return found


def name_of(case):
    return next(name for name, one in CASES.items() if one is case)


of_all = pytest.mark.parametrize("case", CASES, indirect=True)
of_kinds = pytest.mark.parametrize("kind", ["plain", "uneven"])

# --- the registry ---------------------------------------------------------------------------------


def descendants(role):
    own = set(role.__subclasses__())
    return own.union(*map(descendants, own))


def test_every_approximation_and_solver_has_a_case():
    used = {type(one) for case in CASES.values() for one in case.approximations}
    concrete = {
        one for one in descendants(Approximation) if one.__module__.startswith("rfgp.") and hasattr(rfgp, one.__name__)
    }
    assert concrete - used == set()
    solvers, posteriors = set(), set()
    for name, case in CASES.items():
        with rfgp.testing.limits(**case.limits):
            state = conditioned(name).state
            frozen = state.replace(hyperparameters=state.hyperparameters.detached())
            solvers.add(type(frozen.infer(state.rows)))
            posteriors.add(type(state.posterior))
    for role, found in ((Inference, solvers), (Posterior, posteriors)):
        all_of_role = {one for one in descendants(role) if one.__module__.startswith("rfgp.solvers")}
        assert {one.__name__ for one in all_of_role - found} <= {"Solver", "TermwisePosterior"}


# --- priors of features ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, 40])
def test_random_features_have_the_frequencies_of_the_draw(count):
    """The kernel is a weighted sum of cosines at frequencies over lengthscales."""
    coupling = rfgp.couplings.Energy(weighted=True)
    gp = rfgp.SparseSpectrumGP(num_frequencies=count, coupling=coupling, lengthscale=[4.0, 1.5], seed=0)
    gp.condition(numbers(X), Y).hyperparameters.set(outputscale=0.7)
    frequencies = gp.feature_map.frequencies
    angles = (numbers(WHOLE) / [4.0, 1.5]) @ frequencies.dense().numpy().T
    expected = np.cos(angles[:, None] - angles) @ frequencies.weights.numpy()
    close(gp.prior_covariance(numbers(WHOLE)), 0.7 * expected / count, 1e-8)


def test_inducing_points_are_a_projection_of_the_process():
    own = prior_alone("a", points("sor"), "plain", N)
    assert np.linalg.matrix_rank(own, tol=1e-6) == 8
    assert np.linalg.eigvalsh(FORMULAS["a"] - own).min() > -1e-8
    close(prior_alone("a", rfgp.InducingPoints(50, method="sor"), "plain", N)[:N, :N], FORMULAS["a"][:N, :N], 1e-6)


# --- values ---------------------------------------------------------------------------------------


@of_kinds
@of_all
def test_likelihood(case, kind):
    gp, expected = copy.deepcopy(conditioned(name_of(case), kind)), dense(name_of(case), kind).log_marginal_likelihood()
    error = 0.0
    if case.estimated:
        error = gp.state.infer(gp.state.rows).likelihood_error
        assert error < 2
    for needed in (True, False):
        gp.hyperparameters.requires_grad_(needed)
        found = gp.log_marginal_likelihood().item()
        assert abs(found - expected) < 6 * error + case.digits * abs(expected)


@of_kinds
@of_all
def test_predictions(case, kind):
    gp, expected = conditioned(name_of(case), kind), dense(name_of(case), kind)
    found, covariance = gp.predict(NEW), expected.covariance()
    close(found.mean, expected.mean_at(), case.digits)
    close(found.variance, np.diag(covariance), case.digits)
    if any(map(case.is_few, case.names)):  # the correlations of the joint distribution, the variances of points
        joint = dense(name_of(case), kind, joint=True).covariance()
        scale = np.sqrt(np.diag(covariance) / np.diag(joint))
        covariance = scale[:, None] * joint * scale
    close(found.covariance, covariance, case.digits)
    one = gp.predict(taken(NEW, slice(1, 2)))
    close(one.mean, expected.mean_at()[1:2], case.digits)
    close(one.covariance, covariance[1:2, 1:2], case.digits)
    close(found.observed().variance, np.diag(covariance) + NOISE, case.digits)
    close(found.observed().covariance, covariance + NOISE * np.eye(M), case.digits)


@of_kinds
@of_all
def test_terms(case, kind):
    found, expected = conditioned(name_of(case), kind).predict(NEW), dense(name_of(case), kind)
    if not case.divided:
        close(found.of(*case.names).mean, expected.mean_at(case.names), case.digits)
        close(found.of(*case.names).variance, np.diag(expected.covariance(case.names)), case.digits)
        refused(lambda: found.cross_covariance(*case.names[:2]), rfgp.InvalidArgumentError, "not divided")
        return
    for name in case.names:
        close(found.terms[name].mean, expected.mean_at([name]), case.digits)
        close(found.terms[name].variance, np.diag(expected.covariance([name])), case.digits)
        if any(map(case.is_few, case.names)):
            continue
        close(found.terms[name].covariance, expected.covariance([name]), case.digits)
        for others in ([other] for other in case.names if other != name):
            close(found.cross_covariance(name, others), expected.covariance([name], others), case.digits)
        whole = list(case.names)
        close(found.cross_covariance(name, whole), expected.covariance([name], whole), case.digits)
    pair = list(case.names[:2])
    close(found.of(*pair).mean, expected.mean_at(pair), case.digits)
    close(found.of(*pair).variance, np.diag(expected.covariance(pair)), case.digits)


@of_kinds
@of_all
def test_leave_one_out(case, kind):
    found, (mean, variance) = (
        conditioned(name_of(case), kind).leave_one_out(),
        dense(name_of(case), kind).leave_one_out(),
    )
    close(found.mean, mean, case.digits)
    close(found.variance, variance, case.digits)


# --- gradients ------------------------------------------------------------------------------------


def slopes(gp, value=rfgp.GP.log_marginal_likelihood, of=rfgp.GP.log_marginal_likelihood):
    """Return the gradient of a function in all hyperparameters, and central differences of another one."""
    parameters = list(gp.hyperparameters.parameters())
    found = torch.autograd.grad(of(gp), parameters, materialize_grads=True, allow_unused=True)
    expected = []
    for raw in parameters:
        for place in range(raw.numel()):
            ends = []
            for step in (1e-4, -1e-4):
                with torch.no_grad():
                    raw.view(-1)[place] += step
                    ends.append(float(value(gp)))
                    raw.view(-1)[place] -= step
            expected.append((ends[0] - ends[1]) / 2e-4)
    return np.concatenate([one.reshape(-1).numpy() for one in found]), np.array(expected)


def dense_value(gp):
    """Return the likelihood by dense algebra of the prior covariance."""
    prior, values = gp.prior_covariance(X).detach().numpy(), gp.hyperparameters
    own = KINDS["uneven"] if gp.state.rows.weight is not None else {}
    noise = values.noise.item() + own.get("noise", np.zeros(N))
    return DenseGP(
        {"all": prior}, Y, noise, values.mean.item(), own.get("sample_weight", 1.0)
    ).log_marginal_likelihood()


EQUAL_ROWS = ["features", "lattices", "exact", "most nodes", "slopes and groups", "nodes", "responses", "latent"]
EQUAL_ROWS += ["walks by products"]
"""A case of each solver, for rows without weights and noise of their own."""


@pytest.mark.parametrize(
    ("case", "kind"),
    [*((name, "uneven") for name in CASES), *((name, "plain") for name in EQUAL_ROWS)],
    indirect=["case"],
)
def test_gradient_matches_differences(case, kind, monkeypatch):
    """Draws of estimates are replaced by a root of C^-1, so that gradients have no error."""
    gp = copy.deepcopy(conditioned(name_of(case), kind))
    value = rfgp.GP.log_marginal_likelihood
    if case.estimated:
        if case.has_residual:
            pytest.skip("the prior covariance of residuals is not divided")
        inverse = dense(name_of(case), kind).inverse * float(gp.state.scaling.targets.scale) ** 2
        root = N**0.5 * np.linalg.cholesky(inverse)
        monkeypatch.setattr(Draws, "normalized", torch.from_numpy(root))
        value = dense_value
    found, expected = slopes(gp, value)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4 if case.digits < 1e-5 else 0.05)


# --- other data -----------------------------------------------------------------------------------


@of_all
def test_two_outputs(case):
    gp = model(case).condition(X, np.stack([Y, Y[::-1]], axis=1), sample_weight=UNEVEN["sample_weight"])
    found, left, value = gp.predict(NEW), gp.leave_one_out(), 0.0
    noises, means = (getattr(gp.hyperparameters, name).detach().numpy() for name in ("noise", "mean"))
    for j, targets in enumerate((Y, Y[::-1])):
        own, scale = dense(name_of(case), "weighted"), noises[j] / NOISE
        priors, missed = ({name: scale * part for name, part in parts.items()} for parts in (own.priors, own.missed))
        expected = DenseGP(priors, targets, scale * own.noise, means[j], own.weight, missed)
        close(found.mean[:, j], expected.mean_at(), case.digits)
        close(found.variance[:, j], np.diag(expected.covariance()), case.digits)
        close(found.observed().variance[:, j], np.diag(expected.covariance()) + noises[j], case.digits)
        close(left.mean[:, j], expected.leave_one_out()[0], case.digits)
        value += expected.log_marginal_likelihood()
    if not case.estimated:
        close(gp.log_marginal_likelihood(), value, case.digits)


@of_all
def test_update_is_condition_on_all_rows(case):
    name, first, rest = name_of(case), slice(0, 24), slice(24, N)
    parts = [{key: values[part] for key, values in UNEVEN.items()} for part in (first, rest)]
    gp = model(case).condition(taken(X, first), Y[first], **parts[0])
    before = gp.predict(NEW)
    assert np.isfinite(before.mean).all()
    gp.update(taken(X, rest), Y[rest], **parts[1])
    expected, found = dense(name, "uneven", rows=24), gp.predict(NEW)
    close(found.mean, expected.mean_at(), case.digits)
    close(found.variance, np.diag(expected.covariance()), case.digits)
    if not case.estimated:
        close(gp.log_marginal_likelihood(), expected.log_marginal_likelihood(), case.digits)
    if LATTICE in case.approximations or COARSE in case.approximations:
        gp.forget(taken(X, rest), Y[rest], **parts[1])
        digits = max(1e-8, 0.01 * case.digits)  # of sums from which others were subtracted
        close(gp.predict(NEW).mean, before.mean, digits)
        close(gp.predict(NEW).variance, before.variance, digits)
    else:
        refused(lambda: gp.forget(taken(X, rest), Y[rest], **parts[1]), rfgp.InvalidArgumentError, "forget")


@pytest.mark.parametrize("case", ["exact", "walks by products"], indirect=True)
def test_targets_equal_to_the_mean_leave_it(case):
    close(model(case).condition(X, np.full(N, MEAN)).predict(NEW).mean, np.full(M, MEAN), 1e-12)


@of_all
def test_float32_is_close_to_float64(case):
    found, expected = model(case, dtype=torch.float32).condition(X, Y).predict(NEW), dense(name_of(case))
    assert found.mean.dtype == np.float32
    close(found.mean, expected.mean_at(), 2e-3)
    close(found.variance, np.diag(expected.covariance()), 2e-3)


# --- counts ---------------------------------------------------------------------------------------

REFUSE_COUNTS = [name for name, case in CASES.items() if any("responses" in repr(one) for one in case.approximations)]


def of_counts(case, inference):
    return model(case, "poisson", start={"mean": MEAN}, inference=inference).condition(X, COUNTS)


@pytest.mark.parametrize("case", [name for name in CASES if name not in REFUSE_COUNTS], indirect=True)
@pytest.mark.parametrize("inference", ["laplace", pytest.param("variational", marks=pytest.mark.slow)])
def test_counts_match_dense_newton(case, inference):
    """The searches for sites use solvers at other targets and noise, and signed outputs."""
    if case.has_residual or COARSE in case.approximations:
        pytest.skip("the residual is noise of normal observations")
    if case.estimated and inference == "variational":
        refused(lambda: of_counts(case, inference).predict(NEW), rfgp.InvalidArgumentError, "laplace")
        return
    gp = of_counts(case, inference)
    sites, value = poisson(dense(name_of(case)).priors, COUNTS, MEAN, variational=inference == "variational")
    found = gp.predict(NEW)
    close(found.mean, sites.mean_at(), 1e-4)
    close(found.variance, np.diag(sites.covariance()), 1e-3)
    close(gp.log_marginal_likelihood(), value, 0.03 if case.estimated else 1e-5)
    if not case.estimated:
        found, expected = slopes(gp)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3 if case.digits < 1e-5 else 0.05)


# --- the role of a solver -------------------------------------------------------------------------


@of_all
def test_solver_at_other_data(case):
    """Other targets, noise and signs of the same inputs give the answers of a solver of their own."""
    state = conditioned(name_of(case)).state
    state = state.replace(hyperparameters=state.hyperparameters.leaves(state.hyperparameters.space.free(())))
    solver, unit = state.infer(state.rows), float(state.scaling.targets.scale)
    if not hasattr(solver, "with_data") or "few responses" in name_of(case):
        pytest.skip("reads rows in passes, or has another prior at other noise")
    before, rng = solver.log_marginal_likelihood().item(), np.random.default_rng(11)
    targets, noise, signs = rng.normal(size=(N, 3)), rng.uniform(0.1, 0.9, N), np.array([1.0, -0.5, 1.0])
    means = np.array([0.1, 0.0, 0.2])
    rows = replace(
        state.rows.take(torch.arange(N)),
        targets=torch.from_numpy(targets),
        fixed_noise=torch.from_numpy(noise),
        given_output_weights=torch.from_numpy(signs),
    )
    mean, none = torch.from_numpy(means).requires_grad_(), torch.zeros((), dtype=torch.float64, requires_grad=True)
    found, own = solver.with_data(rows, mean, none), dense(name_of(case))
    priors, missed = ({name: part / unit**2 for name, part in parts.items()} for parts in (own.priors, own.missed))
    noise_diag = noise + (own.noise - NOISE) / unit**2
    models = [DenseGP(priors, y, noise_diag, m, missed=missed) for y, m in zip(targets.T, means, strict=True)]
    digits, total = max(case.digits, 1e-6 if case.estimated else 0.0), models[0].total[:N, :N]
    close(found.coefficients, np.stack([one.coefficients for one in models], axis=1), digits)
    close(found.fitted, np.stack([total @ one.coefficients for one in models], axis=1), digits)
    close(found.latent_variances, np.diag(total - total @ models[0].inverse @ total), digits)
    error = found.likelihood_error if case.estimated else 0.0
    log_determinant = -np.linalg.slogdet(models[0].inverse)[1] - np.log(noise_diag).sum()
    assert abs(found.log_determinant.item() - log_determinant) < 12 * error + digits * abs(log_determinant)
    value, expected = found.log_marginal_likelihood(), [one.log_marginal_likelihood() for one in models]
    assert abs(value.item() - signs @ expected) < 6 * error + digits * np.abs(expected).sum()
    slope, in_noise = torch.autograd.grad(value, (mean, none), materialize_grads=True, allow_unused=True)
    close(slope, signs * [one.coefficients.sum() for one in models], 100 * digits)
    if not case.estimated:
        inverse = models[0].inverse
        slopes = [0.5 * (one.coefficients @ one.coefficients - np.trace(inverse)) for one in models]
        bound = 0.5 * sum((np.diag(part)[:N] / noise_diag**2).sum() for part in missed.values())
        close(in_noise, signs @ slopes + signs.sum() * bound, 100 * digits)
    assert solver.log_marginal_likelihood().item() == pytest.approx(before, rel=1e-12)


@of_all
def test_operator_is_the_covariance(case):
    """Covariances that are never formed have products, solves and draws."""
    state, unit = conditioned(name_of(case)).state, float(conditioned(name_of(case)).state.scaling.targets.scale)
    operator = state.posterior.operator(state.points(NEW)[0])
    if operator is None:
        pytest.skip("the covariance is formed")
    covariance, v = dense(name_of(case)).covariance() / unit**2, np.random.default_rng(0).normal(size=(M, 3))
    noise, v_tensor = np.linspace(0.1, 0.5, M), torch.from_numpy(v)
    assert len(operator) == M
    close(operator.times(v_tensor), covariance @ v, 1e-6)
    for scale in (1, 2):
        found = operator.solve(v_tensor, scale * torch.from_numpy(noise))
        close(found, np.linalg.solve(covariance + scale * np.diag(noise), v), 1e-5)
    draws = operator.draw(4000, torch.Generator().manual_seed(0)).T.numpy()
    check_moments(draws, 0.0, covariance)


@pytest.mark.parametrize("case", ESTIMATED, indirect=True)
def test_variances_of_many_points_are_estimated_from_draws(case, limits):
    """The relative standard error of 64 draws is at most sqrt(2 / 64): 6 of them are 2e-9 of false alarms."""
    limits(max_solved=2)
    expected = np.diag(dense(name_of(case)).covariance())
    gp = model(case).condition(X, Y)
    found = gp.predict(NEW).variance
    assert not np.allclose(found, expected, rtol=1e-6)
    assert np.abs(found / expected - 1).max() < 6 * (2 / 64) ** 0.5


# --- draws ----------------------------------------------------------------------------------------


def check_moments(drawn, mean, covariance):
    deviations = np.asarray(drawn) - mean
    assert_mean(deviations, 0)
    assert_mean(deviations[:, :, None] * deviations[:, None], covariance)


@of_all
def test_draws_have_the_moments(case):
    gp, expected = conditioned(name_of(case)), dense(name_of(case))
    covariance = gp.predict(NEW).covariance  # compared in test_predictions
    check_moments(gp.predict(NEW).sample(2000, seed=1), expected.mean_at(), covariance)
    if not case.functions:
        refused(lambda: gp.sample_functions(2, seed=1), rfgp.InvalidArgumentError, "functions")
        return
    functions = gp.sample_functions(2000, seed=2)
    values = functions(NEW)
    missed = dense(name_of(case)).missed.get(case.names[0], 0.0 * expected.total)[N:, N:]
    check_moments(values, expected.mean_at(), covariance - missed)
    close(functions(taken(NEW, [4, 1])), values[:, [4, 1]], 1e-8)
    many = gp.predict({key: np.tile(values, 170) for key, values in NEW.items()})
    check_moments(np.asarray(many.sample(2000, seed=3))[:, :M], expected.mean_at(), covariance)
    term = gp.predict(NEW).terms[case.names[0]]
    check_moments(term.sample(2000, seed=4), expected.mean_at(case.names[:1]), expected.covariance(case.names[:1]))


# --- derivatives and integrals --------------------------------------------------------------------

INSIDE = {**taken(NEW, slice(0, 3)), "p": np.array([1.3, 2.2, 2.9])}


CONSTANT = {"g", "f", "q", "d", "e"}
"""The terms that do not depend on numbers."""
WITHOUT_SLOPES = ["roads", "smooth roads", "roads of groups", "responses and nodes", "few responses and others"]


@of_all
def test_gradients_in_inputs_match_differences(case):
    gp, weights = conditioned(name_of(case)), np.array([1.0, -0.5, 2.0])
    if set(case.names) <= CONSTANT:
        pytest.skip("depends on no numbers")
    points = {**INSIDE, **{column: torch.tensor(INSIDE[column], requires_grad=True) for column in "hp"}}
    for read in (lambda p: p.mean, lambda p: p.variance):
        if name_of(case) in WITHOUT_SLOPES or case.estimated:
            refused(lambda read=read: read(gp.predict(points)).sum().backward(), rfgp.NotDifferentiableError, "detach")
            continue
        value = (read(gp.predict(points)) * torch.from_numpy(weights)).sum()
        found = torch.autograd.grad(value, (points["h"], points["p"]), materialize_grads=True, allow_unused=True)
        for column, slope in zip("hp", found, strict=True):
            ends = [{**INSIDE, column: INSIDE[column] + step} for step in (1e-4, -1e-4)]
            up, down = (read(gp.predict(end)) for end in ends)
            np.testing.assert_allclose(slope, weights * (up - down) / 2e-4, atol=2e-4)


SMOOTH = ["features", "features wide", "points fitc", "points vfe", "exact", "exact and features", "lattices"]


@pytest.mark.parametrize("case", SMOOTH, indirect=True)
def test_posteriors_have_gradients_in_hyperparameters(case):
    gp = copy.deepcopy(conditioned(name_of(case), "uneven"))
    inputs = gp.state.points(NEW)[0]

    def value(gp):
        state = gp.state.replace(hyperparameters=gp.hyperparameters.values)
        posterior = state.infer(state.rows).posterior()
        read = posterior.project(inputs)
        return posterior.mean(read)[:, 0] @ torch.arange(M).double() + posterior.variance(inputs, read).sum()

    found, expected = slopes(gp, value, of=value)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("case", ["responses", "few latent"], indirect=True)
def test_joint_distributions_of_neighbors_have_no_gradient(case):
    found = conditioned(name_of(case)).predict({**INSIDE, "p": torch.tensor(INSIDE["p"], requires_grad=True)})
    refused(lambda: found.covariance.sum().backward(), rfgp.NotDifferentiableError, "detach")


@pytest.mark.parametrize("case", ["features", "exact", "lattice"], indirect=True)
def test_distribution_of_the_derivative(case):
    gp, step = conditioned(name_of(case)), 1e-3
    both = joined(*({**INSIDE, "h": INSIDE["h"] + sign * step} for sign in (1, -1)))
    weights = np.hstack([np.eye(3), -np.eye(3)]) / (2 * step)
    for of in (lambda p: p, lambda p: p.terms[case.names[0]]):
        found, expected = of(gp.predict(INSIDE, derivative="h")), of(gp.predict(both)).linear(weights)
        close(found.mean, expected.mean, 1e-4)
        close(found.covariance, expected.covariance, 1e-3)


# --- files, copies and other approximations -------------------------------------------------------


@of_all
def test_files_and_copies_predict_the_same(case, tmp_path):
    gp = conditioned(name_of(case), "uneven")
    expected, part = gp.predict(NEW), case.names[:1] if case.divided else case.names
    gp.save(tmp_path / "with", data=True)
    for other in (rfgp.load(tmp_path / "with"), pickle.loads(pickle.dumps(gp)), copy.deepcopy(gp)):
        found = other.predict(NEW)
        close(found.mean, expected.mean, 1e-12)
        close(found.variance, expected.variance, 1e-10)
        close(found.of(*part).variance, expected.of(*part).variance, 1e-10)
        assert abs(other.log_marginal_likelihood() - gp.log_marginal_likelihood()) < 1e-9


@of_all
def test_other_approximations_keep_data_and_hyperparameters(case):
    gp = conditioned(name_of(case), "uneven")
    exact = gp.exact()
    if set(case.names) <= set(FORMULAS):
        priors = {name: FORMULAS[name] for name in case.names}
        expected = DenseGP(priors, Y, noise_of("uneven"), MEAN, UNEVEN["sample_weight"])
        close(exact.predict(NEW).mean, expected.mean_at(), 1e-7)
        close(exact.log_marginal_likelihood(), expected.log_marginal_likelihood(), 1e-7)
    again = exact.with_approximation(case.approximation)
    close(again.predict(NEW).mean, gp.predict(NEW).mean, 1e-7)
    close(again.predict(NEW).variance, gp.predict(NEW).variance, 1e-6)


# --- refusals -------------------------------------------------------------------------------------

SUMS = [
    {"r": SPARSE, "d": WALKS},
    {"m": EXACT, "f": SPARSE, "d": WALKS},
    {"a": points("vfe"), "m": near("responses")},
    {"d": WALKS, "m": near("responses")},
    {"d": WALKS, "m": near("latent")},
]


@pytest.mark.parametrize("approximation", SUMS, ids=lambda found: " + ".join(found))
def test_sums_without_a_solver_are_refused(approximation):
    gp = model(Case(approximation))
    refused(lambda: gp.condition(X, Y).log_marginal_likelihood(), rfgp.InvalidArgumentError, "cannot be added")


@pytest.mark.parametrize("case", ["roads", "few latent", "latent by products", "walks and nodes"], indirect=True)
def test_joint_distributions_of_too_many_points_are_refused(case):
    many = conditioned(name_of(case)).predict({key: np.resize(values, 2001) for key, values in NEW.items()})
    refused(lambda: many.covariance, rfgp.InvalidArgumentError, "2001")


JOINT = {
    "covariance": lambda p: p.covariance,
    "draws": lambda p: p.observed().sample(1, seed=0),
    "cross-covariance": lambda p: p.cross_covariance("a", "l"),
    "divergence": lambda p: rfgp.metrics.kl_divergence(p, p),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_large_joint_predictions_name_their_size(name):
    many = {key: np.resize(values, 200_000) for key, values in NEW.items()}  # a matrix takes 320 GB
    refused(lambda: JOINT[name](conditioned("exact").predict(many)), graphs.MemoryBudgetError, "MiB")


# --- other sources --------------------------------------------------------------------------------


NEARLY = [
    ("a", rfgp.RandomFeatures(2000, coupling="orthogonal", seed=0), 0.05),
    ("q", rfgp.RationalPrecision(6), 1e-4),
    ("d", rfgp.Chebyshev(20), 1e-6),
    ("d", rfgp.Taylor(30), 1e-6),
    ("d", rfgp.TruncatedSpectrum(20), 1e-8),
    ("d", rfgp.RandomWalks(500, seed=0), 0.1),
]


@pytest.mark.parametrize(("term", "approximation", "digits"), NEARLY)
def test_large_approximations_are_near_the_exact_kernel(term, approximation, digits):
    expected = FORMULAS[term] if term in FORMULAS else prior_alone(term, EXACT, "plain", N)
    np.testing.assert_allclose(prior_alone(term, approximation, "plain", N), expected, atol=digits)


PEMS = Path(os.environ.get("RFGP_DATA_DIR", Path(__file__).parents[3] / "shared" / "data")) / "traffic" / "pems.rda"


@pytest.mark.slow
@pytest.mark.skipif(not PEMS.exists(), reason="pems.rda is not there; name its folder in RFGP_DATA_DIR")
@pytest.mark.parametrize(
    ("alpha", "boundary", "kappa", "field", "noise", "mean", "printed"),
    [
        (1, "neumann", 0.108220, 20.582, 6.8654, 51.187, -1221.225),
        (1, "stationary", 0.095113, 21.921, 6.8634, 51.111, -1221.377),
        (2, "open", 0.43173, 19.147, 7.1763, 51.219, -1208.087),
        (2, "stationary", 0.42028, 19.762, 7.1759, 51.149, -1208.280),
    ],
)
def test_likelihoods_are_those_that_metric_graph_prints(alpha, boundary, kappa, field, noise, mean, printed):
    """Its vignette "Comparison of different models": to three decimals, near an optimum of rounded hyperparameters."""
    roads = graphs.read_roads(PEMS)
    seen = ~np.isnan(roads.values)
    positions = np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1)[seen]
    gp = rfgp.RoadGP(graphs.RoadNetwork.from_roads(roads), alpha, boundary=boundary, seed=0)
    gp.condition(positions, roads.values[seen])
    scale = 1000 * (1.0 if alpha == 1 else np.sqrt(3)) / kappa
    gp.hyperparameters.set(lengthscale=scale, outputscale=field**2, noise=noise**2, mean=mean)
    assert gp.log_marginal_likelihood().item() == pytest.approx(printed, abs=1e-3)
