"""The options of a fit, and L-BFGS over raw hyperparameters."""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.descent import Descent, descend
from rfgp.errors import InvalidArgumentError
from rfgp.fitting.checkpoint import Checkpoint, Searched
from rfgp.fitting.closed_form import ClosedForm
from rfgp.fitting.coordinates import Coordinates, Interval, MeanVariances, VarianceReparametrization
from rfgp.fitting.progress import Reporter
from rfgp.messages import check_count
from rfgp.parameters import ParameterValues
from rfgp.regression import FitReport, GPState, Stage
from rfgp.regression.report import TIME_OVER as TIME_OVER
from rfgp.rows import Rows
from rfgp.solvers import WarmStart

MIN_GAIN = 1e-5
"""The smallest gain of an iteration in nats. Differences below about one nat are not significant."""
_LAST = 5
"""The number of iterations whose total gain is compared with `Plan.least_gain`."""
_ROUNDING = 1e-6
"""The smallest gain, in nats per observation, of a restart after a failed line search."""

clock = time.monotonic
"""The clock of time limits."""


class Evaluation(NamedTuple):
    """A log marginal likelihood, and the hyperparameters at which it was evaluated."""

    value: Tensor  # 0-d, of standardized targets
    reached: ParameterValues  # with gradients; they differ from the arguments if some of them are solved for
    warm_start: WarmStart = ()  # the start of the next search for a posterior


class LogLikelihood(Protocol):
    """Interface: the log marginal likelihood of rows as a function of hyperparameters."""

    def __call__(self, values: ParameterValues, warm_start: WarmStart = ()) -> Evaluation:
        """Evaluate the likelihood.

        A search for the posterior starts at the warm start (...) of values close by.
        """


Bounds = Mapping[str, tuple[float, float]]
"""Bounds of raw values by name."""


class Deadline:
    """The time after which a fit begins no evaluation.

    Args:
        seconds: The seconds until then. If None, there is no such time.
        start: The time by `clock` from which they count. If None, now.

    Attributes:
        was_reached: Whether a search asked after that time, so that it ended early.

    Examples:
        >>> Deadline(60).has_passed(), Deadline(1, start=-1).has_passed()
        (False, True)
    """

    def __init__(self, seconds: float | None = None, start: float | None = None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._start = clock() if start is None else start
        self.was_reached = False

    def part(self, fraction: float = 1.0) -> "Deadline":
        """Return a deadline at a fraction of the time, which no search has reached.

        Args:
            fraction: The fraction, from 0 to 1. By default, all of the time.
        """
        return Deadline(fraction * self._seconds, self._start)

    @property
    def seconds_passed(self) -> float:
        """The seconds since the start."""
        return clock() - self._start

    @property
    def seconds_left(self) -> float:
        """The seconds until this time."""
        return self._seconds - self.seconds_passed

    def has_passed(self) -> bool:
        """Return whether this time has passed."""
        self.was_reached = self.was_reached or self.seconds_left < 0
        return self.was_reached


@dataclass(frozen=True)
class Plan:
    """The options of a fit.

    Attributes:
        fixed: Names of hyperparameters that keep their values.
        iteration_limit: The maximum number of iterations and steps. If None, 500 iterations and 300 steps.
        reporter: The reporter that is called after each iteration.
        checkpoint: The checkpoint of the fit.
        most_rows: The maximum number of rows of a search with neighbors. No posterior is then computed. If None, the
            default number of rows, and the posterior.
        is_continued: Whether the hyperparameters are those of an earlier search, so that no other starts are compared.
        fixed_also_compared: Whether fixed frequencies are a candidate of their own. If so, a fit with learned
            frequencies does not search with fixed ones.
        needed_gain: The gain over fixed frequencies, in nats a row, that makes learned ones useful. Learning stops
            early if its learning curve cannot reach this gain.
        needed_score: The standardized log density of a test row that makes learned frequencies useful. Learning stops
            early if it cannot reach this score.
        least_gain: The smallest total gain in nats of the last five iterations of a search. If 0, `MIN_GAIN` for each.
        deadline: The time after which no evaluation begins. Searches then end at the best point so far.

    Examples:
        >>> Plan(iteration_limit=100).max_iterations, Plan().steps
        (100, 300)
    """

    fixed: tuple[str, ...] = ()
    iteration_limit: int | None = None
    reporter: Reporter = field(default_factory=Reporter)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    most_rows: int | None = None
    is_continued: bool = False
    fixed_also_compared: bool = False
    needed_gain: float = -math.inf
    needed_score: float = -math.inf
    least_gain: float = 0.0
    deadline: Deadline = field(default_factory=Deadline, compare=False)

    def __post_init__(self) -> None:
        check_count("max_iterations", self.max_iterations, least=0)

    @property
    def max_iterations(self) -> int:
        """The maximum number of iterations of L-BFGS on any set of rows."""
        return 500 if self.iteration_limit is None else self.iteration_limit

    @property
    def steps(self) -> int:
        """The steps of learning frequencies."""
        return 300 if self.iteration_limit is None else self.iteration_limit

    def is_over(self) -> bool:
        """Return whether time is over.

        If so, the checkpoint is closed: a repeated fit continues from here, and takes other steps than this one.
        """
        if not self.deadline.has_passed():
            return False
        self.checkpoint.close()
        return True


@dataclass(frozen=True, eq=False)
class Objective:
    """The log posterior of hyperparameters, given rows.

    Attributes:
        log_likelihood: The log marginal likelihood as a function of the hyperparameters.
        rows: The number of rows.
        count: The number of observations, repetitions included.
        jacobian: The log Jacobian that converts the likelihood to the user's units.
        closed_form: The likelihood with its gradient in closed form. If None, autograd computes the gradient.
        variances: The mean prior variances of terms on nodes, which a search moves in place of their output scales. If
            None, it moves output scales.
    """

    log_likelihood: LogLikelihood
    rows: int
    count: float
    jacobian: float
    closed_form: ClosedForm | None = None
    variances: MeanVariances | None = None

    @classmethod
    def of(cls, state: GPState, rows: Rows, log_likelihood: LogLikelihood | None = None) -> "Objective":
        """Return the objective of rows under a state's prior, or with another likelihood.

        Args:
            state: The model state.
            rows: The rows.
            log_likelihood: The log marginal likelihood of the rows. If None, that of the state, in closed form if it
                has one.
        """
        jacobian = state.scaling.targets.log_jacobian(rows.count)
        closed_form = ClosedForm.of(state, rows) if log_likelihood is None else None
        log_likelihood = log_likelihood or marginal_likelihood(state, rows)
        return cls(log_likelihood, len(rows), rows.count, jacobian, closed_form, MeanVariances.of(state, rows))

    def likelihood(self, values: ParameterValues) -> float:
        """Return the log marginal likelihood in the user's units.

        Args:
            values: The hyperparameters.
        """
        with torch.no_grad():
            return self.log_likelihood(values)[0].item() + self.jacobian

    def log_posterior(self, values: ParameterValues) -> float:
        """Return the log likelihood, in standardized units, plus the log hyperpriors.

        Args:
            values: The hyperparameters.
        """
        with torch.no_grad():
            likelihood, reached, _ = self.log_likelihood(values)
            return float(likelihood + reached.log_hyperprior())

    def evaluated(self, values: ParameterValues, free: Iterable[str], warm_start: WarmStart = ()) -> "Evaluated":
        """Return the negative objective per observation, and its gradient (p,).

        The Jacobian is omitted, so that no search depends on the unit of the targets.

        Args:
            values: The hyperparameters.
            free: The names of the free hyperparameters, in the order of the gradient.
            warm_start: The tensors (...) of an earlier evaluation at values close by. If empty, there is no warm start.
        """
        names = list(free)
        in_closed_form = None if self.closed_form is None else self.closed_form(values, names)
        if in_closed_form is not None:
            value, gradient = in_closed_form
            return Evaluated(-value.item() / self.count, -gradient.numpy() / self.count, values, ())
        with torch.enable_grad():
            likelihood, reached, following = self.log_likelihood(values.leaves(names), warm_start)
            value = -(likelihood + reached.log_hyperprior()) / self.count
            gradients = torch.autograd.grad(value, [reached.raw[name] for name in names])
        gradient = torch.cat([g.reshape(-1) for g in gradients]).double().cpu()
        return Evaluated(value.item(), gradient.numpy(), reached.detached(), following)


class Evaluated(NamedTuple):
    """The negative objective per observation at some hyperparameters."""

    value: float
    gradient: NDArray[np.float64]  # in the free raw values, (p,)
    reached: ParameterValues  # without gradients
    warm_start: WarmStart  # of the next evaluation


def marginal_likelihood(state: GPState, rows: Rows) -> LogLikelihood:
    """Return the log marginal likelihood of rows as a function of the hyperparameters.

    Args:
        state: The model state.
        rows: The rows.
    """

    def log_likelihood(values: ParameterValues, warm_start: WarmStart = ()) -> Evaluation:
        inference = state.replace(hyperparameters=values).infer(rows, warm_start)
        return Evaluation(inference.log_marginal_likelihood(), values, inference.warm_start())

    return log_likelihood


def maximize(
    objective: Objective,
    values: ParameterValues,
    plan: Plan,
    *,
    stage: str = "all rows",
    held: Iterable[str] = (),
    bounds: Bounds | None = None,
    tolerance: float | None = None,
) -> tuple[ParameterValues, FitReport]:
    """Maximize the log posterior over the free hyperparameters.

    Args:
        objective: The objective.
        values: The starting values.
        plan: The options of the fit.
        stage: The name of the stage in the report.
        held: Names of further fixed hyperparameters.
        bounds: Bounds of raw values that replace a hyperparameter's own. If None, none are replaced.
        tolerance: The tolerance of the relative change of the objective per observation in one iteration. If None, a
            gain of `MIN_GAIN` nats.

    Returns:
        The hyperparameters found, and the report.

    Raises:
        InvalidArgumentError: If the log posterior at the starting values is not finite.

    Examples:
        >>> import rfgp
        >>> x = np.linspace(0, 3, 20)[:, None]
        >>> state = rfgp.ExactGP().condition(x, np.sin(x[:, 0])).state
        >>> objective = Objective.of(state, state.rows)
        >>> values, report = maximize(objective, state.hyperparameters, Plan(fixed=("mean",)))
        >>> report.converged, report.log_marginal_likelihood > objective.likelihood(state.hyperparameters)
        (True, True)
    """
    plan.reporter.begin(stage, objective.rows, plan.max_iterations)
    free = values.space.free((*plan.fixed, *held))
    if not free:
        return values, FitReport(True, 0, 0, objective.likelihood(values), "every hyperparameter is fixed")
    if plan.is_over():
        return values, not_searched(stage, objective.rows)
    begun = plan.checkpoint.begin(stage, values.raw)
    if begun is not None and begun.has_ended:
        return values.replaced(begun.tensors), begun.report
    search = _Search(objective, values, plan, stage, free, begun)
    values, report = search.run(bounds or {}, tolerance or MIN_GAIN / objective.count)
    plan.checkpoint.record(values.raw, report, has_ended=True)
    return values, report


def not_searched(stage: str, rows: int) -> FitReport:
    """Return the report of a search that did not begin, because time was over.

    Its likelihood is NaN.

    Args:
        stage: The name of the stage.
        rows: The number of rows.
    """
    done = Stage(stage, rows, 0, 0, 0.0)
    return FitReport(False, 0, 0, math.nan, TIME_OVER, trace=(math.nan,), stages=(done,))


def ended_early(report: FitReport) -> FitReport:
    """Return the report of a fit that ended because time was over.

    Args:
        report: The report, which may not say so.
    """
    message = report.message if TIME_OVER in report.message else f"{TIME_OVER}; {report.message}"
    message = message.replace("; converged: ", "; ")
    return replace(report, converged=False, message=message)


class _TimeOverError(Exception):
    """Ends a search within scipy."""


class _Last(NamedTuple):
    """The last evaluation of a search: point (p,), values and gradient (p,)."""

    point: NDArray[np.float64]
    evaluated: Evaluated
    gradient: NDArray[np.float64]


class _Search:
    """One run of L-BFGS, which may continue an earlier one."""

    def __init__(
        self,
        objective: Objective,
        values: ParameterValues,
        plan: Plan,
        stage: str,
        free: list[str],
        begun: Searched | None,
    ) -> None:
        self._objective, self._start, self._plan, self._stage, self._free = objective, values, plan, stage, free
        variances = objective.variances
        reparametrization = None if variances is None else VarianceReparametrization(variances, values, free)
        self._coordinates = Coordinates.of(values.space, free, reparametrization)
        self._begin = values if begun is None else values.replaced(begun.tensors)
        self._trace: list[float] = [] if begun is None else list(begun.report.trace)
        self._descent_start = 0  # the index in the trace of the first value of the last descent
        self._last: _Last | None = None
        self._best: _Last | None = None
        self._evaluations = self._earlier = 0 if begun is None else begun.report.evaluations

    def run(self, changed: Bounds, tolerance: float) -> tuple[ParameterValues, FitReport]:
        """Return the hyperparameters found, and the report."""
        entries = [(name, limits) for name in self._free for limits in self._start.space.bounds(name)]
        bounds = self._coordinates.limits([changed.get(name, limits) for name, limits in entries])
        search = self._descend(self._begin.vector(self._free), bounds, tolerance)
        search = self._again(search, bounds, tolerance)
        value, _ = self._evaluate(search.point)
        assert self._last is not None
        reached = self._start.replaced(self._last.evaluated.reached.raw)
        with torch.no_grad():
            likelihood = self._log_posterior(value) - float(reached.log_hyperprior())
        pairs = zip(entries, search.point, bounds, strict=True)
        at_bounds = tuple(dict.fromkeys(name for (name, _), point, limits in pairs if point in limits))
        gain = (self._trace[-1] - self._trace[0]) / self._objective.count
        evaluations = self._earlier + search.evaluations
        done = Stage(self._stage, self._objective.rows, len(self._trace) - 1, evaluations, gain)
        figures = (done.iterations, done.evaluations, likelihood)
        trace = tuple(self._trace)
        return reached, FitReport(search.converged, *figures, search.message, at_bounds, trace, (done,))

    def _again(self, search: Descent, bounds: list[Interval], tolerance: float) -> Descent:
        """Search again from shorter saturated lengthscales; return the better end."""
        value, slope = self._evaluate(search.point)
        end = self._coordinates.raw(search.point)
        restarted = self._coordinates.restart(end, slope / self._coordinates.slope(end) * self._objective.count)
        is_last = search.iterations >= self._plan.max_iterations or search.message == TIME_OVER
        if is_last or np.array_equal(restarted, end):
            return search
        last, length = self._last, len(self._trace)
        again = self._descend(restarted, bounds, tolerance)
        evaluations = search.evaluations + again.evaluations
        if self._evaluate(again.point)[0] < value:
            return again._replace(evaluations=evaluations)
        self._last = last
        del self._trace[length:]
        return search._replace(evaluations=evaluations)

    def _descend(self, start: NDArray[np.float64], bounds: list[Interval], tolerance: float) -> Descent:
        self._descent_start, evaluations = max(0, len(self._trace) - 1), self._evaluations
        try:
            return descend(
                self._evaluate_in_time,
                self._coordinates.at(start),
                bounds,
                most=self._plan.max_iterations - max(0, len(self._trace) - 1),
                tolerance=tolerance,
                gradient_tolerance=1e-6,
                restarts=1,
                rounding=_ROUNDING,
                after=self._after_iteration,
            )
        except _TimeOverError:
            assert self._best is not None
            self._last = self._best
            reached = self._log_posterior(self._best.evaluated.value)
            if reached > self._trace[-1]:
                self._trace.append(reached)
            iterations = len(self._trace) - 1 - self._descent_start
            return Descent(self._best.point, False, TIME_OVER, iterations, self._evaluations - evaluations)

    def _evaluate(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        if self._last is None or not np.array_equal(self._last.point, point):
            raw = self._coordinates.raw(point)
            values = self._start.moved(self._free, raw)
            start = () if self._last is None else self._last.evaluated.warm_start
            evaluated = self._objective.evaluated(values, self._free, start)
            gradient = self._coordinates.gradient(raw, evaluated.gradient)
            self._last, self._evaluations = _Last(point.copy(), evaluated, gradient), self._evaluations + 1
            if self._best is None or evaluated.value < self._best.evaluated.value:
                self._best = self._last
        value = self._last.evaluated.value
        if not self._trace:
            if not math.isfinite(value):
                raise InvalidArgumentError(
                    f"The log posterior at the starting values must be finite, got {-value:g}. Choose starting values "
                    "that the priors allow."
                )
            self._trace.append(self._log_posterior(value))
        return value, self._last.gradient

    def _evaluate_in_time(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        before = self._evaluations
        evaluated = self._evaluate(point)
        if self._evaluations > before and self._plan.is_over():
            raise _TimeOverError
        return evaluated

    def _log_posterior(self, value: float) -> float:
        return self._objective.jacobian - value * self._objective.count

    def _after_iteration(self, value: float) -> None:
        self._trace.append(self._log_posterior(value))
        assert self._last is not None
        present = self._start.moved(self._free, self._coordinates.raw(self._last.point))
        iterations, trace = len(self._trace) - 1, tuple(self._trace)
        report = FitReport(False, iterations, self._evaluations, math.nan, "interrupted", trace=trace)
        self._plan.checkpoint.record(present.raw, report, has_ended=False)
        self._plan.reporter.iteration(iterations, trace[-1])
        since = self._trace[self._descent_start :]
        if len(since) > _LAST and since[-1] - since[-1 - _LAST] < self._plan.least_gain:
            raise StopIteration
