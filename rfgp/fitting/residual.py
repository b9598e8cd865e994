"""Fitting through inducing points with neighbours for their residual, by one likelihood.

There is one kernel, which neighbours alone estimate as well, in a tenth of the time. So the search starts with these,
and points are chosen among the rows at the lengthscales found. Neighbours are found again after each search
(`rfgp.fitting.neighbors`), and points are chosen again if lengthscales have moved (`rfgp.fitting.inducing`); the
likelier result is kept. Learned points maximise the same likelihood at the end, with all hyperparameters.
"""

from rfgp.fitting.inducing import chosen_again
from rfgp.fitting.maximize import Plan
from rfgp.fitting.neighbors import (
    AT_FIRST,
    POINTS,
    ROUNDS,
    Found,
    NeighborFit,
    finalize,
    more_rounds,
    rounds,
    search_all,
)
from rfgp.parameters import Values
from rfgp.regression import FitReport, InducingFamily, Regression

AGAIN, ALONE = ", points chosen again", ", no points"


def fit_residual(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression; return it with its posterior, and the report."""
    found, values, reports = search_all(NeighborFit.of(regression, plan), _search)
    if _family(found).options.learn_inducing and plan.max_iterations:
        found, values, report = _learned(found, values)
        reports.append(report)
    return finalize(found.regression.replace(hyperparameters=values), plan, reports)


def _search(fit: NeighborFit) -> Found:
    values, before = rounds(fit, fit.regression.hyperparameters, ROUNDS, name=ALONE, alone=True)
    if _family(fit).has_moved(values):
        fit = fit.through(_family(fit).chosen(values, fit.pool))
    values, reports = rounds(fit, values, AT_FIRST)
    if reports[-1].stages:
        fit, values, more = chosen_again(fit, values, reports[-1], lambda fit, values: fit.search(values, AGAIN))
        reports = [*reports[:-1], *more] if more else reports
    values, reports = more_rounds(fit, values, reports)
    return fit, values, [*before, *reports]


def _family(fit: NeighborFit) -> InducingFamily:
    assert isinstance(fit.family, InducingFamily)
    return fit.family


def _learned(fit: NeighborFit, values: Values) -> tuple[NeighborFit, Values, FitReport]:
    """Search for the points and all free hyperparameters."""
    begin = values.beside({POINTS: _family(fit).drawn_points.clone()}, {})
    found, report = fit.search(begin, ", points too", last=True)
    raw = {name: found.raw[name] for name in values.raw}
    return fit.through(_family(fit).with_points(found.raw[POINTS])), values.replaced(raw), report
