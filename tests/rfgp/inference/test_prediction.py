"""Predictions, against scipy's distributions with the same mean and covariance."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats

import graphs
import rfgp
from rfgp import random

GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 5)))
MODELS = {
    "features": lambda: rfgp.SparseSpectrumGP(num_frequencies=6, seed=0),
    "rows": lambda: rfgp.SparseSpectrumGP(num_frequencies=40, seed=0),
    "exact": rfgp.ExactGP,
    "graph": lambda: rfgp.GraphGP(GRAPH, seed=0),
}


def predicted(name="features", outputs=1, observed=False):
    """Return a prediction at five points, and its mean (5, k) and covariance (5, 5, k) as arrays with an axis of k."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2)) if name != "graph" else [int(i) for i in rng.permutation(25)[:20]]
    y = 3 + rng.standard_normal((20, outputs)).cumsum(0)
    gp = MODELS[name]().condition(X, y[:, 0] if outputs == 1 else y)
    p = gp.predict(rng.standard_normal((5, 2)) if name != "graph" else [0, 3, 7, 11, 24])
    p = p.observed() if observed else p
    mean, covariance = p.mean.reshape(5, outputs), p.covariance.reshape(5, 5, outputs)
    return SimpleNamespace(p=p, mean=mean, covariance=covariance)


@pytest.mark.parametrize("observed", [False, True], ids=["latent", "observed"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_marginal_distributions_are_gaussian(outputs, observed):
    d = predicted(outputs=outputs, observed=observed)
    exact = stats.norm(d.p.mean, np.sqrt(d.p.variance))
    np.testing.assert_allclose(d.p.std, exact.std(), rtol=1e-12)
    np.testing.assert_allclose(d.p.quantile(0.1), exact.ppf(0.1), rtol=1e-10)
    np.testing.assert_allclose(d.p.quantile([0.1, 0.5]), [exact.ppf(0.1), exact.mean()], rtol=1e-10)
    for found, expected in zip(d.p.interval(0.9), exact.interval(0.9), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(d.p.interval(), exact.interval(0.95), rtol=1e-10)
    for y in (2.5, d.p.mean + 0.3, d.p.mean - 9 * d.p.std):
        np.testing.assert_allclose(d.p.cdf(y), exact.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(d.p.cdf(d.p.quantile(0.3)), np.full(d.p.mean.shape, 0.3), rtol=1e-10)


@pytest.mark.parametrize("observed", [False, True], ids=["latent", "observed"])
@pytest.mark.parametrize(("name", "outputs"), [*((name, 1) for name in MODELS), ("features", 2)])
def test_linear_functionals_match_the_joint_distribution(name, outputs, observed):
    d = predicted(name, outputs, observed)
    W = np.array([[1.0, -1.0, 0.0, 0.0, 0.0], [0.2] * 5, [0.0, 0.0, 2.0, 0.0, 0.5]])
    q = d.p.linear(W)
    covariance = np.stack([W @ C @ W.T for C in np.moveaxis(d.covariance, -1, 0)], axis=-1)
    np.testing.assert_allclose(q.mean.reshape(3, outputs), W @ d.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(q.covariance.reshape(3, 3, outputs), covariance, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(q.variance, np.diagonal(q.covariance).T, rtol=1e-8)
    again = q.linear([[1.0, 0.0, 1.0]])
    np.testing.assert_allclose(again.mean, d.p.linear(W[0] + W[2]).mean, rtol=1e-9)
    np.testing.assert_allclose(again.covariance, d.p.linear(W[0] + W[2]).covariance, rtol=1e-8)
    np.testing.assert_allclose(d.p.linear(W).observed().covariance, d.p.observed().linear(W).covariance, rtol=1e-8)


def test_difference_gives_the_probability_of_an_order():
    d = predicted()
    difference = d.p.linear([1, -1, 0, 0, 0])
    variance = d.covariance[0, 0, 0] + d.covariance[1, 1, 0] - 2 * d.covariance[0, 1, 0]
    expected = stats.norm.cdf((d.mean[0, 0] - d.mean[1, 0]) / np.sqrt(variance))
    assert 1 - difference.cdf(0)[0] == pytest.approx(expected, rel=1e-9)
    assert d.p.linear([1, 0, 0, 0, -1]).observed().variance > d.p.linear([1, 0, 0, 0, -1]).variance


@pytest.mark.parametrize("observed", [False, True], ids=["latent", "observed"])
def test_samples_of_functionals_have_their_covariance(observed):
    """Chi-square of 4000 draws of two functionals, at a false-alarm rate of 1e-5."""
    q = predicted(observed=observed).p.linear([[1, -1, 0, 0, 0], [0, 1, 1, 0, 0]])
    drawn = np.linalg.solve(np.linalg.cholesky(q.covariance), (q.sample(4000, seed=3) - q.mean).T)
    total = stats.chi2(2 * 4000)
    assert total.ppf(5e-6) < (drawn**2).sum() < total.isf(5e-6)
    assert abs((drawn[0] * drawn[1]).sum()) < stats.norm.isf(5e-6) * np.sqrt(4000)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("observed", [False, True], ids=["latent", "observed"])
def test_exponentials_are_log_normal(outputs, observed):
    d = predicted(outputs=outputs, observed=observed)
    p, exact = d.p.exp(), stats.lognorm(d.p.std, scale=np.exp(d.p.mean))
    for found, expected in (
        (p.mean, exact.mean()),
        (p.variance, exact.var()),
        (p.std, exact.std()),
        (p.median, exact.median()),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(p.quantile([0.2, 0.7]), [exact.ppf(0.2), exact.ppf(0.7)], rtol=1e-9)
    np.testing.assert_allclose(p.interval(0.8), exact.interval(0.8), rtol=1e-9)
    y = np.exp(d.p.mean) * np.linspace(0.5, 2, 5 * outputs).reshape(d.p.mean.shape)
    np.testing.assert_allclose(p.cdf(y), exact.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(p.log_prob(y), exact.logpdf(y), rtol=1e-9)
    np.testing.assert_array_equal(p.cdf(-1.0), np.zeros(d.p.mean.shape))
    assert (p.log_prob(-y) == -np.inf).all()
    mean, covariance = np.exp(d.mean + 0.5 * np.einsum("iik->ik", d.covariance)), d.covariance
    expected = np.einsum("ik,jk->ijk", mean, mean) * np.expm1(covariance)
    np.testing.assert_allclose(p.covariance.reshape(5, 5, outputs), expected, rtol=1e-8)
    np.testing.assert_allclose(p.sample(3, seed=1), np.exp(d.p.sample(3, seed=1)), rtol=1e-12)
    np.testing.assert_allclose(p.observed().median, np.exp(d.p.mean), rtol=1e-12)
    np.testing.assert_allclose(p.observed().std, d.p.observed().exp().std, rtol=1e-12)


def test_log_normal_metrics_are_in_units_of_the_target():
    d = predicted(observed=True)
    p, exact, y = d.p.exp(), stats.lognorm(d.p.std, scale=np.exp(d.p.mean)), np.exp(d.p.mean + 0.4)
    assert rfgp.metrics.nlpd(y, p) == pytest.approx(-exact.logpdf(y).mean(), rel=1e-10)
    assert rfgp.metrics.rmse(y, p) == pytest.approx(np.sqrt(((y - exact.mean()) ** 2).mean()), rel=1e-10)
    np.testing.assert_allclose(rfgp.metrics.standardized_residuals(y, p), 0.4 / d.p.std, rtol=1e-9)
    shares = rfgp.metrics.interval_coverage(y, p, [0.2, 0.9])
    inside = [((exact.interval(level)[0] <= y) & (y <= exact.interval(level)[1])).mean() for level in (0.2, 0.9)]
    np.testing.assert_allclose(shares, inside)
    other = d.p.linear(np.eye(5)).exp()
    assert rfgp.metrics.kl_divergence(p, other) == pytest.approx(0, abs=1e-9)
    for wrong in (-y, np.where(y == y[0], 0.0, y)):
        with pytest.raises(rfgp.InvalidArgumentError, match=f"must be positive, got {wrong.min():g}"):
            rfgp.metrics.nlpd(wrong, p)


def test_seed_and_generator_determine_draws():
    p = predicted().p
    np.testing.assert_array_equal(p.sample(3, seed=5), p.sample(3, seed=5))
    by_generator = p.sample(3, generator=random.generator(5, random.Role.FUNCTIONS))
    np.testing.assert_array_equal(p.sample(3, seed=5), by_generator)
    assert not np.array_equal(p.sample(3, seed=5), p.sample(3, seed=6))
    assert not np.array_equal(p.sample(3), p.sample(3))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.sample(1, seed=0, generator=torch.Generator()), "seed and generator"),
        (lambda p: p.sample(1, generator=3), "generator must be a torch.Generator, got 3"),
        (lambda p: p.sample(1, seed=-1), "seed must be an integer"),
        (lambda p: p.quantile(1.0), "probability must be strictly between 0 and 1, got 1.0"),
        (lambda p: p.quantile([0.5, np.nan]), "strictly between 0 and 1"),
        (lambda p: p.quantile("half"), "probability must be an array"),
        (lambda p: p.interval(95), "level must be strictly between 0 and 1, got 95"),
        (lambda p: p.cdf(np.zeros(3)), r"shape of the mean, \(5,\), got \(3,\)"),
        (lambda p: p.linear([1.0, -1.0]), r"weights must be finite, .* with n = 5, got shape \(1, 2\)\."),
        (lambda p: p.linear([np.nan, 0, 0, 0, 0]), r"got shape \(1, 5\) with NaN"),
        (lambda p: p.exp().cdf(["a"]), "y must be an array"),
    ],
)
def test_wrong_arguments_raise(ask, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        ask(predicted().p)


def test_tensors_give_tensors_of_their_dtype():
    X, y = torch.linspace(0, 1, 12)[:, None], torch.linspace(0, 1, 12) ** 2
    p = MODELS["features"]().condition(X, y).predict(X[:3])
    answers = (p.std, p.quantile(0.3), p.interval()[0], p.cdf(0.1), p.linear([1, 0, -1]).mean, p.exp().std)
    assert {answer.dtype for answer in (*answers, p.exp().sample(2), p.exp().quantile(0.2))} == {torch.float32}


ANSWERS = {
    "std": lambda p: p.std,
    "quantile": lambda p: p.quantile([0.1, 0.8]),
    "cdf": lambda p: p.cdf(0.2),
    "difference": lambda p: p.linear([1, -1]).cdf(0.1),
    "exponential": lambda p: p.exp().std,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_results_are_differentiable_in_the_inputs(name):
    X = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None]
    gp = MODELS["features"]().condition(X, X[:, 0] ** 2)
    new = torch.tensor([[0.3], [0.8]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: ANSWERS[name](gp.predict(x)), (new,))


def test_cdf_of_a_certain_value_is_a_step():
    d = predicted()
    p = d.p.linear(np.zeros(5))
    np.testing.assert_array_equal([p.cdf(-1e-9)[0], p.cdf(0.0)[0], p.cdf(1e-9)[0]], [0, 1, 1])
    np.testing.assert_array_equal(p.interval(), np.zeros((2, 1)))


def test_repr_is_one_line():
    p = predicted(outputs=2).p
    assert repr(p) == "Prediction(latent function at 5 points, 2 outputs)"
    assert repr(p.observed().exp()) == "LogNormal(Prediction(observations at 5 points, 2 outputs))"
    assert repr(p.linear(np.ones((1, 5)))) == "Prediction(latent function at 1 point, 2 outputs)"
    X = np.linspace(0, 1, 9)[:, None]
    out = MODELS["exact"]().condition(X, X[:, 0]).leave_one_out()
    assert repr(out) == f"LeaveOneOut(9 observations, mean log density {out.log_prob.mean():.4g})"
