import numpy as np
import pytest
import torch

import graphs
import rfgp
from graphs import kernels

GRAPH = graphs.Graph.from_grid((11, 11))
KERNEL = kernels.Matern(1.5, 3.0)


def data(seed=0):
    rng = np.random.default_rng(seed)
    nodes = rng.integers(121, size=80)
    return nodes, np.sin(nodes / 15) + 0.2 * rng.standard_normal(80)


def slopes(gp):
    gp.hyperparameters.requires_grad_(True)
    value = gp.log_marginal_likelihood()
    value.backward()
    return value.item(), {name: p.grad for name, p in gp.hyperparameters.named_parameters()}


@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
@pytest.mark.parametrize("kernel", [KERNEL, kernels.RegularizedLaplacian(0.7, 2.0), kernels.Matern(2.4, 3.0)])
def test_likelihood_and_posterior_are_near_the_dense_process(laplacian, kernel):
    graph, (nodes, y) = GRAPH.with_laplacian(laplacian), data()
    options = {"noise": 0.1, "outputscale": 1.0, "seed": 0}
    found, exact = (
        rfgp.GraphGP(graph, kernel, features=name, degree=6, **options).condition(nodes, y)
        for name in ("rational", "exact")
    )
    (value, gradient), (expected, twin) = slopes(found), slopes(exact)
    assert value == pytest.approx(expected, abs=1e-3)
    for name, slope in gradient.items():
        torch.testing.assert_close(slope, twin[name], rtol=1e-3, atol=1e-3)
    everywhere = np.arange(121)
    p, q = exact.predict(everywhere), found.predict(everywhere)
    np.testing.assert_allclose(q.covariance, p.covariance, atol=1e-4)
    assert 0 <= rfgp.metrics.kl_divergence(p, q) < 1e-5
    few = found.with_approximation(rfgp.RationalPrecision(1))
    assert rfgp.metrics.kl_divergence(p, few.predict(everywhere)) > 1e-3  # the errors that fewer fields plant


def test_fewest_sufficient_fields_are_used():
    nodes, y = data()
    gp = rfgp.GraphGP(GRAPH, kernels.Matern(1.5, 0.5), features="rational", seed=0)
    begun = gp.condition(nodes, y).diagnose().spectral_error
    assert begun <= 1e-3
    assert (
        rfgp.GraphGP(GRAPH, kernels.Matern(1.5, 9.0), features="rational", degree=1, seed=0)
        .condition(nodes, y)
        .diagnose()
        .is_poor
    )
    before = gp.feature_size["degree"]
    gp.fit(nodes, y)
    assert gp.fitted_kernel.kappa > 2
    assert gp.feature_size["degree"] > before
    assert gp.diagnose().spectral_error <= 1e-3
    assert f"relative error of the spectrum is {gp.diagnose().spectral_error:.2g}" in str(gp.diagnose())


def test_it_is_named_and_never_exact(tmp_path):
    nodes, y = data()
    gp = rfgp.GraphGP(GRAPH, KERNEL, features="rational", seed=0).condition(nodes, y)
    assert (gp.features, gp.is_exact, gp.exact().features) == ("rational", False, "exact")
    gp.save(tmp_path / "m")
    loaded = rfgp.load(tmp_path / "m")
    assert (loaded.features, loaded.feature_size) == ("rational", gp.feature_size)
    np.testing.assert_array_equal(loaded.predict(np.arange(121)).mean, gp.predict(np.arange(121)).mean)
    draws = gp.sample_functions(3, seed=0)(np.arange(121))
    assert draws.shape == (3, 121)


def test_kernels_without_fractions_say_so():
    for kernel, message in ((kernels.Matern(2, 3.0), "power"), (kernels.Diffusion(), "no sparse precision")):
        with pytest.raises(graphs.InvalidArgumentError, match=message):
            rfgp.GraphGP(GRAPH, kernel, features="rational")
    with pytest.raises(graphs.InvalidArgumentError, match=r"order 1\.5 is fractional.*features='rational'"):
        rfgp.GraphGP(GRAPH, KERNEL, features="precision")


def test_chosen_fields_are_more_for_a_fitted_kernel(limits):
    limits(max_exact_nodes=10)
    nodes, y = data()
    gp = rfgp.GraphGP(GRAPH, kernels.Matern(1.5, 0.5), seed=0).condition(nodes, y)
    before = gp.feature_size["degree"]
    assert gp.features == "rational"
    gp.fit(nodes, y)
    assert gp.fitted_kernel.kappa > 2
    assert gp.feature_size["degree"] > before
