"""Successive halving: candidates that are not clearly behind the best go on to more rows.

1. Candidates whose predicted cost of a fit to all rows is over the limits are left out.
2. Each of the others, except variants, is fitted to a few rows and scored.
3. At most the best two of those that are not clearly behind go on to more rows with their variants, from their
   hyperparameters. None goes on if rows are held out and the best is not clearly ahead of the baselines.
4. The best of the last round is taken, or the cheapest one that saves more seconds than the selection took and is
   behind by at most the standard error of the difference and 0.01 nats a row.

If rows are left out in turn under Gaussian noise, candidates go on in step 3 if the average would give them weight, and
in step 4 they are averaged (`rfgp.selection.stacking`).

Decisions depend on predicted costs and never on a clock, unless there is a time limit.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rfgp.regression import Limits
from rfgp.regression.selection_report import RATE
from rfgp.selection.costs import posterior_operations, search_operations
from rfgp.selection.pruning import BEHIND, NOISE, has_fewer_frequencies, reason_to_skip
from rfgp.selection.scores import mean_and_error, scores_of
from rfgp.selection.stacking import shares, with_tails
from rfgp.selection.states import CandidateState
from rfgp.selection.validation import Validation

FIRST, FEW, GROWTH = 1000, 250, 2
"""The rows of the first round if rows are held out, and if each is left out in turn; and the factor of the next round
if rows are held out."""
MORE = 4
"""The factor of the rows of frequencies alone, which cost least and gain most with rows (keggdirected, 128 frequencies,
1,000 and 4,000 rows: 0.93 and 1.13 nats a row)."""
SHARE = 0.75
"""The largest share of the allowed seconds that the fit to all rows may take."""
GOING_ON = 2
"""The most candidates that go on, without their variants."""
MOST_LEARNED = 2**15
"""The most rows that frequencies are learned from to be scored."""
A_HYPERPARAMETER = 10
"""The least rows for each hyperparameter of a sum of exact kernels. With fewer its leave-one-out score is too good (26
subsets of 8 tables: a median regret of 0.14 nats a row with sums, 0.03 with this rule)."""
SOON = 3.0
"""The predicted seconds that candidates other than the best may take in any case if each row is left out."""
ANOTHER = 8.0
"""The predicted seconds that the best sum of kernels may take if it is behind a kernel alone on 250 rows. (On four of
twenty splits of concrete no sum went on, which cost a quarter of a nat.)"""
FAR = 100.0
"""The nats of all rows by which a candidate may be behind on few rows, and still go on to be averaged."""
CATCHING_UP = 0.15
"""The nats a row by which a candidate may be behind on few rows if rows are held out, and still go on."""
TRIFLE = 0.002
"""The nats a row by which a cheaper candidate may be behind in any case."""


clock = time.monotonic
"""The clock of the time limit."""


@dataclass(eq=False)
class SuccessiveHalving:
    """The rounds of a selection.

    Args:
        validation: The rows.
        states: All candidates.
        limits: The limits of the selection and the fit.
        weights: The weights of the average that is taken, by the places of its candidates. Empty if one is taken.
        allowed: The candidates within the limits.
        compared: The candidates that were scored in the last round, with variants that were in no other.
        least: The rows that neighbours needed when fewer misled them, with which other neighbours begin.
        predicted: The predicted seconds of all fits so far.
        is_stopped: Whether the time limit ended the selection.
    """

    validation: Validation
    states: Sequence[CandidateState]
    limits: Limits
    weights: dict[int, float] = field(default_factory=dict)
    allowed: Sequence[CandidateState] = ()
    compared: list[CandidateState] = field(default_factory=list)
    least: int = 0
    predicted: float = 0.0
    is_stopped: bool = False

    def run(self) -> CandidateState:
        """Score candidates and return the best."""
        begun, seconds = clock(), self.limits.seconds(self.num_rows)
        self._leave_out(seconds)
        sizes, states = self.sizes(), [state for state in self.states if not state.status]
        self.allowed = states
        heads = sorted((one for one in states if self._head(one) is None), key=lambda state: state.cost.seconds)
        for number, size in enumerate(sizes):
            if number:
                heads = self._further(heads, states)
                if self.holds_out and (len(heads) < 2 or not self._affords(heads[0], self._rows_of(heads[0], size))):
                    break
            self.score(heads, size, begun)
            if self.is_stopped or _is_near_baselines(self.validation, heads):
                break
        best = self.taken([state for state in heads if state.fitted is not None])
        for state in self.states:
            if state.fitted is None and not state.status and state is not best:
                state.status = "not scored: a similar candidate went no further"
        return best

    @property
    def holds_out(self) -> bool:
        """Whether rows are held out."""
        return self.validation.held_out is not None

    @property
    def num_rows(self) -> int:
        """The number of all rows."""
        return self.validation.begun.num_observations

    def sizes(self) -> list[int]:
        """Return the rows of each round."""
        count, first = len(self.validation.rows), FIRST if self.holds_out else FEW
        if count <= 1.5 * first:
            return [count] if self.validation.averages else [count, count]  # the second for variants
        return [first, min(count, GROWTH * first) if self.holds_out else count]

    def _affords(self, state: CandidateState, rows: int) -> bool:
        """Return whether the limits allow a fit in addition to the longest fit that may follow the selection."""
        if not self.holds_out:  # the fit to all rows is one of these, or most of it
            return True
        left = [one.remaining(self.num_rows) for one in self.states if one.fitted is not None and not one.status]
        needed = 0.0 if state.is_scored(rows) else self._predicted(state, rows)
        longest = max([*left, state.remaining(self.num_rows, rows)])
        return self.predicted + needed + longest <= self.limits.seconds(self.num_rows)

    def _head(self, state: CandidateState) -> CandidateState | None:
        """Return the candidate of which this is a variant, if it is in the selection."""
        head = None if state.candidate.head is None else self.states[state.candidate.head]
        return None if head is None or (head.status and head.fitted is None) else head

    def _leave_out(self, seconds: float) -> None:
        """Leave out candidates over the limits. The cheapest stays."""
        columns = self.validation.rows.inputs.shape[1]
        for state in self.states:
            count = state.num_of_sum(columns)
            if count and self.num_rows < A_HYPERPARAMETER * count:
                state.status = f"{self.num_rows:,} rows are few for the {count} hyperparameters of a sum"
            elif state.cost.memory > self.limits.memory:
                state.status = f"{state.cost.memory:.2g} bytes are over the {self.limits.memory:.2g} allowed"
            elif state.cost.seconds > SHARE * seconds:
                state.status = f"over the limit of {seconds:.3g} s"
        if all(state.status for state in self.states):
            min(self.states, key=lambda state: state.cost.seconds).status = ""

    def _further(self, heads: Sequence[CandidateState], states: Sequence[CandidateState]) -> list[CandidateState]:
        """Return the candidates that go on: the best, others not clearly behind, and their variants."""
        if self.validation.averages:
            return self._in_average(heads)
        ranked = sorted((one for one in heads if one.fitted is not None), key=lambda state: -state.score)
        least = CATCHING_UP if self.holds_out else NOISE
        near = [one for one in ranked if one.scores[-1].difference <= _allowed(one, least)]
        if not self.holds_out:  # those that go on are fitted to all rows
            near = [state for state in near if state is ranked[0] or state.cost.seconds <= SOON]
        for state in ranked:
            if state not in near[:GOING_ON]:
                state.status = f"worse than the best by {state.scores[-1].difference:.2g} nats a row"
        going = near[:GOING_ON]
        variants = [state for state in states if self._head(state) in going]
        return [*going, *sorted(variants, key=lambda state: has_fewer_frequencies(state, self._head(state)))]

    # --- averaging -------------------------------------------------------------------------------

    @property
    def parts(self) -> list[tuple[float, CandidateState]]:
        """The candidates that are averaged with their weights, the largest first. Empty if one is taken."""
        found = [(weight, self.states[number]) for number, weight in self.weights.items() if weight]
        return sorted(found, key=lambda part: -part[0]) if len(found) > 1 else []

    def weight_of(self, state: CandidateState) -> float:
        """Return the weight of a candidate in the average, 0 if one was taken."""
        return self.weights.get(self.states.index(state), 0.0)

    def _in_average(self, heads: Sequence[CandidateState]) -> list[CandidateState]:
        """Return the best candidate, and those not clearly far behind that together cost no more than it.

        If the best is a kernel alone and there is no room for a sum, the best sum takes the place of the others.
        """
        ranked = sorted((one for one in heads if one.fitted is not None), key=lambda state: -state.score)
        if not ranked:
            return []
        best, far = ranked[0], FAR / float(self.validation.validated.counts().sum())
        for state in ranked:
            last = state.scores[-1]
            if last.difference - BEHIND * last.difference_error >= far:
                state.status = f"worse than the best by {last.difference:.2g} nats a row"
        ranked = [state for state in ranked if not state.status]
        needed = {state: self._needed(state) for state in ranked}
        allowed = self.limits.seconds(self.num_rows) - self.predicted - needed[best]
        most, spent, going = min(max(SOON, needed[best]), allowed), 0.0, [best]
        a_sum = next((state for state in ranked if state.candidate.is_sum), best)
        if most < needed[a_sum] <= min(ANOTHER, allowed):
            most, ranked = needed[a_sum], [best, a_sum]
        for state in ranked[1:]:
            if spent + needed[state] <= most:
                spent += needed[state]
                going.append(state)
        for state in needed:
            if state not in going:
                state.status = "the average would cost more than twice the best"
        return going

    def _needed(self, state: CandidateState) -> float:
        """Return the predicted seconds of a part of an average, scored on the rows and fitted to all."""
        count = len(self.validation.rows)
        return state.cost.seconds + (self._predicted(state, count) if count < self.num_rows else 0.0)

    # --- scores ----------------------------------------------------------------------------------

    def score(self, states: Sequence[CandidateState], size: int, begun: float) -> None:
        """Fit candidates to some rows and score them. Those that cannot be fitted go no further."""
        for number, state in enumerate(states):
            most = self.limits.time_limit
            if most is not None and clock() - begun > most:
                self.is_stopped = True
                for other in states[number:]:
                    other.status = f"not scored on {size:,} rows: the time limit of {most:g} s was over"
                break
            rows = self._rows_of(state, size)
            if state.is_scored(rows):
                continue
            state.status = self._why_not(state, rows)
            if not state.status:
                self._fit(state, rows, number, len(states))
        self._compare([state for state in states if state.fitted is not None and not state.status])

    def _why_not(self, state: CandidateState, rows: int) -> str:
        """Return why a candidate is not scored on some rows, empty if it is."""
        if self.holds_out:
            why = reason_to_skip(state, self._head(state), self.states, self.validation.validated.counts())
            if why:
                return f"not scored: {why}"
        return "" if self._affords(state, rows) else "the limit leaves no time to score it"

    def _rows_of(self, state: CandidateState, size: int) -> int:
        """Return the rows of a candidate in a round.

        Learned frequencies gain most with rows and cost no more beyond a batch, so they have up to 32,768. Rows that
        misled one candidate with neighbours mislead the others too.
        """
        one = state.candidate
        if one.is_lattice:
            size = len(self.validation.rows)
        elif one.learns_frequencies:
            size = MOST_LEARNED
        elif one.neighbors is not None:
            size = max(size, self.least)
        elif one.num_frequencies and self.holds_out:
            size *= MORE
        return min(size, len(self.validation.rows))

    def _fit(self, state: CandidateState, size: int, number: int, count: int) -> None:
        reporter, name = self.validation.plan.reporter, state.candidate.name
        seconds = self._predicted(state, size)
        self.predicted += seconds
        with reporter.about(f"selection, {number + 1} of {count}, {name}, about {seconds:.2g} s"):
            found = self.validation.fitted(state.candidate, size, state.fitted or state.fitted_of(self._head(state)))
        if isinstance(found, str):
            state.status = found
        elif self.validation.plan.has_rivals and found.report.frequencies == "fell back":
            state.status = "learned frequencies are no better than fixed ones"
        else:
            state.fitted = found
            if found.searched > size:
                self.predicted += self._predicted(state, found.searched) - seconds
                self.least = max(self.least, found.searched)

    def _predicted(self, state: CandidateState, size: int) -> float:
        columns, one = self.validation.rows.inputs.shape[1], state.candidate
        rows = min(size, len(self.validation.rows))
        search = search_operations(one, rows, columns, len(self.validation.rows))
        return (search + posterior_operations(one, self.validation.num_given(one, rows), columns)) / RATE

    def _compare(self, states: Sequence[CandidateState]) -> None:
        """Keep the scores of the candidates of a round, and their differences from the best."""
        if not states:
            return
        self.compared = list(states)
        rows = [state.fitted.searched for state in states if state.fitted is not None]
        found = scores_of(_densities(states), self.validation.validated.counts(), rows)
        for state, score in zip(states, found, strict=True):
            state.scores.append(score)

    def taken(self, states: Sequence[CandidateState]) -> CandidateState:
        """Return the best of the last round, or a cheaper one as good that saves much; of none the cheapest of all."""
        if not states:
            return min(self.allowed or self.states, key=lambda state: state.cost.seconds)
        there = [state for state in states if state in self.compared] or list(states)
        if self.validation.averages:
            weights = shares(_densities(there), self.validation.validated.counts())
            parts = with_tails([pair for pair in zip(there, weights, strict=True) if pair[1]], self.states)
            self.weights = {self.states.index(state): weight for state, weight in parts}
            return there[max(range(len(there)), key=weights.__getitem__)]
        best = max(there, key=lambda state: state.score)
        seconds = {state: state.remaining(self.num_rows) for state in there}
        saved = [state for state in there if seconds[best] - seconds[state] > self.predicted]
        good = [best, *(state for state in saved if state.scores[-1].difference <= _tolerated(state))]
        return min(good, key=lambda state: (seconds[state], state.scores[-1].difference))


def _is_near_baselines(validation: Validation, states: Sequence[CandidateState]) -> bool:
    """Return whether the best candidate is not clearly ahead of the baselines, if rows are held out."""
    found = [state for state in states if state.fitted is not None]
    if validation.held_out is None or not found:
        return False
    best = max(found, key=lambda state: state.score).densities
    assert best is not None
    weight = validation.validated.counts()
    ahead = [mean_and_error(best - density, weight) for density in validation.baselines.values()]
    return any(mean <= BEHIND * error for mean, error in ahead)


def _allowed(state: CandidateState, least: float) -> float:
    """Return the nats a row by which a candidate may be behind and go on."""
    return max(BEHIND * state.scores[-1].difference_error, least)


def _tolerated(state: CandidateState) -> float:
    """Return the nats a row by which a cheaper candidate may be behind and be taken."""
    return max(min(state.scores[-1].difference_error, NOISE), TRIFLE)


def _densities(states: Sequence[CandidateState]) -> list[Tensor]:
    return [found for state in states if (found := state.densities) is not None]
