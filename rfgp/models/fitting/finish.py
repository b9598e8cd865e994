"""The end of a fit: noise and output scale on all rows, the posterior, and how it went."""

import math
from typing import TYPE_CHECKING

import torch

from rfgp.inference import JoinedRows, Posterior, PrimalPosterior, gathered
from rfgp.inference.linear import Statistics, gather, solve
from rfgp.models.fitting.lbfgs import maximize
from rfgp.models.fitting.learning import Outcome
from rfgp.models.fitting.progress import reported
from rfgp.models.fitting.report import FitReport
from rfgp.models.fitting.scales import calibrate_noise, leave_one_out, solve_scales
from rfgp.models.state import Kept

if TYPE_CHECKING:
    from rfgp.models.fitting.sparse import Fit

CHECKED_ROWS = 2000
"""Rows whose leave-one-out predictions are reported."""


def finish(
    fit: "Fit", reports: list[FitReport], words: str, is_done: bool, outcome: Outcome | None = None
) -> FitReport:
    """Solve noise and scale on all rows, keep the posterior in the model, and report.

    Args:
        fit: With its model at the hyperparameters found.
        reports: Of the searches.
        words: How they ended.
        is_done: Whether the last of them was on all rows.
        outcome: Of learning frequencies.
    """
    learned = outcome if outcome is not None and outcome.frequencies is not None else None
    found = _posterior(fit, reports, is_done, learned)
    state = fit.model._known()
    total = float(found.log_marginal_likelihood()) + state.scaling.targets.log_jacobian(state.known_data("a fit").count)
    predictor = found.predictor()
    fit.model._kept = Kept(state, fit.hyperparameters.flat(), predictor.tensors(), predictor)
    calibration, density = _check(fit, found, learned)
    converged = not reports or (reports[-1].converged if learned is None else learned.has_settled)
    stages = tuple(stage for report in reports for stage in report.stages)
    if outcome is not None and outcome.stage.iterations:
        stages = (*stages, outcome.stage)
    return FitReport(
        converged=converged,
        iterations=sum(stage.iterations for stage in stages),
        evaluations=sum(stage.evaluations for stage in stages),
        log_marginal_likelihood=total,
        message=f"{'converged' if converged else 'stopped'}: {words}" if reports else words,
        at_bounds=_at_bounds(fit),
        trace=reports[-1].trace if reports else (),
        stages=stages,
        frequencies="fixed" if outcome is None else ("fell back" if learned is None else "learned"),
        calibration=calibration if math.isfinite(calibration) else None,
        leave_one_out=density if math.isfinite(density) else None,
        weights_used=found.weights_used if isinstance(found, PrimalPosterior) else None,
    )


def _posterior(fit: "Fit", reports: list[FitReport], is_done: bool, learned: Outcome | None) -> Posterior:
    """Return the posterior given all rows, noise and output scale found on them first."""
    free = {name for name, _, _ in fit.hyperparameters.free(fit.plan.fixed)} & {"noise", "outputscale"}
    is_primal = fit.prior().num_features <= len(fit.rows)
    if not is_done and free and not (is_primal and fit.solves_scales):
        reports.append(
            maximize(
                lambda: fit.posterior(fit.rows).log_marginal_likelihood(),
                fit.model._known(),
                fit.plan,
                stage="noise and scale on all rows",
                held=set(fit.hyperparameters.names) - free,
                tolerance=1e-7,
            )
        )
    if not is_primal:
        return fit.posterior(fit.rows)
    told = reported(fit.rows, fit.plan.reporter, "a pass over all rows")
    found = fit.plan.journal.remember("a pass over all rows", lambda: gather(fit.linear(told))._asdict())
    model = fit.linear(fit.rows)
    statistics = Statistics(**{name: tensor.to(model.mean.device) for name, tensor in found.items()})
    if not is_done and fit.solves_scales:
        was_precise = model.is_precise
        solve_scales(model, fit.hyperparameters, fit.model._known().known_data("a fit").count, statistics)
        model = fit.linear(fit.rows)
        if model.is_precise and not was_precise:
            statistics = gather(model)
        if learned is not None:
            calibrate_noise(model, fit.hyperparameters, statistics, learned.chosen_by)
            model = fit.linear(fit.rows)
    return PrimalPosterior(model, solve(statistics, model.variance, model.noise))


def _check(fit: "Fit", found: Posterior, learned: Outcome | None) -> tuple[float, float]:
    """Return the mean square of standardised leave-one-out residuals, and the mean log density of a value."""
    noise = fit.hyperparameters.standardized("noise").double()
    rows = fit.subset(CHECKED_ROWS) if learned is None else learned.judged_by
    if not isinstance(found, PrimalPosterior) and learned is not None:
        found = fit.posterior(gathered(JoinedRows([rows, learned.others])))
    elif not isinstance(found, PrimalPosterior):
        rows = gathered(fit.rows)
    mean, variance = leave_one_out(found, rows, noise)
    squares = (rows.targets - mean).square() / variance
    density = -0.5 * (squares + (2 * torch.pi * variance).log()).mean()
    jacobian = fit.model._known().scaling.targets.log_jacobian(1) / rows.num_outputs
    return float(squares.mean()), float(density) + jacobian


def _at_bounds(fit: "Fit") -> tuple[str, ...]:
    found = []
    for name, raw, limits in fit.hyperparameters.free(fit.plan.fixed):
        low, high = zip(*limits, strict=True)
        if low[0] is None:
            continue
        values = raw.detach().reshape(-1).double().cpu()
        bounds = (torch.tensor(side, dtype=torch.float64) for side in (low, high))
        if any(bool(((values - bound).abs() < 1e-6).any()) for bound in bounds):
            found.append(name)
    return tuple(found)
