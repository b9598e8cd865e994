import copy

import networkx as nx
import numpy as np
import pytest
import torch
from checks import assert_mean
from hypothesis import given, settings
from hypothesis import strategies as st
from model_checks import assert_gradients
from scipy import stats

import graphs
import rfgp
from rfgp import GraphGP, RandomWalks, metrics
from rfgp.approximations import MeasuredFeatures
from rfgp.approximations.measured import is_much_better
from rfgp.regression.graph.checks import split
from rfgp.report.processes import describe_process, num_nonzeros

KERNEL = graphs.kernels.Diffusion()
GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(9, 8)))


def observed(seed=0):
    """A field on the graph, nodes to fit and to test, and observations of the first."""
    rng = np.random.default_rng(seed)
    field = graphs.kernels.Diffusion(2.0).exact(GRAPH) @ rng.standard_normal(72) * 30 + 100
    train, test = np.split(rng.permutation(72), [50])
    return field, train, test, field[train] + 0.3 * rng.standard_normal(50)


FIELD, TRAIN, TEST, Y = observed()


def features_of(gp):
    """Return the features of nodes of a model with one term."""
    (term,) = gp.spec.term_priors
    return term.features


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
    assert_gradients(gp, rel=1e-4, abs=1e-6)


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
                metrics.kl_divergence(
                    target, exact.with_approximation(RandomWalks(m, exact_hops=0, seed=s)).predict(TEST)
                )
                for s in range(5)
            ]
        )
        for m in (16, 128, 1024)
    ]
    assert kls[0] > 2 * kls[1] > 4 * kls[2]


@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
def test_other_approximations_keep_the_hyperparameters():
    gp = GraphGP(GRAPH, features="walks", num_walkers=8, seed=1).fit(TRAIN, Y)
    again = gp.with_approximation(RandomWalks(8, seed=1))
    np.testing.assert_allclose(again.predict(TEST).mean, gp.predict(TEST).mean, atol=0.1)
    other = gp.with_approximation(RandomWalks(6, lengths="iid", step_coupling="independent", seed=2))
    assert other.approximation.seed == 2
    assert abs(other.predict(TEST).mean - gp.predict(TEST).mean).max() > 0
    exact = gp.exact()
    assert exact.features == "exact"
    assert exact.hyperparameters.lengthscale.item() == gp.hyperparameters.lengthscale.item()
    assert exact.with_approximation(RandomWalks(4)).features == "walks"
    with pytest.raises(rfgp.NotFittedError):
        GraphGP(GRAPH).exact()


@pytest.mark.slow
def test_auto_is_readable(limits):
    assert GraphGP(GRAPH).features == "exact"
    limits(max_exact_nodes=10)
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
    again = conditioned.with_approximation(MeasuredFeatures())
    assert again.features == again.advice.best.features


def test_auto_restarts_if_the_fitted_kernel_needs_others(monkeypatch, limits):
    limits(max_exact_nodes=10)
    long = graphs.kernels.Diffusion(12.0).exact(GRAPH)
    rng = np.random.default_rng(1)
    y = np.linalg.cholesky(long + 1e-9 * np.eye(72)) @ rng.standard_normal(72) * 5
    gp = GraphGP(GRAPH, num_walkers=4, seed=0)
    measured, best = MeasuredFeatures.measured, []

    def spy(self, *arguments):
        advice = measured(self, *arguments)
        best.append(advice.best.features)
        return advice

    monkeypatch.setattr(MeasuredFeatures, "measured", spy)
    gp.fit(TRAIN, y[TRAIN] + 0.01 * rng.standard_normal(50))
    assert best[0] != best[1] == best[2] == gp.features == "spectrum"
    assert [stage.name for stage in gp.fit_report.stages].count("all rows") == 2


@pytest.mark.parametrize(("error", "present", "is_worth"), [(0.41, "walks", True), (0.39, "walks", False)])
def test_fit_restarts_for_half_the_error(error, present, is_worth):
    best, other = graphs.advice.Candidate("chebyshev", {}, 0.2, 9), graphs.advice.Candidate("walks", {}, error, 9)
    advice = graphs.Advice(best, (best, other), "")
    assert is_much_better(advice, present) is is_worth
    assert not is_much_better(advice, "chebyshev")
    assert is_much_better(advice, "spectrum")  # not measured: left at once


def test_several_initial_values_are_optimized(monkeypatch):
    rng = np.random.default_rng(16)  # of 60 such draws one of five where the best start leads to a lower optimum
    field = np.sin(0.9 * np.arange(72) + 16) + np.linspace(0, 5, 72) + 0.3 * rng.standard_normal(72)
    nodes = rng.permutation(72)[:30]

    def fitted():
        return GraphGP(GRAPH, priors={"noise": None}, seed=0).fit(nodes, field[nodes])

    gp = fitted()
    report = gp.fit_report
    assert [stage.name for stage in report.stages] == ["all rows", "all rows, start 2", "all rows, start 3"]
    assert report.iterations == sum(stage.iterations for stage in report.stages)
    assert gp.log_marginal_likelihood().item() == pytest.approx(report.log_marginal_likelihood)
    monkeypatch.setattr("rfgp.fitting.terms.OPTIMIZED", 1)
    assert report.log_marginal_likelihood > fitted().fit_report.log_marginal_likelihood + 0.03
    assert len(GraphGP(GRAPH, kernel=graphs.kernels.Diffusion(2.0)).fit(nodes, field[nodes]).fit_report.stages) == 1


def test_the_noise_is_kept_from_zero(tmp_path):
    nodes = np.arange(0, 72, 3)  # without neighbours among them: noise and kernel can hardly be told apart
    y = np.random.default_rng(1).standard_normal(24)
    free = GraphGP(GRAPH, priors={"noise": None}).fit(nodes, y)
    gp = GraphGP(GRAPH).fit(nodes, y)
    assert free.hyperparameters.noise.item() < 1e-3 * np.var(y)
    share = gp.hyperparameters.noise.item() / np.var(y)
    assert 0.01 < share < 2
    assert gp.log_marginal_likelihood() > free.log_marginal_likelihood() - 3
    assert gp.hyperparameters.log_prior().item() == pytest.approx(0.5 * np.log(gp.hyperparameters.noise.item()))
    free.save(tmp_path / "m.safetensors", data=True)
    assert rfgp.load(tmp_path / "m.safetensors").hyperparameters.log_prior().item() == 0
    own = GraphGP(GRAPH, priors={"noise": torch.distributions.LogNormal(-5.0, 0.01)}).fit(nodes, y)
    assert own.hyperparameters.noise.item() == pytest.approx(np.exp(-5), rel=0.1)


def test_labels_in_labels_out():
    g = graphs.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
    gp = GraphGP(g).fit(["a", "c", "a"], [1.0, 2.0, 1.1])  # a node may be observed twice
    assert gp.predict(["d", "b"]).mean.shape == (2,)
    with pytest.raises(rfgp.DataError, match="'z'"):
        gp.predict(["z"])
    with pytest.raises(rfgp.DataError, match="'z'"):
        gp.fit(["z", "a"], [1.0, 2.0])


def test_an_isolated_node_keeps_its_prior():
    g = graphs.Graph.from_edges([(0, 1), (1, 2)], nodes=[0, 1, 2, 3])
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components, 1 of them without"):
        gp = GraphGP(g, features="exact").fit([0, 1, 2], [1.0, 2.0, 2.5])
    p = gp.predict([3])
    assert p.mean[0] == pytest.approx(gp.hyperparameters.mean.item())
    assert p.variance[0] == pytest.approx(gp.hyperparameters.outputscale.item())


def test_tensors_and_bad_targets():
    gp = GraphGP(GRAPH).fit(torch.as_tensor(TRAIN), torch.as_tensor(Y))
    assert isinstance(gp.predict(torch.as_tensor(TEST)).mean, torch.Tensor)
    for y, message in (
        (np.ones(50), "constant"),
        (Y[:3], "must have 50 rows like X, got 3"),
        (Y * np.inf, "not finite"),
    ):
        with pytest.raises(rfgp.DataError, match=message):
            GraphGP(GRAPH).fit(TRAIN, y)
    with pytest.raises(rfgp.DataError, match="at least two"):
        GraphGP(GRAPH).fit([0], [1.0])


@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
def test_a_fit_into_infinite_variance_is_named():
    kernel = graphs.kernels.RegularizedLaplacian(2, 5.0)
    gp = GraphGP(GRAPH, kernel, features="walks", p_halt=0.3, seed=0)
    with pytest.warns(graphs.InfiniteVarianceWarning, match="p_halt = 0.3"):
        gp.fit(TRAIN, Y, fixed=["sigma"])
    with pytest.warns(graphs.InfiniteVarianceWarning, match="p_halt = 0.3"):
        GraphGP(GRAPH, kernel, features="walks", p_halt=0.3, seed=0).condition(TRAIN, Y)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"features": "fourier"}, rfgp.InvalidArgumentError),
        ({"features": "chebyshev", "degree": -1}, rfgp.InvalidArgumentError),
        ({"features": "spectrum", "rank": 0}, rfgp.InvalidArgumentError),
        ({"kernel": "heat"}, graphs.InvalidArgumentError),
        ({"features": "walks", "num_walkers": 0}, rfgp.InvalidArgumentError),
        ({"features": "walks", "p_halt": 2.0}, graphs.InvalidArgumentError),
        ({"seed": "a"}, rfgp.InvalidArgumentError),
    ],
)
def test_bad_options_are_named_at_once(options, error):
    with pytest.raises(error):
        GraphGP(GRAPH, **options)


def test_the_budget_of_exact_hops_grows_with_the_walkers():
    for walkers in (4, 16):
        gp = GraphGP(GRAPH, features="walks", num_walkers=walkers, seed=0).condition(TRAIN, Y)
        same = graphs.sample_walks(
            GRAPH, num_walkers=walkers, max_nonzeros=4 * walkers, kernel=graphs.kernels.Diffusion(), seed=0
        )
        rule, expected = gp.walks.settings.exact_hops, same.settings.exact_hops
        assert getattr(rule, "most", 0) == getattr(expected, "most", 0)
    given = GraphGP(GRAPH, features="walks", num_walkers=16, walk_options={"max_nonzeros": 5}, seed=0)
    assert given.condition(TRAIN, Y).walks.settings.exact_hops == 0
    assert gp.walks.settings.exact_hops.max_hops > 0


SERIES = {
    "chebyshev": lambda k: graphs.chebyshev_features(GRAPH, degree=4).features(k).toarray(),
    "taylor": lambda k: graphs.taylor_features(GRAPH, degree=4).features(k).toarray(),
    "spectrum": lambda k: graphs.spectral_features(GRAPH, rank=20).features(k).toarray(),
}


@pytest.mark.parametrize("features", SERIES)
def test_series_and_spectrum_equal_their_dense_twin(features):
    gp = GraphGP(GRAPH, features=features, degree=4, rank=20).condition(TRAIN, Y)
    gp.hyperparameters.set(lengthscale=1.3, noise=2.0)
    phi = SERIES[features](graphs.kernels.Diffusion(1.3))
    check_twin(gp, phi @ phi.T)
    values = gp.sample_functions(3000, seed=0)(TEST)
    p = gp.predict(TEST)
    assert_mean(values, p.mean)
    assert_mean((values - p.mean) ** 2, p.variance)


def test_exact_functions_have_the_predicted_distribution():
    gp = GraphGP(GRAPH, features="exact").condition(TRAIN, Y)
    values, p = gp.sample_functions(3000, seed=0)(TEST), gp.predict(TEST)
    assert_mean(values, p.mean)
    deviations = values - p.mean
    assert_mean((deviations[:, :, None] * deviations[:, None]).reshape(3000, -1), p.covariance.ravel())


class TestMissingValues:
    def test_rows_without_a_value_are_left_out(self):
        y = Y.copy()
        y[[3, 17]] = np.nan
        noise, kept = np.linspace(0.1, 1, 50), np.setdiff1d(np.arange(50), [3, 17])
        gp = GraphGP(GRAPH).fit(TRAIN, y, noise=noise)
        same = GraphGP(GRAPH).fit(TRAIN[kept], Y[kept], noise=noise[kept])
        assert gp.num_observations == 48
        np.testing.assert_array_equal(gp.predict(TEST).mean, same.predict(TEST).mean)
        gp.update(list(TEST[:2]), [1.0, np.nan])
        assert gp.num_observations == 49
        tensors = GraphGP(GRAPH).condition(torch.from_numpy(TRAIN), torch.from_numpy(y))
        assert tensors.num_observations == 48

    def test_outputs_that_are_partly_missing_are_refused(self):
        both = np.stack([Y, Y], axis=1)
        both[5] = np.nan
        assert GraphGP(GRAPH).condition(TRAIN, both).num_observations == 49
        both[7, 0] = np.nan
        with pytest.raises(rfgp.DataError, match=r"all outputs or none.*row 7"):
            GraphGP(GRAPH).condition(TRAIN, both)

    def test_the_label_of_a_missing_value_is_a_node(self):
        with pytest.raises(graphs.UnknownNodeError, match="got 'nowhere'"):
            GraphGP(graphs.Graph.from_edges([("n1", "n2")])).condition(["n1", "nowhere"], [1.0, np.nan])

    def test_nothing_left(self):
        with pytest.raises(rfgp.DataError, match="50 missing"):
            GraphGP(GRAPH).fit(TRAIN, Y * np.nan)
        with pytest.raises(rfgp.DataError, match="at least two"):
            GraphGP(GRAPH).fit(TRAIN[:2], [1.0, np.nan])


LONG_GRID = graphs.Graph.from_grid((25, 25))


class TestChecks:
    """A smooth field with little noise, as on the unit sphere: walks are poor, and say so."""

    FIELD = np.sin(np.arange(625) // 25 / 8) + np.cos(np.arange(625) % 25 / 9)
    SEEN = np.random.default_rng(3).permutation(625)[:500]

    @pytest.mark.slow
    def test_poor_walks_are_named_with_numbers_and_the_remedy(self):
        gp = GraphGP(LONG_GRID, features="walks", num_walkers=16, seed=0)
        with pytest.warns(rfgp.PoorFeaturesWarning, match=r"differ by .* nats per node .*features='auto'"):
            gp.fit(self.SEEN, self.FIELD[self.SEEN] + 1e-3 * np.random.default_rng(0).standard_normal(500))
        found = gp.diagnose()
        assert found.is_poor
        assert found.divergence > 0.1
        assert found.walk_variance > 1
        assert found.num_held_out == 64

    @pytest.mark.slow
    def test_the_remedy_helps(self, limits):
        limits(max_exact_nodes=10)
        y = self.FIELD[self.SEEN] + 0.05 * np.random.default_rng(0).standard_normal(500)
        gp = GraphGP(LONG_GRID, num_walkers=32, seed=0).fit(self.SEEN, y)  # a warning would be an error
        assert gp.features != "walks"
        assert gp.diagnose().kernel_error < 0.1
        kl = metrics.kl_divergence(gp.exact().predict(np.arange(0, 625, 5)), gp.predict(np.arange(0, 625, 5)))
        assert kl < 1

    def test_two_draws_tell_the_distance_to_the_exact_process(self):
        """The mean symmetrised divergence of two draws is about twice that from the exact process, both a node."""
        graph, rng = graphs.Graph.from_grid((12, 12)), np.random.default_rng(0)
        field = graphs.kernels.Diffusion(3.0).exact(graph) @ rng.standard_normal(144) * 5
        exact = GraphGP(graph, graphs.kernels.Diffusion(3.0), features="exact", seed=0)
        exact.condition(np.arange(144), field + 0.2 * rng.standard_normal(144))
        ratios = []
        for seed in range(12):
            gp = exact.with_approximation(RandomWalks(64, exact_hops=0, seed=seed))
            rows = gp.state.rows
            used, hidden = split(graph, rows.inputs[:, 0].long().numpy(), 0)
            laws = [
                copy.deepcopy(model).condition(used.numpy(), rows.targets[used, 0].numpy()) for model in (exact, gp)
            ]
            for law, model in zip(laws, (exact, gp), strict=True):
                law.hyperparameters.load_state_dict(model.hyperparameters.state_dict())
            found = gp.diagnose().divergence
            ratios.append((found, self.symmetric(laws, hidden.numpy())))
        found, truth = np.mean(ratios, axis=0)
        assert 1.2 < found / truth < 3.2

    @staticmethod
    def symmetric(laws, nodes):
        a, b = (law.predict(nodes) for law in laws)
        return (metrics.kl_divergence(a, b) + metrics.kl_divergence(b, a)) / 2 / len(nodes)

    def test_exact_processes_and_few_nodes(self):
        found = GraphGP(GRAPH, features="exact").condition(TRAIN, Y).diagnose()
        assert not found.is_poor
        assert found.divergence is None
        assert found.kernel_error is None
        assert 0.05 < found.calibration < 20
        few = GraphGP(GRAPH, features="walks", num_walkers=4, seed=0).condition(TRAIN[:5], Y[:5]).diagnose()
        assert few.num_held_out == 0
        assert few.divergence is None
        assert "exact" in str(few)

    def test_walks_that_vary_as_much_as_the_noise_are_poor(self):
        """Their variance takes the place of the noise in a fit."""
        gp = GraphGP(LONG_GRID, graphs.kernels.Diffusion(3.0), features="walks", num_walkers=4, exact_hops=0, seed=0)
        gp.condition(self.SEEN[:100], self.FIELD[self.SEEN[:100]])
        phis = [
            graphs.sample_walks(LONG_GRID, num_walkers=4, exact_hops=0, seed=s).features(graphs.kernels.Diffusion(3.0))
            for s in range(40)
        ]
        second = sum(phi.power(2).sum(1) for phi in phis) / 40
        variance = (second - (sum(phis) / 40).power(2).sum(1)).mean() * 40 / 39
        known = gp.hyperparameters
        expected = variance * known.outputscale.item() / known.noise.item()
        assert gp.diagnose().walk_variance == pytest.approx(expected, rel=0.3)


@st.composite
def problems(draw):
    """A small graph, weighted, perhaps in parts and with isolated nodes, and observations, perhaps repeated."""
    count = draw(st.integers(3, 14))
    pairs = [(a, b) for a in range(count) for b in range(a)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30))
    weights = draw(st.lists(st.floats(0.05, 20), min_size=len(edges), max_size=len(edges)))
    nodes = draw(
        st.one_of(
            st.just(list(range(count))),
            st.integers(0, count - 1).map(lambda node: [node] * 3),
            st.lists(st.integers(0, count - 1), min_size=2, max_size=20),
        )
    )
    y = draw(st.lists(st.floats(-10, 10), min_size=len(nodes), max_size=len(nodes)))
    return graphs.Graph.from_edges(edges, weights, nodes=range(count)), nodes, np.array(y)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=problems(), features=st.sampled_from(["exact", "walks", "chebyshev", "spectrum"]), cg=st.booleans())
def test_any_graph_and_any_observations_equal_the_dense_twin(problem, features, cg):
    graph, nodes, y = problem
    if np.ptp(y) < 1e-6:
        y = y + np.arange(len(y))
    gp = GraphGP(graph, features=features, num_walkers=8, degree=3, rank=2, seed=0).condition(nodes, y)
    kernel = gp.fitted_kernel
    everywhere = list(range(graph.num_nodes))
    if features == "exact":
        K = kernel.exact(graph)
    else:
        draw = features_of(gp).draw.at(everywhere)
        phi = draw.features(kernel).toarray()
        K = phi @ phi.T
    h = gp.hyperparameters
    K, noise, mean = K * h.outputscale.item(), h.noise.item(), h.mean.item()
    covariance = K[np.ix_(nodes, nodes)] + noise * np.eye(len(nodes))
    expected = mean + K[:, nodes] @ np.linalg.solve(covariance, y - mean)
    posterior = K - K[:, nodes] @ np.linalg.solve(covariance, K[nodes])
    scale = y.std(ddof=1)
    with rfgp.testing.limits(max_dense=0 if cg else 4000):
        p = gp.predict(everywhere)
        np.testing.assert_allclose(p.mean, expected, rtol=1e-7, atol=1e-7 * (scale + abs(mean)))
        np.testing.assert_allclose(p.covariance, posterior, atol=(1e-4 if cg else 1e-7) * scale**2 * 10)
        if not cg:
            density = stats.multivariate_normal(np.full(len(nodes), mean), covariance).logpdf(y)
            assert gp.log_marginal_likelihood().item() == pytest.approx(density, rel=1e-8, abs=1e-6)


def test_one_observation_conditions_a_model_that_is_known():
    gp = GraphGP(GRAPH, features="exact").fit(TRAIN, Y)
    noise = gp.hyperparameters.noise.item()
    gp.condition([0], [90.0])
    assert gp.hyperparameters.noise.item() == noise
    assert gp.predict([0]).mean.shape == (1,)
    with pytest.raises(rfgp.DataError, match="at least two"):
        GraphGP(GRAPH).condition([0], [90.0])


@pytest.mark.slow
def test_a_free_modulation_is_kept_near_its_family():
    """With few data the factors stay near 1; what data say moves them."""
    kernel = graphs.kernels.FreeModulation(factors=(1.0,) * 4)
    few = GraphGP(GRAPH, kernel, features="exact").fit(TRAIN[:8], Y[:8])
    factors = [few.hyperparameters.value(f"factor_{i}").item() for i in range(4)]
    assert np.abs(np.log(factors)).max() < 0.5
    truth = graphs.kernels.FreeModulation(graphs.kernels.Diffusion(2.0), (1.0, 0.2, 3.0, 1.0))
    rng = np.random.default_rng(0)
    grid, nodes = graphs.Graph.from_grid((15, 15)), np.arange(225)
    root = np.linalg.cholesky(truth.exact(grid) + 1e-9 * np.eye(225))
    fields = root @ rng.standard_normal((225, 16)) * 3
    gp = GraphGP(grid, kernel, features="exact").fit(nodes, fields + 0.1 * rng.standard_normal((225, 16)))
    eigenvalues = np.linspace(0, 2, 21)
    found, wanted = (k.spectral(eigenvalues) for k in (gp.fitted_kernel, truth))
    plain = GraphGP(grid, "diffusion", features="exact").fit(nodes, fields)
    family = plain.fitted_kernel.spectral(eigenvalues)
    shapes = [np.log(k / k.mean() + 1e-3) for k in (found, wanted, family)]
    assert np.abs(shapes[0] - shapes[1]).mean() < 0.5 * np.abs(shapes[2] - shapes[1]).mean()
    assert gp.log_marginal_likelihood() > plain.log_marginal_likelihood()


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ("exact", "exact kernel"),
        ("walks", "8 walkers"),
        ("chebyshev", "degree 3"),
        ("taylor", "degree 3"),
        ("spectrum", "5 small"),
    ],
)
def test_features_in_words_and_numbers(features, words):
    gp = GraphGP(GRAPH, features=features, num_walkers=8, degree=3, rank=5, seed=0).condition(TRAIN, Y)
    assert words in describe_process(gp)
    expected = {"exact": 50 * 72, "spectrum": 50 * 5}.get(features)
    found = num_nonzeros(gp)
    assert found == expected if expected else 50 < found < 50 * 72


def test_a_fit_that_fails_leaves_the_features_as_they_were(limits):
    limits(max_exact_nodes=10)
    gp = GraphGP(GRAPH, num_walkers=16, seed=0).fit(TRAIN, Y)
    features, advice, mean = features_of(gp), gp.advice, gp.predict(TEST).mean

    def stop(done, value):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gp.fit(TRAIN[:20], Y[:20], callback=stop)
    assert features_of(gp) is features
    assert gp.advice is advice
    np.testing.assert_array_equal(gp.predict(TEST).mean, mean)


def test_error_of_other_objects_names_the_constructors():
    kernel = graphs.kernels.Diffusion()
    for make in (
        GraphGP,
        lambda graph: rfgp.gpytorch.GraphExactKernel(graph, kernel),
        lambda graph: rfgp.sklearn.GraphGPRegressor(graph).fit([0, 1], [0.0, 1.0]),
    ):
        with pytest.raises(rfgp.InvalidArgumentError, match=r"got Graph of networkx.*from_networkx"):
            make(nx.path_graph(3))
    with pytest.raises(rfgp.InvalidArgumentError, match=r"walks must be features of nodes, .* got Graph"):
        rfgp.gpytorch.GraphFeatureKernel(GRAPH, kernel)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_small_fit_keeps_to_one_thread(threads, monkeypatch):
    told = [threads]
    monkeypatch.setattr(torch, "get_num_threads", lambda: told[-1])
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    GraphGP(GRAPH, seed=0).fit(TRAIN, Y)
    assert told[0] == told[-1] == threads  # restored
    assert threads == 1 or 1 in told


@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
def test_a_kernel_without_parameters_is_not_tuned_again(monkeypatch):
    gp = GraphGP(GRAPH, "random-walk", features="walks", num_walkers=4, seed=0)
    gp.fit(TRAIN, Y)
    monkeypatch.setattr("graphs.walks.sampling.choose_hops", lambda *_: pytest.fail("chosen anew"))
    again = gp.spec.with_new_basis(gp.hyperparameters.values, len(TRAIN))
    assert again.term_priors[0].has_basis_of(gp.spec.term_priors[0])


def test_a_learned_coupling_serves_the_check_as_well(monkeypatch):
    gp = GraphGP(GRAPH, features="walks", lengths="learned", num_walkers=4, seed=0).condition(TRAIN, Y)
    monkeypatch.setattr("graphs.walks.sampling.couple_quantiles", lambda *_: pytest.fail("learned anew"))
    assert gp.diagnose().divergence > 0


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
class TestAKernelThatNoSeriesIs:
    def test_a_fit_that_ends_at_the_bound_of_kappa_stands(self):
        g, y = graphs.Graph.from_grid((4, 6)), np.add.outer(np.arange(4), np.arange(6)).ravel()
        with pytest.warns(rfgp.PoorFeaturesWarning, match="the relative error of the kernel on a sample of nodes"):
            gp = GraphGP(g, "matern", features="taylor", seed=0).fit(np.arange(24), y)
        assert gp.fitted_kernel.kappa == pytest.approx(1000)

    def test_on_a_large_graph_polynomials_are_poor_and_others_stay(self, monkeypatch):
        monkeypatch.setattr("graphs.advice.MAX_FLOPS", 0)  # nothing is solved: features alone
        g, nodes = graphs.Graph.from_grid((2001,)), np.arange(0, 2001, 40)
        for features, error in (("chebyshev", np.inf), ("spectrum", None)):
            kernel = graphs.kernels.Matern(kappa=1000.0)
            found = (
                GraphGP(g, kernel, features, seed=0, rank=8, degree=8).condition(nodes, np.sin(nodes / 100)).diagnose()
            )
            assert (found.kernel_error, found.is_poor) == (error, error is not None)
            assert ("a polynomial of degree 2,000 does not approximate this kernel" in str(found)) == found.is_poor
        auto = GraphGP(g, "matern", "auto", num_walkers=2, seed=0).condition(nodes, np.sin(nodes / 100))
        auto.hyperparameters.set(kappa=999.0)
        again = auto.spec.with_new_basis(auto.hyperparameters.values, len(nodes))
        assert again.term_priors[0].has_basis_of(auto.spec.term_priors[0])


@pytest.mark.parametrize("features", ["exact", "walks", "precision"])
def test_nodes_of_grids_are_tuples_or_positions(features):
    """Also as arrays of integers (n, 2), as tensors, and of models that are updated."""
    grid = graphs.Graph.from_grid((6, 7))
    kernel = graphs.kernels.RegularizedLaplacian(2, 1.0)
    tuples = [grid.labels[i] for i in range(0, 42, 3)]
    positions, y = np.arange(0, 42, 3), np.sin(np.arange(14.0))
    expected = GraphGP(grid, kernel, features=features, seed=0).condition(positions, y).predict(np.arange(42))
    for nodes in (tuples, np.array(tuples), torch.tensor(tuples), torch.as_tensor(positions)):
        gp = GraphGP(grid, kernel, features=features, seed=0).condition(nodes, y)
        np.testing.assert_array_equal(gp.predict(list(grid.labels)).mean, np.asarray(expected.mean))
    parts = [
        GraphGP(grid, kernel, features=features, seed=0).condition(nodes[:9], y[:9]).update(nodes[9:], y[9:])
        for nodes in (tuples, positions)
    ]
    np.testing.assert_array_equal(parts[0].predict([(5, 6), (0, 1)]).mean, parts[1].predict([41, 1]).mean)
    with pytest.raises(rfgp.DataError, match="node"):
        gp.predict([(6, 0)])
