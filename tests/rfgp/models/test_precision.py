"""Processes on graphs through sparse precisions against the dense process of the same kernel."""

import pickle

import networkx as nx
import numpy as np
import pytest
import torch
from checks import fails
from sparse_graphs import GRAPHS

import graphs
import rfgp
from graphs import kernels

KERNELS = [kernels.RegularizedLaplacian(2, 1.5), kernels.Matern(1, 2.0)]
COUNT = 70


def data(graph, outputs=1, seed=0):
    """Return nodes, some of them several times, and values."""
    rng = np.random.default_rng(seed)
    nodes = rng.integers(graph.num_nodes, size=COUNT)
    y = np.sin(3.0 * nodes[:, None] + np.arange(outputs)) + 0.2 * rng.standard_normal((COUNT, outputs)) + 4.0
    return nodes, y[:, 0] if outputs == 1 else y


def pair(graph, kernel, outputs=1, **given):
    """Return the model through the precision and the dense one, with the same data and hyperparameters."""
    options = {"outputscale": 2.0, "noise": 0.1, "seed": 0}
    return tuple(
        rfgp.GraphGP(graph, kernel, features=name, **options).condition(*data(graph, outputs), **given)
        for name in ("precision", "exact")
    )


def slopes(gp):
    gp.hyperparameters.requires_grad_(True)
    value = gp.log_marginal_likelihood()
    value.backward()
    return value.item(), {name: p.grad for name, p in gp.hyperparameters.named_parameters()}


def check(sparse, dense):
    (value, gradient), (expected, twin) = slopes(sparse), slopes(dense)
    assert value == pytest.approx(expected, abs=1e-8)
    for name, slope in gradient.items():
        torch.testing.assert_close(slope, twin[name], rtol=1e-7, atol=1e-7)
    nodes = np.arange(sparse.graph.num_nodes)
    p, q = sparse.predict(nodes), dense.predict(nodes)
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-9)
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-8)
    np.testing.assert_allclose(p.covariance, q.covariance, atol=1e-9)
    for name in ("mean", "variance"):
        found, other = getattr(sparse.leave_one_out(), name), getattr(dense.leave_one_out(), name)
        np.testing.assert_allclose(found, other, rtol=1e-8)


def check_graph(name, laplacian):
    graph = GRAPHS[name]().with_laplacian(laplacian)
    for kernel in KERNELS:
        check(*pair(graph, kernel))


FAST = [("mesh", "normalized"), ("roads", "normalized"), ("parts", "combinatorial")]
CASES = [
    pytest.param(name, laplacian, marks=[] if (name, laplacian) in FAST else pytest.mark.slow)
    for name in GRAPHS
    for laplacian in ("normalized", "combinatorial")
]


@pytest.mark.filterwarnings("ignore::graphs.DisconnectedWarning")
@pytest.mark.parametrize(("name", "laplacian"), CASES)
def test_it_is_the_dense_process(name, laplacian):
    check_graph(name, laplacian)


def test_weights_noise_and_outputs():
    graph, rng = GRAPHS["mesh"](), np.random.default_rng(1)
    check(*pair(graph, KERNELS[0], sample_weight=rng.integers(1, 5, COUNT)))
    check(*pair(graph, KERNELS[0], noise=rng.uniform(0.01, 2.0, COUNT)))
    check(*pair(graph, KERNELS[1], outputs=3))


def test_a_fit_finds_the_dense_optimum():
    graph = GRAPHS["roads"]()
    sparse, dense = (
        rfgp.GraphGP(graph, "regularized-laplacian", features=name, seed=0).fit(*data(graph))
        for name in ("precision", "exact")
    )
    assert sparse.fit_report.evaluations == dense.fit_report.evaluations
    for name in ("sigma", "outputscale", "noise", "mean"):
        found, other = (getattr(gp.hyperparameters, name).item() for gp in (sparse, dense))
        assert found == pytest.approx(other, rel=1e-6)


def test_updates_are_those_of_the_dense_process():
    graph = GRAPHS["grid"]()
    nodes, y = data(graph)
    sparse, dense = pair(graph, KERNELS[0])
    for gp in (sparse, dense):
        gp.update(nodes[:5], y[:5])
    check(sparse, dense)


def test_kernels_without_a_precision_are_refused():
    with pytest.raises(graphs.InvalidArgumentError, match="no sparse precision"):
        rfgp.GraphGP(GRAPHS["grid"](), "diffusion", features="precision")


def test_a_field_that_loses_all_digits_is_named():
    graph = GRAPHS["path"]()
    kernel = kernels.RegularizedLaplacian(6, 900.0)
    gp = rfgp.GraphGP(graph, kernel, features="precision", outputscale=1.0, noise=0.1, seed=0).condition(*data(graph))
    with pytest.raises(rfgp.NotPositiveDefiniteError, match=r"pivot at node [0-9]+\..* lengthscale"):
        gp.state.prior().diagonal(torch.arange(3.0, dtype=torch.float64)[:, None])


@pytest.mark.slow
def test_many_nodes_are_through_a_precision_by_default(limits):
    """Of many nodes "auto" takes it, and `exact` is it, for kernels that have one."""
    limits(max_exact_nodes=200)
    graph = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(25, 20)))
    nodes = np.arange(0, 500, 2)
    gp = rfgp.GraphGP(graph, kernels.Matern(2, 3.0), seed=0).condition(nodes, np.sin(nodes / 90))
    assert (gp.features, gp.is_exact, gp.exact().features) == ("precision", True, "precision")
    assert "it is exact" in gp.advice.reason
    walks = gp.with_approximation(rfgp.RandomWalks(8, seed=1))
    assert walks.exact().features == "precision"
    assert not walks.is_exact
    some = np.arange(40)
    dense = gp.with_approximation(rfgp.Exact())
    assert rfgp.metrics.kl_divergence(dense.predict(some), gp.predict(some)) < 1e-9
    assert rfgp.metrics.kl_divergence(gp.predict(some), walks.predict(some)) > 1e-6
    diffusion = rfgp.GraphGP(graph, "diffusion", features="walks", seed=0).condition(nodes, nodes)
    assert diffusion.exact().features == "exact"
    copied = pickle.loads(pickle.dumps(gp))
    np.testing.assert_array_equal(copied.predict(some).mean, gp.predict(some).mean)


def test_planted_errors_are_seen(monkeypatch):
    field = graphs.precisions.ResolventField
    for fault in ("entries", "pull_back", "log_determinant"):
        original = getattr(field, fault)

        def wrong(self, *args, original=original, fault=fault):
            found = original(self, *args)
            return (found[0] * 1.001, found[1]) if fault == "log_determinant" else found * 1.001

        with monkeypatch.context() as patch:
            patch.setattr(field, fault, wrong)
            assert fails(check_graph, "roads", "normalized")
