"""Selections of kernels, approximations and noise, through their public report.

Decisions are tested with given scores: a fixture replaces the fits of candidates, so that a selection takes
milliseconds.
"""

import copy
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import trimesh
from scipy import stats
from scipy.optimize import minimize
from scipy.special import softmax

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.selection.validation import Validation
from tests.support.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")
FEATURES = rfgp.RandomFeatures(8)


def table(count=80, columns=2, seed=0):
    """Return inputs on different scales and a smooth function of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (count, columns))
    y = 5 + 2 * np.sin(4 * X[:, 0]) * np.cos(X[:, -1]) + 0.3 * rng.standard_normal(count)
    return X * np.geomspace(1, 30, columns), y


DRAWS = {
    "bernoulli": lambda f, rng: rng.random(len(f)) < 1 / (1 + np.exp(-3 * f)),
    "categorical": lambda f, rng: np.digitize(f + 0.3 * rng.standard_normal(len(f)), [-0.4, 0.4]),
    "poisson": lambda f, rng: rng.poisson(np.exp(f)),
    "heteroscedastic": lambda f, rng: f + np.exp(f) * rng.standard_normal(len(f)),
}


def drawn(likelihood, count):
    """Return inputs and observations of a likelihood."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (count, 2))
    return X, DRAWS[likelihood](2 * np.sin(3 * X[:, 0]) * X[:, 1], rng).astype(float)


def rebuilt(trial, **options):
    """Return the model of a trial, from its options as one writes them."""
    scope = {**vars(k), **vars(rfgp.approximations)}
    return rfgp.GP(**{name: eval(value, scope) for name, value in trial.options.items()}, seed=0, **options)


def corrected(gp, free):
    """Return left-out log densities (n,), less two nats in total for each free hyperparameter."""
    log_prob = gp.leave_one_out().log_prob
    return log_prob - 2 * free / len(log_prob)


def scored(selection):
    return [trial for trial in selection.trials if trial.scores]


def statuses(selection):
    return {trial.name: trial.status for trial in selection.trials}


# --- scores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("approximation", [pytest.param("auto", marks=pytest.mark.slow), rfgp.Vecchia(8)], ids=str)
def test_scores_are_leave_one_out_densities_of_fits_alone(approximation):
    X, y = table(100, 1)
    selection = rfgp.GP(approximation=approximation, seed=0).select(X, y)
    assert (selection.validation, selection.num_validation) == ("leave-one-out", 100)
    best = max(scored(selection), key=lambda trial: trial.last.value)
    free = {"exact Linear": 3, "exact Linear + RBF": 5, "exact RBF + Matern 3/2": 6}
    free |= {trial.name: 6 + ("Linear" in trial.name) for trial in selection.trials if "Periodic" in trial.name}
    top = corrected(rebuilt(best).fit(X, y), free.get(best.name, 4))
    for trial in scored(selection)[::2]:
        alone = corrected(rebuilt(trial).fit(X, y), free.get(trial.name, 4))
        assert trial.last.value == pytest.approx(alone.mean(), abs=5e-3)
        assert trial.last.error == pytest.approx(
            np.hypot(alone.std(ddof=1) / 10, free.get(trial.name, 4) / 100), rel=0.1
        )
        assert trial.last.difference == pytest.approx((top - alone).mean(), abs=5e-3)
        assert trial.last.difference_error == pytest.approx((top - alone).std(ddof=1) / 10, abs=5e-3)


def test_last_rows_are_held_out_and_compared_with_a_constant():
    rng = np.random.default_rng(0)
    t = rng.permutation(60).astype(float)
    y, first, last = np.sin(t / 9) + 0.1 * rng.standard_normal(60), t < 48, t >= 48
    selection = rfgp.GP(approximation=rfgp.Exact(), seed=0, validate="forward").select(t[:, None], y)
    assert (selection.validation, selection.num_validation, selection.last_times) == ("the last rows", 12, {})
    constant = stats.norm(y[first].mean(), y[first].std()).logpdf(y[last])
    assert selection.baselines["a constant"].value == pytest.approx(constant.mean())
    assert selection.baselines["a constant"].error == pytest.approx(constant.std(ddof=1) / np.sqrt(12))
    for trial in scored(selection)[:3]:
        alone = rebuilt(trial).fit(t[first, None], y[first]).predict(t[last, None]).observed()
        assert trial.last.value == pytest.approx(alone.log_prob(y[last]).mean(), abs=0.1)


@pytest.mark.slow
def test_groups_are_scored_by_fits_without_them():
    """Each of four groups is a fold. Other rows of the group would tell its effect."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(4), 15)
    X = np.stack([rng.standard_normal(60), group], 1)
    y = 2 * X[:, 0] + np.array([0.0, 4.0, -3.0, 1.0])[group] + 0.3 * rng.standard_normal(60)
    selection = rfgp.GP(approximation=rfgp.Exact(), seed=0, validate=1).select(X, y)
    assert selection.validation == "groups of 1"
    trial, found = next(trial for trial in selection.trials if trial.name == "exact Linear"), np.empty(60)
    for g in range(4):
        out = group == g
        found[out] = rebuilt(trial).fit(X[~out], y[~out]).predict(X[out]).observed().log_prob(y[out])
    assert trial.last.value == pytest.approx(found.mean(), abs=0.05)
    assert found.mean() < rebuilt(trial).fit(X, y).leave_one_out().log_prob.mean() - 0.2


def test_scores_of_replicates_are_those_of_new_inputs():
    """Rows whose replicates are among the others would score by the noise alone, 0.88 nats."""
    rng = np.random.default_rng(0)
    X, f = rng.uniform(-1, 1, (25, 1)), rng.standard_normal(25)
    gp = rfgp.GP(approximation=FEATURES, seed=0)
    gp.fit(np.repeat(X, 3, axis=0), np.repeat(f, 3) + 0.1 * rng.standard_normal(75), max_iterations=10)
    assert gp.selection.num_validation == 25
    assert gp.selection.chosen.last.value < -1.2
    assert gp.members == gp.selection.weights == ()


LEVELS = np.repeat(np.arange(3), 20)


@pytest.mark.filterwarnings("error::rfgp.BaselineNotBeatenWarning")
@pytest.mark.parametrize(
    "levels",
    [pytest.param(np.array(["lo", "mid", "hi"])[LEVELS], marks=pytest.mark.slow), LEVELS / 2],
    ids=["texts", "numbers"],
)
def test_scores_of_designs_are_those_of_new_repeats(levels):
    """Each level was predicted without any row of it, and the table called uninformative."""
    rng = np.random.default_rng(0)
    X, f = {"a": levels}, 3 * np.sin(7.0 * np.unique(levels, return_inverse=True)[1])
    y, again = (f + 0.1 * rng.standard_normal(60) for _ in range(2))
    gp = rfgp.GP(approximation=rfgp.Exact(), seed=0).fit(X, y)
    assert gp.selection.chosen.last.value == pytest.approx(gp.predict(X).observed().log_prob(again).mean(), abs=0.3)


@pytest.mark.parametrize(
    "likelihood", [pytest.param(name, marks=[pytest.mark.slow] * (name != "poisson")) for name in DRAWS]
)
def test_other_likelihoods_are_scored_on_left_out_or_held_out_rows(likelihood, limits):
    X, y = drawn(likelihood, 40)
    gp = rfgp.GP(likelihood=likelihood, seed=0).fit(X, y, max_iterations=3)
    assert gp.selection.validation == "leave-one-out"
    free = sum(gp.hyperparameters[name].numel() for name in gp.hyperparameters)
    assert gp.selection.chosen.last.value == pytest.approx(corrected(gp, free).mean(), abs=1e-6)
    assert gp.selection.baselines == {}
    assert gp.members == ()
    limits(few_rows=20)
    selection = rfgp.GP(likelihood=likelihood, approximation=FEATURES, seed=0).select(X, y)
    assert (selection.validation, selection.num_validation) == ("held out", 8)
    assert np.isfinite([trial.last.value for trial in scored(selection)]).all()


@pytest.mark.slow
def test_exposures_of_held_out_counts_are_used(limits):
    limits(few_rows=20)
    rng = np.random.default_rng(0)
    X, times = rng.uniform(-1, 1, (60, 2)), rng.uniform(0.1, 20, 60)
    y = rng.poisson(times * np.exp(np.sin(3 * X[:, 0]))).astype(float)
    gp = rfgp.GP(likelihood="poisson", approximation=FEATURES, seed=0)
    with_times, without = (gp.select(X, y, exposure=one).chosen.last.value for one in (times, None))
    assert with_times > without + 0.5


def test_censoring_of_held_out_rows_is_used(limits):
    """Probabilities beyond a limit are scored, and the unit of the target does not matter."""
    limits(few_rows=20)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    codes, gp = (y > 0.3).astype(int), rfgp.GP(likelihood="tobit", approximation=FEATURES, seed=0)
    one, other = (gp.select(X, unit * y.clip(max=0.3), censored=codes).chosen.last.value for unit in (1.0, 0.01))
    held_out = (other - one) / np.log(100)  # the share of observed rows among 12
    assert 12 * held_out == pytest.approx(round(12 * held_out), abs=1e-6)
    assert 0 < held_out < 1


# --- averages --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def averaged():
    """An average of kernels that were scored by leave-one-out, and its rows."""
    X, y = table(110, 1, seed=3)
    gp = rfgp.GP(seed=0).fit(X, y)
    assert gp.selection.validation == "leave-one-out"
    return gp, X, y


def test_weights_maximize_the_penalized_density_of_the_mixture(averaged):
    gp, _, _ = averaged
    weights = np.array([weight for weight, _ in gp.members])
    free = {"exact Linear": 3, "exact Linear + RBF": 5, "exact RBF + Matern 3/2": 6}
    names = [trial.name for trial in gp.selection.trials if trial.name in gp.selection.parts]
    names.sort(key=lambda name: -gp.selection.parts[name])
    densities = [corrected(model, free.get(name, 4)) for name, (_, model) in zip(names, gp.members, strict=True)]
    densities = np.stack(densities, 1)

    def loss(logits):
        return -np.log(np.exp(densities) @ softmax(logits)).sum() - 5.0 * np.log(softmax(logits)).sum()

    best = softmax(minimize(loss, np.zeros(len(weights)), tol=1e-10).x)
    assert 2 <= len(weights) <= 3
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights, best, atol=2e-3)


def test_members_have_the_weights_of_the_selection(averaged, tmp_path):
    gp, X, y = averaged
    selection = gp.selection
    assert selection.unbeaten_baseline is None
    assert "poisson" not in selection.reason
    weights = sorted(filter(None, selection.weights), reverse=True)
    assert [weight for weight, _ in gp.members] == weights
    assert weights[0] == selection.weights[selection.best]
    assert sorted(selection.parts.values(), reverse=True) == weights
    assert sum("of the average" in line for line in selection.table()) == len(weights)
    assert selection.reason.startswith("The average of ")
    assert repr(selection).startswith("SelectionReport(an average of ")
    assert repr(gp).endswith(f"averaged with {len(weights) - 1} other{'s' * (len(weights) > 2)})")
    mean = sum(weight * model.predict(X).mean for weight, model in gp.members)
    np.testing.assert_allclose(gp.predict(X).mean, mean, rtol=1e-9)
    refused(lambda: gp.save(tmp_path / "model", data=False), rfgp.InvalidArgumentError, "data=True")
    gp.save(tmp_path / "model", data=True)
    loaded = rfgp.load(tmp_path / "model")
    assert loaded.selection == selection
    np.testing.assert_array_equal(loaded.leave_one_out().mean, gp.leave_one_out().mean)
    for step in (lambda one: one, rfgp.GP.exact, lambda one: one.update(X[:3], y[:3]), lambda one: one.condition(X, y)):
        np.testing.assert_array_equal(*(step(one).predict(X).mean for one in (loaded, copy.deepcopy(gp))))


def test_a_candidate_that_fails_has_no_place_in_a_checkpoint(tmp_path):
    roads = graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1.0, 0.3)], [(1.0, 0.3), (2.0, 0.0)]], metric="euclidean")
    places, y = [(i % 2, i / 20) for i in range(20)], np.sin(np.arange(20.0))

    def fit():
        errors = [rfgp.NotPositiveDefiniteError("planted")]

        def fail_once(*_):
            if errors:
                raise errors.pop()

        return rfgp.RoadGP(roads, "auto", seed=0).fit(places, y, callback=fail_once, checkpoint=tmp_path / "c")

    assert fit().selection == fit().selection


def test_killed_selection_resumes_and_ends_with_the_same_models(averaged, tmp_path):
    gp, X, y = averaged

    seen = []

    def kill(iteration, value):
        seen.append(value)
        if len(seen) == 60:
            raise SystemExit

    with pytest.raises(SystemExit):
        rfgp.GP(seed=0).fit(X, y, checkpoint=tmp_path / "c", callback=kill)
    again = copy.deepcopy(gp).fit(X, y, checkpoint=tmp_path / "c")
    assert [trial.name for trial in again.selection.trials] == [trial.name for trial in gp.selection.trials]
    assert again.selection.chosen.name == gp.selection.chosen.name
    np.testing.assert_allclose(again.predict(X).mean, gp.predict(X).mean, atol=0.01)


# --- decisions, with given scores ------------------------------------------------------------------

NEAR, ROUGH, VERY_SMOOTH = (f"Matern {nu}, 30 neighbors" for nu in ("3/2", "1/2", "5/2"))
FIXED, LEARNED = "RBF, 128 frequencies", "RBF, 128 learned frequencies"
BOTH, MORE, MOST = f"{FIXED} + {NEAR}", "RBF, 256 learned frequencies", "RBF, 512 learned frequencies"


@pytest.fixture
def given(monkeypatch):
    """Give mean densities to candidates by name, -9 to others. It returns what is fitted, as (name, rows, plan).

    A fit takes some seconds of a clock that stands still otherwise. Instead of a density it may raise an error.
    """

    def give(means, fell_back=(), deviation=0.0, seconds=0.0):
        asked = []
        monkeypatch.setattr(time, "monotonic", lambda: seconds * len(asked))

        def fitted(validation, candidate, size, start, plan):
            asked.append((candidate.name, size, plan))
            mean = means.get(candidate.name, -9.0)
            if mean is None:
                raise rfgp.SolverError("no solution")
            if mean is KeyboardInterrupt:
                raise KeyboardInterrupt
            noise = torch.randn(len(validation.validation_rows), generator=torch.Generator().manual_seed(len(asked)))
            log_prob = mean + deviation * (noise - noise.mean()).double()
            values = SimpleNamespace(standardized=lambda name: 0.1)
            report = SimpleNamespace(learned_frequencies_rejected=candidate.name in fell_back, leave_one_out=mean + 0.3)
            return SimpleNamespace(
                candidate=candidate,
                log_prob=log_prob,
                num_search_rows=size,
                optimism=0.0,
                report=report,
                state=SimpleNamespace(hyperparameters=values),
            )

        monkeypatch.setattr(Validation, "fitted", fitted)
        monkeypatch.setattr(Validation, "scored_in_folds", lambda self, found: found)
        return asked

    return give


def select(count=2100, columns=4, time_limit=4000, X=None, y=None, **options):
    """Return a selection on rows of several columns, of which four fifths are fitted to."""
    X = np.random.default_rng(0).uniform(-1, 1, (count, columns)) if X is None else X
    y = np.sin(np.arange(float(count))) if y is None else y
    return rfgp.GP(seed=0, time_limit=time_limit, **options).select(X, y)


def names(selection):
    return {trial.name for trial in selection.trials}


FOLLOWUPS = {ROUGH, VERY_SMOOTH, MORE, MOST}


@pytest.mark.parametrize(
    ("means", "chosen", "followups"),
    [
        ({NEAR: 1.0, ROUGH: 2.0}, ROUGH, {ROUGH, VERY_SMOOTH}),
        ({NEAR: 1.0, VERY_SMOOTH: 2.0}, VERY_SMOOTH, {ROUGH, VERY_SMOOTH}),
        ({LEARNED: 1.0, MORE: 2.0}, MORE, {MORE, MOST}),
        ({LEARNED: 1.0, MORE: 1.1, MOST: 2.0}, MOST, {MORE, MOST}),
        ({LEARNED: 1.0, MORE: 1.001, MOST: 2.0}, MORE, {MORE}),
        ({LEARNED: 1.0, MORE: 0.9, MOST: 2.0}, LEARNED, {MORE}),
        ({NEAR: 1.0, BOTH: 1.14}, BOTH, {ROUGH, VERY_SMOOTH}),
        ({NEAR: 1.0, BOTH: 1.16}, BOTH, set()),
        ({FIXED: 1.0}, FIXED, set()),
        ({FIXED: 1.0, NEAR: None}, FIXED, set()),
    ],
)
def test_followups_of_survivors_are_scored(means, chosen, followups, given):
    """A followup needs a parent within 0.15 nats of the best. A second one needs a lead of 0.005 nats."""
    given(means)
    selection = select()
    assert selection.chosen.name == chosen
    assert names(selection) & FOLLOWUPS == followups


def test_failures_and_losers_are_told_apart(given):
    given({NEAR: 1.0, BOTH: 0.99, FIXED: 0.98, LEARNED: None})
    selection = select()
    status = statuses(selection)
    assert status[LEARNED] == "no solution"
    assert "worse than the best by 0.02" in status[FIXED]  # at most two go on
    assert status[NEAR] == ""
    assert [score.rows for score in selection.chosen.scores] == [1000, 1680]


def test_uncertain_differences_do_not_eliminate(given):
    """The standard error of the difference of 420 rows is 9 sqrt(2 / 420) = 0.6 nats."""
    given({NEAR: 1.0, BOTH: 1.5}, deviation=9.0)
    assert ROUGH in names(select())


def test_learned_frequencies_no_better_than_fixed_are_left_out(given):
    given({LEARNED: 2.0, FIXED: 1.0}, fell_back=[LEARNED])
    selection = select()
    assert selection.chosen.name == FIXED
    assert "no better than fixed" in statuses(selection)[LEARNED]
    assert MORE not in names(selection)


def test_learned_frequencies_know_the_gain_they_need(given):
    """It is that over as many fixed frequencies, or over fewer learned ones, by their score on the same rows."""
    asked = given({FIXED: 1.0, NEAR: 1.4, LEARNED: 1.3})
    y = np.sin(np.arange(2100.0))
    select(y=y)
    plans = {name: plan for name, _, plan in asked}
    assert plans[LEARNED].needed_gain == pytest.approx(0.4)
    assert plans[MORE].needed_score - np.log(y.std(ddof=1)) == pytest.approx(1.3 + 0.3 + 0.1)
    assert plans[NEAR].needed_gain == plans[NEAR].needed_score == -np.inf


def test_the_cheapest_is_taken_if_all_fail(given):
    given(dict.fromkeys([FIXED, LEARNED, NEAR, BOTH, "exact Linear"]))
    selection = select()
    assert selection.chosen.seconds == min(trial.seconds for trial in selection.trials)
    assert "nothing could be scored" in selection.reason
    assert selection.num_validation == 0


@pytest.mark.parametrize("best", [NEAR, MORE])
def test_predictions_are_corrected_by_measured_seconds(best, given):
    """Predicted are 4 to 20 s for each fit. Fits that take less leave time for others."""
    means = {LEARNED: 1.9, NEAR: 1.8, best: 2.0}
    asked = given(means, seconds=0.1)
    assert select(time_limit=20).chosen.name == best
    fast = len(asked)
    asked = given(means, seconds=20.0)
    selection = select(time_limit=80)  # by the predictions alone four would be fitted
    assert 1 <= len(asked) <= 2 < fast
    assert any("time" in status for status in statuses(selection).values())
    asked = given(means, seconds=1e-9)
    assert select(time_limit=4000).chosen.name == best


def test_an_interrupt_keeps_the_best_so_far(given):
    given({"exact Linear": 1.0, "exact RBF": KeyboardInterrupt})
    selection = select(150, 2)
    assert selection.chosen.name == "exact Linear"
    assert "An interrupt ended the search of exact RBF early" in selection.reason
    assert "an interrupt ended the fit" in statuses(selection)["exact Matern 3/2"]
    given({"exact Linear": KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt):  # none is complete
        select(150, 2)


@pytest.mark.parametrize("stage", ["folds", "integration", "noise"])
def test_an_interrupt_after_a_complete_fit_keeps_it(stage, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    X, y = table(60, 2)
    places = {
        "folds": (Validation, "scored_in_folds"),
        "integration": (rfgp.fitting.integrated, "approximate"),
        "noise": (rfgp.selection.noise.NoiseChoice, "of"),
    }
    monkeypatch.setattr(*places[stage], interrupted)
    options = {"folds": {"validate": 1}, "integration": {"hyperparameter_posterior": "integrated"}, "noise": {}}
    with pytest.warns(rfgp.ConvergenceWarning, match="an interrupt ended the fit"):
        gp = rfgp.GP(seed=0, **options[stage]).fit(np.column_stack([X[:, 0], np.arange(60) % 3]), y)
    assert np.square(gp.predict(np.column_stack([X[:, 0], np.arange(60) % 3])).mean - y).mean() < 1.5 * y.var()


def test_groups_of_which_one_has_most_rows_are_folds(limits, given, monkeypatch):
    """The first rows in the order of the groups may be those of one group."""
    given({"exact Linear": 1.0})
    limits(few_rows=200, first_rows=100)
    folds = []
    monkeypatch.setattr(Validation, "scored_in_folds", lambda self, found: folds.append(len(self.folds)) or found)
    X = np.column_stack([np.random.default_rng(0).normal(size=180), np.arange(180) >= 150])
    for seed in range(3):
        selection = rfgp.GP(seed=seed, validate=1).select(X, np.sin(X[:, 0]))
        assert (selection.validation, selection.num_validation) == ("groups of 1", 100)
    assert len(folds) >= 3
    assert set(folds) == {2}


@pytest.mark.slow
def test_rows_with_equal_inputs_are_left_out_together():
    """The other row of a pair has the same target; with noise of its own rows cannot be merged."""
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.uniform(-1, 1, (25, 1)), 2, axis=0), np.repeat(rng.standard_normal(25), 2)
    gp = rfgp.GP(seed=0).fit(X, y, noise=np.full(50, 1e-4))
    assert gp.selection.validation == "5 folds"
    assert gp.selection.chosen.last.value < -1


def test_a_short_time_limit_does_not_leave_time_unused():
    """The first round of few rows has ten iterations, which is not the end of a fit."""
    report = rfgp.GP(seed=0, time_limit=1.0, likelihood="gaussian").fit(*table(200, 2)).fit_report
    assert report.converged or "the time limit passed" in report.message


@pytest.mark.slow
def test_columns_without_effect_do_not_lower_the_score_of_a_line():
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((60, 20)), rng.standard_normal((1000, 20))
    y, later = (x[:, 0] + 0.3 * rng.standard_normal(len(x)) for x in (X, new))
    selection = rfgp.GP(seed=0).select(X, y)
    trial = next(one for one in selection.trials if one.name == "exact Linear")
    density = rebuilt(trial).fit(X, y).predict(new).observed().log_prob(later).mean()
    assert trial.scores[0].value == pytest.approx(density, abs=0.35)


def test_an_interrupted_fit_keeps_a_model_that_predicts():
    X, y = table(110, 1, seed=3)

    def interrupt(iteration, value):
        seen.append(value)
        if len(seen) == 30:
            raise KeyboardInterrupt

    seen = []
    with pytest.warns(rfgp.ConvergenceWarning, match="an interrupt ended the fit"):
        gp = rfgp.GP(seed=0).fit(X, y, callback=interrupt)
    assert "An interrupt" in gp.selection.reason
    assert len(seen) == 30
    assert np.square(gp.predict(X).mean - y).mean() < y.var()


@pytest.mark.parametrize("limit", [20, 60, 4000])
def test_the_best_score_counts_without_time_for_more_rows(limit, given):
    given({FIXED: 2.0})
    selection = select(12_000, time_limit=limit)
    assert selection.chosen.last.value == max(trial.last.value for trial in scored(selection))
    assert limit < 40 or selection.chosen.name == FIXED


def test_averaged_candidates_are_close_and_few(given):
    """Equal densities give equal weights. Those that are 0.1 nats behind are left out, and all but three."""
    given({"exact RBF": 1.0, "exact Matern 3/2": 1.0, "exact Matern 1/2": 0.95})
    parts = select(150, 2).parts
    assert set(parts) == {"exact RBF", "exact Matern 3/2", "exact Matern 1/2"}
    assert parts["exact RBF"] == pytest.approx(parts["exact Matern 3/2"])
    assert parts["exact RBF"] > parts["exact Matern 1/2"]
    given(dict.fromkeys(names(select(150, 2)), 1.0))
    assert list(select(150, 2).parts.values()) == pytest.approx([1 / 3] * 3)
    given({"exact RBF": 1.0, "exact Matern 3/2": 0.89})
    assert set(select(150, 2).parts) == {"exact RBF"}


def test_models_without_the_season_of_the_best_are_not_averaged(given):
    t = np.arange(120.0)
    season = {"X": t[:, None], "y": 0.1 * t + np.sin(2 * np.pi * t / 12), "count": 120}
    given({"exact Linear + RBF + Periodic 12": 1.0, "exact RBF": 0.95})
    assert set(select(**season).parts) == {"exact Linear + RBF + Periodic 12"}
    given({"exact Linear + RBF + Periodic 12": 1.0, "exact RBF": 1.0})
    assert set(select(**season).parts) == {"exact Linear + RBF + Periodic 12", "exact RBF"}


def test_only_the_best_candidates_are_fitted_long_and_to_all_rows(given):
    """Scores of few iterations, and of few rows, decide which candidates go on."""
    asked = given({"exact RBF": 1.0, "exact Matern 3/2": 0.9, "exact Linear": 0.84})
    select(1000, 2)
    ended = {name: [(rows, plan.max_iterations) for one, rows, plan in asked if one == name] for name, *_ in asked}
    assert ended["exact Matern 3/2"] == [(300, 10), (300, 500), (600, 500)]
    assert ended["exact RBF"] == [*ended["exact Matern 3/2"], (1000, 500)]
    assert all(found == [(300, 10)] for name, found in ended.items() if name not in ("exact RBF", "exact Matern 3/2"))
    asked.clear()
    select(400, 2)
    assert {rows for _, rows, _ in asked} == {400}


def test_averaged_models_keep_their_hyperparameters_and_see_all_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(480, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(480)
    gp = rfgp.GP(seed=0).fit(X, y)
    assert len(gp.members) > 1
    for _, member in gp.members:
        start = {name: member.hyperparameters.value(name) for name in member.hyperparameters.names}
        alone = rfgp.GP(member.kernel, approximation=rfgp.Exact(), start=start).condition(X, y)
        np.testing.assert_allclose(member.predict(X[:5]).mean, alone.predict(X[:5]).mean, atol=1e-6)


def periodic(X, y, **options):
    return {trial.name.rpartition("Periodic ")[2] for trial in select(len(y), X=X, y=y, **options).trials
            if "Periodic" in trial.name}  # fmt: skip


def test_periods_of_a_column_become_candidates(given):
    given({})
    t = np.arange(120.0)
    season, rng = 0.1 * t + np.sin(2 * np.pi * t / 12), np.random.default_rng(2)
    some = np.delete(t, [4, 50, 51])
    assert periodic(some[:, None], season[some.astype(int)]) == {"12"}
    (found,) = periodic(t[:, None], np.sin(2 * np.pi * t / 12.5))
    assert float(found) == pytest.approx(12.5, rel=2e-3)
    for y in (rng.standard_normal(120), 3 * t + 1e-13 * rng.standard_normal(120)):
        assert periodic(t[:, None], y) == set()
    assert periodic(np.r_[np.linspace(0, 1e-3, 5), 1:8.0][:, None], season[:12]) == set()


def test_seasons_of_dates_become_candidates(given):
    given({})
    days = np.datetime64("2020-01-01") + np.arange(1200)
    exact = {"approximation": rfgp.Exact()}
    assert periodic({"day": days}, np.arange(1200) % 7.0, **exact) >= {"7", "365.243"}
    for options in ({"likelihood": "poisson"}, {"approximation": FEATURES}):
        assert periodic({"day": days}, np.arange(1200) % 7.0, **options) >= {"365.243"}
    assert periodic({"day": days[:40]}, np.arange(40) % 7.0, **exact) == {"7"}


@pytest.mark.parametrize(("gain", "is_seasonal"), [(0.1, True), (0.001, False)])
def test_seasons_join_all_terms_if_they_improve_the_cheapest(gain, is_seasonal, given):
    rng, season = np.random.default_rng(0), " + Periodic 7 + Periodic 365.243"
    X = {"day": np.datetime64("2010-01-01") + np.arange(2100) // 2} | {name: rng.uniform(size=2100) for name in "abc"}
    asked = given({NEAR: 1.0, NEAR + season: 1.0 + gain, BOTH: 1.2, BOTH + season: 1.3})
    assert select(X=X).chosen.name == BOTH + season * is_seasonal
    assert (BOTH in [name for name, *_ in asked]) != is_seasonal


CANDIDATES = {
    "few rows": ({"count": 200, "columns": 2}, {"exact isotropic RBF", "exact Linear", "exact RBF + Matern 3/2"}, 8),
    "one column": ({"count": 200, "columns": 1}, {"exact Linear", "exact Linear + RBF"}, 6),
    "many columns": ({"count": 60, "columns": 30}, {"exact Linear + RBF, few columns"}, 11),
    "more columns than rows": ({"count": 40, "columns": 60}, {"exact RBF, few columns", "exact isotropic RBF"}, 5),
    "many rows": ({}, {FIXED, LEARNED, NEAR, BOTH, "exact Linear"}, 5),
    "many rows of two columns": ({"columns": 2}, {"Linear", "RBF", "Matern 5/2", "Matern 3/2"}, 4),
    "an approximation": ({"approximation": rfgp.Vecchia(5)}, {f"Matern {n}/2, 5 neighbors" for n in (1, 3, 5)}, 4),
    "counts": ({"likelihood": "poisson", "y": np.ones(2100)}, {FIXED, "RBF, 512 frequencies"}, 2),
    "few counts": ({"likelihood": "poisson", "count": 60, "y": np.arange(60.0)}, {"exact RBF", "exact Matern 1/2"}, 3),
}


@pytest.mark.parametrize("kind", CANDIDATES)
def test_candidates_suit_the_table(kind, given):
    given({"Linear": 1.0, "exact Linear": 1.0})
    options, some, number = CANDIDATES[kind]
    selection = select(**options)
    assert some <= names(selection)
    assert len(names(selection)) == number


@pytest.mark.parametrize(
    ("num_frequencies", "rows", "columns", "seconds"),
    [(128, 10756, 18, 8.0), (256, 10756, 18, 21.0), (128, 30000, 8, 7.5), (512, 30000, 8, 78.6)],
)
def test_learning_takes_the_predicted_seconds(num_frequencies, rows, columns, seconds, given):
    """Seconds of a core at 2e10 operations a second on elevators and kin40k."""
    given({LEARNED: 1.0, MORE: 1.1, MOST: 1.2})
    trials = {trial.name: trial for trial in select(rows, columns, time_limit=1e5).trials}
    assert 0.6 < trials[f"RBF, {num_frequencies} learned frequencies"].seconds / seconds < 1.6


# --- limits and options ----------------------------------------------------------------------------


def test_limits_leave_out_costly_candidates_but_not_all(given):
    given({})
    least = min(trial.seconds for trial in select(80, 2).trials)
    for options, word in (({"time_limit": 1.4 * least}, "predicted time"), ({"memory": "300kb"}, "predicted memory")):
        trials = select(80, 2, **options).trials
        assert {word in trial.status for trial in trials} == {True, False}
        assert all(trial.scores for trial in trials if not trial.status)
    assert select(80, 2, time_limit=1e-9).chosen.seconds == least


def test_reason_says_what_time_ended():
    def wait(progress):
        time.sleep(0.1)

    X, y = table(150)
    gp = rfgp.GP(time_limit=1.0, seed=0).fit(X, y, progress=wait)
    assert "The time limit ended the search of exact" in gp.selection.reason
    assert any("75% of the time limit of 1 s had passed" in trial.status for trial in gp.selection.trials)
    assert not gp.fit_report.converged
    assert np.isfinite(gp.predict(X).mean).all()
    assert gp.members == ()
    assert "more than the limit of 1e-09 s" in rfgp.GP(time_limit=1e-9, seed=0).select(X, y).reason


@pytest.mark.slow
def test_equal_seeds_select_the_same_and_others_hold_out_others(limits):
    limits(few_rows=50)
    X, y = table(80)
    one, two, other = (rfgp.GP(approximation=FEATURES, seed=seed).select(X, y) for seed in (0, 0, 1))
    assert one == two
    assert other.baselines != one.baselines


def test_select_is_the_selection_of_fit_and_keeps_the_model():
    X, y = drawn("poisson", 50)
    times, stages = np.random.default_rng(1).uniform(0.5, 2, 50), []
    gp = rfgp.GP(likelihood="poisson", seed=0)
    selection = gp.select(X, y, exposure=times, progress=lambda now: stages.append(now.stage))
    assert repr(gp) == "GP(likelihood=Poisson(), seed=0, not fitted)"
    assert gp.selection is None
    assert gp.fit(X, y, exposure=times).selection == selection
    assert any(stage.startswith("selection, 1 of 3, exact") and " about " in stage for stage in stages)


def test_conditioning_takes_one_kernel_whatever_the_rows():
    X = np.random.default_rng(0).standard_normal((2001, 2))
    few, many = (rfgp.GP(seed=0).condition(X[:n], np.sin(X[:n, 0])) for n in (100, 2001))
    assert list(few.terms) == list(many.terms) == ["rbf"]
    assert few.selection is None
    assert isinstance(many.terms["rbf"].approximation, rfgp.EquispacedFourier)


@pytest.mark.parametrize("kind", ["outputs", "tensors", "weights and noise", "blocks"])
def test_tables_of_all_kinds_are_selected_on(kind):
    X, y = table(40, 2 if kind == "blocks" else 1)
    more = {"sample_weight": np.arange(1.0, 41.0), "noise": np.full(40, 0.01)} if "weights" in kind else {}
    data = {
        "outputs": (X, np.stack([y, -y], 1)),
        "tensors": (torch.tensor(X).float(), torch.tensor(y).float()),
        "blocks": (rfgp.tables.Batches([(X[:30], y[:30]), (X[30:], y[30:])]),),
    }.get(kind, (X, y))
    gp = rfgp.GP(seed=0).fit(*data, max_iterations=3, **more)
    assert len(scored(gp.selection)) > 1
    assert np.isfinite([trial.last.value for trial in scored(gp.selection)]).all()
    assert np.isfinite(np.asarray(gp.predict(X).mean)).all()
    assert gp.members == () or kind != "outputs"


BAD = {
    "time": (lambda: rfgp.GP(time_limit="soon"), "time_limit"),
    "negative time": (lambda: rfgp.GP(time_limit=-1), "time_limit"),
    "memory": (lambda: rfgp.GP(memory="4 boxes"), "memory"),
    "terms": (lambda: rfgp.GP(approximation={"rbf": rfgp.Exact()}), "names of terms"),
    "a given kernel": (lambda: rfgp.GP(k.RBF()).select(*table(30)), "nothing to select"),
    "validate": (lambda: rfgp.GP(k.RBF(), validate="forward"), "validate"),
    "forward": (lambda: rfgp.GP(validate="forward").fit(*table(30)), "one column of dates"),
    "column": (lambda: rfgp.GP(validate="site").fit(*table(30)), "column of the inputs"),
    "one group": (lambda: rfgp.GP(validate=1).fit({0: np.arange(9.0), 1: np.ones(9)}, np.arange(9.0)), "two groups"),
    "fixed": (lambda: rfgp.GP(seed=0).fit(*table(30), fixed="nois"), "nois"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_options_are_named(name):
    call, word = BAD[name]
    refused(call, rfgp.DataError if name == "one group" else rfgp.InvalidArgumentError, word)


# --- what is found ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_noise_does_not_beat_a_constant():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
    with pytest.warns(rfgp.BaselineNotBeatenWarning, match="a constant"):
        gp = rfgp.GP(seed=0).fit(X, y)
    assert gp.selection.unbeaten_baseline == "a constant"


def test_a_line_is_found():
    X = np.random.default_rng(1).standard_normal((10, 1))
    gp = rfgp.GP(seed=0).fit(X, -50_000 * X[:, 0])
    assert "Linear" in gp.selection.chosen.name
    assert gp.predict([[3.0]]).mean[0] == pytest.approx(-150_000, rel=1e-3)


@pytest.mark.slow
def test_few_of_many_columns_are_found():
    rng = np.random.default_rng(3)
    X, new = rng.standard_normal((60, 80)), rng.standard_normal((500, 80))
    gp = rfgp.GP(seed=0).fit(X, 2 * X[:, 4] - X[:, 9] + 0.3 * rng.standard_normal(60))
    assert gp.selection.chosen.name.endswith("few columns")
    assert np.mean((gp.predict(new).mean - 2 * new[:, 4] + new[:, 9]) ** 2) < 0.3 * 0.5


@pytest.mark.slow
@pytest.mark.parametrize("is_monthly", [True, False], ids=["months", "irregular"])
def test_seasons_are_found_and_continued(is_monthly):
    """Eight years; the following two are predicted. Without the season the error is that of its amplitude, 2."""
    rng = np.random.default_rng(4)
    t = np.arange(120) / 12 if is_monthly else np.sort(rng.uniform(0, 10, 120))
    y = 0.3 * t + 3 * np.sin(2 * np.pi * t) + 0.3 * rng.standard_normal(120)
    X, known = t, t < 8
    if is_monthly:
        X = np.arange("2010-01", "2020-01", dtype="datetime64[M]").astype("datetime64[D]")
    gp = rfgp.GP(seed=0, validate="forward" if is_monthly else None).fit({"t": X[known]}, y[known])
    assert "year" in gp.terms if is_monthly else "Periodic" in gp.selection.chosen.name
    assert np.sqrt(np.mean((gp.predict({"t": X[~known]}).mean - y[~known]) ** 2)) < 0.6


@pytest.mark.parametrize(
    ("target", "proposal"),
    [
        (lambda y: np.round(np.exp(y / 5)) * (y > 5), "poisson"),
        pytest.param(lambda y: y > 5, "bernoulli", marks=pytest.mark.slow),
        pytest.param(lambda y: np.round(y) + 20, None, marks=pytest.mark.slow),
    ],
    ids=["counts", "classes", "rounded"],
)
def test_other_likelihoods_are_proposed_and_not_taken(target, proposal):
    X, y = table(50, 1)
    reason = rfgp.GP(seed=0).select(X, target(y).astype(float)).reason
    assert [word for word in ("poisson", "bernoulli") if word in reason] == ([proposal] if proposal else [])


# --- noise -----------------------------------------------------------------------------------------


def noisy(kind, count=300):
    """Return training rows, and 1,000 test rows with the smooth function in them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (count + 1000, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2
    normal, tails = rng.standard_normal(len(f)), rng.standard_t(2.5, len(f))
    noise = {
        "even": 0.3 * normal,
        "inputs": 0.3 * np.exp(X[:, 0]) * normal,
        "mean": 0.1 * np.exp(f) * normal,
        "tails": 0.2 * tails,
        "outliers": 0.1 * normal + 4 * (rng.random(len(f)) < 0.05) * normal,
    }
    y = f + noise[kind]
    return X[:count], y[:count], X[count:], y[count:], f[count:]


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("inputs", 0.5),
        pytest.param("mean", 0.2, marks=pytest.mark.slow),
        pytest.param("tails", 0.1, marks=pytest.mark.slow),
        pytest.param("outliers", 0.4, marks=pytest.mark.slow),
    ],
)
def test_uneven_noise_gets_scales(kind, least):
    X, y, new, y_new, f_new = noisy(kind)
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y)
    p, noise = gp.predict(new), gp.selection.noise
    assert rfgp.metrics.nlpd(y_new, p) < rfgp.metrics.nlpd(y_new, p.unscaled) - least
    assert rfgp.metrics.interval_coverage(y_new, p, [0.95]).item() == pytest.approx(0.95, abs=0.035)
    assert gp.calibration([0.95]).coverage[0] == pytest.approx(0.95, abs=0.05)
    if kind == "inputs":
        assert 0.4 < np.mean(((p.mean - f_new) / p.std) ** 2) < 2.5
    assert noise.chosen.name in gp.selection.reason
    assert noise.chosen.last.value == max(trial.last.value for trial in noise.trials)
    assert noise.trials[0].last.difference > noise.trials[0].last.difference_error > 0
    assert noise.num_validation == 300
    before = p.observed().std
    gp.condition(new[:300], y_new[:300])  # other rows keep the scales
    assert np.corrcoef(np.log(before[300:]), np.log(gp.predict(new[300:]).observed().std))[0, 1] > 0.9


@pytest.mark.parametrize("kind", ["even", "inputs"])
def test_scales_change_neither_likelihood_nor_terms(kind):
    X, y, new, *_ = noisy(kind, 150)
    auto, plain = (rfgp.GP(k.RBF(), likelihood, seed=0).fit(X, y) for likelihood in ("auto", "gaussian"))
    assert auto.log_marginal_likelihood() == plain.log_marginal_likelihood()
    assert auto.hyperparameters.noise == plain.hyperparameters.noise
    assert plain.selection is None
    assert (auto.selection.noise.best == 0) == (kind == "even")
    far = auto.predict([[-1e6, 0.0], [1e6, 0.0]])
    if kind == "even":
        np.testing.assert_array_equal(auto.predict(new).observed().std, plain.predict(new).observed().std)
    else:
        assert far.std == pytest.approx(far.unscaled.std, rel=0.1)


def test_known_noise_and_outputs_have_no_scales():
    X, y, *_ = noisy("inputs", 100)
    known = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y, noise=np.full(len(y), 0.01))
    several = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, np.stack([y, y**2], axis=1))
    for gp in (known, several):
        assert gp.selection is None
        assert gp.predict(X[:3]).scales is None
    assert repr(rfgp.GP(k.RBF(), "auto")).startswith("GP(kernel=RBF(), likelihood='auto', seed=")


@pytest.mark.parametrize("approximation", [rfgp.RandomFeatures(64), rfgp.Vecchia(10)], ids=repr)
@pytest.mark.slow
def test_noise_of_many_rows_is_selected_on_held_out_rows(approximation, limits):
    limits(few_rows=200)
    X, y, new, y_new, _ = noisy("inputs", 600)
    gp = rfgp.GP(k.RBF(), "auto", approximation, seed=0).fit(X, y, max_iterations=15)
    assert (gp.selection.noise.validation, gp.selection.noise.num_validation) == ("held out", 120)
    p = gp.predict(new)
    assert rfgp.metrics.nlpd(y_new, p) < rfgp.metrics.nlpd(y_new, p.unscaled) - 0.4
    other = gp.with_approximation(rfgp.InducingPoints(60)).predict(new).observed().std
    assert np.median(other / p.observed().std) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("kind", [pytest.param("counts", marks=pytest.mark.slow), "classes"])
def test_likelihoods_of_counts_and_classes_are_scored(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (150, 1))
    rate = np.exp(1.5 * np.sin(2 * X[:, 0]))
    y = (rng.poisson(rate) if kind == "counts" else rng.random(150) < rate / (1 + rate)).astype(float)
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y)
    trials = {trial.options.get("likelihood"): trial for trial in gp.selection.noise.trials}
    for name in ["poisson", "negative-binomial"] if kind == "counts" else ["bernoulli"]:
        assert name in gp.selection.reason
        own = rfgp.GP(k.RBF(), name, seed=0).fit(X, y).leave_one_out().log_prob.mean()
        assert trials[name].last.value == pytest.approx(own, abs=0.02)
        assert trials[name].last.difference < 0  # ahead of the normal and Student-t noises


@pytest.mark.slow
def test_atoms_do_not_win_by_their_density():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2))
    y = np.where(rng.random(300) < 0.6, 0.0, np.exp(X[:, 0] + 0.5 * rng.standard_normal(300)))
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y)
    scale = stats.iqr(y) / 1.349 or y.std()
    density = np.exp(gp.predict(X).observed().log_prob(np.zeros(300))).max()
    assert density < 1.5 * np.sqrt(12) / (0.01 * scale)


@pytest.mark.parametrize("kernel", [k.RBF(), k.Group("g")], ids=["columns", "groups"])
def test_scales_do_not_learn_from_the_mean_of_the_other_rows(kernel):
    """The mean of all other rows determines the target of a row if there is nothing but noise."""
    rng = np.random.default_rng(1)
    X = {"g": rng.integers(0, 24, 120).astype(str)} if isinstance(kernel, k.Group) else rng.uniform(0, 6, (120, 1))
    assert rfgp.GP(kernel, "auto", seed=0).fit(X, rng.standard_normal(120)).selection.noise.best == 0


def test_outliers_keep_little_weight_after_condition_and_update():
    X, y, new, _, f = noisy("outliers", 150)
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y)
    for step in (lambda: gp, lambda: gp.condition(X, y), lambda: gp.update([[0.0, 0.0]] * 2, [9.0, 9.0])):
        step()
        assert np.sqrt(np.mean((gp.predict(new).mean - f) ** 2)) < 0.15
    before = gp.predict([[0.0, 0.0]]).mean[0]
    gp.update([[0.0, 0.0]], [9.0], sample_weight=[1e4])
    assert gp.predict([[0.0, 0.0]]).mean[0] > before + 0.1  # 1e4 rows of the smallest weight


# --- forecasts -------------------------------------------------------------------------------------

TIMES = {
    "dates": pd.date_range("2024-01-01", periods=60),
    "ascending numbers": np.arange(60.0),
    "numbers": np.r_[30:60, 0:30].astype(float),
}
WAVE = np.sin(np.arange(60.0))


def forecasts(predict):
    """Return the warnings about forecasts of a prediction."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        predict()
    return [str(entry.message) for entry in caught if entry.category is rfgp.ForecastWarning]


@pytest.mark.parametrize("kind", ["ascending numbers", pytest.param("dates", marks=pytest.mark.slow)])
def test_forecasts_of_an_interpolating_selection_warn(kind, tmp_path):
    t, gp = TIMES[kind], rfgp.GP(approximation=rfgp.RandomFeatures(4), seed=0)
    gp.fit({"t": t[:40]}, WAVE[:40], max_iterations=1)
    assert 'validate="forward"' in gp.selection.reason
    (message,) = forecasts(lambda: gp.predict({"t": t[40:60]}))
    assert "'t'" in message
    assert forecasts(lambda: gp.forecast(3)) == [message]
    gp.save(tmp_path / "model", data=False)
    loaded = rfgp.load(tmp_path / "model")
    assert forecasts(lambda: loaded.predict({"t": t[40:41]})) == [message]
    assert not forecasts(lambda: gp.predict({"t": t[39:60]}))
    gp.update({"t": t[40:50]}, WAVE[40:50])
    assert not forecasts(lambda: gp.predict({"t": t[45:50]}))
    assert forecasts(lambda: gp.predict({"t": t[50:60]}))


@pytest.mark.slow
def test_forward_selections_given_kernels_and_unordered_numbers_do_not_warn():
    forward = {"validate": "forward", "approximation": rfgp.RandomFeatures(4)}
    for kind, options in (
        ("dates", forward),
        ("dates", {"kernel": k.RBF("t")}),
        ("numbers", {"approximation": FEATURES}),
    ):
        t = TIMES[kind]
        gp = rfgp.GP(seed=0, **options).fit({"t": t[:40]}, WAVE[:40], max_iterations=1)
        ahead = t[-1:] if kind == "dates" else [70.0]
        assert not forecasts(lambda gp=gp, ahead=ahead: gp.predict({"t": ahead}))


# --- graphs, roads and meshes ----------------------------------------------------------------------

BALL = trimesh.creation.icosphere(2)
ROADS = graphs.RoadNetwork.from_lines(
    [np.array([[float(i), 0.0], [float(i + 1), 0.0]]) for i in range(6)], metric="euclidean"
)


def on_roads(noise=0.01):
    rng = np.random.default_rng(0)
    where = np.stack([rng.integers(0, 6, 60), rng.uniform(0, 1, 60)], axis=1)
    return where, np.sin(1.5 * where.sum(1)) + noise * rng.standard_normal(60)


def on_mesh(noise):
    rng = np.random.default_rng(3)
    X = BALL.vertices[rng.choice(len(BALL.vertices), 60, replace=False)]
    return X, np.sin(2 * X[:, 0]) + X[:, 2] + noise * rng.standard_normal(60)


SMOOTHNESS = {
    "roads": (lambda alpha: rfgp.RoadGP(ROADS, alpha, seed=0), on_roads, (1, 2)),
    "mesh": (lambda alpha: rfgp.MeshGP(BALL, alpha, within=0.5, seed=0), on_mesh, (2, 3, 4, np.inf)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMOOTHNESS)
def test_smoothness_has_the_weights_of_marginal_likelihoods(kind, tmp_path):
    make, data, alphas = SMOOTHNESS[kind]
    X, y = data(0.3)
    gp, single = make("auto").fit(X, y), {f"alpha={a}": make(a).fit(X, y) for a in alphas}
    left_out = {name: corrected(one, 4).mean() for name, one in single.items()}
    assert {trial.name: trial.last.value for trial in gp.selection.trials} == pytest.approx(left_out, abs=1e-3)
    weights = softmax([one.log_marginal_likelihood().item() for one in single.values()])
    weights = np.where(weights < 1e-3, 0, weights) / weights[weights >= 1e-3].sum()
    found = [gp.selection.parts.get(name, 0) for name in single]
    np.testing.assert_allclose(found, weights, atol=1e-3)
    assert len(gp.members) == (weights > 0).sum() > 1
    assert [weight for weight, _ in gp.members] == sorted(gp.selection.parts.values(), reverse=True)
    latent, observed = gp.predict(X), gp.predict(X).observed()
    for found, of in ((latent, lambda p: p), (observed, lambda p: p.observed())):
        parts = [(weight, of(model.predict(X))) for weight, model in gp.members]
        mean = sum(weight * part.mean for weight, part in parts)
        variance = sum(weight * (part.variance + (part.mean - mean) ** 2) for weight, part in parts)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(found.variance, variance, rtol=1e-9)
    densities = [np.log(weight) + model.predict(X).observed().log_prob(y) for weight, model in gp.members]
    np.testing.assert_allclose(observed.log_prob(y), np.logaddexp.reduce(densities), rtol=1e-9)
    gp.save(tmp_path / "model", data=False)
    np.testing.assert_array_equal(rfgp.load(tmp_path / "model").predict(X).variance, latent.variance)
    make("auto").condition(X, y).save(tmp_path / "begun", data=True)
    assert rfgp.load(tmp_path / "begun").fit(X, y).selection == gp.selection


@pytest.mark.parametrize("kind", SMOOTHNESS)
def test_clear_smoothness_is_a_single_model(kind):
    make, data, _ = SMOOTHNESS[kind]
    gp = make("auto").fit(*data(1e-3))
    assert gp.members == () == gp.selection.weights
    assert gp.selection.reason.startswith(f"{gp.selection.chosen.name}: the best")
    assert list(gp.predict(data(1e-3)[0]).terms) == [kind]


def test_smoothness_is_selected_if_models_cannot_be_averaged():
    X, y = on_mesh(0.3)
    for values, likelihood in ((np.stack([y, -y], 1), "gaussian"), (y > 0, "bernoulli")):
        gp = rfgp.MeshGP(BALL, likelihood=likelihood, within=0.5, seed=0).fit(X, values, max_iterations=2)
        scores = [trial.last.value for trial in gp.selection.trials]
        assert gp.members == ()
        assert gp.selection.best == np.argmax(scores)


def test_smoothness_is_the_first_without_time():
    late = rfgp.RoadGP(ROADS, "auto", time_limit=1e-9, seed=0).fit(*on_roads()).selection
    assert late.chosen.name == "alpha=1"
    assert "time limit" in late.trials[-1].status


# --- columns of text, categories and dates ---------------------------------------------------------


@pytest.mark.slow
def test_text_categories_and_truth_values_are_inputs():
    """They are selected on as columns of zeros and ones, but new levels are known to be new."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 100), "open": rng.uniform(size=100) < 0.5})
    frame["store"] = rng.choice(["north", "south", "west"], 100)
    frame["size"] = pd.Categorical(rng.choice(["s", "l"], 100), categories=["s", "l"], ordered=True)
    y = np.sin(4 * frame["x"]) + (frame["store"] == "south") + 0.5 * (frame["size"] == "l") + 0.3 * frame["open"]
    y = y + 0.05 * rng.standard_normal(100)
    gp = rfgp.GP(seed=0).fit(frame, y)
    coded = pd.get_dummies(frame, dtype=float).astype(float)
    assert rfgp.GP(seed=0).select(coded, y).parts == pytest.approx(gp.selection.parts, abs=1e-3)
    with pytest.warns(rfgp.NewLevelWarning):
        assert gp.predict(frame.assign(store="east")).std.mean() > gp.predict(frame).std.mean()


@pytest.mark.parametrize(
    ("count", "approximation"),
    [
        (200, "auto"),
        pytest.param(700, "auto", marks=pytest.mark.slow),
        pytest.param(300, rfgp.RandomFeatures(32), marks=pytest.mark.slow),
    ],
    ids=["exact", "equispaced", "given"],
)
def test_columns_of_many_levels_are_effects_in_all_candidates(count, approximation, limits):
    limits(few_rows=500)
    rng = np.random.default_rng(0)
    x, which = rng.uniform(-2, 2, count), rng.integers(0, 60, count)
    f = np.sin(2 * x) + rng.normal(size=60)[which]
    rows = {"x": x, "store": np.char.add("s", which.astype(str))}
    gp = rfgp.GP(approximation=approximation, seed=0, time_limit=60).fit(rows, f + 0.1 * rng.normal(size=count))
    found = gp.predict(rows)
    assert np.mean(np.abs(found.mean - f) < 2 * found.std + 0.02) > 0.9
    assert all("Group" in trial.name for trial in gp.selection.trials)
    assert gp.predict({"x": [0.0], "store": ["elsewhere"]}).std[0] > 0.7
