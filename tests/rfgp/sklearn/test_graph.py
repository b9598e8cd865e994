"""The estimators on the nodes of a graph."""

import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from refusals import refused
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
    {"kernel": graphs.kernels.RegularizedLaplacian(order=2, sigma=1.0), "p_halt": 0.3, "exact_hops": 0},
    {"lengths": "iid", "outputscale": 0.3, "priors": {"lengthscale": distributions.LogNormal(0.0, 0.1)}},
    {"step_coupling": "independent", "noise": 0.02, "walk_options": {"max_nonzeros": 12}},
]


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: next(iter(option)))
def test_options_reach_the_process(option):
    """Without one of them the likelihood is another one."""
    fixed, options = ("outputscale", "noise"), {**COMMON, **option}
    gp = rfgp.GraphGP(GRAPH, num_walkers=8, seed=0, **options).fit(SEEN, Y[::2], fixed=fixed, max_iterations=5)
    expected = gp.fit_report.log_marginal_likelihood

    def found(options):
        return regressor(n_walkers=8, fixed=fixed, **options).fit(SEEN, Y[::2]).log_marginal_likelihood_value_

    assert found(options) == expected
    for name in option:
        less = {key: value for key, value in options.items() if key != name}
        assert found({**COMMON, **less}) != expected


@pytest.mark.parametrize(("features", "y"), [("exact", PAIR), ("walks", Y)], ids=["exact", "walks"])
def test_the_regressor_equals_the_process_of_the_same_seed(features, y):
    estimator = regressor(features=features, n_walkers=16).fit(SEEN, y[::2])
    gp = rfgp.GraphGP(GRAPH, features=features, num_walkers=16, seed=0).fit(SEEN, y[::2], max_iterations=5)
    p = gp.predict(HIDDEN)
    found = *estimator.predict(HIDDEN, return_std=True), estimator.predict(HIDDEN, return_cov=True)[1]
    for one, expected in zip(found, (p.mean, p.std, p.covariance), strict=True):
        np.testing.assert_array_equal(one, expected)
    draws = estimator.sample_y(HIDDEN, 3, random_state=1)
    np.testing.assert_array_equal(draws, np.moveaxis(p.sample(3, seed=1), 0, -1))
    assert estimator.log_marginal_likelihood_value_ == gp.fit_report.log_marginal_likelihood
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(estimator)).predict(HIDDEN), p.mean)


@pytest.mark.parametrize(("features", "classes"), [("exact", 2), pytest.param("spectrum", 3, marks=pytest.mark.slow)])
def test_the_classifier_equals_the_process_of_the_same_seed(features, classes):
    codes = np.minimum((np.array(LABELS) > 3).sum(1), classes - 1)
    words, options = np.array(["a", "b", "c"])[codes], {"features": features, "inference": "laplace"}
    found = GraphGPClassifier(GRAPH, random_state=0, **options).fit(SEEN, words[::2])
    likelihood = "bernoulli" if classes == 2 else rfgp.likelihoods.Categorical(3)
    gp = rfgp.GraphGP(GRAPH, likelihood=likelihood, seed=0, **options).fit(SEEN, codes[::2].astype(float))
    shares, mean = found.predict_proba(HIDDEN), gp.predict(HIDDEN).observed().mean
    np.testing.assert_array_equal(shares[:, 1] if classes == 2 else shares, mean)
    assert found.score(HIDDEN, words[1::2]) > 0.8


def test_weights_repeat_observations():
    weight = np.arange(21) % 3
    rows = np.repeat(np.arange(21), weight)
    options = {"features": "exact", "fixed": ("lengthscale", "outputscale", "noise", "mean")}
    once = regressor(**options).fit(SEEN, Y[::2], sample_weight=weight)
    several = regressor(**options).fit([SEEN[i] for i in rows], Y[::2][rows])
    np.testing.assert_allclose(once.predict(HIDDEN), several.predict(HIDDEN), rtol=1e-9)
    assert once.gp_.num_observations == 14


def test_warnings_name_the_arguments_of_the_estimator():
    options = {"features": "walks", "exact_hops": 0, "noise": 1e-5, "fixed": ("noise",)}
    with pytest.warns(rfgp.PoorFeaturesWarning, match="n_walkers"):
        regressor(n_walkers=2, **options).fit(SEEN, Y[::2])


FORMS = {
    "an array of objects": (GRAPH, objects),
    "rows of two": (GRAPH, np.array),
    "a series of tuples": (GRAPH, pd.Series),
    "positions": (NUMBERED, GRAPH.index),
    "a list of columns": (NUMBERED, lambda nodes: [[int(i)] for i in GRAPH.index(nodes)]),
    "a table": (NUMBERED, lambda nodes: pd.DataFrame({"node": GRAPH.index(nodes)})),
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
    assert other.fixed is not estimator.fixed
    assert other.get_params() == estimator.get_params()
    assert not hasattr(clone(estimator.fit(SEEN, Y[::2])), "gp_")
    assert not hasattr(estimator, "n_features_in_")
    assert is_regressor(estimator)
    with config_context(enable_metadata_routing=True):
        asked = clone(estimator.set_score_request(sample_weight=True))
        assert asked.get_metadata_routing().score.requests == {"sample_weight": True}


INVALID, TWO = rfgp.InvalidArgumentError, Y[:2]
BAD_FITS = [
    (regressor(graph=None), SEEN, Y[::2], INVALID, "graph is missing"),
    (regressor(n_walkers=0), SEEN, Y[::2], INVALID, "n_walkers"),
    (regressor(), [(99, 99), *SEEN[1:]], Y[::2], graphs.errors.UnknownNodeError, "99"),
    (regressor(), SEEN, None, rfgp.DataError, "None"),
    (regressor(), "node", Y[::2], rfgp.DataError, "labels"),
    (regressor(), np.zeros((2, 2, 2)), TWO, rfgp.DataError, "shape"),
    (regressor(), sp.csr_array(np.eye(21)), Y[::2], rfgp.DataError, "sparse"),
    (GraphGPClassifier(GRAPH), SEEN[:2], ["a", "a"], rfgp.DataError, "only one"),
]


@pytest.mark.parametrize(("estimator", "x", "y", "error", "word"), BAD_FITS)
def test_bad_fits_are_named(estimator, x, y, error, word):
    refused(lambda: estimator.fit(x, y), error, word)


def test_unfitted_estimators_and_unknown_nodes_are_refused():
    refused(lambda: regressor().predict(HIDDEN), NotFittedError, "not fitted")
    fitted = regressor(max_iter=0).fit(SEEN, Y[::2])
    refused(lambda: fitted.predict([(99, 99)]), rfgp.DataError, "99")
