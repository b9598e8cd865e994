"""Rounds of a selection, with planted scores: which candidates go on, at which cost."""

import sys
from functools import partial

import numpy as np
import pytest
from selection_cases import halving, planted, spread, table

import rfgp
from rfgp.selection import candidates, successive_halving
from rfgp.selection.validation import Validation

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
NEAR, ROUGH, SMOOTH = (f"Matern {nu}, 30 neighbors" for nu in ("3/2", "1/2", "5/2"))
BOTH = f"RBF, 128 frequencies + {NEAR}"
FIXED, LEARNED = "RBF, 128 frequencies", "RBF, 128 learned frequencies"
MORE, MOST = (f"RBF, {count} learned frequencies" for count in (256, 512))


def many(count=2100, **options):
    """Return the successive halving of a selection. Four fifths of the rows are fitted to."""
    X = np.random.default_rng(0).uniform(-1, 1, (count, 2))
    return halving(rfgp.GP(seed=0, **options), X, X[:, 0])


def best_of(made):
    (taken,) = made.run()
    return taken.candidate.name


def failed(*_):
    raise rfgp.SolverError("planted")


def statuses(made):
    return {state.candidate.name: state.status for state in made.states}


def test_candidates_of_one_column_differ():
    """With one column, an isotropic kernel is the same as one with a lengthscale for each column."""
    X, y = table(60)
    made = halving(rfgp.GP(seed=0), X[:, :1], y)
    assert not any("isotropic" in state.candidate.name for state in made.states)


def test_seasons_of_a_week_and_a_year_are_scored_together(monkeypatch):
    """Seasons come before other kernels of the same cost, which the limit leaves out."""
    days = np.arange("2020-01-01", "2024-01-01", dtype="datetime64[D]")
    made = halving(rfgp.GP(seed=0), {"day": days}, np.arange(len(days)) % 7.0)
    asked = planted(monkeypatch, {})
    monkeypatch.setattr(successive_halving.CandidateState, "noise", 0.1)
    made.run()
    assert "exact Linear + RBF + Periodic 7 + Periodic 365.243" in [name for name, *_ in asked]


@pytest.mark.parametrize(("gain", "is_seasonal"), [(0.1, True), (0.001, False)])
def test_seasons_join_all_terms_if_they_improve_the_cheapest(monkeypatch, gain, is_seasonal):
    rng, season = np.random.default_rng(0), " + Periodic 7 + Periodic 365.243"
    X = {"day": np.datetime64("2010-01-01") + np.arange(2100)} | {name: rng.uniform(size=2100) for name in "abc"}
    made = halving(rfgp.GP(seed=0, time_limit=4000), X, X["a"])
    asked = planted(monkeypatch, {NEAR: 1.0, NEAR + season: 1.0 + gain, BOTH: 1.2, BOTH + season: 1.3})
    assert best_of(made) == BOTH + season * is_seasonal
    assert (BOTH in [name for name, *_ in asked]) != is_seasonal


# --- which candidates are scored --------------------------------------------------------------------------


@pytest.mark.parametrize(("parent", "followup"), [(NEAR, ROUGH), (NEAR, SMOOTH), (LEARNED, MORE)])
def test_followups_are_scored_if_their_parent_survives(monkeypatch, parent, followup):
    made = many(time_limit=4000)
    asked = planted(monkeypatch, {parent: 1.0, followup: 2.0})
    assert best_of(made) == followup
    assert [size for name, size, _ in asked if name == followup] == [1680]


@pytest.mark.parametrize(("best", "is_scored"), [("Matern 3/2", True), ("Linear", False)])
def test_rough_kernel_of_few_columns_follows_a_less_rough_one(monkeypatch, best, is_scored):
    monkeypatch.setattr(candidates, "MAX_COLUMNS", 3)
    asked = planted(monkeypatch, {best: 1.0, "RBF": 0.99})
    assert best_of(many(time_limit=4000)) == best
    assert ("Matern 1/2" in [name for name, *_ in asked]) == is_scored


@pytest.mark.parametrize(("ahead", "is_scored"), [(0.1, True), (0.001, False), (-0.1, False)])
def test_most_frequencies_are_scored_if_half_as_many_are_ahead(monkeypatch, ahead, is_scored):
    made = many(time_limit=4000)
    asked = planted(monkeypatch, {LEARNED: 1.0, MORE: 1.0 + ahead, MOST: 2.0})
    assert (best_of(made) == MOST) == is_scored
    assert (MOST in [name for name, *_ in asked]) == is_scored


@pytest.mark.parametrize(("behind", "deviation"), [(0.14, 0.0), (0.16, 0.0), (0.16, 9.0)])
def test_candidates_clearly_behind_go_no_further(monkeypatch, behind, deviation):
    """The standard error of a difference is that of 420 rows."""
    made = many(time_limit=4000)
    planted(monkeypatch, {NEAR: partial(spread, mean=1.0, deviation=deviation), BOTH: 1.0 + behind})
    assert best_of(made) == BOTH
    is_behind = behind > successive_halving.SURVIVAL_MARGIN and not deviation
    assert (ROUGH not in statuses(made)) == is_behind
    assert ("worse than the best" in statuses(made)[NEAR]) == is_behind


def test_at_most_two_held_out_candidates_go_on(monkeypatch):
    made = many(time_limit=4000)
    asked = planted(monkeypatch, {NEAR: 1.0, BOTH: 0.99, FIXED: 0.98})
    made.run()
    names = [name for name, size, _ in asked if size == 1680]
    assert NEAR in names
    assert "worse than the best" in statuses(made)[FIXED]


def test_learned_frequencies_no_better_than_fixed_are_left_out(monkeypatch):
    made = many()
    planted(monkeypatch, {LEARNED: 2.0, FIXED: 1.0}, fell_back=[LEARNED])
    assert best_of(made) == FIXED
    assert "no better than fixed" in statuses(made)[LEARNED]
    assert MORE not in statuses(made)


def test_learned_frequencies_know_the_gain_they_need(monkeypatch):
    """It is that over as many fixed frequencies, or over fewer learned ones, by their score on the same rows."""
    made = many(time_limit=4000)
    asked = planted(monkeypatch, {FIXED: 1.0, NEAR: 1.4, LEARNED: 1.3})
    made.run()
    plans = {name: plan for name, _, plan in asked}
    assert plans[LEARNED].needed_gain == pytest.approx(0.4)
    assert plans[MORE].needed_score + made.validation.jacobian == pytest.approx(1.3 + 0.3 + 0.1)
    assert plans[NEAR].needed_gain == plans[NEAR].needed_score == -np.inf
    assert [plans[name].fixed_also_compared for name in (LEARNED, MORE, NEAR)] == [True, True, False]


def test_clearly_worse_candidates_are_not_refitted_in_folds(monkeypatch):
    """The best left-out score is 3; without folds it is 1, and candidates with less than 0.9 cannot be the best."""
    refitted = []

    def scored_in_folds(self, found):
        refitted.append(found.candidate.name)
        found.log_prob = spread(self, {"exact RBF": 1.0, "exact Matern 3/2": 2.0}.get(found.candidate.name, 0.5))
        return found

    monkeypatch.setattr(Validation, "scored_in_folds", scored_in_folds)
    monkeypatch.setattr(successive_halving.CandidateState, "noise", 0.1)
    scores = {"exact RBF": 3.0, "exact Matern 3/2": 2.5, "exact Matern 1/2": 1.95, "exact Linear": 1.85}
    planted(monkeypatch, scores)
    made = halving(rfgp.GP(seed=0), *table(60))
    assert made.validation.folds
    assert best_of(made) == "exact Matern 3/2"
    assert refitted == ["exact RBF", "exact Matern 3/2", "exact Matern 1/2"]
    assert "worse than the best" in statuses(made)["exact Linear"]


def test_the_cheapest_is_taken_if_all_fail(monkeypatch):
    made = many()
    monkeypatch.setattr(Validation, "fitted", failed)
    (taken,) = made.run()
    assert taken.cost.seconds == min(state.cost.seconds for state in made.states)
    assert taken.status == "planted"


# --- limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [15, 25, 40, 80, 400])
@pytest.mark.parametrize("best", [NEAR, BOTH, MORE])
def test_selection_and_fit_stay_within_the_limit(monkeypatch, limit, best):
    made = many(time_limit=limit)
    planted(monkeypatch, {LEARNED: 1.9, NEAR: 1.8, best: 2.0})
    (taken,) = made.run()
    fit = 0.0 if taken.candidate.learns_frequencies else taken.cost.seconds
    assert made.predicted + fit <= limit
    assert limit < 80 or taken.candidate.name == best


@pytest.mark.parametrize("limit", [20, 40, 60, 100, 4000])
def test_the_best_score_counts_without_time_for_more_rows(monkeypatch, limit):
    made = many(12_000, time_limit=limit)
    planted(monkeypatch, {FIXED: 2.0})
    (taken,) = made.run()
    assert taken.score == max(state.score for state in made.states) > -np.inf
    assert limit < 40 or taken.candidate.name == FIXED


def test_the_best_score_counts_when_the_time_is_over(monkeypatch):
    made = many(12_000, time_limit=4000)
    asked = planted(monkeypatch, {FIXED: 2.0, NEAR: 1.99})
    count = len(made.states)  # the fits of the first round
    monkeypatch.setattr(sys.modules["rfgp.fitting.maximize"], "clock", lambda: np.inf if len(asked) >= count else 0.0)
    assert best_of(made) == FIXED
    assert len(asked) == count


def test_several_outputs_of_few_rows_are_not_averaged(limits):
    limits(first_rows=30)
    selection = rfgp.GP(seed=0).select(*table(150, outputs=2))
    rows = [tuple(score.rows for score in trial.scores) for trial in selection.trials]
    assert set(rows) == {(30,), (30, 150)}
    assert rows.count((30, 150)) <= successive_halving.MAX_SURVIVORS[False]
    assert selection.weights == ()


def test_a_clock_ends_scoring(monkeypatch):
    ticks = iter(range(0, 10**6, 100))
    monkeypatch.setattr(sys.modules["rfgp.fitting.maximize"], "clock", lambda: next(ticks))
    trials = rfgp.GP(seed=0, time_limit=2500).fit(*table(), max_iterations=2).selection.trials
    assert 0 < sum(bool(trial.scores) for trial in trials) < len(trials)
    assert "time limit" in trials[-1].status
