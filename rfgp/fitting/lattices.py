"""Fits of terms on equispaced Fourier grids (lattices), by scoring steps.

1. Starts: A few steps from several lengthscales, on a small subset with few features.
2. Subset: Rounds of steps, each on lattices that are rebuilt for the hyperparameters, until lengthscales converge.
3. All rows: One pass on lattices for these hyperparameters, and steps until convergence. If lengthscales leave the
   range of their lattice, it is rebuilt, with one more pass.

The Fisher information is exact and costs about as much as the likelihood. Heteroscedastic rows take two passes for each
evaluation. Under a likelihood that is not Gaussian, the information is that of Laplace pseudo-observations, and
searches use at most 65,536 rows. If parameters of the likelihood are free, the search is L-BFGS.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from rfgp.approximations import Approximation, EquispacedFourier, SparsePrecision, Vecchia
from rfgp.approximations.planning import AUTO
from rfgp.fitting.context import SearchEnd, TermFit
from rfgp.fitting.driver import in_rounds, log_posterior_of, search
from rfgp.fitting.last_stage import with_leave_one_out_scores
from rfgp.fitting.maximize import Plan
from rfgp.fitting.starts import free_lengthscales, scaled
from rfgp.fitting.subsets import MAX_ROWS
from rfgp.limits import limits
from rfgp.models import FitReport, GPState
from rfgp.models.spec import ModelSpec
from rfgp.parameters import ParameterValues
from rfgp.rows import Rows
from rfgp.solvers.onepass import residual_variance_of

SUBSET_FEATURES = 2000
"""The maximum number of features of a term in the search on a subset, whose steps take F^3 operations."""
SCREENED_ROWS, SCREENED_FEATURES = 4000, 600
"""The maximum number of rows and features of the searches from several starts, a small part of the time of a fit."""
MULTIPLIERS = (1.0, 1 / 4, 1 / 16, 1 / 64)
"""The factors of the usual starting lengthscales at which these searches start."""
FIRST_STEPS, ROUNDS = 8, 6
"""The maximum number of steps on one set of lattices while lengthscales change, and the maximum number of sets.

Most searches on a set end after fewer steps."""
MOVED = 0.15
"""The change of the logarithm of a lengthscale at which lattices are rebuilt, below that of `SLACK`."""
MAX_LACKING = 0.1
"""The largest share of the variance that modes may omit after a short search, if it is not modeled as noise."""
PASSES = 2
"""The maximum number of passes over all rows. Lengthscales that move in the first pass need a second lattice."""


def fit_lattices(
    fit: TermFit, other: Callable[[GPState, Plan], tuple[GPState, FitReport]]
) -> tuple[GPState, FitReport]:
    """Fit terms on lattices and other fixed designs.

    Args:
        fit: The fit.
        other: The fit of a model with Markov processes or nearest neighbors instead. It is called if the lengthscales
            of automatic lattices are so short that too many modes are omitted.

    Returns:
        The state with its posterior, and the report.
    """
    rows, most = fit.rows, limits().lattice_rows
    some: Rows = fit.subset(most) if len(fit.pool) > 2 * most or len(rows) > len(fit.pool) else rows
    fit, reports = searched_in_rounds(fit, some)
    for number in range(PASSES):
        if changed := without_truncated_lattices(fit):
            changed_spec = fit.spec.with_approximations(changed, fit.values, len(rows))
            state, report = other(fit.with_spec(changed_spec).state, fit.plan)
            return state, report.merged_with([*reports, report])
        last, fit = fit, with_lattices(fit, len(rows))
        if (some is rows or number) and has_lattices_of(fit, last):
            break
        fit, report = search(fit, rows)
        reports.append(report)
        if distance(fit, last.values) < MOVED and not truncated_terms(fit.state):
            break
    return with_leave_one_out_scores(fit, reports[-1].merged_with(reports))


def fit_lattices_by_laplace(fit: TermFit) -> tuple[TermFit, list[FitReport], str]:
    """Search under a likelihood that is not Gaussian, on at most 65,536 rows.

    Args:
        fit: The fit.

    Returns:
        The fit at the hyperparameters found, the reports and a message.
    """
    rows = fit.subset(MAX_ROWS)
    most = limits().lattice_rows
    some = fit.subset(most) if len(rows) > 2 * most else rows
    fit, reports = searched_in_rounds(fit, some)
    if some is not rows:
        fit, report = search(with_lattices(fit, len(rows)), rows)
        reports.append(report)
    share = "all" if len(rows) == len(fit.rows) else f"{len(rows):,} of"
    return with_lattices(fit, len(fit.rows)), reports, f"on {share} {len(fit.rows):,} rows ({reports[-1].message})"


def searched_in_rounds(fit: TermFit, rows: Rows) -> tuple[TermFit, list[FitReport]]:
    """Search from several starts, then on rows.

    The search ends early if automatic lattices are truncated, as these terms will use another approximation.

    Args:
        fit: The fit.
        rows: The rows.

    Returns:
        The fit at the values found, and the reports.
    """

    def search_round(before: TermFit, number: int) -> SearchEnd:
        most = FIRST_STEPS if number < ROUNDS - 1 else None
        return search(with_lattices(before, len(rows), SUBSET_FEATURES), rows, most=most)

    def has_settled(before: TermFit, after: TermFit, report: FitReport) -> bool:
        is_close = report.converged and distance(after, before.values) < MOVED
        return is_close or (after.spec.is_gaussian and bool(without_truncated_lattices(after)))

    return in_rounds(with_best_start(fit), search_round, ROUNDS, has_settled)


def truncated_terms(state: GPState) -> list[str]:
    """Return the names of terms whose lattice omits too many modes.

    Args:
        state: The model state.
    """
    used, every = state.spec.approximations, state.spec.term_data(state.hyperparameters, state.num_observations)
    return [
        data.term.name
        for data in every
        if isinstance(used[data.term.name], EquispacedFourier) and used[data.term.name].unsupported_reason(data)
    ]


def without_truncated_lattices(fit: TermFit) -> dict[str, Approximation]:
    """Return other approximations if automatic lattices omit too many modes.

    All automatic lattices of a sum become Markov processes if each is on one column and has a sparse precision.
    Otherwise the truncated ones use nearest neighbors. If no automatic lattice is truncated, the dict is empty.

    Args:
        fit: The fit.
    """
    truncated = [name for name in truncated_terms(fit.state) if is_automatic(fit.spec, name)]
    if not truncated:
        return {}
    used, sparse = fit.spec.approximations, SparsePrecision()
    every = fit.spec.term_data(fit.values, len(fit.rows))
    automatic = [
        data
        for data in every
        if isinstance(used[data.term.name], EquispacedFourier) and is_automatic(fit.spec, data.term.name)
    ]
    if len(every) > 1 and all(sparse.unsupported_reason(data) is None for data in automatic):
        return {**used, **{data.term.name: sparse for data in automatic}}
    return {**used, **dict.fromkeys(truncated, Vecchia())}


def is_automatic(spec: ModelSpec, name: str) -> bool:
    """Return whether the approximation of a term is automatic, not given by the user.

    Args:
        spec: The specification of the model.
        name: The name of the term.
    """
    given = spec.options.approximations
    return given == AUTO or (isinstance(given, Mapping) and name not in given)


def with_best_start(fit: TermFit) -> TermFit:
    """Return the fit at the best end of short searches from several lengthscales.

    Args:
        fit: The fit at its starting values.
    """
    names = [] if fit.plan.is_continued else free_lengthscales(fit)
    if not names:
        return fit
    rows = fit.subset(SCREENED_ROWS)
    ends = list[tuple[float, TermFit]]()
    for number, multiplier in enumerate(MULTIPLIERS):
        if ends and fit.plan.is_over():
            break
        initial = with_lattices(fit.at(scaled(fit.values, names, multiplier)), len(rows), SCREENED_FEATURES)
        end, report = search(initial, rows, most=FIRST_STEPS, note=f", start {number + 1}")
        ends.append((-math.inf if lacks_modes(end) else round(log_posterior_of(end, report), 3), end))
    return fit.at(max(ends, key=lambda end: end[0])[1].values)


def lacks_modes(fit: TermFit) -> bool:
    """Return whether modes omit a large part of a function.

    Under a Gaussian likelihood the omitted variance is part of the noise. Under another likelihood, few modes at a
    short lengthscale represent a smooth function, which may be spuriously likely.

    Args:
        fit: The fit.
    """
    if fit.spec.is_gaussian:
        return False
    with torch.no_grad():
        return float(residual_variance_of(fit.prior.weights)) > MAX_LACKING * float(fit.prior.dense.variances.sum())


def with_lattices(fit: TermFit, num_rows: int, most: int | None = None) -> TermFit:
    """Return the fit on lattices for its hyperparameters and a number of rows.

    Args:
        fit: The fit.
        num_rows: The number of rows.
        most: The maximum number of features of a term. If None, those of its approximation.
    """
    spec = fit.spec
    few = {
        name: replace(approximation, max_features=min(approximation.max_features, most or approximation.max_features))
        if isinstance(approximation, EquispacedFourier)
        else approximation
        for name, approximation in spec.approximations.items()
    }
    renewed = replace(spec, approximations=few).with_new_basis(fit.values, num_rows)
    changed = fit.with_spec(replace(renewed, approximations=spec.approximations))
    return changed if has_lattices_of(changed, fit) else changed.at(_with_noise_of(changed, fit))


def _with_noise_of(fit: TermFit, before: TermFit) -> ParameterValues:
    """Return values whose noise compensates for a change of the omitted variance.

    The likelihood depends on the sum of both. With few modes, most of the noise is omitted variance.
    """
    if "noise" not in fit.free:
        return fit.values
    with torch.no_grad():
        noise = fit.values.standardized("noise").double()
        total = (
            noise
            + residual_variance_of(before.spec.prior(fit.values).weights)
            - residual_variance_of(fit.prior.weights)
        )
        low, high = (bound.double() for bound in fit.values.space.quantities["noise"].bounds)
        return fit.values.replaced({"noise": torch.maximum(total, noise).clamp(low, high).log()})


def has_lattices_of(fit: TermFit, other: TermFit) -> bool:
    """Return whether two fits have the same modes.

    Args:
        fit: The fit.
        other: Another fit of the same terms.
    """
    return all(a is b for a, b in zip(fit.spec.term_priors, other.spec.term_priors, strict=True))


def distance(fit: TermFit, before: ParameterValues) -> float:
    """Return the largest change of the logarithm of a lengthscale.

    Args:
        fit: The fit.
        before: Earlier hyperparameters.
    """
    names = [name for name in fit.values.raw if name.endswith("lengthscale")]
    changes = [float((fit.values.raw[name] - before.raw[name]).detach().abs().max()) for name in names]
    return max(changes, default=0.0)
