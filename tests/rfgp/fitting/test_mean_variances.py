"""Classes of nodes: a search moves the mean variance of the latent functions, and leaves no better start behind."""

import functools

import networkx as nx
import numpy as np
import pytest

import graphs
import rfgp
from rfgp.fitting.coordinates import Coordinates
from rfgp.fitting.mean_variances import MeanVariances, VarianceReparametrization

SIZES, LABELS = (50, 50, 50, 50), 5
D = graphs.kernels.Diffusion


@functools.cache
def blocks():
    """Return the largest component of a graph of four clusters, the cluster of each node, and five nodes of each."""
    links = np.full((len(SIZES), len(SIZES)), 0.008) + 0.072 * np.eye(len(SIZES))
    drawn = nx.Graph(nx.stochastic_block_model(SIZES, links.tolist(), seed=0))
    graph = graphs.Graph.from_networkx(drawn).largest_component()
    truth = np.repeat(np.arange(len(SIZES)), SIZES)[list(graph.labels)]
    return graph, truth, np.concatenate([np.flatnonzero(truth == c)[:LABELS] for c in range(len(SIZES))])


def model(kernel="diffusion", features="exact", likelihood="categorical", **options):
    return rfgp.GraphGP(blocks()[0], kernel, features, likelihood=likelihood, seed=0, **options)


def data(likelihood="categorical"):
    graph, truth, seen = blocks()
    y = truth[seen] if likelihood == "categorical" else (truth[seen] > 1).astype(float)
    return [graph.labels[i] for i in seen], y


def accuracy(gp):
    graph, truth, seen = blocks()
    new = np.setdiff1d(np.arange(graph.num_nodes), seen)
    found = gp.predict([graph.labels[i] for i in new]).observed().probabilities
    return float((np.asarray(found).argmax(1) == truth[new]).mean())


def dense_mean_variance(kernel, places):
    """Return the mean of the diagonal of k(L) at some positions, for the normalized Laplacian L."""
    adjacency = blocks()[0].adjacency.toarray()
    root = adjacency.sum(1) ** -0.5
    eigenvalues, vectors = np.linalg.eigh(np.eye(len(root)) - root[:, None] * adjacency * root)
    return ((vectors**2) @ kernel.spectral(eigenvalues))[places].mean()


@pytest.mark.parametrize(
    ("kernel", "inference"),
    [("diffusion", "laplace"), (D(0.3), "laplace"), (D(0.3), "variational"), (D(1.0), "variational")],
)
def test_any_start_finds_the_clusters(kernel, inference):
    """With constant functions the accuracy is 0.25 and the log marginal likelihood 20 log(1/4) = -27.7."""
    gp = model(kernel, inference=inference).fit(*data())
    assert gp.fit_report.log_marginal_likelihood > -25.5
    assert accuracy(gp) > 0.85


def test_bounds_of_classes_are_of_the_mean_variance():
    """By Laplace's approximation it is at most 10, of which an output scale of 10 is a small part here."""
    gp = model(inference="laplace").fit(*data())
    size = dense_mean_variance(gp.fitted_kernel, blocks()[2])
    scale = gp.hyperparameters.outputscale.item()
    assert gp.fit_report.at_bounds == ("nodes.outputscale",)
    assert scale > 100
    assert scale * size == pytest.approx(10, rel=1e-6)


def test_given_fixed_parameters_are_not_searched():
    gp = model(D(0.3), inference="laplace").fit(*data(), fixed="lengthscale")
    assert gp.hyperparameters.lengthscale.item() == pytest.approx(0.3)


@pytest.mark.parametrize("features", ["exact", "precision", "spectrum"])
def test_mean_variances_match_the_dense_kernel(features):
    kernel = graphs.kernels.RegularizedLaplacian(3.0)
    gp = model(kernel, features, "bernoulli", rank=blocks()[0].num_nodes).condition(*data("bernoulli"))
    found = MeanVariances.of(gp.state, gp.state.rows)
    (log,) = found.logs(gp.state.hyperparameters).values()
    expected = dense_mean_variance(kernel, blocks()[2])
    assert np.exp(log) == pytest.approx(expected, rel=1e-8)


def test_gaussian_and_stationary_models_are_not_shifted():
    graph = blocks()[0]
    gaussian = rfgp.GraphGP(graph, features="exact", seed=0).condition(list(graph.labels)[:5], np.arange(5.0))
    flat = rfgp.GP(rfgp.kernels.RBF(), "bernoulli", seed=0).condition(np.arange(4.0)[:, None], [0.0, 1.0, 1.0, 0.0])
    for gp in (gaussian, flat):
        assert MeanVariances.of(gp.state, gp.state.rows) is None


@pytest.mark.parametrize("fixed", [(), ("nodes.outputscale",), ("nodes.lengthscale",)])
def test_shifted_coordinates_and_their_gradient(fixed):
    """The gradient is that of a function of raw numbers by finite differences in the coordinates."""
    now = model(D(2.0), likelihood="bernoulli").condition(*data("bernoulli")).state
    values = now.hyperparameters
    free = values.space.free(fixed)
    there = Coordinates.of(values.space, free, VarianceReparametrization(MeanVariances.of(now, now.rows), values, free))
    x = values.vector(free) + 0.1
    u = there.at(x)
    np.testing.assert_allclose(there.raw(u), x, rtol=1e-12)
    weights = np.arange(1.0, 1.0 + len(x))
    gradient = there.gradient(x, weights * np.cos(x))
    steps = 1e-5 * np.eye(len(x))
    slopes = [weights @ (np.sin(there.raw(u + step)) - np.sin(there.raw(u - step))) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6)
    if not fixed:
        place = free.index("nodes.outputscale")
        size = dense_mean_variance(D(2.0 * np.exp(0.1)), blocks()[2])
        assert u[place] - x[place] == pytest.approx(np.log(size))
    ends = [(-2.0, 3.0)] * len(x)
    np.testing.assert_allclose(there.limits(ends), ends, rtol=1e-12)
