"""The data, the state and the terms of a model that users see, with warnings about its fit."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations import Approximation, TermCost
from rfgp.counts import counted
from rfgp.errors import (
    BaselineNotBeatenWarning,
    ConvergenceWarning,
    DataError,
    ForecastWarning,
    InvalidArgumentError,
    OverfittingWarning,
    arguments,
)
from rfgp.fitting import TIME_OVER
from rfgp.hyperparameters import Hyperparameters
from rfgp.inference.observed import check_exposure
from rfgp.kernels import Kernel, Sum
from rfgp.likelihoods import Bernoulli
from rfgp.messages import short_repr
from rfgp.regression import FitReport, GPState
from rfgp.regression.changes import with_rows
from rfgp.regression.spec import ModelSpec
from rfgp.regression.starvation import degrees_of_freedom
from rfgp.rows import Chunk, Rows, rows_in_memory
from rfgp.rows.arrays import warn_of_booleans
from rfgp.torch_context import outside_inference_mode

# --- The fitted state of a model, and warnings about a fit -----------------------------------------------------------

_SHOWN = 60
"""The maximum number of characters of one argument in the repr of a model."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The fitted state of a model. A model replaces it as one object.

    Attributes:
        state: The state that computes results.
        live: Its hyperparameters, which users may change.
        report: The report of the fit. If None, there was no fit.
    """

    state: GPState
    live: Hyperparameters
    report: FitReport | None = None

    def now(self) -> GPState:
        """Return the state at the live hyperparameters, which is cached until they change."""
        recent: GPState = vars(self).get("_recent", self.state)
        now = recent.at(self.live.values)
        if now is not recent and now.rows is not None:
            object.__setattr__(self, "_recent", now)
        return now

    @classmethod
    def of(cls, state: GPState, report: FitReport | None = None) -> "Fitted":
        """Return a fitted state with live hyperparameters of its own.

        Args:
            state: The state.
            report: The report of the fit. If None, there was no fit.
        """
        return cls(state, Hyperparameters(state.hyperparameters), report)


def fit_warnings(state: GPState, report: FitReport, fixed: tuple[str, ...]) -> Iterator[Warning]:
    """Yield warnings about a fit: selection, convergence, hyperparameters.

    Args:
        state: The state after the fit.
        report: The report of the fit.
        fixed: The names of the hyperparameters that the fit did not change.
    """
    baseline = None if report.selection is None else report.selection.unbeaten_baseline
    if report.selection is not None and baseline is not None:
        yield BaselineNotBeatenWarning(
            f"No candidate beat {baseline} (log density {report.selection.baselines[baseline].value:.4g} a row). The "
            "inputs may not be informative."
        )
    if not report.converged:
        remedy = (
            f"Raise {arguments('max_iterations')} if they ran out; otherwise fix a hyperparameter or give it a prior."
        )
        if TIME_OVER in report.message:
            remedy = f"Raise {arguments('time_limit')}."
        yield ConvergenceWarning(
            f"The fit stopped after {counted(report.iterations, 'iteration')} without converging: "
            f"{report.message}. {remedy}"
        )
    values, count = state.hyperparameters, state.num_observations
    free = [name for name in values.space.free(fixed) if name not in values.space.hyperpriors]
    entries = sum(values.raw[name].numel() for name in free)
    has_ard = any(name.endswith("lengthscale") and values.raw[name].numel() > 1 for name in free)
    if count <= entries and has_ard:
        yield OverfittingWarning(
            f"The hyperparameters are over-fitted: {counted(count, 'observation')} cannot determine {entries} "
            "hyperparameters (try ard=False, or priors)."
        )


def forecast_warnings(state: GPState, report: FitReport | None, inputs: Any) -> Iterator[Warning]:
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
        yield ForecastWarning(
            f"All rows to predict are later than the training rows in column {short_repr(key)}, but the kernel "
            "was selected by rows left out among the others, which says nothing of a forecast. Intervals may be far "
            'off. Select by forecasts with validate="forward".'
        )


def shown_arguments(kind: type, argument: Callable[[str, Any], Any]) -> Iterator[str]:
    """Yield the arguments of a class that are not its defaults, as Python source.

    Args:
        kind: The class.
        argument: Returns the value of an argument, given its name and default.
    """
    for name, parameter in signature(kind).parameters.items():
        shown = " ".join(repr(argument(name, parameter.default)).split())
        if shown not in (repr(parameter.default), f"{str(parameter.default).capitalize()}()", "{}"):
            yield f"{name}={shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + '...'}"


# --- Validation of the data that a user passes to a model ------------------------------------------------------------


def warn_of_targets(spec: ModelSpec, y: Any) -> None:
    """Warn of boolean targets unless the likelihood is Bernoulli.

    Args:
        spec: The specification of the model.
        y: The targets, (n,), in any supported format.
    """
    if not isinstance(spec.options.likelihood, Bernoulli):
        warn_of_booleans(y, stacklevel=5)


def validate_inputs(
    spec: ModelSpec,
    X: Any,
    y: Any,  # (n,) or (n, k)
    noise: Any,  # (n,)
    sample_weight: Any,  # (n,)
    exposure: Any,  # (n,)
) -> Chunk:
    """Return the data as a chunk, with exposures in the field of the noise.

    Args:
        spec: The specification of the model.
        X: The inputs, in any supported format.
        y: The targets, or the name of their column.
        noise: Known noise variances of the rows. If None, there are none.
        sample_weight: The numbers of repetitions of the rows. If None, ones.
        exposure: The exposures of the rows. If None, there are none.

    Raises:
        DataError: If noise is given with a likelihood that is not Gaussian, or exposures differ from targets in shape.
        InvalidArgumentError: If an exposure is not positive, or the likelihood has no exposures.
    """
    likelihood = spec.options.likelihood
    if noise is not None and not spec.is_gaussian:
        raise DataError(f"noise requires a Gaussian likelihood, got {likelihood!r}. Use sample_weight to repeat rows.")
    if exposure is not None:
        if not likelihood.takes_exposure:
            raise InvalidArgumentError(
                f"exposure requires a likelihood of counts or positive values, got {likelihood!r}. Leave it out."
            )
        shape = np.shape(check_exposure(exposure))
        if y is None or (shape != np.shape(y) and not isinstance(y, str)):
            raise DataError(f"exposure must have one value for each target in memory, got shape {shape}.")
        noise = exposure
    return Chunk(*map(outside_inference_mode, (X, y, noise, sample_weight)))


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
        share: The variance over rows of the term's posterior mean, divided by the sum over all terms. None without
            rows, for terms of the noise, and if the posterior is not known by terms.
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
        spec, points = with_rows(spec, state.rows), _some_points(state.rows, spec.options.seed)
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


def _some_points(rows: Rows, seed: int) -> Tensor:
    """Return the inputs (n, D) of all rows, or of a random sample of them."""
    pool = rows_in_memory(rows)
    order = torch.randperm(len(pool), generator=random.generator(seed, random.Role.SAMPLE))
    return pool.take(order[:MAX_POINTS]).inputs.detach()


def _shares(state: GPState, points: Tensor) -> dict[str, float]:
    """Return the share of each term's mean in the variance over rows (n, D)."""
    latent = state.latent(points)
    with torch.no_grad():
        sizes = {name: float(latent.of(name).mean().var(0).mean()) for name in latent.terms}
    total = sum(sizes.values()) or 1.0
    return {name: size / total for name, size in sizes.items()}
