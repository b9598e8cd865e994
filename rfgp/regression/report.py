"""How a fit went."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from rfgp.counts import counted
from rfgp.regression.selection_report import SelectionReport


@dataclass(frozen=True)
class Stage:
    """One part of a fit.

    Attributes:
        name: What was optimised.
        rows: On how many rows.
        iterations: Of L-BFGS, or steps of Adam or of scoring.
        evaluations: Of the likelihood and its gradient.
        gain: What the log marginal likelihood of a row grew by, in nats.
    """

    name: str
    rows: int
    iterations: int
    evaluations: int
    gain: float


@dataclass(frozen=True)
class FitReport:
    """How a fit went.

    Attributes:
        converged: Whether the optimiser's test was met.
        iterations: Of L-BFGS and, where frequencies were learned, steps of Adam, all stages together, without those
            that were given up again (columns that came back and brought nothing), which `evaluations` count.
        evaluations: Of the likelihood and its gradient.
        log_marginal_likelihood: At the end, of all rows, total nats in the user's units.
        message: How it ended, in words.
        at_bounds: Names of hyperparameters with an entry at a bound, such as the lengthscale of a
            column without effect, or the noise of data without any.
        trace: The log marginal likelihood (plus log priors) after each iteration of all stages, one after another, in
            total nats of the stage's rows; each begins with its start. `traces` takes them apart.
        stages: The parts of the fit, in order.
        frequencies: "fixed", "learned", or "fell back": learned ones predicted kept-out rows no better.
        calibration: The mean of (y - mean)^2 / variance of leave-one-out predictions: 1 where the error bars are
            honest, above 1 where they are too short. Over rows that the learning of frequencies did not see, or
            over a sample of all rows where the frequencies are fixed; None where it was not computed.
        leave_one_out: The mean leave-one-out log density of a value of the same rows, in the user's units.
        neighbors: The correlation of these rows' errors with those of their nearest rows, about 0 or below where only
            noise is left over; None where it was not computed.
        weights_used: The share of the F weights that the data determine, (F - tr A^-1) / F; near 1 the features are
            exhausted. None where there are fewer rows than features.
        likelihood_error: The standard error of `log_marginal_likelihood`, where conjugate gradients estimated it; the
            trace between its ends is then from gradients. 0 where it was computed.
        selection: The record of the selection of a kernel or of approximations. None if there was none.
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
    calibration: float | None = None
    leave_one_out: float | None = None
    weights_used: float | None = None
    neighbors: float | None = None
    likelihood_error: float = 0.0
    selection: SelectionReport | None = None

    def __repr__(self) -> str:
        steps, bounds = (
            counted(self.iterations, "iteration"),
            f", at bounds: {', '.join(self.at_bounds)}" if self.at_bounds else "",
        )
        return (
            f"FitReport({'' if self.converged else 'not '}converged, {steps}, log marginal "
            f"likelihood {self.log_marginal_likelihood:.6g}{bounds})"
        )

    def with_all(self, reports: "Sequence[FitReport]") -> "FitReport":
        """Return this one of several reports of a fit, with stages, iterations and traces of all, in order."""
        return replace(
            self,
            iterations=sum(report.iterations for report in reports),
            evaluations=sum(report.evaluations for report in reports),
            stages=tuple(stage for report in reports for stage in report.stages),
            trace=tuple(value for report in reports for value in report.trace),
        )

    def traces(self) -> list[tuple[Stage, tuple[float, ...]]]:
        """Return the stages with their parts of the trace; of a report saved by an older version the last one's only.

        Learned frequencies are a last stage whose end is not computed, so that it has an entry less.
        """
        ends = list(accumulate(stage.iterations + 1 for stage in self.stages))
        if not ends or len(self.trace) not in (ends[-1], ends[-1] - 1):
            return [(self.stages[-1], self.trace)] if self.stages and self.trace else []
        parts = zip(self.stages, [0, *ends[:-1]], ends, strict=True)
        return [(stage, self.trace[begin:end]) for stage, begin, end in parts]
