"""Fitting features and a local process by one likelihood.

Neighbours are the nearest in the local lengthscales, so they are found again after each search and stay fixed within
one. Of many rows the likelihood is that of 16,384, each beside all its neighbours, whatever rows these are: a table of
these rows alone would be another one, in which less is local. It is that of what they say beside their neighbours,
which with the features marginalised is no sum over rows: of the weights only these rows tell. Frequencies are learned
in `rfgp.fitting.together`.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.fitting.finish import if_finite, left_out
from rfgp.fitting.maximize import ENOUGH, Objective, Plan, maximize
from rfgp.inference import Evidence, LocalEvidence, LocalPrior
from rfgp.local import used
from rfgp.parameters import Values
from rfgp.regression import FitReport, LocalFamily, Regression, mean_and_noise
from rfgp.rows import Block, gathered
from rfgp.threads import in_one_thread

MOST_ROWS = 2**14
"""Rows that are searched on where there are twice as many; else all of them.

On 41,000 rows of protein all of them gained .002 nats a row on the optimum of these, in twice the time.
"""
ROUNDS, SETTLED = 6, 2e-3
"""Searches with new neighbours on the same rows, at most, and the nats a row that one must gain for another."""
EACH = 25
"""Iterations of a search before the neighbours are found again."""
NARROW = 512
"""Features up to which a second thread of matrix products gets in the way of the loops (1,216 rows: 16 s and 10)."""
MOST_CHECKED = 2**17
"""Rows up to which their leave-one-out predictions are reported."""
FREQUENCIES = "frequencies"
"""The name of frequencies (m, d) among values that are searched."""


@dataclass(frozen=True, eq=False)
class LocalFit:
    """A regression with a local process that is to be fitted.

    Attributes:
        family: Of the regression.
        regression: At its starting values.
        plan: What the user asked for.
        rows: All that are learned from, in order.
    """

    family: LocalFamily
    regression: Regression
    plan: Plan
    rows: Block

    @classmethod
    def of(cls, regression: Regression, plan: Plan) -> "LocalFit":
        """Return the fit of a regression."""
        rows, family = gathered(regression.needed_rows("a fit")), regression.family
        assert isinstance(family, LocalFamily)
        return cls(family, regression, plan, rows.take(family.prior(regression.hyperparameters).order(len(rows))))

    def prior(self, values: Values) -> LocalPrior:
        """Return the prior at values, with their frequencies where they have some."""
        if FREQUENCIES in values.raw:
            return self.family.prior_of(values.raw[FREQUENCIES], values)
        return self.family.prior(values)

    @property
    def is_narrow(self) -> bool:
        """Whether the features are so few that loops over rows, which have threads of their own, are most of it."""
        return self.prior(self.regression.hyperparameters).num_features <= NARROW

    @property
    def size(self) -> int:
        """The number of rows that are searched on."""
        return len(self.rows) if len(self.rows) <= 2 * MOST_ROWS else MOST_ROWS

    def search(self, values: Values, stage: str) -> tuple[Values, FitReport]:
        """Search with the neighbours that rows have at these values; return the values found and the report."""
        size, objective = self.size, self._objective(values, self.size)
        plan = replace(self.plan, given_iterations=min(EACH, self.plan.max_iterations))
        name = f"{size:,} rows{stage}" if size < len(self.rows) else f"all rows{stage}"
        with in_one_thread(self.is_narrow):
            return maximize(objective, values, plan, stage=name, tolerance=max(ENOUGH / objective.count, 1e-7))

    def _objective(self, values: Values, size: int) -> Objective:
        some = None if size == len(self.rows) else torch.linspace(0, len(self.rows) - 1, size).long()
        with torch.no_grad():
            pattern, columns = used(self.prior(values).neighbors(self.rows.inputs, some))
        beside = self.rows.take(torch.from_numpy(columns))
        told = self.rows if some is None else self.rows.take(some)

        def density(values: Values) -> tuple[Tensor, Values]:
            prior, (mean, noise) = self.prior(values), mean_and_noise(values)
            return LocalEvidence(
                prior, beside, mean.double(), noise.double(), pattern
            ).log_marginal_likelihood(), values

        return Objective(density, size, told.count, self.regression.scaling.targets.log_jacobian(told.count))


def fit_local(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression with a local process; return the one found, with its posterior, and how it went."""
    fit = LocalFit.of(regression, plan)
    values, reports = search_all(fit)
    return ended(regression.replace(hyperparameters=values), reports)


def search_all(fit: LocalFit) -> tuple[Values, list[FitReport]]:
    """Search, again and again with new neighbours while these gain; return the values and the reports."""
    values, reports = fit.regression.hyperparameters, list[FitReport]()
    for number in range(ROUNDS):
        values, report = fit.search(values, f", neighbours {number + 1}" * bool(number))
        reports.append(report)
        if not report.stages or report.stages[0].gain < SETTLED:
            break
    return values, reports


def ended(found: Regression, reports: list[FitReport], words: str = "") -> tuple[Regression, FitReport]:
    """Return a regression with its posterior, and the report of all searches with what its rows say at the end.

    Args:
        found: At the values found.
        reports: Of the searches; the last has converged if it says so, or if its new neighbours brought little.
        words: How it ended, where that was no matter of the likelihood alone.
    """
    last = reports[-1]
    converged = last.converged or bool(words) or last.stages[0].gain < SETTLED
    message = last.message if last.converged else "new neighbours gained little" if converged else last.message
    rows = gathered(found.needed_rows("a fit"))
    with torch.no_grad():
        told: Evidence = found.evidence(rows)
        total = float(told.log_marginal_likelihood()) + found.scaling.targets.log_jacobian(rows.count)
        left = left_out(found, told, rows) if len(rows) <= MOST_CHECKED else (math.nan,) * 3
        calibration, density, neighbors = map(if_finite, left)
        report = replace(
            last.with_all(reports),
            converged=converged,
            message=words or message,
            log_marginal_likelihood=total,
            likelihood_error=told.likelihood_error,
            calibration=calibration,
            leave_one_out=density,
            neighbors=neighbors,
        )
        return found.replace(given=told.posterior()), report
