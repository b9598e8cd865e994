"""Fitting on all rows at once, as the exact kernel does."""

from rfgp.fitting.maximize import Objective, Plan, maximize
from rfgp.regression import FitReport, Regression


def fit_whole(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression by one search on all rows; return the one found, and how it went."""
    objective = Objective.of(regression, regression.needed_rows("a fit"))
    values, report = maximize(objective, regression.hyperparameters, plan)
    return regression.replace(hyperparameters=values), report
