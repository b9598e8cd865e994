"""Fitting features and a local process by one likelihood.

Neighbours are the nearest in the local lengthscales, so they are found again after each search and stay fixed within
one. First the likelihood of some rows, each beside all its neighbours, whatever rows these are: a table of these rows
alone would be another one, in which less is local. It is that of what they say beside their neighbours, which with
the features marginalised is no sum over rows: of the weights only these rows tell. Then all rows.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rfgp.fitting.finish import if_finite, left_out
from rfgp.fitting.maximize import ENOUGH, SMALL, Objective, Plan, maximize
from rfgp.inference import Evidence, LocalEvidence, LocalPrior
from rfgp.local import part
from rfgp.parameters import Values
from rfgp.regression import FitReport, Regression, mean_and_noise
from rfgp.rows import Block, gathered
from rfgp.threads import in_one_thread

FIRST, GROWTH = 4000, 4
"""Rows of the first stage, and how many times more the next one has."""
ROUNDS, SETTLED = 6, 2e-3
"""Searches with new neighbours on the same rows, at most, and the nats a row that one must gain for another."""
EACH = 25
"""Iterations of a search before the neighbours are found again."""


def fit_local(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression with a local process; return the one found, with its posterior, and how it went."""
    rows = gathered(regression.needed_rows("a fit"))
    values, reports = regression.hyperparameters, list[FitReport]()
    with in_one_thread(len(rows) <= SMALL):
        ordered = rows.take(_prior(regression, values).order(len(rows)))
        for size in _sizes(len(rows)):
            values = _searched(regression, ordered, values, size, plan, reports)
        found = regression.replace(hyperparameters=values)
        with torch.no_grad():
            told = found.evidence(rows)
            report = _ended(reports, told, found, rows)
            return found.replace(given=told.posterior()), report


def _ended(reports: list[FitReport], told: Evidence, found: Regression, rows: Block) -> FitReport:
    """Return the report of all searches, with the likelihood and the leave-one-out errors at the end."""
    total = float(told.log_marginal_likelihood()) + found.scaling.targets.log_jacobian(rows.count)
    calibration, density, neighbors = map(if_finite, left_out(found, told, rows))
    return replace(
        reports[-1].with_all(reports),
        log_marginal_likelihood=total,
        calibration=calibration,
        leave_one_out=density,
        neighbors=neighbors,
    )


def _sizes(count: int) -> list[int]:
    size, sizes = FIRST, []
    while size * 2 < count:
        sizes.append(size)
        size *= GROWTH
    return [*sizes, count]


def _searched(
    regression: Regression, rows: Block, values: Values, size: int, plan: Plan, reports: list[FitReport]
) -> Values:
    """Return the values after one search after the other, each with the neighbours of its start; add their reports."""
    each = replace(plan, given_iterations=min(EACH, plan.max_iterations))
    for number in range(ROUNDS):
        objective = _objective(regression, rows, values, size)
        tolerance = max(ENOUGH / objective.count, 1e-7)
        stage = ("all rows" if size == len(rows) else f"{size} rows") + f", neighbours {number + 1}" * bool(number)
        values, report = maximize(objective, values, each, stage=stage, tolerance=tolerance)
        reports.append(report)
        if report.stages[0].gain < SETTLED:
            break
    return values


def _objective(regression: Regression, rows: Block, values: Values, size: int) -> Objective:
    """Return the likelihood of some rows beside the neighbours that they have at these values."""
    pattern, used = _prior(regression, values).neighbors(rows.inputs), rows
    if size < len(rows):
        some = torch.linspace(0, len(rows) - 1, size).long()
        pattern, kept = part(pattern, some.numpy())
        used, told = rows.take(torch.from_numpy(kept)), rows.take(some)
    else:
        told = rows

    def density(values: Values) -> tuple[Tensor, Values]:
        prior, (mean, noise) = _prior(regression, values), mean_and_noise(values)
        return LocalEvidence(prior, used, mean.double(), noise.double(), pattern).log_marginal_likelihood(), values

    jacobian = regression.scaling.targets.log_jacobian(told.count)
    return Objective(density, size, told.count, jacobian)


def _prior(regression: Regression, values: Values) -> LocalPrior:
    prior = regression.family.prior(values)
    assert isinstance(prior, LocalPrior)
    return prior
