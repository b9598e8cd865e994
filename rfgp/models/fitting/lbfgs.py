"""Maximising a marginal likelihood: L-BFGS over raw hyperparameters."""

import math
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.models.fitting.checkpoint import Journal
from rfgp.models.fitting.progress import Reporter
from rfgp.models.fitting.report import FitReport, Stage
from rfgp.models.state import State

_ROUNDING = 1e-6
"""Nats per observation that a second start after a failed line search must gain to be worth more."""


@dataclass(frozen=True)
class Plan:
    """What the user asked of a fit.

    Attributes:
        fixed: Names of hyperparameters that stay.
        given_iterations: The most iterations and steps, where the user said.
        reporter: Told of each iteration.
        journal: Remembers what has been computed.
    """

    fixed: tuple[str, ...] = ()
    given_iterations: int | None = None
    reporter: Reporter = field(default_factory=Reporter)
    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        most = self.max_iterations
        if isinstance(self.given_iterations, bool) or not isinstance(most, int | np.integer) or most < 0:
            raise InvalidArgumentError(f"max_iterations must be an integer that is not negative, got {most!r}.")

    @property
    def max_iterations(self) -> int:
        """The most iterations of L-BFGS on any set of rows."""
        return 500 if self.given_iterations is None else self.given_iterations

    @property
    def steps(self) -> int:
        """The steps of learning frequencies."""
        return 300 if self.given_iterations is None else self.given_iterations


def maximize(
    likelihood: Callable[[], Tensor],
    state: State,
    plan: Plan,
    *,
    stage: str = "all rows",
    held: Iterable[str] = (),
    rows: Sized | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    tolerance: float = 1e-10,
) -> FitReport:
    """Maximise likelihood() + log prior over the hyperparameters that are not fixed, in place.

    Args:
        likelihood: The log marginal likelihood of standardised targets, 0-d, at the present hyperparameters.
        state: Its hyperparameters are changed in place.
        plan: The rest of what the user asked for.
        stage: What this is called.
        held: Names that stay beside those of the plan.
        rows: The rows in use, with their number of observations as `count`; None: all data of the state.
        bounds: Of raw values, by name, in place of a hyperparameter's own.
        tolerance: Of the relative change of the objective per observation in one iteration.
    """
    used: Any = state.known_data("a fit") if rows is None else rows
    size = len(used.rows) if rows is None else len(rows)
    search = _Search(likelihood, state, plan, stage, (*plan.fixed, *held), used.count, size)
    return search.run(bounds or {}, tolerance)


class _Search:
    """One run of L-BFGS."""

    def __init__(
        self,
        likelihood: Callable[[], Tensor],
        state: State,
        plan: Plan,
        stage: str,
        held: tuple[str, ...],
        count: float,
        rows: int,
    ) -> None:
        self._rows = rows
        self._likelihood, self._hyperparameters, self._plan, self._stage = (
            likelihood,
            state.hyperparameters,
            plan,
            stage,
        )
        self._free = state.hyperparameters.free(held)
        self._parameters = [parameter for _, parameter, _ in self._free]
        self._count, self._jacobian = count, state.scaling.targets.log_jacobian(count)
        self._trace: list[float] = []
        self._last: tuple[NDArray[np.float64], dict[str, Tensor]] | None = None

    def run(self, changed: Mapping[str, tuple[float, float]], tolerance: float) -> FitReport:
        """Return the report; the hyperparameters are those found."""
        self._plan.reporter.begin(self._stage, self._rows, self._plan.max_iterations)
        if not self._free:
            with torch.no_grad():
                value = self._likelihood().item() + self._jacobian
            return FitReport(True, 0, 0, value, "every hyperparameter is fixed")
        bounds = [changed.get(name, limits) for name, _, entries in self._free for limits in entries]
        result = self._minimize(_flatten(self._parameters), bounds, tolerance)
        message, success, evaluations = str(result.message), bool(result.success), int(result.nfev)
        if message.startswith("ABNORMAL"):  # its line search found no better point: rounding, or a curved valley
            before, result = float(result.fun), self._minimize(result.x, bounds, tolerance)
            message, success, evaluations = str(result.message), bool(result.success), evaluations + int(result.nfev)
            if not success and before - float(result.fun) < _ROUNDING:
                message, success = "no further progress at this precision", True
        value, _ = self._objective(result.x)
        with torch.no_grad():
            reached = -value * self._count - float(self._hyperparameters.log_prior())
        names = [name for name, _, entries in self._free for _ in entries]
        pairs = zip(names, result.x, bounds, strict=True)
        at_bounds = tuple(dict.fromkeys(name for name, point, limits in pairs if point in limits))
        done = Stage(self._stage, self._rows, len(self._trace) - 1, evaluations, self._gain())
        figures = (done.iterations, done.evaluations, reached)
        return FitReport(success, *figures, message, at_bounds, tuple(self._trace), (done,))

    def _minimize(self, start: NDArray[np.float64], bounds: list[Any], tolerance: float) -> Any:
        left = self._plan.max_iterations - max(len(self._trace) - 1, 0)
        return minimize(
            self._objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max(left, 0), "ftol": tolerance, "gtol": 1e-6},
            callback=self._after_iteration,
        )

    def _gain(self) -> float:
        return (self._trace[-1] - self._trace[0]) / self._count

    def _objective(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        _write(self._parameters, point)
        if self._last is None or not np.array_equal(self._last[0], point):
            self._last = point.copy(), self._plan.journal.remember(self._stage, self._evaluate)
        found = self._last[1]
        with torch.no_grad():
            for name, raw in self._hyperparameters.raw.items():
                raw.copy_(found[f"raw.{name}"])
        value = found["value"].item()
        if not self._trace and not math.isfinite(value):
            raise InvalidArgumentError(
                "The likelihood and the priors have no finite value where the search starts. Choose starting values "
                "that the priors allow."
            )
        if not self._trace:
            self._trace.append(-value * self._count)
        return value, np.asarray(found["gradient"].numpy())

    def _evaluate(self) -> dict[str, Tensor]:
        """Return the negative objective per observation, its gradient, and where it was taken.

        The likelihood may move hyperparameters that are not searched for, such as a scale that it solves for.
        """
        with torch.enable_grad():
            total = self._likelihood() + self._jacobian + self._hyperparameters.log_prior()
            value = -total / self._count
            gradient = _flatten(torch.autograd.grad(value, self._parameters))
        raw = {f"raw.{name}": tensor.detach().clone() for name, tensor in self._hyperparameters.raw.items()}
        return {"value": value.detach().double(), "gradient": torch.as_tensor(gradient), **raw}

    def _after_iteration(self, intermediate_result: Any) -> None:  # scipy goes by this name
        self._trace.append(-float(intermediate_result.fun) * self._count)
        self._plan.reporter.iteration(len(self._trace) - 1, self._trace[-1])


def _flatten(tensors: Any) -> NDArray[np.float64]:
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    return np.asarray(flat.double().cpu().numpy())


def _write(parameters: list[torch.nn.Parameter], point: NDArray[np.float64]) -> None:
    first = 0
    with torch.no_grad():
        for parameter in parameters:
            part = torch.as_tensor(point[first : first + parameter.numel()])
            parameter.copy_(part.reshape(parameter.shape))
            first += parameter.numel()
