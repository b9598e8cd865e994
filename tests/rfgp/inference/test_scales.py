"""Predictions whose scale depends on the inputs: densities, moments, draws, files and updates."""

import math

import numpy as np
import pytest
import torch
from checks import assert_mean
from scipy import integrate

import rfgp
from rfgp import kernels as k


def heteroscedastic_rows(n=160, seed=0, tails=None):
    """Return rows whose noise grows with the first column."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    noise = rng.standard_normal(n) if tails is None else rng.standard_t(tails, n)
    return X, 5 + 3 * (np.sin(2 * X[:, 0]) + 0.2 * np.exp(0.8 * X[:, 0]) * noise)


@pytest.fixture(scope="module", params=["one process", "average"])
def scaled(request):
    X, y = heteroscedastic_rows(tails=3)
    kernel = k.RBF() if request.param == "one process" else "auto"
    gp = rfgp.GP(kernel, "auto", seed=0).fit(X, y)
    assert gp.selection.noise.best > 0
    assert bool(gp.members) == (kernel == "auto")
    return gp, X, y


PLACES = np.array([[-1.5, 0.3], [0.2, -1.0], [1.8, 1.1]])


def test_density_cdf_and_quantile_agree(scaled):
    p = scaled[0].predict(PLACES).observed()
    for point in range(len(PLACES)):

        def density(y, point=point):
            return math.exp(float(p.log_prob(np.full(len(PLACES), y))[point]))

        low, high = float(p.quantile(0.2)[point]), float(p.quantile(0.9)[point])
        assert integrate.quad(density, low, high, epsabs=1e-10)[0] == pytest.approx(0.7, abs=1e-8)
    assert p.cdf(p.quantile(0.9)) == pytest.approx(np.full(3, 0.9), abs=1e-10)


def test_moments_and_joint_draws_agree(scaled):
    p = scaled[0].predict(PLACES)
    draws = p.observed().sample(40_000, seed=1)
    assert_mean(draws[:, 0], p.observed().mean[0])
    below = draws <= p.observed().quantile(0.7)
    for point in range(3):
        assert_mean(below[:, point].astype(float), 0.7)
    latent = p.sample(20_000, seed=2)
    assert_mean((latent[:, 0] - p.mean[0]) * (latent[:, 1] - p.mean[1]), p.covariance[0, 1])
    assert p.covariance.diagonal() == pytest.approx(p.variance, rel=1e-10)


def test_latent_bands_lie_within_those_of_observations(scaled):
    p = scaled[0].predict(np.random.default_rng(3).uniform(-4, 4, (50, 2)))
    assert (p.variance < p.observed().variance).all()
    for level in (0.9, 0.99):
        (low, high), (below, above) = p.interval(level), p.observed().interval(level)
        assert (below <= low + 1e-9).all()
        assert (high <= above + 1e-9).all()


def test_sums_have_the_moments_of_the_points(scaled):
    p = scaled[0].predict(PLACES)
    weights = [1.0, -2.0, 0.5]
    latent, observed = p.linear(weights), p.observed().linear(weights)
    covariance = p.observed().covariance
    assert covariance.diagonal() == pytest.approx(p.observed().variance, rel=1e-10)
    assert observed.variance[0] == pytest.approx(np.array(weights) @ covariance @ weights, rel=1e-9)
    assert latent.observed().variance[0] == pytest.approx(observed.variance[0], rel=1e-9)


def test_exponentials_have_the_quantiles_of_the_logarithm(scaled):
    p = scaled[0].predict(PLACES).observed()
    assert np.log(p.exp().quantile([0.1, 0.8])) == pytest.approx(p.quantile([0.1, 0.8]), rel=1e-12)
    y = np.array([40.0, 90.0, 3000.0])
    assert p.exp().log_prob(y) == pytest.approx(p.log_prob(np.log(y)) - np.log(y), rel=1e-12)
    assert rfgp.metrics.nlpd(y, p.exp()) == pytest.approx(-p.exp().log_prob(y).mean(), rel=1e-9)


def test_means_and_joint_normals_ignore_scales(scaled):
    gp = scaled[0]
    p = gp.predict(PLACES)
    assert p.mean == pytest.approx(p.unscaled.mean, rel=1e-12)
    assert rfgp.metrics.kl_divergence(p, p.unscaled) == 0
    assert type(p.observed().unscaled.observed()) is type(p.unscaled)
    if gp.members:
        return
    total = sum(term.variance for term in p.terms.values())
    assert total == pytest.approx(p.unscaled.variance, rel=1e-9)
    assert gp.predict(PLACES, derivative=0).std.shape == (3,)


def test_variances_are_differentiable_in_the_inputs(scaled):
    gp = scaled[0]
    x = torch.tensor(PLACES, requires_grad=True)
    for read in (lambda p: p.observed().variance, lambda p: p.std, lambda p: p.observed().quantile(0.8)):
        (slope,) = torch.autograd.grad(read(gp.predict(x)).sum(), x)
        step = torch.zeros(3, 2).double()
        step[1, 0] = 1e-5
        ends = [float(read(gp.predict(torch.tensor(PLACES) + sign * step))[1]) for sign in (1, -1)]
        assert float(slope[1, 0]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4)


def test_files_keep_scales(scaled, tmp_path):
    gp, X, y = scaled
    gp.save(tmp_path / "model.safetensors", data=True)
    loaded = rfgp.load(tmp_path / "model.safetensors")
    for read in (lambda m: m.predict(PLACES).observed().quantile([0.1, 0.9]), lambda m: m.leave_one_out().log_prob):
        assert read(loaded) == pytest.approx(read(gp), rel=1e-9)
    assert loaded.selection == gp.selection
    new = X[:4] + 0.01, y[:4] + 3.0
    again = rfgp.load(tmp_path / "model.safetensors")
    a, b = (m.update(*new).predict(PLACES).observed().quantile(0.9) for m in (loaded, again))
    assert a == pytest.approx(b, rel=1e-9)
    assert a != pytest.approx(gp.predict(PLACES).observed().quantile(0.9), rel=1e-3)


def test_left_out_densities_are_those_of_models_without_their_fold(scaled):
    gp = scaled[0]
    assert gp.leave_one_out().log_prob.mean() == pytest.approx(gp.selection.noise.chosen.last.value, rel=1e-4)


def test_left_out_means_are_those_without_the_row(scaled):
    gp, X, y = scaled
    if gp.members:
        return
    weights, keep = gp.state.scale_model.row_weights.numpy(), np.arange(len(y)) != 7
    assert weights.min() < 0.5 < weights.max()
    values = {name: gp.hyperparameters[name].detach() for name in gp.hyperparameters.names}
    without = rfgp.GP(k.RBF(), start=values, standardize=False)
    without.condition(X[keep], y[keep], sample_weight=weights[keep])
    left_out = gp.leave_one_out()
    assert left_out.mean[7] == pytest.approx(without.predict(X[7:8]).mean[0], rel=1e-6)
    assert left_out.variance[7] != pytest.approx(without.predict(X[7:8]).observed().variance[0], rel=0.01)


def test_calibrated_intervals_follow_scales(scaled):
    gp, _, y = scaled
    low, high = gp.predict(PLACES).observed().interval(0.9, calibrated=True)
    assert (high - low)[2] > 2 * (high - low)[0]  # the noise grows with the first column
    X_new, y_new = heteroscedastic_rows(1000, seed=5, tails=3)
    low, high = gp.predict(X_new).observed().interval(0.9, calibrated=True)
    assert np.mean((low <= y_new) & (y_new <= high)) > 0.8  # the guarantee
    coverage = gp.calibration([0.5, 0.9]).coverage
    assert coverage == pytest.approx([0.5, 0.9], abs=0.08)
    left_out = gp.leave_one_out()
    assert coverage[1] != np.mean(np.abs(y - left_out.mean) < 1.645 * np.sqrt(left_out.variance))
