"""The last stage of a fit: variances on all rows, the posterior, and the report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from rfgp.columns import ColumnKind
from rfgp.fitting.context import TOLERANCE, TermFit, calibrate_noise, of_observations, solve_scales
from rfgp.fitting.frequencies import Outcome
from rfgp.fitting.maximize import Objective, at_bounds, maximize
from rfgp.likelihoods.real import normal_log_prob
from rfgp.limits import limits
from rfgp.models import FitReport, GPState
from rfgp.models.diagnostics import STRUCTURED_ROWS
from rfgp.models.state import block_scales, variance_paths
from rfgp.rows import Block, JoinedRows, gathered
from rfgp.scaling import NORMAL_RANGE, unit_of
from rfgp.solvers import Inference
from rfgp.solvers.lowrank import LowRankSolver, Statistics, accumulate_gram, block_rows, needs_root, solve
from rfgp.solvers.onepass import OnePassSolver

_FEW_NEIGHBORS = 20
"""The minimum number of rows for a correlation of neighbors' errors."""


FEWEST_CHECKED = 50
"""The minimum number of rows for a test of outliers or of dispersion. With fewer its rate of false alarms is larger."""
FALSE_ALARM = 1e-4
"""The probability that errors of well-specified data are called outliers."""


CHECKED_ROWS, MAX_CHECKED = 2000, 2**17
"""The maximum number of rows whose leave-one-out predictions are reported, for weights and for other blocks. Those of
other blocks take a pass over all rows."""


def solve_scales_and_condition(
    fit: TermFit, reports: list[FitReport], outcome: Outcome | None = None
) -> tuple[GPState, FitReport]:
    """Solve for noise and variances on all rows, and compute the posterior.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports of the searches.
        outcome: The outcome of learning frequencies. If None, learning was not tried.

    Returns:
        The state with its posterior, and the report.
    """
    learned = outcome if outcome is not None and outcome.frequencies is not None else None
    of_learning = [] if learned is None else [learned.report]
    searches = [*reports, *of_learning]
    fit, inference = _solved(fit, reports, learned)
    report = merged(fit, [*reports, *of_learning], searches)
    if outcome is not None and learned is None:
        steps = outcome.report.merged_with([report, outcome.report])
        steps = replace(steps, converged=report.converged, at_bounds=report.at_bounds)
        report = replace(steps, message=f"{report.message}; {outcome.report.message}")
    if outcome is not None:
        report = replace(report, frequencies="rejected" if learned is None else "learned")
    return with_posterior(fit.state, inference, report, _check(fit, inference, learned))


def merged(fit: TermFit, reports: Sequence[FitReport], searches: Sequence[FitReport] = ()) -> FitReport:
    """Return the report of all searches, whose message names the rows of the last one.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports of the searches. The fit has converged if the last one did.
        searches: Those before noise and variances alone were found on all rows. If empty, all.
    """
    message, converged = "no search was made" if fit.free else "every hyperparameter is fixed", True
    if searched := [report for report in searches or reports if report.stages]:
        last, rows = searched[-1], searched[-1].stages[-1].rows
        share = f"all {rows:,}" if rows == len(fit.rows) else f"{rows:,} of {len(fit.rows):,}"
        converged = last.converged
        message = f"{'converged' if converged else 'stopped'}: on {share} rows ({last.message})"
        gain = last.stages[0].gain
        is_larger = len(searched) > 1 and searched[-2].stages[-1].rows < rows < len(fit.rows)
        if is_larger and gain >= limits().min_subset_gain:
            message += f"; they gained {gain:.1g} nats a row on the subset before, and no larger one is searched"
    return FitReport(converged, 0, 0, math.nan, message, at_bounds(fit.values, fit.free)).merged_with(reports)


def with_leave_one_out_scores(fit: TermFit, report: FitReport) -> tuple[GPState, FitReport]:
    """Compute the posterior and the leave-one-out scores of a fit.

    Args:
        fit: The fit at the hyperparameters found.
        report: The report of its searches.

    Returns:
        The state with its posterior, and the report with these scores.
    """
    with torch.no_grad():
        inference = fit.state.infer(fit.rows)
        return with_posterior(fit.state, inference, report, _check(fit, inference, None))


def with_posterior(
    state: GPState, inference: Inference, report: FitReport, scores: Mapping[str, Any] | None = None
) -> tuple[GPState, FitReport]:
    """Return a state with its posterior, and its report with the likelihood and the scores of all rows.

    Args:
        state: The state at the hyperparameters found.
        inference: Its inference from all rows, without gradients.
        report: The report of the searches.
        scores: The scores of leave-one-out predictions by field of the report. If None, the report keeps its own.
    """
    count = state.require_rows(purpose="a fit").count
    report = replace(
        report,
        log_marginal_likelihood=float(inference.log_marginal_likelihood()) + state.scaling.targets.log_jacobian(count),
        likelihood_error=inference.likelihood_error,
        effective_dof_fraction=inference.effective_dof_fraction,
        message=report.message + inference.remark,
        **(scores or {}),
    )
    return state.replace(given=inference.posterior()), report


def _solved(fit: TermFit, reports: list[FitReport], learned: Outcome | None) -> tuple[TermFit, Inference]:
    """Find noise and variances on all rows, unless the last search was on these; return the fit and its inference."""
    is_done = any(stage.rows == len(fit.rows) for report in reports[-1:] for stage in report.stages[-1:])
    names = variance_paths(fit.spec) or tuple(scale for term in fit.spec.terms if (scale := term.outputscale))
    free, is_primal = set(fit.free) & {"noise", *names}, fit.is_primal(fit.rows)
    solves = is_primal and bool(fit.scales) and bool(block_scales(fit.spec, fit.prior))
    if not is_done and free and not solves:
        objective, held = Objective.of(fit.state, fit.rows), set(fit.values.space.names) - free
        stage = "noise and scale on all rows"
        values, report = maximize(objective, fit.values, fit.plan, stage=stage, held=held, tolerance=TOLERANCE)
        fit = fit.at(values)
        reports.append(report)
    if not is_primal:
        return fit, fit.state.infer(fit.rows)
    model, statistics = fit.linear(fit.values, fit.rows), _statistics(fit)
    if not is_done and solves:
        was_precise = model.needs_float64
        fit = fit.at(solve_scales(fit, model, statistics))
        model = fit.linear(fit.values, fit.rows)
        if needs_root(statistics, model.scale, model.noise) or (model.needs_float64 and not was_precise):
            statistics = accumulate_gram(model)
            fit = fit.at(solve_scales(fit, model, statistics))
            model = fit.linear(fit.values, fit.rows)
        if learned is not None:
            fit = fit.at(calibrate_noise(model, fit.values, statistics, learned.split.validation))
            model = fit.linear(fit.values, fit.rows)
    return fit, LowRankSolver(model, solve(statistics, model.scale, model.noise))


def _statistics(fit: TermFit) -> Statistics:
    """Return the statistics of all rows, and report the progress of the pass."""
    stage, size = "a pass over all rows", block_rows(fit.num_features)
    fit.plan.reporter.begin(stage, len(fit.rows), max(1, -(-len(fit.rows) // size)))
    model = fit.linear(fit.values, fit.rows)
    return accumulate_gram(model, fit.plan.reporter.block)


def _check(fit: TermFit, inference: Inference, learned: Outcome | None) -> dict[str, Any] | None:
    """Return the scores of leave-one-out predictions, or None for too many rows."""
    rows = fit.subset(CHECKED_ROWS) if learned is None else learned.split.test
    numbers: Tensor | None = torch.arange(len(fit.rows))
    if isinstance(inference, LowRankSolver | OnePassSolver):
        moments = inference.leave_one_out(rows)
        if learned is None and len(fit.pool) == len(fit.rows) > len(rows):
            numbers = fit.order[: len(rows)]
        elif learned is not None or len(fit.pool) < len(fit.rows):
            numbers = None
    elif learned is not None:
        every = JoinedRows([rows, learned.split.validation, learned.split.training])
        all_rows = fit.state.infer(gathered(every))
        mean, variance = all_rows.leave_one_out()
        moments, numbers = (mean[: len(rows)], variance[: len(rows)]), None
    else:
        if len(fit.rows) > MAX_CHECKED:
            return None
        rows, moments = gathered(fit.rows), inference.leave_one_out()
    scores = left_out(fit.state, moments, rows)
    scores["outliers"] = tuple(-1 if numbers is None else int(numbers[index]) for index in scores["outliers"])
    if learned is not None and len(rows) < STRUCTURED_ROWS:  # the limit of a warning is for the rows of the fit
        scores["residual_autocorrelation"] = None
    return scores


def left_out(state: GPState, moments: tuple[Tensor, Tensor], rows: Block) -> dict[str, Any]:
    """Return the scores of leave-one-out predictions.

    Args:
        state: The state, at its hyperparameters.
        moments: The mean (b, k) and variance (b,) of each row given all others.
        rows: The rows. If all columns are numbers, neighbors are found among the first 2,000.

    Returns:
        Fields of a report: the mean squared z-score, the mean log density of an observation in the user's units, the
        correlation of the errors of nearest rows, which is None if a column is not numeric, and the outliers.
    """
    mean, variance = of_observations(moments, rows, state.hyperparameters.standardized("noise").double())
    errors = (rows.targets - mean) / variance.sqrt()
    log_prob = normal_log_prob(rows.targets, mean, variance).mean()
    jacobian = state.scaling.targets.log_jacobian(1) / rows.num_outputs
    schema = state.spec.schema
    has_numeric_columns = schema is not None and all(column.kind is ColumnKind.NUMBER for column in schema.columns)
    some = slice(CHECKED_ROWS)
    neighbors = neighbor_correlation(rows.inputs[some], errors[some]) if has_numeric_columns else math.nan
    return {
        "mean_squared_zscore": if_finite(float(errors.square().mean())),
        "leave_one_out": if_finite(float(log_prob) + jacobian),
        "residual_autocorrelation": if_finite(neighbors),
        "outliers": outliers_of(errors),
    }


def outliers_of(
    errors: Tensor,  # (b, k)
) -> tuple[int, ...]:
    """Return the rows with more than half of the squared errors of one output, the largest first, or none.

    Outliers are beyond the range of b normal errors with the interquartile range of these errors, up to a probability
    of 1e-4, and beyond their own standard deviation. At least 50 rows are needed.

    Args:
        errors: The leave-one-out errors over their standard deviations, (b, k).

    Examples:
        >>> errors = torch.linspace(-2, 2, 100, dtype=torch.float64)[:, None]
        >>> errors[[3, 7]] = 40.0
        >>> outliers_of(errors)
        (3, 7)
    """
    e = errors.detach().cpu()
    if e.shape[1] != 1 or len(e) < FEWEST_CHECKED or not bool(torch.isfinite(e).all()):
        return ()
    low, middle, high = torch.quantile(e[:CHECKED_ROWS, 0], e.new_tensor([0.25, 0.5, 0.75]))
    limit = -float(torch.special.ndtri(torch.tensor(0.5 * FALSE_ALARM / len(e), dtype=torch.float64)))
    squares = (e[:, 0] - middle).square()
    is_far = squares > ((high - low) / NORMAL_RANGE * limit).square().clamp_min(1.0)
    if float(squares[is_far].sum()) <= 0.5 * float(squares.sum()):
        return ()
    order = squares.argsort(descending=True, stable=True)
    return tuple(order[: int(is_far.sum())].tolist())


def if_finite(value: float) -> float | None:
    """Return a number, or None if it is not finite.

    Args:
        value: A number, or NaN or infinity.
    """
    return value if math.isfinite(value) else None


def neighbor_correlation(
    inputs: Tensor,  # (b, d)
    errors: Tensor,  # (b, k)
) -> float:
    """Return the correlation of errors of nearest rows, or NaN for fewer than 20 or without columns.

    Under the true model it is at most 0: leave-one-out errors D C^-1 y have the covariance D C^-1 D, and its entries
    for neighbors are negative.

    Args:
        inputs: The rows, (b, d).
        errors: The leave-one-out errors over their standard deviations, (b, k).

    Examples:
        >>> x = torch.linspace(0, 1, 400)[:, None]
        >>> round(neighbor_correlation(x, torch.sin(20 * x)), 2)  # errors that vary slowly
        1.0
    """
    if len(errors) < _FEW_NEIGHBORS or not inputs.shape[1]:
        return math.nan
    rows = inputs.detach().double().cpu()
    points = (rows / unit_of(rows.abs().amax())).numpy()  # squares of distances are finite
    _, near = cKDTree(points).query(points, k=2)
    other = torch.from_numpy(np.where(near[:, 1] == np.arange(len(points)), near[:, 0], near[:, 1]))  # of duplicates
    errors = (errors - errors.mean(0)).cpu()
    return float((errors * errors[other]).sum() / errors.square().sum())
