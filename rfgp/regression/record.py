"""What a choice may cost, and its record: what was tried, on how much, what it came to, and why the best won."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rfgp.counts import read_amount, read_bytes, read_seconds

RATE = 2e10
"""Operations a second: of products and factorisations of matrices in double precision on one core of 2020 or later."""
FIRST, A_ROW, LONGEST = 60.0, 8e-3, 1800.0
"""Seconds that a choice and its fit are allowed, where nobody says: of any table, of each row, and at most."""
MEMORY = 8e9
"""Bytes, where nobody says."""


@dataclass(frozen=True)
class Limits:
    """What a choice and the fit of the best may cost.

    Attributes:
        budget: Predicted seconds; None: as many as suit the rows.
        memory: Predicted bytes.
        max_seconds: Seconds of the clock, after which nothing more is measured; None: no such end.
    """

    budget: float | None = None
    memory: float = MEMORY
    max_seconds: float | None = None

    @classmethod
    def of(cls, budget: Any, memory: Any, max_seconds: Any) -> "Limits":
        """Return the limits that a user gives, as "30s", "5min" and "2h", or "500MB" and "4GB", or as numbers.

        Raises:
            InvalidArgumentError: one cannot be read, or is not positive.
        """
        return cls(
            None if budget is None else read_seconds("budget", budget),
            MEMORY if memory is None else read_bytes("memory", memory),
            None if max_seconds is None else read_amount("max_seconds", max_seconds, {"": 1.0}, "60"),
        )

    def seconds(self, rows: int) -> float:
        """Return the predicted seconds that are allowed for so many rows."""
        return min(FIRST + A_ROW * rows, LONGEST) if self.budget is None else self.budget


CLEAR = 0.02
"""Nats a row that a candidate must be ahead of a simple rule to be called better: its mean and its noise are those of
all rows, which is worth a hundredth of a nat where these are a hundred."""
CONSTANT, LINE = "a constant", "a straight line"
"""Simple rules."""
DENSITY, ERROR = "log density of a row", "error of the kernel"
"""What candidates are measured by: on tables the more the better, on graphs the less."""


@dataclass(frozen=True)
class Measurement:
    """What a candidate came to in one round.

    Attributes:
        rows: That its hyperparameters were found on; of a graph the nodes of the sample.
        value: The mean log density of a judged row, in nats and the target's units; of a graph the kernel's error.
        error: Its standard error.
        behind: How far that is behind the best of the round, by the same rows.
        behind_error: The standard error of that difference.
    """

    rows: int
    value: float
    error: float
    behind: float = 0.0
    behind_error: float = 0.0


@dataclass(frozen=True)
class Trial:
    """A candidate, and what became of it.

    Attributes:
        name: In words.
        options: What to give the model for it, as plain values.
        seconds: What a fit on all rows is predicted to take: operations by the choice's rate.
        memory: Bytes that it is predicted to take.
        measured: In the rounds, in order; none where it was left out.
        remark: Why it was left out, or went no further.
    """

    name: str
    options: Mapping[str, Any]
    seconds: float
    memory: float
    measured: tuple[Measurement, ...] = ()
    remark: str = ""

    @property
    def last(self) -> Measurement | None:
        """What it came to in its last round."""
        return self.measured[-1] if self.measured else None


@dataclass(frozen=True, repr=False)
class Choice:
    """What a model chose of its options, and why; two of the same data, options and seed are equal.

    Attributes:
        best: The number of the candidate that was taken, or has the largest share.
        trials: All candidates, the cheapest first.
        reason: Why that one, in words.
        measure: What candidates are measured by, `DENSITY` or `ERROR`.
        judged: How many rows, or nodes, told.
        way: How they were judged, in words.
        budget: Seconds that were allowed, as predicted; 0 where nothing bounds it.
        memory: Bytes that were allowed.
        rate: Operations a second by which costs were predicted.
        predicted: Seconds that the measuring was predicted to take.
        rules: What simple rules come to on the same rows, by name, and how far they are behind the best.
        shares: Of the candidates in the average that was taken, `best` the heaviest; none where one was taken.
        seconds: What the measuring took, by the clock; no part of what is compared.
        fit_seconds: What the fit of the best took after it, likewise.
    """

    best: int
    trials: tuple[Trial, ...]
    reason: str
    measure: str = DENSITY
    judged: int = 0
    way: str = ""
    budget: float = 0.0
    memory: float = 0.0
    rate: float = 0.0
    predicted: float = 0.0
    rules: Mapping[str, Measurement] = field(default_factory=dict)
    shares: tuple[float, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    fit_seconds: float = field(default=0.0, compare=False)

    @property
    def chosen(self) -> Trial:
        """The candidate that was taken."""
        return self.trials[self.best]

    def share(self, number: int) -> float:
        """Return the share of a candidate in what was taken."""
        return self.shares[number] if self.shares else float(number == self.best)

    @property
    def parts(self) -> dict[str, float]:
        """The shares of the candidates in what was taken, by their names."""
        found = {trial.name: self.share(number) for number, trial in enumerate(self.trials)}
        return {name: share for name, share in found.items() if share}

    @property
    def better_rule(self) -> str | None:
        """The best of the simple rules, where nothing beat it; else None.

        A constant has to be beaten clearly, by more than two standard errors. A line is a process as well, of long
        lengthscales, so that where it is right nothing can be far ahead of it.
        """
        if not self.rules:
            return None
        name = max(self.rules, key=lambda rule: self.rules[rule].value)
        rule = self.rules[name]
        clear = 0.0 if name == LINE else max(2 * rule.behind_error, CLEAR)
        return name if rule.behind <= clear else None

    def __repr__(self) -> str:
        measured = sum(bool(trial.measured) for trial in self.trials)
        taken = self.chosen.name
        if self.shares:
            taken = f"an average of {sum(map(bool, self.shares))}, most of {taken}"
        return f"Choice({taken}, of {len(self.trials)} candidates, {measured} measured)"

    def __str__(self) -> str:
        return "\n".join([self.reason, *self.table()])

    def table(self) -> list[str]:
        """Return a line for each candidate, the best first, and for each simple rule."""
        ranked = sorted(range(len(self.trials)), key=self._rank)
        width = max(len(name) for name in (*self.rules, *(trial.name for trial in self.trials)))
        lines = [self._line(number, width) for number in ranked]
        rules = [f"  {name:<{width}} {rule.value:>9.4f} {rule.error:>7.4f}" for name, rule in self.rules.items()]
        measure = "density" if self.measure == DENSITY else "error"
        head = f"  {'candidate':<{width}} {measure:>9} {'s.e.':>7} {'rows':>8} {'seconds':>9}"
        return [head, *lines, *rules]

    def _rank(self, number: int) -> tuple[float, int, float]:
        """Return what to order by: what was taken, then those that went furthest, then the measure."""
        last, sign = self.trials[number].last, -1.0 if self.measure == DENSITY else 1.0
        reached = len(self.trials[number].measured)
        return -self.share(number), -reached, math.inf if last is None else sign * last.value

    def _line(self, number: int, width: int) -> str:
        trial, share = self.trials[number], self.share(number)
        last, begin = trial.last, f"{'*' if share else ' '} {trial.name:<{width}}"
        told = f"{'':>26}"
        if last is not None:
            shown = (
                f"{last.value:>9.4f} {last.error:>7.4f}" if self.measure == DENSITY else f"{last.value:>9.2g} {'':>7}"
            )
            told = f"{shown} {last.rows:>8,}"
        remark = f"{share:.2f} of the average" if 0 < share < 1 else trial.remark
        return f"{begin} {told} {trial.seconds:>9.3g}" + (f"  {remark}" if remark else "")
