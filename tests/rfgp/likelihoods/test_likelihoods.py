import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from rfgp import DataError, InvalidArgumentError, likelihoods
from rfgp.likelihoods import (
    Bernoulli,
    Categorical,
    Gamma,
    Gaussian,
    Heteroscedastic,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from rfgp.likelihoods.role import learned_parameters, refuse, standardized

CASES = {
    "gaussian": Gaussian(noise=0.3),
    "heteroscedastic": Heteroscedastic(noise=0.3),
    "bernoulli": Bernoulli(),
    "bernoulli, probit": Bernoulli(link="probit"),
    "poisson": Poisson(),
    "negative-binomial": NegativeBinomial(dispersion=0.7),
    "student-t": StudentT(df=4.5, scale=0.6),
    "gamma": Gamma(shape=2.5),
}
OBSERVED = {
    "gaussian": (-3.0, 0.2, 9.0),
    "heteroscedastic": (-3.0, 0.2, 9.0),
    "bernoulli": (0.0, 1.0),
    "poisson": (0.0, 1.0, 5.0, 40.0),
    "negative-binomial": (0.0, 1.0, 5.0, 40.0),
    "student-t": (-3.0, 0.2, 9.0),
    "gamma": (0.01, 1.0, 30.0),
}
LAWS = {
    "gaussian": lambda f: stats.norm(f, 0.3**0.5),
    "heteroscedastic": lambda f: stats.norm(f, 0.3**0.5),
    "bernoulli": lambda f: stats.bernoulli(1 / (1 + np.exp(-f))),
    "bernoulli, probit": lambda f: stats.bernoulli(stats.norm.cdf(f)),
    "poisson": lambda f: stats.poisson(np.exp(f)),
    "negative-binomial": lambda f: stats.nbinom(1 / 0.7, 1 / (1 + 0.7 * np.exp(f))),
    "student-t": lambda f: stats.t(4.5, loc=f, scale=0.6),
    "gamma": lambda f: stats.gamma(2.5, scale=np.exp(f) / 2.5),
}
PLACES = torch.linspace(-3.0, 3.0, 13, dtype=torch.float64)


def pairs(name):
    """All targets at all places, (n,) each."""
    y = torch.tensor(OBSERVED[name.partition(",")[0]], dtype=torch.float64)
    grid = torch.cartesian_prod(y, PLACES)
    return grid[:, 0], grid[:, 1]


def test_every_likelihood_is_tested():
    assert {*(type(case) for case in CASES.values()), Categorical} == set(likelihoods.REGISTRY.classes.values())
    assert set(LAWS) == set(CASES)


@pytest.mark.parametrize("name", CASES)
class TestLaw:
    def test_log_density_is_that_of_scipy(self, name):
        y, f = pairs(name)
        law = LAWS[name](f.numpy())
        expected = law.logpmf(y.numpy()) if CASES[name].is_discrete else law.logpdf(y.numpy())
        np.testing.assert_allclose(CASES[name].log_prob(y, f), expected, rtol=1e-9, atol=1e-10)

    def test_moments_and_distribution_are_those_of_scipy(self, name):
        y, f = pairs(name)
        law = LAWS[name](f.numpy())
        np.testing.assert_allclose(CASES[name].mean(f), law.mean(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(CASES[name].variance(f), law.var(), rtol=1e-10)
        for shift in (-0.5, 0.0, 0.5):
            np.testing.assert_allclose(CASES[name].cdf(y + shift, f), law.cdf(y + shift), rtol=1e-9, atol=1e-14)
        below = CASES[name].lowest
        assert not CASES[name].cdf(torch.full_like(f, below - 1), f).any()

    def test_derivatives_are_those_of_the_log_density(self, name):
        """Each against autograd through the one before; the first, of the value, against central differences too."""
        y, f = pairs(name)
        f = f.clone().requires_grad_()
        found = CASES[name].slopes(y, f)
        for lower, higher in itertools.pairwise(found):
            (expected,) = torch.autograd.grad(lower.sum() + 0 * f.sum(), f, retain_graph=True)
            torch.testing.assert_close(higher, expected, rtol=1e-7, atol=1e-9)
        step = 1e-5
        with torch.no_grad():
            ends = [CASES[name].log_prob(y, f + s) for s in (step, -step)]
        torch.testing.assert_close(found.first.detach(), (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-6)

    def test_information_is_the_mean_of_the_curvature(self, name):
        """Where it is not the curvature itself; and it is never negative."""
        y, f = pairs(name)
        slopes = CASES[name].slopes(y, f)
        weight, change = CASES[name].information(slopes, f)
        assert (weight >= 0).all()
        assert CASES[name].is_concave == bool((slopes.second <= 0).all())
        assert (CASES[name].majorizer(slopes, y, f) >= (-slopes.second).clamp_min(0)).all()
        if CASES[name].is_concave:
            torch.testing.assert_close(weight, -slopes.second)
            torch.testing.assert_close(change, -slopes.third)
            return
        assert not change.any()
        one = torch.zeros((), dtype=torch.float64)
        curvature = lambda t: float(-CASES[name].slopes(torch.tensor(t), one).second)  # noqa: E731
        mean, _ = integrate.quad(lambda t: curvature(t) * LAWS[name](0.0).pdf(t), -np.inf, np.inf)
        assert float(weight[0]) == pytest.approx(mean, rel=1e-6)

    def test_fishers_information_is_the_mean_over_observations(self, name):
        f = torch.tensor([-0.7, 0.0, 1.1], dtype=torch.float64)
        law = LAWS[name]
        for i, at in enumerate(f):

            def curvature(t, at=at):
                y = torch.as_tensor(t)
                return -CASES[name].slopes(y, torch.full_like(y, at)).second.numpy()

            if CASES[name].is_discrete:
                k = np.arange(2.0 if name.startswith("bernoulli") else 2000.0)
                mean = float(law(float(at)).pmf(k) @ curvature(k))
            else:
                low, high = law(float(at)).ppf([1e-12, 1 - 1e-12])
                t = np.linspace(low, high, 400_001)
                mean = float(np.trapezoid(law(float(at)).pdf(t) * curvature(t), t))
            assert float(CASES[name].fisher(f)[i]) == pytest.approx(mean, rel=1e-4)

    def test_moments_of_a_mixture_are_integrals(self, name):
        mean, variance = (torch.tensor(v, dtype=torch.float64) for v in ([-1.0, 0.0, 0.5], [0.3, 1.5, 0.01]))
        found = CASES[name].moments(mean, variance)
        assert (found is None) == name.startswith("bernoulli")
        if found is None:
            return
        x, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(60))
        f = mean[:, None] + variance.sqrt()[:, None] * x
        weights = weights / weights.sum()
        first = CASES[name].mean(f) @ weights
        second = (CASES[name].variance(f) + CASES[name].mean(f).square()) @ weights
        torch.testing.assert_close(found[0], first, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found[1], second - first.square(), rtol=1e-8, atol=1e-12)

    def test_samples_have_the_mean_and_the_distribution(self, name):
        """Kolmogorov and Smirnov's test of randomised probabilities, at 1e-7 a case."""
        f = torch.linspace(-1.0, 2.0, 4000, dtype=torch.float64)
        y = CASES[name].sample(f, torch.Generator().manual_seed(3))
        low = CASES[name].cdf(y - 1 if CASES[name].is_discrete else y, f).numpy()
        u = np.random.default_rng(5).uniform(size=len(f))
        share = low + u * (CASES[name].cdf(y, f).numpy() - low)
        assert stats.kstest(share, "uniform").pvalue > 1e-7
        assert stats.kstest(share**1.3, "uniform").pvalue < 1e-7  # it can fail

    def test_parameters_are_checked_and_named(self, name):
        for parameter in CASES[name].parameters:
            with pytest.raises(InvalidArgumentError, match=f"{parameter.name} must be positive"):
                dataclasses.replace(CASES[name], **{parameter.name: -1.0})
            free = dataclasses.replace(CASES[name], **{parameter.name: None})
            assert [p.name for p in learned_parameters(free)] == [parameter.name]
            bound = free.at({parameter.name: torch.tensor(2.0)})
            assert float(getattr(bound, parameter.name)) == 2.0
        assert learned_parameters(CASES[name]) == ()


@pytest.mark.parametrize("name", ["poisson", "negative-binomial"])
def test_counts_of_huge_rates_are_drawn(name):
    """z-scores of the logarithms at two rates, at 1e-7 a case."""
    likelihood, generator = CASES[name], torch.Generator().manual_seed(1)
    for f in (30.0, 60.0):
        y = likelihood.sample(torch.full((4000,), f, dtype=torch.float64), generator) / np.exp(f)
        relative = float(likelihood.variance(torch.tensor([f], dtype=torch.float64))) / np.exp(2 * f)
        assert abs(float(y.mean()) - 1) < 5.3 * np.sqrt(relative / 4000) + 1e-12
    assert float(likelihood.sample(torch.tensor([800.0], dtype=torch.float64), generator)[0]) == np.inf


@pytest.mark.parametrize("f", [-1e3, -60.0, -9.0, 8.0, 40.0])
def test_the_probit_loses_no_digits_in_its_tails(f):
    z = torch.tensor([f], dtype=torch.float64)
    slopes = Bernoulli(link="probit").slopes(torch.ones(1, dtype=torch.float64), z)
    assert torch.isfinite(torch.stack(slopes)).all()
    if f < -8:  # h = -z (1 + 1/z^2 - 2/z^4 + ...)
        rest = 1 / abs(f) - 2 / abs(f) ** 3 + 10 / abs(f) ** 5 - 74 / abs(f) ** 7
        assert float(slopes.first) == pytest.approx(abs(f) + rest, rel=1e-6)
        assert float(-slopes.second) == pytest.approx(rest * (abs(f) + rest), rel=1e-3)
        assert 0 < float(-slopes.second) < 1


class TestCategorical:
    law = Categorical(4)
    f = torch.from_numpy(np.random.default_rng(1).standard_normal((30, 4)))
    y = torch.from_numpy(np.random.default_rng(2).integers(0, 4, 30).astype(float))

    def test_derivatives_are_those_of_the_log_density(self):
        f = self.f.clone().requires_grad_()
        found = self.law.slopes(self.y, f)
        expected = stats.multinomial.logpmf(np.eye(4)[self.y.long()], 1, torch.softmax(self.f, 1).numpy())
        np.testing.assert_allclose(found.value.detach(), expected, rtol=1e-10)
        (first,) = torch.autograd.grad(found.value.sum(), f, retain_graph=True)
        torch.testing.assert_close(found.first, first)
        for lower, higher in itertools.pairwise(found[1:]):
            parts = [torch.autograd.grad(lower[:, c].sum(), f, retain_graph=True)[0][:, c] for c in range(4)]
            torch.testing.assert_close(higher, torch.stack(parts, 1))

    def test_distribution_of_labels(self):
        p = self.law.mean(self.f)
        torch.testing.assert_close(self.law.cdf(torch.full((30,), 3.0), self.f), torch.ones(30, dtype=torch.float64))
        torch.testing.assert_close(self.law.cdf(torch.zeros(30), self.f), p[:, 0])
        torch.testing.assert_close(self.law.variance(self.f), p - p.square())
        drawn = self.law.sample(self.f.expand(20_000, 30, 4), torch.Generator().manual_seed(0))
        for c in range(4):
            np.testing.assert_allclose((drawn == c).double().mean(0), p[:, c], atol=0.025)

    def test_expected_log_densities_match_integrals(self):
        """Against a product of Gauss and Hermite's rules for three classes; derivatives are those of the sum taken."""
        law, y = Categorical(3), self.y.clamp_max(2)
        rng = np.random.default_rng(3)
        mean = torch.from_numpy(rng.uniform(-1, 1, (30, 3)))
        for variance in (torch.from_numpy(rng.uniform(0.1, 2.0, (30, 3))), torch.full((30, 3), 1e-14).double()):
            x, weight = np.polynomial.hermite_e.hermegauss(20)
            places = torch.from_numpy(np.stack(np.meshgrid(x, x, x), -1).reshape(-1, 3))
            weights = torch.from_numpy(np.prod(np.meshgrid(weight, weight, weight), 0).reshape(-1) / weight.sum() ** 3)
            f = mean[:, None] + variance.sqrt()[:, None] * places
            p = torch.softmax(f, 2)
            own = (torch.log_softmax(f, 2) * torch.eye(3)[y.long()][:, None]).sum(2)
            found = law.expected(y, mean, variance)
            torch.testing.assert_close(found.value, own @ weights, rtol=0.01, atol=0.005)
            expected = torch.einsum("npc,p->nc", p * (1 - p), weights)
            torch.testing.assert_close(found.curvature, expected, rtol=0.1, atol=0.01)
        moments = [each.clone().requires_grad_() for each in (mean, torch.from_numpy(rng.uniform(0.1, 2.0, (30, 3))))]
        told = law.expected(y, *moments)
        in_mean, in_variance = torch.autograd.grad(told.value.sum(), moments)
        torch.testing.assert_close(told.first.detach(), in_mean)
        torch.testing.assert_close(told.curvature.detach(), -2 * in_variance)

    def test_classes_are_those_of_the_data(self):
        assert Categorical().with_targets(self.y) == self.law
        assert Categorical(9).with_targets(self.y) == Categorical(9)
        begin = self.law.begin(self.y, torch.ones(30))
        assert begin.center.shape == (4,)
        assert float(begin.center.sum()) == pytest.approx(0, abs=1e-12)


def test_a_given_scale_is_in_the_unit_of_the_targets():
    bound = standardized(StudentT(df=3.0, scale=5.0), 10.0)
    assert (bound.scale, bound.df) == (0.5, 3.0)
    assert repr(bound) == "StudentT(df=3, scale=0.5)"
    assert repr(Bernoulli()) == "Bernoulli(link='logit')"


@pytest.mark.parametrize(
    ("name", "y", "words"),
    [
        ("categorical", [0.0, 1.0, 0.5], "labels 0, 1, ..., at most 999, got 0.5 in row 2"),
        ("bernoulli", [0.0, 1.0, 2.0], "0 or 1, got 2 in row 2"),
        ("poisson", [0.0, 1.5], "counts 0, 1, 2, ..., got 1.5 in row 1"),
        ("negative-binomial", [-1.0], "counts"),
        ("gamma", [1.0, 0.0], "positive, got 0 in row 1"),
    ],
)
def test_invalid_observations_are_refused(name, y, words):
    with pytest.raises(DataError, match=words):
        refuse(likelihoods.by_name(name), torch.tensor(y, dtype=torch.float64))


def test_names_are_found_and_others_refused():
    assert isinstance(likelihoods.by_name("poisson"), Poisson)
    chosen = StudentT(df=3.0)
    assert likelihoods.by_name(chosen) is chosen
    assert set(likelihoods.names()) == set(likelihoods.REGISTRY.classes)
    for wrong in ("normal", None, 3):
        with pytest.raises(InvalidArgumentError, match="likelihood"):
            likelihoods.by_name(wrong)
    with pytest.raises(InvalidArgumentError, match="link"):
        Bernoulli(link="cauchit")


def test_initial_values_are_near_the_truth():
    rng = np.random.default_rng(2)
    f = 1.2 + 0.5 * rng.standard_normal(20_000)
    for name, case in CASES.items():
        y = torch.from_numpy(np.asarray(LAWS[name](f).rvs(random_state=rng), dtype=np.float64))
        center, variance = case.begin(y, torch.ones_like(y))
        assert float(center) == pytest.approx(1.2, abs=0.6), name
        assert 0.05 < float(variance) < 2.5, name


@pytest.mark.parametrize("name", CASES)
def test_begins_count_weights_as_repetitions(name):
    y = CASES[name].sample(torch.linspace(-1.0, 1.0, 41, dtype=torch.float64), torch.Generator().manual_seed(0))
    times = torch.from_numpy(np.random.default_rng(0).integers(1, 4, 41))
    one = CASES[name].begin(y, times.double())
    other = CASES[name].begin(y.repeat_interleave(times), torch.ones(int(times.sum()), dtype=torch.float64))
    torch.testing.assert_close(one.center, other.center)
    torch.testing.assert_close(one.variance, other.variance)


@pytest.mark.parametrize("name", [name for name in CASES if "variational" in CASES[name].approximations])
def test_expected_log_densities_match_integrals(name):
    """Against Gauss and Hermite's rule, in one dimension or two; derivatives in the moments against autograd."""
    law = CASES[name]
    count = 2 if law.has_noise_process else 1
    y = torch.tensor(OBSERVED[name.partition(",")[0]], dtype=torch.float64)
    rng = np.random.default_rng(2)
    mean = torch.from_numpy(rng.uniform(-1, 1, (len(y), count))).requires_grad_()
    variance = torch.from_numpy(rng.uniform(0.1, 0.6, (len(y), count))).requires_grad_()
    x, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(60))
    weights = weights / weights.sum()
    f = mean[:, 0, None] + variance[:, 0, None].sqrt() * x
    if law.has_noise_process:
        g = mean[:, 1, None] + variance[:, 1, None].sqrt() * x
        noise = 0.3 * g.exp()[:, None]
        inside = -0.5 * ((y[:, None] - f)[:, :, None].square() / noise + (2 * np.pi * noise).log())
        expected = torch.einsum("nqr,q,r->n", inside, weights, weights)
    else:
        expected = law.log_prob(y[:, None].expand_as(f), f) @ weights
    in_mean, in_variance = torch.autograd.grad(expected.sum(), (mean, variance))
    found = law.expected(y, mean.detach(), variance.detach())
    torch.testing.assert_close(found.value, expected.detach(), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.first, in_mean, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.curvature, -2 * in_variance, rtol=1e-7, atol=1e-8)
