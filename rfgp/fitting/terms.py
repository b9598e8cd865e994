"""Fitting sums of terms: on a subset of the rows, then on all of them."""

from dataclasses import replace

import torch

from rfgp import random
from rfgp.fitting.full_batch import fit_full_batch
from rfgp.fitting.maximize import SMALL, Objective, Plan, maximize
from rfgp.regression import FitReport, Regression
from rfgp.rows import pool_of
from rfgp.threads import in_one_thread

FIRST_ROWS = 2000
"""The number of rows of the first search. Hyperparameters of a few thousand rows are close to those of all."""
LAST_ITERATIONS = 30
"""The most iterations of the search on all rows, after that on a subset."""


def fit_terms(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression of terms; return it and the report."""
    rows = regression.needed_rows("a fit")
    if len(rows) <= 2 * FIRST_ROWS:
        return fit_full_batch(regression, plan)
    pool = pool_of(rows)
    order = torch.randperm(len(pool), generator=random.generator(regression.family.options.seed, random.Role.SAMPLE))
    subset = pool.take(order[:FIRST_ROWS])
    with in_one_thread(len(subset) <= SMALL):
        objective = Objective.of(regression, subset)
        values, first = maximize(objective, regression.hyperparameters, plan, stage="a subset")
    last = plan if plan.given_iterations is not None else replace(plan, given_iterations=LAST_ITERATIONS)
    values, report = maximize(Objective.of(regression, rows), values, last)
    return regression.replace(hyperparameters=values), report.with_all([first, report])
