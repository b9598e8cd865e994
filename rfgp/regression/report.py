"""Reports of fits and of selections."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from rfgp.counts import counted, read_bytes, read_seconds

# --- The budget of a selection, and its report: candidates, scores, costs, and the reason for the choice -------------

FLOPS_PER_SECOND = 2e10
"""Operations per second of double-precision matrix products and factorizations, on one core from 2020 or later."""
FIRST, A_ROW, LONGEST = 60.0, 8e-3, 1800.0
"""The default limit of a selection and its fit, in seconds: the constant, the part per row, and the maximum."""
MEMORY = 8e9
"""The default limit of memory, in bytes."""


@dataclass(frozen=True)
class Budget:
    """The limits of a selection and the fit of the best.

    Attributes:
        time_limit: The limit in seconds for the predicted time of selection and fit, and for the elapsed time of the
            selection. If None, the predicted time is at most 60 s + 8 ms per row, and half an hour.
        memory: The limit of predicted bytes.

    Examples:
        >>> Budget.of("5min", "4GB").time_limit
        300.0
    """

    time_limit: float | None = None
    memory: float = MEMORY

    @classmethod
    def of(cls, time_limit: Any, memory: Any) -> "Budget":
        """Return limits from texts such as "5min" and "4GB", or from numbers.

        Args:
            time_limit: A number of seconds, or a text such as "5min". If None, the limit depends on the number of rows.
            memory: A number of bytes, or a text such as "4GB". If None, 8 GB.

        Raises:
            InvalidArgumentError: If a limit has another form, or is not positive.
        """
        return cls(
            None if time_limit is None else read_seconds("time_limit", time_limit),
            MEMORY if memory is None else read_bytes("memory", memory),
        )

    def seconds(self, rows: int) -> float:
        """Return the limit of predicted seconds.

        Args:
            rows: The number of rows.
        """
        return min(FIRST + A_ROW * rows, LONGEST) if self.time_limit is None else self.time_limit


BASELINE_MARGIN = 0.02
"""The margin in nats per row by which a candidate must beat the constant baseline. The baseline uses the mean and
variance of all rows, an advantage of 0.01 nats per row for a hundred rows."""
CONSTANT, LINEAR = "a constant", "a linear model"
"""The names of the baselines."""
LOG_DENSITY, ERROR = "log density of a row", "error of the kernel"
"""The measures by which candidates are compared: larger is better on tables, smaller on graphs."""


@dataclass(frozen=True)
class Score:
    """The score of a candidate in one round.

    Attributes:
        rows: The number of rows in the fit, or of nodes in the sample of a graph.
        value: The mean log density of a validation row in nats and the target's units, or the kernel error on a graph.
        error: The standard error of the value.
        difference: The best score of the round minus this one, on the same rows.
        difference_error: The standard error of the difference.
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
        name: The kernel and the approximations as text.
        options: The options of the model by name.
        seconds: The predicted seconds of a fit to all rows.
        memory: The predicted bytes.
        scores: The scores of the rounds, in order. Empty if the candidate was not scored.
        status: The reason if the candidate was pruned or eliminated.
    """

    name: str
    options: Mapping[str, Any]
    seconds: float
    memory: float
    scores: tuple[Score, ...] = ()
    status: str = ""

    @property
    def last(self) -> Score | None:
        """The score in its last round, or None."""
        return self.scores[-1] if self.scores else None


@dataclass(frozen=True, repr=False)
class SelectionReport:
    """The report of a selection.

    Selections with the same data, options and seed have equal reports.

    Attributes:
        best: The index of the selected candidate, or of the one with the largest weight.
        trials: All candidates, the cheapest first.
        reason: The reason for the choice, as text.
        measure: The measure by which candidates are compared, `LOG_DENSITY` or `ERROR`.
        num_validation: The number of validation rows, or nodes.
        validation: The kind of validation: "leave-one-out", "held out", a number of folds such as "5 folds", "groups
            of" a column, "the last rows", or for graphs "of a sample, against the exact kernel".
        time_limit: The limit of predicted seconds. 0 if there is no limit.
        memory: The limit of bytes.
        rate: The operations per second in the prediction of costs.
        predicted: The predicted seconds of the selection.
        baselines: The scores of baselines on the same rows, by name, with differences from the selected model.
        weights: The weights of the candidates in a selected average. Empty if a single candidate was selected.
        last_times: The last time of the training rows, for each column of dates (days since 1970-01-01 UTC) and for a
            single column of ascending numbers. Empty if the last rows were held out, or none was scored.
        seconds: The elapsed seconds of the selection. Comparisons of reports ignore them.
        fit_seconds: The elapsed seconds of the final fit. Comparisons of reports ignore them.
        noise: The noises that were compared after the fit, with scores on left-out rows. If None, none were.
    """

    best: int
    trials: tuple[Trial, ...]
    reason: str
    measure: str = LOG_DENSITY
    num_validation: int = 0
    validation: str = ""
    time_limit: float = 0.0
    memory: float = 0.0
    rate: float = 0.0
    predicted: float = 0.0
    baselines: Mapping[str, Score] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    last_times: Mapping[str, float] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)
    fit_seconds: float = field(default=0.0, compare=False)
    noise: "SelectionReport | None" = None

    @property
    def chosen(self) -> Trial:
        """The selected candidate."""
        return self.trials[self.best]

    @property
    def has_random_validation(self) -> bool:
        """Whether validation rows were chosen at random, and not by their order or in given groups."""
        return self.validation != "the last rows" and not self.validation.startswith("groups of ")

    def weight(self, number: int) -> float:
        """Return the weight of a candidate in the selected model.

        Args:
            number: The index of the candidate in `trials`.
        """
        return self.weights[number] if self.weights else float(number == self.best)

    @property
    def parts(self) -> dict[str, float]:
        """The weights of the candidates in the selected model, by name."""
        weights = {trial.name: self.weight(number) for number, trial in enumerate(self.trials)}
        return {name: weight for name, weight in weights.items() if weight}

    @property
    def unbeaten_baseline(self) -> str | None:
        """The name of a baseline that the selected model did not beat, or None.

        It must beat the constant by at least two standard errors and `BASELINE_MARGIN` nats per row. A linear model may
        be a part of it, so it may score at most `BASELINE_MARGIN` below the linear baseline.
        """
        for name, score in self.baselines.items():
            clear = -BASELINE_MARGIN if name == LINEAR else max(2 * score.difference_error, BASELINE_MARGIN)
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
        baselines = [
            f"  {name:<{width}} {score.value:>11.4f} {score.error:>7.4f}" for name, score in self.baselines.items()
        ]
        measure = "log density" if self.measure == LOG_DENSITY else "error"
        head = f"  {'candidate':<{width}} {measure:>11} {'s.e.':>7} {'rows':>8} {'seconds':>9}"
        return [head, *lines, *baselines]

    def _rank(self, number: int) -> tuple[float, int, float]:
        """Return the sort key: selected, then by the last round, then by the score."""
        last, sign = self.trials[number].last, -1.0 if self.measure == LOG_DENSITY else 1.0
        reached = len(self.trials[number].scores)
        return -self.weight(number), -reached, math.inf if last is None else sign * last.value

    def _line(self, number: int, width: int) -> str:
        trial, weight = self.trials[number], self.weight(number)
        last, begin = trial.last, f"{'*' if weight else ' '} {trial.name:<{width}}"
        scored = f"{'':>28}"
        if last is not None:
            shown = (
                f"{last.value:>11.4f} {last.error:>7.4f}"
                if self.measure == LOG_DENSITY
                else f"{last.value:>11.2g} {'':>7}"
            )
            scored = f"{shown} {last.rows:>8,}"
        status = f"{weight:.2f} of the average" if 0 < weight < 1 else trial.status
        return f"{begin} {scored} {trial.seconds:>9.3g}" + (f"  {status}" if status else "")


# --- Reports of fits -------------------------------------------------------------------------------------------------


TIME_OVER = "the time limit passed"
"""The message of a search that a time limit ended."""


@dataclass(frozen=True)
class Stage:
    """One stage of a fit.

    Attributes:
        name: The optimized quantity.
        rows: The number of rows.
        iterations: The number of iterations of L-BFGS, or of steps of Adam or scoring.
        evaluations: The number of evaluations of the likelihood and its gradient.
        gain: The increase of the mean log marginal likelihood of a row, in nats.

    Examples:
        >>> Stage("all rows", rows=40, iterations=12, evaluations=15, gain=0.8).rows
        40
    """

    name: str
    rows: int
    iterations: int
    evaluations: int
    gain: float


@dataclass(frozen=True)
class FitReport:
    """Record of a fit: its searches and its diagnostics.

    Attributes:
        converged: Whether the last search met its stopping criterion.
        iterations: The number of iterations of all stages: L-BFGS, and Adam for learned frequencies.
        evaluations: The number of evaluations of the likelihood and its gradient.
        log_marginal_likelihood: The log marginal likelihood of all rows at the end, in total nats in the user's units.
        message: The reason for the end of the fit.
        at_bounds: The names of hyperparameters with an entry at a bound, such as the lengthscale of a column without
            effect.
        trace: The log marginal likelihood plus log priors after each iteration of all stages, in total nats of the
            rows of each stage. `traces` splits it.
        stages: The parts of the fit, in order.
        frequencies: "fixed", "learned", or "rejected" if learned ones predicted held-out rows no better.
        mean_squared_zscore: The mean of (y - mean)^2 / variance of leave-one-out predictions. It is 1 for calibrated
            error bars and larger if they are too short. If frequencies are learned, it is that of held-out rows. None
            if it was not computed.
        leave_one_out: The mean leave-one-out log density of a value of the same rows, in the user's units.
        residual_autocorrelation: The correlation of the leave-one-out errors of these rows with those of their nearest
            rows. It is about 0 if the model leaves only noise. None if it was not computed.
        outliers: The numbers of the rows that have more than half of the squared leave-one-out errors, -1 if a number
            is not known.
        dispersion_zscore: For Poisson counts, the excess of `mean_squared_zscore` over 1 in its standard deviations for
            well-specified counts. None if it was not computed.
        effective_dof_fraction: The fraction of the F weights that the data determine, (F - tr A^-1) / F. Near 1 there
            are too few features. None if there are fewer rows than features.
        likelihood_error: The standard error of `log_marginal_likelihood` if conjugate gradients estimated it, else 0.
        selection: The report of the selection of a kernel or of approximations, if any.

    Examples:
        >>> import numpy as np, rfgp
        >>> x = np.linspace(0, 1, 40)
        >>> report = rfgp.ExactGP().fit(x[:, None], np.sin(6 * x)).fit_report
        >>> report.stages[0].rows
        40
    """

    converged: bool
    iterations: int
    evaluations: int
    log_marginal_likelihood: float
    message: str
    at_bounds: tuple[str, ...] = ()
    trace: tuple[float, ...] = ()
    stages: tuple[Stage, ...] = ()
    frequencies: str = "fixed"
    mean_squared_zscore: float | None = None
    leave_one_out: float | None = None
    effective_dof_fraction: float | None = None
    residual_autocorrelation: float | None = None
    likelihood_error: float = 0.0
    selection: SelectionReport | None = None
    outliers: tuple[int, ...] = ()
    dispersion_zscore: float | None = None

    def __repr__(self) -> str:
        bounds = f", at bounds: {', '.join(self.at_bounds)}" if self.at_bounds else ""
        return (
            f"FitReport({'' if self.converged else 'not '}converged, {counted(self.iterations, 'iteration')}, "
            f"log marginal likelihood {self.log_marginal_likelihood:.6g}{bounds})"
        )

    @property
    def learned_frequencies_rejected(self) -> bool:
        """Whether learned frequencies predicted held-out rows no better than fixed ones."""
        return self.frequencies == "rejected"

    def merged_with(self, reports: "Sequence[FitReport]") -> "FitReport":
        """Return the report with the stages, iterations and traces of all reports.

        Args:
            reports: The reports of all parts of the fit, in order.
        """
        return replace(
            self,
            iterations=sum(report.iterations for report in reports),
            evaluations=sum(report.evaluations for report in reports),
            stages=tuple(stage for report in reports for stage in report.stages),
            trace=tuple(value for report in reports for value in report.trace),
        )

    def traces(self) -> list[tuple[Stage, tuple[float, ...]]]:
        """Return the stages with their parts of the trace.

        The stage of learned frequencies has one entry less, because its final value is not computed. A trace that does
        not have the entries of all stages is that of the last one.
        """
        ends = list(accumulate(stage.iterations + 1 for stage in self.stages))
        if not ends or len(self.trace) not in (ends[-1], ends[-1] - 1):
            return [(self.stages[-1], self.trace)] if self.stages and self.trace else []
        parts = zip(self.stages, [0, *ends[:-1]], ends, strict=True)
        return [(stage, self.trace[begin:end]) for stage, begin, end in parts]
