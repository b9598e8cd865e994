"""Learned frequencies: their gain, the held-out rows, and when fixed frequencies are taken."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import exhausted, table

import rfgp
from rfgp.fitting import Plan, basis, frequencies, outcome
from rfgp.fitting.context import TermFit
from rfgp.fitting.frequencies import Learning, nothing_learned

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.VarianceStarvationWarning")  # most have few features, to be fast


def fit_of(n, **options):
    """Return a fit of 5 frequencies at its start."""
    X, y = table(n)
    gp = rfgp.SparseSpectrumGP(num_frequencies=5, seed=0, learn_frequencies=True, **options).condition(X, y)
    return TermFit.of(gp.state, Plan(iteration_limit=7))


def rows_of(block):
    return {tuple(row) for row in block.inputs.tolist()}


class Watched(Learning):
    """Records the batches of its steps."""

    def __init__(self, fit):
        self.batches = []
        super().__init__(fit, fit.split(), fit.values)

    def gradient(self, parameters, rows, step=None):
        self.batches.append(rows)
        return super().gradient(parameters, rows, step)


@pytest.mark.slow
def test_learning_lowers_the_error_of_few_features():
    X, y = exhausted(3000)
    with pytest.warns(rfgp.VarianceStarvationWarning):
        fixed = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(X[:2500], y[:2500])
    gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0, learn_frequencies=True).fit(X[:2500], y[:2500])
    a, b = (rfgp.metrics.rmse(y[2500:], model.predict(X[2500:])) for model in (fixed, gp))
    assert b < 0.7 * a
    assert gp.fit_report.frequencies == "learned"
    assert fixed.fit_report.frequencies == "fixed"
    assert "learned frequencies gained" in gp.fit_report.message
    stage, trace = gp.fit_report.traces()[-1]
    assert (stage.name, len(trace)) == ("learning frequencies", stage.iterations)
    assert np.mean(trace[-20:]) - trace[0] == pytest.approx(stage.gain * stage.rows, rel=0.2)
    z = (y[2500:] - gp.predict(X[2500:]).mean) ** 2 / gp.predict(X[2500:]).observed().variance
    for calibration in (
        z.mean(),
        gp.fit_report.mean_squared_zscore,
    ):  # 1.0 to 2.2 over seeds 0 to 4; a fit warns from 4 on
        assert 0.5 < calibration < 2.5
    drawn = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).condition(X, y).feature_map.frequencies.dense()
    assert torch.equal(fixed.feature_map.frequencies.dense(), drawn)
    assert not torch.equal(gp.feature_map.frequencies.dense(), drawn)


@pytest.mark.slow
def test_learning_starts_at_the_best_of_short_runs():
    """Ten steps with fixed frequencies drop columns here. Learning from there ends at an error of 0.7."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 4))
    f = np.sin(4 * X[:, 0]) * X[:, 1] + np.cos(3 * X[:, 2] + X[:, 3])
    y = f + 0.1 * rng.standard_normal(4000)
    gp = rfgp.SparseSpectrumGP(num_frequencies=64, learn_frequencies=True, seed=0)
    gp.fit(X[:3500], y[:3500], max_iterations=80)
    assert rfgp.metrics.rmse(y[3500:], gp.predict(X[3500:])) < 0.15


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize(("density", "expected"), [(1e3, "rejected"), (-1e3, "learned")])
def test_close_scores_are_compared_with_fitted_fixed_frequencies(density, expected, monkeypatch):
    monkeypatch.setattr(basis, "CLEAR_GAIN", np.inf)
    monkeypatch.setattr(basis, "fixed_log_prob", lambda *_: torch.tensor(density))
    X, y = exhausted(1000)
    report = (
        rfgp.SparseSpectrumGP(num_frequencies=16, seed=0, learn_frequencies=True)
        .fit(X, y, max_iterations=30)
        .fit_report
    )
    assert report.frequencies == expected
    assert "all rows" in [stage.name for stage in report.stages]
    assert report.stages[-1].name == "learning frequencies"
    assert ("fixed ones, fitted to the end, are 1e+03 ahead" in report.message) == (expected == "rejected")


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_more_learned_numbers_than_rows_are_compared(monkeypatch):
    monkeypatch.setattr(basis, "CLEAR_GAIN", -np.inf)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 30))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(600)
    for m, are_compared in ((12, False), (24, True)):  # 360 and 720 numbers, learned from 540 rows
        gp = rfgp.SparseSpectrumGP(num_frequencies=m, seed=0, learn_frequencies=True).fit(X, y, max_iterations=20)
        names = [stage.name for stage in gp.fit_report.stages]
        assert any(name.startswith("all rows") for name in names) == are_compared, names


def test_fixed_frequencies_are_kept_for_noise():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((250, 4)), rng.standard_normal(250)
    with pytest.warns(rfgp.OverfittingWarning, match="rejected for fixed ones .*learned frequencies gained"):
        gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0, learn_frequencies=True).fit(X, y)
    assert gp.fit_report.learned_frequencies_rejected
    assert "so the fixed ones were taken" in gp.fit_report.message
    fixed = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0, coupling=rfgp.couplings.Energy()).fit(X, y)
    np.testing.assert_allclose(gp.predict(X).mean, fixed.predict(X).mean, atol=0.02)
    np.testing.assert_array_equal(gp.feature_map.frequencies.dense(), fixed.feature_map.frequencies.dense())


def test_gradient_matches_autograd_of_the_objective():
    fit = fit_of(80, dtype=torch.float64)
    run, rows = Watched(fit), fit.pool
    ((path, initial),) = run.start.items()
    parameters = {**run.best_fixed.parameters, path: initial + 0.1}
    values = run.values(parameters)

    def objective(omega):
        phi = fit.spec.prior(values.with_extra_tensors({path: omega}, {})).dense.scaled(rows.inputs)
        covariance = phi @ phi.T + values.standardized("noise") * torch.eye(80, dtype=torch.float64)
        exact = torch.distributions.MultivariateNormal(values.standardized("mean").expand(80), covariance)
        moved = (omega - initial).square().sum()
        return exact.log_prob(rows.targets[:, 0]) / 80 - 0.5 * moved / frequencies.PRIOR_SCALE**2 / run.pool.count

    _, gradients = run.gradient(parameters, rows)
    omega = parameters[path].clone().requires_grad_()
    (expected,) = torch.autograd.grad(objective(omega), [omega])
    torch.testing.assert_close(gradients[path], expected, rtol=1e-7, atol=1e-10)


def test_held_out_rows_are_not_in_batches():
    fit = fit_of(300)
    run, kept = Watched(fit), rows_of(fit.split().held_out)
    run.run()
    assert len(kept) == 30
    assert len(run.batches) == 7
    assert not any(kept & rows_of(batch) for batch in run.batches)


def test_batches_cover_all_rows_of_an_epoch(monkeypatch):
    monkeypatch.setattr(frequencies, "BATCH_ROWS", 90)
    run = Watched(fit_of(300))
    run.run()
    seen = torch.cat([batch.inputs for batch in run.batches[:3]])
    assert len(torch.unique(seen, dim=0)) == 270
    assert not torch.equal(run.batches[0].inputs, run.batches[3].inputs)


def test_fixed_hyperparameters_stay():
    X, y = exhausted(600)
    gp = rfgp.SparseSpectrumGP(num_frequencies=12, seed=0, learn_frequencies=True, noise=0.2)
    gp.fit(X, y, fixed="noise", max_iterations=60)
    assert gp.fit_report.frequencies == "learned"
    assert gp.hyperparameters.noise.item() == pytest.approx(0.2, rel=1e-6)


@pytest.mark.filterwarnings("ignore::rfgp.OverfittingWarning")
def test_other_hyperparameters_may_all_be_fixed():
    X, y = exhausted(1500)
    gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0, learn_frequencies=True, lengthscale=1.0, noise=0.3)
    gp.fit(X, y, fixed=("lengthscale", "outputscale", "noise", "mean"), max_iterations=100)
    assert gp.fit_report.frequencies == "learned"
    assert gp.hyperparameters.noise.item() == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("n", "steps", "words"), [(200, 0, "no steps were allowed"), (199, 30, "199 rows are too few")]
)
def test_few_rows_or_no_steps_keep_fixed_frequencies(n, steps, words):
    X, y = table(n)
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0, learn_frequencies=True)
    with pytest.warns(rfgp.RfgpWarning) as caught:
        gp.fit(X, y, max_iterations=steps)
    assert any(w.category is rfgp.OverfittingWarning for w in caught)
    assert gp.fit_report.learned_frequencies_rejected
    assert words in gp.fit_report.message


@pytest.mark.filterwarnings("ignore::rfgp.OverfittingWarning")
def test_more_features_than_rows_end_at_optimal_noise_and_scale():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 3))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + np.cos(2 * X[:, 2]) + 0.1 * rng.standard_normal(300)
    gp = rfgp.SparseSpectrumGP(num_frequencies=200, seed=0, learn_frequencies=True).fit(X, y, max_iterations=40)
    assert gp.fit_report.frequencies == "learned"
    best = gp.log_marginal_likelihood().item()
    for name in ("noise", "rbf.outputscale"):
        raw = dict(gp.hyperparameters.named_parameters())["raw." + name.replace(".", "/")]
        (slope,) = torch.autograd.grad(gp.log_marginal_likelihood(), [raw])
        assert abs(slope.item()) < 0.2
        found = gp.hyperparameters.value(name).item()
        for factor in (0.8, 0.97, 1.03, 1.25):
            gp.hyperparameters.set(**{name: factor * found})
            assert gp.log_marginal_likelihood().item() < best + 1e-3
        gp.hyperparameters.set(**{name: found})


def test_test_rows_are_disjoint_from_validation_rows():
    fit = fit_of(300)
    split = fit.split()
    chosen, judged = rows_of(split.validation), rows_of(split.test)
    assert len(chosen) == len(judged) == 15
    assert not chosen & judged
    others = rows_of(nothing_learned(fit, split).rows_except_test)
    assert len(others) == 285
    assert not others & judged


def test_copies_of_held_out_rows_are_not_learned_from():
    X, y = table(150)
    gp = rfgp.SparseSpectrumGP(num_frequencies=5, seed=0, learn_frequencies=True).condition(
        np.tile(X, (2, 1)), np.tile(y, 2)
    )
    split = TermFit.of(gp.state, Plan(iteration_limit=7)).split()
    assert len(split.held_out) == 30
    assert not rows_of(split.held_out) & rows_of(split.training)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("prior", [False, True])
def test_scale_is_bounded_during_learning_only(prior, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 2))
    y = X @ [1.0, 2.0] + 0.01 * rng.standard_normal(600)  # a plane prefers the largest scale
    seen, gradient = [], Learning.gradient

    def spy(self, parameters, rows, step):
        seen.append(float(parameters["rbf.outputscale"].exp()))
        return gradient(self, parameters, rows, step)

    monkeypatch.setattr(Learning, "gradient", spy)
    priors = {"outputscale": torch.distributions.LogNormal(5.0, 0.1)} if prior else None
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0, learn_frequencies=True, priors=priors)
    gp.fit(X, y, max_iterations=20)
    held = max(seen) <= frequencies.MAX_SCALE * (1 + 1e-9)
    assert held != prior  # a prior replaces the bound
    assert gp.hyperparameters.outputscale > frequencies.MAX_SCALE * y.var()


def test_too_few_steps_warn(monkeypatch):
    monkeypatch.setattr(outcome, "SETTLED", -1.0)
    X, y = exhausted(3000)
    gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0, learn_frequencies=True)
    with pytest.warns(rfgp.ConvergenceWarning, match="Raise max_iterations"):
        gp.fit(X, y, max_iterations=10)
    assert gp.fit_report.message.startswith("stopped: learned frequencies gained")


def test_laplace_features_cannot_be_learned():
    with pytest.raises(rfgp.InvalidArgumentError, match="learn_frequencies"):
        rfgp.SparseSpectrumGP(kind="laplace", learn_frequencies=True)


@pytest.mark.parametrize(("needed", "steps"), [(-np.inf, 100), (50.0, 40), (-50.0, 100)])
def test_learning_ends_if_its_curve_cannot_reach_a_gain(needed, steps):
    """It ends after four scores of the test rows, and the report counts the steps."""
    fit = fit_of(400)
    fit = replace(fit, plan=Plan(iteration_limit=100, needed_gain=needed))
    outcome = frequencies.learn(fit, fit.split(), fit.values, frequencies.NO_SEARCH)
    assert outcome.stage.iterations == outcome.stage.evaluations == len(outcome.trace) == steps
