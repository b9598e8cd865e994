"""Warnings about a model, its rows and its fit, and reports of its terms."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

import graphs
from rfgp import errors
from rfgp.approximations import (
    Approximation,
    EquispacedFourier,
    Exact,
    InducingPoints,
    RandomFeatures,
    TermCost,
    Vecchia,
)
from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError, arguments
from rfgp.kernels import Kernel, Periodic, Sum
from rfgp.kernels.role import label_of
from rfgp.kernels.stationary import angles_among
from rfgp.likelihoods.real import normal_log_prob
from rfgp.messages import counted, listed, short_repr
from rfgp.models.inputs import sampled
from rfgp.models.report import INTERRUPTED, TIME_OVER, FitReport
from rfgp.models.spec import ModelSpec
from rfgp.models.state import GPState, with_rows
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, Rows, gathered, is_read_in_blocks

# --- Warnings about a model and a fit --------------------------------------------------------------------------------

LONG = 1.5
"""The ratio of a period to the extent of its column above which a model warns. Hours of a day exceed 1 slightly."""
MISCALIBRATED = 4.0
"""The mean squared leave-one-out z-score above which a fit warns."""
EXHAUSTED = 0.9
"""The fraction of weights that the data determine above which a fit warns of variance starvation.

Above it the median test variance is 0.22 to 0.46 of the exact one, see `benchmarks/papers/own/starvation.py`."""
STRUCTURED = 0.3
"""The residual autocorrelation above which a fit warns. For 200 rows its standard error is 0.09."""
STRUCTURED_ROWS = 200
"""The number of rows below which a fit warns of autocorrelation only if a term has vanished.

The limit is then larger, in proportion to the standard error."""
NEGLIGIBLE = 1e-7
"""The noise below which residuals are not checked for structure, relative to its upper bound."""
DISPERSED = 7.0
"""The `dispersion_zscore` above which counts are called overdispersed.

For at least 50 counts whose rates are known to 50 % it is exceeded with a probability below 1e-4 in simulations."""
DOMINATED = 1e3
"""The ratio of the mean to the median of a count, far from the rows, above which a fit warns."""
UNSEEN = 3.0
"""The ratio of a period to the extent of its column above which a fit is refused."""
UNEVEN = 1.1
"""The ratio of the lengths of a degree of longitude at two rows above which a fit in degrees warns."""
SAME_WAVE, SAME_SHARE = 1e-3, 0.01
"""The relative difference up to which two waves are the same, and the share of the variance of both seasons from which
a fit warns of it."""
GIVEN_UP = 0.01
"""The lengthscale above which a column is called irrelevant, relative to the upper bound."""


def warnings_of(state: GPState, report: FitReport | None = None, fixed: tuple[str, ...] = ()) -> Iterator[Warning]:
    """Yield warnings about a model, its rows and its fit.

    Args:
        state: The state of the model.
        report: The report of the fit. If None, there was none.
        fixed: The names of the hyperparameters that the fit did not change.
    """
    rows = state.rows
    if report is not None:
        yield from _warnings_of_search(state, report, fixed)
    yield from _warnings_of_terms(state)
    if report is None or report.selection is None:
        yield from _warnings_of_degrees(state)
    yield from _warnings_of_waves(state)
    if rows is not None and not is_read_in_blocks(rows):
        yield from _warnings_of_places(state.spec, rows)
    if report is not None:
        yield from _warnings_of_lattices(state)
        yield from _warnings_of_counts(state, report)
        if report.outliers and state.scale_model is None:  # scales model outliers
            known = [str(row) for row in report.outliers if row >= 0]
            found = counted(len(report.outliers), "row") + f" ({listed(known)})" * bool(known)
            yield errors.OutlierWarning(
                f"The noise should be typical of all rows, got {found} with more than half of the squared "
                "leave-one-out errors. They inflate the noise and the error bars of the others. Correct or drop them, "
                "or use likelihood='student-t' (or 'heteroscedastic' if the noise depends on the inputs)."
            )
        if rows is not None and state.spec.is_gaussian:
            yield from _warnings_of_errors(state, report)
        yield from _warnings_of_features(state, report)


def _warnings_of_search(state: GPState, report: FitReport, fixed: tuple[str, ...]) -> Iterator[Warning]:
    """Yield warnings about a search: baselines of the selection, convergence, number of hyperparameters."""
    baseline = None if report.selection is None else report.selection.unbeaten_baseline
    if report.selection is not None and baseline is not None:
        yield errors.BaselineNotBeatenWarning(
            f"No candidate beat {baseline} (log density {report.selection.baselines[baseline].value:.4g} a row). The "
            "inputs may not be informative."
        )
    if not report.converged:
        remedy = (
            f"Raise {arguments('max_iterations')} if they ran out; otherwise fix a hyperparameter or give it a prior."
        )
        if TIME_OVER in report.message:
            remedy = f"Raise {arguments('time_limit')}."
        elif INTERRUPTED in report.message:
            remedy = "Fit again to continue."
        yield errors.ConvergenceWarning(
            f"The fit stopped after {counted(report.iterations, 'iteration')} without converging: "
            f"{report.message}. {remedy}"
        )
    values, count = state.hyperparameters, state.num_observations
    free = [name for name in values.space.free(fixed) if name not in values.space.hyperpriors]
    entries = sum(values.raw[name].numel() for name in free)
    has_ard = any(name.endswith("lengthscale") and values.raw[name].numel() > 1 for name in free)
    if count <= entries and has_ard:
        yield errors.OverfittingWarning(
            f"The hyperparameters are over-fitted: {counted(count, 'observation')} cannot determine {entries} "
            "hyperparameters (try ard=False, or priors)."
        )


def _warnings_of_terms(state: GPState) -> Iterator[Warning]:
    """Yield a warning for each term that the rows cannot determine."""
    columns, values = state.spec.columns, state.hyperparameters
    if not len(columns.sample):
        return
    for term in state.spec.terms_with_noise:
        for factor, indices, prefix in term.parts():
            selected, label = columns.select(indices), label_of(factor)
            path, places = f"{prefix}period", selected.sample
            if path in values.space.quantities and bool(values.standardized(path) > LONG * selected.extent.max()):
                yield errors.TermWarning(
                    f"The period of {label} in the term {term.name!r} is longer than the data, so that a season cannot "
                    "be separated from a trend. Use a shorter period, or k.RBF."
                )
            if factor.kind is ColumnKind.LEVEL and 1 < len(places) == len(torch.unique(places, dim=0)):
                yield errors.TermWarning(
                    f"Every level of {label} in the term {term.name!r} has one row, so that its effects cannot be "
                    "separated from noise. Leave the term out, or fix its variance."
                )


def _warnings_of_degrees(state: GPState) -> Iterator[Warning]:
    """Yield a warning for each kernel of the plane on longitudes and latitudes that are far apart."""
    for term in state.spec.terms if len(state.spec.columns.sample) else ():
        for factor, indices, _ in term.parts():
            angles = angles_among(factor.columns or ())
            if factor.measure is None or factor.kind is not ColumnKind.NUMBER or angles is None:
                continue
            selected = state.spec.columns.select([indices[factor.columns.index(angle)] for angle in angles])
            longitudes, latitudes = (selected.location + selected.scale * selected.sample).double().mT
            widths = latitudes.deg2rad().cos()
            are_angles = bool((longitudes.abs() <= 360).all() and (latitudes.abs() < 90.5).all())  # rounded
            if are_angles and bool(UNEVEN * widths.min() < widths.max()):
                yield errors.TermWarning(
                    f"The term {term.name!r} measures distances in degrees, but a degree of longitude is shorter the "
                    f"farther a row is from the equator. Use k.Sphere({angles!r}) for distances on the globe."
                )


def check_periods(state: GPState) -> None:
    """Check that rows show the seasons that a fit is to learn.

    Args:
        state: The state of the model before the fit.

    Raises:
        DataError: If a period is much longer than the extent of its column.
    """
    columns, values = state.spec.columns, state.hyperparameters
    for term, factor, indices, path in _seasons(state) if len(columns.sample) else ():
        extent = float((columns.select(indices).extent * columns.select(indices).scale).max())
        period = float(values.standardized(path)) * float(columns.select(indices).scale[0])
        if period > UNSEEN * extent:
            raise errors.DataError(
                f"The rows must cover the season of {label_of(factor)} in the term {term.name!r}, got an extent of "
                f"{extent:.4g} for a period of {period:.4g}. Leave the term out, or condition(X, y) at values that "
                "are known from other data."
            )


def _seasons(state: GPState) -> Iterator[tuple[Any, Any, list[int], str]]:
    """Yield the term, the factor, the indices of its column and the path of the period of each season."""
    for term in state.spec.terms_with_noise:
        for factor, indices, prefix in term.parts():
            if f"{prefix}period" in state.hyperparameters.space.quantities:
                yield term, factor, indices, f"{prefix}period"


def _warnings_of_waves(state: GPState) -> Iterator[Warning]:
    """Yield a warning for each two seasons of one column that both have a wave of a period."""
    values, seasons = state.hyperparameters, []
    for term, factor, indices, path in _seasons(state):
        if len(term.parts()) == 1 and isinstance(factor, Periodic):
            own = {name: values.standardized(path.removesuffix("period") + name) for name in ("period", "lengthscale")}
            amplitudes = factor.series(own).shares(own).detach()
            seasons.append((term.name, indices, float(own["period"]), amplitudes / amplitudes.sum()))
    for i, (name, indices, period, shares) in enumerate(seasons):
        for other, others, longer, shares_of_other in seasons[:i] + seasons[i + 1 :]:
            ratio = round(longer / period)
            is_multiple = indices == others and longer >= period and abs(longer / period - ratio) < SAME_WAVE * ratio
            if not is_multiple or ratio >= len(shares_of_other) or (ratio == 1 and name > other):
                continue
            if min(float(shares_of_other[ratio]), float(shares[1])) > SAME_SHARE:
                yield errors.TermWarning(
                    f"The terms {name!r} and {other!r} both have a wave of the period of {name!r}, so that rows "
                    f"cannot tell how much of it is in each. Give {other!r} fewer than {ratio} harmonics "
                    "(k.Harmonics), or leave one of the terms out."
                )


def _warnings_of_places(spec: ModelSpec, rows: Rows) -> Iterator[Warning]:
    """Yield a warning for each graph, mesh or road network that has a connected component without rows."""
    for term in spec.terms_with_noise:
        for factor, indices, _ in term.parts():
            if factor.kind not in (ColumnKind.NODE, ColumnKind.COORDINATE):
                continue
            x = gathered(rows).inputs
            latent = factor.latent_field(spec.columns.select(indices)) or factor.domain
            subject, hint = "The graph has", ""
            if factor.nodes is not None:
                links, observed = factor.nodes.adjacency, x[:, indices[0]].long().numpy()
            elif latent is not None:
                field, projector = latent.refine(x[:, indices])
                pattern, size = field.pattern, len(field.pattern.indptr) - 1
                ones = np.ones(len(pattern.indices), dtype=np.int8)
                links = sp.csr_array((ones, pattern.indices, pattern.indptr), shape=(size, size))
                observed = projector(x[:, indices]).indices
                if factor.domain is not None:
                    subject, hint = factor.domain.subject, factor.domain.joining
            else:
                continue
            count, component = connected_components(links, directed=False)
            is_unobserved = np.ones(count, dtype=bool)
            is_unobserved[component[observed]] = False
            if is_unobserved.any():
                yield graphs.DisconnectedWarning(
                    f"{subject} {count:,} connected components, {int(is_unobserved.sum()):,} of them without an "
                    f"observation, which hold {is_unobserved[component].mean():.1%} of all values. Predictions there "
                    f"are those of the prior.{hint}"
                )


def _warnings_of_lattices(state: GPState) -> Iterator[Warning]:
    """Yield a warning for each term whose lattice is too small."""
    rows, spec = state.rows, state.spec
    for data in [] if rows is None else spec.term_data(state.hyperparameters, len(rows)):
        approximation = spec.approximations[data.term.name]
        why = approximation.unsupported_reason(data) if isinstance(approximation, EquispacedFourier) else None
        if why is not None:
            yield errors.PoorFeaturesWarning(f"The frequencies of the term {data.term.name!r} are too few: {why}")


def _warnings_of_counts(state: GPState, report: FitReport) -> Iterator[Warning]:
    """Yield a warning if the latent variance dominates the mean of counts, or counts are overdispersed.

    For well-specified data the second one has a probability below 1e-4.
    """
    values, is_log = state.hyperparameters, state.spec.options.likelihood.latent_deviation is not None
    scales = [term.outputscale for term in state.spec.terms if term.outputscale and is_log]
    variance = sum(float(values.value(path).detach()) for path in scales)
    if variance > 2 * math.log(DOMINATED):
        yield errors.LatentVarianceWarning(
            f"The logarithm of the rate has a standard deviation of {math.sqrt(variance):.3g}, so that far from the "
            f"data the mean of an observation is e^{variance / 2:.3g} times its median. A few large counts may cause "
            "it. Use quantile(0.5) of the posterior predictive distribution, or a prior of the output scale such as "
            "rfgp.priors.HalfNormalDeviation(1.0)."
        )
    if (report.dispersion_zscore or 0.0) > DISPERSED:
        yield errors.OverdispersionWarning(
            "Counts should vary around their rates as Poisson counts do, got a mean squared leave-one-out error of "
            f"{report.mean_squared_zscore:.1f} times the expected one. The counts are overdispersed, and the log rate "
            "follows their noise. Use likelihood='negative-binomial'."
        )


def _warnings_of_errors(state: GPState, report: FitReport) -> Iterator[Warning]:
    """Yield warnings about the leave-one-out errors of a fit with Gaussian noise."""
    values, terms, approximations = state.hyperparameters, state.spec.terms, state.spec.approximations
    num_rows = state.num_observations
    vanished = _vanished(state)
    limit = STRUCTURED * max(1.0, math.sqrt(STRUCTURED_ROWS / num_rows))
    has_rows = num_rows >= STRUCTURED_ROWS or bool(vanished)
    has_noise = bool(values.standardized("noise") > NEGLIGIBLE * values.space.quantities["noise"].bounds[1])
    used = [approximations[term.name] for term in terms]
    features = [approximation for approximation in used if isinstance(approximation, RandomFeatures)]
    is_fixed = bool(features) and report.frequencies == "fixed"
    is_local = any(isinstance(approximation, Vecchia) for approximation in used)
    if (
        len(features) == len(used)
        and report.frequencies != "learned"
        and (report.effective_dof_fraction or 0.0) > EXHAUSTED
    ):
        learn = ", or learn the frequencies for accuracy" if is_fixed else ""
        yield errors.VarianceStarvationWarning(
            f"There are too few features: the data determine {report.effective_dof_fraction:.0%} of the weights. The "
            "variance of the latent function between and far from the data is too small (variance starvation), and "
            f"the noise is too large. Raise {arguments('num_frequencies')}{learn}."
        )
    elif has_rows and (report.residual_autocorrelation or 0) > limit and not is_local and has_noise:
        yield errors.UnderfittingWarning(
            "The leave-one-out errors of neighboring rows have a correlation of "
            f"{report.residual_autocorrelation:.2f}, so part of the fitted noise is structure that the model misses. "
            f"{vanished}{_given_up(state)}"
            f"{_remedies(used, is_fixed=is_fixed)}, add a term such as k.Matern() with Vecchia(), or try another "
            f"{arguments('seed')} or a shorter starting {arguments('lengthscale')}."
        )
    for name in (name for name in report.at_bounds if name.endswith("period")):
        yield errors.TermWarning(
            f"{name} is at an end of its range, so the data may have another period. Start nearer to it, because a fit "
            "changes a period by at most a factor of 2."
        )
    if report.mean_squared_zscore is not None and report.mean_squared_zscore > MISCALIBRATED:
        yield errors.OverfittingWarning(
            f"Squared leave-one-out errors are {report.mean_squared_zscore:.1f} times their predicted variances, so "
            "error bars are too short. The hyperparameters may be overfitted to few rows (try ard=False, or priors), "
            "or the target has outliers."
        )
    if report.learned_frequencies_rejected:
        yield errors.OverfittingWarning(
            f"Learned frequencies were rejected for fixed ones ({report.message.rpartition('; ')[2]}). There may be "
            "too few rows to learn from, or enough frequencies already."
        )


def _remedies(used: list[Approximation], *, is_fixed: bool) -> str:
    """Return the beginning of a sentence with remedies for missed structure."""
    points = [approximation for approximation in used if isinstance(approximation, InducingPoints)]
    if any(isinstance(approximation, RandomFeatures) for approximation in used):
        return f"Raise {arguments('num_frequencies')}" + ", learn the frequencies" * is_fixed
    if points:
        is_learned = all(approximation.learn_locations for approximation in points)
        return "Raise the number of inducing points" + ", learn their locations" * (not is_learned)
    return "Use a rougher kernel"


def _vanished(state: GPState) -> str:
    """Return a sentence about terms whose variances are at their lower bounds, or nothing."""
    names, values = [], state.hyperparameters
    for term in state.spec.terms:
        if term.outputscale in values.space.names:
            least, _ = values.space.quantities[term.outputscale].bounds
            names += [repr(term.name)] if bool((values.standardized(term.outputscale) <= 1.001 * least).all()) else []
    if not names:
        return ""
    which = f"The term {names[0]} has" if len(names) == 1 else f"The terms {', '.join(names)} have"
    return (
        f"{which} vanished: the variance is at its lower bound. Start at another lengthscale or period, which a fit "
        "changes by at most a factor of 2. "
    )


def _given_up(state: GPState) -> str:
    """Return a sentence about columns that are irrelevant by the lengthscales of a single term, or nothing."""
    values, columns = state.hyperparameters, state.spec.schema.keys
    parts = [part for term in state.spec.terms for part in term.parts()]
    name = f"{parts[0][2]}lengthscale"
    if len(parts) != 1 or name not in values.space.quantities or values.raw[name].ndim == 0:
        return ""
    lengthscale, (_, largest) = values.standardized(name).detach(), values.space.quantities[name].bounds
    numbers = (lengthscale > GIVEN_UP * largest).reshape(-1).nonzero()[:, 0].tolist()
    if not numbers or parts[0].factor.is_rotated:
        return ""
    some = ", ".join(repr(columns[parts[0][1][n]]) for n in numbers[:8]) + ", ..." * (len(numbers) > 8)
    which = f"column {some} does" if len(numbers) == 1 else f"columns {some} do"
    return f"By the lengthscales found {which} not matter, which may be wrong: the search may have missed the optimum. "


def forecast_warnings(state: GPState, report: FitReport | None, inputs: Any) -> Iterator[errors.ForecastWarning]:
    """Yield a warning if rows are a forecast, but selection was by interpolation.

    Args:
        state: The state of the model.
        report: The report of the fit. If None, there was none.
        inputs: The standardized rows to predict, (n, d). Rows in blocks are not checked.
    """
    known = report.selection.last_times if report is not None and report.selection is not None else {}
    maps, schema = state.scaling.inputs, state.spec.schema if known else None
    if maps is None or schema is None or not isinstance(inputs, Tensor) or not len(inputs):
        return
    first = maps.inverse(inputs.detach().amin(0))
    later = [i for i, key in enumerate(schema.keys) if first[i] > known.get(str(key), math.inf)]
    if later and state.rows is not None:  # an update may have added rows
        last = maps.inverse(state.rows.ends[1])
        later = [i for i in later if first[i] > last[i]]
    for key in (schema.keys[i] for i in later[:1]):
        yield errors.ForecastWarning(
            f"All rows to predict are later than the training rows in column {short_repr(key)}, but the kernel "
            "was selected by rows left out among the others, which says nothing of a forecast. Intervals may be far "
            "off. Select by forecasts with fit(..., horizon=)."
        )


# --- Comparison of the exact kernel with the random features of a fit ------------------------------------------------

MAX_ROWS = 500
"""The largest number of rows whose covariance is factorized for the comparison."""
FACTORS = (0.5, 1.0, 2.0)
"""The factors of the fitted lengthscales at which the exact kernel is evaluated. Few frequencies favor longer ones."""
WARNING_MARGIN = 0.2
"""The margin of the exact kernel, in nats per row, above which a warning is issued."""
STANDARD_ERRORS = 2.0
"""The same margin in standard errors."""
_RATIOS = -12.0, 2.0, 43
"""The grid of noises: decimal logarithms of its ends relative to the largest eigenvalue, and its size."""


def _exact_left_out(covariance: Tensor, y: Tensor) -> tuple[float, Tensor]:
    """Return the log likelihood of all rows and outputs in nats, and leave-one-out log densities (n, k).

    They are at the most likely noise and variance. With K = V diag(l) V^T, the diagonal of (K + r I)^-1 is
    sum_j V_ij^2 / (l_j + r). See Rasmussen and Williams (2006), Equations 5.10 to 5.12.

    Args:
        covariance: K (n, n), float64.
        y: Centered targets (n, k), float64.
    """
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    projected = vectors.mT @ y
    likelihood, common, ratio = best_noise(eigenvalues, projected.square(), _RATIOS)
    spectrum = eigenvalues.clamp_min(0) + ratio
    precisions = (vectors.square() / spectrum).sum(1, keepdim=True)
    residuals = vectors @ (projected / spectrum[:, None]) / precisions
    log_prob = normal_log_prob(residuals, torch.zeros_like(residuals), common / precisions)
    return float(likelihood), log_prob


def best_noise(
    eigenvalues: Tensor,  # (n,)
    squares: Tensor,  # (n, k)
    grid: tuple[float, float, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the highest log likelihood over a grid of noises.

    The common factor c of noise and kernel is the best one. Let the kernel K have eigenvalues l, and the noise be r c.
    With q(r) = y^T (K + r)^-1 y, the best factor is c = q(r) / (n k). Then -2 log likelihood is n k log q(r) +
    k sum log(l + r) plus a constant.

    Args:
        eigenvalues: The eigenvalues l.
        squares: The squared coefficients of the targets in the eigenvectors.
        grid: The decimal logarithms of the ends of the grid of r, relative to the largest eigenvalue, and its size.

    Returns:
        The log likelihood, c and r, 0-d each.
    """
    n, k = squares.shape
    ratios = eigenvalues.max() * torch.logspace(*grid, dtype=eigenvalues.dtype)
    spectra = eigenvalues.clamp_min(0) + ratios[:, None]
    factors = (squares.sum(1) / spectra).sum(1) / (n * k)
    likelihoods = -0.5 * (n * k * (factors.log() + 1 + math.log(2 * math.pi)) + k * spectra.log().sum(1))
    best = likelihoods.argmax()
    return likelihoods[best], factors[best], ratios[best]


def _warnings_of_features(state: GPState, report: FitReport) -> Iterator[Warning]:
    """Yield a warning if the exact kernel predicts left-out rows clearly better.

    The exact kernel uses at most 500 rows, and the features use all. The comparison is skipped if the search did not
    converge, if there are priors, or if too few features have raised another warning.
    """
    spec, values, rows = state.spec, state.hyperparameters.detached(), state.rows
    used = spec.approximations.values()
    has_features = any(isinstance(approximation, RandomFeatures) for approximation in used)
    is_known = (
        all(isinstance(approximation, RandomFeatures | Exact) for approximation in used) and not spec.other_members
    )
    is_searched = (
        report.converged and report.iterations > 0 and report.frequencies != "learned" and not values.space.hyperpriors
    )
    is_named = (report.effective_dof_fraction or 0.0) > EXHAUSTED
    is_compared = has_features and is_known and spec.is_gaussian and is_searched and not is_named
    if not is_compared or report.leave_one_out is None or rows is None or is_read_in_blocks(rows):
        return
    some = sampled(rows, spec.options.seed, MAX_ROWS)
    if not some.is_homoscedastic:
        return
    with torch.no_grad():
        _, best = max((_left_out(spec, moved, some) for moved in _nearby(spec, values)), key=lambda result: result[0])
    log_prob = best + state.scaling.targets.log_jacobian(1) / some.num_outputs
    gain, error = float(log_prob.mean()) - report.leave_one_out, float(log_prob.std()) / math.sqrt(len(some))
    if gain > max(WARNING_MARGIN, STANDARD_ERRORS * error):
        yield errors.PoorFeaturesWarning(
            f"The exact kernel predicts left-out rows better than the random features, by {gain:.2g} nats per row. "
            f"There are too few features for the function, so that part of it was fitted as noise. Raise "
            f"{arguments('num_frequencies')}, learn the frequencies, or use Exact() or Vecchia()."
        )


def _nearby(spec: ModelSpec, values: ParameterValues) -> Iterator[ParameterValues]:
    """Yield values with all lengthscales of random features multiplied by each factor."""
    paths = [f"{prefix}lengthscale" for term in spec.terms for _, _, prefix in term.parts()]
    known = [path for path in paths if path in values.space.quantities]
    for factor in FACTORS:
        yield values.shifted(**dict.fromkeys(known, math.log(factor)))


def _left_out(spec: ModelSpec, values: ParameterValues, some: Block) -> tuple[float, Tensor]:
    """Return leave-one-out log densities of rows under the exact kernel."""
    inputs = some.inputs.double()
    covariance = spec.with_approximations(Exact(), values, len(some)).prior(values).kernel(inputs, inputs)
    mean = values.standardized("mean").reshape(-1).double()
    return _exact_left_out(covariance.double(), some.targets.double() - mean)


# --- Effective degrees of freedom of the terms of a Gaussian regression ----------------------------------------------


def degrees_of_freedom(state: GPState, points: Tensor) -> dict[str, float]:
    """Return the effective degrees of freedom of each term, from a sample of rows.

    The posterior covariance of f_t and f at the rows is K_t - K_t (K + D)^-1 K = K_t (K + D)^-1 D. The trace is
    therefore the sum of their covariances over the rows, divided by the error variances. For inducing points, K is the
    part that they explain. Their residual variance is left out, and added to D if it is noise (FITC). The sum over a
    sample may be below 0, unlike that over all rows. The result is then 0.

    Args:
        state: The state of the model.
        points: The standardized sample of rows, (n, D).

    Returns:
        The degrees of freedom by the name of the term.
    """
    latent, prior = state.latent(points), state.prior()
    with torch.no_grad():
        residuals = {
            block.name: block.residual_variance(points, block.scaled(points).double())
            for block in prior.weights
            if block.residual is not None
        }
        of_noise = [block.name for block in prior.weights if block.residual is not None and block.residual.is_noise]
        noise = state.spec.observation_noise(state.hyperparameters).double()
        noise = noise + sum(residuals[name] for name in of_noise)
        traces = {
            name: ((latent.cross_covariance([name], latent.terms).diagonal() - residuals.get(name, 0)) / noise).sum()
            for name in latent.terms
        }
    scale = state.num_observations / len(points)
    return {name: max(0.0, float(value) * scale) for name, value in traces.items()}


# --- Reports of the terms of a fitted model --------------------------------------------------------------------------

MAX_POINTS = 500
"""The maximum number of rows at which shares and degrees of freedom of terms are computed."""


@dataclass(frozen=True)
class TermReport:
    """A term of a fitted model.

    Attributes:
        kernel: The kernel of the term, with the current hyperparameters as starting values.
        approximation: The approximation of the term.
        cost: The number of features and the memory of the approximation.
        share: The variance over rows of the term's posterior mean, divided by that of the sum of all terms. Shares of
            terms that overlap, such as a trend and a year, do not add up to 1: the rest is twice the covariances
            between terms. None without rows, for terms of the noise, and if the posterior is not known by terms.
        degrees_of_freedom: The effective degrees of freedom tr K_t (K + D)^-1 of the term. K_t is its prior covariance,
            K that of the sum and D that of the noise. None without rows, and if the likelihood is not Gaussian.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> X = {"t": np.linspace(0, 10, 40), "p": np.cos(np.arange(40.0))}
        >>> gp = rfgp.GP(k.RBF("t", name="trend") + k.Linear("p"), seed=0).fit(X, np.sin(X["t"]))
        >>> gp.terms["trend"].share > 0.9
        True
    """

    kernel: Kernel
    approximation: Approximation
    cost: TermCost
    share: float | None
    degrees_of_freedom: float | None


def term_reports(state: GPState) -> dict[str, TermReport]:
    """Return the reports of the terms of a model by name, the noise included.

    Args:
        state: The state of the model.
    """
    spec = state.spec
    shares, freedom = dict[str, float](), dict[str, float]()
    if state.rows is not None:
        spec, points = with_rows(spec, state.rows), sampled(state.rows, spec.options.seed, MAX_POINTS).inputs.detach()
        with suppress(InvalidArgumentError):  # if the posterior is not divided into terms
            shares = _shares(state, points)
            freedom = degrees_of_freedom(state, points) if spec.is_gaussian else {}
    reports = {}
    for part in (spec, spec.noise_process):
        for name, term, chosen, cost in () if part is None else _parts(part, state):
            reports[name] = TermReport(term, chosen, cost, shares.get(name), freedom.get(name))
    return reports


def _parts(spec: ModelSpec, state: GPState) -> Iterator[tuple[str, Kernel, Approximation, TermCost]]:
    """Yield the name of each term, its kernel, approximation and cost."""
    values = state.hyperparameters
    data, kernel = spec.term_data(values, state.num_observations), spec.fitted_kernel(values)
    for data_of_term, term, prior in zip(data, kernel.terms(), spec.term_priors, strict=True):
        chosen = spec.approximations[data_of_term.term.name]
        yield data_of_term.term.name, Sum((term,)), chosen, chosen.cost(data_of_term, prior)


def _shares(state: GPState, points: Tensor) -> dict[str, float]:
    """Return the share of each term's mean in the variance of their sum over rows (n, D)."""
    latent = state.latent(points)
    with torch.no_grad():
        means = {name: latent.of(name).mean() for name in latent.terms}
        total = float(sum(means.values(), start=torch.zeros(())).var(0).mean()) or 1.0
        return {name: float(mean.var(0).mean()) / total for name, mean in means.items()}
