"""Starting values of a fit. The likelihood of a kernel has several maxima.

Under sparse priors a search selects columns one after the other.
If every column has an effect at the start, a search may explain a few rows by many columns. So all columns start
without an effect. Each step ranks the columns by polynomial fits to the leave-one-out errors. It tries the first few at
the effects of the prior, and searches briefly over all hyperparameters from the best. The ranking misses interactions
of columns without main effects.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from scipy.signal import lombscargle
from torch import Tensor

from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError, NotPositiveDefiniteError, SolverError
from rfgp.fitting.context import (
    SearchEnd,
    TermFit,
    can_profile,
    in_search_precision,
    noise_profile_likelihood,
    scale_profile_likelihood,
)
from rfgp.fitting.maximize import LogLikelihood, Objective, marginal_likelihood
from rfgp.models.inputs import repetitions
from rfgp.models.spec import ModelSpec
from rfgp.parameters import ParameterValues
from rfgp.priors import SparsePrior
from rfgp.rows import Block

STARTS = (1 / 32, 1 / 16, 1 / 8, 0.25, 0.5, 1.0, 2.0, 4.0)
"""The multipliers of all starting lengthscales that are compared."""
SCREENED_ROWS = 500
"""The maximum number of rows on which the lengthscales of one term after the other are compared."""
MATRIX_ROWS, CLEAR_ADVANTAGE = 100, 10.0
"""The maximum number of rows on which starts of dense algebra are compared, and the nats by which another start,
another lengthscale of a term or another period must be more likely than the present one.

On 18 tables at 50 to 600 rows the usual start is enough. It misses fast functions, which gain far more."""
LEAST_NOISE = 0.01
"""The smallest noise at which a search starts, in variances of the target.

The likeliest noise of 100 rows may be 1e-8, where the gradient vanishes. Of 20 seeds on 400 points of a globe, one then
ended 206 nats lower."""
MULTIPLIERS = (0.3, 0.1)
"""The multipliers of one term's lengthscales that are compared.

A search from a long lengthscale can end with noise alone."""
NUM_ANGLES = 4
"""The number of angles of half a turn that are compared. With two lengthscales, opposite axes can also be exchanged."""
NUM_PEAKS, MAX_CYCLES = 3, 10_000
"""The number of periods that are compared, and the maximum number of frequencies of the periodogram."""
FIELD_MULTIPLIERS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The multipliers of the parameters of a field on nodes, roads or a mesh that are compared."""
NOISES = (0.1, 0.01)
"""The noise variances that are compared, in variances of the targets."""
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
    likelihood_of: LikelihoodOf = scale_profile_likelihood,
) -> ParameterValues:
    """Return values with the likeliest of a few changes of one hyperparameter after the other.

    Each is compared with a basis of its own.

    Args:
        fit: The fit at its starting values.
        rows: The rows.
        changes: The multipliers of each hyperparameter by dotted name.
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
        values = ends[totals.index(best) if best > totals[0] + CLEAR_ADVANTAGE else 0]
    return values


# --- lengthscales and periods ----------------------------------------------------------------------


def ranked_multipliers(fit: TermFit, rows: Block) -> list[float]:
    """Return multipliers of the free lengthscales, the likeliest on some rows first.

    Among equals, the longer lengthscale is first: those shorter than all distances are equal up to rounding. The only
    multiplier is 1 if no lengthscale is free, or if the hyperparameters are those of an earlier search.

    Args:
        fit: The fit at its starting values.
        rows: The rows.
    """
    totals = _of_multipliers(fit, rows, scale_profile_likelihood) or {1.0: 0.0}
    return sorted(totals, key=lambda multiplier: (totals[multiplier], multiplier), reverse=True)


def _of_multipliers(fit: TermFit, rows: Block, likelihood_of: LikelihoodOf) -> dict[float, float]:
    """Return the rounded log posterior with free lengthscales multiplied by each of `STARTS`, or an empty dict."""
    names = [] if fit.plan.is_continued else free_lengthscales(fit)
    starts = [scaled(fit.values, names, multiplier) for multiplier in STARTS if names]
    totals = log_posteriors(fit, starts, likelihood_of(fit, rows), rows=rows)
    return {start: round(total, ROUNDED) for start, total in zip(STARTS, totals, strict=False)}


def with_dense_start(fit: TermFit) -> TermFit:
    """Return the fit at the start of a search with dense algebra.

    The lengthscales are the usual ones, unless others are far more likely. Each is compared at its best noise and
    variance, because at very short lengthscales a kernel explains noise as well as noise does.

    Args:
        fit: The fit at its starting values.
    """
    some = fit.subset(MATRIX_ROWS)
    totals = _of_multipliers(fit, some, noise_profile_likelihood) if can_profile(fit, some) else {}
    best = max(totals, key=lambda multiplier: (totals[multiplier], multiplier), default=1.0)
    if not totals or totals[best] <= totals[1.0] + CLEAR_ADVANTAGE:
        return fit
    start = fit.at(scaled(fit.values, free_lengthscales(fit), best))
    reached = noise_profile_likelihood(start, some)(start.values).reached
    lack = LEAST_NOISE / float(reached.standardized("noise").detach())
    return start.at(reached.shifted(noise=math.log(lack)) if lack > 1 and "noise" in fit.free else reached)


def start_from_multiplier(fit: TermFit, multiplier: float) -> ParameterValues:
    """Return values with scaled free lengthscales, screened for each term of a sum.

    Args:
        fit: The fit.
        multiplier: The multiplier of all free lengthscales.
    """
    values = scaled(fit.values, free_lengthscales(fit), multiplier)
    return screened(fit.at(values)) if len(fit.spec.terms) > 1 else values


def screened(fit: TermFit) -> ParameterValues:
    """Return values with the best of a few lengthscales, one term after the other.

    Those of a field on roads or a mesh start short, so that longer ones are compared as well. Terms on the same columns
    keep their lengthscales, which differ from the start.

    Args:
        fit: The fit at its starting values.
    """
    if fit.plan.is_continued:
        return fit.values
    rows, terms, earlier = in_search_precision(fit.subset(SCREENED_ROWS)), fit.spec.terms, repetitions(fit.spec.terms)
    repeated = [term.column_indices for term in terms if earlier[term.name]]
    changes, free = dict[str, Sequence[float]](), free_lengthscales(fit)
    for term in terms:
        for factor, _, prefix in term.parts() if term.column_indices not in repeated else ():
            if f"{prefix}lengthscale" in free:
                changes[f"{prefix}lengthscale"] = MULTIPLIERS if factor.domain is None else FIELD_MULTIPLIERS
    return changed_one_by_one(fit, rows, changes)


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
    return changed_one_by_one(fit, rows, changes, lambda trial, some: marginal_likelihood(trial.state, some))


def with_likelier_rotations(fit: TermFit) -> ParameterValues:
    """Return values with the likeliest of a few angles of each learned rotation, one after the other.

    Each is compared at its best multiple of all lengthscales, noise and variance.

    Args:
        fit: The fit at its starting values.
    """
    rows, values, given = fit.subset(MATRIX_ROWS), fit.values, fit.spec.options.starts
    names = [name for name in fit.free if name.endswith("rotation") and name not in given]
    for name in names if not fit.plan.is_continued else ():
        turned = [values.shifted(**{name: number * math.pi / NUM_ANGLES}) for number in range(NUM_ANGLES)]
        totals = []
        for trial in (fit.at(end).with_new_basis() for end in turned):
            found = _of_multipliers(trial, rows, noise_profile_likelihood).values()
            totals.append(max(found or log_posteriors(trial, [trial.values], rows=rows), default=-math.inf))
        values = turned[totals.index(max(totals))]
    return values


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


# --- fields ----------------------------------------------------------------------------------------


def is_one_field(spec: ModelSpec) -> bool:
    """Return whether a model is one kernel on nodes, roads or a mesh.

    Args:
        spec: The specification of the model. If it has a noise process, the result is False.
    """
    kinds = [factor.kind for term in spec.terms for factor in term.term.factors]
    return spec.noise_process is None and len(kinds) == 1 and kinds[0] in (ColumnKind.NODE, ColumnKind.COORDINATE)


def start_of_field(fit: TermFit) -> ParameterValues:
    """Return the likeliest start of a field among multiples of its parameters and a few noises.

    Under another likelihood than the Gaussian one, given starting values are multiplied as well: a search for classes
    from a short lengthscale can end where the latent functions are constant.

    Args:
        fit: The fit.
    """
    names, rows = free_lengthscales(fit), fit.subset(SCREENED_ROWS)
    if not fit.spec.is_gaussian and not fit.plan.is_continued:
        names = [name for name in all_lengthscales(fit) if name in fit.free]
    starts = [scaled(fit.values, names, multiplier) for multiplier in FIELD_MULTIPLIERS if names]
    if "noise" in fit.free and "noise" not in fit.spec.options.starts:
        logs = [torch.tensor(noise).double().log() for noise in NOISES]
        starts = [start.replaced({"noise": log}) for start in starts for log in logs]
    starts = [fit.spec.normalized(start, rows) for start in starts]
    totals = log_posteriors(fit, starts, rows=rows)
    best = max(range(len(totals)), key=lambda i: totals[i], default=0)
    return starts[best] if totals and math.isfinite(totals[best]) else fit.values


# --- Forward selection of columns under sparse priors ---------------------------------------------

MAX_COLUMNS, TRIED_COLUMNS, MAX_MISSES = 12, 3, 2
"""The most added columns, the columns that a step tries, and the number of steps without a gain that end the search.

Without this search 18 fits of 30 to 100 columns end lower by 14 to 85 nats."""
STEP_ITERATIONS = 20
"""The maximum number of iterations of a search in a step."""
ABSENT = 0.01
"""The effect of an absent column, in scales of its prior."""
_DEGREE = 3
"""The degree of the polynomials that rank columns."""
_MIN_GAIN = 0.1
"""The smallest gain in nats of the log posterior by which a step counts."""

Search = Callable[..., SearchEnd]
"""The search on some rows, `rfgp.fitting.driver.search`."""


@dataclass(frozen=True)
class Effects:
    """The effects of columns through one hyperparameter with a sparse prior.

    Attributes:
        name: The dotted name of the hyperparameter.
        columns: The index of the column of each entry.
        prior: The prior.
    """

    name: str
    columns: tuple[int, ...]
    prior: SparsePrior

    def absent(self, values: ParameterValues) -> ParameterValues:
        """Return values at which no column has an effect.

        Args:
            values: The hyperparameters.
        """
        value = self.prior.value(ABSENT * self.prior.tau(len(self.columns)))
        return values.replaced({self.name: torch.full_like(values.raw[self.name], math.log(value))})

    def with_effect(self, values: ParameterValues, column: int, effect: float) -> ParameterValues:
        """Return values at which a column has at least a given effect.

        Args:
            values: The hyperparameters.
            column: The index of the column.
            effect: The least effect, on the scale of the prior.
        """
        raw, number = values.raw[self.name].clone(), self.columns.index(column)
        value = torch.full_like(raw[number], math.log(self.prior.value(effect)))
        raw[number] = torch.where(self.prior.effect(raw[number].exp()) < effect, value, raw[number])
        return values.replaced({self.name: raw})


def sparse_effects(fit: TermFit) -> list[Effects]:
    """Return the free hyperparameters with sparse priors, under a Gaussian likelihood.

    Args:
        fit: The fit. It has none if it continues an earlier search.
    """
    if not fit.spec.is_gaussian or fit.plan.is_continued:
        return []
    priors, free, effects = fit.values.space.hyperpriors, fit.free, list[Effects]()
    for term in fit.spec.terms:
        for _, columns, prefix in term.parts():
            for name in (f"{prefix}lengthscale", f"{prefix}variance"):
                prior = priors.get(name)
                if isinstance(prior, SparsePrior) and name in free and fit.values.raw[name].shape == (len(columns),):
                    effects.append(Effects(name, tuple(columns), prior))
    return effects


def search_sparsely(fit: TermFit, rows: Block, search: Search, tolerance: float | None) -> SearchEnd:
    """Add columns one after the other, and search again from the best fit.

    Args:
        fit: The fit at its start.
        rows: The rows of the search.
        search: The search on some rows.
        tolerance: The smallest gain of an iteration of the last search, in nats a row. If None, the default.

    Returns:
        The fit at the values found, and the report of the last search.
    """
    effects, present, misses = sparse_effects(fit), list[int](), 0
    values, objective = fit.values, Objective.of(fit.state, rows)
    for term_effects in effects:
        values = term_effects.absent(values)
    best, score = fit.at(values), -math.inf
    errors = rows.targets.double() - rows.targets.double().mean(0)
    while misses < MAX_MISSES and len(present) < MAX_COLUMNS and not fit.plan.is_over():
        ranked = [column for column in ranked_columns(rows.inputs, errors, effects) if column not in present]
        if not ranked:
            break
        base = best.at(_with_noise(best, errors)) if not present else best
        starts = _effect_starts(base, effects, ranked[:TRIED_COLUMNS])
        column, start = max(starts, key=lambda pair: objective.log_posterior(pair[1].values))
        end, _ = search(start, rows, most=STEP_ITERATIONS, note=", new column")
        present.append(column)
        reached = objective.log_posterior(end.values)
        if reached > score + _MIN_GAIN:
            best, score, misses = end, reached, 0
            with torch.no_grad():
                errors = rows.targets - best.state.infer(rows).leave_one_out()[0]
        else:
            misses += 1
    return search(best, rows, tolerance=tolerance)


def ranked_columns(inputs: Tensor, errors: Tensor, effects: Sequence[Effects]) -> list[int]:
    """Return columns ranked by the BIC of the best polynomial of each.

    Polynomials are up to cubic. With two rows or fewer, columns are unranked.

    Args:
        inputs: The rows, (n, D).
        errors: The errors that the polynomials explain, (n, k).
        effects: The hyperparameters whose columns are ranked.
    """
    columns = sorted({column for term_effects in effects for column in term_effects.columns})
    x, n = inputs[:, columns].detach().double(), len(errors)
    degree = min(_DEGREE, n - 2)
    if degree < 1:
        return columns
    x = (x - x.mean(0)) / x.std(0).clamp_min(1e-300)
    powers = torch.stack([x**power for power in range(degree + 1)], dim=2).movedim(1, 0)  # (D, n, degree + 1)
    basis, _ = torch.linalg.qr(powers)
    shares = (basis.mT @ errors.double()).square().sum(2)[:, 1:].cumsum(1) / errors.square().sum()
    penalties = 0.5 * math.log(n) * torch.arange(1, degree + 1)
    gains = (-0.5 * n * torch.log1p(-shares.clamp(max=1 - 1e-12)) - penalties).amax(1)
    return [columns[number] for number in gains.nan_to_num(-math.inf).argsort(descending=True).tolist()]


def _effect_starts(fit: TermFit, effects: Sequence[Effects], columns: Sequence[int]) -> list[tuple[int, TermFit]]:
    """Return the fit with each of some columns at each effect of each prior."""
    return [
        (column, fit.at(term_effects.with_effect(fit.values, column, effect)))
        for column in columns
        for term_effects in effects
        if column in term_effects.columns
        for effect in term_effects.prior.effects
    ]


def _with_noise(fit: TermFit, errors: Tensor) -> ParameterValues:
    """Return values whose noise is the variance of errors (n, k), unless it is fixed."""
    if "noise" not in fit.free:
        return fit.values
    noise = errors.square().mean().log()
    return fit.values.replaced({"noise": noise}).clamped(["noise"])[0]
