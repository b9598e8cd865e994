"""Variational inference by every solver, against the closed form, free Gaussians, quadrature and long chains."""

import itertools

import numpy as np
import pytest
import torch
from observed import (
    LIKELIHOODS,
    PRIORS,
    check_gradient,
    dense,
    grid,
    kernel_block,
    learned_of,
    numbers,
    rows,
    solver_of,
)
from posteriors import elliptical_slices
from reference import ReferenceSolver
from scipy import integrate

from rfgp import InvalidArgumentError, SolverError
from rfgp.blocks import Prior, SparseWeightBlock
from rfgp.inference.composite import HeteroscedasticPosterior, IndependentFunctions
from rfgp.inference.sites import Variational, gaussian, infer
from rfgp.likelihoods import Bernoulli, Categorical, Normal
from rfgp.rows import Block
from rfgp.solvers.choice import solver_for

ROWS = 30
NAMES = ["bernoulli", "probit", "poisson", "negative-binomial", "gamma", "heteroscedastic"]
SOLVERS = ["kernel", "features", "two terms", "more features than rows", "field", "field and features"]


def theta_of(name):
    """Those of `numbers`, and after the mean those of the prior of the log noise, if there is one."""
    theta = numbers(name)
    own = torch.tensor([0.6, -0.4] if LIKELIHOODS[name][0].has_noise_process else [], dtype=torch.float64)
    return torch.cat([theta[:3], own, theta[3:]])


def found(make, name, theta, data=None):
    """Return inference under priors that `make` returns of (lengthscale, variance)."""
    likelihood = LIKELIHOODS[name][0]
    has_noise = likelihood.has_noise_process
    priors = [make(theta[:2]), *([make(theta[3:5])] if has_noise else [])]
    learned = learned_of(name, theta, first=5 if has_noise else 3)
    data = rows(name, count=ROWS) if data is None else data
    return infer(priors, data, theta[2:3], likelihood, learned, "variational")


def by_reference(prior, name, theta):
    """Return inference by n x n matrices for the prior of a name."""
    data, likelihood, one = rows(name, count=ROWS), LIKELIHOODS[name][0], torch.ones((), dtype=torch.float64)
    has_noise = likelihood.has_noise_process
    numbers_of = [theta[:2], *([theta[3:5]] if has_noise else [])]
    solvers = [ReferenceSolver(dense(prior, each), data, theta[2:3], one) for each in numbers_of]
    mean = torch.cat([theta[2:3], theta.new_zeros(len(solvers) - 1)])
    return Variational(solvers, data, mean, likelihood, learned_of(name, theta, first=5 if has_noise else 3))


@pytest.fixture
def converged(monkeypatch):
    """Searches that go on until nothing is gained."""
    monkeypatch.setattr(gaussian, "TOLERANCE", 1e-13)
    monkeypatch.setattr(gaussian, "CLASS_TOLERANCE", 1e-15)


@pytest.mark.usefixtures("converged")
@pytest.mark.parametrize(
    ("prior", "name"), grid(SOLVERS, NAMES, lambda prior, name: prior == "kernel" or name in ("bernoulli", "gamma"))
)
def test_bound_and_gradient_match_the_dense_twin(prior, name):
    theta = theta_of(name).requires_grad_()
    value = found(PRIORS[prior], name, theta).log_marginal_likelihood()
    (gradient,) = torch.autograd.grad(value, theta)
    with torch.no_grad():
        assert float(value) == pytest.approx(
            float(by_reference(prior, name, theta).log_marginal_likelihood()), rel=1e-8
        )
    check_gradient(lambda at: by_reference(prior, name, at).log_marginal_likelihood(), theta, gradient)


@pytest.mark.usefixtures("converged")
@pytest.mark.parametrize(
    ("prior", "name"), grid(SOLVERS, ["bernoulli", "heteroscedastic"], lambda prior, name: name == "bernoulli")
)
def test_moments_match_the_dense_posterior(prior, name):
    new, results = rows(name, count=ROWS).inputs + 0.1, []
    with torch.no_grad():
        for one in (found(PRIORS[prior], name, theta_of(name)), by_reference(prior, name, theta_of(name))):
            posterior = one.posterior()
            projected = posterior.project(new)
            moments = posterior.mean(projected), posterior.covariance(new, projected)
            results.append((*moments, *one.leave_one_out()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("prior", SOLVERS)
def test_normal_likelihood_is_the_closed_form(prior):
    theta, data = numbers("normal").requires_grad_(), rows("normal")
    make = PRIORS[prior](theta)
    approximate = infer([make], data, theta[2:3], Normal(), {"noise": theta[3].exp()}, "variational")
    exact = solver_for(make, data, theta[2:3], theta[3].exp())
    values = [each.log_marginal_likelihood() for each in (approximate, exact)]
    gradients = [torch.autograd.grad(value, theta, retain_graph=True)[0] for value in values]
    torch.testing.assert_close(*[value.detach() for value in values], rtol=1e-10, atol=1e-8)
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-7)
    with torch.no_grad():
        (mean, variance), expected = approximate.leave_one_out(), exact.leave_one_out()
        torch.testing.assert_close(mean, expected[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(variance + data.noise_diag(theta[3].exp()), expected[1], rtol=1e-8, atol=1e-8)


def kernel_prior(theta):
    return Prior(kernels=(kernel_block(theta),))


@pytest.mark.parametrize("name", NAMES)
def test_no_other_gaussian_has_a_higher_bound(name):
    """The slow twin: means and Cholesky factors of all functions, free, by L-BFGS on the bound as it is defined."""
    theta, data = theta_of(name), rows(name, count=6)
    likelihood = LIKELIHOODS[name][0]
    has_noise = likelihood.has_noise_process
    with torch.no_grad():
        value = float(found(kernel_prior, name, theta, data).log_marginal_likelihood())
    bound = likelihood.at(learned_of(name, theta, first=5 if has_noise else 3))
    starts = [0, 3] if has_noise else [0]
    kernels = [kernel_prior(theta[i : i + 2]).kernel(data.inputs, data.inputs) for i in starts]
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
        expected = bound.expected(data.targets[:, 0], mean, torch.stack([part[2] for part in parts], 1))
        total = sum(part[0] for part in parts) - (data.counts() * expected.value).sum()
        total.backward()
        return total

    best = max(-float(search.step(negative).detach()), -float(negative().detach()))
    assert value == pytest.approx(best, abs=1e-4)


class TestClasses:
    THETA = (0.2, 0.5, 0.3, -0.1, 0.0)

    def data(self, weighted=True):
        y = torch.from_numpy(np.random.default_rng(5).integers(0, 3, ROWS).astype(float))
        like = rows("bernoulli", count=ROWS)
        return Block(like.inputs, y[:, None], weight=like.weight if weighted else None)

    def inferred(self, prior, theta, data=None, start=()):
        data = self.data() if data is None else data
        return infer([PRIORS[prior](theta[:2])], data, theta[2:], Categorical(3), {}, "variational", start)

    @pytest.mark.usefixtures("converged")
    @pytest.mark.parametrize("prior", ["kernel", pytest.param("field and features", marks=pytest.mark.slow)])
    def test_gradient_is_that_of_the_bound(self, prior):
        theta = torch.tensor(self.THETA, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(self.inferred(prior, theta).log_marginal_likelihood(), theta)
        check_gradient(lambda at: self.inferred(prior, at).log_marginal_likelihood(), theta, gradient)

    def test_softmax_of_two_is_near_a_logit(self):
        """Two independent functions, of half the variance each, are a part of the distributions of their difference."""
        data, theta = rows("bernoulli", count=ROWS), theta_of("bernoulli")
        half = theta + torch.tensor([0, np.log(0.5), 0], dtype=torch.float64)
        means = torch.tensor([-0.15, 0.15], dtype=torch.float64)
        with torch.no_grad():
            one = found(kernel_prior, "bernoulli", theta, data)
            two = infer([kernel_prior(half)], data, means, Categorical(2), {}, "variational")
            assert -1.5 < float(two.log_marginal_likelihood() - one.log_marginal_likelihood()) < 1e-3
            posteriors = [each.posterior() for each in (one, two)]
            assert isinstance(posteriors[1], IndependentFunctions)
            mean, both = (posterior.mean(posterior.project(data.inputs + 0.1)) for posterior in posteriors)
            torch.testing.assert_close(both[:, 1] - both[:, 0], mean[:, 0], rtol=0.05, atol=0.05)

    def test_warm_start_is_no_worse(self):
        theta = torch.tensor(self.THETA, dtype=torch.float64)
        cold = self.inferred("kernel", theta)
        warm = self.inferred("kernel", theta, start=self.inferred("kernel", theta + 0.02).warm_start())
        assert float(warm.log_marginal_likelihood()) > float(cold.log_marginal_likelihood()) - 1e-3

    def test_leave_one_out_is_near_refits(self):
        data, theta = self.data(weighted=False), torch.tensor(self.THETA, dtype=torch.float64)
        with torch.no_grad():
            mean, covariance = self.inferred("kernel", theta, data).leave_one_out()
            assert (covariance - torch.diag_embed(covariance.diagonal(dim1=1, dim2=2))).abs().max() == 0
            for i in (0, 7, 19):
                others = data.take(torch.tensor([j for j in range(ROWS) if j != i]))
                posterior = self.inferred("kernel", theta, others).posterior()
                x = data.inputs[i : i + 1]
                projected = posterior.project(x)
                deviation = posterior.variance(x, projected)[0].sqrt()
                assert ((mean[i] - theta[2:] - posterior.mean(projected)[0]).abs() < 0.1 * deviation).all()
                torch.testing.assert_close(covariance[i].diagonal().sqrt(), deviation, rtol=0.1, atol=0)


@pytest.mark.parametrize("name", NAMES[:-1])
def test_one_row_is_a_lower_bound_near_quadrature(name):
    theta = theta_of(name)
    likelihood, data = LIKELIHOODS[name][0].at(learned_of(name, theta)), rows(name, weighted=False, count=1)
    value = float(found(kernel_prior, name, theta, data).log_marginal_likelihood())
    spread = float(theta[1].exp())

    def integrand(f):
        at = torch.tensor([f], dtype=torch.float64)
        prior = np.exp(-0.5 * (f - 0.3) ** 2 / spread) / np.sqrt(2 * np.pi * spread)
        return float(likelihood.log_density(data.targets[:, 0], at).exp()) * prior

    integral = np.log(integrate.quad(integrand, -9, 9)[0])
    assert integral - 0.05 < value < integral


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error", "spread"), [("bernoulli", 0.03, 0.05), ("poisson", 0.05, 0.1), ("gamma", 0.05, 0.05)]
)
def test_moments_are_nearer_a_long_chain_than_laplaces(name, error, spread):
    """Means within this much of a posterior deviation, deviations within so much of themselves; Laplace's are not."""
    theta, data = theta_of(name), rows(name, weighted=False, count=ROWS)
    learned = learned_of(name, theta)
    likelihood = LIKELIHOODS[name][0].at(learned)

    def log_likelihood(f):
        return likelihood.log_density(data.targets[:, 0], torch.from_numpy(f)).sum(-1).numpy()

    prior = kernel_prior(theta)
    covariance = prior.kernel(data.inputs, data.inputs).numpy()
    draws = elliptical_slices(covariance, 0.3, log_likelihood, 1500, np.random.default_rng(1))
    mean, deviation = draws.mean((0, 1)), draws.std((0, 1))
    off, wide = [], []
    for approximation in ("variational", "laplace"):
        posterior = infer([prior], data, theta[2:3], LIKELIHOODS[name][0], learned, approximation).posterior()
        projected = posterior.project(data.inputs)
        off.append(np.abs(((posterior.mean(projected)[:, 0] + 0.3).numpy() - mean) / deviation).max())
        own = posterior.variance(data.inputs, projected).sqrt().numpy()
        wide.append(np.abs(own / deviation - 1).max())
    assert off[0] < error < off[1]
    assert wide[0] < spread


@pytest.mark.parametrize("name", ["bernoulli", "heteroscedastic"])
def test_weight_is_a_number_of_repetitions(name):
    data = rows(name, count=ROWS)
    times = data.weight.long()
    repeated = Block(data.inputs.repeat_interleave(times, 0), data.targets.repeat_interleave(times, 0))
    one, other = (found(PRIORS["features"], name, theta_of(name), each) for each in (data, repeated))
    torch.testing.assert_close(one.log_marginal_likelihood(), other.log_marginal_likelihood(), rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "heteroscedastic"])
def test_leave_one_out_is_near_refits(name):
    theta, data = theta_of(name), rows(name, weighted=False, count=ROWS)
    mean, variance = found(kernel_prior, name, theta, data).leave_one_out()
    for i in (0, 7, 23):
        others = data.take(torch.tensor([j for j in range(ROWS) if j != i]))
        posterior = found(kernel_prior, name, theta, others).posterior()
        assert isinstance(posterior, HeteroscedasticPosterior) == (name == "heteroscedastic")
        projected = posterior.project(data.inputs[i : i + 1])
        deviation = float(posterior.variance(data.inputs[i : i + 1], projected)) ** 0.5
        assert abs(float(mean[i, 0] - posterior.mean(projected) - 0.3)) < 0.2 * deviation
        assert float(variance.reshape(ROWS, -1)[i, 0]) ** 0.5 == pytest.approx(deviation, rel=0.1)


def test_large_counts_and_wide_priors_converge():
    data = rows("poisson", count=ROWS)
    large = Block(data.inputs, data.targets * 1e5)
    for prior, scale in itertools.product(("kernel", "features", "field"), (0.0, 5.0)):
        theta = torch.tensor([0.2, scale, 0.0], dtype=torch.float64)
        value = found(PRIORS[prior], "poisson", theta, large).log_marginal_likelihood()
        assert np.isfinite(float(value))


def test_density_that_is_not_finite_is_an_error():
    theta = torch.tensor([0.2, 0.5, 800.0], dtype=torch.float64)
    with pytest.raises(SolverError, match="not finite"):
        found(kernel_prior, "poisson", theta).log_marginal_likelihood()


def test_many_rows_by_sparse_features_are_refused(monkeypatch):
    monkeypatch.setattr("rfgp.solvers.choice.MOST_DENSE", 10)
    one = torch.ones((), dtype=torch.float64)
    prior = Prior(walks=(SparseWeightBlock(lambda *given: None, one, 5, 0),))
    with pytest.raises(InvalidArgumentError, match="sparse features"):
        infer([prior], rows("bernoulli"), one[None], Bernoulli(), {}, "variational")


class TestSearch:
    def problem(self, name="heteroscedastic"):
        theta, data = theta_of(name), rows(name, count=ROWS)
        solvers = [solver_of(kernel_prior(each), data) for each in (theta[:2], theta[3:5])]
        likelihood = LIKELIHOODS[name][0].at(learned_of(name, theta, first=5))
        return gaussian.VariationalProblem(likelihood, data, torch.tensor([0.3, 0.0], dtype=torch.float64), solvers)

    def test_acceleration_takes_fewer_steps_to_the_same_bound(self, monkeypatch):
        monkeypatch.setattr(gaussian, "TOLERANCE", 1e-9)
        at, results = gaussian.VariationalProblem.at, []
        for memory in (gaussian.MEMORY, 1):
            monkeypatch.setattr(gaussian, "MEMORY", memory)
            calls = []
            monkeypatch.setattr(
                gaussian.VariationalProblem,
                "at",
                lambda self, sites, calls=calls: (calls.append(1), at(self, sites))[1],
            )
            problem = self.problem()
            found = gaussian.find_sites(problem, gaussian.mean_sites(problem))
            results.append((len(calls), float(found.bound)))
        assert results[0][0] < results[1][0]
        assert results[0][1] == pytest.approx(results[1][1], abs=1e-5)

    def test_natural_gradient_step_is_a_fixed_point_at_the_optimum(self, monkeypatch):
        monkeypatch.setattr(gaussian, "TOLERANCE", 1e-13)
        problem = self.problem()
        found = gaussian.find_sites(problem, gaussian.mean_sites(problem))
        sites = found.natural_gradient_step(problem.counts, 1.0)
        torch.testing.assert_close(sites.precision, found.sites.precision, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(sites.linear, found.sites.linear, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("converged")
class TestPlantedErrors:
    def test_wrong_curvature_is_seen(self, monkeypatch):
        expected = Bernoulli.expected

        def wrong(self, y, mean, variance):
            value, first, curvature = expected(self, y, mean, variance)
            return gaussian.Expected(value, first, 1.1 * curvature)

        monkeypatch.setattr(Bernoulli, "expected", wrong)
        with pytest.raises(AssertionError):
            test_no_other_gaussian_has_a_higher_bound("bernoulli")

    def test_dropped_determinant_is_seen(self, monkeypatch):
        monkeypatch.setattr(
            "rfgp.solvers.dense.DenseSolver.log_determinant", property(lambda self: self.fitted.new_zeros(()))
        )
        with pytest.raises((AssertionError, SolverError)):
            test_no_other_gaussian_has_a_higher_bound("poisson")

    def test_dropped_parameter_gradient_is_seen(self, monkeypatch):
        expected = Variational.log_marginal_likelihood

        def wrong(self):
            fixed = {name: value.detach() + 0 * value for name, value in self.learned.items()}
            return expected(Variational(self.solvers, self.rows, self.mean, self.likelihood, fixed))

        monkeypatch.setattr(Variational, "log_marginal_likelihood", wrong)
        with pytest.raises(AssertionError):
            test_bound_and_gradient_match_the_dense_twin("kernel", "gamma")
