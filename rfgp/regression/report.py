"""Reports of fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from rfgp.counts import counted
from rfgp.regression.selection_report import SelectionReport


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
