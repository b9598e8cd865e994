import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats

import graphs
import rfgp
from rfgp import GraphGP, metrics

RNG = np.random.default_rng(0)
GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(9, 8)))
FIELD = graphs.kernels.Diffusion(2.0).exact(GRAPH) @ RNG.standard_normal(72) * 30 + 100
TRAIN, TEST = np.split(RNG.permutation(72), [50])
Y = FIELD[TRAIN] + 0.3 * RNG.standard_normal(50)


def twin(gp, kernel):
    """Dense formulas in the user's units from a kernel matrix on all nodes."""
    h = gp.hyperparameters
    s2, noise, mean = (getattr(h, name).item() for name in ("outputscale", "noise", "mean"))
    K = s2 * kernel
    covariance = K[np.ix_(TRAIN, TRAIN)] + noise * np.eye(50)
    density = stats.multivariate_normal(np.full(50, mean), covariance).logpdf(Y)
    cross = K[np.ix_(TEST, TRAIN)]
    solved = np.linalg.solve(covariance, cross.T)
    return density, mean + solved.T @ (Y - mean), K[np.ix_(TEST, TEST)] - cross @ solved


def check_twin(gp, kernel):
    density, mean, covariance = twin(gp, kernel)
    p = gp.predict(TEST)
    assert gp.log_marginal_likelihood().item() == pytest.approx(density, rel=1e-8)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(p.covariance, covariance, atol=1e-6)
    np.testing.assert_allclose(p.variance, np.diag(covariance), atol=1e-6)


@pytest.mark.parametrize("kernel", ["diffusion", "regularized-laplacian"])
def test_the_exact_process_equals_its_dense_twin(kernel):
    gp = GraphGP(GRAPH, kernel, features="exact").condition(TRAIN, Y)
    gp.hyperparameters.set(noise=2.0)
    check_twin(gp, gp.fitted_kernel.exact(GRAPH))


def test_walks_equal_their_dense_twin():
    gp = GraphGP(GRAPH, features="walks", num_walkers=8, seed=1).condition(TRAIN, Y)
    gp.hyperparameters.set(lengthscale=1.3, noise=2.0)
    walks = graphs.sample_walks(GRAPH, num_walkers=8, max_nonzeros=32, kernel=graphs.kernels.Diffusion(2.0), seed=1)
    phi = walks.features(graphs.kernels.Diffusion(1.3)).toarray()
    check_twin(gp, phi @ phi.T)


@pytest.mark.parametrize("features", ["exact", "walks"])
@pytest.mark.parametrize("kernel", ["diffusion", "regularized-laplacian"])
def test_gradients_against_finite_differences(features, kernel):
    gp = GraphGP(GRAPH, kernel, features=features, num_walkers=8, seed=1).condition(TRAIN, Y)
    gp.log_marginal_likelihood().backward()
    for name in gp.hyperparameters.names:
        raw, values = gp.hyperparameters.raw[name], []
        for step in (1e-5, -2e-5):
            raw.data += step
            values.append(gp.log_marginal_likelihood().item())
        raw.data += 1e-5
        assert raw.grad.item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("features", ["exact", "walks"])
def test_fitting_finds_the_field(features):
    gp = GraphGP(GRAPH, features=features, num_walkers=64, seed=0).fit(TRAIN, Y)
    assert gp.fit_report.converged
    assert metrics.rmse(FIELD[TEST], gp.predict(TEST)) < 0.5 * FIELD[TEST].std()


def test_walks_approach_the_exact_process():
    exact = GraphGP(GRAPH, features="exact").fit(TRAIN, Y)
    target = exact.predict(TEST)
    kls = [
        np.mean(
            [
                metrics.kl_divergence(target, exact.redraw(num_walkers=m, exact_hops=0, seed=s).predict(TEST))
                for s in range(5)
            ]
        )
        for m in (16, 128, 1024)
    ]
    assert kls[0] > 2 * kls[1] > 4 * kls[2]


@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
def test_redraw_keeps_what_is_not_named():
    gp = GraphGP(GRAPH, features="walks", num_walkers=8, seed=1).fit(TRAIN, Y)
    np.testing.assert_array_equal(gp.redraw().predict(TEST).mean, gp.predict(TEST).mean)
    other = gp.redraw(lengths="iid", directions="independent", num_walkers=6, seed=2)
    assert other.seed == 2
    assert abs(other.predict(TEST).mean - gp.predict(TEST).mean).max() > 0
    exact = gp.exact()
    assert exact.features == "exact"
    assert exact.hyperparameters.lengthscale.item() == gp.hyperparameters.lengthscale.item()
    assert exact.redraw(num_walkers=4).features == "walks"
    with pytest.raises(rfgp.NotFittedError):
        GraphGP(GRAPH).exact()


def test_auto_is_readable(monkeypatch):
    assert GraphGP(GRAPH).features == "exact"
    monkeypatch.setattr("rfgp.models.graph.model.EXACT_LIMIT", 10)
    gp = GraphGP(GRAPH, num_walkers=16, seed=0)
    assert gp.features == "auto"
    gp.fit(TRAIN, Y)
    assert gp.features == gp.advice.best.features
    errors = [candidate.error for candidate in gp.advice.candidates]
    assert errors == sorted(errors)
    assert gp.features in str(gp.advice)
    assert {candidate.features for candidate in gp.advice.candidates} == {"walks", "chebyshev", "spectrum"}
    conditioned = GraphGP(GRAPH, seed=0).condition(TRAIN, Y)
    assert conditioned.features == conditioned.advice.best.features
    assert conditioned.redraw(features="auto").features != "auto"


def test_auto_begins_anew_where_the_fitted_kernel_asks_for_other_features(monkeypatch):
    monkeypatch.setattr("rfgp.models.graph.model.EXACT_LIMIT", 10)
    long = graphs.kernels.Diffusion(12.0).exact(GRAPH)
    y = np.linalg.cholesky(long + 1e-9 * np.eye(72)) @ RNG.standard_normal(72) * 5
    gp = GraphGP(GRAPH, num_walkers=4, seed=0)
    chosen = []
    monkeypatch.setattr(gp, "_use", lambda a, k, use=gp._use: (chosen.append(a.best.features), use(a, k)))
    gp.fit(TRAIN, y[TRAIN] + 0.01 * RNG.standard_normal(50))
    assert len(chosen) == 2
    assert chosen[0] != chosen[1] == gp.features == "spectrum"
    assert len(gp.fit_report.stages) == 2


def test_labels_in_labels_out():
    g = graphs.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
    gp = GraphGP(g).fit(["a", "c", "a"], [1.0, 2.0, 1.1])  # a node may be observed twice
    assert gp.predict(["d", "b"]).mean.shape == (2,)
    with pytest.raises(graphs.UnknownNodeError, match="no node 'z'"):
        gp.predict(["z"])
    with pytest.raises(graphs.UnknownNodeError, match="no node 'z'"):
        gp.fit(["z", "a"], [1.0, 2.0])


def test_an_isolated_node_keeps_its_prior():
    g = graphs.Graph.from_edges([(0, 1), (1, 2)], nodes=[0, 1, 2, 3])
    gp = GraphGP(g, features="exact").fit([0, 1, 2], [1.0, 2.0, 2.5])
    p = gp.predict([3])
    assert p.mean[0] == pytest.approx(gp.hyperparameters.mean.item())
    assert p.variance[0] == pytest.approx(gp.hyperparameters.outputscale.item())


def test_tensors_and_bad_targets():
    gp = GraphGP(GRAPH).fit(torch.as_tensor(TRAIN), torch.as_tensor(Y))
    assert isinstance(gp.predict(torch.as_tensor(TEST)).mean, torch.Tensor)
    for y, message in ((np.ones(50), "constant"), (Y[:3], "X has 50 rows and y has 3"), (Y * np.inf, "not finite")):
        with pytest.raises(rfgp.DataError, match=message):
            GraphGP(GRAPH).fit(TRAIN, y)
    with pytest.raises(rfgp.DataError, match="at least two"):
        GraphGP(GRAPH).fit([0], [1.0])


def test_a_fit_into_infinite_variance_is_named():
    kernel = graphs.kernels.RegularizedLaplacian(2, 5.0)
    gp = GraphGP(GRAPH, kernel, features="walks", halt=0.3, seed=0)
    with pytest.warns(graphs.InfiniteVarianceWarning, match="halt = 0.3"):
        gp.fit(TRAIN, Y, fixed=["sigma"])
    with pytest.warns(graphs.InfiniteVarianceWarning, match="halt = 0.3"):
        GraphGP(GRAPH, kernel, features="walks", halt=0.3, seed=0).condition(TRAIN, Y)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"features": "fourier"}, rfgp.InvalidArgumentError),
        ({"features": "chebyshev", "degree": -1}, graphs.InvalidArgumentError),
        ({"features": "spectrum", "rank": 0}, graphs.InvalidArgumentError),
        ({"kernel": "heat"}, graphs.InvalidArgumentError),
        ({"features": "walks", "num_walkers": 0}, graphs.InvalidArgumentError),
        ({"features": "walks", "halt": 2.0}, graphs.InvalidArgumentError),
        ({"seed": "a"}, rfgp.InvalidArgumentError),
    ],
)
def test_bad_options_are_named_at_once(options, error):
    with pytest.raises(error):
        GraphGP(GRAPH, **options)


def test_the_budget_of_exact_hops_grows_with_the_walkers():
    for walkers in (4, 16):
        gp = GraphGP(GRAPH, features="walks", num_walkers=walkers, seed=0).condition(TRAIN, Y)
        same = graphs.sample_walks(GRAPH, num_walkers=walkers, max_nonzeros=4 * walkers, kernel=gp.kernel, seed=0)
        rule, expected = gp._walks.settings.exact_hops, same.settings.exact_hops
        assert getattr(rule, "most", 0) == getattr(expected, "most", 0)
    given = GraphGP(GRAPH, features="walks", num_walkers=16, walk_options={"max_nonzeros": 5}, seed=0)
    assert given._walks.settings.exact_hops == 0
    assert gp._walks.settings.exact_hops.most > 0


def test_a_redraw_chooses_hops_anew_with_other_walks_only(monkeypatch):
    gp = GraphGP(GRAPH, features="walks", num_walkers=16, seed=0).condition(TRAIN, Y)
    monkeypatch.setattr("graphs.walks.sampling.choose_hops", lambda *_: 0)
    assert gp.redraw(seed=1)._walks.settings.exact_hops is gp._walks.settings.exact_hops
    assert gp.redraw(num_walkers=8)._walks.settings.exact_hops == 0
    assert gp.redraw(seed=1).walk_options["exact_hops"] == "auto"
