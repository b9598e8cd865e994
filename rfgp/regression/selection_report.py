"""The limits of a selection, and its record: what was compared, with which scores and costs, and why the best won."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rfgp.counts import read_bytes, read_seconds

RATE = 2e10
"""The operations a second of products and factorisations in double precision on one core of 2020 or later."""
FIRST, A_ROW, LONGEST = 60.0, 8e-3, 1800.0
"""The seconds that a selection and its fit may take without a time limit: for any table, for each row, and at most."""
MEMORY = 8e9
"""The bytes that they may take without a limit."""


@dataclass(frozen=True)
class Limits:
    """The limits of a selection and the fit of the best.

    Attributes:
        time_limit: The most seconds, as predicted for the selection and the fit, and by the clock for the selection. If
            None, 60 s and 8 ms for each row, at most half an hour, as predicted.
        memory: The most predicted bytes.
    """

    time_limit: float | None = None
    memory: float = MEMORY

    @classmethod
    def of(cls, time_limit: Any, memory: Any) -> "Limits":
        """Return the limits that a user gives, such as "30s", "5min" or "2h", and "500MB" or "4GB", or as numbers.

        Raises:
            InvalidArgumentError: One cannot be read, or is not positive.
        """
        return cls(
            None if time_limit is None else read_seconds("time_limit", time_limit),
            MEMORY if memory is None else read_bytes("memory", memory),
        )

    def seconds(self, rows: int) -> float:
        """Return the predicted seconds that are allowed for a number of rows."""
        return min(FIRST + A_ROW * rows, LONGEST) if self.time_limit is None else self.time_limit


CLEAR = 0.02
"""The nats a row by which a candidate must be ahead of a constant to be called better. The constant has the mean and
the variance of all rows, which is worth 0.01 nats a row for a hundred rows."""
CONSTANT, LINE = "a constant", "a linear model"
"""The names of the baselines."""
DENSITY, ERROR = "log density of a row", "error of the kernel"
"""The measures by which candidates are compared: larger is better on tables, smaller on graphs."""


@dataclass(frozen=True)
class Score:
    """The score of a candidate in one round.

    Attributes:
        rows: The number of rows that its hyperparameters were fitted to; on a graph the nodes of the sample.
        value: The mean log density of a validation row, in nats and the target's units; on a graph the kernel's error.
        error: Its standard error.
        difference: The difference of the best score of the round, of the same rows, from this one.
        difference_error: The standard error of that difference.
    """

    rows: int
    value: float
    error: float
    difference: float = 0.0
    difference_error: float = 0.0


@dataclass(frozen=True)
class Trial:
    """A candidate of a selection.

    Attributes:
        name: The kernel and the approximations, in words.
        options: The options of the model as one writes them, by name.
        seconds: The predicted seconds of a fit to all rows.
        memory: The predicted bytes.
        scores: The scores of the rounds, in order. Empty if it was left out.
        status: Why it was left out, or went no further.
    """

    name: str
    options: Mapping[str, Any]
    seconds: float
    memory: float
    scores: tuple[Score, ...] = ()
    status: str = ""

    @property
    def last(self) -> Score | None:
        """The score of its last round."""
        return self.scores[-1] if self.scores else None


@dataclass(frozen=True, repr=False)
class SelectionReport:
    """The record of a selection. Two selections with the same data, options and seed are equal.

    Attributes:
        best: The place of the candidate that was taken, or has the largest weight.
        trials: All candidates, the cheapest first.
        reason: Why that one was taken, in words.
        measure: The measure by which candidates are compared, `DENSITY` or `ERROR`.
        num_validation: The number of validation rows, or nodes.
        validation: How they are predicted, in words: "leave-one-out", or "held out".
        time_limit: The seconds that were allowed, as predicted. 0 if there is no limit.
        memory: The bytes that were allowed.
        rate: The operations a second by which costs were predicted.
        predicted: The predicted seconds of the selection.
        baselines: The scores of baselines on the same rows, by name, with their differences from what was taken.
        weights: The weights of the candidates in the average that was taken. Empty if one was taken.
        seconds: The seconds of the selection, by the clock. They are not compared.
        fit_seconds: The seconds of the fit of the best after it, likewise.
    """

    best: int
    trials: tuple[Trial, ...]
    reason: str
    measure: str = DENSITY
    num_validation: int = 0
    validation: str = ""
    time_limit: float = 0.0
    memory: float = 0.0
    rate: float = 0.0
    predicted: float = 0.0
    baselines: Mapping[str, Score] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    fit_seconds: float = field(default=0.0, compare=False)

    @property
    def chosen(self) -> Trial:
        """The candidate that was taken."""
        return self.trials[self.best]

    def weight(self, number: int) -> float:
        """Return the weight of a candidate in what was taken, by its place."""
        return self.weights[number] if self.weights else float(number == self.best)

    @property
    def parts(self) -> dict[str, float]:
        """The weights of the candidates in what was taken, by their names."""
        found = {trial.name: self.weight(number) for number, trial in enumerate(self.trials)}
        return {name: weight for name, weight in found.items() if weight}

    @property
    def unbeaten_baseline(self) -> str | None:
        """A baseline that was not beaten, else None.

        A constant has to be beaten by more than two standard errors. A linear model may be a part of the model that
        was taken, which must not be behind it by more than `CLEAR`.
        """
        for name, score in self.baselines.items():
            clear = -CLEAR if name == LINE else max(2 * score.difference_error, CLEAR)
            if score.difference < clear:
                return name
        return None

    def __repr__(self) -> str:
        scored = sum(bool(trial.scores) for trial in self.trials)
        taken = self.chosen.name
        if self.weights:
            taken = f"an average of {sum(map(bool, self.weights))}, most of {taken}"
        return f"SelectionReport({taken}, of {len(self.trials)} candidates, {scored} scored)"

    def __str__(self) -> str:
        return "\n".join([self.reason, *self.table()])

    def table(self) -> list[str]:
        """Return a line for each candidate, the best first, and for each baseline."""
        ranked = sorted(range(len(self.trials)), key=self._rank)
        width = max(len(name) for name in (*self.baselines, *(trial.name for trial in self.trials)))
        lines = [self._line(number, width) for number in ranked]
        baselines = [f"  {name:<{width}} {one.value:>9.4f} {one.error:>7.4f}" for name, one in self.baselines.items()]
        measure = "density" if self.measure == DENSITY else "error"
        head = f"  {'candidate':<{width}} {measure:>9} {'s.e.':>7} {'rows':>8} {'seconds':>9}"
        return [head, *lines, *baselines]

    def _rank(self, number: int) -> tuple[float, int, float]:
        """Return the key of the order: what was taken, then candidates that went furthest, then the measure."""
        last, sign = self.trials[number].last, -1.0 if self.measure == DENSITY else 1.0
        reached = len(self.trials[number].scores)
        return -self.weight(number), -reached, math.inf if last is None else sign * last.value

    def _line(self, number: int, width: int) -> str:
        trial, weight = self.trials[number], self.weight(number)
        last, begin = trial.last, f"{'*' if weight else ' '} {trial.name:<{width}}"
        scored = f"{'':>26}"
        if last is not None:
            shown = (
                f"{last.value:>9.4f} {last.error:>7.4f}" if self.measure == DENSITY else f"{last.value:>9.2g} {'':>7}"
            )
            scored = f"{shown} {last.rows:>8,}"
        status = f"{weight:.2f} of the average" if 0 < weight < 1 else trial.status
        return f"{begin} {scored} {trial.seconds:>9.3g}" + (f"  {status}" if status else "")
