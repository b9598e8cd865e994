"""Fitting through inducing points and neighbours that take up what these leave of the kernel, by one likelihood.

There is one kernel, which neighbours alone estimate as well, in a tenth of the time. So the search begins with these,
and points are chosen among the rows in the lengthscales found. Neighbours are found again after each search, as beside
any features (`rfgp.fitting.local`), and points are chosen again where lengthscales have moved
(`rfgp.fitting.inducing`); what is likelier then stands. Points that are learned move at the end, with all
hyperparameters, by the same likelihood of the same rows.
"""

from rfgp.fitting.inducing import chosen_again
from rfgp.fitting.local import AT_FIRST, POINTS, ROUNDS, LocalFit, ended, gains, rounds
from rfgp.fitting.maximize import Plan
from rfgp.parameters import Values
from rfgp.regression import FitReport, InducingFamily, Regression

AGAIN, ALONE = ", points chosen again", ", no points"


def fit_residual(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression; return the one found, with its posterior, and how it went."""
    fit = LocalFit.of(regression, plan)
    found, values, reports = _search(fit)
    while found.has_missed(values, reports[-1]):
        fit = fit.with_more()
        found, values, more = _search(fit)
        reports = [*reports, *more]
    if _family(fit).options.learn_inducing and plan.max_iterations:
        found, values, report = _learned(found, values)
        reports.append(report)
    return ended(found.regression.replace(hyperparameters=values), reports)


def _search(fit: LocalFit) -> tuple[LocalFit, Values, list[FitReport]]:
    values, before = rounds(fit, fit.regression.hyperparameters, ROUNDS, name=ALONE, alone=True)
    if _family(fit).has_moved(values):
        fit = fit.through(_family(fit).chosen(values, fit.pool))
    values, reports = rounds(fit, values, AT_FIRST)
    if reports[-1].stages:
        fit, values, more = chosen_again(fit, values, reports[-1], lambda fit, values: fit.search(values, AGAIN))
        reports = [*reports[:-1], *more] if more else reports
    if gains(reports[-1]):
        values, more = rounds(fit, values, ROUNDS - AT_FIRST, AT_FIRST)
        reports = [*reports, *more]
    return fit, values, [*before, *reports]


def _family(fit: LocalFit) -> InducingFamily:
    assert isinstance(fit.family, InducingFamily)
    return fit.family


def _learned(fit: LocalFit, values: Values) -> tuple[LocalFit, Values, FitReport]:
    """Search for the points and all free hyperparameters."""
    begin = values.beside({POINTS: _family(fit).drawn_points.clone()}, {})
    found, report = fit.search(begin, ", points too", last=True)
    raw = {name: found.raw[name] for name in values.raw}
    return fit.through(_family(fit).with_points(found.raw[POINTS])), values.replaced(raw), report
