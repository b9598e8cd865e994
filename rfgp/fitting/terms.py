"""Fitting a model of terms: which starts and stages it takes, by its terms, rows and likelihood.

Lattices: Fits of terms on equispaced Fourier grids (lattices), by scoring steps.

1. Starts: A few steps from several lengthscales, on a small subset with few features.
2. Subset: Rounds of steps, each on lattices that are rebuilt for the hyperparameters, until lengthscales converge.
3. All rows: One pass on lattices for these hyperparameters, and steps until convergence. If lengthscales leave the
   range of their lattice, it is rebuilt, with one more pass.

The Fisher information is exact and costs about as much as the likelihood. Heteroscedastic rows take two passes for each
evaluation. Under a likelihood that is not Gaussian, the information is that of Laplace pseudo-observations, and
searches use at most 65,536 rows. If parameters of the likelihood are free, the search is L-BFGS.

Other likelihoods: Fitting under a non-Gaussian likelihood: on growing subsets, then on all rows.

Up to 10,000 rows, hyperparameters are fitted with few random features, at a fraction of the cost. The posterior is then
computed once, with all features. Variational inference maximizes the evidence lower bound (ELBO). Without random
features, its search starts at the end of a cheaper fit, by Laplace's approximation or with a Gaussian likelihood. There
is no cheaper fit for several classes.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rfgp.approximations import Approximation, EquispacedFourier, RandomFeatures, SparsePrecision, Vecchia
from rfgp.approximations.planning import AUTO
from rfgp.approximations.role import TermData
from rfgp.blocks import Prior
from rfgp.fitting.context import SearchEnd, TermFit
from rfgp.fitting.driver import (
    ROUNDS,
    SearchStage,
    in_rounds,
    learn_basis,
    log_posterior_of,
    search,
    search_in_stages,
    with_renewed_basis,
)
from rfgp.fitting.frequencies import learned_frequencies
from rfgp.fitting.last_stage import FEWEST_CHECKED, merged, with_leave_one_out_scores, with_posterior
from rfgp.fitting.maximize import Objective, Plan, ended_early, maximize
from rfgp.fitting.neighbors import fit_learned_with_neighbors, fit_neighbors
from rfgp.fitting.starts import (
    SCREENED_ROWS,
    free_lengthscales,
    is_one_field,
    scaled,
    screened,
    start_of_field,
    with_likelier_periods,
    with_likelier_rotations,
)
from rfgp.fitting.subsets import MAX_ROWS, fit_basis_functions, fit_coarsely, grow
from rfgp.inference.observed import LeaveOneOut
from rfgp.likelihoods import Gaussian
from rfgp.limits import limits
from rfgp.models import FitReport, GPState
from rfgp.models.spec import inference_of
from rfgp.models.state import at_starting_values, with_basis_of
from rfgp.parameters import ParameterValues
from rfgp.rows import Rows, gathered, is_read_in_blocks
from rfgp.solvers import chain, onepass, spectral
from rfgp.solvers.choice import uses_cg
from rfgp.solvers.onepass import has_lattices, residual_variance_of
from rfgp.threads import in_one_thread
from rfgp.torch_context import keep_freed_memory

MIDDLE_ROWS = 50_000
"""The rows of an intermediate search, for fields with as many latent values as rows.

10^6 rows of one column, nu = 1/2, by a sparse factor on one core: 53 s, and 68 s without this search."""
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
    return fitted, ended_early(report, plan.deadline.reason)


def _fit(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit a model of terms by the search for its terms, rows and likelihood."""
    is_gaussian = fit.spec.is_gaussian
    with in_one_thread(_is_small(fit.prior, fit.rows)):
        if is_one_field(fit.spec):
            return _fit_field(fit)
        if any(name.endswith("rotation") for name in fit.free):
            fit = fit.at(with_likelier_rotations(fit))
        if is_gaussian and any(name.endswith("period") for name in fit.free):
            fit = fit.at(with_likelier_periods(fit))
        prior, rows = fit.prior, fit.rows
        is_sparse = bool(prior.precisions or prior.chains or prior.graph_features)
        if is_gaussian and prior.neighbors is not None and not is_sparse:
            return (fit_learned_with_neighbors if learned_frequencies(fit) else fit_neighbors)(fit.state, fit.plan)
        if is_gaussian and onepass.supports(prior, rows):
            return _fit_lattices(fit)
        if prior.neighbors is not None or is_sparse or uses_cg(prior, rows):
            return _fit_sparse(fit)
        if not is_gaussian:
            return _fit_observed(fit.state, fit.plan)
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


def _fit_field(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit one kernel on nodes, roads or a mesh on all rows, and renew its basis at the hyperparameters found.

    A covariance matrix of all rows is first replaced by that of few rows, which also find the basis for all. If few
    nodes have no row, `rfgp.solvers.spectral` needs no such start.
    """
    fit, rows, first = fit.at(start_of_field(fit)), gathered(fit.rows), list[FitReport]()
    unseen = spectral.num_unseen(fit.prior, rows) if fit.spec.is_gaussian else None
    is_dense = not (fit.prior.precisions or fit.prior.weights) and (unseen is None or unseen > SCREENED_ROWS)
    if is_dense and len(rows) > 2 * SCREENED_ROWS and fit.free and not fit.plan.is_continued:
        fit, report = search(fit, fit.subset(SCREENED_ROWS))
        fit, first = fit if fit.plan.is_over() else fit.with_new_basis(), [report]
    fit, reports = search_in_stages(fit, _stages(fit) if uses_cg(fit.prior, rows) else [SearchStage(rows)], first)
    fit, reports = with_renewed_basis(fit, reports, lambda other: search(other, rows))
    return fit.state, reports[-1].merged_with(reports)


# --- Lattices -------------------------------------------------------------------------------------

SUBSET_FEATURES = 2000
"""The maximum number of features of a term in the search on a subset, whose steps take F^3 operations."""
LATTICE_SCREENED_ROWS, SCREENED_FEATURES = 4000, 600
"""The maximum number of rows and features of the searches from several starts, a small part of the time of a fit."""
LATTICE_MULTIPLIERS = (1.0, 1 / 4, 1 / 16, 1 / 64)
"""The factors of the usual starting lengthscales at which these searches start."""
FIRST_STEPS = 8
"""The maximum number of steps on one set of lattices while lengthscales change. Most searches end after fewer steps."""
MOVED = 0.15
"""The change of the logarithm of a lengthscale at which lattices are rebuilt, below that of `SLACK`."""
MAX_LACKING = 0.1
"""The largest share of the variance that modes may omit after a short search, if it is not modeled as noise."""
PASSES = 2
"""The maximum number of passes over all rows. Lengthscales that move in the first pass need a second lattice."""


def _fit_lattices(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit terms on lattices and other fixed designs.

    If the lengthscales of automatic lattices are so short that too many modes are omitted, a model with Markov
    processes or nearest neighbors is fitted instead.
    """
    fit, reports = _search_on_lattices(fit, fit.rows)
    report = reports[-1].merged_with(reports)
    if changed := _without_truncated_lattices(fit):
        changed_spec = fit.spec.with_approximations(changed, fit.values, len(fit.rows))
        state, last = fit_terms(fit.with_spec(changed_spec).state, fit.plan)
        return state, last.merged_with([report, last])
    return with_leave_one_out_scores(fit, report)


def _search_on_lattices(fit: TermFit, rows: Rows) -> tuple[TermFit, list[FitReport]]:
    """Search on a subset of rows, then on lattices for all of them.

    The search ends early if automatic lattices are truncated, as these terms will use another approximation.

    Args:
        fit: The fit at its starting values.
        rows: The rows.

    Returns:
        The fit at the values found, on lattices for all its rows, and the reports.
    """
    most = limits().lattice_rows
    some: Rows = fit.subset(most) if len(rows) > min(2 * most, len(fit.pool)) else rows
    fit, reports = _searched_in_rounds(fit, some)
    for number in range(PASSES):
        last = fit
        if _without_truncated_lattices(fit):
            break
        fit = _with_lattices(fit, len(fit.rows))
        if (some is rows or number) and _has_lattices_of(fit, last):
            break
        fit, report = search(fit, rows)
        reports.append(report)
        if _distance(fit, last.values) < MOVED and not any(is_truncated for _, is_truncated in _lattice_terms(fit)):
            break
    return fit, reports


def _searched_in_rounds(fit: TermFit, rows: Rows) -> tuple[TermFit, list[FitReport]]:
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
        return search(_with_lattices(before, len(rows), SUBSET_FEATURES), rows, most=most)

    def has_settled(before: TermFit, after: TermFit, report: FitReport) -> bool:
        is_close = report.converged and _distance(after, before.values) < MOVED
        return is_close or not report.iterations or bool(_without_truncated_lattices(after))

    return in_rounds(_with_best_start(fit), search_round, ROUNDS, has_settled)


def _lattice_terms(fit: TermFit) -> list[tuple[TermData, bool]]:
    """Return the terms on lattices, and whether the lattice of each omits too many modes."""
    used, every = fit.spec.approximations, fit.spec.term_data(fit.values, fit.state.num_observations)
    on_lattices = [data for data in every if isinstance(used[data.term.name], EquispacedFourier)]
    return [(data, used[data.term.name].unsupported_reason(data) is not None) for data in on_lattices]


def _without_truncated_lattices(fit: TermFit) -> dict[str, Approximation]:
    """Return other approximations if automatic lattices omit too many modes.

    All automatic lattices of a sum become Markov processes if each is on one column and has a sparse precision.
    Otherwise the truncated ones use nearest neighbors. The dict is empty if no automatic lattice is truncated, or under
    another likelihood than the Gaussian one.

    Args:
        fit: The fit.
    """
    used, given, sparse = fit.spec.approximations, fit.spec.options.approximations, SparsePrecision()
    named = given if isinstance(given, Mapping) else {} if given == AUTO else used
    automatic = [(data, is_truncated) for data, is_truncated in _lattice_terms(fit) if data.term.name not in named]
    truncated = [data.term.name for data, is_truncated in automatic if is_truncated]
    if not truncated or not fit.spec.is_gaussian:
        return {}
    if len(used) > 1 and all(sparse.unsupported_reason(data) is None for data, _ in automatic):
        return {**used, **{data.term.name: sparse for data, _ in automatic}}
    return {**used, **dict.fromkeys(truncated, Vecchia())}


def _with_best_start(fit: TermFit) -> TermFit:
    """Return the fit at the best end of short searches from several lengthscales.

    Args:
        fit: The fit at its starting values.
    """
    names = [] if fit.plan.is_continued else free_lengthscales(fit)
    if not names:
        return fit
    rows = fit.subset(LATTICE_SCREENED_ROWS)
    ends = list[tuple[float, TermFit]]()
    for number, multiplier in enumerate(LATTICE_MULTIPLIERS):
        if ends and fit.plan.is_over():
            break
        initial = _with_lattices(fit.at(scaled(fit.values, names, multiplier)), len(rows), SCREENED_FEATURES)
        end, report = search(initial, rows, most=FIRST_STEPS, note=f", start {number + 1}")
        ends.append((-math.inf if _lacks_modes(end) else round(log_posterior_of(end, report), 3), end))
    return fit.at(max(ends, key=lambda end: end[0])[1].values)


def _lacks_modes(fit: TermFit) -> bool:
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


def _with_lattices(fit: TermFit, num_rows: int, most: int | None = None) -> TermFit:
    """Return the fit on lattices for its hyperparameters and a number of rows.

    Args:
        fit: The fit.
        num_rows: The number of rows.
        most: The maximum number of features of a term. If None, those of its approximation.
    """
    spec = fit.spec
    few = dict(spec.approximations)
    for name, used in spec.approximations.items():
        if isinstance(used, EquispacedFourier):
            few[name] = replace(used, max_features=min(used.max_features, most or used.max_features))
    renewed = replace(spec, approximations=few).with_new_basis(fit.values, num_rows)
    changed = fit.with_spec(replace(renewed, approximations=spec.approximations))
    return changed if _has_lattices_of(changed, fit) else changed.at(_with_noise_of(changed, fit))


def _with_noise_of(fit: TermFit, before: TermFit) -> ParameterValues:
    """Return values whose noise compensates for a change of the omitted variance.

    The likelihood depends on the sum of both. With few modes, most of the noise is omitted variance.
    """
    if "noise" not in fit.free:
        return fit.values
    with torch.no_grad():
        noise, blocks = fit.values.standardized("noise").double(), before.spec.prior(fit.values).weights
        total = noise + residual_variance_of(blocks) - residual_variance_of(fit.prior.weights)
        low, high = (bound.double() for bound in fit.values.space.quantities["noise"].bounds)
        return fit.values.replaced({"noise": torch.maximum(total, noise).clamp(low, high).log()})


def _has_lattices_of(fit: TermFit, other: TermFit) -> bool:
    """Return whether two fits have the same modes.

    Args:
        fit: The fit.
        other: Another fit of the same terms.
    """
    return all(a is b for a, b in zip(fit.spec.term_priors, other.spec.term_priors, strict=True))


def _distance(fit: TermFit, before: ParameterValues) -> float:
    """Return the largest change of the logarithm of a lengthscale, or of an angle in radians.

    Args:
        fit: The fit.
        before: Earlier hyperparameters.
    """
    names = [name for name in fit.values.raw if name.endswith(("lengthscale", "rotation"))]
    changes = [float((fit.values.raw[name] - before.raw[name]).detach().abs().max()) for name in names]
    return max(changes, default=0.0)


# --- Likelihoods that are not Gaussian ------------------------------------------------------------

FEW_FREQUENCIES, FEWEST = 128, 64
"""The number of frequencies of a search for the hyperparameters of one latent function, and of several.

1,800 rows of four classes, 512 frequencies: 57 s with 64 and 87 s with 128, leave-one-out log densities -0.321 and
-0.316."""
MAX_FEW_ROWS = 10_000
"""The maximum number of rows of a search with few frequencies. More rows determine functions that few features cannot
represent."""
CLASS_ROWS = 800
"""The maximum number of rows for the hyperparameters of several classes. An evaluation takes time n^3 a class."""


def _dispersion_of(
    predicted: LeaveOneOut,
    y: Tensor,  # (n,)
    *,
    is_white: bool,
) -> tuple[float, float]:
    """Return the mean squared z-score of counts, and its excess over 1 in standard deviations.

    The variance of a squared z-score is 2 plus the excess kurtosis. That is 1 / v + 6 (v - m) / m^2 for a negative
    binomial distribution with the mean m and the variance v of the leave-one-out prediction. If the log rate of a row
    says nothing of other rows, it is noise that counts as dispersion: v is the variance m of Poisson counts.

    Args:
        predicted: The leave-one-out predictions.
        y: The counts, (n,).
        is_white: Whether the log rates of different rows are independent.
    """
    m, v = (torch.as_tensor(moment).double().cpu() for moment in (predicted.mean, predicted.variance))
    v = m if is_white else v
    mean = float(((y.cpu() - m).square() / v).mean())
    variance = float((2 + 1 / v + 6 * (v - m).clamp_min(0) / m.square()).mean()) / len(y)
    return mean, (mean - 1) / math.sqrt(variance)


NEAR_BOUND = 2.0
"""The ratio of a lengthscale to its lower bound up to which different rows are called independent."""


def _is_white(state: GPState) -> bool:
    """Return whether all stationary terms have lengthscales near their lower bounds."""
    values, quantities = state.hyperparameters, state.hyperparameters.space.quantities
    parts = [part for term in state.spec.terms for part in term.parts()]
    names = {f"{prefix}lengthscale" for factor, _, prefix in parts if factor.measure is not None} & set(quantities)
    lows = {name: NEAR_BOUND * quantities[name].bounds[0] for name in names}
    return bool(names) and all(bool((values.standardized(name) < low).all()) for name, low in lows.items())


def _fit_observed(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model with a non-Gaussian likelihood."""
    few = _with_few(state)
    fit, reports = TermFit.of(few, plan), list[FitReport]()
    with torch.no_grad():
        if inference_of(state.spec, fit.rows) == "variational":
            fit, reports = _by_elbo(fit)
        elif fit.free:
            fit, reports = _by_laplace(fit)
        report = merged(fit, reports)
        if few is not state:
            fit = fit.with_spec(state.spec)
            report = replace(report, message=f"{report.message}, with fewer frequencies")
        inference = fit.state.infer(fit.rows)
        state, report = with_posterior(fit.state, inference, report)
        if is_read_in_blocks(fit.rows):
            return state, report
        predicted = state.leave_one_out(fit.rows, inference)
        report = replace(report, leave_one_out=float(predicted.log_prob.mean()))
        if state.spec.options.likelihood.has_fixed_dispersion and len(fit.rows) >= FEWEST_CHECKED:
            size, zscore = _dispersion_of(predicted, gathered(fit.rows).targets[:, 0], is_white=_is_white(state))
            report = replace(report, mean_squared_zscore=size, dispersion_zscore=zscore)
        return state, report


def _with_few(state: GPState) -> GPState:
    """Return the state with fewer random features, if rows are not too many.

    Args:
        state: The model state.
    """
    spec, count = state.spec, len(state.require_rows(purpose="a fit"))
    few, changed = FEW_FREQUENCIES if spec.options.likelihood.num_latents == 1 else FEWEST, dict(spec.approximations)
    for name, approximation in spec.approximations.items():
        if isinstance(approximation, RandomFeatures) and not approximation.learn_frequencies:
            changed[name] = replace(approximation, num_frequencies=min(few, approximation.num_frequencies))
    if count > MAX_FEW_ROWS or changed == spec.approximations or spec.noise_process is not None:
        return state
    return state.replace(spec=spec.with_approximations(changed, state.hyperparameters, count))


def _by_laplace(fit: TermFit) -> tuple[TermFit, list[FitReport]]:
    """Return the fit at the optimal hyperparameters, and the reports."""
    if fit.spec.options.likelihood.num_latents > 1:
        fit, report = fit_coarsely(fit, CLASS_ROWS)
        return fit, [report]
    if has_lattices(fit.prior):
        return _search_on_lattices(fit, fit.subset(MAX_ROWS))
    return learn_basis(*grow(fit))


def _by_elbo(fit: TermFit) -> tuple[TermFit, list[FitReport]]:
    """Return the fit with the highest ELBO, and the reports."""
    rows, likelihood, spec = fit.rows, fit.spec.options.likelihood, fit.spec
    has_features = any(isinstance(approximation, RandomFeatures) for approximation in spec.approximations.values())
    is_alone = not (likelihood.is_standardized or "laplace" in likelihood.approximations)  # no cheaper fit is alike
    if likelihood.num_latents > 1 or is_alone or (has_features and not likelihood.has_noise_process):
        fit, report = fit_coarsely(fit, limits().subset_rows if is_alone else len(rows))
        return fit, [report]
    cheaper = _cheaper(fit.state)
    held = set(fit.values.space.names) - set(fit.free)
    fixed = tuple(name for name in cheaper.hyperparameters.space.names if name in held)
    reached, first = fit_terms(cheaper, replace(fit.plan, fixed=fixed))
    initial = fit.at(_with_values_found(fit.values, reached, fit.free, spec.noise_prefix))
    is_same = reached.spec.options.likelihood is likelihood
    initial = initial.with_spec(with_basis_of(spec, reached.spec) if is_same else initial.with_new_basis().spec)
    values, report = maximize(Objective.of(initial.state, rows), initial.values, fit.plan, stage="bound")
    return learn_basis(initial.at(values), [first, report])


def _cheaper(state: GPState) -> GPState:
    """Return the state by Laplace's approximation, or with a Gaussian likelihood."""
    spec = state.spec
    if "laplace" in spec.options.likelihood.approximations:
        return state.replace(spec=replace(spec, options=spec.options.changed(inference="laplace")))
    options = spec.options.changed(likelihood=Gaussian(), inference=None, approximations=dict(spec.approximations))
    return at_starting_values(state, replace(spec, options=options, noise_process=None))


def _with_values_found(values: ParameterValues, cheaper: GPState, free: list[str], prefix: str) -> ParameterValues:
    """Return values with the free ones found, also for the kernel of a noise process."""
    reached = cheaper.hyperparameters
    of_terms = {name: reached.value(name) for name in reached.space.names if name in free}
    scales = {term.outputscale for term in cheaper.spec.terms}
    kernel = set(reached.space.quantities) - {"noise", *scales}
    of_noise = {f"{prefix}{name}": reached.value(name) for name in kernel if f"{prefix}{name}" in free}
    return values.with_values(**of_terms, **of_noise)
