"""Starting values of a fit. The likelihood of a kernel has several maxima."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import torch
from scipy.signal import lombscargle
from torch import Tensor

from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError, NotPositiveDefiniteError, SolverError
from rfgp.fitting.context import TermFit, in_search_precision
from rfgp.fitting.maximize import LogLikelihood, marginal_likelihood
from rfgp.fitting.scales import (
    can_profile,
    noise_only_log_likelihood,
    noise_profile_likelihood,
    scale_profile_likelihood,
)
from rfgp.models.inputs import repetitions
from rfgp.models.spec import ModelSpec
from rfgp.parameters import ParameterValues
from rfgp.rows import Block
from rfgp.solvers.choice import uses_cg

STARTS = (1 / 32, 1 / 16, 1 / 8, 0.25, 0.5, 1.0, 2.0, 4.0)
"""The multipliers of all starting lengthscales that are compared."""
SCREENED_ROWS = 500
"""The maximum number of rows on which the lengthscales of one term after the other are compared."""
MATRIX_ROWS, ADVANTAGE_FACTOR, MIN_ADVANTAGE = 100, 2.0, 3.0
"""The maximum number of rows on which starts of dense algebra are compared, and the factor and the nats by which the
gain of another start over noise alone must exceed that of the usual start.

Without the factor the sum of two kernels on concrete ended lower by up to 118 nats."""
MULTIPLIERS = (0.3, 0.1)
"""The multipliers of one term's lengthscales that are compared.

A search from a long lengthscale can end with noise alone."""
NUM_PEAKS, MAX_CYCLES = 3, 10_000
"""The number of periods that are compared, and the maximum number of frequencies of the periodogram."""
NEIGHBOR_ADVANTAGE = 10.0
"""The nats by which a shorter lengthscale of neighbors must be more likely than the present one."""
COMPARED_ROWS = 1000
"""The number of rows on which the starts of a field are compared."""
FIELD_MULTIPLIERS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The multipliers of the parameters of a field on nodes, roads or a mesh that are compared."""
OTHER_MULTIPLIERS = (*FIELD_MULTIPLIERS, 16.0, 32.0)
"""The multipliers that are compared with the end of a search from parameters that the user gave."""
NOISES, NOISES_BY_CG = (0.1, 0.01, 1e-4), (0.1, 0.01)
"""The noise variances that are compared, in variances of the targets. Little noise slows conjugate gradients down."""
ROUNDED = 6
"""The number of decimals, in nats, to which likelihoods are compared."""


def free_lengthscales(fit: TermFit) -> list[str]:
    """Return the names of free lengthscales and graph parameters without a start.

    The names are dotted.

    Args:
        fit: The fit.
    """
    free, given = fit.free, fit.spec.options.starts
    return [name for name in all_lengthscales(fit) if name in free and name not in given]


def all_lengthscales(fit: TermFit) -> list[str]:
    """Return the dotted names of all lengthscales and graph-kernel parameters.

    Args:
        fit: The fit.
    """
    names = []
    for factor, _, prefix in (part for term in fit.spec.terms for part in term.parts()):
        if factor.nodes is not None:
            names += [f"{prefix}{name}" for name in factor.starts if not name.startswith("factor_")]
        elif factor.measure is not None or factor.domain is not None:
            names.append(f"{prefix}lengthscale")
    return list(dict.fromkeys(names))


def scaled(values: ParameterValues, names: Sequence[str], multiplier: float) -> ParameterValues:
    """Return values with those of some names multiplied by a number.

    Args:
        values: The hyperparameters.
        names: The dotted names of those to multiply.
        multiplier: The number that they are multiplied by.
    """
    return values.shifted(**dict.fromkeys(names, math.log(multiplier)))


LikelihoodOf = Callable[[TermFit, Block], LogLikelihood]
"""Returns the log likelihood of some rows with the basis of a fit."""


def has_prior(values: ParameterValues) -> bool:
    """Return whether the hyperpriors have a finite density at a starting value.

    Args:
        values: The starting values.
    """
    try:
        return bool(torch.isfinite(values.log_hyperprior()))
    except InvalidArgumentError:
        return False


# --- comparisons -----------------------------------------------------------------------------------


def log_posteriors(
    fit: TermFit, starts: Iterable[ParameterValues], log_likelihood: LogLikelihood | None = None, *, rows: Block
) -> list[float]:
    """Return the log posterior at each start, -inf if there is none, or an empty list if time is over before the last.

    Args:
        fit: The fit.
        starts: The starts.
        log_likelihood: The log likelihood of the rows. If None, that of the state.
        rows: The rows.
    """
    likelihood, totals = log_likelihood or marginal_likelihood(fit.state, rows), list[float]()
    for values in starts:
        if fit.plan.is_over():
            return []
        totals.append(-math.inf)
        if has_prior(values):
            with suppress(SolverError, NotPositiveDefiniteError), torch.no_grad():
                total, reached, _ = likelihood(values)
                totals[-1] = float(total + reached.log_hyperprior())
    return totals


def changed_one_by_one(
    fit: TermFit,
    rows: Block,
    changes: Mapping[str, Sequence[float]],
    advantage: float,
    likelihood_of: LikelihoodOf = scale_profile_likelihood,
) -> ParameterValues:
    """Return values with the likeliest of a few changes of one hyperparameter after the other.

    Each is compared with a basis of its own.

    Args:
        fit: The fit at its starting values.
        rows: The rows.
        changes: The multipliers of each hyperparameter by dotted name.
        advantage: The nats by which a changed value must be more likely than the present one.
        likelihood_of: Returns the likelihood of the rows.
    """
    values = fit.values
    for name, multipliers in changes.items():
        ends = [values, *(values.shifted(**{name: math.log(multiplier)}) for multiplier in multipliers)]
        totals = list[float]()
        for end in ends:
            trial = fit.at(end).with_new_basis()
            totals += log_posteriors(trial, [end], likelihood_of(trial, rows), rows=rows)
        if len(totals) < len(ends):
            break
        best = max(totals)
        values = ends[totals.index(best) if best > totals[0] + advantage else 0]
    return values


# --- lengthscales and periods ----------------------------------------------------------------------


def ranked_multipliers(fit: TermFit, rows: Block) -> list[float]:
    """Return multipliers of the free lengthscales, the likeliest on some rows first.

    Among equals, the longer lengthscale is first: those shorter than all distances are equal up to rounding. The only
    multiplier is 1 if no lengthscale is free, or if the hyperparameters are those of an earlier search. It is also 1 if
    inducing points with a residual explain no more than noise does.

    Args:
        fit: The fit at its starting values.
        rows: The rows.
    """
    totals = _of_multipliers(fit, rows, scale_profile_likelihood)
    if not totals or (fit.prior.dense.has_residual and max(totals.values()) <= _min_likelihood(fit, rows)):
        return [1.0]
    return sorted(totals, key=lambda multiplier: (round(totals[multiplier], ROUNDED), multiplier), reverse=True)


def _of_multipliers(fit: TermFit, rows: Block, likelihood_of: LikelihoodOf) -> dict[float, float]:
    """Return the log posterior with free lengthscales multiplied by each of `STARTS`, or an empty dict."""
    names = [] if fit.plan.is_continued else free_lengthscales(fit)
    starts = [scaled(fit.values, names, multiplier) for multiplier in STARTS if names]
    totals = log_posteriors(fit, starts, likelihood_of(fit, rows), rows=rows)
    return dict(zip(STARTS, totals, strict=True)) if totals else {}


def _min_likelihood(fit: TermFit, rows: Block) -> float:
    """Return the log posterior of a start that explains more than noise alone."""
    return noise_only_log_likelihood(fit, rows) + MIN_ADVANTAGE


def with_dense_start(fit: TermFit) -> TermFit:
    """Return the fit at the start of a search with dense algebra.

    The lengthscales are the usual ones, unless others gain more than twice as much over noise alone. Each is compared
    at its best noise and variance, because at very short lengthscales a kernel explains noise as well as noise does. In
    a sum, the lengthscales of one term after the other are compared next. If the usual noise and variances explain
    nothing, the best ones are used.

    Args:
        fit: The fit at its starting values.
    """
    some = fit.subset(MATRIX_ROWS)
    totals = _of_multipliers(fit, some, noise_profile_likelihood) if can_profile(fit, some) else {}
    if not totals:
        return fit
    least = _min_likelihood(fit, some)
    best = max(STARTS, key=lambda multiplier: (round(totals[multiplier], ROUNDED), multiplier))
    gain = max(totals[1.0] - least + MIN_ADVANTAGE, 0.0)
    is_clear = totals[best] > least + ADVANTAGE_FACTOR * gain
    initial = fit.at(start_from_multiplier(fit, best if is_clear else 1.0, noise_profile_likelihood))
    value, reached, _ = noise_profile_likelihood(fit, some)(initial.values)
    usual = log_posteriors(initial, [initial.values], rows=some)
    is_lost = bool(usual) and usual[0] <= least < float(value + reached.log_hyperprior())
    return initial.at(reached) if is_lost else initial


def start_from_multiplier(
    fit: TermFit, multiplier: float, likelihood_of: LikelihoodOf = scale_profile_likelihood
) -> ParameterValues:
    """Return values with scaled free lengthscales, screened for each term of a sum.

    Args:
        fit: The fit.
        multiplier: The multiplier of all free lengthscales.
        likelihood_of: The likelihood.
    """
    values = scaled(fit.values, free_lengthscales(fit), multiplier) if multiplier != 1 else fit.values
    return screened(fit.at(values), likelihood_of) if len(fit.spec.terms) > 1 else values


def screened(fit: TermFit, likelihood_of: LikelihoodOf = scale_profile_likelihood) -> ParameterValues:
    """Return values with the best of a few lengthscales, one term after the other.

    Those of a field on roads or a mesh start short, so that longer ones are compared as well. Terms on the same columns
    keep their lengthscales, which differ from the start.

    Args:
        fit: The fit at its starting values.
        likelihood_of: Returns the likelihood of some rows that is compared.
    """
    if fit.plan.is_continued:
        return fit.values
    rows = in_search_precision(fit.subset(MATRIX_ROWS if likelihood_of is noise_profile_likelihood else SCREENED_ROWS))
    parts = (part for term in fit.spec.terms for part in term.parts())
    in_fields = [f"{prefix}lengthscale" for factor, _, prefix in parts if factor.domain is not None]
    changes = {name: FIELD_MULTIPLIERS if name in in_fields else MULTIPLIERS for name in _screened_names(fit)}
    return changed_one_by_one(fit, rows, changes, MIN_ADVANTAGE, likelihood_of)


def with_shorter_lengthscales(fit: TermFit, names: Sequence[str]) -> ParameterValues:
    """Return values with shorter lengthscales if those are far more likely.

    The noise and the common factor of all terms are solved for, so that short lengthscales do not explain noise.

    Args:
        fit: The fit.
        names: The dotted names of the lengthscales.
    """
    rows = in_search_precision(fit.subset(SCREENED_ROWS))
    changes = dict.fromkeys(names if can_profile(fit, rows) else (), MULTIPLIERS)
    return changed_one_by_one(fit, rows, changes, NEIGHBOR_ADVANTAGE, noise_profile_likelihood)


def with_likelier_periods(fit: TermFit) -> ParameterValues:
    """Return values with learned periods at peaks of the periodogram of the targets, if those are likelier.

    The likelihood has a narrow maximum for each period, so that a search from another one does not find it.

    Args:
        fit: The fit at its starting values.
    """
    values, rows, changes = fit.values, fit.subset(SCREENED_ROWS), dict[str, list[float]]()
    for _, indices, prefix in (part for term in fit.spec.terms for part in term.parts()):
        name = f"{prefix}period"
        if name in fit.free and not fit.plan.is_continued:
            low, high = (float(bound) for bound in values.space.quantities[name].bounds)
            peaks = _peaks(rows.inputs[:, indices[0]], rows.targets[:, 0], low, high)
            changes[name] = [peak / float(values.standardized(name)) for peak in peaks]
    return changed_one_by_one(
        fit, rows, changes, MIN_ADVANTAGE, lambda trial, some: marginal_likelihood(trial.state, some)
    )


def _peaks(
    x: Tensor,  # (n,)
    y: Tensor,  # (n,)
    low: float,
    high: float,
) -> list[float]:
    """Return the periods in a range with the largest peaks of the periodogram around a quadratic trend."""
    x_values, y_values = x.double().cpu().numpy(), y.double().cpu().numpy()
    extent = float(np.ptp(x_values))
    cycles = np.arange(extent / high, extent / low, 0.25)[:MAX_CYCLES]
    if len(np.unique(x_values)) <= 3 or not len(cycles):
        return []
    points = (x_values - x_values.min()) / extent
    residual = y_values - np.polyval(np.polyfit(points, y_values, 2), points)
    power = np.r_[0.0, lombscargle(points, residual, 2 * np.pi * cycles, floating_mean=True), 0.0]
    is_peak = (power[1:-1] >= power[:-2]) & (power[1:-1] >= power[2:])
    best = np.argsort(np.where(is_peak, -power[1:-1], 0.0), kind="stable")[:NUM_PEAKS]
    return [float(extent / cycles[i]) for i in best]


def _screened_names(fit: TermFit) -> list[str]:
    """Return the free lengthscales, except those of several terms on the same columns."""
    terms, earlier = fit.spec.terms, repetitions(fit.spec.terms)
    repeated = [term.column_indices for term in terms if earlier[term.name]]
    kept = [f"{prefix}lengthscale" for term in terms if term.column_indices in repeated for prefix in term.prefixes]
    return [name for name in free_lengthscales(fit) if name not in kept]


# --- fields ----------------------------------------------------------------------------------------


def is_one_field(spec: ModelSpec) -> bool:
    """Return whether a model is one kernel on nodes, roads or a mesh.

    Args:
        spec: The specification of the model. If it has a noise process, the result is False.
    """
    kinds = [factor.kind for term in spec.terms for factor in term.term.factors]
    return spec.noise_process is None and len(kinds) == 1 and kinds[0] in (ColumnKind.NODE, ColumnKind.COORDINATE)


def starts_of_field(fit: TermFit) -> list[ParameterValues]:
    """Return the likeliest start of a field for each multiplier of its parameters.

    Args:
        fit: The fit.

    Returns:
        At least one start, the best first.
    """
    names = free_lengthscales(fit)
    if not names:
        return [fit.values]
    return [values for _, values in _ranked_starts(fit, names, FIELD_MULTIPLIERS)] or [fit.values]


def likelier_starts(fit: TermFit, searched_values: ParameterValues) -> list[ParameterValues]:
    """Return starts that are likelier than the end of a search, the best first.

    A search for classes from a short lengthscale can end where the latent functions are constant. There are no such
    starts under a Gaussian likelihood, in a continued fit, or if the user gave no starting value.

    Args:
        fit: The fit at its start.
        searched_values: The hyperparameters at the end of the search.
    """
    names = [name for name in all_lengthscales(fit) if name in fit.free]
    is_given = names != free_lengthscales(fit)
    if fit.spec.is_gaussian or fit.plan.is_continued or not is_given:
        return []
    reached = log_posteriors(fit, [searched_values], rows=fit.subset(COMPARED_ROWS))
    ranked = _ranked_starts(fit, names, OTHER_MULTIPLIERS)
    return [values for total, values in ranked if total > reached[0]]


def _ranked_starts(fit: TermFit, names: list[str], multipliers: Sequence[float]) -> list[tuple[float, ParameterValues]]:
    """Return the likeliest start for each multiplier, with its log posterior, the best first.

    Args:
        fit: The fit.
        names: The dotted names of the parameters.
        multipliers: The multipliers.
    """
    rows, noises = fit.subset(COMPARED_ROWS), tuple[float, ...]()
    if "noise" in fit.free and "noise" not in fit.spec.options.starts:
        noises = NOISES_BY_CG if uses_cg(fit.prior, rows) else NOISES
    ranked = list[tuple[float, ParameterValues]]()
    for multiplier in multipliers:
        initial = scaled(fit.values, names, multiplier)
        starts = [initial.replaced({"noise": torch.tensor(noise).double().log()}) for noise in noises] or [initial]
        starts = [fit.spec.normalized(start, rows) for start in starts]
        totals = log_posteriors(fit, starts, rows=rows)
        if not totals:
            return []
        ranked.append(max(zip(totals, starts, strict=True), key=lambda pair: pair[0]))
    return sorted((pair for pair in ranked if math.isfinite(pair[0])), key=lambda pair: pair[0], reverse=True)
