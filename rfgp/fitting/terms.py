"""Fitting a model of terms, by a search for its terms, rows and likelihood."""

import math
from dataclasses import replace
from typing import cast

import torch

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.fitting.average_information import AverageInformation
from rfgp.fitting.context import TermFit
from rfgp.fitting.frequencies import learned_frequencies
from rfgp.fitting.lattices import fit_lattices
from rfgp.fitting.learn_frequencies import fit_learned_with_neighbors
from rfgp.fitting.maximize import MIN_GAIN, Objective, Plan, ended_early, maximize
from rfgp.fitting.neighbors import fit_neighbors
from rfgp.fitting.observed import CLASS_GAIN, fit_observed
from rfgp.fitting.starts import (
    first_rows,
    is_one_field,
    likelier_starts,
    screened,
    starts_of_field,
    with_likelier_periods,
)
from rfgp.fitting.state_space import fit_state_space
from rfgp.fitting.subsets import SearchStage, fit_basis_functions, optimize, search_in_stages
from rfgp.limits import limits
from rfgp.models import FitReport, GPState
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, Rows, gathered
from rfgp.solvers import chain, onepass
from rfgp.solvers.choice import uses_cg
from rfgp.solvers.iterative import IterativeSolver
from rfgp.threads import in_one_thread
from rfgp.torch_context import keep_freed_memory

LAST_GAIN = 0.1
"""The smallest total gain in nats of the last five iterations on all rows, after a search on a subset."""
MIDDLE_ROWS = 50_000
"""The rows of an intermediate search, for fields with as many latent values as rows.

10^6 rows of one column, nu = 1/2, by a sparse factor on one core: 53 s, and 68 s without this search."""
TOLERANCE = 1e-8
"""The tolerance of the relative change of the likelihood per row in one iteration, for one field."""
OPTIMIZED, MAX_OPTIMIZED = 3, 1500
"""The number of starts of the search of a field, and the maximum number of rows for more than one."""
FIRST_ROWS_BY_CG = 10_000
"""The number of rows of the first search by conjugate gradients."""
MAX_CHANGES = 2
"""The maximum number of times that bases of terms on nodes are renewed at the hyperparameters found."""


def fit_terms(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model of terms.

    Args:
        state: The state with rows, at its starting values.
        plan: The options of the fit.

    Returns:
        The state of the fitted model, and the report.

    Examples:
        >>> import numpy as np, rfgp
        >>> from rfgp.fitting import Plan
        >>> x = np.linspace(0, 3, 20)[:, None]
        >>> state = rfgp.ExactGP().condition(x, np.sin(x[:, 0])).state
        >>> fitted, report = fit_terms(state, Plan())
        >>> report.converged, fitted.hyperparameters is state.hyperparameters
        (True, False)
    """
    keep_freed_memory()
    fitted, report = _fit(state, plan)
    if not plan.deadline.was_reached:
        return fitted, report
    if math.isnan(report.log_marginal_likelihood) and plan.most_rows is None:
        with torch.no_grad():
            report = replace(report, log_marginal_likelihood=float(fitted.log_marginal_likelihood()))
    return fitted, ended_early(report)


def _fit(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model of terms by the search for its terms, rows and likelihood."""
    rows, prior = state.require_rows(purpose="a fit"), state.prior()
    if is_one_field(state.spec):
        return _fit_field(state, plan)
    if state.spec.is_gaussian and any(name.endswith("period") for name in state.hyperparameters.space.free(plan.fixed)):
        state = state.replace(hyperparameters=with_likelier_periods(TermFit.of(state, plan)))
    if prior.neighbors is not None and state.spec.is_gaussian and not (prior.precisions or prior.graph_features):
        is_learned = bool(learned_frequencies(TermFit.of(state, plan)))
        return (fit_learned_with_neighbors if is_learned else fit_neighbors)(state, plan)
    if state.spec.is_gaussian and onepass.supports(prior, rows):
        with in_one_thread(_is_small(prior, rows)):
            return fit_lattices(TermFit.of(state, plan), fit_terms)
    with in_one_thread(_is_small(prior, rows)):
        if state.spec.is_gaussian and chain.supports(prior):
            return fit_state_space(TermFit.of(state, plan))
        if prior.neighbors is not None or prior.precisions or prior.graph_features or uses_cg(prior, rows):
            return _fit_sparse(TermFit.of(state, plan))
        if not state.spec.is_gaussian:
            return fit_observed(state, plan, fit_terms)
        with torch.no_grad():
            return fit_basis_functions(TermFit.of(state, plan))


def _is_small(prior: Prior, rows: Rows) -> bool:
    """Return whether an evaluation costs no more than that of an exact kernel on `Limits.small_rows` rows."""
    size = min(len(rows), prior.num_features) if prior.has_weights_only else len(rows)
    return len(rows) * size**2 <= limits().small_rows ** 3


# --- sparse terms ----------------------------------------------------------------------------------


def _fit_sparse(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit terms with sparse matrices: on a subset of the rows, then on all."""
    fit, most = fit.at(screened(fit)).with_new_basis(), limits().subset_rows
    if uses_cg(fit.prior, fit.rows):
        if fit.prior.has_grids:  # a subset has as many cells as all rows, so it uses dense algebra
            stages = [SearchStage(fit.subset(most)), *_stages_by_scoring(fit, has_subset=False)]
        else:
            stages = _stages_by_scoring(fit)
    elif len(fit.rows) <= 2 * most:
        stages = [SearchStage(gathered(fit.rows), with_basis=True)]
    else:
        middle = [fit.subset(MIDDLE_ROWS)] * (fit.prior.adds_latent_points and len(fit.rows) >= 4 * MIDDLE_ROWS)
        last = SearchStage(gathered(fit.rows), _search_closely)
        stages = [SearchStage(fit.subset(most), with_basis=True), *map(SearchStage, middle), last]
    fit, reports = search_in_stages(fit, stages)
    return fit.state, reports[-1].merged_with(reports)


def _search_closely(fit: TermFit, rows: Block) -> tuple[TermFit, FitReport]:
    """Search on all rows, near the end of a search on a subset."""
    plan = replace(fit.plan, least_gain=max(fit.plan.least_gain, LAST_GAIN))
    return optimize(replace(fit, plan=plan), rows, tolerance=MIN_GAIN / rows.count)


# --- one field -------------------------------------------------------------------------------------


def _fit_field(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit one kernel on nodes, roads or a mesh."""
    begin = TermFit.of(state, plan)
    with in_one_thread(len(begin.rows) <= limits().small_rows):
        fit, report = _searched(begin, starts_of_field(begin))
        if others := likelier_starts(begin, fit.values):
            fit, more = _searched(begin, others)
            report = more.merged_with([report, more])
        for _ in range(MAX_CHANGES):
            (before,) = fit.spec.term_priors
            fit = fit if plan.is_over() else fit.with_new_basis()
            if fit.spec.term_priors[0].has_basis_of(before):
                break
            fit, more = _searched(fit, [fit.values], is_continued=True)
            report = more.merged_with([report, more])
        return fit.state, report


def _searched(fit: TermFit, starts: list[ParameterValues], *, is_continued: bool = False) -> tuple[TermFit, FitReport]:
    """Search on all rows from several starts; return the best end, and its report with all searches."""
    if uses_cg(fit.prior, fit.rows):
        fit = fit.at(starts[0])
        fit, reports = search_in_stages(fit, _stages_by_scoring(fit, has_subset=not is_continued))
        return fit, reports[-1].merged_with(reports)
    objective, ends = Objective.of(fit.state, fit.rows), list[tuple[ParameterValues, FitReport]]()
    tolerance = CLASS_GAIN if fit.spec.options.likelihood.num_latents > 1 else TOLERANCE
    for number, start in enumerate(starts[: OPTIMIZED if len(fit.rows) <= MAX_OPTIMIZED else 1]):
        if ends and fit.plan.is_over():
            break
        stage = f"all rows, start {number + 1}" if number else "all rows"
        ends.append(maximize(objective, start, fit.plan, stage=stage, tolerance=tolerance))
    best, report = max(ends, key=lambda end: end[1].log_marginal_likelihood + float(end[0].log_hyperprior().detach()))
    return fit.at(best), report.merged_with([report for _, report in ends])


# --- conjugate gradients ---------------------------------------------------------------------------


def _stages_by_scoring(fit: TermFit, *, has_subset: bool = True) -> list[SearchStage]:
    """Return the stages of a search by scoring steps with conjugate gradients.

    Args:
        fit: The fit at its starting values.
        has_subset: Whether to take the first steps on a subset, so that those on all rows start near the optimum.

    Raises:
        InvalidArgumentError: If the likelihood is not Gaussian.
    """
    rows, likelihood = gathered(fit.rows), fit.spec.options.likelihood
    if not fit.spec.is_gaussian:
        raise InvalidArgumentError(
            f"Hyperparameters of sparse features under {likelihood!r} must be learned from at most "
            f"{limits().max_dense:,} observations, got {len(rows):,}. Fit fewer and condition on all, or use "
            "SparsePrecision() if the kernel has one."
        )
    first = (
        [first_rows(fit.pool, fit.order, FIRST_ROWS_BY_CG)] if has_subset and len(rows) >= 2 * FIRST_ROWS_BY_CG else []
    )
    return [SearchStage(some, _search_by_scoring) for some in (*first, rows)]


def _search_by_scoring(fit: TermFit, rows: Block) -> tuple[TermFit, FitReport]:
    """Take scoring steps with conjugate gradients; return the fit at the values found, and the report."""
    jacobian = fit.state.scaling.targets.log_jacobian(rows.count)
    stage = "all rows" if len(rows) == len(fit.rows) else f"subset of {len(rows)}"

    def infer(values: ParameterValues) -> IterativeSolver:
        return cast(IterativeSolver, fit.state.replace(hyperparameters=values).infer(rows))

    values, report = AverageInformation(infer, rows, jacobian, fit.values, fit.plan, stage).run()
    return fit.at(values), report
