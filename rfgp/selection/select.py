"""Fits of `rfgp.GP(kernel="auto")`: candidates are scored, and the best one is fitted to all rows."""

import time
from dataclasses import replace

import torch
from torch import Tensor

from rfgp.counts import counted
from rfgp.fitting import Plan, fit_terms
from rfgp.regression import FitReport, Regression, Score, SelectionReport
from rfgp.regression.selection_report import RATE
from rfgp.regression.spec import ModelSpec, averaged
from rfgp.rows import Rows, SourceRows, pool_of
from rfgp.selection.kernels import fit_kernels
from rfgp.selection.scores import mean_and_error
from rfgp.selection.search_space import FEW_ROWS, SearchSpace
from rfgp.selection.stacking import mixture_density
from rfgp.selection.states import CandidateState, states_of
from rfgp.selection.successive_halving import SuccessiveHalving
from rfgp.selection.validation import Validation, has_optima, is_conditioned_only, start_of


def fit_model(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression of terms; return it and the report, which has the selection if there was one."""
    plan = _with_fixed_mean(regression, plan)
    if search_space_of(regression) is None:
        return fit_kernels(regression, plan)
    rounds = rounds_of(regression, plan)
    begun = time.monotonic()
    state = _run(rounds)
    scored = time.monotonic()
    found, report = _fitted(regression, state, rounds.validation)
    others = [(weight, each.fitted) for weight, each in rounds.parts if each is not state]
    if others:
        members = [(weight, one.regression) for weight, one in others if one is not None]
        found = averaged(found, rounds.weight_of(state), members)
    seconds, fit_seconds = scored - begun, time.monotonic() - scored
    return found, replace(report, selection=replace(report_of(rounds, state), seconds=seconds, fit_seconds=fit_seconds))


def selected(regression: Regression, plan: Plan) -> SelectionReport:
    """Return the selection that a fit would make, without the fit to all rows."""
    rounds, begun = rounds_of(regression, _with_fixed_mean(regression, plan)), time.monotonic()
    state = _run(rounds)
    return replace(report_of(rounds, state), seconds=time.monotonic() - begun)


def _with_fixed_mean(regression: Regression, plan: Plan) -> Plan:
    """Return the options of a fit that keeps the mean if it is zero."""
    assert isinstance(regression.family, ModelSpec)
    is_zero = regression.family.options.mean == "zero" and "mean" not in plan.fixed
    return replace(plan, fixed=(*plan.fixed, "mean")) if is_zero else plan


def search_space_of(regression: Regression) -> SearchSpace | None:
    """Return the candidates among which a fit selects. None if the kernel is given."""
    assert isinstance(regression.family, ModelSpec)
    found: SearchSpace | None = regression.family.options.search_space
    return found


def rounds_of(regression: Regression, plan: Plan) -> SuccessiveHalving:
    """Return the rounds of a selection before anything is scored."""
    space, rows = search_space_of(regression), regression.needed_rows("a fit")
    assert space is not None
    pool, count = pool_of(rows), len(rows)
    candidates = space.candidates(count, pool.inputs.shape[1], in_blocks=isinstance(rows, SourceRows))
    states = states_of(candidates, count, pool.inputs.shape[1], pool.num_outputs)
    learned = {one.learns_frequencies for one in candidates if one.num_frequencies}
    holds_out = len(pool) > FEW_ROWS or True in learned
    plan = replace(plan, has_rivals=False in learned)
    are_exact = len(candidates) > 1 and all(one.is_exact for one in candidates)
    return SuccessiveHalving(Validation.of(regression, plan, holds_out, are_exact), states, space.limits)


def _run(rounds: SuccessiveHalving) -> CandidateState:
    return rounds.states[0] if len(rounds.states) == 1 else rounds.run()


def _fitted(regression: Regression, state: CandidateState, validation: Validation) -> tuple[Regression, FitReport]:
    """Return the candidate fitted to all rows, starting at its last fit, or that fit if it is of all rows."""
    found, candidate = state.fitted, state.candidate
    if found is not None and found.is_whole:
        return found.regression, found.report
    rows = regression.needed_rows("a fit")
    if found is not None and is_conditioned_only(candidate, found.searched, len(rows)):
        return _conditioned(regression, state, rows)
    found = None if has_optima(candidate) else found
    begun = start_of(regression, candidate, rows, found)
    return fit_terms(begun, validation.plan_of(candidate, found))


def _conditioned(regression: Regression, state: CandidateState, rows: Rows) -> tuple[Regression, FitReport]:
    """Return a candidate with its fitted frequencies and hyperparameters, conditioned on all rows.

    Searches and validation rows in its report are those of the last fit.
    """
    assert state.fitted is not None
    found, report = state.fitted.regression, state.fitted.report
    begun = start_of(regression, state.candidate, rows, None)
    begun = begun.replace(family=found.family, hyperparameters=found.hyperparameters)
    with torch.no_grad():
        inference = begun.infer(rows)
        total = float(inference.log_marginal_likelihood()) + begun.scaling.targets.log_jacobian(rows.count)
    words = f"{report.message}; fitted to {counted(state.fitted.searched, 'row')} and conditioned on {len(rows):,}"
    report = replace(
        report, log_marginal_likelihood=total, message=words, weights_used=inference.effective_dof_fraction
    )
    return begun.replace(given=inference.posterior()), report


def report_of(rounds: SuccessiveHalving, state: CandidateState) -> SelectionReport:
    """Return the record of what was scored and taken."""
    states, validation = sorted(rounds.states, key=lambda each: each.cost.seconds), rounds.validation
    count = len(validation.validated) if state.scores else 0
    words = "leave-one-out" if validation.held_out is None else "held out"
    return SelectionReport(
        best=states.index(state),
        weights=tuple(rounds.weight_of(each) for each in states) if rounds.parts else (),
        trials=tuple(each.as_trial() for each in states),
        reason=_reason(rounds, state),
        num_validation=count,
        validation=words if count else "",
        time_limit=rounds.limits.seconds(rounds.num_rows),
        memory=rounds.limits.memory,
        rate=RATE,
        predicted=rounds.predicted,
        baselines=_baselines(rounds, state) if count else {},
    )


def _baselines(rounds: SuccessiveHalving, state: CandidateState) -> dict[str, Score]:
    """Return the scores of the baselines, with their differences from what was taken."""
    if state.fitted is None:
        return {}
    validation, taken, scores = rounds.validation, _density(rounds, state), {}
    weight = validation.validated.counts()
    for name, densities in validation.baselines.items():
        found = (*mean_and_error(densities, weight), *mean_and_error(taken - densities, weight))
        scores[name] = Score(len(validation.rows), *found)
    return scores


def _density(rounds: SuccessiveHalving, state: CandidateState) -> Tensor:
    """Return the log densities (n,) of validation rows by what was taken."""
    known = [(part.fitted.density, weight) for weight, part in rounds.parts if part.fitted is not None]
    if known:
        return mixture_density(*zip(*known, strict=True))
    assert state.fitted is not None
    return state.fitted.density


def _reason(rounds: SuccessiveHalving, state: CandidateState) -> str:
    """Return why a candidate was taken, in words."""
    name, last = state.candidate.name, state.scores[-1] if state.scores else None
    if len(rounds.states) == 1:
        return f"{name}: the only candidate, so nothing was scored."
    if last is None:
        return f"{name}: nothing could be scored, and it is the cheapest."
    rows = counted(len(rounds.validation.validated), "held-out row" if rounds.holds_out else "left-out row")
    if rounds.parts:
        parts = [f"{part.candidate.name} ({weight:.2f})" for weight, part in rounds.parts]
        value, error = mean_and_error(_density(rounds, state), rounds.validation.validated.counts())
        return f"The average of {', '.join(parts)}: log density {value:.3f} of {rows} (standard error {error:.2g})."
    score = f"log density {last.value:.3f} of {rows} (standard error {last.error:.2g}), fitted to {last.rows:,} rows"
    if last.difference <= 0:
        return f"{name}: the best, {score}."
    best = f"{last.difference:.2g} (standard error {last.difference_error:.2g}) worse than the best, which costs more"
    return f"{name}: {score}; {best}."
