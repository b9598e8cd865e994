"""The regressor on the nodes of a graph."""

import pickle
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator
from torch import distributions

import graphs
import rfgp
from rfgp.sklearn import GraphGPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning", "ignore::rfgp.ConvergenceWarning")

GRID = nx.grid_2d_graph(7, 6)
GRAPH = graphs.Graph.from_networkx(GRID)
LABELS = list(GRAPH.labels)
Y = np.array([np.sin(a / 2) + np.cos(b / 2) for a, b in LABELS]) + 0.05 * np.random.default_rng(0).standard_normal(42)
PAIR = np.stack([Y, 10 - Y**2], axis=1)
SEEN, HIDDEN = LABELS[::2], LABELS[1::2]
NUMBERED = graphs.Graph.from_scipy(GRAPH.adjacency)
NAMED = graphs.Graph.from_networkx(nx.relabel_nodes(GRID, lambda node: f"{node[0]}-{node[1]}"))


def regressor(**options):
    return GraphGPRegressor(**{"graph": GRAPH, "random_state": 0, **options})


def objects(labels):
    out = np.empty(len(labels), dtype=object)
    out[:] = labels
    return out


@pytest.mark.parametrize("features", ["exact", "walks"])
@pytest.mark.parametrize("y", [Y, PAIR], ids=["one", "two"])
def test_it_equals_the_process_of_the_same_seed(features, y):
    estimator = regressor(features=features, n_walkers=16, max_iter=5).fit(SEEN, y[::2])
    gp = rfgp.GraphGP(GRAPH, features=features, num_walkers=16, seed=0).fit(SEEN, y[::2], max_iterations=5)
    p = gp.predict(HIDDEN)
    mean, std = estimator.predict(HIDDEN, return_std=True)
    np.testing.assert_array_equal(mean, p.mean)
    np.testing.assert_array_equal(std, p.std)
    np.testing.assert_array_equal(estimator.predict(HIDDEN, return_cov=True)[1], p.covariance)
    assert estimator.log_marginal_likelihood_value_ == gp.fit_report.log_marginal_likelihood
    assert estimator.sample_y(HIDDEN, 3).shape == (21, *y.shape[1:], 3)


@pytest.mark.parametrize("form", [list, objects], ids=["list", "array"])
def test_weights_repeat_observations(form):
    weight = np.arange(21) % 3
    rows = np.repeat(np.arange(21), weight)
    options = {"features": "exact", "fixed": ("lengthscale", "outputscale", "noise", "mean")}
    once = regressor(**options).fit(form(SEEN), Y[::2], sample_weight=weight)
    several = regressor(**options).fit([SEEN[i] for i in rows], Y[::2][rows])
    np.testing.assert_allclose(once.predict(HIDDEN), several.predict(HIDDEN), rtol=1e-9)
    assert once.log_marginal_likelihood_value_ == pytest.approx(several.log_marginal_likelihood_value_, rel=1e-9)
    assert once.gp_.num_observations == 14


@pytest.mark.filterwarnings("ignore::graphs.GraphWarning")
def test_warnings_call_options_as_the_estimator_does():
    options = {"features": "walks", "exact_hops": 0, "noise": 1e-5}
    with pytest.warns(rfgp.PoorFeaturesWarning, match=r"Use more of them \(n_walkers\), other ones"):
        regressor(n_walkers=2, fixed=("noise",), **options).fit(SEEN, Y[::2])
    with pytest.warns(rfgp.PoorFeaturesWarning, match=r"Use more of them \(num_walkers, degree, rank\), other ones"):
        rfgp.GraphGP(GRAPH, num_walkers=2, seed=0, **options).fit(SEEN, Y[::2], fixed="noise")


COMMON = {"outputscale": 0.5, "noise": 0.01, "features": "walks"}


@pytest.fixture(scope="module")
def plain():
    return regressor(n_walkers=8, fixed=("outputscale", "noise"), max_iter=3, **COMMON).fit(SEEN, Y[::2])


@pytest.mark.filterwarnings("ignore::graphs.GraphWarning")  # walks without exact hops, or that halt often
@pytest.mark.parametrize(
    "option",
    [
        {"kernel": graphs.kernels.RegularizedLaplacian(order=2, sigma=1.0)},
        {"p_halt": 0.3},
        {"lengths": "iid"},
        {"step_coupling": "independent"},
        {"exact_hops": 0},
        {"outputscale": 0.3},
        {"noise": 0.02},
        {"priors": {"lengthscale": distributions.LogNormal(0.0, 0.1)}},
        {"walk_options": {"max_nonzeros": 12}},
    ],
    ids=lambda option: next(iter(option)),
)
@pytest.mark.slow
def test_options_reach_the_process(option, plain):
    common, fixed = COMMON | option, ("outputscale", "noise")
    other = regressor(n_walkers=8, fixed=fixed, max_iter=3, **common).fit(SEEN, Y[::2])
    gp = rfgp.GraphGP(GRAPH, num_walkers=8, seed=0, **common).fit(SEEN, Y[::2], fixed=fixed, max_iterations=3)
    assert other.log_marginal_likelihood_value_ == gp.fit_report.log_marginal_likelihood
    assert other.log_marginal_likelihood_value_ != plain.log_marginal_likelihood_value_


def test_samples_have_the_predicted_distribution():
    estimator = regressor().fit(SEEN, Y[::2])
    mean, covariance = estimator.predict(HIDDEN[:4], return_cov=True)
    draws = estimator.sample_y(HIDDEN[:4], 20_000, random_state=1)
    error = np.sqrt(np.diag(covariance) / 20_000)
    assert (np.abs(draws.mean(1) - mean) < 6 * error).all()
    spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert (np.abs(np.cov(draws) - covariance) < 6 * spread * np.sqrt(2 / 20_000)).all()
    np.testing.assert_array_equal(draws, estimator.sample_y(HIDDEN[:4], 20_000, random_state=1))


FORMS = {
    "a list of tuples": (GRAPH, lambda nodes: nodes),
    "an array of objects": (GRAPH, objects),
    "a column of objects": (GRAPH, lambda nodes: objects(nodes)[:, None]),
    "rows of two": (GRAPH, np.array),
    "a series of tuples": (GRAPH, lambda nodes: pd.Series(nodes)),
    "positions": (NUMBERED, lambda nodes: GRAPH.index(nodes)),
    "a column of positions": (NUMBERED, lambda nodes: GRAPH.index(nodes)[:, None]),
    "a list of columns": (NUMBERED, lambda nodes: [[int(i)] for i in GRAPH.index(nodes)]),
    "a table": (NUMBERED, lambda nodes: pd.DataFrame({"node": GRAPH.index(nodes)})),
    "strings": (NAMED, lambda nodes: [f"{a}-{b}" for a, b in nodes]),
    "an array of strings": (NAMED, lambda nodes: np.array([f"{a}-{b}" for a, b in nodes])),
    "a column of strings": (NAMED, lambda nodes: np.array([[f"{a}-{b}"] for a, b in nodes])),
}


@pytest.fixture(scope="module")
def expected():
    return regressor().fit(SEEN, Y[::2]).predict(HIDDEN, return_std=True)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", FORMS)
def test_labels_come_in_many_forms(form, expected):
    graph, written = FORMS[form]
    found = regressor(graph=graph).fit(written(SEEN), Y[::2]).predict(written(HIDDEN), return_std=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::graphs.GraphWarning")  # few walkers
@pytest.mark.slow
def test_a_grid_search_with_workers():
    kernels = ["regularized-laplacian", graphs.kernels.Diffusion(2.0)]
    grid = {"kernel": kernels, "n_walkers": [4, 16]}
    estimator = regressor(features="walks", fixed=("lengthscale", "outputscale", "noise", "mean"))
    one, two = (GridSearchCV(estimator, grid, cv=2, n_jobs=jobs).fit(LABELS, Y) for jobs in (1, 2))
    np.testing.assert_allclose(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"], rtol=1e-6)
    assert len(set(one.cv_results_["mean_test_score"])) == 4
    assert one.best_estimator_.graph is GRAPH


def test_clones_share_the_graph_and_nothing_else():
    kernel = graphs.kernels.Diffusion(3.0)
    estimator = regressor(kernel=kernel, fixed=["noise"], n_walkers=8, walk_options={"max_nonzeros": 32})
    other = clone(estimator)
    assert other.graph is GRAPH
    assert other.fixed == ["noise"]
    assert other.fixed is not estimator.fixed
    assert {**other.get_params(), "graph": 0} == {**estimator.get_params(), "graph": 0}
    fitted = clone(estimator.fit(SEEN, Y[::2]))
    assert not hasattr(fitted, "gp_")
    assert estimator.graph is GRAPH
    with config_context(enable_metadata_routing=True):
        asked = clone(estimator.set_score_request(sample_weight=True))
        assert asked.get_metadata_routing().score.requests == {"sample_weight": True}


@pytest.mark.parametrize("features", ["exact", "walks"])
def test_pickles(features):
    estimator = regressor(features=features, n_walkers=16).fit(SEEN, Y[::2])
    other = pickle.loads(pickle.dumps(estimator))
    for one, two in zip(estimator.predict(HIDDEN, True), other.predict(HIDDEN, True), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_constant_target_is_predicted_and_said_so():
    estimator = regressor()
    with pytest.warns(rfgp.ConstantTargetWarning, match=r"The target is constant \(3\)"):
        estimator.fit(SEEN, np.full(21, 3))
    mean, std = estimator.predict(HIDDEN, return_std=True)
    np.testing.assert_array_equal(mean, np.full(21, 3.0))
    assert not std.any()


def test_tags_name_accepted_inputs():
    estimator = regressor()
    assert is_regressor(estimator)
    with pytest.warns(SkipTestWarning, match="requires input"):
        check_estimator(estimator)
    assert not hasattr(estimator.fit(SEEN, Y[::2]), "n_features_in_")


@pytest.mark.parametrize(
    ("options", "x", "y", "error", "message"),
    [
        ({"graph": None}, SEEN, Y[::2], rfgp.InvalidArgumentError, "graph is missing: build one"),
        ({"graph": GRID}, SEEN, Y[::2], rfgp.InvalidArgumentError, r"graphs\.Graph, got Graph"),
        ({"n_walkers": 0}, SEEN, Y[::2], rfgp.InvalidArgumentError, "n_walkers must be a positive integer"),
        ({"kernel": "cubic"}, SEEN, Y[::2], graphs.errors.InvalidArgumentError, "got 'cubic'"),
        ({"features": "fourier"}, SEEN, Y[::2], rfgp.InvalidArgumentError, "features must be one of"),
        ({"random_state": 0.5}, SEEN, Y[::2], rfgp.InvalidArgumentError, "random_state must be"),
        ({}, [(99, 99), *SEEN[1:]], Y[::2], KeyError, r"\(99, 99\)"),
        ({}, SEEN, None, ValueError, "requires y to be passed, but the target y is None"),
        ({}, SEEN, Y[1:20], ValueError, "inconsistent numbers of samples"),
        ({}, SEEN, np.full(21, np.nan), ValueError, "Input y contains NaN"),
        ({}, SEEN, ["red"] * 21, ValueError, "could not convert string to float"),
        ({}, SEEN[:1], Y[:1], ValueError, "at least two observations, got one sample"),
        ({}, "node", Y[::2], ValueError, "X must be n labels of nodes, got 'node'"),
        ({}, np.zeros((2, 2, 2)), Y[:2], ValueError, r"got shape \(2, 2, 2\)"),
        ({}, sp.csr_array(np.eye(21)), Y[::2], ValueError, "got a sparse matrix"),
        ({"graph": NUMBERED}, np.linspace(0, 1, 21), Y[::2], KeyError, r"integers 0\.\.41"),
    ],
)
def test_bad_inputs_are_named(options, x, y, error, message):
    with pytest.raises(error, match=message):
        regressor(**options).fit(x, y)


def test_bad_calls_are_named():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        regressor().predict(HIDDEN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = regressor().fit(SEEN, Y[::2])
    with pytest.raises(rfgp.DataError, match=r"\(99, 99\)"):
        estimator.predict([(99, 99)])
