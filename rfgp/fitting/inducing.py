"""Fitting through inducing points: hyperparameters and points in turn, then the points themselves if wanted.

Hyperparameters are searched for as with random features (`rfgp.fitting.subsets`), with fixed points. If lengthscales
have moved (`InducingFamily.has_moved`) after the first subset or at the end, points are chosen again at the new ones,
and the search continues on the same rows. The likelier result is kept. Points are chosen at most three times more,
while each time gains a thousandth of a nat a row. Learned points maximise the same likelihood with all hyperparameters,
on at most 16,384 rows.

With neighbours for the residual there is one kernel, which neighbours alone estimate as well, in a tenth of the time.
So the search starts with these, and points are chosen among the rows at the lengthscales found. Neighbours are found
again after each search (`rfgp.fitting.neighbors`).
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from rfgp.fitting import neighbors
from rfgp.fitting.context import FeatureFit
from rfgp.fitting.finish import finish
from rfgp.fitting.maximize import SMALL, Evaluation, Objective, Plan, maximize
from rfgp.fitting.neighbors import AT_FIRST, POINTS, Found, NeighborFit, finalize, more_rounds, rounds, search_all
from rfgp.fitting.subsets import SETTLED, begin, enlarge, optimize, searched
from rfgp.parameters import Values
from rfgp.regression import FitReport, InducingFamily, Regression, mean_and_noise
from rfgp.solvers import WarmStart, solver_for
from rfgp.threads import in_one_thread

ROUNDS = 3
"""The most choices of points after the first."""
MOST_ROWS = 2**14
"""The most rows that points are learned from."""
AnyFit = TypeVar("AnyFit", FeatureFit, NeighborFit)


def fit_inducing(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression through inducing points; return it with its posterior, and the report."""
    fit = FeatureFit.of(regression, plan)
    with torch.no_grad(), in_one_thread(len(fit.rows) <= SMALL):
        values = regression.hyperparameters
        reports, words = list[FitReport](), "every hyperparameter is fixed"
        if fit.free:
            values, reports = begin(fit, values)
            fit, values, reports = _chosen_again(fit, values, reports)
            first = reports[-1].stages[-1].rows
            values, reports, words = enlarge(fit, values, reports)
            if reports[-1].stages[-1].rows > first:
                fit, values, reports = _chosen_again(fit, values, reports)
            words += ", points chosen again" * (fit.family is not regression.family)
        if _family(fit).options.learn_inducing and plan.max_iterations:
            fit, values, report = _learned(fit, values)
            reports.append(report)
            words = f"points learned from {report.stages[-1].rows:,} rows ({report.message})"
        is_done = not reports or reports[-1].stages[-1].rows == len(fit.rows)
        return finish(fit, values, reports, words, is_done)


def _family(fit: FeatureFit | NeighborFit) -> InducingFamily:
    assert isinstance(fit.family, InducingFamily)
    return fit.family


def _chosen_again(
    fit: FeatureFit, values: Values, reports: list[FitReport]
) -> tuple[FeatureFit, Values, list[FitReport]]:
    rows = searched(fit.subset(reports[-1].stages[-1].rows))
    fit, values, more = chosen_again(fit, values, reports[-1], partial(optimize, rows=rows))
    return fit, values, [*reports[:-1], *more] if more else reports


def chosen_again(
    fit: AnyFit, values: Values, report: FitReport, search: Callable[[AnyFit, Values], tuple[Values, FitReport]]
) -> tuple[AnyFit, Values, list[FitReport]]:
    """Choose points again and search on the rows of the last search, while lengthscales move and it pays.

    Return the likeliest fit and values, and the reports of all searches, theirs last. There are none if nothing moved.
    """
    reports: list[FitReport] = [report]
    rows = report.stages[-1].rows
    for _ in range(ROUNDS):
        if not _family(fit).has_moved(values):
            break
        other = fit.through(_family(fit).chosen(values, fit.pool))
        found, last = search(other, values)
        gain = last.log_marginal_likelihood - reports[-1].log_marginal_likelihood
        if not gain > 0:
            reports.insert(-1, last)
            break
        fit, values, reports = other, found, [*reports, last]
        if gain < SETTLED * rows:
            break
    return fit, values, reports if len(reports) > 1 else []


def _learned(fit: FeatureFit, values: Values) -> tuple[FeatureFit, Values, FitReport]:
    """Search for the points and all free hyperparameters."""
    family, rows = _family(fit), searched(fit.subset(MOST_ROWS))
    begin = values.beside({POINTS: family.drawn_points.clone()}, {})

    def density(values: Values, warm_start: WarmStart = ()) -> Evaluation:
        prior, rest = family.prior_of(values.raw[POINTS], values), mean_and_noise(values)
        return Evaluation(solver_for(prior, rows, *rest).log_marginal_likelihood(), values)

    with torch.enable_grad():
        objective = Objective.of(fit.regression, rows, density)
        found, report = maximize(objective, begin, fit.plan, stage=f"points too, {len(rows):,} rows", tolerance=1e-6)
    family = family.with_points(found.raw[POINTS])
    raw = {name: found.raw[name] for name in values.raw}
    return fit.through(family), values.replaced(raw), report


AGAIN, ALONE = ", points chosen again", ", no points"


def fit_residual(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression; return it with its posterior, and the report."""
    found, values, reports = search_all(NeighborFit.of(regression, plan), _search_with_neighbors)
    if _family(found).options.learn_inducing and plan.max_iterations:
        found, values, report = _learned_with_neighbors(found, values)
        reports.append(report)
    return finalize(found.regression.replace(hyperparameters=values), plan, reports)


def _search_with_neighbors(fit: NeighborFit) -> Found:
    values, before = rounds(fit, fit.regression.hyperparameters, neighbors.ROUNDS, name=ALONE, alone=True)
    if _family(fit).has_moved(values):
        fit = fit.through(_family(fit).chosen(values, fit.pool))
    values, reports = rounds(fit, values, AT_FIRST)
    if reports[-1].stages:
        fit, values, more = chosen_again(fit, values, reports[-1], lambda fit, values: fit.search(values, AGAIN))
        reports = [*reports[:-1], *more] if more else reports
    values, reports = more_rounds(fit, values, reports)
    return fit, values, [*before, *reports]


def _learned_with_neighbors(fit: NeighborFit, values: Values) -> tuple[NeighborFit, Values, FitReport]:
    """Search for the points and all free hyperparameters."""
    begin = values.beside({POINTS: _family(fit).drawn_points.clone()}, {})
    found, report = fit.search(begin, ", points too", last=True)
    raw = {name: found.raw[name] for name in values.raw}
    return fit.through(_family(fit).with_points(found.raw[POINTS])), values.replaced(raw), report
