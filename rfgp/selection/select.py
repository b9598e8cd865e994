"""Selection of a model: kernels by leave-one-out, and the fit of what was chosen."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rfgp.columns import ColumnKind
from rfgp.errors import NotPositiveDefiniteError, SolverError
from rfgp.fitting import TIME_OVER, Deadline, Plan, ended_early, fit_terms
from rfgp.fitting.frequencies import mean_and_standard_error
from rfgp.fitting.integrated import check_integrated, with_integrated
from rfgp.fitting.last_stage import with_posterior
from rfgp.fitting.neighbors import MAX_ROWS_SHARED_NEIGHBORS, finished
from rfgp.messages import counted
from rfgp.models import FitReport, GPState, Score, SelectionReport, Trial
from rfgp.models.diagnostics import check_periods
from rfgp.models.report import CONSTANT, FLOPS_PER_SECOND, LINEAR
from rfgp.models.state import at_starting_values, averaged
from rfgp.rows import SourceRows, gathered, rows_in_memory
from rfgp.selection.costs import EVALUATIONS
from rfgp.selection.groups import FORWARD, candidate_periods, group_levels, last_times, merged_rows
from rfgp.selection.noise import likelihoods_for, selects_noise, with_noise
from rfgp.selection.series import fit_series, is_series, series_report
from rfgp.selection.successive_halving import MAX_FRACTION, CandidateState, SuccessiveHalving, mixture_log_prob_of
from rfgp.selection.validation import (
    LEAVE_ONE_OUT,
    OPTIMISM,
    FittedCandidate,
    Validation,
    conditioned,
    initial_state_for,
    optimism_of,
    score_of,
)

# --- A few kernels: fit each to all rows, and average those with high marginal likelihoods ---------------------------

MIN_EVIDENCE_WEIGHT = 1e-3
"""The weight below which a kernel is dropped from an average by marginal likelihoods."""


def evidence_weights(evidence: Mapping[str, float]) -> dict[str, float]:
    """Return the posterior probabilities of models with equal prior probabilities, without negligible ones.

    The weight of a model M is p(y | M) / sum over M' of p(y | M'). The Schwarz approximation is log p(y | M) ~
    log p(y | t, M) - (k / 2) log n with k fitted hyperparameters t and n values. All models here have the same k, so
    that the correction cancels, and weights are in proportion to maximized likelihoods p(y | t, M). Weights below
    `MIN_EVIDENCE_WEIGHT` are dropped.

    Sources: Hoeting, Madigan, Raftery and Volinsky (1999), Bayesian model averaging: a tutorial, Statistical Science
    14(4), Equations 1 and 2. Kass and Raftery (1995), Bayes factors, JASA 90(430), Section 4.1.3.

    Args:
        evidence: The maximized log marginal likelihood of each model by name.

    Returns:
        The weights that are not negligible by name, the largest first. They sum to one.
    """
    logs = torch.tensor(list(evidence.values()), dtype=torch.float64)
    shares = dict(zip(evidence, logs.softmax(0).tolist(), strict=True))
    kept = {name: share for name, share in shares.items() if share >= MIN_EVIDENCE_WEIGHT}
    total = math.fsum(kept.values())
    return {name: kept[name] / total for name in sorted(kept, key=lambda name: -kept[name])}


def fit_kernels(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model, or each of several kernels, and average these.

    `alternatives` are a few kernels, all fitted to all rows. With a Gaussian likelihood and one output they are
    averaged by `evidence_weights`. Otherwise the best by leave-one-out is kept. The `search_space` of kernel="auto" has
    rounds instead.

    Args:
        state: The state of the model before the fit.
        plan: The options of the fits.

    Returns:
        The state of the fitted model, and the report with the selection.
    """
    spec = state.spec
    if not spec.options.alternatives:
        return fit_terms(state, plan)
    start_time, fits, failed = time.monotonic(), dict[str, tuple[GPState, FitReport, Tensor]](), dict[str, Exception]()
    weight, optimism = gathered(state.require_rows(purpose="a fit")).counts(), dict[str, float]()
    for name, kernel in spec.options.alternatives.items():
        try:
            initial = at_starting_values(state, spec.with_options(spec.options.changed(kernel=kernel, alternatives={})))
            if fits and plan.is_over():
                raise SolverError(f"not fitted: {plan.deadline.reason}")
            with plan.reporter.about(f"selection, {name}"):
                fitted, report = fit_terms(initial, replace(plan, deadline=plan.deadline.part()))
                log_prob = torch.as_tensor(fitted.leave_one_out().log_prob).to(weight)
            log_prob = log_prob.reshape(len(weight), -1).mean(1)
            if not torch.isfinite(log_prob).all():
                raise NotPositiveDefiniteError("A log density of an observation given the others is not finite.")
            optimism[name] = optimism_of(fitted, plan.fixed, float(weight.sum()))
            fits[name] = fitted, report, log_prob - optimism[name]
        except (NotPositiveDefiniteError, SolverError, MemoryError) as error:
            failed[name] = error
        except KeyboardInterrupt:
            if not fits:
                raise
            plan.deadline.interrupt()
            failed[name] = SolverError(f"not fitted: {plan.deadline.reason}")
    if not fits:
        raise next(iter(failed.values()))
    best = max(fits, key=lambda name: mean_and_standard_error(fits[name][2], weight)[0])
    shares = {best: 1.0}
    evidence = {name: report.log_marginal_likelihood for name, (_, report, _) in fits.items()}
    is_single = state.scaling.targets.scale.numel() == 1
    if spec.is_gaussian and is_single and all(map(math.isfinite, evidence.values())):
        shares = evidence_weights(evidence)
    best, *others = shares
    chosen, report, highest = fits[best]
    scores = {
        name: score_of(len(weight), log_prob, highest, weight, optimism[name])
        for name, (_, _, log_prob) in fits.items()
    }
    trials = [  # a name is such as "alpha=1"
        Trial(name, dict([name.split("=", 1)]), *_cost(fitted), (scores[name],))
        for name, (fitted, _, _) in fits.items()
    ]
    trials += [Trial(name, dict([name.split("=", 1)]), 0.0, 0.0, (), str(error)) for name, error in failed.items()]
    parts = ", ".join(f"{name} ({share:.2g})" for name, share in shares.items())
    reason = (
        f"{f'The average of {parts}, the first with' if others else f'{best}: the best,'} log density "
        f"{scores[best].value:.3f} of {len(weight):,} rows (standard error {scores[best].error:.2g})."
    )
    selection = SelectionReport(
        list(fits).index(best),
        tuple(trials),
        reason,
        num_validation=len(weight),
        validation=LEAVE_ONE_OUT,
        rate=FLOPS_PER_SECOND,
        weights=tuple(shares.get(trial.name, 0.0) for trial in trials) if others else (),
        seconds=time.monotonic() - start_time,
    )
    if others:
        chosen = averaged(chosen, shares[best], [(shares[name], fits[name][0]) for name in others])
    return chosen, replace(report, selection=selection)


def _cost(fitted: GPState) -> tuple[float, float]:
    """Return the predicted seconds and bytes of a fit."""
    inputs = gathered(fitted.require_rows(purpose="a fit")).inputs
    factors = [block.refined(inputs).field.analysis for block in fitted.prior().precisions]
    seconds = EVALUATIONS * sum(float(factor.flops) for factor in factors) / FLOPS_PER_SECOND
    return seconds, float(sum(factor.num_bytes for factor in factors))


# --- Fits of `rfgp.GP(kernel="auto")`: score the candidates and fit the best to all rows -----------------------------

RESTART_FRACTION = 1 / 8
"""The fraction of rows below which a fit of several terms restarts its search on all rows."""


def fit_model(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model, after a selection if the kernel is "auto".

    Args:
        state: The state of the model before the fit.
        plan: The options of the fit.

    Returns:
        The state of the fitted model, and the report with the selection if there was one.
    """
    check_integrated(state)
    check_periods(state)
    own_plan = _with_fixed_mean(state, plan)
    if state.spec.options.search_space is None:
        fitted, report = with_integrated(*fit_kernels(state, own_plan), own_plan)
        return _with_noise(fitted, report, own_plan)
    if is_series(state, plan):
        return with_integrated(*fit_series(state, own_plan), own_plan)
    start_time, halving = time.monotonic(), halving_for(state, plan)
    chosen = halving.run()
    end_of_scoring = time.monotonic()
    best, *others = chosen
    fitted, report = _fit_to_all_rows(halving, best, plan.deadline)
    if others:
        members = [(one.weight, _member_of(halving, one, plan.deadline)) for one in others]
        fitted = averaged(fitted, best.weight, members)
    fitted, report = with_integrated(fitted, report, own_plan)
    selection = report_of(halving, chosen, plan.deadline.seconds_passed)
    report = replace(report, selection=replace(selection, seconds=end_of_scoring - start_time))
    fitted, report = _with_noise(fitted, report, own_plan, chosen, halving.validation)
    assert report.selection is not None
    fit_seconds = time.monotonic() - end_of_scoring
    return fitted, replace(report, selection=replace(report.selection, fit_seconds=fit_seconds))


def _with_noise(
    state: GPState,
    report: FitReport,
    plan: Plan,
    chosen: Sequence[CandidateState] = (),
    validation: Validation | None = None,
) -> tuple[GPState, FitReport]:
    """Return a fitted model with the noise that is chosen for it, unless the user interrupts the choice."""
    try:
        if selects_noise(state, plan):
            state, report = with_noise(state, report, plan, chosen, validation)
    except KeyboardInterrupt:
        plan.deadline.interrupt()
    is_interrupted = plan.deadline.reason != TIME_OVER
    return state, ended_early(report, plan.deadline.reason) if is_interrupted else report


def run_selection(state: GPState, plan: Plan) -> SelectionReport:
    """Score the candidates and return the report, without a fit to all rows.

    Args:
        state: The state of the model before the fit. Its kernel must be "auto", so that it has a `search_space`.
        plan: The options of the fits of candidates.

    Returns:
        The report. `seconds` is the time of the scoring.

    Raises:
        InvalidArgumentError: If `validate` names no column, or is "forward" with several columns and not one of dates.
        DataError: If `validate` names a column with one value.
    """
    if is_series(state, plan):
        return series_report(state, _with_fixed_mean(state, plan))
    start_time, halving = time.monotonic(), halving_for(state, plan)
    chosen, seconds = halving.run(), time.monotonic() - start_time
    return replace(report_of(halving, chosen, plan.deadline.seconds_passed), seconds=seconds)


def _with_fixed_mean(state: GPState, plan: Plan) -> Plan:
    """Return the options of a fit, with a fixed mean if it is zero."""
    is_zero = state.spec.options.mean == "zero" and "mean" not in plan.fixed
    return replace(plan, fixed=(*plan.fixed, "mean")) if is_zero else plan


def halving_for(state: GPState, plan: Plan) -> SuccessiveHalving:
    """Return the successive halving of a selection, before the first score.

    The `search_space` is that of kernel="auto". `fit_kernels` selects among `alternatives`, without rounds.

    Args:
        state: The state of the model before the fit.
        plan: The options of the fits of candidates.
    """
    spec = state.spec
    assert spec.schema is not None
    space, num_rows = spec.options.search_space, merged_rows(state)[1]
    in_blocks = isinstance(state.require_rows(purpose="a fit"), SourceRows)
    groups, periods = group_levels(state), candidate_periods(state)
    columns = spec.schema.columns
    numbers = tuple(column.key for column in columns if column.kind is ColumnKind.NUMBER)
    globe = next((column.key for column in columns if column.kind is ColumnKind.SPHERE), None)
    candidates = space.candidates(num_rows, numbers, periods, groups, globe=globe, in_blocks=in_blocks)
    plan = replace(_with_fixed_mean(state, plan), deadline=plan.deadline.part(MAX_FRACTION))
    validate = space.validate if plan.horizon is None else FORWARD
    return SuccessiveHalving(Validation.of(state, plan, candidates, validate), candidates, space.limits)


def _member_of(halving: SuccessiveHalving, candidate_state: CandidateState, deadline: Deadline) -> GPState:
    """Return another candidate of an average, which keeps its hyperparameters and gets the rows of the best one.

    The search of a linear model is cheap, and is finished.
    """
    assert candidate_state.fitted is not None
    if candidate_state.candidate.is_linear:
        return _fit_to_all_rows(halving, candidate_state, deadline)[0]
    return candidate_state.fitted.state


def _fit_to_all_rows(
    halving: SuccessiveHalving, candidate_state: CandidateState, deadline: Deadline
) -> tuple[GPState, FitReport]:
    """Fit a candidate to all rows, unless its last fit used all of them or less time is left than that took.

    If time is over, or the user interrupts the fit, the last fit is conditioned on all rows.
    """
    last, candidate, validation = candidate_state.fitted, candidate_state.candidate, halving.validation
    rows = validation.state.require_rows(purpose="a fit")
    plan = replace(validation.plan_for(last), deadline=deadline.part())
    if last is None:
        return fit_terms(initial_state_for(validation.state, candidate, rows, last), plan)
    has_ended = candidate_state.done.iterations == math.inf or last.report.converged
    if validation.is_final(candidate_state.done.rows) and has_ended:
        is_merged = validation.rows.replicate_sum_of_squares is not None
        fitted = last.state
        return fitted.replace(rows=rows, num_observations=len(rows)) if is_merged else fitted, last.report
    has_neighbors_alone = candidate.neighbors is not None and len(candidate.terms) == 1
    max_rows = MAX_ROWS_SHARED_NEIGHBORS  # a search of all rows would use no more
    has_enough = last.num_search_rows >= max_rows and len(rows) > 2 * max_rows
    if candidate.learns_frequencies or (has_neighbors_alone and has_enough):
        return _conditioned_on_all_rows(validation, last)
    has_time = deadline.seconds_left >= candidate_state.seconds
    if has_time:
        if len(candidate.terms) > 1 and last.num_search_rows < RESTART_FRACTION * len(rows):
            plan = replace(plan, is_continued=False)
        try:
            fit = fit_terms(initial_state_for(validation.state, candidate, rows, last), plan)
            if plan.is_continued or not plan.deadline.was_reached:
                return fit  # else the search began far from the hyperparameters known
        except KeyboardInterrupt:
            deadline.interrupt()
    else:
        plan.checkpoint.close()  # a repeated fit may have the time
    fitted, report = _conditioned_on_all_rows(validation, last)
    return fitted, ended_early(report, deadline.reason)


def _conditioned_on_all_rows(validation: Validation, last: FittedCandidate) -> tuple[GPState, FitReport]:
    """Condition a fitted candidate on all rows without a further search.

    The searches in its report are those of the last fit.
    """
    rows, report = validation.state.require_rows(purpose="a fit"), last.report
    state = conditioned(last.state, rows)
    message = f"{report.message}; fitted to {counted(last.num_search_rows, 'row')} and conditioned on {len(rows):,}"
    if last.candidate.neighbors is not None:
        state, report = finished(state, validation.plan, [report])
        return state, replace(report, message=message)
    with torch.no_grad():
        return with_posterior(state, state.infer(rows), replace(report, message=message))


# --- report ----------------------------------------------------------------------------------------


def report_of(halving: SuccessiveHalving, chosen: Sequence[CandidateState], seconds: float) -> SelectionReport:
    """Return the report of a selection.

    Args:
        halving: The successive halving, after all rounds.
        chosen: The selected candidates, the best first.
        seconds: The elapsed seconds, with the reading of the data, and the fit if there was one.
    """
    states = sorted(halving.states, key=lambda one: one.cost.seconds)
    is_scored = bool(chosen[0].scores)
    return SelectionReport(
        best=states.index(chosen[0]),
        weights=tuple(one.weight for one in states) if len(chosen) > 1 else (),
        trials=tuple(map(_trial_of, states)),
        reason=_reason(halving, chosen) + _time_note(halving, seconds),
        num_validation=len(halving.validation.validation_rows) if is_scored else 0,
        validation=halving.validation.name if is_scored else "",
        time_limit=halving.limits.seconds(halving.validation.state.num_observations),
        memory=halving.limits.memory,
        rate=FLOPS_PER_SECOND,
        predicted=halving.predicted,
        baselines=_baselines(halving, chosen) if is_scored else {},
        last_times=_last_times(halving) if is_scored else {},
    )


def _trial_of(one: CandidateState) -> Trial:
    """Return the record of a candidate."""
    options = one.candidate.gp_arguments
    return Trial(one.candidate.name, options, one.cost.seconds, one.cost.memory, tuple(one.scores), one.status)


def _last_times(halving: SuccessiveHalving) -> dict[str, float]:
    """Return the last times of the rows, unless the last rows were held out."""
    return {} if halving.validation.groups == FORWARD else last_times(halving.validation.state)


def _baselines(halving: SuccessiveHalving, chosen: Sequence[CandidateState]) -> dict[str, Score]:
    """Return the scores of a constant and a linear model."""
    if not halving.validation.state.spec.is_gaussian:
        return {}
    validation, log_prob = halving.validation, mixture_log_prob_of(chosen)
    weight, num_rows = validation.validation_rows.counts(), len(validation.rows)
    optimism = 0.0 if halving.holds_out else OPTIMISM * 2 / validation.rows.count  # of its mean and its variance
    baselines = {CONSTANT: score_of(num_rows, validation.constant_log_prob - optimism, log_prob, weight, optimism)}
    linear = [one.fitted for one in halving.states if one.candidate.is_linear and one.fitted]
    if linear:
        baselines[LINEAR] = score_of(num_rows, linear[0].log_prob, log_prob, weight, linear[0].optimism)
    return baselines


def _reason(halving: SuccessiveHalving, chosen: Sequence[CandidateState]) -> str:
    """Return the reason for the selection, as a sentence."""
    name = chosen[0].candidate.name
    if len(halving.states) == 1:
        return f"{name}: the only candidate, so nothing was scored."
    if not chosen[0].scores:
        return f"{name}: nothing could be scored, and it is the cheapest."
    validation, log_prob = halving.validation, mixture_log_prob_of(chosen)
    optimism = sum(one.weight * one.fitted.optimism for one in chosen if one.fitted is not None)
    rows = counted(len(validation.validation_rows), "held-out row" if halving.holds_out else "left-out row")
    mixture = score_of(len(validation.rows), log_prob, log_prob, validation.validation_rows.counts(), optimism)
    score = f"log density {mixture.value:.3f} of {rows} (standard error {mixture.error:.2g})"
    proposal = _proposal(halving.validation.state)
    if _last_times(halving):
        proposal = f' It says nothing of a forecast, which validate="{FORWARD}" scores.{proposal}'
    if len(chosen) > 1:
        members = ", ".join(f"{one.candidate.name} ({one.weight:.2g})" for one in chosen)
        return f"The average of {members}: {score}.{proposal}"
    return f"{name}: the best, {score}, fitted to {chosen[0].scores[-1].rows:,} rows.{proposal}"


def _time_note(halving: SuccessiveHalving, seconds: float) -> str:
    """Return sentences on the searches that a time limit ended, and on a limit that was exceeded."""
    limit, note = halving.limits.time_limit, ""
    if early := [one.candidate.name for one in halving.states if one.ended_early]:
        what = "The time limit" if halving.validation.plan.deadline.reason == TIME_OVER else "An interrupt"
        note = f" {what} ended the search of {' and of '.join(early)} early."
    if limit is not None and seconds > limit:
        note += f" It took {seconds:.3g} s, more than the limit of {limit:g} s."
    return note


def _proposal(state: GPState) -> str:
    """Return a sentence that proposes a likelihood for counts or two classes."""
    rows = rows_in_memory(state.require_rows(purpose="a fit"))
    if not state.spec.is_gaussian or rows.num_outputs > 1:
        return ""
    names = likelihoods_for(state, rows)
    if names == ("bernoulli",):
        return ' The target has two values: likelihood="bernoulli" models classes.'
    return ' The target holds counts: likelihood="poisson" or "negative-binomial" models them.' if names else ""
