"""The contract of predictions: marginals, functionals, draws, averages, scales, intervals, integrals and scores.

Numbers come from scipy's distributions with the same mean and covariance, from numpy, or from refits without a row.
"""

import copy
import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from checks import assert_mean
from numpy.testing import assert_allclose
from refusals import refused
from scipy import integrate, stats
from scipy.special import erf

import graphs
import rfgp
from rfgp import kernels as k
from rfgp import metrics, random

MODELS = {
    "features": lambda: rfgp.SparseSpectrumGP(num_frequencies=6, seed=0),
    "exact": rfgp.ExactGP,
    "neighbors": lambda: rfgp.GP(k.RBF(), approximation=rfgp.Vecchia(8), seed=0),
}
RNG = np.random.default_rng
X, NEW = RNG(0).standard_normal((20, 2)), RNG(1).standard_normal((5, 2))
TARGETS = 3 + np.sin(2 * X) + X[:, ::-1] + 0.2 * RNG(2).standard_normal((20, 2))


def predicted(name="features", outputs=1, observed=False):
    p = MODELS[name]().condition(X, TARGETS[:, 0] if outputs == 1 else TARGETS).predict(NEW)
    return p.observed() if observed else p


BOTH = pytest.mark.parametrize("observed", [False, True], ids=["latent", "observed"])
OUTPUTS = pytest.mark.parametrize("outputs", [1, 2])


@BOTH
@OUTPUTS
def test_marginals_are_normal(outputs, observed):
    p = predicted(outputs=outputs, observed=observed)
    law, y = stats.norm(p.mean, np.sqrt(p.variance)), p.mean - 9 * p.std
    pairs = [
        (p.std, law.std()),
        (p.quantile(0.1), law.ppf(0.1)),
        (p.quantile([0.1, 0.5]), [law.ppf(0.1), law.mean()]),
        (p.interval(0.9), law.interval(0.9)),
        (p.interval(), law.interval(0.95)),
        (p.cdf(2.5), law.cdf(2.5)),
        (p.cdf(y), law.cdf(y)),
        (p.log_prob(p.mean + 0.3), law.logpdf(p.mean + 0.3)),
        (p.variance, np.diagonal(p.covariance).T),
    ]
    for found, expected in pairs:
        assert_allclose(found, expected, rtol=1e-9)


def test_observations_of_outputs_add_the_noise_of_each():
    gp = MODELS["features"]().condition(X, TARGETS)
    p, noise = gp.predict(NEW), gp.hyperparameters.noise.detach().numpy()
    assert_allclose(p.observed().variance, p.variance + noise, rtol=1e-9)
    assert_allclose(p.observed().covariance - p.covariance, np.eye(5)[..., None] * noise, atol=1e-10)
    assert_mean((p.observed().sample(4000, seed=1) - p.mean) ** 2, p.observed().variance)


@BOTH
@pytest.mark.parametrize(("name", "outputs"), [("features", 2), ("exact", 1), ("neighbors", 1)])
def test_functionals_match_the_joint_distribution(name, outputs, observed):
    p = predicted(name, outputs, observed)
    mean, joint = p.mean.reshape(5, outputs), p.covariance.reshape(5, 5, outputs)
    W = np.array([[1.0, -1.0, 0.0, 0.0, 0.0], [0.2] * 5, [0.0, 0.0, 2.0, 0.0, 0.5]])
    q, expected = p.linear(W), np.einsum("ai,ijk,bj->abk", W, joint, W)
    assert_allclose(q.mean.reshape(3, outputs), W @ mean, rtol=1e-9, atol=1e-10)
    assert_allclose(q.covariance.reshape(3, 3, outputs), expected, rtol=1e-8, atol=1e-11)
    assert_allclose(q.variance, np.diagonal(q.covariance).T, rtol=1e-8)
    assert_allclose(q.linear([[1, 0, 1]]).covariance, p.linear(W[0] + W[2]).covariance, rtol=1e-8)
    assert_allclose(p.linear(W).observed().covariance, p.observed().linear(W).covariance, rtol=1e-8)


@BOTH
@pytest.mark.parametrize("name", ["features", "exact"])
def test_draws_are_joint(name, observed):
    """Chi-square of 4000 draws of two functionals, and their product, at a false-alarm rate of 1e-5 each."""
    p = predicted(name, observed=observed)
    for q in (p.linear([[1, -1, 0, 0, 0], [0, 1, 1, 0, 0]]), p):
        drawn = np.linalg.solve(np.linalg.cholesky(q.covariance), (q.sample(4000, seed=3) - q.mean).T)
        law = stats.chi2(drawn.size)
        assert law.ppf(5e-6) < (drawn**2).sum() < law.isf(5e-6)
        assert abs((drawn[0] * drawn[1]).sum()) < stats.norm.isf(5e-6) * np.sqrt(4000)
    np.testing.assert_array_equal(p.sample(3, seed=5), p.sample(3, seed=5))
    by_generator = p.sample(3, generator=random.generator(5, random.Role.FUNCTIONS))
    np.testing.assert_array_equal(p.sample(3, seed=5), by_generator)
    assert not np.array_equal(p.sample(3, seed=5), p.sample(3, seed=6))
    assert not np.array_equal(p.sample(3), p.sample(3))
    assert p.sample(0, seed=0).shape == (0, 5)


@BOTH
@OUTPUTS
def test_exponentials_are_log_normal(outputs, observed):
    d = predicted(outputs=outputs, observed=observed)
    p, law = d.exp(), stats.lognorm(d.std, scale=np.exp(d.mean))
    y = np.exp(d.mean) * np.linspace(0.5, 2, 5 * outputs).reshape(d.mean.shape)
    joint, mean = d.covariance.reshape(5, 5, outputs), law.mean().reshape(5, outputs)
    pairs = [
        (p.mean, law.mean()),
        (p.variance, law.var()),
        (p.std, law.std()),
        (p.median, law.median()),
        (p.quantile([0.2, 0.7]), [law.ppf(0.2), law.ppf(0.7)]),
        (p.interval(0.8), law.interval(0.8)),
        (p.cdf(y), law.cdf(y)),
        (p.log_prob(y), law.logpdf(y)),
        (p.covariance.reshape(5, 5, outputs), np.einsum("ik,jk->ijk", mean, mean) * np.expm1(joint)),
        (p.sample(3, seed=1), np.exp(d.sample(3, seed=1))),
        (p.observed().std, d.observed().exp().std),
    ]
    for found, expected in pairs:
        assert_allclose(found, expected, rtol=1e-8)
    assert not p.cdf(-1.0).any()
    assert (p.log_prob(-y) == -np.inf).all()
    if outputs == 1 and observed:  # scores are in units of the target
        assert metrics.nlpd(y, p) == pytest.approx(-law.logpdf(y).mean(), rel=1e-10)
        assert metrics.rmse(y, p) == pytest.approx(np.sqrt(((y - law.mean()) ** 2).mean()), rel=1e-10)
        assert_allclose(metrics.standardized_residuals(y, p), (np.log(y) - d.mean) / d.std, rtol=1e-9)
        assert metrics.crps(y, p) == pytest.approx(crps_of(law.cdf, y, 0 * y, 100 * y), rel=1e-4)
        assert metrics.kl_divergence(p, d.linear(np.eye(5)).exp()) == pytest.approx(0, abs=1e-9)


def crps_of(cdf, y, low, high):
    """Return the mean score of observations (n,) by its definition, given a function of the law of each, (n,)."""
    total, places = 0.0, np.linspace(0, 1, 301)
    for end, reached in ((low, 0.0), (high, 1.0)):
        squares = np.array([(cdf(y + place**2 * (end - y)) - reached) ** 2 for place in places])
        total += (integrate.simpson(squares * 2 * places[:, None], x=places, axis=0) * np.abs(end - y)).mean()
    return total


def test_tensors_stay_tensors_of_their_dtype():
    inputs = torch.linspace(0, 1, 12)[:, None]
    p = MODELS["features"]().condition(inputs, inputs[:, 0] ** 2).predict(inputs[:3])
    answers = (p.std, p.quantile(0.3), p.interval()[0], p.cdf(0.1), p.linear([1, 0, -1]).mean, p.exp().std)
    assert {answer.dtype for answer in (*answers, p.exp().sample(2), p.exp().quantile(0.2))} == {torch.float32}


def test_results_are_differentiable_in_the_inputs():
    """Also after results without gradients were computed."""
    inputs = torch.linspace(0, 1, 12).double()[:, None]
    gp = MODELS["features"]().condition(inputs, inputs[:, 0] ** 2)
    new = torch.tensor([[0.3], [0.8]]).double().requires_grad_()

    def answers(x):
        p = gp.predict(x)
        with torch.no_grad():
            assert p.mean.shape == p.std.shape == p.covariance[0].shape
        return p.std, p.quantile([0.1, 0.8]), p.cdf(0.2), p.linear([1, -1]).cdf(0.1), p.covariance, p.exp().std

    assert torch.autograd.gradcheck(answers, (new,))


@pytest.mark.parametrize("likelihood", ["poisson", "categorical", "heteroscedastic", "student-t"])
def test_observations_are_differentiable_where_moments_are_smooth(likelihood):
    gp = rfgp.GP(k.RBF(), likelihood, seed=0).condition(X, np.arange(20.0) % 3)
    new = torch.tensor(NEW, requires_grad=True)
    gp.predict(NEW).observed().mean  # noqa: B018
    read = (lambda p: p.mean) if likelihood == "categorical" else (lambda p: p.observed().variance)
    (slope,) = torch.autograd.grad(read(gp.predict(new)).sum(), new)
    step = 1e-5 * np.eye(2)[0]
    ends = [read(gp.predict(NEW + sign * step)) for sign in (1, -1)]
    assert_allclose(slope[:, 0], (ends[0] - ends[1]).reshape(5, -1).sum(1) / 2e-5, rtol=1e-4, atol=1e-6)


def test_certain_values_have_a_step_as_distribution():
    p = predicted().linear(np.zeros(5))
    np.testing.assert_array_equal([p.cdf(-1e-9)[0], p.cdf(0.0)[0], p.cdf(1e-9)[0]], [0, 1, 1])
    np.testing.assert_array_equal(p.interval(), np.zeros((2, 1)))
    draws = predicted().linear(np.ones((3, 5))).observed().sample(4, seed=1)
    assert abs(draws[:, :1] - draws).max() < 1e-5  # the noise of functionals may be singular


PREDICTIONS = {
    "latent": lambda: predicted(),
    "functionals": lambda: predicted().linear([[1.0] * 5]),
    "log-normal": lambda: predicted().exp(),
    "counts": lambda: rfgp.GP(k.RBF(), "poisson").condition(X, np.arange(20.0)).predict(NEW).observed(),
    "classes": lambda: rfgp.GP(k.RBF(), "categorical").condition(X, np.arange(20) % 3).predict(NEW).observed(),
    "noise process": lambda: rfgp.GP(k.RBF(), "heteroscedastic").condition(X, TARGETS[:, 0]).predict(NEW).observed(),
    "average": lambda: averaged().predict(NEW).observed(),
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_are_pickled_and_keep_their_results(name):
    p = PREDICTIONS[name]()
    mean = p.mean.copy()
    p.mean[...] = -1  # the caller changes a result
    np.testing.assert_array_equal(p.mean, mean)
    copied = pickle.loads(pickle.dumps(p))
    np.testing.assert_array_equal(copied.variance, p.variance)
    np.testing.assert_array_equal(copied.sample(2, seed=0), p.sample(2, seed=0))


@pytest.mark.slow
def test_many_points_are_predicted_in_chunks():
    gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(128), memory=1e8, seed=0).condition(X, TARGETS[:, 0])
    points = RNG(3).standard_normal((20_000, 2))
    many, few = gp.predict(points), gp.predict(points[-10:])
    source = gp.predict(rfgp.tables.Batches([points[:7000], points[7000:]]))
    for one in (many, source):
        assert_allclose(one.std[-10:], few.std, rtol=1e-9)
        assert_allclose(one.mean[-10:], few.mean, rtol=1e-9)
    assert_allclose(many.observed().mean[-10:], few.mean, rtol=1e-9)
    assert many.sample(2, seed=0).shape == (2, 20_000)  # by weights
    refused(lambda: many.covariance, graphs.MemoryBudgetError, "MiB")


# --- terms ---------------------------------------------------------------------------------------------

TABLE = {"t": RNG(4).uniform(0, 6, 40), "u": RNG(5).uniform(0, 1, 40), "g": RNG(6).choice(list("ab"), 40)}
POINTS = {"t": np.array([1.0, 9.0, 9.5]), "u": np.array([0.2, 0.4, 0.9]), "g": np.array(["a", "new", "new"])}
VALUES = np.sin(TABLE["t"]) + TABLE["u"] + (TABLE["g"] == "a") + 0.1 * RNG(7).normal(size=40)
KERNEL = k.RBF("t", lengthscale=1.0, name="f") + k.Linear("u", origin=0.0, name="h") + k.Group("g", name="g")
START = {"f.outputscale": 0.8, "h.variance": 0.5, "g.outputscale": 0.6, "mean": 0.4, "noise": 0.02}


def of_terms(**options):
    return rfgp.GP(KERNEL, start=START, seed=0, **options).condition(TABLE, VALUES)


def test_parts_of_a_prediction_agree():
    """Terms are compared with dense algebra in `test_posterior.py`."""
    p, less = of_terms(standardize=False).predict(POINTS), np.eye(3) - 1 / 3
    assert list(p.terms) == list("fhg")
    assert "tide" not in p.terms
    own, other = p.of("f", "g"), p.without("h")
    assert_allclose(other.mean, own.mean)
    assert_allclose(other.covariance, own.covariance, atol=1e-12)
    assert_allclose(p.cross_covariance(["f", "g"], ["f", "g"]), own.covariance, atol=1e-12)
    assert_allclose(p.without("f").of("g").covariance, p.of("g").covariance)  # of new levels too
    assert_allclose(own.cross_covariance("g", "g"), p.of("g").covariance)
    assert_allclose(own.observed().variance, own.variance + 0.02, atol=1e-8)
    assert_allclose(own.observed().centered().covariance, less @ own.observed().covariance @ less, atol=1e-8)
    assert_allclose(own.centered().mean, less @ own.mean, atol=1e-8)
    assert_allclose(own.centered().covariance, less @ own.covariance @ less, atol=1e-8)
    assert_allclose(p.of("f", "h", "g").mean + 0.4, p.mean)
    draws = p.sample(4000, seed=0) - p.mean  # one point has a new level
    assert_mean(draws[:, :, None] * draws[:, None], p.covariance)


# --- averages of models --------------------------------------------------------------------------------

FOUND = []


def averaged():
    """Return a copy of a selected model of few rows, which is an average of four."""
    if not FOUND:
        FOUND.append(rfgp.GP(seed=0).fit(X, TARGETS[:, 0]))
    return copy.deepcopy(FOUND[0])


def mixed(gp, read):
    return sum(share * read(member) for share, member in gp.members)


def assert_mixture(gp, new=NEW):
    """An average predicts the mixture of its members, latent and observed."""
    for observed in (False, True):
        p, *each = (one.predict(new) for one in (gp, *(member for _, member in gp.members)))
        p, *each = (one.observed() for one in (p, *each)) if observed else (p, *each)
        shares = np.array([share for share, _ in gp.members])
        mean = shares @ [one.mean for one in each]
        joint = sum(
            share * (one.covariance + np.outer(one.mean - mean, one.mean - mean))
            for share, one in zip(shares, each, strict=True)
        )
        assert_allclose(p.mean, mean, rtol=1e-9)
        assert_allclose(p.covariance, joint, rtol=1e-7, atol=1e-10)
        assert_allclose(p.variance, np.diag(joint), rtol=1e-7)
        for y in (p.mean + 3 * p.std, p.mean - 0.5 * p.std):
            density = shares @ np.exp([one.log_prob(y) for one in each])
            assert_allclose(np.exp(p.log_prob(y)), density, rtol=1e-7)
            assert_allclose(p.cdf(y), shares @ [one.cdf(y) for one in each], rtol=1e-9)


def test_averages_are_mixtures_of_their_members():
    gp = averaged()
    assert len(gp.members) > 1
    assert f"averaged with {len(gp.members) - 1} other" in repr(gp)
    assert_mixture(gp)
    p, levels = gp.predict(NEW).observed(), [0.01, 0.5, 0.9]
    for level, quantile in zip(levels, p.quantile(levels), strict=True):
        assert_allclose(p.cdf(quantile), level, rtol=1e-8)
    assert_allclose(p.interval(0.98)[0], p.quantile(0.01), rtol=1e-12)
    assert_allclose(p.exp().mean, np.exp(p.mean + p.variance / 2), rtol=1e-9)
    weights = np.stack([np.eye(5)[0] - np.eye(5)[1], np.ones(5)])
    sums = gp.predict(NEW).linear(weights).observed()
    y = sums.mean + sums.std
    density = mixed(gp, lambda one: np.exp(one.predict(NEW).observed().linear(weights).log_prob(y)))
    assert_allclose(np.exp(sums.log_prob(y)), density, rtol=1e-8)
    assert_allclose(sums.covariance, weights @ p.covariance @ weights.T, rtol=1e-8)
    expected = mixed(gp, lambda one: one.prior_covariance(NEW).detach())
    torch.testing.assert_close(gp.prior_covariance(NEW).detach(), expected)


def test_draws_scores_and_left_out_rows_are_those_of_the_mixture():
    gp = averaged()
    found, mean = gp.leave_one_out(), mixed(gp, lambda one: one.leave_one_out().mean)
    assert_allclose(found.mean, mean, rtol=1e-9)
    second = mixed(gp, lambda one: one.leave_one_out().variance + one.leave_one_out().mean ** 2)
    assert_allclose(found.variance, second - mean**2, rtol=1e-7)
    p, y = gp.predict(NEW).observed(), gp.predict(NEW).mean + 0.3
    draws = p.sample(20_000, seed=0)
    for level in (0.02, 0.7):
        assert_mean(draws <= p.quantile(level), level)
    assert_mean((draws[:, :1] - p.mean[0]) * (draws - p.mean), p.covariance[0])
    assert metrics.nlpd(y, gp.predict(NEW)) == pytest.approx(-p.log_prob(y).mean())
    assert metrics.crps(y, gp.predict(NEW)) == pytest.approx(
        crps_of(p.cdf, y, p.mean - 12 * p.std, p.mean + 12 * p.std), rel=1e-4
    )
    assert_allclose(metrics.standardized_residuals(y, p), stats.norm.ppf(p.cdf(y)), rtol=1e-7)
    x = torch.tensor(NEW, requires_grad=True)

    def value(x):
        q = gp.predict(x)
        return q.mean.sum() + q.variance.sum() + q.quantile(0.3).sum()

    (slope,), step = torch.autograd.grad(value(x), x), torch.zeros(5, 2).double()
    step[1, 0] = 1e-5
    with torch.no_grad():
        assert float(slope[1, 0]) == pytest.approx(float(value(x + step) - value(x - step)) / 2e-5, rel=1e-4)


def test_new_rows_and_hyperparameters_reach_the_members():
    gp = averaged()
    gp.update(NEW[:2], [4.0, 5.0])
    assert all(member.num_observations == 22 for _, member in gp.members)
    assert_mixture(gp)
    gp.condition(X[:15], TARGETS[:15, 0]).hyperparameters.noise = 0.7
    assert gp.members[0][1].hyperparameters.noise.item() == pytest.approx(0.7)
    assert_mixture(gp)
    exact = gp.exact()
    assert [share for share, _ in exact.members] == [share for share, _ in gp.members]
    assert_allclose(exact.predict(NEW).variance, gp.predict(NEW).variance, rtol=1e-6)
    alone, largest = (one.with_approximation(rfgp.InducingPoints(10)) for one in (gp, gp.members[0][1]))
    assert alone.members == ()
    assert_allclose(alone.predict(NEW).mean, largest.predict(NEW).mean, rtol=1e-10)


# --- scales of residuals that depend on the inputs ------------------------------------------------------


def uneven(n=160, seed=0):
    """Return rows whose noise has heavy tails and grows with the first column."""
    rng = RNG(seed)
    rows = rng.uniform(-2, 2, (n, 2))
    return rows, 5 + 3 * (np.sin(2 * rows[:, 0]) + 0.2 * np.exp(0.8 * rows[:, 0]) * rng.standard_t(3, n))


@pytest.fixture(scope="module")
def scaled():
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(*uneven())
    assert gp.selection.noise.best > 0
    return gp


PLACES = np.array([[-1.5, 0.3], [0.2, -1.0], [1.8, 1.1]])


def test_scaled_observations_are_one_distribution(scaled):
    latent = scaled.predict(PLACES)
    p = latent.observed()
    for point in range(3):
        ends = [float(p.quantile(level)[point]) for level in (0.2, 0.9)]
        density = lambda y, point=point: math.exp(float(p.log_prob(np.full(3, y))[point]))  # noqa: E731
        assert integrate.quad(density, *ends, epsabs=1e-10)[0] == pytest.approx(0.7, abs=1e-8)
    assert p.std[2] > 1.5 * p.std[0]
    draws, drawn = p.sample(20_000, seed=1), latent.sample(20_000, seed=2) - latent.mean
    assert_mean(draws <= p.quantile(0.7), 0.7)
    assert_mean(draws[:, 0], p.mean[0])
    assert_mean(drawn[:, 0] * drawn[:, 1], latent.covariance[0, 1])
    assert_allclose(latent.covariance.diagonal(), latent.variance, rtol=1e-10)
    wide = scaled.predict(RNG(3).uniform(-4, 4, (50, 2)))
    (low, high), (below, above) = wide.interval(0.9), wide.observed().interval(0.9)
    assert (below <= low + 1e-9).all()
    assert (high <= above + 1e-9).all()


def test_functions_of_scaled_observations_agree(scaled):
    p, weights = scaled.predict(PLACES), np.array([1.0, -2.0, 0.5])
    joint, observed = p.observed().covariance, p.observed().linear(weights)
    assert_allclose(joint.diagonal(), p.observed().variance, rtol=1e-10)
    assert observed.variance[0] == pytest.approx(weights @ joint @ weights, rel=1e-9)
    assert p.linear(weights).observed().variance[0] == pytest.approx(observed.variance[0], rel=1e-9)
    exponential, y = p.observed().exp(), np.array([40.0, 90.0, 3000.0])
    assert_allclose(np.log(exponential.quantile([0.1, 0.8])), p.observed().quantile([0.1, 0.8]))
    assert_allclose(exponential.log_prob(y), p.observed().log_prob(np.log(y)) - np.log(y))
    assert metrics.nlpd(y, exponential) == pytest.approx(-exponential.log_prob(y).mean(), rel=1e-9)
    assert_allclose(p.mean, p.unscaled.mean, rtol=1e-12)
    assert metrics.kl_divergence(p, p.unscaled) == 0
    x = torch.tensor(PLACES, requires_grad=True)
    for read in (lambda p: p.observed().variance, lambda p: p.std, lambda p: p.observed().quantile(0.8)):
        (slope,) = torch.autograd.grad(read(scaled.predict(x)).sum(), x)
        ends = [read(scaled.predict(PLACES + sign * np.array([1e-5, 0.0]))) for sign in (1, -1)]
        assert_allclose(slope[:, 0], (ends[0] - ends[1]) / 2e-5, rtol=1e-4)


def test_scales_are_saved_calibrated_and_left_out(scaled, tmp_path):
    scaled.save(tmp_path / "model", data=True)
    one, (rows, y) = rfgp.load(tmp_path / "model"), uneven()
    for read in (lambda gp: gp.predict(PLACES).observed().quantile([0.1, 0.9]), lambda gp: gp.leave_one_out().log_prob):
        assert_allclose(read(one), read(scaled), rtol=1e-9)
    updated = one.update(rows[:4] + 0.01, y[:4] + 3.0).predict(PLACES).observed().quantile(0.9)
    assert np.abs(updated / scaled.predict(PLACES).observed().quantile(0.9) - 1).max() > 1e-3
    fitted = sum(scaled.hyperparameters[name].numel() for name in scaled.hyperparameters) / len(y)
    excess = scaled.leave_one_out().log_prob.mean() - scaled.selection.noise.chosen.last.value
    assert fitted < excess < 3 * fitted  # two nats for each number that was fitted to these rows
    low, high = calibrated(scaled.predict(PLACES).observed(), 0.9)
    assert (high - low)[2] > 1.5 * (high - low)[0]
    new, observed = uneven(1000, seed=5)
    low, high = calibrated(scaled.predict(new).observed(), 0.9)
    assert np.mean((low <= observed) & (observed <= high)) > 0.8  # the guarantee
    assert_allclose(scaled.calibration([0.5, 0.9]).coverage, [0.5, 0.9], atol=0.1)


# --- calibrated intervals and coverage ------------------------------------------------------------------

ROWS, Y = (
    RNG(0).uniform(0, 10, (20, 2)),
    np.sin(RNG(0).uniform(0, 10, (20, 2))[:, 0]) + 0.3 * RNG(2).standard_normal(20),
)
LEVELS = np.linspace(0.05, 0.95, 19)


def on_rows(approximation, kernel=None, y=Y):
    gp = rfgp.GP(kernel or k.RBF(), approximation=approximation, seed=0, start={"noise": 0.05})
    return gp.condition(ROWS, y), ROWS, y, ROWS[:3] + 0.3


CALIBRATED = {
    "exact": lambda: on_rows(rfgp.Exact()),
    "features": lambda: on_rows(rfgp.RandomFeatures(4)),
    "inducing points": lambda: on_rows(rfgp.InducingPoints(10)),
    "filter": lambda: on_rows(rfgp.SparsePrecision(), k.Matern(0, nu=1.5)),
    "two outputs": lambda: on_rows(rfgp.Exact(), y=np.stack([Y, Y**2 + ROWS[:, 1]], 1)),
    "average": lambda: (averaged(), X, TARGETS[:, 0], NEW),
}


@pytest.mark.parametrize("case", CALIBRATED)
def test_calibrated_intervals_and_coverage_equal_refits(case):
    """Order statistics of left-out predictions, as Barber et al. (2021) define them."""
    gp, rows, y, new = CALIBRATED[case]()
    n, means, deviations, scores, reached = len(y), [], [], [], []
    for i in range(n):
        keep, other = np.arange(n) != i, copy.deepcopy(gp)
        other.condition(rows[keep], y[keep])
        own, at = (other.predict(part).observed() for part in (rows[[i]], new))
        scores.append(np.abs(y[[i]] - own.mean) / own.std)
        means.append(at.mean)
        deviations.append(at.std)
        reached.append(np.abs(2 * own.cdf(y[[i]]) - 1))
    means, deviations, scores = map(np.array, (means, deviations, scores))
    observed = gp.predict(new).observed()
    for level in (0.3, 0.8, 0.9):
        low, high = np.sort(means - scores * deviations, 0), np.sort(means + scores * deviations, 0)
        ends = low[math.floor((1 - level) * (n + 1) + 1e-9) - 1], high[math.ceil(level * (n + 1) - 1e-9) - 1]
        found = observed.interval(level, calibrated=True)
        assert_allclose(found, np.sort(ends, 0), rtol=1e-7, atol=1e-7)
    calibration = gp.calibration(LEVELS)
    assert (calibration.num_rows, calibration.rows) == (n, "left out one at a time")
    shares = (np.reshape(reached, (-1, 1)) <= LEVELS).mean(0)
    assert_allclose(calibration.coverage, shares, atol=1e-12)
    assert_allclose(calibration.standard_error**2, LEVELS * (1 - LEVELS) / n)


def test_many_rows_are_split():
    rows, new = RNG(3).uniform(0, 10, (2001, 1)), np.linspace(0, 12, 7)[:, None]
    y = np.sin(rows) * [1, 2] + 0.3 * RNG(4).standard_normal((2001, 2))
    gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(8), start={"noise": 0.1}, seed=0).condition(rows, y)
    order = torch.randperm(2001, generator=random.generator(0, random.Role.CALIBRATION)).numpy()
    rest = copy.deepcopy(gp).condition(rows[order[400:]], y[order[400:]])
    held_out, at = (rest.predict(places).observed() for places in (rows[order[:400]], new))
    scores = np.sort(np.abs(y[order[:400]] - held_out.mean) / held_out.std, 0)
    half = scores[math.ceil(0.95 * 401) - 1] * at.std
    found = calibrated(gp.predict(new).observed(), 0.95)
    assert_allclose(found, (at.mean - half, at.mean + half), rtol=1e-8, atol=1e-8)
    calibration = gp.calibration([0.5, 0.95])
    assert (calibration.num_rows, calibration.rows) == (400, "held out")
    expected = [(scores <= half).mean() for half in stats.norm.ppf([0.75, 0.975])]
    assert_allclose(calibration.coverage, expected, atol=1e-12)


def test_coverage_has_weights_noise_and_counts(tmp_path):
    noise, weight = np.linspace(0.01, 0.5, 20), np.arange(20) % 3 + 1.0
    gp = rfgp.ExactGP(noise=0.1).condition(ROWS, Y, noise=noise, sample_weight=weight)
    left_out = gp.leave_one_out()
    z = np.abs(Y - left_out.mean) / np.sqrt(left_out.variance)
    assert gp.calibration([0.5]).coverage == pytest.approx((z <= stats.norm.ppf(0.75)).mean())
    rows, units = RNG(7).uniform(0, 10, (200, 1)), RNG(8).uniform(0.5, 2, 200)
    counts = RNG(9).poisson(units * np.exp(1 + np.sin(rows[:, 0])))
    gp = rfgp.GP(k.RBF(lengthscale=1.5), "poisson", approximation=rfgp.RandomFeatures(16), seed=0)
    calibration = gp.condition(rows, counts, exposure=units).calibration()
    assert np.abs((calibration.coverage - calibration.levels) / calibration.standard_error).max() < 4
    lines = str(calibration).splitlines()
    assert lines[0] == "Coverage of central intervals for 200 rows, left out one at a time"
    assert len(lines) == 13
    gp = on_rows(rfgp.RandomFeatures(4))[0]
    gp.save(tmp_path / "without")
    loaded = rfgp.load(tmp_path / "without")
    for call in (loaded.calibration, lambda: calibrated(loaded.predict(ROWS).observed())):
        refused(call, rfgp.NotFittedError, "rows must be known")


# --- integrals over boxes --------------------------------------------------------------------------------

TIMES = np.concatenate([[0.0, 6.0], RNG(0).uniform(0, 6, 98)])[:, None]
SERIES = 3 + np.sin(TIMES[:, 0]) + 0.1 * RNG(1).normal(size=100)
LOW, HIGH = np.array([[0.5], [0.5], [2.0]]), np.array([[2.5], [0.5], [5.9]])
GIVEN = {"mean": 2.9, "noise": 0.01}
SMOOTH = 1.5 * k.RBF(0, lengthscale=0.9)
TIGHT = rfgp.EquispacedFourier(tolerance=1e-9)


def single(a, b, z, length):
    """Return the integrals (m, n) over [a, b], (m,), of the Gaussian kernel with points z (n,)."""
    upper, lower = (erf((end[:, None] - z) / (np.sqrt(2) * length)) for end in (b, a))
    return length * np.sqrt(np.pi / 2) * (upper - lower)


def double(a, b, length):
    """Return the double integrals (m, m) of the Gaussian kernel over pairs of intervals [a, b], (m,)."""

    def twice(u):
        z = u / length
        return length**2 * (np.sqrt(np.pi / 2) * z * erf(z / np.sqrt(2)) + np.exp(-(z**2) / 2))

    return twice(b[:, None] - a) + twice(a[:, None] - b) - twice(a[:, None] - a) - twice(b[:, None] - b)


@pytest.mark.parametrize("approximation", [rfgp.Exact(), TIGHT], ids=["exact", "lattice"])
@pytest.mark.parametrize("case", ["line", "plane"])
def test_integrals_match_the_closed_form(approximation, case):
    rows, y, low, high, lengths = TIMES, SERIES, LOW, HIGH, (0.9,)
    if case == "plane":
        rows, lengths = np.vstack([[[0, 0], [6, 30]], RNG(1).uniform(0, (6, 30), (80, 2))]), (0.9, 7.0)
        y = 3 + np.sin(rows[:, 0]) * np.cos(rows[:, 1] / 8)
        low, high = np.array([[1, 2], [3, 0]]), np.array([[2, 9], [3, 9]])  # one box is empty
    columns = tuple(range(len(lengths)))
    gp = rfgp.GP(1.5 * k.RBF(columns, lengthscale=lengths), approximation=approximation, start=GIVEN, seed=0)
    found = gp.condition(rows, y).integrate(low, high, columns=columns)
    K, inner, cross = 1.5, 1.5, 1.5
    for column, length in enumerate(lengths):
        x, a, b = rows[:, column], low[:, column], high[:, column]
        K = K * np.exp(-((x[:, None] - x) ** 2) / (2 * length**2))
        cross, inner = cross * single(a, b, x, length), inner * double(a, b, length)
    K = K + 0.01 * np.eye(len(rows))
    mean = 2.9 * np.prod(high - low, axis=1) + cross @ np.linalg.solve(K, y - 2.9)
    covariance = inner - cross @ np.linalg.solve(K, cross.T)
    assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-6)
    assert_allclose(found.std, np.sqrt(np.diag(covariance).clip(0)), atol=1e-6)
    assert_allclose(found.covariance, covariance, atol=2e-6)


MATERN = k.Matern(0, nu=1.5, lengthscale=2.0)
INTEGRATED = {
    "many features": (SMOOTH, rfgp.RandomFeatures(60)),
    "vfe": (SMOOTH, rfgp.InducingPoints(9, method="vfe")),
    "neighbors": (MATERN, rfgp.Vecchia(10)),
    "filter": (MATERN, rfgp.SparsePrecision()),
    "lattice": (SMOOTH, TIGHT),
    "season": (SMOOTH + k.Periodic(0, 1.5) + k.Polynomial(0), TIGHT),
    "average": ("auto", "auto"),
    "counts": (SMOOTH, rfgp.Exact()),
    "classes": (SMOOTH, rfgp.Exact()),
}


@pytest.mark.parametrize("name", INTEGRATED)
def test_integrals_are_those_of_predictions(name):
    """By Simpson's rule. Neighbors give each point its own variance, and other points other correlations."""
    kernel, approximation = INTEGRATED[name]
    likelihood = {"counts": "poisson", "classes": "categorical"}.get(name)
    gp = rfgp.GP(kernel, likelihood, approximation, seed=0)
    y = np.round(SERIES) if name == "counts" else (SERIES > 3) * 1.0 if name == "classes" else SERIES
    gp = gp.fit(TIMES[:20], y[:20]) if name == "average" else gp.condition(TIMES, y)
    low, high = (0.5, 3.5) if name == "neighbors" else (4.0, 7.5)
    found, points = gp.integrate([[low]], [[high]]), np.linspace(low, high, 401)
    weights = integrate.simpson(np.eye(401), x=points)
    expected = gp.predict(points[:, None]).linear(weights)
    assert_allclose(found.mean, expected.mean, rtol=2e-6)
    assert_allclose(found.std, expected.std, rtol=0.01 if name == "neighbors" else 1e-4)
    assert_allclose(found.quantile(0.9), expected.quantile(0.9), rtol=1e-3)
    if name == "classes":
        assert_allclose(found.cross_covariance("rbf(0)", "rbf(0)"), found.covariance, rtol=1e-9)


MISSING = {
    "lattice": (SMOOTH, rfgp.EquispacedFourier(tolerance=1e-2)),
    "weights": (SMOOTH, rfgp.InducingPoints(9, method="fitc")),
    "bordered": (
        SMOOTH + MATERN,
        {"rbf(0)": rfgp.InducingPoints(9, method="fitc"), "matern(0)": rfgp.SparsePrecision()},
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_independent_residuals_average_out(name):
    """The variance of the mean of N points is v + c / N, so that 2 v_2N - v_N is v."""
    kernel, approximation = MISSING[name]
    gp = rfgp.GP(kernel, approximation=approximation, start={"noise": 0.3}, seed=0).condition(TIMES, SERIES)
    found = gp.integrate([[1.0]], [[5.0]])
    few, many = (
        gp.predict((1 + 4 * (np.arange(n) + 0.5) / n)[:, None]).linear(np.full(n, 4 / n)).variance for n in (400, 800)
    )
    assert few - many > 1e-6 * many
    assert_allclose(found.variance, 2 * many - few, rtol=1e-4)
    assert_allclose(found.covariance[0], found.variance)


@pytest.mark.parametrize("columns", [3, 5, 6, 7])
@pytest.mark.parametrize("lengthscale", [0.1, 0.3, 1.5])
def test_integrals_over_many_columns_are_exact_or_refused(columns, lengthscale):
    """Rules of 16 and 64 nodes are the same rule in five columns, so that their difference is no error."""
    rng, root = np.random.default_rng(0), np.sqrt(2)
    X, L = rng.random((60, columns)), lengthscale
    y = np.sin(3 * X[:, 0])
    start = {"rbf.lengthscale": L, "rbf.outputscale": 1.0, "noise": 0.01, "mean": 0.0}
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), start=start, seed=0).condition(X, y)
    L = float(np.ravel(gp.hyperparameters["rbf.lengthscale"].detach())[0])
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1) / L**2) + 0.01 * np.eye(60)
    cross = (np.sqrt(np.pi / 2) * L * (erf((1 - X) / (root * L)) + erf(X / (root * L)))).prod(1)
    both = np.sqrt(2 * np.pi) * L * erf(1 / (root * L)) + 2 * L**2 * np.expm1(-0.5 / L**2)
    weights = np.linalg.solve(K, cross)
    box = np.zeros((1, columns)), np.ones((1, columns))
    if lengthscale < 0.2 or (lengthscale < 1 and columns > 3):
        refused(lambda: gp.integrate(*box), rfgp.InvalidArgumentError, "few lengthscales")
        return
    p = gp.integrate(*box)
    assert p.mean[0] == pytest.approx(weights @ y, abs=2e-3)
    assert p.std[0] == pytest.approx(np.sqrt(both**columns - weights @ cross), rel=0.02)


def test_terms_and_columns_of_integrals():
    gp = of_terms()
    low, high = ({"t": [a, a], "u": [0.2, 0.4], "g": ["a", "new"]} for a in (1.0, 4.0))
    found = gp.integrate(low, high)
    assert_allclose(sum(found.terms[name].mean for name in found.terms) + 3 * 0.4, found.mean)
    parts = found.cross_covariance("f", list(found.terms)), found.without("f").covariance
    total = parts[0] + parts[0].T - found.terms["f"].covariance + parts[1]
    assert_allclose(total, found.covariance, atol=1e-9)
    at_point, alone = gp.predict(low).terms["g"], found.terms["g"]  # the effect is the same along the interval
    assert_allclose(alone.mean, 3 * at_point.mean, atol=1e-9)
    assert_allclose(alone.covariance, 9 * at_point.covariance, atol=1e-9)
    assert_allclose(found.centered().mean, found.mean - found.mean.mean())
    draws = found.sample(4000, seed=0) - found.mean
    assert_mean(draws[:, :1] * draws, found.covariance[0])
    assert_allclose(gp.integrate(low, high, columns=("t", "u")).mean, 0.0)
    assert_allclose(gp.integrate(low, low, columns="t").std, 0.0)


def test_integrals_of_outputs_tensors_and_many_boxes():
    outputs = np.column_stack([SERIES, 2 * SERIES])
    one, two = (rfgp.GP(SMOOTH, start={"noise": 0.01}, seed=0).condition(TIMES, y) for y in (SERIES, outputs))
    for values in (two.integrate(LOW, HIGH).mean, two.integrate(LOW, HIGH).std):
        assert_allclose(values[:, 1], 2 * values[:, 0], rtol=1e-6)
    end = torch.tensor([[2.5]]).double().requires_grad_()
    one.integrate(torch.tensor([[0.5]]).double(), end).mean.sum().backward()
    assert_allclose(end.grad, one.predict([[2.5]]).mean[:, None], rtol=1e-6)
    many = one.integrate(np.zeros((2000, 1)), np.ones((2000, 1)))
    refused(lambda: many.covariance, rfgp.InvalidArgumentError, "nodes")


# --- scores and divergences ------------------------------------------------------------------------------


@dataclass
class Law:
    """A prediction with given moments, noise included."""

    mu: np.ndarray
    sigma: np.ndarray

    def observed(self):
        return self

    def mean_tensor(self):
        return torch.as_tensor(self.mu)

    def variance_tensor(self):
        return torch.as_tensor(np.diag(self.sigma).copy())

    def covariance_tensor(self):
        return torch.as_tensor(self.sigma)


def random_law(n, seed):
    root = RNG(seed).standard_normal((n, n))
    return Law(RNG(seed + 10).standard_normal(n), root @ root.T + np.eye(n))


def divergence_of(*moments):
    """Return the divergence of two normal distributions by PyTorch, given means and covariances."""
    return torch.distributions.kl_divergence(
        *(torch.distributions.MultivariateNormal(*map(torch.as_tensor, pair)) for pair in moments)
    ).item()


def test_divergence_is_that_of_normal_distributions():
    p, q = random_law(6, 0), random_law(6, 1)
    expected = divergence_of((p.mu, p.sigma), (q.mu, q.sigma))
    assert metrics.kl_divergence(p, q) == pytest.approx(expected, rel=1e-10)
    assert metrics.kl_divergence(p, q, per_point=True) == pytest.approx(expected / 6, rel=1e-10)
    assert metrics.kl_divergence(p, p) == pytest.approx(0, abs=1e-12)


def test_scores_follow_their_definitions():
    p, y = random_law(5, 2), np.array([0.1, 2.5, -3.0, 40.0, 0.0])
    law = stats.norm(p.mu, np.sqrt(np.diag(p.sigma)))
    assert metrics.nlpd(y, p) == pytest.approx(-law.logpdf(y).mean())
    assert metrics.crps(y, p) == pytest.approx(crps_of(law.cdf, y, p.mu - 60, p.mu + 60), rel=1e-4)
    assert metrics.crps(p.mu, Law(p.mu, 1e-12 * np.eye(5))) == pytest.approx(0, abs=1e-5)
    assert metrics.rmse(p.mu + 2, p) == pytest.approx(2)
    assert metrics.rmse([0.0, 0.0], torch.tensor([3.0, 4.0])) == pytest.approx(12.5**0.5)
    z = (y - p.mu) / law.std()
    assert_allclose(metrics.standardized_residuals(y, p), z)
    shares = [(np.abs(z) <= stats.norm.ppf(0.5 + level / 2)).mean() for level in (0.2, 0.9)]
    assert_allclose(metrics.interval_coverage(y, p, [0.2, 0.9]), shares)
    assert metrics.relative_frobenius_error(1.1 * np.ones((3, 2)), np.ones((3, 2))) == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["poisson", "bernoulli"])
def test_scores_of_counts_and_labels_are_of_observations(name):
    y = RNG(3).poisson(np.exp(X[:, 0])).astype(float) if name == "poisson" else (X[:, 0] > 0) * 1.0
    gp = rfgp.GP(k.RBF(), name, start={"lengthscale": 1.0, "outputscale": 1.0}, seed=0).condition(X, y)
    p, observed = gp.predict(X), gp.predict(X).observed()
    assert metrics.nlpd(y, p) == pytest.approx(-observed.log_prob(y).mean())
    assert metrics.rmse(y, p) == pytest.approx(np.sqrt(np.mean((observed.mean - y) ** 2)))
    places = np.arange(200.0)[:, None]
    cdf = np.array([observed.cdf(np.full(20, place[0])) for place in places])
    assert metrics.crps(y, p) == pytest.approx(((cdf - (places >= y)) ** 2).sum(0).mean(), rel=0.05)
    z = metrics.standardized_residuals(y, p).numpy()
    assert (stats.norm.cdf(z) <= observed.cdf(y) + 1e-9).all()
    assert (stats.norm.cdf(z) >= observed.cdf(y - 1) - 1e-9).all()
    few = gp.with_approximation(rfgp.RandomFeatures(5, seed=1)).predict(NEW)
    exact = gp.exact().predict(NEW)
    mean = np.exp(exact.mean)  # Fisher's information at the mean of the first
    information = mean if name == "poisson" else mean / (1 + mean) ** 2
    expected = divergence_of(*((q.mean, q.covariance + np.diag(1 / information)) for q in (exact, few)))
    assert metrics.kl_divergence(exact, few) == pytest.approx(expected, rel=1e-6)


def on_network(lengthscale=300.0, points=50):
    """Return predictions of a field on roads, whose covariance is a product with a sparse inverse."""
    roads = rfgp.datasets.make_roads(seed=0)
    rows = np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1)
    gp = rfgp.RoadGP(graphs.RoadNetwork.from_roads(roads), lengthscale=lengthscale, seed=0)
    return gp.condition(rows, roads.values).predict(rows[:points])


def test_estimated_divergences_agree_in_both_directions():
    """|t| < 7 with 255 degrees of freedom: a false-alarm rate below 1e-10 for each of the two."""
    p, q = on_network(), on_network(600.0)
    for a, b in ((p, q), (q, p)):
        estimate = metrics.estimate_kl(a, b, num_probes=256)
        assert abs(estimate.value - metrics.kl_divergence(a, b)) < 7 * estimate.error
    total, each = (metrics.estimate_kl(p, q, num_probes=4, seed=1, per_point=share) for share in (False, True))
    assert (each.value, each.error) == pytest.approx((total.value / 50, total.error / 50), rel=1e-12)
    assert abs(metrics.estimate_kl(p, p, num_probes=8).value) < 1e-9


# --- refusals --------------------------------------------------------------------------------------------


INVALID = rfgp.InvalidArgumentError


def observed(**options):
    return rfgp.ExactGP(noise=0.1).condition(ROWS, Y, **options).predict(NEW).observed()


def parts():
    return of_terms().predict(POINTS)


def other(likelihood="poisson"):
    return rfgp.GP(k.RBF(), likelihood).condition(X, np.arange(20) % 3).predict(NEW)


def calibrated(prediction, level=0.5):
    return prediction.interval(level, calibrated=True)


def validated(validate):
    t = np.arange(40.0)
    rows = {"t": t, "site": t // 5} if validate == "site" else {"t": t}
    return rfgp.GP(validate=validate, seed=0).fit(rows, np.sin(t / 3)).predict(rows).observed()


def box(low, high, columns=None):
    fill = [{"u": np.zeros(len(one["t"])), "g": ["a"] * len(one["t"]), **one} for one in (low, high)]
    return of_terms().integrate(*fill, columns=columns)


WRONG = [
    (lambda: predicted().sample(1, seed=0, generator=torch.Generator()), INVALID, "seed and generator"),
    (lambda: predicted().sample(-1), INVALID, "num_samples"),
    (lambda: predicted().quantile(1.0), INVALID, "strictly between"),
    (lambda: predicted().interval([0.5, 0.9]), INVALID, "one number"),
    (lambda: predicted().cdf(np.zeros(3)), INVALID, "shape"),
    (lambda: predicted().exp().cdf(["a"]), INVALID, "numbers"),
    (lambda: predicted().linear([1.0, -1.0]), INVALID, "n = 5"),
    (lambda: parts().of("f", "tide"), INVALID, "tide"),
    (lambda: parts().without("f", "h", "g"), INVALID, "none"),
    (lambda: parts().without(), INVALID, "none"),
    (lambda: parts().exp().centered(), INVALID, "closed form"),
    (lambda: parts().cross_covariance("f", "tide"), INVALID, "tide"),
    (lambda: parts().linear([1, 1, 1]).terms["f"], INVALID, "not divided"),
    (lambda: averaged().predict(NEW).terms, INVALID, "average"),
    (lambda: averaged().predict(NEW).of("rbf"), INVALID, "average"),
    (lambda: averaged().predict(NEW).without("rbf"), INVALID, "average"),
    (lambda: averaged().sample_functions(2, seed=0), INVALID, "average"),
    (lambda: averaged().predict(NEW).observed(exposure=2.0), INVALID, "exposure"),
    (lambda: calibrated(predicted("exact")), INVALID, "latent"),
    (lambda: calibrated(parts().centered().observed()), INVALID, "all terms"),
    (lambda: calibrated(observed().exp()), INVALID, "LogNormal"),
    (lambda: calibrated(observed(noise=np.ones(20))), INVALID, "exchangeable"),
    (lambda: calibrated(observed(), 0.96), INVALID, "24 left-out rows, got 20"),
    (lambda: calibrated(other("student-t").observed()), INVALID, "Gaussian likelihood"),
    (lambda: metrics.interval_coverage(np.ones(5), predicted(), [1.0]), INVALID, "strictly between"),
    (lambda: metrics.relative_frobenius_error(np.ones((2, 2)), np.ones((2, 3))), INVALID, "one shape"),
    (lambda: metrics.standardized_residuals(np.ones(5), other("categorical").observed()), INVALID, "labels"),
    (lambda: box({"t": [0.0, 1.0]}, {"t": [1.0, 2.0, 3.0]}), rfgp.DataError, "one shape"),
    (lambda: metrics.kl_divergence(random_law(3, 0), random_law(4, 0)), INVALID, "same points"),
    (lambda: metrics.kl_divergence(*[predicted(outputs=2)] * 2), INVALID, "one output"),
    (lambda: metrics.kl_divergence(predicted(), other()), INVALID, "same likelihood"),
    (lambda: metrics.nlpd([1.0], random_law(3, 0)), INVALID, "y must have"),
    (lambda: metrics.nlpd(-np.ones(5), predicted().exp()), INVALID, "positive"),
    (lambda: metrics.crps(np.ones(5), other("categorical").observed()), INVALID, "labels"),
    (lambda: metrics.estimate_kl(*[predicted("exact")] * 2), INVALID, "kl_divergence"),
    (lambda: metrics.estimate_kl(*[on_network()] * 2, num_probes=1), INVALID, "num_probes"),
    (lambda: metrics.estimate_kl(on_network(), on_network(points=4)), INVALID, "points"),
    (lambda: box({"t": [2.0]}, {"t": [1.0]}), INVALID, "low must be"),
    (lambda: box({"t": [0.0]}, {"t": [np.inf]}), rfgp.DataError, "'t'"),
    (lambda: box({"t": [0.0]}, {"t": [1.0]}, "g"), INVALID, "column"),
    (lambda: box({"t": [0.0]}, {"t": [1.0]}, "u"), rfgp.DataError, "agree"),
    (lambda: box({"t": [0.0]}, {"t": [0.0]}), INVALID, "columns="),
    (lambda: of_terms().integrate(POINTS, POINTS, columns="t").observed(), INVALID, "observations"),
    pytest.param(lambda: box({"t": [0.0]}, {"t": [1e5]}), INVALID, "lengthscales", marks=pytest.mark.slow),
    pytest.param(lambda: calibrated(validated("forward")), INVALID, "last rows", marks=pytest.mark.slow),
    pytest.param(lambda: calibrated(validated("site")), INVALID, "groups of site", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("call", "error", "word"), WRONG)
def test_what_cannot_be_is_refused(call, error, word):
    refused(call, error, word)


def test_forgotten_rows_do_not_calibrate():
    gp = on_rows(rfgp.EquispacedFourier(), k.RBF(0))[0].forget(ROWS[:2], Y[:2])
    refused(lambda: calibrated(gp.predict(NEW).observed()), rfgp.NotFittedError, "after forget")
