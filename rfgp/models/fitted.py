"""The fitted state of a model, and warnings about a fit."""

from collections.abc import Iterator
from dataclasses import dataclass

from rfgp.counts import counted
from rfgp.errors import BaselineNotBeatenWarning, OverfittingWarning
from rfgp.hyperparameters import Hyperparameters
from rfgp.regression import FitReport, Regression


@dataclass(frozen=True, eq=False)
class Fitted:
    """The fitted state of a model. A model replaces it as one object.

    Attributes:
        regression: The regression that computes results.
        live: Its hyperparameters, which users may change.
        report: The report of the fit. If None, there was no fit.
    """

    regression: Regression
    live: Hyperparameters
    report: FitReport | None = None

    def now(self) -> Regression:
        """Return the regression at the live hyperparameters. The last result is cached."""
        recent: Regression = vars(self).get("_recent", self.regression)
        now = recent.at(self.live.values)
        if now is not recent and now.rows is not None:
            object.__setattr__(self, "_recent", now)
        return now

    @classmethod
    def of(cls, regression: Regression, report: FitReport | None = None) -> "Fitted":
        """Return the fitted state of a regression, with live hyperparameters of its own."""
        return cls(regression, Hyperparameters(regression.hyperparameters), report)


def selection_warnings(report: FitReport) -> Iterator[Warning]:
    """Yield a warning if no candidate was better than a baseline."""
    baseline = None if report.selection is None else report.selection.unbeaten_baseline
    if report.selection is not None and baseline is not None:
        yield BaselineNotBeatenWarning(
            f"No candidate beat {baseline} (log density {report.selection.baselines[baseline].value:.4g} a row). The "
            "inputs may not be informative."
        )


def overfitting_warnings(regression: Regression, fixed: tuple[str, ...]) -> Iterator[Warning]:
    """Yield a warning if there are as many free hyperparameters without a prior as rows."""
    values, count = regression.hyperparameters, regression.num_observations
    free = [name for name in values.space.free(fixed) if name not in values.space.hyperpriors]
    entries = sum(values.raw[name].numel() for name in free)
    has_ard = any(name.endswith("lengthscale") and values.raw[name].numel() > 1 for name in free)
    if count <= entries and has_ard:
        yield OverfittingWarning(
            f"The hyperparameters are over-fitted: {counted(count, 'observation')} cannot determine {entries} "
            "hyperparameters (try ard=False, or priors)."
        )
