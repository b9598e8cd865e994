"""Warnings about a fit: too few features, missed structure, short error bars."""

import math
from collections.abc import Iterator, Mapping, Sequence

from rfgp.approximations import Approximation, EquispacedFourier, InducingPoints, RandomFeatures, TermData, Vecchia
from rfgp.counts import counted
from rfgp.errors import (
    LatentVarianceWarning,
    OutlierWarning,
    OverdispersionWarning,
    OverfittingWarning,
    PoorFeaturesWarning,
    TermWarning,
    UnderfittingWarning,
    VarianceStarvationWarning,
    arguments,
)
from rfgp.kernels.terms import BoundTerm
from rfgp.likelihoods import Likelihood
from rfgp.messages import listed
from rfgp.parameters import ParameterValues
from rfgp.regression.report import FitReport

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
GIVEN_UP = 0.01
"""The lengthscale above which a column is called irrelevant, relative to the upper bound."""


def fit_warnings(
    report: FitReport,
    values: ParameterValues,
    terms: Sequence[BoundTerm],
    approximations: Mapping[str, Approximation],
    columns: Sequence[object],
    num_rows: int,
) -> Iterator[Warning]:
    """Yield warnings about a fit under a Gaussian likelihood.

    Args:
        report: The report of the fit.
        values: The fitted hyperparameters.
        terms: The terms.
        approximations: Their approximations by name.
        columns: The keys of the columns.
        num_rows: The number of rows.
    """
    vanished = _vanished(values, terms)
    limit = STRUCTURED * max(1.0, math.sqrt(STRUCTURED_ROWS / num_rows))
    has_rows = num_rows >= STRUCTURED_ROWS or bool(vanished)
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
        yield VarianceStarvationWarning(
            f"There are too few features: the data determine {report.effective_dof_fraction:.0%} of the weights. The "
            "variance of the latent function between and far from the data is too small (variance starvation), and "
            f"the noise is too large. Raise {arguments('num_frequencies')}{learn}."
        )
    elif has_rows and (report.residual_autocorrelation or 0) > limit and not is_local and _has_noise(values):
        yield UnderfittingWarning(
            "The leave-one-out errors of neighboring rows have a correlation of "
            f"{report.residual_autocorrelation:.2f}, so part of the fitted noise is structure that the model misses. "
            f"{vanished}{_given_up(values, terms, columns)}"
            f"{_remedies(used, is_fixed=is_fixed)}, add a term such as k.Matern() with Vecchia(), or try another "
            f"{arguments('seed')} or a shorter starting {arguments('lengthscale')}."
        )
    for name in (name for name in report.at_bounds if name.endswith("period")):
        yield TermWarning(
            f"{name} is at an end of its range, so the data may have another period. Start nearer to it, because a fit "
            "changes a period by at most a factor of 2."
        )
    if report.mean_squared_zscore is not None and report.mean_squared_zscore > MISCALIBRATED:
        yield OverfittingWarning(
            f"Squared leave-one-out errors are {report.mean_squared_zscore:.1f} times their predicted variances, so "
            "error bars are too short. The hyperparameters may be overfitted to few rows (try ard=False, or priors), "
            "or the target has outliers."
        )
    if report.learned_frequencies_rejected:
        yield OverfittingWarning(
            f"Learned frequencies were rejected for fixed ones ({report.message.rpartition('; ')[2]}). There may be "
            "too few rows to learn from, or enough frequencies already."
        )


def misfit_warnings(report: FitReport) -> Iterator[Warning]:
    """Yield a warning if outliers inflate the noise, or counts are overdispersed.

    For well-specified data each warning has a probability below 1e-4.

    Args:
        report: The report of the fit.
    """
    if report.outliers:
        known = [str(row) for row in report.outliers if row >= 0]
        found = counted(len(report.outliers), "row") + f" ({listed(known)})" * bool(known)
        yield OutlierWarning(
            f"The noise should be typical of all rows, got {found} with more than half of the squared leave-one-out "
            "errors. They inflate the noise and the error bars of the others. Correct or drop them, or use "
            "likelihood='student-t' (or 'heteroscedastic' if the noise depends on the inputs)."
        )
    if (report.dispersion_zscore or 0.0) > DISPERSED:
        yield OverdispersionWarning(
            "Counts should vary around their rates as Poisson counts do, got a mean squared leave-one-out error of "
            f"{report.mean_squared_zscore:.1f} times the expected one. The counts are overdispersed, and the log rate "
            "follows their noise. Use likelihood='negative-binomial'."
        )


def latent_warnings(values: ParameterValues, terms: Sequence[BoundTerm], likelihood: Likelihood) -> Iterator[Warning]:
    """Yield a warning if the latent variance dominates the mean of counts.

    Args:
        values: The fitted hyperparameters.
        terms: The terms.
        likelihood: The likelihood.
    """
    if likelihood.latent_deviation is None:
        return
    variance = sum(float(values.value(term.outputscale).detach()) for term in terms if term.outputscale)
    if variance > 2 * math.log(DOMINATED):
        yield LatentVarianceWarning(
            f"The logarithm of the rate has a standard deviation of {math.sqrt(variance):.3g}, so that far from the "
            f"data the mean of an observation is e^{variance / 2:.3g} times its median. A few large counts may cause "
            "it. Use quantile(0.5) of the posterior predictive distribution, or a prior of the output scale such as "
            "rfgp.priors.HalfNormalDeviation(1.0)."
        )


def lattice_warnings(terms: Sequence[TermData], approximations: Mapping[str, Approximation]) -> Iterator[Warning]:
    """Yield a warning for each term whose lattice is too small.

    Args:
        terms: The terms at these hyperparameters.
        approximations: Their approximations by name.
    """
    for data in terms:
        approximation = approximations[data.term.name]
        why = approximation.unsupported_reason(data) if isinstance(approximation, EquispacedFourier) else None
        if why is not None:
            yield PoorFeaturesWarning(f"The frequencies of the term {data.term.name!r} are too few: {why}")


def _remedies(used: Sequence[Approximation], *, is_fixed: bool) -> str:
    """Return the beginning of a sentence with remedies for missed structure."""
    points = [approximation for approximation in used if isinstance(approximation, InducingPoints)]
    if any(isinstance(approximation, RandomFeatures) for approximation in used):
        return f"Raise {arguments('num_frequencies')}" + ", learn the frequencies" * is_fixed
    if points:
        is_learned = all(approximation.learn_locations for approximation in points)
        return "Raise the number of inducing points" + ", learn their locations" * (not is_learned)
    return "Use a rougher kernel"


def _has_noise(values: ParameterValues) -> bool:
    _, largest = values.space.quantities["noise"].bounds
    return bool(values.standardized("noise") > NEGLIGIBLE * largest)


def _vanished(values: ParameterValues, terms: Sequence[BoundTerm]) -> str:
    """Return a sentence about terms whose variances are at their lower bounds, or nothing."""
    names = []
    for term in terms:
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


def _given_up(values: ParameterValues, terms: Sequence[BoundTerm], columns: Sequence[object]) -> str:
    """Return a sentence about columns that are irrelevant by the lengthscales of a single term, or nothing."""
    parts = [part for term in terms for part in term.parts()]
    name = f"{parts[0][2]}lengthscale"
    if len(parts) != 1 or name not in values.space.quantities or values.raw[name].ndim == 0:
        return ""
    lengthscale, (_, largest) = values.standardized(name).detach(), values.space.quantities[name].bounds
    numbers = (lengthscale > GIVEN_UP * largest).reshape(-1).nonzero()[:, 0].tolist()
    if not numbers:
        return ""
    some = ", ".join(repr(columns[parts[0][1][n]]) for n in numbers[:8]) + ", ..." * (len(numbers) > 8)
    which = f"column {some} does" if len(numbers) == 1 else f"columns {some} do"
    return f"By the lengthscales found {which} not matter, which may be wrong: the search may have missed the optimum. "
