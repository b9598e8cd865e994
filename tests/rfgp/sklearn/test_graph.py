"""The estimators on the nodes of a graph."""

import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError
from torch import distributions

import graphs
import rfgp
from rfgp.sklearn import GraphGPClassifier, GraphGPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")  # few walkers

GRID = nx.grid_2d_graph(7, 6)
GRAPH = graphs.Graph.from_networkx(GRID)
LABELS = list(GRAPH.labels)
Y = np.array([np.sin(a / 2) + np.cos(b / 2) for a, b in LABELS]) + 0.05 * np.random.default_rng(0).standard_normal(42)
PAIR = np.stack([Y, 10 - Y**2], axis=1)
SEEN, HIDDEN = LABELS[::2], LABELS[1::2]
NUMBERED = graphs.Graph.from_scipy(GRAPH.adjacency)
NAMED = graphs.Graph.from_networkx(nx.relabel_nodes(GRID, lambda node: f"{node[0]}-{node[1]}"))


def regressor(**options):
    return GraphGPRegressor(**{"graph": GRAPH, "random_state": 0, "max_iter": 5, **options})


def objects(labels):
    out = np.empty(len(labels), dtype=object)
    out[:] = labels
    return out


COMMON = {"outputscale": 0.5, "noise": 0.01, "features": "walks"}
OPTIONS = [
    {"kernel": graphs.kernels.RegularizedLaplacian(order=2, sigma=1.0)},
    {"p_halt": 0.3},
    {"lengths": "iid"},
    {"step_coupling": "independent"},
    {"exact_hops": 0},
    {"outputscale": 0.3},
    {"noise": 0.02},
    {"priors": {"lengthscale": distributions.LogNormal(0.0, 0.1)}},
    {"walk_options": {"max_nonzeros": 12}},
]


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: next(iter(option)))
def test_options_reach_the_process(option):
    fixed, options = ("outputscale", "noise"), {**COMMON, **option}
    found = regressor(n_walkers=8, fixed=fixed, **options).fit(SEEN, Y[::2]).log_marginal_likelihood_value_
    gp = rfgp.GraphGP(GRAPH, num_walkers=8, seed=0, **options).fit(SEEN, Y[::2], fixed=fixed, max_iterations=5)
    assert found == gp.fit_report.log_marginal_likelihood
    assert found != regressor(n_walkers=8, fixed=fixed, **COMMON).fit(SEEN, Y[::2]).log_marginal_likelihood_value_


@pytest.mark.parametrize(("features", "y"), [("exact", PAIR), ("walks", Y)], ids=["exact", "walks"])
def test_the_regressor_equals_the_process_of_the_same_seed(features, y):
    estimator = regressor(features=features, n_walkers=16).fit(SEEN, y[::2])
    gp = rfgp.GraphGP(GRAPH, features=features, num_walkers=16, seed=0).fit(SEEN, y[::2], max_iterations=5)
    p = gp.predict(HIDDEN)
    mean, std = estimator.predict(HIDDEN, return_std=True)
    np.testing.assert_array_equal(mean, p.mean)
    np.testing.assert_array_equal(std, p.std)
    np.testing.assert_array_equal(estimator.predict(HIDDEN, return_cov=True)[1], p.covariance)
    assert estimator.log_marginal_likelihood_value_ == gp.fit_report.log_marginal_likelihood
    draws = estimator.sample_y(HIDDEN, 3, random_state=1)
    np.testing.assert_array_equal(draws, np.moveaxis(p.sample(3, seed=1), 0, -1))
    other = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(other.predict(HIDDEN), mean)


@pytest.mark.parametrize(("features", "classes"), [("exact", 2), pytest.param("walks", 3, marks=pytest.mark.slow)])
def test_the_classifier_equals_the_process_of_the_same_seed(features, classes):
    codes = np.minimum((np.array(LABELS)[:, 0] > 3) + 1 * (np.array(LABELS)[:, 1] > 3), classes - 1)
    options = {"features": features, "inference": "laplace"}
    found = GraphGPClassifier(GRAPH, random_state=0, **options).fit(SEEN, np.array(["a", "b", "c"])[codes[::2]])
    likelihood = "bernoulli" if classes == 2 else rfgp.likelihoods.Categorical(3)
    gp = rfgp.GraphGP(GRAPH, likelihood=likelihood, seed=0, **options).fit(SEEN, codes[::2].astype(float))
    shares, mean = found.predict_proba(HIDDEN), gp.predict(HIDDEN).observed().mean
    np.testing.assert_array_equal(shares[:, 1] if classes == 2 else shares, mean)
    assert found.score(HIDDEN, np.array(["a", "b", "c"])[codes[1::2]]) > 0.8


def test_weights_repeat_observations():
    weight = np.arange(21) % 3
    rows = np.repeat(np.arange(21), weight)
    options = {"features": "exact", "fixed": ("lengthscale", "outputscale", "noise", "mean")}
    once = regressor(**options).fit(SEEN, Y[::2], sample_weight=weight)
    several = regressor(**options).fit([SEEN[i] for i in rows], Y[::2][rows])
    np.testing.assert_allclose(once.predict(HIDDEN), several.predict(HIDDEN), rtol=1e-9)
    assert once.log_marginal_likelihood_value_ == pytest.approx(several.log_marginal_likelihood_value_, rel=1e-9)
    assert once.gp_.num_observations == 14


def test_warnings_name_the_arguments_of_the_estimator():
    options = {"features": "walks", "exact_hops": 0, "noise": 1e-5, "fixed": ("noise",)}
    with pytest.warns(rfgp.PoorFeaturesWarning, match="n_walkers"):
        regressor(n_walkers=2, **options).fit(SEEN, Y[::2])


FORMS = {
    "an array of objects": (GRAPH, objects),
    "a column of objects": (GRAPH, lambda nodes: objects(nodes)[:, None]),
    "rows of two": (GRAPH, np.array),
    "a series of tuples": (GRAPH, pd.Series),
    "positions": (NUMBERED, GRAPH.index),
    "a column of positions": (NUMBERED, lambda nodes: GRAPH.index(nodes)[:, None]),
    "a list of columns": (NUMBERED, lambda nodes: [[int(i)] for i in GRAPH.index(nodes)]),
    "a table": (NUMBERED, lambda nodes: pd.DataFrame({"node": GRAPH.index(nodes)})),
    "strings": (NAMED, lambda nodes: [f"{a}-{b}" for a, b in nodes]),
    "a column of strings": (NAMED, lambda nodes: np.array([[f"{a}-{b}"] for a, b in nodes])),
}


def test_labels_come_in_many_forms():
    options = {"features": "exact", "max_iter": 0}
    expected = regressor(**options).fit(SEEN, Y[::2]).predict(HIDDEN)
    for form, (graph, written) in FORMS.items():
        found = regressor(graph=graph, **options).fit(written(SEEN), Y[::2]).predict(written(HIDDEN))
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=form)


def test_clones_share_the_graph_and_nothing_else():
    estimator = regressor(kernel=graphs.kernels.Diffusion(3.0), fixed=["noise"], walk_options={"max_nonzeros": 32})
    other = clone(estimator)
    assert other.graph is GRAPH
    assert other.fixed == ["noise"]
    assert other.fixed is not estimator.fixed
    assert {**other.get_params(), "graph": 0} == {**estimator.get_params(), "graph": 0}
    assert not hasattr(clone(estimator.fit(SEEN, Y[::2])), "gp_")
    assert not hasattr(estimator, "n_features_in_")
    assert is_regressor(estimator)
    with config_context(enable_metadata_routing=True):
        asked = clone(estimator.set_score_request(sample_weight=True))
        assert asked.get_metadata_routing().score.requests == {"sample_weight": True}


BAD_FITS = [
    (regressor(graph=None), SEEN, Y[::2], rfgp.InvalidArgumentError, "graph is missing"),
    (regressor(graph=GRID), SEEN, Y[::2], rfgp.InvalidArgumentError, "Graph, got"),
    (regressor(n_walkers=0), SEEN, Y[::2], rfgp.InvalidArgumentError, "n_walkers"),
    (regressor(kernel="cubic"), SEEN, Y[::2], graphs.errors.InvalidArgumentError, "cubic"),
    (regressor(features="fourier"), SEEN, Y[::2], rfgp.InvalidArgumentError, "features"),
    (regressor(random_state=0.5), SEEN, Y[::2], rfgp.InvalidArgumentError, "random_state"),
    (regressor(), [(99, 99), *SEEN[1:]], Y[::2], KeyError, "99"),
    (regressor(), SEEN, None, ValueError, "None"),
    (regressor(), SEEN, Y[1:20], ValueError, "inconsistent"),
    (regressor(), SEEN, np.full(21, np.nan), ValueError, "NaN"),
    (regressor(), SEEN, ["red"] * 21, ValueError, "convert"),
    (regressor(), SEEN[:1], Y[:1], ValueError, "two observations"),
    (regressor(), "node", Y[::2], ValueError, "labels"),
    (regressor(), np.zeros((2, 2, 2)), Y[:2], ValueError, "shape"),
    (regressor(), sp.csr_array(np.eye(21)), Y[::2], ValueError, "sparse"),
    (regressor(graph=NUMBERED), np.linspace(0, 1, 21), Y[::2], KeyError, "integers"),
    (GraphGPClassifier(GRAPH), SEEN[:2], None, rfgp.DataError, "None"),
    (GraphGPClassifier(GRAPH), SEEN[:2], ["a", "a"], rfgp.DataError, "only one"),
    (GraphGPClassifier(), SEEN[:2], ["a", "b"], rfgp.InvalidArgumentError, "graph is missing"),
]


@pytest.mark.parametrize(("estimator", "x", "y", "error", "word"), BAD_FITS)
def test_bad_fits_are_named(estimator, x, y, error, word):
    with pytest.raises(error, match=word):
        estimator.fit(x, y)


def test_unfitted_estimators_and_unknown_nodes_are_refused():
    with pytest.raises(NotFittedError, match="not fitted"):
        regressor().predict(HIDDEN)
    with pytest.raises(rfgp.DataError, match="99"):
        regressor(max_iter=0).fit(SEEN, Y[::2]).predict([(99, 99)])
