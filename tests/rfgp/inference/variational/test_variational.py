"""Variational inference against the closed form, a search over all normal laws, quadrature and long Markov chains."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from posteriors import elliptical_slices
from rfgp.inference.variational import sites
from scipy import integrate

from rfgp import SolverError
from rfgp.inference import (
    FeaturePrior,
    KernelPrior,
    evidence,
    laplace_evidence,
    variational_evidence,
)
from rfgp.likelihoods import Bernoulli, Categorical, Expected, Gamma, Heteroscedastic, NegativeBinomial, Normal, Poisson
from rfgp.rows import Block

ROWS = 30
LAWS = {
    "bernoulli": (Bernoulli(), {}),
    "probit": (Bernoulli(link="probit"), {}),
    "poisson": (Poisson(), {}),
    "negative-binomial": (NegativeBinomial(), {"dispersion": 0.4}),
    "gamma": (Gamma(), {"shape": 3.0}),
    "heteroscedastic": (Heteroscedastic(), {"noise": 0.3}),
}


def inputs(count=ROWS):
    return torch.from_numpy(np.random.default_rng(4).standard_normal((count, 2)))


def rows(name, weighted=True, count=ROWS):
    """Rows with observations of a smooth function, some of which count twice."""
    law, learned = LAWS.get(name, (Normal(), {"noise": 0.3}))
    x = inputs(count)
    f = torch.sin(2 * x[:, 0]) + x[:, 1]
    y = law.at({k: torch.tensor(v) for k, v in learned.items()}).sample(f, torch.Generator().manual_seed(7))
    weight = torch.from_numpy(np.random.default_rng(8).integers(1, 3, count).astype(float)) if weighted else None
    return Block(x, y[:, None], weight=weight)


def features(x, lengthscale):
    omega = torch.from_numpy(np.random.default_rng(3).standard_normal((10, 2)))
    p = (x / lengthscale) @ omega.T
    return torch.cat([p.cos(), p.sin()], 1) / 10**0.5


def kernel_prior(theta):
    ell, variance = theta[0].exp(), theta[1].exp()

    def kernel(a, b):
        return variance * torch.exp(
            -0.5 * torch.cdist(a / ell, b / ell, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        )

    return KernelPrior(kernel, lambda a: variance.expand(len(a)))


def feature_prior(theta):
    return FeaturePrior(features, 20, (theta[:1].exp(),), theta[1].exp())


def feature_kernel(theta):
    """The kernel of the features, as a matrix."""

    def kernel(a, b):
        ell = theta[:1].exp()
        return theta[1].exp() * features(a, ell) @ features(b, ell).mT

    return KernelPrior(kernel, lambda a: kernel(a, a).diagonal())


PRIORS = {"kernel": kernel_prior, "features": feature_prior}


def numbers(name):
    """Lengthscale and variance of f, those of g, and the mean and the parameters of the likelihood."""
    learned = LAWS[name][1].values() if name in LAWS else [0.3]
    return torch.tensor([0.2, 0.5, 0.6, -0.4, 0.3, *np.log(list(learned))], dtype=torch.float64)


def found(make, name, theta, data=None):
    law, learned = LAWS[name]
    values = dict(zip(learned, theta[5:].exp(), strict=True))
    priors = [make(theta[:2]), *([make(theta[2:4])] if law.has_noise_process else [])]
    return variational_evidence(priors, rows(name) if data is None else data, theta[4:5], law, values)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("prior", PRIORS)
def test_the_gradient_is_that_of_the_bound(prior, name, monkeypatch):
    monkeypatch.setattr(sites, "TOLERANCE", 1e-13)
    theta = numbers(name).requires_grad_()
    value = found(PRIORS[prior], name, theta).log_marginal_likelihood()
    (gradient,) = torch.autograd.grad(value, theta, materialize_grads=True)
    with torch.no_grad():
        for i in range(len(theta)):
            step = torch.zeros_like(theta)
            step[i] = 1e-4
            ends = [float(found(PRIORS[prior], name, theta + s * step).log_marginal_likelihood()) for s in (1, -1)]
            assert float(gradient[i]) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", LAWS)
def test_features_are_the_same_as_their_kernel(name, monkeypatch):
    """Bound, posterior and rows left out: F x F and n x n algebra share next to no code."""
    monkeypatch.setattr(sites, "TOLERANCE", 1e-13)
    results = []
    with torch.no_grad():
        for make in (feature_prior, feature_kernel):
            told = found(make, name, numbers(name))
            law = told.posterior().law(inputs() + 0.1)
            results.append((told.log_marginal_likelihood(), law.mean(), law.covariance(), *told.leave_one_out()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", PRIORS.values())
def test_a_normal_law_is_the_closed_form(make):
    theta = numbers("normal").requires_grad_()
    told = variational_evidence([make(theta[:2])], rows("normal"), theta[4:5], Normal(), {"noise": theta[5].exp()})
    exact = evidence(make(theta[:2]), rows("normal"), theta[4:5], theta[5].exp())
    values = [each.log_marginal_likelihood() for each in (told, exact)]
    gradients = [torch.autograd.grad(value, theta, materialize_grads=True)[0] for value in values]
    torch.testing.assert_close(*[value.detach() for value in values], rtol=1e-10, atol=1e-8)
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-7)
    with torch.no_grad():
        laws = [each.posterior().law(inputs() + 0.1) for each in (told, exact)]
        torch.testing.assert_close(laws[0].mean(), laws[1].mean(), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(laws[0].covariance(), laws[1].covariance(), rtol=1e-8, atol=1e-8)
        mean, variance = told.leave_one_out()
        expected = exact.leave_one_out()
        noise = rows("normal").noise_diag(theta[5].exp())
        torch.testing.assert_close(mean, expected[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(variance + noise, expected[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", LAWS)
def test_no_other_normal_law_has_a_higher_bound(name):
    """The slow twin: means and Cholesky factors of all functions, free, by L-BFGS on the bound as it is defined."""
    data, theta = rows(name, count=6), numbers(name)
    with torch.no_grad():
        value = float(found(kernel_prior, name, theta, data).log_marginal_likelihood())
    law, learned = LAWS[name]
    bound = law.at(dict(zip(learned, theta[5:].exp(), strict=True)))
    kernels = [kernel_prior(theta[i : i + 2]).kernel(data.inputs, data.inputs) for i in (0, 2)]
    kernels = kernels[: 2 if law.has_noise_process else 1]
    free = [torch.zeros(6, 7, dtype=torch.float64, requires_grad=True) for _ in kernels]

    def divergence(kernel, one):
        root = one[:, :6].tril(-1) + one[:, :6].diagonal().exp().diag()
        covariance, mean = root @ root.mT, one[:, 6]
        inverse = torch.linalg.inv(kernel + 1e-9 * torch.eye(6))
        spent = (inverse * covariance).sum() + mean @ inverse @ mean - 6
        return 0.5 * (spent + torch.logdet(kernel) - 2 * one[:, :6].diagonal().sum()), mean, covariance.diagonal()

    search = torch.optim.LBFGS(
        free, max_iter=2000, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def negative():
        search.zero_grad()
        parts = [divergence(kernel, one) for kernel, one in zip(kernels, free, strict=True)]
        mean = torch.stack([part[1] for part in parts], 1) + torch.tensor([0.3, 0.0])[: len(parts)]
        likely = bound.expected(data.targets[:, 0], mean, torch.stack([part[2] for part in parts], 1)).value
        total = sum(part[0] for part in parts) - (data.counts() * likely).sum()
        total.backward()
        return total

    best = -float(search.step(negative).detach())
    best = max(best, -float(negative().detach()))
    assert value == pytest.approx(best, abs=1e-4)


def test_two_classes_by_a_softmax_are_near_two_by_a_logit():
    """Laws of two independent functions, of half the variance each, are some of those of their difference."""
    data, theta = rows("bernoulli"), numbers("bernoulli")
    half = theta + torch.tensor([0, np.log(0.5), 0, 0, 0], dtype=torch.float64)
    means = torch.tensor([-0.15, 0.15], dtype=torch.float64)
    with torch.no_grad():
        one = found(kernel_prior, "bernoulli", theta, data)
        two = variational_evidence([kernel_prior(half[:2])], data, means, Categorical(2), {})
        assert -1.5 < float(two.log_marginal_likelihood() - one.log_marginal_likelihood()) < 1e-3
        law = two.posterior().law(inputs() + 0.1)
        apart = law.mean()[:, 1] - law.mean()[:, 0]
        torch.testing.assert_close(apart, one.posterior().law(inputs() + 0.1).mean()[:, 0], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("prior", PRIORS)
def test_the_gradient_of_several_classes_is_that_of_their_bound(prior, monkeypatch):
    monkeypatch.setattr(sites, "TOLERANCE", 1e-13)
    monkeypatch.setattr(sites, "A_ROW", 1e-15)
    y = torch.from_numpy(np.random.default_rng(5).integers(0, 3, ROWS).astype(float))
    data = Block(inputs(), y[:, None], weight=rows("bernoulli").weight)
    theta = torch.tensor([0.2, 0.5, 0.3, -0.1, 0.0], dtype=torch.float64, requires_grad=True)

    def bound(at):
        told = variational_evidence([PRIORS[prior](at[:2])], data, at[2:], Categorical(3), {})
        return told.log_marginal_likelihood()

    (gradient,) = torch.autograd.grad(bound(theta), theta)
    with torch.no_grad():
        for i, step in enumerate(1e-4 * torch.eye(5, dtype=torch.float64)):
            slope = float(bound(theta + step) - bound(theta - step)) / 2e-4
            assert float(gradient[i]) == pytest.approx(slope, rel=1e-5, abs=1e-5)


def test_rows_of_classes_left_out_are_near_those_never_seen():
    y = torch.from_numpy(np.random.default_rng(5).integers(0, 3, ROWS).astype(float))
    data, theta = Block(inputs(), y[:, None]), torch.tensor([0.2, 0.5, 0.3, -0.1, 0.0], dtype=torch.float64)

    def told(rows):
        return variational_evidence([kernel_prior(theta[:2])], rows, theta[2:], Categorical(3), {})

    with torch.no_grad():
        mean, spread = told(data).leave_one_out()
        assert (spread - torch.diag_embed(spread.diagonal(dim1=1, dim2=2))).abs().max() == 0
        for i in (0, 7, 19):
            others = data.take(torch.tensor([j for j in range(ROWS) if j != i]))
            law = told(others).posterior().law(data.inputs[i : i + 1])
            deviation = law.variance()[0].sqrt()
            assert ((mean[i] - theta[2:] - law.mean()[0]).abs() < 0.1 * deviation).all()
            torch.testing.assert_close(spread[i].diagonal().sqrt(), deviation, rtol=0.1, atol=0)


@pytest.mark.parametrize("name", ["bernoulli", "probit", "poisson", "negative-binomial", "gamma"])
def test_one_row_is_a_lower_bound_near_quadrature(name):
    law, learned = LAWS[name]
    bound = law.at({k: torch.tensor(v) for k, v in learned.items()})
    data, theta = rows(name, weighted=False).take(slice(0, 1)), numbers(name)
    value = float(found(kernel_prior, name, theta, data).log_marginal_likelihood())
    spread = float(theta[1].exp())

    def inside(f):
        at = torch.tensor([f], dtype=torch.float64)
        prior = np.exp(-0.5 * (f - 0.3) ** 2 / spread) / np.sqrt(2 * np.pi * spread)
        return float(bound.log_density(data.targets[:, 0], at).exp()) * prior

    integral = np.log(integrate.quad(inside, -9, 9)[0])
    assert integral - 0.05 < value < integral


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error", "spread"), [("bernoulli", 0.03, 0.05), ("poisson", 0.05, 0.1), ("gamma", 0.05, 0.05)]
)
def test_moments_are_nearer_those_of_a_long_chain_than_laplaces(name, error, spread):
    """Means within this much of a posterior deviation, deviations within so much of themselves; Laplace's are not."""
    theta, data = numbers(name), rows(name, weighted=False)
    law, learned = LAWS[name]
    bound = law.at({k: torch.tensor(v) for k, v in learned.items()})

    def log_likelihood(f):
        return bound.log_density(data.targets[:, 0], torch.from_numpy(f)).sum(-1).numpy()

    covariance = kernel_prior(theta[:2]).kernel(data.inputs, data.inputs).numpy()
    draws = elliptical_slices(covariance, 0.3, log_likelihood, 1500, np.random.default_rng(1))
    mean, deviation = draws.mean((0, 1)), draws.std((0, 1))
    with torch.no_grad():
        values = dict(zip(learned, theta[5:].exp(), strict=True))
        laplace = laplace_evidence(kernel_prior(theta[:2]), data, theta[4:5], law, values)
        laws = [each.posterior().law(data.inputs) for each in (found(kernel_prior, name, theta, data), laplace)]
    off = [np.abs(((each.mean()[:, 0] + 0.3).numpy() - mean) / deviation).max() for each in laws]
    wide = [np.abs(each.variance().sqrt().numpy() / deviation - 1).max() for each in laws]
    assert off[0] < error < off[1]
    assert wide[0] < spread


@pytest.mark.parametrize("name", ["bernoulli", "heteroscedastic"])
def test_a_weight_is_a_number_of_repetitions(name):
    data = rows(name)
    times = data.weight.long()
    repeated = Block(data.inputs.repeat_interleave(times, 0), data.targets.repeat_interleave(times, 0))
    one, other = (found(feature_prior, name, numbers(name), each) for each in (data, repeated))
    torch.testing.assert_close(one.log_marginal_likelihood(), other.log_marginal_likelihood(), rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "heteroscedastic"])
def test_rows_left_out_are_nearly_those_of_a_fit_without_them(name):
    theta, data = numbers(name), rows(name, weighted=False)
    mean, variance = found(kernel_prior, name, theta, data).leave_one_out()
    for i in (0, 7, 23):
        others = data.take(torch.tensor([j for j in range(ROWS) if j != i]))
        law = found(kernel_prior, name, theta, others).posterior().law(data.inputs[i : i + 1])
        deviation = float(law.variance()) ** 0.5
        assert abs(float(mean[i, 0] - law.mean()[0, 0] - 0.3)) < 0.2 * deviation
        assert float(variance.reshape(ROWS, -1)[i, 0]) ** 0.5 == pytest.approx(deviation, rel=0.1)


def test_large_counts_and_wide_priors_converge():
    data = rows("poisson")
    large = Block(data.inputs, data.targets * 1e5)
    for make, scale in itertools.product(PRIORS.values(), (0.0, 5.0)):
        theta = torch.tensor([0.2, scale, 0.0, 0.0, 0.0], dtype=torch.float64)
        told = found(make, "poisson", theta, large)
        assert np.isfinite(float(told.log_marginal_likelihood()))


def test_a_density_that_is_no_number_is_a_named_error():
    theta = torch.tensor([0.2, 0.5, 0.0, 0.0, 800.0], dtype=torch.float64)
    with pytest.raises(SolverError, match="not finite"):
        found(kernel_prior, "poisson", theta).log_marginal_likelihood()


@pytest.mark.parametrize("fault", ["curvature", "divergence", "parameters"])
def test_planted_errors_are_found(monkeypatch, fault):
    """A curvature that is a tenth too large, a bound without its determinant, a parameter without its gradient."""
    if fault == "curvature":
        expected = Bernoulli.expected

        def wrong(self, y, mean, variance):
            value, first, curvature = expected(self, y, mean, variance)
            return Expected(value, first, 1.1 * curvature)

        monkeypatch.setattr(Bernoulli, "expected", wrong)
        with pytest.raises(AssertionError):
            test_no_other_normal_law_has_a_higher_bound("bernoulli")
    elif fault == "divergence":
        at = sites.Problem.at

        def short(self, precision, pull):
            found = at(self, precision, pull)
            return dataclasses.replace(found, bound=found.bound + 0.01 * (precision * found.variance).sum())

        monkeypatch.setattr(sites.Problem, "at", short)
        with pytest.raises(AssertionError):
            test_one_row_is_a_lower_bound_near_quadrature("probit")
    else:
        monkeypatch.setattr(
            Gamma, "at", lambda self, numbers: type(self)(**{k: v.detach() for k, v in numbers.items()})
        )
        with pytest.raises(AssertionError):
            test_the_gradient_is_that_of_the_bound("kernel", "gamma", monkeypatch)
