"""The fitted state of a model, and warnings about a fit."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any

from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import (
    BaselineNotBeatenWarning,
    ConvergenceWarning,
    ForecastWarning,
    OverfittingWarning,
    arguments,
)
from rfgp.fitting import TIME_OVER
from rfgp.hyperparameters import Hyperparameters
from rfgp.messages import short_repr
from rfgp.regression import FitReport, GPState
from rfgp.regression.spec import spec_of
from rfgp.rows import ends_of

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
    maps, schema = state.scaling.inputs, spec_of(state).schema if known else None
    if maps is None or schema is None or not isinstance(inputs, Tensor) or not len(inputs):
        return
    first = maps.inverse(inputs.detach().amin(0))
    later = [i for i, key in enumerate(schema.keys) if first[i] > known.get(str(key), math.inf)]
    if later and state.rows is not None:  # an update may have added rows
        last = maps.inverse(ends_of(state.rows)[1])
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
