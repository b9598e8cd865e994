"""Variational inference by every solver, against the closed form, free Gaussians, quadrature and long chains."""

import numpy as np
import pytest
import torch
from observed import SUMS, Observed, by_rows, check_gradient, evidence_of_a_row, grid, observations
from posteriors import elliptical_slices
from reference import ReferenceSolver

from rfgp import InvalidArgumentError, SolverError
from rfgp.inference.composite import HeteroscedasticPosterior, IndependentFunctions
from rfgp.inference.sites import Variational, restore
from rfgp.inference.sites import variational as engine
from rfgp.likelihoods import Bernoulli, Categorical
from rfgp.rows import Block
from rfgp.solvers.choice import solver_for

NAMES = ["bernoulli", "probit", "poisson", "negative-binomial", "gamma", "heteroscedastic"]


def variational(problem):
    return problem.infer("variational")


def reference(problem):
    return problem.by(ReferenceSolver, "variational")


@pytest.fixture
def converged(monkeypatch):
    """Search until there is no gain."""
    monkeypatch.setattr(engine, "TOLERANCE", 1e-13)
    monkeypatch.setattr(engine, "CLASS_TOLERANCE", 1e-15)


@pytest.mark.usefixtures("converged")
@pytest.mark.parametrize(
    ("names", "name"), grid(SUMS, NAMES, lambda names, name: names == ("exact",) or name in ("bernoulli", "gamma"))
)
def test_bound_and_gradient_match_the_dense_twin(names, name):
    problem = Observed(names, name)
    value = variational(problem).log_marginal_likelihood()
    with torch.no_grad():
        expected = reference(problem).log_marginal_likelihood()
    assert value.item() == pytest.approx(expected.item(), rel=1e-8)
    check_gradient(problem, value, lambda at: reference(at).log_marginal_likelihood())


@pytest.mark.usefixtures("converged")
@pytest.mark.parametrize(
    ("names", "name"), grid(SUMS, ["bernoulli", "heteroscedastic"], lambda names, name: name == "bernoulli")
)
def test_moments_match_the_dense_posterior(names, name):
    problem, results = Observed(names, name).moved(0.0), []
    new = problem.rows.inputs[::2]
    for found in (variational(problem), reference(problem)):
        posterior = found.posterior()
        projected = posterior.project(new)
        moments = posterior.mean(projected), posterior.covariance(new, projected)
        results.append((*moments, *found.leave_one_out()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("names", SUMS)
def test_gaussian_likelihood_matches_the_closed_form(names):
    problem = Observed(names, "gaussian")
    found, noise = variational(problem), problem.theta["noise"]
    exact = solver_for(problem.prior, problem.rows, problem.mean, noise)
    values = [each.log_marginal_likelihood() for each in (found, exact)]
    torch.testing.assert_close(*[value.detach() for value in values], rtol=1e-10, atol=1e-8)
    leaves = list(problem.theta.values())
    for one, other in zip(*(torch.autograd.grad(value, leaves) for value in values), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
    with torch.no_grad():
        (mean, variance), expected = found.leave_one_out(), exact.leave_one_out()
        torch.testing.assert_close(mean, expected[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(variance + problem.rows.noise_diag(noise), expected[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_no_other_gaussian_has_a_higher_bound(name):
    """A slow oracle: L-BFGS on the definition of the bound, over means and Cholesky factors of all functions."""
    problem = Observed(("exact",), name, observations(name, count=6)).moved(0.0)
    data, likelihood = problem.rows, problem.bound
    value = float(variational(problem).log_marginal_likelihood())
    kernels = [function.covariance for function in problem.functions]
    free = [torch.zeros(6, 7, dtype=torch.float64, requires_grad=True) for _ in kernels]

    def divergence(kernel, one):
        root = one[:, :6].tril(-1) + one[:, :6].diagonal().exp().diag()
        covariance, mean = root @ root.mT, one[:, 6]
        inverse = torch.linalg.inv(kernel + 1e-9 * torch.eye(6))
        trace = (inverse * covariance).sum() + mean @ inverse @ mean - 6
        return 0.5 * (trace + torch.logdet(kernel) - 2 * one[:, :6].diagonal().sum()), mean, covariance.diagonal()

    search = torch.optim.LBFGS(
        free, max_iter=2000, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def negative():
        search.zero_grad()
        parts = [divergence(kernel, one) for kernel, one in zip(kernels, free, strict=True)]
        mean = torch.stack([part[1] for part in parts], 1) + torch.tensor([0.3, 0.0])[: len(parts)]
        expected = likelihood.expected(data.targets[:, 0], mean, torch.stack([part[2] for part in parts], 1))
        total = sum(part[0] for part in parts) - (data.counts() * expected.value).sum()
        total.backward()
        return total

    best = max(-float(search.step(negative).detach()), -float(negative().detach()))
    assert value == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize(
    ("names", "name"),
    [(("smooth", "linear"), "bernoulli"), (("exact",), "heteroscedastic"), (("field",), "categorical")],
)
def test_posterior_is_restored_from_its_tensors(names, name):
    problem = Observed(names, name).moved(0.0)
    posterior, x = variational(problem).posterior(), problem.rows.inputs[:5]
    tensors, k = posterior.tensors(), len(problem.mean)
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items() if not key.endswith("inputs")}
    assert shapes == posterior.shapes(len(problem.rows), k)
    other = restore([function.prior for function in problem.functions], tensors, k)
    assert type(other) is type(posterior)
    results = [[p.mean(p.project(x)), p.covariance(x, p.project(x))] for p in (posterior, other)]
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


class TestClasses:
    @pytest.mark.usefixtures("converged")
    @pytest.mark.parametrize("names", [("exact",), pytest.param(("field", "smooth"), marks=pytest.mark.slow)])
    def test_gradient_is_that_of_the_bound(self, names):
        problem = Observed(names, "categorical")
        value = variational(problem).log_marginal_likelihood()
        check_gradient(problem, value, lambda at: reference(at).log_marginal_likelihood())

    def test_softmax_of_two_is_near_a_logit(self):
        """Two independent functions with half the variance each restrict the distributions of their difference."""
        logit = Observed(("exact",), "bernoulli").moved(0.0)
        two = Observed(("exact",), "categorical", logit.rows).moved(0.0, {"exact variance": 0.3, "mean": [-0.15, 0.15]})
        two.likelihood = Categorical(2)
        one, other = variational(logit), variational(two)
        assert -1.5 < float(other.log_marginal_likelihood() - one.log_marginal_likelihood()) < 1e-3
        posteriors = [each.posterior() for each in (one, other)]
        assert isinstance(posteriors[1], IndependentFunctions)
        mean, both = (posterior.mean(posterior.project(logit.rows.inputs)) for posterior in posteriors)
        torch.testing.assert_close(both[:, 1] - both[:, 0], mean[:, 0], rtol=0.05, atol=0.05)

    def test_warm_start_is_no_worse(self):
        problem = Observed(("exact",), "categorical").moved(0.0)
        cold = variational(problem)
        warm = problem.infer("variational", variational(problem.moved(0.02)).warm_start())
        assert float(warm.log_marginal_likelihood()) > float(cold.log_marginal_likelihood()) - 1e-3

    def test_leave_one_out_is_near_refits(self):
        rows = observations("categorical", weighted=False)
        problem = Observed(("exact",), "categorical", rows).moved(0.0)
        mean, covariance = variational(problem).leave_one_out()
        assert (covariance - torch.diag_embed(covariance.diagonal(dim1=1, dim2=2))).abs().max() == 0
        for i in (0, 7, 19):
            posterior, x = without_row(problem, i)
            projected = posterior.project(x)
            deviation = posterior.variance(x, projected)[0].sqrt()
            assert ((mean[i] - problem.mean - posterior.mean(projected)[0]).abs() < 0.1 * deviation).all()
            torch.testing.assert_close(covariance[i].diagonal().sqrt(), deviation, rtol=0.1, atol=0)


def without_row(problem, i):
    """Return the posterior of a problem without one of its rows, and the inputs of that row."""
    others = problem.rows.take(torch.tensor([j for j in range(len(problem.rows)) if j != i]))
    found = variational(Observed(problem.names, problem.name, others).moved(0.0))
    return found.posterior(), problem.rows.inputs[i : i + 1]


@pytest.mark.parametrize("name", NAMES[:-1])
def test_one_row_is_a_lower_bound_near_quadrature(name):
    problem = Observed(("exact",), name, observations(name, weighted=False, count=1)).moved(0.0)
    value, integral = float(variational(problem).log_marginal_likelihood()), evidence_of_a_row(problem)
    assert integral - 0.05 < value < integral


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error", "spread"), [("bernoulli", 0.03, 0.05), ("poisson", 0.05, 0.1), ("gamma", 0.05, 0.1)]
)
def test_moments_are_nearer_a_long_chain_than_laplaces(name, error, spread):
    """Means are within `error` posterior deviations, and deviations within a ratio. Laplace's are not."""
    problem = Observed(("exact",), name, observations(name, weighted=False)).moved(0.0, {"exact variance": 1.6})
    y, likelihood, x = problem.rows.targets[:, 0], problem.bound, problem.rows.inputs

    def log_likelihood(f):
        return likelihood.log_prob(y, torch.from_numpy(f)).sum(-1).numpy()

    draws = elliptical_slices(problem.covariance.numpy(), 0.3, log_likelihood, 1500, np.random.default_rng(1))
    mean, deviation = draws.mean((0, 1)), draws.std((0, 1))
    off, wide = [], []
    for approximation in ("variational", "laplace"):
        posterior = problem.infer(approximation).posterior()
        projected = posterior.project(x)
        off.append(np.abs(((posterior.mean(projected)[:, 0] + 0.3).numpy() - mean) / deviation).max())
        wide.append(np.abs(posterior.variance(x, projected).sqrt().numpy() / deviation - 1).max())
    assert off[0] < error < off[1]
    assert wide[0] < spread


@pytest.mark.parametrize("name", ["bernoulli", "heteroscedastic"])
def test_weight_is_a_number_of_repetitions(name):
    data = observations(name)
    times = data.weight.long()
    repeated = Block(data.inputs.repeat_interleave(times, 0), data.targets.repeat_interleave(times, 0))
    values = [variational(Observed(("smooth",), name, rows)).log_marginal_likelihood() for rows in (data, repeated)]
    torch.testing.assert_close(*values, rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "heteroscedastic"])
def test_leave_one_out_is_near_refits(name):
    problem = Observed(("exact",), name, observations(name, weighted=False)).moved(0.0)
    mean, variance = variational(problem).leave_one_out()
    for i in (0, 7, 23):
        posterior, x = without_row(problem, i)
        assert isinstance(posterior, HeteroscedasticPosterior) == (name == "heteroscedastic")
        projected = posterior.project(x)
        deviation = posterior.variance(x, projected).item() ** 0.5
        assert abs(float(mean[i, 0]) - posterior.mean(projected).item() - 0.3) < 0.2 * deviation
        assert variance.reshape(len(mean), -1)[i, 0].item() ** 0.5 == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("names", [("exact",), ("smooth",), ("field",)])
def test_large_counts_and_wide_priors_converge(names):
    data = observations("poisson")
    problem = Observed(names, "poisson", Block(data.inputs, data.targets * 1e5))
    for variance in (1.0, 150.0):
        found = variational(problem.moved(0.0, {f"{names[0]} variance": variance, "mean": [0.0]}))
        assert np.isfinite(float(found.log_marginal_likelihood()))


def test_density_that_is_not_finite_is_an_error():
    with pytest.raises(SolverError, match="must be finite"):
        variational(Observed(("exact",)).moved(0.0, {"mean": [800.0]})).log_marginal_likelihood()


def test_many_rows_by_sparse_features_are_refused(limits):
    limits(max_dense=10)
    with pytest.raises(InvalidArgumentError, match="sparse features"):
        variational(Observed(("walks",), "bernoulli"))


class TestSearch:
    def problem(self):
        problem = Observed(("exact",), "heteroscedastic").moved(0.0)
        one, mean = torch.ones((), dtype=torch.float64), torch.tensor([0.3, 0.0], dtype=torch.float64)
        solvers = [by_rows(function.prior, problem.rows, mean[:1], one) for function in problem.functions]
        return engine.VariationalProblem(problem.bound, problem.rows, mean, solvers)

    def test_acceleration_takes_fewer_steps_to_the_same_bound(self, monkeypatch):
        monkeypatch.setattr(engine, "TOLERANCE", 1e-9)
        at, results = engine.VariationalProblem.at, []
        for memory in (engine.MEMORY, 1):
            calls = []
            monkeypatch.setattr(engine, "MEMORY", memory)
            monkeypatch.setattr(
                engine.VariationalProblem,
                "at",
                lambda self, sites, calls=calls: (calls.append(1), at(self, sites))[1],
            )
            problem = self.problem()
            found = engine.find_sites(problem, engine.mean_sites(problem))
            results.append((len(calls), float(found.bound)))
        assert results[0][0] < results[1][0]
        assert results[0][1] == pytest.approx(results[1][1], abs=1e-5)

    def test_natural_gradient_step_is_a_fixed_point_at_the_optimum(self, monkeypatch):
        monkeypatch.setattr(engine, "TOLERANCE", 1e-13)
        problem = self.problem()
        found = engine.find_sites(problem, engine.mean_sites(problem))
        sites = found.natural_gradient_step(problem.counts, 1.0)
        torch.testing.assert_close(sites.precision, found.sites.precision, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(sites.linear, found.sites.linear, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("converged")
class TestPlantedErrors:
    def test_wrong_curvature_is_seen(self, monkeypatch):
        expected = Bernoulli.expected

        def wrong(self, y, mean, variance):
            value, first, curvature = expected(self, y, mean, variance)
            return engine.Expected(value, first, 1.1 * curvature)

        monkeypatch.setattr(Bernoulli, "expected", wrong)
        with pytest.raises(AssertionError):
            test_no_other_gaussian_has_a_higher_bound("bernoulli")

    def test_dropped_determinant_is_seen(self, monkeypatch):
        zero = torch.zeros((), dtype=torch.float64)
        monkeypatch.setattr("rfgp.solvers.dense.DenseSolver.log_determinant", property(lambda self: zero))
        with pytest.raises((AssertionError, SolverError)):
            test_no_other_gaussian_has_a_higher_bound("poisson")

    def test_dropped_parameter_gradient_is_seen(self, monkeypatch):
        bound = Variational.log_marginal_likelihood

        def wrong(self):
            fixed = {name: value.detach() for name, value in self.learned.items()}
            return bound(Variational(self.solvers, self.rows, self.mean, self.likelihood, fixed))

        monkeypatch.setattr(Variational, "log_marginal_likelihood", wrong)
        with pytest.raises(AssertionError):
            test_bound_and_gradient_match_the_dense_twin(("exact",), "gamma")
