"""Predictions of averages are mixtures: densities, quantiles, samples, functionals and metrics."""

import numpy as np
import pytest
import torch
from average_cases import CASES as AVERAGES
from average_cases import NEW, SHARES, average, models_of

import rfgp

EXACT = AVERAGES["exact"]


@pytest.fixture(scope="module")
def models():
    return models_of(*EXACT)


def both(models, observed):
    """Return the prediction of the average, and those of its models."""
    found = [one.predict(NEW) for one in (average(models), *models)]
    mixture, *each = [one.observed() for one in found] if observed else found
    return mixture, each


def mixed(values):
    return sum(share * value for share, value in zip(SHARES, values, strict=True))


def covariance(each):
    mean = mixed([one.mean for one in each])
    return mixed([one.covariance + np.outer(one.mean - mean, one.mean - mean) for one in each])


@pytest.mark.parametrize("observed", [False, True])
def test_densities_and_quantiles_are_those_of_the_mixture(models, observed):
    mixture, each = both(models, observed)
    far = mixture.mean + 3 * mixture.std
    for y in (far, mixture.mean - 0.5 * mixture.std):
        density = mixed([np.exp(one.log_prob(y)) for one in each])
        np.testing.assert_allclose(mixture.log_prob(y), np.log(density), rtol=1e-7)
        np.testing.assert_allclose(mixture.cdf(y), mixed([one.cdf(y) for one in each]), rtol=1e-9)
    normal = -0.5 * (3**2 + np.log(2 * np.pi * mixture.variance))
    assert np.abs(mixture.log_prob(far) - normal).max() > 0.02  # a Gaussian with the same moments would fail
    quantiles = mixture.quantile([0.01, 0.5, 0.9])
    for p, quantile in zip([0.01, 0.5, 0.9], quantiles, strict=True):
        np.testing.assert_allclose(mixture.cdf(quantile), p, rtol=1e-8)
    np.testing.assert_allclose(mixture.interval(0.98)[0], quantiles[0], rtol=1e-12)


@pytest.mark.parametrize("observed", [False, True])
def test_covariances_include_the_disagreement_of_models(models, observed):
    mixture, each = both(models, observed)
    np.testing.assert_allclose(mixture.covariance, covariance(each), rtol=1e-8, atol=1e-10)
    assert np.abs(mixture.covariance - mixed([one.covariance for one in each])).max() > 1e-4


@pytest.mark.parametrize("observed", [False, True])
def test_samples_are_joint_samples_of_the_mixture(models, observed):
    mixture, _ = both(models, observed)
    samples = mixture.sample(20_000, seed=0)
    for p in (0.02, 0.3, 0.7):
        share = (samples <= mixture.quantile(p)).mean(0)
        z = (share - p) / np.sqrt(p * (1 - p) / 20_000)
        assert np.abs(z).max() < 6  # 54 z-scores of binomial shares: a false alarm in 10^7 runs
    squares = ((samples - mixture.mean) @ np.ones(9)) ** 2
    z = (squares.mean() - mixture.covariance.sum()) / (squares.std() / np.sqrt(20_000))
    assert abs(z) < 6
    assert mixture.sample(0, seed=0).shape == (0, 9)
    np.testing.assert_array_equal(mixture.sample(3, seed=1), mixture.sample(3, seed=1))


def test_linear_functionals_are_mixtures(models):
    weights = np.stack([np.eye(9)[0] - np.eye(9)[1], np.ones(9)])
    prediction = average(models).predict(NEW)
    mixture = prediction.linear(weights).observed()
    each = [one.predict(NEW).observed().linear(weights) for one in models]
    y = mixture.mean + mixture.std
    density = mixed([np.exp(one.log_prob(y)) for one in each])
    np.testing.assert_allclose(np.exp(mixture.log_prob(y)), density, rtol=1e-8)
    np.testing.assert_allclose(mixture.covariance, weights @ prediction.observed().covariance @ weights.T, rtol=1e-8)


def test_exponentials_are_those_of_the_gaussian_with_its_moments(models):
    mixture, _ = both(models, observed=True)
    np.testing.assert_allclose(mixture.exp().mean, np.exp(mixture.mean + mixture.variance / 2), rtol=1e-9)
    np.testing.assert_allclose(np.log(mixture.exp().median), mixture.mean, rtol=1e-9)


def test_metrics_are_those_of_the_mixture(models):
    gp = average(models)
    prediction, (observed, _) = gp.predict(NEW), both(models, observed=True)
    y = observed.mean + observed.std * np.linspace(-3, 4, 9)
    assert rfgp.metrics.nlpd(y, prediction) == pytest.approx(-observed.log_prob(y).mean())
    crps = 0.0  # its definition, an integral below y and one above
    for end, reached in ((observed.mean - 12 * observed.std, 0), (observed.mean + 12 * observed.std, 1)):
        places = y + np.linspace(0, 1, 1001)[:, None] * (end - y)
        squares = np.array([(observed.cdf(t) - reached) ** 2 for t in places])
        crps += ((squares[1:] + squares[:-1]).mean(0) / 2 * abs(end - y)).mean()
    assert rfgp.metrics.crps(y, prediction) == pytest.approx(crps, rel=1e-5)
    low, high = observed.interval(0.9)
    assert float(rfgp.metrics.interval_coverage(y, prediction, [0.9])[0]) == ((y > low) & (y < high)).mean()
    assert np.isfinite(rfgp.metrics.standardized_residuals(y + 1e3, prediction).numpy()).all()


def test_moments_and_quantiles_are_differentiable_in_the_inputs():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 2))
    gp = rfgp.GP(seed=0).fit(X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(40))
    assert gp.members

    def value(x):
        prediction = gp.predict(x)
        return prediction.mean.sum() + prediction.variance.sum() + prediction.quantile(0.3).sum()

    x = torch.tensor(X[:1] + 0.1, requires_grad=True)
    slope, step = torch.autograd.grad(value(x), x)[0], torch.tensor([[1e-5, 0.0]])
    with torch.no_grad():
        assert float(slope[0, 0]) == pytest.approx(float(value(x + step) - value(x - step)) / 2e-5, rel=1e-4)


def test_prior_covariance_is_that_of_the_mixture(models):
    expected = mixed([one.prior_covariance(NEW).detach() for one in models])
    torch.testing.assert_close(average(models).prior_covariance(NEW).detach(), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one.quantile(1.0), "strictly between"),
        (lambda one: one.log_prob([1.0]), "shape"),
        (lambda one: one.cdf("a"), "no"),
        (lambda one: one.sample(-1), "num_samples"),
        (lambda one: one.linear([np.nan] * 9), "finite"),
        (lambda one: one.observed(exposure=2.0), "exposure"),
    ],
)
def test_wrong_arguments_raise(models, call, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        call(average(models).predict(NEW))
