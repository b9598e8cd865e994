"""Selection among kernels by leave-one-out: fit each to all rows and keep the one with the best score."""

import time
from dataclasses import replace

import torch

from rfgp.errors import NotPositiveDefiniteError, SolverError
from rfgp.fitting import TIME_OVER, Plan, fit_terms
from rfgp.regression import FitReport, GPState, SelectionReport, Trial
from rfgp.regression.report import FLOPS_PER_SECOND
from rfgp.regression.state import at_starting_values
from rfgp.rows import gathered
from rfgp.selection.successive_halving import scores_of

EVALUATIONS = 40.0
"""The number of likelihood evaluations of a fit, for its predicted cost."""


def fit_kernels(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model, or each of several kernels, and keep the best by leave-one-out.

    `alternatives` are a few kernels, all fitted to all rows. The `search_space` of kernel="auto" has rounds instead.

    Args:
        state: The state of the model before the fit.
        plan: The options of the fits.

    Returns:
        The state of the fitted model, and the report with the selection.
    """
    spec = state.spec
    if not spec.options.alternatives:
        return fit_terms(state, plan)
    start_time, fits = time.monotonic(), dict[str, tuple[GPState, FitReport]]()
    log_probs, failed = list[torch.Tensor](), dict[str, Exception]()
    weight = gathered(state.require_rows(purpose="a fit")).counts()
    for name, kernel in spec.options.alternatives.items():
        if fits and plan.is_over():
            failed[name] = SolverError(f"not fitted: {TIME_OVER}")
            continue
        initial = at_starting_values(state, spec.with_options(spec.options.changed(kernel=kernel, alternatives={})))
        with plan.reporter.about(f"selection, {name}"):
            try:
                fitted, report = fit_terms(initial, replace(plan, deadline=plan.deadline.part()))
                log_prob = _left_out(fitted).to(weight)
            except (NotPositiveDefiniteError, SolverError, MemoryError) as error:
                failed[name] = error
                continue
        if torch.isfinite(log_prob).all():
            fits[name] = fitted, report
            log_probs.append(log_prob)
        else:
            failed[name] = NotPositiveDefiniteError("A log density of an observation given the others is not finite.")
    if not fits:
        raise next(iter(failed.values()))
    scores = scores_of(log_probs, weight, [len(weight)] * len(fits))
    best = max(range(len(fits)), key=lambda index: scores[index].value)
    trials = [  # a name is such as "alpha=1"
        Trial(name, dict([name.split("=", 1)]), *_cost(fitted), (score,))
        for (name, (fitted, _)), score in zip(fits.items(), scores, strict=True)
    ]
    trials += [Trial(name, dict([name.split("=", 1)]), 0.0, 0.0, (), str(error)) for name, error in failed.items()]
    value, standard_error = scores[best].value, scores[best].error
    reason = (
        f"{trials[best].name}: the best, log density {value:.3f} of {len(weight):,} rows "
        f"(standard error {standard_error:.2g})."
    )
    selection = SelectionReport(best, tuple(trials), reason, num_validation=len(weight), validation="leave-one-out")
    selection = replace(selection, rate=FLOPS_PER_SECOND, seconds=time.monotonic() - start_time)
    chosen, report = fits[trials[best].name]
    return chosen, replace(report, selection=selection)


def _left_out(fitted: GPState) -> torch.Tensor:
    """Return the log densities of observations given all others (n,)."""
    log_prob = torch.as_tensor(fitted.leave_one_out().log_prob).double()
    return log_prob.reshape(len(log_prob), -1).mean(1)


def _cost(fitted: GPState) -> tuple[float, float]:
    """Return the predicted seconds and bytes of a fit."""
    inputs = gathered(fitted.require_rows(purpose="a fit")).inputs
    factors = [block.refined(inputs).field.analysis for block in fitted.prior().precisions]
    seconds = EVALUATIONS * 3.0 * sum(float(factor.flops) for factor in factors) / FLOPS_PER_SECOND
    return seconds, float(sum(factor.num_bytes for factor in factors))
