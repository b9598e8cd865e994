"""Conjugate gradients and draws against dense algebra in numpy on the same features."""

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch
from checks import assert_mean, assert_mean_of_normals, fails

import graphs
import rfgp
from rfgp import GraphGP
from rfgp.inference import ArrayRows, Sparse, SparseFeatures, SparsePosterior, sparse, systems
from rfgp.inference.systems import SparseSystem
from rfgp.models.fitting import Plan, ascend, scoring

RNG = np.random.default_rng(0)
GRID = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(30, 30)))
LONG = graphs.kernels.Diffusion(20.0).exact(GRID)
PHI = {
    "walks": graphs.sample_walks(GRID, np.arange(0, 900, 3), seed=0).features(graphs.kernels.Diffusion(2.0)),
    "long": sp.csr_array(np.linalg.cholesky(LONG[::3, ::3] / LONG.diagonal().mean() + 1e-9 * np.eye(300))),
}
SPREAD = RNG.uniform(0.02, 0.2, 300)


def system(name, seed=0, variance=9.0):
    phi = PHI[name]
    return SparseSystem(phi, variance, SPREAD, seed), variance * (phi @ phi.T).toarray() + np.diag(SPREAD)


class TestSystems:
    @pytest.mark.parametrize("name", PHI)
    def test_solutions(self, name):
        found, C = system(name)
        right = torch.from_numpy(RNG.standard_normal((300, 3)))
        expected = np.linalg.solve(C, right.numpy())
        np.testing.assert_allclose(found.solve(right, 1e-11), expected, rtol=1e-8, atol=1e-8 * abs(expected).max())
        np.testing.assert_allclose(found.product(right), C @ right.numpy(), rtol=1e-10, atol=1e-10)
        zero = found.solve(torch.zeros(300, 2, dtype=torch.float64), 1e-8)
        assert not zero.any()

    def test_a_preconditioner_is_there_for_long_lengthscales_only(self):
        assert system("long")[0]._preconditioner is not None
        assert system("walks")[0]._preconditioner is None

    @pytest.mark.parametrize("name", PHI)
    def test_log_determinants_and_their_errors(self, name):
        exact = np.linalg.slogdet(system(name)[1])[1]
        estimates = [system(name, seed)[0].paths(8, 1e-5).log_determinant for seed in range(40)]
        values = np.array([e.value for e in estimates])
        assert_mean_of_normals(values[:, None], np.array([exact]))
        assert fails(assert_mean_of_normals, values[:, None] + 3 * values.std(), np.array([exact]))
        stated = np.sqrt(np.mean([e.error**2 for e in estimates]))
        assert 0.5 < stated / values.std(ddof=1) < 2  # 39 degrees of freedom: six deviations of a chi-square

    @pytest.mark.parametrize("name", PHI)
    def test_paths_have_the_inverse_as_their_covariance(self, name):
        found, C = system(name)
        w = found.paths(4000, 1e-8).solved
        inverse = np.linalg.inv(C)
        directions = np.stack([np.eye(300)[0], RNG.standard_normal(300) / 17, inverse[:, 5] * 5])
        samples = (directions @ w.numpy()) ** 2
        assert_mean(samples.T, np.einsum("ij,jk,ik->i", directions, inverse, directions))
        assert fails(assert_mean, samples.T, 1.2 * np.einsum("ij,jk,ik->i", directions, inverse, directions))

    def test_both_ways_to_multiply(self, monkeypatch):
        v = torch.from_numpy(RNG.standard_normal((300, 2)))
        formed, factored = system("walks")[0], system("walks")[0]
        monkeypatch.setattr(systems, "_FILL", 10**9)
        assert formed._gram is not None
        monkeypatch.setattr(systems, "_FILL", 0)
        assert factored._gram is None
        torch.testing.assert_close(factored._times(v), formed._times(v))
        monkeypatch.setattr(systems, "_IN_THREADS", 0)
        torch.testing.assert_close(factored._times(v), formed._times(v))

    def test_searches_that_end_early_begin_again(self, monkeypatch):
        monkeypatch.setattr(systems, "MOST_ITERATIONS", 40)
        found, C = system("walks")
        right = torch.from_numpy(RNG.standard_normal((300, 3)))
        right[:, 1] = 0
        solved = found.solve(right, 1e-9)
        np.testing.assert_allclose(solved, np.linalg.solve(C, right.numpy()), rtol=0, atol=1e-7)
        monkeypatch.setattr(systems, "_ROUNDS", 1)
        with pytest.raises(rfgp.SolverError, match="reached a relative residual of"):
            found.solve(right, 1e-9)

    @pytest.mark.parametrize("size", [1e-200, 1e200])
    def test_sizes_that_squares_cannot_hold(self, size):
        found, _ = system("walks")
        right = torch.from_numpy(RNG.standard_normal((300, 2)))
        torch.testing.assert_close(found.solve(size * right, 1e-9) / size, found.solve(right, 1e-9))
        right[3, 1] = torch.inf
        with pytest.raises(rfgp.SolverError, match="not finite"):
            found.solve(right, 1e-9)

    @pytest.mark.filterwarnings("error")
    def test_one_draw(self):
        estimate = system("walks")[0].paths(1, 1e-6).log_determinant
        assert np.isfinite(estimate.value)
        assert estimate.error == np.inf
        assert np.isfinite(model().sample_functions(1, seed=0)([3])).all()

    def test_eigenpairs_where_the_fast_method_fails(self, monkeypatch):
        expected, fast = system("walks")[0].paths(4, 1e-6).log_determinant, scipy.linalg.eigh_tridiagonal

        def fails_once(*arguments, lapack_driver=None):
            if lapack_driver is None:
                raise np.linalg.LinAlgError("stevd did not converge")
            return fast(*arguments, lapack_driver=lapack_driver)

        monkeypatch.setattr(scipy.linalg, "eigh_tridiagonal", fails_once)
        assert system("walks")[0].paths(4, 1e-6).log_determinant.value == pytest.approx(expected.value, rel=1e-12)

    def test_a_solve_that_fails_is_named(self, monkeypatch):
        monkeypatch.setattr(systems, "MOST_ITERATIONS", 3)
        with pytest.raises(rfgp.SolverError, match="reached a relative residual of"):
            system("walks", variance=1e6)[0].solve(torch.ones(300, 1, dtype=torch.float64), 1e-9)


NODES = np.concatenate([RNG.permutation(900)[:250], [7, 7, 8]])
Y = np.sin(NODES // 30 / 4) + np.cos(NODES % 30 / 5) + 0.2 * RNG.standard_normal(253)
NOISE = RNG.uniform(0, 0.1, 253)
WEIGHT = RNG.integers(1, 4, 253).astype(float)


@pytest.fixture
def iterative(monkeypatch):
    monkeypatch.setattr("rfgp.inference.prior.MOST_DENSE", 0)


def model(y=Y, seed=0, **data):
    gp = GraphGP(GRID, graphs.kernels.Diffusion(2.0), features="walks", num_walkers=16, seed=seed)
    return gp.condition(NODES, y, **data)


def dense(gp, monkeypatch):
    """The same model by factorisation."""
    with monkeypatch.context() as patch:
        patch.setattr("rfgp.inference.prior.MOST_DENSE", 10**6)
        other = gp.redraw()
        assert len(other.predict([0]).mean) == 1  # computed, and kept
        return other


CASES = {"plain": {}, "noise": {"noise": NOISE}, "weights": {"sample_weight": WEIGHT, "noise": NOISE}}


def gradients(gp):
    parameters = list(gp.hyperparameters.parameters())
    found = torch.autograd.grad(gp.log_marginal_likelihood(), parameters)
    return torch.cat([g.reshape(-1) for g in found]).numpy()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_likelihood_and_gradient_are_unbiased(case, monkeypatch):
    exact = model(**CASES[case])
    expected = np.array([exact.log_marginal_likelihood().item(), *gradients(exact)])
    monkeypatch.setattr("rfgp.inference.prior.MOST_DENSE", 0)
    samples = []
    for seed in range(30):
        monkeypatch.setattr("rfgp.models.graph.features.DrawnFeatures.prior", reseeded(seed))
        samples.append([exact.log_marginal_likelihood().item(), *gradients(exact)])
    assert_mean_of_normals(np.array(samples)[:, :-1], expected[:-1])
    np.testing.assert_allclose(np.array(samples)[:, -1], expected[-1], rtol=1e-6)  # of the mean: no draws in it
    assert fails(assert_mean_of_normals, np.array(samples)[:, :-1], expected[:-1] + 0.1 * abs(expected[:-1]) + 3)


ORIGINAL = rfgp.models.graph.features.DrawnFeatures.prior


def reseeded(seed):
    def prior(self, theta, outputscale):
        features = ORIGINAL(self, theta, outputscale).features
        return rfgp.inference.SparsePrior(features._replace(seed=seed))

    return prior


@pytest.mark.parametrize("case", CASES)
def test_predictions_equal_those_of_factorisations(case, monkeypatch, iterative):
    gp = model(**CASES[case])
    twin = dense(gp, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("rfgp.inference.prior.MOST_DENSE", 10**6)
        expected = twin.predict(np.arange(100, 200))
        mean, covariance = expected.mean, expected.covariance
    found = gp.predict(np.arange(100, 200))
    assert set(gp._kept.tensors) == {"inputs", "spread", "coefficients", "draws"}
    np.testing.assert_allclose(found.mean, mean, rtol=1e-7)
    np.testing.assert_allclose(found.covariance, covariance, atol=2e-5 * covariance.max())
    np.testing.assert_allclose(found.variance, np.diag(covariance), rtol=1e-4)
    samples = found.sample(4000, generator=torch.Generator().manual_seed(0))
    assert_mean(samples[:, ::10], mean[::10])


def test_many_variances_come_from_draws(monkeypatch, iterative):
    gp = model()
    twin = dense(gp, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("rfgp.inference.prior.MOST_DENSE", 10**6)
        exact = twin.predict(np.arange(900))
        mean, variance = exact.mean, exact.variance
    errors = []
    for seed in range(40):
        monkeypatch.setattr("rfgp.models.graph.features.DrawnFeatures.prior", reseeded(seed))
        gp._kept = None
        found = gp.predict(np.arange(900))
        np.testing.assert_allclose(found.mean, mean, atol=1e-7)
        errors.append(found.variance / variance - 1)
    errors = np.array(errors)
    prior = gp.hyperparameters.outputscale.item() * (gp._prior(gp.hyperparameters, None).diagonal(torch.arange(900)))
    explained = prior.detach().numpy() / gp.hyperparameters.outputscale.item() - variance
    stated = np.sqrt(2 / sparse.NUM_PATHS) * explained / np.hypot(explained, variance)
    ratio = errors.std(0) / stated
    assert 0.8 < np.median(ratio) < 1.25
    assert np.abs(errors.mean(0)).max() < 0.15  # the weights are estimated too: a bias of second order
    assert np.median(np.abs(errors)) / 2 < 0.06


def test_leave_one_out(monkeypatch, iterative):
    gp = model(noise=NOISE)
    monkeypatch.setattr("rfgp.inference.sparse.MOST_SOLVED", 1000)
    found = gp.leave_one_out()
    monkeypatch.setattr("rfgp.inference.prior.MOST_DENSE", 10**6)
    expected = gp.redraw().leave_one_out()
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-3)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-3)


def test_several_outputs(monkeypatch, iterative):
    both = np.stack([Y, 3 - 2 * Y[::-1]], axis=1)
    gp = model(both)
    twin = dense(gp, monkeypatch)
    found = gp.predict(np.arange(300))
    functions = gp.sample_functions(5, seed=0)
    assert functions(np.arange(300)).shape == (5, 300, 2)
    with monkeypatch.context() as patch:
        patch.setattr("rfgp.inference.prior.MOST_DENSE", 10**6)
        np.testing.assert_allclose(found.mean, twin.predict(np.arange(300)).mean, rtol=1e-6, atol=1e-7)
        expected = twin.log_marginal_likelihood().item()
    assert abs(gp.log_marginal_likelihood().item() - expected) < 6 * gp._posterior(gp._state.data.rows).likelihood_error


@pytest.mark.parametrize("most_dense", [0, 10**6])
def test_functions_have_the_law_of_the_prediction(most_dense, monkeypatch):
    monkeypatch.setattr("rfgp.inference.prior.MOST_DENSE", most_dense)
    gp, nodes = model(noise=NOISE), np.arange(0, 900, 90)
    values = gp.sample_functions(3000, seed=1)(nodes)
    p = gp.predict(nodes)
    assert_mean(values, p.mean)
    deviations = values - p.mean
    products = deviations[:, :, None] * deviations[:, None, :]
    assert_mean(products.reshape(3000, -1), p.covariance.ravel())
    assert fails(assert_mean, values, p.mean + 0.3 * np.sqrt(p.variance))
    again = gp.sample_functions(2, seed=1)
    np.testing.assert_array_equal(again(nodes)[:, 3], again(nodes[3:4])[:, 0])


def test_scoring_finds_the_maximum_but_for_a_part_of_its_error(monkeypatch):
    exact = model()
    rows = exact._state.data.rows
    report = rfgp.models.fitting.maximize(
        lambda: exact._posterior(rows).log_marginal_likelihood(), exact._state, Plan()
    )
    monkeypatch.setattr("rfgp.inference.prior.MOST_DENSE", 0)
    gp = model()
    found = ascend(gp._posterior, rows, gp._state, Plan())
    assert found.converged
    assert found.iterations < 20
    assert abs(found.log_marginal_likelihood - report.log_marginal_likelihood) < 6 * found.likelihood_error
    monkeypatch.setattr("rfgp.inference.prior.MOST_DENSE", 10**6)
    lost = exact.log_marginal_likelihood() - gp.log_marginal_likelihood()
    assert 0 <= lost.item() < 1.0  # 1/16 of 4 parameters / 2 = .125 nats are expected


def test_steps_are_the_best_within_radius_and_bounds():
    gp = model()
    search = scoring._Scoring(gp._posterior, gp._state.data.rows, gp._state, Plan(), "all rows")
    rng = np.random.default_rng(0)

    def are_met(step, point, gradient, information, radius):
        """The conditions of Karush, Kuhn and Tucker."""
        low, high = np.maximum(search._low - point, -radius), np.minimum(search._high - point, radius)
        slope = (gradient - information @ step) / np.abs(gradient).max()
        best = (np.abs(slope) < 1e-6) | ((slope > 0) & (step > high - 1e-12)) | ((slope < 0) & (step < low + 1e-12))
        return bool((best & (step >= low) & (step <= high)).all())

    failures = 0
    for _ in range(50):
        root = rng.standard_normal((8, 4)) * [100, 30, 1, 3]
        information, gradient = root.T @ root, rng.standard_normal(4) * [100, 30, 1, 3]
        point = rng.uniform(-0.1, 0.1, 4)
        search._low, search._high = np.array([-1, -1, -0.1, -0.1]), np.array([1, 1, np.inf, 0.1])
        step, _ = search._step(point, gradient, information, 0.05)
        assert are_met(step, point, gradient, information, 0.05)
        search._low, search._high = np.full(4, -np.inf), np.full(4, np.inf)
        newton = np.linalg.solve(information, gradient)
        step, expected = search._step(point, gradient, information, np.inf)
        np.testing.assert_allclose(step, newton, rtol=1e-6, atol=1e-8)
        assert expected == pytest.approx(gradient @ newton)
        search._low, search._high = point.copy(), point + np.array([0, 1, 1, 0])  # two of them fixed by their bounds
        step, _ = search._step(point, gradient, information, 0.05)
        assert (step[[0, 3]] == 0).all()
        assert are_met(step, point, gradient, information, 0.05)
        shortened = newton * min(1.0, 0.05 / np.abs(newton).max())  # the planted error
        failures += not are_met(shortened, point, gradient, information, 0.05)
    assert failures > 40


@pytest.mark.parametrize("start", [{"noise": 1e9}, {"lengthscale": 1e9}])
def test_scoring_begins_within_bounds(iterative, start):
    gp = model()
    gp.hyperparameters.set(**start)
    search = scoring._Scoring(gp._posterior, gp._state.data.rows, gp._state, Plan(), "all rows")
    point = search._within(search._point())
    assert ((point == search._low) | (point == search._high)).sum() == 1
    beside = np.nextafter(point, np.inf)
    assert (search._within(beside) == point).sum() >= 1
    if "noise" in start:
        assert ascend(gp._posterior, gp._state.data.rows, gp._state, Plan()).converged
        assert gp.hyperparameters.noise.item() < 1


def test_scoring_minds_priors_bounds_and_what_is_fixed(monkeypatch, iterative):
    rows = model()._state.data.rows
    tight = torch.distributions.Normal(torch.tensor(1.0, dtype=torch.float64), torch.tensor(1e-3, dtype=torch.float64))
    gp = GraphGP(
        GRID, graphs.kernels.Diffusion(1.2), features="walks", num_walkers=16, seed=0, priors={"lengthscale": tight}
    )
    gp.condition(NODES, Y)
    noise = gp.hyperparameters.noise.item()
    report = ascend(gp._posterior, rows, gp._state, Plan(fixed=("noise",)))
    assert report.converged
    assert gp.hyperparameters.lengthscale.item() == pytest.approx(1.0, abs=5e-3)
    assert gp.hyperparameters.noise.item() == noise
    everything = ascend(gp._posterior, rows, gp._state, Plan(fixed=gp.hyperparameters.names))
    assert everything.iterations == 0
    assert everything.likelihood_error > 0


def test_a_fit_of_many_nodes_end_to_end(iterative):
    seen = []
    gp = GraphGP(GRID, features="walks", num_walkers=64, seed=0)
    gp.fit(NODES, Y, callback=lambda done, value: seen.append(value))
    report = gp.fit_report
    assert report.converged
    assert report.likelihood_error > 0
    assert len(seen) == report.iterations
    field = np.sin(np.arange(900) // 30 / 4) + np.cos(np.arange(900) % 30 / 5)
    p = gp.predict(np.arange(900))
    assert rfgp.metrics.rmse(field, p) < 0.15
    assert 0.3 < np.mean((p.mean - field) ** 2 / p.variance) < 3


def test_very_many_rows_begin_from_a_subset(monkeypatch, iterative):
    def fitted():
        gp = GraphGP(GRID, features="walks", num_walkers=64, seed=0)
        return gp.fit(NODES, Y)

    whole = fitted()
    assert {(stage.name, stage.rows) for stage in whole.fit_report.stages} == {("all rows", 253)}
    monkeypatch.setattr("rfgp.models.graph.training.MOST_COMPARED", 120)
    gp = fitted()
    first, *others = gp.fit_report.stages
    assert (first.name, first.rows) == ("subset of 120", 120)
    assert {(stage.name, stage.rows) for stage in others} == {("all rows", 253)}  # with tuned walks, not again
    assert gp.fit_report.iterations == sum(stage.iterations for stage in gp.fit_report.stages)
    monkeypatch.setattr("rfgp.inference.prior.MOST_DENSE", 10**6)
    lost = whole.log_marginal_likelihood() - gp.log_marginal_likelihood()
    assert abs(lost.item()) < 1.0  # both are within 1/16 of 4 parameters / 2 of the maximum, on average


def test_the_joint_law_of_too_many_is_refused(monkeypatch, iterative):
    monkeypatch.setattr("rfgp.inference.sparse.MOST_JOINT", 10)
    with pytest.raises(rfgp.InvalidArgumentError, match="sample_functions"):
        assert model().predict(np.arange(11)).covariance is None
    assert model().predict([]).mean.shape == (0,)
    assert model().predict([]).variance.shape == (0,)


def test_values_have_gradients(iterative):
    """The gradient in the values of Phi, against differences of the dense likelihood; with every draw's error."""
    walks = graphs.sample_walks(GRID, NODES[:40], num_walkers=4, exact_hops=0, seed=0)
    values = torch.from_numpy(walks.values(walks.weights(graphs.kernels.Diffusion(2.0)))).requires_grad_()
    one, targets = torch.ones((), dtype=torch.float64), torch.from_numpy(Y[:40, None])
    rows = ArrayRows(torch.from_numpy(NODES[:40]), targets)
    indptr, indices, shape = walks.pattern
    samples = []
    for seed in range(200):
        features = SparseFeatures(lambda p, keep: Sparse(values, walks.pattern), 5 * one, 900, seed)
        found = SparsePosterior(features, rows, 0 * one.reshape(1), 0.1 * one)
        (gradient,) = torch.autograd.grad(found.score(), values)
        samples.append(gradient[:12].numpy())
    dense_phi = torch.sparse_csr_tensor(
        torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), values.detach(), shape
    ).to_dense()
    dense_phi.requires_grad_()
    C = 5 * dense_phi @ dense_phi.mT + 0.1 * torch.eye(40, dtype=torch.float64)
    density = torch.distributions.MultivariateNormal(torch.zeros(40, dtype=torch.float64), C).log_prob(targets[:, 0])
    (exact,) = torch.autograd.grad(density, dense_phi)
    entries = np.repeat(np.arange(40), np.diff(indptr))[:12], indices[:12]
    assert_mean_of_normals(np.array(samples), exact.numpy()[entries])
    assert fails(assert_mean_of_normals, np.array(samples), 2 * exact.numpy()[entries])


def test_starts_that_cannot_be_solved_are_left_out(monkeypatch, iterative):
    """Where every start fails the search begins from the model's own values."""
    gp = GraphGP(GRID, features="walks", num_walkers=64, seed=0)
    monkeypatch.setattr(systems, "MOST_ITERATIONS", 12)
    searched = []
    monkeypatch.setattr("rfgp.models.graph.training.ascend", lambda *_: searched.append(1) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gp.fit(NODES, Y)
    assert searched
