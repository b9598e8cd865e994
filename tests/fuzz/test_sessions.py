"""Steps of a model's life in any order, drawn by hypothesis, beside a dense reference in numpy."""

import copy
import functools
import pickle
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import graphs
import rfgp
from rfgp import kernels as k
from tests.fuzz import twin
from tests.fuzz.rules import bounded, is_error, options, outcome
from tests.support.dense import DenseGP

pytestmark = pytest.mark.filterwarnings("ignore")
D, NODES = 3, 14
SEEDS = st.integers(0, 30)
ROWS = {"seed": SEEDS, "n": st.integers(1, 20), "noise": st.booleans(), "weight": st.booleans()}
FACTORS = st.dictionaries(st.integers(0, 9), st.sampled_from([0.1, 0.5, 0.9, 1.5, 4.0]), min_size=1, max_size=3)
COUPLINGS = ["iid", "orthogonal", "halton", "pairwise", "monotone", "simplex", "simplex-plus"]
MATERN, ALL = rfgp.spectra.Matern(1.5), rfgp.Vecchia(10**4)


def step(**strategies):
    """Make a method a rule, within the bounds of time and memory, that leaves the hyperparameters as they are known."""

    def decorated(method):
        @functools.wraps(method)
        def inner(self, **arguments):
            with bounded():
                method(self, **arguments)
                self.compare_numbers()

        return rule(**strategies)(inner)

    return decorated


def fitted(machine):
    return bool(machine.state.numbers)


@dataclass
class State:
    """What the reference knows.

    Attributes:
        rows: Of each block of rows the inputs, targets, noise and weight.
        numbers: The hyperparameters in the user's units.
        draw: What the features are made of.
        location: What inputs are counted from.
        has_data: Whether the model holds its rows.
        is_moved: Whether hyperparameters were changed since a posterior was computed that the rows are missing for.
    """

    rows: list = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    draw: Any = None
    location: Any = 0.0
    has_data: bool = True
    is_moved: bool = False


class Sessions(RuleBasedStateMachine):
    """A model beside its reference. Subclasses have its options, data and kernel."""

    def __init__(self):
        super().__init__()
        self.state, self.others = State(), []

    # --- steps -----------------------------------------------------------------------------------

    @step(**ROWS, iterations=st.integers(1, 3), fixed=st.sampled_from([[], ["noise"], ["*.outputscale", "mean"]]))
    def fit(self, iterations, fixed, **rows):
        given, more, kept = self.data(**rows)
        result = outcome(lambda: self.model.fit(*given, **more, fixed=fixed, max_iterations=iterations))
        if not self.refused(result, kept, 2):
            self.state = State([kept])
            self.look()
            assert np.isfinite(self.model.fit_report.log_marginal_likelihood)

    @step(**ROWS)
    def condition(self, **rows):
        given, more, kept = self.data(**rows)
        is_first = not self.state.numbers
        result = outcome(lambda: self.model.condition(*given, **more))
        if self.refused(result, kept, 2 if is_first else 1):
            return
        self.state = State([kept]) if is_first else replace(self.state, rows=[kept], has_data=True, is_moved=False)
        if is_first:
            self.look()

    @step(**ROWS)
    def update(self, **rows):
        given, more, kept = self.data(**rows)
        result = outcome(lambda: self.model.update(*given, **more))
        if isinstance(result, rfgp.NotFittedError):
            assert not self.state.numbers or not self.state.has_data, result
        elif not self.refused(result, kept, 1):
            self.state = replace(self.state, rows=[*self.state.rows, kept])

    @precondition(fitted)
    @step(factors=FACTORS)
    def set(self, factors):
        names = list(self.state.numbers)
        new = {names[place % len(names)]: factor for place, factor in factors.items()}
        known = self.state.numbers
        values = {n: known[n] + np.log(factor) if n == "mean" else known[n] * factor for n, factor in new.items()}
        self.model.hyperparameters.set(**{self.path(name): value for name, value in values.items()})
        self.state = replace(self.state, numbers={**known, **values}, is_moved=not self.state.has_data)

    @step()
    def exact(self):
        if self.is_exact and not self.is_graph:
            return
        result = outcome(self.model.exact)
        if not self.needs_data(result):
            self.keep_other()
            self.model, self.is_exact = result, True

    @step(data=st.booleans())
    def save_and_load(self, data):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            result = outcome(lambda: self.model.save(path, data=data))
            if is_error(result):
                bare = not self.state.numbers or self.state.is_moved or (data and not self.state.has_data)
                needs = (self.is_exact or self.setup.get("local")) and not self.is_graph and not data
                assert needs or (bare and isinstance(result, rfgp.NotFittedError)), result
                assert not list(Path(folder).iterdir())
                return
            self.keep_other()
            self.model = rfgp.load(path)
        self.state = replace(self.state, has_data=data)

    @step(copied=st.sampled_from([copy.deepcopy, lambda gp: pickle.loads(pickle.dumps(gp))]))
    def copy(self, copied):
        self.keep_other()
        self.model = copied(self.model)

    @precondition(fitted)
    @step(seed=SEEDS, n=st.integers(2, 12))
    def shallow_copy(self, seed, n):
        """A shallow copy answers alike, and rows for it are none for this model."""
        other = copy.copy(self.model)
        given, _, kept = self.data(seed, n, False, False)
        if not is_error(outcome(lambda: other.condition(*given))):
            self.compare_model(other, replace(self.state, rows=[kept], has_data=True, is_moved=False), seed)

    @step(kind=st.sampled_from(["length", "values", "inputs", "text"]))
    def bad_rows(self, kind):
        """Rows that cannot be used are named, and leave the model as it was."""
        (X, y), _, _ = self.data(5, 6, False, False)
        if kind == "length":
            y = y[:-1]
        elif kind == "values":
            y = y * float("nan")
        elif kind == "inputs":
            X = self.bad_inputs(X)
        else:
            y = "no numbers"
        calls = [self.model.update, self.model.condition, self.model.fit]
        first = kind == "inputs" and not self.is_graph  # other columns are fine for a first time, and for a fit
        for call in calls[:2] if first and self.state.numbers else [] if first else calls:
            assert is_error(outcome(lambda call=call: call(X, y))), f"{call.__name__} took bad rows: {kind}"

    @step()
    def leave_one_out(self):
        result = outcome(self.model.leave_one_out)
        if self.needs_data(result):
            return
        K = self.matrix(self.state, [])
        for j in range(max(self.setup["outputs"], 1)):
            gp = self.dense(self.state, K, j)
            spread = max(gp.y.std(), abs(gp.y - gp.mean).max(), 1e-12) * rounding(gp)
            for found, want, unit in zip((result.mean, result.variance), gp.leave_one_out(), (1, spread), strict=True):
                self.assert_close(column(found, j), want, unit * spread, "leave_one_out")

    @precondition(fitted)
    @step(seed=SEEDS)
    def compare(self, seed):
        self.compare_model(self.model, self.state, seed)

    def teardown(self):
        """The model, and all that it was copied from, answer as they did then."""
        if hasattr(self, "model"):
            for model, state, is_exact in [*self.others[-4:], (self.model, self.state, self.is_exact)]:
                self.is_exact = is_exact
                with bounded():
                    self.compare_model(model, state, 3)

    # --- what is expected ------------------------------------------------------------------------

    def keep_other(self):
        self.others.append((self.model, copy.copy(self.state), self.is_exact))

    def refused(self, result, rows, least):
        """Return whether rows were refused. Only too few of them may be, or constant targets."""
        if not is_error(result):
            return False
        y = rows[1].reshape(len(rows[1]), -1)
        is_constant = len(y) == 0 or bool((np.ptp(y, axis=0) == 0).any())
        assert isinstance(result, rfgp.DataError), f"good rows were refused: {result!r}"
        assert len(y) < least or (is_constant and least > 1), f"good rows were refused: {result!r}"
        return True

    def needs_data(self, result):
        if not is_error(result):
            assert self.state.numbers, "an answer without data"
            assert self.state.has_data, "an answer without data"
            return False
        assert not self.state.numbers or not self.state.has_data, result
        assert isinstance(result, rfgp.NotFittedError), result
        return True

    def look(self):
        """Read off the model what the reference cannot know: the numbers after a fit, and the draw."""
        h = self.model.hyperparameters
        names = [short(name) for name in h.names if not name.endswith(".frequencies")]
        self.state.numbers = {name: h[self.path(name)].detach().numpy().astype(float) for name in names}
        self.look_at_draw()

    def path(self, name):
        """Return the path of a hyperparameter of the model by its name in the reference."""
        return next(path for path in self.model.hyperparameters.names if short(path) == name)

    def compare_numbers(self):
        h, rtol = self.model.hyperparameters if self.state.numbers else None, 1e-5 if self.single else 1e-12
        for name, value in self.state.numbers.items():
            np.testing.assert_allclose(h[self.path(name)].detach().numpy(), value, rtol=rtol, err_msg=name)

    def compare_model(self, model, state, seed):
        """Mean, variance, covariance and log marginal likelihood are those of the reference."""
        new = self.new(seed)
        p = outcome(lambda: model.predict(new))
        mean = p if is_error(p) else outcome(lambda: p.mean)
        if is_error(mean):
            assert (not state.numbers or state.is_moved) and isinstance(mean, rfgp.NotFittedError), mean  # noqa: PT018
            return
        assert state.numbers
        K, total, size = self.matrix(state, new), 0.0, 1.0
        covariance = np.asarray(p.covariance, dtype=float)
        for j in range(max(self.setup["outputs"], 1)):
            gp = self.dense(state, K, j)
            C, total = gp.covariance(), total + gp.log_marginal_likelihood()
            size = max(size, rounding(gp))
            unit = max(np.sqrt(np.diag(gp.total)[gp.n :].max()), np.abs(gp.y - gp.mean).max(), 1e-12) * size
            self.assert_close(column(mean, j), gp.mean_at(), unit, "mean")
            self.assert_close(covariance if covariance.ndim == 2 else covariance[..., j], C, unit**2, "covariance")
            self.assert_close(column(p.variance, j), np.diag(C), unit**2, "variance")
            noisy = np.diag(C) + entry(state.numbers["noise"], j)
            self.assert_close(column(p.observed().variance, j), noisy, unit**2, "observed variance")
        found = outcome(model.log_marginal_likelihood)
        if is_error(found):
            assert not state.has_data, found
            assert isinstance(found, rfgp.NotFittedError), found
            return
        self.assert_close(float(found.detach()), total, size * (1 + gp.weight.sum()), "log marginal likelihood")

    def dense(self, state, K, j):
        """Return the dense process of an output, by the kernel's matrix at all rows and new points."""
        scale, noise, mean = (entry(state.numbers[name], j) for name in ("outputscale", "noise", "mean"))
        _, y, more, weight = stacked(state.rows)
        return DenseGP({"all": scale * K}, y.reshape(len(y), -1)[:, j], noise + more, mean, weight)

    def assert_close(self, found, expected, unit, what):
        tolerance = 2e-2 if self.single else 1e-4 if self.is_graph and not self.is_exact else 2e-6
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * unit, err_msg=what)


# --- tables ------------------------------------------------------------------------------------------


@st.composite
def tables(draw):
    """Options of a model on a table."""
    features = draw(st.sampled_from(["fourier", "laplace", "exact", "none", "residual"]))
    spectra = ["gaussian"] if features == "laplace" else ["gaussian", "matern", "rational-quadratic"]
    spectrum = draw(st.sampled_from(spectra[: 2 if features in ("none", "residual") else 3]))
    local = draw(st.sampled_from([None, None, "gaussian", "matern"]))
    return {
        "features": features,
        "spectrum": spectrum,
        "local": None if features in ("none", "residual") else local,
        "m": draw(st.sampled_from([1, 2, 4, 5, 16])),
        "coupling": draw(st.sampled_from([*COUPLINGS, *(["structured"] if spectrum == "gaussian" else [])])),
        "learned": features == "fourier" and draw(st.integers(0, 4)) == 0,
        "ard": draw(st.booleans()),
        "standardize": draw(st.booleans()),
        "outputs": draw(st.sampled_from([0, 0, 1, 2])),
        "single": draw(st.integers(0, 4)) == 0,
        "tensors": draw(st.booleans()),
        "seed": draw(SEEDS),
    }


class TableSessions(Sessions):
    """Models on tables of three columns."""

    is_graph = False

    @initialize(setup=tables())
    def begin(self, setup):
        self.setup, self.single = setup, setup["single"]
        self.is_exact = setup["features"] in ("exact", "none", "residual")
        kernel = {"gaussian": k.RBF, "matern": functools.partial(k.Matern, nu=1.5)}.get(setup["spectrum"])
        near = rfgp.InducingPoints(setup["m"], residual=ALL) if setup["features"] == "residual" else ALL
        common = {"standardize": setup["standardize"]}
        if setup["features"] in ("none", "residual"):  # with all neighbors both are the exact process of the kernel
            self.model = rfgp.GP(kernel(ard=setup["ard"]), approximation=near, seed=setup["seed"], **common)
            return
        common |= {"ard": setup["ard"], "local": {"gaussian": "gaussian", "matern": "matern32"}.get(setup["local"])}
        common["spectrum"] = MATERN if setup["spectrum"] == "matern" else setup["spectrum"]
        if self.is_exact:
            self.model = rfgp.ExactGP(**common)
            return
        self.model = rfgp.SparseSpectrumGP(
            num_neighbors=10**4,
            kind=setup["features"],
            num_frequencies=setup["m"],
            coupling=setup["coupling"],
            learn_frequencies=setup["learned"],
            seed=setup["seed"],
            **common,
        )

    def data(self, seed, n, noise, weight):
        """Return what the model takes, and what the reference keeps. Outputs of several scales have no known noise."""
        noise = noise and (self.setup["outputs"] < 2 or not self.setup["standardize"])
        rng, outputs = np.random.default_rng([1, seed]), self.setup["outputs"]
        X = rng.standard_normal((n, D)) * [1.0, 0.1, 30.0] + [0.0, 5.0, -40.0]
        y = 3 + 2 * np.sin(X[:, :1] * np.arange(1, max(outputs, 1) + 1)) + 0.02 * X[:, 2:]
        y = y + 0.3 * rng.standard_normal(y.shape)
        kind = np.float32 if self.single else np.float64
        X, y, more = X.astype(kind), (y if outputs else y[:, 0]).astype(kind), extras(rng, n, noise, weight)
        given = (torch.as_tensor(X), torch.as_tensor(y)) if self.setup["tensors"] else (X, y)
        return given, more, kept_rows(X, y, more)

    def bad_inputs(self, X):
        return X[:, :2]

    def look_at_draw(self):
        X = np.vstack([rows[0] for rows in self.state.rows]).astype(float)
        if self.setup["standardize"] and len(self.state.rows) == 1 and np.ndim(self.state.location) == 0:
            self.state.location = np.average(X, axis=0, weights=self.state.rows[0][3])
        if self.is_exact:
            return
        frequencies = self.model.feature_map.frequencies
        self.state.draw = tuple(t.detach().clone().numpy() for t in (frequencies.dense(), frequencies.weights))

    def new(self, seed):
        return self.data(seed + 1000, 5, False, False)[0][0]

    def matrix(self, state, new):
        """Return K of all rows and new points, divided by the first scale."""
        x = np.vstack([stacked(state.rows)[0].astype(float), np.reshape(new, (-1, D))])
        ell, numbers = state.numbers["lengthscale"], state.numbers
        if self.is_exact:
            own = twin.stationary(self.setup["spectrum"], x / ell, x / ell)
        else:
            make = {"fourier": twin.fourier, "laplace": twin.laplace}[self.setup["features"]]
            phi = make((x - state.location) / ell, *state.draw)
            own = phi @ phi.T
        if "local_lengthscale" in numbers:
            share = np.ravel(numbers["local_outputscale"] / numbers["outputscale"])[0]  # of all outputs alike
            x = x / numbers["local_lengthscale"]
            own = own + share * twin.stationary(self.setup["local"], x, x)
        return own


# --- graphs ------------------------------------------------------------------------------------------

ROOTS = {
    "diffusion": lambda v, s: np.exp(-(s**2) / 4 * v),
    "matern": lambda v, s: (3 / s**2 + v) ** -0.75,
    "regularized-laplacian": lambda v, s: 1 / (1 + s**2 * v),
}
"""Square roots of graph kernels as functions of the eigenvalues of the Laplacian and of their parameter."""


class GraphSessions(Sessions):
    """Models on a weighted graph with a node apart."""

    is_graph, single = True, False

    @initialize(
        features=st.sampled_from(["exact", "walks", "chebyshev", "spectrum"]),
        kernel=st.sampled_from(list(ROOTS)),
        lengths=st.sampled_from(["iid", "antithetic", "systematic", "sigma"]),
        outputs=st.sampled_from([0, 0, 1, 2]),
        seed=SEEDS,
    )
    def begin(self, features, kernel, lengths, outputs, seed):
        self.setup, self.is_exact = {"outputs": outputs, "kernel": kernel, "features": features}, features == "exact"
        rng = np.random.default_rng([2, seed])
        edges = [(a, b) for a in range(NODES - 1) for b in range(a) if b == a - 1 or rng.uniform() < 0.15]
        weights = rng.uniform(0.3, 3, len(edges))
        self.labels, adjacency = [f"n{i}" for i in range(NODES)], np.zeros((NODES, NODES))
        for (a, b), weight in zip(edges, weights, strict=True):
            adjacency[a, b] = adjacency[b, a] = weight
        self.eigen = np.linalg.eigh(twin.laplacian(adjacency))
        graph = graphs.Graph.from_edges([(f"n{a}", f"n{b}") for a, b in edges], weights, nodes=self.labels)
        sizes = {"chebyshev": {"degree": 4}, "spectrum": {"rank": 6}}.get(features, {})
        walks = {"num_walkers": 8, "lengths": lengths} if features == "walks" else {}
        self.model = rfgp.GraphGP(graph, kernel, features, seed=seed, **sizes, **walks)

    def data(self, seed, n, noise, weight):
        """Return labels and targets: repeated nodes, and with one output a missing target."""
        noise = noise and self.setup["outputs"] < 2
        rng, outputs = np.random.default_rng([3, seed]), self.setup["outputs"]
        places, size = rng.integers(0, NODES, n), max(outputs, 1)
        y = 1 + np.sin(places)[:, None] * np.arange(1, size + 1) + 0.2 * rng.standard_normal((n, size))
        y, more = y if outputs else y[:, 0], extras(rng, n, noise, weight)
        if not outputs and n > 4:
            y[rng.integers(0, n)] = np.nan
        return ([self.labels[i] for i in places], y), more, kept_rows(places, y, more)

    def bad_inputs(self, X):
        return [*X[:-1], "nowhere"]

    def look_at_draw(self):
        walks = self.model.walks
        self.state.draw = None if walks is None else walks.at(self.labels)

    def new(self, seed):
        return [self.labels[i] for i in np.random.default_rng([4, seed]).permutation(NODES)[:6]]

    def matrix(self, state, new):
        """Return K of all rows and new nodes, without scale."""
        at = [*stacked(state.rows)[0], *map(self.labels.index, new)]
        return self.kernel(state)[np.ix_(at, at)]

    def kernel(self, state):
        kernel, features = self.setup["kernel"], "exact" if self.is_exact else self.setup["features"]
        names = {"diffusion": "lengthscale", "matern": "kappa", "regularized-laplacian": "sigma"}
        scale = float(state.numbers[names[kernel]])
        if features == "walks":
            phi = state.draw.features(graphs.kernels.by_name(kernel).with_values([scale])).toarray()
            return phi @ phi.T
        values, vectors = np.maximum(self.eigen[0], 0), self.eigen[1]
        weights = ROOTS[kernel](values, scale)
        if features == "spectrum":
            weights[6:] = 0
        elif features == "chebyshev":
            series = np.polynomial.chebyshev.chebinterpolate(lambda u: ROOTS[kernel](1 - u, scale), 4)
            weights = np.polynomial.chebyshev.chebval(1 - values, series)
        return (vectors * weights**2) @ vectors.T


# --- parts -------------------------------------------------------------------------------------------


def extras(rng, n, noise, weight):
    """Return the noise of rows, and weights, which are whole, so that rows can repeat."""
    more = {"noise": rng.uniform(0, 0.5, n)} if noise else {}
    return more | ({"sample_weight": rng.integers(1, 4, n).astype(float)} if weight else {})


def kept_rows(X, y, more):
    """Return the rows with targets: inputs, targets, noise and weights."""
    kept = ~np.isnan(y.reshape(len(y), -1)).any(1)
    parts = (X, y.astype(float), more.get("noise", np.zeros(len(y))), more.get("sample_weight", np.ones(len(y))))
    return tuple(part[kept] for part in parts)


def stacked(blocks):
    """Return the inputs, targets, noise and weights of all rows."""
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def short(path):
    """Return the name of a hyperparameter in the reference, which has one term, or a second one named "local"."""
    return path.replace("local.", "local_").rpartition(".")[2]


def entry(value, j):
    return float(value) if np.ndim(value) == 0 else float(value[j])


def column(value, j):
    value = np.asarray(value, dtype=float)
    return value if value.ndim == 1 else value[:, j]


def rounding(gp):
    """Return by how much more than 2e-6 an inverse in the reference is rounded, if noise is tiny and rows repeat."""
    return 1 + 2e-10 * gp.total[: gp.n, : gp.n].max() / gp.noise.min()


# --- tests -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before what is compiled once in a clean checkout, which may take longer than 10 s."""
    X = np.random.default_rng(0).standard_normal((12, 2))
    for condition_on in ("responses", "latent"):
        near = rfgp.InducingPoints(3, residual=rfgp.Vecchia(3, condition_on=condition_on))
        gp = rfgp.GP(k.Matern(nu=1.5), approximation=near, seed=0).fit(X, X[:, 0], max_iterations=1)
        assert np.isfinite(gp.predict(X + 1).variance).all()
    gp = rfgp.GraphGP(graphs.Graph.from_grid((4, 4)), features="walks", num_walkers=4, seed=0)
    assert np.isfinite(gp.fit(np.arange(12), X[:, 0], max_iterations=1).predict(np.arange(16)).variance).all()


@pytest.mark.parametrize("machine", [TableSessions, GraphSessions])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_models_are_the_dense_process_after_any_steps(machine, seed):
    seeded = hypothesis.seed(seed)(type(machine.__name__, (machine,), {}))
    run_state_machine_as_test(seeded, settings=options(12 if seed else 4, stateful_step_count=12))
