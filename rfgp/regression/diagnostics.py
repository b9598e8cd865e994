"""Checks of memory, and warnings about terms and fits."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor

import graphs
from graphs.checks import machine_memory
from graphs.precisions.base import Pattern
from rfgp.approximations import Approximation, EquispacedFourier, InducingPoints, RandomFeatures, Vecchia
from rfgp.approximations.role import TermData
from rfgp.columns import ColumnKind
from rfgp.counts import counted
from rfgp.errors import (
    InvalidArgumentError,
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
from rfgp.kernels.role import BoundTerm, ColumnSummary, Term, label_of
from rfgp.likelihoods import Likelihood
from rfgp.messages import listed
from rfgp.parameters import ParameterValues
from rfgp.regression.report import FitReport
from rfgp.rows import Rows, gathered

# --- Warnings about connected components of a graph, a mesh or roads without an observation --------------------------


def warnings_of_components(
    links: Any,  # sparse (N, N)
    observed: NDArray[np.integer[Any]],
    subject: str,
    hint: str = "",
) -> Iterator[Warning]:
    """Yield a warning if a connected component has no observation.

    Args:
        links: A sparse matrix with an entry for each pair of connected values.
        observed: The indices of observed values, with repetitions.
        subject: The beginning of the message, such as "The graph has".
        hint: A sentence about a way to join components. The default is none.
    """
    count, component = connected_components(links, directed=False)
    is_unobserved = np.ones(count, dtype=bool)
    is_unobserved[component[observed]] = False
    if is_unobserved.any():
        yield graphs.DisconnectedWarning(
            f"{subject} {count:,} connected components, {int(is_unobserved.sum()):,} of them without an "
            f"observation, which hold {is_unobserved[component].mean():.1%} of all values. Predictions there "
            f"are those of the prior.{hint}"
        )


def pattern_links(pattern: Pattern) -> sp.csr_array:
    """Return a matrix (N, N) of ones with the sparsity pattern of a precision.

    Args:
        pattern: The sparsity pattern, with N rows.
    """
    size = len(pattern.indptr) - 1
    ones = np.ones(len(pattern.indices), dtype=np.int8)
    return sp.csr_array((ones, pattern.indices, pattern.indptr), shape=(size, size))


# --- Checks of memory, and warnings about terms that the data do not determine ---------------------------------------

LONG = 1.5
"""The ratio of a period to the extent of its column above which a model warns. Hours of a day exceed 1 slightly."""
SHARE = 0.8
"""The default memory limit of a model, as a fraction of the machine's memory."""


def check_memory(chosen: Mapping[str, Approximation], terms: Sequence[TermData], limit: float | None) -> None:
    """Check that terms fit into memory, before anything is allocated.

    Args:
        chosen: The approximations of all terms by name.
        terms: The terms.
        limit: The memory limit in bytes. If None, a fixed fraction of the machine's memory.

    Raises:
        InvalidArgumentError: If they do not. The message names the largest term, its memory and a remedy.
    """
    allowed = SHARE * machine_memory() if limit is None else limit
    costs = {data.term.name: chosen[data.term.name].cost(data) for data in terms}
    total = sum(cost.memory for cost in costs.values())
    if total > allowed:
        name = max(costs, key=lambda term: costs[term].memory)
        raise InvalidArgumentError(
            f"The model must fit into {allowed / 2**30:,.3g} GiB, got {total / 2**30:,.3g} GiB. The term {name!r} "
            f"takes {costs[name].memory / 2**30:,.3g} GiB by {costs[name].note}. Give it another approximation, such "
            "as rfgp.RandomFeatures() or rfgp.InducingPoints() with fewer features."
        )


def term_warnings(
    terms: Sequence[BoundTerm], columns: ColumnSummary, values: Mapping[str, Tensor]
) -> Iterator[Warning]:
    """Yield a warning for each term that the rows cannot determine.

    Args:
        terms: The terms.
        columns: The summary of the rows.
        values: The hyperparameters (...) in standardized units, by dotted name.
    """
    if not len(columns.sample):
        return
    for term in terms:
        for factor, indices, prefix in term.parts():
            selected, label = columns.select(indices), label_of(factor)
            period = values.get(f"{prefix}period")
            if period is not None and bool(period > LONG * selected.extent.max()):
                yield TermWarning(
                    f"The period of {label} in the term {term.name!r} is longer than the data, so that a season cannot "
                    "be separated from a trend. Use a shorter period, or k.RBF."
                )
            if factor.kind is ColumnKind.LEVEL and _is_seen_once(selected.sample):
                yield TermWarning(
                    f"Every level of {label} in the term {term.name!r} has one row, so that its effects cannot be "
                    "separated from noise. Leave the term out, or fix its variance."
                )


def _is_seen_once(sample: Tensor) -> bool:
    """Return whether at least two rows (r, c) all have different levels."""
    return len(sample) > 1 and len(torch.unique(sample, dim=0)) == len(sample)


def warnings_of_places(terms: Sequence[BoundTerm], columns: ColumnSummary, rows: Rows) -> Iterator[Warning]:
    """Yield a warning for each domain that has a connected component without rows.

    Args:
        terms: The terms, of which those on surfaces, networks and graphs are checked.
        columns: The summary of the columns.
        rows: The rows.
    """
    for term in terms:
        for factor, indices, _ in term.parts():
            if factor.kind not in (ColumnKind.NODE, ColumnKind.COORDINATE):
                continue
            x, latent = gathered(rows).inputs, factor.latent_field(columns.select(indices))
            if factor.nodes is not None:
                positions = x[:, indices[0]].long().numpy()
                yield from warnings_of_components(factor.nodes.adjacency, positions, *_WORDS)
            elif latent is not None:
                field, projector = latent.refine(x[:, indices])
                words = _WORDS if factor.domain is None else (factor.domain.subject, factor.domain.joining)
                links = pattern_links(field.pattern)
                yield from warnings_of_components(links, projector(x[:, indices]).indices, *words)


_WORDS = "The graph has", ""


def identity_of(terms: Sequence[Term]) -> Iterator[str | Tensor]:
    """Yield the graphs, meshes and roads of terms as texts and tensors (...).

    Args:
        terms: The terms.
    """
    for factor in (factor for term in terms for factor in term.factors):
        if factor.domain is not None:
            yield from factor.domain.identity()
        if factor.nodes is not None:
            matrix = factor.nodes.adjacency
            yield factor.nodes.laplacian
            yield from (torch.from_numpy(np.array(part)) for part in (matrix.indptr, matrix.indices, matrix.data))


# --- Warnings about a fit: too few features, missed structure, short error bars --------------------------------------

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
