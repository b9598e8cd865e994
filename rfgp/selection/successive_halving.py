"""Successive halving: candidates that are not clearly behind the best go on to a larger budget.

1. Candidates whose predicted cost of a fit to all rows is over the limits are left out.
2. Each of the others is fitted to a few rows and scored, the cheapest first. Learning of frequencies ends in the middle
   if its learning curve cannot reach the best score so far.
3. The best of them, and those not clearly behind it, are fitted to more rows and scored with their variants.
4. The best is taken; of few rows with Gaussian noise, an average of those that are not clearly behind.

Decisions depend on scores and predicted costs and never on a clock, unless there is a time limit.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from rfgp.fitting import Plan
from rfgp.fitting.frequencies import MARGIN
from rfgp.regression import Limits, Score, Trial
from rfgp.selection.candidates import Candidate
from rfgp.selection.costs import Cost, fit_cost
from rfgp.selection.stacking import mixture_density, stacking_weights
from rfgp.selection.validation import FittedCandidate, Validation

FIRST, FEW, GROWTH = 1000, 250, 2
"""The rows of the first round with neighbors, and of exact kernels; and the factor of the rows of the second round, if
rows are held out."""
MORE = 4
"""The factor of the rows of frequencies alone and lattices, which cost least."""
MOST_LEARNED = 2**15
"""The most rows that frequencies are learned from. They are then conditioned on all rows."""
GOING_ON = {True: 2, False: 4}
"""The most candidates that go on, if rows are held out, and if not."""
BEHIND = 2.0
"""The standard errors by which a candidate is clearly behind."""
CATCHING_UP, AVERAGED = 0.15, 0.1
"""The nats a row by which a candidate may be behind in any case and go on, and be scored in folds and averaged."""
MOST_AVERAGED, ROUNDED = 4, 3
"""The most candidates that are averaged, and the decimals of the scores by which they are chosen."""
QUIET, TAIL = 1e-3, 1e-4
"""The noise that counts as none, in variances of the target, and the weight of a line if no other candidate that is
averaged has any. Without it a new row that contradicts another has no density: 1,073 nats a row on 2,000 of protein."""
SHARE = 0.75
"""The largest share of the allowed seconds that the fit to all rows may take."""

clock = time.monotonic
"""The clock of the time limit."""


@dataclass(eq=False)
class CandidateState:
    """A candidate in a selection.

    Attributes:
        candidate: The candidate.
        cost: The predicted cost of a fit to all rows.
        fitted: The last fit. If None, there is none yet.
        scores: The scores of the rounds, in order.
        status: Why it goes no further. Empty while it does.
        weight: The weight in what was taken.
    """

    candidate: Candidate
    cost: Cost
    fitted: FittedCandidate | None = None
    scores: list[Score] = field(default_factory=list)
    status: str = ""
    weight: float = 0.0

    @property
    def score(self) -> float:
        """The last mean log density of validation rows, -inf without a score."""
        return self.scores[-1].value if self.scores else -math.inf

    @property
    def noise(self) -> float:
        """The fitted noise, in variances of the target."""
        assert self.fitted is not None
        return float(self.fitted.regression.hyperparameters.standardized("noise"))

    @property
    def density(self) -> Tensor:
        """The log densities of validation rows (b,)."""
        assert self.fitted is not None
        return self.fitted.density.double().cpu()

    def is_within(self, least: float) -> bool:
        """Return whether it is not clearly behind the best, or by at most so many nats a row."""
        last = self.scores[-1]
        return last.difference <= max(BEHIND * last.difference_error, least)

    def as_trial(self) -> Trial:
        """Return the record of the candidate."""
        one = self.candidate
        return Trial(one.name, one.values, self.cost.seconds, self.cost.memory, tuple(self.scores), self.status)


@dataclass(eq=False)
class SuccessiveHalving:
    """The rounds of a selection.

    Args:
        validation: The rows.
        states: The candidates, with their variants once these are scored.
        limits: The limits of the selection and the fit.
        predicted: The predicted seconds of all fits so far.
        begun: When the selection began, by the clock.
    """

    validation: Validation
    states: list[CandidateState]
    limits: Limits
    predicted: float = 0.0
    begun: float = field(default_factory=lambda: clock())

    @classmethod
    def of(cls, validation: Validation, candidates: Sequence[Candidate], limits: Limits) -> "SuccessiveHalving":
        """Return the rounds of candidates before any is scored."""
        found = cls(validation, [], limits)
        found.states = [found._state(one) for one in candidates]
        return found

    def run(self) -> list[CandidateState]:
        """Score candidates; return what is taken, the largest weight first: the cheapest if nothing could be scored."""
        if len(self.states) == 1 and not self.states[0].candidate.variants:
            return self.states
        self._leave_out()
        going = sorted((one for one in self.states if not one.status), key=lambda state: state.cost.seconds)
        sizes = self.sizes()
        for number, size in enumerate(sizes):
            if number:
                going = self._further(going, CATCHING_UP, GOING_ON[self.holds_out])
            self._score(going, size)
        while self.holds_out and has_variants(going, [state.candidate for state in self.states]):
            going = self._further(going, CATCHING_UP, GOING_ON[True])
            self._score(going, sizes[-1])
        if self.validation.folds:
            going = self._without_folds(going)
        return self._taken([state for state in going if state.scores and not state.status])

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
        if self.holds_out:
            return [first, GROWTH * first]
        return [count] if count <= 1.5 * first else [first, count]

    # --- who goes on -----------------------------------------------------------------------------

    def _leave_out(self) -> None:
        """Leave out candidates over the limits. The cheapest stays."""
        seconds = self.limits.seconds(self.num_rows)
        for state in self.states:
            if state.cost.memory > self.limits.memory:
                state.status = f"{state.cost.memory:.2g} bytes are over the {self.limits.memory:.2g} allowed"
            elif state.cost.seconds > SHARE * seconds:
                state.status = f"over the limit of {seconds:.3g} s"
        if all(state.status for state in self.states):
            min(self.states, key=lambda state: state.cost.seconds).status = ""

    def _further(self, states: Sequence[CandidateState], least: float, most: int) -> list[CandidateState]:
        """Return the best candidates that are not clearly behind, with their variants.

        Args:
            states: The candidates.
            least: The nats a row by which one may be behind in any case.
            most: The most candidates.
        """
        ranked = sorted((one for one in states if one.scores and not one.status), key=lambda state: -state.score)
        near = [state for state in ranked if state.is_within(least)][:most]
        for state in ranked:
            if state not in near:
                state.status = f"behind the best by {state.scores[-1].difference:.2g} nats a row"
        known = [state.candidate for state in self.states]
        variants = [one for state in near for one in state.candidate.variants if self.holds_out and one not in known]
        states = [self._state(one) for one in variants]
        self.states.extend(states)
        return [*near, *states]

    def _without_folds(self, states: Sequence[CandidateState]) -> list[CandidateState]:
        """Score candidates by fits without each fold, the best first; return those that were scored.

        A left-out score is optimistic, because the hyperparameters have seen the row. A candidate with an optimistic
        score clearly below the best honest one cannot be the best, and is not fitted again.
        """
        best, found = -math.inf, list[CandidateState]()
        for state in sorted((one for one in states if one.scores and not one.status), key=lambda one: -one.score):
            if state.score < best - AVERAGED:
                state.status = f"behind the best by {best - state.score:.2g} nats a row"
                continue
            assert state.fitted is not None
            state.fitted = self.validation.without_folds(state.fitted)
            best = max(best, mean_and_error(state.density, self.validation.validated.counts())[0])
            found.append(state)
        self._compare(found)
        return found

    def _taken(self, states: Sequence[CandidateState]) -> list[CandidateState]:
        """Return the best candidate, or those that are averaged, with their weights."""
        ranked = sorted(states, key=lambda state: -state.score)[: None if self.validation.averages else 1]
        if self.validation.averages:  # of equals the cheapest, whatever the rounding
            ranked.sort(key=lambda state: (-round(state.score, ROUNDED), state.cost.seconds))
        near = [state for state in ranked if state.is_within(AVERAGED)][:MOST_AVERAGED]
        if not near:  # nothing could be scored
            return [min(self.states, key=lambda state: (bool(state.status), state.cost.seconds))]
        weights = stacking_weights([state.density for state in near], self.validation.validated.counts())
        for state, weight in zip(near, weights, strict=True):
            state.weight = weight
        taken = sorted((state for state in near if state.weight), key=lambda state: -state.weight)
        if self.validation.averages and all(state.noise <= QUIET for state in taken):
            self._add_line(taken)
        return taken

    def _add_line(self, taken: list[CandidateState]) -> None:
        """Add a linear candidate with noise, with a small weight, to candidates without noise."""
        for line in self.states:
            if line.candidate.is_line and line.fitted is not None and line.noise > QUIET:
                for state in taken:
                    state.weight *= 1 - TAIL
                line.weight = TAIL
                taken.append(line)

    # --- scores ----------------------------------------------------------------------------------

    def _score(self, states: Sequence[CandidateState], size: int) -> None:
        """Fit candidates to some rows and score them. Those that cannot be fitted go no further."""
        most = self.limits.time_limit
        for number, state in enumerate(states):
            rows = self._rows_of(state.candidate, size)
            if state.scores and state.scores[-1].rows >= rows:
                continue
            if most is not None and clock() - self.begun > most:
                state.status = f"not scored on {rows:,} rows: the time limit of {most:g} s was over"
            elif not self._affords(state, rows):
                state.status = "the limit leaves no time to score it"
            else:
                self._fit(state, rows, f"{number + 1} of {len(states)}")
        self._compare([state for state in states if state.fitted is not None and not state.status])

    def _fit(self, state: CandidateState, size: int, place: str) -> None:
        one, validation = state.candidate, self.validation
        seconds = self._cost(one, size).seconds
        self.predicted += seconds
        with validation.plan.reporter.about(f"selection, {place}, {one.name}, about {seconds:.2g} s"):
            found = validation.fitted(one, size, state.fitted or self._start_of(one), self._plan_of(one))
        if isinstance(found, str):
            state.status = found
        elif found.report.frequencies == "fell back":
            state.status = "learned frequencies are no better than fixed ones"
        else:
            state.fitted = found

    def _compare(self, states: Sequence[CandidateState]) -> None:
        """Keep the scores of the candidates of a round, and their differences from the best."""
        rows = [state.fitted.searched for state in states if state.fitted is not None]
        found = scores_of([state.density for state in states], self.validation.validated.counts(), rows)
        for state, score in zip(states, found, strict=True):
            state.scores.append(score)

    def _plan_of(self, candidate: Candidate) -> Plan:
        """Return the options of a fit, with what learned frequencies must reach to be the best so far.

        It is the lead of the best over as many fixed frequencies, or over fewer learned ones on the same rows.
        """
        plan, known = self.validation.plan, [state for state in self.states if state.fitted is not None]
        if not candidate.learns_frequencies or not known:
            return plan
        plan = replace(plan, has_rivals=True)
        weight = self.validation.validated.counts()
        means = {state: mean_and_error(state.density, weight)[0] for state in known}
        for state in known:
            lead = max(means.values()) - means[state]
            if candidate.learns_those_of(state.candidate):
                plan = replace(plan, needed_gain=lead)
            if candidate in state.candidate.variants and state.fitted and state.fitted.report.leave_one_out is not None:
                score = state.fitted.report.leave_one_out - self.validation.jacobian
                plan = replace(plan, needed_score=score + lead)
        return plan

    def _start_of(self, candidate: Candidate) -> FittedCandidate | None:
        """Return the fit of the candidate of which this is a variant with other neighbors."""
        heads = [state for state in self.states if candidate in state.candidate.variants]
        return heads[0].fitted if heads and candidate.neighbors is not None else None

    def _rows_of(self, candidate: Candidate, size: int) -> int:
        """Return the rows of a candidate in a round."""
        if candidate.learns_frequencies:
            size = MOST_LEARNED
        elif self.holds_out and candidate.neighbors is None and not (candidate.is_exact and not candidate.is_line):
            size *= MORE
        return min(size, len(self.validation.rows))

    # --- costs -----------------------------------------------------------------------------------

    def _state(self, candidate: Candidate) -> CandidateState:
        return CandidateState(candidate, self._cost(candidate))

    def _cost(self, candidate: Candidate, most_rows: int | None = None) -> Cost:
        """Return the predicted cost of a fit whose hyperparameters are searched for on so many rows, or on all."""
        rows = self.validation.rows
        distinct = len(rows) if rows.scatter is not None else self.num_rows
        return fit_cost(candidate, distinct, rows.inputs.shape[1], rows.num_outputs, most_rows)

    def _affords(self, state: CandidateState, rows: int) -> bool:
        """Return whether the limits allow a score in addition to the longest fit that may follow."""
        going = [one for one in self.states if one is state or (one.scores and not one.status)]
        longest = max(0.0 if one.candidate.learns_frequencies else one.cost.seconds for one in going)
        needed = self._cost(state.candidate, rows).seconds
        return self.predicted + needed + longest <= max(self.limits.seconds(self.num_rows), needed + longest)


def has_variants(states: Sequence[CandidateState], known: Sequence[Candidate]) -> bool:
    """Return whether the best candidate is ahead of the others and has variants that are not known."""
    ranked = sorted((one for one in states if one.scores and not one.status), key=lambda state: -state.score)
    if not ranked or (len(ranked) > 1 and ranked[1].scores[-1].difference < MARGIN):
        return False
    return any(one not in known for one in ranked[0].candidate.variants)


def mean_and_error(
    values: Tensor,  # (b,)
    weight: Tensor,  # (b,)
) -> tuple[float, float]:
    """Return the weighted mean of independent values (b,) and its standard error."""
    share = weight / weight.sum()
    mean = float((share * values).sum())
    error = math.sqrt(float((share.square() * (values - mean).square()).sum()))
    return mean, error * math.sqrt(len(values) / max(len(values) - 1, 1))


def scores_of(
    densities: Sequence[Tensor],  # (b,) each
    weight: Tensor,  # (b,)
    rows: Sequence[int],
) -> list[Score]:
    """Return the scores of candidates, and the difference of each from the best.

    Args:
        densities: The log densities of validation rows by each candidate.
        weight: The number of times that each validation row counts.
        rows: The number of rows that each candidate was fitted to.
    """
    means = [mean_and_error(density, weight) for density in densities]
    if not means:
        return []
    best = densities[max(range(len(means)), key=lambda number: means[number][0])]
    triples = zip(rows, means, densities, strict=True)
    return [Score(n, *mean, *mean_and_error(best - density, weight)) for n, mean, density in triples]


def density_of(states: Sequence[CandidateState]) -> Tensor:
    """Return the log densities (n,) of validation rows by candidates with their weights."""
    return mixture_density([state.density for state in states], [state.weight for state in states])
