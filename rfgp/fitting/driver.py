"""One driver of all fits: searches on the rows of one stage after the other.

A stage is data: its rows, whether the basis is renewed until nothing changes, and the gain below which later stages are
left out. `rfgp.fitting.terms` selects the stages of a model. `search` is the only search: L-BFGS within bounds, or
scoring steps if gradients are estimated or cost a pass over all rows (`rfgp.fitting.scoring`).
"""

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch

from rfgp.approximations.planning import names_sharing_budget
from rfgp.fitting.context import (
    TOLERANCE,
    SearchEnd,
    TermFit,
    in_search_precision,
    ratio_bounds,
    scale_profile_likelihood,
)
from rfgp.fitting.maximize import MIN_GAIN, Objective, maximize
from rfgp.fitting.scoring import scoring_for
from rfgp.fitting.starts import ROUNDED, SCREENED_ROWS
from rfgp.limits import limits
from rfgp.models import FitReport
from rfgp.models.diagnostics import degrees_of_freedom
from rfgp.models.state import learnable_basis, with_learned
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, Rows, gathered

_STAGE, BASIS_ROWS = "basis too", 2**14
"""The name of the search for a basis and hyperparameters together, and the maximum number of its rows."""
ROUNDS = 6
"""The maximum number of searches on the same rows, each with a new basis, new lattices or new neighbors. Most end after
fewer."""
COARSE = 1e-5
"""The smallest gain of an iteration with inducing points and many rows, in nats a row.

Noise and lengthscales compensate each other along a ridge, and another draw of points changes the likelihood by more.
5,000 rows of elevators with 128 points by FITC take 18 s. With 1e-6 they take 36 s, and the NLPD is higher by 0.004."""

CLASS_GAIN = 1e-4
"""The smallest gain of an iteration on the ELBO for several classes, in nats a row.

If inputs separate the classes, a search would continue for a hundred evaluations that gain 0.1 nats each."""

F = TypeVar("F", bound=TermFit)

# --- searches --------------------------------------------------------------------------------------


def search(
    fit: TermFit, rows: Rows, *, most: int | None = None, note: str = "", tolerance: float | None = None
) -> SearchEnd:
    """Search hyperparameters by L-BFGS or by scoring steps.

    L-BFGS solves for the common factor of variances if possible.

    Args:
        fit: The fit at its starting values.
        rows: The rows.
        most: The maximum number of iterations. If None, those of the plan.
        note: The end of the name of the stage in the report.
        tolerance: The smallest gain of an iteration, in nats a row. If None, a default for the model and rows.

    Returns:
        The fit at the values found, and the report.
    """
    plan = fit.plan if most is None else replace(fit.plan, iteration_limit=min(most, fit.plan.max_iterations))
    scoring, stage = scoring_for(fit, rows), fit.stage(rows) + ", exact kernel" * bool(fit.prior.kernels)
    if scoring is not None:
        values, report = scoring(replace(fit, plan=plan), rows, stage + note).run()
        return fit.at(values), report
    values, reports, block = fit.values, list[FitReport](), gathered(rows)
    tolerance = _tolerance(fit, block) if tolerance is None else tolerance
    if fit.solves(block):
        objective, held = Objective.of(fit.state, block, scale_profile_likelihood(fit, block)), fit.scales[:1]
        options: dict[str, Any] = {"held": held, "bounds": ratio_bounds(fit), "tolerance": tolerance}
        values, report = maximize(objective, values, plan, stage=stage + note, **options)
        inside, was_outside = values.clamped((*fit.scales, "noise"))
        if not was_outside:
            return fit.at(values), report
        values, reports, note = inside, [report], " within bounds" + note
    values, report = maximize(Objective.of(fit.state, block), values, plan, stage=stage + note, tolerance=tolerance)
    return fit.at(values), report.merged_with([*reports, report])


def _tolerance(fit: TermFit, rows: Block) -> float:
    if fit.spec.options.likelihood.num_latents > 1:
        return CLASS_GAIN
    if fit.prior.dense.has_residual and len(fit.rows) > limits().subset_rows:
        return COARSE
    return MIN_GAIN / rows.count if len(rows) <= limits().subset_rows else TOLERANCE


def best_of_starts(
    fit: TermFit,
    rows: Rows,
    starts: Iterable[ParameterValues],
    tolerance: float | None = None,
    score: Callable[[TermFit, FitReport], float] | None = None,
) -> SearchEnd:
    """Search from each of several starts; return the best end, and its report with all searches.

    Args:
        fit: The fit.
        rows: The rows.
        starts: The starting values, at least one.
        tolerance: The smallest gain of an iteration, in nats a row. If None, a default for the model and rows.
        score: The score of an end, in nats. If None, its log posterior.
    """
    ends = list[SearchEnd]()
    for number, start in enumerate(starts):
        if ends and fit.plan.is_over():
            break
        ends.append(search(fit.at(start), rows, note=f", start {number + 1}" * bool(number), tolerance=tolerance))
    best, report = max(ends, key=lambda end: round((score or log_posterior_of)(*end), ROUNDED))
    return best, report.merged_with([report for _, report in ends])


def log_posterior_of(fit: TermFit, report: FitReport) -> float:
    """Return the log marginal likelihood at the end of a search plus the log hyperpriors, -inf if it is not known.

    Args:
        fit: The fit at the end of the search.
        report: The report of the search.
    """
    total = report.log_marginal_likelihood + float(fit.values.log_hyperprior().detach())
    return total if math.isfinite(total) else -math.inf


# --- stages ----------------------------------------------------------------------------------------


class SearchStage(NamedTuple):
    """A stage of a fit: a search on some rows.

    A stage with a least gain is left out if time is over. Other stages then report that they were not searched.
    """

    rows: Block
    with_basis: bool = False  # whether the basis is renewed and learned
    least: float = -math.inf  # the gain in nats a row below which later stages are left out


def search_in_stages(
    fit: TermFit, stages: Iterable[SearchStage], reports: Sequence[FitReport] = ()
) -> tuple[TermFit, list[FitReport]]:
    """Search on the rows of one stage after the other, until a stage gains little.

    Args:
        fit: The fit at its starting values.
        stages: The stages.
        reports: The reports so far.

    Returns:
        The fit at the values found, and all reports.
    """
    reports = list(reports)
    for stage in stages:
        if stage.least > -math.inf and fit.plan.is_over():
            break
        fit, report = search(fit, stage.rows)
        reports.append(report)
        if stage.with_basis:
            fit, reports = learn_basis(*with_best_basis(fit, reports))
        if report.stages and report.stages[0].gain < stage.least:
            break
    return fit, reports


def in_rounds(
    fit: F,
    search_round: Callable[[F, int], tuple[F, FitReport]],
    most: int,
    has_settled: Callable[[F, F, FitReport], bool],
) -> tuple[F, list[FitReport]]:
    """Search several times on the same rows, each time with what depends on the hyperparameters found.

    Args:
        fit: The fit at its starting values.
        search_round: Searches from a fit, given the number of the search from 0.
        most: The most searches.
        has_settled: Returns whether a search from one fit to another with some report is the last one.

    Returns:
        The fit at the values found, and the reports of these searches.
    """
    reports = list[FitReport]()
    for number in range(most):
        if reports and fit.plan.is_over():
            break
        before = fit
        fit, report = search_round(fit, number)
        reports.append(report)
        if has_settled(before, fit, report):
            break
    return fit, reports


# --- bases -----------------------------------------------------------------------------------------


def with_renewed_basis(
    fit: F,
    reports: list[FitReport],
    search_again: Callable[[F], tuple[F, FitReport]],
    least: float = -math.inf,
) -> tuple[F, list[FitReport]]:
    """Renew the basis and search again, while the likelihood grows.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports so far.
        search_again: Searches on the rows of the last search.
        least: The smallest gain in nats of a search after which the basis is renewed once more. If -inf, a new basis is
            kept even if the likelihood does not grow, such as one that is more precise at these hyperparameters.

    Returns:
        The most likely fit, and the reports of all searches, its own report last.
    """
    for _ in range(ROUNDS if reports[-1].stages else 0):
        other = fit if fit.plan.is_over() else fit.with_new_basis()
        if other.spec is fit.spec:
            break
        end, last = search_again(other)
        gain = last.log_marginal_likelihood - reports[-1].log_marginal_likelihood
        if not gain > 0 and least > -math.inf:
            return fit, [*reports[:-1], last, reports[-1]]
        fit, reports = end, [*reports, last]
        if gain < least:
            break
    return fit, reports


def with_best_basis(fit: TermFit, reports: list[FitReport]) -> tuple[TermFit, list[FitReport]]:
    """Divide features that share a budget, and renew the basis while the likelihood of the last rows grows.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports so far.

    Returns:
        The most likely fit, and the reports of all searches, its own report last.
    """
    if not reports[-1].stages:
        return fit, reports
    rows = in_search_precision(fit.subset(reports[-1].stages[-1].rows))
    again = partial(search, rows=rows, note=", new basis")
    divided = fit if fit.plan.is_over() else _divided(fit, rows)
    if divided is not fit:
        fit, report = again(divided.with_new_basis())
        reports = [*reports, report]
    return with_renewed_basis(fit, reports, again, limits().min_subset_gain * len(rows))


def learn_basis(
    fit: F,
    reports: list[FitReport],
    search: Callable[[F], tuple[F, FitReport]] | None = None,
    fixed: Container[str] = (),
) -> tuple[F, list[FitReport]]:
    """Learn bases and hyperparameters together by L-BFGS, if the fit may change any.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports of the searches.
        search: Searches from a fit whose hyperparameters include the basis. If None, on at most 16,384 rows.
        fixed: The dotted names of parts of the basis that stay fixed.

    Returns:
        The fit with the learned basis, and all reports. If there is nothing to learn, the arguments themselves.
    """
    basis = {path: tensor for path, tensor in learnable_basis(fit.spec).items() if path not in fixed}
    if not basis or not fit.plan.max_iterations or fit.plan.is_over():
        return fit, reports
    initial = fit.at(fit.values.with_extra_tensors({path: tensor.clone() for path, tensor in basis.items()}, {}))
    end, report = (search or _search_with_basis)(initial)
    values = fit.values.replaced({name: end.values.raw[name] for name in fit.values.raw})
    learned = {path: end.values.raw[path].detach() for path in basis}
    return fit.with_spec(with_learned(fit.spec, learned)).at(values), [*reports, report]


def _search_with_basis(initial: F) -> tuple[F, FitReport]:
    """Search from a fit whose hyperparameters include the basis; return its end and the report."""
    rows = in_search_precision(initial.subset(BASIS_ROWS))
    with torch.enable_grad():
        objective = Objective.of(initial.state, rows)
        values, report = maximize(objective, initial.values, initial.plan, stage=_STAGE, tolerance=TOLERANCE)
    return initial.at(values), report


def _divided(fit: TermFit, rows: Block) -> TermFit:
    """Return a fit with features divided by the terms' effective degrees of freedom."""
    spec = fit.spec
    names = names_sharing_budget(spec.options.approximations, spec.approximations)
    if spec.options.budget is None or len(names) < 2 or not spec.is_gaussian:
        return fit
    pilot = fit.state.replace(rows=rows, num_observations=len(rows))
    with torch.no_grad():
        freedom = degrees_of_freedom(pilot, rows.inputs[:SCREENED_ROWS])
    shares = {name: max(freedom[name], 1e-3) for name in names}
    changed = spec.with_approximations(spec.approximations, fit.values, fit.state.num_observations, shares)
    return fit.with_spec(changed)
