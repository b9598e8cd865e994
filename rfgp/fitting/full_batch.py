"""Fitting on all rows at once, as the exact kernel does."""

from rfgp.fitting.maximize import SMALL, Objective, Plan, maximize
from rfgp.regression import FitReport, Regression
from rfgp.threads import in_one_thread


def fit_full_batch(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression by one search on all rows; return it and the report."""
    rows = regression.needed_rows("a fit")
    with in_one_thread(len(rows) <= SMALL):
        values, report = maximize(Objective.of(regression, rows), regression.hyperparameters, plan)
    return regression.replace(hyperparameters=values), report
