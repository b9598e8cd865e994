"""A model beside its dense twin: steps in any order, each named and with plain arguments, so that they can be kept."""

import copy
import pickle
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch

import graphs
import rfgp
from rfgp.regression.spec import ModelSpec
from rfgp.regression.stationary import stationary_model
from tests.fuzz import twin
from tests.fuzz.rules import FoundError, is_error, outcome

D = 3
NODES = 14
TOLERANCE = {"float64": 2e-6, "float32": 2e-2, "sparse": 1e-4}
ALARM = 6.5  # standard errors: a false alarm in 10^10 draws of a value


def extras(rng, n, noise, weight):
    """What rows may have beside: noise, and weights, which are whole, so that rows can repeat."""
    more = {"noise": rng.uniform(0, 0.5, n)} if noise else {}
    return more | ({"sample_weight": rng.integers(1, 4, n).astype(float)} if weight else {})


def table_data(seed, n, outputs, noise, weight, single=False):
    """Inputs (n, 3), targets (n,) or (n, k), and what rows may have beside."""
    rng = np.random.default_rng([1, seed])
    X = rng.standard_normal((n, D)) * [1.0, 0.1, 30.0] + [0.0, 5.0, -40.0]
    y = 3 + 2 * np.sin(X[:, :1] * np.arange(1, max(outputs, 1) + 1)) + 0.02 * X[:, 2:]
    y = y + 0.3 * rng.standard_normal(y.shape)
    y = y if outputs else y[:, 0]
    kind = np.float32 if single else np.float64
    more = extras(rng, n, noise, weight)
    return X.astype(kind), y.astype(kind), more


def graph_of(seed):
    """A weighted graph with a node apart, its labels, and its dense adjacency."""
    rng = np.random.default_rng([2, seed])
    pairs = [(a, b) for a in range(NODES - 1) for b in range(a) if b == a - 1 or rng.uniform() < 0.15]
    weights = rng.uniform(0.3, 3, len(pairs))
    labels = [f"n{k}" for k in range(NODES)]
    dense = np.zeros((NODES, NODES))
    for (a, b), weight in zip(pairs, weights, strict=True):
        dense[a, b] = dense[b, a] = weight
    named = [(labels[a], labels[b]) for a, b in pairs]
    return graphs.Graph.from_edges(named, weights, nodes=labels), labels, dense


def graph_data(seed, n, outputs, noise, weight, labels):
    """Labels, repeated ones among them, and targets, missing ones among them where there is one output."""
    rng = np.random.default_rng([3, seed])
    places = rng.integers(0, len(labels), n)
    y = (
        1
        + np.sin(places)[:, None] * np.arange(1, max(outputs, 1) + 1)
        + 0.2 * rng.standard_normal((n, max(outputs, 1)))
    )
    y = y if outputs else y[:, 0]
    more = extras(rng, n, noise, weight)
    if not outputs and n > 4:
        y[rng.integers(0, n)] = np.nan
    return places, y, more


@dataclass
class State:
    """What the twin knows.

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


def stationary(**options):
    """Return the model of one stationary kernel; see `rfgp.regression.stationary.stationary_model`."""
    return rfgp.GP.of(ModelSpec(stationary_model(**options)))


class Session:
    """One model with its twin; `do` makes a step and compares all that both can say.

    Args:
        setup: The model's options, as JSON.
    """

    def __init__(self, setup):
        self.setup, self.steps, self.state, self.others = setup, [], State(), []
        self.is_graph, self.is_exact = setup["family"] == "graph", setup["features"] in ("exact", "none", "residual")
        if self.is_graph:
            self.graph, self.labels, self.adjacency = graph_of(setup["seed"])
        self.model = self._made()

    def _made(self):
        s = self.setup
        if self.is_graph:
            sizes = {"chebyshev": {"degree": 4}, "taylor": {"degree": 5}, "spectrum": {"rank": 6}}.get(
                s["features"], {}
            )
            walks = {"num_walkers": 8, "lengths": s["lengths"]} if s["features"] == "walks" else {}
            return rfgp.GraphGP(self.graph, s["kernel"], s["features"], seed=s["seed"], **sizes, **walks)
        common = {"ard": s["ard"], "standardize": s["standardize"]}
        common["spectrum"] = {"matern": rfgp.spectra.Matern(1.5)}.get(s["spectrum"], s["spectrum"])
        near = {"gaussian": "gaussian", "matern": "matern32", None: None}[s.get("local")]
        if s["features"] == "none":  # with all neighbours that is the exact process of the kernel
            return stationary(approximation=rfgp.Vecchia(10**4), seed=s["seed"], **{**common, "spectrum": near})
        if s["features"] == "residual":  # and so is that of inducing points with their residual
            approximation = rfgp.InducingPoints(s["m"], residual=rfgp.Vecchia(10**4))
            return stationary(approximation=approximation, seed=s["seed"], **common)
        if self.is_exact:
            return rfgp.ExactGP(local=near, **common)
        return rfgp.SparseSpectrumGP(
            local=near,
            num_neighbors=10**4,
            kind=s["features"],
            num_frequencies=s["m"],
            coupling=s["coupling"],
            learn_frequencies=s["frequencies"] == "learned",
            seed=s["seed"],
            **common,
        )

    # --- steps -----------------------------------------------------------------------------------

    def do(self, name, **arguments):
        """Make a step, and note it."""
        self.steps.append([name, arguments])
        try:
            getattr(self, f"step_{name}")(**arguments)
            self._compare_numbers()
        except FoundError:
            raise
        except AssertionError as error:
            words = " ".join(str(error).split())[:600]
            raise FoundError(f"after {name}: {words}") from error

    @property
    def plan(self):
        """All that was done, as JSON."""
        return {"setup": self.setup, "steps": self.steps}

    def _data(self, seed, n, noise, weight):
        """What the model takes, and what the twin keeps of it; outputs of several scales have no known noise."""
        noise = noise and (self.setup["outputs"] < 2 or not self.setup.get("standardize", True))
        if not self.is_graph:
            X, y, more = table_data(seed, n, self.setup["outputs"], noise, weight, self.setup["single"])
            given = (torch.as_tensor(X), torch.as_tensor(y)) if self.setup["tensors"] else (X, y)
        else:
            X, y, more = graph_data(seed, n, self.setup["outputs"], noise, weight, self.labels)
            given = ([self.labels[k] for k in X], y)
        kept = ~np.isnan(y.reshape(len(y), -1)).any(1)
        zero, one = np.zeros(n), np.ones(n)
        parts = (X, y.astype(float), more.get("noise", zero), more.get("sample_weight", one))
        return given, more, tuple(part[kept] for part in parts)

    def step_fit(self, seed, n, noise, weight, iterations, fixed):
        given, more, rows = self._data(seed, n, noise, weight)
        paths = ["*.outputscale" if name == "outputscale" else name for name in fixed]
        result = outcome(lambda: self.model.fit(*given, **more, fixed=paths, max_iterations=iterations))
        if self._refused(result, rows, 2):
            return
        self.state = State([rows])
        self._look()
        told = self.model.fit_report.log_marginal_likelihood
        # Reports tell the standardised likelihood or that in the user's units: whichever, it must be finite.
        assert np.isfinite(told)

    def step_condition(self, seed, n, noise, weight):
        given, more, rows = self._data(seed, n, noise, weight)
        is_first = not self.state.numbers
        result = outcome(lambda: self.model.condition(*given, **more))
        if self._refused(result, rows, 2 if is_first else 1):
            return
        self.state = State([rows]) if is_first else replace(self.state, rows=[rows], has_data=True, is_moved=False)
        if is_first:
            self._look()

    def step_update(self, seed, n, noise, weight):
        given, more, rows = self._data(seed, n, noise, weight)
        result = outcome(lambda: self.model.update(*given, **more))
        if is_error(result) and isinstance(result, rfgp.NotFittedError):
            assert not self.state.numbers or not self.state.has_data, result
            return
        if self._refused(result, rows, 1):
            return
        self.state = replace(self.state, rows=[*self.state.rows, rows])

    def step_set(self, **factors):
        if not self.state.numbers:
            return
        names = [*self.state.numbers]
        new = {names[int(place) % len(names)]: factor for place, factor in factors.items()}
        values = {
            name: value + np.log(new[name]) if name == "mean" else value * new[name]
            for name, value in self.state.numbers.items()
            if name in new
        }
        self.model.hyperparameters.set(**{self._path(name): value for name, value in values.items()})
        self.state = replace(self.state, numbers={**self.state.numbers, **values}, is_moved=not self.state.has_data)

    def step_redraw(self, seed, m, coupling):
        if self.is_exact:
            return
        if coupling == "structured" and self.setup.get("spectrum") != "gaussian":
            coupling = "orthogonal"  # there are no others
        if self.is_graph:
            approximation = replace(self.model.approximation, seed=seed)
        elif self.state.numbers:
            name, own = next(iter(self.model.spec.approximations.items()))
            approximation = {name: replace(own, num_frequencies=m, coupling=coupling, seed=seed)}
        else:
            approximation = rfgp.RandomFeatures(m, coupling=coupling, seed=seed)
        result = outcome(lambda: self.model.with_approximation(approximation))
        if self._needs_data(result):
            return
        self._keep_other()
        self.model = result
        numbers = self.state.numbers
        self._look()
        for name, value in numbers.items():
            rtol = 1e-5 if self.setup.get("single") else 1e-13
            np.testing.assert_allclose(self.state.numbers[name], value, rtol=rtol)

    def step_exact(self):
        if self.is_exact and not self.is_graph:
            return
        result = outcome(self.model.exact)
        if self._needs_data(result):
            return
        self._keep_other()
        self.model, self.is_exact = result, True

    def step_save_and_load(self, data):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            result = outcome(lambda: self.model.save(path, data=data))
            if is_error(result):
                bare = not self.state.numbers or self.state.is_moved or (data and not self.state.has_data)
                needs = (self.is_exact or self.setup.get("local")) and not self.is_graph and not data
                assert needs or (bare and isinstance(result, rfgp.NotFittedError)), result
                assert not list(Path(folder).iterdir())
                return
            self._keep_other()
            self.model = rfgp.load(path)
        self.state = replace(self.state, has_data=data)

    def step_deepcopy(self):
        self._keep_other()
        self.model = copy.deepcopy(self.model)

    def step_pickle(self):
        self._keep_other()
        self.model = pickle.loads(pickle.dumps(self.model))

    def step_shallow_copy(self, seed, n):
        """A shallow copy answers alike, and other data for it are no other data for this one."""
        if not self.state.numbers:
            return
        other = copy.copy(self.model)
        given, _, rows = self._data(seed, n, False, False)
        result = outcome(lambda: other.condition(*given))
        if not is_error(result):
            _compare(self, other, replace(self.state, rows=[rows], has_data=True, is_moved=False), seed)

    def step_bad_update(self, kind):
        """Rows that cannot be used are named, and leave the model as it was."""
        given, _, _ = self._data(5, 6, False, False)
        X, y = given[0], given[1] if self.setup.get("tensors") else np.nan_to_num(given[1])
        if kind == "length":
            y = y[:-1]
        elif kind == "nan" and not self.is_graph:
            y = y * float("nan")
        elif kind == "columns" and not self.is_graph:
            X = X[:, :2]
        elif kind == "unknown" and self.is_graph:
            X = [*X[:-1], "nowhere"]
        else:
            y = "no numbers"
        calls = [self.model.update, self.model.condition, *([self.model.fit] if kind != "columns" else [])]
        for call in calls if self.state.numbers or kind != "columns" else []:  # other columns are fine for a first time
            if not is_error(outcome(lambda call=call: call(X, y))):
                raise FoundError(f"{call.__name__} took bad rows: {kind}")

    def step_compare(self, seed):
        """Everything that both can say is the same."""
        _compare(self, self.model, self.state, seed)

    def step_leave_one_out(self):
        result = outcome(self.model.leave_one_out)
        if self._needs_data(result):
            return
        K, rows, k = self._matrices(self.state, None)[0], _stacked(self.state.rows), max(self.setup["outputs"], 1)
        for j in range(k):
            scale, noise, mean = (_entry(self.state.numbers[name], j) for name in ("outputscale", "noise", "mean"))
            y = rows.y.reshape(len(rows.y), -1)[:, j]
            expected = twin.leave_one_out(scale * K, y, noise + rows.noise, mean, rows.group)
            spread = max(y.std(), abs(y - mean).max(), 1e-12)
            for found, want, unit in zip((result.mean, result.variance), expected, (spread, spread**2), strict=True):
                self._close(_column(found, j), want, unit, "leave_one_out")

    def step_sample(self, seed):
        """Samples have the law that they are drawn from."""
        if not self.state.numbers or self.state.is_moved:
            return
        new = self._new(seed)
        p = self.model.predict(new)
        drawn = p.sample(1500, generator=torch.Generator().manual_seed(seed))
        again = p.sample(1500, generator=torch.Generator().manual_seed(seed))
        np.testing.assert_array_equal(drawn, again)
        self._has_law(drawn, p)
        self._has_law(self.model.sample_functions(1500, seed=seed)(new) if self._has_functions else drawn, p)

    @property
    def _has_functions(self):
        return self.is_graph or not (self.is_exact or self.setup.get("local"))

    def _has_law(self, drawn, p):
        drawn, mean, variance = (np.asarray(v, dtype=float) for v in (drawn, p.mean, p.variance))
        variance = np.broadcast_to(variance, mean.shape)
        error = np.sqrt(np.maximum(variance, 0) / len(drawn)) + 1e-4 * (np.abs(mean) + np.sqrt(variance.max()) + 1e-9)
        assert (np.abs(drawn.mean(0) - mean) < ALARM * error).all(), "the mean of samples is another one"
        spread = variance * np.sqrt(2 / len(drawn)) + 1e-4 * (variance.max() + 1e-9)
        assert (np.abs(drawn.var(0) - variance) < ALARM * spread).all(), "the variance of samples is another one"

    # --- the twin --------------------------------------------------------------------------------

    def finish(self):
        """Compare the model, and all that it was copied from, with what they were then."""
        for model, state, is_exact in [*self.others[-4:], (self.model, self.state, self.is_exact)]:
            self.is_exact = is_exact
            _compare(self, model, state, 3)

    def _keep_other(self):
        self.others.append((self.model, copy.copy(self.state), self.is_exact))

    def _refused(self, result, rows, least):
        """Whether rows were refused; only too few of them may be, or constant targets."""
        if not is_error(result):
            return False
        y = rows[1].reshape(len(rows[1]), -1)
        is_constant = len(y) == 0 or bool((np.ptp(y, axis=0) == 0).any())
        if isinstance(result, rfgp.DataError) and (len(y) < least or (is_constant and least > 1)):
            return True
        raise FoundError(f"good rows were refused: {type(result).__name__}: {result}") from result

    def _needs_data(self, result):
        if not is_error(result):
            assert self.state.numbers, "an answer without data"
            assert self.state.has_data, "an answer without data"
            return False
        lacks = not self.state.numbers or not self.state.has_data
        if lacks and isinstance(result, rfgp.NotFittedError):
            return True
        raise FoundError(f"{type(result).__name__}: {result}") from result

    def _look(self):
        """Read off the model what the twin cannot know: the numbers after a fit, and the draw."""
        h = self.model.hyperparameters
        names = [_short(name) for name in h.names if not name.endswith(".frequencies")]
        self.state.numbers = {name: h[self._path(name)].detach().numpy().astype(float) for name in names}
        if self.is_graph:
            walks = self.model.walks
            self.state.draw = None if walks is None else walks.at(self.labels)
            return
        X = np.vstack([rows[0] for rows in self.state.rows]).astype(float)
        if self.setup["standardize"] and len(self.state.rows) == 1 and np.ndim(self.state.location) == 0:
            self.state.location = np.average(X, axis=0, weights=self.state.rows[0][3])
        if not self.is_exact:
            frequencies = self.model.spec.term_priors[0].parts[0].feature_map.frequencies
            self.state.draw = tuple(t.detach().clone().numpy() for t in (frequencies.dense(), frequencies.weights))

    def _compare_numbers(self):
        if not self.state.numbers:
            return
        h = self.model.hyperparameters
        rtol = 1e-5 if self.setup.get("single") else 1e-12
        for name, value in self.state.numbers.items():
            np.testing.assert_allclose(h[self._path(name)].detach().numpy(), value, rtol=rtol, err_msg=name)

    def _path(self, short):
        """The path of a hyperparameter of the model by its name in the twin."""
        return next(name for name in self.model.hyperparameters.names if _short(name) == short)

    def _new(self, seed):
        if self.is_graph:
            return [self.labels[k] for k in np.random.default_rng([4, seed]).permutation(NODES)[:6]]
        new = table_data(seed + 1000, 5, 0, False, False, self.setup["single"])[0]
        return torch.as_tensor(new) if self.setup["tensors"] else new

    def _matrices(self, state, new):
        """K of all rows, repeated ones among them, the cross-covariance and the prior at new points, without scale."""
        rows = _stacked(state.rows)
        if self.is_graph:
            K = self._graph_kernel(state)
            a = rows.X
            b = a[:0] if new is None else np.array([self.labels.index(label) for label in new])
            return K[a][:, a], K[b][:, a], K[b][:, b]
        ell, b = state.numbers["lengthscale"], rows.X[:0] if new is None else np.asarray(new, float)
        own = self._stationary(self.setup["spectrum"], rows.X / ell, b / ell) if self.is_exact else None
        if own is None:
            own = self._through_features(state, (rows.X - state.location) / ell, (b - state.location) / ell)
        if "local_lengthscale" not in state.numbers:
            return own
        ell = state.numbers["local_lengthscale"]
        share = np.ravel(state.numbers["local_outputscale"] / state.numbers["outputscale"])[0]  # of all outputs alike
        near = self._stationary(self.setup["local"], rows.X / ell, b / ell)
        return tuple(one + share * other for one, other in zip(own, near, strict=True))

    def _stationary(self, name, a, b):
        return tuple(twin.stationary(name, *pair) for pair in ((a, a), (b, a), (b, b)))

    def _through_features(self, state, a, b):
        phi = {"fourier": twin.fourier, "laplace": twin.laplace}[self.setup["features"]]
        fa, fb = phi(a, *state.draw), phi(b, *state.draw)
        return fa @ fa.T, fb @ fa.T, fb @ fb.T

    def _graph_kernel(self, state):
        name = {"diffusion": "lengthscale", "matern": "kappa", "regularized-laplacian": "sigma"}[self.setup["kernel"]]
        scale = float(state.numbers[name])
        root = {
            "diffusion": lambda v: np.exp(-(scale**2) / 4 * v),
            "matern": lambda v: (3 / scale**2 + v) ** -0.75,
            "regularized-laplacian": lambda v: 1 / (1 + scale**2 * v),
        }[self.setup["kernel"]]
        features = "exact" if self.is_exact else self.setup["features"]
        if features == "walks":
            kernel = graphs.kernels.by_name(self.setup["kernel"]).with_values([scale])
            phi = state.draw.features(kernel).toarray()
            return phi @ phi.T
        L = twin.laplacian(self.adjacency)
        values, vectors = np.linalg.eigh(L)
        values = np.maximum(values, 0)
        weights = root(values)
        if features == "spectrum":
            weights[6:] = 0
        elif features == "chebyshev":
            series = np.polynomial.chebyshev.chebinterpolate(lambda u: root(1 - u), 4)
            weights = np.polynomial.chebyshev.chebval(1 - values, series)
        elif features == "taylor":
            weights = np.polynomial.polynomial.polyval(1 - values, _modulation(self.setup["kernel"], scale))
        return (vectors * weights**2) @ vectors.T

    def _close(self, found, expected, unit, what):
        kind = "float32" if self.setup.get("single") else "float64"
        kind = "sparse" if self.is_graph and not self.is_exact else kind
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE[kind], atol=TOLERANCE[kind] * unit, err_msg=what)


@dataclass
class _Rows:
    X: Any
    y: Any
    noise: Any
    group: Any  # rows that are repetitions of one


def _stacked(blocks):
    X, y, noise, weight = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    return _Rows(X[again] if X.dtype.kind == "i" else X[again].astype(float), y[again], noise[again], again)


def _short(path):
    """The name of a hyperparameter in the twin, which has one term, or two with the second one local."""
    return path.replace("local.", "local_").rpartition(".")[2]


def _modulation(name, scale):
    """Coefficients 0..5 of the root's power series in U = I - L."""
    ell = np.arange(6)
    if name == "diffusion":
        return scipy.stats.poisson.pmf(ell, scale**2 / 4)
    if name == "matern":
        a = 3 / scale**2
        return a**-0.75 * scipy.stats.nbinom.pmf(ell, 0.75, a / (1 + a))
    return scipy.stats.nbinom.pmf(ell, 1, 1 / (1 + scale**2))


def _entry(value, j):
    return float(value) if np.ndim(value) == 0 else float(value[j])


def _column(value, j):
    value = np.asarray(value, dtype=float)
    return value if value.ndim == 1 else value[:, j]


def _compare(session, model, state, seed):
    """Mean, variance, covariance and log marginal likelihood of a model are those of the twin in a state."""
    new = session._new(seed)
    p = outcome(lambda: model.predict(new))
    mean = outcome(lambda: p.mean) if not is_error(p) else p
    if is_error(mean):
        if (not state.numbers or state.is_moved) and isinstance(mean, rfgp.NotFittedError):
            return
        raise FoundError(f"{type(mean).__name__}: {mean}")
    assert state.numbers
    K, cross, prior = session._matrices(state, new)
    rows, total = _stacked(state.rows), 0.0
    covariance = np.asarray(p.covariance, dtype=float)
    for j in range(max(session.setup["outputs"], 1)):
        scale, noise, center = (_entry(state.numbers[name], j) for name in ("outputscale", "noise", "mean"))
        y = rows.y.reshape(len(rows.y), -1)[:, j]
        wide = noise + rows.noise
        m, C = twin.posterior(scale * K, scale * cross, scale * prior, y, wide, center)
        total += twin.log_prob(scale * K, y, wide, center)
        unit = max(float(np.sqrt(scale * np.diag(prior).max())), float(np.abs(y - center).max()), 1e-12)
        session._close(_column(mean, j), m, unit, "mean")
        session._close(covariance if covariance.ndim == 2 else covariance[..., j], C, unit**2, "covariance")
        session._close(_column(p.variance, j), np.diag(C), unit**2, "variance")
        session._close(_column(p.observed().variance, j), np.diag(C) + noise, unit**2, "observed variance")
    found = outcome(model.log_marginal_likelihood)
    if is_error(found):
        if not state.has_data and isinstance(found, rfgp.NotFittedError):
            return
        raise FoundError(f"{type(found).__name__}: {found}")
    session._close(float(found.detach()), total, 1 + len(rows.y), "log marginal likelihood")


def replay(plan):
    """Make the steps of a plan.

    Raises:
        FoundError: the model is not its twin.
    """
    session = Session(plan["setup"])
    for name, arguments in plan["steps"]:
        session.do(name, **arguments)
    session.finish()
