"""A time limit ends searches, and the model is conditioned at the best hyperparameters so far."""

import sys
import warnings

import networkx as nx
import numpy as np
import pytest
import trimesh

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPRegressor

pytestmark = pytest.mark.filterwarnings(  # few rows and few features, to be fast
    *(
        f"ignore::rfgp.{name}Warning"
        for name in ("VarianceStarvation", "BaselineNotBeaten", "Overfitting", "Underfitting")
    )
)

ROADS = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 1)]], metric="euclidean")
BALL = trimesh.creation.icosphere(2)
GRID = nx.grid_2d_graph(12, 12)
FEATURES = rfgp.RandomFeatures(8)
LEARNED = rfgp.RandomFeatures(8, learn_frequencies=True)
SUM = k.RBF(name="a") + k.Matern(nu=1.5, name="b")


def table(kind="numbers", rows=260):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    f = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
    y = f + 0.1 * rng.normal(size=rows)
    inputs = {
        "one column": X[:, :1],
        "mesh": BALL.vertices[rng.integers(0, len(BALL.vertices), rows)],
        "roads": np.c_[rng.integers(0, 2, rows), rng.random(rows)],
        "graph": list(GRID.nodes) * 2,
    }.get(kind, X)
    targets = {"counts": rng.poisson(np.exp(f)), "classes": rng.integers(0, 3, rows)}.get(kind, y)
    return inputs, np.resize(targets, len(inputs))


KINDS = {
    "dense": (lambda **o: rfgp.GP(k.RBF(), approximation=rfgp.Exact(), **o), "numbers"),
    "low rank": (lambda **o: rfgp.GP(k.RBF(), approximation=FEATURES, **o), "numbers"),
    "learned": (lambda **o: rfgp.GP(k.RBF(), approximation=LEARNED, **o), "numbers"),
    "inducing": (lambda **o: rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(8), **o), "numbers"),
    "lattices": (lambda **o: rfgp.GP(k.RBF(), approximation=rfgp.EquispacedFourier(), **o), "one column"),
    "chain": (lambda **o: rfgp.GP(k.Matern(nu=1.5), approximation=rfgp.SparsePrecision(), **o), "one column"),
    "neighbors": (lambda **o: rfgp.GP(k.Matern(nu=1.5), approximation=rfgp.Vecchia(5), **o), "numbers"),
    "both": (lambda **o: rfgp.GP(SUM, approximation={"a": FEATURES, "b": rfgp.Vecchia(5)}, **o), "numbers"),
    "both learned": (lambda **o: rfgp.GP(SUM, approximation={"a": LEARNED, "b": rfgp.Vecchia(5)}, **o), "numbers"),
    "laplace": (lambda **o: rfgp.GP(k.RBF(), "poisson", approximation=FEATURES, **o), "counts"),
    "variational": (lambda **o: rfgp.GP(k.RBF(), "student-t", approximation=FEATURES, **o), "numbers"),
    "noise process": (lambda **o: rfgp.GP(k.RBF(), "heteroscedastic", approximation=FEATURES, **o), "numbers"),
    "classes": (lambda **o: rfgp.GP(k.RBF(), "categorical", approximation=FEATURES, **o), "classes"),
    "mesh": (lambda **o: rfgp.MeshGP(BALL, **o), "mesh"),
    "roads": (lambda **o: rfgp.RoadGP(ROADS, "auto", **o), "roads"),
    "walks": (
        lambda **o: rfgp.GraphGP(graphs.Graph.from_networkx(GRID), features="walks", num_walkers=4, **o),
        "graph",
    ),
    "selection": (rfgp.GP, "numbers"),
}


@pytest.fixture
def time_passes(monkeypatch):
    """Let the time limit pass after some looks at the clock."""

    def let_pass(looks):
        times = iter([0.0] * (looks + 1))
        monkeypatch.setattr(sys.modules["rfgp.fitting.maximize"], "clock", lambda: next(times, np.inf))

    return let_pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("looks", [0, 12])
def test_no_search_outlasts_the_time_limit(time_passes, kind, looks):
    """Each evaluation is followed by a look at the clock."""
    make, data = KINDS[kind]
    X, y = table(data)
    time_passes(looks)
    with pytest.warns(rfgp.ConvergenceWarning, match="time_limit"):
        gp = make(seed=0, time_limit=9).fit(X, y)
    report = gp.fit_report
    assert not report.converged
    assert report.evaluations <= looks + 1
    assert "the time limit passed" in report.message
    assert np.isfinite(report.log_marginal_likelihood)
    assert np.isfinite(gp.predict(X[:5]).mean).all()


@pytest.mark.parametrize("looks", [11, 14, 17])
def test_best_hyperparameters_so_far_are_kept(time_passes, looks):
    """Evaluations within a line search may be lower than the last iteration."""
    X, y = table()
    time_passes(looks)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), time_limit=9, seed=0)
    with pytest.warns(rfgp.ConvergenceWarning, match="time_limit"):
        gp.fit(X, y)
    trace = gp.fit_report.trace
    assert len(trace) > 1
    reached = gp.fit_report.log_marginal_likelihood + float(gp.hyperparameters.values.log_hyperprior())
    assert reached == pytest.approx(max(trace), abs=1e-6)


def test_reason_names_searches_that_time_ended(time_passes):
    X, y = table()
    time_passes(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rfgp.ConvergenceWarning)
        selection = rfgp.GP(time_limit=9, seed=0).fit(X, y).selection
    assert "The time limit ended the search of exact" in selection.reason
    assert any("75% of the time limit of 9 s had passed" in trial.status for trial in selection.trials)


def test_reason_says_how_long_a_selection_took():
    with pytest.warns(rfgp.ConvergenceWarning, match="time_limit"):
        gp = rfgp.GP(time_limit=1e-9, seed=0).fit(*table())
    assert "more than the limit of 1e-09 s" in gp.selection.reason
    assert "more than the limit" in rfgp.GP(time_limit=1e-9, seed=0).select(*table()).reason


def test_repeated_fit_continues_where_time_ended_it(time_passes, tmp_path, monkeypatch):
    """The checkpoint holds the steps until then, but none that an unlimited fit would not take."""
    X, y = table()
    make, file = KINDS["low rank"][0], tmp_path / "fit"
    time_passes(25)
    with pytest.warns(rfgp.ConvergenceWarning, match="time_limit"):
        make(seed=0, time_limit=9).fit(X, y, checkpoint=file)
    size = file.stat().st_size
    monkeypatch.undo()
    resumed, whole = make(seed=0, time_limit=4000).fit(X, y, checkpoint=file), make(seed=0).fit(X, y)
    assert file.stat().st_size > size > 1000
    assert resumed.fit_report.trace == whole.fit_report.trace


def test_estimators_end_searches_too(time_passes):
    X, y = table()
    time_passes(3)
    with pytest.warns(rfgp.ConvergenceWarning, match="time_limit"):
        GPRegressor(k.RBF(), approximation=rfgp.Exact(), time_limit="9s", random_state=0).fit(X, y)
