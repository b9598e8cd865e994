"""Models on the nodes of graphs against dense algebra."""

import networkx as nx
import numpy as np
import pytest
import torch
from dense import DenseGP
from field_cases import ROWS, Y, ring
from model_checks import assert_gradients
from numpy.testing import assert_allclose
from refusals import refused

import graphs
import rfgp
from rfgp import GraphGP
from rfgp import kernels as k

GRAPH, RING = graphs.Graph.from_grid((9, 8)), ring()
TRAIN, TEST = np.split(np.random.default_rng(0).permutation(72), [50])


def function_of(graph, spectral):
    """Return a function of the normalized Laplacian of a graph without isolated nodes."""
    W = graph.adjacency.toarray()
    roots = np.sqrt(W.sum(axis=1))
    eigenvalues, vectors = np.linalg.eigh(np.eye(len(W)) - W / roots / roots[:, None])
    return (vectors * spectral(np.clip(eigenvalues, 0, 2))) @ vectors.T


FIELD = function_of(GRAPH, lambda x: 30 * np.exp(-2 * x)) @ np.random.default_rng(1).standard_normal(72) + 100
OBSERVED = FIELD[TRAIN] + 0.3 * np.random.default_rng(2).standard_normal(50)


def compare(gp, prior, y, new, digits=1e-7):
    """Compare a model with dense algebra, given the prior covariance of its rows and new points."""
    h, found, scale = gp.hyperparameters, gp.predict(new), max(1.0, np.var(y))
    expected = DenseGP({"f": prior}, y, np.full(len(y), h.noise.item()), h.mean.item())
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood(), rel=1e-8, abs=1e-5)
    assert_allclose(found.mean, expected.mean_at(), atol=digits * scale)
    assert_allclose(found.variance, np.diag(expected.covariance()), atol=10 * digits * scale)
    assert_allclose(found.covariance, expected.covariance(), atol=10 * digits * scale)


@pytest.mark.parametrize("features", ["exact", "walks", "chebyshev", "taylor", "spectrum"])
def test_models_and_learned_modulations_match_dense_algebra(features):
    options = {"features": features, "num_walkers": 8, "degree": 4, "rank": 20, "seed": 1}
    gp = GraphGP(GRAPH, **options).condition(TRAIN, OBSERVED)
    gp.hyperparameters.set(lengthscale=1.3, noise=2.0)
    if features == "exact":
        prior = gp.hyperparameters.outputscale.item() * function_of(GRAPH, lambda x: np.exp(-0.845 * x))
        compare(gp, prior[np.ix_([*TRAIN, *TEST], [*TRAIN, *TEST])], OBSERVED, TEST)
        by_column = k.Nodes(GRAPH, graphs.kernels.Diffusion(1.3), column="place").matrix({"place": TEST})
        assert_allclose(gp.hyperparameters.outputscale.item() * by_column, prior[np.ix_(TEST, TEST)], atol=1e-8)
    assert gp.exact().features == "exact"
    free = graphs.kernels.FreeModulation(graphs.kernels.Diffusion(1.3), (1.0, 0.5, 2.0))
    assert_gradients(GraphGP(GRAPH, free, **options).condition(TRAIN, OBSERVED), rel=1e-4, abs=1e-6)


# --- fits ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_automatic_features_are_those_of_the_advice(limits):
    """Another kernel needs other features, after a search."""
    assert GraphGP(GRAPH).features == "exact"
    limits(max_exact_nodes=10)
    long = function_of(GRAPH, lambda x: np.exp(-72 * x))
    y = 5 * np.linalg.cholesky(long + 1e-9 * np.eye(72)) @ np.random.default_rng(1).standard_normal(72)
    y = y[TRAIN] + 0.01 * np.random.default_rng(2).standard_normal(50)
    gp = GraphGP(GRAPH, num_walkers=4, seed=0).fit(TRAIN, y)
    assert gp.features == graphs.advise(GRAPH, gp.fitted_kernel, 16).best.features == "spectrum"
    assert [stage.name for stage in gp.fit_report.stages].count("all rows") == 2
    mean, advised = gp.predict(TEST).mean, gp.approximation
    with pytest.raises(KeyboardInterrupt):  # a fit that fails leaves the features as they were
        gp.fit(TRAIN[:20], OBSERVED[:20], callback=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert gp.approximation is advised == rfgp.TruncatedSpectrum(16)
    np.testing.assert_array_equal(gp.predict(TEST).mean, mean)


@pytest.mark.slow
def test_noise_has_a_prior_and_infinite_variances_are_named():
    alone = np.arange(0, 72, 3)  # without neighbors among them: noise and kernel can hardly be told apart
    y = np.random.default_rng(1).standard_normal(24)
    free, kept = (GraphGP(GRAPH, priors=priors).fit(alone, y) for priors in ({"noise": None}, {}))
    assert 20 * free.hyperparameters.noise.item() < np.var(y) < 2 * kept.hyperparameters.noise.item()
    own = GraphGP(GRAPH, priors={"noise": torch.distributions.LogNormal(-5.0, 0.01)}).fit(alone, y)
    assert own.hyperparameters.noise.item() == pytest.approx(np.exp(-5), rel=0.1)
    kernel = graphs.kernels.RegularizedLaplacian(2, 5.0)
    with pytest.warns(graphs.InfiniteVarianceWarning, match="p_halt = 0.3"):
        GraphGP(GRAPH, kernel, features="walks", p_halt=0.3, seed=0).condition(TRAIN, OBSERVED)


# --- observations --------------------------------------------------------------------------------


def test_missing_values_are_left_out():
    y = OBSERVED.copy()
    y[[3, 17]] = np.nan
    gp = GraphGP(GRAPH).condition(TRAIN, y, noise=np.linspace(0.1, 1, 50))
    assert gp.update(list(TEST[:2]), [1.0, np.nan]).num_observations == 49
    both = np.stack([y, y], axis=1)
    assert GraphGP(GRAPH).condition(TRAIN, both).num_observations == 48
    both[7, 0] = np.nan
    message = refused(lambda: GraphGP(GRAPH).condition(TRAIN, both), rfgp.DataError, "all outputs or none")
    assert "row 7" in message


def test_isolated_nodes_have_the_prior():
    g = graphs.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")], nodes=["alone", *"abcd"])
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components, 1 of them without"):
        gp = GraphGP(g, features="exact").condition(["a", "c", "a"], [1.0, 2.0, 1.1])  # a node may be observed twice
    p = gp.predict(["d", "alone"])
    assert_allclose(p.mean[1], gp.hyperparameters.mean.item())
    assert_allclose(p.variance[1], gp.hyperparameters.outputscale.item())
    known = GraphGP(GRAPH, features="exact").condition(TRAIN, OBSERVED)
    noise = known.hyperparameters.noise.item()
    assert known.condition([0], [90.0]).hyperparameters.noise.item() == noise


@pytest.mark.parametrize("features", ["exact", "precision"])
def test_nodes_of_grids_are_tuples_or_positions(features):
    grid, kernel = graphs.Graph.from_grid((6, 7)), graphs.kernels.RegularizedLaplacian(2, 1.0)
    positions, y = np.arange(0, 42, 3), np.sin(np.arange(14.0))
    tuples = [grid.labels[i] for i in positions]
    found = []
    for nodes in (positions, tuples, np.array(tuples), torch.tensor(tuples), torch.as_tensor(positions)):
        gp = GraphGP(grid, kernel, features=features, seed=0).condition(nodes[:9], y[:9]).update(nodes[9:], y[9:])
        found += [gp.predict(list(grid.labels)).mean, gp.predict(range(42)).mean]
    for mean in found:
        np.testing.assert_array_equal(mean, found[0])


# --- diagnoses -----------------------------------------------------------------------------------

LONG_GRID = graphs.Graph.from_grid((25, 25))
PLACES = np.arange(625)
WAVE, SEEN = np.sin(PLACES // 25 / 8) + np.cos(PLACES % 25 / 9), np.random.default_rng(3).permutation(625)[:500]


@pytest.mark.slow
def test_poor_walks_are_named_with_the_remedy():
    """A smooth field with little noise."""
    gp, rng = GraphGP(LONG_GRID, features="walks", num_walkers=16, seed=0), np.random.default_rng(0)
    with pytest.warns(rfgp.PoorFeaturesWarning, match=r"differ by .* nats per node .*features='auto'"):
        gp.fit(SEEN, WAVE[SEEN] + 1e-3 * rng.standard_normal(500))
    found = gp.diagnose()
    assert (found.is_poor, found.num_held_out) == (True, 64)
    assert found.divergence > 0.1
    assert found.walk_variance > 1


@pytest.mark.slow
def test_walk_variance_is_that_of_other_draws():
    kernel, some = graphs.kernels.Diffusion(3.0), SEEN[:100]
    gp = GraphGP(LONG_GRID, kernel, features="walks", num_walkers=4, exact_hops=0, seed=0).condition(some, WAVE[some])
    phis = [graphs.sample_walks(LONG_GRID, num_walkers=4, exact_hops=0, seed=s).features(kernel) for s in range(40)]
    second = sum(phi.power(2).sum(1) for phi in phis) / 40
    variance = (second - (sum(phis) / 40).power(2).sum(1)).mean() * 40 / 39
    expected = variance * gp.hyperparameters.outputscale.item() / gp.hyperparameters.noise.item()
    assert gp.diagnose().walk_variance == pytest.approx(expected, rel=0.3)
    exact = GraphGP(GRAPH, features="exact").condition(TRAIN, OBSERVED).diagnose()
    assert (exact.is_poor, exact.divergence, exact.kernel_error) == (False, None, None)


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_large_graphs_are_planned_with_advised_features_or_a_precision():
    graph, rng = ring(2500), np.random.default_rng(0)
    rows = {"node": [f"n{i}" for i in rng.integers(0, 2500, 60)], "t": rng.normal(size=60)}
    smooth = graphs.kernels.Matern(nu=2, kappa=1.5)
    for kernel, expected in (
        (k.Nodes(graph, "diffusion"), rfgp.Chebyshev()),
        (k.Nodes(graph, smooth) * k.Linear("t"), rfgp.SparsePrecision()),
    ):
        gp = rfgp.GP(kernel.named("f"), seed=0).condition(rows, rng.normal(size=60))
        assert type(gp.terms["f"].approximation) is type(expected)


# --- refusals ------------------------------------------------------------------------------------

INVALID, OF_GRAPHS, DATA = rfgp.InvalidArgumentError, graphs.InvalidArgumentError, rfgp.DataError


def fit(kernel, approximation):
    return lambda: rfgp.GP(kernel, approximation=approximation, seed=0).condition(ROWS, Y)


NODES = k.Nodes(RING)
PAIR = graphs.Graph.from_edges([("n1", "n2")])
REFUSED = [
    (lambda: GraphGP(GRAPH, features="fourier"), INVALID, "features"),
    (lambda: GraphGP(GRAPH, features="chebyshev", degree=-1), INVALID, "degree"),
    (lambda: GraphGP(GRAPH, rank=7), INVALID, "features by name"),
    (lambda: GraphGP(GRAPH, "heat"), OF_GRAPHS, "heat"),
    (lambda: GraphGP(GRAPH, features="walks", p_halt=2.0), OF_GRAPHS, "halt"),
    (lambda: GraphGP(nx.path_graph(3)), INVALID, "from_networkx"),
    (lambda: GraphGP(PAIR).condition(["n1", "x"], [1.0, 2.0]), DATA, "'x'"),
    (lambda: GraphGP(GRAPH).fit(TRAIN, OBSERVED * np.nan), DATA, "50 missing"),
    (lambda: GraphGP(GRAPH).condition([0], [1.0]), DATA, "at least two"),
    (lambda: GraphGP(GRAPH).exact(), rfgp.NotFittedError, "fit"),
    (fit(k.RBF("hour"), rfgp.RandomWalks(4)), INVALID, "nodes"),
    (fit(NODES, rfgp.RationalPrecision()), INVALID, "resolvent"),
    (fit(NODES, rfgp.SparsePrecision()), INVALID, "sparse precision"),
    (fit(NODES * k.RBF("hour"), rfgp.RationalPrecision(2)), INVALID, "multiplied"),
]


@pytest.mark.parametrize(("call", "error", "word"), REFUSED)
def test_bad_arguments_are_refused(call, error, word):
    refused(call, error, word)
