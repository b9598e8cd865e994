"""The contract of likelihoods: every likelihood, inference and approximation against numpy and scipy.

A new likelihood needs a line in `MODELS`, and its law in `tests/support/dense_likelihoods.py`. An approximation needs a
line in `CASES`.
"""

import copy
import dataclasses
import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import dense_likelihoods as dense
import numpy as np
import pytest
import torch
from checks import assert_mean
from dense_likelihoods import LAWS
from numpy.testing import assert_allclose
from refusals import refused
from scipy import special, stats

import rfgp
from rfgp import kernels as k
from rfgp import likelihoods
from rfgp.likelihoods import (
    Bernoulli,
    Categorical,
    Gamma,
    Gaussian,
    Heteroscedastic,
    InitialMoments,
    Likelihood,
    NegativeBinomial,
    Parameter,
    Poisson,
    StudentT,
)


@dataclass(frozen=True, repr=False)
class Logistic(Likelihood):
    """A user's own likelihood, y = f + scale e with logistic e, in one class."""

    scale: Any = None
    parameters = (Parameter("scale", 0.3, (1e-3, 1e1), power=1),)
    is_standardized = True

    def begin(self, y, weight):
        center = (weight * y).sum() / weight.sum()
        return InitialMoments(center, (weight * (y - center).square()).sum() / weight.sum())

    def of(self, f):
        return torch.as_tensor(self.scale, dtype=f.dtype)

    def log_prob(self, y, f):
        z = (y - f) / self.of(f)
        return torch.nn.functional.logsigmoid(z) + torch.nn.functional.logsigmoid(-z) - self.of(f).log()

    def fisher(self, f):
        return (1 / (3 * self.of(f).square())).expand_as(f)

    def variance(self, f):
        return (self.of(f) * math.pi).square().expand_as(f) / 3

    def cdf(self, y, f):
        return torch.sigmoid((y - f) / self.of(f))

    def sample(self, f, generator):
        return f + self.of(f) * torch.rand(f.shape, generator=generator, dtype=f.dtype).logit()


@dataclass(frozen=True, repr=False)
class LaplaceNoise(Likelihood):
    """Another one, y = f + scale e. The density of e is exp(-|e|) / 2, which has a kink."""

    scale: Any = None
    parameters = (Parameter("scale", 0.3, (1e-3, 1e1), power=1),)
    is_standardized = True
    approximations = ("variational",)

    def error(self, y, f):
        scale = torch.as_tensor(self.scale, dtype=f.dtype)
        return (y - f) / scale, scale

    def log_prob(self, y, f):
        z, scale = self.error(y, f)
        return -z.abs() - (2 * scale).log()

    def variance(self, f):
        return (2 * self.error(0, f)[1].square()).expand_as(f)

    def cdf(self, y, f):
        z, _ = self.error(y, f)
        return 0.5 + 0.5 * z.sign() * (1 - (-z.abs()).exp())

    def sample(self, f, generator):
        u = torch.rand(f.shape, generator=generator, dtype=f.dtype) - 0.5
        return f - self.error(0, f)[1] * u.sign() * (1 - 2 * u.abs()).log()


MODELS = {
    "gaussian": (Gaussian, {"noise": 0.3}),
    "bernoulli": (Bernoulli, {}),
    "probit": (lambda: Bernoulli(link="probit"), {}),
    "poisson": (Poisson, {}),
    "negative-binomial": (NegativeBinomial, {"dispersion": 0.4}),
    "gamma": (Gamma, {"shape": 3.0}),
    "student-t": (StudentT, {"df": 4.0, "scale": 0.4}),
    "logistic": (Logistic, {"scale": 0.25}),
    "zero-inflated-poisson": (likelihoods.ZeroInflatedPoisson, {"zero_probability": 0.3}),
    "zero-inflated-negative-binomial": (
        likelihoods.ZeroInflatedNegativeBinomial,
        {"dispersion": 0.4, "zero_probability": 0.2},
    ),
    "hurdle-poisson": (likelihoods.HurdlePoisson, {"zero_probability": 0.3}),
    "ordinal": (lambda: likelihoods.Ordinal(3), {"gaps": torch.tensor([1.2]).double()}),
    "beta": (likelihoods.Beta, {"precision": 6.0}),
    "binomial": (likelihoods.Binomial, {}),
    "weibull": (likelihoods.Weibull, {"shape": 1.7}),
    "tobit": (likelihoods.Tobit, {"noise": 0.3}),
    "lognormal": (likelihoods.LogNormal, {"noise": 0.3}),
    "heteroscedastic": (Heteroscedastic, {"noise": 0.3}),
    "categorical": (lambda: Categorical(3), {}),
}
"""A function that makes each likelihood with parameters to be learned, and values of these."""
ONLY_VARIATIONAL = ("zero-inflated-poisson", "zero-inflated-negative-binomial", "beta")
BY_LAPLACE = [name for name in LAWS if name not in ("gaussian", *ONLY_VARIATIONAL)]
VARIATIONAL = [*(name for name in BY_LAPLACE if name != "student-t"), *ONLY_VARIATIONAL, "heteroscedastic"]
WAYS = [*((name, "laplace") for name in BY_LAPLACE), *((name, "variational") for name in VARIATIONAL)]


# --- the role: a law of y given f ------------------------------------------------------------------

GIVEN = {name: dataclasses.replace(make(), **values) for name, (make, values) in MODELS.items() if name in LAWS}
GIVEN["binomial"] = likelihoods.Binomial().at_rows(torch.tensor(7.0).double())
"""Likelihoods of one function with all their parameters."""
PLACES = {
    **dict.fromkeys(("gaussian", "student-t", "logistic", "tobit"), (-3.0, 0.2, 9.0)),
    **dict.fromkeys(("bernoulli", "probit"), (0.0, 1.0)),
    **dict.fromkeys(("poisson", "negative-binomial"), (0.0, 1.0, 5.0, 40.0)),
    **dict.fromkeys(("zero-inflated-poisson", "zero-inflated-negative-binomial"), (0.0, 1.0, 5.0, 40.0)),
    "hurdle-poisson": (0.0, 1.0, 5.0, 40.0),
    "ordinal": (0.0, 1.0, 2.0),
    "beta": (1e-3, 0.4, 0.99),
    "binomial": (0.0, 3.0, 7.0),
    **dict.fromkeys(("gamma", "lognormal"), (0.01, 1.0, 30.0)),
    "weibull": (0.01, 1.0, 6.0),
}


def law_at(name, f):
    return LAWS[name].distribution(np.asarray(f), **MODELS[name][1])


def pairs(name):
    """Return observations and values of f, (n,) each."""
    grid = torch.cartesian_prod(torch.tensor(PLACES[name]).double(), torch.linspace(-3, 3, 13).double())
    return grid[:, 0], grid[:, 1]


def test_every_likelihood_is_tested():
    assert {type(make()) for make, _ in MODELS.values()} == {
        Logistic,
        *(type(likelihoods.by_name(name)) for name in likelihoods.names()),
    }


@pytest.mark.parametrize("name", LAWS)
class TestLaw:
    def test_densities_and_moments_are_those_of_scipy(self, name):
        (y, f), likelihood = pairs(name), GIVEN[name]
        law = law_at(name, f)
        expected = LAWS[name].log_density(y.numpy(), f.numpy(), **MODELS[name][1])
        assert_allclose(likelihood.log_prob(y, f), expected, rtol=1e-9, atol=1e-10)
        assert_allclose(likelihood.mean(f), law.mean(), rtol=1e-10, atol=1e-12)
        assert_allclose(likelihood.variance(f), law.var(), rtol=1e-10)
        for shift in (-0.5, 0.0, 0.5):
            assert_allclose(likelihood.cdf(y + shift, f), law.cdf(y + shift), rtol=1e-9, atol=1e-14)
        assert not likelihood.cdf(torch.full_like(f, likelihood.lowest - 1), f).any()

    def test_derivatives_are_those_of_the_density(self, name):
        y, f = pairs(name)
        f.requires_grad_()
        found = GIVEN[name].slopes(y, f)
        expected = LAWS[name].slopes(y.numpy(), f.detach().numpy(), **MODELS[name][1])
        for slope, formula in zip(found[1:3], expected, strict=True):
            assert_allclose(slope.detach(), formula, rtol=1e-7, atol=1e-12)
        for lower, higher in itertools.pairwise(found):
            (slope,) = torch.autograd.grad(lower.sum() + 0 * f.sum(), f, retain_graph=True)
            torch.testing.assert_close(higher, slope, rtol=1e-7, atol=1e-9)

    def test_information_is_the_mean_curvature_of_observations(self, name):
        f, law = np.array([-0.7, 0.0, 1.1]), LAWS[name]
        if GIVEN[name].is_discrete:
            count = {"exposure": 2000, "trials": 8}.get(GIVEN[name].row_argument, 3 if name == "ordinal" else 2)
            values = np.arange(float(count))[:, None]
            mean = (law_at(name, f).pmf(values) * -law.slopes(values, f, **MODELS[name][1])[1]).sum(0)
        else:
            share = np.linspace(0, 1, 100_002)[1:-1, None]
            mean = -law.slopes(law_at(name, f).ppf(share), f, **MODELS[name][1])[1].mean(0)
        assert_allclose(GIVEN[name].fisher(torch.tensor(f)).expand(3), mean, rtol=1e-3)

    def test_samples_have_the_distribution(self, name):
        """Kolmogorov and Smirnov's test of randomized probabilities, at 1e-7 a case."""
        f = torch.linspace(-1, 2, 4000).double()
        y = GIVEN[name].sample(f, torch.Generator().manual_seed(3))
        high = law_at(name, f).cdf(y)
        low = law_at(name, f).cdf(y - 1) if GIVEN[name].is_discrete else high
        share = low + np.random.default_rng(5).uniform(size=len(f)) * (high - low)
        assert stats.kstest(share, "uniform").pvalue > 1e-7

    def test_starts_are_near_the_truth_and_count_weights(self, name):
        rng = np.random.default_rng(0)
        f = 1.2 + 0.5 * rng.standard_normal(4000)
        y, times = torch.tensor(law_at(name, f).rvs(random_state=rng)).double(), torch.tensor(rng.integers(1, 4, 4000))
        one = GIVEN[name].begin(y, times.double())
        other = GIVEN[name].begin(y.repeat_interleave(times), torch.ones(int(times.sum())).double())
        torch.testing.assert_close(torch.stack(one), torch.stack(other))
        assert float(one.center) == pytest.approx(1.2, abs=0.6)
        assert 0.05 < float(one.variance) < 2.5

    def test_parameters_are_learned_unless_given(self, name):
        learned, values = MODELS[name][0](), MODELS[name][1]
        assert [parameter.name for parameter in learned.parameters] == list(values)
        assert learned.at({key: torch.as_tensor(value) for key, value in values.items()}) == GIVEN[name]
        for key, wrong in itertools.product(values, (-1.0, math.inf)):
            call = functools.partial(dataclasses.replace, learned, **{key: wrong})
            refused(call, rfgp.InvalidArgumentError, f"{key} must be positive")


TIMES = [0.4, 1.1, 2.5, 0.9, 3.0, 1.7]
FAILED, SEEN = np.array([1, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 1, 0, 1])
PUBLISHED = {
    # loglikeobs of statsmodels 0.15: ZeroInflatedPoisson, ZeroInflatedNegativeBinomialP, TruncatedLFPoisson plus log
    # 0.7, BetaModel, which adds 1e-8 to y and 1 - y, and OrderedModel with the probit link
    "zero-inflated-poisson": (
        likelihoods.ZeroInflatedPoisson(0.3),
        ([0, 1, 3, 7], [0.7] * 4),
        [-0.9328247747824296, -1.6704276514092091, -2.0621871206372644, -5.995589012474624],
    ),
    "zero-inflated-negative-binomial": (
        likelihoods.ZeroInflatedNegativeBinomial(0.4, 0.3),
        ([0, 1, 3, 7], [0.7] * 4),
        [-0.7769421541063579, -1.7246085094074677, -2.3737854002371828, -4.604183412642594],
    ),
    "hurdle-poisson": (
        likelihoods.HurdlePoisson(0.3),
        ([1, 3, 7], [0.7] * 3),
        [-1.5271497190222295, -1.9189091882502848, -5.852311080087644],
    ),
    "beta": (
        likelihoods.Beta(6.0),
        ([0.05, 0.3, 0.5, 0.92], [0.7] * 4),
        [-6.077274904807849, -0.9882383093156926, 0.21549930198212908, 0.23450495816892758],
    ),
    "ordinal": (
        likelihoods.Ordinal(gaps=[1.2, 0.8]),
        ([0, 1, 2, 3, 1], [0.5, -1.0, 0.3, 2.0, 0.0]),
        [-1.1759117615936188, -1.9327346830355132, -1.9697289394690571, -0.6931471805599453, -0.954692922684708],
    ),
    # statsmodels 0.15: GLM, the sum over rows
    "binomial": (
        likelihoods.Binomial().at_rows(torch.tensor([4.0, 7, 7, 20]).double()),
        ([0, 3, 7, 5], [0.7] * 4),
        -18.216868462027442,
    ),
    # lifelines 0.30: fit and fit_left_censoring of WeibullFitter and LogNormalFitter, the sum over rows
    "weibull, right": (
        likelihoods.Weibull(1.248832527662824).at_rows(torch.tensor(1.0 - FAILED)),
        (TIMES, [np.log(2.304286019836904)] * 6),
        -7.37952563760294,
    ),
    "weibull, left": (
        likelihoods.Weibull(1.627639039995977).at_rows(torch.tensor(SEEN - 1.0)),
        (TIMES, [np.log(1.3587432532031025)] * 6),
        -5.270783807933853,
    ),
    "lognormal, right": (
        likelihoods.LogNormal(0.9517127639273458**2).at_rows(torch.tensor(1.0 - FAILED)),
        (TIMES, [0.46787317872254586] * 6),
        -6.914621778168632,
    ),
    "lognormal, left": (
        likelihoods.LogNormal(0.6818317584250453**2).at_rows(torch.tensor(SEEN - 1.0)),
        (TIMES, [-0.028813464147242382] * 6),
        -5.328385746936105,
    ),
}
"""A likelihood, targets with values of f, and the log densities that another package gives, or their sum."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_log_densities_are_those_of_other_packages(name):
    likelihood, pair, expected = PUBLISHED[name]
    found = likelihood.log_prob(*(torch.tensor(part).double() for part in pair))
    assert_allclose(found.sum() if np.ndim(expected) == 0 else found, expected, rtol=1e-6)


def test_censored_densities_are_tails_of_observed_ones():
    """The Tobit model of y is the log-normal one of e^y, and a unit changes densities but no probabilities."""
    codes, f = torch.tensor([-1.0, 0.0, 1.0]).double(), torch.tensor([0.3, -1.0, 2.0]).double()
    y = torch.tensor([0.5, -0.2, 4.0]).double()
    tobit, positive = (kind(0.4).at_rows(codes) for kind in (likelihoods.Tobit, likelihoods.LogNormal))
    difference = tobit.log_prob(y, f) - positive.log_prob(y.exp(), f)
    assert_allclose(difference, [0.0, -0.2, 0.0], atol=1e-12)
    for sign, of_tail in ((1, 1 - tobit.cdf(y, f)), (-1, tobit.cdf(y, f))):
        assert_allclose(tobit.at_rows(sign * torch.ones(3)).log_prob(y, f).exp(), of_tail, rtol=1e-9)


def test_own_likelihoods_fit_predict_and_are_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(likelihoods.REGISTRY, "classes", dict(likelihoods.REGISTRY.classes))
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 10, 80))[:, None]
    y = np.sin(x[:, 0]) + 0.2 * rng.laplace(size=80)
    gp = rfgp.GP(k.RBF(), LaplaceNoise(), approximation=rfgp.Exact(), seed=0).fit(x, y)
    refused(lambda: gp.save(tmp_path / "own"), rfgp.InvalidArgumentError, "likelihood")
    likelihoods.register("laplace-noise", LaplaceNoise)
    gp.save(tmp_path / "own", data=True)
    found, again = gp.predict(x), rfgp.load(tmp_path / "own").predict(x)
    assert np.sqrt(np.mean((found.mean - np.sin(x[:, 0])) ** 2)) < 0.15
    assert 0.1 < gp.hyperparameters["scale"].item() < 0.3
    assert_allclose(again.observed().quantile([0.1, 0.9]), found.observed().quantile([0.1, 0.9]))
    for wrong, word in ((("poisson", LaplaceNoise), "new name"), (("mine", LaplaceNoise()), "a class")):
        refused(lambda wrong=wrong: likelihoods.register(*wrong), rfgp.InvalidArgumentError, word)
    empty = dataclass(frozen=True)(type("Empty", (LaplaceNoise,), {"log_prob": Likelihood.log_prob}))
    refused(empty, rfgp.InvalidArgumentError, "log_prob or slopes")


@pytest.mark.parametrize("z", [-1e3, -60.0, -9.0, 8.0, 40.0])
def test_probit_is_accurate_in_its_tails(z):
    slopes = Bernoulli(link="probit").slopes(torch.ones(1).double(), torch.tensor([z]).double())
    assert torch.isfinite(torch.stack(slopes)).all()
    if z < -8:  # h = -z (1 + 1 / z^2 - 2 / z^4 + ...)
        rest = 1 / abs(z) - 2 / abs(z) ** 3 + 10 / abs(z) ** 5 - 74 / abs(z) ** 7
        assert float(slopes.first) == pytest.approx(abs(z) + rest, rel=1e-6)
        assert float(-slopes.second) == pytest.approx(rest * (abs(z) + rest), rel=1e-3)


@pytest.mark.parametrize("outputscale", [1.0, 100.0, 1e4])
def test_probabilities_of_two_classes_match_quadrature(outputscale):
    """Also where the latent function is so uncertain that the logit is a step in it."""
    X = np.linspace(-1, 1, 8)[:, None]
    gp = rfgp.GP(k.RBF(), "bernoulli", start={"outputscale": outputscale}, seed=0).condition(
        X, (X[:, 0] > 0).astype(int)
    )
    p, one = gp.predict([[-5.0], [-0.3], [0.02], [1.5], [4.0]]), np.ones(5)
    observed, f = p.observed(), stats.norm(p.mean, p.std).ppf((np.arange(10**5)[:, None] + 0.5) / 10**5)
    np.testing.assert_allclose(observed.log_prob(one), np.log(special.expit(f).mean(0)), atol=1e-4)
    np.testing.assert_allclose(np.exp(observed.log_prob(one)) + np.exp(observed.log_prob(0 * one)), 1, atol=1e-8)


def test_ordered_classes_are_accurate_in_both_tails():
    law, f = likelihoods.Ordinal(gaps=[1.2]), torch.tensor([9.0, 15.0, 60.0]).double()
    low, high = (law.slopes(torch.full_like(f, k), one) for k, one in ((1.0, f + 1.2), (1.0, -f)))
    assert_allclose(
        low.value, stats.norm.logcdf(-f) + np.log1p(-np.exp(stats.norm.logcdf(-f - 1.2) - stats.norm.logcdf(-f)))
    )
    for one, other, sign in zip(low, high, (1, -1, 1, -1), strict=True):
        torch.testing.assert_close(one, sign * other)


@pytest.mark.parametrize("name", ["poisson", "negative-binomial"])
def test_counts_of_huge_rates_are_drawn(name):
    """z-scores of the means at two rates, at 1e-7 each."""
    generator = torch.Generator().manual_seed(1)
    for f in (30.0, 60.0):
        y = GIVEN[name].sample(torch.full((4000,), f).double(), generator) / np.exp(f)
        assert abs(float(y.mean()) - 1) < 5.3 * np.sqrt(law_at(name, f).var() / np.exp(2 * f) / 4000) + 1e-12
    assert float(GIVEN[name].sample(torch.tensor([800.0]).double(), generator)[0]) == np.inf


class TestSoftmax:
    f = torch.tensor(np.random.default_rng(1).standard_normal((30, 3)))
    y = torch.tensor(np.random.default_rng(2).integers(0, 3, 30)).double()

    def test_law_of_labels_is_a_softmax(self):
        likelihood, p = Categorical(3), special.softmax(self.f.numpy(), axis=1)
        assert_allclose(likelihood.mean(self.f), p)
        assert_allclose(likelihood.variance(self.f), p - p**2)
        assert_allclose(likelihood.cdf(torch.ones(30), self.f), p[:, :2].sum(1))
        labels = likelihood.sample(self.f.expand(4000, 30, 3), torch.Generator().manual_seed(0))
        assert_mean((labels[..., None] == torch.arange(3)).numpy(), p)
        f = self.f.clone().requires_grad_()
        found = likelihood.slopes(self.y, f)
        assert_allclose(found.value.detach(), np.log(p[np.arange(30), self.y.int()]))
        (first,) = torch.autograd.grad(found.value.sum(), f, retain_graph=True)
        torch.testing.assert_close(found.first, first)
        for lower, higher in itertools.pairwise(found[1:]):
            parts = [torch.autograd.grad(lower[:, c].sum(), f, retain_graph=True)[0][:, c] for c in range(3)]
            torch.testing.assert_close(higher, torch.stack(parts, 1))

    @pytest.mark.parametrize("scale", [1.0, 1e-14])
    def test_expected_density_is_an_integral(self, scale):
        mean = self.f.clone().requires_grad_()
        variance = (scale * torch.linspace(0.1, 2, 90).double().reshape(30, 3)).requires_grad_()
        found = Categorical(3).expected(self.y, mean, variance)
        x, weight = np.polynomial.hermite_e.hermegauss(20)
        places = torch.tensor(np.stack(np.meshgrid(x, x, x), -1).reshape(-1, 3))
        weights = torch.tensor(np.prod(np.meshgrid(weight, weight, weight), 0).reshape(-1) / weight.sum() ** 3)
        f = mean[:, None] + variance.sqrt()[:, None] * places
        value = (mean.gather(1, self.y.long()[:, None])[:, 0] - torch.logsumexp(f, 2) @ weights).detach()
        torch.testing.assert_close(found.value.detach(), value, rtol=0.01, atol=0.005)
        p = torch.softmax(f.detach(), 2)
        curvature = torch.einsum("npc,p->nc", p * (1 - p), weights)
        torch.testing.assert_close(found.curvature.detach(), curvature, rtol=0.1, atol=0.01)
        if scale == 1.0:  # the derivatives are those of the sum
            slopes = torch.autograd.grad(found.value.sum(), (mean, variance))
            torch.testing.assert_close(found.first.detach(), slopes[0])
            torch.testing.assert_close(found.curvature.detach(), -2 * slopes[1])

    def test_number_of_classes_is_that_of_the_data(self):
        assert Categorical().with_targets(self.y) == Categorical(3)
        weight = torch.arange(30).double()
        shares = np.log(np.bincount(self.y.int(), weight) + 0.5)
        assert_allclose(Categorical(3).begin(self.y, weight).center, shares - shares.mean())


# --- models: rows with weights and exposures, and new points with a new level ------------------------

N = 30
START = {
    "smooth.lengthscale": 0.9,
    "smooth.outputscale": 0.8,
    "wave.lengthscale": 2.0,
    "wave.outputscale": 0.8,
    "slope.variance": 0.3,
    "bend.outputscale": 0.6,
    "bend.offset": 0.5,
    "site.outputscale": 0.5,
}
KERNELS = {
    "smooth": k.Matern("t", nu=1.5, name="smooth"),
    "wave": k.RBF("t", name="wave"),
    "slope": k.Linear("u", origin=0.5, name="slope"),
    "bend": k.Polynomial("t", degree=2, origin=1.0, scale=2.0, name="bend"),
    "site": k.Group("site", name="site"),
}


def matern(distance):
    return (1 + np.sqrt(3) * distance) * np.exp(-np.sqrt(3) * distance)


FORMULAS = {
    "smooth": lambda h, a, b: h("outputscale") * matern(np.abs(np.subtract.outer(a["t"], b["t"])) / h("lengthscale")),
    "wave": lambda h, a, b: (
        h("outputscale") * np.exp(-0.5 * (np.subtract.outer(a["t"], b["t"]) / h("lengthscale")) ** 2)
    ),
    "slope": lambda h, a, b: h("variance") * np.multiply.outer(a["u"] - 0.5, b["u"] - 0.5),
    "bend": lambda h, a, b: h("outputscale") * (h("offset") + np.multiply.outer(a["t"] - 1, b["t"] - 1) / 4) ** 2,
    "site": lambda h, a, b: h("outputscale") * np.equal.outer(a["site"], b["site"]),
}


class Case(NamedTuple):
    """Terms and their approximation, which is exact up to an error.

    Attributes:
        terms: The names of the terms.
        approximation: Their approximation.
        error: The largest error of evidence and moments.
        is_joint: Whether points have a joint distribution.
        is_drawn: Whether the prior covariance is that of random features, which only the model knows.
    """

    terms: tuple
    approximation: Any
    error: float = 1e-7
    is_joint: bool = True
    is_drawn: bool = False


SUM = ("smooth", "slope", "site")
CASES = {
    "rows": Case(SUM, rfgp.Exact()),
    "weights": Case(("bend", "slope", "site"), rfgp.Exact()),
    "precisions": Case(SUM, {"site": rfgp.SparsePrecision(), "smooth": rfgp.Exact()}, 1e-6),
    "filter": Case(("smooth",), rfgp.SparsePrecision(), 1e-6),
    "bordered filter": Case(SUM, {"smooth": rfgp.SparsePrecision()}, 1e-6),
    "neighbors": Case(SUM, {"smooth": rfgp.Vecchia(100)}, 1e-5, is_joint=False),
    "inducing points": Case(SUM, {"smooth": rfgp.InducingPoints(10, method="sor")}, 1e-6, is_drawn=True),
    "residual": Case(SUM, {"smooth": rfgp.InducingPoints(8, residual=rfgp.Vecchia(100))}, 1e-5, is_joint=False),
    "lattice": Case(("wave", "slope", "site"), {"wave": rfgp.EquispacedFourier(tolerance=1e-7)}, 1e-4),
    "features": Case(("wave", "slope", "site"), rfgp.RandomFeatures(4), is_drawn=True),
    "many features": Case(("wave", "slope", "site"), rfgp.RandomFeatures(20), is_drawn=True),
}


def table(n, seed, sites):
    rng = np.random.default_rng(seed)
    return {"t": rng.uniform(0, 3, n), "u": rng.normal(size=n), "site": rng.choice(list(sites), n)}


ROWS, NEW = table(N, 0, "abc"), table(6, 1, "abx")
ROWS["t"][:2] = 0.0, 3.0
BOTH = {name: np.concatenate([ROWS[name], NEW[name]]) for name in ROWS}
WEIGHT, EXPOSURE = np.arange(N) % 2 + 1.0, np.linspace(0.5, 2, N)
TRIALS, CODES = np.arange(N) % 5 + 3, np.resize([0, 0, 1, 0, -1], N)


def observations(name, X=ROWS, exposure=1.0, seed=4):
    """Return observations of a function of the rows."""
    rng, f = np.random.default_rng(seed), np.sin(2 * X["t"]) + 0.4 * X["u"] + 0.5 * (X["site"] == "a")
    if name == "heteroscedastic":
        return f + 0.3 * np.exp(0.4 * X["u"]) * rng.normal(size=len(f))
    if name == "categorical":
        return (2 * np.stack([f, X["u"], 0 * f], axis=1) + rng.gumbel(size=(len(f), 3))).argmax(1).astype(float)
    of_law = MODELS[name][1] | ({"trials": TRIALS} if name == "binomial" and X is ROWS else {})
    return LAWS[name].distribution(f + np.log(exposure), **of_law).rvs(random_state=rng).astype(float)


def argument_of(name):
    return MODELS[name][0]().row_argument


def takes_exposure(name):
    return argument_of(name) == "exposure"


def numbers_of(name):
    """Return the exposures, trials or codes of censoring of the rows, by their argument."""
    each = {"exposure": EXPOSURE, "trials": TRIALS, "censored": CODES}
    return {} if argument_of(name) is None else {argument_of(name): each[argument_of(name)]}


def law_numbers(name):
    """Return the same as arguments of the law, which has exposures in f."""
    return {} if takes_exposure(name) else numbers_of(name)


def model(case, name, inference=None, likelihood=None, **options):
    terms, approximation, *_ = CASES[case]
    values = {path: value for path, value in START.items() if path.split(".")[0] in terms} | MODELS[name][1]
    if name == "heteroscedastic":
        values |= {f"noise.{path}": 0.7 * value for path, value in values.items() if path != "noise"}
    values["mean"] = [0.3, -0.2, 0.1] if name == "categorical" else 0.2
    kernel = sum((KERNELS[term] for term in terms[1:]), start=KERNELS[terms[0]])
    likelihood = likelihood or MODELS[name][0]()
    return rfgp.GP(kernel, likelihood, approximation, inference=inference, **{"start": values, "seed": 0, **options})


def conditioned(case, name, inference=None, **options):
    own = numbers_of(name)
    y = observations(name, exposure=own.get("exposure", 1.0))
    return model(case, name, inference, **options).condition(ROWS, y, sample_weight=WEIGHT, **own)


def value_of(gp, path):
    found = gp.hyperparameters[path].detach().double().numpy()
    return found if found.size > 1 else found.item()


def parameters_of(gp, name):
    return {key: value_of(gp, key) for key in MODELS[name][1]}


def covariance(gp, terms, a, b, prefix=""):
    """Return the sum of the covariances of terms by their formulas."""
    parts = [FORMULAS[term](lambda key, term=term: value_of(gp, f"{prefix}{term}.{key}"), a, b) for term in terms]
    return sum(parts, start=np.zeros((len(a["t"]), len(b["t"]))))


def matrices(gp, case, prefix=""):
    """Return the prior covariances of rows, of new points with rows, and of new points."""
    if CASES[case].is_drawn:
        joint = gp.prior_covariance(BOTH).detach().numpy()
        return joint[:N, :N], joint[N:, :N], joint[N:, N:]
    return tuple(covariance(gp, CASES[case].terms, *pair, prefix) for pair in ((ROWS, ROWS), (NEW, ROWS), (NEW, NEW)))


def dense_of(gp, case, name, inference):
    """Return the dense inference at the hyperparameters of a model."""
    kernel, mean = matrices(gp, case)[0], value_of(gp, "mean")
    parameters = parameters_of(gp, name) | law_numbers(name)
    offset = np.log(EXPOSURE) if takes_exposure(name) else np.zeros(N)
    y = observations(name, exposure=np.exp(offset))
    if name == "categorical":
        return dense.Softmax(y, kernel, mean, WEIGHT)
    if inference == "laplace":
        return dense.Laplace(LAWS[name], y, kernel, mean, WEIGHT, offset, **parameters)
    if name == "heteroscedastic":
        kernels = [kernel, matrices(gp, case, "noise.")[0]]
        given, functions = (), (dense.expected_noise, dense.slopes_of_expected_noise)
    else:
        kernels, given, functions = [kernel], (LAWS[name],), (dense.expected, dense.slopes_of_expected)
    value, slopes = (
        lambda m, v, function=function: function(*given, y, m + offset[:, None], v, **parameters)
        for function in functions
    )
    return dense.Variational(value, slopes, kernels, [mean, 0.0][: len(kernels)], WEIGHT)


def assert_slope(gp, evidence, error):
    """The gradient in all hyperparameters is the slope of the dense evidence in one direction."""
    names, raw = zip(*gp.hyperparameters.named_parameters(), strict=True)
    slopes = torch.autograd.grad(gp.log_marginal_likelihood(), raw)
    rng, ends = np.random.default_rng(3), []
    directions = [torch.tensor(rng.choice([-1.0, 1.0], one.shape) * rng.uniform(0.5, 1.5, one.shape)) for one in raw]
    for step in (1e-4, -1e-4):
        with torch.no_grad():
            for one, direction in zip(raw, directions, strict=True):
                one += step * direction
            ends.append(evidence(gp))
            for one, direction in zip(raw, directions, strict=True):
                one -= step * direction
    assert all(bool(slope.any()) for slope in slopes), names
    found = sum(float((slope * direction).sum()) for slope, direction in zip(slopes, directions, strict=True))
    assert found == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=error, abs=error)


def assert_observed(found, expected, points, error):
    """Distributions of observations agree in moments, densities, probabilities and quantiles."""
    assert_allclose(found.mean, expected.mean, rtol=error, atol=error)
    assert_allclose(found.variance, expected.variance, rtol=error, atol=error)
    assert_allclose(found.log_prob(points), expected.log_prob(points), rtol=error, atol=error)
    assert_allclose(found.cdf(points), expected.cdf(points), rtol=error, atol=error)
    for level, quantile in zip((0.1, 0.8), found.quantile([0.1, 0.8]), strict=True):
        if found.likelihood.is_discrete:
            assert (expected.cdf(quantile) >= level - error).all()
            assert (expected.cdf(quantile - 1) < level + error).all()
        else:
            assert_allclose(expected.cdf(quantile), level, atol=max(error, 1e-6))
    assert_mean(found.sample(4000, seed=1) <= quantile, expected.cdf(quantile))


def observed_of(name, mean, variance, offset, parameters):
    if name == "heteroscedastic":
        return dense.observed_noise(mean, variance, **parameters)
    return dense.Observed(LAWS[name], mean, variance, offset, **parameters)


def assert_matches(case, name, inference, search_error):
    """Evidence, its gradient, moments, terms, left-out rows and observations are those of dense matrices."""
    gp, (terms, _, error, is_joint, is_drawn) = conditioned(case, name, inference), CASES[case]
    found, error = dense_of(gp, case, name, inference), max(error, search_error)
    assert gp.log_marginal_likelihood().item() == pytest.approx(found.evidence, abs=10 * error)
    assert_slope(
        gp, lambda moved: dense_of(moved, case, name, inference).evidence, max(1e-5, 10 * error, 200 * search_error)
    )
    _, cross, outer = matrices(gp, case)
    (mean, joint), p = found.moments(cross, outer), gp.predict(NEW)
    assert_allclose(p.mean, mean, atol=error)
    assert_allclose(p.variance, np.diag(joint), atol=error)
    if is_joint:
        assert_allclose(p.covariance, joint, atol=error)
    for term in terms if not is_drawn else ():
        own = found.moments(covariance(gp, [term], NEW, ROWS), covariance(gp, [term], NEW, NEW))
        assert_allclose(p.terms[term].mean, own[0] - value_of(gp, "mean"), atol=error)
        assert_allclose(p.terms[term].variance, np.diag(own[1]), atol=error)
    parameters, has_exposure = parameters_of(gp, name), takes_exposure(name)
    means, variances = mean, np.diag(joint)
    if name == "heteroscedastic":
        of_noise = found.moments(*matrices(gp, case, "noise.")[1:], function=1)
        means, variances = np.stack([mean, of_noise[0]], 1), np.stack([variances, np.diag(of_noise[1])], 1)
    some = {"exposure": {"exposure": 1.7}, "trials": {"trials": 7}}.get(argument_of(name), {})
    observed, offset = p.observed(**some), np.log(1.7) * has_exposure
    points = observations(name, NEW)
    assert_observed(observed, observed_of(name, means, variances, offset, parameters), points, max(1e-4, 10 * error))
    means, variances = (part.squeeze() for part in found.without_rows())
    parameters |= law_numbers(name)
    expected = observed_of(name, means, variances, np.log(EXPOSURE) * has_exposure, parameters)
    left_out, y = gp.leave_one_out(), observations(name, exposure=EXPOSURE if has_exposure else 1.0)
    error = max(1e-4, 10 * error)
    assert_allclose(left_out.mean, expected.mean, rtol=error, atol=error)
    assert_allclose(left_out.variance, expected.variance, rtol=error, atol=error)
    assert_allclose(left_out.log_prob, expected.log_prob(y), rtol=error, atol=error)


def grid(names, some):
    """Return pairs of a case and a likelihood: all likelihoods for two cases, some for all."""
    return [(case, name) for case in CASES for name in names if case in ("rows", "weights") or name in some]


@pytest.mark.parametrize(("case", "name"), grid(BY_LAPLACE, ("poisson", "student-t")))
def test_laplace_matches_dense_matrices(case, name):
    assert_matches(case, name, "laplace", 0.0)


@pytest.mark.parametrize(("case", "name"), grid(VARIATIONAL, ("bernoulli",)))
def test_variational_inference_matches_dense_matrices(case, name):
    """The search for the maximum of the bound ends close to it."""
    errors = {"heteroscedastic": 2e-3, "zero-inflated-negative-binomial": 3e-3}
    assert_matches(case, name, "variational", errors.get(name, 1e-4))


def subsets(case):
    names = CASES[case].terms
    return [*([name] for name in names), names[:2], names]


def test_laplace_of_classes_matches_dense_matrices():
    case = "weights"
    gp = conditioned(case, "categorical", "laplace")
    found, p = dense_of(gp, case, "categorical", "laplace"), gp.predict(NEW)
    assert gp.log_marginal_likelihood().item() == pytest.approx(found.evidence, abs=1e-7)
    assert_slope(gp, lambda moved: dense_of(moved, case, "categorical", "laplace").evidence, 1e-4)
    less = np.eye(6) - 1 / 6
    for first, second in itertools.product(subsets(case), repeat=2):
        left, right = (covariance(gp, names, NEW, ROWS) for names in (first, second))
        shared = [name for name in first if name in second]
        mean, joint = found.moments(left, right, covariance(gp, shared, NEW, NEW))
        by_class = np.einsum("ijcc->ijc", joint)
        assert_allclose(p.cross_covariance(first, second), by_class, atol=1e-7)
        if first == second:
            term = p.of(*first)
            assert_allclose(term.mean, mean, atol=1e-7)
            assert_allclose(term.covariance, by_class, atol=1e-7)
            assert_allclose(term.variance, np.einsum("iic->ic", by_class), atol=1e-7)
            contrast = np.einsum("pi,ijc,qj->pqc", less, by_class, less)
            for other in (term.centered(), term.linear(less)):
                assert_allclose(other.mean, less @ mean, atol=1e-7)
                assert_allclose(other.covariance, contrast, atol=1e-7)
    at_points = mean + value_of(gp, "mean"), np.einsum("iicd->icd", joint)  # of all terms
    assert_classes(p, dense.probabilities(*at_points), found.f, gp)
    left_out = np.log(dense.probabilities(*found.without_rows()))
    y = observations("categorical").astype(int)
    assert_allclose(gp.leave_one_out().log_prob, left_out[np.arange(N), y], atol=0.02)


def assert_classes(p, expected, f, gp):
    """Labels have the expected probabilities, and draws their moments. The mode at the rows is f (C, n)."""
    assert_allclose(gp.predict(ROWS).mean.T, f, atol=1e-6)
    law = p.observed()
    assert_allclose(law.probabilities, expected, atol=3e-3)
    assert_allclose(law.variance, law.mean * (1 - law.mean))
    assert (law.labels == law.probabilities.argmax(1)).all()
    assert_allclose(law.log_prob(np.ones(6)), np.log(law.probabilities[:, 1]))
    assert_allclose(law.cdf(1), law.probabilities[:, :2].sum(1))
    quantile = law.quantile([0.1, 0.6])[1]
    assert (law.cdf(quantile) >= 0.6).all()
    assert (law.cdf(quantile - 1) < 0.6).all()
    assert_mean(p.sample(4000, seed=1), p.mean)
    assert_mean((p.sample(4000, seed=1) - p.mean) ** 2, p.variance)
    assert_functions(gp)
    labels = law.sample(20_000, seed=2)
    assert_allclose((labels[..., None] == np.arange(3)).mean(0), law.probabilities, atol=0.03)


def assert_functions(gp):
    """Functions have the moments of predictions, if they can be drawn."""
    if "bend" in gp.terms:
        drawn, p = gp.sample_functions(4000, seed=0)(ROWS), gp.predict(ROWS)
        assert_mean(drawn, p.mean)
        assert_mean((drawn - p.mean) ** 2, p.variance)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["weights", "precisions"])
def test_variational_inference_of_classes_matches_dense_matrices(case):
    gp = conditioned(case, "categorical", "variational")
    y, means, law = torch.tensor(observations("categorical")), value_of(gp, "mean"), Categorical(3)

    def dense_bound(gp):
        return dense.Variational(
            lambda m, v: law.expected(y, torch.tensor(m), torch.tensor(v)).value.numpy(),
            lambda m, v: [part.numpy() for part in law.expected(y, torch.tensor(m), torch.tensor(v))[1:]],
            [matrices(gp, case)[0]] * 3,
            value_of(gp, "mean"),
            WEIGHT,
        )

    found, p = dense_bound(gp), gp.predict(NEW)
    assert found.evidence - 0.01 < gp.log_marginal_likelihood().item() < found.evidence + 1e-7
    assert_slope(gp, lambda moved: dense_bound(moved).evidence, 0.03)
    each = [found.moments(*matrices(gp, case)[1:], function=c) for c in range(3)]
    assert_allclose(p.mean, np.stack([mean for mean, _ in each], 1), atol=0.01)
    assert_allclose(p.covariance, np.stack([joint for _, joint in each], 2), atol=0.01)
    left, outer = covariance(gp, ["site"], NEW, ROWS), covariance(gp, ["site"], NEW, NEW)
    of_term = np.stack([found.moments(left, outer, function=c)[0] - means[c] for c in range(3)], 1)
    assert_allclose(p.terms["site"].mean, of_term, atol=0.01)
    variances = np.stack([np.diag(joint) for _, joint in each], 1)
    expected = dense.probabilities(p.mean, np.einsum("ic,cd->icd", variances, np.eye(3)))
    assert_allclose(p.observed().probabilities, expected, atol=0.01)
    mean, variance = found.without_rows()
    left_out = np.log(dense.probabilities(mean, np.einsum("ic,cd->icd", variance, np.eye(3))))
    assert_allclose(gp.leave_one_out().log_prob, left_out[np.arange(N), y.int()], atol=0.05)
    assert_functions(gp)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of steps that overshoot on a lattice
@pytest.mark.parametrize("inference", ["laplace", "variational"])
@pytest.mark.parametrize("case", ["rows", "filter", "lattice"])
def test_large_counts_converge(case, inference):
    """Newton's first step from a mean of 0 overshoots. Shorter steps do not."""
    y = 1e5 * observations("poisson")
    gp = model(case, "poisson", inference, start={"mean": 0.0, f"{CASES[case].terms[0]}.outputscale": 150.0})
    assert np.isfinite(gp.condition(ROWS, y).log_marginal_likelihood().item())
    if case == "rows":
        assert_allclose(gp.predict(ROWS).observed().mean[y > 0], y[y > 0], rtol=0.05)


# --- rows --------------------------------------------------------------------------------------------

ALL_WAYS = [*WAYS, ("categorical", "variational")]


def assert_same(one, other, X=NEW, error=1e-6):
    for read in (lambda p: p.mean, lambda p: p.std, lambda p: p.observed().mean, lambda p: p.observed().variance):
        assert_allclose(read(one.predict(X)), read(other.predict(X)), rtol=error, atol=error)


@pytest.mark.parametrize(("name", "inference"), ALL_WAYS)
def test_updates_condition_on_all_rows(name, inference):
    whole = conditioned("rows", name, inference)
    own = {"sample_weight": WEIGHT} | numbers_of(name)
    own["y"] = observations(name, exposure=EXPOSURE if takes_exposure(name) else 1.0)
    parts = copy.deepcopy(whole)
    for call, some in ((parts.condition, slice(0, 20)), (parts.update, slice(20, None))):
        call({key: value[some] for key, value in ROWS.items()}, **{key: value[some] for key, value in own.items()})
        parts.predict(NEW)
    assert_same(parts, whole, error=1e-6 if inference == "laplace" else 1e-2)


@pytest.mark.parametrize(
    ("name", "inference"),
    [("bernoulli", "laplace"), ("student-t", "laplace"), ("poisson", "variational")],
)
def test_single_precision_is_near_double(name, inference):
    single, double = (conditioned("features", name, inference, dtype=dtype) for dtype in (torch.float32, torch.float64))
    found, expected = (gp.log_marginal_likelihood().item() for gp in (single, double))
    assert found == pytest.approx(expected, abs=1e-3)
    assert single.predict(NEW).mean.dtype == np.float32
    assert_same(single, double, error=5e-3)


# --- exposures, units and given parameters -----------------------------------------------------------


@pytest.mark.parametrize("name", ["poisson", "negative-binomial", "gamma"])
def test_exposures_are_kept_joined_and_asked_for(name, tmp_path):
    y, (half, rest) = (
        observations(name, exposure=EXPOSURE),
        [{key: values[part] for key, values in ROWS.items()} for part in (slice(15), slice(15, None))],
    )
    gp = model("rows", name, "laplace").condition(half, y[:15], exposure=EXPOSURE[:15])
    gp.save(tmp_path / "m", data=True)
    whole = model("rows", name, "laplace").condition(ROWS, y, exposure=EXPOSURE)
    assert_same(rfgp.load(tmp_path / "m").update(rest, y[15:], exposure=EXPOSURE[15:]), whole)
    mixed, ones = (copy.deepcopy(gp).update(rest, y[15:], **own) for own in ({}, {"exposure": np.ones(15)}))
    assert_same(mixed, ones)
    assert_same(gp.condition(ROWS, y), model("rows", name, "laplace").condition(ROWS, y))
    p = whole.predict(ROWS)
    assert np.isfinite(p.observed(exposure=EXPOSURE).log_prob(y)).all()
    for asked in (p.observed().log_prob, lambda y: rfgp.metrics.nlpd(y, p), lambda y: rfgp.metrics.crps(y, p)):
        refused(lambda asked=asked: asked(y), rfgp.InvalidArgumentError, "exposure")
    assert_allclose(p.observed(exposure=2.0).mean, 2 * p.observed().mean)


@pytest.mark.parametrize("name", ["binomial", "weibull", "tobit"])
def test_numbers_of_rows_go_through_files_updates_and_columns(name, tmp_path):
    y, ((argument, numbers),) = observations(name), numbers_of(name).items()
    parts = [{key: values[part] for key, values in ROWS.items()} for part in (slice(15), slice(15, None))]
    gp = model("rows", name).condition(parts[0], y[:15], **{argument: numbers[:15]})
    gp.save(tmp_path / "m", data=True)
    both = rfgp.load(tmp_path / "m").update(parts[1], y[15:], **{argument: numbers[15:]})
    whole = model("rows", name).condition({**ROWS, "side": numbers, "y": y}, "y", **{argument: "side"})
    assert_same(both, whole, error=1e-4)
    assert_same(whole, model("rows", name).condition(ROWS, y, **{argument: numbers}))
    p = whole.predict(ROWS)
    assert np.isfinite(p.observed(**{argument: numbers}).log_prob(y)).all()
    some = {argument: numbers[:15]}
    other = model("rows", name).condition({**parts[0], "side": 0 * numbers[:15] + 1}, y[:15], **some)
    assert_same(other, gp)  # a column that no term reads
    every = rfgp.GP(k.RBF(), name, seed=0).condition(
        {"t": ROWS["t"], "side": numbers, "y": y}, "y", **{argument: "side"}
    )
    assert every.predict({"t": NEW["t"]}).mean.shape == (6,)  # all columns but these are inputs
    if name == "binomial":
        refused(lambda: p.observed().log_prob(y), rfgp.InvalidArgumentError, "trials")
        assert_allclose(p.observed(trials=TRIALS).mean, TRIALS * p.observed().mean)


def test_trials_belong_to_their_points_among_many():
    gp = model("features", "binomial").condition(ROWS, observations("binomial"), trials=TRIALS)
    many = {key: np.resize(values, 20_000) for key, values in ROWS.items()}
    trials = np.arange(20_000) % 50 + 1
    few, found = gp.predict(many).observed(), gp.predict(many).observed(trials=trials)
    assert_allclose(found.mean, trials * few.mean, rtol=1e-9)


def test_binomial_of_one_trial_is_bernoulli():
    y = observations("bernoulli")
    one, other = (
        model("rows", name).condition(ROWS, y, **more)
        for name, more in (("binomial", {"trials": 1}), ("bernoulli", {}))
    )
    assert_same(one, other)
    assert one.log_marginal_likelihood().item() == pytest.approx(other.log_marginal_likelihood().item(), abs=1e-9)


@pytest.mark.parametrize("case", ["rows", "features", "neighbors"])
def test_lognormal_is_the_gaussian_of_the_logarithm(case):
    y = observations("lognormal")
    one, other = model(case, "lognormal").condition(ROWS, y), model(case, "gaussian").condition(ROWS, np.log(y))
    value = other.log_marginal_likelihood().item() - np.log(y).sum()
    assert one.log_marginal_likelihood().item() == pytest.approx(value, abs=1e-6)
    found, expected = one.predict(NEW).observed(), other.predict(NEW).observed().exp()
    for read in (lambda p: p.mean, lambda p: p.std, lambda p: p.quantile([0.1, 0.9]), lambda p: p.log_prob(y[:6])):
        assert_allclose(read(found), read(expected), rtol=1e-5)
    left_out = other.leave_one_out()
    assert_allclose(one.leave_one_out().log_prob, left_out.log_prob - np.log(y), atol=1e-5)


FEW = {key: values[[0, 7]] for key, values in ROWS.items()}


@pytest.mark.parametrize("name", [name for name in LAWS if name not in ("gaussian", "student-t", "logistic")])
def test_posterior_of_two_rows_is_near_the_exact_one(name):
    """Evidence and means by a grid of both values of f."""
    ways = likelihoods.by_name("poisson").approximations if name not in ONLY_VARIATIONAL else ("variational",)
    y = observations(name)[[0, 7]]
    numbers = {key: values[[0, 7]] for key, values in numbers_of(name).items()}
    for inference in ways:
        gp = model("rows", name, inference).condition(FEW, y, **numbers)
        kernel = covariance(gp, SUM, FEW, FEW)
        root, line = np.linalg.cholesky(kernel), np.linspace(-7, 7, 201)
        z = np.stack(np.meshgrid(line, line, indexing="ij")).reshape(2, -1)
        f = 0.2 + root @ z
        more = parameters_of(gp, name) | {key: numbers[key] for key in law_numbers(name)}
        offset = np.log(numbers.get("exposure", np.ones(2)))[:, None]
        log_density = LAWS[name].log_density(y[:, None], f + offset, **more).sum(0)
        weight = stats.norm.pdf(z).prod(0) * (line[1] - line[0]) ** 2 * np.exp(log_density)
        evidence, mean = np.log(weight.sum()), f @ weight / weight.sum()
        deviation = np.sqrt(f**2 @ weight / weight.sum() - mean**2)
        assert gp.log_marginal_likelihood().item() == pytest.approx(evidence, abs=0.15)
        assert (np.abs(gp.predict(FEW).mean - mean) < (0.4 if inference == "laplace" else 0.1) * deviation).all()
        assert_allclose(gp.predict(FEW).std, deviation, rtol=0.35 if inference == "laplace" else 0.15)


@pytest.mark.parametrize(
    ("name", "unit"),
    [("student-t", "scale"), ("logistic", "scale"), ("heteroscedastic", "noise"), ("tobit", "noise")],
)
def test_units_of_targets_do_not_matter(name, unit):
    y, values = observations(name), MODELS[name][1]
    numbers, observed = numbers_of(name), (CODES == 0).sum() if name == "tobit" else N
    one = model("rows", name, start={"mean": 0.2}).condition(ROWS, y, **numbers)
    other = model("rows", name, start={"mean": 193.0}).condition(ROWS, 1000 * y - 7, **numbers)
    found, expected = other.predict(NEW), one.predict(NEW)
    assert_allclose(found.mean, 1000 * expected.mean - 7, rtol=1e-3)
    assert_allclose(found.observed().std, 1000 * expected.observed().std, rtol=1e-3)
    difference = other.log_marginal_likelihood() - one.log_marginal_likelihood()
    assert difference.item() == pytest.approx(-observed * np.log(1000), abs=1e-2)
    left_out = other.leave_one_out().log_prob.sum() - one.leave_one_out().log_prob.sum()
    assert left_out == pytest.approx(-observed * np.log(1000), abs=1e-2)
    assert value_of(other, unit) == pytest.approx(1000 ** (1 + (unit == "noise")) * value_of(one, unit))
    held = model("rows", name, likelihood=dataclasses.replace(MODELS[name][0](), **values), start={}).condition(
        ROWS, y, **numbers
    )
    assert not set(values) & set(held.hyperparameters.names)
    learned = model("rows", name, start=values).condition(ROWS, y, **numbers)
    assert held.log_marginal_likelihood().item() == pytest.approx(learned.log_marginal_likelihood().item(), abs=1e-3)


# --- noise with a kernel of its own -------------------------------------------------------------------


def noisy(noise, approximation=None, terms=SUM, **options):
    """Return a model whose log noise has a kernel of its own."""
    kernel = sum((KERNELS[term] for term in terms[1:]), start=KERNELS[terms[0]])
    return rfgp.GP(kernel, Heteroscedastic(kernel=noise), approximation or rfgp.Exact(), **{"seed": 0, **options})


def noise_of(gp, X=NEW):
    p = gp.predict(X)
    return p.observed().variance - p.variance


def test_bound_of_noise_with_its_own_kernel_matches_dense_matrices():
    start = {**START, "mean": 0.2, "noise": 0.3, "noise.wave.lengthscale": 1.1, "noise.wave.outputscale": 0.4}
    start = {path: value for path, value in start.items() if path.split(".")[0] in (*SUM, "mean", "noise")}
    y = observations("heteroscedastic")
    gp = noisy(KERNELS["wave"] + 0.5 * KERNELS["site"], start=start).condition(ROWS, y)
    kernels = [covariance(gp, SUM, ROWS, ROWS), covariance(gp, ("wave", "site"), ROWS, ROWS, "noise.")]
    assert value_of(gp, "noise.site.outputscale") == 0.5
    found = dense.Variational(
        lambda m, v: dense.expected_noise(y, m, v, 0.3),
        lambda m, v: dense.slopes_of_expected_noise(y, m, v, 0.3),
        kernels,
        [0.2, 0.0],
    )
    assert gp.log_marginal_likelihood().item() == pytest.approx(found.evidence, abs=5e-3)
    pairs = [(NEW, ROWS), (NEW, NEW)]  # the new level has the variance of the prior
    g, joint = found.moments(*(covariance(gp, ("wave", "site"), *pair, "noise.") for pair in pairs), function=1)
    assert_allclose(noise_of(gp), 0.3 * np.exp(g + np.diag(joint) / 2), rtol=5e-3)
    assert list(gp.predict(NEW).terms) == list(SUM)


def test_terms_of_the_noise_have_approximations_of_their_own():
    chosen = {"smooth": rfgp.RandomFeatures(4), "noise.rbf(u)": rfgp.InducingPoints(7)}
    gp = noisy(k.RBF("u") + k.Group("site"), chosen, ("smooth",)).condition(ROWS, observations("heteroscedastic"))
    found = {name: report.approximation for name, report in gp.terms.items()}
    assert found == chosen | {"noise.group(site)": rfgp.Exact()}
    changed = gp.with_approximation({"noise.rbf(u)": rfgp.Exact()})
    assert changed.terms["noise.rbf(u)"].approximation == rfgp.Exact()
    assert changed.terms["smooth"].approximation == chosen["smooth"]
    assert {report.approximation for report in gp.exact().terms.values()} == {rfgp.Exact()}
    each = gp.exact().terms["smooth"].cost.memory
    tight = noisy(k.RBF("u"), terms=("smooth",), memory=1.9 * each)
    refused(lambda: tight.condition(ROWS, TARGETS[:N]), rfgp.InvalidArgumentError, "must fit into")


# --- bounds of the exact evidence ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sor", "fitc", "vfe"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_bounds_of_the_evidence_are_those_of_dense_matrices(method, outputs):
    y = np.stack([observations("gaussian"), 3 * observations("gaussian")[::-1]], 1)[:, :outputs]
    at = lambda method: {"smooth": rfgp.InducingPoints(6, method=method)}  # noqa: E731
    gp = rfgp.GP(KERNELS["smooth"] + KERNELS["slope"] + KERNELS["site"], approximation=at(method), seed=0)
    gp.condition(ROWS, y if outputs == 2 else y[:, 0])
    found, exact = gp.evidence_bounds(), gp.exact().log_marginal_likelihood().item()
    assert found.lower < exact < found.upper
    if outputs == 1:
        K, Q = (one.prior_covariance(ROWS).detach().numpy() for one in (gp.exact(), gp.with_approximation(at("sor"))))
        noise, residual = value_of(gp, "noise"), y[:, 0] - value_of(gp, "mean")
        total, gap = Q + noise * np.eye(N), np.trace(K - Q) / noise
        quadratics = [residual @ np.linalg.solve(total + more * np.eye(N), residual) for more in (0, noise * gap)]
        lower = stats.multivariate_normal(np.zeros(N), total).logpdf(residual) - gap / 2
        assert found.lower == pytest.approx(lower, rel=1e-8)
        assert found.upper == pytest.approx(lower + gap / 2 + (quadratics[0] - quadratics[1]) / 2, rel=1e-8)
        assert method != "vfe" or found.lower == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-12)
    more = gp.with_approximation({"smooth": rfgp.InducingPoints(N, init="pivoted-cholesky")}).evidence_bounds()
    assert more.divergence < 0.1 < found.divergence
    assert "at most" in str(found)


# --- outliers and rare counts ----------------------------------------------------------------------------

LINE = np.random.default_rng(0).uniform(0, 1, 80)
CURVE = np.sin(12 * LINE)
TARGETS = CURVE + 0.1 * np.random.default_rng(1).normal(size=80)


def changed(values, rows, value):
    values = values.copy()
    values[rows] = value
    return values


def error_of(gp):
    points = np.linspace(0.05, 0.95, 40)
    return np.sqrt(np.mean((gp.predict(points[:, None]).mean - np.sin(12 * points)) ** 2))  # 0.7 for a constant


@pytest.mark.parametrize(("outlier", "standardize"), [(-9999.0, True), (1e8, False)])
def test_student_t_ignores_outliers_of_any_size(outlier, standardize):
    gp = rfgp.GP(k.RBF(), "student-t", standardize=standardize, seed=0)
    with pytest.warns(rfgp.OutlierWarning, match="20, 50"):
        gp.fit(LINE[:, None], changed(TARGETS, [20, 50], outlier))
    assert error_of(gp) < 0.08


@pytest.mark.parametrize("standardize", [True, False])
def test_wild_inputs_do_not_change_a_fit(standardize, tmp_path):
    gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(32), standardize=standardize, seed=0)
    with pytest.warns(rfgp.OutlierWarning, match="7"):
        gp.fit(changed(LINE, 7, 1e6)[:, None], TARGETS)
    gp.save(tmp_path / "model")
    assert error_of(rfgp.load(tmp_path / "model")) == error_of(gp) < 0.08
    before = value_of(gp, "rbf.lengthscale")
    gp.condition(LINE[:, None], TARGETS).update([[1e6]], [0.0])
    assert value_of(gp, "rbf.lengthscale") == before
    assert error_of(gp) < 0.08


def test_robust_units_of_blocks_and_weights():
    wild, times = changed(LINE, 45, 1e6)[:, None], np.arange(80) // 40 + 1
    blocks = rfgp.tables.Batches([(wild[i : i + 30], TARGETS[i : i + 30]) for i in range(0, 80, 30)])
    repeated, lengths = (np.repeat(wild, times, 0), np.repeat(TARGETS, times)), []
    for rows, weight in (((blocks,), None), ((wild, TARGETS), times), (repeated, None)):
        gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(32), seed=0)
        with pytest.warns(rfgp.OutlierWarning):
            lengths.append(value_of(gp.condition(*rows, sample_weight=weight), "rbf.lengthscale"))
    assert lengths[0] < 1
    assert lengths[1] == pytest.approx(lengths[2], rel=1e-12)
    zeros = np.where(np.arange(80) % 10, 0.0, 1e6)  # heavy tails are no outliers
    gp = rfgp.GP(k.RBF(), seed=0).condition(LINE[:, None], zeros)
    assert value_of(gp, "noise") == pytest.approx(0.1 * np.var(zeros, ddof=1))


@pytest.mark.slow
def test_means_of_rare_counts_are_bounded_by_a_prior():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(150, 3)), np.zeros(150)
    y[rng.integers(150)] = 10_000
    with pytest.warns(rfgp.RfgpWarning):
        assert rfgp.GP(k.RBF(), "poisson", seed=0).fit(X, y).predict(X).observed().mean.max() < 2 * y.max()
    gp = rfgp.GP(k.RBF(), "poisson", rfgp.Exact(), priors={"outputscale": None}, seed=0)
    with pytest.warns(rfgp.LatentVarianceWarning, match="quantile"):
        gp.fit(X, y)
    assert gp.predict(X).observed().mean.max() > 1e20 * y.max()


# --- fits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_separable_classes_have_a_finite_fit(name):
    X = np.random.default_rng(0).standard_normal((60, 2))
    y = (X[:, 0] > 0).astype(float)
    p = rfgp.GP(k.RBF(), name, rfgp.RandomFeatures(8), inference="laplace", seed=0).fit(X, y).predict(X).observed()
    found = p.mean if name == "bernoulli" else p.mean[:, 1]
    assert np.isfinite(found).all()
    assert ((found > 0.5) == (y == 1)).mean() > 0.95


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("name", ["poisson", "negative-binomial", "gamma", "student-t", "bernoulli"])
def test_extreme_targets_have_finite_fits(name):
    rng = np.random.default_rng(0)
    y = {
        "poisson": rng.integers(0, 10**7, 40),
        "negative-binomial": np.r_[10**7, np.zeros(39)],
        "gamma": np.exp(rng.normal(0, 20, 40)),
        "student-t": 1e12 * rng.standard_cauchy(40),
        "bernoulli": np.r_[1, np.zeros(39)],
    }[name].astype(float)
    X = np.repeat(rng.standard_normal((10, 2)), 4, axis=0)
    gp = rfgp.GP(k.RBF(), name, rfgp.RandomFeatures(6), seed=0).fit(X, y)
    law = gp.predict(np.vstack([X[:2], [[1e3, 1e3]]])).observed()
    assert np.isfinite(law.log_prob(y[:3])[:2]).all()
    assert not np.isnan(law.log_prob(y[:3])).any()  # e^f may overflow far from the rows
    assert (law.quantile(0.9) >= law.quantile(0.1)).all()
    assert np.isfinite(gp.leave_one_out().log_prob).all()


# --- refusals ------------------------------------------------------------------------------------------

COUNTS, X2 = np.arange(20.0), np.random.default_rng(0).standard_normal((20, 2))
INVALID, BAD, SOLVER = rfgp.InvalidArgumentError, rfgp.DataError, rfgp.SolverError


def gp_of(likelihood="poisson", approximation="auto", **options):
    return rfgp.GP(k.RBF(), likelihood, approximation, **options)


def law(likelihood="poisson", y=COUNTS, **options):
    """Return a prediction of 20 rows."""
    p = gp_of(likelihood, **options).condition(X2, np.resize(y, 20)).predict(X2)
    assert np.isfinite(p.mean).all()
    return p


def bounds(likelihood, approximation):
    return gp_of(likelihood, approximation).condition(X2, COUNTS).evidence_bounds()


REFUSED = [
    (lambda: gp_of("cauchy"), INVALID, "cauchy"),
    (lambda: Categorical(1), INVALID, "num_classes"),
    (lambda: gp_of(Gaussian(noise=0.3)), INVALID, "noise"),
    (lambda: law(start={"noise": 0.1}), INVALID, "noise"),
    (lambda: law("categorical", approximation=rfgp.Vecchia(5), inference="laplace"), INVALID, "variational"),
    (lambda: law(approximation=rfgp.RandomFeatures(8, learn_frequencies=True)), INVALID, "Gaussian"),
    (lambda: law(approximation=rfgp.InducingPoints(8, method="fitc")), INVALID, "Gaussian"),
    (lambda: law(approximation=rfgp.Vecchia(5, condition_on="responses")), INVALID, "Gaussian"),
    (lambda: Bernoulli(link="cauchit"), INVALID, "link"),
    (lambda: Categorical(10_000), INVALID, "num_classes"),
    (lambda: gp_of().condition(X2, COUNTS, exposure=[1, 2]), BAD, "one value"),
    (lambda: gp_of("student-t", inference="variational"), INVALID, "laplace"),
    (lambda: gp_of("heteroscedastic", inference="laplace"), INVALID, "variational"),
    (lambda: gp_of("gaussian", inference="laplace"), INVALID, "None"),
    (lambda: gp_of(inference="mcmc"), INVALID, "variational"),
    (lambda: law("bernoulli", [0, 1, 2, 0]), BAD, "row 2"),
    (lambda: law("categorical", [0, 1, 0.5]), BAD, "row 2"),
    (lambda: law("poisson", [0, 1.5]), BAD, "row 1"),
    (lambda: law("poisson", [0, np.nan]), BAD, "row 1"),
    (lambda: gp_of().condition(X2, np.stack([COUNTS, COUNTS], 1)), BAD, "output"),
    (lambda: gp_of().condition(X2, COUNTS, noise=np.ones(20)), BAD, "noise"),
    (lambda: gp_of().condition(X2, COUNTS).update(X2, COUNTS + 0.5), BAD, "counts"),
    (lambda: gp_of().condition(X2, COUNTS, exposure=-1 - COUNTS), INVALID, "positive"),
    (lambda: gp_of("bernoulli").condition(X2, COUNTS % 2, exposure=1 + COUNTS), INVALID, "counts"),
    (lambda: law().observed().log_prob(-COUNTS), INVALID, "possible"),
    (lambda: law().observed().covariance, INVALID, "covariance"),
    (lambda: law().observed().linear(COUNTS), INVALID, "Sums"),
    (lambda: law().observed().exp(), INVALID, "exponentials"),
    (lambda: law().exp().observed(), INVALID, "exponentials"),
    (lambda: law().terms["rbf"].observed().sample(1), INVALID, "term"),
    (lambda: conditioned("rows", "categorical", "laplace").predict(NEW).mean, INVALID, "features"),
    (lambda: law(start={"mean": 800.0}), SOLVER, "finite"),
    (lambda: gp_of(inference="variational").condition(rfgp.tables.Batches([(X2, COUNTS)])), INVALID, "memory"),
    (lambda: gp_of(Heteroscedastic(kernel="rbf")), INVALID, "kernel"),
    (lambda: noisy(k.RBF("nothing")).condition(ROWS, TARGETS[:N]), BAD, "nothing"),
    (lambda: bounds("gaussian", rfgp.RandomFeatures(8)), INVALID, "RandomFeatures"),
    (lambda: bounds("poisson", rfgp.InducingPoints(8)), INVALID, "Gaussian"),
    (lambda: gp_of("gaussian").evidence_bounds(), rfgp.NotFittedError, "condition"),
    (lambda: law("beta", [0.5, 1.0, 0.2]), BAD, "binomial"),
    (lambda: law("beta", [0.5, 0.0, 0.2]), BAD, "row 1"),
    (lambda: gp_of("binomial").condition(X2, COUNTS), INVALID, "trials"),
    (lambda: gp_of("binomial").condition(X2, COUNTS, trials=10), BAD, "row 11"),
    (lambda: gp_of("binomial").condition(X2, COUNTS / 2, trials=20), BAD, "counts"),
    (lambda: gp_of("binomial").condition(X2, COUNTS, trials=COUNTS + 0.5), INVALID, "integers"),
    (lambda: gp_of("binomial").condition(X2, COUNTS, trials=COUNTS), INVALID, "trials must be integers 1"),
    (lambda: gp_of("binomial").condition(X2, COUNTS, trials="n"), BAD, "n"),
    (lambda: gp_of("binomial").condition(X2, COUNTS, trials=[20, 21]), BAD, "trials"),
    (lambda: gp_of().condition(X2, COUNTS, trials=20), INVALID, "binomial"),
    (lambda: law("zero-inflated-poisson", [0, 1.5]), BAD, "counts"),
    (lambda: law("hurdle-poisson", [0, -1]), BAD, "counts"),
    (lambda: likelihoods.HurdlePoisson(1.0), INVALID, "below 1"),
    (lambda: law("weibull", [1.0, 0.0]), BAD, "tobit"),
    (lambda: law("lognormal", [1.0, -2.0]), BAD, "row 1"),
    (lambda: gp_of("weibull").condition(X2, 1 + COUNTS, censored=COUNTS), INVALID, "right-censored"),
    (lambda: gp_of("weibull").condition(X2, 1 + COUNTS, censored=np.full(20, np.nan)), INVALID, "censored"),
    (lambda: gp_of("gamma").condition(X2, 1 + COUNTS, censored=0 * COUNTS), INVALID, "tobit"),
    (lambda: gp_of("gaussian").condition(X2, COUNTS, censored=0 * COUNTS), INVALID, "tobit"),
    (lambda: gp_of("tobit").condition(X2, COUNTS, noise=0 * COUNTS), BAD, "noise"),
    (lambda: law("gaussian").observed(censored=1), INVALID, "tobit"),
    (lambda: law("ordinal", [0, 1, 2.5]), BAD, "labels"),
    (lambda: law("ordinal", [0, 1]), INVALID, "bernoulli"),
    (lambda: gp_of("ordinal").condition(X2, ["a", "b"] * 10), BAD, "order"),
    (lambda: gp_of(likelihoods.Ordinal(classes=["a", "b", "c"])).condition(X2, ["a", "d"] * 10), BAD, "'d'"),
    (lambda: likelihoods.Ordinal(classes=["a", "b", "a", "c"]), INVALID, "different"),
    (lambda: likelihoods.Ordinal(classes="abc"), INVALID, "different"),
    (lambda: likelihoods.Ordinal(gaps=[1.0, -1.0]), INVALID, "gaps"),
    (lambda: law("ordinal", [0, 1, 2]).exp().observed(), INVALID, "exponentials"),
    (lambda: rfgp.metrics.crps(COUNTS % 3, law("ordinal", [0, 1, 2])), INVALID, "labels"),
]


@pytest.mark.parametrize(("call", "error", "word"), REFUSED)
def test_what_cannot_be_is_refused(call, error, word):
    refused(call, error, word)
