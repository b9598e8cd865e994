"""Inference through sparse precisions against the dense process of the same kernel."""

import pickle

import networkx as nx
import numpy as np
import pytest
import torch
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


def pair(graph, kernel, y=None, **given):
    """Return the model through the precision and the dense one, with the same data and hyperparameters."""
    nodes, drawn = data(graph)
    options = {"outputscale": 2.0, "noise": 0.1, "seed": 0}
    y = drawn if y is None else y
    return tuple(
        rfgp.GraphGP(graph, kernel, features=name, **options).condition(nodes, y, **given)
        for name in ("precision", "exact")
    )


def slopes(gp):
    gp.hyperparameters.requires_grad_(True)
    value = gp.log_marginal_likelihood()
    value.backward()
    return value.item(), {name: p.grad for name, p in gp.hyperparameters.named_parameters()}


def check(sparse, dense, nodes):
    (value, gradient), (expected, twin) = slopes(sparse), slopes(dense)
    assert value == pytest.approx(expected, abs=1e-8)
    for name, slope in gradient.items():
        torch.testing.assert_close(slope, twin[name], rtol=1e-7, atol=1e-7)
    p, q = sparse.predict(nodes), dense.predict(nodes)
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-9)
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-8)
    np.testing.assert_allclose(p.covariance, q.covariance, atol=1e-9)
    for name in ("mean", "variance"):
        found, other = getattr(sparse.leave_one_out(), name), getattr(dense.leave_one_out(), name)
        np.testing.assert_allclose(found, other, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::graphs.DisconnectedWarning")
@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_the_dense_process(name, laplacian):
    graph = GRAPHS[name]().with_laplacian(laplacian)
    for kernel in KERNELS:
        check(*pair(graph, kernel), np.arange(graph.num_nodes))


def test_weights_noise_and_outputs():
    graph, rng = GRAPHS["mesh"](), np.random.default_rng(1)
    nodes = np.arange(graph.num_nodes)
    check(*pair(graph, KERNELS[0], sample_weight=rng.integers(1, 5, COUNT)), nodes)
    check(*pair(graph, KERNELS[0], noise=rng.uniform(0.01, 2.0, COUNT)), nodes)
    check(*pair(graph, KERNELS[1], y=data(graph, outputs=3)[1]), nodes)


def test_a_fit_finds_the_dense_optimum():
    graph = GRAPHS["roads"]()
    nodes, y = data(graph)
    sparse, dense = (
        rfgp.GraphGP(graph, "regularized-laplacian", features=name, seed=0).fit(nodes, y)
        for name in ("precision", "exact")
    )
    assert sparse.fit_report.evaluations == dense.fit_report.evaluations
    for name in ("sigma", "outputscale", "noise", "mean"):
        found, other = (getattr(gp.hyperparameters, name).item() for gp in (sparse, dense))
        assert found == pytest.approx(other, rel=1e-6)


def test_more_data_and_functions():
    graph = GRAPHS["grid"]()
    nodes, y = data(graph)
    sparse, dense = pair(graph, KERNELS[0])
    sparse.update(nodes[:5], y[:5]), dense.update(nodes[:5], y[:5])
    check(sparse, dense, np.arange(graph.num_nodes))
    drawn = sparse.sample_functions(4000, seed=0)(np.arange(6))
    law = dense.predict(np.arange(6))
    assert drawn.shape == (4000, 6)
    errors = (drawn - law.mean) @ np.linalg.inv(np.linalg.cholesky(law.covariance)).T
    assert np.abs(errors.mean(0)).max() < 7 / np.sqrt(4000)  # standard normals: 7 sigma
    assert np.abs((errors**2).mean(0) - 1).max() < 10 * np.sqrt(2 / 4000)
    assert dense.features == "exact"


def test_it_is_saved(tmp_path):
    graph = GRAPHS["faces"]()
    sparse, _ = pair(graph, KERNELS[0])
    nodes = np.arange(graph.num_nodes)
    for with_data in (False, True):
        sparse.save(tmp_path / "model.safetensors", data=with_data)
        loaded = rfgp.load(tmp_path / "model.safetensors")
        assert loaded.features == "precision"
        np.testing.assert_array_equal(loaded.predict(nodes).mean, sparse.predict(nodes).mean)
        np.testing.assert_array_equal(loaded.predict(nodes).variance, sparse.predict(nodes).variance)


def test_kernels_without_a_precision_are_refused():
    with pytest.raises(graphs.InvalidArgumentError, match="no sparse precision"):
        rfgp.GraphGP(GRAPHS["grid"](), "diffusion", features="precision")


def test_what_loses_all_digits_is_named():
    graph = GRAPHS["path"]()
    kernel = kernels.RegularizedLaplacian(6, 900.0)
    gp = rfgp.GraphGP(graph, kernel, features="precision", outputscale=1.0, noise=0.1, seed=0).condition(*data(graph))
    message = "pivot at node [0-9]+ is not. A field whose lengthscale is far longer"
    with pytest.raises(rfgp.NotPositiveDefiniteError, match=message):
        gp.regression.prior().diagonal(torch.arange(3))


@pytest.mark.slow
def test_many_nodes_go_through_it_by_themselves():
    """Beyond 2,000 nodes "auto" takes it, and `exact` is it, for kernels that have one."""
    graph = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(50, 45)))
    nodes = np.arange(0, 2250, 9)
    gp = rfgp.GraphGP(graph, kernels.Matern(2, 3.0), seed=0).condition(nodes, np.sin(nodes / 90))
    assert (gp.features, gp.is_exact, gp.exact().features) == ("precision", True, "precision")
    assert "it is exact" in gp.advice.reason
    walks = gp.redraw(features="walks", seed=1)
    assert walks.exact().features == "precision"
    assert not walks.is_exact
    some = np.arange(40)
    dense = gp.redraw(features="exact")
    assert rfgp.metrics.kl_divergence(dense.predict(some), gp.predict(some)) < 1e-9
    assert rfgp.metrics.kl_divergence(gp.predict(some), walks.predict(some)) > 1e-6
    assert (
        rfgp.GraphGP(graph, "diffusion", features="walks", seed=0).condition(nodes, nodes).exact().features == "exact"
    )
    copied = pickle.loads(pickle.dumps(gp))
    np.testing.assert_array_equal(copied.predict(some).mean, gp.predict(some).mean)


@pytest.mark.parametrize("fault", ["entries", "pull_back", "log_determinant"])
def test_planted_errors_are_seen(fault, monkeypatch):
    field = graphs.precisions.ResolventField
    original = getattr(field, fault)

    def wrong(self, *args):
        found = original(self, *args)
        return (found[0] * 1.001, found[1]) if fault == "log_determinant" else found * 1.001

    monkeypatch.setattr(field, fault, wrong)
    with pytest.raises(AssertionError):
        test_it_is_the_dense_process("roads", "normalized")
