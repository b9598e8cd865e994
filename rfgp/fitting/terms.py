"""Fitting a model of terms: which starts and stages it takes, by its terms, rows and likelihood."""

import math
from dataclasses import replace

import torch

from rfgp.blocks import Prior
from rfgp.fitting.context import SearchEnd, TermFit
from rfgp.fitting.driver import SearchStage, best_of_starts, search_in_stages, with_renewed_basis
from rfgp.fitting.frequencies import learned_frequencies
from rfgp.fitting.lattices import fit_lattices
from rfgp.fitting.learn_frequencies import fit_learned_with_neighbors
from rfgp.fitting.maximize import Plan, ended_early
from rfgp.fitting.neighbors import fit_neighbors
from rfgp.fitting.observed import CLASS_GAIN, fit_observed
from rfgp.fitting.starts import is_one_field, likelier_starts, screened, starts_of_field, with_likelier_periods
from rfgp.fitting.subsets import fit_basis_functions
from rfgp.limits import limits
from rfgp.models import FitReport, GPState
from rfgp.parameters import ParameterValues
from rfgp.rows import Rows, gathered
from rfgp.solvers import chain, onepass
from rfgp.solvers.choice import uses_cg
from rfgp.threads import in_one_thread
from rfgp.torch_context import keep_freed_memory

MIDDLE_ROWS = 50_000
"""The rows of an intermediate search, for fields with as many latent values as rows.

10^6 rows of one column, nu = 1/2, by a sparse factor on one core: 53 s, and 68 s without this search."""
TOLERANCE = 1e-8
"""The tolerance of the relative change of the likelihood per row in one iteration, for one field."""
OPTIMIZED, MAX_OPTIMIZED = 3, 1500
"""The number of starts of the search of a field, and the maximum number of rows for more than one."""
FIRST_ROWS_BY_CG = 10_000
"""The number of rows of the first search by conjugate gradients."""


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
    fitted, report = _fit(TermFit.of(state, plan))
    if not plan.deadline.was_reached:
        return fitted, report
    if math.isnan(report.log_marginal_likelihood) and plan.most_rows is None:
        with torch.no_grad():
            report = replace(report, log_marginal_likelihood=float(fitted.log_marginal_likelihood()))
    return fitted, ended_early(report)


def _fit(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit a model of terms by the search for its terms, rows and likelihood."""
    is_gaussian = fit.spec.is_gaussian
    with in_one_thread(_is_small(fit.prior, fit.rows)):
        if is_one_field(fit.spec):
            return _fit_field(fit)
        if is_gaussian and any(name.endswith("period") for name in fit.free):
            fit = fit.at(with_likelier_periods(fit))
        prior, rows = fit.prior, fit.rows
        if is_gaussian and prior.neighbors is not None and not (prior.precisions or prior.graph_features):
            return (fit_learned_with_neighbors if learned_frequencies(fit) else fit_neighbors)(fit.state, fit.plan)
        if is_gaussian and onepass.supports(prior, rows):
            return fit_lattices(fit, fit_terms)
        if prior.neighbors is not None or prior.precisions or prior.graph_features or uses_cg(prior, rows):
            return _fit_sparse(fit)
        if not is_gaussian:
            return fit_observed(fit.state, fit.plan, fit_terms)
        with torch.no_grad():
            return fit_basis_functions(fit)


def _is_small(prior: Prior, rows: Rows) -> bool:
    """Return whether an evaluation costs no more than that of an exact kernel on `Limits.small_rows` rows."""
    size = min(len(rows), prior.num_features) if prior.has_weights_only else len(rows)
    return len(rows) * size**2 <= limits().small_rows ** 3


# --- sparse terms ----------------------------------------------------------------------------------


def _fit_sparse(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit terms with sparse matrices or a Markov process: on a subset of the rows, then on all."""
    fit = fit.at(screened(fit)).with_new_basis()
    fit, reports = search_in_stages(fit, _stages(fit))
    return fit.state, reports[-1].merged_with(reports)


def _stages(fit: TermFit) -> list[SearchStage]:
    """Return the stages of a search with sparse matrices. Those on a subset start the next ones near the optimum."""
    rows, most, by_cg = gathered(fit.rows), limits().subset_rows, uses_cg(fit.prior, fit.rows)
    if by_cg and not fit.prior.has_grids:  # a subset of a grid has as many cells as all rows, and uses dense algebra
        most = FIRST_ROWS_BY_CG
    if len(rows) <= 2 * most:
        return [SearchStage(rows, with_basis=not by_cg)]
    has_middle = len(rows) >= 4 * MIDDLE_ROWS and (fit.prior.adds_latent_points or chain.supports(fit.prior))
    middle = [SearchStage(fit.subset(MIDDLE_ROWS))] * has_middle
    return [SearchStage(fit.subset(most), with_basis=not by_cg), *middle, SearchStage(rows)]


# --- one field -------------------------------------------------------------------------------------


def _fit_field(begin: TermFit) -> tuple[GPState, FitReport]:
    """Fit one kernel on nodes, roads or a mesh on all rows, from several starts."""
    fit, report = _searched(begin, starts_of_field(begin))
    reports = [report]
    if others := likelier_starts(begin, fit.values):
        fit, report = _searched(begin, others)
        reports.append(report)
    fit, reports = with_renewed_basis(fit, reports, lambda other: _searched(other, [other.values], is_continued=True))
    return fit.state, reports[-1].merged_with(reports)


def _searched(fit: TermFit, starts: list[ParameterValues], *, is_continued: bool = False) -> SearchEnd:
    """Search on all rows from several starts; return the best end, and its report with all searches."""
    if uses_cg(fit.prior, fit.rows):
        stages = _stages(fit)[-1:] if is_continued else _stages(fit)
        fit, reports = search_in_stages(fit.at(starts[0]), stages)
        return fit, reports[-1].merged_with(reports)
    tolerance = CLASS_GAIN if fit.spec.options.likelihood.num_latents > 1 else TOLERANCE
    return best_of_starts(fit, fit.rows, starts[: OPTIMIZED if len(fit.rows) <= MAX_OPTIMIZED else 1], tolerance)
