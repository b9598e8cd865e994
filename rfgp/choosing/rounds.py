"""Rounds of measuring: what is not clearly behind the best goes on, on more rows.

1. Candidates whose fit to all rows is predicted to be over the budget or the memory are left out; later those for
   whose measuring the budget has no room beside the dearest fit that may come after it.
2. Each of the others, but those that are variants of another, is fitted to a few rows and judged.
3. Those that are not clearly behind the best, or may catch up, go on, the best two at most, with their variants, on
   more rows, from the hyperparameters that they have; none where rows are kept out and the best is not clearly ahead
   of a constant or a straight line. What cannot win by then, as others like it say, is passed over.
4. Of the last round the best is taken, or the cheapest that saves more seconds than the measuring took and is behind
   by no more than the standard error of that difference, and by no more than a hundredth of a nat (or by a trifle).

Where each row is left out, of one output with normal noise, all that have a share of the average go on in step 3, and
in step 4 they are averaged (`rfgp.choosing.averages`).

What is allowed and who goes on depends on predicted costs, never on a clock.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rfgp.choosing.averages import mean_and_error, measured, shares, with_tails
from rfgp.choosing.costs import posterior_operations, search_operations
from rfgp.choosing.entries import Entry
from rfgp.choosing.grounds import Grounds, is_near
from rfgp.regression import FeatureOptions, KernelOptions
from rfgp.regression.record import RATE, Limits
from rfgp.regression.table.offers import in_words

BEHIND, NOISE = 2.0, 0.01
"""Standard errors from which on a candidate is clearly behind; and nats a row by which it may be behind at most, within
one, where it is cheaper."""
ANOTHER_KIND = 0.05
"""Nats a row by which neighbours may be clearly behind, and others of their kind are measured all the same. (On three
of seven large tables Matern 5/2 was ahead of 3/2, by .006, .03 and .11 nats; by .11 where all were far behind.)"""
BESIDE = 0.3
"""Nats a row by which neighbours alone may be behind, and are measured with features beside them all the same: on nine
tables, both fitted in full, 128 frequencies gained .21 nats of rows held out at most (kin40k)."""


def why_vain(
    entry: Entry,
    head: Entry | None,
    entries: Sequence[Entry],
    weight: Tensor,  # (b,)
) -> str:
    """Return why a candidate need not be measured, or nothing.

    Args:
        entry: The candidate.
        head: That of which it is a variant.
        entries: All of them.
        weight: How often each row that judges counts.
    """
    options = entry.offer.options
    if head is not None and _features(head.offer.options) == _features(options):
        if is_near(options) and _is_behind(head, entries, weight, ANOTHER_KIND):
            return "a variant of what is clearly behind"
        if has_fewer(entry, head) and _is_behind(head, entries, weight, NOISE):
            return "more frequencies are clearly better"
    elif head is None and is_near(options) and options.features is not None:
        alone = [e for e in entries if (None, options.local) == (e.offer.options.features, e.offer.options.local)]
        if any(_is_behind(other, entries, weight, BESIDE) for other in alone):
            return "neighbours alone are far behind"
    return ""


def has_fewer(entry: Entry, head: Entry | None) -> bool:
    """Return whether a candidate has fewer frequencies than what it is a variant of."""
    return head is not None and _number(entry.offer.options) < _number(head.offer.options)


def _is_behind(entry: Entry, entries: Sequence[Entry], weight: Tensor, least: float) -> bool:
    """Return whether a candidate is clearly behind another by so much, of those that are still in the rounds."""
    own = entry.densities
    if own is None or entry.remark:
        return False
    others = [other.densities for other in entries if not other.remark]
    ahead = [mean_and_error(density - own, weight) for density in others if density is not None]
    return any(mean > max(BEHIND * error, least) for mean, error in ahead)


def _features(options: KernelOptions) -> tuple[str | None, str | None]:
    return options.features, getattr(options, "frequencies", None)


def _number(options: KernelOptions) -> int:
    return getattr(options, "num_frequencies", 0)


FIRST, FEW, GROWTH = 1000, 250, 2
"""Rows of the first round: where rows are kept out, and where each is left out; and how many times more the next has of
those that are kept out."""
MORE = 4
"""How many times more rows frequencies alone see than others: their fits cost least, and gain most with rows
(keggdirected, 128 of them, 1,000 and 4,000 rows: .93 and 1.13 nats a row kept out)."""
SHARE = 0.75
"""Of the budget, what the fit to all rows may take at most."""
GOING_ON = 2
"""Candidates that go on at most, without their variants."""
MOST_LEARNED = 2**15
"""Rows that frequencies are learned from to be judged."""
A_HYPERPARAMETER = 10
"""Rows for each hyperparameter from which on a sum of exact kernels is tried. Where there are fewer it explains them so
well that rows left out are likely as well, under hyperparameters that have seen them (8 tables of 7 to 20 columns, 100
and 200 of their rows, 26 cases: a median regret of .14 nats a row with sums, .03 with this rule)."""
SOON = 3.0
"""Predicted seconds of fits to all rows that candidates beside the best may take in any case, where each row is left
out."""
ANOTHER = 8.0
"""As many of the best sum of kernels beside a kernel alone, where none would fit by itself: 250 rows confuse the two.
(On four of twenty splits of concrete, 927 rows, no sum went on, which cost a quarter of a nat. A sum in place of two
kernels alone, with one alone in place of a second sum, was .006 nats worse on 600 rows of nine tables, five splits.)"""
FAR = 100.0
"""Nats, of all rows, by which a candidate may be behind on few of them, where it goes on to be averaged."""
CATCHING_UP = 0.15
"""Nats a row by which a candidate may be behind on few rows, where rows are kept out, and still go on."""
TRIFLE = 0.002
"""Nats a row by which a cheaper candidate may be behind in any case."""


clock = time.monotonic
"""What `max_seconds` goes by."""


@dataclass(eq=False)
class Rounds:
    """The rounds of a choice.

    Args:
        grounds: What is measured on.
        entries: All candidates.
        limits: What it may cost.
        shares: Of the average that is taken, by the numbers of its candidates; none where one is taken.
        allowed: The candidates that are within the budget and the memory.
        compared: The candidates that were measured in the last round, variants among them, which were in no other.
        least: Rows that a local process needed, where fewer misled it; others begin with as many.
        predicted: Seconds that the measuring was predicted to take.
        is_stopped: Whether the clock ended it.
    """

    grounds: Grounds
    entries: Sequence[Entry]
    limits: Limits
    shares: dict[int, float] = field(default_factory=dict)
    allowed: Sequence[Entry] = ()
    compared: list[Entry] = field(default_factory=list)
    least: int = 0
    predicted: float = 0.0
    is_stopped: bool = False

    def run(self) -> Entry:
        """Measure and return the best."""
        begun, seconds = clock(), self.limits.seconds(self.num_rows)
        self._leave_out(seconds)
        sizes, entries = self.sizes(), [entry for entry in self.entries if not entry.remark]
        self.allowed = entries
        heads = sorted((e for e in entries if self._head(e) is None), key=lambda entry: entry.cost.seconds)
        for number, size in enumerate(sizes):
            if number:
                heads = self._further(heads, entries)
                if self.grounds.judged is not None and (
                    len(heads) < 2 or not self._affords(heads[0], self._rows_of(heads[0], size))
                ):
                    break
            self.measure(heads, size, begun)
            if self.is_stopped or self._is_in_vain(heads):
                break
        best = self.taken([entry for entry in heads if entry.found is not None])
        for entry in self.entries:
            if entry.found is None and not entry.remark and entry is not best:
                entry.remark = "not measured: a variant of what went no further"
        return best

    def _is_in_vain(self, entries: Sequence[Entry]) -> bool:
        """Return whether the best is not clearly ahead of a constant or a straight line, where rows are kept out."""
        found = [entry for entry in entries if entry.found is not None]
        if self.grounds.judged is None or not found:
            return False
        best = max(found, key=lambda entry: entry.density).found
        assert best is not None
        weight = self.grounds.told.counts()
        ahead = [mean_and_error(best.density.cpu() - rule, weight) for rule in self.grounds.rules.values()]
        return any(mean <= BEHIND * error for mean, error in ahead)

    @property
    def num_rows(self) -> int:
        """The number of all rows."""
        return self.grounds.begun.num_observations

    def sizes(self) -> list[int]:
        """Return the rows of each round."""
        count, first = len(self.grounds.rows), FEW if self.grounds.judged is None else FIRST
        if count <= 1.5 * first:
            return [count] if self.grounds.averages else [count, count]  # the second for variants
        return [first, count if self.grounds.judged is None else min(count, GROWTH * first)]

    def _affords(self, entry: Entry, rows: int) -> bool:
        """Return whether the budget has room to measure a candidate beside the dearest fit that there may be."""
        if self.grounds.judged is None:  # the fit to all rows is one of these, or most of it
            return True
        left = [each.left(self.num_rows) for each in self.entries if each.found is not None and not each.remark]
        asked = 0.0 if entry.is_known(rows) else self._predicted(entry, rows)
        dearest = max([*left, entry.left(self.num_rows, rows)])
        return self.predicted + asked + dearest <= self.limits.seconds(self.num_rows)

    def _head(self, entry: Entry) -> Entry | None:
        """Return that of which a candidate is a variant, where that one is in the rounds."""
        head = None if entry.offer.head is None else self.entries[entry.offer.head]
        return None if head is None or (head.remark and head.found is None) else head

    def _leave_out(self, seconds: float) -> None:
        """Leave out what is too dear; the cheapest stays."""
        columns = self.grounds.rows.inputs.shape[1]
        for entry in self.entries:
            count = entry.num_of_sum(columns)
            if count and self.num_rows < A_HYPERPARAMETER * count:
                entry.remark = f"{self.num_rows:,} rows are few for the {count} hyperparameters of a sum"
            elif entry.cost.memory > self.limits.memory:
                entry.remark = f"{entry.cost.memory:.2g} bytes are over the {self.limits.memory:.2g} allowed"
            elif entry.cost.seconds > SHARE * seconds:
                entry.remark = f"over the budget of {seconds:.3g} s"
        if all(entry.remark for entry in self.entries):
            min(self.entries, key=lambda entry: entry.cost.seconds).remark = ""

    def _further(self, heads: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
        """Return those that go on: the best, others not clearly behind, and the variants of these."""
        if self.grounds.averages:
            return self._in_average(heads)
        ranked = sorted((e for e in heads if e.found is not None), key=lambda entry: -entry.density)
        least = NOISE if self.grounds.judged is None else CATCHING_UP
        near = [e for e in ranked if e.measured[-1].behind <= max(BEHIND * e.measured[-1].behind_error, least)]
        if self.grounds.judged is None:  # what goes on is fitted to all rows
            near = [entry for entry in near if entry is ranked[0] or entry.cost.seconds <= SOON]
        for entry in ranked:
            if entry not in near[:GOING_ON]:
                entry.remark = f"behind by {entry.measured[-1].behind:.2g} nats a row"
        going = near[:GOING_ON]
        variants = [entry for entry in entries if self._head(entry) in going]
        return [*going, *sorted(variants, key=lambda entry: has_fewer(entry, self._head(entry)))]

    # --- averaging -------------------------------------------------------------------------------

    @property
    def parts(self) -> list[tuple[float, Entry]]:
        """What is averaged, with its shares, the largest first; nothing where one is taken."""
        found = [(share, self.entries[number]) for number, share in self.shares.items() if share]
        return sorted(found, key=lambda part: -part[0]) if len(found) > 1 else []

    def share_of(self, entry: Entry) -> float:
        """Return the share of a candidate in the average, 0 where one was taken."""
        return self.shares.get(self.entries.index(entry), 0.0)

    def _in_average(self, heads: Sequence[Entry]) -> list[Entry]:
        """Return those that go on: the best, and those not clearly far behind that cost no more than it together.

        Where the best is a kernel alone, and there is no room for a sum, the best sum takes the place of the others.
        """
        ranked = sorted((e for e in heads if e.found is not None), key=lambda entry: -entry.density)
        if not ranked:
            return []
        best, far = ranked[0], FAR / float(self.grounds.told.counts().sum())
        for entry in ranked:
            last = entry.measured[-1]
            if last.behind - BEHIND * last.behind_error >= far:
                entry.remark = f"behind by {last.behind:.2g} nats a row"
        ranked = [entry for entry in ranked if not entry.remark]
        asked = {entry: self._asked(entry) for entry in ranked}
        allowed = self.limits.seconds(self.num_rows) - self.predicted - asked[best]
        most, spent, going = min(max(SOON, asked[best]), allowed), 0.0, [best]
        a_sum = next((entry for entry in ranked if entry.offer.options.has_both), best)
        if most < asked[a_sum] <= min(ANOTHER, allowed):
            most, ranked = asked[a_sum], [best, a_sum]
        for entry in ranked[1:]:
            if spent + asked[entry] <= most:
                spent += asked[entry]
                going.append(entry)
        for entry in asked:
            if entry not in going:
                entry.remark = "the average would cost more than twice the best"
        return going

    def _asked(self, entry: Entry) -> float:
        """Return the predicted seconds of a part of an average: measured on the rows at hand, and fitted to all."""
        count = len(self.grounds.rows)
        return entry.cost.seconds + (self._predicted(entry, count) if count < self.num_rows else 0.0)

    # --- measuring -------------------------------------------------------------------------------

    def measure(self, entries: Sequence[Entry], size: int, begun: float) -> None:
        """Fit candidates to so many rows and judge them; those that cannot be fitted go no further."""
        for number, entry in enumerate(entries):
            most = self.limits.max_seconds
            if most is not None and clock() - begun > most:
                self.is_stopped = True
                for other in entries[number:]:
                    other.remark = f"not measured on {size:,} rows: {most:g} s were over"
                break
            rows = self._rows_of(entry, size)
            if entry.is_known(rows):
                continue
            entry.remark = self._why_not(entry, rows)
            if not entry.remark:
                self._fit(entry, rows, number, len(entries))
        self._compare([entry for entry in entries if entry.found is not None and not entry.remark])

    def _why_not(self, entry: Entry, rows: int) -> str:
        """Return why a candidate is not to be measured on so many rows, or nothing."""
        if self.grounds.judged is not None:
            why = why_vain(entry, self._head(entry), self.entries, self.grounds.told.counts())
            if why:
                return f"not measured: {why}"
        return "" if self._affords(entry, rows) else "the budget has no room left to measure it"

    def _rows_of(self, entry: Entry, size: int) -> int:
        """Return the rows of a candidate in a round of so many.

        Learned frequencies gain most with rows, and cost no more beyond a batch: they see all, at most 32,768. Rows
        that misled one local process mislead the others too (few rows of protein lack twins that contradict each
        other).
        """
        options = entry.offer.options
        if getattr(options, "frequencies", "fixed") == "learned":
            size = MOST_LEARNED
        elif is_near(options):
            size = max(size, self.least)
        elif isinstance(options, FeatureOptions) and self.grounds.judged is not None:
            size *= MORE
        return min(size, len(self.grounds.rows))

    def _fit(self, entry: Entry, size: int, number: int, count: int) -> None:
        options, reporter = entry.offer.options, self.grounds.plan.reporter
        seconds = self._predicted(entry, size)
        self.predicted += seconds
        with reporter.about(f"choosing, {number + 1} of {count}, {in_words(options)}, about {seconds:.2g} s"):
            found = self.grounds.measured(options, size, entry.found or entry.found_of(self._head(entry)))
        if isinstance(found, str):
            entry.remark = found
        elif self.grounds.plan.has_rivals and found.report.frequencies == "fell back":
            entry.remark = "learned frequencies are no better than fixed ones"
        else:
            entry.found = found
            if found.searched > size:
                self.predicted += self._predicted(entry, found.searched) - seconds
                self.least = max(self.least, found.searched)

    def _predicted(self, entry: Entry, size: int) -> float:
        columns, options = self.grounds.rows.inputs.shape[1], entry.offer.options
        rows = min(size, len(self.grounds.rows))
        search = search_operations(options, rows, columns, len(self.grounds.rows))
        return (search + posterior_operations(options, self.grounds.num_given(options, rows), columns)) / RATE

    def _compare(self, entries: Sequence[Entry]) -> None:
        """Set down the densities of those that were measured in a round, and how far they are behind the best."""
        if not entries:
            return
        self.compared = list(entries)
        rows = [entry.found.searched for entry in entries if entry.found is not None]
        found = measured(_densities(entries), self.grounds.told.counts(), rows)
        for entry, measurement in zip(entries, found, strict=True):
            entry.measured.append(measurement)

    def taken(self, entries: Sequence[Entry]) -> Entry:
        """Return the best of the last round, or the cheapest as good that saves much; of none the cheapest of all."""
        if not entries:
            return min(self.allowed or self.entries, key=lambda entry: entry.cost.seconds)
        there = [entry for entry in entries if entry in self.compared] or list(entries)
        if self.grounds.averages:
            weights = shares(_densities(there), self.grounds.told.counts())
            parts = with_tails([pair for pair in zip(there, weights, strict=True) if pair[1]], self.entries)
            self.shares = {self.entries.index(entry): weight for entry, weight in parts}
            return there[max(range(len(there)), key=weights.__getitem__)]
        best = max(there, key=lambda entry: entry.density)
        seconds = {entry: entry.left(self.num_rows) for entry in there}
        saved = [entry for entry in there if seconds[best] - seconds[entry] > self.predicted]
        lasts = [(entry, entry.measured[-1]) for entry in saved]
        good = [best, *(e for e, last in lasts if last.behind <= max(min(last.behind_error, NOISE), TRIFLE))]
        return min(good, key=lambda entry: (seconds[entry], entry.measured[-1].behind))


def _densities(entries: Sequence[Entry]) -> list[Tensor]:
    return [found for entry in entries if (found := entry.densities) is not None]
