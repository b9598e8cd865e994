"""Fitting features and a nearest-neighbor (Vecchia) process by one likelihood.

Distances to neighbors are in lengthscales of that process. Neighbors are fixed during a search and found again after
it. For many rows the likelihood is that of 16,384 of them, each given its neighbors among all rows. Without the other
rows, these would be less dense. If blocks of rows share neighbors and there are no features, 4,096 rows are used.
Features are marginalized, so that only these rows determine the weights. Frequencies are learned in
`rfgp.fitting.learn_frequencies`.

The likelihood has several optima, because features may explain structure that neighbors would explain better. So there
is also a search with neighbors alone. If it ends at a higher likelihood after as many iterations, a second search with
weak features starts there. The result with the better leave-one-out score is kept.

If neighbors are the residual of inducing points, neighbors alone estimate the same kernel in a tenth of the time. So
the search starts with neighbors alone, and points are selected among the rows at the lengthscales found.
"""

import math
from dataclasses import replace

import torch

from rfgp.fitting.context import TermFit, with_new_basis
from rfgp.fitting.frequencies import learned_frequencies
from rfgp.fitting.last_stage import if_finite, left_out
from rfgp.fitting.maximize import TIME_OVER, Plan
from rfgp.fitting.neighbor_fit import MAX_CHECKED, MIN_GAIN_OF_SUBSET_FIT, MIN_ROUND_GAIN, NeighborFit, neighbors_of
from rfgp.fitting.starts import free_lengthscales, with_dense_start, with_shorter_lengthscales
from rfgp.parameters import ParameterValues
from rfgp.regression import FitReport, GPState
from rfgp.regression.state import learnable_basis, with_learned
from rfgp.rows import gathered
from rfgp.threads import in_one_thread

ROUNDS = 6
"""The most searches with new neighbors on the same rows."""
FIRST_ROWS = 2**10
"""The number of rows of the first searches with neighbors alone, if a search takes more than twice as many."""
FIRST_ROUNDS, WEAK_FEATURES = 2, math.log(0.1)
"""The number of searches before starts are compared, and the log variance of weak features in variances of the
targets."""
MAX_RENEWALS = 3
"""The maximum number of times that inducing points are selected again on the same rows."""

SearchEnd = tuple[NeighborFit, ParameterValues, list[FitReport]]
"""The end of a search: the fit with its features, the values, and the reports."""


def fit_neighbors(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model with neighbors.

    Args:
        state: The model state with rows, at its starting values.
        plan: The options of the fit.

    Returns:
        The state with its posterior, and the report. There is no posterior if the plan limits the rows of a search.
    """
    fit, values, reports = search_all(NeighborFit.of(_with_start(state, plan), plan))
    frequencies = learned_frequencies(TermFit.of(fit.state, plan))
    basis = {path: tensor for path, tensor in learnable_basis(fit.spec).items() if path not in frequencies}
    if basis and plan.max_iterations and not plan.is_over():
        initial = values.with_extra_tensors({path: tensor.clone() for path, tensor in basis.items()}, {})
        values_found, report = fit.search(initial, ", basis too", last=True)
        fit = fit.with_spec(with_learned(fit.spec, {path: values_found.raw[path] for path in basis}))
        values, reports = values.replaced({name: values_found.raw[name] for name in values.raw}), [*reports, report]
    return conditioned_on_all_rows(fit.state.replace(hyperparameters=values), plan, reports)


def _with_start(state: GPState, plan: Plan) -> GPState:
    """Return a state at the most likely of several starts."""
    fit = TermFit.of(state, plan)
    if plan.is_continued or not free_lengthscales(fit):
        return state
    with torch.no_grad(), in_one_thread(True):
        fit = with_dense_start(fit)
        near = neighbors_of(fit.prior).names if len(fit.spec.terms) > 1 else ()
        terms = [term for term in fit.spec.terms if term.name in near]
        names = {f"{prefix}lengthscale" for term in terms for prefix in term.prefixes}
        return fit.at(with_shorter_lengthscales(fit, [name for name in free_lengthscales(fit) if name in names])).state


def _search(fit: NeighborFit) -> SearchEnd:
    """Search repeatedly with new neighbors until a search gains little."""
    begin, before = fit.state.hyperparameters, list[FitReport]()
    if fit.has_residual:
        begin, before = rounds(fit, begin, ROUNDS, name=", no points", alone=True)
        fit = fit.with_spec(with_new_basis(fit.state.replace(hyperparameters=begin)).spec)
    elif fit.size > 2 * FIRST_ROWS and fit.shares_neighbors:
        begin, before = rounds(replace(fit, most=FIRST_ROWS), begin, FIRST_ROUNDS)
    values, reports = rounds(fit, begin, FIRST_ROUNDS)
    is_multistart = fit.plan.max_iterations > 0 and not fit.plan.is_continued
    if fit.has_residual:
        fit, values, reports = _with_points_again(fit, values, reports)
    elif is_multistart and fit.of_features:
        other, more = from_neighbors_alone(fit, begin, reports[-1].log_marginal_likelihood)
        if other is not None and is_better(fit, (other, more[-1]), (values, reports[-1])):
            values, reports = other, [*reports, *more]
        else:
            reports = [*more, *reports]
    values, reports = more_rounds(fit, values, reports)
    return fit, values, [*before, *reports]


def _with_points_again(fit: NeighborFit, values: ParameterValues, reports: list[FitReport]) -> SearchEnd:
    """Select points again and search on the same rows, while the likelihood grows."""
    for _ in range(MAX_RENEWALS if reports[-1].stages else 0):
        if fit.plan.is_over():
            break
        spec = with_new_basis(fit.state.replace(hyperparameters=values)).spec
        if spec is fit.spec:
            break
        values_found, last = fit.with_spec(spec).search(values, ", points selected again")
        gain = last.log_marginal_likelihood - reports[-1].log_marginal_likelihood
        if not gain > 0:
            return fit, values, [*reports[:-1], last, reports[-1]]
        fit, values, reports = fit.with_spec(spec), values_found, [*reports, last]
        if gain < MIN_ROUND_GAIN * last.stages[-1].rows:
            break
    return fit, values, reports


def search_all(fit: NeighborFit) -> SearchEnd:
    """Search on more rows until all rows are about as likely as those of the search.

    Args:
        fit: The fit, with the fewest rows.

    Returns:
        The fit, the values and all reports.
    """
    end, values, reports = _search(fit)
    while end.needs_more_rows(values, reports[-1]):
        fit = fit.with_more(values)
        end, values, more = _search(fit)
        reports = [*reports, *more]
    return end, values, reports


def more_rounds(
    fit: NeighborFit, values: ParameterValues, reports: list[FitReport]
) -> tuple[ParameterValues, list[FitReport]]:
    """Search further with new neighbors if the last search gained enough.

    Args:
        fit: The fit.
        values: The values at the end of the last search.
        reports: The reports so far.

    Returns:
        The values found, and all reports.
    """
    if not fit.has_gained(reports[-1]):
        return values, reports
    values, more = rounds(fit, values, ROUNDS - FIRST_ROUNDS, FIRST_ROUNDS)
    return values, [*reports, *more]


def rounds(
    fit: NeighborFit, values: ParameterValues, most: int, before: int = 0, name: str = "", alone: bool = False
) -> tuple[ParameterValues, list[FitReport]]:
    """Search several times, each time with new neighbors, until a search gains little.

    Args:
        fit: The fit.
        values: The starting values.
        most: The most searches.
        before: The number of earlier searches, for the names of stages.
        name: The end of the names of stages.
        alone: Whether to omit the features.

    Returns:
        The values found, and the reports of these searches.
    """
    reports = list[FitReport]()
    for number in range(before, before + most):
        values, report = fit.search(values, name + f", neighbors {number + 1}" * bool(number), alone)
        reports.append(report)
        if not fit.has_gained(report):
            break
    return values, reports


def from_neighbors_alone(
    fit: NeighborFit, begin: ParameterValues, likelihood: float
) -> tuple[ParameterValues | None, list[FitReport]]:
    """Search with neighbors alone.

    If that is likelier, search again with weak features from there.

    Args:
        fit: The fit.
        begin: The starting values.
        likelihood: The log marginal likelihood to exceed, of the search with features.

    Returns:
        The values of the search with features, or None if there was none, and the reports.
    """
    values, reports = rounds(fit, begin, FIRST_ROUNDS, name=", neighbors alone", alone=True)
    if not reports[-1].log_marginal_likelihood > likelihood:
        return None, reports
    weak = set(fit.feature_scales) & set(values.space.free(fit.plan.fixed))
    values = values.replaced({name: torch.full_like(values.raw[name], WEAK_FEATURES) for name in weak})
    values, more = rounds(fit, values, FIRST_ROUNDS, name=", from neighbors alone")
    return values, [*reports, *more]


def is_better(
    fit: NeighborFit, first: tuple[ParameterValues, FitReport], second: tuple[ParameterValues, FitReport]
) -> bool:
    """Return whether the first of two results is better.

    The criterion is the leave-one-out score, or the log marginal likelihood for more than 131,072 rows.

    Args:
        fit: The fit.
        first: The values and the report of the first result.
        second: The values and the report of the second result.
    """
    if len(fit.rows) <= MAX_CHECKED:
        return fit.left_out_log_prob(first[0]) > fit.left_out_log_prob(second[0])
    return first[1].log_marginal_likelihood > second[1].log_marginal_likelihood


def conditioned_on_all_rows(
    state: GPState, plan: Plan, reports: list[FitReport], words: str = ""
) -> tuple[GPState, FitReport]:
    """Compute the posterior given all rows, and the report of all searches.

    If the plan limits the rows of a search, no posterior is computed.

    Args:
        state: The state at the values found.
        plan: The options of the fit.
        reports: The reports of the searches. The fit has converged if the last search did, or if its new neighbors
            gained little.
        words: The message of the report if validation rows decided. If empty, that of the last search.

    Returns:
        The state, and the report.
    """
    last = reports[-1]
    if plan.most_rows is not None:
        return state, last.merged_with(reports)
    least = MIN_GAIN_OF_SUBSET_FIT if plan.is_continued else MIN_ROUND_GAIN
    has_settled = last.iterations > 0 and last.stages[0].gain < least and last.message != TIME_OVER
    converged = last.converged or bool(words) or has_settled
    message = last.message if last.converged else "new neighbors gained little" if converged else last.message
    rows = gathered(state.require_rows(purpose="a fit"))
    with torch.no_grad():
        inference = state.infer(rows)
        total = float(inference.log_marginal_likelihood()) + state.scaling.targets.log_jacobian(rows.count)
        is_checked = len(rows) <= MAX_CHECKED
        left = left_out(state, inference.leave_one_out(), rows) if is_checked else None
        calibration, log_prob, neighbors = (None,) * 3 if left is None else map(if_finite, left[:3])
        report = replace(
            last.merged_with(reports),
            converged=converged,
            message=words or message,
            outliers=() if left is None else left.outliers,
            log_marginal_likelihood=total,
            likelihood_error=inference.likelihood_error,
            mean_squared_zscore=calibration,
            leave_one_out=log_prob,
            residual_autocorrelation=neighbors,
        )
        return state.replace(given=inference.posterior()), report
