"""Successive halving: candidates that are not clearly worse than the best are fitted longer, and to more rows.

1. Drop candidates whose predicted cost of a fit to all rows exceeds the limits.
2. Fit each of the others to a few rows and score it, the cheapest first. Exact candidates take a few iterations.
   Learning of frequencies stops early if its learning curve cannot reach the best score so far.
3. Fit the best candidates and their followups to convergence and to more rows, and score them. Of exact candidates the
   best alone is fitted to all rows.
4. Choose the best. For few rows with Gaussian noise, average all that are not clearly worse.

Decisions depend on scores and predicted costs. They depend on a clock only if there is a time limit. Searches that are
under way at the deadline end at their best point, and their candidates are scored there.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rfgp.errors import CheckpointError, RfgpError
from rfgp.fitting import TIME_OVER, Plan
from rfgp.fitting.frequencies import mean_and_standard_error
from rfgp.limits import limits
from rfgp.models import Budget, Score
from rfgp.selection.candidates import Candidate
from rfgp.selection.costs import EVALUATIONS, Cost, fit_cost
from rfgp.selection.validation import (
    FittedCandidate,
    Validation,
    jacobian,
    score_of,
    stacking_weights,
)

CHEAP_FACTOR = 4
"""The factor of the number of rows for random features and equispaced grids, which are the cheapest."""
EXACT_ROWS, FIRST_ITERATIONS = (300, 600), 10
"""The rows of the rounds of exact candidates before the last, if there are more than half again as many, and the
iterations of the first round.

1,000 rows of friedman1, friedman3 and digits-20: a fit takes 0.6 to 0.95 of the time of one
that fits three candidates to all rows, and densities change by less than 0.01 nats. Without the round of 600 rows
digits-20 loses 0.02 nats.
"""
MAX_SURVIVORS = {True: 2, False: 3}
"""The maximum number of candidates that survive a round, by whether rows are held out."""
STANDARD_ERRORS = 2.0
"""The difference from the best, in standard errors, above which a candidate is clearly worse."""
SURVIVAL_MARGIN = 0.15
"""The difference from the best, in nats a row, up to which a candidate survives."""
AVERAGING_MARGIN = 0.1
"""The difference from the best, in nats a row, up to which a candidate is averaged.

A candidate without the seasons of the best must not be clearly worse at all, because it forecasts something else."""
LEAD_MARGIN = 0.005
"""The lead of the best candidate over the second, in nats a row, from which a further round scores its followups."""
NEGLIGIBLE_NOISE = 1e-3
"""The noise, in variances of the target, below which a candidate counts as noise-free."""
LINEAR_WEIGHT = 1e-4
"""The weight of a linear model in an average of noise-free candidates. It bounds the loss at an inconsistent row."""
MAX_FRACTION = 0.75
"""The maximum fraction of the time limit for the searches of a selection, and for the predicted fit to all rows.

The rest is for the fit to all rows, and for the searches."""


class Round(NamedTuple):
    """A round of a selection.

    It has the number of rows that candidates are fitted to, the most iterations, and whether only the best is fitted.
    The others keep their hyperparameters.
    """

    rows: int
    iterations: float = math.inf
    of_best: bool = False


@dataclass(eq=False)
class CandidateState:
    """A candidate in a selection.

    Attributes:
        candidate: The candidate.
        cost: The predicted cost of a fit to all rows.
        fitted: The last fit. If None, the candidate has not been fitted.
        done: The last round in which it was fitted.
        scores: The scores of the rounds, in order.
        status: Why the candidate was eliminated. If empty, it was not.
        weight: Its weight in the selected model.
        seconds: The elapsed seconds of its last fit and score.
        ended_early: Whether time was over before its search converged.
    """

    candidate: Candidate
    cost: Cost
    fitted: FittedCandidate | None = None
    done: Round = field(default_factory=lambda: Round(0))
    scores: list[Score] = field(default_factory=list)
    status: str = ""
    weight: float = 0.0
    seconds: float = 0.0
    ended_early: bool = False

    @property
    def score(self) -> float:
        """The mean log density in the last round. If there is none, -inf."""
        return self.scores[-1].value if self.scores else -math.inf

    @property
    def noise(self) -> float:
        """The fitted noise, in variances of the target."""
        assert self.fitted is not None
        return float(self.fitted.state.hyperparameters.standardized("noise"))

    @property
    def log_prob(self) -> Tensor:
        """The log densities of validation rows (b,)."""
        assert self.fitted is not None
        return self.fitted.log_prob.double().cpu()

    def is_within(self, margin: float) -> bool:
        """Return whether it is not clearly worse than the best, or within a margin of it.

        Args:
            margin: The margin, in nats a row.
        """
        last = self.scores[-1]
        return last.difference <= max(STANDARD_ERRORS * last.difference_error, margin)


class SuccessiveHalving:
    """The rounds of successive halving, each with fewer candidates on more rows.

    Args:
        validation: The rows.
        candidates: The candidates of the first round.
        limits: The limits of the selection and the fit.

    Attributes:
        states: The candidates, and the followups that were added to them.
        predicted: The predicted time of all fits so far, in seconds.
        measured: The elapsed time of these fits, in seconds.
    """

    def __init__(self, validation: Validation, candidates: Sequence[Candidate], limits: Budget) -> None:
        self.validation, self.limits = validation, limits
        self.predicted = self.measured = 0.0
        self.states = [CandidateState(candidate, self._cost(candidate)) for candidate in candidates]

    def run(self) -> list[CandidateState]:
        """Score the candidates and return those selected, by descending weight.

        If no candidate could be scored, the cheapest is selected.

        Returns:
            The selected candidates with their weights, the largest weight first.
        """
        if len(self.states) == 1 and not self.states[0].candidate.followups:
            return self.states
        self._drop_costly()
        active = sorted((state for state in self.states if not state.status), key=_priority)
        first, *others = self._rounds()
        active = self._with_seasons(active, first)
        self._score(active, first)
        for last in others:
            active = self._survivors(active)
            self._score(active, last)
        while self.holds_out and self._has_followups(active):
            active = self._survivors(active)
            self._score(active, others[-1])
        if self.validation.folds:
            active = self._score_in_folds(active)
        return self._chosen(ranked(active))

    @property
    def holds_out(self) -> bool:
        """Whether rows are held out."""
        return self.validation.held_out is not None

    def _rounds(self) -> list[Round]:
        """Return the rounds, the last of which has all rows of a fit that is scored by leave-one-out."""
        most, first = len(self.validation.rows), limits().first_rows
        if self.holds_out:
            return [Round(first), Round(2 * first)]
        if self.validation.folds:  # scores of rows of known groups decide nothing
            return [Round(most)]
        are_exact = self.validation.all_candidates_exact and self.validation.state.spec.is_gaussian
        wanted = {min(first, size) for size in EXACT_ROWS} if are_exact else {first}
        sizes = [size for size in sorted(wanted) if most > 1.5 * size]
        rounds = [Round(size) for size in sizes]
        if not are_exact:
            return [*rounds, Round(most)]
        return [Round([*sizes, most][0], FIRST_ITERATIONS), *rounds, Round(most, of_best=bool(sizes))]

    # --- elimination -----------------------------------------------------------------------------

    def _drop_costly(self) -> None:
        """Eliminate candidates that exceed the limits, but not the cheapest."""
        seconds, memory = self.limits.seconds(self.validation.state.num_observations), self.limits.memory
        for state in self.states:
            if state.cost.memory > memory:
                state.status = f"its predicted memory, {state.cost.memory:.2g} bytes, exceeds the limit of {memory:.2g}"
            elif state.cost.seconds > MAX_FRACTION * seconds:
                state.status = f"its predicted time exceeds {MAX_FRACTION:.0%} of the limit of {seconds:.3g} s"
        if all(state.status for state in self.states):
            min(self.states, key=lambda state: state.cost.seconds).status = ""

    def _with_seasons(self, states: Sequence[CandidateState], first: Round) -> list[CandidateState]:
        """Return the candidates with seasons if these improve the cheapest, otherwise those without."""
        seasonal = {state: state.candidate.seasonal for state in states if state.candidate.seasonal is not None}
        added = {state: CandidateState(candidate, self._cost(candidate)) for state, candidate in seasonal.items()}
        if not added:
            return list(states)
        cheapest = min(added, key=lambda state: state.cost.seconds)
        self._score([cheapest, added[cheapest]], first)
        gain = added[cheapest].score - cheapest.score
        is_better = gain >= LEAD_MARGIN
        self.states += added.values() if is_better else [added[cheapest]]
        for state in added if is_better else [added[cheapest]]:
            state.status = state.status or f"seasons gain {gain:.2g} nats a row"
        return [added.get(state, state) for state in states] if is_better else list(states)

    def _survivors(self, states: Sequence[CandidateState]) -> list[CandidateState]:
        """Return the candidates that survive a round, and their followups."""
        scored = ranked(states)
        survivors = [state for state in scored if state.is_within(SURVIVAL_MARGIN)][: MAX_SURVIVORS[self.holds_out]]
        for state in scored:
            if state not in survivors:
                state.status = f"worse than the best by {state.scores[-1].difference:.2g} nats a row"
        if not self.holds_out:
            return survivors
        followups = [candidate for state in survivors for candidate in self._followups(state)]
        added = [CandidateState(candidate, self._cost(candidate)) for candidate in followups]
        self.states += added
        return survivors + added

    def _followups(self, state: CandidateState) -> list[Candidate]:
        """Return the followups of a candidate that are not in the selection yet."""
        known = [other.candidate for other in self.states]
        return [candidate for candidate in state.candidate.followups if candidate not in known]

    def _has_followups(self, states: Sequence[CandidateState]) -> bool:
        """Return whether the best candidate has a lead and untried followups."""
        scored = ranked(states)
        has_lead = len(scored) < 2 or scored[1].scores[-1].difference >= LEAD_MARGIN
        return bool(scored) and has_lead and bool(self._followups(scored[0]))

    def _score_in_folds(self, states: Sequence[CandidateState]) -> list[CandidateState]:
        """Score candidates in folds, and return those that were scored.

        The score of rows of known groups is optimistic. If it is clearly below the best score in folds, the candidate
        cannot be the best and is not fitted again.
        """
        best, scored = -math.inf, list[CandidateState]()
        for state in ranked(states):
            assert state.fitted is not None
            most = state.score + state.fitted.optimism
            if most < best - AVERAGING_MARGIN:
                state.status = f"worse than the best by {best - most:.2g} nats a row"
                continue
            if scored and self.validation.plan.is_over():
                state.status = f"not refitted without folds: {self._time_over}"
                continue
            try:
                state.fitted = self.validation.scored_in_folds(state.fitted)
            except CheckpointError:
                raise
            except KeyboardInterrupt:
                self.validation.plan.deadline.interrupt()
                if not scored:
                    return ranked(states)
                state.status = f"not refitted without folds: {self._time_over}"
                continue
            except RfgpError as error:
                state.status = str(error)
                continue
            best = max(best, self._mean(state))
            scored.append(state)
        self._compare(scored)
        return scored

    def _chosen(self, scored: list[CandidateState]) -> list[CandidateState]:
        """Return the best candidate, or those that are averaged, with their weights."""
        if not scored:
            return [min(self.states, key=lambda state: (bool(state.status), state.cost.seconds))]
        if not self.validation.uses_stacking:
            scored[0].weight = 1.0
            return scored[:1]
        is_seasonal = scored[0].candidate.is_seasonal
        margins = [AVERAGING_MARGIN * (state.candidate.is_seasonal == is_seasonal) for state in scored]
        close = [state for state, margin in zip(scored, margins, strict=True) if state.is_within(margin)]
        weights = stacking_weights([state.log_prob for state in close], self.validation.validation_rows.counts())
        for state, weight in zip(close, weights, strict=True):
            state.weight = weight
        chosen = sorted((state for state in close if state.weight), key=lambda state: -state.weight)
        if all(state.noise <= NEGLIGIBLE_NOISE for state in chosen):
            fitted = [state for state in self.states if state.candidate.is_linear and state.fitted is not None]
            for linear in (state for state in fitted if state.noise > NEGLIGIBLE_NOISE):
                for state in chosen:
                    state.weight *= 1 - LINEAR_WEIGHT
                linear.weight = LINEAR_WEIGHT
                chosen.append(linear)
        return chosen

    # --- scores ----------------------------------------------------------------------------------

    def _score(self, states: Sequence[CandidateState], last: Round) -> None:
        """Fit candidates as a round says, and score them.

        If there is no time for more, a candidate keeps its last score. It is eliminated if it has none.
        """
        fits = ranked(states)[:1] if last.of_best else states
        for position, state in enumerate(fits, 1):
            now = Round(self._num_fit_rows(state.candidate, last.rows), last.iterations)
            if state.scores and state.done >= now:
                continue
            is_over = self.validation.plan.is_over()
            if is_over and not state.scores:
                state.status = f"not scored on {now.rows:,} rows: {self._time_over}"
            elif not is_over and self._fits_limits(state, now):
                self._fit(state, now, f"{position} of {len(fits)}")
            elif not state.scores:
                state.status = "not scored: the time limit is too short"
        self._compare([state for state in states if state.fitted is not None and not state.status])

    @property
    def _time_over(self) -> str:
        """The reason why a candidate was not fitted when time was over."""
        if self.validation.plan.deadline.reason != TIME_OVER:
            return self.validation.plan.deadline.reason
        return f"{MAX_FRACTION:.0%} of the time limit of {self.limits.time_limit:g} s had passed"

    def _fit(self, state: CandidateState, now: Round, position: str) -> None:
        """Fit a candidate in a round. `position`, such as "1 of 10", is shown."""
        candidate, validation = state.candidate, self.validation
        seconds = self._seconds(candidate, now)
        self.predicted += seconds
        plan, start_time = self._plan_for(candidate), time.monotonic()
        if now.iterations < plan.max_iterations:
            plan = replace(plan, iteration_limit=int(now.iterations))
        try:
            with validation.plan.reporter.about(f"selection, {position}, {candidate.name}, about {seconds:.2g} s"):
                fitted = validation.fitted(candidate, now.rows, self._warm_start_for(state), plan)
        except CheckpointError:
            raise
        except KeyboardInterrupt:
            if all(other.fitted is None for other in self.states):
                raise
            plan.deadline.interrupt()
            state.ended_early = True
            state.status = "" if state.scores else self._time_over
            return
        except RfgpError as error:
            state.status = str(error)
            return
        finally:
            state.seconds = time.monotonic() - start_time
            self.measured += state.seconds
        if fitted.report.learned_frequencies_rejected:
            state.status = "learned frequencies are no better than fixed ones"
        else:
            state.fitted, state.done = fitted, now
        state.ended_early = plan.deadline.was_reached

    def _compare(self, states: Sequence[CandidateState]) -> None:
        """Append the scores of a round, with differences from the best."""
        if not states:
            return
        counts = self.validation.validation_rows.counts()
        best = max(states, key=self._mean).log_prob
        for state in states:
            assert state.fitted is not None
            rows, optimism = state.fitted.num_search_rows, state.fitted.optimism
            state.scores.append(score_of(rows, state.log_prob, best, counts, optimism))

    def _mean(self, state: CandidateState) -> float:
        """Return the mean log density of a fitted candidate, before it is compared."""
        return mean_and_standard_error(state.log_prob, self.validation.validation_rows.counts())[0]

    def _plan_for(self, candidate: Candidate) -> Plan:
        """Return the fit options, with the gain required of learned frequencies.

        They must gain at least the lead of the best score over an equal number of fixed frequencies. A followup must
        also exceed the leave-one-out score of fewer learned frequencies by their distance from the best score.
        """
        plan, fitted_states = self.validation.plan, [state for state in self.states if state.fitted is not None]
        plan = replace(plan, deadline=plan.deadline.part())
        if not candidate.learns_frequencies or not fitted_states:
            return plan
        plan = replace(plan, fixed_also_compared=True)
        means = [self._mean(state) for state in fitted_states]
        for state, mean in zip(fitted_states, means, strict=True):
            other, lead = state.candidate, max(means) - mean
            is_fixed = other.features is not None and not other.learns_frequencies and not other.neighbors
            if is_fixed and other.num_features == candidate.num_features:
                plan = replace(plan, needed_gain=lead)
            if candidate in other.followups and state.fitted and state.fitted.report.leave_one_out is not None:
                score = state.fitted.report.leave_one_out - jacobian(self.validation.state, self.validation.rows)
                plan = replace(plan, needed_score=score + lead)
        return plan

    def _warm_start_for(self, state: CandidateState) -> FittedCandidate | None:
        """Return the last fit of a candidate, or of its parent with neighbors.

        It is None for learned frequencies, which start anew.
        """
        if state.candidate.learns_frequencies:
            return None
        parents = [other.fitted for other in self.states if state.candidate in other.candidate.followups]
        return state.fitted or (parents[0] if parents and state.candidate.neighbors is not None else None)

    def _num_fit_rows(self, candidate: Candidate, size: int) -> int:
        """Return the number of rows that a candidate is fitted to in a round."""
        if candidate.learns_frequencies:
            size = limits().sample_rows  # the model is then conditioned on all rows
        elif self.holds_out and candidate.neighbors is None and not (candidate.is_exact and not candidate.is_linear):
            size *= CHEAP_FACTOR
        return min(size, len(self.validation.rows))

    # --- costs -----------------------------------------------------------------------------------

    def _cost(self, candidate: Candidate, max_rows: int | None = None) -> Cost:
        """Return the predicted cost of a fit whose search uses `max_rows` rows."""
        rows = self.validation.rows
        distinct = len(rows) if rows.replicate_sum_of_squares is not None else self.validation.state.num_observations
        return fit_cost(candidate, distinct, rows.inputs.shape[1], rows.num_outputs, max_rows)

    def _seconds(self, candidate: Candidate, now: Round) -> float:
        """Return the predicted seconds of a round of a candidate."""
        return self._cost(candidate, now.rows).seconds * min(now.iterations / EVALUATIONS, 1.0)

    def _fits_limits(self, state: CandidateState, now: Round) -> bool:
        """Return whether a fit in a round and the longest final fit are within the limits.

        With a time limit, predictions are corrected by the time that the fits so far took, each extended by a second.
        """
        fits, limit = [state, *ranked(self.states)], self.limits.seconds(self.validation.state.num_observations)
        longest = max(0.0 if fit.candidate.learns_frequencies else fit.cost.seconds for fit in fits)
        needed = self._seconds(state.candidate, now) + longest
        if self.limits.time_limit is None:
            return self.predicted + needed <= max(limit, needed)
        needed *= (self.measured + 1) / (self.predicted + 1)
        return self.measured + needed <= max(limit, needed)


def _priority(state: CandidateState) -> tuple[bool, bool, float]:
    """Return the key by which candidates are sorted: linear ones, those with seasons, and the others, each by cost."""
    return not state.candidate.is_linear, not state.candidate.is_seasonal, state.cost.seconds


def ranked(states: Sequence[CandidateState]) -> list[CandidateState]:
    """Return the candidates that have scores and were not eliminated, the best first."""
    return sorted((state for state in states if state.scores and not state.status), key=lambda state: -state.score)


class Weighted(Protocol):
    """A scored candidate with its weight in a mixture."""

    weight: float

    @property
    def log_prob(self) -> Tensor:
        """The log densities of validation rows (b,)."""


def mixture_log_prob_of(states: Sequence[Weighted]) -> Tensor:
    """Return the log densities (b,) of validation rows under the mixture.

    Args:
        states: The candidates of the mixture, with their weights.
    """
    log_probs = torch.stack([state.log_prob for state in states], dim=1)
    return torch.logsumexp(log_probs + log_probs.new_tensor([state.weight for state in states]).log(), dim=1)
