"""Rounds of a selection on held-out rows, with planted scores: which candidates go on, at which cost."""

from types import SimpleNamespace

import numpy as np
import pytest
from selection_cases import among, candidate, planted, rounds, spread, table

import rfgp
from rfgp import kernels as k
from rfgp.regression import Score
from rfgp.selection import costs, select, states, successive_halving, validation

NEAR, ROUGH, SMOOTH = (f"Matern {nu}, 30 neighbors" for nu in ("3/2", "1/2", "5/2"))
BOTH = f"RBF, 128 frequencies + {NEAR}"
POINTS = "Matern 3/2, 512 inducing points, 30 neighbors"
FIXED, LEARNED = "RBF, 128 frequencies", "RBF, 128 learned frequencies"
LESS, MORE, MOST = (f"RBF, {count} learned frequencies" for count in (64, 256, 512))


def many(time_limit=None):
    """Return the rounds of a selection on 2,100 rows, of which 1,680 are fitted to."""
    X = np.random.default_rng(0).uniform(-1, 1, (2100, 2))
    return rounds(rfgp.GP(seed=0, time_limit=time_limit), X, X[:, 0])


def statuses(made):
    return {state.candidate.name: state.status for state in made.states if state.fitted is None}


def only(made, *names):
    """Leave out all candidates but those of some names."""
    for state in made.states:
        state.status = "" if state.candidate.name in names else "left out"
    return made


# --- which candidates are scored --------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [ROUGH, SMOOTH, POINTS])
def test_variants_are_scored_in_the_last_round_alone(monkeypatch, variant):
    made = many(4000)
    asked = planted(monkeypatch, made, {NEAR: 1.0, variant: 2.0})
    assert made.run().candidate.name == variant
    assert [size for name, size in asked if name == variant] == [1680]


@pytest.mark.parametrize(("behind", "deviation"), [(0.04, 0.0), (0.06, 0.0), (0.06, 2.0)])
def test_variants_of_neighbors_clearly_behind_are_skipped(monkeypatch, behind, deviation):
    made = many(4000)
    planted(monkeypatch, made, {NEAR: spread(made.validation, 1.0, deviation), BOTH: 1.0 + behind})
    made.run()
    skipped = statuses(made)
    assert (ROUGH in skipped) == (behind == 0.06 and deviation == 0)
    assert all("variant" in skipped[name] for name in (ROUGH, SMOOTH) if name in skipped)
    assert not any("+" in name for name in skipped)


@pytest.mark.parametrize("behind", [0.2, 0.4])
def test_sums_are_skipped_if_neighbors_alone_are_far_behind(monkeypatch, behind):
    made = many()
    asked = planted(monkeypatch, made, {LEARNED: 1.0, NEAR: 1.0 - behind, BOTH: 1.5})
    is_taken = made.run().candidate.name == BOTH
    assert is_taken == (BOTH in dict(asked)) == (behind == 0.2)


@pytest.mark.parametrize("most", [1.005, 1.02])
def test_fewer_frequencies_are_skipped_if_more_are_better(monkeypatch, most):
    made = many(4000)
    asked = planted(monkeypatch, made, {LEARNED: 1.0, MORE: most, LESS: 0.9})
    made.run()
    order = [name for name, _ in asked if name in (LESS, MORE, MOST)]
    assert order == ([MORE, MOST, LESS] if most == 1.005 else [MORE, MOST])


def test_nothing_goes_on_if_a_linear_model_is_as_good(monkeypatch):
    made = many()
    asked = planted(monkeypatch, made, {NEAR: -8.9}, baseline=-8.9)
    assert made.run().candidate.name == NEAR
    assert {size for name, size in asked if "neighbors" in name} == {1000}
    assert asked[0] == (FIXED, 1680)  # the cheapest is first, and frequencies have four times as many rows


def test_learned_frequencies_no_better_than_fixed_are_left_out(monkeypatch):
    made = many()
    asked = planted(monkeypatch, made, {LEARNED: 2.0, FIXED: 1.0}, fell_back=[LEARNED])
    assert made.run().candidate.name == FIXED
    assert MORE not in dict(asked)
    assert "no better than fixed" in statuses(made)[LEARNED]


def test_at_most_two_candidates_go_on(monkeypatch):
    monkeypatch.setattr(successive_halving, "FEW", 30)
    trials = rfgp.GP(seed=0).select(*table(100, outputs=2)).trials  # several outputs are not averaged
    rows = [tuple(score.rows for score in trial.scores) for trial in trials]
    assert set(rows) == {(30,), (30, 100)}
    assert rows.count((30, 100)) <= successive_halving.GOING_ON
    assert all("worse than the best by" in trial.status for trial in trials if len(trial.scores) == 1)


def test_neighbors_begin_with_the_rows_that_others_needed(monkeypatch):
    made = many()
    asked = planted(monkeypatch, made, {NEAR: 1.0, BOTH: 1.2}, {NEAR: 1500})
    made.run()
    assert next(size for name, size in asked if name == BOTH) == 1500
    assert {state.scores[0].rows for state in made.states if state.candidate.name in (NEAR, BOTH)} == {1500}


# --- which candidate is taken -----------------------------------------------------------------------------


def test_cheaper_candidates_are_taken_within_noise_only():
    def state(seconds, difference, error):
        made = states.CandidateState(candidate(k.RBF(), rfgp.Exact()), costs.Cost(seconds * 2e10, 0.0), 0.0)
        made.scores = [Score(10, -difference, 1.0, difference, error)]
        return made

    def is_cheaper_taken(difference, error, predicted=0.0):
        both = [state(1.0, difference, error), state(9.0, 0.0, 0.0)]
        rows = SimpleNamespace(averages=False, begun=SimpleNamespace(num_observations=10))
        made = successive_halving.SuccessiveHalving(rows, both, None, predicted=predicted)
        return made.taken(both) is both[0]

    assert is_cheaper_taken(0.01, 0.02)
    assert not is_cheaper_taken(0.01, 0.02, predicted=8.5)  # the selection took longer than it would save
    assert not is_cheaper_taken(0.01, 0.005)
    assert not is_cheaper_taken(0.1, 0.2)


def test_the_cheapest_is_taken_if_all_fail(monkeypatch):
    made = many()
    monkeypatch.setattr(validation.Validation, "fitted", lambda *_: "planted")
    assert made.run().cost.seconds == min(state.cost.seconds for state in made.states)


# --- predicted costs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [15, 25, 40, 80, 400])
@pytest.mark.parametrize("best", [NEAR, BOTH, MORE])
def test_selection_and_fit_stay_within_the_limit(monkeypatch, limit, best):
    made = many(limit)
    planted(monkeypatch, made, {LEARNED: 1.9, NEAR: 1.8, best: 2.0})
    taken = made.run()
    assert made.predicted + taken.remaining(made.num_rows) <= limit
    is_short = any("no time" in status or "over the limit" in status for status in statuses(made).values())
    assert is_short == (limit < 400)
    assert limit < 80 or taken.candidate.name == best


def test_more_rows_than_asked_for_are_charged_once(monkeypatch):
    made = only(many(), NEAR)
    asked = planted(monkeypatch, made, {NEAR: 1.0}, {NEAR: 1680})
    state = next(each for each in made.states if each.candidate.name == NEAR)
    made.score([state], 1000, 0.0)
    search = costs.search_operations(state.candidate, 1680, 2, 1680)
    assert made.predicted == pytest.approx(
        (search + costs.posterior_operations(state.candidate, 1680, 2)) / select.RATE
    )
    made.score([state], 1680, 0.0)
    assert asked == [(NEAR, 1000)]


def test_scores_that_are_known_are_not_charged_again(monkeypatch):
    """A limit for one variant in addition to its head suffices in a second round, where the head has all rows."""
    limit = 400.0
    for sizes in ([1000], [1000, 1680]):
        monkeypatch.setattr(successive_halving.SuccessiveHalving, "sizes", lambda self, sizes=sizes: sizes)
        made = only(many(limit), LEARNED, LESS, MORE, MOST)
        planted(monkeypatch, made, {LEARNED: 1.9, LESS: 2.0})
        best = made.run()
        limit = 1.8 * made.predicted + best.remaining(made.num_rows)
    assert best.candidate.name == LESS


@pytest.mark.parametrize("share", [0.8, 0.81])
def test_frequencies_that_are_only_conditioned_cost_no_fit(monkeypatch, share):
    """Four fifths of all rows are fitted to, and the limit allows no other fit."""
    monkeypatch.setattr(successive_halving, "SHARE", 2.0)
    limit = 4000.0
    for _ in range(2):
        made = only(many(limit), LEARNED, MOST)
        planted(monkeypatch, made, {LEARNED: 1.9, MOST: 2.0})
        taken = made.run()
        limit = 1.01 * (made.predicted + taken.remaining(made.num_rows))
        monkeypatch.setattr(validation, "MOST", share)
    assert (taken.candidate.name == MOST) == (share == 0.8)


def test_scoring_is_predicted_for_the_rows_conditioned_on(monkeypatch):
    made = many()
    near = next(state for state in made.states if state.candidate.name == NEAR)
    monkeypatch.setattr(validation.Validation, "fitted", lambda *_: "planted")
    predicted = []
    for most, around in ((2**17, 0), (1000, 2), (1000, 0)):
        monkeypatch.setattr(validation, "MOST_GIVEN", most)
        monkeypatch.setattr(validation, "AROUND", around)
        made.predicted, near.status = 0.0, ""
        made.score([near], 200, 0.0)
        predicted.append(made.predicted)
    assert predicted[0] == predicted[1] > predicted[2]


# --- averages -----------------------------------------------------------------------------------------------

G, M32, M12, S32, S12 = "RBF", "Matern 3/2", "Matern 1/2", "RBF + Matern 3/2", "RBF + Matern 1/2"


@pytest.mark.parametrize(
    ("rows", "ranked", "limit", "going"),
    [
        (900, [G, M32, M12, S32, S12], None, [G, S32]),  # no sum fits in three seconds
        (600, [G, M32, M12, S32, S12], None, [G, M32, M12]),  # one would
        (900, [S32, S12, G, M32, M12], None, [S32, S12]),
        (300, [M32, G, M12, S32, S12], None, [M32, G, M12, S32, S12]),
        (900, [G, M32, M12, S32, S12], 8.0, [G, M32]),  # a sum is over the limit
        (1100, [G, M32, M12, S32, S12], None, [G, M32]),  # a sum takes over eight seconds
    ],
)
def test_a_sum_goes_on_in_place_of_others(monkeypatch, rows, ranked, limit, going):
    X = np.random.default_rng(0).uniform(-1, 1, (rows, 8))
    made = rounds(rfgp.GP(seed=0, time_limit=limit), X, X[:, 0])
    asked = planted(monkeypatch, made, {f"exact {name}": -0.01 * place for place, name in enumerate(ranked)})
    made.run()
    reached = dict(asked)
    assert [name for name in ranked if reached[f"exact {name}"] == min(rows, 1000)] == going


# --- plans --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_fixed", [True, False])
def test_learned_frequencies_have_rivals_beside_fixed_ones(has_fixed):
    counts = [(8, not has_fixed), (16, True)]
    gp = among(*(candidate(k.RBF(), rfgp.RandomFeatures(m, learn_frequencies=learned)) for m, learned in counts))
    made = rounds(gp, *table(300))
    assert made.holds_out
    assert made.validation.plan.has_rivals == has_fixed
